"""Small random networks with stated seeds, and boxes: what bounds are measured and tested on."""

from __future__ import annotations

from typing import Any

import numpy as np

import lunette as ln

LAYERS = ("dense", "max", "average", "smooth", "residual", "nothing")


def random_network(seed: int, smooth: bool = True) -> tuple[ln.Graph, ln.Interval]:
    """Two to six layers in one to three dimensions, with strides, padding, overlap and dilation; three outputs.

    The same seed gives the same network and box. Without `smooth`, every layer is piecewise linear.
    """
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    size = (12, 7, 5)[d - 1]
    shape = (1, int(rng.integers(1, 3)), *(int(n) for n in rng.integers(size - 2, size + 1, d)))
    radius = np.float32(rng.choice([0.05, 0.1, 0.2]))  # wide enough for networks to bend in their boxes
    x = rng.normal(size=shape).astype(np.float32)

    def f(v: Any) -> Any:
        h = _conv(rng, v, d)
        for _ in range(int(rng.integers(1, 6))):
            layer = str(rng.choice(LAYERS))
            h = ln.relu(h)
            if layer == "dense" or (layer == "smooth" and not smooth):
                h = _conv(rng, h, d)
            elif layer == "residual":
                w = _weights(rng, (h.shape[1], h.shape[1], *(3,) * d))
                h = h + ln.conv(h, w, padding=1)
            elif layer != "nothing":
                h = _pool(rng, h, d, layer)
        flat = ln.flatten(h)
        return ln.linear(flat, _weights(rng, (3, flat.shape[1])), rng.normal(size=3).astype(np.float32))

    graph = ln.trace(f, x)
    return graph, ln.Interval(x - radius, x + radius)


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """He's: what passes relu keeps its size."""
    scale = np.sqrt(2 / max(int(np.prod(shape[1:])), 1))
    return (rng.normal(size=shape) * scale).astype(np.float32)


def _stride(rng: np.random.Generator, x: Any) -> int:
    """Two at most, and only where some space is left."""
    wanted = int(rng.integers(1, 3))
    return wanted if min(x.shape[2:]) > 4 else 1


def _conv(rng: np.random.Generator, x: Any, d: int) -> Any:
    out, k = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    dilation = int(rng.integers(1, 3)) if min(x.shape[2:]) > 4 else 1
    padding = int(rng.integers(0, 2)) + (k - 1) * dilation // 2
    w, b = _weights(rng, (out, x.shape[1], *(k,) * d)), rng.normal(size=out).astype(np.float32) / 4
    return ln.conv(x, w, b, stride=_stride(rng, x), padding=padding, dilation=dilation)


def _pool(rng: np.random.Generator, x: Any, d: int, layer: str) -> Any:
    k = tuple(int(min(n, rng.integers(2, 4))) for n in x.shape[2:])
    own: dict[str, Any] = {"stride": _stride(rng, x), "padding": tuple(n // 2 for n in k)}
    own["ceil_mode"] = bool(rng.integers(0, 2))
    if rng.random() < 0.3 and min(x.shape[2:]) > 4:
        own["dilation"] = 2
    if layer == "max":
        return ln.max_pool(x, k, **own)
    counted = bool(rng.integers(0, 2))
    if layer == "average":
        return ln.avg_pool(x, k, count_include_pad=counted, **own)
    return ln.smooth_max_pool(x, k, beta=float(rng.choice([1.0, 4.0])), count_include_pad=True, **own)
