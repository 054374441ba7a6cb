"""Which rules exist for which operator: what can be computed, differentiated and bounded, told before anything runs."""

from __future__ import annotations

from lunette.graph.text import kinds
from lunette.op import ARITHMETICS, Op
from lunette.ops.derivative import has_kernels


def rules() -> dict[str, frozenset[str]]:
    """For every operator that a graph can hold, the rules it has.

    "spec": the meaning on any number type; "kernel": compiled; "jvp" and "vjp": derivatives, which can be
    differentiated again; and each arithmetic beside "fast".

    >>> import lunette as ln
    >>> sorted(ln.rules()["max_pool"])
    ['interval', 'jvp', 'kernel', 'rounded', 'spec', 'vjp']
    """
    return {name: frozenset(_rules(kind)) for name, kind in kinds().items()}


def _rules(kind: type[Op]) -> set[str]:
    found = {"spec", "jvp", "vjp"}
    if has_kernels(kind):
        found.add("kernel")
    return found | (set(ARITHMETICS) - {"fast"})
