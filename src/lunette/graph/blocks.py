"""Layouts: values of a program in blocks of channels, where that pays.

A value (*batch, channels, *space) in blocks is (*batch, channels / L, *space, L), with as many channels L side by side
as a vector has lanes: what reads it needs no gathering, and what sums it writes whole vectors. Its cells are the same,
in another order. Convolutions gain, pools and functions of single cells go along, everything else reads and writes
values as they are; a value that is read in both layouts is moved once. What runs in blocks is chosen by what it saves
and what moving costs (docs/adr/0027-blocks-of-channels.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from lunette import core
from lunette.array import KERNEL_RANK
from lunette.graph.nodes import Node
from lunette.graph.steps import Step, Steps, kernel_of
from lunette.number import Array
from lunette.op import Kernels, Op, ResolvedOp, Shapes
from lunette.ops import Conv, ConvTranspose
from lunette.ops.binary import Binary
from lunette.ops.concat import Concat
from lunette.ops.glue import Layout, strides
from lunette.ops.pool import Pool
from lunette.ops.unary import Unary
from lunette.window import Axis, Shape, Window

MOVING = 0.35e-9
"""Seconds that moving a cell takes, roughly; the next two are on the same scale, and only ratios matter."""
SAVED_BY_PRODUCT = 0.8e-12
"""Seconds that a multiplication or an addition of a convolution is shorter in blocks."""
SAVED_DEPTHWISE = 1.5e-11
"""The same where channels are not joined."""


# ---- moving


@dataclass(frozen=True, slots=True)
class Moving(Layout):
    """The cells of an array in the order of the other layout; `axis` counts its channels, or their blocks."""

    axis: int = 0
    lanes: int = 1

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        x = shapes[0]
        assert x is not None
        turned = isinstance(self, FromBlocks)
        blocks, cells = x[self.axis] // (1 if turned else self.lanes), prod(x[self.axis + 1 :])
        rows, columns = (cells // self.lanes, self.lanes) if turned else (self.lanes, cells)
        count, n = prod(x[: self.axis]) * blocks, prod(x)
        shape, steps = [count, columns, rows], [rows * columns, 1, columns]
        return Kernels(core.strided_copy(dtype.char, shape, 0, steps, n, 0, strides(tuple(shape)), n, None))


@dataclass(frozen=True, slots=True)
class ToBlocks(Moving):
    """From (*batch, channels, *space) to blocks."""

    name: ClassVar[str] = "to_blocks"

    def shape(self, *shapes: Shape | None) -> Shape:
        x = shapes[0]
        assert x is not None
        return blocked(x, self.axis, self.lanes)

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        split = x.reshape((*x.shape[: self.axis], -1, self.lanes, *x.shape[self.axis + 1 :]))
        return np.moveaxis(split, self.axis + 1, -1)


@dataclass(frozen=True, slots=True)
class FromBlocks(Moving):
    """And back."""

    name: ClassVar[str] = "from_blocks"

    def shape(self, *shapes: Shape | None) -> Shape:
        x = shapes[0]
        assert x is not None
        return (*x[: self.axis], x[self.axis] * self.lanes, *x[self.axis + 1 : -1])

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return np.moveaxis(x, -1, self.axis + 1).reshape(self.shape(x.shape))


def blocked(shape: Shape, axis: int, lanes: int) -> Shape:
    """The shape in blocks of an array whose channels are that axis."""
    return (*shape[:axis], shape[axis] // lanes, *shape[axis + 1 :], lanes)


# ---- what runs in blocks, and how


@dataclass(slots=True)
class Form:
    """A step in blocks: which of its reads are in blocks, what that saves, and the step itself, made of these reads."""

    axis: int
    """Of channels, in the result and in what is read in blocks."""
    wants: tuple[int, ...]
    saves: float
    make: Callable[[Sequence[int | None]], tuple[Node, core.Task, list[int | None]]]


def conv_form(plan: Steps, n: Node, relu: bool, lanes: int) -> Form | None:
    """A convolution, with what follows it; its reads are those of `core.conv`."""
    assert n.resolved is not None and isinstance(n.op, Conv) and n.inputs[1] is not None
    convolution = n.op.native(n.dtype, prod(n.resolved.batch), n.resolved.shapes)
    weights = plan.graph.nodes[n.inputs[1]].value
    if convolution is None or weights is None or n.dtype != np.float32:
        return None
    make_pack: Any = core.conv_blocked_pack
    make_task: Any = core.conv_blocked
    pack = make_pack(*convolution, isinstance(n.op, ConvTranspose))
    if not pack.count(1):
        return None
    axis, shape = len(n.resolved.batch), blocked(n.shape, len(n.resolved.batch), lanes)

    def make(reads: Sequence[int | None]) -> tuple[Node, core.Task, list[int | None]]:
        packed: Array = np.empty(pack.count(1), n.dtype)
        pack(weights, packed)
        constant = plan.graph.append(Node(packed.shape, packed.dtype, value=packed)).id
        task = make_task(*convolution, isinstance(n.op, ConvTranspose), relu)
        x, _, bias, scale, shift, add, _ = reads
        return replace(n, shape=shape, inputs=(x, *n.inputs[1:])), task, [x, constant, bias, scale, shift, add]

    saved = SAVED_DEPTHWISE if n.op.groups > 1 else SAVED_BY_PRODUCT
    x, *_ = n.resolved.shapes
    assert x is not None
    wants = (5,) if x[0] % lanes else (0, 5)  # few channels are read as they are
    return Form(axis, wants, saved * n.op.flops(n.resolved.shapes, prod(n.resolved.batch)), make)


def _form_of(plan: Steps, step: Step, axes: Mapping[int, int], lanes: int) -> Form | None:
    """What a step is in blocks; `axes` tells the channels of the values that have some."""
    n = plan.graph.nodes[step.node]
    if step.in_blocks is not None:
        form: Form | None = step.in_blocks(plan, lanes)
        return form
    if n.kind is None or n.dtype != np.float32 or step.beside or len(step.covers) != 1 or n.resolved is None:
        return None
    make = next((make for kind, make in FORMS.items() if issubclass(n.kind, kind)), None)
    return None if make is None else make(plan, step, n, axes, lanes)


def _by_kernel(plan: Steps, like: Node, op: Op, shapes: tuple[Shape | None, ...], out: Shape) -> Node | None:
    """A node that computes what another does, on arrays of other shapes; None where it has no kernel."""
    d = None if like.resolved is None or like.resolved.d is None else like.resolved.d + 1
    batch: Shape = () if d is None else like.resolved.batch  # type: ignore[union-attr]
    return None if (d or 0) > KERNEL_RANK else replace(like, shape=out, resolved=ResolvedOp(op, d, batch, shapes, out))


def _made(plan: Steps, n: Node) -> Callable[[Sequence[int | None]], tuple[Node, core.Task, list[int | None]]]:
    def make(reads: Sequence[int | None]) -> tuple[Node, core.Task, list[int | None]]:
        return replace(n, inputs=tuple(reads)), kernel_of(plan.graph, n), list(reads)

    return make


def _pool_form(plan: Steps, step: Step, n: Node, axes: Mapping[int, int], lanes: int) -> Form | None:
    """A pool in blocks has one more axis, along which windows are one cell wide."""
    assert n.resolved is not None and isinstance(n.op, Pool)
    x, *others = n.resolved.shapes
    assert x is not None
    if x[0] % lanes or not n.resolved.d:
        return None
    wider = replace(n.op, window=Window((*n.op.window.axes, Axis(1))))
    axis = len(n.resolved.batch)
    made = _by_kernel(plan, n, wider, (blocked(x, 0, lanes), *others), blocked(n.shape, axis, lanes))
    return None if made is None else Form(axis, (0,), 0.0, _made(plan, made))


def _cells_form(plan: Steps, step: Step, n: Node, axes: Mapping[int, int], lanes: int) -> Form | None:
    """A function of single cells; operands that have one cell for each channel, or none for any, lie as they do."""
    assert n.resolved is not None
    roots = [plan.root(r) for r in step.reads if r is not None]
    shapes = [plan.graph.nodes[r].shape for r in step.reads if r is not None]
    known = {axes[r] for r, s in zip(roots, shapes, strict=True) if s == n.shape and r in axes}
    if len(known) != 1:
        return None
    (axis,) = known
    channels, inner = n.shape[axis], len(n.shape) - axis - 1
    wants, others = [], []
    for at, s in enumerate(shapes):
        if s == n.shape:
            wants.append(at)
            others.append(blocked(s, axis, lanes))
            continue
        own = s[len(s) - inner - 1] if len(s) > inner else 1
        if own == 1:
            others.append((*s, 1) if s else s)
        elif own == channels and all(m == 1 for m in s[len(s) - inner :][:inner]):
            others.append(blocked(s, len(s) - inner - 1, lanes))
        else:
            return None
    made = _by_kernel(plan, n, n.op, tuple(others), blocked(n.shape, axis, lanes))
    return None if made is None else Form(axis, tuple(wants), 0.0, _made(plan, made))


def _concat_form(plan: Steps, step: Step, n: Node, axes: Mapping[int, int], lanes: int) -> Form | None:
    """Channels put behind channels are blocks put behind blocks."""
    assert isinstance(n.op, Concat)
    axis = n.op.axis
    shapes = [plan.graph.nodes[r].shape for r in step.reads if r is not None]
    if any(s[axis] % lanes for s in shapes) or {axes.get(plan.root(r)) for r in step.reads if r is not None} != {axis}:
        return None
    made = _by_kernel(plan, n, n.op, tuple(blocked(s, axis, lanes) for s in shapes), blocked(n.shape, axis, lanes))
    return None if made is None else Form(axis, tuple(range(len(shapes))), 0.0, _made(plan, made))


FORMS: Final[Mapping[Any, Callable[[Steps, Step, Node, Mapping[int, int], int], Form | None]]] = {
    Pool: _pool_form,
    Unary: _cells_form,
    Binary: _cells_form,
    Concat: _concat_form,
}
"""Of operators that go along, by the classes that they are made from."""


# ---- choosing


@dataclass(slots=True)
class _Choice:
    """Which steps run in blocks, and who reads which value how."""

    plan: Steps
    forms: list[Form | None]
    lanes: int
    chosen: list[bool] = field(default_factory=list)
    maker: dict[int, int] = field(default_factory=dict)
    """The step that writes a value."""
    readers: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    """Steps that read a value, and whether they want it in blocks when they run in blocks; -1: the caller."""

    def __post_init__(self) -> None:
        plan = self.plan
        self.chosen = [f is not None for f in self.forms]
        for t, (step, form) in enumerate(zip(plan.steps, self.forms, strict=True)):
            self.maker[plan.root(step.writes)] = t
            for at, r in enumerate(step.reads):
                if r is not None and plan.graph.nodes[plan.root(r)].value is None:
                    self.readers.setdefault(plan.root(r), []).append((t, form is not None and at in form.wants))
        for o in plan.graph.outputs:
            self.readers.setdefault(plan.root(o), []).append((-1, False))

    def moves(self, value: int) -> float:
        """What moving a value costs, as steps are chosen."""
        shape = self.plan.graph.nodes[value].shape
        made = self.maker.get(value)
        inside = made is not None and self.chosen[made]
        wanted = {t >= 0 and self.chosen[t] and wants for t, wants in self.readers.get(value, ())}
        if wanted <= {inside}:
            return 0.0
        form = self.forms[made] if made is not None and inside else None
        axis = form.axis if form is not None else self.axis_wanted(value)
        return 0.0 if prod(shape[axis + 1 :]) == 1 else MOVING * prod(shape)

    def axis_wanted(self, value: int) -> int:
        """The channels of a value that is wanted in blocks."""
        return next(f.axis for t, wants in self.readers[value] if wants and (f := self.forms[t]) is not None)

    def values_of(self, t: int) -> set[int]:
        """The values that a step reads or writes."""
        plan, step = self.plan, self.plan.steps[t]
        return {
            plan.root(i)
            for i in (*step.reads, step.writes)
            if i is not None and plan.graph.nodes[plan.root(i)].value is None
        }

    def flip(self, steps: Sequence[int]) -> float:
        """What is gained if these steps change sides; they do."""
        touched: set[int] = set().union(*(self.values_of(t) for t in steps))
        before = sum(self.moves(v) for v in touched)
        gained = 0.0
        for t in steps:
            form = self.forms[t]
            assert form is not None
            gained += -form.saves if self.chosen[t] else form.saves
            self.chosen[t] = not self.chosen[t]
        return gained + before - sum(self.moves(v) for v in touched)

    def settle(self) -> None:
        """From everything in blocks that can be: whole regions, then single steps, change sides if that gains."""
        for region in self.regions():
            if self.flip(region) < 0:
                self.flip(region)
        able = [t for t, f in enumerate(self.forms) if f is not None]
        for _ in range(4):
            changed = False
            for t in able:
                if self.flip([t]) > 0:
                    changed = True
                else:
                    self.flip([t])
            if not changed:
                return

    def regions(self) -> list[list[int]]:
        """Steps in blocks that hang together by values in blocks."""
        leader = list(range(len(self.forms)))

        def find(t: int) -> int:
            while leader[t] != t:
                leader[t] = t = leader[leader[t]]
            return t

        for value, readers in self.readers.items():
            inside = [t for t, wants in readers if wants]
            made = self.maker.get(value)
            if made is not None and self.forms[made] is not None:
                inside.append(made)
            for t in inside[1:]:
                leader[find(t)] = find(inside[0])
        regions: dict[int, list[int]] = {}
        for t, form in enumerate(self.forms):
            if form is not None:
                regions.setdefault(find(t), []).append(t)
        return list(regions.values())


def with_blocks(plan: Steps) -> Steps:
    """The same steps, some of them in blocks, and those that move values between the layouts."""
    lanes = core.lanes("f")
    axes: dict[int, int] = {}
    forms: list[Form | None] = [None] * len(plan.steps)
    agreed: dict[int, int] = {}  # the channels of every value that is in blocks for anybody: they are the same for all
    if any(s.in_blocks is not None for s in plan.steps):  # nothing else gains by itself
        for t, step in enumerate(plan.steps):
            form = _form_of(plan, step, axes, lanes)
            if form is None:
                continue
            read = [r for at in form.wants if (r := step.reads[at]) is not None]
            roots = [plan.root(r) for r in (*read, step.writes)]
            if any(r != plan.root(r) for r in read) or any(agreed.get(r, form.axis) != form.axis for r in roots):
                continue  # what was reshaped has other channels
            agreed |= dict.fromkeys(roots, form.axis)
            forms[t], axes[plan.root(step.writes)] = form, form.axis
    choice = _Choice(plan, forms, lanes)
    choice.settle()
    return _moved(choice)


def _moved(choice: _Choice) -> Steps:
    plan, nodes = choice.plan, choice.plan.graph.nodes
    new = Steps(plan.graph, [], plan.alias)
    layout = f"{choice.lanes} channels"
    other: dict[int, int] = {}  # a value in the other layout than it was made in
    made_in: dict[int, bool] = {}
    axis_of: dict[int, int] = {}

    def wanted(value: int, in_blocks: bool, axis: int = 0) -> int:
        if made_in.get(value, False) == in_blocks:
            return value
        if value not in other:
            shape, dtype, array = nodes[value].shape, nodes[value].dtype, nodes[value].value
            kind: type[Moving] = ToBlocks if in_blocks else FromBlocks
            op = kind(axis_of.get(value, axis), choice.lanes)
            if array is not None:
                moved = np.ascontiguousarray(op.spec(array))
                other[value] = plan.graph.append(Node(moved.shape, dtype, value=moved)).id
                return other[value]
            out = op.shape(shape)
            n = Node(out, dtype, kind, (op.axis, op.lanes), (value,), ResolvedOp(op, None, (), (shape,), out))
            at = other[value] = plan.graph.append(n).id
            made_in[at] = in_blocks
            if prod(n.shape[op.axis + 1 :]) in (1, choice.lanes) and prod(shape[op.axis + 1 :]) in (1, choice.lanes):
                new.alias[at] = value  # one cell for each channel: both layouts are the same
            else:
                task = kernel_of(plan.graph, n)
                new.steps.append(Step(task, [value], at, at, covers=[at], layout=layout if in_blocks else "planes"))
        return other[value]

    went: dict[int, int] = {}  # values that are made in blocks: where
    for t, (step, form) in enumerate(zip(plan.steps, choice.forms, strict=True)):
        running = form is not None and choice.chosen[t]
        reads = list(step.reads)
        for at, r in enumerate(step.reads):
            if r is not None:
                root = went.get(plan.root(r), plan.root(r))
                if running and form is not None and at in form.wants:
                    reads[at] = wanted(root, True, form.axis)
                elif made_in.get(root, False):
                    reads[at] = wanted(root, False)
        if form is None or not running:
            if step.ready is not None:
                step.ready(reads)
            new.steps.append(replace(step, reads=reads))
            continue
        n, task, reads = form.make(reads)
        at = plan.graph.append(n).id
        made_in[at], axis_of[at], went[plan.root(step.writes)] = True, form.axis, at
        covers = [at, *(k for k in step.covers if k != step.node)]
        new.steps.append(replace(step, task=task, reads=reads, writes=at, node=at, covers=covers, layout=layout))
    for o in plan.graph.outputs:
        root = plan.root(o)
        if root in went:
            back = wanted(went[root], False)
            new.alias[root] = back
    return new
