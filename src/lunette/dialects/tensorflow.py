"""TensorFlow 2 (`tf.nn`) and Keras 3.

| rule | says                                                                                               |
|------|----------------------------------------------------------------------------------------------------|
| TF1  | 1, 2 or 3 spatial axes                                                                              |
| TF2  | padding is "SAME" or "VALID"; in cells for conv2d, conv2d_transpose, max_pool1d and max_pool2d only |
| TF3  | the padding of a pool is at most its window                                                         |
| TF4  | output_shape is a size that the convolution maps to that of x                                       |
| KE1  | strides > 1 and dilation_rate > 1 exclude each other                                                |
| KE2  | output_padding is smaller than the stride                                                           |
| KE3  | padding is "valid" or "same"; for Conv1D also "causal"                                              |

"SAME" makes ceil(n / stride) windows, the odd cell at the end. Padding never counts in an average and there is no ceil
mode. Arrays have their channels last unless data_format says otherwise; shapes are given in lunette's order all the
same. Groups are no argument of tf.nn: the shape of the filters tells them. A transposed convolution is the gradient of
the convolution that has the same arguments, which maps an array of output_shape to x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lunette.dialects.dialect import (
    OMIT,
    REQUIRED,
    Arguments,
    Call,
    Dialect,
    Function,
    Word,
    Words,
    check_length,
    ints,
    unless_none,
)
from lunette.dialects.meaning import Corners, Meaning, Setting, Shapes, meaning_of, setting_of, spans
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.window import padding_pairs, padding_rule

IN_CELLS = ("tf.nn.conv2d", "tf.nn.conv2d_transpose", "tf.nn.max_pool1d", "tf.nn.max_pool2d")
MAXIMUM = {
    "max_pool": Corners("the first in row-major order", observed=("ties",)),
    "global_max_pool": Corners("equal shares", observed=("ties",)),
}
UNCOUNTED = {"count_include_pad": False, "divisor": None, "ceil_mode": False, "dilation": 1}
MAX_FIXED = {"ceil_mode": False, "dilation": 1}


def check_rank(setting: Setting) -> None:
    """Rule TF1."""
    if not 1 <= setting.d <= 3 and setting.kind.windows != "whole":
        raise ArgumentError("TF1", "1, 2 or 3 spatial axes", f"{setting.d}", "There are no functions of other ranks.")


# ---- tf.nn


def every_axis(value: Any, d: int) -> Any:
    """(lo, hi) for every axis of x, channels last, or the name in capitals. No cells at all are "VALID"."""
    if padding_rule(value) != "cells":
        return value.upper()
    pairs = padding_pairs(value, d)
    return [[0, 0], *map(list, pairs), [0, 0]] if any(map(any, pairs)) else "VALID"


def between(value: Any, d: int) -> Any:
    """Rule TF2, the names. The first and the last pair belong to the batch and to the channels."""
    if not isinstance(value, str):
        return padding_pairs(check_length(value, d + 2)[1:-1], d)
    if value not in ("SAME", "VALID"):
        raise ArgumentError("TF2", 'padding "SAME" or "VALID"', f"padding={shown(value)}", "Or pad x yourself.")
    return value.lower()


def implied(value: Any, d: int) -> Any:
    """What the filters tell."""
    return OMIT


def over_space(d: int) -> Arguments:
    """The axes of a reduction over all the space, channels last."""
    return {"axis": tuple(range(1, d + 1))}


def between_ends(value: Any, d: int) -> Any:
    """The spatial sizes of a shape with its channels last."""
    return ints(check_length(value, d + 2)[1:-1], d)


STRIDES = Word("stride", "strides", REQUIRED, ints, ints)
PADDING = Word("padding", "padding", REQUIRED, every_axis, between)
DILATIONS = Word("dilation", "dilations", 1, ints, ints)
KSIZE = Word("kernel", "ksize", REQUIRED, ints, ints)
KEEPDIMS = Word("keepdims", "keepdims", False)
OUT = Word("output_shape", "output_shape", REQUIRED, hear=between_ends)


class TensorFlow(Dialect):
    """Arguments of `tf.nn`."""

    name = "tf"
    channels_last = True
    functions: Mapping[str, Function] = {
        "conv": Function("tf.nn.conv{d}d", (STRIDES, PADDING, DILATIONS, Word("groups", "groups", 1, implied))),
        "conv_transpose": Function("tf.nn.conv{d}d_transpose", (STRIDES, PADDING, DILATIONS, OUT), fixed={"groups": 1}),
        "max_pool": Function("tf.nn.max_pool{d}d", (KSIZE, STRIDES, PADDING), fixed=MAX_FIXED),
        "avg_pool": Function("tf.nn.avg_pool{d}d", (KSIZE, STRIDES, PADDING), fixed=UNCOUNTED),
        "global_avg_pool": Function("tf.reduce_mean", (KEEPDIMS,), always=over_space),
        "global_max_pool": Function("tf.reduce_max", (KEEPDIMS,), always=over_space),
    }
    corners: Mapping[str, Corners] = MAXIMUM

    def spell(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call:
        """A transposed convolution is told the shape of its result, channels last."""
        if self.kind(op).windows != "transposed":
            return super().spell(op, shapes, options, lead=lead)
        setting = setting_of(op, shapes, {n: v for n, v in options.items() if n != "output_shape"}, lead)
        told = {n: v for n, v in options.items() if n not in ("output_padding", "output_shape")}
        out = options.get("output_shape") or setting.window.out(setting.space)
        assert setting.shapes[1] is not None
        return super().spell(
            op, shapes, {**told, "output_shape": (setting.x[0], *out, setting.shapes[1][1])}, lead=lead
        )

    def wordings(self, wanted: Meaning) -> Iterator[tuple[str, Words]]:
        """What is cropped may be what a named padding crops at that size."""
        yield from super().wordings(wanted)
        if wanted.kind.windows == "transposed":
            for name in ("same", "valid"):
                more = {"padding": name, "output_padding": 0, "output_shape": wanted.out}
                yield wanted.op, {**wanted.options, **more}

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows."""
        check_rank(setting)
        check_cells(self.function(setting.op).name.format(d=setting.d), setting)
        if setting.kind.windows == "transposed":
            setting = gradient(setting, between_ends(arguments["output_shape"], setting.d))
        elif setting.kind.weighted:
            setting = grouped(setting)
        return meaning_of(setting, self.corners.get(setting.op, Corners()))


