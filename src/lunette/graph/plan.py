"""From a graph to a plan: which kernels run in which order, and where their arrays lie.

Passes over the list of nodes, each of which keeps the meaning: what is not needed goes, equal nodes become one, nodes
of constants become constants, a scale and shift behind a convolution of constant weights goes into the weights. Then
nodes become steps; a bias, a residual and a relu behind a convolution become part of its step. Last, arrays that do
not live at the same time share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from lunette import _native
from lunette.array import KERNEL_RANK, key_of
from lunette.errors import ShapeError, error_context
from lunette.graph.graph import Graph, Node
from lunette.number import Array
from lunette.op import Op, apply
from lunette.ops import Conv, ConvTranspose, MaxPool
from lunette.ops.binary import Add, Binary, Gate, Mul, Prefer
from lunette.ops.derivative import Vjp
from lunette.ops.layout import Reshape
from lunette.ops.linear import MatMul
from lunette.ops.unary import Relu, StopGradient, Unary
from lunette.window import Shape

ALIGN = 64


# ---- passes: graph to graph


def simplified(graph: Graph, fold: bool = True) -> Graph:
    """The same function with fewer nodes."""
    new = Graph()
    place: list[int] = []
    seen: dict[Any, int] = {}
    needed = _needed(graph)
    uses = _uses(graph, needed)
    for at, n in enumerate(graph.nodes):
        if at not in needed:
            place.append(-1)
            continue
        if n.kind is None:
            same = (n.value.tobytes(), n.shape, n.dtype) if n.value is not None and n.value.size <= 64 else None
            if same is None or same not in seen:
                made = new.append(n).id
                if same is not None:
                    seen[same] = made
            place.append(made if same is None else seen[same])
            continue
        inputs = tuple(
            i if i is None else place[i] if place[i] >= 0 else shape_only(new, graph.nodes[i], seen) for i in n.inputs
        )
        if n.kind is StopGradient:
            place.append(inputs[0] or 0)
            continue
        value = _folded(new, n, inputs) if fold else None
        if value is not None:
            place.append(new.append(Node(n.shape, n.dtype, value=value)).id)
            continue
        if fold and (moved := _into_weights(new, graph, uses, n, inputs)) is not None:
            place.append(moved)
            continue
        key = (*key_of(n.kind, (), "fast", n.options), inputs)
        if key not in seen:
            seen[key] = new.append(replace(n, inputs=inputs)).id
        place.append(seen[key])
    new.outputs = [place[i] for i in graph.outputs]
    return new


def reads(n: Node) -> list[int | None]:
    """The inputs of a node, None for those of which it needs no more than the shape."""
    if n.kind is None or not issubclass(n.kind, Vjp):
        return list(n.inputs)
    return [i if n.kind.reads(p) else None for p, i in enumerate(n.inputs)]


def shape_only(graph: Graph, n: Node, seen: dict[Any, int]) -> int:
    """A constant that nothing reads, in the place of a value that is not needed; it takes no memory."""
    key = ("shape", n.shape, n.dtype)
    if key not in seen:
        seen[key] = graph.append(Node(n.shape, n.dtype, value=np.broadcast_to(np.zeros((), n.dtype), n.shape))).id
    return seen[key]


def _needed(graph: Graph) -> set[int]:
    """The nodes whose values outputs depend on, and all inputs."""
    needed = set(graph.outputs) | set(graph.input_ids())
    for at in range(len(graph.nodes) - 1, -1, -1):
        if at in needed:
            needed.update(i for i in reads(graph.nodes[at]) if i is not None)
    return needed


def _uses(graph: Graph, needed: set[int]) -> list[int]:
    """How often each node is read; outputs count twice, so that nothing takes them for private."""
    uses = [0] * len(graph.nodes)
    for at in needed:
        for i in reads(graph.nodes[at]):
            if i is not None:
                uses[i] += 1
    for i in graph.outputs:
        uses[i] += 2
    return uses


FOLD_LIMIT = 1 << 20
"""Constants are not made larger than this many cells, unless they were: a program should not outgrow its graph."""


def _folded(graph: Graph, n: Node, inputs: Sequence[int | None]) -> Array | None:
    """The value of a node all of whose inputs are constants."""
    arrays = [None if i is None else graph.nodes[i].value for i in inputs]
    if any(i is not None and a is None for i, a in zip(inputs, arrays, strict=True)) or prod(n.shape) > FOLD_LIMIT:
        return None
    assert n.kind is not None
    y: Array = apply(n.kind, arrays, "fast", *n.options)
    return y if y.dtype == n.dtype and y.flags.c_contiguous else np.asarray(y, n.dtype, order="C")


def _into_weights(
    new: Graph, graph: Graph, uses: Sequence[int], n: Node, inputs: Sequence[int | None], any_sign: bool = False
) -> int | None:
    """conv(x, w, b) * scale or + shift, per channel and all constant: a convolution with other weights."""
    if n.kind not in (Mul, Add):
        return None
    for c, k in ((0, 1), (1, 0)):
        i, j, old = inputs[c], inputs[k], n.inputs[c]
        assert i is not None and j is not None and old is not None
        factor = new.nodes[j].value
        if factor is None or uses[old] != 1:
            continue
        if n.kind is Add and new.nodes[i].kind is Mul and factor.all():  # it hides the sign of a zero
            scaled = _into_weights(new, graph, uses, graph.nodes[old], new.nodes[i].inputs, any_sign=True)
            i = i if scaled is None else scaled
        conv = new.nodes[i]
        if conv.kind not in (Conv, ConvTranspose) or n.shape != conv.shape or not _is_per_channel(conv, factor.shape):
            continue
        x, w, b = conv.inputs
        weights = None if w is None else new.nodes[w].value
        bias = None if b is None else new.nodes[b].value
        if weights is None or (b is not None and bias is None):
            continue
        flat = factor.reshape(-1)
        if n.kind is Mul:
            found = None if conv.kind is ConvTranspose else _scaled_weights(weights, bias, flat, any_sign)
        else:
            found = _shifted_weights(conv, weights, bias, flat)
        if found is None:
            continue
        made = [
            None if a is None else new.append(Node(a.shape, a.dtype, value=np.asarray(a, order="C"))).id for a in found
        ]
        assert conv.resolved is not None
        shapes = (*conv.resolved.shapes[:2], None if found[1] is None else found[1].shape)
        return new.append(replace(conv, inputs=(x, *made), resolved=replace(conv.resolved, shapes=shapes))).id
    return None


def _scaled_weights(w: Array, b: Array | None, scale: Array, any_sign: bool) -> tuple[Array, Array | None] | None:
    """Weights and bias times a scale per channel, where that computes what the graph does but for one rounding.

    Products are normal, or zero since a factor is: no weight loses digits to underflow, and what terms lose is within
    the bound of a sum. Sums overflow only where the graph's do: a scale of at most 1 makes every term smaller, and one
    that is greater needs weights so small that no x overflows. And a scale is positive, unless the sign of a zero is
    hidden: the graph has (+0) * (-1) where the new weights have 0 * w + 0 * (-w).
    """
    wide = scale.reshape(-1, *(1,) * (w.ndim - 1))
    with np.errstate(all="ignore"):
        weights, bias = w * wide, None if b is None else b * scale
        sizes = abs(weights).astype(np.float64).sum(axis=tuple(range(1, w.ndim)))
        great = np.zeros(scale.shape) if bias is None else abs(bias)
    info = np.finfo(w.dtype)
    for y, a, factor in ((weights, w, wide), (bias, b, scale)):
        if y is not None and a is not None:
            normal = np.isfinite(y) & (abs(y) >= info.smallest_normal)
            if not (normal | ((y == 0) & ((a == 0) | (factor == 0)) & np.isfinite(a) & np.isfinite(factor))).all():
                return None
    calm = (abs(scale) <= 1) | ((sizes <= 0.5) & (great <= info.max / 2))
    return (weights, bias) if calm.all() and (any_sign or (scale > 0).all()) else None


def _shifted_weights(conv: Node, w: Array, b: Array | None, shift: Array) -> tuple[Array, Array] | None:
    """A shift as the bias, or as part of it: it is added to a finished sum like the bias, which must not overflow."""
    if b is None:
        return (w, shift) if _is_bias(conv, shift) else None
    with np.errstate(all="ignore"):
        bias = b + shift
    return (w, bias) if np.isfinite(bias).all() else None


def _is_per_channel(conv: Node, shape: Shape) -> bool:
    """Whether an array of this shape has one cell for each channel of a convolution's result."""
    assert conv.resolved is not None
    d = conv.resolved.d or 0
    channels = conv.shape[-d - 1]
    return shape in ((channels, *(1,) * d), (1, channels, *(1,) * d))


