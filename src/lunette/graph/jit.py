"""Graphs from functions: trace, and jit, which compiles what it traced."""

from __future__ import annotations

import inspect
import marshal
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import update_wrapper
from numbers import Number
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

import numpy as np

from lunette.errors import ArgumentError, DTypeError, error_context, shown
from lunette.graph import trees
from lunette.graph.differentiate import check_function
from lunette.graph.graph import Graph
from lunette.graph.nodes import Var, line_of_the_user
from lunette.graph.program import Program, refuse_nan
from lunette.graph.tracer import Tracer, flat, shaped
from lunette.graph.value import Value, levels
from lunette.op import Op, apply
from lunette.ops.glue import shape_of

P = ParamSpec("P")
R = TypeVar("R")


def _names(f: Callable[..., Any], examples: Sequence[Any]) -> list[str]:
    """Names for the leaves: that of the argument, and the keys that lead to them."""
    try:
        parameters = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for at, e in enumerate(examples):
        base = parameters[at] if at < len(parameters) and parameters[at].isidentifier() else f"x{at}"
        for path in trees.paths(e):
            name = re.sub(r"\W", "_", "_".join([base, *map(str, path)]))
            name = name if name not in names else f"{name}_{len(names)}"
            while name in names:
                name += "_"
            names.append(name)
    return names


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
    leaves, tree = trees.flatten(examples)
    names = _names(f, examples)
    with error_context("trace"):
        return _traced(lambda variables: f(*shaped(tree, variables)), leaves, names)[0]


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
        hint = trees.hint_of(value, "Close over it: what a function closes over is read once, when it is traced.")
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


class Jitted(Generic[P, R]):
    """A function that is traced and compiled once for every shape, dtype and static argument it meets.

    The programs that were used last are kept, MOST_PROGRAMS of them. As a method, it is one function per object.
    """

    def __init__(self, f: Callable[P, R], debug: bool) -> None:
        self.f: Callable[..., R] = f  # called with tracers, too
        self.debug = debug
        self.programs: OrderedDict[Any, _Compiled | None] = OrderedDict()
        self.lanes: dict[Any, Callable[..., Any]] = {}  # of the programs that take NumPy arrays as they are
        self.numbered: set[Any] = set()
        self.methods: dict[int, tuple[weakref.ref[Any], Jitted[..., R]]] = {}
        update_wrapper(self, f, updated=())

    def __repr__(self) -> str:
        return f"ln.jit({getattr(self.f, '__qualname__', self.f)})"

    def __get__(self, owner: Any, kind: Any = None) -> Jitted[..., R]:
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

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.lanes and not kwargs:
            lane = self.lanes.get(tuple([(v.shape, v.dtype) if type(v) is np.ndarray else None for v in args]))
            if lane is not None:
                try:
                    return cast("R", lane(*args))
                except ValueError:  # arrays that are not dense, or values that are refused, which the long way tells
                    pass
        return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> R:
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
            if len(programs) > MOST_PROGRAMS // 2:
                self.lanes.clear()  # which do not tell who was used last
            elif known is not None and tree is None and not kwargs and known[1] is None:
                program = known[0]
                if [(n.shape, n.dtype) for n in program.graph.inputs] == facts and (lane := program.lane()) is not None:
                    self.lanes[key[2]] = lane
        elif len(programs) > MOST_PROGRAMS // 2:  # before, nothing will be dropped soon
            with suppress(KeyError):  # another thread may have dropped it
                programs.move_to_end(key)
        if known is None:
            return self._watched(kwargs, tree, leaves) if self.debug else self.f(*args, **kwargs)
        program, out, fixed = known
        y = program(*arrays)
        if out is None and len(program.graph.outputs) == 1:
            return cast("R", y)
        found = iter(y if len(program.graph.outputs) > 1 else (y,))
        return cast("R", shaped(out, [next(found) if r is _VARIES else r for r in fixed])[0])

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
        level = next(levels)
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


@overload
def jit(f: Callable[P, R], *, debug: bool = False) -> Jitted[P, R]: ...
@overload
def jit(f: None = None, *, debug: bool = False) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
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
