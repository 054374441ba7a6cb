"""Rules of certificates that a review found missing, one at a time: each is seen to refuse what it is there for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.certificate import check as checker
from lunette.certificate.format import Branch, Case, Inequality, write
from lunette.certificate.produce import network_of
from lunette.certificate.vnnlib import claims_of

BOX = ln.Interval(np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32))
GRAPH = ln.trace(lambda x: ln.relu(x) - np.float32(0.5) * x, BOX.lo)
NET = network_of(GRAPH)
DATA = ln.bounds(GRAPH, BOX).certificate().data


def changed(change: Callable[[Any], None]) -> bytes:
    content = json.loads(DATA)
    change(content)
    return json.dumps(content).encode()


def inequality(content: Any) -> Any:
    """The first: [row, threshold, strict]."""
    return content["cases"][0]["claims"][0][0]


def is_refused(data: bytes) -> bool:
    try:
        checker.check(NET, data)
    except checker.Refused:
        return True
    return False


def test_as_it_is_it_is_accepted() -> None:
    assert not is_refused(DATA) and not is_refused(changed(lambda c: None))


@pytest.mark.parametrize("key", ['"version":1', '"semantics":"real"', '"bits":48'])
def test_a_name_is_there_once(key: str) -> None:
    """Readers differ in which of two they take."""
    assert DATA.count(key.encode()) == 1
    assert is_refused(DATA.replace(key.encode(), f"{key},{key}".encode()))


@pytest.mark.parametrize("part", ["boxes", "claims", "tree"])
def test_a_name_in_a_case_is_there_once(part: str) -> None:
    start = DATA.index(f'"{part}":'.encode())
    value = json.dumps(json.loads(DATA)["cases"][0][part]).encode()
    assert is_refused(DATA[:start] + f'"{part}":'.encode() + value + b"," + DATA[start:])


@pytest.mark.parametrize("where", [lambda c: c, lambda c: c["cases"][0]])
def test_no_other_names(where: Callable[[Any], Any]) -> None:
    assert is_refused(changed(lambda c: where(c).update(also=1)))


def test_a_cell_is_in_a_row_once() -> None:
    """Else the row that is printed is not the one that was proven."""
    for twice in ([[0, 1], [0, 1]], [[0, 0], [0, 1]], [[0, 1], [1, 0], [0, 1]]):
        content = json.loads(DATA)
        inequality(content)[0] = twice
        assert is_refused(json.dumps(content).encode())


@pytest.mark.parametrize("strict", [True, False, 2, -1, 1.0, 0.0, "1", None, []])
def test_strictness_is_a_bit(strict: Any) -> None:
    """Of a claim that is excluded either way."""

    def change(content: Any) -> None:
        inequality(content)[1:] = [-100, strict]

    with pytest.raises((checker.Refused, TypeError)):
        checker.check(NET, changed(change))


# ---- what a certificate states


def stating(*claims: list[Inequality], cases: int = 1) -> ln.Certificate:
    """Proven or not."""
    boxes = [[(0, 1), (0, 1)]]
    return ln.Certificate(write(NET, [Case(boxes, list(claims), Branch())] * cases, "real", "test"))


def both(lo: Any, hi: Any) -> tuple[list[Inequality], list[Inequality]]:
    return [Inequality({0: 1}, lo, True)], [Inequality({0: -1}, -Fraction(hi), True)]


@pytest.mark.parametrize(
    "q", [Fraction(1, 3), Fraction(-1, 3), Fraction(2, 3), Fraction(-2, 7), Fraction(1, 10**400), Fraction(-1, 10**400)]
)
def test_ends_are_rounded_outward(q: Fraction) -> None:
    """To the next float, and never inward."""
    c = stating(*both(q, q))
    (lo,), (hi,) = c.lo, c.hi
    assert Fraction(lo) < q < Fraction(hi) and math.nextafter(lo, math.inf) == hi


def test_ends_that_are_floats_stay() -> None:
    c = stating(*both(0.1, 0.2))
    assert c.lo.tolist() == [0.1] and c.hi.tolist() == [0.2]


def test_ends_beyond_all_floats() -> None:
    most = np.finfo(np.float64).max
    c = stating(*both(10**400, 10**400), *both(-(10**400), -(10**400)))
    assert c.lo.tolist() == [most, -np.inf] and c.hi.tolist() == [np.inf, -most]
    assert str(10**400) in str(c.statement)


@pytest.mark.parametrize(
    "certificate",
    [
        stating(both(0, 1)[0]),
        stating([Inequality({0: 1}, 0)], [Inequality({0: 1}, 1)]),
        stating([Inequality({0: 1}, 0)], [Inequality({1: -1}, 1)]),
        stating([Inequality({0: 1}, 0), Inequality({1: 1}, 0)], [Inequality({0: -1}, 1), Inequality({1: -1}, 1)]),
        stating(*both(0, 1), cases=2),
    ],
    ids=["one side", "one sign", "two rows", "conjunctions", "two cases"],
)
def test_only_bounds_have_ends(certificate: ln.Certificate) -> None:
    for side in ("lo", "hi"):
        with pytest.raises(ln.CertificateError) as error:
            getattr(certificate, side)
        assert error.value.rule == "CE1"


def test_statements_have_exact_numbers() -> None:
    """A rounded one would be another statement."""
    text = str(stating([Inequality({0: Fraction(1, 3)}, Fraction(1, 10), True)], [Inequality({1: 1}, 0.1)]).statement)
    assert "1/3*y[0] < 1/10" in text and "1*y[1] <= 0.1" in text
    box = Case([[(Fraction(1, 3), 0.5), (0, 1)]], [[Inequality({0: 1}, 0)]], Branch())
    assert "(1/3, 0.5)" in str(ln.Certificate(write(NET, [box], "real", "test")).statement)


# ---- what is asked


def test_questions_about_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ln.ArgumentError) as error:
        ln.check(GRAPH, stating(), box=BOX)
    assert error.value.rule == "CE3"
    ends = "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))
    (tmp_path / "spec").write_text(ends + "(assert (<= Y_0 -5))")
    away = ln.Interval(BOX.lo + np.float32(2), BOX.hi + np.float32(2))
    with pytest.raises(ln.ArgumentError) as error:
        ln.check(GRAPH, ln.Certificate(DATA), tmp_path / "spec", away)
    assert error.value.rule == "CE3"
    assert ln.check(GRAPH, ln.Certificate(DATA), tmp_path / "spec", BOX).ok


@pytest.mark.parametrize(
    "more",
    [
        "Y_0", "(foo)", "()", "(assert)", "(assert (<= Y_0 1) (<= Y_0 0))", "(check-sat 1)", "(declare-const X_9)",
        "(push 1)", "'(assert (<= Y_0 0))'", '"', "(assert (<= Y_0 0)", ")", "[1]", "(assert (<= Y_0 #x1))",
        "(assert (not (<= Y_0 0)))", "(assert (= Y_0 0))", "(assert (<= Y_0 1 2))", "(assert true)",
        "(assert (<= X_0 Y_0))", "(assert (<= Y_00 1))", "(assert (<= Z_0 1))", "(assert (<= Y_0 1_0))",
        "(assert (<= Y_0 1e9999))", "(assert (<= Y_\u0660 1))", "#(assert (<= Y_0 0))\n",
    ],
)  # fmt: skip
def test_specifications_are_read_whole(more: str) -> None:
    """Whatever is not understood might have been a condition."""
    cells = [*(f"X_{k}" for k in range(sum(n.size for n in NET.inputs))), *(f"Y_{k}" for k in range(len(NET.out)))]
    plain = (
        "; words\n"
        + "".join(f"(declare-const {cell} Real)\n" for cell in cells)
        + "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))
    )
    assert len(claims_of(plain + "(assert (<= Y_0 -5))(check-sat)", NET)) == 1
    with pytest.raises((ValueError, SyntaxError, TypeError, IndexError, KeyError)):
        claims_of(plain + more, NET)
