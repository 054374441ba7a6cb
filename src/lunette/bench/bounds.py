"""`lunette bench --bounds`: how tight proven bounds are, and what they cost, beside the goals.

Published networks and boxes are read from a folder that is not part of the project: LUNETTE_VERIFY_DATA, or
shared/verify-data beside the project's own folder. Without it, only what needs no data is measured.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.bench.random_networks import random_network

METHODS = ("interval", "crown", "optimised")
NETWORKS = 100
STEPS = 50  # of "optimised", for published networks
PUBLISHED = {
    "verivital_maxpool": ("vnncomp2021_verivital/Convnet_maxpool.onnx", 9.97, 10.12),
    "verivital_avgpool": ("vnncomp2021_verivital/Convnet_avgpool.onnx", 7.341, 8.45),
    "oval21_base": ("vnncomp2021_oval21/cifar_base_kw.onnx", 0.1873, None),
}
"""The network of a box, and the least margins that crown and optimised are to prove."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number and its goal."""

    what: str
    value: float
    goal: str = ""
    reached: bool | None = None


def data_folder() -> Path | None:
    """Where published networks are, if they are."""
    told = os.environ.get("LUNETTE_VERIFY_DATA")
    found = Path(told) if told else Path.cwd().resolve().parent / "shared" / "verify-data"
    return found if found.is_dir() else None


def _he(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def timed_network(channels: tuple[int, ...], size: int, seed: int, radius: float) -> tuple[ln.Graph, ln.Interval]:
    """conv3-relu-pool, once for each number of channels, the last pool an average; then 64 and 10 neurons."""
    rng = np.random.default_rng(seed)
    x = rng.random((1, channels[0], size, size)).astype(np.float32)

    def f(h: Any) -> Any:
        for at, (before, after) in enumerate(pairwise(channels)):
            h = ln.relu(ln.conv(h, _he(rng, after, before, 3, 3), np.zeros(after, np.float32)))
            h = ln.max_pool(h, 2) if at < len(channels) - 2 else ln.avg_pool(h, 2)
        h = ln.flatten(h)
        h = ln.relu(ln.linear(h, _he(rng, 64, h.shape[1]), np.zeros(64, np.float32)))
        return ln.linear(h, _he(rng, 10, 64), np.zeros(10, np.float32))

    r = np.float32(radius)
    return ln.trace(f, x), ln.Interval(x - r, x + r)


TIMED = {
    "1x28x28, 8 and 16 channels": (((1, 8, 16), 28, 101, 0.01), 0.05),
    "3x32x32, 16, 32 and 32 channels": (((3, 16, 32, 32), 32, 102, 0.002), 0.4),
}


def _seconds(call: Callable[[], Any], runs: int = 5) -> float:
    """The least of some runs."""
    best = np.inf
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return float(best)


def published(folder: Path | None) -> Iterator[Figure]:
    """Margins of published networks."""
    read = getattr(ln, "from_onnx", None)
    if folder is None or read is None:
        return
    for name, (path, crown, optimised) in PUBLISHED.items():
        given = np.load(folder / "boxes" / f"{name}.npz")
        graph, box = read(str(folder / path)), ln.Interval(given["lo"], given["hi"])
        for method, goal in (("crown", crown), ("optimised", optimised)):
            found = ln.bounds(graph, box, method=method, rows=given["rows"], steps=STEPS)
            least = float(found.lo.min())
            yield Figure(
                f"{name}, least margin, {method}{f' in {STEPS} steps' if method == 'optimised' else ''}",
                least,
                "" if goal is None else f">= {goal}",
                None if goal is None else least >= goal,
            )


def random_widths(networks: int = NETWORKS) -> Iterator[Figure]:
    """Each method's own width, to that of the one before it."""
    widths = []
    for seed in range(networks):
        graph, box = random_network(seed)
        own = [ln.bounds(graph, box, method=m).alone for m in METHODS]
        widths.append([float(np.mean(b.hi - b.lo)) for b in own])
    table = np.array(widths)
    for at, method in enumerate(METHODS[1:], 1):
        ratio = table[:, at] / table[:, at - 1]
        mean, share = float(np.exp(np.mean(np.log(ratio)))), float(np.mean(ratio < 1))
        before = METHODS[at - 1]
        yield Figure(f"{networks} random networks: width of {method} to {before}", mean, "< 1", mean < 1)
        yield Figure(f"{networks} random networks: {method} below {before}", share, ">= 0.95", share >= 0.95)


def times() -> Iterator[Figure]:
    """Crown of two networks of usual sizes, on one thread."""
    before = ln.get_num_threads()
    ln.set_num_threads(1)
    try:
        for what, (arguments, goal) in TIMED.items():
            graph, box = timed_network(*arguments)
            found = _seconds(lambda graph=graph, box=box: ln.bounds(graph, box))  # type: ignore[misc]
            yield Figure(f"crown of {what}, seconds", found, f"<= {goal}", found <= goal)
    finally:
        ln.set_num_threads(before)


def show(console: Console) -> None:
    """Measure and print."""
    table = Table("what", "figure", "goal", "reached")
    folder = data_folder()
    for figures in (times(), published(folder), random_widths()):
        for f in figures:
            word = "" if f.reached is None else "yes" if f.reached else "no"
            table.add_row(f.what, f"{f.value:.4g}", f.goal, word)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    table.add_row("memory of this process at most, GiB", f"{peak:.2f}", "<= 1", "yes" if peak <= 1 else "no")
    console.print(table)
    if folder is None:
        console.print("no published networks: set LUNETTE_VERIFY_DATA to their folder", highlight=False)
    elif getattr(ln, "from_onnx", None) is None:
        console.print("no published networks: there is no reader of ONNX files", highlight=False)


def replays(methods: tuple[str, ...] = ("interval", "crown")) -> Iterator[Figure]:
    """Exact replay of certificates of the two networks, nine margins each: processor seconds on one core, and bytes."""
    rows = np.eye(10)[[0] * 9] - np.eye(10)[1:]
    goals = {("interval", 0): 2.0, ("crown", 0): 10.0, ("crown", 1): 120.0}
    for at, (what, (arguments, _)) in enumerate(TIMED.items()):
        graph, box = timed_network(*arguments)
        for method in methods:
            certificate = ln.bounds(graph, box, method=method, rows=rows).certificate()
            begin = time.process_time()
            assert ln.check(graph, certificate).ok
            found, goal = time.process_time() - begin, goals.get((method, at))
            told = "" if goal is None else f"<= {goal:g}"
            yield Figure(f"{method} of {what}: replay, seconds", found, told, None if goal is None else found <= goal)
            yield Figure(f"{method} of {what}: certificate, KiB", len(certificate.data) / 1024)


def show_replays(console: Console) -> None:
    """Measure and print certificates."""
    table = Table("what", "figure", "goal", "reached")
    for f in replays():
        table.add_row(f.what, f"{f.value:.4g}", f.goal, "" if f.reached is None else "yes" if f.reached else "no")
    console.print(table)
