"""What the primitive is compiled to: a call of the kernel, or of Python, which calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from lunette import _native
from lunette.array import resolve_cached, run, wide
from lunette.errors import DTypeError
from lunette.jax.operator import Call, operator_p
from lunette.jax.way import TARGET
from lunette.number import Array
from lunette.window import Shape


def stand_in(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """An array of that shape that takes no memory, of zeros."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _by_callback(*operands: Any, call: Call) -> Any:
    """Python is asked, and needs its lock."""
    dtype = np.dtype(operands[0].dtype)
    results = [jax.ShapeDtypeStruct(shape, kind) for shape, kind in call.results(operands)]

    def compute(*arrays: Any) -> Any:
        given = call.every([np.asarray(a) for a in arrays], lambda s: stand_in(s, dtype))
        found: Any = _native.with_plain_floats(lambda: run(call.kind, given, call.arithmetic, call.options))
        return [np.asarray(r, s.dtype) for r, s in zip(found if len(results) > 1 else (found,), results, strict=True)]

    return jax.pure_callback(compute, results, *operands)


def _by_ffi(*operands: Any, call: Call) -> Any:
    """XLA calls the kernel on its own buffers."""
    dtype = np.dtype(operands[0].dtype)
    results = call.results(operands)
    if 0 in results[0][0]:
        return [jnp.zeros(shape, kind) for shape, kind in results]
    shapes = call.every([a.shape for a in operands], tuple)
    resolved = resolve_cached(
        call.kind, [None if s is None else stand_in(s, dtype) for s in shapes], "fast", call.options
    )
    kernel = resolved.kernels.forward
    if not isinstance(kernel, _native.Task):  # the specification computes
        return _by_callback(*operands, call=call)
    # The kernel's arguments are all arrays of the operator, then the results; ours are those that are read.
    buffers = iter(range(len(operands) + len(results)))
    places = [next(buffers) if g is True else -1 for g in call.given] + [next(buffers)]
    if resolved.op.has_indices:
        places.append(next(buffers, -1))
    # A name that says all that the kernel depends on: code that JAX finds in a cache of an earlier process finds the
    # kernel that tracing it has kept, or none.
    name = f"{call.name} {dtype} {shapes} {call.given} {call.options}"
    _native.keep_task(name, kernel.taking(places, len(operands) + len(results)))
    made = [jax.ShapeDtypeStruct(shape, wide(kind) if kind == dtype else np.int64) for shape, kind in results]
    if wide(dtype) == dtype:
        found = jax.ffi.ffi_call(TARGET, made)(*operands, name=name)
    else:
        # Half precision is rounded once: the barriers keep XLA from leaving out a rounding before or behind.
        widened = [a.astype(wide(dtype)) for a in jax.lax.optimization_barrier(operands)]
        found = jax.ffi.ffi_call(TARGET, made)(*widened, name=name)
    narrow = [a.astype(kind) for a, (_, kind) in zip(found, results, strict=True)]
    return narrow if wide(dtype) == dtype else list(jax.lax.optimization_barrier(narrow))


def wide_integers() -> Any:
    """A context in which there are 64-bit integers, which kernels count with."""
    at: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # where it was before JAX 0.8
    return at.enable_x64(True)


_WAYS = {"callback": _by_callback, "ffi": _by_ffi}


def _lower(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    lowered: Sequence[Any] = mlir.lower_fun(_WAYS[call.way], multiple_results=True)(ctx, *operands, call=call)
    return lowered


def refuse_platform(ctx: Any, *operands: Any, **parameters: Any) -> Sequence[Any]:
    """Rule D5."""
    platforms = ", ".join(ctx.module_context.platforms)
    hint = "Move them with jax.device_put(x, jax.devices('cpu')[0])."
    who = parameters["call"].name if "call" in parameters else "Program"
    raise DTypeError("D5", "arrays on the CPU", f"arrays on {platforms}", hint, who=who)


mlir.register_lowering(operator_p, refuse_platform)
mlir.register_lowering(operator_p, _lower, platform="cpu")
