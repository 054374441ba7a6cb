"""A page that needs no other file and no network: sections of HTML with inline pictures, in light and in dark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Final

import numpy as np

from lunette.number import Array

STYLE: Final = """
:root{color-scheme:light dark;--page:#f5f7fb;--card:#fff;--ink:#1c2433;--muted:#5f6c84;--line:#dfe5ef;--cell:#fff;
--blue:#2f6fdf;--teal:#0d9488;--red:#cc3b3b;--amber:#c98a06;--soft:#eef3fd}
@media(prefers-color-scheme:dark){:root{--page:#0c1017;--card:#12161f;--ink:#e8ecf4;--muted:#93a1ba;--line:#273042;
--cell:#1b2130;--blue:#6b9bf5;--teal:#2cc4b3;--red:#f07171;--amber:#f0b429;--soft:#1a2233}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 20px 64px}
h1{font-size:30px;margin:0 0 4px;letter-spacing:-.02em}
h2{font-size:19px;margin:0 0 4px}
p{margin:0 0 14px;color:var(--muted);max-width:92ch;text-wrap:pretty}
header p{margin-bottom:24px}
pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12.5px}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:22px 24px;margin:18px 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:0 0 18px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:14px 18px}
.fact b{display:block;font-size:25px;letter-spacing:-.02em;line-height:1.25;font-variant-numeric:tabular-nums}
.fact span{color:var(--muted);font-size:13px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:20px}
.tiles{display:flex;flex-wrap:wrap;gap:10px}
.tile{text-align:center;font-size:12.5px;color:var(--muted);margin:0}
.tile svg{display:block;border:1px solid var(--line);border-radius:6px;background:var(--cell)}
.tile.wrong svg{border:2px solid var(--red)}.tile.wrong{color:var(--red)}
.scroll{overflow-x:auto;margin:0}
.scroll svg{display:block;margin:0 auto}
.beside{display:flex;flex-wrap:wrap;gap:28px;align-items:flex-start}.beside .scroll{flex:0 0 auto;max-width:100%}
pre{flex:1 1 440px;min-width:0;margin:8px 0 0;padding:14px 16px;background:var(--soft);
border-radius:10px;overflow-x:auto;line-height:1.75}
figure{margin:0}figcaption{color:var(--muted);font-size:13px;margin:2px 0 8px}
svg.plot{width:100%;height:auto;display:block}
svg.plot text{font-size:12px;fill:var(--muted)}
svg.plot .grid{stroke:var(--line)}svg.plot .title{font-weight:600;fill:var(--ink);font-size:13px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;font-size:13.5px}
th{color:var(--muted);font-weight:500}td.number,th.number{text-align:right;white-space:nowrap;padding-right:18px}
tr:last-child td{border-bottom:0}
.bar{background:var(--blue);height:9px;border-radius:3px;min-width:1px;margin-top:6px}
details{margin-top:14px}summary{cursor:pointer;color:var(--blue)}
.window{margin:0 0 18px;overflow-x:auto}
.window svg rect[fill="#ffffff"]{fill:var(--cell)}
.window svg>rect:first-of-type{fill:none}.window svg text{fill:var(--ink)}
.window svg [stroke="#ccc"]{stroke:var(--line)}.window svg [stroke="#555"]{stroke:var(--muted)}
.ln-graph .bg{fill:none}
footer{color:var(--muted);font-size:13px;margin-top:28px}
"""


class Page(str):
    """The text of a page. A prompt shows what it is rather than all of it; a notebook shows it in a frame of its own.

    >>> Page("<p>short</p>")
    <a page of 12 characters: to_html("page.html") writes it to a file>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f'<a page of {len(self):,} characters: to_html("page.html") writes it to a file>'

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" style="width:100%;height:560px;border:0"></iframe>'


def written(text: str, path: str | Path | None) -> Page:
    """What a method `to_html` gives: the page, which is in a file, too, if a path says where."""
    return Page(kept(text, path))


def kept(text: str, path: str | os.PathLike[str] | None) -> str:
    """A text, which is in a file, too, if a path says where; folders that are missing are made."""
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    return text


@dataclass(frozen=True, slots=True)
class Section:
    """One card of the page."""

    key: str
    title: str
    words: str
    body: str


def page(
    title: str,
    words: str,
    facts: Sequence[tuple[str, str]],
    sections: Iterable[Section],
    foot: str,
    *,
    top: str = "",
    style: str = "",
) -> str:
    """The whole page; it is well-formed XML too. `top` is HTML for the end of the header, `style` more CSS."""
    cards = "".join(f'<div class="fact"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in facts)
    parts = [
        f'<section id="{s.key}"><h2>{escape(s.title)}</h2><p>{escape(s.words)}</p>{s.body}</section>' for s in sections
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8"/>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>",
            f'<header><h1>{escape(title)}</h1><p>{escape(words)}</p><div class="facts">{cards}</div>{top}</header>',
            *parts,
            f"<footer>{escape(foot)}</footer></main></body></html>",
            "",
        ]
    )


def inline(svg: str) -> str:
    """A picture as part of a page, where its namespace goes without saying."""
    return svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)


