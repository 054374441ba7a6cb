"""The checker of certificates: its operators against the specification, its minima against enumeration, its file."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from operator import sub
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from configurations import random_case
from effort import LONG
from lunette.certificate import check as checker
from lunette.certificate.produce import network_of
from lunette.graph.text import kinds, named_constants, options_of

WINDOWS = (
    "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "global_max_pool",
    "global_avg_pool",
)  # fmt: skip
OTHERS = (
    "add", "sub", "mul", "div", "neg", "relu", "abs", "leaky_relu", "maximum", "minimum", "matmul", "reshape",
    "broadcast_to", "transpose", "slice", "pad", "concat", "sum", "mean", "max", "stop_gradient",
)  # fmt: skip


def values(net: checker.Network, inputs: list[list[Fraction]]) -> list[Fraction]:
    """What the checker's output is at a point, exactly."""
    known = every_value(net, inputs)
    return [known[p][i] for p, i in net.out]


def every_value(net: checker.Network, inputs: list[list[Fraction]]) -> dict[int, list[Fraction]]:
    """What the checker's nodes are at a point."""
    known: dict[int, list[Fraction]] = {n.at: x for n, x in zip(net.inputs, inputs, strict=True)}
    for n in net.nodes.values():
        if n.numbers is not None:
            known[n.at] = n.numbers
        elif n.taps is not None:
            known[n.at] = [max(known[p][i] for p, i in t) for t in n.taps]
        elif n.sums is not None:
            known[n.at] = [
                sum((known[p][i] * w for p, ins, ws in own for i, w in zip(ins, ws, strict=True)), Fraction(0))
                / n.denominator
                for own in n.sums
            ]
    return known


def graphs_of(name: str, shapes: Any, options: Any, rng: np.random.Generator) -> Any:
    """A graph for each operand that can vary alone, and one where all do; the others are constants."""
    arrays: list[Any] = [(rng.integers(-8, 9, s) / 8).astype(np.float32) for s in shapes]
    if name == "div":
        arrays[1] = np.where(arrays[1] == 0, 1, arrays[1]).astype(np.float32)
    every = range(len(arrays))
    for varies in ({0}, {1}, set(every)):
        if not varies <= set(every) or (name in WINDOWS and varies != {0}):
            continue
        g = ln.Graph()
        xs: list[Any] = [g.input(a.shape, "float32", f"x{k}") if k in varies else a for k, a in enumerate(arrays)]
        kind = kinds()[name]
        xs = [g.constant(x) if isinstance(x, np.ndarray) else x for x in xs] + [None] * (
            0 if kind.variadic else len(kind.arrays) - len(xs)
        )
        given = tuple(options.get(k, d) for k, d in options_of(kind).items())
        g.output(g.apply(kind, xs, kind.told(len(arrays[0].shape) - 1, given) if name in WINDOWS else given))
        yield g, [a for k, a in enumerate(arrays) if k in varies]


def read(g: ln.Graph) -> tuple[checker.Network | None, str]:
    """The checker's network, or why it refuses."""
    try:
        return network_of(g), ""
    except checker.Refused as error:
        return None, str(error)


def compare(name: str, shapes: Any, options: Any, rng: np.random.Generator) -> int:
    compared = 0
    for g, xs in graphs_of(name, shapes, options, rng):
        net, why = read(g)
        if net is None:
            assert any(word in why for word in ("constant", "matrices", "bins")), f"{name}: {why}"
            continue
        exact = [np.array([Fraction(float(v)) for v in x.flat], object).reshape(x.shape) for x in xs]
        wanted = g.eval(*exact, number=Fraction)
        assert values(net, [list(x.reshape(-1)) for x in exact]) == list(np.asarray(wanted, object).reshape(-1)), name
        compared += 1
    return compared


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS])
def test_operators_mean_what_the_specification_means(name: str) -> None:
    rng, compared = np.random.default_rng(7), 0
    for case in kinds()[name].cases.values():
        compared += compare(name, case.shapes, dict(case.options), rng)
    assert compared


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_random_configurations(name: str) -> None:
    rng = np.random.default_rng(11)
    for seed in range(25):
        case = random_case(kinds()[name], seed)
        if np.prod(case.shapes[0]) <= 400:
            compare(name, case.shapes, dict(case.options), rng)


