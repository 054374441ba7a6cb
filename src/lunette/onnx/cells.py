"""Functions of single cells, and of pairs of them.

Where ONNX has a function that lunette has not, it is said with those there are, such that values are right where
exponentials overflow, and derivatives where branches meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

from lunette.errors import ArgumentError
from lunette.graph.nodes import Var
from lunette.number import OBJECT
from lunette.onnx.value import Call, Data, Known, Reader, Value, as_floats, known, refuse, spend
from lunette.ops.binary import add, div, equal, gate, maximum, minimum, mul, sub
from lunette.ops.broadcast import broadcast_to
from lunette.ops.erf import erf
from lunette.ops.floor import floor
from lunette.ops.glue import broadcast, shape_of
from lunette.ops.power import pow, power
from lunette.ops.unary import abs as absolute
from lunette.ops.unary import exp, leaky_relu, log, neg, relu, sigmoid, sign, sqrt, tanh


def of_one(f: Callable[[Any], Any]) -> Reader:
    """A function of one input without attributes."""
    return lambda n: f(n.x())


def of_two(f: Callable[[Any, Any], Any]) -> Reader:
    """A function of two inputs."""
    return lambda n: f(*n.pair())


def of_many(f: Callable[[Any, Any], Any]) -> Reader:
    """A function of any number of inputs, one after the other."""
    return lambda n: reduce(f, n.every())


# ---- one cell


def read_leaky_relu(n: Call) -> Any:
    return leaky_relu(n.x(), n.real("alpha", 0.01))


def read_prelu(n: Call) -> Any:
    x, slope = n.x(), n.x(1)
    if broadcast(shape_of(x), shape_of(slope)) != shape_of(x):
        raise refuse(f"a slope that fits x, {shape_of(x)}", f"{shape_of(slope)}", "It has a cell per channel.")
    if isinstance(slope, Known) and slope.size and (slope == slope.flat[0]).all() and np.isfinite(slope.flat[0]):
        return leaky_relu(x, float(slope.flat[0]))
    return sub(relu(x), mul(slope, relu(neg(x))))


def _elu(x: Any, inner: float = 1.0) -> Any:
    """(exp(x / inner) - 1) where x is negative, and 0 elsewhere."""
    low = minimum(x, 0.0)
    return sub(exp(low if inner == 1 else div(low, inner)), 1.0)


def read_elu(n: Call) -> Any:
    x = n.x()
    return add(maximum(x, 0.0), mul(_elu(x), n.real("alpha", 1.0)))


def read_celu(n: Call) -> Any:
    x, alpha = n.x(), n.real("alpha", 1.0)
    return add(maximum(x, 0.0), mul(_elu(x, alpha), alpha))


def read_selu(n: Call) -> Any:
    x = n.x()
    alpha, gamma = n.real("alpha", 1.67326319217681884765625), n.real("gamma", 1.05070102214813232421875)
    return mul(add(maximum(x, 0.0), mul(_elu(x), alpha)), gamma)


def _ramp(x: Any, slope: float, offset: float) -> Any:
    return maximum(minimum(add(mul(x, slope), offset), 1.0), 0.0)


def read_hard_sigmoid(n: Call) -> Any:
    return _ramp(n.x(), n.real("alpha", 0.2), n.real("beta", 0.5))


def read_hard_swish(n: Call) -> Any:
    return mul(n.x(), _ramp(n.x(), 1 / 6, 0.5))


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), from an exponential that cannot overflow; its derivative at 0 is 1/2."""
    return add(maximum(x, 0.0), log(add(exp(neg(absolute(x))), 1.0)))


def read_swish(n: Call) -> Any:
    x, alpha = n.x(), n.real("alpha", 1.0)
    return mul(x, sigmoid(x if alpha == 1 else mul(x, alpha)))


