"""A certificate as values, and as bytes; docs/certificates.md describes them, lunette.certificate.check reads them.

Numbers of nodes are those of the checker: line n of the graph's text is node 4*n + 3, and the parts that some operators
are made of come before it (`Network.nodes` of lunette.certificate.check has them all).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from lunette.certificate import check
from lunette.certificate.check import UNIT, Network

BITS: Final = 48
"""Of precision: ends of boxes and coefficients are multiples of 2**-48 unless the producer wants otherwise."""
SLOPES: Final = 1 << UNIT
"""Slopes are multiples of 1/SLOPES."""
MOST_TAPS: Final = 64
"""Of a maximum whose winner is split."""

Number = int | float | Fraction
Box = Sequence[tuple[Number, Number]]
"""(lo, hi) of every cell of one input."""


@dataclass(frozen=True, slots=True)
class Inequality:
    """row . flatten(output) <= threshold, or < if it is strict; the row has the cells that are not zero."""

    row: Mapping[int, Number]
    threshold: Number
    strict: bool = False


Claim = Sequence[Inequality]
"""No point of the box satisfies all of these."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Compute the boxes of this node and of all behind it again, by intervals."""

    node: int


@dataclass(frozen=True, slots=True)
class Tighten:
    """Bound these cells of a node by walks back, with the checker's own slopes: from below, and from above."""

    node: int
    low: Sequence[int]
    high: Sequence[int]


@dataclass(frozen=True, slots=True)
class Lines:
    """Smaller boxes of the nodes up to this one, by lines in the few cells of inputs that vary."""

    node: int


@dataclass(frozen=True, slots=True)
class Proof:
    """Excludes a claim from a part of the box, by factors >= 0 of its inequalities and of those of the path."""

    claim: int
    factors: Sequence[float] = (1.0,)
    betas: Sequence[float] = ()
    """One for each inequality that the splits above have added, in order: see `Cut` and `Winner`."""
    slopes: Mapping[int, Mapping[int, Sequence[int]]] = field(default_factory=dict)
    """By node and cell of a maximum: one for every tap but zero, in units of 1/SLOPES; others are the checker's own."""
    by_box: bool = False
    """By the box of the output alone, without a walk back."""


Step = Forward | Tighten | Lines


@dataclass(frozen=True, slots=True)
class Cut:
    """Two parts: where a cell is at most a number, one inequality; and where it is at least that, one inequality."""

    node: int
    cell: int
    at: Number = 0


@dataclass(frozen=True, slots=True)
class Sum:
    """Two parts: where a sum of (node, cell, integer weight) is at most a number, and where it is at least that."""

    terms: Sequence[tuple[int, int, int]]
    at: Number = 0


@dataclass(frozen=True, slots=True)
class Winner:
    """One part for each tap of a cell of a maximum: where it is no less than the others, an inequality for each."""

    node: int
    cell: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the box: steps, then proofs, which hold for all parts of it, then a split if claims are still open."""

    steps: Sequence[Step] = ()
    proofs: Sequence[Proof] = ()
    split: Cut | Sum | Winner | None = None
    parts: Sequence[Branch] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A box, claims about it, and their proof."""

    boxes: Sequence[Box]
    claims: Sequence[Claim]
    tree: Branch = field(default_factory=Branch)


def most_splits(net: Network, claims: int = 1) -> int:
    """How many splits of a case with so many claims may be in each other: what the checker keeps of each is limited."""
    kept = sum(n.size + 16 for n in net.nodes.values()) + (check.MOST_TERMS >> 9) + 16 * claims
    return -(-check.MOST_TERMS // kept)


# ---- bytes


def write(net: Network, cases: Sequence[Case], semantics: str, producer: str, bits: int = BITS) -> bytes:
    """The bytes of a certificate about a network: JSON, in one order, without spaces."""
    content = {
        "format": "lunette certificate",
        "version": 1,
        "producer": producer,
        "graph": net.digest,
        "semantics": semantics,
        "bits": bits,
        "cases": [_case(net, c) for c in cases],
    }
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _case(net: Network, case: Case) -> dict[str, Any]:
    tree, todo = list[Any](), [case.tree]
    while todo:
        branch = todo.pop()
        tree.append(_branch(net, branch))
        todo += reversed(branch.parts)
    return {
        "boxes": [[[_number(lo), _number(hi)] for lo, hi in box] for box in case.boxes],
        "claims": [[_inequality(i) for i in claim] for claim in case.claims],
        "tree": tree,
    }


def _inequality(i: Inequality) -> list[Any]:
    return [[[c, _number(v)] for c, v in sorted(i.row.items())], _number(i.threshold), int(i.strict)]


def _branch(net: Network, branch: Branch) -> list[Any]:
    steps = [
        [s.node, _map(s.low, net, s.node), _map(s.high, net, s.node)]
        if isinstance(s, Tighten)
        else [s.node, 0]
        if isinstance(s, Lines)
        else [s.node]
        for s in branch.steps
    ]
    proofs = [
        [
            p.claim,
            int(p.by_box),
            [_number(f) for f in p.factors],
            [_number(b) for b in p.betas],
            [
                [at, _map(own, net, at), [s for c in sorted(own) for s in own[c]]]
                for at, own in sorted(p.slopes.items())
            ],
        ]
        for p in branch.proofs
    ]
    split = branch.split
    if split is None:
        return [steps, proofs, []]
    if isinstance(split, Sum):
        return [steps, proofs, [[list(t) for t in split.terms], None, _number(split.at)]]
    return [steps, proofs, [split.node, split.cell, _number(split.at) if isinstance(split, Cut) else None]]


def _map(cells: Iterable[int], net: Network, node: int) -> str:
    """Cells as bits of a hexadecimal number, the first cell last."""
    bits = bytearray(net.nodes[node].size // 8 + 1)
    for c in cells:
        bits[c // 8] |= 1 << c % 8
    return f"{int.from_bytes(bits, 'little'):x}"


def _number(value: Number) -> int | float | str:
    """An integer or a float where that is the exact number, else the text of a fraction."""
    q = Fraction(value)
    if q.denominator == 1 and abs(q) < 1 << 53:
        return int(q)
    try:
        return float(q) if Fraction(float(q)) == q else f"{q.numerator}/{q.denominator}"
    except OverflowError:
        return f"{q.numerator}/{q.denominator}"
