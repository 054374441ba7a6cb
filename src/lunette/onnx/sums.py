"""Matrix products, reductions, softmax and normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError
from lunette.graph.nodes import Var
from lunette.onnx.value import Absent, Call, Data, Known, Reader, empty, filled, known, refuse
from lunette.ops.binary import add, div, mul, sub
from lunette.ops.broadcast import broadcast_to
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.glue import check_axes, check_axis, make, shape_of
from lunette.ops.layout import reshape, transpose
from lunette.ops.linear import MatMul, matmul
from lunette.ops.norm import batch_norm, log_softmax, softmax
from lunette.ops.reduce import max as max_cells
from lunette.ops.reduce import mean as mean_cells
from lunette.ops.smooth_max_pool import smooth_max_pool
from lunette.ops.unary import abs as absolute
from lunette.ops.unary import log, neg, sqrt
from lunette.window import Shape

# ---- products


def read_gemm(n: Call) -> Any:
    a, b = n.x(), n.x(1)
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise refuse("matrices", f"shapes {shape_of(a)} and {shape_of(b)}", "Flatten them first.")
    y = make(MatMul, (a, b), n.flag("transA"), n.flag("transB"))
    alpha, beta, c = n.real("alpha", 1.0), n.real("beta", 1.0), n.maybe(2)
    y = y if alpha == 1 else mul(y, alpha)
    if c is None or (beta == 0 and _is_finite(c)):
        return y
    if isinstance(c, Known) and c.ndim == 2 and c.shape[0] == 1:
        c = known(c.reshape(-1))  # as a row, which a program adds within the product
    out = add(y, c if beta == 1 else mul(c, beta))
    if shape_of(out) != shape_of(y):
        raise refuse(f"C that fits {shape_of(y)}", f"shape {shape_of(c)}", "It is broadcast to the product.")
    return out


def _is_finite(c: Data) -> bool:
    return isinstance(c, Known) and bool(np.isfinite(c).all())


def read_matmul(n: Call) -> Any:
    return matmul(n.x(), n.x(1))


# ---- reductions


def log_sum_exp(x: Data, axes: tuple[int, ...], keepdims: bool) -> Any:
    """log(sum(exp(x))): the smooth maximum of beta 1, of one window."""
    shape = shape_of(x)
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    out = tuple(1 if a in axes else s for a, s in enumerate(shape) if keepdims or a not in axes)
    turned = x if kept + axes == tuple(range(len(shape))) else transpose(x, kept + axes)
    cells = prod(shape[a] for a in axes)
    rows = reshape(turned, (prod(shape[a] for a in kept), cells))
    return reshape(smooth_max_pool(rows, (cells,), beta=1.0), out)


Fold = Callable[[Any, Any, bool], Any]


def reduction(fold: Fold, opset: int, nothing: float | None = None) -> Reader:
    """A reduction whose axes are an input from an opset on; of no cells it is `nothing`."""

    def read(n: Call) -> Any:
        shape, keep = n.shape(), n.flag("keepdims", True)
        told = n.whole(1, "axes") if n.opset >= opset else n.ints("axes")
        idle = n.flag("noop_with_empty_axes") if n.opset >= opset else False
        if not told and idle:
            axes: tuple[int, ...] = ()
        else:
            axes = check_axes(tuple(told) if told else None, len(shape))
        if nothing is not None and empty(tuple(shape[a] for a in axes)):
            out = tuple(1 if a in axes else s for a, s in enumerate(shape) if keep or a not in axes)
            return _constant(n, nothing, out)
        return fold(n.x(), axes, keep)

    return read


def _constant(n: Call, value: float, shape: Shape) -> Any:
    x = n.x()
    if not isinstance(x, Var):
        return filled(value, shape, x)
    return broadcast_to(n.graph.constant(np.asarray(value, x.dtype)), shape)


def _least(x: Any, axes: Any, keep: bool) -> Any:
    return neg(max_cells(neg(x), axes, keep))


REDUCTIONS: Final[dict[str, tuple[Fold, int, float | None, str]]] = {
    "ReduceSum": (sum_cells, 13, None, "sum"),
    "ReduceMean": (mean_cells, 18, None, "mean"),
    "ReduceMax": (max_cells, 18, -math.inf, "max"),
    "ReduceMin": (_least, 18, math.inf, "max, neg"),
    "ReduceL1": (lambda x, a, k: sum_cells(absolute(x), a, k), 18, None, "abs, sum"),
    "ReduceL2": (lambda x, a, k: sqrt(sum_cells(mul(x, x), a, k)), 18, None, "mul, sum, sqrt"),
    "ReduceSumSquare": (lambda x, a, k: sum_cells(mul(x, x), a, k), 18, None, "mul, sum"),
    "ReduceLogSum": (lambda x, a, k: log(sum_cells(x, a, k)), 18, -math.inf, "sum, log"),
    "ReduceLogSumExp": (log_sum_exp, 18, -math.inf, "smooth_max_pool"),
}


# ---- softmax


def along_axis(f: Callable[[Any, int], Any]) -> Reader:
    """Softmax and its logarithm: before opset 13 over all axes from one on."""

    def read(n: Call) -> Any:
        shape = n.shape()
        if n.opset >= 13:
            return f(n.x(), n.integer("axis", -1))
        axis = n.integer("axis", 1)
        at = len(shape) if axis == len(shape) else check_axis("axis", axis, len(shape))
        if at == len(shape) - 1:
            return f(n.x(), at)
        return reshape(f(reshape(n.x(), (prod(shape[:at]), prod(shape[at:]))), 1), shape)

    return read


# ---- normalisations

TRAINING = Absent("statistics of training", "Export the model for inference: model.eval().")


def read_batch_norm(n: Call) -> Any:
    n.real("momentum", 0.9)
    if n.flag("training_mode"):
        raise ArgumentError("NX11", "inference", "training_mode=1", TRAINING.hint)
    if n.opset < 9 and not n.flag("spatial", True):
        raise refuse("spatial=1", "spatial=0", "Statistics are those of channels.")
    scale, shift, mean, var = (n.x(at) for at in range(1, 5))
    y = batch_norm(n.x(), mean, var, scale, shift, n.real("epsilon", 1e-5))
    return [y, *(TRAINING,) * 4]


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """X less its mean, by its deviation; the mean; and the deviation."""
    mean = mean_cells(x, axes, True)
    gap = sub(x, mean)
    deviation = sqrt(add(mean_cells(mul(gap, gap), axes, True), eps))
    return div(gap, deviation), mean, deviation


def read_instance_norm(n: Call) -> Any:
    shape = n.shape()
    if len(shape) < 3 or n.shape(1) != shape[1:2] or n.shape(2) != shape[1:2]:
        got = f"shapes {shape}, {n.shape(1)} and {n.shape(2)}"
        raise refuse("x of (batch, channels, ..), and a scale and shift per channel", got, "Channels are axis 1.")
    y, _, _ = _normal(n.x(), tuple(range(2, len(shape))), n.real("epsilon", 1e-5))
    wide = (shape[1], *(1,) * (len(shape) - 2))
    return add(mul(y, reshape(n.x(1), wide)), reshape(n.x(2), wide))


def read_layer_norm(n: Call) -> Any:
    shape = n.shape()
    n.integer("stash_type", 1)
    axis = check_axis("axis", n.integer("axis", -1), len(shape))
    y, mean, deviation = _normal(n.x(), tuple(range(axis, len(shape))), n.real("epsilon", 1e-5))
    y = mul(y, n.x(1))
    shift = n.maybe(2)
    y = y if shift is None else add(y, shift)
    if shape_of(y) != shape:
        raise refuse(f"a scale and shift that fit {shape}", f"{shape_of(y)} with them", "They are broadcast to x.")
    many = len(n.proto.output)
    return [y, *([mean] if many > 1 else []), *([div(1.0, deviation)] if many > 2 else [])]


READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Gemm": (read_gemm, "matmul, add"),
    "MatMul": (read_matmul, "matmul"),
    **{name: (reduction(f, opset, none), by) for name, (f, opset, none, by) in REDUCTIONS.items()},
    "Softmax": (along_axis(softmax), "softmax"),
    "LogSoftmax": (along_axis(log_softmax), "log_softmax"),
    "BatchNormalization": (read_batch_norm, "mul, add"),
    "InstanceNormalization": (read_instance_norm, "mean, mul, div, sqrt"),
    "LayerNormalization": (read_layer_norm, "mean, mul, div, sqrt"),
}
