"""A short look at what is installed: the same questions to every backend, and to lunette itself."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import lunette as ln
from lunette.conform.backends import NAMES, find
from lunette.conform.report.page import html
from lunette.conform.report.text import backends
from lunette.conform.result import Report
from lunette.conform.run import run
from lunette.errors import LunetteError

OPS = ("max_pool", "avg_pool")
SLOW = frozenset({"torch-compile"})
"""Takes seconds per case, to compile it."""
CASES, QUICK_CASES = 240, 24


def installed() -> list[str]:
    """The backends that can be asked."""
    found = []
    for name in NAMES:
        try:
            find(name).check()
        except LunetteError:
            continue
        found.append(name)
    return found


def measure(folder: Path, quick: bool, out: Console) -> bool:
    """Print a table, write a page beside the demo's, and tell whether lunette agrees with itself."""
    reports: list[Report] = []
    with out.status("conformance") as status:
        for name in installed():
            if name not in SLOW:
                status.update(f"conformance of {name}")
                ops = [op for op in OPS if op in find(name).space.ops]
                reports.append(run(name, ops=ops, cases=QUICK_CASES if quick else CASES))
    out.print(backends(reports))
    where = folder / "conformance.html"
    where.write_text(html(reports, ln.__version__), encoding="utf-8")
    out.print(f"wrote {where}; all operators and more cases: lunette conform torch --html torch.html", soft_wrap=True)
    return all(not r.exit_status for r in reports if r.backend == "lunette")
