"""What well-formed means: the rules of lunette.graph.graph as a table of checks, for whatever makes a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lunette.errors import ArgumentError, LunetteError, error_context
from lunette.graph.nodes import Node, Nodes


def earlier(graph: Nodes, at: int, n: Node) -> str | None:
    """G1."""
    late = [i for i in n.inputs if i is not None and not 0 <= i < at]
    return f"%{at} reads %{late[0]}" if late else None


def typed(graph: Nodes, at: int, n: Node) -> str | None:
    """G2."""
    if n.kind is None:
        return None
    scratch = Nodes()
    scratch.lines = False
    operands = [
        None if i is None else scratch.append(Node(graph.nodes[i].shape, graph.nodes[i].dtype)) for i in n.inputs
    ]
    try:
        made = scratch.apply(n.kind, operands, n.options)
    except LunetteError as error:
        return f"%{at}: {error}"
    if (made.shape, made.dtype) != (n.shape, n.dtype):
        return f"%{at} : {n.short} where {n.kind.name} gives {made.node.short}"
    return None


def named(graph: Nodes, at: int, n: Node) -> str | None:
    """G3."""
    twice = n.name is not None and [m.name for m in graph.nodes[:at]].count(n.name)
    return f"two inputs {n.name}" if twice else None


def valued(graph: Nodes, at: int, n: Node) -> str | None:
    """G4."""
    wrong = n.value is not None and (n.value.shape != n.shape or n.value.dtype != n.dtype)
    return (
        f"%{at} : {n.short} with an array of {n.value.dtype}{list(n.value.shape)}"
        if wrong and n.value is not None
        else None
    )


CHECKS: Final[dict[str, tuple[str, Callable[[Nodes, int, Node], str | None]]]] = {
    "G1": ("inputs that are earlier nodes", earlier),
    "G2": ("shapes and dtypes that the operators give", typed),
    "G3": ("inputs with names that differ", named),
    "G4": ("constants as their nodes say", valued),
}


def check(graph: Nodes) -> None:
    """Refuse a graph that breaks a rule, naming the rule and the node."""
    with error_context("Graph.check"):
        for at, n in enumerate(graph.nodes):
            for rule, (need, test) in CHECKS.items():
                if (wrong := test(graph, at, n)) is not None:
                    raise ArgumentError(rule, need, wrong, "The graph was not made by lunette, or was damaged.")
        if any(not 0 <= i < len(graph.nodes) for i in graph.outputs):
            raise ArgumentError("G5", "outputs among its nodes", f"outputs {graph.outputs}", "Call g.output(y).")
