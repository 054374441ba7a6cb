"""The exact answer to a case, and how far from it a sound computation in the case's dtype may be.

Small cases run the specification: on rationals where the operator is rational, on balls of 200 bits where it has
roots or exponentials, on floats where the data hold NaN or infinities. Large cases run lunette's rounded arithmetic,
which gives the float64 nearest to the exact answer, or its float64 kernels where there are roots or exponentials. What
an answer that is not exact may be off by is allowed to those who are compared with it.

The bound of a sum of t terms is gamma(h) * sum|x||w| + (t+2) * tiny with h = min(t, 512 + ceil(t/512)) + 2: any order
of summation in blocks keeps it, a running sum of 2**25 ones does not. float16 and bfloat16 are accumulated in float32
and rounded to 16 bits: once for a value, up to four times in a derivative that is composed of several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log, prod
from typing import Any

import flint
import numpy as np

from lunette import array, spec
from lunette.arithmetic.error import gamma, height, sum_bound
from lunette.conform.case import EMPTY_RULES, Case, Data
from lunette.conform.data import DTYPES, limits
from lunette.errors import LunetteError
from lunette.number import Array
from lunette.ops import ALL
from lunette.window import Axis, Shape, Window

FUNCTIONS: dict[str, Callable[..., Any]] = {kind.name: f for kind, f in ALL.items()}
JVP = {kind.name: array.jvp_of(f, kind) for kind, f in ALL.items()}
VJP = {kind.name: array.vjp_of(f, kind) for kind, f in ALL.items()}
SELECTING = frozenset({"max_pool", "adaptive_max_pool", "global_max_pool"})
ANALYTIC = frozenset({"lp_pool", "smooth_max_pool"})
MOST_PRODUCTS = 30_000
"""Cases with more products than this are answered in float64."""
BITS = 200


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


@dataclass(frozen=True, slots=True)
class Truth:
    """The right answers in the order in which a backend returns them, or the refusal that is right instead."""

    answers: tuple[Answer, ...] = ()
    refusal: LunetteError | None = None
    empty: bool = False
    """Some window holds no cell of the input."""


def truth(case: Case, data: Data, empty: str = "refused") -> Truth:
    """What is right. `empty` is what the backend's dialect makes of a maximum over no cell: "refused" or "-inf"."""
    try:
        # Refusals do not depend on how many samples there are.
        array.output_shape(case.op, *case.shapes, **case.options)
        large = case.size + products(case) > MOST_PRODUCTS
        exact = _in_float64(case, data) if large else _on_specification(case, data)
        sizes = [np.asarray(s, np.float64) for s in _sizes(case, data, exact)]
    except LunetteError as refusal:
        if refusal.rule == "M1" and empty == "-inf" and case.op == "max_pool":
            return _with_empty_windows(case, data)
        return Truth((), refusal, refusal.rule in EMPTY_RULES)
    answers = [_answer(case, data, *parts) for parts in zip(names(case), exact, sizes, strict=True)]
    return Truth(tuple(_doubted(case, data, a, rounded=large) for a in answers))


def names(case: Case) -> list[str]:
    """What a backend returns for this case, in order."""
    if case.mode == "vjp":
        return [f"vjp of {n}" for n in case.kind.arrays[: len(case.shapes)]]
    return {"forward": ["y"], "indices": ["y", "index"], "jvp": ["jvp"]}[case.mode]


def products(case: Case) -> int:
    """How many products the specification would form, at most."""
    out = prod(case.output or ())
    cells = prod(min(k, n + 1) for k, n in zip(case.per_axis("kernel"), case.space, strict=True))
    if case.op.startswith("conv"):
        return out * prod(case.shapes[1][2:]) * max(case.shapes[1][:2], default=1)
    return out * (cells if "kernel" in case.options else prod(case.space))


# ---- exact values


def _on_specification(case: Case, data: Data) -> list[tuple[Array, Array]]:
    """(hi, lo) of every answer."""
    number = _number_for(case, data)
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        samples = [_sample(case, data, at, number) for at in np.ndindex(*case.batch)]
        wanted = [_answer_shape(case, p) for p in range(len(names(case)))]
        answers: list[tuple[Array, Array]] = []
        for p, shape in enumerate(wanted):
            if not samples:
                answers.append((np.zeros(shape), np.zeros(shape)))
            elif case.mode == "vjp" and p > 0:  # shared by the samples: the sum over them
                answers.append(_split(sum(s[p] for s in samples), shape))
            else:
                answers.append(_split(np.array([s[p] for s in samples], object), shape))
        return answers
    finally:
        flint.ctx.prec = before


