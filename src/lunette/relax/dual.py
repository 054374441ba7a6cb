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

import numpy as np

from lunette.graph.walk import reverse
from lunette.lines import GROW, TINY, gamma
from lunette.number import Array, Interval
from lunette.relax.step import Step, magnitude


def dot(a: Array, b: Array) -> Array:
    """Row by row; b has one row or as many. Zero times what is not finite is zero."""
    x, y = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
    if not np.isfinite(y).all():
        return np.where(x == 0, 0.0, x * y).sum(1)
    result: Array = x @ y[0] if len(y) == 1 else np.einsum("rn,rn->r", x, y)
    return result


class Dual:
    """Steps by the number of their node, and the boxes of inputs."""

    def __init__(self, steps: Mapping[int, Step], boxes: Sequence[Interval | None], inputs: Sequence[int]) -> None:
        self.steps, self.boxes, self.inputs = steps, boxes, inputs
        self.coefficients: dict[int, Array] = {}
        """Of the last walk: those of every node that it passed, kept if `keep` was asked for."""

    def lower(self, at: int, rows: Array, keep: bool = False) -> Array:
        """Proven lower bounds of rows . h, (rows, *shape) of node `at`, for every point of the box."""
        sources = [self.steps[k].sources if k in self.steps else () for k in range(at + 1)]
        readers = [0] * (at + 1)
        for own in sources:
            for p in own:
                readers[p] += 1
        many = {p: magnitude(box)[None] for p, n in enumerate(readers) if n > 1 and (box := self.boxes[p]) is not None}
        n = rows.shape[0]
        value, size, error, slack, count = np.zeros(n), np.zeros(n), np.zeros(n), 0.0, 0
        parts: list[Array] = []
        self.coefficients = {}

        def add(part: Array) -> None:
            nonlocal value, size, count
            value, size, count = value + part, size + np.abs(part), count + 1

        def account(step: Step, a: Array) -> list[Array]:
            nonlocal error, slack
            plus, minus = np.maximum(a, 0.0), np.minimum(a, 0.0)
            add(dot(plus, step.low))
            add(dot(minus, step.high))
            error = error + dot(plus - minus, step.error)
            slack += step.slack * float(np.abs(a).max(initial=0.0)) + step.slack
            return step.pull(a, plus, minus)

        def pull(k: int, wrt: int, a: Array) -> Array:
            nonlocal parts, error
            if wrt == 0:
                if keep:
                    self.coefficients[k] = a
                parts = account(self.steps[k], a)
            source, part = sources[k][wrt], parts[wrt]
            if source in many:
                error = error + gamma(readers[source]) * dot(np.abs(part), many[source])
            return part

        with np.errstate(all="ignore"):
            cotangents: list[Array | None] = [None] * at + [rows]
            found = reverse(sources, cotangents, pull)
            for k, a in enumerate(found):
                if a is None:
                    continue
                if keep:
                    self.coefficients[k] = a
                if k not in self.inputs:
                    account(self.steps[k], a)
                    continue
                box = self.boxes[k]
                assert box is not None
                cells = a[0].size
                add(dot(np.maximum(a, 0.0), box.lo[None]))
                add(dot(np.minimum(a, 0.0), box.hi[None]))
                error = error + gamma(cells + 3) * dot(np.abs(a), magnitude(box)[None])
                slack += TINY * 4 * (cells + 1)
            lost = (error * GROW + gamma(count + 2) * size + slack * GROW) * GROW
            proven = np.nextafter(value - lost, -np.inf)
        return np.where(np.isfinite(proven), proven, -np.inf)
