"""Bounds of networks: nothing escapes, on exact numbers; they are as tight as they claim; what is broken is found."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import lunette as ln
from effort import LONG, by_day
from lunette.bench.data import WANTED, data_folder
from lunette.bench.random_networks import random_network
from lunette.cli import app
from lunette.graph import walk
from lunette.graph.rules import rules
from lunette.graph.text import kinds
from lunette.lines import Greatest
from lunette.number import Array, Interval
from lunette.op import apply
from lunette.ops import Conv
from lunette.ops.linear import MatMul
from lunette.relax import boxes, dual, patch, step
from lunette.relax.bounds import Answer
from lunette.relax.given import METHODS
from lunette.relax.network import in_float64
from lunette.relax.patch import Patch
from lunette.relax.step import Enclosed
from lunette.taps import Windows

seeds = st.integers(0, 2**32 - 1)
NETWORKS = 240 if LONG else 12
POINTS = int(os.environ.get("LUNETTE_BOUND_POINTS", "10000")) // (3 * NETWORKS)


@pytest.fixture(autouse=True)
def _two_hundred_bits() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 200
    yield
    flint.ctx.prec = before


def corners(rng: np.random.Generator, box: Interval, several: int) -> Iterator[Array]:
    """Points of a box that are hard: its ends, many at once or a few; the centre; and any."""
    lo, hi = box.lo.astype(float), box.hi.astype(float)
    for k in range(several):
        share = (rng.integers(0, 2, lo.shape), rng.random(lo.shape), rng.random(lo.shape) < 0.05)[k % 3]
        yield np.clip(lo + (hi - lo) * share, lo, hi) if k else lo / 2 + hi / 2


def exact_value(graph: ln.Graph, x: Array) -> Any:
    """The output at a point whose cells are floats, on rationals, or on balls of 200 bits."""
    smooth = any(n.kind is not None and n.kind.needs == "exp" for n in graph.nodes)
    return graph.eval(x.astype(object), number=flint.arb if smooth else Fraction)


def is_outside(y: Any, lo: float, hi: float) -> bool:
    """Whether an exact number, or every number of a ball, is outside of bounds."""
    if isinstance(y, flint.arb):
        return bool(y < flint.arb(lo)) or bool(y > flint.arb(hi))
    return (lo != -np.inf and bool(y < Fraction(lo))) or (hi != np.inf and bool(y > Fraction(hi)))


def escapes(graph: ln.Graph, box: Interval, found: ln.Bounds, several: int, seed: int = 0) -> int:
    """How many of some points have an output outside of the bounds.

    A float64 value that is inside by a millionth of the sizes around it needs no exact one.
    """
    rng, outside = np.random.default_rng(seed), 0
    program = ln.Program(found.graph)
    for x in corners(rng, box, several):
        y = program(x)
        clear = 1e-6 * (1 + np.abs(y))
        if ((y - clear > found.lo) & (y + clear < found.hi)).all():
            continue
        exact = exact_value(graph, x)
        outside += any(map(is_outside, exact.flat, found.lo.flat, found.hi.flat))
    return outside


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_nothing_escapes(seed: int) -> None:
    """Random networks, every method: all points of the box, ties and corners among them, are inside."""
    graph, box = random_network(seed)
    before: ln.Bounds | None = None
    for method in METHODS:
        found = ln.bounds(graph, box, method=method, steps=3)
        assert (found.lo <= found.hi).all()
        assert escapes(graph, box, found, POINTS, seed) == 0
        if before is not None:  # each is at least as tight as the one before it
            assert (found.lo >= before.lo).all() and (found.hi <= before.hi).all()
        before = found


def test_crown_is_tighter_than_intervals() -> None:
    """By itself, in nearly all networks; and better lines are better."""
    widths = []
    for seed in range(20):
        graph, box = random_network(seed)
        found = [ln.bounds(graph, box, method=m, steps=10).alone for m in METHODS]
        widths.append([float(np.mean(b.hi - b.lo)) for b in found])
    interval, crown, optimised = np.array(widths).T
    assert np.mean(crown < interval) >= 0.95 and np.mean(optimised < crown) >= 0.9
    assert np.exp(np.mean(np.log(crown / interval))) < 0.8 and np.exp(np.mean(np.log(optimised / crown))) < 0.98


ONE: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: ln.sigmoid(x) - x,
    "tanh": lambda x: ln.tanh(3 * x) - x,
    "exp": lambda x: ln.exp(x) - x,
    "log": lambda x: ln.log(x * x + 1) - x,
    "sqrt": lambda x: ln.sqrt(ln.relu(x)) + ln.sqrt(x * x + 0.5),
    "power": lambda x: ln.power(x, 3) - ln.power(x + 9, -2) + ln.power(x, 4),
    "erf": lambda x: ln.erf(x) - x + ln.erf(3 * x),
    "floor": lambda x: ln.floor(1.5 * x) - x,
    "pow": lambda x: ln.pow(x, np.array([3.0])) - ln.pow(ln.exp(x), np.array(0.75)) + ln.pow(2 + x * x, ln.relu(x)),
    "div": lambda x: ln.div(x, x * x + 1) + ln.div(2.0, x - 9),
    "mul": lambda x: ln.mul(x, 2 - ln.relu(x)),
    "softmax": lambda x: ln.softmax(x, axis=1) - ln.log_softmax(x, axis=0),
    "matmul": lambda x: ln.matmul(x, ln.transpose(ln.relu(x))),
    "minimum": lambda x: ln.minimum(ln.maximum(x, -x), 0.5) - ln.abs(x),
    "leaky_relu": lambda x: ln.leaky_relu(x, 0.1) - ln.leaky_relu(x, 1.5),
    "max": lambda x: ln.max(x, axis=1) - ln.mean(x, axis=1),
    "smooth_max": lambda x: ln.smooth_max_pool(x, (2,), beta=2.0, stride=1, padding=1),
    "smooth_min": lambda x: ln.smooth_max_pool(x, (2,), beta=-3.0, stride=1, padding=1, count_include_pad=False),
    "lp_1": lambda x: ln.lp_pool(x, (2,), p=1, stride=1, padding=1),
    "lp_2": lambda x: ln.lp_pool(x, (2,), p=2, stride=1) - ln.lp_pool(x, (2,), p=4, stride=1),
    "lp_3": lambda x: ln.lp_pool(x, (2,), p=3, stride=1),
    "lp_infinity": lambda x: ln.lp_pool(x, (3,), p=np.inf, stride=1, padding=1),
    "adaptive": lambda x: ln.adaptive_max_pool(x, (5,)) - ln.adaptive_avg_pool(x, (5,)),
    "global": lambda x: ln.global_max_pool(x, spatial=1) - ln.global_avg_pool(x, spatial=1),
    "conv_transpose": lambda x: ln.relu(ln.conv_transpose(x, np.ones((2, 1, 2)), stride=2)),
    "batch_norm": lambda x: ln.relu(
        ln.batch_norm(x, np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.7, 1.1]), np.ones(3) / 3, np.zeros(3))
    ),
    "layout": lambda x: ln.relu(
        ln.concat([ln.pad(x, 1, 0.5), ln.broadcast_to(ln.slice(x, (0, 1), (1, 2)), (4, 5))], axis=1)
    ),
    "gradient": lambda x: ln.grad(lambda v: ln.sum(ln.relu(v) * ln.exp(v * 0.25)))(x),
    "gradient_of_conv": lambda x: ln.grad(
        lambda v: ln.mse(ln.conv(ln.reshape(v, (1, 2, 3)), np.ones((2, 2, 2)) / 3), np.ones((1, 2, 2)))
    )(x),
    "stop_gradient": lambda x: ln.stop_gradient(ln.relu(x)) - x,
    "affine": lambda x: ln.linear(ln.linear(x, np.eye(3) - 0.3), np.full((2, 3), 0.1), np.ones(2)) - 1,
}


@pytest.mark.parametrize("name", ONE)
@given(seed=seeds)
@by_day(4)
def test_nothing_escapes_one_operator(name: str, seed: int) -> None:
    """Wide and narrow boxes of either sign, with points and ties in them."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(-3, 4, (2, 3)) / 2
    box = ln.Interval(lo, lo + rng.integers(0, 4, (2, 3)) * float(rng.choice([1e-9, 0.25, 1.0])))
    graph = ln.trace(ONE[name], box.lo)
    for method in METHODS:
        found = ln.bounds(graph, box, method=method, steps=3)
        assert escapes(graph, box, found, 12, seed) == 0


