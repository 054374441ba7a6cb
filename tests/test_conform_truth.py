"""What the judge holds to be right: the two ways to the exact answer agree, and long sums are held to their bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lunette.conform import truth as truths
from lunette.conform.backends.lunette import Lunette
from lunette.conform.case import Case
from lunette.conform.generate import draws
from lunette.conform.judge import judge
from lunette.conform.result import Batch, Verdict
from lunette.conform.truth import truth

MANY = 2**25


@pytest.mark.parametrize("op", Lunette.space.ops)
def test_the_answer_in_float64_is_the_one_of_the_specification(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    for drawn, _ in draws(Batch("lunette", op, 5, 1, 60), Lunette()):
        case = replace(drawn, dtype="float64")
        data = case.arrays()
        small = truth(case, data)
        with monkeypatch.context() as patch:
            patch.setattr(truths, "MOST_PRODUCTS", -1)
            large = truth(case, data)
        assert (small.refusal is None) == (large.refusal is None)
        for exact, other in zip(small.answers, large.answers, strict=True):
            asked += exact.hi.size
            if all(np.isfinite(a).all() for a in data.every):
                np.testing.assert_array_equal(other.hi, exact.hi, err_msg=repr(case))
            with np.errstate(invalid="ignore"):
                off = np.abs((other.hi - exact.hi) - exact.lo)
                near = (off <= other.bound + exact.bound) | (other.hi == exact.hi) | np.isnan(exact.hi)
            assert near.all() and (np.isnan(other.hi) == np.isnan(exact.hi)).all(), case
    assert asked > 100


def test_infinite_cells_of_a_norm_share_its_derivative_within_a_bound() -> None:
    """A third of five, computed in two orders."""
    case = Case(
        "lp_pool", ((1, 1, 3),), {"kernel": (3,)}, "float64", mode="jvp", values=((-np.inf,) * 3, (1.0, 4.0, 0.0))
    )
    (answer,) = truth(case, case.arrays()).answers
    assert 2.0**-52 < answer.bound[0, 0, 0] < 2.0**-40
    outcome = judge(case, case.arrays(), np.full((1, 1, 1), -(1 / 3 + 4 / 3)), truth(case, case.arrays()))
    assert not outcome.failed


def blocked(x: Any) -> np.float32:
    return np.float32(x.mean(dtype=np.float32))


def one_by_one(x: Any) -> np.float32:
    return np.float32(np.cumsum(x.ravel(), dtype=np.float32)[-1] / np.float32(MANY))


@pytest.mark.parametrize(("mean", "verdict"), [(blocked, Verdict.EQUAL), (one_by_one, Verdict.VALUE)])
def test_a_running_sum_of_many_ones_fails_and_a_blocked_one_does_not(mean: Any, verdict: Verdict) -> None:
    case = Case("global_avg_pool", ((1, 1, MANY),), {"spatial": 1}, data="ones")
    data = case.arrays()
    outcome = judge(case, data, np.full((1, 1, 1), mean(data.primals[0])), truth(case, data))
    assert outcome.verdict is verdict
    assert verdict is Verdict.EQUAL or (outcome.kind, outcome.units) == ("accumulation", 2.0**23)
