"""Bounds: every point of a box, as rationals through the specification, has its result inside; and they are tight.

Nothing is tuned: results are compared with exact rationals (with balls of 200 bits where there is exp, log or a root),
widths with the bound that lunette.arithmetic.interval derives.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import ceil, inf, isfinite, prod
from typing import Any, cast

import flint
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from configurations import random_case
from effort import by_day, few
from lunette import outward
from lunette.arithmetic import interval, interval_pool
from lunette.array import resolve_named
from lunette.graph.walk import forward
from lunette.number import Array, Interval, cells_of, each
from lunette.op import KERNEL, Case, Op, apply
from lunette.ops import ALL, GLUE, AvgPool, Conv, ConvTranspose, LpPool, SmoothMaxPool
from lunette.ops.binary import Add, Div, Mul
from lunette.ops.glue import Glue, lift
from lunette.ops.unary import Exp, Log, Neg, Relu, Sigmoid, Tanh, Unary
from test_graph import random_graph, several

CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in ALL for k, c in kind.cases.items()]
GLUE_CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in GLUE for k, c in kind.cases.items()]
FLOATS = [np.float32, np.float64]
every_float = pytest.mark.parametrize("dtype", [pytest.param(t, id=t.__name__) for t in FLOATS])
every_kind = pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in ALL])
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _two_hundred_bits() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 200
    yield
    flint.ctx.prec = before


# ---- boxes and their points


def spread(style: int, rng: np.random.Generator, shape: Any, dtype: Any, *, wild: bool) -> Array:
    """Data that are hard on bounds: ties, all scales, cancelling pairs, subnormals, numbers near overflow."""
    info = np.finfo(dtype)
    plain: Array = np.asarray(rng.standard_normal(shape))
    values: Any
    if style == 0:
        values = rng.integers(-3, 4, shape)
    elif style == 1:
        values = plain * 2.0 ** rng.integers(-8, 9, shape)
    elif style == 2:
        values = 2.0**20 * rng.choice([-1, 1], shape) + plain
    elif style == 3:
        values = rng.integers(-9, 10, shape) * info.smallest_subnormal
    else:
        exponent = info.maxexp - 3 if wild else info.maxexp // 2 - 8
        values = np.clip(plain, -2, 2) * 2.0 ** rng.integers(exponent - 4, exponent, shape)
    return np.asarray(values, dtype)


def box_of(
    style: int, rng: np.random.Generator, shape: Any, dtype: Any, *, wild: bool = False, positive: bool = False
) -> Interval:
    """A box around such data: wide, a few floats wide, a point in disguise, or a point."""
    centre = spread(style, rng, shape, dtype, wild=wild)
    if positive:
        centre = np.abs(centre) + dtype(1)
    kind = rng.integers(4)
    if kind == 3:
        return Interval(centre)
    grown = [centre, centre]
    for _ in range(int(rng.integers(4)) if kind == 1 else 0):
        grown = [np.nextafter(grown[0], dtype(-inf)), np.nextafter(grown[1], dtype(inf))]
    if kind == 0:
        wide = np.abs(centre) * rng.random(shape).astype(dtype) * dtype(0.5)
        grown = [centre - wide, centre + wide]
    return Interval(np.array(grown[0], dtype), np.array(grown[1], dtype))


def exact(a: Array) -> Array:
    return each(lambda v: Fraction(float(v)), cells_of(a))


def inside(box: Interval, rng: np.random.Generator, number: Callable[[Any], Any] = Fraction) -> Array:
    """A random point of a box, exactly: corners, and places between them."""
    eighths = rng.choice([0, 8, int(rng.integers(9))], box.shape)
    lo, hi = exact(box.lo), exact(box.hi)
    return each(lambda p, q, k: number(p + (q - p) * int(k) / 8), lo, hi, cells_of(eighths))


def ball(q: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(q.numerator, q.denominator))


def number_of(kind: type[Op]) -> Any:
    return ball if kind.needs == "exp" else Fraction


def encloses(box: Interval, y: Array, dtype: Any) -> None:
    """No NaN, the dtype of the operands, and every exact result between the ends."""
    lo, hi = np.asarray(box.lo), np.asarray(box.hi)
    assert lo.shape == hi.shape == y.shape
    assert lo.dtype == hi.dtype == dtype
    for low, v, high in zip(lo.flat, y.flat, hi.flat, strict=True):
        low, high = float(low), float(high)
        if isinstance(v, flint.arb):
            assert not bool(v < low) and not bool(v > high), (low, v, high)
        else:
            assert low <= v <= high, (low, float(v), high)


def total(parts: list[Any]) -> Any:
    return sum(parts[1:], parts[0])


def check(kind: type[Op], case: Case, dtype: Any, seed: int, style: int, *, wild: bool = False) -> None:
    """Value, JVP and VJP of random boxes, at random points of them."""
    rng = np.random.default_rng(seed)
    batch = (2,)
    boxes = [box_of(style, rng, s if p else (*batch, *s), dtype, wild=wild) for p, s in enumerate(case.shapes)]
    tangents = [box_of(style, rng, b.shape, dtype, wild=wild) for b in boxes]
    if kind.name == "smooth_max_pool":
        beta = dtype([-1.5, -0.25, 0.5, 2][seed % 4])
        boxes[1] = Interval(np.array(beta), np.array(beta * dtype(1 + (beta > 0) * 0.25)))
        tangents[1] = Interval(np.array(-1, dtype), np.array(1, dtype))
    named = dict(zip(kind.arrays[1:], boxes[1:], strict=False))
    y = getattr(ln, kind.name)(boxes[0], **named, **case.options, arithmetic="interval")
    g = box_of(style, rng, y.shape, dtype, wild=wild)
    dy = getattr(ln, f"{kind.name}_jvp")(tuple(boxes), tuple(tangents), **case.options, arithmetic="interval")
    back = getattr(ln, f"{kind.name}_vjp")(tuple(boxes), g, **case.options, arithmetic="interval")
    op = resolve_named(kind.name, case.shapes, case.options, lead=1).op.cast(np.dtype(dtype))
    number = number_of(kind)
    for _ in range(1):
        a, t = [inside(b, rng, number) for b in boxes], [inside(b, rng, number) for b in tangents]
        h = inside(g, rng, number)
        absent = [None] * (len(kind.arrays) - len(a))
        shared = []
        for s in range(*batch):
            one = [a[0][s], *a[1:], *absent]
            encloses(y[s], op.spec(*one), dtype)
            encloses(dy[s], op.jvp(one, [t[0][s], *t[1:], *absent]), dtype)
            gx, *rest = op.vjp(one, h[s])
            encloses(back[0][s], gx, dtype)
            shared.append(rest)
        for p in range(len(a) - 1):
            encloses(back[p + 1], np.asarray(total([rest[p] for rest in shared]), object), dtype)


@pytest.mark.parametrize(("kind", "case"), CASES)
@every_float
def test_every_point_of_a_box_has_its_result_inside(kind: type[Op], case: Case, dtype: Any) -> None:
    for style in (0, 1) if kind.needs == "exp" else (0, 2, 3) if dtype is np.float32 else (1, 4):
        check(kind, case, dtype, style + 7, style)


@every_kind
@few
@given(seeds)
def test_random_configurations(kind: type[Op], seed: int) -> None:
    ln.set_num_threads(1 + seed % 2)
    check(kind, random_case(kind, seed), FLOATS[seed % 2], seed, seed // 2 % (2 if kind.needs == "exp" else 5))


@pytest.mark.parametrize("kind", [k for k in ALL if k.needs != "exp"], ids=lambda k: k.name)
def test_overflow_makes_infinite_ends_and_no_nan(kind: type[Op]) -> None:
    for seed, case in enumerate(list(kind.cases.values())[:3]):
        check(kind, case, np.float32, seed, 4, wild=True)


# ---- the operators between


def glue_options(kind: type[Glue], case: Case) -> tuple[Any, ...]:
    return tuple(case.options.get(f.name, f.default) for f in fields(kind))


def check_glue(kind: type[Glue], case: Case, dtype: Any, seed: int, style: int) -> None:
    rng = np.random.default_rng(seed)
    options = glue_options(kind, case)
    boxes = [box_of(style, rng, s, dtype, positive=kind.positive) for s in case.shapes]
    y = apply(kind, boxes, "interval", *options)
    op = kind.of(case.shapes, *options).cast(np.dtype(dtype))
    for _ in range(3):
        encloses(y, op.spec(*(inside(b, rng, number_of(kind)) for b in boxes)), dtype)


@pytest.mark.parametrize(("kind", "case"), GLUE_CASES)
@every_float
def test_glue(kind: type[Glue], case: Case, dtype: Any) -> None:
    for seed in range(2):
        for style in (0, 1) if kind.needs == "exp" else range(5):
            check_glue(kind, case, dtype, seed, style)


@every_float
@pytest.mark.parametrize("function", [ln.add, ln.sub, ln.mul, ln.div])
def test_pairs_of_cells_are_rounded_outward_and_no_further(function: Any, dtype: Any) -> None:
    """Sums, and whatever float32 computes, are the two floats next to the truth; or the truth itself."""
    rng = np.random.default_rng(3)
    for style in range(5):
        x, y = (spread(style, rng, 200, dtype, wild=True) for _ in range(2))
        if function is ln.div:
            y[y == 0] = 1
        box = function(Interval(x), Interval(y))
        with np.errstate(all="ignore"):
            next_up = np.nextafter(box.lo, dtype(inf))
            after = np.nextafter(next_up, dtype(inf))
        for p, q, low, one, two, high in zip(exact(x), exact(y), box.lo, next_up, after, box.hi, strict=True):
            true: Any = {ln.add: p + q, ln.sub: p - q, ln.mul: p * q}.get(function, p / q if q else None)
            assert float(low) <= true <= float(high)
            if function in (ln.add, ln.sub) or dtype is np.float32:
                assert one == high or (low == true == high)
            else:
                assert two >= high


@every_float
@pytest.mark.parametrize("p", [-2, -1, 1, 2, 3, 4, 5])
def test_whole_powers(dtype: Any, p: int) -> None:
    rng = np.random.default_rng(p + 9)
    box = box_of(1, rng, 100, dtype)
    y = ln.power(box, p)
    for _ in range(5):
        point = inside(box, rng)
        for low, v, high in zip(y.lo, point, y.hi, strict=True):
            assert v == 0 > p or low <= v**p <= high
    if p % 2 == 0 and p > 0:
        assert (y.lo >= 0).all()


def test_roots_and_quotients_beyond_their_domain() -> None:
    x = Interval(np.array([-1.0, -2.0, 0.0]), np.array([4.0, -1.0, inf]))
    assert ln.sqrt(x).lo.tolist() == [0, 0, 0]
    assert ln.sqrt(x).hi[1:].tolist() == [inf, inf]
    one = np.ones(3)
    assert ln.div(one, x).lo.tolist()[::2] == [-inf, -inf] and ln.div(one, x).hi.tolist()[::2] == [inf, inf]
    assert ln.div(Interval(one), Interval(one, np.full(3, inf))).lo.tolist() == [0, 0, 0]


# ---- width


def gamma(h: int, dtype: Any) -> Fraction:
    u = Fraction(float(np.finfo(dtype).eps)) / 2
    return h * u / (1 - h * u)


def depth(terms: int) -> int:
    return min(terms, 512 + ceil(terms / 512)) + 2


def ulp(v: Any) -> Fraction:
    return Fraction(float(np.spacing(np.abs(v))))


SUMS = [
    ("conv", lambda x, w: ln.conv(x, w, padding=1, stride=2), (2, 5, 8, 7), (3, 5, 3, 3), 45),
    ("conv_long", ln.conv, (1, 200, 3, 3), (2, 200, 3, 3), 1800),
    ("conv_transpose", lambda x, w: ln.conv_transpose(x, w, stride=2), (2, 5, 4, 4), (5, 3, 3, 3), 20),
    ("matmul", ln.matmul, (4, 60), (60, 5), 60),
    ("avg_pool", lambda x, w: ln.avg_pool(x, 3, stride=2, padding=1), (2, 3, 9, 9), None, 9),
    ("global_avg_pool", lambda x, w: ln.global_avg_pool(x), (2, 3, 11, 9), None, 99),
    ("sum", lambda x, w: ln.sum(x, -1), (2, 700), None, 700),
    ("mean", lambda x, w: ln.mean(x, 0), (30, 5), None, 30),
]


@every_float
@pytest.mark.parametrize(("name", "f", "x_shape", "w_shape", "terms"), SUMS, ids=[s[0] for s in SUMS])
def test_sums_are_as_narrow_as_derived(name: str, f: Any, x_shape: Any, w_shape: Any, terms: int, dtype: Any) -> None:
    """Points: 2*gamma(h)*S + 2 ulp. Boxes: their exact width, and 2*gamma(h+2)*sum (|x|+r)|w| + 2 ulp."""
    h = depth(terms)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        w = None if w_shape is None else spread(1 + seed, rng, w_shape, dtype, wild=False)
        rational = None if w is None else exact(w)
        size = None if rational is None else each(abs, rational)
        for box in (Interval(spread(1 + seed, rng, x_shape, dtype, wild=False)), box_of(1, rng, x_shape, dtype)):
            y = f(box, w)
            lo, hi = exact(box.lo), exact(box.hi)
            greatest = each(lambda p, q: max(abs(p), abs(q)), lo, hi)
            radius = each(lambda p, q: (q - p) / 2, lo, hi)
            # What a sum of one sign moves its ends by is 2*gamma*M on top of errors that may all go outward: |x| twice.
            more = radius if w is not None else greatest
            point = box.lo is box.hi
            room = f(greatest if point else cells_of(greatest + more), size)
            width = f(cells_of(2 * radius), size)
            for low, high, allowed, exactly in zip(y.lo.flat, y.hi.flat, room.flat, width.flat, strict=True):
                excess = Fraction(float(high)) - Fraction(float(low)) - exactly
                most = 2 * gamma(h if point else h + 2, dtype) * allowed + 2 * max(ulp(low), ulp(high))
                assert 0 <= excess <= most, (float(excess), float(most))


@every_float
def test_selections_are_exact(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x = box_of(1, rng, (2, 3, 8, 8), dtype)
    selections: list[Callable[[Any], Any]] = [
        lambda v: ln.max_pool(v, 3, stride=2, padding=1),
        ln.global_max_pool,
        lambda v: ln.adaptive_max_pool(v, 3),
        ln.relu,
        lambda v: ln.max(v, -1),
        lambda v: ln.maximum(v, 0.5),
        lambda v: ln.minimum(v, v),
        lambda v: ln.pad(ln.transpose(v), 1, value=2),
        lambda v: ln.concat([v, v], 1),
    ]
    for f in selections:
        y = f(x)
        assert np.array_equal(y.lo, f(x.lo)) and np.array_equal(y.hi, f(x.hi))


@every_float
def test_products_and_quotients_that_underflow_are_paid_for_one_by_one(dtype: Any) -> None:
    """Each is off by tiny/2, so a sum of t of them by t*tiny/2, whatever the blocks: not by a few of each block."""
    tiny = Fraction(float(np.finfo(dtype).smallest_subnormal))
    terms, half = 30000, np.finfo(dtype).minexp // 2
    x = np.full((1, 300, 100), 2.0**half, dtype)
    w = np.full((1, 300, 100), 0.98 * float(tiny / Fraction(2) ** (half + 1)), dtype)
    true = terms * Fraction(float(x[0, 0, 0])) * Fraction(float(w[0, 0, 0]))
    assert Fraction(48, 100) * terms * tiny < true < Fraction(1, 2) * terms * tiny
    sums: list[Callable[[Any], Any]] = [
        lambda v: ln.conv(v, w),
        lambda v: ln.matmul(ln.reshape(v, (1, -1)), w.reshape(-1, 1)),
        lambda v: ln.conv_transpose(ln.reshape(v, (1, -1, 1)), w.reshape(-1, 1, 1)),
    ]
    for f in sums:
        assert not f(x).any()  # every product was lost
        box = f(Interval(x))
        assert Fraction(float(box.lo.item())) <= true <= Fraction(float(box.hi.item()))
    assert true <= Fraction(ln.error_bound("conv", (x, w)).item())
    g = np.full((1, terms), dtype(int(0.49 * terms) * float(tiny)), dtype)  # the cell in the middle is in every window
    (dx,) = ln.avg_pool_vjp((np.zeros((1, 2 * terms - 1), dtype),), Interval(g), kernel=(terms,), stride=1)
    assert float(dx.lo[0, terms - 1]) <= float(g[0, 0]) <= float(dx.hi[0, terms - 1])


def test_counts_that_no_float_has_are_rounded_once_more() -> None:
    """Padding that counts divides few terms by numbers of many digits: boxes pay for it, rounded results do not."""
    rng = np.random.default_rng(0)
    for dtype, kernel in ((np.float32, 4097), (np.float64, 2**27 + 1)):
        x = (1 + rng.random((400, 1, 1, 1))).astype(dtype)
        options: dict[str, Any] = {"kernel": (kernel, kernel), "stride": 1, "padding": kernel // 2}
        (dx,) = ln.avg_pool_vjp((x,), Interval(x), **options)
        (nearest,) = ln.avg_pool_vjp((x,), x, **options, arithmetic="rounded")
        for box in (ln.avg_pool(Interval(x), **options), dx):
            for v, low, high in zip(x.flat, box.lo.flat, box.hi.flat, strict=True):
                assert Fraction(float(low)) <= Fraction(float(v)) / kernel**2 <= Fraction(float(high))
        for y in (ln.avg_pool(x, **options, arithmetic="rounded"), nearest):
            if dtype is np.float64:
                assert y.ravel().tolist() == [float(Fraction(v) / kernel**2) for v in x.ravel().tolist()]


def test_windows_that_read_a_cell_are_counted_at_once() -> None:
    for n, kernel, stride, dilation, padding in ((9, 3, 1, 2, 2), (9, 4, 2, 1, 1), (7, 3, 3, 3, 3), (5, 5, 1, 1, 4)):
        options: dict[str, Any] = {"kernel": (kernel,), "stride": stride, "dilation": dilation, "padding": padding}
        op = resolve_named("avg_pool", [(1, 1, n)], options).op
        assert isinstance(op, AvgPool)
        (readers,) = ln.avg_pool_vjp(
            (x := np.ones((1, 1, n)),), np.ones_like(ln.avg_pool(x, **options)), **options, divisor=1
        )
        assert op.terms_back(((1, n),), 0) == readers.max()
    long = resolve_named("avg_pool", [(1, 1, 10**6)], {"kernel": (10**5,), "stride": 1}).op  # no loop over the kernel
    assert isinstance(long, AvgPool) and long.terms_back(((1, 10**6),), 0) == 10**5


def lost(terms: int, greatest: Fraction, dtype: Any) -> Fraction:
    """What lunette.arithmetic.interval moves every end of a sum by, for all that may underflow: its s."""
    tiny = Fraction(float(np.finfo(dtype).smallest_subnormal))
    return 4 * tiny * (3 * terms + 4 + terms * greatest)


@pytest.mark.parametrize("seed", [44])
def test_a_point_may_cost_another_underflow_than_a_box_around_it(seed: int) -> None:
    """Of points the smaller factor carries the error, of boxes the wider one: so their ends move by different s."""
    check_a_box_inside_a_box(ConvTranspose, seed)


@every_kind
@few
@given(seeds)
def test_a_box_inside_a_box_has_its_result_inside(kind: type[Op], seed: int) -> None:
    check_a_box_inside_a_box(kind, seed)


def check_a_box_inside_a_box(kind: type[Op], seed: int) -> None:
    """Up to the excess of the bounds: for sums what test_sums_are_as_narrow_as_derived allows, and s; else none."""
    rng = np.random.default_rng(seed)
    case, dtype = random_case(kind, seed), FLOATS[seed % 2]
    if kind.name == "smooth_max_pool":
        return  # below: its bounds shift by a number of the box
    shared = [spread(1, rng, s, dtype, wild=False) for s in case.shapes[1:]]
    x = box_of(1, rng, case.shapes[0], dtype)
    lo, hi = np.asarray(x.lo), np.asarray(x.hi)
    part = Interval(np.maximum(lo, hi - (hi - lo) / 2).astype(dtype), hi)
    named = dict(zip(kind.arrays[1:], shared, strict=False))
    large, small = (getattr(ln, kind.name)(b, **named, **case.options, arithmetic="interval") for b in (x, part))
    room: Any = 0
    if kind.linear_in and issubclass(kind, AvgPool | Conv):
        greatest = each(lambda p, q: max(abs(p), abs(q)), exact(lo), exact(hi))
        own = {n: each(abs, exact(v)) for n, v in named.items()}
        options = dict(case.options)
        if options.get("divisor"):
            options["divisor"] = abs(options["divisor"])
        op = resolve_named(kind.name, case.shapes, case.options, lead=1).op
        terms = op.terms([*case.shapes, *[None] * (len(kind.arrays) - len(case.shapes))]) or 1
        room = 8 * gamma(depth(terms) + 2, dtype) * getattr(ln.spec, kind.name)(cells_of(greatest), **own, **options)
        factors = [1, *(v for a in (greatest, *own.values()) for v in cells_of(a).flat)]
        room = room + lost(terms, max(factors) / min(1, Fraction(options.get("divisor") or 1)), dtype)
    elif kind is LpPool:
        op = resolve_named(kind.name, case.shapes, case.options, lead=1).op
        assert isinstance(op, LpPool)
        most = prod(case.shapes[0][1:])  # no window has more cells
        own = interval_pool.norm_numbers(max(most, 1), float(op.p), np.dtype(dtype))[0]
        room = 4 * Fraction(float(own)) * exact(large.hi)
    ends = [(large.lo, small.lo), (small.hi, large.hi)]
    for outer, inner in ends:
        slack = [ulp(v) * 2 for v in np.asarray(outer).flat] if kind.linear_in or kind.needs == "exp" else None
        gaps = exact(np.asarray(inner)) - exact(np.asarray(outer)) + room
        for at, gap in enumerate(cells_of(gaps).flat):
            assert gap + (slack[at] if slack else 0) >= 0


# ---- smooth max and norms: the kernels' own error


def check_own_error(kind: type[Op], parameter: float, dtype: Any, style: int) -> None:
    """The fast kernels are as near to the truth as the bounds assume: balls of 200 bits of the very floats given."""
    rng = np.random.default_rng(style)
    soft = kind is SmoothMaxPool
    for shape, kernel in (((2, 3, 40), (4,)), ((1, 2, 8, 8), (2, 2)), ((1, 1, 36, 41), (36, 40))):
        plain = rng.standard_normal(shape)
        if style == 1:  # all sizes
            plain = plain * 2.0 ** rng.integers(-12, 13, shape)
        elif style == 2:  # nearly equal, where errors of one sign add up
            plain = 3 + (rng.random(shape) < 0.1) * plain
        elif style == 3:  # far apart: by the definition
            plain = plain * 2.0 ** rng.integers(-60, 60, shape)
        elif style == 4:  # subnormal
            plain = plain * float(np.finfo(dtype).smallest_subnormal) * 1000
        x = plain.astype(dtype)
        options: dict[str, Any] = {"kernel": kernel}
        terms = int(np.prod(kernel))
        if soft:
            numbers = interval_pool.smooth_max_numbers(terms, parameter, np.dtype(dtype))
            y, options = ln.smooth_max_pool(x, kernel, beta=parameter), {**options, "beta": ball(Fraction(parameter))}
        else:
            numbers = interval_pool.norm_numbers(terms, parameter, np.dtype(dtype))
            y, options = ln.lp_pool(x, kernel, p=parameter), {**options, "p": parameter}
        for n in range(len(x)):
            true = getattr(ln.spec, kind.name)(each(ball, exact(x[n])), **options)
            for got, v in zip(y[n].flat, true.flat, strict=True):
                radius = numbers[0] * abs(float(got)) + numbers[2]
                error = abs(ball(Fraction(float(got))) - v)
                assert error <= ball(Fraction(float(radius))), (float(got), error, radius)


OWN = [(SmoothMaxPool, b) for b in (1.5, -0.25, 30.0)] + [(LpPool, p) for p in (1, 2, 3, 1.5, 7, 64, 100)]


@pytest.mark.kernels
@every_float
@pytest.mark.parametrize("style", range(5))
@pytest.mark.parametrize(("kind", "parameter"), OWN)
def test_kernels_are_as_near_as_their_bounds_assume(kind: type[Op], parameter: float, style: int, dtype: Any) -> None:
    check_own_error(kind, parameter, dtype, style)


@pytest.mark.kernels
@every_float
@pytest.mark.parametrize(("kind", "parameter"), [(SmoothMaxPool, 1.5), (LpPool, 2), (LpPool, 3)])
def test_own_errors_a_thousand_times_smaller_are_found_out(
    kind: type[Op], parameter: float, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "smooth_max_numbers" if kind is SmoothMaxPool else "norm_numbers"
    real = getattr(interval_pool, name)
    monkeypatch.setattr(interval_pool, name, lambda *given: real(*given) / 1000)
    with pytest.raises(AssertionError):
        check_own_error(kind, parameter, dtype, 0)


@pytest.mark.kernels
@every_float
@pytest.mark.parametrize("threads", [1, 2])
def test_pools_of_many_planes(dtype: Any, threads: int) -> None:
    """Several blocks of planes, in any layout, with padding and ceil_mode: samples of them, exactly."""
    ln.set_num_threads(threads)
    rng = np.random.default_rng(8)
    lo = rng.standard_normal((2, 30, 19, 21)).astype(dtype)
    lo[0, 3], lo[1, 4] = np.abs(lo[0, 3]), 0
    hi = lo + (rng.random(lo.shape) < 0.5).astype(dtype)
    pools: list[tuple[Any, dict[str, Any]]] = [
        (ln.avg_pool, {"kernel": (3, 3), "stride": 2, "padding": 1, "ceil_mode": True}),
        (ln.avg_pool, {"kernel": (2, 2), "divisor": 0.25}),
        (ln.global_avg_pool, {}),
        (ln.smooth_max_pool, {"kernel": (2, 2), "beta": -1.5, "padding": 1}),
        (ln.lp_pool, {"kernel": (2, 3), "p": 2}),
        (ln.lp_pool, {"kernel": (2, 3), "p": np.inf}),
    ]
    for function, options in pools:
        number = ball if function in (ln.smooth_max_pool, ln.lp_pool) else Fraction
        own = {k: number(Fraction(v)) if k == "beta" else v for k, v in options.items()}
        spec = getattr(ln.spec, function.__name__)
        for box in (Interval(lo, hi), Interval(lo)):
            y = function(box, **options, arithmetic="interval")
            turned = Interval(*(np.asfortranarray(e) for e in (box.lo, box.hi)))
            assert function(turned, **options, arithmetic="interval") == y
            for n, c in ((0, 0), (0, 3), (1, 4), (1, 29)):
                for _ in range(2):
                    point = inside(box[n, c : c + 1], rng, number)
                    encloses(y[n, c : c + 1], spec(point, **own), dtype)
            if function is not ln.smooth_max_pool:
                assert (y.lo[0, 3] >= 0).all()
    assert ln.lp_pool(lo, 2, p=3, arithmetic="interval").hi[1, 4].max() == 0


@every_float
def test_pools_with_infinite_ends_and_overflow(dtype: Any) -> None:
    """Small problems are done by the specification, large ones by kernels, which see every end that is not finite."""
    most = np.finfo(dtype).max
    for cells in (8, 80):
        lo = np.full((1, 1, cells, cells), most, dtype)
        hi = lo.copy()
        lo[0, 0, 0, 0], hi[0, 0, -1, -1] = -inf, inf
        for y in (ln.lp_pool(Interval(lo, hi), 2, p=2), ln.smooth_max_pool(Interval(lo, hi), 2, beta=1.0)):
            assert not np.isnan(y.lo).any() and not np.isnan(y.hi).any()
            assert (y.lo <= most).all() and (y.hi >= most).all()
    bad = np.ones((1, 1, 80, 80), dtype)
    bad[0, 0, 7, 9] = np.nan
    for call in (partial(ln.lp_pool, kernel=2), ln.global_avg_pool):
        with pytest.raises(ln.ArgumentError, match="NaN"):
            call(bad, arithmetic="interval")


# ---- ends that are infinite, numbers as ends, and other dtypes


@every_float
def test_infinite_ends(dtype: Any) -> None:
    lo, hi = np.zeros((1, 1, 4, 4), dtype), np.ones((1, 1, 4, 4), dtype)
    lo[0, 0, 0, 0], hi[0, 0, 3, 3], hi[0, 0, 0, 0] = -inf, inf, inf
    x, w = Interval(lo, hi), np.array([[[[1, 2], [-1, 0.5]]]], dtype)
    sums: list[Callable[[Any], Any]] = [lambda v: ln.conv(v, w), lambda v: ln.avg_pool(v, 2, stride=1), ln.sum]
    for function in sums:
        y = function(x)
        assert not np.isnan(y.lo).any() and not np.isnan(y.hi).any()
        assert y.lo.flat[0] == -inf and y.hi.flat[-1] == inf
    y = ln.conv(x, w)
    assert np.isfinite(y.lo[0, 0, 1, 0]) and np.isfinite(y.hi[0, 0, 1, 0])
    assert np.isfinite(y.lo[0, 0, 2, 2])  # [.., inf] times a positive weight has a lower end
    assert ln.avg_pool(x, 2, stride=1).hi[0, 0, 1, 1] < 2
    assert ln.max_pool(x, 4).lo.item() == 0 and ln.max_pool(x, 4).hi.item() == inf
    for function in (ln.exp, ln.sigmoid, ln.tanh, ln.softmax):
        y = function(x)
        assert (y.lo <= y.hi).all()


def test_a_large_layer_that_overflows_has_infinite_ends_there_only() -> None:
    x = np.ones((1, 64, 9, 9), np.float32)
    x[0, :, :3, :3] = 3e38
    w = np.random.default_rng(0).standard_normal((4, 64, 3, 3)).astype(np.float32)
    y = ln.conv(x, w, arithmetic="interval")
    assert (y.lo[0, :, 0, 0] == -inf).all() and (y.hi[0, :, 0, 0] == inf).all()
    assert np.isfinite(y.lo[..., 4:, 4:]).all() and np.isfinite(y.hi[..., 4:, 4:]).all()


@pytest.mark.parametrize("corner", [0, -1])
def test_overflow_anywhere_in_a_long_result_is_seen(corner: int) -> None:
    x = np.ones((1, 1, 400, 400), np.float32)
    x[0, 0, corner, :] = 3e38
    w = np.array([[[[3, -3]]]], np.float32)  # infinity less infinity
    for box in (ln.conv(x, w, arithmetic="interval"), ln.conv(Interval(x, x), Interval(w - 1, w + 1))):
        assert not np.isnan(box.lo).any() and not np.isnan(box.hi).any()
        assert (box.lo[0, 0, corner] <= 0).all() and (box.hi[0, 0, corner] >= 0).all()
        assert np.isfinite(box.lo[0, 0, 200]).all()
    x[0, 0, corner, 0] = np.nan
    with pytest.raises(ln.ArgumentError, match="NaN"):
        ln.conv(x, w, arithmetic="interval")
    with pytest.raises(ln.ArgumentError, match="NaN"):
        ln.avg_pool(x, 2, arithmetic="interval")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((1, 3, 6, 6), (2, 3, 3, 3)))
    y = ln.conv(x, w, arithmetic="interval")
    encloses(y[0], ln.spec.conv(exact(x[0].astype(float)), exact(w.astype(float))), dtype)
    box = ln.avg_pool(Interval(x, (x + dtype(0.5)).astype(dtype)), 3)
    encloses(box[0], ln.spec.avg_pool(exact(x[0].astype(float)), kernel=(3, 3)), dtype)
    assert ln.exp(x).dtype == dtype


def test_numbers_as_ends() -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    y = ln.mul(x, Interval(0.1, 0.3))
    assert y.dtype == np.float32 and Fraction(float(y.lo[0, 0])) <= Fraction(1, 10) and y.hi[0, 1] >= 0.6
    soft = ln.smooth_max_pool(x, (2,), beta=Interval(0.5, 2.0), arithmetic="interval")
    for beta in (0.5, 1.0, 2.0):
        assert ln.smooth_max_pool(x.astype(float), (2,), beta=beta) in soft


NUMBERS = [0.1, Fraction(1, 3), Decimal("0.1"), 2**24 + 1, 10**400, -1e300, 1e-50, np.float64(0.1), 3]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__}-{str(n)[:9]}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=lambda t: t.__name__)
def test_numbers_are_rounded_outward(number: Any, dtype: Any) -> None:
    """Next to the number: no float of the dtype is between it and an end."""
    exact = Fraction(number)

    def is_next(box: Interval) -> None:
        for lo, hi in zip(np.ravel(box.lo), np.ravel(box.hi), strict=True):
            assert type(lo) is dtype and type(hi) is dtype
            assert lo <= exact <= hi
            with np.errstate(over="ignore"):
                assert np.isinf(lo) or lo == exact or np.nextafter(lo, dtype(inf)) == hi
                assert lo != hi or lo == exact

    zeros = np.zeros(2, dtype)
    for box in (Interval(zeros), Interval(zeros, np.zeros(2, dtype))):
        for y in (box + number, number + box, box + Interval(number), ln.add(zeros, Interval(number)), number - box):
            is_next(y)
    is_next(ln.maximum(Interval(np.full(2, -inf, dtype)), number))
    is_next(ln.minimum(Interval(number), np.full(2, inf, dtype)))
    is_next(ln.sub(Interval(number, number), zeros))
    if dtype is np.float16:
        return
    g = ln.Graph()
    x = g.input((), dtype=np.dtype(dtype).name, name="x")
    g.output(ln.maximum(x, -inf))
    p = g.compile()
    for y in (p.run(Interval(number)), p.run(x=Interval(number, number)), p.run(number, arithmetic="interval")):
        is_next(y)
    is_next(lift(number, Interval(zeros)))
    primals, truth = (np.zeros((1, 2), dtype), dtype(1)), -flint.arb(2).log() * flint.fmpq(*exact.as_integer_ratio())
    for tangent in (Interval(number), number):
        slope = ln.smooth_max_pool_jvp(primals, (None, tangent), kernel=(2,), arithmetic="interval")
        assert flint.arb(float(slope.lo[0, 0])) <= truth <= flint.arb(float(slope.hi[0, 0]))


def test_ends_of_lists_are_the_numbers_that_are_given() -> None:
    assert Interval([2**53 + 1, 0.5]).lo.tolist() == [2**53 + 1, 0.5]


def test_containing_compares_real_numbers() -> None:
    tenth = np.float32(0.1)
    assert tenth not in Interval(0.1) and 0.1 in Interval(0.1) and Fraction(1, 10) not in Interval(0.1)
    assert np.float16(0.1) not in Interval(0.1) and tenth in Interval(float(tenth))
    assert Fraction(1, 10) in Interval(Decimal("0.1")) and Decimal("0.1") in Interval(Fraction(1, 10), 0.1)
    assert 2**53 + 1 not in Interval(2.0**53) and 2**53 + 1 not in Interval(np.full(2, 2.0**53))
    assert tenth not in Interval(np.full(2, 0.1)) and np.full(2, tenth) not in Interval(np.full(2, 0.1))
    assert np.array([2**53 + 1, 0]) not in Interval(np.zeros(2), np.full(2, 2.0**53))
    assert Decimal("inf") in Interval(0, inf) and np.nan not in Interval(-inf, inf)
    for has_special_values in ("a", None, 1j, object(), [[1], [2, 3]]):
        for box in (Interval(0, 1), Interval(np.zeros(2))):
            with pytest.raises(ln.DTypeError, match="needs real numbers"):
                assert has_special_values in box


def test_an_interval_of_numbers_beside_numpy() -> None:
    box = Interval(0.1, 0.3)
    assert Fraction(0.1) + Fraction(float(np.float32(0.1))) in box + np.float32(0.1)
    both: list[Any] = [box * np.ones(2, np.float32), np.ones(2, np.float32) * box]
    assert [y.tolist() for y in both] == [[box, box]] * 2


def test_exact_numbers_stay_exact() -> None:
    y = ln.avg_pool([[Interval(1, 2), 3, Fraction(1, 3)]], (3,), arithmetic="interval")
    assert y.lo.tolist() == [[Fraction(13, 9)]] and y.hi.tolist() == [[Fraction(16, 9)]]


@pytest.mark.kernels
def test_layouts_and_threads_change_nothing_that_is_promised() -> None:
    rng = np.random.default_rng(5)
    x, w = box_of(1, rng, (2, 8, 9, 9), np.float32), rng.standard_normal((4, 8, 3, 3)).astype(np.float32)
    turned = Interval(np.asfortranarray(x.lo), np.asfortranarray(x.hi))
    assert ln.conv(turned, w) == ln.conv(x, w)


# ---- boxes as values


def test_a_box_is_convenient() -> None:
    box = Interval(np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32))
    assert box.shape == (2, 3) and box.dtype == np.float32
    assert box[1].shape == (3,) and box[0, 0] == Interval(0.0, 1.0)
    assert np.full((2, 3), 0.5) in box and np.full((2, 3), 1.5) not in box and 0.1 in box
    assert Interval(box.lo, box.lo) in box and box not in Interval(box.lo, box.lo)
    assert len(repr(Interval(np.zeros(10**6)))) < 100
    assert Interval(np.float32(0.1)) != Interval(0.1) and 0.1 not in Interval(np.float32(0.1))
    assert 0.1 not in Interval(np.full(2, 0.1, np.float32))
    with pytest.raises(TypeError):
        iter(box)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [Exp, Log, Sigmoid, Tanh])
def test_ends_of_functions_are_next_to_the_exact_ones(kind: type[Unary], dtype: Any) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(500) * 10.0 ** rng.integers(-8, 3, 500)).astype(dtype)
    x = np.sort(abs(x) if kind is Log else x)
    box = apply(kind, [Interval(x[:-1], x[1:])], "interval")
    low, high = (apply(kind, [v], "rounded") for v in (x[:-1], x[1:]))  # the nearest floats
    assert ((box.lo == low) | (box.lo == np.nextafter(low, dtype(-np.inf)))).all()
    assert ((box.hi == high) | (box.hi == np.nextafter(high, dtype(np.inf)))).all()


def test_refusals() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    with pytest.raises(ln.ArgumentError, match="values, not indices"):
        ln.max_pool(x, 2, return_indices=True, arithmetic="interval")
    with pytest.raises(ln.ArgumentError, match="N4"):
        Interval(x, x - 1)
    with pytest.raises(ln.DTypeError, match=r"N4.*ends of one dtype"):
        Interval(x, x.astype(np.float64))
    with pytest.raises(ln.ShapeError, match=r"N4.*ends of one shape"):
        Interval(x, 5)
    with pytest.raises(ln.ArgumentError, match=r"N4.*lo=1.0, hi=0.0 at \(0, 0, 1, 2\)"):
        Interval(np.where(np.arange(16).reshape(1, 1, 4, 4) == 6, 1, x).astype(np.float32), x)
    with pytest.raises(ln.ShapeError, match=r"N4.*cells of shape"):
        assert x[0] in Interval(x, x)
    with pytest.raises(ln.ArgumentError, match="finite beta"):
        ln.smooth_max_pool(x, 2, beta=Interval(-1.0, 1.0), arithmetic="interval")
    x[0, 0, 0, 0] = np.nan
    for kind in (Relu, Neg, Exp):
        with pytest.raises(ln.ArgumentError, match="NaN") as error:
            apply(kind, (x,), "interval")
        assert error.value.who == kind.name
    for call in (ln.max_pool, ln.avg_pool, ln.lp_pool):
        for _ in range(2):  # the second goes the short way
            with pytest.raises(ln.ArgumentError, match="NaN") as error:
                call(x, 2, arithmetic="interval")
            assert error.value.who == call.__name__
    with pytest.raises(ln.ArgumentError, match="NaN"):
        ln.conv(x, x, arithmetic="interval")


# ---- graphs


def net(x: Any, w: Any, b: Any) -> Any:
    y = ln.relu(ln.conv(x, w, b, padding=1))
    y = ln.add(ln.avg_pool(y, 2, stride=1), ln.max_pool(ln.leaky_relu(x, 0.25), 2, stride=1))
    return ln.mean(ln.mul(y, ln.sub(y, 0.5)), (2, 3))


def boxes_for_net(seed: int) -> list[Interval]:
    rng = np.random.default_rng(seed)
    return [box_of(1, rng, s, np.float32) for s in ((1, 2, 4, 4), (2, 2, 3, 3), (2,))]


@by_day(4)
@given(seeds)
def test_graphs(seed: int) -> None:
    boxes, rng = boxes_for_net(seed), np.random.default_rng(seed)
    graph = ln.trace(net, *(b.lo for b in boxes))
    y = graph.compile().run(*boxes, arithmetic="interval")
    assert y == net(*boxes)
    for _ in range(3):
        encloses(y, graph.eval(*(inside(b, rng) for b in boxes), number=Fraction), np.float32)


@few
@given(seeds)
def test_graphs_of_derivatives(seed: int) -> None:
    boxes, rng = boxes_for_net(seed), np.random.default_rng(seed)
    loss = ln.value_and_grad(lambda *v: ln.sum(net(*v)), argnums=(0, 1, 2))
    graph = ln.trace(loss, *(b.lo for b in boxes))
    results = graph.compile().run(*boxes, arithmetic="interval")
    for _ in range(2):
        for y, true in zip(results, graph.eval(*(inside(b, rng) for b in boxes), number=Fraction), strict=True):
            encloses(y, true, np.float32)


def test_programs_take_points_labels_and_names() -> None:
    rng = np.random.default_rng(0)
    x, w, labels = (
        rng.standard_normal((4, 5)).astype("f"),
        rng.standard_normal((3, 5)).astype("f"),
        np.array([0, 2, 1, 0]),
    )
    g = ln.Graph()
    inputs = [g.input(a.shape, a.dtype, n) for a, n in ((x, "x"), (w, "w"), (labels, "labels"))]
    g.output(ln.cross_entropy(ln.linear(inputs[0], inputs[1]), inputs[2]), inputs[0])
    p = g.compile()
    loss, same = p.run(x, labels=labels, w=Interval(w, w), arithmetic="interval")
    assert p(x, w, labels)[0].astype(float) - 1e-6 in Interval(loss.lo - np.float32(2e-6), loss.hi)
    assert isfinite(loss.hi) and loss.hi - loss.lo < 1e-5 and same == Interval(x)
    wider, _ = p.run(x, Interval(w - np.float32(0.1), w + np.float32(0.1)), labels, arithmetic="interval")
    assert loss in wider


def node_by_node(graph: ln.Graph, boxes: list[Interval]) -> dict[int, Any]:
    """What every operator gives by itself, on boxes, and on points as arrays."""

    def compute(n: Any, operands: list[Any]) -> Any:
        return apply(n.kind, operands, "interval", *n.options)

    return dict(forward(graph, [b.lo if b.lo is b.hi else b for b in boxes], compute))


def check_program(graph: ln.Graph, boxes: list[Interval]) -> tuple[Interval, ...]:
    """A program gives the boxes of its operators, whatever it has computed before."""
    program, before = graph.compile(), [(b.lo.copy(), b.hi.copy()) for b in boxes]
    twins = [Interval(b.lo, b.hi.copy()) for b in boxes]  # where there are points, boxes of the same numbers
    for now in (boxes, twins, boxes):
        want = {at: Interval.of(v) for at, v in node_by_node(graph, now).items()}
        every, results = program.boxes(*now), several(program.run(*now, arithmetic="interval"))
        assert every == want
        assert list(results) == [want[at] for at in graph.outputs]
        made = [box for at, box in every.items() if graph.nodes[at].value is None]
        for several_boxes in (results, made):
            ends = [(e, at) for at, b in enumerate(several_boxes) for e in (b.lo, b.hi)]
            assert all(e.flags.writeable and e.flags.c_contiguous for e, _ in ends)
            for at, b in enumerate(several_boxes):
                others = [e for e, k in ends if k != at] + [e for g in now for e in (g.lo, g.hi)]
                others += [n.value for n in graph.nodes if n.value is not None]
                assert not any(np.shares_memory(e, o) for e in (b.lo, b.hi) for o in others)
    assert all((b.lo == lo).all() and (b.hi == hi).all() for b, (lo, hi) in zip(boxes, before, strict=True))
    return results


@pytest.mark.parametrize(("kind", "case"), [c for c in CASES if KERNEL.has(cast("type[Op]", c.values[0]))])
@every_float
def test_programs_give_the_boxes_of_their_operators(kind: type[Op], case: Case, dtype: Any) -> None:
    """Values and derivatives; the arrays beside x once as inputs, once as constants; also where sums overflow."""
    rng = np.random.default_rng(len(case.shapes[0]))
    for style, fixed in ((1, False), (4, True), (0, True)):
        boxes = [
            box_of(style, rng, s if p else (2, *s), dtype, wild=style == 4 and kind.needs != "exp")
            for p, s in enumerate(case.shapes)
        ]
        if kind.name == "smooth_max_pool":
            boxes[1] = Interval(np.array(1.5, dtype))

        def f(x: Any, *rest: Any, boxes: list[Interval] = boxes) -> Any:
            arrays = dict(zip(kind.arrays[1:], rest or [b.lo for b in boxes[1:]], strict=False))
            return getattr(ln, kind.name)(x, **arrays, **case.options)

        given = boxes[:1] if fixed else boxes
        check_program(ln.trace(f, *(b.lo for b in given)), given)
        if style == 0:
            loss = ln.value_and_grad(lambda *v, f=f: ln.sum(f(*v)))
            check_program(ln.trace(loss, *(b.lo for b in given)), given)


@pytest.mark.parametrize(("kind", "case"), GLUE_CASES)
@every_float
def test_programs_give_the_boxes_of_the_operators_between(kind: type[Glue], case: Case, dtype: Any) -> None:
    rng, options = np.random.default_rng(1), glue_options(kind, case)
    for style in (1,) if kind.needs == "exp" else (0, 4):
        boxes = [box_of(style, rng, s, dtype, positive=kind.positive) for s in case.shapes]
        for inputs in {1, len(boxes)}:
            graph = ln.Graph()
            operands = [
                graph.input(b.shape, dtype) if p < inputs else graph.constant(b.lo, dtype) for p, b in enumerate(boxes)
            ]
            graph.output(apply(kind, operands, "fast", *options))
            check_program(graph, boxes[:inputs])


@by_day(30)
@given(seeds)
def test_random_programs_on_boxes(seed: int) -> None:
    """Residuals, several outputs, constants: the boxes of their operators, and every exact result inside."""
    graph, rng = random_graph(seed), np.random.default_rng(seed)
    boxes = [box_of(int(rng.integers(3)), rng, n.shape, np.float64) for n in graph.inputs]
    results = check_program(graph, boxes)
    exactly = graph.eval(*(inside(b, rng) for b in boxes), number=Fraction)
    for y, true in zip(results, several(exactly), strict=True):
        encloses(y, true, np.float64)


def small_net() -> tuple[ln.Graph, Interval]:
    rng = np.random.default_rng(0)
    x, w, b, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 28, 28), (8, 1, 3, 3), (8,), (3, 8)))

    def f(x: Any) -> Any:
        y = ln.max_pool(ln.relu(ln.conv(x, w, b, padding=1)), 2)
        y = ln.relu(ln.conv(y, np.repeat(w, 8, 1), padding=1) + y)
        return ln.linear(ln.global_avg_pool(y, keepdims=False), v, b[:3])

    return ln.trace(f, x), Interval(x, x + np.float32(0.125))


def test_programs_decide_once_what_shapes_and_constants_do(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, box = small_net()
    program, want = graph.compile(), node_by_node(graph, [box])
    program.run(box)
    for name in ("_magnitudes", "_beside", "_rule", "resolve_cached"):
        monkeypatch.delattr(interval, name)
    monkeypatch.delattr("lunette.graph.interval_plan.apply")
    assert program.run(box) == want[graph.outputs[0]]


def test_boxes_are_printed_only_where_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, box = small_net()
    monkeypatch.delattr("lunette.number.interval.shown")
    assert graph.compile().run(Interval(box.lo, box.hi)).shape == (1, 3)


@pytest.mark.kernels
def test_threads_share_a_program_on_boxes() -> None:
    graph, box = small_net()
    boxes = [Interval(box.lo, box.hi + np.float32(k)) for k in range(3)] + [Interval(box.lo)]
    want = [node_by_node(graph, [b])[graph.outputs[0]] for b in boxes]
    wrong: list[int] = []
    for _ in range(5):
        program = graph.compile()
        begin = threading.Barrier(len(boxes))

        def work(at: int, program: Any = program, begin: threading.Barrier = begin) -> None:
            begin.wait()
            wrong.extend(at for _ in range(10) if program.run(boxes[at], arithmetic="interval") != want[at])

        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(boxes))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_programs_on_boxes_keep_no_more_than_they_read_again() -> None:
    x = np.zeros((64, 1024), np.float32)

    def f(x: Any) -> Any:
        for _ in range(20):
            x = ln.relu(x)
        return x

    graph = ln.trace(f, x)
    program, box = graph.compile(), Interval(x, x + 1)
    program.run(box)
    tracemalloc.start()
    program.run(box)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * x.nbytes  # two boxes are four ends


def test_programs_on_points_refuse_nan_where_operators_do() -> None:
    x = np.array([[1, np.nan]], np.float32)
    for f in (ln.relu, ln.exp, lambda x: ln.linear(x, np.ones((1, 2), "f"))):
        graph = ln.trace(f, x)
        with pytest.raises(ln.ArgumentError, match=r"N4.*NaN") as alone:
            node_by_node(graph, [Interval.between(x, x)])
        with pytest.raises(ln.ArgumentError) as error:
            graph.compile().run(x, arithmetic="interval")
        assert str(error.value) == str(alone.value) and error.value.who != "lunette"
    y = ln.trace(lambda x: ln.slice(x, (0, 0), (1, 1)) + 1, x).compile().run(x, arithmetic="interval")
    assert y == Interval(np.full((1, 1), 2, "f"))  # it is not read
    with pytest.raises(ln.ArgumentError, match="N4"):
        ln.trace(lambda v: ln.maximum(v, x), np.zeros((1, 2), "f")).compile().run(Interval(np.zeros((1, 2), "f")))


def test_programs_on_boxes_compute_nodes_of_constants_once() -> None:
    x, w = np.arange(8, dtype=np.float32).reshape(2, 4), np.arange(12, dtype=np.float32).reshape(4, 3)

    def f(x: Any) -> Any:
        g = x.graph
        turned = ln.transpose(g.constant(w))
        return ln.linear(x, turned, ln.mul(g.constant(w[0]), 0.1)), ln.mul(g.constant(w[1]), 0.1)

    graph = ln.trace(f, x)
    check_program(graph, [Interval(x, x + 1)])
    plan = graph.compile()._interval_plan()
    assert [s.node.kind.name for s in plan.every if s.node.kind is not None] == ["matmul", "add"]


def test_outputs_on_boxes_have_memory_of_their_own() -> None:
    graph = ln.Graph()
    x = graph.input((2, 2), name="x")
    y = ln.relu(x)
    graph.output(x, graph.constant(np.array([1, 2], np.float32)), y, y, ln.reshape(y, (4,)), ln.reshape(x, (4,)))
    a = np.array([[1, -2], [3, -4]], np.float32)
    for box in (Interval(a), Interval(a, a + 1)):
        check_program(graph, [box])


def test_boxes_of_nodes_are_as_the_inputs_were() -> None:
    import torch

    graph = ln.Graph()
    v, labels = graph.input((1, 2), name="x"), graph.input((1,), "int64", name="labels")
    graph.output(ln.one_hot(labels, 2, dtype="float32") + ln.relu(v) + np.array([1, 0], np.float32))
    x = torch.tensor([[-1.0, 1.0]])
    boxes = graph.compile().boxes(Interval(x, x + 1), np.array([1]))
    assert sorted(boxes) == [at for at, n in enumerate(graph.nodes) if n.dtype.kind == "f"]
    assert all(isinstance(e, torch.Tensor) for b in boxes.values() for e in (b.lo, b.hi))
    assert boxes[graph.outputs[0]].hi.tolist() == [[1, 3]]


def test_every_operator_says_that_it_has_bounds() -> None:
    assert all("interval" in rules for rules in ln.rules().values())


# ---- the tests themselves


@pytest.mark.parametrize("broken", ["steps", "sums", "ends"])
def test_a_build_that_rounds_inward_fails(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above see it: without the steps outward, and without what sums and kernels add for their roundings."""
    monkeypatch.setattr(interval.RULES, "made", {})
    failing: list[Callable[[], None]]
    if broken == "steps":
        monkeypatch.setattr(outward, "moved", lambda a, where, down: a)
        pairs = Case(((50,), (50,)))
        failing = [partial(check_glue, kind, pairs, np.float32, 0, 1) for kind in (Add, Mul, Div)]
        failing.append(partial(check, SmoothMaxPool, Case(((1, 8), ()), {"kernel": (4,)}), np.float32, 0, 1))
    elif broken == "ends":
        for name in ("smooth_max_numbers", "norm_numbers"):
            monkeypatch.setattr(interval_pool, name, lambda *given: np.zeros(4))
        failing = [
            partial(check, SmoothMaxPool, Case(((1, 8), ()), {"kernel": (4,)}), np.float32, 0, 1),
            partial(check, LpPool, Case(((3, 20),), {"kernel": (4,), "p": 3}), np.float64, 0, 1),
        ]
    else:
        real = interval.factors

        def inward(*given: Any) -> Any:
            a, b = real(*given)
            return 0 * a, 0 * b + 1

        monkeypatch.setattr(interval, "factors", inward)
        failing = [
            partial(check, Conv, Case(((3, 8, 8), (4, 3, 3, 3))), np.float32, 0, 1),
            partial(check, ConvTranspose, Case(((3, 8, 8), (3, 4, 3, 3))), np.float64, 0, 1),
            partial(check, AvgPool, Case(((3, 9, 9),), {"kernel": (3, 3)}), np.float32, 0, 1),
        ]
    for soundness in failing:
        with pytest.raises(AssertionError):
            soundness()


