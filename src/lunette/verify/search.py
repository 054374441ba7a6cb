"""Branch and bound: a box that is split until every part is refuted."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from lunette.verify.leaves import Cuts, Decision, Leaf, Walks

STEPS: Final = 20
LAST: Final = 200
"""Steps for a part in which nothing can be decided any more."""
TRIED: Final = 3
"""Candidates for a split whose children are bounded before one is taken."""
TRIED_INPUTS: Final = 2
"""The same of cells of inputs, whose parts have boxes of their own."""


@dataclass(eq=False)
class Tree:
    """A part of a box: refuted as it is, or split."""

    leaf: Leaf
    node: int = -1
    cell: int = -1
    at: float | None = None
    """Where the cell of an input is cut in two."""
    children: list[Tree] = field(default_factory=list)
    last: bool = False
    """Whether nothing can be decided in it any more, and its lines were improved at length."""
    refused: bool = False
    """Whether the checker does not follow where bounds in floats refute it, and so lose nothing."""
    proofs: dict[int, Any] = field(default_factory=dict)
    """What the checker accepts for a part that is not split, by the bits that it computes with."""

    @property
    def leaves(self) -> list[Tree]:
        """The parts that are not split."""
        found, waiting = [], [self]
        while waiting:
            t = waiting.pop()
            if t.children:
                waiting.extend(reversed(t.children))
            else:
                found.append(t)
        return found


class Search:
    """Trees for the cases of one room that nothing simpler refutes."""

    def __init__(self, walks: Walks, look: Callable[[Leaf], None]) -> None:
        self.walks, self.look = walks, look
        self.order = count()
        self.queue: list[tuple[float, int, Tree]] = []
        self.leaves = 0
        self.stuck = ""

    def add(self, root: Leaf) -> Tree:
        """A case that is open, by what is known of it."""
        tree = Tree(root)
        self.leaves += 1
        self._push(tree)
        return tree

    def _push(self, tree: Tree) -> None:
        if tree.leaf.bound <= 0:
            heapq.heappush(self.queue, (tree.leaf.bound, next(self.order), tree))

    def again(self, trees: Sequence[Tree]) -> None:
        """Parts that are open after all: the checker does not follow."""
        for t in trees:
            t.leaf.bound, t.refused = min(t.leaf.bound, 0.0), True
            self._push(t)

    @property
    def bound(self) -> float:
        """The least bound of all that is open."""
        return self.queue[0][0] if self.queue else np.inf

    def run(self) -> None:
        """Split until nothing is open; raises whatever a tick raises."""
        batch = max(1, min(32, self.walks.many() // 4))
        if self.walks.few:  # every one of them asks for some parts with boxes of their own
            batch = max(1, min(batch, self.walks.kept() // (2 * TRIED_INPUTS)))
        while self.queue and not self.stuck:
            self.walks.tick(f"{self.leaves} leaves, {len(self.queue)} open, bound {self.bound:.4g}", 0, 0)
            taken = [heapq.heappop(self.queue)[2] for _ in range(min(batch, len(self.queue)))]
            try:
                self._split(taken)
            except BaseException:
                for t in taken:
                    if not t.children:
                        self._push(t)
                raise

    def _split(self, taken: list[Tree]) -> None:
        self.look(taken[0].leaf)
        plans = self._plans(taken)
        children: list[Tree] = []
        for t, plan in zip(taken, plans, strict=True):
            if plan is None and t.refused and t.leaf.parameters:  # else better lines may do
                plan = self.walks.within(t.leaf.cuts).undecided(t.leaf)
            if plan is None:
                if not t.last:  # then better lines have to do
                    t.last = True
                    self.walks.within(t.leaf.cuts).improve([t.leaf], LAST)
                if t.leaf.bound <= 0 and not (t.leaf.candidates or t.leaf.inputs):  # it may have some now
                    self.stuck = "a part in which nothing can be decided any more is not refuted: bounds are too coarse"
                self._push(t)
                continue
            t.node, t.cell = plan
            t.at, parts = self._parts(t.leaf, *plan)
            t.children = [Tree(c) for c in parts]
            children += t.children
        try:
            for walks, part in self._together([c.leaf for c in children]):
                walks.improve(part, STEPS)
        finally:
            for t in taken:
                if t.children:
                    self.leaves += len(t.children) - 1
                    t.leaf.parameters, t.leaf.betas, t.leaf.corner = {}, {}, []
            for c in children:
                self._push(c)

    def _plans(self, taken: list[Tree]) -> list[tuple[int, int] | None]:
        """Where to split each: of the candidates that lose most, the one whose worst part has the best bound."""
        trials: dict[Leaf, tuple[int, int, int]] = {}
        for at, t in enumerate(taken):
            tried = [(node, cell) for _, node, cell in t.leaf.candidates[:TRIED]] + t.leaf.inputs[:TRIED_INPUTS]
            trials.update({c: (at, node, cell) for node, cell in tried for c in self._parts(t.leaf, node, cell)[1]})
        worst: dict[tuple[int, int, int], list[float]] = {}
        for walks, part in self._together(list(trials)):
            for leaf, b in zip(part, walks.plain(part), strict=True):
                worst.setdefault(trials[leaf], []).append(float(min(b, 0.0)))
        plans: list[tuple[int, int] | None] = [None] * len(taken)
        best = [-np.inf] * len(taken)
        for (at, node, cell), found in worst.items():
            value = min(found) + 0.1 * sum(found) / len(found)
            if value > best[at] or plans[at] is None:
                best[at], plans[at] = value, (node, cell)
        return plans

    def _parts(self, leaf: Leaf, node: int, cell: int) -> tuple[float | None, list[Leaf]]:
        """Where an input is cut, if it is one; and what a leaf is split into."""

        def part(decisions: tuple[Decision, ...], cuts: Cuts) -> Leaf:
            return Leaf(leaf.case, decisions, leaf.bound, dict(leaf.betas), leaf.parameters, cuts=cuts)

        if node in self.walks.net.inputs:
            at, both = self.walks.halves(leaf.cuts, node, cell)
            return at, [part(leaf.decisions, cuts) for cuts in both]
        choices = self.walks.within(leaf.cuts).choices(node, cell)
        return None, [part((*leaf.decisions, (node, cell, choice)), leaf.cuts) for choice in choices]

    def _together(self, leaves: Sequence[Leaf]) -> Iterator[tuple[Walks, list[Leaf]]]:
        """Leaves that are rows of one walk: in the same part of the inputs' box, and no more than fit."""
        groups: dict[Cuts, list[Leaf]] = {}
        for leaf in leaves:
            groups.setdefault(leaf.cuts, []).append(leaf)
        many = self.walks.many()
        for cuts, group in groups.items():
            walks = self.walks.within(cuts)
            yield from ((walks, group[start : start + many]) for start in range(0, len(group), many))
