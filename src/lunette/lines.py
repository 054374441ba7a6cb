"""Straight lines below and above an operator over a box, proven in floating point.

For every point x of a box, and every output cell o, whose window reads the cells x[k] ("taps") of each operand,

    sum over k of low[k,o] * x[k]  +  low_constant[o]   <=   y[o]   <=   sum of high[k,o] * x[k]  +  high_constant[o]

Slopes may be any floats: they are chosen well, not proven. Constants are computed from the slopes as they are, and
moved outward by what their own roundings can be, so that soundness does not depend on how slopes were found. All is
float64. Arrays have an axis of rows in front, of one row where lines are the same for all rows; then the taps
(lunette.taps), then the shape of the output.

What computes a sum of products in at most n roundings of every term is off by at most gamma(n)*m + n*tiny, m the sum of
the magnitudes of the terms (Higham), which is what `down` and `up` allow for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lunette.number import Array, Interval
from lunette.taps import Broadcast, Taps

UNIT: Final = 2.0**-53
TINY: Final = 2.0**-1074
GROW: Final = 1 + 2.0**-20
"""What is computed in fewer than 2**30 roundings from numbers >= 0 is at least the exact result divided by this."""
WEIGHT: Final = 2.0**30
"""Weights of a mean are multiples of 1/WEIGHT, so that sums of them are exact."""

Parameters = Mapping[str, Array]


def gamma(roundings: int) -> float:
    """The relative error of so many roundings, rounded up."""
    assert roundings < 1 << 40
    return roundings * UNIT / (1 - roundings * UNIT) * GROW


def down(value: Array, magnitude: Array, roundings: int) -> Array:
    """A number that is not above what was computed, see above."""
    return np.nextafter(value - (gamma(roundings) * magnitude + (roundings + 1) * TINY) * GROW, -np.inf)


def up(value: Array, magnitude: Array, roundings: int) -> Array:
    """A number that is not below what was computed."""
    return -down(-value, magnitude, roundings)


# ---- lines


@dataclass(frozen=True, eq=False)
class Lines:
    """Slopes per operand, and constants, as above."""

    low: tuple[Array, ...]
    high: tuple[Array, ...]
    low_constant: Array
    high_constant: Array


class Relaxation(ABC):
    """Lines of one operator over the boxes of its operands; a family of them where parameters choose."""

    taps: tuple[Taps, ...]
    """Of every operand that is not constant."""

    @abstractmethod
    def lines(self, parameters: Parameters | None = None) -> Lines:
        """The lines for parameters, of any values; without them, good ones that are the same for all rows."""

    def start(self, rows: int) -> dict[str, Array]:
        """The parameters that can be improved, with the values they have at first, for so many rows."""
        return {}

    def gradient(self, parameters: Parameters, plus: Array, minus: Array, cells: Sequence[Array]) -> dict[str, Array]:
        """How plus * (the line below) + minus * (the line above) grows with the parameters, at these operands' cells.

        Cells are gathered: (rows, taps, *out) for every operand.
        """
        return {}


def ends(boxes: Sequence[Interval], taps: Sequence[Taps]) -> tuple[Array, Array]:
    """The lower and the upper ends of all taps of all operands, one row; absent cells are -infinity."""
    both = []
    for side in ("lo", "hi"):
        parts = [t.gather(getattr(b, side)[None], -np.inf) for b, t in zip(boxes, taps, strict=True)]
        both.append(parts[0] if len(parts) == 1 else np.concatenate(parts, 1))
    return both[0], both[1]


@dataclass(frozen=True, eq=False)
class Kink(Relaxation):
    """f(x) = left*x below zero and right*x above: relu, leaky_relu, abs.

    Where left <= right, f is convex. f(x) - s*x is not negative for s from left to right, and zero at 0: the constant
    of a line below with such a slope is 0. The greatest f(x) - s*x is at an end, whatever s is.
    """

    lo: Array
    hi: Array
    left: float
    right: float

    @property
    def taps(self) -> tuple[Taps, ...]:  # type: ignore[override]
        return (Broadcast(self.lo.shape, self.lo.shape),)

    @property
    def first(self) -> Array:
        """The side of a slope that is best where no more is known: that of the longer part of the box."""
        return (self.hi > -self.lo).astype(float)

    @property
    def open(self) -> Array:
        """Where both sides can be."""
        return (self.lo < 0) & (self.hi > 0)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        lo, hi, left, right = self.lo[None], self.hi[None], self.left, self.right
        side = self.first[None] if parameters is None else parameters["side"]
        side = np.where(self.open, np.clip(side, 0, 1), (self.hi > 0) | (self.lo >= 0))
        tangent = np.clip(left + side * (right - left), min(left, right), max(left, right))
        at_lo, at_hi = (np.where(x < 0, left, right) * x for x in (lo, hi))
        width = hi - lo
        with np.errstate(all="ignore"):
            chord = np.where(self.open, (at_hi - at_lo) / width, np.where(self.lo >= 0, right, left))
        chord = np.where(np.isfinite(chord), chord, tangent)
        values = at_lo - chord * lo, at_hi - chord * hi
        sizes = np.abs(at_lo) + np.abs(chord * lo), np.abs(at_hi) + np.abs(chord * hi)
        zero = np.zeros_like(tangent)
        if left <= right:
            constant = np.maximum(*(up(v, m, 3) for v, m in zip(values, sizes, strict=True)))
            constant = np.where(self.open, constant, 0.0)
            return Lines((tangent[:, None],), (chord[:, None],), zero, constant)
        constant = np.minimum(*(down(v, m, 3) for v, m in zip(values, sizes, strict=True)))
        constant = np.where(self.open, constant, 0.0)
        return Lines((chord[:, None],), (tangent[:, None],), constant, zero)

    def start(self, rows: int) -> dict[str, Array]:
        return {"side": np.repeat(self.first[None], rows, 0)}

    def gradient(self, parameters: Parameters, plus: Array, minus: Array, cells: Sequence[Array]) -> dict[str, Array]:
        weight = plus if self.left <= self.right else minus
        return {"side": np.where(self.open, weight * cells[0][:, 0] * (self.right - self.left), 0.0)}


@dataclass(frozen=True, eq=False)
class Staircase(Relaxation):
    """floor(x): it is above x - 1 and no greater than x; or between its values at the ends, if these are nearer.

    All of these numbers are floats, so that no constant is rounded.
    """

    lo: Array
    hi: Array

    @property
    def taps(self) -> tuple[Taps, ...]:  # type: ignore[override]
        return (Broadcast(self.lo.shape, self.lo.shape),)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        least, most = np.floor(self.lo), np.floor(self.hi)
        centre = self.lo / 2 + self.hi / 2
        low, high = (centre - 1 > least).astype(float), (centre < most).astype(float)
        below, above = np.where(low > 0, -1.0, least), np.where(high > 0, 0.0, most)
        return Lines((low[None, None],), (high[None, None],), below[None], above[None])


@dataclass(frozen=True, eq=False)
class Greatest(Relaxation):
    """The greatest of some cells and of a constant, the floor, which is minus infinity if there is none.

    **Above**, for slopes s >= 0: whoever wins, the others are no less than their lower ends. If cell i wins, y - sum
    s*x <= (1-s_i)*x_i + s_i*l_i - sum s*l, which is greatest at an end of x_i; if the floor wins, y <= floor. So

        constant = max(floor, max l_i, max((1-s_i)*u_i + s_i*l_i)) - sum of s_j*l_j

    With s_i = max(0, u_i - t)/(u_i - l_i) for a level t between L = max(floor, max l_i) and the greatest u_i, it is the
    least of these constants over t that is the concave envelope (Anderson et al. 2020; tests/test_lines.py).

    **Below**, for weights >= 0 whose sum is at most 1: y >= sum weight*x + (1 - sum)*floor; without a floor their sum
    must be 1, exactly. Weights are multiples of 2**-30, whose sums are exact, and one cell gets what is left.
    """

    boxes: tuple[Interval, ...]
    taps: tuple[Taps, ...]
    floor: Interval | None = None
    """One number per output cell, or none."""

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the taps, one row."""
        return ends(self.boxes, self.taps)

    @cached_property
    def floors(self) -> tuple[Array, Array]:
        """The ends of the floor, as a tap."""
        shape = (1, 1, *self.taps[0].out)
        if self.floor is None:
            return np.full(shape, -np.inf), np.full(shape, -np.inf)
        return np.broadcast_to(self.floor.lo, shape), np.broadcast_to(self.floor.hi, shape)

    @cached_property
    def levels(self) -> tuple[Array, Array, Array]:
        """(L, the usual level, the greatest upper end), each (1, 1, *out)."""
        (lo, hi), (_, floor) = self.ends, self.floors
        least = np.maximum(lo.max(1, keepdims=True), floor)
        every = np.sort(np.concatenate([hi, floor], 1), 1)
        second = every[:, -2:-1] if every.shape[1] > 1 else every
        return least, np.maximum(least, second), every[:, -1:]

    def can_win(self) -> Array:
        """Which taps may be the greatest, one row."""
        (lo, hi), (least, _, _) = self.ends, self.levels
        found: Array = np.isfinite(lo) & ((hi > least) | (lo >= least))
        return found

    @cached_property
    def first(self) -> Array:
        """The usual weights of taps and floor: of one cell, that of the greatest lower end; ties share.

        Where the floor can win, it is the cell of the greatest centre, or the floor if that is above it.
        """
        (lo, hi), (floor, _) = self.ends, self.floors
        present = np.isfinite(lo)
        centre = np.where(present, lo + hi, -np.inf)
        score = np.concatenate([np.where(present, lo, -np.inf), floor], 1)
        if self.floor is not None:
            by_centre = np.concatenate([centre, 2 * floor], 1)
            score = np.where(floor > lo.max(1, keepdims=True), by_centre, score)
        winners = (score == score.max(1, keepdims=True)).astype(float)
        shared: Array = winners / winners.sum(1, keepdims=True)
        return shared

    def weights(self, wanted: Array) -> Array:
        """Weights of the taps that can be proven: multiples of a power of two, whose sum is 1 if there is no floor."""
        lo = self.ends[0]
        given = np.where(np.isfinite(lo), np.clip(np.nan_to_num(wanted[:, :-1]), 0, 1), 0.0)
        whole = given.sum(1, keepdims=True)
        if self.floor is None:
            whole = np.where(whole > 0, whole, 1.0)
            fine = np.floor(given / whole * (WEIGHT - 1)) / WEIGHT  # so that rounding cannot make more than 1 of them
            at = np.argmax(np.where(np.isfinite(lo), given, -1.0), 1, keepdims=True)
            rest = 1 - fine.sum(1, keepdims=True)
            assert (rest >= 0).all()
            np.put_along_axis(fine, at, np.take_along_axis(fine, at, 1) + rest, 1)
            return fine
        fine = np.floor(given / np.maximum(whole, 1.0) * WEIGHT) / WEIGHT
        more = fine.sum(1, keepdims=True) > 1
        return np.where(more, 0.0, fine)

    def slopes(self, level: Array) -> Array:
        """Slopes above for a level, as floats have them."""
        lo, hi = self.ends
        with np.errstate(all="ignore"):
            s = np.maximum(hi - level, 0) / (hi - lo)
        return np.where(np.isfinite(s) & (hi > lo), np.clip(s, 0, 1), 0.0)

    def intercept(self, s: Array) -> Array:
        """The constant above, for slopes s >= 0, rounded up."""
        assert (s >= 0).all()
        (lo, hi), (_, floor), n = self.ends, self.floors, s.shape[1]
        present = np.isfinite(lo)
        low, high = np.where(present, lo, 0.0), np.where(present, hi, 0.0)
        top = np.where(present, np.maximum((1 - s) * high + s * low, lo), -np.inf).max(1)
        top = np.maximum(top, floor[:, 0])
        beside = (s * low).sum(1)
        size = ((1 + s) * np.abs(high) + s * np.abs(low)).max(1) + np.abs(s * low).sum(1) + np.abs(top)
        return up(top - beside, size, n + 5)

    def lines(self, parameters: Parameters | None = None) -> Lines:
        least, usual, most = self.levels
        if parameters is None:
            level, wanted = usual, self.first
        else:
            level = np.clip(least + parameters["level"] * (most - least), least, most)
            wanted = parameters["weight"]
        s, w = self.slopes(level), self.weights(wanted)
        constant = np.zeros((w.shape[0], *self.taps[0].out))
        if self.floor is not None:
            rest, low = 1 - w.sum(1), self.floors[0][:, 0]
            low = np.where((rest == 0) | (low == 0), 0.0, low)  # nothing of what may be infinite
            constant = np.where(low == 0, 0.0, down(rest * low, np.abs(rest * low), 1))
        above = self.intercept(s)
        certain, sure = self.certain
        s, w = np.where(sure, certain, s), np.where(sure, certain, w)
        zero = np.zeros(())
        return Lines(
            self.split(w),
            self.split(s),
            np.where(sure[:, 0], zero, constant),
            np.where(sure[:, 0], zero, above),
        )

    @cached_property
    def certain(self) -> tuple[Array, Array]:
        """The taps that win whatever happens, and whether there is one: no rounding of a chord is needed to say so."""
        lo, hi = self.ends
        others = np.concatenate([hi, self.floors[1]], 1)
        found = (lo >= np.sort(others, 1)[:, -2:-1]) & (hi >= others.max(1, keepdims=True))
        found &= np.cumsum(found, 1) == 1
        return found, found.any(1, keepdims=True)

    @cached_property
    def counts(self) -> list[int]:
        """How many taps the operands have."""
        return [t.gather(b.lo[None], 0.0).shape[1] for b, t in zip(self.boxes, self.taps, strict=True)]

    def split(self, whole: Array) -> tuple[Array, ...]:
        """Taps of every operand apart."""
        return tuple(np.split(whole, np.cumsum(self.counts)[:-1], 1)) if len(self.taps) > 1 else (whole,)

    def start(self, rows: int) -> dict[str, Array]:
        least, usual, most = self.levels
        with np.errstate(all="ignore"):
            level = np.where(most > least, (usual - least) / (most - least), 0.0)
        return {"level": np.repeat(level, rows, 0), "weight": np.repeat(self.first, rows, 0)}

    def gradient(self, parameters: Parameters, plus: Array, minus: Array, cells: Sequence[Array]) -> dict[str, Array]:
        (lo, hi), (least, _, most) = self.ends, self.levels
        x = cells[0] if len(cells) == 1 else np.concatenate(cells, 1)
        x = np.where(np.isfinite(lo), x, 0.0)
        level = least + parameters["level"] * (most - least)
        with np.errstate(all="ignore"):
            share = np.where((hi > level) & (hi > lo), (x - lo) / (hi - lo), 0.0)
        slope = minus[:, None] * (1 - share.sum(1, keepdims=True)) * (most - least)
        floor = np.where(np.isfinite(self.floors[0]), self.floors[0], 0.0)
        floor = np.broadcast_to(floor, (x.shape[0], 1, *x.shape[2:]))
        both = np.concatenate([x, floor], 1)
        there = np.concatenate([np.isfinite(lo), np.isfinite(self.floors[0])], 1)
        return {"level": slope, "weight": np.where(there, plus[:, None] * both, -np.inf)}


@dataclass(frozen=True, eq=False)
class Mirrored(Relaxation):
    """-f(-x), where `other` are the lines of f over the box of -x: what is below is above."""

    other: Relaxation

    @property
    def taps(self) -> tuple[Taps, ...]:  # type: ignore[override]
        return self.other.taps

    def lines(self, parameters: Parameters | None = None) -> Lines:
        lines = self.other.lines(parameters)
        return Lines(lines.high, lines.low, -lines.high_constant, -lines.low_constant)

    def start(self, rows: int) -> dict[str, Array]:
        return self.other.start(rows)

    def gradient(self, parameters: Parameters, plus: Array, minus: Array, cells: Sequence[Array]) -> dict[str, Array]:
        return self.other.gradient(parameters, -minus, -plus, [-x for x in cells])
