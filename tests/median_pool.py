"""Median pooling, as a package of its own would add it: a room outside of lunette, without a kernel.

    y[c,o] = the middle cell of x[c,i] over the taps (k,i) of o in order, or the average of the two in the middle

| rule | says                                              |
|------|---------------------------------------------------|
| MD1  | every window holds at least one cell of the input |

Padding is absent. A window with a NaN gives NaN. Equal cells are ordered by place, and the middle ones carry the
derivative, in equal shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, ClassVar, Self

from lunette.errors import ShapeError
from lunette.number import Array, Number, divide, is_enclosure, is_nan, less, mean, primal, select, zero_of
from lunette.op import Arrays, Case, Shapes, apply, case
from lunette.ops.pool import Pool, View
from lunette.window import Ints, Padding, Window


def middle(cells: Sequence[Number]) -> list[int]:
    """The places of the one or two cells in the middle; the first NaN, if there is one."""
    values = [primal(c) for c in cells]
    for p, v in enumerate(values):
        if is_nan(v):
            return [p]

    def compared(p: int, q: int) -> int:
        return less(values[q], values[p]) - less(values[p], values[q])

    order = sorted(range(len(values)), key=cmp_to_key(compared))
    return order[(len(order) - 1) // 2 : len(order) // 2 + 1]


def middle_enclosures(cells: Sequence[Number]) -> list[Number]:
    """The same of intervals and balls, which need not be ordered: maxima and minima of pairs sort their ends."""
    row = list(cells)
    for end in range(len(row) - 1, 0, -1):
        for p in range(end):
            a, b = row[p], row[p + 1]
            row[p], row[p + 1] = -select([-a, -b]), select([a, b])
    return row[(len(row) - 1) // 2 : len(row) // 2 + 1]


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
            enclosed = any(is_enclosure(primal(c)) for c in cells)
            two = middle_enclosures(cells) if enclosed else [cells[p] for p in middle(cells)]
            return two[0] if len(two) == 1 else mean(two, 2, zero)

        return self.fold(median, x)

    # ---- derivatives

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        (x,), (t,) = primals, tangents
        assert x is not None and t is not None

        def derivative(view: View, cells: list[Number], slopes: list[Number]) -> Number:
            two = [slopes[p] for p in middle(cells)]
            return two[0] if len(two) == 1 else mean(two, 2)

        return self.fold(derivative, x, t)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        assert x is not None

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            two = middle(cells)
            return [(p, g_o if len(two) == 1 else divide(g_o, 2)) for p in two]

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
