"""What a fresh installation must do, without a test library; `make wheels` runs it."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

import lunette as ln


def main() -> None:
    """Kernels beside the specification, derivatives, a graph, a proof, the command line; one line if all is well."""
    home = Path(ln.__file__).parent
    assert Path(sys.prefix) in home.parents, f"{home} is not the installed package"
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (2, 3, 9, 8)).astype(np.float32), rng.integers(-3, 3, (4, 3, 3, 3)).astype(np.float32)
    exact = ln.spec.conv(x[0].astype(int), w.astype(int), padding=1)
    assert np.array_equal(ln.conv(x, w, padding=1)[0], np.array(exact, float))
    assert np.array_equal(ln.max_pool(x, 2)[0], np.array(ln.spec.max_pool(x[0].astype(int), 2), float))
    assert ln.avg_pool([[1, 2, 4]], (2,), stride=1).tolist() == [[Fraction(3, 2), Fraction(3)]]

    def f(x: np.ndarray) -> np.ndarray:
        return ln.sum(ln.max_pool(ln.relu(ln.conv(x, w)), 2))  # type: ignore[no-any-return]

    value, gradient = ln.jit(ln.value_and_grad(f))(x)
    assert value == f(x) and gradient.shape == x.shape
    box = ln.Interval.around(np.float64([[[[5, 4]], [[1, 0]]]]), 0.5)
    proof = ln.verify(lambda x: ln.flatten(ln.global_max_pool(x)), box, ln.Property.robust(0, 2))
    assert proof.status == "proved"
    told = subprocess.run(
        [Path(sys.executable).with_name("lunette"), "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == ln.__version__
    native = next(home.glob("_native*.so"))
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"lunette {ln.__version__} on Python {version}: {native.name}, {ln.instruction_set()}")


if __name__ == "__main__":
    main()