def test_what_has_lines_is_told() -> None:
    """Operators of which bounds know more than an interval; derivatives, gates and the like are not among them."""
    has = {name for name, found in rules().items() if "relax" in found}
    named = {name for name in kinds() if not any(part in name for part in ("_jvp", "_vjp"))}
    assert named - has == {"equal", "sign", "one_hot", "bell"}


MUST_HAVE = {
    *("conv", "conv_transpose", "max_pool", "avg_pool", "smooth_max_pool", "lp_pool"),
    *("adaptive_max_pool", "adaptive_avg_pool", "global_max_pool", "global_avg_pool"),
    *("relu", "leaky_relu", "abs", "maximum", "minimum", "max", "sigmoid", "tanh", "exp", "log", "sqrt", "erf"),
    *("add", "sub", "mul", "div", "neg", "matmul", "softmax", "log_softmax", "sum", "mean", "power"),
    *("reshape", "transpose", "slice", "pad", "concat", "broadcast_to", "take"),
}


def test_operators_that_must_have_lines_do() -> None:
    """None of these falls back to its interval at a box where it is defined: every step of a walk has sources."""
    has = {name for name, found in rules().items() if "relax" in found}
    assert has >= MUST_HAVE
    made = {"clip": lambda x: ln.minimum(ln.maximum(x, 0.75), 1.25), **ONE}
    for name in ("lp_3", "pow", "gradient", "gradient_of_conv"):  # other p, an exponent that varies, derivatives
        del made[name]
    box = ln.Interval(np.full((2, 3), 0.5), np.full((2, 3), 1.5))
    for name, f in made.items():
        graph = ln.trace(f, box.lo)
        answer = Answer(in_float64(graph, [None]), [box], 2**30, lambda *_: None)
        answer.enclose()
        answer.relax()
        fallen = [at for at, s in answer.steps.items() if isinstance(s, Enclosed)]
        assert not fallen, (name, fallen)


