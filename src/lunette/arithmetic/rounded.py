"""`arithmetic="rounded"`: every output is the float nearest to the exact result, ties to even.

Decide or fall back: `sum_of` says how an operator's results follow from sums that know their error, and `decided`
rounds those that can have only one nearest float. The others, and every cell of an operator without a short way, are
computed one by one: `nearest_at`. Nothing of this depends on threads, batches, layouts or instruction sets.

This is the engine: an interpretation of every operator, whose questions the modules round_* answer by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import flint
import numpy as np

from lunette import core
from lunette.arithmetic.error import float_info
from lunette.arithmetic.exact import PRECISIONS, cells_as, clamped, decided_ball, precision, round_fraction, undecided
from lunette.arithmetic.pairs import DOUBLE
from lunette.arithmetic.sums import Range, Sum, Sums, decide_quotients, decided, nearest
from lunette.array import (
    FLOAT,
    FORGETTING,
    Call,
    Kept,
    by_specification,
    cells,
    computing,
    prepare,
    resolved_before,
    run,
)
from lunette.errors import DTypeError
from lunette.number import OBJECT, Array, cells_in
from lunette.op import SPEC, Kernels, Op, Request, ResolvedOp, Shapes
from lunette.ops.derivative import Derivative, Jvp, Vjp, put
from lunette.rules import Interpretation, missing
from lunette.window import Shape

Arrays = Sequence[Array | None]
ROUNDED = Interpretation("rounded", 'arithmetic="rounded"')


@dataclass(frozen=True, slots=True)
class Task:
    """One operator in rounded arithmetic: where it is bound, and the dtype of the result. Arrays are float64."""

    resolved: ResolvedOp
    dtype: np.dtype[Any]
    ranges: Mapping[int, Range] = field(default_factory=dict)
    """What is known of arrays, by their id."""
    fine: bool = False
    """Whether narrow floats are added up as doubles are."""

    @property
    def sums(self) -> Sums:
        """Products of narrower floats are exact in float64."""
        return _sums(DOUBLE if self.fine else self.dtype)

    def greatest(self, a: Array) -> Array | float:
        """The greatest finite |cell|, of each plane where that is known."""
        known = self.ranges.get(id(a))
        return known.greatest if known is not None else float(abs(finite(a)).max(initial=0))

    @property
    def batch(self) -> Shape:
        return self.resolved.batch

    def kernels(self, op: Op, shapes: Shapes | None = None) -> Kernels:
        """The float64 kernels of an operator on samples of these shapes."""
        return _kernels(op, prod(self.batch), tuple(self.resolved.shapes if shapes is None else shapes))

    def inner(self, op: Op, own: int) -> Task:
        """The task of the operator that this one is a derivative of."""
        shapes = self.resolved.shapes[:own]
        resolved = replace(self.resolved, op=op, shapes=shapes, out=(*self.batch, *op.shape(*shapes)))
        return replace(self, resolved=resolved)


@lru_cache
def _sums(dtype: np.dtype[Any]) -> Sums:
    info = float_info(dtype)
    return Sums(dtype != DOUBLE, int(info.nmant) + 1, float(info.smallest_subnormal))


@lru_cache(maxsize=1024)
def _kernels(op: Op, batch: int, shapes: tuple[Shape | None, ...]) -> Kernels:
    return op.kernels(DOUBLE, batch, shapes)


def rounded(kind: type[Op], operands: Sequence[Any], options: tuple[Any, ...]) -> Any:
    """An operator on arrays."""
    known = _known(kind, operands, options)
    if known is not None:
        resolved, driver = known
        return _completed(Task(resolved, operands[0].dtype), driver(*operands), operands)
    ROUNDED.require(kind)
    call = prepare(Request(kind, tuple(operands), "rounded", options))
    if call.dtype == OBJECT and any(isinstance(v, float) for a in call.arrays if a is not None for v in a.flat):
        return _of_floats(kind, call, options)
    if call.dtype == OBJECT or call.resolved.op.return_indices or call.resolved.op.is_nearest():
        return run(kind, operands, "fast", options)
    with computing(kind, call.resolved.d, *call.arrays):
        return call.result(round_call(call))


def _of_floats(kind: type[Op], call: Call, options: tuple[Any, ...]) -> Any:
    """Object arrays, or lists, with Python's floats in them: rounded like float64, which must hold the other cells."""
    given = [a for a in call.arrays if a is not None]
    if not all(_is_double(v) for a in given for v in a.flat):
        need, hint = "floats, or exact numbers, alone", "Convert them to one type."
        raise DTypeError("D1", need, "floats beside numbers that are none", hint, who=kind.name)
    y = run(kind, [None if a is None else a.astype(np.float64) for a in call.arrays], "rounded", options)
    return (y[0].astype(object), *y[1:]) if isinstance(y, tuple) else y.astype(object)


