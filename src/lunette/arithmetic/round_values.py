"""Values of pools in rounded arithmetic, by compiled drivers: what is proved of them, and their calls.

The drivers (native/round_pool.cpp, native/round_double.cpp) compute a few planes at a time and decide them while they
are in cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lunette import core
from lunette.arithmetic.error import float_info, gamma, height
from lunette.arithmetic.pairs import DOUBLE, U
from lunette.arithmetic.rounded import Decided, Driver, driver_of
from lunette.array import FORGETTING
from lunette.number import Array
from lunette.op import ResolvedOp
from lunette.ops.avg_pool import AvgPool
from lunette.ops.derivative import Jvp
from lunette.ops.lp_pool import LpPool
from lunette.ops.pool import Pool
from lunette.ops.smooth_max_pool import SmoothMaxPool
from lunette.window import Shape, Window

# ---- windows


@lru_cache(maxsize=256)
def counts_of(window: Window, space: Shape, counted: bool) -> Array:
    """How many cells each window has, padding counted or not, over the output's space."""
    counts = np.ones(())
    for t in window.tables(space):
        counts = np.multiply.outer(counts, (t.inside if counted else t.count).astype(float))
    return np.asarray(counts)


def space_of(op: Pool, x: Array) -> Shape:
    return x.shape[x.ndim - op.window.d :]


def most_cells(op: Pool, space: Shape) -> int:
    """The most cells that a window has, padding counted if it counts."""
    return prod(int((t.inside if op.counted else t.count).max(initial=0)) for t in op.window.tables(space))


def divisors_of(op: AvgPool, space: Shape) -> Array | float:
    """What each sum is divided by: one number if all are the same."""
    if op.divisor is not None:
        return float(op.divisor)
    counts = counts_of(op.window, space, op.count_include_pad)
    return float(counts.flat[0]) if counts.size and (counts == counts.flat[0]).all() else counts


@lru_cache(maxsize=256)
def divisor_table(op: AvgPool, space: Shape) -> Array:
    """What the sums of a plane are divided by: one number, or one for each."""
    return np.array(divisors_of(op, space), DOUBLE).ravel()


FORGETTING += [counts_of.cache_clear, divisor_table.cache_clear]


# ---- what is proved


@dataclass(frozen=True, slots=True)
class Proved:
    """What is proved of a kernel's results y, before they are divided, on planes that keep `most`, `least` and `span`.

    |y - exact| <= evenly * (greatest |cell| of the plane) + relative * |y| + always. The kernel is the float64 kernel
    for narrow floats, and pairs of doubles for doubles (native/kernels.hpp; docs/rounded.md has the proofs).
    """

    evenly: float = 0.0
    relative: float = 0.0
    always: float = 0.0
    most: float = math.inf
    least: float = 0.0
    span: float = math.inf
    terms: float = 0.0
    """Of a sum of cells: how many; of doubles, that times the relative size of the low parts."""

    def array(self) -> Array:
        fields = (self.evenly, self.relative, self.always, self.most, self.least, self.span, self.terms)
        return np.array(fields)


def proved_sum(terms: int, doubles: bool) -> Proved:
    """Sums of cells. Pairs keep what roundings drop, gamma(h) * S in all, and add that up with a relative gamma(2h)."""
    t, h = max(terms, 1), height(max(terms, 1))
    dropped = gamma(h, U)
    if doubles:
        return Proved(dropped * gamma(2 * h, U) * t * (1 + 2.0**-20), most=2.0**900, terms=dropped * t * (1 + 2.0**-20))
    return Proved(dropped * t * (1 + 2.0**-20), terms=t)


def proved_smooth_max(terms: int, beta: float, doubles: bool) -> Proved:
    """Exponentials, their sum and its logarithm, for |beta*x| <= 200."""
    rate = abs(beta)
    if doubles:
        most = 200 / rate if 2.0**-900 < rate < 2.0**900 else -1.0  # no plane: halves of beta overflow, or the quotient
        return Proved(always=(2.0**-79 + 4 * gamma(2 * height(terms), U) ** 2) / rate, most=most)
    return Proved(relative=64 * U, always=(64 * U + 2 * gamma(height(terms), U)) / rate, most=200 / rate)


