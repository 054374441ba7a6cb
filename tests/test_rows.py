"""The kernels that bounds spend their time in, on whole numbers, whose sums are exact in any order."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from lunette.number import Array
from lunette.taps import Grid, Placed

pytestmark = pytest.mark.kernels

SPACES = [(n,) for n in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33)] + [(3, 4), (2, 9), (5, 17), (2, 3, 5), (3, 1, 9)]


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-4, 5, shape).astype(float)


def chosen(a: float, low: float, high: float) -> float:
    return 0.0 if a == 0 else a * (low if a > 0 else high)


def placed(rng: np.random.Generator, space: tuple[int, ...], rows: int, moved: bool) -> Placed:
    """Rows in planes; where they are moved, some hang over the edges or are outside of them."""
    size = tuple(int(rng.integers(1, n + 3)) for n in space) if moved else space
    origin = np.stack([rng.integers(-m, n + 1, rows) for m, n in zip(size, space, strict=True)], 1) if moved else None
    return Placed(whole(rng, rows, 2, *size), space, origin)


def inside(p: Placed, row: int) -> Any:
    """For each cell of a row that is inside of the planes: where it is in the row, and where in the plane."""
    for at in product(*map(range, p.size)):
        there = at if p.origin is None else tuple(int(o) + i for o, i in zip(p.origin[row], at, strict=True))
        if all(0 <= i < n for i, n in zip(there, p.space, strict=True)):
            yield at, there


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_rows_are_weighed_cell_by_cell(space: tuple[int, ...], moved: bool, own: bool) -> None:
    rng = np.random.default_rng(len(space) + 2 * moved + 4 * own)
    p = placed(rng, space, 7, moved)
    low, high = (whole(rng, 7 if own else 1, 2, *space) for _ in range(2))
    low[0, 0].flat[0], high[0, 0].flat[0] = -np.inf, np.inf
    p.cells[0] = 0  # which wins over infinity
    for r, found in enumerate(p.weigh(low, high)):
        t = r if own else 0
        cells = [(c, at, there) for c in range(2) for at, there in inside(p, r)]
        right = sum(chosen(p.cells[(r, c, *at)], low[(t, c, *there)], high[(t, c, *there)]) for c, at, there in cells)
        assert found == right or (np.isnan(found) and np.isnan(right))


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_are_pulled_cell_by_cell(space: tuple[int, ...], moved: bool, own: bool, stride: int) -> None:
    rng, d, rows = np.random.default_rng(stride), len(space), 5
    p = placed(rng, space, rows, moved)
    taps = [tuple(int(v) for v in rng.integers(-1, 3, d)) for _ in range(3)]
    behind = tuple(n * stride + 1 for n in space)
    low, high = (whole(rng, rows if own else 1, len(taps), 2, *space) for _ in range(2))
    if moved and p.origin is not None:
        origin, size = p.origin * stride - 1, tuple(m * stride + 2 for m in p.size)
    else:
        origin, size = None, behind
    right = np.zeros((rows, 2, *size))
    for r, c, (t, tap) in product(range(rows), range(2), enumerate(taps)):
        for at, there in inside(p, r):
            cell = [i * stride + k for i, k in zip(there, tap, strict=True)]
            into = [i - (0 if origin is None else int(origin[r, k])) for k, i in enumerate(cell)]
            if all(0 <= i < n for i, n in zip((*cell, *into), (*behind, *size), strict=True)):
                key = (r if own else 0, t, c, *there)
                right[(r, c, *into)] += chosen(p.cells[(r, c, *at)], low[key], high[key])
    assert (Grid((stride,) * d, tuple(taps)).pull(p, low, high, behind, size, origin) == right).all()
