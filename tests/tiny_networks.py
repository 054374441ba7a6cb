"""Tiny networks of two inputs, and their exact least values: every linear piece is enumerated, on rationals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import lunette as ln

Form = tuple[Fraction, Fraction, Fraction]
"""a*x + b*y + c."""
Point = tuple[Fraction, Fraction]


def at(f: Form, p: Point) -> Fraction:
    return f[0] * p[0] + f[1] * p[1] + f[2]


def minus(f: Form, g: Form) -> Form:
    return (f[0] - g[0], f[1] - g[1], f[2] - g[2])


def half(polygon: Sequence[Point], f: Form) -> list[Point]:
    """The part of a convex polygon where f >= 0."""
    kept: list[Point] = []
    for k, p in enumerate(polygon):
        q = polygon[(k + 1) % len(polygon)]
        u, v = at(f, p), at(f, q)
        if u >= 0:
            kept.append(p)
        if (u > 0 > v) or (u < 0 < v):
            t = u / (u - v)
            kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    return list(dict.fromkeys(kept))


@dataclass(frozen=True)
class Layer:
    """Sums of products, then relu if wanted, then windows of a maximum over cells in a row, if there are any."""

    w: np.ndarray[Any, Any]
    b: np.ndarray[Any, Any]
    relu: bool
    windows: tuple[tuple[int, ...], ...] = ()
    pool: tuple[int, int, int] | None = None
    """Kernel, stride and padding of these windows."""


def run(layers: Sequence[Layer], x: Any) -> Any:
    """The network, on lunette's operators: x of shape (1, 2)."""
    h = x
    for layer in layers:
        h = ln.linear(h, layer.w, layer.b)
        if layer.relu:
            h = ln.relu(h)
        if layer.pool is not None:
            kernel, stride, padding = layer.pool
            n = layer.w.shape[0]
            h = ln.max_pool(ln.reshape(h, (1, 1, n)), (kernel,), stride=stride, padding=padding)
            h = ln.reshape(h, (1, len(layer.windows)))
    return h


def random_layers(rng: np.random.Generator, coarse: bool) -> list[Layer]:
    """One or two layers before the last; coarse weights make ties common."""

    def numbers(*shape: int) -> Any:
        if coarse:
            return (rng.integers(-4, 5, shape) / 4).astype(np.float32)
        return rng.normal(size=shape).astype(np.float32)

    layers, wide = [], 2
    for _ in range(int(rng.integers(1, 3))):
        n = int(rng.integers(2, 5))
        pool: tuple[int, int, int] | None = None
        windows: tuple[tuple[int, ...], ...] = ()
        out = n
        if rng.random() < 0.7:
            kernel = int(rng.integers(2, min(n, 3) + 1))
            stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
            pool, out = (kernel, stride, padding), (n + 2 * padding - kernel) // stride + 1
            windows = tuple(
                tuple(i for i in range(o * stride - padding, o * stride - padding + kernel) if 0 <= i < n)
                for o in range(out)
            )
        layers.append(Layer(numbers(n, wide), numbers(n), bool(rng.random() < 0.7), windows, pool))
        wide = out
    layers.append(Layer(numbers(2, wide), numbers(2), False))
    return layers


def least(
    layers: Sequence[Layer], lo: Sequence[float], hi: Sequence[float], row: Sequence[int]
) -> tuple[Fraction, Point]:
    """The exact least value of row . y over a box, and a point where it is."""
    a, b = [Fraction(float(v)) for v in lo], [Fraction(float(v)) for v in hi]
    box = [(a[0], a[1]), (b[0], a[1]), (b[0], b[1]), (a[0], b[1])]
    one, zero = Fraction(1), Fraction(0)
    start: list[Form] = [(one, zero, zero), (zero, one, zero)]
    pieces: list[tuple[list[Point], list[Form]]] = [(list(dict.fromkeys(box)), start)]
    for layer in layers:
        pieces = [(polygon, _linear(layer, forms)) for polygon, forms in pieces]
        if layer.relu:
            for i in range(len(layer.w)):
                pieces = [p for piece in pieces for p in _relu(piece, i)]
        if layer.windows:
            found: list[tuple[list[Point], list[Form], list[Form]]] = [(p, f, []) for p, f in pieces]
            for window in layer.windows:
                found = [q for piece in found for q in _max(piece, window)]
            pieces = [(p, out) for p, _, out in found]
    values = []
    for polygon, forms in pieces:
        f: Form = tuple(sum((r * g[k] for r, g in zip(row, forms, strict=True)), zero) for k in range(3))  # type: ignore[assignment]
        values += [(at(f, p), p) for p in polygon]
    return min(values)


def _linear(layer: Layer, forms: list[Form]) -> list[Form]:
    found = []
    for weights, bias in zip(layer.w, layer.b, strict=True):
        total = [Fraction(0), Fraction(0), Fraction(float(bias))]
        for w, f in zip(weights, forms, strict=True):
            total = [t + Fraction(float(w)) * v for t, v in zip(total, f, strict=True)]
        found.append((total[0], total[1], total[2]))
    return found


def _relu(piece: tuple[list[Point], list[Form]], i: int) -> Any:
    polygon, forms = piece
    f = forms[i]
    zero: Form = (Fraction(0), Fraction(0), Fraction(0))
    for sign, new in ((1, f), (-1, zero)):
        part = half(polygon, (sign * f[0], sign * f[1], sign * f[2]))
        if part:
            yield part, [*forms[:i], new, *forms[i + 1 :]]


def _max(piece: tuple[list[Point], list[Form], list[Form]], window: tuple[int, ...]) -> Any:
    polygon, forms, out = piece
    for w in window:
        part = polygon
        for other in window:
            if other != w and part:
                part = half(part, minus(forms[w], forms[other]))
        if part:
            yield part, forms, [*out, forms[w]]
