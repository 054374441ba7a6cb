"""How proofs of `ln.verify` are made: lemmas, points where kinks meet, cells that were moved, limits of the checker."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb

import lunette as ln
from lunette.certificate import check as checker
from lunette.certificate.format import (
    MOST_TAPS,
    Branch,
    Case,
    Cut,
    Inequality,
    Proof,
    Tighten,
    Winner,
    most_splits,
    write,
)
from lunette.certificate.produce import network_of
from lunette.number import Interval
from lunette.relax.bounds import Answer
from lunette.relax.network import in_float64
from lunette.verify import certify, joint, leaves
from lunette.verify.joint import meeting
from lunette.verify.leaves import Walks
from lunette.verify.question import rooms_of


def between(graph: ln.Graph, box: ln.Interval, share: float) -> ln.Property:
    """A property that holds, if the attack finds the least value, and that lines alone do not prove."""
    lines = float(ln.bounds(graph, box, method="optimised").lo.reshape(-1)[0])
    found = ln.verify(graph, box, ln.Property.linear([1], ">", -1000), method="attack").found - 1000
    return ln.Property.linear([1], ">", Fraction(lines + share * (found - lines)))


def windows(size: int = 6, read: int | None = None) -> tuple[ln.Graph, ln.Interval]:
    """Relus of windows of four cells, which are bounded together; of some windows only, those of so many last ones."""
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(8, 1, 2, 2)).astype(np.float32), (0.3 * rng.normal(size=8)).astype(np.float32)
    v = rng.normal(size=(1, 2 * size * size)).astype(np.float32) / size
    v.reshape(8, -1)[:, : 0 if read is None else -read] = 0
    x = rng.normal(size=(1, 1, size, size)).astype(np.float32)
    graph = ln.trace(lambda x: ln.linear(ln.flatten(ln.relu(ln.conv(x, w, b, stride=2))), v), x)
    return graph, ln.Interval(x - np.float32(0.6), x + np.float32(0.6))


def accepted(graph: ln.Graph, box: ln.Interval, p: ln.Property, v: ln.Verdict) -> bool:
    return ln.check(graph, v.certificate, property=p, box=box).ok


# ---- lemmas


@pytest.mark.parametrize("centre", [10.0, 0.5])
def test_lemmas_of_few_terms(centre: float) -> None:
    """Of some pixels one relu counts: a sum of two terms, which is above zero or below it in the whole box."""
    rng = np.random.default_rng(0)
    w = np.array([1, -1, 1, -1], np.float32).reshape(4, 1, 1, 1)
    b = (-w.reshape(-1) * (centre + np.array([0.3, 0.45, 0.6, 0.75]))).astype(np.float32)
    v = rng.normal(size=(4, 9)).astype(np.float32)
    v[:, :2] = 0
    v[0, 0], v[1, 1] = -1, -1
    shape = (1, 1, 3, 3)
    graph = ln.trace(
        lambda x: ln.linear(ln.flatten(ln.relu(ln.conv(x, w, b))), v.reshape(1, -1)), np.zeros(shape, np.float32)
    )
    box = ln.Interval(np.full(shape, centre, np.float32), np.full(shape, centre + 1, np.float32))
    p = between(graph, box, 0.6)
    found = ln.verify(graph, box, p, timeout=30.0)
    assert (found.status, found.reason) == ("proved", "together")
    assert accepted(graph, box, p, found)
    assert 0 < found.bound <= found.found
    splits = [branch[2] for branch in json.loads(found.certificate.data)["cases"][0]["tree"] if branch[2]]
    assert {len({(at, c) for at, c, _ in s[0]}) for s in splits if isinstance(s[0], list)} >= {2}


def test_groups_are_those_in_which_the_row_loses_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a certificate can speak of three only: of relus that nothing reads, there are none."""
    graph, box = windows(read=3)
    p = between(graph, box, 0.3)
    monkeypatch.setattr(joint, "most_splits", lambda _: joint.MOST_MEMBERS + 3)
    found = ln.verify(graph, box, p, timeout=30.0)
    assert (found.status, found.reason) == ("proved", "together")
    assert accepted(graph, box, p, found)


