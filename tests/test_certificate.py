"""Certificates: what they state is true, whatever becomes of their bytes; others are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.bench.random_networks import random_network
from lunette.certificate import check as checker
from lunette.certificate import produce
from lunette.certificate.format import Branch, Case, Cut, Forward, Inequality, Proof, Winner, write
from lunette.certificate.produce import box_of, lower, network_of, region_of
from lunette.cli import app
from test_checker import values

CHECKER = Path(checker.__file__)


def tiny(seed: int = 0) -> tuple[ln.Graph, ln.Interval]:
    """Two inputs, a convolution, relu, a max pool, a product: small enough to enumerate."""
    rng = np.random.default_rng(seed)
    w, v = (rng.integers(-4, 5, s) / 4 for s in ((2, 1, 2), (1, 4)))

    def f(x: Any) -> Any:
        h = ln.max_pool(ln.relu(ln.conv(x, w.astype(np.float32), padding=1)), (2,), stride=2)
        return ln.linear(ln.flatten(h), v.astype(np.float32)[:, : 2 * 2])

    x = np.zeros((1, 1, 3), np.float32)
    lo = (rng.integers(-4, 3, x.shape) / 4).astype(np.float32)
    return ln.trace(f, x), ln.Interval(lo, lo + np.float32(0.75))


def split_case(net: checker.Network, boxes: Any, claim: Any) -> Case:
    """A case with a cut of an input, winners, and betas."""
    region = region_of(net, boxes)
    maximum = next(n for n in net.nodes.values() if n.taps and len(n.taps[0]) > 2)
    steps: list[Any] = [Forward(net.inputs[0].at)]
    cut, winner = Cut(net.inputs[0].at, 1, Fraction(1, 3)), Winner(maximum.at, 0)

    def branch(part: checker.Region, depth: int) -> Branch:
        if depth == 2:
            return Branch(steps, [Proof(0, (1.0,), (2.0**-6,) * len(part.spaces))])
        split: Any = (cut, winner)[depth]
        parts = part.parts(split.node, split.cell, Fraction(1, 3) if depth == 0 else None)
        return Branch(steps, (), split, [branch(part.where(*p), depth + 1) for p in parts])

    return Case(boxes, [claim], branch(region, 0))


def test_none_is_no_certificate() -> None:
    """As that of a verdict that is not proved."""
    with pytest.raises(ln.CertificateError, match=r"check \[CE1\].*proved"):
        ln.check(ln.trace(ln.relu, np.ones(2, np.float32)), None)


def points(box: Any) -> Iterator[list[Fraction]]:
    """A grid of a box, exactly."""
    for share in product((0, Fraction(1, 3), Fraction(1, 2), 1), repeat=len(box)):
        yield [lo + (hi - lo) * s for (lo, hi), s in zip(box, share, strict=True)]


def is_true(net: checker.Network, cases: Any) -> bool:
    """Whether no point of a grid contradicts a statement."""
    for boxes, claims in cases:
        if sum(map(len, boxes)) > 3:
            return True
        for x in points(boxes[0]):
            y = values(net, [x])
            for claim in claims:
                sums = [(sum(v * y[c] for c, v in row.items()), t, strict) for row, t, strict in claim]
                if all(s < t or (s == t and not strict) for s, t, strict in sums):
                    return False
    return True


def judged(net: checker.Network, data: bytes) -> bool:
    """Whether bytes are refused, or true."""
    try:
        cases = checker.check(net, data)
    except Exception:  # that is what ln.check and the command do, too
        return True
    return is_true(net, cases)


@pytest.mark.parametrize("semantics", ["real", "float"])
def test_bounds_of_random_networks_have_certificates(semantics: str) -> None:
    """Proven, the same bytes again, and each method at least as tight as the one before it."""
    for seed in range(3):
        graph, box = random_network(seed, smooth=False)
        y = np.asarray(graph.eval(box.lo, number=Fraction), object).reshape(-1)
        before = np.full(len(y), np.inf)
        for method in ("interval", "crown", "optimised"):
            b = ln.bounds(graph, box, method=method, semantics=semantics, steps=4)
            certificate = b.certificate()
            c = ln.check(graph, certificate, box=box)
            assert c.ok and c.grade == "exact", c.reason
            assert method == "optimised" or certificate.data == b.certificate().data
            ends = zip(certificate.lo, y, certificate.hi, strict=True)
            assert all(Fraction(lo) <= v <= Fraction(hi) for lo, v, hi in ends)
            width = certificate.hi - certificate.lo
            assert (width <= before).all()
            before = width


def test_a_certificate_of_another_network_box_or_property_is_refused(tmp_path: Path) -> None:
    graph, box = tiny(1)
    other, _ = tiny(2)
    certificate = ln.bounds(graph, box).certificate()
    assert ln.check(graph, certificate, box=box).ok
    assert not ln.check(other, certificate).ok and "another" in ln.check(other, certificate).reason
    wider = ln.Interval(box.lo, box.hi + np.float32(0.125))
    assert not ln.check(graph, certificate, box=wider).ok
    spec = tmp_path / "spec.vnnlib"

    def say(threshold: float, relation: str = "<=") -> Path:
        ends = [
            f"(assert (>= X_{i} {a}))\n(assert (<= X_{i} {b}))"
            for i, (a, b) in enumerate(zip(box.lo.flat, box.hi.flat, strict=True))
        ]
        spec.write_text("\n".join([*ends, f"(assert ({relation} Y_0 {threshold!r}))"]))
        return spec

    lo = float(certificate.lo[0])
    assert ln.check(graph, certificate, say(lo - 1)).ok
    assert ln.check(graph, certificate, say(lo, "<")).ok
    assert not ln.check(graph, certificate, say(lo, "<=")).ok
    assert not ln.check(graph, certificate, say(lo + 0.01)).ok


def test_every_bit_of_a_small_certificate() -> None:
    w, v = np.array([[1, -2], [1, 1]], np.float32), np.array([[1, 1]], np.float32)
    box = ln.Interval(np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32))
    graph = ln.trace(lambda x: ln.linear(ln.relu(ln.linear(x, w)), v), box.lo)
    net, data = network_of(graph), ln.bounds(graph, box).certificate().data
    assert is_true(net, checker.check(net, data))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert judged(net, bytes(changed)), bit


def trees(net: checker.Network, box: ln.Interval) -> bytes:
    """A certificate with splits, winners and factors."""
    boxes = [box_of(np.asarray(box.lo, np.float64), np.asarray(box.hi, np.float64))]
    least = lower(region_of(net, boxes), {0: 1})
    claim = (Inequality({0: 1}, Fraction(least) - Fraction(1, 7)), Inequality({0: Fraction(-1, 3)}, 100))
    case = split_case(net, boxes, claim)

    def with_factors(b: Branch) -> Branch:
        proofs = [Proof(p.claim, (1.0, 0.0), p.betas) for p in b.proofs]
        return Branch(b.steps, proofs, b.split, [with_factors(part) for part in b.parts])

    return write(net, [Case(boxes, [claim], with_factors(case.tree))], "real", "test")


def test_no_proof_of_what_is_false() -> None:
    """Claims that points satisfy, with every kind of proof that ought not to do."""
    graph, box = tiny(1)
    net, boxes = network_of(graph), [box_of(np.asarray(box.lo, np.float64), np.asarray(box.hi, np.float64))]
    at = net.inputs[0].at
    y = values(net, [[Fraction(lo) for lo, _ in boxes[0]]])[0]
    maximum = next(n for n in net.nodes.values() if n.taps and len(n.taps[0]) > 2)
    single = (Inequality({0: 1}, y),)
    pair = (Inequality({0: 1}, y + 1), Inequality({0: -1}, 1 - y, True))
    numbers = (-1.0, -0.5, 0.0, 0.5, 1.0, 3.0)
    trees = [Branch(), Branch((), (), Cut(at, 0, 0), [Branch(), Branch()]), Branch((), (), Winner(maximum.at, 0), [])]
    trees += [Branch((), (), Cut(at, 0, 0), [Branch()])]
    for stop, factors in product((False, True), [(a,) for a in numbers] + list(product(numbers, repeat=2))):
        trees.append(Branch((), [Proof(0, factors, by_box=stop)]))
    for factor, beta in product(numbers, repeat=2):
        leaf = Branch((), [Proof(0, (factor,), (beta,))])
        trees.append(Branch((), (), Cut(at, 1, Fraction(1, 3)), [leaf, leaf]))
        trees.append(Branch((), (), Cut(at, 1, -100), [leaf, leaf]))
        leaf = Branch((), [Proof(0, (factor,), (beta,) * (len(maximum.taps[0]) - 1))])
        trees.append(Branch((), (), Winner(maximum.at, 0), [leaf] * len(maximum.taps[0])))
    for tree, claim in product(trees, (single, pair)):
        data = write(net, [Case(boxes, [claim], tree)], "real", "test")
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever it is, it is taken as a refusal)
            checker.check(net, data)


def test_a_mutated_graph_is_refused() -> None:
    graph, box = tiny(1)
    data = ln.bounds(graph, box).certificate().data
    text = str(graph)
    for old, new in (("padding=1", "padding=((1, 0),)"), ("0.25", "0.5"), ("stride=2", "stride=1"), ("relu", "abs")):
        assert old in text or old == "0.25", old
        try:
            changed = ln.Graph.parse(text.replace(old, new, 1))
        except ln.LunetteError:
            continue
        assert str(changed) == text or not ln.check(changed, ln.Certificate(data)).ok


@pytest.mark.parametrize(
    "hostile",
    [
        b"", b"{", b"[" * 10**6, b"1" * 10**6, b"nan", b"\xff\xfe", b'{"format":"lunette certificate","version":1}',
    ],
)  # fmt: skip
def test_hostile_files_are_refused(hostile: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(hostile)
    with pytest.raises(ln.CertificateError) as error:
        ln.Certificate.load(path)
    assert error.value.rule == "CE1"


def test_hostile_numbers_are_refused_at_once() -> None:
    graph, box = tiny(1)
    net, data = network_of(graph), ln.bounds(graph, box).certificate().data
    for place, value in product(
        ("bits", "box", "threshold", "slopes", "depth"),
        ("9" * 10**6, '"1/' + "9" * 10**6 + '"', "1e400", "1" + "0" * 4000),
    ):
        content = json.loads(data)
        case = content["cases"][0]
        if place == "bits":
            content["bits"] = "@"
        elif place == "box":
            case["boxes"][0][0][0] = "@"
        elif place == "threshold":
            case["claims"][0][0][1] = "@"
        elif place == "slopes":
            case["tree"][0][1][0][4] = [[23, "f", ["@"]]]
        else:
            case["tree"] = [*[[[], [], [3, 0, 0]]] * 5000, [[], [], [3, 0, "@"]]]
        begin = time.process_time()
        with pytest.raises(Exception):  # noqa: B017, PT011 (any: ln.check and the command take it as a refusal)
            checker.check(net, json.dumps(content).replace('"@"', value).encode())
        assert time.process_time() - begin < 5


def test_check_alone_without_lunette(tmp_path: Path) -> None:
    graph, box = tiny(1)
    w = np.arange(24, dtype=np.float32).reshape(4, 6) / 8  # a constant that is beside the text
    graph = ln.trace(lambda x: ln.linear(ln.flatten(ln.relu(ln.conv(x, np.ones((2, 1, 1), np.float32)))), w), box.lo)
    b = ln.bounds(graph, box)
    graph.save(tmp_path / "net.json")
    b.certificate().save(tmp_path / "certificate")
    lines = [
        f"(assert (>= X_{i} {a}))(assert (<= X_{i} {c}))"
        for i, (a, c) in enumerate(zip(box.lo.flat, box.hi.flat, strict=True))
    ]
    (tmp_path / "spec.vnnlib").write_text(
        "; a comment\n" + "\n".join(lines) + f"(assert (or (and (<= Y_0 {b.lo.flat[0] - 1}))))"
    )
    (tmp_path / "wrong.vnnlib").write_text("\n".join(lines) + f"(assert (<= Y_0 {b.hi.flat[0] + 1}))")

    def run(*names: str) -> int:
        command = [sys.executable, "-I", str(CHECKER), *(str(tmp_path / n) for n in names)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode

    assert run("net.json", "certificate", "spec.vnnlib") == 0
    assert run("net.json", "certificate", "wrong.vnnlib") == 1
    assert run("net.json", "certificate") == 3
    assert run("net.json", "net.json") == 1


def test_the_checker_tells_what_it_misses(tmp_path: Path) -> None:
    """A copy without the files beside it, and a call without arguments."""
    graph, box = tiny(1)
    graph.save(tmp_path / "net.json")
    ln.bounds(graph, box).certificate().save(tmp_path / "certificate")
    (tmp_path / "check.py").write_bytes(CHECKER.read_bytes())

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "check.py", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert run("net.json", "certificate").returncode == 3
    told = run("net.json", "certificate", "any.vnnlib").stdout
    assert "needs vnnlib.py beside check.py, of the same release, for SPEC" in told
    assert "nowhere.json" in run("nowhere.json", "certificate").stdout
    done = run()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "GRAPH CERTIFICATE [SPEC [real|float]]" in done.stderr


def test_lines_of_few_inputs_need_the_file_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They prove more than walks alone, from a file that check.py names if it is missing; small networks do without."""
    rng = np.random.default_rng(2)
    w = [rng.normal(size=s).astype(np.float32) for s in ((3, 30), (30, 30), (30, 30), (30, 1))]
    graph = ln.trace(lambda x: ln.relu(ln.relu(ln.relu(x @ w[0]) @ w[1]) @ w[2]) @ w[3], np.zeros((1, 3), np.float32))
    box = ln.Interval(np.full((1, 3), -0.1, np.float32), np.full((1, 3), 0.1, np.float32))
    small = json.loads(ln.bounds(graph, box).certificate().data)["cases"][0]["tree"][0][0]
    assert all(own[1:] != [0] for own in small)
    monkeypatch.setattr(produce, "FAR", 0)
    certificate = ln.bounds(graph, box).certificate()
    steps = json.loads(certificate.data)["cases"][0]["tree"][0][0]
    assert steps[0][1:] == [0] and len(steps) > 1
    assert ln.check(graph, certificate, box=box).ok
    plain = json.loads(certificate.data)
    del plain["cases"][0]["tree"][0][0][0]
    with pytest.raises(checker.Refused, match="a better proof"):
        checker.check(network_of(graph), json.dumps(plain).encode())
    for wrong in (1, "", [0], None, 0.5):
        plain["cases"][0]["tree"][0][0] = [[steps[0][0], wrong]]
        assert not ln.check(graph, ln.Certificate(json.dumps(plain).encode()), box=box).ok
    graph.save(tmp_path / "net.json")
    certificate.save(tmp_path / "certificate")
    (tmp_path / "check.py").write_bytes(CHECKER.read_bytes())
    command = [sys.executable, "-I", "check.py", "net.json", "certificate"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout
    assert "needs ahead.py beside check.py, of the same release, for lines" in told
    (tmp_path / "ahead.py").write_bytes(CHECKER.with_name("ahead.py").read_bytes())
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 3


def test_the_command(tmp_path: Path) -> None:
    graph, box = tiny(1)
    graph.save(tmp_path / "net.json")
    certificate = ln.bounds(graph, box).certificate()
    certificate.save(tmp_path / "certificate")
    assert ln.Certificate.load(tmp_path / "certificate") == certificate
    ends = [
        f"(assert (>= X_{i} {a}))(assert (<= X_{i} {c}))"
        for i, (a, c) in enumerate(zip(box.lo.flat, box.hi.flat, strict=True))
    ]
    (tmp_path / "spec.vnnlib").write_text("".join(ends) + f"(assert (<= Y_0 {certificate.lo[0] - 1}))")
    (tmp_path / "wrong.vnnlib").write_text("".join(ends) + f"(assert (>= Y_0 {certificate.lo[0] - 1}))")

    def run(*words: str) -> int:
        return CliRunner().invoke(app, ["check", str(tmp_path / "net.json"), *words]).exit_code

    file = str(tmp_path / "certificate")
    assert run(file, "--spec", str(tmp_path / "spec.vnnlib")) == 0
    assert run(file, "--spec", str(tmp_path / "wrong.vnnlib")) == 1
    assert run(file) == 3
    assert run(str(tmp_path / "nothing")) == 2
