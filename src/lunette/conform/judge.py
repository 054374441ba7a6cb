"""The verdict on one answer: what a backend returned, or raised, against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.conform.allowance import Answer
from lunette.conform.case import Case, Data
from lunette.conform.classify import classify
from lunette.conform.data import DTYPES, limits
from lunette.conform.reach import Fault
from lunette.conform.result import Outcome, Verdict
from lunette.conform.truth import Truth, names
from lunette.number import Array


@dataclass(frozen=True, slots=True)
class Raised:
    """A backend that answered with an error."""

    error: str

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        text = " ".join(str(error).split())
        return cls(f"{type(error).__name__}: {shown_text(text)}" if text else type(error).__name__)

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class WrongShape:
    """A derivative that could not be asked for: the result does not have the cotangent's shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """How far one array is off."""

    wrong: Array
    """Where the answer is neither equal nor within the bound."""
    special: Array
    """Where one of the two is finite and the other is not, or both are infinite and differ."""
    ulps: float = 0.0
    units: float = 0.0
    mean_units: float = 0.0
    bound_units: float = 0.0


def judge(case: Case, data: Data, answered: Any, right: Truth) -> Outcome:
    """Compare in the order in which mistakes hide each other: type, shape, special values, values, indices."""
    if isinstance(answered, WrongShape) and right.refusal is None:
        return _failed(case, data, right, Verdict.SHAPE, f"y has shape {answered.shape}; {case.output} is right")
    if isinstance(answered, Raised | WrongShape):
        if right.refusal is not None:
            return Outcome(case, Verdict.EQUAL, message=f"both refuse: {answered}")
        return _failed(case, data, right, Verdict.REFUSED, str(answered))
    arrays, complaint = _as_arrays(case, answered)
    if complaint:
        if right.refusal is not None:
            return Outcome(case, Verdict.EQUAL, message=complaint)
        return _failed(case, data, right, Verdict.REFUSED, complaint, kind="type")
    if right.refusal is not None:
        verdict = Verdict.VALUE if right.empty else Verdict.SHAPE
        if right.empty and case.mode == "indices" and _outside(case, arrays[1]).any():
            verdict = Verdict.INDEX
        message = f"answers {brief(arrays[-1])} of shape {arrays[0].shape} where there is no answer: {right.refusal}"
        return _failed(case, data, right, verdict, message)
    for name, got, answer in zip(names(case), arrays, right.answers, strict=True):
        if got.shape != answer.hi.shape:
            message = f"{name} has shape {got.shape}; {answer.hi.shape} is right"
            return _failed(case, data, right, Verdict.SHAPE, message)
    return _compared(case, data, arrays, right)


def _compared(case: Case, data: Data, arrays: Sequence[Array], right: Truth) -> Outcome:
    dtype = DTYPES[case.dtype]
    measured = []
    for name, got, answer in zip(names(case), arrays, right.answers, strict=True):
        if name == "index":
            wrong = (got != answer.hi) & ~answer.free | _outside(case, got)
            errors = Errors(wrong, np.zeros_like(wrong))
        else:
            errors = measure(got, answer, dtype)
        measured.append(errors)
        if errors.wrong.any():
            at = tuple(int(v) for v in np.argwhere(errors.wrong)[0])
            expected = as_right(answer, dtype)
            verdict = _verdict(case, name, errors, at)
            message = f"{name}[{', '.join(map(str, at))}] is {cell(got[at])}; {cell(expected[at])} is right"
            if name == "index" and answer.free[at]:
                message = (
                    f"{name}[{', '.join(map(str, at))}] is {cell(got[at])}, in a plane of {prod(case.space)} cells"
                )
            fault = Fault(name, got, expected, errors.wrong, answer.size)
            return _failed(case, data, right, verdict, message, errors, fault=fault)
        if got.dtype != dtype and name != "index":
            message = f"{name} is of dtype {got.dtype}; {dtype} is right"
            return _failed(case, data, right, Verdict.VALUE, message, kind="type")
    equal = all(e.units == 0 for e in measured)
    worst = max(measured, key=lambda e: e.units)
    return Outcome(
        case,
        Verdict.EQUAL if equal else Verdict.WITHIN,
        max(e.ulps for e in measured),
        worst.units,
        worst.mean_units,
        worst.bound_units,
    )


def _verdict(case: Case, name: str, errors: Errors, at: tuple[int, ...]) -> Verdict:
    if name == "index":
        return Verdict.INDEX
    if case.mode in ("jvp", "vjp"):
        return Verdict.GRADIENT
    return Verdict.SPECIAL if errors.special[at] else Verdict.VALUE


