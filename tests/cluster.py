"""A Dask cluster of real processes for tests, and work for it that needs no backend."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lunette.conform.case import Case
from lunette.conform.result import Batch, BatchResult, Outcome, Verdict

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Running:
    """Where the scheduler listens, and its workers."""

    address: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Running]:
    """A scheduler and some workers, each a process; all of them end with the test."""
    where = folder / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        with (folder / f"{words[0]}-{time.monotonic_ns()}.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    shared = ("--scheduler-file", str(where), "--no-dashboard")
    started = [start("dask_scheduler", "--port", "0", "--host", "127.0.0.1", *shared)]
    try:
        for _ in range(workers):
            alone = ("--no-nanny", "--nthreads", "1", "--host", "127.0.0.1")
            started.append(start("dask_worker", *shared, *alone, "--local-directory", str(folder)))
        dask: Any = importlib.import_module("distributed")
        end = time.monotonic() + 60
        while not where.exists():
            assert time.monotonic() < end and started[0].poll() is None, "the scheduler did not start"
            time.sleep(0.05)
        with dask.Client(scheduler_file=str(where), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
            address = client.scheduler.address
        yield Running(address, started[1:])
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def count_up(batch: Batch) -> BatchResult:
    """Outcomes that only depend on the batch, after a while."""
    time.sleep(0.02)
    verdicts = (Verdict.EQUAL, Verdict.WITHIN, Verdict.VALUE)
    cases = [Case(batch.op, ((1, 1, 4),), {"kernel": (2,)}, seed=batch.index * 100 + at) for at in range(batch.cases)]
    return BatchResult(batch, tuple(Outcome(c, verdicts[c.seed % 3]) for c in cases))
