"""The checker of certificates: its operators against the specification, its minima against enumeration, its file."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lunette as ln
from configurations import random_case
from lunette.certificate import check as checker
from lunette.certificate.produce import network_of
from lunette.graph.text import kinds, options_of

WINDOWS = (
    "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "global_max_pool",
    "global_avg_pool",
)  # fmt: skip
OTHERS = (
    "add", "sub", "mul", "div", "neg", "relu", "abs", "leaky_relu", "maximum", "minimum", "matmul", "reshape",
    "broadcast_to", "transpose", "slice", "pad", "concat", "sum", "mean", "max", "stop_gradient",
)  # fmt: skip


def values(net: checker.Network, inputs: list[list[Fraction]]) -> list[Fraction]:
    """What the checker's nodes are at a point, exactly."""
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
    return [known[p][i] for p, i in net.out]


def graphs_of(name: str, shapes: Any, options: Any, rng: np.random.Generator) -> Any:
    """A graph for each operand that can vary alone, and one where all do; the others are constants."""
    arrays = [None if s is None else (rng.integers(-8, 9, s) / 8).astype(np.float32) for s in shapes]
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


def compare(name: str, shapes: Any, options: Any, rng: np.random.Generator) -> int:
    compared = 0
    for g, xs in graphs_of(name, shapes, options, rng):
        try:
            net = network_of(g)
        except checker.Refused as error:
            assert any(word in str(error) for word in ("constant", "matrices", "bins")), f"{name}: {error}"
            continue
        exact = [np.array([Fraction(float(v)) for v in x.flat], object).reshape(x.shape) for x in xs]
        wanted = g.eval(*exact, number=Fraction)
        assert values(net, [list(x.reshape(-1)) for x in exact]) == list(np.asarray(wanted, object).reshape(-1)), name
        compared += 1
    return compared


@pytest.mark.parametrize("name", [*WINDOWS, *OTHERS])
def test_operators_mean_what_the_specification_means(name: str) -> None:
    rng, compared = np.random.default_rng(7), 0
    for case in kinds()[name].cases.values():  # type: ignore[attr-defined]
        compared += compare(name, case.shapes, dict(case.options), rng)
    assert compared


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_random_configurations(name: str) -> None:
    rng = np.random.default_rng(11)
    for seed in range(25):
        case = random_case(kinds()[name], seed)  # type: ignore[arg-type]
        if np.prod(case.shapes[0]) <= 400:
            compare(name, case.shapes, dict(case.options), rng)