def test_least_of_a_maximum_against_enumeration() -> None:
    """The least is attained at a corner, or where cells are equal to one another or to low: a grid has them all."""
    rng = np.random.default_rng(3)
    for _ in range(400):
        n = int(rng.integers(1, 4))
        lows = [int(v) for v in rng.integers(-3, 3, n)]
        tops = [lo + int(rng.integers(0, 4)) for lo in lows]
        low = max(*lows, -1) if rng.random() < 0.5 else max(lows)  # -1 is there as a number of its own, or not
        a, g = int(rng.integers(-4, 5)), [int(v) for v in rng.integers(-4, 5, n)]
        cells = product(*(range(p, q + 1) for p, q in zip(lows, tops, strict=True)))
        wanted = min(a * max(low, *x) - sum(s * v for s, v in zip(g, x, strict=True)) for x in cells)
        found = checker.least_of_max(checker.ONE, a, g, lows, tops, low, a < 0)
        assert found == wanted, (a, g, lows, tops, low)


def bent() -> tuple[checker.Network, list[list[tuple[Fraction, Fraction]]]]:
    """A network with every kind of node, and a box."""
    rng = np.random.default_rng(4)
    w = (rng.integers(-4, 5, (2, 1, 2)) / 4).astype(np.float32)

    def f(x: Any) -> Any:
        h = ln.conv(x, w, padding=1)
        y = ln.minimum(ln.leaky_relu(h), ln.abs(h) * np.float32(0.3)) - ln.avg_pool(h, (3,), stride=1, padding=1)
        return ln.max_pool(ln.relu(y), (2,), stride=1) + ln.max(y)

    box = [[(Fraction(-1), Fraction(1, 2)), (Fraction(0), Fraction(1)), (Fraction(-1, 2), Fraction(1, 2))]]
    return network_of(ln.trace(f, np.zeros((1, 1, 3), np.float32))), box


def points_of(box: Any, count: int) -> list[list[Fraction]]:
    shares = np.random.default_rng(5).integers(0, 13, (count, len(box)))
    return [[lo + (hi - lo) * Fraction(int(s), 12) for (lo, hi), s in zip(box, p, strict=True)] for p in shares]


@pytest.mark.parametrize("bits", [1, 3, 40])
def test_walks_are_below_all_values(bits: int) -> None:
    """Of random coefficients at every node of a network with every kind of node, however coarse the grid is."""
    rng, (net, box) = np.random.default_rng(4), bent()
    region, one = checker.Region(net, box, bits, False), 1 << bits
    points = points_of(box[0], 30)
    known = [every_value(net, [x]) for x in points]
    for at, _ in product(sorted(net.nodes)[1:], range(4)):
        row = [int(v) for v in rng.integers(-3 * one, 3 * one + 1, net.nodes[at].size)]
        found = Fraction(region.walk({at: row}, {}), one * one)
        for k in known:
            assert found <= sum(Fraction(c, one) * v for c, v in zip(row, k[at], strict=True)), at
            ends = zip(region.lo[at], k[at], region.hi[at], strict=True)
            assert all(Fraction(lo, one) <= v <= Fraction(hi, one) for lo, v, hi in ends)


