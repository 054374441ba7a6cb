"""Exponentials, logarithms, sigmoids, hyperbolic tangents and softmax by pairs of doubles: rounded, and of boxes.

A box goes end by end, since the first four grow. What pairs do not know (infinities, NaN, exponents beyond 600) the
specification computes, cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from lunette import outward
from lunette.arithmetic.exact import FAR, round_fraction
from lunette.arithmetic.interval import Bounder, Boxes, bounder_of, refuse_nan
from lunette.arithmetic.pairs import DOUBLE, Pairs, Reads, exponential, gathered, logarithm
from lunette.arithmetic.rounded import Task, nearest_at, nearest_everywhere, sum_of, whole
from lunette.arithmetic.sums import Sum, nearest
from lunette.array import Call
from lunette.number import Array, Interval, above, below, each
from lunette.op import ResolvedOp
from lunette.ops.glue import Glue
from lunette.ops.norm import AlongAxis
from lunette.ops.unary import Exp, Log, Sigmoid, Tanh, Unary
from lunette.window import Shape

ONE = Pairs.of(1.0)


def _sigmoid(x: Pairs) -> Pairs:
    return ONE / (ONE + exponential(-x))


def _tanh(x: Pairs) -> Pairs:
    """(1 - e) / (1 + e), e = exp(-2|x|), with the sign of x; next to zero, where that cancels, x - x^3/3 + ... x^9."""
    sign = np.where(x.hi < 0, -1.0, 1.0)
    e = exponential(Pairs(-2 * abs(x.hi), -2 * sign * x.lo, 2 * x.radius))
    y = (ONE - e) / (ONE + e)
    square = x * x
    near = x * (ONE + square * (SERIES[0] + square * (SERIES[1] + square * SERIES[2])))
    small = abs(x.hi) < 2.0**-10
    return Pairs(
        np.where(small, near.hi, sign * y.hi),
        np.where(small, near.lo, sign * y.lo),
        np.where(small, near.radius + abs(x.hi) ** 9, y.radius),
    )


SERIES = [Pairs.of(float(n)) / Pairs.of(float(d)) for n, d in ((-1, 3), (2, 15), (-17, 315))]


Function = Callable[[Pairs], Pairs]
FUNCTIONS: dict[type[Unary], Function] = {
    Exp: exponential,
    Log: logarithm,
    Sigmoid: _sigmoid,
    Tanh: _tanh,
}


# ---- rounded


def _sum(function: Function, op: Unary, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    forward = task.kernels(op).forward
    assert x is not None
    if forward is None:
        return None
    s = Sum.of(function(Pairs.of(x)), np.zeros(()))
    # Of infinities, NaN and zeros the kernel gives what IEEE arithmetic does, exactly.
    special = ~np.isfinite(x) | (x == 0)
    return _with(s, special, _plain(forward, x)) if special.any() else s


for kind, function in FUNCTIONS.items():
    sum_of.register(kind)(partial(_sum, function))


@nearest_at.register(Unary)
def _(op: Unary, task: Task, at: Shape, *arrays: Array | None) -> float:
    (x,) = arrays
    assert x is not None
    return float(_alone(op, task, x[at].reshape(1))[0])


@nearest_everywhere.register(Unary)
def _(op: Unary, task: Task, *arrays: Array | None) -> Array:
    (x,) = arrays
    assert x is not None
    y, usual = np.empty(x.shape, task.dtype), np.isfinite(x) & (x != 0)
    forward = task.kernels(op).forward
    if forward is None:
        usual[...] = True
    else:
        y[~usual] = nearest(_plain(forward, x)[~usual], task.dtype)
    y[usual] = _alone(op, task, x[usual])
    return y


def _alone(op: Glue, task: Task, row: Array) -> Array:
    """A row of cells as a problem of its own, by the specification."""
    return whole(op, replace(task, resolved=replace(task.resolved, op=op, shapes=(row.shape,), out=row.shape)), row)


def _plain(forward: Any, x: Array) -> Array:
    y = np.empty(x.shape)
    forward(np.asarray(x, order="C"), y)
    return y


def _with(s: Sum, where: Array, exact: Array) -> Sum:
    """Sums, and exact floats in some places."""
    assert s.lo is not None
    return Sum(np.where(where, exact, s.hi), np.where(where, 0.0, s.lo), np.where(where, 0.0, s.width))


@sum_of.register(AlongAxis)
def _(op: AlongAxis, task: Task, *arrays: Array | None) -> Sum | None:
    """Exponentials less the greatest of their row. Minus infinity adds nothing; other such cells decide the row."""
    (x,) = arrays
    forward = task.kernels(op).forward
    assert x is not None
    if forward is None or not x.size:
        return None
    absent = np.isneginf(x)
    top = x.max(axis=op.axis, keepdims=True)
    special = np.broadcast_to(~np.isfinite(top), x.shape)  # NaN, or nothing else than infinities
    shifted = Pairs.of(np.where(absent, 0.0, x)) - Pairs.of(np.where(np.isfinite(top), top, 0.0))
    e = exponential(shifted).where(~absent, 0.0)
    s = gathered(e.moveaxis(op.axis, -1), [Reads.of_all(x.shape[op.axis])]).moveaxis(-1, op.axis)
    y = shifted - logarithm(s) if op.logarithm else e / s
    special = special | absent
    found = Sum.of(y, np.zeros(()))
    return _with(found, special, _plain(forward, x)) if special.any() else found


FAR_BELOW = 2000.0  # exponentials of less than minus this, however many, are below every gap between floats


@nearest_at.register(AlongAxis)
def _(op: AlongAxis, task: Task, at: Shape, *arrays: Array | None) -> float:
    (x,) = arrays
    assert x is not None
    row = np.moveaxis(x, op.axis, -1)[(*at[: op.axis], *at[op.axis + 1 :])]
    there = ~np.isneginf(row)
    if op.logarithm and np.isfinite(row[there]).all() and (row[there] < row.max() - FAR_BELOW).sum() == there.sum() - 1:
        # The exact difference to the greatest cell, less a number so small that only its sign matters.
        exact = Fraction(float(row[at[op.axis]])) - Fraction(float(row.max()))
        alone = there.sum() == 1
        return round_fraction(exact if alone else exact - Fraction(2) ** -FAR, task.dtype)
    return float(_alone(replace(op, axis=0), task, row[there])[int(there[: at[op.axis]].sum())])


# ---- boxes


def _bounder(function: Function, op: Unary, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Bounder:
    def end(a: Array, down: bool) -> tuple[Array, Array]:
        y = function(Pairs.of(np.asarray(a, DOUBLE)))
        slack = y.radius * (1 + 2.0**-40) + 2.0**-52 * abs(y.lo)
        return outward.directed_sum(y.hi, y.lo - slack if down else y.lo + slack, down), np.isfinite(y.radius)

    def bounds(call: Call, boxes: Boxes) -> Interval | None:
        (box,) = boxes
        assert box is not None
        with np.errstate(all="ignore"):
            (lo, low_known), (hi, high_known) = end(box.lo, True), end(box.hi, False)
        rest = ~(low_known & high_known)
        if rest.any():
            refuse_nan(boxes)
            cells = each(Interval, box.lo[rest].astype(object), box.hi[rest].astype(object))
            op.check(cells)
            y = each(Interval.of, np.asarray(op.spec(cells), object))
            lo[rest] = each(lambda v: below(v.lo), y).astype(float)
            hi[rest] = each(lambda v: above(v.hi), y).astype(float)
        return outward.rounded(lo, hi, dtype)

    return bounds


for kind, function in FUNCTIONS.items():
    bounder_of.register(kind)(partial(_bounder, function))
