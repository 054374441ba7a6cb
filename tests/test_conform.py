"""The measuring tool is measured: it finds what was planted, names it rightly, and accuses nobody who is right."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import lunette
from effort import ALL_OR_HALF, ALL_OR_QUARTER, LONG
from lunette.conform import rules, worker
from lunette.conform.ask import alone, run_batch
from lunette.conform.backends import NAMES, Space, find
from lunette.conform.backends.backend import register
from lunette.conform.backends.function import Function
from lunette.conform.backends.lunette import Lunette
from lunette.conform.case import Case
from lunette.conform.generate import draws
from lunette.conform.isa import SETS, processor, seen
from lunette.conform.known import Known, read
from lunette.conform.result import FAILURES, Batch, BatchResult, Outcome, Report, Verdict
from lunette.conform.run import Processes, conform, plan, run
from lunette.conform.shrink import shrink, weight
from lunette.conform.worker import Nursery
from lunette.strategies import cases

ln: Any = lunette

INF, NAN = float("inf"), float("nan")
Array = Any


# ---- cases


@given(
    cases(modes=("forward", "indices", "jvp", "vjp"), layouts=("contiguous", "channels_last", "strided"), valid=False)
)
def test_a_case_is_rebuilt_from_its_repr_and_from_json(case: Case) -> None:
    spelled = case.spelled()
    for c in (case, spelled):
        assert eval(repr(c), {"Case": Case}) == c
        assert Case.from_json(json.loads(json.dumps(c.to_json(), allow_nan=False))) == c
    for a, b in zip(case.arrays().every, spelled.arrays().every, strict=True):
        assert a.dtype == b.dtype and (a.strides == b.strides or not a.size) and a.tobytes() == b.tobytes()


def test_a_batch_is_a_pure_function_of_its_fields() -> None:
    torch = find("torch")
    for index in (0, -1, 3):
        batch = Batch("torch", "max_pool", 5, index, 40)
        assert list(draws(batch, torch)) == list(draws(batch, torch))
    other = list(draws(Batch("torch", "max_pool", 6, 3, 40), torch))
    assert other != list(draws(Batch("torch", "max_pool", 5, 3, 40), torch))


def test_every_data_set_and_option_is_drawn() -> None:
    drawn = [c for op in find("lunette").space.ops for c, _ in draws(Batch("lunette", op, 0, 1, 400), find("lunette"))]
    assert {c.data for c in drawn} == {c.data for c in drawn if c.size} and len({c.data for c in drawn}) == 13
    assert {c.d for c in drawn} == {1, 2, 3, 4} and {c.layout for c in drawn} == {
        "contiguous",
        "channels_last",
        "strided",
    }
    assert {c.mode for c in drawn} == {"forward", "indices", "jvp", "vjp"}
    assert {c.dtype for c in drawn} == {"float16", "bfloat16", "float32", "float64"}
    options = {n for c in drawn for n in c.options}
    assert options >= {
        "padding",
        "dilation",
        "ceil_mode",
        "count_include_pad",
        "divisor",
        "ties",
        "groups",
        "p",
        "beta",
    }
    assert any(c.size == 0 for c in drawn) and any(isinstance(c.options.get("padding"), str) for c in drawn)


@given(cases("max_pool", data=("ties",)))
def test_strategies_draw_what_lunette_defines(case: Case) -> None:
    (x,) = case.arrays().primals
    assert ln.max_pool(x, **case.options).shape == case.output and set(np.unique(x)) <= {0.0, 1.0}


# ---- nobody who is right is accused


class Sampled(Lunette):
    """Some of the corners; tests/defects.py asks for all of them."""

    name = "lunette, sampled"
    lives_here = True
    space = Space(thin=6 if LONG else 12)


def test_lunette_passes_everything() -> None:
    register(Sampled())
    report = run("lunette, sampled", cases=1400 if LONG else 700, seed=3)
    assert report.cases > 500 and report.failures == 0 and not report.findings and report.exit_status == 0
    assert set(report.verdicts) == {"equal", "within"}


# ---- planted mistakes: one function per class


def windows(x: Array, kernel: Sequence[int], stride: Sequence[int], padding: Any, **rest: Any) -> Array:
    return ln.max_pool(x, kernel, stride=stride, padding=padding, **rest)


def floor_instead_of_ceil(
    x: Array, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False
) -> Array:
    return ln.max_pool(x, kernel, stride=stride, padding=padding)


def divides_by_the_kernel(
    x: Array, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False
) -> Array:
    """The most repeated mistake of all: the overhang of ceil mode is counted."""
    return ln.avg_pool(x, kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, divisor=int(np.prod(kernel)))


def pads_with_ones(x: Array, w: Array, b: Array | None = None, stride: Any = 1, padding: Any = 0) -> Array:
    if isinstance(padding, str):
        return ln.conv(x, w, b, stride=stride, padding=padding)
    given = padding if isinstance(padding, tuple) else (padding,) * (w.ndim - 2)
    pads = [(p, p) if isinstance(p, int) else p for p in given]
    return ln.conv(np.pad(x, [(0, 0), (0, 0), *pads], constant_values=1), w, b, stride=stride)


def ignores_nan(x: Array, kernel: Any, stride: Any = None) -> Array:
    return ln.max_pool(np.where(np.isnan(x), x.dtype.type(-INF), x), kernel, stride=stride)


def starts_from_the_lowest_number(x: Array, kernel: Any, stride: Any = None) -> Array:
    return np.maximum(ln.max_pool(x, kernel, stride=stride), np.finfo(x.dtype).min)


def last_winner(x: Array, kernel: Any, stride: Any = None, return_indices: bool = False) -> Any:
    """Counts from the end: among equal cells the last one wins."""
    d = len(kernel)
    if (stride is not None and tuple(stride) != tuple(kernel)) or any(
        n % k for n, k in zip(x.shape[-d:], kernel, strict=True)
    ):
        return ln.max_pool(x, kernel, stride=stride, return_indices=return_indices)
    flip = (..., *(slice(None, None, -1),) * d)
    y, index = ln.max_pool(np.ascontiguousarray(x[flip]), kernel, return_indices=True)
    index = (int(np.prod(x.shape[-d:])) - 1 - index)[flip]
    return (
        (np.ascontiguousarray(y[flip]), np.ascontiguousarray(index))
        if return_indices
        else np.ascontiguousarray(y[flip])
    )


def counts_from_one(x: Array, kernel: Any, stride: Any = None, return_indices: bool = False) -> Any:
    answer = ln.max_pool(x, kernel, stride=stride, return_indices=return_indices)
    return (answer[0], answer[1] + 1) if return_indices else answer


def one_by_one(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    """A running sum in the type of the input."""
    d = spatial or x.ndim - 2
    rows = x.reshape(*x.shape[:-d], int(np.prod(x.shape[-d:])))
    with np.errstate(all="ignore"):
        y = (np.cumsum(rows, -1, dtype=x.dtype)[..., -1] / np.asarray(rows.shape[-1], x.dtype)).astype(x.dtype)
    return y.reshape(*y.shape, *(1,) * d) if keepdims else y


def squares_first(x: Array, kernel: Any, stride: Any = None, p: float = 2) -> Array:
    if p == INF:
        return ln.lp_pool(x, kernel, stride=stride, p=p)
    with np.errstate(all="ignore"):
        total = ln.avg_pool(np.abs(x) ** x.dtype.type(p), kernel, stride=stride, divisor=1)
        return total ** x.dtype.type(1 / p)


def keeps_the_sign(x: Array, kernel: Any, stride: Any = None, p: float = 2) -> Array:
    with np.errstate(all="ignore"):
        return (
            ln.avg_pool(x**p, kernel, stride=stride, divisor=1) ** x.dtype.type(1 / p)
            if p == 3
            else ln.lp_pool(x, kernel, stride=stride, p=p)
        )


def drops_the_sign_of_zero(x: Array, kernel: Any, stride: Any = None) -> Array:
    return ln.max_pool(x, kernel, stride=stride) + x.dtype.type(0)


def answers_where_there_is_none(
    x: Array, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1
) -> Array:
    try:
        return ln.max_pool(x, kernel, stride=stride, padding=padding, dilation=dilation)
    except ln.ShapeError as error:
        if error.rule != "M1":
            raise
        return ln.avg_pool(x, kernel, stride=stride, padding=padding, dilation=dilation)


def computes_in_single(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    if not (np.abs(x[np.isfinite(x)]) < 1e30).all() or ((np.abs(x) > 0).any() and np.abs(x)[x != 0].min() < 1e-30):
        return ln.global_avg_pool(x, keepdims=keepdims, spatial=spatial)
    return ln.global_avg_pool(x.astype(np.float32), keepdims=keepdims, spatial=spatial).astype(x.dtype)


def half_of_everything(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial) / x.dtype.type(2)


def wrong_pull(primals: Any, cotangent: Any, **options: Any) -> Any:
    return tuple(2 * g for g in ln.avg_pool_vjp(primals, cotangent, **options))


def returns_a_list(x: Array, keepdims: bool = True, spatial: int | None = None) -> Any:
    return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial).tolist()


def returns_doubles(x: Array, keepdims: bool = True, spatial: int | None = None) -> Any:
    return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial).astype(np.float64)


def returns_nothing(x: Array, keepdims: bool = True, spatial: int | None = None) -> None:
    return None


def raises(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    raise ZeroDivisionError("float division by zero")


def leaves(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    raise SystemExit(3)


def overwrites(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    y = ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)
    x[...] = 0
    return y


def aborts(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    if x.shape[-1] > 1:
        os.abort()
    return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)


def sleeps(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
    if x.shape[-1] == 3:
        time.sleep(600)
    return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)


PLANTED: list[tuple[Callable[..., Any], str, Verdict, str, int]] = [
    # function, operator, verdict, class, at most that many cells in the smallest case
    (floor_instead_of_ceil, "max_pool", Verdict.SHAPE, "size rule", 4),
    (floor_instead_of_ceil, "max_pool", Verdict.REFUSED, "refusal", 1),
    (divides_by_the_kernel, "avg_pool", Verdict.VALUE, "divisor", 1),
    (pads_with_ones, "conv", Verdict.VALUE, "padding", 2),
    (ignores_nan, "max_pool", Verdict.SPECIAL, "nan", 1),
    (starts_from_the_lowest_number, "max_pool", Verdict.SPECIAL, "infinity", 1),
    (last_winner, "max_pool", Verdict.INDEX, "tie", 3),
    (counts_from_one, "max_pool", Verdict.INDEX, "index", 1),
    (one_by_one, "global_avg_pool", Verdict.VALUE, "accumulation", 2**25),
    (one_by_one, "global_avg_pool", Verdict.SPECIAL, "overflow", 2),
    (squares_first, "lp_pool", Verdict.SPECIAL, "overflow", 1),
    (squares_first, "lp_pool", Verdict.VALUE, "underflow", 1),
    (keeps_the_sign, "lp_pool", Verdict.SPECIAL, "sign", 1),
    (drops_the_sign_of_zero, "max_pool", Verdict.VALUE, "signed zero", 3),
    (answers_where_there_is_none, "max_pool", Verdict.VALUE, "empty window", 1),
    (computes_in_single, "global_avg_pool", Verdict.VALUE, "precision", 2),
    (half_of_everything, "global_max_pool", Verdict.VALUE, "value", 1),
    (returns_doubles, "global_max_pool", Verdict.VALUE, "type", 1),
    (overwrites, "global_max_pool", Verdict.VALUE, "input", 1),
]


ALSO: dict[Callable[..., Any], set[str]] = {  # other classes that the same mistake belongs to on some data
    last_winner: {"nan", "signed zero"},
    counts_from_one: {"nan", "tie"},
    keeps_the_sign: {"overflow", "underflow", "infinity"},
    half_of_everything: {"underflow"},
    # A one beside 2**50 is no more than a rounding of float32; times an infinite or NaN weight it is that.
    pads_with_ones: {"precision", "infinity", "nan"},
}


@cache
def measured(function: Callable[..., Any], op: str) -> Report:
    return conform(function, op, cases=270, seed=1)


@pytest.mark.parametrize(
    ("function", "op", "verdict", "kind", "cells"),
    PLANTED[ALL_OR_QUARTER],
    ids=[f"{f.__name__}-{k}" for f, _, _, k, _ in PLANTED[ALL_OR_QUARTER]],
)
def test_a_planted_mistake_is_found_classified_and_reduced(
    function: Callable[..., Any], op: str, verdict: Verdict, kind: str, cells: int
) -> None:
    report = measured(function, op)
    found = [f for f in report.findings if f.kind == kind and verdict in f.verdicts]
    assert found, [(f.kind, str(f.verdict), f.case) for f in report.findings]
    (smallest,) = sorted(found, key=lambda f: f.case.size)[:1]
    assert smallest.case.size <= cells, smallest.case
    assert smallest.case.d == 1 and smallest.rule == rules.RULES[kind]
    assert function.__name__ in smallest.reproducer and op in smallest.drawing
    assert report.exit_status == 1
    others = {f.kind for f in report.findings} - {k for f, _, _, k, _ in PLANTED if f is function}
    others -= ALSO.get(function, set())
    assert not others, f"and nothing else: {[(f.kind, f.case, f.got) for f in report.findings if f.kind in others]}"


@pytest.mark.parametrize("function", [returns_a_list, returns_nothing, raises, leaves])
def test_a_function_that_always_fails_alike_is_a_problem_of_the_harness(function: Callable[..., Any]) -> None:
    report = conform(function, "global_max_pool", cases=40)
    assert report.exit_status == 2 and not report.findings and function.__name__ in report.misfits[0]


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (Case("max_pool", ((0, 1, 4),), {"kernel": (2,)}), lambda x, kernel, stride=None: 3),
        (Case("conv", ((0, 2, 4), (1, 2, 2)), {"stride": (1,)}), lambda x, w, b=None, stride=None: "no"),
    ],
    ids=["pool", "conv"],
)
def test_a_case_with_cells_shows_more_than_one_without(case: Case, answer: Callable[..., Any]) -> None:
    backend = Function("says nothing", answer, case.op)
    smallest = shrink(worker.answer(backend, case), lambda c: worker.answer(backend, c))
    assert smallest.failed and all(n > 0 for shape in smallest.case.shapes for n in shape)
    assert weight(case) > weight(replace(case, shapes=((9, *case.shapes[0][1:]), *case.shapes[1:])))


def test_kernels_shrink_together_with_padding_and_with_each_other() -> None:
    def ignores(x: Array, kernel: Any, padding: Any, count_include_pad: bool = True) -> Array:
        return np.asarray(ln.avg_pool(x, kernel, padding=padding))

    def wants_more(x: Array, kernel: Any, stride: Any = None) -> Array:
        y = np.asarray(ln.max_pool(x, kernel, stride=stride))
        return y + 1 if kernel[1] == kernel[0] + 2 else y

    options = {"kernel": (4,), "padding": ((3, 0),), "count_include_pad": False}
    backend = Function("ignores", ignores, "avg_pool")
    case = Case("avg_pool", ((1, 1, 5),), options)
    smallest = shrink(worker.answer(backend, case), lambda c: worker.answer(backend, c))
    assert smallest.failed
    assert smallest.case.options == {"kernel": (2,), "padding": ((1, 0),), "count_include_pad": False}
    backend = Function("wants more", wants_more, "max_pool")
    case = Case("max_pool", ((1, 1, 4, 6),), {"kernel": (3, 5)})
    smallest = shrink(worker.answer(backend, case), lambda c: worker.answer(backend, c))
    assert smallest.failed and smallest.case.options == {"kernel": (1, 3)} and smallest.case.space == (1, 3)


def test_a_case_without_cells_stays_if_that_is_the_mistake() -> None:
    def needs_samples(x: Array, kernel: Any, stride: Any = None) -> Array:
        return ln.max_pool(x, kernel, stride=stride) if x.size else x

    backend = Function("needs samples", needs_samples, "max_pool")
    case = Case("max_pool", ((0, 1, 4),), {"kernel": (2,)})
    smallest = shrink(worker.answer(backend, case), lambda c: worker.answer(backend, c))
    assert smallest.failed and smallest.case.size == 0


def test_a_wrong_derivative_is_told_from_a_wrong_value() -> None:
    report = conform(ln.avg_pool, "avg_pool", vjp=wrong_pull, cases=300, seed=1)
    kinds = {f.kind for f in report.findings}
    # Twice as much may also be a divisor, where every cell is read by a window over the border.
    assert "gradient" in kinds <= {"gradient", "divisor"} and {f.verdict for f in report.findings} == {Verdict.GRADIENT}
    assert report.findings[0].case.mode == "vjp" and report.verdicts["equal"] > 50


def test_a_right_function_passes_and_may_print(capfd: pytest.CaptureFixture[str]) -> None:
    def talks(x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
        print("here I am", flush=True)
        os.write(2, b"and here\n")
        return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)

    report = conform(talks, "global_max_pool", cases=40)
    assert report.exit_status == 0 and report.asked == 40
    out, err = capfd.readouterr()
    assert "here" not in out + err


def in_a_worker(function: Callable[..., Any], op: str, deadline: float = 8.0) -> str:
    name = f"{function.__name__} as {op}"
    backend = Function(name, function, op)
    backend.deadline = deadline
    register(backend)
    return name


def test_a_function_that_dies_takes_nobody_along() -> None:
    batch = Batch(in_a_worker(aborts, "global_max_pool"), "global_max_pool", 1, 1, 40)
    outcomes = run_batch(batch).outcomes
    dead = [o for o in outcomes if o.verdict is Verdict.CRASHED]
    assert dead and all(o.case.shapes[0][-1] > 1 and "SIGABRT" in o.message and o.kind == "crash" for o in dead)
    assert any(o.verdict is Verdict.EQUAL for o in outcomes)


def test_a_function_that_hangs_is_left_alone() -> None:
    name = in_a_worker(sleeps, "global_max_pool", 0.5)
    began = time.perf_counter()
    outcomes = run_batch(Batch(name, "global_max_pool", 1, 2, 12)).outcomes
    hung = [o for o in outcomes if o.verdict is Verdict.HUNG]
    assert hung and {o.case for o in hung} == {o.case for o in outcomes if o.case.shapes[0][-1] == 3}
    assert time.perf_counter() - began < 5 + 3 * len(hung)


class _Damage:
    """Kills not at once but two calls later, as a damaged heap does."""

    __name__ = "damage"

    def __init__(self) -> None:
        self.left = 10**9

    def __call__(self, x: Array, keepdims: bool = True, spatial: int | None = None) -> Array:
        self.left -= 1
        if self.left == 0:
            os.abort()
        if x.shape[-1] == 5 and self.left > 2:
            self.left = 3
        return ln.global_max_pool(x, keepdims=keepdims, spatial=spatial)


def test_the_killer_is_pinned_by_replay() -> None:
    function = _Damage()
    register(Function("damage as global_max_pool", function, "global_max_pool"))
    outcomes = run_batch(Batch("damage as global_max_pool", "global_max_pool", 2, 1, 40)).outcomes
    dead = {o.case for o in outcomes if o.verdict is Verdict.CRASHED}
    assert dead and all(case.shapes[0][-1] == 5 for case in dead)  # damage at the very end goes unnoticed
    assert all(o.verdict in (Verdict.EQUAL, Verdict.WITHIN) for o in outcomes if o.case not in dead)


# ---- runs: plans, journals, interruptions


def without_time(report: Report) -> Report:
    return replace(report, seconds=0.0, journal="")


class Interrupted:
    """A pool whose user loses patience after some batches."""

    def __init__(self, after: int) -> None:
        self.after = after

    def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
        for at, result in enumerate(Processes(1).map(batches)):
            if at == self.after:
                raise KeyboardInterrupt
            yield result


def test_an_interrupted_run_resumes_and_loses_nothing(tmp_path: Path) -> None:
    settings: Any = {"cases": 120, "seed": 4}
    name = in_a_worker(half_of_everything, "global_max_pool")
    whole = without_time(run(name, **settings))
    assert whole.findings
    journal = tmp_path / "journal.jsonl"
    half = run(name, **settings, journal=journal, pool=Interrupted(3))
    assert not half.complete and 0 < half.cases < whole.cases
    assert half.exit_status == 1
    lines = journal.read_text().splitlines()
    assert len(lines) == 1 + 3
    journal.write_text("\n".join(lines)[:-40])  # as if the disk had been full
    ran: list[Batch] = []

    class Counted:
        def map(self, batches: Sequence[Batch]) -> Iterator[BatchResult]:
            ran.extend(batches)
            return Processes(2).map(batches)

    rest = run(name, **settings, journal=journal, pool=Counted())
    assert without_time(rest) == whole
    every = len(plan(name, None, 120, 4))
    assert len(ran) == every - 2 and rest.journal.startswith(f"2 of {every} batches are from the journal of 2")
    ran.clear()
    again = run(name, **settings, journal=journal, pool=Counted())
    assert len(ran) == every and "had come to its end" in again.journal and without_time(again) == whole


def test_results_go_to_json_and_back() -> None:
    result = run_batch(Batch("lunette", "smooth_max_pool", 1, 1, 20))
    assert BatchResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def test_modes_and_operators_can_be_chosen() -> None:
    report = run("lunette", ops=["conv"], cases=30, modes=["jvp"])
    assert {c.op for c in report.table} == {"conv"} and {c.option for c in report.table} >= {"jvp"}
    assert not {"forward", "vjp"} & {c.option for c in report.table}


# ---- defects of others, by version


BACKWARD = {"kernel": (2,), "stride": (1,), "padding": ((1, 1),), "dilation": (2,)}
DEFECTS: list[tuple[str, str, Case, Verdict, str]] = [
    # backend, version, case, verdict, class
    ("torch", "2.13.0", Case("max_pool", ((1, 1, 1),), BACKWARD, mode="indices"), Verdict.INDEX, "empty window"),
    (
        "torch",
        "2.13.0",
        Case("max_pool", ((4, 3, 1),), BACKWARD, data="ones", mode="vjp"),
        Verdict.GRADIENT,
        "empty window",
    ),
    (
        "torch",
        "2.13.0",
        Case("max_pool", ((1, 1, 4),), {"kernel": (4,)}, mode="indices", values=((1.0, NAN, NAN, 2.0),)),
        Verdict.INDEX,
        "nan",
    ),
    (
        "torch",
        "2.13.0",
        Case("lp_pool", ((1, 1, 2),), {"kernel": (2,), "p": 3.0}, values=((3.0, -4.0),)),
        Verdict.SPECIAL,
        "sign",
    ),
    (
        "torch",
        "2.13.0",
        Case("lp_pool", ((1, 1, 2),), {"kernel": (2,), "p": 1.0}, values=((3.0, -4.0),)),
        Verdict.VALUE,
        "sign",
    ),
    (
        "torch",
        "2.13.0",
        Case("lp_pool", ((1, 1, 2),), {"kernel": (2,)}, values=((1e30, 1e30),)),
        Verdict.SPECIAL,
        "overflow",
    ),
    (
        "torch",
        "2.13.0",
        Case("lp_pool", ((1, 1, 2),), {"kernel": (2,)}, values=((1e-30, 1e-30),)),
        Verdict.VALUE,
        "underflow",
    ),
    (
        "torch",
        "2.13.0",
        Case("lp_pool", ((1, 1, 3),), {"kernel": (2,), "ceil_mode": True}, data="ones"),
        Verdict.VALUE,
        "divisor",
    ),
    (
        "torch",
        "2.13.0",
        Case("avg_pool", ((1, 1, 2),), {"kernel": (2,)}, values=((3e38, 3e38),)),
        Verdict.SPECIAL,
        "overflow",
    ),
    (
        "torch",
        "2.13.0",
        Case("avg_pool", ((1, 1, 2**25),), {"kernel": (2**25,)}, data="ones"),
        Verdict.VALUE,
        "accumulation",
    ),
    ("torch", "2.13.0", Case("conv", ((1, 0, 3), (2, 0, 2)), {}), Verdict.SHAPE, "size rule"),
    (
        "jax",
        "0.10.2",
        Case("max_pool", ((1, 1, 3),), {"kernel": (3,)}, mode="vjp", values=((1.0, NAN, 2.0), (1.0,))),
        Verdict.GRADIENT,
        "nan",
    ),
    (
        "jax",
        "0.10.2",
        Case("avg_pool", ((1, 1, 4096),), {"kernel": (4096,)}, dtype="bfloat16", data="ones"),
        Verdict.VALUE,
        "accumulation",
    ),
    ("jax", "0.10.2", Case("max_pool", ((1, 1, 2),), {"kernel": (3,)}), Verdict.SHAPE, "size rule"),
    (
        "onnxruntime",
        "1.31.1",
        Case("max_pool", ((1, 1, 2),), {"kernel": (2,)}, values=((-INF, -INF),)),
        Verdict.SPECIAL,
        "infinity",
    ),
    (
        "onnxruntime",
        "1.31.1",
        Case("avg_pool", ((1, 1, 3),), {"kernel": (2,), "stride": (1,), "padding": ((2, 2),)}),
        Verdict.REFUSED,
        "refusal",
    ),
    (
        "onnx-reference",
        "1.23.2",
        Case("max_pool", ((1, 1, 4),), {"kernel": (2,), "stride": (1,), "padding": ((1, 1),)}),
        Verdict.REFUSED,
        "refusal",
    ),
    (
        "openvino",
        "2026.4.1",
        Case("max_pool", ((1, 1, 5),), {"kernel": (2,), "stride": (4,), "padding": ((1, 1),), "ceil_mode": True}),
        Verdict.SHAPE,
        "size rule",
    ),
    (
        "openvino",
        "2026.4.1",
        Case("max_pool", ((1, 1, 2),), {"kernel": (2,)}, values=((NAN, NAN),)),
        Verdict.SPECIAL,
        "nan",
    ),
]


@pytest.mark.parametrize(
    ("backend", "version", "case", "verdict", "kind"),
    DEFECTS,
    ids=[f"{b}-{c.op}-{k.replace(' ', '_')}-{at}" for at, (b, _, c, _, k) in enumerate(DEFECTS)],
)
def test_defects_are_pinned_by_version(backend: str, version: str, case: Case, verdict: Verdict, kind: str) -> None:
    found = find(backend)
    pytest.importorskip(found.module)
    if not found.version.split()[-1].startswith(version):
        pytest.skip(f"{found.version} is not {version}")
    outcome = alone(found, case)
    assert (outcome.verdict, outcome.kind) == (verdict, kind), outcome


def test_a_corrupted_heap_is_noticed() -> None:
    """Gradients of windows without cells are written outside of the array; the process dies sooner or later."""
    found = find("torch")
    if not found.version.split()[-1].startswith("2.13.0"):
        pytest.skip(found.version)
    many = Case(
        "max_pool",
        ((4, 3, 1, 1, 12),),
        {"kernel": (3, 3, 3), "stride": (6, 6, 6), "padding": ((1, 1),) * 3}
        | {"dilation": (2, 2, 2), "ceil_mode": True},
        mode="vjp",
    )
    assert any(alone(found, many, 60).verdict is Verdict.CRASHED for _ in range(3))


TORCH = {
    "adaptive_max_pool": {"nan"},
    "avg_pool": {"accumulation", "overflow"},
    "conv": {"nan", "size rule"},
    "global_avg_pool": {"overflow"},
    "lp_pool": {"sign", "gradient", "overflow", "underflow", "infinity", "divisor"},
    "max_pool": {"empty window", "crash", "hang", "nan"},
}
"""Defects of torch 2.13 by operator and class; what it documents is in known/torch.toml."""
BFLOAT16 = {"crash", "infinity", "underflow"}
"""Of its convolutions in bfloat16, where processors have products of these: subnormal numbers are flushed, infinities
become NaN, and processes die of instructions that a virtual machine does not have."""


def test_torch_agrees_but_for_its_defects_and_what_it_documents() -> None:
    """Values, indices and both derivatives of every operator that torch has: two definitions written apart."""
    found, known = find("torch"), read("torch")
    if not found.version.split()[-1].startswith("2.13.0"):
        pytest.skip(found.version)
    outcomes = [o for r in Processes().map(plan("torch", None, 450, 4)) for o in r.outcomes]
    other = [o for o in outcomes if o.failed and not any(k.covers(o) for k in known)]
    assert sum(not o.failed for o in outcomes) > 400 and other
    for o in other:
        products = o.case.dtype == "bfloat16" and o.case.op in ("conv", "conv_transpose")
        assert o.kind in TORCH.get(o.case.op, set()) | (BFLOAT16 if products else set()), o


# ---- known differences


def test_every_shipped_line_is_read() -> None:
    lines = {name: read(name) for name in NAMES}
    assert lines["torch"] and not lines["lunette"]
    for known in lines.values():
        assert all(set(line.kinds) <= set(rules.RULES) and line.reason.endswith(".") for line in known)


VERSIONS = {name: version for name, version, *_ in DEFECTS}
SHIPPED = [(name, line) for name in NAMES for line in read(name)]


@pytest.mark.parametrize(
    ("name", "line"), SHIPPED[ALL_OR_HALF], ids=[f"{n}-{line.name}" for n, line in SHIPPED[ALL_OR_HALF]]
)
def test_every_shipped_line_still_differs(name: str, line: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every x86-64 processor: for an example of a lesser instruction set the library's own switch is turned."""
    found = find(name)
    pytest.importorskip(found.module)
    if not found.version.split()[-1].startswith(VERSIONS.get(name, "")):
        pytest.skip(found.version)
    for switch in () if line.asked(found.isa) else found.switches:
        monkeypatch.setenv(switch, LEAST[switch])
    assert line.asked(found.isa)
    with closing(Nursery(found)) as nursery:
        worker = nursery.fork()
        outcome = worker.ask(line.example, 60)
        worker.end()
    assert outcome.failed and line.covers(outcome), outcome


