"""Pictures of graphs, and the commands that draw and profile a saved graph."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app, main
from lunette.graph.draw import MOST_BOXES, Box, _boxes, _even_cuts, _inversions, _Layout, to_svg

SVG = "{http://www.w3.org/2000/svg}"
runner = CliRunner()


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def plain() -> ln.Graph:
    g = ln.Graph()
    x = g.input((1, 3, 8, 8), name="x")
    h = ln.relu(ln.conv(x, zeros(16, 3, 3, 3), zeros(16), padding=1))
    g.output(ln.smooth_max_pool(h, 2, beta=4.0, stride=1) * 0.5)
    return g


def residual(blocks: int = 8) -> ln.Graph:
    g = ln.Graph()
    h = g.input((1, 8, 16, 16), name="x")
    for k in range(blocks):
        side = ln.conv(h, zeros(8, 8, 1, 1)) if k % 2 else h
        h = ln.relu(ln.conv(ln.relu(ln.conv(h, zeros(8, 8, 3, 3), padding=1)), zeros(8, 8, 3, 3), padding=1) + side)
    g.output(h)
    return g


def training() -> ln.Graph:
    def loss(p: Any, x: Any, y: Any) -> Any:
        h = ln.max_pool(ln.relu(ln.conv(x, p["w"], p["b"], padding=1)), 2)
        return ln.cross_entropy(ln.linear(ln.global_avg_pool(h, keepdims=False), p["v"]), y)

    p = {"w": zeros(4, 1, 3, 3), "b": zeros(4), "v": zeros(3, 4)}
    return ln.trace(ln.value_and_grad(loss), p, zeros(2, 1, 8, 8), np.zeros(2, np.int64))


def chain(length: int) -> ln.Graph:
    g = ln.Graph()
    h = g.input((2,), name="x")
    for _ in range(length):
        h = ln.relu(h)
    g.output(h)
    return g


def only_an_input() -> ln.Graph:
    g = ln.Graph()
    x = g.input((), name="x")
    g.output(x, x)
    return g


def shared_and_unused() -> ln.Graph:
    """A constant of two readers, one without, a constant that is an output, and a node that nothing needs."""
    g = ln.Graph()
    x, w = g.input((2, 3), name="x"), np.arange(6, dtype=np.float32).reshape(2, 3)
    y = x * w
    ln.exp(y)
    g.constant(np.ones(5, np.float32))
    g.output(y + w, g.constant(np.float32(7) * np.ones(3, np.float32)))
    return g


GRAPHS: dict[str, Callable[[], ln.Graph]] = {
    "plain": plain,
    "residual": residual,
    "training": training,
    "one": only_an_input,
    "shared": shared_and_unused,
    "chain of 300": lambda: chain(300),
    "chain of 2000": lambda: chain(2000),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_node_is_in_the_picture_with_its_line(name: str) -> None:
    graph = GRAPHS[name]()
    root = ET.fromstring(graph.to_svg())
    nodes = [e for e in root.iter(f"{SVG}g") if "node" in (e.get("class") or "").split()]
    titles = "\n".join(e.findtext(f"{SVG}title") or "" for e in nodes).splitlines()
    for line in str(graph).splitlines()[:-1]:
        assert line in titles
    assert sum("output" in (e.get("class") or "") for e in nodes) in (1, len(graph.outputs))
    keys = [e.get("data-node") for e in nodes]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_copy_have_the_same_picture(name: str) -> None:
    from lunette.graph.text import named_constants

    graph = GRAPHS[name]()
    copy = ln.Graph.parse(str(graph), named_constants(graph))
    assert graph.to_svg() == graph.to_svg() == copy.to_svg()


def rectangles(svg: str) -> list[tuple[float, float, float, float]]:
    boxes = [e for e in ET.fromstring(svg).iter(f"{SVG}rect") if e.get("class") == "box"]
    return [
        (float(e.get("x", "")), float(e.get("y", "")), float(e.get("width", "")), float(e.get("height", "")))
        for e in boxes
    ]


@pytest.mark.parametrize("name", ["plain", "residual", "training", "one", "shared", "chain of 300"])
def test_boxes_do_not_overlap_and_lie_on_the_canvas(name: str) -> None:
    no_collisions(GRAPHS[name]().to_svg())


def no_collisions(svg: str) -> None:
    found = rectangles(svg)
    width, height = (float(v) for v in re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    for at, (x, y, w, h) in enumerate(found):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for p, q, v, k in found[:at]:
            assert x + w <= p or p + v <= x or y + h <= q or q + k <= y


@pytest.mark.parametrize("name", ["plain", "residual", "training", "shared"])
def test_lines_cross_no_box(name: str) -> None:
    assert lines_are_free(GRAPHS[name]().to_svg())


def lines_are_free(svg: str) -> int:
    """Points along every line, those at its two ends aside, are outside of all boxes."""
    boxes = rectangles(svg)
    root = ET.fromstring(svg)
    paths = [e.get("d", "") for g in root.iter(f"{SVG}g") if g.get("class") == "edge" for e in g]
    for d in paths:
        for x, y in points(d)[1:-1]:
            assert not [b for b in boxes if b[0] < x < b[0] + b[2] and b[1] + 0.5 < y < b[1] + b[3] - 0.5], d
    return len(paths)


def points(d: str) -> list[tuple[float, float]]:
    """Along a path of M, V, H, C and q."""
    found: list[tuple[float, float]] = []
    x = y = 0.0
    for letter, rest in re.findall(r"([MVHCq])([^MVHCq]*)", d):
        v = [float(n) for n in rest.split()]
        if letter == "M":
            x, y = v
            found.append((x, y))
            continue
        if letter == "q":
            ends = [(x, y), (x + v[0], y + v[1]), (x + v[2], y + v[3])]
        else:
            ends = [(x, y)]
            ends += (
                [(x, v[0])]
                if letter == "V"
                else [(v[0], y)]
                if letter == "H"
                else list(zip(v[::2], v[1::2], strict=True))
            )
        for k in range(1, 21):
            level = ends
            while len(level) > 1:
                level = [(a + (c - a) * k / 20, b + (e - b) * k / 20) for (a, b), (c, e) in pairwise(level)]
            found += level
        x, y = ends[-1]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_any_graph_has_a_picture_without_collisions(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 60))
    boxes = [Box("cells", f"n{k}", "", "x" * int(random.integers(1, 20)), "f32[]") for k in range(count)]
    pairs = {
        (int(random.integers(max(0, b - 12), b)), b) for b in range(1, count) for _ in range(random.integers(0, 4))
    }
    layout = _Layout(boxes, sorted(pairs))
    assert all(layout.boxes[a].layer < layout.boxes[b].layer for a, b in pairs)
    svg = layout.picture("random")
    no_collisions(svg)
    lines_are_free(svg)


def test_a_graph_without_nodes_has_a_picture() -> None:
    assert ET.fromstring(ln.Graph().to_svg()).tag == f"{SVG}svg"


def test_a_constant_is_written_into_its_only_reader() -> None:
    svg = plain().to_svg()
    texts = [e.text for e in ET.fromstring(svg).iter(f"{SVG}text")]
    assert "w f32[16,3,3,3]" in texts and "b f32[16]" in texts and "padding 1" in texts
    assert "beta 4" in texts and "y 0.5" in texts
    shared = ET.fromstring(shared_and_unused().to_svg())
    assert len([e for e in shared.iter(f"{SVG}g") if "constant" in (e.get("class") or "")]) == 3


def test_residual_networks_go_on_in_columns_and_large_graphs_are_lists() -> None:
    svg = residual().to_svg()
    assert len({x for x, _, _, _ in rectangles(svg)}) < 20 and svg.count("q7.0 0") >= 2  # the way to the next column
    assert 'class="edge"' not in chain(MOST_BOXES + 1).to_svg()
    assert chain(3).to_svg().count("<path d=") == 4


def test_main_paths_are_straight() -> None:
    boxes, edges = _boxes(residual(2))
    layout = _Layout(boxes, edges)
    main = [b for b in layout.boxes[: layout.real] if b.name in ("relu", "add")]
    assert len({b.x for b in main}) == 1


def test_inversions_are_the_lines_that_cross() -> None:
    random = np.random.default_rng(0)
    for n in range(8):
        values = random.integers(0, 6, n).tolist()
        assert _inversions(values) == sum(values[a] > values[b] for b in range(n) for a in range(b))


def test_columns_are_cut_where_they_may_be() -> None:
    assert _even_cuts([1.0] * 12, set(range(12)), 3) == [4, 8]
    assert _even_cuts([1.0] * 12, {6}, 3) == [7]
    assert _even_cuts([1.0] * 12, {0}, 3) == [] == _even_cuts([1.0] * 12, set(), 3)


def test_text_is_escaped_and_fits() -> None:
    box = Box("cells", "n0", 'a < b & "c"', "name", "f32[]")
    layout = _Layout([box], [])
    svg = layout.picture("<title>")
    assert ET.fromstring(svg) is not None and "a &lt; b &amp;" in svg
    assert box.width >= 7 * len("name" + "f32[]")


def test_pictures_have_a_name_in_notebooks() -> None:
    assert to_svg(plain()).startswith("<svg ")


# ---- commands


def run(*words: str) -> str:
    result = runner.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_draw_writes_a_picture_beside_the_file_or_where_it_is_told(tmp_path: Path) -> None:
    graph = plain()
    graph.save(tmp_path / "model.json")
    assert "wrote" in run("draw", str(tmp_path / "model.json"))
    assert (tmp_path / "model.svg").read_text(encoding="utf-8") == graph.to_svg()
    run("draw", str(tmp_path / "model.json"), "-o", str(tmp_path / "other.svg"))
    assert (tmp_path / "other.svg").read_text(encoding="utf-8") == graph.to_svg()


def test_profile_prints_steps_shares_and_memory(tmp_path: Path) -> None:
    plain().save(tmp_path / "model.json")
    before = ln.get_num_threads()
    text = run("profile", str(tmp_path / "model.json"), "--threads", "1", "--repeat", "2")
    assert ln.get_num_threads() == before
    for word in ("1 thread", "GFLOP/s", "conv(", "relu", "100.0%", "memory:", "constants", "FLOP"):
        assert word in text
    short = run("profile", str(tmp_path / "model.json"), "--top", "1", "--repeat", "1")
    assert len(short.splitlines()) < len(text.splitlines())


@pytest.mark.parametrize("command", ["draw", "profile"])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": "lunette-graph", "version": 99}',
        json.dumps({"format": "lunette-graph", "version": 1, "constants": [], "graph": ["import os", "return %0"]}),
        json.dumps({"format": "lunette-graph", "version": 1, "constants": ["c1"], "graph": ["return %0"]}),
        '{"format": "[/bold] [red]"}',
        "\x00\xff",
    ],
)
def test_a_damaged_file_is_one_line_and_status_two(
    command: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content.encode("latin-1"))
    monkeypatch.setattr("sys.argv", ["lunette", command, str(file)])
    with pytest.raises(SystemExit) as stop:
        main()
    caught = capsys.readouterr()
    assert stop.value.code == 2 and not caught.out
    assert caught.err.startswith("error:") and len(caught.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["lunette", "profile", str(tmp_path / "none.json")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2 and "none.json" in capsys.readouterr().err.replace("\n", "")
