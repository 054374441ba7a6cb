"""Whole default runs of conform: what they must find without being told, and in what time. Part of `make test-all`."""

from __future__ import annotations

import time

import pytest

from lunette.conform.backends import find
from lunette.conform.result import Batch, Report, Verdict
from lunette.conform.run import Processes, run

# (operator, class, verdict) -> no more cells in the smallest case than this
TORCH = {
    ("max_pool", "empty window", "index"): 1,
    ("max_pool", "empty window", "gradient"): 1,
    ("max_pool", "crash", "crashed"): 12,
    ("max_pool", "hang", "hung"): 4,
    ("max_pool", "nan", "index"): 3,
    ("lp_pool", "sign", "special"): 2,
    ("lp_pool", "sign", "value"): 2,
    ("lp_pool", "overflow", "special"): 1,
    ("lp_pool", "underflow", "value"): 1,
    ("lp_pool", "divisor", "value"): 3,
    ("avg_pool", "overflow", "special"): 2,
    ("avg_pool", "accumulation", "value"): 2**25,
    ("conv", "size rule", "shape"): 0,
}
COMPILED = {
    ("avg_pool", "divisor", "gradient"): 3,
    ("max_pool", "index", "index"): 4,  # of a padded window of -inf, which its backward pass then refuses
}
ONNXRUNTIME = {
    ("max_pool", "infinity", "special"): 1,
    ("global_max_pool", "infinity", "special"): 1,
    ("max_pool", "empty window", "value"): 1,
    ("avg_pool", "accumulation", "value"): 2**25,
    ("lp_pool", "accumulation", "value"): 2**25,
    ("avg_pool", "refusal", "refused"): 4,
}
OPENVINO = {
    ("max_pool", "size rule", "shape"): 5,
    ("max_pool", "nan", "special"): 1,
    ("max_pool", "infinity", "special"): 1,
    ("avg_pool", "divisor", "value"): 9,
}
REFERENCE = {
    ("max_pool", "refusal", "refused"): 4,
    ("max_pool", "nan", "special"): 2,
}
JAX = {
    ("max_pool", "nan", "gradient"): 3,
    ("avg_pool", "accumulation", "value"): 4096,
    ("max_pool", "size rule", "shape"): 3,
}
RUNS = [
    ("torch", "2.13.0", TORCH, 300),
    ("torch-compile", "2.13.0", COMPILED, 900),
    ("jax", "0.10.2", JAX, 600),
    ("onnxruntime", "1.31.1", ONNXRUNTIME, 300),
    ("onnx-reference", "1.23.2", REFERENCE, 300),
    ("openvino", "2026.4.1", OPENVINO, 600),
]


@pytest.mark.parametrize(("backend", "version", "expected", "seconds"), RUNS, ids=[r[0] for r in RUNS])
def test_a_default_run_finds_the_defects(
    backend: str, version: str, expected: dict[tuple[str, str, str], int], seconds: float
) -> None:
    found = find(backend)
    pytest.importorskip(found.module)
    if not found.version.split()[-1].startswith(version):
        pytest.skip(f"{found.version} is not {version}")
    report = run(backend)
    smallest = sizes(report)
    missing = {key: smallest.get(key) for key, most in expected.items() if smallest.get(key, 2**62) > most}
    assert not missing, f"not found, or not reduced: {missing}"
    assert not report.stale and report.exit_status == 1
    assert report.seconds <= seconds


def sizes(report: Report) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = {}
    for f in report.findings:
        for verdict in f.verdicts:
            key = (f.op, f.kind, verdict)
            found[key] = min(f.case.size, found.get(key, f.case.size))
    return found


def test_lunette_passes_everything() -> None:
    report = run("lunette")
    assert report.cases > 8000 and report.failures == 0 and set(report.verdicts) == {"equal", "within"}


def test_two_thousand_small_cases_a_minute_on_one_core() -> None:
    batches = [Batch("torch", op, 7, index, 50) for op in find("torch").space.ops for index in (1, 2, 3)]
    list(Processes(1).map(batches[:1]))  # the library is imported
    began = time.perf_counter()
    outcomes = [o for r in Processes(1).map(batches) for o in r.outcomes]
    rate = sum(o.verdict is not Verdict.UNSUPPORTED for o in outcomes) / (time.perf_counter() - began) * 60
    print(f"{rate:,.0f} cases a minute on one core")
    assert rate >= 2000, rate