def test_operators_on_boxes_are_those_of_arrays() -> None:
    x = np.array([1, 2, 3], np.float32)
    box = Interval(x, x + 1)
    for y, z in (
        (box + box, ln.add(box, box)),
        (x + box, ln.add(x, box)),
        (box - 1, ln.sub(box, 1.0)),
        (1 - box, Interval(-x, 1 - x)),
        (x * box, ln.mul(x, box)),
        (box / x, ln.div(box, x)),
        (6 / Interval(x, x), ln.div(6.0, Interval(x, x))),
    ):
        assert y == z
    cells = np.array([Interval(1, 2), 3], object)
    assert (cells * Interval(2)).tolist() == [Interval(2, 4), Interval(6)]  # a number meets an array cell by cell


def test_a_box_asks_for_bounds_in_every_arithmetic() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    for arithmetic in ("fast", "rounded", "interval"):
        assert ln.max_pool(Interval(x, x + 1), (2,), arithmetic=arithmetic) == Interval(x[..., 1::2], x[..., 1::2] + 1)


@pytest.mark.parametrize("huge", [10**400, -(10**400), Fraction(10**400, 3), Fraction(1, 10**400), Decimal("1e400")])
def test_infinite_ends_meet_numbers_that_no_float_holds(huge: Any) -> None:
    box, exactly = Interval(huge, inf), Fraction(huge)
    twice, square, line = box + huge, box * box, Interval(huge, huge) * Interval(-inf, inf)
    assert 2 * exactly in twice and twice.hi == inf
    assert exactly * exactly in square and square.hi == inf
    assert (line.lo, line.hi) == (-inf, inf)
    assert 2 * exactly in box - -huge and 1 in box / huge


