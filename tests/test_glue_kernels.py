"""The kernels between convolutions and pools: elementwise, reductions, softmax, and moving cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lunette import _native

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = [np.float32, np.float64]
CODES = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-45, -1e-45, 3e38, -3e38, 0.5, 2.0]


@pytest.fixture(params=[1, 2, 4], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = _native.get_num_threads()
    _native.set_num_threads(request.param)
    yield request.param
    _native.set_num_threads(before)


def code(x: Array) -> str:
    return CODES[x.dtype]


def same_bits(got: Array, want: Array) -> bool:
    """Equal with the signs of zeros, any NaN standing for any other."""
    nan = np.isnan(want)
    return (
        got.dtype == want.dtype
        and got.shape == want.shape
        and np.array_equal(np.isnan(got), nan)
        and np.array_equal(got[~nan], want[~nan])
        and np.array_equal(np.signbit(got[~nan]), np.signbit(want[~nan]))
    )


def unary(name: str, x: Array, parameter: float = 0.0) -> Array:
    """The kernel on x; in place it must give the same."""
    task = _native.unary(code(x), name, x.size, parameter)
    y, z = np.empty_like(x), x.copy()
    task(x, y)
    task(z, z)
    assert same_bits(z, y)
    return y


def wide(dtype: Any) -> Any:
    return np.float64 if dtype == np.float32 else np.longdouble


def ulps(got: Array, exact: Array) -> float:
    """The greatest distance from the exact results, in units in the last place of these."""
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        finite = np.isfinite(want) & np.isfinite(got)
        # An infinity may stand for a number that is within a few ulp of the greatest, and the other way round.
        same = got[~finite & ~np.isnan(want)] == want[~finite & ~np.isnan(want)]
        assert same.all()
        error = np.abs(got[finite].astype(exact.dtype) - exact[finite]) / np.spacing(np.abs(want[finite])).astype(
            exact.dtype
        )
    return float(error.max()) if error.size else 0.0


def every_magnitude(dtype: Any, count: int = 20_000) -> Array:
    """Numbers of both signs spread evenly over all bit patterns, subnormals and special ones among them."""
    rng = np.random.default_rng(7)
    integer = np.int32 if dtype == np.float32 else np.int64
    bits = rng.integers(np.iinfo(integer).min, np.iinfo(integer).max, count, dtype=integer, endpoint=True)
    with np.errstate(all="ignore"):
        return np.concatenate([bits.view(dtype), np.array(SPECIAL, dtype), np.linspace(-120, 120, count).astype(dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_functions(dtype: Any) -> None:
    x = every_magnitude(dtype)
    with np.errstate(all="ignore"):
        assert same_bits(unary("neg", x), -x)
        assert same_bits(unary("abs", x), np.abs(x))
        assert same_bits(unary("copy", x), x)
        assert same_bits(unary("sqrt", x), np.sqrt(x))
        assert same_bits(unary("relu", x), np.where(x < 0, dtype(0), x))  # -0 stays -0
        assert same_bits(unary("leaky_relu", x, 0.25), np.where(x < 0, dtype(0.25) * x, x))
        sign = np.where(x > 0, dtype(1), np.where(x < 0, dtype(-1), x + dtype(0)))  # +0 at both zeros
        assert same_bits(unary("sign", x), sign)
        assert same_bits(unary("power", x, 0), np.ones_like(x))
        assert same_bits(unary("power", x, 1), x)
        assert same_bits(unary("power", x, 2), x * x)
        assert same_bits(unary("power", x, 3), x * x * x)
        assert same_bits(unary("power", x, -1), 1 / x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "exact"),
    [("exp", np.exp), ("log", np.log), ("tanh", np.tanh), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))],
)
def test_transcendental_functions_within_four_ulp(dtype: Any, name: str, exact: Callable[[Array], Array]) -> None:
    info = np.finfo(dtype)
    edges = [
        np.log(wide(dtype)(info.max)),
        np.log(wide(dtype)(info.tiny)),
        np.log(wide(dtype)(info.smallest_subnormal)),
    ]
    near = np.concatenate([np.linspace(e - 2, e + 2, 5001).astype(dtype) for e in [*edges, -edges[0], 0, 1, 9, 19]])
    fine = np.exp2(np.linspace(-30, 7, 20_001)).astype(dtype)
    x = np.concatenate([every_magnitude(dtype), near, fine, -fine, dtype(1) + fine, dtype(1) - fine])
    with np.errstate(all="ignore"):
        want = exact(x.astype(wide(dtype)))
    assert ulps(unary(name, x), want) <= 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [4, -2, -3, 0.5, -0.5, 1.5, 7, 1 / 3, 100, -2.25])
def test_powers(dtype: Any, exponent: float) -> None:
    x = np.concatenate([every_magnitude(dtype), np.exp2(np.linspace(-20, 20, 5001)).astype(dtype)])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(wide(dtype)), wide(dtype)(dtype(exponent)))
        if exponent == 0.5:  # where NumPy takes the square root, which differs at -0 and -infinity
            want = np.where(x == 0, 0, np.where(x == -np.inf, np.inf, want))
        got = unary("power", x, exponent)
        zero = want == 0
        assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
        # A product may round to infinity where the exact power is just below.
        edge = np.isfinite(got) != np.isfinite(want.astype(dtype))
        least = np.abs(want[edge]).min(initial=np.inf)
    assert least > np.finfo(dtype).max * (1 - 4 * wide(dtype)(np.finfo(dtype).eps))
    assert ulps(got[~edge], want[~edge]) <= 4


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": lambda x, y: np.where((x >= y) | np.isnan(x), x, y),
    "minimum": lambda x, y: np.where((x <= y) | np.isnan(x), x, y),
    "gate": lambda x, t: np.where(x > 0, t, np.where(x <= 0, x.dtype.type(0), x)),
    "equal": lambda x, y: np.where(np.isnan(x) | np.isnan(y), x + y, (x == y).astype(x.dtype)),
}


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: Any, special: float = 0.1) -> Array:
    x = rng.standard_normal(shape).astype(dtype)
    with np.errstate(all="ignore"):
        odd = rng.choice(np.array(SPECIAL).astype(dtype), size=shape)
    return np.where(rng.random(shape) < special, odd, x)


def check_binary(name: str, x: Array, y: Array) -> None:
    task = _native.binary(code(x), name, list(x.shape), list(y.shape))
    with np.errstate(all="ignore"):
        want = np.asarray(BINARY[name](x, y))
    z = np.empty(want.shape, x.dtype)
    task(x, y, z)
    assert same_bits(z, want)
    for operand in (0, 1):
        pair = [x.copy(), y.copy()]
        if pair[operand].shape == want.shape:
            task(*pair, pair[operand])
            assert same_bits(pair[operand], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [
        ((), ()),
        ((5,), ()),
        ((1,), (7,)),
        ((0, 3), (1, 3)),
        ((2, 1, 0), (1, 4, 1)),
        ((200, 1003), (200, 1003)),
        ((200, 1003), (1003,)),
        ((1003,), (200, 1003)),
        ((200, 1003), (200, 1)),
        ((200, 1), (1, 1003)),
        ((), (150_001,)),
        ((3, 64, 14, 14), (64, 1, 1)),
        ((64, 1, 1), (3, 64, 14, 14)),
        ((16, 40, 3, 3), (40, 1, 1)),
        ((5, 1, 7, 1, 3), (4, 1, 6, 3)),
    ],
)
def test_binary(dtype: Any, name: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    check_binary(name, numbers(rng, x_shape, dtype), numbers(rng, y_shape, dtype))


@st.composite
def broadcast_shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    full = draw(st.lists(st.integers(0, 5), max_size=6))
    x = [draw(st.sampled_from([n, 1])) for n in full]
    y = [m if n == 1 else draw(st.sampled_from([m, 1])) for n, m in zip(x, full, strict=True)]
    drop = draw(st.integers(0, len(full)))
    return (x, y[drop:]) if draw(st.booleans()) else (y[drop:], x)


@given(broadcast_shapes(), st.sampled_from(sorted(BINARY)), st.sampled_from(DTYPES))
def test_binary_of_any_shapes(shapes: tuple[list[int], list[int]], name: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    check_binary(name, numbers(rng, shapes[0], dtype, 0.5), numbers(rng, shapes[1], dtype, 0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pair_of_special_values(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        s = np.array(SPECIAL).astype(dtype)
    x, y = np.repeat(s, len(s)), np.tile(s, len(s))
    for name in BINARY:
        check_binary(name, x, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 13, 100_003])
def test_prefer(dtype: Any, count: int) -> None:
    rng = np.random.default_rng(count)
    a, b, t = (numbers(rng, (count,), dtype, 0.5) for _ in range(3))
    with np.errstate(all="ignore"):
        want = np.where(a > b, t, np.where(a == b, t / 2, np.where(a < b, dtype(0), a + b)))
    task = _native.prefer(code(a), count)
    out = np.empty_like(a)
    task(a, b, t, out)
    assert same_bits(out, want)
    task(a, b, t, t)
    assert same_bits(t, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(0, 3, 2), (1, 1, 1), (3, 5, 1), (200, 333, 1), (7, 11, 4), (40, 50, 49), (2, 3, 50_000)]
)
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_scale_shift(dtype: Any, shape: tuple[int, int, int], shifted: bool, relu: bool) -> None:
    rng = np.random.default_rng(1)
    x = numbers(rng, shape, dtype, 0.01)
    scale, shift = rng.standard_normal((2, shape[1])).astype(dtype)
    task = _native.scale_shift(code(x), *shape, relu)
    y = np.empty_like(x)
    task(x, scale, shift if shifted else None, y)
    with np.errstate(all="ignore"):
        product = x.astype(wide(dtype)) * scale[:, None]
        exact = product + (shift[:, None] if shifted else 0)
        if relu:
            exact = np.where(exact < 0, 0, exact)
        unit = np.finfo(dtype).eps / 2
        # The product and the sum are rounded once each.
        bound = unit * (np.abs(product) * (1 + unit) + np.abs(exact)) + np.finfo(dtype).smallest_subnormal
        finite = np.isfinite(exact.astype(dtype)) & np.isfinite(y)
        assert np.array_equal(np.isnan(y), np.isnan(exact)) and np.array_equal(
            y[~finite], exact[~finite].astype(dtype), True
        )
        assert (np.abs(y - exact)[finite] <= bound[finite]).all()
    z = x.copy()
    task(z, scale, shift if shifted else None, z)
    assert same_bits(z, y)


def reduce(name: str, x: Array, axes: Sequence[int]) -> Array:
    y = np.empty([n for k, n in enumerate(x.shape) if k not in axes], x.dtype)
    _native.reduce(code(x), name, list(x.shape), list(axes))(x, y)
    return y


def first_of_greatest(x: Array, axes: Sequence[int]) -> Array:
    kept = [k for k in range(x.ndim) if k not in axes]
    terms = math.prod(x.shape[k] for k in axes)
    rows = x.transpose([*kept, *sorted(axes)]).reshape([*(x.shape[k] for k in kept), terms])
    best = np.take_along_axis(rows, np.argmax(rows, -1, keepdims=True), -1)[..., 0]
    return np.asarray(best, x.dtype)  # argmax gives the first, and a NaN before all


def check_sums(x: Array, axes: Sequence[int]) -> None:
    axis = tuple(axes)
    terms = math.prod(x.shape[k] for k in axes)
    depth = min(terms, 512 + math.ceil(terms / 512)) + 2
    info = np.finfo(x.dtype)
    unit = wide(x.dtype)(info.eps) / 2
    bound = depth * unit / (1 - depth * unit) * np.abs(x.astype(wide(x.dtype))).sum(axis=axis)
    exact = x.astype(wide(x.dtype)).sum(axis=axis)
    # The reference is itself rounded, once per term at most, in its own format.
    slack = bound * (terms * np.finfo(wide(x.dtype)).eps / unit) + depth * info.smallest_subnormal
    assert (np.abs(reduce("sum", x, axes) - exact) <= bound + slack).all()
    if terms:
        assert (
            np.abs(reduce("mean", x, axes) - exact / terms) <= (bound + slack) / terms + info.smallest_subnormal
        ).all()


SHAPES = [
    ((), ()),
    ((5,), (0,)),
    ((5,), ()),
    ((0, 4), (0,)),
    ((4, 0), (0,)),
    ((32, 1000), (0,)),
    ((32, 1000), (1,)),
    ((32, 1000), (0, 1)),
    ((3000, 70), (0,)),
    ((100_000, 3), (0,)),
    ((100_000, 3), (1,)),
    ((300_001,), (0,)),
    ((2, 150_001), (1,)),
    ((150_001, 2), (0,)),
    ((2, 150_001), (0,)),
    ((8, 3, 70, 70), (0, 2, 3)),
    ((32, 64, 7, 7), (0, 2, 3)),
    ((32, 64, 7, 7), (2, 3)),
    ((4, 33, 5, 9), (1, 3)),
    ((4, 33, 5, 9), (0, 2)),
    ((4, 33, 5, 9), (1,)),
    ((2, 5000, 30), (1,)),
    ((1, 3, 1, 5), (0, 2)),
    ((3, 2, 4, 2, 3, 2, 2), (1, 3, 5)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reductions(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(dtype)
    check_sums(x, axes)
    if math.prod(shape[k] for k in axes):
        assert same_bits(reduce("max", x, axes), first_of_greatest(x, axes))
        zeros = rng.choice(np.array([0.0, -0.0, -1.0], dtype), size=shape)
        assert same_bits(reduce("max", zeros, axes), first_of_greatest(zeros, axes))
        odd = numbers(rng, shape, dtype, 1e-3)
        assert same_bits(reduce("max", odd, axes), first_of_greatest(odd, axes))
        low = np.full(shape, -np.inf, dtype)
        assert same_bits(reduce("max", low, axes), first_of_greatest(low, axes))


@st.composite
def reductions(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    shape = draw(st.lists(st.integers(0, 6), max_size=6))
    return shape, [k for k in range(len(shape)) if draw(st.booleans())]


@given(reductions(), st.sampled_from(DTYPES))
def test_reductions_of_any_axes(problem: tuple[list[int], list[int]], dtype: Any) -> None:
    shape, axes = problem
    x = np.random.default_rng(2).standard_normal(shape).astype(dtype)
    check_sums(x, axes)
    if math.prod(shape[k] for k in axes):
        assert same_bits(reduce("max", x, axes), first_of_greatest(x, axes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axes"), [s for s in SHAPES if math.prod(s[0]) and s[1]])
def test_sums_of_special_values(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    minus = np.full(shape, -0.0, dtype)
    assert np.signbit(reduce("sum", minus, axes)).all() and np.signbit(reduce("mean", minus, axes)).all()
    mixed = minus.copy()
    mixed.reshape(-1)[-1] = 0
    last = reduce("sum", mixed, axes).reshape(-1)[-1]
    assert last == 0 and not np.signbit(last)
    assert not np.signbit(
        reduce(
            "sum", np.where(np.arange(math.prod(shape)).reshape(shape) % 2, 1, -1).astype(dtype) * 0 + dtype(0), axes
        )
    ).any()
    one = np.ones(shape, dtype)
    for value in (math.nan, math.inf, -math.inf):
        one.reshape(-1)[math.prod(shape) // 2] = value
        with np.errstate(all="ignore"):
            assert same_bits(reduce("sum", one, axes), one.sum(axis=tuple(axes)))
    # Overflow on the way is not overflow of the result.
    greatest = np.finfo(dtype).max
    terms = math.prod(shape[k] for k in axes)
    assert same_bits(reduce("mean", np.full(shape, greatest), axes), reduce("max", np.full(shape, greatest), axes))
    large = np.full(shape, greatest)
    large.reshape(-1)[::2] *= -1
    with np.errstate(all="ignore"):
        want = large.astype(wide(dtype)).sum(axis=tuple(axes))
        assert same_bits(reduce("sum", large, axes), np.asarray(want.astype(dtype)))
        assert np.isfinite(reduce("mean", large, axes)).all() and terms > 0


def softmax(x: Array, log: bool) -> Array:
    task = _native.softmax(code(x), log, *x.shape)
    y, z = np.empty_like(x), x.copy()
    task(x, y)
    task(z, z)
    assert same_bits(z, y)
    return y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1, 30])
@pytest.mark.parametrize(
    "shape",
    [
        (0, 3, 1),
        (3, 0, 1),
        (2, 3, 0),
        (1, 1, 1),
        (5, 10, 1),
        (33, 1000, 1),
        (1, 70_001, 1),
        (2, 5, 3),
        (4, 21, 500),
        (1, 3000, 7),
    ],
)
def test_softmax(dtype: Any, spread: float, shape: tuple[int, int, int]) -> None:
    x = (np.random.default_rng(4).standard_normal(shape) * spread).astype(dtype)
    if not x.size:
        assert softmax(x, False).shape == shape
        return
    w = x.astype(wide(dtype))
    top = w.max(axis=1, keepdims=True)
    e = np.exp(w - top)
    total = e.sum(axis=1, keepdims=True)
    unit = np.finfo(dtype).eps / 2
    info = np.finfo(dtype)
    terms = shape[1]
    depth = min(terms, 512 + math.ceil(terms / 512)) + 2
    # Each exponential: its argument is rounded once, it is right to 4 ulp (8 units).
    relative = unit * (np.abs(w - top) + 8)
    in_sum = (e * relative).sum(axis=1, keepdims=True) / total + depth * unit
    bound = e / total * (relative + in_sum + 3 * unit) * 1.001 + 2 * info.smallest_subnormal
    assert (np.abs(softmax(x, False) - e / total) <= bound).all()
    exact = (w - top) - np.log(total)
    bound = unit * (np.abs(w - top) + 8 * np.abs(np.log(total)) + np.abs(exact)) * 1.001 + in_sum * 1.001
    assert (np.abs(softmax(x, True) - exact) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize("count", [3, 50])
def test_softmax_of_special_values(dtype: Any, inner: int, count: int) -> None:
    inf = np.inf

    def of(values: list[float], log: bool = False) -> list[float]:
        x = np.full((1, count, inner), -inf, dtype)
        x[0, : len(values)] = np.array(values, dtype)[:, None]
        y = softmax(x, log)
        assert all(same_bits(y[..., i], y[..., 0]) for i in range(inner))
        return [float(v) for v in y[0, : len(values), 0]]

    assert of([0.0, 0.0]) == [0.5, 0.5]
    assert of([inf, 1.0, inf]) == [0.5, 0.0, 0.5]
    assert of([inf, 1.0], log=True) == [0.0, -inf]
    assert of([1.0, -inf]) == [1.0, 0.0]
    assert of([float(np.finfo(dtype).max), -float(np.finfo(dtype).max)]) == [1.0, 0.0]
    assert np.isnan(of([1.0, math.nan, 2.0])).all() and np.isnan(of([inf, math.nan, 2.0], log=True)).all()
    assert np.isnan(of([-inf, -inf, -inf])).all()  # nothing to share


def strided(x: Array, y: Array, source: Array, target: Array, fill: float | None) -> Any:
    """The task that copies the view `source` of x to the view `target` of y."""

    def place(view: Array, base: Array) -> tuple[int, list[int]]:
        step = base.itemsize
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return offset // step, [s // step for s in view.strides]

    (a, from_strides), (b, to_strides) = place(source, x), place(target, y)
    return _native.strided_copy(code(x), list(target.shape), a, from_strides, x.size, b, to_strides, y.size, fill)


View = Callable[[Array], Array]
COPIES: list[tuple[tuple[int, ...], View, tuple[int, ...], View]] = [
    ((7, 9), lambda x: x.T, (9, 7), lambda y: y),
    ((300, 517), lambda x: x.T, (517, 300), lambda y: y),
    ((1024, 64), lambda x: x.T, (64, 1024), lambda y: y),
    ((3, 40, 50), lambda x: x.transpose(1, 2, 0), (40, 50, 3), lambda y: y),
    ((40, 50, 3), lambda x: x.transpose(2, 0, 1), (3, 40, 50), lambda y: y),
    ((8, 12, 33, 20), lambda x: x.transpose(0, 2, 1, 3), (8, 33, 12, 20), lambda y: y),
    ((8, 12, 33, 20), lambda x: x.transpose(3, 1, 0, 2), (20, 12, 8, 33), lambda y: y),
    ((200_000,), lambda x: x, (200_000,), lambda y: y),
    ((200_000,), lambda x: x[::-1], (200_000,), lambda y: y),
    ((20, 30), lambda x: x[3:17:2, ::-3], (7, 10), lambda y: y),
    ((20, 30), lambda x: x[::-1, ::-1], (24, 40), lambda y: y[2:22, 5:35]),
    ((20, 30), lambda x: x, (41, 90), lambda y: y[1::2, ::3]),
    ((1,), lambda x: np.broadcast_to(x, (300, 400)), (300, 400), lambda y: y),
    ((400,), lambda x: np.broadcast_to(x, (300, 400)), (300, 400), lambda y: y),
    ((300, 1), lambda x: np.broadcast_to(x, (300, 400)), (300, 400), lambda y: y),
    ((5, 1, 4), lambda x: np.broadcast_to(x, (2, 5, 3, 4)), (2, 5, 3, 4), lambda y: y),
    ((0, 3), lambda x: x, (2, 2), lambda y: y[2:, :0].reshape(0, 0)[:, :0].reshape(0, 1)[:, :0].T.reshape(0, 3)),
    ((), lambda x: x, (), lambda y: y),
    ((300, 300), lambda x: x.T, (300, 600), lambda y: y[:, ::2]),
    ((300, 300), lambda x: x, (300, 300), lambda y: y.T),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [None, 0.5])
@pytest.mark.parametrize("case", range(len(COPIES)))
def test_strided_copies(dtype: Any, fill: float | None, case: int) -> None:
    from_shape, source, to_shape, target = COPIES[case]
    x = np.random.default_rng(1).standard_normal(from_shape).astype(dtype)
    y = np.random.default_rng(2).standard_normal(to_shape).astype(dtype)
    want = y.copy()
    if fill is not None:
        want[...] = fill
    target(want)[...] = source(x)
    strided(x, y, source(x), target(y), fill)(x, y)
    assert same_bits(y, want)


@given(st.data())
def test_copies_of_any_views(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    cut = tuple(
        slice(data.draw(st.integers(0, n - 1)), None, data.draw(st.integers(1, 3)))
        if data.draw(st.booleans())
        else slice(None, None, -1)
        for n in shape
    )
    source = x[cut].transpose(order)
    pads = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in source.shape]
    y = np.empty([lo + n + hi for n, (lo, hi) in zip(source.shape, pads, strict=True)], np.float32)
    places: tuple[Any, ...] = tuple(slice(lo, lo + n) for n, (lo, _) in zip(source.shape, pads, strict=True))
    inside = y[places]
    strided(x, y, source, inside, -1.0)(x, y)
    assert same_bits(y, np.pad(source, pads, constant_values=-1))


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ([4], (0, [2], 6), (0, [1], 4)),
        ([4], (-1, [1], 4), (0, [1], 4)),
        ([4], (2, [-1], 4), (0, [1], 4)),
        ([4], (0, [1], 4), (1, [1], 4)),
        ([4], (0, [1], 4), (0, [0], 4)),
        ([4], (0, [1], 4), (3, [-1], 4)),
        ([4, 2], (0, [1], 4), (0, [1, 1], 4)),
        ([2**40, 2**40], (0, [0, 0], 1), (0, [1, 1], 4)),
        ([4], (0, [2**62], 4), (0, [1], 4)),
    ],
)
def test_copies_outside_the_arrays_are_refused(shape: list[int], source: Any, target: Any) -> None:
    (a, from_strides, n), (b, to_strides, m) = source, target
    with pytest.raises(ValueError, match="do not fit"):
        _native.strided_copy("f", shape, a, from_strides, n, b, to_strides, m, None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("outer", "inners"),
    [(1, [3]), (5, [1, 2, 0, 7]), (1, [90_000, 5, 100_000]), (300, [100, 257]), (0, [3, 4]), (2, [1] * 60)],
)
def test_concat(dtype: Any, outer: int, inners: list[int]) -> None:
    rng = np.random.default_rng(6)
    parts = [rng.standard_normal((outer, n)).astype(dtype) for n in inners]
    y = np.empty((outer, sum(inners)), dtype)
    _native.concat(code(y), outer, inners)(*parts, y)
    assert same_bits(y, np.concatenate(parts, axis=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 1), (500, 200, 1), (4, 7, 60), (0, 3, 2), (3, 2, 0)])
def test_one_hot(dtype: Any, shape: tuple[int, int, int]) -> None:
    outer, classes, inner = shape
    labels = np.random.default_rng(9).integers(0, classes, (outer, inner))
    y = np.full(shape, np.nan, dtype)
    task = _native.one_hot(code(y), *shape)
    task(labels, y)
    assert same_bits(y, (labels[:, None] == np.arange(classes)[:, None]).astype(dtype))
    for bad in (-1, classes):
        if labels.size:
            labels.reshape(-1)[-1] = bad
            with pytest.raises(ValueError, match=rf"label {bad} is not in 0\.\.{classes - 1}"):
                task(labels, y)


def test_names_and_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="no kernel is named"):
        _native.unary("f", "cube", 3)
    with pytest.raises(ValueError, match="do not fit"):
        _native.binary("f", "add", [2], [3])
    with pytest.raises(ValueError, match="do not fit"):
        _native.reduce("f", "max", [0, 2], [0])
    with pytest.raises(ValueError, match="do not fit"):
        _native.reduce("f", "sum", [2], [1])