INSET: Final = "text-align:left;padding:2px 8px;vertical-align:top"


def inset(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook, which has its own style, light or dark: cells of HTML, styles inline."""
    names = "".join(f'<th style="{INSET}">{escape(h)}</th>' for h in head)
    lines = "".join(f"<tr>{''.join(f'<td style={chr(34)}{INSET}{chr(34)}>{c}</td>' for c in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"


def bar(start: float, length: float, colour: str = "#2f6fdf", width: int = 160) -> str:
    """Part of a line as a bar: where it starts and how long it is, from 0 to 1."""
    place = f"margin-left:{start * width:.1f}px;width:{max(length * width, 1.0):.1f}px"
    inner = f'<div style="{place};height:9px;border-radius:3px;background:{colour}"></div>'
    return f'<div style="width:{width}px;background:rgba(128,128,128,.15);border-radius:3px">{inner}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells are HTML; the columns `numbers` are flush right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        style = [' class="number"' if at in numbers else "" for at in range(len(row))]
        return "".join(f"<{tag}{s}>{cell}</{tag}>" for s, cell in zip(style, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    return f"<table>{top}<tbody>{body}</tbody></table>"


# ---- plots


def curve(title: str, values: Sequence[float], *, colour: str, logarithmic: bool = False, dots: bool = False) -> str:
    """Values against their number, from 1; a logarithmic plot has a smoothed line over the single values."""
    width, height, left, right, top, bottom = 520, 260, 54, 12, 34, 30
    shown = [log10(max(v, 1e-6)) for v in values] if logarithmic else list(values)
    low, high = min(shown), max(shown)
    marks = _decades(low, high) if logarithmic else _round_marks(low, high)
    low, high = min(low, marks[0]), max(high, marks[-1])
    reach = (high - low) or 1.0

    def x(k: float) -> float:
        return left + (width - left - right) * (k / max(len(values) - 1, 1))

    def y(v: float) -> float:
        return height - bottom - (height - top - bottom) * ((v - low) / reach)

    parts = [_plot(title, width, height)]
    for m in marks:
        text = f"{10**m:.4g}" if logarithmic else f"{m:.4g}"
        parts.append(f'<path class="grid" d="M{left} {y(m):.1f}H{width - right}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(m) + 4:.1f}" text-anchor="end">{text}</text>')
    for k in sorted({0, (len(values) - 1) // 2, len(values) - 1}):
        anchor = "end" if k else "start"
        parts += [f'<text x="{x(k):.1f}" y="{height - 9}" text-anchor="{anchor}">{k + 1}</text>']
    points = [(x(k), y(v)) for k, v in enumerate(shown)]
    if logarithmic:
        parts.append(_line(points, colour, 1.0, 0.3))
        points = [(x(k), y(v)) for k, v in enumerate(_smooth(shown))]
    parts.append(_line(points, colour, 2.2, 1.0))
    if dots:
        parts += [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" style="fill:var({colour})">'
            f"<title>{k + 1}: {v:.4g}</title></circle>"
            for k, ((a, b), v) in enumerate(zip(points, values, strict=True))
        ]
    return "".join([*parts, "</svg>"])


def _plot(title: str, width: int, height: int) -> str:
    head = f'<svg class="plot" viewBox="0 0 {width} {height}" role="img">'
    return f'{head}<text class="title" x="0" y="16">{escape(title)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: float, opacity: float) -> str:
    way = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    style = f"fill:none;stroke:var({colour});stroke-width:{width};opacity:{opacity};stroke-linejoin:round"
    return f'<path d="M{way}" style="{style}"/>'


def _smooth(values: Sequence[float]) -> list[float]:
    """Means over a window that is cut at the ends."""
    reach = max(1, len(values) // 40)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = [(max(0, k - reach), min(len(values), k + reach + 1)) for k in range(len(values))]
    return [float(sums[b] - sums[a]) / (b - a) for a, b in ends]


def _decades(low: float, high: float) -> list[float]:
    first, last = floor(low), ceil(high)
    return [float(m) for m in range(first, max(last, first + 1) + 1)]


def _round_marks(low: float, high: float) -> list[float]:
    """Three to six round numbers from below the least to above the greatest."""
    rough = ((high - low) or 1.0) / 4
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def histogram(title: str, edges: Sequence[float], counts: Sequence[int], colour: str) -> str:
    """One bar per class of values: up to each edge, and the rest."""
    width, height, left, top, bottom = 520, 260, 6, 34, 34
    wide = (width - 2 * left) / len(counts)
    most, whole = max(*counts, 1), max(sum(counts), 1)
    parts = [_plot(title, width, height)]
    for k, n in enumerate(counts):
        tall = (height - top - bottom - 16) * n / most
        x, y = left + k * wide, height - bottom - tall
        label = f"≤ {edges[k]:g}" if k < len(edges) else f"> {edges[-1]:g}"
        parts.append(
            f'<rect x="{x + 4:.1f}" y="{y:.1f}" width="{wide - 8:.1f}" height="{tall:.1f}" rx="3" '
            f'style="fill:var({colour})"><title>{label}: {n}</title></rect>'
            f'<text x="{x + wide / 2:.1f}" y="{y - 5:.1f}" text-anchor="middle">{n / whole:.0%}</text>'
            f'<text x="{x + wide / 2:.1f}" y="{height - 14}" text-anchor="middle">{label}</text>'
        )
    parts.append(f'<path class="grid" d="M{left} {height - bottom}H{width - left}"/>')
    return "".join([*parts, "</svg>"])


def ranges(names: Sequence[str], spans: Sequence[tuple[str, str, Array, Array]]) -> str:
    """For every name a line with ranges one inside the other: (caption, colour, lower and upper ends), widest first."""
    width, line, left, right, top, bottom = 1040, 22, 44, 14, 30, 26
    height = top + line * len(names) + bottom
    finite = np.concatenate([np.concatenate([lo, hi]) for _, _, lo, hi in spans])
    finite = finite[np.isfinite(finite)] if np.isfinite(finite).any() else np.zeros(1)
    marks = _round_marks(float(finite.min()), float(finite.max()))
    low, high = marks[0], marks[-1]

    def x(v: float) -> float:
        return left + (width - left - right) * min(max((v - low) / ((high - low) or 1.0), 0.0), 1.0)

    parts, at = [f'<svg class="plot" viewBox="0 0 {width} {height}" role="img">'], float(left)
    for caption, colour, _, _ in spans:
        parts.append(f'<rect x="{at:.0f}" y="5" width="12" height="12" rx="3" style="fill:var({colour})"/>')
        parts.append(f'<text x="{at + 18:.0f}" y="15">{escape(caption)}</text>')
        at += 40 + 7 * len(caption)
    for m in marks:
        parts.append(f'<path class="grid" d="M{x(m):.1f} {top}V{height - bottom}"/>')
        parts.append(f'<text x="{x(m):.1f}" y="{height - 8}" text-anchor="middle">{m:.4g}</text>')
    for k, name in enumerate(names):
        parts.append(f'<text x="{left - 10}" y="{top + line * k + 15}" text-anchor="end">{escape(name)}</text>')
        for n, (caption, colour, lo, hi) in enumerate(spans):
            tall = (line - 6) * (1 - n / (len(spans) + 1))
            a, b, y = x(float(lo[k])), x(float(hi[k])), top + line * k + (line - tall) / 2
            parts.append(
                f'<rect x="{a:.1f}" y="{y:.1f}" width="{max(b - a, 1.5):.1f}" height="{tall:.1f}" rx="2" '
                f'style="fill:var({colour})"><title>{escape(caption)}: {lo[k]:.5g} to {hi[k]:.5g}</title></rect>'
            )
    return "".join([*parts, "</svg>"])


def tile(cells: Array, size: int, caption: str, *, signed: bool = False, wrong: bool = False) -> str:
    """A plane of numbers as squares: from nothing to ink, or of two colours for the two signs."""
    rows, columns = cells.shape
    most = float(np.abs(cells).max()) or 1.0
    parts = []
    for r, row in enumerate(cells):
        for c, v in enumerate(row):
            strength = abs(float(v)) / most
            if strength < 0.01:
                continue
            colour = "--ink" if not signed else "--blue" if v > 0 else "--red"
            parts.append(
                f'<rect x="{c}" y="{r}" width="1.02" height="1.02" style="fill:var({colour});opacity:{strength:.2f}">'
                f"<title>{float(v):.3g}</title></rect>"
            )
    return (
        f'<figure class="tile{" wrong" * wrong}"><svg width="{columns * size}" height="{rows * size}" '
        f'viewBox="0 0 {columns} {rows}" shape-rendering="crispEdges">{"".join(parts)}</svg>{escape(caption)}</figure>'
    )
