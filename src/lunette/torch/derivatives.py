"""Autograd rules of the operators, made of their own JVPs and VJPs.

The rooms of lunette say how an operator's derivatives are made of operators (`Op.push`, `Op.pull`), on values of any
kind. Here the values are tensors: window operators among them are operators of torch again, what is between them
(sums, products) is torch's own. So the derivative of a derivative is one that torch can differentiate once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

import lunette.array
from lunette.array import FLOAT, FORGETTING, key_of
from lunette.array.resolved import RESOLVED
from lunette.errors import LunetteError
from lunette.graph.value import Value
from lunette.op import Op, apply
from lunette.ops import MaxPool
from lunette.ops.binary import Add, Div, Equal, Gate, Mul, Sub
from lunette.ops.broadcast import BroadcastTo, Sum
from lunette.ops.derivative import Derivative, Differentiable, jvp_of, vjp_of
from lunette.ops.layout import Reshape
from lunette.ops.power import Power
from lunette.ops.unary import Abs, Neg
from lunette.torch import layout
from lunette.torch.operators import (
    OPERATORS,
    Operator,
    Setting,
    is_transformed,
    is_watched,
    needs_gradient,
    setting_of,
    text_of,
)
from lunette.torch.tensors import array_of, dtype_of, tensor_of
from lunette.window import Shape

BETWEEN: Final[Mapping[type[Op], Callable[..., torch.Tensor]]] = {
    Add: torch.add,
    Sub: torch.sub,
    Mul: torch.mul,
    Div: torch.div,
    Equal: lambda x, y: torch.eq(x, y).to(x.dtype),
    Gate: lambda x, t: torch.where(x > 0, torch.as_tensor(t, dtype=x.dtype), 0),
    Neg: torch.neg,
    Abs: torch.abs,
    Power: lambda x, exponent: x**exponent,
    Reshape: lambda x, shape: x.reshape(shape),
    BroadcastTo: lambda x, shape: x.expand(shape),
    Sum: lambda x, axis, keepdims: x.sum(axis, keepdims),
}
"""What rules of derivatives use beside window operators."""


class Operand(Value):
    """A tensor inside of a rule of derivatives; operators on it compute in the arithmetic of the value."""

    __slots__ = ("arithmetic", "value")
    level = 0

    def __init__(self, value: torch.Tensor, arithmetic: str) -> None:
        self.value, self.arithmetic = value, arithmetic

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The shape of the tensor."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensor."""
        return self.value.dtype

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        values = [o.value if type(o) is Operand else o for o in operands]
        if kind in BETWEEN:
            return Operand(BETWEEN[kind](*values, *options), self.arithmetic)
        return Operand(OPERATORS[kind, False](*values, text_of(kind, options, self.arithmetic)), self.arithmetic)


def _operands(values: Sequence[torch.Tensor | None], arithmetic: str) -> tuple[Operand | None, ...]:
    return tuple([None if v is None else Operand(v, arithmetic) for v in values])


def _value(result: Any) -> Any:
    return result.value if type(result) is Operand else result


@lru_cache
def is_read(kind: type[Differentiable], at: int, wrt: int) -> bool:
    """Whether the VJP in array number `wrt` reads the values of array number `at`, not only its shape."""
    return vjp_of(kind, wrt).reads(at)


@dataclass(frozen=True)
class Winners:
    """The value of a max pool, and the record of its winners: where they are is not looked for twice."""

    y: torch.Tensor
    recorder: Any
    numbers: Any
    last: bool
    """Whether the tensors are channels-last."""

    def back(self, g: torch.Tensor) -> torch.Tensor:
        """The gradient in x."""
        if self.last:
            return layout.back(tensor_of(self.recorder.vjp(self.numbers, array_of(layout.laid(g)))))
        return tensor_of(self.recorder.vjp(self.numbers, array_of(g)))


def winners(operator: Operator, arguments: Sequence[Any]) -> Winners | None:
    """Of a max pool that keeps them, where that is faster than looking for them again."""
    kind = operator.kind
    if _recorder_of is None or operator.indices or not issubclass(kind, MaxPool) or is_watched():
        return None
    t, text = arguments
    key = kind, t.shape, t.dtype, text
    recorder = _RECORDERS.get(key)
    if recorder is not None and t.is_contiguous():
        y, numbers = recorder.forward(array_of(t))
        return Winners(tensor_of(y), recorder, numbers, False)
    setting = setting_of(kind, text)
    inner = layout.along_channels(kind, (t,), setting.options)
    last = inner is not None
    x = array_of(layout.laid(t) if last else t)
    options = setting.options if inner is None else inner
    try:
        recorder = _recorder_of(kind, x.shape, x.dtype, options) if setting.arithmetic == "fast" else None
    except LunetteError:  # the pool as the user has it says what is wrong
        return None
    if recorder is None:
        return None
    if not last:
        _keep(_RECORDERS, key, recorder)
    y, numbers = recorder.forward(x)
    return Winners(layout.back(tensor_of(y)) if last else tensor_of(y), recorder, numbers, last)


_differentiated = torch.is_grad_enabled
_recorder_of: Any = getattr(lunette.array, "recorder_of", None)
_RECORDERS: dict[Any, Any] = {}
"""Of dense tensors, by kind, shape, dtype and options."""
FORGETTING.append(_RECORDERS.clear)


