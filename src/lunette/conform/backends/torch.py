"""PyTorch on the CPU, eager and compiled: values, indices, forward-mode JVP and autograd VJP."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.conform.judge import WrongShape
from lunette.dialects import DIALECTS, Call
from lunette.number import Array

UNPADDED, UNDILATED = ("lp_pool",), ("avg_pool", "lp_pool")
LATE = ("torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp")
"""What torch imports with its first derivative, which takes longer than a thousand cases: once, before workers fork."""
FIRST = {"max_pool": ("first",), "adaptive_max_pool": ("first",), "global_max_pool": ("split",)}


class Torch(Backend):
    """`torch.nn.functional`, as it is."""

    name = "torch"
    module = "torch"
    extra = "torch"
    dialect = "torch"
    space = Space(
        ops=tuple(DIALECTS["torch"].functions),
        ranks=(1, 2, 3),
        ties=FIRST,
        symmetric=True,
        half_padded=True,
        unpadded=UNPADDED,
        undilated=UNDILATED,
        named_padding=False,
    )
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    switches: ClassVar[tuple[str, ...]] = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")

    def load(self) -> Any:
        torch = super().load()
        torch.set_num_threads(1)
        for name in LATE:
            with suppress(ImportError):  # of another version
                importlib.import_module(name)
        return torch

    def function(self, case: Case) -> Callable[..., Any]:
        """The operator of a case, on tensors."""
        torch = self.load()
        call = self.call(case)
        assert isinstance(call, Call), call
        arguments = dict(call.arguments)
        if call.function.startswith("Tensor."):
            method = call.function.removeprefix("Tensor.")
            return lambda x: getattr(x, method)(**arguments)
        named: Callable[..., Any] = getattr(torch.nn.functional, call.function)
        return lambda *tensors: named(*tensors, **arguments)

    def run(self, case: Case, data: Data) -> Any:
        torch = self.load()
        f = self.wrap(self.function(case))
        primals = [_tensor(torch, a) for a in data.primals]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about copies that padding costs it
            if case.mode == "jvp":
                tangents = tuple(_tensor(torch, a) for a in data.tangents)
                return (_array(torch.func.jvp(f, tuple(primals), tangents)[1]),)
            if case.mode == "vjp":
                leaves = [t.requires_grad_() for t in primals]
                y = f(*leaves)
                assert data.cotangent is not None
                if tuple(y.shape) != data.cotangent.shape:
                    return WrongShape(tuple(y.shape))
                back = torch.autograd.grad(y, leaves, _tensor(torch, data.cotangent))
                return tuple(map(_array, back))
            y = f(*primals)
            return tuple(map(_array, y)) if isinstance(y, tuple) else (_array(y),)

    def wrap(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """What is done to a function before it is called."""
        return f

    def source(self, case: Case) -> str:
        call = self.call(case)
        if not isinstance(call, Call):
            return str(call)
        arguments = "".join(f", {n}={source_of(v)}" for n, v in call.arguments.items())
        function = f"torch.{call.function}" if call.function.startswith("Tensor.") else f"F.{call.function}"
        if self.name == "torch-compile":
            function = f"torch.compile({function})"

        def tensors(start: int, stop: int) -> str:
            return ", ".join(written(case, at, "torch", "tensor") for at in range(start, stop))

        p = len(case.shapes)
        start, given = preamble(case, "import torch; from torch.nn import functional as F"), tensors(0, p)
        if case.mode == "jvp":
            inner = f"lambda *a: {function}(*a{arguments})"
            return f"{start}print(torch.func.jvp({inner}, ({given},), ({tensors(p, 2 * p)},))[1])"
        if case.mode == "vjp" and case.output is not None:
            leaves = f"a = [t.requires_grad_() for t in ({given},)]; "
            return f"{start}{leaves}print(torch.autograd.grad({function}(*a{arguments}), a, {tensors(p, p + 1)}))"
        return f"{start}print({function}({given}{arguments}))"


class TorchCompile(Torch):
    """The same functions through torch.compile and its default compiler, inductor."""

    name = "torch-compile"
    space = Space(
        ops=("max_pool", "avg_pool", "lp_pool"),  # the compiler hands the others to eager torch
        ranks=(1, 2),
        dtypes=("float32",),
        modes=("forward", "indices", "vjp"),
        layouts=("contiguous",),
        ties=FIRST,
        symmetric=True,
        half_padded=True,
        unpadded=UNPADDED,
        undilated=UNDILATED,
        named_padding=False,
        thin=8,
    )
    deadline = 120.0
    default_cases = 240
    tries = 24

    def wrap(self, f: Callable[..., Any]) -> Callable[..., Any]:
        torch = self.load()
        torch._dynamo.reset()
        compiled: Callable[..., Any] = torch.compile(f, dynamic=False)
        return compiled


def _tensor(torch: Any, a: Array) -> Any:
    """A tensor with the array's layout, and memory of its own."""
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(_copied(a.view(np.int16))).view(torch.bfloat16)
    return torch.from_numpy(_copied(a))


def _copied(a: Array) -> Array:
    """A copy with the same strides; numpy.copy keeps the order of axes, not gaps."""
    if a.flags.c_contiguous or a.ndim == 0 or abs(a.strides[-1]) == a.itemsize or not a.size:
        return a.copy(order="K")
    if a.strides[-1] == 2 * a.itemsize:
        wide = np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]
    return a.copy(order="K")


def _array(t: Any) -> Array:
    t = t.detach()
    if str(t.dtype) == "torch.bfloat16":
        bits: Array = t.contiguous().view(__import__("torch").int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = t.numpy()
    return array
