"""Programs in blocks of channels: the same meaning as without, and values are moved only where that pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lunette
from effort import ALL_OR_HALF
from lunette import core
from lunette.arithmetic.error import gamma, height
from lunette.graph import blocks
from lunette.graph.blocks import ToBlocks
from lunette.graph.program import Program
from lunette.number import Array

ln: Any = lunette
pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(ln.instruction_set() == "generic", reason="the generic set has no convolutions of blocks"),
]
L = core.lanes("f")
"""Channels of a block: lanes of the instruction set under test."""
U = float(np.finfo(np.float32).eps) / 2

# x and w in blocks of channels, and options: by the pixels, vectors and cuts that the kernels have.
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "a line of many pixels": ((2, 2, 30, 56), (1, 2, 3, 3), {"padding": 1}),
    "some pixels of two vectors": ((1, 2, 9, 14), (2, 2, 3, 3), {"padding": 1}),
    "few pixels of four vectors": ((3, 3, 4, 4), (4, 3, 3, 3), {"padding": 1}),
    "vectors that are not there": ((1, 2, 7, 7), (3, 2, 3, 3), {"padding": 1}),
    "one pixel sees one tap of nine": ((2, 1, 1, 1), (2, 1, 3, 3), {"padding": 1}),
    "two pixels": ((1, 1, 2, 2), (1, 1, 3, 3), {"padding": 1}),
    "five taps at the edge": ((1, 1, 12, 17), (2, 1, 5, 5), {"padding": 2}),
    "no padding": ((1, 2, 12, 19), (2, 2, 3, 3), {}),
    "lopsided padding": ((1, 1, 8, 9), (1, 1, 3, 2), {"padding": ((0, 2), (1, 0))}),
    "stride": ((2, 2, 29, 28), (2, 2, 3, 3), {"stride": 2, "padding": 1}),
    "stride of lines only": ((1, 1, 20, 17), (1, 1, 3, 3), {"stride": (3, 1), "padding": 1}),
    "dilated": ((1, 1, 11, 20), (2, 1, 3, 3), {"dilation": 2, "padding": 2}),
    "one tap": ((2, 5, 17, 33), (3, 5, 1, 1), {}),
    "one tap of many channels": ((1, 40, 7, 7), (4, 40, 1, 1), {}),
    "one tap, stride": ((2, 3, 28, 28), (4, 3, 1, 1), {"stride": 2}),
    "weights beyond the cache": ((1, 12, 7, 7), (32, 12, 3, 3), {"padding": 1}),
    "a line": ((2, 2, 50), (2, 2, 3), {"padding": 1}),
    "a volume": ((2, 1, 5, 6, 16), (2, 1, 3, 2, 3), {"padding": 1}),
    "four axes": ((1, 1, 3, 4, 3, 5), (1, 1, 2, 2, 2, 1), {}),
    "no batch": ((1, 9, 9), (2, 1, 3, 3), {}),
    "two batch axes": ((2, 3, 1, 5, 5), (1, 1, 2, 2), {}),
}
# channels as they are
DEPTHWISE: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "three by three": ((2, 2, 15, 29), (3, 3), {"padding": 1}),
    "stride": ((1, 3, 28, 29), (3, 3), {"stride": 2, "padding": 1}),
    "small": ((1, 1, 2, 3), (3, 3), {"padding": 1}),
    "one pixel": ((1, 1, 1, 1), (3, 3), {"padding": 1}),
    "dilated": ((1, 2, 9, 11), (3, 3), {"dilation": 3, "padding": 3}),
    "wide": ((1, 1, 9, 40), (1, 9), {"padding": (0, 4)}),
    "a volume": ((1, 2, 4, 5, 9), (2, 3, 3), {"padding": ((0, 1), (1, 1), (2, 0))}),
}
FROM_PLANES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "seven taps, stride": ((2, 3, 40, 41), (2, 7, 7), {"stride": 2, "padding": 3}),
    "three taps": ((1, 3, 20, 37), (1, 3, 3), {"padding": 1}),
    "one channel": ((3, 1, 14, 28), (1, 5, 5), {"padding": 2}),
    "a volume": ((2, 3, 4, 9, 16), (2, 3, 3, 3), {"padding": 1}),
    "planes of a volume": ((1, 3, 4, 20, 28), (2, 1, 3, 3), {"stride": (1, 2, 2), "padding": (0, 1, 1)}),
}
# kernel == stride
UP: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "twice": ((2, 2, 8, 14), (1, 2, 2)),
    "lopsided": ((1, 1, 5, 7), (3, 3, 1)),
    "one cell": ((1, 2, 4, 5), (2, 1, 1)),
    "a volume": ((1, 1, 3, 4, 5), (2, 2, 1, 2)),
}


def problems() -> dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
    """Operator, shapes of x and w, and options."""
    found: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {}
    for name, (x, w, options) in CONVOLUTIONS.items():
        at = len(x) - len(w) + 1
        x = (*x[:at], x[at] * L, *x[at + 1 :])
        found[name] = "conv", x, (w[0] * L, w[1] * L, *w[2:]), options
    for name, (x, kernel, options) in DEPTHWISE.items():
        x = (x[0], x[1] * L, *x[2:])
        found[f"depthwise, {name}"] = "conv", x, (x[1], 1, *kernel), {**options, "groups": x[1]}
    for name, (x, w, options) in FROM_PLANES.items():
        found[f"from planes, {name}"] = "conv", x, (w[0] * L, x[1], *w[1:]), options
    for name, (x, w) in UP.items():
        x = (x[0], x[1] * L, *x[2:])
        found[f"up, {name}"] = "conv_transpose", x, (x[1], w[0] * L, *w[1:]), {"stride": w[1:]}
    return found


PROBLEMS = problems()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving costs nothing, so everything is in blocks that can be."""
    monkeypatch.setattr(blocks, "MOVING", 0.0)


