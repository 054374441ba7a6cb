"""What names of a model stand for while it is read, and a node as an operator's reader sees it.

A value is a variable of the graph that is built, or it is known: an array of floats, or of Python's integers as
objects. What is made of known values alone is known, too: lunette's own functions compute it, of integers by the
specification, so that arithmetic on shapes needs no table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from lunette.errors import ArgumentError, shown
from lunette.graph.graph import Graph
from lunette.graph.nodes import Var
from lunette.number import OBJECT, Array
from lunette.onnx.file import FLOATS, INTEGERS, STORED, array_of
from lunette.op import Op, apply, resolve
from lunette.ops.glue import shape_of
from lunette.window import Shape

MOST_CELLS: Final = 1 << 26
MOST_INTEGERS: Final = 1 << 22
MOST_INTEGER: Final = 1 << 64

SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)


class DoubleError(Exception):
    """A variable becomes a float of 64 bits: the model is to be read once more, in these."""


@dataclass(slots=True)
class Reading:
    """What holds for all of a model that is being read."""

    dtype: np.dtype[Any]
    """What is computed in: one dtype serves a whole model."""
    left: list[int] = field(default_factory=lambda: [MOST_CELLS, MOST_INTEGERS])
    """So many cells, and so many integers, may still be computed of constants."""


READING: ContextVar[Reading] = ContextVar("the model that is being read")


def computed_in(kind: str) -> np.dtype[Any]:
    """The dtype of the values of an element type. Rule NX6."""
    if kind not in FLOATS:
        hint = "Integers may be shapes, axes and indices, which are constants."
        raise ArgumentError("NX6", "data of float16, bfloat16, float32 or float64", kind, hint)
    return DOUBLE if kind == "DOUBLE" else READING.get().dtype


def spend(cells: int, integers: bool = False) -> None:
    """Rule NX10."""
    left = READING.get().left
    left[integers] -= cells
    if left[integers] < 0:
        most = MOST_INTEGERS if integers else MOST_CELLS
        raise ArgumentError("NX10", f"at most {most} cells of constants", f"{cells} more", "Make them inputs.")


class Known(np.ndarray):
    """An array whose cells are known while a model is read; lunette's functions of known arrays are known."""

    level: ClassVar[int] = -2  # variables have the say

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Known:
        resolved = resolve(kind, [None if o is None else shape_of(o) for o in operands], 2, options)
        spend(prod(resolved.out), self.dtype == OBJECT)
        plain = [np.asarray(o) if isinstance(o, Known) else o for o in operands]
        return known(apply(kind, plain, arithmetic, *options))


Data = Known | Var


def known(cells: Any) -> Known:
    """An array as a known value; integers are whole and within 64 bits, whatever they are computed from."""
    array = np.asarray(cells)
    if array.dtype == OBJECT and any(type(v) is not int or not -MOST_INTEGER < v < MOST_INTEGER for v in array.flat):
        raise ArgumentError("NX6", "integers of 64 bits", shown(array.ravel().tolist()), "They count cells.")
    return array.view(Known)


def integers(cells: Any) -> Known:
    """Python's integers as a known value."""
    whole = np.asarray(cells, object)
    spend(whole.size, True)
    return known(whole)


@dataclass(frozen=True, slots=True)
class Value:
    """What a name stands for."""

    data: Data
    type: str
    """The element type that the model says, by ONNX's name."""


def check_range(value: Value) -> None:
    """Rule NX6: known integers are those of their type, which others would wrap around."""
    if isinstance(value.data, Var) or value.data.dtype != OBJECT or not value.data.size:
        return
    kind = STORED[value.type] if value.type in INTEGERS else np.dtype(np.int64)
    least, most = (0, 1) if value.type == "BOOL" else (np.iinfo(kind).min, np.iinfo(kind).max)
    if not least <= value.data.min() <= value.data.max() <= most:
        got = f"{shown(value.data.ravel().tolist())}"
        raise ArgumentError("NX6", f"integers of {value.type}", got, "What they become is not the same everywhere.")


@dataclass(frozen=True, slots=True)
class Absent:
    """A result that is not computed, and what is said to whoever reads it. Rule NX11."""

    what: str
    hint: str
    rule: str = "NX11"


