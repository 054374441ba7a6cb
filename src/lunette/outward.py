"""Boxes of floats, cell by cell: every operation is rounded outward, so its result holds all that it stands for.

The hardware rounds to nearest. Where it rounded inward, the end moves on by one float; whether it did is told exactly:

- a sum by its error, which is a float that TwoSum (Knuth) finds;
- a product, quotient or root of float32 by multiplying back in float64, where 24 by 24 bits are exact;
- a product, quotient or root of float64 is taken to be inexact, unless it is zero.

A quotient by a box that holds zero is the whole line. Zero times an infinite end is zero: ends stand for numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.number import Array, Interval, Number, above, below, whole_power

SINGLE = np.dtype(np.float32)
Directed = Callable[[Array, Array, bool], Array]


def moved(a: Array, where: Any, down: bool) -> Array:
    """The next float down, or up, for some cells; an infinity stays where it is the end of that direction."""
    y: Array = np.array(a)
    np.nextafter(a, y.dtype.type(_outer(down)), out=y, where=where)
    return y


def _outer(down: bool) -> float:
    return -np.inf if down else np.inf


def sum_error(a: Array, b: Array, s: Array) -> Array:
    """`a + b - s` exactly, where s = a + b rounded (Knuth)."""
    part = s - a
    error: Array = (a - (s - part)) + (b - part)
    return error


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` rounded, and what that drops."""
    s = a + b
    return s, sum_error(a, b, s)


def directed_sum(a: Array, b: Array, down: bool) -> Array:
    """`a + b` as lower, or upper, ends."""
    s, error = two_sum(a, b)
    inward = error < 0 if down else error > 0
    if np.isfinite(error).all():  # so are the ends and their sum
        return moved(s, inward, down)
    # Where a finite sum overflowed there is no error to see: it is beyond the greatest float.
    inward = inward | (~np.isfinite(error) & np.isfinite(a) & np.isfinite(b))
    return np.where(np.isnan(s), s.dtype.type(_outer(down)), moved(s, inward, down))


def _product(a: Array, b: Array, down: bool) -> Array:
    zero = (a == 0) | (b == 0)
    if a.dtype == SINGLE:
        true = a.astype(np.float64) * b
        p = true.astype(SINGLE)
        inward = p > true if down else p < true
    else:
        p = a * b
        inward = np.isfinite(a) & np.isfinite(b)
    return np.where(zero, a.dtype.type(0), moved(p, inward & ~zero, down))


def _quotient(a: Array, b: Array, down: bool) -> Array:
    q = a / b
    if a.dtype == SINGLE:
        back = q.astype(np.float64) * b
        above = np.where(b > 0, back > a, back < a)
        inward = above if down else (back != a) & ~above & ~np.isnan(back)
    else:
        inward = (a != 0) & np.isfinite(a) & np.isfinite(b)
    return np.where(np.isnan(q), q.dtype.type(_outer(down)), moved(q, inward, down))


def _root(a: Array, down: bool) -> Array:
    s = np.sqrt(a)
    if a.dtype == SINGLE:
        square = s.astype(np.float64) ** 2
        return moved(s, square > a if down else square < a, down)
    return moved(s, (a > 0) & (a < np.inf), down)


def _whole(lo: Array, hi: Array) -> Interval:
    """A box that ufuncs made, which give numbers for arrays without axes."""
    return Interval.between(np.asarray(lo), np.asarray(hi))


def _is_point(x: Interval) -> bool:
    return x.lo is x.hi


def _extremes(x: Interval, y: Interval, f: Directed) -> Interval:
    """The least and the greatest of f at the corners, for f that is monotone in each of the two."""
    corners = [
        (p, q) for p in ([x.lo] if _is_point(x) else [x.lo, x.hi]) for q in ([y.lo] if _is_point(y) else [y.lo, y.hi])
    ]
    with np.errstate(all="ignore"):
        return _whole(
            np.minimum.reduce(np.broadcast_arrays(*(f(p, q, True) for p, q in corners))),
            np.maximum.reduce(np.broadcast_arrays(*(f(p, q, False) for p, q in corners))),
        )


# ---- boxes