def compiled(f: Callable[..., Any], *arrays: Array, **options: Any) -> Program:
    return Program(ln.trace(f, *arrays), **options)


def in_blocks(p: Program) -> list[str]:
    """The operators whose results are in blocks."""
    made = [(s, p._simple.nodes[s.node].kind) for s in p._steps.steps if s.layout != "planes"]
    return [kind.name for _, kind in made if kind is not None and kind is not ToBlocks]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def counts(shape: tuple[int, ...], seed: int = 0, most: int = 3) -> Array:
    return np.random.default_rng((seed, *shape)).integers(-most, most + 1, shape).astype(np.float32)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("name", PROBLEMS)
def test_convolutions_keep_the_bound(name: str) -> None:
    operator, xs, ws, options = PROBLEMS[name]
    f = getattr(ln, operator)
    x, w = drawn(xs), drawn(ws, 1)
    channels = ln.output_shape(operator, xs, ws, **options)[-len(ws) + 1]
    b = drawn((channels,), 2)
    program = compiled(lambda x: f(x, w, b, **options), x)
    assert in_blocks(program) == [operator]
    exact, size = f(x, w, b, **options, arithmetic="rounded"), f(*map(abs, (x, w, b)), **options)
    h = height(w.size // channels + 1)
    assert (abs(program(x) - exact) <= gamma(h, U) * size + U * abs(exact)).all()


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("name", PROBLEMS)
def test_whole_numbers_zeros_and_what_is_not_finite_are_as_in_planes(name: str) -> None:
    operator, xs, ws, options = PROBLEMS[name]
    f = getattr(ln, operator)
    x, w = counts(xs), counts(ws, 1)
    channels = ln.output_shape(operator, xs, ws, **options)[-len(ws) + 1]
    b = np.where(np.arange(channels) % 2, np.float32(-0.0), counts((channels,), 2))
    add = counts(ln.output_shape(operator, xs, ws, **options), 3)
    scale, shift = (counts((channels, *(1,) * (len(ws) - 2)), s) for s in (4, 5))

    def followed(x: Any) -> Any:
        return ln.relu(ln.add(ln.add(ln.mul(f(x, w, b, **options), scale), shift), add))

    assert (compiled(followed, x)(x) == followed(x)).all()
    x[np.random.default_rng(5).random(x.shape) < 0.5] = -0.0
    flat = w.reshape(-1)
    flat[:: max(1, w.size // 7)] = 0
    flat[0], flat[-1] = np.inf, np.nan
    for given in (x, np.zeros_like(x), np.where(x == 0, x, np.float32(np.nan))):
        for bias in (None, b):
            program = compiled(lambda x, bias=bias: f(x, w, bias, **options), given)
            y, z = program(given), f(given, w, bias, **options)
            assert np.array_equal(y, z, equal_nan=True)
            assert (np.isnan(z) | (np.signbit(y) == np.signbit(z))).all()


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("name", [n for n in PROBLEMS if PROBLEMS[n][0] == "conv"][ALL_OR_HALF])
def test_no_sum_is_longer_than_the_bound_says(name: str) -> None:
    """1 followed by numbers that a running sum drops (tests/test_sums.py), all weights being 1."""
    _, xs, ws, options = PROBLEMS[name]
    w = np.ones(ws, np.float32)
    e = np.float32(2.0**-24.5)
    terms = compiled(lambda x: ln.conv(x, w, **options), np.ones(xs, np.float32))(np.ones(xs, np.float32))
    program = compiled(lambda x: ln.conv(x, w, **options), np.ones(xs, np.float32))
    rng = np.random.default_rng(0)
    for place in (0, int(np.prod(xs)) - 1, *rng.integers(0, int(np.prod(xs)), 6)):
        x = np.full(xs, e)
        x.reshape(-1)[place] = 1
        hit = ln.conv(np.where(x == 1, np.float32(1), np.float32(0)), w, **options)
        exact = hit.astype(np.float64) + (terms - hit).astype(np.float64) * float(e)
        bound = gamma(height(int(terms.max())), U) * exact
        assert (abs(program(x).astype(np.float64) - exact) <= bound).all()


# ---- whole programs


def residual(lanes: int) -> tuple[Callable[[Any], Any], Array]:
    """Of whole numbers, so that every order of summation gives the same."""
    w = [
        counts(s, k, 1)
        for k, s in enumerate(((2 * lanes, 3, 3, 3), (2 * lanes, 2 * lanes, 3, 3), (2 * lanes, 1, 3, 3)))
    ]
    wide, up, last = (
        counts((lanes, 4 * lanes, 1, 1), 5, 1),
        counts((lanes, lanes, 2, 2), 6, 1),
        counts((3, lanes, 1, 1), 7, 1),
    )

    def f(x: Any) -> Any:
        x = ln.max_pool(ln.relu(ln.conv(x, w[0], stride=2, padding=1)), 3, stride=2, padding=1)
        y = ln.relu(ln.add(ln.conv(x, w[1], padding=1), x))
        z = ln.conv(y, w[2], padding=1, groups=2 * lanes)
        both = ln.concat([ln.avg_pool(y, 2, stride=1, padding=((1, 0), (0, 1)), divisor=1), ln.neg(z)], 1)
        u = ln.conv_transpose(ln.conv(both, wide), up, stride=2)
        u = ln.mul(u, ln.sigmoid(ln.mul(ln.global_max_pool(u), 0.0)))
        return ln.conv(ln.maximum(u, -4.0), last), ln.flatten(ln.global_max_pool(y)), y

    return f, counts((2, 3, 22, 27), 9)


@pytest.mark.usefixtures("free")
def test_a_network_in_blocks_is_what_it_is_in_planes() -> None:
    f, x = residual(L)
    program, plain = compiled(f, x), compiled(f, x, fuse=False)
    glue = {"concat", "neg", "mul", "sigmoid", "maximum"}
    assert set(in_blocks(program)) == {"conv", "conv_transpose", "max_pool", "avg_pool", "global_max_pool"} | glue
    assert not in_blocks(plain)
    for y, z in zip(program(x), plain(x), strict=True):
        assert y.flags.c_contiguous and np.array_equal(y, z)
    text = str(program.stats(x, repeat=1))
    assert f"{L} channels".ljust(14) + "conv(" in text
    assert "planes        from_blocks(" in text


@pytest.mark.usefixtures("free")
def test_values_that_are_read_with_other_channels() -> None:
    """Reshaped, or along another axis: a value has one kind of blocks."""
    one, two, three = (counts(s, 1, 1) for s in ((L, L, 1, 1), (2 * L, 2 * L, 1, 1), (L, L, 1, 1, 1)))
    x, cube, flat = counts((1, L, 4, 8)), counts((L, L, 3, 4)), counts((L * 32,))
    k = counts(cube.shape, 2)
    for f, given in (
        (lambda x: ln.conv(ln.reshape(ln.conv(x, one), (1, 2 * L, 2, 8)), two), x),
        (lambda x: ln.conv(ln.reshape(x, (1, L, 4, 8)), one), flat),
        (lambda x: ln.conv(ln.conv(x, one), three), cube),
        (lambda x: (ln.conv(x, one), ln.conv(x, three)), cube),
        (lambda x: (ln.add(ln.conv(x, one), k), ln.add(ln.conv(x, three), k)), cube),
        (lambda x: ln.add(ln.conv(x, one), ln.conv(x, three)), cube),
        (lambda x: ln.max_pool(ln.conv(x, one), 2, spatial=1), counts((2, L, L, 4))),
        (lambda x: ln.concat([ln.conv(x, one), ln.conv(x, three)], 0), cube),
    ):
        y, z = compiled(f, given)(given), compiled(f, given, fuse=False)(given)
        assert all(map(np.array_equal, y, z)) if isinstance(y, tuple) else np.array_equal(y, z)


def test_long_lines_are_planned_in_no_time() -> None:
    """Of 2^32 pixels, which no machine has the memory for."""
    graph = ln.Graph()
    x = graph.input((L, 2**20, 2**12), name="x")
    graph.output(ln.conv(x, np.ones((L, L, 1, 1), np.float32)))
    with pytest.raises(ln.ShapeError, match=r"N6"):
        graph.compile()


@pytest.mark.usefixtures("free")
def test_derivatives_of_a_program_in_blocks() -> None:
    f, x = residual(L)
    program, plain = compiled(lambda x: f(x)[0], x), compiled(lambda x: f(x)[0], x, fuse=False)
    g = counts(plain(x).shape, 1)
    assert np.array_equal(program.vjp(x)[1](g)[0], plain.vjp(x)[1](g)[0])
    assert np.array_equal(program.jvp((x,), (x,))[1], plain.jvp((x,), (x,))[1])


def test_a_value_is_moved_only_if_that_pays() -> None:
    w = drawn((8 * L, 8 * L, 3, 3))
    one = drawn((L, L, 1, 1))
    x, y = drawn((1, 8 * L, 28, 28)), drawn((1, L, 28, 28))
    alone = compiled(lambda x: ln.conv(x, one), y)
    assert in_blocks(alone) == []  # moving there and back costs more
    assert "blocks" not in str(alone.stats(repeat=1))

    def deep(x: Any) -> Any:
        for _ in range(4):
            x = ln.relu(ln.conv(x, w, padding=1))
        return x

    text = str(compiled(deep, x).stats(repeat=1))
    assert (text.count("to_blocks"), text.count("from_blocks")) == (1, 1)


def test_float64_and_weights_that_vary_stay_in_planes() -> None:
    x, w = drawn((1, 2 * L, 28, 28)).astype(np.float64), drawn((2 * L, 2 * L, 3, 3)).astype(np.float64)
    assert in_blocks(compiled(lambda x: ln.conv(ln.conv(x, w, padding=1), w, padding=1), x)) == []
    assert (
        in_blocks(
            compiled(lambda x, w: ln.conv(ln.conv(x, w, padding=1), w, padding=1), drawn(x.shape), drawn(w.shape))
        )
        == []
    )
