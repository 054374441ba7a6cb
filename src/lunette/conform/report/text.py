"""The report on a terminal: operators and verdicts, findings at a glance, then each new finding in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lunette.conform.report.words import (
    GOOD,
    clean,
    configuration,
    count,
    headline,
    seen_as,
    share,
    summing,
    told,
    who,
)
from lunette.conform.result import GRAVITY, SHOWN, Finding, Report, Verdict, gravity, judged

MOST_FULL: Final = 12
"""Findings that are printed in full; the files have all of them."""
MOST_LINES: Final = 16
"""Of a drawing; the page has the whole of it."""
TO_COPY: Final = frozenset({"reproduce", "replay"})
STYLES: Final[Mapping[str, str]] = {"wrong": "red", "crashed": "bold red", "refused": "yellow"}


def show(report: Report, out: Console) -> None:
    """Print everything."""
    for part in parts(report):
        out.print(part, highlight=False, crop=False)


def summary(report: Report) -> str:
    """What `print(report)` shows: operators, findings at a glance, the headline."""
    out = StringIO()
    console = Console(file=out, width=120, color_system=None, force_jupyter=False)
    for part in (*_top(report), *([Text(), findings(report)] if report.findings else []), Text(headline(report))):
        console.print(part, highlight=False, crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


SHOWN["text"] = summary


def _top(report: Report) -> Iterator[RenderableType]:
    yield title(report)
    for note in (*([report.journal] if report.journal else []), *report.notes, *report.misfits):
        yield Text(clean(note), style="yellow")
    yield operators(report)


def parts(report: Report) -> Iterator[RenderableType]:
    """What is printed, from top to bottom."""
    yield from _top(report)
    yield from accuracy(report)
    yield from tightness(report)
    if report.findings:
        yield Text()
        yield findings(report)
    shown = report.unexplained[:MOST_FULL]
    for number, f in enumerate(shown, 1):
        yield in_full(number, f)
    if len(shown) < len(report.unexplained):
        rest = len(report.unexplained) - len(shown)
        yield Text(f"\n{count(rest, 'more finding')} in full: --html FILE or --json FILE", style="dim")
    for line in report.elsewhere:
        yield Text(f"\nknown for other instruction sets, not asked here: {clean(line)}", style="dim")
    for line in report.stale:
        yield Text.assemble(("\nno longer differs, remove it from the known differences: ", "bold red"), clean(line))
    bad = report.exit_status and not (report.asked and all(gravity(f.verdict) == "refused" for f in report.unexplained))
    colour = "bold red" if bad else "bold yellow" if report.exit_status else "bold green"
    yield Text.assemble("\n", (headline(report), colour))


def title(report: Report) -> Text:
    """Who was measured, and how."""
    rate = f" ({report.asked / report.seconds * 60:,.0f} a minute)" if report.seconds > 0 else ""
    more = f", {report.cases - report.asked:,} more not supported," if report.cases > report.asked else ""
    rest = f" · seed {report.seed} · {count(report.asked, 'case')} asked{more} in {report.seconds:.1f} s{rate}"
    return Text.assemble((who(report), "bold"), clean(f" · {report.platform}"), rest)


def operators(report: Report) -> Table:
    """One row per operator: what was asked, what agrees, and what failed, by gravity and then by verdict."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("operator", "asked", "agree", *GRAVITY):
        table.add_column(name, justify="left" if name == "operator" else "right", no_wrap=True)
    table.add_column("verdicts", overflow="fold", style="dim")
    for op, verdicts in report.operators.items():
        table.add_row(clean(op), *_cells(verdicts), _verdicts(verdicts))
    if len(report.operators) != 1:
        table.add_row("all", *_cells(report.verdicts), _verdicts(report.verdicts), style="bold")
    return table


def _cells(verdicts: Mapping[str, int]) -> Iterator[str | Text]:
    asked = judged(verdicts)
    good = sum(verdicts.get(v, 0) for v in GOOD)
    yield f"{asked:,}"
    yield Text(share(good, asked), style="" if not asked else "green" if good == asked else STYLES[_worst(verdicts)])
    for how, some in GRAVITY.items():
        n = sum(verdicts.get(v, 0) for v in some)
        yield Text(f"{n:,}", style=STYLES[how]) if n else Text("·", style="dim")


def _worst(verdicts: Mapping[str, int]) -> str:
    return next(how for how, some in GRAVITY.items() if any(verdicts.get(v) for v in some))


