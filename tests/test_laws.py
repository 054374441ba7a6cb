"""Every law, for every case of every operator. A new operator adds cases, not tests.

Operators that need no more than an order run on rationals and are compared with ==. Those with exp, log and roots
run on balls of 200 bits, which are compared by enclosure: two balls that overlap within 2**-150 are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette import spec
from lunette.array import resolve_named
from lunette.number import Array, Dual, Interval, each, primal, total
from lunette.op import Case, Op
from lunette.ops import ALL

CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in ALL for k, c in kind.cases.items()]
every_case = pytest.mark.parametrize(("kind", "case"), CASES)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _two_hundred_bits() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 200
    yield
    flint.ctx.prec = before


def fill(kind: type[Op], case: Case, seed: int) -> list[Array]:
    """Small integers, so that ties happen and rationals stay small. beta is never zero."""
    rng = np.random.default_rng(seed)
    exact: Any = flint.arb if kind.needs == "exp" else Fraction
    arrays = [each(lambda v: exact(int(v)), rng.integers(-3, 4, s).astype(object)) for s in case.shapes]
    for name, at in zip(kind.arrays, range(len(arrays)), strict=False):
        if name in kind.scalars:
            arrays[at] = np.array(exact(int(rng.choice([-2, -1, 1, 2]))), object)
    return arrays


def cotangent(kind: type[Op], shape: tuple[int, ...], seed: int) -> Array:
    return fill(kind, Case((shape,)), seed)[0]


def forward(kind: type[Op], arrays: list[Array], case: Case) -> Array:
    named = dict(zip(kind.arrays, arrays, strict=False))
    result: Array = getattr(spec, kind.name)(named.pop("x"), **named, **case.options)
    return result


def jvp(kind: type[Op], arrays: list[Array], tangents: list[Any], case: Case) -> Array:
    result: Array = getattr(spec, f"{kind.name}_jvp")(tuple(arrays), tuple(tangents), **case.options)
    return result


def vjp(kind: type[Op], arrays: list[Array], g: Array, case: Case) -> tuple[Array, ...]:
    result: tuple[Array, ...] = getattr(spec, f"{kind.name}_vjp")(tuple(arrays), g, **case.options)
    return result


def same(a: Any, b: Any) -> bool:
    """== for exact numbers; for balls, an overlap that no more than rounding explains."""
    if isinstance(a, flint.arb) or isinstance(b, flint.arb):
        gap = flint.arb(a) - flint.arb(b)
        return bool(gap.contains(0)) and bool(abs(gap).upper() < flint.arb(2) ** -150 * (1 + abs(flint.arb(a)).upper()))
    return bool(a == b)


def all_same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and all(map(same, a.flat, b.flat))


def dot(a: Array, b: Array) -> Any:
    return total([p * q for p, q in zip(a.flat, b.flat, strict=True)])


@every_case
@given(seeds)
def test_the_shape_rule_tells_the_truth(kind: type[Op], case: Case, seed: int) -> None:
    arrays = fill(kind, case, seed)
    wanted = resolve_named(kind.name, [a.shape for a in arrays], case.options, lead=1).out
    assert forward(kind, arrays, case).shape == wanted


@every_case
@given(seeds)
def test_jvp_is_the_specification_on_dual_numbers(kind: type[Op], case: Case, seed: int) -> None:
    arrays, tangents = fill(kind, case, seed), fill(kind, case, seed + 1)
    on_duals = forward(kind, [each(Dual, a, t) for a, t in zip(arrays, tangents, strict=True)], case)
    assert all_same(each(lambda d: Dual.of(d).slope, on_duals), jvp(kind, arrays, tangents, case))
    assert all_same(each(primal, on_duals), forward(kind, arrays, case))


@every_case
@given(seeds)
def test_vjp_is_the_adjoint_of_jvp(kind: type[Op], case: Case, seed: int) -> None:
    arrays, tangents = fill(kind, case, seed), fill(kind, case, seed + 1)
    y = jvp(kind, arrays, tangents, case)
    g = cotangent(kind, y.shape, seed + 2)
    back = vjp(kind, arrays, g, case)
    assert [b.shape for b in back] == [a.shape for a in arrays]
    assert same(dot(y, g), total([dot(t, b) for t, b in zip(tangents, back, strict=True) if t.size]))


@every_case
@given(seeds)
def test_the_declared_algebra_is_true(kind: type[Op], case: Case, seed: int) -> None:
    arrays, more = fill(kind, case, seed), fill(kind, case, seed + 1)
    linear = arrays[:2] if "b" in kind.arrays else arrays
    for p in kind.linear_in:
        both = [a + 2 * b if q == p else a for q, (a, b) in enumerate(zip(linear, more, strict=False))]
        alone = [b if q == p else a for q, (a, b) in enumerate(zip(linear, more, strict=False))]
        assert all_same(forward(kind, both, case), forward(kind, linear, case) + 2 * forward(kind, alone, case))
    if kind.monotone:
        arrays[1:] = [each(abs, a) for a in arrays[1:]]
        above = [arrays[0] + each(abs, more[0]), *arrays[1:]]
        low, high = forward(kind, arrays, case), forward(kind, above, case)
        assert all(bool(a <= b) or same(a, b) for a, b in zip(low.flat, high.flat, strict=True))


@every_case
@given(seeds)
def test_a_point_box_gives_the_value(kind: type[Op], case: Case, seed: int) -> None:
    if kind.needs == "exp":
        arrays = [each(lambda v: float(v), a) for a in fill(kind, case, seed)]
        box = forward(kind, [each(Interval, a) for a in arrays], case)
        for b, y in zip(box.flat, forward(kind, arrays, case).flat, strict=True):
            b = Interval.of(b)
            assert (
                b.lo <= y + 1e-12 * (1 + abs(y))
                and y - 1e-12 * (1 + abs(y)) <= b.hi
                and b.hi - b.lo < 1e-12 * (1 + abs(y))
            )
    else:
        arrays = fill(kind, case, seed)
        box = forward(kind, [each(Interval, a) for a in arrays], case)
        y = forward(kind, arrays, case)
        assert all(Interval.of(b) == Interval(v) for b, v in zip(box.flat, y.flat, strict=True))


@every_case
@given(seeds)
def test_a_box_contains_every_point(kind: type[Op], case: Case, seed: int) -> None:
    exact = [each(lambda v: Fraction(int(v)) if kind.needs != "exp" else float(v), a) for a in fill(kind, case, seed)]
    rng = np.random.default_rng(seed + 1)
    x, *rest = exact
    radius = rng.integers(0, 3, x.shape).astype(object)
    inside = x + radius * rng.integers(-1, 2, x.shape).astype(object)
    box = forward(kind, [each(Interval, x - radius, x + radius), *rest], case)
    y = forward(kind, [inside, *rest], case)
    slack = 0 if kind.needs != "exp" else 1e-12
    for b, v in zip(box.flat, y.flat, strict=True):
        b = Interval.of(b)
        assert b.lo - slack * (1 + abs(v)) <= v <= b.hi + slack * (1 + abs(v))


@every_case
@given(seeds)
def test_the_public_function_agrees_on_a_batch_of_exact_numbers(kind: type[Op], case: Case, seed: int) -> None:
    samples = [fill(kind, case, seed + s) for s in range(2)]
    shared = samples[0][1:]
    x = np.stack([s[0] for s in samples])
    named = dict(zip(kind.arrays[1:], shared, strict=False))
    y = getattr(ln, kind.name)(x, **named, **case.options)
    for s, one in zip(y, samples, strict=True):
        assert all_same(s, forward(kind, [one[0], *shared], case))
    g = np.stack([cotangent(kind, y.shape[1:], seed + 7 + s) for s in range(2)])
    back = getattr(ln, f"{kind.name}_vjp")((x, *shared), g, **case.options)
    single = [vjp(kind, [one[0], *shared], h, case) for one, h in zip(samples, g, strict=True)]
    assert all_same(back[0], np.stack([s[0] for s in single]).reshape(back[0].shape))
    for p in range(1, len(back)):
        assert all_same(back[p], np.asarray(single[0][p] + single[1][p], object))


@every_case
@given(seeds)
def test_jvp_is_the_limit_of_differences(kind: type[Op], case: Case, seed: int) -> None:
    """The adjoint law alone would miss a wrong winner. On distinct random floats there are no ties, so this holds."""
    rng = np.random.default_rng(seed)
    shapes = case.shapes
    arrays = [
        (rng.permutation(prod(s)) + 1.0 + rng.random(prod(s)) / 4).reshape(s) * rng.choice([-1, 1]) for s in shapes
    ]
    tangents = [rng.standard_normal(s) for s in shapes]
    for at, name in enumerate(kind.arrays):
        if name in kind.scalars:
            arrays[at] = np.array(rng.choice([-0.7, 0.9]))
    h = 2.0**-20
    up = forward(kind, [a + h * t for a, t in zip(arrays, tangents, strict=True)], case)
    down = forward(kind, [a - h * t for a, t in zip(arrays, tangents, strict=True)], case)
    slope = jvp(kind, arrays, tangents, case)
    for a, b, s in zip(up.flat, down.flat, slope.flat, strict=True):
        # Cutting the Taylor series costs h*h * the third derivative; rounding costs eps * |y| / h.
        assert abs((a - b) / (2 * h) - s) <= 2.0**-52 / h * 64 * (1 + abs(a)) + 2.0**-40 * 1e4 * (1 + abs(s))
