"""Torch's own pooling modules in a model, exchanged for lunette's where the meaning is equal.

What a module means is what the dialect of torch says of its arguments (lunette.dialects.torch), tried on inputs of
every small size: where lunette reads other cells, divides by other numbers or refuses what torch computes, the module
stays.

| rule | says                                                                                    |
|------|-----------------------------------------------------------------------------------------|
| TB6  | a model is a module of torch, and `only` names modules of it                            |
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import nn

from lunette.array import lookup
from lunette.dialects import Meaning, dialect
from lunette.errors import ArgumentError, DTypeError, LunetteError, meant, shown
from lunette.torch import modules
from lunette.window import per_axis

FAMILIES: Final[Mapping[str, tuple[type[modules.Layer], str, tuple[str, ...]]]] = {
    "MaxPool": (
        modules.MaxPool,
        "max_pool",
        ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    ),
    "AvgPool": (
        modules.AvgPool,
        "avg_pool",
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    "LPPool": (modules.LpPool, "lp_pool", ("norm_type", "kernel_size", "stride", "ceil_mode")),
    "AdaptiveAvgPool": (modules.AdaptiveAvgPool, "adaptive_avg_pool", ("output_size",)),
    "AdaptiveMaxPool": (modules.AdaptiveMaxPool, "adaptive_max_pool", ("output_size", "return_indices")),
}
"""Torch's classes, without their number of axes: ours, the operator, and the attributes that are arguments."""

KINDS: Final = {getattr(nn, f"{name}{d}d"): (name, d) for name in FAMILIES for d in (1, 2, 3)}
LARGEST: Final = 9
"""Inputs of up to so many cells along every axis are tried."""


class Replaced(list[str]):
    """The names of the modules that were exchanged; `kept` has those that were not, each with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, str] = {}

    def __repr__(self) -> str:
        return super().__repr__() + (f" ({len(self.kept)} kept: see .kept)" if self.kept else "")


def replace(model: nn.Module, only: Callable[[str, nn.Module], bool] | Sequence[str] | None = None) -> Replaced:
    """Exchange torch's pooling modules inside of `model` for lunette's, in place, where the meaning is equal.

    `only` is a list of names, or a function of name and module that says whether to. The result is the list of the
    names that were exchanged; its `.kept` says of every other pooling module, and of functions like `F.max_pool2d`
    that a forward calls, why they stay.
    """
    check_model(model, only)
    done = Replaced()
    chosen = _chooser(only)
    made: dict[int, nn.Module | str] = {}
    for parent, owner in list(model.named_modules()):
        for child, module in list(owner._modules.items()):
            if module is None or not _is_pooling(module):
                continue
            name = f"{parent}.{child}" if parent else child
            if not chosen(name, module):
                done.kept[name] = "not among those that were asked for"
                continue
            if id(module) not in made:
                made[id(module)] = exchanged(module)
            new = made[id(module)]
            if isinstance(new, str):
                done.kept[name] = new
            else:
                setattr(owner, child, new.train(module.training))
                done.append(name)
    if _is_pooling(model):
        new = exchanged(model)
        alone = f"it is the model itself, and no module holds it: use lt.{new} in its place"
        done.kept[""] = new if isinstance(new, str) else alone
    for name, module in model.named_modules():
        for call in sorted(functional_calls(module)):
            where = f"{name}.forward" if name else "forward"
            done.kept[f"{where}: {call}"] = f"a function that the forward calls: write lt.{_ours(call)} there"
    return done


def check_model(model: Any, only: Any) -> None:
    """Rule TB6."""
    if not isinstance(model, nn.Module):
        got, hint = f"{shown(model)} of type {type(model).__name__}", "Functions are exchanged by hand: lt.max_pool."
        raise DTypeError("TB6", "a torch.nn.Module", got, hint, who="replace")
    if only is None or callable(only):
        return
    known = [name for name, _ in model.named_modules()]
    for name in [only] if isinstance(only, str) else only:
        if name not in known:
            hint = meant(name, known, "model.named_modules() has the names.")
            raise ArgumentError("TB6", "only names of modules", shown(name), hint, who="replace")


def _chooser(only: Any) -> Callable[[str, nn.Module], bool]:
    if only is None:
        return lambda name, module: True
    if callable(only):
        return only  # type: ignore[no-any-return]
    wanted = set([only] if isinstance(only, str) else only)
    return lambda name, module: name in wanted


def _is_pooling(module: nn.Module) -> bool:
    return isinstance(module, (*KINDS, *_OTHERS)) and not isinstance(module, modules.Layer)


_OTHERS = tuple(
    c for c in vars(nn.modules.pooling).values() if inspect.isclass(c) and c.__module__ == nn.modules.pooling.__name__
)


def exchanged(module: nn.Module) -> nn.Module | str:
    """Our module, or the reason why there is none."""
    if type(module) not in KINDS:
        return f"{type(module).__name__} is no module that lunette has"
    if any(getattr(module, hooks, None) for hooks in _HOOKS):
        return "it has hooks, which would be lost"
    name, d = KINDS[type(module)]
    ours, op, attributes = FAMILIES[name]
    arguments = {a: getattr(module, a) for a in attributes if hasattr(module, a)}
    if arguments.get("divisor_override", 0) is None:
        del arguments["divisor_override"]
    if arguments.pop("return_indices", False):
        return "return_indices: among several NaN torch's index is that of the last, lunette's of the first"
    if lookup(op)[1].powers and arguments["ceil_mode"] and arguments["norm_type"] != math.inf:
        return "in ceil_mode torch scales the mean of a window that is cut off by the cells of a whole one"
    try:
        options = _options(op, d, arguments)
    except LunetteError as error:
        return str(error)
    return options if isinstance(options, str) else ours(**options)


_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _options(op: str, d: int, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    """Lunette's options, if they mean the same for every size of input that torch takes."""
    torch_words, found, refusal = dialect("torch"), None, ""
    for n in range(1, _largest(arguments, d) + 1):
        shape = (1, 1, *(n,) * d)
        try:
            meaning: Meaning = torch_words.meaning(op, [shape], arguments)
        except LunetteError as error:  # torch refuses it, too
            refusal = refusal or str(error)
            continue
        difference = meaning.in_lunette()
        if meaning.departures:
            return f"torch's {op} {meaning.departures[0]}"
        if lookup(op)[1].selects and meaning.has_empty_windows:
            return f"windows without input cells, for one on inputs of {n}: torch gives -inf there, lunette refuses"
        if difference is not None:
            return f"another {difference} on inputs of {n}"
        found = torch_words.heard(op, [shape], arguments, d).options
    if found is None:
        return f"torch refuses it: {refusal}"
    told = dict(found)
    for key in ("kernel", "output_size"):
        if key in told and told[key] is not None and not isinstance(told[key], tuple):
            told[key] = per_axis(key, told[key], d)
    return told


