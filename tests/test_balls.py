"""Exp, log, roots and the like in certificates: their values, their lines, and what is proven with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

import lunette as ln
from configurations import random_case
from effort import LONG
from lunette.certificate import check as checker
from lunette.certificate.balls import CORNERS, CURVES, Curve, NotFinite
from lunette.certificate.format import SLOPES
from lunette.certificate.produce import network_of
from lunette.graph.text import kinds
from test_checker import graphs_of

BITS = 60
POOLS = ("smooth_max_pool", "lp_pool")


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    """Of the specification's balls; those of the checker have a precision of their own."""
    with ctx.workprec(200):
        yield


def ball(value: Any) -> Any:
    q = Fraction(value)
    return arb(q.numerator) / arb(q.denominator)


def exactly(q: Fraction) -> Any:
    return arb((q.numerator, 1 - q.denominator.bit_length()))  # of a dyadic number


def region_at(net: checker.Network, xs: list[Any], bits: int = BITS) -> checker.Region:
    return checker.Region(net, [[(Fraction(float(v)),) * 2 for v in x.flat] for x in xs], bits, False)


def encloses(lo: int, value: Any, hi: int, bits: int = BITS) -> bool:
    """Whether a ball is certainly between two ends."""
    return bool(arb((lo, -bits)) <= value) and bool(value <= arb((hi, -bits)))


def compare(name: str, shapes: Any, options: Any, rng: np.random.Generator) -> int:
    compared = 0
    for g, xs in graphs_of(name, shapes, options, rng):
        if name in ("log", "sqrt"):
            xs = [np.abs(x) + np.float32(0.125) for x in xs]
        try:
            net = network_of(g)
        except checker.Refused as error:
            assert "constant beta" in str(error), error  # noqa: PT017 (others may be read)
            continue
        region = region_at(net, xs)
        wanted = np.asarray(g.eval(*xs, number=ball), object).reshape(-1)
        for (p, i), v in zip(net.out, wanted, strict=True):
            lo, hi = region.lo[p][i], region.hi[p][i]
            assert encloses(lo, ball(v) if isinstance(v, Fraction | int) else v, hi) and hi - lo <= 16, (name, options)
        compared += 1
    return compared


@pytest.mark.parametrize("name", checker.BALLS)
def test_operators_mean_what_the_specification_means(name: str) -> None:
    rng, compared = np.random.default_rng(7), 0
    for case in kinds()[name].cases.values():
        compared += compare(name, case.shapes, dict(case.options), rng)
    for seed in range(12) if name in POOLS else ():
        random = random_case(kinds()[name], seed)
        if np.prod(random.shapes[0]) <= 200:
            compare(name, random.shapes, dict(random.options), rng)
    assert compared


# ---- lines


def curves() -> Iterator[tuple[Curve, int, float, float]]:
    """With a number of cells, and ends between which they make sense."""
    for name in CURVES:
        least = {"log": 2.0**-9, "sqrt": 0.0, "norm": 0.0}.get(name, -6.0)
        if name not in ("smooth_max", "norm"):
            yield Curve(name, None, checker.need), 1, least, 6.0
            continue
        for number, cells in ((Fraction(2), 1), (Fraction(2), 3), (Fraction(7, 2), 4), (Fraction(5), CORNERS + 2)):
            yield Curve(name, number, checker.need), cells, least, 4.0


