"""Relus that read the same few inputs, bounded together.

The lines of a relu know nothing of other relus, though those of one window read the same cells. Of some relus of the
first layer, all of which read a few cells x only, take the coefficients a that a walk back gives them, and any g:

    sum of a * relu(w . x + b)  -  g . x   >=   q(g)

The left side is linear between the kinks, so its least value, q(g), is at one of the points in which kinks and sides of
the box meet: these are few where the cells are few. Then, for groups k of relus and the rest of the walk,

    row . y  >=  rest  +  the sum of q_k(g_k)  +  the least, over the box, of (the sum of g_k + what else is pulled) . x

for any g_k, which are improved by ascent. Each of the inequalities above is one that the checker is told as a split of
its left side at q_k, one part of which is empty (lunette.verify.lemmas). Points are found in floats, and prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from lunette.certificate.check import ZERO, Network, Region
from lunette.certificate.format import most_splits
from lunette.graph.graph import Graph
from lunette.number import Array

MOST_CELLS: Final = 4
"""Cells of inputs that relus of a group read: points are as many as there are choices of so many kinks and sides."""
MOST_MEMBERS: Final = 12
MOST_FOUND: Final = 1000
"""Groups whose points are found."""
MOST_GROUPS: Final = (50, 100, 200, 400)
"""Groups that are tried, those first whose lines lose most: each is a level of the tree, and takes a while to check."""
STEPS: Final = 200


@dataclass(eq=False)
class Groups:
    """Relus of the first layer by the cells that they read, padded to the same numbers of relus, cells and points."""

    relus: int
    """The checker's node."""
    source: int
    """What the relus read."""
    cells: Array
    """(groups, members): cells of both; -1 where there is no member."""
    reads: Array
    """(groups, cells): cells of the input; the number of cells of the input where there is none."""
    weights: Array
    """(groups, members, cells)."""
    bias: Array
    lo: Array
    """(groups, members): the ends of what each relu reads."""
    hi: Array
    points: Array
    """(groups, points, cells)."""
    most: int
    """How many of them one certificate can speak of."""

    def chosen(self, at: Array) -> Groups:
        """Some of them."""
        each = ("cells", "reads", "weights", "bias", "lo", "hi", "points")
        return replace(self, **{name: getattr(self, name)[at] for name in each})


def reads_few(graph: Graph, relus: int) -> bool:
    """Whether the sums that a node of relus reads have few terms, so far as the operator tells."""
    n = graph.nodes[graph.nodes[relus].inputs[0] or 0]
    terms = None if n.kind is None or n.resolved is None else n.op.terms(n.resolved.shapes)
    return terms is not None and terms <= MOST_CELLS + 1


def groups_of(net: Network, region: Region, relus: int, tick: Callable[[str, int, int], None]) -> Groups | None:
    """The relus of a node that can have both signs, if all read few cells of the one input, and nothing else."""
    most = min(MOST_GROUPS[-1], most_splits(net) - MOST_MEMBERS)  # lemmas are in each other, and then what one decides
    if len(net.inputs) != 1 or most < 1:
        return None
    (given,), node, one = net.inputs, net.nodes[relus], 1 << region.bits
    lo, hi = (np.array([v / one for v in end[given.at]] + [0.0]) for end in (region.lo, region.hi))
    found: dict[tuple[int, ...], list[tuple[int, dict[int, float], float]]] = {}
    sources = {p for taps in node.taps for p, _ in taps if p != ZERO}
    if len(sources) != 1 or (z := net.nodes[source := sources.pop()]).sums is None:
        return None
    for c, taps in enumerate(node.taps):
        ((p, i),) = [t for t in taps if t[0] != ZERO] if len(taps) == 2 else [(ZERO, 0)]
        if p == ZERO or i != c or not region.lo[source][i] < 0 < region.hi[source][i]:
            continue
        weights, bias = dict[int, float](), 0.0
        for at, ins, own in z.sums[i]:
            numbers = net.nodes[at].numbers
            if numbers is not None:
                bias += float(sum(w * numbers[k] for k, w in zip(ins, own, strict=True)) / z.denominator)
            elif at != given.at:
                return None
            else:
                for k, w in zip(ins, own, strict=True):
                    weights[k] = weights.get(k, 0.0) + w / z.denominator
        bias += sum(w * lo[k] for k, w in weights.items() if lo[k] == hi[k])
        weights = {k: w for k, w in sorted(weights.items()) if lo[k] < hi[k]}
        found.setdefault(tuple(weights), []).append((c, weights, bias))

    def lost(members: Any) -> float:
        """What chords can lose, at most."""
        ends = [(region.lo[source][c], region.hi[source][c]) for c, _, _ in members]
        return float(sum(q * -p / (q - p) for p, q in ends))

    fit = [(k, v) for k, v in found.items() if 0 < len(k) <= MOST_CELLS and 1 < len(v) <= MOST_MEMBERS]
    kept = dict(sorted(fit, key=lambda own: -lost(own[1]))[:MOST_FOUND])
    return _padded(kept, (relus, source, most), region, (lo, hi), tick) if kept else None


