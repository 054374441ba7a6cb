"""Graphs: nodes in the order they are computed, each an operator with its inputs, shape and dtype.

A graph is well formed by construction. Whatever makes one otherwise (a parser, a file, a pass) is checked against:

| rule | says                                                                                         |
|------|----------------------------------------------------------------------------------------------|
| G1   | every input of a node is an earlier node                                                     |
| G2   | shape and dtype of a node are what its operator gives for the shapes and dtypes of its inputs |
| G3   | inputs have names that differ, and sizes >= 0                                                |
| G4   | a constant has the shape and dtype that its node says                                        |
| G5   | outputs are nodes of the graph; computing needs at least one                                 |
| G6   | values decide nothing while a graph is built                                                 |
| G7   | variables of one operator belong to one graph                                                |
| G8   | a text, or a file, is one that lunette wrote                                                 |
| G9   | a program gets one array per input, of its shape and dtype                                   |
| G10  | with debug=True, no operator makes a NaN                                                     |
| G11  | statistics are those of one run at least                                                     |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from lunette.array import (
    FLOAT,
    integers_to_numpy,
    is_plain,
    key_of,
    names_of,
    plain_options,
    same_dtype,
    to_numpy,
)
from lunette.errors import ArgumentError, DTypeError, LunetteError, error_context, shown
from lunette.graph.value import Value
from lunette.number import OBJECT, Array, as_dtype, cells_of, is_real
from lunette.op import Op, ResolvedOp, resolve
from lunette.window import Shape, integer, is_sequence

SHORT = {"float32": "f32", "float64": "f64", "int64": "i64"}

DTYPES = {name: np.dtype(name) for name in SHORT}

MOST_AXES = 32


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a graph: an input (`name`), a constant (`value`) or an operator applied to earlier nodes."""

    shape: Shape
    dtype: np.dtype[Any]
    kind: type[Op] | None = None
    options: tuple[Any, ...] = ()
    inputs: tuple[int | None, ...] = ()
    resolved: ResolvedOp | None = field(default=None, compare=False)
    name: str | None = None
    value: Array | None = field(default=None, compare=False)
    line: str = field(default="", compare=False)
    """Where the user built it."""

    @property
    def op(self) -> Op:
        """The operator value of a node that has one."""
        assert self.resolved is not None
        return self.resolved.op

    @property
    def short(self) -> str:
        """Dtype and shape, as a text of the graph shows them."""
        return short(self.shape, self.dtype)


def short(shape: Shape, dtype: np.dtype[Any]) -> str:
    """`f32[2,3]`."""
    return f"{SHORT.get(dtype.name, dtype.name)}[{','.join(map(str, shape))}]"


class Var(Value):
    """A node of a graph, as the user holds it."""

    __slots__ = ("graph", "id")
    level = -1  # values under differentiation may hold variables, never the other way round

    def __init__(self, graph: Nodes, at: int) -> None:
        self.graph, self.id = graph, at

    @property
    def node(self) -> Node:
        """What is known of it."""
        return self.graph.nodes[self.id]

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """Its shape."""
        return self.node.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.node.dtype

    def __repr__(self) -> str:
        return f"Var(%{self.id} : {self.node.short})"

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        try:
            if type(arithmetic) is not str or arithmetic != "fast":
                raise ArgumentError(
                    "D9",
                    'arithmetic="fast" inside a graph',
                    f"arithmetic={shown(arithmetic)}",
                    "Leave it out: one arithmetic serves a whole program, program.run(x, arithmetic=...).",
                    who=kind.name,
                )
            return self.graph.apply(kind, operands, options)
        except LunetteError as error:
            if not getattr(error, "__notes__", None):
                error.add_note(f"while building a graph at {line_of_the_user()}")
            raise


_PACKAGE = str(Path(__file__).resolve().parents[1])


