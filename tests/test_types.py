"""What a type checker knows: results are of the kind that went in, and words that do not exist are errors.

The tests run, but it is mypy that must agree: `make check` fails where an assert_type does not hold, or where a line
that is marked as wrong is none (strict mode refuses marks that are not needed).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pytest
import torch

import lunette as ln

Singles = npt.NDArray[np.float32]
X: Singles = np.ones((1, 1, 4, 4), np.float32)
T = torch.ones(1, 1, 4, 4)


def loss(a: Singles, scale: float) -> Singles:
    """A function of lunette's operators with types of its own."""
    return ln.sum(ln.mul(ln.relu(a), scale))


def test_the_stub_is_up_to_date() -> None:
    path = Path(__file__).parents[1] / "scripts" / "stubs.py"
    spec = importlib.util.spec_from_file_location("stubs", path)
    assert spec is not None and spec.loader is not None
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    assert stubs.TARGET.read_text() == stubs.stub(), "run python scripts/stubs.py"


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
]


@pytest.mark.parametrize("call", WRONG)
def test_words_and_names_that_do_not_exist_are_errors(call: Callable[[], Any]) -> None:
    with pytest.raises((ln.LunetteError, TypeError)):
        call()
