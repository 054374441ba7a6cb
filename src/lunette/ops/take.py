"""Cells at given places of an axis, and its adjoint, which puts cells there and adds up those that meet.

| rule | says                                                                  |
|------|-----------------------------------------------------------------------|
| R6   | places are integers in 0..n-1 along one axis of n cells               |

    take(x, p)[.., k, ..] = x[.., p[k], ..]        put(g, p, n)[.., i, ..] = sum over k with p[k] = i of g[.., k, ..]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Final, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, ShapeError, error_context
from lunette.number import Array, cells_in, total, zero_of
from lunette.op import Case, Kernels, Shapes, apply
from lunette.ops.glue import Glue, check_axis, make, shape_of
from lunette.value import value
from lunette.window import Shape, integer


def _reflected(i: int, n: int) -> int:
    """The place of cell i in a row of n that is mirrored at its ends, again and again."""
    if n == 1:
        return 0
    i %= 2 * n - 2
    return min(i, 2 * n - 2 - i)


BEYOND: Final[dict[str, Callable[[int, int], int]]] = {
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "reflect": _reflected,
    "wrap": lambda i, n: i % n,
}
"""Which cell of a row of n stands for cell i, which may lie beyond its ends: padding that repeats cells."""


@value
class Moved(Glue):
    """What the two share: x and places, of which there are no derivatives."""

    axis: int = 0

    arrays: ClassVar[tuple[str, ...]] = ("x", "places")
    integers: ClassVar[tuple[int, ...]] = (1,)
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    cases: ClassVar[Mapping[str, Case]] = {}

    def sizes(self, x: Shape) -> tuple[int, int]:
        """How many cells are before the axis, and how many behind it."""
        return prod(x[: self.axis]), prod(x[self.axis + 1 :])

    def changed(self, x: Shape, n: int) -> Shape:
        """The shape with another size of the axis."""
        return (*x[: self.axis], n, *x[self.axis + 1 :])

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        axis, *more = self.options()
        return (len(sizes) + axis, *more)

    def by_row(self, operands: Sequence[Any], rowed: Sequence[bool], rows: int, arithmetic: str) -> Any:
        # Places are the same for all rows: they have no derivatives.
        return None if rowed[1] else apply(type(self), operands, arithmetic, *self.leading((rows,)))

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return None if tangents[0] is None else make(cls, (tangents[0], primals[1]), *options)


class Take(Moved):
    """The cells at some places of an axis."""

    name: ClassVar[str] = "take"
    exact: ClassVar[bool] = True

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, places = shapes
        assert x is not None and places is not None
        if len(places) != 1:
            raise ShapeError("R6", "places in a row", f"shape {places}", "Reshape them, and the result.")
        return cls(check_axis("axis", options[0], len(x)))

    def shape(self, *shapes: Shape | None) -> Shape:
        x, places = shapes
        assert x is not None and places is not None
        return self.changed(x, places[0])

    def check(self, *arrays: Array | None) -> None:
        x, places = arrays
        assert x is not None and places is not None
        check_places(places, x.shape[self.axis])

    def spec(self, *arrays: Array | None) -> Array:
        x, places = arrays
        assert x is not None and places is not None
        return x.take(np.asarray(places, np.int64), self.axis)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        x = shape_of(primals[0])
        axis = check_axis("axis", options[0], len(x))
        return None if wrt else make(Put, (g, primals[1]), axis, x[axis])

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, places = shapes
        assert x is not None and places is not None
        before, behind = self.sizes(x)
        return Kernels(core.take(dtype.char, before, x[self.axis], behind, places[0]))


@value
class Put(Moved):
    """Sums of cells at some places of an axis of n."""

    n: int = 1

    name: ClassVar[str] = "put"

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, places = shapes
        assert x is not None and places is not None
        axis, n = check_axis("axis", options[0], len(x)), integer("n", options[1])
        if places != x[axis : axis + 1] or n < 0:
            raise ShapeError("R6", "a place for each cell of an axis, and n >= 0", f"{x}, {places}, n={n}", "One each.")
        return cls(axis, n)

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return self.changed(shapes[0], self.n)

    def check(self, *arrays: Array | None) -> None:
        assert arrays[1] is not None
        check_places(arrays[1], self.n)

    def spec(self, *arrays: Array | None) -> Array:
        x, places = arrays
        assert x is not None and places is not None
        y: Array = np.empty(self.shape(x.shape), object)
        rows = np.moveaxis(x, self.axis, -1)
        for cell in cells_in(y.shape):
            row = rows[(*cell[: self.axis], *cell[self.axis + 1 :])]
            y[cell] = total([v for v, p in zip(row, places, strict=True) if p == cell[self.axis]], zero_of(x))
        return y

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return None if wrt else make(Take, (g, primals[1]), options[0])

    def terms(self, shapes: Shapes) -> int:
        assert shapes[1] is not None
        return shapes[1][0]

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, places = shapes
        assert x is not None and places is not None
        before, behind = self.sizes(x)
        return Kernels(core.put(dtype.char, before, self.n, behind, places[0]))


def check_places(places: Array, n: int) -> None:
    """Rule R6."""
    if places.size and not 0 <= places.min() <= places.max() < n:
        got = f"places from {places.min()} to {places.max()}"
        raise ArgumentError("R6", f"places in 0..{n - 1}", got, "They count from the first cell.")


def take(x: Any, places: Any, axis: int = 0) -> Any:
    """The cells of x at some places of an axis, which are integers in a row; none is taken from the end.

    >>> import lunette as ln
    >>> ln.take([[1, 2, 3], [4, 5, 6]], [2, 0, 0], axis=1).tolist()
    [[3, 1, 1], [6, 4, 4]]
    """
    with error_context("take"):
        at = check_axis("axis", axis, len(shape_of(x)))
    return make(Take, (x, places), at)
