"""A graph as bounds see it: in float64, with what does not vary folded away, and in operators that have lines.

The statement is about the real-valued function of the graph with the weights it has, so the weights are taken over as
they are (every float32 is a float64), and so are numeric options, after they are rounded to the graph's own dtype.
Some operators become others that mean the same: `stop_gradient` is its operand; a quotient is the product with the
reciprocal; softmax is the exponential of x less the logarithm of the sum of exponentials; a product of two matrices
that both vary is the sum of the products of their cells; Lp pools of p = 1, 2, 4, 8 and infinity are sums and maxima of
powers and magnitudes, and square roots of those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from lunette.graph.graph import Graph, Node, Var
from lunette.graph.walk import forward
from lunette.number import Array, as_dtype
from lunette.op import apply
from lunette.ops.avg_pool import avg_pool
from lunette.ops.binary import Div, Mul, mul, sub
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.layout import reshape, transpose
from lunette.ops.linear import MatMul
from lunette.ops.lp_pool import LpPool
from lunette.ops.max_pool import max_pool
from lunette.ops.norm import LogSoftmax, Softmax
from lunette.ops.power import power
from lunette.ops.smooth_max_pool import smooth_max_pool
from lunette.ops.unary import StopGradient, exp, sqrt
from lunette.ops.unary import abs as absolute

DOUBLE = np.dtype(np.float64)
NORMS: Final = (1, 2, 4, 8, math.inf)
"""The p of Lp pools that other operators make, exactly."""


def in_float64(graph: Graph, given: Sequence[Array | None]) -> Graph:
    """The graph that bounds are computed of; inputs that are given as points are constants of it."""
    new = Graph()
    new.lines = False
    values: list[Any] = []
    for n, point in zip(graph.inputs, given, strict=True):
        if point is None:
            values.append(new.input(n.shape, DOUBLE, n.name))
        else:
            values.append(point if n.dtype.kind == "i" else point.astype(DOUBLE))
    varies: set[int] = {v.id for v in values if isinstance(v, Var)}

    def take(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value.astype(DOUBLE)
        return value

    def compute(n: Node, operands: list[Any]) -> Any:
        assert n.kind is not None
        own = [None if o is None else take(o) for o in operands]
        moving = [isinstance(o, Var) and o.id in varies for o in own]
        if not any(isinstance(o, Var) for o in own):
            first = next(p for p, o in enumerate(own) if o is not None)
            own[first] = new.constant(own[first])
        y = _rewritten(n, own, moving, tuple(_option(o, n.dtype) for o in n.options))
        if any(moving):
            varies.update(range(before, len(new.nodes)))
        return y

    before = 0
    known: dict[int, Any] = {}
    for at, v in forward(graph, values, compute):
        known[at], before = v, len(new.nodes)
    for at in graph.outputs:
        new.output(known[at] if isinstance(known[at], Var) else new.constant(take(known[at])))
    return new


def _option(option: Any, dtype: np.dtype[Any]) -> Any:
    """A numeric option as the graph's own dtype has it; the name of the dtype becomes the new one."""
    if type(option) is float and dtype.kind == "f":
        return float(as_dtype(option, dtype))
    return DOUBLE.name if option == dtype.name else option


def _rewritten(n: Node, own: list[Any], moving: list[bool], options: tuple[Any, ...]) -> Any:
    kind = n.kind
    assert kind is not None
    if kind is StopGradient:
        return own[0]
    if kind is Div and moving[1]:
        return mul(own[0], power(own[1], -1))
    if kind is Mul and own[0] is own[1]:
        return power(own[0], 2)
    if kind is MatMul and all(moving):
        return _products(own, *options)
    if kind in (Softmax, LogSoftmax):
        less = sub(own[0], _log_sum_exp(own[0], options[0]))
        return less if kind is LogSoftmax else exp(less)
    if kind is LpPool and n.op.p in NORMS:  # type: ignore[attr-defined]
        return _norm(n, own[0], options)
    return apply(kind, own, "fast", *options)


def _log_sum_exp(x: Any, axis: int) -> Any:
    """Along one axis, which stays with one cell: one window of a smooth maximum."""
    rank = len(x.shape)
    at = axis % rank
    order = (*(a for a in range(rank) if a != at), at)
    last = transpose(x, order)
    rows = reshape(last, (prod(last.shape[:-1]), last.shape[-1]))
    whole = smooth_max_pool(rows, last.shape[-1:], beta=1.0, stride=1)
    return transpose(reshape(whole, (*last.shape[:-1], 1)), tuple(int(a) for a in np.argsort(order)))


def _norm(n: Node, x: Any, options: tuple[Any, ...]) -> Any:
    """The norms whose roots are square roots, and of p = infinity, where windows without cells are left alone."""
    kernel, p, stride, padding, dilation, ceil_mode, _ = options
    window, size = n.op.window, absolute(x)  # type: ignore[attr-defined]
    own = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    if p != math.inf:
        y = avg_pool(size if p == 1 else power(x, int(p)), kernel, divisor=1, **own)
        for _ in range(NORMS.index(p)):
            y = sqrt(y)
        return y
    if window.empty_cell(x.shape[len(x.shape) - window.d :]) is not None:
        return apply(LpPool, (x,), "fast", *options)
    return max_pool(size, kernel, **own)


def _products(own: list[Any], turn_x: bool, turn_y: bool) -> Any:
    """z[.., i, j] = sum over k of x[.., i, k] * y[.., k, j], cell by cell."""

    def turned(v: Any, turn: bool) -> Any:
        axes = list(range(len(v.shape)))
        return transpose(v, (*axes[:-2], axes[-1], axes[-2])) if turn else v

    x, y = turned(own[0], turn_x), turned(own[1], not turn_y)  # (.., i, k) and (.., j, k)
    left, right = (*x.shape[:-1], 1, x.shape[-1]), (*y.shape[:-2], 1, *y.shape[-2:])
    return sum_cells(mul(reshape(x, left), reshape(y, right)), -1)
