"""Exp, log, roots and the like for check.py, which is beside this file: by balls of python-flint.

A ball is a number with a proven error. All functions here increase with every cell that they read, and are convex, or
concave, or (of one cell) convex below zero and concave above it. A line s.x + k is below f if k is at most the least of
f(x) - s.x over a box. Where f is convex, that is no less than what a tangent has, which is a sum over the cells; where
it is concave, it is at a corner. A line above f is one below -f, with everything the other way round. Slopes may be
any: bad ones prove less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, Final

from flint import arb, ctx

UNIT: Final = 20  # slopes are multiples of 2^-20, as in check.py
CORNERS: Final = 8  # cells whose corners are tried; of more, there is only the box
LARGE: Final = 1 << 4096
Ball = Any
Balls = Sequence[Any]
Ends = tuple[int, ...]  # of the cells that are read, in 2^-bits


def power(x: Ball, p: Ball) -> Ball:
    """Of x >= 0, for p > 0."""
    return x if x == 0 else (p * x.log()).exp()


def smooth_max(x: Balls, beta: Ball) -> Ball:
    return sum((beta * v).exp() for v in x).log() / beta


def norm(x: Balls, p: Ball) -> Ball:
    return power(sum((power(v, p) for v in x), arb(0)), 1 / p)


def smooth_max_slopes(x: Balls, beta: Ball) -> Balls:
    top = smooth_max(x, beta)
    return [(beta * (v - top)).exp() for v in x]


def norm_slopes(x: Balls, p: Ball) -> Balls:
    whole = norm(x, p)
    return [power(v / whole, p - 1) for v in x]


def of_one(f: Callable[[Ball], Ball]) -> Callable[[Balls, Ball], Ball]:
    return lambda x, _: f(x[0])


CURVES: Final[dict[str, Any]] = {  # value, slopes, and the bends below zero and above: 1 is convex, -1 is concave
    "exp": (of_one(arb.exp), lambda x, _: [x[0].exp()], 1, 1),
    "log": (of_one(arb.log), lambda x, _: [1 / x[0]], -1, -1),
    "sqrt": (of_one(arb.sqrt), lambda x, _: [1 / (2 * x[0].sqrt())], -1, -1),
    "sigmoid": (of_one(lambda x: 1 / (1 + (-x).exp())), lambda x, _: [1 / (2 + x[0].exp() + (-x[0]).exp())], 1, -1),
    "tanh": (of_one(arb.tanh), lambda x, _: [1 - x[0].tanh() ** 2], 1, -1),
    "erf": (of_one(arb.erf), lambda x, _: [2 * (-x[0] * x[0]).exp() / arb.pi().sqrt()], 1, -1),
    "smooth_max": (smooth_max, smooth_max_slopes, 1, 1),
    "norm": (norm, norm_slopes, 1, 1),
}


class NotFinite(Exception):  # noqa: N818
    """A ball that says nothing."""


def floor(v: Ball, bits: int) -> int:
    """The greatest n with n/2^bits <= v, or a smaller one."""
    if not (v.is_finite() and abs(v) < LARGE):  # undecided is no
        raise NotFinite
    n, e = (int(part) for part in v.lower().man_exp())
    return n << e + bits if e + bits >= 0 else n >> -e - bits


def few(found: Any, cells: Any) -> Any:
    """A function that remembers what it found, of few cells; of many it does not, for these would fill the memory."""
    return found if len(cells) <= 16 else found.__wrapped__


@dataclass(frozen=True)
class Curve:
    """One of these functions; the number is beta, or p."""

    name: str
    number: Fraction | None
    need: Callable[[Any, str], None]

    def value(self, x: Balls) -> Ball:
        q = self.number
        return CURVES[self.name][0](x, None if q is None else arb(q.numerator) / q.denominator)

    def slopes(self, x: Balls) -> Balls:
        q = self.number
        found: Balls = CURVES[self.name][1](x, None if q is None else arb(q.numerator) / q.denominator)
        return found

    def image(self, reads: Any, lo: Any, hi: Any, bits: int) -> tuple[list[int], list[int]]:
        """The ends of all cells, from those of what they read."""
        try:
            both = [few(Curve.ends, own)(self, tuple((lo[p][i], hi[p][i]) for p, i in own), bits) for own in reads]
        except NotFinite:
            self.need(False, f"finite values of {self.name} everywhere in the box")
        return [low for low, _ in both], [high for _, high in both]

    @lru_cache(maxsize=1 << 16)  # noqa: B019 (a curve has no more than its name and number)
    def ends(self, cells: tuple[tuple[int, int], ...], bits: int) -> tuple[int, int]:
        with ctx.workprec(bits + 80):
            low, high = (self.value([arb((cell[side], -bits)) for cell in cells]) for side in (0, 1))
            return floor(low, bits), -floor(-high, bits)

    def pulled(self, x: int, own: Any, lows: Ends, tops: Ends, bits: int) -> tuple[list[int], int]:
        """For the coefficient x of a cell those of what it reads, by a line, and what is left at least.

        A coefficient that is rounded down loses less than one, times its cell.
        """
        s, constant = few(Curve.line, lows)(self, x > 0, own, lows, tops, bits)
        lost = sum(min(low, 0) for low, v in zip(lows, s, strict=True) if v)
        return [x * v >> UNIT for v in s], x * constant + lost

    def pulled_of(self, region: Any, reads: Any, x: int, own: Any) -> tuple[list[Any], int]:
        """The same for a cell of a region of check.py: (tap, coefficient) of what it reads, and what is left."""
        lows, tops = (tuple(end[p][i] for p, i in reads) for end in (region.lo, region.hi))
        g, least = self.pulled(x, own and tuple(own), lows, tops, region.bits)
        return list(zip(reads, g, strict=True)), least

    @lru_cache(maxsize=1 << 16)  # noqa: B019
    def line(self, below: bool, own: Any, lows: Ends, tops: Ends, bits: int) -> tuple[Any, int]:
        """Slopes, those that are given or good ones, and the constant of a line."""
        sign = 1 if below else -1
        with ctx.workprec(bits + 80):
            lo, hi = ([arb((n, -bits)) for n in ends] for ends in (lows, tops))
            tries = [((0,) * len(lo), sign * floor(sign * self.value(lo if below else hi), bits))]  # the box, always
            for s in [own] if own else self.good(sign, lo, hi):
                try:
                    tries.append((s, sign * floor(self.least(sign, [arb((v, -UNIT)) for v in s], lo, hi), bits)))
                except NotFinite:
                    continue
        middle = [a + b for a, b in zip(lows, tops, strict=True)]

        def height(line: tuple[Any, int]) -> int:
            inner = sum(v * m for v, m in zip(line[0], middle, strict=True))
            return sign * int((line[1] << UNIT + 1) + inner)

        return max(tries, key=height)

    def good(self, sign: int, lo: Balls, hi: Balls) -> list[tuple[int, ...]]:
        """Slopes of tangents, and of chords: the mean of the edges from the lowest and to the highest corner."""
        shares = range(9) if self.bends[0] != self.bends[1] else (4,)
        found = [self.slopes([a + (b - a) * k / 8 for a, b in zip(lo, hi, strict=True)]) for k in shares]
        free = [i for i, (a, b) in enumerate(zip(lo, hi, strict=True)) if a < b]
        if len(free) <= CORNERS:
            chords, whole = [arb(0)] * len(lo), self.value(hi) - self.value(lo)
            for i in free:
                up, down = ([*base[:i], end, *base[i + 1 :]] for base, end in ((lo, hi[i]), (hi, lo[i])))
                chords[i] = (whole + self.value(up) - self.value(down)) / (2 * (hi[i] - lo[i]))
            found.append(chords)
        usable = [s for s in found if all(v.is_finite() and abs(v) < LARGE for v in s)]
        return [tuple(floor(v.mid(), UNIT) for v in s) for s in usable]

    @property
    def bends(self) -> tuple[int, int]:
        left, right = CURVES[self.name][2:]
        return left, right

    def least(self, sign: int, s: Balls, lo: Balls, hi: Balls) -> Ball:
        """What sign*(f(x) - s.x) is at least, over a box."""
        left, right = self.bends
        parts = [(lo, hi, left)]
        if left != right:
            parts = [(lo, [min(hi[0], arb(0))], left), ([max(lo[0], arb(0))], hi, right)]
        return min(self.least_of_part(sign, bend * sign, s, p, q) for p, q, bend in parts if p[0] <= q[0])

    def least_of_part(self, sign: int, bend: int, s: Balls, lo: Balls, hi: Balls) -> Ball:
        def gap(x: Balls) -> Ball:
            return sign * (self.value(x) - sum(v * c for v, c in zip(s, x, strict=True)))

        if bend < 0:
            if sum(bool(a < b) for a, b in zip(lo, hi, strict=True)) > CORNERS:
                raise NotFinite
            edges = [(a, b) if a < b else (a,) for a, b in zip(lo, hi, strict=True)]
            return min(lower(gap(corner)) for corner in product(*edges))
        touch = [((a + b) / 2).mid() for a, b in zip(lo, hi, strict=True)]
        if len(s) == 1:
            (a,), (b,) = lo, hi
            for _ in range(30):
                (m,) = touch = [((a + b) / 2).mid()]
                a, b = (a, m) if sign * (self.slopes([m])[0] - s[0]) > 0 else (m, b)
        rest = lower(gap(touch))
        for t, g, v, a, b in zip(touch, self.slopes(touch), s, lo, hi, strict=True):
            rest += min(lower(sign * (g - v) * (a - t)), lower(sign * (g - v) * (b - t)))
        return lower(rest)


def lower(v: Ball) -> Ball:
    """An exact number that a ball is not below; of balls that overlap, min and max would not tell the truth."""
    if not v.is_finite():
        raise NotFinite
    return v.lower()


def operator(net: Any, checker: dict[str, Any], name: str, xs: Any, o: Any) -> tuple[Any, Any]:
    """The shape and the cells of a line of a graph, made of nodes of check.py."""
    need, pooled, rounded, node = (checker[k] for k in ("need", "pooled", "rounded", "Node"))
    x, zero = xs[0], (checker["ZERO"], 0)
    net.grade = "ball"  # of p = 1 and infinity, too: executions in floats may take powers all the same

    def curve(own: str, number: Fraction | None, reads: Any, part: int = 3) -> Any:
        return net.new(node(len(reads), curve=Curve(own, number, need), reads=reads), part)

    def negative(taps: Any, part: int = 3) -> Any:
        return net.sum([([t], [-1]) for t in taps], 1, 0, part)

    if name == "smooth_max_pool":
        (at, cell), *more = xs[1].taps
        need(not more and net.nodes[at].numbers is not None, "a constant beta")
        beta = net.nodes[at].numbers[cell]
        need(beta, "a beta other than zero")
        inner = x if beta > 0 else type(x)(x.shape, negative(x.taps, 0))
        shape, taps, over = pooled(inner, o, net.dtype)
        full = [[*t, *[zero] * int(n - len(t))] for t, n in zip(taps, over, strict=True)]  # padding counts as zeros
        need(all(full), "cells in every window")
        found = curve("smooth_max", abs(beta), full, 3 if beta > 0 else 1)
        return shape, found if beta > 0 else negative(found)
    if name == "lp_pool":
        minus = negative(x.taps, 0)
        size = net.greatest([[a, b, zero] for a, b in zip(x.taps, minus, strict=True)], 1)
        shape, taps, _ = pooled(type(x)(x.shape, size), o, net.dtype)
        taps = [t or [zero] for t in taps]
        if o.get("p") == float("inf"):
            return shape, net.greatest(taps)
        p = rounded(o.get("p", 2), net.dtype)
        need(p >= 1, "p >= 1")
        return shape, net.sum([(t, [1] * len(t)) for t in taps]) if p == 1 else curve("norm", p, taps)
    return x.shape, curve(name, None, [[t] for t in x.taps])
