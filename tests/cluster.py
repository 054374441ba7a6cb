"""Runs on a Dask cluster of real processes, one of which is killed half way.

Run by `make cluster`, not by `make test`: pytest tests/cluster.py
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from far_work import FORGETFUL, count_slowly, count_up, ran_here
from lunette.cli import app
from lunette.conform.ask import run_batch
from lunette.conform.cluster import Cluster, remote
from lunette.conform.result import Batch, BatchResult, Report
from lunette.conform.run import plan, run
from lunette.errors import ArgumentError
from lunette.verify.instances import keep_files, read_list, run_instance

HERE = Path(__file__).parent
BATCHES = [Batch("none", "max_pool", 0, at, 5) for at in range(120)]


@dataclass(frozen=True, slots=True)
class Running:
    """Where the scheduler listens, and its workers."""

    address: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 2, losses: int = 3) -> Iterator[Running]:
    """A scheduler and some workers, each a process; all of them end with the test.

    A batch that was on more than so many lost workers is given up by the scheduler.
    """
    where = folder / "scheduler.json"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")]),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(losses),
    }

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
            if workers:
                client.wait_for_workers(workers, timeout=60)
            address = client.scheduler.address
        yield Running(address, started[1:])
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with cluster(tmp_path) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Killing:
    """A cluster that loses its first worker when half of the results are there."""

    pool: Cluster[Batch, BatchResult]
    victim: subprocess.Popen[bytes]

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        for at, result in enumerate(self.pool.map(batches)):
            if at == len(batches) // 2:
                assert self.victim.poll() is None
                self.victim.kill()
            yield result


def lossy(running: Running, work: Callable[[Batch], BatchResult]) -> Killing:
    return Killing(Cluster(running.address, work), running.workers[0])


def test_nothing_is_lost_and_nothing_comes_twice(running: Running) -> None:
    results = list(lossy(running, count_up).map(BATCHES))
    assert running.workers[0].wait(10) != 0 and running.workers[1].poll() is None
    assert sorted(results, key=lambda r: r.batch.index) == [count_up(b) for b in BATCHES]


def test_a_batch_that_the_cluster_gives_up_is_run_here(tmp_path: Path) -> None:
    ran_here.clear()
    with cluster(tmp_path, losses=0) as running:
        results = list(lossy(running, count_up).map(BATCHES))
    assert 1 <= len(ran_here) < len(BATCHES)
    assert sorted(results, key=lambda r: r.batch.index) == [count_up(b) for b in BATCHES]


def test_instances_of_verify_survive_a_killed_worker(running: Running, tmp_path: Path) -> None:
    """Every verdict, once, with its files, as a run on one machine has them; a missing file costs its own row."""
    graph = ln.trace(lambda x: ln.relu(x), np.zeros(1, np.float32))
    graph.save(tmp_path / "net.json")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= Y_0 {}))"
    for k in range(6):
        (tmp_path / f"{k}.vnnlib").write_text(text.format(0.75 + k / 10))
    (tmp_path / "list.csv").write_text("".join(f"net.json,{k}.vnnlib,{60 + k}\n" for k in [*range(6), 9]))
    asked = read_list(tmp_path / "list.csv", None)
    pool = Cluster(running.address, run_instance, who="verify")
    results = []
    for at, result in enumerate(pool.map(asked)):
        if at == 2:
            running.workers[0].kill()
        results.append(keep_files(result, tmp_path / "kept"))
    assert running.workers[0].wait(10) != 0
    by_key = {r["key"]: r for r in results}
    assert len(results) == len(by_key) == len(asked)
    found = [by_key[i.key] for i in asked]
    assert [r["status"] for r in found] == ["disproved"] * 3 + ["proved"] * 3 + ["error"]
    for i, r in zip(asked[3:6], found[3:6], strict=True):
        assert ln.check(graph, ln.Certificate.load(r["file"]), property=i.spec).ok
    words = ["verify", "--instances", str(tmp_path / "list.csv"), "--scheduler", running.address]
    done = CliRunner().invoke(app, [*words, "--results", str(tmp_path / "r.csv")])
    assert done.exit_code == 1, done.output
    rows = [line.split(",")[1:3] for line in (tmp_path / "r.csv").read_text().splitlines()]
    assert rows == [[Path(i.named[1]).name, r["status"]] for i, r in zip(asked, found, strict=True)]
    with pytest.raises(ArgumentError, match=r"^verify \[K2\]"):
        list(Cluster("nonsense", run_instance, wait=1, who="verify").map(asked[:1]))


def without_time(report: Report) -> dict[str, Any]:
    return report.to_json() | {"seconds": 0, "journal": ""}


def test_the_report_is_that_of_a_local_run(running: Running, tmp_path: Path) -> None:
    local = run(FORGETFUL, cases=600)
    assert len(plan(FORGETFUL, None, 600)) > 10 and {"divisor", "size rule"} <= {f.kind for f in local.findings}
    journal = tmp_path / "journal"
    far = run(FORGETFUL, cases=600, pool=lossy(running, run_batch), journal=journal)
    assert running.workers[0].poll() is not None
    assert without_time(far) == without_time(local)
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))  # as if it had not come to its end
    again = run(FORGETFUL, cases=600, pool=Cluster("nobody is asked", run_batch), journal=journal)
    assert without_time(again) == without_time(local)


def test_an_interrupted_run_leaves_no_work_behind(running: Running) -> None:
    stream = Cluster(running.address, count_slowly).map(BATCHES)
    next(stream)
    stream.close()
    dask: Any = importlib.import_module("distributed")
    with dask.Client(running.address, set_as_default=False) as client:
        end = time.monotonic() + 10
        while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            assert time.monotonic() < end, "tasks were left"
            time.sleep(0.05)


def test_workers_must_have_the_same_lunette(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["lunette.conform.cluster"], "VERSION", "9.9")
    with pytest.raises(ArgumentError, match=r"\[K4\] needs lunette 9.9 on every worker; got .* on tcp://127.0.0.1"):
        list(Cluster(running.address, count_up).map(BATCHES[:1]))
    with pytest.raises(ArgumentError, match=r"\[K4\] needs lunette 1.0 on every worker; got '9.9'"):
        remote(count_up, Batch("none", "max_pool", 0, 0, 1), "1.0")


def test_a_cluster_without_workers_or_scheduler_is_named(tmp_path: Path) -> None:
    with cluster(tmp_path, 0) as empty, pytest.raises(ArgumentError, match=r"\[K3\].*dask worker tcp://"):
        list(Cluster(empty.address, count_up, wait=1).map(BATCHES[:1]))
    with pytest.raises(
        ArgumentError, match=r"\[K2\] needs the address of a running Dask scheduler; got 'tcp://127.0.0.1:9'"
    ):
        list(Cluster("tcp://127.0.0.1:9", count_up, wait=1).map(BATCHES[:1]))
    with pytest.raises(ArgumentError, match=r"\[K2\]"):
        list(Cluster("nonsense", count_up, wait=1).map(BATCHES[:1]))
