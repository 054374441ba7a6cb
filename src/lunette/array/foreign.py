"""Operands as NumPy arrays, and results as the kind of array they were asked for with: kinds, dtypes, layouts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import (
    OBJECT,
    Array,
    as_dtype,
    cells_of,
    check_fits,
    is_masked,
    like,
)

FLOAT = (np.dtype(np.float32), np.dtype(np.float64))
HALF = ("float16", "bfloat16")
"""Names of dtypes: NumPy knows the second one when its package, ml_dtypes, has been loaded."""


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of 16 bits are floats, in the order of bytes of this machine."""
    return dtype.itemsize == 2 and dtype.name in HALF and dtype.isnative


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as a NumPy array, and the kind of array it was: "numpy" or the name of a library."""

    array: Array
    kind: str = "numpy"


def to_numpy(x: object, name: str) -> Operand:
    """Any array, without a copy where it is one already."""
    if type(x) is np.ndarray and x.dtype in FLOAT and x.dtype.isnative:
        check_fits(x, name)
        return Operand(x)
    if is_masked(x):
        raise DTypeError(
            "D1", "a plain array", f"{name} as a masked array", f"Fill it first: {name}.filled(...).astype(np.float64)."
        )
    if isinstance(x, np.ndarray | np.generic):
        return Operand(_checked(np.asarray(x), name))
    if hasattr(x, "__dlpack__") and not isinstance(x, type):
        return _foreign_to_numpy(x, name)
    if hasattr(x, "__array__") and not isinstance(x, type):
        return Operand(_checked(converted(np.asarray, x, name), name))
    return Operand(cells_of(x, name))


def _foreign_to_numpy(x: Any, name: str) -> Operand:
    kind = type(x).__module__.partition(".")[0].removesuffix("lib")
    if kind == "jax" and isinstance(x, importlib.import_module("jax").core.Tracer):
        raise DTypeError(
            "D1",
            "an array whose values NumPy can read",
            f"{name} as a tracer of JAX ({type(x).__name__})",
            "lunette.jax has the operators for jit, grad and vmap: import lunette.jax as lj.",
        )
    if kind == "torch" and importlib.import_module("torch").jit.is_tracing():
        raise DTypeError(
            "D1",
            "an array whose values NumPy can read",
            f"{name} as a tensor that torch.jit.trace records",
            "What lunette makes of it would become a constant: call it outside of torch.jit.trace.",
        )
    device = getattr(x, "device", "")
    if getattr(x, "requires_grad", False):
        raise DTypeError(
            "D4",
            "tensors that do not require grad",
            f"{name} with requires_grad=True",
            f"Pass {name}.detach(): lunette would cut it from its graph.",
        )
    # DLPack's numbers for memory that the CPU reads: plain or pinned. torch has none for "meta".
    if str(device) == "meta" or converted(lambda a: a.__dlpack_device__(), x, name)[0] not in (1, 3, 11, 13):
        raise DTypeError("D5", "arrays on the CPU", f"{name} on device {device}", f"Pass {name}.cpu() or a copy.")
    if hasattr(x, "resolve_neg"):  # torch may keep a minus sign as a flag, which its DLPack forgets
        x = x.resolve_neg()
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":  # NumPy's DLPack has no bfloat16; its bits travel as int16
        bits = np.from_dlpack(x.view(importlib.import_module("torch").int16))
        return Operand(bits.view(importlib.import_module("ml_dtypes").bfloat16), kind)
    array = _checked(converted(np.asarray if kind == "jax" else np.from_dlpack, x, name), name, kind)
    return Operand(array, kind if hasattr(importlib.import_module(kind), "from_dlpack") or kind == "jax" else "numpy")


def converted(convert: Callable[[Any], Any], x: Any, name: str) -> Any:
    """What a foreign array gives; each library has its own way to refuse."""
    try:
        return convert(x)
    except Exception as error:
        got = f"{name} of type {type(x).__name__}: {shown(str(error))}"
        raise DTypeError("D1", "an array whose values NumPy can read", got, "Pass a NumPy array.") from error


def _checked(x: Array, name: str, kind: str = "numpy") -> Array:
    if x.dtype == OBJECT:
        return cells_of(x, name)
    check_fits(x, name)
    native = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if native.dtype in FLOAT or is_half(native.dtype):
        return native
    it = name if name.isidentifier() else "it"
    hint = f"Pass {it}.astype(np.float64), or {it}.astype(object) for exact numbers."
    if x.dtype.kind == "c":
        hint = f"Pass {it}.real.astype(np.float64), or {it}.astype(object): linear operators take complex numbers."
    hint = hint if kind == "numpy" else f"Convert {name} to float64."
    raise DTypeError("D1", "float16, bfloat16, float32 or float64", f"{name} of dtype {x.dtype}", hint)


def from_numpy(y: Array, kind: str) -> Any:
    """The result as the kind of array that x was."""
    if kind == "numpy":
        return y
    if kind == "torch":
        torch = importlib.import_module("torch")
        if y.dtype.name == "bfloat16":
            return torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(y)
    if kind == "jax":
        return importlib.import_module("jax.numpy").asarray(y)
    return importlib.import_module(kind).from_dlpack(y)


def integers_to_numpy(x: object, name: str) -> Operand:
    """Whole numbers, as int64."""
    a = converted(np.asarray, x, name)
    if a.dtype.kind not in "iu" and not (a.dtype == OBJECT and all(isinstance(v, int) for v in a.flat)):
        raise DTypeError("D1", f"{name} of integers", f"dtype {a.dtype}", f"Pass {name}.astype(np.int64).")
    try:
        return Operand(np.asarray(a, np.int64, order="C"))
    except OverflowError as error:
        got = f"{name} of {shown(max(a.flat, key=abs))}"
        raise ArgumentError("D1", f"{name} of integers of 64 bits", got, "They count cells.") from error


def as_scalar(value: Any, name: str, dtype: np.dtype[Any], cell: Any) -> Operand:
    """A plain number as an array without axes, in the dtype of the arrays, or the number type of their cells."""
    if dtype == OBJECT:
        return Operand(cells_of(like(value, cell), name))
    return Operand(np.asarray(as_dtype(value, dtype), dtype))


def one_kind(kinds: Sequence[str]) -> None:
    """Rule D3."""
    foreign = sorted({k for k in kinds if k != "numpy"})
    if len(foreign) > 1:
        raise DTypeError(
            "D3",
            "NumPy arrays and one other kind",
            f"{' and '.join(foreign)}",
            "Convert one of them, or pass NumPy arrays.",
        )


def same_dtype(dtype: np.dtype[Any], array: Array, name: str) -> None:
    """Rule D2."""
    if array.dtype != dtype:
        raise DTypeError(
            "D2",
            "arrays of one dtype",
            f"x of dtype {dtype} and {name} of dtype {array.dtype}",
            "Convert one of them: nothing is promoted silently.",
        )


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that is computed in: half precision is accumulated in float32 and rounded once."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def dense(a: Array | None) -> Array | None:
    """What kernels read: C-contiguous, in the dtype that is computed in."""
    if a is None or (a.flags.c_contiguous and a.flags.aligned and a.dtype in FLOAT):
        return a
    return np.require(a, wide(a.dtype), ["C", "A"])


def cells(a: Array | None) -> Array | None:
    """What the specification reads: numbers. Floats become Python's, whose rounding is finer or the same."""
    return None if a is None else cells_of(a if a.dtype == OBJECT else a.astype(np.float64))
