"""Number types: what they are called here, which family a number belongs to, and sums and quotients of any of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Final, Literal

import numpy as np

from lunette.number import flint

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Number = Any
Ties = Literal["first", "all", "split"]
EXACT: Final = (int, Fraction)
OBJECT: Final = np.dtype(object)


class Lifted(ABC):
    """A number that carries another one beside its own value, as a dual number does its slope."""

    __slots__ = ()
    value: Number

    @abstractmethod
    def zero(self) -> Number:
        """Zero in the same number type."""

    @abstractmethod
    def exp(self) -> Number:
        """`e` to this power."""

    @abstractmethod
    def log(self) -> Number:
        """The natural logarithm."""

    @abstractmethod
    def power(self, p: Number) -> Number:
        """The number, which is not negative, to a positive power."""


def primal(a: Number) -> Number:
    """The number itself, without the slopes it carries."""
    while isinstance(a, Lifted):
        a = a.value
    return a


def is_closed(a: Number) -> bool:
    """Of a type that meets ints, but not the Fractions that ints divide to."""
    return isinstance(a, (Decimal, flint.fmpq, flint.arb))


def is_float(a: Number) -> bool:
    """An IEEE number: Python's or one of numpy's."""
    return isinstance(a, float | np.floating) or type(a).__module__ == "ml_dtypes"


def is_real(a: object) -> bool:
    """A plain real number, which takes the number type of the cells it meets; True and False are none."""
    return (isinstance(a, Real | Decimal) or is_float(a)) and not isinstance(a, bool | np.timedelta64)


def is_nan(a: Number) -> bool:
    """Not a number, whatever the number type."""
    a = primal(a)
    return bool(a.is_nan()) if isinstance(a, flint.arb | Decimal) else bool(a != a)


def is_infinite(a: Number) -> bool:
    """An infinity, in the number types that have one."""
    a = primal(a)
    if isinstance(a, Decimal):
        return a.is_infinite()
    if isinstance(a, flint.arb):
        return bool(a.is_exact()) and not a.is_finite() and not a.is_nan()
    return is_float(a) and math.isinf(a)


def sign(a: Number) -> int:
    """-1, 0 or 1."""
    return int(a > 0) - int(a < 0)


def total(terms: Sequence[Number], zero: Number = 0) -> Number:
    """The sum from left to right. It starts at the first term, so that a sum of -0.0 alone stays -0.0."""
    if not terms:
        return zero
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def divide(a: Number, b: Number) -> Number:
    """A quotient; two integers give a Fraction, never a float.

    >>> divide(1, 3), divide(1.0, 3)
    (Fraction(1, 3), 0.3333333333333333)
    """
    if isinstance(a, int) and isinstance(b, int):
        return Fraction(a, b)
    if isinstance(b, Fraction) and isinstance(a, Decimal | flint.fmpq | flint.arb):
        return a * b.denominator / b.numerator
    if type(b) is float and b == 0 and type(a) in (int, float):
        return float(np.divide(a, b))  # numpy's is total
    return a / b


def mean(cells: Sequence[Number], divisor: Number, zero: Number = 0) -> Number:
    """The sum divided once. A float sum that is not finite may have overflowed on its way: it is redone scaled."""
    result = divide(total(cells, zero), divisor)
    if is_float(result) and not math.isfinite(result):
        bits = len(cells).bit_length()
        kind = type(result)
        small = divide(total([c * kind(2.0**-bits) for c in cells]), divisor)
        return small * kind(2.0**bits)
    return result
