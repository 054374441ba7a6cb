"""Nodes of autograd without Python: pools of float32 and float64 on dense tensors, where nodes.cpp has been compiled.

`python -m lunette.torch.build` does that, for the torch that is installed; without it, or with LUNETTE_TORCH=python,
nodes are Python's (`lunette.torch.derivatives`). Their numbers are the same. What a compiled node is not made for, it
leaves to the operators of torch that Python's nodes go by as well.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch.autograd import forward_ad

from lunette import _native
from lunette.array import recorder_of, resolve_cached, weight_of
from lunette.building import Handler
from lunette.errors import LunetteError
from lunette.number import Array
from lunette.ops.derivative import Derivative, Differentiable, vjp_of
from lunette.torch.operators import Operator, setting_of
from lunette.torch.tensors import dtype_of
from lunette.window import Shape

SOURCE: Final = Path(__file__).parent / "nodes.cpp"
HANDLER: Final = Handler("TB3", SOURCE, "torch", "nodes of autograd are Python's")
TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
COMPILED: Final = (torch.float32, torch.float64)
"""The dtypes that kernels compute in."""
MOST_BYTES: Final = 1 << 26
"""Of the tables of all pools that have compiled nodes, which are kept for good; later ones have Python's."""


def places() -> tuple[Path, Path]:
    """Where the nodes for this torch are built."""
    return HANDLER.places(torch.__version__, torch.version.git_version, torch._C._GLIBCXX_USE_CXX11_ABI)


@lru_cache
def connected() -> bool:
    """Whether there are compiled nodes, and they are wanted; torch is told of them, once."""
    if os.environ.get("LUNETTE_TORCH") == "python":
        return False
    for path in places():
        try:
            library = ctypes.CDLL(str(path))
            library.lunette_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
            if library.lunette_connect(torch.__version__.encode(), _native.foreign_run()):
                library.lunette_lend.restype = ctypes.c_void_p
                _native.borrow_threads(library.lunette_lend())
                return True
        except (OSError, AttributeError):  # there is none, or none for this machine or this torch
            continue
    return False


def node_of(operator: Operator, apply: Callable[..., Any]) -> Callable[..., Any]:
    """The operator with a node in the graph of autograd: a compiled one where there is one, or else that of `apply`."""
    kind = operator.kind
    if (
        operator.indices
        or not issubclass(kind, Differentiable)
        or issubclass(kind, Derivative)
        or len(kind.arrays) != 1
    ):
        return apply
    pool: type[Differentiable] = kind
    kept: dict[Any, int] = {}

    def node(x: torch.Tensor, text: str) -> Any:
        if not connected() or type(x) not in TENSORS or x.dtype not in COMPILED or not x.is_contiguous():
            return apply(x, text)
        if forward_ad._current_level >= 0:
            return apply(x, text)
        key = x.shape, x.dtype, text
        which = kept.get(key)
        if which is None:
            which = keep(pool, x, text)
            if which is None:
                return apply(x, text)
            kept[key] = which
        return torch.ops.lunette._pool.default(which, x)

    return node


class Held:
    """What is kept for compiled nodes."""

    bytes: ClassVar[int] = 0


def keep(kind: type[Differentiable], x: torch.Tensor, text: str) -> int | None:
    """Tell the compiled nodes of a pool, which keep it; None where its kernels are not all that there is to it."""
    setting, dtype, shape = setting_of(kind, text), dtype_of(x), tuple(x.shape)
    if setting.arithmetic != "fast" or Held.bytes > MOST_BYTES:
        return None
    try:
        there = resolve_cached(kind, (_stand_in(shape, dtype),), "fast", setting.options)
        arrays = _stand_in(shape, dtype), _stand_in(there.out, dtype)
        back = resolve_cached(vjp_of(kind, 0), arrays, "fast", setting.options)
        recorder = recorder_of(kind, shape, dtype, setting.options)
    except LunetteError:  # the pool as the user has it says what is wrong
        return None
    reads = recorder is None and vjp_of(kind, 0).reads(0)
    if recorder is not None:
        forward, backward = recorder.record.forward, recorder.record.vjp
    else:
        forward, backward = there.kernels.forward, back.kernels.forward
    if not isinstance(forward, _native.Task) or not isinstance(backward, _native.Task):  # the specification computes
        return None
    if recorder is None:
        forward = forward.taking([0, 1, *(-1,) * there.op.has_indices], 2)
        backward = backward.taking([0, 1, 2] if reads else [-1, 0, 1], 3 if reads else 2)
    names = [f"torch {way} {kind.name} {shape} {dtype} {text}" for way in ("forward", "backward")]
    for name, task in zip(names, (forward, backward), strict=True):
        _native.keep_task(name, task)
    Held.bytes += 2 * weight_of(there, "fast")
    operators = f"lunette::{kind.name}", f"lunette::{vjp_of(kind, 0).name}"
    record = 0 if recorder is None else recorder.record.dtype.itemsize
    which: int = torch.ops.lunette._keep_pool.default(
        *names, *operators, text, shape, there.out, x.dtype, reads, record
    )
    return which


def _stand_in(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """An array of that shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)
