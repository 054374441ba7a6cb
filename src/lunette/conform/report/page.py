"""The report as one HTML file that loads nothing: verdicts, heat map, errors, and a section per class of failure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lunette.conform.case import Case
from lunette.conform.report.plots import error_plots, heat_map, text, verdict_bars
from lunette.conform.report.words import (
    MEANINGS,
    clean,
    configuration,
    count,
    headline,
    keys,
    seen_as,
    share,
    summing,
    told,
    who,
)
from lunette.conform.result import GRAVITY, SHOWN, Finding, Report, Verdict, gravity
from lunette.errors import LunetteError
from lunette.explanation import explain
from lunette.page import Section, inline, page, table
from lunette.version import VERSION

STYLE: Final = """
nav{display:flex;flex-wrap:wrap;gap:8px;margin:0 0 6px}
nav a{color:var(--ink);text-decoration:none;border:1px solid var(--line);border-radius:99px;padding:2px 12px;
background:var(--card);font-size:13px}nav a:hover{border-color:var(--blue)}nav a b{color:var(--red)}
nav a.known b{color:var(--amber)}
.heat{width:auto;border-collapse:separate;border-spacing:2px}
.heat td,.heat th{border:0;padding:0;font-size:11px;line-height:1}
.heat td{min-width:25px;height:25px;text-align:center;vertical-align:middle;border-radius:4px;
background:color-mix(in srgb,var(--heat) var(--much),var(--card));font-weight:600}
.heat td:not([style]){background:none}.heat td.fine{background:color-mix(in srgb,var(--teal) 16%,var(--card))}
.heat th{font-weight:500;white-space:nowrap}
.heat th[scope]{text-align:right;vertical-align:middle;padding-right:8px;font-size:12.5px}
.heat .up{vertical-align:bottom;height:110px}
.heat .up span{writing-mode:vertical-rl;transform:rotate(180deg);display:inline-block;padding-top:4px}
.legend{display:flex;flex-wrap:wrap;gap:16px;color:var(--muted);font-size:13px;margin:10px 0 0}
.legend i{display:inline-block;width:13px;height:13px;border-radius:3px;margin-right:6px;vertical-align:-2px}
.verdicts td{vertical-align:middle}.verdicts .wide{min-width:min(220px,30vw);width:36%}.verdicts .words{min-width:260px}
.verdicts .words{color:var(--muted)}.bad{color:var(--red);font-weight:600}
.pieces{display:flex;gap:1px;height:12px;border-radius:4px;overflow:hidden}.pieces i{min-width:3px}
.three{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:22px}
svg.plot circle{fill:var(--dot);opacity:.6}
svg.plot .over{opacity:1;stroke:var(--red);stroke-width:1.6}
svg.plot .alarm{fill:var(--red);font-weight:600}
svg.plot .bound{stroke:var(--muted);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
article{border-top:1px solid var(--line);padding:16px 0 6px}article:first-of-type{border-top:0;padding-top:4px}
article h3{font-size:15.5px;margin:0 0 8px;display:flex;flex-wrap:wrap;gap:8px;align-items:baseline}
h3 small{color:var(--muted);font-weight:400;font-size:13px}
.badge{border-radius:6px;padding:1px 8px;font-size:12px;font-weight:600;--hue:var(--red);
background:color-mix(in srgb,var(--hue) 28%,var(--card))}
.badge.known{--hue:var(--amber)}.badge.refused{--hue:var(--blue)}.badge.died{--hue:var(--ink);background:var(--ink);color:var(--card)}
dl{display:grid;grid-template-columns:82px minmax(0,1fr);gap:5px 12px;margin:0 0 12px;font-size:13.5px}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}dd code,dd pre{white-space:pre-wrap}
dd pre{margin:0;padding:6px 10px;border-radius:8px;line-height:1.5;max-height:22em;overflow:auto}
article .window{margin:0 0 6px}article>pre{line-height:1.35;max-height:32em;overflow:auto}
section>table td,p,h1,h2,h3,footer{overflow-wrap:anywhere}
@media print{details:not([open])>*{display:block}section{break-inside:avoid-page}}
"""
MONO: Final = frozenset({"reproduce", "got", "right is", "replay"})
LEGEND: Final = (
    ("color-mix(in srgb,var(--teal) 16%,var(--card))", "all agree"),
    ("color-mix(in srgb,var(--red) 45%,var(--card))", "some are wrong or crash (how many)"),
    ("color-mix(in srgb,var(--blue) 45%,var(--card))", "some are refused, none is wrong"),
    ("color-mix(in srgb,var(--amber) 45%,var(--card))", "only known differences"),
)


NAMED: Final = {"wrong": "wrong answers", "crashed": "crashes and hangs", "refused": "refusals"}


def html(reports: Sequence[Report]) -> str:
    """The page of one run, or of several backends one after the other."""
    many = len(reports) > 1
    name = "what is installed here" if many else who(reports[0])
    words = (
        "Every case was computed exactly and compared with what came back. A finding is shown by the smallest "
        "configuration that has it, with a line that reproduces it and the cells its windows read."
    )
    sections = [_backends(reports)] if many else []
    for at, report in enumerate(reports):
        prefix = f"b{at}-" if many else ""
        sections += [_divider(report, prefix)] if many else []
        sections += _of(report, prefix)
    runs = "; ".join(f"{who(r)}, seed {r.seed}, {r.platform}" for r in reports)
    foot = clean(f"Written by lunette {VERSION}. {runs}.")
    top = _contents(reports)
    return page(clean(f"Conformance: {name}"), words, _facts(reports), sections, foot, top=top, style=STYLE)


SHOWN["page"] = lambda report: html([report])


def _facts(reports: Sequence[Report]) -> list[tuple[str, str]]:
    cases, asked = sum(r.cases for r in reports), sum(r.asked for r in reports)
    failed = {how: sum(r.failed(how) for r in reports) for how in GRAVITY}
    new = sum(len(r.unexplained) for r in reports)
    known = sum(len(r.findings) for r in reports) - new
    stale = sum(len(r.stale) for r in reports)
    facts = [
        ("cases asked" if asked == cases else f"cases asked, {cases - asked:,} more not supported", f"{asked:,}"),
        ("of them agree", share(asked - sum(failed.values()), asked)),
        *((NAMED[how], f"{n:,}") for how, n in failed.items() if n or how != "crashed"),
        ("new findings", f"{new}"),
        ("known differences", f"{known}"),
        ("to run", f"{sum(r.seconds for r in reports):.0f} s"),
    ]
    facts += [("known differences that are gone", f"{stale}")] if stale else []
    facts += [] if all(r.complete for r in reports) else [("of the run", "a part")]
    return facts


def _contents(reports: Sequence[Report]) -> str:
    """Links to the classes of failures, worst first."""
    links = []
    for at, report in enumerate(reports):
        prefix = f"b{at}-" if len(reports) > 1 else ""
        for kind, some in _classes(report).items():
            new = sum(f.known is None for _, f in some)
            words = kind if len(reports) == 1 else f"{report.backend}: {kind}"
            known = "" if new else ' class="known"'
            links.append(f'<a href="#{prefix}{_slug(kind)}"{known}>{text(words)} <b>{new or len(some)}</b></a>')
    return f"<nav>{''.join(links)}</nav>" if links else ""


def _classes(report: Report) -> dict[str, list[tuple[str, Finding]]]:
    """Findings with their names by class, in the order of the report; classes with something new come first."""
    found: dict[str, list[tuple[str, Finding]]] = {}
    for key, f in zip(keys(report.findings), report.findings, strict=True):
        found.setdefault(f.kind, []).append((key, f))
    return dict(sorted(found.items(), key=lambda item: all(f.known is not None for _, f in item[1])))


def _slug(kind: str) -> str:
    return "class-" + re.sub(r"[^a-z0-9]+", "-", kind.lower())


# ---- sections


def _of(report: Report, prefix: str) -> Iterator[Section]:
    if told := (*report.misfits, *report.notes):
        yield Section(f"{prefix}notes", "To know first", "", table(("",), [(text(line),) for line in told]))
    yield _verdicts(report, prefix)
    if report.table:
        yield _heat(report, prefix)
    if summing(report):
        yield _accuracy(report, prefix)
    if report.tightness:
        yield _tightness(report, prefix)
    for kind, named in _classes(report).items():
        some = [f for _, f in named]
        where = f"{count(sum(f.count for f in some), 'case')} in {', '.join(dict.fromkeys(f.op for f in some))}."
        words = clean(f"{some[0].rule} {where}")
        articles = "".join(_article(f, prefix + key) for key, f in named)
        yield Section(prefix + _slug(kind), clean(kind), words, articles)
    if report.stale:
        lines = [(f"<code>{text(line)}</code>",) for line in report.stale]
        words = "These lines of the known differences no longer differ. Remove them: the run fails until then."
        yield Section(f"{prefix}stale", "No longer different", words, table(("",), lines))
    if report.elsewhere:
        lines = [(f"<code>{text(line)}</code>",) for line in report.elsewhere]
        words = "These lines of the known differences have examples for other instruction sets. They are not stale."
        yield Section(f"{prefix}elsewhere", "Known elsewhere", words, table(("",), lines))
    if report.unsupported:
        rows = [(f"{n:,}", text(reason)) for reason, n in sorted(report.unsupported.items(), key=lambda i: -i[1])]
        words = "The backend does not have these, and says so, by an error of its own if it is bounds. No accusation."
        yield Section(f"{prefix}unsupported", "Not asked", words, table(("cases", "reason"), rows, numbers=(0,)))


def _backends(reports: Sequence[Report]) -> Section:
    rows = [(who(r), r.verdicts) for r in reports]
    return Section("backends", "Backends", "Each was asked what it has; details follow.", verdict_bars(rows))


def _divider(report: Report, prefix: str) -> Section:
    return Section(f"{prefix}run", who(report), clean(headline(report)) + ".", "")


def _verdicts(report: Report, prefix: str) -> Section:
    rows = list(report.operators.items())
    rows += [("all", report.verdicts)] if len(rows) != 1 else []
    words = "; ".join(f"{v}: {MEANINGS[v]}" for v in Verdict if report.verdicts.get(v)) + "."
    return Section(f"{prefix}verdicts", "Verdicts", words, verdict_bars(rows))


def _heat(report: Report, prefix: str) -> Section:
    legend = "".join(f'<span><i style="background:{colour}"></i>{words}</span>' for colour, words in LEGEND)
    body = f'{heat_map(report.table)}<div class="legend">{legend}</div>'
    words = (
        "Cases by operator and by what they use: hover for the numbers. A case counts in every column it belongs to."
    )
    return Section(f"{prefix}heat", "Where it fails", words, body)


def _accuracy(report: Report, prefix: str) -> Section:
    words = (
        "The greatest error of each case against its bound gamma(h) * sum|x||w|, both in units of u * sum|x||w|. On "
        "the dashed line an error uses its whole bound; above it (ringed), no order of summation explains it."
    )
    return Section(f"{prefix}accuracy", "How far off sums are", words, error_plots(summing(report)))


def _tightness(report: Report, prefix: str) -> Section:
    rows = [(text(t.op), f"{t.networks:,}", f"{t.to_interval:.4g}", f"{t.to_crown:.4g}") for t in report.tightness]
    words = (
        "Geometric means of ratios of widths, on the networks whose bounds hold. Below 1 they are tighter than ours."
    )
    body = table(("operator", "networks", "to our interval", "to our crown"), rows, numbers=(1, 2, 3))
    return Section(f"{prefix}tightness", "How tight bounds are", words, body)


# ---- a finding


def _article(f: Finding, anchor: str) -> str:
    known = '<span class="badge known">known</span>' if f.known is not None else ""
    kind = " died" * (gravity(f.verdict) == "crashed") + " refused" * (gravity(f.verdict) == "refused")
    head = (
        f'<h3>{text(f.op)} <span class="badge{kind}">{text(seen_as(f))}</span>{known}'
        f"<small>{count(f.count, 'case')}; the smallest: {text(configuration(f.case))}</small></h3>"
    )
    said = [(label, words) for label, words in told(f) if label != "rule"]  # the class has said it
    lines = "".join(f"<dt>{label}</dt><dd>{_told(label, words)}</dd>" for label, words in said)
    return f'<article id="{text(anchor)}">{head}<dl>{lines}</dl>{_drawing(f)}</article>'


def _told(label: str, words: str) -> str:
    return f"<pre>{text(words)}</pre>" if label in MONO else text(words)


def _drawing(f: Finding) -> str:
    """The window as a picture, or the drawing in letters where there is none."""
    picture = window(f.case)
    if picture is None:
        return f"<pre>{text(f.drawing)}</pre>" if f.drawing else ""
    letters = f"<details><summary>in letters</summary><pre>{text(f.drawing)}</pre></details>" if f.drawing else ""
    return f'<figure class="window">{picture}</figure>{letters}'


def window(case: Case) -> str | None:
    """What the windows of a case read, as a picture."""
    options = {n: v for n, v in case.options.items() if n != "groups"}  # a picture shows one channel
    if len(case.shapes) > 1:
        options["kernel"] = case.shapes[1][2:]
    # A window without cells is an error of most operators; a norm over the same windows can be drawn.
    geometry: dict[str, Any] = {
        n: options[n] for n in ("kernel", "stride", "padding", "dilation", "ceil_mode") if n in options
    }
    for op, some in ((case.op, options), ("lp_pool", geometry)):
        try:
            return inline(explain(op, case.space, **some).to_svg()).replace(f"{op}:", f"{case.op}:", 1)
        except LunetteError:
            continue
    return None
