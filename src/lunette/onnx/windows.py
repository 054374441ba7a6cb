"""Convolutions and pools: what their attributes mean is said in lunette.dialects.onnx, and nowhere else."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from lunette.array import lookup
from lunette.dialects.onnx import Onnx
from lunette.errors import ArgumentError
from lunette.onnx.value import Absent, Call, Reader, refuse
from lunette.ops.lp_pool import lp_pool


@lru_cache
def dialect(opset: int) -> Onnx:
    """The attributes at an opset."""
    return Onnx(opset)


def options(n: Call, op: str, *shapes: Any) -> dict[str, Any]:
    """The options of lunette's operator that mean what the attributes do."""
    meaning = dialect(n.opset).meaning(op, shapes, n.said())
    if (difference := meaning.in_lunette()) is not None or meaning.departures:
        got = "; ".join(meaning.departures) or f"another {difference}"
        hint = "These attributes have no counterpart: give the padding that the windows need, or none."
        raise ArgumentError("NX4", f"attributes that lunette's {op} can have", got, hint)
    return dict(meaning.options)


def convolution(op: str) -> Reader:
    """Conv and ConvTranspose."""

    def read(n: Call) -> Any:
        x, w, told = n.shape(), n.shape(1), n.said().get("kernel_shape")
        if len(x) != len(w) or len(x) < 3:
            raise refuse("x and w of one rank, 3 or more", f"shapes {x} and {w}", "They are (.., .., *space).")
        if told is not None and tuple(told) != w[2:]:
            raise refuse(f"kernel_shape={list(w[2:])}, as w has it", f"kernel_shape={told}", "Leave it out.")
        given = options(n, op, x, w, None if n.maybe(2) is None else n.shape(2))
        return lookup(op)[0](n.x(), n.x(1), n.maybe(2), **given)

    return read


def pool(op: str, *more: Absent) -> Reader:
    """A pool of x alone."""

    def read(n: Call) -> Any:
        return [lookup(op)[0](n.x(), **options(n, op, n.shape())), *more]

    return read


def global_lp_pool(n: Call) -> Any:
    """A norm over all the space."""
    return lp_pool(n.x(), n.shape()[2:], p=n.integer("p", 2))


INDICES = Absent("the indices", "Use the values alone.")

READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Conv": (convolution("conv"), "conv"),
    "ConvTranspose": (convolution("conv_transpose"), "conv_transpose"),
    "MaxPool": (pool("max_pool", INDICES), "max_pool; its indices are refused"),
    "AveragePool": (pool("avg_pool"), "avg_pool"),
    "LpPool": (pool("lp_pool"), "lp_pool"),
    "GlobalAveragePool": (pool("global_avg_pool"), "global_avg_pool"),
    "GlobalMaxPool": (pool("global_max_pool"), "global_max_pool"),
    "GlobalLpPool": (global_lp_pool, "lp_pool"),
}
