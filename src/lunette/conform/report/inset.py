"""The report as a piece of a notebook: the headline, operators, findings at a glance. The page has everything."""

from __future__ import annotations

from lunette.conform.report.plots import text
from lunette.conform.report.words import configuration, headline, seen_as, who
from lunette.conform.result import GRAVITY, SHOWN, Report, gravity
from lunette.page import inset as rows_of

HUES = {"wrong": "#c43d3d", "crashed": "#c43d3d", "refused": "#2f6db5"}


def inset(report: Report) -> str:
    """Inline styles only: a notebook has its own, light or dark."""
    head = ("", "class", "operator", "cases", "verdicts", "smallest configuration", "got")
    rows = []
    for number, f in enumerate(report.findings, 1):
        hue = "inherit" if f.known is not None else HUES[gravity(f.verdict)]
        kind = f'<span style="color:{hue};font-weight:600">{text(f.kind)}</span>'
        label = "known" if f.known is not None else str(number)
        cells = (label, kind, text(f.op), f"{f.count:,}", text(seen_as(f)), text(configuration(f.case)), text(f.got))
        rows.append(cells)
    numbers = "; ".join(
        f"{text(op)}: " + ", ".join(f"{sum(v.get(x, 0) for x in some):,} {how}" for how, some in GRAVITY.items())
        for op, v in report.operators.items()
    )
    table = rows_of(head, rows) if rows else ""
    notes = "".join(f"<p>{text(n)}</p>" for n in (*report.misfits, *report.notes))
    return f"<div><p><b>{text(who(report))}</b>: {text(headline(report))}</p>{notes}<p>{numbers}</p>{table}</div>"


SHOWN["inset"] = inset
