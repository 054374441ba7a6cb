"""Where the arrays of a program lie: what does not live at the same time shares memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from lunette.graph.nodes import Node
from lunette.graph.steps import Steps
from lunette.window import Shape

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Memory:
    """Where every array lies: slots (argument or -1 for the arena, offset), and the size of the arena."""

    slots: list[tuple[int, int]]
    slot_of: dict[int, int]
    arena: int
    largest_live: int
    """The least that any placement would need: the most bytes alive at one time."""


def place(plan: Steps, arguments: dict[int, int]) -> Memory:
    """Offsets in the arena by greatest size first, each as low as what lives at the same time lets it.

    `arguments` tells which nodes lie in arguments of the call: inputs, constants and outputs.
    """
    graph = plan.graph
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    shares: dict[int, int] = {}  # a result in the place of an operand that dies
    for t, step in enumerate(plan.steps):
        for r in step.reads:
            if r is not None:
                dies[plan.root(r)] = t
        born.setdefault(plan.root(step.writes), t)
        dies[plan.root(step.writes)] = max(t, dies.get(plan.root(step.writes), t))

    def owner(at: int) -> int:
        return shares.get(at, at)

    for t, step in enumerate(plan.steps):
        out = plan.root(step.writes)
        if out in arguments or born[out] != t:
            continue
        for p in step.in_place:
            r = step.reads[p]
            source = None if r is None else plan.root(r)
            if source is None or source in arguments or source not in born or dies[source] != t:
                continue
            if (
                bytes_of(graph.nodes[source]) == bytes_of(graph.nodes[out])
                and sum(q is not None and owner(plan.root(q)) == owner(source) for q in step.reads) == 1
            ):
                shares[out] = owner(source)
                break
    spans: dict[int, tuple[int, int]] = {}
    for at, t in born.items():
        if at not in arguments:
            first, last = spans.get(owner(at), (t, dies[at]))
            spans[owner(at)] = min(first, t), max(last, dies[at])
    sizes = {at: up(bytes_of(graph.nodes[at])) for at in spans}
    offsets: dict[int, int] = {}
    placed = np.empty((4, len(spans)), np.int64)  # first and last step, offset and end of those that have a place
    order = sorted(spans, key=lambda k: (-sizes[k], spans[k][0]))
    for count, at in enumerate(order):
        first, last = spans[at]
        firsts, lasts, lows, highs = placed[:, :count]
        beside = (firsts <= last) & (lasts >= first)
        offset = 0
        for lo, hi in sorted(zip(lows[beside].tolist(), highs[beside].tolist(), strict=True)):
            if offset + sizes[at] <= lo:
                break
            offset = max(offset, hi)
        offsets[at] = offset
        placed[:, count] = first, last, offset, offset + sizes[at]
    live = [0] * (len(plan.steps) + 1)
    for at, (first, last) in spans.items():
        live[first] += sizes[at]
        live[last + 1] -= sizes[at]
    most = now = 0
    for change in live:
        now += change
        most = max(most, now)
    slots: list[tuple[int, int]] = []
    slot_of: dict[int, int] = {}
    for step in plan.steps:
        for r in (*step.reads, step.writes):
            if r is None or plan.root(r) in slot_of:
                continue
            root = plan.root(r)
            slot_of[root] = len(slots)
            slots.append((arguments[root], 0) if root in arguments else (-1, offsets.get(owner(root), 0)))
    arena = max((offsets[k] + sizes[k] for k in offsets), default=0)
    return Memory(slots, slot_of, arena, most)


def up(size: int) -> int:
    """Rounded up to whole cache lines."""
    return -(-size // ALIGN) * ALIGN


def bytes_of(n: Node) -> int:
    """The size of a node's array."""
    shape: Shape = n.shape
    return prod(shape) * n.dtype.itemsize
