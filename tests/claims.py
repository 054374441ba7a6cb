"""Functions that claim bounds of networks, right and wrong ones: what `lunette conform ... --as bounds` is tested on.

All of them propagate intervals through the graph, in plain floats; each has one mistake.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lunette as ln
from lunette.graph.text import options_of

Array = Any
Ends = tuple[Array, Array]
Change = Callable[[str, dict[str, Any], list[Any]], None]


def nothing(name: str, options: dict[str, Any], inputs: list[Any]) -> None:
    """As it is."""


def propagated(graph: ln.Graph, lo: Array, hi: Array, change: Change = nothing) -> Ends:
    """The interval of every node in turn, each rounded outward; `change` may spoil an operator."""
    values: list[Any] = []
    for n in graph.nodes:
        if n.kind is None:
            values.append(ln.Interval(lo, hi) if n.value is None else n.value)
            continue
        inputs = [values[i] for i in n.inputs if i is not None]
        options = dict(zip(options_of(n.kind), n.options, strict=True))
        change(n.kind.name, options, inputs)
        if n.kind.name == "matmul":
            values.append(ln.linear(*inputs))
        elif n.kind.name == "smooth_max_pool":
            values.append(ln.smooth_max_pool(inputs[0], beta=inputs[1], **options))
        elif n.kind.name == "reshape":
            values.append(ln.flatten(inputs[0]))
        else:
            values.append(getattr(ln, n.kind.name)(*inputs, **options))
    y = values[graph.outputs[0]]
    return y.lo, y.hi


def right(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """Nothing is wrong with it."""
    return propagated(network, lo, hi)


def from_onnx(network: bytes, lo: Array, hi: Array) -> Ends:
    """The same of a model in ONNX's format."""
    import onnx

    found = ln.bounds(ln.from_onnx(onnx.load_from_string(network)), ln.Interval(lo, hi))
    return found.lo, found.hi


def pads_with_zeros(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """Maxima over the border see zeros."""

    def change(name: str, options: dict[str, Any], inputs: list[Any]) -> None:
        pads = options.get("padding")
        if name == "max_pool" and isinstance(pads, tuple):
            rows = [(0, 0), (0, 0), *pads]
            inputs[0] = ln.Interval(np.pad(inputs[0].lo, rows), np.pad(inputs[0].hi, rows))
            options["padding"] = 0

    return propagated(network, lo, hi, change)


def forgets(option: str, instead: Any) -> Callable[[ln.Graph, Array, Array], Ends]:
    """Averages without one of their options."""

    def change(name: str, options: dict[str, Any], inputs: list[Any]) -> None:
        if name == "avg_pool":
            options[option] = instead

    def forgetful(network: ln.Graph, lo: Array, hi: Array) -> Ends:
        return propagated(network, lo, hi, change)

    return forgetful


no_divisor = forgets("divisor", None)
no_count_include_pad = forgets("count_include_pad", True)
no_ceil_mode = forgets("ceil_mode", False)


def of_one_convolution(network: ln.Graph, lo: Array, hi: Array, dtype: Any) -> Ends:
    """Each weight takes the end that its sign says: exact bounds, but for the dtype's rounding to the nearest."""
    operators = [n for n in network.nodes if n.kind is not None]
    if len(operators) != 1:
        raise NotImplementedError("one operator only")
    assert operators[0].kind is not None
    options = dict(zip(options_of(operators[0].kind), operators[0].options, strict=True))
    weights: list[Any] = [network.nodes[i].value for i in operators[0].inputs[1:] if i is not None]
    w, *b = weights
    up, down, *b = (None if a is None else a.astype(dtype) for a in (np.maximum(w, 0), np.minimum(w, 0), *b))
    ends = ((a.astype(dtype), c.astype(dtype)) for a, c in ((lo, hi), (hi, lo)))
    least, most = (ln.conv(a, up, *b, **options) + ln.conv(c, down, **options) for a, c in ends)
    return least, most


def in_float32(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """Rounded to the nearest: half of the time inward."""
    return of_one_convolution(network, lo, hi, np.float32)


def one_ulp_too_tight(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """Exact where numbers are whole, then moved by the least step there is."""
    least, most = of_one_convolution(network, lo, hi, np.float64)
    return least, np.nextafter(most, -np.inf)


def too_narrow(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """Nine tenths of the width."""
    low, high = propagated(network, lo, hi)
    return low + (high - low) / 20, high - (high - low) / 20


# ---- answers that are none


def declines(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """It has no volumes, and says so."""
    if lo.ndim == 5:
        raise NotImplementedError(f"no volumes of {lo.shape}")
    return propagated(network, lo, hi)


def nan(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    low, high = propagated(network, lo, hi)
    return low, np.where(high == high.max(), np.nan, high)


def one_cell_less(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    low, high = propagated(network, lo, hi)
    return low.ravel()[1:], high.ravel()[1:]


def none(network: ln.Graph, lo: Array, hi: Array) -> None:
    """No bounds."""


def dies(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    if lo.ndim == 4:
        os.abort()
    return propagated(network, lo, hi)


def sleeps(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    if lo.ndim == 4:
        time.sleep(60)
    return propagated(network, lo, hi)


def infinite(network: ln.Graph, lo: Array, hi: Array) -> Ends:
    """True, and of no use."""
    low, high = propagated(network, lo, hi)
    return np.full(low.shape, -np.inf), np.full(high.shape, np.inf)
