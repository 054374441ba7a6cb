"""PyTorch 2.13, `torch.nn.functional`.

| rule | says                                                                                          |
|------|-----------------------------------------------------------------------------------------------|
| PT1  | 1, 2 or 3 spatial axes                                                                         |
| PT2  | padding is the same at both ends of an axis                                                    |
| PT3  | the padding of a pool is at most half of its kernel, whatever the dilation                     |
| PT4  | padding is named ("same", "valid") for convolutions only, and "same" only at stride 1          |
| PT5  | no spatial size is 0, and a pool has channels                                                  |
| PT6  | avg_pool1d has no divisor_override                                                             |
| PT7  | avg_pool3d compares the kernel with the input before it is padded                              |
| PT8  | lp_pool1d takes integers; norm_type is not 0                                                   |
| PT9  | adaptive_max_pool1d and adaptive_avg_pool1d want an integer for their output_size               |

Sizes, taps and divisors are lunette's; "same" puts the odd cell at the end. A window without input cells is let
through: max_pool gives -inf there, with an index that is no cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lunette.dialects.dialect import (
    REQUIRED,
    Arguments,
    Dialect,
    Function,
    Word,
    Words,
    check_length,
    ints,
    unless_none,
)
from lunette.dialects.meaning import Corners, Meaning, Setting, divisor_of, meaning_of, sizes
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.window import Bins, Window, integer, is_sequence, padding_pairs


def symmetric(value: Any, d: int) -> Any:
    """Rule PT2: one number per axis, or a name."""
    if isinstance(value, str):
        return value
    pairs = padding_pairs(value, d)
    if any(lo != hi for lo, hi in pairs):
        hint = "Pad x with torch.nn.functional.pad first."
        raise ArgumentError("PT2", "the same padding at both ends of an axis", f"padding={shown(value)}", hint)
    return tuple(lo for lo, _ in pairs)


def counts(value: Any, d: int) -> Any:
    """One size per axis, or None."""
    entries = check_length(value, d) if is_sequence(value) else (value,) * d
    return tuple(None if m is None else integer("output_size", m) for m in entries)


def number(value: Any, d: int) -> float:
    """As torch converts it."""
    return float(value)


def one_axis(value: Any, d: int) -> Any:
    """Rule PT8: for one axis the integer itself."""
    entries = ints(value, d)
    return entries[0] if d == 1 and entries is not None else entries


STRIDE = Word("stride", "stride", None, ints, ints)
PADDING = Word("padding", "padding", 0, symmetric)
DILATION = Word("dilation", "dilation", 1, ints, ints)
CEIL = Word("ceil_mode", "ceil_mode", False)
CONVOLUTION = (Word("stride", "stride", 1, ints, ints), PADDING, DILATION, Word("groups", "groups", 1))
OUTPUT_SIZE = Word("output_size", "output_size", REQUIRED, counts, counts)


def kernel(say: Any = ints) -> Word:
    """The window's sizes."""
    return Word("kernel", "kernel_size", REQUIRED, say, ints)


def over_space(d: int) -> Arguments:
    """The axes of a reduction over all the space."""
    return {"dim": tuple(range(-d, 0))}


INDICES = Word("return_indices", "return_indices", False)
PLANE = "flat, row-major, in the channel's own plane"
FIRST = "the first in row-major order"
LAST_NAN = "NaN if the window has one; the index is that of the last NaN"


class Torch(Dialect):
    """Arguments of `torch.nn.functional`, and of `Tensor.mean` and `amax` for global pools."""

    name = "torch"
    functions: Mapping[str, Function] = {
        "conv": Function("conv{d}d", CONVOLUTION),
        "conv_transpose": Function(
            "conv_transpose{d}d", (*CONVOLUTION, Word("output_padding", "output_padding", 0, ints, ints))
        ),
        "max_pool": Function("max_pool{d}d", (kernel(), STRIDE, PADDING, DILATION, CEIL, INDICES)),
        "avg_pool": Function(
            "avg_pool{d}d",
            (
                *(kernel(), STRIDE, PADDING, CEIL),
                Word("count_include_pad", "count_include_pad", True),
                Word("divisor", "divisor_override", None, unless_none),
            ),
            fixed={"dilation": 1},
        ),
        "lp_pool": Function(
            "lp_pool{d}d",
            (
                Word("p", "norm_type", REQUIRED, number, number),
                kernel(one_axis),
                Word("stride", "stride", None, one_axis, ints),
                CEIL,
            ),
            fixed={"padding": 0, "dilation": 1},
        ),
        "adaptive_avg_pool": Function("adaptive_avg_pool{d}d", (OUTPUT_SIZE,)),
        "adaptive_max_pool": Function("adaptive_max_pool{d}d", (OUTPUT_SIZE, INDICES)),
        "global_avg_pool": Function("Tensor.mean", (Word("keepdims", "keepdim", False),), always=over_space),
        "global_max_pool": Function("Tensor.amax", (Word("keepdims", "keepdim", False),), always=over_space),
    }
    corners: Mapping[str, Corners] = {
        "max_pool": Corners(FIRST, LAST_NAN, PLANE, "-inf, with an index that is no cell", ("ties", "nan", "empty")),
        "adaptive_max_pool": Corners(FIRST, LAST_NAN, PLANE, observed=("ties", "nan")),
        "global_max_pool": Corners("equal shares", "NaN if there is one", observed=("nan",)),
    }

    def wordings(self, wanted: Meaning) -> Iterator[tuple[str, Words]]:
        """As much padding at the end as at the start may make no further window, or be added to the result again."""
        yield from super().wordings(wanted)
        axes: Any = wanted.window.axes
        if wanted.kind.windows in ("bins", "whole") or all(a.lo == a.hi for a in axes):
            return
        even: dict[str, Any] = {"padding": sizes(wanted.window, "lo")}
        if wanted.kind.windows == "transposed":
            even["output_padding"] = tuple(a.output_padding + a.lo - a.hi for a in axes)
        yield wanted.op, {**wanted.options, **even}

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Lunette's windows, where torch accepts them."""
        check_rank(setting)
        check_padding(setting)
        check_sizes(setting)
        corners = self.corners.get(setting.op, Corners())
        if setting.d == 1 and (divisor := arguments.get("divisor_override")) is not None:
            got = f"divisor_override={shown(divisor)}"
            raise ArgumentError("PT6", "no divisor_override in avg_pool1d", got, "Take avg_pool2d on one row.")
        if setting.kind.windows == "bins":
            return adaptive(setting, corners)
        return meaning_of(setting, corners, departures(setting))


