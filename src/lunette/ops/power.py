"""Powers of single cells, with an exponent that is fixed, or with an array of exponents.

| rule | says                                                       |
|------|------------------------------------------------------------|
| E5   | a power of an exact number has at most 2^22 binary digits  |

Rule E3 (lunette.ops.unary) for the exponent. As IEEE's pow says, x ** 0 is 1 for every x, NaN among them; infinities
have powers; and negative numbers have none that is not whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from lunette import number, outward, relaxing
from lunette.errors import ArgumentError, shown
from lunette.number import (
    Array,
    Dual,
    Interval,
    Number,
    cannot,
    each,
    flint,
    is_float,
    is_infinite,
    like,
    primal,
    zero_like,
)
from lunette.op import Case, Shapes, case
from lunette.ops.binary import Binary, mul, sub
from lunette.ops.enclose import curve_of
from lunette.ops.glue import broadcast, check_number, make, shape_of
from lunette.ops.unary import Unary, log
from lunette.value import value


@value
class Power(Unary):
    """X to a fixed power: products for whole exponents, roots of non-negative numbers for others."""

    exponent: float = 1

    name: ClassVar[str] = "power"
    cases: ClassVar[Mapping[str, Case]] = {
        "square": case((2, 3), exponent=2),
        "cube": case((4,), exponent=3),
        "itself": case((2,), exponent=1),
        "nothing_left": case((2,), exponent=0),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(_whole_if_it_is(check_number("exponent", options[0])))

    def cast(self, dtype: np.dtype[Any]) -> Self:
        if isinstance(self.exponent, int):
            return self
        p = number.as_dtype(self.exponent, dtype)
        return type(self)(_whole_if_it_is(check_number(f"exponent of dtype {dtype}", p)))

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return each(self.cell, x) if self.exponent == 0 else Unary.spec(self, x)

    def cell(self, v: Number) -> Number:
        p = self.exponent
        if p == 0:
            return zero_like(v) + like(1, v)
        if isinstance(p, int):
            _check_length(v, p)
            whole = number.whole_power(v, p if p > 0 else -p)
            return whole if p > 0 else number.divide(like(1, v), whole)
        if is_float(primal(v)) and primal(v) < 0:
            if not is_infinite(v):
                return like(math.nan, v)
            v = -v
        return number.power(v, p) if p > 0 else number.divide(like(1, v), number.power(v, -p))

    def bounds(self, *boxes: Interval) -> Interval | None:
        (x,), p = boxes, self.exponent
        if not isinstance(p, int) or p == 0:
            return None
        # Negative powers start from 1/x: the power of a small number might underflow.
        return outward.power(x, p) if p > 0 else outward.power(outward.div(outward.point(1, x), x), -p)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation | None:
        (x,), p = boxes, self.exponent
        whole = isinstance(p, int)
        if p in (0, 1):
            return None
        if whole and p > 0 and p % 2 == 0:
            return curve_of(self, x, math.inf)
        if (x.lo <= 0).any() and (not whole or ((x.lo <= 0) & (x.hi >= 0)).any()):
            return None
        upward = (p * (p - 1) > 0) == ((x.lo > 0) | (p % 2 == 0))  # the sign of the second derivative
        return curve_of(self, x, np.where(upward, math.inf, -math.inf))

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        p = options[0]
        return None if p == 0 else t if p == 1 else mul(t, mul(power(x, p - 1), p))

    def parameter(self) -> float:
        return float(self.exponent)


class Pow(Binary):
    """X to the power y, cell by cell, as IEEE's pow has it; of exact numbers, and in boxes, for positive x."""

    name: ClassVar[str] = "pow"
    needs: ClassVar[str] = "exp"
    positive: ClassVar[bool] = True

    def cell(self, a: Number, b: Number) -> Number:
        if isinstance(a, Dual) or isinstance(b, Dual):
            x, y = Dual.of(a), Dual.of(b)
            z = self.cell(x.value, y.value)
            in_x = y.value * self.cell(x.value, y.value - like(1, y.value)) * x.slope
            return Dual(z, in_x + z * number.log(x.value) * y.slope)
        if isinstance(a, Interval) or isinstance(b, Interval):
            base = Interval.of(a)
            return (number.log(base) * Interval.of(b)).exp() if base.lo > 0 else Interval(-math.inf, math.inf)
        if is_float(a) and is_float(b):
            return type(a)(np.power(a, b))
        if isinstance(a, flint.arb) or isinstance(b, flint.arb):
            return flint.arb(a) ** flint.arb(b)
        raise cannot("powers", a)

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        x, y = operands
        exponents = y if isinstance(y, np.ndarray) else y.node.value
        if moving[1] or exponents is None or broadcast(shape_of(x), exponents.shape) != shape_of(x):
            return None
        some = np.unique(exponents)
        return power(x, float(some[0])) if len(some) == 1 and np.isfinite(some[0]) else None

    @classmethod
    def chain(cls, x: Any, y: Any, z: Any, t: Any, wrt: int) -> Any:
        return mul(t, mul(z, log(x))) if wrt else mul(t, mul(y, pow(x, sub(y, 1))))


def pow(x: Any, y: Any) -> Any:
    """X to the power y, both arrays, broadcast.

    >>> import numpy as np, lunette as ln
    >>> ln.pow(np.array([2.0, 9.0]), np.array([3.0, 0.5]))
    array([8., 3.])
    """
    return make(Pow, (x, y))


def power(x: Any, exponent: float) -> Any:
    """X to a fixed power; `x ** exponent` on variables."""
    return make(Power, (x,), exponent)


def _whole_if_it_is(p: float) -> float:
    """An exponent as an int if it is whole; what no float tells apart is one exponent, as it is for kernels."""
    if isinstance(p, int) and abs(p) <= 2**53:
        return p
    p = float(p)
    return int(p) if p.is_integer() else p


_DIGITS = 1 << 22  # binary digits of a power: about a second to compute


def _check_length(v: Number, p: int) -> None:
    """Rule E5: of exact numbers, whose powers grow with the exponent."""
    ends = [v.lo, v.hi] if isinstance(v := primal(v), Interval) else [v]
    for e in ends:
        q = e if isinstance(e, number.EXACT) else Fraction(int(e.p), int(e.q)) if isinstance(e, flint.fmpq) else 0
        size = max(abs(q.numerator), q.denominator)
        if size > 1 and abs(p) * size.bit_length() > _DIGITS:
            got = f"exponent={shown(p)} of {shown(e)}"
            raise ArgumentError("E5", f"an exact power of at most {_DIGITS} binary digits", got, "Pass floats.")
