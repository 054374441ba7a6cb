"""Operators resolved to the shapes of a call, and remembered: a small operator takes less time than its checks do."""

from __future__ import annotations

import atexit
import marshal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from operator import index
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from lunette import core
from lunette.array.foreign import FLOAT, same_dtype, wide
from lunette.errors import error_context
from lunette.number import (
    OBJECT,
    Array,
    allocate,
    is_real,
)
from lunette.op import (
    Op,
    ResolvedOp,
    resolve,
)
from lunette.window import is_sequence

KERNEL_RANK = 8  # the kernels have no more spatial axes than this; beyond, the specification computes

RESOLVED: dict[Any, ResolvedOp] = {}

QUICK: dict[Any, tuple[ResolvedOp, np.dtype[Any], tuple[None, ...], Callable[..., None]]] = {}
"""What goes the short way: with the dtype of the result, what stands for indices, and the kernel for known dtypes."""

T = TypeVar("T")


class Kept(Generic[T]):
    """What an arithmetic made for resolved operators, found again by their id: it is theirs while they are kept."""

    every: ClassVar[list[Kept[Any]]] = []

    def __init__(self) -> None:
        self.made: dict[int, tuple[ResolvedOp, T]] = {}
        self.every.append(self)

    def get(self, resolved: ResolvedOp) -> T | None:
        found = self.made.get(id(resolved))
        return None if found is None else found[1]

    def keep(self, resolved: ResolvedOp, made: T | None) -> T | None:
        if made is not None:
            if len(self.made) >= 1024:
                self.made.clear()
            self.made[id(resolved)] = resolved, made
        return made


MOST_BYTES = 1 << 30  # of tables that are remembered, as `weight_of` counts them


class Held:
    """What the remembered operators weigh together. Threads that count at once may miss one of them: an estimate."""

    bytes: ClassVar[int] = 0


FORGETTING: list[Callable[[], None]] = []
"""What else there is to drop: caches of the modules above."""


@atexit.register
def forget() -> None:
    """Drop what is remembered; at the end of the process, so that the compiled core sees its tables go."""
    RESOLVED.clear()
    QUICK.clear()
    Held.bytes = 0
    for kept in Kept.every:
        kept.made.clear()
    for drop in FORGETTING:
        drop()


def key_of(kind: type[Op], facts: tuple[Any, ...], arithmetic: str, options: Sequence[Any]) -> Any:
    """What a resolved operator depends on: (shape, dtype) of the arrays and the options; None if it cannot be a key.

    marshal tells 1, 1.0 and True apart, which are equal as keys.
    """
    written = written_down(options)
    return None if written is None else (kind, facts, arithmetic, written)


def written_down(options: object) -> bytes | None:
    """Options as bytes, or None if they cannot be. What holds an array is never what plain options are."""
    try:
        return marshal.dumps(options, 2)  # type: ignore[arg-type]
    except ValueError:
        return None


def is_plain(value: Any, depth: int = 2) -> bool:
    """Numbers and words, and rows and pairs of them: a list may contain itself."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    return depth > 0 and kind in (tuple, list) and len(value) <= 64 and all(is_plain(v, depth - 1) for v in value)


_PLAIN = frozenset((int, float, bool, str, type(None)))


def plain_options(options: Sequence[Any]) -> tuple[Any, ...]:
    """Options as Python's own numbers, strings and tuples, so that they can be kept, compared and written down."""
    return tuple([o if type(o) in _PLAIN else _plain(o) for o in options])


def _plain(value: Any, depth: int = 2) -> Any:
    if type(value) in _PLAIN:
        return value
    if is_sequence(value):
        return tuple(_plain(v, depth - 1) for v in value) if depth and len(value) <= 64 else value
    if isinstance(value, np.generic | np.ndarray):
        return value.item()
    if isinstance(value, str):
        return str(value)
    with suppress(Exception):  # arrays and tensors have __index__ and each its own way to refuse
        return index(value)
    with suppress(OverflowError, ValueError):  # more than all floats, or a signalling NaN: the operator's rules say so
        return float(value) if is_real(value) else value
    return value


