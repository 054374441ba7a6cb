"""The scripts of examples/ run, with short settings, and say what they promise."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "training.py": (["1"], "test accuracy"),
    "hessian_vector_product.py": (["3"], "H is symmetric"),
    "conv4d.py": ([], "adjoint"),
}


def test_every_example_is_run() -> None:
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == sorted(SHORT)


@pytest.mark.parametrize("name", SHORT)
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    if name == "training.py":
        pytest.importorskip("sklearn")
    words, promise = SHORT[name]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert promise in done.stdout and not list(tmp_path.iterdir())
    assert name != "conv4d.py" or importlib.util.find_spec("jax") is None or "JAX agrees" in done.stdout


@pytest.mark.parametrize("name", SHORT)
def test_examples_are_short_and_say_what_they_do(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.startswith('"""') and len(text.splitlines()) <= 70
    assert name != "training.py" or len(text.splitlines()) < 60
