"""Conditions on outputs, boxes of inputs, and cases of both: exact numbers, and how floats stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from lunette.number import Array, Interval

MOST_CASES: Final = 1 << 14
MOST_CONDITIONS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Condition:
    """The sum of coefficient * y[cell] is <= threshold, or < if strict; exact."""

    terms: tuple[tuple[int, Fraction], ...]
    """(cell, coefficient), by ascending cell; no coefficient is zero."""
    threshold: Fraction
    strict: bool = False

    def __invert__(self) -> Condition:
        return Condition(tuple((c, -a) for c, a in self.terms), -self.threshold, not self.strict)

    def __str__(self) -> str:
        left = " ".join(
            f"{'-' if a < 0 else '+'} {'' if abs(a) == 1 else f'{_number(abs(a))} '}y[{c}]" for c, a in self.terms
        )
        return f"{left.removeprefix('+ ') or '0'} {'<' if self.strict else '<='} {_number(self.threshold)}"

    def value(self, y: Sequence[Any]) -> Any:
        """The left side less the threshold, on numbers of the kind that y has: exact, or balls."""
        total: Any = -_as(self.threshold, y[self.terms[0][0]]) if self.terms else -self.threshold
        for cell, a in self.terms:
            total = total + y[cell] * _as(a, y[cell])
        return total

    def holds(self, y: Sequence[Any]) -> bool | None:
        """Whether an output satisfies it; None where balls do not tell."""
        v = self.value(y)
        if (v < 0) or (not self.strict and v <= 0):
            return True
        return False if (v > 0) or (self.strict and v >= 0) else None

    def row(self, cells: int) -> Array:
        """The coefficients of all cells in float64, rounded to nearest."""
        y = np.zeros(cells)
        for c, a in self.terms:
            y[c] = float(a)
        return y


def _factor(value: Fraction) -> str:
    return "" if value == 1 else f"{_number(value)} "


def _number(value: Fraction) -> str:
    """Short where that is exact."""
    short = repr(float(value))
    return short.removesuffix(".0") if Fraction(short) == value else str(value)


def _as(value: Fraction, like: Any) -> Any:
    """A rational as a number that goes together with another: exactly, of Fractions, ints and flint's."""
    if isinstance(like, Fraction | int):
        return value
    import flint  # not everybody has balls

    q = flint.fmpq(value.numerator, value.denominator)
    return q if isinstance(like, flint.fmpq) else flint.arb(q)


