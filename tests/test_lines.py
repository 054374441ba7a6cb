"""Lines of operators hold at every point of a box, on rationals; and they are as tight as they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import by_day
from lunette import lines
from lunette.lines import Greatest, Kink, Lines, Mirrored, Relaxation
from lunette.number import Array, Interval, each
from lunette.op import resolve
from lunette.ops import ALL, GLUE
from lunette.ops.binary import Maximum, Minimum
from lunette.ops.floor import Floor
from lunette.ops.glue import Glue
from lunette.ops.max_pool import MaxPool
from lunette.ops.reduce import Max
from lunette.ops.unary import Abs, LeakyRelu, Relu
from lunette.taps import Broadcast, Folded, Grid, Placed, flat
from test_glue import options as glue_options
from test_walk import asked

seeds = st.integers(0, 2**32 - 1)


def box_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Interval:
    """Ends of all kinds: ties, points, huge and tiny widths, both signs, zeros."""
    scale = rng.choice([1e-300, 1e-9, 1.0, 1.0, 1.0, 1e9, 1e200])
    lo = rng.choice([rng.integers(-3, 4, shape).astype(float), rng.normal(size=shape)]) * scale
    width = rng.choice(
        [np.zeros(shape), rng.integers(0, 4, shape).astype(float), rng.random(shape) * 1e-14 + 0], axis=0
    )
    return Interval.between(np.asarray(lo), np.asarray(lo + width * scale))


def points_of(rng: np.random.Generator, boxes: Sequence[Interval], several: int = 4) -> list[list[Array]]:
    """Corners, ends of a few cells, and points between, as rationals."""
    found = []
    for kind in range(several):
        point = []
        for b in boxes:
            share = rng.integers(0, 2, b.shape) if kind % 2 else rng.integers(0, 9, b.shape)
            whole = 1 if kind % 2 else 8
            lo, hi = exactly(b.lo), exactly(b.hi)
            shares = each(lambda k, w=whole: Fraction(int(k), w), np.asarray(share, object))
            point.append(np.asarray(lo + (hi - lo) * shares, object))
        found.append(point)
    return found


def exactly(a: Array) -> Array:
    return each(Fraction, np.asarray(a, object))


def gaps(relaxation: Relaxation, made: Lines, x: Sequence[Array], y: Array) -> tuple[Any, Any]:
    """The least y - (line below) and (line above) - y, exactly, over all cells and rows."""
    found = []
    for slopes, constant, sign in (
        (made.low, made.low_constant, 1),
        (made.high, made.high_constant, -1),
    ):
        total: Any = exactly(constant)
        for t, s, cells in zip(relaxation.taps, slopes, x, strict=True):
            where = t.gather(np.arange(cells.size, dtype=float).reshape(1, *cells.shape), -1.0)[0].astype(int)
            taken = np.concatenate([cells.reshape(-1), np.array([Fraction(0)], object)])[where]
            assert s.shape[1:] == where.shape
            total = total + (exactly(s) * taken).sum(1)
        found.append(min((sign * (y - total)).reshape(-1), default=Fraction(0)))
    return found[0], found[1]


def parameters_of(rng: np.random.Generator, relaxation: Relaxation, rows: int) -> dict[str, Array] | None:
    """Anything: lines must hold whatever an optimiser asks for."""
    start = relaxation.start(rows)
    if not start:
        return None
    return {
        k: np.where(rng.random(v.shape) < 0.2, rng.normal(size=v.shape) * 3, rng.random(v.shape))
        for k, v in start.items()
    }


def check(kind: type[Any], shapes: Sequence[tuple[int, ...]], options: tuple[Any, ...], seed: int) -> None:
    """Rule by rule, at exact points, with usual parameters and with any."""
    rng = np.random.default_rng(seed)
    op = resolve(kind, list(shapes), 1, options).op
    boxes = [box_of(rng, s) for s in shapes]
    for moving in [(True,)] if len(boxes) == 1 else [(True, True), (True, False), (False, True)]:
        own = [b if m else Interval.between(b.lo, b.lo) for b, m in zip(boxes, moving, strict=True)]
        relaxation = op.relax(own, moving)
        assert relaxation is not None
        for parameters in (None, parameters_of(rng, relaxation, 2)):
            made = relaxation.lines(parameters)
            for point in points_of(rng, own):
                below, above = gaps(
                    relaxation, made, [p for p, m in zip(point, moving, strict=True) if m], op.spec(*point)
                )
                assert below >= 0 and above >= 0


POOLS = [
    pytest.param(kind, c, id=f"{kind.name}:{k}")
    for kind in ALL
    if kind.tells("relax") and kind.needs != "exp"  # on rationals; the others are in test_bounds
    for k, c in kind.cases.items()
]


@pytest.mark.parametrize(("kind", "case"), POOLS)
@given(seeds)
@by_day(4)
def test_lines_of_pools_hold(kind: type[Any], case: Any, seed: int) -> None:
    check(kind, case.shapes, kind.told(len(case.shapes[0]) - 1, asked(kind, case, 0).options), seed)


@pytest.mark.parametrize("kind", [Relu, Abs, Maximum, Minimum, Max, Floor])
@given(seeds)
@by_day(4)
def test_lines_of_glue_hold(kind: type[Glue], seed: int) -> None:
    for c in kind.cases.values():
        if all(0 not in s for s in c.shapes):
            check(kind, c.shapes, glue_options(kind, c), seed)


@given(seeds, st.sampled_from([0.0, 0.01, 0.3, 1.0, 1.5, -0.5]))
@by_day(20)
def test_lines_of_leaky_relu_hold(seed: int, slope: float) -> None:
    check(LeakyRelu, [(7,)], (slope,), seed)


def test_the_operators_with_lines_are_known() -> None:
    """What has a rule of its own; the rest is linear, or has its interval."""
    own = {k.name for k in (*ALL, *GLUE) if k.tells("relax")}
    assert own == {
        *("max_pool", "adaptive_max_pool", "global_max_pool"),
        *("relu", "leaky_relu", "abs", "maximum", "minimum", "max", "smooth_max_pool"),
        *("sigmoid", "tanh", "exp", "log", "sqrt", "power", "mul", "div", "erf", "floor"),
    }


# ---- the concave envelope


def solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """Gauss and Jordan, exactly; None where there is no single solution."""
    n = len(right)
    rows = [[*r, b] for r, b in zip(matrix, right, strict=True)]
    for c in range(n):
        pivot = next((r for r in range(c, n) if rows[r][c] != 0), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [v / rows[c][c] for v in rows[c]]
        for r in range(n):
            if r != c:
                rows[r] = [v - rows[r][c] * w for v, w in zip(rows[r], rows[c], strict=True)]
    return [r[-1] for r in rows]


def envelope(lo: list[Fraction], hi: list[Fraction], x: list[Fraction], floor: Fraction | None) -> Fraction:
    """The greatest mean of max over corners whose mean is x: the linear programme, by all of its bases."""
    corners = list(product(*zip(lo, hi, strict=True)))
    best = None
    for basis in combinations(corners, len(x) + 1):
        weights = solve(
            [[c[i] for c in basis] for i in range(len(x))] + [[Fraction(1)] * len(basis)], [*x, Fraction(1)]
        )
        if weights is None or min(weights) < 0:
            continue
        values = [max([*c, *([] if floor is None else [floor])]) for c in basis]
        value = sum((w * v for w, v in zip(weights, values, strict=True)), Fraction(0))
        best = value if best is None else max(best, value)
    assert best is not None
    return best


@given(seeds, st.integers(1, 3), st.booleans())
@by_day(40)
def test_the_best_level_is_the_concave_envelope(seed: int, n: int, floored: bool) -> None:
    """Over all levels, the lines above a maximum are its concave envelope: the linear programme over the corners."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(-8, 8, n) / 4
    hi = lo + rng.integers(1, 16, n) / 4
    floor = Interval.between(np.zeros(1), np.zeros(1)) if floored else None
    taps = Folded((n, 1), (1,), (0,))
    relaxation = Greatest((Interval.between(lo[:, None], hi[:, None]),), (taps,), floor)
    least, _, most = (float(v[0, 0, 0]) for v in relaxation.levels)
    low, high = [Fraction(v) for v in lo], [Fraction(v) for v in hi]
    x = [a + (b - a) * Fraction(int(rng.integers(0, 9)), 8) for a, b in zip(low, high, strict=True)]
    exact_value = envelope(low, high, x, Fraction(0) if floored else None)
    found = []
    for level in {least, *(u for u in hi if u > least)}:
        share = (level - least) / (most - least) if most > least else 0.0
        made = relaxation.lines({"level": np.full((1, 1, 1), share), "weight": relaxation.first})
        value = sum(Fraction(s) * v for s, v in zip(made.high[0][0, :, 0], x, strict=True))
        found.append(value + Fraction(made.high_constant[0, 0]))
    assert exact_value <= min(found) <= exact_value + Fraction(1, 2**40)  # slopes and constants are rounded


