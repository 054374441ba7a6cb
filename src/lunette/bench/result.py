"""What was measured, as values that go to JSON and come back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one library, one figure per turn; or why there are none."""

    samples: tuple[float, ...] = ()
    calls: int = 0
    """Calls per turn."""
    way: str = ""
    """Which composition was the fastest, where there were several."""
    ways: dict[str, float] = field(default_factory=dict)
    """Seconds of every composition in the trial before the turns."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Compositions that did not give the answer, and why."""
    absent: str = ""
    """The reason, if the library does not define the problem or is not installed."""
    mismatch: str = ""
    """How its answer differed from lunette's."""

    @property
    def seconds(self) -> float | None:
        """The median turn."""
        return median(self.samples) if self.samples else None


@dataclass(frozen=True)
class Result:
    """One layer or network in one direction and dtype."""

    case: str
    op: str
    direction: str
    dtype: str
    d: int
    tags: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]
    options: dict[str, Any]
    operations: int | None
    traffic: int
    workspace: int | None
    """Bytes that a call of lunette takes at its peak, beyond operands and results."""
    timings: dict[str, Timing]
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes that a network takes: in lunette's plan, and in other libraries as `workspace` is measured."""

    @property
    def lunette(self) -> float | None:
        return self.seconds("lunette")

    @property
    def copy(self) -> float | None:
        return self.seconds("copy")

    def seconds(self, peer: str) -> float | None:
        """The median time of a library, if it has one."""
        timing = self.timings.get(peer)
        return None if timing is None else timing.seconds

    def ratio(self, peer: str) -> float | None:
        """The peer's time divided by lunette's: above 1, lunette is faster."""
        mine, theirs = self.lunette, self.seconds(peer)
        return None if mine is None or theirs is None else theirs / mine

    def best(self, peers: Iterable[str]) -> tuple[str, float] | None:
        """The fastest of these peers, and its ratio."""
        ratios = [(r, p) for p in peers if (r := self.ratio(p)) is not None]
        return (min(ratios)[1], min(ratios)[0]) if ratios else None

    def rate(self) -> tuple[float, str] | None:
        """GFLOP/s of a convolution or network, GB/s of a pool."""
        if self.lunette is None:
            return None
        if self.operations is not None:
            return self.operations / self.lunette / 1e9, "GFLOP/s"
        return self.traffic / self.lunette / 1e9, "GB/s"


@dataclass(frozen=True)
class Run:
    """Everything one command measured, with the circumstances."""

    when: str
    threads: int
    machine: dict[str, str]
    versions: dict[str, str]
    """Version per library, or why it is not there."""
    settings: dict[str, Any]
    peak: dict[str, float]
    """GFLOP/s of the best matrix product, per dtype."""
    results: tuple[Result, ...]
    figures: dict[str, float] = field(default_factory=dict)
    """Seconds that concern lunette alone, by name."""

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Run:
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Run:
        return cls(**{**fields, "results": tuple(map(_result, fields["results"]))})


def _result(fields: dict[str, Any]) -> Result:
    timings = {p: Timing(**{**t, "samples": tuple(t["samples"])}) for p, t in fields["timings"].items()}
    shapes = tuple(map(tuple, fields["shapes"]))
    sequences = {"tags": tuple(fields["tags"]), "shapes": shapes, "out": tuple(fields["out"])}
    return Result(**{**fields, **sequences, "timings": timings})


def mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None
