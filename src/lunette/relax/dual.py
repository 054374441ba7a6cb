"""The proven value of a row of coefficients at a node: one walk back, and what it cost.

By (1) of lunette.relax.step, from the node back to the inputs, for coefficients c of h,

    c . h  >=  sum over inputs of g . x  +  sum over steps of [a+ . low + a- . high - |a| . error]                   (2)

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
from lunette.relax.step import Step, magnitude


def dot(a: Array, b: Array) -> Array:
    """Row by row; b has one row or as many. Zero times what is not finite is zero."""
    x, y = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
    if not np.isfinite(y).all():
        careful: Array = np.where(x == 0, 0.0, x * y).sum(1)
        return careful
    result: Array = x @ y[0] if len(y) == 1 else np.einsum("rn,rn->r", x, y)
    return result


def beside(a: Array | Patch, whole: Array) -> Array:
    """An array of a node, one row of it or one for each row, in the form that coefficients have."""
    return a.read(whole) if isinstance(a, Patch) else whole


def cells_of(a: Array | Patch) -> Array:
    """Coefficients as an array of rows."""
    return a.cells if isinstance(a, Patch) else a


class Account:
    """What a walk has found: a value, and all that may be wrong with it."""

    def __init__(self, rows: int) -> None:
        self.value, self.size, self.error = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        self.slack, self.count = 0.0, 0

    def add(self, a: Array | Patch, low: Array, high: Array) -> tuple[Array, Array]:
        """The positive coefficients times low, the negative ones times high; and both."""
        cells = cells_of(a)
        positive, negative = np.maximum(cells, 0.0), np.minimum(cells, 0.0)
        for part, end in ((positive, low), (negative, high)):
            if end.any():
                found = dot(part, beside(a, end))
                self.value, self.size, self.count = self.value + found, self.size + np.abs(found), self.count + 1
        return positive, negative

    def lose(self, a: Array | Patch, error: Array) -> None:
        """Magnitudes of coefficients times an error."""
        self.error = self.error + dot(np.abs(cells_of(a)), beside(a, error))

    def proven(self) -> Array:
        """The value less all that."""
        lost = (self.error * GROW + gamma(self.count + 2) * self.size + self.slack * GROW) * GROW
        result = np.nextafter(self.value - lost, -np.inf)
        return np.where(np.isfinite(result), result, -np.inf)


class Dual:
    """Steps by the number of their node, and the boxes of inputs."""

    def __init__(self, steps: Mapping[int, Step], boxes: Sequence[Interval | None], inputs: Sequence[int]) -> None:
        self.steps, self.boxes, self.inputs = steps, boxes, inputs
        self.coefficients: dict[int, Array] = {}
        """Of the last walk: those of every node that it passed, kept if `keep` was asked for."""

    def lower(self, at: int, rows: Array | Patch, keep: bool = False) -> Array:
        """Proven lower bounds of rows . h, (rows, *shape) of node `at`, for every point of the box."""
        sources = [self.steps[k].sources if k in self.steps else () for k in range(at + 1)]
        readers = [0] * (at + 1)
        for own in sources:
            for p in own:
                readers[p] += 1
        many = {p: magnitude(box)[None] for p, n in enumerate(readers) if n > 1 and (box := self.boxes[p]) is not None}
        account = Account(len(cells_of(rows)))
        parts: list[Any] = []
        self.coefficients = {}

        def through(step: Step, a: Array | Patch) -> list[Any]:
            positive, negative = account.add(a, step.low, step.high)
            account.lose(a, step.error)
            account.slack += step.slack
            if isinstance(a, Patch):
                if not step.sources:
                    return []
                found = pull_patch(step, a, positive, negative)
                if found is not None:
                    return found
                a = a.whole()
                positive, negative = np.maximum(a, 0.0), np.minimum(a, 0.0)
            parts = list(step.pull(a, positive, negative))
            account.error = account.error + step.beside
            return parts

        def pull(k: int, wrt: int, a: Array | Patch) -> Array | Patch:
            nonlocal parts
            if wrt == 0:
                if keep:
                    self.coefficients[k] = cells_of(a)
                parts = through(self.steps[k], a)
            source, part = sources[k][wrt], parts[wrt]
            if source in many:
                account.lose(part, gamma(readers[source]) * many[source])
            return part  # type: ignore[no-any-return]

        with np.errstate(all="ignore"):
            cotangents: list[Any] = [None] * at + [rows]
            for k, a in enumerate(reverse(sources, cotangents, pull, plus)):
                if a is None:
                    continue
                if keep:
                    self.coefficients[k] = cells_of(a)
                if k not in self.inputs:
                    through(self.steps[k], a)
                    continue
                box = self.boxes[k]
                assert box is not None
                cells = box.lo.size
                account.add(a, box.lo[None], box.hi[None])
                account.lose(a, gamma(cells + 3) * magnitude(box)[None])
                account.slack += TINY * 4 * (cells + 1)
            return account.proven()
