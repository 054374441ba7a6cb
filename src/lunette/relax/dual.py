"""The proven value of a row of coefficients at a node: one walk back, and what it cost.

By (1) of lunette.relax.step, from the node back to the inputs, for coefficients c of h,

    c . h  >=  sum over inputs of g . x  +  sum over steps of [a+ . least + a- . most]                               (2)

if the coefficients of a node that several steps read are the sums of theirs; a sum of m of them is rounded m-1 times,
which costs gamma(m-1) * |g| . X for each. The sums of (2) are over few numbers, whose rounding is counted at the end.
Everything that is subtracted was computed from numbers >= 0 and is multiplied by GROW. So the result is proven,
whatever the coefficients are: bad ones make it small, not wrong. What is not finite proves nothing: -infinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lunette.graph.walk import reverse
from lunette.lines import GROW, TINY, gamma
from lunette.number import Array, Interval
from lunette.relax.patch import Patch, plus, pull_patch
from lunette.relax.step import Linear, Step, magnitude, outward
from lunette.taps import flat


def cells_of(a: Array | Patch) -> Array:
    """Coefficients as an array of rows."""
    return a.cells if isinstance(a, Patch) else a


def weigh(a: Array | Patch, low: Array, high: Array) -> Array:
    """Row by row, the positive coefficients times low and the negative ones times high, one row of them or as many."""
    placed = a.placed if isinstance(a, Patch) else flat(a)
    shape = (-1, placed.cells.shape[1], *placed.space)
    return placed.weigh(low.reshape(shape), high.reshape(shape))


def pulled(step: Step, a: Array | Patch) -> list[Any]:
    """The coefficients of all that a step reads."""
    if not step.sources:
        return []
    if not isinstance(a, Patch):
        return step.pull(a)
    found = pull_patch(step, a)
    return step.pull(a.whole()) if found is None else found


class Account:
    """What a walk has found: a value, and all that may be wrong with it."""

    def __init__(self, rows: int) -> None:
        self.value, self.size, self.error = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        self.slack, self.count = 0.0, 0

    def add(self, a: Array | Patch, least: Array, most: Array) -> None:
        """The positive coefficients times the least that there is, the negative ones times the most."""
        found = weigh(a, least, most)
        self.value, self.size, self.count = self.value + found, self.size + np.abs(found), self.count + 1

    def add_both(self, a: Array | Patch, least: Array, most: Array) -> None:
        """The same for rows a, and then for their negatives."""
        found = np.concatenate([weigh(a, least, most), -weigh(a, most, least)])
        self.value, self.size, self.count = self.value + found, self.size + np.abs(found), self.count + 1

    def lose(self, a: Array | Patch, error: Array) -> None:
        """Magnitudes of coefficients times an error, which may have underflowed when it was computed."""
        error = error + 4 * TINY
        self.error = self.error + weigh(a, error, -error)

    def proven(self) -> Array:
        """The value less all that."""
        lost = (self.error * GROW + gamma(self.count + 2) * self.size + self.slack * GROW) * GROW
        result = np.nextafter(self.value - lost, -np.inf)
        return np.where(np.isfinite(result), result, -np.inf)


class Dual:
    """Steps by the number of their node, and the boxes of inputs."""

    def __init__(self, steps: Mapping[int, Step], boxes: Sequence[Interval | None], inputs: Sequence[int]) -> None:
        self.steps, self.boxes, self.inputs = steps, boxes, inputs
        self._inputs: dict[int, tuple[Array, Array, float]] = {}
        self.coefficients: dict[int, Array] = {}
        """Of the last walk: those of every node that it passed, kept if `keep` was asked for."""

    def lower(self, at: int, rows: Array | Patch, keep: bool = False) -> Array:
        """Proven lower bounds of rows . h, (rows, *shape) of node `at`, for every point of the box."""
        return self._lower(at, rows, Account(len(cells_of(rows))), keep)

    def both(self, at: int, rows: Array | Patch) -> Array:
        """The same for rows and then for their negatives, which are alike until lines tell signs apart."""
        account = Account(2 * len(cells_of(rows)))
        with np.errstate(all="ignore"):
            while isinstance(step := self.steps.get(at), Linear) and len(step.sources) == 1:
                account.add_both(rows, step.least, step.most)
                account.slack += step.slack
                (rows,), (at,) = pulled(step, rows), step.sources
        if isinstance(rows, Patch):
            twice = np.concatenate([rows.origin, rows.origin])
            return self._lower(at, Patch(np.concatenate([rows.cells, -rows.cells]), twice, rows.space), account)
        return self._lower(at, np.concatenate([rows, -rows]), account)

    def _lower(self, at: int, rows: Array | Patch, account: Account, keep: bool = False) -> Array:
        sources, readers = self._behind(at)
        parts: list[Any] = []
        self.coefficients = {}

        def through(step: Step, a: Array | Patch) -> list[Any]:
            account.add(a, step.least, step.most)
            account.slack += step.slack
            parts = pulled(step, a)
            account.error = account.error + step.beside
            return parts

        def pull(k: int, wrt: int, a: Array | Patch) -> Array | Patch:
            nonlocal parts
            if wrt == 0:
                if keep:
                    self.coefficients[k] = cells_of(a)
                parts = through(self.steps[k], a)
            source, part = sources[k][wrt], parts[wrt]
            if readers[source] > 1:
                account.lose(part, gamma(readers[source]) * self._magnitude(source))
            return part  # type: ignore[no-any-return]

        with np.errstate(all="ignore"):
            cotangents: list[Any] = [None] * at + [rows]
            for k, a in enumerate(reverse(sources, cotangents, pull, plus)):
                if a is None:
                    continue
                if keep:
                    self.coefficients[k] = cells_of(a)
                if k in self.inputs:
                    least, most, slack = self._ends(k)
                    account.add(a, least, most)
                    account.slack += slack
                else:
                    through(self.steps[k], a)
            return account.proven()

    def _behind(self, at: int) -> tuple[list[tuple[int, ...]], list[int]]:
        """What every node that a walk from `at` passes reads, and how many of these read each node."""
        sources: list[tuple[int, ...]] = [()] * (at + 1)
        readers = [0] * at + [1]
        for k in range(at, -1, -1):
            if readers[k] and k in self.steps:
                sources[k] = self.steps[k].sources
                for p in sources[k]:
                    readers[p] += 1
        return sources, readers

    def _magnitude(self, at: int) -> Array:
        box = self.boxes[at]
        assert box is not None
        return magnitude(box)[None]

    def _ends(self, at: int) -> tuple[Array, Array, float]:
        """The ends of an input's box, outward by what a sum of its cells can be off by, and what underflow can add."""
        if at not in self._inputs:
            box = self.boxes[at]
            assert box is not None
            least, most = outward(box.lo[None], box.hi[None], np.zeros((1, *box.shape)))
            self._inputs[at] = least, most, TINY * 4 * (box.lo.size + 1)
        return self._inputs[at]