def proved_norm(terms: int, p: float, doubles: bool) -> Proved | None:
    """Powers, their sum and its root; None where nothing is proved."""
    if not p <= 64:
        return None
    if doubles:
        if p != int(p):
            return None
        sums = 8 * p * U * U + 4 * gamma(2 * height(terms), U) ** 2
        room = 2.0 ** (400 / p)
        return Proved(relative=2 * (sums / p + (64 + 40 * p) * U * U), most=room, least=1 / room)
    if p == 1:
        return proved_sum(terms, doubles)
    return Proved(relative=gamma(height(terms), U) + (16 if p in (2, 3) else 4096) * U, span=700 / p - 2)


# ---- calls


class Run:
    """A call of a compiled driver (x, divisors or beta or p, proved, y, places, count, low or None) on one shape.

    `make` makes it of window tables, a number of planes, the digits of the result, and what else there is.
    """

    def __init__(
        self, make: Callable[..., core.Task], op: Pool, resolved: ResolvedOp, dtype: np.dtype[Any], *more: Any
    ) -> None:
        _, tables, planes = op.native(DOUBLE, prod(resolved.batch), resolved.shapes[:1], op.counted)
        self.task = make(tables, planes, int(float_info(dtype).nmant) + 1, *more)
        self.out, self.dtype = resolved.out, np.dtype(np.float32) if dtype != DOUBLE else DOUBLE
        self.size = prod(resolved.out)

    def __call__(self, x: Array | None, parameter: Array, proved: Array) -> Decided:
        y = np.empty(self.out, self.dtype)
        places, count = np.empty(self.size, np.int64), np.empty(1, np.int64)
        x = np.asarray(x, self.dtype, order="C")
        self.task(x if x.flags.aligned else x.copy(), parameter, proved, y, places, count, None)
        return y, np.sort(places[: count[0]]) if count[0] else places[:0]


@driver_of.register(AvgPool)
def _(op: AvgPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Driver | None:
    space = (resolved.shapes[0] or ())[1:]
    divisors = divisor_table(op, space)
    if resolved.kernels.forward is None:
        return None
    if dtype == DOUBLE and not 2.0**-60 <= abs(divisors).min() <= abs(divisors).max() <= 2.0**60:
        return None  # remainders might underflow
    run = Run(core.rounded_avg_pool, op, resolved, dtype, divisors.size)
    proved = proved_sum(int(counts_of(op.window, space, False).max()), dtype == DOUBLE).array()
    return lambda x: run(x, divisors, proved)


@driver_of.register(Jvp)
def _(op: Jvp, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Driver | None:
    """What is linear in its only array is its own derivative."""
    if not op.op.linear_in or len(op.op.arrays) > 1:
        return None
    own = driver_of(op.op, resolved, dtype)
    return None if own is None else lambda x, t: own(np.zeros_like(x) if t is None else t)


@driver_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Driver | None:
    if resolved.kernels.forward is None:
        return None
    run, most = (
        Run(core.rounded_smooth_max_pool, op, resolved, dtype, op.counted),
        most_cells(op, (resolved.shapes[0] or ())[1:]),
    )

    def value(x: Array, beta: Array) -> Decided:
        rate = np.asarray(beta, DOUBLE).reshape(1)
        return run(x, rate, proved_smooth_max(most, float(rate[0]), dtype == DOUBLE).array())

    return value


@driver_of.register(LpPool)
def _(op: LpPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Driver | None:
    doubles, most = dtype == DOUBLE, most_cells(op, (resolved.shapes[0] or ())[1:])
    plain = op.p == 1 and doubles
    proved = proved_sum(most, doubles) if plain else proved_norm(most, op.p, doubles)
    if proved is None or resolved.kernels.forward is None:
        return None
    run = (
        Run(core.rounded_avg_pool, op, resolved, dtype, 1) if plain else Run(core.rounded_lp_pool, op, resolved, dtype)
    )
    parameter, numbers = np.array([float(op.p)]), proved.array()
    return lambda x: run(abs(x) if plain else x, parameter, numbers)
