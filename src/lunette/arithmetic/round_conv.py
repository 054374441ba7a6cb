"""Convolutions in rounded arithmetic: products that meet, bounds on the sum of their sizes, one cell, a second look."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lunette.arithmetic.error import gamma
from lunette.arithmetic.exact import nearest_dot, nearest_sum, tree_sums
from lunette.arithmetic.pairs import U
from lunette.arithmetic.rounded import (
    Arrays,
    Task,
    finite,
    nearest_at,
    nearest_pull,
    nearest_push,
    pull_of,
    sum_again,
    sum_of,
)
from lunette.arithmetic.sums import Outer, Sum, decided
from lunette.number import Array
from lunette.op import Kernels
from lunette.ops.conv import Conv
from lunette.ops.conv_transpose import ConvTranspose
from lunette.window import Axis, Geometry, Shape, Transposed

# ---- sums that know their error


@sum_of.register(Conv)
def _(op: Conv, task: Task, *arrays: Array | None) -> Sum | None:
    x, w, b = arrays
    assert x is not None and w is not None
    forward = task.kernels(op).forward
    if forward is None:
        return None
    terms = x.shape[-op.window.d - 1] // op.groups * prod(w.shape[2:])
    s = task.sums.of(
        lambda x, w, y: forward(x, w, None, y), (x, w), task.resolved.out, terms, lambda: _conv_size(op, task, x, w)
    )
    if s is None or b is None:
        return s
    bias = b.reshape(-1, *(1,) * op.window.d)
    whole = s + bias
    if (np.signbit(b) & (b == 0)).any():  # a window without cells is the bias, not +0 and the bias
        none = np.broadcast_to(_empty(op, _tail(x, op)) | (terms == 0), whole.hi.shape)
        return replace(whole, hi=np.where(none, bias, whole.hi))
    return whole


def _empty(op: Conv, space: Shape) -> Array:
    """Where the windows of the output's space have no cell."""
    empty = np.zeros((), bool)
    for t in op.window.tables(space):
        empty = np.logical_or.outer(empty, t.count == 0)
    return np.asarray(empty)


# By Cauchy and Schwarz a sum of |x||w| is at most the root of (the sum of x^2) * (the sum of w^2), each over the cells
# that meet. The sums of squares over windows are convolutions of one channel per group with ones.


