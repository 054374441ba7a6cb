"""What a run says: verdicts, outcomes, findings and the report. Plain values that go to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from lunette.conform.case import Case
from lunette.page import Page, written


class Verdict(StrEnum):
    """What became of one case."""

    EQUAL = "equal"
    WITHIN = "within"
    """Not equal, and no farther off than the derived bound."""
    VALUE = "value"
    SHAPE = "shape"
    INDEX = "index"
    GRADIENT = "gradient"
    SPECIAL = "special"
    """NaN or an infinity where another value belongs, or the other way round."""
    EXCLUDED = "excluded"
    """Claimed bounds that leave out a value of the network."""
    REFUSED = "refused"
    """An error, or no array, where there is an answer."""
    CRASHED = "crashed"
    HUNG = "hung"
    UNSUPPORTED = "unsupported"
    """The backend says beforehand that it does not do this: no accusation."""
    DECLINED = "declined"
    """An error where bounds were asked for: who claims nothing claims nothing wrong."""


UNJUDGED = frozenset({Verdict.UNSUPPORTED, Verdict.DECLINED})
WRONG = (Verdict.VALUE, Verdict.SHAPE, Verdict.INDEX, Verdict.GRADIENT, Verdict.SPECIAL, Verdict.EXCLUDED)
"""An answer that is not the right one."""
DIED = (Verdict.CRASHED, Verdict.HUNG)
FAILURES = frozenset({*WRONG, *DIED, Verdict.REFUSED})
GRAVITY: Mapping[str, tuple[Verdict, ...]] = {"wrong": WRONG, "crashed": DIED, "refused": (Verdict.REFUSED,)}
"""Failures as people weigh them, the worst first: nobody notices a wrong answer, everybody an error."""
SHOWN: dict[str, Callable[[Any], str]] = {}
"""How a report is shown, by format: lunette.conform.report, which imports this file, has the ways."""


def judged(verdicts: Mapping[str, int]) -> int:
    """How many of these cases were asked and answered."""
    return sum(verdicts.values()) - sum(verdicts.get(v, 0) for v in UNJUDGED)


def gravity(verdict: str) -> str:
    """Which of them a failure is."""
    return next(name for name, verdicts in GRAVITY.items() if verdict in verdicts)


@dataclass(frozen=True, slots=True)
class Batch:
    """A piece of a run: the cases it stands for are a pure function of these fields."""

    backend: str
    op: str
    seed: int
    index: int
    """Batches 0, -1, -2, ... of an operator hold its corner cases, 1, 2, ... are drawn at random."""
    cases: int
    modes: tuple[str, ...] = ()
    """The modes to ask for; none means all."""
    corners: int = 0
    """How many corners the operator's batches of corners hold together; 0 means all there are."""
    ranks: tuple[int, ...] = ()
    """The numbers of spatial axes to ask for; none means those that the backend has."""
    dtypes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Unique in a run, and the same in every run of these settings."""
        numbers = (self.seed, self.index, self.cases, self.corners)
        return "/".join(map(str, (self.backend, self.op, *numbers, *self.modes, *self.ranks, *self.dtypes)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case, judged."""

    case: Case
    verdict: Verdict
    ulps: float = 0.0
    """The greatest distance from the exact answer, in units of the last place of the answer."""
    units: float = 0.0
    """The greatest distance in units of u * sum|x||w|, unharmed by cancellation, or of the least float."""
    mean_units: float = 0.0
    bound_units: float = 0.0
    """How many of these units the bound allows where it is tightest."""
    message: str = ""
    """What was wrong: where, what came, what is right; or the backend's own words."""
    seconds: float = 0.0
    kind: str = ""
    """The class of a failure (see lunette.conform.rules)."""
    widths: tuple[float, ...] = ()
    """Of bounds that hold: their mean width, that of lunette's interval, that of its crown."""

    @property
    def failed(self) -> bool:
        return self.verdict in FAILURES

    def to_json(self) -> dict[str, Any]:
        return dict(_to_json(self))

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Outcome:
        values = dict(made)
        values |= {n: float(made[n]) for n in ("ulps", "units", "mean_units", "bound_units", "seconds")}
        values["widths"] = tuple(map(float, made.get("widths", ())))
        return cls(**values | {"case": Case.from_json(made["case"]), "verdict": Verdict(made["verdict"])})


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcomes of a batch, in the order of its cases."""

    batch: Batch
    outcomes: tuple[Outcome, ...]
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return dict(_to_json(self))

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> BatchResult:
        outcomes = tuple(Outcome.from_json(o) for o in made["outcomes"])
        fields_ = {n: tuple(v) if isinstance(v, list) else v for n, v in made["batch"].items()}
        batch = Batch(**dict[str, Any](fields_))
        return cls(batch, outcomes, float(made["seconds"]))


@dataclass(frozen=True, slots=True)
class Finding:
    """Failures that are one fact, shown by the smallest case that has it."""

    kind: str
    """The class: a key of lunette.conform.rules.RULES, such as "divisor" or "empty window"."""
    op: str
    rule: str
    """The sentence of lunette's rules that is broken."""
    verdict: Verdict
    count: int
    case: Case
    got: str
    expected: str
    reproducer: str
    """One line in the backend's own language."""
    drawing: str
    """What `lunette explain` shows of the smallest case."""
    why: str = ""
    known: str | None = None
    """The reason why this difference is accepted, or None."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Its cases by verdict: one mistake shows in values, indices and derivatives."""

    def to_json(self) -> dict[str, Any]:
        return dict(_to_json(self))

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Finding:
        return cls(**dict(made) | {"case": Case.from_json(made["case"]), "verdict": Verdict(made["verdict"])})


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far the sums of one operator and dtype were off, in units of u * sum|x||w|."""

    op: str
    dtype: str
    mode: str
    samples: tuple[tuple[float, float, float], ...]
    """(greatest error, mean error, bound), one per case that was not exact by its data."""


@dataclass(frozen=True, slots=True)
class Tightness:
    """How wide claimed bounds of the networks of one operator are, by geometric means of ratios of widths."""

    op: str
    networks: int
    """Those whose bounds hold at every point that was tried, and are finite."""
    to_interval: float
    """To lunette's "interval"."""
    to_crown: float
    """To lunette's "crown"."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of the heat map: the cases of an operator that use an option, and how many of them failed."""

    op: str
    option: str
    """Such as "ceil_mode", "dilation", "rank 3", "float16", "data nan", "vjp"."""
    cases: int
    failures: int
    known: int = 0
    """Failures that the known differences account for; they are among `failures`."""
    refused: int = 0
    """Failures that are refusals, and no wrong answers; they are among `failures`."""
    known_refused: int = 0
    """Those of both kinds."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """One run of one backend. Print it for a summary; in a notebook it shows itself."""

    backend: str
    version: str
    platform: str
    seed: int
    verdicts: Mapping[str, int]
    """Cases per verdict."""
    table: tuple[Cell, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Unexplained ones first; of these wrong answers first, then crashes, then refusals; most frequent first."""
    stale: tuple[str, ...] = ()
    """Lines of known/<backend>.toml that no longer differ."""
    seconds: float = 0.0
    unsupported: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of cases that were not asked."""
    complete: bool = True
    """False if the run was interrupted."""
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Operator -> verdict -> cases."""
    journal: str = ""
    """What the journal of an earlier run had to do with this one."""
    elsewhere: tuple[str, ...] = ()
    """Lines of known/<backend>.toml whose examples are for other instruction sets: neither true nor stale here."""
    tightness: tuple[Tightness, ...] = ()
    """Of claimed bounds, by operator, and of all of them last."""
    notes: tuple[str, ...] = ()
    """What a reader should know about what was asked: ranks left out, fewer cases than were wanted."""
    unrepeated: int = 0
    """Failures that did not come again in a process of their own: no finding, and not nothing."""
    misfits: tuple[str, ...] = ()
    """Calls none of which gave what is expected, with the signature that was: a problem of the harness."""

    @property
    def cases(self) -> int:
        return sum(self.verdicts.values())

    @property
    def asked(self) -> int:
        """Cases that were judged."""
        return judged(self.verdicts)

    @property
    def failures(self) -> int:
        return sum(n for v, n in self.verdicts.items() if Verdict(v) in FAILURES)

    def failed(self, how: str) -> int:
        """Cases that failed in one of the ways of GRAVITY: "wrong", "crashed" or "refused"."""
        return sum(self.verdicts.get(v, 0) for v in GRAVITY[how])

    @property
    def unexplained(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.known is None)

    @property
    def exit_status(self) -> int:
        """0: all agree or are known; 1: a finding, a failure that did not come again, or a stale line; 2: no answer.

        There is none if it was interrupted, if nothing was judged, or if a function does not fit what it should be.
        """
        if self.unexplained or self.stale or self.unrepeated:
            return 1
        return 0 if self.complete and self.asked and not self.misfits else 2

    def __str__(self) -> str:
        return SHOWN["text"](self)

    def __repr__(self) -> str:
        return f"<Report of {self.backend}: {SHOWN['line'](self)}>"

    def to_html(self, path: str | Path | None = None) -> Page:
        """A page that needs no network; written to `path` if it is given."""
        return written(SHOWN["page"](self), path)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return SHOWN["inset"](self)

    def to_json(self) -> dict[str, Any]:
        return dict(_to_json(self))

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Report:
        values = dict(made)
        values["table"] = tuple(Cell(**c) for c in made["table"])
        values["accuracy"] = tuple(
            Accuracy(a["op"], a["dtype"], a["mode"], tuple((float(p), float(q), float(r)) for p, q, r in a["samples"]))
            for a in made["accuracy"]
        )
        values["findings"] = tuple(Finding.from_json(f) for f in made["findings"])
        values["tightness"] = tuple(Tightness(**t) for t in made.get("tightness", ()))
        for name in ("stale", "elsewhere", "notes", "misfits"):
            values[name] = tuple(made.get(name, ()))
        return cls(**values)


def _to_json(value: Any) -> Any:
    if isinstance(value, Case):
        return value.to_json()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {n: _to_json(v) for n, v in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(v) for v in value]
    if hasattr(type(value), "__dataclass_fields__"):
        return {f.name: _to_json(getattr(value, f.name)) for f in fields(value)}
    return value
