"""Maxima: who wins, what is selected, and who carries the derivative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from lunette.errors import ArgumentError, DTypeError
from lunette.number import flint
from lunette.number.dual import Dual
from lunette.number.interval import Interval, is_enclosure
from lunette.number.kinds import Number, Ties, divide, is_infinite, is_nan, primal, total


@dataclass(frozen=True, slots=True)
class Winners:
    """The cells that carry the derivative of a maximum: each with the same weight, `unit` divided by `divisor`."""

    places: tuple[int, ...]
    divisor: int = 1
    unit: Number = None

    def weigh(self, v: Number) -> Number:
        """The share of v that one winner carries."""
        if self.unit is not None:
            return v * self.unit
        return v if self.divisor == 1 else divide(v, self.divisor)


def winners(cells: Sequence[Number], ties: Ties) -> Winners:
    """Who wins a maximum. Among NaN cells, and among equal cells, the first comes first."""
    values = [primal(c) for c in cells]
    if any(is_enclosure(v) for v in values):
        possible = tuple(p for p, v in enumerate(values) if not any(less(v, u) for u in values))
        return Winners(possible) if len(possible) == 1 else Winners(possible, unit=_unit(values))
    places = [p for p, v in enumerate(values) if is_nan(v)]
    if not places:
        best = 0
        for p, v in enumerate(values):
            if less(values[best], v):
                best = p
        places = [p for p, v in enumerate(values) if v == values[best]]
    if ties == "first":
        return Winners((places[0],))
    return Winners(tuple(places), len(places) if ties == "split" else 1)


def select(cells: Sequence[Number], ties: Ties = "first") -> Number:
    """The maximum. On dual numbers its slope is what the winners carry; on enclosures it encloses every maximum."""
    if any(isinstance(c, Dual) for c in cells):
        duals = [Dual.of(c) for c in cells]
        who = winners(duals, ties)
        return Dual(select([c.value for c in duals], ties), total([who.weigh(duals[p].slope) for p in who.places]))
    if any(isinstance(c, flint.arb) for c in cells):
        return reduce(lambda a, b: flint.arb(a).max(b), cells)
    if any(isinstance(c, Interval) for c in cells):
        ends = [Interval.of(c) for c in cells]
        return Interval(max(e.lo for e in ends), max(e.hi for e in ends))
    return cells[winners(cells, "first").places[0]]


def anchor(cells: Sequence[Number], *, greatest: bool) -> Number:
    """A plain number at or near the greatest (or least) cell, to shift or scale a window by.

    It needs no derivative and no enclosure: formulas that use it do not depend on its value.
    """
    values = [primal(c) if greatest else -primal(c) for c in cells]
    best = select(values)
    if isinstance(best, flint.arb):
        best = best.mid()
    if isinstance(best, Interval):
        best = next((e for e in (best.hi, best.lo) if not is_infinite(e)), 0.0)
    return best if greatest else -best


def place(cells: Sequence[Number]) -> int:
    """The place of the first winner."""
    who = winners(cells, "first")
    if len(who.places) > 1:
        raise ArgumentError(
            "N5",
            "a decided winner for its index",
            f"{len(who.places)} enclosures that overlap",
            "Drop return_indices, or narrow the enclosures.",
        )
    return who.places[0]


_COMPLEX: Final = (complex, np.complexfloating)


def less(a: Number, b: Number) -> bool:
    """Certainly less. Rule N2."""
    try:
        if isinstance(a, _COMPLEX) or isinstance(b, _COMPLEX):  # numpy's have an order, that of their real parts first
            raise TypeError
        return bool(a < b)
    except TypeError as error:
        raise DTypeError(
            "N2",
            "numbers with an order",
            f"cells of type {' and '.join(sorted({type(a).__name__, type(b).__name__}))}",
            "Complex numbers and symbols serve the linear operators: conv, conv_transpose and the averages.",
        ) from error


def _unit(values: Sequence[Number]) -> Number:
    return Interval(0, 1) if any(isinstance(v, Interval) for v in values) else flint.arb(0.5, 0.5)


def magnitude(a: Number) -> Number:
    """The absolute value, of ordered numbers only."""
    less(0, primal(a))
    return abs(a)
