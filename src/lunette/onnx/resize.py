"""Resize and Upsample: along each axis, cells of the input at some places, times weights.

    y[i] = sum over p of w(i, p) * x[p],   w(i, p) = f(k * (p - c(i))) / (their sum over p)

c(i) is where the output cell i lies in the input, by the coordinate_transformation_mode; f is a triangle (linear) or
Keys' cubic; k is 1, or with antialias the scale, if that is less. Places beyond the ends are the ends, or left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lunette.graph.nodes import Var
from lunette.onnx.cells import where
from lunette.onnx.layout import check_axes_in_order, picked
from lunette.onnx.value import Call, Data, Reader, known, refuse
from lunette.ops.binary import add, mul
from lunette.ops.broadcast import broadcast_to
from lunette.ops.glue import shape_of
from lunette.ops.layout import reshape

MOST_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One axis: n cells become m, which lie 1/scale apart."""

    n: int
    m: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


def _half_pixel(a: Line, i: int) -> float:
    return (i + 0.5) / a.scale - 0.5


def _symmetric(a: Line, i: int) -> float:
    return a.n / 2 * (1 - a.m / (a.scale * a.n)) + _half_pixel(a, i)


def _crop(a: Line, i: int) -> float:
    first, last = (e * (a.n - 1) for e in a.roi)
    return first + i * (last - first) / (a.m - 1) if a.m > 1 else (first + last) / 2


