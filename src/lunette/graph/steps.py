"""Steps of a program: one compiled task each, with the nodes it reads and the one it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from lunette import core
from lunette.array import KERNEL_RANK
from lunette.errors import ShapeError, error_context
from lunette.graph.nodes import Node, Nodes
from lunette.number import Array
from lunette.op import KERNEL


@dataclass(slots=True)
class Step:
    """One task: the nodes it reads, one per argument (None: absent), and those it writes, its last arguments."""

    task: core.Task
    reads: list[int | None]
    writes: int
    node: int
    flops: float = 0
    in_place: tuple[int, ...] = ()
    """Arguments whose memory the result may take."""
    covers: list[int] = field(default_factory=list)
    beside: tuple[int, ...] = ()
    """Nodes that it writes beside the first."""
    layout: str = "planes"
    """Of its result, in words."""
    in_blocks: Callable[[Steps, int], Any] | None = None
    """The same on values in blocks of so many channels (lunette.graph.blocks), for what covers more than one node."""
    ready: Callable[[list[int | None]], None] | None = None
    """What is left to do with its reads if it stays as it is: weights are packed."""

    @property
    def arguments(self) -> tuple[int | None, ...]:
        """Nodes, in the order of the task's arguments."""
        return (*self.reads, self.writes, *self.beside)


@dataclass(slots=True)
class Steps:
    """The steps of a program, and the values that are the same memory as another (reshapes)."""

    graph: Nodes
    steps: list[Step]
    alias: dict[int, int]

    def root(self, at: int) -> int:
        """The node whose memory this one shares."""
        while at in self.alias:
            at = self.alias[at]
        return at


def kernel_of(graph: Nodes, n: Node) -> core.Task:
    """The compiled form of a node."""
    assert n.resolved is not None and n.kind is not None
    resolved = n.resolved
    # What a record counts is no float: it is made of those that the node reads.
    dtype = n.dtype if n.dtype.kind == "f" else graph.nodes[n.inputs[0] or 0].dtype
    with error_context(n.kind.name, resolved.d):
        kernel = None
        if (resolved.d or 0) <= KERNEL_RANK:
            kernel = resolved.op.kernels(dtype, prod(resolved.batch), resolved.shapes).forward
        if not isinstance(kernel, core.Task):
            raise ShapeError(
                "G2",
                f"a kernel for {n.kind.name}",
                f"d={resolved.d}, shapes {resolved.shapes}",
                f"Compiled programs have at most {KERNEL_RANK} spatial axes; g.eval computes any."
                if KERNEL.has(n.kind)
                else "It has none at all: g.eval computes it, and so do ln.jvp and ln.grad without ln.jit.",
            )
        if n.kind.has_indices:
            kernel = kernel.taking([0, 1, -1], 2)
    return kernel


def by_kernel(n: Node, operands: Sequence[Any]) -> Array:
    """What a node that is no operator makes of arrays."""
    assert n.resolved is not None
    y: Array = np.empty(n.shape, n.dtype)
    kernel = n.op.kernels(operands[-1].dtype, prod(n.resolved.batch), n.resolved.shapes).forward
    assert kernel is not None
    kernel(*operands, y)
    return y


def flops_of(n: Node) -> float:
    """Multiplications and additions of a node, roughly: what a user compares with the machine's peak."""
    assert n.resolved is not None
    return n.op.flops(n.resolved.shapes, prod(n.resolved.batch))
