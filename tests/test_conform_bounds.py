"""Claimed bounds are measured: what was planted is found and named, ours pass, and no answer stops a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from typer.testing import CliRunner

import claims
import lunette as ln
from lunette.cli import app
from lunette.conform.backends import find
from lunette.conform.backends.auto_lirpa import is_here
from lunette.conform.backends.backend import register
from lunette.conform.backends.bounds import Claimed, language_of
from lunette.conform.case import Case
from lunette.conform.generate import draws
from lunette.conform.module import as_module
from lunette.conform.networks import is_network
from lunette.conform.question import Question, is_outside
from lunette.conform.result import Batch, Report, Verdict
from lunette.conform.run import conform, run
from lunette.errors import LunetteError

MORE = os.getenv("HYPOTHESIS_PROFILE") == "nightly"
FOLDER = Path(__file__).parent
WINDOWS = ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool", "global_avg_pool")


def some_cases(op: str, many: int, name: str = "lunette as bounds") -> list[Case]:
    found = find(name)
    return [case for case, why_not in draws(Batch(name, op, 0, 1, many), found) if why_not is None]


# ---- questions


@pytest.mark.parametrize("op", find("lunette as bounds").space.ops)
def test_points_are_in_the_box_and_values_are_those_of_the_network(op: str) -> None:
    for case in some_cases(op, 40 if MORE else 3):
        q = Question(case)
        assert (q.lo <= q.hi).all() and is_network(case)
        assert str(Question(eval(repr(case), {"Case": Case})).graph) == str(q.graph)
        assert (q.points >= q.lo[0]).all() and (q.points <= q.hi[0]).all() and q.points.shape[1:] == q.lo.shape[1:]
        at = len(q.points) // 2
        exact = q.value(q.points[at][None])
        error = np.abs(exact.astype(float) - q.values[at][None])
        assert error.max() <= 1e-9 * (1 + np.abs(q.values[at]).max())


def test_points_reach_both_ends_of_every_output_of_an_affine_network() -> None:
    q = Question(Case("conv", ((1, 2, 4, 5), (3, 2, 2, 3)), {"padding": ((1, 1), (1, 1))}, mode="bounds", seed=5))
    least, most = claims.of_one_convolution(q.graph, q.lo, q.hi, np.float64)
    assert (q.values.min(0) == least[0]).all() and (q.values.max(0) == most[0]).all() and (least < most).all()


def test_every_window_and_layer_is_asked_about() -> None:
    asked = [case for op in find("lunette as bounds").space.ops for case in some_cases(op, 60)]
    options = {name for case in asked for name, value in case.options.items() if value}
    assert options >= {
        "stride",
        "padding",
        "dilation",
        "ceil_mode",
        "count_include_pad",
        "divisor",
        "groups",
        "p",
        "beta",
    }
    assert {case.d for case in asked} == {1, 2, 3} and {case.dtype for case in asked} == {"float32", "float64"}
    assert {name for case in asked for name in (*case.before, *case.after)} == {"relu", "conv", "residual", "linear"}
    assert any(not case.before and not case.after for case in asked)


def test_an_end_itself_is_inside_and_an_infinite_end_excludes_nothing() -> None:
    assert not is_outside(Fraction(1), 1.0, 1.0) and not is_outside(Fraction(1), -np.inf, np.inf)
    assert is_outside(Fraction(1), np.nextafter(1, 2), 2.0) and is_outside(Fraction(1), 0.0, np.nextafter(1, 0))
    assert is_outside(flint.arb(1), 2.0, 3.0) and not is_outside(flint.arb(1, 0.5), 1.25, 3.0)


@pytest.mark.parametrize("op", WINDOWS)
def test_a_module_is_the_network(op: str) -> None:
    torch = pytest.importorskip("torch")
    said = 0
    for case in some_cases(op, 60 if MORE else 4, "lunette as bounds"):
        q = Question(case)
        try:
            module = as_module(q.graph)
        except LunetteError:  # a window that torch does not have
            continue
        said += 1
        y, exact = module(torch.from_numpy(q.hi)).numpy(), q.value(q.hi.astype(float)).astype(float)
        assert y.shape == q.shape and np.abs(y - exact).max() <= 1e-4 * (1 + np.abs(exact).max())
    assert said


# ---- nobody who is right is accused


def test_ours_pass() -> None:
    report = conform("lunette", "bounds", cases=1500 if MORE else 40, seed=3)
    assert report.exit_status == 0 and set(report.verdicts) == {"within"} and len(report.operators) == 10
    everything = report.tightness[-1]
    assert everything.op == "all" and everything.networks > 30
    assert everything.to_crown == 1 and everything.to_interval < 1


def test_right_ones_in_other_languages_pass() -> None:
    for claimed in (claims.right, claims.from_onnx):
        report = conform(claimed, "bounds", cases=10)
        assert report.exit_status == 0 and report.verdicts["within"] > 7, report.unsupported
        assert not report.verdicts.get("declined")


# ---- planted mistakes

PLANTED: list[tuple[Callable[..., Any], str, str, str]] = [
    (claims.pads_with_zeros, "max_pool", "bounds over padding", "excluded"),
    (claims.no_divisor, "avg_pool", "divisor ignored", "excluded"),
    (claims.no_count_include_pad, "avg_pool", "count_include_pad ignored", "excluded"),
    (claims.no_ceil_mode, "avg_pool", "ceil_mode ignored", "shape"),
    (claims.in_float32, "conv", "rounded inward", "excluded"),
    (claims.one_ulp_too_tight, "conv", "rounded inward", "excluded"),
    (claims.too_narrow, "max_pool", "excluded", "excluded"),
    (claims.nan, "max_pool", "no bound", "special"),
    (claims.one_cell_less, "max_pool", "no bound", "shape"),
    (claims.none, "max_pool", "no bound", "shape"),
]


@pytest.mark.parametrize(("claimed", "op", "kind", "verdict"), PLANTED, ids=[p[0].__name__ + p[2] for p in PLANTED])
def test_what_was_planted_is_found(claimed: Callable[..., Any], op: str, kind: str, verdict: str) -> None:
    report = conform(claimed, "bounds", ops=op, cases=40 if op != "conv" else 100)  # some decline most convolutions
    assert report.exit_status == 1
    finding = next(f for f in report.findings if f.kind == kind)
    assert finding.verdict == verdict and finding.op == op and finding.got and finding.rule
    assert (
        not finding.case.before and not finding.case.after and finding.case.d == 1
    )  # the smallest network has one layer
    assert finding.expected.startswith("ours are lo = ")


def test_a_reproducer_runs_and_shows_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    case = Case("avg_pool", ((1, 1, 4),), {"kernel": (2,)}, mode="bounds", after=("relu",), seed=1)
    line = find("claims:too_narrow as bounds").source(case)
    assert "\n" not in line and "from claims import too_narrow" in line
    exec(line, {})
    question = Question(case)
    found = question.excluded(*claims.too_narrow(question.graph, question.lo, question.hi))
    assert found is not None and capsys.readouterr().out.rstrip().endswith(str(found))


# ---- no answer stops a run


def test_who_declines_claims_nothing_wrong() -> None:
    report = conform(claims.declines, "bounds", ops="max_pool", cases=30)
    assert report.exit_status == 0 and not report.findings
    assert report.verdicts["declined"] > 3 and report.verdicts["within"] == report.asked
    assert report.unsupported == {"NotImplementedError: no volumes of": report.verdicts["declined"]}


def test_who_declines_everything_was_not_judged() -> None:
    def never(network: ln.Graph, lo: Any, hi: Any) -> Any:
        raise TypeError("what is this?")

    report = conform(never, "bounds", ops="max_pool", cases=4)
    assert report.exit_status == 2 and report.verdicts == {"declined": 4} and report.asked == 0


@pytest.mark.parametrize(("claimed", "verdict"), [(claims.dies, Verdict.CRASHED), (claims.sleeps, Verdict.HUNG)])
def test_crashes_and_hangs_are_reported(claimed: Callable[..., Any], verdict: Verdict) -> None:
    backend = Claimed(f"{claimed.__name__} as bounds, hastily", claimed)
    backend.lives_here, backend.deadline, backend.tries = True, 0.6, 2
    register(backend)
    report = run(backend.name, ops="avg_pool", cases=8, seed=1)
    assert report.complete and report.cases == 8 and report.verdicts["within"] >= 2
    assert [f.verdict for f in report.findings] == [verdict] and report.exit_status == 1


def test_infinite_bounds_are_true_and_have_no_width() -> None:
    report = conform(claims.infinite, "bounds", ops="max_pool", cases=6)
    assert report.exit_status == 0 and report.verdicts == {"within": 6} and report.tightness == ()


# ---- the shape of it


def test_a_report_goes_to_json_and_back_and_a_journal_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    first = conform(claims.right, "bounds", ops=["max_pool", "conv"], cases=12, journal=journal)
    assert Report.from_json(json.loads(json.dumps(first.to_json(), allow_nan=False))) == first
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:-2]) + "\n")  # as if it had been stopped before its last batch
    again = conform(claims.right, "bounds", ops=["max_pool", "conv"], cases=12, journal=journal)
    assert "from the journal" in again.journal and again.verdicts == first.verdicts
    assert again.tightness == first.tightness


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    page = tmp_path / "page.html"
    found = CliRunner().invoke(
        app,
        ["conform", "claims:no_divisor", "--as", "bounds", "--op", "avg_pool", "--cases", "30", "--html", str(page)],
    )
    assert found.exit_code == 1 and "divisor ignored" in found.output and "to our crown" in found.output
    assert "How tight bounds are" in page.read_text()
    ours = CliRunner().invoke(app, ["conform", "lunette", "--as", "bounds", "--op", "max_pool", "--cases", "4"])
    assert ours.exit_code == 0 and "lunette as bounds" in ours.output


def test_the_annotation_says_what_a_network_comes_as() -> None:
    assert [language_of(f) for f in (claims.right, claims.from_onnx, lambda n, lo, hi: None)] == [
        "graph",
        "onnx",
        "onnx",
    ]

    def of_modules(network: torch.nn.Module, lo: Any, hi: Any) -> Any:  # type: ignore[name-defined] # noqa: F821
        """An annotation that is not imported."""

    assert language_of(of_modules) == "module"

    def of_text(network: str, lo: Any, hi: Any) -> Any:
        """Nobody writes networks so."""

    for wrong, words in ((of_text, "torch.nn.Module"), (lambda network: None, "lo and hi")):
        with pytest.raises(ln.ArgumentError, match=r"V5.*" + words):
            language_of(wrong)


# ---- auto_LiRPA


@pytest.mark.skipif(not is_here(), reason="auto_LiRPA is not installed: a checkout of 0.7 on PYTHONPATH")
def test_auto_lirpa() -> None:
    report = conform("auto_lirpa", "bounds", ops=["max_pool", "avg_pool"], cases=400)
    kinds = {(f.op, f.kind) for f in report.findings}
    assert {("max_pool", "bounds over padding"), ("avg_pool", "count_include_pad ignored")} <= kinds
    assert ("avg_pool", "divisor ignored") in kinds


@pytest.mark.skipif(is_here(), reason="auto_LiRPA is installed")
def test_auto_lirpa_is_named_where_it_is_missing() -> None:
    with pytest.raises(ln.ArgumentError, match=r"V1.*auto_LiRPA.*PYTHONPATH"):
        conform("auto_lirpa", "bounds", cases=1)
