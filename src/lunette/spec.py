"""The executable specification: every operator on one sample, on any number type, and the seeds' names for them.

    >>> from fractions import Fraction
    >>> from lunette import spec
    >>> spec.avg_pool([[1, 2, 3, 4]], kernel=2).tolist()
    [[Fraction(3, 2), Fraction(7, 2)]]

Operators have the names and arguments of the public functions. x has no batch axes: it is (channels, *space), or for
pools whose kernel is a tuple (*space) alone, which is one channel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lunette import ops, seeds
from lunette.errors import DTypeError, ShapeError, error_context
from lunette.number import OBJECT, Array, allocate, cells_of, meeting
from lunette.op import (
    Op,
    Request,
    ResolvedOp,
    check_arithmetic,
    check_shape,
    check_tangents,
    known_rank,
    outline,
    request,
    request_at,
    resolve,
)

# ---- the operators


class _Sample:
    """Operands of one request as arrays of numbers, bound without batch axes."""

    def __init__(self, asked: Request) -> None:
        kind = asked.kind
        with error_context(kind.name, lambda: known_rank(kind, map(outline, asked.operands), 1, asked.options)):
            check_arithmetic(asked)
            x = cells_of(asked.operands[0])
            self.arrays: list[Array | None] = [x]
            for name, a in zip(kind.arrays[1:], asked.operands[1:], strict=True):
                self.arrays.append(None if a is None else cells_of(a, name))
            d = kind.rank([None if a is None else a.shape for a in self.arrays], 1, *asked.options)
        # The seeds have a form without channels for every pool; here it is one channel that is dropped again.
        self.single = len(kind.arrays) - len(kind.scalars) == 1 and x.ndim == d
        self.arrays[0] = self.widen(x)
        self.resolved: ResolvedOp = resolve(
            kind, [None if a is None else a.shape for a in self.arrays], 1, asked.options
        )
        if self.resolved.batch:
            raise ShapeError(
                "W3",
                "one sample, x without batch axes",
                f"x.shape={x.shape}",
                "The public functions take batches.",
                who=kind.name,
                d=d,
            )
        with self.computing():
            self.resolved.op.check(*self.arrays)

    @contextmanager
    def computing(self) -> Iterator[None]:
        with error_context(self.resolved.op.name, self.resolved.d), np.errstate(all="ignore"), meeting(*self.arrays):
            yield

    def new(self) -> Array:
        return allocate(self.resolved.out, OBJECT)

    def widen(self, a: Array) -> Array:
        return a[None] if self.single else a

    def narrow(self, a: Array) -> Array:
        return a[0] if self.single else a


def _forward(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    @functools.wraps(function)
    def spec(*arrays: Any, **options: Any) -> Any:
        sample = _Sample(request(function, arrays, options, 1))
        op = sample.resolved.op
        with sample.computing():
            y = index = sample.new()
            if y.size:
                y = op.spec(*sample.arrays)
            if not op.return_indices:
                return sample.narrow(y)
            x = sample.arrays[0]
            if y.size and x is not None:
                index = op.indices(x)
            return sample.narrow(y), sample.narrow(index.astype(np.int64))

    return spec


def _jvp(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **options: Any) -> Array:
        sample = _Sample(request_at(function, kind, primals, options, 1))
        with sample.computing():
            check_tangents(tangents, primals)
            names = [f"the tangent of {n}" for n in kind.arrays]
            directions = [None if t is None else cells_of(t, n) for t, n in zip(tangents, names, strict=False)]
            directions += [None] * (len(sample.arrays) - len(directions))
            if directions[0] is not None:
                directions[0] = sample.widen(directions[0])
            for name, a, t in zip(names, sample.arrays, directions, strict=True):
                if t is not None:
                    check_shape(name, () if a is None else a.shape, t.shape)
            y = sample.new()
            if y.size == 0 or all(t is None for t in directions):
                y[...] = 0
                return sample.narrow(y)
            return sample.narrow(sample.resolved.op.jvp(sample.arrays, directions))

    return _named(jvp, function, "jvp")


def _vjp(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    def vjp(primals: Sequence[Any], cotangent: Any, **options: Any) -> tuple[Array, ...]:
        sample = _Sample(request_at(function, kind, primals, options, 1))
        with sample.computing():
            if cotangent is None:
                raise DTypeError("O3", "a cotangent", "None", f"Pass an array of shape {sample.resolved.out}.")
            g = sample.widen(cells_of(cotangent, "the cotangent"))
            check_shape("the cotangent", sample.resolved.out, g.shape)
            first, *rest = sample.resolved.op.vjp(sample.arrays, g)
            return (sample.narrow(first), *rest)[: len(primals)]

    return _named(vjp, function, "vjp")


def _named(derivative: Callable[..., Any], function: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    derivative.__name__ = derivative.__qualname__ = f"{function.__name__}_{suffix}"
    derivative.__doc__ = f"The {suffix.upper()} of `{function.__name__}` on one sample of any number type."
    return derivative


_MADE = {"": _forward, "_jvp": _jvp, "_vjp": _vjp}


def _functions(kind: type[Op], function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {f"{kind.name}{suffix}": make(function, kind) for suffix, make in _MADE.items()}


for _kind, _function in ops.ALL.items():
    globals().update(_functions(_kind, _function))

globals().update(seeds.over(globals()))

_later = functools.lru_cache(_functions)


def __getattr__(name: str) -> Callable[..., Any]:
    """Of operators that were registered since."""
    for kind, function in ops.ALL.items():
        if name.startswith(kind.name) and name in (made := _later(kind, function)):
            return made[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