@pytest.mark.parametrize(("curve", "cells", "least", "most"), list(curves()), ids=lambda v: getattr(v, "name", str(v)))
def test_lines_hold_at_points(curve: Curve, cells: int, least: float, most: float) -> None:
    """For slopes of any kind, boxes wide, narrow and of no width, from below and from above, at any precision."""
    rng = np.random.default_rng(4)
    for trial in range(200 if LONG else 24):
        bits = (3, 20, 48)[trial % 3]
        ends = np.sort(rng.uniform(least, most, (2, cells)), axis=0)
        if trial % 4 == 1:
            ends[1] = np.minimum(ends[0] + 2.0**-8, most)
        ends[1, rng.random(cells) < 0.1] = ends[0, 0]
        lo = [int(np.ceil(v * 2**bits)) for v in ends.min(0)]
        hi = [max(int(v * 2**bits), low) for v, low in zip(ends.max(0), lo, strict=True)]
        given = [None, tuple(int(v) for v in rng.integers(-SLOPES, 2 * SLOPES, cells)), (0,) * cells]
        for below, own in ((below, own) for below in (True, False) for own in given):
            slopes, constant = curve.line(below, own, tuple(lo), tuple(hi), bits)
            for share in (0.0, 1.0, 0.5, *rng.random((4, cells))):
                x = [
                    arb((a + int((b - a) * s), -bits))
                    for a, b, s in zip(lo, hi, np.broadcast_to(share, cells), strict=True)
                ]
                line = sum((arb((s, -20)) * v for s, v in zip(slopes, x, strict=True)), arb((constant, -bits)))
                gap = curve.value(x) - line
                assert not (gap < 0 if below else gap > 0), (curve, below, own, lo, hi, bits)
                # What is pulled back is the same line, for any coefficient, whatever was rounded.
                a = int(rng.integers(1, 1 << bits + 2)) * (1 if below else -1)
                g, rest = curve.pulled(a, own, tuple(lo), tuple(hi), bits)
                total = sum((arb((c, -bits)) * v for c, v in zip(g, x, strict=True)), arb((rest, -2 * bits)))
                assert not (arb((a, -bits)) * curve.value(x) < total)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sigmoid", "tanh", "erf"])
def test_good_lines_touch_the_curve(name: str) -> None:
    """A narrow box has narrow lines: the error is that of the second order."""
    curve, centre = Curve(name, None, checker.need), {"exp": -1, "sigmoid": 0, "tanh": 0, "erf": 1}.get(name, 2)
    for width in (0.25, 0.0625):
        lo, hi = (((int(e * 2**48)),) for e in (centre - width, centre + width))
        (low,), at_low = curve.line(True, None, lo, hi, 48)
        (high,), at_high = curve.line(False, None, lo, hi, 48)
        for x in (lo[0], (lo[0] + hi[0]) // 2, hi[0]):
            gap = (at_high - at_low) / 2**48 + (high - low) / SLOPES * (x / 2**48)
            assert 0 <= gap < width**2, (name, width, x)


def test_what_is_not_finite_is_refused() -> None:
    log, exp = (Curve(name, None, checker.need) for name in ("log", "exp"))
    for curve, cell in ((log, (0, 5)), (log, (-1, 5)), (exp, (0, 1 << 80))):
        with pytest.raises(checker.Refused):
            curve.image([[(0, 0)]], {0: [cell[0]]}, {0: [cell[1]]}, 8)
    with pytest.raises(NotFinite):
        exp.ends(((1 << 100, 1 << 100),), 8)


# ---- networks


def bent(beta: float = 4.0) -> tuple[ln.Graph, ln.Interval]:
    """One with every curve there is."""
    w = (np.random.default_rng(4).integers(-4, 5, (3, 1, 2)) / 4).astype(np.float32)

    def f(x: Any) -> Any:
        h = ln.conv(x, w, padding=1)
        soft = ln.smooth_max_pool(h, (2,), stride=1, padding=1, beta=beta)
        y = ln.sigmoid(soft) - ln.tanh(ln.slice(h, (0, 0, 0), (None, None, 1))) * np.float32(0.5) + ln.erf(soft)
        size = ln.lp_pool(y, (2,), stride=1, p=3)
        some = ln.slice(y, (0, 0, 1), (None, None, None))
        return ln.flatten(ln.log(ln.exp(some) + np.float32(1)) + ln.sqrt(size) - ln.relu(size - np.float32(1)))

    x = np.array([[[-0.5, 0.25, 0.5]]], np.float32)
    return ln.trace(f, x), ln.Interval(x - np.float32(0.25), x + np.float32(0.25))


def points(box: ln.Interval, count: int) -> list[Any]:
    shares = np.random.default_rng(6).integers(0, 9, (count, *box.lo.shape)) / 8
    corners = np.random.default_rng(7).integers(0, 2, (count, *box.lo.shape))
    return [(box.lo + (box.hi - box.lo) * s).astype(np.float32) for s in (*shares, *corners)]


@pytest.mark.parametrize(("method", "beta"), [("interval", -2.0), ("crown", 4.0), ("crown", -2.0), ("optimised", 4.0)])
def test_networks_have_certificates_of_grade_ball(method: str, beta: float) -> None:
    graph, box = bent(beta)
    certificate = ln.bounds(graph, box, method=method, steps=3).certificate()
    c = ln.check(graph, certificate, box=box)
    assert c.ok and c.grade == "ball", c.reason
    for x in points(box, 6):
        y = np.asarray(graph.eval(x, number=ball), object).reshape(-1)
        for lo, v, hi in zip(certificate.lo, y, certificate.hi, strict=True):
            assert arb(float(lo)) <= v <= arb(float(hi))


def test_lines_are_better_than_intervals() -> None:
    graph, box = bent()
    interval, crown = (ln.bounds(graph, box, method=m).certificate() for m in ("interval", "crown"))
    widths = [c.hi - c.lo for c in (interval, crown)]
    assert (widths[1] <= widths[0]).all() and widths[1].sum() < widths[0].sum() / 2


def test_executions_in_floats_are_refused() -> None:
    """Nobody says how far exp may be off there."""
    graph, box = bent()
    with pytest.raises(checker.Refused, match="floats"):
        checker.Region(network_of(graph), [[(Fraction(0), Fraction(1))] * box.lo.size], 48, True)


@pytest.mark.parametrize("bits", [3, 40])
def test_walks_are_below_all_values(bits: int) -> None:
    """Of random coefficients at every node, however coarse the grid is."""
    rng, (graph, box) = np.random.default_rng(4), bent()
    net, one = network_of(graph), 1 << bits
    ends = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(box.lo.flat, box.hi.flat, strict=True)]
    try:
        region = checker.Region(net, [ends], bits, False)
    except checker.Refused:
        assert bits == 3  # too coarse to see that sqrt is of positive numbers
        return
    known = [region_at(net, [x], 120) for x in points(box, 6)]
    for at in sorted(net.nodes)[1:]:
        row = [int(v) for v in rng.integers(-3 * one, 3 * one + 1, net.nodes[at].size)]
        found = Fraction(region.walk({at: row}, {}), one * one)
        for k in known:
            most = sum(max(c * k.lo[at][i], c * k.hi[at][i]) for i, c in enumerate(row))
            assert found <= Fraction(most, one << 120), at
            for i in range(len(row)):
                assert region.lo[at][i] << 120 - bits <= k.hi[at][i] and k.lo[at][i] <= region.hi[at][i] << 120 - bits


