"""The error function, and its derivative, which is a room of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lunette import number
from lunette.number import Dual, Number, like
from lunette.ops.binary import mul
from lunette.ops.enclose import Curved
from lunette.ops.glue import make
from lunette.ops.unary import Unary


class Erf(Curved, Unary):
    """The error function: 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""

    name: ClassVar[str] = "erf"
    needs: ClassVar[str] = "exp"
    monotone: ClassVar[bool] = True
    bend: ClassVar[float] = 0.0

    def cell(self, v: Number) -> Number:
        return Dual(self.cell(v.value), Bell().cell(v.value) * v.slope) if isinstance(v, Dual) else number.erf(v)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, bell(x))


class Bell(Unary):
    """2/sqrt(pi) * exp(-x*x): the derivative of erf. It is no constant times exp, whose rounding no box would know."""

    name: ClassVar[str] = "bell"
    needs: ClassVar[str] = "exp"

    def cell(self, v: Number) -> Number:
        if isinstance(v, Dual):
            y = self.cell(v.value)
            return Dual(y, like(-2, v) * v.value * y * v.slope)
        return number.bell(v)

    @classmethod
    def chain(cls, options: Sequence[Any], x: Any, y: Any, t: Any) -> Any:
        return mul(t, mul(mul(x, y), -2))


def erf(x: Any) -> Any:
    """The error function.

    >>> import numpy as np, lunette as ln
    >>> ln.erf(np.array([0.0, 0.5, np.inf]))
    array([0.        , 0.52049988, 1.        ])
    """
    return make(Erf, (x,))


def bell(x: Any) -> Any:
    """2/sqrt(pi) * exp(-x*x)."""
    return make(Bell, (x,))
