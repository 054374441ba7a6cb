"""From a model to a graph: nodes in their order, each by the reader of its operator; nothing is skipped that counts.

What no output depends on is not read. Rules NX3 and NX7 to NX11 (lunette.onnx).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, LunetteError, ShapeError, error_context, meant, shown
from lunette.graph.graph import Graph
from lunette.graph.nodes import Var
from lunette.number import OBJECT
from lunette.onnx.file import FLOATS, INTEGERS, load, type_name
from lunette.onnx.table import READERS, REFUSED
from lunette.onnx.value import (
    DOUBLE,
    READING,
    SINGLE,
    Absent,
    Call,
    Data,
    DoubleError,
    Reading,
    Value,
    check_range,
    computed_in,
    gone,
    value_of,
)
from lunette.window import Shape, integer, is_sequence

LEAST_OPSET: Final = 7
MOST_INPUTS: Final = 4096
DOMAINS: Final = ("", "ai.onnx")

Names = dict[str, Value | Absent]


def read(source: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """The graph of a model."""
    with error_context("from_onnx"):
        model, folder = load(source)
        double = any(type_name(v.type.tensor_type.elem_type) == "DOUBLE" for v in model.graph.input)
        try:
            READING.set(Reading(DOUBLE if double else SINGLE))
            return _Reader(model, folder, shapes).graph
        except DoubleError:
            READING.set(Reading(DOUBLE))
            return _Reader(model, folder, shapes).graph
        except LunetteError as error:
            if not error.who.startswith("from_onnx") and error.who != "lunette":
                error.who = f"from_onnx, {error.who}"
            raise


class _Reader:
    """One model that is being read."""

    def __init__(self, model: Any, folder: Path | None, shapes: Mapping[str, Sequence[int]] | None) -> None:
        self.proto, self.folder = model.graph, folder
        self.opset = opset_of(model)
        self.graph = Graph()
        self.graph.lines = False
        self.names: Names = {}
        self._constants()
        self._inputs(shapes)
        for at in self._needed():
            self._node(self.proto.node[at], at)
        self.graph.label = ""
        self._outputs()

    # ---- what the model begins with

    def _constants(self) -> None:
        if self.proto.sparse_initializer:
            raise ArgumentError("NX6", "dense tensors", "a sparse initializer", "Store it densely.")
        for tensor in self.proto.initializer:
            self._define(tensor.name, value_of(tensor, self.folder))

    def _inputs(self, shapes: Mapping[str, Sequence[int]] | None) -> None:
        given = _checked_shapes(shapes)
        inputs = [v for v in self.proto.input if v.name not in self.names]  # older files name initializers here, too
        if len(inputs) > MOST_INPUTS:
            raise ArgumentError("NX7", f"at most {MOST_INPUTS} inputs", f"{len(inputs)}", "Weights are initializers.")
        for name in given:
            if name not in [v.name for v in inputs]:
                hint = meant(name, [v.name for v in inputs], f"Inputs are {', '.join(v.name for v in inputs)}.")
                raise ArgumentError("NX7", "shapes of inputs of the model", f"shapes of {shown(name)}", hint)
        for v in inputs:
            if v.type.WhichOneof("value") != "tensor_type":
                kind = v.type.WhichOneof("value")
                got, hint = f"{shown(v.name)} of {kind}", "Sequences, optionals and sparse tensors have no shape."
                raise ArgumentError("NX6", "inputs that are tensors", got, hint)
            kind = type_name(v.type.tensor_type.elem_type)
            shape = _shape_of(v, given.get(v.name))
            counted = kind not in FLOATS
            var = self.graph.input(shape, np.dtype(np.int64) if counted else computed_in(kind), v.name)
            hint = "make this input an initializer" if kind in INTEGERS else "convert it to float32"
            hint = f"Data are floats, integers may be shapes, axes and indices: {hint}."
            self._define(
                v.name, Absent(f"input {shown(v.name)} of {kind}", hint, "NX6") if counted else Value(var, kind)
            )

    def _define(self, name: str, value: Value | Absent) -> None:
        """Rule NX8."""
        if name in self.names:
            raise ArgumentError("NX8", "names that are made once", f"{shown(name)} twice", "The model is damaged.")
        self.names[name] = value

    # ---- nodes

    def _needed(self) -> list[int]:
        """The nodes that outputs depend on, those first that others read; of files that have another order, too."""
        makers: dict[str, int] = {}
        for at, node in enumerate(self.proto.node):
            for name in node.output:
                if name and makers.setdefault(name, at) != at:
                    raise ArgumentError("NX8", "names that are made once", f"{shown(name)} twice", "It is damaged.")
        needs: dict[int, set[int]] = {}
        todo = [makers[v.name] for v in self.proto.output if v.name in makers]
        while todo:
            at = todo.pop()
            if at not in needs:
                needs[at] = {makers[name] for name in self.proto.node[at].input if name in makers}
                todo += needs[at]
        readers: dict[int, list[int]] = {at: [] for at in needs}
        for at, own in needs.items():
            for maker in own:
                readers[maker].append(at)
        ready = [at for at, own in needs.items() if not own]
        heapify(ready)
        order = []
        while ready:
            order.append(heappop(ready))
            for at in readers[order[-1]]:
                needs[at].discard(order[-1])
                if not needs[at]:
                    heappush(ready, at)
        if len(order) < len(needs):
            at = min(set(needs) - set(order))
            got = f"node {shown(_label(self.proto.node[at], at))}, which depends on itself"
            raise ArgumentError("NX8", "nodes without cycles", got, "The model is damaged.")
        return order

    def _node(self, node: Any, at: int) -> None:
        label = _label(node, at)
        try:
            results = self._results(node, label)
        except LunetteError as error:
            asked = "" if error.who in ("lunette", "from_onnx") else f", {error.who}"
            error.who = f"from_onnx, node {shown(label)} ({printable(node.op_type)}){asked}"
            raise
        for name, value in zip(node.output, results, strict=False):
            if name:
                who = f"{value.what} of node {shown(label)}" if isinstance(value, Absent) else ""
                self._define(name, replace(value, what=who) if isinstance(value, Absent) else value)

    def _results(self, node: Any, label: str) -> list[Value | Absent]:
        if node.domain not in DOMAINS:
            got = f"{shown(node.op_type)} of {shown(node.domain)}"
            raise ArgumentError("NX3", "operators of ONNX's own domain", got, "Export the model without it.")
        reader = READERS.get(node.op_type)
        if reader is None:
            hint = REFUSED.get(node.op_type, "docs/onnx.md lists the operators that are read.")
            raise ArgumentError("NX3", "an operator that lunette reads", shown(node.op_type), hint)
        call = Call(node, self.opset, self.graph, [self._read(name) for name in node.input], self.folder)
        self.graph.label = label
        made = reader(call)
        call.check_all_used()
        results = made if isinstance(made, list) else [made]
        if len(node.output) > len(results):
            got = f"{len(node.output)} results of {node.op_type}"
            raise ArgumentError("NX11", f"{len(results)} results", got, "The others are not computed.")
        first = next((v.type for v in call.inputs if v is not None), "FLOAT")
        values = [v if isinstance(v, Value | Absent) else Value(v, first) for v in results]
        for v in values:
            if isinstance(v, Value):
                check_range(v)
        return values

    def _read(self, name: str) -> Value | None:
        if not name:
            return None
        found = self.names.get(name)
        if found is None:
            hint = "The model is damaged."
            raise ArgumentError("NX8", "names that a node, an input or an initializer makes", shown(name), hint)
        if isinstance(found, Absent):
            raise gone(found)
        return found

    # ---- what the model ends with

    def _outputs(self) -> None:
        if not self.proto.output:
            raise ArgumentError("NX2", "a model with outputs", "none", "The model is damaged.")
        for v in self.proto.output:
            value = self._read(v.name)
            if value is None:
                raise ArgumentError("NX8", "outputs with names", "none", "The model is damaged.")
            self.graph.output(self._variable(value.data))

    def _variable(self, data: Data) -> Var:
        if isinstance(data, Var):
            return data
        return self.graph.constant(np.asarray(data).astype(np.int64) if data.dtype == OBJECT else np.asarray(data))


def _label(node: Any, at: int) -> str:
    return printable(node.name or f"{printable(node.op_type)} {at}")


def printable(name: str | bytes) -> str:
    """A name as it may stand in texts; protobuf gives bytes for what is no text."""
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)


def opset_of(model: Any) -> int:
    """Rule NX3."""
    found = [o.version for o in model.opset_import if o.domain in DOMAINS]
    opset = int(max(found, default=0))
    if opset < LEAST_OPSET:
        got, hint = f"opset {opset}" if found else "none", "Convert it: onnx.version_converter."
        raise ArgumentError("NX3", f"opset {LEAST_OPSET} or later of ONNX's own operators", got, hint)
    return opset


def _checked_shapes(shapes: Any) -> dict[str, Shape]:
    """Rule NX7."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        got = f"{type(shapes).__name__}"
        raise ArgumentError("NX7", "shapes as a dict", got, 'Write shapes={"x": (1, 3, 32, 32)}.')
    found = {}
    for name, shape in shapes.items():
        if not is_sequence(shape):
            got = f"shapes[{shown(name)}]={shown(shape)}"
            raise ArgumentError("NX7", "a shape as a tuple", got, "Write (n,) for one axis.")
        found[name] = tuple(integer("a size", n) for n in shape)
    return found


