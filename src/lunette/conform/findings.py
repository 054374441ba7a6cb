"""From the smallest failing case to what a reader sees: rule, values, reproducer, drawing."""

from __future__ import annotations

from collections.abc import Mapping

from lunette.conform.backends import Backend
from lunette.conform.case import Case
from lunette.conform.data import DTYPES
from lunette.conform.judge import as_right, brief
from lunette.conform.known import Known
from lunette.conform.question import Question
from lunette.conform.result import Finding, Outcome
from lunette.conform.rules import RULES, WHY
from lunette.conform.truth import names, truth
from lunette.errors import LunetteError
from lunette.explanation import explain
from lunette.op import parameters_of
from lunette.ops import ALL, LpPool
from lunette.relax.bounds import bounds

WINDOW = ("kernel", "stride", "padding", "dilation", "ceil_mode", "count_include_pad", "divisor", "output_padding")
MOST_CELLS = 2**20


def finding(backend: Backend, outcome: Outcome, verdicts: Mapping[str, int], line: Known | None) -> Finding:
    """Everything about a failure that a reader needs to believe it."""
    case = outcome.case
    why = WHY[outcome.kind]
    return Finding(
        outcome.kind,
        case.op,
        RULES[outcome.kind],
        outcome.verdict,
        sum(verdicts.values()),
        case,
        outcome.message,
        expected(backend, case),
        backend.source(case),
        drawing(case),
        why,
        None if line is None else f"{line.name}: {line.reason}",
        dict(verdicts),
    )


def expected(backend: Backend, case: Case) -> str:
    """The right answer as text."""
    if case.mode == "bounds":
        return own_bounds(case)
    if case.size > MOST_CELLS:
        return "see the rule: the case has too many cells to print"
    right = truth(case, case.arrays(), backend.empty(case))
    if right.refusal is not None:
        return f"refused: {right.refusal}"
    dtype = DTYPES[case.dtype]
    shown = []
    for name, answer in zip(names(case), right.answers, strict=True):
        values = as_right(answer, dtype)
        whole = values.astype(int) if name == "index" else values
        shown.append(f"{name} = {brief(whole)}" + (" where a window has cells" * bool(answer.free.any())))
    return "; ".join(shown)


def own_bounds(case: Case) -> str:
    """What lunette proves of the same network and box."""
    question = Question(case)
    proven = bounds(question.graph, question.box)
    return f"ours are lo = {brief(proven.lo)}, hi = {brief(proven.hi)}"


def drawing(case: Case) -> str:
    """What `lunette explain` shows; windows without cells are drawn as those of a p-norm, which may be empty."""
    options = {n: v for n, v in case.options.items() if n in WINDOW}
    if case.kind.weighted:
        options["kernel"] = case.shapes[1][2:]
    if case.kind.windows == "whole":
        options["spatial"] = case.d
    needed = {n for n, p in parameters_of(ALL[case.kind]).items() if p.default is p.empty}
    given = {n: v for n, v in case.options.items() if n in needed}
    try:
        return str(explain(case.op, case.space, **{**given, **options}))
    except LunetteError as refusal:
        if not case.is_empty(refusal):
            return f"no window: {refusal}"
    plain = {n: v for n, v in options.items() if n in parameters_of(ALL[LpPool])}
    return str(explain(LpPool, case.space, **plain)).replace(LpPool.name, case.op, 1)
