"""Convolution.

    y[c,o] = b[c] + sum of x[j,i] * w[c,j,k]   over the channels j of the group of c and the taps (k,i) of o

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| C1   | w has an out-channel axis and a channel axis in front of its d kernel axes      |
| C2   | groups is an integer >= 1 that divides both channel counts                      |
| C3   | w's channel axis has in-channels / groups entries (conv_transpose: w has one row per in-channel) |
| C4   | b has one entry per out-channel                                                 |

The kernel is not flipped (this is cross-correlation). Padding is absent: it contributes nothing, whatever the weight.
No channel or no tap at all leaves the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, ShapeError
from lunette.number import Array, Number, cells_in, total, zero_of
from lunette.op import ABSENT, Arithmetic, Arrays, Case, Kernels, Shapes, apply, case, request, resolve, spelled
from lunette.ops import chance
from lunette.ops.broadcast import broadcast_to
from lunette.ops.glue import shape_of
from lunette.ops.layout import reshape
from lunette.ops.windowed import Windowed
from lunette.value import value
from lunette.window import Ints, Padding, Shape, Window, integer

Tap = tuple[int, int]
UNFUSED = [0, 1, 2, -1, -1, -1, -1, 3]  # no scale and shift, nothing added, no packed weights


@value
class Conv(Windowed):
    """Convolution as a value: x (in-channels, *space), w (out-channels, in-channels/groups, *kernel), b or None."""

    window: Window
    groups: int = 1

    name: ClassVar[str] = "conv"
    arrays: ClassVar[tuple[str, ...]] = ("x", "w", "b")
    linear_in: ClassVar[tuple[int, ...]] = (0, 1)
    affine_in: ClassVar[tuple[int, ...]] = (2,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0, 2)
    derivative_kernels: ClassVar[bool] = True
    rows_are_inputs: ClassVar[bool] = False
    """The first axis of w counts the channels of x, and the second those of the result in a group; else reversed."""
    weighted: ClassVar[bool] = True
    overflows: ClassVar[bool] = True
    counting: ClassVar[Mapping[str, Any] | None] = {}

    # ---- shape

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int:
        w = shapes[1]
        if w is None or len(w) < 2:
            raise ShapeError(
                "C1",
                "w with two channel axes in front of its kernel axes",
                "no w" if w is None else f"w.shape={w}",
                "w.ndim is d + 2.",
            )
        return len(w) - 2

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        stride, padding, dilation, groups = options
        x, w, b = shapes
        assert x is not None and w is not None
        window = Window.sliding(x[1:], w[2:], stride, padding, dilation)
        window.out(x[1:])
        q = check_groups(groups, x[0], w[0])
        if w[1] * q != x[0]:
            hint = f"With this x, w.shape[1] is {x[0] // q}."
            if len(w) == 2:  # a picture and a kernel as on paper, more often than a convolution without space
                hint += " A kernel alone is w[None, None], an image alone x[None]: both have channels."
            need = f"w.shape[1] * groups == in-channels {x[0]}"
            raise ShapeError("C3", need, f"w.shape={w}, groups={q}", hint)
        check_bias(b, w[0])
        return cls(window, q)

    def shape(self, *shapes: Shape | None) -> Shape:
        x, w, *_ = shapes
        assert x is not None and w is not None
        return (self.out_channels(w), *self.window.out(x[1:]))

    def out_channels(self, w: Shape) -> int:
        """How many channels the result has."""
        return w[0]

    # ---- meaning

    def rows(self, x: Shape, w: Shape) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """(out-channel c, in-channel j, the row of w that joins them) for every pair inside a group."""
        ins, outs = x[0] // self.groups, self.out_channels(w) // self.groups
        for c in range(self.out_channels(w)):
            for j in range(ins):
                yield c, c // outs * ins + j, (c, j)

    def taps(self, space: Shape) -> Iterator[Sequence[Tap]]:
        """For every output cell in row-major order, its (flat kernel cell, flat input cell) pairs."""
        for o in cells_in(self.window.out(space)):
            pairs = [(0, 0)]
            for a, p, n in zip(self.window.axes, o, space, strict=True):
                r = a.reach(p, n)
                steps = [(r.k + s * r.k_step, r.i + s * r.i_step) for s in range(r.count)]
                pairs = [(k * a.kernel + dk, i * n + di) for k, i in pairs for dk, di in steps]  # type: ignore[attr-defined]
            yield pairs

    def spec(self, *arrays: Array | None) -> Array:
        x, w, b = _flat(arrays)
        assert arrays[0] is not None and arrays[1] is not None
        shapes = (arrays[0].shape, arrays[1].shape)
        out = self.shape(*shapes)
        joined: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in range(out[0])]
        for c, j, row in self.rows(*shapes):
            joined[c].append((j, row))
        zero = zero_of(x, w)
        y: Array = np.empty((out[0], prod(out[1:])), object)
        for o, pairs in enumerate(self.taps(shapes[0][1:]) if out[0] else ()):
            for c in range(out[0]):
                terms = [x[j, i] * w[(*row, k)] for j, row in joined[c] for k, i in pairs]
                y[c, o] = total(terms if b is None else [*terms, b[c]], zero)
        return y.reshape(out)

    # ---- derivatives   (jvp: the operator itself, it is linear in x, in w and in b)

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        (x, w, _), (tx, tw, tb) = _three(primals), _three(tangents)
        assert x is not None and w is not None
        parts = [self.spec(tx, w, None)] if tx is not None else []
        parts += [self.spec(x, tw, None)] if tw is not None else []
        y = sum(parts[1:], parts[0]) if parts else np.full(self.shape(x.shape, w.shape), zero_of(x, w), object)
        return y if tb is None else y + tb.reshape(-1, *(1,) * self.window.d)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        # y is a sum of products x * w, so each product sends g times one factor to the other one.
        x, w, _ = _flat(primals)
        assert primals[0] is not None and primals[1] is not None
        shapes = (primals[0].shape, primals[1].shape)
        rows = list(self.rows(*shapes))
        to_x: dict[tuple[int, ...], list[Number]] = {}
        to_w: dict[tuple[int, ...], list[Number]] = {}
        flat_g = g.reshape(g.shape[0], prod(g.shape[1:]))
        for o, pairs in enumerate(self.taps(shapes[0][1:]) if rows else ()):
            for c, j, row in rows:
                for k, i in pairs:
                    to_x.setdefault((j, i), []).append(flat_g[c, o] * w[(*row, k)])
                    to_w.setdefault((*row, k), []).append(x[j, i] * flat_g[c, o])
        zero = zero_of(g, x, w)
        gx, gw = _gather(x.shape, to_x, zero).reshape(shapes[0]), _gather(w.shape, to_w, zero).reshape(shapes[1])
        if len(primals) == 2 or primals[2] is None:
            return gx, gw
        gb: Array = np.empty(g.shape[0], object)
        gb[:] = [total(row.tolist(), zero) for row in flat_g]
        return gx, gw, gb

    @classmethod
    def spread(cls, options: Sequence[Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        out = resolve(cls, [None if p is None else shape_of(p) for p in primals], 2, options).out
        d = len(shape_of(primals[1])) - 2
        return broadcast_to(reshape(tangents[2], (out[-d - 1], *(1,) * d)), out)

    # ---- bounds   (derived: a sum of products)

    def terms(self, shapes: Shapes) -> int:
        x, w, b = shapes
        assert x is not None and w is not None
        return x[0] // self.groups * self.taps_of_an_output(x) + (b is not None)

    def without_gaps(self, shapes: Shapes) -> tuple[tuple[slice, ...], Self] | None:
        axes: Any = self.window.axes
        strides = [a.stride if a.kernel == 1 and a.lo == a.hi == 0 else 1 for a in axes]
        if self.windows != "sliding" or all(s == 1 for s in strides):
            return None
        read = tuple(
            slice(None) if s == 1 else slice(0, m * s, s) for s, m in zip(strides, self.shape(*shapes)[1:], strict=True)
        )
        closer = [a if s == 1 else replace(a, stride=1) for a, s in zip(axes, strides, strict=True)]
        return read, replace(self, window=Window(tuple(closer)))

    def terms_back(self, shapes: Shapes, wrt: int) -> int:
        """The same for the VJP in array number `wrt`, of one sample."""
        x, w, _ = shapes
        assert x is not None and w is not None
        out = self.shape(x, w)
        if wrt == 0:
            return out[0] // self.groups * self.taps_of_an_input(x)
        # A kernel cell joins an input cell with one output cell at most, and the other way round.
        return prod(out[1:]) if wrt == 2 else min(prod(x[1:]), prod(out[1:]))

    def taps_of_an_output(self, x: Shape) -> int:
        """The most input cells of a channel that an output cell reads."""
        return prod(map(min, self._kernel(), x[1:]))

    def taps_of_an_input(self, x: Shape) -> int:
        """The most output cells of a channel that read an input cell: i = o*stride - lo + k*dilation for few k."""
        return prod(map(min, self._kernel(every_stride=True), self.window.out(x[1:])))

    def _kernel(self, every_stride: bool = False) -> list[int]:
        """The size of the kernel on each axis, or how many of its cells are whole strides apart."""
        axes: Any = self.window.axes
        return [-(-a.kernel // (a.stride // gcd(a.stride, a.dilation) if every_stride else 1)) for a in axes]

    # ---- kernels

    def ends(self, before: int, behind: int) -> tuple[int, int]:
        """The two sides (sizes, channels) of the convolution that the kernels see."""
        return before, behind

    def native(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> tuple[Any, ...] | None:
        """What every kernel is made for; None for numbers that the kernels do not count with.

        Axes are (n, m, kernel, stride, dilation, lo).
        """
        x = shapes[0]
        assert x is not None
        out = self.shape(*shapes)
        sizes = zip(self.window.axes, x[1:], out[1:], strict=True)
        axes = [(*self.ends(n, m), a.kernel, a.stride, a.dilation, a.lo) for a, n, m in sizes]  # type: ignore[attr-defined]
        if any(v >= 2**31 for axis in axes for v in axis):
            return None
        return dtype.char, axes, self.groups, batch, *self.ends(x[0], out[0])

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        convolution, out = self.native(dtype, batch, shapes), self.shape(*shapes)
        if convolution is None:
            return Kernels()
        there, back = self.both_ways(convolution)
        to_w = core.conv_weight_grad(*convolution).taking([*self.ends(0, 3), 4], 5)
        to_b = core.conv_bias_grad(dtype.char, batch, out[0], prod(out[1:])).taking([3, 4], 5)
        return Kernels(there, jvp_by_linearity(there), (back.taking([3, 1, -1, 4], 5), to_w, to_b))

    def flops(self, shapes: Shapes, batch: int) -> float:
        return self._products(shapes, batch)

    def flops_back(self, shapes: Shapes, batch: int, wrt: int) -> float:
        return float(batch * prod(self.shape(*shapes))) if wrt == 2 else self._products(shapes, batch)

    def _products(self, shapes: Shapes, batch: int) -> float:
        """A multiplication and an addition for each kernel cell that each cell of one side meets."""
        x, w, *_ = shapes
        assert x is not None and w is not None
        _, met = self.ends(prod(x), prod(self.shape(*shapes)))
        return 2.0 * batch * met * prod(w[1:])

    def both_ways(self, convolution: tuple[Any, ...]) -> tuple[core.Task, core.Task]:
        """The operator (x, w, b, y), and the gradient in x (g, w, b, dx)."""
        return (
            core.conv(*convolution).taking(UNFUSED, 4),
            core.conv_input_grad(*convolution).taking(UNFUSED, 4),
        )

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "plain_1d": case((2, 6), (3, 2, 3), (3,)),
        "no_bias": case((2, 6), (3, 2, 3)),
        "stride_skips_cells": case((2, 8), (1, 2, 2), (1,), stride=3),
        "dilated_with_pad": case((2, 7), (3, 2, 3), (3,), dilation=2, padding=2),
        "lopsided_pad": case((2, 6), (3, 2, 3), (3,), stride=2, padding=((1, 0),)),
        "non_square_2d": case((2, 4, 3), (3, 2, 2, 3), (3,), padding=1),
        "same_strided": case((1, 5, 4), (2, 1, 3, 2), (2,), stride=(2, 3), padding="same"),
        "groups": case((4, 5), (6, 2, 3), (6,), groups=2),
        "depthwise": case((3, 4, 4), (6, 1, 2, 2), (6,), groups=3),
        "window_of_padding": case((1, 2), (1, 1, 1), (1,), padding=2),
        "no_cells": case((1, 0), (2, 1, 2), (2,), padding=1),
        "no_input_channels": case((0, 4), (2, 0, 2), (2,)),
        "no_output_channels": case((2, 4), (0, 2, 2), (0,)),
        "rank_0": case((3,), (2, 3), (2,)),
        "rank_3": case((1, 3, 2, 3), (2, 1, 2, 2, 2), (2,)),
        "rank_4": case((1, 2, 3, 2, 3), (1, 1, 2, 2, 1, 2), (1,), stride=(1, 2, 1, 1)),
    }

    @classmethod
    def draw(cls, rng: chance.Rng, d: int, limits: chance.Limits) -> Case:
        kernel = chance.ints(rng, d, 1, 4 if d < 3 else 2)
        groups = int(rng.choice([1, 1, 1, 2, 3]))
        batch, each = chance.lead(rng)
        ins, outs = each * groups, int(rng.integers(1, 4)) * groups
        options: dict[str, Any] = {"groups": groups} if groups > 1 else {}
        options["stride"] = chance.ints(rng, d, 1, 3)
        options["padding"] = chance.padding(rng, limits, kernel, pool=False)
        if rng.random() < 0.35:
            options["dilation"] = chance.ints(rng, d, 1, 3)
        options |= cls.draw_more(rng, options)
        shapes: tuple[Shape, ...] = ((batch, ins, *chance.sizes(rng, d)), (*cls.joining(ins, outs, groups), *kernel))
        return Case((*shapes, (outs,)) if rng.random() < 0.6 else shapes, options)

    @classmethod
    def draw_more(cls, rng: chance.Rng, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options that depend on others."""
        return {}

    @classmethod
    def joining(cls, ins: int, outs: int, groups: int) -> tuple[int, int]:
        """The channel axes of weights that join so many channels."""
        return outs, ins // groups

    @classmethod
    def one_window(cls, x: Shape) -> Case:
        return Case((x, (1, x[1], *x[2:])))


