"""Sums of relus that are bounded together (lunette.verify.joint), as the checker is told them.

A lemma, L >= q for a sum L of relus and inputs, is a split of L at q: the part where L <= q is empty, the other one
goes on to the next lemma, and at the end the proof of the claim adds all of them. In the part that is to be empty,
relus with negative coefficients are decided, one after the other, until the least of L is above q with lines alone. For
what is decided, and for the slopes of the others, factors are found by ascent; q is then the least that the checker's
own arithmetic makes of them, so that every lemma holds as it is stated. It is measured where L <= 0; where L <= q it is
less by q, if boxes are the same, as they are for sums of three terms or more: shorter ones are written as longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor, inf, nextafter
from typing import Any, Final

import numpy as np

from lunette.certificate.check import Region
from lunette.certificate.format import SLOPES, Branch, Cut, Proof, Sum
from lunette.certificate.produce import of_all_taps
from lunette.number import Array
from lunette.verify.joint import Joint

SCALE: Final = 1 << 36
"""Weights of a lemma are integers: multiples of 1/SCALE."""
SHARE: Final = 4
"""One part in so many of what is to spare may be lost by factors that are not the best."""
STEPS: Final = 400


@dataclass(eq=False)
class Part:
    """Where some relus of a group are decided: (member, side) of each."""

    group: int
    decided: tuple[tuple[int, int], ...]
    least: float = np.inf
    """Of the sum with lines for what is not decided; infinite where there is no point."""
    member: int = -1
    """The one that is decided next."""
    parts: list[Part] = field(default_factory=list)
    sides: Array | None = None
    betas: Array | None = None


def parts_of(joint: Joint, spare: float) -> tuple[list[Part], list[Part]]:
    """For every group the whole, split until its least value is nearly that of the sum; and all that is not split."""
    groups, least = joint.groups, joint.values.min(1)
    roots, leaves = [], []
    for k in range(len(least)):
        a, x = joint.a[k], groups.points[k]
        z = x @ groups.weights[k].T + groups.bias[k]
        lo, hi = groups.lo[k], groups.hi[k]
        chord = hi / (hi - lo) * (z - lo)
        roots.append(Part(k, ()))
        waiting = roots[-1:]
        while waiting:
            part = waiting.pop()
            signs = dict(part.decided)
            fixed = np.array([signs.get(m, -1) for m in range(len(a))])
            y = np.where(fixed == 1, z, np.where(fixed == 0, 0.0, np.where(a < 0, chord, np.maximum(z, 0))))
            there = np.where(fixed == 1, z >= -1e-9, np.where(fixed == 0, z <= 1e-9, True)).all(1)
            value = np.where(there, y @ a - x @ joint.g[k], np.inf)
            at = int(value.argmin())
            part.least = float(value[at])
            lost = np.where((a < 0) & (fixed < 0), a * (np.maximum(z[at], 0) - chord[at]), 0.0)
            part.member = int(lost.argmax())
            if part.least > least[k] - spare or lost[part.member] <= 0:
                leaves.append(part)
                continue
            part.parts = [Part(k, (*part.decided, (part.member, side))) for side in (0, 1)]
            waiting += part.parts
    return roots, leaves


def factor(
    joint: Joint, leaves: Sequence[Part], ends: Any, spare: float, tick: Callable[[str, int, int], None]
) -> None:
    """Slopes of relus that are not decided, and factors of what is, for every leaf: Polyak's steps to what is known."""
    groups, k = joint.groups, np.array([leaf.group for leaf in leaves])
    a, w, b, g = joint.a[k], groups.weights[k], groups.bias[k], joint.g[k]
    lo, hi = (np.append(e, 0.0)[groups.reads[k]] for e in ends)
    sign = np.zeros(a.shape)
    for r, leaf in enumerate(leaves):
        for m, side in leaf.decided:
            sign[r, m] = 2 * side - 1
    chord = groups.hi[k] / (groups.hi[k] - groups.lo[k])
    fixed = np.where(sign == 0, chord, np.maximum(sign, 0.0))
    constant = np.where((sign == 0) & (a < 0), -chord * groups.lo[k], 0.0)
    free = (sign == 0) & (a > 0)
    sides, betas = np.full(a.shape, 0.5), np.zeros(a.shape)
    least = joint.values.min(1)[k]
    target = np.minimum([leaf.least for leaf in leaves], least)
    best, kept = np.full(len(k), -np.inf), (sides, betas)
    for step in range(STEPS):
        tick("factors of lemmas", step, STEPS)
        rounded = np.rint(sides * SLOPES) / SLOPES
        slope = np.where(free, rounded, fixed)
        line = a * slope - betas * sign
        pulled = np.einsum("rm,rmd->rd", line, w) - g
        x = np.where(pulled > 0, lo, hi)
        value = (line * b + a * constant).sum(1) + (pulled * x).sum(1)
        better = value > best
        best = np.where(better, value, best)
        kept = np.where(better[:, None], rounded, kept[0]), np.where(better[:, None], betas, kept[1])
        open_ = best < target - spare
        if not open_.any():
            break
        # Factors are measured in coefficients, so that all slopes are alike; what is at its end stays there.
        z = np.einsum("rd,rmd->rm", x, w) + b
        up, more = np.where(free, a * z, 0.0), -sign * z * np.abs(a)
        up = np.where(np.where(up < 0, sides <= 0, sides >= 1), 0.0, up)
        more = np.where((betas <= 0) & (more < 0), 0.0, more)
        length = np.maximum((up * up + more * more).sum(1), 1e-300)
        move = np.where(open_, np.maximum(target - value, 0.0) / length, 0.0)[:, None]
        sides, betas = np.clip(sides + move * up, 0, 1), np.maximum(betas + move * more * np.abs(a), 0.0)
    for r, leaf in enumerate(leaves):
        leaf.sides, leaf.betas = kept[0][r], kept[1][r]


