"""A value given to many cells, and the sum over them: each is the adjoint of the other.

axis=None takes all axes (rule E2, see lunette.ops.reduce). Sums are those of lunette.number: IEEE over the terms, +0
unless every term is -0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ShapeError
from lunette.number import Array, Number, cells_in, total, zero_of
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.glue import Glue, Layout, broadcast, check_axes, check_sequence, make, shape_of, strides
from lunette.ops.layout import reshape
from lunette.value import value
from lunette.window import Shape, flag, integer, is_sequence


@value
class BroadcastTo(Layout):
    """NumPy's broadcasting to a larger shape."""

    to: Shape = ()

    name: ClassVar[str] = "broadcast_to"
    aligned: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = {
        "rows": case((3,), to=(2, 3)),
        "column": case((2, 1), to=(2, 3)),
        "point": case((), to=(2, 2)),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, sizes = shapes[0], options[0]
        wanted = tuple(
            integer("a size", n) for n in (check_sequence("shape", sizes) if is_sequence(sizes) else (sizes,))
        )
        assert x is not None
        if broadcast(x, wanted) != wanted:
            raise ShapeError("E1", f"a shape that {x} broadcasts to", f"shape {wanted}", "Sizes of 1 can grow.")
        return cls(wanted)

    def shape(self, *shapes: Shape | None) -> Shape:
        return self.to

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return np.broadcast_to(x, self.to).copy()

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return ((*sizes, *self.to),)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return sum_to(g, shape_of(primals[0]))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x = shapes[0] or ()
        lead = len(self.to) - len(x)
        steps = [0] * lead + [s if n > 1 else 0 for n, s in zip(x, strides(x), strict=True)]
        n = prod(self.to)
        return Kernels(core.strided_copy(dtype.char, list(self.to), 0, steps, prod(x), 0, strides(self.to), n, None))


@value
class Reduction(Glue):
    """Every row of cells along some axes, folded to one."""

    axis: tuple[int, ...] | int | None = None
    keepdims: bool = False

    of_nothing: ClassVar[bool] = False
    """There is one for a row without cells."""
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
        if not cls.of_nothing and prod(shapes[0][a] for a in op.axes()) == 0:
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
        return Kernels(core.reduce(dtype.char, self.name, list(shapes[0] or ()), list(self.axes())))

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
    of_nothing: ClassVar[bool] = True
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
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


# ---- the functions


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """`x` in a larger shape, as NumPy broadcasts."""
    return make(BroadcastTo, (x,), shape)


def sum_to(value: Any, shape: Shape) -> Any:
    """The adjoint of broadcasting `shape` to the shape of `value`."""
    now = shape_of(value)
    if now == shape:
        return value
    lead = len(now) - len(shape)
    axes = (*range(lead), *(lead + a for a, n in enumerate(shape) if n == 1 and now[lead + a] != 1))
    summed = make(Sum, (value,), axes, False) if axes else value
    return summed if shape_of(summed) == shape else reshape(summed, shape)


def sum(x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
    """The sum over axes; over all of them if none is given.

    >>> import lunette as ln
    >>> ln.sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    return make(Sum, (x,), axis, keepdims)
