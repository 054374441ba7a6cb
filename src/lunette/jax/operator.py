"""One JAX primitive for all operators and their derivatives: which one it is, and its options, are its parameter.

| rule | says                                             |
|------|--------------------------------------------------|
| J1   | arithmetic under JAX is "fast" or "rounded"      |

`InJax` stands for a value of JAX while lunette's own rules (`Op.push`, `Op.pull`) are asked: what they apply to it
becomes a call of the primitive, or of jax.numpy where it is no window operator. So derivatives of derivatives are calls
of the primitive, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive

from lunette.array import FLOAT, is_half, plain_options, same_dtype
from lunette.errors import ArgumentError, DTypeError, error_context
from lunette.jax.way import calls
from lunette.number import as_dtype, is_masked, is_real
from lunette.op import Op, ResolvedOp, check_arithmetic, known_rank, outline, request, resolve
from lunette.ops.binary import Add, Div, Equal, Gate, Mul, Sub
from lunette.ops.broadcast import BroadcastTo, Sum
from lunette.ops.layout import Reshape
from lunette.ops.power import Power
from lunette.ops.unary import Abs
from lunette.window import Shape

BETWEEN: Final[Mapping[type[Op], Callable[..., Any]]] = {
    Add: jnp.add,
    Sub: jnp.subtract,
    Mul: jnp.multiply,
    Div: jnp.divide,
    Equal: lambda x, y: jnp.equal(x, y).astype(x.dtype),
    Gate: lambda x, t: jnp.where(x > 0, t, jnp.where(jnp.isnan(x), x, jnp.zeros_like(x)) * t),
    Abs: jnp.abs,
    Power: jnp.power,
    Sum: lambda x, axes, keepdims: jnp.sum(x, axes, keepdims=keepdims),
    Reshape: jnp.reshape,
    BroadcastTo: jnp.broadcast_to,
}
"""What derivatives of the window operators apply beside them, in JAX's words."""


@dataclass(frozen=True, slots=True)
class Call:
    """The parameter of the primitive, whose operands are the arrays that are read."""

    name: str
    kind: type[Op] = field(repr=False)
    given: tuple[Shape | bool | None, ...]
    """For every array of the operator: True for an operand, None if it is absent, or its shape if only that counts."""
    options: tuple[Any, ...]
    """Those of `Op.of`, which tell the number of spatial axes whatever axes x has."""
    arithmetic: str
    way: str
    """How compiled code calls the kernel."""

    def every(self, operands: Sequence[Any], shape_only: Callable[[Shape], Any]) -> list[Any]:
        """One entry for every array of the operator: the operands in their places."""
        found = iter(operands)
        return [None if g is None else shape_only(g) if isinstance(g, tuple) else next(found) for g in self.given]

    def resolved(self, operands: Sequence[Any]) -> ResolvedOp:
        """The operator, resolved for the shapes of the operands."""
        return resolve(self.kind, self.every([tuple(a.shape) for a in operands], tuple), 2, self.options)

    def results(self, operands: Sequence[Any]) -> list[tuple[Shape, np.dtype[Any]]]:
        """Shapes and dtypes: the values, and places of winners where they are asked for."""
        resolved = self.resolved(operands)
        values = (resolved.out, np.dtype(operands[0].dtype))
        if not resolved.op.return_indices:
            return [values]
        return [values, (resolved.out, np.dtype(jax.dtypes.canonicalize_dtype(np.int64)))]


operator_p = Primitive("lunette")
operator_p.multiple_results = True


@operator_p.def_abstract_eval
def _abstract(*avals: Any, call: Call) -> list[Any]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in call.results(avals)]


_config: Any = jax.config


@operator_p.def_impl
def _computed(*operands: Any, call: Call) -> Any:
    if _config.jax_disable_jit:  # under which this would call itself
        with jax.disable_jit(False):
            return _compiled(call)(*operands)
    return _compiled(call)(*operands)


@lru_cache(maxsize=4096)
def _compiled(call: Call) -> Callable[..., Any]:
    return jax.jit(lambda *operands: operator_p.bind(*operands, call=call))


