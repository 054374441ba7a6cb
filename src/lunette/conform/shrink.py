"""The smallest case that still fails in the same way: fewer axes, cells and options first, then simpler cells.

Greedy and deterministic: every step takes the first simpler case that keeps verdict and class, until none does. The
number of tries is limited, not their time, so that every machine finds the same case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import Parameter
from math import isfinite, prod
from typing import Any

from lunette.conform.case import MODES, Case
from lunette.conform.networks import fewer_layers
from lunette.conform.result import Outcome, Verdict
from lunette.op import parameters_of
from lunette.ops import ALL
from lunette.window import Shape

Try = Callable[[Case], Outcome | None]
MOST_CELLS = 2**27
"""Tries on cases of many cells cost more: both run out."""
MOST_SPELLED, MOST_SHOWN = 1024, 64
"""Cells up to which they are written out to be taken away one by one, and to be shown."""
ROWS = ("kernel", "stride", "dilation", "output_padding", "output_size")
DEFAULTS: dict[str, Any] = {
    "padding": (0, "valid"),
    "dilation": (1,),
    "groups": (1,),
    "output_padding": (0,),
    "ceil_mode": (False,),
    "count_include_pad": (True,),
    "divisor": (None,),
    "keepdims": (True,),
}
SHRUNK = frozenset({*DEFAULTS, *ROWS, "ties", "p", "spatial", "beta"})
"""The options of lunette's own operators: each has its way to become simpler, or none."""


