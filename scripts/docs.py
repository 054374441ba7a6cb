"""The site: the pages of docs/, notebooks as they ran, a reference of every function, a gallery; built into build/site.

python scripts/docs.py [--source]    with --source, only the pages that mkdocs reads, without notebooks

Every example on it is a doctest of docs/ or of a docstring, or a cell of a notebook, and runs with the tests. A cell
that fails, a warning of mkdocs and a link that leads nowhere end the build.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import unquote

import lunette as ln
from lunette.ops import ALL, KINDS

ROOT = Path(__file__).parents[1]
SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
HOSTED = re.compile(r"\]\((\.\./)*(src|tests|native|examples|CONTRIBUTING|CHANGELOG|README)[^)]*\)")
"""Links into the repository: the site has no such pages, and shows their text."""
NOTEBOOK = re.compile(r"(\]\((?:\.\./)?notebooks/\w+)\.ipynb\)")
"""Links to notebooks, which the repository has as they are written."""
SECONDS = 120
"""That a cell of a notebook may take on a slow machine."""


def main(arguments: list[str]) -> int:
    """Write the source, and build the site unless told otherwise."""
    write(SOURCE)
    if "--source" in arguments:
        return 0
    notebooks(SOURCE / "notebooks")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    if status := subprocess.run(command, cwd=ROOT, env=quiet).returncode:
        return status
    lost = list(dead_links(SITE))
    print(*lost, sep="\n", file=sys.stderr, end="\n" if lost else "")
    return 1 if lost else 0


def write(folder: Path) -> None:
    """All pages but those of notebooks."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*")):
        target = folder / page.relative_to(ROOT / "docs")
        if page.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text = HOSTED.sub("]", page.read_text(encoding="utf-8"))
            # In the repository a notebook is what there is to open; here it is a page, as it ran.
            target.write_text(NOTEBOOK.sub(r"\1.md)", text), encoding="utf-8")
        else:
            shutil.copy(page, target)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    pages = {"reference": reference(), "gallery": gallery(pictures), "decisions": decisions(folder)}
    pages |= {f"reference/{page}": entries(title, page) for page, title in PAGES.items()}
    for name, lines in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")


# ---- notebooks


def notebooks(folder: Path) -> None:
    """Run every notebook, and write it as a page, beside the notebook with what it printed."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        began = time.perf_counter()
        ran = nbformat.read(path, 4)
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(ran, timeout=SECONDS, resources=where, extra_arguments=["--log-level=ERROR"]).execute()
        named = {"output_files_dir": f"{path.stem}_files", "unique_key": path.stem}
        text, made = MarkdownExporter().from_notebook_node(ran, named)
        for name, data in made.get("outputs", {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        nbformat.write(ran, folder / path.name)
        end = f"\n\nThis page is a notebook that ran when the site was built: [{path.name}]({path.name}).\n"
        (folder / f"{path.stem}.md").write_text(text.rstrip() + end, encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - began:.1f} s")


# ---- reference

PAGES = {
    "operators": "Operators and their derivatives",
    "glue": "Between the operators",
    "graphs": "Graphs and transformations",
    "bounds": "Bounds, verdicts, certificates",
    "numbers": "Numbers and arithmetics",
    "errors": "Refusals",
    "more": "Looking, measuring, files",
    "torch": "In PyTorch",
    "jax": "In JAX",
    "spec": "The executable specification",
}
"""The pages of the reference."""
HOMES = {
    "lunette.ops": "glue",
    "lunette.graph": "graphs",
    **dict.fromkeys(("lunette.relax", "lunette.verify", "lunette.certificate"), "bounds"),
    **dict.fromkeys(("lunette.number", "lunette.arithmetic"), "numbers"),
    "lunette.errors": "errors",
}
"""Where the names of `lunette` belong that are no operators, by the room that they come from."""
ELSEWHERE = {"torch": ("lunette.torch", "lt"), "jax": ("lunette.jax", "lj"), "spec": ("lunette.spec", "ln.spec")}
"""Modules that have a page of their own, and what examples call them."""


def page_of(name: str, value: Any) -> str:
    """The page that a name of `lunette` is on."""
    if name.removesuffix("_jvp").removesuffix("_vjp") in KINDS:
        return "operators"
    room = str(getattr(value, "__module__", ""))
    return next((page for home, page in HOMES.items() if room == home or room.startswith(f"{home}.")), "more")


def members(page: str) -> dict[str, Any]:
    """The functions and classes of a page, by name."""
    if page in ELSEWHERE:
        module = importlib.import_module(ELSEWHERE[page][0])
        names = getattr(module, "__all__", [n for n in sorted(vars(module)) if not n.startswith("_")])
        found = {n: getattr(module, n) for n in names if callable(getattr(module, n))}
        return {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith("lunette")}
    values = {name: getattr(ln, name) for name in sorted(ln.__all__)}
    return {n: v for n, v in values.items() if callable(v) and page_of(n, v) == page}


def reference() -> Iterator[str]:
    """Every name with a line about it, and which rules there are."""
    yield "# Reference\n"
    yield "Every public function and class. Signatures, examples and rules are behind the names.\n"
    for page, title in PAGES.items():
        yield f"## {title}\n\n| name | what it is |\n|---|---|"
        for name, value in members(page).items():
            line = (inspect.getdoc(value) or "").partition("\n")[0].replace("|", "\\|")
            yield f"| [{name}](reference/{page}.md#{name}) | {line} |"
        yield ""
    yield "## Rules\n\nWhich operator has which rule, and how:\n"
    rows = [[name, *known.how.values()] for name, known in ln.rules().items()]
    heads = ["operator", *next(iter(ln.rules().values())).how]
    yield "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def entries(title: str, page: str) -> Iterator[str]:
    """A page: every function and class with its signature and what its docstring says."""
    prefix = ELSEWHERE[page][1] if page in ELSEWHERE else "ln"
    yield f"# {title}\n"
    for name, value in members(page).items():
        yield f"## {name} {{ #{name} }}\n\n```python\n{prefix}.{name}{signature(value)}\n```\n"
        yield f"{documented(inspect.getdoc(value) or '')}\n"
        if inspect.isclass(value):
            yield from parts_of(name, value)
        if page == "operators" and name in KINDS:
            yield from rules_of(name)


def parts_of(name: str, value: type) -> Iterator[str]:
    """The fields of a class that are explained, its properties and methods."""
    rows = [f"| `{field}` | {text} |" for field, text in fields_of(value).items()]
    if rows:
        yield "\n".join(["| field | what it holds |", "|---|---|", *rows, ""])
    for inner, part in inspect.getmembers_static(value):
        if inner.startswith("_") or not str(getattr(part, "__module__", "lunette")).startswith("lunette"):
            continue
        method = part.__func__ if isinstance(part, classmethod | staticmethod) else part
        text = inspect.getdoc(method) or ""
        if text and (inspect.isfunction(method) or isinstance(method, property)):
            call = "" if isinstance(method, property) else signature(method)
            yield f"### {name}.{inner} {{ #{name}.{inner} }}\n\n```python\n{name}.{inner}{call}\n```\n"
            yield f"{documented(text)}\n"


def fields_of(value: type) -> dict[str, str]:
    """Fields with the text that stands below them."""
    try:
        (body,) = ast.parse(dedent(inspect.getsource(value))).body
    except (OSError, TypeError):  # compiled
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(below.value.value).split()).replace("|", "\\|")
    return found


def rules_of(name: str) -> Iterator[str]:
    """What an operator's room says of its meaning and its rules, and the first of its cases."""
    kind = KINDS[name]
    _, _, meaning = (inspect.getdoc(sys.modules[kind.__module__]) or "").partition("\n")
    meaning = meaning.strip("\n")
    yield f"**Meaning and rules**\n\n{documented(meaning)}\n"
    for case, _ in drawn(kind, ALL[kind]):
        yield f"![{case}](../pictures/{name}-{case}.svg)\n\n[more of its cases](../gallery.md#{name})\n"
        break


