"""How every operator of a graph is written."""

from __future__ import annotations

from typing import Final

from lunette.errors import ArgumentError
from lunette.onnx import write_cells, write_windows
from lunette.onnx.writer import Writer
from lunette.op import Op

WRITERS: Final[dict[type[Op], Writer]] = {**write_windows.WRITERS, **write_cells.WRITERS}


def writer_of(kind: type[Op]) -> Writer:
    """Rule NX12."""
    if kind not in WRITERS:
        hint = "Write the graph of the function, and differentiate it where it is run."
        raise ArgumentError("NX12", "operators that ONNX can say", kind.name, hint)
    return WRITERS[kind]
