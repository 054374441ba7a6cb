"""Rounded arithmetic: the float nearest to the exact result, bit for bit.

The exact result comes from the specification on rationals, or on balls of 400 bits, of the very floats given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import flint
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette
from configurations import random_case
from effort import LONG
from lunette import core
from lunette.arithmetic import round_values
from lunette.arithmetic.error import float_info
from lunette.arithmetic.exact import decided_ball, precision, round_fraction
from lunette.arithmetic.rounded import COUNTS
from lunette.arithmetic.sums import _sliced
from lunette.array import by_specification, defaults_of, lookup, prepare
from lunette.number import Array, cells_of, each
from lunette.op import Case, Op, Request, apply
from lunette.ops import ALL, GLUE, AvgPool, LpPool, SmoothMaxPool
from lunette.ops.derivative import jvp_of, vjp_of
from lunette.ops.glue import Glue
from lunette.ops.linear import MatMul
from lunette.ops.norm import LogSoftmax, Softmax
from lunette.ops.power import Power
from lunette.ops.unary import Exp, Log, Sigmoid, Tanh, Unary
from test_glue import options as glue_options

ln: Any = lunette

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
seeds = st.integers(0, 2**32 - 1)


def options_of(kind: type[Op], case: Case) -> tuple[Any, ...]:
    return tuple({**defaults_of(lookup(kind)[0], kind), **case.options}.values())


def is_analytic(kind: type[Op], options: tuple[Any, ...]) -> bool:
    base = getattr(kind, "base", kind)
    return base.needs == "exp" and not (issubclass(base, LpPool) and options[1] in (1, np.inf))


def truth(kind: type[Op], arrays: list[Any], options: tuple[Any, ...]) -> Array:
    """The nearest floats of the exact results; infinities and NaN by IEEE arithmetic on floats."""
    call = prepare(Request(kind, tuple(arrays), "rounded", options))
    dtype = call.dtype
    number = flint.arb if is_analytic(kind, options) else Fraction
    finite = all(a is None or np.isfinite(a.astype(float)).all() for a in call.arrays)
    assert finite
    with precision(400):
        cells = [None if a is None else each(lambda v: number(float(v)), cells_of(a)) for a in call.arrays]
        exact = by_specification(call.resolved, cells)
        if number is Fraction:
            return each(lambda v: round_fraction(Fraction(v), dtype), exact).astype(float)
        return each(lambda v: np.nan if (y := decided_ball(v, dtype)) is None else y, exact).astype(float)


def same_bits(got: Any, want: Array) -> None:
    assert got.shape == want.shape
    y = got.astype(float)
    known = ~np.isnan(want)  # what 400 bits leave open, a proof has decided
    assert np.array_equal(y[known], want[known]), (y[known & (y != want)], want[known & (y != want)])


def fill(shapes: Any, seed: int, dtype: Any) -> list[Array]:
    """Random floats of very different sizes, or small integers, which meet zeros and ties."""
    rng = np.random.default_rng(seed)

    def array(shape: tuple[int, ...]) -> Array:
        if seed % 3 == 0:
            return rng.integers(-3, 4, shape).astype(dtype)
        scale = 2.0 ** rng.integers(-10, 10, shape) if seed % 3 == 1 else 1.0
        return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)

    return [array(s) for s in shapes]


def extreme(shapes: Any, seed: int, dtype: Any) -> list[Array]:
    """Floats from the ends of the range and from where products leave it, half of them the negatives of others."""
    rng = np.random.default_rng(seed)
    info = float_info(np.dtype(dtype))
    ends = [info.minexp - info.nmant, info.minexp, info.minexp // 2, 0, info.maxexp // 2, info.maxexp - 1]

    def array(shape: tuple[int, ...]) -> Array:
        exponents = rng.choice(ends if seed % 3 else rng.choice(ends, 2), shape)
        cells = np.asarray(np.ldexp(rng.standard_normal(shape).clip(-1.9, 1.9), exponents)).astype(dtype).ravel()
        order, half = rng.permutation(cells.size), cells.size // 2
        cells[order[:half]] = -cells[order[half : 2 * half]]
        return cells.reshape(shape)

    return [array(s) for s in shapes]


def check_bits(kind: type[Op], arrays: list[Any], options: tuple[Any, ...]) -> None:
    """Bit for bit; sums of several different roots may be refused, since no proof is known for them."""
    try:
        y = apply(kind, arrays, "rounded", *options)
    except ln.UndecidedError:
        assert issubclass(getattr(kind, "base", kind), LpPool) and hasattr(kind, "wrt")
        return
    same_bits(y[0] if isinstance(y, tuple) else y, truth(kind, arrays, options))


def check(
    kind: type[Op],
    case: Case,
    dtype: Any,
    seed: int,
    batch: tuple[int, ...] = (2,),
    fill: Callable[..., list[Array]] = fill,
) -> None:
    shapes = [(*batch, *case.shapes[0]), *case.shapes[1:]]
    arrays, tangents = fill(shapes, seed, dtype), fill(shapes, seed + 3, dtype)
    if issubclass(kind, SmoothMaxPool):
        arrays[1] = np.array([-1.5, -0.25, 0.5, 2][seed % 4], dtype)
    options = options_of(kind, case)
    missing = [None] * (len(kind.arrays) - len(arrays))
    full, moved = [*arrays, *missing], [*tangents, *missing]
    check_bits(kind, full, options)
    check_bits(jvp_of(kind), [*full, *moved], options)
    y = apply(kind, full, "fast", *options)
    (g,) = fill([(y[0] if isinstance(y, tuple) else y).shape], seed + 5, dtype)
    for wrt in range(len(arrays)):
        check_bits(vjp_of(kind, wrt), [*full, g], options)


CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in ALL for k, c in kind.cases.items()]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    ln.set_num_threads(2)


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_rounded_is_the_exact_result_rounded_once(kind: type[Op], case: Case, dtype: Any) -> None:
    for seed in range(3 if LONG else 1):
        check(kind, case, dtype, seed)


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in ALL])
@given(seeds)
def test_rounded_on_random_configurations(kind: type[Op], seed: int) -> None:
    ln.set_num_threads(1 + seed % 4)
    dtype = DTYPES[seed % 2]
    check(kind, random_case(kind, seed), dtype, seed, [(), (1,), (3,), (2, 1)][seed % 4])


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_what_leaves_the_range_of_floats_on_the_way_may_come_back(kind: type[Op], case: Case, dtype: Any) -> None:
    for seed in range(4 if LONG else 1):
        check(kind, case, dtype, seed, fill=extreme)


# ---- data built to be undecided


def exact_dot(x: Array, w: Array) -> float:
    total = sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, w, strict=True)), Fraction(0))
    return round_fraction(total, x.dtype)


def dot(x: Array, w: Array) -> Any:
    """A convolution with one output: the sum of products."""
    return ln.conv(x[None, None], w[None, None], arithmetic="rounded")[0, 0, 0]


def hard_rows(dtype: Any, seed: int) -> tuple[Array, Array]:
    """Ties between floats, massive cancellation, subnormals, tails far below, products near overflow."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    u, tiny, n = float(info.eps), float(info.smallest_subnormal), int(rng.integers(2, 12))
    x, w = rng.standard_normal(n).astype(dtype), rng.standard_normal(n).astype(dtype)
    kind = seed % 8
    if kind == 0:  # halfway between two floats
        x, w = np.array([1, u / 2], dtype), np.array([1, 1], dtype)
    elif kind == 1:  # halfway, and a tail that tips it
        x, w = np.array([1, u / 2, rng.choice([-1, 1]) * tiny], dtype), np.ones(3, dtype)
    elif kind == 2:  # all but a tail cancels
        x = np.concatenate([x, x, [dtype(rng.choice([-1, 1]) * u**2)]]).astype(dtype)
        w = np.concatenate([w, -w, [1]]).astype(dtype)
    elif kind == 3:  # subnormal results
        x, w = (x * dtype(2.0 ** (info.minexp // 2))), (w * dtype(2.0 ** (info.minexp // 2 - 4)))
    elif kind == 4:  # products near overflow
        x = (x * dtype(2.0 ** (info.maxexp // 2))).astype(dtype)
        w = (w * dtype(2.0 ** (info.maxexp // 2 - 2))).astype(dtype)
    elif kind == 5:  # overflow on the way, not in the end
        big = dtype(2.0 ** (info.maxexp - 1))
        x, w = np.array([big, big, -big, 1], dtype), np.array([1, 1, 1, 1], dtype)
    elif kind == 6:  # an exact zero
        x, w = np.concatenate([x, x]), np.concatenate([w, -w])
    else:  # every size at once
        x = (x * dtype(2.0) ** rng.integers(-40, 40, n).astype(dtype)).astype(dtype)
    return x, w


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_sums_built_to_be_undecided(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        for seed in range(800):
            x, w = hard_rows(dtype, seed)
            want = exact_dot(x, w)
            assert float(dot(x, w)) == want, (seed, x, w)
            ones = np.ones(len(x), dtype)
            mean = sum(map(Fraction, x.tolist()), Fraction(0)) / len(x)
            got = ln.avg_pool(x[None, None], (len(x),), arithmetic="rounded")[0, 0, 0]
            assert float(got) == round_fraction(mean, np.dtype(dtype)), (seed, x)
            assert float(ln.conv(ones[None, None], x[None, None], arithmetic="rounded")[0, 0, 0]) == exact_dot(ones, x)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_ten_thousand_longer_sums(dtype: Any) -> None:
    """A thousand terms each, made by one convolution; exact by integers."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((25, 1000)) * 2.0 ** rng.integers(-12, 12, (25, 1000))).astype(dtype)
    w = rng.standard_normal((400, 1000)).astype(dtype)
    y = ln.conv(x, w, arithmetic="rounded")
    a, b = (np.frompyfunc(lambda v: int(v * 2.0**80), 1, 1)(m.astype(np.float64)) for m in (x, w))
    whole = a.dot(b.T)  # integers: every float is a multiple of 2^-80
    assert all(Fraction(float(v)) * 2**80 == int(n) for v, n in zip(x.flat, a.flat, strict=True))
    assert all(Fraction(float(v)) * 2**80 == int(n) for v, n in zip(w.flat, b.flat, strict=True))
    want = np.frompyfunc(lambda n: round_fraction(Fraction(int(n), 2**160), np.dtype(dtype)), 1, 1)(whole)
    assert np.array_equal(y.astype(float), want.astype(float))


# ---- infinities, NaN and signs of zero


@pytest.mark.parametrize("ties", ["first", "all", "split"])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_a_special_value_wins_its_window_and_is_no_part_of_the_result(ties: str, special: float) -> None:
    rng = np.random.default_rng(3)
    x = np.where(rng.random((2, 3, 9, 8)) < 0.3, special, rng.integers(-4, 5, (2, 3, 9, 8))).astype(np.float64)
    options: dict[str, Any] = {"kernel": (3, 4), "stride": (1, 4), "ties": ties}
    g, t = rng.integers(-4, 5, ln.max_pool(x, **options).shape) * 60.0, rng.integers(-4, 5, x.shape) * 60.0
    asks: list[Any] = [
        lambda **how: ln.max_pool_vjp((x,), g, **options, **how)[0],
        lambda **how: ln.max_pool_jvp((x,), (t,), **options, **how),
    ]
    for ask in asks:
        fast, nearest = ask(), ask(arithmetic="rounded")
        np.testing.assert_allclose(nearest, fast, rtol=0, atol=1e-11)
        assert np.abs(nearest).max() > 1


SPECIALS = [np.nan, np.inf, -np.inf, -0.0, 0.0]


@pytest.mark.kernels
@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in ALL])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_special_values_are_those_of_the_fast_kernels(kind: type[Op], dtype: Any) -> None:
    """Where a result is not finite, and the signs of exact zeros; the data are small integers, so nothing rounds."""
    for seed in range(12):
        case = random_case(kind, seed)
        rng = np.random.default_rng(seed)
        shapes = [(2, *case.shapes[0]), *case.shapes[1:]]
        arrays = [rng.integers(-2, 3, s).astype(dtype) for s in shapes]
        for a in arrays[:1] if issubclass(kind, SmoothMaxPool) else arrays:
            if a.size:
                a.flat[rng.integers(0, a.size, 1 + a.size // 4)] = rng.choice(SPECIALS, 1 + a.size // 4)
        if issubclass(kind, SmoothMaxPool):
            arrays[1] = np.array(1.0, dtype)
        full = [*arrays, *[None] * (len(kind.arrays) - len(arrays))]
        options = options_of(kind, case)
        fast, got = (apply(kind, full, a, *options) for a in ("fast", "rounded"))
        if isinstance(fast, tuple):
            fast, got = fast[0], got[0]
        assert np.array_equal(np.isnan(fast), np.isnan(got))
        odd = ~np.isfinite(fast)
        assert np.array_equal(fast[odd & ~np.isnan(fast)], got[odd & ~np.isnan(fast)])
        zero = fast == 0
        assert np.array_equal(np.signbit(fast[zero]), np.signbit(got[zero]))


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_a_sum_of_zeros_has_the_sign_that_its_terms_give_it(dtype: Any) -> None:
    """Each term has one factor that is zero, and no bound on the sizes says so; absent cells are no terms."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        length, taps, outs = rng.integers(3, 24), rng.integers(1, 4), rng.integers(1, 4)
        x, w = rng.standard_normal((2, length)).astype(dtype), rng.standard_normal((outs, 2, taps)).astype(dtype)
        for a in (x, w):
            zeros = rng.random(a.shape) < 0.6
            a[zeros] = np.copysign(0, rng.standard_normal(zeros.sum()))
        options = {"padding": int(rng.integers(0, 4)), "stride": int(rng.integers(1, 3))}
        for b in (None, *(np.full(outs, zero, dtype) for zero in (0.0, -0.0))):
            objects = [None if a is None else a.astype(object) for a in (x, w, b)]
            want = ln.spec.conv(*objects, **options).astype(dtype)
            for arithmetic in ("fast", "rounded"):
                y = ln.conv(x[None], w, b, arithmetic=arithmetic, **options)[0]
                zero = (y == 0) & (want == 0)
                assert np.array_equal(np.signbit(y[zero]), np.signbit(want[zero]))


# ---- the same bits


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_threads_batches_and_layouts_give_the_same_bits(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 8, 11, 9)).astype(dtype)
    w, b = rng.standard_normal((6, 8, 3, 3)).astype(dtype), rng.standard_normal(6).astype(dtype)
    g = rng.standard_normal((3, 6, 11, 9)).astype(dtype)
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "conv": lambda x, g: ln.conv(x, w, b, padding=1, arithmetic="rounded"),
        "conv_vjp": lambda x, g: ln.conv_vjp((x, w, b), g, padding=1, arithmetic="rounded")[0],
        "avg_pool": lambda x, g: ln.avg_pool(x, 3, stride=2, padding=1, arithmetic="rounded"),
        "lp_pool": lambda x, g: ln.lp_pool(x, 2, p=3, arithmetic="rounded"),
        "smooth_max_pool": lambda x, g: ln.smooth_max_pool(x, 2, beta=0.5, arithmetic="rounded"),
        "global_avg_pool": lambda x, g: ln.global_avg_pool(x, arithmetic="rounded"),
    }
    for f in functions.values():
        ln.set_num_threads(1)
        want = f(x, g)
        for threads in (2, 3, 4):
            ln.set_num_threads(threads)
            assert f(x, g).tobytes() == want.tobytes()
        assert np.concatenate([f(x[k : k + 1], g[k : k + 1]) for k in range(3)]).tobytes() == want.tobytes()
        turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        assert f(turned, g).tobytes() == want.tobytes()


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_many_planes(dtype: Any, threads: int) -> None:
    """Several blocks of planes, some of them strange, and one wider than any proof: samples of them, exactly."""
    ln.set_num_threads(threads)
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 20, 31, 33)).astype(dtype)
    x[0, 3], x[1, 5, 4, 4], x[2, 7, 3, 2], x[2, 8] = 0, np.nan, -np.inf, np.abs(x[2, 8])
    x[1, 2] *= (2.0 ** rng.integers(-6, 6, (31, 33))).astype(dtype)
    x[0, 9, 0, 0] = 2.0**-10 if dtype is np.float16 else 2.0**-100
    beta = dtype(1.5)
    calls: list[tuple[Any, Any, dict[str, Any]]] = [
        (ln.avg_pool, ln.spec.avg_pool, {"kernel": (3, 3), "stride": 2, "padding": 1, "ceil_mode": True}),
        (ln.avg_pool, ln.spec.avg_pool, {"kernel": (2, 3), "padding": 1, "count_include_pad": False}),
        (ln.avg_pool, ln.spec.avg_pool, {"kernel": (2, 2), "divisor": -3}),
        (ln.global_avg_pool, ln.spec.global_avg_pool, {}),
        (ln.lp_pool, ln.spec.lp_pool, {"kernel": (2, 2), "p": 2}),
        (ln.lp_pool, ln.spec.lp_pool, {"kernel": (3, 2), "p": 1, "stride": 2, "padding": 1}),
        (ln.lp_pool, ln.spec.lp_pool, {"kernel": (2, 2), "p": 3}),
        (ln.smooth_max_pool, ln.spec.smooth_max_pool, {"kernel": (2, 2), "beta": beta}),
        (ln.smooth_max_pool, ln.spec.smooth_max_pool, {"kernel": (3, 3), "beta": -beta, "padding": 1, "stride": 3}),
    ]
    for function, spec, options in calls:
        finite = np.where(np.isfinite(x.astype(float)), x, dtype(0)).astype(dtype)
        analytic = "beta" in options or options.get("p", 1) > 1
        plane_by_plane = "p" in options or "beta" in options  # whose proofs know no infinities: those cells are slow
        y = function(finite if plane_by_plane else x, **options, arithmetic="rounded")
        assert y.dtype == dtype
        for n, c in ((0, 3), (0, 9), (1, 2), (1, 5), (2, 7), (2, 19)):
            if not plane_by_plane and not np.isfinite(x[n, c].astype(float)).all():
                fast = function(x[n : n + 1, c : c + 1].astype(np.float64), **options)[0, 0]
                has_special_values = ~np.isfinite(fast)
                assert has_special_values.any() and np.array_equal(
                    y[n, c][has_special_values].astype(float), fast[has_special_values], equal_nan=True
                )
                assert np.isfinite(y[n, c][~has_special_values].astype(float)).all()
                continue
            number = flint.arb if analytic else Fraction
            own = {k: number(float(v)) if k == "beta" else v for k, v in options.items()}
            with precision(400):
                exact = spec(each(lambda v, number=number: number(float(v)), cells_of(finite[n, c : c + 1])), **own)[0]
                for got, v in zip(np.ravel(y[n, c]).astype(float), exact.ravel(), strict=True):
                    t = np.dtype(dtype)
                    want = decided_ball(v, t) if analytic else round_fraction(Fraction(v), t)
                    assert want is None or got == want


# ---- what is proved of the kernels that decide


def bumpy(style: str, rng: np.random.Generator, shape: Any, dtype: Any, most: float) -> Array:
    """Data that are hard on smooth max and norms, at most `most` in magnitude."""
    plain = rng.standard_normal(shape)
    if style == "equal":
        plain = np.full(shape, plain.flat[0]) + (rng.random(shape) < 0.1)
    elif style == "apart":
        plain = plain * 2.0 ** rng.integers(-12, 13, shape)
    elif style == "ends":
        plain = most * rng.choice([-1, 1], shape) * (1 - 2.0**-20 * rng.random(shape))
    return np.asarray(np.clip(plain, -most, most)).astype(dtype)


STYLES = ("random", "equal", "apart", "ends")
WINDOWS = [((2, 5, 40), (4,)), ((1, 2, 8, 8), (2, 2)), ((1, 1, 36, 41), (36, 40))]


def balls_of(kind: type[Op], x: Array, beta: float | None, options: dict[str, Any]) -> tuple[Any, Array]:
    """The bound operator, and the exact results as balls of 400 bits."""
    arrays = (x,) if beta is None else (x, np.array(beta, x.dtype))
    call = prepare(Request(kind, arrays, "rounded", options_of(kind, Case((), options))))
    with precision(400):
        return call.resolved, by_specification(
            call.resolved, [each(lambda v: flint.arb(float(v)), cells_of(a)) for a in arrays]
        )


def is_within(y: Array, low: Array, exact: Array, radius: Array) -> None:
    with precision(400):
        for a, b, v, r in zip(y.flat, low.flat, exact.flat, radius.flat, strict=True):
            error = abs(flint.arb(float(a)) + flint.arb(float(b)) - v)
            assert error <= flint.arb(float(r)), (float(a), error, float(r))


def check_radii(kind: type[Op], parameter: float, doubles: bool) -> None:
    for style in STYLES:
        check_radius(kind, parameter, doubles, style)


def check_radius(kind: type[Op], parameter: float, doubles: bool, style: str) -> None:
    """The float64 kernel on narrow floats, or the pairs of doubles, are as near to the truth as is said."""
    soft = issubclass(kind, SmoothMaxPool)
    rng = np.random.default_rng(len(style))
    dtype = np.float64 if doubles else np.float32
    for shape, kernel in WINDOWS:
        terms = int(np.prod(kernel))
        proved = (
            round_values.proved_smooth_max(terms, parameter, doubles)
            if soft
            else round_values.proved_norm(terms, parameter, doubles)
        )
        assert proved is not None
        x = bumpy(style, rng, shape, dtype, min(proved.most * 0.99, 1000.0))
        if not soft and style == "ends":
            x *= dtype(2.0**-3)
        x = np.copysign(np.maximum(abs(x), dtype(proved.least * 1.01)), x)
        options = {"kernel": kernel} if soft else {"kernel": kernel, "p": parameter}
        bound, exact = balls_of(kind, x, parameter if soft else None, options)
        y, low = np.empty(bound.out), np.zeros(bound.out)
        if doubles:
            places, count = np.empty(y.size, np.int64), np.empty(1, np.int64)
            made = (core.rounded_smooth_max_pool, bound.op.counted) if soft else (core.rounded_lp_pool,)
            run = round_values.Run(made[0], bound.op, bound, np.dtype(dtype), *made[1:])
            run.task(x, np.array([float(parameter)]), proved.array(), y, places, count, low)
        else:
            more = [np.array(parameter)] if soft else []
            y = apply(kind, [x.astype(np.float64), *more], "fast", *options_of(kind, Case((), options)))
        is_within(y, low, exact, proved.relative * abs(y) + proved.always + proved.evenly * abs(x).max())


RADII = [(SmoothMaxPool, b) for b in (1.5, -0.25, 30.0)] + [(LpPool, p) for p in (1, 2, 3, 7, 64)]


@pytest.mark.kernels
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize(("kind", "parameter"), [*RADII, (LpPool, 1.5), (LpPool, 2.75)])
def test_radii_hold(kind: type[Op], parameter: float, doubles: bool, style: str) -> None:
    if doubles and kind is LpPool and parameter in (1, 1.5, 2.75):
        return  # a plain sum, and what is computed one by one
    check_radius(kind, parameter, doubles, style)


@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize(("kind", "name", "parameter"), [(SmoothMaxPool, "smooth_max", 1.5), (LpPool, "norm", 2)])
def test_a_radius_a_thousand_times_smaller_is_found_out(
    kind: type[Op], name: str, parameter: float, doubles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(round_values, f"proved_{name}")

    def less(*given: Any) -> Any:
        p = real(*given)
        return replace(p, relative=p.relative / 1000, always=p.always / 1000, evenly=p.evenly / 1000)

    monkeypatch.setattr(round_values, f"proved_{name}", less)
    with pytest.raises(AssertionError):
        check_radii(kind, parameter, doubles)


# ---- values with exp, log and roots


DERIVED: dict[str, dict[str, Any]] = {
    "max_pool": {"ties": "split"},
    "avg_pool": {},
    "smooth_max_pool": {"beta": 10.0},
    "lp_pool": {"p": 2.5},
}


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", DERIVED)
def test_sums_decide_nearly_every_cell_of_a_derivative(name: str, dtype: Any) -> None:
    """Ties between floats, zeros where nothing arrives, and weights of very different sizes are no reason to doubt."""
    rng = np.random.default_rng(0)
    x, t, g = (rng.standard_normal(s).astype(dtype) for s in ((1, 3, 17, 17), (1, 3, 17, 17), (1, 3, 8, 8)))
    options = dict(DERIVED[name], kernel=3, stride=2, arithmetic="rounded")
    beta = () if name != "smooth_max_pool" else (dtype(options.pop("beta")),)
    COUNTS.clear()
    getattr(ln, f"{name}_jvp")((x, *beta), (t, *(np.ones((), dtype) for _ in beta)), **options)
    getattr(ln, f"{name}_vjp")((x, *beta), g, **options)
    assert COUNTS["outputs"] >= x.size and COUNTS["undecided"] <= 16


def test_products_that_overflow_cancel_in_a_matrix_product() -> None:
    x, y = np.array([[1e200, 1e200, 1]]), np.array([[1e200], [-1e200], [3]])
    assert ln.trace(ln.matmul, x, y).compile().run(x, y, arithmetic="rounded") == 3
    assert apply(MatMul, [x, y], "rounded", False, False) == 3


@pytest.mark.parametrize("divisor", [5e-324, 7e-40, -1e-300, 1e300])
def test_averages_with_any_divisor_are_rounded_once(divisor: float) -> None:
    x = np.array([[1e300, 1e300, -1e300, -1e300, 3e-310, 0, 5e-324]])
    g = np.array([[1e300, -1e300, 1e10, -1e-320, 5e-324]])
    options = options_of(AvgPool, Case((), {"kernel": (3,), "stride": (1,), "divisor": divisor}))
    check_bits(AvgPool, [x], options)
    check_bits(jvp_of(AvgPool), [x, x], options)
    check_bits(vjp_of(AvgPool, 0), [x, g], options)


def test_ties_among_the_greatest_floats_are_those_of_the_floats() -> None:
    x, t = np.array([[2.0**901, 2.0**902, -(2.0**1000)]]), np.array([[np.inf, 1.0, -np.inf]])
    assert ln.max_pool_jvp((x,), (t,), kernel=(3,), ties="split", arithmetic="rounded") == 1


EXPONENTS = [2, -2, 7, -7, 64, 65, -66, 1000, 10**6, -(10**6) - 1, 10**12, 2**62, 10**300, 0.5, 0.25, -0.75, 1.5, 1e-5]


@pytest.mark.parametrize("exponent", EXPONENTS, ids=lambda p: f"{p:.7}" if isinstance(p, float) else str(p)[:9])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_powers_are_rounded_once(dtype: Any, exponent: float) -> None:
    """By balls of 4000 bits, or exactly; 10**6 factors are not multiplied one by one."""
    cells = [1 + 2.0**-20, 0.999999, 16, 81, 3, 1e-30, 1e30, 2, 0.5, 1, 3.4e38, 1e-45, *([1e-170, 1e170, 1 + 2.0**-52])]
    with np.errstate(over="ignore"):
        x = np.array([*cells, *(-v for v in cells)]).astype(dtype)
    x = x[np.isfinite(x) & (x != 0) & ((x > 0) | (exponent == int(exponent)))]
    got = apply(Power, [x], "rounded", exponent)
    p = Fraction(exponent) if isinstance(exponent, int) else Fraction(float(dtype(exponent)))
    for v, y in zip(x.tolist(), got.tolist(), strict=True):
        with precision(4000):
            power = flint.arb(abs(v)) ** flint.arb(flint.fmpq(p.numerator, p.denominator))
            size = decided_ball(power, np.dtype(dtype))
            if size is None:  # it is a float
                size = float(power.mid())
                assert (flint.arb(size) ** p.denominator - flint.arb(abs(v)) ** p.numerator).contains(0)
        assert y == (-size if v < 0 and p % 2 == 1 else size), (v, exponent)


def test_what_is_next_to_the_middle_of_two_narrow_floats_is_rounded_once() -> None:
    """Rounded to a double first, it would be that middle."""
    e, f = 2.0**-23, partial(np.array, dtype=np.float32)
    x, t = f([[[255, 255, 0]]]), f([[[1, 1 + 3 * e, 0]]])
    assert ln.smooth_max_pool_jvp((x, f(1)), (t, None), kernel=(3,), arithmetic="rounded") == f(1 + e)
    x, g = f([[[2, 1]]]), f([[[1 + e, e / 2, 0]]])
    (y,) = ln.lp_pool_vjp((x,), g, kernel=(2,), stride=1, padding=1, p=100, arithmetic="rounded")
    assert y[0, 0, 0] == f(1 + e)


def test_subnormals_beside_large_numbers_are_kept() -> None:
    tiny, one = 5e-324, np.ones((1, 1, 1))
    assert ln.conv(np.array([[[tiny, 1.0]]]), one, arithmetic="rounded").tolist() == [[[tiny, 1.0]]]
    g = np.array([[[3 * tiny, 1e5]]])
    (y,) = ln.max_pool_vjp((np.array([[[1.0, 2.0]]]),), g, kernel=(1,), arithmetic="rounded")
    assert np.array_equal(y, g)
    (y,) = ln.avg_pool_vjp((np.zeros((1, 1, 4)),), np.array([[[7 * tiny, 1e5]]]), kernel=(2,), arithmetic="rounded")
    assert y.ravel().tolist() == [4 * tiny, 4 * tiny, 5e4, 5e4]


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_infinite_cells_share_a_derivative_and_infinite_cotangents_arrive(dtype: Any) -> None:
    inf = np.inf
    x, t = np.array([[[inf, 1, inf, -inf]]], dtype), np.array([[[1, 2, 4, 8]]], dtype)
    assert ln.lp_pool_jvp((x,), (t,), kernel=(4,), arithmetic="rounded") == dtype(-1)
    assert ln.smooth_max_pool_jvp((x, dtype(1)), (t, None), kernel=(4,), arithmetic="rounded") == dtype(2.5)
    g = np.array([[[1, 3]]], dtype)
    x = np.array([[[-inf, -inf, inf, 2]]], dtype)
    of_x, _ = ln.smooth_max_pool_vjp((x, dtype(1)), g, kernel=(2,), arithmetic="rounded")
    assert of_x.ravel().tolist() == [0.5, 0.5, 3, 0]
    g = np.array([[[inf, 1]]], dtype)
    options = {"kernel": (3,), "stride": 3, "padding": 1, "count_include_pad": False}
    (y,) = ln.avg_pool_vjp((np.zeros((1, 1, 5), dtype),), g, arithmetic="rounded", **options)
    assert np.array_equal(y[0, 0], np.array([inf, inf, 1 / 3, 1 / 3, 1 / 3], dtype))
    (y,) = ln.max_pool_vjp((np.ones((1, 1, 3), dtype),), g[..., :1], kernel=(3,), ties="split", arithmetic="rounded")
    assert (y == inf).all()


def test_huge_cotangents_of_beta_add_up_beyond_all_floats() -> None:
    huge, x = 1.7e308, np.zeros((1, 1, 4))
    _, of_beta = ln.smooth_max_pool_vjp((x, 0.1), np.array([[[huge, -huge]]]), kernel=(2,), arithmetic="rounded")
    assert of_beta == 0
    _, of_beta = ln.smooth_max_pool_vjp((x, 1.0), np.array([[[huge, 2e-1 * huge]]]), kernel=(2,), arithmetic="rounded")
    assert np.isfinite(of_beta)
    _, of_beta = ln.smooth_max_pool_vjp((x, 0.1), np.array([[[huge, huge]]]), kernel=(2,), arithmetic="rounded")
    assert of_beta == -np.inf


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=lambda t: t.__name__)
def test_values_of_wide_planes_are_not_computed_one_by_one(dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(dtype)
    COUNTS.clear()
    y = ln.smooth_max_pool(x, 3, beta=100.0, stride=1, padding=1, arithmetic="rounded")
    z = ln.lp_pool(x, 3, p=64, stride=1, padding=1, arithmetic="rounded")
    assert COUNTS["outputs"] == 2 * x.size and COUNTS["undecided"] <= 16
    options = options_of(SmoothMaxPool, Case((), {"kernel": 3, "stride": 1, "padding": 1}))
    same_bits(y[:, :1], truth(SmoothMaxPool, [x[:, :1], np.asarray(dtype(100.0))], options))
    options = options_of(LpPool, Case((), {"kernel": 3, "stride": 1, "padding": 1, "p": 64}))
    same_bits(z[:, :1], truth(LpPool, [x[:, :1]], options))


@pytest.mark.parametrize("arithmetic", ["rounded", "interval"])
def test_an_argument_that_is_absent_has_no_derivative(arithmetic: str) -> None:
    x, w = np.ones((1, 1, 3)), np.ones((1, 1, 2))
    of_x, of_w, of_b = ln.conv_vjp((x, w, None), np.ones((1, 1, 2)), arithmetic=arithmetic)
    assert of_x.shape == x.shape and of_w.shape == w.shape and of_b is None


def test_values_that_are_floats_are_proved() -> None:
    def lp(x: Any, p: float) -> Any:
        return ln.lp_pool(np.array([x]), (len(x),), p=p, arithmetic="rounded")[0, 0]

    assert lp([3.0, 4.0], 2) == 5 and lp([3.0, 4.0, 5.0], 3) == 6
    assert lp([-7.0, 0.0], 2.5) == 7 and lp([2.0] * 8, 1.5) == 8
    assert lp([3 * 2.0**26, 2.0**-27], 1) == 3 * 2.0**26  # a tie goes to even
    one = np.array([[0.1]])
    assert ln.smooth_max_pool(one, (1,), beta=3.0, arithmetic="rounded")[0, 0] == 0.1
    equal = np.array([[0.1, 0.1, 0.1]])
    t = np.array([[1.0, 2.0, 4.5]])
    assert ln.smooth_max_pool_jvp((equal,), (t,), kernel=(3,), beta=2.0, arithmetic="rounded")[0, 0] == 2.5


def test_beta_does_not_move_a_window_of_one_cell() -> None:
    x, t = np.array([[0.1, 0.7]]), np.array([[3.0, 0.5]])
    beta, none, some = np.array(2.0), np.array(0.0), np.array(5.0)
    got = ln.smooth_max_pool_jvp((x, beta), (t, some), kernel=(1,), arithmetic="rounded")
    assert (got == t).all()
    equal = np.array([[0.1, 0.1]])
    assert ln.smooth_max_pool_jvp((equal, beta), (t, none), kernel=(2,), arithmetic="rounded")[0, 0] == 1.75


def test_equal_windows_cancel() -> None:
    equal = np.array([[1.0, 1.0, 1.0]])  # equal windows cancel, and that is known
    (gx,) = ln.lp_pool_vjp((equal,), np.array([[1.0, -1.0]]), kernel=(2,), stride=1, arithmetic="rounded")
    assert gx[0, 1] == 0


# ---- between the window operators


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in GLUE])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
@pytest.mark.parametrize("fill", [fill, extreme])
def test_glue_is_the_exact_result_rounded_once(kind: type[Glue], dtype: Any, fill: Callable[..., list[Array]]) -> None:
    for case, seed in product(kind.cases.values(), range(2, 8)):
        arrays: list[Any] = fill(case.shapes, seed, dtype)
        if kind.positive:
            arrays = [np.where(a == 0, dtype(0.5), abs(a)) for a in arrays]
        arrays = [np.zeros(a.shape, np.int64) if p in kind.integers else a for p, a in enumerate(arrays)]
        options = glue_options(kind, case)
        y = apply(kind, arrays, "rounded", *options)
        call = prepare(Request(kind, tuple(arrays), "rounded", options))
        if not np.size(y):
            continue
        number = flint.arb if kind.needs == "exp" else Fraction
        with precision(400):
            cells = [
                a if p in kind.integers else each(lambda v, number=number: number(float(v)), cells_of(a))
                for p, a in enumerate(call.arrays)
            ]
            exact = by_specification(call.resolved, cells)
        for got, v in zip(np.ravel(y), exact.ravel(), strict=True):
            t = np.dtype(dtype)
            want = decided_ball(v, t) if number is flint.arb else round_fraction(Fraction(v), t)
            assert want is None or float(got) == want


# ---- how far


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_functions_of_infinities_zeros_and_nan_are_those_of_the_kernels(dtype: Any) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], dtype)
    powers = [partial(ln.power, exponent=p) for p in (-1, -2, 0.5, 3)]
    functions: list[Callable[..., Any]] = [ln.exp, ln.log, ln.sigmoid, ln.tanh, *powers]
    for f in functions:
        program = ln.trace(f, x).compile()
        y, plain = program.run(x, arithmetic="rounded"), program(x)
        assert np.array_equal(y[:5], plain[:5], equal_nan=True)
        assert np.array_equal(np.signbit(y[[0, 1, 3, 4]]), np.signbit(plain[[0, 1, 3, 4]]))


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_minus_infinity_is_no_part_of_a_softmax(dtype: Any) -> None:
    x = np.array([[0.5, -np.inf, 1.25, 2], [-np.inf, -np.inf, 3, -np.inf], [np.inf, 1, np.inf, 0]], dtype)
    for f, nothing in ((ln.softmax, 0), (ln.log_softmax, -np.inf)):
        y = ln.trace(f, x).compile().run(x, arithmetic="rounded")
        alone = ln.trace(f, x[0, [0, 2, 3]]).compile().run(x[0, [0, 2, 3]], arithmetic="rounded")
        assert np.array_equal(y[0], np.insert(alone, 1, nothing))
        assert np.array_equal(y[1], [nothing, nothing, nothing + 1 if nothing == 0 else 0, nothing])
        assert np.array_equal(y[2], f(x)[2])


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
def test_what_cancels_far_below_the_least_float_is_plus_zero(dtype: Any) -> None:
    """Ends of what a sum may be, on either side of zero, are zeros of two signs."""
    small = 1e-23 if dtype == np.float32 else 1e-200
    x, w = np.array([[[small, -small]]], dtype), np.full((1, 1, 2), small, dtype)
    y = ln.conv(x, w, arithmetic="rounded")
    assert y == 0 and not np.signbit(y)
    y = ln.conv(x, np.array([[[small, 2 * small]]], dtype), arithmetic="rounded")
    assert y == 0 and np.signbit(y)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda t: t.__name__)
@given(seeds)
def test_functions_are_rounded_once(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(24) * 10.0 ** rng.integers(-9, 4, 24)).astype(dtype)
    for kind in (Exp, Log, Sigmoid, Tanh, Softmax, LogSoftmax):
        options = () if issubclass(kind, Unary) else (0,)
        v = abs(x) if kind is Log else x if issubclass(kind, Unary) else x / abs(x).max() * dtype(9)
        with precision(3000):
            exact = kind(*options).spec(each(lambda c: flint.arb(float(c)), cells_of(v)))
            want = each(lambda b: decided_ball(b, np.dtype(dtype), last=True), exact).astype(float)
        assert np.array_equal(apply(kind, [v], "rounded", *options).astype(float), want)


def test_ulps_and_bounds() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 4, 9)).astype(np.float32), rng.standard_normal((2, 4, 3)).astype(np.float32)
    exact = ln.spec.conv(*(each(lambda v: Fraction(float(v)), cells_of(a)) for a in (x[0], w)))[None]
    fast, rounded = ln.conv(x, w), ln.conv(x, w, arithmetic="rounded")
    assert (ln.ulps(rounded, exact) <= 0.5).all()
    bound = ln.error_bound("conv", (x, w))
    errors = each(lambda a, b: abs(Fraction(float(a)) - b), cells_of(fast), exact)
    assert all(e <= Fraction(float(b)) for e, b in zip(errors.flat, bound.flat, strict=True))
    assert ln.error_bound("max_pool", (x,), kernel=(2,)).max() == 0
    with pytest.raises(ln.DTypeError):
        ln.error_bound("conv", (np.ones((1, 1, 3), int), np.ones((1, 1, 2), int)))


