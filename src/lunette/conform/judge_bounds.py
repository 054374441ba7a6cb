"""The verdict on claimed bounds: two arrays against exact values at points of the box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lunette.conform.case import Case
from lunette.conform.judge import Raised
from lunette.conform.question import Excluded, Question
from lunette.conform.result import Outcome, Verdict
from lunette.errors import LunetteError, shown
from lunette.number import Array
from lunette.relax.bounds import bounds

IGNORABLE = ("count_include_pad", "divisor")
"""Options that change values and no shape: a claim may hold for the network without one of them."""
Ask = Callable[[Case], Any]


def judge_bounds(case: Case, answered: Any, ask: Ask) -> Outcome:
    """Compare in the order in which mistakes hide each other. `ask` gives the answer to another case."""
    if isinstance(answered, Raised):
        return Outcome(case, Verdict.DECLINED, message=str(answered))
    question = Question(case)
    lo, hi, complaint = ends(question, answered)
    if complaint:
        return Outcome(case, Verdict.SPECIAL if "NaN" in complaint else Verdict.SHAPE, message=complaint, kind="no bound")
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
    for name in IGNORABLE:
        if name in case.options and _holds(_without(case, name), lambda _: (lo, hi)):
            return f"{name} ignored"
    if "padding" in case.options and _holds(_without(case, "padding"), ask):
        return "bounds over padding"
    return "excluded"


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
    except (LunetteError, Exception):  # there is no such network, or no answer
        return False
