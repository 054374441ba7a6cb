"""A pass over graphs in which max pools meet their VJPs: the pool keeps a record of its winners, the VJP reads that.

Finding winners anew means reading all of x once more; a record is a byte for each output. So x need not wait for the
way back, unless another node reads it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from lunette.array import KERNEL_RANK
from lunette.graph.nodes import Node, Nodes
from lunette.graph.simplify import needed_nodes
from lunette.op import Record, resolve
from lunette.ops import MaxPool
from lunette.ops.derivative import Vjp
from lunette.ops.winners import vjp_from, winners_of


def with_records(graph: Nodes) -> tuple[Nodes, list[int]]:
    """The same function, with records where the values of a pool and of its VJP are needed; and where nodes went."""
    needed = needed_nodes(graph)
    pools = {_key(n): at for at, n in enumerate(graph.nodes) if at in needed and _is_pool(n)}
    asked: dict[int, tuple[Record, list[int]]] = {}
    for at, n in enumerate(graph.nodes):
        if at in needed and n.kind is not None and issubclass(n.kind, Vjp) and issubclass(n.kind.base, MaxPool):
            pool = pools.get((n.kind.base, n.inputs[0], n.options))
            record = None if pool is None else _record(graph.nodes[pool])
            if pool is not None and record is not None:
                asked.setdefault(pool, (record, []))[1].append(at)
    if not asked:
        return graph, list(range(len(graph.nodes)))
    records: dict[int, int] = {}  # of the VJPs that read them
    new = graph.empty()
    new.lines = graph.lines
    place: list[int] = []
    for at, n in enumerate(graph.nodes):
        inputs = tuple(None if i is None else place[i] for i in n.inputs)
        if at in records:
            assert n.kind is not None and issubclass(n.kind, Vjp)
            kind: Any = vjp_from(n.kind.base)
            inputs = (inputs[0], records[at], inputs[1])
            place.append(new.append(_node(new, kind, n, inputs)).id)
            continue
        place.append(new.append(replace(n, inputs=inputs)).id)
        if at in asked:
            assert n.kind is not None
            record, readers = asked[at]
            made = _node(new, winners_of(n.kind), n, inputs)
            records |= dict.fromkeys(readers, new.append(replace(made, dtype=record.dtype)).id)
    new.outputs = [place[i] for i in graph.outputs]
    return new, place


def _is_pool(n: Node) -> bool:
    return n.kind is not None and issubclass(n.kind, MaxPool) and 0 not in n.shape


def _key(n: Node) -> Any:
    return n.kind, n.inputs[0], n.options


def _record(n: Node) -> Record | None:
    """What a pool keeps, if there is something to gain."""
    assert n.resolved is not None
    if (n.resolved.d or 0) > KERNEL_RANK:
        return None
    record = n.op.kernels(n.dtype, prod(n.resolved.batch), n.resolved.shapes).record
    return record if record is not None and record.pays else None


def _node(graph: Nodes, kind: Any, like: Node, inputs: tuple[int | None, ...]) -> Node:
    """A node with the options and the dtype of another."""
    resolved = resolve(kind, [None if i is None else graph.nodes[i].shape for i in inputs], 2, like.options)
    return Node(resolved.out, like.dtype, kind, like.options, inputs, resolved, line=like.line)
