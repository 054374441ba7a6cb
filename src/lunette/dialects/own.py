"""Lunette's own words, so that other dialects can be compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from lunette.array import resolve_named
from lunette.dialects.dialect import Arguments, Call, Dialect, Function, Words
from lunette.dialects.meaning import LUNETTE_CORNERS, Corners, Meaning, Setting, Shapes, meaning_of, setting_of
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS

T = TypeVar("T")
TIES = {"first": LUNETTE_CORNERS.ties, "all": "all of them, each in full", "split": "equal shares"}


class OfEveryOperator(Mapping[str, T]):
    """Something of every operator, those of other packages included."""

    def __init__(self, of: Callable[[str], T]) -> None:
        self.of = of

    def __getitem__(self, op: str) -> T:
        return self.of(KINDS[op].name)

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


def _corners(op: str) -> Corners:
    ties = parameters_of(ALL[KINDS[op]]).get("ties")
    return LUNETTE_CORNERS if ties is None else replace(LUNETTE_CORNERS, ties=TIES[ties.default])


class Lunette(Dialect):
    """Options of `ln.<op>`."""

    name = "lunette"
    functions: Mapping[str, Function] = OfEveryOperator(lambda op: Function(f"ln.{op}", ()))
    corners: Mapping[str, Corners] = OfEveryOperator(_corners)
    """Ties as they are unless `ties` says otherwise."""

    def spell(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call:
        """As they are."""
        return Call(self.function(op).name, dict(options))

    def meaning(self, op: str, shapes: Shapes, arguments: Arguments, *, lead: int = 2) -> Meaning:
        """What lunette accepts, and what it then reads."""
        resolve_named(op, shapes, arguments, lead)
        return self.read(setting_of(op, shapes, arguments, lead), arguments)

    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """Nothing to translate."""
        return meaning_of(setting, self.corners[setting.op])
