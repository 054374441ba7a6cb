"""Sums, means and maxima over axes.

| rule | says                                                              |
|------|-------------------------------------------------------------------|
| E2   | an axis is one of x's, counted from either end, and named once    |
| E4   | a mean or a maximum is over at least one cell                     |

axis=None takes all axes. Sums are those of lunette.number: IEEE over the terms, +0 unless every term is -0. The maximum
gives equal cells equal shares of the derivative; NaN propagates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import _native
from lunette.errors import ShapeError
from lunette.number import Array, Number, cells_in, select, total, zero_of
from lunette.number import mean as mean_of
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.binary import div, equal, mul
from lunette.ops.glue import Glue, check_axes, make, shape_of
from lunette.ops.layout import broadcast_to, reshape
from lunette.window import Shape, flag


@dataclass(frozen=True, slots=True)
class Reduction(Glue):
    """Every row of cells along some axes, folded to one."""

    axis: tuple[int, ...] | int | None = None
    keepdims: bool = False

    cases: ClassVar[Mapping[str, Case]] = {
        "all": case((2, 3)),
        "rows": case((2, 3), axis=1),
        "columns_kept": case((2, 3), axis=0, keepdims=True),
        "outer_and_inner": case((2, 2, 3), axis=(0, -1)),
        "no_axis": case((3,), axis=()),
        "point": case(()),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        assert shapes[0] is not None
        op = cls(check_axes(options[0], len(shapes[0])), flag("keepdims", options[1]))
        if not issubclass(cls, Sum) and prod(shapes[0][a] for a in op.axes()) == 0:
            raise ShapeError("E4", "at least one cell", f"shape {shapes[0]}", f"Axes {op.axes()} have none.")
        return op

    def axes(self) -> tuple[int, ...]:
        """The axes that are folded, in order."""
        assert isinstance(self.axis, tuple)
        return self.axis

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        sizes = [(a, 1 if a in self.axes() else n) for a, n in enumerate(shapes[0])]
        return tuple(n for a, n in sizes if self.keepdims or a not in self.axes())

    @abstractmethod
    def fold(self, cells: list[Number], zero: Number) -> Number:
        """One row."""

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        kept = tuple(a for a in range(x.ndim) if a not in self.axes())
        rows = x.transpose(*kept, *self.axes()).reshape(*(x.shape[a] for a in kept), -1) if x.size else None
        y: Array = np.empty(tuple(x.shape[a] for a in kept), object)
        for cell in cells_in(y.shape):
            y[cell] = self.fold([] if rows is None else list(rows[cell]), zero_of(x))
        return y.reshape(self.shape(x.shape))

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return tuple(len(sizes) + a for a in self.axes()), self.keepdims

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(_native.reduce(dtype.char, self.name, list(shapes[0] or ()), list(self.axes())))

    def terms(self, shapes: Shapes) -> int | None:
        assert shapes[0] is not None
        return prod(shapes[0][a] for a in self.axes()) if self.linear_in else None

    @classmethod
    def spread(cls, options: Sequence[Any], x: Any, value: Any) -> Any:
        """A value per row, given to all cells of the row."""
        shape = shape_of(x)
        axes = check_axes(options[0], len(shape))
        kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
        value = value if shape_of(value) == kept else reshape(value, kept)
        return value if kept == shape else broadcast_to(value, shape)


class Sum(Reduction):
    """The sum."""

    name: ClassVar[str] = "sum"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    monotone: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = {**Reduction.cases, "nothing": case((0, 2), axis=0)}

    def fold(self, cells: list[Number], zero: Number) -> Number:
        return total(cells, zero)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return make(cls, tangents, *options)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return cls.spread(options, primals[0], g)


class Mean(Reduction):
    """The mean."""

    name: ClassVar[str] = "mean"
    needs: ClassVar[str] = "division"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
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

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        winners = equal(primals[0], cls.spread(options, primals[0], y))
        return div(make(Sum, (mul(winners, tangents[0]),), *options), make(Sum, (winners,), *options))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        winners = equal(primals[0], cls.spread(options, primals[0], y))
        share = div(g, make(Sum, (winners,), *options))
        return mul(winners, cls.spread(options, primals[0], share))


def sum(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The sum over axes; over all of them if none is given.

    >>> import lunette as ln
    >>> ln.sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    return make(Sum, (x,), axis, keepdims)


def mean(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The mean over axes."""
    return make(Mean, (x,), axis, keepdims)


def max(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The greatest cell over axes; equal cells share the derivative equally."""
    return make(Max, (x,), axis, keepdims)
