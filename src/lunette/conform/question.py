"""A small network and a box: what is asked of a function that claims bounds, and what is true of it.

A case with mode "bounds" is its operator between layers (`before`, `after`) that one can add without knowing it; their
weights follow from its seed. x is the lower end of the box. Values are exact: on rationals, or on balls of 200 bits
where the operator has roots or exponentials. Which points are worth an exact value is found out in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, Final
from zlib import crc32

import flint
import numpy as np

from lunette.conform.allowance import is_analytic
from lunette.conform.case import Case
from lunette.conform.truth import BITS
from lunette.errors import LunetteError
from lunette.graph.differentiate import vjp
from lunette.graph.graph import Graph
from lunette.graph.jit import trace
from lunette.number import Array, Interval
from lunette.ops import ALL, conv
from lunette.ops.layout import flatten
from lunette.ops.linear import linear
from lunette.ops.unary import relu
from lunette.relax.bounds import bounds

OUTPUTS: Final = 3
"""Of the layer "linear"."""
CHANCE: Final = 24
"""Points of each kind that are drawn at random."""
MOST_STEERED: Final = 96
"""Outputs for which corners are looked for."""
MOST_EXACT: Final = 4
"""Points that are computed exactly, where the claim is nearest to be wrong, until one is outside."""
ROUGHLY: Final = 64
"""Units of rounding in a result with roots or exponentials, times its size: to tell rounding from what is wrong."""
CLEAR: Final = 1e-6
"""A float64 value that is inside by this share of the sizes around it needs no exact one."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A point of the box whose exact value is outside of what was claimed."""

    cell: tuple[int, ...]
    value: Any
    """A Fraction, or a ball."""
    lo: float
    hi: float
    point: Array

    @property
    def by(self) -> float:
        """How far outside, at least."""
        if isinstance(self.value, flint.arb):
            below, above = flint.arb(self.lo) - self.value, self.value - flint.arb(self.hi)
            return max(float(below.lower()), float(above.lower()))
        return float(max(Fraction(self.lo) - self.value, self.value - Fraction(self.hi)))

    def __str__(self) -> str:
        at = ", ".join(map(str, self.cell))
        point = np.array2string(self.point, separator=", ", threshold=64).replace("\n", "")
        value = self.value.str(20, radius=False) if isinstance(self.value, flint.arb) else _short(self.value)
        return f"y[{at}] is {value}, outside of {self.lo!r} to {self.hi!r}, at x = {point}"


def _short(value: Fraction) -> str:
    """A fraction, or a decimal number if that is shorter."""
    return str(value) if len(str(value)) <= 24 else f"{float(value)!r} (rounded)"


