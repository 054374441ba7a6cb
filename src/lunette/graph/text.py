"""Graphs as text: one readable line per node, which parses back.

    %0 : f32[3,8,8] = input("x")
    %1 : f32[3,4,4] = max_pool(%0, kernel=(2, 2))
    return %1

Options are written as Python literals, those that are not as the operator has them by default. Constants of up to 16
cells are written out; larger ones are named (`constant("c2")`), and reading the text needs their arrays. A node
that has a label ends in `  # "label"`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from math import prod
from typing import Any, Final, TypeVar

import numpy as np

from lunette.array import defaults_of, lookup, names_of
from lunette.errors import ArgumentError, error_context, shown
from lunette.graph.check import check
from lunette.graph.nodes import DTYPES, MOST_AXES, SHORT, Node, Nodes, Var
from lunette.number import Array, allocate, as_dtype
from lunette.op import Op, outline
from lunette.ops import ALL, GLUE, Windowed
from lunette.ops.derivative import Derivative, Differentiable, Jvp, Vjp, jvp_of, vjp_of
from lunette.window import Cell

G = TypeVar("G", bound=Nodes)
INLINE: Final = 16
LONG: Final = {short: name for name, short in SHORT.items()}


def kinds() -> dict[str, type[Op]]:
    """Every operator by its name, with the derivatives of those that have them."""
    return _kinds(tuple(ALL))


@lru_cache(maxsize=4)
def _kinds(registered: tuple[type[Differentiable], ...]) -> dict[str, type[Op]]:
    known: dict[str, type[Op]] = {k.name: k for k in (*registered, *GLUE)}
    for kind in registered:
        known[jvp_of(kind).name] = jvp_of(kind)
        known |= {vjp_of(kind, wrt).name: vjp_of(kind, wrt) for wrt in range(len(kind.arrays))}
    return known


@lru_cache
def options_of(kind: type[Op]) -> dict[str, Any]:
    """The options of an operator in order, each with its default."""
    if issubclass(kind, Derivative):
        return options_of(kind.base)
    if issubclass(kind, Windowed):
        return defaults_of(lookup(kind)[0], kind)
    return {f.name: f.default for f in fields(kind)}


# ---- writing


def write(graph: Nodes) -> str:
    """The whole graph."""
    lines = [f"%{at} : {n.short} = {line(graph, at)}{_comment(n)}" for at, n in enumerate(graph.nodes)]
    return "\n".join([*lines, f"return {', '.join(f'%{i}' for i in graph.outputs)}".strip()])


def _comment(n: Node) -> str:
    return f"  # {quoted(n.label)}" if n.label else ""


def quoted(name: str) -> str:
    """A name as a literal in double quotes."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def named_constants(graph: Nodes) -> dict[str, Array]:
    """The constants that the text only names."""
    return {f"c{at}": n.value for at, n in enumerate(graph.nodes) if n.value is not None and n.value.size > INLINE}


def line(graph: Nodes, at: int) -> str:
    """What one node computes."""
    n = graph.nodes[at]
    if n.name is not None:
        return f"input({quoted(n.name)})"
    if n.value is not None:
        return f"constant({literal(n.value) if n.value.size <= INLINE else chr(34) + f'c{at}' + chr(34)})"
    assert n.kind is not None
    parts = ["None" if i is None else f"%{i}" for i in n.inputs]
    while parts and parts[-1] == "None":
        parts.pop()
    return f"{n.kind.name}({', '.join([*parts, *written_options(n.kind, n.options)])})"


def written_options(kind: type[Op], options: Sequence[Any]) -> list[str]:
    """`name=literal` for every option that is not as the operator has it by default."""
    parts = []
    for (name, default), value in zip(options_of(kind).items(), options, strict=True):
        if repr(value) != repr(default):  # 1, 1.0 and True are equal, and so are 0.0 and -0.0
            parts.append(f"{name}={value!r}" if isinstance(value, str | type(None)) else f"{name}={number(value)}")
    return parts


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

