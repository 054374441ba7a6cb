"""What a network really computes at a point: on rationals, on balls where there is exp or a root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import flint
import numpy as np

from lunette.errors import LunetteError
from lunette.graph.graph import Graph
from lunette.number import Array
from lunette.verify.property import Case, output_cells

BITS: Final = (128, 512)
"""Precisions of balls, tried in turn."""


def rational(value: Any) -> Any:
    """A number as a rational of flint; floats are the rationals that they are."""
    return flint.fmpq(*value.as_integer_ratio()) if isinstance(value, float | Fraction) else flint.fmpq(value)


def ball(value: Any) -> Any:
    """A number as a ball around it."""
    return flint.arb(rational(value))


def met(graph: Graph, x: Sequence[Array], cases: Sequence[Case]) -> tuple[Case | None, str]:
    """The first case that a point meets, in exact arithmetic; and "rational", "ball", or why none is certain."""
    try:
        y = output_cells(graph.eval(*x, number=rational))
        return next((c for c in cases if c.met(y)), None), "rational"
    except (LunetteError, TypeError, ArithmeticError):
        pass  # an operator that rationals do not have
    before = flint.ctx.prec
    try:
        for bits in BITS:
            flint.ctx.prec = bits
            y = output_cells(graph.eval(*x, number=ball))
            answers = [c.met(y) for c in cases]
            if True in answers:
                return cases[answers.index(True)], "ball"
            if None not in answers:
                return None, "ball"
        return None, "balls that do not tell"
    except (LunetteError, TypeError, ArithmeticError) as error:
        return None, f"no exact value: {error}"
    finally:
        flint.ctx.prec = before


def met_in_floats(program: Callable[..., Any], x: Sequence[Array], cases: Sequence[Case]) -> Case | None:
    """The first case that our own execution in floats meets; conditions are evaluated exactly."""
    y = np.asarray(program(*x))
    if not np.isfinite(y).all():
        return None
    cells = output_cells(y.astype(np.float64))
    return next((c for c in cases if c.met(cells)), None)