def test_what_is_not_proven_is_not_told_as_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values at points that floats have found are estimates, until the checker has followed."""
    graph, box = windows()
    p = between(graph, box, 0.3)
    assert ln.verify(graph, box, p, timeout=30.0).reason == "together"
    own = Walks.together

    def much(self: Walks, *given: Any) -> Any:
        found = own(self, *given)
        assert found is not None
        found.bound *= 100
        return found

    def slow(what: str, *_: int) -> None:
        if "lemma" in what:
            time.sleep(2.5)

    monkeypatch.setattr(Walks, "together", much)
    v = ln.verify(graph, box, p, timeout=2.0, progress=slow)
    assert v.status == "unknown"
    assert "estimates suggest it" in v.reason
    assert v.bound <= 0 and v.margins[0][1] == v.bound


def test_points_where_kinks_meet_do_not_depend_on_units() -> None:
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e-3, 1e-6, 1e6):
        for _ in range(5):
            w, b, a = rng.normal(size=(8, 4)), 0.3 * rng.normal(size=8), rng.normal(size=8)
            lo, hi = -np.ones(4), np.ones(4)
            points, scaled = meeting(w, b, lo, hi), meeting(w * scale, b, lo / scale, hi / scale)
            assert len(points) == len(scaled) >= 16
            least = [(np.maximum(x @ k.T + b, 0) @ a).min() for x, k in ((points, w), (scaled, w * scale))]
            assert least[0] == pytest.approx(least[1], abs=1e-9)


# ---- cells that were moved


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0), (0, 1), (0, 0)), ((0, 0), (0, 0), (1, 0), (1, 1))])
def test_cells_behind_padding_have_other_numbers(pads: Any, pooled: bool) -> None:
    """Relus and windows that read a padded node: the checker has the cells of what was padded."""
    rng = np.random.default_rng(3)
    w, inner = rng.normal(size=(6, 1, 2, 2)).astype(np.float32), rng.normal(size=(6, 6, 1, 1)).astype(np.float32)
    x = rng.normal(size=(1, 1, 4, 4)).astype(np.float32)

    def body(x: Any) -> Any:
        h = ln.pad(ln.conv(ln.relu(ln.conv(x, w, stride=2)), inner), pads)
        return ln.flatten(ln.max_pool(h, (2, 1)) if pooled else ln.relu(h))

    v = rng.normal(size=(1, body(x).size)).astype(np.float32)
    graph = ln.trace(lambda x: ln.linear(body(x), v), x)
    box = ln.Interval(x - np.float32(0.3), x + np.float32(0.3))
    p = between(graph, box, 0.15)
    found = ln.verify(graph, box, p, timeout=30.0)
    assert found.status == "proved"
    assert accepted(graph, box, p, found)
    simple = ln.trace(
        lambda x: ln.sum(ln.relu(ln.pad(ln.conv(x, w, stride=2), pads)), axis=(1, 2, 3)), np.zeros_like(x)
    )
    p = ln.Property.linear([1], ">", -1)
    assert ln.verify(simple, box, p).status == "proved"


# ---- splits


def test_a_part_that_nobody_has_found_belongs_to_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a window, a cell that can be no more than equal to another: if the checker does not follow, it is split on."""
    monkeypatch.setattr(leaves, "FEW", 0)
    rng = np.random.default_rng(69)
    w, v = rng.normal(size=(4, 2)).astype(np.float32), rng.normal(size=(1, 4)).astype(np.float32)
    lo, hi = (np.tile(np.array(e, np.float32), 2).reshape(1, 1, 6) for e in ((0, 0, -1), (1, 1, 0)))
    u = rng.normal(size=(1, 6)).astype(np.float32)

    def f(x: Any) -> Any:
        m = ln.reshape(ln.max_pool(x, (3,)), (1, 2))
        return ln.linear(ln.relu(ln.linear(m, w)), v) + ln.linear(ln.reshape(x, (1, 6)), u)

    graph, box = ln.trace(f, lo), ln.Interval(lo, hi)
    p = between(graph, box, 0.95)
    own, refused = certify._Room._branch, []

    def strict(self: Any, case: int, row: int, tree: Any, *rest: Any) -> Any:
        if tree.children or tree.leaf.parameters:
            return own(self, case, row, tree, *rest)
        refused.append(tree)  # lines that nobody has improved
        self.failed.append(tree)
        return Branch()

    monkeypatch.setattr(certify._Room, "_branch", strict)
    found = ln.verify(graph, box, p, timeout=10.0)
    assert len(refused) == 1
    assert found.status == "proved"
    assert accepted(graph, box, p, found)