def _failed(
    case: Case,
    data: Data,
    right: Truth,
    verdict: Verdict,
    message: str,
    errors: Errors | None = None,
    *,
    kind: str = "",
    fault: Fault | None = None,
) -> Outcome:
    kind = kind or classify(case, data, verdict, right, fault)
    if errors is None:
        return Outcome(case, verdict, message=message, kind=kind)
    return Outcome(case, verdict, errors.ulps, errors.units, errors.mean_units, errors.bound_units, message, kind=kind)


def measure(got: Array, answer: Answer, dtype: np.dtype[Any]) -> Errors:
    """The distance of an array from the truth, cell by cell."""
    g, right = got.astype(np.float64), as_right(answer, dtype)
    with np.errstate(all="ignore"):
        finite = np.isfinite(right) & np.isfinite(g)
        same = (np.isnan(g) & np.isnan(right)) | (g == right)
        error = np.abs((g - answer.hi) - answer.lo)
        error[~finite] = 0
        special = ~same & ~finite & ~answer.free
        wrong = special | (finite & ~same & ~answer.free & ((error > answer.bound) | answer.exact))
        if answer.exact and answer.name == "y":  # a selected zero brings its sign
            wrong |= (g == 0) & (right == 0) & (np.signbit(g) != np.signbit(right))
        counted = finite & ~answer.free
        if not counted.any():
            return Errors(wrong, special)
        error = np.where(same, 0, error)[counted]
        # Nothing can be nearer than the least float, so that is the least unit.
        scale = np.maximum(float(limits(dtype).eps) / 2 * answer.size[counted], float(limits(dtype).smallest_subnormal))
        units = error / scale
        spacing = _spacing(right[counted], dtype)
        allowed = answer.bound[counted] / scale
    tight = float(allowed[allowed > 0].min(initial=np.inf)) if (allowed > 0).any() else 0.0
    return Errors(wrong, special, float((error / spacing).max()), float(units.max()), float(units.mean()), tight)


def as_right(answer: Answer, dtype: np.dtype[Any]) -> Array:
    """The truth rounded to the dtype, in float64; beyond its range an infinity."""
    if answer.name == "index":
        return answer.hi
    with np.errstate(all="ignore"):
        return np.asarray(answer.hi.astype(dtype).astype(np.float64))


def _spacing(values: Array, dtype: np.dtype[Any]) -> Array:
    """The unit in the last place of each value."""
    info = limits(dtype)
    exponent = np.frexp(np.abs(values))[1] - 1
    return np.asarray(np.maximum(np.ldexp(1.0, exponent - int(info.nmant)), float(info.smallest_subnormal)))


def _outside(case: Case, index: Array) -> Array:
    """Indices that are no place in the plane."""
    return np.asarray((index < 0) | (index >= prod(case.space)))


def _as_arrays(case: Case, answered: Any) -> tuple[list[Array], str]:
    """The arrays a backend returned, or what is wrong with them."""
    wanted = names(case)
    several = isinstance(answered, tuple) or (isinstance(answered, list) and len(wanted) > 1)
    values = list(answered) if several else [answered]
    if len(values) != len(wanted):
        return [], f"returned {len(values)} values; {len(wanted)} are right: {', '.join(wanted)}"
    arrays = []
    for name, value in zip(wanted, values, strict=True):
        if not isinstance(value, np.ndarray | np.generic):
            return [], f"returned {name} as {type(value).__name__}, not as an array"
        a = np.asarray(value)
        if a.dtype.kind not in ("iu" if name == "index" else "fV"):
            return [], f"returned {name} as an array of {a.dtype}"
        arrays.append(a)
    return arrays, ""


def shown_text(text: str) -> str:
    """An error's words, never long ones."""
    return text if len(text) <= 300 else f"{text[:240]} ... {text[-40:]}"


def cell(value: Any) -> str:
    """One cell as text."""
    return f"{value:d}" if isinstance(value, int | np.integer) else f"{float(value):.9g}"


def brief(a: Array, most: int = 40) -> str:
    """A short array as nested lists; a long one by its first cells."""
    if a.size > most:
        return f"[{', '.join(map(cell, a.ravel()[:most]))}, ...] (shape {a.shape})"

    def rows(v: Any) -> str:
        return f"[{', '.join(map(rows, v))}]" if isinstance(v, np.ndarray) and v.ndim else cell(v)

    return rows(a)
