"""How other frameworks spell lunette's operators, exactly: arguments to one operator value, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lunette.dialects.dialect import Call as Call
from lunette.dialects.dialect import Dialect as Dialect
from lunette.dialects.dialect import Unsaid as Unsaid
from lunette.dialects.difference import Difference as Difference
from lunette.dialects.difference import Differences as Differences
from lunette.dialects.difference import differences
from lunette.dialects.equinox import Equinox
from lunette.dialects.jax import Jax
from lunette.dialects.meaning import Corners as Corners
from lunette.dialects.meaning import Divisor as Divisor
from lunette.dialects.meaning import Meaning as Meaning
from lunette.dialects.onnx import Onnx
from lunette.dialects.own import Lunette
from lunette.dialects.tensorflow import Keras, TensorFlow
from lunette.dialects.torch import Torch
from lunette.dialects.tosa import Tosa
from lunette.dialects.webnn import WebNN
from lunette.errors import ArgumentError, meant, refuses, shown

DIALECTS: Final[Mapping[str, Dialect]] = {
    d.name: d
    for d in (
        *(Lunette(), Torch(), Onnx(10), Onnx(19), Onnx(22), TensorFlow(), Keras()),
        *(Jax(), Equinox(), Tosa(), WebNN()),
    )
}


ALSO_CALLED: Final[Mapping[str, str]] = {"pytorch": "torch", "tensorflow": "tf", "onnx": "onnx22"}


def dialect(name: str) -> Dialect:
    """A dialect by its name. Rule DI5.

    >>> print(dialect("onnx22").express("max_pool", [(1, 3, 8, 8)], {"kernel": 3, "stride": 2, "padding": 1}))
    MaxPool(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], ceil_mode=0)
    """
    name = ALSO_CALLED.get(name, name)
    if name not in DIALECTS:
        hint = meant(name, DIALECTS, "Opsets are part of the name: onnx22.")
        raise ArgumentError("DI5", f"a dialect among {', '.join(DIALECTS)}", shown(name), hint, who="dialect")
    return DIALECTS[name]


@refuses
def diff(first: str, second: str, op: str | None = None, *, largest: int = 5) -> Differences:
    """Every class of configurations on which two dialects differ if arguments are copied word by word.

    `op` is an operator that both have; all of them if it is left out. Inputs of 1 to `largest` cells are tried, with
    every combination of small kernels, strides, paddings and flags.

    >>> import lunette as ln
    >>> found = ln.diff("torch", "onnx22", "max_pool", largest=3)
    >>> print(found[0])
    max_pool: size (another number of windows) with stride left out: 18 configurations
      n=3, kernel=2
      torch   max_pool1d(kernel_size=(2,)) -> (1,)
      onnx22  MaxPool(kernel_shape=[2]) -> (2,)
      in onnx22: MaxPool(kernel_shape=[2], strides=[2], pads=[0, 0], dilations=[1], ceil_mode=0)
    <BLANKLINE>
      torch                     | onnx22
      input  0 1 2              | input  0 1 2
      o=0    ■ ■ ·   reads 0, 1 | o=0    ■ ■ ·   reads 0, 1
                                | o=1    · ■ ■   reads 1, 2
    """
    return differences(dialect(first), dialect(second), op, largest)