def test_inputs_are_cut_where_there_is_something_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box between neighbouring floats has no halves."""
    lo = np.array([1.0])
    box = ln.Interval(lo, np.nextafter(lo, 2.0))
    graph = ln.trace(lambda x: ln.tanh(x * 3.0) - ln.tanh(x), lo)
    own = Walks.halves

    def halves(self: Walks, cuts: Any, node: int, cell: int) -> Any:
        middle, both = own(self, cuts, node, cell)
        assert 1.0 < middle < float(box.hi[0])
        return middle, both

    monkeypatch.setattr(Walks, "halves", halves)
    ends = [arb(float(e[0])) for e in (box.lo, box.hi)]
    least = min(float((3 * e).tanh() - e.tanh()) for e in ends)
    v = ln.verify(graph, box, ln.Property.linear([1], ">", Fraction(least) - Fraction(1, 10**16)), timeout=5.0)
    assert v.status == "unknown"
    assert "nothing can be decided" in v.reason


# ---- limits


def chain(net: Any, depth: int, claim: Any, split: Any) -> bytes:
    """Splits in each other, so many, of a box in which a claim is excluded everywhere."""
    found = Branch((), [Proof(0, (1.0,), [0.0] * depth, {}, True)])
    for at in reversed(range(depth)):
        found = Branch((), (), split, [found, Branch((), [Proof(0, (1.0,), [0.0] * (at + 1), {}, True)])])
    return write(net, [Case([[(0.0, 1.0)] * net.inputs[0].size], [claim], found)], "real", "test")


def test_limits_of_trees_are_those_of_the_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the limits of format.py allow, the checker takes."""
    net = network_of(ln.trace(lambda x: ln.relu(x), np.zeros(500, np.float32)))
    claim = [Inequality({0: 1}, -1)]
    for most in (checker.MOST_TERMS, 1 << 20):
        monkeypatch.setattr(checker, "MOST_TERMS", most)
        assert checker.check(net, chain(net, most_splits(net), claim, Cut(net.inputs[0].at, 0, Fraction(1, 2))))
    with pytest.raises(checker.Refused, match="deep"):
        checker.check(net, chain(net, 512, claim, Cut(net.inputs[0].at, 0, Fraction(1, 2))))
    monkeypatch.undo()
    net = network_of(ln.trace(lambda x: ln.max_pool(x, (MOST_TAPS,)), np.zeros((1, 1, MOST_TAPS), np.float32)))
    parts = [Branch((), [Proof(0, (1.0,), [0.0] * (MOST_TAPS - 1), {}, True)])] * MOST_TAPS
    tree = Branch((), (), Winner(max(net.nodes), 0), parts)
    assert checker.check(net, write(net, [Case([[(0.0, 1.0)] * MOST_TAPS], [claim], tree)], "real", "test"))


