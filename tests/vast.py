"""Planes of more cells than 32 bits can count. They take gigabytes and seconds, so `make test-long` runs them."""

from __future__ import annotations

import numpy as np
import pytest

import lunette as ln

H, W = 1 << 16, (1 << 15) + 1  # more than 2^31 cells


@pytest.fixture(scope="module")
def plane() -> np.ndarray:
    """Zeros, which take no memory as long as they are only read, and two winners at the end."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) >> 20
    if free < 12:
        pytest.skip(f"needs 12 GiB of memory; {free} GiB are free")
    x = np.zeros((1, 1, H, W), np.float32)
    x[0, 0, -1, -3] = x[0, 0, -1, -1] = 1
    return x


def test_the_place_of_a_winner_is_not_cut_to_32_bits(plane: np.ndarray) -> None:
    y, index = ln.max_pool(plane, (H, W), return_indices=True)
    assert y.item() == 1 and index.item() == H * W - 3


def test_nor_is_that_of_many_windows(plane: np.ndarray) -> None:
    y, index = ln.max_pool(plane, (2, 5), stride=(H - 2, W - 5), return_indices=True)
    assert y.tolist() == [[[[0, 0], [0, 1]]]]
    assert index.tolist() == [[[[0, W - 5], [(H - 2) * W, H * W - 3]]]]


def test_nor_is_the_place_of_a_tangent(plane: np.ndarray) -> None:
    assert ln.max_pool_jvp((plane,), (plane,), kernel=(2, 5), stride=(H - 2, W - 5)).tolist() == [[[[0, 0], [0, 1]]]]
