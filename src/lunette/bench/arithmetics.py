"""`lunette bench --arithmetics`: what rounded and interval arithmetic cost beside the fast kernels, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import lunette as ln
from lunette.arithmetic.rounded import COUNTS
from lunette.bench import cases, networks
from lunette.graph.program import Program
from lunette.op import Arithmetic
from lunette.ops import ALL, KINDS


@dataclass(frozen=True, slots=True)
class Row:
    """One operator or program, dtype and arithmetic: the slowdown against the fast kernels over its cases."""

    what: str
    goal: float | None
    ratios: tuple[float, ...]
    undecided: float

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return exp(sum(map(log, self.ratios)) / len(self.ratios))


POOLS: dict[str, dict[str, Any]] = {
    "max_pool": {"kernel": 3, "stride": 2, "padding": 1},
    "avg_pool": {"kernel": 3, "stride": 2, "padding": 1},
    "smooth_max_pool": {"kernel": 2, "beta": 1.5},
    "lp_pool": {"kernel": 2},
    "global_avg_pool": {},
}
GOALS = {
    ("conv", "float32", "rounded"): 4.0,
    ("conv", "float64", "rounded"): 40.0,
    ("conv", "float32", "interval"): 3.0,
    ("smooth_max_pool", "float32", "rounded"): 8.0,
    ("pools", "float32", "rounded"): 4.0,
    ("pools", "float32", "interval"): 2.5,
    ("program", "float32", "interval"): 15.0,
}


Call = Callable[[str], Any]


def problems(op: str, dtype: str, arithmetic: str) -> Iterator[Call]:
    """Calls that take the name of an arithmetic."""
    rng = np.random.default_rng(0)

    def array(shape: tuple[int, ...], scale: float = 1.0) -> Any:
        return (rng.standard_normal(shape) * scale).astype(dtype)

    function = ALL[KINDS[op]]
    if op in POOLS:
        yield _call(function, (array((8, 64, 56, 56)),), POOLS[op])
        return
    for layer in cases.select([op], "resnet18", False):
        if layer.shapes[0][0] == 1:
            x, w = array(layer.shapes[0]), array(layer.shapes[1], 1 / np.sqrt(np.prod(layer.shapes[1][1:])))
            yield _call(function, (x, w), dict(layer.options))


def _call(f: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]) -> Call:
    x, *rest = operands
    box = ln.Interval(x - np.spacing(abs(x)), x + np.spacing(abs(x)))
    return lambda a: f(box if a == "interval" else x, *rest, **options, arithmetic=a)


def programs() -> Iterator[tuple[str, Call]]:
    """Whole programs on points and on boxes, with their weights as constants; the first is small on purpose."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 28, 28), (8, 1, 3, 3)))
    made = [("conv-relu-pool", ln.trace(lambda x: ln.max_pool(ln.relu(ln.conv(x, w, padding=1)), 2), x).compile(), x)]
    for network in networks.NETWORKS:
        if network.name in ("lenet/b1", "resnet18/b1"):
            feed = network.data()
            made.append((network.name, networks.compiled(network, feed), feed.x))
    for name, program, x in made:
        box = ln.Interval(x - np.float32(2**-8), x + np.float32(2**-8))
        for kind, given in (("points", x), ("boxes", box)):
            yield f"{name} on {kind}", partial(_run, program, x, given)


def _run(program: Program, x: Any, given: Any, arithmetic: Arithmetic) -> Any:
    return program.run(x if arithmetic == "fast" else given, arithmetic=arithmetic)


def slowdown(call: Call, arithmetic: str, turns: int, budget: float) -> float:
    """The ratio of the medians of calls that take turns: `turns` of them, and more within so many seconds."""
    times: dict[str, list[float]] = {arithmetic: [], "fast": []}
    call("fast")
    end = time.perf_counter() + budget
    while len(times["fast"]) < turns or time.perf_counter() < end:
        for a, samples in times.items():
            start = time.perf_counter()
            call(a)
            samples.append(time.perf_counter() - start)
    return float(np.median(times[arithmetic]) / np.median(times["fast"]))


def rows(turns: int = 5, budget: float = 1.0) -> Iterator[Row]:
    """Measure everything, one thread, the arithmetics taking turns with the fast kernels."""
    ln.set_num_threads(1)
    for op in ("conv", *POOLS):
        for dtype in ("float32", "float64"):
            for arithmetic in ("rounded", "interval"):
                COUNTS.clear()
                calls = list(problems(op, dtype, arithmetic))
                for call in calls:
                    call(arithmetic)
                share = COUNTS["undecided"] / max(COUNTS["outputs"], 1)
                ratios = tuple(slowdown(c, arithmetic, turns, budget) for c in calls)
                family = "pools" if op in POOLS else op
                goal = GOALS.get((op, dtype, arithmetic), GOALS.get((family, dtype, arithmetic)))
                yield Row(f"{op} {dtype} {arithmetic}", goal, ratios, share)
    for name, call in programs():
        call("interval")
        ratio = slowdown(call, "interval", turns, budget)
        yield Row(f"{name} float32 interval", GOALS["program", "float32", "interval"], (ratio,), 0.0)


def show(console: Console) -> None:
    """The table."""
    table = Table(title="time / time of the fast kernel, one thread", title_justify="left")
    for column in (
        "operator or program",
        "slowdown",
        "worst case",
        "goal",
        "met",
        "outputs that needed their exact value",
    ):
        table.add_column(column)
    for r in track(rows(), "measuring", total=30, console=console, transient=True):
        met = "" if r.goal is None else "yes" if r.mean <= r.goal else "no"
        goal = "" if r.goal is None else f"≤ {r.goal:g}x"
        exact = f"{r.undecided:.2g}" if "rounded" in r.what else ""
        table.add_row(r.what, f"{r.mean:.2f}x", f"{max(r.ratios):.2f}x", goal, met, exact)
    console.print(table)
