"""Bounds of pools, by their own kernels, a few planes at a time (native/bound_pool.cpp).

The notation is that of lunette.arithmetic.interval.

**Averages** are sums of products with one factor: centres c and radii r, R = K(A*|c| + B*r) + s, n = 6. s pays for the
quotient that underflows, in both sums, and for two products of every cell. A window that is a whole plane needs no
centres: its ends are the sums of the ends, moved outward by A times the sum of the greatest magnitudes, as terms of one
sign are.

**Smooth max and norms** are monotone in every cell, norms in every magnitude. So their ends are what the kernel gives
at the ends of x (of |x|), moved outward by the kernel's own error, in units of u:

- exp(beta*x) = 2^(k + r) (native/elementary.hpp, |beta*x| <= 500 in float32): beta*log2(e) is held in two parts, so far
  too well to matter, and r, at most 0.5, is rounded twice (1), and without fused operations the error of its first
  part once more (1): 1.4 of the result. The Chebyshev series is cut below 0.13; its last sum rounds 1, the product
  before, at most 0.42, and the sum in it 1.2, all others 0.4, of at least 0.7. Together below 5; 8 is used.
  Doubles with AVX-512 take r within 1/32, beside a table of powers that are rounded (1): below 3.
- a sum of t such terms, and of the absent ones: gamma(h).
- log s = k*ln2_hi + (log m + k*ln2_lo): log m, at most 0.35, is off by 2.5 of its size (its last subtraction 1, the
  square's half 0.25, the rest 0.6), k*ln2_lo by 0.07, the inner sum rounds 0.37, the outer one 1 of log s: 2 + |log s|.
- the product with 1/beta: 2 of y. So |y - exact| <= (e/(1-e) + 2u)/|beta| + 3.1*u*|y|, e = gamma(h) + 8u.
- x^p = exp(p*log x) by `power`: log m is off by 2.5, its product with p by 2 more: 1.56*p in the exponent; the whole
  part n is exact, n*ln2 rounds 0.375*p + 0.36, the low half of p costs 0.08*p, inner sums 0.75*p, the last 0.36, the
  exponential 2.2: together below 3*p + 4. For an exponent 1/p the same with 1/p for p.
- the norm: (3p + 4 + gamma(h)/u)/p for the sum, whose p-th root divides its error by p; 3/p + 4 for the root; 1 for
  scaling: below gamma(h)/p + 8 + 7/p; 16 + 16/p is used. p = 1 rounds in the sum only, p = 2 half a square and a root.
- data too far apart for one scale, and p > 64, are computed by the definition in double or long double: less than 1.

The ends are rounded, which 2u of y more pays for; 4*tiny pays for a subnormal result. A norm that is zero is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan, prod
from typing import Any

import numpy as np

from lunette import core
from lunette.arithmetic import interval
from lunette.arithmetic.error import gamma, height
from lunette.arithmetic.interval import FEW, Bounder, Boxes, both_ends, bounder_of, refuse_nan
from lunette.arithmetic.round_values import most_cells
from lunette.array import Call
from lunette.number import Array, Interval
from lunette.op import ResolvedOp
from lunette.ops.avg_pool import AvgPool
from lunette.ops.lp_pool import LpPool
from lunette.ops.pool import Pool
from lunette.ops.smooth_max_pool import SmoothMaxPool


@bounder_of.register(AvgPool)
def _(op: AvgPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Bounder | None:
    terms = interval.terms_of(op, resolved.shapes, prod(resolved.batch))
    if not terms:
        return None
    divisor = float(op.divisor or 1)
    mode = 2 if op.divisor is not None else 0 if op.count_include_pad else 1
    run, parameter = Run(core.bounded_avg_pool, op, resolved, dtype, mode), np.array([divisor], dtype)
    divisors = op.divisor_roundings(resolved.shapes, dtype)
    numbers = mean_numbers(terms, divisor, dtype, _whole(op, resolved.shapes), divisors)
    most = 2.0 ** (np.finfo(dtype).maxexp - 4) / (terms * max(1, 1 / divisor))

    def bounds(call: Call, boxes: Boxes) -> Interval | None:
        lo, hi, top = run(call, boxes, parameter, numbers)
        return Interval.between(lo, hi) if top < most else None  # else a sum or a quotient may have overflowed

    return bounds


@bounder_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Bounder | None:
    run = Run(core.bounded_smooth_max_pool, op, resolved, dtype, op.counted)
    terms = most_cells(op, (resolved.shapes[0] or ())[1:])

    def bounds(call: Call, boxes: Boxes) -> Interval | None:
        rate = boxes[1]
        if rate is None or (rate.lo is not rate.hi and rate.lo != rate.hi):
            return None
        numbers = smooth_max_numbers(terms, float(rate.lo), dtype)
        if numbers[2] == inf:
            return None
        return _of_ends(*run(call, boxes, np.asarray(rate.lo, dtype).reshape(1), numbers), boxes, terms)

    return bounds


@bounder_of.register(LpPool)
def _(op: LpPool, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Bounder | None:
    terms = most_cells(op, (resolved.shapes[0] or ())[1:])
    numbers = norm_numbers(terms, float(op.p), dtype)
    if not np.isfinite(numbers).all():
        return None
    run, parameter = Run(core.bounded_lp_pool, op, resolved, dtype), np.array([op.p], dtype)
    return lambda call, boxes: _of_ends(*run(call, boxes, parameter, numbers), boxes, terms)


class Run:
    """A call of a compiled driver: the ends, and the greatest magnitude met; NaN where an end is not finite.

    `make` makes it of what every kernel of a pool is made for, and what else there is.
    """

    def __init__(
        self, make: Callable[..., core.Task], op: Pool, resolved: ResolvedOp, dtype: np.dtype[Any], *more: Any
    ) -> None:
        self.task = make(*op.native(dtype, prod(resolved.batch), resolved.shapes[:1], op.counted), *more)

    def __call__(self, call: Call, boxes: Boxes, parameter: Array, numbers: Array) -> tuple[Array, Array, float]:
        box = boxes[0]
        assert box is not None
        (lo, hi), top = both_ends(call), np.empty(1)
        self.task(box.lo, box.hi, parameter, numbers, lo, hi, top)
        return lo, hi, float(top[0])


def _of_ends(lo: Array, hi: Array, top: float, boxes: Boxes, terms: int) -> Interval | None:
    if isnan(top):
        refuse_nan(boxes)
        if hi.size * max(terms, 1) <= FEW:
            return None
        most = np.finfo(lo.dtype).max
        lo[np.isnan(lo)], hi[np.isnan(hi)] = -inf, inf
        np.minimum(lo, most, out=lo)
        np.maximum(hi, -most, out=hi)
    return Interval.between(lo, hi)


def _whole(op: AvgPool, shapes: tuple[Any, ...]) -> float:
    """What the sum of a plane is divided by, where one window reads all of it; else zero."""
    tables = op.window.tables(shapes[0][1:])
    if any(t.m != 1 or t.count[0] != t.n for t in tables):
        return 0.0
    return float(op.divisor or prod(int((t.inside if op.count_include_pad else t.count)[0]) for t in tables))


def mean_numbers(terms: int, divisor: float, dtype: np.dtype[Any], whole: float = 0.0, divisors: int = 0) -> Array:
    """(A, B, s, whole) for centres and radii of cells; underflow costs the quotient, and every cell's two products."""
    a, b = interval.factors(terms, dtype, 6, divisors)
    tiny = float(np.finfo(dtype).smallest_subnormal)
    return np.array([a, b, _above(4 * tiny * (1 + terms * max(1.0, 1 / divisor)), dtype), whole], np.float64)


