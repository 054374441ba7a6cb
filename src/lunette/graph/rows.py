"""Rows: one value for each entry of an axis in front, which operators do not see.

A function of lunette's operators that gets a `Rows` computes all rows at once: each operator is applied to arrays with
one more axis. Operators without a window say what their options become (`Glue.leading`); window operators take any
batch axes. What has no such form, a convolution with weights that differ by row, say, goes row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lunette.graph.value import Value, levels
from lunette.number import OBJECT
from lunette.op import Op, apply, resolve
from lunette.ops.broadcast import broadcast_to
from lunette.ops.concat import concat
from lunette.ops.glue import Glue, shape_of
from lunette.ops.layout import reshape
from lunette.ops.pad import slice as cut
from lunette.window import Shape


class Rows(Value):
    """A value per row; `value` has them along its first axis."""

    __slots__ = ("level", "value")

    def __init__(self, value: Any, level: int) -> None:
        self.value, self.level = value, level

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The shape of one row."""
        return shape_of(self.value)[1:]

    @property
    def dtype(self) -> Any:
        """The dtype of all."""
        return getattr(self.value, "dtype", OBJECT)

    def __repr__(self) -> str:
        return f"Rows({shape_of(self.value)[0]} of {self.dtype}{list(self.shape)})"

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        rowed = [type(o) is Rows and o.level == self.level for o in operands]
        values = [o.value if has else o for o, has in zip(operands, rowed, strict=True)]
        y = _apply(kind, values, rowed, shape_of(self.value)[0], arithmetic, options)
        return tuple(Rows(v, self.level) for v in y) if type(y) is tuple else Rows(y, self.level)


def by_rows(f: Callable[..., Any], *values: Any) -> Any:
    """`f` of values, which gets a `Rows` for each that is not None, and gives one, or None."""
    level = next(levels)
    y = f(*(None if v is None else Rows(v, level) for v in values))
    return y.value if type(y) is Rows else y


def _apply(
    kind: type[Op], values: list[Any], rowed: list[bool], rows: int, arithmetic: str, options: tuple[Any, ...]
) -> Any:
    shapes = [None if v is None else shape_of(v)[has:] for v, has in zip(values, rowed, strict=True)]
    resolved = resolve(kind, shapes, 2, options)
    if isinstance(resolved.op, Glue):
        y = resolved.op.by_row(values, rowed, rows, arithmetic)
        return _with_axis_in_front(resolved.op, values, rowed, rows, arithmetic) if y is None else y
    assert resolved.d is not None
    options = kind.told(resolved.d, options)
    if kind.summed or not all(p in kind.batched for p, has in enumerate(rowed) if has):
        return _one_by_one(kind, values, rowed, rows, arithmetic, options)
    for p in kind.batched:
        if not rowed[p] and values[p] is not None:
            values[p] = _for_all(values[p], rows, not kind.reads(p))
    return apply(kind, values, arithmetic, *options)


def _with_axis_in_front(op: Glue, values: list[Any], rowed: list[bool], rows: int, arithmetic: str) -> Any:
    shapes = [shape_of(v)[has:] for v, has in zip(values, rowed, strict=True)]
    most = max(len(s) for s in (*shapes, op.shape(*shapes)))
    for at, (v, s, has) in enumerate(zip(values, shapes, rowed, strict=True)):
        if not op.aligned and not has:
            values[at] = broadcast_to(v, (rows, *s))
        elif op.aligned and has and len(s) < most:
            values[at] = reshape(v, (rows, *(1,) * (most - len(s)), *s))
    return apply(type(op), values, arithmetic, *op.leading((rows,)))


def _for_all(value: Any, rows: int, only_shape: bool) -> Any:
    """A value for every row; one that nothing reads takes no time, and no memory either."""
    if only_shape and isinstance(value, np.ndarray) and value.dtype != OBJECT:
        return np.empty((rows, *value.shape), value.dtype)
    return broadcast_to(value, (rows, *shape_of(value)))


def _one_by_one(
    kind: type[Op], values: list[Any], rowed: list[bool], rows: int, arithmetic: str, options: tuple[Any, ...]
) -> Any:
    results = []
    for row in range(rows):
        own = [_row(v, row) if has else v for v, has in zip(values, rowed, strict=True)]
        y = apply(kind, own, arithmetic, *options)
        results.append([reshape(v, (1, *shape_of(v))) for v in (y if type(y) is tuple else (y,))])
    joined = tuple(concat(part) for part in zip(*results, strict=True))
    return joined if len(joined) > 1 else joined[0]


def _row(value: Any, row: int) -> Any:
    return reshape(cut(value, (row,), (row + 1,)), shape_of(value)[1:])
