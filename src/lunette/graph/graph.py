"""Graphs as users hold them: nodes that are written, read, drawn, checked, compiled and evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from lunette.array import (
    by_specification,
)
from lunette.errors import ArgumentError, DTypeError, ShapeError, error_context, refuses
from lunette.graph import check, draw, file
from lunette.graph.nodes import Node, Nodes
from lunette.graph.program import Program
from lunette.graph.text import named_constants, read, write
from lunette.graph.walk import forward
from lunette.number import OBJECT, Array, cells_of, each


class Graph(Nodes):
    """A typed list of nodes: inputs, constants and operators, and which of them are outputs.

    >>> import lunette as ln
    >>> g = ln.Graph()
    >>> x = g.input((3, 8, 8), name="x")
    >>> g.output(ln.max_pool(ln.relu(x), (2, 2)))
    >>> print(g)
    %0 : f32[3,8,8] = input("x")
    %1 : f32[3,8,8] = relu(%0)
    %2 : f32[3,4,4] = max_pool(%1, kernel=(2, 2))
    return %2
    """

    def __str__(self) -> str:
        return write(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.parse, (str(self), named_constants(self))

    @staticmethod
    def parse(text: str, constants: dict[str, Any] | None = None) -> Graph:
        """The graph that a text describes; `constants` holds the arrays that the text only names."""
        return read(text, constants, Graph())

    def save(self, path: Any) -> None:
        """Write the graph to `path` (JSON) and its constants to `path` + ".npz"."""
        file.save(self, path)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture, which is written to `path` if that is given."""
        from lunette.page import kept  # loaded by a picture

        return kept(draw.to_svg(self), path)

    def check(self) -> None:
        """Rules G1 to G5; passes and loaders call it on what they made."""
        check.check(self)

    def __call__(self, *inputs: Any, **named: Any) -> NoReturn:
        """Rule T6: a graph says what is to be computed, and computes nothing."""
        hint = "graph.compile() gives a program to call, graph.eval(...) computes with exact numbers."
        raise DTypeError("T6", "a function", "a graph", hint, who="Graph")

    def compile(self, *, debug: bool = False) -> Program:
        """The graph as a program that runs on compiled kernels."""
        return Program(self, debug=debug)

    def eval(self, *inputs: Any, number: Callable[[Any], Any] | None = None) -> Any:
        """The outputs by the executable specification, on numbers of any type.

        `number` converts every cell of the inputs and constants, for example fractions.Fraction or flint.arb.

        >>> from fractions import Fraction
        >>> import lunette as ln
        >>> g = ln.Graph()
        >>> g.output(ln.mean(g.input((3,))))
        >>> g.eval([1, 2, 4], number=Fraction)
        array(Fraction(7, 3), dtype=object)
        """

        def convert(a: Any) -> Array:
            cells = cells_of(a)
            return (
                cells
                if number is None
                else each(lambda v: number(float(v) if isinstance(v, np.floating) else v), cells)
            )

        with error_context("Graph.eval"):
            if len(inputs) != len(self.inputs):
                raise ArgumentError("G9", f"{len(self.inputs)} inputs", f"{len(inputs)}", "One array per input.")
            if not self.outputs:
                raise ArgumentError("G5", "at least one output", "none", "Call g.output(y).")
            given = []
            for n, a in zip(self.inputs, inputs, strict=True):
                cells = cells_of(a) if n.dtype == np.int64 else convert(a)
                if cells.shape != n.shape:
                    raise ShapeError("G9", f"{n.name} of shape {n.shape}", f"shape {cells.shape}", "Shapes are static.")
                given.append(cells)

        def compute(n: Node, arrays: list[Any]) -> Array:
            assert n.resolved is not None
            own = [convert(a) if a is not None and a.dtype != OBJECT and a.dtype != np.int64 else a for a in arrays]
            own = [a if a is None or a.dtype == OBJECT else cells_of(a) for a in own]
            n.resolved.op.check(*own)
            with np.errstate(all="ignore"):
                return by_specification(n.resolved, own)

        values = dict(forward(self, given, compute))
        results = [values[i].copy() if values[i].dtype == OBJECT else convert(values[i]) for i in self.outputs]
        return results[0] if len(results) == 1 else tuple(results)


@refuses
def load(path: str | os.PathLike[str]) -> Graph:
    """The graph that `save` wrote; a file that was damaged, or is none of ours, is refused."""
    return file.load(path, Graph())
