"""Looking for counterexamples: descent along compiled gradients, and corners.

What is found is a candidate. Whether it violates the property is decided in exact arithmetic (lunette.verify.exact).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lunette.errors import LunetteError
from lunette.graph.program import Program
from lunette.number import Array
from lunette.verify.question import Room

Point = list[Array]


class Attack:
    """Descent in one room."""

    def __init__(self, room: Room, program: Program, seed: int, tick: Callable[[str, int, int], None]) -> None:
        self.room, self.program, self.tick = room, program, tick
        self.rng = np.random.default_rng(seed)
        assert room.floats is not None
        self.lo, self.hi = room.floats
        self.dtype = program.graph.inputs[0].dtype
        self.best = np.full(len(room.cases), np.inf)
        """The least that was found of the greatest of (row . y - threshold) of every case."""
        self.steps = 0

    def margins(self, y: Any) -> tuple[Array, list[int]]:
        """Of every case, the greatest row less its threshold, and which row that is."""
        with np.errstate(all="ignore"):
            each = self.room.rows @ np.asarray(y, np.float64).reshape(-1) - self.room.thresholds
        worst = [p[int(np.argmax(each[p.start : p.stop]))] if len(p) else -1 for p in self.room.places]
        values = np.array([each[w] if w >= 0 else -np.inf for w in worst])
        return values, worst

    def look(self, x: Point) -> Array:
        """The margins at a point."""
        values, _ = self.margins(self.program(*x))
        np.fmin(self.best, values, out=self.best)
        return values

    def starts(self) -> Iterator[Point]:
        """The centre, and then random points and corners in turn, without end."""
        yield self.inside([a + (b - a) / 2 for a, b in zip(self.lo, self.hi, strict=True)])
        for _ in range(1 << 30):
            yield self.inside([a + (b - a) * self.rng.random(a.shape) for a, b in zip(self.lo, self.hi, strict=True)])
            yield [np.where(self.rng.random(a.shape) < 0.5, a, b) for a, b in zip(self.lo, self.hi, strict=True)]

    def inside(self, x: Sequence[Any]) -> Point:
        """Floats of the graph in the box."""
        found = zip(x, self.lo, self.hi, strict=True)
        return [np.ascontiguousarray(np.clip(np.asarray(v, a.dtype), a, b)) for v, a, b in found]

    def descend(self, x: Point, case: int, steps: int) -> Iterator[Point]:
        """Candidates for a case: the points of a descent at which its margin is not above zero."""
        for k in range(steps):
            self.tick("attack", k, steps)
            self.steps += 1
            try:
                y, pullback = self.program.vjp(*x)
            except LunetteError:  # an operator without a derivative: points have to do
                break
            values, worst = self.margins(y)
            np.fmin(self.best, values, out=self.best)
            if values[case] <= 0:
                yield x
            row = self.room.rows[worst[case]].reshape(np.shape(y)).astype(self.dtype)
            found = pullback(row)  # one for each input
            share = max(0.25 * 0.9**k, 0.002)
            x = self.inside(
                [
                    v - share * (b - a) * np.sign(np.nan_to_num(g))
                    for v, g, a, b in zip(x, found, self.lo, self.hi, strict=True)
                ]
            )
        if self.look(x)[case] <= 0:
            yield x

    def search(self, cases: Sequence[int], starts: int, steps: int, most: int | None = None) -> Iterator[Point]:
        """Candidates for these cases, those that look easiest first, and no more than `most` from each start."""
        for k, x in enumerate(self.starts()):
            if k >= starts:
                return
            values = self.look(x)
            for case in sorted(cases, key=lambda c: values[c])[:most]:
                if not len(self.room.places[case]):
                    yield x
                else:
                    yield from self.descend(x, case, steps)