def _padded(kept: Mapping[Any, Any], names: tuple[int, int, int], region: Region, ends: Any, tick: Any) -> Groups:
    relus, source, limit = names
    count, most, one = len(kept), max(map(len, kept.values())), 1 << region.bits
    cells, reads = np.full((count, most), -1), np.full((count, MOST_CELLS), len(ends[0]) - 1)
    weights, bias = np.zeros((count, most, MOST_CELLS)), np.zeros((count, most))
    lo, hi = np.full((count, most), -1.0), np.ones((count, most))
    points = []
    for k, (read, members) in enumerate(kept.items()):
        tick("points where kinks meet", k, count)
        reads[k, : len(read)] = read
        for m, (c, own, b) in enumerate(members):
            cells[k, m], weights[k, m, : len(read)], bias[k, m] = c, list(own.values()), b
            lo[k, m], hi[k, m] = region.lo[source][c] / one, region.hi[source][c] / one
        n = len(members)
        points.append(meeting(weights[k, :n, : len(read)], bias[k, :n], *(e[list(read)] for e in ends)))
    whole = np.zeros((count, max(map(len, points)), MOST_CELLS))
    for k, own in enumerate(points):
        whole[k, :, : own.shape[1]] = own[np.minimum(np.arange(whole.shape[1]), len(own) - 1)]
    return Groups(relus, source, cells, reads, weights, bias, lo, hi, whole, limit)


def meeting(weights: Array, bias: Array, lo: Array, hi: Array) -> Array:
    """The points of a box in which as many kinks and sides of it meet as there are axes.

    They are found in a box of side 1, with kinks as unit vectors: so what is small or near does not depend on units.
    """
    d, wide = len(lo), hi - lo
    kinks, far = weights * wide, bias + weights @ lo
    length = np.maximum(np.linalg.norm(kinks, axis=1), 1e-300)
    planes = np.concatenate([np.eye(d), np.eye(d), kinks / length[:, None]])
    at = np.concatenate([np.zeros(d), np.ones(d), -far / length])
    some = np.array([c for c in combinations(range(len(planes)), d) if not any(i + d in c for i in c if i < d)])
    matrices = planes[some]
    regular = np.abs(np.linalg.det(matrices)) > 1e-9
    x = np.linalg.solve(matrices[regular], at[some][regular][..., None])[..., 0]
    inside = ((x >= -1e-9) & (x <= 1 + 1e-9)).all(1)
    found: Array = np.clip(lo + wide * np.unique(np.clip(x[inside], 0, 1).round(12), axis=0), lo, hi)
    return found


@dataclass(eq=False)
class Joint:
    """Groups and what was found for one row: a g for each."""

    leaf: Any
    """The lines of all other relus."""
    groups: Groups
    a: Array
    """(groups, members): coefficients of relus."""
    g: Array
    """(groups, cells)."""
    bound: float
    """Not proven: what the sum above comes to."""
    proven: float = -np.inf
    """What the checker makes of the lemmas, once they were replayed."""

    @property
    def values(self) -> Array:
        """(groups, points): the left side."""
        found: Array = values(self.groups, self.a) - np.einsum("kpd,kd->kp", self.groups.points, self.g)
        return found


def values(groups: Groups, a: Array) -> Array:
    """(groups, points): the sums of a * relu."""
    z = np.einsum("kpd,kmd->kpm", groups.points, groups.weights) + groups.bias[:, None]
    found: Array = np.einsum("kpm,km->kp", np.maximum(z, 0), a)
    return found


def improved(
    leaf: Any,
    groups: Groups,
    a: Array,
    slopes: Array,
    constants: Array,
    pulled: Array,
    ends: Any,
    bound: float,
    target: float,
) -> Joint | None:
    """The best that was found: for coefficients `a` of all relus, their slopes and constants, and what is pulled back.

    `bound` is what the lines alone give. Steps are Polyak's, toward a target; None if there is no proof.
    """
    at = np.maximum(groups.cells, 0)
    own, s, t = (np.where(groups.cells < 0, 0.0, v[at]) for v in (a, slopes, constants))
    lost = (np.maximum(-own, 0.0) * groups.hi * -groups.lo / (groups.hi - groups.lo)).sum(1)
    lo, hi = (np.append(e, 0.0) for e in ends)
    limit = min(len(lost), groups.most)
    for most in (*(n for n in MOST_GROUPS if n < limit), limit):
        best = np.argsort(-lost)[:most]
        some, b = groups.chosen(best), own[best]
        g = np.einsum("km,km,kmd->kd", b, s[best], some.weights)
        rest = np.append(pulled, 0.0)
        np.add.at(rest, some.reads, -g)
        base = bound - np.where(pulled > 0, pulled * lo[:-1], pulled * hi[:-1]).sum()
        base -= (b * (t[best] + s[best] * some.bias)).sum()
        found = _ascent(some, b, g, rest, base, (lo, hi), target)
        if found[0] > target / 4:
            return Joint(leaf, some, b, found[1], found[0])
    return None


def _ascent(groups: Groups, a: Array, g: Array, rest: Array, base: float, ends: Any, target: float) -> Any:
    (lo, hi), each, best = ends, np.arange(len(a)), (-np.inf, g)
    f, middle = values(groups, a), ends[0] / 2 + ends[1] / 2
    for _ in range(STEPS):
        left = f - np.einsum("kpd,kd->kp", groups.points, g)
        least = left.argmin(1)
        whole = rest.copy()
        np.add.at(whole, groups.reads, g)
        x = np.where(whole > 0, lo, np.where(whole < 0, hi, middle))
        value = float(base + left[each, least].sum() + (whole * x).sum())
        if value > best[0]:
            best = value, g
        if value > 0.8 * target:
            break
        way = x[groups.reads] - groups.points[each, least]
        g = g + (target - value) * way / max(float((way * way).sum()), 1e-300)
    return best
