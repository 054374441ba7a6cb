"""Lunette's own kernels, judged like anybody else's."""

from __future__ import annotations

from typing import Any

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
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
        return f"{preamble(case, 'import numpy as np, lunette as ln')}print({spoken(case)})"


def spoken(case: Case, name: str = "") -> str:
    """The call in lunette's own words."""
    p = len(case.shapes)
    arrays = [written(case, at) for at in range(p)]
    options = "".join(f", {n}={source_of(v)}" for n, v in case.options.items())
    name = name or f"ln.{case.op}"
    if case.mode == "jvp":
        tangents = "".join(f"{written(case, at)}, " for at in range(p, 2 * p))
        return f"{name}_jvp(({', '.join(arrays)},), ({tangents}){options})"
    if case.mode == "vjp" and case.output is not None:
        return f"{name}_vjp(({', '.join(arrays)},), {written(case, p)}{options})"
    return f"{name}({', '.join(arrays)}{options}{', return_indices=True' if case.mode == 'indices' else ''})"
