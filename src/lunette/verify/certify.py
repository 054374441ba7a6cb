"""What was found, as a certificate: the checker's own arithmetic is run on it here, so that it proves what it says.

Bounds in floats found the proof; what counts is what the checker (lunette.certificate.check) makes of it. A claim is
stated only after the checker's exact walk has excluded it, with the slopes and factors that go into the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lunette.certificate.certificate import Certificate
from lunette.certificate.check import ZERO, Refused, Region
from lunette.certificate.format import SLOPES, Branch, Case, Cut, Forward, Inequality, Proof, Tighten, Winner, write
from lunette.certificate.produce import box_of, network_of, region_of, with_zero
from lunette.graph.graph import Graph
from lunette.lines import Greatest, Kink
from lunette.number import Array
from lunette.ops.enclose import Curved
from lunette.ops.max_pool import MaxPool
from lunette.ops.reduce import Max
from lunette.ops.unary import Abs, LeakyRelu, Relu
from lunette.relax.boxes import Boxes
from lunette.relax.step import Relaxed
from lunette.verify.leaves import Leaf, Walks
from lunette.verify.question import Room
from lunette.verify.search import Tree
from lunette.version import VERSION

Slopes = dict[int, dict[int, list[int]]]


_KNOWN: WeakKeyDictionary[Graph, Any] = WeakKeyDictionary()
"""Networks as the checker reads them: reading takes as long as a proof."""


class Unproven(Exception):  # noqa: N818
    """What bounds in floats prove, and no certificate does; says why."""


class Refuted(Exception):  # noqa: N818
    """Cases, and parts of trees, that the checker does not follow: they are open again."""

    def __init__(self, cases: Sequence[int], parts: Sequence[Tree]) -> None:
        super().__init__()
        self.cases, self.parts = cases, parts


def bends(graph: Any) -> list[int]:
    """The nodes that are kinks, maxima or curves of one cell and that the output depends on, in order."""
    needed = set(graph.outputs)
    for at in reversed(range(len(graph.nodes))):
        if at in needed:
            needed.update(i for i in graph.nodes[at].inputs if i is not None)
    kinds = (Relu, LeakyRelu, Abs, MaxPool, Max, Curved)
    return [at for at, n in enumerate(graph.nodes) if at in needed and n.kind is not None and issubclass(n.kind, kinds)]


class Certifier:
    """Cases of a certificate about one graph."""

    def __init__(self, graph: Graph, semantics: str, tick: Callable[[str, int, int], None]) -> None:
        self.graph, self.semantics, self.tick = graph, semantics, tick
        self.rooms: dict[int, _Room] = {}
        """What is known of each box, so that nothing is proven twice."""
        try:
            self.net = _KNOWN.get(graph) or network_of(graph)
            _KNOWN[graph] = self.net
        except Refused as error:
            why = f"bounds prove it, but the checker has no certificates of this network: it needs {error}"
            raise Unproven(why) from None

    def places(self, net: Boxes) -> dict[int, int]:
        """The checker's number of every node that bends, by its number in the graph that was bounded."""
        own, theirs = bends(self.graph), bends(net.graph)
        same = len(own) == len(theirs) and all(
            self.graph.nodes[a].kind is net.graph.nodes[b].kind
            and self.graph.nodes[a].shape == net.graph.nodes[b].shape
            for a, b in zip(own, theirs, strict=True)
        )
        if not same:
            return {}
        parts = {b: self.graph.nodes[a].kind in (LeakyRelu, Abs) for a, b in zip(own, theirs, strict=True)}
        return {b: 4 * a + 3 - parts[b] for a, b in zip(own, theirs, strict=True)}

    # ---- cases

    def cases(self, room: Room, net: Boxes, how: Sequence[Any], rows: Sequence[int], walks: Walks | None) -> list[Case]:
        """The proofs of all claims about one box: one case for those that need no splits, one for each that does."""
        work = self.rooms.setdefault(id(room), _Room(self, room, net, walks))
        work.walks, work.open, work.failed = walks, [], []
        trees = [c for c, h in enumerate(how) if isinstance(h, Tree) and h.children]
        early = [c for c, h in enumerate(how) if h == "interval"]
        late = [c for c in range(len(how)) if c not in (*trees, *early)]
        found = []
        if early:
            proofs = [work.at_root(c, rows[c], how[c], work.root) for c in early]
            found.append(self._case(work, early, Branch((), proofs)))
        if late:
            steps, region = work.tightened
            proofs = [work.at_root(c, rows[c], how[c], region) for c in late]
            found.append(self._case(work, late, Branch(steps, proofs)))
        found += [self._case(work, [c], work.split(c, rows[c], how[c])) for c in trees]
        if work.open or work.failed:
            raise Refuted(work.open, work.failed)
        return found

    def _case(self, work: _Room, claims: list[int], tree: Branch) -> Case:
        numbers = {c: k for k, c in enumerate(claims)}
        inequalities = [
            [Inequality(dict(d.terms), d.threshold, d.strict) for d in work.room.cases[c].conditions] for c in claims
        ]
        return Case(work.boxes, inequalities, _renumbered(tree, numbers))


