"""What a type checker knows: results are of the kind that went in, and words that do not exist are errors.

The tests run, but it is mypy that must agree: `make check` fails where an assert_type does not hold, or where a line
that is marked as wrong is none (strict mode refuses marks that are not needed).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import jax
import numpy as np
import numpy.typing as npt
import pytest
import torch

import lunette as ln
import lunette.jax as lj
import lunette.torch as lt

Singles = npt.NDArray[np.float32]
X: Singles = np.ones((1, 1, 4, 4), np.float32)
T = torch.ones(1, 1, 4, 4)


def loss(a: Singles, scale: float) -> Singles:
    """A function of lunette's operators with types of its own."""
    return ln.sum(ln.mul(ln.relu(a), scale))


def test_the_stubs_are_up_to_date() -> None:
    path = Path(__file__).parents[1] / "scripts" / "stubs.py"
    spec = importlib.util.spec_from_file_location("stubs", path)
    assert spec is not None and spec.loader is not None
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    for path, made in stubs.STUBS.items():
        assert path.read_text() == made(), "run python scripts/stubs.py"


def test_results_are_of_the_kind_that_went_in() -> None:
    graph = ln.Graph()
    v = graph.input((1, 4, 4))
    box = ln.Interval(X, X)
    assert_type(ln.max_pool(X, 2), Singles)
    assert_type(ln.max_pool(T, 2), torch.Tensor)
    assert_type(ln.max_pool(v, (2, 2)), ln.Var)
    assert_type(ln.max_pool([[1, 2]], (2,)), npt.NDArray[Any])
    assert_type(ln.max_pool(T, 2, return_indices=True), tuple[torch.Tensor, Any])
    assert_type(ln.max_pool(X, 2, arithmetic="interval"), ln.Interval)
    assert_type(ln.max_pool(box, 2), ln.Interval)
    assert_type(ln.max_pool_vjp((T,), ln.max_pool(T, 2), kernel=2), tuple[torch.Tensor, ...])
    assert_type(ln.avg_pool_jvp((T,), (T,), kernel=2, divisor=3), torch.Tensor)
    assert_type(ln.conv(T, T, padding="same"), torch.Tensor)
    assert_type(ln.conv(X, ln.Interval(X, X)), ln.Interval)
    assert_type(ln.add(v, X[0]), ln.Var)
    assert_type(ln.mul(2, T), torch.Tensor)
    assert_type(ln.concat([T, T]), torch.Tensor)
    assert_type(ln.concat([[1], [2]]), npt.NDArray[Any])


def test_bridges_give_what_their_frameworks_have() -> None:
    assert_type(lt.max_pool(T, 2), torch.Tensor)
    assert_type(lt.max_pool(T, 2, return_indices=True), tuple[torch.Tensor, torch.Tensor])
    assert_type(lt.smooth_max_pool(T, 2, beta=torch.tensor(2.0)), torch.Tensor)
    assert_type(lt.AvgPool(2, stride=1)(T), torch.Tensor)
    assert_type(lt.SmoothMaxPool(2, beta=2.0, learn_beta=True)(T), torch.Tensor)
    assert_type(lt.Conv(1, 2, (3, 3), padding=1, bias=False)(T), torch.Tensor)
    assert_type(lt.replace(torch.nn.Sequential(lt.MaxPool(2))).kept, dict[str, str])
    assert_type(lj.conv(jax.numpy.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)), jax.Array)
    assert_type(lj.max_pool(X, 2, return_indices=True), tuple[jax.Array, jax.Array])


def test_transformed_functions_keep_their_signatures() -> None:
    assert_type(ln.jit(loss)(X, 2.0), Singles)
    assert_type(ln.value_and_grad(loss)(X, 2.0), tuple[Singles, Any])
    assert_type(ln.jvp(loss, (X, 2.0), (X, None)), tuple[Singles, Singles])
    with pytest.raises(TypeError):
        ln.grad(loss)(X, 2.0, 3.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        ln.jit(loss)(X)  # type: ignore[call-arg]


WRONG: list[Callable[[], Any]] = [
    lambda: ln.max_pool(X, 2, ties="last"),  # type: ignore[call-overload]
    lambda: ln.max_pool(X, 2, padding="full"),  # type: ignore[arg-type]
    lambda: ln.max_pool(X, 2, arithmetic="exact"),  # type: ignore[call-overload]
    lambda: ln.max_pool(X, 2, strides=1),  # type: ignore[call-overload]
    lambda: ln.max_pool_vjp((X,), X, kernel=2, strides=1),  # type: ignore[call-overload]
    lambda: lt.max_pool(T, 2, strides=1),  # type: ignore[call-overload]
    lambda: lt.avg_pool(X, 2),  # type: ignore[arg-type]
    lambda: lt.AvgPool(2, strides=1),  # type: ignore[call-arg]
    lambda: lj.avg_pool(X, 2, padding="full"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", WRONG)
def test_words_and_names_that_do_not_exist_are_errors(call: Callable[[], Any]) -> None:
    with pytest.raises((ln.LunetteError, TypeError)):
        call()
