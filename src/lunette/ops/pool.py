"""What all pools share: every window of every channel, folded to one output cell or scattered back to its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from lunette import core, relaxing
from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import Array, Number, Ties, cells_in, each, zero_of
from lunette.op import Case, Shapes
from lunette.ops import chance
from lunette.ops.windowed import Windowed
from lunette.value import value
from lunette.window import AxisTable, Cell, Shape, Window, is_sequence, spatial_axes


@dataclass(frozen=True, slots=True)
class View:
    """One window: the flat places of the cells it reads in a channel, and its size inside the padded input."""

    o: Cell
    places: Sequence[int]
    inside: int

    @property
    def absent(self) -> int:
        """How many cells of the padded window are padding."""
        return self.inside - len(self.places)


@value
class Pool(Windowed):
    """A window over the space of each channel."""

    window: Window

    planar: ClassVar[bool] = True

    # ---- shape

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int:
        """The kernel tells, the first option of a sliding pool; or spatial, the last one."""
        return spatial_axes("kernel", options[0], options[-1], shapes[0], lead)

    @classmethod
    def told(cls, d: int, options: tuple[Any, ...]) -> tuple[Any, ...]:
        """The kernel, or output size, as a tuple."""
        first, *rest, _ = options
        return (tuple(first) if is_sequence(first) else (first,) * d, *rest, None)

    def shape(self, *shapes: Shape | None) -> Shape:
        x = shapes[0]
        assert x is not None
        return (x[0], *self.window.out(x[1:]))

    # ---- meaning

    def views(self, space: Shape) -> Iterator[View]:
        """Every window, in row-major order."""
        for o in cells_in(self.window.out(space)):
            places = [0]
            for a, p, n in zip(self.window.axes, o, space, strict=True):
                r = a.reach(p, n)
                cells = range(r.i, r.i + r.count * r.i_step, r.i_step)
                places = [at * n + i for at in places for i in cells]
            yield View(o, places, self.window.inside(o, space))

    def fold(self, f: Callable[..., Number], *arrays: Array) -> Array:
        """`y[c,o] = f(view, cells, ...)`, with the cells of each array that the window reads."""
        x = arrays[0]
        y: Array = np.empty((x.shape[0], prod(self.window.out(x.shape[1:]))), object)
        rows = [a.reshape(x.shape[0], prod(x.shape[1:])).tolist() for a in arrays]
        for at, view in enumerate(self.views(x.shape[1:]) if x.shape[0] else ()):
            for c in range(x.shape[0]):
                y[c, at] = f(view, *([row[c][p] for p in view.places] for row in rows))
        return y.reshape(self.shape(x.shape))

    def scatter(self, f: Callable[..., Sequence[tuple[int, Number]]], x: Array, g: Array) -> Array:
        """The transpose: f(view, cells, g[c,o]) tells what each place of the window (by number) receives."""
        gx: Array = np.full((x.shape[0], prod(x.shape[1:])), None, object)
        rows, cotangents = x.reshape(gx.shape).tolist(), g.reshape(x.shape[0], -1) if x.shape[0] else g
        for at, view in enumerate(self.views(x.shape[1:]) if x.shape[0] else ()):
            for c in range(x.shape[0]):
                for p, share in f(view, [rows[c][p] for p in view.places], cotangents[c, at]):
                    i = view.places[p]
                    gx[c, i] = share if gx[c, i] is None else gx[c, i] + share
        zero = zero_of(g)
        return each(lambda a: zero if a is None else a, gx).reshape(x.shape)

    # ---- bounds

    def taps(self, x: Shape) -> relaxing.Taps:
        """Which cells of x, batch axes and all, the windows read."""
        return relaxing.Windows(x, self.window)

    # ---- cases

    @classmethod
    def draw(cls, rng: chance.Rng, d: int, limits: chance.Limits) -> Case:
        """Sliding windows."""
        kernel = chance.ints(rng, d, 1, 4 if d < 3 else 3)
        options: dict[str, Any] = {"kernel": kernel}
        if rng.random() < 0.8:
            options["stride"] = chance.ints(rng, d, 1, 4 if d < 4 else 2)
        options["padding"] = 0 if cls.name in limits.unpadded else chance.padding(rng, limits, kernel, pool=True)
        if rng.random() < 0.35 and cls.name not in limits.undilated:
            options["dilation"] = chance.ints(rng, d, 1, 3)
        options["ceil_mode"] = bool(rng.random() < 0.5)
        x = (*chance.lead(rng), *chance.sizes(rng, d))
        return Case((x,), {**options, **chance.options(cls.draws, cls.name, rng, d, limits)})

    @classmethod
    def one_window(cls, x: Shape) -> Case:
        return Case((x,), {"kernel": x[2:]})

    # ---- kernels

    def native(
        self, dtype: np.dtype[Any], batch: int, shapes: Shapes, counted: bool = False
    ) -> tuple[str, core.Pool, int]:
        """What every kernel of a pool is made for: the letter of a dtype, window tables, a number of planes.

        `counted` says whether padding counts.
        """
        tables = [(t.n, t.m, t.step, t.first, t.count, t.inside if counted else t.count) for t in self._tables(shapes)]
        assert shapes[0] is not None
        return dtype.char, core.Pool(tables), batch * shapes[0][0]

    @property
    def counted(self) -> bool:
        """Whether the padding of a window counts."""
        return False

    def countable(self, shapes: Shapes) -> bool:
        """Whether float64 has the number of cells of every window, padding included; else the specification counts."""
        return prod(int(t.inside.max()) for t in self._tables(shapes)) <= 2**53

    def _tables(self, shapes: Shapes) -> tuple[AxisTable, ...]:
        x = shapes[0]
        assert x is not None
        return self.window.tables(x[1:])


def check_ties(ties: Any) -> Ties:
    """Rule M2."""
    need, hint = 'ties as "first", "all" or "split"', "It says which equal cells carry the derivative."
    if not isinstance(ties, str):
        raise DTypeError("M2", need, f"ties={shown(ties)} of type {type(ties).__name__}", hint)
    if ties not in ("first", "all", "split"):
        raise ArgumentError("M2", need, f"ties={shown(ties)}", hint)
    return ties  # type: ignore[return-value]
