"""What a run says: on a terminal, for CI, for code review, as a page, under pytest, and the commands."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import lunette
from lunette.cli import app, main
from lunette.conform.case import Case
from lunette.conform.report.junit import junit
from lunette.conform.report.page import html, window
from lunette.conform.report.plots import MOST_POINTS, error_plot
from lunette.conform.report.sarif import sarif
from lunette.conform.report.text import MOST_FULL, show
from lunette.conform.report.words import MEANINGS, clean, headline, keys
from lunette.conform.result import Accuracy, Report, Verdict
from specimen import HOSTILE, OPS, OPTIONS, clean_report, specimen

runner = CliRunner()


def printed(report: Report, width: int = 140) -> str:
    out = StringIO()
    show(report, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_a_report_goes_to_json_and_back() -> None:
    text = json.dumps(specimen().to_json(), allow_nan=False)
    assert Report.from_json(json.loads(text)) == specimen()


def test_every_verdict_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Verdict)


# ---- terminal


def test_the_summary_has_a_row_per_operator_and_a_line_per_finding() -> None:
    report = specimen()
    text = printed(report)
    for op, verdicts in report.operators.items():
        row = re.findall(rf"^{op} .*$", text, re.MULTILINE)[0]
        assert f"{sum(verdicts.values()) - verdicts.get('unsupported', 0):,}" in row
    for f in report.findings:
        assert re.search(rf"{f.kind} +{f.op} +{f.count} +{f.verdict} ", text)
    for f in report.unexplained:
        assert clean(f.reproducer) in text.splitlines() and repr(f.case) in text.splitlines()  # whole, to be copied
    assert "94.8% agree, 7 new findings, 2 known, 2 lines of known differences no longer true" in text
    assert "known for other instruction sets, not asked here: conv: asked with avx2, not generic" in text
    assert "max_pool: nan order" in text and "a minute" in text


def test_a_clean_run_says_so_in_few_lines() -> None:
    text = printed(clean_report())
    assert "0 wrong, 0 refused of 100 cases: 100% agree, nothing new" in text and len(text.splitlines()) < 8


def test_hostile_text_cannot_speak_to_the_terminal() -> None:
    text = printed(specimen())
    assert not [c for c in text if c < " " and c != "\n"] and "\ud800" not in text
    assert "\\x1b[31m" in text


def test_an_interrupted_run_says_so() -> None:
    report = replace(clean_report(), complete=False)
    assert "interrupted" in headline(report) and report.exit_status == 2


def test_very_many_findings_are_not_all_printed_in_full() -> None:
    report = replace(specimen(), findings=specimen().findings[:1] * (MOST_FULL + 3))
    text = printed(report)
    assert text.count("reproduce") == MOST_FULL and "3 more findings in full" in text


def test_a_narrow_terminal_keeps_every_number() -> None:
    text = printed(specimen(), 80)
    to_copy = {clean(t) for f in specimen().findings for t in (f.reproducer, repr(f.case))}
    assert "212" in text and all(len(line) <= 80 for line in text.splitlines() if line not in to_copy)


def test_findings_that_look_alike_have_names_of_their_own() -> None:
    report = replace(specimen(), findings=specimen().findings * 2)
    names = keys(report.findings)
    assert names[0] == "max_pool--crash--crashed" and names[2] == "avg_pool--divisor--gradient--vjp"
    assert len(set(names)) == len(names) == 18
    tests = [t.get("name") for t in ET.fromstring(junit([report]).split("\n", 1)[1]).iter("testcase")]
    articles = [e.get("id") for e in ET.fromstring(html([report])).iter("article")]
    assert set(names) <= set(tests) and set(names) == set(articles)


# ---- JUnit


def test_junit_has_what_ci_readers_need() -> None:
    """Counts that add up, names that are unique and the same in the next run, messages on one line of an attribute."""
    text = junit([specimen(), clean_report()])
    root = ET.fromstring(text.split("\n", 1)[1])
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>') and root.tag == "testsuites"
    suites = root.findall("testsuite")
    assert [s.get("name") for s in suites] == ["conform torch", "conform lunette"]
    for suite in suites:
        tests = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(tests)
        for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(word, "")) == len(suite.findall(f"testcase/{tag}"))
        assert float(suite.get("time", "")) >= 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
        names = [(t.get("classname"), t.get("name")) for t in tests]
        assert len(set(names)) == len(names) and all(a and b for a, b in names)
        assert all(float(t.get("time", "")) >= 0 for t in tests)
        for element in (*suite.iter("failure"), *suite.iter("error")):
            assert element.get("message") and element.get("type")
    for word in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(word, "")) == sum(int(s.get(word, "")) for s in suites)


def test_junit_says_what_became_of_each_finding() -> None:
    root = ET.fromstring(junit([specimen()]).split("\n", 1)[1])
    assert {e.get("type") for e in root.iter("error")} == {"crash", "hang"}
    assert sum(e.get("type") == "stale" for e in root.iter("failure")) == 2
    assert len(list(root.iter("failure"))) == 2 + 5
    skipped = [e.get("message", "") for e in root.iter("skipped")]
    assert "known: shares ties evenly, and says so" in skipped and "not supported by the backend" in skipped
    assert skipped.count("known for other instruction sets") == 2
    (crash,) = (e for e in root.iter("error") if e.get("type") == "crash")
    assert "max_pool1d" in (crash.text or "") and "double free" in (crash.text or "")
    tests = [t.get("name") for t in root.iter("testcase")]
    assert tests == [t.get("name") for t in ET.fromstring(junit([specimen()]).split("\n", 1)[1]).iter("testcase")]


def test_junit_of_an_interrupted_run_is_no_success() -> None:
    root = ET.fromstring(junit([replace(clean_report(), complete=False)]).split("\n", 1)[1])
    assert root.get("errors") == "1" and junit([clean_report()]).count("<error") == 0


# ---- SARIF


LEVELS = {"none", "note", "warning", "error"}
REQUIRED: dict[str, tuple[str, ...]] = {
    "sarifLog": ("version", "runs"),
    "run": ("tool",),
    "tool": ("driver",),
    "toolComponent": ("name",),
    "reportingDescriptor": ("id",),
    "multiformatMessageString": ("text",),
    "result": ("message",),
    "message": ("text",),
    "invocation": ("executionSuccessful",),
    "notification": ("message",),
    "suppression": ("kind",),
}
"""What the schema of SARIF 2.1.0 requires of the objects that are used here."""
ALLOWED = {
    "result": {
        *(
            "ruleId",
            "ruleIndex",
            "level",
            "message",
            "locations",
            "occurrenceCount",
            "partialFingerprints",
            "properties",
        ),
        "suppressions",
    },
    "location": {"logicalLocations", "physicalLocation"},
}
"""The schema allows no other property in these, except those that are not used."""


def of_type(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    assert not [name for name in REQUIRED.get(kind, ()) if name not in value], (kind, value)
    assert kind not in ALLOWED or set(value) <= ALLOWED[kind], (kind, set(value))
    return value


def test_sarif_has_the_fields_that_its_schema_requires() -> None:
    text = sarif([specimen(), clean_report()], {"torch": ("my src/pool.py", 12)})
    log = of_type("sarifLog", json.loads(text))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json") and len(log["runs"]) == 2
    run = of_type("run", log["runs"][0])
    rules = of_type("toolComponent", of_type("tool", run["tool"])["driver"])["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    for rule in rules:
        of_type("reportingDescriptor", rule)
        of_type("multiformatMessageString", rule["shortDescription"])
        assert of_type("multiformatMessageString", rule["fullDescription"])["text"]
        assert rule["defaultConfiguration"]["level"] in LEVELS
    for invocation in run["invocations"]:
        for note in of_type("invocation", invocation)["toolExecutionNotifications"]:
            of_type("message", of_type("notification", note)["message"])
    for result in run["results"]:
        of_type("result", result)
        assert of_type("message", result["message"])["text"] and result["level"] in LEVELS
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["occurrenceCount"] >= 1
        (location,) = (of_type("location", place) for place in result["locations"])
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "my%20src/pool.py"
        assert location["physicalLocation"]["region"]["startLine"] == 12
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
        for suppression in result.get("suppressions", ()):
            assert of_type("suppression", suppression)["kind"] in ("inSource", "external")
    assert len({json.dumps(r["partialFingerprints"]) for r in run["results"]}) == len(run["results"])


def test_sarif_marks_known_differences_as_suppressed() -> None:
    run = json.loads(sarif([specimen()]))["runs"][0]
    assert [("suppressions" in r, r["level"]) for r in run["results"]] == [(False, "error")] * 7 + [(True, "note")] * 2
    assert all("physicalLocation" not in place for r in run["results"] for place in r["locations"])
    assert run["invocations"][0]["exitCode"] == 1 and run["invocations"][0]["executionSuccessful"]


# ---- the page


@pytest.fixture(scope="module")
def root() -> ET.Element:
    return ET.fromstring(html([specimen()]))


def test_the_page_is_well_formed_and_loads_nothing(root: ET.Element) -> None:
    assert not [e.tag for e in root.iter() if e.tag in ("script", "img", "link", "iframe", "object", "embed", "base")]
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    for e in root.iter():
        assert not [name for name in e.attrib if name.startswith("on") or name in ("src", "srcset", "data")]
        assert e.tag != "a" or e.get("href", "").removeprefix("#") in ids
    style = root.findtext("head/style") or ""
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme:dark" in style


def test_the_page_has_a_section_per_class_and_an_article_per_finding(root: ET.Element) -> None:
    report = specimen()
    sections = [e.get("id", "") for e in root.iter("section")]
    kinds = dict.fromkeys(f.kind.replace(" ", "-") for f in report.findings)
    assert [s for s in sections if s.startswith("class-")] == [f"class-{k}" for k in kinds]
    assert {"verdicts", "heat", "accuracy", "stale", "elsewhere", "unsupported"} <= set(sections)
    assert sorted(e.get("id", "") for e in root.iter("article")) == sorted(keys(report.findings))
    for article, f in zip(
        root.iter("article"),
        sorted(report.findings, key=lambda f: list(kinds).index(f.kind.replace(" ", "-"))),
        strict=True,
    ):
        words = "".join(article.itertext())
        for text in (f.reproducer, f.got, f.expected, repr(f.case), f.known or ""):
            assert clean(text) in words
        assert article.find(".//svg") is not None


def test_the_heat_map_has_every_operator_and_option(root: ET.Element) -> None:
    report = specimen()
    (heat,) = (t for t in root.iter("table") if t.get("class") == "heat")
    assert len(heat.findall(".//th[@class='up']")) == len(OPTIONS) and len(heat.findall("tbody/tr")) == len(OPS)
    fields = {(td.get("title") or "").partition(":")[0]: td for td in heat.findall("tbody/tr/td")}
    for c in report.table:
        if c.cases:
            td = fields[f"{c.op}, {c.option}"]
            assert td.text == (str(c.failures) if c.failures else None)
            assert (td.get("class") == "fine") == (c.failures == 0)
            colour = "--red" if c.failures > c.known else "--amber" if c.failures else ""
            assert colour in td.get("style", "") and f"refused of {c.cases} cases" in td.get("title", "")
    assert sum(bool(c.cases) for c in report.table) == len(fields) - 1  # fields without cases have no title
    heads = ["".join(th.itertext()) for th in heat.findall(".//th[@class='up']")]
    assert heads[:5] == ["rank 1", "rank 2", "rank 3", "rank 4", "stride"] and heads[-1].startswith("data ")


def test_several_backends_share_a_page_without_sharing_ids() -> None:
    root = ET.fromstring(html([specimen(), specimen("jax"), clean_report()]))
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids)) and {"backends", "b0-heat", "b1-heat", "b2-verdicts"} <= set(ids)


def test_hostile_text_stays_text(root: ET.Element) -> None:
    """Every text of a report, one at a time."""
    assert clean(HOSTILE) in "".join(root.itertext())
    plain = {e.tag for e in root.iter()}
    f = specimen().findings[0]
    names = ("kind", "op", "rule", "got", "expected", "reproducer", "drawing", "why", "known")
    hostile = [replace(specimen(), findings=(replace(f, **{name: HOSTILE}),)) for name in names]  # type: ignore[arg-type]
    cells = tuple(replace(c, op=HOSTILE, option=HOSTILE) for c in specimen().table[:1])
    hostile += [replace(specimen(), **{name: HOSTILE}) for name in ("backend", "version", "platform")]  # type: ignore[arg-type]
    hostile += [replace(specimen(), table=cells), replace(specimen(), operators={HOSTILE: {"equal": 1}})]
    for report in hostile:
        made = ET.fromstring(html([report]))
        assert {e.tag for e in made.iter()} <= plain
        assert "".join(made.itertext()).count(clean(HOSTILE)) >= 1
        ET.fromstring(junit([report]).split("\n", 1)[1])
        json.loads(sarif([report]))
        assert "\x1b" not in printed(report)


def test_windows_without_cells_can_be_drawn() -> None:
    case = Case("max_pool", ((1, 1, 1),), {"kernel": (2,), "stride": (1,), "padding": (1,), "dilation": (2,)})
    picture = window(case)
    assert picture is not None and "max_pool: (1,)" in picture and "lp_pool" not in picture
    assert window(Case("max_pool", ((1, 1, 1),), {"kernel": (9,)})) is None


@pytest.mark.parametrize(
    "samples",
    [
        [(0.0, 0.0, 1.0)],
        [(1.0, 0.5, 0.0)],
        [(float("inf"), float("inf"), 3.0), (float("nan"), float("nan"), 3.0)],
        [(1e-300, 1e-310, 1e300), (1e250, 1.0, 1e-250)],
        [(k / 7, 0.0, 1.0 + k) for k in range(5 * MOST_POINTS)],
    ],
)
def test_plots_stand_any_numbers(samples: list[tuple[float, float, float]]) -> None:
    picture = ET.fromstring(error_plot("a < b", [Accuracy("conv", "float32", "forward", tuple(samples))]))
    dots = [e for e in picture.iter("circle") if e.find("title") is not None]
    assert len(dots) <= MOST_POINTS
    for e in dots:
        assert 0 <= float(e.get("cx", "")) <= 340 and 0 <= float(e.get("cy", "")) <= 300
    over = [e for e in dots if e.get("class") == "over"]
    assert len(over) == sum(bound > 0 and not error <= bound for error, _, bound in samples)


# ---- the commands


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_the_help_teaches() -> None:
    text = words(runner.invoke(app, ["conform", "--help"], env={"COLUMNS": "160"}).output)
    for part in (
        "lunette conform torch",
        "lunette conform mymodule:my_pool --as max_pool",
        "Exit status: 0",
        "--resume",
        "--scheduler",
        "--sarif",
    ):
        assert part in text
    assert "lunette diff torch onnx22" in words(runner.invoke(app, ["diff", "--help"]).output)


def test_a_report_from_a_file_is_shown_and_written_again(tmp_path: Path) -> None:
    source = tmp_path / "torch.json"
    source.write_text(json.dumps(specimen().to_json()), encoding="utf-8")
    files = {kind: tmp_path / "made" / f"report.{kind}" for kind in ("json", "junit", "sarif", "html")}
    flags = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    result = runner.invoke(app, ["conform", str(source), *flags])
    assert result.exit_code == 1 and "7 new findings" in result.output
    assert json.loads(files["json"].read_text(encoding="utf-8")) == specimen().to_json()
    assert ET.parse(files["junit"]).getroot().tag == "testsuites"
    assert json.loads(files["sarif"].read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert ET.fromstring(files["html"].read_text(encoding="utf-8")).tag == "html"
    assert all(f"wrote {path}" in result.output.replace("\n", "") for path in files.values())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["torch", "--op", "maxpool"], "Did you mean max_pool?"),
        (["torch", "--mode", "backward"], "backward is not among forward, indices, jvp, vjp"),
        (["module:function"], "which operator is module:function meant to be? Try --as max_pool"),
        (["torch", "--as", "max_pool"], "only a module:function is some operator"),
        (["nothing.json"], "No such file"),
        (["torch", "--cases", "0"], "greater than or equal to 1"),
    ],
)
def test_a_mistake_is_told(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["lunette", "conform", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2 and text in words(capsys.readouterr().err)


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    for content in ("{}", "[1]", "no json"):
        (tmp_path / "x.json").write_text(content, encoding="utf-8")
        result = runner.invoke(app, ["conform", str(tmp_path / "x.json")])
        assert result.exit_code == 2 and "is no report that --json wrote" in words(result.output)


NOISY = """import lunette as ln

