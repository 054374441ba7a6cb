"""The tests of single nodes that ship with the package onnx: right where they must be, and never wrong.

`data/onnx_node_tests.txt` names every test that must be right, and `data/onnx_node_refusals.txt` those tests of the
operators below that are refused, with the rule: integers, strings and floats of 8 bits as data, training, sequences
and optionals, the indices of max pooling. `python tests/test_onnx_nodes.py` writes both anew, for one to look at.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")
from onnx_nodes import node_tests, outcome  # noqa: E402

DATA = Path(__file__).parent / "data"
RIGHT, REFUSED = DATA / "onnx_node_tests.txt", DATA / "onnx_node_refusals.txt"
OPERATORS = set((DATA / "onnx_node_operators.txt").read_text().split())
"""What networks of windows are made of: a test of these alone is right, or refused for one of the reasons above."""


def results() -> dict[str, tuple[bool, str, str]]:
    """For every test: whether it is of the operators above alone, and what became of it."""
    return {t.name: (t.operators <= OPERATORS, *outcome(t)) for t in node_tests()}


def test_every_node_test_is_right_or_refused() -> None:
    found = results()
    assert len(found) > 1000
    assert {name: said for name, (_, what, said) in found.items() if what == "wrong"} == {}
    must = RIGHT.read_text().split()
    assert len(must) > 900
    assert {name: found[name][2] for name in must if name in found and found[name][1] != "right"} == {}
    # The suite of another version of onnx has other tests, too.
    refused = {name: rule_of(said) for name, (own, what, said) in found.items() if own and what == "refused"}
    known = dict(line.split() for line in REFUSED.read_text().splitlines())
    assert {name: rule for name, rule in refused.items() if known.get(name, rule) != rule or rule not in ALLOWED} == {}
    if onnx.__version__ == "1.23.2":
        assert refused == known


ALLOWED = {"NX6", "NX11", "NX5"}


def rule_of(said: str) -> str:
    found = re.search(r"\[([A-Z]+[0-9]+)\]", said)
    assert found is not None, said
    return found[1]


if __name__ == "__main__":
    every = results()
    RIGHT.write_text("".join(f"{name}\n" for name, (_, what, _) in sorted(every.items()) if what == "right"))
    lines = [f"{n} {rule_of(said)}\n" for n, (own, what, said) in sorted(every.items()) if own and what == "refused"]
    REFUSED.write_text("".join(lines))
