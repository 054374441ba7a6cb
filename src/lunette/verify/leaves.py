"""Parts of a box, each by decisions, bounded together as rows of one walk.

A decision says which side of a kink an operator's argument is on, or which cell of a window is the greatest. Where it
holds, the operator is linear, and what is decided, w >= 0 for some linear w, may be subtracted with any factor beta:

    c . h  >=  c . h - beta * w,      beta >= 0.

So a decision replaces the lines of one cell by the operator itself, and adds -beta * w to what is pulled back. Boxes of
nodes stay those of the whole box, or, where an input was cut in two, those of its part (`Walks.within`). Lines and
factors are improved together, for every row its own, by ascent on the proven value; its slope in beta is -w at the
point where the bound is attained (see lunette.relax.optimise).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lunette.certificate.format import MOST_TAPS
from lunette.lines import GROW, Greatest, Kink, Lines, Parameters, gamma
from lunette.number import Array, Interval
from lunette.relax.boxes import Boxes
from lunette.relax.dual import Dual
from lunette.relax.optimise import FADE, RATE, REMEMBER, Ascent, attained, climb
from lunette.relax.step import Relaxed, Step
from lunette.verify.joint import Groups, Joint, improved

BETA_RATE: Final = 0.1

Decision = tuple[int, int, int]
"""The node, its cell, and what was decided: 0 or 1 for the left or right side of a kink; the tap that is greatest."""

Cuts = tuple[tuple[int, int, float, float], ...]
"""What is left of inputs: the node, its cell, and the ends; in order, each cell once."""
FEW: Final = 50
"""Inputs that vary, up to which parts are made by cutting them in two."""


@dataclass(eq=False)
class Leaf:
    """A part of a box, and what is known of one row in it."""

    case: int
    decisions: tuple[Decision, ...] = ()
    bound: float = -np.inf
    """Proven: the row less its threshold is no less."""
    betas: dict[Decision, Any] = field(default_factory=dict)
    """A number for a kink, one for each tap of a window."""
    parameters: dict[int, dict[str, Array]] = field(default_factory=dict)
    """Of the lines of every node."""
    candidates: list[tuple[float, int, int]] = field(default_factory=list)
    """(what is lost there, node, cell), most first."""
    inputs: list[tuple[int, int]] = field(default_factory=list)
    """Cells of inputs that may be cut in two, (node, cell), the best first; none if there are many."""
    corner: list[Array] = field(default_factory=list)
    """The point of the box at which the bound is attained by the lines."""
    cuts: Cuts = ()
    """The part of the inputs' box that it is in."""


