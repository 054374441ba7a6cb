"""What lunette.jax refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lunette as ln
import lunette.jax
from lunette.jax.build import build
from lunette.jax.way import SOURCE
from test_errors import refused

lj: Any = lunette.jax
X = np.zeros((2, 3, 8, 8), np.float32)


def test_j1_boxes_have_no_place_under_jax() -> None:
    refused(
        lambda: lj.max_pool(X, 2, arithmetic="interval"),
        ln.ArgumentError,
        'max_pool (d=2) [J1] needs arithmetic "fast" or "rounded" under JAX; got arithmetic="interval". '
        "Boxes of arrays go to lunette's own functions.",
    )


def test_j2_the_handler_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(SOURCE.parent.iterdir())
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(
        build,
        ln.ArgumentError,
        "build [J2] needs a C++ compiler that takes the headers of jaxlib; got no-such-compiler: "
        "\"[Errno 2] No such file or directory: 'no-such-compiler'\". "
        "Install one, or name it in CXX; without it JAX calls lunette by way of Python.",
    )
    assert sorted(SOURCE.parent.iterdir()) == before


def test_refusals_are_those_of_the_operators() -> None:
    traced = jax.jit(lambda x: lj.max_pool(x, 2, stride=0))
    for call in (lambda: lj.max_pool(X, 2, stride=0), lambda: traced(X)):
        refused(
            call,
            ln.ArgumentError,
            "max_pool (d=2) [W1] needs stride >= 1 on every axis; got stride=0 on spatial axis 0. "
            "The least stride is 1.",
        )
    refused(
        lambda: lj.conv(X, X.astype(np.float16)),
        ln.DTypeError,
        "conv (d=2) [D2] needs arrays of one dtype; got x of dtype float32 and w of dtype float16. "
        "Convert one of them: nothing is promoted silently.",
    )
    refused(
        lambda: lj.max_pool(jnp.zeros((1, 1, 4, 4), int), 2),
        ln.DTypeError,
        "max_pool (d=2) [D1] needs float16, bfloat16, float32 or float64; got x of dtype int32. "
        "Pass x.astype(jnp.float32).",
    )
    refused(
        lambda: lj.max_pool([[[[1.0]]]], 2),
        ln.DTypeError,
        "max_pool (d=2) [D1] needs arrays of JAX or NumPy; got x of type list. Pass jnp.asarray(x).",
    )
    refused(
        lambda: lj.smooth_max_pool(X, 2, beta=0.0),
        ln.ArgumentError,
        "smooth_max_pool (d=2) [S1] needs a finite beta other than zero; got beta=0.0. "
        "For the plain maximum use max_pool.",
    )
    refused(
        lambda: lj.max_pool(X, 2, colour="red"),
        ln.ArgumentError,
        "max_pool (d=2) [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); got an unknown colour. Arrays come first, options are keywords.",
    )


def test_a_device_that_is_not_the_cpu_is_named() -> None:
    with pytest.raises(ln.DTypeError, match=r"max_pool \[D5\] needs arrays on the CPU; got arrays on cuda\."):
        jax.jit(lambda x: lj.max_pool(x, 2)).trace(X).lower(lowering_platforms=("cuda",))