def line_of_the_user() -> str:
    """The user's line that is being executed: the innermost one outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@lru_cache(maxsize=4096)
def _rule(kind: type[Op], facts: tuple[Any, ...], key: bytes, options: _Hidden) -> tuple[ResolvedOp, np.dtype[Any]]:
    shapes = [None if f is None else f[0] for f in facts]
    resolved = resolve(kind, shapes, 2, options.value)
    with error_context(kind.name, resolved.d):
        own = resolved.op.dtype
        dtypes = [None if f is None else np.dtype(f[1]) for f in facts]
        measured = [(p, t) for p, t in enumerate(dtypes) if t is not None and p not in kind.integers]
        dtype = np.dtype(own) if own is not None else measured[0][1]
        names = names_of(kind, facts)
        for p, t in measured:
            same_dtype(dtype, np.empty(0, t), names[p])
        if dtype not in FLOAT:
            raise DTypeError("D1", "float32 or float64 in a graph", f"{names[0]} of dtype {dtype}", "Convert it.")
    return ResolvedOp(resolved.op.cast(dtype), resolved.d, resolved.batch, resolved.shapes, resolved.out), dtype


class _Hidden:
    """Options that a cache carries but does not compare: their bytes are the key."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Nodes:
    """A typed list of nodes, and which of them are outputs: what a graph is made of."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[int] = []
        self._constants: dict[Any, tuple[int, Array, Any]] = {}
        self.lines = True  # whether nodes remember where they were built

    # ---- building

    def input(self, shape: Sequence[int], dtype: Any = "float32", name: Any = None) -> Var:
        """A new input."""
        with error_context("Graph.input"):
            name = self.unused(f"x{len(self.inputs)}") if name is None else name
            if not isinstance(name, str) or not name.isidentifier() or name in [n.name for n in self.inputs]:
                raise ArgumentError("G3", "a name of its own, an identifier", f"name={shown(name)}", "Or leave it out.")
            if not is_sequence(shape):
                raise DTypeError("G3", "a shape as a tuple", f"shape={shown(shape)}", "Write (n,) for one axis.")
            sizes = tuple(integer("a size", n) for n in shape)
            if any(n < 0 for n in sizes) or len(sizes) > MOST_AXES:
                raise ArgumentError("G3", f"at most {MOST_AXES} sizes >= 0", f"shape={sizes}", "Every size is known.")
            return self.append(Node(sizes, check_dtype(dtype), name=name))

    def constant(self, value: Any, dtype: Any = "float32") -> Var:
        """A constant: an array, or a number in the dtype that is given."""
        with error_context("Graph.constant"):
            return self._constant(value, dtype, "a constant")

    def _constant(self, value: Any, dtype: Any, name: str) -> Var:
        if is_real(value):
            known = check_dtype(dtype)
            array = np.asarray(as_dtype(value, known), known)
            key: Any = (array.tobytes(), known)
        else:
            array, key = value if hasattr(value, "dtype") else cells_of(value, name), id(value)
        taken = array if array.dtype == np.int64 else to_numpy(array, name).array
        if taken.dtype.name not in DTYPES:
            got = f"{name} of dtype {taken.dtype}"
            raise DTypeError("D1", "float32, float64 or int64 in a graph", got, "Pass a float32 or float64 array.")
        before = self._constants.get(key)
        frozen = np.array(taken, order="C", copy=True)
        if before is not None and _is_same(before[1], frozen):  # it may have changed since
            return Var(self, before[0])
        frozen.flags.writeable = False
        var = self.append(Node(frozen.shape, frozen.dtype, value=frozen))
        self._constants[key] = var.id, frozen, value  # holds the value, so that its id stays its own
        return var

    def apply(self, kind: type[Op], operands: Sequence[Any], options: tuple[Any, ...]) -> Var:
        """A new node: an operator applied to variables, arrays and numbers."""
        nodes = self.nodes
        mine = next(o for o in operands if type(o) is Var and o.graph is self)
        inputs: list[int | None] = []
        for at, o in enumerate(operands):
            if type(o) is Var:
                if o.graph is not self:
                    raise ArgumentError(
                        "G7",
                        "variables of one graph",
                        "variables of two graphs",
                        "Build in one of them.",
                        who=kind.name,
                    )
                inputs.append(o.id)
            elif o is None and kind.optional and at > 0:
                inputs.append(None)
            else:
                name = names_of(kind, operands)[at]
                with error_context(kind.name):
                    counted = at in kind.integers and not is_real(o)
                    if not counted and isinstance(o, np.ndarray) and o.dtype.kind in "iub":
                        hint = f"Pass {name}.astype(np.{mine.dtype})."
                        raise DTypeError("D1", f"{name} of dtype {mine.dtype}", f"dtype {o.dtype}", hint)
                    inputs.append(
                        self._constant(integers_to_numpy(o, name).array if counted else o, mine.dtype, name).id
                    )
        facts = tuple([None if i is None else (nodes[i].shape, nodes[i].dtype) for i in inputs])
        plain = plain_options(options)
        if not all(map(is_plain, plain)):
            resolve(kind, [None if f is None else f[0] for f in facts], 2, options)  # it says what it needs instead
            need = "options that can be written down"
            raise DTypeError("G8", need, shown(options), "Pass numbers, strings and tuples of them.", who=kind.name)
        key = key_of(kind, (), "fast", plain)
        resolved, dtype = _rule(kind, facts, key[3], _Hidden(plain))
        if resolved.op.return_indices:
            raise ArgumentError(
                "G6",
                "values, not indices, in a graph",
                "return_indices=True",
                "Call the function on arrays.",
                who=kind.name,
            )
        line = line_of_the_user() if self.lines else ""
        kept = plain if resolved.d is None else kind.told(resolved.d, plain)
        return self.append(Node(resolved.out, dtype, kind, kept, tuple(inputs), resolved, line=line))

    def append(self, node: Node) -> Var:
        """A node that is known to be well formed."""
        self.nodes.append(node)
        return Var(self, len(self.nodes) - 1)

    def empty(self) -> Self:
        """A new one of this kind."""
        return type(self)()

    def copy(self) -> Self:
        """The same nodes and outputs; what is added to one is not in the other."""
        new = self.empty()
        new.nodes, new.outputs, new.lines = list(self.nodes), list(self.outputs), self.lines
        return new

    def output(self, *variables: Any) -> None:
        """Declare outputs, in this order, after those declared before."""
        for v in variables:
            if not isinstance(v, Var) or v.graph is not self:
                got = shown(v) if not isinstance(v, Var) else "a variable of another graph"
                hint = "Build them in this graph."
                raise ArgumentError("G5", "outputs that are variables of this graph", got, hint, who="Graph.output")
            self.outputs.append(v.id)

    # ---- reading

    @property
    def inputs(self) -> list[Node]:
        """The inputs, in the order of their creation."""
        return [n for n in self.nodes if n.name is not None]

    def input_ids(self) -> list[int]:
        """Where the inputs are among the nodes."""
        return [i for i, n in enumerate(self.nodes) if n.name is not None]

    def unused(self, name: str) -> str:
        """The name, or one like it that no input has."""
        taken = {n.name for n in self.inputs}
        while name in taken:
            name += "_"
        return name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.nodes)} nodes, {len(self.inputs)} inputs, {len(self.outputs)} outputs)"


def _is_same(a: Array, b: Array) -> bool:
    """Bit by bit: 0.0 is not -0.0, and NaN is NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """What a graph computes in, and integers for labels."""
    try:
        known = np.dtype(str(dtype).removeprefix("torch.") if not isinstance(dtype, str | np.dtype | type) else dtype)
    except TypeError:
        known = OBJECT
    if known.name not in DTYPES:
        raise DTypeError(
            "D1", "float32, float64 or int64 in a graph", f"dtype={shown(dtype)}", "float16 goes in as float32."
        )
    return known
