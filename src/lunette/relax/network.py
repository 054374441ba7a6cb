"""A graph as bounds see it: in float64, with what does not vary folded away, and in operators that have lines.

The statement is about the real-valued function of the graph with the weights it has, so the weights are taken over as
they are (every float32 is a float64), and so are numeric options, after they are rounded to the graph's own dtype.
Operators that say so (`Op.parts`) become others that mean the same and have lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lunette.errors import ArgumentError
from lunette.graph.graph import Graph
from lunette.graph.nodes import Node, Var
from lunette.graph.simplify import simplified
from lunette.graph.walk import forward
from lunette.number import Array, as_dtype
from lunette.op import apply
from lunette.ops.binary import Mul
from lunette.ops.loss import OneHot
from lunette.ops.power import power
from lunette.ops.unary import StopGradient

DOUBLE = np.dtype(np.float64)


def in_float64(graph: Graph, given: Sequence[Array | None], apart: bool = True) -> Graph:
    """The graph that bounds are computed of; inputs that are given as points are constants of it.

    Without `apart`, operators stay as they are, as executions have them.
    """
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
        options = tuple(_option(o, n.dtype) for o in n.options)
        y = n.kind.parts(options, own, moving) if any(moving) and (apart or n.kind is StopGradient) else None
        if apart and n.kind is Mul and own[0] is own[1]:
            y = power(own[0], 2)  # of which more is known than of a product
        y = _checked(n, apply(n.kind, own, "fast", *options)) if y is None else y
        if any(moving):
            varies.update(range(before, len(new.nodes)))
        return y

    before = 0
    known: dict[int, Any] = {}
    for at, v in forward(graph, values, compute):
        known[at], before = v, len(new.nodes)
    for at in graph.outputs:
        new.output(known[at] if isinstance(known[at], Var) else new.constant(take(known[at])))
    return _without_repetition(new) if apart else new


def _without_repetition(graph: Graph) -> Graph:
    """Equal nodes are one, whose lines are the same for all that read it; what nothing needs is gone.

    Not of executions in floats: who computes twice may compute in two orders.
    """
    simple, new = simplified(graph, fold=False), Graph()
    new.nodes, new.outputs, new.lines = list(simple.nodes), list(simple.outputs), False
    return new


def _checked(n: Node, y: Var) -> Var:
    """Rule Z1: numeric options are what they were, after rounding."""
    if n.kind is not OneHot and y.node.op != n.op:
        need = f"numbers that {n.dtype} has as options of {n.kind.name if n.kind else n.name}"
        raise ArgumentError("Z1", need, f"{n.options}", "Write them as floats.")
    return y


def _option(option: Any, dtype: np.dtype[Any]) -> Any:
    """A numeric option as the graph's own dtype has it; the name of the dtype becomes the new one."""
    if type(option) is float and dtype.kind == "f":
        return float(as_dtype(option, dtype))
    return DOUBLE.name if option == dtype.name else option
