"""Max pooling.

    y[c,o] = the greatest x[c,i] over the taps (k,i) of o

| rule | says                                                        |
|------|-------------------------------------------------------------|
| M1   | every window holds at least one cell of the input           |
| M2   | ties is "first", "all" or "split"                           |

Padding is absent, it never wins. A window with a NaN gives NaN. Equal cells, and -0.0 equals +0.0, are told apart by
place: the first in row-major order wins, sign and all, and its place is the index. `ties` says who carries the
derivative where several cells equal the winner: the first, all of them in full, or all in equal shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core, relaxing
from lunette.errors import ShapeError
from lunette.number import Array, Interval, Number, Ties, place, select, total, winners
from lunette.op import ABSENT, Arithmetic, Arrays, Case, Kernels, Record, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.pool import Pool, View, check_ties
from lunette.value import value
from lunette.window import Axis, Ints, Padding, Window, flag


@value
class MaxPool(Pool):
    """Max pooling as a value."""

    ties: Ties = "first"
    return_indices: bool = False

    name: ClassVar[str] = "max_pool"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    selects: ClassVar[bool] = True
    has_indices: ClassVar[bool] = True
    derivative_kernels: ClassVar[bool] = True
    joins: ClassVar[np.ufunc | None] = np.maximum
    refuses_empty: ClassVar[str] = "M1"
    draws: ClassVar[Mapping[str, chance.Draw]] = {"ties": chance.ties}

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        kernel, stride, padding, dilation, ceil_mode, ties, return_indices, _ = options
        assert shapes[0] is not None
        space = shapes[0][1:]
        window = Window.sliding(space, kernel, stride, padding, dilation, ceil_mode)
        window.out(space)
        if (o := window.empty_cell(space)) is not None:
            raise ShapeError(
                "M1",
                "a cell of the input in every window",
                f"none at output cell {o}",
                "Take less padding or dilation.",
            )
        return cls(window, check_ties(ties), flag("return_indices", return_indices))

    # ---- meaning

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return self.fold(lambda view, cells: select(cells, self.ties), x)

    def indices(self, x: Array) -> Array:
        """In its own channel, counted in row-major order."""
        return self.fold(lambda view, cells: view.places[place(cells)], x)

    # ---- derivatives

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        (x,), (t,) = primals, tangents
        assert x is not None and t is not None

        def derivative(view: View, cells: list[Number], slopes: list[Number]) -> Number:
            who = winners(cells, self.ties)
            return total([who.weigh(slopes[p]) for p in who.places])

        return self.fold(derivative, x, t)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        assert x is not None

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            who = winners(cells, self.ties)
            return [(p, who.weigh(g_o)) for p in who.places]

        return (self.scatter(shares, x, g),)

    def is_push_nearest(self) -> bool:
        return self.ties == "first"  # a tangent as it was

    # ---- bounds   (derived: monotone and exact, so the kernel takes the ends to the ends)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Greatest((boxes[0],), (self.taps(boxes[0].shape),))

    # ---- kernels

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        pool = self.native(dtype, batch, shapes)
        ties = ("first", "all", "split").index(self.ties)
        vjp = core.max_pool_vjp(*pool, ties)
        return Kernels(core.max_pool(*pool), core.max_pool_jvp(*pool, ties), (vjp,), self._record(pool, shapes))

    def _record(self, pool: tuple[str, core.Pool, int], shapes: Shapes) -> Record | None:
        """The number of the first winner says all where the first of equals carries the derivative."""
        size = pool[1].record_bytes() if self.ties == "first" else 0
        if not size:
            return None
        forward, jvp, vjp = core.max_pool_recording, core.max_pool_recorded_jvp, core.max_pool_recorded_vjp
        return Record(np.dtype(f"u{size}"), forward(*pool), jvp(*pool), vjp(*pool), self._record_pays(shapes))

    def _record_pays(self, shapes: Shapes) -> bool:
        """By measurement: for small windows that are alike, and where outputs are few beside the cells of x.

        Other windows are joined axis by axis, which is faster than looking at every cell of each.
        """
        tables = self._tables(shapes)
        alike = all(isinstance(a, Axis) or t.n % t.m == 0 for a, t in zip(self.window.axes, tables, strict=True))
        window = prod(int(t.count.max()) for t in tables)
        return (alike and window <= 9) or 16 * prod(t.m for t in tables) <= prod(t.n for t in tables)

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "tiles": case((1, 6), kernel=(2,)),
        "overlap_2d": case((2, 3, 4), kernel=(2, 3), stride=1),
        "pad_never_wins": case((1, 4), kernel=(3,), stride=1, padding=1),
        "lopsided_pad": case((1, 5), kernel=(3,), stride=2, padding=((0, 2),)),
        "ceil_tail": case((1, 4), kernel=(3,), stride=3, ceil_mode=True),
        "ceil_starts_in_right_pad": case((1, 5), kernel=(2,), stride=4, padding=1, ceil_mode=True),
        "dilated": case((2, 7), kernel=(3,), stride=1, dilation=3),
        "dilated_pad": case((1, 3, 5), kernel=(2, 2), stride=(1, 2), dilation=(1, 3), padding=(0, 2)),
        "gaps": case((1, 8), kernel=(2,), stride=3),
        "same_even": case((1, 5), kernel=(2,), stride=2, padding="same"),
        "same_lower": case((1, 5, 4), kernel=(2, 3), stride=(2, 1), padding="same_lower"),
        "ties_all": case((2, 4, 4), kernel=(2, 2), stride=1, ties="all"),
        "ties_split": case((2, 4, 4), kernel=(3, 2), stride=1, ties="split"),
        "rank_0": case((3,), kernel=()),
        "rank_3": case((1, 3, 2, 4), kernel=(2, 2, 3), stride=1),
        "rank_4": case((1, 2, 3, 2, 3), kernel=(2, 2, 1, 2), stride=1),
        "no_channels": case((0, 4), kernel=(2,)),
    }


@spelled
def max_pool(
    x: Any,
    kernel: Ints = ABSENT,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    ties: Ties = "first",
    return_indices: bool = False,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The greatest cell of every window of `x`, which is `(*batch, channels, *space)`.

    `stride=None` means stride = kernel. `padding` is an int, one int or one (lo, hi) pair per axis, "valid", "same" or
    "same_lower"; padding never wins. `ties` ("first", "all", "split") only matters to derivatives. With
    `return_indices` the result is (values, places of the first winners in their own channel).

    >>> import numpy as np, lunette as ln
    >>> ln.max_pool(np.array([[1.0, 5.0, 3.0, 2.0]]), (2,), stride=1)
    array([[5., 5., 3.]])
    >>> ln.max_pool([[1, 5, 3, 2]], (3,), stride=1, return_indices=True)
    (array([[5, 5]], dtype=object), array([[1, 1]]))
    """
    if misspelt or kernel is ABSENT:
        request(max_pool, (x, kernel), misspelt)  # which refuses it
    return apply(MaxPool, (x,), arithmetic, kernel, stride, padding, dilation, ceil_mode, ties, return_indices, spatial)
