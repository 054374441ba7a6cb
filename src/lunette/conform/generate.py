"""Cases over the whole space of an operator: drawn at random from a seed, and the corners that chance would miss.

A batch is a pure function of its fields, so that any process on any machine draws the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any
from zlib import crc32

import numpy as np

from lunette.conform.backends.backend import Backend, Space
from lunette.conform.case import Case
from lunette.conform.result import Batch
from lunette.window import Shape

Rng = np.random.Generator
SIZES = {0: 1, 1: 14, 2: 7, 3: 5, 4: 3}
"""The greatest spatial size by rank: small enough for exact arithmetic, large enough for every rule to matter."""
DATA_WEIGHTS = {
    "integers": 30,
    "normal": 16,
    "ties": 8,
    "nan": 9,
    "infinite": 7,
    "lowest": 4,
    "zeros": 4,
    "subnormal": 3,
    "cancelling": 5,
    "huge": 4,
    "large": 4,
    "small": 3,
    "ones": 3,
}
BATCH = 50
"""Cases per batch: few enough to be lost, many enough to be worth a process."""
ANSWERS = ("forward", "indices", "jvp", "vjp")


def draws(batch: Batch, backend: Backend) -> Iterator[tuple[Case, str | None]]:
    """The cases of a batch, each with the reason why it is not asked, or None.

    Unsupported draws do not count, up to three for each that does.
    """
    space = narrowed(backend.space, batch.modes)
    if batch.index <= 0:
        first = -batch.index * BATCH
        chosen = some_corners(batch.op, space, batch.seed, batch.corners)[first : first + batch.cases]
        for case in map(backend.fitted, chosen):
            yield case, backend.supports(case)
        return
    asked = 0
    rng = np.random.default_rng([batch.seed, batch.index, crc32(batch.op.encode())])
    for case in map(backend.fitted, islice(_random(batch.op, space, rng), 4 * batch.cases)):
        reason = backend.supports(case)
        yield case, reason
        asked += reason is None
        if asked == batch.cases:
            return


def narrowed(space: Space, modes: Sequence[str]) -> Space:
    """Only these modes, or all of them."""
    return replace(space, modes=tuple(m for m in space.modes if m in modes)) if modes else space


def plan(backend: Backend, ops: Sequence[str], cases: int | None, seed: int, modes: Sequence[str]) -> tuple[Batch, ...]:
    """The batches of a run: corners of every operator first, then random cases.

    So many cases are asked at most, shared out evenly among the operators; corners have half of them, or as many as
    there are. Without a number, all corners are asked, and the backend's default number of random cases.
    """
    batches, rest, only = [], {}, tuple(modes)
    space = narrowed(backend.space, modes)
    for at, op in enumerate(ops):
        share = _share(backend.default_cases if cases is None else cases, at, len(ops))
        many = sum(1 for _ in corners(op, space, seed))
        many = many if cases is None else min(many, (share + 1) // 2)
        rest[op] = share if cases is None else share - many
        starts = range(0, many, BATCH)
        batches += [Batch(backend.name, op, seed, -(s // BATCH), min(BATCH, many - s), only, many) for s in starts]
    index = 0
    while any(rest.values()):
        index += 1
        for op in ops:
            if size := min(BATCH, rest[op]):
                batches.append(Batch(backend.name, op, seed, index, size, only))
                rest[op] -= size
    return tuple(batches)


def _share(whole: int, at: int, parts: int) -> int:
    return whole // parts + (at < whole % parts)


def some_corners(op: str, space: Space, seed: int, many: int) -> list[Case]:
    """So many of the corners, or all of them for 0, in their order; other ones for another seed."""
    every = list(corners(op, space, seed))
    chosen = np.random.default_rng([seed, crc32(f"corners {op}".encode())]).permutation(len(every))[: many or None]
    return [every[at] for at in sorted(chosen)]


def _random(op: str, space: Space, rng: Rng) -> Iterator[Case]:
    while True:
        yield draw(op, rng, space)


# ---- at random


def draw(op: str, rng: Rng, space: Space | None = None) -> Case:
    """One case of an operator; lunette may refuse it, and the backend, too."""
    space = space or Space()
    d = int(rng.choice(space.ranks, p=_towards_small(space.ranks)))
    family = next(f for f in DRAW if op.startswith(f))
    for _ in range(4):  # most draws should have an output, and cells in every window
        shapes, options = DRAW[family](op, rng, d, space)
        case = Case(op, shapes, options)
        has_output = case.output is not None
        if has_output and not (case.misses and rng.random() < 0.8):
            break
    modes = [m for m in modes_of(op) if m in space.modes]
    if not has_output and "forward" in modes:  # a refusal has no derivative
        modes = ["forward"]
    data = str(rng.choice(list(DATA_WEIGHTS), p=np.array(list(DATA_WEIGHTS.values())) / sum(DATA_WEIGHTS.values())))
    dtype = str(rng.choice(space.dtypes, p=_towards_first(len(space.dtypes))))
    layout = str(rng.choice(space.layouts, p=_towards_first(len(space.layouts))))
    return Case(op, shapes, options, dtype, data, layout, str(rng.choice(modes)), int(rng.integers(2**31)))


def modes_of(op: str) -> tuple[str, ...]:
    """What can be asked of an operator."""
    return ANSWERS if op in ("max_pool", "adaptive_max_pool", "global_max_pool") else ("forward", "jvp", "vjp")


def _towards_first(n: int) -> list[float]:
    weights = [2.0 if i == 0 else 1.0 for i in range(n)]
    return [w / sum(weights) for w in weights]


def _towards_small(ranks: tuple[int, ...]) -> list[float]:
    weights = [{0: 1.0, 1: 4.0, 2: 4.0, 3: 2.0}.get(d, 1.0) for d in ranks]
    return [w / sum(weights) for w in weights]


def _ints(rng: Rng, d: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(low, high + 1, d))


def _lead(rng: Rng) -> Shape:
    """Batch and channels; now and then one of them is empty."""
    return tuple(0 if rng.random() < 0.02 else int(rng.choice([1, 1, 2, 3])) for _ in range(2))


def _sizes(rng: Rng, d: int) -> Shape:
    low = 0 if rng.random() < 0.02 else 1
    return _ints(rng, d, low, SIZES[d])


def _padding(rng: Rng, space: Space, kernel: Shape, *, pool: bool) -> Any:
    what = rng.random()
    if what < 0.3:
        return 0
    if what < 0.4 and space.named_padding:
        return str(rng.choice(["same", "same_lower", "valid"]))
    lo = [int(rng.integers((k // 2 if space.half_padded and pool else min(k, 3)) + 1)) for k in kernel]
    hi = lo if space.symmetric or rng.random() < 0.4 else [int(rng.integers(min(k, 3) + 1)) for k in kernel]
    return tuple(zip(lo, hi, strict=True))


def _draw_pool(op: str, rng: Rng, d: int, space: Space) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    kernel = _ints(rng, d, 1, 4 if d < 3 else 3)
    options: dict[str, Any] = {"kernel": kernel}
    if rng.random() < 0.8:
        options["stride"] = _ints(rng, d, 1, 4 if d < 4 else 2)
    options["padding"] = 0 if op == "lp_pool" and space.half_padded else _padding(rng, space, kernel, pool=True)
    if rng.random() < 0.35 and (op == "max_pool" or space.dilated_averages):
        options["dilation"] = _ints(rng, d, 1, 3)
    options["ceil_mode"] = bool(rng.random() < 0.5)
    extra = {
        "max_pool": _ties,
        "avg_pool": _divisor,
        "smooth_max_pool": lambda *_: {
            "beta": float(rng.choice([-1.5, 0.5, 1.0, 4.0])),
            "count_include_pad": bool(rng.random() < 0.6),
        },
        "lp_pool": lambda *_: {"p": float(rng.choice(space.norms))},
    }
    return ((*_lead(rng), *_sizes(rng, d)),), {**options, **extra[op](op, rng, d, space)}


def _ties(op: str, rng: Rng, d: int, space: Space) -> dict[str, Any]:
    return {"ties": str(rng.choice(space.ties.get(op, ("first", "all", "split"))))}


def _divisor(op: str, rng: Rng, d: int, space: Space) -> dict[str, Any]:
    chosen: dict[str, Any] = {"count_include_pad": bool(rng.random() < 0.6)}
    if space.divisors and d > 1 and rng.random() < 0.15:
        chosen["divisor"] = int(rng.choice([3, -2, 7]))
    return chosen


def _draw_conv(op: str, rng: Rng, d: int, space: Space) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    kernel = _ints(rng, d, 1, 4 if d < 3 else 2)
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    batch, inner = _lead(rng)
    inner, outer = inner * groups, int(rng.integers(1, 4)) * groups
    options: dict[str, Any] = {"groups": groups} if groups > 1 else {}
    options["stride"] = _ints(rng, d, 1, 3)
    options["padding"] = _padding(rng, space, kernel, pool=False)
    if rng.random() < 0.35:
        options["dilation"] = _ints(rng, d, 1, 3)
    w = (outer, inner // groups)
    if op == "conv_transpose":
        w = (inner, outer // groups)
        if rng.random() < 0.3 and not isinstance(options["padding"], str):
            options["output_padding"] = tuple(int(rng.integers(s)) for s in options["stride"])
    shapes: tuple[Shape, ...] = ((batch, inner, *_sizes(rng, d)), (*w, *kernel))
    return (*shapes, (outer,)) if rng.random() < 0.6 else shapes, options


def _draw_adaptive(op: str, rng: Rng, d: int, space: Space) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    sizes = tuple(None if rng.random() < 0.05 and d > 1 else int(m) for m in rng.integers(1, SIZES[d] + 2, d))
    options = {"output_size": sizes, **(_ties(op, rng, d, space) if "max" in op else {})}
    return ((*_lead(rng), *_ints(rng, d, 1, SIZES[d])),), options


def _draw_global(op: str, rng: Rng, d: int, space: Space) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    options = {"spatial": d, "keepdims": bool(rng.random() < 0.6), **(_ties(op, rng, d, space) if "max" in op else {})}
    return ((*_lead(rng), *_ints(rng, d, 1, SIZES[d])),), options


DRAW: dict[str, Callable[[str, Rng, int, Space], tuple[tuple[Shape, ...], dict[str, Any]]]] = {
    "conv": _draw_conv,
    "adaptive": _draw_adaptive,
    "global": _draw_global,
    "": _draw_pool,
}


# ---- corners


def corners(op: str, space: Space, seed: int) -> Iterator[Case]:
    """Configurations at the edge of the rules, in every mode: chance meets them too seldom."""
    for family in CORNERS:
        yield from islice(_family(family, op, space, seed), 0, None, 1 if family in FEW else space.thin)


def _family(family: Family, op: str, space: Space, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng([seed, crc32(f"{family.__name__} {op}".encode())])
    modes = [m for m in modes_of(op) if m in space.modes]
    ties = {"ties": space.ties[op][0]} if op in space.ties else {}
    for shapes, options, dtype, data, only in family(op, space):
        if dtype not in space.dtypes:
            continue
        for mode in modes if only is None else [m for m in only if m in modes]:
            yield Case(op, shapes, {**options, **ties}, dtype, data, mode=mode, seed=int(rng.integers(2**31)))


Corner = tuple[tuple[Shape, ...], dict[str, Any], str, str, tuple[str, ...] | None]
Family = Callable[[str, Space], Iterator[Corner]]
SLIDING = ("max_pool", "avg_pool", "lp_pool", "smooth_max_pool")
FORWARD = ("forward",)


def _needed(op: str) -> dict[str, Any]:
    return {"beta": 1.0} if op == "smooth_max_pool" else {}


def _windows_that_miss(op: str, space: Space) -> Iterator[Corner]:
    """Dilation longer than the input, with and without ceil mode: a window may jump over every cell."""
    if op != "max_pool" and not (op == "avg_pool" and space.dilated_averages):
        return
    more = {"count_include_pad": False} if op == "avg_pool" else {}
    for d, n, (kernel, stride, dilation), ceil in product(
        (1, 2, 3), (1, 2, 12), ((2, 1, 2), (3, 6, 2), (2, 1, 3), (3, 2, 4)), (False, True)
    ):
        if d in space.ranks:
            options = {
                "kernel": (kernel,) * d,
                "stride": (stride,) * d,
                "padding": ((1, 1),) * d,
                "dilation": (dilation,) * d,
                "ceil_mode": ceil,
            }
            yield ((4, 3, *(1,) * (d - 1), n),), {**options, **more}, "float32", "integers", None


def _huge_kernels(op: str, space: Space) -> Iterator[Corner]:
    """Kernels far longer than the input, which ceil mode allows: the time must be the input's."""
    if op in SLIDING:
        for d in (1, 2):
            if d in space.ranks:
                options = {"kernel": (1,) * (d - 1) + (2**33,), "ceil_mode": True, **_needed(op)}
                yield ((1, 1, *(1,) * (d - 1), 4),), options, "float32", "integers", FORWARD


