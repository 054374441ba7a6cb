"""Which rules exist for which operator: what can be computed, differentiated and bounded, told before anything runs."""

from __future__ import annotations

from lunette.graph.text import kinds
from lunette.op import ARITHMETICS, Op
from lunette.ops.derivative import Derivative


def rules() -> dict[str, frozenset[str]]:
    """For every operator that a graph can hold, the rules it has.

    "spec": the meaning on any number type; "kernel": compiled; "jvp" and "vjp": derivatives, which can be
    differentiated again; each arithmetic beside "fast"; and "relax": lines for `ln.bounds`, be it because the operator
    is linear, or as one of its own, or of the operators that it is made of. What has none is bounded by its interval.

    >>> import lunette as ln
    >>> sorted(ln.rules()["max_pool"])
    ['interval', 'jvp', 'kernel', 'relax', 'rounded', 'spec', 'vjp']
    """
    return {name: frozenset(_rules(kind)) for name, kind in kinds().items()}


def _rules(kind: type[Op]) -> set[str]:
    found = {"spec", "jvp", "vjp"}
    if issubclass(kind, Derivative) or kind.kernels is not Op.kernels:
        found.add("kernel")
    own = kind.relax is not Op.relax or kind.parts.__func__ is not Op.parts.__func__  # type: ignore[attr-defined]
    if kind.linear_in or kind.jointly_linear or own:
        found.add("relax")
    return found | (set(ARITHMETICS) - {"fast"})
