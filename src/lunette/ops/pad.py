"""Cells around an array, and parts of one: each is the adjoint of the other.

| rule | says                                                                                   |
|------|----------------------------------------------------------------------------------------|
| R4   | padding is one number, or a (lo, hi) pair per axis, of integers >= 0                    |
| R5   | start, stop and step have one entry per axis, at most as many as x has axes; step >= 1  |
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, shown
from lunette.number import Array, as_dtype, like
from lunette.op import Case, Kernels, Shapes, case
from lunette.ops.glue import Layout, check_number, make, shape_of, strides
from lunette.value import value
from lunette.window import Shape, integer, is_sequence

_python_slice = builtins.slice  # this module has a slice of its own
Pairs = tuple[tuple[int, int], ...]


@value
class Pad(Layout):
    """Cells of one value around x, and step-1 of them between its cells."""

    padding: Pairs = ()
    value: float = 0
    step: tuple[int, ...] | None = None

    name: ClassVar[str] = "pad"
    cases: ClassVar[Mapping[str, Case]] = {
        "around": case((2, 3), padding=((1, 0), (2, 1))),
        "between": case((3,), padding=((1, 2),), step=(2,)),
        "point": case((), padding=()),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        padding, value, step = options
        assert shapes[0] is not None
        rank = len(shapes[0])
        pairs = _pairs(padding, rank)
        steps = (1,) * rank if step is None else _steps(step)
        if len(steps) != rank or any(s < 1 for s in steps):
            raise ArgumentError("R5", f"a step >= 1 for each of {rank} axes", f"step={step}", "1 puts nothing between.")
        return cls(pairs, check_number("value", value), steps)

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None and self.step is not None
        inner = [(n - 1) * s + 1 if n else 0 for n, s in zip(shapes[0], self.step, strict=True)]
        return tuple(lo + n + hi for n, (lo, hi) in zip(inner, self.padding, strict=True))

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return self if dtype.kind in "biuO" else replace(self, value=as_dtype(self.value, dtype))

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None and self.step is not None
        fill = like(self.value, x[(0,) * x.ndim]) if x.size else self.value
        y: Array = np.full(self.shape(x.shape), fill, object)
        if x.size:
            y[_all(_windows(self.padding, x.shape, self.step))] = x
        return y

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        assert self.step is not None
        n = len(sizes)
        return ((0, 0),) * n + self.padding, self.value, (1,) * n + self.step

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        return make(cls, tangents, options[0], 0, options[2])

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        x = shape_of(primals[0])
        pairs, step = _pairs(options[0], len(x)), options[2] or (1,) * len(x)
        stops = [lo + max((n - 1) * s + 1, 0) for (lo, _), n, s in zip(pairs, x, step, strict=True)]
        return slice(g, tuple(lo for lo, _ in pairs), tuple(stops), tuple(step))

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, out = shapes[0] or (), self.shape(*shapes)
        assert self.step is not None
        steps = strides(out)
        first = sum(lo * s for (lo, _), s in zip(self.padding, steps, strict=True))
        apart = [s * k for s, k in zip(steps, self.step, strict=True)]
        fill = float(self.value)
        return Kernels(core.strided_copy(dtype.char, list(x), 0, strides(x), prod(x), first, apart, prod(out), fill))


@value
class Slice(Layout):
    """A part of x: from start to before stop on each axis, every step-th cell."""

    start: tuple[int, ...] = ()
    stop: tuple[int | None, ...] = ()
    step: tuple[int, ...] | None = None

    name: ClassVar[str] = "slice"
    cases: ClassVar[Mapping[str, Case]] = {
        "middle": case((5,), start=(1,), stop=(4,)),
        "every_second": case((5, 4), start=(0, 1), stop=(5, 4), step=(2, 2)),
        "from_the_end": case((4,), start=(-3,), stop=(None,)),
        "nothing": case((4,), start=(2,), stop=(2,)),
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        x = shapes[0]
        assert x is not None
        given = [(o,) if not is_sequence(o) and o is not None else o for o in options]
        start, stop = (() if o is None else o for o in given[:2])
        entries = max(len(start), len(stop))
        step = given[2] if given[2] is not None or entries > len(x) else (1,) * entries
        if entries > len(x) or step is None or len(step) != entries or {len(start), len(stop)} - {entries}:
            raise ArgumentError(
                "R5",
                f"start, stop and step with one entry each for at most {len(x)} axes",
                ", ".join(f"{n}={shown(o)}" for n, o in zip(("start", "stop", "step"), options, strict=True)),
                "None in stop means the end.",
            )
        cut = []
        for a, b, s, n in zip(start, stop, step, x, strict=False):
            every = 1 if s is None else integer("step", s)
            if every < 1:
                raise ArgumentError("R5", "a step >= 1", f"step={every}", "Cells are taken from left to right.")
            ends = [None if v is None else integer("start or stop", v) for v in (a, b)]
            first, last, _ = _python_slice(ends[0], ends[1], every).indices(n)
            cut.append((first, max(first, last), min(every, max(n, 1))))  # a longer step takes one cell, too
        cut += [(0, n, 1) for n in x[entries:]]
        return cls(*zip(*cut, strict=True)) if cut else cls((), (), ())

    def shape(self, *shapes: Shape | None) -> Shape:
        assert self.step is not None
        cuts = zip(self.start, self.stop, self.step, strict=True)
        return tuple(-(-(b - a) // s) for a, b, s in cuts)  # type: ignore[operator]

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None and self.step is not None
        part: Array = x[_all(map(_python_slice, self.start, self.stop, self.step))]
        return part.copy()

    def leading(self, sizes: Shape) -> tuple[Any, ...]:
        assert self.step is not None
        n = len(sizes)
        return (0,) * n + self.start, (*sizes, *self.stop), (1,) * n + self.step

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        x = shape_of(primals[0])
        op = cls.of((x,), *options)
        assert op.step is not None
        pairs = []
        for n, first, m, s in zip(x, op.start, op.shape(x), op.step, strict=True):
            used = (m - 1) * s + 1 if m else 0
            pairs.append((min(first, n), n - used - min(first, n)))
        return make(Pad, (g,), tuple(pairs), 0, op.step)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x, out = shapes[0] or (), self.shape(*shapes)
        assert self.step is not None
        steps = strides(x)
        first = sum(a * s for a, s in zip(self.start, steps, strict=True))
        apart = [s * k for s, k in zip(steps, self.step, strict=True)]
        n = prod(out)
        return Kernels(core.strided_copy(dtype.char, list(out), first, apart, prod(x), 0, strides(out), n, None))


# ---- the functions


def _pairs(padding: Any, rank: int) -> Pairs:
    """Rule R4."""
    if not is_sequence(padding):
        n = integer("padding", padding)
        pairs: Pairs = ((n, n),) * rank
    elif len(padding) != rank:
        pairs = ((-1, -1),)
    else:
        pairs = tuple(
            (integer("padding", p[0]), integer("padding", p[1])) if is_sequence(p) and len(p) == 2 else (-1, -1)
            for p in padding
        )
    if any(p < 0 for pair in pairs for p in pair):
        raise ArgumentError(
            "R4",
            f"padding >= 0 as an int or a (lo, hi) pair for each of {rank} axes",
            f"padding={shown(padding)}",
            "Axes without padding have (0, 0).",
        )
    return pairs


def _steps(step: Any) -> tuple[int, ...]:
    return tuple(integer("step", s) for s in (step if is_sequence(step) else (step,)))


def _all(slices: Iterable[Any]) -> Any:
    """An index that gives an array even where there are no axes."""
    return (*slices, ...)


def _windows(pairs: Pairs, inner: Shape, step: tuple[int, ...]) -> tuple[Any, ...]:
    sizes = zip(pairs, inner, step, strict=True)
    return tuple(_python_slice(lo, lo + (n - 1) * s + 1, s) for (lo, _), n, s in sizes)


def pad(x: Any, padding: Any, value: float = 0) -> Any:
    """Cells of one value around x: `padding` is an int for every side, or one (lo, hi) pair per axis."""
    return make(Pad, (x,), padding, value, None)


def slice(x: Any, start: Any, stop: Any, step: Any = None) -> Any:
    """The part of x from `start` to before `stop`, every `step`-th cell, one entry per axis; the rest stay whole."""
    return make(Slice, (x,), start, stop, step)