def _shape_of(v: Any, given: Shape | None) -> Shape:
    """The shape that the model and the caller give an input together. Rule NX7."""
    declared = v.type.tensor_type
    sizes: list[int | str] = []
    for d in declared.shape.dim if declared.HasField("shape") else ():
        fixed = d.WhichOneof("value") == "dim_value" and d.dim_value >= 0
        sizes.append(int(d.dim_value) if fixed else d.dim_param or "?")
    example = tuple(n if isinstance(n, int) else 1 for n in sizes)
    if given is None:
        if not declared.HasField("shape") or any(isinstance(n, str) for n in sizes):
            told = ", ".join(map(str, sizes)) if declared.HasField("shape") else "unknown rank"
            hint = f"Pass shapes={{{shown(v.name)}: {example}}} with the sizes that you want; as a command, --shape."
            raise ShapeError("NX7", f"all sizes of input {shown(v.name)}", f"({printable(told)})", hint)
        return example
    unlike = len(given) != len(sizes) or any(isinstance(m, int) and m != n for m, n in zip(sizes, given, strict=False))
    if declared.HasField("shape") and unlike:
        got, hint = f"{given}", f"The model says ({printable(', '.join(map(str, sizes)))})."
        raise ShapeError("NX7", f"a shape that input {shown(v.name)} can have", got, hint)
    return given
