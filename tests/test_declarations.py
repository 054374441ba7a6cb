"""What operators declare is true: conform, dialects, pictures and benchmarks believe it without looking."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette import spec
from lunette.array import resolve_named
from lunette.errors import LunetteError
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed
from lunette.ops.chance import Limits
from lunette.window import Axis, Bins, Transposed

every_operator = pytest.mark.parametrize("kind", ALL, ids=lambda k: k.name)
GEOMETRY = {"sliding": Axis, "transposed": Transposed, "bins": Bins, "whole": Bins}
OF_WINDOWS = {
    "kernel",
    "stride",
    "padding",
    "dilation",
    "ceil_mode",
    "output_padding",
    "output_size",
    "spatial",
    "groups",
}


def drawn(kind: type[Windowed], many: int = 40) -> list[Any]:
    """Random problems that the operator accepts, resolved."""
    rng, found = np.random.default_rng(2), []
    for at in range(many):
        case = kind.draw(rng, at % 4 + 1, Limits())
        try:
            found.append((case, resolve_named(kind.name, case.shapes, case.options).op))
        except LunetteError:
            continue
    return found


def space_of(case: Any, op: Any) -> tuple[int, ...]:
    x: tuple[int, ...] = case.shapes[0]
    return x[len(x) - op.window.d :]


@every_operator
def test_windows_lie_as_they_are_said_to(kind: type[Windowed]) -> None:
    assert kind.weighted == ("w" in kind.arrays)
    said = {n for n in ("kernel", "output_size") if n in parameters_of(ALL[kind])}
    assert said == ({"kernel"} if kind.slides() else {"output_size"} if kind.windows == "bins" else set())
    for case, op in drawn(kind):
        assert all(type(a) is GEOMETRY[kind.windows] for a in op.window.axes)
        if kind.windows == "whole":
            assert set(op.window.out(space_of(case, op))) <= {1}


@every_operator
def test_random_problems_have_the_operators_options(kind: type[Windowed]) -> None:
    known, found = parameters_of(ALL[kind]), drawn(kind)
    assert len(found) > 12  # of 40
    assert {n for case, _ in found for n in case.options} <= known.keys()
    own = {
        n for n in known if n not in {*kind.arrays, *OF_WINDOWS, "arithmetic", "return_indices"} or n in kind.scalars
    }
    assert own == kind.draws.keys(), "every option of its own is drawn"


@every_operator
def test_what_must_be_given_is_given(kind: type[Windowed]) -> None:
    required = {n for n, p in parameters_of(ALL[kind]).items() if p.default is p.empty} - {"x", "w"}
    assert required - {"kernel", "output_size"} == set(kind.needed)


@every_operator
def test_one_window_is_one_output_cell(kind: type[Windowed]) -> None:
    one = kind.one_window((1, 1, 2, 3))
    out = ln.output_shape(kind.name, *one.shapes, **{**one.options, **kind.needed})
    assert out == (1, 1, 1, 1) or kind.windows == "transposed"
    for options in kind.variants((1.0, 2.0)):
        ln.output_shape(kind.name, *one.shapes, **{**one.options, **options})


@every_operator
def test_a_divisor_is_what_a_window_of_ones_is_divided_by(kind: type[Windowed]) -> None:
    for case, op in drawn(kind):
        space = space_of(case, op)
        first = (0,) * len(op.window.out(space))
        assert (op.divisor_at(first, space) is not None) == kind.averages
        if not kind.averages or 0 in case.shapes[0]:
            continue
        x = np.full((1, *space), Fraction(1), object)
        options = {n: v for n, v in case.options.items() if n != "keepdims"}
        y = getattr(spec, kind.name)(x, **options)
        for o in np.ndindex(*op.window.out(space)):
            reads = prod(a.reach(p, n).count for a, p, n in zip(op.window.axes, o, space, strict=True))
            assert y[(0, *o)] * op.divisor_at(o, space) == reads


@every_operator
def test_one_more_cell_joins_the_result(kind: type[Windowed]) -> None:
    if kind.joins is None:
        return
    rng = np.random.default_rng(0)
    for _ in range(30):
        x = rng.integers(-5, 6, (1, 1, 1, 6)).astype(np.float64)
        few, more = (ALL[kind](a, **kind.one_window(a.shape).options, **kind.needed) for a in (x[..., :5], x))
        assert more.item() == kind.joins(few.item(), x[0, 0, 0, 5])


@every_operator
def test_a_window_without_cells_is_refused_by_the_rule_that_is_named(kind: type[Windowed]) -> None:
    if not kind.slides():
        return
    options = {"kernel": (1,), "stride": 1, "padding": 1, **kind.needed}
    x = np.ones((1, 1, 2), np.float32)
    if not kind.refuses_empty:
        assert ALL[kind](x, **options).shape == (1, 1, 4)
        return
    with pytest.raises(LunetteError) as caught:
        ALL[kind](x, **{**options, **kind.refused_with})
    assert caught.value.rule == kind.refuses_empty
    if kind.refused_with:
        assert ALL[kind](x, **options).shape == (1, 1, 4)


@every_operator
def test_what_counts_adds_up_ones(kind: type[Windowed]) -> None:
    if kind.counting is None:
        return
    one = kind.one_window((1, 1, 7))
    y = ALL[kind](*(np.ones(s) for s in one.shapes), **{**one.options, **kind.counting})
    assert y.item() == (1 if kind.averages else 7)


@every_operator
def test_sums_that_overflow_are_told(kind: type[Windowed]) -> None:
    """A partial sum of these is beyond the range; their sum, average, norm and maximum are not."""
    one = kind.one_window((1, 1, 3))
    large = np.array([[[0.55, 0.55, -0.55]]], np.float32) * np.finfo(np.float32).max
    arrays = [large, *(np.ones(s, np.float32) for s in one.shapes[1:])]
    y = ALL[kind](*arrays, **{**one.options, **kind.needed})
    if kind.windows != "transposed":
        assert bool(np.isfinite(y).all()) == (not kind.overflows)


@every_operator
def test_powers_are_those_of_the_size_of_x(kind: type[Windowed]) -> None:
    assert kind.powers == ("p" in parameters_of(ALL[kind]))
    if kind.powers:
        x = np.array([[[1.0, -2.0, 2.0]]])
        assert ALL[kind](x, (3,), p=3).item() == pytest.approx((1 + 8 + 8) ** (1 / 3), rel=1e-14)


def test_operators_are_listed_by_name() -> None:
    assert {name: kind.name for name, kind in KINDS.items()} == {kind.name: kind.name for kind in ALL}
