"""Boxes by lines in the cells of inputs, for check.py, which is beside this file: for few inputs and many neurons.

Cells of inputs that vary are m + r * t, each with a t of its own, -1 <= t <= 1. Every cell of every node is

    c + sum over j of a_j * t_j + e,    |e| <= E,

with integers (c, a_1, ...) and E, in units of 2^-bits as the ends of boxes are. Sums of products keep it, but for what
is rounded after a division: less than one for each number. A maximum y of cells z, which are in boxes, is, for any g,

    g . z + d,    min (y - g . z) <= d <= max (y - g . z),

both of which `least_of_max` of check.py has. So what several walks back find cell by cell, one pass finds for all of
them at once, a little less tightly; where few inputs vary it costs little more than a pass by intervals does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, Final

MOST: Final = 64  # cells of inputs that vary
UNIT: Final = 20  # slopes are multiples of 2^-20, as in check.py
Tap = tuple[int, int]
Form = tuple[list[int], int]  # (c, a_1, ...), and E


def moving(region: Any) -> dict[Tap, int]:
    """The cells of inputs that vary, and which numbers of a form are theirs."""
    cells = ((n.at, i) for n in region.net.inputs for i in range(n.size) if region.lo[n.at][i] < region.hi[n.at][i])
    return {cell: k for k, cell in enumerate(cells, 1)}


def lines(region: Any, last: int, check: Any) -> None:
    """Smaller boxes of the nodes up to this one; `check` is what check.py defines."""
    which, forms, nodes = moving(region), dict[int, list[Form]](), region.net.nodes
    check["need"](len(which) <= MOST, f"lines in at most {MOST} cells of inputs that vary")
    region.forward()
    for n in nodes.values():
        if region.empty or n.at > last:
            return
        forms.update((p, of_boxes(region, nodes[p], which)) for p in n.sources if p not in forms)
        if not n.is_computed:
            continue
        region.spend(n.size * (64 + n.widest) * (2 + len(which)))
        if n.sums is not None:
            found = of_sums(region, n, forms, 1 + len(which))
        elif n.taps is not None:
            found = [of_greatest(region, n, c, forms, check) for c in range(n.size)]
        else:
            found = of_boxes(region, n, which)
        off = region.error.get(n.at, [0] * n.size)
        forms[n.at] = found = [(v, e + more) for (v, e), more in zip(found, off, strict=True)]
        far = [sum(map(abs, v)) - abs(v[0]) + e for v, e in found]
        region.meet(n.at, *([v[0] + sign * f for (v, _), f in zip(found, far, strict=True)] for sign in (-1, 1)))
        if n.taps is not None:
            region.meet(n.at, *region.image(n, region.lo, region.hi))


def of_boxes(region: Any, n: Any, which: Mapping[Tap, int]) -> list[Form]:
    """Cells of inputs, constants, and what has no lines."""
    found = list[Form]()
    for i, (lo, hi) in enumerate(zip(region.lo[n.at], region.hi[n.at], strict=True)):
        c, at = (lo + hi) // 2, which.get((n.at, i))  # hi - c is no less than c - lo
        found.append(([c, *(hi - c if k == at else 0 for k in which.values())], 0 if at else hi - c))
    return found


def of_sums(region: Any, n: Any, forms: dict[int, list[Form]], many: int) -> list[Form]:
    """Sums of products: all numbers of a cell are digits of one integer, as in slots.py."""
    gain = max((sum(sum(map(abs, weights)) for _, _, weights in own) for own in n.sums), default=0)
    most = max((abs(x) for p in n.sources for v, _ in forms[p] for x in v), default=0)
    region.spend(0, top := max(gain, 1) * most)
    size = top.bit_length() // 8 + 1  # bytes of a digit: no number or sum is above top, which is below half
    half = 1 << 8 * size - 1
    tops = sum(half << 8 * size * k for k in range(many))

    def packed(v: Sequence[int]) -> int:
        return int.from_bytes(b"".join((x + half).to_bytes(size, "little") for x in v), "little") - tops

    digits = {p: [packed(v) for v, _ in forms[p]].__getitem__ for p in n.sources}
    errors = {p: [e for _, e in forms[p]].__getitem__ for p in n.sources}
    found, d = list[Form](), n.denominator
    for own in n.sums:
        x = sum(sum(map(mul, weights, map(digits[p], ins))) for p, ins, weights in own)
        e = sum(sum(map(mul, map(abs, weights), map(errors[p], ins))) for p, ins, weights in own)
        data = (x + tops).to_bytes(size * many, "little")
        v = [int.from_bytes(data[k : k + size], "little") - half for k in range(0, size * many, size)]
        found.append(([a // d for a in v], -(-e // d) + (many if d > 1 else 0)))
    return found


def of_greatest(region: Any, n: Any, cell: int, forms: dict[int, list[Form]], check: Any) -> Form:
    """The greatest of some cells, by slopes that check.py has for what is above it."""
    taps, winner = n.taps[cell], region.winners.get((n.at, cell))
    ends = [(region.lo[p][i], region.hi[p][i]) for p, i in taps]
    low = max(lo for lo, _ in ends)
    live = [k for k, (_, hi) in enumerate(ends) if hi > low]
    if winner is not None or (len(live) == 1 and ends[live[0]][0] == low):
        p, i = taps[live[0] if winner is None else winner]
        that: Form = forms[p][i]
        return that
    lows, tops = ([ends[k][side] for k in live] for side in (0, 1))
    one, unit, least = check["ONE"], 1 << UNIT, check["least_of_max"]
    g = check["slopes"](lows, tops, low, False) if live else []
    region.spend(2 * len(live) ** 2)
    below = least(one, unit, g, lows, tops, low, False)
    above = -least(one, -unit, [-s for s in g], lows, tops, low, True)
    some = [(s, *forms[p][i]) for s, (p, i) in zip(g, (taps[k] for k in live), strict=True)]
    v: list[int] = [2 * sum(s * own[k] for s, own, _ in some) for k in range(len(forms[taps[0][0]][0][0]))]
    v[0] += below + above
    e: int = 2 * sum(s * own for s, _, own in some) + above - below
    return [x >> UNIT + 1 for x in v], -(-e >> UNIT + 1) + len(v)
