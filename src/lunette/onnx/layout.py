"""Operators that move cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, prod
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError
from lunette.graph.nodes import Var
from lunette.number import OBJECT
from lunette.onnx.value import Call, Data, Reader, Value, filled, refuse
from lunette.ops.broadcast import broadcast_to
from lunette.ops.concat import concat
from lunette.ops.glue import broadcast, check_axes, check_axis, shape_of
from lunette.ops.layout import reshape, transpose
from lunette.ops.pad import pad
from lunette.ops.pad import slice as cut
from lunette.ops.take import BEYOND, take
from lunette.window import Shape, integer

_python_slice = slice


def read_identity(n: Call) -> Any:
    return n.value(0)


def read_dropout(n: Call) -> Any:
    n.real("ratio", 0.5)
    n.maybe(1)  # as an input; it says nothing where nothing is trained
    n.attribute("seed", "INT", 0)
    if n.opset >= 12 and n.number(2, "training_mode"):
        hint = "Export the model for inference: model.eval()."
        raise ArgumentError("NX11", "inference", "training_mode=1", hint)
    if len(n.proto.output) < 2:
        return [n.value(0)]
    x = n.x()
    ones = filled(1, (), x) if not isinstance(x, Var) else n.graph.constant(1.0, x.dtype)
    return [n.value(0), Value(broadcast_to(ones, shape_of(x)), "BOOL")]


def read_flatten(n: Call) -> Any:
    shape, axis = n.shape(), n.integer("axis", 1)
    at = len(shape) if axis == len(shape) else check_axis("axis", axis, max(len(shape), 1))
    return reshape(n.x(), (prod(shape[:at]), prod(shape[at:])))


def read_reshape(n: Call) -> Any:
    shape, wanted = n.shape(), n.whole(1, "a shape")
    zero = n.flag("allowzero") if n.opset >= 14 else False
    if wanted is None:
        raise refuse("a shape", "none", "The model is damaged.")
    if not zero and any(s == 0 and at >= len(shape) for at, s in enumerate(wanted)):
        raise refuse(f"sizes to keep (0) among {len(shape)} axes", f"shape {wanted}", "x has no such axis.")
    return reshape(n.x(), tuple(shape[at] if s == 0 and not zero else s for at, s in enumerate(wanted)))


def read_squeeze(n: Call) -> Any:
    shape, axes = n.shape(), n.told("axes", 1, "axes")
    gone = [a for a, s in enumerate(shape) if s == 1] if axes is None else check_axes(tuple(axes), len(shape))
    if any(shape[a] != 1 for a in gone):
        raise refuse("axes of size 1", f"axes {tuple(gone)} of {shape}", "Others cannot be left out.")
    return reshape(n.x(), tuple(s for a, s in enumerate(shape) if a not in gone))


def read_unsqueeze(n: Call) -> Any:
    shape, axes = n.shape(), n.told("axes", 1, "axes")
    if axes is None:
        raise refuse("axes", "none", "The model is damaged.")
    rank = len(shape) + len(axes)
    new, old = check_axes(tuple(axes), rank), iter(shape)
    return reshape(n.x(), tuple(1 if a in new else next(old) for a in range(rank)))


def read_transpose(n: Call) -> Any:
    axes = n.ints("perm")
    return transpose(n.x(), None if axes is None else tuple(axes))


def read_concat(n: Call) -> Any:
    return concat(n.every(), n.integer("axis"))


def read_split(n: Call) -> Any:
    shape, many = n.shape(), len(n.proto.output)
    axis = check_axis("axis", n.integer("axis", 0), len(shape))
    sizes = n.told("split", 1, "split")
    told = n.integer("num_outputs", many) if n.opset >= 18 else many
    if sizes is None:
        if told != many or (n.opset < 18 and shape[axis] % many):
            raise refuse(f"{many} parts", f"{told} of {shape[axis]} cells", "One for each result.")
        size = -(-shape[axis] // many)
        sizes = tuple(max(min(size, shape[axis] - at * size), 0) for at in range(many))
    if len(sizes) != many or sum(sizes) != shape[axis] or any(s < 0 for s in sizes):
        raise refuse(f"{many} sizes whose sum is {shape[axis]}", f"split={sizes}", "One for each result.")
    ends = np.cumsum((0, *sizes)).tolist()
    return [part(n.x(), axis, a, b) for a, b in pairwise(ends)]


def part(x: Data, axis: int, first: int, last: int) -> Any:
    """The cells from first to before last of one axis."""
    shape = shape_of(x)
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = first, last
    return cut(x, tuple(starts), tuple(stops))


FEW: Final = 8


def picked(x: Data, places: Sequence[int], axis: int) -> Any:
    """The cells at some places of an axis: a few slices where these are runs, which more is known about, else take."""
    if not places:
        return part(x, axis, 0, 0)
    ends = [0, *(k for k in range(1, len(places)) if places[k] != places[k - 1] + 1), len(places)]
    if len(ends) <= FEW + 1:
        runs = [part(x, axis, places[a], places[a] + b - a) for a, b in pairwise(ends)]
        return runs[0] if len(runs) == 1 else concat(runs, axis)
    return take(x, np.asarray(places, np.int64), axis)


def read_slice(n: Call) -> Any:
    shape = n.shape()
    if n.opset < 10:
        starts, ends, axes, steps = n.ints("starts"), n.ints("ends"), n.ints("axes"), None
    else:
        starts, ends, axes, steps = (
            n.whole(at, what) for at, what in enumerate(("starts", "ends", "axes", "steps"), 1)
        )
    if starts is None or ends is None:
        raise refuse("starts and ends", "none", "The model is damaged.")
    where = check_axes_in_order(tuple(range(len(starts))) if axes is None else tuple(axes), len(shape))
    every = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(where) == len(every):
        raise refuse("starts, ends, axes and steps of one length", f"{starts}, {ends}, {axes}, {steps}", "One each.")
    if 0 in every:
        raise refuse("steps other than 0", f"steps={every}", "1 takes every cell.")
    first, stop, step = [0] * len(shape), list(shape), [1] * len(shape)
    backwards = []
    for a, b, axis, s in zip(starts, ends, where, every, strict=True):
        if s > 0:
            first[axis], stop[axis], step[axis] = _python_slice(a, b, s).indices(shape[axis])
        else:
            backwards.append((axis, range(*_python_slice(a, b, s).indices(shape[axis]))))
    y = n.x()
    if (first, stop, step) != ([0] * len(shape), list(shape), [1] * len(shape)):
        y = cut(y, tuple(first), tuple(stop), tuple(step))
    for axis, places in backwards:
        y = picked(y, places, axis)
    return y


def check_axes_in_order(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Different axes, in the order in which they are given."""
    check_axes(axes, rank)
    return tuple(a % rank for a in axes)


