"""How far a float result may be from the exact one, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, overload

import ml_dtypes
import numpy as np

from lunette import _native
from lunette.array import defaults_of, lookup, resolve_named, to_numpy
from lunette.errors import DTypeError, ShapeError, error_context
from lunette.number import Array, cells_of, each
from lunette.op import Op, apply
from lunette.ops import ALL
from lunette.ops.avg_pool import AvgPool
from lunette.ops.lp_pool import LpPool
from lunette.ops.max_pool import MaxPool
from lunette.ops.smooth_max_pool import SmoothMaxPool
from lunette.window import Shape


def float_info(dtype: np.dtype[Any]) -> Any:
    """What is known of a float dtype, numpy's or bfloat16: numpy.finfo of either."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


@overload
def roundings(terms: int) -> int: ...
@overload
def roundings(terms: Array) -> Array: ...
def roundings(terms: int | Array) -> int | Array:
    """How many roundings a term of a sum of so many passes through at most: what the kernels promise."""
    blocked = _native.SUM_BLOCK + -(-terms // _native.SUM_BLOCK)
    return min(terms, blocked) if isinstance(terms, int) else np.minimum(terms, blocked)


@overload
def height(terms: int) -> int: ...
@overload
def height(terms: Array) -> Array: ...
def height(terms: int | Array) -> int | Array:
    """The h of the contract's bound: the roundings of a sum, and two around it."""
    return roundings(terms) + 2


@overload
def gamma(h: float, u: float) -> float: ...
@overload
def gamma(h: Array, u: float) -> Array: ...
def gamma(h: float | Array, u: float) -> float | Array:
    """The relative error of h roundings; of 1/u or more of them nothing is known."""
    x = h * u
    if isinstance(x, np.ndarray):
        return np.where(x < 1, x / np.maximum(1 - x, u), np.inf)
    return x / (1 - x) if x < 1 else math.inf


def sum_bound(terms: Any, size: Any, u: float, tiny: float) -> Any:
    """How far a sum of so many terms, whose absolute values add up to `size`, may be from the exact one.

    A product or a quotient that underflows is off by tiny/2 whatever its size, and each of them may be: so what
    underflow costs grows with the terms, however they are blocked. Sums do not underflow.
    """
    return gamma(height(terms), u) * size + (terms + 2) * tiny


def error_bound(op: Any, inputs: Sequence[Any], **options: Any) -> Array:
    """How far `arithmetic="fast"` may be from the exact result, for each output: a bound known before computing.

    Sums of t products keep gamma(h) * sum|x||w| + (t + 2) * tiny with h = min(t, 512 + ceil(t/512)) + 2; selecting
    operators are exact; smooth max and Lp add 4 units in the last place. `inputs` are the arrays of one call, `options`
    its own.

    >>> import numpy as np, lunette as ln
    >>> x, w = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
    >>> ln.error_bound("conv", (x, w)) < 1e-6
    array([[[ True,  True,  True]]])
    """
    _, kind = lookup(op)
    given: Sequence[Any] = inputs if isinstance(inputs, tuple | list) else (inputs,)
    with error_context("error_bound"):
        beside = [options[n] for n in kind.arrays[len(given) :] if n in options]  # arrays may be among the options
        arrays = [_array(a, "an input") for a in (*given, *beside)]
        dtype = arrays[0].dtype
        if dtype.kind != "f" and dtype != ml_dtypes.bfloat16:
            raise DTypeError("D1", "float arrays", f"dtype {dtype}", "The bound is that of a float result.")
    named = dict(zip(kind.arrays, arrays, strict=False))
    resolved = resolve_named(op, [a.shape for a in arrays], {n: v for n, v in options.items() if n not in named})
    ordered = _ordered(op, kind, options, named)
    with np.errstate(all="ignore"):  # where a sum of magnitudes overflows, nothing is known: the bound is infinite
        return _bound(kind, resolved.op, arrays, ordered, dtype)


def _ordered(op: Any, kind: type[Op], options: Mapping[str, Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    function, _ = lookup(op)
    every = {**defaults_of(function, kind), **{n: v for n, v in options.items() if n not in named}}
    return tuple(every[n] for n in defaults_of(function, kind))


def _bound(kind: type[Op], op: Op, arrays: list[Array], options: tuple[Any, ...], dtype: np.dtype[Any]) -> Array:
    info = float_info(dtype)
    # Half precision is summed in float32 and rounded once: its bound is that of float32 and half a unit more.
    half = info.bits == 16
    u, tiny = (2.0**-24, 2.0**-149) if half else (float(info.eps) / 2, float(info.smallest_subnormal))
    missing = [None] * (len(kind.arrays) - len(arrays))
    wide = [abs(a.astype(np.float64)) for a in arrays]
    if issubclass(kind, MaxPool):
        y = apply(kind, [*wide, *missing], "fast", *options)
        return np.zeros(np.shape(y[0] if isinstance(y, tuple) else y))
    counted = [np.ones(a.shape) for a in arrays]
    space = arrays[0].shape[arrays[0].ndim - op.window.d :]  # type: ignore[attr-defined]
    if issubclass(kind, SmoothMaxPool):
        beta = float(arrays[1])
        y = abs(apply(kind, [arrays[0].astype(np.float64), np.array(beta)], "fast", *options))
        terms = _counts(op, space, y.shape)
        return np.asarray(4 * _spacing(y, info) + gamma(height(terms + 2), u) / abs(beta))
    if issubclass(kind, LpPool):
        y = apply(kind, wide, "fast", *options)
        p = getattr(op, "p", 1.0)
        return np.asarray(
            4 * _spacing(y, info) + gamma(height(_counts(op, space, y.shape) + 2), u) * y / max(min(p, 1e9), 1.0)
        )
    names = tuple(_names(kind))
    if issubclass(kind, AvgPool) and "divisor" in names:
        sized = tuple(abs(v) if n == "divisor" and v is not None else v for n, v in zip(names, options, strict=True))
        ones = tuple(1.0 if n == "divisor" else v for n, v in zip(names, options, strict=True))
    else:
        sized = ones = options
    size = apply(kind, [*wide, *missing], "fast", *sized) * (1 + 2.0**-20)
    terms = (
        _counts(op, space, size.shape)
        if issubclass(kind, AvgPool)
        else apply(kind, [*counted, *missing], "fast", *ones)
    )
    bound = sum_bound(np.ceil(terms), size, u, tiny)
    return np.asarray(bound + _spacing(size, info) / 2 if half else bound)


def _names(kind: type[Op]) -> Any:
    return defaults_of(ALL[kind], kind)


def _counts(op: Any, space: Shape, shape: Shape) -> Array:
    """How many cells each window of a pool has, padding counted."""
    counts = np.ones(())
    for t in op.window.tables(space):
        counts = np.multiply.outer(counts, t.inside.astype(np.float64))
    return np.broadcast_to(counts if counts.ndim and len(shape) > counts.ndim else counts.ravel()[0], shape)


def _spacing(y: Array, info: Any) -> Array:
    """The unit in the last place of a dtype at |y|."""
    e = np.maximum(np.frexp(abs(y))[1] - 1, int(info.minexp))
    return np.asarray(np.ldexp(1.0, e - int(info.nmant)))


def ulps(a: Any, exact: Any) -> Array:
    """The error of floats in units in the last place of the exact values, which may be numbers of any type.

    >>> from fractions import Fraction
    >>> import numpy as np, lunette as ln
    >>> ln.ulps(np.float32([1 / 3, 0.5]), [Fraction(1, 3), Fraction(1, 2)]).round(2)
    array([0.33, 0.  ])
    """
    with error_context("ulps"):
        got = _array(a, "a")
    if got.dtype.kind != "f" and got.dtype != ml_dtypes.bfloat16:
        raise DTypeError("D1", "an array of floats", f"dtype {got.dtype}", "Pass the result as it was.", who="ulps")
    with error_context("ulps"):
        true = cells_of(to_numpy(exact, "exact").array if hasattr(exact, "__dlpack__") else exact, "exact")
        if true.shape not in (got.shape, ()):
            need = f"exact values of shape {got.shape}"
            raise ShapeError("D7", need, f"shape {true.shape}", "One value for each float, or one for all.")
    true = np.broadcast_to(true, got.shape)
    info = float_info(got.dtype)

    def one(y: Any, v: Any) -> float:
        y = float(y)
        if (isinstance(v, float | np.floating) and not math.isfinite(v)) or not math.isfinite(y):
            w = float(v) if isinstance(v, float | np.floating) or math.isnan(y) else _overflowed(_as_fraction(v), info)
            return 0.0 if y == w or (math.isnan(y) and math.isnan(w)) else math.inf
        q = _as_fraction(v)
        size = abs(q)
        e = int(info.minexp)
        if size:
            e = size.numerator.bit_length() - size.denominator.bit_length()
            e = max(e - (size < Fraction(2) ** e), int(info.minexp))
        return float(abs(Fraction(y) - q) / Fraction(2) ** (e - int(info.nmant)))

    return each(one, cells_of(got.astype(np.float64)), true).astype(np.float64)


def _array(a: Any, name: str) -> Array:
    """An array of any library; numbers and lists as numpy reads them."""
    return to_numpy(a, name).array if hasattr(a, "__dlpack__") else np.asarray(a)


def _overflowed(q: Fraction, info: Any) -> float:
    """The infinity that a number rounds to, if it does."""
    limit = Fraction(float(info.max)) + Fraction(2) ** (int(info.maxexp) - int(info.nmant) - 2)
    return math.copysign(math.inf, q) if abs(q) >= limit else 0.0


def _as_fraction(v: Any) -> Fraction:
    if hasattr(v, "fmpq"):  # a ball: its midpoint
        v = v.mid().fmpq()
    if hasattr(v, "p") and hasattr(v, "q"):
        return Fraction(int(v.p), int(v.q))
    try:
        return Fraction(v)
    except (TypeError, ValueError):
        return Fraction(float(v))