class Chain:
    """Lemmas one after the other, and then the claim."""

    def __init__(self, joint: Joint, claim: Any, tick: Callable[[str, int, int], None]) -> None:
        self.joint, self.claim, self.tick = joint, claim, tick
        self.done = 0

    def branch(self, region: Region, factors: Sequence[float], slopes: Any) -> Branch | None:
        """The tree of a certificate, or None if the lemmas are too weak in the checker's arithmetic."""
        joint, (given,) = self.joint, region.net.inputs
        ends = [np.array([v / (1 << region.bits) for v in end[given.at]]) for end in (region.lo, region.hi)]
        spare = joint.bound / SHARE / len(joint.a)
        roots, leaves = parts_of(joint, spare / 2)
        factor(joint, leaves, ends, spare / 2, self.tick)
        self.whole = len(leaves)
        chain: list[tuple[Sum, Branch]] = []
        for root in roots:
            if not (terms := self._terms(root.group, given.at)):
                continue
            inside = region.where(*region.parts(terms, None, Fraction(0))[0])
            before = [0.0] * len(region.spaces)
            branch, least = self._refuted(root, inside, [*before, 1 / SCALE])
            q = floor((least - Fraction(1, 1 << 30)) * SCALE)
            chain.append((Sum(terms, q), branch))
            region = region.where(*region.parts(terms, None, Fraction(q))[1])
        betas = [0.0] * (len(region.spaces) - len(chain)) + [1 / SCALE] * len(chain)
        exact = [[Fraction(v) for v in some] for some in (factors, betas)]
        excess = region.excess(self.claim, exact[0], exact[1], of_all_taps(region.net, slopes))
        if excess <= 0:
            return None
        joint.proven = nextafter(float(excess), -inf)
        found = Branch((), [Proof(0, factors, betas, slopes)])
        for split, empty in reversed(chain):
            found = Branch((), (), split, [empty, found])
        return found

    def _terms(self, k: int, given: int) -> list[tuple[int, int, int]]:
        """The sum of a lemma, in three terms at least: shorter ones would make boxes of the checker smaller."""
        groups = self.joint.groups
        relus = [
            (groups.relus, int(c), round(a * SCALE)) for c, a in zip(groups.cells[k], self.joint.a[k], strict=True)
        ]
        reads = zip(groups.reads[k], groups.weights[k].any(0), self.joint.g[k], strict=True)
        inputs = [(given, int(c), -round(g * SCALE)) for c, there, g in reads if there]
        found = [t for t in relus + inputs if t[1] >= 0 and t[2]]
        while 0 < len(found) < 3:
            at, cell, weight = found.pop()
            found += [(at, cell, 2 * weight), (at, cell, -weight)]
        return found

    def _refuted(self, part: Part, region: Region, betas: list[float]) -> tuple[Branch, Any]:
        """A part that is to be empty; and how far above zero its sum is, if its bound is zero."""
        if region.empty:
            return Branch(), inf
        groups = self.joint.groups
        if part.parts:
            cell = int(groups.cells[part.group, part.member])
            found = []
            for below, own in zip(part.parts, region.parts(groups.source, cell, Fraction(0)), strict=True):
                found.append(self._refuted(below, region.where(*own), betas))
            return Branch((), (), Cut(groups.source, cell, 0), [b for b, _ in found]), min(v for _, v in found)
        self.tick("certificate: parts of lemmas", self.done, self.whole)
        self.done += 1
        assert part.betas is not None and part.sides is not None
        betas = betas + [float(part.betas[m]) for m, _ in part.decided]
        decided, slopes = dict(part.decided), {}
        for m, c in enumerate(groups.cells[part.group].tolist()):
            if c >= 0 and m not in decided and self.joint.a[part.group, m] > 0:
                slopes[c] = [round(float(part.sides[m]) * SLOPES)]
        factors, chosen = [0.0] * len(self.claim), {groups.relus: slopes} if slopes else {}
        exact = [[Fraction(v) for v in some] for some in (factors, betas)]
        value = region.excess(self.claim, exact[0], exact[1], of_all_taps(region.net, chosen))
        return Branch((), [Proof(0, factors, betas, chosen)]), value
