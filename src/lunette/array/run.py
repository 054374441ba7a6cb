"""One call of an operator on arrays: the short way, kernels, the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lunette.array.foreign import (
    FLOAT,
    Operand,
    as_scalar,
    cells,
    dense,
    from_numpy,
    integers_to_numpy,
    is_half,
    one_kind,
    same_dtype,
    to_numpy,
    wide,
)
from lunette.array.resolved import QUICK, dtype_of, names_of, no_index, resolve_cached, written_down
from lunette.errors import error_context
from lunette.number import (
    OBJECT,
    Array,
    Interval,
    allocate,
    as_dtype,
    cells_in,
    check_fits,
    is_real,
    meeting,
    total,
)
from lunette.op import (
    Op,
    Request,
    ResolvedOp,
    check_arithmetic,
    check_shape,
    known_rank,
    on_arrays,
    outline,
)
from lunette.window import Shape


@dataclass(frozen=True, slots=True)
class Call:
    """Operands of one operator, as arrays of one dtype, bound to the operator."""

    resolved: ResolvedOp
    arrays: tuple[Array | None, ...]
    dtype: np.dtype[Any]
    kinds: tuple[str, ...]

    def also(self, values: Sequence[Any], names: Sequence[str], shapes: Sequence[Shape]) -> list[Array | None]:
        """Further arrays of this call, tangents or the cotangent, which must have these shapes; a number has none."""
        cell = next((a[(0,) * a.ndim] for a in self.arrays if a is not None and a.size), 0)
        taken = [
            None
            if v is None
            else as_scalar(v, name, self.dtype, cell)
            if shape == () and is_real(v)
            else to_numpy(v, name)
            for v, name, shape in zip(values, names, shapes, strict=True)
        ]
        one_kind([*self.kinds, *(t.kind for t in taken if t is not None)])
        for t, name, shape in zip(taken, names, shapes, strict=True):
            if t is not None:
                same_dtype(self.dtype, t.array, name)
                check_shape(name, shape, t.array.shape)
        return [None if t is None else t.array for t in taken]

    def new(self, shape: Shape) -> Array:
        """An array for results, in the dtype that is computed in."""
        return allocate(shape, wide(self.dtype))

    def result(self, y: Array | None) -> Any:
        """A finished output in the dtype and kind of x."""
        if y is None:
            return None
        if is_half(self.dtype) and y.dtype != np.int64:
            with np.errstate(over="ignore", under="ignore"):
                y = y.astype(self.dtype)
        return from_numpy(y, self.kinds[0])


def prepare(asked: Request) -> Call:
    """Take the operands, check that they belong together, and bind the operator to their shapes."""
    kind = asked.kind
    with error_context(kind.name, lambda: known_rank(kind, map(outline, asked.operands), 2, asked.options)):
        check_arithmetic(asked)
        taken: list[Operand | None] = []
        plain: list[int] = []
        for at, (name, a) in enumerate(zip(names_of(kind, asked.operands), asked.operands, strict=True)):
            if name in kind.scalars and is_real(a):
                plain.append(at)
            counted = at in kind.integers
            absent = at in plain or (a is None and kind.optional and at > 0)
            taken.append(None if absent else integers_to_numpy(a, name) if counted else to_numpy(a, name))
        dtype = next((t.array.dtype for t in taken if t is not None), OBJECT)
        cell = next((t.array[(0,) * t.array.ndim] for t in taken if t is not None and t.array.size), 0) if plain else 0
        for at in plain:
            taken[at] = as_scalar(asked.operands[at], kind.arrays[at], dtype, cell)
        arrays = [None if t is None else t.array for t in taken]
        kinds = tuple(t.kind for at, t in enumerate(taken) if t is not None and at not in plain) or ("numpy",)
        one_kind(kinds)
    resolved = resolve_cached(kind, arrays, asked.arithmetic, asked.options)
    with computing(kind, resolved.d, *arrays):
        resolved.op.check(*arrays)
    return Call(resolved, tuple(arrays), dtype_of(resolved.op, arrays), kinds)


@contextmanager
def computing(kind: type[Op], d: int | None, *arrays: Array | None) -> Iterator[None]:
    """Values meet: refusals are signed, and numpy's scalars do not warn where IEEE arithmetic is silent."""
    with error_context(kind.name, d), np.errstate(all="ignore"), meeting(*arrays):
        yield


ComputesIn = Callable[[type[Op], Sequence[Any], tuple[Any, ...]], Any]

ARITHMETIC: dict[str, ComputesIn] = {}
"""What computes in an arithmetic other than "fast"; the package lunette.arithmetic fills it."""


