"""Lines that several rooms share, and operators on arrays of points, enclosed, which they are proven with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from lunette import outward, relaxing
from lunette.number import Array, Interval
from lunette.op import Op, apply
from lunette.ops.glue import Glue, broadcast


def enclosed(kind: type[Op], *options: Any) -> Callable[[Array], Interval]:
    """The function of arrays whose result holds the exact one."""

    def f(x: Array) -> Interval:
        y: Interval = apply(kind, (x,), "interval", *options)
        return y

    return f


def curve_of(op: Glue, box: Interval, bend: Any) -> relaxing.Curve:
    """Lines of a smooth function of single cells that is convex below `bend` and concave above it."""
    kind, options = type(op), op.options()
    value = enclosed(kind, *options)

    def slope(x: Array) -> Interval:
        one: Array = np.ones(x.shape)
        own = Interval.between(x, x)
        y: Interval = kind.pull(options, (own,), value(x), Interval.between(one, one), 0)
        return y

    return relaxing.Curve(box.lo, box.hi, np.broadcast_to(np.float64(bend), box.shape), value, slope)


class Curved(Glue):
    """A smooth function of single cells, convex below `bend` and concave above it."""

    bend: ClassVar[float]

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation | None:
        return None if self.positive and (boxes[0].lo < 0).any() else curve_of(self, boxes[0], self.bend)


def greater(boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Greatest:
    """The lines of a maximum of two arrays; one that does not vary is the floor of the other."""
    out = broadcast(boxes[0].shape, boxes[1].shape)
    varies = [b for b, m in zip(boxes, moving, strict=True) if m]
    floor = next((b for b, m in zip(boxes, moving, strict=True) if not m), None)
    return relaxing.Greatest(tuple(varies), tuple(relaxing.Broadcast(b.shape, out) for b in varies), floor)


def reciprocal(y: Interval) -> relaxing.Curve:
    """Lines of 1/y over a box without zero."""
    one = outward.point(1, y)

    def value(v: Array) -> Interval:
        return outward.div(one, Interval.between(v, v))

    def slope(v: Array) -> Interval:
        own = Interval.between(v, v)
        return outward.neg(outward.div(outward.div(one, own), own))

    return relaxing.Curve(y.lo, y.hi, np.where(y.lo > 0, np.inf, -np.inf), value, slope)
