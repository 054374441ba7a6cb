"""JAX on the CPU: `lax` and `jnp`, with jax.jvp and jax.vjp."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.dialects import Call


class Jax(Backend):
    """`jax.lax`, as it is; averages are sums divided afterwards, biases are added afterwards."""

    name = "jax"
    module = "jax"
    extra = "jax"
    dialect = "jax"
    space = Space(
        ops=("conv", "conv_transpose", "max_pool", "avg_pool", "global_avg_pool", "global_max_pool"),
        modes=("forward", "jvp", "vjp"),
        layouts=("contiguous",),
        ties={"max_pool": ("first",), "global_max_pool": ("split",)},
        thin=3,
    )
    deadline = 40.0
    default_cases = 900
    tries = 120
    switches = ("XLA_FLAGS",)
    environment: Mapping[str, str] = {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    }

    def has_indices(self, call: Call) -> bool:
        """There are none."""
        return False

    def supports(self, case: Case) -> str | None:
        """Averages are composed here: what 0/0 is in a window without cells is nothing that JAX says."""
        if case.kind.averages and case.misses:
            return "lax sums: an average over no cell is not its own"
        return super().supports(case)

    def function(self, case: Case) -> Callable[..., Any]:
        """The operator of a case, on JAX arrays."""
        call = self.call(case)
        assert isinstance(call, Call), call
        jax = self.load()
        jnp = importlib.import_module("jax.numpy")
        arguments = dict(call.arguments)
        if call.function.startswith("jnp."):
            named = getattr(jnp, call.function.removeprefix("jnp."))
            return lambda x: named(x, **arguments)
        lax = importlib.import_module("jax.lax")
        if call.function == "lax.reduce_window":
            return _pool(lax, jnp, arguments, case)
        convolve = getattr(lax, call.function.removeprefix("lax."))

        def with_bias(x: Any, w: Any, b: Any = None) -> Any:
            y = convolve(x, w, **arguments)
            return y if b is None else y + b.reshape(-1, *(1,) * case.d)

        assert jax is not None
        return with_bias

    def run(self, case: Case, data: Data) -> Any:
        jax, jnp = self.load(), importlib.import_module("jax.numpy")
        f = self.function(case)
        primals = tuple(jnp.asarray(a) for a in data.primals)
        if case.mode == "jvp":
            return (np.asarray(jax.jvp(f, primals, tuple(jnp.asarray(a) for a in data.tangents))[1]),)
        if case.mode == "vjp":
            _, pull = jax.vjp(f, *primals)
            return tuple(np.asarray(a) for a in pull(jnp.asarray(data.cotangent)))
        return (np.asarray(f(*primals)),)

    def source(self, case: Case) -> str:
        call = self.call(case)
        if not isinstance(call, Call):
            return str(call)
        said = dict(call.arguments)
        p = len(case.shapes)
        names = ", ".join(("x", "w", "b")[:p])
        if call.function == "lax.reduce_window":
            init, word, by = said.pop("init_value"), said.pop("computation"), said.pop("divide_by", None)
            options = "".join(f", {n}={source_of(v)}" for n, v in said.items())
            start = f"jnp.array({'-jnp.inf' if init == '-inf' else '0'}, jnp.{case.dtype})"

            def windows(x: str) -> str:
                return f"lax.reduce_window({x}, {start}, lax.{word}{options})"

            count = {"kernel": str(prod(case.per_axis("kernel"))), "cells": windows("jnp.ones_like(x)")}.get(
                by, str(by)
            )
            body = windows("x") + (f" / {count}" if by is not None else "")
        else:
            options = "".join(f", {n}={source_of(v)}" for n, v in said.items())
            body = f"{call.function}({', '.join(('x', 'w')[:p])}{options})"
            body += f" + b.reshape({(-1, *(1,) * case.d)})" * (p == 3)
        wide = "; jax.config.update('jax_enable_x64', True)" * (case.dtype == "float64")
        start = preamble(case, f"import jax; from jax import lax, numpy as jnp{wide}") + f"f = lambda {names}: {body}; "
        arrays = ", ".join(written(case, at, "jnp") for at in range(p))
        if case.mode == "jvp":
            tangents = ", ".join(written(case, at, "jnp") for at in range(p, 2 * p))
            return f"{start}print(jax.jvp(f, ({arrays},), ({tangents},))[1])"
        if case.mode == "vjp" and case.output is not None:
            return f"{start}print(jax.vjp(f, {arrays})[1]({written(case, p, 'jnp')}))"
        return f"{start}print(f({arrays}))"


def _pool(lax: Any, jnp: Any, arguments: dict[str, Any], case: Case) -> Callable[..., Any]:
    """reduce_window; the words for its monoid and its divisor become functions and numbers."""
    init, computation = arguments.pop("init_value"), arguments.pop("computation")
    by = arguments.pop("divide_by", None)
    monoid = {"max": lax.max, "add": lax.add}[computation]

    def windows(x: Any) -> Any:
        start = jnp.asarray(-np.inf if init == "-inf" else 0, x.dtype)
        return lax.reduce_window(x, start, monoid, **arguments)

    def pool(x: Any) -> Any:
        y = windows(x)
        if by is None:
            return y
        count = prod(case.per_axis("kernel")) if by == "kernel" else windows(jnp.ones_like(x)) if by == "cells" else by
        return y / jnp.asarray(count, x.dtype)

    return pool