def _largest(arguments: Mapping[str, Any], d: int) -> int:
    """A size that has a window after the first."""
    kernel, dilation, stride = (per_axis(k, arguments.get(k) or 1, d) for k in ("kernel_size", "dilation", "stride"))
    spans = [(k - 1) * dil + 1 + 2 * s for k, dil, s in zip(kernel, dilation, stride, strict=True)]
    return max(LARGEST, *spans)


# ---- functions that a forward calls


_POOLING = ("max_pool", "avg_pool", "lp_pool", "fractional")


def _functions() -> dict[int, str]:
    found = {}
    for where, prefix in ((nn.functional, "F"), (torch, "torch")):
        for name in dir(where):
            f = getattr(where, name)
            if callable(f) and not inspect.isclass(f) and not name.startswith("_") and any(p in name for p in _POOLING):
                found[id(f)] = f"{prefix}.{name}"
    return found


_FUNCTIONS = _functions()


@dataclass(frozen=True)
class _Place:
    """A function to look into, and the object its first argument is."""

    function: FunctionType
    owner: Any


def functional_calls(module: nn.Module) -> set[str]:
    """Pooling functions of torch that a module's forward calls, itself or by functions of its own."""
    if type(module).__module__.split(".")[0] == "torch":
        return set()
    found: set[str] = set()
    forward = getattr(type(module), "forward", None)
    waiting = [_Place(forward, module)] if isinstance(forward, FunctionType) else []
    seen: set[Any] = set()
    while waiting:
        place = waiting.pop()
        if place.function.__code__ in seen:
            continue
        seen.add(place.function.__code__)
        for target in _called(place):
            if id(target) in _FUNCTIONS:
                found.add(_FUNCTIONS[id(target)])
            elif isinstance(target, MethodType) and isinstance(target.__func__, FunctionType):
                waiting.append(_Place(target.__func__, target.__self__))
            elif isinstance(target, FunctionType) and target.__module__.split(".")[0] not in ("torch", "lunette"):
                waiting.append(_Place(target, None))
    return found


def _called(place: _Place) -> Iterator[Any]:
    """What a function calls, as far as its source names it."""
    f = place.function
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(f)))
    except (OSError, TypeError, SyntaxError):
        yield from _named_in_code(f)
        return
    closure = dict(zip(f.__code__.co_freevars, (c.cell_contents for c in f.__closure__ or ()), strict=False))
    known = {**f.__globals__, **closure}
    if place.owner is not None and f.__code__.co_varnames:
        known[f.__code__.co_varnames[0]] = place.owner
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            target = _resolved(node, known)
            if callable(target) and not isinstance(target, nn.Module):
                yield target


def _resolved(node: ast.AST, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        inner = _resolved(node.value, known)
        try:
            return None if inner is None else getattr(inner, node.attr, None)
        except Exception:  # a property of the user's
            return None
    return None


def _named_in_code(f: FunctionType) -> Iterator[Any]:
    """Without a source: every pooling function whose name is in the code."""
    for name in f.__code__.co_names:
        if any(p in name for p in _POOLING) and hasattr(nn.functional, name):
            yield getattr(nn.functional, name)


def _ours(call: str) -> str:
    """Lunette's name of one of torch's functions."""
    name = call.partition(".")[2].removesuffix("_with_indices").rstrip("d").rstrip("123")
    return {"fractional_max_pool": "max_pool"}.get(name, name)
