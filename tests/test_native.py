"""The compiled core as a whole: its stub, threads, forks, memory layouts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette import _native
from lunette.number import Array

ROOT = Path(__file__).parents[1]


def test_the_stub_in_the_repository_describes_the_module() -> None:
    from nanobind.stubgen import StubGen

    generator = StubGen(_native)
    generator.put(_native)
    assert (ROOT / "src/lunette/_native.pyi").read_text() == generator.get(), "make stub"


def problem(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 6, 20, 21)).astype(np.float32)
    w = rng.standard_normal((8, 6, 3, 3)).astype(np.float32)
    return {"x": x, "w": w, "b": rng.standard_normal(8).astype(np.float32)}


def compute(seed: int) -> list[Array]:
    """Every kernel once."""
    p = problem(seed)
    x, w, b = p["x"], p["w"], p["b"]
    y = ln.conv(x, w, b, padding=1, stride=2)
    pooled = ln.max_pool(x, 3, stride=2, padding=1)
    up = ln.conv_transpose(x, np.ascontiguousarray(w.swapaxes(0, 1)), stride=2)
    return [
        y,
        *ln.conv_vjp((x, w, b), y, padding=1, stride=2),
        up,
        pooled,
        ln.max_pool_jvp((x,), (x,), kernel=3, stride=2),
        *ln.max_pool_vjp((x,), pooled, kernel=3, stride=2, padding=1),
        ln.avg_pool(x, 3),
        *ln.avg_pool_vjp((x,), ln.avg_pool(x, 3), kernel=3),
        ln.smooth_max_pool(x[:1, :1], 3, beta=2.0),
        ln.lp_pool(x[:1, :1], 3),
        ln.adaptive_avg_pool(x, 7),
        ln.global_max_pool(x),
    ]


def equal(a: list[Array], b: list[Array]) -> bool:
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


def test_many_python_threads_get_the_same_results() -> None:
    want = [compute(seed) for seed in range(4)]
    failures: list[int] = []

    def work(seed: int) -> None:
        failures.extend(seed for _ in range(5) if not equal(compute(seed), want[seed]))

    threads = [threading.Thread(target=work, args=(n % 4,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failures and not any(t.is_alive() for t in threads)


def test_a_forked_child_computes_too() -> None:
    """In a process of its own: other libraries in this one object to forks."""
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
from test_native import compute
want = [a.tobytes() for a in compute(0)]
child = os.fork()
if child == 0:
    os._exit(0 if [a.tobytes() for a in compute(0)] == want else 1)
assert os.waitpid(child, 0)[1] == 0
assert [a.tobytes() for a in compute(0)] == want
"""
    run = [sys.executable, "-c", code, str(ROOT / "tests")]
    subprocess.run(run, check=True, timeout=60)


def test_results_repeat_for_every_number_of_threads() -> None:
    before = ln.get_num_threads()
    for n in (1, 2, 3, 4):
        ln.set_num_threads(n)
        assert ln.get_num_threads() == n
        assert equal(compute(7), compute(7))
    ln.set_num_threads(before)


def test_layout_does_not_matter_to_the_result() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 10)).astype(np.float32)
    want = ln.max_pool(x, 3, stride=2, padding=1)
    wide = np.zeros((2, 3, 18, 20), np.float32)
    wide[..., ::2, ::2] = x
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    for other in (x.copy("F"), wide[..., ::2, ::2], x[..., ::-1][..., ::-1], shifted, read_only, x.astype(">f4")):
        y = ln.max_pool(other, 3, stride=2, padding=1)
        assert np.array_equal(y, want) and y.flags.c_contiguous


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_an_instruction_set_can_be_forced(isa: str) -> None:
    """One that the machine does not have is refused in words, not by an illegal instruction."""
    code = "import lunette as ln, numpy as np; print(ln.instruction_set(), ln.max_pool(np.ones((1, 1, 4)), 2).sum())"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LUNETTE_ISA": isa}, capture_output=True, text=True, timeout=60
    )
    assert run.returncode in (0, 1)
    assert run.stdout == f"{isa} 2.0\n" or isa in run.stderr
