"""The rules of torch.func.vmap: one more axis.

x may have any number of batch axes, so the axis that vmap adds is one of them. Where it is added to an array that all
samples share (the weights of a convolution), or where the result is a sum over the samples (their gradient), the
operator runs once for each entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lunette.torch.operators import Operator


def batch_rule(operator: Operator) -> Callable[..., Any]:
    """The vmap rule of an operator."""
    kind = operator.kind

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
        *tensors, text = arguments
        dims, n = in_dims[: len(tensors)], info.batch_size
        moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True)]
        every = range(len(moved))
        if not kind.summed and all(dims[at] is None or at in kind.batched for at in every):
            wide = [
                t if t is None or dims[at] is not None or at not in kind.batched else t.expand(n, *t.shape)
                for at, t in enumerate(moved)
            ]
            y = operator.handle(*wide, text)
        elif n:
            rows = [[t if dims[at] is None else t[row] for at, t in enumerate(moved)] for row in range(n)]
            parts = [operator.handle(*row, text) for row in rows]
            y = tuple(map(torch.stack, zip(*parts, strict=True))) if operator.indices else torch.stack(parts)
        else:
            one = [t if dims[at] is None else t.new_empty(t.shape[1:]) for at, t in enumerate(moved)]
            y = one[0].new_empty((0, *operator.shape(one, text)))
        return y, ((0, 0) if operator.indices else 0)

    return rule
