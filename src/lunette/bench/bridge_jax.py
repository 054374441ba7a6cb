"""The rows of `lunette bench --bridges` for JAX: single operators under jit, their gradients, and what a call costs.

XLA sizes its threads when it starts: every number of threads has a process of its own, on as many processors.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from lunette.bench.bridges import Row, turns

SHAPE: Final = (8, 64, 56, 56)
SMALL: Final = (1, 16, 8, 8)
POOL: Final[dict[str, Any]] = {"kernel": (3, 3), "stride": 2, "padding": 1}


def rows(threads: int) -> Iterator[Row]:
    """Everything, with so many threads on both sides."""
    command = [sys.executable, "-m", __name__, str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    for told in json.loads(done.stdout):
        yield Row(**told)


def measured() -> Iterator[Row]:
    """The rows, in this process."""
    jax: Any = importlib.import_module("jax")
    lj: Any = importlib.import_module("lunette.jax")
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal(SHAPE), np.float32)
    size = "x".join(map(str, SHAPE))
    for name, theirs, ours, times in pairs(jax, lj):
        g = ours(x)
        for mode in ("forward", "gradient"):
            first, second = (compiled(jax, f, x, g if mode == "gradient" else None) for f in (theirs, ours))
            yield Row(f"{name} {size}, {mode}, jit", *turns(first, second), times=times)
    for way in ("", "callback"):
        os.environ["LUNETTE_JAX"] = way
        what = f"one max_pool {'x'.join(map(str, SMALL))} more in a function, jit, by {lj.calls()}"
        yield Row(what, *one_call_more(jax, lj), overhead=None if way else 30e-6)


def pairs(jax: Any, lj: Any) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], float | None]]:
    """Names, JAX's own function, ours, and how many times as fast the goal is."""
    jnp, lax = jax.numpy, jax.lax
    w = jnp.asarray(np.random.default_rng(1).standard_normal((64, 64, 3, 3)) / 24, np.float32)
    pads = [(0, 0), (0, 0), (1, 1), (1, 1)]

    def reduced(x: Any, start: float, f: Any) -> Any:
        return lax.reduce_window(x, np.float32(start), f, (1, 1, 3, 3), (1, 1, 2, 2), pads)

    def conv(x: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), pads[2:])

    return [
        ("max_pool", lambda x: reduced(x, -np.inf, lax.max), lambda x: lj.max_pool(x, **POOL), 5.0),
        ("avg_pool", lambda x: reduced(x, 0, lax.add) / 9, lambda x: lj.avg_pool(x, **POOL), None),
        ("lp_pool", lambda x: jnp.sqrt(reduced(x * x, 0, lax.add)), lambda x: lj.lp_pool(x, **POOL), None),
        ("conv 3x3", conv, lambda x: lj.conv(x, w, padding=1), None),
    ]


def compiled(jax: Any, f: Callable[[Any], Any], x: Any, g: Any) -> Callable[[], Any]:
    """A call of the function, or of its transposed derivative where there is a cotangent."""
    if g is None:
        forward = jax.jit(f)
        return lambda: jax.block_until_ready(forward(x))
    gradient = jax.jit(lambda x, g: jax.vjp(f, x)[1](g)[0])
    return lambda: jax.block_until_ready(gradient(x, g))


def one_call_more(jax: Any, lj: Any) -> tuple[float, float]:
    """Seconds that one operator more takes in a compiled function: JAX's own, and ours."""
    x, most = jax.numpy.ones(SMALL, np.float32), 40

    def theirs(x: Any) -> Any:
        return jax.lax.reduce_window(x, np.float32(-np.inf), jax.lax.max, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")

    def ours(x: Any) -> Any:
        return lj.max_pool(x, (3, 3), stride=1, padding=1)

    def chain(f: Callable[[Any], Any], length: int) -> Callable[[], Any]:
        def repeated(x: Any) -> Any:
            for _ in range(length):
                x = f(x)
            return x

        return compiled(jax, repeated, x, None)

    first, second = ((turns(chain(f, 1), chain(f, 1 + most))) for f in (theirs, ours))
    return (first[1] - first[0]) / most, (second[1] - second[0]) / most


if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
    print(json.dumps([asdict(row) for row in measured()]))
