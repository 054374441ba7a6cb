"""lunette.jax, judged like anybody else: compiled by jit, with jax.jvp and jax.vjp."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.backends.jax import Jax
from lunette.conform.case import Case, Data, source_of


class LunetteJax(Backend):
    """The functions of lunette.jax under jit."""

    name = "lunette-jax"
    module = "jax"
    extra = "jax"
    space = Space(layouts=("contiguous",), thin=3)
    deadline = Jax.deadline
    default_cases = Jax.default_cases
    tries = Jax.tries
    switches = ("LUNETTE_ISA",)
    environment: Mapping[str, str] = Jax.environment

    @property
    def version(self) -> str:
        return f"lunette {version('lunette')}, {super().version}"

    def supports(self, case: Case) -> str | None:
        """Everything is asked."""
        return None

    def empty(self, case: Case) -> str:
        """Refused, by rule M1."""
        return "refused"

    def function(self, case: Case) -> Callable[..., Any]:
        """The operator of a case, on JAX arrays."""
        named = getattr(importlib.import_module("lunette.jax"), case.op)
        indices = {"return_indices": True} if case.mode == "indices" else {}
        return lambda *arrays: named(*arrays, **case.options, **indices)

    def run(self, case: Case, data: Data) -> Any:
        jax, f = self.load(), self.function(case)
        if case.mode == "jvp":
            results = (jax.jit(lambda at, t: jax.jvp(f, at, t)[1])(data.primals, data.tangents),)
        elif case.mode == "vjp":
            results = jax.jit(lambda at, g: jax.vjp(f, *at)[1](g))(data.primals, data.cotangent)
        else:
            y = jax.jit(f)(*data.primals)
            results = y if case.mode == "indices" else (y,)
        return tuple(np.asarray(a) for a in results)

    def source(self, case: Case) -> str:
        p = len(case.shapes)
        names = ", ".join(("x", "w", "b")[:p])
        indices = ", return_indices=True" * (case.mode == "indices")
        options = "".join(f", {n}={source_of(v)}" for n, v in case.options.items()) + indices
        wide = "; jax.config.update('jax_enable_x64', True)" * (case.dtype == "float64")
        start = preamble(case, f"import jax, lunette.jax as lj; from jax import numpy as jnp{wide}")
        start += f"f = lambda {names}: lj.{case.op}({names}{options}); "
        arrays = ", ".join(written(case, at, "jnp") for at in range(p))
        if case.mode == "jvp":
            tangents = ", ".join(written(case, at, "jnp") for at in range(p, 2 * p))
            return f"{start}print(jax.jvp(f, ({arrays},), ({tangents},))[1])"
        if case.mode == "vjp" and case.output is not None:
            return f"{start}print(jax.vjp(f, {arrays})[1]({written(case, p, 'jnp')}))"
        return f"{start}print(f({arrays}))"