def function_of(operator: Operator) -> Any:
    """The node that an operator leaves in the graph of autograd."""
    kind = operator.kind
    base: type[Differentiable] | None = None if issubclass(kind, Derivative) else kind  # type: ignore[assignment]

    def forward(ctx: Any, *arguments: Any) -> Any:
        *tensors, ctx.text = arguments
        ctx.winners = recorded = winners(operator, arguments) if ctx.needs_input_grad[0] else None
        y = _below(operator, arguments) if recorded is None else recorded.y
        ctx.set_materialize_grads(False)
        ctx.save_for_forward(*tensors)
        kept = list(tensors)
        ctx.shapes = [None] * len(kept)
        if base is not None:
            asked = [wrt for wrt in range(len(kept)) if ctx.needs_input_grad[wrt]]
            for at, t in enumerate(tensors):
                if t is not None and not any(is_read(base, at, wrt) for wrt in asked):
                    kept[at], ctx.shapes[at] = None, t.shape
        ctx.save_for_backward(*kept)
        if operator.indices:
            ctx.mark_non_differentiable(y[1])
        return y

    def backward(ctx: Any, g: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        recorded = ctx.winners
        if recorded is not None and not _differentiated() and not is_transformed():
            return recorded.back(g), None
        if base is not None and not _differentiated() and not is_watched():
            key = ctx.shapes[0], g.dtype, ctx.text
            known = kernels.get(key)
            if known is not None and g.is_contiguous():
                return known.back(g), None
            setting = setting_of(kind, ctx.text)
            if len(base.arrays) == 1 and not is_read(base, 0, 0):
                _keep(kernels, key, Straight.of(base, setting, ctx.shapes[0], g))
            return _straight(base, setting, ctx, g)
        setting = setting_of(kind, ctx.text)
        # What is not read is there by its shape alone.
        primals = [
            t if s is None else torch.empty((), dtype=g.dtype, device=g.device).expand(s)
            for t, s in zip(ctx.saved_tensors, ctx.shapes, strict=True)
        ]
        at, cotangent = _operands(primals, setting.arithmetic), Operand(g, setting.arithmetic)
        return tuple(
            _value(kind.pull(setting.options, at, None, cotangent, wrt)) if needed else None
            for wrt, needed in enumerate(ctx.needs_input_grad)
        )

    def jvp(ctx: Any, *given: Any) -> Any:
        *tangents, _ = given
        setting = setting_of(kind, ctx.text)
        at, moved = (_operands(v, setting.arithmetic) for v in (ctx.saved_tensors, tangents))
        if base is not None:
            t = apply(jvp_of(base), (*at, *moved), "fast", *setting.options)
        else:
            t = kind.push(setting.options, at, None, moved)
        slope = _value(t)
        if slope is None:  # it does not change: the derivative of what selects
            slope = ctx.saved_tensors[0].new_zeros(operator.shape(ctx.saved_tensors, ctx.text))
        return (slope, None) if operator.indices else slope

    kernels: dict[Any, Straight] = {}
    FORGETTING.append(kernels.clear)
    rules = (forward, backward, jvp)
    return type(kind.__name__, (_SingleLevelFunction,), {r.__name__: staticmethod(r) for r in rules})


@dataclass(frozen=True)
class Straight:
    """The VJP of a pool that does not read x, of one shape: its kernel."""

    kernel: Callable[..., None]
    shape: Shape
    dtype: Any

    @staticmethod
    def of(kind: type[Differentiable], setting: Setting, shape: Shape, g: torch.Tensor) -> Straight | None:
        """None where there is more to do than to call a kernel."""
        dtype = dtype_of(g)
        found = RESOLVED.get(key_of(vjp_of(kind, 0), ((shape, dtype), (g.shape, dtype)), "fast", setting.options))
        if found is None or dtype not in FLOAT or setting.arithmetic != "fast" or found.kernels.forward is None:
            return None
        return Straight(found.kernels.forward, shape, dtype)

    def back(self, g: torch.Tensor) -> torch.Tensor:
        """The gradient in x, for a dense g."""
        dx = np.empty(self.shape, self.dtype)
        self.kernel(None, array_of(g), dx)
        return tensor_of(dx)


def _keep(known: dict[Any, Any], key: Any, made: Any) -> None:
    if made is not None:
        if len(known) >= 1024:
            known.clear()
        known[key] = made


def _straight(kind: type[Differentiable], setting: Setting, ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
    """What an operator's VJPs are where nobody differentiates them once more: their kernels, and nothing between."""
    primals = [t if s is None else s for t, s in zip(ctx.saved_tensors, ctx.shapes, strict=True)]
    return tuple(
        layout.compute(vjp_of(kind, wrt), (*primals, g), setting.arithmetic, setting.options) if needed else None
        for wrt, needed in enumerate(ctx.needs_input_grad)
    )


def _below(operator: Operator, arguments: tuple[Any, ...]) -> Any:
    """The operator without the gradient of this level."""
    if not is_watched():
        return operator.compute(*arguments)
    if not torch._C._are_functorch_transforms_active():
        with torch._C._AutoDispatchBelowAutograd():
            return operator.handle(*arguments)
    # A function turns gradients off while it computes; the levels below of torch.func have their own.
    with torch.enable_grad(), _set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
        return operator.handle(*arguments)


def rule_of(operator: Operator, node: Callable[..., Any]) -> Callable[..., Any]:
    """What torch's dispatcher does where gradients may be asked for: the operator with a node of that function."""

    def derive(*arguments: Any) -> Any:
        if not torch._C._are_functorch_transforms_active():
            return node(*arguments) if needs_gradient(arguments) else _below(operator, arguments)
        # This is the level of torch.func that torch is at, as for its own operators.
        before = torch._C._functorch.get_single_level_autograd_function_allowed()
        torch._C._functorch.set_single_level_autograd_function_allowed(True)
        try:
            return node(*arguments)
        finally:
            torch._C._functorch.set_single_level_autograd_function_allowed(before)

    return derive
