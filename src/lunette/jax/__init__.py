"""The ten operators on JAX arrays, under every transformation of JAX: jit, grad, jvp, vjp, vmap, jacfwd, jacrev.

    import lunette.jax as lj
    y = jax.jit(lj.max_pool, static_argnames=("kernel",))(x, kernel=(2, 2))

Arguments, meaning and refusals are those of the functions of the same names in `lunette`. Derivatives are lunette's own
operators, and so are derivatives of these. The result has the dtype of x; indices are int64, or int32 unless JAX is
told to use 64 bits. `calls()` says how compiled code reaches the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from lunette import ops
from lunette.jax import lowering, transform  # noqa: F401 (they tell JAX what the primitive means)
from lunette.jax.operator import public
from lunette.jax.way import calls as calls


def _function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of lunette's on values of JAX."""

    def on_jax(*args: Any, **kwargs: Any) -> Any:
        return public(function, args, kwargs)

    update_wrapper(on_jax, function)
    on_jax.__module__ = __name__
    on_jax.__doc__ = f"`ln.{function.__name__}` on JAX arrays, under JAX's transformations."
    return on_jax


conv = _function(ops.conv)
conv_transpose = _function(ops.conv_transpose)
max_pool = _function(ops.max_pool)
avg_pool = _function(ops.avg_pool)
smooth_max_pool = _function(ops.smooth_max_pool)
lp_pool = _function(ops.lp_pool)
adaptive_avg_pool = _function(ops.adaptive_avg_pool)
adaptive_max_pool = _function(ops.adaptive_max_pool)
global_avg_pool = _function(ops.global_avg_pool)
global_max_pool = _function(ops.global_max_pool)

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "calls",
    "conv",
    "conv_transpose",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "smooth_max_pool",
]
