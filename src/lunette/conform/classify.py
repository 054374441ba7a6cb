"""Which rule a failure breaks. The class comes from where the answer is wrong and by how much, not from the backend.

A class is a hypothesis that was tested: "divisor" means that another whole divisor explains the value, "accumulation"
that a running sum in the dtype does, "padding" that only windows over padding are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from lunette.array import jvp_of, vjp_of
from lunette.conform.allowance import is_analytic, run_lunette, terms
from lunette.conform.case import Case, Data
from lunette.conform.data import DTYPES, limits
from lunette.conform.reach import WINDOW, Fault, all_hold, border, cells_at, over_the_border, some_hold, touched
from lunette.conform.result import Verdict
from lunette.conform.truth import Truth, names
from lunette.number import Array
from lunette.ops import ALL, AvgPool, avg_pool

avg_pool_vjp = vjp_of(avg_pool, AvgPool)


def classify(case: Case, data: Data, verdict: Verdict, right: Truth, fault: Fault | None) -> str:
    """The name of the class; the first of the hypotheses that holds."""
    plain = {Verdict.CRASHED: "crash", Verdict.HUNG: "hang", Verdict.REFUSED: "refusal"}
    if verdict in plain and not (right.empty and verdict is Verdict.REFUSED):
        return plain[verdict]
    if right.empty:
        return "empty window"
    if verdict is Verdict.SHAPE or fault is None:
        return "size rule"
    return next(name for name, holds in HYPOTHESES if holds(case, data, fault))


# ---- hypotheses


def _absent(case: Case, data: Data, fault: Fault) -> bool:
    """NaN where zeros that stand for padding, or for cropped results, met an infinite factor."""
    special = any(not np.isfinite(a).all() for a in data.primals)
    bad = np.isnan(fault.got) & ~np.isnan(fault.right)
    return case.kind.weighted and special and bool(bad[fault.wrong].all()) and over_the_border(case)


def _zeros_around(case: Case, data: Data, fault: Fault) -> bool:
    """A maximum, or its like, that saw zeros in the place of padding."""
    joins = case.kind.joins
    if joins is None or fault.name != "y" or not bool(border(case)[fault.wrong].all()):
        return False
    right = fault.right[fault.wrong]
    other = joins(right, 0)
    return bool((fault.got[fault.wrong] == other).all() and (other != right).all())


def _signed_zero(case: Case, data: Data, fault: Fault) -> bool:
    return bool((fault.got == fault.right)[fault.wrong].all())


def _sign(case: Case, data: Data, fault: Fault) -> bool:
    """A p-norm of powers that kept their sign: the value is what they give, or a derivative where there are such."""
    p = float(case.options.get("p", 2))
    x = data.primals[0].astype(np.float64)
    if not case.kind.powers or p in (2, 4, np.inf) or not all_hold(case, fault, x < 0):
        return False
    if case.mode in ("jvp", "vjp"):
        return not some_hold(case, fault, np.isnan(x))
    got, right = fault.got.astype(np.float64)[fault.wrong], fault.right[fault.wrong]
    with np.errstate(all="ignore"):
        signed = _signed_norm(case, x, p)[fault.wrong].astype(DTYPES[case.dtype]).astype(np.float64)
        near = np.abs(got - signed) <= 0.01 * np.abs(signed)
    return (
        bool((near | (np.isnan(got) & np.isnan(signed)) | (got == signed)).all())
        and not (np.isinf(signed) & np.isfinite(right)).any()
    )


def _signed_norm(case: Case, x: Array, p: float) -> Array:
    """A p-norm of powers that keep their sign."""
    options = {n: v for n, v in case.options.items() if n in WINDOW}
    with np.errstate(all="ignore"):
        return np.asarray(avg_pool(x**p, **options, divisor=1) ** (1 / p))


def _nan(case: Case, data: Data, fault: Fault) -> bool:
    if _derivative_of_a_sum(case):
        return False
    if fault.name == "index":
        return bool(np.isnan(cells_at(data, fault.right))[fault.wrong].all())
    if fault.name == "y" and not (np.isnan(fault.got) | np.isnan(fault.right))[fault.wrong].any():
        return False
    return any(np.isnan(a).any() for a in data.primals[1:]) or all_hold(case, fault, np.isnan(data.primals[0]))


def _infinity(case: Case, data: Data, fault: Fault) -> bool:
    finite = np.isfinite(fault.got) & np.isfinite(fault.right)
    if _derivative_of_a_sum(case):
        return False
    if fault.name == "index" or (fault.name == "y" and finite[fault.wrong].all()):
        return False
    return any(np.isinf(a).any() for a in data.primals[1:]) or all_hold(case, fault, np.isinf(data.primals[0]))


def _derivative_of_a_sum(case: Case) -> bool:
    """The derivative of an average does not depend on x."""
    return case.mode in ("jvp", "vjp") and case.kind.linear_in == (0,)


def _overflow(case: Case, data: Data, fault: Fault) -> bool:
    """Finite cells and a finite result, but not for the backend."""
    if case.kind.powers and case.mode in ("jvp", "vjp"):
        return _powers_overflow(case, data, fault)
    bad = ~np.isfinite(fault.got) & np.isfinite(fault.right) & fault.wrong
    largest = max((float(np.abs(a).max(initial=0)) for a in data.primals), default=0.0)
    return bool(bad.any()) and largest > float(limits(DTYPES[case.dtype]).max) ** 0.3


def _powers_overflow(case: Case, data: Data, fault: Fault) -> bool:
    """The sum of powers, on which the derivative of a p-norm is built, leaves the range in every window concerned."""
    x, p = data.primals[0].astype(np.float64), float(case.options.get("p", 2))
    options = {n: v for n, v in case.options.items() if n in WINDOW}
    if not np.isfinite(x).all() or p == np.inf:
        return False
    with np.errstate(all="ignore"):
        beyond = avg_pool(np.abs(x) ** p, **options, divisor=1) > float(limits(DTYPES[case.dtype]).max)
        if case.mode == "vjp":
            beyond = avg_pool_vjp((x,), beyond.astype(np.float64), **options)[0] > 0
    return bool(beyond[fault.wrong].all())


def _underflow(case: Case, data: Data, fault: Fault) -> bool:
    """Flushed cells or powers: the answer is zero, or the data are that small."""
    least = float(limits(DTYPES[case.dtype]).tiny)
    if case.kind.exact and _as_if_flushed(case, data, fault, least):
        return True
    x = np.abs(data.primals[0].astype(np.float64))
    small = (x > 0) & (x < least**0.3)
    got, right = np.abs(fault.got.astype(np.float64))[fault.wrong], np.abs(fault.right)[fault.wrong]
    lost = got <= right if is_analytic(case.kind) else got == 0
    return fault.name != "index" and bool(small.any()) and bool(lost.all())


def _as_if_flushed(case: Case, data: Data, fault: Fault, least: float) -> bool:
    """The right answer to the same question with zeros in the place of subnormal numbers."""

    def flushed(a: Array) -> Array:
        return np.where(np.abs(a.astype(np.float64)) < least, 0.0, a.astype(np.float64))

    if not any((a.astype(np.float64) != flushed(a)).any() for a in data.primals):
        return False
    cotangent = None if data.cotangent is None else flushed(data.cotangent)
    other = Data(tuple(map(flushed, data.primals)), tuple(map(flushed, data.tangents)), cotangent)
    answer = run_lunette(case, other)[names(case).index(fault.name)]
    return bool((fault.got == answer)[fault.wrong].all())


def _tie(case: Case, data: Data, fault: Fault) -> bool:
    """The cell at the index is as great as the winner; a derivative is wrong only where several cells are.

    Several NaN are such cells, too; but where nothing else is wrong it is NaN that tells.
    """
    if not case.kind.selects or case.option("ties") is None:
        return False
    if fault.name == "index":
        return bool((cells_at(data, fault.right) == cells_at(data, fault.got))[fault.wrong].all())
    if case.mode not in ("jvp", "vjp"):
        return False
    (x,) = data.primals
    options = {n: v for n, v in case.options.items() if n != "ties"} | {"ties": "all"}
    function = ALL[case.kind]
    winners = jvp_of(function, case.kind)((x,), (np.ones_like(x),), **options)
    tied, nan = winners > 1, np.isnan(function(x, **case.options))
    if case.mode == "vjp":
        tied, nan = (vjp_of(function, case.kind)((x,), a.astype(x.dtype), **options)[0] > 0 for a in (tied, nan))
    return bool(tied[fault.wrong].all()) and not bool(nan[fault.wrong].all())


def _at_zero(case: Case, data: Data, fault: Fault) -> bool:
    """The derivative of a norm that is zero: 0, as every direction leads up."""
    if not case.kind.powers or case.mode != "jvp":
        return False
    return not bool(touched(case, data.primals[0].astype(np.float64) != 0)[fault.wrong].any())


def _divisor(case: Case, data: Data, fault: Fault) -> bool:
    """Every wrong value is the right one times a ratio of two window counts."""
    if not (case.kind.averages or case.kind.powers) or not over_the_border(case):
        return False
    if case.mode == "vjp":  # only cells that windows over the border read
        options = {n: v for n, v in case.options.items() if n in WINDOW}
        reach = avg_pool_vjp((np.ones(case.shapes[0]),), border(case).astype(np.float64), **options)[0]
        return bool((reach > 0)[fault.wrong].all())
    got, p = fault.got.astype(np.float64)[fault.wrong], float(case.options.get("p", 2))
    if _by_counts(case, got, fault.right[fault.wrong], p):
        return True
    signed = case.kind.powers and case.mode == "forward" and p != np.inf  # two mistakes at once
    return signed and _by_counts(case, got, _signed_norm(case, data.primals[0].astype(np.float64), p)[fault.wrong], p)


def _by_counts(case: Case, got: Array, right: Array, p: float) -> bool:
    """Whether values, or their powers, differ by ratios of two counts of cells."""
    with np.errstate(all="ignore"):
        ratio = got / right
        ratio = np.abs(ratio) ** p if case.kind.powers else ratio
    ratio = ratio[np.isfinite(ratio) & (ratio != 0)]
    cells = prod(case.per_axis("kernel"))
    if not ratio.size:
        return False
    near = 64 * float(limits(DTYPES[case.dtype]).eps)
    counts = np.arange(1, min(cells, 64) + 1)
    others = np.union1d(counts, [cells])
    quotients = (counts[:, None] / others).ravel()
    quotients = np.union1d(quotients, (others[:, None] / counts).ravel())
    return all(bool((np.abs(quotients - r) <= near * abs(r)).any()) for r in ratio)


def _accumulation(case: Case, data: Data, fault: Fault) -> bool:
    """A running sum in the dtype explains the error, and a blocked one does not."""
    if case.kind.selects:
        return False
    t = terms(case, fault.name)
    u = float(limits(DTYPES[case.dtype]).eps) / 2
    with np.errstate(all="ignore"):
        error = np.abs(fault.got.astype(np.float64) - fault.right)[fault.wrong]
        return bool((error <= min(2.0 * (t + 4) * u, 1.0) * fault.size[fault.wrong] * (1 + 1e-6)).all()) and t > 4


def _precision(case: Case, data: Data, fault: Fault) -> bool:
    """Float64 in name only: a float32, and right as far as those reach, which is not to inf."""
    if case.dtype != "float64" or fault.name == "index":
        return False
    narrow = np.finfo(np.float32)
    most, steps = float(narrow.max), 4 * (terms(case, fault.name) + 4)
    with np.errstate(all="ignore"):
        got, right = fault.got.astype(np.float64)[fault.wrong], fault.right[fault.wrong]
        error, size = np.abs(got - np.clip(right, -most, most)), np.minimum(fault.size[fault.wrong], most)
        near = error <= steps * (2.0**-24 * size + float(narrow.smallest_subnormal))
        own = (got == got.astype(np.float32)) & ((got != 0) | (np.abs(right) >= float(narrow.tiny)))  # no other's zero
        return bool((near & own).all())


def _padding(case: Case, data: Data, fault: Fault) -> bool:
    reaches = case.kind.windows in ("sliding", "transposed")
    return case.mode != "vjp" and reaches and bool(border(case)[fault.wrong].all())


def _index(case: Case, data: Data, fault: Fault) -> bool:
    return fault.name == "index"


def _outside(case: Case, data: Data, fault: Fault) -> bool:
    return fault.name == "index" and bool(((fault.got < 0) | (fault.got >= prod(case.space))).any())


def _gradient(case: Case, data: Data, fault: Fault) -> bool:
    return case.mode in ("jvp", "vjp")


HYPOTHESES: list[tuple[str, Callable[[Case, Data, Fault], bool]]] = [
    ("index", _outside),
    ("signed zero", _signed_zero),
    ("padding", _zeros_around),
    ("padding", _absent),
    ("precision", _precision),
    ("tie", _tie),
    ("nan", _nan),
    ("infinity", _infinity),
    ("sign", _sign),
    ("overflow", _overflow),
    ("underflow", _underflow),
    ("gradient", _at_zero),
    ("divisor", _divisor),
    ("accumulation", _accumulation),
    ("padding", _padding),
    ("index", _index),
    ("gradient", _gradient),
    ("value", lambda case, data, fault: True),
]
