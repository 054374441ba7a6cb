"""tinygrad on its PYTHON device, which needs no compiler: values, indices and VJP; it has no JVP.

It has no dialect of its own here: its arguments are torch's, of any rank, with padding at either end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.dialects import Call, Corners, Unsaid
from lunette.errors import LunetteError
from lunette.window import Axis, Transposed, Window

FUNCTIONS = {
    "conv": "conv2d",
    "conv_transpose": "conv_transpose2d",
    "max_pool": "max_pool2d",
    "avg_pool": "avg_pool2d",
    "global_avg_pool": "mean",
    "global_max_pool": "max",
}
SPLIT = Corners(ties="equal shares", empty="-inf", observed=("ties", "empty"))


class Tinygrad(Backend):
    """`tinygrad.Tensor`."""

    name = "tinygrad"
    module = "tinygrad"
    extra = "tinygrad"
    space = Space(
        ops=tuple(FUNCTIONS),
        dtypes=("float32", "float16"),
        modes=("forward", "indices", "vjp"),
        layouts=("contiguous",),
        ties={"max_pool": ("split",), "global_max_pool": ("split",)},
        divisors=False,
        thin=12,
    )
    deadline = 60.0
    default_cases = 300
    tries = 40
    environment: Mapping[str, str] = {"DEV": "PYTHON", "PYTHON": "1", "CACHELEVEL": "0"}

    def call(self, case: Case) -> Call | Unsaid:
        function = FUNCTIONS[case.op]
        if case.kind.windows == "whole":
            said: dict[str, Any] = {"axis": tuple(range(-case.d, 0)), "keepdim": case.options.get("keepdims", True)}
            return Call(function, said, corners=SPLIT)
        try:
            window = _window(case)
        except LunetteError as error:
            return Unsaid(str(error))
        axes: Any = window.axes
        flat = [p for a in reversed(axes) for p in (a.lo, a.hi)]  # last axis first
        said = {"stride": case.per_axis("stride"), "dilation": case.per_axis("dilation")}
        if not case.kind.weighted:
            said |= {"kernel_size": case.per_axis("kernel"), "padding": tuple(flat)}
            said["ceil_mode"] = any(a.ceil for a in axes)
        else:
            said |= {"groups": case.options.get("groups", 1), "padding": tuple(flat)}
        if case.kind.windows == "transposed":
            if any(a.lo != a.hi for a in axes):
                return Unsaid("tinygrad conv_transpose needs the same padding at both ends")
            said |= {"padding": tuple(a.lo for a in axes), "output_padding": tuple(a.output_padding for a in axes)}
        if case.kind.averages:
            said["count_include_pad"] = case.options.get("count_include_pad", True)
        if case.mode == "indices":
            said["return_indices"] = True
        return Call(function, said, corners=SPLIT)

    def supports(self, case: Case) -> str | None:
        """Nothing large: the device interprets one cell after the other."""
        if case.size > 4096 or max(case.per_axis("kernel"), default=1) > 4096:
            return "too large for tinygrad's PYTHON device"
        return super().supports(case)

    def run(self, case: Case, data: Data) -> Any:
        tinygrad = self.load()
        call = self.call(case)
        assert isinstance(call, Call), call
        tensors = [tinygrad.Tensor(np.ascontiguousarray(a)) for a in data.primals]
        x, *rest = tensors
        y = getattr(x, call.function)(*rest, **call.arguments)
        if case.mode == "vjp":
            g = tinygrad.Tensor(np.ascontiguousarray(data.cotangent))
            back = y.gradient(*tensors, gradient=g)
            return tuple(b.numpy() for b in back)
        return tuple(np.asarray(v.numpy()) for v in (y if isinstance(y, tuple) else (y,)))

    def source(self, case: Case) -> str:
        call = self.call(case)
        if not isinstance(call, Call):
            return str(call)
        p = len(case.shapes)
        arrays = ", ".join(f"Tensor({written(case, at)})" for at in range(p))
        options = "".join(f", {n}={source_of(v)}" for n, v in call.arguments.items())
        device = "import os; os.environ['DEV'] = 'PYTHON'; import numpy as np; from tinygrad import Tensor"
        start = f"{preamble(case, device)}a = ({arrays},); y = Tensor.{call.function}(*a{options}); "
        if case.mode == "vjp" and case.output is not None:
            return f"{start}print([v.numpy() for v in y.gradient(*a, gradient=Tensor({written(case, p)}))])"
        return f"{start}print({'[v.numpy() for v in y]' if case.mode == 'indices' else 'y.numpy()'})"


def _window(case: Case) -> Window:
    """The window in cells, named padding included."""
    given = case.options
    if case.kind.windows == "transposed":
        shared = (given.get("stride", 1), given.get("padding", 0), given.get("dilation", 1))
        window = Window.transposed(case.d, case.per_axis("kernel"), *shared, given.get("output_padding", 0))
        assert all(isinstance(a, Transposed) for a in window.axes)
        return window
    stride = given.get("stride", 1 if case.kind.weighted else None)
    shared = (stride, given.get("padding", 0), given.get("dilation", 1))
    window = Window.sliding(case.space, case.per_axis("kernel"), *shared, given.get("ceil_mode", False))
    assert all(isinstance(a, Axis) for a in window.axes)
    return window
