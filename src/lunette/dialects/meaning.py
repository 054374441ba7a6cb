"""What a call means: which cells every output cell reads, what it divides by, and what happens in the corners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Literal

from lunette.array import lookup
from lunette.errors import LunetteError, ShapeError, shown
from lunette.op import named_request, parameters_of
from lunette.ops import KINDS, Windowed
from lunette.window import Axis, Bins, Cell, Geometry, Shape, Window, axes_told, per_axis

Shapes = Sequence[Shape | None]


@dataclass(frozen=True, slots=True)
class Divisor:
    """What an average divides by: a number, or how many cells of the window are of a kind."""

    rule: Literal["present", "padded", "window"] | float
    """Input cells; those and padding; all cells of the kernel, overhang included; or a number."""
    window: Window
    """The window whose padding counts, where that is not the one that reads."""

    def at(self, o: Cell, space: Shape) -> Any:
        """The divisor of output cell o."""
        axes = list(zip(self.window.axes, o, space, strict=True))
        if self.rule == "present":
            return prod(a.reach(p, n).count for a, p, n in axes)
        if self.rule == "padded":
            return prod(a.inside(p, n) for a, p, n in axes)
        if self.rule == "window":
            return prod(a.kernel if isinstance(a, Axis) else a.inside(p, n) for a, p, n in axes)
        return self.rule


@dataclass(frozen=True, slots=True)
class Corners:
    """What a framework does where values meet: None where nothing is known, `observed` where no document says so."""

    ties: str | None = None
    """Which of equal cells carry the derivative of a maximum."""
    nan: str | None = None
    """What a maximum does with NaN."""
    index: str | None = None
    """How the place of a maximum is counted."""
    empty: str | None = None
    """What a window without input cells gives."""
    observed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """Which cells every output cell reads, what it divides by, and what happens in the corners."""

    op: str
    space: Shape
    window: Window
    out: Shape
    """How many windows there are: the dialect's own rule, which need not be that of `window`."""
    options: Mapping[str, Any]
    """The options of `ln.<op>` that come nearest: the same cells, but for the departures; see `in_lunette`."""
    divisor: Divisor | None = None
    corners: Corners = field(default=Corners(), compare=False)
    departures: tuple[str, ...] = ()
    """In what the dialect differs from ln.<op>(**options) on some values, a sentence each."""

    @property
    def kind(self) -> type[Windowed]:
        """The operator."""
        return KINDS[self.op]

    def cells(self) -> Iterator[Cell]:
        """Every output cell, in row-major order."""
        return product(*map(range, self.out))

    @cached_property
    def has_empty_windows(self) -> bool:
        """Whether an output cell reads no input cell."""
        axes = zip(self.window.axes, self.space, self.out, strict=True)
        return any(a.reach(o, n).count == 0 for a, n, m in axes for o in range(m)) and 0 not in self.out

    def in_lunette(self) -> str | None:
        """In what ln.<op>(**options) reads or divides otherwise, as `differs` says; None if in nothing."""
        setting = Setting(self.op, ((1, 1, *self.space), (1, 1, *self.kernel)), len(self.space), self.options)
        try:
            return meaning_of(setting).differs(self)
        except LunetteError:
            return "size"

    @property
    def kernel(self) -> Shape:
        """The sizes of the windows, where they have one."""
        return tuple(getattr(a, "kernel", 1) for a in self.window.axes)

    def differs(self, other: Meaning) -> str | None:
        """The first way in which two meanings of one operator differ: "size", "taps", "divisor" or "rule"."""
        if self.out != other.out:
            return "size"
        for a, b, n, m in zip(self.window.axes, other.window.axes, self.space, self.out, strict=True):
            if a != b and any(_reach(a, o, n) != _reach(b, o, n) for o in range(m)):
                return "taps"
        if self.divisor is not None and other.divisor is not None and self.divisor != other.divisor:
            mine, theirs = self.divisor, other.divisor
            if any(mine.at(o, self.space) != theirs.at(o, other.space) for o in self.cells()):
                return "divisor"
        return "rule" if _other(self.options) != _other(other.options) else None


