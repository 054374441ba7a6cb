"""Sums that know how far they are from the exact sum, made by the float64 kernels, and the float nearest to them.

Two ways, one for each width of the operands, both proved below:

- *coarse*, for operands of at most 24 bits. Products of two of them are exact in float64 and far from overflow and
  underflow, so a kernel's result is off by at most gamma(h) * size, where size bounds the sum of the terms' absolute
  values: the bound that every summing kernel keeps (lunette.arithmetic.error). float64 has 29 bits more than float32,
  so nearly every sum decides its rounding.
- *fine*, for float64 operands. The leading bits of each factor are cut into slices of so few bits that every sum of
  products of two slices is exact in float64, in whatever order it is taken; what remains is so small that the error of
  its sums, bounded as in the coarse way, seldom matters. The partial results are added as pairs hi + lo of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from lunette import core
from lunette.arithmetic.error import gamma, height
from lunette.arithmetic.pairs import DOUBLE, LOST, Pairs, U, product
from lunette.number import Array
from lunette.outward import sum_error, two_sum
from lunette.window import Shape

ROOM: Final = 800  # exponents of this size leave room for every product and every low part


@dataclass(frozen=True, slots=True)
class Outer:
    """A radius as a product of two arrays that are broadcast: their product is never made as a whole."""

    rows: Array
    columns: Array

    def array(self) -> Array:
        return np.asarray(self.rows * self.columns)


Radius = Array | float | Outer


@dataclass(frozen=True, slots=True)
class Sum:
    """Exact values within `radius` of hi + lo, but for one rounding of hi in the coarse way, where `lo` is None."""

    hi: Array
    lo: Array | None
    radius: Radius
    rounded: bool = False
    """Whether hi was rounded since the radius was taken; `decided` allows for one rounding."""
    quotient: tuple[Array, Array | float] | None = None
    """Numerator and divisor of hi, exact where the radius is zero."""

    @classmethod
    def of(cls, a: Pairs, plain: Array) -> Sum:
        """Pairs: exact zeros have the sign that a kernel gave them, and what is not known is in doubt."""
        known = np.isfinite(a.hi) & np.isfinite(a.lo) & np.isfinite(a.radius)
        zero = known & (a.hi == 0) & (a.lo == 0) & (a.radius == 0)
        hi, lo = np.where(zero, plain, np.where(known, a.hi, 0.0)), np.where(known, a.lo, 0.0)
        return cls(hi, lo, np.where(known, a.radius, np.inf))

    @property
    def width(self) -> Array | float:
        """The radius as one array, with what rounding hi has added."""
        radius = self.radius.array() if isinstance(self.radius, Outer) else self.radius
        return radius + U * abs(self.hi) if self.rounded else radius

    def __add__(self, more: Array) -> Sum:
        """Plus exact numbers."""
        hi = self.hi + more
        if self.lo is None:
            return Sum(hi, None, self.width if self.rounded else self.radius, True)
        lo, dropped = two_sum(self.lo, sum_error(self.hi, more, hi))
        return Sum(hi, lo, self.width + abs(dropped))

    def plus(self, other: Sum) -> Sum:
        """Plus another sum."""
        both = self + other.hi
        if both.lo is not None and other.lo is not None:
            lo, dropped = two_sum(both.lo, other.lo)
            return Sum(both.hi, lo, both.width + other.width + abs(dropped))
        return Sum(both.hi, both.lo, both.width + other.width)

    def over(self, divisor: Array | float) -> Sum:
        """Divided by exact numbers other than zero."""
        q = self.hi / divisor
        exact = bool((abs(np.frexp(divisor)[0]) == 0.5).all())  # powers of two
        size: Any = abs(divisor)
        radius = self.width / size * (1 + 4 * U)
        if self.lo is None:
            return Sum(q, None, radius, not exact, None if self.rounded else (self.hi, divisor))
        beyond = np.isfinite(self.hi) & ~np.isfinite(q)
        if beyond.any():  # hi overflows, but what it is the high part of may be next to the greatest float: in doubt
            some = Sum(np.where(beyond, 0.0, self.hi), np.where(beyond, 0.0, self.lo), self.width).over(divisor)
            return replace(some, radius=np.where(beyond, np.inf, some.width))
        if exact:
            lo = self.lo / divisor
            lost = (q * divisor != self.hi) | (lo * divisor != self.lo)  # underflow rounds even halves
            return Sum(q, lo, self.width / size + LOST * lost)
        # The remainder of a rounded quotient is a float; with lo it is divided once more, and what is left looked at.
        rest, dropped = two_sum(_remainder(self.hi, q, divisor), self.lo)
        lo = rest / divisor
        left = abs(_remainder(rest, lo, divisor)) + abs(dropped)
        return Sum(q, lo, radius + (left / size * (1 + 4 * U) + LOST) * (left != 0))


def _remainder(a: Array, q: Array, d: Array | float) -> Array:
    """A - q*d for q = a / d rounded, exactly."""
    p, e = product(q, d)
    return np.asarray((a - p) - e)


@dataclass(frozen=True, slots=True)
class Range:
    """The least nonzero and the greatest of the finite magnitudes of each plane of an array of narrow floats."""

    least: Array
    greatest: Array

    def exact(self, terms: int, digits: int, tiny: float) -> Array:
        """Where float64 holds every sum of so many cells: multiples of the last place of the least, up to 2^53."""
        last = np.maximum(np.ldexp(1.0, np.frexp(self.least)[1] - digits), tiny)
        return np.asarray((self.least == 0) | (terms * self.greatest <= 2.0**53 * last))


@dataclass(frozen=True, slots=True)
class Sums:
    """How the sums of one call are made."""

    coarse: bool
    digits: int = 24
    tiny: float = 2.0**-149

    def of(
        self,
        kernel: Callable[..., None],
        factors: Sequence[Array],
        out: Shape,
        terms: int,
        size: Callable[[], Radius],
        spread: Range | None = None,
    ) -> Sum | None:
        """The sums of at most `terms` products of `factors` (one or two arrays) that a kernel makes: (*factors, y).

        `size` bounds the sum of the absolute values of the finite terms of each output, and `spread` is the range of a
        single factor, broadcast to the outputs. None: out of range.
        """
        if self.coarse:
            y = np.empty(out, DOUBLE)
            kernel(*factors, y)
            # size is made of some operations on floats: its own error is far below 2^-20.
            relative = gamma(height(terms), U) * (1 + 2.0**-20)
            bound = size()
            if isinstance(bound, Outer):
                return Sum(y, None, Outer(bound.rows * relative, bound.columns))
            if spread is not None:
                return Sum(y, None, np.where(spread.exact(terms, self.digits, self.tiny), 0.0, bound * relative))
            return Sum(y, None, bound * relative)
        return _sliced(kernel, factors, out, terms)


def _sliced(kernel: Callable[..., None], factors: Sequence[Array], out: Shape, terms: int) -> Sum | None:
    # So many bits that the sum of all products of slices has at most 53; and few enough for _slices to round.
    bits = min((53 - (max(terms, 1) - 1).bit_length()) // len(factors), 50)
    if bits <= 8:
        return None
    has_special_values = not all(np.isfinite(f).all() for f in factors)
    given = [np.where(np.isfinite(f), f, 0.0) if has_special_values else f for f in factors]
    scaled = [_scaled(f) for f in given]
    exponent = sum(e for _, e in scaled)
    if any(abs(e) > ROOM for _, e in scaled) or abs(exponent) > ROOM:
        return None
    exact, rest = _parts([f for f, _ in scaled], bits)
    hi, lo, y = np.zeros(out), np.zeros(out), np.empty(out)
    for chosen in (*exact, *rest):
        kernel(*chosen, y)
        s = hi + y
        lo += sum_error(hi, y, s)
        hi = s
    n = len(exact) + len(rest)
    # Each product of a remainder is at most 2^-(2*bits + 1), and its sums are off as those of the coarse way are.
    # lo is exact while it is one error, and then off by fewer than n^2 roundings of parts <= 2*terms*2^-53.
    left = len(rest) * 2.0 ** -(2 * bits + 1) * gamma(height(terms), U) * (1 + 2.0**-20)
    radius: Any = terms * (left + (2 * n * n * U * U if n > 2 and lo.any() else 0.0))
    if any(e > 0 and (np.ldexp(s, e) != f).any() for f, (s, e) in zip(given, scaled, strict=True)):
        radius = radius + 2 * terms * 2.0**-1074  # what scaling took from the least cells
    result = Sum(np.ldexp(hi, exponent), np.ldexp(lo, exponent), np.ldexp(radius, exponent))
    return _with_signs(result, kernel, factors, has_special_values)


Parts = list[tuple[Array, ...]]


def _parts(factors: Sequence[Array], bits: int) -> tuple[Parts, Parts]:
    """What to add up for a sum of a, or of a * b: pairs of slices, whose sums are exact, and small remainders.

    a = s + s' + r and b = t + t' + q, with a * b = s*t + s*t' + s'*t + s'*t' + a*q + r*(b - q).
    """
    exact: Parts
    rest: Parts
    if len(factors) == 1:
        first, r = _slices(factors[0], bits)
        exact, rest = [(s,) for s in first], [(r,)]
    else:
        a, b = factors
        (first, r), (second, q) = _slices(a, bits), _slices(b, bits)
        exact, rest = [(s, t) for s in first for t in second], [(a, q), (r, b - q)]
    counts = lambda part: all(f.any() for f in part)  # noqa: E731
    return [exact[0], *filter(counts, exact[1:])], list(filter(counts, rest))


def _with_signs(s: Sum, kernel: Callable[..., None], factors: Sequence[Array], has_special_values: bool) -> Sum:
    """What slices forget: infinities and NaN, and the sign of a sum of zeros. Signs alone tell both."""
    zeros = (s.hi == 0) & (np.asarray(s.width) == 0)
    if not has_special_values and not zeros.any():
        return s
    signs = np.empty(s.hi.shape)
    kernel(*(np.where(np.isfinite(f) & (f != 0), np.copysign(1.0, f), f) for f in factors), signs)
    hi = np.where(zeros & (signs == 0), signs, s.hi)
    touched = ~np.isfinite(signs)
    return Sum(np.where(touched, signs, hi), s.lo, s.width)


def _scaled(a: Array) -> tuple[Array, int]:
    """(a * 2^-e, e) with every |cell| <= 1."""
    top = float(abs(a).max(initial=0.0))
    e = int(np.frexp(top)[1]) if np.isfinite(top) else 10**6
    return (np.ldexp(a, -e) if abs(e) <= ROOM else a), e


def _slices(a: Array, bits: int) -> tuple[list[Array], Array]:
    """Multiples of 2^-bits and 2^-2*bits, each at most 2^bits of its units, and what is left: half a unit at most."""
    slices, rest = [], a
    for p in (1, 2):
        # |rest| <= 2^(51 - p*bits), so adding this stays among numbers whose last place is 2^-(p*bits).
        anchor = 3 * 2.0 ** (51 - p * bits)
        part = (rest + anchor) - anchor
        slices.append(part)
        rest = rest - part
    return slices, rest


# ---- the nearest float


def decided(s: Sum, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """The nearest floats of a dtype, and the flat places where they are in doubt."""
    y = np.empty(s.hi.shape, dtype)
    if dtype != np.float32 or s.lo is not None:
        return y, _decide(y, s.hi, s.lo, s.width, s.rounded)
    outer, groups, channels, inner, rows, columns = _rows(s)
    most = y.size // 4 + 64
    places, count = np.empty(most, np.int64), np.empty(1, np.int64)
    varies = rows.size == outer * groups * inner and inner > 1
    task = _decider(outer, groups, channels, inner, varies, s.rounded, most)
    task(np.ascontiguousarray(s.hi), rows, columns, y, places, count)
    if count[0] > most:
        return y, _decide(y, s.hi, None, s.width, s.rounded)
    return y, np.sort(places[: count[0]])


def _rows(s: Sum) -> tuple[int, int, int, int, Array, Array]:
    """The bounds as the compiled decision reads them: (outer, groups, channels, inner, rows, columns)."""
    shape = s.hi.shape
    if isinstance(s.radius, Outer):  # the columns have one entry per channel, then axes of size one
        axis = len(shape) - s.radius.columns.ndim
        front, channels, space = shape[:axis], shape[axis], shape[axis + 1 :]
        rows = s.radius.rows
        groups = rows.shape[axis] if rows.ndim == len(shape) else 1
        rows = np.ascontiguousarray(np.broadcast_to(rows, (*front, groups, *space)))
        columns = np.ascontiguousarray(np.broadcast_to(s.radius.columns.ravel(), channels))
        return prod(front), groups, channels, prod(space), rows, columns
    radius = np.asarray(s.radius, np.float64)
    if radius.ndim and radius.size == shape[0]:  # one bound per plane
        return shape[0], 1, 1, prod(shape[1:]), np.ascontiguousarray(radius), np.ones(1)
    if radius.size == 1:
        return 1, 1, 1, prod(shape), np.ascontiguousarray(radius.reshape(1)), np.ones(1)
    return 1, 1, 1, prod(shape), np.ascontiguousarray(np.broadcast_to(radius, shape)), np.ones(1)


@lru_cache(maxsize=1024)
def _decider(*geometry: Any) -> Any:
    return core.decide(*geometry)


def _decide(y: Array, hi: Array, lo: Array | None, radius: Any, rounded: bool) -> Array:
    """Fill in the nearest floats; the flat places in doubt."""
    if lo is None:
        # Rounding hi once, and the ends, moves them by less than 2^-51 of their size.
        slack = abs(hi)
        slack *= 2.0**-51 if rounded else (np.asarray(radius) > 0) * 2.0**-51
        slack += radius * (1 + 2.0**-40)
        low, high = nearest(hi - slack, y.dtype), nearest(np.add(hi, slack, out=slack), y.dtype)
    else:
        top = hi + lo
        rest = sum_error(hi, lo, top)
        slack = radius * (1 + 2.0**-40) + (np.asarray(radius) > 0) * 2.0**-104 * abs(top)
        low, high = (nearest(_for_rounding(top, e, y.dtype), y.dtype) for e in (rest - slack, rest + slack))
    y[...] = low
    doubt = (low != high) | ((low == 0) & (np.signbit(low) != np.signbit(high)))
    if lo is not None:  # the scaling of a result that is subnormal rounds again
        doubt |= (abs(hi) < 2.0**-960) & (hi != 0)
    if doubt.any() or not np.isfinite(y).all() or not y.all():
        settled = ~np.isfinite(hi) | ((hi == 0) & (np.asarray(radius) == 0))
        y[settled] = nearest(hi, y.dtype)[settled]
        doubt &= ~settled
    return np.flatnonzero(doubt)


def _for_rounding(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """A + b, so that rounding it to a dtype rounds once."""
    s = a + b
    return s if dtype == DOUBLE else _to_odd(s, sum_error(a, b, s))


def _to_odd(a: Array, rest: Array) -> Array:
    """Floats next to a + rest, odd unless that is one: rounding them again knows the side."""
    a = np.asarray(a)
    inexact = np.isfinite(a) & (rest != 0) & (a.view(np.int64) % 2 == 0)
    return np.where(inexact, np.nextafter(a, np.copysign(np.inf, rest)), a)


def decide_quotients(s: Sum, y: Array, doubt: Array) -> Array:
    """Fill in the places in doubt that are quotients of exact numbers; the rest of the places."""
    assert s.quotient is not None
    n, d = (np.broadcast_to(a, s.hi.shape).ravel()[doubt] for a in s.quotient)
    known = np.broadcast_to(s.radius, s.hi.shape).ravel()[doubt] == 0 if not isinstance(s.radius, Outer) else False
    q = n / d
    p, e = product(q, d)
    rest = np.sign((n - p) - e) * np.sign(d)  # the quotient is that side of q
    y.ravel()[doubt[known]] = nearest(_to_odd(q, rest), y.dtype)[known]
    return np.asarray(doubt[~np.asarray(known)] if np.ndim(known) else doubt)


def nearest(a: Array, dtype: np.dtype[Any]) -> Array:
    """Float64 numbers rounded once to a dtype, ties to even."""
    if dtype != ml_dtypes.bfloat16:
        return a.astype(dtype, copy=False)
    # Rounding to odd on the way to float32 keeps the second rounding right.
    f = a.astype(np.float32)
    bits = f.view(np.int32).copy()
    inexact = np.isfinite(f) & (f != a)
    away = inexact & (abs(f.astype(np.float64)) > abs(a))
    bits = np.where(inexact, (bits - away) | 1, bits)
    return bits.view(np.float32).astype(dtype)
