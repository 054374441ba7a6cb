"""`lunette bench --bridges`: lunette inside of other frameworks beside their own operators, taking turns in one run.

Each bridge is a module with a function `rows(threads)`; its framework may be missing, then so are its rows.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import lunette as ln

BRIDGES: Final[Mapping[str, str]] = {"torch": "lunette.bench.bridge_torch", "jax": "lunette.bench.bridge_jax"}
"""The framework that a bridge needs, and the module with its rows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing, done by a framework and by lunette inside of it: the seconds of the fastest of calls in turns."""

    what: str
    theirs: float
    ours: float
    times: float | None = None
    """The goal: so many times as fast."""
    overhead: float | None = None
    """Or: so many seconds slower at most."""

    @property
    def ratio(self) -> float:
        """How many times as fast lunette is."""
        return self.theirs / self.ours

    @property
    def goal(self) -> str:
        """The goal in words."""
        if self.overhead is not None:
            return f"≤ {self.overhead * 1e6:g} us over theirs"
        return "" if self.times is None else f"≥ {self.times:g}x"

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached."""
        if self.overhead is not None:
            return self.ours - self.theirs <= self.overhead
        return None if self.times is None else self.ratio >= self.times


def turns(
    theirs: Callable[[], Any],
    ours: Callable[[], Any],
    threads: int = 0,
    budget: float = 1.0,
    least: int = 20,
) -> tuple[float, float]:
    """Seconds of two calls that take turns, the fastest of each: whatever else a machine does only adds.

    One thread is measured by the time of its processor, which does not run while others have it; 0 does not say how
    many there are.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    calls, many = (theirs, ours), []
    for call in calls:
        call()
        start = clock()
        call()
        many.append(max(1, int(2e-4 / max(clock() - start, 1e-7))))
    samples: tuple[list[float], list[float]] = ([], [])
    end = clock() + budget
    while len(samples[0]) < least or clock() < end:
        for call, n, times in zip(calls, many, samples, strict=True):
            start = clock()
            for _ in range(n):
                call()
            times.append((clock() - start) / n)
    return min(samples[0]), min(samples[1])


def rows(threads: int) -> Iterator[Row]:
    """Of every bridge whose framework is here."""
    before = ln.get_num_threads()
    ln.set_num_threads(threads)
    try:
        for framework, module in BRIDGES.items():
            if find_spec(framework) is not None:
                yield from importlib.import_module(module).rows(threads)
    finally:
        ln.set_num_threads(before)


def show(console: Console, threads: int) -> None:
    """The table."""
    table = Table(title=f"lunette inside of other frameworks, {threads} thread(s)", title_justify="left")
    for column in ("what", "theirs", "ours", "ratio", "goal", "met"):
        table.add_column(column)
    for r in rows(threads):
        met = "" if r.met is None else "yes" if r.met else "no"
        table.add_row(r.what, _time(r.theirs), _time(r.ours), f"{r.ratio:.2f}x", r.goal, met)
    console.print(table)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