def read_gelu(n: Call) -> Any:
    x, way = n.x(), n.text("approximate", "none")
    half = mul(x, 0.5)
    if way == "none":
        return mul(half, add(erf(mul(x, math.sqrt(0.5))), 1.0))
    if way == "tanh":
        return mul(half, add(tanh(mul(add(x, mul(power(x, 3), 0.044715)), math.sqrt(2 / math.pi))), 1.0))
    raise refuse('approximate "none" or "tanh"', f'approximate="{way}"', "There are two.")


def read_clip(n: Call) -> Any:
    y = n.x()
    low, high = n.maybe(1), n.maybe(2)
    if n.opset < 11:
        low, high = (_bound(y, n.real(name, None)) for name in ("min", "max"))
    for end, f in ((low, maximum), (high, minimum)):
        if end is not None:
            if shape_of(end) not in ((), (1,)) or (shape_of(end) == (1,) and not shape_of(y)):
                raise refuse("bounds without axes", f"shape {shape_of(end)}", "One number bounds all cells.")
            y = f(*n.alike([y, end]))
    return y


def _bound(x: Data, value: float | None) -> Known | None:
    return None if value is None else known(np.asarray(value, x.dtype))


# ---- two


def read_div(n: Call) -> Any:
    x, y = n.pair()
    if not n.is_counted():
        return div(x, y)
    if isinstance(x, Var) or isinstance(y, Var):
        raise ArgumentError("NX6", "quotients of floats", "integers that depend on inputs", "Cast them to floats.")
    if (np.asarray(y) == 0).any():
        raise refuse("a divisor that is not zero", "0", "Integers have no infinity.")
    return known(np.asarray(np.frompyfunc(_towards_zero, 2, 1)(x, y), object))


def _towards_zero(a: int, b: int) -> int:
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def read_mod(n: Call) -> Any:
    x, y = n.pair()
    fmod = n.flag("fmod")
    if isinstance(x, Var) or isinstance(y, Var):
        raise ArgumentError(
            "NX6", "remainders of constants", "values that depend on inputs", "There is no room for it."
        )
    if x.dtype != OBJECT:
        return known(np.asarray((np.fmod if fmod else np.mod)(np.asarray(x), np.asarray(y))))
    if (np.asarray(y) == 0).any():
        raise refuse("a divisor that is not zero", "0", "Integers have no NaN.")
    rest = np.frompyfunc(lambda a, b: a - b * _towards_zero(a, b) if fmod else a % b, 2, 1)
    return known(np.asarray(rest(x, y), object))


def read_pow(n: Call) -> Any:
    x, y = n.x(), n.x(1)
    shape = broadcast(shape_of(x), shape_of(y))
    if isinstance(x, Known) and x.dtype == OBJECT:
        exponents = n.whole(1, "an exponent of integers") or ()
        if any(not 0 <= e <= 64 for e in exponents):
            raise refuse("exponents of integers in 0..64", f"{exponents}", "Others are no integers, or too large.")
        return known(np.asarray(np.frompyfunc(lambda a, b: a**b, 2, 1)(x, y), object))
    dtype = x.dtype
    if isinstance(y, Known) and y.size:
        first = y.ravel().tolist()[0]
        if (np.asarray(y) == first).all() and math.isfinite(first) and shape == shape_of(x):
            return power(x, first)
    x, y = n.alike([x, y])
    return pow(x, as_floats(y, dtype))


def read_mean(n: Call) -> Any:
    return div(reduce(add, n.every()), float(len(n.inputs)))


# ---- true and false, as 1 and 0


def _truth(f: Callable[[Any, Any], Any]) -> Reader:
    def read(n: Call) -> Value:
        x, y = n.pair()
        return Value(f(x, y), "BOOL")

    return read


def greater(x: Any, y: Any) -> Any:
    """1 where x > y; infinities, too."""
    return sub(1, equal(maximum(x, y), y))


def greater_or_equal(x: Any, y: Any) -> Any:
    """1 where x >= y."""
    return equal(maximum(x, y), x)


def read_not(n: Call) -> Value:
    return Value(sub(1, n.x()), "BOOL")


