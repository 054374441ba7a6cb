"""Properties: their algebra, exact evaluation, and VNNLIB, hostile files included."""

from __future__ import annotations

import gzip
import itertools
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette.verify.case import Box, nearest, rounded_down

HEAD = """
; a property
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (<= X_0 0.5)) (assert (>= X_0 -0.5))
(assert (<= X_1 1e-1))
(assert (>= X_1 .1))
"""


def text(formula: str) -> str:
    return f"{HEAD}(assert {formula})"


def test_robustness_is_what_it_says() -> None:
    p = ln.Property.robust(1, 3)
    for y in itertools.product(range(3), repeat=3):
        assert p.holds(list(y)) == (y[1] > y[0] and y[1] > y[2])
    assert "y[1] - y[2] <= 0" in str(p)
    assert len(p.cases) == 2


numbers = st.integers(-3, 3)
atoms = st.builds(
    ln.Property.linear, st.lists(numbers, min_size=2, max_size=2), st.sampled_from(["<", "<=", ">", ">="]), numbers
)


@given(
    st.lists(atoms, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.lists(numbers, min_size=2, max_size=2),
)
def test_the_algebra_is_that_of_truth(parts: list[Any], ways: list[int], y: list[int]) -> None:
    whole, truth = parts[0], parts[0].holds(y)
    for part, way in zip(parts[1:], ways, strict=False):
        other = part.holds(y)
        whole, truth = [
            (whole & part, truth and other),
            (whole | part, truth or other),
            (~whole & part, not truth and other),
        ][way]
    assert whole.holds(y) == truth
    assert (~whole).holds(y) == (not truth)
    assert whole.holds([flint.fmpq(v) for v in y]) == truth
    assert whole.holds(np.array(y, np.float32)) == truth


def test_balls_that_do_not_tell() -> None:
    p = ln.Property.linear([1], ">", 0)
    assert p.holds([flint.arb(1)]) is True
    assert p.holds([flint.arb(-1)]) is False
    assert p.holds([flint.arb(0, 1)]) is None


def test_what_is_no_property_is_refused() -> None:
    for make, rule in (
        (lambda: ln.Property.robust(3, 3), "PR1"),
        (lambda: ln.Property.robust(0, 1), "PR1"),
        (lambda: ln.Property.linear([np.nan], ">", 0), "PR2"),
        (lambda: ln.Property.linear([1], ">", np.inf), "PR2"),
        (lambda: ln.Property.linear([1], ">", object()), "PR2"),
        (lambda: ln.Property.linear([1], ">", "1e999999999"), "PR2"),
        (lambda: ln.Property.linear([Decimal("-1e-999999999")], ">", 0), "PR2"),
        (lambda: ln.Property.linear([1], ">", "9" * 401), "PR2"),
        (lambda: ln.Property.linear([1], ">", "vague"), "PR2"),
        (lambda: ln.Property.linear([], ">", 0), "PR2"),
        (lambda: ln.Property.linear([1], "=", 0), "PR3"),
        (lambda: ln.Property.robust(0, 2) & ln.Property.robust(0, 3), "PR4"),
        (lambda: ~(ln.Property.robust(0, 2) & ln.Property.parse(text("(<= Y_0 0)"))), "PR6"),
        (lambda: ln.Property.robust(0, 2).holds([1]), "PR7"),
    ):
        with pytest.raises(ln.LunetteError) as refused:
            make()
        assert refused.value.rule == rule
    wide = ln.Property.linear([1, 0], ">", 0)
    many = wide
    for k in range(1, 20):
        many = many & ln.Property.linear([1, 0], ">", k)
    both = (many | many) | many
    with pytest.raises(ln.ArgumentError, match="PR5"):
        (both | both) | (both | both)


# ---- floats


@given(st.fractions(max_denominator=10**12), st.sampled_from(["float16", "float32", "float64"]))
def test_rounding_of_rationals(q: Fraction, name: str) -> None:
    kind: Any = np.dtype(name).type
    while abs(q) > 60000:
        q = q / 2**20
    y = nearest(q, name)
    for other in (np.nextafter(y, kind(np.inf)), np.nextafter(y, kind(-np.inf))):
        assert abs(Fraction(float(y)) - q) <= abs(Fraction(float(other)) - q)
    low = rounded_down(q, name)
    assert Fraction(float(low)) <= q < Fraction(float(np.nextafter(low, kind(np.inf))))


def test_ties_that_double_rounding_would_get_wrong() -> None:
    one = Fraction(1)
    tie = one + Fraction(1, 2**24)
    assert nearest(tie, "float32") == 1
    assert nearest(tie + Fraction(1, 2**80), "float32") == np.nextafter(np.float32(1), np.float32(2))
    assert nearest(tie - Fraction(1, 2**80), "float32") == 1


def test_decimal_ends() -> None:
    box = ln.Property.parse(text("(<= Y_0 0)")).own_boxes[0]
    out = box.outward()
    assert out.lo.tolist() == [-0.5, float(np.float32(0.1))]
    assert out.hi.tolist() == [0.5, float(np.float32(0.1))]
    tenth = Fraction(1, 10)
    b = Box((tenth,), (2 * tenth,))
    wide, floats = b.outward(), b.inward()
    assert floats is not None
    assert Fraction(float(wide.lo[0])) < tenth < Fraction(float(floats[0][0]))
    assert Fraction(float(floats[1][0])) < 2 * tenth < Fraction(float(wide.hi[0]))
    assert "2 decimal ends are rounded outward" in b.moved("float32")
    assert Box((tenth,), (tenth + Fraction(1, 10**12),)).inward() is None


# ---- VNNLIB


@pytest.mark.parametrize(
    ("formula", "bad"),
    [
        ("(<= Y_0 Y_1)", lambda a, b: a <= b),
        ("(>= Y_0 2.5)", lambda a, b: a >= Fraction(5, 2)),
        ("(< (+ Y_0 (* -2 Y_1)) 1)", lambda a, b: a - 2 * b < 1),
        ("(> (- Y_0) (- Y_1 3))", lambda a, b: -a > b - 3),
        ("(or (<= Y_0 0) (and (>= Y_1 1) (<= Y_0 2)))", lambda a, b: a <= 0 or (b >= 1 and a <= 2)),
        ("(not (or (<= Y_0 0) (> Y_1 1)))", lambda a, b: not (a <= 0 or b > 1)),
        ("(= Y_0 Y_1)", lambda a, b: a == b),
        ("(not (= Y_0 1))", lambda a, b: a != 1),
        ("(and (<= Y_0 0) (<= 0 1))", lambda a, b: a <= 0),
        ("(or (and (<= X_0 0) (<= Y_0 0)) (and (>= X_0 0.25) (<= Y_1 0)))", None),
    ],
)
def test_formulas(formula: str, bad: Any) -> None:
    p = ln.Property.parse(text(formula))
    if bad is None:
        assert [(b.lo[0], b.hi[0]) for b in p.boxes] == [(-0.5, 0.0), (0.25, 0.5)]
        assert p.holds([-1, 1], np.array([-0.25, 0.1], np.float32)) is False
        assert p.holds([-1, 1], np.array([0.125, 0.1], np.float32)) is True
        assert p.holds([-1, 1], np.array([0.25, 0.1], np.float32)) is True
        return
    for a, b in itertools.product((Fraction(k, 2) for k in range(-4, 7)), repeat=2):
        assert p.holds([a, b]) == (not bad(a, b))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text("(<= Y_0 1e99999)"), "exponents between -400 and 400; got '1e99999'"),
        (text("(>= X_0 2)"), "got bounds of X_0 that exclude each other"),
        (text("(or (and (>= X_1 2) (<= Y_0 0)) (>= X_1 3))"), "got bounds of X_1 that exclude each other"),
    ],
)
def test_refusals_name_the_cause(content: str, words: str) -> None:
    with pytest.raises(ln.ArgumentError) as refused:
        ln.Property.parse(content)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "PN6"),
        ("(declare-const X_0 Real)", "PN6"),
        ("(declare-const X_1 Real)", "PN6"),
        ("(declare-const X_0 Real)(declare-const X_0 Real)", "PN6"),
        ("(declare-const Z_0 Real)", "PN2"),
        ("(declare-const X_00 Real)", "PN2"),
        ("(declare-const X_0 Int)", "PN2"),
        ("(check-sat)", "PN2"),
        ("hello", "PN2"),
        ("(assert (<= Y_0 0)", "PN2"),
        (")", "PN2"),
        ("()", "PN2"),
        ("(" * 100_000, "PN3"),
        (text("(xor Y_0 0)"), "PN3"),
        (text("(<= Y_0)"), "PN3"),
        (text("Y_0"), "PN3"),
        (text("(and)"), "PN3"),
        (text("(<= (* Y_0 Y_1) 0)"), "PN4"),
        (text("(<= (/ Y_0 2) 0)"), "PN4"),
        (text("(<= (+) 0)"), "PN4"),
        (text("(<= X_0 Y_0)"), "PN5"),
        (text("(<= (+ X_0 X_1) 0)"), "PN5"),
        (text("(< X_0 0.25)"), "PN5"),
        (text("(<= Y_2 0)"), "PN6"),
        (text("(<= Y_0 1e999)"), "PN7"),
        (text("(<= Y_0 0x10)"), "PN7"),
        (text("(<= Y_0 nan)"), "PN7"),
        (text("(<= Y_0 \u0661)"), "PN7"),
        (text("(<= Y_0 " + "1" * 10**6 + ")"), "PN7"),
        (text("(<= Y_0 " + "(* 1e300 " * 90 + "1" + ")" * 91), "PN4"),
        (text("(and " + " ".join("(or (<= Y_0 0) (<= Y_1 0))" for _ in range(30)) + ")"), "PR5"),
        (text("(>= X_0 2)"), "PN8"),
        (text("(<= 1 0)"), "PN8"),
    ],
)
def test_hostile_texts(content: str, rule: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ln.ArgumentError) as refused:
        ln.Property.parse(content)
    assert refused.value.rule == rule, str(refused.value)
    assert time.perf_counter() - begin < 5
    assert len(str(refused.value)) < 1000


def test_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.vnnlib", tmp_path / "a.vnnlib.gz"
    plain.write_text(text("(<= Y_0 0)"))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert ln.Property.load(plain) == ln.Property.load(str(packed))
    assert ln.Property.load(plain).name == "a"
    bomb = tmp_path / "bomb.vnnlib.gz"
    bomb.write_bytes(gzip.compress(b" " * 10**8))
    cut = tmp_path / "cut.vnnlib.gz"
    cut.write_bytes(packed.read_bytes()[:40])
    binary = tmp_path / "binary.vnnlib"
    binary.write_bytes(bytes(range(256)))
    for path in (bomb, cut, binary):
        with pytest.raises(ln.ArgumentError, match="PN1"):
            ln.Property.load(path)
    with pytest.raises(FileNotFoundError):
        ln.Property.load(tmp_path / "nowhere.vnnlib")


@given(st.text(alphabet="()XY_01 <=+-*.eandor;\n", max_size=200))
def test_any_text_is_read_or_refused(content: str) -> None:
    for whole in (content, text(content), f"{HEAD}{content}"):
        try:
            ln.Property.parse(whole)
        except ln.ArgumentError:
            continue
