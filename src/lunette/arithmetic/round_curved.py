"""Smooth max and Lp in rounded arithmetic: their derivatives, and values where the compiled drivers are out of range.

With e = exp(beta*(x - c)), whatever c is, and s the sum of e over a window, the derivative of smooth max is the sum of
e*t over the window by s. With b = sign(x)*|x|^(p-1) and n = (the sum of |x|^p)^(1/p), whatever all cells are divided
by, that of a norm is the sum of b*t by n^(p-1). In the coarse way the float64 kernels do it, in the fine one pairs of
doubles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lunette.arithmetic.error import gamma, height
from lunette.arithmetic.pairs import MANY, Pairs, Reads, U, exponential, gathered, logarithm, total
from lunette.arithmetic.round_pool import at_windows, pulled, readers, windows_of
from lunette.arithmetic.round_values import counts_of, most_cells, space_of
from lunette.arithmetic.rounded import Arrays, Task, pull_of, push_of, sum_of
from lunette.arithmetic.sums import Sum
from lunette.number import Array
from lunette.ops.lp_pool import LpPool
from lunette.ops.pool import Pool
from lunette.ops.smooth_max_pool import SmoothMaxPool


def _over_windows(op: Pool, x: Array, a: Pairs) -> Pairs:
    return gathered(a, [Reads.of_windows(t) for t in op.window.tables(space_of(op, x))])


def _over_readers(op: Pool, x: Array, a: Pairs) -> Pairs:
    return gathered(a, [Reads.of_cells(t) for t in op.window.tables(space_of(op, x))])


def _is_listed(op: Pool, x: Array) -> bool:
    return all(t.count.sum() <= MANY for t in op.window.tables(space_of(op, x)))


def _by_plane(op: Pool, x: Array) -> tuple[int, ...]:
    """The axes of a plane."""
    return tuple(range(x.ndim - op.window.d, x.ndim))


# ---- smooth max


@dataclass(frozen=True, slots=True)
class Softened:
    """Exponentials of cells and their sums over windows, of the cells less the middle of their plane."""

    beta: Pairs
    cells: Pairs
    e: Pairs
    s: Pairs
    absent: Pairs
    """The exponentials of absent cells, zeros, which are part of the sums."""
    middle: Pairs

    @classmethod
    def of(cls, op: SmoothMaxPool, x: Array, beta: Array) -> Softened:
        rate, axes, present = Pairs.of(np.asarray(beta)), _by_plane(op, x), np.where(np.isfinite(x), x, np.nan)
        low, high = (np.nan_to_num(f(present, axis=axes, keepdims=True)) for f in (np.fmin.reduce, np.fmax.reduce))
        middle = Pairs.of(low / 2 + high / 2)
        cells = Pairs.of(x) - middle
        e = exponential(rate * cells)
        s, space = _over_windows(op, x, e), space_of(op, x)
        count = counts_of(op.window, space, True) - counts_of(op.window, space, False) if op.count_include_pad else 0.0
        absent = exponential(rate * -middle) * Pairs.of(np.broadcast_to(count, s.hi.shape))
        absent = absent.where(np.asarray(count != 0), 0.0)
        return cls(rate, cells, e, s + absent, absent, middle)

    def slope(self, op: SmoothMaxPool, x: Array) -> Pairs:
        """The derivative in beta: (mean of cells - value) / beta; both less the middle, which absent cells are too."""
        mean = (_over_windows(op, x, self.e * self.cells) - self.absent * self.middle) / self.s
        return (mean - logarithm(self.s) / self.beta) / self.beta


def _is_calm(x: Array, beta: Array) -> bool:
    """Exponents within the range of the vector code, whose error is proved."""
    return bool(np.isfinite(x).all() and abs(float(beta)) * abs(x).max(initial=0) <= 200)


@sum_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, *arrays: Array | None) -> Sum | None:
    x, beta = arrays
    assert x is not None and beta is not None
    if not _is_listed(op, x):
        return None
    soft = Softened.of(op, x, beta)
    y = soft.middle + logarithm(soft.s) / soft.beta
    return Sum.of(y, np.zeros(()))


@push_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x, beta), (t, t_beta) = primals, tangents
    assert x is not None and beta is not None
    jvp = task.kernels(op).jvp
    if jvp is None:
        return None
    y = np.empty(windows_of(op, x))
    jvp(x, beta, t, t_beta, y)
    if task.sums.coarse and _is_calm(x, beta) and (t is None or np.isfinite(t).all()):
        relative = 64 * U + 4 * gamma(height(most_cells(op, space_of(op, x))), U)
        moved = 0.0 if t is None else abs(t).max(initial=0)
        if t_beta is not None:
            rate = abs(float(beta))
            spread = 2 * abs(x).max(initial=0) + (1 + math.log(most_cells(op, space_of(op, x)))) / rate
            moved = moved + abs(float(t_beta)) * spread / rate
        return Sum(y, None, relative * moved + 8 * U * abs(y))
    if not _is_listed(op, x):
        return None
    soft = Softened.of(op, x, beta)
    parts = [] if t is None else [_over_windows(op, x, soft.e * Pairs.of(t)) / soft.s]
    if t_beta is not None:
        parts.append(soft.slope(op, x) * Pairs.of(np.asarray(t_beta)))
    return Sum.of(sum(parts[1:], parts[0]), y) if parts else None


@pull_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    x, beta = primals
    assert x is not None and beta is not None
    vjp, g = task.kernels(op).vjp, at_windows(op, x, g)
    if not vjp:
        return None
    y = np.empty(x.shape if wrt == 0 else ())
    vjp[wrt](x, beta, g, y)
    if wrt == 0 and task.sums.coarse and _is_calm(x, beta) and np.isfinite(g).all():
        many = readers(op, space_of(op, x))
        relative = 64 * U + 4 * gamma(height(most_cells(op, space_of(op, x))), U) + gamma(height(many), U)
        return Sum(y, None, relative * many * abs(g).max(initial=0))
    if not _is_listed(op, x):
        return None
    soft = Softened.of(op, x, beta)
    if wrt == 1:
        return Sum.of(total(soft.slope(op, x) * Pairs.of(g)), y)
    return Sum.of(soft.e * _over_readers(op, x, Pairs.of(g) / soft.s), y)


# ---- norms


@dataclass(frozen=True, slots=True)
class Norms:
    """Powers of cells and their sums over windows, of the cells by a power of two for each plane."""

    logs: Pairs
    zero: Array
    s: Pairs
    scale: Array
    """Exponents of two."""

    @classmethod
    def of(cls, op: LpPool, x: Array) -> Norms:
        sizes, zero = abs(np.where(np.isfinite(x), x, 0.0)), x == 0
        scale = np.frexp(sizes.max(axis=_by_plane(op, x), keepdims=True, initial=0))[1]
        small = np.ldexp(sizes, -scale)
        seen = np.isfinite(x) & (small > 2.0**-900)  # and not rounded
        logs = logarithm(Pairs.of(np.where(zero, 1.0, np.where(seen, small, np.nan))))
        powers = exponential(logs * Pairs.of(float(op.p))).where(~zero, 0.0)
        return cls(logs, zero, _over_windows(op, x, powers), scale)

    def weights(self, x: Array, p: float) -> Pairs:
        """sign(x)*|x|^(p-1)."""
        size = exponential(self.logs * Pairs.of(p - 1.0)).where(~self.zero, 0.0)
        sign = np.sign(np.where(np.isfinite(x), x, 0.0))
        return Pairs(size.hi * sign, size.lo * sign, size.radius)

    def powers(self, exponent: Pairs) -> Pairs:
        """S^exponent, and 1 for windows of zeros, whose weights are zero."""
        nothing = (self.s.hi == 0) & (self.s.radius == 0)
        return exponential(logarithm(self.s.where(~nothing, 1.0)) * exponent)


def _is_even(x: Array, p: float) -> bool:
    """Magnitudes close enough together for the vector code, whose error is proved."""
    sizes = abs(x[x != 0])
    if not np.isfinite(sizes).all() or not p <= 64:
        return False
    low, high = np.frexp(sizes.min(initial=1))[1], np.frexp(sizes.max(initial=1))[1]
    return bool((high - low + 2) * p <= 700 and max(abs(low), abs(high)) <= 150)


def _error(op: LpPool, x: Array) -> float:
    return float(gamma(height(most_cells(op, space_of(op, x))), U)) + (16 if op.p in (1, 2, 3) else 4096) * U


@sum_of.register(LpPool)
def _(op: LpPool, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    assert x is not None
    if not _is_listed(op, x):
        return None
    n = Norms.of(op, x)
    y = n.powers(Pairs.of(1.0) / Pairs.of(float(op.p)))
    y = y.where((n.s.hi != 0) | (n.s.radius != 0), 0.0)
    return Sum.of(Pairs(*(np.ldexp(v, n.scale) for v in (y.hi, y.lo, y.radius))), np.zeros(()))


@push_of.register(LpPool)
def _(op: LpPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x,), (t,) = primals, tangents
    assert x is not None and t is not None
    jvp = task.kernels(op).jvp
    if jvp is None:
        return None
    most, windows = most_cells(op, space_of(op, x)), windows_of(op, x)
    if op.p in (1, math.inf) and np.isfinite(x).all():  # sums of tangents with a sign
        known = task.ranges.get(id(t))
        return task.sums.of(lambda t, y: jvp(x, t, y), (t,), windows, most, lambda: most * task.greatest(t), known)
    y = np.empty(windows)
    jvp(x, t, y)
    if task.sums.coarse and _is_even(x, op.p) and np.isfinite(t).all():
        return Sum(y, None, (4 * _error(op, x) + gamma(height(most), U)) * most * abs(t).max(initial=0))
    if op.p in (1, math.inf) or not _is_listed(op, x):
        return None
    n = Norms.of(op, x)
    moved = _over_windows(op, x, n.weights(x, op.p) * Pairs.of(t))
    return Sum.of(moved / n.powers(_outer_power(op.p)), y)


@pull_of.register(LpPool)
def _(op: LpPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    vjp, many, g = task.kernels(op).vjp, readers(op, space_of(op, x)), at_windows(op, x, g)
    if not vjp:
        return None
    if op.p in (1, math.inf) and np.isfinite(x).all():
        return pulled(task, vjp, x, g, 1.0, many)
    y = np.empty(x.shape)
    vjp[0](x, g, y)
    if task.sums.coarse and _is_even(x, op.p) and np.isfinite(g).all():
        return Sum(y, None, (4 * _error(op, x) + gamma(height(many), U)) * many * abs(g).max(initial=0))
    if op.p in (1, math.inf) or not _is_listed(op, x):
        return None
    n = Norms.of(op, x)
    return Sum.of(n.weights(x, op.p) * _over_readers(op, x, Pairs.of(g) / n.powers(_outer_power(op.p))), y)


def _outer_power(p: float) -> Pairs:
    """(p - 1) / p."""
    return Pairs.of(p - 1.0) / Pairs.of(float(p))
