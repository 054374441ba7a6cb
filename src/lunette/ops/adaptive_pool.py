"""Adaptive pooling: as many windows as the output has cells, of the sizes that takes.

    y[c,o] = average or maximum of x[c,i] for i from floor(o*n/m) to ceil((o+1)*n/m) - 1 on each axis of n -> m cells

Bins overlap where m does not divide n; m > n repeats cells. The divisor of the average is the size of the bin.
Rules W7 and W8 (lunette.window) and M2 (max_pool) apply; an entry None of output_size keeps the size of its axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from lunette.number import Ties
from lunette.op import ABSENT, Arithmetic, Case, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.avg_pool import AvgPool
from lunette.ops.max_pool import MaxPool
from lunette.ops.pool import check_ties
from lunette.ops.windowed import Windows
from lunette.window import Shape, Window, flag, spatial_axes


def _window(shapes: Shapes, output_size: Any) -> Window:
    assert shapes[0] is not None
    return Window.bins(shapes[0][1:], output_size)


class _Bins:
    """What windows that are bins have in common."""

    __slots__ = ()
    name: ClassVar[str]
    draws: ClassVar[Mapping[str, chance.Draw]]

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int:
        return spatial_axes("output_size", options[0], options[-1], shapes[0], lead)

    @classmethod
    def draw(cls, rng: chance.Rng, d: int, limits: chance.Limits) -> Case:
        some = tuple(None if rng.random() < 0.05 and d > 1 else int(m) for m in rng.integers(1, chance.SIZES[d] + 2, d))
        options = {"output_size": some, **chance.options(cls.draws, cls.name, rng, d, limits)}
        return Case(((*chance.lead(rng), *chance.ints(rng, d, 1, chance.SIZES[d])),), options)

    @classmethod
    def one_window(cls, x: Shape) -> Case:
        return Case((x,), {"output_size": (1,) * (len(x) - 2)})


_CASES: Mapping[str, Case] = {
    "overlapping_bins": case((2, 5), output_size=(3,)),
    "more_bins_than_cells": case((1, 2), output_size=(5,)),
    "tiles_2d": case((1, 4, 6), output_size=(2, 2)),
    "keeps_an_axis": case((1, 3, 5), output_size=(None, 2)),
    "rank_0": case((2,), output_size=()),
    "rank_4": case((1, 2, 3, 1, 4), output_size=(1, 2, 1, 3)),
    "no_channels": case((0, 4), output_size=(2,)),
}


class AdaptiveAvgPool(_Bins, AvgPool):
    """Adaptive average pooling as a value. Meaning and derivatives: those of avg_pool, over bins."""

    name: ClassVar[str] = "adaptive_avg_pool"
    windows: ClassVar[Windows] = "bins"
    draws: ClassVar[Mapping[str, chance.Draw]] = {}
    monotone: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = _CASES

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(_window(shapes, options[0]))


class AdaptiveMaxPool(_Bins, MaxPool):
    """Adaptive max pooling as a value. Meaning and derivatives: those of max_pool, over bins."""

    name: ClassVar[str] = "adaptive_max_pool"
    windows: ClassVar[Windows] = "bins"
    cases: ClassVar[Mapping[str, Case]] = {
        **_CASES,
        "ties_all": case((1, 5), output_size=(3,), ties="all"),
        "ties_split": case((1, 5), output_size=(3,), ties="split"),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        output_size, ties, return_indices, _ = options
        return cls(_window(shapes, output_size), check_ties(ties), flag("return_indices", return_indices))


@spelled
def adaptive_avg_pool(
    x: Any,
    output_size: int | Sequence[int | None] | None = ABSENT,
    *,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """Averages over as many bins as `output_size` asks for; None keeps the size of an axis.

    >>> import lunette as ln
    >>> ln.adaptive_avg_pool([[1, 2, 3, 4, 5]], (3,)).tolist()
    [[Fraction(3, 2), Fraction(3, 1), Fraction(9, 2)]]
    """
    if misspelt or output_size is ABSENT:
        request(adaptive_avg_pool, (x, output_size), misspelt)  # which refuses it
    return apply(AdaptiveAvgPool, (x,), arithmetic, output_size, spatial)


@spelled
def adaptive_max_pool(
    x: Any,
    output_size: int | Sequence[int | None] | None = ABSENT,
    *,
    ties: Ties = "first",
    return_indices: bool = False,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The greatest cells of as many bins as `output_size` asks for; None keeps the size of an axis.

    >>> import lunette as ln
    >>> ln.adaptive_max_pool([[1, 2, 3, 4, 5]], (3,)).tolist()
    [[2, 4, 5]]
    """
    if misspelt or output_size is ABSENT:
        request(adaptive_max_pool, (x, output_size), misspelt)  # which refuses it
    return apply(AdaptiveMaxPool, (x,), arithmetic, output_size, ties, return_indices, spatial)
