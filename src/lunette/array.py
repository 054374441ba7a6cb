"""Arrays in and out: kinds, dtypes, batch axes, and the derivatives of every operator on arrays.

| rule | says                                                                                       |
|------|--------------------------------------------------------------------------------------------|
| D1   | arrays are float16, bfloat16, float32 or float64; object arrays and nested lists hold numbers |
| D2   | all arrays of a call share one dtype                                                       |
| D3   | NumPy may mix with one other kind of array, not two kinds with each other                  |
| D4   | a torch tensor does not require grad                                                       |
| D5   | arrays live on the CPU                                                                     |
| D7   | a tangent has the shape of its primal, a cotangent that of the output                      |
| D9   | arithmetic is one that exists                                                              |
"""

from __future__ import annotations

import importlib
import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from lunette import ops
from lunette.errors import ArgumentError, DTypeError, ShapeError, speaking
from lunette.number import OBJECT, Array, allocate, cells_of
from lunette.op import Bound, Op, Request, bind, check_tangents, on_arrays, request, request_at
from lunette.window import Shape, integer

HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
FLOAT = (np.dtype(np.float32), np.dtype(np.float64))
ARITHMETICS = ("fast",)


# ---- one operand


@dataclass(frozen=True, slots=True)
class Taken:
    """An operand as a NumPy array, and the kind of array it was: "numpy" or the name of a library."""

    array: Array
    kind: str = "numpy"