def gone(result: Absent) -> ArgumentError:
    """What is said of it."""
    need = "results that lunette computes" if result.rule == "NX11" else "data of floats"
    return ArgumentError(result.rule, need, result.what, result.hint)


REQUIRED: Final[Any] = object()


@dataclass(slots=True)
class Call:
    """A node: its inputs and attributes, each asked for in the form that the operator has it. Rules NX4 and NX5."""

    proto: Any
    opset: int
    graph: Graph
    inputs: list[Value | None]
    folder: Path | None
    used: set[str] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)

    # ---- inputs

    def given(self, at: int) -> Value | None:
        """An input, if it is there."""
        self.seen.add(at)
        return self.inputs[at] if at < len(self.inputs) else None

    def value(self, at: int) -> Value:
        """An input that must be there."""
        found = self.given(at)
        if found is None:
            raise ArgumentError("NX4", f"input {at} of {self.proto.op_type}", "none", "The model is damaged.")
        return found

    def x(self, at: int = 0) -> Data:
        """The data of an input that must be there."""
        return self.value(at).data

    def maybe(self, at: int) -> Data | None:
        """The data of an input that may be left out."""
        found = self.given(at)
        return None if found is None else found.data

    def every(self) -> list[Data]:
        """All inputs, of which there is one at least, as operands of one function."""
        return self.alike([self.x(at) for at in range(max(len(self.inputs), 1))])

    def pair(self) -> list[Data]:
        """The first two inputs, as operands of one function."""
        return self.alike([self.x(0), self.x(1)])

    def alike(self, data: Sequence[Data]) -> list[Data]:
        """Known integers beside variables become floats, as integers that depend on inputs are."""
        var = next((d for d in data if isinstance(d, Var)), None)
        return list(data) if var is None else [as_floats(d, var.dtype) for d in data]

    def shape(self, at: int = 0) -> Shape:
        """The shape of an input."""
        return shape_of(self.x(at))

    def known(self, at: int, what: str) -> Known:
        """Rule NX5."""
        data = self.x(at)
        if isinstance(data, Var):
            hint = "A graph has fixed shapes: make it a constant of the model, or leave this part out of it."
            raise ArgumentError("NX5", f"{what} that no input changes", f"{what} that is computed", hint)
        return data

    def whole(self, at: int, what: str) -> tuple[int, ...] | None:
        """Known integers; None where the input is left out."""
        if self.given(at) is None:
            return None
        cells = self.known(at, what)
        if cells.dtype != OBJECT:
            raise ArgumentError("NX4", f"{what} as integers", f"{self.value(at).type}", "The model is damaged.")
        return tuple(int(v) for v in cells.ravel().tolist())

    def number(self, at: int, what: str) -> float | None:
        """One known number; None where the input is left out."""
        if self.given(at) is None:
            return None
        cells = self.known(at, what)
        if cells.size != 1:
            raise ArgumentError("NX4", f"{what} as one number", f"shape {cells.shape}", "The model is damaged.")
        return cells.ravel().tolist()[0]  # type: ignore[no-any-return]

    def is_counted(self, at: int = 0) -> bool:
        """Whether an input is of integers."""
        return self.value(at).type in INTEGERS

    # ---- attributes

    def attribute(self, name: str, form: str, default: Any) -> Any:
        """An attribute in one of ONNX's forms."""
        self.used.add(name)
        found = [a for a in self.proto.attribute if a.name == name]
        if not found:
            if default is REQUIRED:
                raise ArgumentError("NX4", f"attribute {name}", "none", "The model is damaged.")
            return default
        if len(found) > 1 or form_of(found[0]) != form:
            got = f"{name} of {form_of(found[0])}" if len(found) == 1 else f"{name} twice"
            raise ArgumentError("NX4", f"{name} of {form}", got, "The model is damaged.")
        return content_of(found[0])

    def integer(self, name: str, default: Any = REQUIRED) -> int:
        """An integer."""
        return self.attribute(name, "INT", default)  # type: ignore[no-any-return]

    def flag(self, name: str, default: bool = False) -> bool:
        """0 or 1."""
        return bool(self.attribute(name, "INT", int(default)))

    def real(self, name: str, default: Any = REQUIRED) -> float:
        """A number."""
        return self.attribute(name, "FLOAT", default)  # type: ignore[no-any-return]

    def text(self, name: str, default: Any = REQUIRED) -> str:
        """A word."""
        return self.attribute(name, "STRING", default)  # type: ignore[no-any-return]

    def ints(self, name: str, default: Any = None) -> Any:
        """Integers."""
        return self.attribute(name, "INTS", default)

    def tensor(self, name: str) -> Value | None:
        """A tensor."""
        found = self.attribute(name, "TENSOR", None)
        return None if found is None else value_of(found, self.folder)

    def told(self, name: str, at: int, what: str) -> tuple[int, ...] | None:
        """Integers that are an attribute at some opsets, and an input at others."""
        given = self.ints(name, None)
        return self.whole(at, what) if given is None else tuple(given)

    def said(self) -> dict[str, Any]:
        """All attributes, for a dialect, which knows them."""
        for a in self.proto.attribute:
            self.attribute(a.name, form_of(a), None)
        return {a.name: content_of(a) for a in self.proto.attribute}

    def check_all_used(self) -> None:
        """Rule NX4: no input and no attribute is left unread."""
        extra = [at for at, v in enumerate(self.inputs) if v is not None and at not in self.seen]
        if extra:
            got, hint = f"input {extra[0]}, {shown(self.proto.input[extra[0]])}", "The model is damaged, or newer."
            raise ArgumentError("NX4", f"inputs that {self.proto.op_type} has", got, hint)
        rest = [a.name for a in self.proto.attribute if a.name not in self.used]
        if rest:
            got = f"{rest[0]} of opset {self.opset}"
            raise ArgumentError("NX4", "attributes that lunette knows", got, "Leave it out if it says nothing.")


