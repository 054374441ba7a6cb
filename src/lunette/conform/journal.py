"""Results as they came, a line each, so that a run that was stopped goes on where it was. Rule V8.

The first line says what was measured: results of another version, or of a function that has changed since, are none of
this run. The last line of a run that came to its end says so; asked once more, it is measured once more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from lunette.conform.backends import Backend
from lunette.conform.result import Batch, BatchResult
from lunette.errors import ArgumentError, shown
from lunette.version import VERSION

MARK = '{"lunette conform journal": '
"""How every journal begins."""
END = '{"complete": '
"""How its last line begins, once the run is over."""
WORDS = {"version": "version", "lunette": "version of lunette", "source": "source of the function"}
"""What else identifies a measurement, as a reader knows it."""


def measured(backend: Backend) -> dict[str, str]:
    """What a journal belongs to. The number of a function of this process is no part of its name."""
    name = backend.name.partition(" #")[0]
    return {"backend": name, "version": backend.version.partition(" #")[0], "lunette": VERSION} | (
        {"source": backend.fingerprint} if backend.fingerprint else {}
    )


@dataclass
class Journal:
    """The journal of a backend at a path, which need not exist yet."""

    path: Path
    backend: Backend
    told: str = ""
    """What became of an earlier run in it."""

    def begin(self, batches: Sequence[Batch]) -> dict[str, BatchResult]:
        """Those of these batches that are done; the journal begins anew where its results are none of this run."""
        lines = self._lines()
        done = self._results(lines[1:], batches)
        if lines:
            date, of = self._header(lines[0])
            mine = measured(self.backend)
            if of.get("backend") != mine["backend"]:
                got = f"{self.path.name}, which is one of {of.get('backend')}"
                hint = "Name a file of its own for each thing that is measured."
                _refuse(f"a journal of {mine['backend']}", got, hint)
            other = [words for name, words in WORDS.items() if of.get(name) != mine.get(name)]
            if other:
                self.told = f"measured anew: the journal of {date} has another {' and another '.join(other)}"
            elif len(done) == len(batches) and lines[-1].startswith(END):
                self.told = f"measured anew: the run of {date} in the journal had come to its end"
            else:
                if done:
                    self.told = f"{len(done)} of {len(batches)} batches are from the journal of {date}"
                return done
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = f'{MARK}{json.dumps(measured(self.backend))}, "began": {json.dumps(_now())}}}\n'
        self.path.write_text(header, encoding="utf-8")
        return {}

    def _header(self, line: str) -> tuple[str, dict[str, Any]]:
        try:
            header = json.loads(line)
            return str(header["began"]), dict(header["lunette conform journal"])
        except (ValueError, KeyError, TypeError):
            self._no_journal(line)

    def _lines(self) -> list[str]:
        """A line cut short by an interruption is none; a file that is something else is left as it is."""
        text = self.path.read_bytes().decode(errors="replace") if self.path.exists() else ""
        if not text.startswith(MARK[: len(text)]):
            self._no_journal(text.partition("\n")[0])
        return text.splitlines() if "\n" in text else []

    def _no_journal(self, line: str) -> NoReturn:
        hint = "Name a new file: it is written there, and read when the run goes on."
        _refuse("a journal that a run wrote, or no file yet", f"{self.path.name}: {shown(line)}", hint)

    def _results(self, lines: Sequence[str], batches: Sequence[Batch]) -> dict[str, BatchResult]:
        wanted = {b.key for b in batches}
        done: dict[str, BatchResult] = {}
        for line in lines:
            try:
                result = BatchResult.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            result = replace(result, batch=replace(result.batch, backend=self.backend.name))
            if result.batch.key in wanted:
                done[result.batch.key] = result
        return done

    def add(self, result: BatchResult) -> None:
        """Written to disk before the run goes on."""
        self._write(result.to_json())

    def finish(self) -> None:
        """The run has come to its end."""
        self._write({"complete": _now()})

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False)
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else f"\n{text}"  # the last line was cut short
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def _now() -> str:
    return datetime.now().astimezone().isoformat(" ", "minutes")


def _refuse(need: str, got: str, hint: str) -> NoReturn:
    raise ArgumentError("V8", need, got, hint, who="conform")
