"""Functions of this process as backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lunette.conform.backends.backend import register
from lunette.conform.backends.bounds import Claimed
from lunette.conform.backends.function import BOUNDS, Function, check_operator, name_of, numbers
from lunette.errors import ArgumentError


def as_backend(
    function: Callable[..., Any],
    op: str | None,
    jvp: Any,
    vjp: Any,
) -> str:
    """Give a function of this process a name under which it is found here."""
    if not callable(function):
        got = f"a {type(function).__name__}"
        raise ArgumentError("V5", "a backend's name or a function", got, "Pass the function itself.", who="conform")
    own = name_of(function)
    chosen = check_operator(op or own)
    name = f"{own} as {chosen} #{next(numbers)}"
    register(Claimed(name, function) if chosen == BOUNDS else Function(name, function, chosen, jvp, vjp))
    return name