def _sample(case: Case, data: Data, at: tuple[int, ...], number: Callable[[float], Any]) -> list[Array]:
    first, *rest = data.primals
    primals = [_numbers(first[at], number), *(_numbers(a, number) for a in rest)]
    options = _options(case, number)
    op: Any = getattr(spec, case.op)
    if case.mode == "jvp":
        t, *rest_t = data.tangents
        tangents = [_numbers(t[at], number), *(_numbers(a, number) for a in rest_t)]
        return [getattr(spec, f"{case.op}_jvp")(tuple(primals), tuple(tangents), **options)]
    if case.mode == "vjp":
        assert data.cotangent is not None
        return list(getattr(spec, f"{case.op}_vjp")(tuple(primals), _numbers(data.cotangent[at], number), **options))
    if case.mode == "indices":
        return list(op(*primals, **options, return_indices=True))
    return [op(*primals, **options)]


def _options(case: Case, number: Callable[[float], Any] = float) -> dict[str, Any]:
    options = dict(case.options)
    if "beta" in options:
        options["beta"] = number(options["beta"])
    return options


def _number_for(case: Case, data: Data) -> Callable[[float], Any]:
    """The number type that answers this case exactly."""
    finite = all(np.isfinite(a).all() for a in data.every)
    if not finite or (case.op in SELECTING and case.mode in ("forward", "indices")):
        return float  # selecting is exact, and -0.0 is a value of its own
    if case.op in ANALYTIC:
        return lambda v: flint.arb(v)
    return lambda v: flint.fmpq(*float(v).as_integer_ratio())


def _numbers(a: Array, number: Callable[[float], Any]) -> Array:
    cells = np.empty(a.shape, object)
    cells.ravel()[:] = [number(float(v)) for v in a.ravel()]
    return cells


def _answer_shape(case: Case, p: int) -> tuple[int, ...]:
    shape = case.shapes[p] if case.mode == "vjp" else case.output
    assert shape is not None
    return shape


