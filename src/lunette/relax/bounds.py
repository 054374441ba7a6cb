"""`ln.bounds`: proven bounds of a function over a box.

| rule | says                                                                                              |
|------|---------------------------------------------------------------------------------------------------|
| Z1   | f is a graph, a program or a function, with one output of floats                                   |
| Z2   | there is one box or point for each input, of its shape, with finite or infinite ends, none NaN; of |
|      | a batch, every box has one more axis in front, of the same length, and points are for all of them   |
| Z3   | method is "interval", "crown" or "optimised"                                                       |
| Z4   | rows are finite floats of shape (number, cells of the output)                                      |
| Z5   | semantics is "real", or "float" for a graph of sums of products, maxima and what moves cells       |
| Z6   | memory, steps and seed are integers >= 0, and seconds is None or a number >= 0                     |
| Z7   | a page, and a certificate, are about one box                                                       |

Boxes of all nodes come first (lunette.relax.boxes), then walks back for the rows that are asked for, and "optimised"
improves their lines (lunette.relax.optimise).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from time import perf_counter
from typing import Any, Final

import numpy as np

from lunette.certificate.slopes import Recorded, Slopes
from lunette.errors import error_context, refuses
from lunette.lines import Greatest
from lunette.number import Array, Interval
from lunette.ops.linear import matmul
from lunette.relax.boxes import Boxes, meet
from lunette.relax.dual import Dual
from lunette.relax.floats import Floats
from lunette.relax.given import METHODS, boxes_of, check, graph_of, rows_of
from lunette.relax.network import in_float64
from lunette.relax.optimise import improve
from lunette.relax.result import Asked, Bounds, joined
from lunette.relax.step import Relaxed


@refuses
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
    seconds: float | None = None,
) -> Bounds:
    """Numbers between which every output of f lies, for every point of the boxes, whatever the rounding.

    `f` is a `Graph`, a `Program` or a function; a box is an `Interval`, a plain array is a point. With `rows`, of shape
    (number, cells of the output), the bounds are those of `rows @ flatten(output)`. `method` is "interval", "crown" or
    "optimised" (in `steps` steps), each at least as tight as the one before it. `semantics` is "real": the function
    with the weights it has; or "float": every execution of it in the graph's dtype, in any order of summation.

    Boxes of a graph or program that have one more axis in front than its inputs, all of the same length, are a batch:
    lo and hi have that axis, too, and `each` has the bounds of every box. (A function takes the shapes of its boxes.)

    `memory` limits the bytes of what is computed at once. After `seconds`, or where it is interrupted or out of memory,
    `stopped` says so, and the bounds are the best that was proven until then. `progress` is called with what is being
    done, how much of it is, and how much there is. Nothing is random: `seed` is for methods that will be.

    >>> import numpy as np, lunette as ln
    >>> x = ln.Interval(np.full((2,), -1.0), np.ones(2))
    >>> b = ln.bounds(lambda x: ln.relu(x) - ln.relu(x) / 2, x)
    >>> b.lo.round(9) + 0.0, b.hi.round(9)  # the interval alone says -0.5 and 1
    (array([0., 0.]), array([0.5, 0.5]))
    """
    begin = perf_counter()
    with error_context("bounds"), np.errstate(all="ignore"):
        check(method, semantics, memory, steps, seed, seconds)
        graph = graph_of(f, boxes)
        batch, given = boxes_of(graph, boxes)
        floats = Floats(graph.nodes[graph.outputs[0]].dtype) if semantics == "float" else None
        network = in_float64(graph, [None if isinstance(b, Interval) else b for b in given], floats is None)
        wanted = rows_of(rows, network.nodes[network.outputs[0]])
        until = inf if seconds is None else begin + seconds
        each: list[Bounds] = []
        for k in range(1 if batch is None else batch):
            own = given if batch is None else [_box(b, k) for b in given]
            varying = [b for b in own if isinstance(b, Interval)]
            one = Answer(network, varying, memory, _timed(progress, until), floats)
            stopped = each[-1].stopped if each else ""

            def lines(net: Any, varying: Sequence[Interval] = varying) -> Slopes:
                again = Answer(network, varying, memory, lambda *_: None, floats)
                slopes = Recorded(net)
                again.record = slopes.recorder
                with np.errstate(all="ignore"):
                    again.bounds(method, wanted, steps)
                return slopes.found

            asked = Asked(graph, own, lines if method == "optimised" else None)
            each.append(replace(one.bounds(method, wanted, steps, stopped), asked=asked))
        found = each[0] if batch is None else joined(each, network, method, wanted, semantics)
        return replace(found, seconds=perf_counter() - begin)


def _box(b: Array | Interval, k: int) -> Array | Interval:
    """One box of a batch; points are the same for all."""
    return Interval.between(b.lo[k], b.hi[k]) if isinstance(b, Interval) else b


AFFORDED: Final = 1 << 30
"""Cells that walks may pass to improve the lines of boxes between: some seconds."""


class OutOfTimeError(Exception):
    """The time that was given is over."""


def _timed(progress: Callable[[str, int, int], None] | None, until: float) -> Callable[[str, int, int], None]:
    """What is told is also when to look at the clock."""

    def told(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(what, done, total)
        if perf_counter() > until:
            raise OutOfTimeError

    return told


class Answer(Boxes):
    """Boxes, and from them the bounds that were asked for."""

    found: Interval
    """The best of the rows, as it is proven."""
    record: Callable[[int], Callable[[Array, Dual], None]] | None = None
    """Makes what is told of better lines, for rows from a number on."""

    def bounds(self, method: str, rows: Array | None, steps: int, stopped: str = "") -> Bounds:
        """The bounds; if something `stopped` already, by intervals."""
        out = self.graph.outputs[0]
        self.sensitivity: dict[str, Array] = {}
        self.stopped = stopped
        self.enclose()
        intervals = _floats_of(self.boxes)
        plain = own = self.of_rows(rows, out)
        self.methods = dict.fromkeys(METHODS[: METHODS.index(method) + 1], own)
        if method != "interval":
            if self.moving[out] and not stopped:
                own = self._unless_stopped(lambda: self._relaxed(rows, out, method, steps), plain)
                if method == "optimised" and not self.stopped and self.record is None:
                    own = self._unless_stopped(lambda: self._sharpened(rows, out, steps), own)
                self.methods[method] = own
            plain = meet(plain, self.of_rows(rows, out))
        both = meet(plain, own)
        if rows is None:
            self.boxes[out] = both
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
            _floats_of(self.boxes),
            self.graph,
            rows,
            "real" if self.floats is None else "float",
            self.stopped,
            plain=intervals,
            sensitivity=self.sensitivity,
            winners=winners,
            methods=self.methods,
        )

    def _unless_stopped(self, walk: Callable[[], Interval], plain: Interval) -> Interval:
        """What a walk proves; if it is interrupted, or time or memory end, what was proven until then."""
        self.found = plain
        try:
            return walk()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        except MemoryError:
            self.stopped = "out of memory"
        except OutOfTimeError:
            self.stopped = "out of time"
        return self.found

    def _relaxed(self, rows: Array | None, out: int, method: str, steps: int) -> Interval:
        self.relax()
        return self._walked(rows, out, method, steps)

    def _sharpened(self, rows: Array | None, out: int, steps: int) -> Interval:
        """The same once more, of boxes whose cells had lines of their own, where that is not too much work."""
        before = self.found
        if not self.tight or self.cost_of_improving(steps) > AFFORDED:
            return before
        better = Answer(self.graph, [self.boxes[at] for at in self.inputs], self.memory, self.progress, self.floats)
        better.improving, better.sensitivity, better.methods = steps, {}, {}
        better.enclose()
        better.relax()
        found = meet(before, better._walked(rows, out, "optimised", steps))
        self.boxes, self.steps = better.boxes, better.steps
        return found

    def of_rows(self, rows: Array | None, out: int) -> Interval:
        box = self.boxes[out]
        if rows is None:
            return Interval.between(box.lo.copy(), box.hi.copy())
        flat = Interval.between(box.lo.reshape(-1), box.hi.reshape(-1))
        product: Interval = matmul(Interval.between(rows, rows), flat)
        return product

    def _walked(self, rows: Array | None, out: int, method: str, steps: int) -> Interval:
        shape = self.graph.nodes[out].shape
        wanted = np.eye(prod(shape)) if rows is None else rows
        many = self.rows_at_once(out)
        if method == "optimised":
            many = max(1, many // 8)  # lines of every row's own, and what improves them
        lo, hi = np.full(len(wanted), -np.inf), np.full(len(wanted), np.inf)
        end = tuple(shape) if rows is None else (len(wanted),)
        self.found = Interval.between(lo.reshape(end), hi.reshape(end))  # which is filled in as rows are proven
        crown: list[Array] = []
        for start in range(0, len(wanted), many):
            part = wanted[start : start + many]
            both = np.concatenate([part, -part]).reshape(-1, *shape)
            dual = Dual(self.steps, self.boxes, self.inputs)

            def proven(found: Array, begin: int = start, count: int = len(part)) -> None:
                lo[begin : begin + count], hi[begin : begin + count] = found[:count], -found[count:]
                self.progress("rows", begin, len(wanted))

            first = dual.lower(out, both, keep=True)
            self._note(dual, len(part) / len(wanted))
            crown.append(first)
            proven(first)
            if method == "optimised":
                told = None if self.record is None else self.record(start)
                improve(dual, out, both, first, steps, proven, told)
        if crown:
            least = np.concatenate([f[: len(f) // 2] for f in crown])
            most = np.concatenate([-f[len(f) // 2 :] for f in crown])
            self.methods["crown"] = Interval.between(least.reshape(end), most.reshape(end))
        self.progress("rows", len(wanted), len(wanted))
        return self.found

    def _note(self, dual: Dual, share: float) -> None:
        """What the inputs have to do with the width of these rows."""
        for at in self.inputs:
            if (a := dual.coefficients.get(at)) is not None and len(a):
                box, name = self.boxes[at], str(self.graph.nodes[at].name)
                own = np.abs(a).mean(0).reshape(box.shape) * (box.hi - box.lo) * share
                self.sensitivity[name] = self.sensitivity.get(name, 0.0) + own


def _floats_of(boxes: Sequence[Any]) -> dict[int, Interval]:
    return {at: b for at, b in enumerate(boxes) if b is not None and b.dtype.kind == "f"}
