"""From a graph to a simpler one: passes over the list of nodes, each of which keeps the meaning.

What is not needed goes, equal nodes become one, nodes of constants become constants, a constant shift behind a
convolution goes into its bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lunette.array import key_of
from lunette.graph.nodes import Node, Nodes
from lunette.number import Array
from lunette.op import apply
from lunette.ops import Conv, ConvTranspose
from lunette.ops.binary import Add
from lunette.ops.linear import MatMul
from lunette.ops.unary import StopGradient
from lunette.ops.winners import FirstWinners, VjpFromWinners
from lunette.window import Shape

FOLD_LIMIT = 1 << 20
"""Constants are not made larger than this many cells, unless they were: a program should not outgrow its graph."""


def simplified(graph: Nodes, fold: bool = True) -> Nodes:
    """The same function with fewer nodes."""
    new = Nodes()
    place: list[int] = []
    seen: dict[Any, int] = {}
    needed = needed_nodes(graph)
    uses = uses_of(graph, needed)
    for at, n in enumerate(graph.nodes):
        if at not in needed:
            place.append(-1)
            continue
        if n.kind is None:
            same = (n.value.tobytes(), n.shape, n.dtype) if n.value is not None and n.value.size <= 64 else None
            if same is None or same not in seen:
                made = new.append(n).id
                if same is not None:
                    seen[same] = made
            place.append(made if same is None else seen[same])
            continue
        inputs = tuple(
            i if i is None else place[i] if place[i] >= 0 else shape_only(new, graph.nodes[i], seen) for i in n.inputs
        )
        if n.kind is StopGradient:
            place.append(inputs[0] or 0)
            continue
        value = _folded(new, n, inputs) if fold else None
        if value is not None:
            place.append(new.append(Node(n.shape, n.dtype, value=value)).id)
            continue
        if fold and (moved := _into_bias(new, uses, n, inputs)) is not None:
            place.append(moved)
            continue
        key = (*key_of(n.kind, (), "fast", n.options), inputs)
        if key not in seen:
            seen[key] = new.append(replace(n, inputs=inputs)).id
        place.append(seen[key])
    new.outputs = [place[i] for i in graph.outputs]
    return new


def reads(n: Node) -> list[int | None]:
    """The inputs of a node, None for those of which it needs no more than the shape."""
    return [i if n.kind is None or n.kind.reads(p) else None for p, i in enumerate(n.inputs)]


def shape_only(graph: Nodes, n: Node, seen: dict[Any, int]) -> int:
    """A constant that nothing reads, in the place of a value that is not needed; it takes no memory."""
    key = ("shape", n.shape, n.dtype)
    if key not in seen:
        seen[key] = graph.append(Node(n.shape, n.dtype, value=np.broadcast_to(np.zeros((), n.dtype), n.shape))).id
    return seen[key]


def needed_nodes(graph: Nodes) -> set[int]:
    """The nodes whose values outputs depend on, and all inputs."""
    needed = set(graph.outputs) | set(graph.input_ids())
    for at in range(len(graph.nodes) - 1, -1, -1):
        if at in needed:
            needed.update(i for i in reads(graph.nodes[at]) if i is not None)
    return needed


def uses_of(graph: Nodes, needed: set[int]) -> list[int]:
    """How often each node is read; outputs count twice, so that nothing takes them for private."""
    uses = [0] * len(graph.nodes)
    for at in needed:
        for i in reads(graph.nodes[at]):
            if i is not None:
                uses[i] += 1
    for i in graph.outputs:
        uses[i] += 2
    return uses


def is_operator(n: Node) -> bool:
    """Whether a node is something to apply to arrays; records of winners exist inside of programs only."""
    return n.kind is not None and not issubclass(n.kind, FirstWinners | VjpFromWinners)


def _folded(graph: Nodes, n: Node, inputs: Sequence[int | None]) -> Array | None:
    """The value of a node all of whose inputs are constants."""
    arrays = [None if i is None else graph.nodes[i].value for i in inputs]
    if any(i is not None and a is None for i, a in zip(inputs, arrays, strict=True)) or prod(n.shape) > FOLD_LIMIT:
        return None
    if not is_operator(n):
        return None
    assert n.kind is not None
    y: Array = apply(n.kind, arrays, "fast", *n.options)
    return y if y.dtype == n.dtype and y.flags.c_contiguous else np.asarray(y, n.dtype, order="C")


def _into_bias(new: Nodes, uses: Sequence[int], n: Node, inputs: Sequence[int | None]) -> int | None:
    """conv(x, w, b) + shift, per channel and both constant: a convolution with another bias."""
    if n.kind is not Add:
        return None
    for c, k in ((0, 1), (1, 0)):
        i, j, old = inputs[c], inputs[k], n.inputs[c]
        assert i is not None and j is not None and old is not None
        conv, shift = new.nodes[i], new.nodes[j].value
        if shift is None or uses[old] != 1 or conv.kind not in (Conv, ConvTranspose):
            continue
        if n.shape != conv.shape or not is_per_channel(conv, shift.shape):
            continue
        x, w, b = conv.inputs
        if (bias := _shifted(conv, None if b is None else new.nodes[b], shift.reshape(-1))) is None:
            continue
        made = new.append(Node(bias.shape, bias.dtype, value=np.asarray(bias, order="C"))).id
        assert conv.resolved is not None
        shapes = (*conv.resolved.shapes[:2], bias.shape)
        return new.append(replace(conv, inputs=(x, w, made), resolved=replace(conv.resolved, shapes=shapes))).id
    return None


def _shifted(conv: Node, b: Node | None, shift: Array) -> Array | None:
    """A shift as the bias, or as part of it: it is added to a finished sum like the bias, which must not overflow."""
    if b is None:
        return shift if is_bias(conv, shift) else None
    if b.value is None:
        return None
    with np.errstate(all="ignore"):
        bias: Array = b.value + shift
    return bias if np.isfinite(bias).all() else None


def is_per_channel(conv: Node, shape: Shape) -> bool:
    """Whether an array of this shape has one cell for each channel of a convolution's result."""
    assert conv.resolved is not None
    d = conv.resolved.d or 0
    channels = conv.shape[-d - 1]
    return shape in ((channels, *(1,) * d), (1, channels, *(1,) * d))


def is_bias(n: Node, value: Array | None) -> bool:
    """Whether adding something (a constant has a value) to sums of products is having it for their bias.

    It is not for -0 and sums of no terms: these are +0, and so is (+0) + (-0), but a bias of -0 alone is -0.
    """
    if value is not None and not (np.signbit(value) & (value == 0)).any():
        return True
    assert n.resolved is not None
    x, y = n.resolved.shapes[:2]
    assert x is not None and y is not None
    if isinstance(n.op, MatMul):
        return n.op.sizes(x, y)[2] > 0
    assert isinstance(n.op, Conv)
    # Transposed windows do not tell which of them are empty, as every second one often is.
    return x[0] > 0 and n.kind is Conv and n.op.window.empty_cell(x[1:]) is None
