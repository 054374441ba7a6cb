"""The exact answer to a case.

Small cases run the specification: on rationals where the operator is rational, on balls of 200 bits or more where it
has roots or exponentials, on floats where the data hold NaN or infinities. Large cases run rounded arithmetic, which
gives the float64 nearest to the exact answer, roots and exponentials included. What an answer that is not exact may be
off by is allowed to those who are compared with it.

How far a computation may be from it is lunette.conform.allowance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

import flint
import numpy as np

from lunette import array, spec
from lunette.conform.allowance import Answer, allowed, answer_of, is_analytic, run_lunette, term_sizes
from lunette.conform.case import Case, Data
from lunette.conform.data import limits
from lunette.errors import LunetteError
from lunette.number import Array
from lunette.ops import max_pool
from lunette.window import Axis, Window

MOST_PRODUCTS = 30_000
"""Cases with more products than this are answered in float64."""
BITS = (200, 2400)
"""Of balls; the second where cancellation leaves open which float64 is nearest: what is then left is below them."""


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
        sizes = [np.asarray(s, np.float64) for s in term_sizes(case, data, exact)]
    except LunetteError as refusal:
        if case.is_empty(refusal) and empty == "-inf" and case.kind.joins is np.maximum:
            return _with_empty_windows(case, data)
        return Truth((), refusal, case.is_empty(refusal))
    answers = [answer_of(case, data, *parts) for parts in zip(names(case), exact, sizes, strict=True)]
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
    if case.kind.weighted:
        return out * prod(case.shapes[1][2:]) * max(case.shapes[1][:2], default=1)
    return out * (cells if "kernel" in case.options else prod(case.space))


# ---- exact values


def _on_specification(case: Case, data: Data) -> list[tuple[Array, Array]]:
    """(hi, lo) of every answer."""
    number = _number_for(case, data)
    before = flint.ctx.prec
    try:
        for bits in BITS:
            flint.ctx.prec = bits
            samples = [_sample(case, data, at, number) for at in np.ndindex(*case.batch)]
            if all(_decided(v) for s in samples for a in s for v in np.asarray(a, object).ravel()):
                break
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
    return {n: number(v) if n in case.kind.scalars else v for n, v in case.options.items()}


def _number_for(case: Case, data: Data) -> Callable[[float], Any]:
    """The number type that answers this case exactly."""
    finite = all(np.isfinite(a).all() for a in data.every)
    if not finite or (case.kind.exact and case.mode in ("forward", "indices")):
        return float  # selecting is exact, and -0.0 is a value of its own
    if is_analytic(case.kind):
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


def _decided(value: Any) -> bool:
    """Whether all numbers in a ball have the same float64 nearest to them."""
    return not isinstance(value, flint.arb) or float(value.lower()) == float(value.upper())


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
    """The nearest float64 of every answer: none of it comes from the kernels that are measured."""
    primals, tangents = (tuple(a.astype(np.float64) for a in arrays) for arrays in (data.primals, data.tangents))
    cotangent = None if data.cotangent is None else data.cotangent.astype(np.float64)
    found = run_lunette(case, Data(primals, tangents, cotangent), arithmetic="rounded")
    return [(np.asarray(a, np.float64), np.zeros(())) for a in found]


def _doubted(case: Case, data: Data, answer: Answer, *, rounded: bool) -> Answer:
    """The same with what an answer in float64 may be off by added to what is allowed: half an ulp, or the bound."""
    hi = np.abs(answer.hi)
    finite = all(np.isfinite(a).all() for a in data.every)
    if answer.exact or (not rounded and _number_for(case, data) is not float):
        return answer
    if rounded and (finite or not is_analytic(case.kind)):
        doubt = np.where(np.isfinite(hi), hi, 0) * 2.0**-53 + float(limits(np.dtype(np.float64)).smallest_subnormal)
    else:  # infinite cells share the derivative of a norm: a computation in floats
        with np.errstate(all="ignore"):
            doubt = allowed(replace(case, dtype="float64"), data, answer.name, answer.hi, answer.size)
    return replace(answer, bound=answer.bound + doubt)


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
    kernel, stride, dilation = (tuple(getattr(a, n) for a in axes) for n in ("kernel", "stride", "dilation"))
    best, index = max_pool(padded, kernel, stride=stride, dilation=dilation, return_indices=True)
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
        answers.append(replace(answer_of(case, data, name, (a, np.zeros(())), np.abs(np.nan_to_num(a))), free=f))
    return Truth(tuple(answers), empty=True)
