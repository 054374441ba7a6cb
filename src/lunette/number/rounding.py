"""Exact results rounded outward: the float below, or above, a sum, a product, a quotient or an increasing function."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from lunette.number import flint
from lunette.number.kinds import EXACT, Number, is_infinite


def below(exact: Number) -> float:
    """The greatest float <= an exact number, or a float."""
    f = _nearest(exact)
    return math.nextafter(f, -math.inf) if f == f and f > exact else f


def above(exact: Number) -> float:
    """The least float >= an exact number, or a float."""
    f = _nearest(exact)
    return math.nextafter(f, math.inf) if f == f and f < exact else f


def _nearest(exact: Number) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    except ValueError:  # a signalling NaN of Decimal
        return math.nan


Outward = Callable[[Fraction], float]


def _rounded(a: Number, b: Number, outward: Outward, exactly: Callable[[Any, Any], Any]) -> Number:
    if isinstance(a, EXACT) and isinstance(b, EXACT):
        return exactly(a, b)
    return outward(Fraction(exactly(Fraction(item(a)), Fraction(item(b)))))


def add_outward(a: Number, b: Number, outward: Outward) -> Number:
    """`a + b` as an end of an interval."""
    ends = {float(v) for v in (a, b) if is_infinite(v)}  # what is finite may be too large for a float
    if ends:
        # Opposite infinities: the sum may be anything, so this end goes to its own infinity.
        return outward_infinity(outward) if len(ends) == 2 else ends.pop()
    return _rounded(a, b, outward, lambda p, q: p + q)


def multiply_outward(a: Number, b: Number, outward: Outward) -> Number:
    """`a * b` as an end of an interval."""
    if a == 0 or b == 0:  # zero times an unbounded end is still zero
        return 0 * (a if is_infinite(b) else b)
    if is_infinite(a) or is_infinite(b):
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return _rounded(a, b, outward, lambda p, q: p * q)


def divide_outward(a: Number, b: Number, outward: Outward) -> Number:
    """`a / b` as an end of an interval."""
    if is_infinite(b):
        return outward_infinity(outward) if is_infinite(a) else 0.0
    if is_infinite(a):
        return float(a) * (1.0 if b > 0 else -1.0)
    return _rounded(a, b, outward, lambda p, q: Fraction(p) / q)


def outward_infinity(outward: Outward) -> float:
    """The end of the line in the direction that `outward` rounds."""
    return -math.inf if outward is below else math.inf


def dyadic(a: Number) -> flint.arb:
    """A rational number as a ball."""
    q = Fraction(a)
    return flint.arb(flint.fmpq(q.numerator, q.denominator))


@cache
def _tiny() -> flint.arb:
    return flint.arb(2) ** -2000


def of_end(a: Number, f: Callable[[flint.arb], flint.arb], outward: Outward) -> float:
    """`f` at one end, enclosed by a ball and rounded outward. f is increasing and non-negative, or a logarithm."""
    if a == -math.inf or (a == 0 and f is flint.arb.log):
        return -math.inf if f is flint.arb.log else 0.0
    if a == math.inf:
        return math.inf
    ball = f(dyadic(a))
    end = ball.lower() if outward is below else ball.upper()
    if not end.is_finite():
        return outward_infinity(outward)
    if end != 0 and not _tiny() < abs(end) < 1 / _tiny():  # far outside the floats: do not build the huge fraction
        far = Fraction(2) ** (2000 if abs(end) > 1 else -2000)
        return outward(far if end > 0 else -far)
    q = end.fmpq()
    return outward(Fraction(int(q.p), int(q.q)))


def item(a: Number) -> Number:
    """One of numpy's numbers as Python's, which compare exactly."""
    return a.item() if isinstance(a, np.ndarray | np.generic) else a
