"""exp, log, powers, the error function and whole parts of every number type that has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal
from operator import mul
from typing import Any

import numpy as np

from lunette.errors import DTypeError
from lunette.number import flint
from lunette.number.convert import like
from lunette.number.interval import Interval
from lunette.number.kinds import EXACT, Lifted, Number, divide, is_float, primal
from lunette.number.rounding import above, below, dyadic, of_end


def exp(a: Number) -> Number:
    """`e**a`."""
    return _analytic("exp", a)


def log(a: Number) -> Number:
    """The natural logarithm; of zero, minus infinity."""
    return _analytic("log", a)


def _analytic(name: str, a: Number) -> Number:
    if isinstance(a, Lifted | Interval | flint.arb):
        return getattr(a, name)()
    if isinstance(a, Decimal):
        return a.exp() if name == "exp" else a.ln()
    if isinstance(a, np.floating) or type(a).__module__ == "ml_dtypes":
        return type(a)(getattr(np, name)(a))
    if isinstance(a, float):
        return float(getattr(np, name)(a))  # numpy's are total: no OverflowError, no ValueError at zero
    raise cannot(name, a)


def erf(a: Number) -> Number:
    """The error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to a."""
    if isinstance(a, Interval):
        return Interval(_erf_of_end(a.lo, below), _erf_of_end(a.hi, above))
    return _gaussian("erf", a, flint.arb.erf, math.erf)


def bell(a: Number) -> Number:
    """2/sqrt(pi) * exp(-a*a), the derivative of the error function."""
    if isinstance(a, Interval):
        least = 0 if a.lo <= 0 <= a.hi else min(abs(a.lo), abs(a.hi))
        most = max(abs(a.lo), abs(a.hi))
        ends = ((most, below), (least, above))
        return Interval(*(0.0 if end == math.inf else of_end(end, _bell, outward) for end, outward in ends))
    return _gaussian("exp", a, _bell, lambda v: 2 / math.sqrt(math.pi) * math.exp(-v * v))


def _bell(a: flint.arb) -> flint.arb:
    return 2 / flint.arb.pi().sqrt() * (-a * a).exp()


def _erf_of_end(a: Number, outward: Callable[[Any], float]) -> float:
    if a == 0 or abs(a) == math.inf:
        return 0.0 if a == 0 else math.copysign(1.0, a)
    return of_end(a, flint.arb.erf, outward)


def _gaussian(name: str, a: Number, ball: Callable[[Any], Any], plain: Callable[[float], float]) -> Number:
    """A function of balls, or of floats, which is total there: NaN is NaN."""
    if isinstance(a, flint.arb):
        return ball(a)
    if is_float(a):
        v = float(a)
        if v != v or (v == 0 and ball is flint.arb.erf):
            return a
        return type(a)(plain(max(min(v, 1e9), -1e9)))  # which infinities are no different from
    raise cannot(name, a)


def floor(a: Number) -> Number:
    """The greatest whole number that is not greater, in the same number type."""
    if isinstance(a, Interval):
        return Interval(floor(a.lo), floor(a.hi))
    if isinstance(a, flint.arb):
        low, high = a.lower().floor(), a.upper().floor()
        return low if low == high else low.union(high)
    if isinstance(a, Decimal):
        return a.to_integral_value(ROUND_FLOOR)
    if is_float(a):
        return type(a)(np.floor(a))
    return like(int(a.floor() if isinstance(a, flint.fmpq) else math.floor(a)), a)


def power(a: Number, p: Number) -> Number:
    """A non-negative number to the power p, which is a positive plain number."""
    if p == 1:
        return a
    if isinstance(a, Lifted | Interval):
        return a.power(p)
    if isinstance(a, flint.arb):
        if a > 0:
            return a ** dyadic(p)
        top = a.upper()
        return flint.arb(0).union(top ** dyadic(p)) if top > 0 else flint.arb(0)
    if isinstance(a, Decimal):
        return a ** like(p, a)
    if is_float(a):
        return type(a)(a ** type(a)(p))
    raise cannot("roots", a)


def whole_power(a: Number, p: int, times: Callable[[Any, Any], Any] = mul) -> Number:
    """A number to a power p >= 1, by squares: as many products as p has digits."""
    if isinstance(a, EXACT):
        return a**p  # which looks for common factors once
    result = None
    while p:
        if p % 2:
            result = a if result is None else times(result, a)
        p //= 2
        if p:
            a = times(a, a)
    return result


def lower_power(a: Number, p: Number) -> Number:
    """`a**(p - 1)`, which for p < 1 is a quotient."""
    return power(a, p - 1) if p > 1 else divide(power(a, p), a)


def cannot(what: str, a: Number) -> DTypeError:
    """The refusal for a number type without the functions an operator needs."""
    kind = type(primal(a)).__name__
    return DTypeError(
        "N3",
        f"a number type with {what}",
        f"cells of type {kind}",
        "float, numpy.float32, decimal.Decimal, flint.arb and Interval have it.",
    )