# ---- broken on purpose


def largest(x: Array) -> Array:
    """Of cells and zero."""
    return each(lambda v: max(v, Fraction(0)), x)


def broken_escapes(seed: int = 0) -> int:
    """How many of some boxes have a point outside of the lines of a maximum, of one with a floor, or of relu."""
    found = 0
    for s in range(seed, seed + 40):
        rng = np.random.default_rng(s)
        lo = rng.normal(size=(3, 4))
        box = Interval.between(lo, lo + rng.random((3, 4)) * 2)
        taps = Folded((3, 4), (4,), (0,))
        zero = Interval.between(np.zeros(4), np.zeros(4))
        flat = Interval.between(box.lo[0], box.hi[0])
        cases: list[tuple[Relaxation, Interval, Callable[[Array], Array]]] = [
            (Greatest((box,), (taps,)), box, lambda x: x.max(0)),
            (Greatest((box,), (taps,), zero), box, lambda x: largest(x.max(0))),
            (Kink(flat.lo, flat.hi, 0.0, 1.0), flat, lambda x: largest(x)),
            (Mirrored(Greatest((Interval.between(-box.hi, -box.lo),), (taps,))), box, lambda x: x.min(0)),
        ]
        for relaxation, own, f in cases:
            for parameters in (None, {k: rng.random(v.shape) for k, v in relaxation.start(1).items()}):
                try:
                    made = relaxation.lines(parameters)
                except AssertionError:
                    found += 1
                    continue
                points = points_of(rng, [own], 8)
                found += any(min(gaps(relaxation, made, p, f(p[0]))) < 0 for p in points)
    return found


