"""Operators by name, and shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lunette import ops
from lunette.errors import ArgumentError, DTypeError, error_context, meant, shown
from lunette.op import (
    ResolvedOp,
    check_arithmetic,
    known_rank,
    named_request,
    resolve,
)
from lunette.window import Shape, integer, is_sequence


def lookup(op: Any) -> tuple[Callable[..., Any], type[ops.Windowed]]:
    """An operator by its name, or by the public function itself."""
    for kind, function in ops.ALL.items():
        if op is function or op is kind or (isinstance(op, str) and op == kind.name):
            return function, kind
    names = [kind.name for kind in ops.ALL]
    hint = meant(op, names, "Pass its name or the function.")
    raise ArgumentError("O1", f"an operator among {', '.join(names)}", f"op={shown(op)}", hint)


def output_shape(op: Any, *shapes: Shape, **options: Any) -> Shape:
    """The shape that an operator's result would have; `op` is its name or the function, `shapes` those of the arrays.

    >>> import lunette as ln
    >>> ln.output_shape("max_pool", (8, 3, 32, 32), kernel=3, stride=2, padding=1)
    (8, 3, 16, 16)
    >>> ln.output_shape(ln.conv, (8, 3, 32, 32), (16, 3, 5, 5), padding="same")
    (8, 16, 32, 32)
    """
    with error_context("output_shape"):
        return resolve_named(op, shapes, options).out


def resolve_named(op: Any, shapes: Sequence[Any], options: Mapping[str, Any], lead: int = 2) -> ResolvedOp:
    """The operator value that these shapes and options make."""
    function, kind = lookup(op)
    given = {**dict.fromkeys((n for n in kind.scalars if n not in options), ()), **options}
    named = dict(zip(kind.arrays, shapes, strict=False))
    asked = named_request(function, named, {n: v for n, v in given.items() if n not in named or n in options}, lead)
    outlines = [tuple(a[:65]) if is_sequence(a) else () for a in asked.operands]
    with error_context(kind.name, known_rank(kind, outlines, lead, asked.options)):
        check_arithmetic(asked)
        if len(shapes) > len(kind.arrays):
            need = f"the shapes of {', '.join(kind.arrays)}"
            raise ArgumentError("O2", need, f"{len(shapes)} shapes", "Options are keywords.")
        sizes = [
            () if n in kind.scalars and not is_sequence(a) else check_sizes(n, a)
            for n, a in zip(kind.arrays, asked.operands, strict=True)
        ]
    return resolve(kind, sizes, lead, asked.options)


def check_sizes(name: str, shape: Any) -> Shape | None:
    """Rule O4."""
    if shape is None and name != "x":
        return None
    if not is_sequence(shape) or len(shape) > 64:
        got = f"{shown(shape)} of type {type(shape).__name__}"
        raise DTypeError("O4", f"the shape of {name} as a tuple of at most 64 sizes", got, f"Pass {name}.shape.")
    sizes = tuple(integer(f"a size of {name}", m) for m in shape)
    if any(m < 0 for m in sizes):
        raise ArgumentError("O4", f"sizes of {name} >= 0", f"shape {sizes}", f"Pass {name}.shape.")
    return sizes
