"""Max pools that keep a record of their winners for the derivatives, which then never look at x again.

    recorder = recorder_of(MaxPool, x.shape, x.dtype, options)   # None: no record, or none that gains anything
    y, numbers = recorder.forward(x)
    dx = recorder.vjp(numbers, g)
    dy = recorder.jvp(numbers, t)

The record has the shape of y and one number for each window: the place of its first winner among the cells that the
window reads, counted in row-major order. That is a byte for windows of up to 256 cells, else 32 bits. With ties other
than "first" it would not be enough, so there is none; nor is there one for planes of 2**31 cells, or of none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.array.foreign import dense, wide
from lunette.array.resolved import RESOLVED, Kept, key_of, resolve_cached
from lunette.number import Array
from lunette.op import Op, Record, ResolvedOp
from lunette.window import Shape


@dataclass(frozen=True, slots=True)
class Recorder:
    """A pool for x of one shape and dtype, whose forward pass keeps a record. It takes NumPy arrays that fit."""

    resolved: ResolvedOp
    record: Record
    shape: Shape
    dtype: np.dtype[Any]
    computed: np.dtype[Any]
    """The dtype that is computed in."""

    def forward(self, x: Array) -> tuple[Array, Array]:
        """The value, and the record, which has its shape."""
        out = self.resolved.out
        y, numbers = np.empty(out, self.computed), np.empty(out, self.record.dtype)
        self.record.forward(dense(x), y, numbers)
        return self._rounded(y), numbers

    def jvp(self, numbers: Array, t: Array) -> Array:
        """The derivative in the direction of t."""
        dy = np.empty(self.resolved.out, self.computed)
        self.record.jvp(numbers, dense(t), dy)
        return self._rounded(dy)

    def vjp(self, numbers: Array, g: Array) -> Array:
        """The cotangent of x, for that of the value."""
        dx = np.empty(self.shape, self.computed)
        self.record.vjp(numbers, dense(g), dx)
        return self._rounded(dx)

    def _rounded(self, y: Array) -> Array:
        if self.computed is self.dtype:
            return y
        with np.errstate(over="ignore", under="ignore"):
            return y.astype(self.dtype)


def recorder_of(
    kind: type[Op], shape: Shape, dtype: np.dtype[Any], options: tuple[Any, ...], anyway: bool = False
) -> Recorder | None:
    """The recorder of an operator, with its options in the order of `Op.of`.

    None where it keeps no record, or, unless it is wanted `anyway`, where finding winners anew is faster.
    """
    resolved = RESOLVED.get(key_of(kind, ((shape, dtype),), "fast", options))
    if resolved is None:
        resolved = resolve_cached(kind, (np.broadcast_to(np.zeros((), dtype), shape),), "fast", options)
    record = resolved.kernels.record
    if record is None or not (anyway or record.pays):
        return None
    return RECORDERS.get(resolved) or RECORDERS.keep(resolved, Recorder(resolved, record, shape, dtype, wide(dtype)))


RECORDERS: Kept[Recorder] = Kept()
