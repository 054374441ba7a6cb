"""Convolution in four dimensions (say volumes over time), with both derivatives: the same functions as in two.

Checked in three ways: the two derivatives are adjoint, <g, J t> = <J' g, t>; a corner of the result equals the
executable specification on exact fractions; and JAX agrees where it is installed.
"""

import importlib.util
import time
from fractions import Fraction

import numpy as np

import lunette as ln

random = np.random.default_rng(0)
x = random.standard_normal((2, 3, 6, 7, 8, 9))  # batch, channels, then four axes of space
w = random.standard_normal((4, 3, 3, 2, 3, 2))
b = random.standard_normal(4)
options = {"stride": (1, 1, 2, 1), "padding": ((1, 1), (0, 1), (1, 1), (0, 0)), "dilation": (1, 1, 1, 2)}


def f(x, w, b):
    return ln.conv(x, w, b, **options)


begun = time.perf_counter()
t = tuple(random.standard_normal(a.shape) for a in (x, w, b))
y, dy = ln.jvp(f, (x, w, b), t)
y, pullback = ln.vjp(f, x, w, b)
g = random.standard_normal(y.shape)
back = pullback(g)
print(f"{x.shape} -> {y.shape}, with both derivatives, in {(time.perf_counter() - begun) * 1e3:.1f} ms")

left, right = float((g * dy).sum()), float(sum((p * q).sum() for p, q in zip(back, t, strict=True)))
print(f"adjoint: <g, J t> = {left:.9f}, <J' g, t> = {right:.9f}")
assert abs(left - right) < 1e-9 * np.sqrt((g**2).sum() * (dy**2).sum())


def exactly(a):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(a)


corner = x[:1, :, :3, :3, :3, :3]
floats = ln.conv(np.ascontiguousarray(corner), w[:1])
exact = ln.conv(exactly(corner), exactly(w[:1]))
error = max(abs(Fraction(float(a)) - v) for a, v in zip(floats.flat, exact.flat, strict=True))
print(f"against exact fractions: at most {float(error):.1e} off")
assert error < Fraction(1, 10**13)

if importlib.util.find_spec("jax") is None:
    print("JAX is not installed: not compared")
else:
    import jax

    jax.config.update("jax_enable_x64", True)

    def theirs(x, w, b):
        names = jax.lax.ConvDimensionNumbers(*(tuple(range(6)),) * 3)
        y = jax.lax.conv_general_dilated(
            x, w, options["stride"], options["padding"], rhs_dilation=options["dilation"], dimension_numbers=names
        )
        return y + b.reshape(-1, 1, 1, 1, 1)

    value, their_pullback = jax.vjp(theirs, x, w, b)
    pairs = [(y, value), (dy, jax.jvp(theirs, (x, w, b), t)[1]), *zip(back, their_pullback(g), strict=True)]
    gap = max(float(np.abs(p - np.asarray(q)).max() / np.abs(p).max()) for p, q in pairs)
    print(f"JAX agrees: result, JVP and VJP at most {gap:.1e} apart")
    assert gap < 1e-12