@pytest.mark.parametrize("bits", [1, 3, 40])
def test_lines_from_the_inputs_on_hold_every_point(bits: int) -> None:
    """Of the whole box and of parts of it, on any grid; they are smaller than boxes by intervals."""
    net, box = bent()
    whole, plain, last = (*(checker.Region(net, box, bits, False) for _ in range(2)), max(net.nodes))
    whole.lines(last)
    splits: list[Any] = [(net.inputs[0].at, 0, Fraction(1, 3))]
    splits += [(n.at, c, None) for n in net.nodes.values() if n.taps for c in range(n.size)]
    splits += [(n.at, 0, Fraction(-1, 7)) for n in net.nodes.values() if n.sums]
    parts = [whole, *(plain.where(*part) for split in splits for part in plain.parts(*split))]
    for region, x in product(parts, points_of(box[0], 12)):
        if region is not whole and not region.empty:
            region.lines(last)
        known = every_value(net, [x])
        sums = [sum(s * known[p][i] for p, i, s in terms) + Fraction(n, 1 << bits) for terms, n in region.spaces]
        if all(v >= 0 for v in sums):
            for p, values in known.items():
                ends = zip(region.lo[p], values, region.hi[p], strict=True)
                assert all(lo <= v * (1 << bits) <= hi for lo, v, hi in ends)
    if bits == 40:
        widths = [sum(map(sub, r.hi[n.at], r.lo[n.at])) for r in (whole, plain) for n in net.nodes.values() if n.sums]
        assert sum(widths[: len(widths) // 2]) < sum(widths[len(widths) // 2 :])


def test_lines_are_tight_where_intervals_are_not() -> None:
    """relu(x + 2) - x is 2 where x + 2 > 0; of more cells than forms have, they are refused."""

    def f(x: Any) -> Any:
        return ln.relu(x + 2) - x

    net = network_of(ln.trace(f, np.zeros((1, 3), np.float32)))
    region = checker.Region(net, [[(Fraction(-1), Fraction(1))] * 3], 20, False)
    assert (region.lo[net.out[0][0]], region.hi[net.out[0][0]]) == ([0] * 3, [4 << 20] * 3)
    region.lines(net.out[0][0])
    assert region.lo[net.out[0][0]] == region.hi[net.out[0][0]] == [2 << 20] * 3
    net = network_of(ln.trace(f, np.zeros((1, 65), np.float32)))
    region = checker.Region(net, [[(Fraction(-1), Fraction(1))] * 65], 20, False)
    with pytest.raises(checker.Refused, match="at most 64 cells"):
        region.lines(net.out[0][0])


@pytest.mark.parametrize("bits", [1, 40])
def test_parts_of_a_split_hold_every_point(bits: int) -> None:
    """Each point is in one of them at least, and whatever satisfies the inequalities of a part is in its boxes."""
    net, box = bent()
    region, one = checker.Region(net, box, bits, False), 1 << bits
    splits: list[Any] = [(net.inputs[0].at, c, q) for c in range(3) for q in (Fraction(0), Fraction(1, 3), Fraction(9))]
    splits += [(n.at, c, None) for n in net.nodes.values() if n.taps for c in range(n.size)]
    splits += [(n.at, 0, Fraction(-1, 7)) for n in net.nodes.values() if n.sums]
    rng, taps = np.random.default_rng(6), [(n.at, c) for n in net.nodes.values() for c in range(n.size)]
    for count in (1, 2, 2, 2, 3, 5):  # sums of cells, times integers
        own = [(*taps[int(t)], int(w)) for t, w in zip(*rng.integers(1, (len(taps), 7), (count, 2)).T, strict=True)]
        signed = [(p, c, w if rng.random() < 0.5 else -w) for p, c, w in own]
        splits += [(signed, None, Fraction(q)) for q in ("0", "-7/3", "5/2")]
    for (at, cell, q), x in product(splits, points_of(box[0], 12)):
        known, inside = every_value(net, [x]), 0
        for part in region.parts(at, cell, q):
            new = region.where(*part)
            sums = [sum(s * known[p][i] for p, i, s in terms) + Fraction(n, one) for terms, n in new.spaces]
            if all(v >= 0 for v in sums):
                inside += 1
                for p, values in known.items():
                    assert all(new.lo[p][i] <= v * one <= new.hi[p][i] for i, v in enumerate(values))
                for tap, j in new.winners.items():
                    won, i = net.nodes[tap[0]].taps[tap[1]][j]
                    assert known[won][i] == known[tap[0]][tap[1]]
        assert inside >= 1


def test_the_files_are_short_and_import_the_standard_library_and_flint_only() -> None:
    for name, most in (("check.py", 600), ("vnnlib.py", 110), ("balls.py", 250), ("slots.py", 200), ("ahead.py", 120)):
        text = Path(checker.__file__).with_name(name).read_text()
        assert len(text.splitlines()) < most
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            allowed = {*sys.stdlib_module_names, *(["flint"] if name in ("balls.py", "slots.py") else [])}
            assert all(n.split(".")[0] in allowed for n in names), names


# ---- texts of graphs that lunette refuses

WRONG: tuple[Any, ...] = (
    True, False, None, 0, 1, -1, 2, 1.0, 1.5, "x", "same", (), (1,), (True,), (1.0,), (2, 2), (1, 2), (-1,), (0, 0),
    ((1, 1),), ((0, 1), (1, 0)), ((1, 1, 1),), (None,), (2, None), "all", "1e999", "-0.0",
)  # fmt: skip


def changed_calls(call: str, name: str, rng: np.random.Generator) -> Iterator[str]:
    """What an operator is called with, in the text of a graph, with one thing changed."""
    operands = re.findall(r"%[0-9]+|None", call)
    options = call[len(", ".join(operands)) :].removeprefix(", ")
    for some in (operands[:-1], [*operands, "%0"], [*operands, "None"], ["None", *operands[1:]], ["%0"] * 3, []):
        yield ", ".join([*some, options] if options else some)
    before = [*operands, options] if options else operands
    yield from (", ".join([*before, more]) for more in ("1", "(2, 2)", "unknown=1", "axis=0, axis=0", "*(1,)", "**{}"))
    for key in sorted({*options_of(kinds()[name]), "p", "spatial"}):
        kept = re.sub(rf"(^|, ){key}=(\([^=]*\)|[^,()]*)(?=, [a-z_]+=|$)", "", options).removeprefix(", ")
        yield ", ".join([*operands, kept] if kept else operands)
        for at in rng.choice(len(WRONG), 12, replace=False):
            value = WRONG[at] if WRONG[at] in ("1e999", "-0.0") else repr(WRONG[at])
            yield ", ".join([*operands, f"{key}={value}", *([kept] if kept else [])])


def changed_texts(g: ln.Graph, name: str, rng: np.random.Generator) -> Iterator[str]:
    text = str(g)
    *before, line, last = text.splitlines()
    head, call = line.split(f" = {name}(", 1)
    for other in changed_calls(call[:-1], name, rng):
        yield "\n".join([*before, f"{head} = {name}({other})", last])
    for old, new in (
        (" : f32[", " : f64["), (" : f32[", " : i64["), ("%0 :", "%00 :"), ("[", "[1,"), ("]", ",]"), ("x1", "x0"),
        ('input("', 'input("\\n'), ('input("x0")', "input(1)"), (" = input", " = \tinput"), (")", ')  # "\\x"'),
        (f" = {name}(", f" = {name}_jvp("), ("return %", "return %9"),
    ):  # fmt: skip
        for count in range(text.count(old)):
            parts = text.split(old)
            yield old.join(parts[: count + 1]) + new + old.join(parts[count + 1 :])


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS, *checker.BALLS])
def test_texts_that_lunette_refuses_are_refused(name: str) -> None:
    """Whatever the checker reads is a graph of lunette: it has no meanings of its own for what is not."""
    rng, refused, read_both = np.random.default_rng(13), 0, 0
    for case in list(kinds()[name].cases.values())[: 99 if LONG else 4]:
        for g, _ in graphs_of(name, case.shapes, dict(case.options), rng):
            arrays = named_constants(g)
            for text in changed_texts(g, name, rng):
                try:
                    ln.Graph.parse(text, arrays)
                except ln.LunetteError:
                    with pytest.raises(Exception):  # noqa: B017, PT011 (any of them is a refusal)
                        print(checker.Network(text.splitlines(), lambda n, *_, a=arrays: a[n].tobytes()), text)
                    refused += 1
                else:
                    read_both += 1
    assert refused > 50 and read_both
