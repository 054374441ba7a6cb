"""Lunette's own kernels, judged like anybody else's."""

from __future__ import annotations

from typing import Any

from lunette.conform.backends.backend import Backend, Space, written
from lunette.conform.case import Case, Data
from lunette.conform.truth import run_lunette


class Lunette(Backend):
    """The public functions on NumPy arrays."""

    name = "lunette"
    space = Space()

    def supports(self, case: Case) -> str | None:
        """Everything is asked."""
        return None

    def empty(self, case: Case) -> str:
        """Refused, by rule M1."""
        return "refused"

    def run(self, case: Case, data: Data) -> Any:
        return run_lunette(case, data)

    def source(self, case: Case) -> str:
        return f"import numpy as np, lunette as ln; print({spoken(case)})"


def spoken(case: Case, name: str = "") -> str:
    """The call in lunette's own words."""
    data = case.arrays()
    arrays = [written(a, case.dtype) for a in data.primals]
    options = "".join(f", {n}={v!r}" for n, v in case.options.items())
    name = name or f"ln.{case.op}"
    if case.mode == "jvp":
        tangents = "".join(f"{written(a, case.dtype)}, " for a in data.tangents)
        return f"{name}_jvp(({', '.join(arrays)},), ({tangents}){options})"
    if case.mode == "vjp":
        g = "None" if data.cotangent is None else written(data.cotangent, case.dtype)
        return f"{name}_vjp(({', '.join(arrays)},), {g}{options})"
    return f"{name}({', '.join(arrays)}{options}{', return_indices=True' if case.mode == 'indices' else ''})"
