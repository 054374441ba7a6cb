"""The derivative of a max pool in two steps: who wins, while x is at hand, and later who gets what.

`winners_of(kind)` takes x and gives, for each window, the number of its first winner among the cells that the window
reads, in row-major order. `vjp_from(kind)` takes x, those numbers and a cotangent; of x it needs the shape only. They
stand in compiled programs, in the place of VJPs of which the value is computed, too (lunette.graph.recording).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette.number import Array, each, place, zero_of
from lunette.op import Kernels, Shapes, check_shape
from lunette.ops.derivative import Derivative
from lunette.ops.max_pool import MaxPool
from lunette.value import value
from lunette.window import Shape


@value
class FirstWinners(Derivative):
    """The number of the first winner of every window."""

    base: ClassVar[type[MaxPool]]
    rules: ClassVar[Mapping[str, str]] = {**Derivative.rules, "spec": "vjp", "kernels": "kernels"}

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        return cls(cls.base.of(shapes, *options))

    def shape(self, *shapes: Shape | None) -> Shape:
        return self.op.shape(*shapes)

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None and isinstance(self.op, MaxPool)
        return self.op.fold(lambda view, cells: place(cells), x)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        record = self.op.kernels(dtype, batch, shapes).record
        return Kernels(None if record is None else record.forward.taking([0, -1, 1], 2))

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return None  # integers have no derivative

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return None


@value
class VjpFromWinners(Derivative):
    """The VJP where the first winners are known: x, their numbers, the cotangent."""

    base: ClassVar[type[MaxPool]]
    rules: ClassVar[Mapping[str, str]] = {**Derivative.rules, "spec": "vjp", "kernels": "kernels"}

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x, numbers, g = shapes
        op = cls.base.of((x,), *options)
        assert numbers is not None and g is not None
        check_shape("the winners", op.shape(x), numbers)
        check_shape("the cotangent", op.shape(x), g)
        return cls(op)

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return shapes[0]

    def spec(self, *arrays: Array | None) -> Array:
        x, numbers, g = arrays
        assert x is not None and numbers is not None and g is not None and isinstance(self.op, MaxPool)
        rows = x.shape[0], prod(x.shape[1:])
        dx: Array = np.full(rows, None, object)
        won, given = (a.reshape(x.shape[0], -1) if x.shape[0] else a for a in (numbers, g))
        for at, view in enumerate(self.op.views(x.shape[1:]) if x.shape[0] else ()):
            for c in range(x.shape[0]):
                i = view.places[won[c, at]]
                dx[c, i] = given[c, at] if dx[c, i] is None else dx[c, i] + given[c, at]
        zero = zero_of(g)
        return each(lambda v: zero if v is None else v, dx).reshape(x.shape)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        record = self.op.kernels(dtype, batch, shapes[:1]).record
        return Kernels(None if record is None else record.vjp.taking([1, 2, 3], 4))

    @classmethod
    def reads(cls, at: int) -> bool:
        return at > 0


@lru_cache
def winners_of(kind: type[MaxPool]) -> type[FirstWinners]:
    """The operator that gives the first winners of another."""
    facts = {"base": kind, "name": f"{kind.name}_winners", "arrays": ("x",)}
    return type(f"{kind.__name__}Winners", (FirstWinners,), {**facts, "__slots__": ()})


@lru_cache
def vjp_from(kind: type[MaxPool]) -> type[VjpFromWinners]:
    """The operator that is the VJP of another where its winners are known."""
    facts = {
        "base": kind,
        "name": f"{kind.name}_vjp_from_winners",
        "arrays": ("x", "the winners", "the cotangent"),
        "batched": (0, 1, 2),
        "integers": (1,),
    }
    return type(f"{kind.__name__}VjpFromWinners", (VjpFromWinners,), {**facts, "__slots__": ()})
