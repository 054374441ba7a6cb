"""Derivatives of Python functions made of lunette's operators: jvp, vjp, grad, and jit and trace beside them.

A value that is being differentiated is a box: it computes what it would compute anyway, and keeps the tangent beside it
(forward mode) or remembers the step (reverse mode). Boxes hold arrays, variables of a graph, or boxes of an outer
transformation, so transformations nest; each box knows the level of the transformation that made it.

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| T1   | tangents have the structure and shapes of the primals                           |
| T2   | what is differentiated is made of float arrays                                  |
| T3   | grad and value_and_grad need a result without axes                              |
| T4   | argnums name arguments of the function                                          |
| T5   | a cotangent has the structure and shapes of the result                          |
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import update_wrapper
from itertools import count
from typing import Any

import numpy as np
import optree

from lunette.array import FLOAT, give, take
from lunette.errors import ArgumentError, DTypeError, ShapeError, shown, speaking
from lunette.graph.graph import Graph, Var
from lunette.graph.program import Program
from lunette.graph.value import Value
from lunette.number import OBJECT, is_real
from lunette.op import Op, apply
from lunette.ops.binary import add
from lunette.ops.glue import lift, shape_of
from lunette.ops.layout import broadcast_to
from lunette.window import Shape, integer

_levels = count()
trees: Any = optree  # whose types say less than Any


class Box(Value):
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


# ---- forward mode


class Pushed(Box):
    """A value with its tangent."""

    __slots__ = ("tangent",)

    def __init__(self, value: Any, tangent: Any, level: int) -> None:
        self.value, self.tangent, self.level = value, tangent, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        level = self.level
        mine = [type(o) is Pushed and o.level == level for o in operands]
        primals = tuple([o.value if m else o for o, m in zip(operands, mine, strict=True)])
        tangents = tuple([o.tangent if m else None for o, m in zip(operands, mine, strict=True)])
        y = apply(kind, primals, arithmetic, *options)
        y, *index = y if type(y) is tuple else (y,)
        t = kind.push(options, primals, y, tangents)
        boxed = y if t is None else Pushed(y, t, level)
        return (boxed, *index) if index else boxed


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`f(*primals)`, and its derivative in the direction of the tangents; None is a zero tangent.

    >>> import numpy as np, lunette as ln
    >>> ln.jvp(lambda x: ln.sum(x * x), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    (array(5.), array(2.))
    """
    with speaking("jvp"):
        tuples = isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)
        if not tuples or len(primals) != len(tangents):
            got = " and ".join(f"{type(v).__name__} of {len(v)}" for v in (primals, tangents))
            raise DTypeError("T1", "primals and tangents as tuples of one length", got, "Write (x,) and (t,).")
        level = next(_levels)
        boxed = [_pushed(p, t, level) for p, t in zip(primals, tangents, strict=True)]
    results, tree = trees.tree_flatten(f(*boxed), none_is_leaf=True)
    mine = [type(r) is Pushed and r.level == level for r in results]
    values = [r.value if m else r for r, m in zip(results, mine, strict=True)]
    slopes = [r.tangent if m else zeros_like(r) for r, m in zip(results, mine, strict=True)]
    return trees.tree_unflatten(tree, values), trees.tree_unflatten(tree, slopes)


def _pushed(primal: Any, tangent: Any, level: int) -> Any:
    if tangent is None:
        return primal
    leaves, tree = trees.tree_flatten(primal)
    given, own = trees.tree_flatten(tangent, none_is_leaf=True)
    if len(leaves) != len(given):
        raise ShapeError("T1", f"a tangent of structure {tree}", f"{own}", "None stands for a zero tangent.")
    boxes = []
    for p, t in zip(leaves, given, strict=True):
        if t is None:
            boxes.append(p)
            continue
        if shape_of(p) != shape_of(t):
            raise ShapeError("T1", f"a tangent of shape {shape_of(p)}", f"shape {shape_of(t)}", "Like its primal.")
        boxes.append(Pushed(checked(p), t, level))
    return trees.tree_unflatten(tree, boxes)


