"""Section 3 of the contract, sentence by sentence, where numbers and shapes are unusual.

Every test runs through the public functions in float32 and float64 and through the specification on Python's floats
and numpy.float32. Zeros are compared with their signs, NaN as NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

import lunette as ln
from lunette.array import to_numpy
from lunette.op import Case, Op
from lunette.ops import ALL

Array = npt.NDArray[Any]
NAN, INF = math.nan, math.inf


# ---- four readings of one question


@dataclass(frozen=True)
class Reading:
    """One way to ask: which floats, and whether the specification answers."""

    dtype: Any
    spec: bool

    @property
    def greatest(self) -> float:
        return float(np.finfo(self.dtype).max)

    def cells(self, a: Any) -> Any:
        if a is None:
            return None
        x = np.array(a, self.dtype)
        if not self.spec:
            return x
        number = float if self.dtype is np.float64 else np.float32
        out = np.empty(x.shape, object)
        for cell in np.ndindex(x.shape):
            out[cell] = number(x[cell])
        return out

    def function(self, name: str) -> Any:
        return getattr(ln.spec if self.spec else ln, name)

    def plain(self, y: Any) -> Any:
        if isinstance(y, tuple):
            return tuple(self.plain(a) for a in y)
        if y.dtype == np.int64:  # indices
            return y
        if self.spec:
            assert all(isinstance(v, Real) for v in y.flat)
        else:
            assert y.dtype == self.dtype
        return np.asarray(y, np.float64)

    def __call__(self, name: str, x: Any, *arrays: Any, **options: Any) -> Any:
        return self.plain(self.function(name)(self.cells(x), *map(self.cells, arrays), **options))

    def jvp(self, name: str, primals: Any, tangents: Any, **options: Any) -> Any:
        ask = self.function(f"{name}_jvp")
        return self.plain(ask(tuple(map(self.cells, primals)), tuple(map(self.cells, tangents)), **options))

    def vjp(self, name: str, primals: Any, g: Any, **options: Any) -> Any:
        ask = self.function(f"{name}_vjp")
        return self.plain(ask(tuple(map(self.cells, primals)), self.cells(g), **options))


READINGS = {
    "float32": Reading(np.float32, False),
    "float64": Reading(np.float64, False),
    "spec float": Reading(np.float64, True),
    "spec float32": Reading(np.float32, True),
}


@pytest.fixture(params=list(READINGS))
def read(request: pytest.FixtureRequest) -> Reading:
    return READINGS[request.param]


def same(got: Any, wanted: Any) -> bool:
    """Equal cells, equal signs of zeros, NaN where NaN is wanted."""
    a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    equal = (a == b) & ((a != 0) | (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return a.shape == b.shape and bool(equal.all())


# ---- the maximum


MAXIMA = [
    pytest.param("max_pool", lambda n: {"kernel": (n,)}, id="max_pool"),
    pytest.param("adaptive_max_pool", lambda n: {"output_size": (1,)}, id="adaptive_max_pool"),
    pytest.param("global_max_pool", lambda n: {"spatial": 1}, id="global_max_pool"),
]
every_maximum = pytest.mark.parametrize(("name", "whole"), MAXIMA)


@every_maximum
def test_a_window_that_contains_nan_is_nan_and_the_first_nan_is_its_index(read: Reading, name: str, whole: Any) -> None:
    for row, place in (([1, NAN, 5], 1), ([NAN, INF, NAN], 0), ([INF, NAN, NAN], 1), ([-INF, 2, NAN], 2)):
        y, index = read(name, [row], return_indices=True, **whole(3))
        assert same(y, [[NAN]])
        assert same(index, [[place]])
        wanted = [0.0] * 3
        wanted[place] = 7.0
        assert same(read.vjp(name, ([row],), [[7]], ties="first", **whole(3))[0], [wanted])
        assert same(read.jvp(name, ([row],), ([[10, 20, 30]],), ties="first", **whole(3)), [[10.0 * (place + 1)]])


@every_maximum
def test_of_two_zeros_the_first_wins_sign_and_all(read: Reading, name: str, whole: Any) -> None:
    for row in ([-0.0, 0.0, -1.0], [0.0, -0.0, -1.0], [-5.0, -0.0, 0.0]):
        y, index = read(name, [row], return_indices=True, **whole(3))
        place = 1 if row[0] == -5 else 0
        assert same(y, [[row[place]]])
        assert same(index, [[place]])


@every_maximum
def test_minus_infinity_is_an_ordinary_value(read: Reading, name: str, whole: Any) -> None:
    y, index = read(name, [[-INF, -INF]], return_indices=True, **whole(2))
    assert same(y, [[-INF]])
    assert same(index, [[0]])
    assert same(read.vjp(name, ([[-INF, -INF]],), [[3]], ties="first", **whole(2))[0], [[3.0, 0.0]])
    y, index = read(name, [[-INF, INF, INF]], return_indices=True, **whole(3))
    assert same(y, [[INF]])
    assert same(index, [[1]])


@every_maximum
@pytest.mark.parametrize(
    ("ties", "back", "forward"),
    [("first", [0, 6, 0, 0], 2), ("all", [0, 6, 0, 6], 6), ("split", [0, 3, 0, 3], 3)],
)
def test_ties_say_which_cells_carry_the_derivative(
    read: Reading, name: str, whole: Any, ties: str, back: list[float], forward: float
) -> None:
    for row in ([1, 2, 0, 2], [-1, -0.0, -3, 0.0], [-5, -INF, -INF, -INF], [1, INF, 0, INF]):
        x = row if row[0] != -5 else [-INF, -INF]
        if len(x) == 2:
            first, last = back[1], back[3]
            assert same(read.vjp(name, ([x],), [[6]], ties=ties, **whole(2))[0], [[first, last]])
            continue
        assert same(read.vjp(name, ([x],), [[6]], ties=ties, **whole(4))[0], [back])
        assert same(read.jvp(name, ([x],), ([[1, 2, 3, 4]],), ties=ties, **whole(4)), [[forward]])


@every_maximum
def test_ties_change_derivatives_only(read: Reading, name: str, whole: Any) -> None:
    for row in ([2, 1, 2], [NAN, 1, NAN], [-0.0, 0.0, 0.0]):
        answers = [read(name, [row], return_indices=True, ties=t, **whole(3)) for t in ("first", "all", "split")]
        assert all(same(y, answers[0][0]) and same(i, answers[0][1]) for y, i in answers)


@every_maximum
def test_losers_neither_pass_their_tangents_nor_receive_cotangents(read: Reading, name: str, whole: Any) -> None:
    for ties in ("first", "all", "split"):
        assert same(read.jvp(name, ([[1, 5, 2]],), ([[NAN, 4, INF]],), ties=ties, **whole(3)), [[4.0]])
        assert same(read.vjp(name, ([[1, 5, 2]],), [[INF]], ties=ties, **whole(3))[0], [[0.0, INF, 0.0]])


def test_global_ties_are_all_unless_told_otherwise(read: Reading) -> None:
    assert same(read.vjp("global_max_pool", ([[4, 4, 1]],), [[2]], spatial=1)[0], [[2.0, 2.0, 0.0]])


def test_padding_never_wins(read: Reading) -> None:
    y, index = read("max_pool", [[-INF, -7]], kernel=(3,), stride=1, padding=1, return_indices=True)
    assert same(y, [[-7.0, -7.0]])
    assert same(index, [[1, 1]])
    y, index = read("max_pool", [[-INF, -INF]], kernel=(3,), stride=1, padding=1, return_indices=True)
    assert same(y, [[-INF, -INF]])
    assert same(index, [[0, 0]])


def test_the_index_is_the_place_in_the_unpadded_plane_of_its_own_channel(read: Reading) -> None:
    x = np.zeros((2, 2, 3))
    x[0, 1, 2] = x[1, 0, 1] = 1
    _, index = read("max_pool", x, kernel=(2, 3), padding=((1, 1), (1, 1)), stride=(2, 2), return_indices=True)
    assert same(index, [[[0, 1], [3, 5]], [[1, 1], [3, 4]]])


# ---- averages


AVERAGES = [
    pytest.param("avg_pool", lambda n: {"kernel": (n,)}, id="avg_pool"),
    pytest.param("adaptive_avg_pool", lambda n: {"output_size": (1,)}, id="adaptive_avg_pool"),
    pytest.param("global_avg_pool", lambda n: {"spatial": 1}, id="global_avg_pool"),
]
every_average = pytest.mark.parametrize(("name", "whole"), AVERAGES)


@every_average
def test_averages_follow_ieee_over_the_present_terms(read: Reading, name: str, whole: Any) -> None:
    for row, wanted in (
        ([1, NAN], NAN),
        ([INF, -INF], NAN),
        ([INF, 1], INF),
        ([-INF, 1], -INF),
        ([INF, NAN], NAN),
        ([3, -3], 0.0),
        ([-0.0, -0.0], -0.0),
        ([-0.0, 0.0], 0.0),
    ):
        assert same(read(name, [row], **whole(2)), [[wanted]])


@every_average
def test_the_average_of_finite_cells_is_finite(read: Reading, name: str, whole: Any) -> None:
    top = read.greatest
    for row, wanted in (
        ([top, top], top),
        ([-top, -top], -top),
        ([top, top, top, top], top),
        ([top, top, -top, -top], 0.0),
        ([top, top, 0, 0], top / 2),
    ):
        assert same(read(name, [row], **whole(len(row))), [[wanted]])


@every_average
def test_an_average_with_an_infinite_cell_is_not_mistaken_for_an_overflow(read: Reading, name: str, whole: Any) -> None:
    top = read.greatest
    assert same(read(name, [[top, top, INF]], **whole(3)), [[INF]])
    assert same(read(name, [[-INF, top, top]], **whole(3)), [[-INF]])
    assert same(read(name, [[top, top, -INF]], **whole(3)), [[-INF]])


def test_a_window_of_padding_alone_averages_to_zero(read: Reading) -> None:
    assert same(read("avg_pool", [[6, 7]], kernel=(1,), stride=1, padding=1), [[0.0, 6.0, 7.0, 0.0]])
    assert same(read("avg_pool", [[-0.0, 6]], kernel=(2,), stride=1, padding=1), [[-0.0, 3.0, 3.0]])


def test_a_given_divisor_divides_every_window_and_is_converted_first(read: Reading) -> None:
    third = read.dtype(1 / 3)
    got = read("avg_pool", [[1, 2, 3]], kernel=(2,), stride=1, padding=1, divisor=1 / 3)
    assert same(got, [[float(read.dtype(float(v)) / third) for v in (1, 3, 5, 3)]])
    assert same(read("avg_pool", [[NAN, INF]], kernel=(1,), divisor=-2), [[NAN, -INF]])
    assert same(read.vjp("avg_pool", ([[1, 2]],), [[3, INF]], kernel=(1,), divisor=-4)[0], [[-0.75, -INF]])


def test_averages_share_cotangents_with_the_cells_they_read_alone(read: Reading) -> None:
    (back,) = read.vjp("avg_pool", ([[1, 2, 3, 4, 5]],), [[INF, 4]], kernel=(2,), stride=3)
    assert same(back, [[INF, INF, 0.0, 2.0, 2.0]])


# ---- convolutions


def test_padding_contributes_nothing_whatever_the_weight(read: Reading) -> None:
    w = [[[INF, 1, NAN]]]
    assert same(read("conv", [[2]], w, padding=1), [[2.0]])
    assert same(read("conv", [[2]], w, [3], padding=1), [[5.0]])
    assert same(read.jvp("conv", ([[2]], w), ([[5]], None), padding=1), [[5.0]])
    gx, gw = read.vjp("conv", ([[2]], w), [[7]], padding=1)
    assert same(gx, [[7.0]])
    assert same(gw, [[[0.0, 14.0, 0.0]]])
    assert same(read("conv", [[INF]], [[[0.0, 1, 0]]], padding=1), [[INF]])


def test_a_present_zero_times_infinity_is_nan(read: Reading) -> None:
    assert same(read("conv", [[0, 1]], [[[INF, 1]]]), [[NAN]])
    assert same(read("conv", [[INF, 1]], [[[0, 1]]]), [[NAN]])


def test_sums_of_products_follow_ieee(read: Reading) -> None:
    top = read.greatest
    ones = [[[1, 1]]]
    for row, wanted in (
        ([NAN, 1], NAN),
        ([INF, -INF], NAN),
        ([INF, -1], INF),
        ([2, -2], 0.0),
        ([-0.0, -0.0], -0.0),
        ([-0.0, 0.0], 0.0),
        ([top, top], INF),
        ([-top, -top], -INF),
        ([top, -top], 0.0),
    ):
        assert same(read("conv", [row], ones), [[wanted]])
        assert same(read("conv_transpose", [[v] for v in row], [[[1]], [[1]]]), [[wanted]])


def test_the_bias_is_a_term_of_the_sum(read: Reading) -> None:
    assert same(read("conv", [[-0.0]], [[[1]]], [-0.0]), [[-0.0]])
    assert same(read("conv", [[-0.0]], [[[1]]], [0.0]), [[0.0]])
    assert same(read("conv", [[INF]], [[[1]]], [-INF]), [[NAN]])
    assert same(read("conv", [[1]], [[[1]]], [NAN]), [[NAN]])


def test_no_channel_or_no_present_cell_leaves_the_bias(read: Reading) -> None:
    nothing = np.zeros((0, 3))
    assert same(read("conv", nothing, np.zeros((2, 0, 2)), [5, NAN]), [[5.0, 5.0], [NAN, NAN]])
    assert same(read("conv", nothing, np.zeros((1, 0, 2))), [[0.0, 0.0]])
    assert same(read("conv", nothing, np.zeros((1, 0, 2)), [-0.0]), [[-0.0, -0.0]])
    assert same(read("conv", [[3]], [[[1]]], [4], padding=1), [[4.0, 7.0, 4.0]])
    assert same(read("conv_transpose", nothing, np.zeros((0, 1, 2)), [6]), [[6.0] * 4])
    assert same(read("conv_transpose", [[1, 2]], [[[1]]], [6], stride=3), [[7.0, 6.0, 6.0, 8.0]])


def test_nan_reaches_only_the_windows_that_read_it(read: Reading) -> None:
    assert same(read("conv", [[NAN, 1, 2, 3]], [[[1, 1]]]), [[NAN, 3.0, 5.0]])
    assert same(read("conv", [[1, 2, NAN, 3, 4]], [[[1, 1]]], stride=3), [[3.0, 7.0]])
    assert same(read("conv_transpose", [[NAN, 2]], [[[1, 1]]], stride=3), [[NAN, NAN, 0.0, 2.0, 2.0]])
    assert same(read("conv", [[1, 2], [NAN, 3]], [[[1]], [[1]]], groups=2), [[1.0, 2.0], [NAN, 3.0]])


def test_gaps_and_output_padding_of_a_transposed_window_contribute_nothing(read: Reading) -> None:
    w = [[[INF, 1]]]
    assert same(read("conv_transpose", [[2, 3]], w, stride=3, output_padding=1), [[INF, 2.0, 0.0, INF, 3.0, 0.0]])
    assert same(read("conv_transpose", [[2, 3]], w, padding=1), [[INF]])
    gx, gw = read.vjp("conv_transpose", ([[INF, 2]], [[[1, 1]]]), [[3]], padding=1)
    assert same(gx, [[3.0, 3.0]])
    assert same(gw, [[[6.0, INF]]])


# ---- the smooth maximum


def close(got: Any, wanted: Any, dtype: Any, ulps: int = 8) -> bool:
    """Within the contract's 4 ulp, and as many for the wanted value, which was rounded too; specials exactly."""
    a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a - b) <= ulps * np.spacing(np.abs(b).astype(dtype)).astype(np.float64)
    return a.shape == b.shape and bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("beta", [1, -1, 3.5, -0.25])
