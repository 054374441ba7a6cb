"""Accepted differences: known/<backend>.toml, or a file of the user's. Each line has a reason and an example.

    [[known]]
    name = "index_among_several_nan"
    ops = ["max_pool"]
    kinds = ["nan"]
    verdicts = ["index", "gradient"]        # optional, as are modes, dtypes, ranks, message (a pattern) and isa
    reason = "torch's loop lets every NaN replace the one before."
    example = { shapes = [[1, 1, 3]], options = { kernel = [3] }, mode = "indices", values = [[nan, 1.0, nan]] }

A line whose example no longer differs is stale, and fails the run: the list never outlives its facts. `isa` names the
instruction sets with which the example differs (lunette.conform.isa: what the backend sees, after its own switches);
with another one it is not asked, and the report says so. It narrows the example, not what the line accepts: which of a
library's kernels pads with zeros, say, depends on more than the processor.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lunette.conform.case import MODES, Case
from lunette.conform.data import DTYPES
from lunette.conform.isa import SETS
from lunette.conform.result import FAILURES, Outcome
from lunette.conform.rules import RULES
from lunette.errors import ArgumentError, meant, shown
from lunette.ops import KINDS

FOLDER = Path(__file__).parent / "known"
FIELDS = ("name", "ops", "kinds", "verdicts", "modes", "dtypes", "ranks", "message", "isa", "reason", "example")
NEEDED = ("name", "ops", "kinds", "reason", "example")
NAMES: Mapping[str, Collection[str]] = {
    "ops": KINDS,
    "kinds": tuple(RULES),
    "verdicts": tuple(sorted(FAILURES)),
    "modes": MODES,
    "dtypes": tuple(DTYPES),
    "isa": SETS,
}
"""What may be in a list of names."""


@dataclass(frozen=True, slots=True)
class Known:
    """One line."""

    name: str
    ops: tuple[str, ...]
    kinds: tuple[str, ...]
    reason: str
    example: Case
    verdicts: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    message: str = ""
    isa: tuple[str, ...] = ()

    def asked(self, isa: str) -> bool:
        """Whether the example differs with this instruction set, or should."""
        return not self.isa or isa in self.isa

    def covers(self, outcome: Outcome) -> bool:
        """Whether this failure is the accepted one. What a line does not mention, it does not ask for."""
        case = outcome.case
        asked: tuple[tuple[tuple[Any, ...], Any], ...] = (
            (self.ops, case.op),
            (self.kinds, outcome.kind),
            (self.verdicts, str(outcome.verdict)),
            (self.modes, case.mode),
            (self.dtypes, case.dtype),
            (self.ranks, case.d),
        )
        if any(allowed and value not in allowed for allowed, value in asked):
            return False
        return not self.message or re.search(self.message, outcome.message) is not None


def read(backend: str, path: Path | str | None = None) -> tuple[Known, ...]:
    """The lines of a file, or of the one that comes with lunette for this backend. Rule V3."""
    place = Path(path) if path is not None else FOLDER / f"{backend}.toml"
    if path is None and not place.exists():
        return ()
    try:
        lines = tomllib.loads(place.read_text()).get("known", [])
        return tuple(_line(line) for line in lines)
    except (OSError, tomllib.TOMLDecodeError, re.error, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        got = f"{place.name}: {type(error).__name__}: {shown(str(error))}"
        raise ArgumentError("V3", "a readable file of known differences", got, EXPLAINED, who="conform") from error


EXPLAINED = f"Each [[known]] table has {', '.join(NEEDED)}; TOML itself must be valid."


def _line(line: Mapping[str, Any]) -> Known:
    wrong = [n for n in line if n not in FIELDS] + [n for n in NEEDED if n not in line]
    if wrong:
        need = f"the fields {', '.join(FIELDS)}"
        got = f"{shown(line.get('name', 'a line'))} with {wrong[0]} unknown or missing"
        raise ArgumentError("V3", need, got, EXPLAINED, who="conform")
    for name, words in NAMES.items():
        given = line.get(name, [])
        if not isinstance(given, list) or (name in NEEDED and not given):
            got, hint = (
                f"{shown(line['name'])} with {name} = {shown(given)}",
                f'Write {name} = ["{next(iter(words))}"].',
            )
            raise ArgumentError("V3", f"{name} as a list of names", got, hint, who="conform")
        for word in given:
            if word not in words:
                got = f"{shown(line['name'])} with {shown(word)} in {name}"
                hint = meant(word, words, EXPLAINED)
                raise ArgumentError("V3", f"{name} among {', '.join(words)}", got, hint, who="conform")
    lists = {n: tuple(v) for n, v in line.items() if isinstance(v, list)}
    re.compile(line.get("message", ""))
    example = Case.from_json({"op": line["ops"][0], **line["example"]})
    return Known(**{**line, **lists, "example": example})