def _is_bias(n: Node, value: Array | None) -> bool:
    """Whether adding something (a constant has a value) to sums of products is having it for their bias.

    It is not for -0 and sums of no terms: these are +0, and so is (+0) + (-0), but a bias of -0 alone is -0.
    """
    if value is not None and not (np.signbit(value) & (value == 0)).any():
        return True
    assert n.resolved is not None
    x, y = n.resolved.shapes[:2]
    assert x is not None and y is not None
    if isinstance(n.op, MatMul):
        return n.op.sizes(x, y)[2] > 0
    assert isinstance(n.op, Conv)
    # Transposed windows do not tell which of them are empty, as every second one often is.
    return x[0] > 0 and n.kind is Conv and n.op.window.empty_cell(x[1:]) is None


# ---- steps


@dataclass(slots=True)
class Step:
    """One task: the nodes it reads, one per argument (None: absent), and the node it writes, its last argument."""

    task: _native.Task
    reads: list[int | None]
    writes: int
    node: int
    flops: float = 0
    in_place: tuple[int, ...] = ()
    """Arguments whose memory the result may take."""
    covers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Steps:
    """The steps of a program, and the values that are the same memory as another (reshapes)."""

    graph: Graph
    steps: list[Step]
    alias: dict[int, int]

    def root(self, at: int) -> int:
        """The node whose memory this one shares."""
        while at in self.alias:
            at = self.alias[at]
        return at


