"""Where windows reach: which output cells read some input cells, or reach over the border."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lunette.array import output_shape, vjp_of
from lunette.conform.case import Case, Data
from lunette.errors import LunetteError
from lunette.number import Array
from lunette.ops import (
    ALL,
    AdaptiveAvgPool,
    AvgPool,
    GlobalAvgPool,
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_avg_pool,
    global_max_pool,
    lp_pool,
)

WINDOW = ("kernel", "stride", "padding", "dilation", "ceil_mode")


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong array."""

    name: str
    got: Array
    right: Array
    """The truth, rounded to the dtype."""
    wrong: Array
    """Where they differ."""
    size: Array


def all_hold(case: Case, fault: Fault, cells: Array) -> bool:
    """Every wrong cell has one of these cells in its window; of a VJP, in a window that reads it."""
    return bool(cells.any()) and bool(_concerned(case, fault, cells)[fault.wrong].all())


def some_hold(case: Case, fault: Fault, cells: Array) -> bool:
    """Some wrong cell has."""
    return bool(cells.any()) and bool(_concerned(case, fault, cells)[fault.wrong].any())


def _concerned(case: Case, fault: Fault, cells: Array) -> Array:
    """The cells of the answer whose value may depend on one of these cells of x; of a sum's VJP all of them."""
    if case.mode != "vjp":
        return touched(case, cells)
    return np.ones_like(fault.wrong) if case.kind.weighted else read_by(case, touched(case, cells))


def read_by(case: Case, outputs: Array) -> Array:
    """The input cells that the windows of these output cells hold."""
    x, g = np.ones(case.shapes[0]), outputs.astype(np.float64)
    if case.kind.windows == "sliding":
        options = {n: v for n, v in case.options.items() if n in WINDOW}
        return np.asarray(vjp_of(avg_pool, AvgPool)((x,), g, **options, count_include_pad=False)[0] > 0)
    bins = case.kind.windows == "bins"
    options = {n: v for n, v in case.options.items() if n in ("output_size", "spatial", "keepdims")}
    back = vjp_of(adaptive_avg_pool, AdaptiveAvgPool) if bins else vjp_of(global_avg_pool, GlobalAvgPool)
    return np.asarray(back((x,), g, **options)[0] > 0)


def touched(case: Case, cells: Array) -> Array:
    """The output cells whose window holds one of these cells."""
    marks = cells.astype(np.float64)
    if case.kind.weighted:
        reached = ALL[case.kind](marks, np.ones(case.shapes[1]), **case.options)
    elif case.kind.windows == "sliding":
        reached = lp_pool(marks, **{n: v for n, v in case.options.items() if n in WINDOW}, p=np.inf)
    else:
        plain = {n: v for n, v in case.options.items() if n in ("output_size", "spatial", "keepdims")}
        reached = (adaptive_max_pool if case.kind.windows == "bins" else global_max_pool)(marks, **plain)
    return np.asarray(reached > 0)


def cells_at(data: Data, index: Array) -> Array:
    """The cells of x at places of its planes; places outside hold what nothing equals."""
    x = data.primals[0].astype(np.float64)
    batch = 2  # batch and channels
    rows, places = x.reshape(*x.shape[:batch], -1), index.astype(np.int64).reshape(*x.shape[:batch], -1)
    inside = (places >= 0) & (places < rows.shape[-1])
    found = np.take_along_axis(rows, np.where(inside, places, 0), -1)
    return np.where(inside, found, np.inf).reshape(index.shape)


def border(case: Case) -> Array:
    """The output cells whose window reaches over the border of the input."""
    assert case.output is not None
    shape = case.output
    if not over_the_border(case):
        return np.zeros(shape, bool)
    if case.kind.windows == "transposed":
        return np.ones(shape, bool)
    options = {n: v for n, v in case.options.items() if n in ("stride", "padding", "dilation", "ceil_mode")}
    kernel = case.per_axis("kernel")
    options["stride"] = case.per_axis("stride")
    count = avg_pool(np.ones((1, *case.space)), kernel, **options, divisor=1)
    return np.broadcast_to((count < prod(kernel))[0], shape)


def over_the_border(case: Case) -> bool:
    """Whether there is padding or overhang at all."""
    if case.options.get("padding", 0) in ("same", "same_lower"):
        return True
    pads: Any = case.options.get("padding", 0)
    if pads != "valid" and np.any(np.asarray(pads)):
        return True
    if not case.options.get("ceil_mode"):
        return False
    floor = {**case.options, "ceil_mode": False}
    try:
        return output_shape(case.op, *case.shapes, **floor) != case.output
    except LunetteError:
        return True
