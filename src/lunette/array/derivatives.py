"""`ln.<op>_jvp` and `ln.<op>_vjp`: the derivatives of every operator on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lunette.array.foreign import cells, dense
from lunette.array.resolved import resolve_cached
from lunette.array.run import Call, computing, has_box, is_other_arithmetic, prepare, run, run_quickly, samples, whole
from lunette.errors import DTypeError, error_context
from lunette.number import (
    Array,
    cells_of,
)
from lunette.op import (
    JVP,
    VJP,
    Arithmetic,
    Op,
    check_shape,
    check_tangents,
    outline,
    parameters_of,
    request_at,
    resolve,
)
from lunette.ops import derivative
from lunette.window import Shape


def jvp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_jvp`: the derivative of an operator in the direction of tangents."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, arithmetic: Arithmetic = "fast", **options: Any) -> Any:
        full = (
            (*tangents, *(None,) * (len(kind.arrays) - len(tangents))) if isinstance(tangents, tuple | list) else None
        )
        quick = _run_derived_quickly(function, kind, primals, full, arithmetic, options, (derivative.jvp_of(kind),))
        if quick is not None:
            return quick[0]
        JVP.require(kind)
        if is_other_arithmetic(arithmetic) or has_box(primals) or has_box(tangents):
            asked = request_at(function, kind, primals, options)
            check_tangents(tangents, primals)
            return run(derivative.jvp_of(kind), (*asked.operands, *(full or ())), arithmetic, asked.options)
        call = _at(function, kind, primals, arithmetic, options)
        op = call.resolved.op
        with computing(kind, call.resolved.d, *call.arrays):
            check_tangents(tangents, primals)
            names = [f"the tangent of {n}" for n in kind.arrays[: len(primals)]]
            directions = call.also(tangents, names, [() if a is None else a.shape for a in call.arrays[: len(primals)]])
            directions += [None] * (len(call.arrays) - len(primals))
            y = call.new(call.resolved.out)
            if y.size == 0 or all(t is None for t in directions):
                y[...] = 0
            elif call.resolved.kernels.jvp is not None:
                call.resolved.kernels.jvp(*(dense(a) for a in call.arrays), *(dense(t) for t in directions), y)
                _remember(derivative.jvp_of(kind), (*call.arrays, *directions), function, arithmetic, options)
            else:
                arrays, (t, *shared) = [cells(a) for a in call.arrays], [cells(t) for t in directions]
                for at, one in samples(call.resolved, arrays):
                    y[whole(at)] = op.jvp(one, (None if t is None else t[at], *shared))
            return call.result(y)

    return _named(jvp, function, "jvp", "The derivative of {} at `primals` in the direction of `tangents`.")


def check_cotangent(cotangent: Any, out: Shape) -> None:
    """Rule O3."""
    if cotangent is None:
        raise DTypeError("O3", "a cotangent", "None", f"Pass an array of shape {out}.")


def vjp_of(function: Callable[..., Any], kind: type[Op]) -> Callable[..., Any]:
    """`ln.<op>_vjp`: the transposed derivative of an operator, applied to a cotangent."""

    def vjp(primals: Sequence[Any], cotangent: Any, *, arithmetic: Arithmetic = "fast", **options: Any) -> Any:
        given = len(primals) if isinstance(primals, tuple | list) else 0
        asked = [derivative.vjp_of(kind, p) for p in range(min(given, len(kind.arrays)))]
        quick = _run_derived_quickly(function, kind, primals, (cotangent,), arithmetic, options, asked)
        if quick is not None:
            return quick
        VJP.require(kind)
        if is_other_arithmetic(arithmetic) or has_box(primals) or has_box((cotangent,)):
            at = request_at(function, kind, primals, options)
            if at.operands[0] is None:
                with error_context(kind.name):
                    cells_of(None, kind.arrays[0])  # refuses it, as every other call does
            resolved = resolve(kind, [None if a is None else outline(a) for a in at.operands], 2, at.options)
            with error_context(kind.name, resolved.d):
                check_cotangent(cotangent, resolved.out)
                check_shape("the cotangent", resolved.out, outline(cotangent))
            return tuple(
                None if p is None else run(derived, (*at.operands, cotangent), arithmetic, at.options)
                for derived, p in zip(asked, at.operands, strict=False)
            )
        call = _at(function, kind, primals, arithmetic, options)
        with computing(kind, call.resolved.d, *call.arrays):
            check_cotangent(cotangent, call.resolved.out)
            (g,) = call.also([cotangent], ["the cotangent"], [call.resolved.out])
            results = [None if a is None else call.new(a.shape) for a in call.arrays]
            if call.resolved.kernels.vjp:
                arrays = [dense(a) for a in (*call.arrays, g)]
                for wrt, r in enumerate(results[: len(primals)]):
                    if r is not None:
                        call.resolved.kernels.vjp[wrt](*arrays, r)
                        _remember(derivative.vjp_of(kind, wrt), (*call.arrays, g), function, arithmetic, options)
            else:
                _vjp_of_samples(call, cells(g), results)
            return tuple(call.result(r) for r in results[: len(primals)])

    return _named(vjp, function, "vjp", "The transposed derivative of {} at `primals`, applied to `cotangent`.")


def _options(function: Callable[..., Any], kind: type[Op], options: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The options in order, where all names are known; arrays may be among the names."""
    defaults = defaults_of(function, kind)
    if options.keys() <= defaults.keys():
        return tuple({**defaults, **options}.values())
    if not all(n in defaults or n in kind.arrays for n in options):
        return None
    return tuple([options.get(n, d) for n, d in defaults.items()])


