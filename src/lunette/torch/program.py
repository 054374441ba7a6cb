"""Programs of lunette in torch: compiled modules, and programs as functions that torch can differentiate.

| rule | says                                                                                    |
|------|-----------------------------------------------------------------------------------------|
| TB4  | the weights of a compiled module are those that it was compiled with                    |
| TB5  | a compiled module is for inference: no gradient is asked of it                          |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from lunette.errors import ArgumentError, DTypeError
from lunette.graph.derive import replay
from lunette.graph.differentiate import jvp, vjp
from lunette.graph.graph import Graph
from lunette.graph.program import Program
from lunette.torch.read import Exported
from lunette.torch.tensors import array_of, tensor_of


def compile(module: nn.Module, *examples: Any) -> Compiled:
    """The module as a compiled program behind a module's face, for inference.

    Inputs of other shapes than those of `examples` are compiled when they come. Weights are read now; `refresh()`
    reads them again, and a call after they changed is refused.
    """
    made = Compiled(module)
    made.program(examples)
    return made


class Compiled(nn.Module):
    """What `lt.compile` gives."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.__dict__["source"] = module  # not as a part, whose weights would be ours
        self.exported: dict[Any, Exported] = {}
        self.programs: dict[Any, Program] = {}
        self.parts = list(_parts(module))
        self.read: list[tuple[torch.Tensor, Any]] = []
        self.eval()

    def program(self, inputs: Sequence[Any]) -> Program:
        """The program for inputs of these shapes and dtypes."""
        key = tuple((tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else t for t in inputs)
        known = self.programs.get(key)
        if known is None:
            exported = self.exported.setdefault(key, Exported(self.__dict__["source"], tuple(inputs)))
            known = self.programs[key] = exported.graph().compile()
            self.read += [(t, _state(t)) for t in exported.weights()]
        return known

    def refresh(self) -> None:
        """Read the weights again; and the module, if parts of it are others now."""
        if self._is_rebuilt() or any(_state(t)[1:] != state[1:] for t, state in self.read):
            self.exported.clear()
            self.parts = list(_parts(self.__dict__["source"]))
        self.programs.clear()
        self.read.clear()

    def _is_rebuilt(self) -> bool:
        return any(held.get(name) is not part for held, name, part in self.parts)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """What the module computes."""
        for at, t in enumerate(inputs):
            _check_input(f"inputs[{at}]", t)
        if self._is_rebuilt() or any(_state(t) != state for t, state in self.read):
            hint = "Call .refresh() after an optimiser's step or load_state_dict."
            raise ArgumentError(
                "TB4", "the weights that were compiled", "weights that changed since", hint, who="compile"
            )
        if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
            hint = "Call it under torch.no_grad(), or differentiate program.to_torch()."
            raise DTypeError("TB5", "inputs that do not require grad", "one that does", hint, who="compile")
        y = self.program(inputs)(*map(array_of, inputs))
        return tuple(map(tensor_of, y)) if isinstance(y, tuple) else tensor_of(y)

    def __getstate__(self) -> dict[str, Any]:
        """The module alone: it is compiled again where it arrives."""
        return {**self.__dict__, "exported": {}, "programs": {}, "read": [], "parts": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.parts = list(_parts(self.__dict__["source"]))

    def extra_repr(self) -> str:
        """The class of the module, and for how many shapes it was compiled."""
        return f"{type(self.__dict__['source']).__name__}, programs={len(self.programs)}"


def _check_input(name: str, t: Any) -> None:
    """Rule TB1, but for dtypes, which are the program's affair."""
    if not isinstance(t, torch.Tensor) or t.device.type != "cpu":
        got = f"{name} on device {t.device}" if isinstance(t, torch.Tensor) else f"{name} of type {type(t).__name__}"
        raise DTypeError("TB1", "tensors on the CPU", got, "Pass torch.from_numpy(array), or t.cpu().", who="compile")


def _parts(module: nn.Module) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where the weights and parts of a module are held, under what names, and which they are."""
    for part in module.modules():
        for held in (part._parameters, part._buffers, part._modules):
            yield from ((held, name, value) for name, value in held.items())


def _state(t: torch.Tensor) -> tuple[int, int, torch.dtype]:
    """What changes when the numbers of a tensor do, or where they are."""
    return t._version, t.data_ptr(), t.dtype


# ---- programs as functions


def to_torch(program: Program) -> Callable[..., Any]:
    """The program as a function of tensors: backward, double backward and forward mode work on it."""
    function = Differentiated(program)

    def call(*inputs: torch.Tensor) -> Any:
        """The program on tensors."""
        for n, t in zip(program.graph.inputs, inputs, strict=False):
            _check_input(str(n.name), t)
        y = function(*inputs)
        return y[0] if len(y) == 1 else y

    return call


class Differentiated:
    """A program whose derivatives are programs of the same kind, made when they are asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.count = len(program.graph.outputs)
        self.node: Any = _node_of(self).apply

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y: tuple[torch.Tensor, ...] = self.node(*inputs)
        return y

    def compute(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The values alone."""
        y = self.program(*map(array_of, inputs))
        return tuple(map(tensor_of, y if isinstance(y, tuple) else (y,)))

    @cached_property
    def back(self) -> Differentiated:
        """From inputs and a cotangent of every output to one of every input that is measured."""
        source = self.program.graph

        def pulled(new: Graph, primals: list[Any], cotangents: list[Any]) -> list[Any]:
            moving = [v for v in primals if v.dtype.kind == "f"]

            def f(*chosen: Any) -> list[Any]:
                given = iter(chosen)
                return replay(source, [next(given) if v.dtype.kind == "f" else v for v in primals])

            return list(vjp(f, *moving)[1](cotangents))

        return self._derived(pulled, [source.nodes[i] for i in source.outputs], "cotangent")

    @cached_property
    def along(self) -> Differentiated:
        """From inputs and a tangent of each to the tangents of the outputs."""
        source = self.program.graph

        def pushed(new: Graph, primals: list[Any], tangents: list[Any]) -> list[Any]:
            return list(jvp(lambda *values: replay(source, values), primals, tangents)[1])

        return self._derived(pushed, source.inputs, "tangent")

    def _derived(self, rule: Callable[..., list[Any]], others: Sequence[Any], name: str) -> Differentiated:
        new = Graph()
        new.lines = False
        primals = [new.input(n.shape, n.dtype, n.name) for n in self.program.graph.inputs]
        more = [new.input(n.shape, n.dtype, new.unused(f"{name}_{at}")) for at, n in enumerate(others)]
        results = rule(new, primals, more)
        new.output(*(v if hasattr(v, "graph") else new.constant(v) for v in results))
        return Differentiated(new.compile())


def _node_of(function: Differentiated) -> type[torch.autograd.Function]:
    """The node of autograd: its gradients are another program."""

    class Run(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return function.compute(inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, *g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            primals = ctx.saved_tensors
            found = iter(function.back(*primals, *g))
            return tuple(next(found) if t.is_floating_point() else None for t in primals)

        @staticmethod
        def jvp(ctx: Any, *t: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
            primals = ctx.saved_tensors
            moved = [torch.zeros_like(p) if v is None else v for p, v in zip(primals, t, strict=True)]
            return function.along(*primals, *moved)

        @staticmethod
        def vmap(info: Any, axes: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[Any, Any]:
            """A program has the shapes that it has: one call for each sample."""
            moved = [t if axis is None else t.movedim(axis, 0) for t, axis in zip(inputs, axes, strict=True)]
            rows = [
                function(*(t if axis is None else t[k] for t, axis in zip(moved, axes, strict=True)))
                for k in range(info.batch_size)
            ]
            return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * function.count

    return Run
