"""The benchmarks measure what they say: valid cases, adapters that agree, goals from data. Nothing here is timed."""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from effort import ALL_OR_QUARTER
from lunette.array import resolved
from lunette.bench import report
from lunette.bench import unusual as numbers
from lunette.bench.arithmetics import programs
from lunette.bench.cases import DIRECTIONS, DTYPES, LAYERS, OPS, Layer, Problem, select
from lunette.bench.figures import COMPILE, GRAD_CHAIN, JVP_CHAIN, OVERHEAD
from lunette.bench.goals import Goal, goals
from lunette.bench.measure import network_problems, peers_of, problems, result_of
from lunette.bench.memory import Memory
from lunette.bench.networks import DIRECTIONS as NETWORK_DIRECTIONS
from lunette.bench.networks import GRADIENT, JVP_ALL, JVP_X, NETWORKS, Network, NetworkProblem, compiled
from lunette.bench.networks import select as select_networks
from lunette.bench.result import Result, Run, Timing
from lunette.bench.turns import NAMES, Bench, agree
from lunette.bench.workers import Worker
from lunette.cli import app
from lunette.op import KERNEL
from lunette.ops import ALL

ROOT = Path(__file__).parents[1]
every_layer = pytest.mark.parametrize("layer", [pytest.param(la, id=f"{la.op}:{la.name}") for la in LAYERS])


# ---- cases


@every_layer
def test_every_case_binds_and_so_does_its_small_version(layer: Layer) -> None:
    assert len(layer.resolved.out) == len(layer.shapes[0])
    small = layer.shrunk()
    assert small.d == layer.d and len(small.resolved.out) == len(small.shapes[0])
    assert sum(np.prod(s) for s in small.shapes) < 50_000


def test_names_are_unique_and_every_operator_is_measured() -> None:
    names = [(layer.op, layer.name) for layer in LAYERS]
    assert len(names) == len(set(names))
    assert set(OPS) == {kind.name for kind in ALL if KERNEL.has(kind)}
    assert {layer.op for layer in select(quick=True)} == set(OPS)


def test_operations_of_a_convolution_are_two_per_product() -> None:
    (layer,) = select(pattern="conv/resnet18/conv4_3x3", ops=["conv"])[:1]
    assert layer.operations("forward") == 2 * 256 * 14 * 14 * 256 * 9
    (up,) = select(pattern="dcgan/first")
    assert up.operations("vjp") == 2 * 2 * 100 * 512 * 16


def test_programs_are_measured_on_points_and_on_boxes_of_the_same_data() -> None:
    found = dict(programs())
    assert [name.split(" on ")[1] for name in found] == ["points", "boxes"] * 3
    for name, call in found.items():
        if not name.startswith("resnet18"):
            assert call("fast") in call("interval")


def test_patterns_select() -> None:
    assert [layer.name for layer in select(["max_pool"], "tiny")] == ["tiny/max_pool"]
    assert {layer.op for layer in select(pattern="dcgan/*")} == {"conv_transpose"}
    assert not select(pattern="no such case")


def test_networks_are_six_at_two_batches_and_quick_ones_are_small() -> None:
    models = ("lenet", "vgg11", "resnet18", "unet", "mobilenet", "c3d")
    assert [n.name for n in NETWORKS] == [f"{model}/b{batch}" for model in models for batch in (1, 32)]
    assert [n.name for n in select_networks(quick=True)] == ["lenet/b1", "unet/b1"]
    assert [n.name for n in select_networks("resnet18/b*")] == ["resnet18/b1", "resnet18/b32"]
    one, many = select_networks("resnet18")
    assert one.out == (1, 1000) and many.operations("forward") == 32 * one.operations("forward")
    assert round(one.operations("forward") / 2e9, 1) == 1.8  # the figure that everyone gives for ResNet-18
    assert round(select_networks("mobilenet/b1")[0].operations("forward") / 2e6, -1) == 570  # and for MobileNet


def test_the_counted_operations_are_those_of_the_program() -> None:
    for network in NETWORKS:
        small = network.shrunk()
        counted = compiled(small, small.data()).stats(repeat=1).flops  # with additions, maxima and the like
        assert 1 <= counted / small.operations("forward") < 1.2


