"""JAX, `jax.lax`: one convolution and one reduction over windows for every rank.

| rule | says                                                                                        |
|------|---------------------------------------------------------------------------------------------|
| JX1  | lunette has no window that crops: padding >= 0 (JAX also takes negative padding)             |
| JX2  | lunette's transposed windows do not start before the first cell, and end before the next one  |
| JX3  | x has one batch axis in a convolution                                                        |
| JX4  | divide_by is "kernel", "cells" or a number                                                   |
| JX5  | padding has one of JAX's names: "VALID", "SAME" or, but for conv_transpose, "SAME_LOWER"     |

A window larger than the padded input gives an output of size 0. There is no ceil mode: what hangs over is padding. JAX
has no average; the usual one is spelled here as a sum with `divide_by`: the cells of the "kernel", the "cells" of the
input that the window reads (a second reduce_window, over ones), or a number. Pools take one entry for every axis of x.
conv_transpose is spelled with transpose_kernel=True and w as in `conv`; its padding in cells is that of the dilated
input, so what lunette crops is span - 1 less that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lunette.dialects.dialect import REQUIRED, Arguments, Call, Dialect, Function, Word, Words, check_length, ints
from lunette.dialects.meaning import Corners, Meaning, Setting, Shapes, meaning_of, rank_of, spans
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.ops import KINDS
from lunette.window import integer, is_sequence, padding_pairs, padding_rule, per_axis

NAMES = {"VALID": "valid", "SAME": "same", "SAME_LOWER": "same_lower"}


def pairs(value: Any, d: int) -> Any:
    """(lo, hi) per axis, or the name in capitals."""
    return padding_pairs(value, d) if padding_rule(value) == "cells" else value.upper()


def padding_of(value: Any, d: int) -> Any:
    """Rule JX1."""
    if isinstance(value, str):
        return check_name(value, *NAMES)
    told = as_told(value, d)
    if any(p < 0 for pair in told for p in pair):
        raise ArgumentError("JX1", "padding >= 0", f"padding={shown(value)}", "To lunette that is a slice of x first.")
    return told


def as_told(value: Any, d: int) -> Any:
    """A name, or pairs of any integers."""
    if isinstance(value, str):
        return value
    told = [check_length(pair, 2) for pair in check_length(value, d)]
    return tuple((integer("padding", lo), integer("padding", hi)) for lo, hi in told)


def check_name(value: str, *names: str) -> str:
    """Rule JX5."""
    if value.upper() not in names:
        raise ArgumentError(
            "JX5", f"padding in cells or {', '.join(names)}", f"padding={shown(value)}", "Count it in cells."
        )
    return NAMES[value.upper()]


def same_size(d: int) -> Arguments:
    """Layouts in lunette's order, for any rank: `lax.conv_transpose` takes another one unless told."""
    space = "".join(map(str, range(d)))
    return {"dimension_numbers": (f"NC{space}", f"OI{space}", f"NC{space}"), "transpose_kernel": True}


def whole_space(d: int) -> Arguments:
    """The axes of a reduction over all the space."""
    return {"axis": tuple(range(-d, 0))}


PADDING = Word("padding", "padding", "valid", pairs, padding_of)
GROUPS = Word("groups", "feature_group_count", 1)
RHS_DILATION = Word("dilation", "rhs_dilation", 1, ints, ints)
POOL = (
    Word("kernel", "window_dimensions", REQUIRED, ints, ints),
    Word("stride", "window_strides", 1, ints, ints),
    PADDING,
    Word("dilation", "window_dilation", 1, ints, ints),
)
PER_AXIS = ("window_dimensions", "window_strides", "window_dilation")
KEEPDIMS = Word("keepdims", "keepdims", False)


