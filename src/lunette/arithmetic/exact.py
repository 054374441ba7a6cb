"""The float nearest to an exact value, one cell at a time: for the few that a sum in float64 leaves in doubt.

Rational values are computed with rationals. Values with exp, log and roots are enclosed by balls of growing precision
until every number of the ball has the same nearest float. That ends unless the value is itself a float or halfway
between two: a room proves such values with `is_value`, and where it knows no proof, 4096 bits are the end.

| rule | says                                                                    |
|------|-------------------------------------------------------------------------|
| U1   | 4096 bits, or a proof, tell a value from floats and points between them |
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from lunette.arithmetic.error import float_info
from lunette.arithmetic.pairs import product
from lunette.arithmetic.sums import nearest
from lunette.errors import UndecidedError
from lunette.number import Array

PRECISIONS = (96, 256, 1024, 4096)


# ---- the nearest float of a rational


def round_fraction(q: Fraction, dtype: np.dtype[Any]) -> float:
    """The float of a dtype nearest to a rational, ties to even.

    >>> round_fraction(Fraction(1, 3), np.dtype(np.float16))
    0.333251953125
    """
    if q == 0:
        return 0.0
    info = float_info(dtype)
    digits = int(info.nmant) + 1
    size = abs(q)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e  # now 2^e <= size < 2^(e+1)
    unit = Fraction(2) ** (max(e, int(info.minexp)) - digits + 1)
    rounded = round(size / unit) * unit  # ties to even
    y = math.inf if rounded > Fraction(float(info.max)) else float(rounded)
    return y if q > 0 else -y


def boundary_between(low: Fraction, high: Fraction, dtype: np.dtype[Any]) -> Fraction | None:
    """The float, or the point halfway between two floats, in low..high, if there is just one."""
    a, b = round_fraction(low, dtype), round_fraction(high, dtype)
    if math.isinf(a) or math.isinf(b):
        return None
    middle = (Fraction(a) + Fraction(b)) / 2
    return middle if low <= middle <= high else None


# ---- sums of products


def exact_total(values: Sequence[float]) -> Fraction:
    """The sum of floats: its nearest float, then that of what is left, until nothing is."""
    rest, whole = list(values), Fraction(0)
    try:
        while (s := math.fsum(rest)) != 0:
            rest.append(-s)
            whole += Fraction(s)
    except OverflowError:
        return sum(map(Fraction, values), Fraction(0))
    return whole


def nearest_sum(terms: Array, dtype: np.dtype[Any], *more: float) -> float:
    """The float nearest to a sum of floats. An exact zero is +0 unless every term is -0."""
    every = [*terms.tolist(), *more]
    try:
        s = math.fsum(every)
    except (OverflowError, ValueError):
        return _strange(every) if not all(map(math.isfinite, every)) else _by_fractions(every, dtype)
    if s == 0:
        return -0.0 if every and all(v == 0 and math.copysign(1, v) < 0 for v in every) else 0.0
    if not math.isfinite(s):
        return s
    if dtype == np.float64 or not is_halfway(s, dtype):
        return float(nearest(np.array(s), dtype))  # s is the nearest float64: rounding it again is right
    return round_fraction(Fraction(s) + Fraction(math.fsum([*every, -s])), dtype)


def is_halfway(a: float, dtype: np.dtype[Any]) -> bool:
    """Whether a float64 may lie halfway between two floats of a narrower dtype."""
    # Such a number has few digits: the last 53 - digits - 1 of its 53 are zero, or it is subnormal in the dtype.
    digits = int(float_info(dtype).nmant) + 2
    m, e = math.frexp(a)
    few = math.ldexp(m, digits)
    return few == int(few) or e < int(float_info(dtype).minexp) + 2


def _strange(terms: Sequence[float]) -> float:
    """Infinities and NaN among the terms: what IEEE says, whatever the finite ones add up to."""
    seen = {v for v in terms if not math.isfinite(v)}
    return seen.pop() if len(seen) == 1 else math.nan


def _by_fractions(terms: Sequence[float], dtype: np.dtype[Any]) -> float:
    return round_fraction(exact_total(terms), dtype)


def tree_sums(a: Array) -> Array:
    """The sums of rows by halves: each term passes through two roundings for every digit of their number, at most."""
    while a.shape[-1] > 1:
        half = a.shape[-1] // 2
        rest = a[..., 2 * half :]
        a = a[..., :half] + a[..., half : 2 * half]
        if rest.size:
            a[..., :1] += rest
    return a[..., 0] if a.shape[-1] else np.zeros(a.shape[:-1])


def nearest_dot(a: Array, b: Array, dtype: np.dtype[Any], *more: float) -> float:
    """The float nearest to the sum of the products of two arrays, and of more."""
    a, b = a.ravel(), b.ravel()
    with np.errstate(all="ignore"):
        p = a * b
    if dtype != np.float64:  # products of floats of 24 bits are floats of 53
        s, bound = float(tree_sums(p)), float(tree_sums(abs(p)))
        for v in more:
            s, bound = s + v, bound + abs(v)
        slack = (bound + abs(s)) * (2 * p.size.bit_length() + 8) * 2.0**-53
        low, high = nearest(np.array([s - slack, s + slack]), dtype)
        return float(low) if low == high and low != 0 and math.isfinite(low) else nearest_sum(p, dtype, *more)
    # The product of the high halves of a and b may exceed p, so p must not be near the greatest float either.
    plain = (abs(p) < 2.0**1000) & (abs(a) < 2.0**900) & (abs(b) < 2.0**900)
    plain &= (abs(p) > 2.0**-900) | (a == 0) | (b == 0)
    if plain.all():
        p, rest = product(a, b)
        # The low parts are zeros of either sign where products are exact: only those of other terms count.
        return nearest_sum(np.concatenate([p, rest[rest != 0]]), dtype, *more)
    if not (np.isfinite(a).all() and np.isfinite(b).all() and all(map(math.isfinite, more))):
        return _strange([*np.where(np.isfinite(a) & np.isfinite(b), 0.0, p).tolist(), *more])
    exact = [Fraction(u) * Fraction(v) for u, v in zip(a.tolist(), b.tolist(), strict=True)]
    whole = sum([*exact, *map(Fraction, more)], Fraction(0))
    return nearest_sum(p, dtype, *more) if not any(exact) else round_fraction(whole, dtype)


# ---- any value


Proof = Callable[[Fraction], bool]


def nearest_of_balls(value: Callable[[], Any], dtype: np.dtype[Any], is_value: Proof, name: str) -> float:
    """Refine until decided; `is_value` proves that the value is a rational, where such a proof is known."""
    for bits in PRECISIONS:
        with precision(bits):
            y = decided_ball(value(), dtype, is_value, bits == PRECISIONS[-1])
        if y is not None:
            return y
    raise undecided(name)


def decided_ball(value: Any, dtype: np.dtype[Any], is_value: Proof | None = None, last: bool = False) -> float | None:
    """The nearest float of every number in a ball, if that is one; at `last`, a zero whose sign is unknown is +0."""
    ball = flint.arb(value)
    if not ball.is_finite():
        return None
    low, high = end_of(ball.lower()), end_of(ball.upper())
    y, z = round_fraction(low, dtype), round_fraction(high, dtype)
    if y == z and math.copysign(1, y) == math.copysign(1, z):
        return y
    if last and y == z:
        return 0.0
    candidate = boundary_between(low, high, dtype) if is_value is not None else None
    if candidate is not None and is_value is not None and is_value(candidate):
        return round_fraction(candidate, dtype)
    return None


def undecided(name: str) -> UndecidedError:
    """Rule U1."""
    return UndecidedError(
        "U1",
        "a value that 4096 bits tell from a float and from the point halfway between two",
        "one that they do not",
        'No proof is known for this window: use arithmetic="interval" or "fast".',
        who=name,
    )


def unproved(q: Fraction) -> bool:
    """Where no proof is known."""
    return False


FAR = 1200  # 2^-FAR is less than half the least float, and 2^FAR greater than all floats, of every dtype


def end_of(a: Any) -> Fraction:
    """An exact ball as a rational that rounds to the same floats: exp(-1e15) has more digits than a memory holds."""
    m, e = a.man_exp()
    m, e = int(m), int(e)
    size = m.bit_length() + e
    if m and abs(size) > FAR:
        return Fraction((m > 0) - (m < 0)) * Fraction(2) ** (FAR if size > 0 else -FAR)
    return m * Fraction(2) ** e


def cells_as(a: Array, number: Callable[[float], Any]) -> Array:
    """Cells as exact numbers of another type."""
    out: Array = np.empty(a.shape, object)
    out.ravel()[:] = [number(v) for v in a.ravel().tolist()]
    return out


def clamped(a: Array) -> Array:
    """Finite cells so far from overflow that only infinities make one."""
    return np.where(np.isfinite(a) & (abs(a) > 2.0**900), np.copysign(2.0**900, a), a)


class _Precision:
    """Flint's precision, which all threads share: one at a time has its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.before: list[int] = []

    @contextmanager
    def of(self, bits: int) -> Iterator[None]:
        """Balls of so many bits."""
        with self.lock:
            self.before.append(flint.ctx.prec)
            flint.ctx.prec = bits
            try:
                yield
            finally:
                if self.before:  # not so in a child that was forked in here
                    flint.ctx.prec = self.before.pop()

    def in_child(self) -> None:
        """A forked process has none of the threads that might hold the lock."""
        self.lock = threading.RLock()
        if self.before:
            flint.ctx.prec = self.before[0]
            self.before = []


_precision = _Precision()
precision = _precision.of
os.register_at_fork(after_in_child=_precision.in_child)
