"""Graphs of derivatives: what a program runs for its JVP, and before and after a cotangent is known for its VJP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lunette.graph import walk
from lunette.graph.differentiate import jvp, vjp
from lunette.graph.nodes import Node, Nodes, Var
from lunette.graph.recording import with_records
from lunette.graph.simplify import reads, shape_only
from lunette.number import cells_of, each
from lunette.op import apply


def replay(graph: Nodes, values: Sequence[Any], number: Callable[[Any], Any] | None = None) -> list[Any]:
    """The outputs of a graph, computed by the public operators on values of any kind.

    `number` converts the cells of constants, for values that are exact.
    """

    def compute(n: Node, operands: list[Any]) -> Any:
        assert n.kind is not None
        if number is not None:
            operands = [
                each(number, cells_of(a)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in operands
            ]
        return apply(n.kind, operands, "fast", *n.options)

    known = [v for _, v in walk.forward(graph, values, compute)]
    return [known[i] for i in graph.outputs]


def _copied_inputs(new: Nodes, graph: Nodes) -> list[Var]:
    return [new.append(Node(n.shape, n.dtype, name=n.name)) for n in graph.inputs]


def jvp_graph(graph: Nodes, moving: Sequence[bool]) -> Nodes:
    """The outputs of a graph and their derivatives; its inputs are those of the graph, then the tangents that move."""
    new = graph.empty()
    new.lines = False
    primals = _copied_inputs(new, graph)
    tangents = [
        new.input(n.shape, n.dtype, new.unused(f"tangent_of_{n.name}")) if m else None
        for n, m in zip(graph.inputs, moving, strict=True)
    ]
    y, dy = jvp(lambda *values: replay(graph, values), primals, tangents)
    new.output(*(_as_var(new, v) for v in y), *(_as_var(new, v) for v in dy))
    return new


def _as_var(graph: Nodes, value: Any) -> Var:
    return value if isinstance(value, Var) else graph.constant(value)


def vjp_graphs(graph: Nodes, records: bool = True) -> tuple[Nodes, Nodes, list[int]]:
    """Forward with what backward needs as further outputs; backward; and which inputs backward reads again.

    The inputs of backward are those inputs, then the further outputs of forward, then the cotangents. With records of
    max pools' winners, backward is faster, and cannot be differentiated again.
    """
    joint = graph.empty()
    joint.lines = False
    primals = _copied_inputs(joint, graph)
    moving = [v for v in primals if v.dtype.kind == "f"]

    def f(*chosen: Any) -> list[Any]:
        boxes = iter(chosen)
        return replay(graph, [next(boxes) if v.dtype.kind == "f" else v for v in primals])

    y, pullback = vjp(f, *moving)
    results = [_as_var(joint, v).id for v in y]
    split = len(joint.nodes)
    cotangents = [joint.input(v.shape, v.dtype, joint.unused(f"cotangent_{at}")) for at, v in enumerate(y)]
    gradients = [_as_var(joint, g).id for g in pullback(list(cotangents))]
    joint.outputs = [*results, *gradients]
    joint, went = with_records(joint) if records else (joint, list(range(len(joint.nodes))))
    results, gradients, split = [went[i] for i in results], [went[i] for i in gradients], went[split]
    primals = [Var(joint, went[v.id]) for v in primals]

    needed: set[int] = set(gradients)
    for at in range(len(joint.nodes) - 1, split - 1, -1):
        if at in needed:
            needed.update(i for i in reads(joint.nodes[at]) if i is not None)
    again = [p for p, v in enumerate(primals) if v.id in needed]
    kept = sorted(i for i in needed if i < split and joint.nodes[i].kind is not None)
    constants = {i for i in needed if i < split and joint.nodes[i].value is not None}

    forward = graph.empty()
    forward.nodes = joint.nodes[:split]
    forward.outputs = [*results, *kept]

    backward = graph.empty()
    seen: dict[Any, int] = {}
    first = [*(primals[p].id for p in again), *kept]
    moved = {i: backward.append(Node(joint.nodes[i].shape, joint.nodes[i].dtype, name=f"kept_{i}")).id for i in first}
    moved |= {i: backward.append(joint.nodes[i]).id for i in sorted(constants)}
    for at in range(split, len(joint.nodes)):
        n = joint.nodes[at]
        if n.kind is not None and at not in needed:
            continue
        inputs = tuple(
            i if i is None else moved[i] if i in moved else shape_only(backward, joint.nodes[i], seen) for i in n.inputs
        )
        moved[at] = backward.append(Node(n.shape, n.dtype, n.kind, n.options, inputs, n.resolved, n.name, n.value)).id
    backward.outputs = [moved[g] for g in gradients]
    return forward, backward, again
