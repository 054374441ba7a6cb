"""Whole networks as problems, and how lunette computes them.

Forward is a program with the weights as constants, as for inference. The gradient is the value and the derivatives in
all weights of the mean of the squared output, with the weights as arguments, as for training. "derivatives" is lunette
beside itself: forward with the weights as arguments, both JVPs and the gradient, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

import lunette as ln
from lunette.bench.cases import matches
from lunette.bench.models import MODELS, Model
from lunette.graph.program import Program
from lunette.number import Array
from lunette.window import Shape

DIRECTIONS = ("forward", "gradient", "derivatives")
JVP_X, JVP_ALL, GRADIENT = "JVP in x", "JVP in all", "value and gradient"
"""What is timed beside forward in "derivatives"."""


@dataclass(frozen=True)
class Network:
    """A model at one batch size."""

    op: ClassVar[str] = "network"

    model: Model
    batch: int
    tags: frozenset[str] = frozenset()
    shapes: tuple[Shape, ...] = field(init=False)
    out: Shape = field(init=False)

    def __post_init__(self) -> None:
        out, found = self.model.recorded(self.batch)
        object.__setattr__(self, "shapes", ((self.batch, *self.model.sample), *found.shapes))
        object.__setattr__(self, "out", out)

    @property
    def d(self) -> int:
        return len(self.model.sample) - 1

    @property
    def name(self) -> str:
        return f"{self.model.name}/b{self.batch}"

    def data(self) -> Feed:
        """The same numbers for everyone."""
        return Feed(self.model.weights(), self.model.input(self.batch))

    def operations(self, direction: str) -> int:
        """Forward, and as much again for each of the two derivatives of a product."""
        return self.model.recorded(self.batch)[1].operations * (3 if direction == "gradient" else 1)

    def shrunk(self) -> Network:
        """The same network on the smallest images, a batch of two: for tests of the adapters."""
        return replace(self, model=replace(self.model, sample=self.model.least), batch=2)


@dataclass(frozen=True)
class Feed:
    """What goes into a network."""

    weights: list[Array]
    x: Array


@dataclass(frozen=True)
class NetworkProblem:
    """What one figure is about."""

    network: Network
    direction: str
    dtype: str = "float32"

    @property
    def title(self) -> str:
        return f"network {self.direction} {self.network.name}"


NETWORKS = tuple(
    Network(m, b, frozenset({"quick"} if b == 1 and m.name in ("lenet", "unet") else ()))
    for m in MODELS
    for b in (1, 32)
)


def select(pattern: str | None = None, quick: bool = False) -> list[Network]:
    """The networks whose name matches: a shell pattern, or a part of `network/name`."""
    return [n for n in NETWORKS if (not quick or "quick" in n.tags) and matches(n.op, n.name, pattern)]


# ---- lunette


class Tools:
    """lunette's operators."""

    def __init__(self, weights: Iterator[Any]) -> None:
        self.weights = weights

    def weight(self, *shape: int) -> Any:
        return next(self.weights)

    def conv(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        return ln.conv(x, w, b, stride=stride, padding=padding, groups=groups)

    def up(self, x: Any, w: Any, b: Any) -> Any:
        return ln.conv_transpose(x, w, b, stride=2)

    def max_pool(self, x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
        return ln.max_pool(x, kernel, stride=stride, padding=padding)

    def average(self, x: Any) -> Any:
        return ln.global_avg_pool(x, keepdims=False)

    def relu(self, x: Any) -> Any:
        return ln.relu(x)

    def add(self, x: Any, y: Any) -> Any:
        return ln.add(x, y)

    def concat(self, x: Any, y: Any) -> Any:
        return ln.concat([x, y], 1)

    def flatten(self, x: Any) -> Any:
        return ln.flatten(x)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return ln.linear(x, w, b)

    def scale_shift(self, x: Any, scale: Any, shift: Any) -> Any:
        return ln.add(ln.mul(x, ln.reshape(scale, (-1, 1, 1))), ln.reshape(shift, (-1, 1, 1)))


def loss(network: Network) -> Callable[[Sequence[Any], Any], Any]:
    """The mean of the squared output, as a function of weights and input."""
    f = network.model.bind(Tools)

    def mean_of_squares(weights: Sequence[Any], x: Any) -> Any:
        y = f(weights, x)
        return ln.mean(ln.mul(y, y))

    return mean_of_squares


def compiled(network: Network, feed: Feed) -> Program:
    """Forward, with the weights as constants."""
    f = network.model.bind(Tools)
    return ln.trace(lambda x: f(feed.weights, x), feed.x).compile()


def network_call(problem: NetworkProblem, feed: Feed) -> Callable[[], Any]:
    """The call that a user of lunette would write."""
    if problem.direction == "forward":
        program = compiled(problem.network, feed)
        return lambda: program(feed.x)
    both = ln.jit(ln.value_and_grad(loss(problem.network)))
    return lambda: both(feed.weights, feed.x)


def network_results(value: Any) -> list[Array]:
    """The output; or the value and the gradients, in one list."""
    return [value[0], *value[1]] if isinstance(value, tuple) else [value]


def derivatives(network: Network, feed: Feed) -> Mapping[str, Callable[[], Any]]:
    """Forward and its derivatives, with the weights as arguments."""
    program = ln.trace(network.model.bind(Tools), feed.weights, feed.x).compile()
    primals = (*feed.weights, feed.x)
    rng = np.random.default_rng(3)
    tangents = tuple(rng.standard_normal(a.shape, np.float32) for a in primals)
    only_x = (*(None for _ in feed.weights), tangents[-1])
    both = ln.jit(ln.value_and_grad(loss(network)))
    return {
        "lunette": lambda: program(*primals),
        JVP_X: lambda: program.jvp(primals, only_x),
        JVP_ALL: lambda: program.jvp(primals, tangents),
        GRADIENT: lambda: both(feed.weights, feed.x),
    }
