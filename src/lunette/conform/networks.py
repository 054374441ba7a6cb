"""Networks to bound: the problems of an operator, alone and between layers, at random and at the edges of its rules.

Every problem is one sample, has cells, and its boxes are finite: a box of NaN has no values to be outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Final
from zlib import crc32

import numpy as np

from lunette.conform.backends.backend import Space
from lunette.conform.case import Case
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed
from lunette.ops.chance import Rng
from lunette.window import Shape

BEFORE: Final = ((), (), ("conv",), ("relu",), ("conv", "relu"), ("residual", "relu"))
AFTER: Final = ((), (), ("relu",), ("linear",), ("relu", "linear"), ("relu", "residual"), ("conv", "relu", "linear"))
DATA: Final = ("integers", "normal", "ties", "zeros")
SMALLEST: Final = (
    ((), (), "integers"),
    ((), (), "normal"),
    ((), ("conv", "relu", "linear"), "integers"),
    (("conv", "relu"), (), "normal"),
)
"""Layers around the operator, and data, of the corners."""
MOST_CELLS: Final = 160
"""Of the input or the output: exact values take their time."""
TRIES: Final = 40


def is_network(case: Case) -> bool:
    """Whether it is one sample with cells, not too many, and every window has some."""
    out = case.output
    if out is None or case.misses or case.batch != (1,):
        return False
    sizes = [int(np.prod(s)) for s in (*case.shapes, out)]
    return all(sizes) and max(sizes[0], sizes[-1]) <= MOST_CELLS


def one_sample(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The first of the samples."""
    return ((1, *shapes[0][1:]), *shapes[1:])


def draw_network(op: str, rng: Rng, space: Space) -> Case:
    """A problem that the operator draws itself, and layers around it."""
    d = int(rng.choice(space.ranks))
    for _ in range(TRIES):
        drawn = KINDS[op].draw(rng, d, space)
        options = {n: v for n, v in drawn.options.items() if n in parameters_of(ALL[KINDS[op]]) and n != "ties"}
        case = Case(op, one_sample(drawn.shapes), options, mode="bounds")
        if is_network(case):
            break
    before, after = BEFORE[rng.integers(len(BEFORE))], AFTER[rng.integers(len(AFTER))]
    return replace(
        case,
        dtype=str(rng.choice(space.dtypes)),
        data=str(rng.choice(DATA, p=(0.4, 0.3, 0.2, 0.1))),
        seed=int(rng.integers(2**31)),
        before=before,
        after=after,
    )


def network_corners(op: str, space: Space, seed: int) -> Iterator[Case]:
    """Every kind of window, one option at a time, alone and in the smallest networks."""
    rng = np.random.default_rng([seed, crc32(f"networks {op}".encode())])
    for shapes, options in windows(KINDS[op], space):
        for before, after, data in SMALLEST:
            case = Case(op, shapes, options, data=data, mode="bounds", seed=int(rng.integers(2**31)))
            case = replace(case, before=before, after=after)
            if is_network(case):
                yield case


def windows(kind: type[Windowed], space: Space) -> Iterator[tuple[tuple[Shape, ...], dict[str, Any]]]:
    """One channel or two of 4 to 5 cells on an axis, under windows that differ in one option."""
    for d in space.ranks:
        n = (5, 4, 3)[d - 1] if d <= 3 else 2
        if not kind.slides() and not kind.weighted:
            yield from ((one_sample(c.shapes), dict(c.options)) for c in [kind.one_window((1, 2, *(n,) * d))])
            continue
        plain: dict[str, Any] = {} if kind.weighted else {"kernel": (2,) * d, **kind.needed}
        channels = [((1, 2), (2, 2)), ((1, 2), (2, 1))] if kind.weighted else [((1, 2), ())]
        for (x, w), option in product(channels, OPTIONS):
            spread = {name: _spread(name, value, d) for name, value in option.items()}
            groups = {"groups": 2} if w == (2, 1) else {}
            had = {k: v for k, v in (plain | groups | spread).items() if k in parameters_of(ALL[kind])}
            if had == plain | groups and option:
                continue  # it has no such option
            yield (((*x, *(n,) * d), *(((*w, *(2,) * d),) if w else ())), had)


OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"padding": 1},
    {"padding": 1, "count_include_pad": False},
    {"divisor": 3},
    {"stride": 1},
    {"stride": 1, "padding": 1},
    {"stride": 3},
    {"stride": 3, "ceil_mode": True},
    {"stride": 3, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    {"dilation": 2, "padding": 1},
    {"kernel": 3, "stride": 2, "padding": 1},
    {"stride": 2, "output_padding": 1},
)


def _spread(name: str, value: Any, d: int) -> Any:
    """One entry per axis, padding in pairs."""
    if name == "padding":
        return ((value, value),) * d
    return (value,) * d if name in ("kernel", "stride", "dilation", "output_padding") else value


def fewer_layers(case: Case) -> Iterator[Case]:
    """Without one of its layers, the last of them first."""
    for at in range(len(case.after) - 1, -1, -1):
        yield replace(case, after=(*case.after[:at], *case.after[at + 1 :]))
    for at in range(len(case.before)):
        yield replace(case, before=(*case.before[:at], *case.before[at + 1 :]))
