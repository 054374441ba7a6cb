"""Operators that move cells and compute nothing.

| rule | says                                                                                   |
|------|----------------------------------------------------------------------------------------|
| R1   | a new shape has as many cells; one size may be -1: whatever is left                     |
| R2   | axes of a transpose are a permutation                                                   |
| R3   | arrays that are joined agree on every axis but one                                      |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import _native
from lunette.errors import ArgumentError, DTypeError, ShapeError, shown, speaking
from lunette.number import Array
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.binary import sum_to
from lunette.ops.glue import Glue, Layout, broadcast, check_axis, check_sequence, lift, make, shape_of, strides
from lunette.ops.pad import slice as cut
from lunette.window import Shape, integer, is_sequence


@dataclass(frozen=True, slots=True)
class Reshape(Layout):
    """The same cells in row-major order, in another shape."""

    to: Shape = ()

    name: ClassVar[str] = "reshape"
    cases: ClassVar[Mapping[str, Case]] = {
        "flat": case((2, 3), to=(6,)),
        "open": case((6,), to=(2, -1)),
        "point": case((1, 1), to=()),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, wanted = shapes[0], options[0]
        assert x is not None
        sizes = [integer("a size", n) for n in (check_sequence("shape", wanted) if is_sequence(wanted) else (wanted,))]
        known = prod(n for n in sizes if n != -1)
        if sizes.count(-1) == 1 and known > 0 and prod(x) % known == 0:
            sizes[sizes.index(-1)] = prod(x) // known
        if any(n < 0 for n in sizes) or prod(sizes) != prod(x):
            raise ShapeError("R1", f"a shape of {prod(x)} cells", f"shape {tuple(sizes)}", f"x has shape {x}.")
        return cls(tuple(sizes))

    def shape(self, *shapes: Shape | None) -> Shape:
        return self.to

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return x.reshape(self.to)

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return ((*sizes, *self.to),)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return reshape(g, shape_of(primals[0]))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(_native.unary(dtype.char, "copy", prod(self.to), 0.0))


@dataclass(frozen=True, slots=True)
class Transpose(Layout):
    """The axes in another order."""

    axes: tuple[int, ...] | None = None

    name: ClassVar[str] = "transpose"
    cases: ClassVar[Mapping[str, Case]] = {
        "flip": case((2, 3)),
        "turn": case((2, 3, 4), axes=(2, 0, 1)),
        "point": case(()),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        assert shapes[0] is not None
        rank = len(shapes[0])
        if options[0] is None:
            return cls(tuple(reversed(range(rank))))
        given = check_sequence("axes", options[0]) if is_sequence(options[0]) else (options[0],)
        axes = tuple(check_axis("axes", a, rank) for a in given)
        if sorted(axes) != list(range(rank)):
            raise ArgumentError("R2", f"a permutation of {rank} axes", f"axes={options[0]}", "Name every axis once.")
        return cls(axes)

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None and self.axes is not None
        return tuple(shapes[0][a] for a in self.axes)

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return x.transpose(self.axes)

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        assert self.axes is not None
        return ((*range(len(sizes)), *(len(sizes) + a for a in self.axes)),)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        axes = options[0]
        return transpose(g, None if axes is None else tuple(np.argsort([a % len(axes) for a in axes]).tolist()))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, out = shapes[0] or (), self.shape(*shapes)
        steps = strides(x)
        assert self.axes is not None
        moved, n = [steps[a] for a in self.axes], prod(x)
        return Kernels(_native.strided_copy(dtype.char, list(out), 0, moved, n, 0, strides(out), n, None))


@dataclass(frozen=True, slots=True)
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
        return Kernels(_native.strided_copy(dtype.char, list(self.to), 0, steps, prod(x), 0, strides(self.to), n, None))


@dataclass(frozen=True, slots=True)
class Concat(Glue):
    """Arrays joined along one axis."""

    axis: int = 0

    name: ClassVar[str] = "concat"
    arrays: ClassVar[tuple[str, ...]] = ("x", "y")
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    variadic: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = {
        "rows": case((2, 3), (1, 3)),
        "columns": case((2, 1), (2, 2), axis=-1),
        "nothing": case((0,), (2,)),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        first = shapes[0]
        assert first is not None
        axis = check_axis("axis", options[0], len(first))
        for s in shapes[1:]:
            assert s is not None
            if len(s) != len(first) or any(m != n for a, (m, n) in enumerate(zip(s, first, strict=True)) if a != axis):
                raise ShapeError("R3", f"shapes that agree on all axes but {axis}", f"{first} and {s}", "Reshape one.")
        return cls(axis)

    def shape(self, *shapes: Shape | None) -> Shape:
        sizes = [s for s in shapes if s is not None]
        long = sum(s[self.axis] for s in sizes)
        return (*sizes[0][: self.axis], long, *sizes[0][self.axis + 1 :])

    def spec(self, *arrays: Array | None) -> Array:
        return np.concatenate([a for a in arrays if a is not None], self.axis)

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return (len(sizes) + self.axis,)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        moved = next(t for t in tangents if t is not None)
        parts = [t if t is not None else _zeros(p, moved) for p, t in zip(primals, tangents, strict=True)]
        return make(cls, parts, *options)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        shapes = [shape_of(p) for p in primals]
        axis = check_axis("axis", options[0], len(shapes[0]))
        first = sum(s[axis] for s in shapes[:wrt])
        starts, stops = [0] * len(shapes[0]), list(shape_of(g))
        starts[axis], stops[axis] = first, first + shapes[wrt][axis]
        return cut(g, tuple(starts), tuple(stops))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        sizes = [s for s in shapes if s is not None]
        return Kernels(_native.concat(dtype.char, prod(sizes[0][: self.axis]), [prod(s[self.axis :]) for s in sizes]))


# ---- the functions


def _zeros(value: Any, like_this: Any) -> Any:
    return broadcast_to(lift(0, like_this), shape_of(value))


def reshape(x: Any, shape: int | Sequence[int]) -> Any:
    """The cells of x in row-major order in another shape; one size may be -1."""
    return make(Reshape, (x,), shape)


def flatten(x: Any, start: int = 1) -> Any:
    """The axes from `start` on as one."""
    with speaking("flatten"):
        shape = shape_of(x)
        first = integer("start", start)
        at = 0 if first == 0 else check_axis("start", first, len(shape))
    return reshape(x, (*shape[:at], prod(shape[at:])))


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The axes of x in another order; reversed if none is given."""
    return make(Transpose, (x,), axes)


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """X in a larger shape, as NumPy broadcasts."""
    return make(BroadcastTo, (x,), shape)


def concat(xs: Sequence[Any] | Iterator[Any], axis: int = 0) -> Any:
    """Arrays joined along one axis.

    >>> import lunette as ln
    >>> ln.concat([[[1, 2]], [[3, 4], [5, 6]]], 0).tolist()
    [[1, 2], [3, 4], [5, 6]]
    """
    try:
        many = 0 if isinstance(xs, Iterator) else len(xs)
    except TypeError as error:
        got = f"xs={shown(xs)} of type {type(xs).__name__}"
        raise DTypeError("R3", "a list of arrays", got, "Write concat([x, y]).", who="concat") from error
    if many > 1 << 20:
        raise ArgumentError("R3", "at most 2**20 arrays", f"{many}", "Join some of them first.", who="concat")
    parts = list(xs)
    if not parts:
        raise ShapeError("R3", "at least one array", "none", "An empty list has no shape.", who="concat")
    while len(parts) > _most:
        parts = [make(Concat, parts[i : i + _most], axis) for i in range(0, len(parts), _most)]
    return make(Concat, parts, axis)


_most = 32  # arrays in one call of the kernel