def jvp_by_linearity(forward: Callable[..., None]) -> Callable[..., None]:
    """Y = forward(tx, w, tb) + forward(x, tw), leaving out what is zero."""

    def jvp(x: Any, w: Any, b: Any, tx: Any, tw: Any, tb: Any, y: Array) -> None:
        forward(x if tx is None else tx, tw if tx is None and tw is not None else w, tb, y)
        if tx is None and tw is None:
            y[...] = 0 if tb is None else tb.reshape(-1, *(1,) * (w.ndim - 2))
        elif tx is not None and tw is not None:
            more = np.empty_like(y)
            forward(x, tw, None, more)
            y += more

    return jvp


def _three(arrays: Arrays) -> Sequence[Array | None]:
    return (*arrays, None) if len(arrays) == 2 else arrays


def _flat(arrays: Arrays) -> tuple[Array, Array, Array | None]:
    """X as (channel, cell), w as (first, second channel axis, kernel cell)."""
    x, w, b = _three(arrays)
    assert x is not None and w is not None
    return x.reshape(x.shape[0], prod(x.shape[1:])), w.reshape(*w.shape[:2], prod(w.shape[2:])), b


def _gather(shape: Shape, terms: Mapping[tuple[int, ...], list[Number]], zero: Number) -> Array:
    out: Array = np.full(shape, zero, object)
    for cell, parts in terms.items():
        out[cell] = total(parts)
    return out


