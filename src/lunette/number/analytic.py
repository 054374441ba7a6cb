"""exp, log and powers of every number type that has them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from operator import mul
from typing import Any

import flint
import numpy as np

from lunette.errors import DTypeError
from lunette.number.convert import like
from lunette.number.interval import Interval
from lunette.number.kinds import EXACT, Lifted, Number, divide, is_float, primal
from lunette.number.rounding import dyadic


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
