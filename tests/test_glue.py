"""The laws of the operators without a window, for every case of every one, on rationals or balls with ==."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given

import lunette as ln
from lunette.graph.program import Program
from lunette.number import Array, Dual, Interval, each, primal, total
from lunette.op import Case, apply
from lunette.ops import GLUE
from lunette.ops.binary import equal, gate, prefer
from lunette.ops.glue import Glue
from lunette.ops.unary import sign
from test_laws import _two_hundred_bits, all_same, dot, same, seeds  # noqa: F401 (the fixture serves here, too)

CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in GLUE for k, c in kind.cases.items()]
every_case = pytest.mark.parametrize(("kind", "case"), CASES)


def options(kind: type[Glue], case: Case) -> tuple[Any, ...]:
    own = fields(kind)
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


# ---- zeros, infinities and NaN: the specification and the kernels agree, values and derivatives

SPECIAL = [-0.0, 0.0, np.nan, np.inf, -np.inf, 1.0, -1.0]
FUNCTIONS: dict[str, Any] = {
    "relu": ln.relu,
    "abs": ln.abs,
    "neg": ln.neg,
    "sign": sign,
    "sqrt": ln.sqrt,
    "tanh": ln.tanh,
    "exp": ln.exp,
    "log": ln.log,
    "sigmoid": ln.sigmoid,
    **{f"leaky_relu {s}": partial(ln.leaky_relu, slope=s) for s in (0.0, -0.0, 0.5, 1.0, 2.0, -1.0)},
    **{f"power {p}": partial(ln.power, exponent=p) for p in (0, 1, 2, 3, 4, 5, -1, -2, -3, 0.5, 1.5, -0.5)},
}
PAIRS: dict[str, Any] = {
    "add": ln.add,
    "sub": ln.sub,
    "mul": ln.mul,
    "div": ln.div,
    "maximum": ln.maximum,
    "minimum": ln.minimum,
    "equal": equal,
    "gate": gate,
}


def is_alike(got: Any, want: Any) -> bool:
    """Equal but for roundings, with the signs of zeros."""
    a, b = (np.asarray(v, object).astype(float) for v in (got, want))
    zeros = (b == 0) & (a == 0)
    return np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True) and bool((np.signbit(a) == np.signbit(b))[zeros].all())


def readings(*arrays: Array) -> dict[str, Callable[[Any], Any]]:
    """Who computes a function of these arrays besides the kernels, and must agree."""
    return {
        "specification": lambda f: f(*(a.astype(object) for a in arrays)),
        "on numpy's numbers": lambda f: f(*(np.array(list(a), object) for a in arrays)),
        "program": lambda f: ln.jit(f)(*arrays),
        "unfused program": lambda f: Program(ln.trace(f, *arrays), fuse=False)(*arrays),
        "rounded": lambda f: ln.trace(f, *arrays).compile().run(*arrays, arithmetic="rounded"),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_infinities_and_nan(name: str, dtype: Any) -> None:
    f, x = FUNCTIONS[name], np.array(SPECIAL, dtype)
    for who, read in readings(x).items():
        assert is_alike(read(f), f(x)), who
    for t in (1.0, -2.0):
        both = x, np.full_like(x, t)
        push = partial(_slope, f)
        for who, read in readings(*both).items():
            assert is_alike(read(push), push(*both)), who


def _slope(f: Any, x: Any, t: Any) -> Any:
    return ln.jvp(f, (x,), (t,))[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_zeros_infinities_and_nan(name: str, dtype: Any) -> None:
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    f = PAIRS[name]
    for who, read in readings(x, y).items():
        assert is_alike(read(f), f(x, y)), who
    for t in (np.full_like(x, v) for v in (1, -2, np.inf)):
        for who, read in readings(x, y, t).items():
            assert is_alike(read(prefer), prefer(x, y, t)), who


def test_the_special_values_of_relu_power_and_leaky_relu() -> None:
    for x in (np.array(SPECIAL), np.array(SPECIAL, np.float32), np.array(SPECIAL, object)):
        assert is_alike(ln.relu(x), [-0.0, 0, np.nan, np.inf, 0, 1, 0])
        assert is_alike(ln.relu(x), ln.maximum(x, 0))
        assert is_alike(ln.power(x, 0), [1] * 7)
        assert is_alike(ln.leaky_relu(x, 0.0), [-0.0, 0, np.nan, np.inf, np.nan, 1, -0.0])
    assert ln.power([Fraction(1, 2)], 10**3)[0] == Fraction(1, 2**1000)


LOGITS = [[[0, -np.inf]], [[2e38, -2e38]], [[np.inf, 0]], [[0, -1e30]]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logits", LOGITS, ids=str)
def test_what_is_beside_the_label_does_not_count(logits: Any, dtype: Any) -> None:
    x, labels = np.array(logits, dtype), np.array([0])

    def f(v: Any) -> Any:
        return ln.cross_entropy(v, labels)

    graph = ln.trace(f, x)
    program = graph.compile()
    for loss in (f(x), f(x.tolist()), program(x), program.run(x, arithmetic="rounded"), graph.eval(x)):
        assert loss == 0 and not np.signbit(float(loss))
    box = program.run(x, arithmetic="interval")
    assert box.lo <= 0 <= box.hi
    for slope in (ln.grad(f)(x), ln.jit(ln.grad(f))(x), ln.grad(f)(x.astype(object)), program.vjp(x)[1](dtype(1))[0]):
        assert (slope == 0).all()
    for _, t in (ln.jvp(f, (x,), (np.ones_like(x),)), program.jvp((x,), (np.ones_like(x),))):
        assert t == 0


@pytest.mark.parametrize("number", [Fraction, Decimal, flint.fmpq, flint.arb, float])
def test_what_pads_has_the_number_type_of_what_is_padded(number: Callable[[Any], Any]) -> None:
    g = ln.Graph()
    g.output(ln.mul(ln.pad(g.input((1,)), 1, 0.5), ln.pad(g.input((1,)), ((0, 2),), 2)))
    y = g.eval([3], [5], number=number)
    assert {type(v) for v in y} == {type(number(1))} and [float(v) for v in y] == [2.5, 6, 1]


@pytest.mark.parametrize("number", [Fraction, Decimal, flint.fmpq, flint.arb, float])
def test_averages_of_windows_without_cells_mix_with_every_number_type(number: Callable[[Any], Any]) -> None:
    g = ln.Graph()
    x, w = g.input((1, 1)), g.input((1, 1, 1))
    h = ln.avg_pool(ln.conv(x, w, padding=2), (2,), stride=2)  # the first window holds zeros that read no cell
    g.output(h * ln.reshape(w, (1,)) + ln.reshape(w, (1,)))
    y = g.eval([[3]], [[[5]]], number=number)
    assert [float(v) for v in y.flat] == [5, 42.5]
    assert {type(v) for v in y.flat} == {type(number(1))}
