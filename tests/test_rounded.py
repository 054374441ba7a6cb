"""Rounded arithmetic: the float nearest to the exact result, bit for bit.

The exact result comes from the specification on rationals, or on balls of 400 bits, of the very floats given.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import flint
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from configurations import random_case
from lunette.arithmetic.exact import decided_ball, precision, round_fraction
from lunette.array import by_specification, prepare
from lunette.number import Array, cells_of, each
from lunette.op import Case, Op, Request, apply
from lunette.ops import ALL, GLUE, LpPool, SmoothMaxPool
from lunette.ops.derivative import jvp_of, vjp_of

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
seeds = st.integers(0, 2**32 - 1)


def options_of(kind: type[Op], case: Case) -> tuple[Any, ...]:
    function = ALL[kind]
    from lunette.array import defaults_of

    return tuple({**defaults_of(function, kind), **case.options}.values())


def is_analytic(kind: type[Op], options: tuple[Any, ...]) -> bool:
    base = getattr(kind, "base", kind)
    return base.needs == "exp" and not (issubclass(base, LpPool) and options[1] in (1, np.inf))


def truth(kind: type[Op], arrays: list[Any], options: tuple[Any, ...]) -> Array:
    """The nearest floats of the exact results; infinities and NaN by IEEE arithmetic on floats."""
    call = prepare(Request(kind, tuple(arrays), "rounded", options))
    dtype = call.dtype
    number = flint.arb if is_analytic(kind, options) else Fraction
    finite = all(a is None or np.isfinite(a.astype(float)).all() for a in call.arrays)
    assert finite
    with precision(400):
        cells = [None if a is None else each(lambda v: number(float(v)), cells_of(a)) for a in call.arrays]
        exact = by_specification(call.bound, cells)
        if number is Fraction:
            return each(lambda v: round_fraction(Fraction(v), dtype), exact).astype(float)
        return each(lambda v: np.nan if (y := decided_ball(v, dtype)) is None else y, exact).astype(float)


def same_bits(got: Any, want: Array) -> None:
    assert got.shape == want.shape
    y = got.astype(float)
    known = ~np.isnan(want)  # what 400 bits leave open, a proof has decided
    assert np.array_equal(y[known], want[known]), (y[known & (y != want)], want[known & (y != want)])


def fill(shapes: Any, seed: int, dtype: Any) -> list[Array]:
    """Random floats of very different sizes, or small integers, which meet zeros and ties."""
    rng = np.random.default_rng(seed)

    def array(shape: tuple[int, ...]) -> Array:
        if seed % 3 == 0:
            return rng.integers(-3, 4, shape).astype(dtype)
        scale = 2.0 ** rng.integers(-10, 10, shape) if seed % 3 == 1 else 1.0
        return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)

    return [array(s) for s in shapes]


def check(kind: type[Op], case: Case, dtype: Any, seed: int, batch: tuple[int, ...] = (2,)) -> None:
    shapes = [(*batch, *case.shapes[0]), *case.shapes[1:]]
    arrays, tangents = fill(shapes, seed, dtype), fill(shapes, seed + 3, dtype)
    if issubclass(kind, SmoothMaxPool):
        arrays[1] = np.array([-1.5, -0.25, 0.5, 2][seed % 4], dtype)
    options = options_of(kind, case)
    missing = [None] * (len(kind.arrays) - len(arrays))
    full, moved = [*arrays, *missing], [*tangents, *missing]
    y = apply(kind, full, "rounded", *options)
    if isinstance(y, tuple):
        y = y[0]
    same_bits(y, truth(kind, full, options))
    same_bits(apply(jvp_of(kind), [*full, *moved], "rounded", *options), truth(jvp_of(kind), [*full, *moved], options))
    (g,) = fill([y.shape], seed + 5, dtype)
    for wrt in range(len(arrays)):
        derived = vjp_of(kind, wrt)
        same_bits(apply(derived, [*full, g], "rounded", *options), truth(derived, [*full, g], options))


CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in ALL for k, c in kind.cases.items()]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    ln.set_num_threads(2)


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_rounded_is_the_exact_result_rounded_once(kind: type[Op], case: Case, dtype: Any) -> None:
    for seed in (0, 1, 2):
        check(kind, case, dtype, seed)
