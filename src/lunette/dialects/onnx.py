"""ONNX, as the text of its operators stands at an opset.

| rule | says                                                                                              |
|------|---------------------------------------------------------------------------------------------------|
| ON1  | pads are 2*d integers >= 0, all begins and then all ends, and not given together with auto_pad     |
| ON2  | auto_pad is NOTSET, VALID, SAME_UPPER or SAME_LOWER                                               |
| ON3  | p is an integer                                                                                   |
| ON4  | storage_order is 0 or 1                                                                           |
| ON5  | output_shape is reached by the windows, or by less than a step more at the end                    |

| attribute         | means                                                                                   |
|-------------------|-----------------------------------------------------------------------------------------|
| strides           | 1 unless given, for pools, too                                                          |
| ceil_mode         | ceil(room / stride) + 1 windows; from 22 on without those that start in the right padding |
| VALID             | no padding, and no further window in ceil mode: ceil((n - span + 1) / stride)           |
| SAME_*            | ceil(n / stride) windows, the odd cell at the end (UPPER) or start (LOWER); never below 0 |
| count_include_pad | 0 unless given. 1: padding counts. At opset 10 the cells that hang over count, too      |
| output_shape      | crops ConvTranspose; the odd cell at the end for SAME_UPPER only (opset 10: for others) |
| storage_order     | 1 counts the places that MaxPool returns column by column                               |

Equal cells, NaN and windows without input cells are not mentioned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lunette.dialects.dialect import REQUIRED, Arguments, Dialect, Function, Word, flag_as_int, int_as_flag, ints
from lunette.dialects.meaning import Corners, Meaning, Setting, meaning_of
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.window import Axis, integer, padding_pairs, padding_rule, per_axis

AUTO_PAD = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
NAMES = {v: k for k, v in AUTO_PAD.items()}


def begins_then_ends(value: Any, d: int) -> Any:
    """Padding in ONNX's order; named padding is the word of another attribute."""
    if padding_rule(value) != "cells":
        return AUTO_PAD[value]
    pairs = padding_pairs(value, d)
    return [*(lo for lo, _ in pairs), *(hi for _, hi in pairs)]


def pairs_of(value: Any, d: int) -> Any:
    """Rule ON1."""
    pads = [integer("pads", p) for p in value]
    if len(pads) != 2 * d:
        raise ArgumentError(
            "ON1", f"{2 * d} pads, all begins and then all ends", f"pads={shown(value)}", "Two per spatial axis."
        )
    return tuple(zip(pads[:d], pads[d:], strict=True))


def int_list(value: Any, d: int) -> Any:
    """One integer per axis."""
    return list(per_axis("value", value, d))


def power(value: Any, d: int) -> int:
    """Rule ON3."""
    if value != int(value) if value != float("inf") else True:
        raise ArgumentError("ON3", "an integer p", f"p={shown(value)}", "The attribute is an integer.")
    return int(value)


STRIDES = Word("stride", "strides", 1, int_list, ints)
PADS = Word("padding", "pads", 0, begins_then_ends, pairs_of)
DILATIONS = Word("dilation", "dilations", 1, int_list, ints)
CEIL = Word("ceil_mode", "ceil_mode", False, flag_as_int, int_as_flag)
KERNEL = Word("kernel", "kernel_shape", REQUIRED, int_list, ints)
GROUP = Word("groups", "group", 1)
INCLUDE = Word("count_include_pad", "count_include_pad", False, flag_as_int, int_as_flag)
P = Word("p", "p", 2, power)
AUTO = ("auto_pad",)
NO_DILATION, NO_CEIL = {"dilation": 1}, {"ceil_mode": False}


