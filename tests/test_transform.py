"""Derivatives of functions: against the specification on rationals, against each other, and nested."""

from __future__ import annotations

import dataclasses
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette.number import Array, Dual, cells_of, each, exact, total
from lunette.ops import ALL, SmoothMaxPool

seeds = st.integers(0, 2**32 - 1)
EXACT = [k for k in ALL if k.needs != "exp"]


def rationals(rng: Any, shape: tuple[int, ...]) -> Array:
    return exact(rng.integers(-3, 4, shape))


def dot(a: Any, b: Any) -> Any:
    return total([p * q for p, q in zip(np.asarray(a, object).flat, np.asarray(b, object).flat, strict=True)])


def network(x: Any, w: Any, v: Any) -> Any:
    """Piecewise linear, so that rationals stay rational."""
    h = ln.relu(ln.conv(x, w, padding=1, stride=2))
    h = ln.max_pool(h, 2, stride=1) + ln.avg_pool(h, 2, stride=1)
    return ln.linear(ln.flatten(h), v) * ln.global_avg_pool(h, keepdims=False)


def arguments(seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rationals(rng, s) for s in ((2, 2, 4, 3), (2, 2, 3, 3), (2, 2)))


@given(seeds)
def test_jvp_of_a_function_is_the_function_on_dual_numbers(seed: int) -> None:
    primals, tangents = arguments(seed), arguments(seed + 1)
    y, dy = ln.jvp(network, primals, tangents)
    on_duals = network(*(each(Dual, p, t) for p, t in zip(primals, tangents, strict=True)))
    assert (y == each(lambda d: Dual.of(d).value, on_duals)).all()
    assert (dy == each(lambda d: Dual.of(d).slope, on_duals)).all()


@given(seeds)
def test_vjp_is_the_adjoint_of_jvp(seed: int) -> None:
    primals, tangents = arguments(seed), arguments(seed + 1)
    y, dy = ln.jvp(network, primals, tangents)
    value, pullback = ln.vjp(network, *primals)
    g = rationals(np.random.default_rng(seed + 2), y.shape)
    assert (value == y).all()
    assert dot(dy, g) == total([dot(t, b) for t, b in zip(tangents, pullback(g), strict=True)])


@given(seeds)
def test_a_tangent_none_is_zero_and_structures_are_kept(seed: int) -> None:
    x, w, v = arguments(seed)
    t = arguments(seed + 1)

    def f(p: Any, x: Any) -> Any:
        return {"out": network(x, p["w"], p["v"]), "same": [x]}

    y, dy = ln.jvp(f, ({"w": w, "v": v}, x), ({"w": t[1], "v": None}, None))
    assert (dy["out"] == ln.jvp(network, (x, w, v), (0 * x, t[1], 0 * v))[1]).all()
    assert (y["same"][0] == x).all() and (np.asarray(dy["same"][0]) == 0).all()


def hessian_case(f: Any, x: Array, seed: int) -> None:
    """Both orders of nesting give the same Hessian-vector product, and the Hessian is symmetric."""
    rng = np.random.default_rng(seed)
    s, t = (rng.standard_normal(x.shape) for _ in range(2))

    def along(v: Array) -> Array:
        return np.asarray(ln.jvp(ln.grad(f), (x,), (v,))[1])

    forward_over_reverse = along(s)
    reverse_over_forward = ln.grad(lambda y: ln.jvp(f, (y,), (s,))[1])(x)
    reverse_over_reverse = ln.grad(lambda y: ln.sum(ln.grad(f)(y) * s))(x)
    scale = 1e-9 * (1 + np.abs(forward_over_reverse).max())
    assert np.abs(forward_over_reverse - reverse_over_forward).max() <= scale
    assert np.abs(forward_over_reverse - reverse_over_reverse).max() <= scale
    assert abs(np.sum(t * along(s)) - np.sum(s * along(t))) <= scale * x.size
    h = 2.0**-13
    slope = (ln.grad(f)(x + h * s) - ln.grad(f)(x - h * s)) / (2 * h)
    # Cutting the series costs h*h times the third derivative, rounding 2**-52/h.
    assert np.abs(slope - forward_over_reverse).max() <= 1e-4 * (1 + np.abs(slope).max())