def refuse(need: str, got: str, hint: str) -> ArgumentError:
    """A refusal of what a node says, which names it on its way out. Rule NX4."""
    return ArgumentError("NX4", need, got, hint)


Reader = Callable[[Call], Any]
"""What a node computes: the data of its first result, or a list of results, each data, a Value or Absent."""


def value_of(tensor: Any, folder: Path | None) -> Value:
    """A tensor of the model as a value."""
    cells, kind = array_of(tensor, folder)
    return Value(known(cells.astype(computed_in(kind)) if kind in FLOATS else cells), kind)


def as_floats(data: Data, dtype: Any) -> Data:
    """Integers as floats; they must be exact."""
    if isinstance(data, Var) or data.dtype != OBJECT:
        return data
    most = 2 ** (np.finfo(dtype).nmant + 1)
    if any(abs(v) > most for v in data.flat):
        raise ArgumentError("NX6", f"integers up to {most}", "greater ones", f"They are computed as {dtype}.")
    return known(data.astype(dtype))


def form_of(attribute: Any) -> str:
    """The name of an attribute's form."""
    types = type(attribute).AttributeType
    return str(types.Name(attribute.type)) if attribute.type in types.values() else "an unknown form"


def content_of(attribute: Any) -> Any:
    """What an attribute says, in Python's words. Rule NX4."""
    form = form_of(attribute)
    if attribute.ref_attr_name:
        raise ArgumentError("NX4", "attributes with values", f"a reference {attribute.ref_attr_name}", "Inline it.")
    if form == "STRING":
        return attribute.s.decode("utf-8", "replace")
    if form == "STRINGS":
        return [s.decode("utf-8", "replace") for s in attribute.strings]
    plain = {"FLOAT": "f", "INT": "i", "TENSOR": "t"}
    if form in plain:
        return getattr(attribute, plain[form])
    if form in ("FLOATS", "INTS"):
        return list(getattr(attribute, form.lower()))
    raise ArgumentError(
        "NX4", "attributes that are numbers, words or tensors", f"{shown(attribute.name)} of {form}", "."
    )


def empty(shape: Shape) -> bool:
    """Whether a shape has no cells."""
    return prod(shape) == 0


def filled(value: Any, shape: Shape, like: Array) -> Known:
    """A known array of one value."""
    spend(prod(shape), like.dtype == OBJECT)
    return known(np.full(shape, value, like.dtype))
