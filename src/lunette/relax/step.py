"""One node of a network between bounds: what its coefficients become, and what they cost.

A step takes coefficients `a` of its result h, (rows, *shape), to coefficients g of each node p that it reads, so that

    a . h  >=  sum of g_p . h_p  +  a+ . low  +  a- . high  -  |a| . error                                          (1)

for every point of the box, a+ and a- the positive and the negative part of a. That is the bracket of weak duality. The
arrays low, high and error do not depend on a, and |a| . error = a+ . error - a- . error: with least = low - error and
most = high + error, rigour costs nothing.

- **linear** operators: h = W h_p + c. g is the VJP of a, by the compiled kernel, which promises |g - W^T a| <=
  gamma(h)*|W|^T|a| + underflow; so (W^T a - g) . h_p >= -gamma(h) * |a| . |W||h_p|, and |W||h_p| is at most half the
  width of the operator's interval at [-X, X], X the greatest magnitudes in the box of p. low and high are the ends of
  c, the interval of the operator at zero. Weights that are known to be in an interval only (a folded square root) are
  taken at a centre, and their radius times X is part of the error.
- operators with **lines** (lunette.lines): g = a+ * low slopes + a- * high slopes, gathered back to the cells; each
  product and sum is rounded, at most `terms` + 2 times.
- all others: nothing is pulled, and low and high are the ends of the box of h.

Dot products with least and most are computed in any order: their rounding, gamma(n + 3) * |a| . |least|, is part of the
error, too (`outward`). `slack` allows for underflow, which is additive. In the semantics of floats, h itself is off by
at most `rounding` (lunette.relax.floats), which is part of the error as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from lunette.arithmetic.error import height
from lunette.graph.nodes import Node
from lunette.graph.rows import by_rows
from lunette.lines import GROW, TINY, Lines, Parameters, Relaxation, gamma
from lunette.number import Array, Interval
from lunette.op import KERNEL, apply
from lunette.rules import Interpretation

Boxes = Sequence[Interval | None]

RELAX = Interpretation("relax", "lines for ln.bounds, without which its interval has to do")
RELAX.way("own rule", lambda kind: kind.tells("relax"))
RELAX.way("of the operators that it is made of", lambda kind: kind.tells("parts"))
RELAX.way("derived: linear, by its VJP", lambda kind: kind.jointly_linear or kind.linear_in)


def magnitude(box: Interval) -> Array:
    """The greatest absolute value of every cell."""
    return np.asarray(np.maximum(np.abs(box.lo), np.abs(box.hi)))


def around(radius: Array) -> Interval:
    """All that is no farther from zero. NumPy makes numbers of arrays without axes, which are no boxes."""
    return Interval.between(np.asarray(-radius), np.asarray(radius))


def outward(low: Array, high: Array, error: Array) -> tuple[Array, Array]:
    """Ends, rows of n cells, that are `error` farther out, and by what sums of n products with them can be off by.

    A sum with the new ends l is off by gamma(n + 3) * |a| . |l|, and |l| <= the greater of |low| and |high|, plus the
    error: a part of the error so small that GROW, applied once more, holds it. Errors may have underflowed when they
    were computed.
    """
    n = prod(low.shape[1:])
    with np.errstate(all="ignore"):
        all_errors = (error + gamma(n + 5) * np.maximum(np.abs(low), np.abs(high)) + 4 * TINY) * GROW * GROW
        return np.nextafter(low - all_errors, -np.inf), np.nextafter(high + all_errors, np.inf)


class Step(ABC):
    """See above; `sources` are the nodes that vary among those it reads, each once for every time it is read."""

    sources: tuple[int, ...]
    least: Array
    """(1 or rows, *shape): low - error."""
    most: Array
    """high + error."""
    slack: float
    beside: Any = 0.0
    """What the last pull may be off by more than that, per row."""

    def __init__(self, sources: Sequence[int], rounding: Any = 0.0) -> None:
        self.sources, self.rounding = tuple(sources), rounding

    def settle(self, low: Array, high: Array, error: Array, beside: float) -> None:
        """Fill in the arrays; `beside` is the sum of the magnitudes of what is read, times the terms of a pull."""
        self.least, self.most = outward(low, high, error + self.rounding)
        self.slack = TINY * 4 * (prod(low.shape[1:]) + beside + 1)

    @abstractmethod
    def pull(self, a: Array) -> list[Array]:
        """The coefficients of the sources."""

    @abstractmethod
    def push(self, cells: Sequence[Array], plus: Array) -> Array:
        """What the right side of (1) grows by with a, at values of the sources, (rows, *shape); for improving lines."""


def _adds_up(node: Node) -> bool:
    """Whether a node is a sum of products, of operands alone: padding, say, may have cells that are an option."""
    return node.resolved is not None and node.op.terms(node.resolved.shapes) is not None


class Linear(Step):
    """An operator that is linear in what varies."""

    def __init__(self, node: Node, moving: Sequence[bool], boxes: Boxes, rounding: Any = 0.0) -> None:
        super().__init__([i for i, m in zip(node.inputs, moving, strict=True) if m and i is not None], rounding)
        assert node.kind is not None
        kind, options = node.kind, node.options
        self.places = [p for p, m in enumerate(moving) if m]
        self.kind, self.options, self.moving, self.resolved = kind, options, moving, node.resolved
        self.shapes = [b.shape for b, m in zip(boxes, moving, strict=True) if m and b is not None]

        def interval(change: Callable[[int, Interval], Any]) -> Interval:
            operands = [None if b is None else change(p, b) for p, b in enumerate(boxes)]
            return Interval.of(apply(kind, operands, "interval", *options))

        added = [b for p, b in enumerate(boxes) if b is not None and not moving[p] and p in kind.jointly_linear]
        if _adds_up(node) and not any(b.lo.any() or b.hi.any() for b in added):
            zero = around(np.zeros(node.shape))  # a sum of products to which nothing is added
        else:
            zero = interval(lambda p, b: np.zeros(b.shape) if moving[p] else b)
        reach = interval(lambda p, b: around(magnitude(b)) if moving[p] else b)
        cells = prod(node.shape)
        with np.errstate(all="ignore"):
            size = (reach.hi - reach.lo) / 2
            # Without a kernel, the VJP is that of the specification, which adds one term after the other.
            error = gamma((height(cells) if KERNEL.has(kind) else cells) + 4) * size
            read = sum(float(magnitude(b).sum()) for b, m in zip(boxes, moving, strict=True) if m and b is not None)
        self.centres: list[Any] = []
        for p, b in enumerate(boxes):
            self.centres.append(
                None if b is None else b.lo if b.lo is b.hi or moving[p] else np.asarray(b.lo / 2 + b.hi / 2)
            )
            if b is not None and not moving[p] and p in kind.linear_in and (b.lo != b.hi).any():
                c = self.centres[p]
                radius = np.nextafter(np.maximum(b.hi - c, c - b.lo), np.inf)

                def uncertain(q: int, v: Interval, p: int = p, radius: Array = radius) -> Any:
                    if q != p and not moving[q]:
                        return np.zeros(v.shape)
                    reach = radius if q == p else magnitude(v)
                    return around(reach)

                error = error + magnitude(interval(uncertain))
        self.settle(zero.lo[None], zero.hi[None], error[None], read * (cells + 4))

    def pull(self, a: Array) -> list[Array]:
        def part(wrt: int) -> Array:
            g: Array = by_rows(lambda rows: self.kind.pull(self.options, self.centres, None, rows, wrt), a)
            return g

        return [part(wrt) for wrt in self.places]

    def push(self, cells: Sequence[Array], plus: Array) -> Array:
        def f(*rows: Any) -> Any:
            found = iter(rows)
            own = [next(found) if m else v for v, m in zip(self.centres, self.moving, strict=True)]
            return apply(self.kind, own, "fast", *self.options)

        y: Array = by_rows(f, *cells)
        return y


class Relaxed(Step):
    """An operator with lines; with parameters, lines of each row's own."""

    def __init__(
        self, sources: Sequence[int], relaxation: Relaxation, boxes: Sequence[Interval], rounding: Any = 0.0
    ) -> None:
        super().__init__(sources, rounding)
        self.relaxation = relaxation
        self.sizes = [t.gather(magnitude(b)[None], 0.0) for t, b in zip(relaxation.taps, boxes, strict=True)]
        self.read = sum(float(magnitude(b).sum()) for b in boxes)
        self.parameters: Parameters | None = None
        self.choose(None)

    def lines_for(self, parameters: Parameters | None) -> Lines:
        """The lines of these parameters."""
        return self.relaxation.lines(parameters)

    def choose(self, parameters: Parameters | None) -> None:
        """Take the lines of these parameters."""
        self.parameters = parameters
        self.lines: Lines = self.lines_for(parameters)
        error: Any = 0.0
        terms = 0
        for t, low, high, size in zip(self.relaxation.taps, self.lines.low, self.lines.high, self.sizes, strict=True):
            terms = max(terms, t.terms)
            error = error + gamma(t.terms + 2) * (np.maximum(np.abs(low), np.abs(high)) * size).sum(1)
        low, high = self.lines.low_constant, self.lines.high_constant
        shape = np.broadcast_shapes(low.shape, high.shape, np.shape(error))
        low, high, error = (np.broadcast_to(v, shape) for v in (low, high, error))
        self.settle(low, high, error, self.read * (terms + 2))

    def pull(self, a: Array) -> list[Array]:
        parts = zip(self.relaxation.taps, self.lines.low, self.lines.high, strict=True)
        return [t.scatter(a, low, high) for t, low, high in parts]

    def gathered(self, cells: Sequence[Array]) -> list[Array]:
        """The cells that each tap reads."""
        return [t.gather(x, 0.0) for t, x in zip(self.relaxation.taps, cells, strict=True)]

    def push(self, cells: Sequence[Array], plus: Array) -> Array:
        lines, up = self.lines, plus > 0
        y: Any = np.where(up, lines.low_constant, lines.high_constant)
        for x, low, high in zip(self.gathered(cells), lines.low, lines.high, strict=True):
            y = y + np.where(up, (low * x).sum(1), (high * x).sum(1))
        return np.asarray(y)


class Enclosed(Step):
    """An operator of which nothing but its box is known."""

    def __init__(self, box: Interval) -> None:
        super().__init__(())
        self.settle(box.lo[None], box.hi[None], np.zeros((1, *box.shape)), 0.0)

    def pull(self, a: Array) -> list[Array]:
        return []

    def push(self, cells: Sequence[Array], plus: Array) -> Array:
        return np.where(plus > 0, self.least, self.most)
