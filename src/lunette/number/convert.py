"""Options meet cells: a plain number in the number type of the cells beside it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.number import flint
from lunette.number.interval import Interval
from lunette.number.kinds import EXACT, Array, Lifted, Number, is_closed, is_float, primal
from lunette.number.rounding import dyadic


def as_dtype(value: Number, dtype: np.dtype[Any]) -> float:
    """A plain real number rounded to a dtype; what is too large becomes infinite."""
    with np.errstate(all="ignore"):
        try:
            return float(dtype.type(float(value)))
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except ValueError:  # a signalling NaN of Decimal
            return math.nan


def like(value: Number, cell: Number) -> Number:
    """A Python number in the number type of `cell`: options are converted to x's type before they meet x.

    >>> like(0.5, Fraction(1)), like(0.5, Decimal(1))
    (Fraction(1, 2), Decimal('0.5'))
    """
    cell = primal(cell)
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, Decimal) and value.is_finite() and not isinstance(cell, Decimal):
        value = Fraction(value)
    if not isinstance(value, int | float | Fraction | np.floating) or isinstance(value, bool):
        return value
    if is_float(cell):
        with np.errstate(all="ignore"):
            try:
                # bfloat16 takes neither long ints nor Fractions.
                return type(cell)(float(value) if type(cell).__module__ == "ml_dtypes" else value)
            except OverflowError:
                return type(cell)(math.inf if value > 0 else -math.inf)
    if isinstance(value, int) and is_closed(cell):
        return type(cell)(value)
    if isinstance(value, int) or (is_float(value) and not math.isfinite(value)):
        return Decimal(float(value)) if isinstance(cell, Decimal) and not isinstance(value, int) else value
    q = Fraction(value) if isinstance(value, Fraction) else Fraction(float(value))
    if isinstance(cell, EXACT):
        return q
    if isinstance(cell, Decimal):
        return Decimal(q.numerator) / Decimal(q.denominator)
    if isinstance(cell, flint.fmpq):
        return flint.fmpq(q.numerator, q.denominator)
    if isinstance(cell, flint.arb):
        return dyadic(q)
    return q if isinstance(cell, Interval) and isinstance(cell.lo, EXACT) else value


def zero_like(cell: Number) -> Number:
    """Zero in the number type of `cell`, whatever its value: 0 * cell is NaN of an infinity, and -0 of -1."""
    return cell.zero() if isinstance(cell, Lifted) else like(0, cell)


def zero_of(*arrays: Array | None) -> Number:
    """Zero in the number type of the first cell there is."""
    cell = next((a[(0,) * a.ndim] for a in arrays if a is not None and a.size), 0)
    return like(0, cell) * 1 if is_float(primal(cell)) or is_closed(primal(cell)) else 0
