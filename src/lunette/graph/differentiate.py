"""Derivatives of Python functions made of lunette's operators: jvp, vjp, grad.

A value that is being differentiated is a tracer: it keeps the tangent beside it (forward mode) or remembers the step
(reverse mode).

| rule | says                                                                            |
|------|---------------------------------------------------------------------------------|
| T1   | tangents have the structure and shapes of the primals                           |
| T2   | float arrays are differentiated; jit takes arrays, numbers and strings          |
| T3   | grad and value_and_grad need a result without axes; with has_aux, (value, aux)  |
| T4   | argnums name arguments of the function, each once                               |
| T5   | a cotangent has the structure and shapes of the result                          |
| T6   | what is transformed, or called, is a function                                   |

Results are fresh: nobody else holds their memory. A pullback, when it is called, reads arguments and result again.
Derivatives are computed in the arithmetic of the value, operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from lunette.array import FLOAT, Recorder, from_numpy, recorder_of, to_numpy
from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, error_context, refuses, shown, sign
from lunette.graph import trees
from lunette.graph.nodes import Var
from lunette.graph.tracer import Tracer, alike, flat, fresh, kind_and_size, point, shaped
from lunette.graph.value import Value, levels
from lunette.graph.walk import reverse
from lunette.number import OBJECT, Array, Interval, is_real
from lunette.op import JVP, VJP, Op, apply
from lunette.ops.binary import add
from lunette.ops.broadcast import broadcast_to
from lunette.ops.glue import shape_of
from lunette.window import integer

P = ParamSpec("P")
R = TypeVar("R")


def check_function(f: Any, who: str) -> None:
    """Rule T6."""
    if not callable(f):
        got = f"{shown(f)} of type {type(f).__name__}"
        raise DTypeError("T6", "a function", got, "It comes first, its arguments after it.", who=who)


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
    level = next(levels)

    def box(v: Any) -> Any:
        if isinstance(v, tuple):
            return tuple(map(box, v))
        return None if v is None else ArithmeticTracer(v, arithmetic, level)

    result = rule(box(primals), box(y), box(more))
    return result.value if type(result) is ArithmeticTracer else result


class ForwardTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("tangent",)

    def __init__(self, value: Any, tangent: Any, level: int) -> None:
        self.value, self.tangent, self.level = value, tangent, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        JVP.require(kind)
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


def jvp(f: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[R, R]:
    """`f(*primals)`, and its derivative in the direction of the tangents; None is a zero tangent.

    >>> import numpy as np, lunette as ln
    >>> ln.jvp(lambda x: ln.sum(x * x), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    (array(5.), array(2.))
    """
    check_function(f, "jvp")
    with error_context("jvp"):
        tuples = isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)
        if not tuples or len(primals) != len(tangents):
            got = " and ".join(kind_and_size(v) for v in (primals, tangents))
            raise DTypeError("T1", "primals and tangents as tuples of one length", got, "Write (x,) and (t,).")
        level = next(levels)
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
    try:
        array = to_numpy(value, "x").array
    except LunetteError as error:
        error.hint = trees.hint_of(value, error.hint)
        raise
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


_Winners = tuple[Recorder, Array]
_Step = tuple[type[Op], str, tuple[Any, ...], tuple[Any, ...], Any, _Winners | None]


class Tape:
    """The inputs and steps of one computation: what each step read, what it made, and whose results it read."""

    __slots__ = ("inputs", "sources", "steps")

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.steps: list[_Step] = []
        self.sources: list[Sequence[int | None]] = [()] * inputs

    def pull(self, cotangents: list[Any]) -> list[Any]:
        """The cotangents of the inputs, from those of inputs and steps, which are spent."""
        inputs, steps = self.inputs, self.steps

        def pull(at: int, wrt: int, g: Any) -> Any:
            kind, arithmetic, options, primals, y, winners = steps[at - inputs]
            if winners is not None and type(g) is np.ndarray:
                recorder, numbers = winners
                return recorder.vjp(numbers, g)
            if arithmetic == "fast":
                return kind.pull(options, primals, y, g, wrt)
            return _in(arithmetic, partial(kind.pull, options, wrt=wrt), primals, y, g)

        return reverse(self.sources, cotangents, pull)[:inputs]


class ReverseTracer(Tracer):
    """A value that remembers how it was made."""

    __slots__ = ("at", "tape")

    def __init__(self, value: Any, tape: Tape, at: int, level: int) -> None:
        self.value, self.tape, self.at, self.level = value, tape, at, level

    def __lunette__(self, kind: type[Op], operands: Sequence[Any], arithmetic: str, options: tuple[Any, ...]) -> Any:
        VJP.require(kind)
        level, tape = self.level, self.tape
        values: list[Any] = []
        sources: list[int | None] = []
        for o in operands:
            mine = type(o) is ReverseTracer and o.level == level
            values.append(o.value if mine else o)
            sources.append(o.at if mine else None)
        winners = None
        recorder = _recorder(kind, values[0], options) if kind.has_indices and arithmetic == "fast" else None
        if recorder is None:
            y = apply(kind, values, arithmetic, *options)
        else:
            y, numbers = recorder.forward(values[0])
            winners = recorder, numbers
        index: list[Any] = []
        if type(y) is tuple:
            y, *index = y
        steps = tape.steps
        boxed = ReverseTracer(y, tape, tape.inputs + len(steps), level)
        steps.append((kind, arithmetic, options, tuple(values), y, winners))
        tape.sources.append(sources)
        return (boxed, *index) if index else boxed


def _recorder(kind: type[Op], x: Any, options: tuple[Any, ...]) -> Recorder | None:
    """What keeps the winners of a pool for the way back, instead of finding them anew in x; None: nothing can."""
    if type(x) is not np.ndarray or x.dtype not in FLOAT or not (x.flags.c_contiguous and x.flags.aligned):
        return None
    found = recorder_of(kind, x.shape, x.dtype, options)
    return None if found is None or found.resolved.op.return_indices else found


def vjp(f: Callable[..., R], *primals: Any) -> tuple[R, Callable[[Any], tuple[Any, ...]]]:
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
    level = next(levels)
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
            raise DTypeError("T3", need, kind_and_size(y), "Return both.", who="grad")
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


@refuses
def value_and_grad(
    f: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]:
    """The function that gives the value of f and its gradient in the arguments `argnums`.

    With `has_aux`, f returns (value, anything), and so does the new function in place of the value.

    >>> import numpy as np, lunette as ln
    >>> ln.value_and_grad(lambda x, a: a * ln.sum(x * x))(np.array([1.0, 2.0]), 3.0)
    (array(15.), array([ 6., 12.]))
    """
    check_function(f, "grad")
    on_tracers: Callable[..., R] = f
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)

    def both(*args: P.args, **kwargs: P.kwargs) -> tuple[R, Any]:
        with error_context("grad"):
            places = [_argument(n, len(args)) for n in numbers]
            if len(set(places)) != len(places):
                hint = "The gradient in an argument is one."
                raise ArgumentError("T4", "argnums that differ", f"argnums={shown(argnums)}", hint)

        def inner(*chosen: Any) -> Any:
            full = list(args)
            for at, value in zip(places, chosen, strict=True):
                full[at] = value
            return on_tracers(*full, **kwargs)

        y, pull, aux = _recorded(inner, [args[at] for at in places], has_aux)
        with error_context("grad"):
            if isinstance(y, dict | list | tuple) or shape_of(y) != ():
                got = type(y).__name__ if isinstance(y, dict | list | tuple) else f"shape {shape_of(y)}"
                raise ShapeError("T3", "a function with one result, without axes", got, "Take ln.sum or ln.mean of it.")
        grads = pull([point(1, y)])
        result = grads if isinstance(argnums, tuple | list) else grads[0]
        return (cast("R", (y, aux)) if has_aux else y), result

    return update_wrapper(both, f, updated=())


def _argument(number: Any, size: int) -> int:
    """Rule T4."""
    at = integer("argnums", number)
    if not -size <= at < size:
        need = f"argnums in 0..{size - 1}" if size else "a positional argument"
        raise ArgumentError("T4", need, f"argnums={at}", "It counts positional arguments.")
    return at % size


@refuses
def grad(f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[P, Any]:
    """The function that gives the gradient of f, which has a result without axes; with `has_aux`, (gradient, aux).

    >>> import numpy as np, lunette as ln
    >>> ln.grad(lambda x: ln.sum(ln.relu(x)))(np.array([-1.0, 2.0]))
    array([0., 1.])
    """
    both = value_and_grad(f, argnums, has_aux)

    def gradient(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return update_wrapper(gradient, f, updated=())
