"""Derivatives of Python functions made of lunette's operators: jvp, vjp, grad, and jit and trace beside them.

A value that is being differentiated is a box: it computes what it would compute anyway, and keeps the tangent beside it
(forward mode) or remembers the step (reverse mode). Boxes hold arrays, variables of a graph, or boxes of an outer
transformation, so transformations nest; each box knows the level of the transformation that made it.

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| T1   | tangents have the structure and shapes of the primals                           |
| T2   | float arrays are differentiated; jit takes arrays, numbers and strings          |
| T3   | grad and value_and_grad need a result without axes; with has_aux, (value, aux)  |
| T4   | argnums name arguments of the function, each once                               |
| T5   | a cotangent has the structure and shapes of the result                          |
| T6   | what is transformed is a function                                               |

Results are fresh: nobody else holds their memory. A pullback, when it is called, reads arguments and result again.
Derivatives are computed in the arithmetic of the value, operator by operator.
"""

from __future__ import annotations

import inspect
import marshal
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from itertools import count
from numbers import Number
from operator import is_
from typing import Any, Final

import numpy as np
import optree

from lunette.array import FLOAT, from_numpy, to_numpy
from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, error_context, shown, sign
from lunette.graph.graph import Graph, Var, line_of_the_user
from lunette.graph.program import Program, refuse_nan
from lunette.graph.value import Value
from lunette.number import OBJECT, Interval, is_real
from lunette.op import Op, apply
from lunette.ops.binary import add
from lunette.ops.broadcast import broadcast_to
from lunette.ops.glue import dtype_name, lift, shape_of
from lunette.window import Shape, integer

_levels = count()
trees: Any = optree  # whose types say less than Any


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
    leaves, tree = trees.tree_flatten(tuple(values), none_is_leaf=none_is_leaf)
    return leaves, None if len(leaves) == len(values) and all(map(is_, leaves, values)) else tree


def shaped(tree: Any, leaves: Sequence[Any]) -> Sequence[Any]:
    """The values again."""
    whole: Sequence[Any] = leaves if tree is None else trees.tree_unflatten(tree, leaves)
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
        wide = trees.tree_broadcast_prefix(given, whole, none_is_leaf=True)
    except ValueError:
        return given
    before, after = ([v for v in trees.tree_leaves(t, none_is_leaf=True) if v is not None] for t in (given, wide))
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


def _counted(value: Any) -> str:
    """What a value is that should have been a tuple."""
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def check_function(f: Any, who: str) -> None:
    """Rule T6."""
    if not callable(f):
        got = f"{shown(f)} of type {type(f).__name__}"
        raise DTypeError("T6", "a function", got, "It comes first, its arguments after it.", who=who)


# ---- derivatives in the arithmetic of the value


class ArithmeticTracer(Tracer):
    """A value whose operators compute in an arithmetic, whatever they ask for."""

    __slots__ = ("arithmetic",)

    def __init__(self, value: Any, arithmetic: str, level: int) -> None:
        self.value, self.arithmetic, self.level = value, arithmetic, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        values = [o.value if type(o) is ArithmeticTracer and o.level == self.level else o for o in operands]
        return ArithmeticTracer(apply(kind, values, self.arithmetic, *options), self.arithmetic, self.level)


def _in(arithmetic: str, rule: Callable[..., Any], primals: Sequence[Any], y: Any, more: Any) -> Any:
    """What a rule of derivatives makes of primals, value, and tangents or a cotangent, in an arithmetic."""
    level = next(_levels)

    def box(v: Any) -> Any:
        if isinstance(v, tuple):
            return tuple(map(box, v))
        return None if v is None else ArithmeticTracer(v, arithmetic, level)

    result = rule(box(primals), box(y), box(more))
    return result.value if type(result) is ArithmeticTracer else result


# ---- forward mode


class ForwardTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("tangent",)

    def __init__(self, value: Any, tangent: Any, level: int) -> None:
        self.value, self.tangent, self.level = value, tangent, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        level = self.level
        mine = [type(o) is ForwardTracer and o.level == level for o in operands]
        primals = tuple([o.value if m else o for o, m in zip(operands, mine, strict=True)])
        tangents = tuple([o.tangent if m else None for o, m in zip(operands, mine, strict=True)])
        y = apply(kind, primals, arithmetic, *options)
        y, *index = y if type(y) is tuple else (y,)
        if arithmetic == "fast":
            t = kind.push(options, primals, y, tangents)
        else:
            t = _in(arithmetic, partial(kind.push, options), primals, y, tangents)
        boxed = y if t is None else ForwardTracer(y, t, level)
        return (boxed, *index) if index else boxed


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`f(*primals)`, and its derivative in the direction of the tangents; None is a zero tangent.

    >>> import numpy as np, lunette as ln
    >>> ln.jvp(lambda x: ln.sum(x * x), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    (array(5.), array(2.))
    """
    check_function(f, "jvp")
    with error_context("jvp"):
        tuples = isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)
        if not tuples or len(primals) != len(tangents):
            got = " and ".join(_counted(v) for v in (primals, tangents))
            raise DTypeError("T1", "primals and tangents as tuples of one length", got, "Write (x,) and (t,).")
        level = next(_levels)
        held: set[int] = set()
        boxed = [p if t is None else _pushed(p, t, level, held) for p, t in zip(primals, tangents, strict=True)]
    results, out = flat((f(*boxed),))
    mine = [type(r) is ForwardTracer and r.level == level for r in results]
    values = fresh([r.value if m else r for r, m in zip(results, mine, strict=True)], held)
    slopes = fresh([r.tangent if m else zeros_like(r) for r, m in zip(results, mine, strict=True)], held)
    return shaped(out, values)[0], shaped(out, slopes)[0]


def _pushed(primal: Any, tangent: Any, level: int, held: set[int]) -> Any:
    given = alike("T1", tangent, primal)
    leaves, tree = flat((primal,))
    boxes = [p if t is None else ForwardTracer(checked(p), t, level) for p, t in zip(leaves, given, strict=True)]
    held.update(map(id, leaves), map(id, given))
    return shaped(tree, boxes)[0]


def checked(value: Any) -> Any:
    """Rule T2: something that has a derivative. A plain float is an array without axes, an int a number of its own."""
    if isinstance(value, Value) or (type(value) is np.ndarray and value.dtype in FLOAT):
        return value
    if isinstance(value, Interval):
        hint = "Boxes go to ln.<op>_jvp and ln.<op>_vjp."
        raise DTypeError("T2", "float arrays to differentiate", "an Interval", hint)
    if isinstance(value, float | np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        got = f"an array of dtype {value.dtype}"
        raise DTypeError("T2", "float arrays to differentiate", got, "Whole numbers have no derivative: use argnums.")
    array = to_numpy(value, "x").array
    return array if array.dtype == OBJECT else value


def zeros_like(value: Any) -> Any:
    """Zeros of the shape, dtype and kind of a value."""
    if isinstance(value, Var) and value.dtype.kind != "f":
        return value.graph.constant(np.zeros(value.shape, value.dtype))
    if isinstance(value, Value):
        return broadcast_to(point(0, value), value.shape)
    if value is None or is_real(value):
        return None if value is None else 0 * value
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return np.zeros_like(value)
    taken = to_numpy(value, "a result")
    return from_numpy(np.zeros(taken.array.shape, taken.array.dtype), taken.kind)


# ---- reverse mode


_Step = tuple[type[Op], str, tuple[Any, ...], tuple[Any, ...], Any, list[int]]


class Tape:
    """The steps of one computation: what each read, what it made, and whose results it read (-1: nobody's)."""

    __slots__ = ("inputs", "steps")

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.steps: list[_Step] = []

    def pull(self, cotangents: list[Any]) -> list[Any]:
        """The cotangents of the inputs, from those of inputs and steps, which are spent."""
        inputs = self.inputs
        for at in range(len(cotangents) - 1, inputs - 1, -1):
            g = cotangents[at]
            if g is None:
                continue
            kind, arithmetic, options, primals, y, sources = self.steps[at - inputs]
            for wrt, source in enumerate(sources):
                if source < 0:
                    continue
                if arithmetic == "fast":
                    part = kind.pull(options, primals, y, g, wrt)
                else:
                    part = _in(arithmetic, partial(kind.pull, options, wrt=wrt), primals, y, g)
                if part is not None:
                    before = cotangents[source]
                    cotangents[source] = part if before is None else add(before, part)
            cotangents[at] = None
        return cotangents[:inputs]


class ReverseTracer(Tracer):
    """A value that remembers how it was made."""

    __slots__ = ("at", "tape")

    def __init__(self, value: Any, tape: Tape, at: int, level: int) -> None:
        self.value, self.tape, self.at, self.level = value, tape, at, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        level, tape = self.level, self.tape
        values, sources = [], []
        for o in operands:
            mine = type(o) is ReverseTracer and o.level == level
            values.append(o.value if mine else o)
            sources.append(o.at if mine else -1)
        y = apply(kind, values, arithmetic, *options)
        index: list[Any] = []
        if type(y) is tuple:
            y, *index = y
        steps = tape.steps
        boxed = ReverseTracer(y, tape, tape.inputs + len(steps), level)
        steps.append((kind, arithmetic, options, tuple(values), y, sources))
        return (boxed, *index) if index else boxed


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`f(*primals)`, and the pullback: from a cotangent of the result to one cotangent per primal.

    The pullback reads the primals and the result again: change neither in place before it is called.

    >>> import numpy as np, lunette as ln
    >>> y, pullback = ln.vjp(lambda x: ln.max_pool(x, 2, spatial=1), np.array([[1.0, 3.0, 4.0, 2.0]]))
    >>> y, pullback(np.array([[10.0, 20.0]]))
    (array([[3., 4.]]), (array([[ 0., 10., 20.,  0.]]),))
    """
    check_function(f, "vjp")
    y, pull, _ = _recorded(f, primals, has_aux=False)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """One cotangent per primal, for a cotangent of the result; None is zero."""
        try:
            given = alike("T5", cotangent, y)
        except LunetteError as error:
            sign(error, "pullback")
            raise
        return pull(given)

    return y, pullback


def _recorded(
    f: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[Any, Callable[[list[Any]], tuple[Any, ...]], Any]:
    """The value, its pullback for the leaves of a cotangent, and with `has_aux` what f returns beside the value."""
    level = next(_levels)
    leaves, tree = flat(primals, none_is_leaf=False)
    tape = Tape(len(leaves))
    boxes: list[Any] = []
    try:
        for p in leaves:
            boxes.append(ReverseTracer(checked(p), tape, len(boxes), level))
    except LunetteError as error:
        sign(error, "vjp")
        raise
    y, aux = f(*shaped(tree, boxes)), None
    held = set(map(id, leaves))
    if has_aux:
        if not isinstance(y, tuple | list) or len(y) != 2:
            need = "(value, aux) from a function with has_aux=True"
            raise DTypeError("T3", need, _counted(y), "Return both.", who="grad")
        y, aux = y
        others, beside = flat((aux,))
        aux = shaped(
            beside, fresh([v.value if type(v) is ReverseTracer and v.level == level else v for v in others], held)
        )[0]
    results, out = flat((y,))
    places, values = [], []
    for r in results:
        mine = type(r) is ReverseTracer and r.level == level
        places.append(r.at if mine else -1)
        values.append(r.value if mine else r)
    fresh(values, held)

    def pull(given: list[Any]) -> tuple[Any, ...]:
        cotangents: list[Any] = [None] * (tape.inputs + len(tape.steps))
        for at, g in zip(places, given, strict=True):
            if at >= 0 and g is not None:
                cotangents[at] = g if cotangents[at] is None else add(cotangents[at], g)
        parts = tape.pull(cotangents)
        for at, part in enumerate(parts):
            if part is None:
                parts[at] = zeros_like(leaves[at])
        return tuple(shaped(tree, fresh(parts, set(map(id, given)))))

    return shaped(out, values)[0], pull, aux


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """The function that gives the value of f and its gradient in the arguments `argnums`.

    With `has_aux`, f returns (value, anything), and so does the new function in place of the value.

    >>> import numpy as np, lunette as ln
    >>> ln.value_and_grad(lambda x, a: a * ln.sum(x * x))(np.array([1.0, 2.0]), 3.0)
    (array(15.), array([ 6., 12.]))
    """
    check_function(f, "grad")
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)

    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with error_context("grad"):
            places = [_argument(n, len(args)) for n in numbers]
            if len(set(places)) != len(places):
                hint = "The gradient in an argument is one."
                raise ArgumentError("T4", "argnums that differ", f"argnums={shown(argnums)}", hint)

        def inner(*chosen: Any) -> Any:
            full = list(args)
            for at, value in zip(places, chosen, strict=True):
                full[at] = value
            return f(*full, **kwargs)

        y, pull, aux = _recorded(inner, [args[at] for at in places], has_aux)
        with error_context("grad"):
            if isinstance(y, dict | list | tuple) or shape_of(y) != ():
                got = type(y).__name__ if isinstance(y, dict | list | tuple) else f"shape {shape_of(y)}"
                raise ShapeError("T3", "a function with one result, without axes", got, "Take ln.sum or ln.mean of it.")
        grads = pull([point(1, y)])
        result = grads if isinstance(argnums, tuple | list) else grads[0]
        return ((y, aux) if has_aux else y), result

    return update_wrapper(both, f, updated=())


def _argument(number: Any, size: int) -> int:
    """Rule T4."""
    at = integer("argnums", number)
    if not -size <= at < size:
        need = f"argnums in 0..{size - 1}" if size else "a positional argument"
        raise ArgumentError("T4", need, f"argnums={at}", "It counts positional arguments.")
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
    check_function(f, "trace")
    leaves, tree = trees.tree_flatten(examples)
    names = _names(f, examples)
    with error_context("trace"):
        return _traced(lambda variables: f(*shaped(tree, variables)), leaves, names)[0]


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
            name = name if name not in names else f"{name}_{len(names)}"
            while name in names:
                name += "_"
            names.append(name)
    return names


def _traced(f: Callable[[list[Any]], Any], leaves: Sequence[Any], names: Sequence[str]) -> tuple[Graph, Any, list[Any]]:
    """The graph, the structure of the results, and the results that are no arrays."""
    graph = Graph()
    variables = []
    for v, n in zip(leaves, names, strict=True):
        whole = not _is_static(v) and np.dtype(str(v.dtype).removeprefix("torch.")).kind in "iu"
        variables.append(v if _is_static(v) else graph.input(shape_of(v), np.int64 if whole else v.dtype, n))
    results, out = flat((f(variables),))
    fixed: list[Any] = []
    for r in results:
        if not _is_static(r):
            graph.output(r if isinstance(r, Var) else graph.constant(r))
        fixed.append(r if _is_static(r) else _VARIES)
    if not graph.outputs:
        hint = "Return what it computes."
        raise ArgumentError("G5", "a function that returns arrays", f"{shown(results)}", hint, who="trace")
    return graph, out, fixed


_VARIES = object()


def _is_static(value: Any) -> bool:
    """Numbers of Python's and NumPy's, strings and the like are part of the program."""
    return isinstance(value, np.generic | type) or not (hasattr(value, "dtype") and hasattr(value, "shape"))


def _key(value: Any) -> Any:
    """A number or a string as part of a key, which tells 1, 1.0 and True, and 0.0 and -0.0 apart."""
    if type(value) in (int, float, bool, str):
        return marshal.dumps(value, 2)
    if not isinstance(value, Number | str | bytes | np.generic):
        hint = "Close over it: what a function closes over is read once, when it is traced."
        got = f"{shown(value)} of type {type(value).__name__}"
        raise DTypeError("T2", "arrays, numbers and strings as arguments", got, hint, who="jit")
    return type(value), repr(value)


def _is_numbered(tree: Any) -> bool:
    """Whether a structure has dicts with other keys than strings: 0.0 and -0.0 are equal, their text is not."""
    if tree is None or tree.is_leaf():
        return False
    own = issubclass(tree.type, dict) and any(type(k) is not str for k in tree.entries())
    return own or any(map(_is_numbered, tree.children()))


_Compiled = tuple[Program, Any, list[Any]]
MOST_PROGRAMS: Final = 256


class Jitted:
    """A function that is traced and compiled once for every shape, dtype and static argument it meets.

    The programs that were used last are kept, MOST_PROGRAMS of them. As a method, it is one function per object.
    """

    def __init__(self, f: Callable[..., Any], debug: bool) -> None:
        self.f, self.debug = f, debug
        self.programs: OrderedDict[Any, _Compiled | None] = OrderedDict()
        self.numbered: set[Any] = set()
        self.methods: dict[int, tuple[weakref.ref[Any], Jitted]] = {}
        update_wrapper(self, f, updated=())

    def __repr__(self) -> str:
        return f"ln.jit({getattr(self.f, '__qualname__', self.f)})"

    def __get__(self, owner: Any, kind: Any = None) -> Jitted:
        if owner is None:
            return self
        if id(owner) not in self.methods:
            f, methods, at = self.f, self.methods, id(owner)
            try:
                weak = weakref.ref(owner, lambda _: methods.pop(at, None))
            except TypeError:
                need, hint = "a method of an object with weak references", 'Add "__weakref__" to its __slots__.'
                raise DTypeError("T6", need, f"one of type {type(owner).__name__}", hint, who="jit") from None
            method = update_wrapper(lambda *args, **kwargs: f(weak(), *args, **kwargs), f, updated=())
            del method.__wrapped__  # its signature has no self
            methods[at] = weak, Jitted(method, self.debug)
        return self.methods[id(owner)][1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = flat((*args, kwargs) if kwargs else args, none_is_leaf=False)
        facts: list[Any] = []
        arrays: list[Any] = []
        for v in leaves:
            if type(v) is np.ndarray:
                facts.append((v.shape, v.dtype))
                arrays.append(v)
            elif isinstance(v, Value):
                return self.f(*args, **kwargs)  # part of a larger graph, or of a derivative
            elif _is_static(v):
                facts.append(_key(v))
            else:
                facts.append((v.shape, v.dtype))
                arrays.append(v)
        key: Any = tree, not kwargs, tuple(facts)
        if self.numbered and tree in self.numbered:
            key = *key, str(tree)
        programs = self.programs
        known: Any = programs.get(key, _VARIES)
        if known is _VARIES:
            if len(key) == 3 and _is_numbered(tree):
                self.numbered.add(tree)
                key = *key, str(tree)
            known = self._compile(kwargs, tree, leaves) if all(map(_computes_in, arrays)) else None
            programs[key] = known
            if len(programs) > MOST_PROGRAMS:
                programs.popitem(last=False)
        elif len(programs) > MOST_PROGRAMS // 2:  # before, nothing will be dropped soon
            with suppress(KeyError):  # another thread may have dropped it
                programs.move_to_end(key)
        if known is None:
            return self._watched(kwargs, tree, leaves) if self.debug else self.f(*args, **kwargs)
        program, out, fixed = known
        y = program(*arrays)
        if out is None and len(program.graph.outputs) == 1:
            return y
        found = iter(y if len(program.graph.outputs) > 1 else (y,))
        return shaped(out, [next(found) if r is _VARIES else r for r in fixed])[0]

    def _again(self, kwargs: Any, tree: Any, leaves: Sequence[Any]) -> Any:
        """The call with other leaves."""
        args = list(shaped(tree, leaves))
        return self.f(*args[:-1], **args[-1]) if kwargs else self.f(*args)

    def _compile(self, kwargs: Any, tree: Any, leaves: list[Any]) -> _Compiled:
        names = [f"x{at}" for at in range(len(leaves))]
        graph, out, fixed = _traced(lambda variables: self._again(kwargs, tree, variables), leaves, names)
        return graph.compile(debug=self.debug), out, fixed

    def _watched(self, kwargs: Any, tree: Any, leaves: list[Any]) -> Any:
        """Operator by operator, to name the first that makes a NaN."""
        level = next(_levels)
        results, out = flat((self._again(kwargs, tree, [v if _is_static(v) else NanTracer(v, level) for v in leaves]),))
        return shaped(out, [r.value if type(r) is NanTracer and r.level == level else r for r in results])[0]


class NanTracer(Tracer):
    """A value that must not be NaN, rule G10."""

    __slots__ = ()

    def __init__(self, value: Any, level: int) -> None:
        self.value, self.level = value, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        level = self.level
        values = [o.value if type(o) is NanTracer and o.level == level else o for o in operands]
        y = apply(kind, values, arithmetic, *options)
        y, *index = y if type(y) is tuple else (y,)
        refuse_nan(kind, values, y, line_of_the_user())
        boxed = NanTracer(y, level)
        return (boxed, *index) if index else boxed


def _computes_in(array: Any) -> bool:
    """Whether compiled programs take this array: float32, float64 and integers; others run operator by operator."""
    name = str(array.dtype).removeprefix("torch.")
    return name in ("float32", "float64", "int64", "int32")


def jit(f: Callable[..., Any] | None = None, *, debug: bool = False) -> Any:
    """The function, traced once per shape and dtype, compiled and cached; numbers and strings are static.

    What it closes over, and `self` of a method, is read once, when it is traced.
    With `debug`, a NaN that the function makes is an error that names the operator and the line.

    >>> import numpy as np, lunette as ln
    >>> layer = ln.jit(lambda x: ln.max_pool(ln.relu(x), 2))
    >>> layer(np.ones((1, 1, 4, 4), np.float32)).shape
    (1, 1, 2, 2)
    """
    if f is None:
        return lambda g: jit(g, debug=debug)
    check_function(f, "jit")
    return Jitted(f, debug)