def _reach(axis: Geometry, o: int, n: int) -> tuple[Any, ...]:
    r = axis.reach(o, n)
    return (r.count, r.k, r.i, *((r.k_step, r.i_step) if r.count > 1 else ())) if r.count else (0,)


def _other(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that geometry and divisor do not tell."""
    return {n: v for n, v in options.items() if n in ("groups", "p") or (n == "keepdims" and not v)}


# ---- a configuration in lunette's words


@dataclass(frozen=True)
class Setting:
    """An operator, the shapes of its arrays, and its options, none left out."""

    op: str
    shapes: tuple[Shape | None, ...]
    d: int
    options: Mapping[str, Any]

    @property
    def kind(self) -> type[Windowed]:
        """The operator."""
        return KINDS[self.op]

    @property
    def slides(self) -> bool:
        """Whether it is a pool with a kernel."""
        return self.kind.slides()

    @property
    def x(self) -> Shape:
        """The shape of x."""
        x = self.shapes[0]
        assert x is not None
        return x

    @cached_property
    def space(self) -> Shape:
        """The spatial sizes of x."""
        return self.x[len(self.x) - self.d :]

    @property
    def channels(self) -> int:
        """The number of channels of x."""
        return self.x[len(self.x) - self.d - 1]

    @cached_property
    def kernel(self) -> Shape:
        """The sizes of the window."""
        if self.kind.weighted:
            w = self.shapes[1]
            assert w is not None
            return w[2:]
        return per_axis("kernel", self.options["kernel"], self.d)

    @cached_property
    def stride(self) -> Shape:
        """One stride per axis."""
        stride = self.options["stride"]
        return self.kernel if stride is None else per_axis("stride", stride, self.d)

    @cached_property
    def dilation(self) -> Shape:
        """One dilation per axis."""
        return per_axis("dilation", self.options["dilation"], self.d)

    @cached_property
    def window(self) -> Window:
        """What lunette reads; its sizes are not checked."""
        given, windows = self.options, self.kind.windows
        if windows == "sliding":
            ceil = given.get("ceil_mode", False)
            return Window.sliding(self.space, self.kernel, given["stride"], given["padding"], given["dilation"], ceil)
        if windows == "transposed":
            shared = (given["stride"], given["padding"], given["dilation"], given["output_padding"])
            return Window.transposed(self.d, self.kernel, *shared)
        return Window.bins(self.space, given["output_size"]) if windows == "bins" else Window.whole(self.d)

    def explicit(self, window: Window) -> dict[str, Any]:
        """The options with one entry per axis and padding in cells."""
        given = {n: v for n, v in self.options.items() if n not in ("spatial", "arithmetic")}
        axes: Any = window.axes
        if self.kind.windows == "bins":
            return given | {"output_size": tuple(a.m for a in axes)}
        if self.kind.windows == "whole":
            return given | {"spatial": self.d}
        given |= {"stride": self.stride, "dilation": self.dilation, "padding": tuple((a.lo, a.hi) for a in axes)}
        if self.kind.windows == "transposed":
            given["output_padding"] = tuple(a.output_padding for a in axes)
        if "ceil_mode" in given:
            given["ceil_mode"] = any(a.ceil for a in axes)
        return given if self.kind.weighted else given | {"kernel": self.kernel}


def spans(setting: Setting) -> tuple[int, ...]:
    """Cells from the first tap to the last, per axis."""
    return tuple(Axis(k, dilation=s).span for k, s in zip(setting.kernel, setting.dilation, strict=True))


def rank_of(op: str, shapes: Shapes, options: Mapping[str, Any], lead: int) -> int:
    """How many axes are spatial."""
    if op in KINDS and KINDS[op].weighted:
        if len(shapes) < 2 or shapes[1] is None or len(shapes[1]) < 2:
            raise ShapeError("C1", "the shapes of x and of w", f"{shown(shapes)}", "w.ndim is d + 2.")
        return len(shapes[1]) - 2
    return axes_told(options, shapes[0], lead)


def setting_of(op: str, shapes: Shapes, options: Mapping[str, Any], lead: int = 2) -> Setting:
    """Lunette's own reading of its options: every default filled in, unknown ones refused."""
    function, kind = lookup(op)
    named = dict(zip(kind.arrays, shapes, strict=False))
    given = {**dict.fromkeys((n for n in kind.scalars if n not in options), ()), **options}
    asked = named_request(function, named, {n: v for n, v in given.items() if n not in named or n in options}, lead)
    names = [n for n in parameters_of(function) if n not in kind.arrays and n != "arithmetic"]
    full = (*shapes, *(None,) * (len(kind.arrays) - len(shapes)))
    d = rank_of(kind.name, full, options, lead)
    return Setting(kind.name, full, d, dict(zip(names, asked.options, strict=True)))


LUNETTE_CORNERS = Corners(
    ties="the first in row-major order",
    nan="NaN if the window has one; the index is that of the first NaN",
    index="flat, row-major, in the channel's own plane",
    empty="refused",
)


def divisor_of(setting: Setting, window: Window, rule: Any = None) -> Divisor | None:
    """Lunette's divisor rule for its options, or another one."""
    if not setting.kind.averages:
        return None
    given = setting.options
    if rule is None:
        counted = given.get("count_include_pad", True)
        rule = given.get("divisor") if given.get("divisor") is not None else "padded" if counted else "present"
    return Divisor(rule, window)


def meaning_of(
    setting: Setting,
    corners: Corners = LUNETTE_CORNERS,
    departures: Sequence[str] = (),
    *,
    out: Shape | None = None,
    whole: bool = False,
) -> Meaning:
    """What lunette's options mean to lunette; or with another number of windows, or averages over the whole kernel."""
    window, space = setting.window, setting.space
    divisor = divisor_of(setting, window, "window" if whole else None)
    options = setting.explicit(window)
    meaning = Meaning(setting.op, space, window, out or (), options, divisor, corners, tuple(departures))
    if out is None or (out == sizes_or_none(window, space) and not whole):
        return replace(meaning, out=window.out(space))
    if min(out, default=1) < 1 or not setting.slides:
        return meaning
    return replace(meaning, options=trimmed(meaning))


def sizes_or_none(window: Window, space: Shape) -> Shape | None:
    """Lunette's sizes, if it has any."""
    try:
        return window.out(space)
    except LunetteError:
        return None


# ---- the same, said without ceil mode and without bins


def trimmed(meaning: Meaning) -> dict[str, Any]:
    """The options without ceil mode: as much padding at the end as the last window needs, no more."""
    ends = []
    for a, n, m in zip(meaning.window.axes, meaning.space, meaning.out, strict=True):
        assert isinstance(a, Axis)
        ends.append((a.lo, max((m - 1) * a.stride + a.span - n - a.lo, 0)))
    ceil = {"ceil_mode": False} if "ceil_mode" in meaning.options else {}
    return {**meaning.options, "padding": tuple(ends), **ceil}


def sliding(meaning: Meaning) -> Window | None:
    """The sliding windows that are these bins, if bins are alike."""
    axes = []
    for a, n, m in zip(meaning.window.axes, meaning.space, meaning.out, strict=True):
        if not isinstance(a, Bins):
            return None
        reach = [a.reach(o, n) for o in range(m)]
        stride = reach[1].i - reach[0].i if m > 1 else reach[0].count
        axis = Axis(reach[0].count, max(stride, 1))
        if axis.out(n) != m or any(_reach(axis, o, n) != _reach(a, o, n) for o in range(m)):
            return None
        axes.append(axis)
    return Window(tuple(axes))


def sizes(window: Window, name: str) -> tuple[int, ...]:
    """One field of every axis."""
    return tuple(getattr(a, name) for a in window.axes)
