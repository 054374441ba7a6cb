"""A certificate as values, and as bytes; docs/certificates.md describes every byte, lunette.certificate.check reads them.

Numbers of nodes are those of the checker: line n of the graph's text is node 4*n + 3, and the parts that some operators
are made of come before it (`Network.nodes` of lunette.certificate.check has them all).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from lunette.certificate.check import MAGIC, UNIT, Network

BITS: Final = 48
"""Of precision: ends of boxes and coefficients are multiples of 2**-48 unless the producer wants otherwise."""
SLOPES: Final = 1 << UNIT
"""Slopes are multiples of 1/SLOPES."""

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
class Proof:
    """Excludes a claim from a part of the box, by factors >= 0 of its inequalities and of those of the path."""

    claim: int
    factors: Sequence[float] = (1.0,)
    betas: Sequence[float] = ()
    """One for each inequality that the splits above have added, in order: see `Cut` and `Winner`."""
    slopes: Mapping[int, Mapping[int, Sequence[int]]] = field(default_factory=dict)
    """By node and cell of a maximum: one for every tap but zero, in units of 1/SLOPES; others are the checker's own."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Two parts: where a cell is at most a number, one inequality; and where it is at least that, one inequality."""

    node: int
    cell: int
    at: Number = 0


@dataclass(frozen=True, slots=True)
class Winner:
    """One part for each tap of a cell of a maximum: where it is not less than any other, an inequality for each other."""

    node: int
    cell: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the box: steps, then proofs, which hold for all parts of it, then a split if claims are still open."""

    steps: Sequence[Forward | Tighten] = ()
    proofs: Sequence[Proof] = ()
    split: Cut | Winner | None = None
    parts: Sequence[Branch] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A box, claims about it, and their proof."""

    boxes: Sequence[Box]
    claims: Sequence[Claim]
    tree: Branch = field(default_factory=Branch)


# ---- bytes


def write(net: Network, cases: Sequence[Case], semantics: str, producer: str, bits: int = BITS) -> bytes:
    """The bytes of a certificate about a network."""
    name = producer.encode()
    out = [MAGIC, net.digest, struct.pack("<BHI", semantics == "float", bits, len(name)), name, _count(len(cases))]
    for case in cases:
        out.append(_count(len(case.boxes)))
        for box in case.boxes:
            out.append(_count(len(box)))
            out += [_doubles(ends) for ends in box]
        out.append(_count(len(case.claims)))
        for claim in case.claims:
            out.append(_count(len(claim)))
            for i in claim:
                out.append(_count(len(i.row)))
                out += [_count(cell) + _number(v) for cell, v in sorted(i.row.items())]
                out.append(_number(i.threshold) + bytes([i.strict]))
    for case in cases:
        todo = [case.tree]
        while todo:
            branch = todo.pop()
            out.append(_branch(net, branch))
            todo += reversed(branch.parts)
    return b"".join(out)


def _branch(net: Network, branch: Branch) -> bytes:
    out = [_count(len(branch.steps))]
    for step in branch.steps:
        out.append(bytes([isinstance(step, Tighten)]) + _count(step.node))
        if isinstance(step, Tighten):
            out += [_bitmap(cells, net.nodes[step.node].size) for cells in (step.low, step.high)]
    out.append(_count(len(branch.proofs)))
    for p in branch.proofs:
        out.append(_count(p.claim) + _doubles(p.factors) + _doubles(p.betas) + _count(len(p.slopes)))
        out += [_count(node) for node in sorted(p.slopes)]
        for node in sorted(p.slopes):
            out.append(_bitmap(p.slopes[node], net.nodes[node].size))
            out += [struct.pack(f"<{len(v)}i", *v) for _, v in sorted(p.slopes[node].items())]
    if branch.split is None:
        return b"".join([*out, b"\0"])
    cut = isinstance(branch.split, Cut)
    out.append(bytes([1 if cut else 2]) + _count(branch.split.node) + _count(branch.split.cell))
    return b"".join([*out, _number(branch.split.at) if isinstance(branch.split, Cut) else b""])


def _bitmap(cells: Iterable[int], size: int) -> bytes:
    bits = bytearray(-(-size // 8))
    for c in cells:
        bits[c // 8] |= 1 << c % 8
    return bytes(bits)


def _count(n: int) -> bytes:
    return struct.pack("<I", n)


def _doubles(values: Sequence[Number]) -> bytes:
    for v in values:
        if Fraction(float(v)) != Fraction(v):
            raise ValueError(f"{v} is no float64")
    return struct.pack(f"<{len(values)}d", *(float(v) for v in values))


def _number(value: Number) -> bytes:
    q = Fraction(value)
    top = q.numerator.to_bytes(q.numerator.bit_length() // 8 + 1, "little", signed=True)
    bottom = q.denominator.to_bytes((q.denominator.bit_length() + 7) // 8, "little")
    return struct.pack("<HH", len(top), len(bottom)) + top + bottom
