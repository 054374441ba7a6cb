"""Named data sets: what the cells of a case hold. The same generator state gives the same cells on every machine.

Most sets are whole numbers so small that every sum is exact in every dtype: then right means equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from lunette.number import Array
from lunette.window import Shape

Rng = np.random.Generator
DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


def limits(dtype: np.dtype[Any]) -> Any:
    """What numpy.finfo says, of bfloat16 too."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _sprinkled(base: Array, rng: Rng, specials: list[float]) -> Array:
    """About every fifth cell, and at least one, replaced by a special value."""
    if base.size:
        hit = rng.random(base.shape) < 0.2
        hit.flat[rng.integers(base.size)] = True
        base[hit] = rng.choice(specials, int(hit.sum()))
    return base


def _integers(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return rng.integers(-4, 5, shape).astype(np.float64)


def _normal(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return np.asarray(rng.standard_normal(shape))


def _ties(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return rng.integers(0, 2, shape).astype(np.float64)


def _nan(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return _sprinkled(_integers(rng, shape, dtype), rng, [np.nan])


def _infinite(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return _sprinkled(_integers(rng, shape, dtype), rng, [[-np.inf], [np.inf], [-np.inf, np.inf]][rng.integers(3)])


def _lowest(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Whole windows of -inf: a masked feature map."""
    base = _integers(rng, shape, dtype)
    return np.where(rng.random(shape) < 0.85, -np.inf, base)


def _zeros(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return np.asarray(rng.choice([-0.0, 0.0, -1.0], shape))


def _subnormal(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    return np.asarray(rng.integers(-8, 9, shape) * float(limits(dtype).smallest_subnormal))


def _cancelling(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Large cells of both signs, and small ones that their sum leaves over."""
    large = 2.0 ** (limits(dtype).nmant - 2)
    return np.asarray(rng.choice([large, -large, 1.0, -3.0], shape))


def _huge(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Cells near the greatest float, of one sign: their sum overflows, their average and maximum do not."""
    most = float(limits(dtype).max)
    return np.asarray(rng.choice([0.5, 0.625, 0.75, 0.875], shape)) * most * [1, -1][rng.integers(2)]


def _large(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Cells whose squares overflow, although their sums do not."""
    return _integers(rng, shape, dtype) * 2.0 ** int(0.6 * np.log2(float(limits(dtype).max)))


def _small(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Cells whose squares vanish, although they do not."""
    return _integers(rng, shape, dtype) * 2.0 ** int(0.6 * np.log2(float(limits(dtype).tiny)))


def _ones(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    # A view of one number: 2**25 of them cost nothing until they are cast.
    return np.broadcast_to(np.float64(1), shape)


def _widths(rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Of boxes: all cells may move, or some, or none of them far."""
    return np.asarray(rng.choice([0.0, 0.25, 1.0, 2.0], shape)) * [1, 1, 0.125][rng.integers(3)]


DATA: dict[str, Callable[[Rng, Shape, np.dtype[Any]], Array]] = {
    "integers": _integers,
    "normal": _normal,
    "ties": _ties,
    "nan": _nan,
    "infinite": _infinite,
    "lowest": _lowest,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "cancelling": _cancelling,
    "huge": _huge,
    "large": _large,
    "small": _small,
    "ones": _ones,
    "widths": _widths,
}
EXACT = frozenset({"integers", "ties", "nan", "infinite", "lowest", "zeros", "ones"})
"""The sets of small whole numbers and special values, on which float64 sums are exact."""


def cells(name: str, rng: Rng, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """An array of a data set, rounded to a dtype."""
    return DATA[name](rng, shape, dtype).astype(dtype, order="C")