def test_alone_without_lunette(tmp_path: Path) -> None:
    graph, box = bent()
    certificate = ln.bounds(graph, box).certificate()
    graph.save(tmp_path / "net.json")
    certificate.save(tmp_path / "certificate")
    ends = [
        f"(assert (>= X_{i} {a}))(assert (<= X_{i} {b}))"
        for i, (a, b) in enumerate(zip(box.lo.flat, box.hi.flat, strict=True))
    ]
    for name, least in (("spec", certificate.lo[0] - 1), ("wrong", certificate.hi[0] + 1)):
        (tmp_path / name).write_text("".join(ends) + f"(assert (<= Y_0 {least}))")

    def run(*names: str) -> int:
        command = [sys.executable, "-I", checker.__file__, *(str(tmp_path / n) for n in names)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode

    assert [run("net.json", "certificate", *more) for more in (("spec",), ("wrong",), ())] == [0, 1, 3]


@pytest.mark.parametrize("act", [ln.tanh, ln.sigmoid, ln.erf], ids=lambda f: f.__name__)
def test_verdicts_about_networks_with_curves_have_certificates(act: Any) -> None:
    """Of two layers: what the second reads is tightened, which intervals alone would not prove."""
    rng = np.random.default_rng(0)
    w = [(rng.normal(size=s) * 0.6).astype(np.float32) for s in ((6, 4), (6, 6), (3, 6))]
    x = rng.normal(size=(1, 4)).astype(np.float32)
    graph = ln.trace(lambda x: ln.linear(act(ln.linear(act(ln.linear(x, w[0])), w[1])), w[2]), x)
    box = ln.Interval(x - np.float32(0.01), x + np.float32(0.01))
    wins = ln.Property.robust(int(graph.compile()(x).argmax()), 3)
    v = ln.verify(graph, box, wins, timeout=20)
    assert v.status == "proved"
    c = ln.check(graph, v.certificate, wins, box)
    assert c.ok and c.grade == "ball", c.reason