def shrink(outcome: Outcome, attempt: Try, tries: int = 260) -> Outcome:
    """The outcome of the smallest case found; `attempt` returns None for cases that are not asked."""
    budget = Budget(8 if outcome.verdict is Verdict.HUNG else tries)
    best = _descend(outcome, attempt, budget, simpler)
    if best.verdict is Verdict.HUNG or best.case.size > MOST_SPELLED:
        return best
    kept = _kept(replace(best, case=best.case.spelled()), attempt, best)
    fewer = _descend(kept, attempt, Budget(tries // 2), fewer_cells) if kept.case.values is not None else kept
    if fewer.case.size > MOST_SHOWN:
        return best
    return _descend(fewer, attempt, Budget(tries // 2), simpler_cells) if fewer.case.values is not None else fewer


class Budget:
    """What is left to try."""

    def __init__(self, tries: int) -> None:
        self.tries, self.cells = tries, MOST_CELLS

    def spend(self, case: Case) -> bool:
        self.tries -= 1
        self.cells -= case.size
        return self.tries >= 0 and self.cells >= 0


def _kept(changed: Outcome, attempt: Try, otherwise: Outcome) -> Outcome:
    got = attempt(changed.case)
    return got if got is not None and same(got, otherwise) else otherwise


def _descend(outcome: Outcome, attempt: Try, budget: Budget, steps: Callable[[Case], Iterator[Case]]) -> Outcome:
    best, moved = outcome, True
    seen = {best.case}
    while moved:
        moved = False
        for case in steps(best.case):
            if case in seen:
                continue
            seen.add(case)
            if not budget.spend(case):
                return best
            got = attempt(case)
            if got is not None and same(got, best):
                best, moved = got, True
                break
    return best


def same(a: Outcome, b: Outcome) -> bool:
    """The same way to fail; refusals by their words."""
    refused = a.verdict is Verdict.REFUSED
    return (a.verdict, a.kind) == (b.verdict, b.kind) and (not refused or words(a.message) == words(b.message))


def words(message: str) -> str:
    """An error's text without numbers, so that refusals of one kind are one: how it begins, and how it ends."""
    plain = " ".join("".join(" " if c.isdigit() or c in "()[],-" else c for c in message).split())
    return plain if len(plain) <= 120 else f"{plain[:80]} {plain[-40:]}"


# ---- simpler configurations


def simpler(case: Case) -> Iterator[Case]:
    """Cases one step simpler, the boldest steps first."""
    yield from fewer_layers(case)
    yield from _filled(case)
    yield from _plainer(case)
    if case.d > 1:
        for axis in range(case.d):
            yield _without_axis(case, axis)
    yield from _fewer(case)
    yield from _options(case)
    yield from _smaller(case)
    yield from _together(case)


def _plainer(case: Case) -> Iterator[Case]:
    if case.values is None:
        yield replace(case, layout="contiguous")
        yield replace(case, dtype="float32")
        yield replace(case, data="integers")
        yield replace(case, seed=0)


def _filled(case: Case) -> Iterator[Case]:
    """With a sample or a channel where there is none: a case without cells shows nothing, if one with cells fails."""
    x, *rest = case.shapes
    c = len(case.batch)
    if case.values is None and 0 in x[: c + (not rest)]:
        filled = tuple(max(n, 1) for n in x[: c + (not rest)])
        yield replace(case, shapes=((*filled, *x[len(filled) :]), *rest))


def _without_axis(case: Case, axis: int) -> Case:
    def drop(shape: Shape, lead: int) -> Shape:
        return (*shape[: lead + axis], *shape[lead + axis + 1 :])

    x, *rest = case.shapes
    shapes = [drop(x, len(x) - case.d), *(drop(s, 2) if at == 0 else s for at, s in enumerate(rest))]
    options = dict(case.options)
    for name in (*ROWS, "padding"):
        if isinstance(options.get(name), tuple):
            options[name] = (*options[name][:axis], *options[name][axis + 1 :])
    if "spatial" in options:
        options["spatial"] -= 1
    return replace(case, shapes=tuple(shapes), options=options)


def _fewer(case: Case) -> Iterator[Case]:
    """Fewer samples, channels, groups; no bias."""
    x, *rest = case.shapes
    for at in range(len(case.batch)):
        if x[at] > 1:
            yield replace(case, shapes=((*x[:at], 1, *x[at + 1 :]), *rest))
    c = len(case.batch)
    if not rest:
        for fewer in {1, x[c] - 1} if x[c] > 1 else ():
            yield replace(case, shapes=((*x[:c], fewer, *x[c + 1 :]),))
        return
    w, *bias = rest
    if bias:
        yield replace(case, shapes=(x, w))
    groups = case.options.get("groups", 1)
    plain = {n: v for n, v in case.options.items() if n != "groups"}
    transposed = case.kind.windows == "transposed"
    ins, outs = x[c] // groups, (w[1] if transposed else w[0] // groups)
    for q, i, o in ((1, ins, outs), (groups, min(ins, 1), outs), (groups, ins, min(outs, 1)), (groups, ins - 1, outs)):
        if (q, i, o) == (groups, ins, outs) or i < min(ins, 1):
            continue
        weights = (i * q, o) if transposed else (o * q, i)
        shapes = [(*x[:c], i * q, *x[c + 1 :]), (*weights, *w[2:]), *((o * q,) for _ in bias)]
        yield replace(case, shapes=tuple(shapes), options={**plain, **({"groups": q} if q > 1 else {})})


def _options(case: Case) -> Iterator[Case]:
    options = dict(case.options)
    for name, plain in DEFAULTS.items():
        if name in options and options[name] not in plain:
            yield replace(case, options={n: v for n, v in options.items() if n != name})
    silent = {n: v for n, v in options.items() if n not in DEFAULTS or v not in DEFAULTS[n]}
    if options.get("stride") in (options.get("kernel"), None) and "kernel" in options:
        silent.pop("stride", None)
    if silent != options:
        yield replace(case, options=silent)
    if "ties" in options and case.mode in ("forward", "indices"):
        yield replace(case, options={n: v for n, v in options.items() if n != "ties"})
    if options.get("p", 1) not in (1, 2):
        yield replace(case, options={**options, "p": 1.0})
    if options.get("p", 1) not in (1, 2, 3):
        yield replace(case, options={**options, "p": 2.0})
    for name, value in options.items():  # whatever else an operator of another package has
        usual = parameters_of(ALL[case.kind])[name].default
        if name not in SHRUNK and usual is not Parameter.empty and value != usual:
            yield replace(case, options={n: v for n, v in options.items() if n != name})


def _smaller(case: Case) -> Iterator[Case]:
    """Smaller sizes, kernels and steps, axis by axis."""
    x, *rest = case.shapes
    lead = len(x) - case.d
    for axis, n in enumerate(case.space):
        for m in _below(n):
            at = lead + axis
            yield replace(case, shapes=((*x[:at], m, *x[at + 1 :]), *rest))
            if case.options.get("kernel") == case.space:  # one window over everything stays one
                kernel = (*case.space[:axis], m, *case.space[axis + 1 :])
                yield replace(
                    case, shapes=((*x[:at], m, *x[at + 1 :]), *rest), options={**case.options, "kernel": kernel}
                )
    if rest:
        w, *bias = rest
        for axis, k in enumerate(w[2:]):
            for m in _below(k):
                yield replace(case, shapes=(x, (*w[: 2 + axis], m, *w[3 + axis :]), *bias))
    for name in ROWS:
        row = case.options.get(name)
        if isinstance(row, tuple):
            for axis, v in enumerate(row):
                for m in _below(v or 1, 0 if name == "output_padding" else 1):
                    yield replace(case, options={**case.options, name: (*row[:axis], m, *row[axis + 1 :])})
    spread = case.options.get("dilation")
    for axis, n in enumerate(case.space):  # a window that misses the input goes on missing it
        if isinstance(spread, tuple) and n > 1 and spread[axis] > 1:
            less = (*spread[:axis], spread[axis] - 1, *spread[axis + 1 :])
            at = lead + axis
            shapes = ((*x[:at], n - 1, *x[at + 1 :]), *rest)
            yield replace(case, shapes=shapes, options={**case.options, "dilation": less})
    pads = case.options.get("padding")
    if isinstance(pads, tuple):
        for axis, (lo, hi) in enumerate(pads):
            for pair in dict.fromkeys(((0, 0), (lo, 0), (0, hi), (lo - 1, hi - 1), (lo - 1, hi), (lo, hi - 1))):
                if min(pair) >= 0 and pair != (lo, hi):
                    yield replace(case, options={**case.options, "padding": (*pads[:axis], pair, *pads[axis + 1 :])})


def _together(case: Case) -> Iterator[Case]:
    """Smaller kernels of pools with what goes along: padding, which they must exceed, or those of other axes."""
    kernel, pads = case.options.get("kernel"), case.options.get("padding")
    if not isinstance(kernel, tuple):
        return
    if isinstance(pads, tuple):
        for axis, k in enumerate(kernel):
            for m in _below(k):
                pair = tuple(min(n, max(n - k + m, 0)) for n in pads[axis])
                less = {"kernel": (*kernel[:axis], m, *kernel[axis + 1 :])}
                yield replace(
                    case, options={**case.options, **less, "padding": (*pads[:axis], pair, *pads[axis + 1 :])}
                )
    if len(kernel) > 1 and min(kernel) > 1:
        yield replace(case, options={**case.options, "kernel": tuple(k - 1 for k in kernel)})


def _below(n: int, least: int = 1) -> list[int]:
    if n <= 9:
        return list(range(least, n))
    return list(dict.fromkeys(m for m in (least, n // 2, n - n // 4, n - n // 32, n - 1) if least <= m < n))


# ---- simpler cells


def fewer_cells(case: Case) -> Iterator[Case]:
    """One sample, one channel of a pool, one cell less at an end of an axis: what is left keeps its values."""
    data, x = case.arrays(), case.shapes[0]
    pool, moved = len(case.shapes) == 1, case.mode in ("jvp", "vjp", "bounds")
    fronts = len(case.batch) + pool
    places = [(axis, slice(k, k + 1)) for axis in range(fronts) if x[axis] > 1 for k in range(x[axis])]
    if case.mode != "vjp":  # a cotangent would have to follow the windows
        places += [(axis, end) for axis in range(len(x) - case.d, len(x)) if x[axis] > 1 for end in ENDS]
    for axis, part in places:
        cut = (slice(None),) * axis + (part,)
        arrays = list(data.every)
        for at in (0, *((len(case.shapes),) if moved else ())):  # x, and its tangent or the cotangent
            arrays[at] = arrays[at][cut]
        shapes = (arrays[0].shape, *case.shapes[1:])
        yield replace(case, shapes=shapes, values=tuple(tuple(map(float, a.ravel())) for a in arrays))


ENDS = (slice(1, None), slice(None, -1))


def simpler_cells(case: Case) -> Iterator[Case]:
    """All plain cells alike, then cell by cell; special values stay where they are, or go one by one."""
    assert case.values is not None
    for at, row in enumerate(case.values):
        for value in (0.0, 1.0):
            if any(isfinite(v) and v != value for v in row):
                yield _with_row(case, at, tuple(value if isfinite(v) else v for v in row))
    for at, row in enumerate(case.values):
        for place, cell in enumerate(row):
            for value in (0.0, 1.0):
                if (cell != value and not (cell == 0 and value == 1)) or (str(cell) == "-0.0" and value == 0):
                    yield _with_row(case, at, (*row[:place], value, *row[place + 1 :]))


def _with_row(case: Case, at: int, row: tuple[float, ...]) -> Case:
    assert case.values is not None
    return replace(case, values=(*case.values[:at], row, *case.values[at + 1 :]))


def weight(case: Case) -> tuple[Any, ...]:
    """What makes a case small, for choosing where to begin; one without any cell shows little."""
    kernel = prod(case.per_axis("kernel")) if case.d else 0
    return (
        not all(map(prod, case.shapes)),
        case.size > MOST_SPELLED,
        MODES.index(case.mode),  # a value is easier to see than a derivative
        case.size,
        case.d,
        kernel,
        len(case.options),
        case.dtype != "float32",
        case.data,
        repr(case),
    )
