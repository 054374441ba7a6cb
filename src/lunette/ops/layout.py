"""Operators that move cells and compute nothing.

| rule | says                                                                                   |
|------|----------------------------------------------------------------------------------------|
| R1   | a new shape has as many cells; one size may be -1: whatever is left                     |
| R2   | axes of a transpose are a permutation                                                   |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, ShapeError, error_context
from lunette.number import Array
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.glue import Layout, check_axis, check_sequence, make, shape_of, strides
from lunette.value import value
from lunette.window import Shape, integer, is_sequence


@value
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
        return Kernels(core.unary(dtype.char, "copy", prod(self.to), 0.0))


@value
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
        return Kernels(core.strided_copy(dtype.char, list(out), 0, moved, n, 0, strides(out), n, None))


# ---- the functions


def reshape(x: Any, shape: int | Sequence[int]) -> Any:
    """The cells of x in row-major order in another shape; one size may be -1."""
    return make(Reshape, (x,), shape)


def flatten(x: Any, start: int = 1) -> Any:
    """The axes from `start` on as one."""
    with error_context("flatten"):
        shape = shape_of(x)
        first = integer("start", start)
        at = 0 if first == 0 else check_axis("start", first, len(shape))
    return reshape(x, (*shape[:at], prod(shape[at:])))


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The axes of x in another order; reversed if none is given."""
    return make(Transpose, (x,), axes)
