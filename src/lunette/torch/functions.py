"""The public functions: those of lunette, on tensors.

Each is lunette's own function, called with a stand-in for x that gets the request back (lunette.op): names, defaults
and the order of options are written once.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from lunette.array import FLOAT, FORGETTING, is_plain, key_of, plain_options, resolved_before
from lunette.errors import LunetteError
from lunette.graph.text import options_of
from lunette.op import Op, ResolvedOp, resolve
from lunette.ops import ALL, Windowed
from lunette.torch.batches import batch_rule
from lunette.torch.derivatives import function_of, rule_of
from lunette.torch.layout import compute
from lunette.torch.nodes import connected, node_of
from lunette.torch.operators import OPERATORS, Operator, is_watched, register, text_of
from lunette.torch.tensors import FLOATS, array_of, check_arithmetic, check_tensor, tensor_of
from lunette.window import Shape

for _operator in OPERATORS.values():
    _apply = function_of(_operator).apply
    register(_operator, node_of(_operator, _apply), rule_of(_operator, _apply), batch_rule(_operator))
connected()  # kernels run on torch's threads from now on, not from the first gradient on


class Carried:
    """Stands in for x: what the function was asked for is done with tensors."""

    __slots__ = ("options", "told", "x")
    level = 0

    def __init__(self, x: Any) -> None:
        self.x = x
        self.options: tuple[Any, ...] = ()
        self.told: Call | None = None

    @property
    def shape(self) -> Any:
        """That of x, for refusals."""
        return self.x.shape

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        tensors = [self.x, *operands[1:]]
        if is_value(tensors) and isinstance(self.x, _Tensor) and not is_watched():
            if arithmetic == "fast":
                self.options = options
            check_arithmetic(kind, arithmetic)
            return compute(kind, tensors, arithmetic, options)
        given, self.told = call_of(kind, tensors, arithmetic, options)
        operator, text = self.told
        return operator(*given, text)


_Tensor, _Parameter, _strided, _recorded = torch.Tensor, torch.nn.Parameter, torch.strided, torch.is_grad_enabled


def is_value(tensors: Sequence[Any]) -> bool:
    """Whether nothing but a value is asked for, of tensors as they should be: then options need not be written."""
    if forward_ad._current_level >= 0:
        return False
    for t in tensors:
        if is_ready(t):
            if t.requires_grad and _recorded():
                return False
        elif t is not None and type(t) is not float and type(t) is not int:
            return False
    return True


def is_ready(t: Any) -> bool:
    """Whether it is a tensor as they should be."""
    kind = type(t)
    return (kind is _Tensor or kind is _Parameter) and t.is_cpu and t.dtype in FLOATS and t.layout is _strided


Call = tuple[Operator, str]
"""An operator of torch, and its options as a text."""


def call_of(
    kind: type[Op], tensors: Sequence[Any], arithmetic: str, options: tuple[Any, ...]
) -> tuple[list[torch.Tensor | None], Call]:
    """The tensors, and the operator of torch that is called with them."""
    x = tensors[0]
    check_tensor(kind, x, kind.arrays[0])
    given = [x]
    for name, t in zip(kind.arrays[1:], tensors[1:], strict=True):
        if name in kind.scalars and not isinstance(t, torch.Tensor):
            t = x.new_full((), t)
        elif t is not None:
            check_tensor(kind, t, name)
        given.append(t)
    check_arithmetic(kind, arithmetic)
    ranks = tuple([None if t is None else t.ndim for t in given])
    told = told_of(kind, ranks, arithmetic, options)
    if told is None:  # the rules say why, of the shapes that there are
        resolve(kind, [None if t is None else tuple(t.shape) for t in given], 2, options)
    assert told is not None, options
    text, indices = told
    return given, (OPERATORS[kind, indices], text)


Told = tuple[str, bool] | None
_TOLD: dict[Any, Told] = {}


def told_of(kind: type[Op], ranks: tuple[int | None, ...], arithmetic: str, options: tuple[Any, ...]) -> Told:
    """The options as a text that holds for any number of batch axes, and whether indices are asked for.

    None if the rules of the operator say no.
    """
    if not all(map(is_plain, options)):
        return _told_of(kind, ranks, arithmetic, options)
    key = key_of(kind, ranks, arithmetic, options)
    told = _TOLD.get(key)
    if told is None:
        if len(_TOLD) >= 4096:
            _TOLD.clear()
        told = _TOLD[key] = _told_of(kind, ranks, arithmetic, options)
    return told


told_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
# torch.compiler.assume_constant_result says the same, and imports a compiler for seconds. The result is one of options.


def _told_of(kind: type[Op], ranks: tuple[int | None, ...], arithmetic: str, options: tuple[Any, ...]) -> Told:
    plain = plain_options(options)
    try:
        d = kind.rank([None if r is None else (1,) * r for r in ranks], 2, *plain)
    except LunetteError:
        return None
    full = plain if d is None else kind.told(d, plain)
    indices = dict(zip(options_of(kind), full, strict=True)).get("return_indices", False)
    return text_of(kind, full, arithmetic), indices is True


_Kernel = tuple[Callable[..., None], Shape, tuple[None, ...]]


def on_tensors(kind: type[Windowed]) -> Callable[..., Any]:
    """The function of an operator, on tensors."""
    function = ALL[kind]
    kernels: dict[Any, _Kernel] = {}
    calls: dict[Any, Call] = {}
    FORGETTING.extend((kernels.clear, calls.clear))
    alone = len(kind.arrays) == 1

    @wraps(function)
    def on(x: Any, *arguments: Any, **options: Any) -> Any:
        if not alone or is_watched() or not is_ready(x) or forward_ad._current_level >= 0:
            return function(Carried(x), *arguments, **options)
        # The short ways of what was computed before, of which nothing is left but the node of autograd, or the kernel.
        try:
            key = x.shape, x.dtype, marshal.dumps((arguments, options), 2)
        except ValueError:  # an option that is no plain value
            return function(Carried(x), *arguments, **options)
        if x.requires_grad and _recorded():
            call = calls.get(key)
            if call is not None:
                operator, text = call
                return operator.node(x, text)
            carried = Carried(x)
            result = function(carried, *arguments, **options)
            if carried.told is not None and all(map(is_plain, (*arguments, *options.values()))):
                calls[key] = carried.told
            return result
        known = kernels.get(key)
        array = array_of(x)
        flags = array.flags
        if known is not None and flags.c_contiguous and flags.aligned:
            kernel, out, no_index = known
            y = np.empty(out, array.dtype)
            kernel(array, y, *no_index)
            return tensor_of(y)
        carried = Carried(x)
        result = function(carried, *arguments, **options)
        found = resolved_before(kind, (array,), "fast", carried.options)
        if found is not None and all(map(is_plain, (*arguments, *options.values()))) and is_direct(found, array.dtype):
            assert found.kernels.forward is not None
            kernels[key] = found.kernels.forward, found.out, (None,) * found.op.has_indices
        return result

    return on


def is_direct(resolved: ResolvedOp, dtype: Any) -> bool:
    """Whether a kernel alone makes the result."""
    return dtype in FLOAT and resolved.kernels.forward is not None and not resolved.op.return_indices
