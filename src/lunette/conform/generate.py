"""Cases over the whole space of an operator: drawn at random from a seed, and the corners that chance would miss.

A batch is a pure function of its fields, so that any process on any machine draws the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any
from zlib import crc32

import numpy as np

from lunette.conform.backends.backend import Backend, Space
from lunette.conform.case import Case
from lunette.conform.networks import draw_network, network_corners
from lunette.conform.result import Batch
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed
from lunette.ops.chance import Rng
from lunette.window import Shape

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
BOUNDS = ("bounds",)
"""Who is asked for bounds is asked for nothing else."""
DRAWN = 40
"""Random cases drawn at most for each that the backend has."""
ANSWERS = ("forward", "indices", "jvp", "vjp")


def draws(batch: Batch, backend: Backend) -> Iterator[tuple[Case, str | None]]:
    """The cases of a batch, each with the reason why it is not asked, or None.

    Unsupported draws do not count, up to DRAWN for each that does.
    """
    space = narrowed(backend.space, batch.modes, batch.ranks, batch.dtypes)
    if batch.index <= 0:
        first = -batch.index * BATCH
        chosen = some_corners(batch.op, space, batch.seed, batch.corners)[first : first + batch.cases]
        for case in map(backend.fitted, chosen):
            yield case, backend.supports(case)
        return
    asked = 0
    rng = np.random.default_rng([batch.seed, batch.index, crc32(batch.op.encode())])
    for case in map(backend.fitted, islice(_random(batch.op, space, rng), DRAWN * batch.cases)):
        reason = backend.supports(case)
        yield case, reason
        asked += reason is None
        if asked == batch.cases:
            return


def narrowed(space: Space, modes: Sequence[str], ranks: Sequence[int] = (), dtypes: Sequence[str] = ()) -> Space:
    """Only these modes, or all of them; these ranks and dtypes."""
    modes = tuple(m for m in space.modes if m in modes) if modes else space.modes
    return replace(space, modes=modes, ranks=tuple(ranks) or space.ranks, dtypes=tuple(dtypes) or space.dtypes)


def plan(
    backend: Backend,
    ops: Sequence[str],
    cases: int | None,
    seed: int,
    modes: Sequence[str] = (),
    ranks: Sequence[int] = (),
    dtypes: Sequence[str] = (),
) -> tuple[Batch, ...]:
    """The batches of a run: corners of every operator first, then random cases.

    So many cases are asked, shared out evenly among the operators; corners have half of them, or as many as there are
    and the backend has. Without a number, all corners are asked, and the backend's default number of random cases.
    """
    batches, rest = [], {}
    only: dict[str, Any] = {"modes": tuple(modes), "ranks": tuple(ranks), "dtypes": tuple(dtypes)}
    space = narrowed(backend.space, **only)
    for at, op in enumerate(ops):
        share = _share(backend.default_cases if cases is None else cases, at, len(ops))
        many = sum(1 for _ in corners(op, space, seed))
        many = many if cases is None else min(many, (share + 1) // 2)
        chosen = map(backend.fitted, some_corners(op, space, seed, many) if many and cases is not None else ())
        rest[op] = share if cases is None else share - sum(backend.supports(c) is None for c in chosen)
        starts = range(0, many, BATCH)
        batches += [
            Batch(backend.name, op, seed, -(s // BATCH), min(BATCH, many - s), corners=many, **only) for s in starts
        ]
    index = 0
    while any(rest.values()):
        index += 1
        for op in ops:
            if size := min(BATCH, rest[op]):
                batches.append(Batch(backend.name, op, seed, index, size, **only))
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
    if space.modes == BOUNDS:
        return draw_network(op, rng, space)
    d = int(rng.choice(space.ranks, p=_towards_small(space.ranks)))
    for _ in range(4):  # most draws should have an output, and cells in every window
        drawn = KINDS[op].draw(rng, d, space)
        case = Case(op, drawn.shapes, _had(op, drawn.options))
        has_output = case.output is not None
        if has_output and not (case.misses and rng.random() < 0.8):
            break
    modes = [m for m in modes_of(op) if m in space.modes]
    if not has_output and "forward" in modes:  # a refusal has no derivative
        modes = ["forward"]
    data = str(rng.choice(list(DATA_WEIGHTS), p=np.array(list(DATA_WEIGHTS.values())) / sum(DATA_WEIGHTS.values())))
    dtype = str(rng.choice(space.dtypes, p=_towards_first(len(space.dtypes))))
    layout = str(rng.choice(space.layouts, p=_towards_first(len(space.layouts))))
    return replace(
        case, dtype=dtype, data=data, layout=layout, mode=str(rng.choice(modes)), seed=int(rng.integers(2**31))
    )


def modes_of(op: str) -> tuple[str, ...]:
    """What can be asked of an operator."""
    return ANSWERS if KINDS[op].has_indices else tuple(m for m in ANSWERS if m != "indices")


def _had(op: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the operator has: not every pool has all of a window's."""
    return {n: v for n, v in options.items() if n in parameters_of(ALL[KINDS[op]])}


def _towards_first(n: int) -> list[float]:
    weights = [2.0 if i == 0 else 1.0 for i in range(n)]
    return [w / sum(weights) for w in weights]


