"""Graphs as pictures: an SVG without dependencies, the same bytes for the same graph.

Boxes lie in layers, every operator below what it reads. What a box reads across layers runs in a lane of its own, so no
line crosses a box. A tall picture is cut where one line holds it together, and goes on in the next column. Constants
are written into the box of the only operator that reads them, numbers into every box that does. Graphs that are too
large for a picture become a plain column of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import Any, Final

import numpy as np

from lunette.graph.nodes import Node, Nodes
from lunette.graph.text import line, options_of
from lunette.ops import ALL
from lunette.ops.derivative import Derivative

MOST_BOXES: Final = 400
MOST_LANES: Final = 12_000
LONGEST: Final = 34
"""Letters of a line in a box; the tooltip has the rest."""

GAP_X, GAP_Y, MARGIN, LANE = 20.0, 26.0, 18.0, 10.0
COLUMN_GAP, COLUMN_HEIGHT, ASPECT, WORTHWHILE = 64.0, 900.0, 1.1, 0.7
LETTER, BOLD, LINE, WIDTHS = 6.65, 7.7, 15.0, 24.0
"""Pixels: a small letter, a bold one, a line of a box; boxes have few different widths."""

COLOURS: Final = {
    "weights": "#2f6fdf",
    "pool": "#0d9488",
    "cells": "#8390a5",
    "reduce": "#8b5cf6",
    "layout": "#c2a878",
    "derivative": "#d64545",
    "input": "#f0b429",
    "constant": "#a3adbd",
    "output": "#37a169",
}
FAMILIES: Final = {
    "weights": ("conv", "conv_transpose", "matmul"),
    "reduce": ("sum", "mean", "max", "softmax", "log_softmax", "one_hot"),
    "layout": ("reshape", "transpose", "broadcast_to", "pad", "slice", "concat"),
}
STYLE: Final = """\
.ln-graph text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.ln-graph .name{font:600 13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
@media(prefers-color-scheme:dark){
.ln-graph .bg{fill:#12161f}.ln-graph .box{fill:#1b2130;stroke:#3a455c}.ln-graph .name{fill:#e8ecf4}
.ln-graph .type{fill:#9fb0cc}.ln-graph .more{fill:#7e8aa3}.ln-graph .edge{stroke:#63708a}
.ln-graph .arrow{fill:#63708a}}"""


# ---- what is drawn


@dataclass(slots=True)
class Box:
    """A node with the constants it alone reads, or an output of the graph. Without a family: a bend of a long line."""

    family: str = ""
    key: str = ""
    title: str = ""
    name: str = ""
    type: str = ""
    lines: list[str] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Of the box; its middle is at x."""
        if not self.family:
            return LANE
        head = BOLD * len(self.name) + 16 + LETTER * len(self.type)
        least = max(head, *(LETTER * len(t) for t in self.lines)) if self.lines else head
        return WIDTHS * ceil((26 + least) / WIDTHS)

    @property
    def height(self) -> float:
        """Of the box; its top is at y."""
        return 28 + LINE * len(self.lines) if self.family else 0.0


def to_svg(graph: Nodes) -> str:
    """A picture of a graph that needs nothing but a viewer.

    >>> import lunette as ln
    >>> g = ln.Graph()
    >>> g.output(ln.relu(g.input((2, 3), name="x")))
    >>> to_svg(g).count('<g class="node')
    3
    """
    boxes, edges = _boxes(graph)
    if not 0 < len(boxes) <= MOST_BOXES:
        return _column(graph)
    layout = _Layout(boxes, edges)
    return _column(graph) if layout.crowded else layout.picture(_caption(graph))


def _caption(graph: Nodes) -> str:
    what = {"node": len(graph.nodes), "input": len(graph.inputs), "output": len(graph.outputs)}
    return "graph of " + ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in what.items())


def _boxes(graph: Nodes) -> tuple[list[Box], list[tuple[int, int]]]:
    """Every box, in an order in which lines go from earlier to later ones, and the lines."""
    readers: list[set[int]] = [set() for _ in graph.nodes]
    for at, n in enumerate(graph.nodes):
        for i in n.inputs:
            if i is not None:
                readers[i].add(at)
    folds = [
        n.value is not None
        and at not in graph.outputs
        and (len(readers[at]) == 1 or bool(readers[at] and n.value.size == 1))
        for at, n in enumerate(graph.nodes)
    ]
    boxes: list[Box] = []
    edges: list[tuple[int, int]] = []
    place: dict[int, int] = {}
    for at, n in enumerate(graph.nodes):
        if folds[at]:
            continue
        place[at] = len(boxes)
        box = Box(_family(n), f"n{at}", _full(graph, at), n.name or "constant", n.short)
        if n.kind is not None:
            box.name = n.kind.name
            box.lines = list(_option_lines(n))
            names = _operand_names(n)
            for name, i in zip(names, n.inputs, strict=True):
                if i is not None and folds[i]:
                    box.lines.append(f"{name} {_constant(graph.nodes[i])}")
                    box.title += f"\n{_full(graph, i)}"
            edges += [(place[i], place[at]) for i in dict.fromkeys(n.inputs) if i is not None and not folds[i]]
        elif n.value is not None and n.value.size == 1:
            box.lines = [_number(n.value)]
        boxes.append(box)
    for k, at in enumerate(graph.outputs):
        name = "output" if len(graph.outputs) == 1 else f"output {k}"
        edges.append((place[at], len(boxes)))
        boxes.append(Box("output", f"o{k}", f"return %{at}", name, f"%{at}"))
    return boxes, edges


def _full(graph: Nodes, at: int) -> str:
    return f"%{at} : {graph.nodes[at].short} = {line(graph, at)}"


def _family(n: Node) -> str:
    if n.kind is None:
        return "input" if n.name is not None else "constant"
    if issubclass(n.kind, Derivative):
        return "derivative"
    known = next((family for family, names in FAMILIES.items() if n.kind.name in names), None)
    return known or ("pool" if n.kind in ALL else "cells")


def _operand_names(n: Node) -> Sequence[str]:
    assert n.kind is not None
    if len(n.kind.arrays) == len(n.inputs):
        return n.kind.arrays
    return [f"x{i}" for i in range(len(n.inputs))]


def _option_lines(n: Node) -> Iterator[str]:
    """The options that are not as the operator has them by default, as many to a line as fit."""
    assert n.kind is not None
    words = [
        name if value is True else f"{name} {_short(value)}"
        for (name, default), value in zip(options_of(n.kind).items(), n.options, strict=True)
        if name not in ("spatial", "dtype") and not (value == default and type(value) is type(default))
    ]
    row = ""
    for word in words:
        if row and len(row) + 3 + len(word) > LONGEST:
            yield row
            row = ""
        row = _cut(f"{row} · {word}" if row else word)
    if row:
        yield row


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return (
            f"({','.join(map(_short, value))})"
            if any(isinstance(v, tuple) for v in value)
            else "x".join(map(_short, value))
        )
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _constant(n: Node) -> str:
    assert n.value is not None
    return _number(n.value) if n.value.size == 1 else n.short


def _number(value: Any) -> str:
    return _short(np.asarray(value).reshape(()).item())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ---- where it is drawn


class _Layout:
    """Layers, the order within each, coordinates, columns; then the lines."""

    def __init__(self, boxes: list[Box], edges: list[tuple[int, int]]) -> None:
        self.boxes = boxes
        self.real = len(boxes)
        self.edges = edges
        self.crowded = False
        self._layer()
        self._lanes()
        if self.crowded:
            return
        self._order()
        self._align()
        self._place()
        self._columns()

    def _layer(self) -> None:
        """As early as the longest path allows; then down to the readers, where that makes the lines shorter."""
        boxes = self.boxes
        self.height = [0] * self.real
        readers: list[list[int]] = [[] for _ in boxes]
        reads: list[list[int]] = [[] for _ in boxes]
        for a, b in self.edges:
            boxes[b].layer = max(boxes[b].layer, boxes[a].layer + 1)
            readers[a].append(b)
            reads[b].append(a)
        self.depth = [box.layer for box in boxes]
        for a in range(self.real - 1, -1, -1):
            loose = all(len(readers[u]) == 1 for u in reads[a])  # what it reads can come along
            if readers[a] and (loose or len(readers[a]) > len(reads[a])):
                boxes[a].layer = min(boxes[b].layer for b in readers[a]) - 1
            self.height[a] = max((self.height[b] + 1 for b in readers[a]), default=0)

    def _lanes(self) -> None:
        """A line over several layers bends in each of them; lines from one box share their way as far as they can."""
        boxes = self.boxes
        last: dict[int, int] = {}
        for a, b in self.edges:
            last[a] = max(last.get(a, 0), boxes[b].layer)
        self.crowded = sum(bottom - boxes[a].layer - 1 for a, bottom in last.items()) > MOST_LANES
        if self.crowded:
            return
        self.trunk: dict[int, list[int]] = {}
        self.parts: list[tuple[int, int]] = []
        for a, bottom in last.items():
            way = [a]
            for layer in range(boxes[a].layer + 1, bottom):
                boxes.append(Box(layer=layer))
                self.parts.append((way[-1], len(boxes) - 1))
                way.append(len(boxes) - 1)
            self.trunk[a] = way
        for a, b in self.edges:
            self.parts.append((self.trunk[a][boxes[b].layer - boxes[a].layer - 1], b))

    def _order(self) -> None:
        """Sweeps that put every box at the mean of its neighbours; the order with the fewest crossings stays."""
        count = 1 + max((b.layer for b in self.boxes), default=0)
        layers: list[list[int]] = [[] for _ in range(count)]
        for at, box in enumerate(self.boxes):
            layers[box.layer].append(at)
        above: list[list[int]] = [[] for _ in self.boxes]
        below: list[list[int]] = [[] for _ in self.boxes]
        for a, b in self.parts:
            above[b].append(a)
            below[a].append(b)
        self.above, self.below = above, below
        best, least = [list(row) for row in layers], self._crossings(layers)
        for sweep in range(16):
            if least == 0:
                break
            rows, near = (range(1, count), above) if sweep % 2 == 0 else (range(count - 2, -1, -1), below)
            for r in rows:
                place = {
                    v: p for row in (layers[r - 1] if near is above else layers[r + 1],) for p, v in enumerate(row)
                }
                means = {
                    v: sum(place[u] for u in near[v]) / len(near[v]) if near[v] else float(p)
                    for p, v in enumerate(layers[r])
                }
                layers[r].sort(key=means.__getitem__)
            if (found := self._crossings(layers)) < least:
                best, least = [list(row) for row in layers], found
        self.layers = best

    def _crossings(self, layers: list[list[int]]) -> int:
        place = {v: p for row in layers for p, v in enumerate(row)}
        total = 0
        for row in layers:
            ends = [place[b] for a in row for b in sorted(self.below[a], key=place.__getitem__)]
            total += _inversions(ends)
        return total

    def _align(self) -> None:
        """Lanes and main paths become straight blocks: no two of their lines cross, and none forks."""
        boxes = self.boxes
        place = {v: p for row in self.layers for p, v in enumerate(row)}
        up: dict[int, int] = {}
        down: dict[int, int] = {}

        first: dict[int, int] = {}
        for a, b in self.edges:
            first.setdefault(b, a)

        def rank(part: tuple[int, int]) -> tuple[int, int, int, int]:
            a, b = part
            lanes = (a >= self.real) + (b >= self.real)
            main = lanes == 0 and boxes[a].family not in ("input", "constant")
            kind = 0 if lanes == 2 else 1 if main else 2 if first.get(b) == a else 3
            longest = (self.depth[a] if a < self.real else 0) + (self.height[b] if b < self.real else 0)
            return kind, -longest, a, b

        taken: list[list[tuple[int, int]]] = [[] for _ in self.layers]
        for a, b in sorted(self.parts, key=rank):
            p, q = place[a], place[b]
            if a in down or b in up or any((p - s) * (q - t) < 0 for s, t in taken[boxes[a].layer]):
                continue
            down[a], up[b] = b, a
            taken[boxes[a].layer].append((p, q))
        self.head: dict[int, int] = {}  # of the block that a box belongs to
        for row in self.layers:
            for v in row:
                self.head[v] = self.head[up[v]] if v in up else v

    def _place(self) -> None:
        """Blocks side by side, in the order of their boxes; then each towards the middle of what it is joined to."""
        boxes, head = self.boxes, self.head
        left: dict[int, dict[int, float]] = {h: {} for h in head.values()}
        right: dict[int, dict[int, float]] = {h: {} for h in head.values()}
        for row in self.layers:
            for a, b in pairwise(row):
                apart = (boxes[a].width + boxes[b].width) / 2 + (GAP_X if a < self.real or b < self.real else LANE / 2)
                p, q = head[a], head[b]
                left[q][p] = right[p][q] = max(apart, left[q].get(p, 0.0))
        joined: dict[int, list[int]] = {h: [] for h in head.values()}
        for a, b in self.parts:
            if head[a] != head[b]:
                joined[head[a]].append(head[b])
                joined[head[b]].append(head[a])
        order = _sorted_blocks(left, right)
        x: dict[int, float] = {}
        for h in order:
            x[h] = max((x[p] + apart for p, apart in left[h].items()), default=0.0)
        for sweep in range(24):
            for h in order if sweep % 2 else reversed(order):
                if joined[h]:
                    wanted = sorted(x[k] for k in joined[h])
                    middle = (wanted[(len(wanted) - 1) // 2] + wanted[len(wanted) // 2]) / 2
                    low = max((x[p] + apart for p, apart in left[h].items()), default=-inf)
                    high = min((x[q] - apart for q, apart in right[h].items()), default=inf)
                    x[h] = max(low, min(high, middle))
        for v, h in head.items():
            boxes[v].x = x[h]

    def _columns(self) -> None:
        """Rows from the top down; where a single line joins two rows, the second may begin a new column."""
        boxes, layers = self.boxes, self.layers
        heights = [max(boxes[v].height for v in row) for row in layers]
        joins: list[list[tuple[int, int]]] = [[] for _ in layers]
        for part in self.parts:
            joins[boxes[part[0]].layer].append(part)
        free = [r for r, part in enumerate(joins) if len(part) == 1 and max(part[0]) < self.real]
        bends = [sum(boxes[a].x != boxes[b].x for a, b in part) for part in joins]
        gaps = [GAP_Y + min(2.0 * n, 40.0) for n in bends]
        rows = [h + gap for h, gap in zip(heights, gaps, strict=True)]
        whole = sum(rows)
        left = min(boxes[v].x - boxes[v].width / 2 for v in range(len(boxes)))
        right = max(boxes[v].x + boxes[v].width / 2 for v in range(len(boxes)))
        wanted = round(sqrt(ASPECT * whole / (right - left + COLUMN_GAP))) if whole > COLUMN_HEIGHT else 1
        cuts = _even_cuts(rows, set(free), max(wanted, 1))
        self.jumps: list[tuple[int, int, float]] = []
        x = MARGIN
        self.full = 0.0
        for first, stop in zip([0, *cuts], [*cuts, len(layers)], strict=True):
            inside = [v for row in layers[first:stop] for v in row]
            shift = x - min(boxes[v].x - boxes[v].width / 2 for v in inside)
            y = MARGIN
            for r in range(first, stop):
                for v in layers[r]:
                    boxes[v].x += shift
                    boxes[v].y = y
                y += rows[r]
            if first:
                self.jumps.append((*joins[first - 1][0], x - COLUMN_GAP / 2))
            x = max(boxes[v].x + boxes[v].width / 2 for v in inside) + COLUMN_GAP
            self.full = max(self.full, y - gaps[stop - 1] + MARGIN)
        self.across = x - COLUMN_GAP + MARGIN
        self.bottoms = heights
        if self.jumps:
            self.full += GAP_Y / 2

    # ---- lines

    def picture(self, caption: str) -> str:
        """The SVG."""
        jumped = {(a, b) for a, b, _ in self.jumps}
        lines = [self._jump(a, b, x) for a, b, x in self.jumps]
        tips = [(self.boxes[b].x, self.boxes[b].y) for _, b, _ in self.jumps]
        for way in self.trunk.values():
            lines += [self._curve(p, q, self.boxes[q].x) for p, q in pairwise(way)]
        for a, b in self.edges:
            p = self.trunk[a][self.boxes[b].layer - self.boxes[a].layer - 1]
            if (p, b) not in jumped:
                tips.append((self._port(b, p, self.above[b]), self.boxes[b].y))
                lines.append(self._curve(p, b, tips[-1][0]))
        paths = "".join(f'<path d="{d}"/>' for d in lines)
        arrows = "".join(f"M{x:.1f} {y:.1f}l-3.6 -6.5h7.2z" for x, y in tips)
        drawn = [_draw(box) for box in self.boxes[: self.real]]
        return "\n".join(
            [
                *_opening(self.across, self.full, caption),
                f'<g class="edges"><g class="edge" fill="none" stroke="#9aa7bd" stroke-width="1.4">{paths}</g>'
                f'<path class="arrow" fill="#9aa7bd" d="{arrows}"/></g>',
                *drawn,
                "</svg>",
            ]
        )

    def _port(self, box: int, other: int, all_of: Sequence[int]) -> float:
        """Where the line to or from another box touches this one: in the middle if it is straight, else to the side."""
        here, boxes = self.boxes[box], self.boxes
        if boxes[other].x == here.x or len(all_of) == 1:
            return here.x
        ordered = sorted(set(all_of), key=lambda v: (boxes[v].x, v))
        step = min(18.0, (here.width - 24) / max(len(ordered), 1))
        straight = next((p for p, v in enumerate(ordered) if boxes[v].x == here.x), (len(ordered) - 1) / 2)
        middle = max(-here.width / 2 + 12, min(here.width / 2 - 12, (ordered.index(other) - straight) * step))
        return here.x + middle

    def _curve(self, a: int, b: int, end: float) -> str:
        top, bottom = self.boxes[a], self.boxes[b]
        start = self._port(a, b, self.below[a]) if a < self.real else top.x
        y0, y1 = top.y + top.height, bottom.y
        edge = top.y + self.bottoms[top.layer]  # below all boxes of the layer: the way is free
        if start == end:
            return f"M{start:.1f} {y0:.1f}V{y1:.1f}"
        middle = (edge + y1) / 2
        fall = f"V{edge:.1f}" if edge > y0 else ""
        return f"M{start:.1f} {y0:.1f}{fall}C{start:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {y1:.1f}"

    def _jump(self, a: int, b: int, x: float) -> str:
        """From the foot of one column to the head of the next."""
        top, bottom = self.boxes[a], self.boxes[b]
        y0, y1 = top.y + top.height, bottom.y
        low, high, r = self.full - MARGIN * 0.6, MARGIN * 0.45, 7.0
        low = min(low, y0 + GAP_Y * 0.6)
        return (
            f"M{top.x:.1f} {y0:.1f}V{low - r:.1f}q0 {r} {r} {r}H{x - r:.1f}q{r} 0 {r} -{r}V{high + r:.1f}"
            f"q0 -{r} {r} -{r}H{bottom.x - r:.1f}q{r} 0 {r} {r}V{y1:.1f}"
        )


def _inversions(values: Sequence[int]) -> int:
    """How many pairs stand in the wrong order: lines that cross."""
    if len(values) < 2:
        return 0
    size = max(values) + 1
    tree = [0] * (size + 1)
    total = 0
    for seen, v in enumerate(values):
        smaller, i = 0, v + 1
        while i:
            smaller += tree[i]
            i &= i - 1
        total += seen - smaller
        i = v + 1
        while i <= size:
            tree[i] += 1
            i += i & -i
    return total


def _sorted_blocks(left: dict[int, dict[int, float]], right: dict[int, dict[int, float]]) -> list[int]:
    """Every block behind those on its left."""
    waiting = {h: len(before) for h, before in left.items()}
    ready = sorted((h for h, n in waiting.items() if n == 0), reverse=True)
    order: list[int] = []
    while ready:
        h = ready.pop()
        order.append(h)
        for q in right[h]:
            waiting[q] -= 1
            if waiting[q] == 0:
                ready.append(q)
    return order


def _even_cuts(heights: Sequence[float], free: set[int], columns: int) -> list[int]:
    """The rows that begin a column, so that the tallest of at most so many columns is as low as can be."""

    def fill(limit: float) -> list[int] | None:
        cuts: list[int] = []
        begin, last = 0, -1
        used = upto = 0.0  # of this column, and of it up to the last place where it may end
        for r, h in enumerate(heights):
            if used + h > limit and last >= begin:
                cuts.append(last + 1)
                begin = last + 1
                used -= upto
                last = -1
            used += h
            if r in free:
                last, upto = r, used
            if used > limit:
                return None
        return cuts if len(cuts) < columns else None

    whole = sum(heights)
    for step in range(1, 501):
        if (found := fill(whole * WORTHWHILE * step / 500)) is not None:
            return found
    return []


# ---- pens


def _opening(width: float, height: float, caption: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ln-graph" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(caption)}</title><style>{STYLE}</style>",
        f'<rect class="bg" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]


def _draw(box: Box) -> str:
    colour = COLOURS[box.family]
    x, y, w, h = box.x - box.width / 2, box.y, box.width, box.height
    pill = box.family in ("input", "output")
    radius = 14 if pill else 6
    dash = ' stroke-dasharray="4 3"' if box.family == "constant" else ""
    stroke = colour if pill else "#c9d1de"
    style = f' style="stroke:{colour}"' if pill else ""
    body = f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius}" '
    parts = [
        f'<g class="node {box.family}" data-node="{box.key}"><title>{escape(box.title)}</title>',
        f'{body}fill="#fcfdff" stroke="{stroke}"{dash}{style}/>',
    ]
    if pill:
        parts.append(f'<circle cx="{x + 13:.1f}" cy="{y + 14:.1f}" r="3.5" fill="{colour}"/>')
    elif box.family != "constant":
        parts.append(
            f'<rect x="{x + 6:.1f}" y="{y + 7:.1f}" width="3" height="{h - 14:.1f}" rx="1.5" fill="{colour}"/>'
        )
    left, right = x + (22 if pill else 15), x + w - 11
    parts.append(f'<text class="name" x="{left:.1f}" y="{y + 18.5:.1f}" fill="#1c2433">{escape(box.name)}</text>')
    place = f'x="{right:.1f}" y="{y + 18.5:.1f}" text-anchor="end"'
    parts.append(f'<text class="type" {place} fill="#5b6b85">{escape(box.type)}</text>')
    for row, text in enumerate(box.lines):
        parts.append(
            f'<text class="more" x="{left:.1f}" y="{y + 34 + LINE * row:.1f}" fill="#76839a">{escape(text)}</text>'
        )
    return "".join([*parts, "</g>"])


def _column(graph: Nodes) -> str:
    """One line per node, in order."""
    rows = [(f"n{at}", _family(n), _full(graph, at)) for at, n in enumerate(graph.nodes)]
    rows.append(("o0", "output", f"return {', '.join(f'%{i}' for i in graph.outputs)}"))
    most = 110
    width = 2 * MARGIN + 18 + LETTER * min(most, max(len(text) for _, _, text in rows))
    drawn = []
    for row, (key, family, text) in enumerate(rows):
        y = MARGIN + 17 * row
        shown = text if len(text) <= most else text[: most - 1] + "…"
        drawn.append(
            f'<g class="node {family}" data-node="{key}"><title>{escape(text)}</title>'
            f'<rect x="{MARGIN}" y="{y + 1:.0f}" width="4" height="13" rx="2" fill="{COLOURS[family]}"/>'
            f'<text class="type" x="{MARGIN + 14}" y="{y + 12:.0f}" fill="#3d4a60">{escape(shown)}</text></g>'
        )
    return "\n".join([*_opening(width, 2 * MARGIN + 17 * len(rows), _caption(graph)), *drawn, "</svg>"])
