"""Branch and bound: a box that is split until every part is refuted."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from lunette.verify.leaves import Leaf, Walks

STEPS: Final = 20
TRIED: Final = 3
"""Candidates for a split whose children are bounded before one is taken."""


@dataclass(eq=False)
class Tree:
    """A part of a box: refuted as it is, or split."""

    leaf: Leaf
    node: int = -1
    cell: int = -1
    children: list[Tree] = field(default_factory=list)
    proof: Any = None
    """What the checker accepts for a part that is not split."""

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
            t.leaf.bound = min(t.leaf.bound, 0.0)
            self._push(t)

    @property
    def bound(self) -> float:
        """The least bound of all that is open."""
        return self.queue[0][0] if self.queue else np.inf

    def run(self) -> None:
        """Split until nothing is open; raises whatever a tick raises."""
        batch = max(1, min(32, self.walks.many() // 4))
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
            if plan is None:
                self.stuck = "a part in which nothing can be decided any more is not refuted: bounds are too coarse"
                self._push(t)
                continue
            node, cell = plan
            t.children = [Tree(c) for c in self._parts(t.leaf, node, cell)]
            t.node, t.cell = node, cell
            children += t.children
        many = self.walks.many()
        done = 0
        try:
            for start in range(0, len(children), many):
                part = children[start : start + many]
                self.walks.improve([c.leaf for c in part], STEPS)
                done += len(part)
        finally:
            for t in taken:
                if t.children:
                    self.leaves += len(t.children) - 1
                    t.leaf.parameters, t.leaf.betas, t.leaf.corner = {}, {}, []
            for c in children:
                self._push(c)

    def _plans(self, taken: list[Tree]) -> list[tuple[int, int] | None]:
        """Where to split each: of the candidates that lose most, the one whose worst part has the best bound."""
        trials: list[tuple[int, int, int, Leaf]] = []
        for at, t in enumerate(taken):
            for _, node, cell in t.leaf.candidates[:TRIED]:
                trials += [(at, node, cell, c) for c in self._parts(t.leaf, node, cell)]
        worst: dict[tuple[int, int, int], list[float]] = {}
        many = self.walks.many()
        for start in range(0, len(trials), many):
            part = trials[start : start + many]
            for (at, node, cell, leaf), b in zip(part, self.walks.plain([x[3] for x in part]), strict=True):
                del leaf
                worst.setdefault((at, node, cell), []).append(float(min(b, 0.0)))
        plans: list[tuple[int, int] | None] = [None] * len(taken)
        best = [-np.inf] * len(taken)
        for (at, node, cell), found in worst.items():
            value = min(found) + 0.1 * sum(found) / len(found)
            if value > best[at] or plans[at] is None:
                best[at], plans[at] = value, (node, cell)
        return plans

    def _parts(self, leaf: Leaf, node: int, cell: int) -> list[Leaf]:
        return [
            Leaf(leaf.case, (*leaf.decisions, (node, cell, choice)), leaf.bound, dict(leaf.betas), leaf.parameters)
            for choice in self.walks.choices(node, cell)
        ]