def _squares(a: Array, groups: int, d: int) -> Array:
    """The sums of squares over the channels of each group."""
    at = a.ndim - d
    shape = (prod(a.shape[: at - 1]), groups, a.shape[at - 1] // groups, prod(a.shape[at:]))
    split = a.reshape(shape)
    q: Array = np.einsum("ngcs,ngcs->ngs", split, split)
    if not np.isfinite(q).all():
        split = finite(split)
        q = np.einsum("ngcs,ngcs->ngs", split, split)
    return q.reshape(*a.shape[: at - 1], groups, *a.shape[at:])


def _grouped(op: Conv, task: Task, w: Array) -> tuple[Kernels, Array]:
    """The same convolution with one channel per group and weights of one."""
    shapes = task.resolved.shapes
    x = shapes[0]
    assert x is not None
    one = (op.groups, 1, *w.shape[2:])
    return task.kernels(op, ((op.groups, *x[1:]), one, None)), np.ones(one)


def _weight_norms(op: Conv, w: Array, channels: int, of_result: bool) -> Array:
    """The norm of the weights that meet each channel of the result, or of x."""
    first = op.rows_are_inputs != of_result  # the first axis of w counts these channels
    k = prod(w.shape[2:])
    rows = (
        w.reshape(w.shape[0], w.shape[1] * k) if first else w.reshape(op.groups, w.shape[0] // op.groups, w.shape[1], k)
    )
    how = "ij,ij->i" if first else "gijk,gijk->gj"
    q: Array = np.einsum(how, rows, rows)
    if not np.isfinite(q).all():
        rows = finite(rows)
        q = np.einsum(how, rows, rows)
    return np.asarray(np.sqrt(q.reshape(channels, *(1,) * op.window.d)))


def _spread(per_group: Array, channels: int, d: int) -> Array:
    """A value per group, given to all its channels."""
    if per_group.shape[per_group.ndim - d - 1] == 1:
        return per_group
    return np.repeat(per_group, channels // per_group.shape[-d - 1], axis=per_group.ndim - d - 1)


def _conv_size(op: Conv, task: Task, x: Array, w: Array) -> Outer:
    d = op.window.d
    kernels, ones = _grouped(op, task, w)
    assert kernels.forward is not None
    channels = task.resolved.out[len(task.batch)]
    met = np.empty((*task.batch, op.groups, *task.resolved.out[len(task.batch) + 1 :]))
    kernels.forward(_squares(x, op.groups, d), ones, None, met)
    return Outer(_spread(np.sqrt(met), channels, d), _weight_norms(op, w, channels, True))


@pull_of.register(Conv)
def _(op: Conv, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    x, w, b = primals
    assert x is not None and w is not None
    kernels, d, k = task.kernels(op).vjp, op.window.d, prod(w.shape[2:])
    if not kernels:
        return None
    samples, channels = prod(task.batch), g.shape[-d - 1]

    def norms(a: Array) -> Array:
        flat = finite(a).reshape(samples, a.shape[-d - 1], prod(a.shape[a.ndim - d :]))
        return np.asarray(np.sqrt(np.einsum("ncs,ncs->c", flat, flat)))

    if wrt == 0:

        def size() -> Outer:
            small, ones = _grouped(op, task, w)
            of_g = _squares(g, op.groups, d)
            met = np.empty((*task.batch, op.groups, *x.shape[x.ndim - d :]))
            small.vjp[0](met, ones, None, of_g, met)
            ins = x.shape[-d - 1]
            return Outer(_spread(np.sqrt(met), ins, d), _weight_norms(op, w, ins, False))

        return task.sums.of(lambda w, g, y: kernels[0](x, w, b, g, y), (w, g), x.shape, channels // op.groups * k, size)
    if wrt == 1:

        def rows() -> Array:
            of_x, of_g = (n.reshape(op.groups, n.size // op.groups) for n in (norms(x), norms(g)))
            first, second = (of_x, of_g) if op.rows_are_inputs else (of_g, of_x)
            pairs = np.einsum("gi,gj->gij", first, second).reshape(w.shape[:2])
            return np.asarray(pairs.reshape(*w.shape[:2], *(1,) * d))

        terms = samples * min(prod(x.shape[x.ndim - d :]), prod(g.shape[g.ndim - d :]))
        return task.sums.of(lambda x, g, y: kernels[1](x, w, b, g, y), (x, g), w.shape, terms, rows)
    terms = samples * prod(g.shape[g.ndim - d :])
    of_g = finite(g).reshape(samples, channels, prod(g.shape[g.ndim - d :]))
    return task.sums.of(
        lambda g, y: kernels[2](x, w, b, g, y), (g,), (channels,), terms, lambda: abs(of_g).sum(axis=(0, 2))
    )


# ---- a second look at the sums in doubt


@sum_again.register(Conv)
def _(op: Conv, task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    x, w, b = arrays
    assert x is not None and w is not None
    ins, outs = _ends(op, x, w, op.window.d)
    terms = ins * prod(w.shape[2:])
    rest = []
    for first in range(0, doubt.size, step := max(1, 2**20 // max(terms, 1))):
        some = doubt[first : first + step]
        samples, c, *o = np.unravel_index(some, (prod(task.batch), *task.resolved.out[len(task.batch) :]))
        # Flat places of the cells of x, channel by channel and tap by tap.
        at = ((samples * ins * op.groups + c // outs * ins)[:, None] + np.arange(ins)).reshape(len(some), ins)
        there = np.ones((len(some), 1), bool)
        for a, p, n in zip(op.window.axes, o, _tail(x, op), strict=True):
            assert isinstance(a, Axis)
            i = (p * a.stride - a.lo)[:, None] + np.arange(a.kernel) * a.dilation
            at = (at[:, :, None] * n + i[:, None, :]).reshape(len(some), -1)
            inside = (i >= 0) & (i < n)
            there = (there[:, :, None] & inside[:, None, :]).reshape(len(some), -1)
        there = np.tile(there, (1, ins))
        # Absent cells are no terms: -0, which changes no sum. A sum of no terms at all is +0.
        terms_of = np.where(there, x.ravel()[np.where(there, at, 0)] * w.reshape(len(w), -1)[c], -0.0)
        s, size = tree_sums(terms_of), tree_sums(abs(terms_of))
        bias = np.where(there.any(axis=1), -0.0, 0.0) if b is None else b[c]
        slack = gamma(2 * terms.bit_length() + 4, U) * (size + abs(s) + abs(bias))
        found, left = decided(Sum(s + bias, None, slack), task.dtype)
        known = np.isfinite(size)
        known[left] = False
        y.ravel()[some[known]] = found[known]
        rest.append(some[~known])
    return np.concatenate(rest)


@sum_again.register(ConvTranspose)
def _(op: ConvTranspose, task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    return doubt  # which cells meet is no run of cells


# ---- one cell of a convolution: the products that meet there


def _split(task: Task, at: Shape) -> tuple[Shape, int, Shape]:
    """The sample, the channel and the place of a cell."""
    batch = len(task.batch)
    return at[:batch], at[batch], at[batch + 1 :]


def _outputs(axis: Geometry, i: Any, k: Any) -> tuple[Any, Any]:
    """Where kernel cell k sends input cell i, and whether it does; either may be an array."""
    if isinstance(axis, Transposed):
        o = i * axis.stride - axis.lo + k * axis.dilation
        return o, np.ones(np.shape(o), bool)
    assert isinstance(axis, Axis)
    at = i + axis.lo - k * axis.dilation
    return at // axis.stride, at % axis.stride == 0


def _ends(op: Conv, x: Array, w: Array, d: int) -> tuple[int, int]:
    """How many channels of x, and of the result, each group has."""
    return x.shape[-d - 1] // op.groups, op.out_channels(w.shape) // op.groups


def _row(op: Conv, w: Array, group: int, ins: int, outs: int) -> Any:
    """The part (in, out, *kernel) of w that belongs to a group."""
    if op.rows_are_inputs:
        return w[group * ins : (group + 1) * ins]
    return w[group * outs : (group + 1) * outs].swapaxes(0, 1)


def _meeting(op: Conv, x: Array, w: Array, n: Shape, c: int, o: Shape) -> tuple[Array, Array]:
    """The cells of x and of w whose products make one cell of the result."""
    ins, outs = _ends(op, x, w, op.window.d)
    reach = [a.reach(p, m) for a, p, m in zip(op.window.axes, o, _tail(x, op), strict=True)]
    i, k = [_run(r.i, r.i_step, r.count) for r in reach], [_run(r.k, r.k_step, r.count) for r in reach]
    q, kept = divmod(c, outs)
    group = slice(q * ins, (q + 1) * ins)
    in_x: tuple[Any, ...] = (*n, group, *i)
    in_w: tuple[Any, ...] = (group, kept, *k) if op.rows_are_inputs else (c, slice(None), *k)
    return x[in_x], w[in_w]


def _run(first: int, step: int, count: int) -> slice:
    """So many cells, a step apart."""
    stop = first + step * count
    return slice(first, None if stop < 0 else stop, step) if count else slice(0)


@nearest_at.register(Conv)
def _(op: Conv, task: Task, at: Shape, *arrays: Array | None) -> float:
    x, w, b = arrays
    assert x is not None and w is not None
    n, c, o = _split(task, at)
    return nearest_dot(*_meeting(op, x, w, n, c, o), task.dtype, *([] if b is None else [float(b[c])]))


def _tail(x: Array, op: Conv) -> Shape:
    return x.shape[x.ndim - op.window.d :]


@nearest_push.register(Conv)
def _(op: Conv, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    (x, w, _), (tx, tw, tb) = primals, tangents
    assert x is not None and w is not None
    xs = [a for a in (tx, None if tw is None else x) if a is not None]
    ws = [v for v in (None if tx is None else w, tw) if v is not None]
    if not xs:
        c = at[len(task.batch)]
        return 0.0 if tb is None else float(tb[c])
    n, c, o = _split(task, at)
    parts = [_meeting(op, a, v, n, c, o) for a, v in zip(xs, ws, strict=True)]
    left, right = (np.concatenate([p[s].ravel() for p in parts]) for s in (0, 1))
    return nearest_dot(left, right, task.dtype, *([] if tb is None else [float(tb[c])]))


@nearest_pull.register(Conv)
def _(op: Conv, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    x, w, _ = primals
    assert x is not None and w is not None
    d = op.window.d
    ins, outs = _ends(op, x, w, d)
    out, many = g.shape[g.ndim - d :], prod(task.batch)
    if wrt == 2:
        rows = g.reshape(many, g.shape[-d - 1], prod(out))
        return nearest_sum(rows[:, at[0]].ravel(), task.dtype)
    if wrt == 0:
        n, j, i = _split(task, at)
        q, kept = divmod(j, ins)
        ks, os = [], []
        for axis, p, m in zip(op.window.axes, i, out, strict=True):
            assert isinstance(axis, Axis | Transposed)
            k = np.arange(axis.kernel)
            o, there = _outputs(axis, p, k)
            there &= (o >= 0) & (o < m)
            ks.append(k[there])
            os.append(o[there])
        cells_g = g[n][q * outs : (q + 1) * outs][np.ix_(range(outs), *os)]
        cells_w = _row(op, w, q, ins, outs)[kept][np.ix_(range(outs), *ks)]
        return nearest_dot(cells_g, cells_w, task.dtype)
    first, second, *taps = at
    if op.rows_are_inputs:
        j, c = first, first // ins * outs + second
    else:
        c, j = first, first // outs * ins + second
    read, os = [], []
    for axis, p, size, m in zip(op.window.axes, taps, _tail(x, op), out, strict=True):
        cells = np.arange(size)
        o, there = _outputs(axis, cells, p)
        there &= (o >= 0) & (o < m)
        read.append(cells[there])
        os.append(o[there])
    flat_x, flat_g = x.reshape(many, *x.shape[x.ndim - d - 1 :]), g.reshape(many, *g.shape[g.ndim - d - 1 :])
    samples = range(many)
    return nearest_dot(flat_x[:, j][np.ix_(samples, *read)], flat_g[:, c][np.ix_(samples, *os)], task.dtype)