class Decided(Relaxed):
    """A step some of whose cells are decided, for each row its own."""

    def __init__(self, base: Relaxed) -> None:
        super(Relaxed, self).__init__(base.sources, base.rounding)
        self.relaxation, self.sizes, self.read = base.relaxation, base.sizes, base.read
        self.base = base
        self.chosen: list[tuple[int, int, int]] = []
        """(row, flat cell, choice)."""
        self.beta: Array | None = None
        self.beside: Any = 0.0
        self.choose(None)

    def decide(self, chosen: Sequence[tuple[int, int, int]], rows: int) -> None:
        """Which cells of which rows are decided, and how."""
        self.chosen = list(chosen)
        self.rows = rows
        at = np.array(self.chosen, int).reshape(-1, 3)
        self.at_rows, self.at_cells, self.at_choice = at.T
        self.beta = None
        if self.chosen:
            taps = self.base.lines.low[0].shape[1] if isinstance(self.relaxation, Kink) else self._taps
            self.beta = np.zeros((len(self.chosen), taps if isinstance(self.relaxation, Kink) else taps + 1))

    @property
    def _taps(self) -> int:
        return sum(v.shape[1] for v in self.base.lines.low)

    def lines_for(self, parameters: Parameters | None) -> Lines:
        """The lines of these parameters, but at cells that are decided, where they are the operator."""
        lines = super().lines_for(parameters)
        return self._overridden(lines) if self.chosen else lines

    def _overridden(self, lines: Lines) -> Lines:
        def own(v: Array) -> Array:
            return np.repeat(v, self.rows, 0) if len(v) == 1 and self.rows > 1 else v.copy()

        low, high = [own(v) for v in lines.low], [own(v) for v in lines.high]
        constants = [own(lines.low_constant), own(lines.high_constant)]
        r, c = self.at_rows, self.at_cells
        for v in constants:
            v.reshape(len(v), -1)[r, c] = 0.0
        first = 0
        for pair in zip(low, high, strict=True):
            taps = pair[0].shape[1]
            for v in pair:
                flat = v.reshape(len(v), taps, -1)
                flat[r, :, c] = self._slopes(first, taps)
            first += taps
        return Lines(tuple(low), tuple(high), constants[0], constants[1])

    def _slopes(self, first: int, taps: int) -> Array:
        """(decisions, taps): the slopes of what is decided."""
        if isinstance(self.relaxation, Kink):
            k = self.relaxation
            return np.asarray(np.where(self.at_choice == 1, k.right, k.left)[:, None] * np.ones((1, taps)))
        return np.asarray(self.at_choice[:, None] == first + np.arange(taps), float)

    def pull(self, a: Array) -> list[Array]:
        parts = super().pull(a)
        self.beside = 0.0
        if self.beta is None or not self.beta.any():
            return parts
        r, c = self.at_rows, self.at_cells
        if isinstance(self.relaxation, Kink):
            # Rounding is monotone: what is taken off is some factor >= 0 times what was decided, exactly.
            flat = parts[0].reshape(len(a), -1)
            sign = np.where(self.at_choice == 1, 1.0, -1.0)
            flat[r, c] -= sign * self.beta[:, 0]
            return parts
        return self._pull_winners(a, parts)

    def _pull_winners(self, a: Array, parts: list[Array]) -> list[Array]:
        assert self.beta is not None
        n = self._taps
        beta = self.beta.copy()
        at = np.arange(len(beta))
        beta[at, self.at_choice] = 0.0
        change = beta[:, :n].copy()
        chosen = self.at_choice < n  # else the floor is the greatest, a constant 0
        change[at[chosen], self.at_choice[chosen]] -= beta[chosen].sum(1)
        first, lost = 0, np.zeros(len(a))
        for k, (t, size) in enumerate(zip(self.relaxation.taps, self.sizes, strict=True)):
            taps = size.shape[1]
            whole = np.zeros((len(a), taps, *t.out))
            whole.reshape(len(a), taps, -1)[self.at_rows, :, self.at_cells] = change[:, first : first + taps]
            one = np.ones((len(a), *t.out))
            moved = t.scatter(one, whole, whole)
            parts[k] = parts[k] + moved
            reach = t.scatter(one, np.abs(whole) * size, np.abs(whole) * size)
            far = t.scatter(one[:1], size, size)  # at least the magnitude of every cell that is read
            lost = lost + 2 * reach.reshape(len(a), -1).sum(1) + (np.abs(parts[k]) * far).reshape(len(a), -1).sum(1)
            first += taps
        terms = max(t.terms for t in self.relaxation.taps)
        self.beside = gamma(n + terms + 4) * lost * GROW
        return parts

    def slope(self, cells: Sequence[Array]) -> Array:
        """How the bound grows with every beta: minus what was decided, at cells that each tap reads."""
        x = cells[0] if len(cells) == 1 else np.concatenate(cells, 1)
        own: Array = x.reshape(len(x), x.shape[1], -1)[self.at_rows, :, self.at_cells]
        if isinstance(self.relaxation, Kink):
            return np.where(self.at_choice == 1, -1.0, 1.0)[:, None] * own
        assert isinstance(self.relaxation, Greatest)
        present = self._present()
        whole = np.concatenate([own, np.zeros((len(own), 1))], 1)
        winner = whole[np.arange(len(whole)), self.at_choice]
        return np.where(present, whole - winner[:, None], 0.0)

    def _present(self) -> Array:
        assert isinstance(self.relaxation, Greatest)
        lo = np.isfinite(self.relaxation.ends[0][0]).reshape(self._taps, -1)[:, self.at_cells].T
        floor = np.full((len(lo), 1), self.relaxation.floor is not None)
        return np.concatenate([lo, floor], 1)


def decided(step: Step) -> Step:
    """A step with decisions, if it can have some: a kink, or a window of not too many, whose floor, if any, is zero."""
    if not isinstance(step, Relaxed):
        return step
    r = step.relaxation
    zero = isinstance(r, Greatest) and (r.floor is None or not (r.floor.lo.any() or r.floor.hi.any()))
    few = sum(v.shape[1] for v in step.lines.low) + 1 <= MOST_TAPS
    return Decided(step) if (zero and few) or isinstance(r, Kink) else step