def pool(x, kernel, stride, padding=0, ceil_mode=False):
    print("called")
    return ln.max_pool(x, kernel, stride=stride, padding=padding)
"""


def test_a_function_of_the_folder_is_measured_and_the_run_goes_on_from_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    asked = ["conform", "noisy:pool", "--as", "max_pool", "--cases", "20", "--resume", "journal", "--json", "{}.json"]
    first, again = (
        runner.invoke(app, [w.format(name) for w in asked] + ["--sarif", "s.sarif"]) for name in ("first", "again")
    )
    assert first.exit_code == again.exit_code == 1 and "called" not in first.output
    one, two = (json.loads((tmp_path / f"{n}.json").read_text(encoding="utf-8")) for n in ("first", "again"))
    assert one | {"seconds": 0} == two | {"seconds": 0, "journal": ""}
    assert "size rule" in {f["kind"] for f in one["findings"]}
    lines = (tmp_path / "journal").read_text(encoding="utf-8").splitlines()
    keys_of = [json.dumps(json.loads(line)["batch"]) for line in lines[1:-1]]
    assert len(keys_of) == len(set(keys_of)) >= 2 and "measured anew" in again.output  # the first had come to its end
    (location, *_) = (r["locations"][0] for r in json.loads((tmp_path / "s.sarif").read_text())["runs"][0]["results"])
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "noisy.py"
    assert location["physicalLocation"]["region"]["startLine"] == 3
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "noisy.pool"


# ---- pytest


pytest_plugins = ["pytester"]
KERNELS = """
import lunette as ln

