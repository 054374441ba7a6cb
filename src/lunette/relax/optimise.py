"""Better lines for given rows: ascent on the proven value itself.

For fixed boxes, the value (2) of lunette.relax.dual is the least, over the box, of a function that is linear in every
line: so its slope in a parameter is that of the lines at one point of the box, the one where the least is attained.
That point is the corner that the coefficients of the inputs choose; its values at the nodes come from one pass forward
through the lines that the signs of the coefficients chose. No tape is needed.

Each row has lines of its own. Every set of parameters gives a proven bound, and the best of each row is kept, so more
steps are never worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from lunette.number import Array
from lunette.relax.dual import Dual
from lunette.relax.step import Relaxed, Step

RATE: Final = 0.2
FASTER: Final = 15  # weights, which move by factors, have farther to go
FADE: Final = 0.95  # the rate of each step, to that before it
REMEMBER: Final = (0.9, 0.999)  # of Adam (Kingma and Ba 2015): of slopes, and of their squares


class Ascent:
    """The parameters of one step, and what Adam remembers of their slopes."""

    def __init__(self, step: Relaxed, rows: int) -> None:
        self.step = step
        self.values = step.relaxation.start(rows)
        if "weight" in self.values:  # a weight of zero would never grow
            w = self.values["weight"]
            self.values["weight"] = 0.9 * w + 0.1 / w.shape[1]
        self.mean = {name: np.zeros_like(v) for name, v in self.values.items()}
        self.square = {name: np.zeros_like(v) for name, v in self.values.items()}

    def move(self, slopes: dict[str, Array], at: int, rate: float) -> None:
        """One step of ascent: intervals from 0 to 1 along the slope, weights of a mean by factors."""
        for name, g in slopes.items():
            v = self.values[name]
            simplex = name == "weight"
            if simplex:
                present = np.isfinite(g)
                g = np.where(present, g, 0.0)
                v = np.where(present, v, 0.0)
                v = v / np.maximum(v.sum(1, keepdims=True), 1e-300)
                g = g - (v * g).sum(1, keepdims=True)
            g = np.nan_to_num(g)
            mean = self.mean[name] = REMEMBER[0] * self.mean[name] + (1 - REMEMBER[0]) * g
            square = self.square[name] = REMEMBER[1] * self.square[name] + (1 - REMEMBER[1]) * g * g
            way = (mean / (1 - REMEMBER[0] ** at)) / (np.sqrt(square / (1 - REMEMBER[1] ** at)) + 1e-30)
            if simplex:
                v = v * np.exp(FASTER * rate * way)
                self.values[name] = v / np.maximum(v.sum(1, keepdims=True), 1e-300)
            else:
                self.values[name] = np.clip(v + rate * way, 0, 1)


def improve(
    dual: Dual,
    at: int,
    rows: Array,
    best: Array,
    steps: int,
    proven: Callable[[Array], None],
    record: Callable[[Array, Dual], None] | None = None,
) -> None:
    """Proven lower bounds of rows . h, better than the best so far, in so many steps; `proven` gets them each time.

    `record` is told after each walk which rows it was better for, while `dual` still has the walk.
    """
    relaxed = [s for s in dual.steps.values() if isinstance(s, Relaxed)]
    ascents = {id(s): Ascent(s, len(rows)) for s in relaxed}
    rate = RATE
    try:
        for k in range(1, steps + 1):
            for s in relaxed:
                s.choose(ascents[id(s)].values or None)
            found = dual.lower(at, rows, keep=True)
            if record is not None:
                record(found > best, dual)
            best = np.maximum(best, found)
            proven(best)
            if k < steps:

                def move(_: int, s: Step, a: Array, cells: list[Array], k: int = k, rate: float = rate) -> None:
                    if isinstance(s, Relaxed) and ascents[id(s)].values:
                        climb(s, ascents[id(s)], a, s.gathered(cells), k, rate)

                attained(dual, at, move)
            rate *= FADE
    finally:
        for s in relaxed:
            s.choose(None)


def attained(dual: Dual, at: int, visit: Callable[[int, Step, Array, list[Array]], None]) -> dict[int, Array]:
    """The values of the nodes at the corner where the bound of the last walk is attained, along its lines.

    `visit` sees each step with its coefficients and the values of its sources, once its own value is known.
    """
    found, values = dual.coefficients, {}
    rows = next(iter(found.values())).shape[0]
    for p in range(at + 1):
        a = found.get(p)
        if p in dual.inputs:
            box = dual.boxes[p]
            assert box is not None
            zero = np.zeros((rows, *box.shape)) if a is None else a
            values[p] = np.where(zero > 0, box.lo, np.where(zero < 0, box.hi, box.lo / 2 + box.hi / 2))
        elif p in dual.steps and a is not None:
            step: Step = dual.steps[p]
            cells = [values[i] for i in step.sources]
            values[p] = step.push(cells, np.maximum(a, 0.0))
            visit(p, step, a, cells)
    return values


def climb(step: Relaxed, ascent: Ascent, a: Array, gathered: Sequence[Array], at: int, rate: float) -> None:
    """One step of ascent of a step's parameters, whose coefficients are a, at the values of its sources."""
    if ascent.values:
        plus, minus = np.maximum(a, 0.0), np.minimum(a, 0.0)
        ascent.move(step.relaxation.gradient(ascent.values, plus, minus, gathered), at, rate)
