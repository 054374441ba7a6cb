"""The one way this library says no.

Every refusal is one sentence: who, which rule, what it needs, what it got, what to try. The parts stay
available as attributes, so that tools can sort refusals by rule without reading prose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from inspect import Signature


class LunetteError(Exception):
    """Anything lunette refuses. `rule` is the number of the rule in the operator's table."""

    def __init__(
        self, rule: str, need: str, got: str, hint: str, *, who: str = "lunette", d: int | None = None
    ) -> None:
        super().__init__(rule, need, got, hint)
        self.rule, self.need, self.got, self.hint = rule, need, got, hint
        self.who, self.d = who, d

    def __str__(self) -> str:
        rank = "" if self.d is None else f" (d={self.d})"
        return f"{self.who}{rank} [{self.rule}] needs {self.need}; got {self.got}. {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # From the attributes, not from args: a refusal is completed on its way out (the axis, who asked).
        return type(self), (self.rule, self.need, self.got, self.hint), {"who": self.who, "d": self.d}


class ShapeError(LunetteError, ValueError):
    """The shapes cannot go together, or there is no output of that size."""


class ArgumentError(LunetteError, ValueError):
    """An argument has the right type and a value that no rule allows."""


class DTypeError(LunetteError, TypeError):
    """An argument has a type, or a number type, that the operator cannot serve."""


class AbsentError(LunetteError, AttributeError):
    """A value has no attribute of that name."""


class UndecidedError(LunetteError, ArithmeticError):
    """A correctly rounded result that neither a proof nor 4096 bits decide."""


def shown(value: object) -> str:
    """A value as a refusal quotes it: on one line, and never a long one.

    >>> shown((1, 2)), len(shown([0] * 10**6))
    ('(1, 2)', 86)
    """
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python prints
        return f"a value of type {type(value).__name__} that is too long to print"
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-1]}"


def meant(given: object, known: Iterable[str], otherwise: str) -> str:
    """The hint for a name that does not exist.

    >>> meant("stide", ("stride", "padding"), "Options are keywords.")
    'Did you mean stride?'
    >>> meant("kernel_size", ("stride", "kernel"), "Options are keywords.")
    'Did you mean kernel?'
    """
    from difflib import get_close_matches  # loaded by a misspelling

    if not isinstance(given, str):
        return otherwise
    names = list(known)
    close = get_close_matches(given, names, 1, 0.75)
    close += [n for n in names if min(len(n), len(given)) > 2 and (given.startswith(n) or n.startswith(given))]
    return f"Did you mean {close[0]}?" if close else otherwise


def misspelt(
    who: str, parameters: Mapping[str, Any], wrong: Sequence[str], unknown: str | None, d: int | None = None
) -> ArgumentError:
    """Rule O2: what says that a call has other arguments than the function has parameters."""
    need, got = f"arguments among ({', '.join(parameters)})", " and ".join(wrong)
    hint = meant(unknown, parameters, "Arrays come first, options are keywords.")
    return ArgumentError("O2", need, got, hint, who=who, d=d)


F = TypeVar("F", bound=Callable[..., Any])


def refuses(function: F) -> F:
    """Decorate a function that takes its time: a call that does not fit its parameters is refused by rule O2."""

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError as error:
            entered = error.__traceback__ is None or error.__traceback__.tb_next is not None
            if entered:
                raise
        from inspect import signature  # loaded by a misspelling

        raise misfit(function.__qualname__, signature(function), arguments, named) from None

    return called  # type: ignore[return-value]


def misfit(who: str, signature: Signature, arguments: Sequence[Any], named: Mapping[str, Any]) -> ArgumentError:
    """Rule O2 for a call that Python refused."""
    parameters = signature.parameters
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    places = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    placed, unknown = places[: len(arguments)], [n for n in named if n not in parameters]
    wrong = [f"{len(arguments)} arguments by position"] if len(arguments) > len(places) and not several else []
    wrong += [f"{n} twice" for n in placed if n in named]
    wrong += [f"an unknown {n}" for n in unknown]
    needed = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    wrong += [f"no {n}" for n in needed if n not in (*placed, *named)]
    return misspelt(who, parameters, wrong, next(iter(unknown), None))


class error_context:  # noqa: N801 (used as a verb: with error_context("conv", d))
    """Rules deep inside do not know who asked; the operator signs the refusal on its way out.

    >>> with error_context("conv", d=2):
    ...     raise ShapeError("C1", "3 input channels", "w.shape=(8, 4, 3, 3)", "Pass groups.")
    Traceback (most recent call last):
        ...
    lunette.errors.ShapeError: conv (d=2) [C1] needs 3 input channels; got w.shape=(8, 4, 3, 3). Pass groups.
    """

    __slots__ = ("d", "who")

    def __init__(self, who: str, d: int | Callable[[], int | None] | None = None) -> None:
        self.who, self.d = who, d

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, LunetteError):
            sign(error, self.who, self.d)


def sign(error: LunetteError, who: str, d: int | Callable[[], int | None] | None = None) -> None:
    """Say who refused, unless it is known: `error_context` for an except clause, which costs nothing until then."""
    if error.who == "lunette":
        error.who = who
    if error.d is None:
        error.d = d() if callable(d) else d
