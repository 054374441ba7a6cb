"""Processes, turns and medians.

Thread pools of several runtimes in one process spin against each other. So: one thread means one process, pinned to one
core, in which all libraries take turns; more threads mean one process per library, and the processes take turns.
Either way the command itself only asks for turns and waits.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import lunette as ln
from lunette.bench.cases import DIRECTIONS, Layer, Problem
from lunette.bench.memory import Memory
from lunette.bench.networks import DIRECTIONS as NETWORK_DIRECTIONS
from lunette.bench.networks import Network, NetworkProblem
from lunette.bench.result import Result, Run, Timing
from lunette.bench.turns import NAMES, PEERS, AnyProblem, Bench
from lunette.bench.workers import Worker, surroundings


@dataclass(frozen=True)
class Effort:
    """How long to look at one problem."""

    turn: float = 0.005
    """A turn lasts at least these seconds, unless one call is longer."""
    turns: int = 11
    least: int = 3
    budget: float = 2.0
    """Fewer turns, but not fewer than `least`, where they would take longer than these seconds."""


QUICK = Effort(turn=0.002, turns=5, least=2, budget=0.4)


def network_problems(networks: Sequence[Network], directions: Sequence[str]) -> list[NetworkProblem]:
    """Every network in every direction."""
    return [NetworkProblem(n, d) for n in networks for d in NETWORK_DIRECTIONS if d in directions]


def peers_of(asked: Sequence[AnyProblem]) -> list[str]:
    """The libraries that take part in any of these."""
    networks = any(isinstance(p, NetworkProblem) for p in asked)
    layers = any(isinstance(p, Problem) for p in asked)
    return [p.name for p in PEERS if (p.networks and networks) or (p.layers and layers)]


def problems(layers: Sequence[Layer], directions: Sequence[str], dtypes: Sequence[str]) -> list[Problem]:
    """Every layer in every direction and dtype."""
    return [Problem(la, di, dt) for dt in dtypes for la in layers for di in DIRECTIONS if di in directions]


class Session:
    """A run in progress: `measure` one problem after the other, then `finish`."""

    def __init__(self, threads: int, effort: Effort, peers: Sequence[str] = NAMES, memory: bool = True) -> None:
        self.threads, self.effort = threads, effort
        names = ["lunette", "copy", *peers]
        groups = [names] if threads == 1 else [["lunette", "copy"], *([p] for p in peers)]
        with surroundings(threads):
            self.workers = [Worker(Bench, g, threads, effort.turn) for g in groups]
            self.memory = Worker(Memory, threads) if memory else None
        self.versions: dict[str, str] = {}
        self.results: list[Result] = []
        self.peaks: dict[str, float] = {}
        self.figures: dict[str, float] = {}
        for worker in self.workers:
            self.versions |= worker.ask("version_table")

    def measure(self, problem: AnyProblem) -> Result:
        """All libraries in turns."""
        whole = isinstance(problem, NetworkProblem)
        if whole and not self.figures:  # before any network: compiling one is timed as a user meets it, once
            self.figures = self.workers[0].ask("figures")
        if problem.dtype not in self.peaks:
            self._peak(problem.dtype)
        opened: dict[str, Timing] = {}
        owner: dict[str, Worker] = {}
        for worker in self.workers:
            for name, timing in worker.ask("open", problem).items():
                opened[name], owner[name] = timing, worker
        here = [n for n, t in opened.items() if t.calls]
        samples: dict[str, list[float]] = {n: [] for n in here}
        cost = sum(w.ask("costs") for w in self.workers)
        turns = max(self.effort.least, min(self.effort.turns, int(self.effort.budget / max(cost, 1e-9))))
        for turn in range(turns):
            first = turn % len(here)
            for name in here[first:] + here[:first]:
                if self.threads > 1:
                    time.sleep(0.01)  # until the others' pools have stopped spinning
                samples[name].append(owner[name].ask("turn", name))
        timings = {n: replace(t, samples=tuple(samples.get(n, ()))) for n, t in opened.items()}
        ask = self.memory and not (whole and problem.direction != "forward")
        workspace = self.memory.ask("workspace", problem) if self.memory and ask else None
        memory = self.memory.ask("network", problem) if self.memory and ask and whole else {}
        result = result_of(problem, workspace, timings, memory)
        self.results.append(result)
        return result

    def _peak(self, dtype: str) -> None:
        found = max(w.ask("peak", dtype) for w in self.workers)
        self.peaks[dtype] = max(found, self.peaks.get(dtype, 0))

    def finish(self) -> Run:
        """The limits once more, and everything as one value."""
        try:
            for dtype in list(self.peaks):
                self._peak(dtype)
        finally:
            self.close()
        effort = {k: getattr(self.effort, k) for k in ("turn", "turns", "least", "budget")}
        return Run(
            datetime.now(UTC).isoformat(timespec="seconds"),
            self.threads,
            machine(),
            {"python": platform.python_version(), "numpy": np.__version__, **self.versions},
            effort,
            self.peaks,
            tuple(self.results),
            self.figures,
        )

    def close(self) -> None:
        for worker in (*self.workers, *([self.memory] if self.memory else [])):
            worker.close()


def result_of(
    problem: AnyProblem, workspace: int | None, timings: dict[str, Timing], memory: dict[str, int] | None = None
) -> Result:
    """Timings with the facts of their problem."""
    if isinstance(problem, NetworkProblem):
        network = problem.network
        return Result(
            network.name,
            network.op,
            problem.direction,
            problem.dtype,
            network.d,
            tuple(sorted(network.tags)),
            network.shapes[:1],
            network.out,
            {},
            network.operations(problem.direction),
            0,
            workspace,
            timings,
            memory or {},
        )
    layer = problem.layer
    return Result(
        layer.name,
        layer.op,
        problem.direction,
        problem.dtype,
        layer.d,
        tuple(sorted(layer.tags)),
        layer.shapes,
        layer.resolved.out,
        dict(layer.options),
        layer.operations(problem.direction),
        layer.traffic(problem.direction, problem.dtype),
        workspace,
        timings,
    )


def machine() -> dict[str, str]:
    """What it ran on."""
    facts = {"system": platform.platform(), "cores": str(os.cpu_count()), "instruction set": ln.instruction_set()}
    if (cpu := Path("/proc/cpuinfo")).exists():
        named = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if "model name" in line]
        facts["processor"] = named[0] if named else platform.processor()
    cache = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    facts["last-level cache"] = cache.read_text().strip() if cache.exists() else "unknown"
    facts["load"] = f"{os.getloadavg()[0]:.1f}"
    return facts
