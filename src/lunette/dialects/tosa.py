"""TOSA 1.0.

| rule | says                                                                                        |
|------|---------------------------------------------------------------------------------------------|
| TO1  | 2 spatial axes; convolutions also 3                                                          |
| TO2  | the padding of a pool is smaller than its kernel                                             |
| TO3  | windows end where the padded input ends: n + pad - span is a multiple of the stride          |
| TO4  | groups is 1, or as many as in-channels (DEPTHWISE_CONV2D)                                     |
| TO5  | out_pad > -kernel, and does not start before the first cell or end beyond the next            |
| TO6  | nan_mode is PROPAGATE or IGNORE                                                              |

Where the last windows do not end with the input, x has to be sliced first; padding at the end that no window reaches
has to be left out. Averages divide by the cells of the input only. Arrays have their channels last, w is
(out, *kernel, in); shapes are given in lunette's order all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lunette.dialects.dialect import (
    REQUIRED,
    Arguments,
    Call,
    Dialect,
    Function,
    Word,
    Words,
    cells,
    check_length,
    ints,
)
from lunette.dialects.meaning import Corners, Meaning, Setting, Shapes, meaning_of, rank_of
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.window import Axis, integer, per_axis


def in_rows(value: Any, d: int) -> Any:
    """[top, bottom, left, right]."""
    return [p for pair in cells(value, d) for p in pair]


def pairs(value: Any, d: int) -> Any:
    """(lo, hi) per axis."""
    told = [integer("padding", p) for p in check_length(value, 2 * d)]
    return tuple(zip(told[::2], told[1::2], strict=True))


STRIDE = Word("stride", "stride", REQUIRED, ints, ints)
PAD = Word("padding", "pad", REQUIRED, in_rows, pairs)
KERNEL = Word("kernel", "kernel", REQUIRED, ints, ints)
CONVOLUTION = (STRIDE, PAD, Word("dilation", "dilation", REQUIRED, ints, ints), Word("groups", "groups", 1))
NO_CEIL = {"ceil_mode": False, "dilation": 1}


class Tosa(Dialect):
    """Attributes of TOSA's operators."""

    name = "tosa"
    channels_last = True
    functions: Mapping[str, Function] = {
        "conv": Function("CONV{d}D", CONVOLUTION),
        "conv_transpose": Function(
            "TRANSPOSE_CONV{d}D",
            (STRIDE, Word("padding", "out_pad", REQUIRED, in_rows, pairs)),
            fixed={"dilation": 1, "groups": 1, "output_padding": 0},
        ),
        "max_pool": Function("MAX_POOL{d}D", (KERNEL, STRIDE, PAD), fixed=NO_CEIL, extra=("nan_mode",)),
        "avg_pool": Function(
            "AVG_POOL{d}D", (KERNEL, STRIDE, PAD), fixed={**NO_CEIL, "count_include_pad": False, "divisor": None}
        ),
    }
    corners: Mapping[str, Corners] = {
        "max_pool": Corners(nan="NaN if the window has one", empty="refused"),
    }

    def spell(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call:
        """A depthwise convolution has its own name; a crop is negative padding of the result."""
        d = rank_of(op, shapes, options, lead)
        transposed = self.kind(op).windows == "transposed"
        extra = per_axis("output_padding", options.get("output_padding", 0), d) if transposed else ()
        call = super().spell(op, shapes, {n: v for n, v in options.items() if n != "output_padding"}, lead=lead)
        said = dict(call.arguments)
        if "out_pad" in said:
            crop = pairs(said["out_pad"], d)
            said["out_pad"] = [p for (lo, hi), more in zip(crop, extra, strict=True) for p in (-lo, more - hi)]
        if said.pop("groups", 1) == 1:
            return replace(call, arguments=said)
        return replace(call, function=f"DEPTHWISE_{call.function}", arguments=said)

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows, where they fit exactly."""
        convolves = setting.kind.weighted and setting.kind.windows == "sliding"
        if setting.d not in ((2, 3) if convolves else (2,)):
            raise ArgumentError("TO1", "2 spatial axes, or 3 in a convolution", f"{setting.d}", "Reshape x.")
        if (mode := arguments.get("nan_mode", "PROPAGATE")) not in ("PROPAGATE", "IGNORE"):
            raise ArgumentError("TO6", "nan_mode PROPAGATE or IGNORE", f"nan_mode={shown(mode)}", "See MAX_POOL2D.")
        corners = self.corners.get(setting.op, Corners())
        if mode == "IGNORE":
            corners = replace(corners, nan="the greatest cell that is no NaN")
        if setting.kind.windows == "transposed":
            return meaning_of(cropped(setting), corners)
        if convolves:
            setting = depthwise(setting)
        check_fit(setting)
        return meaning_of(setting, corners)


def check_fit(setting: Setting) -> None:
    """Rules TO2 and TO3."""
    for a, n in zip(setting.window.axes, setting.space, strict=True):
        assert isinstance(a, Axis)
        if setting.slides and max(a.lo, a.hi) >= a.kernel:
            got = f"pad ({a.lo}, {a.hi}), kernel {a.kernel}"
            raise ArgumentError("TO2", "padding smaller than the kernel", got, "Otherwise windows read nothing.")
        if (room := n + a.lo + a.hi - a.span) % a.stride:
            hint = f"Take {room % a.stride} less padding at the end, or slice x."
            raise ShapeError("TO3", f"n + pad - span as a multiple of the stride {a.stride}", f"{room}", hint)


def depthwise(setting: Setting) -> Setting:
    """Rule TO4: as many groups as the filters' in-channels fit into those of x."""
    w = setting.shapes[1]
    assert w is not None
    groups = max(setting.channels // max(w[1], 1), 1)
    if groups != 1 and (groups != setting.channels or setting.d != 2):
        got = f"{groups} groups of {setting.channels} channels"
        raise ArgumentError("TO4", "one group, or one per channel in two dimensions", got, "Split x.")
    return replace(setting, options={**setting.options, "groups": groups})


def cropped(setting: Setting) -> Setting:
    """Rule TO5."""
    pads, extra = [], []
    for (top, bottom), k, s in zip(setting.options["padding"], setting.kernel, setting.stride, strict=True):
        if not -k < top <= 0 or not -k < bottom < s:
            got = f"out_pad ({top}, {bottom}), kernel {k}, stride {s}"
            raise ArgumentError("TO5", "-kernel < out_pad, at most 0 and less than a step", got, "Pad the result.")
        pads.append((-top, max(-bottom, 0)))
        extra.append(max(bottom, 0))
    return replace(setting, options={**setting.options, "padding": tuple(pads), "output_padding": tuple(extra)})
