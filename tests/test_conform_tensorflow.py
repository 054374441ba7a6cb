"""TensorFlow and Keras as backends, where installed: every operator in every mode, and the line that shows it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lunette.conform.ask import alone
from lunette.conform.backends import find
from lunette.conform.case import Case

CASES = [
    Case("max_pool", ((2, 3, 7),), {"kernel": (3,), "stride": (2,)}),
    Case("avg_pool", ((2, 3, 5, 6),), {"kernel": (2, 3), "padding": "same", "count_include_pad": False}),
    Case("conv", ((2, 4, 6), (6, 2, 3), (6,)), {"stride": (2,), "padding": "same", "groups": 2}),
    Case("conv", ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2)), {"stride": (1, 2, 1)}),
    Case("conv_transpose", ((2, 2, 3, 3), (2, 3, 2, 2)), {"stride": (2, 2)}),
    Case("global_max_pool", ((2, 3, 4, 5),), {"spatial": 2, "keepdims": False}),
    Case("global_avg_pool", ((2, 3, 4),), {"spatial": 1}),
]


@pytest.mark.parametrize("name", ["tensorflow", "keras"])
@pytest.mark.parametrize("mode", ["forward", "jvp", "vjp"])
def test_every_operator_agrees(name: str, mode: str) -> None:
    pytest.importorskip(find(name).module, reason=f"{name} is not installed")
    asked = [Case(c.op, c.shapes, c.options, mode=mode, seed=3) for c in CASES]
    asked = [c if c.op != "global_max_pool" or mode == "forward" else _split(c) for c in asked]
    asked = [c for c in asked if not (mode == "vjp" and "groups" in c.options)]  # known/tensorflow.toml
    told = {c.op: find(name).supports(c) for c in asked}
    assert not any(told.values()), told
    failed = [o for o in (alone(find(name), c) for c in asked) if o.failed]
    assert not failed, failed


def _split(case: Case) -> Case:
    return Case(case.op, case.shapes, {**case.options, "ties": "split"}, mode=case.mode, seed=case.seed)


@pytest.mark.parametrize("name", ["tensorflow", "keras"])
def test_the_line_that_reproduces_runs(name: str) -> None:
    backend = find(name)
    pytest.importorskip(backend.module, reason=f"{name} is not installed")
    for mode in ("forward", "jvp", "vjp"):
        case = Case("conv", ((1, 2, 4), (3, 2, 2), (3,)), {}, mode=mode)
        environment = {**os.environ, **backend.environment}
        ran = subprocess.run([sys.executable, "-c", backend.source(case)], env=environment, capture_output=True)
        assert ran.returncode == 0 and b"tf.Tensor" in ran.stdout, ran.stderr[-500:]
