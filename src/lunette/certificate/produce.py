"""Certificates of bounds: what the checker is told, so that it proves them by itself.

The producer runs the checker's own arithmetic (lunette.certificate.check) to see which cells are worth a walk, and what
it will find: so a certificate states what it proves, to the last bit. Nothing here needs to be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf, nextafter
from typing import Any, Final

from lunette.certificate.ahead import MOST, moving
from lunette.certificate.check import ZERO, Network, Node, Region
from lunette.certificate.format import BITS, Box, Branch, Case, Forward, Inequality, Lines, Proof, Step, Tighten
from lunette.graph.graph import Graph
from lunette.graph.text import named_constants, write
from lunette.number import Array

Slopes = Mapping[int, Mapping[int, Sequence[int]]]


def network_of(graph: Graph) -> Network:
    """A graph as the checker reads it."""
    arrays = named_constants(graph)

    def constant(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        return arrays[name].astype(f"<{dtype[0]}{int(dtype[1:]) // 8}").tobytes()

    return Network(write(graph).splitlines(), constant)


def box_of(lo: Array, hi: Array) -> Box:
    """The ends of every cell."""
    return list(zip(lo.reshape(-1).tolist(), hi.reshape(-1).tolist(), strict=True))


def region_of(net: Network, boxes: Sequence[Box], semantics: str = "real", bits: int = BITS) -> Region:
    """The checker's boxes of all nodes, by intervals."""
    exact = [[(Fraction(a), Fraction(b)) for a, b in box] for box in boxes]
    return Region(net, exact, bits, semantics == "float")


FAR: Final = 1 << 28
"""Coefficients of walks; for fewer, nobody has to have a file beside check.py."""


def lined(region: Region) -> list[Step]:
    """Lines in the cells of inputs, where few of these vary, and walks from all cells that ask for one would go far."""
    net, last = region.net, max(region.net.nodes)
    asking = {(p, c) for n in net.nodes.values() for p, cells in _open(region, n).items() for c in cells}
    walks = sum(not _is_exact(net, net.nodes[p]) for p, _ in asking)
    if len(moving(region)) > MOST or walks * net.size < FAR:
        return []
    region.lines(last)
    return [Lines(last)]


def tightened(region: Region) -> list[Step]:
    """Tighten what maxima depend on, from the inputs on, as lunette.relax does; the steps that were taken."""
    net, steps, done = region.net, lined(region), dict[int, set[int]]()
    for n in net.nodes.values():
        region.forward(last=n.at - 1)
        for p, cells in sorted(_open(region, n).items()):
            new = sorted(c for c in cells - done.setdefault(p, set()) if region.lo[p][c] < region.hi[p][c])
            done[p].update(new)
            if new and not _is_exact(net, net.nodes[p]):
                region.tighten(p, [new, new])
                region.later(p)
                steps += [Tighten(p, new, new), Forward(p)]
    region.forward()
    return steps


def _open(region: Region, n: Node) -> dict[int, set[int]]:
    """The cells that a maximum reads and that may win where others may, too; all that a curve reads."""
    found: dict[int, set[int]] = {}
    for p, i in (tap for taps in n.reads or () for tap in taps):
        found.setdefault(p, set()).add(i)
    for taps in n.taps or ():
        low = max(region.lo[p][i] for p, i in taps)
        live = [(p, i) for p, i in taps if region.hi[p][i] > low]
        if len(live) > 1 or any(region.lo[p][i] < low for p, i in live):
            for p, i in live:
                found.setdefault(p, set()).add(i)
    return found


def _is_exact(net: Network, n: Node) -> bool:
    """Whether an interval is as good as any bound: sums of cells of inputs and constants."""
    return n.taps is n.reads is None and not any(net.nodes[p].sources for p in n.sources)


def lower(
    region: Region,
    row: Mapping[int, Any],
    slopes: Slopes | None = None,
    betas: Sequence[float] | None = None,
    by_box: bool = False,
) -> float:
    """What the checker will prove of row . output from below, rounded down to a float."""
    own = of_all_taps(region.net, slopes or {})
    factors = [Fraction(b) for b in betas] if betas is not None else [Fraction(0)] * len(region.spaces)
    claim = [({c: Fraction(v) for c, v in row.items()}, Fraction(0), False)]
    exact = region.excess(claim, [Fraction(1)], factors, own, by_box)
    found = float(exact)
    return found if Fraction(found) <= exact else nextafter(found, -inf)


def of_all_taps(net: Network, slopes: Slopes) -> dict[tuple[int, int], list[int]]:
    """Slopes of all taps, from those of all taps but zero, as a walk has them."""
    found = {}
    for at, some in slopes.items():
        reads = net.nodes[at].taps or net.nodes[at].reads
        assert reads is not None
        for cell, values in some.items():
            given = iter(values)
            found[at, cell] = [0 if p == ZERO else next(given) for p, _ in reads[cell]]
    return found


def bounds_case(
    region: Region,
    boxes: Sequence[Box],
    rows: Sequence[Mapping[int, Any]],
    steps: Sequence[Step],
    slopes: Any,
    walk: bool,
) -> Case:
    """A case that says lo <= row . output <= hi for some rows: the best of the box, of a walk, and of slopes."""
    claims, proofs = list[Any](), list[Proof]()
    for sign, (at, row) in ((sign, own) for own in enumerate(rows) for sign in (1, -1)):
        own = {c: sign * v for c, v in row.items()}
        tries = [Proof(len(claims), by_box=True)]
        if walk:
            tries.append(Proof(len(claims)))
        if (found := slopes.get((at, sign))) is not None:
            tries.append(Proof(len(claims), slopes=found))
        least = [lower(region, own, p.slopes, None, p.by_box) for p in tries]
        best = max(range(len(tries)), key=least.__getitem__)
        proofs.append(tries[best])
        claims.append((Inequality(own, least[best], True),))
    return Case(boxes, claims, Branch(steps, proofs))
