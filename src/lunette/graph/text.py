"""Graphs as text: one readable line per node, which parses back.

    %0 : f32[3,8,8] = input("x")
    %1 : f32[3,4,4] = max_pool(%0, kernel=(2, 2))
    return %1

Options are written as Python literals, those that are not as the operator has them by default. Constants of up to 16
cells are written out; larger ones are named (`constant("c2")`), and reading the text needs their arrays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

import numpy as np

from lunette.array import defaults_of
from lunette.errors import ArgumentError, LunetteError, shown, speaking
from lunette.graph.graph import DTYPES, SHORT, Graph, Node, Var
from lunette.number import Array
from lunette.op import Op
from lunette.ops import ALL, GLUE
from lunette.ops.derivative import Derivative, Differentiable, jvp_of, vjp_of

INLINE: Final = 16
LONG: Final = {short: name for name, short in SHORT.items()}


@lru_cache(maxsize=1)
def kinds() -> dict[str, type[Op]]:
    """Every operator by its name, with the derivatives of those that have them."""
    known: dict[str, type[Op]] = {k.name: k for k in (*ALL, *GLUE)}
    for kind in ALL:
        assert issubclass(kind, Differentiable)
        known[jvp_of(kind).name] = jvp_of(kind)
        known |= {vjp_of(kind, wrt).name: vjp_of(kind, wrt) for wrt in range(len(kind.arrays))}
    return known


@lru_cache
def options_of(kind: type[Op]) -> dict[str, Any]:
    """The options of an operator in order, each with its default."""
    if issubclass(kind, Derivative):
        return options_of(kind.base)
    if kind in ALL:
        return defaults_of(ALL[kind], kind)
    return {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]


# ---- writing


def write(graph: Graph) -> str:
    """The whole graph."""
    lines = [f"%{at} : {n.short} = {line(graph, at)}" for at, n in enumerate(graph.nodes)]
    return "\n".join([*lines, f"return {', '.join(f'%{i}' for i in graph.outputs)}"])


def named_constants(graph: Graph) -> dict[str, Array]:
    """The constants that the text only names."""
    return {f"c{at}": n.value for at, n in enumerate(graph.nodes) if n.value is not None and n.value.size > INLINE}


def line(graph: Graph, at: int) -> str:
    """What one node computes."""
    n = graph.nodes[at]
    if n.name is not None:
        return f'input("{n.name}")'
    if n.value is not None:
        return f"constant({literal(n.value) if n.value.size <= INLINE else chr(34) + f'c{at}' + chr(34)})"
    assert n.kind is not None
    parts = ["None" if i is None else f"%{i}" for i in n.inputs]
    while parts and parts[-1] == "None":
        parts.pop()
    for (name, default), value in zip(options_of(n.kind).items(), n.options, strict=True):
        if not (value == default and type(value) is type(default)):
            parts.append(f"{name}={value!r}" if isinstance(value, str | type(None)) else f"{name}={number(value)}")
    return f"{n.kind.name}({', '.join(parts)})"


def number(value: Any) -> str:
    """A number, or numbers in tuples, as a literal; infinities as 1e999."""
    if isinstance(value, tuple):
        return f"({', '.join(map(number, value))}{',' if len(value) == 1 else ''})"
    text = repr(value)
    return text.replace("inf", "1e999") if isinstance(value, float) and text in ("inf", "-inf") else text


def literal(value: Array) -> str:
    """A small array as nested lists; NaN as None."""

    def one(v: Any) -> str:
        if isinstance(v, list):
            return f"[{', '.join(map(one, v))}]"
        return "None" if v != v else number(v)

    return one(value.tolist())


# ---- reading

_LINE: Final = re.compile(r"%(\d+) : (f32|f64|i64)\[([\d,]*)\] = ([a-z_0-9]+)\((.*)\)")


def read(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a text. Nothing in the text is executed: operators are looked up, options are literals."""
    graph = Graph()
    graph.lines = False
    with speaking("Graph.parse"):
        if not isinstance(text, str):
            raise refuse("a string", f"{type(text).__name__}")
        lines = [t for t in (part.strip() for part in text.splitlines()) if t]
        for row, words in enumerate(lines):
            if words.startswith("return"):
                names = [w.strip() for w in words.removeprefix("return").split(",")]
                if row != len(lines) - 1 or not all(re.fullmatch(r"%\d+", w) for w in names):
                    raise refuse("`return %i, ...` as the last line", f"line {row + 1}: {shown(words)}")
                graph.output(*(variable(graph, w, row) for w in names))
                graph.check()
                return graph
            found = _LINE.fullmatch(words)
            if found is None or int(found[1]) != len(graph.nodes):
                raise refuse(f"`%{len(graph.nodes)} : dtype[sizes] = operator(...)`", f"line {row + 1}: {shown(words)}")
            _read_node(graph, row, found, constants or {})
        raise refuse("`return %i, ...` as the last line", "the end of the text")


