"""Cells at places, and their adjoint: the laws of test_glue.py, whose cases have no integers among their arrays."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette.number import Array
from lunette.op import apply
from lunette.ops.take import Put, Take

seeds = st.integers(0, 2**32 - 1)


def problem(seed: int) -> tuple[Array, Array, int]:
    """An array, places along one of its axes, and the axis."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4))))
    axis = int(rng.integers(0, len(shape)))
    places = rng.integers(0, shape[axis], int(rng.integers(0, 7)))
    return rng.integers(-9, 10, shape).astype(np.float64), places, axis


def put(g: Any, places: Any, axis: int, n: int) -> Any:
    return apply(Put, (g, places), "fast", axis, n)


@given(seeds)
def test_kernels_and_the_specification_are_what_numpy_takes(seed: int) -> None:
    x, places, axis = problem(seed)
    wanted = x.take(places, axis)
    for dtype in (np.float32, np.float64):
        assert np.array_equal(ln.take(x.astype(dtype), places, axis), wanted)
    assert np.array_equal(ln.take(x.astype(object), places, axis), wanted)
    assert np.array_equal(ln.take(x, places.tolist() or places, axis - x.ndim), wanted)


@given(seeds)
def test_put_is_the_adjoint_of_take_and_back(seed: int) -> None:
    x, places, axis = problem(seed)
    g = np.random.default_rng(seed).integers(-9, 10, x.take(places, axis).shape).astype(np.float64)
    back = put(g, places, axis, x.shape[axis])
    assert (ln.take(x, places, axis) * g).sum() == (x * back).sum()
    assert np.array_equal(put(g.astype(object), places, axis, x.shape[axis]), back)
    y, pullback = ln.vjp(lambda v: ln.take(v, places, axis), x)
    assert np.array_equal(pullback(g)[0] if isinstance(pullback(g), tuple) else pullback(g), back)
    assert np.array_equal(ln.jvp(lambda v: ln.take(v, places, axis), (x,), (x,))[1], y)


@given(seeds)
def test_every_arithmetic_of_a_program(seed: int) -> None:
    x, places, axis = problem(seed)
    g = ln.Graph()
    v = g.input(x.shape, "float64", "x")
    g.output(put(ln.take(v, places, axis), places, axis, x.shape[axis]))
    program = g.compile()
    wanted = put(x.take(places, axis), places, axis, x.shape[axis])
    assert np.array_equal(program(x), wanted)
    assert np.array_equal(program.run(x, arithmetic="rounded"), wanted)
    assert np.array_equal(g.eval(x, number=Fraction), wanted)
    box = program.run(ln.Interval(x - 0.5, x + 0.5), arithmetic="interval")
    counts = put(np.ones_like(x.take(places, axis)), places, axis, x.shape[axis])
    assert (box.lo <= wanted - counts / 2).all() and (wanted + counts / 2 <= box.hi).all()
    assert str(ln.Graph.parse(str(g))) == str(g)
    assert program.vjp(x)[1](x)[0].shape == x.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_sums_are_as_good_as_short_ones(dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((100_000, 2)).astype(dtype)
    y = put(x, np.zeros(len(x), np.int64), 0, 1)
    for k in range(2):
        exact = math.fsum(map(float, x[:, k]))
        # Two roundings of the sum, and what is lost to the second order.
        slack = np.finfo(dtype).eps * abs(exact) + len(x) * np.finfo(dtype).eps ** 2 * float(np.abs(x[:, k]).sum())
        assert abs(float(y[0, k]) - exact) <= slack


def test_infinities_and_signs_of_zero() -> None:
    x = np.array([np.inf, -np.inf, 1.0, np.nan, -0.0, -0.0])
    y = put(x, np.array([0, 1, 0, 2, 3, 3]), 0, 5)
    assert y[0] == np.inf and y[1] == -np.inf and np.isnan(y[2]) and y[4] == 0
    assert np.signbit(y[3]) and not np.signbit(y[4])
    assert np.isnan(put(x, np.array([0, 0, 1, 1, 1, 1]), 0, 2)).all()


def test_places_that_come_in_while_a_program_runs() -> None:
    g = ln.Graph()
    g.output(g.apply(Take, (g.input((2,), "float64", "x"), g.input((1,), "int64", "p")), (0,)))
    program = g.compile()
    assert program(np.array([3.0, 4.0]), np.array([1])).tolist() == [4]
    with pytest.raises(ln.LunetteError):
        program(np.array([3.0, 4.0]), np.array([2]))