def kernel_of(n: Node) -> _native.Task:
    """The compiled form of a node."""
    assert n.resolved is not None and n.kind is not None
    resolved = n.resolved
    with error_context(n.kind.name, resolved.d):
        kernel = None
        if (resolved.d or 0) <= KERNEL_RANK:
            kernel = resolved.op.kernels(n.dtype, prod(resolved.batch), resolved.shapes).forward
        if not isinstance(kernel, _native.Task):
            raise ShapeError(
                "G2",
                f"a kernel for {n.kind.name}",
                f"d={resolved.d}, shapes {resolved.shapes}",
                f"Compiled programs have at most {KERNEL_RANK} spatial axes; g.eval computes any.",
            )
        if issubclass(n.kind, MaxPool):
            kernel = kernel.taking([0, 1, -1], 2)
    return kernel


def make_steps(graph: Graph, fuse: bool = True) -> Steps:
    """Nodes as tasks; reshapes as nothing; what can be fused, fused."""
    needed = _needed(graph)
    uses, readers = _uses(graph, needed), _readers(graph, needed)
    plan = Steps(graph, [], {})
    done: set[int] = set()
    later: dict[int, Step] = {}  # a fused step runs in the place of its last node, when all it reads is there
    for at, n in enumerate(list(graph.nodes)):
        if at in later:
            plan.steps.append(later[at])
        if n.kind is None or at in done or at not in needed:
            continue
        if n.kind is Reshape:
            assert n.inputs[0] is not None
            plan.alias[at] = n.inputs[0]
            continue
        if 0 in n.shape:
            continue
        step = _fused(graph, uses, readers, at, done) if fuse else None
        if step is None:
            step = Step(kernel_of(n), reads(n), at, at, flops_of(n), _in_place(n), covers=[at])
        if step.writes == at:
            plan.steps.append(step)
        else:
            later[step.writes] = step
    return plan


def _in_place(n: Node) -> tuple[int, ...]:
    assert n.kind is not None and n.resolved is not None
    if issubclass(n.kind, Unary | Prefer):
        return tuple(range(len(n.inputs)))
    if issubclass(n.kind, Binary | Gate):
        return tuple(p for p, s in enumerate(n.resolved.shapes) if s == n.shape)
    return ()


