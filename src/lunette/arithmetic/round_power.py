"""Powers in rounded arithmetic, one cell at a time: by rationals while these are short, by balls otherwise.

x is n/d in lowest terms, one of them odd and the other a power of two. Its root of order 2^k is rational if and only if
n and d are powers of that order, so that every exponent, which is a/2^k, leaves a whole power of a rational, or an
irrational number. A whole power with more than 64 factors is a float, or halfway between two, only if x is a power of
two: its odd part would have more than 64 digits, or divide. All others are decided by balls.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import flint
import numpy as np

from lunette.arithmetic.exact import FAR, nearest_of_balls, round_fraction, unproved
from lunette.arithmetic.rounded import Task, nearest_everywhere
from lunette.arithmetic.sums import nearest
from lunette.number import Array
from lunette.ops.power import Pow, Power

FACTORS = 64


@nearest_everywhere.register(Power)
def _(op: Power, task: Task, *arrays: Array | None) -> Array:
    (x,) = arrays
    assert x is not None
    p, plain = Fraction(op.exponent), np.empty(x.shape)
    forward = task.kernels(op).forward
    assert forward is not None
    forward(x, plain)  # of zeros, infinities, NaN, and roots of negative numbers: what IEEE arithmetic gives
    y = nearest(plain, task.dtype).copy()
    usual = np.isfinite(x) & (x != 0) & ((x > 0) | (p.denominator == 1))
    y[usual] = [nearest_power(v, p, task.dtype) for v in x[usual].tolist()]
    return y


@nearest_everywhere.register(Pow)
def _(op: Pow, task: Task, *arrays: Array | None) -> Array:
    x, p = arrays
    assert x is not None and p is not None
    plain, forward = np.empty(task.resolved.out), task.kernels(op).forward
    assert forward is not None
    forward(x, p, plain)  # of zeros, infinities, NaN, and roots of negative numbers, as above
    y = nearest(plain, task.dtype).copy()
    x, p = np.broadcast_arrays(x, p)
    usual = np.isfinite(x) & (x != 0) & np.isfinite(p) & (p != 0) & ((x > 0) | (np.floor(p) == p))
    powers = zip(x[usual].tolist(), p[usual].tolist(), strict=True)
    y[usual] = [nearest_power(v, Fraction(q), task.dtype) for v, q in powers]
    return y


def nearest_power(x: float, p: Fraction, dtype: np.dtype[Any]) -> float:
    """The float nearest to a power of a number other than zero, which is positive unless the exponent is whole.

    >>> nearest_power(16.0, Fraction(3, 4), np.dtype(np.float32)), nearest_power(-1e-170, Fraction(-3), np.dtype(float))
    (8.0, -inf)
    """
    sign, size = -1 if x < 0 and p % 2 == 1 else 1, abs(Fraction(x))
    base, a = _root(size, p.denominator), p.numerator
    if base is None:
        exponent = flint.arb(flint.fmpq(a, p.denominator))
        return sign * _of_ball(lambda: _ball(size) ** exponent, dtype)
    if base.numerator & (base.numerator - 1) == 0 and base.denominator & (base.denominator - 1) == 0:
        two = (base.numerator.bit_length() - base.denominator.bit_length()) * a
        return sign * round_fraction(Fraction(2) ** max(-FAR, min(two, FAR)), dtype)
    if abs(a) <= FACTORS:
        return sign * round_fraction(base**a, dtype)
    return sign * _of_ball(lambda: _ball(base) ** a, dtype)


def _of_ball(value: Callable[[], Any], dtype: np.dtype[Any]) -> float:
    return nearest_of_balls(value, dtype, unproved, Power.name)


def _ball(q: Fraction) -> Any:
    return flint.arb(flint.fmpq(q.numerator, q.denominator))


def _root(q: Fraction, order: int) -> Fraction | None:
    """The root of a rational, of an order that is a power of two; None if it is irrational."""
    n, d = q.numerator, q.denominator
    while order > 1 and n != d:
        root = isqrt(n), isqrt(d)
        if (root[0] ** 2, root[1] ** 2) != (n, d):
            return None
        (n, d), order = root, order // 2
    return Fraction(n, d)
