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
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import Interval
from lunette.verify.case import MOST_CASES, MOST_CONDITIONS, Box, Case, Condition, inside, output_cells
from lunette.verify.vnnlib import MOST_DIGITS, MOST_EXPONENT, exponent_of, parse, text_of
from lunette.window import integer

RELATIONS: Final = {"<=": (1, False), "<": (1, True), ">=": (-1, False), ">": (-1, True)}
"""The sign of a row for which the relation is <= or <, and whether it is strict."""


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
        if not len(flat):
            raise ArgumentError(
                "PR2", "a number for every cell of the output", "none", "As in [1, -1].", who="Property"
            )
        terms = tuple((c, sign * a) for c, v in enumerate(flat) if (a := _rational(v)))
        good = Condition(terms, sign * _rational(threshold), strict)
        return Property((Case(None, (~good,)),), len(flat))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Property:
        """The property in a VNNLIB 1.0 file, .vnnlib or .vnnlib.gz; it brings its boxes."""
        where = Path(path)
        own = Property.parse(text_of(where))
        return Property(own.cases, own.outputs, own.inputs, where.name.removesuffix(".gz").removesuffix(".vnnlib"))

    @staticmethod
    def parse(text: str) -> Property:
        """The property that a text in VNNLIB 1.0 describes."""
        cases, sizes = parse(text)
        return Property(cases, sizes["Y"], sizes["X"])

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
        word = str(number) if isinstance(number, str | Decimal) else ""
        if len(word) > MOST_DIGITS or abs(exponent_of(word)) > MOST_EXPONENT:
            raise ValueError
        return Fraction(number)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        hint = f"Ints, floats, Fractions, or decimals as strings, with exponents up to {MOST_EXPONENT}."
        if isinstance(number, float | str | Decimal):
            raise ArgumentError("PR2", "finite numbers", shown(value), hint, who="Property") from None
        raise DTypeError("PR2", "finite numbers", shown(value), hint, who="Property") from None


def _flat(inputs: Any) -> list[Any]:
    """The cells of one array or several."""
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    return [v for a in several for v in output_cells(a)]
