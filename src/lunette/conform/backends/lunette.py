"""Lunette's own kernels, judged like anybody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunette.conform.allowance import run_lunette
from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.ops import ALL, OWN


class Lunette(Backend):
    """The public functions on NumPy arrays."""

    name = "lunette"
    space = Space(ops=tuple(kind.name for kind in ALL if kind in OWN))
    switches = ("LUNETTE_ISA",)

    def supports(self, case: Case) -> str | None:
        """Everything is asked."""
        return None

    def empty(self, case: Case) -> str:
        """Refused, by rule M1."""
        return "refused"

    def run(self, case: Case, data: Data) -> Any:
        return run_lunette(case, data)

    def source(self, case: Case) -> str:
        return f"{preamble(case, 'import numpy as np, lunette as ln')}print({self.spoken(case)})"

    def spoken(self, case: Case) -> str:
        """The call in lunette's own words."""
        derivative = f"_{case.mode}" if case.mode in ("jvp", "vjp") else ""
        indices = {"return_indices": True} if case.mode == "indices" else {}
        return called(f"ln.{case.op}{derivative}", case, {**case.options, **indices})


def called(name: str, case: Case, options: Mapping[str, Any]) -> str:
    """A call of a function that takes arrays as lunette's do, as source."""
    p = len(case.shapes)
    arrays = ", ".join(written(case, at) for at in range(p))
    said = "".join(f", {n}={source_of(v)}" for n, v in options.items())
    if case.mode == "jvp":
        tangents = "".join(f"{written(case, at)}, " for at in range(p, 2 * p))
        return f"{name}(({arrays},), ({tangents}){said})"
    if case.mode == "vjp" and case.output is not None:
        return f"{name}(({arrays},), {written(case, p)}{said})"
    return f"{name}({arrays}{said})"