def read_gather(n: Call) -> Any:
    shape = n.shape()
    axis = check_axis("axis", n.integer("axis", 0), len(shape))
    places = n.known(1, "indices")
    if places.dtype != OBJECT:
        raise refuse("indices of integers", n.value(1).type, "The model is damaged.")
    size = shape[axis]
    row = places.ravel().tolist()
    if row and not -size <= min(row) <= max(row) < size:
        raise refuse(f"indices in {-size}..{size - 1}", f"{min(row)} to {max(row)}", "Cells are counted from 0.")
    y = picked(n.x(), [p % size for p in row], axis)
    return reshape(y, (*shape[:axis], *places.shape, *shape[axis + 1 :])) if places.ndim != 1 else y


def read_expand(n: Call) -> Any:
    wanted = n.whole(1, "a shape") or ()
    if any(s < 0 for s in wanted):
        raise refuse("sizes >= 0", f"shape {wanted}", "Expand has no -1.")
    shape = broadcast(n.shape(), wanted)
    return n.x() if shape == n.shape() else broadcast_to(n.x(), shape)


def read_tile(n: Call) -> Any:
    shape, times = n.shape(), n.whole(1, "repeats")
    if times is None or len(times) != len(shape) or any(t < 0 for t in times):
        raise refuse(f"{len(shape)} repeats >= 0", f"repeats={times}", "One for each axis.")
    return tiled(n.x(), times)


def tiled(x: Data, times: Sequence[int]) -> Any:
    """X so many times along each axis."""
    shape = shape_of(x)
    if all(t == 1 for t in times):
        return x
    apart = tuple(s for n in shape for s in (1, n))
    wide = tuple(s for n, t in zip(shape, times, strict=True) for s in (t, n))
    return reshape(broadcast_to(reshape(x, apart), wide), tuple(n * t for n, t in zip(shape, times, strict=True)))


# ---- padding


def read_pad(n: Call) -> Any:
    shape, mode = n.shape(), n.text("mode", "constant")
    if n.opset < 11:
        pads, axes = n.ints("pads"), None
        value: float | None = n.real("value", 0.0)
    else:
        pads, value = n.whole(1, "pads"), n.number(2, "a value of padding")
        axes = n.whole(3, "axes") if n.opset >= 18 else None
    where = tuple(range(len(shape))) if axes is None else check_axes_in_order(axes, len(shape))
    if pads is None or len(pads) != 2 * len(where):
        raise refuse(f"{2 * len(where)} pads, all begins and then all ends", f"pads={pads}", "Two for each axis.")
    pairs = [(0, 0)] * len(shape)
    for k, axis in enumerate(where):
        pairs[axis] = integer("pads", pads[k]), integer("pads", pads[k + len(where)])
    if mode == "constant":
        return padded(n.x(), pairs, 0 if value is None else value)
    if mode not in BEYOND:
        raise refuse(f"mode constant, {', '.join(BEYOND)}", f'mode="{mode}"', "There is no other.")
    y = n.x()
    for axis, (lo, hi) in enumerate(pairs):
        if (lo, hi) == (0, 0):
            continue
        size = shape[axis]
        if size == 0 or max(lo, hi) > MOST_PADDING:
            raise refuse("cells to repeat", f"{lo} and {hi} around {size}", "There are none, or too many.")
        y = picked(y, [BEYOND[mode](i, size) for i in range(-lo, size + hi)], axis)
    return y


