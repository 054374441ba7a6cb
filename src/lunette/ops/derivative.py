"""Operators that are derivatives of operators, so that derivatives can be differentiated again.

`jvp_of(kind)` takes the arrays of an operator and as many tangents, `vjp_of(kind, wrt)` its arrays and a cotangent.
What their own derivatives are follows from what the operator declares:

- it is linear in some arrays (`linear_in`): then <g, y> is linear in each of them and in g, and every derivative of it
  is the operator or one of its VJPs, with one argument in the place of another;
- it selects (`selects`): its derivative does not change with x, except where the winner does;
- otherwise the room tells how the derivative bends (`bend_jvp`, `bend_vjp`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lunette.number import Array
from lunette.op import JVP, VJP, Arrays, Case, Kernels, Op, Shapes, apply, cannot_derive, check_shape
from lunette.ops.binary import add
from lunette.rules import Interpretation, missing, untold
from lunette.value import value
from lunette.window import Shape


class Differentiable(Op):
    """An operator whose derivatives are operators."""

    @untold
    def jvp(self, primals: Arrays, tangents: Arrays) -> Array:
        """That of an operator which is linear in some arrays, and adds none, is the operator itself."""
        if not self.linear_in or self.affine_in:
            raise cannot_derive(self)
        parts = [self.spec(*put(primals, j, tangents[j])) for j in self.linear_in if tangents[j] is not None]
        return sum(parts[1:], parts[0])

    @classmethod
    @untold
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        if not cls.linear_in:
            return apply(jvp_of(cls), (*primals, *tangents), "fast", *options)
        added = tuple(tangents[j] if j in cls.affine_in else p for j, p in enumerate(primals))
        parts = []
        for j in cls.linear_in:
            if tangents[j] is not None:
                parts.append(apply(cls, put(added, j, tangents[j]), "fast", *options))
                added = tuple(None if k in cls.affine_in else p for k, p in enumerate(primals))
        return plus(*parts) if parts else cls.spread(options, primals, tangents)

    @classmethod
    def spread(cls, options: Sequence[Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """The tangent of the result when only arrays that it adds are moving."""
        return None

    @classmethod
    @untold
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        return apply(vjp_of(cls, wrt), (*primals, g), "fast", *options)

    @untold
    def terms_back(self, shapes: Shapes, wrt: int) -> int | None:
        """`terms` of the VJP in array number `wrt`, for one sample."""
        return None

    def flops_back(self, shapes: Shapes, batch: int, wrt: int) -> float:
        """`flops` of the VJP in array number `wrt`."""
        return float((batch if wrt in self.batched else 1) * prod(shapes[wrt] or ()))

    def is_push_nearest(self) -> bool:
        """Whether kernels give the float that is nearest to the exact derivative."""
        return False

    @classmethod
    @untold
    def bend_jvp(cls, options: Sequence[Any], primals: Sequence[Any], t: Sequence[Any], s: Sequence[Any]) -> Any:
        """The derivative of the JVP in the direction of t, as the primals move in the direction of s.

        Of products it is the sum over pairs of factors, one of them moving as t and the other as s.
        """
        if not cls.linear_in and not cls.selects:
            raise missing(JVP, jvp_of(cls))
        alone = tuple(None if j in cls.affine_in else p for j, p in enumerate(primals))
        pairs = [(j, k) for j in cls.linear_in for k in cls.linear_in if j != k]
        moving = [(j, k) for j, k in pairs if t[j] is not None and s[k] is not None]
        return plus(*(apply(cls, put(put(alone, j, t[j]), k, s[k]), "fast", *options) for j, k in moving))

    @classmethod
    @untold
    def bend_vjp(cls, options: Sequence[Any], primals: Sequence[Any], g: Any, s: Sequence[Any], wrt: int) -> Any:
        """The derivative of the VJP of g in primal number `wrt`, as the primals move in the direction of s."""
        if not cls.linear_in and not cls.selects:
            raise missing(VJP, vjp_of(cls, wrt))
        derived = vjp_of(cls, wrt)
        moving = [j for j in cls.linear_in if s[j] is not None and derived.reads(j)]
        return plus(*(apply(derived, (*put(primals, j, s[j]), g), "fast", *options) for j in moving))


def plus(*parts: Any) -> Any:
    """The sum of values, where None is zero."""
    whole = None
    for part in parts:
        whole = part if whole is None else whole if part is None else add(whole, part)
    return whole


def put(values: Sequence[Any], at: int, value: Any) -> tuple[Any, ...]:
    """The values with another one in one place."""
    return (*values[:at], value, *values[at + 1 :])


@value
class Derivative(Op):
    """What JVPs and VJPs share: an operator, whose arrays come first and whose options are theirs."""

    op: Differentiable

    base: ClassVar[type[Differentiable]]
    rules: ClassVar[Mapping[str, str]] = {"check": "check"}
    """By which of the operator's rules each rule of its derivative is told."""
    cases: ClassVar[Mapping[str, Case]] = {}

    @classmethod
    def origin_of(cls) -> type[Op]:
        return cls.base

    @property
    def origin(self) -> Op:
        return self.op

    @classmethod
    def tells(cls, rule: str) -> bool:
        if rule == "spec":  # a derivative that follows from linearity is one, too
            return (JVP if cls.rules["spec"] == "jvp" else VJP).has(cls.base)
        return (
            rule in cls.rules and cls.base.tells(cls.rules[rule]) and (rule != "kernels" or cls.base.derivative_kernels)
        )

    @classmethod
    def rank(cls, shapes: Shapes, lead: int, *options: Any) -> int | None:
        return cls.base.rank(shapes[: cls.count()], lead, *options)

    @classmethod
    def told(cls, d: int, options: tuple[Any, ...]) -> tuple[Any, ...]:
        return cls.base.told(d, options)

    @classmethod
    def count(cls) -> int:
        """How many arrays the operator has."""
        return len(cls.base.arrays)

    def cast(self, dtype: np.dtype[Any]) -> Self:
        return replace(self, op=self.op.cast(dtype))

    def is_rational(self) -> bool:
        return self.op.is_rational()

    def check(self, *arrays: Array | None) -> None:
        self.op.check(*arrays[: self.count()])