def test_nothing_escapes_that_is_not_broken() -> None:
    assert broken_escapes() == 0


def inward(value: Array, magnitude: Array, roundings: int) -> Array:
    return np.nextafter(value, -np.inf)


def heavier(self: Greatest, wanted: Array, right: Any = Greatest.weights) -> Array:
    w: Array = right(self, wanted)
    return w * (1 + 2.0**-20)


def negative(self: Greatest, level: Array, right: Any = Greatest.slopes) -> Array:
    s: Array = right(self, level)
    return s - 0.01


def swapped(self: Any, right: Any = Greatest.ends.func) -> Any:  # type: ignore[attr-defined]
    lo, hi = right(self)
    return hi, lo


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        pytest.param(lines, "up", inward, id="an intercept rounded inward"),
        pytest.param(Greatest, "weights", heavier, id="weights that sum to more than 1"),
        pytest.param(Greatest, "slopes", negative, id="a negative slope"),
        pytest.param(Greatest, "ends", property(swapped), id="ends swapped"),
        pytest.param(Greatest, "floors", property(lambda self: (np.full((1, 1, 4), -9.0),) * 2), id="no floor"),
    ],
)
def test_what_is_broken_on_purpose_is_found(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, wrong: Any) -> None:
    monkeypatch.setattr(where, name, wrong)
    assert broken_escapes() > 0


