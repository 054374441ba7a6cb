"""Seconds that concern lunette alone: how long it takes to compile, to differentiate, and to be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import lunette as ln
from lunette.bench.cases import Layer, Problem, select
from lunette.bench.networks import NETWORKS, compiled
from lunette.bench.peers import call_of

CHAIN = 16_000
COMPILE = "trace and compile ResNet-18"
OVERHEAD = "vjp beyond its calls"
GRAD_CHAIN, JVP_CHAIN = f"grad of {CHAIN:,} relu", f"jvp of {CHAIN:,} relu"


def figures() -> dict[str, float]:
    """All of them, in seconds."""
    return {**dict(_compiling()), **dict(_chains()), **dict(_overheads())}


def _seconds(call: Callable[[], Any], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _compiling() -> Iterator[tuple[str, float]]:
    """Once, as a user meets it: nothing is cached yet."""
    network = next(n for n in NETWORKS if n.model.name == "resnet18" and n.batch == 1)
    feed = network.data()
    yield COMPILE, _seconds(lambda: compiled(network, feed))


def _chains() -> Iterator[tuple[str, float]]:
    """The cost is to be linear in the length of a computation, whatever the size of its arrays."""
    x = np.linspace(-1, 1, 8, dtype=np.float32)

    def chain(x: Any) -> Any:
        for _ in range(CHAIN):
            x = ln.relu(x)
        return ln.sum(x)

    gradient = ln.grad(chain)
    yield GRAD_CHAIN, median(_seconds(lambda: gradient(x)) for _ in range(3))
    yield JVP_CHAIN, median(_seconds(lambda: ln.jvp(chain, (x,), (x,))) for _ in range(3))


def _overheads() -> Iterator[tuple[str, float]]:
    """ln.vjp and its pullback on small arrays, less the operator's own forward and VJP, which take turns with it."""
    for op in ("conv", "max_pool"):
        (layer,) = select([op], f"tiny/{op}")
        yield f"{OVERHEAD}: {op}", _overhead(layer)


def _overhead(layer: Layer) -> float:
    data = layer.data("float32")
    forward, backward = (call_of(Problem(layer, d, "float32"), data) for d in ("forward", "vjp"))
    function = getattr(ln, layer.op)

    def operator(*arrays: Any) -> Any:
        return function(*arrays, **layer.options)

    def both() -> Any:
        _, pullback = ln.vjp(operator, *data.arrays)
        return pullback(data.g)

    calls = (both, forward, backward)
    turns = [[_seconds(call, 200) for call in calls] for _ in range(21)]
    whole, first, second = (float(median(column)) for column in zip(*turns, strict=True))
    return whole - first - second
