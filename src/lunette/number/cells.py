"""Arrays of numbers: cells of any type, their allocation, and what happens when they meet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.errors import DTypeError, LunetteError, ShapeError, shown
from lunette.number.kinds import OBJECT, Array, Number
from lunette.window import Shape

if TYPE_CHECKING:  # a millisecond of `import lunette`
    import numpy.typing as npt


def allocate(shape: Shape, dtype: np.dtype[Any], what: str = "an output") -> Array:
    """Rule N6."""
    size = prod(shape) * (48 if dtype == OBJECT else dtype.itemsize)  # a Python number weighs about 40 bytes
    try:
        if size > _MEMORY:
            raise MemoryError
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise ShapeError(
            "N6",
            f"{what} that fits into {_MEMORY} bytes of memory",
            f"shape {shape}, {size} bytes",
            "Take a smaller batch, or less padding where there is any.",
        ) from error


def check_fits(x: Array, name: str) -> None:
    """Rule N6 for an operand of which a dense copy is made: with zero strides a few bytes stand for any size."""
    size = x.size * (48 if x.dtype == OBJECT else x.itemsize)
    if size > _MEMORY and not (x.flags.c_contiguous and x.dtype != OBJECT):
        need, got = f"{name} that fits into {_MEMORY} bytes of memory", f"shape {x.shape}, {size} bytes"
        raise ShapeError("N6", need, got, "It has to be copied: pass fewer cells.")


_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_masked(x: object) -> bool:
    """Whether some cells of an array are hidden. NumPy loads what such arrays are made of with the first mention."""
    return "numpy.ma" in sys.modules and isinstance(x, np.ma.MaskedArray)


def cells_of(x: object, name: str = "x") -> Array:
    """Any nested list or array as an object array of numbers, each exactly the number it was."""
    if is_masked(x):
        raise DTypeError("N1", "an array without a mask", f"{name} as a masked array", f"Pass {name}.filled(...).")
    if isinstance(x, np.ndarray):
        check_fits(x, name)
    if isinstance(x, np.ndarray) and (x.dtype.kind in "iu" or x.dtype.newbyteorder("=") in (np.float64, np.complex128)):
        return x.astype(object)
    array: Array
    if isinstance(x, np.ndarray) and x.dtype != object:
        array = np.empty(x.shape, object)  # numpy's own scalars, which astype(object) would widen
        for cell in cells_in(x.shape):
            array[cell] = x[cell]
    else:
        try:
            array = np.array(x, dtype=object)
        except Exception as error:  # ragged rows, or arrays of other libraries among the cells that refuse in their way
            got = f"{name} of type {type(x).__name__}: {shown(str(error))}"
            raise DTypeError("N1", "numbers in rows of equal length", got, "Make every row as long.") from error
    for cell in cells_in(array.shape):
        array[cell] = _number(array[cell], name, cell)
    return array


def cells_in(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every cell in row-major order, at any rank."""
    return iter(()) if 0 in shape else product(*map(range, shape))


def _number(a: object, name: str, cell: tuple[int, ...]) -> Number:
    not_a_number = isinstance(
        a, bool | np.bool_ | str | bytes | Collection | type | np.void | np.datetime64 | np.timedelta64
    )
    if not_a_number or not hasattr(a, "__mul__"):
        place = f"{name}[{', '.join(map(str, cell))}]" if cell else name
        ragged = isinstance(a, list | tuple | np.ndarray)
        hint = "Make every row as long." if ragged else "Pass an array or nested lists of numbers."
        raise DTypeError("N1", "numbers", f"{place}={shown(a)} of type {type(a).__name__}", hint)
    return int(a) if isinstance(a, np.integer) else a


@contextmanager
def meeting(*arrays: Array | None) -> Iterator[None]:
    """While cells meet in sums, products and comparisons: rule N7 for what their number types refuse."""
    try:
        yield
    except LunetteError:
        raise
    except (TypeError, ArithmeticError) as error:
        kinds = sorted({type(c).__name__ for a in arrays if a is not None for c in a.ravel()})
        raise DTypeError(
            "N7",
            "cells that add, multiply and compare with each other",
            f"cells of type {' and '.join(kinds)}: {shown(str(error))}",
            "Convert all arrays to one number type.",
        ) from error


def each(f: Callable[..., object], *arrays: Array) -> Array:
    """`f` of every cell."""
    out: Array = np.empty(arrays[0].shape, object)
    for cell in cells_in(out.shape):
        out[cell] = f(*(a[cell] for a in arrays))
    return out


def exact(values: npt.ArrayLike) -> Array:
    """Rational copies of `values`: no rounding anywhere after this."""
    return each(Fraction, cells_of(np.asarray(values)))
