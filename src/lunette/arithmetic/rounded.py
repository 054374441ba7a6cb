"""`arithmetic="rounded"`: every output is the float nearest to the exact result, ties to even.

Decide or fall back: `sum_of` says how an operator's results follow from sums that know their error, and `decided`
rounds those that can have only one nearest float. The others, and every cell of an operator without a short way, are
computed one by one: `nearest_at`. Nothing of this depends on threads, batches, layouts or instruction sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, singledispatch
from itertools import product
from math import prod
from typing import Any

import flint
import ml_dtypes
import numpy as np

from lunette import _native
from lunette.arithmetic.error import gamma, height
from lunette.arithmetic.exact import (
    PRECISIONS,
    Proof,
    cells_as,
    decided_ball,
    exact_total,
    nearest_dot,
    nearest_of_balls,
    nearest_sum,
    precision,
    round_fraction,
    tame,
    tree_sums,
    undecided,
    unproved,
)
from lunette.arithmetic.sums import DOUBLE, Outer, Range, Sum, Sums, U, decided, nearest, settle
from lunette.array import Call, by_specification, cells, computing, prepare, run
from lunette.number import OBJECT, Array, cells_in, total
from lunette.op import Bound, Kernels, Op, Request, Shapes
from lunette.ops import (
    Abs,
    Add,
    Concat,
    Div,
    Equal,
    Gate,
    LeakyRelu,
    Max,
    Maximum,
    Minimum,
    Mul,
    Neg,
    OneHot,
    Prefer,
    Relu,
    Sign,
    Sqrt,
    StopGradient,
    Sub,
)
from lunette.ops.avg_pool import AvgPool
from lunette.ops.conv import Conv
from lunette.ops.conv_transpose import ConvTranspose
from lunette.ops.derivative import Jvp, Vjp, put
from lunette.ops.glue import Glue, Layout
from lunette.ops.linear import MatMul
from lunette.ops.lp_pool import LpPool
from lunette.ops.max_pool import MaxPool
from lunette.ops.pool import Pool
from lunette.ops.reduce import Mean, Reduction
from lunette.ops.reduce import Sum as SumOf
from lunette.ops.smooth_max_pool import SmoothMaxPool
from lunette.window import Axis, Geometry, Shape, Transposed, Window, axis_table

Arrays = Sequence[Array | None]


@dataclass(frozen=True, slots=True)
class Task:
    """One operator in rounded arithmetic: where it is bound, and the dtype of the result. Arrays are float64."""

    bound: Bound
    dtype: np.dtype[Any]
    ranges: Mapping[int, Range] = field(default_factory=dict)
    """What is known of arrays, by their id."""

    @property
    def sums(self) -> Sums:
        """Products of narrower floats are exact in float64."""
        return _sums(self.dtype)

    def greatest(self, a: Array) -> Array | float:
        """The greatest finite |cell|, of each plane where that is known."""
        known = self.ranges.get(id(a))
        return known.greatest if known is not None else float(abs(finite(a)).max(initial=0))

    @property
    def batch(self) -> Shape:
        return self.bound.batch

    def kernels(self, op: Op, shapes: Shapes | None = None) -> Kernels:
        """The float64 kernels of an operator on samples of these shapes."""
        return _kernels(op, prod(self.batch), tuple(self.bound.shapes if shapes is None else shapes))

    def inner(self, op: Op, own: int) -> Task:
        """The task of the operator that this one is a derivative of."""
        shapes = self.bound.shapes[:own]
        bound = replace(self.bound, op=op, shapes=shapes, out=(*self.batch, *op.shape(*shapes)))
        return Task(bound, self.dtype, self.ranges)


@lru_cache
def _sums(dtype: np.dtype[Any]) -> Sums:
    info = ml_dtypes.finfo(dtype)
    return Sums(dtype != DOUBLE, int(info.nmant) + 1, float(info.smallest_subnormal))


@lru_cache(maxsize=1024)
def _kernels(op: Op, batch: int, shapes: tuple[Shape | None, ...]) -> Kernels:
    return op.kernels(DOUBLE, batch, shapes)


def rounded(kind: type[Op], operands: Sequence[Any], options: tuple[Any, ...]) -> Any:
    """An operator on arrays."""
    call = prepare(Request(kind, tuple(operands), "rounded", options))
    if call.dtype == OBJECT or getattr(call.bound.op, "return_indices", False) or _is_exact(call.bound.op):
        return run(kind, operands, "fast", options)
    with computing(kind, call.bound.d, *call.arrays):
        return call.result(round_call(call))


def round_call(call: Call) -> Array:
    """The nearest floats of a call's result."""
    bound, dtype = call.bound, call.dtype
    if 0 in bound.out:
        return np.empty(bound.out, dtype)
    if _is_planar(bound.op) and dtype != DOUBLE:
        return _by_planes(bound, dtype, call.arrays)
    integers = bound.op.integers
    arrays = [a if a is None or p in integers else np.asarray(a, DOUBLE, order="C") for p, a in enumerate(call.arrays)]
    return _round(Task(bound, dtype), arrays)


def _round(task: Task, arrays: Arrays) -> Array:
    op, out = task.bound.op, task.bound.out
    s = sum_of(op, task, *arrays)
    if s is None:
        COUNTS.update({"outputs": prod(out), "undecided": prod(out)})
        return nearest_everywhere(op, task, *arrays)
    y, doubt = decided(s, task.dtype)
    y = y.reshape(out)
    if doubt.size and s.quotient is not None:
        doubt = settle(s, y, doubt)
    if doubt.size and task.sums.coarse:
        doubt = look_again(op, task, y, doubt, *arrays)
    COUNTS.update({"outputs": y.size, "undecided": doubt.size})
    for place in doubt.tolist():
        at = tuple(int(p) for p in np.unravel_index(place, out)) if out else ()
        y[at] = nearest_at(op, task, at, *arrays)
    return y


# ---- planes: a few at a time, so that their float64 copies stay in a cache