def where(condition: Data, x: Data, y: Data) -> Any:
    """X where the condition is 1, y where it is 0; what is not chosen is not multiplied by 0."""
    return add(gate(condition, x), gate(sub(1, condition), y))


def read_where(n: Call) -> Value:
    c, x, y = n.alike([n.x(0), n.x(1), n.x(2)])
    kind = n.value(1).type
    if not isinstance(c, Known):
        return Value(where(c, *(as_floats(v, c.dtype) for v in (x, y))), kind)
    shape = broadcast(broadcast(shape_of(c), shape_of(x)), shape_of(y))
    if isinstance(x, Known) and isinstance(y, Known):
        spend(math.prod(shape), x.dtype == OBJECT)
        return Value(known(np.where(np.asarray(c != 0, bool), np.asarray(x), np.asarray(y))), kind)
    for value, chosen in ((1, x), (0, y)):
        if (np.asarray(c) == value).all():
            return Value(chosen if shape_of(chosen) == shape else broadcast_to(chosen, shape), kind)
    dtype = x.dtype if isinstance(x, Var) else y.dtype
    return Value(where(known(np.asarray(c).astype(dtype)), x, y), kind)


READERS: Final[dict[str, tuple[Reader, str]]] = {
    "Relu": (of_one(relu), "relu"),
    "LeakyRelu": (read_leaky_relu, "leaky_relu"),
    "PRelu": (read_prelu, "leaky_relu, or relu and mul"),
    "Elu": (read_elu, "maximum, minimum, exp"),
    "Celu": (read_celu, "maximum, minimum, exp"),
    "Selu": (read_selu, "maximum, minimum, exp"),
    "Sigmoid": (of_one(sigmoid), "sigmoid"),
    "HardSigmoid": (read_hard_sigmoid, "maximum, minimum"),
    "HardSwish": (read_hard_swish, "maximum, minimum, mul"),
    "Swish": (read_swish, "sigmoid, mul"),
    "Mish": (of_one(lambda x: mul(x, tanh(softplus(x)))), "tanh, log, exp"),
    "Softplus": (of_one(softplus), "maximum, log, exp, abs"),
    "Softsign": (of_one(lambda x: div(x, add(absolute(x), 1.0))), "div, abs"),
    "Gelu": (read_gelu, "erf, or tanh"),
    "Erf": (of_one(erf), "erf"),
    "Tanh": (of_one(tanh), "tanh"),
    "Exp": (of_one(exp), "exp"),
    "Log": (of_one(log), "log"),
    "Sqrt": (of_one(sqrt), "sqrt"),
    "Reciprocal": (of_one(lambda x: div(1.0, x)), "div"),
    "Abs": (of_one(absolute), "abs"),
    "Neg": (of_one(neg), "neg"),
    "Sign": (of_one(sign), "sign"),
    "Floor": (of_one(floor), "floor"),
    "Ceil": (of_one(lambda x: neg(floor(neg(x)))), "floor, neg"),
    "Clip": (read_clip, "maximum, minimum"),
    "Add": (of_two(add), "add"),
    "Sub": (of_two(sub), "sub"),
    "Mul": (of_two(mul), "mul"),
    "Div": (read_div, "div"),
    "Mod": (read_mod, "of constants alone"),
    "Pow": (read_pow, "power, or pow"),
    "Max": (of_many(maximum), "maximum"),
    "Min": (of_many(minimum), "minimum"),
    "Sum": (of_many(add), "add"),
    "Mean": (read_mean, "add, div"),
    "Equal": (_truth(equal), "equal"),
    "Greater": (_truth(greater), "equal, maximum"),
    "GreaterOrEqual": (_truth(greater_or_equal), "equal, maximum"),
    "Less": (_truth(lambda x, y: greater(y, x)), "equal, maximum"),
    "LessOrEqual": (_truth(lambda x, y: greater_or_equal(y, x)), "equal, maximum"),
    "And": (_truth(mul), "mul"),
    "Or": (_truth(maximum), "maximum"),
    "Not": (read_not, "sub"),
    "Where": (read_where, "gate, add"),
}