@given(seeds)
def test_slices_are_as_far_off_as_they_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = int(rng.choice([1, 3, 50, 1000]))
    wild = np.ldexp(rng.standard_normal((2, terms)), rng.integers(-60, 1, (2, terms)))
    even = np.full((2, terms), 1 / 3)  # all remainders are of one sign, and so are the errors of their products
    for a, b in (wild, even, rng.standard_normal((2, terms))):
        s = _sliced(lambda a, b, y: np.copyto(y, (a * b).sum()), (a, b), (), terms)
        assert s is not None and s.lo is not None
        exact = sum((Fraction(x) * Fraction(w) for x, w in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))
        assert abs(exact - Fraction(float(s.hi)) - Fraction(float(s.lo))) <= Fraction(float(s.width))
        assert float(s.width) <= terms * abs(a).max() * abs(b).max() * 2.0**-80


def single(cells: Any) -> Array:
    return np.array(cells, np.float32)


@pytest.mark.parametrize("size", [1e4, 1e9, 1e15, 1e30])
def test_what_is_far_below_the_least_float_is_zero(size: float) -> None:
    x, one = single([[[size, -size]]]), single([[[1]]])
    options: dict[str, Any] = {"kernel": (2,), "beta": 1.0, "arithmetic": "rounded"}
    assert ln.smooth_max_pool_vjp((x,), one, **options)[0].tolist() == [[[1, 0]]]
    assert ln.smooth_max_pool_jvp((x,), (single([[[0, 1]]]),), **options).tolist() == [[[0]]]
    row = single([[-size, 0]])
    for f, want in ((ln.softmax, [[0, 1]]), (ln.log_softmax, [[-size, 0]]), (ln.exp, [[0, 1]])):
        got = ln.trace(f, row).compile().run(row, arithmetic="rounded")
        assert got.tolist() == single(want).tolist()


