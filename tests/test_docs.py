"""The site: every public name has an entry, links lead somewhere, nothing is loaded from the network."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app

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


def test_links_of_the_readme_lead_to_files() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"):
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), (page.name, link)


def test_every_public_function_is_in_the_reference(source: Path) -> None:
    text = (source / "reference.md").read_text(encoding="utf-8")
    for name in ln.__all__:
        if callable(getattr(ln, name)):
            assert f"\n## {name}\n" in text, name
    assert "ln.batch_norm(" in text


def test_links_lead_to_pages_that_exist(source: Path) -> None:
    for page in source.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not link.startswith(("http://", "https://")):
                assert (page.parent / link).exists(), (page.relative_to(source), link)


def test_the_site_names_every_page_and_every_tutorial(source: Path) -> None:
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(p.relative_to(source)) for p in source.rglob("*.md")} - {
        str(p.relative_to(source)) for p in (source / "adr").glob("*.md")
    }
    assert all(page in told for page in pages), pages
    assert "font: false" in told and not re.search(r"https?://", told)
    start = (source / "index.md").read_text(encoding="utf-8")
    assert all(f"(tutorials/{p.name})" in start for p in (source / "tutorials").glob("*.md"))


def test_mkdocs_builds_it_without_a_warning(maker: ModuleType) -> None:
    pytest.importorskip("mkdocs", reason="make docs installs it")
    pytest.importorskip("material", reason="make docs installs it")
    assert maker.main([]) == 0
    pattern = r"""<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"""
    for page in (ROOT / "build" / "site").rglob("*.html"):
        assert not re.findall(pattern, page.read_text(encoding="utf-8")), page
