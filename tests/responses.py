"""Everything about a window, as numbers that can be compared.

A batch of all inputs with a single one tells it: a maximum says which cells a window reads, an average also the
divisor, and a convolution with weights 1, 10, 100 which weight meets which cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lunette.dialects import Meaning

Array = npt.NDArray[Any]


def units(space: Sequence[int]) -> Array:
    """Every input with a single one: (cells, 1, *space)."""
    n = prod(space)
    return np.eye(n).reshape(n, 1, *space)


def weights(kernel: Sequence[int]) -> Array:
    """Distinct powers of ten."""
    return np.array([10.0**k for k in range(prod(kernel))]).reshape(1, 1, *kernel)


def response(meaning: Meaning) -> Array:
    """What an operator that means this makes of `units`, by its taps and divisors."""
    y = np.zeros((prod(meaning.space), 1, *meaning.out))
    w = weights(meaning.kernel)[0, 0] if meaning.op.startswith("conv") else None
    columns = y.reshape(len(y), -1)
    for at_o, o in enumerate(meaning.cells()):
        read = 0
        for k, i in meaning.window.taps(o, meaning.space):
            read += 1
            at = int(np.ravel_multi_index(i, meaning.space))
            columns[at, at_o] = 1 if w is None else w[k]
        if meaning.divisor is not None:
            with np.errstate(invalid="ignore"):
                columns[:, at_o] /= np.float64(meaning.divisor.at(o, meaning.space))
        elif read == 0 and "max" in meaning.op:
            columns[:, at_o] = -np.inf
    return y


def same(a: Array | str, b: Array | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def signature(meaning: Meaning) -> tuple[Any, ...]:
    """Equal for two meanings that read the same cells and divide by the same numbers."""
    reads = tuple(tuple(meaning.window.taps(o, meaning.space)) for o in meaning.cells())
    by = None if meaning.divisor is None else tuple(meaning.divisor.at(o, meaning.space) for o in meaning.cells())
    return meaning.out, reads, by, meaning.kernel
