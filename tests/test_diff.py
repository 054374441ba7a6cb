"""`ln.diff`: its classes are true, complete and as small as they can be."""

from __future__ import annotations

from typing import Any

import pytest

from lunette.dialects import DIALECTS, Call, dialect, diff
from lunette.dialects.configurations import configurations
from lunette.dialects.difference import answer, rank, way
from responses import signature


def test_a_dialect_does_not_differ_from_itself() -> None:
    for name in DIALECTS:
        assert len(diff(name, name, "max_pool", largest=1)) == 0


def test_dialects_are_found_by_their_other_names() -> None:
    assert [dialect(n).name for n in ("pytorch", "tensorflow", "onnx")] == ["torch", "tf", "onnx22"]


def ways(first: str, second: str, op: str, **more: Any) -> set[tuple[str, tuple[str, ...]]]:
    return {(d.kind, d.options) for d in diff(first, second, op, **more)}


def test_the_differences_that_converters_meet() -> None:
    torch_onnx = ways("torch", "onnx22", "avg_pool", largest=3)
    assert ("size", ("stride left out",)) in torch_onnx
    assert ("divisor", ("count_include_pad left out", "padding")) in torch_onnx
    assert ("unsaid", ("dilation > 1",)) in torch_onnx and ("refused", ("padding",)) in torch_onnx
    assert not any(kind == "size" and "stride left out" not in options for kind, options in torch_onnx)
    opsets = ways("onnx19", "onnx22", "max_pool", largest=3)
    assert opsets == {("size", ("ceil_mode=True", "padding")), ("size", ("ceil_mode=True", "stride > 1"))}
    assert ("divisor", ("ceil_mode=True", "count_include_pad=True", "stride > 1")) in ways(
        "onnx10", "onnx19", "avg_pool", largest=1
    )
    assert ("taps", ()) in ways("torch", "equinox", "adaptive_avg_pool", largest=5)
    assert {kind for kind, _ in ways("torch", "onnx22", "max_pool", largest=1)} >= {"ties", "nan", "index"}


PAIRS = [("torch", "onnx22"), ("tf", "webnn"), ("jax", "equinox"), ("keras", "tosa"), ("lunette", "torch")]


@pytest.mark.parametrize("pair", PAIRS, ids=["-".join(p) for p in PAIRS])
@pytest.mark.parametrize("op", ["max_pool", "conv_transpose"])
def test_classes_are_true_and_complete(pair: tuple[str, str], op: str) -> None:
    """Every example differs as it says, no smaller set of options does, and every difference is in a class."""
    first, second = map(dialect, pair)
    found = diff(*pair, op, largest=2)
    d = rank(first, second, op)
    classes = [c for c in found if c.example is not None]
    tried = 0
    for c in configurations(op, 2):
        tried += 1
        how = way(answer(first, c, d), answer(second, c, d))
        named = c.features | c.merged
        homes = [h for h in classes if how is not None and h.kind == how[0] and set(h.options) <= named]
        assert how is None or homes, c
    assert tried == found.tried
    for h in classes:
        assert h.example is not None
        how = way(answer(first, h.example, d), answer(second, h.example, d))
        assert how is not None and how[0] == h.kind and set(h.options) <= h.example.features | h.example.merged
        if isinstance(h.instead, Call):
            source = next(a.meaning for a in h.answers if a.meaning is not None)
            into = dialect(h.into).meaning(op, h.example.shapes(d), h.instead.arguments)
            assert signature(into)[:3] == signature(source)[:3]
    backwards = diff(pair[1], pair[0], op, largest=2)
    assert sorted((c.kind, c.options, c.count) for c in found) == sorted(
        (c.kind, c.options, c.count) for c in backwards
    )


def test_differences_print_and_go_to_json() -> None:
    found = diff("onnx10", "onnx22", "avg_pool", largest=1)
    text = str(found)
    assert text.startswith(f"onnx10 and onnx22 differ in {len(found)} ways on {found.tried:,} small configurations")
    by = next(d for d in found if d.kind == "divisor")
    assert "divisor 2 | " in str(by) and str(by).rstrip().endswith("divisor 1")
    assert [row["kind"] for row in found.to_json()] == [d.kind for d in found]
    assert all({"onnx10", "onnx22", "instead"} <= set(row) for row in found.to_json())
    assert str(diff("torch", "torch", "conv", largest=2)).startswith("torch and torch differ in no ways")