def _fused(graph: Graph, uses: Sequence[int], readers: Sequence[Sequence[int]], at: int, done: set[int]) -> Step | None:
    """A convolution or a matrix product with what follows it: + bias, + residual, relu."""
    n = graph.nodes[at]
    if n.kind is Mul:
        return _scaled(graph, uses, readers, at, done)
    if n.kind not in (Conv, ConvTranspose, MatMul) or n.resolved is None:
        return None
    last, bias, add, relu, covers = at, None, None, False, [at]
    is_conv = n.kind is not MatMul
    if is_conv:
        bias = n.inputs[2]
    while not relu and uses[last] == 1:
        k = readers[last][0]
        if k in done:
            break
        m = graph.nodes[k]
        if m.kind is Relu:
            relu = True
        elif m.kind is Add and m.shape == n.shape:
            other = m.inputs[1] if m.inputs[0] == last else m.inputs[0]
            if other is None or other == last:
                break
            shape = graph.nodes[other].shape
            per_channel = _is_per_channel(n, shape) if is_conv else shape == n.shape[-1:]
            fresh = bias is None and add is None and shape != n.shape
            if per_channel and fresh and _is_bias(n, graph.nodes[other].value):
                bias = other
            elif is_conv and shape == n.shape and add is None and other not in covers:
                add = other
            else:
                break
        else:
            break
        last = k
        covers.append(k)
    if last == at and not is_conv:
        return None
    done.update(covers)
    if is_conv:
        return _conv_step(graph, n, at, last, bias, add, relu, covers)
    assert isinstance(n.op, MatMul)
    x, y = n.resolved.shapes
    assert x is not None and y is not None
    m_, n_, k_, _ = n.op.sizes(x, y)
    task = _native.matmul(n.dtype.char, prod(x[:-2]), m_, n_, k_, n.op.turn_x, n.op.turn_y, relu)
    return Step(task, [n.inputs[0], n.inputs[1], bias], last, at, flops_of(n), covers=covers)


def _scaled(
    graph: Graph, uses: Sequence[int], readers: Sequence[Sequence[int]], at: int, done: set[int]
) -> Step | None:
    """One pass for x * scale + shift, both per channel, and relu."""
    n = graph.nodes[at]
    if uses[at] != 1 or n.inputs[0] is None or n.inputs[1] is None:
        return None
    k = readers[at][0]
    shift = graph.nodes[k]
    if shift.kind is not Add or shift.shape != n.shape or k in done:
        return None
    x, scale = sorted((n.inputs[0], n.inputs[1]), key=lambda i: prod(graph.nodes[i].shape), reverse=True)
    offset = shift.inputs[1] if shift.inputs[0] == at else shift.inputs[0]
    if offset is None or offset == at or graph.nodes[x].shape != n.shape:
        return None
    per_channel = graph.nodes[scale].shape
    if len(per_channel) < 1 or len(n.shape) < len(per_channel) or graph.nodes[offset].shape != per_channel:
        return None
    channels, inner = per_channel[0], n.shape[len(n.shape) - len(per_channel) + 1 :]
    if per_channel[1:] != (1,) * len(inner) or n.shape[len(n.shape) - len(per_channel)] != channels:
        return None
    last, relu, covers = k, False, [at, k]
    if uses[k] == 1 and graph.nodes[readers[k][0]].kind is Relu and readers[k][0] not in done:
        last, relu = readers[k][0], True
        covers.append(last)
    done.update(covers)
    outer = prod(n.shape[: len(n.shape) - len(per_channel)])
    task = _native.scale_shift(n.dtype.char, outer, channels, prod(inner), relu)
    return Step(task, [x, scale, offset], last, at, 2 * flops_of(n), (0,), covers=covers)


def _readers(graph: Graph, needed: set[int]) -> list[list[int]]:
    """For every node, the nodes that read it."""
    readers: list[list[int]] = [[] for _ in graph.nodes]
    for k in sorted(needed):
        for i in reads(graph.nodes[k]):
            if i is not None:
                readers[i].append(k)
    return readers


def _conv_step(
    graph: Graph, n: Node, at: int, last: int, bias: int | None, add: int | None, relu: bool, covers: list[int]
) -> Step:
    assert n.resolved is not None and isinstance(n.op, Conv)
    convolution = n.op.native(n.dtype, prod(n.resolved.batch), n.resolved.shapes)
    if convolution is None or (n.resolved.d or 0) > KERNEL_RANK:
        return Step(kernel_of(n), list(n.inputs), at, at)
    transposed = isinstance(n.op, ConvTranspose)
    maker: Callable[..., _native.Task] = _native.conv_input_grad if transposed else _native.conv
    task = maker(*convolution, relu)
    w = n.inputs[1]
    assert w is not None
    weights = graph.nodes[w].value
    packed = None
    if weights is not None:
        make_pack: Any = _native.conv_pack
        pack = make_pack(*convolution, transposed)
        if pack.count(1):
            array: Array = np.empty(pack.count(1), n.dtype)
            pack(weights, array)
            packed = graph.append(Node(array.shape, array.dtype, value=array)).id
    return Step(task, [n.inputs[0], w, bias, add, packed], last, at, flops_of(n), covers=covers)