class Onnx(Dialect):
    """The attributes of ONNX's operators at one opset; arrays are (batch, channels, *space)."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.name = f"onnx{opset}"
        has_dilations, has_more = opset >= 19, opset >= 18
        self.functions: Mapping[str, Function] = {
            "conv": Function("Conv", (STRIDES, PADS, DILATIONS, GROUP), extra=(*AUTO, "kernel_shape")),
            "conv_transpose": Function(
                "ConvTranspose",
                (STRIDES, PADS, DILATIONS, GROUP, Word("output_padding", "output_padding", 0, int_list, ints)),
                extra=(*AUTO, "kernel_shape", "output_shape"),
            ),
            "max_pool": Function("MaxPool", (KERNEL, STRIDES, PADS, DILATIONS, CEIL), extra=(*AUTO, "storage_order")),
            "avg_pool": Function(
                "AveragePool",
                (KERNEL, STRIDES, PADS, CEIL, INCLUDE, *((DILATIONS,) if has_dilations else ())),
                fixed={"divisor": None, **({} if has_dilations else NO_DILATION)},
                extra=AUTO,
            ),
            "lp_pool": Function(
                "LpPool",
                (KERNEL, P, STRIDES, PADS, *((DILATIONS, CEIL) if has_more else ())),
                fixed={} if has_more else {**NO_DILATION, **NO_CEIL},
                extra=AUTO,
            ),
            "global_avg_pool": Function("GlobalAveragePool", (), fixed={"keepdims": True}),
            "global_max_pool": Function("GlobalMaxPool", (), fixed={"keepdims": True}),
        }

    corners: Mapping[str, Corners] = {
        "max_pool": Corners(index="flat, row-major, in the whole tensor (storage_order=1: column-major)"),
    }

    # ---- words

    def spell(self, op: str, shapes: Any, options: Any, *, lead: int = 2) -> Any:
        """Named padding is said by auto_pad."""
        call = super().spell(op, shapes, options, lead=lead)
        said = dict(call.arguments)
        if isinstance(said.get("pads"), str):
            said["auto_pad"] = said.pop("pads")
        return replace(call, arguments=said)

    # ---- meaning

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """The sizes and divisors of the text."""
        auto = check_auto_pad(arguments)
        if arguments.get("storage_order", 0) not in (0, 1):
            got = f"storage_order={shown(arguments['storage_order'])}"
            raise ArgumentError("ON4", "storage_order 0 or 1", got, "0 counts row by row, 1 column by column.")
        corners = self.corners.get(setting.op, Corners())
        if auto != "NOTSET":
            ceil = {"ceil_mode": False} if "ceil_mode" in setting.options else {}  # it has no effect on these sizes
            setting = replace(setting, options={**setting.options, "padding": NAMES[auto], **ceil})
        if setting.kind.windows == "transposed":
            return meaning_of(self.cropped(setting, auto, arguments.get("output_shape")), corners)
        if setting.slides:
            return self.pooled(setting, corners)
        return meaning_of(setting, corners)

    def pooled(self, setting: Setting, corners: Corners) -> Meaning:
        """The sizes as they are written: 0 is one. At opset 10 all cells count that are not told to be excluded."""
        axes: Any = setting.window.axes
        ceil = setting.options["ceil_mode"]
        out = tuple(self.windows(a, n, ceil) for a, n in zip(axes, setting.space, strict=True))
        whole = self.opset <= 10 and ceil and setting.options.get("count_include_pad", False)
        if min(out, default=0) < 0:
            return meaning_of(setting, corners)  # which refuses
        return meaning_of(setting, corners, out=out, whole=whole)

    def windows(self, axis: Axis, n: int, ceil: bool) -> int:
        """How many there are; in ceil mode, from opset 22 on, without those that would start in the right padding."""
        room = n + axis.lo + axis.hi - axis.span
        out = (-(-room // axis.stride) if ceil else room // axis.stride) + 1
        starts = -(-(n + axis.lo) // axis.stride)
        return min(out, max(starts, 1)) if ceil and self.opset >= 22 else out

    def cropped(self, setting: Setting, auto: str, output_shape: Any) -> Setting:
        """The pads of ConvTranspose that auto_pad or output_shape ask for. Rule ON5."""
        if output_shape is None and auto in ("NOTSET", "VALID"):
            return setting
        plain = replace(setting, options={**setting.options, "padding": 0})
        axes: Any = plain.window.axes
        same = tuple(n * s for n, s in zip(setting.space, setting.stride, strict=True))
        goal = same if output_shape is None else per_axis("output_shape", output_shape, setting.d)
        pads, extra = [], []
        for whole, m, axis in zip(plain.window.out(setting.space), goal, axes, strict=True):
            total, more = max(whole - m, 0), axis.output_padding + max(m - whole, 0)
            if more >= max(axis.stride, axis.dilation):
                got = f"output {m} from {axis}"
                raise ShapeError("ON5", f"an output of less than {whole + axis.stride}", got, "Nothing reaches it.")
            odd_at_end = (auto == "SAME_UPPER") == (self.opset > 10)
            half = total // 2
            pads.append((half, total - half) if odd_at_end else (total - half, half))
            extra.append(more)
        told = {"padding": tuple(pads), "output_padding": tuple(extra)}
        return replace(setting, options={**setting.options, **told})


def check_auto_pad(arguments: Arguments) -> str:
    """Rules ON1 and ON2."""
    auto = arguments.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", *NAMES):
        got = f"auto_pad={shown(auto)}"
        raise ArgumentError("ON2", "auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER", got, "NOTSET takes pads.")
    if auto != "NOTSET" and any(arguments.get("pads", ())):
        got = f'pads={shown(arguments["pads"])} and auto_pad="{auto}"'
        raise ArgumentError("ON1", "pads or auto_pad", got, "One of them says how much padding there is.")
    return str(auto)
