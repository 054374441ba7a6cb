"""The spatial operators of neural networks, defined exactly once: convolution and pooling in any number of dimensions.

    import lunette as ln
    y = ln.max_pool(x, 3, stride=2, padding=1)

Every operator runs on float arrays (NumPy, torch, JAX), on arrays and nested lists of exact numbers, and as an
executable specification in `ln.spec`. Every operator has `<name>_jvp` and `<name>_vjp`.
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import

import lunette.verify as _verify  # noqa: F401 (an empty page; who imports a room of it later binds no name here)
from lunette import conform as conform  # callable; what it calls is imported then
from lunette import ops as _ops
from lunette.array import ARITHMETIC as _ARITHMETIC
from lunette.array import jvp_of as _jvp_of
from lunette.array import output_shape as output_shape
from lunette.array import vjp_of as _vjp_of
from lunette.elsewhere import ELSEWHERE as _ELSEWHERE
from lunette.errors import ArgumentError as ArgumentError
from lunette.errors import DTypeError as DTypeError
from lunette.errors import LunetteError as LunetteError
from lunette.errors import ShapeError as ShapeError
from lunette.errors import UndecidedError as UndecidedError
from lunette.errors import refuses as _refuses
from lunette.number import Dual as Dual
from lunette.number import Interval as Interval
from lunette.ops import adaptive_avg_pool as adaptive_avg_pool
from lunette.ops import adaptive_max_pool as adaptive_max_pool
from lunette.ops import avg_pool as avg_pool
from lunette.ops import conv as conv
from lunette.ops import conv_transpose as conv_transpose
from lunette.ops import global_avg_pool as global_avg_pool
from lunette.ops import global_max_pool as global_max_pool
from lunette.ops import lp_pool as lp_pool
from lunette.ops import max_pool as max_pool
from lunette.ops import smooth_max_pool as smooth_max_pool
from lunette.ops.binary import add as add
from lunette.ops.binary import div as div
from lunette.ops.binary import maximum as maximum
from lunette.ops.binary import minimum as minimum
from lunette.ops.binary import mul as mul
from lunette.ops.binary import sub as sub
from lunette.ops.broadcast import broadcast_to as broadcast_to
from lunette.ops.broadcast import sum as sum
from lunette.ops.concat import concat as concat
from lunette.ops.erf import erf as erf
from lunette.ops.floor import floor as floor
from lunette.ops.layout import flatten as flatten
from lunette.ops.layout import reshape as reshape
from lunette.ops.layout import transpose as transpose
from lunette.ops.linear import linear as linear
from lunette.ops.linear import matmul as matmul
from lunette.ops.loss import cross_entropy as cross_entropy
from lunette.ops.loss import mse as mse
from lunette.ops.loss import one_hot as one_hot
from lunette.ops.norm import batch_norm as batch_norm
from lunette.ops.norm import log_softmax as log_softmax
from lunette.ops.norm import softmax as softmax
from lunette.ops.pad import pad as pad
from lunette.ops.pad import slice as slice
from lunette.ops.power import pow as pow
from lunette.ops.power import power as power
from lunette.ops.reduce import max as max
from lunette.ops.reduce import mean as mean
from lunette.ops.take import take as take
from lunette.ops.unary import abs as abs
from lunette.ops.unary import exp as exp
from lunette.ops.unary import leaky_relu as leaky_relu
from lunette.ops.unary import log as log
from lunette.ops.unary import neg as neg
from lunette.ops.unary import relu as relu
from lunette.ops.unary import sigmoid as sigmoid
from lunette.ops.unary import sqrt as sqrt
from lunette.ops.unary import stop_gradient as stop_gradient
from lunette.ops.unary import tanh as tanh
from lunette.rules import COLUMNS as _COLUMNS
from lunette.threads import get_num_threads as get_num_threads
from lunette.threads import set_num_threads as set_num_threads

_LATER = {
    "lunette._native": "instruction_set",
    "lunette.arithmetic.error": "error_bound ulps",
    "lunette.certificate.certificate": "Certificate CertificateError Checked check",
    "lunette.dialects": "diff",
    "lunette.explanation": "Explanation explain",
    "lunette.graph.differentiate": "grad jvp value_and_grad vjp",
    "lunette.graph.graph": "Graph load",
    "lunette.graph.jit": "jit trace",
    "lunette.graph.nodes": "Var",
    "lunette.graph.program": "Program",
    "lunette.graph.rules": "rules",
    "lunette.onnx": "from_onnx to_onnx",
    "lunette.relax.bounds": "bounds",
    "lunette.relax.result": "Bounds",
    "lunette.verify.property": "Property",
    "lunette.verify.result": "Verdict",
    "lunette.verify.verify": "verify",
}
"""Rooms above the operators, and their public names: loaded when one of these is asked for."""
_PLACES = {name: room for room, names in _LATER.items() for name in names.split()}
for _name in ("rules", "verify"):  # rooms of the names of functions, which Python bound here when it imported them
    globals().pop(_name, None)


def __getattr__(name: str) -> _typing.Any:
    """A public name of a room that is not loaded yet; from then on it is an attribute as any other."""
    if name == "spec":
        return _import("lunette.spec")
    if name == "__version__":
        value = _import("lunette.version").VERSION
    elif name in _PLACES:
        if name == "rules":
            _columns()
        value = getattr(_import(_PLACES[name]), name)
    else:
        raise AttributeError(f"module 'lunette' has no attribute {name!r}")
    setattr(_sys.modules[__name__], name, value)
    return value


def _columns() -> None:
    """Of the table of rules, those that rooms above have."""
    for room in ("lunette.arithmetic", "lunette.relax.step"):
        _import(room)


_COLUMNS[:] = [_columns]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _loaded(name: str) -> _typing.Callable[..., _typing.Any]:
    """An arithmetic that is loaded when it is first computed in, and then in the place of this."""

    def first(*asked: _typing.Any) -> _typing.Any:
        _import("lunette.arithmetic")
        return _ARITHMETIC[name](*asked)

    return first


_ARITHMETIC.update({name: _loaded(name) for name in ("rounded", "interval") if name not in _ARITHMETIC})


@_refuses
def from_torch(
    module: _typing.Any, *examples: _typing.Any, weights: str = "constants", train: bool = False
) -> _typing.Any:
    """The graph of a `torch.nn.Module` for inputs like `examples`; `lunette.torch.read.from_torch` says more."""
    from lunette.torch.read import from_torch as _read  # which imports torch

    return _read(module, *examples, weights=weights, train=train)


def _to_torch(program: _typing.Any) -> _typing.Any:
    from lunette.torch.program import to_torch as _made

    return _made(program)


def _to_jax(program: _typing.Any) -> _typing.Any:
    from lunette.jax.program import to_jax as _made

    return _made(program)


_ELSEWHERE["torch"] = _to_torch
_ELSEWHERE["jax"] = _to_jax

conv_jvp, conv_vjp = _jvp_of(conv, _ops.Conv), _vjp_of(conv, _ops.Conv)
conv_transpose_jvp, conv_transpose_vjp = (
    _jvp_of(conv_transpose, _ops.ConvTranspose),
    _vjp_of(conv_transpose, _ops.ConvTranspose),
)
max_pool_jvp, max_pool_vjp = _jvp_of(max_pool, _ops.MaxPool), _vjp_of(max_pool, _ops.MaxPool)
avg_pool_jvp, avg_pool_vjp = _jvp_of(avg_pool, _ops.AvgPool), _vjp_of(avg_pool, _ops.AvgPool)
smooth_max_pool_jvp, smooth_max_pool_vjp = (
    _jvp_of(smooth_max_pool, _ops.SmoothMaxPool),
    _vjp_of(smooth_max_pool, _ops.SmoothMaxPool),
)
lp_pool_jvp, lp_pool_vjp = _jvp_of(lp_pool, _ops.LpPool), _vjp_of(lp_pool, _ops.LpPool)
adaptive_avg_pool_jvp, adaptive_avg_pool_vjp = (
    _jvp_of(adaptive_avg_pool, _ops.AdaptiveAvgPool),
    _vjp_of(adaptive_avg_pool, _ops.AdaptiveAvgPool),
)
adaptive_max_pool_jvp, adaptive_max_pool_vjp = (
    _jvp_of(adaptive_max_pool, _ops.AdaptiveMaxPool),
    _vjp_of(adaptive_max_pool, _ops.AdaptiveMaxPool),
)
global_avg_pool_jvp, global_avg_pool_vjp = (
    _jvp_of(global_avg_pool, _ops.GlobalAvgPool),
    _vjp_of(global_avg_pool, _ops.GlobalAvgPool),
)
global_max_pool_jvp, global_max_pool_vjp = (
    _jvp_of(global_max_pool, _ops.GlobalMaxPool),
    _vjp_of(global_max_pool, _ops.GlobalMaxPool),
)

__all__ = [
    "ArgumentError",
    "Bounds",
    "Certificate",
    "CertificateError",
    "Checked",
    "DTypeError",
    "Dual",
    "Explanation",
    "Graph",
    "Interval",
    "LunetteError",
    "Program",
    "Property",
    "ShapeError",
    "UndecidedError",
    "Var",
    "Verdict",
    "__version__",
    "abs",
    "adaptive_avg_pool",
    "adaptive_avg_pool_jvp",
    "adaptive_avg_pool_vjp",
    "adaptive_max_pool",
    "adaptive_max_pool_jvp",
    "adaptive_max_pool_vjp",
    "add",
    "avg_pool",
    "avg_pool_jvp",
    "avg_pool_vjp",
    "batch_norm",
    "bounds",
    "broadcast_to",
    "check",
    "concat",
    "conform",
    "conv",
    "conv_jvp",
    "conv_transpose",
    "conv_transpose_jvp",
    "conv_transpose_vjp",
    "conv_vjp",
    "cross_entropy",
    "diff",
    "div",
    "erf",
    "error_bound",
    "exp",
    "explain",
    "flatten",
    "floor",
    "from_onnx",
    "from_torch",
    "get_num_threads",
    "global_avg_pool",
    "global_avg_pool_jvp",
    "global_avg_pool_vjp",
    "global_max_pool",
    "global_max_pool_jvp",
    "global_max_pool_vjp",
    "grad",
    "instruction_set",
    "jit",
    "jvp",
    "leaky_relu",
    "linear",
    "load",
    "log",
    "log_softmax",
    "lp_pool",
    "lp_pool_jvp",
    "lp_pool_vjp",
    "matmul",
    "max",
    "max_pool",
    "max_pool_jvp",
    "max_pool_vjp",
    "maximum",
    "mean",
    "minimum",
    "mse",
    "mul",
    "neg",
    "one_hot",
    "output_shape",
    "pad",
    "pow",
    "power",
    "relu",
    "reshape",
    "rules",
    "set_num_threads",
    "sigmoid",
    "slice",
    "smooth_max_pool",
    "smooth_max_pool_jvp",
    "smooth_max_pool_vjp",
    "softmax",
    "spec",
    "sqrt",
    "stop_gradient",
    "sub",
    "sum",
    "take",
    "tanh",
    "to_onnx",
    "trace",
    "transpose",
    "ulps",
    "value_and_grad",
    "verify",
    "vjp",
]
