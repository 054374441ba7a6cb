"""Losses: one number for a batch.

| rule | says                                                              |
|------|-------------------------------------------------------------------|
| Q1   | labels are integers in 0..classes-1, one per row of logits        |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, error_context, shown
from lunette.number import Array, cells_in
from lunette.op import Case, Kernels, Shapes
from lunette.ops.binary import gate, mul, sub
from lunette.ops.broadcast import sum as sum_cells
from lunette.ops.glue import Glue, check_axis, dtype_name, make, shape_of
from lunette.ops.norm import log_softmax
from lunette.ops.reduce import mean
from lunette.value import value
from lunette.window import Shape, integer

ROWS_OF = ("float32", "float64", "float16", "bfloat16", "object")
"""The dtypes of logits."""


@value
class OneHot(Glue):
    """1 at the label, 0 elsewhere, along a new axis. Labels have no derivative."""

    classes: int = 1
    axis: int = -1
    dtype: str = "object"

    name: ClassVar[str] = "one_hot"
    arrays: ClassVar[tuple[str, ...]] = ("labels",)
    integers: ClassVar[tuple[int, ...]] = (0,)
    exact: ClassVar[bool] = True
    cases: ClassVar[Mapping[str, Case]] = {}

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        classes, axis, dtype = options
        assert shapes[0] is not None
        if integer("classes", classes) < 0:
            raise ArgumentError("Q1", "classes >= 0", f"classes={classes}", "As many as logits in a row.")
        if dtype not in ROWS_OF:
            hint = "Pass logits.astype(np.float64), or object for exact numbers."
            raise DTypeError("D1", f"a dtype among {', '.join(ROWS_OF)}", f"dtype={shown(dtype)}", hint)
        return cls(integer("classes", classes), check_axis("axis", axis, len(shapes[0]) + 1), dtype)

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return (*shapes[0][: self.axis], self.classes, *shapes[0][self.axis :])

    def check(self, *arrays: Array | None) -> None:
        (labels,) = arrays
        assert labels is not None
        if labels.size and not 0 <= labels.min() <= labels.max() < self.classes:
            raise ArgumentError(
                "Q1",
                f"labels in 0..{self.classes - 1}",
                f"labels from {labels.min()} to {labels.max()}",
                "There are as many classes as logits in a row.",
            )

    def spec(self, *arrays: Array | None) -> Array:
        (labels,) = arrays
        assert labels is not None
        y: Array = np.full(self.shape(labels.shape), 0, object)
        for cell in cells_in(labels.shape):
            y[(*cell[: self.axis], int(labels[cell]), *cell[self.axis :])] = 1
        return y

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        return self.classes, len(sizes) + self.axis, self.dtype

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return None

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return None

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x = shapes[0] or ()
        return Kernels(core.one_hot(dtype.char, prod(x[: self.axis]), self.classes, prod(x[self.axis :])))


def one_hot(labels: Any, classes: int, axis: int = -1, dtype: Any = "object") -> Any:
    """1 at each label, 0 elsewhere, along a new axis."""
    return make(OneHot, (labels,), classes, axis, dtype_name(dtype))


def cross_entropy(logits: Any, labels: Any, axis: int = 1) -> Any:
    """The mean of -log softmax(logits) at the labels, integers whose shape is that of logits without `axis`.

    >>> import numpy as np, lunette as ln
    >>> ln.cross_entropy(np.zeros((4, 8)), np.array([0, 1, 2, 3]))  # log(8)
    array(2.07944154)
    """
    with error_context("cross_entropy"):
        sizes, given = shape_of(logits), shape_of(labels)
        at = check_axis("axis", axis, len(sizes))
    if given != (*sizes[:at], *sizes[at + 1 :]):
        raise ShapeError(
            "Q1",
            f"labels of shape {(*sizes[:at], *sizes[at + 1 :])}",
            f"shape {given}",
            "One label for each row of logits.",
            who="cross_entropy",
        )
    hot = one_hot(labels, sizes[at], at, getattr(logits, "dtype", "object"))
    # Only the cells at the labels count: what is beside them may be infinite, and 0 * infinity is no number.
    return sub(0, mean(sum_cells(gate(hot, log_softmax(logits, at)), at)))


def mse(x: Any, y: Any) -> Any:
    """The mean of (x - y) squared.

    >>> import lunette as ln
    >>> ln.mse([1, 2], [3, 1]).tolist()
    Fraction(5, 2)
    """
    try:
        gap = sub(x, y)
    except LunetteError as error:  # it was asked for the error, not for a difference
        error.who = "mse"
        raise
    return mean(mul(gap, gap))