def right(x, kernel, stride, padding=0):
    return ln.max_pool(x, kernel, stride=stride, padding=padding)

def wrong(x, kernel, stride):
    return ln.max_pool(x, kernel, stride=stride)[..., :1]

def test_right(conform):
    conform(right, "max_pool")

def test_wrong(conform):
    conform(wrong, "max_pool", cases=20)

def test_named(conform):
    report = conform("lunette", ops=["global_max_pool"], modes=["forward"])
    assert report.backend == "lunette"
"""


@pytest.mark.parametrize("processes", [(), ("-n2",)])
def test_one_line_measures_an_operator(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: tuple[str, ...]
) -> None:
    pytester.makepyfile(KERNELS)
    # Loaded by name, and nothing else by itself: that pytest finds the plugin is a matter of installing.
    loaded = ("-p", "lunette.conform.plugin", *(("-p", "xdist") if processes else ()))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(lunette.__file__).parents[1]))
    options = ("--conform-cases", "30", "--conform-seed", "3", "--conform-html", "page.html")
    result = pytester.runpytest_subprocess(*loaded, *processes, *options, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    text = result.stdout.str()
    for part in ("size rule in max_pool", "reproduce", "wrong(", "= conformance =", "100% agree, nothing new"):
        assert part in text
    page = ET.fromstring((pytester.path / "page.html").read_text(encoding="utf-8"))
    assert len(page.findall(".//section[@id='backends']//tbody/tr")) == 3


def test_the_plugin_is_what_pytest_looks_for() -> None:
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    assert points == {"lunette": "lunette.conform.plugin"}