def take(x: object, name: str) -> Taken:
    """Any array, without a copy where it is one already."""
    if type(x) is np.ndarray and x.dtype in FLOAT and x.dtype.isnative:
        return Taken(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError("D1", "a plain array", f"{name} is a masked array", "Fill it first: x.filled(...).")
    if isinstance(x, np.ndarray | np.generic):
        return Taken(_checked(np.asarray(x), name))
    if hasattr(x, "__dlpack__"):
        return _take_foreign(x, name)
    if hasattr(x, "__array__"):
        return Taken(_checked(np.asarray(x), name))
    return Taken(cells_of(x, name))


def _take_foreign(x: Any, name: str) -> Taken:
    kind = type(x).__module__.partition(".")[0].removesuffix("lib")
    if getattr(x, "requires_grad", False):
        raise DTypeError(
            "D4",
            "tensors that do not require grad",
            f"{name} with requires_grad=True",
            f"Pass {name}.detach(): lunette would cut it from its graph.",
        )
    try:
        device = x.__dlpack_device__()
    except Exception as error:
        raise DTypeError("D1", "an array with values", f"{name} of type {type(x).__name__}: {error}") from error
    if device[0] not in (1, 3, 11, 13):  # DLPack's numbers for memory that the CPU reads: plain or pinned
        raise DTypeError(
            "D5", "arrays on the CPU", f"{name} on {getattr(x, 'device', device)}", f"Pass {name}.cpu() or a copy."
        )
    if str(x.dtype) == "torch.bfloat16":  # NumPy's DLPack has no bfloat16; its bits travel as int16
        bits = np.from_dlpack(x.view(importlib.import_module("torch").int16))
        return Taken(bits.view(ml_dtypes.bfloat16), kind)
    try:
        array = np.asarray(x) if kind == "jax" else np.from_dlpack(x)
    except Exception as error:
        raise DTypeError("D1", "a dtype that NumPy has", f"{name} of dtype {x.dtype}: {error}") from error
    return Taken(_checked(array, name), kind)


def _checked(x: Array, name: str) -> Array:
    if x.dtype == OBJECT:
        return cells_of(x, name)
    native = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if native.dtype in FLOAT or native.dtype in HALF:
        return native
    raise DTypeError(
        "D1",
        "float16, bfloat16, float32 or float64",
        f"{name} of dtype {x.dtype}",
        f"Pass {name}.astype(np.float64), or {name}.astype(object) for exact numbers.",
    )


def give(y: Array, kind: str) -> Any:
    """The result as the kind of array that x was."""
    if kind == "numpy":
        return y
    if kind == "torch":
        torch = importlib.import_module("torch")
        if y.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(y)
    if kind == "jax":
        return importlib.import_module("jax.numpy").asarray(y)
    return importlib.import_module(kind).from_dlpack(y)


# ---- one call


@dataclass(frozen=True, slots=True)
class Call:
    """Operands of one operator, as arrays of one dtype, bound to the operator."""

    bound: Bound
    arrays: tuple[Array | None, ...]
    dtype: np.dtype[Any]
    kind: str

    @property
    def exact(self) -> bool:
        """Whether the specification computes this call, on the number types of the user."""
        return self.dtype == OBJECT

    def also(self, value: Any, name: str, shape: Shape) -> Array | None:
        """A further array of this call, a tangent or cotangent, which must have this shape."""
        if value is None:
            return None
        taken = take(value, name)
        one_kind([self.kind, taken.kind])
        same_dtype(self.dtype, taken.array, name)
        if taken.array.shape != shape:
            raise ShapeError("D7", f"{name} of shape {shape}", f"shape {taken.array.shape}")
        return taken.array

    def new(self, shape: Shape) -> Array:
        """An array for results, in the dtype that is computed in."""
        return allocate(shape, wide(self.dtype))

    def result(self, y: Array | None) -> Any:
        """A finished output in the dtype and kind of x."""
        if y is None:
            return None
        if self.dtype in HALF and y.dtype != np.int64:
            with np.errstate(over="ignore", under="ignore"):
                y = y.astype(self.dtype)
        return give(y, self.kind)


def prepare(asked: Request) -> Call:
    """Take the operands, check that they belong together, and bind the operator to their shapes."""
    kind = asked.kind
    with speaking(kind.name):
        x = take(asked.operands[0], kind.arrays[0])
        arrays: list[Array | None] = [x.array]
        for name, a in zip(kind.arrays[1:], asked.operands[1:], strict=True):
            plain = name in kind.scalars and isinstance(a, int | float | np.generic)
            t = None if a is None else as_scalar(a, name, x.array.dtype) if plain else take(a, name)
            arrays.append(None if t is None else t.array)
            if t is not None and t.kind != x.kind:
                one_kind([x.kind, t.kind])
    bound = bound_to(kind, arrays, asked.arithmetic, asked.options)
    return Call(bound, tuple(arrays), x.array.dtype, x.kind)


_BOUND: dict[Any, Bound] = {}
_QUICK: dict[Any, tuple[Callable[..., None], Shape, np.dtype[Any]]] = {}


def key_of(kind: type[Op], facts: tuple[Any, ...], arithmetic: Any, options: Sequence[Any]) -> Any:
    """What a bound operator depends on: (shape, dtype) of the arrays and the options; None if it cannot be a key.

    marshal tells 1, 1.0 and True apart, which are equal as keys; what it cannot write is not remembered.
    """
    try:
        return kind, facts, arithmetic, marshal.dumps(tuple(options), 2)
    except ValueError:
        return None


def bound_to(kind: type[Op], arrays: Sequence[Array | None], arithmetic: Any, options: Sequence[Any]) -> Bound:
    """`bind`, remembered: a small operator takes less time than its checks do."""
    if not isinstance(arithmetic, str):
        return _bound_to(kind, arrays, arithmetic, options)
    key = key_of(kind, tuple([None if a is None else (a.shape, a.dtype) for a in arrays]), arithmetic, options)
    if key is None:
        return _bound_to(kind, arrays, arithmetic, options)
    if key not in _BOUND:
        if len(_BOUND) >= 4096:
            _BOUND.clear()
            _QUICK.clear()
        _BOUND[key] = bound = _bound_to(kind, arrays, arithmetic, options)
        assert arrays[0] is not None
        if bound.kernels.forward is not None and arrays[0].dtype in FLOAT and not _wants_indices(bound.op):
            _QUICK[key] = bound.kernels.forward, bound.out, arrays[0].dtype
    return _BOUND[key]


def _bound_to(kind: type[Op], arrays: Sequence[Array | None], arithmetic: Any, options: Sequence[Any]) -> Bound:
    bound = bind(kind, [None if a is None else a.shape for a in arrays], 2, options)
    with speaking(kind.name, bound.d):
        if arithmetic not in ARITHMETICS:
            raise ArgumentError("D9", f"arithmetic among {', '.join(ARITHMETICS)}", f"arithmetic={arithmetic!r}")
        assert arrays[0] is not None
        dtype = arrays[0].dtype
        for name, a in zip(kind.arrays, arrays, strict=True):
            if a is not None:
                same_dtype(dtype, a, name)
        if dtype == OBJECT:
            return bound
        op = bound.op.cast(dtype)
        return replace(bound, op=op, kernels=op.kernels(prod(bound.batch), bound.shapes))


def same_dtype(dtype: np.dtype[Any], array: Array, name: str) -> None:
    """Rule D2."""
    if array.dtype != dtype:
        raise DTypeError(
            "D2",
            "arrays of one dtype",
            f"x of dtype {dtype} and {name} of dtype {array.dtype}",
            "Convert one of them: nothing is promoted silently.",
        )


def as_scalar(value: Any, name: str, dtype: np.dtype[Any]) -> Taken:
    """A plain number as an array without axes, in x's dtype."""
    if isinstance(value, bool | np.bool_):
        raise DTypeError("D1", f"{name} as a number", f"{name}={value!r} of type bool")
    with np.errstate(over="ignore"):
        return Taken(cells_of(value, name) if dtype == OBJECT else np.asarray(value, dtype))


def one_kind(kinds: Sequence[str]) -> None:
    """Rule D3."""
    foreign = sorted({k for k in kinds if k != "numpy"})
    if len(foreign) > 1:
        raise DTypeError("D3", "NumPy arrays and one other kind", f"{' and '.join(foreign)}", "Convert one of them.")


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that is computed in: half precision is accumulated in float32 and rounded once."""
    return np.dtype(np.float32) if dtype in HALF else dtype


# ---- values


@on_arrays
def run(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> Any:
    """The operator on arrays."""
    quick = _quickly(kind, operands, arithmetic, options)
    if quick is not None:
        return quick
    call = prepare(Request(kind, tuple(operands), arithmetic, tuple(options)))
    op, out = call.bound.op, call.bound.out
    with speaking(kind.name, call.bound.d):
        y = call.new(out)
        index = allocate(out, np.dtype(np.int64)) if _wants_indices(op) else None
        if call.bound.kernels.forward is not None:
            call.bound.kernels.forward([dense(a) for a in call.arrays], y, index)
        else:
            arrays = [cells(a) for a in call.arrays]
            for at, x in samples(call.bound, arrays):
                y[at] = op.spec(x, *arrays[1:])
                if index is not None:
                    index[at] = op.indices(x)  # type: ignore[attr-defined]
        return call.result(y) if index is None else (call.result(y), call.result(index))


def _quickly(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: Sequence[Any]) -> Array | None:
    """The short way for what was computed before: dense NumPy arrays of known shapes. None says to go the long way."""
    facts: list[Any] = []
    for a in operands:
        if a is None:
            facts.append(None)
        elif type(a) is np.ndarray and (flags := a.flags).c_contiguous and flags.aligned:
            facts.append((a.shape, a.dtype))
        else:
            return None
    quick = _QUICK.get(key_of(kind, tuple(facts), arithmetic, options)) if type(arithmetic) is str else None
    if quick is None:
        return None
    forward, out, dtype = quick
    y: Array = np.empty(out, dtype)
    forward(operands, y, None)
    return y


def _wants_indices(op: Op) -> bool:
    return getattr(op, "return_indices", False)


def dense(a: Array | None) -> Array | None:
    """What kernels read: C-contiguous, in the dtype that is computed in."""
    if a is None or (a.flags.c_contiguous and a.flags.aligned and a.dtype in FLOAT):
        return a
    return np.require(a, wide(a.dtype), ["C", "A"])


def cells(a: Array | None) -> Array | None:
    """What the specification reads: numbers. Floats become Python's, whose rounding is finer or the same."""
    return None if a is None else cells_of(a if a.dtype == OBJECT else a.astype(np.float64))


def samples(bound: Bound, arrays: Sequence[Array | None]) -> Iterator[tuple[Shape, Array]]:
    """x, sample by sample. numpy's scalars warn where IEEE arithmetic is silent."""
    x = arrays[0]
    assert x is not None
    with np.errstate(all="ignore"):
        for at in np.ndindex(bound.batch):
            yield at, x[at]


# ---- derivatives


def jvp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_jvp`: the derivative of an operator in the direction of tangents."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, arithmetic: str = "fast", **options: Any) -> Any:
        call = _at(function, kind, primals, arithmetic, options)
        op = call.bound.op
        with speaking(kind.name, call.bound.d):
            check_tangents(tangents, primals)
            given = [
                call.also(t, f"the tangent of {n}", () if a is None else a.shape)
                for t, n, a in zip(tangents, kind.arrays, call.arrays, strict=False)
            ]
            directions = [*given, *(None for _ in call.arrays[len(given) :])]
            y = call.new(call.bound.out)
            if all(t is None for t in directions):
                y[...] = 0
            elif call.bound.kernels.jvp is not None:
                call.bound.kernels.jvp([dense(a) for a in call.arrays], [dense(t) for t in directions], y)
            else:
                arrays, (t, *shared) = [cells(a) for a in call.arrays], [cells(t) for t in directions]
                for at, x in samples(call.bound, arrays):
                    y[at] = op.jvp((x, *arrays[1:]), (None if t is None else t[at], *shared))
            return call.result(y)

    return _named(jvp, function, "jvp", "The derivative of {} at `primals` in the direction of `tangents`.")


def vjp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_vjp`: the transposed derivative of an operator, applied to a cotangent."""

    def vjp(primals: Sequence[Any], cotangent: Any, *, arithmetic: str = "fast", **options: Any) -> Any:
        call = _at(function, kind, primals, arithmetic, options)
        with speaking(kind.name, call.bound.d):
            g = call.also(cotangent, "the cotangent", call.bound.out)
            if g is None:
                raise DTypeError("D8", "a cotangent", "None")
            results = [None if a is None else call.new(a.shape) for a in call.arrays]
            if call.bound.kernels.vjp is not None:
                call.bound.kernels.vjp([dense(a) for a in call.arrays], np.asarray(dense(g)), results)
            else:
                _vjp_of_samples(call, cells(g), results)
            return tuple(call.result(r) for r in results[: len(primals)])

    return _named(vjp, function, "vjp", "The transposed derivative of {} at `primals`, applied to `cotangent`.")


def _vjp_of_samples(call: Call, g: Array | None, results: Sequence[Array | None]) -> None:
    """Sample by sample for x; summed over the samples for the arrays that all samples share."""
    assert g is not None and results[0] is not None
    arrays = [cells(a) for a in call.arrays]
    sums: list[Array] = []
    for at, x in samples(call.bound, arrays):
        results[0][at], *shared = call.bound.op.vjp((x, *arrays[1:]), g[at])
        sums = [a + b for a, b in zip(sums, shared, strict=True)] if sums else shared
    for p, r in enumerate(results[1:]):
        if r is not None:
            r[...] = sums[p] if sums else 0


def _at(
    function: Callable[..., Any], kind: type[Op], primals: Any, arithmetic: str, options: Mapping[str, Any]
) -> Call:
    """Bind as the function itself would; arrays that are not primals may be among the options."""
    return prepare(request_at(function, kind, primals, {**options, "arithmetic": arithmetic}))


def _named(derivative: Callable[..., Any], function: Callable[..., Any], suffix: str, text: str) -> Callable[..., Any]:
    derivative.__name__ = derivative.__qualname__ = f"{function.__name__}_{suffix}"
    derivative.__doc__ = f"{text.format(function.__name__)} Options are keywords, as in `ln.{function.__name__}`."
    derivative.__module__ = function.__module__
    return derivative


# ---- shapes alone


def lookup(op: Any) -> tuple[Callable[..., Any], type[Op]]:
    """An operator by its name, or by the public function itself."""
    for kind, function in ops.ALL.items():
        if op in (kind.name, function, kind):
            return function, kind
    names = ", ".join(kind.name for kind in ops.ALL)
    raise ArgumentError("O1", f"an operator among {names}", f"{op!r}", who="lookup")


def output_shape(op: Any, *shapes: Shape, **options: Any) -> Shape:
    """The shape that an operator's result would have; `op` is its name or the function, `shapes` those of the arrays.

    >>> import lunette as ln
    >>> ln.output_shape("max_pool", (8, 3, 32, 32), kernel=3, stride=2, padding=1)
    (8, 3, 16, 16)
    >>> ln.output_shape(ln.conv, (8, 3, 32, 32), (16, 3, 5, 5), padding="same")
    (8, 16, 32, 32)
    """
    return bound_of(op, shapes, options).out


def bound_of(op: Any, shapes: Sequence[Any], options: Mapping[str, Any], lead: int = 2) -> Bound:
    """The operator value that these shapes and options make."""
    function, kind = lookup(op)
    named: dict[str, Any] = {
        n: tuple(integer("a shape", m) for m in s) for n, s in zip(kind.arrays, shapes, strict=False)
    }
    named |= dict.fromkeys((n for n in kind.scalars if n not in named), ())
    asked = request(function, (), {**named, **options})
    return bind(kind, [a if isinstance(a, tuple | None) else () for a in asked.operands], lead, asked.options)
