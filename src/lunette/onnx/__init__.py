"""ONNX in and out: files of other people's networks as graphs, and graphs as files that others run.

The package `onnx` (the extra `lunette[onnx]`) is imported when one of the two functions is called, not before.

| rule | says                                                                                                    |
|------|---------------------------------------------------------------------------------------------------------|
| NX1  | the package onnx is installed                                                                           |
| NX2  | a model is an ONNX file, gzipped or not, or a ModelProto, of at most 2 GiB; gzip at most 100 to 1        |
| NX3  | operators are those of ONNX's own domain, opset 7 or later, and in the table of docs/onnx.md            |
| NX4  | attributes and inputs of a node are those that its operator has, of their types                         |
| NX5  | what shapes, axes, indices and repetitions are made of is known before any input is                     |
| NX6  | data are floats of 16, 32 or 64 bits; integers are computed from constants and shapes, or are positions |
| NX7  | every size of every input is known: from the model or from shapes={...}                                 |
| NX8  | every name is made once, before it is read                                                              |
| NX9  | data outside of the model lie in files within its folder                                                |
| NX10 | a tensor has the data that its shape says; folded constants have at most 2**26 cells in all             |
| NX11 | results that nothing here computes (indices of a pool, masks, statistics of training) are not read      |
| NX12 | a graph is written with what its operators mean in ONNX                                                 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lunette.errors import refuses
from lunette.graph.graph import Graph


@refuses
def from_onnx(path_or_model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """The graph that an ONNX model describes; `shapes` has those of inputs whose sizes the model leaves open.

    A model is a path to a file (`.onnx`, or gzipped: `.onnx.gz`), or an `onnx.ModelProto`. What the graph computes is
    what the model means; whatever has no such graph is refused, by the node, the operator and the attribute.
    """
    from lunette.onnx.reader import read

    return read(path_or_model, shapes)


@refuses
def to_onnx(graph: Graph, path: Any = None, opset: int = 22) -> Any:
    """The graph as an `onnx.ModelProto`, written to `path` if that is given.

    Inputs keep their names and their dtypes; outputs are `output_0`, `output_1`, ...
    """
    from lunette.onnx.writer import write

    return write(graph, path, opset)