@dataclass(frozen=True, eq=False)
class Box:
    """Exact ends of every input cell; None is no end."""

    lo: tuple[Fraction | None, ...]
    hi: tuple[Fraction | None, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and (self is other or (self.lo == other.lo and self.hi == other.hi))

    @cached_property
    def _hash(self) -> int:
        return hash((self.lo, self.hi))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(*boxes: Interval) -> Box:
        """The ends of intervals, one after the other."""
        lo, hi = (tuple(_end(v) for b in boxes for v in np.ravel(getattr(b, side)).tolist()) for side in ("lo", "hi"))
        return Box(lo, hi)

    @cached_property
    def empty(self) -> bool:
        """Whether it has no points."""
        return any(a is not None and b is not None and a > b for a, b in zip(self.lo, self.hi, strict=True))

    def __and__(self, other: Box) -> Box:
        lo = tuple(b if a is None else a if b is None else max(a, b) for a, b in zip(self.lo, other.lo, strict=True))
        hi = tuple(b if a is None else a if b is None else min(a, b) for a, b in zip(self.hi, other.hi, strict=True))
        return Box(lo, hi)

    def outward(self, dtype: Any = np.float32) -> Interval:
        """Ends in float64 that hold it. An axis whose ends are one number is the nearest float of `dtype`."""
        lo, hi = np.empty(len(self.lo)), np.empty(len(self.hi))
        for k, (a, b) in enumerate(zip(self.lo, self.hi, strict=True)):
            if a is not None and a == b:
                lo[k] = hi[k] = float(nearest(a, dtype))
            else:
                lo[k] = -np.inf if a is None else rounded_down(a, np.float64)
                hi[k] = np.inf if b is None else -rounded_down(-b, np.float64)
        return Interval.between(lo, hi)

    def inward(self, dtype: Any = np.float32) -> tuple[Array, Array] | None:
        """The least and the greatest floats of `dtype` inside, axis by axis; None if an axis has no float."""
        kind = np.dtype(dtype)
        lo, hi = np.empty(len(self.lo), kind), np.empty(len(self.hi), kind)
        for k, (a, b) in enumerate(zip(self.lo, self.hi, strict=True)):
            if a is not None and a == b:
                lo[k] = hi[k] = nearest(a, kind)
            else:
                lo[k] = -np.inf if a is None else -rounded_down(-a, kind)
                hi[k] = np.inf if b is None else rounded_down(b, kind)
        return (lo, hi) if (lo <= hi).all() else None

    def moved(self, dtype: Any) -> str:
        """What became of ends that are no floats, in words; empty if all are."""
        single = other = 0
        for a, b in zip(self.lo, self.hi, strict=True):
            if a is not None and a == b:
                single += Fraction(float(nearest(a, dtype))) != a
            else:
                other += sum(e is not None and Fraction(float(nearest(e, np.float64))) != e for e in (a, b))
        words = []
        if single:
            words.append(f"{single} inputs that are one decimal are the nearest {np.dtype(dtype)}")
        if other:
            words.append(f"{other} decimal ends are rounded outward for proofs and inward for counterexamples")
        return "; ".join(words)


def _end(v: float) -> Fraction | None:
    return None if np.isinf(v) else Fraction(v)


def nearest(value: Fraction, dtype: Any) -> Any:
    """The float nearest to a rational; ties to even."""
    kind = np.dtype(dtype).type
    double = float(value)
    first = kind(double)
    if kind is np.float64 or not np.isfinite(first) or Fraction(float(first)) == value:
        return first
    other = np.nextafter(first, kind(np.inf if Fraction(float(first)) < value else -np.inf))
    if not np.isfinite(other):
        return first
    apart = [abs(Fraction(float(v)) - value) for v in (first, other)]
    if apart[0] == apart[1]:  # the rounding of double was the rounding of a tie: the even one
        bits = np.array([first, other]).view(f"u{first.itemsize}")
        return first if bits[0] % 2 == 0 else other
    return first if apart[0] < apart[1] else other


def rounded_down(value: Fraction, dtype: Any) -> Any:
    """The greatest float that is not above a rational."""
    kind = np.dtype(dtype).type
    y = nearest(value, dtype)
    return y if Fraction(float(y)) <= value else np.nextafter(y, kind(-np.inf))


@dataclass(frozen=True, slots=True)
class Case:
    """A way to violate a property: a point of the box at which all conditions hold."""

    box: Box | None
    conditions: tuple[Condition, ...]

    def met(self, y: Sequence[Any]) -> bool | None:
        """Whether an output satisfies all conditions; None where balls do not tell."""
        found: bool | None = True
        for c in self.conditions:
            one = c.holds(y)
            if one is False:
                return False
            found = None if one is None else found
        return found


def output_cells(output: Any) -> list[Any]:
    """The cells of an output, floats as the rationals that they are."""
    array = output if isinstance(output, np.ndarray) else np.asarray(output, object)
    cells = array.reshape(-1).tolist()
    return [Fraction(v) if isinstance(v, float) else v for v in cells]


def inside(x: Sequence[Any], box: Box) -> bool:
    """Whether a point is in a box, exactly; an axis that is one decimal means the nearest float, of either dtype."""
    for v, a, b in zip(x, box.lo, box.hi, strict=True):
        if a is not None and a == b:
            if v not in (a, Fraction(float(nearest(a, np.float32))), Fraction(float(nearest(a, np.float64)))):
                return False
        elif (a is not None and v < a) or (b is not None and v > b):
            return False
    return True
