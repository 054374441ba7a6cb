"""A model in the making: nodes, tensors and names, as the writers of operators add them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lunette.errors import error_context
from lunette.graph.graph import Graph
from lunette.graph.nodes import Node
from lunette.number import Array
from lunette.onnx.file import the_package
from lunette.op import Op

Writer = Callable[["Writing", Node, list[Any]], str]
"""Adds nodes that compute a node of the graph from the names of its inputs (None where one is absent); the result's."""


@dataclass
class Writing:
    """One graph that is being written."""

    graph: Graph
    opset: int
    nodes: list[Any] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    taken: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)

    # ---- what writers call

    def node(self, kind: str, inputs: Sequence[str], result: str | None = None, **attributes: Any) -> str:
        """One more node, with one result."""
        name = result or self.fresh("v")
        # The first of the nodes that say a node has its name: others have none, since no two may have the same.
        label, self.label = self.label, ""
        if label in self.labels:
            label = ""
        self.labels.add(label)
        made = the_package().helper.make_node(kind, list(inputs), [name], name=label, **attributes)
        self.nodes.append(made)
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A tensor."""
        array: Array = np.asarray(value, dtype)
        name = self.fresh("c")
        self.tensors[name] = the_package().numpy_helper.from_array(
            np.ascontiguousarray(array).reshape(array.shape), name
        )
        return name

    def ints(self, values: Sequence[int]) -> str:
        """A row of integers, for shapes and axes."""
        return self.constant(np.asarray(list(values), np.int64))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """X in another shape."""
        return self.node("Reshape", [x, self.ints(shape)], allowzero=int(0 in shape))

    def part(
        self, x: str, axes: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
    ) -> str:
        """A part of some axes."""
        return self.node("Slice", [x, *(self.ints(v) for v in (starts, stops, axes, steps))])

    def padded(self, x: str, pairs: Sequence[tuple[int, int]], value: Any, dtype: Any) -> str:
        """Cells of one value around x."""
        if all(p == (0, 0) for p in pairs):
            return x
        ends = [*(lo for lo, _ in pairs), *(hi for _, hi in pairs)]
        return self.node("Pad", [x, self.ints(ends), self.constant(value, dtype)], mode="constant")

    def fresh(self, letter: str) -> str:
        """A name that nothing has."""
        at = len(self.taken)
        while (name := f"{letter}{at}") in self.taken:
            at += 1
        self.taken.add(name)
        return name

    # ---- the whole

    def model(self, writer_of: Callable[[type[Op]], Writer]) -> Any:
        """The finished model."""
        onnx, g = the_package(), self.graph
        self.taken = {str(n.name) for n in g.inputs} | {f"output_{k}" for k in range(len(g.outputs))}
        names: dict[int, str] = {}
        needed = _needed(g)
        for at, n in enumerate(g.nodes):
            if n.name is not None:
                names[at] = n.name
            elif at in needed:
                names[at] = self.constant(n.value) if n.value is not None else self._written(n, names, writer_of)
        self.label = ""
        results = [self.node("Identity", [names[i]], f"output_{k}") for k, i in enumerate(g.outputs)]
        given = [_info(str(n.name), n) for n in g.inputs]
        made = [_info(name, g.nodes[i]) for name, i in zip(results, g.outputs, strict=True)]
        body = onnx.helper.make_graph(self.nodes, "lunette", given, made, list(self.tensors.values()))
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        version = onnx.helper.find_min_ir_version_for(opsets)
        return onnx.helper.make_model(body, opset_imports=opsets, ir_version=version, producer_name="lunette")

    def _written(self, n: Node, names: dict[int, str], writer_of: Callable[[type[Op]], Writer]) -> str:
        assert n.kind is not None
        self.label = n.label
        with error_context(f"to_onnx, {n.kind.name}"):
            return writer_of(n.kind)(self, n, [None if i is None else names[i] for i in n.inputs])


def _info(name: str, n: Node) -> Any:
    onnx = the_package()
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(n.dtype), n.shape)


def _needed(graph: Graph) -> set[int]:
    needed = set(graph.outputs)
    for at in range(len(graph.nodes) - 1, -1, -1):
        if at in needed:
            needed.update(i for i in graph.nodes[at].inputs if i is not None)
    return needed