def smooth_max_numbers(terms: int, beta: float, dtype: np.dtype[Any]) -> Array:
    """(a, -, s, -) that move the ends of a smooth max apart, see above."""
    u, tiny = float(np.finfo(dtype).eps) / 2, float(np.finfo(dtype).smallest_subnormal)
    e = gamma(height(terms), u) + 8 * u
    error = (e / (1 - e) + 8 * u) / abs(beta) if e < 0.5 else inf
    return np.array([8 * u, 0, _above((error + 4 * tiny) * (1 + 8 * u), dtype), 0])


def norm_numbers(terms: int, p: float, dtype: np.dtype[Any]) -> Array:
    """(a, -, s, -) that move the ends of a norm apart, see above; the greatest cell itself is exact."""
    if p == inf:
        return np.zeros(4)
    u, tiny = float(np.finfo(dtype).eps) / 2, float(np.finfo(dtype).smallest_subnormal)
    g = gamma(height(terms), u)
    own = 0.0 if p == 1 else 2 * u if p == 2 else (16 + 16 / p) * u
    error = (g / (1 - g) / p + own + 2 * u) * (1 + 8 * u) if g < 0.5 else inf
    return np.array([_above(error, dtype), 0, _above(4 * tiny, dtype), 0])


def _above(v: float, dtype: np.dtype[Any]) -> float:
    """A number of a dtype that is not less."""
    return float(np.nextafter(dtype.type(v), dtype.type(inf)))
