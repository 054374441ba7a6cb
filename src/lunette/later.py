"""Modules that stand for others, which are loaded when the first of their names is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of(loaded: str, here: str) -> Callable[[str], Any]:
    """`__getattr__` of the module `here`: the names of `loaded`, each of which is an attribute from then on."""

    def find(name: str) -> Any:
        if name.startswith("__"):  # what Python and its tools ask any module for
            return object.__getattribute__(sys.modules[here], name)
        value = getattr(import_module(loaded), name)
        setattr(sys.modules[here], name, value)
        return value

    return find