def test_the_smooth_maximum_of_special_values(read: Reading, beta: float) -> None:
    up = math.copysign(1, beta)  # for a negative beta everything is mirrored
    for row, wanted in (
        ([1, NAN, 2], NAN),
        ([INF * up, NAN, 2], NAN),
        ([-INF * up, NAN, 2], NAN),
        ([INF * up, 1, 2], INF * up),
        ([INF * up, -INF * up, 2], INF * up),
        ([-INF * up, -INF * up, 2], 2),
        ([-INF * up] * 3, -INF * up),
    ):
        assert close(read("smooth_max_pool", [row], kernel=(3,), beta=beta), [[wanted]], read.dtype)


@pytest.mark.parametrize("beta", [1, -1, 1e30, -1e30])
def test_the_smooth_maximum_of_finite_cells_never_overflows(read: Reading, beta: float) -> None:
    top, up = read.greatest * math.copysign(1, beta), math.copysign(1, beta)
    assert close(read("smooth_max_pool", [[top, -top]], kernel=(2,), beta=beta), [[top]], read.dtype)
    assert close(read("smooth_max_pool", [[-top, -top / 2]], kernel=(2,), beta=beta), [[-top / 2]], read.dtype)
    assert close(read("smooth_max_pool", [[1000 * up, 0]], kernel=(2,), beta=beta), [[1000 * up]], read.dtype)
    gx, gb = read.vjp("smooth_max_pool", ([[top, -top]], beta), [[3]], kernel=(2,))
    assert same(np.abs(gx), [[3.0, 0.0]])
    assert np.isfinite(gb)
    small = read("smooth_max_pool", [[0, 0]], kernel=(2,), beta=1e-30)
    assert close(small, [[math.log(2) / float(read.dtype(1e-30))]], read.dtype)


