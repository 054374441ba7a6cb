"""The spatial operators of neural networks, defined exactly once: convolution and pooling in any number of dimensions.

    import lunette as ln
    y = ln.max_pool(x, 3, stride=2, padding=1)

Every operator runs on float arrays (NumPy, torch, JAX), on arrays and nested lists of exact numbers, and as an
executable specification in `ln.spec`. Every operator has `<name>_jvp` and `<name>_vjp`.
"""

from importlib.metadata import version as _version

from lunette import ops as _ops
from lunette import spec as spec
from lunette._native import get_num_threads as get_num_threads
from lunette._native import instruction_set as instruction_set
from lunette._native import set_num_threads as set_num_threads
from lunette.array import jvp_of as _jvp_of
from lunette.array import output_shape as output_shape
from lunette.array import vjp_of as _vjp_of
from lunette.errors import ArgumentError as ArgumentError
from lunette.errors import DTypeError as DTypeError
from lunette.errors import LunetteError as LunetteError
from lunette.errors import ShapeError as ShapeError
from lunette.explain import Explanation as Explanation
from lunette.explain import explain as explain
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

__version__ = _version("lunette")

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
    "DTypeError",
    "Dual",
    "Explanation",
    "Interval",
    "LunetteError",
    "ShapeError",
    "__version__",
    "adaptive_avg_pool",
    "adaptive_avg_pool_jvp",
    "adaptive_avg_pool_vjp",
    "adaptive_max_pool",
    "adaptive_max_pool_jvp",
    "adaptive_max_pool_vjp",
    "avg_pool",
    "avg_pool_jvp",
    "avg_pool_vjp",
    "conv",
    "conv_jvp",
    "conv_transpose",
    "conv_transpose_jvp",
    "conv_transpose_vjp",
    "conv_vjp",
    "explain",
    "get_num_threads",
    "global_avg_pool",
    "global_avg_pool_jvp",
    "global_avg_pool_vjp",
    "global_max_pool",
    "global_max_pool_jvp",
    "global_max_pool_vjp",
    "instruction_set",
    "lp_pool",
    "lp_pool_jvp",
    "lp_pool_vjp",
    "max_pool",
    "max_pool_jvp",
    "max_pool_vjp",
    "output_shape",
    "set_num_threads",
    "smooth_max_pool",
    "smooth_max_pool_jvp",
    "smooth_max_pool_vjp",
    "spec",
]
