"""Max pools that keep a record of their winners for the derivatives, which then never look at x again.

    recorder = recorder_of(MaxPool, x.shape, x.dtype, options)   # None where there is no record to keep
    y, numbers = recorder.forward(x)
    dx = recorder.vjp(numbers, g)
    dy = recorder.jvp(numbers, t)

The record has the shape of y and one number for each window: the place of its first winner among the cells that the
window reads, counted in row-major order. That is a byte for windows of up to 256 cells, else 32 bits. With ties other
than "first" it would not be enough, so there is none; nor is there one for planes of 2**31 cells, or of none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.array import HALF, bound_to, dense
from lunette.number import Array
from lunette.op import Bound, Op, Record
from lunette.window import Shape


@dataclass(frozen=True, slots=True)
class Recorder:
    """A pool bound to the shape and dtype of x, whose forward pass keeps a record. It takes NumPy arrays that fit."""

    bound: Bound
    record: Record
    shape: Shape
    dtype: np.dtype[Any]

    def forward(self, x: Array) -> tuple[Array, Array]:
        """The value, and the record, which has its shape."""
        y, numbers = self._new(self.bound.out), np.empty(self.bound.out, self.record.dtype)
        self.record.forward(dense(x), y, numbers)
        return self._rounded(y), numbers

    def jvp(self, numbers: Array, t: Array) -> Array:
        """The derivative in the direction of t."""
        dy = self._new(self.bound.out)
        self.record.jvp(numbers, dense(t), dy)
        return self._rounded(dy)

    def vjp(self, numbers: Array, g: Array) -> Array:
        """The cotangent of x, for that of the value."""
        dx = self._new(self.shape)
        self.record.vjp(numbers, dense(g), dx)
        return self._rounded(dx)

    def _new(self, shape: Shape) -> Array:
        return np.empty(shape, np.float32 if self.dtype in HALF else self.dtype)

    def _rounded(self, y: Array) -> Array:
        if y.dtype == self.dtype:
            return y
        with np.errstate(over="ignore", under="ignore"):
            return y.astype(self.dtype)


def recorder_of(kind: type[Op], shape: Shape, dtype: np.dtype[Any], options: Sequence[Any]) -> Recorder | None:
    """The recorder of an operator, with its options in the order of `Op.of`; None where it keeps no record."""
    outline: Array = np.broadcast_to(np.zeros((), dtype), shape)
    return recorder(bound_to(kind, (outline,), "fast", options), shape, dtype)


def recorder(bound: Bound, shape: Shape, dtype: np.dtype[Any]) -> Recorder | None:
    """The recorder of a bound operator; None where it keeps no record."""
    record = bound.kernels.record
    return None if record is None else Recorder(bound, record, shape, dtype)
