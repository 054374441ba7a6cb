"""The tests of single nodes that ship with the package onnx, as models whose parameters are initializers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import lunette as ln

FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
PARAMETERS = {"Resize": (1, 2), "Upsample": (1,), "OneHot": (1, 2), "Range": (0, 1, 2), "Dropout": (1, 2), "Pad": (2,)}
"""Inputs of floats that say how an operator works: scales, depths, the value of padding."""


HALVES = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
"""What is wanted of halves was rounded to them after every operation: some units of 2**-11, or of 2**-8."""


@dataclass
class NodeTest:
    """One test: a model, its inputs that are data, and what must come out."""

    name: str
    model: Any
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float

    @property
    def operators(self) -> set[str]:
        return {n.op_type for n in self.model.graph.node}

    @property
    def is_of_floats(self) -> bool:
        """Whether what is computed with is floats, and nothing is a sequence or an optional."""
        return all(isinstance(a, np.ndarray) for a in (*self.inputs, *self.outputs)) and bool(self.inputs)


def node_tests() -> Iterator[NodeTest]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of them divide by zero on purpose
        from onnx.backend.test.loader import load_model_tests

        for case in load_model_tests(kind="node"):
            model = case.model
            if model is None or not case.data_sets:
                continue
            inputs, outputs = ([_array(a) for a in part] for part in case.data_sets[0])
            yield _with_initializers(case, copy.deepcopy(model), inputs, outputs)


def _array(a: Any) -> Any:
    if isinstance(a, onnx.TensorProto):
        return numpy_helper.to_array(a)
    return np.asarray(a) if isinstance(a, np.generic) else a


def _with_initializers(case: Any, model: Any, inputs: list[Any], outputs: list[Any]) -> NodeTest:
    graph = model.graph
    told = {n.input[at] for n in graph.node for at in PARAMETERS.get(n.op_type, ()) if at < len(n.input)}
    rest = []
    for v, array in zip(list(graph.input), inputs, strict=False):
        kind = onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type)
        is_data = kind in FLOATS and v.name not in told
        if is_data or not isinstance(array, np.ndarray) or v.type.WhichOneof("value") != "tensor_type":
            rest.append(array)
            continue
        graph.initializer.append(numpy_helper.from_array(array, v.name))
        graph.input.remove(v)
    return NodeTest(case.name, model, rest, outputs, case.rtol, case.atol)


def outcome(test: NodeTest) -> tuple[str, str]:
    """("right" | "wrong" | "refused", what was said)."""
    try:
        shapes = {
            v.name: a.shape for v, a in zip(test.model.graph.input, test.inputs, strict=True) if hasattr(a, "shape")
        }
        open_ = {v.name for v in test.model.graph.input if _is_open(v)}
        graph = ln.from_onnx(test.model, {n: s for n, s in shapes.items() if n in open_} or None)
    except ln.LunetteError as error:
        return "refused", str(error)
    arrays = [np.asarray(a).astype(n.dtype) for a, n in zip(test.inputs, graph.inputs, strict=True)]
    got = graph.compile()(*arrays)
    results = got if isinstance(got, tuple) else (got,)
    if len(results) != len(test.outputs):
        return "wrong", f"{len(results)} outputs instead of {len(test.outputs)}"
    for a, b in zip(results, test.outputs, strict=True):
        wanted = np.asarray(b).astype(np.float64)
        if a.shape != wanted.shape:
            return "wrong", f"shape {a.shape} instead of {wanted.shape}"
        rtol = max(test.rtol, HALVES.get(np.asarray(b).dtype.name, 0))
        if not np.allclose(a.astype(np.float64), wanted, rtol, test.atol, equal_nan=True):
            return "wrong", f"{a.ravel()[:8]} instead of {wanted.ravel()[:8]}"
    return "right", ""


def _is_open(v: Any) -> bool:
    kind = v.type.tensor_type
    return not kind.HasField("shape") or any(d.WhichOneof("value") != "dim_value" for d in kind.shape.dim)
