"""Arrays of balls: exact numbers within a radius of pairs hi + lo of doubles.

Every operation gives a radius that covers those it was given and its own roundings. Radii are made of sums and products
of numbers that are not negative, whose error is far below the 2^-40 of them that `sums.decided` allows for. u = 2^-53;
what underflows costs 2^-1000 at most, and nothing where a factor is zero.

- A sum, of two or over cells, keeps what adding the high parts drops, and adds it to the low parts. What that drops in
  turn is looked at: it is the radius, so that a sum of few digits has none.
- A product drops lo*lo', and rounds the cross products, their sum, and the sum of that with the error of hi*hi'.
- Of a quotient q of the high parts, hi - q*hi' is a float. That and the low parts are divided by hi' instead of the
  whole divisor, which is off by the ratio of the two.
- exp is within 2^-82 (native/round_double.cpp), and exp(z + d) differs from exp(z) by 2|d| of it while |d| <= 1/2.
- log s = y + log(s * exp(-y)) for any y. Where that y is near, which is looked at, the second one is d - d^2/2 + d^3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Final

import numpy as np

from lunette import core
from lunette.number import Array
from lunette.outward import sum_error, two_sum
from lunette.window import AxisTable, Table

U: Final = 2.0**-53
DOUBLE: Final = np.dtype(np.float64)
LOST: Final = 2.0**-1000  # more than underflow takes from one operation


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """`a * b` as an exact pair (Dekker), far from overflow and underflow."""
    p = a * b
    ah, bh = _halves(a), _halves(b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: Any) -> Any:
    c = a * 134217729.0  # 2^27 + 1
    return c - (c - a)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Exact numbers within `radius` of hi + lo. Nothing is known where the radius is infinite, or anything is NaN."""

    hi: Array
    lo: Array
    radius: Array

    @classmethod
    def of(cls, a: Any) -> Pairs:
        """Doubles, exactly; nothing is known where they are not finite."""
        known = np.isfinite(a)
        zeros = np.zeros(np.shape(a))
        return cls(np.where(known, a, 0.0), zeros, np.where(known, zeros, np.inf))

    @property
    def there(self) -> Array:
        """Where hi + lo is not zero."""
        return np.asarray((self.hi != 0) | (self.lo != 0))

    def __add__(self, other: Pairs) -> Pairs:
        hi, dropped = two_sum(self.hi, other.hi)
        low, more = two_sum(self.lo, other.lo)
        lo, rest = two_sum(low, dropped)
        return Pairs(hi, lo, self.radius + other.radius + abs(more) + abs(rest))

    def __neg__(self) -> Pairs:
        return Pairs(-self.hi, -self.lo, self.radius)

    def __sub__(self, other: Pairs) -> Pairs:
        return self + -other

    def __mul__(self, other: Pairs) -> Pairs:
        (a, b), (c, d) = (self.hi, self.lo), (other.hi, other.lo)
        p, rest = product(a, c)
        one, two = a * d, b * c
        lo = rest + (one + two)
        spread = self.radius * (abs(c) + abs(d) + other.radius) + other.radius * (abs(a) + abs(b))
        own = abs(b * d) + 4 * U * (abs(one) + abs(two)) + 2 * U * abs(rest)
        return Pairs(p, lo, spread + own + LOST * (self.there & other.there))

    def __truediv__(self, other: Pairs) -> Pairs:
        (a, b), (c, d) = (self.hi, self.lo), (other.hi, other.lo)
        q = a / c
        p, error = product(q, c)
        rest, cross = ((a - p) - error) + b, q * d
        lo = (rest - cross) / c
        away = abs(d) + other.radius
        least = np.maximum(abs(c) - away, 0.0)
        lost = LOST * self.there
        spread = (self.radius + abs(q) * other.radius + 4 * U * (abs(rest) + abs(cross)) + lost) / least
        return Pairs(q, lo, spread + abs(lo) * (away / least + 2 * U) + lost)

    def where(self, chosen: Array, other: float) -> Pairs:
        """These where chosen, and one exact number elsewhere."""
        return Pairs(*(np.where(chosen, v, o) for v, o in ((self.hi, other), (self.lo, 0.0), (self.radius, 0.0))))

    def moveaxis(self, source: int, target: int) -> Pairs:
        return Pairs(*(np.moveaxis(v, source, target) for v in (self.hi, self.lo, self.radius)))


# ---- functions


MOST = 600.0  # exponents up to this are within the range of exp