def _is_double(v: Any) -> bool:
    try:
        return bool(float(v) == v) or bool(v != v)
    except (TypeError, ValueError, OverflowError):
        return False


Decided = tuple[Array, Array]


Driver = Callable[..., Decided]
"""A compiled driver, which computes and decides a few planes at a time, while they are in a cache.

It gives the nearest floats and the flat places in doubt.
"""


@ROUNDED.rule
def driver_of(op: Op, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Driver | None:
    """The driver of an operator on arrays of a dtype; None where there is none."""
    return None


DRIVERS: Kept[Driver] = Kept()


def _known(kind: type[Op], operands: Sequence[Any], options: tuple[Any, ...]) -> tuple[ResolvedOp, Driver] | None:
    """The short way to a driver that was made before: dense float arrays of NumPy."""
    if kind.scalars or kind.integers:
        return None
    for a in operands:
        if type(a) is not np.ndarray or a.dtype not in FLOAT or a.dtype != operands[0].dtype:
            return None
        if not ((flags := a.flags).c_contiguous and flags.aligned):
            return None
    resolved = resolved_before(kind, operands, "rounded", options)
    driver = None if resolved is None else DRIVERS.get(resolved)
    return None if resolved is None or driver is None else (resolved, driver)


def round_call(call: Call) -> Array:
    """The nearest floats of a call's result."""
    resolved, dtype = call.resolved, call.dtype
    if 0 in resolved.out:
        return np.empty(resolved.out, dtype)
    driver = DRIVERS.get(resolved) or DRIVERS.keep(resolved, driver_of(resolved.op, resolved, dtype))
    if driver is not None:
        return _completed(Task(resolved, dtype), driver(*call.arrays), call.arrays)
    if resolved.op.planar and (dtype != DOUBLE or _is_curved(resolved.op)):
        return _by_planes(resolved, dtype, call.arrays)
    integers = resolved.op.integers
    arrays = [a if a is None or p in integers else np.asarray(a, DOUBLE, order="C") for p, a in enumerate(call.arrays)]
    return _round(Task(resolved, dtype), arrays)


def _round(task: Task, arrays: Arrays) -> Array:
    op, out = task.resolved.op, task.resolved.out
    s = sum_of(op, task, *arrays)
    if s is None:
        COUNTS.update({"outputs": prod(out), "undecided": prod(out)})
        return nearest_everywhere(op, task, *arrays)
    y, doubt = decided(s, task.dtype)
    y = y.reshape(out)
    if doubt.size and s.quotient is not None:
        doubt = decide_quotients(s, y, doubt)
    if doubt.size and task.sums.coarse:
        doubt = sum_again(op, task, y, doubt, *arrays)
    return _finished(task, y, doubt, *arrays)


def _completed(task: Task, decided: Decided, arrays: Arrays) -> Array:
    """What a driver gave: planes where it leaves much in doubt once more in the fine way, the rest cell by cell.

    A driver gives float16 and bfloat16 as float32; what is in doubt is rounded once, to the dtype of the task.
    """
    (y, doubt), resolved = decided, task.resolved
    if doubt.size <= FEW or not _is_curved(resolved.op):
        return _finished(task, y, doubt, *arrays)
    x, *more = arrays
    assert x is not None
    lead = len(resolved.batch) + 1
    cells = prod(resolved.out[lead:])
    some = np.unique(doubt // cells)
    shapes = ((1, *x.shape[lead:]), *resolved.shapes[1:])
    part = replace(resolved, batch=(some.size,), shapes=shapes, out=(some.size, *resolved.op.shape(*shapes)))
    planes = x.reshape(-1, 1, *x.shape[lead:])[some]
    with computing(type(resolved.op), resolved.d, *arrays):
        y.reshape(-1, cells)[some] = _by_planes(part, task.dtype, [planes, *more]).reshape(-1, cells)
    COUNTS["outputs"] += y.size - some.size * cells
    return y


def _finished(task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    """With the flat places in doubt filled in, one by one."""
    op, out = task.resolved.op, task.resolved.out
    COUNTS["outputs"] += y.size
    COUNTS["undecided"] += doubt.size
    if doubt.size:
        with computing(type(op), task.resolved.d, *arrays):
            for place in doubt.tolist():
                at = tuple(int(p) for p in np.unravel_index(place, out)) if out else ()
                y[at] = nearest_at(op, task, at, *arrays)
    return y


# ---- planes: a few at a time, so that their float64 copies stay in a cache


def _is_curved(op: Op) -> bool:
    """Whether doubles pass through exponentials or powers, as pairs: many arrays, which a cache should hold."""
    return op.needs == "exp"


CELLS = 1 << 15


def _by_planes(resolved: ResolvedOp, dtype: np.dtype[Any], arrays: Arrays) -> Array:
    op, lead = resolved.op, len(resolved.batch) + 1
    planar = op.batched
    x = arrays[0]
    assert x is not None
    planes = prod(x.shape[:lead])
    flat = [a.reshape(planes, 1, *a.shape[lead:]) if a is not None and p in planar else a for p, a in enumerate(arrays)]
    shapes = tuple((1, *s[1:]) if s is not None and p in planar else s for p, s in enumerate(resolved.shapes))
    most = max(prod(s) for p, s in enumerate(shapes) if s is not None and p in planar)
    step = max(1, min(planes, CELLS // max(most, 1)))
    out = op.shape(*shapes)
    y = np.empty((planes, *out), dtype)
    for first in range(0, planes, step):
        count = min(step, planes - first)
        part = [a[first : first + count] if a is not None and p in planar else a for p, a in enumerate(flat)]
        ranges: dict[int, Range] = {}
        wide = [None if a is None else _widened(a, ranges) for a in part]
        task = Task(replace(resolved, batch=(count,), shapes=shapes, out=(count, *out)), dtype, ranges)
        y[first : first + count] = _round(task, wide)
    return y.reshape(resolved.out)


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
    return core.widen(rows, cells)


FORGETTING += [_kernels.cache_clear, _widener.cache_clear]


COUNTS: Counter[str] = Counter()
"""How many outputs there were, and how many of them needed their exact value, since this was cleared."""


# ---- sums that know their error


@ROUNDED.rule
def sum_of(op: Op, task: Task, *arrays: Array | None) -> Sum | None:
    """The results of an operator as sums; None if there is no short way."""
    return None


def finite(a: Array) -> Array:
    """Zeros in the place of infinities and NaN, which decide results by themselves."""
    return a if np.isfinite(a).all() else np.where(np.isfinite(a), a, 0.0)


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
    added = parts[0] if parts else Sum(np.zeros(task.resolved.out), None if task.sums.coarse else np.zeros(()), 0.0)
    for more in parts[1:]:
        added = None if added is None or more is None else added.plus(more)
    for j in base.affine_in:
        t = tangents[j]
        if added is not None and t is not None:
            added = added + t.reshape(-1, *(1,) * (len(task.resolved.out) - len(task.batch) - 1))
    return added


@sum_of.register(Vjp)
def _(op: Vjp, task: Task, *arrays: Array | None) -> Sum | None:
    *primals, g = arrays
    assert g is not None
    return pull_of(op.op, task.inner(op.op, op.count()), primals, g, op.wrt)


@ROUNDED.rule
def push_of(op: Op, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    """The results of a JVP as sums."""
    return None


@ROUNDED.rule
def pull_of(op: Op, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    """The results of a VJP as sums."""
    return None


@ROUNDED.rule
def sum_again(op: Op, task: Task, y: Array, doubt: Array, *arrays: Array | None) -> Array:
    """Fill in what a second, better sum decides of the flat places in doubt; the rest of them."""
    s = sum_of(op, replace(task, fine=True), *arrays) if doubt.size > FEW else None
    if s is None:
        return doubt
    better, still = decided(s, task.dtype)
    y.flat[doubt] = better.flat[doubt]
    return np.intersect1d(doubt, still)


FEW = 16  # cells that are computed one by one before all of them are again


# ---- one cell


@ROUNDED.rule
def nearest_everywhere(op: Op, task: Task, *arrays: Array | None) -> Array:
    """Every cell, by its own exact value."""
    return one_by_one(op, task, *arrays) if op.batched and _is_registered(type(op)) else whole(op, task, *arrays)


def one_by_one(op: Op, task: Task, *arrays: Array | None) -> Array:
    """Every cell by itself."""
    y = np.empty(task.resolved.out, task.dtype)
    for at in cells_in(task.resolved.out):
        y[at] = nearest_at(op, task, at, *arrays)
    return y


@ROUNDED.rule
def nearest_at(op: Op, task: Task, at: Shape, *arrays: Array | None) -> float:
    """The float nearest to one cell of the result."""
    return float(whole(op, task, *arrays)[at])


def whole(op: Op, task: Task, *arrays: Array | None) -> Array:
    """The whole result by the specification: on rationals, or on balls until every cell is decided."""
    plain = [a if a is None or p in op.integers else clamped(a) for p, a in enumerate(arrays)]
    has_special_values = any(a is not None and a.dtype == DOUBLE and not np.isfinite(a).all() for a in arrays)
    y = np.empty(task.resolved.out, task.dtype)
    floats = by_specification(task.resolved, [cells(a) for a in plain])
    # Cells that NaN decides, or infinities among the operands; the others are computed with zeros in their place.
    values = floats.astype(float)
    todo = np.asarray(np.isfinite(values) if has_special_values else ~np.isnan(values))
    y[~todo] = nearest(values, task.dtype)[~todo]
    rational = op.is_rational()
    number: Callable[[float], Any] = Fraction if rational else flint.arb
    exact = [a if a is None or p in op.integers else cells_as(finite(a), number) for p, a in enumerate(arrays)]
    if rational:
        values = by_specification(task.resolved, exact)
        for at in map(tuple, np.argwhere(todo).tolist()):
            y[at] = signed(Fraction(values[at]), task.dtype, floats[at])
        return y
    for bits in PRECISIONS:
        with precision(bits):
            values = by_specification(task.resolved, exact)
            for at in map(tuple, np.argwhere(todo).tolist()):
                v = decided_ball(values[at], task.dtype, last=bits == PRECISIONS[-1])
                if v is not None:
                    zero = values[at] == 0 and floats[at] == 0
                    y[at], todo[at] = float(floats[at]) if zero else v, False
        if not todo.any():
            return y
    poles = todo & np.isinf(floats.astype(float))  # a logarithm of zero is in no ball
    y[poles] = floats[poles].astype(float)
    if (todo & ~poles).any():
        raise undecided(op.name)
    return y


def signed(q: Fraction, dtype: np.dtype[Any], plain: Any) -> float:
    """The float nearest to a rational; an exact zero, and nothing else, has the sign that IEEE arithmetic gives it."""
    return float(plain) if q == 0 and plain == 0 else round_fraction(q, dtype)


@nearest_at.register(Jvp)
def _(op: Jvp, task: Task, at: Shape, *arrays: Array | None) -> float:
    n = op.count()
    if not nearest_push.has(type(op.op)):
        return float(whole(op, task, *arrays)[at])
    return nearest_push(op.op, task.inner(op.op, n), at, arrays[:n], arrays[n:])


@nearest_at.register(Vjp)
def _(op: Vjp, task: Task, at: Shape, *arrays: Array | None) -> float:
    *primals, g = arrays
    assert g is not None
    if not nearest_pull.has(type(op.op)):
        return float(whole(op, task, *arrays)[at])
    return nearest_pull(op.op, task.inner(op.op, op.count()), at, primals, g, op.wrt)


@ROUNDED.rule
def nearest_push(op: Op, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    """One cell of a JVP."""
    raise missing(ROUNDED, type(op))


@ROUNDED.rule
def nearest_pull(op: Op, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    """One cell of a VJP."""
    raise missing(ROUNDED, type(op))


# ---- what is there for which operator


VALUES = (driver_of, sum_of, nearest_at, nearest_everywhere)


def _is_registered(kind: type[Op]) -> bool:
    """Whether one of the modules round_* has an answer for an operator, or for derivatives of its kind."""
    if issubclass(kind, Derivative):
        return (nearest_push if issubclass(kind, Jvp) else nearest_pull).has(kind.base)
    return any(rule.has(kind) for rule in VALUES)


ROUNDED.way("derived: exact", lambda kind: kind.exact)
ROUNDED.way("derived: rounds once", lambda kind: kind.rounds_once)
ROUNDED.way("own rule", lambda kind: kind.is_own() and _is_registered(kind))
ROUNDED.way("rule of {base}", lambda kind: SPEC.has(kind) and _is_registered(kind))
ROUNDED.way("specification", SPEC.has)
