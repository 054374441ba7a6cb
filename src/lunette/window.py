"""Where a window may look: the only file that knows the size formulas and the index formulas.

Letters used everywhere: o output cell, i input cell, k kernel cell, n input size, d number of spatial axes.

Every geometry of one axis answers two questions, `out(n)`: how many output cells there are, and `reach(o, n)`: which
(kernel cell, input cell) pairs output cell o reads. All pairs of one output cell form an arithmetic progression, so
a reach is five numbers however large the kernel is.

| rule | says                                                                                             |
|------|--------------------------------------------------------------------------------------------------|
| W1   | kernel, stride and dilation are integers >= 1                                                     |
| W2   | the padded input holds at least one window: n + lo + hi >= span                                   |
| W3   | x has a channel axis and d spatial axes behind its batch axes                                     |
| W4   | one integer below 2**63, or one per spatial axis                                                  |
| W5   | padding is an int, one int or one (lo, hi) pair per axis, "valid", "same" or "same_lower"         |
| W6   | padding is >= 0                                                                                   |
| W7   | every spatial size is >= 1 where bins or transposed windows read it                               |
| W8   | output_size entries are integers >= 1, or None to keep the input's size                           |
| W9   | a transposed window has an output: (n-1)*stride - lo - hi + span + output_padding >= 1            |
| W10  | 0 <= output_padding < max(stride, dilation); 0 with "same" padding                                |
| W11  | spatial, if given, is >= 0 and the number of spatial axes that the other arguments have           |
| W12  | a flag is True or False                                                                           |
| W13  | where neither a tuple nor spatial tells d, x has one batch axis (none in lunette.spec) and enough axes |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from math import gcd, prod
from operator import index
from typing import Any, Literal, TypeVar

import numpy as np

from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, shown

Cell = tuple[int, ...]
Shape = tuple[int, ...]
Ints = int | Sequence[int]
PaddingWord = Literal["valid", "same", "same_lower"]
Padding = int | PaddingWord | Sequence[int] | Sequence[tuple[int, int]]
Table = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
T = TypeVar("T")


# ---- one axis


@dataclass(frozen=True, slots=True)
class Reach:
    """The (kernel cell, input cell) pairs of one output cell: (k + j*k_step, i + j*i_step) for j < count."""

    k: Any
    i: Any
    count: Any
    k_step: int
    i_step: int


class Geometry(ABC):
    """What every axis can tell. `o` may be an array of output cells if `least` and `most` are numpy's."""

    __slots__ = ()

    @abstractmethod
    def out(self, n: int) -> int:
        """How many output cells an input of n cells has."""

    @abstractmethod
    def reach(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Reach:
        """Which cells output cell o reads."""

    def inside(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Any:
        """How many cells of the window of o lie inside the padded input: all it reads, unless there is padding."""
        return self.reach(o, n, least, most).count

    def first_empty(self, n: int) -> int | None:
        """The first output cell that reads no input cell, if there is one; bins always read some."""
        return None


@dataclass(frozen=True, slots=True)
class Axis(Geometry):
    """A sliding window: output o, kernel cell k read input cell `i = o*stride - lo + k*dilation`.

    >>> Axis(3, stride=2).out(8), Axis(3, stride=2, ceil=True).out(8)
    (3, 4)
    >>> list(taps(Axis(3, dilation=2, lo=1, hi=1), 0, 5))
    [(1, 1), (2, 3)]
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    lo: int = 0
    hi: int = 0
    ceil: bool = False

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "dilation"):
            if getattr(self, name) < 1:
                raise ArgumentError(
                    "W1", f"{name} >= 1 on every axis", f"{name}={getattr(self, name)}", f"The least {name} is 1."
                )
        for name in ("lo", "hi"):
            if getattr(self, name) < 0:
                raise ArgumentError(
                    "W6", "padding >= 0", f"padding {name}={getattr(self, name)}", "Slice x to crop it."
                )

    @classmethod
    def same(cls, n: int, kernel: int, stride: int, dilation: int, lower: bool) -> Axis:
        """As much padding as makes out = ceil(n/stride); an odd cell goes to the end, or with lower to the start."""
        plain = cls(kernel, stride, dilation)
        total = max((-(-n // stride) - 1) * stride + plain.span - n, 0)
        half = total // 2
        return cls(kernel, stride, dilation, *((total - half, half) if lower else (half, total - half)))

    @property
    def span(self) -> int:
        """Cells from the first tap to the last, both counted."""
        return (self.kernel - 1) * self.dilation + 1

    def out(self, n: int) -> int:
        """With ceil, one window more if it hangs over the padded end and still starts on data or left padding."""
        room = n + self.lo + self.hi - self.span
        out = room // self.stride + 1
        out += self.ceil and room % self.stride != 0 and out * self.stride < n + self.lo
        if out < 1:
            raise ShapeError(
                "W2",
                f"a padded size >= span {self.span}",
                f"n={n}, lo={self.lo}, hi={self.hi}, kernel={self.kernel}, dilation={self.dilation}",
                f"Add {-room} to the padding or take a smaller kernel.",
            )
        return out

    def reach(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Reach:
        start = o * self.stride - self.lo
        first = most(-(start // self.dilation), 0)
        last = least((n - 1 - start) // self.dilation, self.kernel - 1)
        return Reach(first, start + first * self.dilation, most(last - first + 1, 0), 1, self.dilation)

    def inside(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Any:
        padded = Axis(self.kernel, self.stride, self.dilation)
        return padded.reach(o, n + self.lo + self.hi, least, most).count

    def first_empty(self, n: int) -> int | None:
        if self.lo >= self.span:
            return 0  # the first window ends in the left padding
        empty = [-(-(n + self.lo) // self.stride)]  # the first window that starts in the right padding
        if self.dilation > n:
            # Steps longer than the input may jump over it: where start mod dilation lies in n .. dilation-1. If that
            # range wraps around, it contains the start of window 0.
            low, high = (n + self.lo) % self.dilation, (self.lo - 1) % self.dilation
            jump = first_multiple(self.stride, self.dilation, low, high) if low <= high else 0
            empty += [] if jump is None else [jump]
        return min(empty) if min(empty) < self.out(n) else None


@dataclass(frozen=True, slots=True)
class Bins(Geometry):
    """Adaptive bins: output o of m reads input cells floor(o*n/m) .. ceil((o+1)*n/m) - 1. One bin is a global window.

    >>> [[i for _, i in taps(Bins(3), o, 5)] for o in range(3)]
    [[0, 1], [1, 2, 3], [3, 4]]
    """

    m: int

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ArgumentError(
                "W8",
                "output_size entries >= 1, or None to keep a size",
                f"output_size={self.m}",
                "The least is one bin.",
            )

    def out(self, n: int) -> int:
        if n < 1:
            raise ShapeError(
                "W7", "n >= 1 on every spatial axis", f"n={n}", "An empty axis has nothing to read: pad x first."
            )
        return self.m

    def reach(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Reach:
        start, end = o * n // self.m, -(-(o + 1) * n // self.m)
        return Reach(o * 0, start, end - start, 1, 1)


@dataclass(frozen=True, slots=True)
class Transposed(Geometry):
    """The pairs of a sliding window read backwards: o = i*stride - lo + k*dilation.

    >>> Transposed(3, stride=2).out(3)
    7
    >>> list(taps(Transposed(3, stride=2), 2, 3))
    [(0, 1), (2, 0)]
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    lo: int = 0
    hi: int = 0
    output_padding: int = 0

    def __post_init__(self) -> None:
        Axis(self.kernel, self.stride, self.dilation, self.lo, self.hi)
        if not 0 <= self.output_padding < max(self.stride, self.dilation):
            raise ArgumentError(
                "W10",
                f"0 <= output_padding < max(stride, dilation) = {max(self.stride, self.dilation)}",
                f"output_padding={self.output_padding}",
                "It chooses among the sizes that one convolution maps to n.",
            )

    @classmethod
    def same(cls, kernel: int, stride: int, dilation: int, lower: bool) -> Transposed:
        """Out = n*stride: crop span - stride cells, the odd one at the end; a shorter span is filled up."""
        total = cls(kernel, stride, dilation).span - stride
        if total < 0:
            return cls(kernel, stride, dilation, output_padding=-total)
        half = total // 2
        return cls(kernel, stride, dilation, *((total - half, half) if lower else (half, total - half)))

    @property
    def span(self) -> int:
        """Cells from the first tap to the last, both counted."""
        return (self.kernel - 1) * self.dilation + 1

    def out(self, n: int) -> int:
        if n < 1:
            raise ShapeError(
                "W7", "n >= 1 on every spatial axis", f"n={n}", "An empty axis has nothing to transpose: pad x."
            )
        size = (n - 1) * self.stride - self.lo - self.hi + self.span + self.output_padding
        if size < 1:
            raise ShapeError(
                "W9",
                "(n-1)*stride - lo - hi + span + output_padding >= 1",
                f"{size} from n={n}, stride={self.stride}, lo={self.lo}, hi={self.hi}, span={self.span}",
                f"Take {1 - size} less padding.",
            )
        return size

    def reach(self, o: Any, n: int, least: Callable[..., Any] = min, most: Callable[..., Any] = max) -> Reach:
        # i*stride = o + lo - k*dilation has solutions only where g divides o + lo; then k runs through one residue
        # class modulo stride/g, and one step of k there moves i by -dilation/g.
        g = gcd(self.stride, self.dilation)
        stride, dilation = self.stride // g, self.dilation // g
        at = o + self.lo
        solvable = at % g == 0
        residue = (at // g) % stride * pow(dilation, -1, stride) % stride
        # 0 <= i <= n-1  means  at - (n-1)*stride <= k*dilation <= at
        lowest = most(-((self.stride * (n - 1) - at) // self.dilation), 0)
        first = lowest + (residue - lowest) % stride
        last = least(at // self.dilation, self.kernel - 1)
        count = most((last - first) // stride + 1, 0) * solvable
        return Reach(first, (at - first * self.dilation) // self.stride, count, stride, -dilation)


def taps(axis: Geometry, o: int, n: int) -> Iterator[tuple[int, int]]:
    """The (kernel cell, input cell) pairs that output cell o reads. Padding is absent, not read."""
    r = axis.reach(o, n)
    return ((r.k + j * r.k_step, r.i + j * r.i_step) for j in range(r.count))


# ---- all axes


@dataclass(frozen=True, slots=True)
class Window:
    """One geometry per spatial axis, outermost first.

    >>> window = Window.sliding((7, 8), kernel=3, stride=2, padding=1)
    >>> window.out((7, 8))
    (4, 4)
    """

    axes: tuple[Geometry, ...]

    @classmethod
    def sliding(
        cls,
        space: Shape,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Window:
        """Sliding windows over an input of these spatial sizes; stride None means stride = kernel."""
        d = len(space)
        size = per_axis("kernel", kernel, d)
        step = size if stride is None else per_axis("stride", stride, d)
        spread = per_axis("dilation", dilation, d)
        flag("ceil_mode", ceil_mode)
        rule = padding_rule(padding)
        if rule == "cells":
            lo, hi = zip(*padding_pairs(padding, d), strict=True) if d else ((), ())
            return cls(each_axis(Axis, size, step, spread, lo, hi, (bool(ceil_mode),) * d))
        if rule == "valid":
            return cls(each_axis(Axis, size, step, spread, (0,) * d, (0,) * d, (bool(ceil_mode),) * d))
        return cls(each_axis(Axis.same, space, size, step, spread, (rule == "same_lower",) * d))

    @classmethod
    def transposed(
        cls, d: int, kernel: Ints, stride: Ints = 1, padding: Padding = 0, dilation: Ints = 1, output_padding: Ints = 0
    ) -> Window:
        """The windows of a transposed convolution."""
        size, step = per_axis("kernel", kernel, d), per_axis("stride", stride, d)
        spread, extra = per_axis("dilation", dilation, d), per_axis("output_padding", output_padding, d)
        rule = padding_rule(padding)
        if rule in ("same", "same_lower"):
            if any(extra):
                raise ArgumentError(
                    "W10",
                    f'output_padding=0 with padding="{rule}"',
                    f"output_padding={extra}",
                    "That padding fixes the size; count padding in cells to choose another.",
                )
            return cls(each_axis(Transposed.same, size, step, spread, (rule == "same_lower",) * d))
        pads = padding_pairs(0 if rule == "valid" else padding, d)
        lo, hi = zip(*pads, strict=True) if d else ((), ())
        return cls(each_axis(Transposed, size, step, spread, lo, hi, extra))

    @classmethod
    def bins(cls, space: Shape, output_size: int | Sequence[int | None] | None) -> Window:
        """Adaptive bins; a None entry keeps the size of its axis."""
        d = len(space)
        given: Any = output_size
        sizes = tuple(given) if is_sequence(given) else (given,) * d
        if len(sizes) != d:
            raise ArgumentError(
                "W4",
                f"one output_size or {d} of them, one per spatial axis",
                f"output_size={shown(output_size)}",
                "None keeps the size of an axis.",
            )
        window = cls(each_axis(lambda m, n: Bins(max(n, 1) if m is None else integer("output_size", m)), sizes, space))
        window.out(space)
        return window

    @classmethod
    def whole(cls, d: int) -> Window:
        """One window over all the space."""
        return cls((Bins(1),) * d)

    @property
    def d(self) -> int:
        """The number of spatial axes."""
        return len(self.axes)

    def out(self, space: Shape) -> Shape:
        """The spatial sizes of the output."""
        return each_axis(lambda a, n: a.out(n), self.axes, space)

    def taps(self, o: Cell, space: Shape) -> Iterator[tuple[Cell, Cell]]:
        """The (kernel cell, input cell) pairs of output cell o, in row-major order of the kernel cells."""
        for pairs in product(*(tuple(taps(a, p, n)) for a, p, n in zip(self.axes, o, space, strict=True))):
            yield tuple(k for k, _ in pairs), tuple(i for _, i in pairs)

    def inside(self, o: Cell, space: Shape) -> int:
        """How many cells of the window of o lie inside the padded input."""
        return prod(a.inside(p, n) for a, p, n in zip(self.axes, o, space, strict=True))

    def tables(self, space: Shape) -> tuple[AxisTable, ...]:
        """Every reach of every axis at once, for the kernels."""
        return tuple(axis_table(a, n) for a, n in zip(self.axes, space, strict=True))

    def empty_cell(self, space: Shape) -> Cell | None:
        """The first output cell, in row-major order, whose window holds no input cell; None if every window has one."""
        firsts = [a.first_empty(n) for a, n in zip(self.axes, space, strict=True)]
        # An output cell is empty as soon as one of its coordinates is.
        cells = [tuple(o if b == a else 0 for b in range(self.d)) for a, o in enumerate(firsts) if o is not None]
        return min(cells, default=None)


MOST_INSIDE = 2**62
"""A table that would say more says this instead; kernels do not count so far."""


@dataclass(frozen=True, slots=True, eq=False)
class AxisTable:
    """One axis for the pool kernels: output o reads first[o] + j*step for j < count[o]."""

    n: int
    m: int
    step: int
    first: Table
    count: Table
    inside: Table


def axis_table(axis: Geometry, n: int) -> AxisTable:
    """`reach` and `inside` of every output cell; exact whatever the size of the arguments."""
    return _short_table(axis, n) if axis.out(n) <= SHORT else _table(axis, n)


SHORT = 1 << 13  # rows of a table that is remembered: to make a longer one takes less time than its windows do


@lru_cache(maxsize=1024)
def _short_table(axis: Geometry, n: int) -> AxisTable:
    return _table(axis, n)


def _table(axis: Geometry, n: int) -> AxisTable:
    m = axis.out(n)
    numbers = [n, m, *(getattr(axis, f.name) for f in fields(axis))]  # type: ignore[arg-type]
    # Products of two numbers below 2**30 fit in 64 bits; beyond, numpy counts with Python's integers.
    o = np.arange(m, dtype=np.int64 if max(numbers) < 2**30 else object)
    r, inside = axis.reach(o, n, np.minimum, np.maximum), axis.inside(o, n, np.minimum, np.maximum)

    def column(values: Any) -> Table:
        table: Table = np.asarray(values).astype(np.int64)
        table.flags.writeable = False
        return table

    step = max(1, min(r.i_step, n))  # a longer step is never taken: such a window reads one cell at most
    return AxisTable(
        n, m, step, column(np.where(r.count == 0, 0, r.i)), column(r.count), column(np.minimum(inside, MOST_INSIDE))
    )


def first_multiple(a: int, modulus: int, low: int, high: int) -> int | None:
    """The least x >= 0 with low <= a*x mod modulus <= high, by Euclid's algorithm.

    >>> first_multiple(7, 10, 2, 3)  # 0, 7, 4, 1, 8, 5, 2
    6
    """
    a %= modulus
    if low == 0 or a == 0:
        return 0 if low == 0 else None
    x = -(-low // a)
    if a * x <= high:
        return x
    # No multiple of a lies between low and high, so a*x must pass the modulus, the least number y of times.
    y = first_multiple(modulus, a, -high % a, -low % a)
    return None if y is None else -(-(low + modulus * y) // a)


# ---- at the door: what users write


def _hint_of_integers(name: str, value: object) -> str:
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return f'Under jax.jit a number is traced unless it is static: jax.jit(f, static_argnames=("{name}",)).'
    return "Pass an int: bools and floats are none."


def integer(name: str, value: object) -> int:
    """An integer, as the user wrote it: anything with __index__ but bool."""
    try:
        if isinstance(value, bool | np.bool_) or "bool" in str(getattr(value, "dtype", "")):
            raise TypeError
        number = index(value)  # type: ignore[arg-type]
    except Exception as error:  # arrays and tensors have __index__ and each its own way to refuse
        raise DTypeError(
            "W4",
            f"{name} in integers",
            f"{name}={shown(value)} of type {type(value).__name__}",
            _hint_of_integers(name, value),
        ) from error
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(
            "W4", f"-2**63 <= {name} < 2**63", f"{name}={shown(number)}", "No array is as large as that."
        )
    return number


def flag(name: str, value: object) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, bool | np.bool_):
        got = f"{name}={shown(value)} of type {type(value).__name__}"
        raise DTypeError("W12", f"{name} as True or False", got, f"Pass bool(...) if {name} is meant as a condition.")
    return bool(value)


def is_sequence(value: object) -> bool:
    """A list, a tuple, an array with axes; not a string."""
    return (
        isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str | bytes)
        and getattr(value, "ndim", 1) > 0
    )


def each_axis(build: Callable[..., T], *columns: Sequence[Any]) -> tuple[T, ...]:
    """One call per spatial axis; a refusal names the axis."""
    results = []
    for axis, arguments in enumerate(zip(*columns, strict=True)):
        try:
            results.append(build(*arguments))
        except LunetteError as error:
            error.got += f" on spatial axis {axis}"
            raise
    return tuple(results)


def per_axis(name: str, value: object, d: int) -> Cell:
    """One integer for all axes, or one per axis."""
    if not is_sequence(value):
        return (integer(name, value),) * d
    entries: Sequence[object] = value  # type: ignore[assignment]
    if len(entries) != d:
        raise ArgumentError(
            "W4",
            f"one {name} or {d} of them, one per spatial axis",
            f"{name}={shown(value)}",
            "One int serves all axes.",
        )
    return each_axis(lambda v: integer(name, v), entries)


def padding_rule(padding: object) -> str:
    """The name of the rule that pads, or "cells" where the user counts cells."""
    if not isinstance(padding, str):
        return "cells"
    words = ("valid", "same", "same_lower")
    if padding not in words:
        hint = 'padding="same" keeps the size at stride 1.'
        if padding.lower() in words:  # as JAX and TensorFlow write it
            hint = f'Write "{padding.lower()}".'
        need = 'padding in cells, "valid", "same" or "same_lower"'
        raise ArgumentError("W5", need, f"padding={shown(padding)}", hint)
    return padding


def padding_pairs(padding: object, d: int) -> tuple[tuple[int, int], ...]:
    """(lo, hi) per axis. Nesting decides what the user meant, never the length."""
    if not is_sequence(padding):
        p = integer("padding", padding)
        return ((p, p),) * d
    entries: Sequence[Any] = padding  # type: ignore[assignment]
    if len(entries) != d:
        raise ArgumentError(
            "W5",
            f"one padding, {d} of them, or {d} (lo, hi) pairs",
            f"padding={shown(padding)}",
            "Pairs are always nested: ((1, 2),) for d=1.",
        )
    if not any(is_sequence(p) for p in entries):
        return tuple((p, p) for p in per_axis("padding", padding, d))
    if not all(is_sequence(p) and len(p) == 2 for p in entries):
        raise ArgumentError("W5", f"{d} (lo, hi) pairs", f"padding={shown(padding)}", "Do not mix ints and pairs.")
    return each_axis(lambda pair: (integer("padding lo", pair[0]), integer("padding hi", pair[1])), entries)


def spatial_axes(name: str, value: object, spatial: int | None, x: Shape | None, lead: int) -> int:
    """The number d of spatial axes: the length of a sequence, else `spatial`, else what x has behind `lead` axes.

    The last only where it can be meant. Behind a batch axis and a channel axis there are two at least: three axes are
    an image as well as a batch of signals, and of two axes none would be left. Behind a channel axis there is one.
    """
    assert x is not None
    wanted = None if spatial is None else integer("spatial", spatial)
    if is_sequence(value):
        d = len(value)  # type: ignore[arg-type]
        if wanted is not None and wanted != d:
            need = f"spatial={d}, the length of {name}"
            raise ArgumentError("W11", need, f"spatial={wanted}", "Leave spatial out.", d=d)
        return d
    if wanted is None:
        told = "spatial=" if name == "spatial" else f"spatial= or {name} as a tuple"
        if lead == 2 and len(x) < 4:
            need, hint = f"{told} where x has fewer than 4 axes", "x is (*batch, channels, *space): say what is space."
            raise ShapeError("W13", need, f"x.shape={x}", hint)  # `bind` adds the readings that are possible
        if len(x) < lead + 1:
            need, hint = f"x with a channel axis and a spatial axis, or {told}", "x is (channels, *space) here."
            raise ShapeError("W13", need, f"x.shape={x}", hint)
        return len(x) - lead
    if wanted < 0:
        raise ArgumentError("W11", "spatial >= 0", f"spatial={wanted}", "It says how many of the last axes are space.")
    return wanted


def axes_told(options: Mapping[str, Any], x: Shape | None, lead: int) -> int:
    """`spatial_axes` of a pool, its options given by name."""
    name = next((n for n in ("kernel", "output_size") if n in options), "spatial")
    return spatial_axes(name, None if name == "spatial" else options[name], options.get("spatial"), x, lead)
