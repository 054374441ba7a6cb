"""Operators on arrays of points, enclosed: what lines of curves are proven with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.curves import Curve
from lunette.number import Array, Interval
from lunette.op import Op, apply
from lunette.ops.glue import Glue


def enclosed(kind: type[Op], *options: Any) -> Callable[[Array], Interval]:
    """The function of arrays whose result holds the exact one."""

    def f(x: Array) -> Interval:
        y: Interval = apply(kind, (x,), "interval", *options)
        return y

    return f


def curve_of(op: Glue, box: Interval, bend: Any) -> Curve:
    """Lines of a smooth function of single cells that is convex below `bend` and concave above it."""
    kind, options = type(op), op.options()
    value = enclosed(kind, *options)

    def slope(x: Array) -> Interval:
        one: Array = np.ones(x.shape)
        own = Interval.between(x, x)
        y: Interval = kind.pull(options, (own,), value(x), Interval.between(one, one), 0)
        return y

    return Curve(box.lo, box.hi, np.broadcast_to(np.float64(bend), box.shape), value, slope)