# ---- adapters


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    yield Bench(["lunette", *NAMES], 1, 1e-6)
    # JAX's compiled functions outlive the interpreter, and their globals with them: nanobind would report our operators
    resolved.RESOLVED.clear()
    resolved.QUICK.clear()


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
@pytest.mark.parametrize("name", SOME[ALL_OR_QUARTER])
def test_the_adapters_agree_with_lunette(bench: Bench, name: str, direction: str) -> None:
    layer = next(la for la in LAYERS if f"{la.op}:{la.name}" == name).shrunk()
    dtype = DTYPES[SOME.index(name) % 2] if direction != "forward" else "float32"
    opened = bench.open(Problem(layer, direction, dtype))
    assert opened["lunette"].calls
    for peer, timing in opened.items():
        assert not timing.mismatch, (peer, timing.mismatch)
        assert bool(timing.calls) != bool(timing.absent), peer
        assert not any("cells differ" in why for why in timing.dropped.values()), (peer, timing.dropped)
    if layer.d < 4 and "PyTorch" in bench.peers:
        assert not opened["PyTorch"].absent


SMALL = [n.shrunk() for n in NETWORKS if n.batch == 1]
every_small_network = pytest.mark.parametrize(
    "network", [pytest.param(n, id=n.model.name) for n in SMALL[ALL_OR_QUARTER]]
)


@pytest.mark.filterwarnings("ignore")  # other people's
@pytest.mark.parametrize("direction", ["forward", "gradient"])
@every_small_network
def test_every_toolbox_agrees_with_lunettes(bench: Bench, network: Network, direction: str) -> None:
    """torch.compile has the toolbox of PyTorch and takes a minute for a large network: it is asked once."""
    few = Bench([n for n in NAMES if n != "torch.compile" or network.model.name == "lenet"], 1, 1e-6)
    opened = few.open(NetworkProblem(network, direction))
    assert {"PyTorch", "JAX", "ONNX Runtime"} <= set(opened)
    for peer, timing in opened.items():
        assert not timing.mismatch, (peer, timing.mismatch)
        assert bool(timing.calls) != bool(timing.absent), peer
        if timing.absent:
            known = ("not installed", "inference only") if peer != "torch.compile" else ("",)  # it needs a compiler
            assert any(word in timing.absent for word in known), (peer, timing.absent)


def test_lunettes_own_derivatives_take_turns(bench: Bench) -> None:
    opened = bench.open(NetworkProblem(SMALL[0], "derivatives"))
    assert list(opened) == ["lunette", JVP_X, JVP_ALL, GRADIENT]
    assert all(bench.turn(name) > 0 for name in opened)


def test_libraries_are_started_only_for_what_they_take_part_in() -> None:
    layers, networks = problems(LAYERS[:1], ["forward"], ["float32"]), network_problems(NETWORKS[:1], ["forward"])
    assert "torch.compile" not in peers_of(layers) and "PyTorch channels-last" not in peers_of(networks)
    assert set(peers_of([*layers, *networks])) == set(NAMES)


def test_memory_of_a_network_is_planned_and_counted() -> None:
    problem = NetworkProblem(next(n for n in SMALL if n.model.name == "unet"), "forward")
    worker = Worker(Memory, 1)  # it forks, which JAX in this process does not like
    try:
        found = worker.ask("network", problem)
    finally:
        worker.close()
    assert 0 < found["largest live set"] <= found["arena"]


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
    few = right.copy()
    few[0, :3] += 0.01
    assert agree([few], [right]) and not agree([few], [right], network=True)
    few[0, 0] = np.nan
    for bad in (few, -right, right * np.float32(1.1)):
        assert "differs" in agree([bad], [right], network=True)


# ---- report


