"""Seconds that concern lunette alone: how long it takes to compile, to differentiate, and to be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import prod
from statistics import median
from typing import Any

import numpy as np

import lunette as ln
from lunette.bench.cases import Layer, select
from lunette.bench.networks import NETWORKS, compiled

CHAIN = 16_000
COMPILE = "trace and compile ResNet-18"
OVERHEAD = "vjp beyond its kernels"
GRAD_CHAIN, JVP_CHAIN = f"grad of {CHAIN:,} relu", f"jvp of {CHAIN:,} relu"


def figures() -> dict[str, float]:
    """All of them, in seconds."""
    return {**dict(_compiling()), **dict(_chains()), **dict(_overheads())}


def _seconds(call: Callable[[], Any], calls: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


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
    """ln.vjp and its pullback on small arrays, less the operator's own kernels, which take turns with it.

    Not less the public calls `ln.<op>` and `ln.<op>_vjp`: those check arguments too, and what they spend on it would be
    taken off what ln.vjp spends.
    """
    for op in ("conv", "max_pool"):
        (layer,) = select([op], f"tiny/{op}")
        yield f"{OVERHEAD}: {op}", _overhead(layer)


def _overhead(layer: Layer) -> float:
    data, resolved = layer.data("float32"), layer.resolved
    kernels = resolved.op.kernels(np.dtype("float32"), prod(resolved.batch), resolved.shapes)
    arrays = (*data.arrays, *(None for _ in resolved.shapes[len(data.arrays) :]))
    forward, vjp = kernels.forward, kernels.vjp[: len(data.arrays)]
    assert forward is not None and len(vjp) == len(data.arrays)
    y, back = np.empty_like(data.g), [np.empty_like(a) for a in data.arrays]
    index = (None,) if resolved.op.has_indices else ()
    function = getattr(ln, layer.op)

    def operator(*given: Any) -> Any:
        return function(*given, **layer.options)

    def whole() -> Any:
        _, pullback = ln.vjp(operator, *data.arrays)
        return pullback(data.g)

    def alone() -> None:
        forward(*arrays, y, *index)
        for kernel, cotangent in zip(vjp, back, strict=True):
            kernel(*arrays, data.g, cotangent)

    alone()
    for a, b in zip(whole(), back, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4), f"{layer.op}: the kernels compute something else"
    cpu = time.thread_time  # a difference of two small times: what else the machine does would drown it
    turns = [(_seconds(whole, 50, cpu), _seconds(alone, 50, cpu)) for _ in range(51)]
    return float(median(w for w, _ in turns) - median(k for _, k in turns))
