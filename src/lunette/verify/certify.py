"""What was found, as a certificate: the checker's own arithmetic is run on it here, so that it proves what it says.

Bounds in floats found the proof; what counts is what the checker (lunette.certificate.check) makes of it. A claim is
stated only after the checker's exact walk has excluded it, with the slopes and factors that go into the file. What a
file may have at most, the checker's limits say, too: a proof that needs more is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from lunette.certificate import check
from lunette.certificate.certificate import Certificate
from lunette.certificate.check import ZERO, Refused, Region, Tap
from lunette.certificate.format import (
    BITS,
    SLOPES,
    Branch,
    Case,
    Cut,
    Forward,
    Inequality,
    Proof,
    Tighten,
    Winner,
    most_splits,
    write,
)
from lunette.certificate.produce import box_of, lined, network_of, of_all_taps, region_of, tightened
from lunette.certificate.slots import near
from lunette.graph.graph import Graph
from lunette.lines import Greatest, Kink
from lunette.number import Array
from lunette.ops.enclose import Curved
from lunette.ops.max_pool import MaxPool
from lunette.ops.reduce import Max
from lunette.ops.unary import Abs, LeakyRelu, Relu
from lunette.relax.boxes import Boxes
from lunette.relax.optimise import attained
from lunette.relax.step import Relaxed
from lunette.verify.joint import Groups, Joint, groups_of
from lunette.verify.leaves import Leaf, Walks
from lunette.verify.lemmas import Chain
from lunette.verify.question import Room
from lunette.verify.search import Tree
from lunette.version import VERSION

Slopes = dict[int, dict[int, list[int]]]
AT_ONCE: Final = 256
"""Cells that are tightened between two looks at the clock: about as many as walk together."""


LIMITS: Final = "a certificate of what was found is more than the checker takes"
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

    def __init__(self, graph: Graph, semantics: str, tick: Callable[[str, int, int], None], bits: int = BITS) -> None:
        self.graph, self.semantics, self.tick, self.bits = graph, semantics, tick, bits
        self.rooms: dict[int, _Room] = {}
        """What is known of each box, so that nothing is proven twice."""
        try:
            self.net = _KNOWN.get(graph) or network_of(graph)
            _KNOWN[graph] = self.net
        except Refused as error:
            why = f"bounds suggest it, but the checker has no certificates of this network: it needs {error}"
            raise Unproven(why) from None

    def places(self, net: Boxes) -> dict[int, int]:
        """The checker's number of every node that bends, by its number in the graph that was bounded."""

        def told(graph: Graph, at: int) -> Any:
            n = graph.nodes[at]
            return n.kind, n.shape, graph.nodes[n.inputs[0] or 0].shape

        own, theirs = bends(self.graph), bends(net.graph)
        same = [told(self.graph, a) for a in own] == [told(net.graph, b) for b in theirs]
        if not same:
            return {}
        parts = {b: self.graph.nodes[a].kind in (LeakyRelu, Abs) for a, b in zip(own, theirs, strict=True)}
        return {b: 4 * a + 3 - parts[b] for a, b in zip(own, theirs, strict=True)}

    # ---- cases

    def cases(self, room: Room, net: Boxes, how: Sequence[Any], rows: Sequence[int], walks: Walks | None) -> list[Case]:
        """The proofs of all claims about one box: one case for those that need no splits, one for each that does."""
        work = self.room(room, net, walks)
        work.walks, work.open, work.failed = walks, [], []
        trees = [c for c, h in enumerate(how) if isinstance(h, Tree) and h.children]
        joint = [c for c, h in enumerate(how) if isinstance(h, Joint)]
        early = [c for c, h in enumerate(how) if h == "interval"]
        late = [c for c in range(len(how)) if c not in (*trees, *joint, *early)]
        found = []
        if early:
            proofs = [work.at_root(c, rows[c], how[c], work.root) for c in early]
            found.append(self._case(work, early, Branch((), _numbered(proofs))))
        if late:
            steps, region = work.tightened
            proofs = [work.at_root(c, rows[c], how[c], region) for c in late]
            found.append(self._case(work, late, Branch(steps, _numbered(proofs))))
        found += [self._case(work, [c], work.split(c, rows[c], how[c])) for c in trees]
        found += [self._case(work, [c], work.together(c, rows[c], how[c])) for c in joint]
        if work.open or work.failed:
            raise Refuted(work.open, work.failed)
        work.work = work.root.work[0] + len(found) * work.begun
        return found

    def room(self, room: Room, net: Boxes, walks: Walks | None) -> _Room:
        """What is known of a box."""
        return self.rooms.setdefault(id(room), _Room(self, room, net, walks))

    def _case(self, work: _Room, claims: list[int], tree: Branch) -> Case:
        return Case(work.boxes, [[Inequality(*d) for d in work.claim(c)] for c in claims], tree)

    def made(self, cases: Sequence[Case]) -> Certificate:
        """A certificate of these cases, which the checker has followed; Refused if there is more than it reads."""
        data = write(self.net, cases, self.semantics, f"lunette {VERSION}, verify", self.bits)
        try:
            check.cases_of(check.parsed(data))
        except ValueError:
            raise Refused(f"a smaller file: it has {len(data)} bytes") from None
        work, todo = sum(w.work for w in self.rooms.values()), [(len(c.claims), c.tree) for c in cases]
        while todo:
            claims, branch = todo.pop()
            work += claims + len(self.net.nodes) * (1 + len(branch.steps))
            todo += [(claims, part) for part in branch.parts]
        # Twice: the checker may pack rows otherwise, which have then another price.
        check.need(2 * work < check.MOST_WORK, "less work in all cases together")
        return Certificate(data)


