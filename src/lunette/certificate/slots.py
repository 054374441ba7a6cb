"""Rows that check.py, which is beside this file, walks together: the same integers, several times sooner.

The coefficients x_r of one cell in rows r = 0, 1, ... are one integer, X = sum of x_r * 2^(width*r). Sums of such, and
products with integers, are exact, however large x_r is: X is no more than a sum. Only where slots are taken apart does
each |x_r| have to be below 2^(width-1). Then X + tops, where tops is the sum of 2^(width-1) * 2^(width*r), has the
digits x_r + 2^(width-1), which are from 1 to 2^width - 1, so nothing is carried or borrowed. The highest bit of a digit
tells whether x_r >= 0, and then the others are x_r; a shift is one of every digit, once bits of the next are masked.

How wide slots have to be is known before a walk, from weights and boxes alone (`width`). Without python-flint, Python's
integers do the same, more slowly; without this file, check.py walks row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, islice
from typing import Any, Final
from weakref import WeakKeyDictionary

Long: Any
try:
    from flint import fmpz

    Long = fmpz
except ImportError:
    Long = int

UNIT: Final = 20  # slopes are multiples of 2^-20, as in check.py
PACKED: Final = 1 << 15  # bits of one cell's coefficients in all rows
MOST_BITS: Final = 1 << 32  # of all cells of a network: 512 MB
WIDEST: Final = 1 << 12  # of a slot; what needs more goes row by row
AT_ONCE: Final = 1 << 16  # rows that are sorted
Row = tuple[int, int]  # a sign, and a cell


class Slots:
    """What check.py's ONE is for one row, for some."""

    def __init__(self, rows: int, width: int, price: int = 0) -> None:
        self.rows, self.width, self.of = rows, width, Long
        self.price = price or 1 + (rows * width >> 11)  # how many coefficients of one row take as long
        self.ones = self.of(sum(1 << width * r for r in range(rows)))
        self.tops, self.masks = self.ones << width - 1, dict[int, Any]()

    def packed(self, values: Sequence[int]) -> Any:
        return sum((self.of(v) << self.width * r for r, v in enumerate(values)), self.of(0))

    def values(self, x: Any) -> list[int]:
        n, half = self.width // 8, 1 << self.width - 1
        digits = int(x + self.tops).to_bytes(self.rows * n, "little")
        return [int.from_bytes(digits[k : k + n], "little") - half for k in range(0, len(digits), n)]

    def plus(self, x: Any) -> Any:
        """The greater of x_r and 0."""
        x = x + self.tops
        signs = x & self.tops
        return x & (signs - (signs >> self.width - 1))  # ones below each sign

    def least(self, xs: Sequence[Any]) -> Any:
        """Of all of them, in each row; the difference of two has to fit."""
        return reduce(lambda x, y: x - self.plus(x - y), xs)

    def some(self, x: Any) -> Any:
        """1 where x_r is not 0; where it is, neither x_r nor -x_r is below 0."""
        return (self.tops - ((self.tops + x) & (self.tops - x) & self.tops)) >> self.width - 1

    def floor(self, x: Any, by: int) -> Any:
        """x_r // by, for 0 < by < 2^(width-1)."""
        if by & (by - 1):
            return self.packed([v // by for v in self.values(x)])
        if by not in self.masks:  # what is a digit's own after a shift
            self.masks[by] = self.ones * ((1 << self.width) // by - 1)
        shift = by.bit_length() - 1
        return (((x + self.tops) >> shift) & self.masks[by]) - (self.tops >> shift)


_GAINS: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()
_NEAR: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()


def gains(n: Any) -> dict[int, int]:
    """By source of a node, the greatest sum of the |weights| of a cell; of maxima, how often a cell is a tap."""
    if n not in _GAINS:
        found: Any = defaultdict(lambda: defaultdict(int))
        for p, ins, weights in chain.from_iterable(n.sums or ()):
            own = found[p]
            for i, w in zip(ins, weights, strict=True):
                own[i] += abs(w)
        for p, i in chain.from_iterable(n.taps or ()):
            found[p][i] += 1
        _GAINS[n] = {p: max(own.values()) for p, own in found.items()}
    return _GAINS[n]


def width(region: Any, at: int) -> int:
    """The bits that slots need, for rows with one coefficient each, 1 or -1, of a cell of a node.

    In no row is a |coefficient| of node p above most[p], or anything that check.py takes apart above `greatest`: that
    is coefficients x; sums of products with weights before they are divided, x * gain; products with slopes, which are
    from 0 to 1 in 2^-20, x << UNIT, so that |g| <= x and |a - g| <= x; what least_of_max compares, differences of two
    sums of at most widest + 2 products of a, g or a - g with ends of boxes; totals, sums of those, of products of
    coefficients with ends and errors, and of ends, once for each cell whose coefficient was rounded.
    """
    most, total, greatest = {at: 1 << region.bits}, 0, 0
    while most:
        n = region.net.nodes[max(most)]
        x = most.pop(n.at)
        ends = [v for p in (n.at, *n.sources) for v in (*region.lo[p], *region.hi[p], *region.error.get(p, ()))]
        region.spend(len(ends))
        reach = max(map(abs, ends), default=0)
        product = x * reach
        total += (4 * n.widest + 8) * product * n.size + len(ends) * reach
        greatest = max(greatest, x << UNIT, (4 * n.widest + 8) * product, n.denominator)
        for p in n.sources:
            part = x * gains(n)[p]
            greatest = max(greatest, part)
            most[p] = most.get(p, 0) + part // n.denominator + 1
    return max(greatest, total).bit_length() + 1


def near(net: Any) -> dict[int, Any]:
    """By cell of each node, one of an input that it depends on: cells that have the same one read much the same."""
    if net not in _NEAR:
        found: dict[int, Any] = {}
        for at, n in sorted(net.nodes.items()):
            if n.sums is not None:
                found[at] = [found[own[0][0]][own[0][1][0]] if own else 0 for own in n.sums]
            else:
                reads = n.taps or n.reads
                found[at] = [found[p][i] for (p, i), *_ in reads] if reads else range(n.size)
        _NEAR[net] = found
    return _NEAR[net]


def batches(region: Any, at: int, rows: Iterator[Row]) -> Iterator[tuple[Slots | None, list[Row]]]:
    """Rows that walk together, and their slots; None for those of a row alone."""
    nodes, place = region.net.nodes, near(region.net)[at]
    cells = sum(nodes[p].size for p in {at}.union(*(n.sources for n in nodes.values())))
    odd = any(n.denominator & (n.denominator - 1) for n in nodes.values())  # then rows are unpacked
    while some := sorted(islice(rows, AT_ONCE), key=lambda row: (place[row[1]], row)):
        bits = -(-width(region, at) // 8) * 8
        many = max(1, min(PACKED, MOST_BITS // cells) // bits) if bits <= WIDEST else 1
        for start in range(0, len(some), many):
            part = some[start : start + many]
            yield Slots(len(part), bits, len(part) if odd else 0) if len(part) > 1 else None, part
