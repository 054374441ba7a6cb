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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette import ops, seeds
from lunette.errors import ShapeError, speaking
from lunette.number import OBJECT, Array, allocate, cells_of
from lunette.op import Bound, Op, Request, bind, check_tangents, request, request_at

# ---- the operators


class _Sample:
    """Operands of one request as arrays of numbers, bound without batch axes."""

    def __init__(self, asked: Request) -> None:
        kind = asked.kind
        with speaking(kind.name):
            self.arrays = [
                None if a is None else cells_of(a, n) for a, n in zip(asked.operands, kind.arrays, strict=True)
            ]
            x = self.arrays[0]
            assert x is not None
            d = kind.rank([None if a is None else a.shape for a in self.arrays], 1, *asked.options)
        # The seeds have a form without channels for every pool; here it is one channel that is dropped again.
        self.single = len(kind.arrays) - len(kind.scalars) == 1 and x.ndim == d
        self.arrays[0] = self.widen(x)
        self.bound: Bound = bind(kind, [None if a is None else a.shape for a in self.arrays], 1, asked.options)
        with speaking(kind.name, d):
            allocate(self.bound.out, OBJECT)  # the room that the numbers will take, or a refusal
        if self.bound.batch:
            raise ShapeError(
                "W3",
                "one sample, x without batch axes",
                f"x.shape={x.shape}",
                "The public functions take batches.",
                who=kind.name,
                d=d,
            )

    def widen(self, a: Array) -> Array:
        return a[None] if self.single else a

    def narrow(self, a: Array) -> Array:
        return a[0] if self.single else a


def _forward(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    @functools.wraps(function)
    def spec(*arrays: Any, **options: Any) -> Any:
        sample = _Sample(request(function, arrays, options))
        op = sample.bound.op
        with speaking(kind.name, sample.bound.d), np.errstate(all="ignore"):
            y = sample.narrow(op.spec(*sample.arrays))
            if not getattr(op, "return_indices", False):
                return y
            index = op.indices(sample.arrays[0])  # type: ignore[attr-defined]
            return y, sample.narrow(index.astype(np.int64))

    return spec


def _jvp(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **options: Any) -> Array:
        sample = _Sample(request_at(function, kind, primals, options))
        with speaking(kind.name, sample.bound.d), np.errstate(all="ignore"):
            check_tangents(tangents, primals)
            directions = [None if t is None else cells_of(t, "a tangent") for t in tangents]
            directions += [None] * (len(sample.arrays) - len(directions))
            if directions[0] is not None:
                directions[0] = sample.widen(directions[0])
            _same_shapes(sample.arrays, directions, kind)
            if all(t is None for t in directions):
                return sample.narrow(np.full(sample.bound.out, 0, object))
            return sample.narrow(sample.bound.op.jvp(sample.arrays, directions))

    return _named(jvp, function, "jvp")


def _vjp(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    def vjp(primals: Sequence[Any], cotangent: Any, **options: Any) -> tuple[Array, ...]:
        sample = _Sample(request_at(function, kind, primals, options))
        with speaking(kind.name, sample.bound.d), np.errstate(all="ignore"):
            g = sample.widen(cells_of(cotangent, "the cotangent"))
            if g.shape != sample.bound.out:
                raise ShapeError("D7", f"a cotangent of shape {sample.bound.out}", f"shape {g.shape}")
            first, *rest = sample.bound.op.vjp(sample.arrays, g)
            return (sample.narrow(first), *rest)[: len(primals)]

    return _named(vjp, function, "vjp")


def _same_shapes(primals: Sequence[Array | None], tangents: Sequence[Array | None], kind: type[Op]) -> None:
    for name, a, t in zip(kind.arrays, primals, tangents, strict=True):
        if t is not None and (a is None or a.shape != t.shape):
            raise ShapeError("D7", f"a tangent of {name} of shape {None if a is None else a.shape}", f"shape {t.shape}")


def _named(derivative: Callable[..., Any], function: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    derivative.__name__ = derivative.__qualname__ = f"{function.__name__}_{suffix}"
    derivative.__doc__ = f"The {suffix.upper()} of `{function.__name__}` on one sample of any number type."
    return derivative


for _kind, _function in ops.ALL.items():
    globals()[_kind.name] = _forward(_function, _kind)
    globals()[f"{_kind.name}_jvp"] = _jvp(_function, _kind)
    globals()[f"{_kind.name}_vjp"] = _vjp(_function, _kind)

globals().update(seeds.over(globals()))


if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
