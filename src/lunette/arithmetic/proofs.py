"""When values with exp, log and roots are rational: what balls of any precision leave open."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lunette.arithmetic.rounded import ROUNDED
from lunette.number import Array
from lunette.ops.lp_pool import LpPool
from lunette.ops.pool import Pool
from lunette.ops.smooth_max_pool import SmoothMaxPool
from lunette.window import Shape


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is known of one window: values that are rational, and tests whether a value is a given rational."""

    cells: Array

    absent: int = 0
    """How many cells it has beside them that count."""

    def value(self) -> Fraction | None:
        """The value of the operator."""
        return None

    def is_value(self, q: Fraction) -> bool:
        return False

    def push(self, t: Array) -> Fraction | None:
        """The derivative in the direction of t."""
        return None

    def is_push(self, q: Fraction, t: Array) -> bool:
        return False

    def weight(self, at: Shape) -> Fraction | None:
        """The derivative in one cell."""
        t = np.zeros(self.cells.shape)
        t[(0, *at)] = 1
        return self.push(t)


@dataclass(frozen=True, slots=True)
class Exponentials(Proofs):
    """Smooth max. Exponentials of different rationals are linearly independent over the rationals (Lindemann).

    So exp(beta*y) = sum of exp(beta*x) only for a window of one cell, and a quotient of such sums is rational only if
    the sums are proportional, group of equal cells by group.
    """

    def value(self) -> Fraction | None:
        if self.cells.size + self.absent != 1:
            return None
        return Fraction(float(self.cells.ravel()[0])) if self.cells.size else Fraction(0)

    def push(self, t: Array) -> Fraction | None:
        groups: dict[float, list[Fraction]] = {0.0: [Fraction(self.absent), Fraction(0)]} if self.absent else {}
        for x, slope in zip(self.cells.ravel().tolist(), t.ravel().tolist(), strict=True):
            group = groups.setdefault(x + 0.0, [Fraction(0), Fraction(0)])
            group[0] += 1
            group[1] += Fraction(slope)
        ratios = {total / count for count, total in groups.values()}
        return ratios.pop() if len(ratios) == 1 else None


@dataclass(frozen=True, slots=True)
class Powers(Proofs):
    """Lp with p = m / 2^k in lowest terms: a power of a rational to compare with, where that is small enough."""

    p: Fraction = Fraction(2)

    def value(self) -> Fraction | None:
        sizes = [s for s in map(abs, self.cells.ravel().tolist()) if s]
        if len(sizes) > 1:
            return None
        return Fraction(sizes[0]) if sizes else Fraction(0)

    def is_value(self, q: Fraction) -> bool:
        if self.p.denominator == 1:
            return q >= 0 and q**self.p.numerator == self._sum(self.p.numerator)
        root = self._common_root()
        return root is not None and q == root[0] * root[1] ** self.p.denominator

    def push(self, t: Array) -> Fraction | None:
        live = [(x, s) for x, s in self._pairs(t) if x]
        groups: dict[float, Fraction] = {}  # cells of one size have one weight, but for the sign
        for x, s in live:
            groups[abs(x)] = groups.get(abs(x), Fraction(0)) + Fraction(s) * (1 if x > 0 else -1)
        if not any(groups.values()):
            return Fraction(0)
        return groups[abs(live[0][0])] if len(live) == 1 else None

    def is_push(self, q: Fraction, t: Array) -> bool:
        if self.p.denominator == 1:
            p = self.p.numerator
            a = sum((self._slope(x, p - 1) * Fraction(s) for x, s in self._pairs(t)), Fraction(0))
            return (q > 0) == (a > 0) and abs(q) ** p * self._sum(p) ** (p - 1) == abs(a) ** p
        root = self._common_root()
        if root is None:
            return False
        a = sum((self._slope(x, 0) * Fraction(s) for x, s in self._pairs(t)), Fraction(0))
        return bool(q * root[1] ** (self.p.numerator - self.p.denominator) == a)

    def _pairs(self, t: Array) -> Iterator[tuple[float, float]]:
        return zip(self.cells.ravel().tolist(), t.ravel().tolist(), strict=True)

    def _sum(self, p: int) -> Fraction:
        return sum((abs(Fraction(x)) ** p for x in self.cells.ravel().tolist()), Fraction(0))

    @staticmethod
    def _slope(x: float, p: int) -> Fraction:
        return abs(Fraction(x)) ** p * (1 if x > 0 else -1) if x else Fraction(0)

    def _common_root(self) -> tuple[Fraction, int] | None:
        """(a, r) if all cells but zeros are +-a and there are r^m of them.

        n equal cells have the norm a * n^(2^k/m), which is rational only if n is such a power, since m is odd.
        """
        sizes = [Fraction(s) for s in map(abs, self.cells.ravel().tolist()) if s]
        if len(set(sizes)) != 1 or self.p.numerator > len(sizes).bit_length():
            return None
        r = round(len(sizes) ** (1 / self.p.numerator))
        return (sizes[0], r) if r**self.p.numerator == len(sizes) else None


@ROUNDED.rule
def proofs_of(op: Pool, cells: Array, size: int) -> Proofs:
    """What is known of a window of this size, padding counted."""
    return Proofs(cells)


@proofs_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, cells: Array, size: int) -> Proofs:
    return Exponentials(cells, size - cells.size if op.counted else 0)


@proofs_of.register(LpPool)
def _(op: LpPool, cells: Array, size: int) -> Proofs:
    return Powers(cells, p=Fraction(op.p)) if math.isfinite(op.p) else Proofs(cells)