def check_groups(groups: Any, *channels: int) -> int:
    """Rule C2."""
    q = integer("groups", groups)
    if q < 1 or any(c % q for c in channels):
        counts = " and ".join(map(str, channels))
        raise ArgumentError(
            "C2",
            "groups >= 1 that divides the channel counts",
            f"groups={q} with {counts} channels",
            "groups=1 joins every channel with every other.",
        )
    return q


def check_bias(b: Shape | None, channels: int) -> None:
    """Rule C4."""
    if b is not None and b != (channels,):
        as_a_row = f"Pass b.reshape({channels})." if prod(b) == channels else "Leave b out for a bias of zero."
        need = f"b.shape == ({channels},), one entry per out-channel"
        raise ShapeError("C4", need, f"b.shape={b}", as_a_row)


@spelled
def conv(
    x: Any,
    w: Any = ABSENT,
    b: Any = None,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The convolution of `x` `(*batch, in, *space)` with `w` `(out, in/groups, *kernel)`, not flipped, plus `b`.

    >>> import lunette as ln
    >>> ln.conv([[1, 2, 3, 4, 5]], [[[1, 0, -1]]], stride=2, padding=1).tolist()
    [[-2, -2, 4]]
    """
    if misspelt or w is ABSENT:
        request(conv, (x, w, b), misspelt)  # which refuses it
    return apply(Conv, (x, w, b), arithmetic, stride, padding, dilation, groups)
