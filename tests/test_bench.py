"""The benchmarks measure what they say: valid cases, adapters that agree, goals from data. Nothing here is timed."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lunette.bench import report
from lunette.bench.cases import DIRECTIONS, DTYPES, LAYERS, OPS, Layer, Problem, select
from lunette.bench.goals import goals
from lunette.bench.measure import NAMES, Bench, agree, result_of
from lunette.bench.result import Result, Run, Timing
from lunette.cli import app
from lunette.ops import ALL

every_layer = pytest.mark.parametrize("layer", [pytest.param(la, id=f"{la.op}:{la.name}") for la in LAYERS])


# ---- cases


@every_layer
def test_every_case_binds_and_so_does_its_small_version(layer: Layer) -> None:
    assert len(layer.bound.out) == len(layer.shapes[0])
    small = layer.shrunk()
    assert small.d == layer.d and len(small.bound.out) == len(small.shapes[0])
    assert sum(np.prod(s) for s in small.shapes) < 50_000


def test_names_are_unique_and_every_operator_is_measured() -> None:
    names = [(layer.op, layer.name) for layer in LAYERS]
    assert len(names) == len(set(names))
    assert set(OPS) == {kind.name for kind in ALL}
    assert {layer.op for layer in select(quick=True)} == set(OPS)


def test_operations_of_a_convolution_are_two_per_product() -> None:
    (layer,) = select(pattern="conv/resnet18/conv4_3x3", ops=["conv"])[:1]
    assert layer.operations("forward") == 2 * 256 * 14 * 14 * 256 * 9
    (up,) = select(pattern="dcgan/first")
    assert up.operations("vjp") == 2 * 2 * 100 * 512 * 16


def test_patterns_select() -> None:
    assert [layer.name for layer in select(["max_pool"], "tiny")] == ["tiny/max_pool"]
    assert {layer.op for layer in select(pattern="dcgan/*")} == {"conv_transpose"}
    assert not select(pattern="no such case")


# ---- adapters


@cache
def bench() -> Bench:
    return Bench(["lunette", *NAMES], 1, 1e-6)


SOME = [
    "conv:unet/head_1x1",
    "conv:resnext50/conv3_g32",
    "conv:mobilenet/112_s2",
    "conv:audio/wavenet_rate8",
    "conv:lattice/4d",
    "conv_transpose:upsample/3x3_s2_out",
    "conv_transpose:upsample/depthwise",
    "conv_transpose:medical/unet3d_up",
    "max_pool:resnet/3x3_s2",
    "max_pool:dilated/3x3_rate2",
    "avg_pool:inception/3x3_s1_inside",
    "avg_pool:video/3x3x3_s2",
    "smooth_max_pool:smooth/3x3_s2",
    "smooth_max_pool:smooth/video_2x2x2",
    "lp_pool:lp/3x3_s2_p3",
    "lp_pool:lp/audio_4",
    "adaptive_avg_pool:vgg/17_to_7",
    "adaptive_max_pool:vgg/14_to_7",
    "global_avg_pool:audio/4000",
    "global_max_pool:resnet/7x7",
]


@pytest.mark.filterwarnings("ignore")  # other people's
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", SOME)
def test_the_adapters_agree_with_lunette(name: str, direction: str) -> None:
    layer = next(la for la in LAYERS if f"{la.op}:{la.name}" == name).shrunk()
    dtype = DTYPES[SOME.index(name) % 2] if direction != "forward" else "float32"
    opened = bench().open(Problem(layer, direction, dtype))
    assert opened["lunette"].calls
    for peer, timing in opened.items():
        assert not timing.mismatch, (peer, timing.mismatch)
        assert bool(timing.calls) != bool(timing.absent), peer
        assert not any("differ" in why for why in timing.dropped.values()), (peer, timing.dropped)
    if layer.d < 4 and "PyTorch" in bench().peers:
        assert not opened["PyTorch"].absent


def test_a_wrong_answer_is_told_from_rounding() -> None:
    right = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    assert agree([right * np.float32(1 + 1e-5)], [right]) == ""
    wrong = right.copy()
    wrong[2, 7] += 1
    assert agree([wrong], [right]) == "1 of 400 cells differ"
    wrong[2, 7] = np.nan
    assert agree([wrong], [right]) == "1 of 400 cells differ"
    assert "shape" in agree([right.T], [right]) and "dtype" in agree([right.astype(np.float64)], [right])
    assert "2 results" in agree([right, right], [right])


# ---- report


def canned() -> Run:
    """Lunette takes a millisecond everywhere; PyTorch twelve, the others two, if they take part."""

    def result(layer: Layer, direction: str) -> Result:
        timings = {"lunette": Timing((1e-3,) * 3, 1), "copy": Timing((1e-3,), 1), "PyTorch": Timing((12e-3, 11e-3), 1)}
        timings["PyTorch channels-last"] = Timing((2e-3,), 1)
        timings["JAX"] = Timing((2e-3,), 1, "fast", {"fast": 2e-3, "reduce_window(logaddexp)": 6e-3})
        timings["ONNX Runtime"] = Timing(absent="inference only") if direction != "forward" else Timing((2e-3,), 1)
        timings["OpenVINO"] = Timing(mismatch="3 of 4 cells differ")
        return replace(result_of(Problem(layer, direction, "float32"), 2**20, timings), options={})

    results = tuple(result(layer, direction) for layer in LAYERS for direction in DIRECTIONS)
    return Run("2000-01-01", 1, {"cores": "2"}, {"PyTorch": "2"}, {}, {"float32": 100.0}, results)


def test_a_run_survives_json() -> None:
    run = canned()
    assert Run.of(json.loads(json.dumps(asdict(run)))) == run


def test_the_report_shows_ratios_reasons_and_goals() -> None:
    out = Console(file=io.StringIO(), width=200)
    report.show(canned(), out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    for word in ("11.50", "2.00", "wrong", "inference only", "3 of 4 cells differ", "GFLOP/s", "GB/s", "100 GFLOP/s"):
        assert word in text, word


def test_goals_are_computed_from_the_figures() -> None:
    run = canned()
    found = {(g.what, g.goal): g for g in goals(run)}
    assert all(g.met is not None for g in found.values())
    assert found["max_pool forward, 2-D", "≥ 10x PyTorch, geometric mean"].met
    assert found["smooth_max_pool VJP", "≥ 5x JAX reduce_window(logaddexp), geometric mean"].met
    assert not found["smooth_max_pool VJP", "≥ 10x the best PyTorch composition, geometric mean"].met
    assert found["max_pool 31x31, stride 1", "≤ 1.5 x the 5x5 time"].met
    slow = replace(run, results=tuple(_slower(r) if r.op == "avg_pool" else r for r in run.results))
    changed = {(g.what, g.goal) for g in goals(slow) if not g.met} - {k for k, g in found.items() if not g.met}
    assert changed and all(what.startswith("avg_pool") for what, _ in changed)
    assert {g.met for g in goals(replace(run, results=()))} == {None}


def _slower(result: Result) -> Result:
    return replace(result, timings={**result.timings, "lunette": Timing((1.0,), 1)})


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.plot(canned(), [tmp_path / "all.svg"])
    assert (tmp_path / "all.svg").stat().st_size > 10_000


# ---- the command


def test_a_small_run_measures_prints_and_writes(tmp_path: Path) -> None:
    where = tmp_path / "tiny.json"
    words = ["bench", "--quick", "--case", "tiny", "--op", "avg_pool", "--direction", "forward", "--peer", "PyTorch"]
    result = CliRunner().invoke(app, [*words, "--json", str(where), "--plot", str(tmp_path / "tiny.svg")])
    assert result.exit_code == 0, result.output
    assert "tiny/avg_pool" in result.output
    (measured,) = Run.load(where).results
    assert measured.lunette and measured.copy
    again = CliRunner().invoke(app, ["bench", "--show", str(where)])
    assert again.exit_code == 0 and "tiny/avg_pool" in again.output


def test_the_command_refuses_what_it_does_not_know() -> None:
    for words in (["--op", "pool"], ["--dtype", "int8"], ["--case", "no such case"], ["--peer", "MATLAB"]):
        assert CliRunner().invoke(app, ["bench", *words]).exit_code == 2
    assert "tiny/max_pool" in CliRunner().invoke(app, ["bench", "--list", "--case", "tiny"]).output
