"""The site: every public name has an entry, links lead somewhere, nothing is loaded from the network."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app
from lunette.ops import KINDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_maker", ROOT / "scripts" / "docs.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def source(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    maker.write(folder)
    return folder


def test_the_readme_is_short_and_its_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120 and "pip install ." in "".join(text.splitlines()[:12])
    (command,) = re.findall(r"`lunette (explain .*) --svg docs/window.svg`", text)
    assert CliRunner().invoke(app, [*command.split(), "--svg", str(tmp_path / "window.svg")]).exit_code == 0
    assert (tmp_path / "window.svg").read_bytes() == (ROOT / "docs" / "window.svg").read_bytes()


def test_the_files_and_commands_of_the_tutorial_about_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed as they stand there, in an empty folder; then with the numbers that the text names."""
    text = (ROOT / "docs" / "tutorials" / "prove.md").read_text(encoding="utf-8")
    program, told, commands = (dedent(block) for block in re.findall(r"(?m)(?:^    .*\n)+", text))
    monkeypatch.chdir(tmp_path)
    exec(program, {})

    def typed(told: str) -> Iterator[tuple[int, str]]:
        Path("prop.vnnlib").write_text(told)
        for command in commands.splitlines():
            done = CliRunner().invoke(app, command.split()[1:])
            yield done.exit_code, done.output

    (status, verdict), (checked, answer) = typed(told)
    assert (status, checked) == (0, 0) and verdict.strip().startswith("proved")
    assert answer.strip() in text
    Path("prop.cert").unlink()
    (status, verdict), _ = typed(told.replace("0.6", "4.6").replace("X_1 0.1", "X_1 3"))
    assert status == 1 and verdict.strip().startswith("disproved") and not Path("prop.cert").exists()
    assert Path("prop-counterexample.npy").exists() and "wrote prop-counterexample.npy" in verdict


def test_links_of_the_readme_lead_to_files() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"):
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), (page.name, link)


def test_every_public_function_is_in_the_reference_with_its_arguments(source: Path) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (source / "reference").glob("*.md"))
    names = [name for name in ln.__all__ if callable(getattr(ln, name))]
    index = (source / "reference.md").read_text(encoding="utf-8")
    for name in names:
        assert text.count(f"\nln.{name}(") == 1 and f".md#{name})" in index, name
    assert "\nln.batch_norm(x: Any, mean: Any, var: Any, scale: Any, shift: Any, eps: float = 1e-05)\n" in text
    assert all(f"\nlt.{name}(" in text and f"\nlj.{name}(" in text for name in KINDS)
    assert "\nInterval.around(x: Number, eps: Number," in text


def test_operators_have_their_rules_and_a_picture_in_the_reference(source: Path) -> None:
    text = (source / "reference" / "operators.md").read_text(encoding="utf-8")
    for name, part in ((p.partition(" ")[0], p) for p in text.split("\n## ")[1:]):
        if name in KINDS:
            (picture,) = re.findall(r"!\[.*\]\(\.\./(pictures/.*\.svg)\)", part)
            assert "Meaning and rules" in part and (source / picture).exists(), name


def test_links_lead_to_pages_that_exist(source: Path) -> None:
    for page in source.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not link.startswith(("http://", "https://")):  # pages of notebooks are made when these have run
                made = link.replace(".md", ".ipynb") if "notebooks/" in link else link
                assert (page.parent / made).exists(), (page.relative_to(source), link)


def test_links_lead_to_files_of_the_repository() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(((?:\.\./)*notebooks/[^)#\s]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page, link)


def test_the_site_names_every_page_and_every_tutorial(source: Path) -> None:
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(p.relative_to(source)) for p in source.rglob("*.md")} - {
        str(p.relative_to(source)) for p in (source / "adr").glob("*.md")
    }
    assert all(page in told for page in pages), pages
    assert "font: false" in told and not re.search(r"https?://", told)
    start = (source / "index.md").read_text(encoding="utf-8")
    assert all(f"(tutorials/{p.name})" in start for p in (source / "tutorials").glob("*.md"))


# ---- notebooks: `make docs` runs them


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_are_kept_without_what_they_printed(path: Path) -> None:
    made = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    assert f"notebooks/{path.stem}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_links_that_lead_nowhere_are_found(maker: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="a.html#there">', encoding="utf-8")
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"><a href="b.html#gone"><img src="c.png"><a href="https://x.org"><script src="https://x.org/y">',
        encoding="utf-8",
    )
    found = sorted(maker.dead_links(tmp_path))
    assert [line.partition(": ")[2].split()[0] for line in found] == [
        *("b.html#gone", "c.png", "https://x.org/y"),
        "a.html#there",
    ]


def test_a_cell_that_fails_ends_the_build(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="make docs installs it")
    (tmp_path / "docs" / "notebooks").mkdir(parents=True)
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "a",
        "metadata": {},
        "outputs": [],
        "source": "1 / 0",
    }
    text = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (tmp_path / "docs" / "notebooks" / "broken.ipynb").write_text(text, encoding="utf-8")
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    with pytest.raises(client.exceptions.CellExecutionError, match="ZeroDivisionError"):
        maker.notebooks(tmp_path)