@pytest.mark.parametrize(
    "f",
    [
        pytest.param(lambda x: ln.sum(ln.smooth_max_pool(x, 2, beta=1.5, stride=1) ** 2), id="smooth_max_pool"),
        pytest.param(
            lambda x: ln.sum(ln.smooth_max_pool(x, 3, beta=-0.7, stride=2, padding=1) ** 2), id="smooth_padded"
        ),
        pytest.param(lambda x: ln.sum(ln.lp_pool(x, 2, p=3, stride=1) ** 2), id="lp_pool_3"),
        pytest.param(lambda x: ln.sum(ln.lp_pool(x, 2) ** 3), id="lp_pool_2"),
        pytest.param(lambda x: ln.sum(ln.lp_pool(x, 1, p=3, padding=1) ** 2), id="lp_pool_of_no_cells"),
        pytest.param(lambda x: ln.sum(ln.max_pool(x, 2, stride=1) ** 2), id="max_pool"),
        pytest.param(lambda x: ln.sum(ln.conv(x, ln.reshape(ln.sum(x, (0, 2, 3)), (1, 2, 1, 1))) ** 2), id="conv"),
        pytest.param(lambda x: ln.sum(ln.softmax(ln.flatten(x)) * ln.tanh(ln.flatten(x))), id="softmax"),
        pytest.param(lambda x: ln.sum(ln.sigmoid(x) * ln.exp(x) / (1 + ln.abs(x))), id="elementwise"),
        pytest.param(lambda x: ln.sum(ln.max(x, axis=1) ** 2) + ln.mean(ln.log(1 + x * x)), id="reductions"),
        pytest.param(lambda x: ln.sum((ln.flatten(x) @ ln.transpose(ln.flatten(x))) ** 2), id="matmul"),
    ],
)
@given(seeds)
def test_second_derivatives(f: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Cells far from each other and from zero: differences do not step over the kinks of maxima and of abs.
    x = (rng.permutation(64) - 31.5 + rng.uniform(-0.25, 0.25, 64)) / 16
    hessian_case(f, x.reshape(2, 2, 4, 4), seed + 1)


@given(seeds)
def test_second_derivatives_in_beta(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 2, 5))

    def f(beta: Any) -> Any:
        return ln.sum(ln.smooth_max_pool(x, 3, beta=beta, stride=1, spatial=1) ** 2)

    beta, h = np.array(1.25), 2.0**-13
    bend = ln.grad(ln.grad(f))(beta)
    slope = (ln.grad(f)(beta + h) - ln.grad(f)(beta - h)) / (2 * h)
    assert abs(bend - slope) <= 1e-4 * (1 + abs(slope))

    def bent(x: Any, b: Any) -> Any:
        return ln.sum(ln.smooth_max_pool(x, 3, beta=b, stride=1, spatial=1) ** 2)

    mixed = ln.jvp(
        ln.grad(bent),
        (x, beta),
        (None, np.array(1.0)),
    )[1]
    over = ln.grad(
        lambda y: ln.jvp(
            lambda b: ln.sum(ln.smooth_max_pool(y, 3, beta=b, stride=1, spatial=1) ** 2), (beta,), (np.array(1.0),)
        )[1]
    )(x)
    assert np.abs(mixed - over).max() <= 1e-9 * (1 + np.abs(over).max())


def test_perturbations_are_not_confused() -> None:
    def f(x: Any) -> Any:
        return x * ln.jvp(lambda y: x + y, (np.array(1.0),), (np.array(1.0),))[1]

    assert ln.jvp(f, (np.array(2.0),), (np.array(1.0),))[1] == 1.0


def test_third_derivatives_by_nesting() -> None:
    def cube(x: Any) -> Any:
        return x**3

    assert ln.grad(ln.grad(ln.grad(cube)))(np.array(5.0)) == 6.0


def test_a_long_chain_is_linear_in_its_length() -> None:
    def chain(n: int) -> Any:
        def f(x: Any) -> Any:
            for _ in range(n):
                x = ln.relu(x)
            return ln.sum(x)

        return f

    x = np.ones(4)
    for n in (1000, 4000):
        assert (ln.grad(chain(n))(x) == 1).all()
        assert ln.jvp(chain(n), (x,), (x,))[1] == 4
    graph = ln.trace(chain(16_000), x)
    assert len(graph.nodes) == 16_002
    start = time.perf_counter()
    program = graph.compile()
    y, pullback = program.vjp(x)
    assert y == 4 and (pullback(np.ones(()))[0] == 1).all()
    assert time.perf_counter() - start < 60  # quadratic cost would take minutes; benchmarks measure