def test_boxes_of_tensors_give_boxes_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    y = ln.max_pool(ln.Interval(x, x + 1), 2, arithmetic="interval")
    assert y.lo.tolist() == [[[[5, 7], [13, 15]]]] and isinstance(y.hi, torch.Tensor) and y.shape == (1, 1, 2, 2)


# ---- comforts


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e300), st.sampled_from(["float32", "float64"]))
def test_a_box_around_an_array_holds_everything_that_near(x: float, eps: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        cells = np.array([x], dtype)
    if not np.isfinite(cells).all():
        return
    box = ln.Interval.around(cells, eps)
    middle = Fraction(float(cells[0]))
    for edge in (middle - Fraction(eps), middle + Fraction(eps)):
        assert (box.lo[0] == -inf or Fraction(float(box.lo[0])) <= edge) and box.lo.dtype == dtype
        assert box.hi[0] == inf or edge <= Fraction(float(box.hi[0]))
    within = ln.Interval.around(cells, eps, clip=(0.1, 0.9))
    for inside in (Fraction(0.1), Fraction(0.5), Fraction(0.9)):
        if middle - Fraction(eps) <= inside <= middle + Fraction(eps):
            assert Fraction(float(within.lo[0])) <= inside <= Fraction(float(within.hi[0]))


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2), st.sampled_from(["float32", "float64"]))
def test_the_width_is_never_less_than_it_is_and_the_middle_is_inside(ends: list[float], dtype: str) -> None:
    with np.errstate(over="ignore"):
        lo, hi = np.sort(np.array(ends, dtype))
    box = ln.Interval(np.array([lo]), np.array([hi]))
    assert box.mid[0] in box[0] and box.mid.dtype == dtype
    if np.isfinite([lo, hi]).all():
        exact = Fraction(float(hi)) - Fraction(float(lo))
        assert box.width[0] == inf or Fraction(float(box.width[0])) >= exact
        below = np.nextafter(box.width[0], np.asarray(-inf, dtype))
        assert box.width[0] in (0, inf) or Fraction(float(below)) < exact  # and no more than the next float


