"""The two ways through a graph: from its inputs to its outputs, and back.

Both know nothing of what is computed. `forward` makes the value of every node of those of its inputs; `reverse` makes
the cotangent of every node of those of the nodes that read it, and adds them up. Tapes of derivatives are walked back
in the same way, since a list of what each step read is all that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lunette.graph.nodes import Node, Nodes
from lunette.graph.rows import by_rows
from lunette.ops.binary import add


def forward(
    graph: Nodes, values: Sequence[Any], compute: Callable[[Node, list[Any]], Any]
) -> Iterator[tuple[int, Any]]:
    """Every node in order, with `values` for the inputs, and what `compute` makes of an operator."""
    given = iter(values)
    known: list[Any] = []
    for at, n in enumerate(graph.nodes):
        if n.name is not None:
            known.append(next(given))
        elif n.value is not None:
            known.append(n.value)
        else:
            known.append(compute(n, [None if i is None else known[i] for i in n.inputs]))
        yield at, known[-1]


def reverse(
    sources: Sequence[Sequence[int | None]],
    cotangents: list[Any],
    pull: Callable[[int, int, Any], Any],
    plus: Callable[[Any, Any], Any] = add,
) -> list[Any]:
    """The cotangents of what has no sources, in their places, from those of all; None is zero. The list is changed.

    `sources[at]` are the numbers of the nodes that node `at` reads, all of them earlier. `pull(at, wrt, g)` is what
    the cotangent g of node `at` gives to the one that it reads as number `wrt`; `plus` adds what several give.
    """
    for at in range(len(cotangents) - 1, -1, -1):
        g, read = cotangents[at], sources[at]
        if g is None or not read:
            continue
        for wrt, source in enumerate(read):
            if source is None:
                continue
            part = pull(at, wrt, g)
            if part is not None:
                before = cotangents[source]
                cotangents[source] = part if before is None else plus(before, part)
        cotangents[at] = None
    return cotangents


def reverse_rows(graph: Nodes, known: Sequence[Any], cotangents: Mapping[int, Any]) -> list[Any]:
    """The cotangents of the inputs, for several cotangents of nodes at once: each has an axis of rows in front.

    `known` are the values of all nodes. None is zero.
    """
    moving = [n.name is not None and n.dtype.kind == "f" for n in graph.nodes]
    for at, n in enumerate(graph.nodes):
        moving[at] = moving[at] or any(moving[i] for i in n.inputs if i is not None)

    def pull(at: int, wrt: int, g: Any) -> Any:
        n = graph.nodes[at]
        assert n.kind is not None
        kind, primals = n.kind, [None if i is None else known[i] for i in n.inputs]
        return by_rows(lambda rows: kind.pull(n.options, primals, known[at], rows, wrt), g)

    sources = [tuple(i if i is not None and moving[i] else None for i in n.inputs) for n in graph.nodes]
    whole = reverse(sources, [cotangents.get(at) for at in range(len(sources))], pull)
    return [whole[at] for at in graph.input_ids()]
