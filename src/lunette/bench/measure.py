"""Processes, turns and medians.

Thread pools of several runtimes in one process spin against each other. So: one thread means one process, pinned to one
core, in which all libraries take turns; more threads mean one process per library, and the processes take turns.
Either way the command itself only asks for turns and waits.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

import lunette as ln
from lunette.bench.cases import DIRECTIONS, Layer, Problem
from lunette.bench.figures import figures
from lunette.bench.networks import DIRECTIONS as NETWORK_DIRECTIONS
from lunette.bench.networks import (
    Feed,
    Network,
    NetworkProblem,
    compiled,
    derivatives,
    network_call,
    network_results,
)
from lunette.bench.peers import Absent, Copy, Lunette, Peer, Way, call_of, reason, results
from lunette.bench.result import Result, Run, Timing
from lunette.bench.with_jax import Jax
from lunette.bench.with_onnx import OnnxRuntime, OpenVino
from lunette.bench.with_torch import ChannelsLast, Compiled, Torch
from lunette.number import Array

PEERS: tuple[type[Peer], ...] = (Torch, ChannelsLast, Compiled, Jax, OnnxRuntime, OpenVino)
NAMES: tuple[str, ...] = tuple(p.name for p in PEERS)
AnyProblem = Problem | NetworkProblem
_KINDS: dict[str, type[Peer]] = {Lunette.name: Lunette, Copy.name: Copy, **{p.name: p for p in PEERS}}


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


# ---- inside a worker


NETWORK_TOLERANCE = 1e-2
"""Of the Euclidean norm of a result. Cell by cell is too strict for the gradients of networks: some cells of PyTorch's,
of VGG-11 at batch 32, are 4e-3 of the root mean square from float64, while in norm it is 1e-4 off. A wrong answer is
off by its whole size."""


def agree(got: Sequence[Array], reference: Sequence[Array], network: bool = False) -> str:
    """Empty if these are the same up to rounding, else what differs. Loose: it guards against wrong adapters.

    One cell in 100,000 may differ: float32 data has a few ties, and libraries choose different winners.
    """
    if len(got) != len(reference):
        return f"{len(got)} results instead of {len(reference)}"
    for a, b in zip(got, reference, strict=True):
        if a.shape != b.shape:
            return f"shape {a.shape} instead of {b.shape}"
        if a.dtype != b.dtype:
            return f"dtype {a.dtype} instead of {b.dtype}"
        if network:
            off_by = float(np.linalg.norm(np.subtract(a, b, dtype=np.float64)))
            if not off_by <= NETWORK_TOLERANCE * float(np.linalg.norm(b)):  # a NaN is not
                return f"a result of shape {b.shape} differs"
            continue
        scale = float(np.sqrt(np.mean(np.square(b, dtype=np.float64)))) if b.size else 0.0
        off = np.abs(a - b) > 1e-3 * (np.abs(b) + scale)
        off |= np.isnan(a) != np.isnan(b)
        if (count := int(off.sum())) > b.size // 100_000:
            return f"{count} of {b.size} cells differ"
    return ""


class Bench:
    """The libraries of one process, and the problem they are at."""

    def __init__(self, names: Sequence[str], threads: int, turn: float) -> None:
        self.turn_seconds = turn
        self.peers: dict[str, Peer] = {}
        self.versions: dict[str, str] = {}
        self.ready: dict[str, tuple[Way, int]] = {}
        self.seconds: dict[str, float] = {}
        for name in names:
            kind = _KINDS[name]
            try:
                self.peers[name] = kind(threads)
                self.versions[name] = self.peers[name].version
            except ImportError as error:
                self.versions[name] = f"not installed ({reason(error)})"
        if "lunette" not in names:
            ln.set_num_threads(1)  # it only checks here

    def open(self, problem: AnyProblem) -> dict[str, Timing]:
        """Prepare every library; check its answer; find how many calls make a turn."""
        self.ready, self.seconds = {}, {}
        gc.collect()
        if isinstance(problem, NetworkProblem):
            feed = problem.network.data()
            if problem.direction == "derivatives":
                return self._open_derivatives(problem.network, feed)
            right = network_results(network_call(problem, feed)())
            return self._open(
                lambda peer: self._choose(peer.name, peer.network_ways(problem, feed), right, network=True),
                [n for n in self.versions if _KINDS[n].networks],
            )
        data = problem.layer.data(problem.dtype)
        reference = results(call_of(problem, data)())
        fixed = problem.layer.calls if problem.direction == "forward" else None
        return self._open(
            lambda peer: self._choose(peer.name, peer.ways(problem, data), reference, fixed),
            [n for n in self.versions if _KINDS[n].layers],
        )

    def _open(self, choose: Callable[[Peer], Timing], names: Sequence[str]) -> dict[str, Timing]:
        opened = {}
        for name in names:
            if name not in self.peers:
                opened[name] = Timing(absent=self.versions[name])
                continue
            try:
                opened[name] = choose(self.peers[name])
            except Exception as error:  # whatever a library raises is its reason
                opened[name] = Timing(absent=reason(error))
        return opened

    def _open_derivatives(self, network: Network, feed: Feed) -> dict[str, Timing]:
        """Lunette's own calls take the turns of libraries. That they are right is not asked here."""
        if "lunette" not in self.peers:
            return {}
        calls = derivatives(network, feed)
        return {name: self._choose(name, [Way("", call, lambda _: ())], None) for name, call in calls.items()}

    def _choose(
        self,
        name: str,
        ways: Sequence[Way],
        reference: Sequence[Array] | None,
        fixed: int | None = None,
        network: bool = False,
    ) -> Timing:
        """The fastest way that gives the right answer."""
        wrong: dict[str, str] = {}
        failed: dict[str, str] = {}
        times: dict[str, float] = {}
        for way in ways:
            try:
                got = way.read(way.call())
                if name != "copy" and reference is not None and (differs := agree(got, reference, network)):
                    wrong[way.name] = differs
                else:
                    times[way.name] = self._trial(way.call)
            except Exception as error:
                failed[way.name] = reason(error)
        if wrong and not times:
            return Timing(mismatch="; ".join(f"{n} {why}".strip() for n, why in wrong.items()))
        if not times:
            raise Absent("; ".join(f"{n} {why}".strip() for n, why in failed.items()))
        fastest = min(times, key=lambda n: times[n])
        way = next(w for w in ways if w.name == fastest)
        calls = fixed or max(1, min(ceil(self.turn_seconds / times[fastest]), 100_000))
        self.ready[name] = way, calls
        self.seconds[name] = calls * times[fastest]
        return Timing(calls=calls, way=fastest, ways=times if len(ways) > 1 else {}, dropped=wrong | failed)

    def _trial(self, call: Callable[[], Any]) -> float:
        """A first idea: the best of three calls, or one that is long."""
        first = self._time(call, 1)
        return first if first > 0.05 else min(first, self._time(call, 1), self._time(call, 1))

    @staticmethod
    def _time(call: Callable[[], Any], calls: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return (time.perf_counter_ns() - start) / 1e9 / calls

    def turn(self, name: str) -> float:
        """Seconds per call, in one turn. A first call, not counted, brings the data back into the caches."""
        way, calls = self.ready[name]
        gc.disable()
        try:
            if self.seconds[name] < 0.1:
                way.call()
            return self._time(way.call, calls)
        finally:
            gc.enable()

    def version_table(self) -> dict[str, str]:
        """Version per library, or why it is not there."""
        return self.versions

    def figures(self) -> dict[str, float]:
        """What concerns lunette alone."""
        return figures()

    def costs(self) -> float:
        """Seconds that a turn of everyone will take."""
        return sum(self.seconds.values())

    def peak(self, dtype: str) -> float:
        """GFLOP/s of the best matrix product at hand."""
        n = 1024
        a, b = (np.random.default_rng(s).standard_normal((n, n)).astype(dtype) for s in (1, 2))
        products: list[Callable[[], Any]] = [lambda: a @ b]
        if "PyTorch" in self.peers:
            torch = importlib.import_module("torch")
            s, t = torch.from_numpy(a), torch.from_numpy(b)
            products.append(lambda: s @ t)
        best = min(self._time(p, 1) for p in products for _ in range(8))
        return 2 * n**3 / best / 1e9


class Memory:
    """A process that has computed nothing yet; every problem gets a fresh copy of it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        ln.set_num_threads(threads)

    def workspace(self, problem: AnyProblem) -> int | None:
        """Bytes beyond operands and results at the peak of one call; None where the system does not tell."""
        return self._peak(_lunette_calls, problem)

    def network(self, problem: NetworkProblem) -> dict[str, int]:
        """What lunette's plan of a network says it takes, and what PyTorch takes by the measure of `workspace`."""
        memory = compiled(problem.network, problem.network.data()).stats(repeat=1)
        found = {"arena": memory.arena, "largest live set": memory.largest_live}
        torch = self._peak(_torch_calls, problem, self.threads)
        return found if torch is None else {**found, "PyTorch": torch}

    def _peak(self, calls: Callable[..., tuple[Call, Call]], *arguments: Any) -> int | None:
        if not Path("/proc/self/clear_refs").exists():
            return None
        here, there = multiprocessing.Pipe(duplex=False)
        target = (calls, arguments, there)
        child = multiprocessing.get_context("fork").Process(target=_peak_of_one_call, args=target)
        child.start()
        there.close()
        try:
            found: int | None = here.recv()
        except EOFError:
            found = None
        child.join()
        return found


Call = Callable[[], Sequence[Array]]


def _lunette_calls(problem: AnyProblem) -> tuple[Call, Call]:
    """A small call of the same kind, and the one that counts."""

    def of_layer(problem: Problem) -> Call:
        call = call_of(problem, problem.layer.data(problem.dtype))
        return lambda: results(call())

    def of_network(problem: NetworkProblem) -> Call:
        call = network_call(problem, problem.network.data())
        return lambda: network_results(call())

    if isinstance(problem, NetworkProblem):
        return of_network(replace(problem, network=problem.network.shrunk())), of_network(problem)
    return of_layer(replace(problem, layer=problem.layer.shrunk())), of_layer(problem)


def _torch_calls(problem: NetworkProblem, threads: int) -> tuple[Call, Call]:
    torch = Torch(threads)

    def of(problem: NetworkProblem) -> Call:
        (way,) = torch.network_ways(problem, problem.network.data())
        return lambda: way.read(way.call())

    return of(replace(problem, network=problem.network.shrunk())), of(problem)


def _peak_of_one_call(calls: Callable[..., tuple[Call, Call]], arguments: Sequence[Any], to: Any) -> None:
    try:
        small, call = calls(*arguments)
    except ImportError:
        to.send(None)
        return
    small()  # code is loaded, pools of threads are started
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # memory that is free but still resident would serve the call unseen
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    except OSError:
        to.send(None)
        return
    before = _status("VmRSS")
    value = call()
    to.send(max(0, _status("VmHWM") - before - sum(a.nbytes for a in value)))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


# ---- the workers, from outside


def _serve(kind: type[Any], arguments: tuple[Any, ...], pipe: Any) -> None:
    served = kind(*arguments)
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        method, *given = asked
        try:
            pipe.send((True, getattr(served, method)(*given)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Worker:
    """A process that holds one object and calls its methods for us."""

    def __init__(self, kind: type[Any], *arguments: Any) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(kind, arguments, theirs), daemon=kind is not Memory)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def ask(self, method: str, *arguments: Any) -> Any:
        self.pipe.send((method, *arguments))
        try:
            fine, answer = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"a library ended the process, exit code {self.process.exitcode}") from None
        if not fine:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
            self.process.join(5)
        if self.process.is_alive():
            self.process.kill()


@contextmanager
def surroundings(threads: int) -> Iterator[None]:
    """What a worker inherits: its cores, and how many threads libraries may start."""
    count = str(threads)
    alone = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if threads == 1 else ""
    settings = {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {alone}".strip(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    before = {name: os.environ.get(name) for name in settings}
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    os.environ.update(settings)
    if cores:
        os.sched_setaffinity(0, sorted(cores)[-threads:])
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