def canned() -> Run:
    """Lunette takes a millisecond everywhere; PyTorch twelve, the others two, if they take part."""

    def result(layer: Layer, direction: str) -> Result:
        timings = {"lunette": Timing((1e-3,) * 3, 1), "copy": Timing((1e-3,), 1), "PyTorch": Timing((12e-3, 11e-3), 1)}
        timings["PyTorch channels-last"] = Timing((2e-3,), 1)
        timings["JAX"] = Timing((2e-3,), 1, "fast", {"fast": 2e-3, "reduce_window(logaddexp)": 6e-3})
        timings["ONNX Runtime"] = Timing(absent="inference only") if direction != "forward" else Timing((2e-3,), 1)
        timings["OpenVINO"] = Timing(mismatch="3 of 4 cells differ")
        found = result_of(Problem(layer, direction, "float32"), 2**20, timings)
        return replace(found, options=json.loads(json.dumps(found.options)))

    def network_result(network: Network, direction: str) -> Result:
        peers = {"PyTorch": 2e-3, "torch.compile": 0.5e-3, "JAX": 2e-3, "ONNX Runtime": 1.5e-3, "OpenVINO": 1.5e-3}
        own = {JVP_X: 2e-3, JVP_ALL: 4e-3, GRADIENT: 3e-3}
        chosen = own if direction == "derivatives" else peers
        timings = {n: Timing((s,), 1) for n, s in {"lunette": 1e-3, **chosen}.items()}
        memory = (
            {"arena": 100 << 20, "largest live set": 100 << 20, "PyTorch": 200 << 20} if direction == "forward" else {}
        )
        return result_of(NetworkProblem(network, direction), 150 << 20 if memory else None, timings, memory)

    results = tuple(result(layer, direction) for layer in LAYERS for direction in DIRECTIONS)
    results += tuple(network_result(n, direction) for n in NETWORKS for direction in NETWORK_DIRECTIONS)
    figures = {COMPILE: 0.5, GRAD_CHAIN: 0.5, JVP_CHAIN: 1.5, f"{OVERHEAD}: conv": 1e-5, f"{OVERHEAD}: max_pool": 2e-5}
    return Run("2000-01-01", 1, {"cores": "2"}, {"PyTorch": "2"}, {}, {"float32": 100.0}, results, figures)


def test_the_page_of_figures_is_written_from_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands between its marks is what was measured; the rest is left as it is."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    figures = importlib.import_module("figures")
    page = tmp_path / "README.md"
    page.write_text((ROOT / "benchmarks" / "README.md").read_text())
    monkeypatch.setattr(figures, "PAGE", page)
    paths = []
    for word in ("quick", "networks"):
        for threads in (1, 2):
            paths.append(str(tmp_path / f"{word}-{threads}t.json"))
            replace(canned(), threads=threads).save(Path(paths[-1]))
    figures.main(paths)
    written = page.read_text()
    assert f"| {NETWORKS[0].name} | 1 ms | 2.00 | 1.50 | 1.50 | 1 ms | 2.00 | 1.50 | 1.50 |" in written
    assert f"| {NETWORKS[0].name} | 1 ms | 2.00 | **0.50** | 2.00 |" in written  # value and gradient
    known = [g for g in goals(canned()) if g.met is not None]
    counted = f"{sum(g.met is True for g in known)} of {len(known)}"
    assert f"| together |  | {counted} |  | {counted} |  |" in written
    figures.main(paths)
    assert page.read_text() == written
    page.write_text(written.replace("<!-- goals -->", ""))
    with pytest.raises(AssertionError, match="no block goals"):
        figures.main(paths)


def test_a_run_survives_json() -> None:
    run = canned()
    assert Run.of(json.loads(json.dumps(asdict(run)))) == run