class Question:
    """The network and the box of a case.

    >>> q = Question(Case("max_pool", ((1, 1, 3),), {"kernel": (2,), "stride": (1,)}, mode="bounds",
    ...                   values=((0, 1, 0), (2, 0, 1))))
    >>> q.lo, q.hi
    (array([[[0., 1., 0.]]], dtype=float32), array([[[2., 1., 1.]]], dtype=float32))
    >>> print(q.graph)
    %0 : f32[1,1,3] = input("x")
    %1 : f32[1,1,2] = max_pool(%0, kernel=(2,), stride=(1,))
    return %1
    >>> q.excluded([[[1, 1]]], [[[2, 1]]])
    >>> print(q.excluded([[[1, 1]]], [[[1.5, 1]]]))
    y[0, 0, 0] is 2, outside of 1.0 to 1.5, at x = [[[2., 1., 1.]]]
    """

    def __init__(self, case: Case) -> None:
        data = case.arrays()
        self.case = case
        self.lo: Array = data.primals[0]
        self.hi: Array = self.lo + np.abs(data.tangents[0])
        self.weights = data.primals[1:]
        self.shape = self.graph.nodes[self.graph.outputs[0]].shape

    # ---- the network

    def network(self, x: Any, dtype: Any = None) -> Any:
        """Its value at one sample or several, in the case's dtype or another one."""
        case = self.case
        rng = np.random.default_rng([case.seed, crc32(f"layers {case.data}".encode())])
        kind = self.lo.dtype if dtype is None else np.dtype(dtype)

        def weights(*shape: int) -> Array:
            whole = rng.integers(-2, 3, shape).astype(self.lo.dtype)  # drawn in any case: both use up the same numbers
            share = (rng.standard_normal(shape) / np.sqrt(max(prod(shape[1:]), 1))).astype(self.lo.dtype)
            return np.asarray(share if case.data == "normal" else whole).astype(kind)

        for name in case.before:
            x = LAYERS[name](x, weights, case.d)
        x = ALL[case.kind](x, *(w.astype(kind) for w in self.weights), **case.options)
        for name in case.after:
            x = LAYERS[name](x, weights, max(len(x.shape) - 2, 0))
        return x

    @cached_property
    def graph(self) -> Graph:
        """The network as a graph of one sample."""
        return trace(lambda x: self.network(x), self.lo)

    @property
    def box(self) -> Interval:
        """All points between the two ends."""
        return Interval(self.lo, self.hi)

    @cached_property
    def onnx(self) -> bytes:
        """The network as a model in ONNX's format."""
        from lunette.onnx import to_onnx

        model: bytes = to_onnx(self.graph).SerializeToString()
        return model

    @cached_property
    def module(self) -> Any:
        """The network as a torch.nn.Module."""
        from lunette.conform.module import as_module

        return as_module(self.graph)

    # ---- the truth

    def value(self, x: Array) -> Any:
        """The exact output at a point whose cells are floats: Fractions, or balls."""
        before: Any = flint.ctx.prec
        flint.ctx.prec = BITS[0]
        try:
            return self.graph.eval(x.astype(object), number=flint.arb if is_analytic(self.case.kind) else Fraction)
        finally:
            flint.ctx.prec = before

    @cached_property
    def points(self) -> Array:
        """Float64 points of the box, (number, *sample): ends, ties, corners that steer an output, and any."""
        rng = np.random.default_rng([self.case.seed, crc32(b"points")])
        lo, hi = self.lo[0].astype(np.float64), self.hi[0].astype(np.float64)
        ends = np.stack([lo, hi, lo / 2 + hi / 2])
        some = (CHANCE, *lo.shape)
        shares = np.concatenate([rng.integers(0, 2, some), rng.random(some), rng.random(some) < 0.1])
        mixed = np.clip(lo + (hi - lo) * shares, lo, hi)
        levels = np.unique(np.concatenate([[0.0], np.quantile(np.concatenate([lo, hi]), np.linspace(0, 1, 9))]))
        ties = np.stack([np.clip(level, lo, hi) for level in levels])  # cells that can be equal are
        return np.concatenate([ends, mixed, ties, *self._steered(lo, hi)])

    def _steered(self, lo: Array, hi: Array) -> list[Array]:
        """For each output, the corners where its derivative, at the centre and then there, says it is least or most."""
        cells = prod(self.shape)
        chosen = np.linspace(0, cells - 1, min(cells, MOST_STEERED)).astype(int)
        up = np.zeros((len(chosen), cells))
        up[np.arange(len(chosen)), chosen] = 1
        cotangent = np.concatenate([up, -up]).reshape(2 * len(chosen), *self.shape[1:])
        at = np.broadcast_to(lo / 2 + hi / 2, (len(cotangent), *lo.shape))
        corners = []
        for _ in range(2):
            with np.errstate(all="ignore"):  # a root has no derivative at zero
                _, pullback = vjp(lambda x: self.network(x, np.float64), np.ascontiguousarray(at))
                (slope,) = pullback(cotangent)
            at = np.where(slope > 0, hi, np.where(slope < 0, lo, at))
            corners.append(at)
        return corners

    @cached_property
    def values(self) -> Array:
        """The output at each of the points, in float64."""
        with np.errstate(all="ignore"):
            return np.asarray(self.network(self.points, np.float64))

    def excluded(self, lo: Any, hi: Any) -> Excluded | None:
        """A point whose exact value is outside of bounds, where it seems to be farthest; None if there is none."""
        low, high = (np.asarray(end, np.float64).reshape(self.shape[1:]) for end in (lo, hi))
        room = np.minimum(self.values - low, high - self.values)  # below 0 it is outside
        near: Any = (room < CLEAR * (1 + np.abs(self.values))).reshape(len(room), -1).any(1)
        least = np.where(near, room.reshape(len(room), -1).min(1), np.inf)
        for at in np.argsort(least, kind="stable")[:MOST_EXACT]:
            if near[at] and (found := self._outside(self.points[at], low, high)) is not None:
                return found
        return None

    def _outside(self, x: Array, low: Array, high: Array) -> Excluded | None:
        exact = self.value(x[None])
        worst: Excluded | None = None
        for cell in np.ndindex(*self.shape):
            found = Excluded(cell, exact[cell], float(low[cell[1:]]), float(high[cell[1:]]), x[None])
            if is_outside(found.value, found.lo, found.hi) and (worst is None or found.by > worst.by):
                worst = found
        return worst

    def rounding(self, cell: tuple[int, ...]) -> float:
        """How far an execution of the network in its dtype may be off at an output; roughly where no rule says it."""
        real = bounds(self.graph, self.box, method="interval")
        try:
            float_ = bounds(self.graph, self.box, method="interval", semantics="float")
        except LunetteError:  # roots, exponentials
            return float(ROUGHLY * np.finfo(self.lo.dtype).eps * max(abs(real.lo[cell]), abs(real.hi[cell])))
        return float(max(float_.hi[cell] - real.hi[cell], real.lo[cell] - float_.lo[cell]))


def is_outside(value: Any, lo: float, hi: float) -> bool:
    """Whether an exact number, or every number of a ball, is outside; an infinite end excludes nothing."""
    if isinstance(value, flint.arb):
        return bool(value < flint.arb(lo)) or bool(value > flint.arb(hi))
    return bool(np.isfinite(lo) and value < Fraction(lo)) or bool(np.isfinite(hi) and value > Fraction(hi))


# ---- layers


Weights = Callable[..., Array]


def _convolved(x: Any, weights: Weights, d: int) -> Any:
    """As many channels and cells as before; a plain row of numbers has none of them."""
    return conv(x, weights(x.shape[1], x.shape[1], *(3,) * d), weights(x.shape[1]), padding=1) if d else x


def _linear(x: Any, weights: Weights, d: int) -> Any:
    flat = flatten(x)
    return linear(flat, weights(OUTPUTS, flat.shape[1]), weights(OUTPUTS))


LAYERS: Final[Mapping[str, Callable[[Any, Weights, int], Any]]] = {
    "relu": lambda x, weights, d: relu(x),
    "conv": _convolved,
    "residual": lambda x, weights, d: x + _convolved(x, weights, d),
    "linear": _linear,
}
"""What may stand before and after the operator: each takes what there is, and "linear" gives a row of numbers."""
