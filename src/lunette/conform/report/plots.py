"""Pictures of a report as inline SVG and HTML: the heat map, the bars of verdicts, errors against their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from lunette.conform.case import LAYOUTS, MODES
from lunette.conform.data import DTYPES
from lunette.conform.report.words import clean, share
from lunette.conform.result import GRAVITY, Accuracy, Cell, Verdict, judged

COLOURS: Final[Mapping[str, str]] = {
    "equal": "--teal",
    "within": "--teal",
    "unsupported": "--line",
    "declined": "--line",
    "crashed": "--ink",
    "hung": "--ink",
    "refused": "--blue",
}
DTYPE_COLOURS: Final[Mapping[str, str]] = {
    "float32": "--blue",
    "float64": "--teal",
    "float16": "--amber",
    "bfloat16": "--red",
}


def text(words: object) -> str:
    """Anyone's words as part of a page."""
    return escape(clean(words))


# ---- the heat map


def heat_map(cells: Sequence[Cell]) -> str:
    """Operators down, options across; the colour is the share of cases that failed, the number how many did."""
    options = sorted(dict.fromkeys(c.option for c in cells), key=_family)
    at = {(c.op, c.option): c for c in cells}
    head = "".join(f'<th class="up"><span>{text(o)}</span></th>' for o in options)
    rows = []
    for op in dict.fromkeys(c.op for c in cells):
        fields = "".join(_field(at.get((op, o)), op, o) for o in options)
        rows.append(f'<tr><th scope="row">{text(op)}</th>{fields}</tr>')
    body = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="heat">{body}</table></div>'


def _family(option: str) -> tuple[int, int]:
    """Columns that are alternatives stand together, in their own order; the operators' options come after the ranks."""
    families: tuple[Sequence[str], ...] = ((), tuple(DTYPES), LAYOUTS, MODES)
    for at, family in enumerate(families, 1):
        if option in family:
            return at, family.index(option)
    return (0, 0) if option.startswith("rank ") else (9, 0) if option.startswith("data ") else (1, 0)


def _field(cell: Cell | None, op: str, option: str) -> str:
    """Wrong answers and crashes in red, refusals in blue, what is known in amber; the number is of the worst."""
    if cell is None or not cell.cases:
        return "<td></td>"
    wrong, refused = cell.failures - cell.refused, cell.refused
    words = f"{op}, {option}: {wrong} wrong or crashed, {refused} refused of {cell.cases} cases"
    words += f", {cell.known} of them known" if cell.known else ""
    if not cell.failures:
        return f'<td class="fine" title="{text(words)}"></td>'
    new_refused = refused - cell.known_refused
    new_wrong = wrong - (cell.known - cell.known_refused)
    ways = ("--red", wrong, new_wrong), ("--blue", refused, new_refused), ("--amber", cell.failures, cell.failures)
    colour, many = next((c, n) for c, n, new in ways if new)
    # The square root, or else one failure in a thousand would look like none; never so strong that the number drowns.
    strength = 18 + 37 * (many / cell.cases) ** 0.5
    return f'<td style="--heat:var({colour});--much:{strength:.0f}%" title="{text(words)}">{_few(many)}</td>'


def _few(n: int) -> str:
    return str(n) if n < 1000 else f"{n / 1000:.0f}k"


# ---- verdicts


