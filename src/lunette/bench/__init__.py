"""Side by side with other libraries, on the same data in the same run: `lunette bench`.

cases.py    the layers that are measured
models.py   networks, written once for every library; networks.py: how they are problems
peers.py    what an adapter is, and lunette's own; with_torch.py, with_jax.py, with_onnx.py: everyone else's
measure.py  a run: who takes turns with whom, and medians; figures.py: what concerns lunette alone
turns.py    inside a worker: libraries at one problem; memory.py: what a call takes; workers.py: processes from outside
data.py     what unusual numbers cost, beside random ones
result.py   what was measured, as JSON
goals.py    what should be reached
report.py   tables and the plot
"""