def exponential(z: Pairs) -> Pairs:
    """The exponentials of z. Of what is below exp(-600) no more is known than that, and that it is not negative."""
    top = z.hi + z.lo
    rest = sum_error(z.hi, z.lo, top)
    inside = (abs(top) <= MOST) & (z.radius <= 0.5)
    a, b = (np.asarray(np.where(inside, v, 0.0), order="C") for v in (top, rest))
    hi, lo = np.empty(a.shape), np.empty(a.shape)
    core.exponentials(a.size)(a, b, hi, lo)
    vanished = top + z.radius < -MOST
    radius = np.where(inside, hi * (2.0**-81 + 3 * z.radius), np.where(vanished, 2.0**-861, np.inf))
    return Pairs(np.where(inside, hi, 2.0**-861), np.where(inside, lo, 0.0), radius)


def logarithm(s: Pairs) -> Pairs:
    """Natural logarithms of positive numbers."""
    y = np.log(np.where(s.hi > 0, s.hi, 1.0))
    w = s * exponential(Pairs.of(-y))
    d = (w.hi - 1) + w.lo
    sure = (s.hi > 0) & (abs(d) < 2.0**-20) & (w.radius < 2.0**-20)
    return Pairs(y, d - d * d / 2, np.where(sure, 2 * w.radius + 4 * U * abs(d) + abs(d) ** 3, np.inf))


# ---- sums


def total(a: Pairs) -> Pairs:
    """The sum of all cells, as if it were rounded twice."""
    terms = [*a.hi.ravel().tolist(), *a.lo.ravel().tolist()]
    try:
        hi = fsum(terms)
        lo = fsum([*terms, -hi])
    except (OverflowError, ValueError):  # beyond all floats, or infinities
        return Pairs.of(np.array(np.nan))
    return Pairs(np.array(hi), np.array(lo), np.asarray(a.radius.sum() * (1 + a.hi.size * U) + U * abs(lo)))


# ---- sums over windows, and over the windows that read a cell


@dataclass(frozen=True, slots=True)
class Reads:
    """What the places of a result read along one axis."""

    count: Table
    nth: Callable[[Table, int], Table]
    """(Places of the result that read more than j, j) to the j-th that each reads."""

    @classmethod
    def of_windows(cls, t: AxisTable) -> Reads:
        """The cells of each window."""
        return cls(t.count, lambda places, j: t.first[places] + t.step * j)

    @classmethod
    def of_all(cls, n: int) -> Reads:
        """All of n cells, by one place."""
        return cls(np.array([n]), lambda places, j: places + j)

    @classmethod
    def of_cells(cls, t: AxisTable) -> Reads:
        """The windows that read each cell."""
        within = np.arange(t.count.sum()) - np.repeat(np.cumsum(t.count) - t.count, t.count)
        cell = np.repeat(t.first, t.count) + within * t.step
        window = np.repeat(np.arange(t.m), t.count)[np.argsort(cell, kind="stable")]
        count = np.bincount(cell, minlength=t.n)
        begin = np.cumsum(count) - count
        return cls(count, lambda places, j: window[begin[places] + j])


MANY = 10**7  # cells of all windows along an axis: lists of more are not made


def gathered(a: Pairs, axes: Sequence[Reads]) -> Pairs:
    """The sums of what is read, one of the last axes after another."""
    first = a.hi.ndim - len(axes)
    for k, reads in enumerate(axes):
        a = _gathered_along(a, first + k, reads)
    return a


def _gathered_along(a: Pairs, axis: int, reads: Reads) -> Pairs:
    shape = (*a.hi.shape[:axis], len(reads.count), *a.hi.shape[axis + 1 :])
    hi, lo, radius = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for j in range(int(reads.count.max(initial=0))):
        some = np.flatnonzero(reads.count > j)
        of = (*(slice(None),) * axis, _slice(reads.nth(some, j)))
        to = (*(slice(None),) * axis, _slice(some))
        hi[to], dropped = two_sum(hi[to], a.hi[of])
        low, more = two_sum(dropped, a.lo[of])
        lo[to], rest = two_sum(lo[to], low)
        radius[to] += a.radius[of] + abs(more) + abs(rest)
    return Pairs(hi, lo, radius)


def _slice(places: Table) -> Any:
    """Places as a slice, if they are evenly spaced, which is faster."""
    if places.size < 2:
        return places
    step = int(places[1] - places[0])
    if step < 1 or (np.diff(places) != step).any():
        return places
    return slice(int(places[0]), int(places[-1]) + 1, step)
