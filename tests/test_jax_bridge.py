"""lunette.jax: every operator over the cases of its room, under every transformation of JAX.

All cases of an operator are one function of many arrays, so that XLA compiles a few programs, not hundreds. Values and
first derivatives come from the kernels that `ln` calls, so they are compared with ==; second derivatives are compared
with differences, by JAX's own check_grads.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.test_util import check_grads

import lunette
import lunette.jax
from effort import ALL_OR_HALF
from jax_cases import BATCH, applied, close, cotangents, equal, every_operator, fill, one_way, way
from lunette import ops
from lunette.conform.run import run
from lunette.jax.way import connected
from lunette.op import Case, Op

ln: Any = lunette
lj: Any = lunette.jax
__all__ = ["way"]  # the fixture


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
        for mine, own in zip(back, cotangents(kind, case, at, dy), strict=True):
            assert equal(mine, own), case


@one_way  # derivatives of derivatives are calls like others
@every_operator
def test_derivatives_to_second_order(kind: type[Op]) -> None:
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]][ALL_OR_HALF]

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
        # How many samples there are decides the order of sums, on some processors.
        assert (equal if kind.exact else close)(y, np.stack(loops[id(c)])), c


@one_way
@every_operator
def test_vmap_of_derivatives_and_of_every_array_is_a_loop(kind: type[Op]) -> None:
    """Gradients per sample, weights per sample, beta per sample."""
    cases = [c for c in kind.cases.values() if 0 not in c.shapes[0]][::4]
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
                for mine, cotangent in zip(back, cotangents(kind, c, one, own), strict=True):
                    assert close(mine[at], cotangent), (c, mask)


def test_an_int_kernel_means_the_axes_of_a_sample() -> None:
    x = np.arange(2 * 3 * 2 * 4 * 4.0).reshape(2, 3, 2, 4, 4)
    per_sample = jax.vmap(lambda s: lj.max_pool(s, 2))(x)  # a sample has four axes, two of them space
    assert equal(per_sample, ln.max_pool(x, (2, 2)))
    assert per_sample.shape != ln.max_pool(x, 2).shape  # three of them, seen from outside
    with pytest.raises(ln.ShapeError, match=r"max_pool \[W13\] needs spatial="):
        jax.vmap(lambda s: lj.max_pool(s, 2))(x[0])
    both = jax.vmap(jax.vmap(lambda s: lj.global_avg_pool(s, spatial=1)))(x[0])
    assert equal(both, ln.global_avg_pool(x[0], spatial=1))


# ---- corners


@every_operator
def test_dtypes_are_kept_and_rounded_once(kind: type[Op]) -> None:
    """Under jit, one operator behind another: XLA leaves no rounding out."""
    jax.config.update("jax_disable_most_optimizations", False)
    case = next(iter(kind.cases.values()))
    after = {"kernel": (2,), "stride": 1, "padding": 1}
    dtypes = (np.float16, ml_dtypes.bfloat16, np.float32)
    given = [(np.asarray(1 / 3, dtype), *fill(kind, case, dtype=dtype)) for dtype in dtypes]

    @jax.jit
    def behind_another(given: Any) -> Any:
        results = []
        for scale, *arrays in given:
            y = applied(lj, kind, case)(*arrays)
            z, pull = jax.vjp(lambda x: lj.avg_pool(x, **after), y * scale)
            results.append((y, z, pull(z)[0]))
        return results

    for (scale, *arrays), (y, z, back) in zip(given, behind_another(given), strict=True):
        own = applied(ln, kind, case)(*arrays)
        assert equal(y, own)
        own_z = ln.avg_pool(own * scale, **after)
        assert equal(z, own_z)
        assert equal(back, ln.avg_pool_vjp((own,), own_z, **after)[0])


def test_ties_say_who_carries_the_derivative() -> None:
    x = np.array([[[1.0, 1.0, 0.0, 2.0, 2.0, 2.0]]], np.float32)
    for ties in ("first", "all", "split"):
        f = partial(lj.max_pool, kernel=(3,), ties=ties)
        (back,) = jax.vjp(f, x)[1](np.full((1, 1, 2), 6, np.float32))
        assert equal(back, ln.max_pool_vjp((x,), np.full((1, 1, 2), 6, np.float32), kernel=(3,), ties=ties)[0])
    assert back.tolist() == [[[3, 3, 0, 2, 2, 2]]]


def test_nan_infinities_and_signed_zeros_go_through() -> None:
    x = np.array([[[np.nan, 1, -0.0, 0.0, np.inf, -np.inf]]], np.float32)
    for name, options in (
        ("max_pool", {}),
        ("avg_pool", {}),
        ("lp_pool", {"p": 3}),
        ("smooth_max_pool", {"beta": 2.0}),
    ):
        y = jax.jit(partial(getattr(lj, name), kernel=(2,), **options))(x)
        own = getattr(ln, name)(x, (2,), **options)
        assert equal(y, own) and equal(np.signbit(y)[..., 1:], np.signbit(own)[..., 1:])


def test_subnormal_numbers_are_numbers() -> None:
    """Although XLA has its threads flush them to zero."""
    x = np.array([[[1e-45, -3e-45, 6e-39, -0.0]]], np.float32)
    for f in (partial(lj.max_pool, kernel=(2,)), partial(lj.avg_pool, kernel=(2,)), partial(lj.lp_pool, kernel=(2,))):
        own = getattr(ln, f.func.__name__)(x, (2,))
        assert own.any() and equal(f(x), own) and equal(jax.jit(f)(x), own)


@every_operator
def test_empty_batches_are_empty(kind: type[Op]) -> None:
    case = next(iter(kind.cases.values()))
    arrays = fill(kind, case, (0,))
    y, pull = jax.vjp(applied(lj, kind, case), *arrays)
    own = applied(ln, kind, case)(*arrays)
    assert equal(y, own) and y.size == 0
    for mine, cotangent in zip(pull(y), cotangents(kind, case, arrays, own), strict=True):
        assert equal(mine, cotangent)
    if kind is not ops.SmoothMaxPool:
        assert jax.vmap(applied(lj, kind, case), in_axes=(0, *(None,) * (len(arrays) - 1)))(*arrays).shape == own.shape


def test_indices_have_no_derivative_and_the_integers_that_jax_has() -> None:
    x = fill(ops.MaxPool, Case(((2, 4, 4),)))[0]
    pool = partial(lj.max_pool, kernel=(2, 2), return_indices=True)
    own, places = ln.max_pool(x, (2, 2), return_indices=True)
    y, index = jax.jit(pool)(x)
    assert equal(y, own) and equal(index, places)
    (y, index), (dy, none) = jax.jvp(pool, (x,), (x,))
    assert equal(dy, own) and none.dtype == jax.dtypes.float0
    (back,) = jax.vjp(lambda x: pool(x)[0], x)[1](own)
    assert equal(back, ln.max_pool_vjp((x,), own, kernel=(2, 2))[0])
    assert equal(jax.vmap(pool, in_axes=1, out_axes=1)(x[None])[1], places[None])
    jax.config.update("jax_enable_x64", False)
    y, index = jax.jit(pool)(x)
    assert y.dtype == np.float32 and index.dtype == np.int32 and (np.asarray(index) == places).all()


def test_rounded_arithmetic_and_its_derivatives() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9)).astype(np.float32)
    f = partial(lj.avg_pool, kernel=(4,), stride=1, arithmetic="rounded")
    y, pull = jax.vjp(jax.jit(f), x)
    own = ln.avg_pool(x, (4,), stride=1, arithmetic="rounded")
    assert equal(y, own)
    assert equal(pull(own)[0], ln.avg_pool_vjp((x,), own, kernel=(4,), stride=1, arithmetic="rounded")[0])
    text = str(jax.make_jaxpr(jax.grad(lambda x: f(x).sum()))(x))
    assert text.count("arithmetic='rounded'") == 2


def test_numbers_take_the_dtype_of_x() -> None:
    x = np.array([[[1, 2, 3, 4]]], np.float32)
    own = ln.smooth_max_pool(x, (2,), beta=0.1)
    assert equal(lj.smooth_max_pool(x, (2,), beta=0.1), own)
    assert equal(jax.jit(lambda b: lj.smooth_max_pool(x, (2,), beta=b))(0.1), own)  # JAX traces it as a weak float64
    assert jax.grad(lambda b: lj.smooth_max_pool(x, (2,), beta=b).sum())(0.1).dtype == np.float64


def test_what_is_not_read_is_not_kept() -> None:
    """The gradient of a linear operator does not hold x."""
    x = jnp.zeros((1, 2, 6))
    text = str(jax.make_jaxpr(jax.grad(lambda x: lj.avg_pool(x, (2,)).sum()))(x))
    assert "given=((1, 2, 6), True)" in text
    w = jnp.zeros((1, 2, 3))
    text = str(jax.make_jaxpr(jax.grad(lambda w: lj.conv(x, w).sum()))(w))
    assert "given=(True, (1, 2, 3), None, True)" in text


# ---- compiled code and kernels


@one_way
def test_nothing_is_copied_and_python_is_not_asked() -> None:
    x = jnp.ones((1, 1, 8))
    lowered = jax.jit(partial(lj.max_pool, kernel=(2,))).lower(x)
    assert "@lunette" in lowered.as_text() and "callback" not in lowered.as_text()
    text = str(lowered.compile().as_text())
    assert 'custom_call_target="lunette"' in text and "copy" not in text and "transpose" not in text


STALE = """
import pickle, sys, jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize
import jax.numpy as jnp, lunette.jax as lj
assert lj.calls() == "ffi"
if sys.argv[1] == "save":
    compiled = jax.jit(lambda x: lj.max_pool(x, (2,))).lower(jnp.ones((1, 1, 8))).compile()
    pickle.dump(serialize(compiled), open(sys.argv[2], "wb"))
