"""A short look at what is installed: the same questions to every backend, and to lunette itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from lunette.conform.backends import NAMES, find
from lunette.conform.report.page import html
from lunette.conform.report.text import backends
from lunette.conform.result import Batch, BatchResult, Report
from lunette.conform.run import Processes, run
from lunette.errors import LunetteError

OPS = ("max_pool", "avg_pool")
MODES = ("forward", "indices")
PART = 60
"""Of the cases of a whole run, which are fewer where each takes longer."""
LEFT_OUT = frozenset({"torch-compile"})
"""Compiles for seconds, however few cases there are."""
QUICK, QUICK_CASES = ("lunette", "onnx-reference"), 20
"""Those that take no time to load."""


class Drawn:
    """Only the random cases, half of all: the corners of operators take minutes, and are for `lunette conform`."""

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        """In processes here."""
        return Processes().map([b for b in batches if b.index > 0])


def installed() -> list[str]:
    """The backends that can be asked, lunette first."""
    found = []
    for name in sorted(NAMES, key=lambda n: n != "lunette"):
        try:
            find(name).check()
        except LunetteError:
            continue
        found.append(name)
    return found


def missing() -> dict[str, list[str]]:
    """The backends that are not installed, by the extra that brings them."""
    absent: dict[str, list[str]] = {}
    here = installed()
    for name in NAMES:
        if name not in here and name not in LEFT_OUT:
            absent.setdefault(find(name).extra, []).append(name)
    return absent


def measure(folder: Path, quick: bool, out: Console) -> bool:
    """Print a table, write a page beside the demo's, and tell whether lunette agrees with itself."""
    reports: list[Report] = []
    with out.status("conformance") as status:
        for name in installed():
            if name in LEFT_OUT or (quick and name not in QUICK):
                continue
            cases = QUICK_CASES if quick else find(name).default_cases // PART
            status.update(f"conformance of {name}")
            modes = [m for m in MODES if m in find(name).space.modes]
            reports.append(run(name, ops=OPS, modes=modes, cases=2 * cases, pool=Drawn()))
    out.print(backends(reports))
    if absent := missing():
        words = "; ".join(f"{', '.join(names)}: pip install 'lunette[{extra}]'" for extra, names in absent.items())
        out.print(f"not installed, so not asked: {words}", highlight=False, markup=False, soft_wrap=True)
    where = folder / "conformance.html"
    where.write_text(html(reports), encoding="utf-8")
    out.print(f"wrote {where}; every operator, and its corners: lunette conform torch --html FILE", soft_wrap=True)
    return all(not r.exit_status for r in reports if r.backend == "lunette")
