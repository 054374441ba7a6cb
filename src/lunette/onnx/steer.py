"""Constants, shapes, conversions, and positions: what steers the other operators, or is counted.

Integers and truth values that depend on inputs are computed as floats: positions (ArgMax), whole parts (Cast), 1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, shown
from lunette.graph.nodes import Var
from lunette.number import OBJECT
from lunette.onnx.file import FLOATS, INTEGERS, STORED, type_name
from lunette.onnx.value import (
    Call,
    DoubleError,
    Known,
    Reader,
    Value,
    computed_in,
    integers,
    known,
    refuse,
    spend,
)
from lunette.ops.binary import add, equal, mul, sub
from lunette.ops.floor import floor
from lunette.ops.glue import check_axis, shape_of
from lunette.ops.layout import reshape
from lunette.ops.reduce import max as max_cells
from lunette.ops.unary import abs as absolute
from lunette.ops.unary import neg, sign

# ---- constants and shapes


def read_constant(n: Call) -> Any:
    forms: dict[str, Callable[[], Value | None]] = {
        "value": lambda: n.tensor("value"),
        "value_float": lambda: _floats(n.attribute("value_float", "FLOAT", None)),
        "value_floats": lambda: _floats(n.attribute("value_floats", "FLOATS", None)),
        "value_int": lambda: _ints(n.attribute("value_int", "INT", None)),
        "value_ints": lambda: _ints(n.attribute("value_ints", "INTS", None)),
    }
    given = [a.name for a in n.proto.attribute]
    if len(given) != 1 or given[0] not in forms:
        raise refuse(f"one of {', '.join(forms)}", f"{shown(given)}", "Texts and sparse tensors are no data.")
    return forms[given[0]]()


def _floats(value: Any) -> Value:
    return Value(known(np.asarray(value, np.float32).astype(computed_in("FLOAT"))), "FLOAT")


def _ints(value: Any) -> Value:
    return Value(integers(value), "INT64")


def read_constant_of_shape(n: Call) -> Any:
    shape = n.whole(0, "a shape") or ()
    value = n.tensor("value") or _floats([0.0])
    cells = np.asarray(value.data)
    if cells.size != 1 or any(s < 0 for s in shape) or len(shape) > 32:
        raise refuse("one value, and sizes >= 0", f"{cells.size} values, shape {shape}", "The model is damaged.")
    spend(math.prod(shape), cells.dtype == OBJECT)
    return Value(known(np.full(shape, cells.ravel()[0], cells.dtype)), value.type)


def read_shape(n: Call) -> Any:
    shape = n.shape()
    first = n.integer("start", 0) if n.opset >= 15 else 0
    last = n.attribute("end", "INT", None) if n.opset >= 15 else None
    return Value(integers(list(shape)[first:last]), "INT64")


def read_size(n: Call) -> Any:
    return Value(integers(math.prod(n.shape())), "INT64")


def read_range(n: Call) -> Any:
    start, limit, delta = (n.number(at, what) for at, what in enumerate(("start", "limit", "delta")))
    assert start is not None and limit is not None and delta is not None
    if delta == 0 or not all(map(math.isfinite, (start, limit, delta))):
        raise refuse("a finite range with a step other than 0", f"{start}, {limit}, {delta}", "It has no end.")
    if n.is_counted():
        spend(max(int(-((start - limit) // delta)), 0), integers=True)
        return integers(list(range(int(start), int(limit), int(delta))))
    count = max(math.ceil((limit - start) / delta), 0)
    spend(count)
    dtype = computed_in(n.value(0).type)
    return known((dtype.type(start) + np.arange(count, dtype=dtype) * dtype.type(delta)).astype(dtype))


# ---- conversions


def read_cast(n: Call) -> Value:
    n.attribute("saturate", "INT", 1)
    n.attribute("round_mode", "STRING", "up")
    return converted(n.value(0), type_name(n.integer("to")))


def read_cast_like(n: Call) -> Value:
    n.attribute("saturate", "INT", 1)
    n.attribute("round_mode", "STRING", "up")
    return converted(n.value(0), n.value(1).type)


def converted(value: Value, kind: str) -> Value:
    """A value as another element type."""
    if kind not in STORED:
        raise ArgumentError("NX6", "floats, integers or booleans", kind, "There is no other data.")
    data = value.data
    return Value(_known_as(value, kind) if isinstance(data, Known) else _variable_as(data, value.type, kind), kind)


def _known_as(value: Value, kind: str) -> Known:
    cells = np.asarray(value.data)
    if kind in FLOATS:
        with np.errstate(all="ignore"):  # what is too large is infinite
            return known(cells.astype(float).astype(STORED[kind]).astype(computed_in(kind)))
    if kind == "BOOL":
        return known(np.asarray(cells != 0).astype(int).astype(object))
    if cells.dtype != OBJECT and not np.isfinite(cells).all():
        raise ArgumentError("NX6", "finite numbers to convert to integers", "infinities or NaN", "They have none.")
    spend(cells.size, True)
    whole = np.asarray(np.frompyfunc(int, 1, 1)(cells), object) if cells.size else cells.astype(object)
    return known(whole)


def _variable_as(x: Var, old: str, kind: str) -> Any:
    if kind in FLOATS:
        if computed_in(kind) != x.dtype:
            raise DoubleError
        return x
    if kind == "BOOL":
        return x if old == "BOOL" else sub(1, equal(x, 0))
    return x if old in INTEGERS else mul(sign(x), floor(absolute(x)))


# ---- positions


def arg(f: Callable[[Any], Any]) -> Reader:
    """The place of the greatest cell of f(x), as a float: of equal cells the first, or the last."""

    def read(n: Call) -> Value:
        shape = n.shape()
        axis = check_axis("axis", n.integer("axis", 0), len(shape))
        keep, last = n.flag("keepdims", True), n.flag("select_last_index")
        x, size = f(n.x()), shape[axis]
        most = 2 ** (np.finfo(x.dtype).nmant + 1) if x.dtype != OBJECT else size
        if not 0 < size <= most:
            raise refuse(f"1 to {most} cells along the axis", f"{size}", f"Places are counted in {x.dtype}.")
        places = np.arange(1, size + 1) if last else np.arange(size, 0, -1)
        ranks = known(places.astype(x.dtype).reshape(-1, *(1,) * (len(shape) - axis - 1)))
        best = max_cells(mul(equal(x, max_cells(x, axis, True)), ranks), axis, keep)
        return Value(sub(best, 1) if last else sub(size, best), "INT64")

    return read


def read_one_hot(n: Call) -> Value:
    depth, ends = n.number(1, "a depth"), n.x(2)
    if depth is None or depth != int(depth) or depth < 1 or shape_of(ends) != (2,):
        raise refuse("a depth >= 1 and two values", f"depth {depth}, values {shape_of(ends)}", "Off, and on.")
    shape, kind, size = n.shape(), n.value(2).type, int(depth)
    axis = check_axis("axis", n.integer("axis", -1), len(shape) + 1)
    if isinstance(ends, Var):
        raise ArgumentError("NX5", "values that no input changes", "values that are computed", "Make them constants.")
    spend(size, True)
    rows = reshape(n.x(), (*shape[:axis], 1, *shape[axis:]))
    dtype = rows.dtype if isinstance(rows, Var) else OBJECT if n.is_counted() else rows.dtype
    across = [-1 if a == axis else 1 for a in range(len(shape) + 1)]
    places = np.arange(size).astype(dtype).reshape(across)
    # A place counts from either end.
    hot = add(equal(rows, known(places)), equal(rows, known(places - size)))
    off, on = ends.ravel().tolist()
    if isinstance(hot, Known):
        own = np.asarray(hot).astype(ends.dtype)
        return Value(known(own * (on - off) + off), kind)
    return Value(add(mul(hot, float(on - off)), float(off)), kind)


READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Constant": (read_constant, "a constant"),
    "ConstantOfShape": (read_constant_of_shape, "a constant"),
    "Shape": (read_shape, "a constant"),
    "Size": (read_size, "a constant"),
    "Range": (read_range, "a constant"),
    "Cast": (read_cast, "x itself between floats; floor and sign to integers"),
    "CastLike": (read_cast_like, "x itself between floats; floor and sign to integers"),
    "ArgMax": (arg(lambda x: x), "max, equal; places as floats"),
    "ArgMin": (arg(neg), "max, equal; places as floats"),
    "OneHot": (read_one_hot, "equal"),
}