def _verdicts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdicts[v]:,} {v}" for v in Verdict if verdicts.get(v))


def backends(reports: Sequence[Report]) -> Group:
    """Several backends at a glance: a row each, and below the most frequent finding of each."""
    table = Table(title="Conformance of what is installed here", title_justify="left")
    for name in ("backend", "asked", "agree", *GRAVITY, "new", "known", "seconds"):
        table.add_column(name, justify="left" if name == "backend" else "right", no_wrap=name != "backend")
    for r in reports:
        cells = list(_cells(r.verdicts))
        new = Text(str(len(r.unexplained)), style="red" if r.unexplained else "green")
        known = str(len(r.findings) - len(r.unexplained))
        table.add_row(who(r), *cells, new, known, f"{r.seconds:.1f}")
    examples = [
        Text(clean(f"{r.backend}: {first.kind}, {first.op} {configuration(first.case)}"), style="dim")
        for r in reports
        for first in r.findings[:1]
    ]
    return Group(table, *examples)


def accuracy(report: Report) -> Iterator[RenderableType]:
    """How far sums were off, beside what the bound allows: one row per operator."""
    measured = summing(report)
    if not measured:
        return
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("error in u*sum|x||w|", "cases", "greatest", "mean", "most of the bound used"):
        table.add_column(name, justify="left" if name.startswith("error") else "right", no_wrap=True)
    for op in dict.fromkeys(a.op for a in measured):
        some = [(a, s) for a in measured if a.op == op for s in a.samples]
        at, (most, _, bound) = max(some, key=lambda pair: pair[1][0] / pair[1][2])
        greatest, mean = max(s[0] for _, s in some), sum(s[1] for _, s in some) / len(some)
        used = Text(f"{100 * most / bound:.3g}% in {at.dtype} {at.mode}", style="red" if most > bound else "")
        table.add_row(clean(op), f"{len(some):,}", f"{greatest:.3g}", f"{mean:.2g}", used)
    yield Text()
    yield table


def tightness(report: Report) -> Iterator[RenderableType]:
    """How wide claimed bounds are beside lunette's: one row per operator. Below 1 they are the tighter ones."""
    if report.tightness:
        table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim", padding=(0, 2, 0, 0))
        for name in ("width, as a ratio", "networks", "to our interval", "to our crown"):
            table.add_column(name, justify="left" if name.startswith("width") else "right", no_wrap=True)
        for t in report.tightness:
            table.add_row(clean(t.op), f"{t.networks:,}", f"{t.to_interval:.4g}", f"{t.to_crown:.4g}")
        yield Text()
        yield table


def findings(report: Report) -> Table:
    """All findings, one line each."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "class", "operator", "cases"):
        table.add_column(name, justify="right" if name in ("", "cases") else "left", no_wrap=True)
    table.add_column("verdicts", overflow="fold")
    table.add_column("smallest configuration", overflow="fold")
    for number, f in enumerate(report.unexplained, 1):
        table.add_row(*_line(str(number), f))
    for f in report.findings:
        if f.known is not None:
            table.add_row(*_line("known", f), style="dim")
    return table


def _line(number: str, f: Finding) -> Sequence[str | Text]:
    verdict = Text(seen_as(f), style=STYLES[gravity(f.verdict)])
    return number, clean(f.kind), clean(f.op), f"{f.count:,}", verdict, Text(configuration(f.case))


def in_full(number: int, f: Finding) -> RenderableType:
    """A finding with its rule, its reproducer, both answers and the drawing."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    lines: list[RenderableType] = []
    for label, text in told(f):
        if label in TO_COPY:  # on a line of its own, however long, to be copied as one
            lines += [Text(label, style="dim"), Text(text, style="bold", no_wrap=True, overflow="ignore")]
        else:
            rows.add_row(label, Text(text))
    drawing = clean(f.drawing).splitlines()
    drawing[MOST_LINES:] = ["..."] if len(drawing) > MOST_LINES else []
    picture = Text("\n".join(drawing), style="dim", no_wrap=True, overflow="ellipsis")
    much = f" in {clean(f.op)}: {count(f.count, 'case')} ({seen_as(f)})"
    head = Text.assemble(f"\n{number}. ", (clean(f.kind), f"bold {STYLES[gravity(f.verdict)]}"), much)
    inside = (Padding(part, (0, 0, 0, 3), expand=False) for part in (rows, picture))
    return Group(head, *inside, *lines)
