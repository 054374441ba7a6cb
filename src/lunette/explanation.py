"""Which input cells every output cell reads: as text, and as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette import spec
from lunette.array import lookup, resolve_named
from lunette.errors import ArgumentError, DTypeError, ShapeError, error_context, refuses, shown
from lunette.number import Array
from lunette.ops import LpPool, Windowed
from lunette.page import Page, Section, kept, page, written
from lunette.pictures import MEANINGS, OVERHANG, PADDING, READ, STYLE, UNREAD, Cell, Panel, grids, short, svg
from lunette.window import Axis, Geometry, Shape, Window, axes_told, integer, is_sequence, taps

MOST_CELLS, MOST_ROWS, MOST_PANELS = 48, 40, 36
MOST_SIDE = 32
"""Cells of an axis that a page shows."""
MOST_SHARES = 40_000
"""Input cells times output cells up to which all shares of derivatives are found for a page."""
NOTE = "d={d}: a strip is one axis of a window, and the window reads every combination of one cell per axis."


@dataclass(frozen=True, slots=True)
class Strip:
    """One axis: the padded input from cell -lo to cell n+hi-1 (and the overhang), and what each output cell reads."""

    axis: Geometry
    n: int
    m: int

    @property
    def start(self) -> int:
        """The first cell there is to draw: the start of the padding."""
        return -self.axis.lo if isinstance(self.axis, Axis) else 0

    @property
    def stop(self) -> int:
        """One past the last cell of the padded input or of the last window."""
        if not isinstance(self.axis, Axis):
            return self.n
        return max(self.n + self.axis.hi, (self.m - 1) * self.axis.stride - self.axis.lo + self.axis.span)

    @property
    def is_long(self) -> bool:
        """Whether there are more cells than are drawn."""
        return self.stop - self.start > MOST_CELLS

    def cells(self, o: int) -> range:
        """The cells that are drawn for output cell o: all there are, or those around its window."""
        if not self.is_long:
            return range(self.start, self.stop)
        first, size = self._window(o)
        room = max(2, (MOST_CELLS - size) // 2)
        begin = max(self.start, min(first - room, self.stop - MOST_CELLS))
        return range(begin, begin + MOST_CELLS)

    def _window(self, o: int) -> tuple[int, int]:
        """The first cell of o's window and how far it extends, padding included."""
        if isinstance(self.axis, Axis):
            return o * self.axis.stride - self.axis.lo, self.axis.span
        r = self.axis.reach(o, self.n)
        if r.count == 0:  # nothing to follow: stay where the neighbours are
            return o * self.stop // self.m, 1
        ends = r.i, r.i + (r.count - 1) * r.i_step
        return min(ends), abs(ends[1] - ends[0]) + 1

    def marks(self, o: int) -> str:
        """One letter per drawn cell: read, padding, overhang or not read by output cell o."""
        r = self.axis.reach(o, self.n)
        read = range(r.i, r.i + r.count * r.i_step, r.i_step)
        return "".join(self._mark(o, i, i in read) for i in self.cells(o))

    def _mark(self, o: int, i: int, is_read: bool) -> str:
        if is_read:
            return READ
        if isinstance(self.axis, Axis) and not 0 <= i < self.n:
            k, off = divmod(i - (o * self.axis.stride - self.axis.lo), self.axis.dilation)
            if off == 0 and 0 <= k < self.axis.kernel:
                return PADDING if i < self.n + self.axis.hi else OVERHANG
        return UNREAD

    def counts(self, o: int) -> tuple[int, int, int]:
        """How many cells of the window are input, padding and overhang."""
        read, inside = self.axis.reach(o, self.n).count, self.axis.inside(o, self.n)
        whole = self.axis.kernel if isinstance(self.axis, Axis) else inside
        return read, inside - read, whole - inside

    def pairs(self, o: int) -> str:
        """The input cells that o reads; for transposed windows with the kernel cell that meets each."""
        found = list(islice(taps(self.axis, o, self.n), 9))
        transposed = self.axis.reach(0, self.n).i_step < 0
        words = [f"{i}(k{k})" if transposed else f"{i}" for k, i in found[:8]]
        return ", ".join(words) + (", ..." if len(found) > 8 else "") if found else "none"


