"""`ln.verify`: whether a property holds everywhere in a box.

An attack looks for a counterexample, along gradients of the compiled network; what it finds counts only if it is one in
exact arithmetic. Then bounds: by intervals, by lines, by better lines, each only for the cases that are open. Then
the box is split, on signs and winners, until all parts are refuted or the time is over.

| rule | says                                                                                     |
|------|------------------------------------------------------------------------------------------|
| VF1  | f is a graph, a program or a function, with one output of floats                         |
| VF2  | a property is an ln.Property                                                             |
| VF3  | timeout is a number of seconds > 0, memory bytes, seed an integer >= 0                   |
| VF4  | method is one of METHODS: how far to go                                                  |
| VF5  | semantics is "real" or "float"                                                           |
| VF6  | only a verdict that is disproved has a counterexample to save                            |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from lunette.certificate.check import Refused
from lunette.certificate.format import BITS
from lunette.errors import ArgumentError, DTypeError, error_context, refuses, shown
from lunette.graph.graph import Graph
from lunette.graph.program import Program
from lunette.number import Array, Interval
from lunette.ops.unary import Relu
from lunette.relax.bounds import Answer
from lunette.relax.floats import Floats
from lunette.relax.given import check_method, check_semantics, graph_of
from lunette.relax.network import in_float64
from lunette.verify import exact
from lunette.verify.attack import Attack, Point
from lunette.verify.case import inside, output_cells
from lunette.verify.certify import LIMITS, Certifier, Refuted, Unproven
from lunette.verify.clock import Clock, TimeUp
from lunette.verify.joint import Joint, reads_few
from lunette.verify.leaves import Leaf, Walks
from lunette.verify.property import Property
from lunette.verify.question import Room, rooms_of
from lunette.verify.result import Verdict
from lunette.verify.search import Search, Tree
from lunette.window import integer

METHODS: Final = ("attack", "interval", "crown", "optimised", "auto")
"""Each goes farther than the one before it; "auto" splits, too."""
QUICK: Final = (2, 15, 2)
"""Starts, steps, and cases for each start, of a first attack."""
MIDDLE: Final = (4, 40, 3)
"""Of the attack on what intervals do not prove."""
LONG: Final = (12, 100, None)
"""Of the attack on what is not proven by lines."""
OPTIMISED: Final = 40
NOTHING_TO_SPARE: Final = 2.0**-32
"""Of the size of a row: what bounds in floats may miss, where the checker might still prove that a bound is zero."""
MORE_BITS: Final = 256
"""Of certificates of such: products of weights are then multiples of 2**-256."""
AT_ONCE: Final = 1 << 28
"""Bytes of what is computed at once, at most: what is larger would not end in time when it has to."""


@refuses
def verify(
    f: Any,
    box: Any,
    property: Property,
    *,
    timeout: float = 60.0,
    method: str = "auto",
    semantics: str = "real",
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    memory: int = 2**30,
) -> Verdict:
    """Whether a property holds for every point of a box: proved with a certificate, disproved, or unknown.

    `f` is a `Graph`, a `Program` or a function; `box` an `Interval`, one for each input, or None for the boxes that the
    property brings. `semantics` is "real": the function with the weights it has; or "float": every execution of it in
    the graph's dtype, in any order of summation. Ctrl-C and the end of the time give what is known by then.

    >>> import numpy as np, lunette as ln
    >>> box = ln.Interval(np.float32([0.5, -0.1]), np.float32([1.0, 0.1]))
    >>> ln.verify(lambda x: ln.relu(x), box, ln.Property.robust(0, classes=2)).status
    'proved'
    >>> v = ln.verify(lambda x: ln.relu(x), box, ln.Property.linear([1, 0], ">", 0.75))
    >>> v.status, bool(v.counterexample[0] <= 0.75)
    ('disproved', True)
    """
    with error_context("verify"):
        _check(property, timeout, method, semantics, seed, memory)
        several = box if isinstance(box, tuple | list) else (box,)
        if not isinstance(f, Graph | Program) and box is None:
            raise ArgumentError("VF1", "a box, to trace a function", "None", "Pass a graph, or a box.")
        graph = graph_of(f, several)
        rooms = rooms_of(graph, box, property)
        asked = _Asked(graph, rooms, Clock(float(timeout), progress), method, semantics, seed, memory)
        return asked.answer()


def _check(property: Any, timeout: Any, method: Any, semantics: Any, seed: Any, memory: Any) -> None:
    """Rules VF2 to VF5."""
    if not isinstance(property, Property):
        raise DTypeError("VF2", "an ln.Property", shown(property), "As in ln.Property.robust(3, classes=10).")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 1e9:
        raise ArgumentError("VF3", "timeout > 0 seconds", f"timeout={shown(timeout)}", "As in timeout=60.")
    check_method("VF4", method, METHODS, "Leave it out for all of them.")
    check_semantics("VF5", semantics)
    for name, value in (("seed", seed), ("memory", memory)):
        if integer(name, value) < 0:
            raise ArgumentError("VF3", f"{name} >= 0", f"{name}={value}", "A seed, or bytes.")


class _Found(Exception):  # noqa: N818 (good news)
    """A counterexample."""


class _Proofs:
    """What is proven in one room: the network, and how each case was refuted."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.near = np.zeros(len(room.rows))
        """What bounds in floats may miss of each row where there is nothing to spare."""
        self.slack = np.zeros(len(room.rows))
        """What is taken off the threshold of each row: then the checker is asked where bounds in floats are so near."""
        self.bound = np.full(len(room.cases), -np.inf)
        """The best proven bound of every case: of one of its rows, less its threshold, and with its slack."""
        self.row = [p[0] if len(p) else -1 for p in room.places]
        """The row that it is of."""
        self.how: list[Any] = [None] * len(room.cases)
        """None, "interval", "crown", a tree, or relus together, which is an estimate until it is replayed."""
        self.net: Answer | None = None
        self.walks: Walks | None = None
        self.search: Search | None = None
        self.search_of: dict[int, Tree] = {}
        self.roots: dict[int, Leaf] = {}
        """The whole box, with better lines, for each case that needs them."""
        self.joined: set[int] = set()
        """Cases for which relus were bounded together."""

    @property
    def open(self) -> list[int]:
        """Cases that are not refuted."""
        return [c for c, how in enumerate(self.how) if how is None]

    @property
    def thresholds(self) -> Array:
        """Those of the rows, less what bounds in floats may miss."""
        found: Array = self.room.thresholds - self.slack
        return found

    @property
    def margins(self) -> Array:
        """The best proven bound of every case, without any slack."""
        slack = np.array([self.slack[r] if r >= 0 else 0.0 for r in self.row])
        return np.where(slack > 0, np.nextafter(self.bound - slack, -np.inf), self.bound)

    def rows(self) -> list[int]:
        """The rows of the open cases."""
        return [r for c in self.open for r in self.room.places[c]]

    def take(self, rows: list[int], lower: Any, how: str) -> None:
        """Lower bounds of some rows."""
        less = np.nextafter(np.asarray(lower) - self.thresholds[rows], -np.inf)
        where = dict(zip(rows, less.tolist(), strict=True))
        for c in self.open:
            for r in self.room.places[c]:
                if r in where and where[r] > self.bound[c]:
                    self.bound[c], self.row[c] = where[r], r
            if self.bound[c] > 0:
                self.how[c] = how

    def reopen(self, cases: Sequence[int], parts: Sequence[Tree]) -> None:
        """Cases that are open again: the bound of floats is no proof of the checker's."""
        for c in cases:
            self.how[c], self.bound[c] = None, min(self.bound[c], 0.0)
        if parts:
            assert self.search is not None
            self.search.again(parts)
            for c, tree in self.search_of.items():
                if any(t.leaf.bound <= 0 for t in tree.leaves):
                    self.how[c], self.bound[c] = None, min(self.bound[c], 0.0)


