"""How far a float result may be from the exact one, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, overload

import ml_dtypes
import numpy as np

from lunette import core
from lunette.array import defaults_of, lookup, resolve_named, to_numpy
from lunette.errors import DTypeError, ShapeError, error_context
from lunette.number import Array, cells_of, each
from lunette.op import KERNEL, Op, apply
from lunette.ops.avg_pool import AvgPool
from lunette.ops.lp_pool import LpPool
from lunette.ops.pool import Pool
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
    blocked = core.SUM_BLOCK + -(-terms // core.SUM_BLOCK)
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
        return bound_of(resolved.op, Given(kind, arrays, ordered, dtype))


def _ordered(op: Any, kind: type[Op], options: Mapping[str, Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    function, _ = lookup(op)
    every = {**defaults_of(function, kind), **{n: v for n, v in options.items() if n not in named}}
    return tuple(every[n] for n in defaults_of(function, kind))


@dataclass(frozen=True, slots=True)
class Given:
    """A call of a kernel of which a bound is asked: the arrays, the options in order, the dtype of the result."""

    kind: type[Op]
    arrays: Sequence[Array]
    options: tuple[Any, ...]
    dtype: np.dtype[Any]

    @property
    def info(self) -> Any:
        return float_info(self.dtype)

    @property
    def is_half(self) -> bool:
        """Half precision is summed in float32 and rounded once: its bound is that of float32 and half a unit more."""
        return bool(self.info.bits == 16)

    @property
    def u(self) -> float:
        """The unit roundoff of what is computed in."""
        return 2.0**-24 if self.is_half else float(self.info.eps) / 2

    @property
    def sizes(self) -> list[Array]:
        """The magnitudes of the cells."""
        return [abs(a.astype(np.float64)) for a in self.arrays]

    def run(self, arrays: Sequence[Array], **options: Any) -> Array:
        """The values of the operator on other arrays, with some other options."""
        names = defaults_of(lookup(self.kind)[0], self.kind)
        changed = [options.get(n, v) for n, v in zip(names, self.options, strict=True)]
        y = apply(self.kind, [*arrays, *[None] * (len(self.kind.arrays) - len(arrays))], "fast", *changed)
        return np.asarray(y[0] if isinstance(y, tuple) else y)

    def summed(self, terms: Array, size: Array) -> Array:
        """The bound of sums of so many terms, whose magnitudes add up to `size`, which is off by little."""
        size = size * (1 + 2.0**-20)
        tiny = 2.0**-149 if self.is_half else float(self.info.smallest_subnormal)
        bound = sum_bound(np.ceil(terms), size, self.u, tiny)
        return np.asarray(bound + _spacing(size, self.info) / 2 if self.is_half else bound)


@KERNEL.rule
def bound_of(op: Op, given: Given) -> Array:
    """How far a kernel's results may be from the exact ones: of a sum by its terms, and else nothing is known."""
    size = given.run(given.sizes)
    if op.exact or not op.linear_in:
        return np.full(size.shape, 0.0 if op.exact else np.inf)
    return given.summed(given.run([np.ones(a.shape) for a in given.arrays]), size)


@bound_of.register(AvgPool)
def _(op: AvgPool, given: Given) -> Array:
    size = given.run(given.sizes) if op.divisor is None else given.run(given.sizes, divisor=abs(op.divisor))
    return given.summed(_counts(op, given.arrays[0], size.shape), size)


@bound_of.register(SmoothMaxPool)
def _(op: SmoothMaxPool, given: Given) -> Array:
    x, beta = given.arrays[0], float(given.arrays[1])
    y = abs(given.run([x.astype(np.float64), np.array(beta)]))
    terms = _counts(op, x, y.shape) + 2
    return np.asarray(4 * _spacing(y, given.info) + gamma(height(terms), given.u) / abs(beta))


@bound_of.register(LpPool)
def _(op: LpPool, given: Given) -> Array:
    y = given.run(given.sizes)
    terms = _counts(op, given.arrays[0], y.shape) + 2
    return np.asarray(4 * _spacing(y, given.info) + gamma(height(terms), given.u) * y / max(min(op.p, 1e9), 1.0))


def _counts(op: Pool, x: Array, shape: Shape) -> Array:
    """How many cells each window of a pool has, padding counted."""
    counts, space = np.ones(()), x.shape[x.ndim - op.window.d :]
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
