"""OpenVINO on the CPU, fed with ONNX models."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from lunette.conform.backends.onnx_model import OnnxBackend
from lunette.number import Array


class OpenVino(OnnxBackend):
    """`openvino.Core`, with float32 computed as float32."""

    name = "openvino"
    shown = (
        "import io, openvino; core = openvino.Core(); print(*core.compile_model(core.read_model(io.BytesIO("
        "m.SerializeToString())), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})(feeds).values())"
    )
    module = "openvino"
    extra = "openvino"
    default_cases = 1400
    switches = ("ONEDNN_MAX_CPU_ISA",)
    _core: Any = None

    def infer(self, model: Any, inputs: dict[str, Array]) -> list[Array]:
        openvino = self.load()
        if self._core is None:
            self._core = openvino.Core()
        read = self._core.read_model(io.BytesIO(model.SerializeToString()))
        # Its default computes float32 in bfloat16 where the processor can.
        exact = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        compiled = self._core.compile_model(read, "CPU", exact)
        results = compiled(inputs)
        return [np.array(results[o]) for o in compiled.outputs]
