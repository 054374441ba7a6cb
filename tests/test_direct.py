"""Direct convolution, which is taken where it pays, or wherever it can when LUNETTE_DIRECT asks for it: the same laws.

The choice is made once per process, so these are runs of others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lunette as ln
from effort import LONG

HERE = Path(__file__).parent
BITS = """
import hashlib, numpy as np, lunette as ln
rng = np.random.default_rng(0)
x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 70, 33, 35), (48, 70, 3, 3)))
print(hashlib.sha256(ln.conv(x, w, padding=1).tobytes()).hexdigest())
"""

GEOMETRIES = """
import itertools, numpy as np, lunette as ln
from functools import partial
from lunette.arithmetic.error import gamma, height
# x, w and options: by the blocks of pixels and vectors of channels that they are cut into on AVX-512
CASES = {
    "one vector, three taps": ((2, 12, 30, 32), (16, 12, 3, 3), {"padding": 1}),
    "one vector, a line done twice": ((1, 24, 20, 37), (16, 24, 3, 3), {"padding": 2}),
    "one vector, five taps": ((2, 6, 14, 14), (16, 6, 5, 5), {}),
    "one vector, five taps at the edge": ((1, 9, 20, 28), (13, 9, 5, 5), {"padding": 2}),
    "two vectors": ((1, 20, 28, 28), (32, 20, 3, 3), {"padding": 1}),
    "two vectors, some channels missing": ((1, 20, 15, 17), (27, 20, 3, 3), {"padding": 1}),
    "two vectors, stride": ((2, 20, 29, 28), (32, 20, 3, 3), {"stride": 2, "padding": 1}),
    "three vectors": ((1, 40, 9, 7), (96, 40, 3, 3), {"padding": 1}),
    "four vectors": ((3, 40, 4, 4), (64, 40, 3, 3), {"padding": 1}),
    "fewer pixels than lanes": ((1, 64, 3, 3), (64, 64, 3, 3), {"padding": 1}),
    "two pixels": ((1, 128, 2, 2), (64, 128, 3, 3), {"padding": 1}),
    "seven taps, stride": ((1, 5, 40, 41), (32, 5, 7, 7), {"stride": 2, "padding": 3}),
    "one tap": ((1, 40, 17, 33), (32, 40, 1, 1), {}),
    "one tap, stride": ((2, 70, 28, 28), (64, 70, 1, 1), {"stride": 2}),
    "one tap, more pixels than a tile": ((1, 20, 21, 40), (48, 20, 1, 1), {}),
    "weights beyond the cache": ((1, 130, 7, 7), (256, 130, 3, 3), {"padding": 1}),
    "groups": ((2, 40, 14, 14), (64, 20, 3, 3), {"padding": 1, "groups": 2}),
    "a volume": ((2, 10, 6, 9, 16), (32, 10, 3, 3, 3), {"padding": 1}),
    "seven taps at both edges": ((1, 3, 9, 5), (40, 3, 7, 7), {"padding": 3}),
    "eleven taps": ((2, 4, 5, 20), (20, 4, 3, 11), {"padding": (1, 5)}),
    "six and two taps": ((1, 9, 8, 12), (70, 9, 2, 6), {"stride": 2, "padding": 2}),
    "four taps, a long line": ((1, 8, 2, 700), (24, 8, 1, 4), {"stride": (1, 3)}),
    "small images": ((9, 5, 4, 4), (20, 5, 3, 3), {"padding": 1}),
    "little to do": ((1, 16, 8, 8), (16, 16, 3, 3), {"padding": 1}),
    "dilated": ((2, 20, 13, 28), (32, 20, 3, 3), {"padding": 2, "dilation": 2}),
    "dilated, several pixels of a block lack a tap": ((1, 20, 33, 33), (32, 20, 3, 3), {"padding": 6, "dilation": 6}),
    "dilated, whole blocks lack a tap": ((1, 20, 9, 33), (40, 20, 3, 3), {"padding": (3, 18), "dilation": (3, 18)}),
    "dilated, stride": ((1, 16, 20, 41), (48, 16, 3, 5), {"stride": 2, "padding": (4, 6), "dilation": (4, 3)}),
    "dilated, two taps of a long line": ((1, 24, 1, 300), (70, 24, 1, 2), {"padding": (0, 4), "dilation": (1, 8)}),
    "dilated volume": ((1, 10, 7, 9, 16), (32, 10, 3, 3, 3), {"padding": 2, "dilation": 2}),
    "residues, one tile": ((2, 40, 8, 8), (48, 40, 4, 4), {"stride": 2, "padding": 1}),
    "residues, groups": ((1, 64, 9, 12), (40, 32, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "residues, many tiles, lines of two lengths": ((1, 32, 41, 61), (24, 32, 3, 4), {"stride": 2, "padding": (1, 2)}),
    "residues of rows, of columns": ((1, 32, 21, 20), (40, 32, 3, 5), {"stride": (2, 1), "padding": (1, 2)}),
    "residues, three apart": ((1, 33, 20, 41), (48, 33, 5, 5), {"stride": (1, 3), "padding": 2}),
    "residues of a volume": ((1, 20, 8, 7, 6), (24, 20, 4, 3, 2), {"stride": 2, "padding": (1, 1, 0)}),
    "residues, cells that no tap reaches": ((1, 32, 12, 12), (32, 32, 1, 3), {"stride": 2}),
    "rows between whose taps nothing is": ((1, 16, 5, 20), (32, 16, 2, 3), {"padding": (4, 1), "dilation": (7, 1)}),
}
rng = np.random.default_rng(0)
for (name, (xs, ws, options)), bias, dtype in itertools.product(CASES.items(), (False, True), (np.float32, np.float64)):
    x, w = rng.standard_normal(xs).astype(dtype), rng.standard_normal(ws).astype(dtype)
    b = rng.standard_normal(ws[0]).astype(dtype) if bias else None
    h, u = height(w[0].size + 1), float(np.finfo(dtype).eps) / 2
    def check(f, *primals):
        y, exact, size = f(*primals), f(*primals, arithmetic="rounded"), f(*map(abs, primals))
        assert (abs(y - exact) <= gamma(h, u) * size + u * abs(exact)).all(), (name, bias, dtype)
    given = (x, w, b) if bias else (x, w)
    check(lambda *given, arithmetic="fast": ln.conv(*given, arithmetic=arithmetic, **options), *given)
    if not bias and len(xs) < 5:
        g = rng.standard_normal(ln.conv(x, w, **options).shape).astype(dtype)
        h = height(ws[0] * w[0, 0].size)
        f = lambda x, w, g, arithmetic="fast": ln.conv_vjp((x, w), g, arithmetic=arithmetic, **options)[0]
        check(f, x, w, g)
    if not bias:
        g, v = rng.standard_normal(ln.conv(x, w, **options).shape).astype(dtype), w.copy()
        g[rng.random(g.shape) < 0.5], g[:, 1] = 0, -0.0
        v[:, 0], v[:, 1], v[:, 2, ..., 0], v[:, -1, ..., -1] = -abs(v[:, 0]), 0, np.inf, np.nan
        strange = ln.conv_vjp((x, v), g, **options)[0]
        marks = np.stack([np.isnan(strange), np.isinf(strange), np.signbit(strange) & ~(strange != 0)])
        print(name, "dx", dtype.__name__, np.packbits(marks).tobytes().hex()[:4000])
        # A transposed convolution in a program: packed beforehand, with what follows.
        few = tuple(n - a for n, a in zip(x.shape[2:], ln.conv_transpose(g, w, **options).shape[2:]))
        up, r = partial(ln.conv_transpose, **options, output_padding=few), rng.standard_normal(x.shape).astype(dtype)
        f = lambda g: ln.relu(ln.add(up(g, w), r))
        size = up(abs(g), abs(w)) + abs(r)
        assert (abs(ln.jit(f)(g) - f(g)) <= 2 * gamma(height(ws[0] * w[0, 0].size + 2), u) * size).all(), name
    if not bias:
        g = rng.standard_normal(ln.conv(x, w, **options).shape).astype(dtype)
        h = height(g[:, 0].size)
        f = lambda x, w, g, arithmetic="fast": ln.conv_vjp((x, w), g, arithmetic=arithmetic, **options)[1]
        for threads in (1, 3):  # with several, the cells are shared out, too
            ln.set_num_threads(threads)
            check(f, x, w, g)
        ln.set_num_threads(1)
        z, some = x.copy(), (slice(None), slice(None), *(slice(3) for _ in xs[2:]))
        z[:, 0], g[rng.random(g.shape) < 0.5], g[:, 1] = 0, 0, -abs(g[:, 1])
        z[some][:, 1], z[some][:, 2], g[:, -1, ..., -1] = np.inf, np.nan, np.inf
        strange = f(z, w, g)
        marks = np.stack([np.isnan(strange), np.isinf(strange), np.signbit(strange) & ~(strange != 0)])
        print(name, "dw", dtype.__name__, np.packbits(marks).tobytes().hex()[:4000])
    # In a program: packed beforehand, with what follows.
    r = rng.standard_normal(ln.conv(x, w, **options).shape).astype(dtype)
    f = lambda x: ln.relu(ln.add(ln.conv(x, w, b, **options), r))
    y, z = ln.jit(f)(x), f(x)
    size = ln.conv(*map(abs, given), **options) + abs(r)
    assert (abs(y - z) <= 2 * gamma(height(w[0].size + 2), u) * size).all(), name
    # NaN, infinities and the signs of zeros are where they would be without padding.
    x[rng.random(x.shape) < 0.5] = 0
    w[0], w[1], w[2, ..., 0], w[-1, ..., -1] = -abs(w[0]), 0, np.inf, np.nan
    y, z = ln.conv(x, w, b, **options), ln.conv(np.zeros_like(x), w, b, **options)
    for strange in (y, z):
        marks = np.stack([np.isnan(strange), np.isinf(strange), np.signbit(strange) & ~(strange != 0)])
        print(name, bias, dtype.__name__, np.packbits(marks).tobytes().hex()[:4000])
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


def test_it_is_taken_where_it_pays() -> None:
    """With AVX-512; with AVX2 the blocked product is faster."""
    assert run("", "-c", BITS) == run("1" if ln.instruction_set() == "avx512" else "0", "-c", BITS)


def test_every_block_keeps_the_bound_and_absent_taps_add_nothing() -> None:
    assert run("1", "-c", GEOMETRIES) == run("0", "-c", GEOMETRIES)


def test_the_laws_hold() -> None:
    plain = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist")
    kernels, sums = str(HERE / "test_kernels.py"), str(HERE / "test_sums.py")
    chosen = "strange_cell or whatever_the_weight" + " or sign_of_a_zero or (minus_zero and conv)" * LONG
    assert " passed" in run("1", *plain, kernels, "-k", chosen)
    assert " passed" in run("1", *plain, sums, "-k", "side" if LONG else "side and float32")
