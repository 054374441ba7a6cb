"""Lunette's operators as operators of torch: `torch.ops.lunette.max_pool(x, "kernel=(2, 2)")`.

One table, made of `lunette.ops.ALL`: every operator, its JVP and its VJP in each array, and for those that have
indices a second form with two results. Options travel as one text, as graphs write them. Each operator has five rules:

    CPU         the kernel, on the memory of the tensors
    fake        the shape of the result; batch axes may be symbols, channels and space are numbers
    Autograd    `lunette.torch.derivatives`: JVP and VJP, which are operators of this table again
    vmap        `lunette.torch.batches`
    AutocastCPU convolutions in the dtype of autocast, what has logarithms and powers in float32

docs/adr/0019-torch-operators.md says why they are registered like this, and what a call costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from lunette.array import key_of
from lunette.graph.text import options_of, read_options, written_options
from lunette.op import Op, resolve
from lunette.ops import ALL, Conv, ConvTranspose, LpPool, SmoothMaxPool
from lunette.ops.derivative import Differentiable, Jvp, Vjp, jvp_of, vjp_of
from lunette.torch.layout import along_channels, back, compute, laid
from lunette.torch.tensors import FLOATS
from lunette.window import Shape

LIBRARY: Final[Any] = torch.library.Library("lunette", "DEF")  # type: ignore[no-untyped-call]
LOWER: Final = (Conv, ConvTranspose)
"""Under autocast these compute in its dtype, as torch's convolutions do."""
WIDER: Final = (SmoothMaxPool, LpPool)
"""And these in float32, as torch's logarithms and powers do."""


@dataclass(frozen=True)
class Setting:
    """The options of one call, in the order of the operator, and the arithmetic."""

    options: tuple[Any, ...]
    arithmetic: str


@lru_cache(maxsize=4096)
def setting_of(kind: type[Op], text: str) -> Setting:
    """What a text says; what it leaves out is as the operator has it by default."""
    told = read_options(text)
    arithmetic = told.pop("arithmetic", "fast")
    return Setting(tuple(told.pop(n, default) for n, default in options_of(kind).items()), arithmetic)


_TEXTS: dict[Any, str] = {}


def text_of(kind: type[Op], options: tuple[Any, ...], arithmetic: str) -> str:
    """The text of options, from which `return_indices` is left out: it is another operator."""
    key = key_of(kind, (), arithmetic, options)
    text = _TEXTS.get(key)
    if text is None:
        if len(_TEXTS) >= 4096:
            _TEXTS.clear()
        told = [o for o in written_options(kind, options) if not o.startswith("return_indices=")]
        text = _TEXTS[key] = ", ".join(told if arithmetic == "fast" else [*told, f"arithmetic={arithmetic!r}"])
    return text


class Operator:
    """One operator of torch."""

    handle: Any
    """What torch's dispatcher calls."""
    node: Callable[..., Any]
    """The operator with a node in the graph of autograd."""

    def __init__(self, kind: type[Op], indices: bool = False) -> None:
        self.kind, self.indices = kind, indices
        self.name = f"{kind.name}_with_indices" if indices else kind.name

    @property
    def schema(self) -> str:
        """The types of its arguments and results. A bias and tangents may be None."""
        arguments = []
        for name in self.kind.arrays:
            given = name.removeprefix("the ").replace(" ", "_")
            free = name == "b" or name.startswith("the tangent")
            arguments.append(f"Tensor{'?' * free} {given}")
        results = "(Tensor, Tensor)" if self.indices else "Tensor"
        return f"{self.name}({', '.join(arguments)}, str options) -> {results}"

    def __call__(self, *arguments: Any) -> Any:
        """The operator on tensors, by the shortest way: torch's dispatcher takes longer than a small pool."""
        if is_watched():
            return self.handle(*arguments)
        if needs_gradient(arguments):
            return self.node(*arguments)
        return self.compute(*arguments)

    # ---- rules

    def compute(self, *arguments: Any) -> Any:
        """The kernel, on the CPU."""
        *tensors, text = arguments
        setting = setting_of(self.kind, text)
        options = self.with_indices(setting.options) if self.indices else setting.options
        return compute(self.kind, tensors, setting.arithmetic, options)

    def with_indices(self, options: Sequence[Any]) -> tuple[Any, ...]:
        """The options, indices asked for."""
        return tuple(True if n == "return_indices" else o for n, o in zip(options_of(self.kind), options, strict=True))

    def shape(self, tensors: Sequence[torch.Tensor | None], text: str) -> Shape:
        """The shape of the result."""
        options = setting_of(self.kind, text).options
        return resolve(self.kind, self.sizes(tensors, options), 2, options).out

    def sizes(self, tensors: Sequence[torch.Tensor | None], options: Sequence[Any]) -> list[Shape | None]:
        """The shapes of the arrays; where sizes are symbols, those of batch axes stay so."""
        ranks = [None if t is None else (1,) * t.ndim for t in tensors]
        d = self.kind.rank(ranks, 2, *options) or 0
        shapes: list[Shape | None] = []
        for at, t in enumerate(tensors):
            lead = 0 if t is None or at not in self.kind.batched else max(t.ndim - d - 1, 0)
            shapes.append(None if t is None else (*t.shape[:lead], *map(int, t.shape[lead:])))
        return shapes

    def imagine(self, *arguments: Any) -> Any:
        """The fake result: shape and dtype."""
        *tensors, text = arguments
        out = self.shape(tensors, text)
        if along_channels(self.kind, tensors, setting_of(self.kind, text).options) is not None and not self.indices:
            return back(laid(tensors[0].new_empty(out)))
        y = tensors[0].new_empty(out)
        return (y, torch.empty_like(y, dtype=torch.int64)) if self.indices else y

    def autocast(self, lower: bool) -> Callable[..., Any]:
        """The operator on tensors of the dtype that autocast asks for; float64 stays, as in torch."""

        def cast(*arguments: Any) -> Any:
            dtype = torch.get_autocast_dtype("cpu") if lower else torch.float32
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
                return self.handle(
                    *(
                        a.to(dtype)
                        if isinstance(a, torch.Tensor) and a.dtype in FLOATS and a.dtype != torch.float64
                        else a
                        for a in arguments
                    )
                )

        return cast


