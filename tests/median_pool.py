"""Median pooling, as a package of its own would add it: a room outside of lunette, without a kernel.

    y[c,o] = the middle cell of x[c,i] over the taps (k,i) of o in order, or the average of the two in the middle

| rule | says                                              |
|------|---------------------------------------------------|
| MD1  | every window holds at least one cell of the input |

Padding is absent. A window with a NaN gives NaN. Equal cells are ordered by place, and the middle ones carry the
derivative, in equal shares; where it is not decided which those are, each that may be one has the weight [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, ClassVar, Self

import flint

from lunette.errors import ShapeError
from lunette.number import (
    Array,
    Interval,
    Number,
    Winners,
    is_enclosure,
    is_nan,
    less,
    mean,
    primal,
    select,
    total,
    zero_of,
)
from lunette.op import Arrays, Case, Shapes, apply, case
from lunette.ops.pool import Pool, View
from lunette.window import Ints, Padding, Window


def middle(cells: Sequence[Number]) -> Winners:
    """The one or two cells in the middle; the first NaN, if there is one; of enclosures, all that may be there."""
    values = [primal(c) for c in cells]
    if any(is_enclosure(v) for v in values):
        return _possibly(values)
    if (nan := next((p for p, v in enumerate(values) if is_nan(v)), None)) is not None:
        return Winners((nan,))

    def compared(p: int, q: int) -> int:
        return less(values[q], values[p]) - less(values[p], values[q])

    order = sorted(range(len(values)), key=cmp_to_key(compared))
    two = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
    return Winners(tuple(two), len(two))


def _possibly(values: Sequence[Number]) -> Winners:
    """Those that are not certainly on one side; where it is not decided who is in the middle, of weight [0, 1]."""
    first, last = (len(values) - 1) // 2, len(values) // 2
    below = [sum(less(u, v) for u in values) for v in values]
    above = [sum(less(v, u) for u in values) for v in values]
    two = tuple(p for p in range(len(values)) if below[p] <= last and len(values) - 1 - above[p] >= first)
    if len(two) == last - first + 1:
        return Winners(two, len(two))
    unit = Interval(0, 1) if any(isinstance(v, Interval) for v in values) else flint.arb(0.5, 0.5)
    return Winners(two, unit=unit)


def ordered(cells: Sequence[Number]) -> list[Number]:
    """Enclosures in order, which need not be that of any of their numbers: maxima and minima of pairs sort ends."""
    row = list(cells)
    for end in range(len(row) - 1, 0, -1):
        for p in range(end):
            a, b = row[p], row[p + 1]
            row[p], row[p + 1] = -select([-a, -b]), select([a, b])
    return row


@dataclass(frozen=True, slots=True)
class MedianPool(Pool):
    """Median pooling as a value."""

    name: ClassVar[str] = "median_pool"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    selects: ClassVar[bool] = True
    refuses_empty: ClassVar[str] = "MD1"

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        kernel, stride, padding, dilation, ceil_mode, _ = options
        assert shapes[0] is not None
        space = shapes[0][1:]
        window = Window.sliding(space, kernel, stride, padding, dilation, ceil_mode)
        window.out(space)
        if (o := window.empty_cell(space)) is not None:
            need, got = "a cell of the input in every window", f"none at output cell {o}"
            raise ShapeError("MD1", need, got, "Take less padding or dilation.")
        return cls(window)

    # ---- meaning

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        zero = zero_of(x)

        def median(view: View, cells: list[Number]) -> Number:
            if any(is_enclosure(c) for c in cells):
                two = ordered(cells)[(len(cells) - 1) // 2 : len(cells) // 2 + 1]
            else:
                two = [cells[p] for p in middle(cells).places]
            return two[0] if len(two) == 1 else mean(two, 2, zero)

        return self.fold(median, x)

    # ---- derivatives

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        (x,), (t,) = primals, tangents
        assert x is not None and t is not None

        def derivative(view: View, cells: list[Number], slopes: list[Number]) -> Number:
            who = middle(cells)
            return total([who.weigh(slopes[p]) for p in who.places])

        return self.fold(derivative, x, t)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        assert x is not None

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            who = middle(cells)
            return [(p, who.weigh(g_o)) for p in who.places]

        return (self.scatter(shares, x, g),)

    # ---- bounds   (derived: the specification on intervals)

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "odd": case((1, 6), kernel=(3,)),
        "even": case((2, 3, 4), kernel=(2, 2), stride=1),
        "padding_is_absent": case((1, 4), kernel=(3,), stride=1, padding=1),
        "ceil_tail": case((1, 4), kernel=(3,), stride=3, ceil_mode=True),
        "dilated": case((2, 7), kernel=(3,), stride=1, dilation=3),
        "rank_0": case((3,), kernel=()),
        "rank_3": case((1, 3, 2, 4), kernel=(2, 1, 3), stride=1),
        "rank_4": case((1, 2, 3, 2, 3), kernel=(2, 2, 1, 2), stride=1),
        "no_channels": case((0, 4), kernel=(2,)),
    }


def median_pool(
    x: Any,
    kernel: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    spatial: int | None = None,
    arithmetic: str = "fast",
) -> Any:
    """The median of every window of `x`, which is `(*batch, channels, *space)`.

    >>> median_pool([[1, 5, 3, 2]], (3,), stride=1).tolist()
    [[3, 3]]
    """
    return apply(MedianPool, (x,), arithmetic, kernel, stride, padding, dilation, ceil_mode, spatial)
