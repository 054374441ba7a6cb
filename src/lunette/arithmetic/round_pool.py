"""Pools in rounded arithmetic: their derivatives, and one cell of each. Values: lunette.arithmetic.round_values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import flint
import numpy as np

from lunette.arithmetic.exact import (
    Proof,
    cells_as,
    clamped,
    exact_total,
    nearest_of_balls,
    nearest_sum,
    round_fraction,
    unproved,
)
from lunette.arithmetic.pairs import DOUBLE, MANY, Reads
from lunette.arithmetic.proofs import Proofs, proofs_of
from lunette.arithmetic.round_values import counts_of, divisors_of, space_of
from lunette.arithmetic.rounded import (
    Arrays,
    Task,
    finite,
    nearest_at,
    nearest_pull,
    nearest_push,
    pull_of,
    push_of,
    signed,
)
from lunette.arithmetic.sums import Range, Sum
from lunette.number import Array, total
from lunette.ops.avg_pool import AvgPool
from lunette.ops.max_pool import MaxPool
from lunette.ops.pool import Pool
from lunette.window import Axis, Geometry, Shape, Window, axis_table

# ---- windows


def readers(op: Pool, space: Shape) -> int:
    """No cell is read by more windows than this."""
    return prod(_most_readers(a, n) for a, n in zip(op.window.axes, space, strict=True))


@lru_cache(maxsize=1024)
def _most_readers(axis: Geometry, n: int) -> int:
    t = axis_table(axis, n)
    return int(Reads.of_cells(t).count.max(initial=1)) if t.count.sum() <= MANY else t.m


def at_windows(op: Pool, x: Array, g: Array) -> Array:
    """A cotangent with spatial axes; itself if it has them, since its range is known by its id."""
    shape = windows_of(op, x)
    return g if g.shape == shape else g.reshape(shape)


def windows_of(op: Pool, x: Array) -> Shape:
    """The shape of the result with its spatial axes, which a global pool may drop."""
    return (*x.shape[: x.ndim - op.window.d], *op.window.out(space_of(op, x)))


# ---- averages


def _plain(op: AvgPool) -> AvgPool:
    """The sum of each window."""
    return replace(op, divisor=1.0)


@pull_of.register(AvgPool)
def _(op: AvgPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    space = space_of(op, x)
    if op.divisor is None and not op.countable(((1, *space),)):
        return None
    g = at_windows(op, x, g)
    return pulled(task, task.kernels(_plain(op)).vjp, x, g, divisors_of(op, space), readers(op, space))


def pulled(
    task: Task, vjp: Sequence[Callable[..., None]], x: Array, g: Array, divisors: Array | float, readers: int
) -> Sum | None:
    """The sum over windows of g / divisor, where a kernel sends g itself to cells; all that one gets has one sign."""
    s = _pulled(task, vjp, x, g, divisors, readers) if vjp else None
    if s is None or s.hi.all():
        return s
    terms, plain = np.empty(x.shape), np.empty(x.shape)
    vjp[0](x, (g != 0).astype(DOUBLE), terms)
    vjp[0](x, g / divisors, plain)
    nothing = terms == 0  # is sent there but zeros
    return replace(s, hi=np.where(nothing, plain, s.hi), radius=np.where(nothing, 0.0, s.width), rounded=False)


def _pulled(
    task: Task, vjp: Sequence[Callable[..., None]], x: Array, g: Array, divisors: Array | float, readers: int
) -> Sum | None:
    def pull(g: Array, known: Range | None = None) -> Sum | None:
        size = lambda: readers * (task.greatest(g) if known is None else known.greatest)  # noqa: E731
        return task.sums.of(lambda g, y: vjp[0](x, g, y), (g,), x.shape, readers, size, known)

    if isinstance(divisors, float):
        s = pull(g, task.ranges.get(id(g)))
        return None if s is None else s.over(divisors)
    share = Sum(g, None if task.sums.coarse else np.zeros(()), 0.0).over(divisors)
    whole = pull(share.hi)
    if whole is None or share.lo is None:
        # The coarse shares were rounded once more than the kernel knows.
        if whole is None:
            return None
        return replace(whole, radius=whole.width + 2.0**-52 * readers * task.greatest(share.hi))
    low = pull(np.broadcast_to(finite(share.lo), g.shape).copy())
    if low is None:
        return None
    both = whole.plus(low)
    return replace(both, radius=both.width + readers * np.max(finite(np.asarray(share.width))))


# ---- max


@push_of.register(MaxPool)
def _(op: MaxPool, task: Task, primals: Arrays, tangents: Arrays) -> Sum | None:
    (x,), (t,) = primals, tangents
    assert x is not None and t is not None
    jvp = task.kernels(replace(op, ties="all")).jvp
    if jvp is None:
        return None
    space = space_of(op, x)
    most = int(counts_of(op.window, space, False).max())
    known = task.ranges.get(id(t))
    windows = windows_of(op, x)
    s = task.sums.of(lambda t, y: jvp(x, t, y), (t,), windows, most, lambda: most * task.greatest(t), known)
    return s if s is None or op.ties == "all" else s.over(_winners(op, task, x))


def _winners(op: MaxPool, task: Task, x: Array) -> Array:
    """How many cells of each window win."""
    jvp = task.kernels(replace(op, ties="all")).jvp
    assert jvp is not None
    count = np.empty(windows_of(op, x))
    jvp(x, np.ones(x.shape), count)
    return count


@pull_of.register(MaxPool)
def _(op: MaxPool, task: Task, primals: Arrays, g: Array, wrt: int) -> Sum | None:
    (x,) = primals
    assert x is not None
    g = at_windows(op, x, g)
    chosen = replace(op, ties="all") if op.ties == "split" else op
    divisors = _winners(op, task, x) if op.ties == "split" else 1.0
    return pulled(task, task.kernels(chosen).vjp, x, g, divisors, readers(op, space_of(op, x)))


# ---- one cell of a pool: its window, or the windows that read it


@dataclass(frozen=True, slots=True)
class View:
    """One window as a problem of its own: the same operator on the cells of that window alone."""

    op: Any
    index: tuple[Any, ...]
    """Where its cells are in a plane."""
    size: int
    """How many cells it has, padding counted."""


def _view(op: Pool, o: Shape, space: Shape) -> View:
    axes, index, size = [], [], 1
    for a, p, n in zip(op.window.axes, o, space, strict=True):
        r, kernel = a.reach(p, n), max(a.inside(p, n), 1)
        axes.append(Axis(kernel, lo=kernel - r.count))  # so many cells, and so much padding
        size *= kernel
        index.append(r.i + r.i_step * np.arange(r.count))
    return View(replace(op, window=Window(tuple(axes))), np.ix_(*index), size)


def _plane(task: Task, op: Pool, at: Shape) -> tuple[tuple[Any, ...], Shape]:
    """The plane of a cell, and its place there; a global pool may have dropped the place."""
    front = len(task.batch) + 1
    return at[:front], at[front:] or (0,) * op.window.d


def _cut(a: Array, plane: Any, view: View) -> Array:
    return np.asarray(a[plane][view.index] if view.index else a[plane], DOUBLE)[None]


Value = Callable[..., Any]
Exactly = Callable[[], Fraction | None]


def _nearest_value(
    op: Pool,
    dtype: np.dtype[Any],
    primals: Sequence[Array],
    moved: Sequence[Array],
    value: Value,
    exactly: Exactly,
    is_value: Proof,
) -> float:
    """A function of primals and of what it is linear in: by floats where infinities decide, by rationals, or by balls.

    Only the latter are tamed: among primals, that might make ties.
    """
    arrays = [*primals, *moved]
    finite = all(np.isfinite(a).all() for a in arrays)
    plain = float(value(*(a.astype(object) for a in primals), *(clamped(a).astype(object) for a in moved)))
    if not finite and not math.isfinite(plain):
        return plain
    if op.is_rational():
        return signed(Fraction(value(*(cells_as(a, _exact_or_strange) for a in arrays))), dtype, plain)
    rational = exactly() if finite else None
    if rational is not None:
        return signed(rational, dtype, plain)
    balls = [cells_as(a, flint.arb) for a in arrays]
    return nearest_of_balls(lambda: value(*balls), dtype, is_value, op.name)


def _exact_or_strange(v: float) -> Fraction | float:
    """Infinities and NaN stay what they are: they may win a window without being a part of the result."""
    return Fraction(v) if math.isfinite(v) else v


def _only(y: Any) -> Any:
    (v,) = np.asarray(y, object).ravel()
    return v


@nearest_at.register(Pool)
def _(op: Pool, task: Task, at: Shape, *arrays: Array | None) -> float:
    x, *more = arrays
    assert x is not None
    plane, o = _plane(task, op, at)
    view = _view(op, o, space_of(op, x))
    cut = _cut(x, plane, view)
    given = [cut, *(a for a in more if a is not None)]
    window = proofs_of(op, cut, view.size)
    return _nearest_value(op, task.dtype, given, (), lambda *a: _only(view.op.spec(*a)), window.value, window.is_value)


@nearest_at.register(AvgPool)
def _(op: AvgPool, task: Task, at: Shape, *arrays: Array | None) -> float:
    (x,) = arrays
    assert x is not None
    plane, o = _plane(task, op, at)
    row = _cut(x, plane, _view(op, o, space_of(op, x))).ravel()
    return _nearest_share(row, [_divisor(op, x, o)] * row.size, task.dtype)


def _divisor(op: AvgPool, x: Array, o: Shape) -> float | int:
    """What the sum of a window is divided by, exactly: no float may have such a count."""
    if op.divisor is not None:
        return float(op.divisor)
    tables = op.window.tables(space_of(op, x))
    return prod(int((t.inside if op.count_include_pad else t.count)[p]) for t, p in zip(tables, o, strict=True))


def _nearest_share(terms: Array, divisors: Sequence[float | int], dtype: np.dtype[Any]) -> float:
    """The float nearest to a sum of quotients: of no terms it is zero."""
    signs = np.copysign(1.0, terms) * np.copysign(1.0, np.array(divisors, float))
    if not np.isfinite(terms).all() or not terms.any():
        return nearest_sum(np.where(np.isfinite(terms), np.copysign(0.0, signs), signs * abs(terms)), dtype)
    of: dict[float | int, list[float]] = {}
    for term, divisor in zip(terms.tolist(), divisors, strict=True):
        of.setdefault(divisor, []).append(term)
    return round_fraction(sum((exact_total(t) / Fraction(d) for d, t in of.items()), Fraction(0)), dtype)


@nearest_push.register(AvgPool)
def _(op: AvgPool, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    (t,) = tangents
    return 0.0 if t is None else nearest_at(op, task, at, t)


@nearest_pull.register(AvgPool)
def _(op: AvgPool, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    (x,) = primals
    assert x is not None
    plane, i = _plane(task, op, at)
    sees = list(product(*_seeing(op, x, i)))
    shares = at_windows(op, x, g)[plane]
    return _nearest_share(np.array([shares[o] for o in sees]), [_divisor(op, x, o) for o in sees], task.dtype)


def _seeing(op: Pool, x: Array, i: Shape) -> list[list[int]]:
    """Along each axis, the windows that read a cell."""
    sees = []
    for t, p in zip(op.window.tables(space_of(op, x)), i, strict=True):
        steps, rest = np.divmod(p - t.first, t.step)
        sees.append(np.flatnonzero((rest == 0) & (steps >= 0) & (steps < t.count)).tolist())
    return sees


@nearest_push.register(Pool)
def _(op: Pool, task: Task, at: Shape, primals: Arrays, tangents: Arrays) -> float:
    (x, *more), (t, *slopes) = primals, tangents
    assert x is not None
    plane, o = _plane(task, op, at)
    view = _view(op, o, space_of(op, x))
    cut = _cut(x, plane, view)
    moved = None if t is None else _cut(t, plane, view)
    given: list[Any] = [cut, *more, moved, *slopes]
    window = proofs_of(op, cut, view.size)
    # beta does not matter where its tangent is zero, nor in a window of one cell, whose value is that cell.
    alone = all(s is None or not s.any() for s in slopes) or window.value() is not None
    direction = np.zeros(cut.shape) if moved is None else moved
    n = len(primals)

    def value(*present: Any) -> Any:
        every = iter(present)
        full = [None if a is None else next(every) for a in given]
        return _only(view.op.jvp(full[:n], full[n:]))

    return _nearest_value(
        op,
        task.dtype,
        [a for a in given[:n] if a is not None],
        [a for a in given[n:] if a is not None],
        value,
        lambda: window.push(direction) if alone else None,
        lambda q: alone and window.is_push(q, direction),
    )


@nearest_pull.register(Pool)
def _(op: Pool, task: Task, at: Shape, primals: Arrays, g: Array, wrt: int) -> float:
    x, *more = primals
    assert x is not None
    space, windows = space_of(op, x), at_windows(op, x, g)
    if wrt == 1:
        return _pull_all(op, task, x, more, windows)
    plane, i = _plane(task, op, at)
    sees = _seeing(op, x, i)
    views = [_view(op, o, space) for o in product(*sees)]
    shares = [windows[(*plane, *o)] for o in product(*sees)]
    cuts = [_cut(x, plane, v) for v in views]
    places = [_place(v, i) for v in views]
    if not views:
        return 0.0

    def value(*arrays: Any) -> Any:
        *given, g = arrays
        cuts, shared = given[: len(views)], given[len(views) :]
        parts = [
            v.op.vjp((c, *shared), np.full(v.op.shape(c.shape), g[k], object))[0][(0, *p)]
            for k, (v, c, p) in enumerate(zip(views, cuts, places, strict=True))
        ]
        return total(parts)

    proofs = [proofs_of(op, c, v.size) for v, c in zip(views, cuts, strict=True)]
    return _nearest_value(
        op,
        task.dtype,
        [*cuts, *(a for a in more if a is not None)],
        [np.array(shares)],
        value,
        lambda: _pulled_exactly(_merged(proofs, places, shares)),
        lambda q: _is_pulled(q, _merged(proofs, places, shares)),
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

    def cancelled() -> Fraction | None:
        """Zero, if the cotangents of equal windows cancel; a window of one cell has no derivative in beta."""
        groups: dict[Any, Fraction] = {}
        for at in np.ndindex(g.shape):
            plane, o = _plane(task, op, at)
            view = _view(op, o, space_of(op, x))
            key = (tuple(sorted(_cut(x, plane, view).ravel().tolist())), view.size)
            if len(key[0]) != 1 or (view.size > 1 and op.counted):
                groups[key] = groups.get(key, Fraction(0)) + Fraction(float(g[at]))
        return None if any(groups.values()) else Fraction(0)

    return _nearest_value(op, task.dtype, [samples, beta], [of_g], value, cancelled, unproved)


Live = list[tuple[Proofs, Shape, Fraction]]


def _merged(proofs: Sequence[Proofs], places: Sequence[Shape], shares: Sequence[float]) -> Live:
    """The windows that count: those with the same cells, and the same one of them, have the same weight there."""
    live: dict[Any, tuple[Proofs, Shape, Fraction]] = {}
    for window, p, g in zip(proofs, places, shares, strict=True):
        key = (window.absent, float(window.cells[(0, *p)]), *sorted(window.cells.ravel().tolist()))
        before = live[key][2] if key in live else Fraction(0)
        live[key] = window, p, before + Fraction(float(g))
    return [(w, p, g) for w, p, g in live.values() if g]


def _pulled_exactly(live: Live) -> Fraction | None:
    whole = Fraction(0)
    for window, p, g in live:
        weight = window.weight(p)
        if weight is None:
            return None
        whole += g * weight
    return whole


def _is_pulled(q: Fraction, live: Live) -> bool:
    """Only where a single window counts."""
    if len(live) != 1:
        return False
    window, p, g = live[0]
    t = np.zeros(window.cells.shape, object)
    t[(0, *p)] = g
    return window.is_push(q, t)
