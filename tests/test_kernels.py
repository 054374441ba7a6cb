"""Kernels against the specification: bit for bit where they select, within the derived bound where they sum.

The true answer comes from the specification on rationals (or on balls for exp, log and roots) of the very floats that
the kernel reads. The bound of a sum of t terms is gamma(h) * sum|terms| + h * tiny, h = min(t, 512 + ceil(t/512)) + 2,
computed for every output; nothing is tuned. LUNETTE_ISA chooses the instruction set under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from configurations import random_case
from effort import LONG
from lunette.array import resolve_named
from lunette.number import Array, cells_of, each
from lunette.op import KERNEL, Case, Op
from lunette.ops import ALL, AvgPool, Conv, ConvTranspose, LpPool, MaxPool, SmoothMaxPool

pytestmark = pytest.mark.kernels

COMPILED = [kind for kind in ALL if KERNEL.has(kind)]
CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in COMPILED for k, c in kind.cases.items()]
DTYPES = [np.float32, np.float64]
seeds = st.integers(0, 2**32 - 1)
every_kind = pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in COMPILED])
every_dtype = pytest.mark.parametrize("dtype", [pytest.param(t, id=t.__name__) for t in DTYPES])


@pytest.fixture(autouse=True)
def _two_hundred_bits() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 200
    yield
    flint.ctx.prec = before
    ln.set_num_threads(2)


# ---- the derived bound


def unit(dtype: Any) -> Fraction:
    return Fraction(float(np.finfo(dtype).eps)) / 2


def tiny(dtype: Any) -> Fraction:
    return Fraction(float(np.finfo(dtype).smallest_subnormal))


def sum_bound(terms: Any, size: Any, dtype: Any) -> Fraction:
    """gamma(h) * size + h * tiny for a sum of that many terms whose absolute values add up to size."""
    t = ceil(terms)
    h: int = min(t, 512 + ceil(t / 512)) + 2
    u = unit(dtype)
    return h * u / (1 - h * u) * Fraction(size) + h * tiny(dtype)


def fraction(v: Any) -> Fraction:
    return Fraction(float(v))


def within(got: Array, true: Array, terms: Array, size: Array, dtype: Any) -> None:
    assert got.shape == true.shape
    for y, exact, t, s in zip(got.flat, true.flat, terms.flat, size.flat, strict=True):
        assert abs(fraction(y) - exact) <= sum_bound(t, s, dtype), (float(y), float(exact), t)


# ---- data


def fill(case: Case, seed: int, dtype: Any, batch: tuple[int, ...]) -> list[Array]:
    """X with batch axes; half of the data small integers, so that ties happen."""
    rng = np.random.default_rng(seed)

    def array(shape: tuple[int, ...]) -> Array:
        if seed % 2:
            return rng.integers(-2, 3, shape).astype(dtype)
        return (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 8, shape)).astype(dtype)

    return [array((*batch, *case.shapes[0])), *(array(s) for s in case.shapes[1:])]


def exactly(a: Array | None) -> Array | None:
    return None if a is None else each(lambda v: Fraction(float(v)), cells_of(a))


def sizes(a: Array | None) -> Array | None:
    return None if a is None else each(lambda v: abs(Fraction(float(v))), cells_of(a))


def ones(a: Array | None) -> Array | None:
    return None if a is None else each(lambda v: Fraction(1), cells_of(a))


def counting(op: Op) -> Op:
    """An average whose divisor is one: on ones it counts the terms."""
    return replace(op, divisor=1) if isinstance(op, AvgPool) else op


def magnitude_of(op: Op) -> Op:
    """An average with a positive divisor."""
    return replace(op, divisor=abs(op.divisor)) if isinstance(op, AvgPool) and op.divisor is not None else op


def padded(arrays: list[Any], kind: type[Op]) -> list[Any]:
    return [*arrays, *[None] * (len(kind.arrays) - len(arrays))]


def check_case(kind: type[Op], case: Case, dtype: Any, seed: int, batch: tuple[int, ...] = (2,)) -> None:
    arrays, tangents = fill(case, seed, dtype, batch), fill(case, seed + 2, dtype, batch)
    if issubclass(kind, SmoothMaxPool):
        arrays[1] = np.array([-1.5, -0.25, 0.5, 2][seed % 4], dtype)
    check_arrays(kind, case, arrays, tangents, seed + 4)


def check_arrays(kind: type[Op], case: Case, arrays: list[Array], tangents: list[Array], seed: int) -> None:
    """Value and both derivatives of one call; arrays and tangents may have any layout and batch axes."""
    batch, dtype = arrays[0].shape[: arrays[0].ndim - len(case.shapes[0])], arrays[0].dtype.type
    op = resolve_named(kind.name, case.shapes, case.options, lead=1).op.cast(np.dtype(dtype))
    named = dict(zip(kind.arrays[1:], arrays[1:], strict=False))
    y = getattr(ln, kind.name)(arrays[0], **named, **case.options)
    dy = getattr(ln, f"{kind.name}_jvp")(tuple(arrays), tuple(tangents), **case.options)
    g = fill(Case((y.shape[len(batch) :],)), seed, dtype, batch)[0]
    back = getattr(ln, f"{kind.name}_vjp")(tuple(arrays), g, **case.options)
    shared, shared_t = arrays[1:], tangents[1:]
    totals: list[Any] = [[0, 0, 0] for _ in shared]
    for at in np.ndindex(batch):
        x, t, h = arrays[0][at], tangents[0][at], g[at]
        if isinstance(op, SmoothMaxPool | LpPool):
            check_analytic(op, [x, *shared], [t, *shared_t], h, y[at], dy[at], back[0][at], dtype)
            continue
        a, d = padded([exactly(v) for v in [x, *shared]], kind), padded([exactly(v) for v in [t, *shared_t]], kind)
        size, size_t = padded([sizes(v) for v in [x, *shared]], kind), padded([sizes(v) for v in [t, *shared_t]], kind)
        one, one_t = padded([ones(v) for v in [x, *shared]], kind), padded([ones(v) for v in [t, *shared_t]], kind)
        positive, counter = magnitude_of(op), counting(op)
        if isinstance(op, MaxPool):
            assert all(fraction(p) == q for p, q in zip(y[at].flat, op.spec(*a).flat, strict=True))
            size, one = a, a  # who wins is a matter of x itself
            exact_jvp = op.ties == "first"
        else:
            within(y[at], op.spec(*a), counter.spec(*one), positive.spec(*size), dtype)
            exact_jvp = False
        if exact_jvp:
            assert all(fraction(p) == q for p, q in zip(dy[at].flat, op.jvp(a, d).flat, strict=True))
        else:
            within(dy[at], op.jvp(a, d), counter.jvp(one, one_t), positive.jvp(size, size_t), dtype)
        true, count, most = op.vjp(a, exactly(h)), counter.vjp(one, ones(h)), positive.vjp(size, sizes(h))  # type: ignore[arg-type]
        if isinstance(op, MaxPool) and op.ties == "split":
            count = replace(op, ties="all").vjp(a, ones(h))  # type: ignore[arg-type]
        within(back[0][at], true[0], count[0], most[0], dtype)
        for p in range(len(shared)):
            totals[p] = [totals[p][0] + true[p + 1], totals[p][1] + count[p + 1], totals[p][2] + most[p + 1]]
    for p, (true_sum, count_sum, size_sum) in enumerate(totals):
        if isinstance(op, Conv) and 0 not in batch:
            within(back[p + 1], true_sum, count_sum, size_sum, dtype)


# ---- exp, log and roots: 4 ulp plus the propagated bound of the sum


def check_analytic(
    op: SmoothMaxPool | LpPool,
    arrays: list[Array],
    tangents: list[Array],
    g: Array,
    y: Array,
    dy: Array,
    gx: Array,
    dtype: Any,
) -> None:
    def balls(a: Array) -> Array:
        return each(lambda v: flint.arb(float(v)), cells_of(a))

    a, d = [balls(v) for v in arrays], [balls(v) for v in tangents]
    u = unit(dtype)
    x, space = a[0], a[0].shape[1:]
    views = list(op.views(space))

    def rows(v: Array) -> Array:
        return v.reshape(x.shape[0], -1) if v.size else v

    rate = 1.0 if isinstance(op, LpPool) else 1 / abs(float(arrays[1]))
    gx_true, *_ = op.vjp(a, balls(g))
    in_x = np.zeros(x.shape, object)
    flat_in_x = rows(in_x)
    true, true_jvp, y, dy, g = rows(op.spec(*a)), rows(op.jvp(a, d)), rows(y), rows(dy), rows(g)
    for c in range(x.shape[0]):
        cells, slopes = rows(x)[c], rows(d[0])[c]
        for at, view in enumerate(views):
            window = [cells[p] for p in view.places]
            exact = true[c, at]
            got = y[c, at]
            terms = view.inside + 2
            ulp = Fraction(float(np.spacing(np.abs(got)))) if np.isfinite(got) else 0
            if isinstance(op, SmoothMaxPool):
                weights = op.soften(view, window, a[1][()]).weights
                allowed = 4 * ulp + sum_bound(terms, rate, dtype)
                # The exponent beta*(x - pivot) is rounded twice: each weight inherits its size in units of u.
                pivot = max((float(v) * float(arrays[1]) for v in window), default=0.0)
                spread = [
                    2 * abs(float(v) * float(arrays[1]) - max(pivot, 0.0 if view.absent else pivot)) for v in window
                ]
                slope_beta = abs(float(op._slope_in_beta(op.soften(view, window, a[1][()]), window, a[1][()])))
                extra = abs(float(tangents[1])) * (
                    # y itself is known to a multiple of u * rate
                    slope_beta + 4 * rate * (abs(float(exact)) + rate + max(map(abs, map(float, window)), default=0))
                )
            else:
                weights = op.weights(window)
                relative = sum_bound(terms, 1, dtype) / Fraction(op.p if op.p != np.inf else 1)
                allowed = 4 * ulp + relative * fraction(abs(float(exact)))
                spread = [4 * (op.p if op.p != np.inf else 1) * (1 + terms) for _ in window]
                extra = 0.0
            assert abs(flint.arb(float(got)) - exact) <= flint.arb(float(allowed)), (float(got), exact, view)
            part = sum(
                abs(float(w)) * abs(float(slopes[p])) * (terms + 8 + s)
                for w, p, s in zip(weights, view.places, spread, strict=True)
            )
            room = float(u) * (part + (terms + 16) * extra) + 32 * float(tiny(dtype))
            assert abs(flint.arb(float(dy[c, at])) - true_jvp[c, at]) <= flint.arb(room * 1.001)
            h = abs(float(g[c, at]))
            for w, p, s in zip(weights, view.places, spread, strict=True):
                flat_in_x[c, p] += float(u) * abs(float(w)) * h * (terms + 8 + s + len(views)) + 32 * float(tiny(dtype))
    for got, exact, room in zip(gx.flat, gx_true.flat, in_x.flat, strict=True):
        assert abs(flint.arb(float(got)) - exact) <= flint.arb(float(room) * 1.001 + 1e-300)


# ---- tests


@pytest.mark.parametrize(("kind", "case"), CASES)
@every_dtype
@pytest.mark.parametrize("seed", [0, 1])
def test_kernels_equal_the_specification_on_every_case(kind: type[Op], case: Case, dtype: Any, seed: int) -> None:
    check_case(kind, case, dtype, seed)


@every_kind
@every_dtype
@given(seeds)
def test_kernels_equal_the_specification_on_random_configurations(kind: type[Op], dtype: Any, seed: int) -> None:
    ln.set_num_threads(1 + seed % 4)
    check_case(kind, random_case(kind, seed), dtype, seed, [(), (1,), (3,), (2, 1), (0,)][seed % 5])


@every_dtype
@given(seeds)
def test_indices_are_the_first_winners(dtype: Any, seed: int) -> None:
    case = random_case(MaxPool, seed)
    x = fill(case, seed | 1, dtype, ())[0]
    rng = np.random.default_rng(seed)
    if x.size:
        specials = [np.nan, -np.inf, np.inf, -0.0, 0.0]
        x.flat[rng.integers(0, x.size, x.size // 3)] = rng.choice(specials, x.size // 3)
    y, index = ln.max_pool(x, **case.options, return_indices=True)
    want, place = ln.spec.max_pool(x, **case.options, return_indices=True)
    assert (index == place).all()
    assert np.array_equal(y, want.astype(dtype), equal_nan=True)
    assert (np.signbit(y) == np.signbit(want.astype(dtype)))[~np.isnan(y)].all()


@every_dtype
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(4, 4, 0), (2, 2, 0), (3, 2, 0), (3, 2, 1), (2, 2, 1)])
@pytest.mark.parametrize("size", [201, 202, 2100])
def test_long_rows_keep_every_special_cell(dtype: Any, kernel: int, stride: int, padding: int, size: int) -> None:
    """Long rows are searched for NaN while they are joined: wherever it is, and whichever zero comes first."""
    rng = np.random.default_rng(size)
    zeros = rng.choice(np.array([-0.0, 0.0, -1.0], dtype), size)
    rows = [zeros]
    for at in {0, 1, 2, size // 2, size - 3, size - 2, size - 1, *rng.integers(0, size, 4).tolist()}:
        rows.append(zeros.copy())
        rows[-1][at] = np.nan
    x = np.stack(rows)
    options: dict[str, Any] = {"kernel": (kernel,), "stride": stride, "padding": padding}
    y, want = ln.max_pool(x, **options), ln.spec.max_pool(x, **options).astype(dtype)
    assert np.array_equal(y, want, equal_nan=True)
    assert (np.signbit(y) == np.signbit(want))[~np.isnan(want)].all()


@every_dtype
@pytest.mark.parametrize("op", [SmoothMaxPool, LpPool])
@pytest.mark.parametrize(
    "options", [{"kernel": 2}, {"kernel": 3, "stride": 2, "padding": 1}, {"kernel": 3, "stride": 1}], ids=str
)
def test_planes_done_together_are_those_done_alone(dtype: Any, op: type[Op], options: dict[str, Any]) -> None:
    """Small planes share a scale, a power of two, and a plane that has none sends all of them the slow way."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((60, 1, 9, 9)).astype(dtype)
    x[20] *= 40  # these share a scale, but not 1
    x[30, 0, 4, 4], x[40, 0, 0, 0], x[50, 0, 2, 2] = np.nan, np.inf, np.finfo(dtype).max / 4
    options = options | ({"p": 2} if op is LpPool else {"beta": dtype(1.5)})
    function, vjp = getattr(ln, op.name), getattr(ln, f"{op.name}_vjp")
    y = function(x, **options)
    g = rng.standard_normal(y.shape).astype(dtype)
    (dx,) = vjp((x,), g, **options)
    for p in range(60):
        assert np.array_equal(y[p], function(x[p : p + 1], **options)[0], equal_nan=True)
        assert np.array_equal(dx[p], vjp((x[p : p + 1],), g[p : p + 1], **options)[0][0], equal_nan=True)


