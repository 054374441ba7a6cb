"""Patterns of nodes that become one step: what follows a product or a scale goes into the same pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np

from lunette import core
from lunette.array import KERNEL_RANK
from lunette.graph.blocks import Form, conv_form
from lunette.graph.nodes import Node, Nodes
from lunette.graph.simplify import is_bias, is_per_channel
from lunette.graph.steps import Step, Steps, flops_of, kernel_of
from lunette.number import Array
from lunette.op import Op
from lunette.ops import AdaptiveMaxPool, Conv, ConvTranspose, GlobalMaxPool, MaxPool
from lunette.ops.binary import Add, Mul
from lunette.ops.linear import MatMul
from lunette.ops.unary import Relu
from lunette.ops.winners import winners_of


@dataclass(slots=True)
class Reading:
    """A graph as a pattern sees it: how often and by whom each node is read, and what is part of a step already."""

    graph: Nodes
    uses: Sequence[int]
    readers: Sequence[Sequence[int]]
    done: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Epilogue:
    """What happens to a finished sum: + bias, * scale, + shift, + add, relu. Each is a node, or None."""

    n: Node
    bias: int | None = None
    scale: int | None = None
    shift: int | None = None
    add: int | None = None
    relu: bool = False

    def takes(self, graph: Nodes, m: Node, last: int) -> bool:
        """Whether a node that reads the last one is the next part of it; then it is."""
        if m.kind is Relu:
            self.relu = True
            return True
        if m.kind not in (Mul, Add) or m.shape != self.n.shape:
            return False
        other = m.inputs[1] if m.inputs[0] == last else m.inputs[0]
        if other is None or other == last:
            return False
        part = self._next(m, graph.nodes[other])
        if part is not None:
            setattr(self, part, other)
        return part is not None

    def _next(self, m: Node, other: Node) -> str | None:
        """Which part a sum with another node, or a product of the two, is."""
        is_conv = self.n.kind is not MatMul
        if self.add is None and (is_per_channel(self.n, other.shape) if is_conv else other.shape == self.n.shape[-1:]):
            if m.kind is Mul:
                return "scale" if is_conv and self.scale is None and self.shift is None else None
            if self.scale is not None:
                return "shift" if self.shift is None else None
            if self.bias is None and other.shape != self.n.shape and is_bias(self.n, other.value):
                return "bias"
        fits = is_conv and m.kind is Add and other.shape == self.n.shape
        return "add" if fits and self.add is None else None


def _chain(reading: Reading, at: int) -> Step | None:
    """A convolution or a matrix product with what follows it."""
    graph, uses, readers, done = reading.graph, reading.uses, reading.readers, reading.done
    n = graph.nodes[at]
    assert n.resolved is not None
    last, covers, is_conv = at, [at], n.kind is not MatMul
    e = Epilogue(n, n.inputs[2] if is_conv else None)
    while not e.relu and uses[last] == 1:
        k = readers[last][0]
        if k in done or not e.takes(graph, graph.nodes[k], last):
            break
        last = k
        covers.append(k)
    if last == at and not is_conv:
        return None
    done.update(covers)
    if is_conv:
        return _conv_step(graph, at, last, e, covers)
    assert isinstance(n.op, MatMul)
    x, y = n.resolved.shapes
    assert x is not None and y is not None
    m_, n_, k_, _ = n.op.sizes(x, y)
    task = core.matmul(n.dtype.char, prod(x[:-2]), m_, n_, k_, n.op.turn_x, n.op.turn_y, e.relu)
    return Step(task, [n.inputs[0], n.inputs[1], e.bias], last, at, flops_of(n), covers=covers)


def _conv_step(graph: Nodes, at: int, last: int, e: Epilogue, covers: list[int]) -> Step:
    n = e.n
    assert n.resolved is not None and isinstance(n.op, Conv)
    convolution = n.op.native(n.dtype, prod(n.resolved.batch), n.resolved.shapes)
    if convolution is None or (n.resolved.d or 0) > KERNEL_RANK:
        return Step(kernel_of(graph, n), list(n.inputs), at, at)
    transposed = isinstance(n.op, ConvTranspose)
    maker: Callable[..., core.Task] = core.conv_input_grad if transposed else core.conv
    task = maker(*convolution, e.relu)
    x, w, _ = n.inputs
    assert w is not None
    weights = graph.nodes[w].value

    def pack(reads: list[int | None]) -> None:
        make_pack: Any = core.conv_pack
        pack = make_pack(*convolution, transposed)
        if weights is not None and pack.count(1):
            array: Array = np.empty(pack.count(1), n.dtype)
            pack(weights, array)
            reads[-1] = graph.append(Node(array.shape, array.dtype, value=array)).id

    def in_blocks(plan: Steps, lanes: int) -> Form | None:
        return conv_form(plan, n, e.relu, lanes)

    reads = [x, w, e.bias, e.scale, e.shift, e.add, None]
    return Step(task, reads, last, at, flops_of(n), covers=covers, in_blocks=in_blocks, ready=pack)


def _scale_shift(reading: Reading, at: int) -> Step | None:
    """One pass for x * scale + shift, both per channel, and relu."""
    graph, uses, readers, done = reading.graph, reading.uses, reading.readers, reading.done
    n = graph.nodes[at]
    if uses[at] != 1 or n.inputs[0] is None or n.inputs[1] is None:
        return None
    k = readers[at][0]
    shift = graph.nodes[k]
    if shift.kind is not Add or shift.shape != n.shape or k in done:
        return None
    x, scale = sorted((n.inputs[0], n.inputs[1]), key=lambda i: prod(graph.nodes[i].shape), reverse=True)
    offset = shift.inputs[1] if shift.inputs[0] == at else shift.inputs[0]
    if offset is None or offset == at or graph.nodes[x].shape != n.shape:
        return None
    per_channel = graph.nodes[scale].shape
    if len(per_channel) < 1 or len(n.shape) < len(per_channel) or graph.nodes[offset].shape != per_channel:
        return None
    channels, inner = per_channel[0], n.shape[len(n.shape) - len(per_channel) + 1 :]
    if per_channel[1:] != (1,) * len(inner) or n.shape[len(n.shape) - len(per_channel)] != channels:
        return None
    last, relu, covers = k, False, [at, k]
    if uses[k] == 1 and graph.nodes[readers[k][0]].kind is Relu and readers[k][0] not in done:
        last, relu = readers[k][0], True
        covers.append(last)
    done.update(covers)
    outer = prod(n.shape[: len(n.shape) - len(per_channel)])
    task = core.scale_shift(n.dtype.char, outer, channels, prod(inner), relu)
    return Step(task, [x, scale, offset], last, at, 2 * flops_of(n), (0,), covers=covers)


def _recording(reading: Reading, at: int) -> Step | None:
    """A max pool, and the record of its winners, which another node asks for."""
    n = reading.graph.nodes[at]
    assert n.resolved is not None and n.kind is not None and n.inputs[0] is not None
    kind = winners_of(n.kind)
    for k in reading.readers[n.inputs[0]]:
        if reading.graph.nodes[k].kind is kind and reading.graph.nodes[k].options == n.options:
            reading.done.add(k)
            record = n.op.kernels(n.dtype, prod(n.resolved.batch), n.resolved.shapes).record
            assert record is not None
            return Step(record.forward, list(n.inputs), at, at, flops_of(n), covers=[at, k], beside=(k,))
    return None


PATTERNS: Final[dict[type[Op], Callable[[Reading, int], Step | None]]] = {
    Conv: _chain,
    ConvTranspose: _chain,
    MatMul: _chain,
    Mul: _scale_shift,
    **dict.fromkeys((MaxPool, AdaptiveMaxPool, GlobalMaxPool), _recording),
}
"""How a node and those that follow it may become one step; None where they do not."""