class _Asked:
    """One question, and what is known of its answer."""

    def __init__(
        self, graph: Graph, rooms: list[Room], clock: Clock, method: str, semantics: str, seed: int, memory: int
    ) -> None:
        self.graph, self.rooms, self.clock = graph, rooms, clock
        self.level = METHODS.index(method)
        self.method, self.semantics, self.seed, self.memory = method, semantics, seed, memory
        self.proofs = [_Proofs(r) for r in rooms]
        self.attacks: list[Attack | None] = []
        self.found: tuple[Point, str] | None = None
        self.certificate: Any = None
        self.certifier: Certifier | None = None
        self.leaves = 0
        self.notes = tuple(dict.fromkeys(w for r in rooms if (w := r.box.moved(graph.inputs[0].dtype))))
        self.reason = ""

    def answer(self) -> Verdict:
        """The verdict."""
        try:
            with self.clock.alarm(), np.errstate(all="ignore"):
                self._all()
        except _Found:
            pass
        except TimeUp:
            self.reason = f"the time was over after {self.clock.seconds:.1f} s{self._unready()}"
        except KeyboardInterrupt:
            self.reason = "interrupted"
        except MemoryError:
            self.reason = "out of memory"
        return self._verdict()

    def _unready(self) -> str:
        """What there is to say where bounds prove all, and the time was too short for a certificate."""
        if any(p.open for p in self.proofs):
            return ""
        proven = all((p.margins > 0).all() for p in self.proofs)
        (what, done, whole), own = self.clock.told, self.clock.phases.get("certificate", 0.0)
        at = f", at {done} of {whole} {what.removeprefix('certificate: ')}" if what.startswith("certificate: ") else ""
        before = sum(self.clock.phases.values()) - own
        guessed = not proven or any(isinstance(h, Joint) and h.proven <= 0 for p in self.proofs for h in p.how)
        return (
            f": {'estimates suggest' if guessed else 'bounds prove'} it after {before:.1f} s, "
            f"and a certificate is not ready {own:.1f} s later{at}. "
            "It is replayed in exact integers, which takes as long as a check: allow more time"
        )

    def _all(self) -> None:
        with self.clock.phase("attack"):
            self.program = Program(self.graph)
            for k, room in enumerate(self.rooms):
                self.attacks.append(
                    None if room.floats is None else Attack(room, self.program, self.seed + k, self.clock.tick)
                )
            self._attack(*QUICK)
        if self.level < 1:
            return
        for p in self.proofs:
            self._bounds(p)
        while True:
            for p, attack in zip(self.proofs, self.attacks, strict=True):
                if p.open and p.walks is None and self.level >= 2:
                    if attack is not None:
                        with self.clock.phase("attack"):
                            self._candidates(attack, attack.search(p.open, *MIDDLE))
                    self._lines(p)
                if p.open and self.level >= 2:
                    self._further(p, attack)
            if any(p.open for p in self.proofs):
                return
            with self.clock.phase("certificate"):
                try:
                    near = any(((p.bound > 0) & (p.margins <= 0)).any() for p in self.proofs)
                    if self._certify(self._certifier(MORE_BITS if near else BITS)):
                        return
                except Unproven as why:
                    self.reason = str(why)
                    return
                except Refused as error:
                    self.reason = f"{LIMITS}: it needs {error}"
                    return
                except RecursionError:
                    self.reason = f"{LIMITS}: too many splits are in each other"
                    return

    def _attack(self, starts: int, steps: int, most: int | None) -> None:
        for p, attack in zip(self.proofs, self.attacks, strict=True):
            if attack is not None:
                self._candidates(attack, attack.search(p.open, starts, steps, most))

    def _candidates(self, attack: Attack, points: Any) -> None:
        """Raises _Found at the first candidate that is a counterexample."""
        for x in islice(points, 5):  # rounding makes candidates of what is none: go on with bounds
            self._judge(attack.room, x)

    def _judge(self, room: Room, x: Point) -> None:
        """Rule: floats in the box, and a case that is met exactly; or, of executions in floats, by ours."""
        assert inside([v for a in x for v in output_cells(a.astype(np.float64))], room.box)
        with self.clock.phase("exact evaluation"):
            if self.semantics == "float":
                case, how = exact.met_in_floats(self.program, x, room.cases), "float execution"
            else:
                case, how = exact.met(self.graph, x, room.cases)
        if case is not None:
            self.found = ([a.copy() for a in x], how)
            raise _Found

    # ---- proofs

    def _bounds(self, p: _Proofs) -> None:
        """By intervals."""
        floats = Floats(self.graph.nodes[self.graph.outputs[0]].dtype) if self.semantics == "float" else None
        with self.clock.phase("interval"):
            self.clock.tick("interval", 0, 1)
            given: list[Any] = list(p.room.boxes)
            own = in_float64(self.graph, [None if isinstance(b, Interval) else b for b in given], floats is None)
            varying = [b for b in given if isinstance(b, Interval)]
            net = p.net = Answer(own, varying, min(self.memory, AT_ONCE), self.clock.tick, floats)
            net.enclose()
            p.near, p.slack = self._slack(p.room, net)
            p.take(p.rows(), net.of_rows(p.room.rows[p.rows()], net.graph.outputs[0]).lo, "interval")

    @staticmethod
    def _slack(room: Room, net: Answer) -> tuple[Array, Array]:
        """What is near, and the slack: of strict conditions only, for which the least value may be the threshold."""
        out = net.graph.nodes[net.graph.outputs[0]]
        ends = [net.boxes[i] for i in (net.graph.outputs[0], *(i for i in out.inputs if i is not None))]
        most = max((float(np.abs(e).max(initial=0.0)) for b in ends for e in (b.lo, b.hi)), default=0.0)
        strict = [d.strict for c in room.cases for d in c.conditions]
        size = np.maximum(np.abs(room.rows).sum(1) * most, np.abs(room.thresholds))
        near = np.where(np.isfinite(size), NOTHING_TO_SPARE * (size + np.finfo(float).tiny), 0.0)
        return near, np.where(strict, near, 0.0)

    def _lines(self, p: _Proofs) -> None:
        """By lines."""
        net = p.net
        assert net is not None
        with self.clock.phase("crown"):
            net.relax()
            out = net.graph.outputs[0]
            rows = p.rows()
            p.take(rows, net.of_rows(p.room.rows[rows], out).lo, "crown")
            if not net.moving[out]:
                return
            walks = p.walks = Walks(net, p.room.rows, p.thresholds, self.clock.tick)
            rows = p.rows()
            for start in range(0, len(rows), many := walks.many()):
                part = rows[start : start + many]
                self.clock.tick("rows", start, len(rows))
                p.take(part, walks.dual.lower(out, walks.rows[part]), "crown")

    def _further(self, p: _Proofs, attack: Attack | None) -> None:
        """A longer attack, better lines, and splits."""
        if attack is not None and not p.roots:
            with self.clock.phase("attack"):
                self._candidates(attack, attack.search(p.open, *LONG))
        walks = p.walks
        if self.level < 3 or walks is None:
            return
        with self.clock.phase("optimised"):
            cases = [c for c in p.open if c not in p.roots]
            p.roots.update({c: Leaf(p.row[c], (), float(p.bound[c])) for c in cases})
            for start in range(0, len(cases), many := walks.many()):
                part = cases[start : start + many]
                try:
                    walks.improve([p.roots[c] for c in part], OPTIMISED)
                finally:
                    for c in part:
                        p.bound[c] = max(p.bound[c], p.roots[c].bound)
                        if p.roots[c].bound > 0:
                            p.how[c] = Tree(p.roots[c])
        if self.level < 4 or not p.open:
            return
        with self.clock.phase("together"):
            self._together(p, walks)
        if not p.open:
            return
        with self.clock.phase("split"):
            self._split(p, walks, attack)

    def _together(self, p: _Proofs, walks: Walks) -> None:
        """Relus of the first layer that read the same few inputs, by their joint least values."""
        net, cases = walks.net, [c for c in p.open if c not in p.joined]
        kinks = [k for k in walks.relaxed if net.graph.nodes[k].kind is Relu and reads_few(net.graph, k)]
        p.joined.update(cases)
        if not kinks or not cases:
            return
        try:
            work = self._certifier().room(p.room, net, walks)
            found_groups = [(k, groups) for k in kinks if (groups := work.groups(k)) is not None]
        except (Unproven, Refused):
            return
        attack = self.attacks[self.proofs.index(p)]
        for k, groups in found_groups:
            for c in cases:
                found = np.inf if attack is None else float(attack.best[c])
                target = found / 2 if 0 < found < np.inf else abs(float(p.bound[c]))
                if (joint := walks.together(p.roots[c], k, groups, target)) is not None:
                    p.how[c] = joint  # an estimate: what is proven is known when the checker has followed

    def _certifier(self, bits: int = BITS) -> Certifier:
        if self.certifier is None or self.certifier.bits < bits:
            self.certifier = Certifier(self.graph, self.semantics, self.clock.tick, bits)
        return self.certifier

    def _split(self, p: _Proofs, walks: Walks, attack: Attack | None) -> None:
        seen = set[bytes]()

        def look(leaf: Leaf) -> None:
            if attack is None or not leaf.corner:
                return
            case = next(c for c in p.search_of if leaf.case in p.room.places[c])
            x = attack.inside(leaf.corner)
            if leaf.bound > -p.near[leaf.case] and (key := b"".join(a.tobytes() for a in x)) not in seen:
                seen.add(key)  # floats do not tell on which side of the threshold it is
                self._judge(p.room, x)
            self._candidates(attack, attack.descend(x, case, 5))

        search = p.search = p.search or Search(walks, look)
        before = search.leaves
        for c in p.open:
            if c not in p.search_of:
                p.roots[c].bound = min(p.roots[c].bound, 0.0)
                p.search_of[c] = search.add(p.roots[c])
        try:
            search.run()
        finally:
            self.leaves += search.leaves - before
            for c, tree in p.search_of.items():
                p.bound[c] = min((t.leaf.bound for t in tree.leaves), default=np.inf)
                p.how[c] = tree if all(t.leaf.bound > 0 for t in tree.leaves) else None
        self.reason = search.stuck

    def _certify(self, certifier: Certifier) -> bool:
        """Whether the checker's arithmetic proves what was proven in floats; what it does not follow is open again."""
        cases, complete = [], True
        for p in self.proofs:
            assert p.net is not None
            try:
                cases += certifier.cases(p.room, p.net, p.how, p.row, p.walks)
            except Refuted as less:
                complete = False
                p.reopen(less.cases, less.parts)
        if complete:
            self.certificate = certifier.made(cases)
        return complete

    # ---- the answer

    def _verdict(self) -> Verdict:
        for p in self.proofs:
            for c, h in enumerate(p.how):
                if isinstance(h, Joint):
                    p.bound[c] = max(p.bound[c], h.proven)
        bound = min((float(b) for p in self.proofs for b in p.margins), default=np.inf)
        found = min((float(v) for a in self.attacks if a is not None for v in a.best), default=np.inf)
        status, counterexample, output, evaluated, reason = "unknown", None, None, "", self.reason
        certificate = None
        if self.found is not None:
            x, evaluated = self.found
            status, counterexample, output = "disproved", x[0] if len(x) == 1 else tuple(x), self.program(*x)
            reason = f"a counterexample, evaluated as {evaluated}"
        elif all(not p.open for p in self.proofs) and self.certificate is not None:
            status, certificate, bound = "proved", self.certificate, max(bound, 0.0)
            ways = [_way(h) for p in self.proofs for h in p.how]
            reason = max(
                ways,
                key=("interval", "crown", "optimised", "together", "split").index,
                default="no point is in question",
            )
        elif not reason:
            reason = f"{self.method} does not decide it"
        margins = []
        for k, p in enumerate(self.proofs):
            attack = self.attacks[k] if k < len(self.attacks) else None
            best = np.full(len(p.bound), np.inf) if attack is None else attack.best
            words = [" and ".join(map(str, c.conditions)) for c in p.room.cases]
            least = np.maximum(p.margins, 0.0) if certificate is not None else p.margins
            margins += list(zip(words, least.tolist(), best.tolist(), strict=True))
        return Verdict(
            status,
            counterexample,
            certificate,
            reason,
            bound,
            found,
            self.clock.seconds,
            dict(self.clock.phases),
            self.semantics,
            evaluated,
            output,
            tuple(margins),
            self.leaves,
            [h for p in self.proofs for h in p.how],
            self.notes,
        )


def _way(how: Any) -> str:
    """How a case was refuted, in a word."""
    if isinstance(how, Tree):
        return "split" if how.children else "optimised"
    if isinstance(how, Joint):
        return "together"
    return str(how)