_compiling, _traced = torch.compiler.is_compiling, torch._C._get_tracing_state
_transformed = torch._C._are_functorch_transforms_active
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_profiled = torch.autograd._profiler_enabled  # type: ignore[attr-defined]
_cast = torch.is_autocast_enabled
_included, _BATCHED = torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")


def is_watched() -> bool:
    """Whether something stands between a call and its kernel: a transformation, a mode, a recorder."""
    # The compiler, which reads this, is asked for first: it cannot read the others.
    return _compiling() or is_transformed() or _function_modes() > 0 or _cast("cpu") or _profiled()


def is_transformed() -> bool:
    """Whether tensors stand for others, or somebody writes down what is done with them.

    All that matters to a node of autograd on the way back: each question costs a microsecond or more in a step of
    training, where other work has taken its place in the caches.
    """
    return (
        _transformed()
        or _dispatch_modes() > 0
        or _traced() is not None
        or _included(_BATCHED)  # gradients in batches, is_grads_batched=True
    )


def needs_gradient(arguments: Sequence[Any]) -> bool:
    """Whether a derivative is asked for, in reverse or in forward mode."""
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)


def _every() -> list[Operator]:
    found = []
    for kind in ALL:
        assert issubclass(kind, Differentiable)
        derived = [jvp_of(kind), *(vjp_of(kind, wrt) for wrt in range(len(kind.arrays)))]
        found += [Operator(kind), *map(Operator, derived)]
        found += [Operator(kind, indices=True)] if "return_indices" in options_of(kind) else []
    return found


OPERATORS: Final = {(o.kind, o.indices): o for o in _every()}


def base_of(kind: type[Op]) -> type[Op]:
    """The operator whose derivative a kind is, or itself."""
    return kind.base if issubclass(kind, Jvp | Vjp) else kind


def register(
    operator: Operator, node: Callable[..., Any], derive: Callable[..., Any], batch: Callable[..., Any]
) -> None:
    """Tell torch all of it."""
    LIBRARY.define(operator.schema)
    operator.handle, operator.node = getattr(torch.ops.lunette, operator.name).default, node
    qualified = f"lunette::{operator.name}"
    LIBRARY.impl(operator.name, operator.compute, "CPU")
    torch.library.register_fake(qualified, operator.imagine, lib=LIBRARY)
    LIBRARY.impl(operator.name, derive, "Autograd")
    if hasattr(torch.library, "register_vmap"):
        torch.library.register_vmap(qualified, batch, lib=LIBRARY)
    else:
        LIBRARY.impl(operator.name, _batched(batch), "FuncTorchBatched", with_keyset=True)
    base = base_of(operator.kind)
    if base in LOWER or base in WIDER:
        LIBRARY.impl(operator.name, operator.autocast(base in LOWER), "AutocastCPU")


def _batched(rule: Callable[..., Any]) -> Callable[..., Any]:
    """What `torch.library.register_vmap` makes of a rule, for torch before 2.5, which does not have it."""
    from torch._functorch.autograd_function import VmapInfo
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
    from torch._functorch.vmap import unwrap_batched, wrap_batched

    def call(_keyset: Any, *operands: Any) -> Any:
        interpreter: Any = retrieve_current_functorch_interpreter()
        info = VmapInfo(batch_size=interpreter.batch_size(), randomness=interpreter.randomness())
        values, axes = unwrap_batched(operands, interpreter.level())
        with interpreter.lower():
            y, out = rule(info, axes, *values)
        return wrap_batched(y, out, interpreter.level())

    return call
