"""How much memory one call takes beyond its operands and results, in a process that has computed nothing yet."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lunette as ln
from lunette.bench.cases import Problem
from lunette.bench.networks import NetworkProblem, compiled, network_call, network_results
from lunette.bench.peers import call_of, results
from lunette.bench.turns import AnyProblem
from lunette.bench.with_torch import Torch
from lunette.number import Array


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
