"""What ATen's operators mean in lunette's functions: one table, an entry per operator.

torch.export leaves a few hundred operators of the core set. An entry takes the arguments as ATen has them, variables or
arrays in the place of tensors, and gives a value, or several for operators with several results. A result that lunette
does not compute is `Unavailable`: refused where it is read, rule FT3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np
import torch

import lunette
from lunette.errors import ArgumentError, shown
from lunette.ops.glue import shape_of
from lunette.ops.take import BEYOND

ln: Any = lunette
Entry = Callable[..., Any]
TABLE: Final[dict[str, Entry]] = {}
"""By the name of the operator and its overload: "convolution.default"."""

WHOLE: Final = (
    *(f"{name}{d}d" for name in ("upsample_nearest", "reflection_pad", "replication_pad") for d in (1, 2, 3)),
    "_prelu_kernel",
)
"""Operators that torch would decompose into indices and conditions, which lunette has no use for."""


@dataclass(frozen=True)
class Unavailable:
    """A result that lunette does not compute."""

    what: str


def entry(*names: str) -> Callable[[Entry], Entry]:
    """Register what operators mean."""

    def register(meaning: Entry) -> Entry:
        for name in names:
            TABLE[name if "." in name else f"{name}.default"] = meaning
        return meaning

    return register


def refuse(attribute: str, value: Any, need: str, hint: str) -> ArgumentError:
    """Rule FT3; the reader adds node and operator."""
    return ArgumentError("FT3", need, f"{attribute}={shown(value)}", hint)


# ---- window operators


@entry("convolution")
def convolution(
    x: Any,
    w: Any,
    b: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    d = len(shape_of(w)) - 2
    wide = [tuple(v) * (d if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)]
    options = {"stride": wide[0], "padding": wide[1], "dilation": wide[2], "groups": groups}
    if transposed:
        return ln.conv_transpose(x, w, b, output_padding=wide[3], **options)
    return ln.conv(x, w, b, **options)


@entry("max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    x: Any, kernel: Sequence[int], stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    options = {"stride": tuple(stride) or None, "padding": _ints(padding), "dilation": _ints(dilation)}
    return ln.max_pool(x, tuple(kernel), ceil_mode=ceil_mode, **options), Unavailable("indices of a max pool")


@entry("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    x: Any,
    kernel: Sequence[int],
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    options = {"stride": tuple(stride) or None, "padding": _ints(padding), "divisor": divisor}
    return ln.avg_pool(x, tuple(kernel), ceil_mode=ceil_mode, count_include_pad=count_include_pad, **options)


@entry("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(x: Any, output_size: Sequence[int]) -> Any:
    return ln.adaptive_avg_pool(x, tuple(output_size))


@entry("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Any, output_size: Sequence[int]) -> Any:
    return ln.adaptive_max_pool(x, tuple(output_size)), Unavailable("indices of a max pool")


def _ints(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


@entry("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(x: Any, output_size: Any, scale_factors: Any) -> Any:
    shape = shape_of(x)
    lead, space = shape[:2], shape[2:]
    factors = [m / n for m, n in zip(output_size, space, strict=True)] if output_size is not None else scale_factors
    if any(f != int(f) or f < 1 for f in factors):
        raise refuse("scale_factors", factors, "whole factors of nearest upsampling", "Take a transposed convolution.")
    times = [int(f) for f in factors]
    cells = tuple(v for n in space for v in (n, 1))
    wide = tuple(v for n, f in zip(space, times, strict=True) for v in (n, f))
    spread = ln.broadcast_to(ln.reshape(x, (*lead, *cells)), (*lead, *wide))
    return ln.reshape(spread, (*lead, *(n * f for n, f in zip(space, times, strict=True))))


# ---- cell by cell


for _name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "neg", "floor", "erf"):
    entry(_name)(getattr(ln, _name))
entry("leaky_relu")(lambda x, slope=0.01: ln.leaky_relu(x, slope))
entry("maximum")(lambda x, y: ln.maximum(x, y))
entry("minimum")(lambda x, y: ln.minimum(x, y))
entry("mul.Tensor", "mul.Scalar")(lambda x, y: ln.mul(x, y))
entry("reciprocal")(lambda x: ln.div(1, x))
entry("rsqrt")(lambda x: ln.div(1, ln.sqrt(x)))
entry("pow.Tensor_Scalar")(lambda x, exponent: ln.power(x, exponent))
entry("clone", "alias", "detach", "lift_fresh_copy")(lambda x, memory_format=None: x)
entry("_prelu_kernel")(lambda x, w: ln.sub(ln.relu(x), ln.mul(w, ln.relu(ln.neg(x)))))


@entry("add.Tensor", "add.Scalar")
def add(x: Any, y: Any, alpha: float = 1) -> Any:
    return ln.add(x, y if alpha == 1 else ln.mul(y, alpha))


@entry("sub.Tensor", "sub.Scalar")
def sub(x: Any, y: Any, alpha: float = 1) -> Any:
    return ln.sub(x, y if alpha == 1 else ln.mul(y, alpha))


@entry("rsub.Scalar", "rsub.Tensor")
def rsub(x: Any, y: Any, alpha: float = 1) -> Any:
    return sub(y, x, alpha)


entry("div.Tensor", "div.Scalar")(lambda x, y: ln.div(x, y))


@entry("hardtanh", "clamp")
def clamp(x: Any, least: float | None = None, most: float | None = None) -> Any:
    x = x if least is None else ln.maximum(x, least)
    return x if most is None else ln.minimum(x, most)


@entry("elu")
def elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    below = ln.mul(ln.sub(ln.exp(ln.mul(ln.minimum(x, 0), input_scale)), 1), alpha)
    return ln.mul(ln.add(ln.relu(x), below), scale)


@entry("gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = ln.mul(ln.add(x, ln.mul(ln.power(x, 3), 0.044715)), math.sqrt(2 / math.pi))
        return ln.mul(ln.mul(x, 0.5), ln.add(ln.tanh(inner), 1))
    return ln.mul(ln.mul(x, 0.5), ln.add(ln.erf(ln.mul(x, math.sqrt(0.5))), 1))


@entry("_to_copy")
def to_copy(x: Any, dtype: Any = None, **how: Any) -> Any:
    own = str(x.dtype)
    if dtype is not None and str(dtype).removeprefix("torch.") != own:
        raise refuse("dtype", dtype, f"one dtype, {own}", "Convert module and examples to it before.")
    return x


# ---- matrices


entry("mm", "bmm")(lambda x, y: ln.matmul(x, y))


@entry("addmm", "baddbmm")
def addmm(b: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1) -> Any:
    product = ln.matmul(x, y)
    return ln.add(product if alpha == 1 else ln.mul(product, alpha), b if beta == 1 else ln.mul(b, beta))


# ---- layout


entry("view", "reshape", "_unsafe_view")(lambda x, shape: ln.reshape(x, tuple(shape)))
entry("permute")(lambda x, axes: ln.transpose(x, tuple(a % len(axes) for a in axes)))
entry("cat")(lambda xs, axis=0: ln.concat(xs, axis))


@entry("expand")
def expand(x: Any, shape: Sequence[int], implicit: bool = False) -> Any:
    own = shape_of(x)
    wide = (1,) * (len(shape) - len(own)) + own
    return ln.broadcast_to(x, tuple(n if m == -1 else m for m, n in zip(shape, wide, strict=True)))


@entry("unsqueeze")
def unsqueeze(x: Any, axis: int) -> Any:
    shape = shape_of(x)
    at = axis % (len(shape) + 1)
    return ln.reshape(x, (*shape[:at], 1, *shape[at:]))


@entry("squeeze.dims", "squeeze.dim")
def squeeze(x: Any, axes: Any) -> Any:
    shape = shape_of(x)
    gone = {a % len(shape) for a in (axes if isinstance(axes, list | tuple) else [axes])}
    return ln.reshape(x, tuple(n for a, n in enumerate(shape) if a not in gone or n != 1))


@entry("slice.Tensor")
def cut(x: Any, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Any:
    shape = shape_of(x)
    at = axis % len(shape)
    first, last, _ = slice(start, stop).indices(shape[at])
    ends = [(0, n, 1) if a != at else (first, max(first, last), step) for a, n in enumerate(shape)]
    return ln.slice(x, *(tuple(e) for e in zip(*ends, strict=True)))


@entry("select.int")
def select(x: Any, axis: int, index: int) -> Any:
    shape = shape_of(x)
    at = axis % len(shape)
    one = index % shape[at]
    return ln.reshape(cut(x, at, one, one + 1), (*shape[:at], *shape[at + 1 :]))


@entry("split_with_sizes")
def split(x: Any, sizes: Sequence[int], axis: int = 0) -> Any:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(cut(x, axis, a, b) for a, b in pairwise(ends))


@entry("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    """Torch counts axes from the last; less than nothing is cut off."""
    shape = shape_of(x)
    pairs = [(0, 0)] * (len(shape) - len(pad) // 2) + list(zip(pad[-2::-2], pad[-1::-2], strict=True))
    if any(p < 0 for p in pad):
        starts = tuple(max(-lo, 0) for lo, _ in pairs)
        stops = tuple(n - max(-hi, 0) for (_, hi), n in zip(pairs, shape, strict=True))
        x = ln.slice(x, starts, stops)
    return ln.pad(x, tuple((max(lo, 0), max(hi, 0)) for lo, hi in pairs), value)


@entry(*(f"reflection_pad{d}d" for d in (1, 2, 3)))
def reflection_pad(x: Any, pad: Sequence[int]) -> Any:
    return _repeating("reflect", x, pad)


@entry(*(f"replication_pad{d}d" for d in (1, 2, 3)))
def replication_pad(x: Any, pad: Sequence[int]) -> Any:
    return _repeating("edge", x, pad)


def _repeating(how: str, x: Any, pad: Sequence[int]) -> Any:
    """Less than nothing is cut off: cells before the first and after the last are named all the same."""
    shape = shape_of(x)
    for axis, lo, hi in zip(range(len(shape) - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        n = shape[axis]
        if (lo, hi) != (0, 0):
            x = ln.take(x, np.array([BEYOND[how](i, n) for i in range(-lo, n + hi)], np.int64), axis)
    return x


@entry("flip")
def flip(x: Any, axes: Sequence[int]) -> Any:
    shape = shape_of(x)
    for axis in axes:
        x = ln.take(x, np.arange(shape[axis])[::-1].copy(), axis % len(shape))
    return x


@entry("full")
def full(size: Sequence[int], value: float, dtype: Any = None, **how: Any) -> Any:
    name = str(dtype or torch.get_default_dtype()).removeprefix("torch.")
    return np.full(tuple(size), value, name)


# ---- reductions


@entry("mean.dim", "mean")
def mean(x: Any, axes: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    return ln.mean(x, _axes(axes), keepdims)


@entry("sum.dim_IntList", "sum")
def total(x: Any, axes: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    return ln.sum(x, _axes(axes), keepdims)


@entry("amax")
def amax(x: Any, axes: Any = (), keepdims: bool = False) -> Any:
    return ln.max(x, _axes(axes), keepdims)


@entry("amin")
def amin(x: Any, axes: Any = (), keepdims: bool = False) -> Any:
    return ln.neg(amax(ln.neg(x), axes, keepdims))


@entry("min.dim")
def min_dim(x: Any, axis: int, keepdims: bool = False) -> Any:
    return amin(x, (axis,), keepdims), Unavailable("indices of a minimum")


@entry("max.dim")
def max_dim(x: Any, axis: int, keepdims: bool = False) -> Any:
    return ln.max(x, axis, keepdims), Unavailable("indices of a maximum")


@entry("var.correction")
def var(x: Any, axes: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    axes = _axes(axes)
    by = 1 if correction is None else correction
    away = ln.sub(x, ln.mean(x, axes, True))
    shape = shape_of(x)
    n = prod(shape) if axes is None else prod(shape[a] for a in axes)
    if n <= by:
        raise refuse(
            "correction", by, f"a correction below the {n} cells of the variance", "Divide by what is positive."
        )
    return ln.div(ln.sum(ln.mul(away, away), axes, keepdim), n - by)


@entry("linalg_vector_norm")
def vector_norm(x: Any, order: float = 2, axes: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    if order != 2:
        raise refuse("ord", order, "ord=2", "Other norms are no operators here.")
    return ln.sqrt(ln.sum(ln.mul(x, x), _axes(axes), keepdims))


def _axes(axes: Any) -> Any:
    return tuple(axes) if axes else None


entry("_softmax")(lambda x, axis, half_to_float=False: ln.softmax(x, axis))
entry("_log_softmax")(lambda x, axis, half_to_float=False: ln.log_softmax(x, axis))


# ---- normalisations


@entry("_native_batch_norm_legit_no_training")
def batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    channels, like = shape_of(x)[1], mean
    w = np.ones(channels, like.dtype) if w is None else w
    b = np.zeros(channels, like.dtype) if b is None else b
    return ln.batch_norm(x, mean, var, w, b, eps), Unavailable("statistics"), Unavailable("statistics")


@entry("_native_batch_norm_legit_functional")
def batch_norm_in_training(
    x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """By the statistics of the batch; the running ones are not updated by a graph, which has no state."""
    if not training:
        return batch_norm(x, w, b, mean, var, momentum, eps)
    return _normalised(x, (0, *range(2, len(shape_of(x)))), w, b, eps, 1), *(Unavailable("statistics"),) * 4


@entry("_native_batch_norm_legit.no_stats")
def instance_norm(x: Any, w: Any, b: Any, training: bool, momentum: float, eps: float) -> Any:
    return _normalised(x, (0, *range(2, len(shape_of(x)))), w, b, eps, 1), *(Unavailable("statistics"),) * 2


@entry("native_layer_norm")
def layer_norm(x: Any, normalized: Sequence[int], w: Any, b: Any, eps: float) -> Any:
    rank = len(shape_of(x))
    axes = tuple(range(rank - len(normalized), rank))
    return _normalised(x, axes, w, b, eps, rank - len(normalized)), *(Unavailable("statistics"),) * 2


@entry("native_group_norm")
def group_norm(x: Any, w: Any, b: Any, batch: int, channels: int, cells: int, groups: int, eps: float) -> Any:
    shape = shape_of(x)
    apart = ln.reshape(x, (batch, groups, prod(shape[1:]) // groups))
    y = ln.reshape(_normalised(apart, (2,), None, None, eps, 0), shape)
    return _scaled(y, w, b, 1), *(Unavailable("statistics"),) * 2


def _normalised(x: Any, axes: tuple[int, ...], w: Any, b: Any, eps: float, at: int) -> Any:
    """(x - mean) / sqrt(var + eps), the statistics over `axes`; scaled by w and b, whose axes begin at `at`."""
    away = ln.sub(x, ln.mean(x, axes, True))
    spread = ln.mean(ln.mul(away, away), axes, True)
    return _scaled(ln.div(away, ln.sqrt(ln.add(spread, eps))), w, b, at)


def _scaled(y: Any, w: Any, b: Any, at: int) -> Any:
    for f, a in ((ln.mul, w), (ln.add, b)):
        if a is not None:
            own = shape_of(a)
            y = f(y, ln.reshape(a, (*own, *(1,) * (len(shape_of(y)) - at - len(own)))))
    return y
