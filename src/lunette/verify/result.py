"""What `ln.verify` gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from lunette.errors import ArgumentError
from lunette.number import Array
from lunette.page import Page, inset, written

MOST_CASES = 12
"""Cases of a verdict that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a property holds everywhere in a box: proved, disproved, or how far it got."""

    status: str
    """"proved", "disproved" or "unknown"."""
    counterexample: Any = field(default=None, repr=False)
    """A float input inside of the box that violates the property; several inputs are a tuple."""
    certificate: Any = field(default=None, repr=False)
    """An `ln.Certificate` that `ln.check` accepts; None unless proved."""
    reason: str = ""
    """What decided, or what stopped it."""
    bound: float = -np.inf
    """The least proven value, over all that violates, of a condition less its threshold: above 0 is a proof."""
    found: float = np.inf
    """The least value of the same that an attack found: not above 0 is a candidate."""
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase."""
    semantics: str = "real"
    evaluated: str = ""
    """How the counterexample was evaluated: "rational", "ball", "enclosure" or "float execution"."""
    output: Any = field(default=None, repr=False)
    """What the network's program computes at the counterexample."""
    margins: tuple[tuple[str, float, float], ...] = field(default=(), repr=False)
    """For every case: its conditions, the least that is proven and that was found of them."""
    leaves: int = 0
    """Parts into which the box was split."""
    tree: Any = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    """What became of decimal ends, and the like."""

    def __bool__(self) -> bool:
        return self.status == "proved"

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The counterexample, one array for each input."""
        if self.counterexample is None:
            return ()
        return self.counterexample if isinstance(self.counterexample, tuple) else (self.counterexample,)

    def vnncomp(self) -> str:
        """The verdict in the competition's words, and the counterexample in its text form."""
        word = {"proved": "unsat", "disproved": "sat"}.get(self.status, "unknown")
        if self.counterexample is None:
            return f"{word}\n"
        cells = [("X", np.concatenate([np.ravel(x) for x in self.inputs])), ("Y", np.ravel(self.output))]
        lines = [f"({name}_{k} {_decimal(v)})" for name, values in cells for k, v in enumerate(values)]
        return f"{word}\n(" + "\n ".join(lines) + ")\n"

    def to_json(self) -> dict[str, Any]:
        """All but the arrays, which have files of their own."""
        return {
            "status": self.status,
            "reason": self.reason,
            "bound": _json(self.bound),
            "found": _json(self.found),
            "seconds": round(self.seconds, 4),
            "phases": {k: round(v, 4) for k, v in self.phases.items()},
            "semantics": self.semantics,
            "evaluated": self.evaluated,
            "leaves": self.leaves,
            "notes": list(self.notes),
            "margins": [[c, _json(lo), _json(hi)] for c, lo, hi in self.margins],
        }

    def save_counterexample(self, path: str | Path) -> list[Path]:
        """Write it as .npy (.npz of several inputs) and, beside it, in the competition's text form. Rule VF6."""
        if not self.inputs:
            got, hint = f"a verdict that is {self.status}", "Ask for it where status is 'disproved'."
            raise ArgumentError("VF6", "a counterexample", got, hint, who="save_counterexample")
        target = Path(path)
        stem = target.with_suffix("") if target.suffix in (".npy", ".npz", ".txt") else target
        if len(self.inputs) == 1:
            array = stem.with_name(stem.name + ".npy")
            np.save(array, self.inputs[0])
        else:
            array = stem.with_name(stem.name + ".npz")
            np.savez(array, *self.inputs)
        text = stem.with_name(stem.name + ".txt")
        text.write_text(self.vnncomp(), encoding="utf-8")
        return [array, text]

    def to_html(self, path: str | Path | None = None, **more: Any) -> Page:
        """A page about the verdict; written to `path` if it is given."""
        from lunette.verify.page import to_html  # which needs what this file has

        return written(to_html(self, **more), path)

    def _repr_html_(self) -> str:
        """What notebooks show: the verdict, and of the first cases what is proven and what was found."""
        colour = {"proved": "#0d9488", "disproved": "#cc3b3b"}.get(self.status, "#c98a06")
        style = f"background:{colour};color:#fff;padding:1px 10px;border-radius:9px"
        words = [f"{self.seconds:.2f} s", self.reason, *self.notes]
        head = f'<p><b style="{style}">{self.status}</b> {escape(", ".join(w for w in words if w))}</p>'
        few = sorted(self.margins, key=lambda m: m[1])[:MOST_CASES]
        rows = [(f"<code>{escape(case)}</code>", f"{lo:.6g}", f"{hi:.6g}") for case, lo, hi in few]
        more = len(self.margins) - len(few)
        table = inset(("what would violate it", "proven at least", "least found"), rows) if rows else ""
        return f"<div>{head}{table}{f'<p>and {more} more</p>' if more else ''}</div>"

    def __str__(self) -> str:
        words = [self.status, f"{self.seconds:.2f} s"]
        if self.reason:
            words.append(self.reason)
        if self.status == "unknown" and np.isfinite(self.bound):
            words.append(f"proven >= {self.bound:.6g}, found {self.found:.6g}")
        return ", ".join(words)


def _json(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


def _decimal(value: Any) -> str:
    """A float exactly, as a decimal."""
    from decimal import Decimal

    return format(Decimal(float(value)), "f") if np.isfinite(value) else str(value)