def _split(a: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Exact numbers as hi + lo."""
    pairs = [_pair(v) for v in np.asarray(a, object).ravel()]
    both = np.array(pairs, np.float64).reshape(-1, 2)
    return both[:, 0].reshape(shape), both[:, 1].reshape(shape)


def _pair(value: Any) -> tuple[float, float]:
    if isinstance(value, float | int | np.generic):
        return float(value), 0.0
    if isinstance(value, flint.arb):
        middle = value.mid()
        hi = float(middle)
        return hi, float(middle - hi) if abs(hi) != inf else 0.0
    q = flint.fmpq(value) if isinstance(value, flint.fmpq) else flint.fmpq(value.numerator, value.denominator)
    try:
        hi = int(q.p) / int(q.q)
    except OverflowError:
        return (inf if q > 0 else -inf), 0.0
    rest = q - flint.fmpq(*hi.as_integer_ratio())
    return hi, int(rest.p) / int(rest.q)


def _in_float64(case: Case, data: Data) -> list[tuple[Array, Array]]:
    """The nearest float64 of every answer; with roots or exponentials, what the kernels say."""
    primals, tangents = (tuple(a.astype(np.float64) for a in arrays) for arrays in (data.primals, data.tangents))
    cotangent = None if data.cotangent is None else data.cotangent.astype(np.float64)
    how = "fast" if case.op in ANALYTIC else "rounded"
    found = run_lunette(case, Data(primals, tangents, cotangent), arithmetic=how)
    return [(np.asarray(a, np.float64), np.zeros(())) for a in found]


def _doubted(case: Case, data: Data, answer: Answer, *, rounded: bool) -> Answer:
    """The same with what an answer in float64 may be off by added to what is allowed: half an ulp, or the bound."""
    hi = np.abs(answer.hi)
    if answer.exact or (not rounded and _number_for(case, data) is not float):
        return answer
    if rounded and case.op not in ANALYTIC:
        doubt = np.where(np.isfinite(hi), hi, 0) * 2.0**-53 + float(limits(np.dtype(np.float64)).smallest_subnormal)
    else:
        with np.errstate(all="ignore"):
            doubt = allowed(replace(case, dtype="float64"), data, answer.name, answer.hi, answer.size)
    return replace(answer, bound=answer.bound + doubt)


def run_lunette(case: Case, data: Data, **changed: Any) -> tuple[Array, ...]:
    """Lunette's public functions."""
    options = {**case.options, **changed}
    if case.mode == "jvp":
        return (JVP[case.op](data.primals, data.tangents, **options),)
    if case.mode == "vjp":
        return tuple(VJP[case.op](data.primals, data.cotangent, **options))
    if case.mode == "indices":
        return tuple(FUNCTIONS[case.op](*data.primals, **options, return_indices=True))
    return (FUNCTIONS[case.op](*data.primals, **options),)


# ---- windows without cells, for dialects that pad a maximum with -inf


def _with_empty_windows(case: Case, data: Data) -> Truth:
    """Cells by rank, padding below all of them: who wins is then lunette's own rule, and nobody is told apart."""
    (x,) = data.primals
    window = Window.sliding(
        case.space,
        case.per_axis("kernel"),
        case.options.get("stride"),
        case.options.get("padding", 0),
        case.options.get("dilation", 1),
        case.options.get("ceil_mode", False),
    )
    axes = [a for a in window.axes if isinstance(a, Axis)]
    out = window.out(case.space)
    ranks = np.unique(x.astype(np.float64), return_inverse=True)[1].reshape(x.shape).astype(np.float64)
    lead = [(0, 0)] * (x.ndim - case.d)
    ends = [(o - 1) * a.stride + a.span for o, a in zip(out, axes, strict=True)]
    after = [max(e - a.lo - n, 0) for e, a, n in zip(ends, axes, case.space, strict=True)]
    pads = [*lead, *((a.lo, hi) for a, hi in zip(axes, after, strict=True))]
    padded = np.pad(ranks, pads, constant_values=-1)
    plain = {"stride": tuple(a.stride for a in axes), "dilation": tuple(a.dilation for a in axes)}
    kernel = tuple(a.kernel for a in axes)
    best, index = FUNCTIONS["max_pool"](padded, kernel, **plain, return_indices=True)
    best, index = (a[(..., *(slice(m) for m in out))] for a in (best, index))
    none = best < 0
    place = np.stack(np.unravel_index(index, padded.shape[x.ndim - case.d :])) if case.d else index[None]
    place -= np.array([a.lo for a in axes]).reshape(-1, *[1] * index.ndim)
    room = tuple(max(n, 1) for n in case.space)
    flat = np.where(none, 0, np.ravel_multi_index(tuple(np.where(none, 0, place)), room))
    rows = flat.reshape(*x.shape[: x.ndim - case.d], prod(out))

    def taken(a: Array, otherwise: float) -> Array:
        if a.size == 0:
            return np.full(none.shape, otherwise)
        cells = a.astype(np.float64).reshape((*rows.shape[:-1], -1))
        return np.where(none, otherwise, np.take_along_axis(cells, rows, -1).reshape(none.shape))

    no = np.zeros(none.shape, bool)
    if case.mode == "jvp":
        arrays, free = [taken(data.tangents[0], 0.0)], [no]
    elif case.mode == "vjp":
        assert data.cotangent is not None
        back = np.zeros((*rows.shape[:-1], prod(room)))
        given = np.where(none, 0.0, data.cotangent.astype(np.float64)).reshape(rows.shape)
        for at in np.ndindex(*rows.shape[:-1]):
            np.add.at(back[at], rows[at], given[at])
        back = back[..., : prod(case.space)]
        arrays, free = [back.reshape(x.shape)], [np.zeros(x.shape, bool)]
    else:
        arrays, free = [taken(x, -inf), flat.astype(np.float64)][: len(names(case))], [no, none]
    answers = []
    for name, a, f in zip(names(case), arrays, free, strict=False):
        answers.append(replace(_answer(case, data, name, (a, np.zeros(())), np.abs(np.nan_to_num(a))), free=f))
    return Truth(tuple(answers), empty=True)


# ---- bounds


def _sizes(case: Case, data: Data, exact: Sequence[tuple[Array, Array]]) -> Sequence[Array]:
    """Of every answer, the sum of the sizes of its terms: the operator on absolute values."""
    plain = [np.abs(hi) for hi, _ in exact]
    if case.op in SELECTING and case.mode != "vjp":
        return plain
    if case.data == "ones" and case.values is None:
        return plain  # nothing cancels

    def positive(a: Array, most: float = 0.0) -> Array:
        return np.abs(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=most, neginf=most))

    keep = case.op in SELECTING or case.op == "smooth_max_pool"  # who wins is a matter of x itself
    if case.op == "smooth_max_pool" and case.mode == "forward":
        return plain
    most = inf if case.op == "lp_pool" and case.mode != "forward" else 0.0  # infinite cells share the derivative
    primals = tuple(a.astype(np.float64) if keep else positive(a, most) for a in data.primals)
    cotangent = None if data.cotangent is None else positive(data.cotangent)
    changed = {"divisor": abs(case.options["divisor"])} if case.options.get("divisor") is not None else {}
    if case.op in SELECTING and case.options.get("ties") == "split":
        changed["ties"] = "all"
    with np.errstate(all="ignore"):
        return [
            np.abs(a)
            for a in run_lunette(case, Data(primals, tuple(map(positive, data.tangents)), cotangent), **changed)
        ]


