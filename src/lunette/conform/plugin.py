"""For pytest: one line per operator.

    def test_max_pool(conform):
        conform(my_pool, "max_pool")

The test fails with the report of what is wrong. `--conform-cases`, `--conform-seed` and `--conform-html` are options of
pytest; the summary at its end has a line for every function that was measured, under pytest-xdist as well.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # nothing of lunette is loaded until a test asks for it
    from lunette.conform.result import Report

CASES = 300
reports_of = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What can be said on the command line of pytest."""
    group = parser.getgroup("lunette", "conformance of spatial operators")
    group.addoption("--conform-cases", type=int, default=CASES, help=f"cases of each function (default {CASES})")
    group.addoption("--conform-seed", type=int, default=0, help="which cases they are (default 0)")
    group.addoption("--conform-html", type=Path, default=None, help="write the reports of all operators to this page")


def pytest_configure(config: pytest.Config) -> None:
    """Reports are collected here."""
    config.stash[reports_of] = []


class Conform:
    """Measure a function or an installed backend as an operator; the test fails if anything is wrong."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def __call__(self, target: Any, op: str | None = None, **options: Any) -> Report:
        """The arguments of `ln.conform`; how many cases and which are pytest's options unless given."""
        __tracebackhide__ = True
        from lunette.conform.run import conform

        chosen = {name: self.config.getoption(f"--conform-{name}") for name in ("cases", "seed")}
        report = conform(target, op, **chosen | options)
        self.config.stash[reports_of].append(report.to_json())
        if report.exit_status:
            pytest.fail(_text(report), pytrace=False)
        return report


@pytest.fixture
def conform(request: pytest.FixtureRequest) -> Conform:
    """Call it with a function and the name of the operator that the function is meant to be."""
    return Conform(request.config)


def _text(report: Report) -> str:
    from rich.console import Console

    from lunette.conform.report.text import show

    out = StringIO()
    show(report, Console(file=out, width=120, color_system=None))
    return out.getvalue()


# ---- the end of a session


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its reports over; the others write the page."""
    config = session.config
    made = config.stash.get(reports_of, [])
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["lunette_conform"] = made
        return
    where = config.getoption("--conform-html")
    if where is not None and made:
        from lunette.conform.report.page import html
        from lunette.conform.result import Report

        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(html([Report.from_json(r) for r in made]), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of pytest-xdist: a worker is done."""
    node.config.stash[reports_of].extend(getattr(node, "workeroutput", {}).get("lunette_conform", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for every function."""
    made = config.stash.get(reports_of, [])
    if not made:
        return
    from lunette.conform.report.words import clean, headline
    from lunette.conform.result import Report

    terminalreporter.section("conformance")
    for report in map(Report.from_json, made):
        terminalreporter.line(clean(f"{report.backend}: {headline(report)}"))
    if config.getoption("--conform-html") is not None:
        terminalreporter.line(f"wrote {config.getoption('--conform-html')}")
