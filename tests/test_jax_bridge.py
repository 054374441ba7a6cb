"""lunette.jax: every operator over the cases of its room, under every transformation of JAX.

All cases of an operator are one function of many arrays, so that XLA compiles a few programs, not hundreds. Values and
first derivatives come from the kernels that `ln` calls, so they are compared with ==; second derivatives are compared
with differences, by JAX's own check_grads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import lunette
import lunette.jax
from lunette import ops
from lunette.jax.build import build
from lunette.jax.way import connected
from lunette.number import Array
from lunette.op import Case, Op
from lunette.ops import ALL

ln: Any = lunette
lj: Any = lunette.jax
BATCH = 2
every_operator = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in ALL])
one_way = pytest.mark.parametrize("way", ["ffi"], indirect=True)


@pytest.fixture(autouse=True, params=["ffi", "callback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to call the kernels, with 64 bits."""
    if request.param == "callback":
        monkeypatch.setenv("LUNETTE_JAX", "callback")
    elif lj.calls() != "ffi":  # there is no handler for this jaxlib yet
        build()
        connected.cache_clear()
    assert lj.calls() == request.param
    # Of all threads: callbacks of JAX run on another. What XLA would make better is not what is tested.
    wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    yield request.param
    jax.config.update("jax_enable_x64", wide)
    jax.config.update("jax_disable_most_optimizations", False)


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
        for mine, own in zip(
            back, getattr(ln, f"{kind.name}_vjp")(tuple(at), np.asarray(dy), **case.options), strict=True
        ):
            assert equal(mine, own), case


@one_way  # derivatives of derivatives are calls like others
@every_operator
def test_derivatives_to_second_order(kind: type[Op]) -> None:
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]]

    @jax.jit
    def f(every: Any) -> Any:
        return [applied(lj, kind, c)(*arrays) for c, arrays in zip(cases, every, strict=True)]

    check_grads(f, ([fill(kind, c, ()) for c in cases],), order=2, eps=1e-4, atol=1e-4, rtol=1e-4)


@one_way
def test_jacobians_forward_and_backward() -> None:
    x = jnp.asarray(fill(ops.MaxPool, Case(((2, 4, 4),)), ()))[0]
    for f in (partial(lj.max_pool, kernel=(2, 2)), partial(lj.avg_pool, kernel=(3, 2), stride=1)):
        forward, backward = jax.jacfwd(f)(x), jax.jacrev(f)(x)
        assert forward.shape == (*f(x).shape, *x.shape) and equal(forward, backward)
    beta = jnp.asarray(0.75)
    smooth = partial(lj.smooth_max_pool, x, (2, 2))
    slope = jax.jacfwd(lambda b: smooth(beta=b))(beta)
    assert slope.shape == (2, 2, 2) and jnp.allclose(slope, jax.jacrev(lambda b: smooth(beta=b))(beta), 1e-12)
    bend = jax.hessian(lambda x: jnp.sum(lj.lp_pool(x, (2, 2), p=3) ** 2))(x)
    assert jnp.allclose(bend, jnp.transpose(bend, (3, 4, 5, 0, 1, 2)), 1e-9)


# ---- vmap


@one_way
@every_operator
def test_vmap_over_every_axis_is_a_loop(kind: type[Op]) -> None:
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]]
    plans = [(c, axis) for c in cases for axis in range(len(c.shapes[0]) + 2)]
    stacks = [fill(kind, c, (3, BATCH)) for c in cases]

    @jax.jit
    def everything(stacks: Any) -> Any:
        results = []
        for c, stack in zip(cases, stacks, strict=True):
            f = applied(lj, kind, c)
            for axis in range(len(c.shapes[0]) + 2):
                others = (None,) * (len(stack) - 1)
                over = jax.vmap(f, in_axes=(axis, *others))
                results.append(over(jnp.moveaxis(stack[0], 0, axis), *stack[1:]))
        return results

    loops = {
        id(c): [applied(ln, kind, c)(x, *stack[1:]) for x in stack[0]] for c, stack in zip(cases, stacks, strict=True)
    }
    for (c, _), y in zip(plans, everything(stacks), strict=True):
        assert (close if len(kind.linear_in) > 1 else equal)(y, np.stack(loops[id(c)])), c


@one_way
@every_operator
def test_vmap_of_derivatives_and_of_every_array_is_a_loop(kind: type[Op]) -> None:
    """Gradients per sample, weights per sample, beta per sample."""
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]][::3]
    stacks = [[np.stack([a, 2 * a, a[..., ::-1] if a.ndim else 3 * a]) for a in fill(kind, c)] for c in cases]
    n = len(kind.arrays)

    def gradient(c: Case, *arrays: Any) -> Any:
        y, pull = jax.vjp(applied(lj, kind, c), *arrays)
        return y, pull(y)

    masks = [m for m in product([True, False], repeat=n) if any(m)]

    @jax.jit
    def everything(stacks: Any) -> Any:
        results = []
        for c, stack in zip(cases, stacks, strict=True):
            for mask in masks:
                given = [a if m else a[0] for a, m in zip(stack, mask, strict=False)]
                axes = tuple(0 if m else None for m, _ in zip(mask, stack, strict=False))
                if any(axis == 0 for axis in axes):
                    results.append((c, jax.vmap(partial(gradient, c), in_axes=axes)(*given)))
        return [r for _, r in results]

    found = iter(everything(stacks))
    for c, stack in zip(cases, stacks, strict=True):
        for mask in masks:
            if not any(mask[: len(stack)]):
                continue
            y, back = next(found)
            for at in range(3):
                one = [a[at if m else 0] for a, m in zip(stack, mask, strict=False)]
                own = applied(ln, kind, c)(*one)
                assert close(y[at], own), (c, mask)
                for mine, cotangent in zip(
                    back, getattr(ln, f"{kind.name}_vjp")(tuple(one), own, **c.options), strict=True
                ):
                    assert close(mine[at], cotangent), (c, mask)


def close(a: Any, b: Any) -> bool:
    """Equal but for the order of sums: some dozens of terms."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool((np.abs(a - b) <= 64 * 2**-52 * (1 + np.abs(b).max(initial=0))).all())