def test_comparisons_of_boxes_have_three_answers() -> None:
    box = ln.Interval(np.array([1.0, -1.0, -2.0, 0.0]), np.array([2.0, 1.0, -1.0, 0.0]))
    words = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal}
    for word, how in words.items():
        every = [how(np.linspace(lo, hi, 5), 0) for lo, hi in zip(box.lo, box.hi, strict=True)]
        np.testing.assert_array_equal(getattr(box, f"certainly_{word}")(0), [e.all() for e in every])
        np.testing.assert_array_equal(getattr(box, f"possibly_{word}")(0), [e.any() for e in every])
    assert ln.Interval(1, 3).certainly_gt(ln.Interval(0, Fraction(1, 2))) is True
    tenth = np.array([0.1], np.float32)  # above 0.1, which is no float32
    assert ln.Interval(tenth, tenth).certainly_gt(0.1).all()
    with pytest.raises(ln.ArgumentError, match=r"N4.*certainly_gt"):
        _ = box > 0
    with pytest.raises(ln.ArgumentError, match=r"N4.*certainly_lt"):
        _ = box < 0


def test_shapes_of_boxes_are_told_as_those_of_arrays() -> None:
    lo = np.arange(6.0).reshape(2, 3)
    box = Interval(lo, lo + 1)
    for one, other in (
        (box.reshape(3, 2), lo.reshape(3, 2)),
        (box.reshape((3, -1)), lo.reshape((3, -1))),
        (box.reshape(6), lo.reshape(6)),
        (box.transpose(), lo.transpose()),
        (box.transpose(1, 0), lo.transpose(1, 0)),
        (box.transpose((1, 0)), lo.transpose((1, 0))),
    ):
        assert np.array_equal(one.lo, other) and np.array_equal(one.hi, other + 1)


