"""Arrays in and out: kinds, dtypes, batch axes, and the derivatives of every operator on arrays.

| rule | says                                                                                       |
|------|--------------------------------------------------------------------------------------------|
| D1   | arrays are float16, bfloat16, float32 or float64; object arrays and nested lists hold numbers |
| D2   | all arrays of a call share one dtype                                                       |
| D3   | NumPy may mix with one other kind of array, not two kinds with each other                  |
| D4   | a torch tensor does not require grad                                                       |
| D5   | arrays live on the CPU                                                                     |
| D7   | a tangent has the shape of its primal, a cotangent that of the output                      |
| D9   | arithmetic is one that exists                                                              |

Modules: foreign (kinds and dtypes), resolved (operators that are remembered), run (one call), derivatives,
recording (max pools that keep their winners), shapes.
"""

from lunette.array.derivatives import check_cotangent as check_cotangent
from lunette.array.derivatives import defaults_of as defaults_of
from lunette.array.derivatives import jvp_of as jvp_of
from lunette.array.derivatives import vjp_of as vjp_of
from lunette.array.foreign import FLOAT as FLOAT
from lunette.array.foreign import HALF as HALF
from lunette.array.foreign import Operand as Operand
from lunette.array.foreign import as_scalar as as_scalar
from lunette.array.foreign import cells as cells
from lunette.array.foreign import dense as dense
from lunette.array.foreign import from_numpy as from_numpy
from lunette.array.foreign import integers_to_numpy as integers_to_numpy
from lunette.array.foreign import is_half as is_half
from lunette.array.foreign import one_kind as one_kind
from lunette.array.foreign import same_dtype as same_dtype
from lunette.array.foreign import to_numpy as to_numpy
from lunette.array.foreign import wide as wide
from lunette.array.recording import Recorder as Recorder
from lunette.array.recording import recorder_of as recorder_of
from lunette.array.resolved import FORGETTING as FORGETTING
from lunette.array.resolved import KERNEL_RANK as KERNEL_RANK
from lunette.array.resolved import MOST_BYTES as MOST_BYTES
from lunette.array.resolved import Kept as Kept
from lunette.array.resolved import dtype_of as dtype_of
from lunette.array.resolved import forget as forget
from lunette.array.resolved import is_plain as is_plain
from lunette.array.resolved import key_of as key_of
from lunette.array.resolved import names_of as names_of
from lunette.array.resolved import plain_options as plain_options
from lunette.array.resolved import resolve_cached as resolve_cached
from lunette.array.resolved import resolved_before as resolved_before
from lunette.array.resolved import weight_of as weight_of
from lunette.array.run import ARITHMETIC as ARITHMETIC
from lunette.array.run import Call as Call
from lunette.array.run import by_specification as by_specification
from lunette.array.run import computing as computing
from lunette.array.run import prepare as prepare
from lunette.array.run import run as run
from lunette.array.run import samples as samples
from lunette.array.shapes import check_sizes as check_sizes
from lunette.array.shapes import lookup as lookup
from lunette.array.shapes import output_shape as output_shape
from lunette.array.shapes import resolve_named as resolve_named
