"""Pairs of doubles: every operation is as near to the exact numbers as its radius says, and that is near."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lunette.arithmetic import pairs
from lunette.arithmetic.exact import end_of, precision
from lunette.arithmetic.pairs import Pairs, Reads, U, exponential, gathered, logarithm, total
from lunette.number import Array
from lunette.ops import AvgPool
from lunette.window import Axis, Bins, axis_table

seeds = st.integers(0, 2**32 - 1)
SIZE = 64


def random_pairs(rng: np.random.Generator, spread: int = 0) -> tuple[Pairs, Array]:
    """Pairs with radii of all sizes, and rationals somewhere in them."""
    hi = rng.standard_normal(SIZE) * 2.0 ** rng.integers(-spread, spread + 1, SIZE)
    lo = hi * U * rng.uniform(-1, 1, SIZE)
    radius = abs(hi) * rng.choice([0.0, 2.0**-100, 2.0**-60, 2.0**-30], SIZE)
    hi[:4], lo[:4], radius[:4] = [0, 0, 1, -1], 0, [0, 2.0**-70, 0, 0]
    place = [Fraction(float(v)) for v in rng.choice([-1.0, 0.0, 0.5, 1.0], SIZE)]
    exact = [Fraction(h) + Fraction(v) + Fraction(r) * f for h, v, r, f in zip(hi, lo, radius, place, strict=True)]
    return Pairs(hi, lo, radius), np.array(exact, object)


def holds(got: Pairs, exact: Any) -> None:
    """Within the radius, but for its own roundings; where all is exact beforehand, the radius is a few u^2."""
    for h, v, r, q in zip(got.hi.flat, got.lo.flat, got.radius.flat, np.asarray(exact).flat, strict=True):
        if np.isfinite(r):
            assert abs(Fraction(float(h)) + Fraction(float(v)) - q) <= Fraction(float(r)) * (1 + Fraction(1, 2**40))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(seeds)
def test_operations_are_as_far_off_as_they_say(name: str, seed: int) -> None:
    rng, do = np.random.default_rng(seed), OPERATIONS[name]
    spread = [0, 3, 200][seed % 3]
    (a, of_a), (b, of_b) = random_pairs(rng, spread), random_pairs(rng, spread)
    with np.errstate(all="ignore"):
        got = do(a, b)
    known = np.isfinite(got.radius)
    assert known[b.hi != 0].all()
    part = Pairs(got.hi[known], got.lo[known], got.radius[known])
    holds(part, do(of_a[known], of_b[known]))
    exact = (
        known & (a.radius == 0) & (b.radius == 0) & (np.sign(a.hi) == np.sign(b.hi) * (-1 if name == "subtract" else 1))
    )
    assert (got.radius[exact] <= 2.0**-100 * abs(got.hi[exact])).all()


def ball(q: Fraction) -> Any:
    return flint.arb(flint.fmpq(q.numerator, q.denominator))


@pytest.mark.parametrize(("function", "name"), [(exponential, "exp"), (logarithm, "log")])
@given(seeds)
def test_functions_are_as_far_off_as_they_say(function: Callable[[Pairs], Pairs], name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, of_a = random_pairs(rng, [0, 9, 100][seed % 3])
    if name == "log":
        a, of_a = Pairs(abs(a.hi), np.copysign(a.lo, a.lo * a.hi), a.radius), abs(of_a)
    with np.errstate(all="ignore"):
        got = function(a)
    known = np.isfinite(got.radius)
    assert known[(abs(a.hi) < 600) & (a.hi != 0)].all()
    with precision(300):
        for at in np.flatnonzero(known):
            true = getattr(ball(of_a[at]), name)()
            off = abs(true - flint.arb(float(got.hi[at])) - flint.arb(float(got.lo[at])))
            assert end_of(off.upper()) <= Fraction(float(got.radius[at])) * (1 + Fraction(1, 2**40))
    precise = known & (a.radius == 0) & (abs(a.hi) < 600) & (a.hi != 0)
    assert (got.radius[precise] <= 2.0**-78 * (1 + (abs(got.hi[precise]) if name == "exp" else 0))).all()


def test_what_is_not_finite_is_not_known() -> None:
    a = Pairs.of(np.array([np.inf, -np.inf, np.nan, 1.0]))
    assert np.isfinite(a.hi).all() and np.array_equal(np.isinf(a.radius), [True, True, True, False])
    assert np.isinf(logarithm(Pairs.of(np.array([0.0, -1.0]))).radius).all()
    assert np.isinf(exponential(Pairs.of(np.array([601.0, 1e308]))).radius).all()
    assert exponential(Pairs.of(np.array([-601.0, -1e308]))).radius.tolist() == [2.0**-861] * 2


AXES = [Axis(3), Axis(3, stride=2, lo=1, hi=1), Axis(2, stride=3), Axis(3, dilation=2, lo=2), Bins(4), Bins(9)]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("way", ["windows", "cells"])
def test_sums_over_windows_and_over_their_readers(axis: Any, way: str) -> None:
    table = axis_table(axis, 7)
    matrix = np.zeros((table.m, table.n), int)  # which windows read which cells
    for o in range(table.m):
        matrix[o, table.first[o] + table.step * np.arange(table.count[o])] = 1
    reads = Reads.of_windows(table) if way == "windows" else Reads.of_cells(table)
    matrix = matrix if way == "windows" else matrix.T
    rng = np.random.default_rng(5)
    columns = matrix.shape[1]
    hi = rng.standard_normal((3, columns, columns)) * 2.0 ** rng.integers(-60, 60, (3, columns, columns))
    a = Pairs(hi, hi * U / 3, abs(hi) * 2.0**-90)
    exact = np.vectorize(lambda h, v: Fraction(h) + Fraction(v), otypes=[object])(a.hi, a.lo)
    got = gathered(a, [reads, reads])
    want = np.einsum("oi,bij,pj->bop", matrix.astype(object), exact, matrix.astype(object))
    holds(got, want)
    size = np.einsum("oi,bij,pj->bop", matrix, abs(hi), matrix)
    assert (got.radius <= 2.0**-89 * size).all()


def test_a_total_is_rounded_twice() -> None:
    hi = np.array([1e300, 1.0, -1e300, 1e-300, 2.0**-60])
    got = total(Pairs(hi, np.zeros(5), np.full(5, 2.0**-200)))
    holds(got, np.array(sum(map(Fraction, hi.tolist()))))
    assert got.hi == 1 and got.lo == 2.0**-60


@pytest.mark.parametrize("name", ["U", "LOST"])
def test_radii_that_are_too_small_are_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The tests above can fail: without the part for roundings, or for underflow, they do."""
    rng = np.random.default_rng(0)
    size = 2.0**-490 if name == "LOST" else 1.0
    a, b = (Pairs.of(rng.standard_normal(SIZE) * size) for _ in range(2))
    a, b = (Pairs(v.hi, v.hi * U / 3, v.radius) for v in (a, b))
    exact = [np.array([Fraction(h) + Fraction(v) for h, v in zip(p.hi, p.lo, strict=True)], object) for p in (a, b)]
    holds(a * b, exact[0] * exact[1])
    monkeypatch.setattr(pairs, name, 0.0)
    with pytest.raises(AssertionError):
        holds(a * b, exact[0] * exact[1])


def test_windows_of_a_pool_are_those_of_its_tables() -> None:
    window = AvgPool.of(((1, 5, 6),), (2, 3), 1, 0, 1, False, True, None, None).window
    x = np.arange(30.0).reshape(1, 5, 6)
    got = gathered(Pairs.of(x), [Reads.of_windows(t) for t in window.tables((5, 6))])
    want = np.lib.stride_tricks.sliding_window_view(x[0], (2, 3)).sum((2, 3))
    assert np.array_equal(got.hi[0], want) and not got.lo.any()