def test_taps_are_adjoint() -> None:
    """Gathering and scattering are transposes of each other, for every way to read cells."""
    rng = np.random.default_rng(0)
    every: list[Any] = [Broadcast((3, 1), (2, 3, 4)), Folded((2, 3, 4), (2, 1, 4), (1,))]
    for kind in ALL:
        if issubclass(kind, MaxPool):
            for c in kind.cases.values():
                told = kind.told(len(c.shapes[0]) - 1, asked(kind, c, 0).options)
                op: Any = resolve(kind, list(c.shapes), 1, told).op
                every.append(op.taps((2, *c.shapes[0])))
    for t in every:
        x = rng.integers(-4, 5, (3, *t.shape)).astype(float)
        read = t.gather(x, 0.0)
        slopes, a = (
            rng.integers(-4, 5, (1, *read.shape[1:])).astype(float),
            rng.integers(-4, 5, (3, *t.out)).astype(float),
        )
        back = t.scatter(a, slopes, slopes)
        assert (back * x).sum() == (read * slopes * a[:, None]).sum()
        assert t.gather(np.ones((1, *t.shape)), 0.0).sum((0, 1)).max(initial=0) >= 0
        counted = t.scatter(np.ones((1, *t.out)), np.ones((1, *read.shape[1:])), slopes[:1])
        assert counted.max(initial=1) <= t.terms


# ---- rows of coefficients


@given(seeds, st.integers(1, 3), st.booleans())
@by_day(40)
def test_rows_are_weighed_and_pulled_where_they_lie(seed: int, d: int, own: bool) -> None:
    """Patches of integers that hang over every edge, of tables with an infinite cell: the sums, cell by cell."""
    rng = np.random.default_rng(seed)
    rows, channels, taps = 3, 2, int(rng.integers(1, 4))
    space, size, behind, space_behind = (tuple(int(n) for n in rng.integers(1, 7, d)) for _ in range(4))
    stride = tuple(int(n) for n in rng.integers(1, 4, d))
    offsets = tuple(tuple(int(n) for n in rng.integers(-2, 3, d)) for _ in range(taps))
    origin, to = (rng.integers(-3, 4, (rows, d)) for _ in range(2))
    a = rng.integers(-2, 3, (rows, channels, *size)).astype(float)
    low, high = rng.integers(-4, 5, (2, rows if own else 1, taps, channels, *space)).astype(float)
    placed = Placed(a, space, origin)
    weighed, pulled = np.zeros(rows), np.zeros((rows, channels, *behind))
    for r, c, *i in np.ndindex(*a.shape):
        at = tuple(int(v) for v in origin[r] + i)
        if all(0 <= v < n for v, n in zip(at, space, strict=True)):
            x = a[(r, c, *i)]
            table = (low if x > 0 else high)[r if own else 0]
            weighed[r] += x * table[(0, c, *at)]
            for t, offset in enumerate(offsets):
                cell = [v * s + o for v, s, o in zip(at, stride, offset, strict=True)]
                there = [v - o for v, o in zip(cell, to[r], strict=True)]
                inside = (0 <= v < n for v, n in zip((*cell, *there), (*space_behind, *behind), strict=True))
                if all(inside):
                    pulled[(r, c, *there)] += x * table[(t, c, *at)]
    assert (placed.weigh(low[:, 0], high[:, 0]) == weighed).all()
    assert (Grid(stride, offsets).pull(placed, low, high, space_behind, behind, to) == pulled).all()


def test_zero_times_anything_is_zero_and_nan_stays() -> None:
    table = np.full((1, 1, 1, 3), np.inf)
    rows = flat(np.array([[0.0, -0.0, 0.0], [np.nan, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    weighed = rows.weigh(table[:, 0], table[:, 0])
    pulled = Grid((1,), ((0,),)).pull(rows, table, table, (3,), (3,), None)
    assert weighed[0] == 0 and np.isnan(weighed[1]) and weighed[2] == np.inf
    assert (pulled[0] == 0).all() and np.isnan(pulled[1, 0, 0]) and pulled[2, 0, 0] == np.inf
