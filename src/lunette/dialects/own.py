"""Lunette's own words, so that other dialects can be compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lunette.array import resolve_named
from lunette.dialects.dialect import Arguments, Call, Dialect, Function, Words
from lunette.dialects.meaning import LUNETTE_CORNERS, Corners, Meaning, Setting, Shapes, meaning_of, setting_of
from lunette.ops import ALL


class Lunette(Dialect):
    """Options of `ln.<op>`."""

    name = "lunette"
    functions: Mapping[str, Function] = {kind.name: Function(f"ln.{kind.name}", ()) for kind in ALL}
    corners: Mapping[str, Corners] = {
        **{kind.name: LUNETTE_CORNERS for kind in ALL},
        "global_max_pool": replace(LUNETTE_CORNERS, ties="all of them, each in full"),
    }
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
