"""Attacks on the checker that worked once, or might have.

Graphs and certificates that take all memory or all time, texts that lunette refuses and the checker read, questions
that were rounded before they were compared.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from decimal import Decimal
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.certificate import check as checker
from lunette.certificate.produce import network_of
from lunette.certificate.vnnlib import claims_of
from lunette.cli import app

MEMORY = 3 << 30


def odd(_name: str, _dtype: str, shape: Any) -> bytes:
    """Divisors that have no common factors, or nearly none."""
    rng = np.random.default_rng(1)
    return struct.pack(f"<{prod(shape)}f", *(int(v) | 1 for v in rng.integers(1 << 23, 1 << 24, prod(shape))))


def growing(n: int) -> list[str]:
    """Each line is 2^1074 times the one before it."""
    lines = [f"%{k} : f64[] = div(%{0 if k == 2 else k - 1}, %1)" for k in range(2, n)]
    return ['%0 : f64[] = input("x")', "%1 : f64[] = constant(5e-324)", *lines, f"return %{n - 1}"]


LARGE = {
    "windows that overlap": [
        '%0 : f32[1,1,1048576] = input("x")',
        "%1 : f32[1,1,524289] = avg_pool(%0, kernel=(524288,), stride=(1,))",
        "return %1",
    ],
    "padding": [
        '%0 : f32[1,1,1] = input("x")',
        "%1 : f32[1,1,4194304] = avg_pool(%0, kernel=(4194304,), stride=(1,), padding=4194303)",
        "return %1",
    ],
    "weights that are one number": [
        '%0 : f32[128,1024] = input("x")',
        "%1 : f32[] = constant(0)",
        "%2 : f32[1024,1024] = broadcast_to(%1, to=(1024, 1024))",
        "%3 : f32[128,1024] = matmul(%0, %2)",
        "return %3",
    ],
    "a pool of many planes": [
        '%0 : f32[1,512,1024] = input("x")',
        "%1 : f32[1,512,513] = max_pool(%0, kernel=(512,), stride=(1,))",
        "return %1",
    ],
    "divisors": [
        '%0 : f32[300,300] = input("x")',
        '%1 : f32[300,300] = constant("c")',
        "%2 : f32[300,300] = div(%0, %1)",
        "return %2",
    ],
    "numbers that grow": growing(40),
    "an axis of no cells": [
        '%0 : f32[4096,4096,4096,0] = input("x")',
        "%1 : f32[4096,4096,4096,0] = transpose(%0, axes=(3, 2, 1, 0))",
        "return %1",
    ],
    "axes of padding": [
        f'%0 : f32[{",".join("1" * 32)}] = input("x")',
        f"%1 : f32[{','.join('1' * 32)}] = pad(%0, padding=16777216)",
        "return %1",
    ],
    "groups of no channels": [
        '%0 : f32[1,0,1] = input("x")',
        "%1 : f32[0,0,1] = constant([])",
        "%2 : f32[1,0,1] = conv(%0, %1, groups=1000000000000)",
        "return %2",
    ],
}


LIMITED = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", LARGE)
def test_large_networks_are_refused_in_bounded_memory(name: str, tmp_path: Path) -> None:
    """By name, and not by running out of memory: that would be another refusal."""
    lines = LARGE[name]
    content = {"format": "lunette-graph", "version": 1, "constants": [], "graph": lines}
    (tmp_path / "net.json").write_text(json.dumps(content))
    if name == "divisors":
        np.savez(tmp_path / "net.json.npz", c=np.frombuffer(odd("", "", (300, 300)), "<f4").reshape(300, 300))
    if name == "numbers that grow":  # it is read; its boxes are what is refused
        digest = checker.Network(lines, None).digest
        case = {"boxes": [[[1, 2]]], "claims": [], "tree": [[[], [], []]]}
        (tmp_path / "certificate").write_text(json.dumps(certificate(digest, [case])))
    else:
        (tmp_path / "certificate").write_text("{}")
    files = [checker.__file__, str(tmp_path / "net.json"), str(tmp_path / "certificate")]
    done = subprocess.run(
        [sys.executable, "-I", "-c", LIMITED, *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and done.stdout.startswith("refused: needs "), (done.stdout, done.stderr)


def certificate(digest: str, cases: list[Any], semantics: str = "real") -> dict[str, Any]:
    return {
        "format": "lunette certificate", "version": 1, "producer": "", "graph": digest, "semantics": semantics,
        "bits": 20, "cases": cases,
    }  # fmt: skip


def checked(net: checker.Network, cases: list[Any]) -> Any:
    return checker.check(net, json.dumps(certificate(net.digest, cases)).encode())


def test_lines_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["%0 : f32[] = constant(0)", *(f"%{k} : f32[1000] = broadcast_to(%0, to=(1000,))" for k in range(1, 9))]
    checker.Network([*lines, "return %1"], None)
    monkeypatch.setattr(checker, "MOST_TERMS", 8000)
    with pytest.raises(checker.Refused, match=r"a network of at most 8000 cells.* in line %8"):
        checker.Network([*lines, "return %1"], None)


WIDE = ln.trace(lambda x: ln.max(ln.relu(x)), np.zeros(300, np.float32))
ONE: Any = {"boxes": [[[0, 1]]], "claims": [[[[[0, 1]], -1, 0]]], "tree": [[[], [[0, 1, [1], [], []]], []]]}


def test_what_is_read_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 lines that each read one cell of 4096: intervals, and walks back, go through all of these for each line."""
    cells = range(60)
    net = network_of(
        ln.trace(
            lambda x: ln.concat([ln.slice(x, (0, k), (1, k + 1)) * 2.0 for k in cells], axis=1),
            np.zeros((1, 4096), np.float32),
        )
    )
    whole = [[k, 1] for k in cells]
    box = {"boxes": [[[0, 1]] * 4096], "claims": [[[whole, -1, 0]]]}
    by_box, by_walk = ({**box, "tree": [[[], [[0, stop, [1], [], []]], []]]} for stop in (1, 0))
    checked(net, [by_walk])
    monkeypatch.setattr(checker, "MOST_WORK", 400_000)  # 60 * 4096 = 245,760 for either
    checked(net, [by_box])
    with pytest.raises(checker.Refused, match="less than 400000 coefficients"):
        checked(net, [by_walk])