WINDOWS: list[dict[str, Any]] = [
    {"kernel": (2, 2)},
    {"kernel": (3, 3), "stride": 2, "padding": 1},
    {"kernel": (3, 3), "stride": 1},
    {"kernel": (3, 2, 1), "stride": (2, 2, 1), "padding": (1, 0, 0)},
]


def windows_of(op: type[Op], options: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    shape = (3, 20, 44) if len(options["kernel"]) == 2 else (3, 14, 12, 20)
    return options | ({"p": 2} if op is LpPool else {"beta": 1.5}), shape


def value_and_derivatives(op: type[Op], x: Array, t: Array, g: Array, options: dict[str, Any]) -> list[Array]:
    parts = (x,), (t,)
    jvp, vjp = (getattr(ln, f"{op.name}_{d}") for d in ("jvp", "vjp"))
    return [getattr(ln, op.name)(x, **options), jvp(*parts, **options), vjp((x,), g, **options)[0]]


@every_dtype
@pytest.mark.parametrize("op", [SmoothMaxPool, LpPool])
@pytest.mark.parametrize("options", WINDOWS, ids=str)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_few_strange_numbers_reach_the_windows_that_meet_them(
    dtype: Any, op: type[Op], options: dict[str, Any], special: float
) -> None:
    """Cells, tangents and cotangents: windows that meet them are as defined, and so are their neighbours."""
    options, shape = windows_of(op, options)
    rng = np.random.default_rng(3)
    x, t = rng.standard_normal((2, *shape)).astype(dtype)
    g = rng.standard_normal(getattr(ln, op.name)(x, **options).shape).astype(dtype)
    edge = tuple(n - 1 for n in shape[1:])
    x[(0, *edge)] = x[(1, *(n // 2 for n in shape[1:]))] = t[(1, *(n // 3 for n in shape[1:]))] = special
    g[(0, *(0 for _ in edge))] = g[(2, *(n // 2 for n in g.shape[1:]))] = special
    got = value_and_derivatives(op, x, t, g, options)
    want = value_and_derivatives(op, x.astype(object), t.astype(object), g.astype(object), options)
    for one, true in zip(got, want, strict=True):
        exact = true.astype(float)
        assert np.array_equal(np.isnan(one), np.isnan(exact))
        assert np.allclose(one, exact, 1e-4 if dtype == np.float32 else 1e-12, 1e-5, equal_nan=True)
        if op is SmoothMaxPool:  # the weight of a finite cell beside an infinite one is a zero of either sign in a norm
            assert np.array_equal(np.signbit(one)[one == 0], np.signbit(exact)[one == 0])


@every_dtype
@pytest.mark.parametrize("op", [SmoothMaxPool, LpPool])
@pytest.mark.parametrize("options", WINDOWS, ids=str)
@pytest.mark.parametrize("everywhere", [True, False])
def test_numbers_without_all_their_digits(dtype: Any, op: type[Op], options: dict[str, Any], everywhere: bool) -> None:
    """Least numbers alone, or as cotangents and tangents beside ordinary cells, keep what they can keep."""
    options, shape = windows_of(op, options)
    rng = np.random.default_rng(4)
    x, t = rng.standard_normal((2, *shape)).astype(dtype)
    g = rng.standard_normal(getattr(ln, op.name)(x, **options).shape).astype(dtype)
    least = np.finfo(dtype).tiny / 8
    t, g = t * least, g * least
    if everywhere:
        x = x * least
    else:
        g[:, ::2] *= dtype(2.0**20)
        g[0, 0] = 1
    got = value_and_derivatives(op, x, t, g, options)
    want = value_and_derivatives(op, x.astype(object), t.astype(object), g.astype(object), options)
    # What is added up may cancel: an error is one of the sum of sizes.
    sizes = value_and_derivatives(
        op, (abs(x) if op is LpPool else x).astype(object), abs(t).astype(object), abs(g).astype(object), options
    )
    info = np.finfo(dtype)
    for k, (one, true, size) in enumerate(zip(got, want, sizes, strict=True)):
        error = np.abs(one - true.astype(np.longdouble))
        room = 100 * info.eps * np.abs(size.astype(np.longdouble)) + 32 * info.smallest_subnormal
        if k == 0 and op is SmoothMaxPool:  # a logarithm near zero
            room += 32 * info.eps
        assert (error <= room).all()


@every_dtype
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (2, 3, 2), (3, 3, 1), (2, 2, 1)], ids=str)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("size", [32, 33, 36, 67])
def test_windows_two_apart(dtype: Any, name: str, kernel: tuple[int, ...], start: int, size: int) -> None:
    """Rows of one vector and more, whole and not, cells lacking at either end: exact on integers; NaN, first zeros."""
    rng = np.random.default_rng(size)
    stride = tuple(2 if k > 1 else 1 for k in kernel)
    padding = tuple(start if k > 1 else 0 for k in kernel)
    shape = (2, *(5, 7)[: len(kernel) - 1], size) if kernel[-1] > 1 else (2, 5, 9, size)
    options: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding}
    if name == "avg_pool":
        options["divisor"] = 1
    cells, special = ([-2.0, -0.0, 0.0], np.nan) if name == "max_pool" else ([-2.0, -1.0, 1.0, 3.0], np.inf)
    for odd in ((), ((0,) * len(kernel),), (tuple(n - 1 for n in shape[1:]),)):
        x = rng.choice(np.array(cells, dtype), shape)
        for at in odd:
            x[(0, *at)] = special
        y, want = (getattr(ln, name)(a, **options).astype(dtype) for a in (x, x.astype(object)))
        assert np.array_equal(y, want, equal_nan=True)
        assert (np.signbit(y) == np.signbit(want))[~np.isnan(want)].all()
        if name == "avg_pool" and not odd:
            g = rng.integers(-4, 5, y.shape).astype(dtype)
            back = ln.avg_pool_vjp((x,), g, **options)[0]
            exact = ln.avg_pool_vjp((x.astype(object),), g.astype(object), **options)[0]
            assert np.array_equal(back, exact.astype(dtype))


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@given(seeds)
def test_absent_cells_add_nothing_whatever_the_weight(special: float, seed: int) -> None:
    """Infinite weights meet padding, gaps and vector tails; only products of present cells may be NaN."""
    kinds: list[type[Op]] = [Conv, ConvTranspose]
    for kind in kinds:
        case = random_case(kind, seed)
        arrays = fill(case, seed | 1, np.float64, (2,))
        rng = np.random.default_rng(seed)
        w = arrays[1]
        if w.size:
            w.flat[rng.integers(0, w.size, 1 + w.size // 4)] = special
        named = dict(zip(kind.arrays, arrays, strict=False))
        y = getattr(ln, kind.name)(named["x"], named["w"], named.get("b"), **case.options)
        for s in range(2):
            want = getattr(ln.spec, kind.name)(named["x"][s], named["w"], named.get("b"), **case.options).astype(float)
            assert np.array_equal(np.isnan(y[s]), np.isnan(want))
            assert np.array_equal(np.isinf(y[s]) * np.sign(y[s]), np.isinf(want) * np.sign(want), equal_nan=True)
        g = rng.integers(-2, 3, y.shape).astype(float)
        if g.size:
            g.flat[rng.integers(0, g.size, 1 + g.size // 6)] = special
        back = getattr(ln, f"{kind.name}_vjp")(tuple(arrays), g, **case.options)
        exact = [
            getattr(ln.spec, f"{kind.name}_vjp")((arrays[0][s], *arrays[1:]), g[s], **case.options) for s in range(2)
        ]
        for s in range(2):
            assert np.array_equal(np.isfinite(back[0][s]), np.isfinite(exact[s][0].astype(float)))
        with np.errstate(invalid="ignore"):
            assert np.array_equal(np.isfinite(back[1]), np.isfinite((exact[0][1] + exact[1][1]).astype(float)))


def test_views_of_known_shapes_go_the_short_way() -> None:
    from lunette.array.run import run_quickly

    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8))
    view = x[:, :, ::2, ::2]
    options = (2, None, 0, 1, False, "first", False, None)
    assert (ln.max_pool(view, 2) == ln.max_pool(view.copy(), 2)).all()
    for other in (view, view[::-1], np.asfortranarray(view)):
        quick = run_quickly(MaxPool, (other,), "fast", options)
        assert quick is not None and (quick == ln.max_pool(other.copy(), 2)).all()
    assert run_quickly(MaxPool, (view.astype(">f8"),), "fast", options) is None


SUMS = [k for k in ALL if k.name in ("conv", "conv_transpose", "avg_pool", "adaptive_avg_pool", "global_avg_pool")]
WIDE = {  # many cells and few, in groups and alone: each has a loop of its own
    "conv": [
        *[((2, 30, 34), (5, 2, 3, 3)), ((4, 19, 40), (4, 1, 3, 3)), ((40, 5, 5), (30, 40, 3, 3))],
        *[((3, 6, 70), (3, 1, 5, 5)), ((2, 24, 23), (32, 2, 3, 3))],
    ],
    "conv_transpose": [((2, 19, 21), (2, 5, 3, 3)), ((40, 6, 5), (40, 3, 4, 4))],
}


def zeros(rng: Any, shape: Any, dtype: Any) -> Array:
    return np.asarray(rng.choice([-0.0, 0.0], shape, p=[0.95, 0.05]).astype(dtype))


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in SUMS])
def test_a_sum_is_minus_zero_if_every_term_is(kind: type[Op]) -> None:
    problems = [(c.shapes, c.options) for c in (random_case(kind, seed) for seed in range(40 if LONG else 12))]
    for of_x, of_w in WIDE.get(kind.name, []):
        groups = of_x[0] // of_w[1] if kind.name == "conv" else 1
        problems.append(((of_x, of_w), {"padding": 1, "groups": groups}))
    run, push, pull = (getattr(ln, f"{kind.name}{end}") for end in ("", "_jvp", "_vjp"))
    for seed, (shapes, options) in enumerate(problems):
        rng = np.random.default_rng(seed)
        dtype = (np.float32, np.float64)[seed % 2]
        x, t = zeros(rng, (2, *shapes[0]), dtype), zeros(rng, (2, *shapes[0]), dtype)
        shared = [rng.choice([1.0, -0.0, 0.0], s, p=[0.8, 0.1, 0.1]).astype(dtype) for s in shapes[1:]]
        g = zeros(rng, run(x, *shared, **options).shape, dtype)
        still = [None] * len(shared)

        def results(x: Any, t: Any, g: Any, *shared: Any, options: Any = options, still: Any = still) -> Any:
            yield run(x, *shared, **options)
            yield push((x, *shared), (t, *still), **options)
            yield from pull((x, *shared), g, **options)

        arrays: list[Array] = [x, t, g, *shared]
        for got, want in zip(results(*arrays), results(*(a.astype(object) for a in arrays)), strict=True):
            assert np.array_equal(np.signbit(got), np.signbit(want.astype(float))), (shapes, options)


EDGES = [
    ((2, 7, 20), (3, 2, 3, 3)),
    ((3, 9, 21), (3, 1, 3, 3)),
    ((1, 5, 40), (2, 1, 5, 5)),
    ((2, 24, 23), (32, 2, 3, 3)),
]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("of_x", "of_w"), EDGES)
@pytest.mark.parametrize("share", [0.0, 0.03])
def test_one_term_decides_the_sign_of_a_zero(of_x: Any, of_w: Any, stride: int, share: float) -> None:
    """All terms are -0, but for those of one tap, which cells at an edge do not see, and of a share of the cells."""
    groups, pad = of_x[0] // of_w[1], of_w[-1] // 2
    for seed, tap in enumerate(list(np.ndindex(*of_w[2:]))[::4]):  # corners, and the middle
        rng = np.random.default_rng(seed)
        x, w = rng.choice([0.0, -0.0], (1, *of_x), p=[1 - share, share]), np.full(of_w, -1.0)
        w[(slice(None), 0, *tap)] = 1
        g = np.zeros(ln.conv(x, w, stride=stride, padding=pad, groups=groups).shape)
        for b in (None, np.full(of_w[0], -0.0), np.zeros(of_w[0])):
            given = [a for a in (x, w, b) if a is not None]
            got = ln.conv(*given, stride=stride, padding=pad, groups=groups)
            want = ln.conv(*(a.astype(object) for a in given), stride=stride, padding=pad, groups=groups)
            assert np.array_equal(np.signbit(got), np.signbit(want.astype(float))), (tap, b)
            if b is not None or seed != 1:
                continue
            options = {"stride": stride, "padding": pad, "groups": groups}
            back = ln.conv_vjp((x, w), -g, **options)
            exact = ln.conv_vjp((x.astype(object), w.astype(object)), -g.astype(object), **options)
            for one, other in zip(back, exact, strict=True):
                assert np.array_equal(np.signbit(one), np.signbit(other.astype(float)))


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize(("of_x", "of_w"), EDGES)
def test_one_strange_cell_spoils_what_sees_it_only(of_x: Any, of_w: Any, special: float) -> None:
    """At a corner, where padding meets it: of the data, of the weights, of the cotangents."""
    rng = np.random.default_rng(0)
    options: Any = {"padding": of_w[-1] // 2, "groups": of_x[0] // of_w[1]}
    x, w = rng.integers(1, 4, (1, *of_x)).astype(float), rng.integers(1, 4, of_w).astype(float)
    g = rng.integers(1, 4, ln.conv(x, w, **options).shape).astype(float)
    for which in range(3):
        given = [x.copy(), w.copy(), g.copy()]
        given[which].flat[0] = special
        a, b, c = given
        exact = [v.astype(object) for v in given]
        got = [ln.conv(a, b, **options), *ln.conv_vjp((a, b), c, **options)]
        want = [ln.conv(*exact[:2], **options), *ln.conv_vjp(tuple(exact[:2]), exact[2], **options)]
        for one, other in zip(got, want, strict=True):
            assert np.array_equal(one, other.astype(float), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("taps", "padding"),
    [(3, 0), (3, 1), (3, 2), (4, 0), (4, 1), (4, 3), (5, 0), (5, 2), (5, 4), (7, 0), (7, 3), (7, 5)],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_squares(stride: int, taps: int, padding: int, dtype: Any) -> None:
    """Lines that end within a vector, planes of all edges, one strip and several, whole ones too: exact on integers."""
    rng = np.random.default_rng(0)
    options: Any = {"stride": stride, "padding": padding, "groups": 3}
    for rows, columns in ((3, 3), (4, 7), (9, 8), (5, 16), (6, 17), (3, 34), (4, 90)):
        shape = 2, 3, rows + taps - 3, columns + taps - 3
        x, w, b = (rng.integers(-4, 5, s).astype(dtype) for s in (shape, (3, 1, taps, taps), (3,)))
        w[1, 0, 0, 0], w[2, 0, -1, -1] = np.inf, -0.0
        x[:, 2] = 0
        wanted = ln.conv(x.astype(object), w.astype(object), b.astype(object), **options).astype(dtype)
        assert np.array_equal(ln.conv(x, w, b, **options), wanted, equal_nan=True)
        bare, zeros = ln.conv(x, w, **options), ln.conv(x.astype(object), w.astype(object), **options).astype(float)
        assert np.array_equal(np.signbit(bare[:, ::2]), np.signbit(zeros[:, ::2]))
        more = rng.integers(-9, 9, wanted.shape).astype(dtype)
        after = ln.jit(lambda x, w=w, b=b, more=more: ln.relu(ln.add(ln.conv(x, w, b, **options), more)))(x)
        assert np.array_equal(after, ln.relu(wanted + more), equal_nan=True)
        g = rng.integers(-4, 5, wanted.shape).astype(dtype)
        g[0, 0, 0, -1], g[1, 1, -1, 0] = np.nan, np.inf
        g[:, 2] = np.where(g[:, 2] > 0, 0.0, -0.0)
        back = ln.conv_vjp((x, w), g, **options)
        exact = ln.conv_vjp((x.astype(object), w.astype(object)), g.astype(object), **options)
        for found, right in zip(back, (e.astype(dtype) for e in exact), strict=True):
            assert np.array_equal(found, right, equal_nan=True)
            assert np.array_equal(np.signbit(found[right == 0]), np.signbit(right[right == 0]))


@pytest.mark.parametrize(("stride", "dilation"), [(16000, 1), (16000, 3), (4000, 1)])
def test_a_kernel_with_as_many_residues_as_cells(stride: int, dilation: int) -> None:
    """Modulo the stride: each is a line of its own in the copy that is summed."""
    kernel = 16000
    x = np.arange(3 * kernel * dilation, dtype=np.float32)[None] % 7
    w = np.arange(kernel, dtype=np.float32)[None, None] % 3
    y = ln.conv(x, w, stride=stride, dilation=dilation)
    starts = range(0, x.shape[1] - (kernel - 1) * dilation, stride)
    assert y[0].tolist() == [x[0, i::dilation][:kernel] @ w[0, 0] for i in starts]  # whole numbers below 2^24


FINISHED: dict[str, Any] = {
    "whole panels": (ln.conv, (2, 8, 14, 14), (16, 8, 3, 3), {"padding": 1}),
    "cut panels": (ln.conv, (1, 3, 9, 7), (5, 3, 3, 3), {"stride": 2, "padding": 1}),
    "more terms than a block": (ln.conv, (1, 100, 9, 9), (9, 100, 3, 3), {"padding": 1}),
    "few cells": (ln.conv, (1, 64, 2, 2), (70, 64, 3, 3), {"padding": 1}),
    "one cell": (ln.conv, (2, 33, 3, 3), (40, 33, 3, 3), {}),
    "one tap": (ln.conv, (2, 16, 9, 9), (24, 16, 1, 1), {}),
    "one tap, few rows": (ln.conv, (2, 16, 9, 9), (3, 16, 1, 1), {}),
    "depthwise": (ln.conv, (2, 6, 11, 40), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "depthwise, stride": (ln.conv, (2, 6, 17, 5), (6, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 6}),
    "depthwise, short lines": (ln.conv, (2, 6, 7, 3), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "depthwise, one line": (ln.conv, (2, 6, 1, 7), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "depthwise, five taps": (ln.conv, (2, 6, 23), (6, 1, 5), {"padding": 2, "groups": 6}),
    "groups": (ln.conv, (2, 8, 9, 9), (12, 4, 3, 3), {"padding": 1, "groups": 2}),
    "a volume": (ln.conv, (1, 4, 5, 6, 7), (6, 4, 2, 3, 2), {"padding": 1}),
    "windows of padding": (ln.conv, (1, 4, 3, 3), (6, 4, 2, 2), {"padding": 4}),
    "no channels": (ln.conv, (2, 0, 5, 5), (6, 0, 3, 3), {}),
    "turned, side by side": (ln.conv_transpose, (2, 8, 9, 9), (8, 6, 2, 2), {"stride": 2}),
    "turned, overlapping": (ln.conv_transpose, (2, 8, 9, 9), (8, 6, 3, 3), {"stride": 2, "padding": 1}),
    "turned, stride 1": (ln.conv_transpose, (2, 40, 9, 9), (40, 16, 3, 3), {"padding": 1}),
    "turned, depthwise": (ln.conv_transpose, (2, 6, 5, 11), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "turned, depthwise, every other line": (
        ln.conv_transpose,
        (2, 6, 5, 3),
        (6, 1, 6, 3),
        {"stride": (2, 1), "padding": (0, 1), "groups": 6},
    ),
    "turned, cells between": (ln.conv_transpose, (2, 8, 5, 5), (8, 6, 2, 2), {"stride": 3}),
}


@every_dtype
@pytest.mark.parametrize("name", FINISHED)
def test_what_follows_a_convolution_is_part_of_it(name: str, dtype: Any) -> None:
    """+ bias, * scale, + shift, + another array, relu, in every loop that sums: on integers all of it is exact."""
    rng = np.random.default_rng(4)
    op, x_shape, w_shape, told = FINISHED[name]

    def whole(*shape: int) -> Array:
        return rng.integers(-5, 6, shape).astype(dtype)

    x, w = whole(*x_shape), whole(*w_shape)
    plain = op(x, w, **told)
    channels, d = plain.shape[1], plain.ndim - 2
    own = {k: whole(channels, *(1,) * d) for k in ("b", "scale", "shift")}
    more = whole(*plain.shape)
    for parts in (("b", "scale", "shift"), ("scale", "shift"), ("scale",), ("b", "scale"), ("b",)):
        for add, relu in ((False, False), (True, True), (False, True)):

            def f(x: Any, parts: Any = parts, add: bool = add, relu: bool = relu) -> Any:
                y = op(x, w, own["b"].reshape(-1) if "b" in parts else None, **told)
                y = y * own["scale"] if "scale" in parts else y
                y = y + own["shift"] if "shift" in parts else y
                y = y + more if add else y
                return ln.relu(y) if relu else y

            graph = ln.trace(f, x)
            assert len(graph.compile().stats().nodes) == 1 or 0 in x_shape
            got, want = graph.compile()(x), plain
            want = want + own["b"] if "b" in parts else want
            want = want * own["scale"] if "scale" in parts else want
            want = want + own["shift"] if "shift" in parts else want
            want = want + more if add else want
            want = np.where(want < 0, 0, want) if relu else want
            assert got.tolist() == want.tolist(), parts
            assert (np.signbit(got) == np.signbit(want)).all(), parts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [(2, 2), (4,), (3, 2), (2, 1), (1, 4), (5,), (2, 1, 2)])
def test_transposed_windows_side_by_side(kernel: tuple[int, ...], dtype: Any) -> None:
    """Every cell of the result has one term of each channel: on integers all of it is exact, epilogues too."""
    rng, d = np.random.default_rng(3), len(kernel)
    for channels, rows, groups in ((4, 1, 1), (16, 6, 2), (33, 3, 1), (40, 8, 4)):
        space = [int(n) for n in rng.integers(1, 19, d)]
        shapes = (3, channels, *space), (channels, rows // groups, *kernel), (rows,)
        x, w, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in shapes)
        flat = x.reshape(3, groups, channels // groups, -1), w.reshape(groups, channels // groups, rows // groups, -1)
        terms = np.einsum("ngcs,gckt->ngkst", *flat).reshape(3, rows, *space, *kernel)
        beside = terms.transpose(0, 1, *(i for a in range(d) for i in (2 + a, 2 + d + a)))
        wanted = beside.reshape(3, rows, *np.multiply(space, kernel)) + b[(slice(None), *(None,) * d)]
        more = rng.integers(-9, 9, wanted.shape).astype(dtype)
        told: Any = {"stride": kernel, "groups": groups}
        f = ln.jit(lambda x, m, w=w, b=b, told=told: ln.relu(ln.conv_transpose(x, w, b, **told) + m))
        for threads in (1, 2):
            ln.set_num_threads(threads)
            assert (ln.conv_transpose(x, w, b, **told) == wanted).all()
            assert (f(x, more) == np.maximum(wanted + more, 0)).all()
