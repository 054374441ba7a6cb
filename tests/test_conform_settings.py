"""What a run is asked for: refused by name, or understood; and no run passes that judged nothing."""

from __future__ import annotations

import json
import pydoc
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app
from lunette.conform.backends import find
from lunette.conform.backends.backend import register
from lunette.conform.backends.function import Function
from lunette.conform.case import Case
from lunette.conform.generate import corners, draws, some_corners
from lunette.conform.report.junit import junit
from lunette.conform.report.text import show
from lunette.conform.report.words import headline
from lunette.conform.rules import RULES
from lunette.conform.run import conform, plan, run


def pool(x: Any, kernel: Any, stride: Any) -> Any:
    return ln.max_pool(x, kernel, stride=stride)


@pytest.mark.parametrize(
    ("settings", "rule", "part"),
    [
        ({"cases": "10"}, "V9", "cases, a whole number from 1; got '10'"),
        ({"cases": 0}, "V9", "got 0"),
        ({"cases": True}, "V9", "got True"),
        ({"cases": 2.5}, "V9", "got 2.5"),
        ({"seed": -1}, "V9", "seed, a whole number from 0; got -1"),
        ({"workers": 0}, "V9", "workers"),
        ({"ranks": [9]}, "V6", "ranks among 1, 2, 3, 4; got 9"),
        ({"ranks": "2"}, "V6", "got '2'"),
        ({"ranks": []}, "V6", "at least one of ranks"),
        ({"dtypes": ["float33"]}, "V6", "Did you mean float32?"),
        ({"dtypes": np.int32}, "V6", "dtypes among float16, bfloat16, float32, float64"),
        ({"dtypes": [None]}, "V6", "got None"),
        ({"dtypes": [3]}, "V6", "got 3"),
        ({"modes": "forwards"}, "V6", "got 'forwards'. Did you mean forward?"),
        ({"modes": ["vjp"]}, "V6", "modes that pool as max_pool"),
        ({"ops": "conv"}, "V4", "got 'conv'"),
    ],
    ids=str,
)
def test_settings_are_refused_by_name(settings: dict[str, Any], rule: str, part: str) -> None:
    with pytest.raises(ln.ArgumentError) as caught:
        conform(pool, "max_pool", **settings)
    assert caught.value.rule == rule and part in str(caught.value) and caught.value.who == "conform"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"dtypes": "float32"}, {"float32"}),
        ({"dtypes": np.float64}, {"float64"}),
        ({"dtypes": [np.dtype("float16"), ml_dtypes.bfloat16]}, {"float16", "bfloat16"}),
    ],
)
def test_one_is_as_good_as_several(settings: dict[str, Any], options: set[str]) -> None:
    report = conform(pool, "max_pool", cases=20, ranks=2, modes="forward", ops="max_pool", **settings)
    used = {c.option for c in report.table if c.option.startswith(("rank", "float", "bfloat"))}
    assert report.exit_status == 0 and used == {"rank 2", *options}


def test_what_a_library_has_is_not_to_be_said() -> None:
    for more in ({"jvp": pool}, {"vjp": pool}, {"vjp": "module:function"}):
        with pytest.raises(ln.ArgumentError, match=f"{next(iter(more))} only with a function") as caught:
            conform("lunette", "max_pool", **more)
        assert caught.value.rule == "V5"


@pytest.mark.parametrize("cases", [1, 10, 200, 1000])
def test_cases_are_those_of_the_whole_run(cases: int) -> None:
    for backend, ops in (("lunette", None), ("lunette", ["max_pool"]), ("torch", ["max_pool", "conv"])):
        batches = plan(backend, ops, cases, 1)
        drawn = [reason for b in batches for _, reason in draws(b, find(backend))]
        assert drawn.count(None) == cases and len({b.key for b in batches}) == len(batches)
        assert sum(b.cases for b in batches if b.index <= 0) <= cases // 2 + len(ops or find(backend).space.ops)
    assert sum(b.cases for b in plan("lunette", ["max_pool"])) > find("lunette").default_cases  # and all corners


def test_some_corners_are_some_of_all() -> None:
    space = find("lunette").space
    every, some = (some_corners("max_pool", space, 3, n) for n in (0, 40))
    assert len(set(some)) == 40 and set(some) < set(every) and every == list(corners("max_pool", space, 3))
    assert [c.options for c in some] != [c.options for c in some_corners("max_pool", space, 4, 40)]
    backend = find("lunette")
    held = [b for b in plan("lunette", ["max_pool"], 300, 3) if b.index <= 0]
    drawn = [case for b in held for case, _ in draws(b, backend)]
    assert len(held) == 3 and len(set(drawn)) == 150 and set(drawn) < set(every)