_LINE: Final = re.compile(
    r"%([0-9]+) : (f32|f64|i64)\[((?:[0-9]+(?:,[0-9]+)*)?)\] = ([a-z_0-9]+)\((.*?)\)" r'(?:  # (".*"))?'
)
_RETURN: Final = re.compile(r"return(?: (%[0-9]+(?:, %[0-9]+)*))?")
_OPERAND: Final = re.compile(r"(%[0-9]+|None)(?:, |$)")
DIGITS: Final = 30
"""Sizes and variables have fewer digits; Python refuses to read a few thousand of them."""


def read(text: str, constants: Mapping[str, Any] | None, graph: G) -> G:
    """Fill an empty graph with what a text says: nothing is executed, operators are looked up, options are literals."""
    graph.lines = False
    with error_context("Graph.parse"):
        if not isinstance(text, str):
            raise refuse("a string", f"{type(text).__name__}")
        if not isinstance(constants, Mapping | None):
            raise refuse("constants as a dict of arrays", f"{type(constants).__name__}")
        lines = [t for t in (part.strip() for part in text.splitlines()) if t]
        for row, words in enumerate(lines):
            if words.startswith("return"):
                found = _RETURN.fullmatch(words)
                if row != len(lines) - 1 or found is None:
                    raise refuse("`return %i, ...` as the last line", f"line {row + 1}: {shown(words)}")
                graph.output(*(variable(graph, w, row) for w in (found[1] or "").split(", ") if w))
                check(graph)
                return graph
            found = _LINE.fullmatch(words)
            if found is None or found[1] != str(len(graph.nodes)):
                raise refuse(f"`%{len(graph.nodes)} : dtype[sizes] = operator(...)`", f"line {row + 1}: {shown(words)}")
            _read_node(graph, row, found, constants or {})
        raise refuse("`return %i, ...` as the last line", "the end of the text")


def _read_node(graph: Nodes, row: int, found: re.Match[str], constants: Mapping[str, Any]) -> None:
    dtype = DTYPES[LONG[found[2]]]
    shape = tuple(_count(n, row) for n in found[3].split(",") if n)
    name, inside = found[4], found[5]
    if name == "input":
        own = _literal(inside, row)
        if not isinstance(own, str):
            raise refuse('a name, `input("x")`', f"line {row + 1}: {shown(inside)}")
        graph.input(shape, dtype, own)
        return
    if name == "constant":
        value = _literal(inside, row)
        array = _named(value, constants) if isinstance(value, str) else _array(value, dtype, row)
        if array.shape != shape and array.size == 0 == prod(shape) and shape[: array.ndim] == array.shape:
            array = allocate(shape, dtype)  # lists do not tell the sizes behind a size of zero
        if array.shape != shape or array.dtype != dtype:
            got = f"shape {array.shape}, dtype {array.dtype}"
            raise ArgumentError("G4", f"a constant of shape {shape} and dtype {dtype}", got, f"Line {row + 1}.")
        array.flags.writeable = False
        graph.append(Node(shape, dtype, value=array))
        return
    kind = kinds().get(name)
    if kind is None:
        raise refuse("an operator of lunette", f"{shown(name)} in line {row + 1}")
    operands, options = _arguments(graph, kind, row, inside)
    names = options_of(kind)
    for key in options:
        if key not in names:
            raise refuse(f"an option among {', '.join(names) or 'none'}", f"{key} in line {row + 1}")
    given = tuple(options.get(k, d) for k, d in names.items())
    axes = len(operands[0].shape) if operands and operands[0] is not None else 0
    if "spatial" in names and given[-1] is None and axes >= 2:
        given = kind.told(axes - 2, given)  # texts that do not say it are older than rule W13, and mean this
    graph.label = "" if found[6] is None else str(_literal(found[6], row))
    made = graph.apply(kind, operands, given)
    if made.shape != shape or made.dtype != dtype:
        got = f"line {row + 1} says {found[2]}{list(shape)}"
        raise ArgumentError("G2", f"{made.node.short} from {name}", got, "The operator's shape rule decides.")


