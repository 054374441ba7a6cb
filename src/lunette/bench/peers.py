"""What an adapter is: it turns a problem into calls of one library, on data that is the library's already.

Forward is a plain call. The JVP is asked of the library's forward mode, which in PyTorch computes the value as well.
The VJP is the backward pass alone: PyTorch's graph is built outside the timed call and kept, so that its stored
indices and values are free; lunette and JAX get no such help and find everything again from x.
Of a whole network the gradient is forward and backward together, for everyone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import lunette as ln
from lunette.array import lookup
from lunette.bench.cases import Data, Problem
from lunette.bench.networks import Feed, NetworkProblem, network_call, network_results
from lunette.number import Array
from lunette.window import Axis, Transposed


class Absent(Exception):  # noqa: N818 (an answer, not an error)
    """A library does not define a problem; says why."""


@dataclass(frozen=True)
class Way:
    """One way to compute it: the timed call, and how to read what it returns."""

    name: str
    call: Callable[[], Any]
    read: Callable[[Any], Sequence[Array]]


class Peer(ABC):
    """One library. `ways` are alternatives; the fastest that is right counts."""

    name: ClassVar[str]
    package: ClassVar[str]
    layers: ClassVar[bool] = True
    networks: ClassVar[bool] = True
    """Whether it takes part in them at all."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.start()

    def start(self) -> None:
        """Import the library and give it its threads."""
        importlib.import_module(self.package)

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package)

    @abstractmethod
    def ways(self, problem: Problem, data: Data) -> list[Way]:
        """At least one, or `Absent`."""

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        """The same for a whole network: its output, or the value and the gradients of the weights in one list."""
        raise Absent("no adapter for networks")


@dataclass(frozen=True)
class Numbers:
    """The window of a problem as plain numbers, one entry per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    more: tuple[int, ...]
    """output_padding"""

    @property
    def padding(self) -> tuple[int, ...]:
        """For libraries that pad both ends alike."""
        if self.lo != self.hi:
            raise Absent("pads both ends alike only")
        return self.lo


def numbers(problem: Problem) -> Numbers:
    """The sliding or transposed window of this problem."""
    axes: Sequence[Any] = problem.layer.resolved.op.window.axes  # type: ignore[attr-defined]
    assert all(isinstance(a, Axis | Transposed) for a in axes)
    names = ("kernel", "stride", "dilation", "lo", "hi", "output_padding")
    return Numbers(*(tuple(getattr(a, n, 0) for a in axes) for n in names))


def reason(error: BaseException) -> str:
    """The first line of what a library said that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("Exception from", "Check '")  # OpenVINO begins with places in its source
    text = next((line for line in lines if line and not line.startswith(noise)), "") or " ".join(lines)
    return text[:160] if isinstance(error, Absent) else f"{type(error).__name__}: {text}"[:160]


# ---- lunette, and the memory


class Lunette(Peer):
    """NumPy arrays in and out."""

    name = "lunette"
    package = "lunette"

    def start(self) -> None:
        ln.set_num_threads(self.threads)

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        return [Way("", call_of(problem, data), results)]

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        return [Way("", network_call(problem, feed), network_results)]


def results(value: Any) -> Sequence[Array]:
    """One result or several, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def call_of(problem: Problem, data: Data) -> Callable[[], Any]:
    """The call that a user of lunette would write."""
    layer, options = problem.layer, problem.layer.options
    function, _ = lookup(layer.op)
    if problem.direction == "jvp":
        jvp = getattr(ln, f"{layer.op}_jvp")
        return lambda: jvp(data.arrays, data.tangents, **options)
    if problem.direction == "vjp":
        vjp = getattr(ln, f"{layer.op}_vjp")
        return lambda: vjp(data.arrays, data.g, **options)
    return lambda: function(*data.arrays, **options)


class Copy(Peer):
    """The physical limit of a pool: the time to copy the input, on one thread."""

    name = "copy"
    package = "numpy"
    networks = False

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        x, y = data.arrays[0], np.empty_like(data.arrays[0])
        return [Way("", lambda: np.copyto(y, x), lambda _: ())]