# ---- as tight as they claim


def test_affine_functions_are_exact() -> None:
    """But for rounding, which is a millionth of a millionth of what is added up."""
    rng = np.random.default_rng(0)
    w, v, x = rng.normal(size=(7, 5)), rng.normal(size=(3, 7)), rng.normal(size=(1, 5))
    box = ln.Interval(x - 0.5, x + 0.5)
    found = ln.bounds(lambda x: ln.linear(ln.linear(x, w), v) + 2 * ln.sum(x), box)
    whole = v @ w + 2
    middle, reach = (whole @ x[0]), np.abs(whole).sum(1) * 0.5
    assert np.allclose(found.lo[0], middle - reach, rtol=0, atol=1e-11)
    assert np.allclose(found.hi[0], middle + reach, rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(6))
def test_a_box_without_width_gives_the_value(seed: int) -> None:
    graph, box = random_network(seed)
    x = box.lo.astype(float)
    found = ln.bounds(graph, ln.Interval(x, x))
    y = found.graph.compile()(x)
    assert ((found.lo <= y + 1e-11) & (y - 1e-11 <= found.hi)).all() and (found.width < 1e-9 * (1 + np.abs(y))).all()


def test_what_is_computed_twice_is_one() -> None:
    x = ln.Interval(-np.ones(2), np.ones(2))
    found = ln.bounds(lambda x: ln.relu(x) - ln.relu(x), x)
    assert np.abs([found.lo, found.hi]).max() < 1e-12
    apart = ln.bounds(lambda x: ln.relu(x) - ln.relu(x), x, semantics="float")
    assert apart.hi.min() >= 0


def test_rows_are_rows() -> None:
    graph, box = random_network(3)
    rows = np.array([[1, -1, 0], [0, 2, 1], [1, 1, 1]])
    found, whole = ln.bounds(graph, box, rows=rows), ln.bounds(graph, box)
    assert found.lo.shape == (3,) and ln.bounds(graph, box, rows=rows[:0]).lo.shape == (0,)
    least = np.maximum(rows, 0) @ whole.lo[0] + np.minimum(rows, 0) @ whole.hi[0]
    assert (found.lo > least - 1e-9).all()
    for x in corners(np.random.default_rng(0), box, 30):
        y = rows @ found.graph.compile()(x)[0]
        assert ((found.lo < y + 1e-9) & (y - 1e-9 < found.hi)).all()


