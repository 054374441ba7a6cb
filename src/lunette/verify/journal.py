"""Results as they came, a line each and written to disk at once: a run that was killed goes on where it was.

The first line says what was run: results of another version, or of other options, are none of this run. A line that was
cut short is none. The last line of a run that came to its end says so; asked once more, it is run once more. Rule VI4.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NoReturn

from lunette.errors import ArgumentError, shown
from lunette.version import VERSION

NAME: Final = "lunette verify journal"


class Journal:
    """The journal at a path, which need not exist yet."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.path, self.header = path, {NAME: {"lunette": VERSION, **options}}
        self.told = ""

    def begin(self, keys: set[str]) -> dict[str, dict[str, Any]]:
        """The results of these instances that are known; the journal begins anew where it has none of this run."""
        text = self.path.read_bytes().decode(errors="replace") if self.path.exists() else ""
        mark = f'{{"{NAME}": '
        if not text.startswith(mark[: len(text)]):
            self._refuse(text)
        lines = text.split("\n")[:-1]  # behind the last line break is nothing, or a line that was cut short
        found = [line for line in map(_read, lines) if line is not None]
        if found and found[0] == self.header:
            done = {str(r["key"]): r for r in found[1:] if r.get("key") in keys}
            if not (len(done) == len(keys) and "complete" in found[-1]):
                self.told = f"{len(done)} of {len(keys)} instances are from the journal" if done else ""
                return done
            self.told = "run anew: the run in the journal had come to its end"
        elif found:
            self.told = "run anew: the journal is of another version or of other options"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.header) + "\n", encoding="utf-8")
        return {}

    def _refuse(self, text: str) -> NoReturn:
        got = f"{self.path.name}: {shown(text.partition(chr(10))[0])}"
        hint = "Name a new file: it is written there, and read when the run goes on."
        raise ArgumentError("VI4", "a journal that a run wrote, or no file yet", got, hint, who="verify")

    def add(self, result: dict[str, Any]) -> None:
        """Written to disk before the run goes on."""
        text = json.dumps(result, allow_nan=False)
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else f"\n{text}"
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        """The run has come to its end."""
        self.add({"complete": True})


def _read(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
