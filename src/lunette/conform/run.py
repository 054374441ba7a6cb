"""A run: a plan of independent batches, carried out anywhere in any order, assembled into one report.

    plan(backend, ...) -> batches;  run_batch(batch) -> BatchResult;  assemble(..., results) -> Report

A batch depends on its own fields alone, so that it can be run again, on another machine, or not at all if a journal
already holds its result. Assembling sorts first: the order of arrival leaves no trace.
"""

from __future__ import annotations

import atexit
import os
import platform
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from lunette.conform import settings
from lunette.conform.backends import Backend, find
from lunette.conform.backends.function import as_backend
from lunette.conform.case import Case
from lunette.conform.findings import finding
from lunette.conform.generate import draws
from lunette.conform.generate import plan as planned
from lunette.conform.journal import Journal
from lunette.conform.known import Known, read
from lunette.conform.result import (
    FAILURES,
    Accuracy,
    Batch,
    BatchResult,
    Cell,
    Finding,
    Outcome,
    Report,
    Verdict,
)
from lunette.conform.shrink import shrink, weight, words
from lunette.conform.worker import Died, Hung, Nursery, Worker
from lunette.errors import ArgumentError, shown

REPEATS = 20
"""How often a suspect is asked again: damage to the heap may take a while to be noticed."""
HANGS = 2
"""Cases of a batch that may hang before the rest of it is left alone: each takes its time twice."""
ROUNDING = frozenset({"accumulation", "precision"})
"""Classes of failures that belong beside the errors of sums: too large ones."""
SAMPLES = 200
"""Accuracy samples kept per operator, dtype and mode."""


# ---- plan


def plan(
    backend: str,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
) -> tuple[Batch, ...]:
    """The batches of a run."""
    found = find(backend)
    total = None if cases is None else settings.whole("cases", cases, 1)
    chosen = settings.operators(found, ops)
    return planned(found, chosen, total, settings.whole("seed", seed, 0), settings.modes(found, modes))


# ---- one batch


_NURSERIES: dict[tuple[int, str], Nursery] = {}
_ONE_AT_A_TIME = threading.Lock()


def nursery_of(backend: Backend) -> Nursery:
    """One per process and backend, kept until the process ends."""
    key = os.getpid(), backend.name
    with _ONE_AT_A_TIME:
        if key not in _NURSERIES:
            backend.check()
            _NURSERIES[key] = Nursery(backend)
        return _NURSERIES[key]


@atexit.register
def close_nurseries() -> None:
    """End the processes that workers are forked from."""
    for (pid, _), nursery in list(_NURSERIES.items()):
        if pid == os.getpid():
            nursery.close()
    _NURSERIES.clear()


def run_batch(batch: Batch) -> BatchResult:
    """The outcomes of a batch, whatever its cases do to the processes they run in."""
    began = time.perf_counter()
    backend = find(batch.backend)
    drawn = list(draws(batch, backend))
    outcomes = _Asking(backend, [case for case, reason in drawn if reason is None]).outcomes()
    judged = iter(outcomes)
    every = [
        next(judged) if reason is None else Outcome(case, Verdict.UNSUPPORTED, message=reason) for case, reason in drawn
    ]
    return BatchResult(batch, tuple(every), time.perf_counter() - began)


class _Asking:
    """Several cases per worker; the one that ended a worker is found by replay, and all after it are asked again."""

    def __init__(self, backend: Backend, cases: Sequence[Case]) -> None:
        self.backend, self.cases = backend, cases
        self.nursery = nursery_of(backend) if cases else None
        self.done: list[Outcome] = []
        self.verdicts: dict[int, Outcome] = {}
        """Cases that must not be asked beside others: they end or stop their worker."""

    def outcomes(self) -> list[Outcome]:
        while len(self.done) < len(self.cases):
            self._go_on()
        return self.done

    def _go_on(self) -> None:
        assert self.nursery is not None
        worker = self.nursery.fork()
        try:
            while (at := len(self.done)) < len(self.cases):
                if at in self.verdicts:
                    self.done.append(self.verdicts[at])
                    continue
                if sum(o.verdict is Verdict.HUNG for o in self.done) >= HANGS:
                    rest = f"not asked: {HANGS} cases before it hung"
                    self.done += [Outcome(c, Verdict.UNSUPPORTED, message=rest) for c in self.cases[at:]]
                    break
                self.done.append(worker.ask(self.cases[at], patience(self.backend, self.cases[at])))
        except Hung:
            self.verdicts[at] = alone(self.backend, self.cases[at])
            return
        except Died as death:
            killer, outcome = self._killer(at, str(death))
            self.verdicts[killer] = outcome
            del self.done[killer:]
            return
        worker.end()

    def _killer(self, last: int, how: str) -> tuple[int, Outcome]:
        """The case it died on if that one kills alone; else one before it that does, those that failed first."""
        failed = [at for at in range(last - 1, -1, -1) if self.done[at].failed]
        for at in [last, *failed, *(at for at in range(last - 1, -1, -1) if at not in failed)]:
            if at not in self.verdicts:
                outcome = alone(self.backend, self.cases[at], REPEATS)
                if outcome.verdict is Verdict.CRASHED:
                    return at, outcome
        message = f"{how}, after {last} other cases in the same process; not alone"
        return last, Outcome(self.cases[last], Verdict.CRASHED, message=message, kind="crash")