def _read_node(graph: Graph, row: int, found: re.Match[str], constants: Mapping[str, Any]) -> None:
    dtype = DTYPES[LONG[found[2]]]
    shape = tuple(int(n) for n in found[3].split(",") if n)
    name, inside = found[4], found[5]
    if name == "input":
        graph.input(shape, dtype, str(_literal(inside, row)))
        return
    if name == "constant":
        value = _literal(inside, row)
        if isinstance(value, str):
            if value not in constants:
                raise refuse(f"the array of constant {value}", "none", "Pass constants={name: array}.")
            array = np.array(constants[value], order="C")
        else:
            array = np.array(value, np.float64 if dtype.kind == "f" else np.int64).astype(dtype)
            array = array.reshape(shape) if value == [] and 0 in shape and max(shape) < 2**31 else array
        if array.shape != shape or array.dtype != dtype:
            got = f"shape {array.shape}, dtype {array.dtype}"
            raise ArgumentError("G4", f"a constant of shape {shape} and dtype {dtype}", got, f"Line {row + 1}.")
        array.flags.writeable = False
        graph.append(Node(shape, dtype, value=array))
        return
    kind = kinds().get(name)
    if kind is None:
        raise refuse("an operator of lunette", f"{shown(name)} in line {row + 1}")
    operands, options = _arguments(graph, row, inside)
    names = options_of(kind)
    for key in options:
        if key not in names:
            raise refuse(f"an option among {', '.join(names) or 'none'}", f"{key} in line {row + 1}")
    if not any(isinstance(o, Var) for o in operands):
        raise refuse("at least one variable", f"none in line {row + 1}")
    full = [*operands, *[None] * (len(kind.arrays) - len(operands))]
    given = tuple(options.get(k, d) for k, d in names.items())
    axes = len(operands[0].shape) if isinstance(operands[0], Var) else 0
    if "spatial" in names and given[-1] is None and axes >= 2:
        given = kind.told(axes - 2, given)  # texts that do not say it are older than rule W13, and mean this
    made = graph.apply(kind, full, given)
    if made.shape != shape or made.dtype != dtype:
        got = f"line {row + 1} says {found[2]}{list(shape)}"
        raise ArgumentError("G2", f"{made.node.short} from {name}", got, "The operator's shape rule decides.")


def _arguments(graph: Graph, row: int, inside: str) -> tuple[list[Any], dict[str, Any]]:
    """Variables by position, then options by name."""
    named = re.sub(r"%(\d+)", r"v\1", inside)
    try:
        call = ast.parse(f"f({named})", mode="eval").body
        assert isinstance(call, ast.Call)
        operands = [
            variable(graph, f"%{a.id[1:]}", row) if isinstance(a, ast.Name) else ast.literal_eval(a) for a in call.args
        ]
        return operands, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except LunetteError:
        raise
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise refuse("variables and literals as arguments", f"line {row + 1}: {shown(inside)}") from None


def _literal(inside: str, row: int) -> Any:
    try:
        value = ast.literal_eval(inside)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refuse("a literal", f"line {row + 1}: {shown(inside)}") from None
    return _nan(value)


def _nan(value: Any) -> Any:
    return [_nan(v) for v in value] if isinstance(value, list) else float("nan") if value is None else value


def variable(graph: Graph, word: str, row: int) -> Var:
    """Rule G1."""
    at = int(word[1:])
    if at >= len(graph.nodes):
        raise ArgumentError("G1", "a variable of an earlier line", f"{word} in line {row + 1}", "Nodes come in order.")
    return Var(graph, at)


def refuse(need: str, got: str, hint: str = "str(graph) shows what the text of a graph looks like.") -> ArgumentError:
    """Rule G8."""
    return ArgumentError("G8", need, got, hint)