def test_a_short_run_is_short() -> None:
    report = conform(pool, "max_pool", cases=12)
    assert 0 < report.asked <= 12 and report.exit_status == 0


# ---- a function is called as its signature says, or not at all


def typo(x: Any, kernl: Any) -> Any: ...
def no_arguments() -> Any: ...
def keywords(*, x: Any, kernel: Any) -> Any: ...
def one_more(x: Any, kernel: Any, gain: float) -> Any: ...
def no_weights(x: Any, stride: Any) -> Any: ...
def no_direction(primals: Any, kernel: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "op", "part"),
    [
        (typo, "max_pool", "a parameter kernel for max_pool; got typo(x: Any, kernl: Any) -> Any. Is it called kernl?"),
        (no_arguments, "max_pool", "a parameter kernel"),
        (no_arguments, "global_max_pool", "too many positional arguments"),
        (keywords, "max_pool", "too many positional arguments"),
        (one_more, "max_pool", "missing a required argument: 'gain'"),
        (no_weights, "conv", "called with x, w and"),
    ],
)
def test_a_function_that_cannot_be_called(function: Callable[..., Any], op: str, part: str) -> None:
    with pytest.raises(ln.ArgumentError) as caught:
        conform(function, op, cases=5)
    assert caught.value.rule == "V5" and part in str(caught.value).replace("'Any'", "Any")


def test_a_derivative_that_cannot_be_called() -> None:
    with pytest.raises(ln.ArgumentError, match="no_direction"):
        conform(pool, "max_pool", vjp=no_direction, cases=5)


def test_required_parameters_are_passed() -> None:
    def all_of_it(x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, dilation: Any) -> Any:
        return ln.max_pool(x, kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, dilation=dilation)

    assert conform(all_of_it, "max_pool", cases=40).exit_status == 0


# ---- nothing judged is no success


class Shy(Function):
    def supports(self, case: Case) -> str | None:
        return "not today"


def test_a_run_that_judged_nothing_fails_with_its_reason() -> None:
    register(Shy("shy", pool, "max_pool"))
    report = run("shy", cases=5)
    assert report.exit_status == 2 and report.asked == 0
    assert headline(report).startswith("nothing was judged: not today (")
    out = StringIO()
    show(report, Console(file=out, width=120))
    assert "nothing was judged" in out.getvalue()
    assert 'errors="1"' in junit([report]) and "not today" in junit([report])
    assert headline(replace(report, complete=False)).endswith("interrupted")
    assert plan("shy", None, 5)


# ---- the command line


def test_a_file_names_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    text = "import lunette as ln\ndef pool(x, kernel): return ln.max_pool(x, kernel)\n"
    (tmp_path / "kernel_in_a_file.py").write_text(text)
    monkeypatch.chdir(tmp_path.parent)
    asked = ["conform", f"{tmp_path.name}/kernel_in_a_file.py:pool", "--as", "max_pool", "--cases", "6"]
    done = CliRunner().invoke(app, [*asked, "--html", "new/page.html"])
    assert done.exit_code == 0 and "wrote new/page.html" in done.output, done.output
    with pytest.raises(ln.ArgumentError, match=r"without \.py: kernel_elsewhere:pool"):
        conform("kernel_elsewhere.py:pool", "max_pool")


@pytest.mark.parametrize(
    "option", ["--op=max_pool", "--as=max_pool", "--cases=5", "--seed=1", "--resume=j", "--known=k"]
)
def test_a_report_from_a_file_is_not_measured(tmp_path: Path, option: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(conform(pool, "max_pool", cases=2).to_json()))
    assert CliRunner().invoke(app, ["conform", str(path)]).exit_code == 0
    refused = CliRunner().invoke(app, ["conform", str(path), option])
    assert refused.exit_code == 2 and option.partition("=")[0] in refused.output


@pytest.mark.parametrize("function", [None, conform])
def test_help_names_every_argument(function: Any) -> None:
    package = sys.modules["lunette.conform"]
    assert signature(package) == signature(conform)  # type: ignore[arg-type]
    text = pydoc.render_doc(function or package)
    assert all(re.search(rf"\b{name}\b", text) for name in signature(conform).parameters)


def test_every_class_and_rule_is_in_the_docs() -> None:
    text = (Path(__file__).parent.parent / "docs" / "conform.md").read_text(encoding="utf-8")
    named = {word for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for word in row.split(", ")}
    assert set(RULES) <= named


def test_an_interruption_before_the_first_answer_is_quiet() -> None:
    code = "from lunette import cli; print('ready', flush=True); cli.main()"
    words = [sys.executable, "-c", code, "conform", "lunette"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in out + err, (out, err)
