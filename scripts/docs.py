"""The site: the pages of docs/, a reference of every public function, a gallery; built by mkdocs into build/site.

python scripts/docs.py [--source]    with --source, only the pages that mkdocs reads

Every example on it is a doctest of docs/ or of a docstring, and runs with the tests.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lunette as ln
from lunette.ops import ALL

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
HOSTED = re.compile(r"\]\((\.\./)*(src|tests|native|examples|CONTRIBUTING|CHANGELOG|README)[^)]*\)")
"""Links into the repository: the site has no such pages, and shows their text."""


def main(arguments: list[str]) -> int:
    """Write the source, and build the site unless told otherwise."""
    write(SOURCE)
    if "--source" in arguments:
        return 0
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    return subprocess.run(command, cwd=ROOT, env=quiet).returncode


def write(folder: Path) -> None:
    """All pages."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*")):
        target = folder / page.relative_to(ROOT / "docs")
        if page.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(HOSTED.sub("]", page.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copy(page, target)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    (folder / "reference.md").write_text("\n".join(reference()), encoding="utf-8")
    (folder / "gallery.md").write_text("\n".join(gallery(pictures)), encoding="utf-8")
    (folder / "decisions.md").write_text("\n".join(decisions(folder)), encoding="utf-8")


def functions() -> dict[str, Any]:
    """Every public function and class, by name."""
    return {name: getattr(ln, name) for name in sorted(ln.__all__) if callable(getattr(ln, name))}


def reference() -> Iterator[str]:
    """Every signature, with what its docstring says."""
    yield "# Reference\n"
    yield "Every public function and class, with its signature. Rules and their names: `help(ln.NAME)`.\n"
    for name, value in functions().items():
        yield f"## {name}\n\n```text\nln.{name}{signature(value)}\n```\n"
        yield f"{documented(inspect.getdoc(value) or '')}\n"
    yield "## Rules\n\nWhich operator has which rule, and how:\n"
    rows = [[name, *known.how.values()] for name, known in ln.rules().items()]
    heads = ["operator", *next(iter(ln.rules().values())).how]
    yield "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def signature(value: Any) -> str:
    """Parameters as they are written, one to a line where they are many."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parts = [re.sub(r": '([^']*)'", r": \1", str(p)) for p in found.parameters.values()]
    keyword = [p.kind is p.KEYWORD_ONLY for p in found.parameters.values()]
    if True in keyword and not any(p.kind is p.VAR_POSITIONAL for p in found.parameters.values()):
        parts.insert(keyword.index(True), "*")
    line = f"({', '.join(parts)})"
    return line if len(line) < 90 else "(\n    " + ",\n    ".join(parts) + ",\n)"


def documented(text: str) -> str:
    """A docstring as Markdown: prose as it is, examples and drawings as code."""
    blocks = []
    for block in text.split("\n\n"):
        plain = all(not line.startswith((" ", ">>>", "|")) for line in block.splitlines())
        table = all(line.startswith("|") for line in block.splitlines())
        blocks.append(block if plain or table else f"```text\n{block}\n```")
    return "\n\n".join(blocks)


def gallery(pictures: Path) -> Iterator[str]:
    """The cases of every operator that can be drawn on a line or a plane, and a page to hover over."""
    yield "# Gallery\n\nWhat windows read, of cases of every operator.\n"
    for kind, function in ALL.items():
        yield f"## {kind.name}\n"
        for name, told in drawn(kind, function):
            path = pictures / f"{kind.name}-{name}.svg"
            path.write_text(told.to_svg(760), encoding="utf-8")
            told.to_html(pictures / f"{kind.name}-{name}.html")
            yield f"![{name}](pictures/{path.name})\n\n{name.replace('_', ' ')}: [hover](pictures/{path.stem}.html)\n"


def drawn(kind: Any, function: Any) -> Iterator[tuple[str, ln.Explanation]]:
    """Up to four of an operator's own cases."""
    found = 0
    for name, case in kind.cases.items():
        x, *rest = case.shapes
        options = {n: v for n, v in case.options.items() if n not in ("groups", "beta", "spatial", *kind.arrays)}
        if rest and kind.weighted:
            options["kernel"] = rest[0][2:]
        try:
            told = ln.explain(function, x[1:], **options, **({} if kind.weighted else kind.needed))
        except ln.LunetteError:
            continue
        if told.window.d in (1, 2) and 0 not in told.out and found < 4:
            found += 1
            yield name, told


def decisions(folder: Path) -> Iterator[str]:
    """The decisions, by number."""
    yield "# Decisions\n\nWhat a newcomer would ask why.\n"
    for page in sorted((folder / "adr").glob("*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        yield f"- [{title}](adr/{page.name})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
