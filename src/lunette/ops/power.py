"""Powers of single cells, with an exponent that is fixed: rule E3 (lunette.ops.unary).

As IEEE's pow says, x ** 0 is 1 for every x, NaN among them; infinities have powers; and negative numbers have none that
is not whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from lunette import number, outward
from lunette.number import Array, Interval, Number, each, is_float, is_infinite, like, primal, zero_like
from lunette.op import Case, Shapes, case
from lunette.ops.binary import mul
from lunette.ops.glue import make
from lunette.ops.unary import Unary, check_number


@dataclass(frozen=True, slots=True)
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
        p = check_number("exponent", options[0])
        return cls(int(p) if float(p).is_integer() else p)

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return self if isinstance(self.exponent, int) else type(self)(number.as_dtype(self.exponent, dtype))

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return each(self.cell, x) if self.exponent == 0 else Unary.spec(self, x)

    def cell(self, v: Number) -> Number:
        p = self.exponent
        if p == 0:
            return zero_like(v) + like(1, v)
        if isinstance(p, int):
            whole = _whole_power(v, p if p > 0 else -p)
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
        whole = outward.power(x, p if p > 0 else -p)
        return whole if p > 0 else outward.div(outward.point(1, x), whole)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        p = options[0]
        return None if p == 0 else t if p == 1 else mul(t, mul(power(x, p - 1), p))

    def parameter(self) -> float:
        return float(self.exponent)


def _whole_power(v: Number, p: int) -> Number:
    """V to the power p >= 1 by products, in the order of the digits of p."""
    half = v if p == 1 else _whole_power(v, p // 2)
    return half if p == 1 else half * half * v if p % 2 else half * half


def power(x: Any, exponent: float) -> Any:
    """X to a fixed power; `x ** exponent` on variables."""
    return make(Power, (x,), exponent)
