"""The operators as modules, with torch's habits. Options are those of the functions, with their names and defaults.

| rule | says                                                                                    |
|------|-----------------------------------------------------------------------------------------|
| TB3  | a convolution knows its number of axes: kernel is a tuple, or spatial says it           |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, ClassVar

import torch
from torch import nn

from lunette import ops
from lunette.errors import ShapeError, misfit, shown
from lunette.op import parameters_of
from lunette.torch.functions import on_tensors
from lunette.window import is_sequence, per_axis


class Layer(nn.Module):
    """A function of lunette and its options, which are in `options` and attributes as well."""

    kind: ClassVar[type[ops.Windowed]]
    function: ClassVar[Callable[..., Any]]
    given: ClassVar[tuple[str, ...]] = ()
    """Arrays of the operator that are arguments of the module."""
    parameters_of_layer: ClassVar[dict[str, Parameter]]

    def __init_subclass__(cls, kind: type[ops.Windowed] | None = None) -> None:
        if kind is None:
            return
        function = ops.ALL[kind]
        cls.kind, cls.function = kind, staticmethod(on_tensors(kind))
        names = [n for n in parameters_of(function) if n not in kind.arrays or n in cls.given]
        cls.parameters_of_layer = {n: parameters_of(function)[n] for n in names}
        if "__init__" not in vars(cls):
            cls.__signature__ = Signature(list(cls.parameters_of_layer.values()))  # type: ignore[attr-defined]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        signature = Signature(list(self.parameters_of_layer.values()))
        try:
            told = signature.bind(*arguments, **options)
        except TypeError:
            raise misfit(type(self).__name__, signature, arguments, options) from None
        told.apply_defaults()
        self.options = dict(told.arguments)

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("options", {})
        return options[name] if name in options else super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> Any:
        """The operator on x."""
        return self.function(x, **self.options)

    def extra_repr(self) -> str:
        """The options that are not as they are by default."""
        return ", ".join(self._said())

    def _said(self) -> list[str]:
        known = self.parameters_of_layer
        return [f"{n}={v!r}" for n, v in self.options.items() if repr(v) != repr(known[n].default)]


class MaxPool(Layer, kind=ops.MaxPool):
    """`lt.max_pool` as a module: the greatest cell of every window."""


class AvgPool(Layer, kind=ops.AvgPool):
    """`lt.avg_pool` as a module: the average of every window."""


class LpPool(Layer, kind=ops.LpPool):
    """`lt.lp_pool` as a module: the p-norm of every window."""


class AdaptiveAvgPool(Layer, kind=ops.AdaptiveAvgPool):
    """`lt.adaptive_avg_pool` as a module: averages of as many bins as are asked for."""


class AdaptiveMaxPool(Layer, kind=ops.AdaptiveMaxPool):
    """`lt.adaptive_max_pool` as a module: the greatest cells of as many bins as are asked for."""


class GlobalAvgPool(Layer, kind=ops.GlobalAvgPool):
    """`lt.global_avg_pool` as a module: the average of every channel."""


class GlobalMaxPool(Layer, kind=ops.GlobalMaxPool):
    """`lt.global_max_pool` as a module: the greatest cell of every channel."""


class SmoothMaxPool(Layer, kind=ops.SmoothMaxPool):
    """`lt.smooth_max_pool` as a module; with `learn_beta` its beta is a parameter."""

    given = ("beta",)

    def __init__(self, *arguments: Any, learn_beta: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.learn_beta = learn_beta
        if learn_beta:
            self.beta = nn.Parameter(torch.tensor(float(self.options.pop("beta"))))

    def forward(self, x: torch.Tensor) -> Any:
        """The operator on x."""
        return self.function(x, **self.options, **({"beta": self.beta} if self.learn_beta else {}))

    def extra_repr(self) -> str:
        """The options that are not as they are by default, and beta as it is now."""
        learnt = [f"beta={float(self.beta.detach()):.6g}", "learn_beta=True"] if self.learn_beta else []
        return ", ".join([*self._said(), *learnt])


class _Convolution(Layer):
    """Weights and bias have torch's names, shapes and beginnings, so that its state_dicts fit."""

    transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | Sequence[int],
        *,
        bias: bool = True,
        spatial: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if spatial is None and not is_sequence(kernel):
            need, hint = "kernel as a tuple, or spatial=", "It says how many axes are space."
            raise ShapeError("TB3", need, f"kernel={shown(kernel)}", hint, who=type(self).__name__)
        d = len(kernel) if is_sequence(kernel) else spatial  # type: ignore[arg-type]
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel = per_axis("kernel", kernel, d or 0)
        ends = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (ends[0], ends[1] // self.options["groups"], *self.kernel)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch draws them: uniform, within 1/sqrt(terms of an output)."""
        bound = 1 / math.sqrt(max(math.prod(self.weight.shape[1:]), 1))
        for p in (self.weight, self.bias):
            if p is not None:
                nn.init.uniform_(p, -bound, bound)

    def forward(self, x: torch.Tensor) -> Any:
        """The convolution of x with the weights."""
        return self.function(x, self.weight, self.bias, **self.options)

    def extra_repr(self) -> str:
        """Channels, kernel, and the options that are not as they are by default."""
        own = [str(self.in_channels), str(self.out_channels), f"kernel={self.kernel}"]
        return ", ".join([*own, *self._said(), *([] if self.bias is not None else ["bias=False"])])


class Conv(_Convolution, kind=ops.Conv):
    """`lt.conv` as a module: `Conv(in_channels, out_channels, kernel, *, stride=1, padding=0, ..., bias=True)`."""


class ConvTranspose(_Convolution, kind=ops.ConvTranspose):
    """`lt.conv_transpose` as a module: `ConvTranspose(in_channels, out_channels, kernel, *, stride=1, ...)`."""

    transposed = True