def verdict_bars(rows: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    """One row per operator: a bar of verdicts, and the numbers."""
    lines = []
    for name, verdicts in rows:
        whole = sum(verdicts.values())
        asked = judged(verdicts)
        failed = {how: sum(verdicts.get(v, 0) for v in some) for how, some in GRAVITY.items()}
        bar = "".join(_piece(v, verdicts.get(v, 0), whole) for v in Verdict)
        words = " · ".join(f"{verdicts[v]:,} {v}" for v in Verdict if verdicts.get(v))
        numbers = "".join(
            f'<td class="number{" bad" * bool(n and how != "refused")}">{n or "·"}</td>' for how, n in failed.items()
        )
        lines.append(
            f'<tr><td>{text(name)}</td><td class="number">{asked:,}</td>'
            f'<td class="number">{share(asked - sum(failed.values()), asked)}</td>{numbers}'
            f'<td class="wide"><div class="pieces">{bar}</div></td><td class="words">{text(words)}</td></tr>'
        )
    columns = "".join(f'<th class="number">{name}</th>' for name in ("asked", "agree", *GRAVITY))
    head = f"<tr><th></th>{columns}<th></th><th>verdicts</th></tr>"
    body = f"<thead>{head}</thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="verdicts">{body}</table></div>'


def _piece(verdict: Verdict, n: int, whole: int) -> str:
    if not n:
        return ""
    colour = COLOURS.get(verdict, "--red")
    faint = ";opacity:.55" if verdict == Verdict.WITHIN else ""
    return f'<i style="flex:{n / whole:.4f};background:var({colour}){faint}" title="{n:,} {verdict}"></i>'


# ---- accuracy


MOST_POINTS: Final = 240
"""Per dtype: a plot shows where errors lie, and a page is not to weigh megabytes. The greatest are always shown."""


def error_plots(accuracy: Sequence[Accuracy]) -> str:
    """One plot per operator and mode."""
    groups = dict.fromkeys((a.op, a.mode) for a in accuracy)
    plots = []
    for op, mode in groups:
        some = [a for a in accuracy if (a.op, a.mode) == (op, mode)]
        plots.append(f"<figure>{error_plot(f'{op}, {mode}', some)}</figure>")
    return f'<div class="three">{"".join(plots)}</div>'


def error_plot(title: str, some: Sequence[Accuracy]) -> str:
    """Greatest error of each case against its bound, both in units of u*sum|x||w|, both logarithmic.

    On the diagonal an error uses its whole bound; above it, no order of summation explains it. Errors of zero lie on
    the floor.
    """
    width, height, left, right, top, bottom = 340, 300, 44, 18, 40, 44
    points = [(a.dtype, b, e) for a in some for e, _, b in _thinned(a.samples) if b > 0]
    across, down = _decades(b for _, b, _ in points), _decades(v for _, b, e in points for v in (b, e))

    def x(v: float) -> float:
        return left + (width - left - right) * _place(v, across)

    def y(v: float) -> float:
        return height - bottom - (height - top - bottom) * _place(v, down)

    parts = [
        f'<svg class="plot" viewBox="0 0 {width} {height}" role="img"><title>{text(title)}</title>'
        f'<text class="title" x="0" y="14">{text(title)}</text><text x="0" y="{top - 9}">error</text>'
        f'<text x="{width - right}" y="{y(10.0 ** down[0]) - 5:.1f}" text-anchor="end">bound</text>'
        f'<text x="{left - 6}" y="{y(0) + 4:.1f}" text-anchor="end">0</text>'
    ]
    for m in _marks(down):
        at = y(10.0**m)
        parts.append(f'<path class="grid" d="M{left} {at:.1f}H{width - right}"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{_power(m)}</text>')
    for m in _marks(across):
        at = x(10.0**m)
        parts.append(f'<path class="grid" d="M{at:.1f} {top}V{height - bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - bottom + 15}" text-anchor="middle">{_power(m)}</text>')
    ends = 10.0 ** max(across[0], down[0]), 10.0 ** min(across[1], down[1])
    parts.append(
        f'<path d="M{x(ends[0]):.1f} {y(ends[0]):.1f}L{x(ends[1]):.1f} {y(ends[1]):.1f}" class="bound">'
        "<title>the bound</title></path>"
    )
    for dtype, bound, error in points:
        colour = DTYPE_COLOURS.get(dtype, "--muted")
        over = not error <= bound  # NaN is over as well
        ring = ' class="over"' if over else ""
        words = f"{dtype}: error {error:.3g}, bound {bound:.3g}"
        parts.append(
            f'<circle cx="{x(bound):.1f}" cy="{y(error):.1f}" r="{3.6 if over else 2.2}"{ring} '
            f'style="--dot:var({colour})"><title>{text(words)}</title></circle>'
        )
    if beyond := sum(not error <= bound for _, bound, error in points):
        parts.append(
            f'<text class="alarm" x="{width - right}" y="14" text-anchor="end">{beyond} above the bound</text>'
        )
    for k, dtype in enumerate(dict.fromkeys(a.dtype for a in some)):
        at = left + 72 * k
        colour = DTYPE_COLOURS.get(dtype, "--muted")
        parts.append(f'<circle cx="{at + 4}" cy="{height - 10}" r="3.5" style="--dot:var({colour})"/>')
        parts.append(f'<text x="{at + 12}" y="{height - 6}">{text(dtype)}</text>')
    return "".join([*parts, "</svg>"])


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """Powers of ten around positive values: at least two decades, at most sixteen, the greatest of them."""
    logs = [log10(v) for v in values if 0 < v < float("inf")]
    high = ceil(max(logs, default=1))
    low = min(floor(min(logs, default=0)), high - 2)
    return max(low, high - 16), high


def _place(v: float, decades: tuple[int, int]) -> float:
    """From 0 to 1 along an axis; its first ninth is for zero and what is too small to tell from it."""
    if v <= 0:
        return 0.0
    low, high = decades
    return min(1.0, max(0.05, 1 / 9 + (log10(min(v, 1e300)) - low) / (high - low) * 8 / 9))


def _marks(decades: tuple[int, int]) -> range:
    low, high = decades
    return range(low, high + 1, max(1, ceil((high - low) / 6)))


def _power(m: int) -> str:
    return f"{10.0**m:g}" if -2 <= m <= 3 else f"1e{m}"


def _thinned(samples: Sequence[tuple[float, float, float]]) -> Sequence[tuple[float, float, float]]:
    """At most MOST_POINTS: those that use most of their bound, and every so manieth of the rest."""
    if len(samples) <= MOST_POINTS:
        return samples
    ordered = sorted(samples, key=lambda s: -s[0] / s[2] if s[2] else 0.0)
    top, rest = ordered[: MOST_POINTS // 4], ordered[MOST_POINTS // 4 :]
    return [*top, *rest[:: -(-len(rest) // (MOST_POINTS - len(top)))]]
