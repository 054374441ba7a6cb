"""Modules that stand for others, which are loaded when the first of their names is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of(here: str, *loaded: str) -> Callable[[str], Any]:
    """`__getattr__` of the module `here`: the names of those loaded, each of which is an attribute from then on."""

    def find(name: str) -> Any:
        if name.startswith("__"):  # what Python and its tools ask any module for
            return object.__getattribute__(sys.modules[here], name)
        rooms = [import_module(room) for room in loaded]
        value = getattr(next((room for room in rooms if hasattr(room, name)), rooms[0]), name)
        setattr(sys.modules[here], name, value)
        return value

    return find
