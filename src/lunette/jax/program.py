"""Compiled programs as functions of JAX: `program.to_jax()`.

A program is one call of compiled code, and so is each of its derivatives, which are programs, too:

    program_p   y = P(x), and the forward half of a gradient, whose further results are what the other half needs
    tangent_p   dy = DP(x) t, linear in t; its transpose is the other half of the gradient

`vmap` runs a program sample by sample: its shapes are part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from lunette import _native
from lunette.graph.derive import jvp_graph
from lunette.graph.nodes import Nodes
from lunette.graph.program import Program
from lunette.graph.text import write
from lunette.jax.lowering import refuse_platform, wide_integers
from lunette.jax.transform import no_tangent, sample_by_sample
from lunette.jax.way import TARGET, calls

program_p, tangent_p = Primitive("lunette_program"), Primitive("lunette_tangent")
program_p.multiple_results = tangent_p.multiple_results = True


def to_jax(program: Program) -> Callable[..., Any]:
    """The program as a function of arrays of JAX; several outputs give a tuple."""

    def call(*inputs: Any, **named: Any) -> Any:
        # The program checks what it would be given: arrays of these shapes and dtypes.
        arrays, _ = program._take([_empty(a) for a in inputs], {k: _empty(a) for k, a in named.items()})
        given = [*inputs, *(named[n.name] for n in program.graph.inputs[len(inputs) :] if n.name is not None)]
        values = [jnp.asarray(v, None if hasattr(v, "dtype") else a.dtype) for v, a in zip(given, arrays, strict=True)]
        results = program_p.bind(*values, program=program, way=calls())
        return results[0] if len(results) == 1 else tuple(results)

    call.__name__ = call.__qualname__ = "program"
    call.__doc__ = (
        f"A compiled program of lunette's: {', '.join(f'{n.name} : {n.short}' for n in program.graph.inputs)}."
    )
    return call


def _empty(value: Any) -> Any:
    """An array like a value of JAX; numbers are themselves."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return value
    return np.zeros(value.shape, value.dtype)


# ---- calls


def _outputs(graph: Nodes) -> list[Any]:
    """Shapes and dtypes of the results. JAX may have no 64-bit integers."""
    nodes = [graph.nodes[at] for at in graph.outputs]
    return [jax.ShapeDtypeStruct(n.shape, jax.dtypes.canonicalize_dtype(n.dtype)) for n in nodes]


@program_p.def_abstract_eval
def _abstract(*avals: Any, program: Program, way: str) -> list[Any]:
    return [jax.core.ShapedArray(o.shape, o.dtype) for o in _outputs(program.graph)]


@program_p.def_impl
def _computed(*inputs: Any, program: Program, way: str) -> Any:
    with jax.disable_jit(False):  # under which this would call itself
        return _compiled(program, way)(*inputs)


@lru_cache(maxsize=256)
def _compiled(program: Program, way: str) -> Callable[..., Any]:
    return jax.jit(lambda *inputs: program_p.bind(*inputs, program=program, way=way))


def _by_callback(*inputs: Any, program: Program) -> Any:
    results = _outputs(program.graph)
    nodes = program.graph.inputs

    def compute(*arrays: Any) -> list[Any]:
        given = [np.asarray(a, n.dtype, order="C") for a, n in zip(arrays, nodes, strict=True)]
        found: Any = _native.with_plain_floats(lambda: program(*given))
        found = found if isinstance(found, tuple) else (found,)
        return [np.asarray(y, r.dtype) for y, r in zip(found, results, strict=True)]

    return jax.pure_callback(compute, results, *inputs)


def _by_ffi(*inputs: Any, program: Program) -> Any:
    """The constants are operands as well: compiled code owns what it needs."""
    _native.keep_plan(_name(program), program._plan)
    with wide_integers():
        given = [jnp.asarray(a, n.dtype) for a, n in zip(inputs, program.graph.inputs, strict=True)]
        constants = [jnp.asarray(c) for c in program._constants]
        made = [jax.ShapeDtypeStruct(n.shape, n.dtype) for n, source in program._outputs if source is None]
        found = iter(jax.ffi.ffi_call(TARGET, made)(*given, *constants, name=_name(program)) if made else ())
        results: list[Any] = []
        for n, source in program._outputs:
            value = next(found) if source is None else source
            # A copy of an input (counted from the end), of an earlier result, or of a constant.
            value = [*results, *given][value] if isinstance(value, int) else jnp.asarray(value)
            results.append(value.reshape(n.shape))
    return [r.astype(o.dtype) for r, o in zip(results, _outputs(program.graph), strict=True)]


@lru_cache(maxsize=1024)
def _name(program: Program) -> str:
    """A name that says all that the plan depends on."""
    facts = hashlib.sha256(f"{write(program.graph)} {program.fuse}".encode())
    for n in program.graph.nodes:
        if n.value is not None:
            facts.update(np.ascontiguousarray(n.value).tobytes())
    return f"program {facts.hexdigest()}"


def _lower(ctx: Any, *inputs: Any, program: Program, way: str) -> Any:
    f = _by_ffi if way == "ffi" and not program.debug else _by_callback  # Python looks for NaN
    return mlir.lower_fun(f, multiple_results=True)(ctx, *inputs, program=program)


mlir.register_lowering(program_p, _lower, platform="cpu")
mlir.register_lowering(program_p, refuse_platform)


# ---- derivatives: programs of their own


def _pair(program: Program) -> tuple[Program, Program, list[int]]:
    """Both halves of the gradient, as JAX may differentiate them again."""
    return program._pair(records=False)


