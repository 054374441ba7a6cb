"""Inside a worker: the libraries of one process take turns at one problem.

Every library's answer is compared with lunette's before it is timed.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

import lunette as ln
from lunette.bench.cases import Problem
from lunette.bench.figures import figures
from lunette.bench.networks import Feed, Network, NetworkProblem, derivatives, network_call, network_results
from lunette.bench.peers import Absent, Copy, Lunette, Peer, Way, call_of, reason, results
from lunette.bench.result import Timing
from lunette.bench.with_jax import Jax
from lunette.bench.with_onnx import OnnxRuntime, OpenVino
from lunette.bench.with_torch import ChannelsLast, Compiled, Torch
from lunette.number import Array

PEERS: tuple[type[Peer], ...] = (Torch, ChannelsLast, Compiled, Jax, OnnxRuntime, OpenVino)
NAMES: tuple[str, ...] = tuple(p.name for p in PEERS)
AnyProblem = Problem | NetworkProblem
_KINDS: dict[str, type[Peer]] = {Lunette.name: Lunette, Copy.name: Copy, **{p.name: p for p in PEERS}}


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
