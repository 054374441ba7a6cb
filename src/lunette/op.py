"""What every operator is: parameters as fields, rules as methods, no state.

A public function hands its operands and its options to `apply`. What happens then depends on the operands: arrays are
computed (lunette.array), anything with a `__lunette__` method decides for itself. A `Placeholder` gets the request
back: output_shape, the derivatives, explain and the specification are made that way, so that each operator has one
signature and one door.

| rule | says                                                              |
|------|-------------------------------------------------------------------|
| O1   | the operator is one of lunette's, by name or as the function      |
| O2   | the arguments are those that the operator has                     |
| O3   | primals and tangents are tuples of the operator's arrays          |
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, speaking
from lunette.number import Array
from lunette.window import Shape

Arrays = Sequence[Array | None]
Shapes = Sequence[Shape | None]


@dataclass(frozen=True, slots=True)
class Case:
    """A named problem. Tests, benchmarks, conformance runs and pictures all read these."""

    shapes: tuple[Shape, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def case(*shapes: Shape, **options: Any) -> Case:
    """Shapes of the arrays without batch axes, and the options."""
    return Case(shapes, options)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled functions, ready for one geometry. Arrays are dense, with any batch axes; results are filled in."""

    forward: Callable[[Sequence[Any], Array, Array | None], None] | None = None
    """(arrays, y, index or None)"""
    jvp: Callable[[Sequence[Any], Sequence[Any], Array], None] | None = None
    """(arrays, tangents, y)"""
    vjp: Callable[[Sequence[Any], Array, Sequence[Any]], None] | None = None
    """(arrays, g, one result per array)"""


class Op(ABC):
    """One operator on one sample: x is (channels, *space), or what the room says.

    Declare what is true of it (`linear_in`, `monotone`); laws test the declaration.
    """

    name: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("x",)
    """The names of the array arguments, in order; only the first has batch axes."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Those of them that may be given as plain numbers."""
    needs: ClassVar[str] = "ring"
    """What a number type must offer: "ring", "division", "order" or "exp" (see lunette.number)."""
    linear_in: ClassVar[tuple[int, ...]] = ()
    """The operator is additive and homogeneous in each of these arrays alone, the others held."""
    monotone: ClassVar[bool] = False
    """Greater cells of x never make a smaller output."""
    cases: ClassVar[Mapping[str, Case]]

    @classmethod
    @abstractmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int:
        """The number d of spatial axes; `lead` axes are in front of them unless the options say otherwise."""

    @classmethod
    @abstractmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        """The door: the user's options, checked and normalised for these shapes (x without batch axes)."""

    @abstractmethod
    def shape(self, *shapes: Shape | None) -> Shape:
        """The shape of the result for one sample."""

    @abstractmethod
    def spec(self, *arrays: Array | None) -> Array:
        """The meaning, on arrays of any number type."""

    @abstractmethod
    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        """The derivative in the direction of the tangents; None is a zero tangent."""

    @abstractmethod
    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        """The transpose of the derivative applied to g, one entry per primal."""

    def kernels(self, batch: int, shapes: Shapes) -> Kernels:
        """The compiled form for that many samples of these shapes; what is missing runs the specification."""
        return Kernels()

    def cast(self, dtype: np.dtype[Any]) -> Self:
        """The operator with its numeric options rounded to a dtype, as x's cells are."""
        return self


# ---- one door for every kind of operand


@dataclass(frozen=True, slots=True)
class Bound:
    """An operator with the shapes it was bound to."""

    op: Op
    d: int
    batch: Shape
    shapes: tuple[Shape | None, ...]
    """The shapes of the arrays, x without its batch axes."""
    out: Shape
    """The shape of the result, batch axes included."""
    kernels: Kernels = field(default=Kernels(), compare=False)


def bind(kind: type[Op], shapes: Shapes, lead: int, options: Sequence[Any]) -> Bound:
    """Check everything that can be checked without data."""
    with speaking(kind.name):
        d = kind.rank(shapes, lead, *options)
    with speaking(kind.name, d):
        x = shapes[0]
        assert x is not None
        if len(x) < d + 1:
            raise ShapeError(
                "W3",
                f"x with a channel axis and {d} spatial axes",
                f"x.shape={x}",
                "x is (*batch, channels, *space); spatial= says how many axes are spatial.",
            )
        batch = x[: len(x) - d - 1]
        sample = (x[len(batch) :], *shapes[1:])
        op = kind.of(sample, *options)
        return Bound(op, d, batch, sample, (*batch, *op.shape(*sample)))


@dataclass(frozen=True, slots=True)
class Request:
    """What a public function was asked to do, with its options in the order of `Op.of`."""

    kind: type[Op]
    operands: tuple[Any, ...]
    arithmetic: str
    options: tuple[Any, ...]


class Placeholder:
    """Stands in for x: the function it is given to returns the request instead of computing."""

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> Request:
        return Request(kind, tuple(operands), arithmetic, tuple(options))


Handler = Callable[[type[Op], Sequence[Any], str, Sequence[Any]], Any]
_on_arrays: list[Handler] = []


def on_arrays(handler: Handler) -> Handler:
    """Register what happens to operands that have no __lunette__ of their own."""
    _on_arrays[:] = [handler]
    return handler


def apply(kind: type[Op], operands: Sequence[Any], arithmetic: str, *options: Any) -> Any:
    """What every public function ends in."""
    for a in operands:
        if (handler := getattr(type(a), "__lunette__", None)) is not None:
            return handler(a, kind, operands, arithmetic, options)
    return _on_arrays[0](kind, operands, arithmetic, options)


def request(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Request:
    """The request that this call makes, x being its first argument."""
    try:
        rest = dict(options)
        x, *others = arguments or (rest.pop("x"),)
        asked: Request = function(Placeholder(), *others, **rest)
    except (TypeError, KeyError) as error:
        if isinstance(error, LunetteError):
            raise
        wanted = ", ".join(inspect.signature(function).parameters)
        raise ArgumentError("O2", f"arguments ({wanted})", str(error), who=function.__name__) from None
    return replace(asked, operands=(x, *asked.operands[1:]))


def request_at(function: Callable[..., Any], kind: type[Op], primals: Any, options: Mapping[str, Any]) -> Request:
    """The request whose derivative is asked for. Array arguments that are not primals may be among the options."""
    with speaking(kind.name):
        _check_tuple(primals, "primals")
        least = sum(n not in (*kind.scalars, "b") for n in kind.arrays)
        if not least <= len(primals) <= len(kind.arrays):
            raise ArgumentError("O3", f"primals ({', '.join(kind.arrays)})", f"{len(primals)} of them")
    return request(function, (), {**dict(zip(kind.arrays, primals, strict=False)), **options})


def check_tangents(tangents: Any, primals: Sequence[Any]) -> None:
    """Rule O3."""
    _check_tuple(tangents, "tangents")
    if len(tangents) != len(primals):
        raise ArgumentError("O3", f"{len(primals)} tangents, one per primal", f"{len(tangents)}")


def _check_tuple(values: Any, name: str) -> None:
    if not isinstance(values, tuple | list):
        raise DTypeError("O3", f"{name} as a tuple of arrays", f"{type(values).__name__}", f"Write ({name[:-1]},).")