def test_windows_of_padding_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read nothing, and there may be many for each of many planes."""
    monkeypatch.setattr(checker, "MOST_TERMS", 100_000)
    lines = ['%0 : f32[1000,1,1] = input("x")', "%1 : f32[1,1,1] = constant([[[1]]])"]
    for call in ("avg_pool(%0, kernel=(1,), padding=200)", "conv(%0, %1, padding=200)"):
        with pytest.raises(checker.Refused, match=r"a pool of a possible size|fewer terms"):
            checker.Network([*lines, f"%2 : f32[1] = {call}", "return %2"], None)


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_an_archive_is_not_trusted(way: int, tmp_path: Path) -> None:
    """Few bytes that unpack to many: other ways to compress are refused, and no more is read than is told."""
    content = {"format": "lunette-graph", "version": 1, "graph": ['%0 : f32[1] = constant("c")', "return %0"]}
    (tmp_path / "net.json").write_text(json.dumps(content))
    with zipfile.ZipFile(tmp_path / "net.json.npz", "w", way) as archive:
        archive.writestr("c.npy", bytes(1 << 27))
    raw = (tmp_path / "net.json.npz").read_bytes().replace((1 << 27).to_bytes(4, "little"), (132).to_bytes(4, "little"))
    (tmp_path / "net.json.npz").write_bytes(raw)
    tracemalloc.start()
    with pytest.raises((checker.Refused, zipfile.BadZipFile)):
        checker.load(str(tmp_path / "net.json"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 26 | 1 << 25


def test_a_refusal_is_one_line_of_plain_letters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = ["x\nproven, semantics real", "\ud800", "return %0"]
    (tmp_path / "net.json").write_text(json.dumps({"format": "lunette-graph", "version": 1, "graph": lines}))
    for _ in range(2):
        assert checker.main(str(tmp_path / "net.json"), "none") == 1
        (told,) = capsys.readouterr().out.splitlines()
        assert told.startswith("refused: needs ") and told.isascii() and told.isprintable()
        (tmp_path / "net.json").write_text(json.dumps({"format": "lunette-graph", "version": 1, "graph": lines[1:]}))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(assert (>= X_0 0.100000001490116)) (assert (<= X_0 0.1)) (assert (>= Y_0 0))", "numbers apart"),
        ("(assert (>= X_0 2)) (assert (<= X_0 1)) (assert (>= Y_0 0))", "not empty"),
        ("(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_7 0))", "cells of the output"),
        ("(assert (>= X_0 0)) (assert (<= X_0 1)) (assert <12)", "inequalities"),
        ("(declare-const X_0 Real) (assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 0))", "declarations"),
    ],
)
def test_questions_that_are_none(text: str, why: str) -> None:
    """Each was answered with a proof of nothing, or of something else."""
    net = network_of(ln.trace(lambda x: ln.relu(x), np.zeros(1, np.float32)))
    with pytest.raises(ValueError, match=why):
        claims_of(text, net)


def test_cases_walks_and_terms_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix of 2500 weights and one input: many cases, or steps, are few bytes and much work."""
    net = network_of(
        ln.trace(lambda x: ln.broadcast_to(x, (1, 50)) @ np.ones((50, 50), np.float32), np.zeros((1, 1), "f"))
    )
    checked(net, [ONE] * 40)
    steps = {**ONE, "tree": [[[[3], [net.out[0][0], "0", "0"]] * 40, *ONE["tree"][0][1:]]]}
    checked(net, [steps])
    monkeypatch.setattr(checker, "MOST_WORK", 100_000)
    checked(net, [ONE])
    for cases in ([ONE] * 40, [steps]):
        with pytest.raises(checker.Refused, match="less than 100000 coefficients"):
            checked(net, cases)


