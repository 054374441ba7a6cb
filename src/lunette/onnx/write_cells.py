"""How the operators without a window are written."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from lunette.graph.nodes import Node
from lunette.onnx.writing import Writer, Writing
from lunette.op import Op
from lunette.ops.binary import Add, Div, Equal, Gate, Maximum, Minimum, Mul, Prefer, Sub
from lunette.ops.broadcast import BroadcastTo, Sum
from lunette.ops.concat import Concat
from lunette.ops.erf import Bell, Erf
from lunette.ops.floor import Floor
from lunette.ops.layout import Reshape, Transpose
from lunette.ops.linear import MatMul
from lunette.ops.loss import OneHot
from lunette.ops.norm import LogSoftmax, Softmax
from lunette.ops.pad import Pad, Slice
from lunette.ops.power import Pow, Power
from lunette.ops.reduce import Max, Mean
from lunette.ops.take import Take
from lunette.ops.unary import (
    Abs,
    Exp,
    LeakyRelu,
    Log,
    Neg,
    Relu,
    Sigmoid,
    Sign,
    Sqrt,
    StopGradient,
    Tanh,
)

SAME: Final[dict[type[Op], str]] = {
    Add: "Add",
    Sub: "Sub",
    Mul: "Mul",
    Div: "Div",
    Maximum: "Max",
    Minimum: "Min",
    Pow: "Pow",
    Neg: "Neg",
    Relu: "Relu",
    Sigmoid: "Sigmoid",
    Tanh: "Tanh",
    Exp: "Exp",
    Log: "Log",
    Sqrt: "Sqrt",
    Abs: "Abs",
    Sign: "Sign",
    Erf: "Erf",
    Floor: "Floor",
    StopGradient: "Identity",
}
"""Operators that ONNX has by another name."""


def named(kind: str) -> Writer:
    """An operator of the same inputs."""
    return lambda w, n, inputs: w.node(kind, inputs)


def write_gate(w: Writing, n: Node, inputs: list[Any]) -> str:
    x, t = inputs
    zero = w.constant(0, n.dtype)
    rest = w.node("Where", [w.node("LessOrEqual", [x, zero]), zero, x])  # zero, or NaN
    return w.node("Where", [w.node("Greater", [x, zero]), t, rest])


def write_equal(w: Writing, n: Node, inputs: list[Any]) -> str:
    ends = (w.constant(v, n.dtype) for v in (1, 0))
    return w.node("Where", [w.node("Equal", inputs), *ends])


def write_prefer(w: Writing, n: Node, inputs: list[Any]) -> str:
    x, y, t = inputs
    half = w.node("Mul", [t, w.constant(0.5, n.dtype)])
    rest = w.node("Where", [w.node("Equal", [x, y]), half, w.constant(0, n.dtype)])
    return w.node("Where", [w.node("Greater", [x, y]), t, rest])


def write_leaky_relu(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, LeakyRelu)
    return w.node("PRelu", [inputs[0], w.constant(n.op.slope, n.dtype)])  # whose slope has the dtype of x


def write_bell(w: Writing, n: Node, inputs: list[Any]) -> str:
    power = w.node("Exp", [w.node("Neg", [w.node("Mul", [inputs[0], inputs[0]])])])
    return w.node("Mul", [power, w.constant(2 / math.sqrt(math.pi), n.dtype)])


def write_power(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Power)
    return w.node("Pow", [inputs[0], w.constant(n.op.exponent, n.dtype)])


# ---- layout


def write_reshape(w: Writing, n: Node, inputs: list[Any]) -> str:
    return w.reshape(inputs[0], n.shape)


def write_transpose(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Transpose) and n.op.axes is not None
    return w.node("Transpose", inputs, perm=list(n.op.axes)) if n.shape else inputs[0]


def write_broadcast(w: Writing, n: Node, inputs: list[Any]) -> str:
    return w.node("Expand", [inputs[0], w.ints(n.shape)])


def write_pad(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Pad) and n.op.step is not None and n.resolved is not None
    (x,), (name,) = n.resolved.shapes, inputs
    assert x is not None
    shape = list(x)
    for axis, step in enumerate(n.op.step):
        if step > 1 and shape[axis] > 0:
            # Behind each cell of the axis as many as belong between two, of which the last are cut off.
            apart = w.reshape(name, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            pairs = [(0, step - 1 if a == axis + 1 else 0) for a in range(len(shape) + 1)]
            apart = w.padded(apart, pairs, n.op.value, n.dtype)
            long = shape[axis] * step
            name = w.reshape(apart, (*shape[:axis], long, *shape[axis + 1 :]))
            shape[axis] = long - step + 1
            name = w.part(name, [axis], [0], [shape[axis]], [1])
    return w.padded(name, n.op.padding, n.op.value, n.dtype)


def write_slice(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Slice) and n.op.step is not None
    if not n.shape:
        return str(inputs[0])
    stops = [0 if s is None else s for s in n.op.stop]
    return w.part(inputs[0], range(len(n.shape)), n.op.start, stops, n.op.step)


def write_concat(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Concat)
    return w.node("Concat", inputs, axis=n.op.axis)


def write_take(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, Take)
    return w.node("Gather", inputs, axis=n.op.axis)


# ---- products and reductions


def write_matmul(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, MatMul)
    if len(n.shape) == 2:
        return w.node("Gemm", inputs, transA=int(n.op.turn_x), transB=int(n.op.turn_y))
    rank = len(n.shape)
    turned = [*range(rank - 2), rank - 1, rank - 2]
    turns = zip(inputs, (n.op.turn_x, n.op.turn_y), strict=True)
    return w.node("MatMul", [w.node("Transpose", [name], perm=turned) if turn else name for name, turn in turns])


def reduction(kind: str) -> Writer:
    """A reduction over axes that are an input."""

    def written(w: Writing, n: Node, inputs: list[Any]) -> str:
        assert isinstance(n.op, Sum | Mean | Max)
        if not n.op.axes():
            return str(inputs[0])
        return w.node(kind, [inputs[0], w.ints(n.op.axes())], keepdims=int(n.op.keepdims))

    return written


def along_axis(kind: str) -> Writer:
    """Softmax and its logarithm."""

    def written(w: Writing, n: Node, inputs: list[Any]) -> str:
        assert isinstance(n.op, Softmax | LogSoftmax)
        return w.node(kind, inputs, axis=n.op.axis)

    return written


def write_one_hot(w: Writing, n: Node, inputs: list[Any]) -> str:
    assert isinstance(n.op, OneHot)
    ends = w.constant(np.asarray([0, 1], n.dtype))
    return w.node("OneHot", [inputs[0], w.constant(n.op.classes, np.int64), ends], axis=n.op.axis)


WRITERS: Final[dict[type[Op], Writer]] = {
    **{kind: named(name) for kind, name in SAME.items()},
    Gate: write_gate,
    Equal: write_equal,
    Prefer: write_prefer,
    LeakyRelu: write_leaky_relu,
    Bell: write_bell,
    Power: write_power,
    Reshape: write_reshape,
    Transpose: write_transpose,
    BroadcastTo: write_broadcast,
    Pad: write_pad,
    Slice: write_slice,
    Concat: write_concat,
    Take: write_take,
    MatMul: write_matmul,
    Sum: reduction("ReduceSum"),
    Mean: reduction("ReduceMean"),
    Max: reduction("ReduceMax"),
    Softmax: along_axis("Softmax"),
    LogSoftmax: along_axis("LogSoftmax"),
    OneHot: write_one_hot,
}
