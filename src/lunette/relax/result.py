"""What `ln.bounds` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from lunette.certificate.certificate import Certificate, CertificateError, certificate_of
from lunette.errors import ArgumentError, error_context
from lunette.graph.graph import Graph
from lunette.graph.program import Program
from lunette.number import Array, Interval
from lunette.page import Page, bar, inset, written
from lunette.relax.report import POINTS, STEPS, to_html


@dataclass(frozen=True, slots=True)
class Asked:
    """What bounds are of: the graph and its boxes or points; and, of improved lines, how to find them again."""

    graph: Graph
    boxes: Sequence[Array | Interval]
    lines: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Proven bounds of an output, or of rows of it: lo <= the value <= hi for every point of the box."""

    lo: Array
    hi: Array
    method: str
    alone: Interval
    """What the method proves by itself; lo and hi are the best of it and of the weaker methods."""
    boxes: dict[int, Interval] = field(repr=False)
    """The proven boxes of the nodes of `graph`, by their number."""
    graph: Graph = field(repr=False)
    """The function as it was bounded: in float64, points folded away."""
    rows: Array | None = field(default=None, repr=False)
    semantics: str = "real"
    stopped: str = ""
    """Why it ended early, if it did: what had been proven by then holds nevertheless."""
    seconds: float = 0.0
    plain: dict[int, Interval] = field(default_factory=dict, repr=False)
    """The boxes by intervals alone."""
    sensitivity: dict[str, Array] = field(default_factory=dict, repr=False)
    """For every input, how much of the width each cell makes: coefficients times widths, averaged over the rows."""
    winners: dict[int, Array] = field(default_factory=dict, repr=False)
    """For every maximum, how many cells can win each window."""
    methods: dict[str, Interval] = field(default_factory=dict, repr=False)
    """What the method and each weaker one prove by themselves."""
    each: tuple[Bounds, ...] = field(default=(), repr=False)
    """Of a batch, the bounds of every box; all arrays have an axis for them in front."""
    asked: Asked | None = field(default=None, repr=False)

    @property
    def width(self) -> Array:
        """How far apart the bounds are."""
        return np.asarray(self.hi - self.lo)

    def values(self, points: int = POINTS, steps: int = STEPS, seed: int = 0) -> tuple[Array, Array]:
        """The least and the greatest value of each row that was found: at random points, corners, and by ascent.

        These are values in float64, not bounds: what is proven lies outside of them.
        """
        if self.each:
            least_of, greatest_of = zip(*(b.values(points, steps, seed) for b in self.each), strict=True)
            return np.stack(least_of), np.stack(greatest_of)
        rng, program = np.random.default_rng(seed), Program(self.graph)
        boxes = [self.boxes[at] for at in self.graph.input_ids()]
        cells = self.boxes[self.graph.outputs[0]].lo.size
        rows = np.eye(cells) if self.rows is None else self.rows
        least, greatest = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)

        def look(x: list[Array]) -> None:
            y = rows @ np.asarray(program(*x)).reshape(-1)
            np.minimum(least, y, out=least)
            np.maximum(greatest, y, out=greatest)

        for k in range(points):
            shares = [rng.random(b.shape) if k % 2 else rng.integers(0, 2, b.shape) for b in boxes]
            look([b.lo + (b.hi - b.lo) * s for b, s in zip(boxes, shares, strict=True)])
        for row in rows if boxes else ():
            for sign in (1.0, -1.0):
                x = [b.lo / 2 + b.hi / 2 for b in boxes]
                for _ in range(steps):
                    y, pullback = program.vjp(*x)
                    slopes = pullback((sign * row).reshape(np.shape(y)))
                    x = [np.where(s > 0, b.hi, b.lo) for s, b in zip(slopes, boxes, strict=True)]
                    look(x)
        return least, greatest

    def certificate(self) -> Certificate:
        """A file that proves bounds like these in exact integers; `lo` and `hi` of it are those that it proves.

        They are the checker's own: of the same method, with lines of the same kind, and in general not the same floats.
        """
        self._one("certificate()")
        assert self.asked is not None
        with error_context("certificate"):
            ends = [(b.lo, b.hi) if isinstance(b, Interval) else (b, b) for b in self.asked.boxes]
            for lo, hi in ends:
                if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
                    raise CertificateError("CE4", "finite boxes", "an infinite end", "Certificates are of numbers.")
            return certificate_of(self.asked.graph, ends, self.rows, self.method, self.semantics, self.asked.lines)

    def _one(self, what: str) -> None:
        """Rule Z7."""
        if self.each:
            got = f"a batch of {len(self.each)} boxes"
            raise ArgumentError("Z7", "bounds of one box", got, f"b.each[0].{what} is about the first.", who="bounds")

    def to_html(self, path: str | Path | None = None) -> Page:
        """A page about them, which needs no other file; written to `path` if it is given."""
        self._one("to_html()")
        return written(to_html(self), path)

    def _repr_html_(self) -> str:
        """What notebooks show: a bar from lo to hi for every row, the first ones of many."""
        lo, hi = (np.asarray(a, np.float64).ravel() for a in (self.lo, self.hi))
        ends = np.concatenate([lo, hi])
        ends = ends[np.isfinite(ends)]
        least, most = (float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)
        span = (most - least) or 1.0
        rows = []
        for at, (a, b) in enumerate(zip(lo[:MOST_ROWS], hi[:MOST_ROWS], strict=True)):
            start, stop = ((min(max(float(v), least), most) - least) / span for v in (a, b))
            sign = "above 0" if a > 0 else "below 0" if b < 0 else ""
            rows.append((str(at), bar(start, stop - start), f"{a:.6g}", f"{b:.6g}", f"{b - a:.3g}", sign))
        more = f"<p>and {len(lo) - MOST_ROWS} more</p>" if len(lo) > MOST_ROWS else ""
        words = f"{self.method}, {self.seconds:.2f} s" + (f", stopped: {escape(self.stopped)}" if self.stopped else "")
        return f"<div><p>{words}</p>{inset(('row', '', 'lo', 'hi', 'width', 'proven'), rows)}{more}</div>"


MOST_ROWS = 24
"""Of bounds that a notebook shows."""


def joined(each: Sequence[Bounds], graph: Graph, method: str, rows: Array | None, semantics: str) -> Bounds:
    """The bounds of a batch of boxes."""
    shape = graph.nodes[graph.outputs[0]].shape if rows is None else (len(rows),)
    nothing = np.zeros((0, *shape))

    def boxes(of: Sequence[Interval]) -> Interval:
        return Interval.between(np.stack([b.lo for b in of]), np.stack([b.hi for b in of]))

    def together(of: Sequence[Mapping[Any, Any]], join: Any) -> dict[Any, Any]:
        keys = [k for k in of[0] if all(k in own for own in of)] if of else []
        return {k: join([own[k] for own in of]) for k in keys}

    return Bounds(
        np.stack([b.lo for b in each]) if each else nothing,
        np.stack([b.hi for b in each]) if each else nothing,
        method,
        boxes([b.alone for b in each]) if each else Interval.between(nothing, nothing),
        together([b.boxes for b in each], boxes),
        graph,
        rows,
        semantics,
        next((b.stopped for b in each if b.stopped), ""),
        plain=together([b.plain for b in each], boxes),
        sensitivity=together([b.sensitivity for b in each], np.stack),
        winners=together([b.winners for b in each], np.stack),
        methods=together([b.methods for b in each], boxes),
        each=tuple(each),
    )
