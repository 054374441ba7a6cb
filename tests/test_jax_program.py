"""program.to_jax(): values, derivatives and refusals are those of the program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import lunette
import lunette.jax as lj
from jax_cases import equal, one_way, way

ln: Any = lunette
__all__ = ["way"]  # the fixture
RNG = np.random.default_rng(5)
X, W = RNG.standard_normal((2, 2, 6, 6)), RNG.standard_normal((3, 2, 3, 3))
SMALL = RNG.standard_normal((2, 3, 1, 1))


def network() -> Any:
    """Two inputs, a constant, and results of every kind: computed, an input again, a constant."""
    g = ln.Graph()
    x, w = g.input(X.shape, "float64", name="x"), g.input(W.shape, "float64", name="w")
    h = ln.smooth_max_pool(ln.tanh(ln.conv(x, w, padding=1)), 2, beta=2.0)
    g.output(ln.tanh(ln.conv(h, SMALL)), ln.sum(x * x), ln.reshape(x, (4, 36)), g.constant(SMALL))
    return g.compile()


def test_values_and_gradients_are_those_of_the_program() -> None:
    program = network()
    f = program.to_jax()
    own = program(X, W)
    assert all(map(equal, f(X, W), own)) and all(map(equal, jax.jit(f)(X, w=W), own))
    y, pull = jax.vjp(f, X, W)
    again, pullback = program.vjp(X, W)
    g = [np.asarray(v) * 0.5 for v in y]
    assert all(map(equal, y, again)) and all(map(equal, pull(tuple(map(jnp.asarray, g))), pullback(g)))
    _, dy = jax.jvp(f, (X, W), (X, W))
    assert all(map(equal, dy, program.jvp((X, W), (X, W))[1]))


@one_way
def test_derivatives_to_second_order() -> None:
    f = network().to_jax()
    check_grads(jax.jit(lambda x, w: f(x, w)[:2]), (X, W), order=2, eps=1e-4, atol=1e-4, rtol=1e-4)


def test_only_the_gradients_that_are_asked_for_are_computed() -> None:
    f = network().to_jax()
    text = str(jax.make_jaxpr(jax.grad(lambda w: f(X, w)[0].sum()))(jnp.asarray(W)))
    backward = text.rindex("lunette_program[")
    assert "f64[3,2,3,3]" in text[:backward].splitlines()[-1] and "f64[2,2,6,6]" not in text[:backward].splitlines()[-1]


def test_vmap_is_a_loop() -> None:
    f = network().to_jax()
    stack = np.stack([X, 2 * X, -X])
    y = jax.jit(jax.vmap(lambda x: f(x, W)[0]))(stack)
    assert equal(y, np.stack([f(x, W)[0] for x in stack]))
    slope = jax.vmap(jax.grad(lambda x, w: f(x, w)[0].sum(), argnums=1), in_axes=(3, None))(np.moveaxis(stack, 0, 3), W)
    assert equal(slope, np.stack([jax.grad(lambda w, x=x: f(x, w)[0].sum())(W) for x in stack]))


def test_labels_are_integers_of_any_width() -> None:
    g = ln.Graph()
    logits, labels = g.input((4, 3), "float32", name="logits"), g.input((4,), "int64", name="labels")
    g.output(ln.cross_entropy(logits, labels))
    program = g.compile()
    f = program.to_jax()
    z, truth = RNG.standard_normal((4, 3)).astype(np.float32), np.array([0, 2, 1, 1])
    for wide in (True, False):
        jax.config.update("jax_enable_x64", wide)
        value, slope = jax.value_and_grad(f)(z, jnp.asarray(truth))
        assert equal(value, program(z, truth)) and equal(slope, program.vjp(z, truth)[1](np.float32(1))[0])
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(jax.jit(f)(z, jnp.asarray([0, 1, 2, 3])))


def test_programs_are_told_apart() -> None:
    """By all that they do, not by their size: kernels are known by name."""
    x = np.array([-1.5, 2.0])
    makers: list[Any] = [ln.relu, ln.neg, ln.exp, lambda v: v * 2, lambda v: v * 3, lambda v: ln.slice(v, (0,), (1,))]
    for f in [*makers, lambda v: ln.slice(v, (1,), (2,)), lambda v: ln.leaky_relu(v, 0.5), ln.leaky_relu]:
        g = ln.Graph()
        g.output(f(g.input((2,), "float64", name="x")))
        program = g.compile()
        assert equal(program.to_jax()(x), program(x))
        (slope,) = jax.vjp(program.to_jax(), x)[1](jnp.asarray(program(x)))
        assert equal(slope, program.vjp(x)[1](program(x))[0])


def test_refusals_are_those_of_the_program() -> None:
    f = network().to_jax()
    with pytest.raises(ln.DTypeError, match=r"Program \[G9\] needs x of dtype float64; got dtype float32"):
        jax.jit(f)(X.astype(np.float32), W)
    with pytest.raises(ln.ShapeError, match=r"Program \[G9\] needs x of shape \(2, 2, 6, 6\); got shape \(2, 6, 6\)"):
        jax.vmap(f, in_axes=(0, None))(X, W)
    with pytest.raises(ln.ArgumentError, match=r"Program \[G9\] needs the inputs .*; got no w"):
        f(X)
    with pytest.raises(ln.DTypeError, match=r"Program \[D5\] needs arrays on the CPU; got arrays on cuda"):
        jax.jit(f).trace(X, W).lower(lowering_platforms=("cuda",))


def test_debug_programs_look_for_nan() -> None:
    g = ln.Graph()
    g.output(ln.log(g.input((2,), "float32", name="x")))
    f = g.compile(debug=True).to_jax()
    with pytest.raises(jax.errors.JaxRuntimeError, match="G10"):
        jax.block_until_ready(f(np.array([1, -1], np.float32)))


def test_max_pools_are_differentiated_twice_and_without_jit() -> None:
    """The first derivative of a program may keep records of winners, which have no second."""
    g = ln.Graph()
    g.output(ln.sum(ln.max_pool(g.input((1, 1, 4, 4), name="x"), 2) ** 3))
    f = g.compile().to_jax()

    def same(x: Any) -> Any:
        return (jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") ** 3).sum()

    x = jnp.arange(16, dtype=jnp.float32).reshape(1, 1, 4, 4)
    assert (jax.hessian(f)(x) == jax.hessian(same)(x)).all()

    def twice(h: Any) -> Any:
        return jax.grad(lambda x: (jax.grad(h)(x) ** 2).sum())(x)

    assert (twice(f) == twice(same)).all()
    with jax.disable_jit():
        assert f(x) == same(x) and (jax.grad(f)(x) == jax.grad(same)(x)).all()
        assert (lj.max_pool(x, 2) == jnp.array([[5.0, 7.0], [13.0, 15.0]])).all()
