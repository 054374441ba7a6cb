"""Bounds beside auto_LiRPA's, where it can be imported: widths on the random networks that it bounds rightly.

It has two ways to keep coefficients, patches and matrices, and the tighter of them counts, if it answers and nothing
that is found by ascent from many points of the box lies outside: neither at the output nor at an operator before it,
whose bounds the output's are made of. What it leaves out by rounding, since it does not round outward, is held against
nobody here; `lunette conform auto_lirpa --as bounds` reports it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

import lunette as ln
from lunette.bench.random_networks import random_network
from lunette.conform.backends.auto_lirpa import bounds_by, is_here
from lunette.conform.module import as_module
from lunette.errors import LunetteError
from lunette.number import Array

METHODS: Final = {"crown": "CROWN", "optimised": "CROWN-Optimized"}
"""Ours, and theirs; each with its default number of steps."""
MODES: Final = ("patches", "matrix")
STEPS: Final = (*[0.5] * 12, *[0.1] * 12, *[0.03] * 12)
"""Of an ascent, as shares of the box."""
STARTS, MOST_CELLS = 8, 64
"""Points from which an output is pushed up and down, and outputs for which that is done."""
Ends = tuple[Array, Array]


def width(lo: Array, hi: Array) -> float:
    """The mean of all outputs."""
    return float(np.mean(hi - lo))


# ---- theirs


def theirs(graph: ln.Graph, box: ln.Interval, method: str, mode: str) -> Ends | None:
    """Its bounds, or None where it refuses."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            lo, hi = bounds_by(as_module(graph), box.lo, box.hi, method, mode)
    except Exception:  # whatever it does not have
        return None
    return np.asarray(lo, np.float64), np.asarray(hi, np.float64)


def cuts(graph: ln.Graph) -> Iterator[ln.Graph]:
    """The network up to each of its operators that read others, and the whole of it."""
    for at, n in enumerate(graph.nodes):
        if n.kind is not None and n.inputs[0] and graph.nodes[n.inputs[0]].kind is not None:
            part = ln.Graph()
            part.nodes, part.outputs = graph.nodes[: at + 1], [at]
            yield part


def reached(graph: ln.Graph, box: ln.Interval) -> Ends:
    """The least and the greatest value that ascent finds of some outputs, and else at its points, in float64."""
    import torch

    module = as_module(graph).double()
    torch.manual_seed(0)
    lo, hi = (torch.from_numpy(np.asarray(end, np.float64)) for end in (box.lo, box.hi))
    cells = int(np.prod(module(lo).shape))
    chosen = torch.linspace(0, cells - 1, min(cells, MOST_CELLS)).long().repeat(2 * STARTS)
    sign = torch.ones(len(chosen), dtype=torch.float64)
    sign[len(chosen) // 2 :] = -1
    x = lo + (hi - lo) * torch.rand(len(chosen), *lo.shape[1:], dtype=torch.float64)
    least, most = np.full(cells, np.inf), np.full(cells, -np.inf)
    for share in STEPS:
        x = x.detach().requires_grad_()
        y = module(x).reshape(len(chosen), cells)
        (slope,) = torch.autograd.grad((y[torch.arange(len(chosen)), chosen] * sign).sum(), x)
        least, most = np.minimum(least, y.detach().numpy().min(0)), np.maximum(most, y.detach().numpy().max(0))
        x = torch.clamp(x + share * (hi - lo) * slope.sign(), lo, hi)
    return least, most


def rounding(graph: ln.Graph, box: ln.Interval) -> Array:
    """How far an execution in the graph's dtype may be off."""
    real, float_ = (ln.bounds(graph, box, method="interval", semantics=s) for s in ("real", "float"))
    return np.maximum(float_.hi - real.hi, real.lo - float_.lo).ravel()


def holds(graph: ln.Graph, box: ln.Interval, claimed: Ends) -> bool:
    """Whether nothing was found outside, but by rounding."""
    (lo, hi), (least, most) = (end.ravel() for end in claimed), reached(graph, box)
    slack = rounding(graph, box)
    return bool((lo - slack <= least).all() and (most <= hi + slack).all())


# ---- beside ours


def compared(seeds: Sequence[int]) -> Iterator[tuple[int, str, float, float]]:
    """(seed, our method, our width, their width), where theirs holds."""
    for seed in seeds:
        graph, box = random_network(seed)
        try:
            as_module(graph)
        except LunetteError:  # a window that torch does not have, or a smooth maximum
            continue
        right = [m for m in MODES if all(_right(part, box, "CROWN", m) is not None for part in cuts(graph))]
        for own, method in METHODS.items():
            found = [w for m in right if (w := _right(graph, box, method, m)) is not None]
            if found:
                alone = ln.bounds(graph, box, method=own).alone
                yield seed, own, width(alone.lo, alone.hi), min(found)


def _right(graph: ln.Graph, box: ln.Interval, method: str, mode: str) -> float | None:
    """The width of its bounds if there are some and they hold."""
    claimed = theirs(graph, box, method, mode)
    return width(*claimed) if claimed is not None and holds(graph, box, claimed) else None


def peer_widths(networks: int) -> Iterator[tuple[str, float, str, bool]]:
    """(what, figure, goal, whether it is reached) of each method."""
    if not is_here():
        return
    rows = list(compared(range(networks)))
    for own, method in METHODS.items():
        ratios = np.array([ours / other for _, name, ours, other in rows if name == own])
        if len(ratios):
            mean = float(np.exp(np.mean(np.log(ratios))))
            what = f"{len(ratios)} of {networks} random networks: width of {own} to auto_LiRPA's {method}"
            yield what, mean, "< 1", mean < 1
