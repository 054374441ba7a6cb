"""The rows of `lunette bench --bridges` that are about JAX: lunette.jax beside `lax`, in one process, taking turns.

XLA sizes its threads when it starts, so every number of threads has a process of its own, on as many processors.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

SHAPE: Final = (8, 64, 56, 56)
SMALL: Final = (1, 16, 8, 8)
TURNS: Final = 15


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what is compared, in seconds. Without `other`, the time itself has the goal."""

    what: str
    threads: int
    ours: float
    other: float | None
    goal: float | None
    """At least so many times faster than the other; or at most so many seconds."""

    @property
    def ratio(self) -> float | None:
        """How many times faster than the other."""
        return None if self.other is None else self.other / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.ours <= self.goal if self.ratio is None else self.ratio >= self.goal


def rows(threads: int = 1) -> list[Row]:
    """Measured in a process of its own, on the first `threads` of the processors that there are."""
    command = [sys.executable, "-m", __name__, str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [Row(**told) for told in json.loads(done.stdout)]


def _times(*calls: Callable[[], Any]) -> list[float]:
    """The least time of each, taking turns: whatever else runs here only adds to it."""
    least = [float("inf")] * len(calls)
    for call in calls:
        call()
    for _ in range(TURNS):
        for at, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[at] = min(least[at], time.perf_counter() - start)
    return least


def _measured(threads: int) -> Iterator[Row]:
    jax: Any = importlib.import_module("jax")
    lj: Any = importlib.import_module("lunette.jax")
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(SHAPE), jnp.float32)
    w = jnp.asarray(rng.standard_normal((64, 64, 3, 3)) / 24, jnp.float32)
    pads = [(0, 0), (0, 0), (1, 1), (1, 1)]

    def reduced(x: Any, start: float, f: Any) -> Any:
        return lax.reduce_window(x, np.float32(start), f, (1, 1, 3, 3), (1, 1, 2, 2), pads)

    pool = {"kernel": (3, 3), "stride": 2, "padding": 1}
    pairs: list[tuple[str, Any, Any, float | None]] = [
        ("max_pool 3x3/2", lambda x: lj.max_pool(x, **pool), lambda x: reduced(x, -np.inf, lax.max), 5.0),
        ("avg_pool 3x3/2", lambda x: lj.avg_pool(x, **pool), lambda x: reduced(x, 0, lax.add) / 9, None),
        (
            "lp_pool 3x3/2",
            lambda x: lj.lp_pool(x, **pool),
            lambda x: jnp.sqrt(reduced(x * x, 0, lax.add)),
            None,
        ),
        (
            "conv 3x3",
            lambda x: lj.conv(x, w, padding=1),
            lambda x: lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)]),
            None,
        ),
    ]
    for name, ours, other, goal in pairs:
        g = ours(x)
        for mode in ("forward", "gradient"):
            calls = []
            for f in (ours, other):
                if mode == "forward":
                    compiled, given = jax.jit(f), (x,)
                else:
                    compiled, given = jax.jit(lambda x, g, f=f: jax.vjp(f, x)[1](g)[0]), (x, g)
                calls.append(lambda c=compiled, a=given: jax.block_until_ready(c(*a)))
            yield Row(f"{name}, {mode}", threads, *_times(*calls), goal)
    small = jnp.ones(SMALL, jnp.float32)

    def chain(length: int) -> Callable[[], Any]:
        def f(x: Any) -> Any:
            for _ in range(length):
                x = lj.max_pool(x, (3, 3), stride=1, padding=1)
            return x

        compiled = jax.jit(f)
        return lambda: [jax.block_until_ready(compiled(small)) for _ in range(20)]

    for way, goal in (("", 30e-6), ("callback", None)):
        os.environ["LUNETTE_JAX"] = way
        one, many = _times(chain(1), chain(41))
        yield Row(f"one call more in a function, by {lj.calls()}", threads, (many - one) / 40 / 20, None, goal)


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:wanted])
    print(json.dumps([asdict(row) for row in _measured(wanted)]))
