"""WebNN, the W3C's candidate recommendation.

| rule | says                                                                                             |
|------|--------------------------------------------------------------------------------------------------|
| WN1  | 2 spatial axes                                                                                    |
| WN2  | outputPadding is smaller than the stride                                                          |
| WN3  | outputSizes of a pool are its sizes rounded down, or all of them rounded up                       |
| WN4  | outputSizes of convTranspose2d are at least the unpadded ones and less than a step more           |
| WN5  | outputShapeRounding is "floor" or "ceil"                                                          |
| WN6  | l2Pool2d is lp_pool with p = 2                                                                    |

windowDimensions are all the space unless given, strides 1. "ceil" makes ceil(room / stride) + 1 windows, whether or not
the last one starts in the padding. Pools know no padding that counts (so say the implementations; the text is silent).
outputShapeRounding was called roundingType until 2026. padding is [top, bottom, left, right].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lunette.dialects.dialect import OMIT, Arguments, Dialect, Function, Word, ints
from lunette.dialects.meaning import Corners, Meaning, Setting, meaning_of
from lunette.dialects.tosa import in_rows, pairs
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.window import per_axis


def rounding(value: Any, d: int) -> str:
    """Ceil mode by its name."""
    return "ceil" if value else "floor"


def is_ceil(value: Any, d: int) -> bool:
    """Rule WN5."""
    if value not in ("floor", "ceil"):
        got = f"outputShapeRounding={shown(value)}"
        raise ArgumentError("WN5", 'outputShapeRounding "floor" or "ceil"', got, 'It is "floor" unless given.')
    return bool(value == "ceil")


def two(value: Any, d: int) -> Any:
    """Rule WN6."""
    if value != 2:
        raise ArgumentError("WN6", "p = 2", f"p={shown(value)}", "l2Pool2d is the only one.")
    return OMIT


STRIDES = Word("stride", "strides", 1, ints, ints)
PADDING = Word("padding", "padding", 0, in_rows, pairs)
DILATIONS = Word("dilation", "dilations", 1, ints, ints)
WINDOW = Word("kernel", "windowDimensions", None, ints, ints)
CEIL = Word("ceil_mode", "outputShapeRounding", False, rounding, is_ceil)
GROUPS = Word("groups", "groups", 1)
POOL = (WINDOW, STRIDES, PADDING, DILATIONS, CEIL)
SIZES = ("outputSizes",)


class WebNN(Dialect):
    """Members of the option dictionaries of MLGraphBuilder's methods; layouts are nchw, oihw and iohw."""

    name = "webnn"
    functions: Mapping[str, Function] = {
        "conv": Function("conv{d}d", (STRIDES, PADDING, DILATIONS, GROUPS)),
        "conv_transpose": Function(
            "convTranspose{d}d",
            (STRIDES, PADDING, DILATIONS, GROUPS, Word("output_padding", "outputPadding", 0, ints, ints)),
            extra=SIZES,
        ),
        "max_pool": Function("maxPool{d}d", POOL, extra=SIZES),
        "avg_pool": Function("averagePool{d}d", POOL, fixed={"count_include_pad": False, "divisor": None}, extra=SIZES),
        "lp_pool": Function("l2Pool{d}d", (*POOL, Word("p", "p", 2, two)), extra=SIZES),
    }
    corners: Mapping[str, Corners] = {}

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows, with the sizes of the text."""
        if setting.d != 2:
            raise ArgumentError("WN1", "2 spatial axes", f"{setting.d}", "Reshape x.")
        wanted = arguments.get("outputSizes")
        if setting.kind.windows == "transposed":
            return meaning_of(transposed(setting, wanted), Corners())
        if setting.kind.weighted:
            return meaning_of(setting, Corners())
        if setting.options["kernel"] is None:
            setting = replace(setting, options={**setting.options, "kernel": setting.space})
        return pooled(setting, wanted)


def pooled(setting: Setting, wanted: Any) -> Meaning:
    """Rule WN3. Given sizes leave no room for padding: it is 0 then."""
    if wanted is not None:
        setting = replace(setting, options={**setting.options, "padding": 0})
    axes: Any = setting.window.axes
    rooms = [(n + a.lo + a.hi - a.span, a.stride) for a, n in zip(axes, setting.space, strict=True)]
    down, up = tuple(r // s + 1 for r, s in rooms), tuple(-(-r // s) + 1 for r, s in rooms)
    out = up if setting.options["ceil_mode"] else down
    if wanted is not None:
        out = per_axis("outputSizes", wanted, 2)
        if out not in (down, up):
            raise ShapeError("WN3", f"outputSizes {down} or {up}", f"outputSizes={out}", "Leave them out.")
    if min(out) < 1:
        return meaning_of(replace(setting, options={**setting.options, "ceil_mode": False}), Corners())
    return meaning_of(setting, Corners(), out=out)


def transposed(setting: Setting, wanted: Any) -> Setting:
    """Rules WN2 and WN4."""
    extra = per_axis("outputPadding", setting.options["output_padding"], 2)
    if wanted is None:
        for o, s in zip(extra, setting.stride, strict=True):
            if o >= s:
                raise ArgumentError("WN2", f"outputPadding < stride {s}", f"outputPadding={o}", "Take outputSizes.")
        return setting
    bare = replace(setting, options={**setting.options, "output_padding": 0})
    rows = zip(per_axis("outputSizes", wanted, 2), bare.window.out(setting.space), setting.stride, strict=True)
    more = []
    for m, least, s in rows:
        if not least <= m < least + s:
            raise ShapeError("WN4", f"{least} <= outputSizes < {least + s}", f"outputSizes={m}", "Take more padding.")
        more.append(m - least)
    return replace(setting, options={**setting.options, "output_padding": tuple(more)})
