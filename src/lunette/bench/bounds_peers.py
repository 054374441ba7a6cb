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
from typing import Final

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
BENT: Final = ("relu", "max_pool", "smooth_max_pool")
"""Operators of random networks that are not linear."""
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
    """The network up to each value whose bounds matter: what an operator that is not linear reads, and the output."""
    bent = {i for n in graph.nodes if n.kind is not None and n.kind.name in BENT for i in n.inputs if i is not None}
    for at in sorted({i for i in bent if graph.nodes[i].kind is not None} | {graph.outputs[0]}):
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
    return np.asarray(np.maximum(float_.hi - real.hi, real.lo - float_.lo)).ravel()


def must_hold(graph: ln.Graph, box: ln.Interval) -> Ends:
    """What bounds have to contain: the values that were found, less what is rounding."""
    (least, most), slack = reached(graph, box), rounding(graph, box)
    return least + slack, most - slack


def hold(claimed: Ends | None, inside: Ends) -> bool:
    """Whether there are bounds, and nothing was found outside of them."""
    if claimed is None:
        return False
    lo, hi = (end.ravel() for end in claimed)
    return bool((lo <= inside[0]).all() and (hi >= inside[1]).all())


# ---- beside ours


def compared(seeds: Sequence[int]) -> Iterator[tuple[int, str, float, float]]:
    """(seed, our method, our width, their width), where theirs holds."""
    for seed in seeds:
        graph, box = random_network(seed)
        try:
            as_module(graph)
        except LunetteError:  # a window that torch does not have, or a smooth maximum
            continue
        modes, inside = list(MODES), None
        for part in cuts(graph):
            claims = {mode: theirs(part, box, METHODS["crown"], mode) for mode in modes}
            inside = must_hold(part, box) if any(claims.values()) else None
            modes = [mode for mode, claimed in claims.items() if inside is not None and hold(claimed, inside)]
            if inside is None or not modes:
                break
        for own, method in METHODS.items():
            claims = {mode: theirs(graph, box, method, mode) for mode in modes}
            found = [width(*c) for c in claims.values() if c is not None and inside is not None and hold(c, inside)]
            if found:
                alone = ln.bounds(graph, box, method=own).alone
                yield seed, own, width(alone.lo, alone.hi), min(found)


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