def flops_of(n: Node) -> float:
    """Multiplications and additions of a node, roughly: what a user compares with the machine's peak."""
    assert n.kind is not None and n.resolved is not None
    base: Op = n.op.op if isinstance(n.op, Vjp) else n.op
    cells = float(prod(n.shape))
    if isinstance(base, Conv):
        w = n.resolved.shapes[1]
        y = n.resolved.shapes[-1] if isinstance(n.op, Vjp) else n.resolved.out[len(n.resolved.batch) :]
        across = n.resolved.shapes[0] if isinstance(base, ConvTranspose) else y  # each cell meets every kernel cell
        assert w is not None and y is not None and across is not None
        if isinstance(n.op, Vjp) and n.op.wrt == 2:
            return float(prod(n.resolved.batch) * prod(y))
        return 2.0 * prod(n.resolved.batch) * prod(across) * prod(w[1:])
    if isinstance(base, MatMul):
        x, y = n.resolved.shapes
        assert x is not None and y is not None
        return 2.0 * cells * base.sizes(x, y)[2]
    return cells


# ---- memory


@dataclass(frozen=True, slots=True)
class Memory:
    """Where every array lies: slots (argument or -1 for the arena, offset), and the size of the arena."""

    slots: list[tuple[int, int]]
    slot_of: dict[int, int]
    arena: int
    largest_live: int
    """The least that any placement would need: the most bytes alive at one time."""


def place(plan: Steps, arguments: dict[int, int]) -> Memory:
    """Offsets in the arena by greatest size first, each as low as what lives at the same time lets it.

    `arguments` tells which nodes lie in arguments of the call: inputs, constants and outputs.
    """
    graph = plan.graph
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    shares: dict[int, int] = {}  # a result in the place of an operand that dies
    for t, step in enumerate(plan.steps):
        for r in step.reads:
            if r is not None:
                dies[plan.root(r)] = t
        born.setdefault(plan.root(step.writes), t)
        dies[plan.root(step.writes)] = max(t, dies.get(plan.root(step.writes), t))

    def owner(at: int) -> int:
        return shares.get(at, at)

    for t, step in enumerate(plan.steps):
        out = plan.root(step.writes)
        if out in arguments or born[out] != t:
            continue
        for p in step.in_place:
            r = step.reads[p]
            source = None if r is None else plan.root(r)
            if source is None or source in arguments or source not in born or dies[source] != t:
                continue
            if (
                bytes_of(graph.nodes[source]) == bytes_of(graph.nodes[out])
                and sum(q is not None and owner(plan.root(q)) == owner(source) for q in step.reads) == 1
            ):
                shares[out] = owner(source)
                break
    spans: dict[int, tuple[int, int]] = {}
    for at, t in born.items():
        if at not in arguments:
            first, last = spans.get(owner(at), (t, dies[at]))
            spans[owner(at)] = min(first, t), max(last, dies[at])
    sizes = {at: up(bytes_of(graph.nodes[at])) for at in spans}
    offsets: dict[int, int] = {}
    placed = np.empty((4, len(spans)), np.int64)  # first and last step, offset and end of those that have a place
    order = sorted(spans, key=lambda k: (-sizes[k], spans[k][0]))
    for count, at in enumerate(order):
        first, last = spans[at]
        firsts, lasts, lows, highs = placed[:, :count]
        beside = (firsts <= last) & (lasts >= first)
        offset = 0
        for lo, hi in sorted(zip(lows[beside].tolist(), highs[beside].tolist(), strict=True)):
            if offset + sizes[at] <= lo:
                break
            offset = max(offset, hi)
        offsets[at] = offset
        placed[:, count] = first, last, offset, offset + sizes[at]
    live = [0] * (len(plan.steps) + 1)
    for at, (first, last) in spans.items():
        live[first] += sizes[at]
        live[last + 1] -= sizes[at]
    most = now = 0
    for change in live:
        now += change
        most = max(most, now)
    slots: list[tuple[int, int]] = []
    slot_of: dict[int, int] = {}
    for step in plan.steps:
        for r in (*step.reads, step.writes):
            if r is None or plan.root(r) in slot_of:
                continue
            root = plan.root(r)
            slot_of[root] = len(slots)
            slots.append((arguments[root], 0) if root in arguments else (-1, offsets.get(owner(root), 0)))
    arena = max((offsets[k] + sizes[k] for k in offsets), default=0)
    return Memory(slots, slot_of, arena, most)


def up(size: int) -> int:
    """Rounded up to whole cache lines."""
    return -(-size // ALIGN) * ALIGN


def bytes_of(n: Node) -> int:
    """The size of a node's array."""
    shape: Shape = n.shape
    return prod(shape) * n.dtype.itemsize
