"""Global pooling: one window over all the space.

    y[c] = average or maximum of x[c,i] over every i

keepdims=True keeps the spatial axes with size 1. Rule W7 (lunette.window): no spatial axis is empty; rule M2
(max_pool) for ties. The maximum gives every cell that equals it the whole derivative unless told otherwise
(ties="all"): that is the seeds' rule for global pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from lunette import relaxing
from lunette.number import Ties
from lunette.op import Arithmetic, Case, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.avg_pool import AvgPool
from lunette.ops.max_pool import MaxPool
from lunette.ops.pool import check_ties
from lunette.ops.windowed import Windows
from lunette.value import value
from lunette.window import Shape, Window, flag, spatial_axes


def _window(shapes: Shapes) -> Window:
    assert shapes[0] is not None
    window = Window.whole(len(shapes[0]) - 1)
    window.out(shapes[0][1:])
    return window


class _Whole:
    """What one window over everything means for shapes, options and random cases."""

    __slots__ = ()
    name: ClassVar[str]
    draws: ClassVar[Mapping[str, chance.Draw]]
    keepdims: bool

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int:
        return spatial_axes("spatial", None, options[-1], shapes[0], lead)

    @classmethod
    def told(cls, d: int, options: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*options[:-1], d)

    def shape(self, *shapes: Shape | None) -> Shape:
        kept: Shape = super().shape(*shapes)  # type: ignore[misc]
        return kept if self.keepdims else kept[:1]

    @classmethod
    def draw(cls, rng: chance.Rng, d: int, limits: chance.Limits) -> Case:
        options = {"spatial": d, **chance.options(cls.draws, cls.name, rng, d, limits)}
        return Case(((*chance.lead(rng), *chance.ints(rng, d, 1, chance.SIZES[d])),), options)

    @classmethod
    def one_window(cls, x: Shape) -> Case:
        return Case((x,), {"spatial": len(x) - 2})


_CASES: Mapping[str, Case] = {
    "plane": case((2, 3, 4), spatial=2),
    "flat": case((2, 3, 2), spatial=2, keepdims=False),
    "one_cell": case((3, 1), spatial=1),
    "rank_0": case((2,), spatial=0),
    "rank_4": case((1, 2, 3, 1, 2), spatial=4, keepdims=False),
    "no_channels": case((0, 4), spatial=1),
}


@value
class GlobalAvgPool(_Whole, AvgPool):
    """Global average pooling as a value. Meaning and derivatives: those of avg_pool, over one window."""

    keepdims: bool = True

    name: ClassVar[str] = "global_avg_pool"
    windows: ClassVar[Windows] = "whole"
    draws: ClassVar[Mapping[str, chance.Draw]] = {"keepdims": chance.often}
    monotone: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = _CASES

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(_window(shapes), keepdims=flag("keepdims", options[0]))


@value
class GlobalMaxPool(_Whole, MaxPool):
    """Global max pooling as a value. Meaning and derivatives: those of max_pool, over one window."""

    keepdims: bool = True

    name: ClassVar[str] = "global_max_pool"
    windows: ClassVar[Windows] = "whole"
    draws: ClassVar[Mapping[str, chance.Draw]] = {"keepdims": chance.often, "ties": chance.ties}
    cases: ClassVar[Mapping[str, Case]] = {
        **_CASES,
        "ties_first": case((2, 3, 3), spatial=2, ties="first"),
        "ties_split": case((2, 3, 3), spatial=2, ties="split", keepdims=False),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        keepdims, ties, return_indices, _ = options
        return cls(
            _window(shapes), check_ties(ties), flag("return_indices", return_indices), flag("keepdims", keepdims)
        )

    def taps(self, x: Shape) -> relaxing.Taps:
        kept = len(x) - self.window.d
        return relaxing.Folded(x, (*x[:kept], *(1,) * (self.window.d * self.keepdims)), tuple(range(kept, len(x))))


@spelled
def global_avg_pool(
    x: Any,
    *,
    keepdims: bool = True,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The average of every channel of `x`, which is `(*batch, channels, *space)`.

    >>> import lunette as ln
    >>> ln.global_avg_pool([[[1, 2], [3, 5]]], keepdims=False, spatial=2).tolist()
    [Fraction(11, 4)]
    """
    if misspelt:
        request(global_avg_pool, (x,), misspelt)  # which refuses it
    return apply(GlobalAvgPool, (x,), arithmetic, keepdims, spatial)


@spelled
def global_max_pool(
    x: Any,
    *,
    keepdims: bool = True,
    ties: Ties = "all",
    return_indices: bool = False,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The greatest cell of every channel of `x`, which is `(*batch, channels, *space)`.

    >>> import lunette as ln
    >>> ln.global_max_pool([[[1, 2], [3, 5]]], spatial=2).tolist()
    [[[5]]]
    """
    if misspelt:
        request(global_max_pool, (x,), misspelt)  # which refuses it
    return apply(GlobalMaxPool, (x,), arithmetic, keepdims, ties, return_indices, spatial)
