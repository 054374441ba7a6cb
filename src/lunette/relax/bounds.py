"""`ln.bounds`: proven bounds of a function over a box.

| rule | says                                                                                              |
|------|---------------------------------------------------------------------------------------------------|
| Z1   | f is a graph, a program or a function, with one output of floats                                   |
| Z2   | there is one box or point for each input, of its shape, with finite or infinite ends, none NaN     |
| Z3   | method is "interval", "crown" or "optimised"                                                       |
| Z4   | rows are finite floats of shape (number, cells of the output)                                      |
| Z5   | semantics is "real", or "float" for a graph of sums of products, maxima and what moves cells       |
| Z6   | memory, steps and seed are integers >= 0                                                           |

From the inputs on, every node gets a box: its operator's interval at the boxes of what it reads. Before an operator
that is not linear is replaced by lines, the boxes of what it reads are tightened, cell by cell, wherever that can make
the lines better: a walk back (lunette.relax.dual) for the cell and one for its negative. "optimised" then improves the
lines for the rows that are asked for (lunette.relax.optimise).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from time import perf_counter
from typing import Any, Final

import numpy as np

from lunette.certificate.slopes import Recorded, Slopes
from lunette.errors import error_context
from lunette.graph.graph import Graph
from lunette.graph.nodes import Node
from lunette.lines import Greatest, Kink, Relaxation
from lunette.number import Array, Interval
from lunette.op import apply
from lunette.ops.glue import Layout
from lunette.ops.linear import matmul
from lunette.ops.max_pool import MaxPool
from lunette.ops.unary import Neg, Relu
from lunette.relax.dual import Dual
from lunette.relax.floats import Floats, widened
from lunette.relax.given import boxes_of, check, graph_of, rows_of
from lunette.relax.network import in_float64
from lunette.relax.optimise import improve
from lunette.relax.patch import Patch
from lunette.relax.result import Asked, Bounds
from lunette.relax.step import Enclosed, Linear, Relaxed, Step

MOST_ROWS: Final = 1 << 9  # rows at once: more are no faster


def bounds(
    f: Any,
    *boxes: Any,
    method: str = "crown",
    rows: Any = None,
    semantics: str = "real",
    memory: int = 2**30,
    steps: int = 20,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Bounds:
    """Numbers between which every output of f lies, for every point of the boxes, whatever the rounding.

    `f` is a `Graph`, a `Program` or a function; a box is an `Interval`, a plain array is a point. With `rows`, of shape
    (number, cells of the output), the bounds are those of `rows @ flatten(output)`. `method` is "interval", "crown" or
    "optimised" (in `steps` steps), each at least as tight as the one before it. `semantics` is "real": the function
    with the weights it has; or "float": every execution of it in the graph's dtype, in any order of summation. `memory`
    limits the bytes of what is computed at once; `progress` is called with what is being done, how much of it is, and
    how much there is. Nothing is random: `seed` is for methods that will be.

    >>> import numpy as np, lunette as ln
    >>> x = ln.Interval(np.full((2,), -1.0), np.ones(2))
    >>> b = ln.bounds(lambda x: ln.relu(x) - ln.relu(x) / 2, x)
    >>> b.lo.round(9) + 0.0, b.hi.round(9)  # the interval alone says -0.5 and 1
    (array([0., 0.]), array([0.5, 0.5]))
    """
    begin = perf_counter()
    with error_context("bounds"), np.errstate(all="ignore"):
        check(method, semantics, memory, steps, seed)
        graph = graph_of(f, boxes)
        given = boxes_of(graph, boxes)
        floats = Floats(graph.nodes[graph.outputs[0]].dtype) if semantics == "float" else None
        network = Network(graph, given, memory, progress, floats)
        wanted = rows_of(rows, network.graph.nodes[network.graph.outputs[0]])

        def lines(net: Any) -> Slopes:
            again = Network(graph, given, memory, None, floats)
            slopes = Recorded(net)
            again.record = slopes.recorder
            with np.errstate(all="ignore"):
                again.bounds(method, wanted, steps, begin)
            return slopes.found

        asked = Asked(graph, given, lines if method == "optimised" else None)
        return replace(network.bounds(method, wanted, steps, begin), asked=asked)


class Network:
    """A graph with boxes at its inputs."""

    def __init__(
        self,
        graph: Graph,
        given: Sequence[Array | Interval],
        memory: int,
        progress: Callable[..., None] | None,
        floats: Floats | None = None,
    ) -> None:
        self.graph = in_float64(graph, [None if isinstance(b, Interval) else b for b in given], floats is None)
        self.floats = floats
        self.inputs = self.graph.input_ids()
        self.memory, self.progress = memory, progress or (lambda *_: None)
        nodes = self.graph.nodes
        self.moving = [n.name is not None for n in nodes]
        for at, n in enumerate(nodes):
            self.moving[at] = self.moving[at] or any(self.moving[i] for i in n.inputs if i is not None)
        if floats is not None:
            floats.check(self.graph, self.moving)
        self.boxes: list[Any] = [None] * len(nodes)
        self.rounding: dict[int, Any] = {}
        varying = iter([b for b in given if isinstance(b, Interval)])
        for at in self.inputs:
            self.boxes[at] = next(varying)
        self.steps: dict[int, Step] = {}
        self.sensitivity: dict[str, Array] = {}
        self.stopped = ""
        self.record: Callable[[int], Callable[[Array, Dual], None]] | None = None
        """Makes what is told of better lines, for rows from a number on."""
        self.changed: set[int] = set()
        """Nodes whose boxes are smaller than their intervals at the inputs' boxes."""
        self.tight: dict[int, Array] = {}
        """Which cells of a node were tightened already."""
        self.readers = [0] * len(nodes)
        for n in nodes:
            for i in n.inputs:
                if i is not None:
                    self.readers[i] += 1
        for i in self.graph.outputs:
            self.readers[i] += 1

    # ---- from the inputs on

    def enclose(self) -> None:
        """Boxes by intervals alone."""
        for at in range(len(self.graph.nodes)):
            self._enclose(at)

    def _enclose(self, at: int) -> None:
        n = self.graph.nodes[at]
        if n.name is not None:
            return
        if n.value is not None:
            self.boxes[at] = Interval.between(n.value, n.value)
        else:
            assert n.kind is not None
            operands = [None if i is None else self._operand(i) for i in n.inputs]
            box = Interval.of(apply(n.kind, operands, "interval", *n.options))
            if self.floats is not None and self.moving[at]:
                d = self.floats.rounding(n, [None if i is None else self.boxes[i] for i in n.inputs])
                self.rounding[at], box = d, widened(box, d)
            self.boxes[at] = box

    def _operand(self, at: int) -> Any:
        """Points as arrays: operators tell them from boxes."""
        box = self.boxes[at]
        return box.lo if box.lo is box.hi else box

    def relax(self) -> None:
        """Boxes that were enclosed, tightened where it matters, and steps for walks back."""
        total = len(self.graph.nodes)
        for at, n in enumerate(self.graph.nodes):
            self.progress("nodes", at, total)
            if not self.changed.isdisjoint(n.inputs):
                self._enclose_again(at)
            if self.moving[at] and n.kind is not None:
                self.steps[at] = self._step(at, n)
                self._again(at)
        self.progress("nodes", total, total)

    def _again(self, at: int) -> None:
        """The box again, if what the node reads was tightened for its lines; and that of a relu that is part of it."""
        relus = [i for i in self.graph.nodes[at].inputs if i is not None and self._is_relu(i)]
        for k in (*relus, at):
            if any(i in self.tight for i in self.graph.nodes[k].inputs):
                self._enclose_again(k)
                if isinstance(self.steps[k], Enclosed):
                    self.steps[k] = Enclosed(self.boxes[k])

    def _enclose_again(self, at: int) -> None:
        """A box that can only become smaller."""
        before = self.boxes[at]
        self._enclose(at)
        self.boxes[at] = _meet(before, self.boxes[at])
        self.changed.add(at)

    def _step(self, at: int, n: Node) -> Step:
        assert n.kind is not None
        moving = [i is not None and self.moving[i] for i in n.inputs]
        own = [None if i is None else self.boxes[i] for i in n.inputs]
        finite = all(bool(np.isfinite(b.lo).all() and np.isfinite(b.hi).all()) for b in own if b is not None)
        if not finite or 0 in n.shape:
            return Enclosed(self.boxes[at])
        if is_linear(n, moving):
            return Linear(n, moving, own, self.rounding.get(at, 0.0))
        sources = [i for i, m in zip(n.inputs, moving, strict=True) if m and i is not None]
        relaxation: Relaxation | None
        if issubclass(n.kind, MaxPool) and self._is_relu(sources[0]):
            # The greatest of cells and zero: one operator, whose lines are tighter than those of two.
            sources = [i for i in self.graph.nodes[sources[0]].inputs if i is not None]
            relaxation = self._fused(n, sources[0])
        else:
            relaxation = self._lines(n, sources, moving)
        if relaxation is None:
            return Enclosed(self.boxes[at])
        return Relaxed(sources, relaxation, [self.boxes[i] for i in sources], self.rounding.get(at, 0.0))

    def _is_relu(self, at: int) -> bool:
        return self.graph.nodes[at].kind is Relu and self.readers[at] == 1

    def _fused(self, n: Node, source: int) -> Relaxation:
        zero: Array = np.zeros(())

        def lines() -> Greatest:
            whole = n.op.relax([self.boxes[source]], [True])
            assert isinstance(whole, Greatest)
            return Greatest(whole.boxes, whole.taps, Interval.between(zero, zero))

        self.tighten(source, lines())
        return lines()

    def _lines(self, n: Node, sources: Sequence[int], moving: Sequence[bool]) -> Relaxation | None:
        def lines() -> Relaxation | None:
            return n.op.relax([self.boxes[i] for i in n.inputs if i is not None], moving)

        relaxation = lines()
        if relaxation is None:
            return None
        for p in sources:
            self.tighten(p, relaxation)
        return lines()

    def _note(self, dual: Dual, share: float) -> None:
        """What the inputs have to do with the width of these rows."""
        for at in self.inputs:
            if (a := dual.coefficients.get(at)) is not None and len(a):
                box, name = self.boxes[at], str(self.graph.nodes[at].name)
                own = np.abs(a).mean(0).reshape(box.shape) * (box.hi - box.lo) * share
                self.sensitivity[name] = self.sensitivity.get(name, 0.0) + own

    # ---- cells that matter

    def tighten(self, at: int, relaxation: Relaxation) -> None:
        """Better bounds of the cells of a node that its reader's lines depend on."""
        if self._is_exact(at) or not self.steps:
            return
        box = self.boxes[at]
        done = self.tight.setdefault(at, np.zeros(box.shape, bool))
        cells = np.flatnonzero(matters(box, relaxation) & ~done & (box.lo < box.hi))
        done.reshape(-1)[cells] = True
        if not cells.size:
            return
        if isinstance(self.steps.get(at), Enclosed):
            return
        lo, hi = box.lo.copy(), box.hi.copy()
        low, high = lo.reshape(-1), hi.reshape(-1)
        dual, many = Dual(self.steps, self.boxes, self.inputs), self.rows_at_once(at)
        for start in range(0, len(cells), many):
            self.progress(f"cells of node {at}", start, len(cells))
            part = cells[start : start + many]
            found = dual.lower(at, unit_rows(part, lo.shape))
            low[part] = np.maximum(low[part], found[: len(part)])
            high[part] = np.minimum(high[part], -found[len(part) :])
        self.boxes[at] = Interval.between(lo, hi)
        self.changed.add(at)

    def _is_exact(self, at: int) -> bool:
        """Whether the interval of a node is as good as any bound: one linear operator behind cells of the inputs."""
        n = self.graph.nodes[at]
        if n.name is not None:
            return True
        varying = [i for i in n.inputs if i is not None and self.moving[i]]
        return isinstance(self.steps.get(at), Linear) and len(varying) == 1 and self._is_apart(varying[0])

    def _is_apart(self, at: int) -> bool:
        """Whether the cells of a node are cells of an input, each of its own, or constants."""
        n = self.graph.nodes[at]
        if n.name is not None:
            return True
        moved = n.kind is not None and (issubclass(n.kind, Layout) or n.kind is Neg)
        if not moved or n.kind is None or n.kind.name == "broadcast_to":
            return False
        return all(self._is_apart(i) for i in n.inputs if i is not None and self.moving[i])

    def rows_at_once(self, at: int) -> int:
        """How many pairs of rows fit into the memory: coefficients of a node and of all that it reads, and copies."""
        sizes = [
            prod(self.graph.nodes[k].shape) + sum(prod(self.graph.nodes[i].shape) for i in s.sources)
            for k, s in self.steps.items()
            if k <= at
        ]
        return int(max(1, min(MOST_ROWS, self.memory // (2 * 8 * 6 * max([1, *sizes])))))

    # ---- the answer

    def bounds(self, method: str, rows: Array | None, steps: int, begin: float) -> Bounds:
        out = self.graph.outputs[0]
        shape = self.graph.nodes[out].shape
        self.enclose()
        intervals = self._floats_of(self.boxes)
        plain = self._of_rows(rows, out)
        own = plain
        if method != "interval":
            if self.moving[out]:
                own = self._unless_stopped(lambda: self._walked(rows, out, shape, method, steps), plain)
            plain = _meet(plain, self._of_rows(rows, out))
        both = _meet(plain, own)
        winners = {
            at: s.relaxation.can_win().sum((0, 1))
            for at, s in self.steps.items()
            if isinstance(s, Relaxed) and isinstance(s.relaxation, Greatest)
        }
        return Bounds(
            both.lo,
            both.hi,
            method,
            own,
            self._floats_of(self.boxes),
            self.graph,
            rows,
            "real" if self.floats is None else "float",
            self.stopped,
            perf_counter() - begin,
            intervals,
            self.sensitivity,
            winners,
        )

    def _unless_stopped(self, walk: Callable[[], Interval], plain: Interval) -> Interval:
        """What a walk proves; if it is interrupted, or memory ends, what was proven until then."""
        self.found = plain
        try:
            self.relax()
            return walk()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        except MemoryError:
            self.stopped = "out of memory"
        return self.found

    @staticmethod
    def _floats_of(boxes: Sequence[Any]) -> dict[int, Interval]:
        return {at: b for at, b in enumerate(boxes) if b is not None and b.dtype.kind == "f"}

    def _of_rows(self, rows: Array | None, out: int) -> Interval:
        box = self.boxes[out]
        if rows is None:
            return Interval.between(box.lo.copy(), box.hi.copy())
        flat = Interval.between(box.lo.reshape(-1), box.hi.reshape(-1))
        product: Interval = matmul(Interval.between(rows, rows), flat)
        return product

    def _walked(self, rows: Array | None, out: int, shape: Sequence[int], method: str, steps: int) -> Interval:
        wanted = np.eye(prod(shape)) if rows is None else rows
        many = self.rows_at_once(out)
        if method == "optimised":
            many = max(1, many // 8)  # lines of every row's own, and what improves them
        lo, hi = np.full(len(wanted), -np.inf), np.full(len(wanted), np.inf)
        end = tuple(shape) if rows is None else (len(wanted),)
        self.found = Interval.between(lo.reshape(end), hi.reshape(end))  # which is filled in as rows are proven
        for start in range(0, len(wanted), many):
            self.progress("rows", start, len(wanted))
            part = wanted[start : start + many]
            both = np.concatenate([part, -part]).reshape(-1, *shape)
            dual = Dual(self.steps, self.boxes, self.inputs)

            def proven(found: Array, begin: int = start, count: int = len(part)) -> None:
                lo[begin : begin + count], hi[begin : begin + count] = found[:count], -found[count:]

            proven(dual.lower(out, both, keep=True))
            self._note(dual, len(part) / len(wanted))
            if method == "optimised":
                improve(dual, out, both, steps, proven, None if self.record is None else self.record(start))
        self.progress("rows", len(wanted), len(wanted))
        return self.found


def is_linear(n: Node, moving: Sequence[bool]) -> bool:
    """Whether a node is linear in all that varies together, and a constant beside it."""
    assert n.kind is not None
    at = {p for p, m in enumerate(moving) if m}
    together = at if n.kind.variadic and n.kind.jointly_linear else set(n.kind.jointly_linear)
    return at <= together or (len(at) == 1 and at <= set(n.kind.linear_in))


def unit_rows(cells: Array, shape: Sequence[int]) -> Array | Patch:
    """Rows with a one at each of these cells, and then with a minus one; patches of planes of a single image."""
    n = len(cells)
    signs = np.repeat([1.0, -1.0], n)
    if len(shape) >= 3 and shape[0] == 1:
        channel, *origin = np.unravel_index(np.tile(cells, 2), shape[1:])
        one = np.zeros((2 * n, shape[1]))
        one[np.arange(2 * n), channel] = signs
        return Patch(one.reshape(2 * n, shape[1], *(1,) * len(origin)), np.stack(origin, 1), tuple(shape[2:]))
    rows = np.zeros((2 * n, prod(shape)))
    rows[np.arange(2 * n), np.tile(cells, 2)] = signs
    return rows.reshape(-1, *shape)


def matters(box: Interval, relaxation: Relaxation) -> Array:
    """The cells whose bounds lines depend on, so far as the box tells."""
    if isinstance(relaxation, Kink):
        return relaxation.open
    if isinstance(relaxation, Greatest) and len(relaxation.taps) == 1:
        taps, shape, can_win = relaxation.taps[0], box.shape, relaxation.can_win().astype(float)
        one = np.ones((1, *taps.out))
        found: Array = taps.scatter(one, 0 * one, can_win, 0 * can_win)[0].reshape(shape) > 0
        return found
    return np.ones(box.shape, bool)


def _meet(a: Interval, b: Interval) -> Interval:
    """The points of both: neither excludes the truth."""
    return Interval.between(np.asarray(np.maximum(a.lo, b.lo)), np.asarray(np.minimum(a.hi, b.hi)))