def check_cells(function: str, setting: Setting) -> None:
    """Rules TF2 and TF3."""
    padding = setting.options.get("padding", "valid")
    if isinstance(padding, str):
        return
    if function not in IN_CELLS:
        raise ArgumentError("TF2", f'padding "SAME" or "VALID" in {function}', f"padding={padding}", "Pad x yourself.")
    if setting.slides and any(max(p) > k for p, k in zip(padding, setting.kernel, strict=True)):
        got = f"padding={padding}, ksize={setting.kernel}"
        raise ArgumentError("TF3", "padding of at most the window", got, "Larger padding makes empty windows.")


def grouped(setting: Setting) -> Setting:
    """As many groups as the filters' in-channels fit into those of x."""
    w = setting.shapes[1]
    assert w is not None
    groups = max(setting.channels // max(w[1], 1), 1)
    return replace(setting, options={**setting.options, "groups": groups})


def gradient(setting: Setting, out: tuple[int, ...]) -> Setting:
    """What the transpose of a convolution that maps `out` cells to those of x crops. Rule TF4."""
    padding = setting.options["padding"]
    pads, extra = [], []
    named = ((0, 0),) * setting.d if isinstance(padding, str) else padding
    for n, m, s, span, cells in zip(setting.space, out, setting.stride, spans(setting), named, strict=True):
        whole = (n - 1) * s + span
        total = max(whole - m, 0)
        lo, hi = (total // 2, total - total // 2) if padding == "same" else cells
        more = m - (whole - lo - hi)
        if not 0 <= more < s or (padding == "same" and -(-m // s) != n):
            got = f"output_shape={m} with padding={shown(padding)}, stride={s}, span={span}"
            raise ShapeError("TF4", f"a size that the convolution maps to n={n}", got, "Take another output_shape.")
        pads.append((lo, hi))
        extra.append(more)
    return replace(
        setting, options={**setting.options, "padding": tuple(pads), "output_padding": tuple(extra), "groups": 1}
    )


# ---- Keras


def lower(value: Any, d: int) -> Any:
    """Rule KE3: a name. No cells at all are "valid"."""
    if isinstance(value, str):
        return value
    if any(map(any, padding_pairs(value, d))):
        got = f"padding={shown(value)}"
        raise ArgumentError("KE3", 'padding "valid" or "same"', got, "Pad or crop in a layer of its own.")
    return "valid"


KERAS_STRIDES = Word("stride", "strides", 1, ints, ints)
KERAS_PADDING = Word("padding", "padding", "valid", lower)
POOL = (
    Word("kernel", "pool_size", 2, ints, ints),
    Word("stride", "strides", None, ints, ints),
    KERAS_PADDING,
)
RATE = Word("dilation", "dilation_rate", 1, ints, ints)


class Keras(Dialect):
    """Arguments of Keras layers."""

    name = "keras"
    channels_last = True
    functions: Mapping[str, Function] = {
        "conv": Function("Conv{d}D", (KERAS_STRIDES, KERAS_PADDING, RATE, Word("groups", "groups", 1))),
        "conv_transpose": Function(
            "Conv{d}DTranspose",
            (KERAS_STRIDES, KERAS_PADDING, RATE, Word("output_padding", "output_padding", None, unless_none)),
            fixed={"groups": 1},
        ),
        "max_pool": Function("MaxPooling{d}D", POOL, fixed=MAX_FIXED),
        "avg_pool": Function("AveragePooling{d}D", POOL, fixed=UNCOUNTED),
        "global_avg_pool": Function("GlobalAveragePooling{d}D", (KEEPDIMS,)),
        "global_max_pool": Function("GlobalMaxPooling{d}D", (KEEPDIMS,)),
    }
    corners: Mapping[str, Corners] = MAXIMUM

    def wordings(self, wanted: Meaning) -> Iterator[tuple[str, Words]]:
        """Without output_padding, or with as much as says the size."""
        yield from super().wordings(wanted)
        if wanted.kind.weighted and wanted.kind.windows == "sliding":
            yield wanted.op, {**wanted.options, "padding": "causal"}
        if wanted.kind.windows != "transposed":
            return
        for name in ("same", "valid"):
            yield wanted.op, {**wanted.options, "padding": name, "output_padding": None}
            axes: Any = wanted.window.axes
            rows = list(zip(wanted.out, wanted.space, axes, strict=True))
            crop = [2 * (a.span // 2) if name == "same" else 0 for a in axes]
            more = tuple(m - (n - 1) * a.stride - a.span + c for (m, n, a), c in zip(rows, crop, strict=True))
            yield wanted.op, {**wanted.options, "padding": name, "output_padding": more}

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows, or those of a transposed convolution with Keras's own crop."""
        check_rank(setting)
        padding = setting.options.get("padding", "valid")
        convolves = setting.kind.weighted and setting.kind.windows == "sliding"
        causal = padding == "causal" and convolves and setting.d == 1
        if padding not in ("valid", "same") and not causal:
            got = f"padding={shown(padding)}"
            raise ArgumentError("KE3", 'padding "valid" or "same", or "causal" in Conv1D', got, "Pad x yourself.")
        if setting.kind.weighted and max(setting.stride) > 1 and max(setting.dilation) > 1:
            got = f"strides={setting.stride}, dilation_rate={setting.dilation}"
            raise ArgumentError("KE1", "strides 1 or dilation_rate 1", got, "One of them only.")
        if causal:
            setting = replace(setting, options={**setting.options, "padding": ((spans(setting)[0] - 1, 0),)})
        if setting.kind.windows == "transposed":
            setting = keras_crop(setting)
        return meaning_of(setting, self.corners.get(setting.op, Corners()))


def keras_crop(setting: Setting) -> Setting:
    """What is cropped and added: without output_padding as much as gives n*stride ("same") or reaches every cell."""
    given = setting.options["output_padding"]
    extra = (None,) * setting.d if given is None else ints(given, setting.d)
    same = setting.options["padding"] == "same"
    pads, more = [], []
    for s, span, o in zip(setting.stride, spans(setting), extra, strict=True):
        if o is not None and not 0 <= o < s:
            raise ArgumentError("KE2", f"0 <= output_padding < stride {s}", f"output_padding={o}", "Leave it out.")
        as_it_is = span - s if same else min(span - s, 0)
        crop = as_it_is if o is None else 2 * (span // 2) * same - o  # below 0 it is added
        lo = max(crop, 0) // 2
        pads.append((lo, max(crop, 0) - lo))
        more.append(max(-crop, 0))
    return replace(setting, options={**setting.options, "padding": tuple(pads), "output_padding": tuple(more)})
