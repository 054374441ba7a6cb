"""Graphs in files: a versioned JSON file with the text of the graph, and its constants in an npz file beside it.

A file is data: reading it executes nothing, and a graph comes out only when every rule of a graph holds.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, error_context, shown
from lunette.files import kind_of
from lunette.graph.check import check
from lunette.graph.nodes import Nodes
from lunette.graph.text import G, named_constants, read, write
from lunette.number import Array

FORMAT: Final = "lunette-graph"
VERSION: Final = 1


def save(graph: Nodes, path: str | os.PathLike[str]) -> None:
    """Write `path` and, if there are constants that the text only names, `path` + ".npz"."""
    check(graph)
    arrays = named_constants(graph)
    content = {"format": FORMAT, "version": VERSION, "constants": sorted(arrays), "graph": write(graph).splitlines()}
    where = Path(path)
    beside = where.with_name(where.name + ".npz")
    if arrays:
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    elif beside.exists():
        beside.unlink()
    where.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path: str | os.PathLike[str], graph: G) -> G:
    """Fill an empty graph with what `save` wrote to `path`."""
    where = Path(path)
    with error_context("load"):
        try:
            content: Any = json.loads(where.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            kind = kind_of(where)
            if kind is not None and where.suffix != ".json":
                raise ArgumentError("G8", "a graph that graph.save wrote", *kind) from error
            raise damaged("JSON", f"{where.name}: {shown(str(error))}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise damaged(f'format "{FORMAT}"', f"{where.name}: {shown(_some(content, 'format'))}")
        if type(content.get("version")) is not int or content["version"] != VERSION:
            hint = "It was written by another version of lunette."
            raise ArgumentError("G8", f"version {VERSION}", f"{shown(content.get('version'))}", hint)
        lines, names = content.get("graph"), content.get("constants")
        for what, value in (("graph", lines), ("constants", names)):
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise damaged(f"{what} as a list of strings", shown(value))
        assert isinstance(lines, list) and isinstance(names, list)
        return read("\n".join(lines), _arrays(where.with_name(where.name + ".npz"), names) if names else {}, graph)


def _arrays(path: Path, names: list[str]) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {n: arrays[n] for n in names}
    except Exception as error:  # a zip file can be damaged in more ways than it has exceptions for
        raise damaged(f"the constants in {path.name}", shown(str(error))) from error


def _some(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, dict) else type(content).__name__


def damaged(need: str, got: str) -> ArgumentError:
    return ArgumentError("G8", need, got, "The file was not written by lunette, or was damaged.")
