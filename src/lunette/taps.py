"""Which cells an operator's output cells read, as an axis of taps in front of the output's, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from lunette import core
from lunette.number import Array
from lunette.window import Axis, Shape, Window

SHORT: Final = 64  # kernel cells on one axis that are walked one by one, each with a slice


class Taps(ABC):
    """The cells of one operand that each output cell reads, as an axis of taps in front of the output's."""

    shape: Shape
    """Of the operand."""
    out: Shape
    terms: int
    """The most output cells and taps that read one cell."""

    @abstractmethod
    def gather(self, x: Array, absent: float) -> Array:
        """(rows, *shape) to (rows, taps, *out); taps that read nothing are `absent`."""

    @abstractmethod
    def scatter(self, a: Array, low: Array, high: Array) -> Array:
        """The transpose: sums of a*low where a > 0, and of a*high elsewhere, per cell.

        (rows, *out) times (rows or 1, taps, *out) is (rows, *shape).
        """

    def grid(self, d: int) -> Grid | None:
        """Taps of the last d axes that lie at the same offsets for all output cells; None where they do not."""
        return None


@dataclass(frozen=True, slots=True)
class Grid:
    """Tap t of output cell o reads cell o * stride + offsets[t] of the same channel, if there is one."""

    stride: Shape
    offsets: tuple[Shape, ...]

    def pull(self, a: Placed, low: Array, high: Array, space: Shape, size: Shape, origin: Array | None) -> Array:
        """The sums of a*low where a > 0, and of a*high elsewhere, at the cells that taps read.

        low and high are (rows or 1, taps, channels, *a.space). The result is (rows, channels, *size): patches of planes
        of `space` that begin at `origin`.
        """
        rows, channels = a.cells.shape[:2]
        own, offsets = len(low) > 1, [v for offset in self.offsets for v in offset]
        y = np.empty((rows, channels, *size))
        task = core.pull_rows(rows, channels, a.size, a.space, size, space, self.stride, offsets, own)
        task(dense(a.cells), a.origin, dense(low), dense(high), y, origin)
        return y


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of (channels, *size) cells that lie at `origin` in planes of `space`; what hangs over counts as zero."""

    cells: Array
    space: Shape
    origin: Array | None = None
    """(rows, axes); None: all begin at the first cell."""

    @property
    def size(self) -> Shape:
        """Of a row, without its channels."""
        return self.cells.shape[2:]

    def weigh(self, low: Array, high: Array) -> Array:
        """Row by row, the sum of cells*low where they are positive, and of cells*high elsewhere; in any order.

        low and high are (rows or 1, channels, *space). Zero times anything is zero.
        """
        rows, channels = self.cells.shape[:2]
        y = np.empty(rows)
        task = core.weigh_rows(rows, channels, self.size, self.space, len(low) > 1)
        task(dense(self.cells), self.origin, dense(low), dense(high), y)
        return y


def dense(a: Array) -> Array:
    """As kernels want arrays."""
    return np.ascontiguousarray(a, np.float64)


def flat(a: Array) -> Placed:
    """Rows of any shape, whole."""
    n = prod(a.shape[1:])
    return Placed(a.reshape(len(a), 1, n), (n,))


@dataclass(frozen=True, eq=False)
class Broadcast(Taps):
    """One tap, as NumPy broadcasts; of equal shapes the cell itself."""

    shape: Shape
    out: Shape

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes that are broadcast, behind that of rows."""
        lead = len(self.out) - len(self.shape)
        return (*range(1, lead + 1), *(1 + lead + a for a, n in enumerate(self.shape) if n != self.out[lead + a]))

    @cached_property
    def terms(self) -> int:  # type: ignore[override]
        return prod(self.out) // max(prod(self.shape), 1)

    def gather(self, x: Array, absent: float) -> Array:
        lead = (1,) * (1 + len(self.out) - len(self.shape))
        whole: Array = x.reshape(x.shape[0], *lead, *self.shape)
        return np.broadcast_to(whole, (x.shape[0], 1, *self.out))

    def scatter(self, a: Array, low: Array, high: Array) -> Array:
        if self.shape == self.out:
            n = (prod(self.shape),)
            low, high = (v.reshape(len(v), 1, 1, *n) for v in (low, high))
            return Grid((1,), ((0,),)).pull(flat(a), low, high, n, n, None).reshape(a.shape)
        y = np.where(a > 0, low[:, 0], high[:, 0]) * a
        return y.sum(self.axes).reshape(y.shape[0], *self.shape)  # type: ignore[no-any-return]

    def grid(self, d: int) -> Grid | None:
        return Grid((1,) * d, ((0,) * d,)) if self.shape == self.out else None


