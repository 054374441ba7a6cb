"""The command line, and the pictures it draws."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import _ints, app, main

runner = CliRunner()


def run(*words: str) -> str:
    result = runner.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_tour_shows_fractions_beside_floats_and_a_window() -> None:
    text = run("tour")
    assert "4/3" in text and "1.333" in text and "overhang" in text
    for name in ("conv_transpose", "smooth_max_pool", "global_max_pool"):
        assert name in text


def test_info_names_version_instruction_set_threads_and_backends() -> None:
    text = run("info")
    for word in (ln.__version__, ln.instruction_set(), "threads", "torch", "onnxruntime"):
        assert word in text


def test_explain_marks_padding_overhang_and_divisor() -> None:
    text = run(
        "explain", "avg_pool", "--shape", "5", "--kernel", "3", "--stride", "2", "--padding", "1:0", "--ceil-mode"
    )
    assert "reads 0, 1; 1 padding; divisor 3" in text
    assert "reads 3, 4; 1 overhang; divisor 2" in text


def test_explain_of_a_plane_lists_every_output_cell() -> None:
    text = str(ln.explain("max_pool", (3, 4), kernel=2, stride=1))
    assert "o=(1, 2): {1, 2} x {2, 3}" in text
    assert text.count("o=(") == 6


def test_explain_takes_the_last_axes_where_a_tuple_or_spatial_says_how_many() -> None:
    want = str(ln.explain("max_pool", (8, 6), kernel=2))
    assert str(ln.explain("max_pool", (1, 3, 8, 6), kernel=(2, 2))) == want
    assert str(ln.explain("max_pool", (1, 3, 8, 6), kernel=2, spatial=2)) == want
    whole = str(ln.explain("global_avg_pool", (8, 6)))
    assert str(ln.explain("global_avg_pool", (1, 3, 8, 6), spatial=2)) == whole
    assert ln.explain("max_pool", (), kernel=2).out == ()


def test_explain_of_transposed_windows_names_the_kernel_cells() -> None:
    assert "reads 1(k0), 0(k2)" in run("explain", "conv_transpose", "--shape", "3", "--kernel", "3", "--stride", "2")


def test_explain_of_huge_windows_is_short_and_quick() -> None:
    text = str(ln.explain("avg_pool", (2**40,), kernel=2**39, stride=2**38, padding=2**20))
    assert len(text.splitlines()) < 60 and all(len(line) < 400 for line in text.splitlines())


def test_a_row_of_a_long_input_follows_its_window() -> None:
    text = run("explain", "avg_pool", "--shape", "100", "--kernel", "3", "--stride", "10", "--padding", "1")
    rows = [line for line in text.splitlines() if line.startswith("  o=")]
    assert len(rows) == 10 and all(row.count("■") + row.count("p■") == 3 for row in rows)
    assert rows[0].startswith("  o=0    -1:     p■■·") and " ..." in rows[0] and "...   reads" not in rows[9]
    for op, options in (("conv_transpose", {"kernel": 3, "stride": 3}), ("adaptive_avg_pool", {"output_size": 9})):
        explanation = ln.explain(op, (300,), **options)
        (strip,) = explanation.strips
        for o in range(strip.m):
            reads = strip.counts(o)[0]
            assert strip.marks(o).count("■") == reads and len(strip.cells(o)) == 48
    assert all(
        strip.marks(o).count("■") == 3 for strip in ln.explain("max_pool", (99, 99), kernel=3).strips for o in (0, 32)
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("max_pool", "--kernel", "2", "--exclude-pad"), "max_pool has no --exclude-pad; it has --kernel, --stride"),
        (("max_pool", "--kernel", "2", "--output-size", "3"), "max_pool has no --output-size"),
        (("global_max_pool", "--kernel", "2"), "global_max_pool has no --kernel; it has no options"),
        (("conv",), "conv needs --kernel, such as 3 or 3,2"),
        (("adaptive_avg_pool",), "adaptive_avg_pool needs --output-size"),
        (("max_pool", "--kernel", "x"), "Invalid value for --kernel: 'x' is no whole number"),
        (("max_pool", "--kernel", "2", "--padding", "sme"), "Did you mean same?"),
        (
            ("max_pool", "--kernel", "2", "--padding", "1,1"),
            "Write 1, or 1,2 for each axis, or 1:2,0:0 for lo:hi pairs.",
        ),
        (("max_pol", "--kernel", "2"), "Did you mean max_pool?"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_command_line(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["lunette", "explain", *words, "--shape", "5"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert text in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_explain_knows_every_operator() -> None:
    calls: dict[str, dict[str, Any]] = {
        "conv": {"kernel": 3, "padding": "same"},
        "smooth_max_pool": {"kernel": 3},
        "lp_pool": {"kernel": (3,)},
        "adaptive_max_pool": {"output_size": 3},
        "global_avg_pool": {},
    }
    for op, options in calls.items():
        assert str(ln.explain(op, (7,), **options)).startswith(f"{op} (d=1): space (7,)")


def test_pictures_are_svg_files(tmp_path: Path) -> None:
    graph = ln.Graph()
    graph.output(ln.relu(graph.input((2,))))
    graph.save(tmp_path / "net.json")
    for words in (
        ("draw", str(tmp_path / "net.json"), "-o", str(tmp_path / "net.png")),
        ("explain", "max_pool", "--shape", "5", "--kernel", "3", "--svg", str(tmp_path / "net.png")),
    ):
        result = runner.invoke(app, list(words))
        assert result.exit_code == 2 and "SVG" in result.output and not (tmp_path / "net.png").exists()
    run("draw", str(tmp_path / "net.json"), "-o", str(tmp_path / "net.svg"))


def test_threads_are_at_most_what_there_can_be(tmp_path: Path) -> None:
    for command in (["profile", "net.json"], ["bench"]):
        result = runner.invoke(app, [*command, "--threads", "500"])
        assert result.exit_code == 2 and "256" in result.output


def test_the_tour_points_to_what_is_installed() -> None:
    text = run("tour")
    assert "docs/" not in text and "pydoc lunette.ops.max_pool" in text


def test_the_picture_is_an_svg_with_one_panel_per_window(tmp_path: Path) -> None:
    target = tmp_path / "window.svg"
    run("explain", "avg_pool", "--shape", "4,5", "--kernel", "2,3", "--padding", "0:1,1:1", "--svg", str(target))
    root = ET.fromstring(target.read_text())
    texts = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if t.startswith("o=(")] == [
        f"o=({i}, {j}), divided by 6" for i in range(2) for j in range(2)
    ]


def test_the_picture_of_a_solid_says_that_strips_are_axes() -> None:
    picture = ln.explain("max_pool", (3, 4, 4), kernel=2, stride=2).to_svg()
    assert "d=3: a strip is one axis of a window" in picture and "axis 2, o=1" in picture and "first" not in picture


def test_a_refusal_is_one_sentence_and_status_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["lunette", "explain", "max_pool", "--shape", "3", "--kernel", "5"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "max_pool (d=1) [W2] needs a padded size >= span 5" in " ".join(capsys.readouterr().err.split())


def test_numbers_on_the_command_line() -> None:
    assert _ints("5") == 5
    assert _ints("3,2") == (3, 2)
    assert _ints("1:2,0:0") == ((1, 2), (0, 0))
    assert _ints("1:2") == ((1, 2),)
    assert _ints("same", "padding") == "same"
