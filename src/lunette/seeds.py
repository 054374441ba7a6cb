"""The seeds' names: the Lean documents this library started from, function by function, over the operators.

Nothing is computed here. A gradient is the VJP of an operator, a 2-D form is the operator with two spatial axes, and a
size is what the window says. Arrays are positional, in the order x, w, b, t, g. Pools take one channel `(*space)` or
several `(channels, *space)`; the operators' rule holds that an int kernel means the latter. docs/seeds.md maps the
definitions of the documents to these names.

| rule | says                                                                                     |
|------|------------------------------------------------------------------------------------------|
| F1   | sizes and channel counts are integers >= 0                                                |
| F2   | input_shape is the spatial sizes of the input, or its whole shape                         |
| F3   | a 2-D form has two spatial axes, and a function of one channel has no channel axis        |
| F4   | 0 <= o < m: a bin is that of an output cell                                               |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from lunette.errors import ArgumentError, ShapeError, error_context, shown
from lunette.number import OBJECT, Array, allocate, cells_of, zero_of
from lunette.ops import Conv
from lunette.window import (
    Axis,
    Bins,
    Ints,
    Padding,
    Shape,
    Window,
    each_axis,
    integer,
    is_sequence,
    per_axis,
    spatial_axes,
)

P = ParamSpec("P")
R = TypeVar("R")

_ANY_RANK = "The name without 2d takes any number of axes."
SEEDS: dict[str, Callable[..., Any]] = {}
_run: dict[str, Callable[..., Any]] = {}


def over(operators: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """The seeds' functions, on these operators. lunette.spec hands its own in, since it imports this file."""
    _run.update(operators)
    return SEEDS


def seed(function: Callable[P, R]) -> Callable[P, R]:
    """A function of `lunette.spec`: it signs what is refused before an operator is asked."""
    name = function.__name__
    d = 2 if "2d" in name else None

    @wraps(function)
    def signed(*args: P.args, **kwargs: P.kwargs) -> R:
        with error_context(name, d):
            return function(*args, **kwargs)

    SEEDS[name] = signed
    return signed


