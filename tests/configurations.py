"""Random small problems for any operator: a seed in, shapes and options out."""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.array import resolve_named
from lunette.errors import LunetteError
from lunette.op import Case, Op


def random_case(kind: type[Op], seed: int) -> Case:
    """The first of an endless row of guesses that the operator accepts."""
    rng = np.random.default_rng(seed)
    while True:
        case = _guess(kind, rng)
        try:
            resolve_named(kind.name, case.shapes, case.options, lead=1)
        except LunetteError:
            continue
        return case


def _guess(kind: type[Op], rng: np.random.Generator) -> Case:
    d = int(rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))
    most = {0: 1, 1: 40, 2: 12, 3: 6, 4: 4}[d]
    space = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.05 else 1, most + 1, d))

    def ints(low: int, high: int) -> Any:
        return tuple(int(v) for v in rng.integers(low, high + 1, d))

    channels = int(rng.choice([0, 1, 1, 2, 3, 5]))
    options: dict[str, Any] = {}
    if "adaptive" in kind.name:
        options["output_size"] = tuple(None if rng.random() < 0.1 else int(m) for m in rng.integers(1, most + 3, d))
    elif "global" in kind.name:
        options |= {"keepdims": bool(rng.random() < 0.5), "spatial": d}
    else:
        kernel = ints(1, 5)
        options |= {"stride": ints(1, 4), "dilation": ints(1, 3) if rng.random() < 0.4 else 1}
        pads = tuple(zip(ints(0, 3), ints(0, 3), strict=True))
        options["padding"] = (
            0 if rng.random() < 0.3 else pads if rng.random() < 0.8 else str(rng.choice(["same", "same_lower"]))
        )
        if "pool" in kind.name:
            options["kernel"] = kernel
            options["ceil_mode"] = bool(rng.random() < 0.4)
        else:
            return _convolution(kind, rng, (channels, *space), kernel, options)
    if "max_pool" in kind.name and "smooth" not in kind.name:
        options["ties"] = str(rng.choice(["first", "all", "split"]))
    if kind.name in ("avg_pool", "smooth_max_pool"):
        options["count_include_pad"] = bool(rng.random() < 0.6)
    if kind.name == "avg_pool" and rng.random() < 0.2:
        options["divisor"] = float(rng.choice([3, -2, 0.75]))
    if kind.name == "lp_pool":
        options["p"] = float(rng.choice([1, 1.5, 2, 3, np.inf]))
    return Case(((channels, *space), ()) if kind.scalars else ((channels, *space),), options)


def _convolution(
    kind: type[Op], rng: np.random.Generator, x: tuple[int, ...], kernel: Any, options: dict[str, Any]
) -> Case:
    groups = int(rng.choice([1, 1, 2, 3]))
    ins, outs = x[0] * groups, int(rng.integers(0, 4)) * groups
    first, second = (ins, outs // groups) if "transpose" in kind.name else (outs, ins // groups)
    if "transpose" in kind.name and rng.random() < 0.3 and not isinstance(options["padding"], str):
        options["output_padding"] = tuple(int(v) for v in rng.integers(0, 3, len(x) - 1))
    shapes: tuple[tuple[int, ...], ...] = ((ins, *x[1:]), (first, second, *kernel))
    return Case((*shapes, (outs,)) if rng.random() < 0.6 else shapes, {**options, "groups": groups})
