"""From a graph to a model: every operator by what says it in ONNX, inputs and labels by their names. Rule NX12."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from lunette.errors import ArgumentError, error_context, shown
from lunette.graph.graph import Graph
from lunette.onnx import write_cells, write_windows
from lunette.onnx.file import the_package
from lunette.onnx.writing import Writer, Writing
from lunette.op import Op

LEAST_OPSET: Final = 18
"""Since then all reductions take their axes as an input."""
WRITERS: Final[dict[type[Op], Writer]] = {**write_windows.WRITERS, **write_cells.WRITERS}


def write(graph: Graph, path: str | os.PathLike[str] | None, opset: int) -> Any:
    """The model of a graph, and the file if there is a path."""
    with error_context("to_onnx"):
        onnx = the_package()
        if not isinstance(graph, Graph):
            got = type(graph).__name__
            raise ArgumentError("NX12", "a lunette.Graph", got, "ln.trace makes one of a function; a program has one.")
        most = onnx.defs.onnx_opset_version()
        if type(opset) is not int or not LEAST_OPSET <= opset <= most:
            hint = "22 is what most runtimes read."
            raise ArgumentError("NX12", f"an opset from {LEAST_OPSET} to {most}", f"opset={shown(opset)}", hint)
        if not graph.outputs:
            raise ArgumentError("G5", "at least one output", "none", "Call g.output(y).")
        model = Writing(graph, opset).model(writer_of)
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model


def writer_of(kind: type[Op]) -> Writer:
    """How an operator is written. Rule NX12."""
    if kind not in WRITERS:
        hint = "Write the graph of the function, and differentiate it where it is run."
        raise ArgumentError("NX12", "operators that ONNX can say", kind.name, hint)
    return WRITERS[kind]
