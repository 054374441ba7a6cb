"""Rows that the checker walks together, packed into long integers, against one row at a time: the same integers."""

from __future__ import annotations

from fractions import Fraction
from operator import add
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import fmpz

import lunette as ln
from effort import LONG
from lunette.certificate import check as checker
from lunette.certificate.check import UNIT, Region
from lunette.certificate.format import Tighten
from lunette.certificate.produce import box_of, network_of, region_of, tightened
from test_adversary import Adversary, Rng, Target

SLOTS = checker.beside("slots.py", "rows")
COUNT = 4000 if LONG else 150


# ---- one row at a time, in integers of Python, as plainly as it can be said


def least_of_max(a: int, g: list[int], lows: list[int], tops: list[int], low: int) -> int:
    """The least of a*(the greatest of low and the cells) - g . cells over a box; low is no less than any of lows."""
    if a < 0:
        ends = [min(-s * p, -s * q) for s, p, q in zip(g, lows, tops, strict=True)]
        own = [min((a - s) * p, (a - s) * q) - e for s, p, q, e in zip(g, lows, tops, ends, strict=True)]
        return sum(ends) + min([a * low, *own])
    rising = [(s, q) for s, q in zip(g, tops, strict=True) if s > 0]
    rest = sum(s * p for s, p in zip(g, lows, strict=True) if s <= 0)
    return min(a * t - sum(s * min(q, t) for s, q in rising) for t in (low, *(q for q in tops if q > low))) - rest


