"""What the tests of lunette.jax share: both ways to call the kernels, and the cases of every room as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import lunette
import lunette.jax
from lunette.jax.build import build
from lunette.jax.way import connected
from lunette.number import Array
from lunette.op import Case, Op
from lunette.ops import ALL

ln: Any = lunette
lj: Any = lunette.jax
BATCH = 2
every_operator = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in ALL])
one_way = pytest.mark.parametrize("way", ["ffi"], indirect=True)


@pytest.fixture(autouse=True, params=["ffi", "callback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to call the kernels, with 64 bits."""
    if request.param == "callback":
        monkeypatch.setenv("LUNETTE_JAX", "callback")
    elif lj.calls() != "ffi":  # there is no handler for this jaxlib yet
        build()
        connected.cache_clear()
    assert lj.calls() == request.param
    # Of all threads: callbacks of JAX run on another. What XLA would make better is not what is tested.
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    yield request.param
    jax.config.update("jax_enable_x64", wide)
    jax.config.update("jax_disable_most_optimizations", False)


def fill(kind: type[Op], case: Case, batch: tuple[int, ...] = (BATCH,), dtype: Any = np.float64) -> list[Array]:
    """Cells that are far from each other and from zero, in size too: differences do not step over a kink."""
    rng = np.random.default_rng(7)
    arrays: list[Array] = []
    for at, shape in enumerate(case.shapes):
        full = (*batch, *shape) if at in kind.batched else shape
        n = int(np.prod(full))
        cells = (rng.permutation(n) + 1.0) * rng.choice([-1, 1], n) / max(n, 4)
        arrays.append(cells.reshape(full).astype(dtype))
    if kind.scalars:
        arrays[1] = np.asarray(1.25, dtype)
    return arrays


def applied(library: Any, kind: type[Op], case: Case) -> Callable[..., Any]:
    """The operator of a case, as a function of its arrays."""
    function = getattr(library, kind.name)

    def f(*arrays: Any) -> Any:
        named = dict(zip(kind.arrays, arrays, strict=False))
        return function(named.pop("x"), **named, **case.options)

    return f


def cotangents(kind: type[Op], case: Case, primals: list[Array], g: Any) -> tuple[Array, ...]:
    """What lunette's own VJP gives."""
    back: tuple[Array, ...] = getattr(ln, f"{kind.name}_vjp")(tuple(primals), np.asarray(g), **case.options)
    return back


def equal(a: Any, b: Any) -> bool:
    """The same cells, NaN being NaN, of the same dtype."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def close(a: Any, b: Any) -> bool:
    """Equal but for the order of sums: some dozens of terms."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool((np.abs(a - b) <= 64 * 2**-52 * (1 + np.abs(b).max(initial=0))).all())
