"""Lines of operators that are not piecewise linear, proven as those of lunette.lines are: for any slopes.

The functions that enclose f, its derivative, exp and log come from the rooms, as intervals of float64 arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from lunette.lines import Greatest, Lines, Parameters, Relaxation, down, up
from lunette.number import Array, Interval
from lunette.taps import Broadcast, Taps

Enclosure = Callable[[Array], Interval]
HALVINGS: Final = 30  # of the interval where a tangent touches: the slope is proven wherever that ends


def point(a: Any) -> Interval:
    """Numbers as intervals."""
    whole: Array = np.asarray(a, np.float64)
    return Interval.between(whole, whole)


@dataclass(frozen=True, eq=False)
class Curve(Relaxation):
    """f that is convex below `bend` and concave above it, one number per cell; infinite where it is either everywhere.

    For any slope s, f(x) - s*x on the convex part is greatest at an end of it, and on the concave part, with a point m
    of it, f(x) - s*x <= f(m) - s*m + (f'(m) - s)*(x - m), which is greatest at an end, too. Likewise from below.
    """

    lo: Array
    hi: Array
    bend: Array
    value: Enclosure
    slope: Enclosure

    @property
    def taps(self) -> tuple[Taps, ...]:  # type: ignore[override]
        return (Broadcast(self.lo.shape, self.lo.shape),)

    def middle(self, box: Interval) -> Array:
        """About the centre of intervals."""
        with np.errstate(all="ignore"):  # slopes may be infinite at an end
            centre: Array = box.lo / 2 + box.hi / 2
        return centre

    def touching(self, end: Array, near: Array, far: Array) -> Array:
        """Where a tangent through the point of the curve at `end` touches it between `near` the bend and `far` from it.

        By halving; where the chord to `far` is no steeper than the curve there, `far` itself.
        """
        at_end = self.middle(self.value(end))
        a, b = near.copy(), far.copy()
        for _ in range(HALVINGS):
            m = a / 2 + b / 2
            gap = self.middle(self.value(m)) - at_end - self.middle(self.slope(m)) * (m - end)
            beyond = np.where(end < near, gap > 0, gap < 0)  # the tangent at m passes the point on the right side
            a, b = np.where(beyond, a, m), np.where(beyond, m, b)
        return b

    @cached_property
    def made(self) -> Lines:
        """The lines; they have no parameters."""
        lo, hi = self.lo, self.hi
        turn = np.clip(self.bend, lo, hi)  # convex from lo to here, concave from here to hi
        convex, concave = turn > lo, turn < hi
        at_lo, at_hi = self.middle(self.value(lo)), self.middle(self.value(hi))
        with np.errstate(all="ignore"):
            chord = np.where(hi > lo, (at_hi - at_lo) / (hi - lo), 0.0)
        chord = np.where(np.isfinite(chord), chord, 0.0)
        both = convex & concave
        over, under = turn / 2 + hi / 2, lo / 2 + turn / 2
        if both.any():
            over = np.where(both, self.touching(lo, turn, hi), over)
            under = np.where(both, self.touching(hi, turn, lo), under)
        over, under = np.clip(over, turn, hi), np.clip(under, lo, turn)
        high = np.where(concave, self.middle(self.slope(over)), chord)
        low = np.where(convex, self.middle(self.slope(under)), chord)
        high, low = (np.where(np.isfinite(s), s, 0.0) for s in (high, low))
        above = self.bound(high, over, lo, turn, hi, convex, concave, sign=1)
        below = self.bound(low, under, lo, turn, hi, convex, concave, sign=-1)
        return Lines((low[None, None],), (high[None, None],), below[None], above[None])

    def bound(
        self, s: Array, m: Array, lo: Array, turn: Array, hi: Array, convex: Array, concave: Array, sign: int
    ) -> Array:
        """The greatest f(x) - s*x rounded up; with sign -1 the least rounded down."""
        outer = np.maximum if sign > 0 else np.minimum
        direct = up if sign > 0 else down

        def at(x: Array) -> Array:
            f = self.value(x)
            end = f.hi if sign > 0 else f.lo
            return direct(end - s * x, np.abs(end) + np.abs(s * x), 2)

        first, last, there = (lo, turn, convex) if sign > 0 else (turn, hi, concave)
        ends = np.where(there, outer(at(first), at(last)), -sign * np.inf)
        first, last, there = (turn, hi, concave) if sign > 0 else (lo, turn, convex)
        slope = self.slope(m)
        gap = np.maximum(np.abs(slope.hi - s), np.abs(slope.lo - s)) * (1 + 2.0**-50)
        reach = np.maximum(last - m, m - first) * (1 + 2.0**-50)
        away = gap * reach * (1 + 2.0**-50)
        curved = np.where(there, direct(at(m) + sign * away, np.abs(at(m)) + away, 2), -sign * np.inf)
        flat = at(lo)  # a point
        found = np.where(convex | concave, outer(ends, curved), flat)
        return np.where(np.isnan(found), sign * np.inf, found)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        return self.made


@dataclass(frozen=True, eq=False)
class Product(Relaxation):
    """x*y: a plane between the two of McCormick on either side; x*y - s*x - r*y is extreme at corners, for any s, r."""

    boxes: tuple[Interval, Interval]
    taps: tuple[Taps, Taps]

    @cached_property
    def ends(self) -> tuple[Array, ...]:
        """(x.lo, x.hi, y.lo, y.hi), one row, in the shape of the output."""
        x, y = self.boxes
        pairs = ((self.taps[0], x.lo), (self.taps[0], x.hi), (self.taps[1], y.lo), (self.taps[1], y.hi))
        return tuple(t.gather(e[None], 0.0)[:, 0] for t, e in pairs)

    @cached_property
    def first(self) -> tuple[Array, Array]:
        """The plane on either side whose own extreme over the box is the better one, as 0 or 1."""
        a, b, c, d = self.ends

        def extreme(s: Array, r: Array, x: Array, y: Array, outer: Any) -> Array:
            """Of the plane through (x, y) with these slopes."""
            worst: Array = outer.reduce([s * (p - x) + r * (q - y) + x * y for p in (a, b) for q in (c, d)])
            return worst

        below = extreme(c, a, a, c, np.minimum) >= extreme(d, b, b, d, np.minimum)
        above = extreme(c, b, b, c, np.maximum) <= extreme(d, a, a, d, np.maximum)
        return below.astype(float), above.astype(float)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        a, b, c, d = self.ends
        below, above = (
            self.first if parameters is None else tuple(np.clip(parameters[k], 0, 1) for k in ("below", "above"))
        )
        low = below * c + (1 - below) * d, below * a + (1 - below) * b
        high = above * c + (1 - above) * d, above * b + (1 - above) * a
        constants = []
        for (s, r), direct, outer in ((low, down, np.minimum), (high, up, np.maximum)):
            corners = []
            for x in (a, b):
                for y in (c, d):
                    size = np.abs(x * y) + np.abs(s * x) + np.abs(r * y)
                    corners.append(direct(x * y - s * x - r * y, size, 3))
            constants.append(outer.reduce(corners))
        below_slopes, above_slopes = (tuple(v[:, None] for v in pair) for pair in (low, high))
        return Lines(below_slopes, above_slopes, constants[0], constants[1])

    def start(self, rows: int) -> dict[str, Array]:
        below, above = (np.repeat(v, rows, 0) for v in self.first)
        return {"below": below, "above": above}

    def gradient(self, parameters: Parameters, plus: Array, minus: Array, cells: Sequence[Array]) -> dict[str, Array]:
        (a, b, c, d), (x, y) = self.ends, (v[:, 0] for v in cells)
        return {
            "below": plus * ((c - d) * x + (a - b) * y + b * d - a * c),
            "above": minus * ((c - d) * x + (b - a) * y + a * d - b * c),
        }


@dataclass(frozen=True, eq=False)
class SmoothGreatest(Relaxation):
    """(1/beta) * log of the sum of exp(beta*x) over cells and some zeros, beta > 0.

    **Below**, for weights that sum to 1: sum weight*x + entropy/beta (Gibbs). **Above**, the better at the centre of

    - the lines of the maximum, plus log(n)/beta for n cells;
    - with log S <= log s + (S - s)/s for any s > 0, the sum of lines above each exp, which is convex: ends decide.
    """

    boxes: tuple[Interval, ...]
    taps: tuple[Taps, ...]
    beta: float
    zeros: Array
    """How many zeros count beside the cells, one number per output cell."""
    exp: Enclosure
    log: Enclosure

    @cached_property
    def greatest(self) -> Greatest:
        """Of the same cells, and of zero where one counts."""
        some = np.where(self.zeros > 0, 0.0, -np.inf)
        floor = Interval.between(some, some) if (self.zeros > 0).any() else None
        return Greatest(self.boxes, self.taps, floor)

    @cached_property
    def made(self) -> Lines:
        """The lines; they have no parameters."""
        lo, hi = self.greatest.ends
        present, beta = np.isfinite(lo), self.beta
        low, high = np.where(present, lo, 0.0), np.where(present, hi, 0.0)
        centre, zeros = low / 2 + high / 2, self.zeros[None, None]
        pivot = np.where(present, centre, -np.inf).max(1, keepdims=True)
        pivot = np.where(zeros > 0, np.maximum(pivot, 0.0), pivot)
        terms = np.where(present, np.exp(beta * (centre - pivot)), 0.0)
        empty = zeros * np.exp(np.minimum(-beta * pivot, 0.0)) * (zeros > 0)
        whole = terms.sum(1, keepdims=True) + empty
        w = self.weights(terms / whole, empty / whole)
        below = self.entropy(w)
        slopes, above = self.over(low, high, present, pivot, whole)
        usual = self.greatest.lines()
        count = present.sum(1) + self.zeros[None]
        more = self.log(np.maximum(count, 1.0)) / point(np.float64(beta))
        plain = up(usual.high_constant + more.hi, np.abs(usual.high_constant) + np.abs(more.hi), 1)
        by_max = np.concatenate(usual.high, 1)
        middle = [(s * centre).sum(1) + c for s, c in ((slopes, above), (by_max, plain))]
        better = ~(middle[1] <= middle[0])
        return Lines(
            self.greatest.split(w),
            self.greatest.split(np.where(better[:, None], slopes, by_max)),
            below,
            np.where(better, above, plain),
        )

    def weights(self, wanted: Array, rest: Array) -> Array:
        """Of the cells; zeros have what is left, which is nothing where there are none."""
        w = self.greatest.weights(np.concatenate([wanted, rest], 1))
        left = 1 - w.sum(1, keepdims=True)
        if self.greatest.floor is None:
            return w
        at = np.argmax(np.where(np.isfinite(self.greatest.ends[0]), w, -1.0), 1, keepdims=True)
        fill = np.where(self.zeros[None, None] > 0, 0.0, left)
        np.put_along_axis(w, at, np.take_along_axis(w, at, 1) + fill, 1)
        return w

    def entropy(self, w: Array) -> Array:
        """-(sum of w log w)/beta, the zeros' own weight shared equally, rounded down."""
        positive = w > 0
        logs = self.log(np.where(positive, w, 1.0))
        total = down(-(w * logs.hi).sum(1), np.abs(w * logs.hi).sum(1), w.shape[1] + 2)
        rest = 1 - w.sum(1)
        some = (rest > 0) & (self.zeros[None] > 0)
        share = point(np.where(some, rest, 1.0)) / point(np.where(some, self.zeros[None], 1.0))
        most = self.log(share.hi).hi
        own = np.where(some, down(-rest * most, np.abs(rest * most), 1), 0.0)
        both = point(down(total + own, np.abs(total) + np.abs(own), 1)) / point(np.float64(self.beta))
        found: Array = both.lo
        return found

    def over(self, low: Array, high: Array, present: Array, pivot: Array, whole: Array) -> tuple[Array, Array]:
        """Slopes and the constant of the second kind of line."""
        beta, n = point(np.float64(self.beta)), low.shape[1]
        shift, s = point(pivot), point(whole)
        ends = []
        for x in (low, high):
            power = (point(x) - shift) * beta
            ends.append(Interval.between(self.exp(power.lo).lo, self.exp(power.hi).hi) / (beta * s))
        with np.errstate(all="ignore"):
            slopes = np.where(high > low, (ends[1].hi - ends[0].lo) / (high - low), 0.0)
        slopes = np.where(present & np.isfinite(slopes), slopes, 0.0)
        tops = [
            up(e.hi - slopes * x, np.abs(e.hi) + np.abs(slopes * x), 2) for e, x in zip(ends, (low, high), strict=True)
        ]
        top = np.where(present, np.maximum(*tops), 0.0)
        total = up(top.sum(1), np.abs(top).sum(1), n)
        zero = point(self.zeros[None, None]) * self.exp(((point(np.zeros(())) - shift) * beta).hi) / (beta * s)
        zero_hi = np.where(self.zeros[None, None] > 0, zero.hi, 0.0)[:, 0]
        rest = (shift + (self.log(whole) - point(np.ones(()))) / beta).hi[:, 0]
        constant = up(total + zero_hi + rest, np.abs(total) + np.abs(zero_hi) + np.abs(rest), 2)
        return slopes, np.where(np.isfinite(constant), constant, np.inf)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        return self.made
