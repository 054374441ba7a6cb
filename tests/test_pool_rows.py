"""Rows of pools in vectors that do not fit them: shorter rows, rows of one window, windows longer than vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lunette as ln

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@every_dtype
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize(("kernel", "padding"), [(2, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("height", [6, 7])
def test_rows_shorter_than_a_vector(dtype: Any, name: str, kernel: int, padding: int, height: int) -> None:
    """A vector goes on into the next row, which is written later; the last row of all has none behind it."""
    rng = np.random.default_rng(height)
    options: dict[str, Any] = {"kernel": (kernel, kernel), "stride": 2, "padding": padding}
    if name == "avg_pool":
        options["divisor"] = 1
    cells, special = ([-2.0, -0.0, 0.0], np.nan) if name == "max_pool" else ([-2.0, -1.0, 1.0, 3.0], np.inf)
    for width in (3, 4, 5, 8, 13, 14, 17, 28, 31, 34):
        x = rng.choice(np.array(cells, dtype), (3, height, width))
        for at in ((), (1, height - 1, width - 1), (2, height - 1, width - 1)):
            if at:
                x[at] = special
            y, want = (getattr(ln, name)(a, **options).astype(dtype) for a in (x, x.astype(object)))
            assert np.array_equal(y, want, equal_nan=True), width
            assert (np.signbit(y) == np.signbit(want))[~np.isnan(want)].all(), width
            if name == "avg_pool":  # the same sums, divided by what the kernels divide by in another way
                for divisor in (3, 4, 0.7):
                    got = ln.avg_pool(x, **{**options, "divisor": divisor})
                    assert np.array_equal(got, y / dtype(divisor), equal_nan=True), width


@every_dtype
@pytest.mark.parametrize("cells", [3, 5, 7, 9, 15, 17])
def test_short_rows_whose_windows_take_turns(dtype: Any, cells: int) -> None:
    """Where the next row may be done, a vector may not go on into it: bins of other lengths along the outer axis."""
    rng = np.random.default_rng(cells)
    for space, bins in (((5, cells), (3, 2 * cells - 1)), ((4, 5, cells), (4, 2, 2 * cells - 1))):
        x = np.zeros((1, 2, *space), dtype)
        g = rng.integers(-9, 9, ln.adaptive_avg_pool(x, bins).shape).astype(dtype)
        dx, want = (
            ln.adaptive_avg_pool_vjp((a,), b, output_size=bins)[0].astype(float)
            for a, b in ((x, g), (x.astype(object), g.astype(object)))
        )
        assert (abs(dx - want) <= 16 * np.finfo(dtype).eps * abs(g).max() * 12).all()


@every_dtype
@pytest.mark.parametrize("size", [(2, 2, 14, 14), (3, 2, 20, 61)])
@pytest.mark.parametrize(("kernel", "padding"), [(2, 0), (3, 0), (3, 1)])
def test_means_of_cells_whose_sum_is_too_large(dtype: Any, size: tuple[int, ...], kernel: int, padding: int) -> None:
    most = np.finfo(dtype).max
    x = np.ones(size, dtype)
    x[1], x[0, 0, 3, 4] = most, -np.inf
    y = ln.avg_pool(x, kernel, stride=2, padding=padding, count_include_pad=False)
    assert (y[1] == most).all() and np.isneginf(y[0, 0]).any()
    assert (y[0, 1] == 1).all() and (y[0, 0][np.isfinite(y[0, 0])] == 1).all() and (y[2:] == 1).all()


@every_dtype
@pytest.mark.parametrize("planes", [8, 16, 17, 40])
@pytest.mark.parametrize("cells", [(4, 4), (7, 7), (5, 13), (9, 60)])
def test_planes_that_are_one_window_each(dtype: Any, planes: int, cells: tuple[int, int]) -> None:
    """Several planes share vectors: a special cell of one is no other's."""
    rng = np.random.default_rng(planes)
    x = rng.choice(np.array([-2.0, -1.0, -0.0, 0.0], dtype), (1, planes, *cells), p=[0.5, 0.45, 0.025, 0.025])
    for at, value in ((2, np.nan), (planes - 1, np.inf), (5, -np.inf)):
        for y, name in ((x, "first"), (x.copy(), "last")):
            y[0, at, *((0, 0) if name == "first" else (-1, -1))] = value
            for pool in (ln.global_max_pool, ln.global_avg_pool):
                got, want = pool(y, spatial=2), pool(y.astype(object), spatial=2).astype(dtype)
                assert np.allclose(got, want, equal_nan=True, rtol=1e-6)
                if pool is ln.global_max_pool:
                    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@every_dtype
@pytest.mark.parametrize("taps", [11, 15, 16, 17, 31, 32, 33, 70])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_of_long_windows(dtype: Any, taps: int, stride: int) -> None:
    rng = np.random.default_rng(taps)
    for size in (taps, 2 * taps + 1):
        x = rng.choice(np.array([-3.0, -2.0, -1.0, -0.0, 0.0], dtype), (2, size), p=[0.6, 0.2, 0.16, 0.02, 0.02])
        for padding in (0, taps // 2):
            options: dict[str, Any] = {"kernel": (taps,), "stride": stride, "padding": padding}
            y, want = ln.max_pool(x, **options), ln.spec.max_pool(x, **options).astype(dtype)
            assert np.array_equal(y, want)
            assert (np.signbit(y) == np.signbit(want)).all()
