"""Every numbered rule of ln.bounds says its sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lunette
from test_errors import refused

ln: Any = lunette  # wrong types are the point of this file
X = np.zeros(2, np.float32)
BOX = ln.Interval(X, X + 1)


def test_z1_a_function_with_one_output() -> None:
    refused(
        lambda: ln.bounds(lambda x: (x, x), BOX),
        ln.ArgumentError,
        "bounds [Z1] needs a function with one output of floats; got 2 outputs. Join them with ln.concat.",
    )
    y = np.zeros((1, 1, 4), np.float32)
    refused(
        lambda: ln.bounds(lambda x: ln.avg_pool(x, (2,), divisor=2**24 + 1), ln.Interval(y, y + 1)),
        ln.ArgumentError,
        "bounds [Z1] needs numbers that float32 has as options of avg_pool; got ((2,), None, 0, 1, False, True, "
        "16777217, None). Write them as floats.",
    )


def test_z2_a_box_for_every_input() -> None:
    g = ln.Graph()
    g.output(ln.relu(g.input((2,), name="x")))
    refused(
        lambda: ln.bounds(g),
        ln.ArgumentError,
        "bounds [Z2] needs one box for each of (x : f32[2]); got 0. A plain array is a point.",
    )
    refused(
        lambda: ln.bounds(g, np.zeros(3, np.float32)),
        ln.ShapeError,
        "bounds [Z2] needs x of shape (2,); got shape (3,). Shapes are part of a graph.",
    )
    refused(
        lambda: ln.bounds(g, np.zeros(2, np.int64)),
        ln.DTypeError,
        "bounds [Z2] needs x of dtype float32; got dtype int64. Ends of boxes may be float64, too.",
    )
    refused(
        lambda: ln.bounds(g, np.full(2, np.nan, np.float32)),
        ln.ArgumentError,
        "bounds [Z2] needs x without NaN; got NaN. There is no box around it.",
    )


def test_z3_methods_have_names() -> None:
    refused(
        lambda: ln.bounds(ln.relu, BOX, method="magic"),
        ln.ArgumentError,
        'bounds [Z3] needs method among "interval", "crown", "optimised"; got '
        "method='magic'. Leave it out for crown.",
    )


def test_z4_rows_have_a_coefficient_for_each_cell() -> None:
    refused(
        lambda: ln.bounds(ln.relu, BOX, rows=np.ones((1, 3))),
        ln.ArgumentError,
        "bounds [Z4] needs finite rows of shape (number, 2); got rows of shape (1, 3). One coefficient for each cell.",
    )
    refused(
        lambda: ln.bounds(ln.relu, BOX, rows=np.full((1, 2), 2**60 + 1)),
        ln.ArgumentError,
        "bounds [Z4] needs rows that float64 has; got array([[1152921504606846977, 1152921504606846977]]). Integers up "
        "to 2**53.",
    )


def test_z5_semantics_is_real_or_float() -> None:
    refused(
        lambda: ln.bounds(ln.relu, BOX, semantics="complex"),
        ln.ArgumentError,
        'bounds [Z5] needs semantics "real" or "float"; got '
        "semantics='complex'. Of the real-valued function with the weights it has, or of its executions in floats.",
    )
    refused(
        lambda: ln.bounds(ln.exp, BOX, semantics="float"),
        ln.ArgumentError,
        'bounds [Z5] needs sums of products and maxima for semantics="float"; got exp. Operators with exp, log or '
        "roots differ between libraries; fold constants before.",
    )


def test_z6_counts_are_not_negative() -> None:
    refused(
        lambda: ln.bounds(ln.relu, BOX, steps=-1),
        ln.ArgumentError,
        "bounds [Z6] needs steps >= 0; got steps=-1. Bytes, steps, or a seed.",
    )


def test_z7_pages_and_certificates_are_about_one_box() -> None:
    x = np.zeros((2, 3))
    b = ln.bounds(ln.relu, ln.Interval(x - 1, x + 1))
    batch = ln.bounds(ln.trace(ln.relu, x[0]), ln.Interval(x - 1, x + 1))
    assert b.to_html() and b.certificate() and batch.each[1].certificate()
    for call in (batch.to_html, batch.certificate):
        with pytest.raises(ln.ArgumentError) as caught:
            call()
        assert "bounds [Z7] needs bounds of one box; got a batch of 2 boxes. b.each[0]." in str(caught.value)
