"""Softmax along an axis, and normalisation of channels.

    softmax(x)[i] = exp(x[i]) / sum of exp(x)       log_softmax(x)[i] = x[i] - log(sum of exp(x))

Both are shifted by the greatest cell, so nothing overflows. Rule E2 (lunette.ops.reduce) for the axis.

| rule | says                                                                 |
|------|----------------------------------------------------------------------|
| B1   | mean, var, scale and shift have one entry per channel, axis 1 of x   |
| B2   | eps is a finite number >= 0                                          |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, ShapeError, error_context, shown
from lunette.number import Array, Number, anchor, cells_in, divide, exp, is_infinite, is_nan, like, log, primal, total
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.binary import add, div, mul, sub
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.glue import Glue, check_axis, check_number, make, shape_of
from lunette.ops.layout import reshape, transpose
from lunette.ops.smooth_max_pool import smooth_max_pool
from lunette.ops.unary import exp as exp_cells
from lunette.ops.unary import sqrt
from lunette.value import value
from lunette.window import Shape


@value
class AlongAxis(Glue):
    """A function of each row of cells along one axis."""

    axis: int = -1

    logarithm: ClassVar[bool] = False
    needs: ClassVar[str] = "exp"
    cases: ClassVar[Mapping[str, Case]] = {
        "last": case((2, 3)),
        "first": case((2, 3), axis=0),
        "line": case((4,)),
        "one": case((2, 1)),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        assert shapes[0] is not None
        return cls(check_axis("axis", options[0], len(shapes[0])))

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return shapes[0]

    @abstractmethod
    def row(self, shifted: list[Number]) -> list[Number]:
        """One row, whose greatest cell is about zero."""

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        rows, y = np.moveaxis(x, self.axis, -1), np.empty(x.shape, object)
        out = np.moveaxis(y, self.axis, -1)
        for cell in cells_in(rows.shape[:-1]):
            cells = list(rows[cell])
            pivot = next((c for c in cells if is_nan(c)), None)
            pivot = anchor(cells, greatest=True) if cells and pivot is None else pivot
            # Infinite cells share, as those of smooth max do; nothing but minus infinity has no softmax.
            first = pivot is not None and is_infinite(pivot) and primal(pivot) > 0
            out[cell] = self.row([like(0, c) if first and c == pivot else c - pivot for c in cells])
        return y

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return (len(sizes) + self.axis,)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x = shapes[0] or ()
        outer, count, inner = prod(x[: self.axis]), x[self.axis], prod(x[self.axis + 1 :])
        return Kernels(core.softmax(dtype.char, self.logarithm, outer, count, inner))


def log_sum_exp(x: Any, axis: int) -> Any:
    """Along one axis, which stays with one cell: one window of a smooth maximum."""
    rank = len(shape_of(x))
    order = (*(a for a in range(rank) if a != axis % rank), axis % rank)
    last = transpose(x, order)
    *outer, n = shape_of(last)
    whole = smooth_max_pool(reshape(last, (prod(outer), n)), (n,), beta=1.0)
    return transpose(reshape(whole, (*outer, 1)), tuple(int(a) for a in np.argsort(order)))


class Softmax(AlongAxis):
    """Exponentials, divided by their sum."""

    name: ClassVar[str] = "softmax"

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        return exp_cells(sub(operands[0], log_sum_exp(operands[0], options[0])))

    def row(self, shifted: list[Number]) -> list[Number]:
        terms = [exp(c) for c in shifted]
        return [divide(t, total(terms)) for t in terms]

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        moved = mul(y, tangents[0])
        return sub(moved, mul(y, sum_cells(moved, options[0], keepdims=True)))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return cls.push(options, primals, y, (g,))  # the derivative is symmetric


class LogSoftmax(AlongAxis):
    """The logarithm of softmax."""

    name: ClassVar[str] = "log_softmax"
    logarithm: ClassVar[bool] = True

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        return sub(operands[0], log_sum_exp(operands[0], options[0]))

    def row(self, shifted: list[Number]) -> list[Number]:
        whole = log(total([exp(c) for c in shifted])) if shifted else 0
        return [c - whole for c in shifted]

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return sub(tangents[0], sum_cells(mul(exp_cells(y), tangents[0]), options[0], keepdims=True))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return sub(g, mul(exp_cells(y), sum_cells(g, options[0], keepdims=True)))


def softmax(x: Any, axis: int = -1) -> Any:
    """Exponentials along an axis, divided by their sum.

    >>> import numpy as np, lunette as ln
    >>> ln.softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    return make(Softmax, (x,), axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of softmax."""
    return make(LogSoftmax, (x,), axis)


def batch_norm(x: Any, mean: Any, var: Any, scale: Any, shift: Any, eps: float = 1e-5) -> Any:
    """`(x - mean) / sqrt(var + eps) * scale + shift` per channel, axis 1 of x, with statistics that are given."""
    with error_context("batch_norm"):
        sizes = shape_of(x)
        shapes = {n: shape_of(a) for n, a in {"mean": mean, "var": var, "scale": scale, "shift": shift}.items()}
    for name, given in shapes.items():
        if len(sizes) < 2 or given != sizes[1:2]:
            raise ShapeError(
                "B1",
                "x of shape (batch, channels, ..) and one entry per channel",
                f"x.shape={sizes}, {name}.shape={given}",
                "Channels are axis 1.",
                who="batch_norm",
            )
    with error_context("batch_norm"):
        if check_number("eps", eps) < 0:
            raise ArgumentError("B2", "eps >= 0", f"eps={shown(eps)}", "It keeps the root of a variance from zero.")
    factor = div(scale, sqrt(add(var, eps)))
    offset = sub(shift, mul(mean, factor))
    wide = (sizes[1], *(1,) * (len(sizes) - 2))
    return add(mul(x, reshape(factor, wide)), reshape(offset, wide))
