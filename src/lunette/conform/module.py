"""A graph as a torch.nn.Module, in torch's own functions: what tools that read PyTorch's modules are given.

Window operators are said by lunette.dialects.torch, which only says what means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lunette.dialects import Call, dialect
from lunette.errors import ArgumentError
from lunette.graph.graph import Graph
from lunette.graph.nodes import Node
from lunette.graph.text import options_of
from lunette.ops import KINDS
from lunette.window import Shape

Function = Callable[..., Any]


def as_module(graph: Graph) -> Any:
    """The module of a graph with one input and one output. Rule V11: torch says it."""
    import torch

    steps = [_step(torch, graph, n) for n in graph.nodes]

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for at, n in enumerate(graph.nodes):
                if n.value is not None:
                    value = torch.from_numpy(np.array(n.value))
                    self.register_parameter(f"c{at}", torch.nn.Parameter(value, requires_grad=False))

        def forward(self, x: Any) -> Any:
            values: list[Any] = []
            for at, (n, step) in enumerate(zip(graph.nodes, steps, strict=True)):
                if n.value is not None:
                    values.append(getattr(self, f"c{at}"))
                elif step is None:
                    values.append(x)
                else:
                    values.append(step(*(None if i is None else values[i] for i in n.inputs)))
            return values[graph.outputs[0]]

    return Network().eval()


def _step(torch: Any, graph: Graph, n: Node) -> Function | None:
    """What computes a node of its inputs; None for the input itself and constants."""
    if n.kind is None:
        return None
    options = dict(zip(options_of(n.kind), n.options, strict=True))
    shapes = [graph.nodes[i].shape for i in n.inputs if i is not None]
    if n.kind.name in KINDS:
        call = dialect("torch").express(n.kind.name, shapes, {k: v for k, v in options.items() if k != "ties"})
        if isinstance(call, Call) and not call.departures:
            return _called(torch, call)
        got = call.departures[0] if isinstance(call, Call) else call.reason
        raise ArgumentError("V11", f"{n.kind.name} as torch has it", got, "It is left out.", who="as_module")
    if n.kind.name not in GLUE:
        raise ArgumentError(
            "V11", f"operators among {', '.join(GLUE)}", n.kind.name, "It is left out.", who="as_module"
        )
    return GLUE[n.kind.name](torch, n, shapes, options)


def _called(torch: Any, call: Call) -> Function:
    arguments = dict(call.arguments)
    if call.function.startswith("Tensor."):
        method = call.function.removeprefix("Tensor.")
        return lambda x: getattr(x, method)(**arguments)
    named: Function = getattr(torch.nn.functional, call.function)
    return lambda *tensors: named(*(t for t in tensors if t is not None), **arguments)


def _matmul(torch: Any, n: Node, shapes: Sequence[Shape], options: Mapping[str, Any]) -> Function:
    if options.get("turn_y") and not options.get("turn_x"):
        linear: Function = torch.nn.functional.linear
        return linear
    return lambda x, y: torch.matmul(x.mT if options.get("turn_x") else x, y.mT if options.get("turn_y") else y)


def _reshape(torch: Any, n: Node, shapes: Sequence[Shape], options: Mapping[str, Any]) -> Function:
    shape = n.shape
    rows = len(shape) == 2 and shapes[0][:1] == shape[:1]  # and any number of samples may be given
    return lambda x: torch.flatten(x, 1) if rows else x.reshape(shape)


GLUE: Final[Mapping[str, Callable[[Any, Node, Sequence[Shape], Mapping[str, Any]], Function]]] = {
    "relu": lambda torch, n, shapes, options: torch.relu,
    "add": lambda torch, n, shapes, options: lambda x, y: x + y,
    "matmul": _matmul,
    "reshape": _reshape,
}
"""The other operators that random networks have."""
