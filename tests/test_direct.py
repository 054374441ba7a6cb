"""Direct convolution, which is taken when LUNETTE_DIRECT asks for it: the same laws.

The choice is made once per process, so these are runs of others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lunette as ln

HERE = Path(__file__).parent
BITS = """
import hashlib, numpy as np, lunette as ln
rng = np.random.default_rng(0)
x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 40, 33, 35), (48, 40, 3, 3)))
print(hashlib.sha256(ln.conv(x, w, padding=1).tobytes()).hexdigest())
"""

pytestmark = pytest.mark.skipif(ln.instruction_set() == "generic", reason="the generic set has no direct convolution")


def run(direct: str, *arguments: str) -> str:
    env = {**os.environ, "LUNETTE_DIRECT": direct}
    done = subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_it_is_taken_when_asked_for() -> None:
    """Another order of the same terms, hence other last bits."""
    assert run("1", "-c", BITS) != run("0", "-c", BITS)


def test_the_laws_hold() -> None:
    plain = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist")
    kernels, sums = str(HERE / "test_kernels.py"), str(HERE / "test_sums.py")
    chosen = "sign_of_a_zero or strange_cell or whatever_the_weight or (minus_zero and conv)"
    assert " passed" in run("1", *plain, kernels, "-k", chosen)
    assert " passed" in run("1", *plain, sums, "-k", "side")