def patience(backend: Backend, case: Case) -> float:
    """Seconds a case may take: more if it has many cells."""
    return backend.deadline * (1 + case.size / 2**22)


def alone(backend: Backend, case: Case, repeats: int = 1, deadline: float | None = None) -> Outcome:
    """The outcome of a case in a process of its own."""
    worker = nursery_of(backend).fork()
    try:
        outcome = worker.ask(case, deadline or patience(backend, case) * 1.5, repeats)
    except Hung as late:
        return Outcome(case, Verdict.HUNG, message=str(late), kind="hang")
    except Died as death:
        return Outcome(case, Verdict.CRASHED, message=str(death), kind="crash")
    worker.end()
    return outcome


# ---- everything


class Pool(Protocol):
    """Whatever carries out batches."""

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        """The results, in any order."""


def processors() -> int:
    """How many this process may use."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


class Processes:
    """The machine at hand: as many workers at a time as there are processors. The threads here only wait for them."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or processors()

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        """Results as they come."""
        if batches:
            nursery_of(find(batches[0].backend))
        with ThreadPoolExecutor(self.workers) as threads:
            waiting: set[Future[BatchResult]] = {threads.submit(run_batch, b) for b in batches}
            try:
                while waiting:
                    ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in ready:
                        yield future.result()
            finally:
                for future in waiting:
                    future.cancel()


Progress = Callable[[int, int, Counter[str]], None]


def run(
    backend: str,
    *,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
    workers: int | None = None,
    pool: Pool | None = None,
    on_progress: Progress | None = None,
    journal: Path | str | None = None,
    known: Path | str | None = None,
) -> Report:
    """Measure a backend. With a journal, an interrupted run goes on; an interruption gives a partial report."""
    began = time.perf_counter()
    workers = None if workers is None else settings.whole("workers", workers, 1)
    found = find(backend)
    found.check()
    accepted = read(backend, known)
    batches = plan(backend, ops, cases, seed, modes)
    kept = Journal(Path(journal), found) if journal is not None else None
    done = kept.begin(batches) if kept is not None else {}
    counts: Counter[str] = Counter(str(o.verdict) for r in done.values() for o in r.outcomes)
    complete = True
    if on_progress is not None:
        on_progress(len(done), len(batches), counts)
    try:
        for result in (pool or Processes(workers)).map([b for b in batches if b.key not in done]):
            done[result.batch.key] = result
            if kept is not None:
                kept.add(result)
            counts.update(str(o.verdict) for o in result.outcomes)
            if on_progress is not None:
                on_progress(len(done), len(batches), counts)
    except KeyboardInterrupt:
        if not done:  # there is nothing to report
            raise
        complete = False
    report = assemble(backend, seed, done.values(), accepted, workers=workers)
    if kept is not None and complete:
        kept.finish()
    told = "" if kept is None else kept.told
    return replace(report, seconds=time.perf_counter() - began, complete=complete, journal=told)


# ---- the report


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
    ran = {o.case.op for o in outcomes if o.verdict is not Verdict.UNSUPPORTED}
    lines = [line for line in accepted if line.example.op in ran]
    elsewhere = [f"{k.name}: asked with {' or '.join(k.isa)}, not {found.isa}" for k in lines if not k.asked(found.isa)]
    lines = [line for line in lines if line.asked(found.isa)]
    with ThreadPoolExecutor(workers or processors()) as threads:
        stale = [n for n in threads.map(lambda line: _stale(found, line), lines) if n]
        groups = _groups(outcomes, accepted)
        findings = [f for f in threads.map(lambda g: _explained(found, *g), groups) if f is not None]
    findings = _merged(findings)
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    for o in outcomes:
        operators[o.case.op][str(o.verdict)] += 1
    unsupported = Counter(o.message.partition("; got")[0] for o in outcomes if o.verdict is Verdict.UNSUPPORTED)
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
    )


Group = tuple[list[Outcome], Known | None]


def _groups(outcomes: Sequence[Outcome], accepted: Sequence[Known]) -> list[Group]:
    """Failures that look like one fact: known ones by their line, others by operator, verdict and class."""
    groups: dict[tuple[Any, ...], list[Outcome]] = defaultdict(list)
    lines: dict[tuple[Any, ...], Known | None] = {}
    for o in outcomes:
        if o.failed:
            line = next((k for k in accepted if k.covers(o)), None)
            said = words(o.message) if o.verdict is Verdict.REFUSED else ""
            no_size = o.case.output is None  # an answer where there is none is not an answer of a wrong size
            key = (o.case.op, "", line.name, "") if line else (o.case.op, o.kind, str(o.verdict), said, no_size)
            groups[key].append(o)
            lines[key] = line
    return [(groups[key], lines[key]) for key in sorted(groups)]