@lru_cache
def defaults_of(function: Callable[..., Any], kind: type[Op]) -> dict[str, Any]:
    """The options of a public function in order, each with its default."""
    given = parameters_of(function)
    return {n: p.default for n, p in given.items() if n not in (*kind.arrays, "arithmetic")}


def _run_derived_quickly(
    function: Callable[..., Any],
    kind: type[Op],
    primals: Any,
    others: Any,
    arithmetic: str,
    options: Mapping[str, Any],
    asked: Sequence[type[Op]],
) -> tuple[Array, ...] | None:
    """The short way for derivatives that were computed before, as `_quickly` is for values."""
    if type(primals) is not tuple or type(others) is not tuple or len(primals) > len(kind.arrays):
        return None
    ordered = _options(function, kind, options)
    if ordered is None or not options.keys().isdisjoint(kind.arrays[: len(primals)]):
        return None
    given = (*primals, *map(options.get, kind.arrays[len(primals) :]), *others)
    results = []
    for derived in asked:
        if len(given) != len(derived.arrays):
            return None
        result = run_quickly(derived, given, arithmetic, ordered)
        if result is None:
            return None
        results.append(result)
    return tuple(results)


def _remember(
    derived: type[Op],
    arrays: Sequence[Any],
    function: Callable[..., Any],
    arithmetic: str,
    options: Mapping[str, Any],
) -> None:
    """Bind a derivative that was just computed, so that the next call goes the short way."""
    ordered = _options(function, derived.base, options)  # type: ignore[attr-defined]
    if ordered is not None:
        resolve_cached(derived, arrays, arithmetic, ordered)


def _vjp_of_samples(call: Call, g: Array | None, results: Sequence[Array | None]) -> None:
    """Sample by sample for x; summed over the samples for the arrays that all samples share."""
    assert g is not None and results[0] is not None
    arrays = [cells(a) for a in call.arrays]
    sums: list[Array] = []
    for at, one in samples(call.resolved, arrays):
        results[0][whole(at)], *shared = call.resolved.op.vjp(one, g[at])
        sums = [a + b for a, b in zip(sums, shared, strict=True)] if sums else shared
    for p, r in enumerate(results[1:]):
        if r is not None:
            r[...] = sums[p] if sums else 0


def _at(
    function: Callable[..., Any], kind: type[Op], primals: Any, arithmetic: str, options: Mapping[str, Any]
) -> Call:
    """Bind as the function itself would; arrays that are not primals may be among the options."""
    return prepare(request_at(function, kind, primals, {**options, "arithmetic": arithmetic}))


def _named(derivative: Callable[..., Any], function: Callable[..., Any], suffix: str, text: str) -> Callable[..., Any]:
    derivative.__name__ = derivative.__qualname__ = f"{function.__name__}_{suffix}"
    derivative.__doc__ = f"{text.format(function.__name__)} Options are keywords, as in `ln.{function.__name__}`."
    derivative.__module__ = function.__module__
    return derivative