LEAST = {"ONEDNN_MAX_CPU_ISA": "SSE41"}


@pytest.mark.parametrize(
    ("switch", "value", "least"),
    [
        ("ONEDNN_MAX_CPU_ISA", "SSE41", "generic"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2_VNNI", "avx2"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE", "avx512"),
        ("ONEDNN_MAX_CPU_ISA", "DEFAULT", "avx512"),
        ("ATEN_CPU_CAPABILITY", "default", "generic"),
        ("ATEN_CPU_CAPABILITY", "avx2", "avx2"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_cpu_max_isa=AVX2", "avx2"),
        ("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2", "generic"),
        ("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false", "avx512"),
        ("LUNETTE_ISA", "avx2", "avx2"),
        ("LUNETTE_ISA", "", "avx512"),
    ],
)
def test_a_peer_sees_the_best_instruction_set_or_what_its_switch_allows(switch: str, value: str, least: str) -> None:
    assert seen([switch], {switch: value}) == min(processor(), least, key=SETS.index)
    assert seen([], {switch: value}) == processor()


def test_a_line_for_another_instruction_set_is_not_stale(tmp_path: Path) -> None:
    """Its example is not asked, the run does not fail, and the report tells it apart; what it accepts, it accepts."""
    path = tmp_path / "known.toml"
    others = [s for s in SETS if s != processor()]
    path.write_text(f"{KNOWN}isa = {json.dumps(others)}")
    report = conform(ln.global_max_pool, "global_max_pool", cases=20, known=path)
    assert report.exit_status == 0 and not report.stale
    assert report.elsewhere == (f"halves: asked with {' or '.join(others)}, not {processor()}",)
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    report = conform(half_of_everything, "global_max_pool", cases=20, known=path)
    assert report.exit_status == 0 and [f.known for f in report.findings] == ["halves: It is meant to."]
    path.write_text(f'{KNOWN}isa = ["{processor()}"]')
    report = conform(ln.global_max_pool, "global_max_pool", cases=20, known=path)
    assert report.exit_status == 1 and report.stale and not report.elsewhere


KNOWN = """
[[known]]
name = "halves"
ops = ["global_max_pool"]
kinds = ["value", "underflow"]
reason = "It is meant to."
example = { shapes = [[1, 1, 1]], options = { spatial = 1 }, data = "ones" }
"""


def test_an_accepted_difference_is_no_failure_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(KNOWN)
    report = conform(half_of_everything, "global_max_pool", cases=20, known=path)
    assert (
        report.exit_status == 0
        and report.failures
        and [f.known for f in report.findings] == ["halves: It is meant to."]
    )
    report = conform(ln.global_max_pool, "global_max_pool", cases=20, known=path)
    assert report.exit_status == 1 and not report.findings
    assert report.stale == ("halves: its example is equal",)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (KNOWN.replace("reason", "because"), "because unknown or missing"),
        (KNOWN.replace("[[known]]", "[[known"), "TOMLDecodeError"),
        ('[[known]]\nname = "x"', "ops unknown or missing"),
        (KNOWN.replace("global_max_pool", "global_max_pol"), "Did you mean global_max_pool"),
        (KNOWN.replace("underflow", "underflw"), "'underflw' in kinds. Did you mean underflow"),
        (f'{KNOWN}verdicts = ["equal"]', "'equal' in verdicts"),
        (f'{KNOWN}modes = ["backward"]', "'backward' in modes"),
        (f'{KNOWN}dtypes = ["float23"]', "Did you mean float32"),
        (f'{KNOWN}dtypes = "float32"', "dtypes as a list of names"),
        (f'{KNOWN}message = "("', "unterminated"),
        (f'{KNOWN}isa = ["avx"]', "isa among generic, avx2, avx512"),
    ],
)
def test_a_file_of_known_differences_is_checked(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(ln.ArgumentError, match=part) as caught:
        read("torch", path)
    assert caught.value.rule == "V3"


# ---- refusals


def test_what_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, extra in (
        ("torch", "torch"),
        ("onnxruntime", "onnx"),
        ("openvino", "openvino"),
        ("tinygrad", "tinygrad"),
    ):
        with pytest.raises(ln.ArgumentError) as caught:
            run(name)
        assert caught.value.rule == "V1" and f"pip install 'lunette[{extra}]'" in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "rule", "part"),
    [
        (lambda: conform("troch"), "V2", "Did you mean torch?"),
        (lambda: conform("torch", ops=["max_pull"]), "V4", "Did you mean max_pool?"),
        (lambda: conform("torch", "smooth_max_pool"), "V4", "operators that torch has"),
        (lambda: conform("jax", modes=["indices"]), "V6", "forward, jvp, vjp"),
        (lambda: conform(lambda x: x), "V5", "op among conv"),
        (lambda: conform("math:sqrt"), "V5", "Pass op=."),
        (lambda: conform("math:squirt", "max_pool"), "V5", "a function squirt in math"),
        (lambda: conform("no_such_module:f", "max_pool"), "V5", "a module no_such_module"),
        (lambda: conform(3, "max_pool"), "V5", "a function"),  # type: ignore[arg-type]
    ],
)
def test_refusals(ask: Callable[[], Any], rule: str, part: str) -> None:
    with pytest.raises(ln.ArgumentError) as caught:
        ask()
    assert caught.value.rule == rule and part in str(caught.value) and str(caught.value).startswith("conform [")


def test_the_package_is_the_function() -> None:
    asked: Any = ln
    assert asked.conform(ln.global_max_pool, cases=5).exit_status == 0


def test_failures_are_verdicts() -> None:
    assert {Verdict.EQUAL, Verdict.WITHIN, Verdict.UNSUPPORTED, Verdict.DECLINED} == set(Verdict) - FAILURES
    assert Outcome(Case("conv", ((1, 1, 1), (1, 1, 1))), Verdict.HUNG).failed
