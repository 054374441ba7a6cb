"""How far from the exact answer a sound computation in a case's dtype may be.

What selects is exact. The bound of a sum of t terms is gamma(h) * sum|x||w| + (t+2) * tiny with
h = min(t, 512 + ceil(t/512)) + 2: any order of summation in blocks keeps it, a running sum of 2**25 ones does not.
float16 and bfloat16 are accumulated in float32 and rounded to 16 bits: once for a value, up to four times in a
derivative that is composed of several calls. Operators with roots or exponentials have bounds of their own (how_far).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log, prod
from typing import Any

import numpy as np

from lunette import array
from lunette.arithmetic.error import gamma, height, sum_bound
from lunette.conform.case import Case, Data
from lunette.conform.data import DTYPES, limits
from lunette.errors import ArgumentError
from lunette.number import Array
from lunette.ops import ALL, LpPool, SmoothMaxPool, Windowed
from lunette.rules import Rule
from lunette.window import Shape


@dataclass(frozen=True, slots=True)
class Answer:
    """One array of the exact answer, as hi + lo in float64, and what a computation of it is allowed."""

    name: str
    hi: Array
    lo: Array
    size: Array
    """The sum of the sizes of all terms: errors are measured in units of u times this."""
    bound: Array
    exact: bool
    """The answer is one of the cells given: anything but equality is wrong."""
    free: Array
    """Cells without a right answer: a partial sum may overflow, or a window without cells has no index."""


def run_lunette(case: Case, data: Data, **changed: Any) -> tuple[Array, ...]:
    """Lunette's public functions."""
    options = {**case.options, **changed}
    function = ALL[case.kind]
    if case.mode == "jvp":
        return (_jvp_of(function, case.kind)(data.primals, data.tangents, **options),)
    if case.mode == "vjp":
        return tuple(_vjp_of(function, case.kind)(data.primals, data.cotangent, **options))
    if case.mode == "indices":
        return tuple(function(*data.primals, **options, return_indices=True))
    return (function(*data.primals, **options),)


_jvp_of, _vjp_of = lru_cache(array.jvp_of), lru_cache(array.vjp_of)


def term_sizes(case: Case, data: Data, exact: Sequence[tuple[Array, Array]]) -> Sequence[Array]:
    """Of every answer, the sum of the sizes of its terms: the operator on absolute values."""
    plain = [np.abs(hi) for hi, _ in exact]
    kind = case.kind
    if kind.selects and case.mode != "vjp":
        return plain
    if case.data == "ones" and case.values is None:
        return plain  # nothing cancels

    def positive(a: Array, most: float = 0.0) -> Array:
        return np.abs(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=most, neginf=most))

    keep = not kind.linear_in and not kind.powers  # who wins is a matter of x itself
    if keep and case.mode == "forward":
        return plain
    most = inf if kind.powers and case.mode != "forward" else 0.0  # infinite cells share the derivative
    primals = tuple(a.astype(np.float64) if keep else positive(a, most) for a in data.primals)
    cotangent = None if data.cotangent is None else positive(data.cotangent)
    changed = {"divisor": abs(case.options["divisor"])} if case.options.get("divisor") is not None else {}
    if case.options.get("ties") == "split":
        changed["ties"] = "all"
    with np.errstate(all="ignore"):
        return [
            np.abs(a)
            for a in run_lunette(case, Data(primals, tuple(map(positive, data.tangents)), cotangent), **changed)
        ]


def answer_of(case: Case, data: Data, name: str, exact: tuple[Array, Array], size: Array) -> Answer:
    """The exact answer, with what a computation of it is allowed."""
    hi, lo = exact
    dtype = DTYPES[case.dtype]
    no = np.zeros(hi.shape, bool)
    zero = np.zeros(hi.shape)
    selected = case.kind.exact and (case.mode in ("forward", "indices") or _one_winner_jvp(case))
    if selected:
        return Answer(name, hi, np.broadcast_to(lo, hi.shape), size, zero, True, no)
    with np.errstate(all="ignore"):
        bound = allowed(case, data, name, hi, size)
        most = float(limits(dtype).max)
        composed = case.mode in ("jvp", "vjp")  # of several calls, each rounded to the dtype
        wide = float(np.finfo(np.float32).max) if dtype.itemsize == 2 and not composed else most
        # Sums may overflow on their way, or round to infinity at the end; averages and norms may only do the latter.
        summed = case.kind.overflows or case.mode == "vjp"
        free = (size > wide / 2) if summed else no
        free = free | ((np.abs(hi) + bound >= most) & (np.abs(hi) - bound <= most) & (bound > 0))
    return Answer(name, hi, np.broadcast_to(lo, hi.shape), size, bound, False, free)


def _one_winner_jvp(case: Case) -> bool:
    return case.mode == "jvp" and case.option("ties") in ("first", None)


