"""Graphs: the same meaning on rationals, on kernels, fused and not, as text and from a file."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
import re
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lunette as ln
from lunette.graph.check import check
from lunette.graph.derive import replay
from lunette.graph.program import Program
from lunette.graph.text import kinds, named_constants, options_of
from lunette.number import Array, cells_of, each

seeds = st.integers(0, 2**32 - 1)


# ---- random graphs


class Builder:
    """Random well-typed steps. Whole numbers and divisors that are powers of two: floats compute these exactly."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = ln.Graph()
        space = tuple(int(n) for n in self.rng.integers(2, 6, int(self.rng.integers(1, 4))))
        self.x = self.graph.input((2, 2, *space), dtype="float64", name="x")
        self.y = self.graph.input((2, 2, *space), dtype="float64", name="y")
        self.made = [self.x, self.y]

    def whole(self, shape: tuple[int, ...]) -> Array:
        return self.rng.integers(-2, 3, shape).astype(np.float64)

    def step(self) -> None:
        rng = self.rng
        v = self.made[int(rng.integers(len(self.made)))]
        spatial = v.ndim - 2
        room = spatial >= 1 and min(v.shape[2:], default=0) >= 2
        choices = ["relu", "neg", "abs", "add", "sub", "maximum", "scale", "shift", "leaky", "slice", "pad", "concat"]
        choices += ["reshape", "sum", "max", "transpose", "square", "stop"]
        choices += (
            ["conv", "conv_strided", "max_pool", "avg_pool", "up", "adaptive", "global", "linear"] * 2 if room else []
        )
        kind = choices[int(rng.integers(len(choices)))]
        like = [o for o in self.made if o.shape == v.shape]
        other = like[int(rng.integers(len(like)))]
        channels = v.shape[1] if v.ndim > 1 else 1
        match kind:
            case "relu":
                out = ln.relu(v)
            case "neg":
                out = -v
            case "abs":
                out = ln.abs(v)
            case "add":
                out = v + other
            case "sub":
                out = v - other
            case "maximum":
                out = ln.maximum(v, other)
            case "scale":
                out = v * self.whole((channels, *(1,) * spatial)) if spatial >= 0 else v * 2
            case "shift":
                out = v + self.whole((channels, *(1,) * spatial)) if spatial >= 0 else v + 1
            case "leaky":
                out = ln.leaky_relu(v, 0.25)
            case "slice":
                out = ln.slice(v, (0,) * v.ndim, v.shape, tuple(2 if n > 2 else 1 for n in v.shape))
            case "pad":
                out = ln.pad(v, ((0, 0), *((1, 0),) * (v.ndim - 1)) if v.ndim else (), 1)
            case "concat":
                out = ln.concat([v, other], v.ndim - 1) if v.ndim else v + v
            case "reshape":
                out = ln.reshape(v, (-1, *v.shape[1:])) if 0 not in v.shape else v + v
            case "sum":
                out = ln.sum(v, axis=v.ndim - 1, keepdims=True) if v.ndim else v + v
            case "max":
                out = ln.max(v, axis=0, keepdims=True) if v.ndim else v + v
            case "transpose":
                out = ln.transpose(v)
            case "square":
                out = ln.minimum(v, 3) * ln.maximum(ln.minimum(other, 2), -2)
            case "stop":
                out = ln.stop_gradient(v)
            case "conv":
                out = ln.conv(v, self.whole((2, channels, *(2,) * spatial)), self.whole((2,)), padding="same")
            case "conv_strided":
                out = ln.conv(v, self.whole((channels, 1, *(1,) * spatial)), stride=2, groups=channels)
            case "up":
                out = ln.conv_transpose(v, self.whole((channels, 1, *(2,) * spatial)), stride=2)
            case "max_pool":
                out = ln.max_pool(v, (2,) * spatial, stride=1, ties=("first", "split")[int(rng.integers(2))])
            case "avg_pool":
                out = ln.avg_pool(v, (2,) * spatial, stride=1, padding=1)
            case "adaptive":
                out = ln.adaptive_max_pool(v, (2,) * spatial)
            case "global":
                out = ln.global_max_pool(v, spatial=spatial, ties="split")
            case _:
                out = ln.linear(v, self.whole((3, v.shape[-1])), self.whole((3,)))
        if np.prod(out.shape) <= 600:
            self.made.append(out)


def random_graph(seed: int) -> ln.Graph:
    b = Builder(seed)
    for _ in range(int(b.rng.integers(1, 9))):
        b.step()
    b.graph.output(b.made[-1])
    if seed % 3 == 0:
        b.graph.output(b.made[int(b.rng.integers(len(b.made)))])
    return b.graph


def inputs(graph: ln.Graph, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, n.shape).astype(np.float64) for n in graph.inputs]


def exactly(a: Array) -> Array:
    return each(Fraction, cells_of(a))