class Jvp(Derivative):
    """The derivative of an operator: its arrays, then their tangents."""

    rules: ClassVar[Mapping[str, str]] = {
        **Derivative.rules,
        "spec": "jvp",
        "kernels": "kernels",
        "push": "bend_jvp",
        "pull": "bend_vjp",
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        n = cls.count()
        for name, s, t in zip(cls.base.arrays, shapes[:n], shapes[n:], strict=True):
            if s is not None and t is not None:
                check_shape(f"the tangent of {name}", s, t)
        return cls(cls.base.of(shapes[:n], *options))

    def shape(self, *shapes: Shape | None) -> Shape:
        return self.op.shape(*shapes[: self.count()])

    def spec(self, *arrays: Array | None) -> Array:
        return self.op.jvp(arrays[: self.count()], arrays[self.count() :])

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        return Kernels(self.op.kernels(dtype, batch, shapes[: self.count()]).jvp)

    def is_nearest(self) -> bool:
        return self.op.is_push_nearest()

    @classmethod
    def reads(cls, at: int) -> bool:
        linear = cls.base.linear_in  # in products of several factors, each goes with the tangents of the others
        return at >= cls.count() or not linear or (at in linear and len(linear) > 1)

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        n = cls.count()
        at, t, s, u = primals[:n], primals[n:], tangents[:n], tangents[n:]
        straight = None if all(v is None for v in u) else cls.base.push(options, at, None, u)
        return plus(straight, None if all(v is None for v in s) else cls.base.bend_jvp(options, at, t, s))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        n = cls.count()
        at, t = primals[:n], primals[n:]
        if wrt >= n:
            return cls.base.pull(options, at, None, g, wrt - n)
        return cls.base.bend_vjp(options, at, g, t, wrt)  # second derivatives are symmetric


class Vjp(Derivative):
    """The transposed derivative of an operator in one of its arrays: its arrays, then the cotangent of its result."""

    wrt: ClassVar[int]
    rules: ClassVar[Mapping[str, str]] = {
        **Derivative.rules,
        "spec": "vjp",
        "kernels": "kernels",
        "push": "bend_vjp",
        "pull": "bend_vjp",
        "terms": "terms_back",
    }

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        *own, g = shapes
        op = cls.base.of(own, *options)
        assert g is not None
        check_shape("the cotangent", op.shape(*own), g)
        return cls(op)

    def shape(self, *shapes: Shape | None) -> Shape:
        wanted = shapes[self.wrt]
        assert wanted is not None
        return wanted

    def spec(self, *arrays: Array | None) -> Array:
        *own, g = arrays
        assert g is not None
        return self.op.vjp(own, g)[self.wrt]

    def terms(self, shapes: Shapes) -> int | None:
        return self.op.terms_back(shapes[:-1], self.wrt)

    def divisor_roundings(self, shapes: Shapes, dtype: np.dtype[Any]) -> int:
        return self.op.divisor_roundings(shapes[:-1], dtype)

    def kernels(self, dtype: np.dtype[Any], batch: int, shapes: Shapes) -> Kernels:
        kernels = self.op.kernels(dtype, batch, shapes[:-1]).vjp
        return Kernels(kernels[self.wrt] if kernels else None)

    def flops(self, shapes: Shapes, batch: int) -> float:
        return self.op.flops_back(shapes[:-1], batch, self.wrt)

    @classmethod
    def factors(cls) -> tuple[int, ...]:
        return tuple(at for at in range(len(cls.arrays)) if cls.reads(at))

    @classmethod
    def reads(cls, at: int) -> bool:
        base, n = cls.base, cls.count()
        if at == n:
            return True
        if not base.linear_in:
            return True
        return at in base.linear_in and at != cls.wrt and cls.wrt in base.linear_in

    @classmethod
    def push(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, tangents: Sequence[Any]) -> Any:
        (*at, g), (*s, u) = primals, tangents
        straight = None if u is None else apply(cls, (*at, u), "fast", *options)
        if not cls.base.linear_in:
            moved = any(v is not None for v in s)
            return plus(straight, cls.base.bend_vjp(options, at, g, s, cls.wrt) if moved else None)
        moving = [j for j in range(len(at)) if s[j] is not None and cls.reads(j)]
        return plus(straight, *(apply(cls, (*put(at, j, s[j]), g), "fast", *options) for j in moving))

    @classmethod
    def pull(cls, options: Sequence[Any], primals: Sequence[Any], y: Any, g: Any, wrt: int) -> Any:
        *at, cotangent = primals
        alone = put((None,) * len(at), cls.wrt, g)
        if wrt == len(at):
            return cls.base.push(options, at, None, alone)
        if not cls.base.linear_in:
            return cls.base.bend_vjp(options, at, cotangent, alone, wrt)
        if not cls.reads(wrt):
            return None
        return apply(vjp_of(cls.base, wrt), (*put(at, cls.wrt, g), cotangent), "fast", *options)


def _is_linear(kind: type[Op]) -> bool:
    """Whether the derivative of a Differentiable is the operator itself."""
    return issubclass(kind, Differentiable) and bool(kind.linear_in) and (not kind.affine_in or kind.tells("jvp"))


JVP.way("derived: linear", _is_linear)
JVP.way("own rule", lambda kind: issubclass(kind, Differentiable) and kind.tells("jvp"))
VJP.way("own rule", lambda kind: issubclass(kind, Differentiable) and kind.tells("vjp"))


def _straight(kind: type[Op], column: Interpretation) -> bool:
    """Whether the part of the derivative of a derivative is known in which only what it is linear in moves."""
    if not issubclass(kind, Derivative):
        return False
    other = VJP if column is JVP else JVP
    return (column if issubclass(kind, Jvp) else other).has(kind.base)


JVP.way("derived: linear", lambda kind: _straight(kind, JVP) and kind.base.linear_in)
JVP.way("derived: selects", lambda kind: _straight(kind, JVP) and kind.base.selects)
JVP.way("rule of {base}", lambda kind: _straight(kind, JVP) and kind.tells("push"))
VJP.way("derived: linear", lambda kind: _straight(kind, VJP) and kind.base.linear_in)
VJP.way("derived: selects", lambda kind: _straight(kind, VJP) and kind.base.selects)
VJP.way("rule of {base}", lambda kind: _straight(kind, VJP) and kind.tells("pull"))


@lru_cache
def jvp_of(kind: type[Differentiable]) -> type[Jvp]:
    """The operator that is the JVP of another."""
    n = len(kind.arrays)
    tangent = "the tangent of {}".format
    arrays, scalars = ((*names, *map(tangent, names)) for names in (kind.arrays, kind.scalars))
    batched = (*kind.batched, *(n + p for p in kind.batched))
    facts = {
        "base": kind,
        "name": f"{kind.name}_jvp",
        "arrays": arrays,
        "batched": batched,
        "scalars": scalars,
        "needs": kind.needs,
        "planar": kind.planar,
        "jointly_linear": tuple(range(n, 2 * n)),
    }
    return type(f"{kind.__name__}Jvp", (Jvp,), {**facts, "__slots__": ()})


@lru_cache
def vjp_of(kind: type[Differentiable], wrt: int) -> type[Vjp]:
    """The operator that is the VJP of another in array number `wrt`."""
    facts = {
        "base": kind,
        "wrt": wrt,
        "name": f"{kind.name}_vjp_{kind.arrays[wrt]}",
        "arrays": (*kind.arrays, "the cotangent"),
        "batched": (*kind.batched, len(kind.arrays)),
        "scalars": kind.scalars,
        "summed": wrt not in kind.batched,
        "needs": kind.needs,
        "planar": kind.planar and wrt in kind.batched,
        "jointly_linear": (len(kind.arrays),),
    }
    return type(f"{kind.__name__}Vjp{wrt}", (Vjp,), {**facts, "__slots__": ()})
