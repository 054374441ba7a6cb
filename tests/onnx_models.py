"""Small models of ONNX for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(
    *nodes: Any,
    inputs: dict[str, Any] | None = None,
    outputs: tuple[str, ...] = ("y",),
    constants: dict[str, Any] | None = None,
    opset: int = 22,
    kind: int = TensorProto.FLOAT,
) -> Any:
    """A model of nodes; inputs have their shapes (names for open sizes, None for an unknown rank)."""
    given = [helper.make_tensor_value_info(n, kind, s) for n, s in (inputs or {"x": (2, 3)}).items()]
    made = [helper.make_tensor_value_info(n, kind, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


node = helper.make_node
