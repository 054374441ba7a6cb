"""A property of a graph over a box, as claims: in this box, these conditions are never met together.

| rule | says                                                                                                    |
|------|---------------------------------------------------------------------------------------------------------|
| PV1  | a property has as many output cells as the graph, and as many input cells, if it brings boxes            |
| PV2  | there is a box: one for each input, or those of the property, or both, and then what they have in common |
| PV3  | every input has finite ends; inputs are floats                                                           |
| PV4  | coefficients of conditions are float64 numbers, if need be after multiplying by their denominators       |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm, prod
from typing import Any

import numpy as np

from lunette.errors import ArgumentError, ShapeError
from lunette.graph.graph import Graph
from lunette.number import Array, Interval
from lunette.verify.property import Box, Case, Condition, Property


@dataclass(frozen=True, eq=False)
class Room:
    """One box, and the cases that are to be refuted in it."""

    graph: Graph
    box: Box
    cases: tuple[Case, ...]

    @cached_property
    def boxes(self) -> list[Interval]:
        """One for each input, in float64, rounded outward."""
        whole = self.box.outward(self.graph.inputs[0].dtype)
        ends = zip(_apart(self.graph, whole.lo), _apart(self.graph, whole.hi), strict=True)
        return [Interval.between(lo, hi) for lo, hi in ends]

    @cached_property
    def floats(self) -> tuple[list[Array], list[Array]] | None:
        """The least and the greatest floats of each input, in the graph's dtype; None if there are none in the box."""
        ends = self.box.inward(self.graph.inputs[0].dtype)
        return None if ends is None else (_apart(self.graph, ends[0]), _apart(self.graph, ends[1]))

    @cached_property
    def rows(self) -> Array:
        """The conditions of all cases, one row after the other."""
        cells = prod(self.graph.nodes[self.graph.outputs[0]].shape)
        found = [d.row(cells) for c in self.cases for d in c.conditions]
        return np.array(found).reshape(-1, cells)

    @cached_property
    def thresholds(self) -> Array:
        """Those of the rows, rounded up: a row that is greater than this, is greater."""
        every = [d.threshold for c in self.cases for d in c.conditions]
        return np.array([-float(rounded_down_double(-t)) for t in every])

    @cached_property
    def places(self) -> list[range]:
        """The rows of every case."""
        found, at = [], 0
        for c in self.cases:
            found.append(range(at, at + len(c.conditions)))
            at += len(c.conditions)
        return found


def rounded_down_double(value: Fraction) -> float:
    """The greatest float64 that is not above a rational; threshold comparisons stay one-sided."""
    y = float(value)
    return y if Fraction(y) <= value else float(np.nextafter(y, -np.inf))


def _apart(graph: Graph, flat: Array) -> list[Array]:
    """The cells of every input."""
    sizes = [prod(n.shape) for n in graph.inputs]
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return [p.reshape(n.shape) for p, n in zip(parts, graph.inputs, strict=True)]


def rooms_of(graph: Graph, box: Any, property: Property) -> list[Room]:
    """Everything that is to be refuted, box by box. Rules PV1 to PV4."""
    inputs = graph.inputs
    cells, outputs = sum(prod(n.shape) for n in inputs), prod(graph.nodes[graph.outputs[0]].shape)
    if property.outputs != outputs or property.inputs not in (None, cells):
        need = f"a property of a network with {outputs} output cells and {cells} input cells"
        got = f"one of {property.outputs}" + (f" and {property.inputs}" if property.inputs is not None else "")
        raise ArgumentError("PV1", need, got, "Is it one of this network?")
    if any(n.dtype.kind != "f" for n in inputs) or len({n.dtype for n in inputs}) != 1:
        names = ", ".join(f"{n.name} : {n.short}" for n in inputs) or "none"
        raise ArgumentError("PV3", "inputs of one dtype of floats", names, "Make the others constants of the graph.")
    given = None if box is None else Box.of(*_intervals(graph, box))
    found: dict[Box, list[Case]] = {}
    for c in property.cases:
        own = c.box if given is None or c.box == given else given if c.box is None else c.box & given
        if own is None:
            raise ArgumentError("PV2", "a box, since the property brings none", "None", "Pass ln.Interval(lo, hi).")
        if not own.empty:
            found.setdefault(own, []).append(Case(own, tuple(map(_whole, c.conditions))))
    for b in found:
        if None in b.lo or None in b.hi:
            at = next(k for k, e in enumerate(zip(b.lo, b.hi, strict=True)) if None in e)
            raise ArgumentError("PV3", "finite ends", f"input cell {at} without one", "Bound every input.")
    return [Room(graph, b, tuple(dict.fromkeys(cases))) for b, cases in found.items()]


def _intervals(graph: Graph, box: Any) -> list[Interval]:
    """Rule PV2: boxes as they are given, of the inputs' shapes or flat."""
    inputs = graph.inputs
    several: Sequence[Any] = box if isinstance(box, tuple | list) else (box,)
    if len(several) == 1 and len(inputs) > 1 and np.size(_ends(several[0])[0]) == sum(prod(n.shape) for n in inputs):
        lo, hi = (_apart(graph, np.asarray(e).reshape(-1)) for e in _ends(several[0]))
        several = [Interval.between(a, b) for a, b in zip(lo, hi, strict=True)]
    if len(several) != len(inputs):
        names = ", ".join(f"{n.name} : {n.short}" for n in inputs)
        raise ArgumentError("PV2", f"one box for each of ({names})", f"{len(several)}", "A plain array is a point.")
    found = []
    for n, b in zip(inputs, several, strict=True):
        ends = [np.asarray(e) for e in _ends(b)]
        if any(e.size != prod(n.shape) or (e.ndim != 1 and e.shape != n.shape) for e in ends):
            got = f"shape {ends[0].shape}"
            raise ShapeError(
                "PV2", f"a box of {n.name} of shape {n.shape}, or flat", got, "Shapes are part of a graph."
            )
        if any(e.dtype.kind not in "fiu" or np.isnan(e.astype(np.float64)).any() for e in ends):
            raise ArgumentError(
                "PV2", f"floats as ends of {n.name}, none of them NaN", str(ends[0].dtype), "See ln.Interval."
            )
        found.append(Interval.between(*(e.astype(np.float64).reshape(n.shape) for e in ends)))
    return found


def _ends(b: Any) -> tuple[Any, Any]:
    return (b.lo, b.hi) if isinstance(b, Interval) else (b, b)


def _whole(c: Condition) -> Condition:
    """Rule PV4: the same condition with coefficients that floats have."""
    if all(_is_float(a) for _, a in c.terms):
        return c
    by = lcm(*(a.denominator for _, a in c.terms))
    scaled = Condition(tuple((k, a * by) for k, a in c.terms), c.threshold * by, c.strict)
    if not all(_is_float(a) for _, a in scaled.terms):
        raise ArgumentError("PV4", "coefficients that float64 has", str(c), "Round them, or use fewer digits.")
    return scaled


def _is_float(a: Fraction) -> bool:
    try:
        return Fraction(float(a)) == a
    except OverflowError:
        return False
