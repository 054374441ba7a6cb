"""Average pooling.

    y[c,o] = (sum of x[c,i] over the taps (k,i) of o) / divisor

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| A1   | with count_include_pad=False every window holds at least one cell of the input  |
| A2   | divisor is a finite number other than zero                                      |

The divisor is `divisor` if given; else the number of cells of the window inside the padded input
(count_include_pad=True: the overhang of ceil_mode is not counted), or of the input itself (False). Padding is absent:
it adds nothing. The average of finite cells is finite: a sum that overflows is redone scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from numbers import Rational
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, DTypeError, ShapeError, shown
from lunette.number import Array, Number, as_dtype, divide, is_real, like, mean, zero_of
from lunette.op import ABSENT, Arithmetic, Arrays, Case, Kernels, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.pool import Pool, View
from lunette.value import value
from lunette.window import Cell, Ints, Padding, Shape, Window, flag


def _divisor(op: str, rng: chance.Rng, d: int, limits: chance.Limits) -> Any:
    return int(rng.choice([3, -2, 7])) if limits.divisors and d > 1 and rng.random() < 0.15 else chance.OMIT


@value
class AvgPool(Pool):
    """Average pooling as a value."""

    count_include_pad: bool = True
    divisor: Number = None

    name: ClassVar[str] = "avg_pool"
    needs: ClassVar[str] = "division"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    derivative_kernels: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    refuses_empty: ClassVar[str] = "A1"
    refused_with: ClassVar[Mapping[str, Any]] = {"count_include_pad": False}
    counting: ClassVar[Mapping[str, Any] | None] = {}
    draws: ClassVar[Mapping[str, chance.Draw]] = {"count_include_pad": chance.often, "divisor": _divisor}

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor, _ = options
        assert shapes[0] is not None
        space = shapes[0][1:]
        window = Window.sliding(space, kernel, stride, padding, dilation, ceil_mode)
        window.out(space)
        counted = flag("count_include_pad", count_include_pad)
        if divisor is None and not counted:
            check_counted("A1", window, space)
        return cls(window, counted, check_divisor(divisor))

    # ---- meaning

    @property
    def counted(self) -> bool:
        return self.divisor is None and self.count_include_pad

    def over(self, view: View, cell: Number) -> Number:
        """What this window divides by, in the number type of the cell."""
        if self.divisor is not None:
            return like(self.divisor, cell)
        return view.inside if self.count_include_pad else len(view.places)

    def divisor_at(self, o: Cell, space: Shape) -> Any:
        if self.divisor is not None:
            return self.divisor
        axes = zip(self.window.axes, o, space, strict=True)
        return self.window.inside(o, space) if self.count_include_pad else prod(a.reach(p, n).count for a, p, n in axes)

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        zero = zero_of(x)
        return self.fold(lambda view, cells: mean(cells, self.over(view, zero), zero), x)

    # ---- derivatives   (jvp: derived, the operator is linear)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        assert x is not None

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            share = divide(g_o, self.over(view, g_o))
            return [(p, share) for p in range(len(cells))]

        return (self.scatter(shares, x, g),)

    # ---- bounds   (derived: a sum of terms of one sign, where the divisor is no number that could overflow)

    def terms(self, shapes: Shapes) -> int | None:
        tables = self._tables(shapes)
        divisor = self.divisor or prod(int(t.inside.max()) for t in tables)
        return prod(int(t.count.max()) for t in tables) if 0 < divisor < 2**60 else None

    def divisor_roundings(self, shapes: Shapes, dtype: np.dtype[Any]) -> int:
        """A divisor that is given is a number of the dtype (`cast`), and so are counts that are small."""
        most = prod(int(t.inside.max()) for t in self._tables(shapes))
        return int(self.divisor is None and most > 2 ** (np.finfo(dtype).nmant + 1))

    def terms_back(self, shapes: Shapes, wrt: int) -> int | None:
        """The same for the VJP: the most windows that a cell is in."""
        if self.terms(shapes) is None:
            return None
        most = 1
        for t in self._tables(shapes):
            # A window begins at its first cell, and ends a step behind its last: what has begun and not ended is open.
            windows = np.zeros((t.n // t.step + 2, t.step), np.int64)
            first, some = np.asarray(t.first), t.count > 0
            np.add.at(windows.reshape(-1), first[some], 1)
            np.add.at(windows.reshape(-1), (first + t.count * t.step)[some], -1)
            most *= int(windows.cumsum(axis=0).max())
        return most

    # ---- kernels

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return self if self.divisor is None else replace(self, divisor=check_divisor(as_dtype(self.divisor, dtype)))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        if self.counted and not self.countable(shapes):
            return Kernels()
        pool = self.native(dtype, batch, shapes, self.counted)
        mode = 2 if self.divisor is not None else 0 if self.count_include_pad else 1
        divisor = float(self.divisor or 1)
        forward, vjp = core.avg_pool(*pool, mode, divisor), core.avg_pool_vjp(*pool, mode, divisor)
        return Kernels(forward, forward.taking([1, 2], 3), (vjp.taking([1, 2], 3),))

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "tiles": case((1, 6), kernel=(2,)),
        "overlap_2d": case((2, 3, 4), kernel=(2, 3), stride=1),
        "pad_counted": case((1, 4), kernel=(3,), stride=1, padding=1),
        "pad_not_counted": case((1, 4), kernel=(3,), stride=1, padding=1, count_include_pad=False),
        "lopsided_pad": case((1, 5), kernel=(3,), stride=2, padding=((0, 2),)),
        "ceil_overhang_not_counted": case((1, 5), kernel=(3,), stride=2, padding=1, ceil_mode=True),
        "ceil_tail": case((1, 4), kernel=(3,), stride=3, ceil_mode=True, count_include_pad=False),
        "divisor": case((2, 3, 3), kernel=(2, 2), stride=1, padding=1, divisor=3),
        "negative_divisor": case((1, 4), kernel=(2,), divisor=-2),
        "dilated_pad": case((1, 6), kernel=(3,), stride=2, dilation=2, padding=2),
        "window_of_padding": case((1, 2), kernel=(1,), stride=1, padding=1),
        "same": case((1, 5, 3), kernel=(2, 3), stride=(2, 1), padding="same"),
        "no_cells": case((2, 0), kernel=(2,), stride=1, padding=1),
        "rank_0": case((3,), kernel=()),
        "rank_3": case((1, 3, 2, 4), kernel=(2, 2, 3), stride=1),
        "rank_4": case((1, 2, 3, 2, 3), kernel=(2, 2, 1, 2), stride=1),
        "no_channels": case((0, 4), kernel=(2,)),
    }


def check_counted(rule: str, window: Window, space: tuple[int, ...]) -> None:
    """Rules A1 and S2: without padding to count, every window needs a cell of the input."""
    if (o := window.empty_cell(space)) is not None:
        raise ShapeError(
            rule,
            "a cell of the input in every window",
            f"none at output cell {o}",
            "Take less padding or dilation, or count_include_pad=True.",
        )


def check_divisor(divisor: Any) -> Number:
    """Rule A2."""
    need, hint = "a divisor that is a finite number other than zero", "Leave it out to divide by the window's cells."
    if divisor is None:
        return None
    if not is_real(divisor):
        raise DTypeError("A2", need, f"divisor={shown(divisor)} of type {type(divisor).__name__}", hint)
    if not (isinstance(divisor, Rational) or math.isfinite(divisor)) or divisor == 0:
        raise ArgumentError("A2", need, f"divisor={shown(divisor)}", hint)
    return divisor


@spelled
def avg_pool(
    x: Any,
    kernel: Ints = ABSENT,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: float | None = None,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The average of every window of `x`, which is `(*batch, channels, *space)`.

    Windows are divided by `divisor` if given, else by their number of cells inside the padded input, or with
    `count_include_pad=False` inside the input itself. `stride=None` means stride = kernel.

    >>> import lunette as ln
    >>> ln.avg_pool([[4, 1, 1]], (3,), stride=1, padding=1).tolist()
    [[Fraction(5, 3), Fraction(2, 1), Fraction(2, 3)]]
    >>> ln.avg_pool([[4, 1, 1]], (3,), stride=1, padding=1, count_include_pad=False).tolist()
    [[Fraction(5, 2), Fraction(2, 1), Fraction(1, 1)]]
    """
    if misspelt or kernel is ABSENT:
        request(avg_pool, (x, kernel), misspelt)  # which refuses it
    return apply(
        AvgPool, (x,), arithmetic, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor, spatial
    )