def slopes(lows: list[int], tops: list[int], low: int, below: bool) -> list[int]:
    """Below, of one cell or none; above, those of the level t that is the second greatest end."""
    if below:
        best = max(range(len(lows)), key=lambda i: (lows[i] >= low, lows[i] + tops[i]))
        one = lows[best] >= low or lows[best] + tops[best] > 2 * low
        return [(one and i == best) << UNIT for i in range(len(lows))]
    t = max(low, sorted([*tops, low])[-2])
    return [((q - t) << UNIT) // (q - p) if q > t else 0 for p, q in zip(lows, tops, strict=True)]


def pulled(region: Region, n: Any, cell: int, x: int, own: Any) -> tuple[Any, int]:
    """Coefficients of the taps of a maximum, or of a curve, for that of a cell, and the least bracket."""
    if n.curve is not None:
        found: tuple[Any, int] = n.curve.pulled_of(region, n.reads[cell], x, own)
        return found
    taps, winner = n.taps[cell], region.winners.get((n.at, cell))
    lows, tops = [region.lo[p][i] for p, i in taps], [region.hi[p][i] for p, i in taps]
    live, low = [i for i, q in enumerate(tops) if q > max(lows)], max(lows)
    lows, tops = [lows[i] for i in live], [tops[i] for i in live]
    if winner is not None or (len(live) == 1 and lows[0] == low):
        return [(taps[live[0] if winner is None else winner], x)], 0
    g = [x * s >> UNIT for s in ([own[i] for i in live] if own else slopes(lows, tops, low, x > 0) if live else [])]
    return [(taps[i], v) for i, v in zip(live, g, strict=True)], least_of_max(x, g, lows, tops, low)


def walk(region: Region, a: dict[int, list[int]], own: Any, stop: bool = False) -> int:
    """A total that is not above the sum of coefficients times cells, anywhere."""
    total, nodes = 0, region.net.nodes
    while a:
        n = nodes[max(a)]
        given, parts = [(c, x) for c, x in enumerate(a.pop(n.at)) if x], {p: [0] * nodes[p].size for p in n.sources}
        if stop or not n.is_computed:
            total += sum(x * (region.lo if x > 0 else region.hi)[n.at][c] for c, x in given)
            continue
        if n.at in region.error:
            total -= sum(abs(x) * region.error[n.at][c] for c, x in given)
        for c, x in given:
            if n.sums is None:
                found, least = pulled(region, n, c, x, own.get((n.at, c)))
                total += least
                for (p, i), g in found:
                    parts[p][i] += g
            else:
                for p, ins, weights in n.sums[c]:
                    for i, w in zip(ins, weights, strict=True):
                        parts[p][i] += x * w
        for p, part in parts.items():
            if n.denominator > 1:
                lost = [bool(x % n.denominator) for x in part]
                total += sum(least for least, x in zip(region.lo[p], lost, strict=True) if x and least < 0)
                part = [x // n.denominator for x in part]
            a[p] = list(map(add, a[p], part)) if p in a else part
    return total


def ends_alone(region: Region, at: int, sides: Any) -> tuple[list[int], list[int]]:
    """Better ends of some cells of a node."""
    ends, zeros = (region.lo[at].copy(), region.hi[at].copy()), [0] * len(region.lo[at])
    for sign, c in ((sign, c) for sign, some in zip((1, -1), sides, strict=True) for c in some):
        found = walk(region, {at: [*zeros[:c], sign << region.bits, *zeros[c + 1 :]]}, {}) >> region.bits
        ends[sign < 0][c] = max(ends[0][c], found) if sign > 0 else min(ends[1][c], -found)
    return ends


# ---- slots


@pytest.mark.parametrize("rows", [1, 2, 9, 70])
@pytest.mark.parametrize("width", [8, 24, 136])
@pytest.mark.parametrize("longs", [fmpz, int])
def test_slots_hold_what_fits(rows: int, width: int, longs: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the greatest number that fits, of either sign, beside whatever else there is."""
    monkeypatch.setitem(SLOTS["Slots"].__init__.__globals__, "Long", longs)
    rng, most, z = np.random.default_rng(rows), (1 << width - 1) - 1, SLOTS["Slots"](rows, width)
    edges = [0, 1, -1, most, -most, most - 1, 1 - most, most // 3, -most // 7]
    for _ in range(40):
        x, y = ([edges[int(k)] for k in rng.integers(0, len(edges), rows)] for _ in range(2))
        packed = z.packed(x)
        assert type(packed) is longs
        assert z.values(packed) == x
        assert z.values(z.plus(packed)) == [max(v, 0) for v in x]
        assert z.values(z.some(packed)) == [int(v != 0) for v in x]
        for by in (2, 3, 9, 32, 1 << width - 2):
            assert z.values(z.floor(packed, by)) == [v // by for v in x]
        halves = [[v // 2 for v in own] for own in (x, y)]
        assert z.values(z.least([z.packed(own) for own in halves])) == list(map(min, *halves))


# ---- walks


def check_width(region: Region, at: int) -> None:
    """No number that a walk takes apart is greater than slots were made for: each row alone, every number looked at."""
    most = 1 << SLOTS["width"](region, at) - 1
    seen = list[int]()

    def noted(f: Any) -> Any:
        def g(x: Any, *rest: Any) -> Any:
            seen.extend([*x, max(x) - min(x)] if isinstance(x, list) else [x, *rest])
            return f(x, *rest)

        return g

    z = SimpleNamespace(**{k: noted(f) if callable(f) and k != "of" else f for k, f in vars(checker.ONE).items()})
    for c, sign in ((c, sign) for c in range(region.net.nodes[at].size) for sign in (1, -1)):
        start = [sign << region.bits if i == c else 0 for i in range(region.net.nodes[at].size)]
        seen.extend(z.values(region.walk({at: start}, {}, False, z)))
    assert all(abs(v) < most for v in seen)


def compare(rng: Rng, adversary: Adversary, region: Region, depth: int) -> int:
    """Walks of this region and of random parts of it; how many."""
    if region.empty:
        return 0
    own, stop = adversary.slopes(region) if rng.random() < 0.5 else {}, bool(rng.random() < 0.1)
    at = int(rng.choice(list(region.net.nodes)))
    row = [int(v) for v in rng.integers(-(3 << 20), 3 << 20, region.net.nodes[at].size)]
    assert region.walk({at: row.copy()}, own, stop) == walk(region, {at: row}, own, stop)
    at = int(rng.choice(list(region.net.nodes)))
    cells = [sorted(c for c in range(region.net.nodes[at].size) if rng.random() < 0.7) for _ in range(2)]
    if region.net.grade == "exact":
        check_width(region, at)
    ends = ends_alone(region, at, cells)
    region.tighten(at, cells)
    assert (region.lo[at], region.hi[at]) == ends
    maxima = [(n.at, c) for n in region.net.nodes.values() if n.taps for c in range(n.size)]
    if depth and maxima and rng.random() < 0.5:
        split: Any = (*maxima[int(rng.integers(len(maxima)))], None)
    else:
        number = Fraction(int(rng.integers(-4, 5)), 4)
        split = ([adversary.term() for _ in range(int(rng.integers(1, 3)))], None, number)
    parts = [region.where(*part) for part in region.parts(*split)] if depth else []
    return sum(map(len, cells)) + sum(compare(rng, adversary, part, depth - 1) for part in parts)


def test_slots_are_wide_enough_for_totals_and_errors() -> None:
    """Where boxes behind the inputs are small, and errors large: totals are then greater than all else."""
    x = np.zeros((1, 8, 8, 8), np.float32)
    net = network_of(ln.trace(lambda x: ln.sum(ln.sum(ln.sum(x, axis=-1), axis=-1), axis=-1), x))
    for error in (0, 1 << 200):
        region = region_of(net, [box_of(x - 1, x + 1)])
        for n in (n for n in net.nodes.values() if n.is_computed):
            region.meet(n.at, [0] * n.size, [0] * n.size)
            region.error[n.at] = [error] * n.size
        check_width(region, max(net.nodes))


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("longs", [fmpz, int])
def test_rows_together_are_rows_alone(part: int, longs: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random networks of every operator, in both semantics, with slopes, splits and winners, on every grid."""
    monkeypatch.setitem(SLOTS["Slots"].__init__.__globals__, "Long", longs)
    rng, count = np.random.default_rng(part), 0
    for k in range(COUNT // 10):
        target = Target(rng, k % 4 == 0)
        adversary = Adversary(rng, target)
        try:
            region = Region(target.net, [target.ends], adversary.bits, target.floats)
        except checker.Refused:
            continue
        count += compare(rng, adversary, region, 2)
    assert count > COUNT // 2


def residual(x: Any, rng: Rng) -> Any:
    """Convolutions with strides, dilation and padding, a sum of two branches, pools whose windows overlap."""

    def w(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    h = ln.relu(ln.conv(x, w(4, 2, 3, 3), w(4), padding=1))
    h = ln.max_pool(h, (3, 3), stride=2, padding=1)
    side = ln.conv(h, w(6, 4, 1, 1), stride=2)
    h = ln.relu(ln.conv(h, w(6, 4, 3, 3), w(6), stride=2, padding=1))
    h = ln.relu(ln.conv(h, w(6, 6, 3, 3), w(6), padding=2, dilation=2) + side)
    h = ln.leaky_relu(ln.avg_pool(h, (3, 3), stride=1, padding=1))
    h = ln.conv(ln.maximum(h, side), w(3, 6, 2, 2))
    return ln.relu(ln.reshape(h, (1, -1)) @ w(int(np.prod(h.shape)), 5)) @ w(5, 3)


@pytest.mark.parametrize("semantics", ["real", "float"])
def test_boxes_of_a_residual_network(semantics: str) -> None:
    """Every step of crown's boxes, cell by cell; and in any order."""
    rng = np.random.default_rng(3)
    lo = rng.normal(size=(1, 2, 11, 11)).astype(np.float32)
    graph = ln.trace(lambda x: residual(x, rng), lo)
    net, boxes = network_of(graph), [box_of(lo, lo + np.float32(0.75))]
    region, alone = region_of(net, boxes, semantics), region_of(net, boxes, semantics)
    rows = 0
    for step in tightened(region):
        if isinstance(step, Tighten):
            alone.meet(step.node, *ends_alone(alone, step.node, (step.low, step.high)))
            rows += 2 * len(step.low)
        else:
            alone.forward(step.node)
    assert rows > 200
    assert (region.lo, region.hi) == (alone.lo, alone.hi)


@pytest.mark.parametrize(
    "limits", [{"PACKED": 1}, {"PACKED": 400}, {"WIDEST": 8}, {"MOST_BITS": 1 << 16}, {"MOST_BITS": 1}]
)
def test_limits_change_nothing(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows walk together; and what waits for a walk has no more bits than it may have."""
    rng, made = np.random.default_rng(3), list[tuple[int, int]]()
    lo = rng.normal(size=(1, 2, 8, 8)).astype(np.float32)
    net = network_of(ln.trace(lambda x: residual(x, rng), lo))
    boxes = [box_of(lo, lo + np.float32(0.5))]
    region, alone = region_of(net, boxes), region_of(net, boxes)

    def noted(rows: int, width: int, price: int) -> Any:
        made.append((rows, width))
        return SLOTS["Slots"](rows, width, price)

    own = SLOTS["batches"].__globals__
    for name, value in (*limits.items(), ("Slots", noted)):
        monkeypatch.setitem(own, name, value)
    at = next(n.at for n in reversed(net.nodes.values()) if n.sums is not None and n.size > 20)
    cells = list(range(0, net.nodes[at].size, 3))
    ends = ends_alone(alone, at, (cells, cells))
    region.tighten(at, (cells, cells))
    assert (region.lo[at], region.hi[at]) == ends
    size = sum(net.nodes[p].size for p in {at}.union(*(n.sources for n in net.nodes.values())))
    assert all(w <= own["WIDEST"] and r * w <= own["PACKED"] and r * w * size <= own["MOST_BITS"] for r, w in made)
    assert bool(made) == (limits == {"PACKED": 400})


def test_work_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that walk together, too: by their bits, or by rows, if these have to be unpacked."""
    w, lo = np.ones((40, 40), np.float32), np.zeros((1, 40), np.float32)
    for f, least in ((lambda x: ln.relu(x @ w) @ w, 3), (lambda x: ln.relu(x @ w / np.float32(3)) @ w, 60)):
        net = network_of(ln.trace(f, lo))
        region = region_of(net, [box_of(lo - 1, lo + 1)])
        at, before = max(net.nodes), region.work[0]
        region.tighten(at, [range(40), range(40)])
        spent = region.work[0] - before
        assert 2 * 1600 * least < spent < 4 * 1600 * 81
        monkeypatch.setattr(checker, "MOST_WORK", before + spent)
        with pytest.raises(checker.Refused, match="coefficients, none wide"):
            region.tighten(at, [range(40), range(40)])
        monkeypatch.undo()
