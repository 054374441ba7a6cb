"""Means and maxima over axes (sums: lunette.ops.broadcast).

| rule | says                                                              |
|------|-------------------------------------------------------------------|
| E2   | an axis is one of x's, counted from either end, and named once    |
| E4   | a mean or a maximum is over at least one cell                     |

axis=None takes all axes. The maximum gives equal cells equal shares of the derivative; NaN propagates.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from lunette import relaxing
from lunette.number import Interval, Number, select
from lunette.number import mean as mean_of
from lunette.ops.binary import div, equal, mul
from lunette.ops.broadcast import Reduction, Sum
from lunette.ops.glue import check_axes, make, shape_of


class Mean(Reduction):
    """The mean."""

    name: ClassVar[str] = "mean"
    needs: ClassVar[str] = "division"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    monotone: ClassVar[bool] = True

    def fold(self, cells: list[Number], zero: Number) -> Number:
        return mean_of(cells, len(cells), zero)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return make(cls, tangents, *options)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        shape = shape_of(primals[0])
        count = prod(shape[a] for a in check_axes(options[0], len(shape)))
        return cls.spread(options, primals[0], div(g, count))


class Max(Reduction):
    """The greatest."""

    name: ClassVar[str] = "max"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def fold(self, cells: list[Number], zero: Number) -> Number:
        return select(cells, "split")

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        x = boxes[0].shape
        return relaxing.Greatest((boxes[0],), (relaxing.Folded(x, self.shape(x), self.axes()),))

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        winners = equal(primals[0], cls.spread(options, primals[0], y))
        return div(make(Sum, (mul(winners, tangents[0]),), *options), make(Sum, (winners,), *options))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        winners = equal(primals[0], cls.spread(options, primals[0], y))
        share = div(g, make(Sum, (winners,), *options))
        return mul(winners, cls.spread(options, primals[0], share))


def mean(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The mean over axes."""
    return make(Mean, (x,), axis, keepdims)


def max(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The greatest cell over axes; equal cells share the derivative equally."""
    return make(Max, (x,), axis, keepdims)
