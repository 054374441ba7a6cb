"""No sum is longer than the bound says: data that is 1 followed by numbers that a running sum of it would drop.

Every problem is linear in one array, with coefficients that are all one power of two. That array is 1 at one place and
a tiny e, or -e, everywhere else: e is just below half a unit of 1, or a fraction of that, so that whole blocks of them
are. A sum that adds n terms to the 1 one after another loses n*e; random data never shows it. How many terms a result
has, and whether the 1 is among them, the same kernel tells in float64 on small whole numbers, which it adds exactly.

Fast results keep the bound of the contract, boxes hold the exact sum, rounded results are the float nearest to it.
LUNETTE_ISA chooses the instruction set under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

import lunette
from effort import ALL_OR_HALF, ALL_OR_QUARTER, LONG
from lunette.arithmetic.error import gamma, height
from lunette.array import defaults_of, recorder_of
from lunette.number import Array
from lunette.ops import MaxPool

ln: Any = lunette

Function = Callable[..., Any]


@dataclass(frozen=True)
class Problem:
    """f(data, arithmetic) is linear in data: sums of its cells, each times `coefficient`."""

    shape: tuple[int, ...]
    f: Function
    coefficient: float = 1.0
    roundings: int = 0
    """What the contract allows beside the sum: smooth max and norms have some units in the last place."""
    arithmetics: tuple[str, ...] = ("interval", "rounded")


def ones(*shape: int, like: Array) -> Array:
    return np.ones(shape, like.dtype)


def program(f: Function) -> Function:
    """A function of one array as a compiled program."""

    def run(v: Array, a: str) -> Any:
        g = ln.Graph()
        g.output(f(g.input(v.shape, dtype=str(v.dtype), name="x")))
        return g.compile().run(v, arithmetic=a)

    return run


def conv(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Iterator[tuple[str, Problem]]:
    """The sums of a convolution and of its derivatives, each as a function of what it adds up."""
    y = ln.output_shape("conv", x, w, **options)

    def vjp(at: int) -> Function:
        def f(g: Array, a: str) -> Any:
            primals = (ones(*x, like=g), ones(*w, like=g), ones(w[0], like=g))
            return ln.conv_vjp(primals, g, arithmetic=a, **options)[at]

        return f

    yield "y", Problem(x, lambda v, a: ln.conv(v, ones(*w, like=v), arithmetic=a, **options))
    yield "y of w", Problem(w, lambda v, a: ln.conv(ones(*x, like=v), v, arithmetic=a, **options))
    yield "dx", Problem(y, vjp(0))
    yield "dw", Problem(y, vjp(1))
    yield "db", Problem(y, vjp(2))


def weights(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Iterator[tuple[str, Problem]]:
    """The derivative in the weights alone."""
    return ((name, problem) for name, problem in conv(x, w, **options) if name == "dw")


def conv_transpose(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Iterator[tuple[str, Problem]]:
    y = ln.output_shape("conv_transpose", x, w, **options)

    def vjp(at: int) -> Function:
        def f(g: Array, a: str) -> Any:
            primals = (ones(*x, like=g), ones(*w, like=g))
            return ln.conv_transpose_vjp(primals, g, arithmetic=a, **options)[at]

        return f

    yield "y", Problem(x, lambda v, a: ln.conv_transpose(v, ones(*w, like=v), arithmetic=a, **options))
    yield "dx", Problem(y, vjp(0))
    yield "dw", Problem(y, vjp(1))


def compiled(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Iterator[tuple[str, Problem]]:
    """The same as steps of a program, where weights are packed beforehand."""
    yield "compiled", Problem(x, program(lambda v: ln.conv(v, np.ones(w, v.dtype), **options)))


def avg(x: tuple[int, ...], **options: Any) -> Iterator[tuple[str, Problem]]:
    options = {"divisor": 1, **options}
    y = ln.output_shape("avg_pool", x, **options)
    yield "y", Problem(x, lambda v, a: ln.avg_pool(v, arithmetic=a, **options))
    yield "dx", Problem(y, lambda v, a: ln.avg_pool_vjp((ones(*x, like=v),), v, arithmetic=a, **options)[0])


def mean_of_bins(x: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[tuple[str, Problem]]:
    """Adaptive averages whose bins all have the same power of two of cells."""
    space, d = x[len(x) - len(sizes) :], len(sizes)
    share = float(np.prod(sizes)) / float(np.prod(space))
    yield "y", Problem(x, lambda v, a: ln.adaptive_avg_pool(v, sizes, arithmetic=a), share)
    if all(n == 1 for n in sizes):
        yield "global", Problem(x, lambda v, a: ln.global_avg_pool(v, spatial=d, arithmetic=a), share)


def greatest(
    x: tuple[int, ...], place: tuple[int, ...], ties: str = "first", **options: Any
) -> Iterator[tuple[str, Problem]]:
    """Max pooling where one cell wins all its windows: their cotangents are summed."""
    y = ln.output_shape("max_pool", x, **options)

    def primal(like: Array) -> Array:
        at = int(np.ravel_multi_index(place, x))
        return -abs(np.arange(np.prod(x), dtype=like.dtype) - at).reshape(x)  # no ties

    def back(g: Array, a: str) -> Any:
        return ln.max_pool_vjp((primal(g),), g, ties=ties, arithmetic=a, **options)[0]

    def recorded(g: Array, a: str) -> Any:
        known = {**defaults_of(ln.max_pool, MaxPool), **options}
        made = recorder_of(MaxPool, x, g.dtype, tuple(known.values()), anyway=True)
        assert made is not None
        return made.vjp(made.forward(primal(g))[1], g)

    slowly = () if prod(x) > 400 else ("interval", "rounded")  # cell by cell
    yield f"dx {ties}", Problem(y, back, arithmetics=slowly)
    if ties == "first":
        yield "dx of a record", Problem(y, recorded, arithmetics=())


def winners(x: tuple[int, ...], every: int, d: int) -> Iterator[tuple[str, Problem]]:
    """Many cells of one window win; their tangents are summed."""

    def forward(t: Array, a: str) -> Any:
        primal = np.zeros(x, t.dtype)
        primal.reshape(-1)[::every] = 1
        return ln.global_max_pool_jvp((primal,), (t,), ties="all", spatial=d, arithmetic=a)

    yield "dy all", Problem(x, forward)


def norm(x: tuple[int, ...], size: float, **options: Any) -> Iterator[tuple[str, Problem]]:
    """The derivatives of sums of magnitudes, whose weights are 1; subnormal cells go another way."""
    y = ln.output_shape("lp_pool", x, p=1, **options)

    def primal(like: Array) -> Array:
        return np.full(x, np.finfo(like.dtype).smallest_subnormal if size == 0 else size, like.dtype)

    def back(g: Array, a: str) -> Any:
        return ln.lp_pool_vjp((primal(g),), g, p=1, arithmetic=a, **options)[0]

    def forward(t: Array, a: str) -> Any:
        return ln.lp_pool_jvp((primal(t),), (t,), p=1, arithmetic=a, **options)

    slowly = () if prod(x) > 400 else ("rounded",)  # cell by cell
    yield "dx", Problem(y, back, roundings=16, arithmetics=slowly)
    yield "dy", Problem(x, forward, roundings=16, arithmetics=slowly)


def smooth(x: tuple[int, ...], window: int, *, wild: float = 0.0, **options: Any) -> Iterator[tuple[str, Problem]]:
    """Equal cells of a window share evenly. A wild cell far away makes the kernel compute window by window."""
    y = ln.output_shape("smooth_max_pool", x, beta=1.0, **options)

    def primal(like: Array) -> Array:
        value = np.zeros(x, like.dtype)
        value.reshape(-1)[-1] = wild
        return value

    def back(g: Array, a: str) -> Any:
        return ln.smooth_max_pool_vjp((primal(g),), g, beta=1.0, arithmetic=a, **options)[0].reshape(-1)[990:991]

    yield "dx", Problem(y, back, 1 / window, roundings=16, arithmetics=())


def slope(x: tuple[int, ...]) -> Iterator[tuple[str, Problem]]:
    """The derivative in beta of windows of two equal cells is -log(2) times the sum of the cotangents."""
    y = ln.output_shape("smooth_max_pool", x, beta=1.0, kernel=(1, 2))

    def back(g: Array, a: str) -> Any:
        primals = (np.zeros(x, g.dtype), np.ones((), g.dtype))
        return ln.smooth_max_pool_vjp(primals, g, kernel=(1, 2), arithmetic=a)[1]

    yield "dbeta", Problem(y, back, -float(np.log(2)), roundings=16, arithmetics=())


def glue(n: int) -> Iterator[tuple[str, Problem]]:
    yield "sum", Problem((n,), program(ln.sum))
    yield "sum of rows", Problem((2, n), program(lambda v: ln.sum(v, axis=1)))
    yield "sum of columns", Problem((n, 2), program(lambda v: ln.sum(v, axis=0)))
    yield "sum of wide columns", Problem((n, 70), program(lambda v: ln.sum(v, axis=0)))
    yield "mean", Problem((1 << 13,), program(ln.mean), 2.0**-13)
    for rows in (1, 3, 5, 40):
        yield f"matmul {rows}", Problem((rows, n), program(lambda v: ln.matmul(v, np.ones((n, 3), v.dtype))))
        yield f"linear {rows}", Problem((rows, n), program(lambda v: ln.linear(v, np.ones((5, n), v.dtype))))


def every() -> Iterator[tuple[str, Problem]]:
    """One geometry per line, and what it was chosen for."""
    families = {
        "conv batch": conv((3000, 1, 1), (1, 1, 1)),
        "conv batch of cells": conv((1500, 2, 3), (2, 2, 2)),
        "conv channels": conv((1, 9000, 2), (2, 9000, 1)),
        "conv many rows": conv((1, 700, 5, 5), (3, 700, 3, 3), padding=1),
        "conv taps": conv((1, 2, 3000), (1, 2, 2500)),
        "conv clipped taps": conv((1, 3, 40), (2, 3, 1000), padding=990),
        "conv strided": conv((2, 600, 11), (3, 600, 3), stride=2, padding=1),
        "conv few rows back": conv((1, 2, 9, 9), (700, 2, 3, 3), stride=2),
        "conv groups": conv((600, 6, 5), (4, 3, 3), groups=2),
        "conv dilated": conv((2, 5, 700), (3, 5, 60), dilation=11, padding=330),
        "conv 3-D": conv((40, 3, 4, 5, 6), (2, 3, 3, 3, 3), padding=1),
        "conv 0-D": conv((2000, 3), (2, 3)),
        "planes in many runs": weights((1, 2, 131, 400), (2, 2, 1, 3)),
        "images in runs": weights((900, 2, 4, 4), (3, 2, 3, 3), padding=1),
        "stacks of small planes": weights((300, 2, 5, 3, 4), (2, 2, 2, 2, 2)),
        "depthwise rows of 1": conv((1, 1, 1026, 1), (1, 1, 3, 1)),
        "depthwise rows of 2": conv((1, 1, 1026, 2), (1, 1, 3, 1)),
        "depthwise rows of 3": conv((2, 2, 900, 3), (2, 1, 2, 2), padding=1, groups=2),
        "depthwise batch": conv((1500, 2, 2, 2), (2, 1, 2, 2), padding=1, groups=2),
        "depthwise many cells": conv((1, 2, 90, 97), (2, 1, 3, 3), padding=1, groups=2),
        "depthwise long rows": conv((1, 2, 3, 4300), (2, 1, 3, 3), stride=2, padding=1, groups=2),
        "depthwise many images": conv((1500, 2, 3, 4), (2, 1, 3, 3), padding=1, groups=2),
        "depthwise five taps": weights((1, 2, 200, 60), (2, 1, 5, 5), padding=2, groups=2),
        "depthwise seven taps": weights((3, 1, 400, 90), (1, 1, 7, 7), stride=2, padding=3),
        "conv_transpose": conv_transpose((2, 600, 5, 4), (600, 3, 3, 3), stride=2),
        "conv_transpose by columns": conv_transpose((1, 900, 3, 3), (900, 5, 4, 4), stride=2, padding=1),
        "conv_transpose batch": conv_transpose((1500, 2, 2), (2, 2, 2), stride=2),
        "few cells": compiled((1, 9000, 2, 2), (80, 9000, 1, 1)),
        "few cells, blocks of taps": compiled((1, 590, 13, 13), (40, 590, 13, 13), padding=((0, 1), (0, 1))),
        "channels side by side": compiled((2, 300, 9, 9), (40, 300, 3, 3), padding=1),
        "channels side by side, strided": compiled((1, 300, 15, 14), (40, 300, 3, 3), padding=1, stride=2),
        "many cells": compiled((1, 1500, 40), (16, 1500, 3)),
        "avg row": avg((1, 1, 3000), kernel=(2500,), stride=7),
        "avg tall": avg((1, 1, 2000, 3), kernel=(1500, 2), stride=(1, 1)),
        "avg plane": avg((1, 2, 70, 75), kernel=(60, 65), stride=(5, 5)),
        "avg clipped at both ends": avg((1, 1, 2), kernel=(5000,), stride=1, dilation=2, padding=9998),
        "avg dilated": avg(
            (1, 1, 40, 3), kernel=(1200, 2), stride=(1, 1), dilation=(3, 1), padding=((2000, 2000), (0, 0))
        ),
        "avg overlapping far": avg((1, 1, 6), kernel=(900,), stride=1, padding=898),
        "adaptive": mean_of_bins((1, 2, 2, 4096), (2, 2)),
        "global": mean_of_bins((2, 1, 64, 64), (1, 1)),
        "max row": greatest((1, 1, 1700), (0, 0, 850), kernel=(800,), stride=1),
        "max short row": greatest((1, 1, 90), (0, 0, 40), kernel=(40,), stride=1),
        "max tall": greatest((1, 1, 1600, 520), (0, 0, 690, 0), kernel=(700, 1), stride=1),
        "max all": greatest((1, 1, 1700), (0, 0, 850), ties="all", kernel=(800,), stride=1),
        "max split": greatest((1, 1, 1700), (0, 0, 850), ties="split", kernel=(800,), stride=1),
        "max clipped at both ends": greatest((1, 1, 2), (0, 0, 1), kernel=(3000,), stride=1, dilation=2, padding=5998),
        "winners": winners((1, 1, 90, 90), 1, 2),
        "norm": norm((1, 1, 2000), 1.0, kernel=(900,), stride=1),
        "norm of a short row": norm((1, 1, 90), 1.0, kernel=(40,), stride=1),
        "norm of subnormals": norm((1, 1, 2000), 0, kernel=(900,), stride=1),
        "norm clipped at both ends": norm((1, 1, 2), 1.0, kernel=(3000,), stride=1, dilation=2, padding=5998),
        "smooth": smooth((1, 1, 2000), 1024, kernel=(1024,), stride=1),
        "smooth wild": smooth((1, 1, 2000), 1024, wild=1e30, kernel=(1024,), stride=1),
        "slope": slope((1, 1, 2000, 8)),
        "slope of planes": slope((4000, 1, 1, 2)),
        "glue": glue(9001),
    }
    for name, problems in families.items():
        for of, problem in problems:
            yield f"{name}: {of}", problem


EVERY = dict(every())
PROBLEMS = [pytest.param(p, id=name) for name, p in EVERY.items()]
DOUBLES = list(EVERY.values())[::4]
"""Those whose rounded results are asked for in float64 by day, too: integers decide nearly all of their cells."""


def one_tap_of_many(channels: int, taps: int) -> Problem:
    """Every output reads one cell of each channel; the others of its taps are absent."""
    return Problem(
        (1, channels, 1),
        lambda v, a: ln.conv(v, ones(1, channels, taps, like=v), padding=taps - 1, arithmetic=a),
    )


SPARSE = [
    # Each term in a block of its own, of cells that are absent or do not win: blocks of blocks are sums, too.
    pytest.param(next(winners((1, 1, 2500, 2100), 8191, 2))[1], id="winners far apart"),
    pytest.param(one_tap_of_many(60000, 330), id="one tap of many, many channels"),
]


def places(size: int) -> list[int]:
    """Where the 1 stands: both ends, and some between; where that takes long, fewer by day."""
    few = {0, size // 3, size - 1}
    return sorted((few if size > 1 << 18 and not LONG else {1, size // 2} | few) & set(range(size)))


NEAR = 600  # cells on either side of the 1: about a block of terms


@cache
def counted(problem: Problem) -> tuple[Array, dict[int, tuple[Array, Array]]]:
    """How many terms each result has; and, for each place of the 1, whether it is one of them, and how many near it."""

    def counts(a: Array) -> Array:
        return np.rint(np.asarray(problem.f(a, "fast")) / problem.coefficient)

    found = {}
    for at in places(int(np.prod(problem.shape))):
        one, near = np.zeros(problem.shape), np.zeros(problem.shape)
        one.reshape(-1)[at] = 1
        near.reshape(-1)[max(at - NEAR, 0) : at + NEAR] = 1
        found[at] = counts(one), counts(near - one)
    return counts(np.ones(problem.shape)), found


def check(problem: Problem, dtype: Any, near: float, far: float, sign: int) -> None:
    """The bound, of a 1 among numbers of so many parts of e near it and further away."""
    u, tiny = float(np.finfo(dtype).eps) / 2, float(np.finfo(dtype).smallest_subnormal)
    e, d = (dtype(u * 0.999 / part) for part in (near, far))
    terms, found = counted(problem)
    for at, (hit, beside) in found.items():
        given = np.full(problem.shape, sign * d, dtype)
        given.reshape(-1)[max(at - NEAR, 0) : at + NEAR] = sign * e
        given.reshape(-1)[at] = 1
        y = np.asarray(problem.f(given, "fast"))
        assert y.dtype == dtype and y.shape == terms.shape
        # Exactly (y - 1) - e*n, but for a rounding far below the bound: y and 1 are near, or the 1 is not there.
        rest = float(e) * beside + float(d) * (terms - hit - beside)
        gap = abs((y.astype(np.float64) / problem.coefficient - hit) - sign * rest)
        h = height(terms) + problem.roundings
        bound = gamma(h, u) * (rest + hit) + h * tiny / abs(problem.coefficient)
        worst = np.unravel_index(np.argmax(gap - bound), gap.shape)
        assert (gap <= bound * (1 + 2.0**-20)).all(), (
            f"{gap[worst] / bound[worst]:.2f} times the bound of {terms[worst]:.0f} terms at {worst}"
        )


def exact_at(problem: Problem, at: Any, terms: Array, hit: Array, e: float) -> Fraction:
    n = int(terms[at] - hit[at])
    return (Fraction(e) * n + int(hit[at])) * Fraction(problem.coefficient)


def some(shape: tuple[int, ...], hit: Array) -> list[Any]:
    """Results to look at: a few with the 1 among their terms, and a few more."""
    with_one = [tuple(p) for p in np.argwhere(hit)[:3]]
    return with_one + [i for i in [tuple(0 for _ in shape), tuple(n - 1 for n in shape)] if i not in with_one]


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_sum_is_longer_than_the_bound_says(problem: Problem, dtype: Any) -> None:
    # All of them lost beside the 1; whole blocks lost; a block lost beside the 1, and the sums of others beside that.
    # By day float64 has every other one: it goes the same ways, and what differs are numbers of lanes.
    ways = list(enumerate(((1, 1), (16, 16), (320, 320), (512, 512), (1, 170), (1, 320))))
    for at, (near, far) in ways if dtype is np.float32 else ways[ALL_OR_HALF]:
        for sign in (1, -1) if LONG else (1 - 2 * (at // 2 % 2),):
            check(problem, dtype, near, far, sign)


@pytest.mark.parametrize("problem", SPARSE)
def test_nor_where_few_of_the_terms_are_there(problem: Problem) -> None:
    check(problem, np.float32, 1, 1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS[ALL_OR_QUARTER])
def test_boxes_hold_the_exact_sum_and_rounded_is_next_to_it(problem: Problem, dtype: Any) -> None:
    e = dtype(float(np.finfo(dtype).eps) / 2 * 0.999)
    terms, found = counted(problem)
    hit = found[0][0]
    given = np.full(problem.shape, e, dtype)
    given.reshape(-1)[0] = 1
    if "interval" in problem.arithmetics:
        box = problem.f(given, "interval")
        for at in some(terms.shape, hit):
            exact = exact_at(problem, at, terms, hit, float(e))
            assert Fraction(float(box.lo[at])) <= exact <= Fraction(float(box.hi[at]))
    if "rounded" in problem.arithmetics and (LONG or dtype == np.float32 or problem in DOUBLES):
        y = np.asarray(problem.f(given, "rounded"))
        for at in some(terms.shape, hit):
            # float32: the sum of so few numbers of 24 bits is exact in float64, and is rounded once.
            assert y[at] == dtype(float(exact_at(problem, at, terms, hit, float(e))))


def test_zeros_keep_their_sign_however_windows_lie() -> None:
    """A sum of -0 alone is -0; a cell that no window reads is +0."""
    for dtype in (np.float32, np.float64):
        g = np.full((1, 1, 10000), -0.0, dtype)
        options: dict[str, Any] = {"kernel": (5000,), "stride": 1, "dilation": 2, "padding": 9998}
        x = np.ones((1, 1, 2), dtype)
        assert np.signbit(ln.avg_pool_vjp((x,), g, divisor=1, **options)[0]).all()
        assert np.signbit(ln.max_pool_vjp((x,), g, ties="all", **options)[0]).all()
        assert np.signbit(ln.lp_pool_vjp((x,), g, p=1, **options)[0]).all()


@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("place", [0, 4500, 8999])
def test_one_cell_spread_over_a_kernel(batch: int, place: int) -> None:
    """A transposed convolution of one cell is a product of the rows of its weights, over all channels."""
    channels = 9000
    x = np.full((batch, channels, 1, 1), 2.0**-24, np.float32)
    x[:, place] = 1
    y = ln.conv_transpose(x, np.ones((channels, 5, 3, 3), np.float32))
    exact = 1 + (channels - 1) * 2.0**-24
    assert (abs(y - exact) <= gamma(height(channels), 2.0**-24) * exact).all()
    x, w = np.array([-0.0, 0.0], np.float32).reshape(1, 2, 1, 1), np.ones((2, 3, 2, 2), np.float32)
    w[1] = -1
    assert np.signbit(ln.conv_transpose(x, w)).all()
    w[0, 1] = np.inf
    assert (np.isnan(ln.conv_transpose(x, w))[0] == np.array([False, True, False])[:, None, None]).all()
