"""Smooth max and Lp pools of windows side by side, whose derivatives (and sums of squares) never leave registers.

Every width of vectors, every window that they take, and cells, tangents and cotangents that they must leave to others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.op import Case, Op
from lunette.ops import LpPool, SmoothMaxPool
from test_kernels import _two_hundred_bits as _two_hundred_bits  # the fixture of exact balls
from test_kernels import check_arrays, every_dtype, fill

pytestmark = pytest.mark.kernels

every_op = pytest.mark.parametrize("op", [SmoothMaxPool, LpPool])
WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [  # space and kernel
    *[((n,), (2,)) for n in (4, 6, 8, 14, 32, 38)],
    *[((n,), (4,)) for n in (8, 16, 28, 64, 76)],
    *[((4, n), (2, 2)) for n in (4, 8, 10, 16, 30, 36)],
    *[((4, n), (1, 4)) for n in (16, 32, 68)],
    ((6, 20), (3, 2)),
    ((8, 8), (8, 2)),
    ((9, 2), (9, 2)),
    ((2, 4, 16), (2, 2, 2)),
    ((4, 2, 2, 8), (2, 1, 2, 4)),
]
ids = "{}".format


def options_of(op: type[Op], kernel: tuple[int, ...]) -> dict[str, Any]:
    return {"kernel": kernel} | ({"p": 2} if op is LpPool else {})


@pytest.mark.parametrize(("space", "kernel"), WINDOWS, ids=ids)
@every_dtype
@every_op
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_windows_side_by_side(
    op: type[Op], dtype: Any, space: tuple[int, ...], kernel: tuple[int, ...], seed: int
) -> None:
    """Within the bound of exact arithmetic."""
    case = Case(((2, *space), *[()] * (op is SmoothMaxPool)), options_of(op, kernel))
    arrays, tangents = fill(case, seed, dtype, (2,)), fill(case, seed + 2, dtype, (2,))
    if op is SmoothMaxPool:
        arrays[1] = np.array([-1.5, -0.25, 0.5, 2][seed], dtype)
    check_arrays(op, case, arrays, tangents, seed + 4)


@pytest.mark.parametrize(("space", "kernel"), WINDOWS, ids=ids)
@every_dtype
@every_op
def test_planes_that_need_more_leave_others_alone(
    op: type[Op], dtype: Any, space: tuple[int, ...], kernel: tuple[int, ...]
) -> None:
    """Cells far apart, not finite or without all their digits, and such cotangents: other planes keep their bits."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((20, 1, *space)).astype(dtype)
    options = options_of(op, kernel) | ({} if op is LpPool else {"beta": 1.5})
    value, vjp = getattr(ln, op.name), getattr(ln, f"{op.name}_vjp")
    g = rng.standard_normal(value(x, **options).shape).astype(dtype)
    info = np.finfo(dtype)
    x[2] *= 40
    x[4] *= info.tiny
    middle = tuple(n // 2 for n in space)
    for p, special in ((6, np.nan), (8, np.inf), (10, -np.inf), (12, info.max / 4), (14, 0.0)):
        x[(p, 0, *middle)] = special
    first = tuple(0 for _ in space)
    for p, special in ((3, np.nan), (5, info.max / 4), (7, info.tiny / 4), (9, -0.0)):
        g[(p, 0, *first)] = special
    y, (dx,) = value(x, **options), vjp((x,), g, **options)
    for p in range(20):
        assert np.array_equal(y[p], value(x[p : p + 1], **options)[0], equal_nan=True)
        assert np.array_equal(dx[p], vjp((x[p : p + 1],), g[p : p + 1], **options)[0][0], equal_nan=True)
    for p in range(20):
        wide = [a.astype(np.float64).astype(object) for a in (x[p], g[p])]
        with np.errstate(all="ignore"):
            (true,) = vjp((wide[0],), wide[1], **options)
        true = true.astype(np.float64)
        assert np.array_equal(np.isnan(dx[p]), np.isnan(true))
        room = 64 * info.eps * np.abs(true) + 8 * info.smallest_subnormal
        scale = np.max(np.abs(x[p][np.isfinite(x[p])])) * (0 if op is LpPool else 1.5 * info.eps * 8)
        near = np.abs(dx[p] - true) <= room + np.abs(true) * scale
        assert (near | np.isnan(true) | (dx[p] == true)).all(), p


@every_dtype
@every_op
def test_bits_do_not_depend_on_how_planes_are_cut(op: type[Op], dtype: Any) -> None:
    """Planes with a part that needs a scale, on one thread and on several."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 600, 132)).astype(dtype)
    x[0, 400] *= dtype(2.0**40 if dtype == np.float32 else 2.0**300)
    x[1, 3] *= dtype(2.0**-40 if dtype == np.float32 else 2.0**-300)
    for kernel in ((2, 2), (1, 4), (2, 4), (3, 2)):
        options = options_of(op, kernel) | ({} if op is LpPool else {"beta": 1.5})
        vjp = getattr(ln, f"{op.name}_vjp")
        results = []
        for threads in (1, 2, 5):
            ln.set_num_threads(threads)
            y = getattr(ln, op.name)(x, **options)
            results.append((y, vjp((x,), y / y.max(), **options)[0]))
        for y, dx in results[1:]:
            assert np.array_equal(y, results[0][0]) and np.array_equal(dx, results[0][1])
