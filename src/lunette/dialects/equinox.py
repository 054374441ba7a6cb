"""Equinox 0.13, `equinox.nn`.

| rule | says                                                                                       |
|------|--------------------------------------------------------------------------------------------|
| EQ1  | the padding of a pool, with what use_ceil adds, is at most its kernel                       |
| EQ2  | output_padding is smaller than the stride                                                   |
| EQ3  | an adaptive pool has at most as many bins as cells                                          |
| EQ4  | pools have 1, 2 or 3 spatial axes                                                           |

A pool's stride is 1 unless given. use_ceil adds a whole stride of padding at the end where windows do not fit, whether
or not the last window then starts in the padding; averages always divide by the cells of the kernel. Adaptive pools
partition: the first n % m bins have one cell more. The weights of ConvTranspose are (out, in/groups, *kernel) and its
kernel is flipped against lunette's; "SAME" with output_padding keeps the size n*stride and crops less at the start.
Batches are jax.vmap's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lunette.dialects.dialect import REQUIRED, Arguments, Dialect, Function, Word, cells, ints
from lunette.dialects.jax import windows, with_no_windows
from lunette.dialects.meaning import Corners, Divisor, Meaning, Setting, meaning_of, spans
from lunette.errors import ArgumentError, ShapeError
from lunette.window import Geometry, Reach, Window, padding_pairs, padding_rule


@dataclass(frozen=True, slots=True)
class Parts(Geometry):
    """M bins without overlap, the first n % m of them one cell larger.

    >>> [Parts(4).reach(o, 10).count for o in range(4)]
    [3, 3, 2, 2]
    """

    m: int

    def out(self, n: int) -> int:
        """Rule EQ3."""
        if not 1 <= self.m <= n:
            got = f"target_shape={self.m}"
            raise ShapeError("EQ3", f"1 to {n} bins for {n} cells", got, "Equinox cannot repeat cells.")
        return self.m

    def reach(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Reach:
        size, more = divmod(n, self.m)
        return Reach(o * 0, o * size + least(o, more), size + (o < more), 1, 1)


def pairs(value: Any, d: int) -> Any:
    """(lo, hi) per axis, or the name in capitals."""
    return padding_pairs(value, d) if padding_rule(value) == "cells" else value.upper()


def named(value: Any, d: int) -> Any:
    """Names as lunette's."""
    return value.lower() if isinstance(value, str) else padding_pairs(value, d)


STRIDE = Word("stride", "stride", 1, ints, ints)
PADDING = Word("padding", "padding", 0, pairs, named)
DILATION = Word("dilation", "dilation", 1, ints, ints)
POOL = (Word("kernel", "kernel_size", REQUIRED, ints, ints), STRIDE, Word("padding", "padding", 0, cells))
CEIL = Word("ceil_mode", "use_ceil", False)
CONVOLUTION = (STRIDE, PADDING, DILATION, Word("groups", "groups", 1))
TARGET = (Word("output_size", "target_shape", REQUIRED, ints, ints),)


class Equinox(Dialect):
    """Arguments of the layers of `equinox.nn`."""

    name = "equinox"
    functions: Mapping[str, Function] = {
        "conv": Function("eqx.nn.Conv{d}d", CONVOLUTION),
        "conv_transpose": Function(
            "eqx.nn.ConvTranspose{d}d", (*CONVOLUTION, Word("output_padding", "output_padding", 0, ints, ints))
        ),
        "max_pool": Function("eqx.nn.MaxPool{d}d", (*POOL, CEIL), fixed={"dilation": 1}),
        "avg_pool": Function(
            "eqx.nn.AvgPool{d}d", (*POOL, CEIL), fixed={"dilation": 1, "count_include_pad": True, "divisor": None}
        ),
        "adaptive_avg_pool": Function("eqx.nn.AdaptiveAvgPool{d}d", TARGET),
        "adaptive_max_pool": Function("eqx.nn.AdaptiveMaxPool{d}d", TARGET),
    }
    corners: Mapping[str, Corners] = {
        "max_pool": Corners(
            "the first in row-major order", "NaN if the window has one", None, "-inf", observed=("ties", "nan")
        ),
        "adaptive_max_pool": Corners("equal shares", "NaN if the window has one", observed=("ties", "nan")),
    }

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """The windows of jax.lax, with more padding in ceil mode."""
        corners = self.corners.get(setting.op, Corners())
        if not setting.kind.weighted and not 1 <= setting.d <= 3:
            raise ArgumentError("EQ4", "1, 2 or 3 spatial axes", f"{setting.d}", "eqx.nn.Pool has any number.")
        if setting.kind.windows == "bins":
            return partition(setting, corners)
        if setting.slides:
            return pooled(setting, corners)
        return with_no_windows(transposed(setting) if setting.kind.windows == "transposed" else setting, corners)


def pooled(setting: Setting, corners: Corners) -> Meaning:
    """Rule EQ1. Nothing hangs over then, so that what is inside the padded input is the whole kernel."""
    axes: Any = replace(setting, options={**setting.options, "ceil_mode": False}).window.axes
    pads = []
    for a, n in zip(axes, setting.space, strict=True):
        more = a.stride if setting.options["ceil_mode"] and (n + a.lo + a.hi - a.span) % a.stride else 0
        if max(a.lo, a.hi + more) > a.kernel:
            got = f"padding ({a.lo}, {a.hi + more}), kernel {a.kernel}"
            raise ArgumentError("EQ1", "padding of at most the kernel", got, "use_ceil adds a stride to it.")
        pads.append((a.lo, a.hi + more))
    told = replace(setting, options={**setting.options, "padding": tuple(pads), "ceil_mode": False})
    out = tuple(windows(a, n) for a, n in zip(told.window.axes, setting.space, strict=True))
    return meaning_of(told, corners, out=out)


def partition(setting: Setting, corners: Corners) -> Meaning:
    """Bins that do not overlap."""
    window = Window(tuple(map(Parts, setting.options["output_size"])))
    divisor = Divisor("present", window) if setting.kind.averages else None
    out = window.out(setting.space)
    return Meaning(setting.op, setting.space, window, out, {"output_size": out}, divisor, corners)


def transposed(setting: Setting) -> Setting:
    """Rule EQ2. Named padding crops to n*stride, output_padding included."""
    extra = ints(setting.options["output_padding"], setting.d)
    padding = setting.options["padding"]
    pads, more = [], []
    for at, (s, span, o) in enumerate(zip(setting.stride, spans(setting), extra, strict=True)):
        if not 0 <= o < s:
            raise ArgumentError("EQ2", f"0 <= output_padding < stride {s}", f"output_padding={o}", "Take less of it.")
        if padding in ("same", "same_lower"):
            total = span - s + o
            lo = (max(total, 0) + (padding == "same_lower")) // 2
            pads.append((lo, max(total, 0) - lo))
            more.append(max(-total, 0))
        else:
            pads.append((0, 0) if padding == "valid" else padding_pairs(padding, setting.d)[at])
            more.append(o)
    return replace(setting, options={**setting.options, "padding": tuple(pads), "output_padding": tuple(more)})
