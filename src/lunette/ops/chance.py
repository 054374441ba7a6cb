"""Random problems: what rooms draw their shapes and options from.

Conformance runs, Hypothesis strategies and tests ask an operator for problems (`Windowed.draw`). A generator in the
same state draws the same ones, so the order of the draws is part of what a seed means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.window import Shape

if TYPE_CHECKING:
    Rng = np.random.Generator
else:  # NumPy loads its generators when they are asked for, which takes half as long as NumPy itself
    Rng = Any
SIZES = {0: 1, 1: 14, 2: 7, 3: 5, 4: 3}
"""The greatest spatial size by rank: small enough for exact arithmetic, large enough for every rule to matter."""
OMIT: Any = object()
"""What a draw says by leaving its option out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What not to draw: what the one who is asked cannot do is better not drawn than refused."""

    ties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tie rules of an operator, by its name; all of them if it is not there."""
    symmetric: bool = False
    """Padding is the same at both ends."""
    half_padded: bool = False
    """The padding of a pool is at most half of its kernel."""
    unpadded: tuple[str, ...] = ()
    """Operators without padding."""
    undilated: tuple[str, ...] = ()
    """Operators without dilation."""
    norms: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, float("inf"))
    divisors: bool = True
    named_padding: bool = True


Draw = Callable[[str, Rng, int, Limits], Any]
"""(the operator's name, a generator, the number of spatial axes, limits) -> the value of one option, or OMIT."""


# ---- shapes


def ints(rng: Rng, d: int, low: int, high: int) -> tuple[int, ...]:
    """One integer per axis."""
    return tuple(int(v) for v in rng.integers(low, high + 1, d))


def lead(rng: Rng) -> Shape:
    """Batch and channels; now and then one of them is empty."""
    return tuple(0 if rng.random() < 0.02 else int(rng.choice([1, 1, 2, 3])) for _ in range(2))


def sizes(rng: Rng, d: int) -> Shape:
    """Spatial sizes; now and then some are empty."""
    low = 0 if rng.random() < 0.02 else 1
    return ints(rng, d, low, SIZES[d])


# ---- options


def padding(rng: Rng, limits: Limits, kernel: Shape, *, pool: bool) -> Any:
    """None, a name, or cells at both ends of every axis."""
    what = rng.random()
    if what < 0.3:
        return 0
    if what < 0.4 and limits.named_padding:
        return str(rng.choice(["same", "same_lower", "valid"]))
    lo = [int(rng.integers((k // 2 if limits.half_padded and pool else min(k, 3)) + 1)) for k in kernel]
    hi = lo if limits.symmetric or rng.random() < 0.4 else [int(rng.integers(min(k, 3) + 1)) for k in kernel]
    return tuple(zip(lo, hi, strict=True))


def often(op: str, rng: Rng, d: int, limits: Limits) -> bool:
    """True more often than not."""
    return bool(rng.random() < 0.6)


def ties(op: str, rng: Rng, d: int, limits: Limits) -> str:
    """One of the rules that there are."""
    return str(rng.choice(limits.ties.get(op, ("first", "all", "split"))))


def one_of(*values: float) -> Draw:
    """One of these numbers."""
    return lambda op, rng, d, limits: float(rng.choice(values))


def options(draws: Mapping[str, Draw], op: str, rng: Rng, d: int, limits: Limits) -> dict[str, Any]:
    """Those of an operator that its windows do not tell."""
    drawn = {name: draw(op, rng, d, limits) for name, draw in draws.items()}
    return {name: value for name, value in drawn.items() if value is not OMIT}