def test_padding_counts_as_zeros_or_not_at_all(read: Reading) -> None:
    ask = {"kernel": (2,), "stride": 1, "padding": 1, "beta": 1}
    assert close(read("smooth_max_pool", [[0]], **ask), [[math.log(2)] * 2], read.dtype)
    assert same(np.abs(read("smooth_max_pool", [[-INF]], **ask)), [[0.0, 0.0]])
    assert same(read("smooth_max_pool", [[INF]], **ask), [[INF, INF]])
    assert same(np.abs(read("smooth_max_pool", [[0]], count_include_pad=False, **ask)), [[0.0, 0.0]])
    assert same(read("smooth_max_pool", [[-INF]], count_include_pad=False, **ask), [[-INF, -INF]])
    empty = read("smooth_max_pool", np.zeros((1, 0)), kernel=(2,), stride=1, padding=1, beta=2.0)
    assert close(empty, [[math.log(2) / 2]], read.dtype)


@pytest.mark.parametrize("beta", [1, -2])
def test_winning_infinities_share_the_derivative_equally(read: Reading, beta: float) -> None:
    up = math.copysign(1, beta)
    for row, weights in (
        ([INF * up, 1, INF * up, -INF * up], [0.5, 0, 0.5, 0]),
        ([-INF * up] * 4, [0.25] * 4),
        ([-INF * up, 3, -INF * up, -INF * up], [0, 1, 0, 0]),
    ):
        back, _ = read.vjp("smooth_max_pool", ([row], beta), [[8]], kernel=(4,))
        assert same(np.abs(back), [[8.0 * w for w in weights]])
        forward = read.jvp("smooth_max_pool", ([row], beta), ([[1, 2, 3, 4]], None), kernel=(4,))
        assert same(forward, [[sum(w * t for w, t in zip(weights, (1, 2, 3, 4), strict=True))]])