class Walks:
    """Bounds of rows over parts of a box."""

    def __init__(self, net: Boxes, rows: Array, thresholds: Array, tick: Callable[[str, int, int], None]) -> None:
        self.net, self.out, self.tick = net, net.graph.outputs[0], tick
        shape = net.graph.nodes[self.out].shape
        self.rows, self.thresholds = rows.reshape(-1, *shape), thresholds
        self.steps: dict[int, Any] = {k: decided(s) for k, s in net.steps.items()}
        self.dual = Dual(self.steps, net.boxes, net.inputs)
        self.relaxed = {k: s for k, s in self.steps.items() if isinstance(s, Relaxed) and k <= self.out}
        self.decided = {k: s for k, s in self.relaxed.items() if isinstance(s, Decided)}
        ends = [net.boxes[i] for i in net.inputs]
        self.few = sum(int((b.hi > b.lo).sum()) for b in ends) <= FEW
        self.parts: OrderedDict[Cuts, Walks] = OrderedDict()
        """Those of parts of the box, the last ones that were asked for."""

    def within(self, cuts: Cuts) -> Walks:
        """The same rows in a part of the inputs' box, whose nodes have boxes of their own."""
        if not cuts:
            return self
        if cuts not in self.parts:
            net = self.net
            boxes = {i: [net.boxes[i].lo.copy(), net.boxes[i].hi.copy()] for i in net.inputs}
            for node, cell, lo, hi in cuts:
                boxes[node][0].reshape(-1)[cell], boxes[node][1].reshape(-1)[cell] = lo, hi
            own = [Interval.between(*boxes[i]) for i in net.inputs]
            part = Boxes(net.graph, own, net.memory, self.tick, net.floats)
            part.enclose()
            part.relax()
            self.parts[cuts] = Walks(part, self.rows, self.thresholds, self.tick)
            while len(self.parts) > self.kept():
                self.parts.popitem(last=False)
        self.parts.move_to_end(cuts)
        return self.parts[cuts]

    def kept(self) -> int:
        """How many parts are kept: those whose boxes and lines fit into the memory; others are made again."""
        cells = sum(b.lo.size for b in self.net.boxes if b is not None)
        return int(min(256, max(4, self.net.memory // (16 * 8 * cells))))

    def halves(self, cuts: Cuts, node: int, cell: int) -> tuple[float, list[Cuts]]:
        """An input's cell cut in two: where, and what is left of the inputs on either side."""
        left = {(n, c): (lo, hi) for n, c, lo, hi in cuts}
        box = self.net.boxes[node]
        lo, hi = left.get((node, cell), (float(box.lo.reshape(-1)[cell]), float(box.hi.reshape(-1)[cell])))
        middle = lo / 2 + hi / 2
        both = [{**left, (node, cell): ends} for ends in ((lo, middle), (middle, hi))]
        return middle, [tuple((n, c, *ends) for (n, c), ends in sorted(some.items())) for some in both]

    def together(self, leaf: Leaf, relus: int, groups: Groups, target: float) -> Joint | None:
        """A better bound of a row, from groups of relus of the first layer and the lines that a leaf has."""
        bound = float(self.plain([leaf])[0])
        (given,), step = self.net.inputs, self.relaxed[relus]
        a, pulled = (self.dual.coefficients[k][0].reshape(-1) for k in (relus, given))
        lines = step.lines
        sides = [(lines.low[0], lines.high[0]), (lines.low_constant, lines.high_constant)]
        slopes, constants = (np.where(a > 0, *(v.reshape(len(v), -1)[0] for v in pair)) for pair in sides)
        box = self.net.boxes[given]
        ends = box.lo.reshape(-1), box.hi.reshape(-1)
        return improved(leaf, groups, a, slopes, constants, pulled, ends, bound, target)

    def many(self) -> int:
        """How many rows fit into the memory."""
        return max(1, self.net.rows_at_once(self.out) // 4)

    # ---- setting up

    def _set(self, leaves: Sequence[Leaf]) -> dict[int, Ascent]:
        ascents = {}
        for k, s in self.decided.items():
            chosen = [(r, c, v) for r, leaf in enumerate(leaves) for n, c, v in leaf.decisions if n == k]
            s.decide(chosen, len(leaves))
            for d, (r, c, v) in enumerate(chosen):
                if (b := leaves[r].betas.get((k, c, v))) is not None:
                    assert s.beta is not None
                    s.beta[d] = b
        for k, step in self.relaxed.items():
            ascent = Ascent(step, len(leaves))
            for r, leaf in enumerate(leaves):
                for name, own in leaf.parameters.get(k, {}).items():
                    ascent.values[name][r] = own
            ascents[k] = ascent
        return ascents

    def _choose(self, ascents: dict[int, Ascent]) -> None:
        for k, s in self.relaxed.items():
            s.choose(ascents[k].values or None)

    def lower(self, leaves: Sequence[Leaf]) -> Array:
        """The proven value of each row less its threshold, rounded down."""
        found = self.dual.lower(self.out, self.rows[[leaf.case for leaf in leaves]], keep=True)
        with np.errstate(all="ignore"):
            return np.asarray(np.nextafter(found - self.thresholds[[leaf.case for leaf in leaves]], -np.inf))

    # ---- bounding

    def plain(self, leaves: Sequence[Leaf]) -> Array:
        """Bounds with the lines and factors that leaves have."""
        ascents = self._set(leaves)
        self._choose(ascents)
        return self.lower(leaves)

    def improve(self, leaves: Sequence[Leaf], steps: int) -> None:
        """Better bounds of leaves, in so many steps or until all are above zero; what was found is put into them."""
        ascents = self._set(leaves)
        rate = RATE if not leaves[0].parameters else RATE / 4  # what is good already is not far from better
        memory = {
            k: (np.zeros_like(s.beta), np.zeros_like(s.beta)) for k, s in self.decided.items() if s.beta is not None
        }
        scale: dict[int, Array] = {}
        for k in range(1, steps + 1):
            self.tick("steps", k, steps)
            self._choose(ascents)
            found = self.lower(leaves)
            for r, leaf in enumerate(leaves):
                if found[r] > leaf.bound or k == 1:
                    leaf.bound = max(float(found[r]), leaf.bound)
                    self._keep(r, leaf, ascents)
            last = k == steps or all(leaf.bound > 0 for leaf in leaves)
            values = self._forward(leaves, ascents, memory, scale, k, 0.0 if last else rate)
            if last:
                break
            rate *= FADE
        self._score(leaves, values)

    def _keep(self, r: int, leaf: Leaf, ascents: dict[int, Ascent]) -> None:
        leaf.parameters = {
            k: {name: v[r].astype(np.float32) for name, v in a.values.items()} for k, a in ascents.items() if a.values
        }
        leaf.betas = {}
        for k, s in self.decided.items():
            for d, (row, c, v) in enumerate(s.chosen):
                if row == r and s.beta is not None:
                    leaf.betas[k, c, v] = s.beta[d].copy()

    def _forward(
        self,
        leaves: Sequence[Leaf],
        ascents: dict[int, Ascent],
        memory: dict[int, Any],
        scale: dict[int, Array],
        at: int,
        rate: float,
    ) -> dict[int, Array]:
        """Values at the point where the bounds are attained; parameters move along their slopes as they pass."""
        rows = len(leaves)

        def move(p: int, step: Step, a: Array, cells: list[Array]) -> None:
            if not rate or not isinstance(step, Relaxed):
                return
            gathered = step.gathered(cells)
            climb(step, ascents[p], a, gathered, at, rate)
            if isinstance(step, Decided) and step.beta is not None:
                size = np.abs(a).reshape(rows, -1).max(1)[step.at_rows, None]
                own = scale.setdefault(p, np.maximum(size, 1e-30))
                self._move_beta(step, memory[p], step.slope(gathered), own, at, rate)

        with np.errstate(all="ignore"):
            return attained(self.dual, self.out, move)

    @staticmethod
    def _move_beta(step: Decided, memory: Any, g: Array, scale: Array, at: int, rate: float) -> None:
        mean, square = memory
        mean[:] = REMEMBER[0] * mean + (1 - REMEMBER[0]) * g
        square[:] = REMEMBER[1] * square + (1 - REMEMBER[1]) * g * g
        way = (mean / (1 - REMEMBER[0] ** at)) / (np.sqrt(square / (1 - REMEMBER[1] ** at)) + 1e-30)
        assert step.beta is not None
        step.beta = np.maximum(step.beta + scale * (BETA_RATE / RATE) * rate * np.nan_to_num(way), 0.0)

    def _score(self, leaves: Sequence[Leaf], values: dict[int, Array]) -> None:
        """What the lines of each cell that can be decided lose at the point where the bound is attained."""
        found: list[list[tuple[float, int, int]]] = [[] for _ in leaves]
        for p, s in self.decided.items():
            a = self.dual.coefficients.get(p)
            if a is None:
                continue
            gathered = s.gathered([values[i] for i in s.sources])
            lost = np.abs(a) * np.abs(values[p] - self._true(s, gathered))
            if isinstance(s.relaxation, Kink):
                lost = lost + 0.25 * np.abs(np.minimum(a, 0.0)) * np.abs(s.lines.high_constant - s.lines.low_constant)
            lost = np.where(self._open(s), lost, 0.0).reshape(len(leaves), -1)
            for r, leaf in enumerate(leaves):
                for n, c, _ in leaf.decisions:
                    if n == p:
                        lost[r, c] = 0.0
                best = np.argsort(-lost[r])[:8]
                found[r] += [(float(lost[r, c]), p, int(c)) for c in best if lost[r, c] > 0]
        for r, leaf in enumerate(leaves):
            leaf.candidates = sorted(found[r], reverse=True)[:8]
            leaf.inputs = self._inputs(r) if self.few else []
            leaf.corner = [values[i][r] for i in self.net.inputs]

    def _inputs(self, r: int) -> list[tuple[int, int]]:
        """The cells of inputs, those first with which a row varies most."""
        found = []
        for i in self.net.inputs:
            if (a := self.dual.coefficients.get(i)) is not None:
                box = self.net.boxes[i]
                middle = box.lo / 2 + box.hi / 2
                apart = (box.lo < middle) & (middle < box.hi)  # else a part would be the whole again
                size = (np.abs(a[r].reshape(box.shape)) * (box.hi - box.lo) * apart).reshape(-1)
                found += [(float(size[c]), i, int(c)) for c in np.argsort(-size) if size[c] > 0]
        return [(i, c) for _, i, c in sorted(found, reverse=True)]

    def undecided(self, leaf: Leaf) -> tuple[int, int] | None:
        """A kink or a window that can still be decided, whatever is lost there; else the widest cell of few inputs."""
        done = {(node, cell) for node, cell, _ in leaf.decisions}
        for p, s in self.decided.items():
            for c in np.flatnonzero(self._open(s)).tolist():
                if (p, c) not in done:
                    return p, c
        boxes = [(i, self.net.boxes[i]) for i in self.net.inputs]
        apart = [(i, (b.hi - b.lo) * (b.lo < b.lo / 2 + b.hi / 2) * (b.lo / 2 + b.hi / 2 < b.hi)) for i, b in boxes]
        i, size = max(apart, key=lambda own: float(own[1].max(initial=0.0)))
        return (i, int(size.argmax())) if self.few and size.any() else None

    @staticmethod
    def _true(s: Decided, gathered: Sequence[Array]) -> Array:
        r = s.relaxation
        if isinstance(r, Kink):
            z = gathered[0][:, 0]
            return np.asarray(np.where(z < 0, r.left, r.right) * z)
        assert isinstance(r, Greatest)
        x = np.concatenate(list(gathered), 1)
        there = np.isfinite(r.ends[0])
        y: Array = np.where(there, x, -np.inf).max(1)
        return y if r.floor is None else np.maximum(y, 0.0)

    @staticmethod
    def _open(s: Decided) -> Array:
        r = s.relaxation
        if isinstance(r, Kink):
            return r.open
        assert isinstance(r, Greatest)
        floor = (r.levels[0] <= 0) & (r.floor is not None)
        count: Array = r.can_win().sum(1) + floor[:, 0]
        return count > 1

    def choices(self, node: int, cell: int) -> list[int]:
        """What can be decided there: together, the choices leave nothing out."""
        r = self.decided[node].relaxation
        if isinstance(r, Kink):
            return [0, 1]
        assert isinstance(r, Greatest)
        can = r.can_win()[0].reshape(-1, int(np.prod(r.taps[0].out)))[:, cell]
        found = [int(t) for t in np.flatnonzero(can)]
        if r.floor is not None and float(np.ravel(np.broadcast_to(r.levels[0], r.levels[1].shape))[cell]) <= 0:
            found.append(len(can))
        return found
