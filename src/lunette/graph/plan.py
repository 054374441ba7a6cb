"""From nodes to steps: which kernels run in which order.

What has a pattern (lunette.graph.fuse) becomes part of one step: a bias, a residual and a relu behind a convolution.
"""

from __future__ import annotations

from lunette.graph.blocks import with_blocks
from lunette.graph.fuse import PATTERNS, Reading
from lunette.graph.nodes import Nodes
from lunette.graph.simplify import needed_nodes, reads, uses_of
from lunette.graph.steps import Step, Steps, flops_of, kernel_of
from lunette.ops.layout import Reshape


def make_steps(graph: Nodes, fuse: bool = True) -> Steps:
    """Nodes as tasks; reshapes as nothing; what can be fused, fused."""
    needed = needed_nodes(graph)
    reading = Reading(graph, uses_of(graph, needed), readers_of(graph, needed))
    plan = Steps(graph, [], {})
    later: dict[int, Step] = {}  # a fused step runs in the place of its last node, when all it reads is there
    for at, n in enumerate(list(graph.nodes)):
        if at in later:
            plan.steps.append(later[at])
        if n.kind is None or at in reading.done or at not in needed:
            continue
        if n.kind is Reshape:
            assert n.inputs[0] is not None
            plan.alias[at] = n.inputs[0]
            continue
        if 0 in n.shape:
            continue
        pattern = PATTERNS.get(n.kind) if fuse else None
        step = None if pattern is None else pattern(reading, at)
        if step is None:
            assert n.resolved is not None
            kernel = kernel_of(graph, n)
            step = Step(kernel, reads(n), at, at, flops_of(n), n.op.in_place(n.resolved.shapes), covers=[at])
        if step.writes == at:
            plan.steps.append(step)
        else:
            later[step.writes] = step
    return with_blocks(plan) if fuse else plan


def readers_of(graph: Nodes, needed: set[int]) -> list[list[int]]:
    """For every node, the nodes that read it."""
    readers: list[list[int]] = [[] for _ in graph.nodes]
    for k in sorted(needed):
        for i in reads(graph.nodes[k]):
            if i is not None:
                readers[i].append(k)
    return readers
