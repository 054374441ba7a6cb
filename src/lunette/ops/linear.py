"""Matrix products.

    z[.., i, j] = sum over k of x[.., i, k] * y[.., k, j]

| rule | says                                                                  |
|------|-----------------------------------------------------------------------|
| P1   | the inner sizes of a product agree                                    |
| P2   | w of a linear layer is (out, in), and b has one entry per out         |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ShapeError, error_context
from lunette.number import Array, cells_in, total, zero_of
from lunette.op import Case, Kernels, Shapes, apply, case
from lunette.ops.binary import add, mul
from lunette.ops.broadcast import broadcast_to
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.glue import Glue, broadcast, make, shape_of
from lunette.ops.layout import reshape, transpose
from lunette.value import value
from lunette.window import Shape


@value
class MatMul(Glue):
    """A product of matrices with equal batch axes, each of which may be read transposed."""

    turn_x: bool = False
    turn_y: bool = False

    name: ClassVar[str] = "matmul"
    arrays: ClassVar[tuple[str, ...]] = ("x", "y")
    linear_in: ClassVar[tuple[int, ...]] = (0, 1)
    cases: ClassVar[Mapping[str, Case]] = {
        "plain": case((2, 3), (3, 2)),
        "turned_right": case((2, 3), (4, 3), turn_y=True),
        "turned_left": case((3, 2), (3, 2), turn_x=True),
        "batch": case((2, 1, 2), (2, 2, 1)),
        "no_terms": case((2, 0), (0, 2)),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, y = shapes
        assert x is not None and y is not None
        op = cls(bool(options[0]), bool(options[1]))
        if len(x) < 2 or len(x) != len(y) or x[:-2] != y[:-2] or op.sizes(x, y)[2] != op.sizes(x, y)[3]:
            turned = "".join(f", {n} turned" for n, t in (("x", op.turn_x), ("y", op.turn_y)) if t)
            need = "equal inner sizes: (.., m, k) and (.., k, n)"
            raise ShapeError("P1", need, f"{x} and {y}{turned}", "Transpose or reshape one of them.")
        return op

    def sizes(self, x: Shape, y: Shape) -> tuple[int, int, int, int]:
        """(m, n, k as x has it, k as y has it)."""
        (m, k), (q, n) = (x[:-3:-1] if self.turn_x else x[-2:]), (y[:-3:-1] if self.turn_y else y[-2:])
        return m, n, k, q

    def shape(self, *shapes: Shape | None) -> Shape:
        x, y = shapes
        assert x is not None and y is not None
        return (*x[:-2], *self.sizes(x, y)[:2])

    def spec(self, *arrays: Array | None) -> Array:
        x, y = arrays
        assert x is not None and y is not None
        z: Array = np.empty(self.shape(x.shape, y.shape), object)
        rows, columns = (x.swapaxes(-1, -2) if self.turn_x else x), (y if self.turn_y else y.swapaxes(-1, -2))
        for *at, i, j in cells_in(z.shape):
            terms = [a * b for a, b in zip(rows[(*at, i)], columns[(*at, j)], strict=True)]
            z[(*at, i, j)] = total(terms, zero_of(x, y))
        return z

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        if not all(moving):
            return None

        def turned(v: Any, turn: bool) -> Any:
            axes = list(range(len(shape_of(v))))
            return transpose(v, (*axes[:-2], axes[-1], axes[-2])) if turn else v

        # z[.., i, j] = sum over k of x[.., i, k] * y[.., j, k], cell by cell
        x, y = turned(operands[0], options[0]), turned(operands[1], not options[1])
        left, right = shape_of(x), shape_of(y)
        products = mul(reshape(x, (*left[:-1], 1, left[-1])), reshape(y, (*right[:-2], 1, *right[-2:])))
        return sum_cells(products, -1)

    def by_row(self, operands: Sequence[Any], rowed: Sequence[bool], rows: int, arithmetic: str) -> Any:
        (x, y), shapes = operands, [shape_of(v) for v in operands]
        if rowed != [True, False] or self.turn_x or len(shapes[1]) > 2:
            return None
        m, k = shapes[0][1:]  # one matrix for all rows: one long product
        long = apply(MatMul, (reshape(x, (rows * m, k)), y), arithmetic, *self.options())
        return reshape(long, (rows, m, shape_of(long)[1]))

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        (a, b), (s, t) = primals, tangents
        parts = [make(cls, (s, b), *options)] if s is not None else []
        parts += [make(cls, (a, t), *options)] if t is not None else []
        return parts[0] if len(parts) == 1 else add(parts[0], parts[1])

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        (a, b), (turn_a, turn_b) = primals, options
        if wrt == 0:
            return make(cls, (b, g), turn_b, True) if turn_a else make(cls, (g, b), False, not turn_b)
        return make(cls, (g, a), True, turn_a) if turn_b else make(cls, (a, g), not turn_a, False)

    def terms(self, shapes: Shapes) -> int:
        x, y = shapes
        assert x is not None and y is not None
        return self.sizes(x, y)[2]

    def flops(self, shapes: Shapes, batch: int) -> float:
        return 2.0 * prod(self.shape(*shapes)) * self.terms(shapes)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, y = shapes
        assert x is not None and y is not None
        m, n, k, _ = self.sizes(x, y)
        product = core.matmul(dtype.char, prod(x[:-2]), m, n, k, self.turn_x, self.turn_y, False)
        return Kernels(product.taking([0, 1, -1, 2], 3))


def matmul(x: Any, y: Any) -> Any:
    """The matrix product, as NumPy's `@`: over the last two axes, with batch axes broadcast.

    >>> import lunette as ln
    >>> ln.matmul([[1, 2]], [[3], [4]]).tolist()
    [[11]]
    """
    with error_context("matmul"):
        p, q = shape_of(x), shape_of(y)
    if not p or not q:
        raise ShapeError("P1", "arrays with axes", f"{p} and {q}", "Multiply numbers with mul.", who="matmul")
    a = reshape(x, (1, *p)) if len(p) == 1 else x
    b = reshape(y, (*q, 1)) if len(q) == 1 else y
    if shape_of(a)[:-2] != shape_of(b)[:-2]:
        if len(q) <= 2 and len(p) > 2:  # one matrix for all: one long product
            rows = reshape(a, (prod(p[:-1]), p[-1]))
            return reshape(make(MatMul, (rows, b), False, False), (*p[:-1], *((q[-1],) if len(q) > 1 else ())))
        with error_context("matmul"):
            batch = broadcast(shape_of(a)[:-2], shape_of(b)[:-2])
        a, b = (broadcast_to(v, (*batch, *shape_of(v)[-2:])) for v in (a, b))
    z = make(MatMul, (a, b), False, False)
    out = shape_of(z)
    wanted = (*out[:-2], *(out[-2:-1] if len(p) > 1 else ()), *(out[-1:] if len(q) > 1 else ()))
    return z if wanted == out else reshape(z, wanted)


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """`x @ w.T + b`: x is (.., in), w (out, in), b (out,).

    >>> import lunette as ln
    >>> ln.linear([[1, 2]], [[3, 4], [5, 6]], [100, 200]).tolist()
    [[111, 217]]
    """
    with error_context("linear"):
        p, q, bias = shape_of(x), shape_of(w), None if b is None else shape_of(b)
    if len(q) != 2 or not p or p[-1] != q[1]:
        turned = len(q) == 2 and p[-1:] == q[:1]
        hint = "Transpose w." if turned else f"With this x, w has shape (out, {p[-1]})." if p else "x has no axes."
        raise ShapeError("P2", "x of shape (.., in) and w of shape (out, in)", f"{p} and {q}", hint, who="linear")
    if bias is not None and bias != q[:1]:
        got = f"b.shape={bias}"
        raise ShapeError("P2", f"b.shape == ({q[0]},)", got, "Leave b out for a bias of zero.", who="linear")
    rows = x if len(p) == 2 else reshape(x, (prod(p[:-1]), p[-1]))
    y = make(MatMul, (rows, w), False, True)
    y = y if b is None else add(y, b)
    return y if len(p) == 2 else reshape(y, (*p[:-1], q[0]))
