"""Journals: what they belong to, and what they do not touch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import lunette as ln
from lunette.conform import worker
from lunette.conform.ask import close_nurseries
from lunette.conform.backends import find
from lunette.conform.backends.backend import register
from lunette.conform.backends.function import Imported
from lunette.conform.generate import draws
from lunette.conform.result import Batch, BatchResult, Report
from lunette.conform.run import conform, run


def test_a_journal_belongs_to_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    journal = tmp_path / "new" / "journal.jsonl"
    source = tmp_path / "kernel_of_mine.py"
    name = "kernel_of_mine:pool as global_max_pool"

    def asked(text: str) -> Report:
        source.write_text(f"import lunette as ln\ndef pool(x, keepdims, spatial):\n    {text}\n")
        sys.modules.pop("kernel_of_mine", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        close_nurseries()  # as in a process of its own
        register(Imported(name))
        return run(name, cases=30, journal=journal, pool=Here())

    right = "return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)"
    assert asked(right).exit_status == 0
    changed = asked(f"{right} * 0")
    assert changed.exit_status == 1 and "another source of the function" in changed.journal
    monkeypatch.setattr("lunette.conform.journal.VERSION", "0.0.7")
    assert "another version of lunette" in asked(right).journal


class Here:
    """A pool whose workers are forked from this process: modules are imported as they are now."""

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        for batch in batches:
            backend = find(batch.backend)
            outcomes = (worker.answer(backend, case) for case, reason in draws(batch, backend) if reason is None)
            yield BatchResult(batch, tuple(outcomes))


@pytest.mark.parametrize(
    "text", ["garbage", "def pool(x):\n    return x\n", '{"batch": 1}\n', '{"lunette conform journal": 3\n']
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ln.ArgumentError, match=r"mine\.py") as caught:
        conform(ln.global_max_pool, cases=5, journal=path)
    assert caught.value.rule == "V8" and path.read_text() == text


def test_a_journal_of_another_function_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert conform(ln.global_max_pool, cases=5, journal=path).exit_status == 0
    text = path.read_text()
    with pytest.raises(ln.ArgumentError, match=r"which is one of global_max_pool as global_max_pool\.") as caught:
        conform(ln.global_avg_pool, cases=5, journal=path)
    assert caught.value.rule == "V8" and path.read_text() == text
    assert "had come to its end" in conform(ln.global_max_pool, cases=5, journal=path).journal
