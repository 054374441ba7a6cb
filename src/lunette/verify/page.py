"""Pages about verdicts: one, many, and accuracy over radii."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from lunette.number import Array
from lunette.page import Section, page, table, tile

MOST_CASES = 50
MOST_DRAWN = 400
STYLE = """
.verdict{display:inline-block;padding:2px 12px;border-radius:99px;color:#fff;font-weight:600}
.proved{background:var(--teal)}.disproved{background:var(--red)}.unknown,.error{background:var(--amber)}
svg.tree{display:block;max-width:100%;height:auto}svg.tree line{stroke:var(--line);stroke-width:1.2}
svg.tree circle{fill:var(--teal)}svg.tree circle.open{fill:var(--amber)}svg.tree circle.split{fill:var(--blue)}
.bar{min-width:1px}td:last-child .bar{max-width:420px}
.axis{position:relative;height:10px;background:var(--soft);border-radius:5px;min-width:150px;margin-top:5px}
.axis i{position:absolute;top:0;bottom:0;border-radius:5px;background:var(--blue)}
.axis b{position:absolute;top:-3px;bottom:-3px;width:2px;background:var(--ink)}
"""


def to_html(v: Any, network: str = "", property: Any = None, centre: Any = None) -> str:
    """The page of one verdict."""
    facts = [
        ("verdict", v.status),
        ("proven margin", _number(v.bound)),
        ("least margin found", _number(v.found)),
        ("seconds", f"{v.seconds:.2f}"),
        *([("parts of the box", str(v.leaves))] if v.leaves else []),
    ]
    name = getattr(property, "name", "")
    words = f"{v.reason}. {'; '.join(v.notes)}".strip()
    if centre is None and property is not None and property.own_boxes:
        box = property.own_boxes[0].outward()
        centre = box.lo / 2 + box.hi / 2
    sections = [
        Section("margins", "Margins", _MARGINS, _margins(v)),
        Section("input", "The input", _INPUT, _pictures(v, centre)),
        Section("tree", "Splits", _TREE, _trees(v)),
        Section("time", "Time", "Seconds of every phase.", _phases(v)),
    ]
    title = f"{Path(network).name} {name}".strip() or "A verdict"
    top = f'<p><span class="verdict {v.status}">{v.status}</span></p>'
    kept = [s for s in sections if s.body]
    return page(title, words, facts, kept, f"lunette verify, semantics {v.semantics}", top=top, style=STYLE)


_MARGINS = (
    "Each case would violate the property. Its margin is the value of its condition less its threshold: the bar goes "
    "from what is proven to what an attack found, and the mark is zero. A case is refuted if its bar is right of it, "
    "or, where the case says <, begins there."
)
_INPUT = "The centre of the box; the counterexample, if there is one; and their difference, magnified to its own range."
_TREE = "How the box was split: a circle for every part, refuted or still open; those above were split."


def _margins(v: Any) -> str:
    ends = [e for _, lo, hi in v.margins for e in (lo, hi) if np.isfinite(e)]
    least, most = min([*ends, 0.0], default=0.0), max([*ends, 0.0], default=0.0)
    reach = (most - least) or 1.0
    rows = []
    for words, lo, hi in sorted(v.margins, key=lambda m: m[1])[:MOST_CASES]:
        a, b = (min(max((e - least) / reach, 0.0), 1.0) if np.isfinite(e) else float(e > 0) for e in (lo, hi))
        bar = f'<i style="left:{a:.1%};width:{max(b - a, 0.004):.1%}"></i><b style="left:{-least / reach:.1%}"></b>'
        short = words if len(words) < 90 else f"{words[:87]}..."
        rows.append(
            [f'<span class="mono">{escape(short)}</span>', f"{lo:.4g}", f"{hi:.4g}", f'<div class="axis">{bar}</div>']
        )
    more = len(v.margins) - MOST_CASES
    note = f"<p>and {more} more</p>" if more > 0 else ""
    return table(["case", "proven", "found", ""], rows, (1, 2)) + note


def _number(value: float) -> str:
    """Short; a margin that was not computed is none."""
    return f"{value:.4g}" if np.isfinite(value) else "none"


def _pictures(v: Any, centre: Any) -> str:
    found = v.counterexample
    if isinstance(found, tuple):
        return ""
    parts = []
    shape = None if found is None else np.shape(found)
    if centre is not None:
        parts += _planes(np.asarray(centre), shape, "centre")
    if found is not None:
        parts += _planes(np.asarray(found, float), shape, "counterexample")
        if centre is not None:
            parts += _planes(np.asarray(found, float).reshape(-1) - np.ravel(centre), shape, "difference", signed=True)
    return f'<div class="tiles">{"".join(parts)}</div>' if parts else ""


def _planes(x: Array, shape: Any, word: str, signed: bool = False) -> list[str]:
    """Planes of an image, or one row of cells; a flat array that is a square is drawn as one."""
    whole = x.reshape(shape) if shape is not None else x
    if whole.ndim >= 2 and whole.shape[-2] > 1:
        planes = whole.reshape(-1, *whole.shape[-2:])
    else:
        n = whole.size
        side = round(n**0.5)
        third = round((n / 3) ** 0.5)
        square = (
            (1, side, side)
            if side * side == n and n > 16
            else (3, third, third)
            if 3 * third * third == n and n > 48
            else (1, 1, n)
        )
        planes = whole.reshape(square)
    most = 3 if planes[0].size > 4096 else 4
    size = max(1, min(8, 224 // max(planes.shape[1:])))
    return [
        tile(p, size, word if len(planes) == 1 else f"{word} {k}", signed=signed)
        for k, p in enumerate(planes[:most])
        if p.size <= 1 << 14
    ]


def _trees(v: Any) -> str:
    found = [t for t in v.tree or () if getattr(t, "children", None)]
    return "".join(_tree(t) for t in found[:4])


def _tree(tree: Any) -> str:
    """A tree of splits, its root above; of large ones the first levels."""
    places: list[tuple[Any, int, int | None]] = []
    level = 0
    waiting: list[tuple[Any, int | None]] = [(tree, None)]
    while waiting and len(places) + len(waiting) <= MOST_DRAWN:
        below: list[tuple[Any, int | None]] = []
        for t, parent in waiting:
            at = len(places)
            places.append((t, level, parent))
            below += [(c, at) for c in t.children]
        waiting, level = below, level + 1
    below_of: list[list[int]] = [[] for _ in places]
    for k, (_, _, parent) in enumerate(places):
        if parent is not None:
            below_of[parent].append(k)
    at_x, slots, stack = [0.0] * len(places), 0, [0]
    while stack:  # a slot for each part that is not split further, from left to right; others are above the middle
        k = stack.pop()
        if not below_of[k]:
            at_x[k], slots = slots + 0.5, slots + 1
        stack += reversed(below_of[k])
    for k in reversed(range(len(places))):
        if below_of[k]:
            at_x[k] = sum(at_x[c] for c in below_of[k]) / len(below_of[k])
    width, step = 1000, 34
    at_x = [width * x / slots for x in at_x]
    lines = [
        f'<line x1="{at_x[p]:.1f}" y1="{16 + step * (deep - 1)}" x2="{x:.1f}" y2="{16 + step * deep}"/>'
        for x, (_, deep, p) in zip(at_x, places, strict=True)
        if p is not None
    ]
    radius = max(2.0, min(7.0, 400 / slots))
    circles = []
    for x, (t, deep, _) in zip(at_x, places, strict=True):
        kind = "split" if t.children else "open" if t.leaf.bound <= 0 else ""
        told = f"split at node {t.node}, cell {t.cell}" if t.children else f"bound {t.leaf.bound:.4g}"
        circles.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{16 + step * deep}" r="{radius:.1f}">'
            f"<title>{told}</title></circle>"
        )
    height = 32 + step * max(deep for _, deep, _ in places)
    more = len(waiting)
    note = f"<figcaption>{more} parts below are not drawn</figcaption>" if more else ""
    return f'<figure><svg class="tree" viewBox="0 0 {width} {height}">{"".join(lines + circles)}</svg>{note}</figure>'


def _phases(v: Any) -> str:
    whole = max(sum(v.phases.values()), 1e-9)
    rows = [
        [escape(k), f"{s:.3f}", f'<div class="bar" style="width:{400 * s / whole:.0f}px"></div>']
        for k, s in v.phases.items()
    ]
    return table(["phase", "seconds", ""], rows, (1,))


def many_to_html(found: Sequence[dict[str, Any]]) -> str:
    """The page of many instances."""
    count = {s: sum(r["status"] == s for r in found) for s in ("proved", "disproved", "unknown", "error")}
    facts = [("instances", str(len(found))), *((s, str(n)) for s, n in count.items() if n)]
    facts.append(("seconds", f"{sum(r['seconds'] for r in found):.0f}"))
    rows = [
        [
            escape(Path(r["net"]).name),
            escape(Path(r["spec"]).name),
            f'<span class="verdict {r["status"]}">{r["status"]}</span>',
            f"{r['seconds']:.2f}",
            _cell(r.get("bound")),
            escape(r["reason"]),
        ]
        for r in found
    ]
    body = table(["network", "property", "verdict", "seconds", "proven margin", "reason"], rows, (3, 4))
    words = "Every line is one network and one property, verified in a process of its own."
    return page(
        "Verdicts",
        words,
        facts,
        [Section("all", "Instances", "In the order of the list.", body)],
        "lunette verify",
        style=STYLE,
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | int) else "" if value is None else str(value)


def accuracy_to_html(found: Sequence[Any], network: str) -> str:
    """The page of accuracy over radii."""
    facts = [("images", str(found[0].images)), ("right", f"{found[0].clean:.1%}")] if found else []
    facts += [(f"certified at {a.radius:g}", f"{a.certified:.1%}") for a in found[:4]]
    rows = [
        [f"{a.radius:g}", f"{a.certified:.1%}", f"{a.attacked:.1%}", str(a.unknown), f"{a.seconds:.1f}"] for a in found
    ]
    body = _plot(found) + table(["radius", "certified", "attacked", "unknown", "seconds"], rows, (0, 1, 2, 3, 4))
    words = "Certified: proved right everywhere in the box. Attacked: right, and no counterexample was found."
    sections = [Section("radii", "Accuracy over the radius", words, body)]
    return page(
        f"{Path(network).name}: accuracy",
        "Every image is the centre of a box.",
        facts,
        sections,
        "lunette verify --images",
        style=STYLE,
    )


def _plot(found: Sequence[Any]) -> str:
    """Both accuracies against the radius, and the area between them."""
    if not found:
        return ""
    width, height, left, right, top, bottom = 720, 300, 48, 16, 24, 34
    most = max(a.radius for a in found) or 1.0
    points = [
        (0.0, found[0].clean, found[0].clean),
        *((a.radius, a.certified, a.attacked) for a in found if a.radius > 0),
    ]

    def x(r: float) -> float:
        return left + (width - left - right) * r / most

    def y(share: float) -> float:
        return height - bottom - (height - top - bottom) * share

    parts = [f'<svg class="plot" viewBox="0 0 {width} {height}" role="img">']
    for k in range(5):
        parts.append(f'<path class="grid" d="M{left} {y(k / 4):.1f}H{width - right}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(k / 4) + 4:.1f}" text-anchor="end">{k * 25}%</text>')
    for r, _, _ in points:
        parts.append(f'<text x="{x(r):.1f}" y="{height - 12}" text-anchor="middle">{r:g}</text>')
    up = "L".join(f"{x(r):.1f} {y(a):.1f}" for r, _, a in points)
    back = "L".join(f"{x(r):.1f} {y(c):.1f}" for r, c, _ in reversed(points))
    parts.append(f'<path d="M{up}L{back}Z" style="fill:var(--amber);opacity:.18"/>')
    for at, colour, wide in ((2, "--red", 6), (1, "--teal", 2.4)):  # where both are one, both are seen
        way = "L".join(f"{x(p[0]):.1f} {y(p[at]):.1f}" for p in points)
        parts.append(f'<path d="M{way}" style="fill:none;stroke:var({colour});stroke-width:{wide}"/>')
    parts.append(f'<text x="{width - right}" y="14" text-anchor="end" style="fill:var(--red)">attacked</text>')
    parts.append(f'<text x="{width - right - 70}" y="14" text-anchor="end" style="fill:var(--teal)">certified</text>')
    return "".join([*parts, "</svg>"])
