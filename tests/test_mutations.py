"""Certificates and graphs with something changed at random: refused, or what is proven is still true.

`python tests/test_mutations.py COUNT SEED` makes as many, and prints how many were accepted.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from flint import arb, ctx

import lunette as ln
from effort import LONG
from lunette.certificate import check as checker
from lunette.certificate.produce import network_of
from lunette.graph.text import named_constants
from test_balls import ball
from test_balls import bent as curved
from test_certificate import tiny, trees
from test_checker import every_value

COUNT = 100_000 if LONG else 400
SHARES = (Fraction(0), Fraction(1, 3), Fraction(1))


def wide(seed: int) -> tuple[ln.Graph, ln.Interval]:
    """Three inputs, and everything else that makes a certificate large: channels, two convolutions, pools."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return (rng.integers(-8, 9, shape) / 8).astype(np.float32)

    w, v, u, b = weights(6, 1, 2), weights(5, 6, 2), weights(3, 10), weights(6)

    def f(x: Any) -> Any:
        h = ln.max_pool(ln.relu(ln.conv(x, w, b, padding=1)), (2,), stride=1)
        h = ln.avg_pool(ln.leaky_relu(ln.conv(h, v)), (2,), stride=1, padding=((0, 1),))
        return ln.linear(ln.flatten(h), u)

    x = weights(1, 1, 3)
    return ln.trace(f, x), ln.Interval(x - np.float32(0.25), x + np.float32(0.5))


class Known:
    """A graph, a certificate of it, and what its outputs are at points."""

    def __init__(self, graph: ln.Graph, data: bytes) -> None:
        self.graph, self.data, self.net, self.program = graph, data, network_of(graph), graph.compile()

    def outputs(self, x: list[Fraction], floats: bool) -> list[Any]:
        """At a point: exactly, in balls, or what our own execution gives."""
        if floats:
            shape = self.graph.inputs[0].shape
            return [Fraction(float(v)) for v in self.program(np.array(x, np.float32).reshape(shape)).reshape(-1)]
        if self.net.grade == "ball":
            y = self.graph.eval(np.array(x, object).reshape(self.graph.inputs[0].shape), number=ball)
            return list(np.asarray(y, object).reshape(-1))
        known = every_value(self.net, [x])
        return [known[p][i] for p, i in self.net.out]

    def contradicts(self, cases: Any, floats: bool) -> bool:
        """Whether a point of a grid in a box certainly satisfies a claim that is said to be excluded."""
        for boxes, claims in cases:
            for share in product(SHARES, repeat=len(boxes[0])):
                x = [lo + (hi - lo) * s for (lo, hi), s in zip(boxes[0], share, strict=True)]
                if floats:
                    x = [Fraction(float(np.float32(q))) for q in x]
                    if not all(lo <= q <= hi for (lo, hi), q in zip(boxes[0], x, strict=True)):
                        continue
                y = self.outputs(x, floats)
                if any(all(self.satisfies(y, *i) for i in claim) for claim in claims):
                    return True
        return False

    def satisfies(self, y: list[Any], row: Any, threshold: Fraction, strict: bool) -> bool:
        number: Callable[[Any], Any] = ball if isinstance(y[0], arb) else Fraction
        left = sum((number(v) * y[c] for c, v in row.items()), number(0))
        return bool(left < number(threshold) if strict else left <= number(threshold))


def mutated(content: Any, rng: np.random.Generator) -> Any:
    """One value of a certificate changed: a number, an entry dropped, doubled or exchanged with another."""
    places: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, part in items:
            places.append((value, key))
            visit(part)

    visit(content)
    where, key = places[int(rng.integers(len(places)))]
    if rng.random() < 0.5:  # else nearly all are slopes
        where, key = content, str(rng.choice(list(content)))
        while isinstance(where[key], list | dict) and where[key] and rng.random() < 0.9:
            where = where[key]
            key = str(rng.choice(list(where))) if isinstance(where, dict) else int(rng.integers(len(where)))
    value, choice = where[key], int(rng.integers(6))
    if isinstance(where, list) and choice == 0:
        del where[key]
    elif isinstance(where, list) and choice == 1:
        where.append(value)
    elif isinstance(where, list) and choice == 2:
        other = int(rng.integers(len(where)))
        where[key], where[other] = where[other], where[key]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        where[key] = rng.choice(
            [0, 1, -1, value + 1, -value, value / 2, value * 1.01, value + 1e-3, 2**20, 1e-9]
        ).item()
        if rng.random() < 0.5 and float(where[key]).is_integer():
            where[key] = int(where[key])
    elif isinstance(value, str):
        where[key] = rng.choice(["0", "ff", "1/3", "-7/2", "float", value[:-1], value + "0"]).item()
    else:
        where[key] = []
    return content