def _long_sums(op: str, space: Space) -> Iterator[Corner]:
    """More ones than the dtype can count one by one."""
    for dtype, n in (("float32", 2**25), ("float16", 2**13), ("bfloat16", 2**13)):
        many: dict[str, dict[str, Any]] = {
            "avg_pool": {"kernel": (n,)},
            "lp_pool": {"kernel": (n,), "p": 1.0},
            "global_avg_pool": {"spatial": 1},
            "adaptive_avg_pool": {"output_size": (1,)},
        }
        if op in many and 1 in space.ranks:
            yield ((1, 1, n),), many[op], dtype, "ones", FORWARD
        if op == "conv" and n < 2**20 and 1 in space.ranks:
            yield ((1, 1, n), (1, 1, n)), {}, dtype, "ones", FORWARD


def _too_large(op: str, space: Space) -> Iterator[Corner]:
    """A kernel that does not fit into the padded input: there is no output."""
    d = space.ranks[0]
    if op in SLIDING:
        yield (
            ((1, 1, *(3,) * d),),
            {"kernel": (5,) * d, "stride": (1,) * d, **_needed(op)},
            "float32",
            "integers",
            FORWARD,
        )
    if op == "conv":
        yield ((1, 1, *(3,) * d), (1, 1, *(5,) * d)), {}, "float32", "integers", FORWARD


