"""ONNX's own reference evaluator, in NumPy."""

from __future__ import annotations

import importlib
from typing import Any

from lunette.conform.backends.onnx_model import OnnxBackend
from lunette.number import Array


class OnnxReference(OnnxBackend):
    """`onnx.reference.ReferenceEvaluator`."""

    name = "onnx-reference"
    shown = "from onnx.reference import ReferenceEvaluator; print(ReferenceEvaluator(m).run(None, feeds))"
    default_cases = 1400

    def load(self) -> Any:
        return importlib.import_module("onnx.reference")

    def infer(self, model: Any, inputs: dict[str, Array]) -> list[Array]:
        outputs: list[Array] = self.load().ReferenceEvaluator(model).run(None, inputs)
        return outputs