def test_lists_of_floats_are_rounded_like_float64() -> None:
    y = ln.conv([[1e16, 1.0, -1e16]], [[[1.0, 1, 1]]], arithmetic="rounded")
    assert y.dtype == object and y.tolist() == [[1.0]]
    with pytest.raises(ln.DTypeError, match=r"conv.*D1"):
        ln.conv([[0.5, Fraction(1, 3)]], [[[1.0, 1]]], arithmetic="rounded")


def test_errors_are_measured_of_every_library_and_of_infinities() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    assert (ln.ulps(x, x) == 0).all() and ln.error_bound("avg_pool", (x,), kernel=(2,)).shape == (1, 1, 2)
    assert ln.ulps(single([np.inf, np.inf, -np.inf]), [10**39, 10**38, -(10**39)]).tolist() == [0, np.inf, 0]
    with pytest.raises(ln.ShapeError, match=r"ulps.*D7"):
        ln.ulps(single([1, 2]), single([1]).repeat(3))
    one = single([[[1, 2]]])
    named = ln.error_bound("smooth_max_pool", (one,), kernel=(2,), beta=3.0)
    assert (named == ln.error_bound("smooth_max_pool", (one, 3.0), kernel=(2,))).all()


LEAST = 2.0**-1074


def test_products_next_to_the_greatest_float_do_not_overflow_on_the_way() -> None:
    root = 2.0**512 - 2.0**459  # its square is the greatest float but one
    x, w = np.array([[[root, 3.0]]]), np.array([[[root, -1.0]]])
    want = float.fromhex("0x1.ffffffffffffep+1023")
    assert ln.conv(x, w, arithmetic="rounded").tolist() == [[[want]]]
    assert ln.conv_transpose(x[..., :1], w, arithmetic="rounded").tolist() == [[[want, -root]]]
    assert ln.conv_vjp((x, w), np.array([[[root]]]), arithmetic="rounded")[0].tolist() == [[[want, -root]]]
    assert ln.trace(ln.linear, x, w[0]).compile().run(x, w[0], arithmetic="rounded").tolist() == [[[want]]]


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_shares_below_the_least_float_add_up(op: str) -> None:
    options: dict[str, Any] = {"stride": 1, "arithmetic": "rounded"} | ({"ties": "split"} if op == "max_pool" else {})
    vjp = partial(getattr(ln, f"{op}_vjp"), **options)
    (halves,) = vjp((np.zeros((1, 1, 3)),), np.array([[[-LEAST, -LEAST]]]), kernel=(2,))
    assert halves.tolist() == [[[0, -LEAST, 0]]] and np.signbit(halves).all()
    # A quarter of the least float decides on which side of the middle of two floats a sum lies.
    (quarters,) = vjp((np.zeros((1, 1, 6)),), np.array([[[1, 2.0**-53, LEAST]]]), kernel=(4,))
    assert quarters[0, 0, 2:4].tolist() == [0.25 + 2.0**-54] * 2


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("max_pool", {"kernel": (2,), "ties": "split"}),
        ("adaptive_max_pool", {"output_size": (1,), "ties": "split"}),
        ("global_max_pool", {"spatial": 1, "ties": "split"}),
        ("smooth_max_pool", {"kernel": (2,), "beta": 1.0}),
        ("avg_pool", {"kernel": (2,)}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_underflows_keeps_its_sign(op: str, options: dict[str, Any], dtype: Any) -> None:
    least = np.finfo(dtype).smallest_subnormal
    x, t = np.zeros((1, 1, 2), dtype), np.array([[[-least, 0]]], dtype)
    y = getattr(ln, f"{op}_jvp")((x,), (t,), arithmetic="rounded", **options)
    (g,) = getattr(ln, f"{op}_vjp")((x,), t[..., :1], arithmetic="rounded", **options)
    for a in (y, g):
        assert (a == 0).all() and np.signbit(a).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("below", [-800.0, -2500.0, -60000.0])
def test_logarithms_of_what_is_next_to_one_are_negative(dtype: Any, below: float) -> None:
    for x, negative in ((np.array([0, below], dtype), True), (np.array([0, -np.inf], dtype), False)):
        y = ln.trace(ln.log_softmax, x).compile().run(x, arithmetic="rounded")
        assert y[0] == 0 and np.signbit(y[0]) == negative


@pytest.mark.parametrize("pool", [partial(ln.lp_pool, p=1), partial(ln.avg_pool, divisor=1.0)])
def test_what_pools_leave_in_doubt_is_rounded_once(pool: Any) -> None:
    least = 2.0**-100  # float32 does not hold it beside 1, so the side of the middle that it decides is lost there
    x = np.array([[[1, 2.0**-8, least]]], ml_dtypes.bfloat16)
    assert float(pool(x, (3,), arithmetic="rounded")[0, 0, 0]) == 1 + 2.0**-7
    # Many in doubt at once, which a norm computes plane by plane.
    many = np.tile(x, (64, 1, 1))
    assert (pool(many, (3,), arithmetic="rounded").astype(float) == 1 + 2.0**-7).all()
