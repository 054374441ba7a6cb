"""What may be asked of a run: one name or several, whole numbers in their ranges. Rules V4, V6, V9 and V10."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from lunette.conform.allowance import is_analytic, rule_of
from lunette.conform.backends import Backend
from lunette.conform.data import DTYPES
from lunette.errors import ArgumentError, meant, shown
from lunette.ops import KINDS

RANKS = (1, 2, 3, 4)


def several(given: Any) -> tuple[Any, ...]:
    """One thing is a row of one; a word is not a row of letters."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else (given,)


def operators(backend: Backend, ops: Sequence[str] | str | None) -> tuple[str, ...]:
    """Rules V4 and V10."""
    chosen = several(ops) if ops else backend.space.ops
    for op in chosen:
        if op not in KINDS or op not in backend.space.ops:
            need = f"operators that {backend.name} has: {', '.join(backend.space.ops)}"
            hint = meant(op, backend.space.ops, "Leave ops out to ask for all of them.")
            raise ArgumentError("V4", need, shown(op), hint, who="conform")
        if is_analytic(KINDS[op]):
            rule_of(KINDS[op])
    return tuple(dict.fromkeys(chosen))


def modes(backend: Backend, asked: Sequence[str] | str | None) -> tuple[str, ...]:
    """Rule V6; none means all."""
    chosen = several(asked) if asked is not None else ()
    for mode in chosen:
        if mode not in backend.space.modes:
            need = f"modes that {backend.name} has: {', '.join(backend.space.modes)}"
            hint = meant(mode, backend.space.modes, "All, if none.")
            raise ArgumentError("V6", need, shown(mode), hint, who="conform")
    return tuple(m for m in backend.space.modes if m in chosen)


def dtypes(backend: Backend, asked: Any) -> tuple[str, ...]:
    """Rule V6: names, or what NumPy takes for a dtype; none means all that the backend has."""
    if asked is None:
        return ()
    may = tuple(DTYPES) if backend.may_be_anything else backend.space.dtypes
    found = []
    for one in several(asked):
        try:
            name = np.dtype(one).name if not isinstance(one, str) else one
        except TypeError:
            name = ""
        if one is None or name not in may:
            hint = meant(one, may, "Leave dtypes out for the usual.")
            raise ArgumentError("V6", f"dtypes among {', '.join(may)}", shown(one), hint, who="conform")
        found.append(name)
    return _some(found, "dtypes")


def ranks(backend: Backend, asked: Any) -> tuple[int, ...]:
    """Rule V6: numbers of spatial axes; none means all that the backend has."""
    if asked is None:
        return ()
    may = RANKS if backend.may_be_anything else backend.space.ranks
    found = []
    for one in several(asked):
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or one not in may:
            hint = "A rank is the number of spatial axes: 2 for images."
            raise ArgumentError("V6", f"ranks among {', '.join(map(str, may))}", shown(one), hint, who="conform")
        found.append(int(one))
    return _some(found, "ranks")


def _some(found: list[Any], name: str) -> tuple[Any, ...]:
    if not found:
        raise ArgumentError("V6", f"at least one of {name}", "none", f"Leave {name} out for the usual.", who="conform")
    return tuple(dict.fromkeys(found))


def whole(name: str, given: Any, least: int) -> int:
    """Rule V9."""
    try:
        number = index(given)
    except TypeError:
        number = least - 1
    if number < least or isinstance(given, bool):
        hint = f"Pass a number, such as {name}=200." if name == "cases" else f"Leave {name} out for the usual."
        raise ArgumentError("V9", f"{name}, a whole number from {least}", shown(given), hint, who="conform")
    return number
