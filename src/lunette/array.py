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

import atexit
import importlib
import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from operator import index
from typing import Any, ClassVar, Generic, TypeVar

import ml_dtypes
import numpy as np

from lunette import ops
from lunette.errors import ArgumentError, DTypeError, meant, shown, speaking
from lunette.number import (
    OBJECT,
    Array,
    Interval,
    allocate,
    as_dtype,
    cells_in,
    cells_of,
    check_fits,
    is_real,
    like,
    meeting,
    total,
)
from lunette.op import (
    Bound,
    Op,
    Request,
    bind,
    check_arithmetic,
    check_shape,
    check_tangents,
    known_rank,
    named_request,
    on_arrays,
    outline,
    parameters_of,
    request_at,
)
from lunette.ops import derivative
from lunette.ops.pool import Pool
from lunette.window import Shape, integer, is_sequence

HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
FLOAT = (np.dtype(np.float32), np.dtype(np.float64))
KERNEL_RANK = 8  # the kernels have no more spatial axes than this; beyond, the specification computes


# ---- one operand


@dataclass(frozen=True, slots=True)
class Taken:
    """An operand as a NumPy array, and the kind of array it was: "numpy" or the name of a library."""

    array: Array
    kind: str = "numpy"


def take(x: object, name: str) -> Taken:
    """Any array, without a copy where it is one already."""
    if type(x) is np.ndarray and x.dtype in FLOAT and x.dtype.isnative:
        check_fits(x, name)
        return Taken(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError(
            "D1", "a plain array", f"{name} as a masked array", f"Fill it first: {name}.filled(...).astype(np.float64)."
        )
    if isinstance(x, np.ndarray | np.generic):
        return Taken(_checked(np.asarray(x), name))
    if hasattr(x, "__dlpack__") and not isinstance(x, type):
        return _take_foreign(x, name)
    if hasattr(x, "__array__") and not isinstance(x, type):
        return Taken(_checked(_converted(np.asarray, x, name), name))
    return Taken(cells_of(x, name))


def _take_foreign(x: Any, name: str) -> Taken:
    kind = type(x).__module__.partition(".")[0].removesuffix("lib")
    if kind == "jax" and isinstance(x, importlib.import_module("jax").core.Tracer):
        raise DTypeError(
            "D1",
            "an array whose values NumPy can read",
            f"{name} as a tracer of JAX ({type(x).__name__})",
            "Call it outside of jax.jit, grad and vmap: derivatives come from ln.<op>_vjp and ln.<op>_jvp.",
        )
    if kind == "torch" and importlib.import_module("torch").jit.is_tracing():
        raise DTypeError(
            "D1",
            "an array whose values NumPy can read",
            f"{name} as a tensor that torch.jit.trace records",
            "What lunette makes of it would become a constant: call it outside of torch.jit.trace.",
        )
    device = getattr(x, "device", "")
    if getattr(x, "requires_grad", False):
        raise DTypeError(
            "D4",
            "tensors that do not require grad",
            f"{name} with requires_grad=True",
            f"Pass {name}.detach(): lunette would cut it from its graph.",
        )
    # DLPack's numbers for memory that the CPU reads: plain or pinned. torch has none for "meta".
    if str(device) == "meta" or _converted(lambda a: a.__dlpack_device__(), x, name)[0] not in (1, 3, 11, 13):
        raise DTypeError("D5", "arrays on the CPU", f"{name} on device {device}", f"Pass {name}.cpu() or a copy.")
    if hasattr(x, "resolve_neg"):  # torch may keep a minus sign as a flag, which its DLPack forgets
        x = x.resolve_neg()
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":  # NumPy's DLPack has no bfloat16; its bits travel as int16
        bits = np.from_dlpack(x.view(importlib.import_module("torch").int16))
        return Taken(bits.view(ml_dtypes.bfloat16), kind)
    array = _checked(_converted(np.asarray if kind == "jax" else np.from_dlpack, x, name), name, kind)
    return Taken(array, kind if hasattr(importlib.import_module(kind), "from_dlpack") or kind == "jax" else "numpy")


def _converted(convert: Callable[[Any], Any], x: Any, name: str) -> Any:
    """What a foreign array gives; each library has its own way to refuse."""
    try:
        return convert(x)
    except Exception as error:
        got = f"{name} of type {type(x).__name__}: {shown(str(error))}"
        raise DTypeError("D1", "an array whose values NumPy can read", got, "Pass a NumPy array.") from error


def _checked(x: Array, name: str, kind: str = "numpy") -> Array:
    if x.dtype == OBJECT:
        return cells_of(x, name)
    check_fits(x, name)
    native = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if native.dtype in FLOAT or native.dtype in HALF:
        return native
    it = name if name.isidentifier() else "it"
    hint = f"Pass {it}.astype(np.float64), or {it}.astype(object) for exact numbers."
    if x.dtype.kind == "c":
        hint = f"Pass {it}.real.astype(np.float64), or {it}.astype(object): linear operators take complex numbers."
    hint = hint if kind == "numpy" else f"Convert {name} to float64."
    raise DTypeError("D1", "float16, bfloat16, float32 or float64", f"{name} of dtype {x.dtype}", hint)


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
    kinds: tuple[str, ...]

    def also(self, values: Sequence[Any], names: Sequence[str], shapes: Sequence[Shape]) -> list[Array | None]:
        """Further arrays of this call, tangents or the cotangent, which must have these shapes; a number has none."""
        cell = next((a[(0,) * a.ndim] for a in self.arrays if a is not None and a.size), 0)
        taken = [
            None if v is None else as_scalar(v, name, self.dtype, cell) if shape == () and is_real(v) else take(v, name)
            for v, name, shape in zip(values, names, shapes, strict=True)
        ]
        one_kind([*self.kinds, *(t.kind for t in taken if t is not None)])
        for t, name, shape in zip(taken, names, shapes, strict=True):
            if t is not None:
                same_dtype(self.dtype, t.array, name)
                check_shape(name, shape, t.array.shape)
        return [None if t is None else t.array for t in taken]

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
        return give(y, self.kinds[0])


def prepare(asked: Request) -> Call:
    """Take the operands, check that they belong together, and bind the operator to their shapes."""
    kind = asked.kind
    with speaking(kind.name, lambda: known_rank(kind, map(outline, asked.operands), 2, asked.options)):
        check_arithmetic(asked)
        taken: list[Taken | None] = []
        plain: list[int] = []
        for at, (name, a) in enumerate(zip(names_of(kind, asked.operands), asked.operands, strict=True)):
            if name in kind.scalars and is_real(a):
                plain.append(at)
            counted = at in kind.integers
            absent = at in plain or (a is None and kind.optional and at > 0)
            taken.append(None if absent else take_integers(a, name) if counted else take(a, name))
        dtype = next((t.array.dtype for t in taken if t is not None), OBJECT)
        cell = next((t.array[(0,) * t.array.ndim] for t in taken if t is not None and t.array.size), 0) if plain else 0
        for at in plain:
            taken[at] = as_scalar(asked.operands[at], kind.arrays[at], dtype, cell)
        arrays = [None if t is None else t.array for t in taken]
        kinds = tuple(t.kind for at, t in enumerate(taken) if t is not None and at not in plain) or ("numpy",)
        one_kind(kinds)
    bound = bound_to(kind, arrays, asked.arithmetic, asked.options)
    with computing(kind, bound.d, *arrays):
        bound.op.check(*arrays)
    return Call(bound, tuple(arrays), dtype_of(bound.op, arrays), kinds)


def names_of(kind: type[Op], operands: Sequence[Any]) -> Sequence[str]:
    """What refusals call the operands."""
    if getattr(kind, "variadic", False):
        return [f"xs[{p}]" for p in range(len(operands))]
    return kind.arrays


def dtype_of(op: Op, arrays: Sequence[Array | None]) -> np.dtype[Any]:
    """The dtype of the result: that of the arrays, unless these only count."""
    own = getattr(op, "dtype", None)
    if own is not None:
        named: np.dtype[Any] = np.dtype(own)
        return named
    measured = [a for p, a in enumerate(arrays) if a is not None and p not in op.integers]
    dtype: np.dtype[Any] = measured[0].dtype
    return dtype


def take_integers(x: object, name: str) -> Taken:
    """Whole numbers, as int64."""
    a = _converted(np.asarray, x, name)
    if a.dtype.kind not in "iu" and not (a.dtype == OBJECT and all(isinstance(v, int) for v in a.flat)):
        raise DTypeError("D1", f"{name} of integers", f"dtype {a.dtype}", f"Pass {name}.astype(np.int64).")
    try:
        return Taken(np.asarray(a, np.int64, order="C"))
    except OverflowError as error:
        got = f"{name} of {shown(max(a.flat, key=abs))}"
        raise ArgumentError("D1", f"{name} of integers of 64 bits", got, "They count cells.") from error


@contextmanager
def computing(kind: type[Op], d: int | None, *arrays: Array | None) -> Iterator[None]:
    """Values meet: refusals are signed, and numpy's scalars do not warn where IEEE arithmetic is silent."""
    with speaking(kind.name, d), np.errstate(all="ignore"), meeting(*arrays):
        yield


_BOUND: dict[Any, Bound] = {}
_QUICK: dict[Any, tuple[Bound, np.dtype[Any], tuple[None, ...]]] = {}


T = TypeVar("T")


class Kept(Generic[T]):
    """What an arithmetic made for bound operators: found again by their id, which stays theirs since they are kept."""

    every: ClassVar[list[Kept[Any]]] = []

    def __init__(self) -> None:
        self.made: dict[int, tuple[Bound, T]] = {}
        self.every.append(self)

    def get(self, bound: Bound) -> T | None:
        found = self.made.get(id(bound))
        return None if found is None else found[1]

    def keep(self, bound: Bound, made: T | None) -> T | None:
        if made is not None:
            if len(self.made) >= 1024:
                self.made.clear()
            self.made[id(bound)] = bound, made
        return made


MOST_BYTES = 1 << 30  # of tables that are remembered, as `weight_of` counts them


class _Held:
    """What the remembered operators weigh together. Threads that count at once may miss one of them: an estimate."""

    bytes: ClassVar[int] = 0


FORGETTING: list[Callable[[], None]] = []
"""What else there is to drop: caches of the modules above."""


@atexit.register
def forget() -> None:
    """Drop what is remembered; at the end of the process, so that the compiled core sees its tables go."""
    _BOUND.clear()
    _QUICK.clear()
    _Held.bytes = 0
    for kept in Kept.every:
        kept.made.clear()
    for drop in FORGETTING:
        drop()


def key_of(kind: type[Op], facts: tuple[Any, ...], arithmetic: str, options: Sequence[Any]) -> Any:
    """What a bound operator depends on: (shape, dtype) of the arrays and the options; None if it cannot be a key.

    marshal tells 1, 1.0 and True apart, which are equal as keys.
    """
    try:
        return kind, facts, arithmetic, marshal.dumps(options, 2)  # type: ignore[arg-type]
    except ValueError:
        return None


def is_plain(value: Any, depth: int = 2) -> bool:
    """Numbers and words, and rows and pairs of them: a list may contain itself."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    return depth > 0 and kind in (tuple, list) and len(value) <= 64 and all(is_plain(v, depth - 1) for v in value)


_PLAIN = frozenset((int, float, bool, str, type(None)))


def plain_options(options: Sequence[Any]) -> tuple[Any, ...]:
    """Options as Python's own numbers, strings and tuples, so that they can be kept, compared and written down."""
    return tuple([o if type(o) in _PLAIN else _plain(o) for o in options])


def _plain(value: Any, depth: int = 2) -> Any:
    if type(value) in _PLAIN:
        return value
    if is_sequence(value):
        return tuple(_plain(v, depth - 1) for v in value) if depth and len(value) <= 64 else value
    if isinstance(value, np.generic | np.ndarray):
        return value.item()
    if isinstance(value, str):
        return str(value)
    with suppress(Exception):  # arrays and tensors have __index__ and each its own way to refuse
        return index(value)
    with suppress(OverflowError, ValueError):  # more than all floats, or a signalling NaN: the operator's rules say so
        return float(value) if is_real(value) else value
    return value


def bound_to(kind: type[Op], arrays: Sequence[Array | None], arithmetic: str, options: Sequence[Any]) -> Bound:
    """`bind`, remembered: a small operator takes less time than its checks do."""
    # Anything with a buffer is bytes to marshal, whatever its dtype: only plain options are remembered.
    if not all(map(is_plain, options)):
        return _bound_to(kind, arrays, options)
    facts = tuple([None if a is None else (a.shape, a.dtype) for a in arrays])
    key = key_of(kind, facts, arithmetic, tuple(options))
    bound = _BOUND.get(key)  # looked at once: another thread may forget it
    if bound is None:
        bound = _bound_to(kind, arrays, options)
        weight = weight_of(bound, arithmetic)
        if len(_BOUND) >= 4096 or _Held.bytes + weight > MOST_BYTES:
            forget()
        _Held.bytes += weight
        _BOUND[key] = bound
        dtype = dtype_of(bound.op, arrays)
        fast = arithmetic == "fast" and bound.kernels.forward is not None
        if fast and dtype in FLOAT and not _wants_indices(bound.op):
            _QUICK[key] = bound, dtype, _no_index(bound.op)
    return bound


def weight_of(bound: Bound, arithmetic: str) -> int:
    """About how many bytes are remembered with a bound operator: what windows of each row and column read.

    Those tables have about 40 bytes for every place along an axis, of x and of the result. Other arithmetics have as
    much again for what they make of the kernels.
    """
    if not bound.d or not isinstance(getattr(bound.op, "op", bound.op), Pool):
        return 1 << 10
    places = sum(sum(s[-bound.d :]) for s in (*bound.shapes[:1], bound.out) if s is not None)
    return (1 << 10) + 40 * places * (1 if arithmetic == "fast" else 2)


def bound_before(
    kind: type[Op], arrays: Sequence[Array | None], arithmetic: str, options: Sequence[Any]
) -> Bound | None:
    """What `bound_to` remembers."""
    facts = tuple([None if a is None else (a.shape, a.dtype) for a in arrays])
    return _BOUND.get(key_of(kind, facts, arithmetic, options))


def _bound_to(kind: type[Op], arrays: Sequence[Array | None], options: Sequence[Any]) -> Bound:
    bound = bind(kind, [None if a is None else a.shape for a in arrays], 2, options)
    with speaking(kind.name, bound.d):
        dtype = dtype_of(bound.op, arrays)
        for at, (name, a) in enumerate(zip(names_of(kind, arrays), arrays, strict=True)):
            if a is not None and at not in kind.integers:
                same_dtype(dtype, a, name)
        if dtype == OBJECT:
            return bound
        op = bound.op.cast(dtype)
        allocate(bound.out, dtype)  # before the kernels make tables of as many rows
        if 0 in bound.out or (bound.d or 0) > KERNEL_RANK:
            return replace(bound, op=op)
        return replace(bound, op=op, kernels=op.kernels(wide(dtype), prod(bound.batch), bound.shapes))


def same_dtype(dtype: np.dtype[Any], array: Array, name: str) -> None:
    """Rule D2."""
    if array.dtype != dtype:
        raise DTypeError(
            "D2",
            "arrays of one dtype",
            f"x of dtype {dtype} and {name} of dtype {array.dtype}",
            "Convert one of them: nothing is promoted silently.",
        )


def as_scalar(value: Any, name: str, dtype: np.dtype[Any], cell: Any) -> Taken:
    """A plain number as an array without axes, in the dtype of the arrays, or the number type of their cells."""
    if dtype == OBJECT:
        return Taken(cells_of(like(value, cell), name))
    return Taken(np.asarray(as_dtype(value, dtype), dtype))


def one_kind(kinds: Sequence[str]) -> None:
    """Rule D3."""
    foreign = sorted({k for k in kinds if k != "numpy"})
    if len(foreign) > 1:
        raise DTypeError(
            "D3",
            "NumPy arrays and one other kind",
            f"{' and '.join(foreign)}",
            "Convert one of them, or pass NumPy arrays.",
        )


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that is computed in: half precision is accumulated in float32 and rounded once."""
    return np.dtype(np.float32) if dtype in HALF else dtype


# ---- values


Arithmetic = Callable[[type[Op], Sequence[Any], tuple[Any, ...]], Any]
ARITHMETIC: dict[str, Arithmetic] = {}
"""What computes in an arithmetic other than "fast"; the package lunette.arithmetic fills it."""


@on_arrays
def run(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
    """The operator on arrays."""
    if _is_other(arithmetic):
        return ARITHMETIC["interval" if _is_boxed(operands) else arithmetic](kind, operands, options)
    quick = _quickly(kind, operands, arithmetic, options)
    if quick is not None:
        return quick
    if _is_boxed(operands):
        return ARITHMETIC["interval"](kind, operands, options)
    call = prepare(Request(kind, tuple(operands), arithmetic, options))
    op, out = call.bound.op, call.bound.out
    with computing(kind, call.bound.d, *call.arrays):
        y = call.new(out)
        index = allocate(out, np.dtype(np.int64)) if _wants_indices(op) else None
        if y.size == 0:
            pass
        elif call.bound.kernels.forward is not None:
            _forward(call.bound, [dense(a) for a in call.arrays], y, index)
        else:
            arrays = [cells(a) for a in call.arrays]
            y[...] = by_specification(call.bound, arrays)
            if index is not None:
                for at, one in samples(call.bound, arrays):
                    index[at] = op.indices(one[0])  # type: ignore[attr-defined]
        return call.result(y) if index is None else (call.result(y), call.result(index))


def _is_other(arithmetic: object) -> bool:
    """An arithmetic that exists and is not the fast one."""
    return isinstance(arithmetic, str) and arithmetic in ARITHMETIC


def _is_boxed(operands: Any) -> bool:
    """Whether there is a box among float arrays: bounds are what it asks for, whatever the arithmetic."""
    if not isinstance(operands, tuple | list) or not any(isinstance(a, Interval) for a in operands):
        return False
    return any(getattr(a, "dtype", OBJECT) != OBJECT for a in operands)


def _quickly(kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Array | None:
    """The short way for what was computed before: NumPy arrays of known shapes. None says to go the long way."""
    facts: list[Any] = []
    numbers: list[int] = []
    loose: list[int] = []
    for a in operands:
        if type(a) is np.ndarray:
            flags = a.flags
            if not (flags.c_contiguous and flags.aligned):
                loose.append(len(facts))
            facts.append((a.shape, a.dtype))
        elif a is None:
            facts.append(None)
        elif kind.scalars and type(a) in (float, int):
            numbers.append(len(facts))
            facts.append(a)
        else:
            return None
    if numbers:
        dtype = next((a.dtype for a in operands if type(a) is np.ndarray), OBJECT)
        if dtype not in FLOAT or any(kind.arrays[p] not in kind.scalars for p in numbers):
            return None
        operands = list(operands)
        for p in numbers:
            operands[p] = np.asarray(as_dtype(operands[p], dtype), dtype)
            facts[p] = (), dtype
    quick = _QUICK.get(key_of(kind, tuple(facts), arithmetic, options)) if type(arithmetic) is str else None
    if quick is None:
        return None
    bound, dtype, no_index = quick
    if loose:
        with speaking(kind.name, bound.d):
            for p in loose:
                check_fits(operands[p], names_of(kind, operands)[p])
        operands = [a.copy() if p in loose else a for p, a in enumerate(operands)]
    y: Array = np.empty(bound.out, dtype)
    assert bound.kernels.forward is not None
    try:
        bound.kernels.forward(*operands, y, *no_index)
    except ValueError:  # values that the operator's rules refuse
        with speaking(kind.name, bound.d):
            bound.op.check(*operands)
        raise
    return y


def _no_index(op: Op) -> tuple[None, ...]:
    """What a kernel that could give indices takes in their place."""
    return (None,) if hasattr(op, "return_indices") else ()


def _forward(bound: Bound, arrays: Sequence[Any], y: Array, index: Array | None = None) -> None:
    assert bound.kernels.forward is not None
    bound.kernels.forward(*arrays, y, *(_no_index(bound.op) if index is None else (index,)))


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


def whole(at: Shape) -> Any:
    """The index of a sample, which is an array even where it has no axes."""
    return (*at, ...)


def samples(bound: Bound, arrays: Sequence[Array | None]) -> Iterator[tuple[Shape, list[Any]]]:
    """The arrays, sample by sample: those with batch axes without them."""
    batched = bound.op.batched
    for at in cells_in(bound.batch):
        yield at, [a[at] if a is not None and p in batched else a for p, a in enumerate(arrays)]


def by_specification(bound: Bound, arrays: Sequence[Array | None]) -> Array:
    """An operator on cells of any number type, batch axes included."""
    y = allocate(bound.out, OBJECT)
    y[...] = 0
    if bound.op.summed:
        return np.asarray(total([bound.op.spec(*one) for _, one in samples(bound, arrays)], y), object)
    for at, one in samples(bound, arrays):
        y[whole(at)] = bound.op.spec(*one)
    return y


# ---- derivatives


def jvp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_jvp`: the derivative of an operator in the direction of tangents."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, arithmetic: str = "fast", **options: Any) -> Any:
        full = (
            (*tangents, *(None,) * (len(kind.arrays) - len(tangents))) if isinstance(tangents, tuple | list) else None
        )
        quick = _derived_quickly(function, kind, primals, full, arithmetic, options, (derivative.jvp_of(kind),))
        if quick is not None:
            return quick[0]
        if _is_other(arithmetic) or _is_boxed(primals) or _is_boxed(tangents):
            asked = request_at(function, kind, primals, options)
            check_tangents(tangents, primals)
            return run(derivative.jvp_of(kind), (*asked.operands, *(full or ())), arithmetic, asked.options)
        call = _at(function, kind, primals, arithmetic, options)
        op = call.bound.op
        with computing(kind, call.bound.d, *call.arrays):
            check_tangents(tangents, primals)
            names = [f"the tangent of {n}" for n in kind.arrays[: len(primals)]]
            directions = call.also(tangents, names, [() if a is None else a.shape for a in call.arrays[: len(primals)]])
            directions += [None] * (len(call.arrays) - len(primals))
            y = call.new(call.bound.out)
            if y.size == 0 or all(t is None for t in directions):
                y[...] = 0
            elif call.bound.kernels.jvp is not None:
                call.bound.kernels.jvp(*(dense(a) for a in call.arrays), *(dense(t) for t in directions), y)
                _remember(derivative.jvp_of(kind), (*call.arrays, *directions), function, arithmetic, options)
            else:
                arrays, (t, *shared) = [cells(a) for a in call.arrays], [cells(t) for t in directions]
                for at, one in samples(call.bound, arrays):
                    y[whole(at)] = op.jvp(one, (None if t is None else t[at], *shared))
            return call.result(y)

    return _named(jvp, function, "jvp", "The derivative of {} at `primals` in the direction of `tangents`.")


def check_cotangent(cotangent: Any, out: Shape) -> None:
    """Rule O3."""
    if cotangent is None:
        raise DTypeError("O3", "a cotangent", "None", f"Pass an array of shape {out}.")


def vjp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_vjp`: the transposed derivative of an operator, applied to a cotangent."""

    def vjp(primals: Sequence[Any], cotangent: Any, *, arithmetic: str = "fast", **options: Any) -> Any:
        given = len(primals) if isinstance(primals, tuple | list) else 0
        asked = [derivative.vjp_of(kind, p) for p in range(min(given, len(kind.arrays)))]
        quick = _derived_quickly(function, kind, primals, (cotangent,), arithmetic, options, asked)
        if quick is not None:
            return quick
        if _is_other(arithmetic) or _is_boxed(primals) or _is_boxed((cotangent,)):
            at = request_at(function, kind, primals, options)
            if at.operands[0] is None:
                with speaking(kind.name):
                    cells_of(None, kind.arrays[0])  # refuses it, as every other call does
            bound = bind(kind, [None if a is None else outline(a) for a in at.operands], 2, at.options)
            with speaking(kind.name, bound.d):
                check_cotangent(cotangent, bound.out)
                check_shape("the cotangent", bound.out, outline(cotangent))
            return tuple(
                None if p is None else run(derived, (*at.operands, cotangent), arithmetic, at.options)
                for derived, p in zip(asked, at.operands, strict=False)
            )
        call = _at(function, kind, primals, arithmetic, options)
        with computing(kind, call.bound.d, *call.arrays):
            check_cotangent(cotangent, call.bound.out)
            (g,) = call.also([cotangent], ["the cotangent"], [call.bound.out])
            results = [None if a is None else call.new(a.shape) for a in call.arrays]
            if call.bound.kernels.vjp:
                arrays = [dense(a) for a in (*call.arrays, g)]
                for wrt, r in enumerate(results[: len(primals)]):
                    if r is not None:
                        call.bound.kernels.vjp[wrt](*arrays, r)
                        _remember(derivative.vjp_of(kind, wrt), (*call.arrays, g), function, arithmetic, options)
            else:
                _vjp_of_samples(call, cells(g), results)
            return tuple(call.result(r) for r in results[: len(primals)])

    return _named(vjp, function, "vjp", "The transposed derivative of {} at `primals`, applied to `cotangent`.")


def _options(function: Callable[..., Any], kind: type[Op], options: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The options in order, where all names are known; arrays may be among the names."""
    defaults = defaults_of(function, kind)
    if not all(n in defaults or n in kind.arrays for n in options):
        return None
    return tuple([options.get(n, d) for n, d in defaults.items()])


@lru_cache
def defaults_of(function: Callable[..., Any], kind: type[Op]) -> dict[str, Any]:
    """The options of a public function in order, each with its default."""
    given = parameters_of(function)
    return {n: p.default for n, p in given.items() if n not in (*kind.arrays, "arithmetic")}


def _derived_quickly(
    function: Callable[..., Any],
    kind: type[Op],
    primals: Any,
    others: Any,
    arithmetic: str,
    options: Mapping[str, Any],
    asked: Sequence[type[Op]],
) -> tuple[Array, ...] | None:
    """The short way for derivatives that were computed before, as `_quickly` is for values."""
    if type(primals) is not tuple or type(others) is not tuple or len(primals) > len(kind.arrays):
        return None
    ordered = _options(function, kind, options)
    if ordered is None or not all(map(is_plain, ordered)):
        return None
    if any(n in options for n in kind.arrays[: len(primals)]):
        return None
    given = (*primals, *map(options.get, kind.arrays[len(primals) :]), *others)
    results = []
    for derived in asked:
        if len(given) != len(derived.arrays):
            return None
        result = _quickly(derived, given, arithmetic, ordered)
        if result is None:
            return None
        results.append(result)
    return tuple(results)


def _remember(
    derived: type[Op],
    arrays: Sequence[Any],
    function: Callable[..., Any],
    arithmetic: str,
    options: Mapping[str, Any],
) -> None:
    """Bind a derivative that was just computed, so that the next call goes the short way."""
    ordered = _options(function, derived.base, options)  # type: ignore[attr-defined]
    if ordered is not None:
        bound_to(derived, arrays, arithmetic, ordered)


def _vjp_of_samples(call: Call, g: Array | None, results: Sequence[Array | None]) -> None:
    """Sample by sample for x; summed over the samples for the arrays that all samples share."""
    assert g is not None and results[0] is not None
    arrays = [cells(a) for a in call.arrays]
    sums: list[Array] = []
    for at, one in samples(call.bound, arrays):
        results[0][whole(at)], *shared = call.bound.op.vjp(one, g[at])
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
        if op is function or op is kind or (isinstance(op, str) and op == kind.name):
            return function, kind
    names = [kind.name for kind in ops.ALL]
    hint = meant(op, names, "Pass its name or the function.")
    raise ArgumentError("O1", f"an operator among {', '.join(names)}", f"op={shown(op)}", hint)


def output_shape(op: Any, *shapes: Shape, **options: Any) -> Shape:
    """The shape that an operator's result would have; `op` is its name or the function, `shapes` those of the arrays.

    >>> import lunette as ln
    >>> ln.output_shape("max_pool", (8, 3, 32, 32), kernel=3, stride=2, padding=1)
    (8, 3, 16, 16)
    >>> ln.output_shape(ln.conv, (8, 3, 32, 32), (16, 3, 5, 5), padding="same")
    (8, 16, 32, 32)
    """
    with speaking("output_shape"):
        return bound_of(op, shapes, options).out


def bound_of(op: Any, shapes: Sequence[Any], options: Mapping[str, Any], lead: int = 2) -> Bound:
    """The operator value that these shapes and options make."""
    function, kind = lookup(op)
    given = {**dict.fromkeys((n for n in kind.scalars if n not in options), ()), **options}
    named = dict(zip(kind.arrays, shapes, strict=False))
    asked = named_request(function, named, {n: v for n, v in given.items() if n not in named or n in options}, lead)
    outlines = [tuple(a[:65]) if is_sequence(a) else () for a in asked.operands]
    with speaking(kind.name, known_rank(kind, outlines, lead, asked.options)):
        check_arithmetic(asked)
        if len(shapes) > len(kind.arrays):
            need = f"the shapes of {', '.join(kind.arrays)}"
            raise ArgumentError("O2", need, f"{len(shapes)} shapes", "Options are keywords.")
        sizes = [
            () if n in kind.scalars and not is_sequence(a) else check_sizes(n, a)
            for n, a in zip(kind.arrays, asked.operands, strict=True)
        ]
    return bind(kind, sizes, lead, asked.options)


def check_sizes(name: str, shape: Any) -> Shape | None:
    """Rule O4."""
    if shape is None and name != "x":
        return None
    if not is_sequence(shape) or len(shape) > 64:
        got = f"{shown(shape)} of type {type(shape).__name__}"
        raise DTypeError("O4", f"the shape of {name} as a tuple of at most 64 sizes", got, f"Pass {name}.shape.")
    sizes = tuple(integer(f"a size of {name}", m) for m in shape)
    if any(m < 0 for m in sizes):
        raise ArgumentError("O4", f"sizes of {name} >= 0", f"shape {sizes}", f"Pass {name}.shape.")
    return sizes