def test_a_split_by_winner_is_not_too_wide() -> None:
    """Its inequalities are as many as the square of the taps."""
    net = network_of(WIDE)
    at = max(n.at for n in net.nodes.values() if n.taps)
    case = {"boxes": [[[-1, 1]] * 300], "claims": [[[[[0, 1]], -1, 0]]], "tree": [[[], [], [at, 0, None]]]}
    with pytest.raises(checker.Refused, match="not too deep or too wide, in branch 0 of case 0"):
        checked(net, [case])


# ---- texts that have no meaning

IN = '%0 : f32[1,1,3] = input("x")'
TEXTS = {
    "no kernel": [IN, "%1 : f32[1,1,1] = max_pool(%0)", "return %1"],
    "no kernel, and options": [IN, "%1 : f32[1,1,1] = avg_pool(%0, stride=2, padding=1)", "return %1"],
    "no output size": [IN, "%1 : f32[1,1,1] = adaptive_avg_pool(%0)", "return %1"],
    "a call of a call": [IN, "%1 : f32[1,1,1] = max_pool(%0, kernel=2)(kernel=3)", "return %1"],
    "a call of a part": [IN, "%1 : f32[1,1,1] = max_pool(%0, ).g(kernel=3)", "return %1"],
    "an axis too many": ['%0 : f32[3] = input("x")', "%1 : f32[2] = slice(%0, start=(0, 0), stop=(2, 0))", "return %1"],
    "a size that is not told": ['%0 : f32[0,2] = input("x")', "%1 : f32[0,5] = reshape(%0, to=(0, -1))", "return %1"],
    "no groups": [
        '%0 : f32[1,0,2] = input("x")', "%1 : f32[0,0,1] = constant([])", "%2 : f32[1,0,2] = conv(%0, %1, groups=-1)",
        "return %2",
    ],
    "more outputs than the same": [
        IN, "%1 : f32[1,1,1] = constant([[[2]]])",
        '%2 : f32[1,1,9] = conv_transpose(%0, %1, stride=3, padding="same", output_padding=1)', "return %2",
    ],
    "sizes": ['%0 : f32[1,,3] = input("x")', "return %0"],
    "too many axes": [f'%0 : f32[{",".join("1" * 40)}] = input("x")', "return %0"],
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts_without_a_meaning_are_refused(name: str) -> None:
    """They were read, as something that is not a graph of lunette."""
    with pytest.raises(ln.LunetteError):
        ln.Graph.parse("\n".join(TEXTS[name]))
    with pytest.raises(checker.Refused):
        checker.Network(TEXTS[name], None)


def test_a_line_is_one_line() -> None:
    """A form feed ends a line for lunette; behind a label it was a comment for the checker, and hid an input."""
    lines = [
        '%0 : f32[2] = input("x")',
        '%1 : f32[2] = relu(%0)  # "a" #"\x0c%2 : f32[2] = input("y")  # "b"',
        "return %1",
    ]
    assert len(ln.Graph.parse("\n".join(lines)).inputs) == 2
    with pytest.raises(checker.Refused):
        checker.Network(lines, None)


def test_a_refusal_tells_the_line() -> None:
    lines = [IN, "%1 : f32[1,1,3] = sin(%0)", "return %1"]
    with pytest.raises(checker.Refused, match=r"sin is none; in line %1 : f32\[1,1,3\] = sin\(%0\)"):
        checker.Network(lines, None)


@pytest.mark.parametrize("f", [
    lambda x: ln.pad(x, ((0, 0), (0, 0), (1, 0)), value=0.1), lambda x: ln.avg_pool(x, (1,), divisor=0.1),
    lambda x: ln.leaky_relu(-x, 0.3),
])  # fmt: skip
def test_numbers_of_options_are_those_of_the_dtype(f: Any) -> None:
    """Of the padding, too: exactly, it was the float64 that its text is."""
    graph = ln.trace(f, np.ones((1, 1, 1), np.float32))
    net, x = network_of(graph), np.array([[[Fraction(1)]]], object)
    region = checker.Region(net, [[(Fraction(1), Fraction(1))]], 900, False)
    for (p, i), v in zip(net.out, np.asarray(graph.eval(x, number=Fraction), object).reshape(-1), strict=True):
        assert region.lo[p][i] <= v * 2**900 <= region.hi[p][i] <= region.lo[p][i] + 1


# ---- what is asked

RELU = ln.trace(lambda x: ln.relu(x), np.zeros(1))
THIRD = ln.bounds(RELU, ln.Interval(np.zeros(1), np.array([1 / 3]))).certificate()


@pytest.mark.parametrize(
    "point", [Fraction(1, 3), Decimal(1) / 3, np.longdouble(1) / 3, Fraction(float(1 / 3)) + Fraction(1, 10**30)]
)
def test_a_box_is_not_rounded_before_it_is_compared(point: Any) -> None:
    """What is proven ends at the float below 1/3, and does not hold at 1/3."""
    if Fraction(*point.as_integer_ratio()) <= Fraction(1 / 3):
        pytest.skip("a long double that is a double")
    exact = np.array([point], object)
    assert not ln.check(RELU, THIRD, box=exact).ok
    assert not ln.check(RELU, THIRD, box=ln.Interval(np.array([point * 0], object), exact)).ok
    assert ln.check(RELU, THIRD, box=np.array([1 / 3])).ok


def test_an_integer_is_not_rounded_either() -> None:
    for huge in (10**400, Fraction(10**400, 3)):  # which no float is near
        told = ln.check(RELU, THIRD, box=np.array([huge], object))
        assert not told.ok and "proof of what was asked" in told.reason
    c = ln.bounds(RELU, ln.Interval(np.zeros(1), np.array([2.0**53]))).certificate()
    assert ln.check(RELU, c, box=np.array([2**53])).ok and not ln.check(RELU, c, box=np.array([2**53 + 1])).ok


@pytest.mark.parametrize("box", [np.array([np.nan]), np.array([np.inf]), np.zeros(2), [np.zeros(1)] * 2])
def test_boxes_that_are_none(box: Any) -> None:
    with pytest.raises(ln.ArgumentError) as error:
        ln.check(RELU, THIRD, box=box)
    assert error.value.rule == "CE3"


def test_a_point_of_box_is_not_moved_to_a_float() -> None:
    """Only decimals of a file are: the float64 0.1 is no float32."""
    graph = ln.trace(lambda x: ln.relu(x), np.zeros(1, np.float32))
    near, far = np.array([0.1], np.float32).astype(float), np.array([0.1])
    claims = [[[[[0, 1]], near[0] / 2, 0]]]
    tree = [[[], [[0, 1, [1], [], []]], []]]
    case = {"boxes": [[[near[0], near[0]]]], "claims": claims, "tree": tree}
    own = ln.Certificate(json.dumps(certificate(network_of(graph).digest, [case])).encode())
    wanted = ln.Property.linear([1], ">", near[0] / 2)
    assert ln.check(graph, own, wanted, box=near).ok and not ln.check(graph, own, wanted, box=far).ok
    assert ln.check(graph, own, box=near).ok and not ln.check(graph, own, box=far).ok


@pytest.mark.parametrize("text", ["(assert (or))", "(assert (and))", "(assert (and (<= X_0 1) (or)))"])
def test_nothing_is_asked_by_nothing(text: str) -> None:
    """Else an empty list of alternatives is proven by any certificate."""
    with pytest.raises(ValueError, match="something"):
        claims_of("(assert (>= X_0 0))(assert (<= X_0 1))" + text, network_of(RELU))


# ---- semantics, and what is told


def test_the_other_semantics_is_not_what_was_asked(tmp_path: Path) -> None:
    graph = ln.trace(lambda x: ln.relu(x) * np.float32(0.3), np.zeros(1, np.float32))
    box = ln.Interval(np.zeros(1, np.float32), np.ones(1, np.float32))
    graph.save(tmp_path / "net.json")
    spec = tmp_path / "spec.vnnlib"
    spec.write_text("(assert (>= X_0 0))(assert (<= X_0 1))(assert (<= Y_0 -1))")
    for own, other in (("real", "float"), ("float", "real")):
        file = tmp_path / own
        ln.bounds(graph, box, semantics=own).certificate().save(file)
        assert ln.check(graph, file, spec, semantics=own).ok and ln.check(graph, file, spec).ok
        refused = ln.check(graph, file, spec, semantics=other)
        assert (
            not refused.ok and refused.reason == f"needs a proof in semantics {other}; the certificate is one in {own}"
        )
        words = [str(tmp_path / "net.json"), str(file)]
        for asked, status in ((own, 0), (other, 1)):
            options = ["--spec", str(spec), "--semantics", asked]
            assert CliRunner().invoke(app, ["check", *words, *options]).exit_code == status
            alone = [sys.executable, "-I", checker.__file__, *words, str(spec), asked]
            assert subprocess.run(alone, capture_output=True, timeout=60).returncode == status
    with pytest.raises(ln.ArgumentError):
        ln.check(graph, file, spec, semantics="double")


def test_a_refusal_tells_the_claim_and_the_branch() -> None:
    net = network_of(RELU)
    boxes, row = [[[0, 1]]], [[0, 1]]
    proof = [1, 1, [1], [], []]

    def why(claims: Any, tree: Any) -> str:
        with pytest.raises(checker.Refused) as error:
            checked(net, [ONE, {"boxes": boxes, "claims": claims, "tree": tree}])
        return str(error.value)

    two = [[[row, -1, 0]], [[row, 1, 0]]]
    assert why(two, [[[], [proof], []]]).startswith("a better proof of claim 1 in branch 0 of case 1")
    assert why(two, [[[], [], []]]) == "proofs of claims [0, 1] in branch 0 of case 1, or a split of it"
    assert why(two, [[[], [], [3, 0, 0.5]]]) == "branches for all parts of case 1; 2 more"
    assert why([], [[[], [], []]] * 2) == "1 branches in case 1, one for each part; there are more"
    slopes = [[0, 0, [1], [], [[7, "1", [1, 2]]]]]
    assert why(two[:1], [[[], slopes, []]]) == "as many slopes as there are taps, of node 7 in branch 0 of case 1"


def test_steps_behind_one_that_finds_nothing() -> None:
    """A part that a step shows to be empty is closed, whatever the steps behind it would do with empty boxes."""
    graph = ln.trace(lambda x: ln.sigmoid(x - x), np.zeros(1, np.float32))
    net = network_of(graph)
    difference, curve = sorted(n.at for n in net.nodes.values() if n.is_computed)
    closed = [[[0, 1, [1], [0], []]]]
    empty = [[[difference, "1", "1"], [curve, "1", "1"], [curve]], [], []]
    tree = [[[], [], [difference, 0, 0.5]], [[], *closed, []], empty]
    checked(net, [{"boxes": [[[0, 1]]], "claims": [[[[[0, 1]], 0, 0]]], "tree": tree}])


@pytest.mark.parametrize("sign", [1, -1])
def test_every_tap_of_a_maximum_may_win(sign: int) -> None:
    """Of five cells, each above all others somewhere, by the checker's own slopes and by others."""
    net = network_of(ln.trace(lambda x: ln.max(x), np.zeros(5, np.float32)))
    ends = [(Fraction(-1), Fraction(k + 1, 2)) for k in range(5)]
    region, at = checker.Region(net, [ends], 20, False), max(net.nodes)
    for own in ({}, {(at, 0): [1 << 18] * 5}, {(at, 0): [0] * 5}, {(at, 0): [-(1 << 20), 1 << 20, 0, 1 << 19, 3]}):
        found = Fraction(region.walk({at: [sign << 20]}, own), 1 << 40)
        for winner in range(5):
            points = [[hi if k == winner else Fraction(-1) for k, (_, hi) in enumerate(ends)], [hi for _, hi in ends]]
            assert all(found <= sign * max(x) for x in points)
