"""lunette.jax: every operator over the cases of its room, under every transformation of JAX.

All cases of an operator are one function of many arrays, so that XLA compiles a few programs, not hundreds. Values and
first derivatives come from the kernels that `ln` calls, so they are compared with ==; second derivatives are compared
with differences, by JAX's own check_grads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.test_util import check_grads

import lunette
import lunette.jax
from lunette.number import Array
from lunette.op import Case, Op
from lunette.ops import ALL

ln: Any = lunette
lj: Any = lunette.jax
BATCH = 2
every_operator = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in ALL])
WAYS = ["callback"]


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to call the kernels, with 64 bits."""
    if request.param == "callback":
        monkeypatch.setenv("LUNETTE_JAX", "callback")
    assert lj.calls() == request.param
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)  # for all threads: callbacks of JAX run on another
    yield request.param
    jax.config.update("jax_enable_x64", before)


def fill(kind: type[Op], case: Case, batch: tuple[int, ...] = (BATCH,), dtype: Any = np.float64) -> list[Array]:
    """Cells that are far from each other and from zero, in size too: differences do not step over a kink."""
    rng = np.random.default_rng(7)
    arrays: list[Array] = []
    for at, shape in enumerate(case.shapes):
        full = (*batch, *shape) if at in kind.batched else shape
        n = int(np.prod(full))
        cells = (rng.permutation(n) + 1.0) * rng.choice([-1, 1], n) / max(n, 4)
        arrays.append(cells.reshape(full).astype(dtype))
    if kind.scalars:
        arrays[1] = np.asarray(1.25, dtype)
    return arrays


def applied(library: Any, kind: type[Op], case: Case) -> Callable[..., Any]:
    """The operator of a case, as a function of its arrays."""
    function = getattr(library, kind.name)

    def f(*arrays: Any) -> Any:
        named = dict(zip(kind.arrays, arrays, strict=False))
        return function(named.pop("x"), **named, **case.options)

    return f


def equal(a: Any, b: Any) -> bool:
    """The same cells, NaN being NaN, of the same dtype."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


# ---- values and derivatives


@every_operator
def test_values_and_derivatives_are_those_of_the_kernels(kind: type[Op]) -> None:
    cases = list(kind.cases.values())
    primals = [fill(kind, c) for c in cases]
    rng = np.random.default_rng(3)
    tangents = [[rng.standard_normal(a.shape) for a in arrays] for arrays in primals]

    @jax.jit
    def everything(primals: Any, tangents: Any) -> Any:
        results = []
        for case, at, t in zip(cases, primals, tangents, strict=True):
            f = applied(lj, kind, case)
            y, dy = jax.jvp(f, tuple(at), tuple(t))
            again, pull = jax.vjp(f, *at)
            results.append((y, dy, again, pull(dy)))
        return results

    for case, at, t, (y, dy, again, back) in zip(cases, primals, tangents, everything(primals, tangents), strict=True):
        assert equal(y, applied(ln, kind, case)(*at)) and equal(y, again), case
        slope = getattr(ln, f"{kind.name}_jvp")(tuple(at), tuple(t), **case.options)
        if len(kind.linear_in) < 2:
            assert equal(dy, slope), case
        else:  # a sum of two convolutions, in another order: a rounding for each
            size = np.abs(slope).max(initial=0) + 1
            assert np.abs(np.asarray(dy) - slope).max(initial=0) <= 2**-50 * size, case
        for mine, own in zip(back, getattr(ln, f"{kind.name}_vjp")(tuple(at), np.asarray(dy), **case.options), strict=True):
            assert equal(mine, own), case


@every_operator
def test_derivatives_to_second_order(kind: type[Op]) -> None:
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]]

    @jax.jit
    def f(every: Any) -> Any:
        return [applied(lj, kind, c)(*arrays) for c, arrays in zip(cases, every, strict=True)]

    check_grads(f, ([fill(kind, c, ()) for c in cases],), order=2, eps=1e-4, atol=1e-4, rtol=1e-4)
