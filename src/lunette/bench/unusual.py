"""`lunette bench --data KIND`: what unusual numbers cost beside random ones of the same shape, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.bench.cases import Data, Problem
from lunette.bench.peers import call_of
from lunette.number import Array

GOAL = 1.2
"""Nothing costs more than this, of the time that random numbers take."""


def _margin(x: Array) -> Array:
    """Zero near the ends of every spatial axis, as images of digits are."""
    inside: Any = (..., *(slice(n // 5 + 1, n - n // 5 - 1) for n in x.shape[2:]))
    y = np.zeros_like(x)
    y[inside] = x[inside]
    return y


def _dead(x: Array) -> Array:
    """Every other channel zero."""
    y = x.copy()
    y[:, ::2] = 0
    return y


def _one(x: Array, value: float) -> Array:
    """One cell, at a corner, where padding meets it."""
    y = x.copy()
    y.flat[:1] = value
    return y


KINDS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "margin": _margin,
    "dead": _dead,
    "gated": lambda x: np.maximum(x, 0),
    "nan": lambda x: _one(x, np.nan),
    "infinity": lambda x: _one(x, np.inf),
    "denormal": lambda x: x * x.dtype.type(np.finfo(x.dtype).tiny / 8),
}
"""Of the data (not the weights), their tangents and cotangents."""


def unusual(data: Data, kind: str) -> Data:
    """The same problem on other numbers."""
    make = KINDS[kind]
    x, *w = data.arrays
    t, *tw = data.tangents
    return replace(data, arrays=(make(x), *w), tangents=(make(t), *tw), g=make(data.g))


def ratio(problem: Problem, kind: str, seconds: float) -> float:
    """The time on these numbers by that on random ones.

    The processor's time, and the least of many turns, so that as little as possible of the machine's other work counts.
    """
    data = problem.layer.data(problem.dtype)
    calls = [call_of(problem, unusual(data, kind)), call_of(problem, data)]
    start = time.thread_time()
    for call in calls:
        call()
    several = max(1, int(0.002 / max(time.thread_time() - start, 1e-6)))
    least = [float("inf")] * 2
    end, turns = time.thread_time() + seconds, 0
    while turns < 3 or time.thread_time() < end:
        turns += 1
        for i, call in enumerate(calls):
            start = time.thread_time()
            for _ in range(several):
                call()
            least[i] = min(least[i], time.thread_time() - start)
    return least[0] / least[1]


def rows(asked: Sequence[Problem], kinds: Sequence[str], seconds: float = 0.3) -> Iterator[tuple[Problem, list[float]]]:
    """Every problem on every kind of numbers, on one thread."""
    ln.set_num_threads(1)
    for problem in asked:
        with np.errstate(all="ignore"):
            yield problem, [ratio(problem, kind, seconds) for kind in kinds]


def show(console: Console, asked: Sequence[Problem], kinds: Sequence[str]) -> None:
    """The table, the worst case of each kind below."""
    table = Table(title=f"time / time on random numbers, one thread; goal ≤ {GOAL:g}x", title_justify="left")
    table.add_column("case")
    worst: list[Any] = [0.0] * len(kinds)
    for kind in kinds:
        table.add_column(kind, justify="right")
    for problem, ratios in rows(asked, kinds):
        table.add_row(f"{problem.title} {problem.dtype}", *(f"{r:.2f}" for r in ratios))
        worst = list(map(max, worst, ratios))
    table.add_section()
    table.add_row("worst", *(f"{r:.2f}" for r in worst))
    console.print(table)
