"""Bounds of the nodes of a graph, by what is decided once for all runs.

For each node the operator is bound and the rule for its bounds is found. What depends on constants alone is computed
once and kept: nodes of constants, if they have at most FOLD_LIMIT cells, and of weights their magnitudes and what their
roundings add, which is no more than two arrays as large as the weights. Operators that look at values before they
compute, and whatever a rule refuses, go through the door, as every operator by itself does, which says what is wrong in
the operator's own words.

A run changes nothing but what is computed once, and locks nothing: threads share a plan, and forked processes use it.
Intermediate boxes are dropped as soon as nothing reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.arithmetic.interval import Boxes, prepared
from lunette.array import dense
from lunette.errors import LunetteError
from lunette.graph.nodes import Node, Nodes
from lunette.graph.simplify import FOLD_LIMIT
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

    def __init__(self, graph: Nodes) -> None:
        nodes = graph.nodes
        self.outputs, self.inputs = graph.outputs, graph.input_ids()
        self.known: list[Any] = [n.value for n in nodes]
        """What no input changes, as operators take it: constants, and boxes of nodes of constants."""
        self.constants = {at: Interval.between(n.value, n.value) for at, n in enumerate(nodes) if n.value is not None}
        self.boxes = [self.constants.get(at) for at in range(len(nodes))]
        self.every: list[Step] = []
        needed, last = _lives(graph)
        for at, n in enumerate(nodes):
            if n.kind is not None and not self._fold(at, n):
                self.every.append(self._step(nodes, at, last.get(at, ())))
        self.steps = [s for s in self.every if s.at in needed]
        self.owners = {owner for v in self.known if v is not None for owner in _owners(v)}

    def _fold(self, at: int, n: Node) -> bool:
        """Compute a node of constants; what is refused is so in every run that needs it."""
        operands = [None if i is None else self.known[i] for i in n.inputs]
        if any(i is not None and v is None for i, v in zip(n.inputs, operands, strict=True)):
            return False
        if prod(n.shape) > FOLD_LIMIT:
            return False
        try:
            self.known[at] = self.boxes[at] = _through_the_door(n, operands)
        except LunetteError:
            return False
        return True

    def _step(self, nodes: Sequence[Node], at: int, last: Sequence[int]) -> Step:
        n, bounds = nodes[at], None
        assert n.kind is not None
        known = [(p, box) for p, i in enumerate(n.inputs) if i is not None and (box := self.boxes[i]) is not None]
        if 0 not in n.shape and all(box.lo.flags.c_contiguous for _, box in known):
            like = [
                None if i is None else np.broadcast_to(np.zeros((), nodes[i].dtype), nodes[i].shape) for i in n.inputs
            ]
            bounds = prepared(n.kind, like, n.options, [p for p, box in known if box.lo is box.hi])
        nan = any(box.dtype.kind == "f" and bool(np.isnan(box.lo).any()) for _, box in known)
        return Step(at, n, bounds, tuple(last), nan)

    def run(self, given: Sequence[Array | Interval]) -> list[Interval]:
        """The boxes of the outputs, from boxes and points in the order of the inputs, in memory of their own."""
        known, taken = self._run(given, self.steps, keep=False), self._owners(given)
        return [_owned(Interval.of(known[i]), taken) for i in self.outputs]

    def all(self, given: Sequence[Array | Interval]) -> dict[int, Interval]:
        """The boxes of all nodes but integers, by their number; those of constants are the constants, not copies."""
        known, taken = self._run(given, self.every, keep=True), self._owners(given)
        return {
            at: self.constants[at] if at in self.constants else _owned(Interval.of(v), taken)
            for at, v in enumerate(known)
            if v.dtype.kind == "f"
        }

    def _owners(self, given: Sequence[Array | Interval]) -> set[int]:
        """Of the memory of inputs and constants."""
        return self.owners.union(*(_owners(v) for v in given))

    def _run(self, given: Sequence[Array | Interval], steps: Sequence[Step], *, keep: bool) -> list[Any]:
        known, boxes = self.known.copy(), self.boxes.copy()  # as operators take them, and as rules do
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
                        box = _dense(step.bounds([None if i is None else boxes[i] for i in read]))
                        if (step.nan or not points.isdisjoint(read)) and np.isnan(box.lo.max()):
                            box = None
                    except LunetteError:  # which the operator says better
                        box = None
                if box is None:
                    box = _through_the_door(step.node, [None if i is None else known[i] for i in read])
                known[step.at] = boxes[step.at] = box
                if not keep:
                    for i in step.last:
                        known[i] = boxes[i] = None
        return known


def _lives(graph: Nodes) -> tuple[set[int], dict[int, list[int]]]:
    """The nodes that the outputs need; and for each of them, those that it is the last to read."""
    needed, read, last = set(graph.outputs), set(graph.outputs), {}
    for at in range(len(graph.nodes) - 1, -1, -1):
        if at in needed:
            own = {i for i in graph.nodes[at].inputs if i is not None}
            last[at] = sorted(own - read)
            needed |= own
            read |= own
    return needed, last


def _through_the_door(n: Node, operands: Sequence[Any]) -> Interval:
    """A node as an operator by itself, in arrays that kernels read."""
    assert n.kind is not None
    return _dense(apply(n.kind, operands, "interval", *n.options))


def _dense(box: Interval) -> Interval:
    lo, hi = dense(box.lo), dense(box.hi)
    if lo is box.lo and hi is box.hi:
        return box
    return Interval.between(lo, lo if box.hi is box.lo else hi)


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