def test_points_are_constants_and_inputs_may_be_several() -> None:
    w = np.array([[1.0, -2.0], [0.5, 1.0]])
    x = ln.Interval(np.full((1, 2), -1.0), np.full((1, 2), 1.0))

    def f(x: Any, w: Any, y: Any) -> Any:
        return ln.relu(ln.linear(x, w)) - y

    found = ln.bounds(f, x, w, ln.Interval(np.zeros((1, 2)), np.ones((1, 2))))
    assert found.graph.inputs[0].name == "x" and len(found.graph.inputs) == 2
    assert np.allclose(found.lo, -1) and np.allclose(found.hi, [[3, 1.5]])
    nothing = ln.bounds(f, x.lo, w, np.ones((1, 2)))
    assert np.allclose(nothing.lo, f(x.lo, w, np.ones((1, 2)))) and np.allclose(nothing.hi, nothing.lo)


def test_memory_changes_nothing_but_memory() -> None:
    graph, box = random_network(5)
    assert ln.bounds(graph, box, memory=0).lo == pytest.approx(ln.bounds(graph, box).lo, abs=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_call_gives_the_same_bits(threads: int) -> None:
    before = ln.get_num_threads()
    ln.set_num_threads(threads)
    try:
        for seed in (4, 6):
            graph, box = random_network(seed)
            a, b = (ln.bounds(graph, box, method="optimised", steps=4, seed=9) for _ in range(2))
            assert a.lo.tobytes() == b.lo.tobytes() and a.hi.tobytes() == b.hi.tobytes()
            same = (a.boxes[at].lo.tobytes() == b.boxes[at].lo.tobytes() for at in a.boxes)
            assert all(same) and a.boxes.keys() == b.boxes.keys()
    finally:
        ln.set_num_threads(before)


def test_batches_are_boxes_one_by_one() -> None:
    """Of a graph of images without an axis for batches, too: a box with one more axis is a batch of boxes."""
    rng = np.random.default_rng(0)
    graph, box = random_network(3)
    shift = rng.normal(size=(3, *box.lo.shape)).astype(np.float32) * np.float32(0.05)
    several = ln.Interval(box.lo + shift, box.hi + shift)
    for rows in (None, np.array([[1, -1, 0], [0, 2, 1]])):
        found = ln.bounds(graph, several, rows=rows)
        own = [ln.bounds(graph, ln.Interval(several.lo[k], several.hi[k]), rows=rows) for k in range(3)]
        assert found.lo.tobytes() == np.stack([b.lo for b in own]).tobytes()
        assert found.hi.tobytes() == np.stack([b.hi for b in own]).tobytes()
        assert [b.lo.tobytes() for b in found.each] == [b.lo.tobytes() for b in own] and found.alone.lo.shape[0] == 3
        assert all(b.lo.shape[0] == 3 for b in found.boxes.values())
    least, greatest = found.values(points=4, steps=2)
    assert (found.lo <= least + 1e-9).all() and (greatest <= found.hi + 1e-9).all()
    nothing = ln.bounds(graph, ln.Interval(several.lo[:0], several.hi[:0]))
    assert nothing.lo.shape == (0, *own[0].boxes[own[0].graph.outputs[0]].shape) and nothing.each == ()
    with pytest.raises(ln.LunetteError, match=r"\[Z7\]|Z7"):
        found.to_html()


def test_batches_of_several_inputs() -> None:
    x, y = (ln.Interval(np.full((2, 3), -1.0), np.ones((2, 3))) for _ in range(2))
    graph = ln.trace(lambda x, y, z: ln.relu(x) - y * z, *(np.ones(3) for _ in range(3)))
    found = ln.bounds(graph, x, y, np.array([1.0, 2.0, 3.0]))
    assert found.lo.shape == (2, 3) and np.allclose(found.lo, [[-1, -2, -3]] * 2)
    with pytest.raises(ln.LunetteError, match="as many boxes"):
        ln.bounds(graph, x, ln.Interval(y.lo[0], y.hi[0]), np.ones(3))
    with pytest.raises(ln.LunetteError, match="Z2"):
        ln.bounds(graph, x, y, np.ones((2, 3)))


def test_time_that_is_over_leaves_what_is_proven() -> None:
    graph, box = random_network(0)
    plain, crown = ln.bounds(graph, box, method="interval"), ln.bounds(graph, box)
    none = ln.bounds(graph, box, method="optimised", seconds=0)
    assert none.stopped == "out of time" and (none.lo == plain.lo).all() and (none.hi == plain.hi).all()
    some = ln.bounds(graph, box, method="optimised", steps=10**9, seconds=0.5)
    assert some.stopped == "out of time" and (some.lo >= crown.lo).all() and (some.hi <= crown.hi).all()
    assert some.seconds < 60 and escapes(graph, box, some, 20) == 0
    assert ln.bounds(graph, box, seconds=3600).stopped == ""
    with pytest.raises(ln.LunetteError, match="Z6"):
        ln.bounds(graph, box, seconds=-1)
    several = ln.Interval(np.stack([box.lo] * 2), np.stack([box.hi] * 2))
    rest = ln.bounds(graph, several, seconds=0)
    assert rest.stopped == "out of time" and (rest.lo == plain.lo).all()


def test_more_steps_are_never_worse() -> None:
    graph, box = random_network(7)
    found = [ln.bounds(graph, box, method="optimised", steps=n) for n in (0, 2, 8)]
    assert all((b.lo >= a.lo).all() and (b.hi <= a.hi).all() for a, b in pairwise(found))


def test_progress_is_told() -> None:
    graph, box = random_network(8)
    said: list[Any] = []
    ln.bounds(graph, box, progress=lambda *what: said.append(what))
    assert any(what == "nodes" for what, _, _ in said) and all(done <= all_ for _, done, all_ in said)


@pytest.mark.parametrize(("error", "said"), [(KeyboardInterrupt, "interrupted"), (MemoryError, "out of memory")])
@pytest.mark.parametrize("calls", [1, 3, 6])
def test_who_is_stopped_keeps_what_is_proven(
    error: Any, said: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any walk: among the cells between, before the rows, or among the steps that improve them."""
    graph, box = random_network(0)
    right, count = dual.Dual._lower, [0]

    def lower(self: Any, *arguments: Any, **named: Any) -> Array:
        count[0] += 1
        if count[0] == calls:
            raise error
        return right(self, *arguments, **named)

    monkeypatch.setattr(dual.Dual, "_lower", lower)
    found = ln.bounds(graph, box, method="optimised", steps=9)
    plain = ln.bounds(graph, box, method="interval")
    assert found.stopped == said and not plain.stopped
    assert (found.lo >= plain.lo).all() and (found.hi <= plain.hi).all() and escapes(graph, box, found, 20) == 0


def test_arrays_without_axes() -> None:
    """NumPy makes numbers of them, which boxes are not made of."""
    box = ln.Interval(np.asarray(-1.0), np.asarray(2.0))

    def f(x: Any) -> Any:
        return ln.relu(x) * x - ln.maximum(x, 0.5) + ln.sigmoid(x) - ln.sum(x) / (ln.abs(x) + 1)

    graph = ln.trace(f, box.lo)
    for method in METHODS:
        found = ln.bounds(graph, box, method=method, steps=3)
        assert found.lo.shape == () and escapes(graph, box, found, 30) == 0
    one = ln.bounds(lambda x: ln.relu(x) - x, ln.Interval(np.array([-1.0]), np.array([2.0])), semantics="float")
    assert one.lo <= 0 and 1 <= one.hi < 1.1


def test_outputs_of_all_kinds() -> None:
    box = ln.Interval(np.zeros((2, 2)), np.ones((2, 2)))
    same = ln.bounds(lambda x: x, box)
    assert np.allclose(same.lo, 0) and np.allclose(same.hi, 1)
    constant = ln.bounds(lambda x: ln.add(np.ones(3), 1.0), box)
    assert constant.lo.tolist() == constant.hi.tolist() == [2, 2, 2]
    nothing = ln.bounds(lambda x: ln.relu(ln.slice(x, (0,), (0,))), box)
    assert nothing.lo.shape == nothing.hi.shape == (0, 2)
    with pytest.raises(ln.LunetteError, match="NaN"):
        ln.bounds(lambda x: ln.relu(x * np.nan), box)


@pytest.mark.parametrize("end", [np.inf, 1e308])
def test_infinite_ends_prove_what_can_be_proven(end: float) -> None:
    x = ln.Interval(np.array([0.0, -end]), np.array([end, 1.0]))
    found = ln.bounds(lambda x: ln.relu(x) - ln.relu(-x), x)
    assert not np.isnan(found.lo).any() and not np.isnan(found.hi).any()
    assert found.lo[0] <= 0 and found.hi[1] >= 1
    kept = ln.bounds(lambda x: ln.relu(ln.slice(x, (0,), (1,)) * 0 + 1), x)
    assert kept.lo <= 1 <= kept.hi


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_patches_are_planes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receptive fields change nothing but the time: bounds are those of whole planes, but for rounding."""
    graph, box = random_network(seed)
    fast = ln.bounds(graph, box)
    right = boxes.unit_rows

    def whole(cells: Array, shape: Any) -> Any:
        rows = right(cells, shape)
        return rows.whole() if isinstance(rows, Patch) else rows

    monkeypatch.setattr(boxes, "unit_rows", whole)
    slow = ln.bounds(graph, box)
    for at, b in slow.boxes.items():
        near = 1e-9 * (1 + np.abs(b.lo) + np.abs(b.hi))
        assert (np.abs(b.lo - fast.boxes[at].lo) <= near).all() and (np.abs(b.hi - fast.boxes[at].hi) <= near).all()


def test_patches_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above compares two ways."""
    found: list[bool] = []
    right = patch.pull_patch

    def counted(*arguments: Any) -> Any:
        found.append(True)
        return right(*arguments)

    monkeypatch.setattr(dual, "pull_patch", counted)
    for seed in range(6):
        ln.bounds(*random_network(seed))
    assert len(found) > 10


# ---- executions in floats


def executed(graph: ln.Graph, x: Array, rng: np.random.Generator) -> Array:
    """The output in float32, sums in an order of their own: another library, as it were."""

    def compute(n: Any, operands: list[Any]) -> Any:
        if n.kind is MatMul:
            a, b = operands[0], operands[1].T if n.options[1] else operands[1]
            order = rng.permutation(a.shape[1])
            total = np.zeros((a.shape[0], b.shape[1]), np.float32)
            for k in order:
                total = (total + (a[:, k, None] * b[None, k])).astype(np.float32)
            return total
        if n.kind is Conv:
            w = operands[1]
            order = rng.permutation(w.shape[1])
            parts = [ln.conv(*_channels(operands, c, w), **_conv_options(n)) for c in order]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole + part
            return whole if operands[2] is None else whole + operands[2].reshape(-1, *(1,) * (w.ndim - 2))
        return apply(n.kind, operands, "fast", *n.options)

    known = dict(walk.forward(graph, [x], compute))
    result: Array = known[graph.outputs[0]]
    return result


def _channels(operands: Any, c: int, w: Array) -> tuple[Array, Array]:
    return np.ascontiguousarray(operands[0][:, c : c + 1]), np.ascontiguousarray(w[:, c : c + 1])


def _conv_options(n: Any) -> dict[str, Any]:
    return dict(zip(("stride", "padding", "dilation", "groups"), n.options, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_executions_in_floats_are_inside(seed: int) -> None:
    """Of a point, so that nothing but rounding is between; the bounds of reals are too narrow for some of them."""
    graph, box = random_network(seed, smooth=False)
    rng = np.random.default_rng(seed)
    x = box.lo
    point = ln.Interval(x, x)
    real, found = ln.bounds(graph, point), ln.bounds(graph, point, semantics="float")
    assert ((found.lo <= real.lo) & (found.hi >= real.hi)).all() and (found.width < 0.01).all()
    values = [executed(graph, x, rng) for _ in range(3)] + [graph.compile()(x)]
    for y in values:
        assert ((found.lo <= y) & (y <= found.hi)).all()
    assert not all(((real.lo <= y) & (y <= real.hi)).all() for y in values)


def test_executions_over_boxes_are_inside() -> None:
    for seed in range(4):
        graph, box = random_network(seed, smooth=False)
        rng = np.random.default_rng(seed)
        for method in METHODS:
            found = ln.bounds(graph, box, method=method, semantics="float", steps=2)
            for x in corners(rng, box, 12):
                y = executed(graph, np.clip(x.astype(np.float32), box.lo, box.hi), rng)
                assert ((found.lo <= y) & (y <= found.hi)).all()


def test_floats_that_overflow_have_no_bound() -> None:
    x = ln.Interval(np.full((1, 2), 1e30, np.float32), np.full((1, 2), 2e30, np.float32))
    w = np.full((1, 2), 1e9, np.float32)
    assert np.isfinite(ln.bounds(lambda x: ln.linear(x, w), x).hi).all()
    assert ln.bounds(lambda x: ln.linear(x, w), x, semantics="float").hi == np.inf


# ---- published networks and boxes


def verivital(path: Path, pool: Callable[..., Any]) -> Callable[[Any], Any]:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(path))
    w = {t.name: np.array(onnx.numpy_helper.to_array(t)) for t in model.graph.initializer}

    def f(x: Any) -> Any:
        h = ln.relu(ln.conv(x, w["conv1.0.weight"], w["conv1.0.bias"]))
        return ln.linear(ln.flatten(pool(h, (4, 4))), w["out.weight"], w["out.bias"])

    return f


@pytest.mark.parametrize(("name", "pool", "crown"), [("maxpool", ln.max_pool, 9.97), ("avgpool", ln.avg_pool, 7.341)])
def test_margins_of_published_networks(name: str, pool: Any, crown: float) -> None:
    folder = data_folder()
    if folder is None:
        pytest.skip(WANTED)
    f = verivital(folder / "vnncomp2021_verivital" / f"Convnet_{name}.onnx", pool)
    given_box = np.load(folder / "boxes" / f"verivital_{name}.npz")
    found = ln.bounds(f, ln.Interval(given_box["lo"], given_box["hi"]), rows=given_box["rows"])
    assert found.lo.min() >= crown


# ---- looking at them


def test_a_page_shows_layers_windows_and_inputs(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        h = ln.max_pool(ln.relu(ln.conv(x, np.ones((2, 1, 2, 2), np.float32))), 2)
        return ln.linear(ln.flatten(h), np.ones((2, 2 * 4), np.float32))

    x = np.linspace(-1, 1, 25, dtype=np.float32).reshape(1, 1, 5, 5)
    found = ln.bounds(f, ln.Interval(x - np.float32(0.1), x + np.float32(0.1)))
    text = found.to_html(tmp_path / "b.html")
    assert (tmp_path / "b.html").read_text(encoding="utf-8") == text
    ET.fromstring(text.split("\n", 1)[1])
    assert [word in text for word in ("max_pool", "can win", "Sensitivity", "interval", "<rect")] == [True] * 5
    least, greatest = found.values()
    assert (found.lo.ravel() <= least + 1e-9).all() and (greatest <= found.hi.ravel() + 1e-9).all()
    assert (least < greatest).all()
    assert found.sensitivity["x"].shape == x.shape and next(iter(found.winners.values())).shape == (1, 2, 2, 2)


def test_the_command_proves_bounds_of_a_saved_graph(tmp_path: Path) -> None:
    graph, box = random_network(3)
    graph.save(tmp_path / "net.json")
    np.save(tmp_path / "x.npy", (box.lo + box.hi) / 2)
    np.save(tmp_path / "rows.npy", np.array([[1, -1, 0]]))
    words = ["bounds", str(tmp_path / "net.json"), "--center", str(tmp_path / "x.npy"), "--radius", "0.01"]
    more = ["--rows", str(tmp_path / "rows.npy"), "--html", str(tmp_path / "b.html")]
    said = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    assert said.exit_code == 0 and "crown" in said.output and (tmp_path / "b.html").exists()
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert "out of time" in CliRunner().invoke(app, [*words, "--seconds", "0"], catch_exceptions=False).output
    for wrong in (
        [*words[:3], str(tmp_path / "net.json")],
        [*words[:3], str(tmp_path / "rows.npy")],
        ["bounds", str(tmp_path / "x.npy"), *words[2:]],
    ):
        assert CliRunner().invoke(app, wrong).exit_code == 2


# ---- broken on purpose


def escaped() -> int:
    """Escapes from bounds of networks with branches, padding and ties."""

    def branches(x: Any) -> Any:
        h = ln.relu(ln.conv(x, np.array([[[1.0, -1.0, 0.5]], [[0.25, 1.0, -1.0]]]), padding=1))
        left, right = ln.max_pool(h, (3,), stride=1, padding=1), ln.max_pool(-h, (2,), padding=1, ceil_mode=True)
        return ln.concat([left + h, ln.neg(right)], axis=2)

    found = 0
    for f, shape in ((branches, (1, 1, 6)), (lambda x: ln.relu(x) - 0.5 * x + ln.relu(x) * 2, (4,))):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            x = rng.integers(-2, 3, shape) / 2
            box = ln.Interval(x - 0.75, x + 0.75)
            graph = ln.trace(f, x)
            try:
                b = ln.bounds(graph, box)
            except (AssertionError, IndexError, ValueError):
                found += 1
                continue
            found += escapes(graph, box, b, 40, seed)
    return found


def test_nothing_escapes_that_is_not_broken() -> None:
    assert escaped() == 0


def once(sources: Any, cotangents: Any, pull: Any, plus: Any) -> Any:
    """A walk back that forgets what it had when another reader comes."""
    for at in range(len(cotangents) - 1, -1, -1):
        if cotangents[at] is not None and sources[at]:
            for wrt, source in enumerate(sources[at]):
                cotangents[source] = pull(at, wrt, cotangents[at])
            cotangents[at] = None
    return cotangents


def shifted(self: Windows, right: Any = Windows.taps.func) -> Any:  # type: ignore[attr-defined]
    """Every window reads its neighbour's cells."""
    found = right(self)
    return [(o, tuple(slice(0, s.stop - s.start, s.step) for s in i), r) for o, i, r in found]


def attained() -> int:
    """Escapes at the corners where bounds of affine functions are attained: nothing but rounding is between."""
    found = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        w, v = rng.normal(size=(3, 4)), rng.normal(size=(2, 3))
        x = rng.normal(size=(1, 4))
        box = ln.Interval(x - 0.1, x + 0.1)
        graph = ln.trace(lambda x, w=w, v=v: ln.linear(ln.linear(x, w), v), x)
        b, slopes = ln.bounds(graph, box), v @ w
        for row, slope in enumerate(slopes):
            corners: list[Any] = [np.where(slope > 0, box.lo, box.hi), np.where(slope > 0, box.hi, box.lo)]
            for corner in corners:
                found += is_outside(exact_value(graph, corner)[0, row], b.alone.lo[0, row], b.alone.hi[0, row])
    return found


def test_errors_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attained() == 0
    for where in (step, dual):
        monkeypatch.setattr(where, "outward", lambda low, high, error: (low, high))
    assert attained() > 0


def test_a_fan_out_counted_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual, "reverse", once)
    assert escaped() > 0


def test_a_padded_index_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "taps", property(shifted))
    assert escaped() > 0


def test_a_patch_in_the_wrong_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patch, "kept_inside", lambda self: Patch(self.cells, self.origin + 1, self.space))
    assert escaped() > 0


def test_signs_confused_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line above where the coefficient is positive."""
    right = step.Relaxed.pull
    monkeypatch.setattr(step.Relaxed, "pull", lambda self, a: [-g for g in right(self, -a)])
    monkeypatch.setattr(dual, "pull_patch", lambda *_: None)
    assert escaped() > 0


def test_a_level_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An intercept that does not look at the upper ends."""
    right = Greatest.intercept

    def blind(self: Greatest, s: Array) -> Array:
        lo, hi = self.ends
        object.__setattr__(self, "ends", (lo, lo))
        try:
            return right(self, s)
        finally:
            object.__setattr__(self, "ends", (lo, hi))

    monkeypatch.setattr(Greatest, "intercept", blind)
    assert escaped() > 0
