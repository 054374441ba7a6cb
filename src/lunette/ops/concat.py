"""Arrays joined along one axis.

| rule | says                                               |
|------|----------------------------------------------------|
| R3   | arrays that are joined agree on every axis but one |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, DTypeError, ShapeError, shown
from lunette.number import Array
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.broadcast import broadcast_to
from lunette.ops.glue import Glue, check_axis, lift, make, shape_of
from lunette.ops.pad import slice as cut
from lunette.value import value
from lunette.window import Shape

_most = 32  # arrays in one call of the kernel


@value
class Concat(Glue):
    """Arrays joined along one axis."""

    axis: int = 0

    name: ClassVar[str] = "concat"
    arrays: ClassVar[tuple[str, ...]] = ("x", "y")
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    variadic: ClassVar[bool] = True
    jointly_linear: ClassVar[tuple[int, ...]] = (0, 1)
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
        return Kernels(core.concat(dtype.char, prod(sizes[0][: self.axis]), [prod(s[self.axis :]) for s in sizes]))


def _zeros(value: Any, like_this: Any) -> Any:
    return broadcast_to(lift(0, like_this), shape_of(value))


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