PLACES: Final[dict[str, Callable[[Line, int], float]]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda a, i: _half_pixel(a, i) if a.m > 1 else 0.0,
    "align_corners": lambda a, i: i * (a.n - 1) / (a.scale * a.n - 1) if a.m > 1 else 0.0,  # m before it is whole
    "asymmetric": lambda a, i: i / a.scale,
    "tf_crop_and_resize": _crop,
}
ROUND: Final[dict[str, Callable[[float], int]]] = {
    "round_prefer_floor": lambda c: math.ceil(c - 0.5),
    "round_prefer_ceil": lambda c: math.floor(c + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _triangle(t: float, a: float) -> float:
    return max(1 - abs(t), 0.0)


def _cubic(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a if t < 2 else 0.0


FILTERS: Final[dict[str, tuple[Callable[[float, float], float], int]]] = {
    "linear": (_triangle, 1),
    "cubic": (_cubic, 2),
}


@dataclass(frozen=True, slots=True)
class Way:
    """How cells are found and weighed: the attributes."""

    mode: str
    place: str
    nearest: str = "floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0

    def taps(self, a: Line, i: int) -> list[tuple[int, float]]:
        """The places that an output cell reads, and their weights."""
        c = PLACES[self.place](a, i)
        if self.mode == "nearest":
            return [(min(max(ROUND[self.nearest](c), 0), a.n - 1), 1.0)]
        f, reach = FILTERS[self.mode]
        k = min(a.scale, 1.0) if self.antialias else 1.0
        near = range(math.floor(c - reach / k) + 1, math.ceil(c + reach / k))
        weights = [(p, f(k * (p - c), self.cubic)) for p in near]
        if self.exclude_outside:
            weights = [(p, w) for p, w in weights if 0 <= p < a.n]
        whole = sum(w for _, w in weights)
        return [(min(max(p, 0), a.n - 1), w / whole) for p, w in weights if w != 0]

    def outside(self, a: Line) -> list[bool]:
        """Which output cells lie beyond the ends, where that matters."""
        crop = self.place == "tf_crop_and_resize"
        return [crop and not 0 <= PLACES[self.place](a, i) <= a.n - 1 for i in range(a.m)]


def resized(x: Data, lines: Sequence[Line], way: Way) -> Any:
    """X with every axis resized; those whose size and scale stay are left alone."""
    for axis, a in enumerate(lines):
        if a.m != a.n or a.scale != 1 or way.place == "tf_crop_and_resize":
            x = _along(x, axis, a, way)
    for axis, a in enumerate(lines):
        beyond = way.outside(a)
        if any(beyond):
            mask = np.asarray(beyond).astype(x.dtype).reshape(-1, *(1,) * (len(lines) - axis - 1))
            x = where(known(mask), broadcast_to(_number(x, way.extrapolation), shape_of(x)), x)
    return x


def _number(x: Data, value: float) -> Any:
    cell = np.asarray(value, x.dtype)
    return x.graph.constant(cell) if isinstance(x, Var) else known(cell)


def _along(x: Data, axis: int, a: Line, way: Way) -> Any:
    taps = [way.taps(a, i) for i in range(a.m)]
    times = a.m // a.n if a.n else 0
    if times and times * a.n == a.m and taps == [[(i // times, 1.0)] for i in range(a.m)]:
        return _repeated(x, axis, times)
    y = None
    for k in range(max(map(len, taps), default=0)):
        places = [t[k][0] if k < len(t) else 0 for t in taps]
        weights = [t[k][1] if k < len(t) else 0.0 for t in taps]
        part = picked(x, places, axis)
        if any(w != 1 for w in weights):
            part = mul(part, known(np.asarray(weights, x.dtype).reshape(-1, *(1,) * (len(shape_of(x)) - axis - 1))))
        y = part if y is None else add(y, part)
    return picked(x, [], axis) if y is None else y


def _repeated(x: Data, axis: int, times: int) -> Any:
    """Every cell of an axis so many times."""
    shape = shape_of(x)
    thin = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = broadcast_to(thin, (*shape[: axis + 1], times, *shape[axis + 1 :]))
    return reshape(wide, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))


# ---- the operators


def _lines(n: Call, shape: Sequence[int], scales: Sequence[float], sizes: Sequence[int] | None) -> list[Line]:
    if len(scales) != len(shape) or any(not (math.isfinite(s) and s > 0) for s in scales):
        raise refuse(f"{len(shape)} scales > 0", f"scales={list(scales)}", "One for each axis.")
    out = [math.floor(s * f) for s, f in zip(shape, scales, strict=True)] if sizes is None else sizes
    if any(not 0 <= m <= MOST_SIZE for m in out) or (0 in shape):
        raise refuse(f"sizes up to {MOST_SIZE}, of axes with cells", f"{shape} to {list(out)}", "Resize less.")
    return [Line(s, m, f) for s, m, f in zip(shape, out, scales, strict=True)]


def read_upsample(n: Call) -> Any:
    scales = n.attribute("scales", "FLOATS", None) if n.opset < 9 else n.known(1, "scales").ravel().tolist()
    mode = n.text("mode", "nearest")
    if mode not in ("nearest", "linear") or scales is None:
        raise refuse("mode nearest or linear, and scales", f'mode="{mode}", scales={scales}', "There is no other.")
    return resized(n.x(), _lines(n, n.shape(), scales, None), Way(mode, "asymmetric"))


def read_resize(n: Call) -> Any:
    shape, old = n.shape(), n.opset < 11
    mode = n.text("mode", "nearest")
    way = Way(
        mode,
        "asymmetric" if old else n.text("coordinate_transformation_mode", "half_pixel"),
        "floor" if old else n.text("nearest_mode", "round_prefer_floor"),
        n.real("cubic_coeff_a", -0.75),
        n.flag("exclude_outside"),
        n.flag("antialias"),
        n.real("extrapolation_value", 0.0),
    )
    if mode not in ("nearest", *FILTERS) or way.place not in PLACES or way.nearest not in ROUND:
        raise refuse("modes of Resize that lunette knows", f"{mode}, {way.place}, {way.nearest}", "See docs/onnx.md.")
    told = n.ints("axes")
    axes = tuple(range(len(shape))) if told is None else check_axes_in_order(tuple(told), len(shape))
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    scales, sizes = _told(n, 1 if old else 2, None if old else 3)
    full: list[float] = [1.0] * len(shape)
    out: list[int] = list(shape)
    if len(scales if sizes is None else sizes) != len(axes):
        raise refuse(f"{len(axes)} scales or sizes", f"{scales or sizes}", "One for each axis.")
    if sizes is not None:
        if 0 in shape or policy not in ("stretch", "not_larger", "not_smaller"):
            raise refuse("axes with cells, and a policy that is known", f"{shape}, {policy}", "See docs/onnx.md.")
        ratios = [m / shape[a] for a, m in zip(axes, sizes, strict=True)]
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(ratios)
            ratios, sizes = [one] * len(axes), [math.floor(one * shape[a] + 0.5) for a in axes]
        for a, m, f in zip(axes, sizes, ratios, strict=True):
            out[a], full[a] = m, f
    else:
        for a, f in zip(axes, scales, strict=True):
            full[a] = f
    lines = _lines(n, shape, full, None if sizes is None else out)
    if way.place == "tf_crop_and_resize":
        roi = n.known(1, "roi").ravel().tolist() if n.maybe(1) is not None else []
        if len(roi) != 2 * len(axes):
            raise refuse(f"{2 * len(axes)} numbers of roi", f"{len(roi)}", "All begins, then all ends.")
        for k, a in enumerate(axes):
            lines[a] = Line(lines[a].n, lines[a].m, lines[a].scale, (roi[k], roi[k + len(axes)]))
    return resized(n.x(), lines, way)


def _told(n: Call, scales_at: int, sizes_at: int | None) -> tuple[list[float], list[int] | None]:
    """Scales, or sizes: the one that is given and has cells. The roi in front of them may be anything."""
    n.maybe(1)
    sizes = None if sizes_at is None else n.whole(sizes_at, "sizes")
    scales = [] if n.maybe(scales_at) is None else n.known(scales_at, "scales").ravel().tolist()
    if bool(sizes) == bool(scales):
        raise refuse("scales or sizes", "both" if sizes else "neither", "One of them is left out, or empty.")
    return ([], list(sizes)) if sizes else (scales, None)


READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Resize": (read_resize, "broadcast_to and reshape, or take, mul and add"),
    "Upsample": (read_upsample, "broadcast_to and reshape, or take, mul and add"),
}