def _renumbered(branch: Branch, numbers: Mapping[int, int]) -> Branch:
    proofs = [replace(p, claim=numbers[p.claim]) for p in branch.proofs]
    return Branch(branch.steps, proofs, branch.split, [_renumbered(b, numbers) for b in branch.parts])


class _Room:
    """Proofs about one box."""

    def __init__(self, certifier: Certifier, room: Room, net: Boxes, walks: Walks | None) -> None:
        self.certifier, self.room, self.net, self.walks = certifier, room, net, walks
        self.boxes = [box_of(b.lo, b.hi) for b in room.boxes]
        self.places = certifier.places(net)
        self.open: list[int] = []
        self.failed: list[Tree] = []
        self.proofs: dict[int, Proof] = {}
        """Of cases that need no split."""

    @cached_property
    def root(self) -> Region:
        """The whole box, by intervals."""
        self.certifier.tick("certificate", 0, 1)
        return region_of(self.certifier.net, self.boxes, self.certifier.semantics)

    @cached_property
    def tightened(self) -> tuple[list[Any], Region]:
        """The whole box, with the cells tightened that bounds in floats have tightened, by walks of the checker."""
        region, steps = self.root.where([]), list[Any]()
        nodes = self.certifier.net.nodes
        for at in sorted(self.net.tight):
            cells = np.flatnonzero(self.net.tight[at])
            reader = next((k for k in sorted(self.places) if at in self._read(k)), None)
            if not cells.size or reader is None:
                continue
            taps = nodes[self.places[reader]].taps or nodes[self.places[reader]].reads
            source = next(p for t in taps for p, _ in t if p != ZERO)
            part = [int(c) for c in cells if region.lo[source][c] < region.hi[source][c]]
            step = Tighten(source, part, part)
            self.certifier.tick(f"certificate: {len(part)} cells", 0, 1)
            region.tighten(source, [part, part])
            region.forward(source)
            steps += [step, Forward(source)]
        return steps, region

    def _read(self, k: int) -> tuple[int, ...]:
        """What the step of a node reads."""
        step = self.net.steps.get(k)
        return step.sources if isinstance(step, Relaxed) else ()

    # ---- proofs

    def at_root(self, case: int, row: int, how: Any, region: Region) -> Proof:
        """A proof that needs no split."""
        self.certifier.tick("certificate", case, len(self.room.cases))
        if case in self.proofs:
            return self.proofs[case]
        tries: list[Callable[[], Slopes | None]] = [dict, lambda: self._slopes(Leaf(row), {})]
        if isinstance(how, Tree):
            tries.insert(0, lambda: self._slopes(how.leaf, {}))
        tries.insert(0 if how == "interval" else len(tries), lambda: None)
        for make in tries:
            if (found := self._proof(case, row, make(), [], region)) is not None:
                self.proofs[case] = found
                return found
        self.open.append(case)
        return Proof(case)

    def _proof(self, case: int, row: int, chosen: Slopes | None, betas: list[float], region: Region) -> Proof | None:
        """A proof that the checker accepts, with slopes, or without them by the box of the output alone."""
        slopes = chosen or {}
        conditions = self.room.cases[case].conditions
        factors = [float(r == row) for r in self.room.places[case]]
        claim = [(dict(d.terms), d.threshold, d.strict) for d in conditions]
        net = self.certifier.net
        own = {(at, c): with_zero(net, at, c, v) for at, some in slopes.items() for c, v in some.items()}
        exact = [[Fraction(v) for v in values] for values in (factors, betas)]
        if region.empty or region.excludes(claim, exact[0], exact[1], own, chosen is None):
            return Proof(case, factors, betas, slopes, chosen is None)
        return None

    def _slopes(self, leaf: Leaf, skip: Mapping[tuple[int, int], Any]) -> Slopes:
        """The slopes that a leaf's walk has taken, where a cell is not decided."""
        if self.walks is None:
            return {}
        self.walks.plain([leaf])
        found = Slopes()
        for k, s in self.walks.relaxed.items():
            a = self.walks.dual.coefficients.get(k)
            if a is None or k not in self.places or len(s.relaxation.taps) != 1:
                continue
            if self.net.graph.nodes[s.sources[0]].kind is Relu:  # which the checker has as one with its reader
                continue
            part = self._slopes_of(k, s, a, skip)
            if part:
                found[self.places[k]] = part
        return found

    def _slopes_of(self, k: int, s: Relaxed, a: Array, skip: Mapping[tuple[int, int], Any]) -> dict[int, list[int]]:
        r, flat = s.relaxation, a.reshape(-1)
        low, high = (v[0][0].reshape(v[0].shape[1], -1) for v in (s.lines.low, s.lines.high))
        if isinstance(r, Kink):
            if r.right <= r.left:
                return {}
            cells = np.flatnonzero((flat != 0) & r.open.reshape(-1))
            used = np.where(flat[cells] > 0, low[0, cells], high[0, cells])
            scaled = np.rint((used - r.left) / (r.right - r.left) * SLOPES).astype(np.int64)
            return {int(c): [int(v)] for c, v in zip(cells, scaled, strict=True) if (k, int(c)) not in skip}
        if not isinstance(r, Greatest):
            return {}
        index = self._cells(s)
        many = np.where(flat > 0, low, high)
        taps = self.certifier.net.nodes[self.places[k]].taps
        found = {}
        for c in np.flatnonzero(flat != 0):
            if (k, int(c)) in skip:
                continue
            own = dict(zip(index[:, c].tolist(), many[:, c].tolist(), strict=True))
            found[int(c)] = [round(own.get(i, 0.0) * SLOPES) for p, i in taps[c] if p != ZERO]
        return found

    @staticmethod
    def _cells(s: Relaxed) -> Array:
        """The cell that each tap of each output cell reads, (taps, cells); -1 where there is none."""
        t = s.relaxation.taps[0]
        numbers = np.arange(int(np.prod(t.shape)), dtype=float).reshape(1, *t.shape)
        gathered = t.gather(numbers, -1.0)
        found: Array = gathered[0].reshape(gathered.shape[1], -1).astype(np.int64)
        return found

    # ---- splits

    def split(self, case: int, row: int, tree: Tree) -> Branch:
        """A tree of proofs."""
        steps, region = self.tightened
        whole = self._branch(case, row, tree, region, [], {})
        return Branch(steps, whole.proofs, whole.split, whole.parts)

    def _branch(
        self, case: int, row: int, tree: Tree, region: Region, path: list[Any], skip: dict[tuple[int, int], Any]
    ) -> Branch:
        self.certifier.tick("certificate: leaves", 0, 1)
        if region.empty:
            return Branch()
        if not tree.children:
            if tree.proof is not None:
                return Branch((), [tree.proof])
            betas = [float(max(b, 0.0)) for d, order in path for b in self._betas(tree.leaf, d, order)]
            for slopes in (self._slopes(tree.leaf, skip), Slopes()):
                if (proof := self._proof(case, row, slopes, betas, region)) is not None:
                    tree.proof = proof
                    return Branch((), [proof])
            self.failed.append(tree)
            return Branch()
        k, cell = tree.node, tree.cell
        if k not in self.places:
            raise Unproven("a split of an operator that certificates have no splits of")
        below = {**skip, (k, cell): True}
        children = {t.leaf.decisions[-1][2]: t for t in tree.children}
        assert self.walks is not None
        s = self.walks.decided[k]
        taps = self.certifier.net.nodes[self.places[k]].taps[cell]
        parts = []
        if isinstance(s.relaxation, Kink):
            source, i = next(t for t in taps if t[0] != ZERO)
            for choice, sign in ((0, -1), (1, 1)):
                part = region.where([([(source, i, sign)], 0)])
                parts.append(self._branch(case, row, children[choice], part, [*path, ((k, cell, choice), None)], below))
            return Branch((), (), Cut(source, i, 0), parts)
        index = self._cells(s)[:, cell].tolist()
        mine = [len(index) if p == ZERO else index.index(i) for p, i in taps]
        if self.net.graph.nodes[s.sources[0]].kind is Relu:
            raise Unproven("a split of a maximum whose relu others read, too")
        for j, won in enumerate(taps):
            spaces = [([(*won, 1), (*lost, -1)], 0) for lost in taps if lost != won]
            part = region.where(spaces, [((self.places[k], cell), j)])
            order = [m for m in mine if m != mine[j]]
            if mine[j] in children:
                child = children[mine[j]]
            elif part.empty:
                parts.append(Branch())
                continue
            else:  # a tap that can be no more than equal to another
                child = Tree(Leaf(row, (*tree.children[0].leaf.decisions[:-1], (k, cell, mine[j]))))
            parts.append(self._branch(case, row, child, part, [*path, ((k, cell, mine[j]), order)], below))
        return Branch((), (), Winner(self.places[k], cell), parts)

    @staticmethod
    def _betas(leaf: Leaf, decision: Any, order: list[int] | None) -> list[float]:
        found = leaf.betas.get(decision)
        if order is None:
            return [0.0 if found is None else float(found[0])]
        return [0.0] * len(order) if found is None else [float(found[m]) for m in order]


def made(net: Any, cases: Sequence[Case], semantics: str) -> Certificate:
    """A certificate of these cases."""
    return Certificate(write(net, cases, semantics, f"lunette {VERSION}, verify"))
