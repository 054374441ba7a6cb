"""Values that no argument expects: a call with one returns or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

import lunette


class Odd:
    """An object that is nothing, with a long name for itself."""

    def __repr__(self) -> str:
        return "odd " * 999


NUMBERS: list[Any] = [
    *(-1, 0, 1, 2, 3, 7, 2**31, -(2**31), 2**62, -(2**62), 2**63, 2**64, 2**70, -(2**70), 10**400, 10**5000),
    *(0.0, 1.0, 1.5, -2.5, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, 1e-60),
    *(True, False, None, "1", "same", "same_lower", "valid", "first", "", b"1", 1j, Odd(), Odd, int, ...),
    *(Fraction(1, 2), Fraction(2), Fraction(10**400), Decimal("0.5"), Decimal("nan"), Decimal("inf")),
    *(np.int8(2), np.int64(2), np.uint64(2**63), np.float32(2), np.float16("nan"), np.bool_(True), np.str_("2")),
    *(np.complex64(1j), np.datetime64(1, "D"), np.timedelta64(1, "D"), np.longdouble(1.5), ml_dtypes.bfloat16(2)),
    *(np.array(2), np.array(2.0), np.array(True), np.array("2"), np.array(None), np.array(2, np.float32)),
    *(lunette.Interval(-1.0, 1.0), lunette.Interval(1.0, 2.0), lunette.Dual(1.0, 2.0), lunette.Dual(0.0)),
]
SEQUENCES: list[Any] = [
    *((), [], (1,), (2, 2), [2, 2], (1, 2, 3), (0, 1), (1, -1), (2.0, 2), (None, 2), (None, None), (True, 2)),
    *((2**62, 2**62), (2**62, 1), (1, 2**70), ("1", "2"), ((1, 1), (1, 1)), ((1, 1), 1), ((1, 1, 1), (1, 1, 1))),
    *(((1, 2),), ((-1, 0), (0, 0)), ((2**62, 0), (0, 2**62)), ((1, None), (1, 1)), [[1, 1], [1, 1]], (((1, 1),),)),
    *(np.array([2, 2]), np.array([2.0, 2.0]), np.array([[1, 1], [1, 1]]), np.array([True, True]), np.ones((2, 2, 2))),
    *(np.array(["a", "b"]), np.array([2, 2], object), np.array([]), range(2), range(2**40), [1] * 1000, {1, 2}),
    *({1: 2}, iter([1, 2]), bytearray(b"\1\1")),
]
RAGGED: list[Any] = [
    [[1, 2], [3]],
    [[[1, 2], [3]], [[1, 2], [3, 4]]],
    [[1, [2]]],
    [[[1, None]]],
    [[["1", 2]]],
    [[[True, 2]]],
    [[[1, 2], "ab"]],
    [[[1, np.array([1, 2])]]],
    [[[Odd(), Odd()]]],
    [[[float, int]]],
    [{1: 2}],
    [[[Decimal(1), 0.5]]],
    [[[Fraction(1, 2), Decimal(1)]]],
    [[[1j, 2.0]]],
    [[[lunette.Interval(0.0, 1.0), Decimal(1)]]],
    [[[lunette.Dual(1, 1), 1j]]],
    [[[Decimal("sNaN"), Decimal(1)]]],
    [[[Decimal("Infinity"), Decimal("-Infinity")]]],
    [[[Decimal("1e999999"), Decimal("1e999999")]]],
    [[[10**400, 0.5]]],
    [[[float("nan"), -float("inf")]]],
]
nested: Any = 1.0
for _ in range(100):
    nested = [nested]
RAGGED.append(nested)
itself: list[Any] = []
itself.append(itself)
RAGGED.append(itself)


def foreign() -> Iterator[Any]:
    """Scalars and sequences of other libraries; not above, because those are slow to import."""
    import jax.numpy as jnp
    import torch

    yield from (torch.tensor(2), torch.tensor(2.0), torch.tensor(True), torch.tensor(2.0, requires_grad=True))
    yield from (torch.empty((), device="meta"), torch.tensor([1, 2]), torch.Size((2, 2)))
    yield from (jnp.array(2), jnp.array(2.0), jnp.array(True))
    yield (torch.tensor(2), torch.tensor(2))
    yield [[torch.ones(2), torch.ones(2)]]
    yield [[torch.ones(2, requires_grad=True)]]
    yield [[torch.ones(2, device="meta")]]
