"""What `ln.bounds` is given, checked; its rules are in the table of lunette.relax.bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, shown
from lunette.graph.differentiate import check_function
from lunette.graph.graph import Graph
from lunette.graph.jit import trace
from lunette.graph.nodes import Node
from lunette.graph.program import Program
from lunette.number import Array, Interval, is_real
from lunette.window import integer

METHODS: Final = ("interval", "crown", "optimised")


def check_method(rule: str, method: Any, words: Sequence[str], hint: str) -> None:
    """A method is one of these words."""
    if not isinstance(method, str) or method not in words:
        names = ", ".join(f'"{w}"' for w in words)
        raise ArgumentError(rule, f"method among {names}", f"method={shown(method)}", hint)


def check_semantics(rule: str, semantics: Any) -> None:
    """What bounds are of."""
    if not isinstance(semantics, str) or semantics not in ("real", "float"):
        hint = "Of the real-valued function with the weights it has, or of its executions in floats."
        raise ArgumentError(rule, 'semantics "real" or "float"', f"semantics={shown(semantics)}", hint)


def check(method: Any, semantics: Any, memory: Any, steps: Any, seed: Any, seconds: Any) -> None:
    """Rules Z3, Z5 and Z6."""
    check_method("Z3", method, METHODS, "Leave it out for crown.")
    check_semantics("Z5", semantics)
    for name, value in (("memory", memory), ("steps", steps), ("seed", seed)):
        if integer(name, value) < 0:
            raise ArgumentError("Z6", f"{name} >= 0", f"{name}={value}", "Bytes, steps, or a seed.")
    if seconds is not None and not (is_real(seconds) and seconds >= 0):
        raise ArgumentError(
            "Z6", "seconds >= 0", f"seconds={shown(seconds)}", "Leave it out for all the time it takes."
        )


def graph_of(f: Any, boxes: Sequence[Any]) -> Graph:
    """Rule Z1."""
    graph = f.graph if isinstance(f, Program) else f
    if not isinstance(graph, Graph):
        if any(kind.__module__.startswith("torch.nn.") for kind in type(f).__mro__):  # which computes with tensors
            hint = "Pass ln.from_torch(module, example)."
            raise DTypeError(
                "Z1", "a graph, a program or a function of arrays", f"{type(f).__name__}, a module of torch", hint
            )
        check_function(f, "bounds")
        graph = trace(f, *(b.lo if isinstance(b, Interval) else b for b in boxes))
    if len(graph.outputs) != 1 or graph.nodes[graph.outputs[0]].dtype.kind != "f":
        got = f"{len(graph.outputs)} outputs" if len(graph.outputs) != 1 else "an output of integers"
        raise ArgumentError("Z1", "a function with one output of floats", got, "Join them with ln.concat.")
    return graph


def boxes_of(graph: Graph, boxes: Sequence[Any]) -> tuple[int | None, list[Array | Interval]]:
    """Rule Z2: how many boxes there are of each input, None if they are no batch; boxes in float64, and points."""
    inputs = graph.inputs
    if len(boxes) != len(inputs):
        names = ", ".join(f"{n.name} : {n.short}" for n in inputs)
        raise ArgumentError("Z2", f"one box for each of ({names})", f"{len(boxes)}", "A plain array is a point.")
    given: list[Array | Interval] = []
    batches: dict[str, int | None] = {}
    for n, b in zip(inputs, boxes, strict=True):
        ends = [np.asarray(e) for e in ((b.lo, b.hi) if isinstance(b, Interval) else (b,))]
        point = len(ends) == 1 or n.dtype.kind == "i"
        for e in ends:
            batched = not point and e.shape[1:] == n.shape and e.ndim == len(n.shape) + 1
            if e.shape != n.shape and not batched:
                need = f"{n.name} of shape {n.shape}{'' if point else ', or a batch of such boxes'}"
                raise ShapeError("Z2", need, f"shape {e.shape}", "Shapes are part of a graph.")
            if e.dtype.kind != n.dtype.kind or (e.dtype != n.dtype and e.dtype != np.float64 and n.dtype.kind == "f"):
                hint = "Ends of boxes may be float64, too."
                raise DTypeError("Z2", f"{n.name} of dtype {n.dtype}", f"dtype {e.dtype}", hint)
            if e.dtype.kind == "f" and np.isnan(e).any():
                raise ArgumentError("Z2", f"{n.name} without NaN", "NaN", "There is no box around it.")
            if not point:
                batches[str(n.name)] = e.shape[0] if batched else None
        if n.dtype.kind == "i" and len(ends) == 2 and (ends[0] != ends[1]).any():
            got = f"{n.name} between {shown(ends[0])} and {shown(ends[1])}"
            raise ArgumentError("Z2", "a point for integers", got, "Bound each of them by itself.")
        doubles = [np.array(e, np.float64) for e in ends]
        given.append(ends[0] if point else Interval.between(*doubles))
    if len(set(batches.values())) > 1:
        told = ", ".join(f"{'one box' if k is None else f'{k} boxes'} of {name}" for name, k in batches.items())
        raise ShapeError("Z2", "as many boxes of each input", told, "Repeat what is the same for all of them.")
    return next(iter(batches.values()), None), given


def rows_of(rows: Any, output: Node) -> Array | None:
    """Rule Z4."""
    if rows is None:
        return None
    cells = prod(output.shape)
    try:
        given = np.asarray(rows)
        whole = given.astype(np.float64) if given.dtype.kind in "fiu" else None
    except (TypeError, ValueError, LunetteError):
        whole = None
    if whole is None or whole.ndim != 2 or whole.shape[1] != cells or not np.isfinite(whole).all():
        got = f"rows of shape {np.shape(rows)}" if whole is not None and np.isfinite(whole).all() else shown(rows)
        raise ArgumentError("Z4", f"finite rows of shape (number, {cells})", got, "One coefficient for each cell.")
    if (whole.astype(given.dtype) != given).any():
        raise ArgumentError("Z4", "rows that float64 has", shown(rows), "Integers up to 2**53.")
    return whole