def names_of(kind: type[Op], operands: Sequence[Any]) -> Sequence[str]:
    """What refusals call the operands."""
    if kind.variadic:
        return [f"xs[{p}]" for p in range(len(operands))]
    return kind.arrays


def dtype_of(op: Op, arrays: Sequence[Array | None]) -> np.dtype[Any]:
    """The dtype of the result: that of the arrays, unless these only count."""
    if op.dtype is not None:
        named: np.dtype[Any] = np.dtype(op.dtype)
        return named
    measured = [a for p, a in enumerate(arrays) if a is not None and p not in op.integers]
    dtype: np.dtype[Any] = measured[0].dtype
    return dtype


def resolve_cached(
    kind: type[Op], arrays: Sequence[Array | None], arithmetic: str, options: Sequence[Any]
) -> ResolvedOp:
    """`bind`, remembered: a small operator takes less time than its checks do."""
    # Anything with a buffer is bytes to marshal, whatever its dtype: only plain options are remembered.
    if not all(map(is_plain, options)):
        return _resolve_arrays(kind, arrays, options)
    facts = tuple([None if a is None else (a.shape, a.dtype) for a in arrays])
    key = key_of(kind, facts, arithmetic, tuple(options))
    resolved = RESOLVED.get(key)  # looked at once: another thread may forget it
    if resolved is None:
        resolved = _resolve_arrays(kind, arrays, options)
        weight = weight_of(resolved, arithmetic)
        if len(RESOLVED) >= 4096 or Held.bytes + weight > MOST_BYTES:
            forget()
        Held.bytes += weight
        RESOLVED[key] = resolved
        dtype = dtype_of(resolved.op, arrays)
        kernel = resolved.kernels.forward
        fast = arithmetic == "fast" and kernel is not None and isinstance(kernel, core.Task)
        if fast and dtype in FLOAT and not resolved.op.return_indices:
            QUICK[key] = resolved, dtype, no_index(resolved.op), kernel.run  # type: ignore[union-attr]
    return resolved


def weight_of(resolved: ResolvedOp, arithmetic: str) -> int:
    """About how many bytes are remembered with a resolved operator: what windows of each row and column read.

    Those tables have about 40 bytes for every place along an axis, of x and of the result. Other arithmetics have as
    much again for what they make of the kernels.
    """
    if not resolved.d or not resolved.op.origin.planar:
        return 1 << 10
    places = sum(sum(s[-resolved.d :]) for s in (*resolved.shapes[:1], resolved.out) if s is not None)
    return (1 << 10) + 40 * places * (1 if arithmetic == "fast" else 2)


def resolved_before(
    kind: type[Op], arrays: Sequence[Array | None], arithmetic: str, options: Sequence[Any]
) -> ResolvedOp | None:
    """What `bound_to` remembers."""
    facts = tuple([None if a is None else (a.shape, a.dtype) for a in arrays])
    return RESOLVED.get(key_of(kind, facts, arithmetic, options))


def _resolve_arrays(kind: type[Op], arrays: Sequence[Array | None], options: Sequence[Any]) -> ResolvedOp:
    resolved = resolve(kind, [None if a is None else a.shape for a in arrays], 2, options)
    with error_context(kind.name, resolved.d):
        dtype = dtype_of(resolved.op, arrays)
        for at, (name, a) in enumerate(zip(names_of(kind, arrays), arrays, strict=True)):
            if a is not None and at not in kind.integers:
                same_dtype(dtype, a, name)
        if dtype == OBJECT:
            return resolved
        op = resolved.op.cast(dtype)
        allocate(resolved.out, dtype)  # before the kernels make tables of as many rows
        if 0 in resolved.out or (resolved.d or 0) > KERNEL_RANK:
            return replace(resolved, op=op)
        return replace(resolved, op=op, kernels=op.kernels(wide(dtype), prod(resolved.batch), resolved.shapes))


def no_index(op: Op) -> tuple[None, ...]:
    """What a kernel that could give indices takes in their place."""
    return (None,) if op.has_indices else ()
