"""What a network really computes at a point: on rationals, on balls where there is exp or a root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod
from typing import Any, Final

import flint
import numpy as np

from lunette.errors import LunetteError
from lunette.graph.graph import Graph
from lunette.graph.program import Program
from lunette.number import Array, Interval
from lunette.relax.network import in_float64
from lunette.verify.case import Case, Condition, output_cells

BITS: Final = (128, 512)
"""Precisions of balls, tried in turn."""
MOST_PRODUCTS: Final = 4_000_000
"""Products of a network up to which rationals take seconds; of larger ones, an enclosure in float64 may decide."""


def rational(value: Any) -> Any:
    """A number as a rational of flint; floats are the rationals that they are."""
    return flint.fmpq(*value.as_integer_ratio()) if isinstance(value, float | Fraction) else flint.fmpq(value)


def ball(value: Any) -> Any:
    """A number as a ball around it."""
    return flint.arb(rational(value))


def met(graph: Graph, x: Sequence[Array], cases: Sequence[Case]) -> tuple[Case | None, str]:
    """The first case that a point meets, proven; and "rational", "ball", "enclosure", or why none is certain."""
    if is_large(graph) and (found := met_in_box(graph, x, cases)) is not None:
        return found, "enclosure"
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


def is_large(graph: Graph) -> bool:
    """Whether rationals would take minutes: by the products of its sums."""
    products = 0
    for n in graph.nodes:
        if n.kind is not None and n.resolved is not None:
            products += prod(n.shape) * (n.op.terms(n.resolved.shapes) or 1)
    return products > MOST_PRODUCTS


def met_in_box(graph: Graph, x: Sequence[Array], cases: Sequence[Case]) -> Case | None:
    """The first case that every value of an enclosure meets: intervals of float64 around the output at a point."""
    double = in_float64(graph, [None] * len(x))
    points = [Interval.between(v.astype(np.float64), v.astype(np.float64)) for v in x]
    y = Interval.of(Program(double).run(*points, arithmetic="interval"))
    lo, hi = ([Fraction(v) for v in np.ravel(e).tolist()] for e in (y.lo, y.hi))

    def holds(c: Condition) -> bool:
        most = sum((a * (hi[k] if a > 0 else lo[k]) for k, a in c.terms), Fraction(0))
        return most < c.threshold or (not c.strict and most == c.threshold)

    finite = bool(np.isfinite(y.lo).all() and np.isfinite(y.hi).all())
    return next((c for c in cases if all(map(holds, c.conditions))), None) if finite else None


def met_in_floats(program: Callable[..., Any], x: Sequence[Array], cases: Sequence[Case]) -> Case | None:
    """The first case that our own execution in floats meets; conditions are evaluated exactly."""
    y = np.asarray(program(*x))
    if not np.isfinite(y).all():
        return None
    cells = output_cells(y.astype(np.float64))
    return next((c for c in cases if c.met(cells)), None)