def test_aux_argnums_and_dtype() -> None:
    def f(a: Any, b: Any) -> Any:
        return ln.sum(a * b), {"aux": a + b}

    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    (value, aux), (ga, gb) = ln.value_and_grad(f, argnums=(0, -1), has_aux=True)(a, b)
    assert value == 11 and (ga == b).all() and (gb == a).all() and ga.dtype == np.float32
    assert type(aux["aux"]) is np.ndarray and (aux["aux"] == a + b).all()
    g, aux = ln.grad(f, has_aux=True)(a, b)
    assert (g == b).all() and (aux["aux"] == a + b).all()


def test_rationals_through_jit_run_the_specification() -> None:
    f = ln.jit(lambda x: ln.avg_pool(x, 2, spatial=1))
    assert f(exact([[1, 2, 4]])).tolist() == [[Fraction(3, 2)]]


@pytest.mark.parametrize("arithmetic", ["fast", "rounded"])
@pytest.mark.parametrize("kind", [k for k in ALL if not issubclass(k, SmoothMaxPool)], ids=lambda k: k.name)
def test_derivatives_of_one_operator_are_its_own(kind: Any, arithmetic: str) -> None:
    case = next(iter(kind.cases.values()))
    options = {**case.options, "arithmetic": arithmetic}
    rng = np.random.default_rng(0)
    single = np.float32 if arithmetic == "rounded" else np.float64
    arrays = [rng.standard_normal(s).astype(single) for s in ((2, *case.shapes[0]), *case.shapes[1:])]
    run = getattr(ln, kind.name)
    y, pullback = ln.vjp(lambda *a: run(*a, **options), *arrays)
    g = rng.standard_normal(y.shape).astype(single)
    for mine, own in zip(pullback(g), getattr(ln, f"{kind.name}_vjp")(tuple(arrays), g, **options), strict=True):
        assert (mine == own).all()
    tangents = (rng.standard_normal(arrays[0].shape).astype(single), *(None for _ in arrays[1:]))
    slope = ln.jvp(lambda *a: run(*a, **options), arrays, tangents)[1]
    assert (slope == getattr(ln, f"{kind.name}_jvp")(tuple(arrays), tangents, **options)).all()


def separate(*arrays: Any) -> bool:
    return not any(np.shares_memory(a, b) for at, a in enumerate(arrays) for b in arrays[:at])


def test_results_of_transformations_are_fresh() -> None:
    a, b = np.ones(3), np.full(3, 2.0)
    r = ln.grad(lambda p: ln.sum(p["a"] + p["b"]))({"a": a, "b": b})
    assert separate(a, b, r["a"], r["b"])
    y, pullback = ln.vjp(lambda a, b: a + b, a, b)
    g = np.ones(3)
    assert separate(g, a, b, y, *pullback(g), *pullback(g))
    assert separate(a, b, *ln.jvp(lambda x: x + 1, (a,), (b,)))
    values, slopes = ln.jvp(lambda x: (x, x, x + 1), (a,), (b,))
    assert separate(a, b, *values, *slopes)
    (value, aux), gradient = ln.value_and_grad(lambda x: (ln.sum(x), (x, x)), has_aux=True)(a)
    assert value == 3 and separate(a, *aux, gradient)
    same, pullback = ln.vjp(lambda x: x, a)
    assert separate(a, same) and (pullback(g)[0] == g).all()
    torch = pytest.importorskip("torch")
    x = torch.ones(3)
    for t in (ln.vjp(lambda x: x + x, x)[1](x)[0], ln.vjp(lambda x: x + 1, x)[1](x)[0]):
        assert isinstance(t, torch.Tensor) and t.data_ptr() != x.data_ptr()


def test_a_number_as_tangent_or_cotangent_takes_the_dtype() -> None:
    x, w = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 2), np.float32)
    functions: list[Any] = [lambda x: ln.sum(ln.conv(x, w)), ln.sum, lambda x: ln.mean(ln.relu(x))]
    for f in functions:
        y, pullback = ln.vjp(f, x)
        ones = pullback(np.ones_like(y))[0]
        for one in (1, 1.0, np.float32(1), np.float64(1), Fraction(1)):
            (back,) = pullback(one)
            assert back.dtype == np.float32 and (back == ones).all()
    y, dy = ln.jvp(lambda x: x * x, (np.float32(3),), (1.0,))
    assert dy == 6 and dy.dtype == np.float32
    for t in (1.0, 1, np.array(1.0), np.float64(1)):
        assert ln.jvp(lambda x: x * x, (2.0,), (t,))[1] == 4
    y, pullback = ln.trace(ln.sum, x).compile().vjp(x)
    assert y == 3 and (pullback(1.0)[0] == 1).all()
    assert ln.vjp(ln.sum, exact([1, 2]))[1](Fraction(1, 2))[0].tolist() == [Fraction(1, 2)] * 2