def test_the_glue_are_methods_of_boxes() -> None:
    box = ln.Interval(np.array([[-1.0, 2.0]]), np.array([[0.5, 3.0]]))
    w = np.array([[1.0, 2.0], [-1.0, 0.0]])
    assert box @ w == ln.matmul(box, w) and w @ box.reshape((2, 1)) == ln.matmul(w, ln.reshape(box, (2, 1)))
    assert box.relu() == ln.relu(box) and box.exp() == ln.exp(box) and abs(box) == ln.abs(box)
    assert box.sum() == ln.sum(box) and box.mean((0,)) == ln.mean(box, (0,)) and box.transpose() == ln.transpose(box)
    assert {"reshape", "softmax", "lo"} <= set(dir(box)) and not hasattr(box, "max_pool")


def test_boxes_show_themselves_in_a_notebook() -> None:
    box = ln.Interval.around(np.zeros((2, 3, 20, 20), np.float32), 0.5)
    page = box._repr_html_()
    assert page.count("<td") == 64 and "[-0.5, 0.5]" in page and len(page) < 20_000
    assert "<td" not in ln.Interval(np.zeros((0, 3)))._repr_html_() and "Interval" in ln.Interval(1, 2)._repr_html_()
    hostile = ln.Interval(np.array([-inf, 0.0, 1e308]), np.array([inf, inf, 1.7e308]))._repr_html_()
    assert "nan" not in hostile


