"""Compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from lunette import core, outward
from lunette.array import FLOAT, HALF, from_numpy, integers_to_numpy, one_kind, to_numpy
from lunette.elsewhere import ELSEWHERE
from lunette.errors import ArgumentError, DTypeError, ShapeError, error_context, shown
from lunette.graph.derive import jvp_graph, vjp_graphs
from lunette.graph.interval_plan import IntervalPlan
from lunette.graph.memory import bytes_of, place
from lunette.graph.nodes import Node, Nodes, short
from lunette.graph.plan import make_steps
from lunette.graph.recording import with_records
from lunette.graph.simplify import is_operator, simplified
from lunette.graph.steps import by_kernel
from lunette.graph.text import line
from lunette.graph.walk import forward
from lunette.number import OBJECT, Array, Interval, allocate, as_dtype, is_real
from lunette.op import Arithmetic, Op, apply, check_name
from lunette.ops.glue import dtype_name
from lunette.page import bar, inset
from lunette.window import integer


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One step of a program: its line in the graph, its time and its work, and how its result lies."""

    text: str
    seconds: float
    flops: float
    layout: str = "planes"
    """ "planes", or blocks of so many channels."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a run of a program costs."""

    nodes: tuple[NodeTime, ...]
    seconds: float
    flops: float
    arena: int
    """Bytes of intermediate results."""
    largest_live: int
    """Bytes of the intermediate results that are needed at one time: no plan can do with less."""
    constants: int

    def __str__(self) -> str:
        lines = [f"{'time':>10} {'share':>6} {'GFLOP/s':>8}  {'layout':<13} step"]
        for n in self.nodes:
            rate = n.flops / n.seconds / 1e9 if n.seconds else 0.0
            share = n.seconds / max(self.seconds, 1e-12)
            lines.append(f"{n.seconds * 1e6:8.1f}us {share:6.1%} {rate:8.1f}  {n.layout:<13} {n.text}")
        lines.append(f"{self.seconds * 1e6:8.1f}us in all, {self.flops / 1e9:.3f} GFLOP")
        lines.append(
            f"arena {self.arena / 2**20:.2f} MiB (largest live set {self.largest_live / 2**20:.2f} MiB), "
            f"constants {self.constants / 2**20:.2f} MiB"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What notebooks show: a bar of its share for every step."""
        rows = []
        for n in self.nodes:
            share = n.seconds / max(self.seconds, 1e-12)
            rate = n.flops / n.seconds / 1e9 if n.seconds else 0.0
            text = f"<code>{escape(n.text)}</code>"
            time = f"{n.seconds * 1e6:.1f} us"
            rows.append((bar(0, min(share, 1.0)), f"{share:.1%}", time, f"{rate:.1f}", n.layout, text))
        words = "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines()[-2:])
        return f"<div>{inset(('', 'share', 'time', 'GFLOP/s', 'layout', 'step'), rows)}{words}</div>"


_empty = np.empty


class Program:
    """A graph that runs in one call into the compiled core.

    >>> import numpy as np, lunette as ln
    >>> g = ln.Graph()
    >>> x = g.input((1, 4, 4), name="x")
    >>> g.output(ln.max_pool(x, (2, 2)))
    >>> p = g.compile()
    >>> p(np.arange(16, dtype=np.float32).reshape(1, 4, 4))
    array([[[ 5.,  7.],
            [13., 15.]]], dtype=float32)
    """

    def __init__(self, graph: Nodes, *, debug: bool = False, fuse: bool = True) -> None:
        with error_context("Graph.compile"):
            if not graph.outputs:
                raise ArgumentError("G5", "at least one output", "none", "Call g.output(y).")
        self.graph = graph.copy()  # what is added to the graph later is not part of this program
        self.debug, self.fuse = debug, fuse
        self._derived: dict[Any, Any] = {}
        self._bounded: IntervalPlan | None = None
        self._inputs = self.graph.inputs
        self._names = [n.name for n in self._inputs]
        self._build()

    # ---- compiling

    def _build(self) -> None:
        with error_context("Graph.compile"):
            for n in self.graph.nodes:
                if bytes_of(n) > 1 << 48:  # which kernels cannot even count
                    allocate(n.shape, n.dtype, "a result")
        simple = simplified(self.graph, self.fuse)
        if self.fuse:
            simple, _ = with_records(simple)
        steps = make_steps(simple, self.fuse)
        nodes = simple.nodes
        arguments: dict[int, int] = {}
        sizes: list[tuple[int, bool]] = []

        def argument(at: int, write: bool) -> None:
            arguments[at] = len(sizes)
            sizes.append((bytes_of(nodes[at]), write))

        for at in simple.input_ids():
            argument(at, False)
        used = {steps.root(r) for s in steps.steps for r in s.reads if r is not None}
        constants = [at for at, n in enumerate(nodes) if n.value is not None and at in used]
        for at in constants:
            argument(at, False)
        self._constants = [nodes[at].value for at in constants]
        # An output has memory of its own, unless it is a copy of an input, of a constant, or of an earlier output.
        self._outputs: list[tuple[Node, Array | int | None]] = []
        earlier: dict[int, int] = {}
        for at in simple.outputs:
            root, n = steps.root(at), nodes[at]
            with error_context("Graph.compile"):
                allocate(n.shape, n.dtype)  # rule N6, once
            if nodes[root].name is not None:
                self._outputs.append((n, self._names.index(nodes[root].name) - len(self._inputs)))
            elif nodes[root].value is not None:
                self._outputs.append((n, nodes[root].value))
            elif root in earlier:
                self._outputs.append((n, earlier[root]))
            else:
                earlier[root] = len(self._outputs)
                self._outputs.append((n, None))
                argument(root, True)
        self._results = [(n.shape, n.dtype) for n, _ in self._outputs]
        self._copies = any(source is not None for _, source in self._outputs)
        memory = place(steps, arguments)
        with error_context("Graph.compile"):
            allocate((memory.arena,), np.dtype(np.int8), "an arena of intermediate results")
        listed = [
            (s.task, [-1 if r is None else memory.slot_of[steps.root(r)] for r in s.arguments]) for s in steps.steps
        ]
        self._plan = core.Plan(listed, memory.slots, sizes, memory.arena)
        self._memory, self._steps, self._simple = memory, steps, simple

    # ---- running

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """The outputs for arrays given in the order of the inputs, or by name; several outputs are a tuple."""
        arrays, kind = self._take(inputs, named)
        if self.debug:
            self._step_by_step(arrays, refuse_nan)
        given = self._run(arrays)
        if kind != "numpy":
            given = [from_numpy(r, kind) for r in given]
        return given[0] if len(given) == 1 else tuple(given)

    def run(self, /, *inputs: Any, arithmetic: Arithmetic = "fast", **named: Any) -> Any:
        """The outputs in an arithmetic; all but "fast" compute node by node.

        With "interval" the inputs are boxes (`ln.Interval` of arrays) or points, and so are the weights among them;
        what shapes and constants decide is decided by the first run.

        >>> import numpy as np, lunette as ln
        >>> g = ln.Graph()
        >>> g.output(ln.relu(ln.mul(g.input((2,), name="x"), np.float32([2, -4]))))
        >>> y = g.compile().run(ln.Interval(np.zeros(2, np.float32), np.ones(2, np.float32)), arithmetic="interval")
        >>> y.lo, y.hi
        (array([0., 0.], dtype=float32), array([2., 0.], dtype=float32))
        """
        with error_context("Program.run"):
            check_name(arithmetic)
        if any(isinstance(a, Interval) for a in (*inputs, *named.values())):
            arithmetic = "interval"  # as of every operator
        if arithmetic == "fast":
            return self(*inputs, **named)
        if arithmetic == "interval":
            boxes, kind = self._take_boxes(inputs, named)
            given: list[Any] = [_given(_two_ends(b), kind) for b in self._interval_plan().run(boxes)]
            return given[0] if len(given) == 1 else tuple(given)
        arrays, kind = self._take(inputs, named)

        def compute(n: Node, operands: list[Any]) -> Any:
            assert n.kind is not None
            return apply(n.kind, operands, arithmetic, *n.options)

        known = dict(forward(self.graph, arrays, compute))
        # Copies: a result may be an input, a constant or another result.
        given = [from_numpy(np.array(known[i], order="C"), kind) for i in self.graph.outputs]
        return given[0] if len(given) == 1 else tuple(given)

    def boxes(self, *inputs: Any, **named: Any) -> dict[int, Interval]:
        """The box of every node, by its number in `program.graph`, for boxes and points as `run` takes them.

        Integers have none. The boxes of constants are the program's own arrays, which are not to be written to.

        >>> import numpy as np, lunette as ln
        >>> g = ln.Graph()
        >>> g.output(ln.relu(ln.neg(g.input((2,), name="x"))))
        >>> p = g.compile()
        >>> for node, box in p.boxes(ln.Interval(np.float32([-2, 1]), np.float32([-1, 2]))).items():
        ...     print(p.graph.nodes[node].short, box.lo, box.hi)
        f32[2] [-2.  1.] [-1.  2.]
        f32[2] [ 1. -2.] [ 2. -1.]
        f32[2] [1. 0.] [2. 0.]
        """
        boxes, kind = self._take_boxes(inputs, named)
        return {at: _given(b, kind) for at, b in self._interval_plan().all(boxes).items()}

    def _take_boxes(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], str]:
        """Rule G9, of boxes and points."""

        def end(name: str) -> tuple[list[Array], str]:
            def of(a: Any) -> Any:
                return getattr(a, name) if isinstance(a, Interval) else a

            return self._take([of(a) for a in inputs], {k: of(a) for k, a in named.items()}, name == "lo")

        lower, kind = end("lo")
        # Labels are integers, not measured: they have no box.
        both = zip(lower, end("hi")[0], strict=True)
        return [lo if lo is hi or lo.dtype.kind != "f" else Interval(lo, hi) for lo, hi in both], kind

    def _interval_plan(self) -> IntervalPlan:
        """Made by the first run on boxes; by several threads at once, if they begin at once: a lock would not fork."""
        if self._bounded is None:
            self._bounded = IntervalPlan(self.graph)
        return self._bounded

    def _take(
        self, inputs: Sequence[Any], named: Mapping[str, Any], down: bool | None = None
    ) -> tuple[list[Array], str]:
        """Rule G9. Plain numbers are rounded to nearest, or as lower (`down`) or upper ends of boxes."""
        if not named and len(inputs) == len(self._inputs):
            arrays = []
            for a, n in zip(inputs, self._inputs, strict=True):
                if type(a) is not np.ndarray or a.dtype != n.dtype or a.shape != n.shape or not a.flags.c_contiguous:
                    break
                arrays.append(a)
            else:
                return arrays, "numpy"
        with error_context("Program"):
            wanted = ", ".join(f"{n.name} : {n.short}" for n in self._inputs)
            unknown = [k for k in named if k not in self._names]
            missing = [k for k in self._names[len(inputs) :] if k not in named]
            twice = [k for k in self._names[: len(inputs)] if k in named]
            if unknown or missing or twice or len(inputs) > len(self._inputs):
                wrong = (
                    [f"an unknown {k}" for k in unknown] + [f"no {k}" for k in missing] + [f"{k} twice" for k in twice]
                )
                got = " and ".join(wrong) or f"{len(inputs)} arrays"
                raise ArgumentError("G9", f"the inputs ({wanted})", got, "By position or by name.")
            given = [*inputs, *(named[k] for k in self._names[len(inputs) :] if k is not None)]
            arrays, kinds = [], []
            for a, n in zip(given, self._inputs, strict=True):
                if isinstance(a, Interval):
                    hint = "Program.run takes boxes; single operators have derivatives of them: ln.conv_vjp."
                    raise DTypeError("G9", f"{n.name} as an array", "a box", hint)
                if is_real(a) and n.shape == () and n.dtype.kind == "f":
                    a = np.asarray(as_dtype(a, n.dtype), n.dtype) if down is None else outward.end(a, n.dtype, down)
                if isinstance(a, np.ndarray) and n.dtype.kind == "f" and a.dtype.kind in "iubc":
                    check_input_dtype(n, a.dtype)
                if n.dtype.kind == "u":  # a record of winners, of our own making
                    arrays.append(np.require(a, n.dtype, ["C", "A"]))
                    continue
                t = integers_to_numpy(a, str(n.name)) if n.dtype == np.int64 else to_numpy(a, str(n.name))
                if t.array.shape != n.shape:
                    need = f"{n.name} of shape {n.shape}"
                    raise ShapeError("G9", need, f"shape {t.array.shape}", "Shapes are part of a program.")
                check_input_dtype(n, t.array.dtype)
                arrays.append(np.require(t.array, None, ["C", "A"]))
                kinds.append(t.kind)
            one_kind(kinds)
        return arrays, kinds[0] if kinds else "numpy"

    def _run(self, arrays: Sequence[Array], seconds: Array | None = None) -> list[Array]:
        results = [_empty(shape, dtype) for shape, dtype in self._results]
        made = results
        if self._copies:
            made = [y for y, (_, source) in zip(results, self._outputs, strict=True) if source is None]
        try:
            if seconds is None:
                self._plan.run(*arrays, *self._constants, *made)
            else:
                self._plan.run(*arrays, *self._constants, *made, seconds=seconds)
        except ValueError as error:  # a value that a kernel refuses: a label out of range, a beta of zero
            self._step_by_step(arrays, lambda *_: None)  # the operator says it in its own words
            hint = "The operator's own rules say which."
            raise ArgumentError("G9", "values that the operators take", str(error), hint, who="Program") from error
        for y, (n, source) in zip(results, self._outputs, strict=True) if self._copies else ():
            if source is not None:  # a constant, an input (counted from the end) or an earlier output
                both = (*results, *arrays)
                y[...] = (both[source] if isinstance(source, int) else source).reshape(n.shape)
        return results

    def lane(self) -> Callable[..., Array] | None:
        """The shortest way to the one output, for NumPy arrays like the inputs; a ValueError has to be looked into.

        None where there is more to do than to run the plan.
        """
        if self.debug or self._copies or len(self._results) != 1:
            return None
        run, constants, (shape, dtype) = self._plan.run, self._constants, self._results[0]

        def lane(*arrays: Array) -> Array:
            y: Array = _empty(shape, dtype)
            run(*arrays, *constants, y)
            return y

        return lane

    def _step_by_step(self, arrays: Sequence[Array], look: Callable[[type[Op], list[Any], Any, str], None]) -> None:
        """Every operator of the graph by itself, and a look at what it makes."""

        def compute(n: Node, operands: list[Any]) -> Any:
            assert n.kind is not None
            y = apply(n.kind, operands, "fast", *n.options) if is_operator(n) else by_kernel(n, operands)
            look(n.kind, operands, y, n.line)
            return y

        for _ in forward(self.graph, arrays, compute):
            pass

    # ---- derivatives

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The outputs and their derivatives in the direction of the tangents, one per input; None is zero."""
        with error_context("Program.jvp"):
            if len(primals) != len(self._inputs) or len(tangents) != len(primals):
                got = f"{len(primals)} primals and {len(tangents)} tangents"
                raise ArgumentError("G9", f"{len(self._inputs)} primals and as many tangents", got, "None is zero.")
        moving = tuple(t is not None for t in tangents)
        program = self._derive(("jvp", moving), lambda: jvp_graph(self.graph, moving))
        results = program(*primals, *(t for t in tangents if t is not None))
        n = len(self.graph.outputs)
        y, dy = results[:n], results[n:]
        return (y[0], dy[0]) if n == 1 else (tuple(y), tuple(dy))

    def vjp(self, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        """The outputs, and the pullback: from one cotangent per output to one per input."""
        forward, backward, again = self._pair()
        results = forward(*primals)
        results = results if isinstance(results, tuple) else (results,)
        n = len(self.graph.outputs)
        y, kept = results[:n], (*(primals[p] for p in again), *results[n:])

        def pullback(cotangent: Any) -> tuple[Any, ...]:
            """One cotangent per input."""
            given = cotangent if n > 1 else (cotangent,)
            back = backward(*kept, *given)
            parts = iter(back if isinstance(back, tuple) else (back,))
            return tuple(next(parts) if i.dtype.kind == "f" else np.zeros(i.shape, i.dtype) for i in self._inputs)

        return (y[0] if n == 1 else tuple(y)), pullback

    def to_jax(self) -> Callable[..., Any]:
        """The program as a function of JAX: under jit, grad, jvp, vjp and vmap, one call of compiled code each.

        >>> import jax, numpy as np, lunette as ln
        >>> g = ln.Graph()
        >>> g.output(ln.sum(ln.relu(g.input((3,), name="x"))))
        >>> jax.grad(g.compile().to_jax())(np.float32([-1, 0, 2])).tolist()
        [0.0, 0.0, 1.0]
        """
        return ELSEWHERE["jax"](self)

    # Threads that ask for the same derivative at once may each make it; the first is kept. A lock would be held for
    # good in a child that is forked meanwhile.

    def _derive(self, key: Any, make: Callable[[], Nodes]) -> Program:
        known: Program | None = self._derived.get(key)
        if known is None:
            known = self._derived.setdefault(key, Program(make(), debug=self.debug, fuse=self.fuse))
        return known

    def _pair(self, records: bool = True) -> tuple[Program, Program, list[int]]:
        known: tuple[Program, Program, list[int]] | None = self._derived.get(("vjp", records))
        if known is None:
            forward, backward, again = vjp_graphs(self.graph, records)
            both = (Program(g, debug=self.debug, fuse=self.fuse) for g in (forward, backward))
            known = self._derived.setdefault(("vjp", records), (*both, again))
        return known

    def to_torch(self) -> Callable[..., Any]:
        """The program as a function of torch tensors that torch can differentiate, again and again."""
        return ELSEWHERE["torch"](self)

    # ---- looking

    def stats(self, *inputs: Any, repeat: int = 5) -> Stats:
        """Time per step (the median of some runs on `inputs`, or on ones), memory and work."""
        with error_context("Program.stats"):
            if integer("repeat", repeat) < 1:
                raise ArgumentError("G11", "repeat >= 1", f"repeat={shown(repeat)}", "A median is of one run at least.")
        arrays = self._take(inputs, {})[0] if inputs else [np.ones(n.shape, n.dtype) for n in self._inputs]
        times = np.empty((repeat, len(self._steps.steps)))
        for row in times:
            self._run(arrays, row)
        median = np.median(times, axis=0)

        def text(k: int, first: int) -> str:
            kind = self._simple.nodes[k].kind
            return line(self._simple, k) if k == first or kind is None else kind.name

        nodes = tuple(
            NodeTime(" + ".join(text(k, s.node) for k in s.covers), float(t), s.flops, s.layout)
            for s, t in zip(self._steps.steps, median, strict=True)
        )
        return Stats(
            nodes,
            float(median.sum()),
            sum(s.flops for s in self._steps.steps),
            self._memory.arena,
            self._memory.largest_live,
            sum(a.nbytes for a in self._constants if a is not None),
        )

    def __repr__(self) -> str:
        return f"Program({len(self._steps.steps)} steps, {self._memory.arena} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.graph, self.debug, self.fuse)


def check_input_dtype(n: Node, given: np.dtype[Any]) -> None:
    """Rule G9; not every input is an array with an astype."""
    if given != n.dtype:
        hint = f"Pass np.asarray({n.name}{'.real' if given.kind == 'c' else ''}, np.{n.dtype})."
        raise DTypeError("G9", f"{n.name} of dtype {n.dtype}", f"dtype {given}", hint)


def refuse_nan(kind: type[Op], operands: Sequence[Any], y: Any, line: str) -> None:
    """Rule G10."""
    if not any(_nans(a).any() for a in operands) and (found := _nans(y)).any():
        at, cells = tuple(int(v) for v in np.argwhere(found)[0]), to_numpy(y, "y").array
        raise ArgumentError(
            "G10",
            "no NaN (debug=True)",
            f"one from {kind.name} : {short(cells.shape, cells.dtype)} at {at}",
            f"It was built at {line}." if line else "Look at its inputs.",
            who=kind.name,
        )


def _nans(a: Any) -> Array:
    """Where a float array of any kind is NaN; other values are not."""
    kind = dtype_name(getattr(a, "dtype", OBJECT))
    floats = kind in (*HALF, *(t.name for t in FLOAT))
    return np.isnan(to_numpy(a, "x").array) if floats else np.zeros((), bool)


def _two_ends(box: Interval) -> Interval:
    """A box whose ends are arrays of their own: of points they are one."""
    return Interval.between(box.lo, box.hi.copy()) if box.lo is box.hi else box


def _given(box: Interval, kind: str) -> Interval:
    """A box as the kind of arrays that the inputs were."""
    if kind == "numpy":
        return box
    # Constants are not to be written to, which a tensor of torch cannot say.
    return Interval.between(*(from_numpy(e if e.flags.writeable else e.copy(), kind) for e in (box.lo, box.hi)))


def _rebuilt(graph: Nodes, debug: bool, fuse: bool) -> Program:
    return Program(graph, debug=debug, fuse=fuse)
