"""From the inputs of a network on: a proven box for every node, and its step for walks back.

Every node gets a box: its operator's interval at the boxes of what it reads. Before an operator that is not linear is
replaced by lines, the boxes of what it reads are tightened, cell by cell, wherever that can make the lines better: a
walk back (lunette.relax.dual) for the cell and one for its negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from lunette.graph.graph import Graph
from lunette.graph.nodes import Node
from lunette.lines import Greatest, Kink, Relaxation
from lunette.number import Array, Interval
from lunette.op import apply
from lunette.ops.glue import Layout
from lunette.ops.max_pool import MaxPool
from lunette.ops.unary import Neg, Relu
from lunette.relax.dual import Dual
from lunette.relax.floats import Floats, widened
from lunette.relax.optimise import improve
from lunette.relax.patch import Patch
from lunette.relax.step import Enclosed, Linear, Relaxed, Step

MOST_ROWS: Final = 1 << 9  # rows at once: more are no faster


class Boxes:
    """A graph with boxes at its inputs, and what follows for all of its nodes."""

    improving: int = 0
    """Steps in which lines are improved for each of the cells that are tightened."""

    def __init__(
        self,
        graph: Graph,
        boxes: Sequence[Interval],
        memory: int,
        progress: Callable[[str, int, int], None],
        floats: Floats | None = None,
    ) -> None:
        self.graph, self.floats, self.memory, self.progress = graph, floats, memory, progress
        self.inputs = graph.input_ids()
        nodes = self.graph.nodes
        self.moving = [n.name is not None for n in nodes]
        for at, n in enumerate(nodes):
            self.moving[at] = self.moving[at] or any(self.moving[i] for i in n.inputs if i is not None)
        if floats is not None:
            floats.check(self.graph, self.moving)
        self.boxes: list[Any] = [None] * len(nodes)
        self.rounding: dict[int, Any] = {}
        for at, box in zip(self.inputs, boxes, strict=True):
            self.boxes[at] = box
        self.steps: dict[int, Step] = {}
        self.changed: set[int] = set()
        """Nodes whose boxes are smaller than their intervals at the inputs' boxes."""
        self.tight: dict[int, Array] = {}
        """Which cells of a node were tightened already."""
        readers: list[list[Any]] = [[] for _ in nodes]
        for n in nodes:
            for i in n.inputs:
                if i is not None:
                    readers[i].append(n.kind)
        for i in self.graph.outputs:
            readers[i].append(None)
        self.fused = {
            at
            for at, own in enumerate(readers)
            if nodes[at].kind is Relu and len(own) == 1 and own[0] is not None and issubclass(own[0], MaxPool)
        }
        """Each relu that a max pool alone reads: the greatest of cells and zero is one operator, with tighter lines."""

    # ---- from the inputs on

    def enclose(self) -> None:
        """Boxes by intervals alone."""
        for at in range(len(self.graph.nodes)):
            self._enclose(at)

    def _enclose(self, at: int) -> None:
        n = self.graph.nodes[at]
        if n.name is not None:
            return
        if n.value is not None:
            self.boxes[at] = Interval.between(n.value, n.value)
        else:
            assert n.kind is not None
            operands = [None if i is None else self._operand(i) for i in n.inputs]
            box = Interval.of(apply(n.kind, operands, "interval", *n.options))
            if self.floats is not None and self.moving[at]:
                own = [None if i is None else self.boxes[i] for i in n.inputs]
                d = self.floats.rounding(n, own)
                self.rounding[at], box = d, widened(box, d, own)
            self.boxes[at] = box

    def _operand(self, at: int) -> Any:
        """Points as arrays: operators tell them from boxes."""
        box = self.boxes[at]
        return box.lo if box.lo is box.hi else box

    def relax(self) -> None:
        """Boxes that were enclosed, tightened where it matters, and steps for walks back."""
        total = len(self.graph.nodes)
        for at, n in enumerate(self.graph.nodes):
            self.progress("nodes", at, total)
            if not self.changed.isdisjoint(n.inputs):
                self._enclose_again(at)
            if self.moving[at] and n.kind is not None and at not in self.fused:
                self.steps[at] = self._step(at, n)
                self._again(at)
        self.progress("nodes", total, total)

    def _again(self, at: int) -> None:
        """The box again, if what the node reads was tightened for its lines; and that of a relu that is part of it."""
        for k in (*self.fused.intersection(self.graph.nodes[at].inputs), at):
            if any(i in self.tight for i in self.graph.nodes[k].inputs):
                self._enclose_again(k)
                if isinstance(self.steps.get(k), Enclosed):
                    self.steps[k] = Enclosed(self.boxes[k])

    def _enclose_again(self, at: int) -> None:
        """A box that can only become smaller."""
        before = self.boxes[at]
        self._enclose(at)
        self.boxes[at] = meet(before, self.boxes[at])
        self.changed.add(at)

    def _step(self, at: int, n: Node) -> Step:
        assert n.kind is not None
        moving = [i is not None and self.moving[i] for i in n.inputs]
        own = [None if i is None else self.boxes[i] for i in n.inputs]
        finite = all(bool(np.isfinite(b.lo).all() and np.isfinite(b.hi).all()) for b in own if b is not None)
        if not finite or 0 in n.shape or not is_certain(n, moving, own):
            return Enclosed(self.boxes[at])
        if is_linear(n, moving):
            return Linear(n, moving, own, self.rounding.get(at, 0.0))
        sources = [i for i, m in zip(n.inputs, moving, strict=True) if m and i is not None]
        relaxation: Relaxation | None
        if sources[0] in self.fused:
            sources = [i for i in self.graph.nodes[sources[0]].inputs if i is not None]
            relaxation = self._fused(n, sources[0])
        else:
            relaxation = self._lines(n, sources, moving)
        if relaxation is None:
            return Enclosed(self.boxes[at])
        return Relaxed(sources, relaxation, [self.boxes[i] for i in sources], self.rounding.get(at, 0.0))

    def _fused(self, n: Node, source: int) -> Relaxation:
        zero: Array = np.zeros(())

        def lines() -> Greatest:
            whole = n.op.relax([self.boxes[source]], [True])
            assert isinstance(whole, Greatest)
            return Greatest(whole.boxes, whole.taps, Interval.between(zero, zero))

        relaxation = lines()
        return lines() if self.tighten(source, relaxation) else relaxation

    def _lines(self, n: Node, sources: Sequence[int], moving: Sequence[bool]) -> Relaxation | None:
        def lines() -> Relaxation | None:
            return n.op.relax([self.boxes[i] for i in n.inputs if i is not None], moving)

        relaxation = lines()
        if relaxation is None:
            return None
        tightened = [self.tighten(p, relaxation) for p in sources]
        return lines() if any(tightened) else relaxation

    # ---- cells that matter

    def tighten(self, at: int, relaxation: Relaxation) -> bool:
        """Better bounds of the cells of a node that its reader's lines depend on; whether any was computed."""
        if self._is_exact(at) or not self.steps:
            return False
        box = self.boxes[at]
        done = self.tight.setdefault(at, np.zeros(box.shape, bool))
        cells = np.flatnonzero(matters(box, relaxation) & ~done & (box.lo < box.hi))
        done.reshape(-1)[cells] = True
        if not cells.size or isinstance(self.steps.get(at), Enclosed):
            return False
        lo, hi = box.lo.copy(), box.hi.copy()
        low, high = lo.reshape(-1), hi.reshape(-1)
        dual, many = Dual(self.steps, self.boxes, self.inputs), self.rows_at_once(at)
        for start in range(0, len(cells), many):
            self.progress(f"cells of node {at}", start, len(cells))
            part = cells[start : start + many]
            found = dual.both(at, unit_rows(part, lo.shape))
            low[part] = np.maximum(low[part], found[: len(part)])
            high[part] = np.minimum(high[part], -found[len(part) :])
        if self.improving:
            self._improve(at, cells, low, high)
        self.boxes[at] = Interval.between(lo, hi)
        self.changed.add(at)
        return True

    def _improve(self, at: int, cells: Array, low: Array, high: Array) -> None:
        """Better bounds of these cells by lines of each one's own."""
        shape, many = self.graph.nodes[at].shape, max(1, self.rows_at_once(at) // 8)
        dual = Dual(self.steps, self.boxes, self.inputs)
        for start in range(0, len(cells), many):
            self.progress(f"lines for cells of node {at}", start, len(cells))
            part = cells[start : start + many]
            unit = unit_rows(part, shape)
            rows = unit.whole() if isinstance(unit, Patch) else unit

            def proven(found: Array, part: Array = part) -> None:
                low[part] = np.maximum(low[part], found[: len(part)])
                high[part] = np.minimum(high[part], -found[len(part) :])

            best = np.concatenate([low[part], -high[part]])
            improve(dual, at, np.concatenate([rows, -rows]), best, self.improving, proven)

    def cost_of_improving(self, steps: int) -> int:
        """The cells that all walks for the cells that were tightened would pass."""
        sizes = np.cumsum([prod(n.shape) for n in self.graph.nodes])
        return 2 * steps * sum(int(done.sum()) * int(sizes[at]) for at, done in self.tight.items())

    def _is_exact(self, at: int) -> bool:
        """Whether the interval of a node is as good as any bound: one linear operator behind cells of the inputs."""
        n = self.graph.nodes[at]
        if n.name is not None:
            return True
        varying = [i for i in n.inputs if i is not None and self.moving[i]]
        return isinstance(self.steps.get(at), Linear) and len(varying) == 1 and self._is_apart(varying[0])

    def _is_apart(self, at: int) -> bool:
        """Whether the cells of a node are cells of an input, each of its own, or constants."""
        n = self.graph.nodes[at]
        if n.name is not None:
            return True
        moved = n.kind is not None and (issubclass(n.kind, Layout) or n.kind is Neg)
        if not moved or n.kind is None or n.kind.name == "broadcast_to":
            return False
        return all(self._is_apart(i) for i in n.inputs if i is not None and self.moving[i])

    def rows_at_once(self, at: int) -> int:
        """How many pairs of rows fit into the memory: coefficients of a node and of all that it reads, and copies."""
        sizes = [
            prod(self.graph.nodes[k].shape) + sum(prod(self.graph.nodes[i].shape) for i in s.sources)
            for k, s in self.steps.items()
            if k <= at
        ]
        return int(max(1, min(MOST_ROWS, self.memory // (2 * 8 * 6 * max([1, *sizes])))))


def is_linear(n: Node, moving: Sequence[bool]) -> bool:
    """Whether a node is linear in all that varies together, and a constant beside it."""
    assert n.kind is not None
    at = {p for p, m in enumerate(moving) if m}
    together = at if n.kind.variadic and n.kind.jointly_linear else set(n.kind.jointly_linear)
    return at <= together or (len(at) == 1 and at <= set(n.kind.linear_in))


def is_certain(n: Node, moving: Sequence[bool], own: Sequence[Interval | None]) -> bool:
    """Whether what a linear operator multiplies with is known so well that a walk back may take it as it is.

    Constants that were computed are intervals. Where the operator is linear in them, their radius is counted
    (`Linear`); where it is not, as in the point of a derivative, it is not. And the weights of derivatives of roots and
    exponentials, which kernels compute for themselves, are off by more than their sums are.
    """
    assert n.kind is not None
    if not is_linear(n, moving):
        return True
    told = {*n.kind.linear_in, *n.kind.jointly_linear}
    for p, (m, b) in enumerate(zip(moving, own, strict=True)):
        if b is not None and not m and p not in told and bool((b.lo != b.hi).any()):
            return False
    base = n.kind.origin_of()
    return base is n.kind or base.exact or bool(base.linear_in)


def unit_rows(cells: Array, shape: Sequence[int]) -> Array | Patch:
    """Rows with a one at each of these cells; patches of planes of a single image."""
    n = len(cells)
    if len(shape) >= 3 and shape[0] == 1:
        channel, *origin = np.unravel_index(cells, shape[1:])
        one = np.zeros((n, shape[1]))
        one[np.arange(n), channel] = 1.0
        return Patch(one.reshape(n, shape[1], *(1,) * len(origin)), np.stack(origin, 1), tuple(shape[2:]))
    rows = np.zeros((n, prod(shape)))
    rows[np.arange(n), cells] = 1.0
    return rows.reshape(-1, *shape)


def matters(box: Interval, relaxation: Relaxation) -> Array:
    """The cells whose bounds lines depend on, so far as the box tells."""
    if isinstance(relaxation, Kink):
        return relaxation.open
    if isinstance(relaxation, Greatest) and len(relaxation.taps) == 1:
        taps, shape, can_win = relaxation.taps[0], box.shape, relaxation.can_win().astype(float)
        found: Array = taps.scatter(np.ones((1, *taps.out)), can_win, can_win)[0].reshape(shape) > 0
        return found
    return np.ones(box.shape, bool)


def meet(a: Interval, b: Interval) -> Interval:
    """The points of both: neither excludes the truth."""
    return Interval.between(np.asarray(np.maximum(a.lo, b.lo)), np.asarray(np.minimum(a.hi, b.hi)))
