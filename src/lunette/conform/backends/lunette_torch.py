"""Lunette's operators inside of torch, judged like anybody else's: values, torch.func.jvp and autograd."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lunette.conform.backends.backend import Space, preamble, written
from lunette.conform.backends.lunette import Lunette
from lunette.conform.backends.torch import Torch
from lunette.conform.case import Case, source_of
from lunette.ops import KINDS


class LunetteTorch(Torch):
    """The functions of lunette.torch."""

    name = "lunette-torch"
    space = Space()
    switches = Lunette.switches
    supports = Lunette.supports
    empty = Lunette.empty

    def function(self, case: Case) -> Callable[..., Any]:
        """The operator of a case, on tensors."""
        named: Callable[..., Any] = getattr(importlib.import_module("lunette.torch"), case.op)
        options = {**case.options, **({"return_indices": True} if case.mode == "indices" else {})}
        arrays = KINDS[case.op].arrays

        def call(x: Any, *others: Any) -> Any:
            return named(x, **dict(zip(arrays[1:], others, strict=False)), **options)

        return call

    def source(self, case: Case) -> str:
        start, p = preamble(case, "import torch, lunette.torch as lt"), len(case.shapes)
        tensors = [written(case, at, "torch", "tensor") for at in range(p)]
        names = KINDS[case.op].arrays
        options = {**case.options, **({"return_indices": True} if case.mode == "indices" else {})}
        said = "".join(f", {n}={source_of(v)}" for n, v in options.items())
        inner = f"lt.{case.op}(a[0]{''.join(f', {n}=a[{at}]' for at, n in enumerate(names[1:p], 1))}{said})"
        if case.mode == "jvp":
            tangents = ", ".join(written(case, at, "torch", "tensor") for at in range(p, 2 * p))
            return f"{start}print(torch.func.jvp(lambda *a: {inner}, ({', '.join(tensors)},), ({tangents},))[1])"
        if case.mode == "vjp" and case.output is not None:
            g = written(case, p, "torch", "tensor")
            leaves = f"a = [t.requires_grad_() for t in ({', '.join(tensors)},)]; "
            return f"{start}{leaves}print(torch.autograd.grad({inner}, a, {g}))"
        return f"{start}a = ({', '.join(tensors)},); print({inner})"