def test_nan_in_the_window_makes_the_weights_nan(read: Reading) -> None:
    for row in ([1, NAN, 2], [INF, NAN, 2]):
        gx, gb = read.vjp("smooth_max_pool", ([[*row, 5]], 1), [[1, 1]], kernel=(3,), stride=1)
        assert same(gx[0][:3], [NAN] * 3)
        assert same(gb, NAN)
        assert same(read.jvp("smooth_max_pool", ([row], 1), ([[1, 1, 1]], None), kernel=(3,)), [[NAN]])
    gx, _ = read.vjp("smooth_max_pool", ([[NAN, 1, 2, 2]], 1), [[1, 4]], kernel=(2,))
    assert same(gx, [[NAN, NAN, 2.0, 2.0]])


def test_the_slope_in_beta_is_the_gap_between_weighted_cells_and_value(read: Reading) -> None:
    _, gb = read.vjp("smooth_max_pool", ([[0, 0]], 2), [[4]], kernel=(2,))
    assert close(gb, -math.log(2), read.dtype)
    slope = read.jvp("smooth_max_pool", ([[0, 0]], 2), (None, 4), kernel=(2,))
    assert close(slope, [[-math.log(2)]], read.dtype)
    _, gb = read.vjp("smooth_max_pool", ([[0, -INF, 0]], 2), [[4]], kernel=(3,))
    assert close(gb, -math.log(2), read.dtype)


# ---- p-norms


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, INF])
def test_the_p_norm_of_special_values(read: Reading, p: float) -> None:
    for row, wanted in (
        ([1, NAN], NAN),
        ([INF, NAN], NAN),
        ([NAN, -INF], NAN),
        ([-INF, 1], INF),
        ([INF, -INF], INF),
        ([-0.0, 0.0], 0.0),
        ([-0.0, -0.0], 0.0),
        ([0.0, -3], 3.0),
    ):
        assert same(read("lp_pool", [row], kernel=(2,), p=p), [[wanted]])


@pytest.mark.parametrize("p", [1, 2, 2.5, INF])
def test_the_p_norm_of_no_present_cell_is_zero(read: Reading, p: float) -> None:
    assert same(read("lp_pool", [[-5]], kernel=(1,), stride=1, padding=1, p=p), [[0.0, 5.0, 0.0]])
    assert same(read("lp_pool", np.zeros((2, 0)), kernel=(2,), stride=1, padding=1, p=p), [[0.0], [0.0]])