def _arguments(graph: Nodes, kind: type[Op], row: int, inside: str) -> tuple[list[Var | None], dict[str, Any]]:
    """Variables by position, None for one that is absent, then options by name."""
    operands: list[Var | None] = []
    rest = inside
    while found := _OPERAND.match(rest):
        operands.append(None if found[1] == "None" else variable(graph, found[1], row))
        rest = rest[found.end() :]
    if not kind.variadic:
        operands += [None] * (len(kind.arrays) - len(operands))
    if (wrong := _wrong_operands(kind, operands)) is not None:
        raise refuse(*wrong, f"Line {row + 1}: {shown(inside)}.")
    try:
        return operands, read_options(rest)
    except UNREADABLE:
        raise refuse("variables and literals as arguments", f"line {row + 1}: {shown(inside)}") from None


def read_options(text: str) -> dict[str, Any]:
    """`name=literal, ...` as a dict; anything else is one of the errors UNREADABLE."""
    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ValueError
    options = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    if len(options) != len(call.keywords):
        raise ValueError
    return options


def _wrong_operands(kind: type[Op], operands: Sequence[Var | None]) -> tuple[str, str] | None:
    """What an operator needs and what it got, if its operands are too many, or one is absent that must not be."""
    names = names_of(kind, operands)
    if len(operands) != len(names) or not operands:
        return f"{len(names) or 'some'} variables for {kind.name}", f"{len(operands)}"
    there = {n for n, o in zip(names, operands, strict=True) if o is not None}
    needed = {n for n in names if n != "b"}
    if issubclass(kind, Vjp):
        needed.add(kind.base.arrays[kind.wrt])
    if issubclass(kind, Jvp):
        own, tangents = names[: kind.count()], names[kind.count() :]
        needed -= set(tangents)
        needed |= {p for p, t in zip(own, tangents, strict=True) if t in there} | (
            set() if there & set(tangents) else {tangents[0]}
        )
    absent = [n for n in names if n in needed - there]
    return (f"{absent[0]} for {kind.name}", "none") if absent else None


UNREADABLE: Final = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""What Python raises for text that is no literal."""


def _named(name: str, constants: Mapping[str, Any]) -> Array:
    if name not in constants:
        raise refuse(f"the array of constant {shown(name)[1:-1]}", "none", "Pass constants={name: array}.")
    array = constants[name]
    if not isinstance(array, np.ndarray):
        raise refuse(f"the array of constant {name}", f"{shown(array)}", "Pass constants={name: array}.")
    return np.array(array, order="C", subok=False)


def _array(value: Any, dtype: np.dtype[Any], row: int) -> Array:
    """Nested lists as an array: of whole numbers, or of numbers rounded to a dtype, None for NaN."""
    shape = outline(value)
    array = allocate(shape[:MOST_AXES], dtype)

    def cell(v: Any) -> Any:
        if dtype.kind != "f":
            return v if type(v) is int and -(2**63) <= v < 2**63 else None
        return np.nan if v is None else as_dtype(v, dtype) if type(v) in (int, float) else None

    def fill(at: Cell, v: Any) -> bool:
        if len(at) < len(shape):
            rows = isinstance(v, list) and len(v) == shape[len(at)]
            return rows and all(fill((*at, p), part) for p, part in enumerate(v))
        found = cell(v)
        if found is not None:
            array[at] = found
        return found is not None

    if len(shape) > MOST_AXES or not fill((), value):
        raise refuse(f"numbers of {dtype} in lists of equal length", f"{shown(value)} in line {row + 1}")
    return array


def _count(word: str, row: int) -> int:
    """A size, or the number of a variable."""
    if len(word) > DIGITS:
        raise refuse(f"a number of at most {DIGITS} digits", f"one of {len(word)} in line {row + 1}")
    return int(word)


def variable(graph: Nodes, word: str, row: int) -> Var:
    """Rule G1."""
    at = _count(word[1:], row)
    if at >= len(graph.nodes):
        raise ArgumentError("G1", "a variable of an earlier line", f"{word} in line {row + 1}", "Nodes come in order.")
    return Var(graph, at)


def _literal(inside: str, row: int) -> Any:
    try:
        return ast.literal_eval(inside)
    except UNREADABLE:
        raise refuse("a literal", f"line {row + 1}: {shown(inside)}") from None


def refuse(need: str, got: str, hint: str = "str(graph) shows what the text of a graph looks like.") -> ArgumentError:
    """Rule G8."""
    return ArgumentError("G8", need, got, hint)
