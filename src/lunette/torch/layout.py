"""Pools of channels-last tensors, where their cells are.

In memory such a tensor is (batch, *space, channels). A pool of it is a pool of `(batch, 1, *space, channels)` whose
windows are one cell wide along the last axis: the same cells in the same order, no copy, and vectors run along the
channels. The result is channels-last again, as torch's own is.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

from lunette.array import is_plain, run
from lunette.errors import LunetteError
from lunette.graph.text import options_of
from lunette.number import Array
from lunette.op import Op
from lunette.ops import AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, LpPool, MaxPool
from lunette.ops.derivative import Derivative, Vjp
from lunette.torch.tensors import array_of, dtype_of, tensor_of
from lunette.window import is_sequence, padding_pairs, per_axis

FORMATS: Final[Mapping[int, torch.memory_format]] = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the number of axes."""
POOLS: Final = (MaxPool, AvgPool, LpPool, AdaptiveAvgPool, AdaptiveMaxPool)

_ALONG: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "kernel": lambda k, d: (*per_axis("kernel", k, d), 1),
    "stride": lambda s, d: s if s is None else (*per_axis("stride", s, d), 1),
    "padding": lambda p, d: p if isinstance(p, str) else (*padding_pairs(p, d), (0, 0)),
    "dilation": lambda s, d: (*per_axis("dilation", s, d), 1),
    "output_size": lambda n, d: (*(n if is_sequence(n) else (n,) * d), None),
    "spatial": lambda s, d: None,
}
"""An option of d axes, and of channels behind them."""


def is_channels_last(t: torch.Tensor) -> bool:
    """Whether the cells of a tensor are in that order, and in no other that is as good."""
    return t.ndim in FORMATS and not t.is_contiguous() and t.is_contiguous(memory_format=FORMATS[t.ndim])


@lru_cache(maxsize=4096)
def _along(kind: type[Op], packed: bytes, ndim: int) -> tuple[Any, ...] | None:
    options = marshal.loads(packed)  # which tells 1, 1.0 and True apart, as keys do not
    base = kind.base if issubclass(kind, Derivative) else kind
    told = dict(zip(options_of(base), options, strict=True))
    if base not in POOLS or told.get("return_indices"):
        return None
    try:
        if base.rank([(1,) * ndim], 2, *options) != ndim - 2:
            return None
        return tuple(_ALONG[n](o, ndim - 2) if n in _ALONG else o for n, o in told.items())
    except LunetteError:  # the pool itself says what is wrong
        return None


def along_channels(kind: type[Op], tensors: Sequence[Any], options: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The options of a pool whose last axis are the channels; None where its tensors are not channels-last."""
    # A VJP that does not read x goes by the cotangent.
    leads = tensors[-1] if issubclass(kind, Vjp) and not kind.reads(0) else tensors[0]
    if not isinstance(leads, torch.Tensor) or not is_channels_last(leads) or not all(map(is_plain, options)):
        return None
    return _along(kind, marshal.dumps(options, 2), leads.ndim)


def laid(t: torch.Tensor) -> torch.Tensor:
    """A tensor as (batch, 1, *space, channels), copied if it is in another order."""
    return t.contiguous(memory_format=FORMATS[t.ndim]).movedim(1, -1).unsqueeze(1)


def back(y: torch.Tensor) -> torch.Tensor:
    """And as (batch, channels, *space) again."""
    return y.squeeze(1).movedim(-1, 1)


def compute(kind: type[Op], tensors: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
    """An operator on tensors, some of which may be None or plain numbers, or, where it does not read them, shapes."""
    inner = along_channels(kind, tensors, options)
    if inner is not None:
        try:
            return back(tensor_of(run(kind, _arrays(kind, tensors, True), arithmetic, inner)))
        except LunetteError:  # the pool as the user has it says what is wrong
            pass
    y = run(kind, _arrays(kind, tensors, False), arithmetic, options)
    return tuple(map(tensor_of, y)) if type(y) is tuple else tensor_of(y)


def _arrays(kind: type[Op], tensors: Sequence[Any], last: bool) -> list[Any]:
    return [_array(t, last) if _is_read(kind, at, t) else _unread(t, tensors[-1], last) for at, t in enumerate(tensors)]


def _is_read(kind: type[Op], at: int, t: Any) -> bool:
    return t is None or not issubclass(kind, Vjp) or kind.reads(at)


def _array(t: Any, last: bool) -> Any:
    if not isinstance(t, torch.Tensor):
        return t
    return array_of(laid(t) if last else t)


def _unread(t: torch.Tensor | torch.Size, g: torch.Tensor, last: bool) -> Array:
    """Stands in for what only its shape matters of: nobody touches the memory."""
    shape = t if isinstance(t, torch.Size) else t.shape
    return np.empty((shape[0], 1, *shape[2:], shape[1]) if last else shape, dtype_of(g))
