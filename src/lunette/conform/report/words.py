"""How reports name and spell things, the same in every format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lunette.conform.case import Case
from lunette.conform.result import GRAVITY, SHOWN, Accuracy, Finding, Report, Verdict
from lunette.op import parameters_of
from lunette.ops import ALL

MEANINGS: Final[Mapping[Verdict, str]] = {
    Verdict.EQUAL: "the exact answer, or the float nearest to it",
    Verdict.WITHIN: "off by no more than the derived bound; of claimed bounds, every value tried is within them",
    Verdict.VALUE: "a number that no order of summation explains",
    Verdict.SHAPE: "an output of another size",
    Verdict.INDEX: "the index of another cell",
    Verdict.GRADIENT: "a derivative that is another one",
    Verdict.SPECIAL: "NaN or an infinity, missing or too much",
    Verdict.EXCLUDED: "claimed bounds that leave out a value",
    Verdict.REFUSED: "an error where there is an answer",
    Verdict.CRASHED: "the process died",
    Verdict.HUNG: "no answer in time",
    Verdict.UNSUPPORTED: "not asked: the backend does not have it",
    Verdict.DECLINED: "no bounds but an error, which claims nothing",
}
"""Of lunette: who wrote the report."""
GOOD: Final = (Verdict.EQUAL, Verdict.WITHIN)

# What neither XML nor a terminal may be given: control characters, marks and separators that change the order of
# letters on a screen, halves of surrogate pairs, non-characters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: object) -> str:
    r"""Anyone's text with everything unprintable spelled out; tabs and line breaks stay.

    >>> clean("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _UNPRINTABLE.sub(lambda m: _escaped(ord(m[0])), str(text).replace("\r\n", "\n"))


def _escaped(point: int) -> str:
    return f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}"


def count(n: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "case"), count(1200, "case"), count(2, "class")
    ('1 case', '1,200 cases', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else noun + ('es' if noun.endswith('s') else 's')}"


def configuration(case: Case) -> str:
    """A case in a few words, options as `lunette explain` takes them, and last what is not usual about it.

    >>> configuration(Case("max_pool", ((1, 1, 3, 4),), {"kernel": (2, 2), "padding": ((1, 0), (0, 0))}, mode="vjp"))
    '1x1x3x4 kernel=2 padding=1:0,0 vjp'
    """
    shapes = " * ".join("x".join(map(str, s)) or "()" for s in case.shapes)
    usually = parameters_of(ALL[case.kind])
    options = [f"{n}={_spelled(v)}" for n, v in case.options.items() if n not in usually or v != usually[n].default]
    usual = ("float32", "integers", "contiguous", "forward")
    given = (case.dtype, case.data, case.layout, case.mode)
    layers = [f"{word} {','.join(names)}" for word, names in (("after", case.before), ("before", case.after)) if names]
    unusual = (v for v, plain in zip(given, usual, strict=True) if v != plain)
    return clean(" ".join([shapes, *options, *unusual, *layers]))


def _spelled(value: Any) -> str:
    """3,2 for (3, 2); 1:0,0 for ((1, 0), (0, 0)); one entry for a row of equal ones."""
    if not isinstance(value, tuple | list):
        return str(value)
    entries = [_spelled(v).replace(",", ":") for v in value]
    return entries[0] if len(set(entries)) == 1 else ",".join(entries)


def keys(findings: Sequence[Finding]) -> list[str]:
    """One name per finding, unique in the report and the same in the next run: operator, class, verdict, mode."""
    seen: Counter[str] = Counter()
    names = []
    for f in findings:
        parts = (f.op, f.kind, f.verdict, *((f.case.mode,) if f.case.mode != "forward" else ()))
        name = "--".join(re.sub(r"[^a-z0-9_]+", "-", part.lower()).strip("-") for part in parts)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def who(report: Report) -> str:
    """The backend and its version, which often begins with the same word."""
    if report.version.startswith(report.backend):
        return clean(report.version)
    return clean(f"{report.backend} ({report.version})" if report.version else report.backend)


def headline(report: Report) -> str:
    """The run in one sentence."""
    new, known = len(report.unexplained), len(report.findings) - len(report.unexplained)
    asked = report.asked
    if report.misfits and not report.findings:
        return clean(unfit(report))
    if not asked and report.complete:
        reason, n = max(report.unsupported.items(), key=lambda item: item[1], default=("there was no case", 0))
        return clean(f"nothing was judged: {reason}" + f" ({n:,} of {count(report.cases, 'case')})" * bool(n))
    words = [f"{failures(report)} of {count(asked, 'case')}: {share(asked - report.failures, asked)} agree"]
    words.append(f"{count(new, 'new finding')}" if new else "nothing new")
    words += [f"{known} known"] if known else []
    words += [f"{count(len(report.stale), 'line')} of known differences no longer true"] if report.stale else []
    words += [] if report.complete else ["interrupted"]
    words += [clean(unfit(report))] if report.misfits else []
    return ", ".join(words)


def unfit(report: Report) -> str:
    """The first call that was not made as a function wants to be called."""
    return f"the harness does not fit: {report.misfits[0].partition('. Expected')[0]}"


def failures(report: Report) -> str:
    """What failed, by gravity: wrong answers and refusals always, crashes if there are any."""
    words = {"wrong": "wrong", "crashed": "crashed or hung", "refused": "refused"}
    return ", ".join(f"{n:,} {words[how]}" for how in GRAVITY if (n := report.failed(how)) or how != "crashed")


def share(part: int, whole: int) -> str:
    """A percentage that says 100 only of everything, and 0 only of nothing.

    >>> share(1, 3), share(99999, 100000), share(1, 100000), share(0, 0)
    ('33.3%', '99.9%', '0.1%', 'none')
    """
    if not whole:
        return "none"
    if part in (0, whole):
        return f"{100 * part // whole}%"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f}%"


def summing(report: Report) -> list[Accuracy]:
    """Where there is a bound to measure against; what selects is exact or wrong."""
    kept = [replace(a, samples=tuple(s for s in a.samples if s[2] > 0)) for a in report.accuracy]
    return [a for a in kept if a.samples]


def seen_as(f: Finding) -> str:
    """The verdicts of a finding's cases, the most frequent first."""
    counted = sorted(f.verdicts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} {v}" if len(counted) > 1 else v for v, n in counted) or str(f.verdict)


def told(f: Finding) -> list[tuple[str, str]]:
    """What there is to say about a finding, as (label, text) pairs."""
    lines = [("rule", f.rule), ("reproduce", f.reproducer), ("got", f.got), ("right is", f.expected)]
    lines += [("why", f.why)] if f.why else []
    lines += [("known", f.known)] if f.known is not None else []
    return [(label, clean(text)) for label, text in (*lines, ("replay", repr(f.case))) if text]


SHOWN["line"] = headline