def _answer(case: Case, data: Data, name: str, exact: tuple[Array, Array], size: Array) -> Answer:
    hi, lo = exact
    dtype = DTYPES[case.dtype]
    no = np.zeros(hi.shape, bool)
    zero = np.zeros(hi.shape)
    selected = case.op in SELECTING and (case.mode in ("forward", "indices") or _one_winner_jvp(case))
    if selected:
        return Answer(name, hi, np.broadcast_to(lo, hi.shape), size, zero, True, no)
    with np.errstate(all="ignore"):
        bound = allowed(case, data, name, hi, size)
        most = float(limits(dtype).max)
        composed = case.mode in ("jvp", "vjp")  # of several calls, each rounded to the dtype
        wide = float(np.finfo(np.float32).max) if dtype.itemsize == 2 and not composed else most
        # Sums may overflow on their way, or round to infinity at the end; averages and norms may only do the latter.
        summed = case.op.startswith("conv") or case.mode == "vjp"
        free = (size > wide / 2) if summed else no
        free = free | ((np.abs(hi) + bound >= most) & (np.abs(hi) - bound <= most) & (bound > 0))
    return Answer(name, hi, np.broadcast_to(lo, hi.shape), size, bound, False, free)


def _one_winner_jvp(case: Case) -> bool:
    return case.mode == "jvp" and case.options.get("ties", "all" if "global" in case.op else "first") == "first"


def allowed(case: Case, data: Data, name: str, exact: Array, size: Array) -> Array:
    """How far an answer may be from the exact one, cell by cell."""
    dtype = DTYPES[case.dtype]
    work = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    u, tiny = _unit(work), float(limits(work).smallest_subnormal)
    t = terms(case, name)
    analytic = case.op in ANALYTIC
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
    if case.op.startswith("conv"):
        a, b = case.shapes[1][:2]
        groups = int(case.options.get("groups", 1))
        outs, ins = (a // groups, b) if case.op == "conv" else (b, a // groups)
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


def _analytic(case: Case, data: Data, exact: Array, size: Array, t: int, u: float) -> Array:
    """Values: 4 ulp (8 u) and the propagated bound of the sum. Derivatives: counted roundings of weights and sums.

    A p-norm takes powers of p + 3 roundings, a sum, and a root whose exponent is rounded, which costs the logarithm of
    the sum; its weights take two such powers. A smooth maximum rounds beta*x and its distance to the winner, which exp
    turns into a relative error.
    """
    x = np.abs(data.primals[0].astype(np.float64))
    largest = float(x[np.isfinite(x)].max(initial=0))
    if case.op == "lp_pool":
        p = float(case.options.get("p", 2))
        if p == inf:
            return 2 * gamma(t + 2, u) * size if case.mode != "forward" else np.zeros(exact.shape)
        reach = log(t) + p * abs(log(largest or 1))
        if case.mode == "forward":
            return (8 * u + gamma(height(t), u) / p + 2 * u * (p + 3 + reach / p)) * np.abs(exact)
        steps = t + p + 6 + reach
        return 2 * gamma(2 * p * steps + t + 4 * case.d, u) * size
    beta = abs(float(case.options["beta"]))
    if case.mode == "forward":
        return 8 * u * np.abs(exact) + gamma(height(t + 2), u) / beta + 4 * u * largest
    steps = 8 * beta * largest + t + 4 + log(t)
    return (2 * gamma(2 * steps + 4, u) + gamma(t + 4, u)) * size
