"""Tensors in and out of the kernels, without a copy where they are dense, and which tensors lunette takes.

| rule | says                                                                     |
|------|--------------------------------------------------------------------------|
| TB1  | operands are tensors of torch: dense, on the CPU, of a float dtype       |
| TB2  | a tensor's arithmetic is "fast" or "rounded"                             |

Dtypes that differ are for rule D2, shapes for the operator's own rules.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import Array
from lunette.op import Op

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ARITHMETICS = ("fast", "rounded")
_DTYPES = dict(zip(FLOATS, map(np.dtype, (np.float32, np.float64, np.float16, BFLOAT16)), strict=True))


def check_tensor(kind: type[Op], t: Any, name: str) -> None:
    """Rule TB1."""
    who = kind.name
    if not isinstance(t, torch.Tensor):
        got = f"{name}={shown(t)} of type {type(t).__name__}"
        raise DTypeError(
            "TB1", f"{name} as a torch.Tensor", got, "lunette itself takes arrays of other kinds.", who=who
        )
    if t.device.type != "cpu":
        raise DTypeError("TB1", "tensors on the CPU", f"{name} on device {t.device}", f"Pass {name}.cpu().", who=who)
    if t.dtype not in FLOATS:
        need = "float16, bfloat16, float32 or float64"
        raise DTypeError("TB1", need, f"{name} of dtype {t.dtype}", f"Pass {name}.double().", who=who)
    if t.layout is not torch.strided:
        raise DTypeError("TB1", "dense tensors", f"{name} of layout {t.layout}", f"Pass {name}.to_dense().", who=who)


def check_arithmetic(kind: type[Op], arithmetic: Any) -> None:
    """Rule TB2."""
    if arithmetic not in ARITHMETICS:
        got = f"arithmetic={shown(arithmetic)}"
        hint = "Boxes are not tensors: ln.<op> takes ln.Interval."
        raise ArgumentError("TB2", 'arithmetic "fast" or "rounded"', got, hint, who=kind.name)


def array_of(t: torch.Tensor) -> Array:
    """The cells of a tensor, where they are."""
    if t.requires_grad:
        t = t.detach()
    if t.is_neg():  # a minus sign that is kept as a flag
        t = t.resolve_neg()
    if t.dtype is torch.bfloat16:  # NumPy has no bfloat16; its bits travel as int16
        bits: Array = t.view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    array: Array = t.numpy()
    return array


def dtype_of(t: torch.Tensor) -> np.dtype[Any]:
    """NumPy's name of a tensor's dtype."""
    return _DTYPES[t.dtype]


def tensor_of(a: Array) -> torch.Tensor:
    """A fresh array as a tensor."""
    if a.dtype == BFLOAT16:
        return _from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return _from_numpy(a)


_from_numpy = torch.from_numpy
