"""How other frameworks spell lunette's operators, exactly: arguments to one operator value, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lunette.dialects.dialect import Call as Call
from lunette.dialects.dialect import Dialect as Dialect
from lunette.dialects.dialect import Unsaid as Unsaid
from lunette.dialects.jax import Jax
from lunette.dialects.meaning import Corners as Corners
from lunette.dialects.meaning import Divisor as Divisor
from lunette.dialects.meaning import Meaning as Meaning
from lunette.dialects.onnx import Onnx
from lunette.dialects.torch import Torch
from lunette.errors import ArgumentError, meant, shown

DIALECTS: Final[Mapping[str, Dialect]] = {d.name: d for d in (Torch(), Onnx(10), Onnx(19), Onnx(22), Jax())}


def dialect(name: str) -> Dialect:
    """A dialect by its name. Rule DI5.

    >>> print(dialect("onnx22").express("max_pool", [(1, 3, 8, 8)], {"kernel": 3, "stride": 2, "padding": 1}))
    MaxPool(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], ceil_mode=0)
    """
    if name not in DIALECTS:
        hint = meant(name, DIALECTS, "Opsets are part of the name: onnx22.")
        raise ArgumentError("DI5", f"a dialect among {', '.join(DIALECTS)}", shown(name), hint, who="dialect")
    return DIALECTS[name]
