"""Which input cells every output cell reads: as text, and as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import islice, product
from math import prod
from typing import Any

from lunette.array import lookup, resolve_named
from lunette.errors import ArgumentError, ShapeError, error_context
from lunette.ops import Windowed
from lunette.window import Axis, Geometry, Shape, Window, axes_told, integer, is_sequence, taps

MOST_CELLS, MOST_ROWS, MOST_PANELS = 48, 40, 36
READ, PADDING, OVERHANG, UNREAD = "■", "p", ">", "·"
COLOURS = {READ: "#2f6fdf", PADDING: "#f0b429", OVERHANG: "#d64545", UNREAD: "#ffffff"}
MEANINGS = {READ: "reads", PADDING: "padding", OVERHANG: "overhang", UNREAD: "not read"}
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
class Explanation:
    """Print it for text; `to_svg()` for a picture. Notebooks show the picture by themselves."""

    op: Windowed
    window: Window
    space: Shape

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

    def _lines(self) -> Iterator[str]:
        yield f"{self.op.name} (d={self.window.d}): space {self.space} -> {self.out}"
        yield "  ".join(f"{mark} {meaning}" for mark, meaning in MEANINGS.items())
        for at, strip in enumerate(self.strips):
            yield ""
            yield f"axis {at}: {strip.axis}"
            yield from self._axis_lines(strip)
        if self.window.d != 1:
            yield ""
            yield from self._cell_lines()

    def _axis_lines(self, strip: Strip) -> Iterator[str]:
        shown = range(min(strip.m, MOST_ROWS))
        if strip.is_long:
            yield f"  a row shows {MOST_CELLS} of {strip.stop - strip.start} cells, from the one named in front"
            width = max((len(f"{strip.cells(o).start}") for o in shown), default=1)
            for o in shown:
                cells = strip.cells(o)
                before, after = ("... " if cells.start > strip.start else "    ", " ..." * (cells.stop < strip.stop))
                yield f"  o={o:<4} {cells.start:>{width}}: {before}{strip.marks(o)}{after:<4}   {self._words(o, strip)}"
        else:
            width = max((len(f"{i}") for i in strip.cells(0) if 0 <= i < strip.n), default=1)
            yield "  input  " + " ".join(f"{i if 0 <= i < strip.n else '':>{width}}" for i in strip.cells(0))
            for o in shown:
                marks = " ".join(f"{mark:>{width}}" for mark in strip.marks(o))
                yield f"  o={o:<4} {marks}   {self._words(o, strip)}"
        if strip.m > MOST_ROWS:
            yield f"  ... and {strip.m - MOST_ROWS} more output cells"

    def _words(self, o: int, strip: Strip) -> str:
        _, padding, overhang = strip.counts(o)
        words = [f"reads {strip.pairs(o)}"]
        words += [f"{padding} padding"] if padding else []
        words += [f"{overhang} overhang"] if overhang else []
        if self.window.d == 1 and (divisor := self.divisor((o,))) is not None:
            words.append(f"divisor {divisor}")
        return "; ".join(words)

    def _cell_lines(self) -> Iterator[str]:
        yield "output cell: the input cells it reads, axis by axis"
        cells = product(*(range(m) for m in self.out))
        for o in islice(cells, MOST_ROWS):
            reads = " x ".join(f"{{{s.pairs(p)}}}" for s, p in zip(self.strips, o, strict=True)) or "the one cell"
            divisor = self.divisor(o)
            yield f"  o={o}: {reads}" + ("" if divisor is None else f"; divisor {divisor}")
        if prod(self.out) > MOST_ROWS:
            yield f"  ... and {prod(self.out) - MOST_ROWS} more output cells"

    # ---- picture

    def to_svg(self) -> str:
        """A picture that needs nothing but a viewer: every window of a plane, or of each axis, in its own panel."""
        panels = list(islice(self._panels(), MOST_PANELS))
        size, gap = 16, 34
        note = "" if self.window.d in (1, 2) else NOTE.format(d=self.window.d)
        top = 94 if note else 74
        # A title may be wider than its panel: 7 pixels hold a letter of this size.
        across = max((max(len(rows[0]) * size, len(title) * 7) for title, rows in panels), default=1) + gap
        down = max((len(rows) for _, rows in panels), default=1) * size + gap
        columns = max(1, min(len(panels), 1120 // across))
        height = top + -(-len(panels) // columns) * down + 10
        width = max(columns * across + 20, 560)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="14" y="24" font-size="15" font-weight="bold">{escape(self._title())}</text>',
        ]
        for at, (mark, meaning) in enumerate(MEANINGS.items()):
            parts.append(_square(14 + 110 * at, 38, COLOURS[mark], data=mark != UNREAD))
            parts.append(f'<text x="{34 + 110 * at}" y="50">{meaning}</text>')
        if note:
            parts.append(f'<text x="14" y="74" fill="#444">{escape(note)}</text>')
        for at, (title, rows) in enumerate(panels):
            x, y = 14 + at % columns * across, top + at // columns * down
            parts.append(f'<text x="{x}" y="{y + 12}" fill="#444">{escape(title)}</text>')
            for r, row in enumerate(rows):
                for c, (mark, in_data) in enumerate(row):
                    parts.append(_square(x + c * size, y + 18 + r * size, COLOURS[mark], data=in_data))
        return "\n".join([*parts, "</svg>"])

    _repr_svg_ = to_svg

    def _title(self) -> str:
        more = sum(1 for _ in islice(self._panels(), MOST_PANELS + 1)) > MOST_PANELS
        words = f" (first {MOST_PANELS} {'windows' if self.window.d in (1, 2) else 'strips'})" if more else ""
        return f"{self.op.name}: {self.space} -> {self.out}{words}"

    def _panels(self) -> Iterator[tuple[str, list[list[tuple[str, bool]]]]]:
        """(title, rows of (mark, whether the cell belongs to the input))."""
        if self.window.d == 2:
            vertical, horizontal = self.strips
            for cell in product(range(vertical.m), range(horizontal.m)):
                divisor = self.divisor(cell)
                title = f"o={cell}" + ("" if divisor is None else f"  1/{divisor}") + self._place(cell)
                down, across = vertical.marks(cell[0]), horizontal.marks(cell[1])
                yield (
                    title,
                    [
                        [
                            (_both(a, b), 0 <= i < vertical.n and 0 <= j < horizontal.n)
                            for b, j in zip(across, horizontal.cells(cell[1]), strict=True)
                        ]
                        for a, i in zip(down, vertical.cells(cell[0]), strict=True)
                    ],
                )
            return
        for at, strip in enumerate(self.strips):
            for o in range(strip.m):
                title = f"o={o}" if self.window.d == 1 else f"axis {at}, o={o}"
                if self.window.d == 1 and (divisor := self.divisor((o,))) is not None:
                    title += f"  1/{divisor}"
                if strip.is_long:
                    title += f"  from cell {strip.cells(o).start}"
                row = [(mark, 0 <= i < strip.n) for mark, i in zip(strip.marks(o), strip.cells(o), strict=True)]
                yield title, [row]

    def _place(self, o: Shape) -> str:
        """Where a panel begins, if it does not show all cells."""
        if not any(s.is_long for s in self.strips):
            return ""
        return f"  from cell {tuple(s.cells(p).start for s, p in zip(self.strips, o, strict=True))}"


def _both(a: str, b: str) -> str:
    """The mark of a cell of a plane, from the marks of its two coordinates."""
    return max(a, b, key=[READ, PADDING, OVERHANG, UNREAD].index)


def _square(x: int, y: int, colour: str, *, data: bool) -> str:
    stroke = "#555" if data else "#ccc"
    return f'<rect x="{x}" y="{y}" width="15" height="15" fill="{colour}" stroke="{stroke}"/>'


def explain(op: Any, shape: Any, **arguments: Any) -> Explanation:
    """Which input cells every output cell reads, which are padding, which overhang, and the divisor.

    `op` is an operator's name or function, `shape` the spatial sizes of x (leading batch and channel axes are ignored
    where a tuple or `spatial` says how many axes are), `arguments` are the operator's; convolutions take `kernel` here.

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
    """
    with error_context("explain"):
        return _explained(op, shape, dict(arguments))


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
