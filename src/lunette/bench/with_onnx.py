"""ONNX Runtime and OpenVINO: one ONNX model per problem, weights as constants, forward only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lunette.bench.cases import Data, Problem
from lunette.bench.networks import Feed, NetworkProblem
from lunette.bench.peers import Absent, Numbers, Peer, Way, numbers
from lunette.number import Array

INFERENCE = "inference only: no derivatives"


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
        [helper.make_tensor_value_info("y", element, layer.resolved.out)],
        weights,
    )
    return _serialized(helper, graph)


def _serialized(helper: Any, graph: Any) -> bytes:
    opset = helper.make_opsetid("", 18)
    text: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()
    return text


def network_model(problem: NetworkProblem, feed: Feed) -> bytes:
    """A whole network as an ONNX file: input x, output y, the weights as initializers."""
    if problem.direction != "forward":
        raise Absent(INFERENCE)
    onnx = importlib.import_module("onnx")
    helper, network = onnx.helper, problem.network
    tools = Tools(iter(feed.weights), network.d)
    last = network.model.run(tools, "x")
    tools.node("Identity", [last], "y")
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        tools.nodes,
        network.model.name,
        [helper.make_tensor_value_info("x", float32, network.shapes[0])],
        [helper.make_tensor_value_info("y", float32, network.out)],
        tools.initializers,
    )
    return _serialized(helper, graph)


class Tools:
    """ONNX's operators with `d` spatial axes: values are names; nodes and initializers are collected."""

    def __init__(self, weights: Iterator[Array], d: int) -> None:
        onnx = importlib.import_module("onnx")
        self.helper, self.numpy_helper = onnx.helper, importlib.import_module("onnx.numpy_helper")
        self.weights, self.d = weights, d
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.widths: dict[str, int] = {}

    def node(self, kind: str, inputs: Sequence[str | None], out: str = "", **attributes: Any) -> str:
        out = out or f"v{len(self.nodes)}"
        given = [i for i in inputs if i is not None]
        self.nodes.append(self.helper.make_node(kind, given, [out], **attributes))
        return out

    def constant(self, array: Array) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(self.numpy_helper.from_array(array, name))
        self.widths[name] = array.shape[0]
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(next(self.weights))

    def conv(self, x: str, w: str, b: str | None, stride: int = 1, padding: int = 0, groups: int = 1) -> str:
        d = self.d
        return self.node("Conv", [x, w, b], strides=[stride] * d, pads=[padding] * 2 * d, group=groups)

    def up(self, x: str, w: str, b: str | None) -> str:
        return self.node("ConvTranspose", [x, w, b], strides=[2] * self.d)

    def max_pool(self, x: str, kernel: int, stride: int, padding: int = 0) -> str:
        d = self.d
        return self.node("MaxPool", [x], kernel_shape=[kernel] * d, strides=[stride] * d, pads=[padding] * 2 * d)

    def average(self, x: str) -> str:
        return self.flatten(self.node("GlobalAveragePool", [x]))

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def add(self, x: str, y: str) -> str:
        return self.node("Add", [x, y])

    def concat(self, x: str, y: str) -> str:
        return self.node("Concat", [x, y], axis=1)

    def flatten(self, x: str) -> str:
        return self.node("Flatten", [x])

    def linear(self, x: str, w: str, b: str) -> str:
        return self.node("Gemm", [x, w, b], transB=1)

    def scale_shift(self, x: str, scale: str, shift: str) -> str:
        n = self.widths[scale]
        mean, variance = self.constant(np.zeros(n, np.float32)), self.constant(np.ones(n, np.float32))
        return self.node("BatchNormalization", [x, scale, shift, mean, variance], epsilon=0.0)


def _node(problem: Problem) -> tuple[str, dict[str, Any]]:
    layer = problem.layer
    if problem.direction != "forward":
        raise Absent(INFERENCE)
    if layer.kind.windows == "bins":
        raise Absent("ONNX has no adaptive pooling")
    if layer.op not in NODES:
        raise Absent(f"ONNX has no {layer.op}")
    name, attributes = NODES[layer.op]
    if layer.kind.windows == "whole":
        return name, {}
    at = numbers(problem)
    window = {"kernel_shape": at.kernel, "strides": at.stride, "pads": (*at.lo, *at.hi)}
    return name, {**window, **attributes(at, layer.options)}


NODES: dict[str, tuple[str, Callable[[Numbers, Mapping[str, Any]], dict[str, Any]]]] = {
    "conv": ("Conv", lambda at, options: {"dilations": at.dilation, "group": options.get("groups", 1)}),
    "conv_transpose": (
        "ConvTranspose",
        lambda at, options: {
            "dilations": at.dilation,
            "group": options.get("groups", 1),
            "output_padding": at.more,
        },
    ),
    "max_pool": ("MaxPool", lambda at, options: {"dilations": at.dilation}),
    "avg_pool": (
        "AveragePool",
        lambda at, options: {"count_include_pad": int(options.get("count_include_pad", True))},
    ),
    "lp_pool": ("LpPool", lambda at, options: {"p": int(options["p"])}),
    "global_avg_pool": ("GlobalAveragePool", lambda at, options: {}),
    "global_max_pool": ("GlobalMaxPool", lambda at, options: {}),
}


class OnnxRuntime(Peer):
    """A session on the CPU; NumPy in and out."""

    name = "ONNX Runtime"
    package = "onnxruntime"

    def start(self) -> None:
        importlib.import_module("onnx")
        self.ort: Any = importlib.import_module("onnxruntime")

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        return [self._way(model(problem, data), data.arrays[0])]

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        return [self._way(network_model(problem, feed), feed.x)]

    def _way(self, text: bytes, x: Array) -> Way:
        settings = self.ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = self.threads, 1
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.force_spinning_stop", "1")  # be quiet when others have their turn
        session = self.ort.InferenceSession(text, settings, providers=["CPUExecutionProvider"])
        given = {"x": x}
        return Way("", lambda: session.run(None, given), lambda ys: ys)


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
        if problem.direction == "forward" and problem.layer.kind.windows == "bins":
            read = self._adaptive(problem)
        else:
            read = self.core.read_model(model(problem, data), b"")
        return [self._way(read, data.arrays[0])]

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        return [self._way(self.core.read_model(network_model(problem, feed), b""), feed.x)]

    def _way(self, read: Any, x: Array) -> Way:
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,
        }
        request = self.core.compile_model(read, "CPU", settings).create_infer_request()
        given = [x]

        def infer() -> Any:
            return request.infer(given, share_inputs=True, share_outputs=True)

        return Way("", infer, lambda ys: [np.array(ys[0])])

    def _adaptive(self, problem: Problem) -> Any:
        opset = importlib.import_module("openvino.opset8")
        x = opset.parameter(problem.layer.shapes[0], np.dtype(problem.dtype).type)
        size = np.array(problem.layer.resolved.out[2:], np.int64)
        indices = ("i32",) if problem.layer.kind.selects else ()
        pool = getattr(opset, problem.layer.op)(x, size, *indices)
        return self.ov.Model([pool.output(0)], [x])