MOST_PADDING: Final = 1 << 20


def padded(x: Data, pairs: Sequence[tuple[int, int]], value: Any) -> Any:
    """Cells of one value around x, or fewer cells of x where a number is negative."""
    shape = shape_of(x)
    if any(p < 0 for pair in pairs for p in pair):
        left = [n + min(lo, 0) + min(hi, 0) for n, (lo, hi) in zip(shape, pairs, strict=True)]
        if min(left, default=0) < 0:
            got = f"pads {list(pairs)} of shape {shape}"
            raise ArgumentError("NX4", "pads that leave cells", got, "They cut off more than there is.")
        starts = tuple(max(-lo, 0) for lo, _ in pairs)
        x = cut(x, starts, tuple(n - max(-hi, 0) for n, (_, hi) in zip(shape, pairs, strict=True)))
        pairs = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    if all(pair == (0, 0) for pair in pairs):
        return x
    return pad(x, tuple(pairs), value) if isfinite(value) else _infinitely(x, pairs, value)


def _infinitely(x: Data, pairs: Sequence[tuple[int, int]], value: float) -> Any:
    """Infinities, or NaN, which are no option of an operator, as constants beside x."""
    for axis, (lo, hi) in enumerate(pairs):
        shape = shape_of(x)
        sides = [filled(value, (*shape[:axis], s, *shape[axis + 1 :]), np.empty(0, x.dtype)) for s in (lo, hi)]
        parts = [sides[0], x, sides[1]]
        x = x if (lo, hi) == (0, 0) else concat([p for p in parts if shape_of(p)[axis]], axis)
    return x


# ---- channels to space, and back


def _blocks(n: Call) -> tuple[Shape, int]:
    shape, size = n.shape(), n.integer("blocksize")
    if len(shape) != 4 or size < 1:
        raise refuse("x of 4 axes and a blocksize >= 1", f"{shape}, blocksize={size}", "Images have two axes of space.")
    return shape, size


def read_depth_to_space(n: Call) -> Any:
    (b, c, h, w), s = _blocks(n)
    mode = n.text("mode", "DCR")
    if c % (s * s) or mode not in ("DCR", "CRD"):
        got = f"{c} channels, blocksize={s}, mode={mode}"
        raise refuse("channels in blocksize**2 parts, mode DCR or CRD", got, "Blocks are square.")
    if mode == "DCR":
        y = transpose(reshape(n.x(), (b, s, s, c // (s * s), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = transpose(reshape(n.x(), (b, c // (s * s), s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(y, (b, c // (s * s), h * s, w * s))


def read_space_to_depth(n: Call) -> Any:
    (b, c, h, w), s = _blocks(n)
    mode = n.text("mode", "DCR")
    if h % s or w % s or mode not in ("DCR", "CRD"):
        raise refuse("space in whole blocks, mode DCR or CRD", f"{(h, w)}, blocksize={s}, mode={mode}", "Pad it first.")
    axes = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(transpose(reshape(n.x(), (b, c, h // s, s, w // s, s)), axes), (b, c * s * s, h // s, w // s))


READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Identity": (read_identity, "x itself"),
    "Dropout": (read_dropout, "x itself"),
    "Flatten": (read_flatten, "reshape"),
    "Reshape": (read_reshape, "reshape"),
    "Squeeze": (read_squeeze, "reshape"),
    "Unsqueeze": (read_unsqueeze, "reshape"),
    "Transpose": (read_transpose, "transpose"),
    "Concat": (read_concat, "concat"),
    "Split": (read_split, "slice"),
    "Slice": (read_slice, "slice; take for steps < 0"),
    "Gather": (read_gather, "take, by known indices"),
    "Expand": (read_expand, "broadcast_to"),
    "Tile": (read_tile, "broadcast_to, reshape"),
    "Pad": (read_pad, "pad, slice; take for edge, reflect and wrap"),
    "DepthToSpace": (read_depth_to_space, "reshape, transpose"),
    "SpaceToDepth": (read_space_to_depth, "reshape, transpose"),
}
