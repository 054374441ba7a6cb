"""One batch: its cases asked in processes that may die or hang, and the outcome of each.

The one that ended a worker is found by asking the cases alone; a hung one is given up.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Sequence

from lunette.conform.backends import Backend, find
from lunette.conform.case import Case
from lunette.conform.generate import draws
from lunette.conform.result import Batch, BatchResult, Outcome, Verdict
from lunette.conform.worker import Died, Hung, Nursery

REPEATS = 20
"""How often a suspect is asked again: damage to the heap may take a while to be noticed."""
HANGS = 2
"""Cases of a batch that may hang before the rest of it is left alone: each takes its time twice."""

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


def processors() -> int:
    """How many this process may use."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
