"""The registry of rules: what every interpretation knows of every operator.

An interpretation (the specification, kernels, derivatives, rounded and interval arithmetic) is a column of a table, an
operator is a row. A cell is filled in by the operator's room, which tells a rule as a method; by the interpretation's
own folder, which registers a rule for a class of operators; or it follows from what the operator declares. `ways` of an
interpretation says which of these come first, and `ln.rules()` reads the table.

| rule | says                                              |
|------|---------------------------------------------------|
| O6   | an operator has the rule that is asked for         |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from lunette.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
MISSING = "missing"


# ---- what rooms tell


def untold(method: F) -> F:
    """Mark a method of a base class as what holds, or refuses, where no room tells a rule of its own."""
    vars(method)["untold"] = True
    return method


def tells(kind: type[Any], rule: str) -> bool:
    """Whether a class, or one that it is made from, has a method of its own for a rule."""
    method = getattr(kind, rule)
    return not (getattr(method, "untold", False) or getattr(method, "__isabstractmethod__", False))


# ---- what interpretations know


class Rule(Generic[P, R]):
    """A question that an interpretation asks of an operator, its first argument: the nearest class answers.

    Called, it is the function that was registered for the class of the operator, or for the first of its bases that
    has one, and else the default.
    """

    def __init__(self, default: Callable[P, R]) -> None:
        self.name, self.__doc__, self.__wrapped__ = default.__name__, default.__doc__, default
        self.registered: dict[type[Any], Callable[..., R]] = {}
        self._found: dict[type[Any], Callable[..., R]] = {}
        self._default: Callable[..., R] = default

    def register(self, *kinds: type[Any]) -> Callable[[F], F]:
        """Decorate the answer for some classes and what is made from them."""

        def keep(answer: F) -> F:
            self.registered.update(dict.fromkeys(kinds, answer))
            self._found.clear()
            Interpretation.forget()
            return answer

        return keep

    def has(self, kind: type[Any]) -> bool:
        """Whether there is an answer for a class other than the default."""
        return any(base in self.registered for base in kind.__mro__)

    def of(self, kind: type[Any]) -> Callable[..., R]:
        """The answer for a class."""
        found = self._found.get(kind)
        if found is None:
            found = next((self.registered[base] for base in kind.__mro__ if base in self.registered), self._default)
            self._found[kind] = found
        return found

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        return self.of(type(arguments[0]))(*arguments, **named)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a rule: for which operators it is there, and what makes it for one of them."""

    how: str
    """What the table says; {base} is the name of the operator that this one is a derivative of."""
    applies: Callable[[Any], Any]
    """Whether a class of operators has it: by what it declares, and by what is told or registered for it."""
    make: Callable[..., Any] | None
    """For an interpretation that goes through its ways: what makes the rule of an operator with its shapes."""


class Interpretation:
    """A column of the table: a name, ways to a rule in their order, and the questions that are answered by class."""

    every: ClassVar[dict[str, Interpretation]] = {}
    """All columns by their names, in the order in which they were defined."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.ways: list[Way] = []
        self.rules: dict[str, Rule[..., Any]] = {}
        self._how: dict[type[Any], str] = {}
        self.every[name] = self

    def rule(self, default: Callable[P, R]) -> Rule[P, R]:
        """Decorate a question of this interpretation, given its answer for every operator that has no other."""
        rule = Rule(default)
        self.rules[rule.name] = rule
        return rule

    def way(self, how: str, applies: Callable[[Any], Any], make: Callable[..., Any] | None = None) -> None:
        """Add a way, which comes after those there are."""
        self.ways.append(Way(how, applies, make))
        self.forget()

    @classmethod
    def forget(cls) -> None:
        """Read the table anew: what is remembered of it may have changed."""
        for column in cls.every.values():
            column._how.clear()

    def ways_of(self, kind: type[Any]) -> Iterator[Way]:
        """The ways that an operator has, best first."""
        return (way for way in self.ways if way.applies(kind))

    def has(self, kind: type[Any]) -> bool:
        """Whether an operator has a rule."""
        return self.how(kind) is not MISSING

    def how(self, kind: type[Any]) -> str:
        """In which way an operator has its rule, or "missing"."""
        found = self._how.get(kind)
        if found is None:
            way = next(self.ways_of(kind), None)
            found = MISSING if way is None else way.how.format(base=kind.origin_of().name)
            self._how[kind] = found
        return found

    def require(self, kind: type[Any]) -> None:
        """Rule O6, before anything runs."""
        if not self.has(kind):
            raise missing(self, kind)


COLUMNS: list[Callable[[], Any]] = []
"""What loads interpretations that are not loaded yet. They are above: lunette fills it."""


def missing(column: Interpretation, kind: type[Any]) -> ArgumentError:
    """Rule O6: what says that an operator has no rule in a column."""
    for load in COLUMNS:
        load()
    has = [other.name for other in Interpretation.every.values() if other.has(kind)]
    got = f"{kind.name}, which has {', '.join(has) or 'none'}"
    need = f'an operator with the rule "{column.name}" ({column.about})'
    return ArgumentError("O6", need, got, "ln.rules() tells what every operator has.", who=kind.name)
