"""The cases of every operator as calls on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import lunette.torch as lt
from lunette.op import Case, Op, Placeholder, Request
from lunette.ops import ALL, Windowed
from lunette.torch.functions import told_of
from lunette.torch.operators import OPERATORS, Operator


@dataclass(frozen=True)
class Problem:
    """One case of one operator, with two samples."""

    kind: type[Windowed]
    name: str
    case: Case

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.name}"

    def tensors(self, dtype: torch.dtype = torch.float64, batch: tuple[int, ...] = (2,), seed: int = 0) -> list[Any]:
        """Cells that differ by more than differences of gradcheck, some of them negative; None for no bias."""
        rng = np.random.default_rng(seed)
        made: list[Any] = []
        for at, shape in enumerate(self.case.shapes):
            full = (*batch, *shape) if at in self.kind.batched else shape
            size = int(np.prod(full, dtype=int))
            cells = torch.from_numpy(rng.permutation(size) / 4 - size / 8 + 1 / 16).reshape(full).to(dtype)
            made.append(torch.tensor(0.75, dtype=dtype) if self.kind.arrays[at] in self.kind.scalars else cells)
        return made

    def leaves(self, dtype: torch.dtype = torch.float64, batch: tuple[int, ...] = (2,)) -> list[torch.Tensor]:
        return [t.contiguous().requires_grad_() for t in self.tensors(dtype, batch)]

    def function(self, module: Any = lt, **more: Any) -> Callable[..., Any]:
        """The operator, all arrays by position."""
        return call(self.kind, module, {**self.case.options, **more})

    def operator(self, indices: bool = False) -> tuple[Operator, str]:
        """The operator of torch and the text of the options."""
        ranks = [len(s) + (at in self.kind.batched) for at, s in enumerate(self.case.shapes)]
        missing = len(self.kind.arrays) - len(ranks)
        told = told_of(self.kind, (*ranks, *(None,) * missing), "fast", request(self).options)
        assert told is not None
        return OPERATORS[self.kind, indices], told[0]


def call(kind: type[Op], module: Any, options: Any) -> Callable[..., Any]:
    function = getattr(module, kind.name)

    def on(*arrays: Any) -> Any:
        named = dict(zip(kind.arrays, arrays, strict=False))
        x = named.pop("x")
        return function(x, **named, **options)

    return on


def request(problem: Problem) -> Request:
    asked: Request = call(problem.kind, __import__("lunette"), problem.case.options)(
        Placeholder(), *(None,) * (len(problem.case.shapes) - 1)
    )
    return asked


PROBLEMS = [Problem(kind, name, case) for kind in ALL for name, case in kind.cases.items()]
ONE_EACH = [next(p for p in PROBLEMS if p.kind is kind and 0 not in p.case.shapes[0]) for kind in ALL]


def cotangent(y: torch.Tensor, seed: int = 7) -> torch.Tensor:
    values = np.random.default_rng(seed).integers(-4, 5, tuple(y.shape)) * 8.0
    return torch.from_numpy(np.asarray(values)).to(y.dtype)


def same(a: Any, b: Any) -> bool:
    """Equal cells; NaN equals NaN."""
    a, b = (np.asarray(t.detach().double().numpy() if isinstance(t, torch.Tensor) else t, np.float64) for t in (a, b))
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=True))


def ids(problems: Sequence[Problem]) -> list[str]:
    return list(map(str, problems))