def check_rank(setting: Setting) -> None:
    """Rule PT1; reductions over all the space have any rank."""
    if not 1 <= setting.d <= 3 and setting.kind.windows != "whole":
        raise ArgumentError("PT1", "1, 2 or 3 spatial axes", f"{setting.d}", "torch has no functions of other ranks.")


def check_padding(setting: Setting) -> None:
    """Rules PT2 to PT4."""
    padding = setting.options.get("padding", 0)
    if isinstance(padding, str):
        takes_names = setting.kind.weighted and setting.kind.windows == "sliding"
        if not takes_names or padding not in ("same", "valid"):
            raise ArgumentError("PT4", "padding in cells", f'padding="{padding}"', "Only convolutions take names.")
        if padding == "same" and set(setting.stride) - {1}:
            raise ArgumentError("PT4", 'stride 1 with padding="same"', f"stride={setting.stride}", "Pad x yourself.")
        return
    pads = symmetric(padding, setting.d)
    if setting.slides and any(2 * p > k for p, k in zip(pads, setting.kernel, strict=True)):
        got = f"padding={pads}, kernel_size={setting.kernel}"
        raise ArgumentError("PT3", "padding of at most half of the kernel", got, "Pad x with -inf or 0 first.")


def check_sizes(setting: Setting) -> None:
    """Rules PT5 and PT7."""
    kind = setting.kind
    if kind.windows in ("sliding", "transposed") and 0 in setting.space:
        raise ShapeError("PT5", "spatial sizes >= 1", f"x.shape={setting.x}", "Only batches may be empty.")
    takes_no_channels = kind.weighted or (kind.averages and kind.windows == "whole")
    if not takes_no_channels and setting.channels == 0:
        raise ShapeError("PT5", "at least one channel", f"x.shape={setting.x}", "Only batches may be empty.")
    averages = setting.slides and (kind.averages or kind.powers) and setting.d == 3
    if averages and any(n < k for n, k in zip(setting.space, setting.kernel, strict=True)):
        got = f"space {setting.space}, kernel_size={setting.kernel}"
        raise ShapeError("PT7", "an input not smaller than the kernel", got, "Pad x first.")


def departures(setting: Setting) -> list[str]:
    """What torch's own formulas say otherwise."""
    p = setting.options.get("p", 2)
    if not setting.kind.powers:
        return []
    if p == 0:
        raise ArgumentError("PT8", "norm_type other than 0", "norm_type=0", "The root 1/p does not exist.")
    return [] if p == float("inf") or p % 2 == 0 else ["sums x^p, not |x|^p: negative cells count otherwise"]


def adaptive(setting: Setting, corners: Corners) -> Meaning:
    """Bins, of which torch also allows none; and one bin over an empty axis, whose average is that of no cells."""
    wanted = setting.options["output_size"]
    if setting.d == 1 and None in wanted:
        raise ArgumentError("PT9", "an integer output_size", f"output_size={shown(wanted)}", "Pass the size itself.")
    asked = tuple(n if m is None else m for m, n in zip(wanted, setting.space, strict=True))
    mean = setting.kind.averages and set(asked) == {1}
    if 0 in setting.space and not mean:
        raise ShapeError("PT5", "spatial sizes >= 1", f"x.shape={setting.x}", "Only batches may be empty.")
    if min(asked) > 0 and 0 not in setting.space:
        return meaning_of(setting, corners)
    window = Window(tuple(Bins(max(m, 1)) for m in asked))
    divisor = divisor_of(setting, window)
    return Meaning(setting.op, setting.space, window, asked, {"output_size": asked}, divisor, corners)
