"""The laws of the operators without a window, for every case of every one, on rationals or balls with ==."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given

from lunette.number import Array, Dual, Interval, each, primal, total
from lunette.op import Case, apply
from lunette.ops import GLUE
from lunette.ops.glue import Glue
from test_laws import _two_hundred_bits, all_same, dot, same, seeds  # noqa: F401 (the fixture serves here, too)

CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in GLUE for k, c in kind.cases.items()]
every_case = pytest.mark.parametrize(("kind", "case"), CASES)


def options(kind: type[Glue], case: Case) -> tuple[Any, ...]:
    own = fields(kind)  # type: ignore[arg-type]
    assert set(case.options) <= {f.name for f in own}
    return tuple(case.options.get(f.name, f.default) for f in own)


def fill(kind: type[Glue], case: Case, seed: int) -> list[Array]:
    """Small integers, so that ties happen."""
    rng = np.random.default_rng(seed)
    exact: Any = flint.arb if kind.needs == "exp" else Fraction
    low = 1 if kind.positive else -3
    return [each(lambda v: exact(int(v)), cells(rng.integers(low, 4, s))) for s in case.shapes]


def cells(a: Any) -> Array:
    """NumPy turns arrays without axes into their cell wherever it computes."""
    return np.asarray(a, object)


def bound(kind: type[Glue], case: Case) -> Glue:
    return kind.of(case.shapes, *options(kind, case))


@every_case
@given(seeds)
def test_the_shape_rule_tells_the_truth(kind: type[Glue], case: Case, seed: int) -> None:
    arrays = fill(kind, case, seed)
    op = bound(kind, case)
    y = apply(kind, arrays, "fast", *options(kind, case))
    assert y.shape == op.shape(*case.shapes) == op.spec(*arrays).shape
    assert all_same(y, op.spec(*arrays))


@every_case
@given(seeds)
def test_jvp_is_the_specification_on_dual_numbers(kind: type[Glue], case: Case, seed: int) -> None:
    arrays, tangents = fill(kind, case, seed), fill(kind, case, seed + 1)
    op = bound(kind, case)
    on_duals = op.spec(*(each(Dual, a, t) for a, t in zip(arrays, tangents, strict=True)))
    assert all_same(each(lambda d: Dual.of(d).slope, on_duals), op.jvp(arrays, tangents))
    assert all_same(each(primal, on_duals), op.spec(*arrays))
    for at in range(len(arrays)):  # a tangent None is zero
        alone = [t if p == at else None for p, t in enumerate(tangents)]
        zeros = [t if p == at else cells(0 * t) for p, t in enumerate(tangents)]
        assert all_same(op.jvp(arrays, alone), op.jvp(arrays, zeros))


@every_case
@given(seeds)
def test_vjp_is_the_adjoint_of_jvp(kind: type[Glue], case: Case, seed: int) -> None:
    arrays, tangents = fill(kind, case, seed), fill(kind, case, seed + 1)
    op = bound(kind, case)
    y = op.jvp(arrays, tangents)
    g = fill(kind, Case((y.shape,)), seed + 2)[0]
    back = op.vjp(arrays, g)
    assert [b.shape for b in back] == [a.shape for a in arrays]
    assert same(dot(y, g), total([dot(t, b) for t, b in zip(tangents, back, strict=True) if t.size]))


@every_case
@given(seeds)
def test_the_declared_algebra_is_true(kind: type[Glue], case: Case, seed: int) -> None:
    arrays, more = fill(kind, case, seed), fill(kind, case, seed + 1)
    op = bound(kind, case)
    for p in kind.linear_in:
        both = [cells(a + 2 * b) if q == p else a for q, (a, b) in enumerate(zip(arrays, more, strict=True))]
        alone = [b if q == p else a for q, (a, b) in enumerate(zip(arrays, more, strict=True))]
        assert all_same(op.spec(*both), cells(op.spec(*arrays) + 2 * op.spec(*alone)))
    if kind.monotone:
        above = [cells(a + each(abs, b)) for a, b in zip(arrays, more, strict=True)]
        low, high = op.spec(*arrays), op.spec(*above)
        assert all(bool(a <= b) or same(a, b) for a, b in zip(low.flat, high.flat, strict=True))


@every_case
@given(seeds)
def test_a_box_contains_every_point(kind: type[Glue], case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed + 1)
    exact = [each(lambda v: Fraction(int(v)) if kind.needs != "exp" else float(v), a) for a in fill(kind, case, seed)]
    radii = [cells(rng.integers(0, 1 if kind.positive else 3, a.shape)) for a in exact]
    inside = [cells(a + r * cells(rng.integers(-1, 2, a.shape))) for a, r in zip(exact, radii, strict=True)]
    op = bound(kind, case)
    box = op.spec(*(each(Interval, cells(a - r), cells(a + r)) for a, r in zip(exact, radii, strict=True)))
    slack = 0 if kind.needs != "exp" else 1e-12
    for b, v in zip(box.flat, op.spec(*inside).flat, strict=True):
        b = Interval.of(b)
        assert b.lo - slack * (1 + abs(v)) <= v <= b.hi + slack * (1 + abs(v))