def planar(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """The 2-D form of a convolution: two spatial axes, and one stride for both."""
    signature = inspect.signature(function)

    @wraps(function)
    def form(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        if "stride" in given:
            integer("stride", given["stride"])
        if "kernel" in given:
            per_axis("kernel", given["kernel"], 2)
        last = "w" if "w" in given else "g"
        _axes(given[last], last, 4 if last == "w" else 3, hint=_ANY_RANK)
        return function(*args, **kwargs)

    form.__name__ = form.__qualname__ = name
    form.__doc__ = f"`{function.__name__}` with two spatial axes and one stride for both."
    return seed(form)


# ---- what stands in for an argument that a gradient does not read


def _size(name: str, value: object) -> int:
    n = integer(name, value)
    if n < 0:
        raise ArgumentError("F1", f"{name} >= 0", f"{name}={n}", "Sizes count cells.")
    return n


def _sizes(name: str, values: object) -> Shape:
    if not is_sequence(values):
        raise ArgumentError("F1", f"{name} as one size per spatial axis", f"{name}={shown(values)}", "Pass a tuple.")
    return tuple(_size(name, v) for v in values)  # type: ignore[attr-defined]


def _axes(a: Any, name: str, *ranks: int, hint: str = "Take one channel at a time.") -> Array:
    """Rule F3."""
    cells = cells_of(a, name)
    if cells.ndim not in ranks:
        need = " or ".join(map(str, ranks))
        raise ShapeError("F3", f"{name} with {need} axes", f"{name}.shape={cells.shape}", hint)
    return cells


def _blank(shape: Shape, *alike: Array) -> Array:
    """Zeros for an array whose values a linear operator's gradient never uses."""
    a = allocate(shape, OBJECT)
    a[...] = zero_of(*alike)
    return a


def _input(input_shape: object, channels: Shape, d: int) -> Shape:
    """Rule F2."""
    sizes = _sizes("input_shape", input_shape)
    if len(sizes) not in (d, d + 1):
        raise ShapeError(
            "F2",
            f"input_shape with {d} spatial sizes, or with the channels in front of them",
            f"input_shape={sizes}",
            "An int kernel means that g has a channel axis; pass a tuple if it has none.",
            d=d,
        )
    return sizes if len(sizes) > d else (*channels, *sizes)


def _kernel(kernel: Ints, x: Array, g: Array) -> Shape:
    """The spatial kernel of a weight that is not given."""
    d = spatial_axes("kernel", kernel, None, x.shape, 1)
    for a, name in ((x, "x"), (g, "g")):
        _axes(a, name, d + 1, hint="The kernel has one entry per spatial axis, behind a channel axis.")
    sizes = per_axis("kernel", kernel, d)
    each_axis(Axis, sizes)
    return sizes


def _share(channels: int, groups: int) -> int:
    """The channels of one group; what does not divide is refused by the operator."""
    return channels // max(integer("groups", groups), 1)


# ---- convolution


@seed
def conv_backward(
    x: Any, w: Any, g: Any, *, stride: Ints = 1, padding: Padding = 0, dilation: Ints = 1, groups: int = 1
) -> tuple[Array, Array, Array]:
    """(dkernel, dbias, dinput) of `conv` for the cotangent g."""
    dx, dw = _run["conv_vjp"]((x, w), g, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return dw, conv_bias_deriv(g), dx


@seed
def conv_kernel_deriv(
    x: Any, g: Any, *, kernel: Ints, stride: Ints = 1, padding: Padding = 0, dilation: Ints = 1, groups: int = 1
) -> Array:
    """What g sends to the weights of `conv`; `kernel` is their spatial size."""
    x, g = cells_of(x, "x"), cells_of(g, "g")
    sizes = _kernel(kernel, x, g)
    Window.sliding(x.shape[1:], sizes, stride, padding, dilation).out(x.shape[1:])
    w = _blank((g.shape[0], _share(x.shape[0], groups), *sizes), g, x)
    return conv_backward(x, w, g, stride=stride, padding=padding, dilation=dilation, groups=groups)[0]


@seed
def conv_bias_deriv(g: Any) -> Array:
    """What g `(channels, *space)` sends to the bias of `conv`."""
    # A convolution without input channels is its bias alone.
    g = cells_of(g, "g")
    if g.ndim == 0:
        raise ShapeError("F3", "g with a channel axis", f"g.shape={g.shape}", "g has the shape of the output.")
    c, *space = g.shape
    result: Array = _run["conv_vjp"]((_blank((0, *space)), _blank((c, 0, *(1 for _ in space))), _blank((c,))), g)[2]
    return result


@seed
def conv_input_deriv(
    w: Any,
    g: Any,
    *,
    input_shape: Sequence[int],
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """What g sends to the input of `conv`; `input_shape` is (*space) or (channels, *space)."""
    w, g = cells_of(w, "w"), cells_of(g, "g")
    d = Conv.rank((None, w.shape), 1)
    x = _blank(_input(input_shape, (w.shape[1] * max(integer("groups", groups), 0),), d), g, w)
    return conv_backward(x, w, g, stride=stride, padding=padding, dilation=dilation, groups=groups)[2]


@seed
def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: int = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """`conv` with two spatial axes and one stride for both."""
    _axes(w, "w", 4, hint=_ANY_RANK)
    y: Array = _run["conv"](
        x, w, b, stride=integer("stride", stride), padding=padding, dilation=dilation, groups=groups
    )
    return y


conv2d_backward = planar("conv2d_backward", conv_backward)
conv2d_kernel_deriv = planar("conv2d_kernel_deriv", conv_kernel_deriv)
conv2d_bias_deriv = planar("conv2d_bias_deriv", conv_bias_deriv)
conv2d_input_deriv = planar("conv2d_input_deriv", conv_input_deriv)


# ---- transposed convolution


@seed
def conv_transpose_backward(
    x: Any,
    w: Any,
    g: Any,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> tuple[Array, Array, Array]:
    """(dkernel, dbias, dinput) of `conv_transpose` for the cotangent g."""
    options = {"output_padding": output_padding, "dilation": dilation, "groups": groups}
    dx, dw = _run["conv_transpose_vjp"]((x, w), g, stride=stride, padding=padding, **options)
    return dw, conv_bias_deriv(g), dx


@seed
def conv_transpose_kernel_deriv(
    x: Any,
    g: Any,
    *,
    kernel: Ints,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """What g sends to the weights of `conv_transpose`; `kernel` is their spatial size."""
    x, g = cells_of(x, "x"), cells_of(g, "g")
    sizes = _kernel(kernel, x, g)
    w = _blank((x.shape[0], _share(g.shape[0], groups), *sizes), g, x)
    options: dict[str, Any] = {"output_padding": output_padding, "dilation": dilation, "groups": groups}
    return conv_transpose_backward(x, w, g, stride=stride, padding=padding, **options)[0]


@seed
def conv_transpose_bias_deriv(g: Any) -> Array:
    """What g `(channels, *space)` sends to the bias of `conv_transpose`."""
    return conv_bias_deriv(g)


@seed
def conv_transpose_input_deriv(
    w: Any,
    g: Any,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """What g sends to the input of `conv_transpose`, whose size is that of the convolution of g."""
    w, g = cells_of(w, "w"), cells_of(g, "g")
    d = Conv.rank((None, w.shape), 1)
    _axes(g, "g", d + 1, hint="The kernel has one entry per spatial axis, behind a channel axis.")
    extra = per_axis("output_padding", output_padding, d)
    space = tuple(n - e for n, e in zip(g.shape[1:], extra, strict=True))
    sizes = Window.sliding(space, w.shape[2:], stride, padding, dilation).out(space)
    options: dict[str, Any] = {"output_padding": output_padding, "dilation": dilation, "groups": groups}
    x = _blank((w.shape[0], *sizes), g, w)
    return conv_transpose_backward(x, w, g, stride=stride, padding=padding, **options)[2]


@seed
def conv_transpose2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: int = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Array:
    """`conv_transpose` with two spatial axes and one stride for both."""
    _axes(w, "w", 4, hint=_ANY_RANK)
    options = {"output_padding": output_padding, "dilation": dilation, "groups": groups}
    y: Array = _run["conv_transpose"](x, w, b, stride=integer("stride", stride), padding=padding, **options)
    return y


conv_transpose2d_backward = planar("conv_transpose2d_backward", conv_transpose_backward)
conv_transpose2d_weights_deriv = planar("conv_transpose2d_weights_deriv", conv_transpose_kernel_deriv)
conv_transpose2d_bias_deriv = planar("conv_transpose2d_bias_deriv", conv_transpose_bias_deriv)
conv_transpose2d_input_deriv = planar("conv_transpose2d_input_deriv", conv_transpose_input_deriv)


# ---- pools


@seed
def avg_pool_backward(
    g: Any, kernel: Ints, *, input_shape: Sequence[int], stride: Ints | None, padding: Padding = 0
) -> Array:
    """What g sends to the input of `avg_pool`: an equal share to every cell of each window."""
    g = cells_of(g, "g")
    d = spatial_axes("kernel", kernel, None, g.shape, 1)
    x = _blank(_input(input_shape, g.shape[: max(g.ndim - d, 0)], d), g)
    dx: Array = _run["avg_pool_vjp"]((x,), g, kernel=per_axis("kernel", kernel, d), stride=stride, padding=padding)[0]
    return dx


def _global_avg_backward(g: Any, input_shape: Sequence[int], kept: int) -> Array:
    g = cells_of(g, "g")
    x = _blank(_input(input_shape, g.shape[: max(g.ndim - kept, 0)], 2), g)
    dx: Array = _run["global_avg_pool_vjp"]((x,), g, spatial=2, keepdims=kept > 0)[0]
    return dx


def _channelwise(x: Any, reduce: Callable[[Array], Any]) -> Any:
    cells = _axes(x, "x", 2, 3)
    if cells.ndim == 2:
        return reduce(cells)
    y: Array = np.empty(cells.shape[0], object)
    for c, channel in enumerate(cells):
        y[c] = _axes(reduce(channel), "the reduced channel", 0)[()]
    return y


def _plane_of_one(v: Any) -> Array:
    cells = cells_of(v, "v")
    return cells.reshape(*cells.shape, 1, 1)


def _plane(kernel: Ints, stride: int, padding: int = 0) -> dict[str, Any]:
    """The options of a 2-D pool: one kernel or two, one stride, one padding."""
    return {
        "kernel": per_axis("kernel", kernel, 2),
        "stride": integer("stride", stride),
        "padding": integer("padding", padding),
    }


def _pair(output_size: Any) -> dict[str, Any]:
    return {"output_size": output_size if is_sequence(output_size) else (output_size, output_size)}


def _bin(n: int, m: int, o: int) -> tuple[int, int]:
    """The first cell of a bin and the one behind its last."""
    cells, at = _size("n", n), integer("o", o)
    bins = Bins(integer("m", m))
    if not 0 <= at < bins.out(cells):
        raise ArgumentError("F4", f"0 <= o < m = {bins.m}", f"o={at}", "o counts bins from 0.")
    r = bins.reach(at, cells)
    return r.i, r.i + r.count


# ---- sizes


def _sliding(n: Sequence[int], k: Ints, s: Ints, p: Padding) -> Shape:
    space = _sizes("n", n)
    with error_context("lunette", len(space)):
        return Window.sliding(space, k, s, p).out(space)


def _transposed(n: Sequence[int], k: Ints, s: Ints, p: Padding) -> Shape:
    space = _sizes("n", n)
    with error_context("lunette", len(space)):
        return Window.transposed(len(space), k, s, p).out(space)


def _behind(channels: int, space: Shape, in_channels: int = 0) -> Shape:
    _size("in_channels", in_channels)
    return (_size("channels", channels), *space)


# ---- everything that is one line

ROWS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    # pools of any rank
    "max_pool_backward": (
        "What g sends to x through `max_pool`: all of it to the first greatest cell of each window.",
        lambda x, g, kernel, *, stride, padding=0: _run["max_pool_vjp"](
            (x,), g, kernel=kernel, stride=stride, padding=padding
        )[0],
    ),
    "smooth_max_pool_backward": (
        "What g sends to x through `smooth_max_pool`: softmax shares to the cells of each window.",
        lambda x, g, kernel, *, beta, stride, padding=0: _run["smooth_max_pool_vjp"](
            (x, beta), g, kernel=kernel, stride=stride, padding=padding
        )[0],
    ),
    # pools with two spatial axes
    "max_pool2d": (
        "`max_pool` with two spatial axes and no padding.",
        lambda x, kernel, *, stride: _run["max_pool"](x, **_plane(kernel, stride)),
    ),
    "max_pool2d_pad": (
        "`max_pool` with two spatial axes; padding never wins.",
        lambda x, kernel, *, stride, padding: _run["max_pool"](x, **_plane(kernel, stride, padding)),
    ),
    "max_pool2d_jvp": (
        "The tangent t at the first greatest cell of each window of x.",
        lambda x, t, kernel, *, stride: _run["max_pool_jvp"]((x,), (t,), **_plane(kernel, stride)),
    ),
    "max_pool2d_jvp_pad": (
        "The tangent t at the first greatest cell of each padded window of x.",
        lambda x, t, kernel, *, stride, padding: _run["max_pool_jvp"]((x,), (t,), **_plane(kernel, stride, padding)),
    ),
    "max_pool2d_backward": (
        "`max_pool_backward` with two spatial axes and no padding.",
        lambda x, g, kernel, *, stride: _run["max_pool_vjp"]((x,), g, **_plane(kernel, stride))[0],
    ),
    "max_pool2d_backward_pad": (
        "`max_pool_backward` with two spatial axes.",
        lambda x, g, kernel, *, stride, padding: _run["max_pool_vjp"]((x,), g, **_plane(kernel, stride, padding))[0],
    ),
    "avg_pool2d": (
        "`avg_pool` with two spatial axes and no padding.",
        lambda x, kernel, *, stride: _run["avg_pool"](x, **_plane(kernel, stride)),
    ),
    "avg_pool2d_pad": (
        "`avg_pool` with two spatial axes; padding is counted.",
        lambda x, kernel, *, stride, padding: _run["avg_pool"](x, **_plane(kernel, stride, padding)),
    ),
    "avg_pool2d_backward": (
        "`avg_pool_backward` with two spatial axes and no padding.",
        lambda g, kernel, *, input_shape, stride: avg_pool_backward(
            g, input_shape=input_shape, **_plane(kernel, stride)
        ),
    ),
    "avg_pool2d_backward_pad": (
        "`avg_pool_backward` with two spatial axes.",
        lambda g, kernel, *, input_shape, stride, padding: avg_pool_backward(
            g, input_shape=input_shape, **_plane(kernel, stride, padding)
        ),
    ),
    "smooth_max_pool2d": (
        "`smooth_max_pool` with two spatial axes and no padding.",
        lambda x, kernel, *, beta, stride: _run["smooth_max_pool"](x, beta=beta, **_plane(kernel, stride)),
    ),
    "smooth_max_pool2d_jvp": (
        "The softmax-weighted sum of the tangent t over each window of x.",
        lambda x, t, kernel, *, beta, stride: _run["smooth_max_pool_jvp"](
            (x, beta), (t, None), **_plane(kernel, stride)
        ),
    ),
    "smooth_max_pool2d_backward": (
        "`smooth_max_pool_backward` with two spatial axes and no padding.",
        lambda x, g, kernel, *, beta, stride: _run["smooth_max_pool_vjp"]((x, beta), g, **_plane(kernel, stride))[0],
    ),
    # adaptive pools
    "adaptive_avg_pool2d": (
        "`adaptive_avg_pool` with two spatial axes.",
        lambda x, output_size: _run["adaptive_avg_pool"](x, **_pair(output_size)),
    ),
    "adaptive_max_pool2d": (
        "`adaptive_max_pool` with two spatial axes.",
        lambda x, output_size: _run["adaptive_max_pool"](x, **_pair(output_size)),
    ),
    "adaptive_start": ("The first of the n cells that bin o of m reads.", lambda n, m, o: _bin(n, m, o)[0]),
    "adaptive_end": ("One past the last of the n cells that bin o of m reads.", lambda n, m, o: _bin(n, m, o)[1]),
    # global pools
    "global_avg_pool2d": (
        "The average of each channel, `(channels, 1, 1)`.",
        lambda x: _run["global_avg_pool"](x, spatial=2),
    ),
    "global_max_pool2d": (
        "The greatest cell of each channel, `(channels, 1, 1)`.",
        lambda x: _run["global_max_pool"](x, spatial=2),
    ),
    "global_avg_pool2d_flat": (
        "The average of each channel, `(channels,)`; a number if x has no channel axis.",
        lambda x: _run["global_avg_pool"](x, spatial=2, keepdims=False),
    ),
    "global_max_pool2d_flat": (
        "The greatest cell of each channel, `(channels,)`; a number if x has no channel axis.",
        lambda x: _run["global_max_pool"](x, spatial=2, keepdims=False),
    ),
    "global_avg_pool2d_backward": (
        "What g `(channels, 1, 1)` sends to the input of `global_avg_pool2d`: equal shares.",
        lambda g, *, input_shape: _global_avg_backward(g, input_shape, 2),
    ),
    "global_avg_pool2d_flat_backward": (
        "What g `(channels,)` sends to the input of `global_avg_pool2d_flat`: equal shares.",
        lambda g, *, input_shape: _global_avg_backward(g, input_shape, 0),
    ),
    "global_max_pool2d_backward": (
        "What g `(channels, 1, 1)` sends to x: the whole of it to every greatest cell.",
        lambda x, g: _run["global_max_pool_vjp"]((x,), g, spatial=2)[0],
    ),
    "global_max_pool2d_flat_backward": (
        "What g `(channels,)` sends to x: the whole of it to every greatest cell.",
        lambda x, g: _run["global_max_pool_vjp"]((x,), g, spatial=2, keepdims=False)[0],
    ),
    "global_max_pool2d_backward_distributed": (
        "What g `(channels, 1, 1)` sends to x: equal shares to the greatest cells.",
        lambda x, g: _run["global_max_pool_vjp"]((x,), g, spatial=2, ties="split")[0],
    ),
    "reduce_spatial": (
        "One channel `(h, w)` folded in row-major order: f(f(init, first cell), next cell) and so on.",
        lambda x, init, f: reduce(f, _axes(x, "x", 2).flat, init),
    ),
    "global_channel_reduce": (
        "`reduce_spatial` by its other name.",
        lambda x, init, f: reduce(f, _axes(x, "x", 2).flat, init),
    ),
    "channel_spatial_max": (
        "The greatest cell of one channel `(h, w)`.",
        lambda x: _run["global_max_pool"](_axes(x, "x", 2), spatial=2, keepdims=False),
    ),
    "broadcast_scalar1x1": ("One number as a plane `(1, 1)`.", lambda v: _plane_of_one(_axes(v, "v", 0))),
    "global_pool2d1x1": (
        "Any reduction of a channel `(h, w)` to a number, as a pool that gives `(channels, 1, 1)`.",
        lambda x, reduce: _plane_of_one(_channelwise(x, reduce)),
    ),
    "global_pool2d_flat": (
        "Any reduction of a channel `(h, w)` to a number, as a pool that gives `(channels,)`.",
        lambda x, reduce: _channelwise(x, reduce),
    ),
    # sizes
    "conv_out_dim": (
        "The output size of one axis: n cells, kernel k, stride s, padding p on both sides.",
        lambda n, k, s, p: _sliding((n,), k, s, p)[0],
    ),
    "conv_out_spatial": ("The output sizes of `conv`, axis by axis.", lambda n, k, s, p: _sliding(n, k, s, p)),
    "conv_out_shape": ("The output shape of `conv` without channels.", lambda n, k, s, p: _sliding(n, k, s, p)),
    "conv_multi_out_shape": (
        "The output shape of `conv`.",
        lambda in_channels, out_channels, n, k, s, p: _behind(out_channels, _sliding(n, k, s, p), in_channels),
    ),
    "conv2d_out_shape": (
        "The output shape of `conv2d` without channels.",
        lambda h, w, kh, kw, stride, padding: _sliding((h, w), (kh, kw), stride, padding),
    ),
    "conv2d_multi_out_shape": (
        "The output shape of `conv2d`.",
        lambda in_channels, out_channels, h, w, kh, kw, stride, padding: _behind(
            out_channels, _sliding((h, w), (kh, kw), stride, padding), in_channels
        ),
    ),
    "conv_transpose_out_dim": (
        "The transposed output size of one axis: n cells, kernel k, stride s, p cells cropped on both sides.",
        lambda n, k, s, p: _transposed((n,), k, s, p)[0],
    ),
    "conv_transpose_out_spatial": (
        "The output sizes of `conv_transpose`, axis by axis.",
        lambda n, k, s, p: _transposed(n, k, s, p),
    ),
    "conv_transpose_out_shape": (
        "The output shape of `conv_transpose` without channels.",
        lambda n, k, s, p: _transposed(n, k, s, p),
    ),
    "conv_transpose_multi_out_shape": (
        "The output shape of `conv_transpose`.",
        lambda in_channels, out_channels, n, k, s, p: _behind(out_channels, _transposed(n, k, s, p), in_channels),
    ),
    "conv_transpose2d_out_shape": (
        "The output shape of `conv_transpose2d` without channels.",
        lambda h, w, kh, kw, stride, padding: _transposed((h, w), (kh, kw), stride, padding),
    ),
    "conv_transpose2d_multi_out_shape": (
        "The output shape of `conv_transpose2d`.",
        lambda in_channels, out_channels, h, w, kh, kw, stride, padding: _behind(
            out_channels, _transposed((h, w), (kh, kw), stride, padding), in_channels
        ),
    ),
    "pool_out_spatial": (
        "The output sizes of a pool without padding, axis by axis.",
        lambda n, k, s: _sliding(n, k, s, 0),
    ),
    "pool_out_spatial_pad": ("The output sizes of a pool, axis by axis.", lambda n, k, s, p: _sliding(n, k, s, p)),
    "pool_out_shape": (
        "The output shape of a pool of one channel without padding.",
        lambda n, k, s: _sliding(n, k, s, 0),
    ),
    "pool_out_shape_pad": ("The output shape of a pool of one channel.", lambda n, k, s, p: _sliding(n, k, s, p)),
    "pool_multi_out_shape": (
        "The output shape of a pool of c channels without padding.",
        lambda c, n, k, s: _behind(c, _sliding(n, k, s, 0)),
    ),
    "pool_multi_out_shape_pad": (
        "The output shape of a pool of c channels.",
        lambda c, n, k, s, p: _behind(c, _sliding(n, k, s, p)),
    ),
    "pool2d_out_shape": (
        "The output shape of a 2-D pool of one channel without padding.",
        lambda h, w, kh, kw, stride: _sliding((h, w), (kh, kw), stride, 0),
    ),
    "pool2d_out_shape_pad": (
        "The output shape of a 2-D pool of one channel.",
        lambda h, w, kh, kw, stride, padding: _sliding((h, w), (kh, kw), stride, padding),
    ),
    "pool2d_multi_out_shape": (
        "The output shape of a 2-D pool of c channels without padding.",
        lambda c, h, w, kh, kw, stride: _behind(c, _sliding((h, w), (kh, kw), stride, 0)),
    ),
    "pool2d_multi_out_shape_pad": (
        "The output shape of a 2-D pool of c channels.",
        lambda c, h, w, kh, kw, stride, padding: _behind(c, _sliding((h, w), (kh, kw), stride, padding)),
    ),
    "global_pool2d_out_shape": (
        "The output shape of a global 2-D pool of c channels.",
        lambda c: _behind(c, Window.whole(2).out((1, 1))),
    ),
    "global_pool2d_flat_out_shape": (
        "The output shape of a flat global 2-D pool of c channels.",
        lambda c: _behind(c, ()),
    ),
}

for _name, (_doc, _function) in ROWS.items():
    _function.__name__ = _function.__qualname__ = _name
    _function.__doc__ = _doc
    globals()[_name] = seed(_function)
