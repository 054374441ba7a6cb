"""Steps of a program: one compiled task each, with the nodes it reads and the one it writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from lunette import _native
from lunette.array import KERNEL_RANK
from lunette.errors import ShapeError, error_context
from lunette.graph.nodes import Node, Nodes
from lunette.op import Op
from lunette.ops import Conv, ConvTranspose, MaxPool
from lunette.ops.derivative import Vjp
from lunette.ops.linear import MatMul


@dataclass(slots=True)
class Step:
    """One task: the nodes it reads, one per argument (None: absent), and the node it writes, its last argument."""

    task: _native.Task
    reads: list[int | None]
    writes: int
    node: int
    flops: float = 0
    in_place: tuple[int, ...] = ()
    """Arguments whose memory the result may take."""
    covers: list[int] = field(default_factory=list)


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


def kernel_of(n: Node) -> _native.Task:
    """The compiled form of a node."""
    assert n.resolved is not None and n.kind is not None
    resolved = n.resolved
    with error_context(n.kind.name, resolved.d):
        kernel = None
        if (resolved.d or 0) <= KERNEL_RANK:
            kernel = resolved.op.kernels(n.dtype, prod(resolved.batch), resolved.shapes).forward
        if not isinstance(kernel, _native.Task):
            raise ShapeError(
                "G2",
                f"a kernel for {n.kind.name}",
                f"d={resolved.d}, shapes {resolved.shapes}",
                f"Compiled programs have at most {KERNEL_RANK} spatial axes; g.eval computes any.",
            )
        if issubclass(n.kind, MaxPool):
            kernel = kernel.taking([0, 1, -1], 2)
    return kernel


def flops_of(n: Node) -> float:
    """Multiplications and additions of a node, roughly: what a user compares with the machine's peak."""
    assert n.kind is not None and n.resolved is not None
    base: Op = n.op.op if isinstance(n.op, Vjp) else n.op
    cells = float(prod(n.shape))
    if isinstance(base, Conv):
        w = n.resolved.shapes[1]
        y = n.resolved.shapes[-1] if isinstance(n.op, Vjp) else n.resolved.out[len(n.resolved.batch) :]
        across = n.resolved.shapes[0] if isinstance(base, ConvTranspose) else y  # each cell meets every kernel cell
        assert w is not None and y is not None and across is not None
        if isinstance(n.op, Vjp) and n.op.wrt == 2:
            return float(prod(n.resolved.batch) * prod(y))
        return 2.0 * prod(n.resolved.batch) * prod(across) * prod(w[1:])
    if isinstance(base, MatMul):
        x, y = n.resolved.shapes
        assert x is not None and y is not None
        return 2.0 * cells * base.sizes(x, y)[2]
    return cells
