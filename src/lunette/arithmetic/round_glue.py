"""Matrix products and reductions in rounded arithmetic."""

from __future__ import annotations

from math import prod

import numpy as np

from lunette.arithmetic.exact import exact_total, nearest_dot, nearest_sum
from lunette.arithmetic.rounded import Task, finite, nearest_at, nearest_everywhere, one_by_one, signed, sum_of
from lunette.arithmetic.sums import Outer, Sum
from lunette.number import Array
from lunette.ops.broadcast import Reduction
from lunette.ops.broadcast import Sum as SumOf
from lunette.ops.linear import MatMul
from lunette.ops.reduce import Mean
from lunette.window import Shape

# ---- sums that know their error


@sum_of.register(MatMul)
def _(op: MatMul, task: Task, *arrays: Array | None) -> Sum | None:
    x, y = arrays
    assert x is not None and y is not None
    forward = task.kernels(op).forward
    if forward is None:
        return None

    def size() -> Outer | Array:
        rows = np.sqrt((finite(x) ** 2).sum(axis=-2 if op.turn_x else -1))[..., :, None]
        columns = np.sqrt((finite(y) ** 2).sum(axis=-1 if op.turn_y else -2))[..., None, :]
        return Outer(columns, rows) if rows.ndim == 2 else np.asarray(rows * columns)

    return task.sums.of(forward, (x, y), task.resolved.out, op.sizes(x.shape, y.shape)[2], size)


@sum_of.register(SumOf)
def _(op: SumOf, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    assert x is not None
    return _reduced(op, task, x)


@sum_of.register(Mean)
def _(op: Mean, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    assert x is not None
    s = _reduced(SumOf(op.axis, op.keepdims), task, x)
    return None if s is None else s.over(float(prod(x.shape[a] for a in op.axes())))


def _reduced(op: SumOf, task: Task, x: Array) -> Sum | None:
    forward = task.kernels(op).forward
    if forward is None or not x.size:
        return None
    terms = prod(x.shape[a] for a in op.axes())
    return task.sums.of(
        forward, (x,), task.resolved.out, terms, lambda: abs(finite(x)).sum(axis=op.axes(), keepdims=op.keepdims)
    )


# ---- one cell


# By the specification on floats, partial sums might overflow.
nearest_everywhere.register(MatMul, Reduction)(one_by_one)


@nearest_at.register(MatMul)
def _(op: MatMul, task: Task, at: Shape, *arrays: Array | None) -> float:
    x, y = arrays
    assert x is not None and y is not None
    *batch, i, j = at
    rows, columns = (x.swapaxes(-1, -2) if op.turn_x else x), (y if op.turn_y else y.swapaxes(-1, -2))
    return nearest_dot(rows[(*batch, i)], columns[(*batch, j)], task.dtype)


@nearest_at.register(SumOf)
def _(op: SumOf, task: Task, at: Shape, *arrays: Array | None) -> float:
    return nearest_sum(_row(op, at, *arrays), task.dtype)


@nearest_at.register(Mean)
def _(op: Mean, task: Task, at: Shape, *arrays: Array | None) -> float:
    row = _row(op, at, *arrays)
    if not np.isfinite(row).all():  # infinities and NaN are their own mean
        return nearest_sum(row, task.dtype)
    value = exact_total(row.tolist()) / row.size
    return signed(value, task.dtype, float(row.mean()))


def _row(op: Reduction, at: Shape, *arrays: Array | None) -> Array:
    """The cells that one cell of the result is made of."""
    (x,) = arrays
    assert x is not None
    place = iter(at)
    index = tuple(
        slice(None) if a in op.axes() and (not op.keepdims or next(place) == 0) else next(place) for a in range(x.ndim)
    )
    return x[index].ravel()