def _is_planar(op: Op) -> bool:
    """Whether each plane of the result depends on one plane of each array."""
    return isinstance(op, Pool) or (
        isinstance(op, Jvp | Vjp) and isinstance(op.op, Pool) and getattr(op, "wrt", 0) == 0
    )


CELLS = 1 << 15


def _by_planes(bound: Bound, dtype: np.dtype[Any], arrays: Arrays) -> Array:
    op, lead = bound.op, len(bound.batch) + 1
    planar = op.batched
    planes = prod(arrays[0].shape[:lead])  # type: ignore[union-attr]
    flat = [a.reshape(planes, 1, *a.shape[lead:]) if a is not None and p in planar else a for p, a in enumerate(arrays)]
    shapes = tuple((1, *s[1:]) if s is not None and p in planar else s for p, s in enumerate(bound.shapes))
    most = max(prod(s) for p, s in enumerate(shapes) if s is not None and p in planar)
    step = max(1, min(planes, CELLS // max(most, 1)))
    out = op.shape(*shapes)
    y = np.empty((planes, *out), dtype)
    for first in range(0, planes, step):
        count = min(step, planes - first)
        part = [a[first : first + count] if a is not None and p in planar else a for p, a in enumerate(flat)]
        ranges: dict[int, Range] = {}
        wide = [None if a is None else _widened(a, ranges) for a in part]
        task = Task(replace(bound, batch=(count,), shapes=shapes, out=(count, *out)), dtype, ranges)
        y[first : first + count] = _round(task, wide)
    return y.reshape(bound.out)


def _widened(a: Array, ranges: dict[int, Range]) -> Array:
    """A float64 copy, whose range is noted."""
    if a.ndim < 2:
        return np.asarray(a, DOUBLE)
    rows, ones = a.shape[0], (a.shape[0], *(1,) * (a.ndim - 1))
    if a.dtype == np.float32 and a.flags.c_contiguous and a.flags.aligned:
        wide, least, greatest = np.empty(a.shape), np.empty(rows), np.empty(rows)
        _widener(rows, prod(a.shape[1:]))(a, wide, least, greatest)
    else:
        wide = np.ascontiguousarray(a, DOUBLE)
        sizes = abs(finite(wide)).reshape(rows, prod(a.shape[1:]))
        greatest = sizes.max(axis=1, initial=0)
        least = np.where(sizes > 0, sizes, np.inf).min(axis=1, initial=np.inf)
        least = np.where(np.isfinite(least), least, 0.0)
    ranges[id(wide)] = Range(least.reshape(ones), greatest.reshape(ones))
    return wide


@lru_cache(maxsize=256)
def _widener(rows: int, cells: int) -> Any:
    return _native.widen(rows, cells)


COUNTS: Counter[str] = Counter()
"""How many outputs there were, and how many of them needed their exact value, since this was cleared."""

EXACT: tuple[type[Op], ...] = (
    *(Add, Sub, Mul, Div, Maximum, Minimum, Gate, Equal, Prefer),
    *(Neg, Relu, LeakyRelu, Sqrt, Abs, Sign, StopGradient),
    *(Layout, Concat, OneHot, Max, MaxPool),
)
"""Operators that select, move or round once: their kernels give the nearest float already."""


def _is_exact(op: Op) -> bool:
    selected = isinstance(op, Jvp) and isinstance(op.op, MaxPool) and op.op.ties == "first"
    return isinstance(op, EXACT) or selected or (isinstance(op, LpPool) and op.p == math.inf)


# ---- sums that know their error


@singledispatch
def sum_of(op: Op, task: Task, *arrays: Array | None) -> Sum | None:
    """The results of an operator as sums; None if there is no short way."""
    return None


def finite(a: Array) -> Array:
    """Zeros in the place of infinities and NaN, which decide results by themselves."""
    return a if np.isfinite(a).all() else np.where(np.isfinite(a), a, 0.0)


@sum_of.register(Conv)
def _(op: Conv, task: Task, *arrays: Array | None) -> Sum | None:
    x, w, b = arrays
    assert x is not None and w is not None
    forward = task.kernels(op).forward
    if forward is None:
        return None
    terms = x.shape[-op.window.d - 1] // op.groups * prod(w.shape[2:])
    s = task.sums.of(
        lambda x, w, y: forward(x, w, None, y), (x, w), task.bound.out, terms, lambda: _conv_size(op, task, x, w)
    )
    return s if s is None or b is None else s + b.reshape(-1, *(1,) * op.window.d)


# By Cauchy and Schwarz a sum of |x||w| is at most the root of (the sum of x^2) * (the sum of w^2), each over the cells
# that meet. The sums of squares over windows are convolutions of one channel per group with ones.


def _squares(a: Array, groups: int, d: int) -> Array:
    """The sums of squares over the channels of each group."""
    at = a.ndim - d
    shape = (prod(a.shape[: at - 1]), groups, a.shape[at - 1] // groups, prod(a.shape[at:]))
    split = a.reshape(shape)
    q = np.einsum("ngcs,ngcs->ngs", split, split)
    if not np.isfinite(q).all():
        split = finite(split)
        q = np.einsum("ngcs,ngcs->ngs", split, split)
    return q.reshape(*a.shape[: at - 1], groups, *a.shape[at:])


def _grouped(op: Conv, task: Task, w: Array) -> tuple[Kernels, Array]:
    """The same convolution with one channel per group and weights of one."""
    shapes = task.bound.shapes
    x = shapes[0]
    assert x is not None
    one = (op.groups, 1, *w.shape[2:])
    return task.kernels(op, ((op.groups, *x[1:]), one, None)), np.ones(one)


def _weight_norms(op: Conv, w: Array, channels: int, of_result: bool) -> Array:
    """The norm of the weights that meet each channel of the result, or of x."""
    first = isinstance(op, ConvTranspose) != of_result  # the first axis of w counts these channels
    k = prod(w.shape[2:])
    rows = (
        w.reshape(w.shape[0], w.shape[1] * k) if first else w.reshape(op.groups, w.shape[0] // op.groups, w.shape[1], k)
    )
    how = "ij,ij->i" if first else "gijk,gijk->gj"
    q = np.einsum(how, rows, rows)
    if not np.isfinite(q).all():
        rows = finite(rows)
        q = np.einsum(how, rows, rows)
    return np.sqrt(q.reshape(channels, *(1,) * op.window.d))


def _spread(per_group: Array, channels: int, d: int) -> Array:
    """A value per group, given to all its channels."""
    if per_group.shape[per_group.ndim - d - 1] == 1:
        return per_group
    return np.repeat(per_group, channels // per_group.shape[-d - 1], axis=per_group.ndim - d - 1)


def _conv_size(op: Conv, task: Task, x: Array, w: Array) -> Outer:
    d = op.window.d
    kernels, ones = _grouped(op, task, w)
    assert kernels.forward is not None
    channels = task.bound.out[len(task.batch)]
    met = np.empty((*task.batch, op.groups, *task.bound.out[len(task.batch) + 1 :]))
    kernels.forward(_squares(x, op.groups, d), ones, None, met)
    return Outer(_spread(np.sqrt(met), channels, d), _weight_norms(op, w, channels, True))


@sum_of.register(Jvp)
def _(op: Jvp, task: Task, *arrays: Array | None) -> Sum | None:
    base, n = op.op, op.count()
    primals, tangents = arrays[:n], arrays[n:]
    inner = task.inner(base, n)
    if not base.linear_in:
        return push_of(base, inner, primals, tangents)
    alone = tuple(None if j in base.affine_in else p for j, p in enumerate(primals))
    moving = [j for j in base.linear_in if tangents[j] is not None]
    parts = [sum_of(base, inner, *put(alone, j, tangents[j])) for j in moving]
    whole = parts[0] if parts else Sum(np.zeros(task.bound.out), None if task.sums.coarse else np.zeros(()), 0.0)
    for more in parts[1:]:
        whole = None if whole is None or more is None else whole.plus(more)
    for j in base.affine_in:
        t = tangents[j]
        if whole is not None and t is not None:
            whole = whole + t.reshape(-1, *(1,) * (len(task.bound.out) - len(task.batch) - 1))
    return whole


@sum_of.register(Vjp)
def _(op: Vjp, task: Task, *arrays: Array | None) -> Sum | None:
    *primals, g = arrays
    assert g is not None
    return pull_of(op.op, task.inner(op.op, op.count()), primals, g, op.wrt)


@singledispatch
def push_of(op: Op, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    """The results of a JVP as sums."""
    return None


@singledispatch
def pull_of(op: Op, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    """The results of a VJP as sums."""
    return None


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
        return np.sqrt(np.einsum("ncs,ncs->c", flat, flat))

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
            first, second = type(op).ends(op, of_g, of_x)  # type: ignore[arg-type]
            pairs = np.einsum("gi,gj->gij", first, second).reshape(w.shape[:2])
            return np.asarray(pairs.reshape(*w.shape[:2], *(1,) * d))

        terms = samples * min(prod(x.shape[x.ndim - d :]), prod(g.shape[g.ndim - d :]))
        return task.sums.of(lambda x, g, y: kernels[1](x, w, b, g, y), (x, g), w.shape, terms, rows)
    terms = samples * prod(g.shape[g.ndim - d :])
    of_g = finite(g).reshape(samples, channels, prod(g.shape[g.ndim - d :]))
    return task.sums.of(
        lambda g, y: kernels[2](x, w, b, g, y), (g,), (channels,), terms, lambda: abs(of_g).sum(axis=(0, 2))
    )


# ---- averages


@lru_cache(maxsize=256)
def _counts(window: Window, space: Shape, counted: bool) -> Array:
    """How many cells each window has, padding counted or not, over the output's space."""
    counts = np.ones(())
    for t in window.tables(space):
        counts = np.multiply.outer(counts, (t.inside if counted else t.count).astype(float))
    return np.asarray(counts)


def _divisors(op: AvgPool, space: Shape) -> Array | float:
    if op.divisor is not None:
        return float(op.divisor)
    return _counts(op.window, space, op.count_include_pad)


def _readers(op: Pool, space: Shape) -> int:
    """No cell is read by more windows than this."""
    return prod(_most_readers(a, n) for a, n in zip(op.window.axes, space, strict=True))


@lru_cache(maxsize=1024)
def _most_readers(axis: Geometry, n: int) -> int:
    t = axis_table(axis, n)
    if t.count.sum() > 10**6:
        return t.m
    within = np.arange(t.count.sum()) - np.repeat(np.cumsum(t.count) - t.count, t.count)
    return int(np.bincount(np.repeat(t.first, t.count) + within * t.step, minlength=1).max(initial=1))


def _space(op: Pool, x: Array) -> Shape:
    return x.shape[x.ndim - op.window.d :]


def _windows(op: Pool, task: Task, x: Array) -> Shape:
    """The shape of the result with its spatial axes, which a global pool may drop."""
    return (*x.shape[: x.ndim - op.window.d], *op.window.out(_space(op, x)))


def _plain(op: AvgPool) -> AvgPool:
    """The sum of each window."""
    return replace(op, divisor=1.0)


@sum_of.register(AvgPool)
def _(op: AvgPool, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    assert x is not None
    forward = task.kernels(_plain(op)).forward
    if forward is None:
        return None
    space = _space(op, x)
    most = int(_counts(op.window, space, False).max())
    known = task.ranges.get(id(x))
    s = task.sums.of(forward, (x,), _windows(op, task, x), most, lambda: most * task.greatest(x), known)
    return None if s is None else s.over(_divisors(op, space))


@pull_of.register(AvgPool)
def _(op: AvgPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    space = _space(op, x)
    g = g.reshape(_windows(op, task, x))
    return _pulled(task, task.kernels(_plain(op)).vjp, x, g, _divisors(op, space), _readers(op, space))


def _pulled(
    task: Task, vjp: Sequence[Callable[..., None]], x: Array, g: Array, divisors: Array | float, readers: int
) -> Sum | None:
    """The sum over windows of g / divisor, where a kernel sends g itself to the cells."""
    if not vjp:
        return None

    def pull(g: Array, known: Range | None = None) -> Sum | None:
        size = lambda: readers * (task.greatest(g) if known is None else known.greatest)  # noqa: E731
        return task.sums.of(lambda g, y: vjp[0](x, g, y), (g,), x.shape, readers, size, known)

    if isinstance(divisors, float) and abs(math.frexp(divisors)[0]) == 0.5:  # a power of two divides exactly
        s = pull(g, task.ranges.get(id(g)))
        return None if s is None else s.over(divisors)
    share = Sum(g, None if task.sums.coarse else np.zeros(()), 0.0).over(divisors)
    whole = pull(share.hi)
    if whole is None or share.lo is None:
        # The coarse shares were rounded once more than the kernel knows.
        if whole is None:
            return None
        return replace(whole, radius=whole.width + 2.0**-52 * readers * task.greatest(share.hi))
    low = pull(np.broadcast_to(share.lo, g.shape).copy())
    if low is None:
        return None
    both = whole.plus(low)
    return replace(both, radius=both.width + readers * np.max(share.width))


@push_of.register(MaxPool)
def _(op: MaxPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x,), (t,) = primals, tangents
    assert x is not None and t is not None
    jvp = task.kernels(replace(op, ties="all")).jvp
    if jvp is None:
        return None
    space = _space(op, x)
    most = int(_counts(op.window, space, False).max())
    known = task.ranges.get(id(t))
    windows = _windows(op, task, x)
    s = task.sums.of(lambda t, y: jvp(x, t, y), (t,), windows, most, lambda: most * task.greatest(t), known)
    return s if s is None or op.ties == "all" else s.over(_winners(op, task, x))


def _winners(op: MaxPool, task: Task, x: Array) -> Array:
    """How many cells of each window win."""
    jvp = task.kernels(replace(op, ties="all")).jvp
    assert jvp is not None
    count = np.empty(_windows(op, task, x))
    jvp(x, np.ones(x.shape), count)
    return count


@pull_of.register(MaxPool)
def _(op: MaxPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    g = g.reshape(_windows(op, task, x))
    chosen = replace(op, ties="all") if op.ties == "split" else op
    divisors = _winners(op, task, x) if op.ties == "split" else 1.0
    return _pulled(task, task.kernels(chosen).vjp, x, g, divisors, _readers(op, _space(op, x)))


# ---- sums between the window operators


@sum_of.register(MatMul)
def _(op: MatMul, task: Task, *arrays: Array | None) -> Sum | None:
    x, y = arrays
    assert x is not None and y is not None
    forward = task.kernels(op).forward
    if forward is None:
        return None

    def size() -> Outer:
        rows = np.sqrt((finite(x) ** 2).sum(axis=-2 if op.turn_x else -1))
        columns = np.sqrt((finite(y) ** 2).sum(axis=-1 if op.turn_y else -2))
        return Outer(rows[..., :, None], columns[..., None, :])

    return task.sums.of(forward, (x, y), task.bound.out, op.sizes(x.shape, y.shape)[2], size)


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
        forward, (x,), task.bound.out, terms, lambda: abs(finite(x)).sum(axis=op.axes(), keepdims=op.keepdims)
    )


# ---- one cell


def nearest_everywhere(op: Op, task: Task, *arrays: Array | None) -> Array:
    """Every cell, by its own exact value."""
    y = np.empty(task.bound.out, task.dtype)
    if isinstance(op, Glue):
        return _whole(op, task, *arrays)
    for at in cells_in(task.bound.out):
        y[at] = nearest_at(op, task, at, *arrays)
    return y


@singledispatch
def nearest_at(op: Op, task: Task, at: Shape, *arrays: Array | None) -> float:
    """The float nearest to one cell of the result."""
    return float(_whole(op, task, *arrays)[at])


def _whole(op: Op, task: Task, *arrays: Array | None) -> Array:
    """The whole result by the specification: on rationals, or on balls until every cell is decided."""
    plain = [a if a is None or p in op.integers else tame(a) for p, a in enumerate(arrays)]
    strange = any(a is not None and a.dtype == DOUBLE and not np.isfinite(a).all() for a in arrays)
    y = np.empty(task.bound.out, task.dtype)
    floats = by_specification(task.bound, [cells(a) for a in plain])
    todo = np.ones(y.shape, bool)
    if strange:  # cells that infinities or NaN decide; the others are computed with zeros in their place
        values = floats.astype(float)
        todo = np.isfinite(values)
        y[~todo] = nearest(values, task.dtype)[~todo]
    number: Callable[[float], Any] = flint.arb if op.needs == "exp" else Fraction
    exact = [a if a is None or p in op.integers else cells_as(finite(a), number) for p, a in enumerate(arrays)]
    if op.needs != "exp":
        values = by_specification(task.bound, exact)
        for at in map(tuple, np.argwhere(todo).tolist()):
            y[at] = _signed(round_fraction(Fraction(values[at]), task.dtype), floats[at])
        return y
    for bits in PRECISIONS:
        with precision(bits):
            values = by_specification(task.bound, exact)
            for at in map(tuple, np.argwhere(todo).tolist()):
                v = decided_ball(values[at], task.dtype)
                if v is not None:
                    y[at], todo[at] = _signed(v, floats[at]), False
        if not todo.any():
            return y
    raise undecided(op.name)


def _signed(y: float, plain: Any) -> float:
    """Zero with the sign that IEEE arithmetic gives it."""
    return math.copysign(y, plain) if y == 0 and plain == 0 else y


# ---- one cell of a convolution: the products that meet there


def _split(task: Task, at: Shape) -> tuple[Shape, int, Shape]:
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
    return x.shape[-d - 1] // op.groups, (op.out_channels(w.shape)) // op.groups


def _row(op: Conv, w: Array, group: int, ins: int, outs: int) -> Any:
    """The part (in, out, *kernel) of w that belongs to a group."""
    if isinstance(op, ConvTranspose):
        return w[group * ins : (group + 1) * ins]
    return w[group * outs : (group + 1) * outs].swapaxes(0, 1)


def _meeting(op: Conv, x: Array, w: Array, n: Shape, c: int, o: Shape) -> tuple[Array, Array]:
    """The cells of x and of w whose products make one cell of the result."""
    ins, outs = _ends(op, x, w, op.window.d)
    reach = [a.reach(p, m) for a, p, m in zip(op.window.axes, o, _tail(x, op), strict=True)]
    i, k = [_run(r.i, r.i_step, r.count) for r in reach], [_run(r.k, r.k_step, r.count) for r in reach]
    q, kept = divmod(c, outs)
    cells_x = x[(*n, slice(q * ins, (q + 1) * ins), *i)]
    if isinstance(op, ConvTranspose):
        return cells_x, w[(slice(q * ins, (q + 1) * ins), kept, *k)]
    return cells_x, w[(c, slice(None), *k)]


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


@nearest_at.register(Jvp)
def _(op: Jvp, task: Task, at: Shape, *arrays: Array | None) -> float:
    n = op.count()
    return nearest_push(op.op, task.inner(op.op, n), at, arrays[:n], arrays[n:])


@nearest_at.register(Vjp)
def _(op: Vjp, task: Task, at: Shape, *arrays: Array | None) -> float:
    *primals, g = arrays
    assert g is not None
    return nearest_pull(op.op, task.inner(op.op, op.count()), at, primals, g, op.wrt)


@singledispatch
def nearest_push(op: Op, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    """One cell of a JVP."""
    raise NotImplementedError


@singledispatch
def nearest_pull(op: Op, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    """One cell of a VJP."""
    raise NotImplementedError


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
    out = g.shape[g.ndim - d :]
    if wrt == 2:
        rows = g.reshape(-1, g.shape[-d - 1], prod(out))
        return nearest_sum(rows[:, at[0]].ravel(), task.dtype)
    if wrt == 0:
        n, j, i = _split(task, at)
        q, kept = divmod(j, ins)
        ks, os = [], []
        for a, p, m in zip(op.window.axes, i, out, strict=True):
            k = np.arange(a.kernel)  # type: ignore[attr-defined]
            o, there = _outputs(a, p, k)
            there &= (o >= 0) & (o < m)
            ks.append(k[there])
            os.append(o[there])
        cells_g = g[n][q * outs : (q + 1) * outs][np.ix_(range(outs), *os)]
        cells_w = _row(op, w, q, ins, outs)[kept][np.ix_(range(outs), *ks)]
        return nearest_dot(cells_g, cells_w, task.dtype)
    a, b, *k = at
    if isinstance(op, ConvTranspose):
        j, c = a, a // ins * outs + b
    else:
        c, j = a, a // outs * ins + b
    is_, os = [], []
    for axis, p, size, m in zip(op.window.axes, k, _tail(x, op), out, strict=True):
        i = np.arange(size)
        o, there = _outputs(axis, i, p)
        there &= (o >= 0) & (o < m)
        is_.append(i[there])
        os.append(o[there])
    flat_x, flat_g = x.reshape(-1, *x.shape[x.ndim - d - 1 :]), g.reshape(-1, *g.shape[g.ndim - d - 1 :])
    samples = range(len(flat_x))
    return nearest_dot(flat_x[:, j][np.ix_(samples, *is_)], flat_g[:, c][np.ix_(samples, *os)], task.dtype)


@singledispatch
def look_again(op: Op, task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    """Fill in what a second, better sum decides of the flat places in doubt; the rest of them."""
    return doubt


@look_again.register(Conv)
def _(op: Conv, task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    x, w, b = arrays
    assert x is not None and w is not None
    if isinstance(op, ConvTranspose):
        return doubt
    ins, outs = _ends(op, x, w, op.window.d)
    terms = ins * prod(w.shape[2:])
    rest = []
    for first in range(0, doubt.size, step := max(1, 2**20 // max(terms, 1))):
        some = doubt[first : first + step]
        samples, c, *o = np.unravel_index(some, (prod(task.batch), *task.bound.out[len(task.batch) :]))
        # Flat places of the cells of x, channel by channel and tap by tap; absent ones are read as zeros.
        at = ((samples * ins * op.groups + c // outs * ins)[:, None] + np.arange(ins)).reshape(len(some), ins)
        there = np.ones((len(some), 1), bool)
        for a, p, n in zip(op.window.axes, o, _tail(x, op), strict=True):
            assert isinstance(a, Axis)
            i = (p * a.stride - a.lo)[:, None] + np.arange(a.kernel) * a.dilation
            at = (at[:, :, None] * n + i[:, None, :]).reshape(len(some), -1)
            inside = (i >= 0) & (i < n)
            there = (there[:, :, None] & inside[:, None, :]).reshape(len(some), -1)
        there = np.tile(there, (1, ins))
        cells_x = np.where(there, x.ravel()[np.where(there, at, 0)], 0.0)
        terms_of = cells_x * w.reshape(len(w), -1)[c]
        s, size = tree_sums(terms_of), tree_sums(abs(terms_of))
        bias = 0.0 if b is None else b[c]
        slack = gamma(2 * terms.bit_length() + 4, U) * (size + abs(s) + abs(bias))
        found, left = decided(Sum(s + bias, None, slack), task.dtype)
        known = np.isfinite(size)  # an absent cell is no zero where it meets an infinite weight
        known[left] = False
        y.ravel()[some[known]] = found[known]
        rest.append(some[~known])
    return np.concatenate(rest)


# ---- one cell of a pool: its window, or the windows that read it


@dataclass(frozen=True, slots=True)
class View:
    """One window as a problem of its own: the same operator on the cells of that window alone."""

    op: Any
    index: tuple[Any, ...]
    """Where its cells are in a plane."""


def _view(op: Pool, o: Shape, space: Shape) -> View:
    axes, index = [], []
    for a, p, n in zip(op.window.axes, o, space, strict=True):
        r, inside = a.reach(p, n), a.inside(p, n)
        axes.append(Axis(max(inside, 1), lo=max(inside, 1) - r.count))  # so many cells, and so much padding
        index.append(r.i + r.i_step * np.arange(r.count))
    return View(replace(op, window=Window(tuple(axes))), np.ix_(*index))


def _plane(task: Task, op: Pool, at: Shape) -> tuple[tuple[Any, ...], Shape]:
    """The plane of a cell, and its place there; a global pool may have dropped the place."""
    front = len(task.batch) + 1
    return at[:front], at[front:] or (0,) * op.window.d


def _cut(a: Array, plane: Any, view: View) -> Array:
    return np.asarray(a[plane][view.index] if view.index else a[plane])[None]


def _is_rational(op: Op) -> bool:
    return op.needs != "exp" or (isinstance(op, LpPool) and op.p in (1, math.inf))


Value = Callable[..., Any]
Exactly = Callable[[], Fraction | None]


def _nearest_value(
    op: Pool, dtype: np.dtype[Any], arrays: Sequence[Array], value: Value, exactly: Exactly, is_value: Proof
) -> float:
    """A value that is a function of some arrays, by floats where infinities decide it, by rationals, or by balls."""
    plain = float(value(*(tame(a).astype(object) for a in arrays)))
    if not math.isfinite(plain):
        return plain
    if _is_rational(op):
        return _signed(round_fraction(Fraction(value(*(cells_as(finite(a), Fraction) for a in arrays))), dtype), plain)
    rational = exactly() if all(np.isfinite(a).all() for a in arrays) else None
    if rational is not None:
        return _signed(round_fraction(rational, dtype), plain)
    balls = [cells_as(a, flint.arb) for a in arrays]
    return nearest_of_balls(lambda: value(*balls), dtype, is_value, op.name)


def _only(y: Any) -> Any:
    (v,) = np.asarray(y, object).ravel()
    return v


@nearest_at.register(Pool)
def _(op: Pool, task: Task, at: Shape, *arrays: Array | None) -> float:
    x, *more = arrays
    assert x is not None
    plane, o = _plane(task, op, at)
    view = _view(op, o, _space(op, x))
    cut = _cut(x, plane, view)
    given = [cut, *(a for a in more if a is not None)]
    window = Proofs.of(op, view, cut, more)
    return _nearest_value(op, task.dtype, given, lambda *a: _only(view.op.spec(*a)), window.value, window.is_value)


@nearest_at.register(AvgPool)
def _(op: AvgPool, task: Task, at: Shape, *arrays: Array | None) -> float:
    (x,) = arrays
    assert x is not None
    plane, o = _plane(task, op, at)
    row = _cut(x, plane, _view(op, o, _space(op, x))).ravel()
    with np.errstate(all="ignore"):
        plain = float(tame(row).sum())
    if not math.isfinite(plain):
        return plain if not math.isinf(plain) else math.copysign(plain, plain * float(op.divisor or 1))
    divisors = np.broadcast_to(_divisors(op, _space(op, x)), op.window.out(_space(op, x)))
    value = exact_total(row.tolist()) / Fraction(float(divisors[o]))
    return _signed(round_fraction(value, task.dtype), plain / float(divisors[o]))


@nearest_push.register(Pool)
def _(op: Pool, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    (x, *more), (t, *slopes) = primals, tangents
    assert x is not None
    plane, o = _plane(task, op, at)
    view = _view(op, o, _space(op, x))
    cut = _cut(x, plane, view)
    moved = None if t is None else _cut(t, plane, view)
    given: list[Any] = [cut, *more, moved, *slopes]
    window = Proofs.of(op, view, cut, more)
    alone = moved is not None and all(s is None for s in slopes)
    n = len(primals)

    def value(*present: Any) -> Any:
        every = iter(present)
        full = [None if a is None else next(every) for a in given]
        return _only(view.op.jvp(full[:n], full[n:]))

    return _nearest_value(
        op,
        task.dtype,
        [a for a in given if a is not None],
        value,
        lambda: window.push(moved) if alone else None,
        lambda q: alone and window.is_push(q, moved),
    )


@nearest_pull.register(Pool)
def _(op: Pool, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    x, *more = primals
    assert x is not None
    space, windows = _space(op, x), g.reshape(_windows(op, task, x))
    if wrt == 1:
        return _pull_all(op, task, x, more, windows)
    plane, i = _plane(task, op, at)
    sees = []
    for t, p in zip(op.window.tables(space), i, strict=True):
        steps, rest = np.divmod(p - t.first, t.step)
        sees.append(np.flatnonzero((rest == 0) & (steps >= 0) & (steps < t.count)).tolist())
    views = [_view(op, o, space) for o in product(*sees)]
    shares = [windows[(*plane, *o)] for o in product(*sees)]
    cuts = [_cut(x, plane, v) for v in views]
    places = [_place(v, i) for v in views]
    if not views:
        return 0.0

    def value(*arrays: Any) -> Any:
        cuts, g, shared = arrays[: len(views)], arrays[len(views)], arrays[len(views) + 1 :]
        parts = [
            v.op.vjp((c, *shared), np.full(v.op.shape(c.shape), g[k], object))[0][(0, *p)]
            for k, (v, c, p) in enumerate(zip(views, cuts, places, strict=True))
        ]
        return total(parts)

    proofs = [Proofs.of(op, v, c, more) for v, c in zip(views, cuts, strict=True)]
    return _nearest_value(
        op,
        task.dtype,
        [*cuts, np.array(shares), *(a for a in more if a is not None)],
        value,
        lambda: _pulled_exactly(proofs, places, shares),
        lambda q: _is_pulled(q, proofs, places, shares),
    )


def _place(view: View, i: Shape) -> Shape:
    """Where a cell is in a window."""
    return tuple(int(np.flatnonzero(np.ravel(rows) == p)[0]) for rows, p in zip(view.index, i, strict=True))


def _pull_all(op: Pool, task: Task, x: Array, more: Sequence[Array | None], g: Array) -> float:
    """The VJP in beta, to which every window of every plane contributes."""
    (beta,) = more
    assert beta is not None
    samples = x.reshape(prod(task.batch), *x.shape[len(task.batch) :])
    of_g = g.reshape(prod(task.batch), *g.shape[len(task.batch) :])

    def value(x: Any, beta: Any, g: Any) -> Any:
        return total([op.vjp((a, beta), b)[1][()] for a, b in zip(x, g, strict=True)])

    return _nearest_value(op, task.dtype, [samples, beta, of_g], value, lambda: None, unproved)


def _pulled_exactly(proofs: Sequence[Proofs], places: Sequence[Shape], shares: Sequence[float]) -> Fraction | None:
    whole = Fraction(0)
    for window, p, g in zip(proofs, places, shares, strict=True):
        if g != 0:
            weight = window.weight(p)
            if weight is None:
                return None
            whole += Fraction(float(g)) * weight
    return whole


def _is_pulled(q: Fraction, proofs: Sequence[Proofs], places: Sequence[Shape], shares: Sequence[float]) -> bool:
    """Only where a single window counts."""
    live = [(w, p, g) for w, p, g in zip(proofs, places, shares, strict=True) if g != 0]
    if len(live) != 1:
        return False
    window, p, g = live[0]
    t = np.zeros(window.cells.shape)
    t[(0, *p)] = g
    return window.is_push(q, t)


# ---- when values with exp, log and roots are rational


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is known of one window: values that are rational, and tests whether a value is a given rational."""

    cells: Array

    @staticmethod
    def of(op: Pool, view: View, cells: Array, more: Sequence[Array | None]) -> Proofs:
        if isinstance(op, SmoothMaxPool):
            absent = prod(a.kernel for a in view.op.window.axes) - cells.size if op.count_include_pad else 0
            return Exponentials(cells, absent)
        return Powers(cells, Fraction(op.p)) if isinstance(op, LpPool) and math.isfinite(op.p) else Proofs(cells)

    def value(self) -> Fraction | None:
        """The value of the operator."""
        return None

    def is_value(self, q: Fraction) -> bool:
        return False

    def push(self, t: Array) -> Fraction | None:
        """The derivative in the direction of t."""
        return None

    def is_push(self, q: Fraction, t: Array) -> bool:
        return False

    def weight(self, at: Shape) -> Fraction | None:
        """The derivative in one cell."""
        t = np.zeros(self.cells.shape)
        t[(0, *at)] = 1
        return self.push(t)


@dataclass(frozen=True, slots=True)
class Exponentials(Proofs):
    """Smooth max. Exponentials of different rationals are linearly independent over the rationals (Lindemann).

    So exp(beta*y) = sum of exp(beta*x) only for a window of one cell, and a quotient of such sums is rational only if
    the sums are proportional, group of equal cells by group.
    """

    absent: int

    def value(self) -> Fraction | None:
        if self.cells.size + self.absent != 1:
            return None
        return Fraction(float(self.cells.ravel()[0])) if self.cells.size else Fraction(0)

    def push(self, t: Array) -> Fraction | None:
        groups: dict[float, list[Fraction]] = {0.0: [Fraction(self.absent), Fraction(0)]} if self.absent else {}
        for x, slope in zip(self.cells.ravel().tolist(), t.ravel().tolist(), strict=True):
            group = groups.setdefault(x + 0.0, [Fraction(0), Fraction(0)])
            group[0] += 1
            group[1] += Fraction(slope)
        ratios = {total / count for count, total in groups.values()}
        return ratios.pop() if len(ratios) == 1 else None


@dataclass(frozen=True, slots=True)
class Powers(Proofs):
    """Lp with p = m / 2^k in lowest terms: a power of a rational to compare with, where that is small enough."""

    p: Fraction

    def value(self) -> Fraction | None:
        sizes = [s for s in map(abs, self.cells.ravel().tolist()) if s]
        if len(sizes) > 1:
            return None
        return Fraction(sizes[0]) if sizes else Fraction(0)

    def is_value(self, q: Fraction) -> bool:
        if self.p.denominator == 1:
            return q >= 0 and q**self.p.numerator == self._sum(self.p.numerator)
        root = self._common_root()
        return root is not None and q == root[0] * root[1] ** self.p.denominator

    def push(self, t: Array) -> Fraction | None:
        live = [(x, s) for x, s in zip(self.cells.ravel().tolist(), t.ravel().tolist(), strict=True) if x]
        if not live or all(s == 0 for _, s in live):
            return Fraction(0)
        if len(live) == 1:
            return Fraction(live[0][1]) * (1 if live[0][0] > 0 else -1)
        return None

    def is_push(self, q: Fraction, t: Array) -> bool:
        if self.p.denominator == 1:
            p = self.p.numerator
            a = sum((self._slope(x, p - 1) * Fraction(s) for x, s in self._pairs(t)), Fraction(0))
            return (q > 0) == (a > 0) and abs(q) ** p * self._sum(p) ** (p - 1) == abs(a) ** p
        root = self._common_root()
        if root is None:
            return False
        a = sum((self._slope(x, 0) * Fraction(s) for x, s in self._pairs(t)), Fraction(0))
        return q * root[1] ** (self.p.numerator - self.p.denominator) == a

    def _pairs(self, t: Array) -> Iterator[tuple[float, float]]:
        return zip(self.cells.ravel().tolist(), t.ravel().tolist(), strict=True)

    def _sum(self, p: int) -> Fraction:
        return sum((abs(Fraction(x)) ** p for x in self.cells.ravel().tolist()), Fraction(0))

    @staticmethod
    def _slope(x: float, p: int) -> Fraction:
        return abs(Fraction(x)) ** p * (1 if x > 0 else -1) if x else Fraction(0)

    def _common_root(self) -> tuple[Fraction, int] | None:
        """(a, r) if all cells but zeros are +-a and there are r^m of them.

        n equal cells have the norm a * n^(2^k/m), which is rational only if n is such a power, since m is odd.
        """
        sizes = [Fraction(s) for s in map(abs, self.cells.ravel().tolist()) if s]
        if len(set(sizes)) != 1 or self.p.numerator > len(sizes).bit_length():
            return None
        r = round(len(sizes) ** (1 / self.p.numerator))
        return (sizes[0], r) if r**self.p.numerator == len(sizes) else None


# ---- smooth max and Lp in the coarse way: the float64 kernels and what is proved of them (docs/rounded.md)


@sum_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, *arrays: Array | None) -> Sum | None:
    x, beta = arrays
    assert x is not None and beta is not None
    forward = task.kernels(op).forward
    if not task.sums.coarse or forward is None or not _is_calm(x, beta):
        return None
    y = np.empty(_windows(op, task, x))
    forward(x, beta, y)
    relative = 64 * U + 2 * gamma(height(_most_cells(op, x)), U)
    return Sum(y, None, 64 * U * abs(y) + relative / abs(float(beta)))


def _is_calm(x: Array, beta: Array) -> bool:
    """Exponents within the range of the vector code, whose error is proved."""
    return bool(np.isfinite(x).all() and abs(float(beta)) * abs(x).max(initial=0) <= 200)


def _most_cells(op: Pool, x: Array) -> int:
    counted = getattr(op, "count_include_pad", False)
    return int(_counts(op.window, _space(op, x), counted).max())


@push_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x, beta), (t, t_beta) = primals, tangents
    assert x is not None and beta is not None
    jvp = task.kernels(op).jvp
    steady = t is None or np.isfinite(t).all()
    if not task.sums.coarse or jvp is None or not _is_calm(x, beta) or not steady:
        return None
    y = np.empty(_windows(op, task, x))
    jvp(x, beta, t, t_beta, y)
    relative = 64 * U + 4 * gamma(height(_most_cells(op, x)), U)
    moved = 0.0 if t is None else abs(t).max(initial=0)
    if t_beta is not None:
        rate = abs(float(beta))
        moved = moved + abs(float(t_beta)) * (2 * abs(x).max(initial=0) + math.log(_most_cells(op, x)) / rate) / rate
    return Sum(y, None, relative * moved + 8 * U * abs(y))


@pull_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    x, beta = primals
    assert x is not None and beta is not None
    vjp = task.kernels(op).vjp
    if wrt == 1 or not task.sums.coarse or not vjp or not _is_calm(x, beta) or not np.isfinite(g).all():
        return None
    y = np.empty(x.shape)
    vjp[0](x, beta, g.reshape(_windows(op, task, x)), y)
    readers = _readers(op, _space(op, x))
    relative = 64 * U + 4 * gamma(height(_most_cells(op, x)), U) + gamma(height(readers), U)
    return Sum(y, None, relative * readers * abs(g).max(initial=0))


@sum_of.register(LpPool)
def _(op: LpPool, task: Task, *arrays: Array | None) -> Sum | None:
    (x,) = arrays
    assert x is not None
    forward = task.kernels(op).forward
    if not task.sums.coarse or forward is None or not _is_even(x, op.p):
        return None
    y = np.empty(_windows(op, task, x))
    forward(x, y)
    return Sum(y, None, _lp_error(op, x) * y)


def _is_even(x: Array, p: float) -> bool:
    """Magnitudes close enough together for the vector code, whose error is proved."""
    sizes = abs(x[x != 0])
    if not np.isfinite(sizes).all() or not p <= 64:
        return False
    low, high = np.frexp(sizes.min(initial=1))[1], np.frexp(sizes.max(initial=1))[1]
    return bool((high - low + 2) * p <= 700 and max(abs(low), abs(high)) <= 150)


def _lp_error(op: LpPool, x: Array) -> float:
    return float(gamma(height(_most_cells(op, x)), U)) + (16 if op.p in (1, 2, 3) else 4096) * U


@push_of.register(LpPool)
def _(op: LpPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x,), (t,) = primals, tangents
    assert x is not None and t is not None
    jvp = task.kernels(op).jvp
    calm = op.p == math.inf or _is_even(x, op.p)
    if not task.sums.coarse or jvp is None or not calm or not np.isfinite(t).all():
        return None
    y = np.empty(_windows(op, task, x))
    jvp(x, t, y)
    most = _most_cells(op, x)
    return Sum(y, None, (4 * _lp_error(op, x) + gamma(height(most), U)) * most * abs(t).max(initial=0))


@pull_of.register(LpPool)
def _(op: LpPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    vjp = task.kernels(op).vjp
    calm = op.p == math.inf or _is_even(x, op.p)
    if not task.sums.coarse or not vjp or not calm or not np.isfinite(g).all():
        return None
    y = np.empty(x.shape)
    vjp[0](x, g, y)
    readers = _readers(op, _space(op, x))
    return Sum(y, None, (4 * _lp_error(op, x) + gamma(height(readers), U)) * readers * abs(g).max(initial=0))


# ---- one cell of a matrix product or of a sum


@nearest_at.register(MatMul)
def _(op: MatMul, task: Task, at: Shape, *arrays: Array | None) -> float:
    x, y = arrays
    assert x is not None and y is not None
    *batch, i, j = at
    rows, columns = (x.swapaxes(-1, -2) if op.turn_x else x), (y if op.turn_y else y.swapaxes(-1, -2))
    return nearest_dot(rows[(*batch, i)], columns[(*batch, j)], task.dtype)


@nearest_at.register(Reduction)
def _(op: Reduction, task: Task, at: Shape, *arrays: Array | None) -> float:
    (x,) = arrays
    assert x is not None
    place = iter(at)
    index = tuple(
        slice(None) if a in op.axes() and (not op.keepdims or next(place) == 0) else next(place) for a in range(x.ndim)
    )
    row = x[index].ravel()
    if isinstance(op, SumOf):
        return nearest_sum(row, task.dtype)
    value = exact_total(row.tolist()) / row.size
    return _signed(round_fraction(value, task.dtype), float(row.mean()))
