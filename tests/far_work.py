"""What the workers of a test's cluster import: work that needs no backend, and a function with something to find."""

from __future__ import annotations

import time
from typing import Any

import lunette as ln
from lunette.conform.case import Case
from lunette.conform.result import Batch, BatchResult, Outcome, Verdict
from lunette.number import Array

ran_here: list[Batch] = []
"""What this process has counted."""


def count_up(batch: Batch) -> BatchResult:
    """Outcomes that only depend on the batch, after a while."""
    ran_here.append(batch)
    time.sleep(0.02)
    verdicts = (Verdict.EQUAL, Verdict.WITHIN, Verdict.VALUE)
    cases = [Case(batch.op, ((1, 1, 4),), {"kernel": (2,)}, seed=batch.index * 100 + at) for at in range(batch.cases)]
    return BatchResult(batch, tuple(Outcome(c, verdicts[c.seed % 3]) for c in cases))


def count_slowly(batch: Batch) -> BatchResult:
    """A second for each: what is left behind does not end by itself."""
    time.sleep(1)
    return count_up(batch)


def forgetful_pool(x: Array, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool) -> Array:
    """An average that never counts padding, and forgets ceil_mode for long strides: two things to be found."""
    longest = max(stride) if isinstance(stride, tuple) else stride or 0
    kept = ceil_mode and longest < 3
    y: Array = ln.avg_pool(x, kernel, stride=stride, padding=padding, ceil_mode=kept, count_include_pad=False)
    return y


FORGETFUL = "far_work:forgetful_pool as avg_pool"
