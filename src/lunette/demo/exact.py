"""The same kind of network on rational numbers, and what a fast kernel loses against them.

The network has average pooling in the place of smooth max, and a squared error, so that every value is rational. Its
gradient is computed three times: by reverse mode on rationals, by the traced graph on the specification, and by the
specification alone on dual numbers, one parameter at a time, without any derivative rule. All three must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

import lunette as ln
from lunette.arithmetic.error import sum_bound
from lunette.demo.digits import Parameters
from lunette.number import Array, each

SHAPES = {"w1": (2, 1, 3, 3), "b1": (2,), "w2": (2, 2, 2, 2), "b2": (2,), "w3": (3, 2), "b3": (3,)}


@dataclass(frozen=True, slots=True)
class Check:
    """A gradient, one array per parameter, computed in three ways."""

    by_rules: Parameters
    by_graph: Parameters
    by_duals: Parameters
    samples: tuple[tuple[str, Fraction], ...]
    """Some cells of the gradient, to look at."""

    @property
    def cells(self) -> int:
        """How many derivatives there are."""
        return sum(a.size for a in self.by_duals.values())

    @property
    def equal(self) -> bool:
        """Whether they agree, exactly."""
        others = (self.by_rules, self.by_graph)
        return all(bool((g[name] == a).all()) for g in others for name, a in self.by_duals.items())


def rationals(shape: Sequence[int], start: int) -> Array:
    """Small fractions that look irregular, and are the same everywhere."""
    cells = [Fraction((start + 7 * k * k + 5 * k) % 23 - 11, 3 + (start + k) % 5) for k in range(prod(shape))]
    return np.array(cells, object).reshape(shape)


def error(p: Any, x: Any, target: Any) -> Any:
    """The network and its squared error, by the public operators."""
    h = ln.max_pool(ln.relu(ln.conv(x, p["w1"], p["b1"], padding=1)), (2, 2))
    h = ln.avg_pool(ln.relu(ln.conv(h, p["w2"], p["b2"], padding=1)), (2, 2), stride=1)
    return ln.mse(ln.linear(ln.global_avg_pool(h, keepdims=False, spatial=2), p["w3"], p["b3"]), target)


def specified(p: Any, x: Array, target: Array) -> Any:
    """The same of one sample, by the specification and Python's arithmetic."""

    def positive(a: Array) -> Array:
        return each(lambda v: v if v > 0 else v * 0, a)

    h = ln.spec.max_pool(positive(ln.spec.conv(x, p["w1"], p["b1"], padding=1)), (2, 2))
    h = ln.spec.avg_pool(positive(ln.spec.conv(h, p["w2"], p["b2"], padding=1)), (2, 2), stride=1)
    means = ln.spec.global_avg_pool(h, keepdims=False)
    gaps = [
        sum((w * m for w, m in zip(row, means, strict=True)), b) - t
        for row, b, t in zip(p["w3"], p["b3"], target, strict=True)
    ]
    return sum((gap * gap for gap in gaps), Fraction(0)) / len(gaps)


def check_gradient() -> Check:
    """The gradient of a tiny network at a rational point, in three ways."""
    p = {name: rationals(shape, 3 * at) for at, (name, shape) in enumerate(SHAPES.items())}
    x, target = rationals((1, 1, 4, 4), 1), rationals((1, 3), 2)
    by_rules = ln.grad(error)(p, x, target)

    floats = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    graph = ln.trace(ln.grad(error), floats, np.zeros((1, 1, 4, 4)), np.zeros((1, 3)))
    names = sorted(p)  # the order in which a dict is flattened
    by_graph = dict(zip(names, graph.eval(*(p[n] for n in names), x, target, number=Fraction), strict=True))

    by_duals = {}
    for name, a in p.items():
        slopes: Array = np.empty(a.shape, object)
        for cell in np.ndindex(a.shape):
            moved = a.copy()
            moved[cell] = ln.Dual(a[cell], Fraction(1))
            slopes[cell] = ln.Dual.of(specified(p | {name: moved}, x[0], target[0])).slope
        by_duals[name] = slopes
    places: dict[str, tuple[int, ...]] = {"w1": (1, 0, 1, 1), "b1": (0,), "w2": (0, 1, 1, 0), "w3": (2, 1)}
    samples = tuple((f"{n}{list(at)}", by_duals[n][at]) for n, at in places.items())
    return Check(by_rules, by_graph, by_duals, samples)


# ---- the error of a kernel


@dataclass(frozen=True, slots=True)
class Errors:
    """Of a convolution in float32 against the exact result, in units of the last place of the latter."""

    ulps: Array
    of_bound: float
    """The largest share of the guaranteed bound that any output uses."""
    terms: int


def kernel_errors(p: Parameters, x: Array, channels: int) -> Errors:
    """The second convolution of a trained network on one image, so many output channels of it."""
    h = ln.max_pool(ln.relu(ln.conv(x[None], p["w1"], p["b1"], padding=1)), 2)[0]
    w, b = np.ascontiguousarray(p["w2"][:channels]), p["b2"][:channels]
    fast = ln.conv(h[None], w, b, padding=1)[0]

    def fractions(a: Array) -> Array:
        return each(lambda v: Fraction(float(v)), a.astype(object))

    exact = ln.spec.conv(fractions(h), fractions(w), fractions(b), padding=1)
    size = ln.conv(np.abs(h[None]).astype(float), np.abs(w).astype(float), np.abs(b).astype(float), padding=1)[0]
    terms = w[0].size + 1
    bound = sum_bound(terms, size, 2.0**-24, 2.0**-149)  # what the fast arithmetic keeps
    gap = each(lambda y, v: abs(Fraction(float(y)) - v), fast.astype(object), exact)
    last = np.spacing(np.abs(exact.astype(float)).astype(np.float32)).astype(float)
    return Errors(gap.astype(float) / last, float((gap.astype(float) / bound).max()), terms)
