"""What a file is, by the ending of its name, for refusals of a file in the place of another."""

from __future__ import annotations

from pathlib import Path

ORDER = "On the command line the network comes first, then the property or the certificate."
KINDS = {
    ".onnx": ("a model of ONNX", f"ln.from_onnx reads it. {ORDER}"),
    ".vnnlib": ("a property in VNNLIB", f"ln.Property.load reads it. {ORDER}"),
    ".json": ("a saved graph", f"ln.load reads it. {ORDER}"),
    ".npy": ("an array of NumPy", "np.load reads it."),
    ".npz": ("arrays of NumPy", "np.load reads it; beside a saved graph it holds constants: name the graph's file."),
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".safetensors"),
        ("a file of torch", 'Load it in torch, then ln.from_torch(module, example).save("net.json") writes a graph.'),
    ),
}
"""Ending -> what it is, and what to do with it."""


def kind_of(path: Path) -> tuple[str, str] | None:
    """The file by its name with what it is, and a hint; None if the ending tells nothing.

    >>> kind_of(Path("folder/digits.onnx.gz"))[0]
    'digits.onnx.gz, a model of ONNX'
    """
    found = KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    return None if found is None else (f"{path.name}, {found[0]}", found[1])
