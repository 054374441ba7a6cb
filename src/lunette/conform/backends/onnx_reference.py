"""ONNX's own reference evaluator, in NumPy."""

from __future__ import annotations

import importlib
from math import prod
from typing import Any

from lunette.conform.backends.onnx_model import OnnxBackend
from lunette.conform.case import Case
from lunette.number import Array

MOST_CELLS = 2**16


class OnnxReference(OnnxBackend):
    """`onnx.reference.ReferenceEvaluator`."""

    name = "onnx-reference"
    shown = "from onnx.reference import ReferenceEvaluator; print(ReferenceEvaluator(m).run(None, feeds))"
    default_cases = 1400

    def supports(self, case: Case) -> str | None:
        """Nothing large: it is written in Python, cell by cell, and makes windows whole, padding included."""
        if max(case.size, prod(case.options.get("kernel", ()))) > MOST_CELLS:
            return "too large for a reference in Python"
        return super().supports(case)

    def load(self) -> Any:
        return importlib.import_module("onnx.reference")

    def infer(self, model: Any, inputs: dict[str, Array]) -> list[Array]:
        outputs: list[Array] = self.load().ReferenceEvaluator(model).run(None, inputs)
        return outputs
