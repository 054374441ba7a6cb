"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lunette.conform.backends.onnx_model import OnnxBackend
from lunette.number import Array


class OnnxRuntime(OnnxBackend):
    """One session per case."""

    name = "onnxruntime"
    shown = "import onnxruntime; print(onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds))"
    module = "onnxruntime"
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1"}

    def infer(self, model: Any, inputs: dict[str, Array]) -> list[Array]:
        ort = self.load()
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        settings.log_severity_level = 4
        session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        outputs: list[Array] = session.run(None, inputs)
        return outputs
