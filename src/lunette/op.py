"""What every operator is: parameters as fields, rules as methods, no state.

A public function hands its operands and its options to `apply`. What happens then depends on the operands: arrays are
computed (lunette.array), anything with a `__lunette__` method decides for itself. A `Placeholder` gets the request
back: output_shape, the derivatives, explain and the specification are made that way, so that each operator has one
signature and one door.

| rule | says                                                              |
|------|-------------------------------------------------------------------|
| O1   | the operator is one of lunette's, by name or as the function      |
| O2   | arguments are those the operator has, and required ones are given |
| O3   | primals and tangents are tuples of the operator's arrays          |
| O4   | a shape is a tuple of at most 64 integers >= 0                    |
| O5   | the derivative of a derivative is made of other operators          |

Rule O6, that an operator has the rule that is asked for, is in lunette.rules.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import numpy as np

from lunette import relaxing
from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, error_context, misspelt, shown
from lunette.number import Array, Interval
from lunette.rules import Interpretation, missing, tells, untold
from lunette.value import Value
from lunette.window import Shape, is_sequence

Arrays = Sequence[Array | None]
Shapes = Sequence[Shape | None]
F = TypeVar("F", bound=Callable[..., Any])
ABSENT: Any = object()
"""In the place of an argument that a function cannot do without."""


@dataclass(frozen=True, slots=True)
class Case:
    """A named problem. Tests, benchmarks, conformance runs and pictures all read these."""

    shapes: tuple[Shape, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def case(*shapes: Shape, **options: Any) -> Case:
    """Shapes of the arrays without batch axes, and the options."""
    return Case(shapes, options)


@dataclass(frozen=True, slots=True)
class Record:
    """Kernels that keep a record beside the value, cell by cell, and derivatives made of it that never read the arrays.

    The record of an operator that selects is the number of every winner among the cells of its window.
    """

    dtype: np.dtype[Any]
    forward: Any
    """(*arrays, y or None, record)"""
    jvp: Any
    """(record, *tangents, y)"""
    vjp: Any
    """(record, g, the cotangent of the first array)"""
    pays: bool = True
    """Whether a forward and a backward pass are faster with it than without."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled functions, ready for one geometry and dtype; what is missing runs the specification.

    Arrays are dense, with any batch axes; results are filled in.
    """

    forward: Callable[..., None] | None = None
    """(*arrays, y), and for operators with indices (*arrays, y, index or None)"""
    jvp: Callable[..., None] | None = None
    """(*arrays, *tangents, y)"""
    vjp: tuple[Callable[..., None], ...] = ()
    """One per array: (*arrays, g, the cotangent of that array)"""
    record: Record | None = None
    """Of operators whose derivatives can do with less than their arrays."""


# ---- the interpretations that rooms tell by methods; lunette.ops.derivative adds what follows for derivatives


SPEC = Interpretation("spec", "its meaning on any number type")
KERNEL = Interpretation("kernel", "compiled code")
JVP = Interpretation("jvp", "its derivative")
VJP = Interpretation("vjp", "its transposed derivative")
SPEC.way("own rule", lambda kind: kind.is_own() and kind.tells("spec"))
SPEC.way("rule of {base}", lambda kind: kind.tells("spec"))
KERNEL.way("own rule", lambda kind: kind.is_own() and kind.tells("kernels"))
KERNEL.way("rule of {base}", lambda kind: kind.tells("kernels"))
JVP.way("own rule", lambda kind: kind.is_own() and kind.tells("push"))
VJP.way("own rule", lambda kind: kind.is_own() and kind.tells("pull"))


class Op(Value, ABC):
    """One operator on one sample: x is (channels, *space), or what the room says.

    Declare what is true of it (`linear_in`, `monotone`); laws test the declaration, and rules that follow from it are
    derived. A method marked `untold` is what holds where a room tells nothing.
    """

    name: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("x",)
    """The names of the array arguments, in order."""
    batched: ClassVar[tuple[int, ...]] = (0,)
    """Those of them that have batch axes, by number; the result has them too, unless it is `summed`."""
    summed: ClassVar[bool] = False
    """The result is the sum over the samples of a batch."""
    optional: ClassVar[bool] = True
    """Those of them but the first may be None; the operator's rules say which."""
    variadic: ClassVar[bool] = False
    """It takes any number of arrays, all of one kind; `arrays` names two of them."""
    integers: ClassVar[tuple[int, ...]] = ()
    """Those of them that hold whole numbers, which no derivative and no rounding is about."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Those of them that may be given as plain numbers."""
    encloses_numbers: ClassVar[bool] = False
    """Beside boxes, a plain number stands for itself, and is enclosed; else it is an option, in x's dtype."""
    dtype: str | None = None
    """The dtype of the result, where it is not that of the arrays."""
    has_indices: ClassVar[bool] = False
    """It can tell the places of winners (`indices`): its kernel takes one more array for them, or None."""
    return_indices: bool = False
    """The result is a pair: values, and the places of winners."""

    needs: ClassVar[str] = "ring"
    """What a number type must offer: "ring", "division", "order" or "exp" (see lunette.number)."""
    positive: ClassVar[bool] = False
    """It is defined for positive numbers only."""
    linear_in: ClassVar[tuple[int, ...]] = ()
    """The operator is additive and homogeneous in each of these arrays alone, the others held."""
    affine_in: ClassVar[tuple[int, ...]] = ()
    """The operator adds each of these arrays to its result."""
    jointly_linear: ClassVar[tuple[int, ...]] = ()
    """The result, less what it is at zero, is additive and homogeneous in these arrays together, the others held.

    So the transposed derivative is all of it that linear bounds need. Of a variadic operator: in all of its arrays.
    """
    monotone: ClassVar[bool] = False
    """Greater cells of x never make a smaller output."""
    selects: ClassVar[bool] = False
    """The derivative is the same wherever the same cells win."""
    planar: ClassVar[bool] = False
    """Each plane of the result depends on one plane of each array with batch axes: planes are windowed by tables."""
    exact: ClassVar[bool] = False
    """Kernels round nothing: every cell of the result is a cell of an array, or a constant."""
    rounds_once: ClassVar[bool] = False
    """Kernels round each cell at most once, the exact result: they give the nearest float."""
    derivative_kernels: ClassVar[bool] = False
    """`kernels` gives those of both derivatives, too."""
    cases: ClassVar[Mapping[str, Case]]

    # ---- what it is made of

    @classmethod
    def origin_of(cls) -> type[Op]:
        """The operator that this one is a derivative of, or itself."""
        return cls

    @property
    def origin(self) -> Op:
        """The same for an operator with its parameters."""
        return self

    @classmethod
    def is_own(cls) -> bool:
        """Whether it is no derivative of another."""
        return cls.origin_of() is cls

    @classmethod
    def tells(cls, rule: str) -> bool:
        """Whether the room tells a rule, by a method of its own."""
        return tells(cls, rule)

    @classmethod
    def reads(cls, at: int) -> bool:
        """Whether the result depends on the values of array number `at`, not only on its shape."""
        return True

    # ---- shape

    @classmethod
    @abstractmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int | None:
        """The number d of spatial axes; `lead` axes are in front of them unless the options say otherwise.

        None: the operator has no window, and takes its arrays whole.
        """

    @classmethod
    def told(cls, d: int, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """The options, from which d is known whatever axes x has: what a graph keeps."""
        return options

    @classmethod
    @abstractmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        """The door: the user's options, checked and normalised for these shapes (x without batch axes)."""

    @abstractmethod
    def shape(self, *shapes: Shape | None) -> Shape:
        """The shape of the result for one sample."""

    # ---- meaning

    @untold
    def spec(self, *arrays: Array | None) -> Array:
        """The meaning, on arrays of any number type."""
        raise missing(SPEC, type(self))

    @untold
    def indices(self, x: Array) -> Array:
        """The place of the first winner of every cell of the result, for an operator that has them."""
        raise missing(SPEC, type(self))

    def is_rational(self) -> bool:
        """Whether rationals have a rational result."""
        return self.needs != "exp"

    # ---- derivatives

    @untold
    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        """The derivative of one sample in the direction of the tangents; None is a zero tangent."""
        raise cannot_derive(self)

    @untold
    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        """The transpose of the derivative of one sample applied to g, one entry per primal."""
        raise cannot_derive(self)

    # Derivatives on values of any kind (arrays, variables of a graph, values that are being differentiated themselves),
    # made of lunette's own operators. None is zero.

    @classmethod
    @untold
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        """The tangent of y, given those of the primals, not all of which are None."""
        raise missing(JVP, cls)

    @classmethod
    @untold
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        """The cotangent of primal number `wrt`, given that of y."""
        raise missing(VJP, cls)

    # ---- bounds: the specification on intervals, unless what is declared, or one of these, allows better

    @untold
    def terms(self, shapes: Shapes) -> int | None:
        """The most terms that a cell of the result adds up, for an operator that is a sum; None for any other.

        Terms are products of one cell of each array that it is linear in (of a single array: of equal sign), and the
        cells that it adds.
        """
        return None

    @classmethod
    def factors(cls) -> tuple[int, ...]:
        """The arrays of which each term is a product of cells, one of each."""
        return cls.linear_in

    def without_gaps(self, shapes: Shapes) -> tuple[tuple[slice, ...], Self] | None:
        """The cells of x's space that it reads, and the operator on these alone; None: it reads all, or mixes them."""
        return None

    def divisor_roundings(self, shapes: Shapes, dtype: np.dtype[Any]) -> int:
        """How often a number that terms are divided by is rounded: once if the dtype does not have it."""
        return 0

    @untold
    def bounds(self, *boxes: Interval) -> Interval | None:
        """The result for every point of boxes of float arrays, outward rounded; None has the specification do it."""
        return None

    @untold
    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation | None:
        """Lines below and above the result over boxes of float64 arrays, batch axes and all.

        `moving` tells which of them vary; the others are constants, enclosed. None: the box of the result has to do.
        Operators that are linear in what varies need none.
        """
        return None

    @classmethod
    @untold
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        """The same result made of operators that have lines, or are linear; None: this one has, or there is no way."""
        return None

    # ---- kernels

    @untold
    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        """The compiled form for that many samples of these shapes."""
        return Kernels()

    def is_nearest(self) -> bool:
        """Whether kernels give the float that is nearest to the exact result."""
        return self.exact or self.rounds_once

    def flops(self, shapes: Shapes, batch: int) -> float:
        """Multiplications and additions for that many samples, roughly: what one compares with the machine's peak."""
        return float(batch * prod(self.shape(*shapes)))

    def in_place(self, shapes: Shapes) -> tuple[int, ...]:
        """The arrays whose memory the result may take while it is computed."""
        return ()

    def cast(self, dtype: np.dtype[Any]) -> Self:
        """The operator with its numeric options rounded to a dtype, as x's cells are."""
        return self

    @untold
    def check(self, *arrays: Array | None) -> None:
        """The rules that values must keep, not only shapes; before anything is computed."""
        return


def cannot_derive(op: Op) -> ArgumentError:
    """Rule O5."""
    need = "an operator whose derivative is defined by itself"
    return ArgumentError("O5", need, op.name, "ln.jvp and ln.vjp differentiate derivatives, too.", who=op.name)


# ---- one door for every kind of operand


@dataclass(frozen=True, slots=True)
class ResolvedOp:
    """An operator with the shapes it was bound to."""

    op: Op
    d: int | None
    batch: Shape
    shapes: tuple[Shape | None, ...]
    """The shapes of the arrays, those with batch axes without them."""
    out: Shape
    """The shape of the result, batch axes included."""
    kernels: Kernels = field(default=Kernels(), compare=False)


def resolve(kind: type[Op], shapes: Shapes, lead: int, options: Sequence[Any]) -> ResolvedOp:
    """Check everything that can be checked without data."""
    SPEC.require(kind)
    with error_context(kind.name):
        try:
            d = kind.rank(shapes, lead, *options)
        except ShapeError as error:
            if error.rule == "W13":
                error.got += _readings(kind, shapes, lead, options)
            raise
    with error_context(kind.name, d):
        if d is None:
            op = kind.of(shapes, *options)
            return ResolvedOp(op, d, (), tuple(shapes), op.shape(*shapes))
        x = shapes[0]
        assert x is not None
        if len(x) < d + 1:
            raise ShapeError(
                "W3",
                f"x with a channel axis and {d} spatial axes",
                f"x.shape={x}",
                "x is (*batch, channels, *space); the kernel, or spatial=, tells d.",
            )
        batch = x[: len(x) - d - 1]
        sample = []
        for at, (name, s) in enumerate(zip(kind.arrays, shapes, strict=True)):
            if s is None or at not in kind.batched:
                sample.append(s)
                continue
            if s[: len(batch)] != batch:
                raise ShapeError("D7", f"{name} with batch axes {batch}", f"shape {s}", "It has one entry per sample.")
            sample.append(s[len(batch) :])
        op = kind.of(sample, *options)
        return ResolvedOp(op, d, batch, tuple(sample), (*(() if kind.summed else batch), *op.shape(*sample)))


def _readings(kind: type[Op], shapes: Shapes, lead: int, options: Sequence[Any]) -> str:
    """What the result would be with every number of spatial axes that is possible, for rule W13."""
    found = []
    for d in range(1, len(shapes[0] or ())):
        with suppress(LunetteError):
            found.append(f"as spatial={d} -> {resolve(kind, shapes, lead, (*options[:-1], d)).out}")
    return f": {', '.join(found)}" if found else ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a public function was asked to do, with its options in the order of `Op.of`."""

    kind: type[Op]
    operands: tuple[Any, ...]
    arithmetic: str
    options: tuple[Any, ...]


class Placeholder:
    """Stands in for x: the function it is given to returns the request instead of computing."""

    level = sys.maxsize

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> Request:
        return Request(kind, tuple(operands), arithmetic, tuple(options))


Handler = Callable[[type[Op], Sequence[Any], str, tuple[Any, ...]], Any]
_on_arrays: list[Handler] = []
Arithmetic = Literal["fast", "rounded", "interval"]
ARITHMETICS: tuple[str, ...] = get_args(Arithmetic)


def on_arrays(handler: Handler) -> Handler:
    """Register what happens to operands that have no __lunette__ of their own."""
    _on_arrays[:] = [handler]
    return handler


def apply(kind: type[Op], operands: Sequence[Any], arithmetic: str, *options: Any) -> Any:
    """What every public function ends in. Of several operands with a say, the one of the highest level decides."""
    speaker = None
    for a in operands:
        if (
            type(a) is not np.ndarray
            and hasattr(type(a), "__lunette__")
            and (speaker is None or a.level > speaker.level)
        ):
            speaker = a
    if speaker is not None:
        return speaker.__lunette__(kind, operands, arithmetic, options)
    return _on_arrays[0](kind, operands, arithmetic, options)


@lru_cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a public function; its first is x."""
    return inspect.signature(function).parameters


def spelled(function: F) -> F:
    """Decorate a public function that takes what is misspelt, and goes without what is absent, to refuse it by rule O2.

    Its signature is without these. A call that is right costs nothing more, which a wrapper around the function would.
    """
    told = inspect.signature(function)
    known = [
        p.replace(default=p.empty) if p.default is ABSENT else p
        for p in told.parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    function.__signature__ = told.replace(parameters=known)  # type: ignore[attr-defined]
    return function


def request(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any], lead: int = 2
) -> Request:
    """The request that this call makes, its arguments given by position and by name."""
    names = [n for n, p in parameters_of(function).items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return named_request(function, dict(zip(names, arguments, strict=False)), options, lead, arguments[len(names) :])


def named_request(
    function: Callable[..., Any],
    operands: Mapping[str, Any],
    options: Mapping[str, Any],
    lead: int,
    extra: Sequence[Any] = (),
) -> Request:
    """Rule O2: every argument is one the function has, given once, and none is missing."""
    parameters = parameters_of(function)
    given = {n: v for n, v in {**operands, **options}.items() if v is not ABSENT}
    x, *_ = parameters
    wrong = [f"{len(operands) + len(extra)} arguments by position"] if extra else []
    wrong += [f"{n} twice" for n in operands if n in options]
    wrong += [f"an unknown {n}" for n in given if n not in parameters]
    missing = [f"no {n}" for n, p in parameters.items() if n not in given and p.default is p.empty]
    known = {n: v for n, v in given.items() if n in parameters}
    absent = {n: None for n, p in parameters.items() if p.default is p.empty}
    asked: Request = function(**{**absent, **known, x: Placeholder()})
    asked = replace(asked, operands=(given.get(x), *asked.operands[1:]))
    if wrong or missing:
        unknown = next((n for n in given if n not in parameters), None)
        d = None if missing else known_rank(asked.kind, map(outline, asked.operands), lead, asked.options)
        raise misspelt(function.__name__, parameters, wrong + missing, unknown, d)
    return asked


def request_at(
    function: Callable[..., Any], kind: type[Op], primals: Any, options: Mapping[str, Any], lead: int = 2
) -> Request:
    """The request whose derivative is asked for. Array arguments that are not primals may be among the options."""
    given = primals if isinstance(primals, tuple | list) else (primals,)
    named = dict(zip(kind.arrays, given, strict=False))

    def d() -> int | None:
        every = {n: named.get(n) for n in kind.arrays if n in named or n not in options}
        try:
            asked = named_request(function, every, {n: v for n, v in options.items() if n not in every}, lead)
        except LunetteError:
            return None
        return known_rank(kind, map(outline, asked.operands), lead, asked.options)

    with error_context(kind.name, d):
        check_tuple(primals, "primals")
        check_rows(kind, primals)
        check_primals(kind, primals)
    return named_request(function, named, options, lead)


def known_rank(kind: type[Op], shapes: Iterable[Shape], lead: int, options: Sequence[Any]) -> int | None:
    """The number of spatial axes, where the arguments tell it although they may be wrong otherwise."""
    try:
        return kind.rank(list(shapes), lead, *options)
    except LunetteError:
        return None


def outline(a: Any) -> Shape:
    """The shape of an array or of nested lists, judged by their first rows."""
    if hasattr(a, "shape"):
        return tuple(a.shape) if is_sequence(a.shape) else ()
    sizes: list[int] = []
    while is_sequence(a) and len(sizes) < 64:
        sizes.append(len(a))
        a = a[0] if len(a) else None
    return tuple(sizes)


# ---- rules of the door, for arrays and for the specification (D7 and D9 are in the table of lunette.array)


def check_arithmetic(asked: Request) -> None:
    """Rule D9."""
    check_name(asked.arithmetic)


def check_name(given: object) -> None:
    """Rule D9, the name of an arithmetic."""
    if not isinstance(given, str) or given not in ARITHMETICS:
        names = ", ".join(f'"{a}"' for a in ARITHMETICS)
        got = f"arithmetic={shown(given)}"
        raise ArgumentError("D9", f"arithmetic among {names}", got, 'Leave it out for "fast".')


def check_tuple(values: Any, name: str) -> None:
    """Rule O3, the type."""
    if not isinstance(values, tuple | list):
        got = f"{name} of type {type(values).__name__}"
        raise DTypeError("O3", f"{name} as a tuple of arrays", got, f"Write ({name[:-1]},).")


def check_rows(kind: type[Op], primals: Sequence[Any]) -> None:
    """Rule O3: a list of rows is an array, not a tuple of them; no array of windows has fewer than two axes."""
    if isinstance(primals, list) and primals and is_sequence(primals[0]) and len(outline(primals[0])) < 2:
        got = f"a list of {len(primals)} rows, which is one array"
        raise DTypeError("O3", "primals as a tuple of arrays", got, f"Write ({kind.arrays[0]},).")


def check_primals(kind: type[Op], primals: Sequence[Any]) -> None:
    """Rule O3, the number of primals."""
    least = sum(n not in (*kind.scalars, "b") for n in kind.arrays)
    if not least <= len(primals) <= len(kind.arrays):
        names = [f"({', '.join(kind.arrays[:n])}{',' * (n == 1)})" for n in range(least, len(kind.arrays) + 1)]
        got = f"{len(primals)} primals"
        raise ArgumentError("O3", f"primals {' or '.join(names)}", got, "Everything that is no array is a keyword.")


def check_tangents(tangents: Any, primals: Sequence[Any]) -> None:
    """Rule O3, the number of tangents."""
    check_tuple(tangents, "tangents")
    if len(tangents) != len(primals):
        need = f"{len(primals)} tangents, one per primal"
        raise ArgumentError("O3", need, f"{len(tangents)} tangents", "A tangent None means zero.")


def check_shape(name: str, wanted: Shape, got: Shape) -> None:
    """Rule D7."""
    if got != wanted:
        hint = "A cotangent is like the output." if "cotangent" in name else "A tangent is like its primal, or None."
        raise ShapeError("D7", f"{name} of shape {wanted}", f"shape {got}", hint)