def signature(value: Any) -> str:
    """Parameters as they are written, one to a line where they are many; without the object of a method."""
    try:
        found = [p for n, p in inspect.signature(value).parameters.items() if n not in ("self", "cls")]
    except (TypeError, ValueError):
        return "(...)"
    parts = [re.sub(r": '([^']*)'", r": \1", str(p)) for p in found]
    keyword = [p.kind is p.KEYWORD_ONLY for p in found]
    if True in keyword and not any(p.kind is p.VAR_POSITIONAL for p in found):
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


# ---- gallery and decisions


def gallery(pictures: Path) -> Iterator[str]:
    """The cases of every operator that can be drawn on a line or a plane, and a page to hover over."""
    yield "# Gallery\n\nWhat windows read, of cases of every operator.\n"
    for kind, function in ALL.items():
        yield f"## {kind.name}\n"
        for name, told in drawn(kind, function):
            path = pictures / f"{kind.name}-{name}.svg"
            path.write_text(told.to_svg(width=760), encoding="utf-8")
            told.to_html(pictures / f"{kind.name}-{name}.html")
            yield f"![{name}](pictures/{path.name})\n\n{name.replace('_', ' ')}: [hover](pictures/{path.stem}.html)\n"


def drawn(kind: Any, function: Any) -> Iterator[tuple[str, ln.Explanation]]:
    """Up to four of an operator's own cases, no two of which look alike."""
    seen = set()
    for name, case in kind.cases.items():
        x, *rest = case.shapes
        options = {n: v for n, v in case.options.items() if n not in ("groups", "beta", "spatial", *kind.arrays)}
        if rest and kind.weighted:
            options["kernel"] = rest[0][2:]
        try:
            told = ln.explain(function, x[1:], **options, **({} if kind.weighted else kind.needed))
        except ln.LunetteError:
            continue
        looks = told.to_svg()
        if told.window.d in (1, 2) and 0 not in told.out and looks not in seen and len(seen) < 4:
            seen.add(looks)
            yield name, told


def decisions(folder: Path) -> Iterator[str]:
    """The decisions, by number."""
    yield "# Decisions\n\nWhat a newcomer would ask why.\n"
    for page in sorted((folder / "adr").glob("*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        yield f"- [{title}](adr/{page.name})"


# ---- links


def dead_links(site: Path) -> Iterator[str]:
    """What is wrong with links and pictures of the site: no such file, no such place on its page, the network."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    places = {page: set(re.findall(r"""\sid="([^"]*)\"""", text)) for page, text in texts.items()}
    for page, text in texts.items():
        for far in re.findall(r"""<(?:script|link|img|iframe)\b[^>]*\s(?:href|src)="(https?:[^"]*)\"""", text):
            yield f"{page.relative_to(site)}: {far} is loaded from the network"
        for link in sorted(set(re.findall(r"""\s(?:href|src)="([^"]*)\"""", text))):
            path, _, place = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                yield f"{page.relative_to(site)}: {link} is no file"
            elif place and target in places and place not in places[target]:
                yield f"{page.relative_to(site)}: {link} is no place on that page"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