else:
    again = deserialize_and_load(*pickle.load(open(sys.argv[2], "rb")))
    try:
        print(again(jnp.ones((1, 1, 8))))
    except Exception as error:
        print(error)
    lj.max_pool(jnp.ones((1, 1, 8)), (2,))  # now the kernel is known
    print(again(jnp.ones((1, 1, 8))))
"""


@one_way
def test_compiled_code_of_another_process_finds_its_kernel_or_says_so(tmp_path: Path) -> None:
    def told_by(word: str) -> str:
        command = [sys.executable, "-c", STALE, word, str(tmp_path / "compiled")]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    told_by("save")
    told, value = told_by("load").splitlines()
    assert told.startswith("NOT_FOUND: lunette: max_pool float32 [(1, 1, 8)]")
    assert told.endswith("this process has compiled nothing that calls this kernel")
    assert value == "[[[1. 1. 1. 1.]]]"


@one_way
def test_arrays_that_do_not_fit_a_kernel_are_an_error() -> None:
    x = jnp.ones((1, 1, 8), jnp.float32)
    lj.max_pool(x, (2,))
    text = jax.jit(partial(lj.max_pool, kernel=(2,))).lower(x).as_text()
    name = re.search(r'name = "([^"]*)"', text)
    assert name is not None
    call = partial(jax.ffi.ffi_call, "lunette")
    for shape, arrays in (((1, 1, 5), (x,)), ((1, 1, 4), (x[..., :7],)), ((1, 1, 4), (x, x))):
        made = jax.ShapeDtypeStruct(shape, jnp.float32)
        with pytest.raises(jax.errors.JaxRuntimeError, match="than the kernel takes"):
            jax.block_until_ready(jax.jit(lambda *a, m=made: call(m)(*a, name=name[1]))(*arrays))


def test_values_that_a_kernel_refuses_are_an_error() -> None:
    x = jnp.ones((1, 1, 4))
    pool = jax.jit(lambda b: lj.smooth_max_pool(x, (2,), beta=b))
    with pytest.raises(jax.errors.JaxRuntimeError, match="beta"):
        jax.block_until_ready(pool(0.0))
    assert np.isfinite(pool(1.0)).all()


def test_threads_call_at_once() -> None:
    x = fill(ops.MaxPool, Case(((4, 32, 32),)))[0]
    f = jax.jit(jax.grad(lambda x: (lj.max_pool(x, (3, 3), stride=2) ** 2).sum()))
    whole = np.asarray(f(x))
    with ThreadPoolExecutor(8) as pool:
        assert all(equal(r, whole) for r in pool.map(lambda _: f(x), range(64)))


@one_way
def test_a_handler_that_cannot_be_loaded_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "handler.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr("lunette.jax.way.places", lambda: (broken, tmp_path / "none.so"))
    monkeypatch.setattr("lunette.jax.way.SOURCE", tmp_path / "handler.cpp")
    assert not connected.__wrapped__()


@one_way
def test_importing_lunette_imports_no_jax() -> None:
    code = "import lunette, sys; print([m for m in ('jax', 'jaxlib', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- conformance


@one_way
def test_conform_finds_nothing() -> None:
    """Also where XLA would flush subnormal numbers; `lunette conform lunette-jax` asks many more."""
    report = run("lunette-jax", cases=10)
    assert report.cases >= 10 and report.failures == 0, report.findings
    assert set(report.verdicts) <= {"equal", "within"}