@dataclass(frozen=True, eq=False)
class Folded(Taps):
    """All cells along some axes, which the output does not have, or has with one cell each."""

    shape: Shape
    out: Shape
    axes: tuple[int, ...]
    terms: int = 1

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Rows, the folded axes, the kept ones."""
        kept = [a for a in range(len(self.shape)) if a not in self.axes]
        return (0, *(1 + a for a in self.axes), *(1 + a for a in kept))

    def gather(self, x: Array, absent: float) -> Array:
        many = prod(self.shape[a] for a in self.axes)
        return x.transpose(self.order).reshape(x.shape[0], many, *self.out)

    def scatter(self, a: Array, low: Array, high: Array) -> Array:
        y = np.where(a[:, None] > 0, low, high) * a[:, None]
        turned = y.reshape(y.shape[0], *(self.shape[a - 1] for a in self.order[1:]))
        back: Array = turned.transpose(np.argsort(self.order))
        return back


@dataclass(frozen=True, eq=False)
class Windows(Taps):
    """The windows of a pool over the last axes."""

    shape: Shape
    window: Window

    @cached_property
    def space(self) -> Shape:
        """The last axes."""
        return self.shape[len(self.shape) - self.window.d :]

    @cached_property
    def out(self) -> Shape:  # type: ignore[override]
        return (*self.shape[: len(self.shape) - self.window.d], *self.window.out(self.space))

    @cached_property
    def taps(self) -> list[tuple[tuple[Any, ...], tuple[Any, ...], bool]]:
        """For every tap, the output cells that read one there and the cells they read, and whether cells repeat."""
        found = []
        axes = [_axis_taps(a, n) for a, n in zip(self.window.axes, self.space, strict=True)]
        for choice in product(*axes):
            slices = all(isinstance(o, slice) for o, _ in choice)
            if slices:
                o, i, repeats = tuple(o for o, _ in choice), tuple(i for _, i in choice), False
            else:
                lists = [
                    (_as_list(o, m), _as_list(i, n))
                    for (o, i), m, n in zip(choice, self.window.out(self.space), self.space, strict=True)
                ]
                o, i = np.ix_(*(a for a, _ in lists)), np.ix_(*(b for _, b in lists))
                repeats = any(len(np.unique(b)) < len(b) for _, b in lists)
            found.append((o, i, repeats))
        return found

    @cached_property
    def terms(self) -> int:  # type: ignore[override]
        most = np.zeros(self.space, np.int64)
        for o, i, _ in self.taps:
            np.add.at(most, i, 1)
            del o
        return int(most.max(initial=1))

    def gather(self, x: Array, absent: float) -> Array:
        y = np.full((x.shape[0], len(self.taps), *self.out), absent)
        for k, (o, i, _) in enumerate(self.taps):
            y[:, k][(..., *o)] = x[(..., *i)]
        return y

    def grid(self, d: int) -> Grid | None:
        return self._grid if d == self.window.d else None

    @cached_property
    def _grid(self) -> Grid | None:
        if not self.taps or not self.space or not all(isinstance(s, slice) for o, _, _ in self.taps for s in o):
            return None
        stride = tuple(a.stride for a in self.window.axes if isinstance(a, Axis))
        offsets = [tuple(s.start - f.start * n for f, s, n in zip(o, i, stride, strict=True)) for o, i, _ in self.taps]
        return Grid(stride, tuple(offsets))

    def scatter(self, a: Array, low: Array, high: Array) -> Array:
        rows, d = len(a), self.window.d
        if self._grid is not None:
            space = self.out[len(self.out) - d :]
            channels = prod(self.shape[: len(self.shape) - d])
            low, high = (v.reshape(*v.shape[:2], channels, *space) for v in (low, high))
            placed = Placed(a.reshape(rows, channels, *space), space)
            return self._grid.pull(placed, low, high, self.space, self.space, None).reshape(rows, *self.shape)
        y = np.zeros((rows, *self.shape))
        for k, (o, i, repeats) in enumerate(self.taps):
            at = (..., *o)
            part = np.where(a[at] > 0, low[:, k][at], high[:, k][at]) * a[at]
            if repeats:
                np.add.at(y, (..., *i), part)
            else:
                y[(..., *i)] += part
        return y


def _axis_taps(axis: Any, n: int) -> list[tuple[Any, Any]]:
    """For every tap on one axis, the output cells and the cells they read."""
    if not isinstance(axis, Axis) or axis.kernel > SHORT:
        m = axis.out(n)
        r = axis.reach(np.arange(m), n, np.minimum, np.maximum)
        most = int(np.max(r.count, initial=0))
        some = [np.flatnonzero(r.count > j) for j in range(most)]
        return [(o, (r.i + j * r.i_step)[o]) for j, o in enumerate(some)]
    found = []
    for k in range(axis.kernel):
        start = k * axis.dilation - axis.lo  # o*stride + start is the cell
        first = max(-(start // axis.stride), 0)
        last = min((n - 1 - start) // axis.stride, axis.out(n) - 1)
        if first <= last:
            i = slice(first * axis.stride + start, last * axis.stride + start + 1, axis.stride)
            found.append((slice(first, last + 1), i))
    return found


def _as_list(cells: Any, n: int) -> Array:
    return np.arange(n)[cells] if isinstance(cells, slice) else cells
