"""How convolutions and pools are written: by lunette.dialects.onnx where it has words that mean the same.

What it has no words for (smooth maxima, bins of different sizes, divisors, norms of any order) is made of parts of the
input: one for every cell of the window, side by side on a new first axis, which a reduction folds.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, Final

import numpy as np

from lunette.dialects.dialect import Call
from lunette.dialects.meaning import Meaning, meaning_of, setting_of
from lunette.errors import ArgumentError
from lunette.graph.nodes import Node
from lunette.graph.text import options_of
from lunette.number import Array
from lunette.onnx.windows import dialect
from lunette.onnx.writing import Writer, Writing
from lunette.op import Op
from lunette.ops import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    Conv,
    ConvTranspose,
    GlobalAvgPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    SmoothMaxPool,
)
from lunette.window import Axis, Bins, Shape

MOST_PARTS: Final = 4096


class _Pool:
    """A pool with one batch axis, on (N, C, *space)."""

    def __init__(self, w: Writing, n: Node, x: str) -> None:
        assert n.kind is not None and n.resolved is not None and n.resolved.shapes[0] is not None
        self.w, self.n = w, n
        sample = n.resolved.shapes[0]
        self.space = sample[1:]
        self.shape: Shape = (math.prod(n.resolved.batch), *sample)
        self.x = x if len(n.resolved.batch) == 1 else w.reshape(x, self.shape)
        self.options = dict(zip(options_of(n.kind), n.options, strict=True))
        if "keepdims" in self.options:
            self.options["keepdims"] = True

    def meaning(self) -> Meaning:
        """Which cells are read, and what they are divided by."""
        assert self.n.kind is not None
        return meaning_of(setting_of(self.n.kind.name, [self.shape], self.options))

    def said(self, *inputs: str, shapes: tuple[Shape, ...] = ()) -> str | None:
        """One node, if ONNX has words for it."""
        assert self.n.kind is not None
        if not self.space:
            return None
        call = dialect(self.w.opset).express(self.n.kind.name, [self.shape, *shapes], self.options)
        if not isinstance(call, Call) or call.departures:
            return None
        return self.w.node(call.function, [self.x, *inputs], **call.arguments)

    def done(self, y: str, shape: Shape | None = None) -> str:
        """The result in the shape that the graph has."""
        return y if shape == self.n.shape else self.w.reshape(y, self.n.shape)

    def parts(self, x: str, pads: Any, value: Any) -> str:
        """The cells of every window side by side on a new first axis; those outside of the input have one value."""
        found = self.meaning()
        w, dtype = self.w, self.n.dtype
        axes = [a for a in found.window.axes if isinstance(a, Axis)]
        if math.prod(a.kernel for a in axes) > MOST_PARTS:
            got, hint = f"kernel {found.kernel}", "Compute it before or behind the model."
            raise ArgumentError("NX12", f"a window of at most {MOST_PARTS} cells", got, hint)
        long = [(m - 1) * a.stride + a.span for a, m in zip(axes, found.out, strict=True)]
        (first, fill), ends = pads, []
        sizes = list(self.space)
        if first is not None:  # padding that counts, inside of what does not
            x = w.padded(x, [(0, 0), (0, 0), *first], fill, dtype)
            sizes = [lo + s + hi for s, (lo, hi) in zip(sizes, first, strict=True)]
        for a, s, need in zip(axes, sizes, long, strict=True):
            lo = a.lo if first is None else 0
            ends.append((lo, max(need - s - lo, 0)))
        x = w.padded(x, [(0, 0), (0, 0), *ends], value, dtype)
        if not axes:
            return w.reshape(x, (1, *self.shape))
        spatial, rows = range(2, 2 + len(axes)), []
        for cell in product(*(range(a.kernel) for a in axes)):
            starts = [k * a.dilation for k, a in zip(cell, axes, strict=True)]
            stops = [p + (m - 1) * a.stride + 1 for p, a, m in zip(starts, axes, found.out, strict=True)]
            part = w.part(x, spatial, starts, stops, [a.stride for a in axes])
            rows.append(w.reshape(part, (1, *self.shape[:2], *found.out)))
        return rows[0] if len(rows) == 1 else w.node("Concat", rows, axis=0)

    def folded(self, kind: str, parts: str) -> str:
        """The parts as one."""
        return self.w.node(kind, [parts, self.w.ints([0])], keepdims=0)


def write_conv(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert n.kind is not None and n.resolved is not None
    p = _Pool(w, n, inputs[0])
    kernel = n.resolved.shapes[1]
    assert kernel is not None
    weights = [name for name in inputs[1:] if name is not None]
    if not p.space:  # one cell of space, since ONNX has no convolution without
        shape, p.shape = p.shape, (*p.shape, 1)
        wide = [w.reshape(p.x, p.shape), w.reshape(weights[0], (*kernel, 1)), *weights[1:]]
        y = w.node(dialect(w.opset).functions[n.kind.name].name, wide, group=p.options["groups"])
        return w.reshape(y, n.shape) if shape else y
    call = dialect(w.opset).express(n.kind.name, [p.shape, kernel], p.options)
    if not isinstance(call, Call):
        raise ArgumentError("NX12", "words of ONNX for it", f"{p.options}", f"{call.reason}")
    out = (p.shape[0], *n.shape[len(n.resolved.batch) :])
    return p.done(w.node(call.function, [p.x, *weights], **call.arguments), out)


def write_max(w: Writing, n: Node, inputs: list[Any]) -> str:
    p = _Pool(w, n, inputs[0])
    y = p.said()
    return p.done(p.folded("ReduceMax", p.parts(p.x, (None, 0), -np.inf)) if y is None else y)


def write_avg(w: Writing, n: Node, inputs: list[Any]) -> str:
    p = _Pool(w, n, inputs[0])
    if (y := p.said()) is None:
        y = p.folded("ReduceSum", p.parts(p.x, (None, 0), 0))
        y = w.node("Div", [y, w.constant(_divisors(p.meaning()), n.dtype)])
    return p.done(y)


def _divisors(m: Meaning) -> Array:
    assert m.divisor is not None
    cells = [float(m.divisor.at(o, m.space)) for o in product(*map(range, m.out))]
    return np.asarray(cells).reshape(m.out)


def write_lp(w: Writing, n: Node, inputs: list[Any]) -> str:
    p = _Pool(w, n, inputs[0])
    if (y := p.said()) is not None:
        return p.done(y)
    parts = w.node("Abs", [p.parts(p.x, (None, 0), 0)])
    top = p.folded("ReduceMax", parts)
    assert isinstance(n.op, LpPool)
    if n.op.p == math.inf:
        return p.done(top)
    tiny = w.constant(np.finfo(n.dtype).tiny, n.dtype)
    by = w.node("Max", [top, tiny])  # the greatest cell of a window, or of zeros anything else
    powers = w.node("Pow", [w.node("Div", [parts, by]), w.constant(n.op.p, n.dtype)])
    root = w.node("Pow", [p.folded("ReduceSum", powers), w.constant(1 / n.op.p, n.dtype)])
    return p.done(w.node("Mul", [root, by]))


def write_smooth_max(w: Writing, n: Node, inputs: list[Any]) -> str:
    p = _Pool(w, n, inputs[0])
    beta = inputs[1]
    inside = None
    if p.options["count_include_pad"]:
        axes = p.meaning().window.axes
        inside = [(a.lo, a.hi) for a in axes if isinstance(a, Axis)]
    parts = p.parts(w.node("Mul", [p.x, beta]), (inside, 0), -np.inf)
    return p.done(w.node("Div", [p.folded("ReduceLogSumExp", parts), beta]))


def bins(kind: str) -> Writer:
    """Adaptive pools: bins of each axis in turn, since all their cells count alike."""

    def written(w: Writing, n: Node, inputs: list[Any]) -> str:
        p = _Pool(w, n, inputs[0])
        if (y := p.said()) is not None:
            return p.done(y)
        y = p.x
        for axis, (a, size) in enumerate(zip(p.meaning().window.axes, p.space, strict=True), 2):
            assert isinstance(a, Bins)
            rows = []
            for o in range(a.m):
                reach = a.reach(o, size)
                part = w.part(y, [axis], [reach.i], [reach.i + reach.count], [1])
                rows.append(w.node(kind, [part, w.ints([axis])], keepdims=1))
            y = w.node("Concat", rows, axis=axis)
        return p.done(y)

    return written


def whole(kind: str) -> Writer:
    """Global pools."""

    def written(w: Writing, n: Node, inputs: list[Any]) -> str:
        p = _Pool(w, n, inputs[0])
        y = p.said()
        return p.done(p.x if y is None else y)

    return written


WRITERS: Final[dict[type[Op], Writer]] = {
    Conv: write_conv,
    ConvTranspose: write_conv,
    MaxPool: write_max,
    AvgPool: write_avg,
    LpPool: write_lp,
    SmoothMaxPool: write_smooth_max,
    AdaptiveAvgPool: bins("ReduceMean"),
    AdaptiveMaxPool: bins("ReduceMax"),
    GlobalAvgPool: whole("GlobalAveragePool"),
    GlobalMaxPool: whole("GlobalMaxPool"),
}