def bind_operator(kind: type[Op], values: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> list[Any]:
    """The results of an operator on values of JAX, None, and jax.ShapeDtypeStruct for what is not read."""
    shapes = [None if v is None else tuple(v.shape) for v in values]
    resolved = resolve(kind, shapes, 2, options)
    told = options if resolved.d is None else kind.told(resolved.d, tuple(options))
    given = tuple(None if v is None else _is_read(kind, p, v) or tuple(v.shape) for p, v in enumerate(values))
    way = calls() if arithmetic == "fast" else "callback"
    call = Call(kind.name, kind, given, plain_options(told), arithmetic, way)
    results: list[Any] = operator_p.bind(*(v for v, g in zip(values, given, strict=True) if g is True), call=call)
    return results


def _is_read(kind: type[Op], at: int, value: Any) -> bool:
    """Of what an operator does not read, no array needs to be kept, nor handed over."""
    return kind.reads(at) and not isinstance(value, jax.ShapeDtypeStruct)


# ---- lunette's rules on values of JAX


class InJax:
    """A value of JAX, or the shape of one, as lunette's rules see it."""

    __slots__ = ("arithmetic", "value")

    level: ClassVar[int] = sys.maxsize - 1

    def __init__(self, value: Any, arithmetic: str) -> None:
        self.value, self.arithmetic = value, arithmetic

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        dtype: np.dtype[Any] = np.dtype(self.value.dtype)
        return dtype

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> Any:
        values = [o.value if isinstance(o, InJax) else o for o in operands]
        if kind in BETWEEN:
            return InJax(BETWEEN[kind](*values, *options), self.arithmetic)
        return InJax(bind_operator(kind, values, self.arithmetic, options)[0], self.arithmetic)


# ---- the door


def public(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A public function on values of JAX."""
    asked = request(function, args, kwargs)
    kind = asked.kind
    with error_context(kind.name, lambda: known_rank(kind, map(outline, asked.operands), 2, asked.options)):
        check_arithmetic(asked)
        if asked.arithmetic == "interval":
            hint = "Boxes of arrays go to lunette's own functions."
            raise ArgumentError("J1", 'arithmetic "fast" or "rounded" under JAX', 'arithmetic="interval"', hint)
        values: list[Any] = []
        for at, (name, a) in enumerate(zip(kind.arrays, asked.operands, strict=True)):
            plain = name in kind.scalars and is_real(a)
            values.append(a if plain or (a is None and at > 0) else _value(a, name))
        dtype = np.dtype(values[0].dtype)
        for at, name in enumerate(kind.arrays):
            if is_real(values[at]):
                values[at] = np.asarray(as_dtype(values[at], dtype), dtype)
            elif name in kind.scalars and values[at].aval.weak_type:  # a Python number that JAX traces
                values[at] = values[at].astype(dtype)
            if values[at] is not None:
                same_dtype(dtype, values[at], name)
        # What is known before anything runs is refused in words that compiled code cannot say.
        if kind.scalars and not isinstance(values[1], jax.core.Tracer):
            resolved = resolve(kind, [tuple(v.shape) for v in values], 2, asked.options)
            resolved.op.check(np.zeros(0, dtype), np.asarray(values[1]))
        results = bind_operator(kind, values, asked.arithmetic, asked.options)
    return results[0] if len(results) == 1 else tuple(results)


def _value(a: Any, name: str) -> Any:
    """Rule D1."""
    plain = isinstance(a, np.ndarray | np.generic) and not is_masked(a) and a.dtype != object
    if not plain and not isinstance(a, jax.Array) and not hasattr(a, "__jax_array__"):
        got = f"{name} of type {type(a).__name__}"
        raise DTypeError("D1", "arrays of JAX or NumPy", got, f"Pass jnp.asarray({name}).")
    dtype = np.dtype(a.dtype).newbyteorder("=")
    if dtype not in FLOAT and not is_half(dtype):
        hint = f"Pass {name}.astype(jnp.float32)."
        raise DTypeError("D1", "float16, bfloat16, float32 or float64", f"{name} of dtype {a.dtype}", hint)
    return a if isinstance(a, jax.Array) else jnp.asarray(a.astype(a.dtype.newbyteorder("=")) if plain else a)
