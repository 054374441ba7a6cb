"""Modules of torch as graphs of lunette, by torch.export: `ln.from_torch(module, *examples)`.

| rule | says                                                                                                |
|------|-----------------------------------------------------------------------------------------------------|
| FT1  | a module is in eval mode, or statistics of the batch are asked for (train=True), and nothing random |
| FT2  | every operator is in the table (lunette.torch.aten), or one of lunette's own                        |
| FT3  | its attributes, inputs and the results that are read are those that lunette has                     |
| FT4  | examples are float32 or float64 tensors on the CPU, results are tensors                             |
| FT5  | weights are "constants" or "inputs"                                                                 |
| FT6  | torch.export takes the module                                                                       |
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final

import torch
from torch import nn

from lunette.errors import ArgumentError, DTypeError, LunetteError, refuses, shown
from lunette.graph.graph import Graph
from lunette.graph.nodes import Var
from lunette.op import apply
from lunette.torch.aten import TABLE, WHOLE, Unavailable
from lunette.torch.operators import OPERATORS, setting_of
from lunette.torch.tensors import array_of

GRAPH_FLOATS: Final = (torch.float32, torch.float64)
HINT: Final = "Write that part in other operators, or keep it outside: docs/torch.md has the table."


@refuses
def from_torch(module: nn.Module, *examples: Any, weights: str = "constants", train: bool = False) -> Graph:
    """The graph of a module for inputs of the shapes and dtypes of `examples`.

    `weights` makes parameters and buffers constants, or named inputs behind the others ("inputs"). A module in train
    mode is refused, unless `train=True` asks for it: then normalisations use the statistics of the batch, and running
    ones stay as they are. Either the graph means what the module means, or the refusal names the node.
    """
    return Exported(module, examples, train).graph(weights)


def _decompositions() -> Any:
    """Of operators of ATen into others, as torch.export has them; before 2.6 they were elsewhere."""
    if hasattr(torch.export, "default_decompositions"):
        return torch.export.default_decompositions()
    from torch._decomp import core_aten_decompositions

    return core_aten_decompositions()


class Exported:
    """A module as torch.export saw it; graphs are made of it with the weights that it has then."""

    def __init__(self, module: Any, examples: tuple[Any, ...], train: bool = False) -> None:
        check_module(module, examples, train)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of its parts
            try:
                program = torch.export.export(module, examples)
                table: Any = _decompositions()
                for op in list(table):
                    if op.name().partition("::")[2].partition(".")[0] in WHOLE:
                        table.pop(op)
                self.program = program.run_decompositions(table)
                shorten_signs(self.program.graph)
            except LunetteError:
                raise
            except Exception as error:
                got = f"{type(module).__name__}: {shown(str(error).splitlines()[0] if str(error) else repr(error))}"
                hint = "torch.export.export(module, examples) says more."
                raise ArgumentError("FT6", "a module that torch.export takes", got, hint, who="from_torch") from error
        self.train = train

    def weight(self, spec: Any) -> torch.Tensor:
        """A parameter, a buffer or a constant of the module."""
        held: Mapping[str, Any] = (
            self.program.constants if spec.target in self.program.constants else self.program.state_dict
        )
        value: torch.Tensor = held[spec.target]
        return value

    def weights(self) -> list[torch.Tensor]:
        """All that graphs read, for those who ask whether it changed."""
        return [self.weight(s) for s in self.program.graph_signature.input_specs if s.target is not None]

    def graph(self, weights: str = "constants") -> Graph:
        """The graph with the weights as they are now."""
        if weights not in ("constants", "inputs"):
            need = 'weights "constants" or "inputs"'
            raise ArgumentError("FT5", need, f"weights={shown(weights)}", "Leave it out.", who="from_torch")
        return Reader(self, weights == "inputs").read()


def check_module(module: Any, examples: tuple[Any, ...], train: bool) -> None:
    """Rules FT1 and FT4."""
    who = "from_torch"
    if not isinstance(module, nn.Module):
        got = f"{shown(module)} of type {type(module).__name__}"
        raise DTypeError("FT4", "a torch.nn.Module", got, "Write a function as the forward of one.", who=who)
    needed = [p for p in signature(module.forward).parameters.values() if p.default is p.empty]
    if not examples and any(p.kind is p.POSITIONAL_OR_KEYWORD for p in needed):
        hint = "It tells shapes and dtype: from_torch(module, torch.zeros(1, 3, 32, 32))."
        raise ArgumentError("FT4", "an example of every input", "none", hint, who=who)
    for at, e in enumerate(examples):
        if not isinstance(e, torch.Tensor) or e.device.type != "cpu" or e.dtype not in GRAPH_FLOATS:
            tensor = isinstance(e, torch.Tensor)
            got = f"examples[{at}] as " + (f"{e.dtype} on {e.device}" if tensor else shown(e))
            hint = "Pass one of that dtype with values, on the CPU." if tensor else "Close over what is no tensor."
            raise DTypeError("FT4", "float32 or float64 tensors on the CPU", got, hint, who=who)
    for name, part in module.named_modules():
        if part.training and (not train or (isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0)):
            path = f"{name} ({type(part).__name__})" if name else type(part).__name__
            hint = "Call module.eval() first, or pass train=True for the statistics of the batch."
            hint = hint if not train else "A graph draws no random numbers: call .eval() on it."
            raise ArgumentError("FT1", "a module in eval mode", f"{path} in train mode", hint, who=who)


class Reader:
    """One walk over the nodes."""

    def __init__(self, exported: Exported, inputs: bool) -> None:
        self.exported, self.inputs = exported, inputs
        self.graph = Graph()
        self.graph.lines = False
        self.values: dict[Any, Any] = {}

    def read(self) -> Graph:
        """The graph."""
        program = self.exported.program
        specs = {s.arg.name: s for s in program.graph_signature.input_specs}
        placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
        # The module's own inputs come first, whatever order torch has them in.
        for node in sorted(placeholders, key=lambda n: specs[n.name].target is not None):
            self.values[node] = self.placeholder(node, specs[node.name])
        needed = self.needed()
        for node in program.graph.nodes:
            if node.op == "call_function":
                self.values[node] = self.call(node) if node in needed else Unavailable("what no result needs")
            elif node.op == "output":
                self.output(node)
            elif node.op != "placeholder":
                raise self.refusal(node, node.op, "a call of an operator", "a node of another kind", HINT)
        return self.graph

    def needed(self) -> set[Any]:
        """The nodes that results are made of; changes of buffers are not among them, `output` says what they are."""
        *_, last = self.exported.program.graph.nodes
        kinds = [str(s.kind) for s in self.exported.program.graph_signature.output_specs]
        waiting = [n for n, kind in zip(last.args[0], kinds, strict=True) if kind.endswith("USER_OUTPUT")]
        found: set[Any] = set()
        while waiting:
            node = waiting.pop()
            if isinstance(node, torch.fx.Node) and node not in found:
                found.add(node)
                waiting += node.all_input_nodes
        return found

    def placeholder(self, node: Any, spec: Any) -> Any:
        if spec.target is None:
            value = node.meta["val"]
            return self.input(value, spec.arg.name)
        weight = self.exported.weight(spec)
        if not node.users or weight.dtype not in GRAPH_FLOATS:
            if node.users and weight.dtype.is_floating_point:
                got = f"{spec.target} of dtype {weight.dtype}"
                raise DTypeError(
                    "FT4", "float32 or float64 weights", got, "Call module.float() first.", who="from_torch"
                )
            return Unavailable(f"{spec.target}, which is of dtype {weight.dtype}")
        if self.inputs:
            return self.input(weight, spec.target)
        return array_of(weight)

    def input(self, value: torch.Tensor, target: str) -> Var:
        """An input like a tensor, by its name as an identifier."""
        plain = re.sub(r"\W", "_", target)
        name = self.graph.unused(plain if plain.isidentifier() else f"x_{plain}")
        return self.graph.input(tuple(map(int, value.shape)), str(value.dtype).removeprefix("torch."), name)

    def call(self, node: Any) -> Any:
        """One node: what its operator means, on the values that it reads."""
        target = node.target
        self.graph.label = label_of(node)
        args, kwargs = (torch.fx.node.map_arg(a, self.values.__getitem__) for a in (node.args, node.kwargs))
        if target is operator.getitem:
            return args[0][args[1]]
        spoken = str(target)
        if spoken == "aten.as_strided.default" and has_cells_of(node.meta["val"], node.args[0].meta["val"]):
            return args[0]
        for a in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(a, Unavailable):
                raise self.refusal(node, spoken, "results that lunette computes", a.what, HINT)
        try:
            if getattr(target, "namespace", "") == "lunette":
                return own_operator(target, args)
            meaning = TABLE.get(spoken.removeprefix("aten.")) if spoken.startswith("aten.") else None
            if meaning is None:
                raise ArgumentError("FT2", "an operator that lunette has", spoken, HINT)
            return meaning(*args, **kwargs)
        except LunetteError as error:
            raise self.refusal(node, spoken, error.need, error.got, error.hint, error.rule) from error
        except TypeError as error:  # an argument that the entry does not have
            raise self.refusal(node, spoken, "arguments that lunette has", shown(str(error)), HINT) from error

    def output(self, node: Any) -> None:
        kinds = [str(s.kind) for s in self.exported.program.graph_signature.output_specs]
        for value, kind, source in zip(
            torch.fx.node.map_arg(node.args[0], self.values.__getitem__), kinds, node.args[0], strict=True
        ):
            if not kind.endswith("USER_OUTPUT"):
                if self.exported.train:  # running statistics
                    continue
                raise self.refusal(node, kind, "a module without side effects", f"a change of {source}", HINT)
            if isinstance(value, Unavailable) or not hasattr(value, "dtype"):
                got = value.what if isinstance(value, Unavailable) else shown(value)
                raise self.refusal(node, "output", "tensors as results", got, HINT, "FT4")
            self.graph.output(value if isinstance(value, Var) else self.graph.constant(value))

    def refusal(self, node: Any, spoken: str, need: str, got: str, hint: str, rule: str = "FT3") -> ArgumentError:
        """The node, the operator, the attribute and what to do."""
        return ArgumentError(rule, need, f"{got} at node {label_of(node)} ({spoken})", hint, who="from_torch")


def shorten_signs(graph: torch.fx.Graph) -> None:
    """sign(x) * relu(|x|), which torch's Lp pools are written with, is x."""
    aten = torch.ops.aten

    def inner(node: Any, *targets: Any) -> Any:
        for target in targets:
            if not isinstance(node, torch.fx.Node) or node.target is not target:
                return None
            node = node.args[0]
        return node

    for node in graph.nodes:
        if node.target is aten.mul.Tensor:
            x = inner(node.args[0], aten.sign.default)
            if x is not None and x is inner(node.args[1], aten.relu.default, aten.abs.default):
                node.replace_all_uses_with(x)


def label_of(node: Any) -> str:
    """The module that a node belongs to and its own name: `layer1.0.conv1/convolution`."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return f"{path}/{node.name}" if path else str(node.name)


def has_cells_of(t: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a tensor is another one, but for the strides of axes that have one cell."""
    steps = [[s for s, n in zip(v.stride(), v.shape, strict=True) if n != 1] for v in (t, source)]
    return t.shape == source.shape and steps[0] == steps[1] and t.storage_offset() == source.storage_offset()


def own_operator(target: Any, args: Any) -> Any:
    """One of lunette's operators of torch."""
    name = target.name().partition("::")[2]
    found = next(o for o in OPERATORS.values() if o.name == name)
    *tensors, text = args
    setting = setting_of(found.kind, text)
    if setting.arithmetic != "fast":
        need, hint = 'arithmetic="fast" inside of a graph', "One arithmetic serves a program: program.run."
        raise ArgumentError("FT3", need, f"arithmetic={setting.arithmetic!r}", hint)
    y = apply(found.kind, tensors, "fast", *setting.options)
    return (y, Unavailable("indices of a max pool")) if found.indices else y
