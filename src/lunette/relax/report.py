"""A page about bounds: where the width arises, what the inputs have to do with it, and how far points really go."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from lunette.number import Array
from lunette.page import Section, page, ranges, table, tile

Bounds = Any  # of lunette.relax.result, which has this page as a method

POINTS = 64
STEPS = 10
MOST_ROWS = 40
MOST_LAYERS = 200


def to_html(b: Bounds) -> str:
    """The whole page."""
    shown = b.values()
    lo, hi = b.lo.reshape(-1), b.hi.reshape(-1)
    facts = [
        ("method", b.method),
        ("semantics", b.semantics),
        ("widest", f"{float(np.max(hi - lo, initial=0)):.4g}"),
        ("least lower bound", f"{float(np.min(lo, initial=np.inf)):.4g}"),
        ("seconds", f"{b.seconds:.2f}"),
    ]
    sections = [
        Section("rows", "Bounds and values", _ROWS.format(POINTS, STEPS), _rows(b, *shown)),
        Section("layers", "Width of every layer", _LAYERS, _layers(b)),
        Section("windows", "Windows that lose most", _WINDOWS, _windows(b)),
        Section("inputs", "Sensitivity of the inputs", _INPUTS, _inputs(b)),
    ]
    if b.stopped:
        facts.append(("stopped", b.stopped))
    words = "Proven for every point of the box."
    return page("Bounds", words, facts, [s for s in sections if s.body], "lunette.bounds", style=_STYLE)


_STYLE = ":root{--faint:#d3dae6;--pale:#a9c5f5}@media(prefers-color-scheme:dark){:root{--faint:#3a465e;--pale:#2f4a7d}}"


_ROWS = (
    "What each method proves by itself of each output or row; and the values that were found at {} points of the box "
    "and by {} steps along the gradient. The least and the greatest value are between what is found and what is proven."
)
_LAYERS = (
    "The mean width of the boxes of each node, by intervals alone and as tightened by walks back: the cells that lines "
    "depend on, and the output."
)
_WINDOWS = "Of the maxima, the output cells whose boxes are widest, beside the number of cells that can win."
_INPUTS = "How much of the width of the bounds, averaged over the rows, each cell of the input makes by itself."


COLOURS = {"interval": "--faint", "crown": "--pale", "optimised": "--blue"}


def _rows(b: Bounds, least: Array, greatest: Array) -> str:
    many = min(b.lo.size, MOST_ROWS)
    if not many:
        return ""
    spans = [(m, COLOURS[m], own.lo.reshape(-1)[:many], own.hi.reshape(-1)[:many]) for m, own in b.methods.items()]
    spans.append(("found", "--ink", least[:many], greatest[:many]))
    rows = [
        [str(at), *(f"{lo[at]:.5g}" for *_, lo, _ in spans), *(f"{hi[at]:.5g}" for *_, hi in reversed(spans))]
        for at in range(many)
    ]
    names = [name for name, *_ in spans]
    head = ["row", *(f"{n}, least" for n in names), *(f"{n}, most" for n in reversed(names))]
    more = f"<p>and {b.lo.size - many} more</p>" if b.lo.size > many else ""
    numbers = table(head, rows, range(1, len(head)))
    return (
        f"{ranges([str(at) for at in range(many)], spans)}{more}<details><summary>numbers</summary>{numbers}</details>"
    )


def _layers(b: Bounds) -> str:
    rows = []
    for at, n in enumerate(b.graph.nodes):
        if n.kind is None or at not in b.boxes or at not in b.plain or not b.boxes[at].lo.size:
            continue
        widths = [float(np.mean(box.hi - box.lo)) for box in (b.plain[at], b.boxes[at])]
        if widths[0] == 0:
            continue
        share = min(widths[1] / widths[0], 1.0) if np.isfinite(widths[0]) else 0.0
        bar = f'<div class="bar" style="width:{share * 100:.0f}%"></div>'
        rows.append([f"%{at}", escape(n.kind.name), str(n.shape), *(f"{w:.4g}" for w in widths), bar])
    return table(["node", "operator", "shape", "interval", "tightened", "of it"], rows[:MOST_LAYERS], (3, 4))


def _windows(b: Bounds) -> str:
    rows: list[Any] = []
    for at, winners in b.winners.items():
        box = b.boxes[at]
        width = (box.hi - box.lo).reshape(-1)
        for cell in np.argsort(-width)[:3]:
            place = tuple(int(p) for p in np.unravel_index(cell, box.shape))
            name = b.graph.nodes[at].kind.name
            rows.append((width[cell], [f"%{at}", name, str(place), f"{width[cell]:.4g}", str(int(winners.flat[cell]))]))
    rows.sort(key=lambda r: -r[0])
    return table(["node", "operator", "cell", "width", "can win"], [r for _, r in rows[:12]], (3, 4)) if rows else ""


def _inputs(b: Bounds) -> str:
    parts = []
    for name, weight in b.sensitivity.items():
        planes = weight.reshape(-1, *weight.shape[-2:]) if weight.ndim > 1 else weight.reshape(1, 1, -1)
        for at, plane in enumerate(planes[:8]):
            size = max(2, min(14, 280 // max(plane.shape)))
            own = f"{name} {at}" if len(planes) > 1 else name
            parts.append(tile(plane, size, f"{own}, at most {float(np.max(plane, initial=0)):.3g}"))
    return f'<div class="tiles">{"".join(parts)}</div>' if parts else ""
