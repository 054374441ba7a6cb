"""What people read of a run: wrong answers apart from refusals, one finding for one mistake, and whose fault it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette
from lunette.cli import app
from lunette.conform import assemble as assembling
from lunette.conform.case import Case
from lunette.conform.report.words import headline
from lunette.conform.result import FAILURES, GRAVITY, Batch, BatchResult, Outcome, Report, Verdict, gravity
from lunette.conform.run import conform, plan
from lunette.conform.shrink import weight

ln: Any = lunette
Array = Any


# ---- one mistake, one finding


def later_index(x: Array, kernel: Any) -> Array:
    """Of equal cells in a window the last: the first one seen from the other end."""
    turned = x[(..., *(slice(None, None, -1),) * len(kernel))]
    _, index = ln.max_pool(turned, kernel, return_indices=True)
    return (np.prod(x.shape[2:]) - 1 - index)[(..., *(slice(None, None, -1),) * len(kernel))]


def fits(x: Array, kernel: Any) -> Array:
    """Windows from both ends are the same ones only where they fill the input."""
    space = tuple(n - n % k for n, k in zip(x.shape[2:], kernel, strict=True))
    return x[(..., *(slice(n) for n in space))]


def last_of_ties(x: Array, kernel: Any, return_indices: bool = False) -> Array:
    y = ln.max_pool(x, kernel)
    if not return_indices:
        return y
    whole, inside = x.shape[2:], fits(x, kernel)
    place = np.unravel_index(later_index(inside, kernel), inside.shape[2:]) if inside.size else (np.zeros(y.shape),)
    index = np.ravel_multi_index(place, whole).astype(np.int64) if inside.size else np.zeros(y.shape, np.int64)
    return y, np.where(np.isnan(y), ln.max_pool(x, kernel, return_indices=True)[1], index)


def last_of_ties_vjp(primals: tuple[Array], cotangent: Array, kernel: Any) -> tuple[Array]:
    (x,) = primals
    _, index = last_of_ties(x, kernel, return_indices=True)
    back = np.zeros((*x.shape[:2], int(np.prod(x.shape[2:]))), x.dtype)
    for at in np.ndindex(*cotangent.shape):
        back[at[0], at[1], index[at]] += cotangent[at]
    return (back.reshape(x.shape),)


def last_of_ties_jvp(primals: tuple[Array], tangents: tuple[Array], kernel: Any) -> Array:
    (x,), (t,) = primals, tangents
    y, index = last_of_ties(x, kernel, return_indices=True)
    rows = t.reshape(*t.shape[:2], int(np.prod(t.shape[2:])))
    moved = np.zeros_like(y)
    for at in np.ndindex(*y.shape):
        moved[at] = rows[at[0], at[1], index[at]]
    return moved


def test_a_tie_that_goes_to_the_last_cell_is_one_finding() -> None:
    """In indices and in both derivatives, among -inf and beside NaN as well."""
    report = conform(
        last_of_ties, "max_pool", jvp=last_of_ties_jvp, vjp=last_of_ties_vjp, cases=300, modes=["indices", "jvp", "vjp"]
    )
    (finding,) = report.findings
    assert finding.kind == "tie" and set(finding.verdicts) == {"index", "gradient"}
    assert finding.count == sum(finding.verdicts.values()) == report.failures > 50
    assert finding.case.mode == "indices" and finding.case.size == 2


def all_of_ties_vjp(primals: tuple[Array], g: Array, kernel: Any) -> tuple[Array]:
    (x,) = ln.max_pool_vjp(primals, g, kernel=kernel, ties="all")
    return (x,)


def test_a_derivative_shared_among_equals_is_a_tie_beside_nan_too() -> None:
    """Only where nothing but windows with several NaN is wrong, it is NaN that tells."""
    report = conform(lambda x, kernel: ln.max_pool(x, kernel), "max_pool", vjp=all_of_ties_vjp, cases=200, modes="vjp")
    assert [f.kind for f in report.findings] == ["tie", "nan"]


# ---- wrong answers and refusals


def wrong_and_refusing(x: Array, kernel: Any, padding: Any = 0) -> Array:
    if any(k > 2 for k in kernel):
        raise NotImplementedError("windows of more than two cells")
    return ln.max_pool(np.nan_to_num(x), kernel, padding=padding)


def test_wrong_answers_come_before_refusals_which_are_more() -> None:
    report = conform(wrong_and_refusing, "max_pool", cases=120, modes="forward", ranks=1)
    assert report.failed("refused") > 0 < report.failed("wrong") and report.failed("crashed") == 0
    assert report.failed("refused") + report.failed("wrong") == report.failures
    order = [list(GRAVITY).index(gravity(f.verdict)) for f in report.findings]
    assert order == sorted(order) and {0, 2} <= set(order)
    line = f"{report.failed('wrong')} wrong, {report.failed('refused')} refused of 120 cases"
    assert headline(report).startswith(line) and line in str(report) and line in repr(report)
    assert "<html" in report.to_html() and "wrong answers" in report.to_html()
    assert line in report._repr_html_()
    table = {c.option: c for c in report.table}
    assert table["forward"].refused == report.failed("refused") and table["forward"].failures == report.failures
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_report_shows_itself_where_nothing_else_was_imported(tmp_path: Path) -> None:
    """In a process of its own: the tests here import what shows reports."""
    code = (
        "import lunette as ln\n"
        "report = ln.conform(lambda x, kernel: ln.max_pool(x, kernel), 'max_pool', cases=5, ranks=1, workers=1)\n"
        "for text in (str(report), repr(report), report._repr_html_()):\n"
        "    assert '0 wrong, 0 refused of 5 cases' in text, text\n"
        "assert '<html' in report.to_html()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_every_failure_has_a_gravity() -> None:
    assert {v for some in GRAVITY.values() for v in some} == FAILURES


def test_a_value_is_shown_rather_than_a_derivative_of_the_same_size() -> None:
    forward, back = (Case("max_pool", ((1, 1, 3),), {"kernel": (2,)}, mode=m) for m in ("forward", "vjp"))
    assert weight(forward) < weight(back)
    assert weight(back) < weight(Case("max_pool", ((1, 1, 5000),), {"kernel": (2,)}))


# ---- what a function is made for


def of_images(x: Array, kernel: Any) -> Array:
    if x.ndim != 4:
        raise ValueError(f"{x.ndim} axes are not those of images")
    return ln.max_pool(x, kernel)


def test_a_function_of_one_rank_is_asked_that_rank_only() -> None:
    report = conform(of_images, "max_pool", cases=40, modes="forward")
    assert {c.option for c in report.table if c.option.startswith("rank")} == {"rank 2"}
    assert report.exit_status == 0 and "rank 2 only" in report.notes[0] and "rank 2 only" in str(report)
    told = conform(of_images, "max_pool", cases=40, modes="forward", ranks=(1, 2))
    assert told.failed("refused") > 0 and not told.notes and told.exit_status == 1


def of_tensors(x: Array, kernel: Any) -> Array:
    return ln.max_pool(x.permute(0, 1, 2), kernel)


def mistaken_vjp(primals: Any, cotangent: Any, kernel: Any) -> None:
    """It leaves its answer in a gradient that nobody reads."""


def test_calls_that_all_fail_alike_are_a_problem_of_the_harness() -> None:
    report = conform(of_tensors, "max_pool", cases=40)
    assert report.exit_status == 2 and not report.findings and report.asked == 3
    (misfit,) = report.misfits
    assert "no attribute 'permute'" in misfit and "of_tensors(x, kernel) -> y, a NumPy array" in misfit
    assert headline(report).startswith("the harness does not fit: all 3 calls (forward) failed alike")


def test_a_derivative_that_always_fails_alike_hides_no_other_finding() -> None:
    report = conform(wrong_and_refusing, "max_pool", vjp=mistaken_vjp, cases=100, ranks=1)
    assert any("(vjp)" in m and "a tuple of 1 NumPy arrays" in m for m in report.misfits)
    assert report.findings and all(f.case.mode == "forward" for f in report.findings) and report.exit_status == 1


def of_the_array_itself(x: Array, g: Array, kernel: Any) -> Array:
    """Meant to be called with x, and given a tuple of one."""
    return np.zeros(x.shape, x.dtype)


def with_an_axis_too_many(primals: Any, cotangent: Array, kernel: Any) -> tuple[Array]:
    """NumPy makes an array of the tuple."""
    return (np.zeros_like(np.asarray(primals)),)


def of_weights_alone(primals: Any, cotangent: Array, **options: Any) -> Array:
    return np.zeros_like(primals[1])


def plain_conv(x: Array, w: Array, b: Array | None = None, **options: Any) -> Array:
    return ln.conv(x, w, b, **options)


@pytest.mark.parametrize("vjp", [of_the_array_itself, with_an_axis_too_many])
def test_a_backward_that_is_called_otherwise_than_it_wants_is_no_finding(vjp: Any) -> None:
    report = conform(lambda x, kernel: ln.max_pool(x, kernel), "max_pool", vjp=vjp, cases=60)
    (misfit,) = report.misfits
    assert f"{vjp.__name__}(primals, cotangent, kernel) -> a tuple of 1 NumPy arrays" in misfit
    assert not report.findings and report.exit_status == 2 and report.failed("wrong") == 0


def test_reasons_may_differ_where_nothing_is_answered() -> None:
    """With a bias another number of gradients is expected than without."""
    report = conform(plain_conv, "conv", vjp=of_weights_alone, cases=60)
    (misfit,) = report.misfits
    assert "(vjp) failed, as in: returned 1 values" in misfit and not report.findings


def test_the_headline_tells_both_what_is_wrong_and_what_does_not_fit() -> None:
    report = conform(wrong_and_refusing, "max_pool", vjp=mistaken_vjp, cases=100, ranks=1)
    assert report.failed("wrong") > 0
    assert " wrong, " in headline(report) and "the harness does not fit: all" in headline(report)


# ---- as many as were asked for


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "lunette"])
def test_as_many_cases_are_planned_as_were_asked_for(backend: str) -> None:
    from lunette.conform.backends import find
    from lunette.conform.generate import draws

    found = find(backend)
    batches = plan(backend, "max_pool", 120)
    assert sum(reason is None for b in batches for _, reason in draws(b, found)) == 120


def test_limits_narrow_a_library_too() -> None:
    batches = plan("torch", "max_pool", 60, ranks=2, dtypes=["float64"])
    from lunette.conform.backends import find
    from lunette.conform.generate import draws

    drawn = [case for b in batches for case, _ in draws(b, find("torch"))]
    assert {(c.d, c.dtype) for c in drawn} == {(2, "float64")}
    with pytest.raises(ln.LunetteError, match=r"V6.*ranks among 1, 2, 3; got 4"):
        plan("torch", ranks=4)


# ---- the command line


def test_the_command_takes_ranks_dtypes_modes_and_the_name_of_a_derivative(tmp_path: Path) -> None:
    (tmp_path / "of_the_command.py").write_text(
        "import lunette as ln\n"
        "def pool(x, kernel):\n    return ln.max_pool(x, kernel)\n"
        "def back(primals, cotangent, kernel):\n    return ln.max_pool_vjp(primals, cotangent, kernel=kernel)\n"
    )
    before = list(sys.path)
    try:
        line = ["conform", f"{tmp_path}/of_the_command.py:pool", "--as", "max_pool", "--vjp", "back", "--cases", "30"]
        line += ["--ranks", "1,2", "--dtypes", "float32", "--modes", "forward,vjp", "--json", str(tmp_path / "r.json")]
        ran = CliRunner().invoke(app, line)
    finally:
        sys.path[:] = before
    assert ran.exit_code == 0, ran.output
    assert "0 wrong, 0 refused of 30 cases" in ran.output
    report = Report.from_json(json.loads((tmp_path / "r.json").read_text()))
    options = {c.option for c in report.table}
    assert {"rank 1", "rank 2", "forward", "vjp", "float32"} <= options
    assert not options & {"rank 3", "indices", "jvp", "float64"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["conform", "torch", "--vjp", "back"], "only a module:function"),
        (["conform", "torch", "--ranks", "two"], "numbers of spatial axes"),
        (["conform", "torch", "--ranks", "7"], "ranks among 1, 2, 3"),
        (["conform", "json:loads", "--as", "max_pool", "--vjp", "nowhere"], "a function nowhere in json"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(line: list[str], says: str) -> None:
    ran = CliRunner().invoke(app, line)
    assert ran.exit_code != 0 and says in " ".join((ran.output + str(ran.exception)).replace("│", "").split())


def test_diff_begins_with_a_table_and_writes_json(tmp_path: Path) -> None:
    found = ln.diff("torch", "onnx22", "max_pool", largest=3)
    _, table, *rest = str(found).split("\n\n")
    assert "operator  differs in" in table and "size" in table and len(rest) >= len(found)
    ran = CliRunner().invoke(app, ["diff", "torch", "onnx22", "--op", "max_pool", "--json", "-"])
    made = json.loads(ran.output)
    assert {"op", "kind", "torch", "onnx22", "count"} <= set(made[0])


def test_the_heat_map_tells_refusals_from_wrong_answers() -> None:
    from lunette.conform.report.plots import heat_map
    from lunette.conform.result import Cell

    shown = {
        "--red": (Cell("conv", "rank 1", 10, 4, 0, 3), ">1<"),
        "--blue": (Cell("conv", "rank 1", 10, 4, 0, 4), ">4<"),
        "--amber": (Cell("conv", "rank 1", 10, 4, 4, 4, 4), ">4<"),
    }
    for colour, (cell, number) in shown.items():
        page = heat_map([cell])
        assert f"--heat:var({colour})" in page and number in page
    known_wrong = heat_map([Cell("conv", "rank 1", 10, 4, 1, 3, 0)])  # the wrong one is known, the refusals are not
    assert "--heat:var(--blue)" in known_wrong and ">3<" in known_wrong


def test_a_crash_is_told_of_derivatives_that_do_not_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong answer to another question is none; a crash is one, whatever was asked."""
    case = Case("max_pool", ((1, 1, 2),), {"kernel": (2,)}, mode="vjp")
    crash, wrong = Outcome(case, Verdict.CRASHED, kind="crash"), Outcome(case, Verdict.VALUE, kind="value")
    monkeypatch.setattr(assembling, "misfits", lambda *_: {"vjp": "another signature"})
    batch = Batch("lunette", "max_pool", 0, 1, 2)
    report = assembling.assemble("lunette", 0, [BatchResult(batch, (crash, wrong))])
    assert report.verdicts["crashed"] == 1 and report.verdicts["refused"] == 1
    assert report.unrepeated == 1  # here nothing crashes: it was looked into