def add(x: Interval, y: Interval) -> Interval:
    """`x + y`."""
    with np.errstate(all="ignore"):
        return _whole(directed_sum(x.lo, y.lo, True), directed_sum(x.hi, y.hi, False))


def neg(x: Interval) -> Interval:
    """`-x`."""
    return _whole(-x.hi, -x.lo)


def mul(x: Interval, y: Interval) -> Interval:
    """`x * y`."""
    return _extremes(x, y, _product)


def div(x: Interval, y: Interval) -> Interval:
    """`x / y`."""
    quotient = _extremes(x, y, _quotient)
    zero = (y.lo <= 0) & (y.hi >= 0)
    return _whole(np.where(zero, x.dtype.type(-np.inf), quotient.lo), np.where(zero, x.dtype.type(np.inf), quotient.hi))


def sqrt(x: Interval) -> Interval:
    """The roots of the numbers of x that have one; if none has, all numbers that are roots."""
    with np.errstate(all="ignore"):
        lo, hi = (np.maximum(e, e.dtype.type(0)) for e in (x.lo, x.hi))
        return _whole(_root(lo, True), np.where(x.hi < 0, x.dtype.type(np.inf), _root(hi, False)))


def magnitude(x: Interval) -> Interval:
    """`|x|`."""
    greater = np.maximum(-x.lo, x.hi)
    return _whole(np.maximum(np.maximum(x.lo, -x.hi), x.dtype.type(0)), greater)


def either(x: Interval, y: Interval, certain: Any, impossible: Any) -> Interval:
    """`x` where `certain`, y where `impossible`, and both elsewhere."""
    lo, hi = np.minimum(x.lo, y.lo), np.maximum(x.hi, y.hi)
    return _whole(
        np.where(certain, x.lo, np.where(impossible, y.lo, lo)), np.where(certain, x.hi, np.where(impossible, y.hi, hi))
    )


def power(x: Interval, p: int) -> Interval:
    """`x` to a whole power, at least 1: products of magnitudes, so that even powers know the sign."""
    if p % 2 == 0:
        return _power_of_size(magnitude(x), p)
    # The ends of an odd power are those of the magnitudes of the ends, with their signs.
    low, high = (_power_of_size(magnitude(_whole(e, e)), p) for e in (x.lo, x.hi))
    return _whole(np.where(x.lo < 0, -low.hi, low.lo), np.where(x.hi < 0, -high.lo, high.hi))


def _power_of_size(size: Interval, p: int) -> Interval:
    power: Interval = whole_power(size, p, mul_ends)
    return power


def mul_ends(x: Interval, y: Interval) -> Interval:
    """The product of boxes that are not negative."""
    with np.errstate(all="ignore"):
        low = _product(x.lo, y.lo, True)
        return _whole(np.maximum(low, low.dtype.type(0)), _product(x.hi, y.hi, False))


def point(value: Any, like: Interval) -> Interval:
    """A plain number as a point of the dtype of a box."""
    a: Array = np.asarray(value, like.dtype)
    return Interval.between(a, a)


def end(value: Number, dtype: np.dtype[Any], down: bool) -> Array:
    """A plain real number as an end of a box: the greatest float of a dtype below it, or the least above."""
    near = np.asarray(below(value) if down else above(value))
    box = rounded(near, near, dtype)
    cell: Array = box.lo if down else box.hi
    return cell


def enclosing(lo: Number, hi: Number, dtype: np.dtype[Any]) -> Interval:
    """The least box of a dtype, without axes, that holds all numbers from lo to hi.

    >>> enclosing(0.1, 0.1, SINGLE)
    Interval(lo=0.09999999403953552, hi=0.10000000149011612)
    """
    low, high = end(lo, dtype, True), end(hi, dtype, False)
    return Interval.between(low, low if low == high else high)


def rounded(lo: Array, hi: Array, dtype: np.dtype[Any]) -> Interval:
    """A box of floats in a dtype that may be narrower."""
    if lo.dtype == dtype:
        return Interval.between(lo, hi)
    ends = []
    with np.errstate(all="ignore"):
        for end, down in ((lo, True), (hi, False)):
            near = end.astype(dtype)
            back = near.astype(end.dtype)
            ends.append(moved(near, back > end if down else back < end, down))
    return _whole(*ends)
