"""Functions of single cells.

| rule | says                                                         |
|------|--------------------------------------------------------------|
| E3   | a slope, an exponent, or a value of padding is a finite number |

NaN propagates. relu'(0) = abs'(0) = 0, leaky_relu'(0) = slope.

relu(x) is the greater of x and 0, of which x comes first: as of any maximum the first of two zeros wins, so relu(-0.0)
is -0.0. leaky_relu keeps zeros likewise and multiplies by the slope below zero only: 0 * infinity arises at -infinity
alone. sqrt and tanh keep the sign of a zero, abs does not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core, number, outward, relaxing
from lunette.number import (
    Array,
    Dual,
    Interval,
    Number,
    each,
    is_decided,
    is_enclosure,
    is_float,
    is_nan,
    is_zero,
    like,
    magnitude,
    primal,
    zero_like,
)
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.binary import add, div, gate, mul, sub
from lunette.ops.enclose import Curved
from lunette.ops.glue import Glue, check_number, make
from lunette.value import value
from lunette.window import Shape

_ONE: Mapping[str, Case] = {"line": case((5,)), "plane": case((2, 3)), "point": case(()), "nothing": case((0, 2))}


class Unary(Glue):
    """A function of each cell; its derivative is a factor per cell."""

    cases: ClassVar[Mapping[str, Case]] = _ONE

    def shape(self, *shapes: Shape | None) -> Shape:
        (x,) = shapes
        assert x is not None
        return x

    @abstractmethod
    def cell(self, v: Number) -> Number:
        """The function."""

    @classmethod
    @abstractmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        """The derivative at x, times t."""

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return each(lambda v: v * 0 + v if is_nan(v) else self.cell(v), x)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return cls.chain(options, primals[0], y, tangents[0])

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return cls.chain(options, primals[0], y, g)

    def in_place(self, shapes: Shapes) -> tuple[int, ...]:
        return (0,)

    def parameter(self) -> float:
        """The number that the kernel needs beside x."""
        return 0.0

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(core.unary(dtype.char, self.name, prod(shapes[0] or ()), self.parameter()))


class Neg(Unary):
    """The negative."""

    name: ClassVar[str] = "neg"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    rounds_once: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        return -v

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.neg(*boxes)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return neg(t)


class Relu(Unary):
    """The positive part."""

    name: ClassVar[str] = "relu"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        zero = primal(v) if is_zero(v) else like(0, v)  # a zero of x's own sign, which has no derivative
        return number.select([zero, v], "first")

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Kink(boxes[0].lo, boxes[0].hi, 0.0, 1.0)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return gate(y, t)  # y is positive where x is, and is kept anyway


@value
class LeakyRelu(Unary):
    """X where it is positive, slope*x elsewhere; a zero stays as it is."""

    slope: float = 0.01

    name: ClassVar[str] = "leaky_relu"
    needs: ClassVar[str] = "order"
    rounds_once: ClassVar[bool] = True

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(check_number("slope", options[0]))

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return type(self)(number.as_dtype(self.slope, dtype))

    def cell(self, v: Number) -> Number:
        slope = like(self.slope, v)
        if is_decided(v):  # the branch that is not taken is not computed
            if isinstance(v, Dual):
                return Dual(self.cell(v.value), v.slope if primal(v) > 0 else slope * v.slope)
            return slope * v if v < 0 else v
        low = slope * v
        return number.select([low, v], "first") if self.slope <= 1 else -number.select([-low, -v], "first")

    def bounds(self, *boxes: Interval) -> Interval:
        (x,) = boxes
        low, choose = outward.mul(x, outward.point(self.slope, x)), np.maximum if self.slope <= 1 else np.minimum
        return Interval.between(np.asarray(choose(low.lo, x.lo)), np.asarray(choose(low.hi, x.hi)))

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Kink(boxes[0].lo, boxes[0].hi, float(self.slope), 1.0)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        low = mul(t, options[0])
        return add(low, gate(x, sub(t, low)))

    def parameter(self) -> float:
        return self.slope


class Sigmoid(Curved, Unary):
    """1 / (1 + exp(-x))."""

    name: ClassVar[str] = "sigmoid"
    needs: ClassVar[str] = "exp"
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = 0.0

    def cell(self, v: Number) -> Number:
        return number.divide(like(1, v), number.exp(-v) + like(1, v))

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, mul(y, sub(1, y)))


class Tanh(Curved, Unary):
    """The hyperbolic tangent."""

    name: ClassVar[str] = "tanh"
    needs: ClassVar[str] = "exp"
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = 0.0

    def cell(self, v: Number) -> Number:
        return v if _is_floating_zero(v) else 1 - number.divide(like(2, v), number.exp(2 * v) + like(1, v))

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, sub(1, mul(y, y)))


class Exp(Curved, Unary):
    """E to the power x."""

    name: ClassVar[str] = "exp"
    needs: ClassVar[str] = "exp"
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = math.inf

    def cell(self, v: Number) -> Number:
        return number.exp(v)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, y)


class Log(Curved, Unary):
    """The natural logarithm."""

    name: ClassVar[str] = "log"
    needs: ClassVar[str] = "exp"
    positive: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = -math.inf

    def cell(self, v: Number) -> Number:
        return number.log(v)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return div(t, x)


class Sqrt(Curved, Unary):
    """The square root."""

    name: ClassVar[str] = "sqrt"
    needs: ClassVar[str] = "exp"
    rounds_once: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = -math.inf

    def cell(self, v: Number) -> Number:
        if _is_floating_zero(v):
            return v
        return like(math.nan, v) if is_float(primal(v)) and primal(v) < 0 else number.power(v, 0.5)

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.sqrt(*boxes)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return div(t, mul(y, 2))


class Abs(Unary):
    """The absolute value."""

    name: ClassVar[str] = "abs"
    needs: ClassVar[str] = "order"
    rounds_once: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        if is_float(v):
            return magnitude(v)  # of a zero, too
        greater = number.select([v, -v], "split")
        return Dual(self.cell(v.value), greater.slope) if isinstance(v, Dual) else greater

    def bounds(self, *boxes: Interval) -> Interval:
        return outward.magnitude(*boxes)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Kink(boxes[0].lo, boxes[0].hi, -1.0, 1.0)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, sign(x))


class Sign(Unary):
    """-1, 0 or 1. Its derivative is zero."""

    name: ClassVar[str] = "sign"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        if isinstance(v, Dual):
            return Dual(self.cell(v.value), zero_like(v.slope))
        if isinstance(v, Interval):
            return Interval(number.sign(v.lo), number.sign(v.hi))
        if is_enclosure(v):
            return like(number.sign(v), v) if v > 0 or v < 0 else type(v)(0, 1)
        return like(number.sign(v), v)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return None


class StopGradient(Unary):
    """X itself, with a derivative of zero."""

    name: ClassVar[str] = "stop_gradient"
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        return Dual(v.value, zero_like(v.slope)) if isinstance(v, Dual) else v

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        return operands[0]

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return None

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(core.unary(dtype.char, "copy", prod(shapes[0] or ()), 0.0))


def _is_floating_zero(v: Number) -> bool:
    """A zero with a sign, which an odd function, and a root, keep."""
    return is_float(v) and v == 0


# ---- the functions


def neg(x: Any) -> Any:
    """-x."""
    return make(Neg, (x,))


def relu(x: Any) -> Any:
    """The greater of x and 0; its derivative at 0 is 0."""
    return make(Relu, (x,))


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """X where it is positive, slope*x elsewhere."""
    return make(LeakyRelu, (x,), slope)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return make(Sigmoid, (x,))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return make(Tanh, (x,))


def exp(x: Any) -> Any:
    """E to the power x."""
    return make(Exp, (x,))


def log(x: Any) -> Any:
    """The natural logarithm."""
    return make(Log, (x,))


def sqrt(x: Any) -> Any:
    """The square root."""
    return make(Sqrt, (x,))


def abs(x: Any) -> Any:
    """The absolute value; its derivative at 0 is 0."""
    return make(Abs, (x,))


def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return make(Sign, (x,))


def stop_gradient(x: Any) -> Any:
    """X itself, which derivatives take for a constant."""
    return make(StopGradient, (x,))