def rewired(text: str, rng: np.random.Generator) -> str:
    """One number, option, operator or edge of a graph's text changed."""
    number = r"(?<![%\w.])-?[0-9]+(?:\.[0-9]+)?"
    choice = int(rng.integers(4))
    pattern = (
        number,
        r"%[0-9]+",
        r"\b(relu|max_pool|avg_pool|leaky_relu|abs|neg|tanh|erf|sigmoid)\b",
        r"[a-z_]+=[^=]*?(?=, |\))",
    )
    found = list(re.finditer(pattern[choice], text))
    if not found:
        return text
    at = found[int(rng.integers(len(found)))]
    other = found[int(rng.integers(len(found)))]
    new = other[0] if choice or rng.random() < 0.3 else str(rng.choice(["0", "1", "2", "-1", "0.5", "0.125", "-0.75"]))
    return text[: at.start()] + new + text[at.end() :]


def known() -> list[Known]:
    found = []
    for seed in range(3):
        for graph, box in (tiny(seed), wide(seed)):
            net = network_of(graph)
            for method, semantics in (("crown", "real"), ("optimised", "real"), ("crown", "float")):
                b = ln.bounds(graph, box, method=method, semantics=semantics, steps=3)
                found.append(Known(graph, b.certificate().data))
            found.append(Known(graph, trees(net, box)))
    graph, box = curved()
    found.append(Known(graph, ln.bounds(graph, box).certificate().data))
    return found


def changed(own: Known, rng: np.random.Generator) -> tuple[Known, bytes, str] | None:
    """A certificate with something changed; or of a changed graph, whose digest it has, as if it were of that."""
    if rng.random() < 0.8:
        return own, json.dumps(mutated(json.loads(own.data), rng)).encode(), "certificate"
    text, arrays = str(own.graph), {k: v.copy() for k, v in named_constants(own.graph).items()}
    if arrays and rng.random() < 0.3:
        weights = arrays[str(rng.choice(list(arrays)))]
        weights[tuple(int(rng.integers(n)) for n in weights.shape)] += np.float32(rng.choice([1, -1, 0.125, 2**-20]))
    else:
        text = rewired(text, rng)
    try:
        other = Known(ln.Graph.parse(text, arrays), own.data)
    except (ln.LunetteError, checker.Refused):
        return None
    content = json.loads(own.data)
    content["graph"] = other.net.digest
    return other, json.dumps(content).encode(), "graph"


def judge(count: int, seed: int, say: Callable[[Counter[str]], None] = lambda _: None) -> Counter[str]:
    """How many were refused, and accepted; a false one is an error."""
    rng, originals, seen, judged = np.random.default_rng(seed), known(), Counter[str](), set[Any]()
    for own in originals:
        assert not own.contradicts(checker.check(own.net, own.data), json.loads(own.data)["semantics"] == "float")
    for n in range(count):
        if n % 500 == 0:
            say(seen)
        made = changed(originals[int(rng.integers(len(originals)))], rng)
        if made is None:
            seen["graph: not one"] += 1
            continue
        own, data, what = made
        try:
            cases = checker.check(own.net, data)
        except Exception:  # that is what ln.check and the command do, too
            seen[f"{what}: refused"] += 1
            continue
        statement = (own.net.digest, repr(cases), json.loads(data)["semantics"])
        if statement not in judged:
            assert not own.contradicts(cases, statement[2] == "float"), (str(own.graph), data)
            judged.add(statement)
        seen[f"{what}: accepted, and true"] += 1
        seen["different statements among them"] = len(judged)
    return seen


def test_random_changes_are_refused_or_true() -> None:
    seen = judge(COUNT, 5)
    assert min(seen[f"{what}: refused"] for what in ("certificate", "graph")) > 0
    assert seen["different statements among them"] > COUNT // 100  # else nothing was judged


if __name__ == "__main__":
    with ctx.workprec(100):
        print(judge(int(sys.argv[1]), int(sys.argv[2]), lambda seen: print(dict(seen), flush=True)))
