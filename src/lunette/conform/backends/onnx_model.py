"""One-node ONNX models, and what every runtime for them shares: forward only, indices flat in the whole tensor."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from math import prod
from typing import Any

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.dialects import Call
from lunette.number import Array

OPSET = 22
TYPES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}


class OnnxBackend(Backend):
    """Whatever runs a model."""

    module = "onnx"
    extra = "onnx"
    dialect = f"onnx{OPSET}"
    space = Space(
        ops=("conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "global_avg_pool", "global_max_pool"),
        dtypes=("float32", "float64", "float16"),
        modes=("forward", "indices"),
        layouts=("contiguous",),
        norms=(1.0, 2.0, 3.0),
        divisors=False,
    )
    default_cases = 2000
    shown: str
    """How a reproducer runs the model m on feeds, and prints what comes."""

    def has_indices(self, call: Call) -> bool:
        """Only MaxPool's second output."""
        return call.function == "MaxPool"

    def model(self, case: Case) -> Any:
        """The case as a model; shapes are those of its arrays."""
        onnx = importlib.import_module("onnx")
        call = self.call(case)
        assert isinstance(call, Call), call
        kind = getattr(onnx.TensorProto, TYPES[case.dtype])
        inputs = case.kind.arrays[: len(case.shapes)]
        outputs = ["y", "index"] if case.mode == "indices" else ["y"]
        node = onnx.helper.make_node(call.function, list(inputs), outputs, **call.arguments)
        given = [onnx.helper.make_tensor_value_info(n, kind, list(s)) for n, s in zip(inputs, case.shapes, strict=True)]
        kinds = {"y": kind, "index": onnx.TensorProto.INT64}
        taken = [onnx.helper.make_tensor_value_info(n, kinds[n], [None] * len(case.shapes[0])) for n in outputs]
        graph = onnx.helper.make_graph([node], "case", given, taken)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)

    def run(self, case: Case, data: Data) -> Any:
        inputs = {n: np.ascontiguousarray(a) for n, a in zip(case.kind.arrays, data.primals, strict=False)}
        y, *index = self.infer(self.model(case), inputs)
        return (y, *(i % max(prod(case.space), 1) if (i >= 0).all() else i for i in index))

    @abstractmethod
    def infer(self, model: Any, inputs: dict[str, Array]) -> list[Array]:
        """The outputs of a model."""

    def source(self, case: Case) -> str:
        call = self.call(case)
        if not isinstance(call, Call):
            return str(call)
        attributes = "".join(f", {n}={source_of(v)}" for n, v in call.arguments.items())
        inputs = case.kind.arrays[: len(case.shapes)]
        outputs = ["y", "index"] if case.mode == "indices" else ["y"]
        kind = f"T.{TYPES[case.dtype]}"
        given = ", ".join(
            f"h.make_tensor_value_info({n!r}, {kind}, {s})" for n, s in zip(inputs, case.shapes, strict=True)
        )
        kinds = {"y": kind, "index": "T.INT64"}
        taken = ", ".join(f"h.make_tensor_value_info({n!r}, {kinds[n]}, None)" for n in outputs)
        node = f"h.make_node({call.function!r}, {list(inputs)}, {outputs}{attributes})"
        model = (
            f"m = h.make_model(h.make_graph([{node}], 'case', [{given}], [{taken}]), "
            f"opset_imports=[h.make_opsetid('', {OPSET})], ir_version=10)"
        )
        feeds = "feeds = {" + ", ".join(f"{n!r}: {written(case, at)}" for at, n in enumerate(inputs)) + "}"
        start = preamble(case, "import numpy as np; from onnx import TensorProto as T, helper as h")
        return f"{start}{model}; {feeds}; {self.shown}"