def test_a_distance_is_not_negative() -> None:
    with pytest.raises(ln.ArgumentError, match=r"N4.*eps >= 0"):
        ln.Interval.around(np.zeros(2), -0.5)


# ---- cells that nobody reads


@every_float
def test_cells_between_windows_of_one_cell_are_left_out(dtype: Any) -> None:
    """The bounds are those of what is read, to the bit, and of every point of the box; a NaN between is nobody's."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 3, 7, 6)).astype(dtype), rng.standard_normal((4, 3, 1, 2)).astype(dtype)
    b = rng.standard_normal(4).astype(dtype)
    box = ln.Interval(x - dtype(0.125), x + dtype(0.25))
    read = ln.Interval(box.lo[:, :, ::3].copy(), box.hi[:, :, ::3].copy())
    for options in ({}, {"dilation": (1, 2)}, {"padding": ((0, 0), (1, 0))}):
        whole = ln.conv(box, w, b, stride=(3, 2), **options)
        alone = ln.conv(read, w, b, stride=(1, 2), **options)
        assert np.array_equal(whole.lo, alone.lo) and np.array_equal(whole.hi, alone.hi)
        exactly = ln.conv(exact(x), exact(w), exact(b), stride=(3, 2), **options)
        assert each(lambda y, lo, hi: lo <= y <= hi, exactly, exact(whole.lo), exact(whole.hi)).all()
    padded = ln.conv(box, w, b, stride=(3, 2), padding=((1, 0), (0, 0)))  # whose first row reads nothing
    assert np.array_equal(padded.lo[:, :, 0], np.broadcast_to(padded.lo[:1, :, 0, :1], padded.lo[:, :, 0].shape))
    x[:, :, 1] = np.nan
    assert not np.isnan(ln.conv(x, w, stride=(3, 2), arithmetic="interval").hi).any()
