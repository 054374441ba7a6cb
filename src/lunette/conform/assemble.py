"""From outcomes to a report: failures that look alike are one finding, reduced, explained, compared with known ones.

The same results give the same report, in whatever order they come.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from math import exp, inf, log
from typing import Any

from lunette.conform.ask import REPEATS, alone, nursery_of, patience, processors
from lunette.conform.backends import Backend, find
from lunette.conform.case import Case
from lunette.conform.findings import finding
from lunette.conform.fit import misfits
from lunette.conform.generate import narrowed
from lunette.conform.known import Known, read
from lunette.conform.result import (
    FAILURES,
    GRAVITY,
    UNJUDGED,
    WRONG,
    Accuracy,
    Batch,
    BatchResult,
    Cell,
    Finding,
    Outcome,
    Report,
    Tightness,
    Verdict,
    gravity,
)
from lunette.conform.shrink import shrink, weight, words
from lunette.conform.worker import Died, Hung, Worker

ROUNDING = frozenset({"accumulation", "precision"})
"""Classes of failures that belong beside the errors of sums: too large ones."""
SAMPLES = 200
"""Accuracy samples kept per operator, dtype and mode."""


def assemble(
    backend: str,
    seed: int,
    results: Iterable[BatchResult],
    known: Sequence[Known] | None = None,
    *,
    workers: int | None = None,
) -> Report:
    """Group, reduce and explain the failures. The same results give the same report, in whatever order they come."""
    found = find(backend)
    ordered = sorted(results, key=lambda r: (r.batch.op, r.batch.index))
    outcomes = [o for r in ordered for o in r.outcomes]
    accepted = read(backend) if known is None else tuple(known)
    limits = next((r.batch for r in ordered), Batch(backend, "", seed, 0, 0))
    unfit = misfits(found, outcomes)

    def is_unasked(o: Outcome) -> bool:
        """An answer to another question is no wrong answer; a crash is one."""
        return o.case.mode in unfit and o.verdict not in (Verdict.CRASHED, Verdict.HUNG)

    outcomes = [replace(o, verdict=Verdict.REFUSED) if o.failed and is_unasked(o) else o for o in outcomes]
    ran = {o.case.op for o in outcomes if o.verdict not in UNJUDGED}
    lines = [line for line in accepted if line.example.op in ran]
    elsewhere = [f"{k.name}: asked with {' or '.join(k.isa)}, not {found.isa}" for k in lines if not k.asked(found.isa)]
    lines = [line for line in lines if line.asked(found.isa)]
    with ThreadPoolExecutor(workers or processors()) as threads:
        stale = [n for n in threads.map(lambda line: _stale(found, line), lines) if n]
        groups = _groups([o for o in outcomes if not is_unasked(o)], accepted)
        explained = list(threads.map(lambda g: _explained(found, limits, *g), groups))
    findings = _merged([f for f in explained if f is not None])
    once = sum(len(some) for (some, line), f in zip(groups, explained, strict=True) if f is None and line is None)
    notes = (f"{once} of the failures did not come again in a process of their own",) if once else ()
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    for o in outcomes:
        operators[o.case.op][str(o.verdict)] += 1
    unsupported = Counter(_reason(o) for o in outcomes if o.verdict in UNJUDGED)
    return Report(
        backend,
        found.version,
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        seed,
        dict(sorted(Counter(str(o.verdict) for o in outcomes).items())),
        _table(outcomes, accepted),
        _accuracy(outcomes),
        tuple(findings),
        tuple(stale),
        0.0,
        dict(sorted(unsupported.items(), key=lambda item: (-item[1], item[0]))),
        operators={op: dict(sorted(c.items())) for op, c in sorted(operators.items())},
        elsewhere=tuple(elsewhere),
        tightness=tuple(_tightness(outcomes)),
        notes=notes,
        unrepeated=once,
        misfits=tuple(unfit.values()),
    )


def _reason(outcome: Outcome) -> str:
    """Why a case was not judged; errors that differ in their numbers are one."""
    return words(outcome.message) if outcome.verdict is Verdict.DECLINED else outcome.message.partition("; got")[0]


Group = tuple[list[Outcome], Known | None]


def _groups(outcomes: Sequence[Outcome], accepted: Sequence[Known]) -> list[Group]:
    """Failures that look like one fact: known ones by their line, wrong answers by operator and class, others by words.

    One mistake shows in values, in indices and in derivatives: the verdict tells wrong answers not apart.
    """
    groups: dict[tuple[Any, ...], list[Outcome]] = defaultdict(list)
    lines: dict[tuple[Any, ...], Known | None] = {}
    for o in outcomes:
        if o.failed:
            line = next((k for k in accepted if k.covers(o)), None)
            said = words(o.message) if o.verdict is Verdict.REFUSED else ""
            no_size = o.case.output is None  # an answer where there is none is not an answer of a wrong size
            how = "wrong" if o.verdict in WRONG else str(o.verdict)
            key = (o.case.op, "", line.name, "") if line else (o.case.op, o.kind, how, said, no_size)
            groups[key].append(o)
            lines[key] = line
    return [(groups[key], lines[key]) for key in sorted(groups)]


def _explained(backend: Backend, limits: Batch, outcomes: list[Outcome], line: Known | None) -> Finding | None:
    """The finding of a group; None if none of its smallest cases fails again in a process of its own."""
    verdicts = Counter(str(o.verdict) for o in outcomes)
    if line is not None and line.example.op == outcomes[0].case.op:
        again = _again(backend, line.example, outcomes[0])
        if again.verdict in FAILURES:
            return finding(backend, again, verdicts, line)
    for first in sorted(outcomes, key=lambda o: weight(o.case))[:3]:
        again = _again(backend, first.case, first)
        if again.verdict in FAILURES:
            smallest = again
            if line is None:
                with closing(_Trying(backend, limits, again)) as attempt:
                    smallest = shrink(again, attempt, backend.tries)
            return finding(backend, smallest, verdicts, line)
    return None


def _again(backend: Backend, case: Case, like: Outcome) -> Outcome:
    return alone(backend, case, REPEATS if like.verdict is Verdict.CRASHED else 1)


class _Trying:
    """Cases tried one after the other, in a worker that is renewed when it ends."""

    def __init__(self, backend: Backend, limits: Batch, first: Outcome) -> None:
        self.backend, self.first = backend, first
        self.space = narrowed(backend.space, limits.modes, limits.ranks, limits.dtypes)
        self.worker: Worker | None = None

    def __call__(self, case: Case) -> Outcome | None:
        if self.backend.supports(case) is not None or (case.output is None) != (self.first.case.output is None):
            return None  # what lunette refuses is another question
        if case.dtype not in self.space.dtypes or (self.backend.may_be_anything and case.d not in self.space.ranks):
            return None
        if self.first.verdict is Verdict.CRASHED:
            return alone(self.backend, case, REPEATS)
        if self.first.verdict is Verdict.HUNG:
            return alone(self.backend, case, deadline=self.backend.deadline / 2)
        if self.worker is None:
            self.worker = nursery_of(self.backend).fork()
        try:
            return self.worker.ask(case, patience(self.backend, case))
        except (Died, Hung):
            self.worker = None
            return None

    def close(self) -> None:
        """No more tries."""
        if self.worker is not None:
            self.worker.end()


def _stale(backend: Backend, line: Known) -> str:
    outcome = alone(backend, line.example, REPEATS if "crash" in line.kinds else 1)
    if outcome.failed and line.covers(outcome):
        return ""
    return f"{line.name}: its example is {outcome.verdict} {outcome.kind}".strip()


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Groups that were reduced to the same case are one; unexplained ones first, then by gravity, then by number."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for f in findings:
        key = (f.op, f.kind, f.verdict, f.case, f.known)
        if key in merged:
            verdicts = dict(Counter(f.verdicts) + Counter(merged[key].verdicts))
            f = replace(f, count=f.count + merged[key].count, verdicts=verdicts)
        merged[key] = f
    worst = list(GRAVITY)
    return sorted(
        merged.values(),
        key=lambda f: (f.known is not None, worst.index(gravity(f.verdict)), -f.count, f.op, f.kind, str(f.verdict)),
    )


def _table(outcomes: Sequence[Outcome], accepted: Sequence[Known]) -> tuple[Cell, ...]:
    cells: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for o in outcomes:
        if o.verdict in UNJUDGED:
            continue
        failed = o.failed
        known = failed and any(k.covers(o) for k in accepted)
        for option in facets(o.case):
            count = cells[o.case.op, option]
            count[0] += 1
            count[1] += failed
            count[2] += known
            count[3] += o.verdict is Verdict.REFUSED
            count[4] += known and o.verdict is Verdict.REFUSED
    return tuple(Cell(op, option, *counts) for (op, option), counts in sorted(cells.items()))


def facets(case: Case) -> Iterator[str]:
    """What a case has that is not plain."""
    yield f"rank {case.d}"
    yield case.dtype
    yield f"data {case.data}"
    yield case.mode
    yield case.layout
    plain = {"padding": 0, "dilation": 1, "ceil_mode": False, "divisor": None, "ties": "first", "stride": None}
    for name, value in case.options.items():
        row = value if isinstance(value, tuple) else (value,)
        if name in ("kernel", "spatial", "output_size", "beta", "p"):
            continue
        if name == "padding" and not isinstance(value, str) and not any(any(p) for p in row if isinstance(p, tuple)):
            continue
        if value != plain.get(name) and set(row) != {plain.get(name)}:
            yield name


def _tightness(outcomes: Sequence[Outcome]) -> Iterator[Tightness]:
    """Where widths are positive and finite, their ratios; a row for each operator and one for all."""
    logs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for o in outcomes:
        if o.widths and all(0 < w < inf for w in o.widths):
            theirs, interval, crown = map(log, o.widths)
            for op in (o.case.op, "all"):
                logs[op].append((theirs - interval, theirs - crown))
    for op in sorted(logs, key=lambda op: (op == "all", op)):
        means = (exp(sum(ratios) / len(ratios)) for ratios in zip(*logs[op], strict=True))
        yield Tightness(op, len(logs[op]), *means)


def _accuracy(outcomes: Sequence[Outcome]) -> tuple[Accuracy, ...]:
    samples: dict[tuple[str, str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for o in outcomes:
        measured = (
            o.verdict is Verdict.WITHIN
            or (o.verdict is Verdict.EQUAL and o.case.data in ("normal", "cancelling"))
            or (o.failed and o.kind in ROUNDING and 0 < o.units < float("inf"))
        )
        key = (o.case.op, o.case.dtype, o.case.mode)
        if measured and len(samples[key]) < SAMPLES:
            samples[key].append((o.units, o.mean_units, o.bound_units))
    return tuple(Accuracy(*key, tuple(s)) for key, s in sorted(samples.items()) if s)