def _nothing(op: str, space: Space) -> Iterator[Corner]:
    """No samples, no channels, no cells."""
    for d in space.ranks[:2]:
        n = (4,) * d
        if op in SLIDING:
            options = {"kernel": (2,) * d, **_needed(op)}
            for x in ((0, 2, *n), (2, 0, *n)):
                yield (x,), options, "float32", "integers", None
            if not space.half_padded:
                yield ((1, 1, *(0,) * d),), {**options, "padding": ((1, 1),) * d}, "float32", "integers", FORWARD
        if op == "conv":
            for x, w in (((0, 2, *n), (3, 2, *(2,) * d)), ((1, 0, *n), (2, 0, *(2,) * d))):
                yield (x, w, w[:1]), {"stride": (1,) * d}, "float32", "integers", None
        if op == "conv_transpose":
            for x, w in (((0, 2, *n), (2, 3, *(2,) * d)), ((1, 0, *n), (0, 2, *(2,) * d))):
                yield (x, w, w[1:2]), {"stride": (1,) * d}, "float32", "integers", None


def _one_window_of(op: str, space: Space) -> Iterator[Corner]:
    """One small window over each kind of data, in every dtype."""
    d = space.ranks[0]
    for data, dtype, n in product(DATA_WEIGHTS, space.dtypes, (1, 3)):
        shape = (1, 1, *(1,) * (d - 1), n)
        kernel = shape[2:]
        if op in SLIDING:
            for norm in space.norms if op == "lp_pool" and dtype == space.dtypes[0] else (2.0,):
                extra = {"p": norm} if op == "lp_pool" else _needed(op)
                yield (shape,), {"kernel": kernel, **extra}, dtype, data, None
        elif op.startswith("conv"):
            yield (shape, (1, 1, *kernel)), {"padding": tuple((k // 2, k // 2) for k in kernel)}, dtype, data, None
        else:
            options: dict[str, Any] = {"spatial": d} if op.startswith("global") else {"output_size": (1,) * d}
            yield (shape,), options, dtype, data, None


def _special_windows(op: str, space: Space) -> Iterator[Corner]:
    """Windows with NaN and infinities, at the border too, in every mode: thinning may leave none of them."""
    if space.thin == 1:
        return
    d = space.ranks[0]
    if op == "max_pool":
        padded: dict[str, Any] = {"kernel": (1,) * (d - 1) + (2,), "padding": ((0, 0),) * (d - 1) + ((1, 1),)}
        yield ((4, 3, *(1,) * (d - 1), 2),), padded, space.dtypes[0], "infinite", None
    for shapes, options, dtype, data, only in _one_window_of(op, space):
        usual = options.get("p", 2.0) == 2.0 and dtype == space.dtypes[0]
        if data in ("nan", "infinite") and shapes[0][-1] == 3 and usual:
            yield shapes, options, dtype, data, only


CORNERS: list[Family] = [  # what takes long begins early
    _huge_kernels,
    _long_sums,
    _windows_that_miss,
    _too_large,
    _nothing,
    _one_window_of,
    _special_windows,
]
FEW = (_huge_kernels, _long_sums, _too_large, _special_windows)
"""Families of a few cases each, which are never thinned."""
