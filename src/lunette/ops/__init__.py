"""Every operator. To add one: write its file, list its class and its function here, export the function in lunette.

A package of its own calls `register` instead: ALL and KINDS are the operators at hand, and whoever lists operators, or
looks for one by its name, reads them when asked.

| rule | says                                                                                             |
|------|--------------------------------------------------------------------------------------------------|
| OP1  | what is registered is a class made from Windowed, with a name of its own                          |
| OP2  | its function takes the operator's arrays, its options, and last `arithmetic`, and ends in `apply`  |
| OP3  | only what was registered can be taken back                                                        |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lunette.errors import ArgumentError, DTypeError, LunetteError, shown
from lunette.number import BOX_OPERATORS
from lunette.op import Op, Placeholder, Request, parameters_of
from lunette.ops.adaptive_pool import AdaptiveAvgPool as AdaptiveAvgPool
from lunette.ops.adaptive_pool import AdaptiveMaxPool as AdaptiveMaxPool
from lunette.ops.adaptive_pool import adaptive_avg_pool as adaptive_avg_pool
from lunette.ops.adaptive_pool import adaptive_max_pool as adaptive_max_pool
from lunette.ops.avg_pool import AvgPool as AvgPool
from lunette.ops.avg_pool import avg_pool as avg_pool
from lunette.ops.binary import Add, Div, Equal, Gate, Maximum, Minimum, Mul, Prefer, Sub, maximum, minimum
from lunette.ops.broadcast import BroadcastTo, Sum, broadcast_to
from lunette.ops.broadcast import sum as sum_
from lunette.ops.concat import Concat
from lunette.ops.conv import Conv as Conv
from lunette.ops.conv import conv as conv
from lunette.ops.conv_transpose import ConvTranspose as ConvTranspose
from lunette.ops.conv_transpose import conv_transpose as conv_transpose
from lunette.ops.erf import Bell, Erf, erf
from lunette.ops.floor import Floor, floor
from lunette.ops.global_pool import GlobalAvgPool as GlobalAvgPool
from lunette.ops.global_pool import GlobalMaxPool as GlobalMaxPool
from lunette.ops.global_pool import global_avg_pool as global_avg_pool
from lunette.ops.global_pool import global_max_pool as global_max_pool
from lunette.ops.glue import Glue
from lunette.ops.layout import Reshape, Transpose, flatten, reshape, transpose
from lunette.ops.linear import MatMul, linear, matmul
from lunette.ops.loss import OneHot
from lunette.ops.lp_pool import LpPool as LpPool
from lunette.ops.lp_pool import lp_pool as lp_pool
from lunette.ops.max_pool import MaxPool as MaxPool
from lunette.ops.max_pool import max_pool as max_pool
from lunette.ops.norm import LogSoftmax, Softmax, log_softmax, softmax
from lunette.ops.pad import Pad, Slice, pad
from lunette.ops.pad import slice as slice_
from lunette.ops.power import Pow, Power, pow, power
from lunette.ops.reduce import Max, Mean, mean
from lunette.ops.reduce import max as max_
from lunette.ops.smooth_max_pool import SmoothMaxPool as SmoothMaxPool
from lunette.ops.smooth_max_pool import smooth_max_pool as smooth_max_pool
from lunette.ops.take import Put, Take, take
from lunette.ops.unary import (
    Abs,
    Exp,
    LeakyRelu,
    Log,
    Neg,
    Relu,
    Sigmoid,
    Sign,
    Sqrt,
    StopGradient,
    Tanh,
    exp,
    leaky_relu,
    log,
    neg,
    relu,
    sigmoid,
    sqrt,
    stop_gradient,
    tanh,
)
from lunette.ops.unary import abs as abs_
from lunette.ops.windowed import Windowed as Windowed

ALL: Final[dict[type[Windowed], Callable[..., Any]]] = {
    Conv: conv,
    ConvTranspose: conv_transpose,
    MaxPool: max_pool,
    AvgPool: avg_pool,
    SmoothMaxPool: smooth_max_pool,
    LpPool: lp_pool,
    AdaptiveAvgPool: adaptive_avg_pool,
    AdaptiveMaxPool: adaptive_max_pool,
    GlobalAvgPool: global_avg_pool,
    GlobalMaxPool: global_max_pool,
}
"""The operators with windows, and their public functions."""
KINDS: Final[dict[str, type[Windowed]]] = {kind.name: kind for kind in ALL}
"""The same by their names."""
OWN: Final = frozenset(ALL)
"""Those of them that are lunette's own."""

GLUE: Final[tuple[type[Glue], ...]] = (
    *(Add, Sub, Mul, Div, Maximum, Minimum, Gate, Equal, Prefer, Pow),
    *(Neg, Relu, LeakyRelu, Sigmoid, Tanh, Exp, Log, Sqrt, Abs, Sign, Power, StopGradient),
    *(Erf, Bell, Floor),
    *(MatMul, Reshape, Transpose, BroadcastTo, Pad, Slice, Concat, Take, Put),
    *(Sum, Mean, Max, Softmax, LogSoftmax, OneHot),
)
"""The operators between them."""


def register(kind: Any, function: Any) -> None:
    """Make an operator of another package known by its name, wherever lunette lists operators or looks for one."""
    if not (isinstance(kind, type) and issubclass(kind, Windowed)):
        hint = "Derive it from lunette.ops.pool.Pool, or from another room's class."
        raise DTypeError("OP1", "a class made from lunette.ops.Windowed", shown(kind), hint, who="register")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or (name in KINDS and KINDS[name] is not kind):
        got, hint = f"name={shown(name)}", f"Names that are taken: {', '.join(KINDS)}."
        raise ArgumentError("OP1", "an operator with a name of its own", got, hint, who="register")
    if kind in OWN:
        raise ArgumentError("OP1", "an operator that lunette does not have", name, "It is there.", who="register")
    if _asked(kind, function) is not kind:
        need = f"a function ({', '.join(kind.arrays)}, ..., arithmetic) that ends in apply({kind.__name__}, ...)"
        hint = "See a room, such as lunette.ops.max_pool."
        raise ArgumentError("OP2", need, shown(getattr(function, "__name__", function)), hint, who="register")
    ALL[kind] = function
    KINDS[name] = kind


def _asked(kind: type[Op], function: Any) -> type[Op] | None:
    """The operator that a function asks for; None if it is no such function."""
    try:
        names = list(parameters_of(function))
        if not set(kind.arrays) < set(names) or names[0] != kind.arrays[0] or names[-1] != "arithmetic":
            return None
        missing = {n: None for n, p in parameters_of(function).items() if p.default is p.empty}
        asked = function(**{**missing, names[0]: Placeholder()})
    except (TypeError, ValueError, LunetteError, IndexError):
        return None
    return asked.kind if isinstance(asked, Request) else None


def unregister(kind: type[Windowed]) -> None:
    """Take back what was registered."""
    if kind not in ALL or kind in OWN:
        hint = "Lunette's own operators stay."
        raise ArgumentError("OP3", "an operator that was registered", shown(kind), hint, who="unregister")
    del ALL[kind], KINDS[kind.name]


BOX_OPERATORS.update(
    {
        f.__name__: f
        for f in (
            *(broadcast_to, erf, flatten, floor, leaky_relu, linear, log_softmax, matmul, maximum, minimum, pad, pow),
            *(relu, reshape, sigmoid, slice_, softmax, sqrt, stop_gradient, take, tanh, transpose, neg),
            *(abs_, exp, log, max_, mean, power, sum_),
        )
    }
)
