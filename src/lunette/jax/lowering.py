"""What the primitive is compiled to: a call of the kernel, or of Python, which calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from lunette.array import run
from lunette.errors import DTypeError
from lunette.jax.operator import Call, operator_p


def _by_callback(*operands: Any, call: Call) -> Any:
    """Python is asked, and needs its lock."""
    dtype = np.dtype(operands[0].dtype)
    results = [jax.ShapeDtypeStruct(shape, kind) for shape, kind in call.results(operands)]

    def compute(*arrays: Any) -> Any:
        given = call.every([np.asarray(a) for a in arrays], lambda s: np.broadcast_to(np.zeros((), dtype), s))
        found = run(call.kind, given, call.arithmetic, call.options)
        return [np.asarray(r, s.dtype) for r, s in zip(found if len(results) > 1 else (found,), results, strict=True)]

    return jax.pure_callback(compute, results, *operands)


_WAYS = {"callback": _by_callback}


def _lower(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    lowered: Sequence[Any] = mlir.lower_fun(_WAYS[call.way], multiple_results=True)(ctx, *operands, call=call)
    return lowered


def _refuse(ctx: Any, *operands: Any, call: Call) -> Sequence[Any]:
    """Rule D5."""
    platforms = ", ".join(ctx.module_context.platforms)
    hint = "Move them with jax.device_put(x, jax.devices('cpu')[0])."
    raise DTypeError("D5", "arrays on the CPU", f"arrays on {platforms}", hint, who=call.name)


mlir.register_lowering(operator_p, _refuse)
mlir.register_lowering(operator_p, _lower, platform="cpu")
