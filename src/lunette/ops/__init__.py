"""Every operator. To add one: write its file, list its class and its function here, export the function in lunette."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lunette.op import Op
from lunette.ops.adaptive_pool import AdaptiveAvgPool as AdaptiveAvgPool
from lunette.ops.adaptive_pool import AdaptiveMaxPool as AdaptiveMaxPool
from lunette.ops.adaptive_pool import adaptive_avg_pool as adaptive_avg_pool
from lunette.ops.adaptive_pool import adaptive_max_pool as adaptive_max_pool
from lunette.ops.avg_pool import AvgPool as AvgPool
from lunette.ops.avg_pool import avg_pool as avg_pool
from lunette.ops.binary import Add, Div, Equal, Gate, Maximum, Minimum, Mul, Prefer, Sub
from lunette.ops.broadcast import BroadcastTo, Sum
from lunette.ops.concat import Concat
from lunette.ops.conv import Conv as Conv
from lunette.ops.conv import conv as conv
from lunette.ops.conv_transpose import ConvTranspose as ConvTranspose
from lunette.ops.conv_transpose import conv_transpose as conv_transpose
from lunette.ops.erf import Bell, Erf
from lunette.ops.floor import Floor
from lunette.ops.global_pool import GlobalAvgPool as GlobalAvgPool
from lunette.ops.global_pool import GlobalMaxPool as GlobalMaxPool
from lunette.ops.global_pool import global_avg_pool as global_avg_pool
from lunette.ops.global_pool import global_max_pool as global_max_pool
from lunette.ops.glue import Glue
from lunette.ops.layout import Reshape, Transpose
from lunette.ops.linear import MatMul
from lunette.ops.loss import OneHot
from lunette.ops.lp_pool import LpPool as LpPool
from lunette.ops.lp_pool import lp_pool as lp_pool
from lunette.ops.max_pool import MaxPool as MaxPool
from lunette.ops.max_pool import max_pool as max_pool
from lunette.ops.norm import LogSoftmax, Softmax
from lunette.ops.pad import Pad, Slice
from lunette.ops.power import Pow, Power
from lunette.ops.reduce import Max, Mean
from lunette.ops.smooth_max_pool import SmoothMaxPool as SmoothMaxPool
from lunette.ops.smooth_max_pool import smooth_max_pool as smooth_max_pool
from lunette.ops.take import Put, Take
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
)

ALL: Final[dict[type[Op], Callable[..., Any]]] = {
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

GLUE: Final[tuple[type[Glue], ...]] = (
    *(Add, Sub, Mul, Div, Maximum, Minimum, Gate, Equal, Prefer, Pow),
    *(Neg, Relu, LeakyRelu, Sigmoid, Tanh, Exp, Log, Sqrt, Abs, Sign, Power, StopGradient),
    *(Erf, Bell, Floor),
    *(MatMul, Reshape, Transpose, BroadcastTo, Pad, Slice, Concat, Take, Put),
    *(Sum, Mean, Max, Softmax, LogSoftmax, OneHot),
)
"""The operators between them."""