def test_the_p_norm_never_overflows_when_the_result_is_finite(read: Reading) -> None:
    info = np.finfo(read.dtype)
    for scale in (2.0 ** (info.maxexp - 4), 2.0 ** (info.minexp - info.nmant + 8), 1.0):
        for p, wanted in ((2, 5.0), (1, 7.0), (INF, 4.0)):
            got = read("lp_pool", [[3 * scale, -4 * scale]], kernel=(2,), p=p)
            assert close(got, [[wanted * scale]], read.dtype)
        (back,) = read.vjp("lp_pool", ([[3 * scale, -4 * scale]],), [[5]], kernel=(2,), p=2)
        assert close(back, [[3.0, -4.0]], read.dtype)
    top = read.greatest
    assert same(read("lp_pool", [[top, 0]], kernel=(2,), p=3), [[top]])


def test_p_norm_weights_are_signed_and_zero_where_the_norm_is_zero(read: Reading) -> None:
    for p in (1, 1.5, 2, 3, INF):
        (back,) = read.vjp("lp_pool", ([[0.0, -0.0]],), [[5]], kernel=(2,), p=p)
        assert same(np.abs(back), [[0.0, 0.0]])
        assert same(np.abs(read.jvp("lp_pool", ([[0.0, -0.0]],), ([[3, 4]],), kernel=(2,), p=p)), [[0.0]])
    for p, weights in ((1, [1, -1, 0]), (INF, [0, -1, 0]), (2, [0.6, -0.8, 0])):
        (back,) = read.vjp("lp_pool", ([[3, -4, 0]],), [[1]], kernel=(3,), p=p)
        assert close(np.abs(back), np.abs([weights]), read.dtype)
        assert same(np.sign(back), np.sign([weights]) + 0.0)
    (first,) = read.vjp("lp_pool", ([[1, -4, 4]],), [[1]], kernel=(3,), p=INF)
    assert same(first + 0.0, [[0.0, -1.0, 0.0]])


@pytest.mark.parametrize("p", [1, 2, 3.5, INF])
def test_infinite_cells_share_the_derivative_of_a_p_norm_equally(read: Reading, p: float) -> None:
    (back,) = read.vjp("lp_pool", ([[-INF, 3, INF]],), [[4]], kernel=(3,), p=p)
    assert same(back + 0.0, [[-2.0, 0.0, 2.0]])
    assert same(read.jvp("lp_pool", ([[-INF, 3, INF]],), ([[2, 9, 8]],), kernel=(3,), p=p), [[3.0]])


def test_nan_in_the_window_makes_the_p_norm_weights_nan(read: Reading) -> None:
    (back,) = read.vjp("lp_pool", ([[NAN, 3, 4, 0]],), [[1, 2]], kernel=(2,), p=2)
    assert same(np.abs(back), [[NAN, NAN, 2.0, 0.0]])


# ---- every operator: unusual shapes


EVERY = [pytest.param(kind, id=kind.name) for kind in ALL]
every_operator = pytest.mark.parametrize("kind", EVERY)


def plain_case(kind: type[Op], name: str) -> tuple[list[Array], dict[str, Any]]:
    """The arrays and options of one of the operator's named cases; beta is 1."""
    case: Case = kind.cases[name]
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-4, 5, s).astype(np.float64) if s else np.array(1.0) for s in case.shapes]
    options = dict(case.options)
    space = case.shapes[0][1:]
    if "w" not in kind.arrays and not isinstance(options.get("kernel", options.get("output_size")), tuple):
        options["spatial"] = len(space)
    return arrays, options


def ask(kind: type[Op], arrays: list[Any], options: dict[str, Any], module: Any = ln) -> Any:
    named = dict(zip(kind.arrays, arrays, strict=False))
    return getattr(module, kind.name)(**named, **options)


@every_operator
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("batch", [(0,), (2, 0), (0, 3)])
def test_an_empty_batch_gives_an_empty_batch(kind: type[Op], dtype: Any, batch: tuple[int, ...]) -> None:
    (x, *rest), options = plain_case(kind, "rank_4")
    wanted = (*batch, *ask(kind, [x, *rest], options).shape)
    empty = np.zeros((*batch, *x.shape), dtype)
    arrays = [empty, *(a.astype(dtype) for a in rest)]
    y = ask(kind, arrays, options)
    assert y.shape == wanted and y.dtype == dtype
    assert getattr(ln, f"{kind.name}_jvp")(tuple(arrays), tuple(arrays), **options).shape == wanted
    back = getattr(ln, f"{kind.name}_vjp")(tuple(arrays), y, **options)
    assert [b.shape for b in back] == [a.shape for a in arrays]
    assert all(same(b.astype(np.float64), np.zeros(b.shape)) for b in back)


