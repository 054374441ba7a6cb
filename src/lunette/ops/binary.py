"""Functions of pairs of cells, with NumPy's broadcasting.

| rule | says                                                                           |
|------|--------------------------------------------------------------------------------|
| E1   | two shapes are equal, or one of them is 1, on every axis counted from the last |

NaN propagates. maximum and minimum split ties, half to each side.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core, outward, relaxing
from lunette.number import (
    BOX_OPERATORS,
    Array,
    Dual,
    Interval,
    Number,
    divide,
    each,
    is_enclosure,
    is_nan,
    is_real,
    like,
    primal,
    select,
    zero_like,
)
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.broadcast import BroadcastTo, broadcast_to, sum_to
from lunette.ops.enclose import greater, reciprocal
from lunette.ops.glue import Glue, broadcast, lift, make, shape_of
from lunette.window import Shape

_TWO: Mapping[str, Case] = {
    "equal_shapes": case((2, 3), (2, 3)),
    "row_and_column": case((2, 1), (3,)),
    "point_and_plane": case((), (2, 2)),
    "batch": case((2, 2, 3), (2, 1)),
    "nothing": case((0, 3), (3,)),
}


class Binary(Glue):
    """A function of two cells, broadcast."""

    arrays: ClassVar[tuple[str, ...]] = ("x", "y")
    scalars: ClassVar[tuple[str, ...]] = ("x", "y")
    aligned: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = _TWO

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, y = shapes
        assert x is not None and y is not None
        broadcast(x, y)
        return cls(*options)

    def shape(self, *shapes: Shape | None) -> Shape:
        x, y = shapes
        assert x is not None and y is not None
        return broadcast(x, y)

    def in_place(self, shapes: Shapes) -> tuple[int, ...]:
        out = self.shape(*shapes)
        return tuple(at for at, s in enumerate(shapes) if s == out)

    @abstractmethod
    def cell(self, a: Number, b: Number) -> Number:
        """The function."""

    def spec(self, *arrays: Array | None) -> Array:
        x, y = arrays
        assert x is not None and y is not None
        return each(self.cell, *np.broadcast_arrays(x, y))

    @classmethod
    @abstractmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        """The derivative in one of the two, times t, whose shape is theirs together."""

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        a, b = primals
        shape = broadcast(shape_of(a), shape_of(b))
        parts = [cls.chain(a, b, y, t, wrt) for wrt, t in enumerate(tangents) if t is not None]
        parts = [p for p in parts if p is not None]
        if not parts:
            return None
        whole = parts[0] if len(parts) == 1 else add(parts[0], parts[1])
        return whole if shape_of(whole) == shape else make(BroadcastTo, (whole,), shape)

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        a, b = primals
        back = cls.chain(a, b, y, g, wrt)
        return None if back is None else sum_to(back, shape_of(primals[wrt]))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(core.binary(dtype.char, self.name, list(shapes[0] or ()), list(shapes[1] or ())))


class Add(Binary):
    """The sum."""

    name: ClassVar[str] = "add"
    jointly_linear: ClassVar[tuple[int, ...]] = (0, 1)
    rounds_once: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        return a + b

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.add(*boxes)

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return t


class Sub(Binary):
    """The difference."""

    name: ClassVar[str] = "sub"
    jointly_linear: ClassVar[tuple[int, ...]] = (0, 1)
    rounds_once: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        return a - b

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.add(boxes[0], outward.neg(boxes[1]))

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return mul(t, -1) if wrt else t


class Mul(Binary):
    """The product."""

    name: ClassVar[str] = "mul"
    rounds_once: ClassVar[bool] = True
    linear_in: ClassVar[tuple[int, ...]] = (0, 1)

    def cell(self, a: Number, b: Number) -> Number:
        return a * b

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.mul(*boxes)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        x, y = boxes
        out = broadcast(x.shape, y.shape)
        return relaxing.Product((x, y), (relaxing.Broadcast(x.shape, out), relaxing.Broadcast(y.shape, out)))

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return mul(t, x if wrt else y)


class Div(Binary):
    """The quotient."""

    name: ClassVar[str] = "div"
    rounds_once: ClassVar[bool] = True
    needs: ClassVar[str] = "division"
    positive: ClassVar[bool] = True
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)

    def cell(self, a: Number, b: Number) -> Number:
        return divide(a, b)

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.div(*boxes)

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        # By constants as they are, a division is linear; by computed ones, of which an interval is known, a product is.
        return None if isinstance(operands[1], np.ndarray) else mul(operands[0], div(1, operands[1]))

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation | None:
        x, y = boxes
        if moving[0] or not (x.lo == 1).all() or not (x.hi == 1).all() or ((y.lo <= 0) & (y.hi >= 0)).any():
            return None
        return reciprocal(y)

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return mul(div(mul(t, z), y), -1) if wrt else div(t, y)


class Maximum(Binary):
    """The greater of two."""

    name: ClassVar[str] = "maximum"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        return select([a, b], "split")

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return greater(boxes, moving)

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return prefer(y, x, t) if wrt else prefer(x, y, t)


class Minimum(Binary):
    """The lesser of two."""

    name: ClassVar[str] = "minimum"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        return -select([-a, -b], "split")

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Mirrored(greater([outward.neg(b) for b in boxes], moving))

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return prefer(x, y, t) if wrt else prefer(y, x, t)


class Gate(Binary):
    """T where x is positive, zero elsewhere: the derivative of relu at x, times t."""

    arrays: ClassVar[tuple[str, ...]] = ("x", "t")
    scalars: ClassVar[tuple[str, ...]] = ()
    name: ClassVar[str] = "gate"
    needs: ClassVar[str] = "order"
    linear_in: ClassVar[tuple[int, ...]] = (1,)
    jointly_linear: ClassVar[tuple[int, ...]] = (1,)
    rounds_once: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        a = primal(a)
        if is_nan(a):
            return a * b
        if is_enclosure(a) and not (a > 0 or a < 0):
            return Interval(0, 1) * b if isinstance(a, Interval) else type(a)(0.5, 0.5) * b
        return b if a > 0 else zero_like(b)

    def bounds(self, *boxes: Interval) -> Interval:
        x, t = boxes
        return outward.either(t, outward.point(0, t), x.lo > 0, x.hi <= 0)

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return gate(x, t) if wrt else None


class Equal(Binary):
    """1 where the two are equal, 0 elsewhere. Its derivative is zero."""

    name: ClassVar[str] = "equal"
    rounds_once: ClassVar[bool] = True
    needs: ClassVar[str] = "order"

    def cell(self, a: Number, b: Number) -> Number:
        p, q = primal(a), primal(b)
        if is_nan(p) or is_nan(q):
            return p + q
        if (is_enclosure(p) or is_enclosure(q)) and not (p < q or q < p):
            return Interval(0, 1) if isinstance(p, Interval) or isinstance(q, Interval) else type(p)(0.5, 0.5)
        return like(int(p == q), p)

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return None


class Prefer(Glue):
    """T where x > y, half of t where they are equal, zero elsewhere: what a maximum of the two passes on to x."""

    name: ClassVar[str] = "prefer"
    arrays: ClassVar[tuple[str, ...]] = ("x", "y", "t")
    needs: ClassVar[str] = "order"
    linear_in: ClassVar[tuple[int, ...]] = (2,)
    jointly_linear: ClassVar[tuple[int, ...]] = (2,)
    rounds_once: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = {"line": case((4,), (4,), (4,)), "plane": case((2, 2), (2, 2), (2, 2))}

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        for s in shapes[1:]:
            assert s is not None and shapes[0] is not None
            if s != shapes[0]:
                broadcast(s, (*shapes[0], -1))
        return cls()

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return shapes[0]

    def spec(self, *arrays: Array | None) -> Array:
        x, y, t = arrays
        assert x is not None and y is not None and t is not None

        def share(a: Number, b: Number, v: Number) -> Number:
            if is_nan(a) or is_nan(b):
                return (primal(a) + primal(b)) * v
            return select([Dual(primal(a), v), Dual(primal(b), zero_like(v))], "split").slope

        return each(share, x, y, t)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return None if tangents[2] is None else prefer(primals[0], primals[1], tangents[2])

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return prefer(primals[0], primals[1], g) if wrt == 2 else None

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(core.prefer(dtype.char, prod(shapes[0] or ())))

    def in_place(self, shapes: Shapes) -> tuple[int, ...]:
        return (0, 1, 2)


# ---- the functions


def add(x: Any, y: Any) -> Any:
    """`x + y`, broadcast as NumPy does; a plain number takes the dtype of the other.

    >>> import numpy as np, lunette as ln
    >>> ln.add(np.ones((2, 1), np.float32), 0.5)
    array([[1.5],
           [1.5]], dtype=float32)
    """
    return make(Add, (x, y))


def sub(x: Any, y: Any) -> Any:
    """`x - y`."""
    return make(Sub, (x, y))


def mul(x: Any, y: Any) -> Any:
    """`x * y`."""
    return make(Mul, (x, y))


def div(x: Any, y: Any) -> Any:
    """`x / y`."""
    return make(Div, (x, y))


BOX_OPERATORS.update(add=add, sub=sub, mul=mul, div=div)


def maximum(x: Any, y: Any) -> Any:
    """The greater of x and y; where they are equal, half of the derivative goes to each."""
    return make(Maximum, (x, y))


def minimum(x: Any, y: Any) -> Any:
    """The lesser of x and y; where they are equal, half of the derivative goes to each."""
    return make(Minimum, (x, y))


def gate(x: Any, t: Any) -> Any:
    """T where x is positive, zero elsewhere."""
    return make(Gate, (x, t))


def equal(x: Any, y: Any) -> Any:
    """1 where x and y are equal, 0 elsewhere."""
    return make(Equal, (x, y))


def prefer(x: Any, y: Any, t: Any) -> Any:
    """T where x > y, t/2 where they are equal, zero elsewhere."""
    values = [lift(v, t) if is_real(v) else v for v in (x, y, t)]
    shape = broadcast(broadcast(*map(shape_of, values[:2])), shape_of(t))
    return make(Prefer, [v if shape_of(v) == shape else broadcast_to(v, shape) for v in values])
