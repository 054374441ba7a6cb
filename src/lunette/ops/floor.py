"""Whole parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lunette import number, relaxing
from lunette.number import Dual, Interval, Number, zero_like
from lunette.ops.glue import make
from lunette.ops.unary import Unary


class Floor(Unary):
    """The greatest whole number that is not greater. Its derivative is zero."""

    name: ClassVar[str] = "floor"
    needs: ClassVar[str] = "order"
    monotone: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def cell(self, v: Number) -> Number:
        if isinstance(v, Dual):
            return Dual(self.cell(v.value), zero_like(v.slope))
        return number.floor(v)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation:
        return relaxing.Staircase(boxes[0].lo, boxes[0].hi)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return None


def floor(x: Any) -> Any:
    """The greatest whole number that is not greater; its derivative is 0.

    >>> import lunette as ln
    >>> from fractions import Fraction
    >>> ln.floor([Fraction(-1, 2), 3]).tolist()
    [-1, 3]
    """
    return make(Floor, (x,))