@every_operator
@pytest.mark.parametrize("name", ["rank_0", "rank_4"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_rank_and_any_number_of_batch_axes(kind: type[Op], name: str, dtype: Any) -> None:
    (x, *rest), options = plain_case(kind, name)
    batch = np.stack([np.stack([x, x + 1, -x]), np.stack([2 * x, 1 - x, x])]).astype(dtype)
    shared = [a.astype(dtype) for a in rest]
    y = ask(kind, [batch, *shared], options)
    exact = kind.needs != "exp"
    for at in np.ndindex(2, 3):
        wanted = ask(kind, [batch[at].astype(np.float64), *rest], options, ln.spec).astype(np.float64)
        assert y[at].shape == wanted.shape
        near = np.abs(y[at] - wanted) <= (0 if exact else 8) * np.spacing(np.abs(wanted).astype(dtype))
        assert near.all() or (np.abs(y[at] - wanted) <= np.spacing(np.abs(wanted).astype(dtype)) / 2).all()
        assert ask(kind, [batch[at], *shared], options).tolist() == y[at].tolist()


def test_rank_0_reads_the_one_cell_there_is(read: Reading) -> None:
    x = [3, NAN, -0.0, -INF]
    assert same(read("max_pool", x, kernel=()), x)
    assert same(read("avg_pool", x, kernel=()), x)
    assert same(read("avg_pool", x, kernel=(), divisor=2), [1.5, NAN, -0.0, -INF])
    assert same(read("lp_pool", x, kernel=()), [3.0, NAN, 0.0, INF])
    assert same(read("adaptive_max_pool", x, output_size=()), x)
    assert same(read("adaptive_avg_pool", x, output_size=()), x)
    assert same(read("global_avg_pool", x, spatial=0), x)
    y, index = read("global_max_pool", x, spatial=0, return_indices=True)
    assert same(y, x) and same(index, [0] * 4)
    assert same(np.abs(read("smooth_max_pool", x, kernel=(), beta=2)), np.abs(x))
    assert same(read("conv", [1, 2], [[3, 4], [5, 6]], [10, 20]), [21.0, 37.0])
    assert same(read("conv_transpose", [1, 2], [[3, 4], [5, 6]]), [13.0, 16.0])
    gx, gw = read.vjp("conv", ([1, 2], [[3, 4]]), [5])
    assert same(gx, [15.0, 20.0]) and same(gw, [[5.0, 10.0]])


NO_CHANNELS = [pytest.param(k, c, id=f"{k.name}:{c}") for k in ALL for c in k.cases if c.endswith("_channels")]


@pytest.mark.parametrize(("kind", "name"), NO_CHANNELS)
def test_no_channels_are_a_size_like_any_other(kind: type[Op], name: str) -> None:
    (x, *rest), options = plain_case(kind, name)
    for dtype in (np.float32, np.float64):
        arrays = [np.stack([x, x]).astype(dtype), *(a.astype(dtype) for a in rest)]
        y = ask(kind, arrays, options)
        assert y.shape == (2, *ask(kind, [x, *rest], options, ln.spec).shape)
        back = getattr(ln, f"{kind.name}_vjp")(tuple(arrays), np.ones_like(y), **options)
        assert [b.shape for b in back] == [a.shape for a in arrays]
        assert getattr(ln, f"{kind.name}_jvp")(tuple(arrays), tuple(arrays), **options).shape == y.shape


def test_an_empty_space_is_legal_where_padding_makes_windows(read: Reading) -> None:
    empty = np.zeros((1, 0))
    assert same(read("conv", empty, [[[1, 2]], [[3, 4]]], [7, NAN], padding=1), [[7.0], [NAN]])
    assert same(read("avg_pool", empty, kernel=(2,), stride=1, padding=1), [[0.0]])
    assert same(read("avg_pool", np.zeros((1, 0, 2)), kernel=(2, 1), stride=1, padding=(1, 0)), [[[0.0, 0.0]]])
    (back,) = read.vjp("avg_pool", (empty,), [[5]], kernel=(2,), stride=1, padding=1)
    assert back.shape == (1, 0)


@pytest.mark.parametrize("shape", [(0, 1), (2, 0, 1), (0, 2, 1)])
def test_outputs_without_cells_may_be_of_any_size_or_are_refused_clearly(shape: tuple[int, ...]) -> None:
    """No channels or no samples, and 2**40 output cells each: the empty answer or a ShapeError, nothing else."""
    x, far = np.zeros(shape), 2**40
    w = np.zeros((shape[-2], shape[-2], 1))
    pads: dict[str, Any] = {"stride": 1, "padding": far}
    calls: list[Callable[[], Any]] = [
        lambda: ln.max_pool(x, (far + 1,), **pads),
        lambda: ln.avg_pool(x, (1,), **pads),
        lambda: ln.lp_pool(x, (1,), **pads),
        lambda: ln.smooth_max_pool(x, (1,), beta=1, **pads),
        lambda: ln.adaptive_avg_pool(x, (far,)),
        lambda: ln.adaptive_max_pool(x, (far,)),
        lambda: ln.conv(x, w, **pads),
        lambda: ln.conv_transpose(x, w, stride=far + 1, output_padding=far),
    ]
    for call in calls:
        try:
            y = call()
        except ln.ShapeError:
            continue
        assert y.size == 0 and y.shape[-1] >= far


# ---- half precision


ULP: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
HALVES = list(ULP)


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_is_accumulated_wider_and_rounded_once(half: Any) -> None:
    one, ulp = 1.0, ULP[half]
    # Half an ulp would be lost at each addition; the exact sum is one ulp more than 1.
    x = np.array([[one, ulp / 2, ulp / 2]], half)
    ones = np.ones((1, 1, 3), half)
    assert ln.conv(x, ones).astype(np.float64).tolist() == [[1 + ulp]]
    assert ln.conv_transpose(x.reshape(3, 1), np.ones((3, 1, 1), half)).astype(np.float64).tolist() == [[1 + ulp]]
    assert ln.avg_pool(x, (3,), divisor=1).astype(np.float64).tolist() == [[1 + ulp]]
    gx, gw, gb = ln.conv_vjp((np.ones((1, 3), half), np.ones((1, 1, 1), half), np.ones(1, half)), x)
    assert gb.astype(np.float64).tolist() == [1 + ulp]
    assert gw.astype(np.float64).tolist() == [[[1 + ulp]]]
    assert gx.astype(np.float64).tolist() == x.astype(np.float64).tolist()
    assert all(a.dtype == half for a in (gx, gw, gb))


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_sums_beyond_its_range_before_the_division(half: Any) -> None:
    top = (2 - ULP[half]) * (2.0**15 if half is np.float16 else 2.0**127)
    x = np.full((1, 4), top, half)
    assert ln.avg_pool(x, (4,)).astype(np.float64).tolist() == [[top]]
    assert ln.global_avg_pool(x, spatial=1).astype(np.float64).tolist() == [[top]]
    assert ln.adaptive_avg_pool(x, (2,)).astype(np.float64).tolist() == [[top, top]]
    assert ln.conv(x, np.ones((1, 1, 2), half)).astype(np.float64).tolist() == [[INF] * 3]
    assert ln.lp_pool(np.array([[top / 4, -top / 4]], half), (2,), p=1).astype(np.float64).tolist() == [[top / 2]]
    assert ln.smooth_max_pool(x, (4,), beta=8).astype(np.float64).tolist() == [[top]]


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_keeps_special_values(half: Any) -> None:
    x = np.array([[NAN, 1, -0.0, 0.0, -INF, -INF]], half)
    y, index = ln.max_pool(x, (2,), return_indices=True)
    assert y.dtype == half and index.dtype == np.int64
    assert same(y.astype(np.float64), [[NAN, -0.0, -INF]])
    assert index.tolist() == [[0, 2, 4]]
    (back,) = ln.max_pool_vjp((x,), np.array([[1, 2, 3]], half), kernel=(2,))
    assert back.dtype == half and same(back.astype(np.float64), [[1.0, 0.0, 2.0, 0.0, 3.0, 0.0]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_python_numbers_are_converted_to_the_dtype_of_x_first(dtype: Any) -> None:
    third = float(dtype(1 / 3))
    x = np.random.default_rng(0).random((400, 1)).astype(dtype)
    assert ln.avg_pool(x, (1,), divisor=1 / 3).tolist() == (x.astype(np.float64) / third).astype(dtype).tolist()
    p = float(dtype(1.1))
    ones = np.ones((1, 1000), dtype)
    assert close(ln.lp_pool(ones, (1000,), p=1.1), [[1000 ** (1 / p)]], dtype, 1) and p != 1.1
    with pytest.raises(ln.ArgumentError):
        ln.avg_pool(x, (1,), divisor=1e-60)  # zero in this dtype, as a beta of this size is


# ---- kinds of arrays


def test_tensors_and_arrays_go_in_without_a_copy() -> None:
    tensor = torch.arange(6.0).reshape(1, 6)
    assert np.shares_memory(to_numpy(tensor, "x").array, tensor.numpy())
    half = torch.arange(6, dtype=torch.bfloat16).reshape(1, 6)
    assert np.shares_memory(to_numpy(half, "x").array, half.view(torch.int16).numpy())
    array = np.arange(6.0).reshape(1, 6)[:, ::2]
    assert np.shares_memory(to_numpy(array, "x").array, array)
    # What is a view of one buffer stays one: the addresses of JAX's array and of the array lunette reads are equal.
    device = jnp.arange(6.0)
    assert to_numpy(device, "x").array.ctypes.data == device.unsafe_buffer_pointer()


@every_operator
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_in_torch_out(kind: type[Op], dtype: torch.dtype) -> None:
    arrays, options = plain_case(kind, "rank_4")
    tensors = [torch.from_numpy(a).to(dtype) for a in arrays]
    y = ask(kind, tensors, options)
    assert isinstance(y, torch.Tensor) and y.dtype == dtype and y.is_contiguous()
    wanted = ask(kind, arrays, options)
    assert torch.equal(y, torch.from_numpy(wanted).to(dtype)) or kind.needs in ("exp", "division")
    tangent = getattr(ln, f"{kind.name}_jvp")(tuple(tensors), tuple(tensors), **options)
    back = getattr(ln, f"{kind.name}_vjp")(tuple(tensors), torch.ones_like(y), **options)
    assert all(isinstance(t, torch.Tensor) and t.dtype == dtype for t in (tangent, *back))


@every_operator
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_jax_in_jax_out(kind: type[Op], dtype: Any) -> None:
    arrays, options = plain_case(kind, "rank_4")
    given = [jnp.asarray(a, dtype) for a in arrays]
    y = ask(kind, given, options)
    assert isinstance(y, type(given[0])) and y.dtype == dtype
    back = getattr(ln, f"{kind.name}_vjp")(tuple(given), jnp.ones_like(y), **options)
    assert all(isinstance(b, type(given[0])) and b.dtype == dtype for b in back)


def test_a_tensor_that_is_the_lazy_negation_of_another_is_read_with_its_sign() -> None:
    x = torch.tensor([[1 + 2j, 3 + 4j]]).conj().imag
    assert x.is_neg() and x.tolist() == [[-2.0, -4.0]]
    assert ln.max_pool(x, (2,)).tolist() == [[-2.0]]


def test_indices_of_tensors_are_tensors_of_int64() -> None:
    y, index = ln.max_pool(torch.tensor([[1.0, 3.0, 2.0]]), (3,), return_indices=True)
    assert type(y) is torch.Tensor and index.dtype == torch.int64 and index.tolist() == [[1]]


def test_numpy_mixes_with_one_other_kind_and_the_result_has_the_kind_of_x() -> None:
    x, w, b = np.ones((1, 1, 3), np.float32), np.ones((2, 1, 2), np.float32), np.ones(2, np.float32)
    wanted = ln.conv(x, w, b).tolist()
    for foreign in (torch.from_numpy, jnp.asarray):
        y: Any = ln.conv(foreign(x), w, foreign(b))
        assert isinstance(y, type(foreign(x))) and y.tolist() == wanted
        y = ln.conv(x, foreign(w), b)
        assert isinstance(y, np.ndarray) and y.tolist() == wanted
        gx, gw, gb = ln.conv_vjp((x, foreign(w), b), foreign(np.ones((1, 2, 2), np.float32)))
        assert all(isinstance(g, np.ndarray) for g in (gx, gw, gb))
        (back,) = ln.max_pool_vjp((foreign(x),), np.ones((1, 1, 1), np.float32), kernel=(3,))
        assert isinstance(back, type(foreign(x)))


def readonly(a: Array) -> Array:
    out = a.copy()
    out.flags.writeable = False
    return out


def unaligned(a: Array) -> Array:
    room = np.zeros(a.nbytes + 1, np.uint8)
    out = room[1:].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "read-only": readonly,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "Fortran order": lambda a: a.copy(order="F"),
    "every second cell": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "backwards": lambda a: a[..., ::-1].copy()[..., ::-1] if a.ndim else a,
    "unaligned": unaligned,
}


@every_operator
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_layout_gives_the_same_fresh_answer_and_stays_unchanged(kind: type[Op], layout: str, dtype: Any) -> None:
    arrays, options = plain_case(kind, "rank_4")
    plain = [a.astype(dtype) for a in arrays]
    laid = [LAYOUTS[layout](a) for a in plain]
    y = ask(kind, laid, options)
    assert y.tolist() == ask(kind, plain, options).tolist()
    assert y.dtype == dtype and y.flags.c_contiguous and y.flags.writeable
    g = LAYOUTS[layout](np.ones_like(y))
    results = [
        *getattr(ln, f"{kind.name}_vjp")(tuple(laid), g, **options),
        getattr(ln, f"{kind.name}_jvp")(tuple(laid), tuple(laid), **options),
    ]
    wanted = [
        *getattr(ln, f"{kind.name}_vjp")(tuple(plain), np.ones_like(y), **options),
        getattr(ln, f"{kind.name}_jvp")(tuple(plain), tuple(plain), **options),
    ]
    for r, v in zip(results, wanted, strict=True):
        assert r.tolist() == v.tolist() and r.dtype == dtype and r.flags.c_contiguous
        assert not any(np.shares_memory(r, a) for a in (*laid, g, y))
    assert all(a.tolist() == p.tolist() for a, p in zip(laid, plain, strict=True))


@every_operator
def test_outputs_are_fresh_even_where_they_equal_the_input(kind: type[Op]) -> None:
    arrays, options = plain_case(kind, "rank_0")
    for given in (arrays, [a.astype(object) for a in arrays]):
        y = ask(kind, given, options)
        back = getattr(ln, f"{kind.name}_vjp")(tuple(given), y, **options)
        forward = getattr(ln, f"{kind.name}_jvp")(tuple(given), tuple(given), **options)
        assert not any(np.shares_memory(r, a) for r in (y, forward, *back) for a in given)
        assert not any(np.shares_memory(r, y) for r in (forward, *back))


# ---- object arrays and nested lists


def test_ints_divide_to_fractions_never_to_floats() -> None:
    assert ln.avg_pool([[1, 2]], (2,)).tolist() == [[Fraction(3, 2)]]
    assert ln.adaptive_avg_pool([[1, 2, 4]], (2,)).tolist() == [[Fraction(3, 2), Fraction(3)]]
    assert ln.global_avg_pool(np.array([[1, 2, 2]], object), spatial=1).tolist() == [[Fraction(5, 3)]]
    (back,) = ln.avg_pool_vjp(([[1, 2, 3]],), [[1]], kernel=(3,))
    assert back.tolist() == [[Fraction(1, 3)] * 3]
    (back,) = ln.max_pool_vjp(([[2, 2]],), [[1]], kernel=(2,), ties="split")
    assert back.tolist() == [[Fraction(1, 2)] * 2]
    assert ln.avg_pool([[1, 2]], (2,), divisor=0.5).tolist() == [[6]]
    for y in (ln.avg_pool([[1, 2]], (2,)), back):
        assert all(isinstance(v, Fraction) for v in y.flat)


def test_lists_of_floats_run_the_specification_on_floats() -> None:
    y = ln.avg_pool([[1.0, NAN], [INF, -INF], [-0.0, -0.0]], (2,))
    assert y.dtype == object and all(type(v) is float for v in y.flat)
    assert same(y, [[NAN], [NAN], [-0.0]])
    y, index = ln.max_pool([[[1.0, NAN, NAN]]], (3,), return_indices=True)
    assert y.dtype == object and same(y, [[[NAN]]]) and index.dtype == np.int64 and index.tolist() == [[[1]]]


def test_lists_and_object_arrays_take_batches() -> None:
    x = np.arange(12).reshape(2, 3, 2).astype(object)
    y = ln.conv(x, [[[1, 1], [1, 1], [1, 1]]], [100])
    assert y.dtype == object and y.tolist() == [[[115]], [[151]]]
    assert all(type(v) is int for v in y.flat)
    assert ln.conv(x.tolist(), [[[1, 1], [1, 1], [1, 1]]], [100]).tolist() == y.tolist()


def test_beta_is_a_number_or_an_array_without_axes() -> None:
    x = np.array([[0.0, 0.0]])
    wanted = ln.smooth_max_pool(x, (2,), beta=2).tolist()
    for beta in (2.0, np.float64(2), np.array(2.0), torch.tensor(2.0, dtype=torch.float64), np.int64(2), Fraction(2)):
        assert ln.smooth_max_pool(x, (2,), beta=beta).tolist() == wanted
