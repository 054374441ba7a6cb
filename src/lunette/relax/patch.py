"""Coefficients where they can be other than zero: the receptive field of a cell, not the whole plane.

A row that begins at one cell of a plane reaches, behind a window operator, the cells of one window; behind the next,
those of the windows of these. So its coefficients are a patch: (rows, channels, *sizes), equal for all rows, at an
origin of each row's own. A patch may hang over the edge; its coefficients there are zero. Whatever has no form for
patches gets them as whole planes again (`whole`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lunette.graph.rows import by_rows
from lunette.lines import Lines
from lunette.number import Array
from lunette.ops import AvgPool, Conv
from lunette.ops.binary import Add, Sub
from lunette.relax.step import Linear, Relaxed, Step
from lunette.taps import Placed, Taps
from lunette.window import Axis, Shape


@dataclass(frozen=True, eq=False)
class Patch:
    """Coefficients of a node of shape (1, channels, *space)."""

    cells: Array
    """(rows, channels, *sizes)."""
    origin: Array
    """(rows, axes): where each patch begins."""
    space: Shape

    @property
    def sizes(self) -> Shape:
        """The size of a patch."""
        return self.cells.shape[2:]

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """The flat place in the plane of every cell of every patch, (rows, *sizes), and whether it is inside."""
        rows, d = self.origin.shape
        flat, inside = np.zeros((rows, *(1,) * d), np.int64), np.ones((rows, *(1,) * d), bool)
        for a, (n, m) in enumerate(zip(self.space, self.sizes, strict=True)):
            shape = (rows, *(m if b == a else 1 for b in range(d)))
            at = (self.origin[:, a, None] + np.arange(m)).reshape(shape)
            flat = flat * n + np.clip(at, 0, n - 1)
            inside = inside & (at >= 0) & (at < n)
        return flat, inside

    @property
    def placed(self) -> Placed:
        """As kernels take it."""
        return Placed(self.cells, self.space, self.origin)

    def kept_inside(self) -> Patch:
        """Zeros where the patch hangs over the edge."""
        if (self.origin >= 0).all() and (self.origin + np.array(self.sizes) <= np.array(self.space)).all():
            return self
        return Patch(self.cells * self.places[1][:, None], self.origin, self.space)

    def whole(self) -> Array:
        """The coefficients of whole planes, (rows, 1, channels, *space)."""
        rows, channels = self.cells.shape[:2]
        flat, inside = self.places
        plane = int(np.prod(self.space))
        y = np.zeros((rows, channels, plane + 1))  # what is over the edge goes to one more cell
        at = np.where(inside, flat, plane).reshape(rows, 1, -1)
        np.put_along_axis(
            y, np.broadcast_to(at, (rows, channels, at.shape[2])), self.cells.reshape(rows, channels, -1), 2
        )
        return y[..., :-1].reshape(rows, 1, channels, *self.space)


def plus(a: Any, b: Any) -> Any:
    """The sum of coefficients, patches or not; patches that are equally far apart in every row become a larger one."""
    if not (isinstance(a, Patch) and isinstance(b, Patch)):
        left, right = (v.whole() if isinstance(v, Patch) else v for v in (a, b))
        return left + right
    apart = b.origin - a.origin
    if (apart != apart[:1]).any():
        return a.whole() + b.whole()
    shift = apart[0]
    first = np.minimum(shift, 0)
    last = np.maximum(np.array(a.sizes), shift + np.array(b.sizes))
    y = np.zeros((*a.cells.shape[:2], *(int(n) for n in last - first)))
    for p, begin in ((a, -first), (b, shift - first)):
        at: Any = (..., *(slice(int(s), int(s) + m) for s, m in zip(begin, p.sizes, strict=True)))
        y[at] += p.cells
    return Patch(y, a.origin + first, a.space)


def pull_patch(step: Step, a: Patch) -> list[Any] | None:
    """`Step.pull` of patches; None where there is no such form."""
    if np.prod(a.sizes) >= np.prod(a.space):
        return None
    if isinstance(step, Relaxed) and len(step.relaxation.taps) == 1:
        return _through_lines(step.lines, step.relaxation.taps[0], a)
    if not isinstance(step, Linear):
        return None
    if step.kind in (Add, Sub) and all(s == (1, a.cells.shape[1], *a.space) for s in step.shapes):
        signs = [-1.0 if step.kind is Sub and wrt == 1 else 1.0 for wrt in step.places]
        return [Patch(a.cells * s, a.origin, a.space) for s in signs]
    if step.places == [0] and step.resolved is not None and step.shapes[0][0] == 1:
        return _through_window(step, a)
    return None


def _through_lines(lines: Lines, taps: Taps, a: Patch) -> list[Any] | None:
    grid, d = taps.grid(len(a.space)), len(a.space)
    if grid is None or len(lines.low[0]) != 1:
        return None
    least = np.min(grid.offsets, 0)
    size = (np.array(a.sizes) - 1) * grid.stride + np.max(grid.offsets, 0) - least + 1
    origin = a.origin * grid.stride + least
    space = taps.shape[len(taps.shape) - d :]
    low, high = (v.reshape(1, len(grid.offsets), a.cells.shape[1], *a.space) for v in (lines.low[0], lines.high[0]))
    cells = grid.pull(a.placed, low, high, space, tuple(int(n) for n in size), origin)
    return [Patch(cells, origin, space)]


def _through_window(step: Linear, a: Patch) -> list[Any] | None:
    op = step.resolved.op if step.resolved is not None else None
    if not isinstance(op, Conv | AvgPool) or not all(isinstance(x, Axis) for x in op.window.axes):
        return None
    axes: Any = op.window.axes
    if len(axes) != len(a.sizes):
        return None
    space = step.shapes[0][2:]
    sizes = tuple((m - 1) * x.stride + x.span for x, m in zip(axes, a.sizes, strict=True))
    x = np.empty((1, step.shapes[0][1], *sizes))
    stride, dilation = tuple(v.stride for v in axes), tuple(v.dilation for v in axes)
    if type(op) is Conv:
        options: tuple[Any, ...] = (stride, 0, dilation, op.groups)
    elif type(op) is AvgPool and (op.divisor is not None or all(v.lo == v.hi == 0 and not v.ceil for v in axes)):
        kernel = tuple(v.kernel for v in axes)
        options = (kernel, stride, 0, dilation, False, op.count_include_pad, op.divisor, None)
    else:
        return None
    primals = [x, *step.centres[1:]]
    g: Array = by_rows(lambda rows: step.kind.pull(options, primals, None, rows, 0), a.cells[:, None])
    origin = a.origin * np.array(stride) - np.array([v.lo for v in axes])
    return [Patch(g[:, 0], origin, space).kept_inside()]
