"""JAX, compiled by jit once per problem; every rank."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from lunette.bench.cases import Data, Problem
from lunette.bench.networks import Feed, NetworkProblem
from lunette.bench.peers import Absent, Numbers, Peer, Way, numbers

Function = Callable[..., Any]
LOGADDEXP = "reduce_window(logaddexp)"


class Jax(Peer):
    """jit of the function, of its jvp (the tangent alone), of its vjp (the cotangents alone)."""

    name = "JAX"
    package = "jax"

    def start(self) -> None:
        self.jax: Any = importlib.import_module("jax")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_enable_x64", True)

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        jax = self.jax
        arrays, tangents = [tuple(map(jax.device_put, a)) for a in (data.arrays, data.tangents)]
        g = jax.device_put(data.g)

        def way(name: str, f: Function) -> Way:
            compiled, given = {
                "forward": (jax.jit(f), arrays),
                "jvp": (jax.jit(lambda a, t: jax.jvp(f, a, t)[1]), (arrays, tangents)),
                "vjp": (jax.jit(lambda a, g: jax.vjp(f, *a)[1](g)), (arrays, g)),
            }[problem.direction]
            return Way(name, lambda: jax.block_until_ready(compiled(*given)), _read)

        return [way(name, f) for name, f in functions(jax, problem)]

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        jax = self.jax
        weights, x = list(map(jax.device_put, feed.weights)), jax.device_put(feed.x)
        f = problem.network.model.bind(lambda weights: Tools(jax, weights))

        def loss(weights: Sequence[Any], x: Any) -> Any:
            y = f(weights, x)
            return jax.numpy.mean(y * y)

        compiled = jax.jit(f if problem.direction == "forward" else jax.value_and_grad(loss))
        return [Way("", lambda: jax.block_until_ready(compiled(weights, x)), _read_network)]


def _read_network(value: Any) -> list[Any]:
    return [np.asarray(a) for a in ([value[0], *value[1]] if isinstance(value, tuple) else [value])]


class Tools:
    """JAX's operators."""

    def __init__(self, jax: Any, weights: Iterator[Any]) -> None:
        self.jax, self.weights = jax, weights

    def weight(self, *shape: int) -> Any:
        return next(self.weights)

    def conv(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        return _conv(self.jax.lax, _cube(w.ndim - 2, w.shape[2], stride, padding), groups)(x, w, b)

    def up(self, x: Any, w: Any, b: Any) -> Any:
        return _conv_transpose(self.jax.numpy, self.jax.lax, _cube(w.ndim - 2, w.shape[2], 2, 0), 1)(x, w, b)

    def max_pool(self, x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
        lax, d = self.jax.lax, x.ndim - 2
        pads = [(0, 0), (0, 0), *((padding, padding),) * d]
        return lax.reduce_window(x, -np.inf, lax.max, (1, 1, *(kernel,) * d), (1, 1, *(stride,) * d), pads)

    def average(self, x: Any) -> Any:
        return self.jax.numpy.mean(x, tuple(range(2, x.ndim)))

    def relu(self, x: Any) -> Any:
        return self.jax.nn.relu(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def concat(self, x: Any, y: Any) -> Any:
        return self.jax.numpy.concatenate([x, y], 1)

    def flatten(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    def scale_shift(self, x: Any, scale: Any, shift: Any) -> Any:
        return x * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


def _cube(d: int, kernel: int, stride: int, padding: int) -> Numbers:
    """A window that is the same along all axes."""
    return Numbers((kernel,) * d, (stride,) * d, (1,) * d, (padding,) * d, (padding,) * d, (0,) * d)


def _read(value: Any) -> list[Any]:
    return [np.asarray(a) for a in (value if isinstance(value, tuple) else (value,))]


Ways = Iterator[tuple[str, Function]]


class _Asked:
    """What JAX is asked: its modules, the numbers of the windows, and the sum or maximum of each."""

    def __init__(self, jax: Any, problem: Problem) -> None:
        self.jnp, self.lax, self.layer = jax.numpy, jax.lax, problem.layer
        self.options = problem.layer.options
        self.dtype = np.dtype(problem.dtype).type
        bins = self.layer.kind.windows == "bins"
        self.at = _divided(problem) if bins else numbers(problem)
        self.pads = list(zip(self.at.lo, self.at.hi, strict=True))

    def reduced(self, x: Any, start: float, f: Function) -> Any:
        """A window over the space of x, absent cells being `start`."""
        at, one = self.at, (1, 1)
        pads = [(0, 0), (0, 0), *self.pads]
        sizes = (one + at.kernel, one + at.stride, pads, None, one + at.dilation)
        return self.lax.reduce_window(x, self.dtype(start), f, *sizes)


def functions(jax: Any, problem: Problem) -> Ways:
    """Names and functions of the operands."""
    op, space = problem.layer.op, tuple(range(-problem.layer.d, 0))
    if op in WHOLE:
        named = getattr(jax.numpy, WHOLE[op])
        yield "", lambda x: named(x, space, keepdims=True)
    elif op in ADAPTERS:
        yield from ADAPTERS[op](_Asked(jax, problem))
    else:
        raise Absent(f"no adapter for {op}")


def _convolution(asked: _Asked) -> Ways:
    yield "", _conv(asked.lax, asked.at, asked.options.get("groups", 1))


def _transposed(asked: _Asked) -> Ways:
    yield "", _conv_transpose(asked.jnp, asked.lax, asked.at, asked.options.get("groups", 1))


def _maximum(asked: _Asked) -> Ways:
    yield "", lambda x: asked.reduced(x, -np.inf, asked.lax.max)


def _average(asked: _Asked) -> Ways:
    reduced, add = asked.reduced, asked.lax.add
    if asked.options.get("count_include_pad", True):
        yield "", lambda x: reduced(x, 0, add) / asked.dtype(prod(asked.at.kernel))
    else:
        yield "", lambda x: reduced(x, 0, add) / reduced(asked.jnp.ones_like(x), 0, add)


def _norm(asked: _Asked) -> Ways:
    p, jnp, add = asked.options["p"], asked.jnp, asked.lax.add
    if p == 2:
        yield "", lambda x: jnp.sqrt(asked.reduced(x * x, 0, add))
    else:
        yield "", lambda x: asked.reduced(jnp.abs(x) ** p, 0, add) ** asked.dtype(1 / p)


def _smooth_maximum(asked: _Asked) -> Ways:
    zeros = [(0, 0)] * (2 + asked.layer.d)
    if asked.options.get("count_include_pad", True):  # padding counts as cells of zero: make them so
        zeros[2:], asked.pads = asked.pads, zeros[2:]
    beta = asked.dtype(asked.options["beta"])
    yield from _smooth(asked.jnp, asked.lax, beta, lambda x: asked.jnp.pad(x, zeros), asked.reduced)


WHOLE = {"global_avg_pool": "mean", "global_max_pool": "max"}
ADAPTERS: dict[str, Callable[[_Asked], Ways]] = {
    "conv": _convolution,
    "conv_transpose": _transposed,
    "max_pool": _maximum,
    "avg_pool": _average,
    "smooth_max_pool": _smooth_maximum,
    "lp_pool": _norm,
    "adaptive_avg_pool": _average,
    "adaptive_max_pool": _maximum,
}


def _smooth(jnp: Any, lax: Any, beta: Any, padded: Function, reduced: Function) -> Ways:
    def shifted(x: Any) -> Any:
        m = lax.stop_gradient(jnp.max(x))
        return m + jnp.log(reduced(jnp.exp(beta * (padded(x) - m)), 0, lax.add)) / beta

    yield LOGADDEXP, lambda x: reduced(beta * padded(x), -np.inf, jnp.logaddexp) / beta
    yield "reduce_window(add) of exp, one shift", shifted


def _divided(problem: Problem) -> Numbers:
    """Adaptive bins as a sliding window, where they are one."""
    space, out = problem.layer.shapes[0][2:], problem.layer.resolved.out[2:]
    if any(n % m for n, m in zip(space, out, strict=True)):
        raise Absent("no adaptive pooling; a window does it only where the sizes divide")
    kernel = tuple(n // m for n, m in zip(space, out, strict=True))
    zero = (0,) * len(out)
    return Numbers(kernel, kernel, (1,) * len(out), zero, zero, zero)


def _conv(lax: Any, at: Numbers, groups: int) -> Function:
    pads = list(zip(at.lo, at.hi, strict=True))

    def conv(x: Any, w: Any, b: Any = None) -> Any:
        y = lax.conv_general_dilated(x, w, at.stride, pads, None, at.dilation, feature_group_count=groups)
        return y if b is None else y + b.reshape(-1, *(1,) * len(at.kernel))

    return conv


def _conv_transpose(jnp: Any, lax: Any, at: Numbers, groups: int) -> Function:
    """A convolution of the input with gaps between its cells; the weights flipped, their channels swapped."""
    span = [(k - 1) * a + 1 for k, a in zip(at.kernel, at.dilation, strict=True)]
    pads = [(s - 1 - lo, s - 1 - hi + more) for s, lo, hi, more in zip(span, at.lo, at.hi, at.more, strict=True)]
    d = len(at.kernel)

    def conv_transpose(x: Any, w: Any, b: Any = None) -> Any:
        inputs, outputs = w.shape[0] // groups, w.shape[1]
        flipped = jnp.flip(w, tuple(range(2, 2 + d))).reshape(groups, inputs, outputs, *at.kernel)
        swapped = jnp.swapaxes(flipped, 1, 2).reshape(groups * outputs, inputs, *at.kernel)
        y = lax.conv_general_dilated(x, swapped, (1,) * d, pads, at.stride, at.dilation, feature_group_count=groups)
        return y if b is None else y + b.reshape(-1, *(1,) * d)

    return conv_transpose
