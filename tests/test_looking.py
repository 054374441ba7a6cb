"""What one looks at: windows with numbers in them, one output cell, shares of derivatives, pages, notebooks."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln

X = np.array([[7, 5, 4, 2], [0, 0, 7, 7], [4, 5, 8, 6]])


# ---- explain


def test_cells_have_their_numbers_and_windows_their_results() -> None:
    told = ln.explain("max_pool", X, kernel=2, stride=1)
    y = ln.max_pool(X.astype(float)[None], (2, 2), stride=1)[0]
    root = ET.fromstring(told.to_svg())
    texts = ["".join(t.itertext()) for t in root.iter() if t.tag.endswith("text")]
    for at in np.ndindex(*y.shape):
        assert f"o={at}, y = {y[at]:.0f}" in texts
    assert texts.count("8") == 6  # one in each panel
    (one,) = [line for line in str(told).splitlines() if line.startswith("  o=(0, 2)")]
    assert one.endswith("y = 7; of g gets (1, 2): 1")


@pytest.mark.parametrize("ties", ["first", "all", "split"])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "adaptive_max_pool", "global_avg_pool"])
def test_shares_are_the_vjp_of_every_output_cell(op: str, ties: Any) -> None:
    own: dict[str, dict[str, Any]] = {"max_pool": {"kernel": (2, 3)}, "avg_pool": {"kernel": (2, 3), "padding": 1}}
    options = own.get(op, {})
    options |= {"output_size": (2, 2)} if op == "adaptive_max_pool" else {}
    options |= {"ties": ties} if "max" in op else {}
    told = ln.explain(op, X, **options)
    assert told.values is not None
    total = np.zeros(X.shape, object)
    for o in np.ndindex(*told.out):
        for at, share in told.values.shares(o):
            total[at] += share
    options |= {"spatial": 2}
    x = np.array([[Fraction(int(v)) for v in row] for row in X], object)[None]
    ones = np.full((1, *told.out), Fraction(1), object)
    (back,) = getattr(ln.spec, f"{op}_vjp")((x,), ones, **options)
    assert (total == back[0]).all()


def test_one_output_cell_is_shown() -> None:
    told = ln.explain("avg_pool", (5, 6), kernel=(2, 2), at=(1, 2))
    assert str(told).count("o=(1, 2)") == 1 and "o=(0, 0)" not in str(told)
    assert len(re.findall(r">o=", told.to_svg())) == 1
    for wrong in ((2, 2), (0,), -1, (0, 3)):
        with pytest.raises(ln.ArgumentError, match="an output cell of"):
            ln.explain("avg_pool", (5, 6), kernel=(2, 2), at=wrong)


def test_data_of_several_axes_show_their_first_plane() -> None:
    told = ln.explain("max_pool", np.stack([[X, X + 1]]), kernel=2)
    assert told.space == X.shape and told.values is not None and told.values.x[0, 0] == 7
    assert ln.explain("conv", X, kernel=(2, 2)).values.y is None  # type: ignore[union-attr]
    with pytest.raises(ln.DTypeError, match="real numbers"):
        ln.explain("max_pool", np.array(["a", "b"]), kernel=1)


@pytest.mark.parametrize("width", [300, 700, 1140])
def test_pictures_wrap_at_a_width_and_stay_small(width: int) -> None:
    rng = np.random.default_rng(0)
    wide: list[tuple[str, Any, dict[str, Any]]] = [
        ("conv", (300, 300), {"kernel": 5, "padding": 2}),
        ("max_pool", rng.standard_normal((40, 40)), {"kernel": 3, "stride": 2}),
        ("lp_pool", (100_000,), {"kernel": 7}),
        ("avg_pool", (9, 9, 9, 9), {"kernel": 3}),
        ("conv", (48, 48), {"kernel": (47, 47), "dilation": 1}),
    ]
    for op, shape, options in wide:
        svg = ln.explain(op, shape, **options).to_svg(width=width)
        assert len(svg) < 200_000
        assert float(ET.fromstring(svg).attrib["width"]) <= max(width, 460)


def test_the_page_lights_up_what_the_text_says(tmp_path: Path) -> None:
    path = tmp_path / "windows.html"
    told = ln.explain("avg_pool", X, kernel=(2, 3), padding=1, stride=(2, 2), ceil_mode=True)
    text = told.to_html(path)
    assert path.read_text(encoding="utf-8") == text and len(text) < 60_000
    assert not re.search(r"""(src|href)=|https?://|@import|url\(""", text)
    root = ET.fromstring(text.partition("\n")[2])
    facts = json.loads(next(s.text or "" for s in root.iter("script") if s.get("id") == "facts"))
    outs = [b.get("data-o", "") for b in root.iter("b") if b.get("data-o")]
    assert outs == [f"{a},{b}" for a, b in np.ndindex(*told.out)]
    cells = [tuple(map(int, b.get("data-i", "").split(","))) for b in root.iter("b") if b.get("data-i")]
    for o in np.ndindex(*told.out):
        marks = [
            {i: facts["marks"][a][str(o[a])][i - facts["start"][a]] for i in {c[a] for c in cells}} for a in range(2)
        ]
        lit = {c for c in cells if all(marks[a][c[a]] == "■" for a in range(2))}
        rows, columns = (_reads(told, a, o[a]) for a in range(2))
        assert lit == {(i, j) for i in rows for j in columns}
        assert facts["told"][f"{o[0]},{o[1]}"].startswith(f"o={o} reads")