def several(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


def equal(floats: Any, rationals: Any) -> bool:
    """Every float is the rational, where the rational is a float."""
    return all(
        f.shape == r.shape
        and all(float(q) == p or Fraction(float(q)) != q for p, q in zip(f.flat, r.flat, strict=True))
        for f, r in zip(several(floats), several(rationals), strict=True)
    )


@given(seeds)
def test_a_program_is_the_specification(seed: int) -> None:
    graph = random_graph(seed)
    check(graph)
    x = inputs(graph, seed)
    exact = graph.eval(*map(exactly, x), number=Fraction)
    for fuse in (True, False):
        assert equal(Program(graph, fuse=fuse)(*x), exact)
    on_rationals = replay(graph, [exactly(a) for a in x], Fraction)
    assert all((p == q).all() for p, q in zip(on_rationals, several(exact), strict=True))


@given(seeds)
@example(33)  # the record of a pool whose value nobody reads
def test_derivatives_of_programs_are_those_of_the_specification(seed: int) -> None:
    graph = random_graph(seed)
    x, t = inputs(graph, seed), inputs(graph, seed + 1)
    exact_x, exact_t = [exactly(a) for a in x], [exactly(a) for a in t]

    def f(*values: Any) -> list[Any]:
        return replay(graph, values, Fraction)

    _, slopes = ln.jvp(f, exact_x, exact_t)
    values, pullback = ln.vjp(f, *exact_x)
    rng = np.random.default_rng(seed + 2)
    g = [rng.integers(-3, 4, v.shape).astype(np.float64) for v in values]
    back = pullback([exactly(a) for a in g])
    left = sum((np.asarray(s * exactly(h), object).sum() for s, h in zip(slopes, g, strict=True)), Fraction(0))
    right = sum((np.asarray(b * d, object).sum() for b, d in zip(back, exact_t, strict=True)), Fraction(0))
    assert left == right
    for fuse in (True, False):
        program = Program(graph, fuse=fuse)
        _, dy = program.jvp(x, t)
        assert equal(dy, tuple(slopes) if isinstance(dy, tuple) else slopes[0])
        _, back_of = program.vjp(*x)
        assert equal(back_of(tuple(g) if len(g) > 1 else g[0]), back)


@given(seeds)
def test_a_graph_and_its_copies_agree_bit_for_bit(seed: int) -> None:
    graph = random_graph(seed)
    x = [a * np.float64(0.1) for a in inputs(graph, seed)]
    again = ln.Graph.parse(str(graph), named_constants(graph))
    assert str(again) == str(graph)
    for other in (again, pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        for p, q in zip(several(graph.compile()(*x)), several(other.compile()(*x)), strict=True):
            assert p.tobytes() == q.tobytes()


@given(seeds)
def test_saved_and_loaded(seed: int) -> None:
    import tempfile

    graph = random_graph(seed)
    x = inputs(graph, seed)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "g.json")
        again = ln.load(Path(folder) / "g.json")
    assert str(again) == str(graph)
    for p, q in zip(several(graph.compile()(*x)), several(again.compile()(*x)), strict=True):
        assert p.tobytes() == q.tobytes()


# ---- plans keep the meaning


def scaled(x: Any, w: Any, b: Any, *factors: Any) -> Any:
    """conv, * scale, + shift, * scale, ..."""
    y = ln.conv(x, w, b)
    for at, f in enumerate(factors):
        y = ln.add(y, f) if at % 2 else ln.mul(y, f)
    return y


def convolution(w: list[float], b: float | None, *factors: float) -> Any:
    """A function of x, for one channel."""
    own = np.array([[w]], np.float32), None if b is None else np.array([b], np.float32)
    return lambda x: scaled(x, *own, *(np.array([[f]], np.float32) for f in factors))


@pytest.mark.parametrize(
    ("w", "b", "factors", "x"),
    [
        ([1e20], None, [1e20], [1e-20, 0]),
        ([1e-30], None, [1e-30], [1e38, 0]),
        ([1e-38], None, [0.1], [1e38, 3e38]),  # a weight that would lose its last digits, were it scaled
        ([1, 1], None, [2], [2e38, -2e38]),  # partial sums that would overflow, were weights scaled
        ([1, 1], 2e38, [1, 3e38], [-3e38, 0]),  # a bias that would, with the shift
        ([1, -1], None, [-2], [3, 3]),  # (+0) * (-2)
        ([1, 1], None, [0], [-1, -1]),
        ([1, 1], 0, [-1, -0.0], [0, 0]),
        ([1], None, [float("inf")], [1, 0]),
        ([1], None, [2, -3e38], [3e38, 1]),  # a product that overflows, as it does by itself
        ([0.25, -0.25], 0.5, [2, 1, 0.5, 3], [3e38, -3e38]),
    ],
)
def test_a_scale_behind_a_convolution_changes_nothing_else(
    w: list[float], b: float | None, factors: list[float], x: list[float]
) -> None:
    f, given_x = convolution(w, b, *factors), np.array([x], np.float32)
    want, got = f(given_x), ln.jit(f)(given_x)
    assert np.allclose(got, want, rtol=1e-6, atol=0, equal_nan=True)
    assert (np.signbit(got) == np.signbit(want))[want == 0].all()


def steps(f: Any, x: Array) -> list[str]:
    return [n.text.split("(")[0] + n.text[n.text.index(")") + 1 :] for n in ln.trace(f, x).compile().stats().nodes]


def test_a_scale_and_a_shift_are_part_of_the_convolution() -> None:
    x = np.ones((1, 4), np.float32)
    for factors in ([0.5], [0.5, 1], [-0.5, 1], [0, 1], [2], [-0.0], [-0.5, 0], [1e-38, -0.0]):
        assert len(steps(convolution([1, 2], 3, *factors), x)) == 1, factors
        assert len(steps(convolution([1, 2], None, *factors), x)) == 1, factors
    for factors in ([1, -1, 0.5], [2, 3, 0.5, -1]):  # the second pair is a pass of its own
        assert len(steps(convolution([1, 2], 3, *factors), x)) == 2, factors


def test_a_normalised_convolution_is_one_step_within_the_bound_of_its_roundings() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 3, 9, 9)).astype(np.float32), rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    mean, shift, b = (rng.standard_normal(4).astype(np.float32) for _ in range(3))
    var, scale = rng.uniform(1, 2, 4).astype(np.float32), rng.uniform(-3, 3, 4).astype(np.float32)
    y = rng.standard_normal((3, 4, 9, 9)).astype(np.float32)

    def layer(x: Any, y: Any) -> Any:
        return ln.relu(ln.batch_norm(ln.conv(x, w, b, padding=1), mean, var, scale, shift) + y)

    assert len(steps(lambda x: layer(x, y), x)) == 1
    wide: list[Any] = [a.astype(np.float64) for a in (x, w, b, mean, var, scale, shift, y)]
    exact = np.maximum(ln.batch_norm(ln.conv(*wide[:3], padding=1), *wide[3:7]) + wide[7], 0)
    factor = (abs(wide[5]) / np.sqrt(wide[4] + 1e-5))[:, None, None]
    size = (ln.conv(*map(abs, wide[:3]), padding=1) + abs(wide[3])[:, None, None]) * factor
    size += abs(wide[6])[:, None, None] + abs(y)
    assert (abs(ln.jit(layer)(x, y) - exact) <= (30 + 7) * 2.0**-24 * size).all()