def _tangent(program: Program, moving: tuple[bool, ...]) -> Program:
    """From the inputs, and tangents of those that are moving, to tangents of the results."""

    def make() -> Nodes:
        graph = jvp_graph(program.graph, moving)
        graph.outputs = [at for at in graph.outputs[len(program.graph.outputs) :] if graph.nodes[at].dtype.kind == "f"]
        return graph

    return program._derive(("tangent", moving), make)


def _backward(program: Program, moving: tuple[bool, ...]) -> Program:
    """The other half of the gradient, of those inputs that are moving."""

    def make() -> Nodes:
        graph = _pair(program)[1].graph.copy()
        measured = [m for m, n in zip(moving, program.graph.inputs, strict=True) if n.dtype.kind == "f"]
        graph.outputs = [at for at, m in zip(graph.outputs, measured, strict=True) if m]
        return graph

    return program._derive(("backward", moving), make)


def _push(program: Program, inputs: Sequence[Any], tangents: Sequence[Any], way: str) -> tuple[list[Any], list[Any]]:
    """The results and their tangents; a tangent None is zero."""
    moving = tuple(t is not None for t in tangents)
    measured = [o.dtype.kind == "f" for o in _outputs(program.graph)]
    if not any(moving) or not any(measured):
        results = program_p.bind(*inputs, program=program, way=way)
        return results, [None] * len(results)
    forward, _, _ = _pair(program)
    all_results = program_p.bind(*inputs, program=forward, way=way)
    results, kept = all_results[: len(measured)], all_results[len(measured) :]
    given = [t for t in tangents if t is not None]
    slopes = iter(tangent_p.bind(*inputs, *kept, *given, program=program, moving=moving, way=way))
    return results, [next(slopes) if m else None for m in measured]


def _given(tangents: Sequence[Any]) -> list[Any]:
    """Tangents, None for those that are zero."""
    return [None if type(t) is ad.Zero or t.dtype == jax.dtypes.float0 else jnp.asarray(t) for t in tangents]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, way: str) -> tuple[list[Any], list[Any]]:
    results, slopes = _push(program, [jnp.asarray(p) for p in primals], _given(tangents), way)
    return results, [no_tangent(r) if t is None else t for r, t in zip(results, slopes, strict=True)]


ad.primitive_jvps[program_p] = _jvp


# tangent_p: the inputs of the program, what `forward` kept, and tangents of those inputs that are moving.


@tangent_p.def_abstract_eval
def _abstract_tangent(*avals: Any, program: Program, moving: tuple[bool, ...], way: str) -> list[Any]:
    return [jax.core.ShapedArray(o.shape, o.dtype) for o in _outputs(program.graph) if o.dtype.kind == "f"]


@tangent_p.def_impl
def _computed_tangent(*operands: Any, **parameters: Any) -> Any:
    with jax.disable_jit(False):
        return jax.jit(lambda *a: tangent_p.bind(*a, **parameters))(*operands)


def _split(operands: Sequence[Any], moving: Sequence[bool]) -> tuple[list[Any], list[Any], list[Any]]:
    """Inputs, what was kept, tangents."""
    n, m = len(moving), len(operands) - sum(moving)
    return list(operands[:n]), list(operands[n:m]), list(operands[m:])


def _lower_tangent(ctx: Any, *operands: Any, program: Program, moving: tuple[bool, ...], way: str) -> Any:
    """By a program of its own, which needs nothing that was kept."""

    def f(*operands: Any) -> Any:
        inputs, _, tangents = _split(operands, moving)
        return program_p.bind(*inputs, *tangents, program=_tangent(program, moving), way=way)

    return mlir.lower_fun(f, multiple_results=True)(ctx, *operands)


mlir.register_lowering(tangent_p, _lower_tangent)


def _jvp_tangent(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, moving: tuple[bool, ...], way: str
) -> tuple[list[Any], list[Any]]:
    """What was kept is a function of the inputs: their tangents say all."""
    inputs, kept, t = _split([jnp.asarray(p) for p in primals], moving)
    bend, _, turn = _split(_given(tangents), moving)
    results = tangent_p.bind(*primals, program=program, moving=moving, way=way)
    slopes: list[Any] = [None] * len(results)
    if any(u is not None for u in turn):
        found = iter(turn)
        still = tuple(m and next(found) is not None for m in moving)
        given = [u for u in turn if u is not None]
        slopes = tangent_p.bind(*inputs, *kept, *given, program=program, moving=still, way=way)
    if any(s is not None for s in bend):
        _, more = _push(_tangent(program, moving), [*inputs, *t], [*bend, *(None for _ in t)], way)
        slopes = [a if b is None else b if a is None else a + b for a, b in zip(slopes, more, strict=True)]
    return results, [no_tangent(r) if s is None else s for r, s in zip(results, slopes, strict=True)]


def _transpose_tangent(
    cotangents: Sequence[Any], *operands: Any, program: Program, moving: tuple[bool, ...], way: str
) -> list[Any]:
    inputs, kept, _ = _split(operands, moving)
    results = [o for o in _outputs(program.graph) if o.dtype.kind == "f"]
    g = [jnp.zeros(r.shape, r.dtype) if type(c) is ad.Zero else c for c, r in zip(cotangents, results, strict=True)]
    _, _, again = _pair(program)
    backward = _backward(program, moving)
    back = program_p.bind(*(inputs[p] for p in again), *kept, *g, program=backward, way=way)
    return [None] * (len(inputs) + len(kept)) + list(back)


ad.primitive_jvps[tangent_p] = _jvp_tangent
ad.primitive_transposes[tangent_p] = _transpose_tangent
for _primitive in (program_p, tangent_p):
    batching.primitive_batchers[_primitive] = sample_by_sample(_primitive)