def test_the_page_shows_the_one_cell_that_was_asked_for() -> None:
    text = ln.explain("max_pool", X, kernel=2, stride=1, at=(1, 2)).to_html()
    assert re.findall(r'data-o="([^"]*)"', text) == ["1,2"] and "Output cell (1, 2)" in text
    assert "of g gets (2, 2): 1" in text and text.count("o=(1, 2) reads") == 1
    deep = ln.explain("max_pool", np.arange(4**4).reshape((4,) * 4), kernel=(2,) * 4, at=(1, 0, 1, 0)).to_html()
    assert "at output (1, 0) and input (2, 0) of the others" in deep and f">{2 * 64 + 2 * 4}</b>" in deep
    far = ln.explain("avg_pool", (5000,), kernel=3, at=1000).to_html()
    assert 'data-o="1000"' in far and 'data-i="3001"' in far and 'data-i="0"' not in far


def test_pages_do_not_flood_a_prompt() -> None:
    page = ln.explain("max_pool", X, kernel=2).to_html()
    assert page.startswith("<!DOCTYPE html>") and len(repr(page)) < 100 and f"{len(page):,} characters" in repr(page)
    frame = ET.fromstring(page._repr_html_())
    assert frame.tag == "iframe" and frame.get("srcdoc") == page.replace("\n", " ")  # as XML reads attributes


def _reads(told: ln.Explanation, axis: int, o: int) -> set[int]:
    strip = told.strips[axis]
    reach = strip.axis.reach(o, strip.n)
    return {reach.i + k * reach.i_step for k in range(reach.count)}


@pytest.mark.parametrize("shape", [(5,), (3, 4, 5), (2, 2, 2, 2), (100, 90)])
def test_every_rank_has_a_page(shape: tuple[int, ...]) -> None:
    ET.fromstring(ln.explain("max_pool", shape, kernel=2).to_html().partition("\n")[2])
    assert len(ln.explain("global_max_pool", shape).to_html()) < 200_000


# ---- notebooks


def test_results_show_themselves_in_notebooks() -> None:
    w = np.ones((2, 1, 3, 3), np.float32)
    x = np.zeros((1, 1, 6, 6), np.float32)
    graph = ln.trace(lambda v: ln.global_avg_pool(ln.relu(ln.conv(v, w)), keepdims=False), x)
    stats = graph.compile().stats()._repr_html_()
    assert stats.count("<tr>") == len(graph.compile().stats().nodes) + 1 and "GFLOP/s" in stats
    bounds = ln.bounds(graph, ln.Interval.around(x, 0.5))._repr_html_()
    assert bounds.count("<tr>") == 3 and "proven" in bounds
    rules = ln.rules()
    table = rules._repr_html_()  # type: ignore[attr-defined]
    assert all(f"<b>{name}</b>" in table for name in rules)
    box = ln.Interval.around(x, 0.5)
    verdict = ln.verify(graph, box, ln.Property.linear([1, 0], "<=", 5))._repr_html_()
    assert verdict.count("<tr>") == 2 and ">proved<" in verdict
    for page in (stats, bounds, table, verdict, box._repr_html_()):
        ET.fromstring(f"<div>{page}</div>")


def test_lists_are_data() -> None:
    assert str(ln.explain("max_pool", [[1, 2], [3, 4]], kernel=2)) == str(
        ln.explain("max_pool", np.array([[1, 2], [3, 4]]), kernel=2)
    )
    assert "y = 5/2" in str(ln.explain("max_pool", [1.5, 2.5], kernel=2))
    assert "(4, 3)" in str(ln.explain("max_pool", [4, 3], kernel=2, stride=1))  # whole numbers are sizes
    with pytest.raises(ln.ShapeError, match=r"explain \[D1\] needs rows of one length; got \[\[1, 2\], \[3\]\]"):
        ln.explain("max_pool", [[1, 2], [3]], kernel=2)


def test_the_plane_that_is_shown_is_named() -> None:
    found = ln.explain("max_pool", np.ones((1, 2, 4, 4)), kernel=2)
    words = "x[0, 0] of shape (1, 2, 4, 4)"
    assert words in str(found) and words in found.to_svg() and words in found.to_html()
    assert "x[0" not in str(ln.explain("max_pool", np.ones((1, 1, 4, 4)), kernel=2))


def test_a_convolution_is_explained_by_its_weights() -> None:
    found = ln.explain("conv", np.ones((1, 1, 5, 5)), np.ones((2, 1, 3, 2)), stride=2)
    assert str(found) == str(ln.explain("conv", np.ones((1, 1, 5, 5)), kernel=(3, 2), stride=2))
    with pytest.raises(
        ln.ArgumentError, match=r"max_pool \[O2\] needs the kernel of a convolution.*got w of shape \(\)"
    ):
        ln.explain("max_pool", (4, 4), 2)


def test_roots_of_whole_numbers() -> None:
    assert "y = 5;" in str(ln.explain("lp_pool", np.array([3, 4]), kernel=2, p=2))


def test_pictures_are_written_where_they_are_told(tmp_path: Path) -> None:
    for shown in (ln.explain("max_pool", (4,), kernel=2), ln.trace(ln.relu, np.ones(3))):
        path = tmp_path / "new" / "folder" / f"{type(shown).__name__}.svg"
        assert shown.to_svg(path) == path.read_text(encoding="utf-8") == shown.to_svg()