def test_what_the_checker_would_refuse_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of depth, work, numbers and bytes: fewer lemmas, another proof, or a verdict that says what stopped it."""
    graph, box = windows()
    p = between(graph, box, 0.3)
    for levels in (1, 4, 15, 100):
        for module in (certify, joint):
            monkeypatch.setattr(module, "most_splits", lambda _, levels=levels: levels)
        v = ln.verify(graph, box, p, timeout=2.0 if levels < 100 else 60.0)
        assert v.status == "proved" or levels < 100
        if v.status == "proved":
            depth = json.loads(v.certificate.data)["cases"][0]["tree"]
            assert levels > 1 and deepest(depth) <= levels
            assert accepted(graph, box, p, v)
        else:
            assert "time" in v.reason or "more than the checker takes" in v.reason
    monkeypatch.setattr(checker, "MOST_WORK", 20_000)
    v = ln.verify(graph, box, p, timeout=20.0)
    assert v.status == "unknown"
    assert "more than the checker takes" in v.reason and "20000 coefficients" in v.reason
    monkeypatch.undo()
    fine = ln.Property.linear([1], ">", Fraction(-1000) + Fraction(1, 10**1200 + 1))
    v = ln.verify(graph, box, fine)
    assert v.status == "unknown" and "numbers of a possible size" in v.reason
    monkeypatch.setattr(checker, "parsed", lambda _: json.loads(b""))  # as of a file that is too large
    v = ln.verify(graph, box, p, timeout=20.0)
    assert v.status == "unknown" and "a smaller file" in v.reason


def deepest(tree: Any) -> int:
    """Splits that are in each other, of splits in two."""
    waiting, most = [0], 0
    for _, _, split in tree:
        depth = waiting.pop()
        if split:
            most = max(most, depth + 1)
            waiting += [depth + 1] * 2
    return most


def test_kinks_are_bounded_for_the_side_that_they_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one walk where bounds in floats know it; by both where it is open, or where the floats are wrong."""
    monkeypatch.setattr(certify, "lined", lambda _: [])  # which would leave only what is open on both sides
    rng = np.random.default_rng(5)
    w = [rng.normal(size=size).astype(np.float32) for size in ((6, 40), (40, 40), (40, 1))]
    graph = ln.trace(lambda x: ln.relu(ln.relu(x @ w[0]) @ w[1]) @ w[2], np.zeros((1, 6), np.float32))
    centre = rng.normal(size=(1, 6)).astype(np.float32)
    box = ln.Interval(centre - np.float32(0.25), centre + np.float32(0.25))
    room = rooms_of(graph, box, ln.Property.linear([1], ">", -1000))[0]
    net = Answer(in_float64(graph, [None]), list(room.boxes), 1 << 28, lambda *_: None)
    net.enclose()
    net.relax()
    (at,) = net.tight

    def tightened() -> tuple[list[Tighten], Any, Any]:
        steps, region = certify.Certifier(graph, "real", lambda *_: None).room(room, net, None).tightened
        found = [s for s in steps if isinstance(s, Tighten)]
        return found, region.lo[found[0].node], region.hi[found[0].node]

    def as_it_is(lo: list[int], hi: list[int]) -> list[tuple[bool, bool]]:
        return [(a < 0, b > 0) for a, b in zip(lo, hi, strict=True)]

    found, lo, hi = tightened()
    assert len(found) == 1 and set(found[0].low) ^ set(found[0].high) and set(found[0].low) & set(found[0].high)
    known = net.boxes[at]
    assert as_it_is(lo, hi) == as_it_is(known.lo.reshape(-1).tolist(), known.hi.reshape(-1).tolist())
    net.boxes[at] = Interval.between(known.lo * 0 + 1, known.hi * 0 + 2)  # which is false: none has an upper end
    again, low, high = tightened()
    assert len(again) == 2 and not again[0].high and again[1].high
    assert as_it_is(low, high) == as_it_is(lo, hi)
    for _ in range(100):
        x = box.lo + (box.hi - box.lo) * rng.random((1, 6))
        z = (np.maximum(x @ w[0].astype(float), 0) @ w[1].astype(float)).reshape(-1) * 2.0**48
        assert (np.array(low) - 2**20 <= z).all() and (z <= np.array(high) + 2**20).all()
