"""What the operators between the window operators share: they take their arrays whole, and their options are fields.

Their derivatives are written once, as operators (`push`, `pull`), and so serve every kind of value and of number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from lunette import outward
from lunette.errors import ArgumentError, DTypeError, ShapeError, shown
from lunette.number import OBJECT, Array, Interval, as_dtype, cells_of, is_real, zero_of
from lunette.op import Arrays, Case, Op, Shapes, apply
from lunette.rules import untold
from lunette.window import Shape, integer, is_sequence


class Glue(Op):
    """An operator without a window."""

    batched: ClassVar[tuple[int, ...]] = ()
    optional: ClassVar[bool] = False
    encloses_numbers: ClassVar[bool] = True
    aligned: ClassVar[bool] = False
    """Axes of its arrays meet counted from the last, as NumPy broadcasts: those in front may be absent."""
    cases: ClassVar[Mapping[str, Case]]

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> None:
        return None

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(*options)

    def options(self) -> tuple[Any, ...]:
        """The options that make this operator again."""
        return tuple(getattr(self, f.name) for f in fields(self))

    # ---- rows: the same operator on arrays with an axis in front, entry by entry

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        """The options that make this operator for arrays with axes of these sizes in front, which it leaves alone."""
        return self.options()

    def by_row(self, operands: Sequence[Any], rowed: Sequence[bool], rows: int, arithmetic: str) -> Any:
        """All rows of the result in a way of its own, if there is a shorter one; `rowed` operands have rows, too."""
        return None

    @untold
    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        y = self.spec(*primals)
        t = None if all(t is None for t in tangents) else self.push(self.options(), primals, y, tangents)
        return np.full(y.shape, zero_of(*primals), object) if t is None else np.asarray(t, object)

    @untold
    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        y = self.spec(*primals)
        results: list[Array] = []
        for wrt, p in enumerate(primals):
            assert p is not None
            back = self.pull(self.options(), primals, y, g, wrt)
            results.append(np.full(p.shape, zero_of(g), object) if back is None else np.asarray(back, object))
        return tuple(results)


class Layout(Glue):
    """Linear in x, whose cells it moves."""

    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return make(cls, tangents, *options)


def make(kind: type[Op], operands: Sequence[Any], *options: Any) -> Any:
    """What every function of a glue operator ends in."""
    return apply(kind, operands, "fast", *options)


def shape_of(value: Any) -> Shape:
    """The shape of a value of any kind; a plain number has no axes."""
    if hasattr(value, "shape"):
        return tuple(value.shape) if is_sequence(value.shape) else ()
    return () if is_real(value) else cells_of(value).shape


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of NumPy, torch or JAX."""
    own = isinstance(dtype, str | type | np.dtype)
    return np.dtype(dtype).name if own else str(dtype).removeprefix("torch.")


def lift(number: Any, value: Any) -> Any:
    """A plain number as an array without axes, in the dtype of a value; beside a box, as the least box around it."""
    dtype = getattr(value, "dtype", OBJECT)
    dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype_name(dtype))
    if isinstance(value, Interval) and dtype != OBJECT:
        return outward.enclosing(number, number, dtype)
    return np.asarray(number if dtype == OBJECT else as_dtype(number, dtype), dtype)


def check_axis(name: str, axis: Any, rank: int) -> int:
    """Rule E2: an axis as a number from 0, given from either end."""
    a = integer(name, axis)
    if not -rank <= a < rank:
        raise ArgumentError("E2", f"{name} in {-rank}..{rank - 1}", f"{name}={a}", f"x has {rank} axes.")
    return a % rank


def check_number(name: str, value: Any) -> Any:
    """Rule E3 (lunette.ops.unary)."""
    if not is_real(value):
        got = f"{name}={shown(value)} of type {type(value).__name__}"
        raise DTypeError("E3", f"{name} as a number", got, "It is fixed, not an array.")
    try:
        finite = math.isfinite(value)
    except (OverflowError, ValueError):  # more than all floats, or a signalling NaN of Decimal
        finite = False
    if not finite:
        raise ArgumentError("E3", f"a finite {name}", f"{name}={shown(value)}", "Infinity and NaN make no function.")
    return value if isinstance(value, int) else float(value)


def check_sequence(name: str, value: Any) -> Sequence[Any]:
    """Rule E2 and its like: an option with one entry per axis."""
    if not is_sequence(value) or len(value) > 64:
        got = f"{name}={shown(value)} of type {type(value).__name__}"
        raise DTypeError("E2", f"{name} as a tuple of at most 64 entries", got, "It has one entry per axis.")
    entries: Sequence[Any] = value
    return entries


def check_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Rule E2: None for all axes, one axis, or a tuple of different ones."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(check_axis("axis", a, rank) for a in (check_sequence("axis", axis) if is_sequence(axis) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ArgumentError("E2", "axes that differ", f"axis={axis}", "Name each axis once.")
    return tuple(sorted(axes))


def broadcast(x: Shape, y: Shape) -> Shape:
    """Rule E1: the shape that two arrays have together."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(x, y))
    except ValueError:
        raise ShapeError(
            "E1",
            "shapes that are equal, or 1, on each axis counted from the last",
            f"{x} and {y}",
            "Reshape one of them: axes are added in front only.",
        ) from None


def strides(shape: Shape) -> list[int]:
    """How far apart neighbours on each axis lie in a dense array."""
    steps = [1]
    for n in reversed(shape[1:]):
        steps.append(steps[-1] * n)
    return steps[::-1][: len(shape)] if shape else []
