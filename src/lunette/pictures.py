"""Pictures of windows: panels of cells as SVG that wraps at a width, and grids on which output cells light them up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any, Final

READ, PADDING, OVERHANG, UNREAD = "■", "p", ">", "·"
COLOURS: Final = {READ: "#2f6fdf", PADDING: "#f0b429", OVERHANG: "#d64545", UNREAD: "#ffffff"}
MEANINGS: Final = {READ: "reads", PADDING: "padding", OVERHANG: "overhang", UNREAD: "not read"}
MOST_BYTES: Final = 190_000
"""Of the panels of a picture: its title says how many there are."""
MOST_NUMBERS: Final = 1500
"""Cells of a picture up to which numbers are written into them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One square: its mark, whether it belongs to the input, the number in it."""

    mark: str
    in_data: bool
    number: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One window, or one axis of it."""

    title: str
    rows: Sequence[Sequence[Cell]]


def short(value: Any) -> str:
    """A number in at most six letters."""
    text = str(value)
    return text if len(text) <= 5 and not text.endswith(".0") else f"{float(value):.3g}"


def svg(title: str, note: str, panels: Iterable[Panel], width: int, most: int) -> str:
    """Panels side by side, and below each other where they reach the width; as many as a picture may hold and weigh."""
    every = list(islice(panels, most + 1))
    more, every = len(every) > most, every[:most]
    numbered = any(c.number for p in every[:1] for row in p.rows for c in row)
    many = sum(len(row) for p in every for row in p.rows)
    numbered = numbered and many <= MOST_NUMBERS
    wide, high, gap = (36 if numbered else 16), (20 if numbered else 16), 34
    top = 94 if note else 74
    # A title may be wider than its panel: 7 pixels hold a letter of this size.
    across = max((max(len(p.rows[0]) * wide, len(p.title) * 7) for p in every), default=1) + gap
    down = max((len(p.rows) for p in every), default=1) * high + gap
    columns = max(1, min(len(every), (width - 20) // across))
    parts: list[str] = []
    weight = drawn = 0
    for at, panel in enumerate(every):
        x, y = 14 + at % columns * across, top + at // columns * down
        piece = _panel(panel, x, y, (wide, high), numbered)
        weight += len(piece)
        if weight > MOST_BYTES and at:
            break
        parts.append(piece)
        drawn += 1
    if more or drawn < len(every):
        title = f"{title} (the first {drawn})"
    height = top + -(-max(drawn, 1) // columns) * down + 10
    whole = max(columns * across + 20, 460)
    shown = min(whole, max(width, 460))
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{shown}" height="{height * shown // whole}" '
        f'viewBox="0 0 {whole} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{whole}" height="{height}" fill="#ffffff"/>',
        f'<text x="14" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for at, (mark, meaning) in enumerate(MEANINGS.items()):
        head.append(_run(14 + 110 * at, 38, 1, (16, 16), COLOURS[mark], mark != UNREAD))
        head.append(f'<text x="{34 + 110 * at}" y="50">{meaning}</text>')
    if note:
        head.append(f'<text x="14" y="74" fill="#444">{escape(note)}</text>')
    return "\n".join([*head, *parts, "</svg>"])


def _panel(panel: Panel, x: int, y: int, size: tuple[int, int], numbered: bool) -> str:
    parts = [f'<text x="{x}" y="{y + 12}" fill="#444">{escape(panel.title)}</text>']
    wide, high = size
    for r, row in enumerate(panel.rows):
        top, at = y + 18 + r * high, 0
        while at < len(row):  # neighbours that look alike are one rectangle, and one line for their edges
            end = at
            while end < len(row) and (row[end].mark, row[end].in_data) == (row[at].mark, row[at].in_data):
                end += 1
            parts.append(_run(x + at * wide, top, end - at, size, COLOURS[row[at].mark], row[at].in_data))
            at = end
        if numbered:
            for c, cell in enumerate(row):
                if cell.number:
                    ink = "#fff" if cell.mark == READ else "#777"
                    place = f'x="{x + c * wide + wide // 2}" y="{top + high - 6}"'
                    parts.append(f'<text {place} fill="{ink}" font-size="11" text-anchor="middle">{cell.number}</text>')
    return "\n".join(parts)


def _run(x: int, y: int, n: int, size: tuple[int, int], colour: str, data: bool) -> str:
    wide, high = size
    stroke = "#555" if data else "#ccc"
    box = f'<rect x="{x}" y="{y}" width="{n * wide - 1}" height="{high - 1}" fill="{colour}" stroke="{stroke}"/>'
    edges = "".join(f"M{x + k * wide - 0.5:g} {y}v{high - 1}" for k in range(1, n))
    return box + (f'<path d="{edges}" stroke="{stroke}"/>' if edges else "")


# ---- a page to hover over

STYLE: Final = """
.grids{display:flex;flex-wrap:wrap;gap:36px;align-items:flex-start}
.grid{display:grid;gap:2px;width:max-content;max-width:100%;overflow-x:auto}
.grid b{font:500 12px ui-monospace,monospace;min-width:30px;height:26px;display:flex;align-items:center;
justify-content:center;border:1px solid var(--line);border-radius:4px;background:var(--cell);padding:0 4px}
.grid b:not([data-o],[data-i]){opacity:.45}.grid b.out{cursor:pointer}.grid b.pad{border-style:dashed;opacity:.55}
.grid b.on{outline:2px solid var(--ink);outline-offset:-1px}
.grid b.read{background:var(--blue);color:#fff;opacity:1}.grid b.p{background:var(--amber);color:#1c2433;opacity:1}
.grid b.over{background:var(--red);color:#fff;opacity:1}
#told{min-height:3.2em;margin-top:14px;color:var(--ink)}
.grids h3{font-size:14px;margin:0 0 6px;color:var(--muted);font-weight:500}
"""
SCRIPT: Final = """
const told=document.getElementById('told'),data=JSON.parse(document.getElementById('facts').textContent);
const cells=[...document.querySelectorAll('b[data-i]')],outs=[...document.querySelectorAll('b[data-o]')];
const worst=['\\u25a0','p','>','\\u00b7'],names={'\\u25a0':'read','p':'p','>':'over'};
function light(out){
  const o=out.dataset.o.split(',').map(Number);
  outs.forEach(b=>b.classList.toggle('on',b===out));
  cells.forEach(b=>{
    const i=b.dataset.i.split(',').map(Number);
    const at=Math.max(...i.map((v,a)=>worst.indexOf(data.marks[a][o[a]][v-data.start[a]]||'\\u00b7')));
    b.className=(b.classList.contains('pad')?'pad ':'')+(names[worst[at]]||'');
  });
  told.textContent=data.told[out.dataset.o]||('output cell '+out.dataset.o);
}
outs.forEach(b=>{b.addEventListener('mouseenter',()=>light(b));b.addEventListener('focus',()=>light(b));});
if(outs.length)light(outs[0]);
"""


def grids(
    starts: Sequence[int],
    marks: Sequence[Mapping[int, str]],
    inputs: Sequence[Sequence[tuple[str, str, bool]]],
    outputs: Sequence[Sequence[tuple[str, str]]],
    told: dict[str, str],
) -> str:
    """Two grids: (place, number, whether it is padding) of input cells, (place, number) of output cells.

    An output cell without a place is there to be seen, and lights up nothing.
    """
    columns = len(inputs[0]) if inputs else 1
    padding = {True: ' class="pad"', False: ""}
    left = "".join(
        f'<b data-i="{place}"{padding[pad]}>{escape(number)}</b>' for row in inputs for place, number, pad in row
    )
    right = "".join(
        f'<b class="out" tabindex="0" data-o="{place}">{escape(number)}</b>' if place else f"<b>{escape(number)}</b>"
        for row in outputs
        for place, number in row
    )
    wide = len(outputs[0]) if outputs else 1
    facts = json.dumps({"start": list(starts), "marks": [dict(m) for m in marks], "told": told}).replace("</", "<\\/")
    return (
        f'<div class="grids"><div><h3>output</h3><div class="grid" '
        f'style="grid-template-columns:repeat({wide},auto)">{right}</div></div>'
        f'<div><h3>input</h3><div class="grid" style="grid-template-columns:repeat({columns},auto)">{left}</div></div>'
        "</div>"
        f'<p id="told"></p><script type="application/json" id="facts">{facts}</script><script>{SCRIPT}</script>'
    )