@on_arrays
def run(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
    """The operator on arrays."""
    if is_other_arithmetic(arithmetic):
        return ARITHMETIC["interval" if has_box(operands) else arithmetic](kind, operands, options)
    quick = run_quickly(kind, operands, arithmetic, options)
    if quick is not None:
        return quick
    if has_box(operands):
        return ARITHMETIC["interval"](kind, operands, options)
    call = prepare(Request(kind, tuple(operands), arithmetic, options))
    op, out = call.resolved.op, call.resolved.out
    with computing(kind, call.resolved.d, *call.arrays):
        y = call.new(out)
        index = allocate(out, np.dtype(np.int64)) if op.return_indices else None
        if y.size == 0:
            pass
        elif call.resolved.kernels.forward is not None:
            _forward(call.resolved, [dense(a) for a in call.arrays], y, index)
        else:
            arrays = [cells(a) for a in call.arrays]
            y[...] = by_specification(call.resolved, arrays)
            if index is not None:
                for at, one in samples(call.resolved, arrays):
                    index[at] = op.indices(one[0])
        return call.result(y) if index is None else (call.result(y), call.result(index))


def is_other_arithmetic(arithmetic: object) -> bool:
    """An arithmetic that exists and is not the fast one."""
    return isinstance(arithmetic, str) and arithmetic in ARITHMETIC


def has_box(operands: Any) -> bool:
    """Whether there is a box among float arrays: bounds are what it asks for, whatever the arithmetic."""
    if not isinstance(operands, tuple | list) or not any(isinstance(a, Interval) for a in operands):
        return False
    return any(getattr(a, "dtype", OBJECT) != OBJECT for a in operands)


def run_quickly(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Array | None:
    """The short way for what was computed before: NumPy arrays of known shapes. None says to go the long way."""
    facts, written = facts_of(kind, operands), written_down(options)
    if facts is None or written is None or type(arithmetic) is not str:
        return None
    return run_known(kind, kind.name, operands, facts, arithmetic, written)


MOST_WHOLE = 2**53
"""Floats have the whole numbers up to here."""


def facts_of(kind: type[Op], operands: Sequence[Any]) -> tuple[Any, ...] | None:
    """What keys say of operands that may go the short way: arrays of NumPy, and numbers that stand for arrays."""
    facts: list[Any] = []
    dtype = None
    for a in operands:
        if type(a) is np.ndarray:
            dtype = a.dtype
            facts.append((a.shape, dtype))
        elif a is None:
            facts.append(None)
        elif kind.scalars and (type(a) is float or (type(a) is int and -MOST_WHOLE <= a <= MOST_WHOLE)):
            if dtype is None:
                dtype = next((b.dtype for b in operands if type(b) is np.ndarray), OBJECT)
            if dtype not in FLOAT or kind.arrays[len(facts)] not in kind.scalars:
                return None
            facts.append(((), dtype))
        else:
            return None
    return tuple(facts)


def run_known(
    kind: type[Op], who: str, operands: Sequence[Any], facts: tuple[Any, ...], arithmetic: str, options: bytes
) -> Array | None:
    """The kernel for operands of these facts, if that is at hand; options are written down. Refusals name `who`."""
    quick = QUICK.get((kind, facts, arithmetic, options))
    if quick is None:
        return None
    resolved, dtype, no_index, kernel = quick
    for a in operands:
        if type(a) is np.ndarray:
            flags = a.flags
            if not (flags.c_contiguous and flags.aligned):
                operands = _packed(resolved, kind, who, operands)
                break
    y: Array = np.empty(resolved.out, dtype)
    try:
        kernel(*operands, y, *no_index)
    except ValueError:  # values that the operator's rules refuse
        with error_context(who, resolved.d):
            resolved.op.check(*(_array_of(a, fact) for a, fact in zip(operands, facts, strict=True)))
        raise
    return y


def _array_of(a: Any, fact: tuple[Shape, np.dtype[Any]]) -> Any:
    """A number as the array that it stands for."""
    return np.asarray(as_dtype(a, fact[1]), fact[1]) if type(a) in (float, int) else a


def _packed(resolved: ResolvedOp, kind: type[Op], who: str, operands: Sequence[Any]) -> list[Any]:
    """The operands as kernels read them."""
    with error_context(who, resolved.d):
        for name, a in zip(names_of(kind, operands), operands, strict=True):
            if type(a) is np.ndarray and not (a.flags.c_contiguous and a.flags.aligned):
                check_fits(a, name)
    return [dense(a) if type(a) is np.ndarray else a for a in operands]


def _forward(resolved: ResolvedOp, arrays: Sequence[Any], y: Array, index: Array | None = None) -> None:
    assert resolved.kernels.forward is not None
    resolved.kernels.forward(*arrays, y, *(no_index(resolved.op) if index is None else (index,)))


def whole(at: Shape) -> Any:
    """The index of a sample, which is an array even where it has no axes."""
    return (*at, ...)


def samples(resolved: ResolvedOp, arrays: Sequence[Array | None]) -> Iterator[tuple[Shape, list[Any]]]:
    """The arrays, sample by sample: those with batch axes without them."""
    batched = resolved.op.batched
    for at in cells_in(resolved.batch):
        yield at, [a[at] if a is not None and p in batched else a for p, a in enumerate(arrays)]


def by_specification(resolved: ResolvedOp, arrays: Sequence[Array | None]) -> Array:
    """An operator on cells of any number type, batch axes included."""
    y = allocate(resolved.out, OBJECT)
    y[...] = 0
    if resolved.op.summed:
        return np.asarray(total([resolved.op.spec(*one) for _, one in samples(resolved, arrays)], y), object)
    for at, one in samples(resolved, arrays):
        y[whole(at)] = resolved.op.spec(*one)
    return y