def _explained(backend: Backend, outcomes: list[Outcome], line: Known | None) -> Finding | None:
    """The finding of a group; None if none of its smallest cases fails again in a process of its own."""
    if line is not None and line.example.op == outcomes[0].case.op:
        again = _again(backend, line.example, outcomes[0])
        if again.verdict in FAILURES:
            return finding(backend, again, len(outcomes), line)
    for first in sorted(outcomes, key=lambda o: weight(o.case))[:3]:
        again = _again(backend, first.case, first)
        if again.verdict in FAILURES:
            smallest = again
            if line is None:
                with closing(_Trying(backend, again)) as attempt:
                    smallest = shrink(again, attempt, backend.tries)
            return finding(backend, smallest, len(outcomes), line)
    return None


def _again(backend: Backend, case: Case, like: Outcome) -> Outcome:
    return alone(backend, case, REPEATS if like.verdict is Verdict.CRASHED else 1)


class _Trying:
    """Cases tried one after the other, in a worker that is renewed when it ends."""

    def __init__(self, backend: Backend, first: Outcome) -> None:
        self.backend, self.first = backend, first
        self.worker: Worker | None = None

    def __call__(self, case: Case) -> Outcome | None:
        if self.backend.supports(case) is not None or (case.output is None) != (self.first.case.output is None):
            return None  # what lunette refuses is another question
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
    """Groups that were reduced to the same case are one; unexplained findings come first, frequent ones before rare."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for f in findings:
        key = (f.op, f.kind, f.verdict, f.case, f.known)
        merged[key] = replace(f, count=f.count + merged[key].count) if key in merged else f
    return sorted(merged.values(), key=lambda f: (f.known is not None, -f.count, f.op, f.kind, str(f.verdict)))


def _table(outcomes: Sequence[Outcome], accepted: Sequence[Known]) -> tuple[Cell, ...]:
    cells: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for o in outcomes:
        if o.verdict is Verdict.UNSUPPORTED:
            continue
        failed = o.failed
        known = failed and any(k.covers(o) for k in accepted)
        for option in facets(o.case):
            count = cells[o.case.op, option]
            count[0] += 1
            count[1] += failed
            count[2] += known
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


# ---- the front door


def conform(
    target: str | Callable[..., Any],
    op: str | None = None,
    *,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
    jvp: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    dtypes: Any = None,
    ranks: Sequence[int] | int | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
    journal: Path | str | None = None,
    known: Path | str | None = None,
    pool: Pool | None = None,
) -> Report:
    """Measure a library by its name, or a function of yours that should be the operator `op`.

    A function takes the arrays and then lunette's options by name, as far as its signature has them: `f(x, kernel,
    stride, padding)`. Cases that need an option it does not have are not asked.

    target       a backend's name such as "torch"; a function; or "module:function", which is imported
    op           the operator that a function should be; of a library, the only one to measure
    ops          the operators of a library to measure, all if none are named
    cases        how many cases are asked at most, all operators together
    seed         which cases: the same seed asks the same questions
    modes        of "forward", "indices", "jvp", "vjp" those to ask for, all that there are if none are named
    jvp          `jvp(primals, tangents, **options)` of a function, measured, too
    vjp          `vjp(primals, cotangent, **options)` of a function, measured, too
    dtypes       what a function is made for; float32 and float64 unless said
    ranks        the numbers of spatial axes that it is made for; 1, 2 and 3 unless said
    workers      how many processes; one per processor unless said
    on_progress  called with (batches done, batches, cases per verdict)
    journal      a file to go on from after an interruption
    known        a file of accepted differences
    pool         what carries out the batches; processes here unless said

    The report has `findings`, `verdicts`, `exit_status` and more: `lunette.conform.result.Report`.
    """
    own = {"jvp": jvp, "vjp": vjp, "dtypes": dtypes, "ranks": ranks}
    if isinstance(target, str) and (given := [n for n, v in own.items() if v is not None]):
        hint = f"{target} says itself what it has."
        raise ArgumentError("V5", f"{given[0]} only with a function itself", shown(target), hint, who="conform")
    if isinstance(target, str) and (op is None or " as " in target):
        name, chosen = target, op or ops
        if ":" in target and " as " not in target:
            raise ArgumentError("V5", "the operator that a function should be", "none", "Pass op=.", who="conform")
    elif isinstance(target, str) and ":" in target:
        name, chosen = f"{target} as {op}", op
    elif isinstance(target, str):
        name, chosen = target, op or ops
    else:
        name, chosen = as_backend(target, op, jvp, vjp, settings.dtypes(dtypes), settings.ranks(ranks)), ops
    return run(
        name,
        ops=chosen,
        cases=cases,
        seed=seed,
        modes=modes,
        workers=workers,
        pool=pool,
        on_progress=on_progress,
        journal=journal,
        known=known,
    )