def test_the_report_shows_ratios_reasons_and_goals() -> None:
    out = Console(file=io.StringIO(), width=200)
    report.show(canned(), out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    for word in (
        "11.50",
        "2.00",
        "wrong",
        "inference only",
        "3 of 4 cells differ",
        "GFLOP/s",
        "GB/s",
        "100 GFLOP/s",
        "JVP in all",
        "compile",
    ):
        assert word in text, word


def test_goals_are_computed_from_the_figures() -> None:
    run = canned()
    found = {(g.what, g.goal): g for g in goals(run)}
    assert all(g.met is not None for g in found.values())
    assert found["max_pool forward, 2-D", "≥ 10x PyTorch, geometric mean"].met
    assert found["smooth_max_pool VJP", "≥ 5x JAX reduce_window(logaddexp), geometric mean"].met
    assert not found["smooth_max_pool VJP", "≥ 6x the best PyTorch composition, geometric mean"].met
    assert found["max_pool 31x31, stride 1", "≤ 1.5 x the 5x5 time"].met
    assert found["networks forward", "≥ 1.2x PyTorch, geometric mean"].met
    assert not found["networks forward", "none below 1x torch.compile"].met
    assert found["networks: JVP in x", "≤ 2.2 x forward"].met
    assert not found["networks: JVP in all", "≤ 3.3 x forward"].met
    assert found["networks forward: activations as planned", "≤ 1.15 x the largest live set"].met
    workspace = found[
        "networks forward: activations and workspace", "≤ 1.15 x the largest live set, beside 8 MiB for each thread"
    ]
    assert not workspace.met and workspace.measured.startswith("1.42 ")
    assert found["networks forward: activations and workspace", "≤ 1 x PyTorch under inference_mode"].met
    assert found[COMPILE, "< 1 s"].met and not found[JVP_CHAIN, "< 1 s"].met
    assert not found["ln.vjp of one operator on small arrays", "≤ 15 µs beyond its forward and VJP kernels"].met
    slow = replace(run, results=tuple(_slower(r) if r.op == "avg_pool" else r for r in run.results))
    changed = {(g.what, g.goal) for g in goals(slow) if not g.met} - {k for k, g in found.items() if not g.met}
    assert changed and all(what.startswith("avg_pool") for what, _ in changed)
    assert {g.met for g in goals(replace(run, results=()))} == {None}


def test_the_commonest_pools_are_measured_against_copying_their_input() -> None:
    run = canned()
    for op in ("max_pool", "avg_pool"):
        forward = [r for r in run.results if r.op == op and r.direction == "forward" and r.d == 2]
        short = [r for r in forward if re.search("2x2|3x3_s2|tiny", r.case)]
        assert len(short) >= 7

        def goal(slow: Sequence[Result], op: str = op) -> Goal:
            results = tuple(_slower(r) if r in slow else r for r in run.results)
            what = f"{op} forward, 3x3 stride 2 and 2x2"
            return next(g for g in goals(replace(run, results=results)) if g.what == what)

        assert goal([]).met and goal([]).goal == "≤ 1 x the time to copy the input"
        assert goal([r for r in run.results if r not in short]).met
        for r in short:
            found = goal([r])
            assert not found.met and r.case in found.measured
            assert found.measured.endswith(f"{len(short) - 1} of {len(short)} within")


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


def test_a_small_run_of_a_network(tmp_path: Path) -> None:
    where = tmp_path / "lenet.json"
    words = ["bench", "--networks", "--quick", "--case", "lenet", "--peer", "PyTorch", "--json", str(where)]
    result = CliRunner().invoke(app, [*words, "--plot", str(tmp_path / "lenet.svg")])
    assert result.exit_code == 0, result.output
    run = Run.load(where)
    assert [r.direction for r in run.results] == list(NETWORK_DIRECTIONS)
    assert run.figures[COMPILE] > 0 and run.results[0].memory["arena"] > 0
    assert "lenet/b1" in result.output and "x forward" in result.output


def test_the_command_refuses_what_it_does_not_know() -> None:
    for words in (
        ["--op", "pool"],
        ["--dtype", "int8"],
        ["--case", "no such case"],
        ["--peer", "MATLAB"],
        ["--networks", "--op", "conv"],
    ):
        assert CliRunner().invoke(app, ["bench", *words]).exit_code == 2
    assert "tiny/max_pool" in CliRunner().invoke(app, ["bench", "--list", "--case", "tiny"]).output
    assert CliRunner().invoke(app, ["bench", "--list", "--bridges"]).exit_code == 2  # which would measure for a minute


def test_unusual_numbers_have_the_shapes_of_random_ones_and_a_ratio() -> None:
    layer = select(["conv"], "resnet18/conv2_3x3")[0].shrunk()
    usual = layer.data("float32")
    zeros, dead, margin, strange, small = (
        numbers.unusual(usual, kind).arrays[0] for kind in ("zeros", "dead", "margin", "nan", "denormal")
    )
    assert not zeros.any() and not dead[:, ::2].any() and dead[:, 1::2].all()
    assert not margin[:, :, 0].any() and not margin[..., -1].any()
    assert np.isnan(strange).sum() == 1
    assert (abs(small) < np.finfo(np.float32).tiny).all() and small.any()
    for kind in numbers.KINDS:
        data = numbers.unusual(usual, kind)
        assert [a.shape for a in data.arrays] == [a.shape for a in usual.arrays] and data.g.shape == usual.g.shape
        assert data.arrays[1] is usual.arrays[1]  # weights are as they were
    assert numbers.ratio(Problem(layer, "vjp", "float32"), "zeros", 0.0) > 0