def allowed(case: Case, data: Data, name: str, exact: Array, size: Array) -> Array:
    """How far an answer may be from the exact one, cell by cell."""
    dtype = DTYPES[case.dtype]
    work = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    u, tiny = _unit(work), float(limits(work).smallest_subnormal)
    t = terms(case, name)
    analytic = is_analytic(case.kind)
    bound = _analytic(case, data, exact, size, t, u) + 32 * tiny if analytic else sum_bound(t, size, u, tiny)
    if work != dtype:
        roundings = 2 if case.mode == "forward" else 4
        bound = bound + roundings * (_unit(dtype) * size + float(limits(dtype).smallest_subnormal))
    return np.asarray(bound * (1 + 2.0**-20))  # `size` itself was computed in floats


def _unit(dtype: np.dtype[Any]) -> float:
    return float(limits(dtype).eps) / 2


def terms(case: Case, name: str) -> int:
    """The number of terms of the longest sum of an answer, or more."""
    space: Shape = case.space
    kernel: Shape = case.per_axis("kernel")
    out: Shape = (case.output or ())[len(case.batch) + 1 :]
    samples: int = prod(case.batch)
    if case.kind.weighted:
        a, b = case.shapes[1][:2]
        groups = int(case.options.get("groups", 1))
        outs, ins = (b, a // groups) if case.kind.windows == "transposed" else (a // groups, b)
        taps = prod(kernel)
        if name == "vjp of x":
            return max(taps * outs, 1)
        if name in ("vjp of w", "vjp of b"):
            return max(samples * prod(out), samples * prod(space), 1)
        return max((ins * taps + 1) * (2 if case.mode == "jvp" else 1), 1)
    if case.mode == "vjp":
        if "kernel" in case.options:
            return max(prod(min(int(k), m) for k, m in zip(kernel, out, strict=True)), 1)
        return max(prod(ceil(m / n) + 1 for m, n in zip(out, space, strict=True)), 1) if out else 1
    if "kernel" in case.options:
        return max(prod(min(int(k), n) for k, n in zip(kernel, space, strict=True)), 1)
    if "output_size" in case.options:
        return prod(ceil(n / m) + 1 for n, m in zip(space, out, strict=True))
    return max(prod(space), 1)


def is_analytic(kind: type[Windowed]) -> bool:
    """Whether an operator has roots or exponentials: its exact values are balls, its bounds are its own."""
    return kind.needs == "exp"


@dataclass(frozen=True, slots=True)
class Question:
    """What a bound depends on."""

    case: Case
    exact: Array
    size: Array
    largest: float
    """The greatest finite |cell| of x."""
    terms: int
    u: float
    """The unit roundoff of the type that is computed in."""


def _analytic(case: Case, data: Data, exact: Array, size: Array, t: int, u: float) -> Array:
    x = np.abs(data.primals[0].astype(np.float64))
    return rule_of(case.kind)(Question(case, exact, size, float(x[np.isfinite(x)].max(initial=0)), t, u))


def rule_of(kind: type[Windowed]) -> Callable[[Question], Array]:
    """The rule of an operator with roots or exponentials, or of the one that it is made from. Rule V10."""
    if not how_far.has(kind):
        need = f"a rule of how far {kind.name} may be off, since it has roots or exponentials"
        hint = f"Register one: lunette.conform.allowance.how_far.register({kind.__name__})."
        raise ArgumentError("V10", need, "none", hint, who="conform")
    return how_far.of(kind)


# ---- roots and exponentials
#
# Values: 4 ulp (8 u) and the propagated bound of the sum. Derivatives: counted roundings of weights and sums.


@Rule
def how_far(q: Question) -> Array:
    """How far an operator with roots or exponentials may be off, by its class: of others nothing is known."""
    return np.full(q.exact.shape, inf)


@how_far.register(LpPool)
def _of_norms(q: Question) -> Array:
    """Powers of p + 3 roundings, a sum, a root whose exponent is rounded, which costs the logarithm of the sum.

    Weights take two such powers.
    """
    p, forward = float(q.case.options.get("p", 2)), q.case.mode == "forward"
    if p == inf:
        return 2 * gamma(q.terms + 2, q.u) * q.size if not forward else np.zeros(q.exact.shape)
    reach = log(q.terms) + p * abs(log(q.largest or 1))
    if forward:
        per_cell = 8 * q.u + gamma(height(q.terms), q.u) / p + 2 * q.u * (p + 3 + reach / p)
        return np.asarray(per_cell * np.abs(q.exact))
    steps = q.terms + p + 6 + reach
    return 2 * gamma(2 * p * steps + q.terms + 4 * q.case.d, q.u) * q.size


@how_far.register(SmoothMaxPool)
def _of_smooth_maxima(q: Question) -> Array:
    """Beta*x is rounded, and its distance to the winner, which exp turns into a relative error."""
    beta = abs(float(q.case.options["beta"]))
    if q.case.mode == "forward":
        return 8 * q.u * np.abs(q.exact) + gamma(height(q.terms + 2), q.u) / beta + 4 * q.u * q.largest
    steps = 8 * beta * q.largest + q.terms + 4 + log(q.terms)
    return (2 * gamma(2 * steps + 4, q.u) + gamma(q.terms + 4, q.u)) * q.size