@dataclass(frozen=True, slots=True)
class Values:
    """One plane of data, what the operator makes of it, and how to ask for its derivatives."""

    x: Array
    y: Array | None
    name: str
    options: dict[str, Any]
    plane: str = ""
    """Which plane of more data than one it is."""

    def shares(self, o: Shape) -> list[tuple[Shape, Any]]:
        """The input cells that get a share of the cotangent of output cell o: the VJP of the specification, exactly."""
        if self.y is None:
            return []
        g = np.zeros((1, *self.y.shape), object)
        g[(0, *o)] = 1
        back = getattr(spec, f"{self.name}_vjp")((self.x[None],), g, **self.options)[0][0]
        return [(at, back[at]) for at in np.ndindex(*back.shape) if back[at] != 0]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Print it for text; `to_svg()` for a picture, `to_html()` for a page. Notebooks show the picture by themselves."""

    op: Windowed
    window: Window
    space: Shape
    at: Shape | None = field(default=None, kw_only=True)
    """The one output cell that is shown, or None for all of them."""
    values: Values | None = field(default=None, kw_only=True)
    """The data, if they were given."""

    @property
    def out(self) -> Shape:
        """The spatial sizes of the output."""
        return self.window.out(self.space)

    @property
    def strips(self) -> list[Strip]:
        """One per axis."""
        return [Strip(a, n, m) for a, n, m in zip(self.window.axes, self.space, self.out, strict=True)]

    def divisor(self, o: Shape) -> Any:
        """What an average divides by at output cell o; None for operators that do not divide."""
        divisor = self.op.divisor_at(o, self.space)
        return f"{divisor:g}" if isinstance(divisor, float) else divisor

    # ---- text

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines())

    __repr__ = __str__

    @property
    def _plane(self) -> str:
        """Which plane of the data is shown, as the end of a title, if there are more."""
        return f"; {self.values.plane}" if self.values is not None and self.values.plane else ""

    def _lines(self) -> Iterator[str]:
        yield f"{self.op.name} (d={self.window.d}): space {self.space} -> {self.out}{self._plane}"
        yield "  ".join(f"{mark} {meaning}" for mark, meaning in MEANINGS.items())
        for at, strip in enumerate(self.strips):
            yield ""
            yield f"axis {at}: {strip.axis}"
            yield from self._axis_lines(strip, at)
        if self.window.d != 1:
            yield ""
            yield from self._cell_lines()

    def _axis_lines(self, strip: Strip, axis: int = 0) -> Iterator[str]:
        shown = range(min(strip.m, MOST_ROWS)) if self.at is None else range(self.at[axis], self.at[axis] + 1)
        if strip.is_long:
            yield f"  a row shows {MOST_CELLS} of {strip.stop - strip.start} cells, from the one named in front"
            width = max((len(f"{strip.cells(o).start}") for o in shown), default=1)
            for o in shown:
                cells = strip.cells(o)
                before, after = ("... " if cells.start > strip.start else "    ", " ..." * (cells.stop < strip.stop))
                yield f"  o={o:<4} {cells.start:>{width}}: {before}{strip.marks(o)}{after:<4}   {self._words(o, strip)}"
        else:
            numbers = self._row() if self.window.d == 1 else []
            width = max((len(f"{i}") for i in (*numbers, *range(strip.n)[-1:])), default=1)
            yield "  input  " + " ".join(f"{i if 0 <= i < strip.n else '':>{width}}" for i in strip.cells(0))
            if numbers:
                row = " ".join(f"{numbers[i] if 0 <= i < strip.n else '':>{width}}" for i in strip.cells(0))
                yield f"  x      {row}"
            for o in shown:
                marks = " ".join(f"{mark:>{width}}" for mark in strip.marks(o))
                yield f"  o={o:<4} {marks}   {self._words(o, strip)}"
        if strip.m > MOST_ROWS and self.at is None:
            yield f"  ... and {strip.m - MOST_ROWS} more output cells"

    def _row(self) -> list[str]:
        return [] if self.values is None else [short(v) for v in self.values.x]

    def _told(self, o: Shape) -> list[str]:
        """The value of an output cell, and who gets which share of its cotangent."""
        if self.values is None or self.values.y is None:
            return []
        shares = [f"{_at(at)}: {short(v) if isinstance(v, float) else v}" for at, v in self.values.shares(o)]
        more = [f"... {len(shares) - 8} more"] if len(shares) > 8 else []
        given = ", ".join([*shares[:8], *more]) or "nobody"
        return [f"y = {short(self.values.y[o])}", f"of g gets {given}"]

    def _words(self, o: int, strip: Strip) -> str:
        _, padding, overhang = strip.counts(o)
        words = [f"reads {strip.pairs(o)}"]
        words += [f"{padding} padding"] if padding else []
        words += [f"{overhang} overhang"] if overhang else []
        if self.window.d == 1 and (divisor := self.divisor((o,))) is not None:
            words.append(f"divisor {divisor}")
        return "; ".join([*words, *(self._told((o,)) if self.window.d == 1 else [])])

    def _cell_lines(self) -> Iterator[str]:
        yield "output cell: the input cells it reads, axis by axis"
        cells = product(*(range(m) for m in self.out)) if self.at is None else iter([self.at])
        for o in islice(cells, MOST_ROWS):
            reads = " x ".join(f"{{{s.pairs(p)}}}" for s, p in zip(self.strips, o, strict=True)) or "the one cell"
            divisor = self.divisor(o)
            words = [reads, *([] if divisor is None else [f"divisor {divisor}"]), *self._told(o)]
            yield f"  o={o}: {'; '.join(words)}"
        if prod(self.out) > MOST_ROWS and self.at is None:
            yield f"  ... and {prod(self.out) - MOST_ROWS} more output cells"

    # ---- picture

    def to_svg(self, path: str | Path | None = None, *, width: int = 1140) -> str:
        """A picture that needs nothing but a viewer: every window of a plane, or of each axis, in its own panel.

        It is written to `path` if that is given.
        Panels wrap at the width, in pixels; with data, cells have numbers in them as long as these can be read. It
        weighs less than 200 KB, whatever the size: the title says how many windows fit.
        """
        note = "" if self.window.d in (1, 2) else NOTE.format(d=self.window.d)
        title = f"{self.op.name}: {self.space} -> {self.out}{self._plane}"
        return kept(svg(title, note, self._panels(), integer("width", width), MOST_PANELS), path)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _panels(self) -> Iterator[Panel]:
        if self.window.d == 2:
            vertical, horizontal = self.strips
            for o in product(range(vertical.m), range(horizontal.m)):
                if self.at is not None and o != self.at:
                    continue
                rows = [
                    [
                        Cell(_both(a, b), 0 <= i < vertical.n and 0 <= j < horizontal.n, self._number((i, j)))
                        for b, j in zip(horizontal.marks(o[1]), horizontal.cells(o[1]), strict=True)
                    ]
                    for a, i in zip(vertical.marks(o[0]), vertical.cells(o[0]), strict=True)
                ]
                yield Panel(f"o={o}{self._result(o)}{self._place(o)}", rows)
            return
        for axis, strip in enumerate(self.strips):
            for p in range(strip.m) if self.at is None else (self.at[axis],):
                title = f"o={p}{self._result((p,))}" if self.window.d == 1 else f"axis {axis}, o={p}"
                if strip.is_long:
                    title += f"  from cell {strip.cells(p).start}"
                found = zip(strip.marks(p), strip.cells(p), strict=True)
                row = [Cell(m, 0 <= i < strip.n, self._number((i,)) if self.window.d == 1 else "") for m, i in found]
                yield Panel(title, [row])

    def _number(self, i: Shape) -> str:
        """The data in an input cell, if there are any and it is one."""
        inside = all(0 <= p < n for p, n in zip(i, self.space, strict=True))
        return short(self.values.x[i]) if self.values is not None and inside else ""

    def _result(self, o: Shape) -> str:
        divisor = self.divisor(o)
        value = "" if self.values is None or self.values.y is None else f", y = {short(self.values.y[o])}"
        return ("" if divisor is None else f", divided by {divisor}") + value

    def _place(self, o: Shape) -> str:
        """Where a panel begins, if it does not show all cells."""
        if not any(s.is_long for s in self.strips):
            return ""
        return f"  from cell {tuple(s.cells(p).start for s, p in zip(self.strips, o, strict=True))}"

    def to_html(self, path: str | Path | None = None) -> Page:
        """A page that needs no network: hover over an output cell, and the window that it reads lights up.

        It is written to `path` if that is given. With `at`, that one cell is lit. Of more than two axes the first two
        are shown, at the first output cells of the others or where `at` is; of long axes the first cells, or those
        around `at`.
        """
        strips, chosen = self.strips[:2], self.at or (0,) * self.window.d
        rest = chosen[len(strips) :]
        inside = tuple(next(iter(_read(s, o)), 0) for s, o in zip(self.strips[len(strips) :], rest, strict=True))
        near = [(s.start, 0) if self.at is None else (s._window(o)[0], o) for s, o in zip(strips, chosen, strict=False)]
        shown = [_part(s.start, s.stop, i) for s, (i, _) in zip(strips, near, strict=True)]
        outs = [_part(0, s.m, o) for s, (_, o) in zip(strips, near, strict=True)]
        lit = list(product(*outs)) if self.at is None else [chosen[: len(strips)]]

        def grid(ranges: list[range]) -> list[list[Shape]]:
            rows, columns = (ranges + [range(1)] * 2)[:2] if len(ranges) > 1 else ([range(1), *ranges, range(1)])[:2]
            return [[(r, c) if len(ranges) > 1 else (c,) * len(ranges) for c in columns] for r in rows]

        def place(cell: Shape) -> str:
            return ",".join(map(str, cell))

        def result(o: Shape) -> str:
            return short(self.values.y[(*o, *rest)]) if self.values and self.values.y is not None else " "

        def outside(i: Shape) -> bool:
            return not all(0 <= p < s.n for p, s in zip(i, strips, strict=True))

        few = len(lit) * prod(self.space) <= MOST_SHARES
        told = {}
        for o in lit:
            whole = (*o, *rest)
            reads = " x ".join(f"{{{s.pairs(p)}}}" for s, p in zip(self.strips, whole, strict=True)) or "the one cell"
            divisor = self.divisor(whole)
            words = [f"o={_at(whole)} reads {reads}", *([] if divisor is None else [f"divided by {divisor}"])]
            told[place(o)] = "; ".join([*words, *(self._told(whole) if few else [])])
        marks = [
            {p: "".join(s._mark(p, i, i in _read(s, p)) for i in r) for p in m}
            for s, r, m in zip(strips, shown, outs, strict=True)
        ]
        body = grids(
            [r.start for r in shown],
            marks,
            [[(place(i), self._number((*i, *inside)) or " ", outside(i)) for i in row] for row in grid(shown)],
            [[(place(o) if place(o) in told else "", result(o)) for o in row] for row in grid(outs)],
            told,
        )
        intro = (
            f"space {self.space} -> {self.out}{self._plane}; blue cells are read, amber is padding, red is overhang."
        )
        if rest:
            intro += f" Axes 0 and 1 are shown, at output {rest} and input {inside} of the others."
        title = "Hover over an output cell" if self.at is None else f"Output cell {_at(self.at)}"
        text = page(self.op.name, intro, [], [Section("windows", title, "", body)], "", style=STYLE)
        return written(text, path)


def _part(start: int, stop: int, near: int) -> range:
    """Of the cells of an axis those that a page shows: all, or so many around one of them."""
    begin = max(start, min(near - MOST_SIDE // 2, stop - MOST_SIDE))
    return range(begin, min(stop, begin + MOST_SIDE))


def _read(strip: Strip, o: int) -> range:
    r = strip.axis.reach(o, strip.n)
    return range(r.i, r.i + r.count * r.i_step, r.i_step)


def _at(cell: Shape) -> str:
    return str(cell[0]) if len(cell) == 1 else str(cell)


def _both(a: str, b: str) -> str:
    """The mark of a cell of a plane, from the marks of its two coordinates."""
    return max(a, b, key=[READ, PADDING, OVERHANG, UNREAD].index)


@refuses
def explain(op: Any, shape: Any, w: Any = None, *, at: Any = None, **arguments: Any) -> Explanation:
    """Which input cells every output cell reads, which are padding, which overhang, and the divisor.

    `op` is an operator's name or function, `shape` the spatial sizes of x (leading batch and channel axes are ignored
    where a tuple or `spatial` says how many axes are), `arguments` are the operator's; convolutions take `kernel` here,
    or weights `w`, which tell its sizes. `at` is the one output cell to show. An array, or nested lists, in the place
    of the shape are data: their numbers stand in the cells (of the first sample and channel), with the results, and
    who gets which share of a cotangent.

    >>> import lunette as ln
    >>> print(ln.explain("avg_pool", (5,), kernel=3, stride=2, padding=1))
    avg_pool (d=1): space (5,) -> (3,)
    ■ reads  p padding  > overhang  · not read
    <BLANKLINE>
    axis 0: Axis(kernel=3, stride=2, dilation=1, lo=1, hi=1, ceil=False)
      input    0 1 2 3 4
      o=0    p ■ ■ · · · ·   reads 0, 1; 1 padding; divisor 3
      o=1    · · ■ ■ ■ · ·   reads 1, 2, 3; divisor 3
      o=2    · · · · ■ ■ p   reads 3, 4; 1 padding; divisor 3
    >>> import numpy as np
    >>> print(ln.explain("max_pool", np.array([1, 7, 7, 2]), kernel=3, stride=1, at=0, ties="split"))
    max_pool (d=1): space (4,) -> (2,)
    ■ reads  p padding  > overhang  · not read
    <BLANKLINE>
    axis 0: Axis(kernel=3, stride=1, dilation=1, lo=0, hi=0, ceil=False)
      input  0 1 2 3
      x      1 7 7 2
      o=0    ■ ■ ■ ·   reads 0, 1, 2; y = 7; of g gets 1: 1/2, 2: 1/2
    """
    with error_context("explain"):
        if w is not None:
            arguments = {**arguments, "kernel": _kernel_of(lookup(op)[1], w, arguments)}
        x, plane = _plane(shape, arguments) if _is_data(shape) else (None, "")
        found = _explained(op, shape if x is None else x.shape, dict(arguments))
        values = None if x is None else replace(_values(found, x, lookup(op)[1], arguments), plane=plane)
        return replace(found, at=None if at is None else _one_cell(at, found.out), values=values)


def _is_data(given: Any) -> bool:
    """An array, nested lists, or a list of floats; a list of whole numbers is a shape."""
    listed = isinstance(given, list | tuple) and any(isinstance(v, float) or is_sequence(v) for v in given)
    return listed or (hasattr(given, "shape") and hasattr(given, "dtype"))


def _kernel_of(kind: type[Windowed], w: Any, options: dict[str, Any]) -> Shape:
    """The sizes of a kernel, by weights."""
    shape = np.shape(w)
    if not kind.weighted or "kernel" in options or len(shape) < 3:
        got = f"w of shape {shape}" + (" and a kernel" if "kernel" in options else "")
        hint = "Weights are (out, in, *kernel), of a convolution; options are keywords."
        raise ArgumentError("O2", "the kernel of a convolution, or its weights", got, hint, who=kind.name)
    return tuple(shape[2:])


def _plane(data: Any, options: dict[str, Any]) -> tuple[Array, str]:
    """One plane of an array, and which it is of several.

    Where nothing says how many axes are space, all of up to three are, else all but two.
    """
    try:
        cells = np.asarray(data)
    except ValueError as error:  # rows of several lengths
        raise ShapeError("D1", "rows of one length", shown(data), "Or pass a shape.") from error
    if cells.dtype.kind not in "fiuO" or not cells.ndim:
        raise DTypeError("D1", "an array of real numbers", f"dtype {cells.dtype}", "Or pass a shape.")
    said = is_sequence(options.get("kernel", options.get("output_size"))) or options.get("spatial") is not None
    d = axes_told(options, (1, *cells.shape), 1) if said else cells.ndim if cells.ndim < 4 else cells.ndim - 2
    lead = cells.ndim - d
    if lead < 0 or 0 in cells.shape[:lead]:
        raise ShapeError("W3", f"{d} spatial axes with cells", f"shape {cells.shape}", "Pass one plane.")
    first = (0,) * lead
    plane = f"x[{', '.join(map(str, first))}] of shape {cells.shape}" if prod(cells.shape[:lead]) > 1 else ""
    return np.asarray(cells[first]), plane


def _values(found: Explanation, x: Array, kind: type[Windowed], options: dict[str, Any]) -> Values:
    """Exactly, where the operator is rational; the result of a convolution is a matter of its weights."""
    finite = x.dtype == object or x.dtype.kind in "iu" or bool(np.isfinite(x).all())
    exact = kind.needs != "exp" and finite and not issubclass(kind, LpPool)  # which has roots

    def number(v: Any) -> Any:
        return (
            v
            if x.dtype == object
            else int(v)
            if x.dtype.kind in "iu" and exact
            else Fraction(float(v))
            if exact
            else float(v)
        )

    cells = np.empty(x.shape, object)
    for at in np.ndindex(*x.shape):
        cells[at] = number(x[at])
    if kind.weighted:
        return Values(cells, None, kind.name, {})
    told = {**{n: v for n, v in options.items() if n != "return_indices"}, "spatial": x.ndim}
    if prod(found.out) * prod(x.shape) > MOST_EXACT:
        return Values(cells, None, kind.name, told)
    return Values(cells, getattr(spec, kind.name)(cells[None], **told)[0], kind.name, told)


MOST_EXACT = 2_000_000
"""Input cells times output cells up to which results are shown."""


def _one_cell(at: Any, out: Shape) -> Shape:
    cell = tuple(integer("at", p) for p in (at if is_sequence(at) else (at,)))
    if len(cell) != len(out) or not all(0 <= p < m for p, m in zip(cell, out, strict=False)):
        raise ArgumentError("W3", f"an output cell of {out}", f"at={shown(at)}", "Count from 0, one number per axis.")
    return cell


def _explained(op: Any, shape: Any, options: dict[str, Any]) -> Explanation:
    _, kind = lookup(op)
    space = tuple(integer("shape", n) for n in (shape if is_sequence(shape) else (shape,)))
    said = is_sequence(options.get("kernel", options.get("output_size"))) or options.get("spatial") is not None
    length = axes_told(options, (1, *space), 1) if said else len(space)  # the shape is that of the space
    if length > len(space):
        raise ShapeError(
            "W3",
            f"a shape of {length} spatial sizes",
            f"shape={space}",
            "Pass the sizes of the spatial axes.",
            d=length,
        )
    space = space[len(space) - length :]
    if kind.weighted:
        if "kernel" not in options:
            raise ArgumentError("O2", "the kernel's sizes", "none", "Pass kernel=3 or kernel=(3, 2).", who=kind.name)
        kernel = options.pop("kernel")
        size = tuple(kernel) if is_sequence(kernel) else (kernel,) * length
        resolved = resolve_named(op, [(1, *space), (1, 1, *size)], options, lead=1)
    else:
        resolved = resolve_named(op, [(1, *space)], {**options, "spatial": length}, lead=1)
    assert isinstance(resolved.op, Windowed)
    return Explanation(resolved.op, resolved.op.window, space)
