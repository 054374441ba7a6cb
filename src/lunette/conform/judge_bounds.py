"""The verdict on claimed bounds: two arrays against exact values at points of the box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lunette.conform.case import Case
from lunette.conform.question import Excluded, Question
from lunette.conform.result import Outcome, Verdict
from lunette.conform.rules import RULES
from lunette.errors import shown
from lunette.number import Array
from lunette.relax.bounds import bounds

IGNORABLE = tuple(kind.removesuffix(" ignored") for kind in RULES if kind.endswith(" ignored"))
"""Options that are easily overlooked: a claim may hold for the network without one of them, and be of its shape."""
Ask = Callable[[Case], Any]


def judge_bounds(case: Case, answered: Any, ask: Ask) -> Outcome:
    """Compare in the order in which mistakes hide each other. `ask` gives the answer to another case."""
    question = Question(case)
    lo, hi, complaint = ends(question, answered)
    if complaint:
        verdict = Verdict.SPECIAL if complaint.endswith("NaN") else Verdict.SHAPE
        return Outcome(case, verdict, message=complaint, kind=_ignored(case, answered) or "no bound")
    found = question.excluded(lo, hi)
    if found is not None:
        kind = _class(question, found, lo, hi, ask)
        return Outcome(case, Verdict.EXCLUDED, message=str(found), kind=kind)
    own = [bounds(question.graph, question.box, method=m) for m in ("interval", "crown")]
    return Outcome(case, Verdict.WITHIN, widths=tuple(width(*e) for e in ((lo, hi), *((b.lo, b.hi) for b in own))))


def width(lo: Array, hi: Array) -> float:
    """The mean of all outputs."""
    with np.errstate(all="ignore"):
        return float(np.mean(np.asarray(hi, np.float64) - np.asarray(lo, np.float64)))


def ends(question: Question, answered: Any) -> tuple[Array, Array, str]:
    """Both ends as float64, or what is wrong with them."""
    nothing = np.zeros(0)
    if not isinstance(answered, tuple | list) or len(answered) != 2:
        return nothing, nothing, f"lo and hi are right; got {shown(answered)}"
    made = []
    for name, end in zip(("lo", "hi"), answered, strict=True):
        try:
            cells = np.asarray(end, np.float64)
        except (TypeError, ValueError):
            return nothing, nothing, f"{name} is {shown(end)}; an array of numbers is right"
        if cells.shape != question.shape:
            return nothing, nothing, f"{name} has shape {cells.shape}; {question.shape} is right"
        if np.isnan(cells).any():
            at = ", ".join(str(int(v)) for v in np.argwhere(np.isnan(cells))[0])
            return nothing, nothing, f"{name}[{at}] is NaN"
        made.append(cells)
    return made[0], made[1], ""


def _class(question: Question, found: Excluded, lo: Array, hi: Array, ask: Ask) -> str:
    """The first of the hypotheses that holds: rounding, an option that was overlooked, padding."""
    case = question.case
    if found.by <= question.rounding(found.cell):
        return "rounded inward"
    if ignored := _ignored(case, (lo, hi)):
        return ignored
    if "padding" in case.options and _holds(_without(case, "padding"), ask):
        return "bounds over padding"
    return "excluded"


def _ignored(case: Case, answered: Any) -> str:
    """The class of an option without which the network has these bounds, if there is one."""
    for name in IGNORABLE:
        if name in case.options and _holds(_without(case, name), lambda _: answered):
            return f"{name} ignored"
    return ""


def _without(case: Case, option: str) -> Case:
    """The network where an option is left out; nothing else changes, if the case tells its other options."""
    return replace(case, options={n: v for n, v in case.options.items() if n != option})


def _holds(case: Case, ask: Ask) -> bool:
    """Whether what is answered holds for a network."""
    try:
        question = Question(case)
        lo, hi, complaint = ends(question, ask(case))
        if complaint:
            return False
        found = question.excluded(lo, hi)
        return found is None or found.by <= question.rounding(found.cell)
    except Exception:  # there is no such network, or no answer
        return False
