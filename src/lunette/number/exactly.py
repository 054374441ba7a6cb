"""Cells that compare as the real numbers they are."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.number.cells import each
from lunette.number.kinds import OBJECT, Array, Number, is_float


def as_array(a: Any) -> Array:
    """Ends as numpy reads them; of torch's bfloat16, which it does not know, as float32."""
    if type(a) is np.ndarray:  # whose dtype takes long to print
        return a
    cells = np.asarray(a.float() if str(getattr(a, "dtype", "")) == "torch.bfloat16" else a)
    if isinstance(a, list | tuple) and cells.dtype == np.float64:
        given = np.array(a, object)
        return cells if (cells == given).all() else given  # an integer among floats may be none
    return cells


def exactly(a: Any) -> Array:
    """Cells that numpy compares as the real numbers they are; it would round integers, and numbers beside float32."""
    cells = as_array(a)
    if cells.dtype.kind in "bcmMSU":
        raise TypeError
    if cells.dtype == OBJECT or cells.dtype.kind in "iu":
        return each(_comparable, cells.astype(object))
    return cells.astype(np.float64) if cells.dtype.itemsize < 8 else cells


def _comparable(a: Number) -> Number:
    """A finite number as one that compares with every other: a Decimal does not with a Fraction."""
    if isinstance(a, Decimal) and a.is_finite():
        return Fraction(a)
    return float(a) if isinstance(a, Decimal) or (is_float(a) and not isinstance(a, np.longdouble)) else a