def _towards_small(ranks: tuple[int, ...]) -> list[float]:
    weights = [{0: 1.0, 1: 4.0, 2: 4.0, 3: 2.0}.get(d, 1.0) for d in ranks]
    return [w / sum(weights) for w in weights]


# ---- corners


def corners(op: str, space: Space, seed: int) -> Iterator[Case]:
    """Configurations at the edge of the rules, in every mode: chance meets them too seldom."""
    if space.modes == BOUNDS:
        yield from network_corners(op, space, seed)
        return
    for family in CORNERS:
        yield from islice(_family(family, op, space, seed), 0, None, 1 if family in FEW else space.thin)


def _family(family: Family, op: str, space: Space, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng([seed, crc32(f"{family.__name__} {op}".encode())])
    modes = [m for m in modes_of(op) if m in space.modes]
    ties = {"ties": space.ties[op][0]} if op in space.ties else {}
    for shapes, options, dtype, data, only in family(KINDS[op], space):
        if dtype not in space.dtypes:
            continue
        for mode in modes if only is None else [m for m in only if m in modes]:
            seeded = int(rng.integers(2**31))
            yield Case(op, shapes, _had(op, {**options, **ties}), dtype, data, mode=mode, seed=seeded)


Corner = tuple[tuple[Shape, ...], dict[str, Any], str, str, tuple[str, ...] | None]
Family = Callable[[type[Windowed], Space], Iterator[Corner]]
FORWARD = ("forward",)


def _windows_that_miss(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """Dilation longer than the input, with and without ceil mode: a window may jump over every cell."""
    if not kind.slides() or not kind.refuses_empty or kind.name in space.undilated:
        return
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
                **kind.needed,
                **kind.refused_with,
            }
            yield ((4, 3, *(1,) * (d - 1), n),), options, "float32", "integers", None


def _huge_kernels(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """Kernels far longer than the input, which ceil mode allows: the time must be the input's."""
    if kind.slides():
        for d in (1, 2):
            if d in space.ranks:
                options = {"kernel": (1,) * (d - 1) + (2**33,), "ceil_mode": True, **kind.needed}
                yield ((1, 1, *(1,) * (d - 1), 4),), options, "float32", "integers", FORWARD


def _long_sums(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """More ones than the dtype can count one by one; weights as many as they are, only where they are not too many."""
    if kind.counting is None or 1 not in space.ranks:
        return
    for dtype, n in (("float32", 2**25), ("float16", 2**13), ("bfloat16", 2**13)):
        if n < 2**20 or not kind.weighted:
            one = kind.one_window((1, 1, n))
            yield one.shapes, {**one.options, **kind.counting}, dtype, "ones", FORWARD


def _too_large(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """A kernel that does not fit into the padded input: there is no output."""
    if kind.windows != "sliding":
        return
    d = space.ranks[0]
    x, kernel = (1, 1, *(3,) * d), (5,) * d
    shapes: tuple[Shape, ...] = (x, (1, 1, *kernel)) if kind.weighted else (x,)
    options = {} if kind.weighted else {"kernel": kernel, "stride": (1,) * d}
    yield shapes, {**options, **kind.needed}, "float32", "integers", FORWARD


def _nothing(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """No samples, no channels, no cells."""
    for d in space.ranks[:2]:
        n = (4,) * d
        if kind.slides():
            options = {"kernel": (2,) * d, **kind.needed}
            for x in ((0, 2, *n), (2, 0, *n)):
                yield (x,), options, "float32", "integers", None
            if not space.half_padded:
                yield ((1, 1, *(0,) * d),), {**options, "padding": ((1, 1),) * d}, "float32", "integers", FORWARD
        if kind.weighted:
            for batch, ins, outs in ((0, 2, 3), (1, 0, 2)):
                w = (ins, outs) if kind.windows == "transposed" else (outs, ins)
                shapes = ((batch, ins, *n), (*w, *(2,) * d), (outs,))
                yield shapes, {"stride": (1,) * d}, "float32", "integers", None


def _one_window_of(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """One small window over each kind of data, in every dtype."""
    d = space.ranks[0]
    for data, dtype, n in product(DATA_WEIGHTS, space.dtypes, (1, 3)):
        one = kind.one_window((1, 1, *(1,) * (d - 1), n))
        padding = {"padding": tuple((k // 2, k // 2) for k in one.shapes[0][2:])} if kind.weighted else {}
        for extra in kind.variants(space.norms if dtype == space.dtypes[0] else USUAL):
            yield one.shapes, {**one.options, **padding, **extra}, dtype, data, None


USUAL = (2.0,)
"""The norm that everyone has."""


def _special_windows(kind: type[Windowed], space: Space) -> Iterator[Corner]:
    """Windows with NaN and infinities, at the border too, in every mode: thinning may leave none of them."""
    if space.thin == 1:
        return
    d = space.ranks[0]
    if kind.slides() and kind.selects:
        padded: dict[str, Any] = {"kernel": (1,) * (d - 1) + (2,), "padding": ((0, 0),) * (d - 1) + ((1, 1),)}
        yield ((4, 3, *(1,) * (d - 1), 2),), padded, space.dtypes[0], "infinite", None
    for shapes, options, dtype, data, only in _one_window_of(kind, space):
        usual = options.get("p", 2.0) in USUAL and dtype == space.dtypes[0]
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
