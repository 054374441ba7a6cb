"""What JAX's transformations make of the primitive: derivatives by lunette's own rules, and batches.

A batch that `vmap` adds is one of lunette's own batch axes where the operator has them. Convolutions with weights per
sample are one convolution with as many groups. What is left (beta per sample) runs sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching

from lunette.jax.operator import Call, InJax, operator_p
from lunette.op import Op
from lunette.ops import Conv
from lunette.ops.derivative import Derivative, Vjp

# ---- derivatives


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    primals = [jnp.asarray(p) for p in primals]  # of a Python number, JAX gives the number itself
    results = operator_p.bind(*primals, call=call)
    at = _operands(call, primals)
    moving = [None if type(t) is ad.Zero else InJax(jnp.asarray(t), call.arithmetic) for t in tangents]
    every = call.every(moving, lambda _: None)
    t = call.kind.push(call.options, at, InJax(results[0], call.arithmetic), every)
    return results, [no_tangent(results[0]) if t is None else t.value, *map(no_tangent, results[1:])]


def no_tangent(result: Any) -> Any:
    """No tangent; that of an integer has a dtype of its own."""
    measured = jnp.issubdtype(result.dtype, jnp.floating)
    return ad.Zero(jax.core.ShapedArray(result.shape, result.dtype if measured else jax.dtypes.float0))


def _transpose(cotangents: Sequence[Any], *operands: Any, call: Call) -> list[Any]:
    """The call is linear in the operands that are undefined; their values do not matter to the transpose."""
    g = cotangents[0]
    linear = [ad.is_undefined_primal(a) for a in operands]
    if type(g) is ad.Zero:
        return [ad.Zero(a.aval) if undefined else None for a, undefined in zip(operands, linear, strict=True)]
    known = [
        jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) if undefined else a
        for a, undefined in zip(operands, linear, strict=True)
    ]
    at = _operands(call, known)
    places = [p for p, v in enumerate(call.given) if v is True]
    back: list[Any] = []
    for p, a, undefined in zip(places, operands, linear, strict=True):
        given = call.kind.pull(call.options, at, None, InJax(g, call.arithmetic), p) if undefined else None
        back.append(given.value if given is not None else ad.Zero(a.aval) if undefined else None)
    return back


def _operands(call: Call, values: Sequence[Any]) -> list[Any]:
    """All arrays of the operator, as lunette's rules take them."""
    dtype = values[0].dtype
    every = call.every(values, lambda shape: jax.ShapeDtypeStruct(shape, dtype))
    return [None if v is None else InJax(v, call.arithmetic) for v in every]


ad.primitive_jvps[operator_p] = _jvp
ad.primitive_transposes[operator_p] = _transpose


# ---- batches


def _batch(operands: Sequence[Any], axes: Sequence[int | None], *, call: Call) -> tuple[list[Any], list[int]]:
    n = next(a.shape[axis] for a, axis in zip(operands, axes, strict=True) if axis is not None)
    places = [p for p, g in enumerate(call.given) if g is True]
    mapped = {p for p, axis in zip(places, axes, strict=True) if axis is not None}
    front = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(operands, axes, strict=True)]
    if mapped <= set(call.kind.batched) and not call.kind.summed:
        return _batch_in_front(front, axes, call, n)
    if issubclass(_base(call.kind), Conv) and n > 0:
        return _batch_in_groups(front, axes, call, n)
    return _one_by_one(operands, axes, call=call)


def sample_by_sample(primitive: Any) -> Callable[..., tuple[list[Any], list[int]]]:
    """The rule for a primitive that has no batches: a loop."""

    def batch(operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> tuple[list[Any], list[int]]:
        front = [jnp.moveaxis(a, axis, 0) for a, axis in zip(operands, axes, strict=True) if axis is not None]

        def one(moving: Sequence[Any]) -> list[Any]:
            found = iter(moving)
            each = [a if axis is None else next(found) for a, axis in zip(operands, axes, strict=True)]
            results: list[Any] = primitive.bind(*each, **parameters)
            return results

        results = jax.lax.map(one, front)
        return results, [0] * len(results)

    return batch


_one_by_one = sample_by_sample(operator_p)


def _base(kind: type[Op]) -> type[Op]:
    """The operator that a derivative is of."""
    return kind.base if issubclass(kind, Derivative) else kind


def _batch_in_front(front: Sequence[Any], axes: Sequence[Any], call: Call, n: int) -> tuple[list[Any], list[int]]:
    """One more batch axis: arrays that have batch axes get it, whether they are mapped or not."""
    batched, found = call.kind.batched, iter(zip(front, axes, strict=True))
    operands: list[Any] = []
    given: list[Any] = []
    for p, g in enumerate(call.given):
        if g is True:
            a, axis = next(found)
            operands.append(jnp.broadcast_to(a, (n, *a.shape)) if axis is None and p in batched else a)
        given.append((n, *g) if isinstance(g, tuple) and p in batched else g)
    results = operator_p.bind(*operands, call=replace(call, given=tuple(given)))
    return results, [0] * len(results)


def _batch_in_groups(front: Sequence[Any], axes: Sequence[Any], call: Call, n: int) -> tuple[list[Any], list[int]]:
    """Sample k is the k-th part of the groups: its channels, its rows of w and its cells of b stand side by side."""
    found = iter(zip(front, axes, strict=True))
    w = call.every([a.shape[axis is not None :] for a, axis in zip(front, axes, strict=True)], tuple)[1]
    d = len(w) - 2
    batched = call.kind.batched
    operands: list[Any] = []
    given: list[Any] = []
    for p, g in enumerate(call.given):
        if g is True:
            a, axis = next(found)
            a = jnp.broadcast_to(a, (n, *a.shape)) if axis is None else a
            operands.append(_folded(a, -d - 1 if p in batched else 1))
        given.append(_widened(g, len(g) - d - 1 if p in batched else 0, n) if isinstance(g, tuple) else g)
    *options, groups = call.options
    (y,) = operator_p.bind(*operands, call=replace(call, given=tuple(given), options=(*options, groups * n)))
    at = y.ndim - d - 1 if not (issubclass(call.kind, Vjp) and call.kind.wrt > 0) else 0
    return [y.reshape(*y.shape[:at], n, y.shape[at] // n, *y.shape[at + 1 :])], [at]


def _folded(a: Any, channels: int) -> Any:
    """The first axis, joined with that of the channels."""
    at = channels % a.ndim
    moved = jnp.moveaxis(a, 0, at - 1)
    return moved.reshape(*moved.shape[: at - 1], moved.shape[at - 1] * moved.shape[at], *moved.shape[at + 1 :])


def _widened(shape: tuple[int, ...], at: int, n: int) -> tuple[int, ...]:
    """The shape of what `_folded` would make of n arrays."""
    return (*shape[:at], shape[at] * n, *shape[at + 1 :])


batching.primitive_batchers[operator_p] = _batch
