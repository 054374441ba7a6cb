"""The demo: what it trains, what it checks, and the page it writes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette import page
from lunette.cli import app
from lunette.demo.conformance import missing
from lunette.demo.digits import Adam, Digits, he, load, loss, network, train
from lunette.demo.exact import check_gradient, kernel_errors
from lunette.demo.robust import RADIUS, measure
from lunette.verify.images import box_around

runner = CliRunner()
SECTIONS = ["training", "kernels", "digits", "windows", "graph", "time", "errors", "exactness"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `lunette demo --quick` leaves behind, and in `printed` what it prints."""
    pytest.importorskip("sklearn")
    where = tmp_path_factory.mktemp("demo")
    result = runner.invoke(app, ["demo", "--quick", "--output", str(where)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (where / "printed").write_text(result.output, encoding="utf-8")
    return where


def test_the_demo_prints_a_table(folder: Path) -> None:
    text = (folder / "printed").read_text(encoding="utf-8")
    for word in ("test accuracy", "training time", "value and gradient", "PyTorch", "equal", "ulp", "index.html"):
        assert word in text
    found = re.search(r"([\d.]+)%", text)
    assert found is not None and float(found[1]) > 60  # two epochs


def test_the_demo_ends_with_a_table_of_robustness(folder: Path) -> None:
    text = (folder / "printed").read_text(encoding="utf-8").split("Robustness")[1]
    assert "certified" in text and "attacked" in text and "1 of 1, ball" in text


def test_robustness_counts_what_verify_says(folder: Path) -> None:
    """Wrong labels are no proofs, and what is disproved is neither certified nor right under attack."""
    graph, digits = folder / "digits.json", load()
    net = ln.load(graph).compile()
    right = [k for k in range(40) if int(net(digits.test_x[k : k + 1]).argmax()) == digits.test_y[k]][:3]
    some = Digits(digits.x, digits.y, digits.test_x[right], digits.test_y[right].copy())
    some.test_y[0] = (some.test_y[0] + 1) % 10
    r = measure(graph, some, 3, certificates=0)
    assert (r.digits, r.clean, r.made) == (3, 2, 0) and r.certified <= r.attacked <= 2
    statuses = [
        ln.verify(
            ln.load(graph), box_around(x[None], RADIUS, (0.0, 1.0)), ln.Property.robust(int(y), 10), timeout=60
        ).status
        for x, y in zip(some.test_x[1:], some.test_y[1:], strict=True)
    ]
    assert r.certified == statuses.count("proved") and r.attacked == 2 - statuses.count("disproved")


def test_the_page_has_every_section_and_is_well_formed(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert [e.get("id") for e in root.iter("section")] == SECTIONS
    for section in root.iter("section"):
        assert section.findtext("h2") and (section.find(".//svg") is not None or section.find(".//table") is not None)
    assert len([e for e in root.iter("svg") if e.get("class") == "ln-graph"]) == 2
    keys = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(keys) == len(set(keys))


def test_the_page_loads_nothing(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert "http" not in text and "url(" not in text and "@import" not in text and "<script" not in text
    links: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(name for name, _ in attrs if name in ("src", "href", "xlink:href", "srcset", "data"))

    Reader().feed(text)
    assert not links
    assert "prefers-color-scheme:dark" in text


def test_it_ends_with_a_look_at_what_is_installed(folder: Path) -> None:
    text = (folder / "printed").read_text(encoding="utf-8")
    assert "Conformance of what is installed here" in text and "conformance.html" in text
    root = ET.fromstring((folder / "conformance.html").read_text(encoding="utf-8"))
    rows = [row.findtext("td") or "" for row in root.findall(".//section[@id='backends']//tbody/tr")]
    assert rows[0].startswith("lunette") and len(rows) == 2
    assert root.find(".//article") is not None  # the report of a new user is not empty


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torch-compile" not in str(missing())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing() == {
        "torch": ["torch", "lunette-torch"],
        "jax": ["jax", "lunette-jax"],
        "onnx": ["onnxruntime", "onnx-reference"],
        "openvino": ["openvino"],
        "tinygrad": ["tinygrad"],
        "tensorflow": ["tensorflow", "keras"],
    }


def test_the_trained_graph_is_saved(folder: Path) -> None:
    graph = ln.load(folder / "digits.json")
    assert graph.compile()(np.zeros((1, 1, 8, 8), np.float32)).shape == (1, 10)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = runner.invoke(app, ["demo", "--output", str(tmp_path / "demo")])
    assert result.exit_code == 2 and "lunette[demo]" in result.output
    assert not (tmp_path / "demo").exists()


# ---- the parts


def test_three_gradients_on_rationals_are_equal() -> None:
    check = check_gradient()
    assert check.equal and check.cells == 47
    assert all(type(v) is Fraction and v != 0 for _, v in check.samples)
    check.by_rules["w1"][0, 0, 0, 0] += Fraction(1, 10**30)
    assert not check.equal


def test_the_error_of_the_kernel_is_within_its_bound() -> None:
    x = np.random.default_rng(0).random((1, 8, 8)).astype(np.float32)
    errors = kernel_errors(he(3), x, 2)
    assert errors.ulps.shape == (2, 4, 4) and errors.terms == 145
    assert 0 < errors.of_bound <= 1


def test_training_learns_what_can_be_learned() -> None:
    """Four bright corners are four classes."""
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 320)
    x = 0.1 * random.random((320, 1, 8, 8)).astype(np.float32)
    for image, label in zip(x, y, strict=True):
        image[0, 1 + label % 2 * 4 : 3 + label % 2 * 4, 1 + label // 2 * 4 : 3 + label // 2 * 4] += label + 1
    seen: list[int] = []
    done = train(Digits(x[:256], y[:256], x[256:], y[256:]), 6, after=lambda t: seen.append(len(t.losses)))
    assert done.accuracies[-1] > 0.9 and done.losses[-1] < done.losses[0] / 3
    assert len(done.losses) == len(done.step_seconds) == 96 and seen[-1] == 96
    again = train(Digits(x[:256], y[:256], x[256:], y[256:]), 6)
    assert again.losses == done.losses  # repeatable for equal threads and instruction set


def test_the_compiled_step_is_the_gradient_of_the_loss() -> None:
    p = {name: a.astype(np.float64) for name, a in he(1, (2, 3)).items()}
    x, y = np.random.default_rng(0).random((4, 1, 8, 8)), np.array([0, 3, 9, 1])
    value, gradient = ln.jit(ln.value_and_grad(loss))(p, x, y)
    assert value == loss(p, x, y) and network(p, x).shape == (4, 10)
    t = {name: np.random.default_rng(1).standard_normal(a.shape) for name, a in p.items()}
    step = 1e-6
    ahead, behind = (loss({n: p[n] + s * t[n] for n in p}, x, y) for s in (step, -step))
    wanted = sum(float((gradient[n] * t[n]).sum()) for n in p)
    assert abs((ahead - behind) / (2 * step) - wanted) < 1e-5 * max(1, abs(wanted))


def test_adam_takes_steps_of_the_size_of_the_rate() -> None:
    p, g = {"w": np.zeros(3, np.float32)}, {"w": np.array([1e-3, -5.0, 2.0], np.float32)}
    new = Adam().step(p, g, 0.1)
    np.testing.assert_allclose(new["w"], [-0.1, 0.1, -0.1], rtol=1e-4)


@pytest.mark.parametrize("values", [[1.0], [0.5, 0.5], [2.0, 1e-5, 3.0], list(range(1, 200))])
def test_curves_stand_for_any_values(values: list[float]) -> None:
    for logarithmic in (False, True):
        svg = page.curve("a < b", values, colour="--blue", logarithmic=logarithmic, dots=True)
        root = ET.fromstring(svg)
        numbers = [float(v) for e in root.iter("path") for v in re.findall(r"-?\d+\.?\d*", e.get("d", ""))]
        assert all(np.isfinite(numbers)) and max(numbers) <= 520 and min(numbers) >= 0


def test_histograms_have_a_bar_for_every_class() -> None:
    root = ET.fromstring(page.histogram("errors", (0.5, 1), [1, 0, 3], "--blue"))
    assert [e.findtext("title") for e in root.iter("rect")] == ["≤ 0.5: 1", "≤ 1: 0", "> 1: 3"]


def test_tiles_show_signs() -> None:
    svg = page.tile(np.array([[1.0, -0.5], [0.0, 0.25]]), 8, "k", signed=True)
    assert svg.count("--blue") == 2 and svg.count("--red") == 1
    ET.fromstring(svg)
