"""Which rules exist for which operator: what can be computed, differentiated and bounded, told before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from lunette.graph.text import kinds
from lunette.op import Op
from lunette.page import inset
from lunette.rules import MISSING, Interpretation


class Known(frozenset[str]):
    """The rules that an operator has, by name. `how` tells of every rule there is by which way it is had."""

    how: Mapping[str, str]

    def __new__(cls, how: Mapping[str, str]) -> Known:
        known = super().__new__(cls, (name for name, way in how.items() if way != MISSING))
        known.how = dict(how)
        return known

    def __reduce__(self) -> tuple[type[Known], tuple[Mapping[str, str]]]:
        return Known, (self.how,)


class Table(dict[str, Known]):
    """Operators and their rules. Print it to read how each of them is had."""

    def __str__(self) -> str:
        columns = list(Interpretation.every)
        rows = [["", *columns], *([name, *(known.how[c] for c in columns)] for name, known in self.items())]
        widths = [max(len(row[at]) for row in rows) for at in range(len(columns) + 1)]
        return "\n".join("  ".join(f"{e:{w}}" for e, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        """What notebooks show: what is missing stands out."""
        columns = list(Interpretation.every)
        rows = [[f"<b>{escape(name)}</b>", *(_way(known.how[c]) for c in columns)] for name, known in self.items()]
        return inset(("operator", *columns), rows)


def _way(how: str) -> str:
    return f'<span style="color:#c43d3d">{escape(how)}</span>' if how == MISSING else escape(how)


def rules() -> dict[str, Known]:
    """For every operator that a graph can hold, the rules it has: those of lunette.rules.

    "spec": the meaning on any number type; "kernel": compiled; "jvp" and "vjp": derivatives, which can be
    differentiated again; each arithmetic beside "fast"; and "relax": lines for
    `ln.bounds`, without which it takes the interval. What an operator does not have is refused before anything
    runs; without a kernel, arrays are computed by the specification, and programs are refused.

    >>> import lunette as ln
    >>> sorted(ln.rules()["max_pool"])
    ['interval', 'jvp', 'kernel', 'relax', 'rounded', 'spec', 'vjp']
    >>> ln.rules()["max_pool"].how["interval"]
    'derived: monotone and exact'
    """
    return Table({name: rules_of(kind) for name, kind in kinds().items()})


def rules_of(kind: type[Op]) -> Known:
    """The same for one operator, which need not be one of lunette's."""
    return Known({name: column.how(kind) for name, column in Interpretation.every.items()})
