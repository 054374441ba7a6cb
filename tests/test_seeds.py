"""The seeds' names: the table is complete, every name means its operator, and the departures are as the table says."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette import seeds, spec
from lunette.number import Array, each, total
from lunette.window import Window

HERE = Path(__file__).parent
NAMES = [tuple(line.split()) for line in (HERE / "data" / "seed_names.txt").read_text().splitlines()]
PAGE = (HERE.parent / "docs" / "seeds.md").read_text()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")][1:]

draws = st.integers(0, 2**32 - 1)


def rationals(rng: np.random.Generator, *shape: int) -> Array:
    """Few values, so that ties happen."""
    return each(lambda v: Fraction(int(v), 2), rng.integers(-5, 6, shape).astype(object))


def dot(a: Any, b: Any) -> Any:
    left, right = np.asarray(a, object), np.asarray(b, object)
    assert left.shape == right.shape
    return total([p * q for p, q in zip(left.flat, right.flat, strict=True)])


def same(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a, object) == np.asarray(b, object)))


def balls(a: Array) -> Array:
    return each(lambda v: flint.arb(v.numerator) / v.denominator, a)


def close(a: Any, b: Any, within: float = 1e-9) -> bool:
    """For published decimals, which have ten digits or so."""
    left, right = np.asarray(a, float), np.asarray(b, float)
    return left.shape == right.shape and bool(np.all(abs(left - right) <= within * np.maximum(1, abs(right))))


# ---- the table


def test_every_definition_of_the_seeds_has_exactly_one_row() -> None:
    listed = [(document, definition.strip("`")) for document, definition, *_ in ROWS]
    assert sorted(listed) == sorted(NAMES)
    assert len(set(NAMES)) == len(NAMES) > 150


def resolve(path: str) -> Any:
    value: Any = ln
    for at, name in enumerate(parts := path.split(".")):
        value = getattr(value, name, None) or importlib.import_module(".".join(["lunette", *parts[: at + 1]]))
    return value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}:{row[1]}")
def test_every_row_names_what_exists_here_or_the_test_that_stands_for_it(row: list[str]) -> None:
    ours, differs = row[2:]
    if ours == "none":
        (stand_in,) = re.findall(r"test `(test_\w+)`", differs)
        assert callable(globals()[stand_in])
        return
    names = re.findall(r"`([\w.]+)`", ours)
    assert names and ours == ", ".join(f"`{n}`" for n in names)
    assert all(resolve(n) is not None for n in names)


def snake(definition: str) -> str:
    """Snake case, `Spec` dropped; single- and multi-channel, spatial and channelled forms are one function."""
    name = definition.strip("`").split(".")[-1]
    name = re.sub(r"Spec(?=Pad$|$)", "", name)
    if not name.endswith(("OutShape", "OutShapePad")):
        name = re.sub(r"Multi|Spatial(?!Max)", "", name) if "Out" not in name and name != "reduceSpatial" else name
    words = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    return words.replace("_2d", "2d")


def test_the_names_follow_the_rule() -> None:
    functions = [r for r in ROWS if r[2].startswith("`spec.")]
    for _, definition, ours, _ in functions:
        assert ours == f"`spec.{snake(definition)}`", definition
    mapped = {ours.strip("`").removeprefix("spec.") for _, _, ours, _ in functions}
    assert set(seeds.SEEDS) <= mapped, "a function that no seed asked for"


SIGNATURES = {
    "conv_backward": "(x, w, g, *, stride=1, padding=0, dilation=1, groups=1)",
    "conv_kernel_deriv": "(x, g, *, kernel, stride=1, padding=0, dilation=1, groups=1)",
    "conv_bias_deriv": "(g)",
    "conv_input_deriv": "(w, g, *, input_shape, stride=1, padding=0, dilation=1, groups=1)",
    "conv_transpose_backward": "(x, w, g, *, stride=1, padding=0, output_padding=0, dilation=1, groups=1)",
    "conv_transpose_kernel_deriv": "(x, g, *, kernel, stride=1, padding=0, output_padding=0, dilation=1, groups=1)",
    "conv_transpose_bias_deriv": "(g)",
    "conv_transpose_input_deriv": "(w, g, *, stride=1, padding=0, output_padding=0, dilation=1, groups=1)",
    "conv2d": "(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1)",
    "conv2d_input_deriv": "(w, g, *, input_shape, stride=1, padding=0, dilation=1, groups=1)",
    "conv_out_dim": "(n, k, s, p)",
    "conv_transpose_out_dim": "(n, k, s, p)",
    "max_pool_backward": "(x, g, kernel, *, stride, padding=0)",
    "avg_pool_backward": "(g, kernel, *, input_shape, stride, padding=0)",
    "smooth_max_pool_backward": "(x, g, kernel, *, beta, stride, padding=0)",
    "max_pool2d": "(x, kernel, *, stride)",
    "max_pool2d_jvp": "(x, t, kernel, *, stride)",
    "max_pool2d_backward_pad": "(x, g, kernel, *, stride, padding)",
    "avg_pool2d_backward": "(g, kernel, *, input_shape, stride)",
    "smooth_max_pool2d_jvp": "(x, t, kernel, *, beta, stride)",
    "pool2d_out_shape": "(h, w, kh, kw, stride)",
    "adaptive_start": "(n, m, o)",
    "adaptive_end": "(n, m, o)",
    "global_max_pool2d_backward_distributed": "(x, g)",
    "global_pool2d_out_shape": "(c)",
}


@pytest.mark.parametrize("name", seeds.SEEDS)
def test_every_function_has_a_signature_and_one_line_that_says_what_it_does(name: str) -> None:
    function = getattr(spec, name)
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    assert all(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
    assert name not in SIGNATURES or str(inspect.Signature(parameters)) == SIGNATURES[name]
    assert function.__name__ == name and function.__doc__ and "\n" not in function.__doc__


def test_the_signatures_of_the_contract_are_all_checked() -> None:
    assert set(SIGNATURES) <= set(seeds.SEEDS)


# ---- convolution

CONVS = [
    ((2, 5), (3, 2, 3), {"stride": 2, "padding": 1}),
    ((4, 6), (2, 2, 2), {"dilation": 2, "groups": 2, "padding": ((0, 1),)}),
    ((2, 4, 5), (3, 2, 2, 3), {"stride": 2, "padding": 1}),
    ((1, 4, 5), (2, 1, 3, 3), {"padding": "same"}),
    ((3,), (2, 3), {}),
]
TRANSPOSED = [
    ((2, 3), (2, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 3), (1, 1, 2), {"stride": 2, "dilation": 4, "output_padding": 3}),
    ((4, 2), (4, 1, 2), {"groups": 2, "stride": 3, "output_padding": 1}),
    ((2, 2, 3), (2, 1, 3, 2), {"stride": 2, "padding": 1}),
    ((1, 3, 2), (1, 1, 3, 4), {"stride": 2, "padding": "same"}),
    ((1, 1), (1, 1, 3), {"padding": 1}),
]
EVERY_CONV = [("conv", *c) for c in CONVS] + [("conv_transpose", *c) for c in TRANSPOSED]


@pytest.mark.parametrize(("op", "x_shape", "w_shape", "options"), EVERY_CONV)
@given(draws)
def test_the_gradients_of_a_convolution_are_adjoint(
    op: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any], draw: int
) -> None:
    rng = np.random.default_rng(draw)
    x, w = rationals(rng, *x_shape), rationals(rng, *w_shape)
    channels = w_shape[0] if op == "conv" else w_shape[1] * options.get("groups", 1)
    b, tb = rationals(rng, channels), rationals(rng, channels)
    tx, tw = rationals(rng, *x_shape), rationals(rng, *w_shape)
    y = getattr(spec, op)(x, w, b, **options)
    g = rationals(rng, *y.shape)
    dw, db, dx = getattr(spec, f"{op}_backward")(x, w, g, **options)
    slope = getattr(spec, f"{op}_jvp")((x, w, b), (tx, tw, tb), **options)
    assert dot(slope, g) == dot(tx, dx) + dot(tw, dw) + dot(tb, db)
    want_x, want_w, want_b = getattr(spec, f"{op}_vjp")((x, w, b), g, **options)
    assert same(dx, want_x) and same(dw, want_w) and same(db, want_b)
    # One at a time, from no more than each of them needs.
    assert same(getattr(spec, f"{op}_kernel_deriv")(x, g, kernel=w_shape[2:], **options), dw)
    assert same(getattr(spec, f"{op}_bias_deriv")(g), db)
    if op == "conv":
        for input_shape in (x_shape, x_shape[1:]):
            assert same(spec.conv_input_deriv(w, g, input_shape=input_shape, **options), dx)
    else:
        assert same(spec.conv_transpose_input_deriv(w, g, **options), dx)
    if len(x_shape) == 3:
        planar_agrees(op, x, w, b, g, options)


def planar_agrees(op: str, x: Array, w: Array, b: Array, g: Array, options: dict[str, Any]) -> None:
    dw, db, dx = getattr(spec, f"{op}_backward")(x, w, g, **options)
    assert same(getattr(spec, f"{op}2d")(x, w, b, **options), getattr(spec, op)(x, w, b, **options))
    assert all(map(same, getattr(spec, f"{op}2d_backward")(x, w, g, **options), (dw, db, dx)))
    assert same(getattr(spec, f"{op}2d_bias_deriv")(g), db)
    kernel_deriv = "conv2d_kernel_deriv" if op == "conv" else "conv_transpose2d_weights_deriv"
    assert same(getattr(spec, kernel_deriv)(x, g, kernel=w.shape[2:], **options), dw)
    shape = {"input_shape": x.shape[1:]} if op == "conv" else {}
    assert same(getattr(spec, f"{op}2d_input_deriv")(w, g, **shape, **options), dx)


def test_one_kernel_size_serves_every_axis() -> None:
    x, g = [[[1, 2, 3], [4, 5, 6], [7, 8, 9]]], [[[1, 0], [0, 1]]]
    assert spec.conv_kernel_deriv(x, g, kernel=2).tolist() == [[[[6, 8], [12, 14]]]]
    assert spec.conv2d_kernel_deriv(x, g, kernel=2).tolist() == [[[[6, 8], [12, 14]]]]
    assert spec.max_pool2d(x, 2, stride=1).tolist() == spec.max_pool2d(x, (2, 2), stride=1).tolist()


@pytest.mark.parametrize(
    "number", [int, float, np.float32, Fraction, Decimal, complex, flint.fmpq, ln.Dual, ln.Interval]
)
def test_any_number_type_goes_in_and_object_arrays_come_out(number: Callable[[int], Any]) -> None:
    x, w, g = [[number(1), number(2), number(3)]], [[[number(1), number(-1)]]], [[number(1), number(2)]]
    for result in (
        *spec.conv_backward(x, w, g),
        spec.conv_kernel_deriv(x, g, kernel=2),
        spec.conv_bias_deriv(g),
        spec.conv_input_deriv(w, g, input_shape=(3,)),
        spec.conv_transpose_input_deriv(w, g),
        spec.avg_pool_backward(g, 2, input_shape=(3,), stride=1),
    ):
        assert isinstance(result, np.ndarray) and result.dtype == object


# ---- pools

POOLS: list[tuple[tuple[int, ...], tuple[int, ...], int | tuple[int, ...], Any]] = [
    ((5,), (2,), 2, 0),
    ((4, 5), (2, 3), 1, 0),
    ((3, 4), (2, 2), 2, 1),
    ((3, 4), (3, 2), (1, 2), (1, 0)),
    ((2, 3, 2), (2, 2, 1), 1, 0),
]
every_pool = pytest.mark.parametrize(("space", "kernel", "stride", "padding"), POOLS)
both_ranks = pytest.mark.parametrize("channels", [(), (2,)], ids=["one_channel", "channels"])


@both_ranks
@every_pool
@given(draws)
def test_the_gradients_of_a_pool_are_adjoint(
    space: tuple[int, ...], kernel: Any, stride: Any, padding: Any, channels: tuple[int, ...], draw: int
) -> None:
    rng = np.random.default_rng(draw)
    x, t = rationals(rng, *channels, *space), rationals(rng, *channels, *space)
    options = {"stride": stride, "padding": padding}
    out = spec.pool_out_spatial_pad(space, kernel, stride, padding)
    g = rationals(rng, *channels, *out)
    dx = spec.max_pool_backward(x, g, kernel, **options)
    assert same(dx, spec.max_pool_vjp((x,), g, kernel=kernel, **options)[0])
    assert dot(spec.max_pool_jvp((x,), (t,), kernel=kernel, **options), g) == dot(t, dx)
    for input_shape in (space, x.shape):
        dx = spec.avg_pool_backward(g, kernel, input_shape=input_shape, **options)
        assert same(dx, spec.avg_pool_vjp((x,), g, kernel=kernel, **options)[0])
        assert dot(spec.avg_pool(t, kernel, **options), g) == dot(t, dx)
    beta = flint.arb(-1)
    dx = spec.smooth_max_pool_backward(balls(x), balls(g), kernel, beta=beta, **options)
    slope = spec.smooth_max_pool_jvp((balls(x), beta), (balls(t), None), kernel=kernel, **options)
    gap = dot(slope, balls(g)) - dot(balls(t), dx)
    assert gap.contains(0) and abs(gap).upper() < 1e-9


@both_ranks
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 1, 0), ((2, 3), 2, 0), (3, 2, 1), ((1, 2), 1, 0)])
@given(draws)
def test_a_2d_pool_is_the_pool_with_two_axes(
    kernel: Any, stride: int, padding: int, channels: tuple[int, ...], draw: int
) -> None:
    rng = np.random.default_rng(draw)
    x, t = rationals(rng, *channels, 4, 5), rationals(rng, *channels, 4, 5)
    pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    nd: dict[str, Any] = {"kernel": pair, "stride": stride, "padding": padding}
    g = rationals(rng, *spec.max_pool(x, **nd).shape)
    pad, options = ("_pad", {"stride": stride, "padding": padding}) if padding else ("", {"stride": stride})
    assert same(getattr(spec, f"max_pool2d{pad}")(x, kernel, **options), spec.max_pool(x, **nd))
    assert same(getattr(spec, f"max_pool2d_jvp{pad}")(x, t, kernel, **options), spec.max_pool_jvp((x,), (t,), **nd))
    assert same(
        getattr(spec, f"max_pool2d_backward{pad}")(x, g, kernel, **options), spec.max_pool_vjp((x,), g, **nd)[0]
    )
    assert same(getattr(spec, f"avg_pool2d{pad}")(x, kernel, **options), spec.avg_pool(x, **nd))
    for input_shape in ((4, 5), x.shape):
        back = getattr(spec, f"avg_pool2d_backward{pad}")(g, kernel, input_shape=input_shape, **options)
        assert same(back, spec.avg_pool_vjp((x,), g, **nd)[0])
    if not padding:
        f, tf, gf = (each(float, a) for a in (x, t, g))
        assert same(spec.smooth_max_pool2d(f, kernel, beta=2, **options), spec.smooth_max_pool(f, beta=2, **nd))
        jvp = spec.smooth_max_pool2d_jvp(f, tf, kernel, beta=2, **options)
        assert same(jvp, spec.smooth_max_pool_jvp((f, 2), (tf, None), **nd))
        back = spec.smooth_max_pool2d_backward(f, gf, kernel, beta=2, **options)
        assert same(back, spec.smooth_max_pool_vjp((f, 2), gf, **nd)[0])


@given(draws)
def test_the_winner_is_the_greatest_cell_of_its_window(draw: int) -> None:
    """By brute force, on distinct cells in any order: the adjoint law alone would not notice a wrong winner."""
    rng = np.random.default_rng(draw)
    x = rng.permutation(20).reshape(4, 5).astype(object)
    t = rationals(rng, 4, 5)
    y, slope = spec.max_pool2d(x, (2, 3), stride=1), spec.max_pool2d_jvp(x, t, (2, 3), stride=1)
    back = np.full((4, 5), 0, object)
    for o, p in np.ndindex(3, 3):
        i, j = max(product(range(o, o + 2), range(p, p + 3)), key=lambda cell: x[cell])
        assert y[o, p] == x[i, j] and slope[o, p] == t[i, j]
        back[i, j] += 1
    assert same(spec.max_pool2d_backward(x, np.full((3, 3), 1, object), (2, 3), stride=1), back)


@both_ranks
@pytest.mark.parametrize("output_size", [1, 3, (2, 5), (None, 2)])
@given(draws)
def test_adaptive_2d_pools_read_the_bins(output_size: Any, channels: tuple[int, ...], draw: int) -> None:
    x = rationals(np.random.default_rng(draw), *channels, 3, 4)
    pair = output_size if isinstance(output_size, tuple) else (output_size, output_size)
    average, greatest = spec.adaptive_avg_pool2d(x, output_size), spec.adaptive_max_pool2d(x, output_size)
    assert same(average, spec.adaptive_avg_pool(x, pair)) and same(greatest, spec.adaptive_max_pool(x, pair))
    m = average.shape[-2:]
    for o in np.ndindex(*m):
        bins = zip((3, 4), m, o, strict=True)
        rows, columns = (slice(spec.adaptive_start(*b), spec.adaptive_end(*b)) for b in bins)
        cells = x[..., rows, columns]
        count = cells.shape[-1] * cells.shape[-2]
        assert same(average[..., o[0], o[1]], cells.sum(axis=(-2, -1)) / Fraction(count))
        assert same(greatest[..., o[0], o[1]], cells.max(axis=(-2, -1)))


@both_ranks
@given(draws)
def test_global_2d_pools_are_the_global_pools(channels: tuple[int, ...], draw: int) -> None:
    rng = np.random.default_rng(draw)
    x, t = rationals(rng, *channels, 2, 3), rationals(rng, *channels, 2, 3)
    g = rationals(rng, *channels, 1, 1)
    flat_g = g[..., 0, 0]
    for op in ("global_avg_pool", "global_max_pool"):
        kept = getattr(spec, op)(x, spatial=2)
        assert same(getattr(spec, f"{op}2d")(x), kept) and kept.shape == (*channels, 1, 1)
        assert same(getattr(spec, f"{op}2d_flat")(x), kept[..., 0, 0])
    for input_shape in ((2, 3), x.shape):
        back = spec.global_avg_pool2d_backward(g, input_shape=input_shape)
        assert same(back, spec.global_avg_pool2d_flat_backward(flat_g, input_shape=input_shape))
        assert dot(spec.global_avg_pool2d(t), g) == dot(t, back)
    back = spec.global_max_pool2d_backward(x, g)
    assert same(back, spec.global_max_pool2d_flat_backward(x, flat_g))
    assert dot(spec.global_max_pool_jvp((x,), (t,), spatial=2), g) == dot(t, back)
    split = spec.global_max_pool2d_backward_distributed(x, g)
    assert dot(spec.global_max_pool_jvp((x,), (t,), spatial=2, ties="split"), g) == dot(t, split)
    assert same(split.sum(axis=(-2, -1)), flat_g)
    assert same(spec.global_pool2d1x1(x, spec.channel_spatial_max), spec.global_max_pool2d(x))
    assert same(
        spec.global_pool2d_flat(x, lambda c: spec.reduce_spatial(c, 0, lambda a, b: a + b) / 6),
        spec.global_avg_pool2d_flat(x),
    )


def test_global_helpers() -> None:
    plane = [[1, 2], [3, 4]]
    assert spec.reduce_spatial(plane, "", lambda seen, v: f"{seen}{v}") == "1234"
    assert spec.global_channel_reduce(plane, 10, lambda a, b: a - b) == 0
    assert spec.reduce_spatial(np.empty((0, 3), object), 7, max) == 7
    assert spec.channel_spatial_max(plane) == 4
    assert spec.broadcast_scalar1x1(Fraction(1, 3)).tolist() == [[Fraction(1, 3)]]
    assert spec.global_pool2d_flat([plane, plane], lambda c: c[0, 1]).tolist() == [2, 2]
    assert spec.global_pool2d_flat(np.empty((0, 2, 2), object), sum).shape == (0,)
    with pytest.raises(ln.ShapeError, match="W7"):
        spec.channel_spatial_max(np.empty((0, 2), object))


# ---- sizes


@pytest.mark.parametrize(("n", "k", "s", "p"), list(product((1, 2, 5), (1, 2, 3), (1, 2, 3), (0, 1, 2))))
def test_sizes_count_the_windows(n: int, k: int, s: int, p: int) -> None:
    starts = range(-p, n + p - k + 1, s)
    if starts:
        assert spec.conv_out_dim(n, k, s, p) == len(starts) == spec.conv_out_spatial((n,), k, s, p)[0]
    else:
        with pytest.raises(ln.ShapeError, match="W2"):
            spec.conv_out_dim(n, k, s, p)
    grown = (n - 1) * s + k - 2 * p
    if grown >= 1:
        assert spec.conv_transpose_out_dim(n, k, s, p) == grown
    else:
        with pytest.raises(ln.ShapeError, match="W9"):
            spec.conv_transpose_out_dim(n, k, s, p)


def test_a_2d_shape_is_the_nd_shape() -> None:
    for h, w, kh, kw, s, p in product((3, 6), (4, 5), (1, 3), (2, 3), (1, 2), (0, 1)):
        n, k = (h, w), (kh, kw)
        plane = (h, w, kh, kw, s)
        sliding, grown = (
            spec.conv_out_spatial(n, k, (s, s), (p, p)),
            spec.conv_transpose_out_spatial(n, k, (s, s), (p, p)),
        )
        assert sliding == ((h + 2 * p - kh) // s + 1, (w + 2 * p - kw) // s + 1)
        assert grown == ((h - 1) * s - 2 * p + kh, (w - 1) * s - 2 * p + kw)
        assert spec.conv2d_out_shape(*plane, p) == spec.conv_out_shape(n, k, s, p) == sliding
        assert (
            spec.conv2d_multi_out_shape(7, 8, *plane, p) == spec.conv_multi_out_shape(7, 8, n, k, s, p) == (8, *sliding)
        )
        assert spec.conv_transpose2d_out_shape(*plane, p) == spec.conv_transpose_out_shape(n, k, s, p) == grown
        many = spec.conv_transpose2d_multi_out_shape(7, 8, *plane, p)
        assert many == spec.conv_transpose_multi_out_shape(7, 8, n, k, s, p) == (8, *grown)
        assert spec.pool2d_out_shape_pad(*plane, p) == spec.pool_out_shape_pad(n, k, s, p) == sliding
        assert (
            spec.pool2d_multi_out_shape_pad(7, *plane, p)
            == spec.pool_multi_out_shape_pad(7, n, k, s, p)
            == (7, *sliding)
        )
        valid = spec.conv_out_spatial(n, k, s, 0)
        assert spec.pool2d_out_shape(*plane) == spec.pool_out_shape(n, k, s) == spec.pool_out_spatial(n, k, s) == valid
        assert spec.pool2d_multi_out_shape(7, *plane) == spec.pool_multi_out_shape(7, n, k, s) == (7, *valid)
    assert spec.global_pool2d_out_shape(5) == (5, 1, 1) and spec.global_pool2d_flat_out_shape(5) == (5,)


def test_a_unit_kernel_keeps_every_size() -> None:
    assert spec.conv_out_spatial((1, 4, 9), (1, 1, 1), (1, 1, 1), (0, 0, 0)) == (1, 4, 9)


def test_a_kernel_of_the_whole_extent_is_global() -> None:
    x = [[[1, 5, 2], [4, 0, 3]]]
    assert spec.pool_out_spatial_pad((2, 3), (2, 3), 1, 0) == (1, 1)
    assert spec.avg_pool2d(x, (2, 3), stride=1).tolist() == spec.global_avg_pool2d(x).tolist() == [[[Fraction(5, 2)]]]
    assert spec.max_pool2d(x, (2, 3), stride=1).tolist() == spec.global_max_pool2d(x).tolist() == [[[5]]]


def test_cells_are_visited_in_row_major_order() -> None:
    window = Window.sliding((2, 3), (2, 2), 1)
    assert [i for _, i in window.taps((0, 1), (2, 3))] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert spec.max_pool2d([[0, 1], [2, 3]], 1, stride=1).tolist() == [[0, 1], [2, 3]]


# ---- vectors: computed by hand or published, never by this library


def test_max_pools_route_to_the_first_greatest_cell() -> None:
    one = [[1]]
    assert spec.max_pool2d([[0, 0], [7, 1]], 2, stride=1).tolist() == [[7]]
    assert spec.max_pool2d_backward([[0, 0], [7, 1]], one, 2, stride=1).tolist() == [[0, 0], [1, 0]]
    assert spec.max_pool2d_jvp([[0, 0], [7, 1]], [[1, 2], [3, 4]], 2, stride=1).tolist() == [[3]]
    assert spec.max_pool2d([[1, 5, 3]], (1, 3), stride=1).tolist() == [[5]]
    assert spec.max_pool2d_backward([[1, 5, 3]], one, (1, 3), stride=1).tolist() == [[0, 1, 0]]
    assert spec.max_pool2d_backward([[0, 5, 5]], one, (1, 3), stride=1).tolist() == [[0, 1, 0]]
    assert spec.max_pool([[1, 5, 3]], (3,), return_indices=True)[1].tolist() == [[1]]
    assert spec.max_pool([[0, 5, 5]], (3,), return_indices=True)[1].tolist() == [[1]]


@pytest.mark.parametrize("d", [2, 3])
def test_padding_never_wins(d: int) -> None:
    x = np.full((1,) * d, -3, object)
    y = spec.max_pool(x, (2,) * d, stride=1, padding=1)
    assert y.shape == (2,) * d and all(v == -3 for v in y.flat)
    back = spec.max_pool_backward(x, np.full(y.shape, 1, object), (2,) * d, stride=1, padding=1)
    assert back.tolist() == np.full((1,) * d, 2**d).tolist()


def test_padding_is_absent() -> None:
    assert spec.max_pool2d_pad([[-3]], 2, stride=1, padding=1).tolist() == [[-3, -3], [-3, -3]]
    assert spec.max_pool2d_jvp_pad([[-3]], [[5]], 2, stride=1, padding=1).tolist() == [[5, 5], [5, 5]]
    assert spec.max_pool2d_backward_pad([[-3]], [[1, 1], [1, 1]], 2, stride=1, padding=1).tolist() == [[4]]
    assert spec.avg_pool2d_pad([[4]], 2, stride=1, padding=1).tolist() == [[1, 1], [1, 1]]
    assert spec.avg_pool2d_pad([[1, 2], [3, 4]], 3, stride=1, padding=1).tolist() == [[Fraction(10, 9)] * 2] * 2
    ones = [[1, 1], [1, 1]]
    assert spec.avg_pool2d_backward_pad(ones, 2, input_shape=(1, 1), stride=1, padding=1).tolist() == [[1]]
    assert spec.conv2d([[[1.0]]], [[[[math.inf] * 3] * 3]], padding=1).tolist() == [[[math.inf]]]


def test_smooth_max_values() -> None:
    window = [[1.0, 2.0], [3.0, 4.0]]
    assert close(spec.smooth_max_pool2d(window, 2, beta=1, stride=1), [[4.440189698561196]], 1e-15)
    assert 4 <= 4.440189698561196 <= 4 + math.log(4) and close(4 + math.log(4), 5.38629, 1e-6)
    weights = [[0.0320586, 0.0871443], [0.2368828, 0.6439143]]
    assert close(spec.smooth_max_pool2d_backward(window, [[1.0]], 2, beta=1, stride=1), weights, 1e-6)
    for beta, value in ((1, 1.1150717745), (10, 0.1098612289)):
        y = spec.smooth_max_pool([[-3.0]], (2, 2), beta=beta, stride=1, padding=1)
        assert close(y, [[value] * 2] * 2)
    for beta, value in ((2, 3.0714658142), (-2, 0.9285341858)):
        assert close(spec.smooth_max_pool([[1.0, 2.0, 3.0]], (3,), beta=beta), [[value]])


def test_adaptive_vectors() -> None:
    bins = [(spec.adaptive_start(5, 3, o), spec.adaptive_end(5, 3, o)) for o in range(3)]
    assert bins == [(0, 2), (1, 4), (3, 5)]
    x = [[1, 2, 3, 4, 5]]
    assert spec.adaptive_avg_pool2d(x, (1, 3)).tolist() == [[Fraction(3, 2), 3, Fraction(9, 2)]]
    assert spec.adaptive_max_pool2d(x, (1, 3)).tolist() == [[2, 4, 5]]
    assert spec.adaptive_avg_pool2d([[10, 20]], (1, 5)).tolist() == [[10, 10, 15, 20, 20]]
    assert [spec.adaptive_end(2, 5, o) - spec.adaptive_start(2, 5, o) for o in range(5)] == [1, 1, 2, 1, 1]


def test_bins_cover_the_input_and_differ_by_one_cell_at_most() -> None:
    for n, m in product(range(1, 40), range(1, 60)):
        starts = [spec.adaptive_start(n, m, o) for o in range(m)]
        ends = [spec.adaptive_end(n, m, o) for o in range(m)]
        lengths = {e - s for s, e in zip(starts, ends, strict=True)}
        assert starts[0] == 0 and ends[-1] == n and min(lengths) >= 1 and max(lengths) - min(lengths) <= 1
        assert all(s <= e for s, e in zip(starts[1:], ends[:-1], strict=True))


def test_convolution_vectors() -> None:
    x, w = [[1, 2, 3, 4, 5]], [[[1, 0, -1]]]
    assert spec.conv(x, w, [Fraction(1, 2)], stride=2, padding=1).tolist() == [[-1.5, -1.5, 4.5]]
    x, w = [[1, 2, 3]], [[[1, 10, 100]]]
    assert spec.conv_transpose(x, w, stride=2).tolist() == [[1, 10, 102, 20, 203, 30, 300]]
    assert spec.conv_transpose(x, w, stride=2, padding=1).tolist() == [[10, 102, 20, 203, 30]]


def test_global_max_ties() -> None:
    x, g = [[[2, 2], [1, 2]]], [[[6]]]
    assert spec.global_max_pool2d_backward(x, g).tolist() == [[[6, 6], [0, 6]]]
    assert spec.global_max_pool2d_flat_backward(x, [6]).tolist() == [[[6, 6], [0, 6]]]
    assert spec.global_max_pool2d_backward_distributed(x, g).tolist() == [[[2, 2], [0, 2]]]
    assert spec.global_max_pool_vjp((x,), g, spatial=2, ties="first")[0].tolist() == [[[6, 0], [0, 0]]]


def test_the_increasing_plane_of_upstreams_tests() -> None:
    plane = [[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]
    ones = [[[1, 1], [1, 1]]]
    assert spec.max_pool2d(plane, 2, stride=1).tolist() == [[[5, 6], [8, 9]]]
    assert spec.max_pool2d_backward(plane, ones, 2, stride=1).tolist() == [[[0, 0, 0], [0, 1, 1], [0, 1, 1]]]
    assert spec.avg_pool2d(plane, 2, stride=1).tolist() == [[[3, 4], [6, 7]]]
    shares = spec.avg_pool2d_backward(ones, 2, input_shape=(3, 3), stride=1)
    assert (4 * shares).tolist() == [[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]
    rise = 2 * math.log(1 + math.exp(0.5) + math.exp(1.5) + math.exp(2))  # cells a, a+1, a+3, a+4 at beta 1/2
    y = spec.smooth_max_pool2d(each(float, np.array(plane, object)), 2, beta=0.5, stride=1)
    assert close(y, [[[1 + rise, 2 + rise], [4 + rise, 5 + rise]]], 1e-14)
    cube = np.arange(1, 28).astype(object).reshape(1, 3, 3, 3)
    assert spec.max_pool(cube, (2, 2, 2), stride=1).flat[0] == 14
    assert spec.avg_pool(cube, (2, 2, 2), stride=1).flat[0] == Fraction(15, 2)


# ---- departures


def test_a_window_that_does_not_fit_is_refused() -> None:
    image = [[1, 2], [3, 4]]
    calls: list[Callable[[], Any]] = [
        lambda: spec.conv_out_dim(2, 3, 1, 0),
        lambda: spec.pool2d_out_shape(2, 2, 3, 3, 1),
        lambda: spec.pool_out_spatial((2, 2), 3, 1),
        lambda: spec.max_pool2d(image, 3, stride=1),
        lambda: spec.avg_pool2d(image, 3, stride=1),
        lambda: spec.smooth_max_pool2d([[1.0]], 2, beta=1, stride=1),
        lambda: spec.conv2d([image], [[[[1] * 3] * 3]]),
        lambda: spec.avg_pool2d_backward([[1]], 3, input_shape=(2, 2), stride=1),
        lambda: spec.conv_kernel_deriv([[1, 2]], [[1]], kernel=2**60),
    ]
    for call in calls:
        with pytest.raises(ln.ShapeError, match="W2"):
            call()
    for size in (spec.conv_out_dim, spec.conv_transpose_out_dim):
        with pytest.raises(ln.ArgumentError, match="W1"):
            size(2, 1, 0, 0)


def test_small_transposed_sizes_are_true() -> None:
    assert spec.conv_transpose_out_dim(1, 3, 1, 1) == 1
    assert spec.conv_transpose2d_out_shape(1, 1, 3, 3, 1, 1) == (1, 1)
    assert spec.conv_transpose2d([[[2]]], [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], padding=1).tolist() == [[[10]]]
    with pytest.raises(ln.ShapeError, match="W9"):
        spec.conv_transpose_out_dim(1, 3, 1, 2)
    with pytest.raises(ln.ShapeError, match="W7"):
        spec.conv_transpose_out_dim(0, 3, 1, 0)


@pytest.mark.parametrize("size", [1e3, -1e3, 1e300, -1e300])
def test_smooth_max_neither_overflows_nor_underflows(size: float) -> None:
    y = spec.smooth_max_pool2d([[size, size]], (1, 2), beta=1, stride=1)
    assert close(y, [[size + math.log(2)]], 1e-15)
    assert spec.smooth_max_pool2d_backward([[size, size]], [[1.0]], (1, 2), beta=1, stride=1).tolist() == [[0.5, 0.5]]
    assert spec.smooth_max_pool2d_jvp([[size, size]], [[1.0, 3.0]], (1, 2), beta=1, stride=1).tolist() == [[2.0]]


@pytest.mark.parametrize("beta", [0, 0.0, math.inf, math.nan])
def test_beta_is_finite_and_not_zero(beta: float) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: spec.smooth_max_pool2d([[1.0]], 1, beta=beta, stride=1),
        lambda: spec.smooth_max_pool2d_jvp([[1.0]], [[1.0]], 1, beta=beta, stride=1),
        lambda: spec.smooth_max_pool_backward([[1.0]], [[1.0]], (1, 1), beta=beta, stride=1),
    ]
    for call in calls:
        with pytest.raises(ln.ArgumentError, match="S1"):
            call()


def test_a_window_of_padding_alone_has_no_maximum() -> None:
    with pytest.raises(ln.ShapeError, match="M1"):
        spec.max_pool2d_pad([[1]], 1, stride=1, padding=1)
    assert spec.avg_pool2d_pad([[1]], 1, stride=1, padding=1).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_nan_wins() -> None:
    x = [[1.0, math.nan], [3.0, 2.0]]
    assert math.isnan(spec.max_pool2d(x, 2, stride=1)[0, 0]) and math.isnan(spec.channel_spatial_max(x))
    assert spec.max_pool2d_backward(x, [[5.0]], 2, stride=1).tolist() == [[0, 5], [0, 0]]
    assert spec.global_max_pool2d_backward(x, [[5.0]]).tolist() == [[0, 5], [0, 0]]


# ---- refusals

REFUSED: list[tuple[str, type[ln.LunetteError], str, Callable[[], Any]]] = [
    ("conv_out_dim", ln.ArgumentError, "F1", lambda: spec.conv_out_dim(-1, 1, 1, 1)),
    ("conv_out_spatial", ln.ArgumentError, "F1", lambda: spec.conv_out_spatial(3, 1, 1, 1)),
    ("pool_multi_out_shape", ln.ArgumentError, "F1", lambda: spec.pool_multi_out_shape(-1, (3,), 1, 1)),
    ("conv_out_dim", ln.DTypeError, "W4", lambda: spec.conv_out_dim(3, 1.5, 1, 1)),
    ("conv_out_spatial", ln.ArgumentError, "W4", lambda: spec.conv_out_spatial((3, 3), (1, 1, 1), 1, 0)),
    (
        "avg_pool_backward",
        ln.ShapeError,
        "F2",
        lambda: spec.avg_pool_backward([[1]], 1, input_shape=(1, 1, 1), stride=1),
    ),
    ("avg_pool", ln.ShapeError, "D7", lambda: spec.avg_pool_backward([[1]], 1, input_shape=(2,), stride=1)),
    ("avg_pool_backward", ln.ArgumentError, "F1", lambda: spec.avg_pool_backward([[1]], 1, input_shape=3, stride=1)),
    (
        "avg_pool_backward",
        ln.ShapeError,
        "N6",
        lambda: spec.avg_pool_backward([[1]], 1, input_shape=(2**60,), stride=1),
    ),
    ("conv_input_deriv", ln.ShapeError, "F2", lambda: spec.conv_input_deriv([[[1]]], [[1]], input_shape=(1, 1, 1))),
    ("conv_input_deriv", ln.ShapeError, "C1", lambda: spec.conv_input_deriv([1], [[1]], input_shape=(1,))),
    ("conv", ln.ArgumentError, "C2", lambda: spec.conv_input_deriv([[[1]]], [[1]], input_shape=(1,), groups=0)),
    ("conv", ln.ArgumentError, "C2", lambda: spec.conv_kernel_deriv([[1]], [[1]], kernel=1, groups=0)),
    ("conv", ln.ShapeError, "D7", lambda: spec.conv_backward([[1, 2]], [[[1]]], [[1]])),
    ("conv_kernel_deriv", ln.ShapeError, "F3", lambda: spec.conv_kernel_deriv([1, 2], [[1]], kernel=(1,))),
    ("conv_kernel_deriv", ln.ArgumentError, "W1", lambda: spec.conv_kernel_deriv([[1]], [[1]], kernel=0)),
    ("conv_bias_deriv", ln.ShapeError, "F3", lambda: spec.conv_bias_deriv(1)),
    ("conv_transpose_input_deriv", ln.ShapeError, "F3", lambda: spec.conv_transpose_input_deriv([[[1]]], [1])),
    ("conv_transpose", ln.ShapeError, "D7", lambda: spec.conv_transpose_input_deriv([[[1]]], [[1, 2]], stride=2)),
    ("conv2d", ln.ShapeError, "F3", lambda: spec.conv2d([[1]], [[[1]]])),
    ("conv2d", ln.DTypeError, "W4", lambda: spec.conv2d([[[1]]], [[[[1]]]], stride=(1, 1))),
    ("conv2d_backward", ln.ShapeError, "F3", lambda: spec.conv2d_backward([[1]], [[[1]]], [[1]])),
    ("conv_transpose2d_bias_deriv", ln.ShapeError, "F3", lambda: spec.conv_transpose2d_bias_deriv([[1]])),
    ("conv2d_kernel_deriv", ln.ArgumentError, "W4", lambda: spec.conv2d_kernel_deriv([[[1]]], [[[1]]], kernel=(1,))),
    ("max_pool2d", ln.ArgumentError, "W4", lambda: spec.max_pool2d([[1]], (1, 1, 1), stride=1)),
    ("max_pool2d", ln.DTypeError, "W4", lambda: spec.max_pool2d([[1]], 1, stride=(1, 1))),
    ("max_pool2d", ln.DTypeError, "W4", lambda: spec.max_pool2d([[1]], 1, stride=None)),
    ("max_pool", ln.ShapeError, "W3", lambda: spec.max_pool2d([1], 1, stride=1)),
    ("max_pool", ln.ShapeError, "W3", lambda: spec.max_pool2d([[[[1]]]], 1, stride=1)),
    ("adaptive_avg_pool", ln.ArgumentError, "W8", lambda: spec.adaptive_avg_pool2d([[1]], 0)),
    ("adaptive_start", ln.ArgumentError, "F4", lambda: spec.adaptive_start(5, 3, 3)),
    ("adaptive_end", ln.ShapeError, "W7", lambda: spec.adaptive_end(0, 3, 0)),
    ("adaptive_end", ln.ArgumentError, "W8", lambda: spec.adaptive_end(3, 0, 0)),
    ("reduce_spatial", ln.ShapeError, "F3", lambda: spec.reduce_spatial([1], 0, max)),
    ("broadcast_scalar1x1", ln.ShapeError, "F3", lambda: spec.broadcast_scalar1x1([1])),
    ("global_pool2d_flat", ln.ShapeError, "F3", lambda: spec.global_pool2d_flat([[[1]]], lambda c: c)),
    ("global_avg_pool", ln.ShapeError, "D7", lambda: spec.global_avg_pool2d_backward([[1]], input_shape=(1, 1, 1))),
]


@pytest.mark.parametrize(("who", "error", "rule", "call"), REFUSED)
def test_refusals_name_who_refuses_and_why(
    who: str, error: type[ln.LunetteError], rule: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert (caught.value.who, caught.value.rule) == (who, rule)
    if "2d" in who:
        assert caught.value.d == 2
