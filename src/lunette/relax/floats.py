"""What executions of a network in floats can be off by, whatever the order of summation, fused or not.

A sum of t products and a bias passes each of its terms through at most n = t + 1 roundings; an average through one
more, its division (two, where the count is no float). So a node that computes W x + b computes W x + b + d with

    |d|  <=  gamma_n * (|W| X + |b|)  +  n * eta,

u the unit roundoff of the graph's dtype, eta its least subnormal, X the greatest magnitudes of what the execution
itself has at x, which the boxes hold, since they are widened by d. Elementwise sums and products are rounded once.
Maxima, relu and whatever moves cells are exact. It is assumed that underflow is gradual, that convolutions are sums of
products (no Winograd), and that no weights are folded after the proof. That nothing overflows is proven: where the
magnitudes reach the greatest float, the box is infinite, and so are those of all that reads it, since what reads an
infinity may be NaN. Operators with exp, log or roots differ between libraries:
they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.arithmetic.interval import terms_of
from lunette.errors import ArgumentError
from lunette.graph.graph import Graph
from lunette.graph.nodes import Node
from lunette.lines import GROW
from lunette.number import Array, Interval
from lunette.op import Op, apply
from lunette.ops import AvgPool
from lunette.ops.binary import Add, Div, Mul, Sub
from lunette.ops.reduce import Mean
from lunette.ops.unary import Abs, LeakyRelu, Neg
from lunette.relax.step import around, magnitude

ONCE = (Add, Sub, Mul, Div, LeakyRelu)
NEVER = (Neg, Abs)


@dataclass(frozen=True, slots=True)
class Floats:
    """The floats of a dtype."""

    dtype: np.dtype[Any]

    def roundings(self, n: Node) -> int | None:
        """How often a term of a node is rounded at most; None: it is no sum of products."""
        kind = n.kind
        assert kind is not None and n.resolved is not None
        if kind in NEVER or kind.exact:
            return 0
        if kind in ONCE:
            return 1
        terms = terms_of(n.op, n.resolved.shapes, prod(n.resolved.batch))
        if terms is None:
            return None
        divided = 1 + n.op.divisor_roundings(n.resolved.shapes, self.dtype) if is_divided(kind) else 0
        return terms + 1 + divided

    def check(self, graph: Graph, moving: list[bool]) -> None:
        """Rule Z5."""
        for at, n in enumerate(graph.nodes):
            if n.kind is None:
                continue
            count = self.roundings(n)
            if count is None or (count and not moving[at]):
                got = n.kind.name if count is None else f"{n.kind.name} of constants"
                hint = "Operators with exp, log or roots differ between libraries; fold constants before."
                raise ArgumentError("Z5", 'sums of products and maxima for semantics="float"', got, hint)

    def rounding(self, n: Node, boxes: list[Any]) -> Any:
        """How far an execution may be from the exact operator at its own operands, per cell."""
        count = self.roundings(n)
        if not count:
            return 0.0
        assert n.kind is not None
        info = np.finfo(self.dtype)
        u = float(info.eps) / 2
        divisor = 1 if n.kind is Div else None  # which stays where it is: not around zero
        operands = [None if b is None else b if p == divisor else around(magnitude(b)) for p, b in enumerate(boxes)]
        size: Array = magnitude(Interval.of(apply(n.kind, operands, "interval", *n.options)))
        with np.errstate(all="ignore"):
            d = (count * u / (1 - count * u) * size + count * float(info.smallest_subnormal)) * GROW
            reach = size + d
            if is_divided(n.kind):  # the sum before it is divided
                assert n.resolved is not None and boxes[0] is not None
                greatest = float(magnitude(boxes[0]).max(initial=0.0))
                total = (terms_of(n.op, n.resolved.shapes, 1) or 0) * greatest / (1 - count * u)
                reach = np.maximum(reach, total * GROW)
            return np.where(reach < float(info.max), d, np.inf) if count * u < 1 else np.full(size.shape, np.inf)


def is_divided(kind: type[Op]) -> bool:
    """Whether an operator divides a sum."""
    return issubclass(kind, AvgPool) or kind is Mean


def widened(box: Interval, d: Any, boxes: Sequence[Interval | None]) -> Interval:
    """A box and all that is no farther than d from it; everything, if one of the operands' boxes is infinite."""
    if not all(b is None or (np.isfinite(b.lo).all() and np.isfinite(b.hi).all()) for b in boxes):
        d = np.full(box.shape, np.inf)
    with np.errstate(all="ignore"):
        lo = np.asarray(np.where(d == 0, box.lo, np.nextafter(box.lo - d, -np.inf)))
        hi = np.asarray(np.where(d == 0, box.hi, np.nextafter(box.hi + d, np.inf)))
    return Interval.between(lo, hi)
