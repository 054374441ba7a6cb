"""Lp pooling: the p-norm of every window.

    y[c,o] = (sum of |x[c,i]|^p over the taps (k,i) of o)^(1/p)

| rule | says                                      |
|------|-------------------------------------------|
| L1   | p is a real number >= 1, or infinity      |

Padding is absent; a window with no cell gives 0. The window is scaled by its greatest |x|, so nothing overflows while
the result is finite. NaN gives NaN, else an infinite cell gives infinity.

    dy/dx[i] = sign(x[i]) * (|x[i]|/y)^(p-1),   0 where y = 0

For p = infinity the first cell of greatest |x| carries sign(x). Infinite cells share equally.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Self

import numpy as np

from lunette import core
from lunette.errors import ArgumentError, DTypeError, shown
from lunette.number import (
    Array,
    Number,
    anchor,
    as_dtype,
    between_minus_one_and_one,
    divide,
    is_decided,
    is_infinite,
    is_nan,
    is_real,
    is_zero,
    like,
    magnitude,
    power,
    primal,
    select,
    sign,
    total,
    winners,
    zero_of,
)
from lunette.op import ABSENT, Arithmetic, Arrays, Case, Kernels, Shapes, apply, case, request, resolve, spelled
from lunette.ops import chance
from lunette.ops.avg_pool import AvgPool, avg_pool
from lunette.ops.binary import add, div, equal, gate, mul, sub
from lunette.ops.glue import shape_of
from lunette.ops.max_pool import max_pool
from lunette.ops.pool import Pool, View
from lunette.ops.power import power as power_of
from lunette.ops.unary import abs as absolute
from lunette.ops.unary import sqrt
from lunette.value import value
from lunette.window import Ints, Padding, Window

ROOTS: Final = {1: 0, 2: 1, 4: 2, 8: 3, math.inf: 0}
"""How many square roots make the root of a power, for those that bounds take apart."""


@value
class LpPool(Pool):
    """Lp pooling as a value."""

    p: float = 2

    name: ClassVar[str] = "lp_pool"
    needs: ClassVar[str] = "exp"
    derivative_kernels: ClassVar[bool] = True
    powers: ClassVar[bool] = True
    counting: ClassVar[Mapping[str, Any] | None] = {"p": 1.0}
    draws: ClassVar[Mapping[str, chance.Draw]] = {"p": lambda op, rng, d, limits: float(rng.choice(limits.norms))}

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        kernel, p, stride, padding, dilation, ceil_mode, _ = options
        assert shapes[0] is not None
        space = shapes[0][1:]
        window = Window.sliding(space, kernel, stride, padding, dilation, ceil_mode)
        window.out(space)
        return cls(window, check_p(p))

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return replace(self, p=check_p(float(as_dtype(self.p, dtype))))

    # ---- meaning

    def norm(self, cells: Sequence[Number]) -> tuple[Number, Number]:
        """(scale, y / scale) of a window without NaN and infinities; y is 0 where the scale is."""
        sizes = [magnitude(c) for c in cells]
        if self.p == 1:
            return 1, total(sizes)
        if self.p == math.inf:
            return 1, select(sizes)
        scale = anchor(sizes, greatest=True)
        if scale == 0:
            return 1, total(sizes)
        return scale, power(total([power(divide(s, scale), self.p) for s in sizes]), self.root)

    def is_rational(self) -> bool:
        return self.p in (1, math.inf)

    @property
    def root(self) -> Number:
        """1/p, exactly."""
        return 1 / Fraction(self.p)

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        zero = zero_of(x)

        def value(view: View, cells: list[Number]) -> Number:
            if not cells:
                return zero
            special = next((c for c in cells if is_nan(c)), next((c for c in cells if is_infinite(c)), None))
            if special is not None:
                return magnitude(special)
            scale, relative = self.norm(cells)
            return relative * scale

        return self.fold(value, x)

    # ---- derivatives

    def weights(self, cells: Sequence[Number]) -> list[Number]:
        """What each cell of a window contributes to its derivative."""
        if not cells:
            return []
        nan = next((c for c in cells if is_nan(c)), None)
        if nan is not None:
            return [nan] * len(cells)
        infinite = sum(is_infinite(c) for c in cells)
        if infinite:
            return [divide(like(sign(c), c), infinite) if is_infinite(c) else 0 * c for c in cells]
        if self.p == math.inf:
            who = winners([magnitude(c) for c in cells], "first").places
            return [self._weight(c, 1, len(who) == 1) if at in who else 0 * c for at, c in enumerate(cells)]
        if self.p == 1:
            return [self._weight(c, 1, True) for c in cells]
        scale, relative = self.norm(cells)
        if is_zero(relative):
            return [0 * c for c in cells]
        sizes = [divide(magnitude(c), scale) for c in cells]
        return [self._weight(c, divide(s, relative), is_decided(relative)) for c, s in zip(cells, sizes, strict=True)]

    def _weight(self, c: Number, ratio: Number, decided: bool) -> Number:
        """`sign(c) * ratio^(p-1)`; where an enclosure leaves the sign open, all that it can be."""
        if not decided or not is_decided(c):
            return between_minus_one_and_one(c)
        return like(sign(primal(c)), c) * (1 if self.p in (1, math.inf) else power(ratio, self.p - 1))

    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        (x,), (t,) = primals, tangents
        assert x is not None and t is not None
        zero = zero_of(t)

        def derivative(view: View, cells: list[Number], slopes: list[Number]) -> Number:
            return total([w * s for w, s in zip(self.weights(cells), slopes, strict=True)], zero)

        return self.fold(derivative, x, t)

    def vjp(self, primals: Arrays, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        assert x is not None

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            return [(p, w * g_o) for p, w in enumerate(self.weights(cells))]

        return (self.scatter(shares, x, g),)

    # With J(u) = sum of sign(x)*(|x|/y)^(p-1) * u over a window and V(g) its transpose,
    #   d/dx J(u) . s = (p-1)/y * (sum of (|x|/y)^(p-2) * s*u - J(s)*J(u)),
    #   d/dx V(g) . s = (p-1) * (|x|^(p-2)*s * (sum of g*y^(1-p) over windows) - V(g/y * J(s))).
    # Where y = 0, as J is zero so is this: what is divided by y passes a gate, and y has a one in the place of zero.

    @classmethod
    def bend_jvp(cls, options: Sequence[Any], primals: Sequence[Any], t: Sequence[Any], s: Sequence[Any]) -> Any:
        (p, window), y = cls._sums(options), apply(cls, primals, "fast", *options)
        if p in (1, math.inf):
            return None
        x, (t,), (s,) = primals[0], t, s
        some = add(y, equal(y, 0))
        both = apply(AvgPool, (mul(mul(s, t), power_of(absolute(x), p - 2)),), "fast", *window)
        apart = mul(cls.push(options, primals, y, (s,)), cls.push(options, primals, y, (t,)))
        return gate(y, mul(div(sub(mul(both, power_of(some, 2 - p)), apart), some), p - 1))

    @classmethod
    def bend_vjp(cls, options: Sequence[Any], primals: Sequence[Any], g: Any, s: Sequence[Any], wrt: int) -> Any:
        (p, window), y = cls._sums(options), apply(cls, primals, "fast", *options)
        if p in (1, math.inf):
            return None
        x, (s,) = primals[0], s
        some, g = add(y, equal(y, 0)), gate(y, g)
        spread = AvgPool.pull(window, primals, None, mul(g, power_of(some, 1 - p)), 0)
        apart = cls.pull(options, primals, y, mul(div(g, some), cls.push(options, primals, y, (s,))), 0)
        return mul(sub(mul(mul(power_of(absolute(x), p - 2), s), spread), apart), p - 1)

    @staticmethod
    def _sums(options: Sequence[Any]) -> tuple[float, tuple[Any, ...]]:
        """P, and the options of the average with divisor 1 over the same windows."""
        kernel, p, stride, padding, dilation, ceil_mode, spatial = options
        return check_p(p), (kernel, stride, padding, dilation, ceil_mode, True, 1, spatial)

    # ---- bounds   (derived: the specification on intervals)

    @classmethod
    def parts(cls, options: Sequence[Any], operands: Sequence[Any], moving: Sequence[bool]) -> Any:
        kernel, p, stride, padding, dilation, ceil_mode, spatial = options
        if p not in ROOTS:
            return None
        own = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode, "spatial": spatial}
        (x,) = operands
        if p == math.inf:
            op = resolve(cls, [shape_of(x)], 2, options).op
            assert isinstance(op, LpPool)
            space = shape_of(x)[len(shape_of(x)) - op.window.d :]
            return None if op.window.empty_cell(space) is not None else max_pool(absolute(x), kernel, **own)
        y = avg_pool(absolute(x) if p == 1 else power_of(x, int(p)), kernel, divisor=1, **own)
        for _ in range(ROOTS[p]):
            y = sqrt(y)
        return y

    # ---- kernels

    def is_nearest(self) -> bool:
        return self.p == math.inf  # the greatest magnitude

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        pool, p = self.native(dtype, batch, shapes), float(self.p)
        return Kernels(core.lp_pool(*pool, p), core.lp_pool_jvp(*pool, p), (core.lp_pool_vjp(*pool, p),))

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "euclid": case((1, 6), kernel=(2,)),
        "taxicab": case((2, 5), kernel=(3,), stride=1, p=1),
        "greatest": case((2, 5), kernel=(3,), stride=1, p=math.inf),
        "cubes": case((1, 3, 3), kernel=(2, 3), stride=1, p=3),
        "odd_power": case((1, 5), kernel=(3,), stride=1, p=1.5),
        "pad_is_absent": case((1, 4), kernel=(3,), stride=1, padding=1),
        "window_of_padding": case((1, 2), kernel=(1,), stride=1, padding=1, p=3),
        "ceil_tail": case((1, 4), kernel=(3,), stride=3, ceil_mode=True),
        "dilated_pad": case((1, 5), kernel=(3,), stride=2, dilation=2, padding=2),
        "rank_0": case((2,), kernel=()),
        "rank_4": case((1, 2, 3, 1, 2), kernel=(2, 2, 1, 2), stride=1),
        "no_channels": case((0, 4), kernel=(2,)),
    }

    @classmethod
    def variants(cls, norms: Sequence[float]) -> Sequence[Mapping[str, Any]]:
        return [{"p": p} for p in norms]


def check_p(p: Any) -> float:
    """Rule L1."""
    need, hint = "p as a real number >= 1 or infinity", "p=2 is the Euclidean norm, p=math.inf the greatest cell."
    if not is_real(p):
        raise DTypeError("L1", need, f"p={shown(p)} of type {type(p).__name__}", hint)
    value = float(as_dtype(p, np.dtype(np.float64)))
    if not value >= 1 or (value == math.inf and p != math.inf):
        raise ArgumentError("L1", need, f"p={shown(p)}", hint)
    return int(value) if value.is_integer() else value


@spelled
def lp_pool(
    x: Any,
    kernel: Ints = ABSENT,
    *,
    p: float = 2,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    spatial: int | None = None,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The p-norm `(sum |x|^p)^(1/p)` of every window of `x`, which is `(*batch, channels, *space)`.

    >>> import numpy as np, lunette as ln
    >>> ln.lp_pool(np.array([[3.0, -4.0, 0.0]]), (2,), stride=1)
    array([[5., 4.]])
    """
    if misspelt or kernel is ABSENT:
        request(lp_pool, (x, kernel), misspelt)  # which refuses it
    return apply(LpPool, (x,), arithmetic, kernel, p, stride, padding, dilation, ceil_mode, spatial)
