"""Records of winners: the first winner of every window, and the derivatives that are made of nothing else.

The specification says which cell wins, and derivatives that look for the winners anew say what these must be: equal
where a cell has one term at most, within the bound of a sum where it has more. LUNETTE_ISA chooses the instruction set.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from configurations import random_case
from effort import LONG
from lunette.arithmetic.error import float_info, gamma, height
from lunette.array import Recorder, defaults_of, recorder_of, resolve_named
from lunette.number import Array, cells_of, place
from lunette.op import Case
from lunette.ops import ALL, AdaptiveMaxPool, GlobalMaxPool, MaxPool
from lunette.ops.winners import vjp_from, winners_of

pytestmark = pytest.mark.kernels

KINDS = (MaxPool, AdaptiveMaxPool, GlobalMaxPool)
CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in KINDS for k, c in kind.cases.items()]
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
every_dtype = pytest.mark.parametrize("dtype", [pytest.param(t, id=np.dtype(t).name) for t in DTYPES])
SEEDS = {t: range(0 if LONG else at % 2, 6, 1 if LONG else 2) for at, t in enumerate(DTYPES)}
"""Kinds of data: all of them by night, and by day half for each dtype."""
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    ln.set_num_threads(2)


def first(case: Case) -> Case:
    """The case with the tie rule that a record serves."""
    return Case(case.shapes, {**case.options, "ties": "first"})


def recorder(kind: type[MaxPool], case: Case, shape: tuple[int, ...], dtype: Any) -> Recorder | None:
    options = {**defaults_of(ALL[kind], kind), **case.options}
    return recorder_of(kind, shape, np.dtype(dtype), tuple(options.values()), anyway=True)


def data(shape: tuple[int, ...], seed: int, dtype: Any) -> Array:
    """Few different numbers, so that there are ties, zeros of both signs, infinities; and NaN in some arrays."""
    rng = np.random.default_rng(seed)
    kinds = (
        rng.standard_normal(shape),
        rng.integers(-2, 3, shape).astype(float),
        rng.choice([-0.0, 0.0, -1.0], shape),
        rng.choice([-inf, -inf, -inf, 1.0], shape),
        rng.choice([-inf, nan, 0.0, 2.0, inf], shape, p=[0.3, 0.05, 0.3, 0.3, 0.05]),
        np.full(shape, -inf),
    )
    return kinds[seed % len(kinds)].astype(dtype)


def bits(a: Array) -> Any:
    """Zeros with their signs; all NaN are one."""
    wide = np.asarray(a, np.float64).ravel()
    return np.where(np.isnan(wide), nan, wide).view(np.int64).tolist()


def check(kind: type[MaxPool], case: Case, dtype: Any, seed: int, batch: tuple[int, ...] = (2,)) -> None:
    case = first(case)
    x = data((*batch, *case.shapes[0]), seed, dtype)
    made = recorder(kind, case, x.shape, dtype)
    y = getattr(ln, kind.name)(x, **case.options)
    if made is None:
        assert y.size == 0
        return
    value, numbers = made.forward(x)
    assert value.dtype == x.dtype and value.shape == numbers.shape == y.shape
    assert bits(value) == bits(y)
    op = resolve_named(kind.name, case.shapes, case.options, lead=1).op
    assert isinstance(op, MaxPool)
    assert numbers.dtype == (np.uint8 if widest(op, case) <= 256 else np.uint32)
    for at in np.ndindex(batch):
        cells = cells_of(x[at].astype(np.float64))
        won = op.fold(lambda view, window: place(window), cells)
        assert (numbers[at] == won).all()
    rng = np.random.default_rng(seed + 1)
    t = (rng.standard_normal(x.shape) if seed % 3 else rng.choice([-0.0, 0.0, 1.0], x.shape)).astype(dtype)
    g = (rng.standard_normal(y.shape) if seed % 3 else rng.choice([-0.0, 0.0, 1.0, inf], y.shape)).astype(dtype)
    options = {**case.options}
    assert bits(made.jvp(numbers, t)) == bits(getattr(ln, f"{kind.name}_jvp")((x,), (t,), **options))
    alike(made.vjp(numbers, g), kind, x, g, len(case.shapes[0]) - 1, options)


def widest(op: MaxPool, case: Case) -> int:
    return max((len(view.places) for view in op.views(case.shapes[0][1:])), default=0)


def scattered(kind: type[MaxPool], x: Array, g: Array, d: int, options: dict[str, Any]) -> tuple[Array, Array, Array]:
    """What a cell gets by the places of the winners, the sizes of its terms added up, and how many they are."""
    _, index = getattr(ln, kind.name)(x, **{**options, "return_indices": True})
    planes = prod(x.shape[: x.ndim - d])
    precise = np.longdouble if x.dtype == np.float64 else np.float64
    want = np.full((planes, x.size // planes if planes else 0), -0.0, precise)
    sizes, terms = np.zeros(want.shape), np.zeros(want.shape, int)
    rows = np.broadcast_to(np.arange(planes)[:, None], (planes, g.size // planes if planes else 0))
    at = rows, index.reshape(rows.shape)
    shares = g.astype(precise).reshape(rows.shape)
    np.add.at(want, at, shares)
    np.add.at(sizes, at, abs(shares).astype(np.float64))
    np.add.at(terms, at, 1)
    want[terms == 0] = 0.0
    return want.reshape(x.shape), sizes.reshape(x.shape), terms.reshape(x.shape)


def alike(dx: Array, kind: type[MaxPool], x: Array, g: Array, d: int, options: dict[str, Any]) -> None:
    """VJPs that were made of a record or find the winners anew, and the sums that they are."""
    (anew,) = getattr(ln, f"{kind.name}_vjp")((x,), g, **options)
    want, sizes, terms = scattered(kind, x, g, d, options)
    computed = np.finfo(np.float64 if x.dtype == np.float64 else np.float32)
    # Half precision is rounded once more.
    unit = float(float_info(x.dtype).eps) / 2 if x.dtype.itemsize == 2 else 0.0
    most = height(int(terms.max(initial=0)))
    off = (gamma(most, float(computed.eps) / 2) + unit) * sizes + most * float(computed.smallest_subnormal)
    once = terms <= 1
    for found in (dx, anew):
        assert found.shape == x.shape and found.dtype == x.dtype
        assert bits(found[once]) == bits(want[once].astype(x.dtype))
        if not np.isfinite(sizes).all() or set(np.unique(g.astype(np.float64))) <= {0.0, 1.0}:
            assert bits(found) == bits(want.astype(x.dtype))  # nothing is rounded
        else:
            assert (abs(found.astype(want.dtype) - want) <= off).all()


@every_dtype
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_a_record_has_the_first_winner_of_every_window(kind: type[MaxPool], case: Case, dtype: Any) -> None:
    for seed in SEEDS[dtype]:
        check(kind, case, dtype, seed, ((), (2,), (2, 9))[seed % 3])


@given(seeds, st.sampled_from(KINDS), st.sampled_from(DTYPES))
def test_records_of_random_windows(seed: int, kind: type[MaxPool], dtype: Any) -> None:
    check(kind, random_case(kind, seed), dtype, seed, ((), (3,), (2, 5))[seed % 3])


def wide(*shape: int, **options: Any) -> Case:
    return Case((shape,), options)


GEOMETRIES = {
    "the usual": wide(3, 30, 28, kernel=(3, 3), stride=2, padding=1),
    "odd sizes": wide(3, 31, 33, kernel=(3, 3), stride=2, padding=1, ceil_mode=True),
    "no padding": wide(2, 13, 35, kernel=(3, 3), stride=2),
    "no padding, even": wide(2, 14, 68, kernel=(3, 3), stride=2, padding=((1, 0), (0, 0))),
    "clipped at both ends": wide(2, 12, 67, kernel=(3, 3), stride=2, padding=((0, 1), (1, 2)), ceil_mode=True),
    "rows that fill a vector": wide(5, 8, 32, kernel=(3, 3), stride=2, padding=1),
    "more rows than are laid out": wide(2, 90, 70, kernel=(3, 3), stride=2, padding=1),
    "planes of few cells": wide(40, 3, 5, kernel=(3, 3), stride=2, padding=1),
    "planes of a cell": wide(9, 1, 1, kernel=(3, 3), stride=2, padding=1),
    "tiles": wide(3, 30, 38, kernel=(2, 2)),
    "tiles that leave cells": wide(2, 9, 41, kernel=(2, 2)),
    "tiles of four": wide(2, 9, 70, kernel=(2, 4), stride=(2, 4)),
    "stride 1": wide(2, 11, 37, kernel=(3, 3), stride=1, padding=1),
    "stride 1, of whole vectors": wide(2, 11, 32, kernel=(4, 5), stride=1, padding=((1, 2), (2, 2))),
    "stride 1, padding at one end": wide(2, 9, 37, kernel=(5, 6), stride=1, padding=((0, 4), (5, 0))),
    "stride 3": wide(2, 11, 67, kernel=(3, 3)),
    "stride 2, five taps": wide(2, 11, 67, kernel=(2, 5), stride=2, padding=((0, 1), (2, 1))),
    "dilated": wide(2, 21, 47, kernel=(3, 3), stride=(1, 2), dilation=3, padding=1),
    "dilated by more than a row": wide(2, 9, 5, kernel=(2, 2), stride=1, dilation=(3, 4)),
    "a kernel wider than the input": wide(1, 5, 3, kernel=(7, 6), stride=1, padding=3),
    "a long row": wide(1, 5000, kernel=(3,), stride=2, padding=1),
    "cells beside each other": wide(1, 40, kernel=(7,), stride=1, padding=3),
    "rows of many windows": wide(1, 12, 40, kernel=(9, 8), stride=1, padding=4),
    "windows of 256 cells": wide(1, 20, 40, kernel=(16, 16), stride=3),
    "windows of 272 cells": wide(1, 20, 40, kernel=(17, 16), stride=3),
    "windows of many rows": wide(1, 50, 3, kernel=(40, 1), stride=3),
    "three axes": wide(2, 6, 7, 20, kernel=(2, 3, 2), stride=(1, 2, 2), padding=(1, 1, 0)),
    "four axes": wide(1, 3, 4, 5, 9, kernel=(2, 2, 3, 3), stride=1, padding=1),
    "an axis of its own": wide(2, 4, 24, kernel=(1, 3), stride=(1, 2), padding=(0, 1)),
}


@every_dtype
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_way_to_find_numbers(name: str, dtype: Any) -> None:
    for seed in SEEDS[dtype]:
        check(MaxPool, GEOMETRIES[name], dtype, seed, ((), (3,), (1, 2))[seed % 3])


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 400, 500), (40, 60, 60), (1, 300_000)):
        d = len(shape) - 1
        made = recorder(MaxPool, wide(*shape, kernel=(3,) * d, stride=2, padding=1), shape, np.float32)
        assert made is not None
        x = rng.standard_normal(shape, np.float32)
        y, index = ln.max_pool(x, (3,) * d, stride=2, padding=1, return_indices=True)
        g = rng.integers(-3, 4, y.shape).astype(np.float32)  # sums of these are exact
        want = np.zeros((shape[0], prod(shape[1:])), np.float32)
        for channel, at, share in zip(want, index.reshape(shape[0], -1), g.reshape(shape[0], -1), strict=True):
            np.add.at(channel, at, share)
        for threads in (1, 2, 3):
            ln.set_num_threads(threads)
            value, numbers = made.forward(x)
            assert (value == y).all()
            assert (made.vjp(numbers, g).reshape(want.shape) == want).all()
            assert (made.jvp(numbers, x) == y).all()


def test_bins_of_any_size_have_records() -> None:
    for n, m in ((17, 5), (5, 17), (64, 7), (1, 9), (300, 1)):
        check(AdaptiveMaxPool, wide(2, n, 11, output_size=(m, 4)), np.float32, 0)
        check(AdaptiveMaxPool, wide(2, n, output_size=(m,)), np.float64, 1)


def test_what_has_no_record() -> None:
    shape = (2, 3, 8, 8)
    for ties in ("all", "split"):
        assert recorder(MaxPool, wide(kernel=(2, 2), ties=ties), shape, np.float32) is None
    assert recorder(GlobalMaxPool, wide(spatial=2), shape, np.float32) is None  # whose ties are "all"
    assert recorder(MaxPool, wide(kernel=(2, 2)), (0, 3, 8, 8), np.float32) is None
    deep = (1, *(2,) * 9)
    assert recorder(MaxPool, wide(kernel=(1,) * 9), deep, np.float32) is None  # more axes than kernels have


def test_arrays_of_any_layout() -> None:
    x = np.random.default_rng(0).standard_normal((2, 9, 8, 3)).transpose(0, 3, 1, 2)
    made = recorder(MaxPool, wide(kernel=(3, 3), stride=2), x.shape, x.dtype)
    assert made is not None
    y, numbers = made.forward(x)
    want, want_numbers = made.forward(x.copy())
    assert (y == want).all() and (numbers == want_numbers).all()
    g = np.asfortranarray(y)
    assert (made.vjp(numbers, g) == made.vjp(numbers, y)).all()


def first_winners(x: Array, g: Array, kernel: tuple[int, ...]) -> Array:
    """The derivative of windows side by side: argmax takes the first of equals, and the first NaN before all."""
    d, batch = len(kernel), x.shape[: x.ndim - len(kernel)]
    out = g.shape[len(batch) :]
    used: Any = (..., *(slice(m * k) for m, k in zip(out, kernel, strict=True)))
    parts = [size for m, k in zip(out, kernel, strict=True) for size in (m, k)]
    at = len(batch)
    order = (*range(at), *range(at, at + 2 * d, 2), *range(at + 1, at + 2 * d, 2))
    windows = x[used].reshape(*batch, *parts).transpose(order)
    given = np.zeros((*batch, *out, prod(kernel)), x.dtype)
    winner = windows.reshape(given.shape).argmax(-1)[..., None]
    np.put_along_axis(given, winner, g[..., None], -1)
    dx = np.zeros_like(x)
    dx[used] = given.reshape(windows.shape).transpose(np.argsort(order)).reshape(x[used].shape)
    return dx


SIDE_BY_SIDE = ((2,), (4,), (1, 2), (2, 2), (3, 2), (2, 4), (4, 4), (2, 1), (2, 2, 2), (1, 2, 4), (2, 2, 2, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", SIDE_BY_SIDE)
def test_windows_side_by_side_give_all_to_their_first_winner(kernel: tuple[int, ...], dtype: Any) -> None:
    """Rows of every length around vectors and halves of them, with and without cells that are left over."""
    rng = np.random.default_rng(len(kernel))
    for at, m in enumerate((1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 28, 33)):
        for more in ((0,) * len(kernel), (1,) * len(kernel)):
            out = (*rng.integers(1, 4, len(kernel) - 1), m)
            size = tuple(int(o) * k + e * (k > 1) for o, k, e in zip(out, kernel, more, strict=True))
            ln.set_num_threads(1 + at % 3)
            for planes in (3, 37):
                x = data((1, planes, *size), at + planes, dtype)
                g = rng.choice([-0.0, 1.0, -2.0, inf], (1, planes, *out)).astype(dtype)
                (dx,) = ln.max_pool_vjp((x,), g, kernel=kernel)
                assert bits(dx) == bits(first_winners(x, g, kernel)), (size, planes)


OVERLAPPING: tuple[tuple[tuple[int, ...], int], ...] = (
    *(((k,), 1) for k in (10, 11, 17, 40)),
    *((k, 1) for k in ((4, 3), (5, 5), (1, 12), (12, 1), (3, 9), (2, 2, 3), (3, 1, 5), (2, 3, 2, 2))),
    ((3, 3), 2),
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kernel", "stride"), OVERLAPPING)
def test_windows_that_overlap_add_up_at_their_first_winners(kernel: tuple[int, ...], stride: int, dtype: Any) -> None:
    """Rows of every length around vectors, with and without padding, planes of one call and several."""
    rng = np.random.default_rng(len(kernel))
    for at, n in enumerate((1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 34, 47, 64, 65, 67)):
        padding = tuple(k // 2 for k in kernel) if at % 3 else (0,) * len(kernel)
        most = (40, 40, 9, 4)[len(kernel) - 1]
        size = (*(int(rng.integers(k, most + k)) for k in kernel[:-1]), max(n, kernel[-1] - 2 * padding[-1]))
        ln.set_num_threads(1 + at % 3)
        for planes in (1, 19):
            options: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding}
            x = data((planes, 1, *size), at + planes, dtype)
            y = ln.max_pool(x, **options)
            g = rng.choice([-0.0, 0.0, 1.0], y.shape) if (at + planes) % 2 else rng.standard_normal(y.shape)
            (dx,) = ln.max_pool_vjp((x,), g.astype(dtype), **options)
            alike(dx, MaxPool, x, g.astype(dtype), len(kernel), options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_planes_give_all_to_their_first_winner(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for n in (*range(1, 40), 49, 64, 65, 130, 512, 513, 3000):
        for planes in (1, 35):
            x, g = data((1, planes, n), n + planes, dtype), rng.choice([-0.0, 1.0, -2.0], (1, planes, 1)).astype(dtype)
            (dx,) = ln.global_max_pool_vjp((x,), g, spatial=1, ties="first")
            assert bits(dx) == bits(first_winners(x, g, (n,))), (n, planes)
            (dx,) = ln.global_max_pool_vjp((x,), g, spatial=1, ties="all")
            best = np.max(x, -1, keepdims=True)
            assert bits(dx) == bits(np.where((x == best) | (np.isnan(x) & np.isnan(best)), g, dtype(0))), (n, planes)


def test_numbers_that_no_window_has_harm_nothing() -> None:
    for case in (wide(2, 6, 9, kernel=(3, 3), stride=2, padding=1), wide(1, 30, 30, kernel=(20, 20), stride=3)):
        made = recorder(MaxPool, case, case.shapes[0], np.float32)
        assert made is not None
        g = np.ones(made.resolved.out, np.float32)
        for number in (255, np.iinfo(made.record.dtype).max):
            wrong = np.full(made.resolved.out, number, made.record.dtype)
            assert made.vjp(wrong, g).shape == case.shapes[0]
            assert made.jvp(wrong, np.ones(case.shapes[0], np.float32)).shape == made.resolved.out


def test_arrays_that_do_not_fit_are_refused() -> None:
    made = recorder(MaxPool, wide(kernel=(2, 2)), (1, 4, 4), np.float32)
    assert made is not None
    with pytest.raises(ValueError, match="do not fit"):
        made.forward(np.zeros((1, 4, 5), np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        made.vjp(np.zeros((1, 2, 2), np.uint32), np.zeros((1, 2, 2), np.float32))
    assert prod(made.resolved.out) == 4


# ---- who keeps records


def pool(x: Any) -> Any:
    return ln.max_pool(x, (3, 3), stride=2, padding=1)


def squares(x: Any) -> Any:
    y = pool(ln.relu(x))
    return ln.sum(y * y)


def image(seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((2, 3, 14, 18)).astype(np.float32)


def test_a_pullback_looks_at_the_record_and_not_at_x() -> None:
    x = image()
    y, pullback = ln.vjp(pool, x)
    (want,) = ln.max_pool_vjp((x,), y, kernel=(3, 3), stride=2, padding=1)
    x[...] = 0
    assert np.allclose(pullback(y)[0], want, rtol=1e-6) and want.any()


def test_where_no_record_pays_winners_are_found_anew() -> None:
    x = image()
    for options in ({"kernel": (5, 5), "stride": 1}, {"kernel": (2, 2), "ties": "all"}):
        y, pullback = ln.vjp(lambda v, options=options: ln.max_pool(v, **options), x)
        assert (pullback(y)[0] == ln.max_pool_vjp((x,), y, **options)[0]).all()


def test_derivatives_of_derivatives_need_x_again() -> None:
    x, t = image(), image(1)
    _, moved = ln.jvp(ln.grad(squares), (x,), (t,))
    again = ln.jit(lambda x, t: ln.jvp(ln.grad(squares), (x,), (t,))[1])(x, t)
    assert np.allclose(moved, again, rtol=1e-5, atol=1e-6) and moved.any()


def test_indices_and_derivatives_at_once() -> None:
    x = image()
    y, pullback = ln.vjp(lambda v: ln.max_pool(v, (2, 2), return_indices=True)[0], x)
    assert (pullback(y)[0] == ln.max_pool_vjp((x,), y, kernel=(2, 2))[0]).all()


def compiled(function: Any) -> Any:
    """The program of a compiled function that was called once."""
    return next(iter(function.programs.values()))[0]


def steps(program: Any) -> list[str]:
    return [line.text.partition("(")[0] for line in program.stats(repeat=1).nodes]


def test_a_compiled_gradient_keeps_the_winners() -> None:
    x = image()
    both = ln.jit(ln.value_and_grad(squares))
    value, gradient = both(x)
    program = compiled(both)
    assert "max_pool_vjp_from_winners" in steps(program) and "max_pool_vjp_x" not in steps(program)
    plain = program.graph.copy()
    anew = type(program)(plain, fuse=False)(x)
    assert value == anew[0] and np.allclose(gradient, anew[1], rtol=1e-6)


def test_a_program_and_its_pullback_hand_over_the_winners() -> None:
    x = image()
    program = ln.trace(pool, x).compile()
    y, pullback = program.vjp(x)
    want = ln.max_pool_vjp((x,), y, kernel=(3, 3), stride=2, padding=1)[0]
    x[...] = 0
    assert (y == program.vjp(image())[0]).all()
    assert np.allclose(pullback(y)[0], want, rtol=1e-6) and want.any()


def test_tensors_and_debugging_programs_hand_them_over_too() -> None:
    x = image()
    tensor = torch.from_numpy(x)
    y, pullback = ln.trace(pool, x).compile().vjp(tensor)
    (want,) = ln.trace(pool, x).compile(debug=True).vjp(x)[1](y.numpy())
    assert (pullback(y)[0].numpy() == want).all() and want.any()


def test_a_vjp_of_a_pool_whose_value_nobody_needs_finds_winners_anew() -> None:
    program = ln.jit(ln.grad(lambda x: ln.sum(pool(x))))
    x = image()
    want = ln.max_pool_vjp((x,), np.ones_like(pool(x)), kernel=(3, 3), stride=2, padding=1)[0]
    assert (program(x) == want).all()
    assert steps(compiled(program)).count("max_pool") == 0


def test_the_specification_of_the_two_steps_is_that_of_the_vjp() -> None:
    for kind in KINDS:
        for case in kind.cases.values():
            case = first(case)
            op = resolve_named(kind.name, case.shapes, case.options, lead=1).op
            assert isinstance(op, MaxPool)
            x = cells_of(np.random.default_rng(0).integers(-2, 3, case.shapes[0]).astype(object))
            numbers = winners_of(kind)(op).spec(x)
            g = cells_of(np.arange(1, numbers.size + 1).reshape(numbers.shape).astype(object))
            assert (vjp_from(kind)(op).spec(x, numbers, g) == op.vjp((x,), g)[0]).all()
