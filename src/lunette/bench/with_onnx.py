"""ONNX Runtime and OpenVINO: one ONNX model per problem, weights as constants, forward only."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from lunette.bench.cases import Data, Problem
from lunette.bench.peers import Absent, Peer, Way, numbers


def model(problem: Problem, data: Data) -> bytes:
    """The problem as an ONNX file: input x, output y."""
    onnx = importlib.import_module("onnx")
    helper, numpy_helper = onnx.helper, importlib.import_module("onnx.numpy_helper")
    layer, element = problem.layer, helper.np_dtype_to_tensor_dtype(np.dtype(problem.dtype))
    node, attributes = _node(problem)
    weights = [numpy_helper.from_array(a, n) for a, n in zip(data.arrays[1:], ("w", "b"), strict=False)]
    graph = helper.make_graph(
        [helper.make_node(node, ["x", *(w.name for w in weights)], ["y"], **attributes)],
        layer.op,
        [helper.make_tensor_value_info("x", element, layer.shapes[0])],
        [helper.make_tensor_value_info("y", element, layer.bound.out)],
        weights,
    )
    opset = helper.make_opsetid("", 18)
    text: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()
    return text


def _node(problem: Problem) -> tuple[str, dict[str, Any]]:
    layer = problem.layer
    op, options = layer.op, layer.options
    if problem.direction != "forward":
        raise Absent("inference only: no derivatives")
    if op.startswith("global"):
        return {"global_avg_pool": "GlobalAveragePool", "global_max_pool": "GlobalMaxPool"}[op], {}
    if op.startswith("adaptive"):
        raise Absent("ONNX has no adaptive pooling")
    if op == "smooth_max_pool":
        raise Absent("ONNX has no smooth maximum over windows")
    at = numbers(problem)
    window = {"kernel_shape": at.kernel, "strides": at.stride, "pads": (*at.lo, *at.hi)}
    match op:
        case "conv":
            return "Conv", {**window, "dilations": at.dilation, "group": options.get("groups", 1)}
        case "conv_transpose":
            more = {"dilations": at.dilation, "group": options.get("groups", 1), "output_padding": at.more}
            return "ConvTranspose", {**window, **more}
        case "max_pool":
            return "MaxPool", {**window, "dilations": at.dilation}
        case "avg_pool":
            return "AveragePool", {**window, "count_include_pad": int(options.get("count_include_pad", True))}
        case "lp_pool":
            return "LpPool", {**window, "p": int(options["p"])}
        case _:
            raise Absent(f"no adapter for {op}")


class OnnxRuntime(Peer):
    """A session on the CPU; NumPy in and out."""

    name = "ONNX Runtime"
    package = "onnxruntime"

    def start(self) -> None:
        importlib.import_module("onnx")
        self.ort: Any = importlib.import_module("onnxruntime")

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        settings = self.ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = self.threads, 1
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.force_spinning_stop", "1")  # be quiet when others have their turn
        session = self.ort.InferenceSession(model(problem, data), settings, providers=["CPUExecutionProvider"])
        given = {"x": data.arrays[0]}
        return [Way("", lambda: session.run(None, given), lambda ys: ys)]


class OpenVino(Peer):
    """A compiled model and one request; NumPy in, views of its memory out."""

    name = "OpenVINO"
    package = "openvino"

    def start(self) -> None:
        importlib.import_module("onnx")
        self.ov: Any = importlib.import_module("openvino")
        self.core = self.ov.Core()

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        if problem.dtype == "float64":
            raise Absent("computes float64 in float32")
        if problem.direction == "forward" and problem.layer.op.startswith("adaptive"):
            read = self._adaptive(problem)
        else:
            read = self.core.read_model(model(problem, data), b"")
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,
        }
        request = self.core.compile_model(read, "CPU", settings).create_infer_request()
        given = [data.arrays[0]]

        def infer() -> Any:
            return request.infer(given, share_inputs=True, share_outputs=True)

        return [Way("", infer, lambda ys: [np.array(ys[0])])]

    def _adaptive(self, problem: Problem) -> Any:
        opset = importlib.import_module("openvino.opset8")
        x = opset.parameter(problem.layer.shapes[0], np.dtype(problem.dtype).type)
        size = np.array(problem.layer.bound.out[2:], np.int64)
        pool = getattr(opset, problem.layer.op)(x, size)
        return self.ov.Model([pool.output(0)], [x])