def _numbered(proofs: Sequence[Proof]) -> list[Proof]:
    """Of all claims of a case, in order."""
    return [replace(p, claim=k) for k, p in enumerate(proofs)]


class _Room:
    """Proofs about one box."""

    def __init__(self, certifier: Certifier, room: Room, net: Boxes, walks: Walks | None) -> None:
        self.certifier, self.room, self.net, self.walks = certifier, room, net, walks
        self.boxes = [box_of(b.lo, b.hi) for b in room.boxes]
        self.places = certifier.places(net)
        self.open: list[int] = []
        self.failed: list[Tree] = []
        self.leaves = 0, 0
        """Of the tree that is replayed: how many were, and how many there are."""
        self.proofs: dict[int, Proof] = {}
        """Of cases that need no split."""
        self.chains: dict[int, Branch] = {}
        """Of cases that lemmas prove."""
        self.most = most_splits(certifier.net)
        """Splits that may be in each other."""
        self.begun = self.work = 0
        """What the checker spends to begin a case, and on all of them, at most."""

    @cached_property
    def root(self) -> Region:
        """The whole box, by intervals."""
        self.certifier.tick("certificate", 0, 1)
        found = region_of(self.certifier.net, self.boxes, self.certifier.semantics, self.certifier.bits)
        self.begun += found.work[0]
        return found

    @cached_property
    def tightened(self) -> tuple[list[Any], Region]:
        """The whole box, with the cells tightened that bounds in floats have tightened, by walks of the checker."""
        region = self.root.where([])
        before = region.work[0]
        self.certifier.tick("certificate: lines", 0, 1)
        steps: list[Any] = [*lined(region)]
        relaxed = {k: s.relaxation for k, s in self.net.steps.items() if isinstance(s, Relaxed)}
        whole = any(isinstance(r, Greatest) for r in relaxed.values())  # who can win depends on both ends
        for at in sorted(self.net.tight):
            readers = [k for k in sorted(self.places) if at in self._read(k)]
            found = dict[int, list[tuple[int, int]]]()
            for c, (p, i) in enumerate(self._source(readers[0]) if readers else ()):
                found.setdefault(p, []).append((c, i))
            sided = not whole and all(isinstance(relaxed[k], Kink) for k in readers)
            for source, cells in sorted(found.items()):
                steps += self._tightened(region, at, source, cells, sided)
        region.forward()
        self.begun += region.work[0] - before
        return steps, region

    def _tightened(
        self, region: Region, at: int, source: int, cells: Sequence[tuple[int, int]], sided: bool
    ) -> list[Any]:
        """Steps for cells of a node, (its own, the checker's): of what kinks read, for the end that tells the side.

        Bounds in floats know the side of most cells; of the others, and where the checker does not find it, both ends.
        """
        region.forward(last=source)
        box, steps = self.net.boxes[at], list[Any]()
        least, most, chosen = (v.reshape(-1).tolist() for v in (box.lo, box.hi, self.net.tight[at]))

        def is_open(i: int) -> bool:
            lo, hi = region.lo[source][i], region.hi[source][i]
            return lo < 0 < hi if sided else lo < hi

        cells = [(c, i) for c, i in cells if is_open(i) and (sided or chosen[c])]
        low = {i for c, i in cells if not sided or most[c] > 0}
        high = {i for c, i in cells if not sided or least[c] < 0}
        while low or high:
            order = sorted(low | high, key=near(self.certifier.net)[source].__getitem__)  # alike walk together
            for start in range(0, len(order), AT_ONCE):  # cells of one node do not read each other
                self.certifier.tick(f"certificate: cells of node {at}", start, len(order))
                part = order[start : start + AT_ONCE]
                region.tighten(source, [[i for i in part if i in own] for own in (low, high)])
            steps.append(Tighten(source, sorted(low), sorted(high)))
            left = {i for i in low ^ high if is_open(i)} if sided and len(steps) == 1 else set()
            low, high = left - low, left - high
        if steps:
            region.later(source)
            steps.append(Forward(source))
        return steps

    def _source(self, k: int) -> list[Tap]:
        """What the checker calls the cells that the step of a node reads, which may be those of several nodes."""
        net, graph, place = self.certifier.net, self.certifier.graph, self.places[k]
        source = graph.nodes[place // 4].inputs[0]
        if self.net.graph.nodes[k].inputs[0] in self.net.fused:
            source = graph.nodes[source or 0].inputs[0]
        found, nodes = net.arrays[source or 0].taps, net.nodes
        inner = self._inner(place, found)
        return [next((t for t in nodes[p].taps[i] if t[0] != ZERO), (p, i)) if p in inner else (p, i) for p, i in found]

    def _inner(self, place: int, read: Sequence[Tap]) -> set[int]:
        """Relus that the checker has as a part of a maximum that reads them."""
        nodes = self.certifier.net.nodes
        return {p for p, _ in read if p not in nodes[place].sources and nodes[p].taps}

    def _through(self, k: int, walks: Walks) -> list[Array]:
        """Of every cell that a step reads, the slopes below and above of a relu that the checker has as part of it."""
        place = self.places[k]
        read = self.certifier.net.arrays[self.certifier.graph.nodes[place // 4].inputs[0] or 0].taps
        relus, found = {at: r for r, at in self.places.items()}, [np.ones(len(read)), np.ones(len(read))]
        if self.net.graph.nodes[k].inputs[0] in self.net.fused:
            return found
        for p in self._inner(place, read):
            cells, own = np.array([(c, i) for c, (q, i) in enumerate(read) if q == p]).T
            lines = walks.relaxed[relus[p]].lines
            for v, line in zip(found, (lines.low, lines.high), strict=True):
                v[cells] = line[0][0].reshape(-1)[own]
        return found

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
        return Proof(0)

    def claim(self, case: int) -> list[Any]:
        """The conditions of a case, as the checker has them."""
        return [(dict(d.terms), d.threshold, d.strict) for d in self.room.cases[case].conditions]

    def _factors(self, case: int, row: int) -> list[float]:
        return [float(r == row) for r in self.room.places[case]]

    def _proof(self, case: int, row: int, chosen: Slopes | None, betas: list[float], region: Region) -> Proof | None:
        """A proof that the checker accepts, with slopes, or without them by the box of the output alone."""
        slopes, factors = chosen or {}, self._factors(case, row)
        own = of_all_taps(self.certifier.net, slopes)
        exact = [[Fraction(v) for v in values] for values in (factors, betas)]
        if region.empty or region.excludes(self.claim(case), exact[0], exact[1], own, chosen is None):
            return Proof(0, factors, betas, slopes, chosen is None)
        return None

    def _slopes(self, leaf: Leaf, skip: Mapping[tuple[int, int], Any]) -> Slopes:
        """The slopes that a leaf's walk has taken, where a cell is not decided."""
        if self.walks is None:
            return {}
        walks = self.walks.within(leaf.cuts)
        walks.plain([leaf])
        found, values = Slopes(), attained(walks.dual, walks.out, lambda *_: None)
        for k, s in walks.relaxed.items():
            a = walks.dual.coefficients.get(k)
            if a is None or k not in self.places or len(s.relaxation.taps) != 1:
                continue
            part = self._slopes_of(k, s, a, s.gathered([values[i] for i in s.sources])[0], skip, walks)
            if part:
                found[self.places[k]] = part
        return found

    def _slopes_of(
        self, k: int, s: Relaxed, a: Array, read: Array, skip: Mapping[tuple[int, int], Any], walks: Walks
    ) -> dict[int, list[int]]:
        """Multiples of 1/SLOPES. Of lines above a kink, on the side that loses nothing where the bound is attained."""
        r, flat = s.relaxation, a.reshape(-1)
        low, high = (v[0][0].reshape(v[0].shape[1], -1) for v in (s.lines.low, s.lines.high))
        if isinstance(r, Kink):
            if r.right <= r.left:
                return {}
            cells = np.flatnonzero((flat != 0) & r.open.reshape(-1))
            below, z = flat[cells] > 0, read[0].reshape(-1)[cells]
            used = (np.where(below, low[0, cells], high[0, cells]) - r.left) / (r.right - r.left) * SLOPES
            scaled = np.where(below, np.rint(used), np.where(z < 0, np.ceil(used), np.floor(used))).astype(np.int64)
            return {int(c): [int(v)] for c, v in zip(cells, scaled, strict=True) if (k, int(c)) not in skip}
        if not isinstance(r, Greatest):
            return {}
        source, index = self._source(k), self._cells(s)
        below, above = (np.where(index >= 0, v[index], 0.0) for v in self._through(k, walks))
        many = np.where(flat > 0, low * below, high * above)
        taps = self.certifier.net.nodes[self.places[k]].taps
        found = {}
        for c in np.flatnonzero(flat != 0):
            if (k, int(c)) in skip:
                continue
            own = {source[i]: v for i, v in zip(index[:, c].tolist(), many[:, c].tolist(), strict=True) if i >= 0}
            found[int(c)] = [round(own.get(t, 0.0) * SLOPES) for t in taps[c] if t[0] != ZERO]
        return found

    @staticmethod
    def _cells(s: Relaxed) -> Array:
        """The cell that each tap of each output cell reads, (taps, cells); -1 where there is none."""
        t = s.relaxation.taps[0]
        numbers = np.arange(int(np.prod(t.shape)), dtype=float).reshape(1, *t.shape)
        gathered = t.gather(numbers, -1.0)
        found: Array = gathered[0].reshape(gathered.shape[1], -1).astype(np.int64)
        return found

    # ---- relus together

    def groups(self, k: int) -> Groups | None:
        """The relus of a node of the bounded graph that read the same few inputs."""
        if k not in self.places:
            return None
        return groups_of(self.certifier.net, self.root, self.places[k], self.certifier.tick)

    def together(self, case: int, row: int, joint: Joint) -> Branch:
        """A chain of lemmas, and a proof by them."""
        if case not in self.chains:
            steps, region = self.tightened
            chain = Chain(joint, self.claim(case), self.certifier.tick)
            found = chain.branch(region, self._factors(case, row), self._slopes(joint.leaf, {}))
            if found is None:
                self.open.append(case)
                return Branch()
            self.chains[case] = replace(found, steps=steps)
        return self.chains[case]

    # ---- splits

    def split(self, case: int, row: int, tree: Tree) -> Branch:
        """A tree of proofs."""
        steps, region = self.tightened
        self.leaves = 0, len(tree.leaves)
        whole = self._branch(case, row, tree, region, [], {})
        return Branch(steps, whole.proofs, whole.split, whole.parts)

    def _branch(
        self, case: int, row: int, tree: Tree, region: Region, path: list[Any], skip: dict[tuple[int, int], Any]
    ) -> Branch:
        if region.empty:
            return Branch()
        if not tree.children:
            self.certifier.tick("certificate: leaves", self.leaves[0], self.leaves[1])
            self.leaves = self.leaves[0] + 1, self.leaves[1]
            if (known := tree.proofs.get(self.certifier.bits)) is not None:
                return Branch((), [known])
            betas = [float(max(b, 0.0)) for d, order in path for b in self._betas(tree.leaf, d, order)]
            for slopes in (self._slopes(tree.leaf, skip), Slopes()):
                if (proof := self._proof(case, row, slopes, betas, region)) is not None:
                    tree.proofs[self.certifier.bits] = proof
                    return Branch((), [proof])
            self.failed.append(tree)
            return Branch()
        k, cell = tree.node, tree.cell
        if len(path) >= self.most:
            raise Unproven(f"{LIMITS}: more than {self.most} splits are in each other")
        if tree.at is not None:
            return self._halves(case, row, tree, region, path, skip)
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
        source, index = self._source(k), self._cells(s)[:, cell].tolist()
        read = [source[i] if i >= 0 else None for i in index]
        mine = [len(read) if t[0] == ZERO else read.index(t) for t in taps]
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
                decisions = (*tree.leaf.decisions, (k, cell, mine[j]))
                child = Tree(Leaf(row, decisions, tree.leaf.bound, cuts=tree.leaf.cuts))
            parts.append(self._branch(case, row, child, part, [*path, ((k, cell, mine[j]), order)], below))
            if child in self.failed and child not in tree.children:
                tree.children.append(child)  # to be split further, as others are
        return Branch((), (), Winner(self.places[k], cell), parts)

    def _halves(
        self, case: int, row: int, tree: Tree, region: Region, path: list[Any], skip: dict[tuple[int, int], Any]
    ) -> Branch:
        """A cell of an input cut in two; boxes of all nodes are made anew where no other input is cut at once."""
        net, parts = self.certifier.net, []
        at = net.inputs[self.net.inputs.index(tree.node)].at
        assert tree.at is not None
        for k, (child, own) in enumerate(
            zip(tree.children, region.parts(at, tree.cell, Fraction(tree.at)), strict=True)
        ):
            part = region.where(*own)
            steps = self._anew(part) if child.at is None else []
            below = self._branch(case, row, child, part, [*path, ((tree.node, tree.cell, k), None)], skip)
            parts.append(replace(below, steps=steps))
        return Branch((), (), Cut(at, tree.cell, tree.at), parts)

    def _anew(self, part: Region) -> list[Any]:
        """Boxes of all nodes of a part whose inputs have smaller ones."""
        if part.empty:
            return []
        first = min(n.at for n in self.certifier.net.inputs)
        part.forward(first)
        return [Forward(first), *tightened(part)]

    @staticmethod
    def _betas(leaf: Leaf, decision: Any, order: list[int] | None) -> list[float]:
        found = leaf.betas.get(decision)
        if order is None:
            return [0.0 if found is None else float(found[0])]
        return [0.0] * len(order) if found is None else [float(found[m]) for m in order]