class Jax(Dialect):
    """Arguments of `lax.conv_general_dilated`, `lax.conv_transpose`, `lax.reduce_window`, `jnp.mean` and `jnp.max`."""

    name = "jax"
    functions: Mapping[str, Function] = {
        "conv": Function(
            "lax.conv_general_dilated",
            (Word("stride", "window_strides", REQUIRED, ints, ints), PADDING, RHS_DILATION, GROUPS),
        ),
        "conv_transpose": Function(
            "lax.conv_transpose",
            (
                Word("stride", "strides", REQUIRED, ints, ints),
                Word("padding", "padding", REQUIRED, pairs, as_told),
                RHS_DILATION,
            ),
            fixed={"groups": 1, "output_padding": 0},
            always=same_size,
        ),
        "max_pool": Function(
            "lax.reduce_window",
            POOL,
            fixed={"ceil_mode": False},
            always=lambda d: {"init_value": "-inf", "computation": "max"},
        ),
        "avg_pool": Function(
            "lax.reduce_window",
            POOL,
            fixed={"ceil_mode": False},
            extra=("divide_by",),
            always=lambda d: {"init_value": 0, "computation": "add"},
        ),
        "global_avg_pool": Function("jnp.mean", (KEEPDIMS,), always=whole_space),
        "global_max_pool": Function("jnp.max", (KEEPDIMS,), always=whole_space),
    }
    corners: Mapping[str, Corners] = {
        "max_pool": Corners(
            "the first in row-major order", "NaN if the window has one", None, "-inf", observed=("ties", "nan")
        ),
        "global_max_pool": Corners("equal shares", "NaN if there is one", observed=("ties", "nan")),
    }

    # ---- words

    def spell(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call:
        """Entries for the axes in front of space; raw padding; the divisor."""
        kind, d = self.kind(op), rank_of(op, shapes, options, lead)
        divisor = {n: v for n, v in options.items() if kind.averages and n in ("count_include_pad", "divisor")}
        apart = {*divisor, *(("output_padding",) if in_cells(op, options) else ())}
        call = super().spell(op, shapes, {n: v for n, v in options.items() if n not in apart}, lead=lead)
        said = dict(call.arguments)
        if kind.slides():
            assert shapes[0] is not None
            front = len(shapes[0]) - d
            said |= {n: (*(1,) * front, *said[n]) for n in PER_AXIS if n in said}
            if not isinstance(said.get("padding", ""), str):
                said["padding"] = (*((0, 0),) * front, *said["padding"])
            if divisor:
                said["divide_by"] = divide_by(**divisor)
        if kind.windows == "transposed" and not isinstance(said.get("padding", ""), str):
            said["padding"] = raw(said["padding"], shapes, options, d)
        return replace(call, arguments=said)

    # ---- meaning

    def heard(self, op: str, shapes: Shapes, arguments: Arguments, d: int) -> Setting:
        """Without the entries for the axes in front of space."""
        told = dict(arguments)
        if KINDS[op].slides():
            assert shapes[0] is not None
            front = len(shapes[0]) - d
            told |= {n: told[n][front:] for n in PER_AXIS if is_sequence(told.get(n))}
            if is_sequence(told.get("padding", "")):
                told["padding"] = told["padding"][front:]
        return super().heard(op, shapes, told, d)

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows; an output of size 0 where there are none."""
        corners = self.corners.get(setting.op, Corners())
        if setting.kind.weighted and len(setting.x) != setting.d + 2:
            got = f"x.shape={setting.x}"
            raise ArgumentError("JX3", f"x of {setting.d + 2} axes, one of them the batch", got, "Take jax.vmap.")
        if setting.kind.windows == "transposed":
            setting = transposed(setting)
        if setting.kind.averages and setting.slides:
            setting = replace(setting, options={**setting.options, **divided(arguments.get("divide_by", "kernel"))})
        return with_no_windows(setting, corners)


def with_no_windows(setting: Setting, corners: Corners) -> Meaning:
    """Lunette's meaning, but where an axis has no window the size is 0."""
    if setting.kind.windows in ("bins", "whole"):
        return meaning_of(setting, corners)
    out = tuple(windows(a, n) for a, n in zip(setting.window.axes, setting.space, strict=True))
    return meaning_of(setting, corners, out=out if 0 in out else None)


def windows(axis: Any, n: int) -> int:
    """How many windows there are, or none."""
    try:
        return int(axis.out(n))
    except ShapeError:
        return 0


def in_cells(op: str, options: Words) -> bool:
    """Whether output_padding can be said: together with padding in cells."""
    return KINDS[op].windows == "transposed" and not isinstance(options.get("padding", 0), str)


def divide_by(count_include_pad: bool = True, divisor: Any = None) -> Any:
    """What the sum is divided by."""
    return divisor if divisor is not None else "kernel" if count_include_pad else "cells"


def divided(by: Any) -> dict[str, Any]:
    """Rule JX4. Without ceil mode all cells of a kernel lie inside the padded input."""
    if isinstance(by, str) and by not in ("kernel", "cells"):
        raise ArgumentError("JX4", 'divide_by "kernel", "cells" or a number', f"divide_by={shown(by)}", "JAX sums.")
    return {"count_include_pad": by != "cells", "divisor": None if isinstance(by, str) else by}


def raw(crop: Any, shapes: Shapes, options: Words, d: int) -> Any:
    """The padding of the dilated input that crops the result as much as lunette does."""
    assert shapes[1] is not None
    spread = per_axis("dilation", options.get("dilation", 1), d)
    more = per_axis("output_padding", options.get("output_padding", 0), d)
    rows = zip(shapes[1][2:], spread, more, crop, strict=True)
    return tuple(((k - 1) * s - lo, (k - 1) * s - hi + extra) for k, s, extra, (lo, hi) in rows)


def transposed(setting: Setting) -> Setting:
    """Raw or named padding as what lunette crops and adds. Rule JX2."""
    padding = setting.options["padding"]
    name = check_name(padding, "SAME", "VALID") if isinstance(padding, str) else ""
    if name == "same":
        return replace(setting, options={**setting.options, "padding": "same"})
    rows = list(zip(spans(setting), setting.stride, strict=True))
    if name == "valid":
        crop = [(0, min(span - stride, 0)) for span, stride in rows]
    else:
        crop = [(span - 1 - a, span - 1 - b) for (span, _), (a, b) in zip(rows, padding, strict=True)]
    reach = [max(s, d) for s, d in zip(setting.stride, setting.dilation, strict=True)]
    if any(lo < 0 or hi <= -most for (lo, hi), most in zip(crop, reach, strict=True)):
        need = "padding that starts at the first cell and ends before the next one"
        raise ArgumentError("JX2", need, f"padding={shown(padding)}", "To lunette that is a pad of the result.")
    told = {
        "padding": tuple((lo, max(hi, 0)) for lo, hi in crop),
        "output_padding": tuple(max(-hi, 0) for _, hi in crop),
    }
    return replace(setting, options={**setting.options, **told})
