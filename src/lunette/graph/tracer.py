"""Values under transformation, and their structure: what jvp, vjp and jit have in common.

A value that is being transformed is a tracer: it computes what it would compute anyway, and keeps something beside it.
Tracers hold arrays, variables of a graph, or tracers of an outer transformation, so transformations nest; each knows
the level of the transformation that made it. The rules T1 to T6 are those of lunette.graph.differentiate.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Final

import numpy as np

from lunette.array import from_numpy, to_numpy
from lunette.errors import DTypeError, ShapeError
from lunette.graph import trees
from lunette.graph.nodes import Var
from lunette.graph.value import Value
from lunette.number import OBJECT, is_real
from lunette.ops.glue import dtype_name, lift, shape_of
from lunette.window import Shape


class Tracer(Value):
    """A value under differentiation."""

    __slots__ = ("level", "value")

    value: Any
    level: int

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The shape of the value."""
        return shape_of(self.value)

    @property
    def dtype(self) -> Any:
        """The dtype of the value."""
        return getattr(self.value, "dtype", OBJECT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}{list(self.shape)})"


def flat(values: Sequence[Any], none_is_leaf: bool = True) -> tuple[list[Any], Any]:
    """The leaves of several values and their structure; None where each is a leaf itself, which is found at once."""
    for v in values:
        if type(v) is not np.ndarray and not isinstance(v, Value):
            break
    else:
        return list(values), None
    leaves, tree = trees.flatten(tuple(values), none_is_leaf)
    return leaves, None if len(leaves) == len(values) and all(map(is_, leaves, values)) else tree


def shaped(tree: Any, leaves: Sequence[Any]) -> Sequence[Any]:
    """The values again."""
    whole: Sequence[Any] = leaves if tree is None else trees.unflatten(tree, leaves)
    return whole


def alike(rule: str, given: Any, whole: Any) -> list[Any]:
    """Rules T1 and T5: the leaves of a tangent or a cotangent, which is like the value it belongs to; None is zero."""
    if type(given) is np.ndarray and type(whole) is np.ndarray:
        return [_fitted(rule, given, whole)]
    leaves, tree = flat((whole,))
    own, own_tree = flat((given,))
    if tree != own_tree:
        own, own_tree = flat((_spread(given, whole),))
    if tree != own_tree:
        need, got = (f"structure {_drawn(t)}" for t in (tree, own_tree))
        raise ShapeError(rule, f"{_NAMES[rule][0]} of {need}", got, "None stands for zero.")
    return [None if g is None else _fitted(rule, g, v) for g, v in zip(own, leaves, strict=True)]


def _spread(given: Any, whole: Any) -> Any:
    """None in the place of several arrays stands for as many."""
    try:
        wide = trees.spread(given, whole)
    except ValueError:
        return given
    before, after = ([v for v in trees.leaves_of(t, none_is_leaf=True) if v is not None] for t in (given, wide))
    return wide if len(before) == len(after) else given


_NAMES: Final = {"T1": ("a tangent", "Like its primal."), "T5": ("a cotangent", "Like y.")}


def _drawn(tree: Any) -> str:
    """The structure of one value, * for its arrays."""
    if tree is None:
        return "*"
    return str(tree.children()[0]).removeprefix("PyTreeSpec(").removesuffix(", NoneIsLeaf)")


def _fitted(rule: str, given: Any, value: Any) -> Any:
    """A tangent or cotangent of one array; a plain number takes the dtype of the value."""
    if type(given) is type(value) is np.ndarray and given.shape == value.shape and given.dtype == value.dtype:
        return given
    name, hint = _NAMES[rule]
    value = np.asarray(value) if isinstance(value, float) else value  # as `checked` takes it
    if shape_of(given) != shape_of(value):
        raise ShapeError(rule, f"{name} of shape {shape_of(value)}", f"shape {shape_of(given)}", hint)
    if is_real(given):
        return point(given, value)
    wanted, own = (dtype_name(getattr(v, "dtype", OBJECT)) for v in (value, given))
    if wanted != own and not wanted.startswith(("int", "uint")):
        raise DTypeError("D2", f"{name} of dtype {wanted}", f"dtype {own}", f"{hint} Nothing is promoted silently.")
    return given


def point(number: Any, value: Any) -> Any:
    """A number as an array without axes, or a constant, of the dtype and kind of a value."""
    while isinstance(value, Tracer):
        value = value.value
    if isinstance(value, Var):
        return value.graph.constant(number, value.dtype)
    foreign = not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")
    return from_numpy(lift(number, value), to_numpy(value, "a value").kind if foreign else "numpy")


def fresh(values: list[Any], held: set[int]) -> list[Any]:
    """The values; arrays that the caller holds (by id), or that come twice, are copied."""
    for at, v in enumerate(values):
        if id(v) in held:
            values[at] = v = _copied(v)
        held.add(id(v))
    return values


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Value) or not hasattr(value, "__dlpack__"):
        return value  # these do not change
    taken = to_numpy(value, "a value")
    return from_numpy(taken.array.copy(), taken.kind)


def kind_and_size(value: Any) -> str:
    """What a value is that should have been a tuple."""
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
