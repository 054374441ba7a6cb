"""Bounds against networks that were built to escape them, each of which once did."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.number import Array

FLOAT = np.float32


def point(*cells: float) -> ln.Interval:
    x = np.array(cells)
    return ln.Interval(x, x)


def holds(b: ln.Bounds, exact: Any) -> bool:
    return bool(b.lo.item() <= exact <= b.hi.item())


METHODS = pytest.mark.parametrize("method", ["interval", "crown", "optimised"])


@METHODS
def test_divisors_that_are_computed_are_intervals(method: str) -> None:
    """The root of 2, magnified: what is known of it is far from its centre."""
    b = ln.bounds(lambda x, c: x / (ln.sqrt(c) * 1e8 - 141421356.0), point(1.0), np.array([2.0]), method=method)
    assert holds(b, 4.2139062256)


@METHODS
def test_points_of_derivatives_that_are_computed_are_intervals(method: str) -> None:
    """sqrt(3)**2 - 3 is zero, where relu's derivative is 0, and not what rounding makes of it."""

    def f(t: Any, c: Any) -> Any:
        return ln.jvp(ln.relu, (ln.sqrt(c) * ln.sqrt(c) - c,), (t,))[1]

    assert holds(ln.bounds(f, ln.Interval(np.array([1.0]), np.array([2.0])), np.array([3.0]), method=method), 0.0)


@METHODS
def test_weights_that_kernels_compute_are_not_exact(method: str) -> None:
    x = np.array([[999999999.9479, 1000000001.7485, 1000000000.246]])
    t = np.array([[1.0, 0.0, 0.0]])

    def f(t: Any) -> Any:
        return ln.jvp(lambda v: ln.smooth_max_pool(v, (3,), beta=2.54), (x,), (t,))[1]

    assert holds(ln.bounds(f, ln.Interval(t, t), method=method), 0.00999828461679504)


def test_boxes_of_integers_are_refused() -> None:
    """They would be taken at their lower ends."""
    with pytest.raises(ln.ArgumentError, match=r"Z2.*a point for integers"):
        ln.bounds(ln.take, point(1.0, 2.0, 3.0), ln.Interval(np.array([0]), np.array([2])))
    b = ln.bounds(ln.take, point(1.0, 2.0, 3.0), ln.Interval(np.array([1]), np.array([1])))
    assert b.lo.item() == b.hi.item() == 2


def test_rows_that_float64_does_not_have_are_refused() -> None:
    wide = np.array([["1e-400"]], np.longdouble)
    if wide.astype(np.float64) == wide:
        pytest.skip("long double is no wider than double here")
    with pytest.raises(ln.ArgumentError, match=r"Z4.*rows that float64 has"):
        ln.bounds(ln.relu, point(1e300), rows=wide)


def test_errors_that_underflow_are_errors() -> None:
    w = np.full(20000, 2.0**947)
    w[:64] = 2.0**1000
    exact = (64 * Fraction(2) ** 1000 + 19936 * Fraction(2) ** 947) / Fraction(2) ** 1045
    x = point(*np.full(20000, 2.0**-1045))
    for b in (ln.bounds(lambda x: ln.matmul(w, x), x), ln.bounds(lambda x: x, x, rows=w[None])):
        assert Fraction(b.lo.item()) <= exact <= Fraction(b.hi.item())


@pytest.mark.parametrize("of", [1, 2], ids=["w", "b"])
def test_sums_over_the_batch_are_sums(of: int) -> None:
    """In floats, a 1 followed by thousands of numbers that it swallows."""
    x, w = np.ones((4000, 1, 1), FLOAT), np.ones((1, 1, 1), FLOAT)
    g = np.full((4000, 1, 1), FLOAT(2**-24))
    g[0] = 1
    graph = ln.trace(lambda g: ln.vjp(ln.conv, x, w, np.zeros(1, FLOAT))[1](g)[of], g)
    b = ln.bounds(graph, ln.Interval(g, g), semantics="float")
    one_after_the_other = FLOAT(1)
    for v in g[1:].reshape(-1):
        one_after_the_other += v
    assert holds(b, float(one_after_the_other)) and holds(b, float(graph.compile()(g).item()))


NO_BOUND: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: ln.mean(x * 1e38),
    "average": lambda x: ln.avg_pool(ln.reshape(x, (1, 4)) * 1e38, (4,)),
    "clipped NaN": lambda x: ln.minimum(ln.relu(x * 1e30 * 1e30 - x * 1e30 * 1e30), 5),
    "zero times infinity": lambda x: x * 1e30 * 1e30 * 0.0,
}


@METHODS
@pytest.mark.parametrize("f", NO_BOUND.values(), ids=NO_BOUND)
def test_what_may_overflow_in_floats_has_no_bound(f: Callable[[Any], Any], method: str) -> None:
    x = np.ones(4, FLOAT)
    b = ln.bounds(f, ln.Interval(x, x), semantics="float", method=method)
    assert np.isneginf(b.lo).all() and np.isposinf(b.hi).all()


def test_divisions_in_floats_have_bounds() -> None:
    x = np.ones(1, FLOAT)
    b = ln.bounds(lambda x: x / 3, ln.Interval(x, 2 * x), semantics="float")
    assert b.lo <= FLOAT(1) / FLOAT(3) <= FLOAT(2) / FLOAT(3) <= b.hi and b.width < 0.334


def _random(*shape: int) -> Array:
    return np.random.default_rng(5).normal(size=shape)


AWKWARD: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "no batch": ((1, 9, 9), lambda h: ln.conv(ln.relu(ln.conv(h, _random(3, 1, 3, 3))), _random(2, 3, 3, 3))),
    "two batch axes": (
        (1, 1, 2, 7, 7),
        lambda h: ln.conv(ln.relu(ln.conv(h, _random(2, 2, 3, 3))), _random(1, 2, 3, 3)),
    ),
    "rank of its own": ((1, 2, 8, 8), lambda h: ln.max_pool(ln.relu(ln.conv(h, _random(2, 2, 3, 3))), 2, spatial=1)),
    "average of one axis": (
        (1, 2, 8, 8),
        lambda h: ln.avg_pool(ln.relu(ln.conv(h, _random(2, 2, 3, 3))), 2, spatial=1),
    ),
    "long window": ((1, 1, 200), lambda h: ln.max_pool(abs(ln.conv(h, _random(1, 1, 3))), (65,), stride=5)),
}


@pytest.mark.parametrize(("shape", "f"), AWKWARD.values(), ids=AWKWARD)
def test_shapes_that_patches_do_not_have(shape: tuple[int, ...], f: Callable[[Any], Any]) -> None:
    x = _random(*shape)

    def g(h: Any) -> Any:
        return ln.relu(f(h) - 1)

    plain, b = (ln.bounds(g, ln.Interval(x - 0.1, x + 0.1), method=m) for m in ("interval", "crown"))
    y = np.asarray(g(x))
    assert (b.lo <= y).all() and (y <= b.hi).all() and b.width.sum() <= plain.width.sum()
