"""A graph as bounds see it: in float64, with what does not vary folded away, and in operators that have lines.

The statement is about the real-valued function of the graph with the weights it has, so the weights are taken over as
they are (every float32 is a float64), and so are numeric options, after they are rounded to the graph's own dtype.
Some operators become others that mean the same: `stop_gradient` is its operand; a quotient is the product with the
reciprocal; softmax is the exponential of x less the logarithm of the sum of exponentials; a product of two matrices
that both vary is the sum of the products of their cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lunette.graph.graph import Graph, Node, Var
from lunette.graph.walk import forward
from lunette.number import Array, as_dtype
from lunette.op import apply
from lunette.ops.binary import Div, mul
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.layout import reshape, transpose
from lunette.ops.linear import MatMul
from lunette.ops.power import power
from lunette.ops.unary import StopGradient

DOUBLE = np.dtype(np.float64)


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
    if kind is MatMul and all(moving):
        return _products(own, *options)
    return apply(kind, own, "fast", *options)


def _products(own: list[Any], turn_x: bool, turn_y: bool) -> Any:
    """z[.., i, j] = sum over k of x[.., i, k] * y[.., k, j], cell by cell."""

    def turned(v: Any, turn: bool) -> Any:
        axes = list(range(len(v.shape)))
        return transpose(v, (*axes[:-2], axes[-1], axes[-2])) if turn else v

    x, y = turned(own[0], turn_x), turned(own[1], not turn_y)  # (.., i, k) and (.., j, k)
    left, right = (*x.shape[:-1], 1, x.shape[-1]), (*y.shape[:-2], 1, *y.shape[-2:])
    return sum_cells(mul(reshape(x, left), reshape(y, right)), -1)
