"""Rows in front of arrays: an operator, and its derivatives, on all rows at once are those of each row, with ==."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
import test_glue
import test_laws
from effort import few
from lunette.array import lookup
from lunette.graph import walk
from lunette.graph.derive import replay
from lunette.graph.rows import Rows, by_rows
from lunette.graph.value import levels
from lunette.number import Array, each, exact
from lunette.op import Case, Op, Request, apply, request
from lunette.ops import ALL, GLUE
from lunette.ops.glue import Glue
from lunette.ops.loss import one_hot
from test_laws import _two_hundred_bits, all_same, seeds  # noqa: F401 (the fixture serves here, too)

CASES = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in (*GLUE, *ALL) for k, c in kind.cases.items()]
every_case = pytest.mark.parametrize(("kind", "case"), CASES)
counts = st.integers(1, 3)


def asked(kind: type[Op], case: Case, seed: int) -> Request:
    """The operator of a case, on exact numbers."""
    if issubclass(kind, Glue):
        arrays = test_glue.fill(kind, case, seed)
        return Request(kind, tuple(arrays), "fast", test_glue.options(kind, case))
    arrays = test_laws.fill(kind, case, seed)
    named = dict(zip(kind.arrays, arrays, strict=False))
    scalars = {n: named.pop(n) for n in kind.scalars}
    return request(lookup(kind)[0], tuple(named.values()), {**case.options, **scalars}, lead=1)


def stacked(parts: list[Any]) -> Array:
    y: Array = np.empty((len(parts), *np.shape(parts[0])), object)
    for at, part in enumerate(parts):
        y[at, ...] = part
    return y


@every_case
@few
@given(seeds, counts)
def test_an_operator_with_rows_is_the_operator_of_each_row(kind: type[Op], case: Case, seed: int, rows: int) -> None:
    whole = [asked(kind, case, seed + r) for r in range(rows)]
    options = kind.told(len(case.shapes[0]) - 1, whole[0].options) if not issubclass(kind, Glue) else whole[0].options
    operands = [r.operands for r in whole]
    there = [p for p, o in enumerate(operands[0]) if o is not None]
    for choice in product((False, True), repeat=len(there)):
        rowed = [p for p, has in zip(there, choice, strict=True) if has]
        if not rowed:
            continue
        level = next(levels)
        given_rows = [
            Rows(stacked([r[p] for r in operands]), level) if p in rowed else o for p, o in enumerate(operands[0])
        ]
        y = apply(kind, given_rows, "fast", *options)
        wanted = [
            apply(kind, [operands[r][p] if p in rowed else o for p, o in enumerate(operands[0])], "fast", *options)
            for r in range(rows)
        ]
        assert isinstance(y, Rows) and y.shape == np.shape(wanted[0])
        assert all_same(y.value, stacked(wanted))


@every_case
@few
@given(seeds, counts)
def test_a_pull_with_rows_is_the_pull_of_each_row(kind: type[Op], case: Case, seed: int, rows: int) -> None:
    one = asked(kind, case, seed)
    options = kind.told(len(case.shapes[0]) - 1, one.options) if not issubclass(kind, Glue) else one.options
    y = apply(kind, one.operands, "fast", *options)
    fill = test_glue.fill if issubclass(kind, Glue) else test_laws.fill
    g = [fill(kind, Case((y.shape,)), seed + 7 + r)[0] for r in range(rows)]  # type: ignore[arg-type]
    for wrt, o in enumerate(one.operands):
        if o is None:
            continue

        def pull(cotangent: Any, wrt: int = wrt) -> Any:
            return kind.pull(options, one.operands, y, cotangent, wrt)

        together, alone = by_rows(pull, stacked(g)), [pull(row) for row in g]
        if alone[0] is None:
            assert together is None
        else:
            assert all_same(together, stacked(alone))


def test_labels_have_rows() -> None:
    labels = np.array([[0, 2], [1, 1]])
    y = by_rows(lambda v: one_hot(v, 3, 0), labels)
    assert y.tolist() == [one_hot(row, 3, 0).tolist() for row in labels]


def test_no_rows_are_rows() -> None:
    y = by_rows(lambda v: ln.sum(v, axis=-1), np.zeros((0, 3, 2)))
    assert y.shape == (0, 3)


def test_indices_have_rows() -> None:
    x = np.array([[[1.0, 3.0, 2.0, 0.0]], [[4.0, 0.0, 5.0, 6.0]]])
    level = next(levels)
    y, index = ln.max_pool(Rows(x, level), (2,), return_indices=True)
    assert y.value.tolist() == [[[3, 2]], [[4, 6]]] and index.value.tolist() == [[[1, 2]], [[0, 3]]]


def network() -> ln.Graph:
    """Two branches, a node that two read, and one that nobody does."""
    rng = np.random.default_rng(0)
    g = ln.Graph()
    x, s = g.input((1, 2, 5, 4), "float64", "x"), g.input((), "float64", "s")
    h = ln.relu(ln.conv(x, rng.integers(-2, 3, (3, 2, 3, 3)).astype(float), np.arange(3.0), padding=1))
    ln.neg(h)
    left, right = ln.max_pool(h, 2, stride=1), ln.avg_pool(h, 2, stride=1)
    joined = ln.concat([left * s, right - left], axis=1)
    y = ln.linear(ln.flatten(joined), rng.integers(-2, 3, (2, 72)).astype(float))
    g.output(ln.transpose(y), ln.max(joined, axis=(0, 2)))
    return g


def test_all_cotangents_at_once() -> None:
    """The walk back with rows is one pullback after the other, on rationals."""
    graph, rng = network(), np.random.default_rng(1)
    inputs = [exact(rng.integers(-3, 4, n.shape)) for n in graph.inputs]

    def compute(n: Any, operands: list[Any]) -> Any:
        exactly = [each(Fraction, o) if getattr(o, "dtype", None) == np.float64 else o for o in operands]
        return apply(n.kind, exactly, "fast", *n.options)

    known = [v for _, v in walk.forward(graph, inputs, compute)]
    for at, n in enumerate(graph.nodes):
        known[at] = each(Fraction, known[at]) if n.value is not None else known[at]
    rows = 3
    g = {at: exact(rng.integers(-3, 4, (rows, *graph.nodes[at].shape))) for at in graph.outputs}
    together = walk.reverse_rows(graph, known, g)
    _, pullback = ln.vjp(lambda *values: replay(graph, values, Fraction), *inputs)
    for row in range(rows):
        alone = pullback([g[at][row] for at in graph.outputs])
        assert all(all_same(t[row, ...], a) for t, a in zip(together, alone, strict=True))


def computed(n: Any, operands: list[Any]) -> Any:
    return apply(n.kind, operands, "fast", *n.options)


def test_rows_of_floats_are_the_rows_of_a_program() -> None:
    graph, rng = network(), np.random.default_rng(2)
    inputs = [rng.integers(-3, 4, n.shape).astype(float) for n in graph.inputs]
    known = [v for _, v in walk.forward(graph, inputs, computed)]
    g = {at: rng.integers(-3, 4, (4, *graph.nodes[at].shape)).astype(float) for at in graph.outputs}
    together = walk.reverse_rows(graph, known, g)
    _, pullback = graph.compile().vjp(*inputs)
    for row in range(4):
        alone = pullback([g[at][row] for at in graph.outputs])
        # Sums of small integers and of quarters: no float is rounded.
        assert all(np.array_equal(t[row], a) for t, a in zip(together, alone, strict=True))


def test_nothing_reaches_an_input_that_is_not_read() -> None:
    g = ln.Graph()
    x, y = g.input((2,), "float64", "x"), g.input((2,), "float64", "y")
    g.output(ln.neg(x))
    assert y.id == 1
    left, right = walk.reverse_rows(g, [np.ones(2), np.ones(2), -np.ones(2)], {2: np.eye(2)})
    assert left.tolist() == [[-1, 0], [0, -1]] and right is None
