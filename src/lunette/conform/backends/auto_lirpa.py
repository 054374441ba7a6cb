"""auto_LiRPA, a library of linear relaxations on PyTorch, as its users call it: a checkout of 0.7 on the path.

https://github.com/Verified-Intelligence/auto_LiRPA (the package of that name on PyPI is another, older one).
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from lunette.conform.backends.backend import literal, written
from lunette.conform.backends.bounds import SPACES, Bounds
from lunette.conform.case import Case, source_of
from lunette.conform.question import Question
from lunette.dialects import Call, dialect
from lunette.errors import ArgumentError
from lunette.number import Array

MODULE: Final = "auto_LiRPA"
METHODS: Final = ("IBP", "CROWN", "CROWN-Optimized")


def is_here() -> bool:
    """Whether it can be imported."""
    return importlib.util.find_spec(MODULE) is not None


def crown(module: Any, lo: Array, hi: Array) -> Any:
    """As most of its users ask: by patches; by matrices where it has no patches, as for convolutions on one axis."""
    try:
        return bounds_by(module, lo, hi)
    except Exception:
        return bounds_by(module, lo, hi, conv_mode="matrix")


def bounds_by(module: Any, lo: Array, hi: Array, method: str = "CROWN", conv_mode: str = "patches") -> Any:
    """Its bounds of a module. `conv_mode` is how it keeps coefficients of convolutions: "patches" or "matrix"."""
    import torch

    library = importlib.import_module(MODULE)
    low, high = torch.from_numpy(lo), torch.from_numpy(hi)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounded = library.BoundedModule(module, low, bound_opts={"conv_mode": conv_mode}, device="cpu")
        box = library.PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high)
        ends = bounded.compute_bounds(x=(library.BoundedTensor(low, box),), method=method)
    return tuple(end.detach().numpy() for end in ends)


class AutoLirpa(Bounds):
    """Method "CROWN", with its defaults; where these refuse, with matrices of coefficients instead of patches."""

    name = "auto_lirpa as bounds"
    module = MODULE
    language = "module"
    space = replace(SPACES["module"], dtypes=("float32",))
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    deadline = 60.0
    default_cases = 1000
    switches: ClassVar[tuple[str, ...]] = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")

    def check(self) -> None:
        """Rule V1."""
        if not is_here():
            hint = "Put a checkout of github.com/Verified-Intelligence/auto_LiRPA on PYTHONPATH, and what it imports."
            raise ArgumentError("V1", f"the library {MODULE} for the backend {self.name}", "none", hint, who="conform")

    @property
    def version(self) -> str:
        return f"{MODULE} {importlib.import_module(MODULE).__version__}"

    def load(self) -> Any:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        return super().load()

    def claim(self, network: Any, lo: Array, hi: Array) -> Any:
        return crown(network, lo, hi)

    def spoken(self) -> tuple[str, str]:
        return "from lunette.conform.backends.auto_lirpa import crown; ", "crown"

    def source(self, case: Case) -> str:
        """An operator alone is said in torch's and the library's own words; more is rebuilt by lunette."""
        call = dialect("torch").express(case.op, case.shapes, dict(case.options))
        arrays = case.arrays().every
        if case.before or case.after or not isinstance(call, Call) or not all(map(literal, arrays)):
            return super().source(case)
        question = Question(case)
        tensors = [written(case, at, "torch", "tensor") for at in range(len(case.shapes))]
        arguments = "".join(f", {n}={source_of(v)}" for n, v in call.arguments.items())
        function = f"torch.{call.function}" if call.function.startswith("Tensor.") else f"F.{call.function}"
        weights = "".join(f", {t}" for t in tensors[1:])
        return (
            "import numpy as np, torch; from torch.nn import functional as F; "
            f"from {MODULE} import BoundedModule, BoundedTensor, PerturbationLpNorm; "
            f"forward = lambda self, x: {function}(x{weights}{arguments}); "
            "net = type('Net', (torch.nn.Module,), {'forward': forward})(); "
            f"lo, hi = {tensors[0]}, torch.tensor({literal(question.hi)}); "
            "box = BoundedTensor(lo, PerturbationLpNorm(norm=np.inf, x_L=lo, x_U=hi)); "
            "print(BoundedModule(net, lo).compute_bounds(x=(box,), method='CROWN'), net(lo), net(hi))"
        )
