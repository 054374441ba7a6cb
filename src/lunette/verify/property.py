"""What is asked of a network: conditions on its output, over boxes of its inputs.

A property is a list of cases that violate it. A case is a box (or none: whatever box is asked about) and conditions on
the output y, each `row . y <= threshold`, or `<` if it is strict; a point of the box at which all of them hold violates
the property. So "and" of two properties joins their lists, "or" pairs their cases, and "not" turns every condition.

| rule | says                                                                                               |
|------|----------------------------------------------------------------------------------------------------|
| PR1  | label and classes are integers, 0 <= label < classes, classes >= 2                                 |
| PR2  | a row is a finite number for every cell of the output, a threshold a finite number                 |
| PR3  | a relation is "<", "<=", ">" or ">="                                                               |
| PR4  | properties go together with properties, of the same number of output cells and of inputs           |
| PR5  | a property has at most MOST_CASES cases and MOST_CONDITIONS conditions                             |
| PR6  | "not" needs one box for all cases, or none: it says that every point of it violates the property   |
| PR7  | an output is one number for each cell that the property names                                      |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import Array, Interval
from lunette.window import integer

MOST_CASES: Final = 1 << 14
MOST_CONDITIONS: Final = 1 << 18

RELATIONS: Final = {"<=": (1, False), "<": (1, True), ">=": (-1, False), ">": (-1, True)}
"""The sign of a row for which the relation is <= or <, and whether it is strict."""


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


@dataclass(frozen=True)
class Property:
    """What is to hold for the output of a network, everywhere in a box; see the rules above.

    >>> import lunette as ln
    >>> p = ln.Property.robust(2, classes=4)
    >>> p.holds([0, 1, 3, 2]), p.holds([0, 3, 3, 2])
    (True, False)
    >>> q = p | ln.Property.linear([0, 1, 0, 0], ">=", 3)
    >>> q.holds([0, 3, 3, 2])
    True
    """

    cases: tuple[Case, ...]
    outputs: int
    """How many cells the output has."""
    inputs: int | None = None
    """How many cells the inputs have, if it brings boxes."""
    name: str = ""

    def __post_init__(self) -> None:
        conditions = sum(len(c.conditions) for c in self.cases)
        if len(self.cases) > MOST_CASES or conditions > MOST_CONDITIONS:
            got = f"{len(self.cases)} cases with {conditions} conditions"
            raise ArgumentError("PR5", f"at most {MOST_CASES} cases", got, "Ask in several properties.", who="Property")

    @staticmethod
    def robust(label: int, classes: int) -> Property:
        """y[label] > y[j] for all others."""
        at, many = integer("label", label), integer("classes", classes)
        if many < 2 or not 0 <= at < many:
            got = f"label={at}, classes={many}"
            raise ArgumentError("PR1", "0 <= label < classes", got, "Classes count from 0.", who="Property")
        others = [j for j in range(many) if j != at]
        one = Fraction(1)
        rows = [tuple(sorted([(at, one), (j, -one)])) for j in others]
        return Property(tuple(Case(None, (Condition(r, Fraction(0)),)) for r in rows), many, None, f"robust({at})")

    @staticmethod
    def linear(row: Any, relation: str, threshold: Any) -> Property:
        """Row . y < threshold, or <=, > or >=, everywhere."""
        if relation not in RELATIONS:
            got = f"relation={shown(relation)}"
            raise ArgumentError("PR3", 'a relation among "<", "<=", ">" and ">="', got, "As in y < 3.", who="Property")
        sign, strict = RELATIONS[relation]
        flat = np.asarray(row, object).reshape(-1)
        terms = tuple((c, sign * a) for c, v in enumerate(flat) if (a := _rational(v)))
        good = Condition(terms, sign * _rational(threshold), strict)
        return Property((Case(None, (~good,)),), len(flat))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Property:
        """The property in a VNNLIB 1.0 file, .vnnlib or .vnnlib.gz; it brings its boxes."""
        from lunette.verify.vnnlib import load  # which needs this class

        return load(path)

    @staticmethod
    def parse(text: str) -> Property:
        """The property that a text in VNNLIB 1.0 describes."""
        from lunette.verify.vnnlib import parse

        return parse(text)

    @property
    def boxes(self) -> list[Interval]:
        """The boxes that it brings, each once, in float64, rounded outward; inputs that are one number, to float32."""
        return [b.outward() for b in self.own_boxes]

    @property
    def own_boxes(self) -> list[Box]:
        """The boxes that it brings, each once, exact."""
        return list(dict.fromkeys(c.box for c in self.cases if c.box is not None))

    def holds(self, output: Any, inputs: Any = None) -> bool | None:
        """Whether it holds for an output, exactly; None where balls do not tell.

        Where it has boxes, `inputs` is the point, an array or several; without it, the point counts as in all of them.
        """
        y = output_cells(output)
        if len(y) != self.outputs:
            got = f"{len(y)} numbers"
            raise ArgumentError(
                "PR7", f"an output of {self.outputs} numbers", got, "One for each cell.", who="Property"
            )
        x = None if inputs is None else _flat(inputs)
        found: bool | None = True
        for c in self.cases:
            if x is not None and c.box is not None and not inside(x, c.box):
                continue
            met = c.met(y)
            if met:
                return False
            found = None if met is None else found
        return found

    def __and__(self, other: Property) -> Property:
        inputs = self._together(other)
        if inputs is NotImplemented:
            return NotImplemented
        return Property(_distinct((*self.cases, *other.cases)), self.outputs, inputs)

    def __or__(self, other: Property) -> Property:
        inputs = self._together(other)
        if inputs is NotImplemented:
            return NotImplemented
        _bounded(len(self.cases) * len(other.cases))
        cases = []
        for a, b in product(self.cases, other.cases):
            box = a.box if b.box is None or a.box == b.box else b.box if a.box is None else a.box & b.box
            if box is None or not box.empty:
                cases.append(Case(box, tuple(dict.fromkeys((*a.conditions, *b.conditions)))))
        return Property(_distinct(cases), self.outputs, inputs)

    def __invert__(self) -> Property:
        boxes = {c.box for c in self.cases}
        if len(boxes) > 1:
            hint = "Say which box is meant: take the cases apart."
            raise ArgumentError("PR6", "one box to deny a property over", f"{len(boxes)}", hint, who="Property")
        box = next(iter(boxes), None)
        _bounded(prod(len(c.conditions) for c in self.cases))
        every = product(*(tuple(~d for d in c.conditions) for c in self.cases))
        cases = _distinct(Case(box, tuple(dict.fromkeys(e))) for e in every)
        return Property(cases, self.outputs, self.inputs, f"not {self.name}" if self.name else "")

    def _together(self, other: Any) -> Any:
        if not isinstance(other, Property):
            return NotImplemented
        inputs = {self.inputs, other.inputs} - {None}
        if self.outputs != other.outputs or len(inputs) > 1:
            need = f"a property of {self.outputs} output cells" + (
                f" and {self.inputs} inputs" if len(inputs) > 1 else ""
            )
            got = f"one of {other.outputs}" + (f" and {other.inputs}" if len(inputs) > 1 else "")
            raise ArgumentError("PR4", need, got, "Both are to be about the same network.", who="Property")
        return next(iter(inputs), None)

    def __str__(self) -> str:
        lines = [" and ".join(map(str, c.conditions)) or "always" for c in self.cases[:20]]
        more = [f"and {len(self.cases) - 20} more"] if len(self.cases) > 20 else []
        return "\n".join(["never", *(f"  {line}" for line in (*lines, *more))])

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"<Property {name}{len(self.cases)} cases of {self.outputs} outputs, {len(self.own_boxes)} boxes>"


def _bounded(cases: int) -> None:
    if cases > MOST_CASES:
        raise ArgumentError(
            "PR5", f"at most {MOST_CASES} cases", f"{cases}", "Ask in several properties.", who="Property"
        )


def _distinct(cases: Iterable[Case]) -> tuple[Case, ...]:
    return tuple(dict.fromkeys(cases))


def _rational(value: Any) -> Fraction:
    """Rule PR2."""
    number = value.item() if isinstance(value, np.generic) else value
    try:
        if isinstance(number, bool):
            raise TypeError
        return Fraction(number)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        hint = "Ints, floats, Fractions, or decimals as strings."
        error: Callable[..., Exception] = ArgumentError if isinstance(number, float | str) else DTypeError
        raise error("PR2", "finite numbers", shown(value), hint, who="Property") from None


def output_cells(output: Any) -> list[Any]:
    """The cells of an output, floats as the rationals that they are."""
    array = output if isinstance(output, np.ndarray) else np.asarray(output, object)
    cells = array.reshape(-1).tolist()
    return [Fraction(v) if isinstance(v, float) else v for v in cells]


def _flat(inputs: Any) -> list[Any]:
    """The cells of one array or several."""
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    return [v for a in several for v in output_cells(a)]


def inside(x: Sequence[Any], box: Box) -> bool:
    """Whether a point is in a box, exactly; an axis that is one decimal means the nearest float, of either dtype."""
    for v, a, b in zip(x, box.lo, box.hi, strict=True):
        if a is not None and a == b:
            if v not in (a, Fraction(float(nearest(a, np.float32))), Fraction(float(nearest(a, np.float64)))):
                return False
        elif (a is not None and v < a) or (b is not None and v > b):
            return False
    return True
