"""Calls that were made before go a short way, which computes and refuses what the long one does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.array import resolved
from lunette.number import Array

SHAPE = (1, 3, 8, 8)


def some(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape or SHAPE).astype(dtype)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """The result of a call that was made before, and may not go the long way."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("the long way")

    def again(call: Callable[[], Any]) -> Any:
        call()
        with monkeypatch.context() as patched:
            for module in ("lunette.array.run", "lunette.array.derivatives"):
                patched.setattr(sys.modules[module], "prepare", refuse)
            patched.setattr(np, "asarray", refuse)
            return call()

    return again


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [1.7, -3, 1, 0.1, 2**53])
def test_plain_betas(short: Callable[[Callable[[], Any]], Any], dtype: Any, beta: float) -> None:
    """A number is what an array without axes would be, in the dtype of x."""
    x, as_array = some(dtype), np.asarray(beta, dtype)
    g = some(dtype, 1, 3, 4, 4)
    want = ln.smooth_max_pool(x, 2, beta=as_array)
    assert np.array_equal(short(lambda: ln.smooth_max_pool(x, 2, beta=beta)), want)
    (back,) = ln.smooth_max_pool_vjp((x,), g, kernel=2, beta=as_array)
    assert np.array_equal(short(lambda: ln.smooth_max_pool_vjp((x,), g, kernel=2, beta=beta))[0], back)
    both = ln.smooth_max_pool_vjp((x, as_array), g, kernel=2)
    for one, two in zip(short(lambda: ln.smooth_max_pool_vjp((x, beta), g, kernel=2)), both, strict=True):
        assert np.array_equal(one, two)
    moved = ln.smooth_max_pool_jvp((x,), (x,), kernel=2, beta=as_array)
    assert np.array_equal(short(lambda: ln.smooth_max_pool_jvp((x,), (x,), kernel=2, beta=beta)), moved)


@pytest.mark.parametrize("beta", [0, 0.0, -0.0, np.inf, np.nan, 10**400, 1e-60, 1e60, True, "1", None])
def test_betas_are_refused_as_before(beta: Any) -> None:
    x = some(np.float32)
    g = some(np.float32, 1, 3, 4, 4)

    def calls() -> list[str]:
        said = []
        for call in (
            lambda: ln.smooth_max_pool(x, 2, beta=beta),
            lambda: ln.smooth_max_pool_vjp((x,), g, kernel=2, beta=beta),
            lambda: ln.smooth_max_pool_jvp((x,), (x,), kernel=2, beta=beta),
        ):
            with pytest.raises(ln.LunetteError) as error:
                call()
            said.append(str(error.value))
        return said

    resolved.forget()
    before = calls()
    ln.smooth_max_pool(x, 2, beta=1.0)
    ln.smooth_max_pool_vjp((x,), g, kernel=2, beta=1.0)
    ln.smooth_max_pool_jvp((x,), (x,), kernel=2, beta=1.0)
    assert calls() == before


def test_numbers_beside_arrays() -> None:
    """Where a number is too large for a float it is infinite, on either way."""
    x = some(np.float64)
    for number in (2, 0.5, 10**400, -(10**400), np.inf):
        for _ in range(2):
            end = np.inf if number > 0 else -np.inf
            assert np.array_equal(ln.add(x, number), x + (number if abs(number) < 2**53 else end))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("max_pool", {"kernel": 2}),
        ("max_pool", {"kernel": (2, 2), "ties": "split"}),
        ("avg_pool", {"kernel": 2, "divisor": 3}),
        ("lp_pool", {"p": 3, "kernel": 2}),
        ("adaptive_avg_pool", {"output_size": (4, 4)}),
    ],
)
def test_derivatives(short: Callable[[Callable[[], Any]], Any], name: str, options: dict[str, Any]) -> None:
    """In whatever order options come, and whatever other options were called before."""
    x, g = some(np.float64), some(np.float64, 1, 3, 4, 4)
    vjp, jvp = getattr(ln, f"{name}_vjp"), getattr(ln, f"{name}_jvp")
    want, moved = vjp((x,), g, **options)[0], jvp((x,), (x,), **options)
    backward = dict(reversed(options.items()))
    for own in (options, backward):
        assert np.array_equal(short(lambda o=own: vjp((x,), g, **o))[0], want)  # type: ignore[misc]
        assert np.array_equal(short(lambda o=own: jvp((x,), (x,), **o)), moved)  # type: ignore[misc]
    turned = x[:, :, ::-1]
    assert np.array_equal(short(lambda: vjp((turned,), g, **options))[0], vjp((turned.copy(),), g, **options)[0])
    for more in ({"strid": 2}, {"padding": -1}, {"kernel": True}, {"x": x}):
        with pytest.raises(ln.LunetteError):
            vjp((x,), g, **{**options, **more})
    for refused in ((x,), (x, x, x), [x], x, ()):
        with pytest.raises(ln.LunetteError):
            vjp(refused, g[:, :, 1:], **options)


def test_arrays_among_options_are_no_spelling_of_their_bytes() -> None:
    vjp: Any = ln.max_pool_vjp
    x, g = some(np.float64), some(np.float64, 1, 3, 4, 4)
    (want,) = vjp((x,), g, kernel=(2, 2))
    for _ in range(2):
        assert np.array_equal(vjp((x,), g, kernel=np.array([2, 2]))[0], want)
        with pytest.raises(ln.LunetteError):
            vjp((x,), g, kernel=np.array([2, 2]).tobytes())
        with pytest.raises(ln.LunetteError):
            vjp((x,), g, kernel=(2, True))


def test_a_tangent_is_given_for_every_primal() -> None:
    """Also where the same with None was computed before."""
    x, beta = some(np.float64), np.array(1.5)
    ln.smooth_max_pool_jvp((x, beta), (x, None), kernel=2)
    with pytest.raises(ln.LunetteError, match="O3"):
        ln.smooth_max_pool_jvp((x, beta), (x,), kernel=2)
