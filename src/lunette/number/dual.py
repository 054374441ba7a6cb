"""Dual numbers: a value with its slope."""

from __future__ import annotations

from dataclasses import dataclass

from lunette.number.analytic import exp, log, lower_power, power
from lunette.number.convert import like, zero_like
from lunette.number.interval import is_enclosure
from lunette.number.kinds import Lifted, Number, divide, primal, sign


@dataclass(frozen=True, slots=True)
class Dual(Lifted):
    """`value + slope*eps` with eps*eps = 0. Running a specification on these gives its JVP.

    >>> from fractions import Fraction
    >>> x = Dual(Fraction(3), Fraction(1))
    >>> x * x + 1
    Dual(value=Fraction(10, 1), slope=Fraction(6, 1))
    """

    value: Number
    slope: Number = 0

    @staticmethod
    def of(a: Number) -> Dual:
        """Any number as a dual number with slope zero."""
        return a if isinstance(a, Dual) else Dual(a, 0)

    def _chain(self, f: Number, df: Number) -> Dual:
        return Dual(f, df * self.slope)

    def __add__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value + b.value, self.slope + b.slope)

    __radd__ = __add__

    def __sub__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value - b.value, self.slope - b.slope)

    def __rsub__(self, other: Number) -> Dual:
        return Dual.of(other) - self

    def __mul__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value * b.value, self.value * b.slope + self.slope * b.value)

    def __rmul__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(b.value * self.value, b.value * self.slope + b.slope * self.value)

    def __truediv__(self, other: Number) -> Dual:
        b = Dual.of(other)
        quotient = divide(self.value, b.value)
        return Dual(quotient, divide(self.slope - quotient * b.slope, b.value))

    def __rtruediv__(self, other: Number) -> Dual:
        return Dual.of(other) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return self * sign(self.value)

    def __gt__(self, other: Number) -> bool:
        return bool(primal(self) > primal(other))

    def __lt__(self, other: Number) -> bool:
        return bool(primal(self) < primal(other))

    def exp(self) -> Dual:
        """`e` to this power."""
        e = exp(self.value)
        return self._chain(e, e)

    def zero(self) -> Dual:
        """Zero in the same number type, slope and all."""
        return Dual(zero_like(self.value), zero_like(self.slope))

    def power(self, p: Number) -> Dual:
        """The number, which is not negative, to a positive power."""
        if is_enclosure(self) or primal(self) != 0:
            return Dual(power(self.value, p), like(p, self) * lower_power(self.value, p) * self.slope)
        return Dual(power(self.value, p), 0 * self.slope)

    def log(self) -> Dual:
        """The natural logarithm."""
        return self._chain(log(self.value), divide(1, self.value))
