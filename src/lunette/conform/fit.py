"""What a user's function is made for, found out by asking: plain calls before the run, and calls that all fail alike.

A function that answers plain calls of some ranks and refuses those of others is made for the former: it is asked those
only, and the report says so. One that fails in the same way whatever it is asked was not called as it wants to be: that
is a problem of the harness, told with the signature that was expected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from lunette.conform.ask import alone
from lunette.conform.backends import Backend
from lunette.conform.case import Case
from lunette.conform.result import Outcome, Verdict
from lunette.conform.shrink import words
from lunette.ops import KINDS


@dataclass(frozen=True, slots=True)
class Fit:
    """What the plain calls showed."""

    ranks: tuple[int, ...] = ()
    """The ranks to ask for; none means that there is nothing to leave out."""
    notes: tuple[str, ...] = ()
    alike: tuple[Outcome, ...] = ()
    """The plain calls, if all of them failed in the same way: there is no use in asking more."""


def fit(backend: Backend, op: str, dtype: str) -> Fit:
    """One plain call for every rank."""
    asked = {d: alone(backend, plain(backend, op, d, dtype)) for d in backend.space.ranks}
    refused = {d: o for d, o in asked.items() if o.verdict is Verdict.REFUSED}
    if len(refused) == len(asked):
        return Fit(alike=tuple(asked.values()) if one_reason(list(asked.values())) else ())
    ranks = tuple(d for d in asked if d not in refused)
    if not refused:
        return Fit()
    told = "; ".join(f"rank {d}: {o.message}" for d, o in refused.items())
    return Fit(ranks, (f"asked in rank {' and '.join(map(str, ranks))} only, for plain calls of others fail ({told})",))


def plain(backend: Backend, op: str, d: int, dtype: str) -> Case:
    """One window over three cells of each axis."""
    one = KINDS[op].one_window((1, 1, *(3,) * d))
    return backend.fitted(Case(op, one.shapes, {**one.options, **KINDS[op].needed}, dtype))


def one_reason(outcomes: Sequence[Outcome]) -> bool:
    """Whether all of them are refusals, in the same words."""
    return all(o.verdict is Verdict.REFUSED for o in outcomes) and len({words(o.message) for o in outcomes}) == 1


FEW = 3
"""Calls that fail before it is more than chance."""


def misfits(backend: Backend, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The modes of a user's function in which no call gave what was expected, each with what that is.

    A derivative whose result never has the right shape was not called as it wants to be, either: that is the shape of
    what it was given, and no question of windows.
    """
    by_mode: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        asked = o.verdict is not Verdict.UNSUPPORTED and o.case.output is not None and o.kind != "empty window"
        agreed = o.verdict is Verdict.EQUAL and o.message  # both refuse, for other reasons
        if asked and not agreed and all(map(prod, o.case.shapes)) and backend.expected(o.case.mode):
            by_mode[o.case.mode].append(o)
    found = {}
    for mode, some in by_mode.items():
        useless = (Verdict.REFUSED, *((Verdict.SHAPE,) if mode in ("jvp", "vjp") else ()))
        if len(some) >= FEW and all(o.verdict in useless for o in some):
            how = "failed alike" if len({words(o.message) for o in some}) == 1 else "failed, as in"
            found[mode] = (
                f"all {len(some)} calls ({mode}) {how}: {some[0].message}. "
                f"Expected: {backend.expected(mode)}. For example: {backend.source(_smallest(some))}"
            )
    return found


def _smallest(outcomes: Sequence[Outcome]) -> Case:
    case = min((o.case for o in outcomes), key=lambda c: (not c.size, c.size, repr(c)))
    return replace(case, layout="contiguous")