def test_a_scale_with_an_axis_of_its_own_adds_an_axis() -> None:
    x, w = np.ones((3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    for op in (ln.mul, ln.add):
        for s in (np.ones((1, 4, 1, 1), np.float32), np.ones((2, 4, 1, 1), np.float32)):

            def f(x: Any, op: Any = op, s: Any = s) -> Any:
                return op(ln.conv(x, w), s)

            assert ln.jit(f)(x).shape == f(x).shape == (s.shape[0], 4, 6, 6)


HARSH = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e20, 1e-20, 1e-30, -1e-30, 1e-40]


def harsh_layer(rng: np.random.Generator) -> tuple[Any, list[Array]]:
    """A convolution and what a plan may join to it, with special values among weights, factors and cells."""
    d, transposed, constant = int(rng.integers(0, 3)), rng.random() < 0.3, rng.random() < 0.7
    channels, out = (int(rng.integers(rng.random() < 0.9, 4)) for _ in range(2))
    space, kernel = (tuple(int(n) for n in rng.integers(1, top, d)) for top in (6, 3))

    def cells(*shape: int) -> Array:
        return rng.choice(np.array(HARSH[: int(rng.choice((7, 7, len(HARSH))))], np.float32), shape)

    w = cells(*((channels, out) if transposed else (out, channels)), *kernel)
    b = cells(out) if rng.random() < 0.5 else None
    options: dict[str, Any] = {"stride": int(rng.integers(1, 4)), "padding": int(rng.integers(0, 3))}
    kinds = [["mul", "add", "relu", "max_pool", "leaky"][int(rng.integers(5))] for _ in range(int(rng.integers(1, 4)))]
    factors = [cells(*((1,) if rng.random() < 0.5 else ()), out, *(1,) * d) for _ in kinds]

    def f(x: Any, *given: Any) -> Any:
        y = (ln.conv_transpose if transposed else ln.conv)(x, w, b, **options)
        for kind, factor in zip(kinds, factors if constant else given, strict=True):
            match kind:
                case "mul":
                    y = ln.mul(y, factor)
                case "add":
                    y = ln.add(factor, y)
                case "relu":
                    y = ln.relu(y)
                case "leaky":
                    y = ln.add(ln.leaky_relu(y, 0.0), ln.leaky_relu(y, -0.0))
                case _:
                    y = ln.max_pool(ln.relu(y), tuple(min(2, n) for n in y.shape[y.ndim - d :]), stride=1)
        return y

    return f, [cells(*(((), (1,), (2,))[int(rng.integers(3))]), channels, *space), *([] if constant else factors)]


@given(seeds)
def test_a_plan_changes_no_shape_no_sign_of_a_zero_and_makes_no_infinity(seed: int) -> None:
    f, arrays = harsh_layer(np.random.default_rng(seed))
    try:
        want = f(*arrays)
    except ln.LunetteError:  # a window larger than its input
        return
    for fuse in (True, False):
        got = Program(ln.trace(f, *arrays), fuse=fuse)(*arrays)
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.isfinite(got[np.isfinite(want)]).all()
        zeros = (got == 0) & (want == 0)
        assert (np.signbit(got) == np.signbit(want))[zeros].all()


def test_a_scale_and_a_shift_in_one_pass_are_the_two_operators() -> None:
    for dtype in (np.float32, np.float64):
        values = np.array(HARSH, dtype)
        x, scale, shift = (a.ravel() for a in np.meshgrid(values, values, values))
        wide = np.ascontiguousarray(np.broadcast_to(x[:, None], (2, x.size, 3)))
        arrays = wide, scale[:, None].copy(), shift[:, None].copy()

        def f(x: Any, s: Any, t: Any) -> Any:
            return ln.relu(ln.add(ln.mul(x, s), t)), ln.add(t, ln.mul(s, x))

        assert len(ln.trace(lambda *v: f(*v)[0], *arrays).compile().stats().nodes) == 1
        for at in range(2):
            got, want = ln.jit(lambda *v, at=at: f(*v)[at])(*arrays), f(*arrays)[at]
            assert np.array_equal(got, want, equal_nan=True)
            assert (np.signbit(got) == np.signbit(want))[want == 0].all()


def test_equal_nodes_are_equal_bit_by_bit() -> None:
    x = np.array([-1.0, 1.0])

    def f(x: Any) -> Any:
        pads = [ln.pad(x, ((0, 1),), v) for v in (0.0, -0.0)]
        return (ln.leaky_relu(x, 0.0), ln.leaky_relu(x, -0.0), *pads)

    for got, want in zip(ln.jit(f)(x), f(x), strict=True):
        assert got.tobytes() == want.tobytes()
    assert [np.signbit(v[2]) for v in f(x.astype(object).tolist())[2:]] == [False, True]
    graph, zero = ln.Graph(), np.zeros(20)
    v = graph.input((20,), "float64")
    graph.output(ln.div(v, zero))
    zero *= -1
    graph.output(ln.div(v, zero))
    positive, negative = graph.compile()(np.ones(20))
    assert (positive == np.inf).all() and (negative == -np.inf).all()


# ---- texts that lunette did not write

HEAD = '%0 : f32[2,2] = input("x")\n%1 : i64[2] = input("labels")\n'
WRONG = [
    "%2 : f32[2,2] = add(%0, 1)\nreturn %2",
    "%2 : f32[2,2] = add(%0, None)\nreturn %2",
    "%2 : f32[2,2] = add(%0, %0, %0)\nreturn %2",
    "%2 : f32[2,2] = add(%0)\nreturn %2",
    "%2 : f32[2,2] = relu(v0)\nreturn %2",
    "%2 : f32[2,2] = relu(%0)(%0)\nreturn %2",
    "%2 : f32[2,2] = leaky_relu(%0, slope=1, slope=2)\nreturn %2",
    "%2 : f32[2,2] = leaky_relu(%0, **{})\nreturn %2",
    "%2 : f32[2,2] = leaky_relu(%0, slope={[1]})\nreturn %2",
    f"%2 : f32[2,2] = power(%0, exponent={10**400})\nreturn %2",
    "%2 : f32[2,2] = max_pool_vjp_x(%0, kernel=2)\nreturn %2",
    "%2 : f32[2,2] = max_pool_jvp(%0, kernel=(1,))\nreturn %2",
    "%2 : f32[2,2] = conv_vjp_b(%0, %0, None, %0)\nreturn %2",
    "%2 : f32[2,2] = concat()\nreturn %2",
    "%2 : f32[2,2] = broadcast_to(%0, to=2)\nreturn %2",
    "%2 : f32[2,2] = transpose(%0, axes=1)\nreturn %2",
    '%2 : f32[2,2] = one_hot(%1, classes=2, dtype="zzz")\nreturn %2',
    '%2 : f32[2,2] = one_hot(%1, classes=-1, dtype="float32")\nreturn %2',
    "%2 : i64[1] = constant([1.5])\nreturn %2",
    "%2 : i64[1] = constant([None])\nreturn %2",
    f"%2 : i64[1] = constant([{2**63}])\nreturn %2",
    "%2 : f32[1] = constant({1: 2})\nreturn %2",
    "%2 : f32[1] = constant([1j])\nreturn %2",
    "%2 : f32[1] = constant([True])\nreturn %2",
    "%2 : f32[2] = constant((1, 2))\nreturn %2",
    "%2 : f32[2,2] = constant([[1, 2], [3]])\nreturn %2",
    f"%2 : f32[1] = constant({'[' * 60}{']' * 60})\nreturn %2",
    "%2 : f32[1] = input(None)\nreturn %2",
    "%2 : f32[1,,2] = input('y')\nreturn %2",
    f"%2 : f32[{'9' * 5000}] = input('y')\nreturn %2",
    f"%{'9' * 5000} : f32[1] = input('y')\nreturn %2",
    f"%2 : f32[2,2] = relu(%{'9' * 5000})\nreturn %2",
    f"return %{'9' * 5000}",
    "return%0",
    "return %0 %1",
    "return %\u0660",
    "%2 : f32[2,2] = relu(\x00)\nreturn %2",
    "%2 : f32[2,2] = relu(%0, a='\ud800')\nreturn %2",
]


@pytest.mark.parametrize("text", WRONG, ids=[str(at) for at in range(len(WRONG))])
def test_a_text_is_refused_by_a_rule(text: str) -> None:
    with pytest.raises(ln.LunetteError) as caught:
        ln.Graph.parse(HEAD + text)
    assert len(str(caught.value)) < 400


def test_what_a_text_says() -> None:
    graph = ln.Graph.parse(
        "%0 : f32[2,3] = constant([[1, None, 1e999], [-0.0, 0.1, -1e999]])\n"
        "%1 : i64[2] = constant([1, -2])\n"
        "return %0, %1"
    )
    floats, whole = (n.value for n in graph.nodes)
    assert floats is not None and whole is not None
    wanted = np.array([[1, np.nan, np.inf], [-0.0, 0.1, -np.inf]], np.float32)
    assert np.array_equal(floats, wanted, equal_nan=True) and np.signbit(floats[1, 0])
    assert whole.tolist() == [1, -2] and whole.dtype == np.int64
    for constants in ([1], {"c0": [1.0]}, {"c0": np.ones(1)}):
        with pytest.raises(ln.LunetteError):
            ln.Graph.parse('%0 : f32[1] = constant("c0")\nreturn %0', constants)  # type: ignore[arg-type]


def odd_graphs() -> dict[str, ln.Graph]:
    """Graphs that were not what their texts said."""
    made = {n: ln.Graph() for n in ("joined alone", "without outputs", "nothing", "no cells", "a zero", "derivatives")}
    one = made["joined alone"].input((2, 3))
    made["joined alone"].output(ln.concat([one], 0))
    ln.relu(made["without outputs"].input((2,)))
    made["no cells"].output(made["no cells"].constant(np.zeros((2, 0, 3))))
    zero = made["a zero"].input((2,))
    made["a zero"].output(ln.pad(ln.leaky_relu(zero, -0.0), 1, -0.0), made["a zero"].constant(np.array([-0.0, np.nan])))
    x, w = made["derivatives"].input((1, 1, 4)), made["derivatives"].input((1, 1, 2))
    y, pullback = ln.vjp(lambda x, w: ln.lp_pool(ln.conv(x, w), 2, p=np.inf, spatial=1), x, w)
    made["derivatives"].output(y, *pullback(y))
    return made


@pytest.mark.parametrize("name", odd_graphs())
def test_odd_graphs_survive_text_pickle_copies_and_files(name: str, tmp_path: Path) -> None:
    graph = odd_graphs()[name]
    graph.save(tmp_path / "g")
    copies = (
        ln.Graph.parse(str(graph)),
        pickle.loads(pickle.dumps(graph)),
        copy.deepcopy(graph),
        ln.load(tmp_path / "g"),
    )
    x = [np.linspace(-1, 1, int(np.prod(n.shape)), dtype=n.dtype).reshape(n.shape) for n in graph.inputs]
    for other in copies:
        assert str(other) == str(graph)
        if graph.outputs:
            for p, q in zip(several(graph.compile()(*x)), several(other.compile()(*x)), strict=True):
                assert p.tobytes() == q.tobytes()
        else:
            with pytest.raises(ln.ArgumentError, match="G5"):
                other.compile()


TOKEN = re.compile(r"%\d+|[a-z_]\w*|\d+|\n|[^\S\n]+|.", re.IGNORECASE)
STRANGE = [
    "None", "1j", "1e999", "-1", "0", "1.5", "-0.0", "True", "...", "9" * 400, "9" * 5000, str(2**62), "nan", "{1: 2}",
    "{[1]}", "[]", "()", "[[1], [1, 2]]", "(1, 2)", "((1, 2), (3, 4))", '"zzz"', '"same"', 'b"x"', "%0", "%1", "v0",
    "%" + "9" * 5000, "*%0", "**{}", "(", ")", "[", "]", ",", " ", "=", "\n", "\x00", "\u0663", "f64", "i64",
    "return %0",
]  # fmt: skip


def test_any_text_gives_the_graph_it_says_or_is_refused() -> None:
    """Texts of graphs with a few words changed, and operators with operands and options drawn at random."""
    graphs = [*odd_graphs().values(), *(random_graph(seed) for seed in range(12)), small()[0]]
    texts = [(str(g), named_constants(g)) for g in graphs]
    rng, known, end = random.Random(0), sorted(kinds()), time.monotonic() + 10
    for _ in range(5000):
        text, constants = rng.choice(texts)
        words = TOKEN.findall(text)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            at = rng.randrange(len(words))
            match rng.randrange(5):
                case 0:
                    words[at] = rng.choice(STRANGE)
                case 1:
                    words.insert(at, rng.choice(STRANGE))
                case 2:
                    words[at] = rng.choice(known) if words[at].isidentifier() else words[at] * 2
                case 3:
                    words[at] = ""
                case _:
                    other = rng.randrange(len(words))
                    words[at], words[other] = words[other], words[at]
        if rng.random() < 0.5:  # one operator of any kind
            kind = rng.choice(known)
            operands = [rng.choice(("%0", "%1", "%1", "None")) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
            options = [f"{n}={rng.choice(STRANGE)}" for n in options_of(kinds()[kind]) if rng.random() < 0.6]
            first = '%0 : f32[1,2,4] = input("x")\n%1 : f32[2,2,2] = input("y")'
            words = [f"{first}\n%2 : f32[1,2,3] = {kind}({', '.join((*operands, *options))})\nreturn %2"]
        try:
            graph = ln.Graph.parse("".join(words), constants)
        except ln.LunetteError:
            continue
        again = ln.Graph.parse(str(graph), named_constants(graph))
        assert str(again) == str(graph) and len(graph.nodes) == len(
            [w for w in "".join(words).splitlines() if "=" in w]
        )
        if time.monotonic() > end:
            break


# ---- files that lunette did not write


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    graph = ln.Graph()
    x = graph.input((1, 4, 4), name="x")
    graph.output(ln.conv(x, np.ones((5, 1, 2, 2), np.float32)))
    path = tmp_path / "g.json"
    graph.save(path)
    text = path.read_text()
    content = json.loads(text)
    rng = np.random.default_rng(0)
    for _ in range(300):  # one character changed
        at = int(rng.integers(len(text)))
        path.write_text(text[:at] + chr(int(rng.integers(32, 127))) + text[at + 1 :])
        try:
            loaded = ln.load(path)
        except ln.LunetteError:
            continue
        loaded.check()
    hostile: list[Any] = [
        [],
        {},
        {**content, "version": 2},
        {**content, "graph": "return %0"},
        {**content, "graph": ['%0 : f32[1] = input("x")', "return %7"]},
        {**content, "graph": ['%0 : f32[1] = input("x")', "%1 : f32[1] = __import__(%0)", "return %1"]},
        {**content, "graph": ['%0 : f32[1] = input("x")', "%1 : f32[1] = relu(%1)", "return %1"]},
        {**content, "graph": ['%0 : f32[1] = input("x")', "%1 : f32[2] = relu(%0)", "return %1"]},
        {**content, "graph": ['%0 : f32[1] = input("x")', "%1 : f32[1] = relu(%0, a=(lambda: 1)())", "return %1"]},
        {**content, "graph": ['%0 : f32[999999999999] = input("x")', "%1 : f32[1] = relu(%0)", "return %1"]},
        {**content, "constants": ["c1", "../../etc/passwd"]},
        {**content, "constants": []},
    ]
    for wrong in hostile:
        path.write_text(json.dumps(wrong))
        with pytest.raises(ln.LunetteError):
            ln.load(path)
    path.write_text(text)
    beside = tmp_path / "g.json.npz"
    data = beside.read_bytes()
    np.savez(beside, c1=np.array([{"a": 1}], object))
    with pytest.raises(ln.LunetteError):
        ln.load(path)
    for cut in (0, 10, len(data) // 2):
        beside.write_bytes(data[:cut])
        with pytest.raises(ln.LunetteError):
            ln.load(path)
    beside.unlink()
    with pytest.raises(ln.LunetteError):
        ln.load(path)


def test_a_file_that_is_not_there_is_pythons_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ln.load(tmp_path / "none.json")


# ---- programs


def small() -> tuple[ln.Graph, Array]:
    graph = ln.Graph()
    x = graph.input((2, 3, 8, 8), name="x")
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    h = ln.relu(ln.conv(x, w, padding=1) + np.ones((4, 1, 1), np.float32))
    graph.output(ln.max_pool(h, 2), ln.sum(h))
    return graph, np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)


def test_inputs_by_name_kinds_and_layouts() -> None:
    import torch

    graph, x = small()
    program = graph.compile()
    y, s = program(x)
    for other in (program(x=x), program(np.asfortranarray(x)), program(x[::-1][::-1])):
        assert (other[0] == y).all() and other[1] == s
    from_torch = program(torch.from_numpy(x))
    assert isinstance(from_torch[0], torch.Tensor) and (from_torch[0].numpy() == y).all()


def test_programs_are_thread_safe_and_pickle() -> None:
    graph, x = small()
    program = pickle.loads(pickle.dumps(graph.compile()))
    wanted = program(x)[0]
    wrong: list[str] = []

    def work() -> None:
        for _ in range(50):
            if not (program(x)[0] == wanted).all():
                wrong.append("value")
            y, pullback = program.vjp(x)
            if pullback((np.ones_like(y[0]), np.ones_like(y[1])))[0].shape != x.shape:
                wrong.append("shape")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_what_is_fused_and_shared() -> None:
    graph, x = small()
    program = graph.compile()
    stats = program.stats(x)
    assert [n.text.split("(")[0] for n in stats.nodes] == ["conv", "max_pool", "sum"]
    assert stats.nodes[0].text.endswith("+ relu") and stats.arena == stats.largest_live
    assert "GFLOP/s" in str(stats)
    twice = ln.trace(lambda x: ln.relu(x) + ln.relu(x), x)
    assert len(twice.compile().stats().nodes) == 2  # equal nodes are one


def test_residuals_are_fused_in_either_order() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.integers(-2, 3, (2, 2, 3, 3)).astype(np.float32) for _ in range(2))
    x = rng.integers(-2, 3, (1, 2, 5, 5)).astype(np.float32)
    functions: list[Any] = [
        lambda x: ln.relu(ln.conv(ln.relu(ln.conv(x, w, padding=1)), v, padding=1) + x),
        lambda x: ln.relu(x + ln.conv(ln.relu(ln.conv(x, w, padding=1)), v, padding=1)),
        lambda x: ln.relu(ln.conv(x, w, padding=1) + ln.conv(x, v, padding=1)),
    ]
    for f in functions:
        program = ln.trace(f, x).compile()
        assert len(program.stats().nodes) == 2
        assert (program(x) == f(x)).all() and (Program(program.graph, fuse=False)(x) == f(x)).all()


def test_outputs_that_are_inputs_constants_and_twice() -> None:
    graph = ln.Graph()
    x = graph.input((2, 2), name="x")
    y = ln.relu(x)
    graph.output(x, graph.constant(np.array([1, 2], np.float32)), y, y, ln.reshape(y, (4,)), ln.reshape(x, (4,)))
    a = np.array([[1, -2], [3, -4]], np.float32)
    results = graph.compile()(a)
    assert [r.tolist() for r in results] == [
        [[1, -2], [3, -4]], [1, 2], [[1, 0], [3, 0]], [[1, 0], [3, 0]], [1, 0, 3, 0], [1, -2, 3, -4],
    ]  # fmt: skip
    results[0][...] = 9
    assert (a == [[1, -2], [3, -4]]).all() and not np.shares_memory(results[2], results[3])


@pytest.mark.parametrize("arithmetic", ["fast", "rounded", "interval"])
def test_results_are_fresh_and_writable(arithmetic: Any) -> None:
    graph = ln.Graph()
    x, labels = graph.input((2, 2), name="x"), graph.input((2,), "int64", "labels")
    y = ln.relu(x)
    flat = [ln.reshape(v, (4,)) for v in (x, y)]
    constants = [graph.constant(np.array([1, 2], dtype)) for dtype in (np.float32, np.int64)]
    graph.output(x, y, y, *flat, *constants, *constants, labels, ln.transpose(x))
    given_arrays = np.array([[1, -2], [3, -4]], np.float32), np.array([0, 1])
    results = graph.compile().run(*given_arrays, arithmetic=arithmetic)
    ends = [e for r in results for e in ((r.lo, r.hi) if arithmetic == "interval" else (r,))]
    frozen = [n.value for n in graph.nodes if n.value is not None]
    for at, a in enumerate(ends):
        assert a.flags.writeable and a.flags.c_contiguous
        assert not any(np.shares_memory(a, b) for b in (*ends[:at], *given_arrays, *frozen))


def test_whole_numbers_as_results() -> None:
    x, whole = np.ones(2, np.float32), np.array([1, 2])
    assert ln.jit(lambda x: whole)(x).tolist() == [1, 2]
    assert [v.tolist() for v in ln.jit(lambda x: (x, whole))(x)] == [[1, 1], [1, 2]]
    graph = ln.Graph()
    v, labels = graph.input((2,), name="x"), graph.input((2,), "int64", "labels")
    graph.output(v, graph.constant(whole), labels)
    program = graph.compile()
    assert [t.tolist() for t in program.jvp((x, whole), (x, None))[1]] == [[1, 1], [0, 0], [0, 0]]
    y, pullback = program.vjp(x, whole)
    assert [g.tolist() for g in pullback(y)] == [[1, 1], [0, 0]]


def test_names_that_programs_make_up_give_way() -> None:
    graph = ln.Graph()
    names = ("tangent_of_x", "x", "cotangent_0", "x3")
    v = [graph.input((2,), name=n) for n in names] + [graph.input((2,)) for _ in range(2)]
    graph.output(v[0] * v[1] * v[2] * v[3] * v[4] * v[5])
    a = [np.full(2, 2, np.float32)] * 6
    program = graph.compile()
    assert program.jvp(a, a)[1].tolist() == [6 * 64] * 2
    assert [g.tolist() for g in program.vjp(*a)[1](a[0])] == [[64, 64]] * 6
    assert len(ln.trace(lambda x_1_3, x, x_1: x_1_3 + x[0] + x[1] + x_1, a[0], a[:2], a[0]).inputs) == 4


def test_a_program_does_not_follow_its_graph() -> None:
    graph = ln.Graph()
    x = graph.input((2,), name="x")
    graph.output(x + 1)
    program = graph.compile()
    graph.input((3,), name="y")
    graph.output(x * 2)
    a = np.ones(2, np.float32)
    for p in (program, pickle.loads(pickle.dumps(program))):
        assert p(a).tolist() == p.vjp(a)[0].tolist() == p.jvp((a,), (a,))[0].tolist() == [2, 2]
        assert p.vjp(a)[1](a)[0].tolist() == [1, 1]


def test_constants_are_read_when_they_are_used() -> None:
    graph, w = ln.Graph(), np.ones(20, np.float32)
    x = graph.input((20,), name="x")
    first = x + w
    w += 1
    graph.output(first, x + w, x * w)
    y = graph.compile()(np.zeros(20, np.float32))
    assert [v[0] for v in y] == [1, 2, 0] and len([n for n in graph.nodes if n.value is not None]) == 2
    named = {"c1": w}
    again = ln.Graph.parse(
        '%0 : f32[20] = input("x")\n%1 : f32[20] = constant("c1")\n%2 : f32[20] = add(%0, %1)\nreturn %2', named
    )
    w += 1
    assert again.eval(np.zeros(20))[0] == 2


def test_an_empty_constant_is_saved_with_its_shape(tmp_path: Path) -> None:
    graph = ln.Graph()
    graph.output(ln.concat([graph.input((2, 3)), np.zeros((0, 3), np.float32)], 0))
    graph.save(tmp_path / "g.json")
    assert str(ln.load(tmp_path / "g.json")) == str(graph)
    with pytest.raises(ln.ArgumentError, match="G4"):
        ln.Graph.parse(str(graph).replace("f32[0,3] = constant", "f32[2,3] = constant"))


def test_empty_arrays_run() -> None:
    graph = ln.Graph()
    x = graph.input((0, 3), name="x")
    graph.output(ln.sum(ln.relu(x), axis=0), ln.relu(x))
    s, y = graph.compile()(np.empty((0, 3), np.float32))
    assert s.tolist() == [0, 0, 0] and y.shape == (0, 3)


def test_nan_is_found_on_request() -> None:
    def f(x: Any) -> Any:
        return ln.sum(ln.relu(ln.log(x)))

    x = np.array([1, -1], np.float32)
    assert np.isnan(ln.jit(f)(x))
    with pytest.raises(ln.ArgumentError) as caught:
        ln.jit(f, debug=True)(x)
    text = str(caught.value)
    assert text.startswith("log [G10] needs no NaN") and "at (1,)" in text and "test_graph.py:" in text
    for dtype in (np.float16, ml_dtypes.bfloat16):  # these run operator by operator
        half = x.astype(dtype)
        assert ln.jit(ln.relu, debug=True)(half).dtype == dtype
        with pytest.raises(ln.ArgumentError, match=rf"log : {np.dtype(dtype)}\[2\] at \(1,\).*test_graph\.py:"):
            ln.jit(f, debug=True)(half)
    torch = pytest.importorskip("torch")
    with pytest.raises(ln.ArgumentError, match=r"log : bfloat16\[2\] at \(1,\)"):
        ln.jit(f, debug=True)(torch.tensor([1, -1], dtype=torch.bfloat16))


def test_every_operator_has_its_rules() -> None:
    table = ln.rules()
    assert set(table) == set(kinds()) and {"conv", "max_pool", "relu", "conv_vjp_w", "max_pool_jvp"} <= set(table)
    assert all({"spec", "kernel", "jvp", "vjp"} <= r for r in table.values())


def test_jit_compiles_once_per_shape_and_static_argument() -> None:
    built = []

    @ln.jit
    def f(x: Any, p: Any, mode: str = "relu") -> Any:
        built.append(x.shape)
        return {"y": ln.relu(x) * p["scale"] if mode == "relu" else x * p["scale"], "mode": mode}

    x = np.array([1, -1], np.float32)
    for _ in range(3):
        assert f(x, {"scale": 2.0})["y"].tolist() == [2, 0]
    assert len(built) == 1
    assert f(x, {"scale": 3.0})["y"].tolist() == [3, 0]
    assert f(x, {"scale": 3.0}, mode="id") == {"y": pytest.approx([3, -3]), "mode": "id"}
    assert f(np.array([[1]], np.float32), {"scale": np.array([2], np.float32)})["y"].tolist() == [[2]]
    assert len(built) == 4


def test_static_numbers_are_told_apart() -> None:
    f = ln.jit(lambda x, s: x / s)
    x = np.ones(1)
    with np.errstate(divide="ignore"):
        assert [f(x, s)[0] for s in (0.0, -0.0, 1, 1.0, 0.0)] == [np.inf, -np.inf, 1, 1, np.inf]
    assert len(f.programs) == 4
    kinds = ln.jit(lambda x, s: {"y": x, "kind": type(s).__name__})
    for s in (True, 1, 1.0, np.int64(1), np.float64(1), "1", b"1", 1j, Fraction(1)):
        assert kinds(x, s)["kind"] == type(s).__name__
    for _ in range(2):
        assert np.isnan(f(x, float("nan"))[0])
    assert len(f.programs) == 5


def test_numbers_as_keys_of_dicts_are_told_apart() -> None:
    f = ln.jit(lambda tree: {k: v / k for k, v in tree.items()})
    x = np.ones(1)
    for _ in range(2):
        assert [f({k: x})[k][0] for k in (0.0, -0.0, 1, 1.0)] == [np.inf, -np.inf, 1, 1]
        assert [str(f({k: x})) for k in (1, 1.0)] == ["{1: array([1.])}", "{1.0: array([1.])}"]
    assert len(f.programs) == 4


def test_numpys_scalars_are_numbers_to_jit() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert (ln.jit(lambda v, k: ln.max_pool(v, k))(x, np.int64(2)) == ln.max_pool(x, 2)).all()
    for s in (np.float64(0.1), np.float32(0.1), 0.1):
        y = ln.jit(lambda v, s: v * s)(x, s)
        assert y.dtype == np.float32 and (y == ln.mul(x, s)).all()
    assert (ln.jit(ln.grad(lambda s, v: ln.sum(s * v)))(np.float32(2), x) == x.sum()).all()
    assert ln.jit(lambda v: (v, np.float64(3)))(x)[1] == 3


def test_jit_forgets_the_programs_that_were_not_used_for_long() -> None:
    from lunette.graph.jit import MOST_PROGRAMS

    built = []

    @ln.jit
    def f(x: Any, s: int) -> Any:
        built.append(s)
        return x + s

    x = np.zeros(1)
    for s in range(1, MOST_PROGRAMS + 10):
        assert f(x, 0)[0] == 0 and f(x, s)[0] == s
    assert len(f.programs) == MOST_PROGRAMS and built.count(0) == 1


def test_jit_on_methods_is_one_function_per_object() -> None:
    class Layer:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @ln.jit
        def run(self, x: Any, shift: float = 0.0) -> Any:
            """Scale and shift."""
            built.append(self.scale)
            return x * self.scale + shift

    built: list[float] = []
    two, three, x = Layer(2.0), Layer(3.0), np.ones(2)
    for _ in range(2):
        assert two.run(x).tolist() == [2, 2] and three.run(x, shift=1.0).tolist() == [4, 4]
    assert built == [2, 3] and two.run is two.run and Layer.run.__doc__ == two.run.__doc__ == "Scale and shift."
    assert copy.copy(two).run(x).tolist() == [2, 2]
    methods: Any = Layer.run
    del two
    gc.collect()
    assert len(methods.methods) == 1


def test_a_jitted_function_looks_like_the_function() -> None:
    @ln.jit
    def layer(x: Any) -> Any:
        """A layer."""
        return ln.relu(x)

    assert layer.__doc__ == "A layer." and repr(layer).startswith("ln.jit(") and "layer" in repr(layer)


def test_derivatives_of_jitted_functions_and_jitted_derivatives() -> None:
    @ln.jit
    def f(x: Any) -> Any:
        return ln.sum(ln.tanh(x) ** 3)

    x = np.linspace(-1, 1, 5)
    plain = ln.grad(lambda x: ln.sum(ln.tanh(x) ** 3))(x)
    assert np.allclose(ln.grad(f)(x), plain, rtol=1e-12) and np.allclose(ln.jit(ln.grad(f))(x), plain, rtol=1e-12)
    hessian = ln.jit(lambda x, t: ln.jvp(ln.grad(f), (x,), (t,))[1])
    assert np.allclose(hessian(x, x), ln.jvp(ln.grad(f), (x,), (x,))[1], rtol=1e-12)


def test_labels_are_integers() -> None:
    f = ln.jit(lambda logits, labels: ln.cross_entropy(logits, labels))
    logits = np.random.default_rng(0).standard_normal((3, 4))
    for labels in (np.array([0, 3, 1]), np.array([0, 3, 1], np.int32)):
        assert f(logits, labels) == pytest.approx(ln.cross_entropy(logits, labels), rel=1e-14)
    with pytest.raises(ln.ArgumentError, match=r"labels in 0\.\.3; got labels from 0 to 4"):
        f(logits, np.array([0, 4, 1]))


def test_large_constants_are_named_in_the_text() -> None:
    graph = ln.Graph()
    x = graph.input((20,), name="x")
    graph.output(x + np.arange(20, dtype=np.float32))
    assert 'constant("c1")' in str(graph)
    with pytest.raises(ln.ArgumentError, match="the array of constant c1"):
        ln.Graph.parse(str(graph))
    again = ln.Graph.parse(str(graph), {"c1": np.arange(20, dtype=np.float32)})
    assert str(again) == str(graph)


SIZES = [(1, 1, 1), (1, 10, 700), (3, 5, 0), (4, 33, 17), (32, 100, 64), (7, 1, 2000)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f", "d"])
@pytest.mark.parametrize(("turn_x", "turn_y"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_matrix_products_within_the_bound(m: int, n: int, k: int, turn_x: bool, turn_y: bool, dtype: Any) -> None:
    from lunette import _native

    rng = np.random.default_rng(m * n + k)
    x, y = rng.standard_normal((2, m, k)).astype(dtype), rng.standard_normal((2, k, n)).astype(dtype)
    b, z = rng.standard_normal(n).astype(dtype), np.empty((2, m, n), dtype)
    a, c = (np.ascontiguousarray(v.swapaxes(1, 2)) if turn else v for v, turn in ((x, turn_x), (y, turn_y)))
    _native.matmul(np.dtype(dtype).char, 2, m, n, k, turn_x, turn_y, True)(a, c, b, z)
    wide_x, wide_y, wide_b = (v.astype(np.longdouble) for v in (x, y, b))
    true = np.maximum(wide_x @ wide_y + wide_b, 0)
    terms = k + 1
    h = min(terms, 512 + -(-terms // 512)) + 2
    u = np.finfo(dtype).eps / 2
    size = abs(wide_x) @ abs(wide_y) + abs(wide_b)
    assert (abs(z - true) <= h * u / (1 - h * u) * size * (1 + 1e-9)).all()


def test_every_product_counts_in_a_matrix_product() -> None:
    x, y = np.array([[0.0, 1.0]]), np.array([[np.inf], [1.0]])
    assert np.isnan(ln.matmul(x, y)).all() and (ln.matmul(np.array([[1.0, 1.0]]), y) == np.inf).all()


def test_graphs_keep_how_many_axes_are_space() -> None:
    """One int for all axes becomes a tuple; a text that does not say it is older than the rule, and means ndim - 2."""
    g = ln.Graph()
    x = g.input((2, 3, 8, 8), name="x")
    y = ln.adaptive_max_pool(ln.avg_pool(ln.max_pool(x, 2), 2, stride=1, spatial=3), 2, spatial=1)
    g.output(y, ln.global_avg_pool(x), ln.global_max_pool(x, spatial=1))
    words = [line.partition(" = ")[2] for line in str(g).splitlines()[1:-1]]
    assert words == [
        "max_pool(%0, kernel=(2, 2))",
        "avg_pool(%1, kernel=(2, 2, 2), stride=1)",
        "adaptive_max_pool(%2, output_size=(2,))",
        "global_avg_pool(%0, spatial=2)",
        "global_max_pool(%0, spatial=1)",
    ]
    assert str(ln.Graph.parse(str(g))) == str(g)
    old = """
        %0 : f32[2,3,8] = input("x")
        %1 : f32[2,3,4] = max_pool(%0, kernel=2)
        %2 : f32[2,3,8] = max_pool(%0, kernel=2, stride=1, padding="same", spatial=1)
        %3 : f32[2,3,1] = global_avg_pool(%0)
        %4 : f32[2,3,2] = adaptive_avg_pool(%1, output_size=2)
        %5 : f32[2,3,8] = max_pool_vjp_x(%0, %1, kernel=2)
        %6 : f32[2,3] = global_max_pool(%0, keepdims=False)
        %7 : f32[2,3] = max_pool(%6, kernel=2)
        return %2, %3, %4, %5, %7
    """
    words = [line.partition(" = ")[2] for line in str(ln.Graph.parse(old)).splitlines()[1:-1]]
    assert words == [
        "max_pool(%0, kernel=(2,))",
        "max_pool(%0, kernel=(2,), stride=1, padding='same')",
        "global_avg_pool(%0, spatial=1)",
        "adaptive_avg_pool(%1, output_size=(2,))",
        "max_pool_vjp_x(%0, %1, kernel=(2,))",
        "global_max_pool(%0, keepdims=False, spatial=1)",
        "max_pool(%6, kernel=())",
    ]
    with pytest.raises(ln.ShapeError, match=r"max_pool \[W13\]"):
        ln.trace(lambda v: ln.max_pool(v, 2), np.zeros((2, 3, 8), np.float32))
