"""A run: a plan of independent batches, carried out anywhere in any order, assembled into one report.

    plan(backend, ...) -> batches;  run_batch(batch) -> BatchResult;  assemble(..., results) -> Report

A batch depends on its own fields alone, so that it can be run again, on another machine, or not at all if a journal
already holds its result. Assembling sorts first: the order of arrival leaves no trace.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from lunette.conform import report as _report  # noqa: F401 (it tells a report how to show itself)
from lunette.conform import settings
from lunette.conform.ask import nursery_of, processors, run_batch
from lunette.conform.assemble import assemble
from lunette.conform.backends import find
from lunette.conform.backends.own import as_backend
from lunette.conform.fit import Fit, fit
from lunette.conform.generate import plan as planned
from lunette.conform.journal import Journal
from lunette.conform.known import read
from lunette.conform.result import Batch, BatchResult, Report
from lunette.errors import ArgumentError, refuses, shown
from lunette.workers import as_they_come

# ---- plan


def plan(
    backend: str,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
    ranks: Sequence[int] | int | None = None,
    dtypes: Any = None,
) -> tuple[Batch, ...]:
    """The batches of a run."""
    found = find(backend)
    total = None if cases is None else settings.whole("cases", cases, 1)
    chosen = settings.operators(found, ops)
    limits = settings.modes(found, modes), settings.ranks(found, ranks), settings.dtypes(found, dtypes)
    return planned(found, chosen, total, settings.whole("seed", seed, 0), *limits)


# ---- everything


class Pool(Protocol):
    """Whatever carries out batches."""

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        """The results, in any order."""


class Processes:
    """The machine at hand: as many workers at a time as there are processors. The threads here only wait for them."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or processors()

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        """Results as they come."""
        if batches:
            nursery_of(find(batches[0].backend))
        yield from as_they_come(run_batch, batches, self.workers)


Progress = Callable[[int, int, Counter[str]], None]


def run(
    backend: str,
    *,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
    ranks: Sequence[int] | int | None = None,
    dtypes: Any = None,
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
    batches = plan(backend, ops, cases, seed, modes, ranks, dtypes)
    fitted = Fit()
    if found.may_be_anything and ranks is None and batches:
        fitted = fit(found, batches[0].op, (batches[0].dtypes or found.space.dtypes)[0])
        if fitted.ranks:
            batches = plan(backend, ops, cases, seed, modes, fitted.ranks, dtypes)
    if fitted.alike:
        first = replace(batches[0], cases=len(fitted.alike))
        report = assemble(backend, seed, [BatchResult(first, fitted.alike)], accepted, workers=workers)
        return replace(report, seconds=time.perf_counter() - began)
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
    notes = report.notes + fitted.notes
    if cases is not None and complete and report.asked < cases:
        notes += (f"{report.asked:,} of {cases:,} cases could be asked: the others are not supported",)
    return replace(report, seconds=time.perf_counter() - began, complete=complete, journal=told, notes=notes)


# ---- the front door


@refuses
def conform(
    target: str | Callable[..., Any],
    op: str | None = None,
    *,
    ops: Sequence[str] | str | None = None,
    cases: int | None = None,
    seed: int = 0,
    modes: Sequence[str] | str | None = None,
    jvp: Callable[..., Any] | str | None = None,
    vjp: Callable[..., Any] | str | None = None,
    dtypes: Any = None,
    ranks: Sequence[int] | int | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
    journal: Path | str | None = None,
    known: Path | str | None = None,
    pool: Pool | None = None,
) -> Report:
    """Measure a library by its name, or a function of yours that should be the operator `op`, or `op="bounds"`.

    A function takes the arrays and then lunette's options by name, as far as its signature has them: `f(x, kernel,
    stride, padding)`. Cases that need an option it does not have are not asked. One that claims bounds takes (network,
    lo, hi) and returns (lo, hi): lunette.conform.backends.bounds.

    target       a backend's name such as "torch"; a function; or "module:function", which is imported
    op           the operator that a function should be, or "bounds"; of a library, the only one to measure
    ops          the operators of a library to measure, or of the networks to bound, all if none are named
    cases        how many cases are asked, all operators together
    seed         which cases: the same seed asks the same questions
    modes        of "forward", "indices", "jvp", "vjp" those to ask for, all that there are if none are named
    jvp          `jvp(primals, tangents, **options)` of a function, measured, too; of a "module:function" its name
    vjp          `vjp(primals, cotangent, **options)` of a function, measured, too; of a "module:function" its name
    dtypes       those to ask for; of a function float32 and float64 unless said
    ranks        the numbers of spatial axes to ask for; of a function 1, 2 and 3 unless said, less those that it
                 refuses to be called with
    workers      how many processes; one per processor unless said
    on_progress  called with (batches done, batches, cases per verdict)
    journal      a file to go on from after an interruption
    known        a file of accepted differences
    pool         what carries out the batches; processes here unless said

    The report has `findings`, `verdicts`, `exit_status` and more: `lunette.conform.result.Report`.
    """
    own = {n: v for n, v in {"jvp": jvp, "vjp": vjp}.items() if v is not None}
    for name, given in own.items():
        if isinstance(target, str) and not (":" in target and isinstance(given, str)):
            hint = "Name it, as in vjp='module:function'." if ":" in target else f"{target} says itself what it has."
            raise ArgumentError("V5", f"{name} only with a function itself", shown(target), hint, who="conform")
    if isinstance(target, str) and ":" not in target and op == "bounds":
        name, chosen = f"{target} as bounds", ops
    elif isinstance(target, str) and (op is None or " as " in target):
        name, chosen = target, op or ops
        if ":" in target and " as " not in target:
            raise ArgumentError("V5", "the operator that a function should be", "none", "Pass op=.", who="conform")
    elif isinstance(target, str) and ":" in target:
        name = " ".join([f"{target} as {op}", *(f"{n}={v}" for n, v in own.items())])
        chosen = ops if op == "bounds" else op
    elif isinstance(target, str):
        name, chosen = target, op or ops
    else:
        name, chosen = as_backend(target, op, own.get("jvp"), own.get("vjp")), ops
    return run(
        name,
        ops=chosen,
        cases=cases,
        seed=seed,
        modes=modes,
        ranks=ranks,
        dtypes=dtypes,
        workers=workers,
        pool=pool,
        on_progress=on_progress,
        journal=journal,
        known=known,
    )
