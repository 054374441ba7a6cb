"""Smooth max pooling: the log-sum-exp of every window.

    y[c,o] = (1/beta) * log(sum of exp(beta * x[c,i]) over the taps (k,i) of o)

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| S1   | beta is one finite number other than zero                                       |
| S2   | with count_include_pad=False every window holds at least one cell of the input  |

Padding inside the padded input counts as zeros (count_include_pad=True) or not at all (False). Negative beta is the
smooth minimum. Written for beta > 0, mirrored for beta < 0: the sum is shifted by the greatest cell, so nothing
overflows; NaN gives NaN, a +inf cell gives +inf, -inf cells add nothing, all -inf gives -inf.

    weight[i] = exp(beta*x[i]) / sum,   dy/dx[i] = weight[i],   dy/dbeta = (sum weight[i]*x[i] - y) / beta

Winning infinities share the weight equally; a NaN in the window makes every weight NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Self

import numpy as np

from lunette import core, outward, relaxing
from lunette.errors import ArgumentError, ShapeError, shown
from lunette.number import (
    Array,
    Interval,
    Number,
    anchor,
    divide,
    exp,
    is_decided,
    is_enclosure,
    is_infinite,
    is_nan,
    less,
    like,
    log,
    primal,
    total,
    zero_of,
)
from lunette.op import ABSENT, Arithmetic, Arrays, Case, Kernels, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.avg_pool import check_counted
from lunette.ops.binary import div, mul, sub
from lunette.ops.broadcast import sum_to
from lunette.ops.derivative import plus
from lunette.ops.enclose import enclosed
from lunette.ops.glue import shape_of
from lunette.ops.pool import Pool, View
from lunette.ops.unary import Exp, Log
from lunette.value import value
from lunette.window import Ints, Padding, Shape, Window, flag


@dataclass(frozen=True, slots=True)
class Softmax:
    """The value of one window and the weights of its cells."""

    y: Number
    weights: Sequence[Number]


@value
class SmoothMaxPool(Pool):
    """Smooth max pooling as a value; beta is an array argument, since it has a derivative."""

    count_include_pad: bool = True

    name: ClassVar[str] = "smooth_max_pool"
    arrays: ClassVar[tuple[str, ...]] = ("x", "beta")
    scalars: ClassVar[tuple[str, ...]] = ("beta",)
    needs: ClassVar[str] = "exp"
    monotone: ClassVar[bool] = True
    derivative_kernels: ClassVar[bool] = True
    refuses_empty: ClassVar[str] = "S2"
    refused_with: ClassVar[Mapping[str, Any]] = {"count_include_pad": False}
    needed: ClassVar[Mapping[str, Any]] = {"beta": 1.0}
    draws: ClassVar[Mapping[str, chance.Draw]] = {
        "beta": chance.one_of(-1.5, 0.5, 1.0, 4.0),
        "count_include_pad": chance.often,
    }

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        kernel, stride, padding, dilation, ceil_mode, count_include_pad, _ = options
        x, beta = shapes
        assert x is not None
        window = Window.sliding(x[1:], kernel, stride, padding, dilation, ceil_mode)
        window.out(x[1:])
        if beta != ():
            got = "no beta" if beta is None else f"beta.shape={beta}"
            raise ShapeError("S1", "beta as one number or an array without axes", got, "One beta serves all windows.")
        counted = flag("count_include_pad", count_include_pad)
        if not counted:
            check_counted("S2", window, x[1:])
        return cls(window, counted)

    def check(self, *arrays: Array | None) -> None:
        given = arrays[1]
        if given is not None and given.dtype in (np.float32, np.float64) and 0 < abs(float(given)) < inf:
            return  # the usual case, cheaply
        value = primal(self._with_beta(arrays)[1])
        finite = is_decided(value) if is_enclosure(value) else not (value == 0 or is_nan(value) or is_infinite(value))
        if not finite:
            raise ArgumentError(
                "S1", "a finite beta other than zero", f"beta={shown(value)}", "For the plain maximum use max_pool."
            )
        less(0, value)

    # ---- meaning

    @property
    def counted(self) -> bool:
        return self.count_include_pad

    def soften(self, view: View, cells: Sequence[Number], beta: Number) -> Softmax:
        """One window, shifted by its winner. The absent cells that count are zeros."""
        nan = next((c for c in cells if is_nan(c)), None)
        if nan is not None:
            return Softmax(nan * total(cells), [primal(nan)] * len(cells))
        up = primal(beta) > 0
        absent = view.absent if self.count_include_pad else 0
        winning = [c for c in cells if is_infinite(c) and (primal(c) > 0) == up]
        losing = [c for c in cells if is_infinite(c) and (primal(c) > 0) != up]
        share = winning or (losing if len(losing) == len(cells) and not absent else [])
        if share:
            even = divide(like(1, share[0]), len(share))
            return Softmax(share[0], [even if any(c is s for s in share) else 0 * even for c in cells])
        finite = [c for c in cells if not is_infinite(c)]
        pivot = anchor([*finite, *([0] if absent else [])], greatest=up)
        unit = like(1, finite[0] if finite else beta)
        terms = [exp(beta * (c - pivot)) for c in finite]
        padding = [absent * exp(beta * (0 * unit - pivot))] if absent else []
        whole = total(terms + padding)
        y = pivot + divide(log(whole), beta)
        weights = iter([divide(t, whole) for t in terms])
        return Softmax(y, [0 * unit if is_infinite(c) else next(weights) for c in cells])

    def spec(self, *arrays: Array | None) -> Array:
        x, beta = self._with_beta(arrays)
        return self.fold(lambda view, cells: self.soften(view, cells, beta).y, x)

    @staticmethod
    def _with_beta(arrays: Arrays) -> tuple[Array, Number]:
        x, beta = arrays
        assert x is not None and beta is not None
        return x, like(beta[()], x[(0,) * x.ndim] if x.size else beta[()])

    # ---- derivatives

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        x, beta = self._with_beta(primals)
        t, t_beta = tangents
        slope = None if t_beta is None else like(t_beta[()], x[(0,) * x.ndim] if x.size else beta)

        def derivative(view: View, cells: list[Number], *slopes: list[Number]) -> Number:
            soft = self.soften(view, cells, beta)
            terms = [w * s for w, s in zip(soft.weights, *slopes, strict=True)] if slopes else []
            if slope is not None:
                terms.append(self._slope_in_beta(soft, cells, beta) * slope)
            return total(terms, zero_of(x))

        return self.fold(derivative, x, *([] if t is None else [t]))

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        x, beta = self._with_beta(primals)
        in_beta: list[Number] = []

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            soft = self.soften(view, cells, beta)
            in_beta.append(self._slope_in_beta(soft, cells, beta) * g_o)
            return [(p, w * g_o) for p, w in enumerate(soft.weights)]

        gx = self.scatter(shares, x, g)
        return gx, np.array(total(in_beta, zero_of(g)), object)

    @staticmethod
    def _slope_in_beta(soft: Softmax, cells: Sequence[Number], beta: Number) -> Number:
        # A losing infinity has weight zero and is worth nothing, not 0 * inf.
        terms = [w * c for w, c in zip(soft.weights, cells, strict=True) if not (is_infinite(c) and primal(w) == 0)]
        return divide(total([*terms, -soft.y]), beta)

    # With J(u) = sum of weight*u over a window and V(g) its transpose, differentiating the weights gives
    #   d/dx J(u) . s = beta * (J(s*u) - J(s)*J(u)),      d/dbeta J(u) = J(x*u) - J(x)*J(u),
    #   d/dx V(g) . s = beta * (s*V(g) - V(g*J(s))),      d/dbeta V(g) = x*V(g) - V(g*J(x)),
    # and d/dbeta (J(x) - y)/beta = (d/dbeta J(x) - 2*(J(x) - y)/beta) / beta.

    @classmethod
    def bend_jvp(cls, options: Sequence[Any], primals: Sequence[Any], t: Any, s: Any) -> Any:
        (x, beta), (t, t_beta), (s, s_beta) = primals, t, s
        parts = []
        if s is not None and t is not None:
            parts.append(mul(cls._variance(options, primals, s, t), beta))
        if t is not None and s_beta is not None:
            parts.append(mul(cls._variance(options, primals, x, t), s_beta))
        if s is not None and t_beta is not None:
            parts.append(mul(cls._variance(options, primals, x, s), t_beta))
        if t_beta is not None and s_beta is not None:
            parts.append(mul(cls._bend_in_beta(options, primals), mul(s_beta, t_beta)))
        return plus(*parts)

    @classmethod
    def bend_vjp(cls, options: Sequence[Any], primals: Sequence[Any], g: Any, s: Any, wrt: int) -> Any:
        (x, beta), (s, s_beta) = primals, s
        if wrt == 1:
            parts = [] if s is None else [cls._variance(options, primals, x, s)]
            parts += [] if s_beta is None else [mul(cls._bend_in_beta(options, primals), s_beta)]
            return sum_to(mul(plus(*parts), g), shape_of(beta))

        def back(u: Any) -> Any:
            mean = cls.push(options, primals, None, (u, None))
            return sub(
                mul(u, cls.pull(options, primals, None, g, 0)), cls.pull(options, primals, None, mul(g, mean), 0)
            )

        return plus(
            None if s is None else mul(back(s), beta),
            None if s_beta is None else mul(back(x), s_beta),
        )

    @classmethod
    def _variance(cls, options: Sequence[Any], primals: Sequence[Any], a: Any, b: Any) -> Any:
        """J(a*b) - J(a)*J(b)."""
        both, one, other = (cls.push(options, primals, None, (v, None)) for v in (mul(a, b), a, b))
        return sub(both, mul(one, other))

    @classmethod
    def _bend_in_beta(cls, options: Sequence[Any], primals: Sequence[Any]) -> Any:
        x, beta = primals
        slope = div(sub(cls.push(options, primals, None, (x, None)), apply(cls, primals, "fast", *options)), beta)
        return div(sub(cls._variance(options, primals, x, x), mul(slope, 2)), beta)

    # ---- bounds   (derived: the specification on intervals; it uses each cell once, so they are tight in x)

    def relax(self, boxes: Sequence[Interval], moving: Sequence[bool]) -> relaxing.Relaxation | None:
        x, beta = boxes
        if moving[1] or beta.lo != beta.hi:
            return None
        taps = self.taps(x.shape)
        b = float(beta.lo)
        space = x.shape[len(x.shape) - self.window.d :]
        zeros = self.absent(space) if self.count_include_pad else np.zeros(self.window.out(space))
        zeros = np.broadcast_to(zeros, taps.out)
        if b > 0:
            return relaxing.SmoothGreatest((x,), (taps,), b, zeros, enclosed(Exp), enclosed(Log))
        mirror = relaxing.SmoothGreatest((outward.neg(x),), (taps,), -b, zeros, enclosed(Exp), enclosed(Log))
        return relaxing.Mirrored(mirror)

    def absent(self, space: Shape) -> Array:
        """How many cells of padding every window has inside the padded input."""
        inside, present = np.ones(()), np.ones(())
        for t in self.window.tables(space):
            inside, present = inside[..., None] * t.inside, present[..., None] * t.count
        counted: Array = inside - present
        return counted

    # ---- kernels

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        counted = self.count_include_pad
        if counted and not self.countable(shapes):
            return Kernels()
        pool = (*self.native(dtype, batch, shapes, counted), counted)
        vjp = core.smooth_max_pool_vjp(*pool)
        return Kernels(
            core.smooth_max_pool(*pool),
            core.smooth_max_pool_jvp(*pool),
            (vjp.taking([0, 1, 2, 3, -1], 4), vjp.taking([0, 1, 2, -1, 3], 4)),
        )

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "tiles": case((1, 6), (), kernel=(2,)),
        "overlap_2d": case((2, 3, 3), (), kernel=(2, 3), stride=1),
        "pad_counts_as_zero": case((1, 4), (), kernel=(3,), stride=1, padding=1),
        "pad_not_counted": case((1, 4), (), kernel=(3,), stride=1, padding=1, count_include_pad=False),
        "window_of_padding": case((1, 2), (), kernel=(1,), stride=1, padding=1),
        "ceil_tail": case((1, 4), (), kernel=(3,), stride=3, ceil_mode=True),
        "dilated_pad": case((1, 5), (), kernel=(3,), stride=2, dilation=2, padding=2),
        "rank_0": case((2,), (), kernel=()),
        "rank_4": case((1, 2, 3, 1, 2), (), kernel=(2, 2, 1, 2), stride=1),
        "no_channels": case((0, 4), (), kernel=(2,)),
    }


@spelled
def smooth_max_pool(
    x: Any,
    kernel: Ints = ABSENT,
    *,
    beta: Any = ABSENT,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The log-sum-exp `(1/beta) * log(sum exp(beta*x))` of every window of `x`, `(*batch, channels, *space)`.

    Between the greatest cell and the greatest cell + log(cells)/beta; negative `beta` is the smooth minimum. Padding
    counts as zeros unless `count_include_pad=False`. `beta` is a number or an array without axes.

    >>> import numpy as np, lunette as ln
    >>> ln.smooth_max_pool(np.array([[1.0, 2.0, 3.0, 4.0]]), (4,), beta=1)
    array([[4.4401897]])
    """
    if misspelt or kernel is ABSENT or beta is ABSENT:
        request(smooth_max_pool, (x, kernel), {"beta": beta, **misspelt})  # which refuses it
    return apply(
        SmoothMaxPool, (x, beta), arithmetic, kernel, stride, padding, dilation, ceil_mode, count_include_pad, spatial
    )