def test_boxes_are_not_differentiated_as_numbers() -> None:
    with pytest.raises(ln.DTypeError, match=r"T2.*Interval"):
        ln.grad(lambda x: ln.sum(x))(ln.Interval(np.zeros(2), np.ones(2)))


def test_second_derivatives_of_a_norm_of_zeros_are_zero() -> None:
    """As the first one is said to be; division by zero raises for some numbers, and is NaN for others."""
    for number in (float, Decimal, flint.arb):
        x, t, g = (cells_of([[[number(v) for v in row]]]) for row in ((0, 0, 1), (1, 2, 1), (1, 1)))

        def norm(x: Any) -> Any:
            return ln.lp_pool(x, (2,), p=3, stride=1)

        for once in (lambda x, t=t, f=norm: ln.jvp(f, (x,), (t,))[1], lambda x, g=g, f=norm: ln.vjp(f, x)[1](g)[0]):
            assert all(v == 0 for v in ln.jvp(once, (x,), (t,))[1].flat)


# ---- classes that JAX knows


def test_registered_dataclasses_are_structures_of_arguments() -> None:
    jax = pytest.importorskip("jax")

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Weights:
        w: Any
        b: Any
        stride: int = dataclasses.field(metadata={"static": True}, default=1)

    def loss(p: Weights, x: Any) -> Any:
        return ln.sum(ln.relu(ln.conv(x, p.w, p.b, stride=p.stride)))

    rng = np.random.default_rng(0)
    x, fast = rng.standard_normal((1, 1, 9)), ln.jit(loss)
    for stride in (1, 2):
        p = Weights(rng.standard_normal((2, 1, 3)), np.zeros(2), stride)
        assert fast(p, x) == loss(p, x)
        gradient = ln.grad(loss)(p, x)
        again = ln.jit(ln.grad(loss))(p, x)
        assert isinstance(gradient, Weights) and gradient.stride == stride and isinstance(again, Weights)
        np.testing.assert_array_equal(gradient.w, again.w)
        plain = ln.grad(lambda w, s=stride, q=p: ln.sum(ln.relu(ln.conv(x, w, q.b, stride=s))))(p.w)
        np.testing.assert_array_equal(gradient.w, plain)
    assert len(fast.programs) == 2  # what is static is part of the structure


def test_equinox_modules_are_structures_of_arguments() -> None:
    jax, eqx = pytest.importorskip("jax"), pytest.importorskip("equinox")
    layer = eqx.nn.Conv1d(1, 2, 3, key=jax.random.key(0))
    x = np.ones((1, 1, 5), np.float32)
    gradient = ln.grad(lambda m: ln.sum(ln.conv(x, m.weight, ln.reshape(m.bias, (2,)))))(layer)
    assert type(gradient) is type(layer) and np.asarray(gradient.weight).shape == (2, 1, 3)


def test_the_fast_lane_of_jit_is_for_dense_arrays_like_those_before() -> None:
    f = ln.jit(lambda x: ln.relu(x))
    x = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    first = f(x)
    assert list(f.lanes) == [((x.shape, x.dtype),)]
    assert np.array_equal(f(x), first) and f(x) is not first
    assert np.array_equal(f(x.T), first.T) and f(x.astype(np.float64)).dtype == np.float64
    pooled = ln.jit(lambda x, beta: ln.smooth_max_pool(x, 2, beta=beta, spatial=1))
    pooled(x, np.asarray(1, np.float32))
    assert pooled.lanes
    with pytest.raises(ln.LunetteError, match="S1"):  # in the words of the operator
        pooled(x, np.asarray(0, np.float32))
    assert not ln.jit(lambda x: x).lanes and np.array_equal(ln.jit(lambda x: x)(x), x)


def test_jit_has_no_fast_lanes_where_it_must_tell_who_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lunette.graph.jit.MOST_PROGRAMS", 4)
    f = ln.jit(lambda x: ln.relu(x))
    for n in range(1, 7):
        f(np.zeros(n, np.float32))
        f(np.zeros(1, np.float32))
        assert len(f.programs) <= 4 and len(f.lanes) <= 2
    assert any(key[2] == (((1,), np.dtype(np.float32)),) for key in f.programs)  # used again and again