def checked(value: Any) -> Any:
    """Rule T2: something that has a derivative. A plain float is an array without axes, an int a number of its own."""
    if isinstance(value, Value) or (type(value) is np.ndarray and value.dtype in FLOAT):
        return value
    if isinstance(value, float | np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        got = f"an array of dtype {value.dtype}"
        raise DTypeError("T2", "float arrays to differentiate", got, "Whole numbers have no derivative: use argnums.")
    array = take(value, "x").array
    return array if array.dtype == OBJECT else value


def zeros_like(value: Any) -> Any:
    """Zeros of the shape, dtype and kind of a value."""
    if isinstance(value, Value):
        return broadcast_to(_anchor(value), value.shape)
    if value is None or is_real(value):
        return None if value is None else 0 * value
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return np.zeros_like(value)
    taken = take(value, "a result")
    return give(np.zeros(taken.array.shape, taken.array.dtype), taken.kind)


def _anchor(value: Any) -> Any:
    """Zero, as a value of the same graph or level."""
    while isinstance(value, Box):
        value = value.value
    return value.graph.constant(0.0, value.dtype) if isinstance(value, Var) else lift(0, value)


# ---- reverse mode


_Taken = tuple[type[Op], tuple[Any, ...], tuple[Any, ...], Any, tuple[int, ...]]


class Tape:
    """The steps of one computation: what each read, what it made, and whose results it read."""

    __slots__ = ("steps",)

    def __init__(self, inputs: int) -> None:
        self.steps: list[tuple[type[Op], tuple[Any, ...], tuple[Any, ...], Any, tuple[int, ...]] | None] = [
            None
        ] * inputs

    def pull(self, cotangents: list[Any], inputs: int) -> list[Any]:
        """The cotangents of the inputs, from those of the results, which are spent."""
        for at in range(len(self.steps) - 1, inputs - 1, -1):
            g = cotangents[at]
            if g is None:
                continue
            step = self.steps[at]
            assert step is not None
            kind, options, primals, y, sources = step
            for wrt, source in enumerate(sources):
                if source < 0:
                    continue
                part = kind.pull(options, primals, y, g, wrt)
                if part is not None:
                    before = cotangents[source]
                    cotangents[source] = part if before is None else add(before, part)
            cotangents[at] = None
        return cotangents[:inputs]


class Taped(Box):
    """A value that remembers how it was made."""

    __slots__ = ("at", "tape")

    def __init__(self, value: Any, tape: Tape, at: int, level: int) -> None:
        self.value, self.tape, self.at, self.level = value, tape, at, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        level, tape = self.level, self.tape
        mine = [type(o) is Taped and o.level == level for o in operands]
        primals = tuple([o.value if m else o for o, m in zip(operands, mine, strict=True)])
        y = apply(kind, primals, arithmetic, *options)
        y, *index = y if type(y) is tuple else (y,)
        sources = tuple([o.at if m else -1 for o, m in zip(operands, mine, strict=True)])
        tape.steps.append((kind, options, primals, y, sources))
        boxed = Taped(y, tape, len(tape.steps) - 1, level)
        return (boxed, *index) if index else boxed


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`f(*primals)`, and the pullback: from a cotangent of the result to one cotangent per primal.

    >>> import numpy as np, lunette as ln
    >>> y, pullback = ln.vjp(lambda x: ln.max_pool(x, 2, spatial=1), np.array([[1.0, 3.0, 4.0, 2.0]]))
    >>> y, pullback(np.array([[10.0, 20.0]]))
    (array([[3., 4.]]), (array([[ 0., 10., 20.,  0.]]),))
    """
    y, pullback, _ = _recorded(f, primals, has_aux=False)
    return y, pullback


def _recorded(
    f: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]], Any]:
    """The value, the pullback, and with `has_aux` what f returns beside the value."""
    level = next(_levels)
    with speaking("vjp"):
        leaves, tree = flat(primals, none_is_leaf=False)
        tape = Tape(len(leaves))
        boxes = [Taped(checked(p), tape, at, level) for at, p in enumerate(leaves)]
    y, aux = f(*shaped(tree, boxes)), None
    if has_aux:
        y, aux = y
        aux = trees.tree_map(lambda v: v.value if type(v) is Taped and v.level == level else v, aux, none_is_leaf=True)
    (results, out) = flat((y,))
    places = [r.at if type(r) is Taped and r.level == level else -1 for r in results]
    values = [r.value if at >= 0 else r for r, at in zip(results, places, strict=True)]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """One cotangent per primal, for a cotangent of the result; None is zero."""
        with speaking("pullback"):
            given, _ = flat((cotangent,))
            if len(given) != len(values):
                need = f"a cotangent of {len(values)} arrays, like the result"
                raise ShapeError("T5", need, f"{len(given)}", "One entry per result.")
            cotangents: list[Any] = [None] * len(tape.steps)
            for at, g, v in zip(places, given, values, strict=True):
                if g is not None and shape_of(g) != shape_of(v):
                    raise ShapeError("T5", f"a cotangent of shape {shape_of(v)}", f"shape {shape_of(g)}", "Like y.")
                if at >= 0 and g is not None:
                    cotangents[at] = g if cotangents[at] is None else add(cotangents[at], g)
        back = tape.pull(cotangents, len(leaves))
        parts = [zeros_like(p) if b is None else b for p, b in zip(leaves, back, strict=True)]
        return tuple(shaped(tree, parts))

    return shaped(out, values)[0], pullback, aux


def flat(values: Sequence[Any], none_is_leaf: bool = True) -> tuple[list[Any], Any]:
    """The leaves of several values and their structure; None where each is a leaf itself, which is found at once."""
    if all(type(v) is np.ndarray or isinstance(v, Value) for v in values):
        return list(values), None
    leaves, tree = trees.tree_flatten(tuple(values), none_is_leaf=none_is_leaf)
    return leaves, tree


def shaped(tree: Any, leaves: Sequence[Any]) -> Sequence[Any]:
    """The values again."""
    whole: Sequence[Any] = leaves if tree is None else trees.tree_unflatten(tree, leaves)
    return whole


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """The function that gives the value of f and its gradient in the arguments `argnums`.

    With `has_aux`, f returns (value, anything), and so does the new function in place of the value.

    >>> import numpy as np, lunette as ln
    >>> ln.value_and_grad(lambda x, a: a * ln.sum(x * x))(np.array([1.0, 2.0]), 3.0)
    (array(15.), array([ 6., 12.]))
    """
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)

    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with speaking("grad"):
            places = [_argument(n, len(args)) for n in numbers]

        def inner(*chosen: Any) -> Any:
            full = list(args)
            for at, value in zip(places, chosen, strict=True):
                full[at] = value
            return f(*full, **kwargs)

        y, pullback, aux = _recorded(inner, [args[at] for at in places], has_aux)
        with speaking("grad"):
            if isinstance(y, dict | list | tuple) or shape_of(y) != ():
                got = type(y).__name__ if isinstance(y, dict | list | tuple) else f"shape {shape_of(y)}"
                raise ShapeError("T3", "a function with one result, without axes", got, "Take ln.sum or ln.mean of it.")
        grads = pullback(one_like(y))
        result = grads if isinstance(argnums, tuple | list) else grads[0]
        return ((y, aux) if has_aux else y), result

    return update_wrapper(both, f, updated=())


def one_like(value: Any) -> Any:
    """One, of the dtype and kind of a value without axes."""
    if isinstance(value, Value) or is_real(value):
        zero = _anchor(value) if isinstance(value, Value) else 0
        return add(zero, 1) if isinstance(zero, Value) else lift(1, zero) if is_real(value) else np.ones_like(zero)
    taken = take(value, "the result")
    return give(np.ones((), taken.array.dtype), taken.kind)


def _argument(number: Any, size: int) -> int:
    """Rule T4."""
    at = integer("argnums", number)
    if not -size <= at < size:
        raise ArgumentError("T4", f"argnums in 0..{size - 1}", f"argnums={at}", "It counts positional arguments.")
    return at % size


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of f, which has a result without axes; with `has_aux`, (gradient, aux).

    >>> import numpy as np, lunette as ln
    >>> ln.grad(lambda x: ln.sum(ln.relu(x)))(np.array([-1.0, 2.0]))
    array([0., 1.])
    """
    both = value_and_grad(f, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return update_wrapper(gradient, f, updated=())


# ---- graphs from functions


def trace(f: Callable[..., Any], *examples: Any) -> Graph:
    """The graph of f for arguments like `examples`: arrays, or anything with a shape and a dtype, in any structure.

    >>> import numpy as np, lunette as ln
    >>> print(ln.trace(lambda x: ln.relu(x) + 1, np.zeros((2, 2), np.float32)))
    %0 : f32[2,2] = input("x")
    %1 : f32[2,2] = relu(%0)
    %2 : f32[] = constant(1.0)
    %3 : f32[2,2] = add(%1, %2)
    return %3
    """
    leaves, tree = trees.tree_flatten(examples)
    names = _names(f, examples)
    with speaking("trace"):
        return _traced(f, tree, leaves, names)[0]


def _names(f: Callable[..., Any], examples: Sequence[Any]) -> list[str]:
    """Names for the leaves: that of the argument, and the keys that lead to them."""
    try:
        parameters = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for at, e in enumerate(examples):
        base = parameters[at] if at < len(parameters) and parameters[at].isidentifier() else f"x{at}"
        for path in trees.tree_paths(e):
            name = re.sub(r"\W", "_", "_".join([base, *map(str, path)]))
            names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _traced(
    f: Callable[..., Any], tree: Any, leaves: Sequence[Any], names: Sequence[str]
) -> tuple[Graph, Any, list[Any]]:
    """The graph, the structure of the results, and the results that are no arrays."""
    graph = Graph()
    variables = []
    for v, n in zip(leaves, names, strict=True):
        whole = not _is_static(v) and np.dtype(str(v.dtype).removeprefix("torch.")).kind in "iu"
        variables.append(v if _is_static(v) else graph.input(shape_of(v), np.int64 if whole else v.dtype, n))
    results, out = trees.tree_flatten(f(*trees.tree_unflatten(tree, variables)), none_is_leaf=True)
    fixed: list[Any] = []
    for r in results:
        if isinstance(r, Var) or (hasattr(r, "dtype") and hasattr(r, "shape")):
            graph.output(r if isinstance(r, Var) else graph.constant(r))
            fixed.append(_VARIES)
        else:
            fixed.append(r)
    if not graph.outputs:
        hint = "Return what it computes."
        raise ArgumentError("G5", "a function that returns arrays", f"{shown(results)}", hint, who="trace")
    return graph, out, fixed


_VARIES = object()


def _is_static(value: Any) -> bool:
    """Python numbers, strings and the like are part of the program."""
    return not (hasattr(value, "dtype") and hasattr(value, "shape"))


class Jitted:
    """A function that is traced and compiled once for every shape, dtype and static argument it meets."""

    def __init__(self, f: Callable[..., Any], debug: bool) -> None:
        self.f, self.debug = f, debug
        self.programs: dict[Any, tuple[Program, Any, list[Any]] | None] = {}
        update_wrapper(self, f, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = trees.tree_flatten((args, kwargs))
        facts: list[Any] = []
        arrays: list[Any] = []
        for v in leaves:
            if _is_static(v):
                facts.append((type(v), v))
            elif isinstance(v, Value):
                return self.f(*args, **kwargs)  # part of a larger graph, or of a derivative
            else:
                facts.append((v.shape, v.dtype))
                arrays.append(v)
        key = tree, tuple(facts)
        try:
            seen = key in self.programs
        except TypeError:
            raise DTypeError(
                "T2", "arrays, numbers and strings as arguments", f"{shown(leaves)}", "Close over it.", who="jit"
            ) from None
        if not seen:
            self.programs[key] = self._compile(tree, leaves) if all(map(_computes_in, arrays)) else None
        known = self.programs[key]
        if known is None:
            return self.f(*args, **kwargs)
        program, out, fixed = known
        y = program(*arrays)
        found = iter(y if len(program.graph.outputs) > 1 else (y,))
        return trees.tree_unflatten(out, [next(found) if r is _VARIES else r for r in fixed])

    def _compile(self, tree: Any, leaves: list[Any]) -> tuple[Program, Any, list[Any]]:
        names = [f"x{at}" for at in range(len(leaves))]

        def positional(*structured: Any) -> Any:
            args, kwargs = structured
            return self.f(*args, **kwargs)

        graph, out, fixed = _traced(positional, tree, leaves, names)
        return graph.compile(debug=self.debug), out, fixed


def _computes_in(array: Any) -> bool:
    """Whether compiled programs take this array: float32, float64 and integers; others run operator by operator."""
    name = str(array.dtype).removeprefix("torch.")
    return name in ("float32", "float64", "int64", "int32")


def jit(f: Callable[..., Any] | None = None, *, debug: bool = False) -> Any:
    """The function, traced once per shape and dtype, compiled and cached; numbers and strings are static.

    With `debug`, a NaN that the function makes is an error that names the operator and the line.

    >>> import numpy as np, lunette as ln
    >>> layer = ln.jit(lambda x: ln.max_pool(ln.relu(x), 2))
    >>> layer(np.ones((1, 1, 4, 4), np.float32)).shape
    (1, 1, 2, 2)
    """
    return (lambda g: Jitted(g, debug)) if f is None else Jitted(f, debug)
