"""Bounds of the nodes of a graph, by what is decided once for all runs.

For each node the operator is bound, the rule for its bounds is found, and what depends on constants alone (magnitudes
of weights, what their roundings add) is computed once and kept: no more than two arrays as large as each constant.
Operators that look at values before they compute, and whatever a rule refuses, go through the door, as every operator
by itself does, which says what is wrong in the operator's own words.

A run changes nothing but what is computed once, and locks nothing: threads share a plan, and forked processes use it.
Intermediate boxes are dropped as soon as nothing reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.arithmetic.interval import Boxes, prepared
from lunette.array import dense
from lunette.errors import LunetteError
from lunette.graph.graph import Graph, Node
from lunette.number import Array, Interval
from lunette.op import apply


@dataclass(frozen=True, slots=True)
class Step:
    """One operator."""

    at: int
    node: Node
    bounds: Callable[[Boxes], Interval] | None
    """None: the door."""
    last: tuple[int, ...]
    """The nodes that are read here for the last time."""
    nan: bool
    """A constant that it reads has one."""


class IntervalPlan:
    """What runs a graph on boxes and points."""

    def __init__(self, graph: Graph) -> None:
        nodes = graph.nodes
        self.outputs, self.inputs = graph.outputs, graph.input_ids()
        self.values: list[Any] = [n.value for n in nodes]
        self.boxes = [None if n.value is None else Interval.between(n.value, n.value) for n in nodes]
        self.owners = {owner for v in self.values if v is not None for owner in _owners(v)}
        needed = set(graph.outputs)
        last: dict[int, list[int]] = {}
        seen = set(graph.outputs)
        for at in range(len(nodes) - 1, -1, -1):
            if at in needed:
                read = {i for i in nodes[at].inputs if i is not None}
                needed |= read
                last[at] = [i for i in read - seen if nodes[i].kind is not None]
                seen |= read
        self.every = [_step(graph, at, last.get(at, ())) for at, n in enumerate(nodes) if n.kind is not None]
        self.steps = [s for s in self.every if s.at in needed]

    def run(self, given: Sequence[Array | Interval]) -> list[Interval]:
        """The boxes of the outputs, from boxes and points in the order of the inputs, in memory of their own."""
        known, taken = self._run(given, self.steps, keep=False), self._owners(given)
        return [_owned(Interval.of(known[i]), taken) for i in self.outputs]

    def all(self, given: Sequence[Array | Interval]) -> dict[int, Interval]:
        """The boxes of all nodes but integers, by their number; those of constants are the constants, not copies."""
        known, taken = self._run(given, self.every, keep=True), self._owners(given)
        return {
            at: box if box is not None else _owned(Interval.of(v), taken)
            for at, (v, box) in enumerate(zip(known, self.boxes, strict=True))
            if v.dtype.kind == "f"
        }

    def _owners(self, given: Sequence[Array | Interval]) -> set[int]:
        """Of the memory of inputs and constants."""
        return self.owners.union(*(_owners(v) for v in given))

    def _run(self, given: Sequence[Array | Interval], steps: Sequence[Step], *, keep: bool) -> list[Any]:
        known, boxes = self.values.copy(), self.boxes.copy()  # as operators take them, and as rules do
        points = set()
        for at, v in zip(self.inputs, given, strict=True):
            known[at] = v
            boxes[at] = v if isinstance(v, Interval) else Interval.between(v, v)
            if boxes[at] is not v:
                points.add(at)
        with np.errstate(all="ignore"):
            for step in steps:
                box, read = None, step.node.inputs
                if step.bounds is not None:
                    try:
                        box = step.bounds([None if i is None else boxes[i] for i in read])
                        if (step.nan or not points.isdisjoint(read)) and np.isnan(box.lo.max()):
                            box = None
                    except LunetteError:  # which the operator says better
                        box = None
                if box is None:
                    assert step.node.kind is not None
                    operands = [None if i is None else known[i] for i in read]
                    box = apply(step.node.kind, operands, "interval", *step.node.options)
                lo, hi = dense(box.lo), dense(box.hi)
                if lo is not box.lo or hi is not box.hi:
                    box = Interval.between(lo, lo if box.hi is box.lo else hi)
                known[step.at] = boxes[step.at] = box
                if not keep:
                    for i in step.last:
                        known[i] = boxes[i] = None
        return known


def _step(graph: Graph, at: int, last: Sequence[int]) -> Step:
    n = graph.nodes[at]
    assert n.kind is not None
    operands = [None if i is None else graph.nodes[i] for i in n.inputs]
    constants = [m.value for m in operands if m is not None and m.value is not None]
    bounds = None
    if 0 not in n.shape and all(a.flags.c_contiguous for a in constants):
        like = [None if m is None else np.broadcast_to(np.zeros((), m.dtype), m.shape) for m in operands]
        fixed = [p for p, m in enumerate(operands) if m is not None and m.value is not None]
        bounds = prepared(n.kind, like, n.options, fixed)
    nan = any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in constants)
    return Step(at, n, bounds, tuple(last), nan)


def _owners(v: Array | Interval) -> set[int]:
    """The arrays in whose memory the ends are, by their id."""
    owners = set()
    for end in (v.lo, v.hi) if isinstance(v, Interval) else (v,):
        while isinstance(end.base, np.ndarray):
            end = end.base
        owners.add(id(end))
    return owners


def _owned(box: Interval, taken: set[int]) -> Interval:
    """A box that may be written to: a copy if it shares memory with what has an owner, who it is from now on."""
    owners = _owners(box)
    if not owners.isdisjoint(taken) or not (box.lo.flags.writeable and box.hi.flags.writeable):
        lo = box.lo.copy()
        box = Interval.between(lo, lo if box.hi is box.lo else box.hi.copy())
    taken |= owners
    return box
