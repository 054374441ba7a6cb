"""On which configurations two dialects differ, and how.

Every small configuration of an operator is said word by word in both dialects, as a converter would that copies
arguments, and the two meanings are compared: sizes, taps, divisors, refusals. What differs is gathered into classes: a
class is a way to differ together with a smallest set of options that it takes.

| rule | says                                                          |
|------|---------------------------------------------------------------|
| DI6  | op is an operator that both dialects have, or left out        |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, overload

from lunette.array import lookup
from lunette.dialects.configurations import ALTERNATIVES, Configuration, configurations
from lunette.dialects.dialect import Call, Dialect, Unsaid
from lunette.dialects.meaning import Meaning
from lunette.errors import ArgumentError, LunetteError, shown
from lunette.explanation import Explanation
from lunette.ops import KINDS
from lunette.window import Shape, Window, integer

WAYS: Mapping[str, str] = {
    "size": "another number of windows",
    "taps": "windows in other places",
    "divisor": "averages divided by other numbers",
    "rule": "another formula",
    "empty window": "another answer for a window without input cells",
    "refused": "one accepts what the other refuses",
    "unsaid": "one has no word for it",
    "ties": "another derivative where cells are equal",
    "nan": "another maximum of windows with NaN",
    "index": "places counted otherwise",
}
"""The ways to differ, and what each is called."""


@dataclass(frozen=True, slots=True)
class Picture(Explanation):
    """A window table with the sizes and divisors of a dialect: its first axis, the others have one cell."""

    meaning: Meaning

    @property
    def out(self) -> Shape:
        return self.meaning.out[:1]

    def divisor(self, o: Shape) -> Any:
        if self.meaning.divisor is None:
            return None
        return self.meaning.divisor.at((*o, *(0,) * (len(self.meaning.out) - 1)), self.meaning.space)

    def lines(self) -> list[str]:
        """The rows of the table, or that there are none."""
        if 0 in self.meaning.out:
            return ["no windows"]
        return [line.strip() for line in self._axis_lines(self.strips[0])]


def picture(meaning: Meaning) -> Picture:
    """The window table of a meaning."""
    kind: Any = lookup(meaning.op)[1]
    return Picture(kind, Window(meaning.window.axes[:1]), meaning.space[:1], meaning)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a dialect makes of a configuration: a call and its meaning, or an objection."""

    dialect: str
    call: Call | None = None
    meaning: Meaning | None = None
    objection: LunetteError | None = None

    @property
    def text(self) -> str:
        """The call and its size, or the objection."""
        if self.meaning is None:
            return str(self.objection)
        return f"{self.call} -> {self.meaning.out}"

    @property
    def lines(self) -> list[str]:
        """The window table, if there is one."""
        return ["-"] if self.meaning is None else picture(self.meaning).lines()


@dataclass(frozen=True, slots=True)
class Difference:
    """One class of configurations on which two dialects differ."""

    op: str
    kind: str
    """One of WAYS."""
    options: tuple[str, ...]
    """A smallest set of options that it takes."""
    count: int
    """How many of the small configurations are like this."""
    example: Configuration | None
    answers: tuple[Answer, Answer]
    said: tuple[str, str] | None = None
    """For corners, what the two say."""
    instead: Call | Unsaid | None = None
    """What says in the second dialect what the first one means, or the other way round if the first refuses."""
    into: str = ""
    """The dialect of `instead`."""

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines())

    def _lines(self) -> Iterator[str]:
        needed = f" with {', '.join(self.options)}" if self.options else ""
        many = f": {self.count:,} configuration{'s' * (self.count > 1)}" if self.example else ""
        yield f"{self.op}: {self.kind} ({WAYS[self.kind]}){needed}{many}"
        first, second = self.answers
        width = max(len(first.dialect), len(second.dialect))
        if self.example is None:
            assert self.said is not None
            yield from (f"  {a.dialect:<{width}}  {s}" for a, s in zip(self.answers, self.said, strict=True))
            return
        yield f"  {self.example}"
        yield from (f"  {a.dialect:<{width}}  {a.text}" for a in self.answers)
        if self.instead is not None:
            yield f"  in {self.into}: {self.instead}" if self.instead else f"  not in {self.into}: {self.instead}"
        yield ""
        wide = max(map(len, [first.dialect, *first.lines]))
        yield f"  {first.dialect:<{wide}} | {second.dialect}"
        for left, right in zip_longest(first.lines, second.lines, fillvalue=""):
            yield f"  {left:<{wide}} | {right}"


@dataclass(frozen=True)
class Differences(Sequence[Difference]):
    """All classes, the smallest examples first within each way to differ. Print it."""

    first: str
    second: str
    found: tuple[Difference, ...]
    tried: int
    """How many configurations were compared."""
    ops: tuple[str, ...] = field(default=())

    @overload
    def __getitem__(self, at: int) -> Difference: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Difference, ...]: ...
    def __getitem__(self, at: int | slice) -> Difference | tuple[Difference, ...]:
        return self.found[at]

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        ways = "1 way" if len(self) == 1 else f"{len(self) or 'no'} ways"
        head = f"{self.first} and {self.second} differ in {ways} on {self.tried:,} small configurations"
        return "\n\n".join([f"{head} of {', '.join(self.ops)}.", *self._table(), *map(str, self.found)])

    def _table(self) -> Iterator[str]:
        """How many classes and configurations there are, by operator and way to differ."""
        if len(self) < 2:
            return
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        for d in self.found:
            classes, many = counts.get((d.op, d.kind), (0, 0))
            counts[d.op, d.kind] = classes + 1, many + d.count
        rows = [("operator", "differs in", "ways", "configurations", "which is")]
        for (op, kind), (ways, many) in counts.items():
            rows.append((op, kind, str(ways), f"{many:,}" if many else "all", WAYS[kind]))
        wide = [max(len(row[at]) for row in rows) for at in range(4)]
        yield "\n".join(
            f"  {op:<{wide[0]}}  {kind:<{wide[1]}}  {ways:>{wide[2]}}  {many:>{wide[3]}}  {meaning}"
            for op, kind, ways, many, meaning in rows
        )

    __repr__ = __str__

    def to_json(self) -> list[dict[str, Any]]:
        """The same as plain lists and strings."""
        return [
            {
                "op": d.op,
                "kind": d.kind,
                "options": list(d.options),
                "count": d.count,
                "example": None if d.example is None else str(d.example),
                **{a.dialect: s for a, s in zip(d.answers, d.said or [a.text for a in d.answers], strict=True)},
                "instead": None if d.instead is None else str(d.instead),
            }
            for d in self.found
        ]


# ---- finding them


def answer(dialect: Dialect, configuration: Configuration, d: int) -> Answer:
    """What the words of a configuration mean in a dialect."""
    shapes, op = configuration.shapes(d), configuration.op
    call = None
    try:
        call = dialect.spell(op, shapes, configuration.words(d))
        return Answer(dialect.name, call, dialect.meaning(op, shapes, call.arguments))
    except LunetteError as error:
        return Answer(dialect.name, call, None, error)


def way(first: Answer, second: Answer) -> tuple[str, str] | None:
    """How two answers differ: a kind, and the objection's rule and subject if there is one."""
    if first.meaning is not None and second.meaning is not None:
        kind = first.meaning.differs(second.meaning)
        if kind is None and first.meaning.departures != second.meaning.departures:
            kind = "rule"
        if kind is None and first.meaning.has_empty_windows:
            corners = first.meaning.corners.empty, second.meaning.corners.empty
            kind = "empty window" if corners[0] != corners[1] else None
        return None if kind is None else (kind, "")
    if first.meaning is None and second.meaning is None:
        return None
    speaker = first if first.meaning is None else second
    assert speaker.objection is not None
    subject = speaker.objection.got.split("=")[0] if speaker.call is None else ""
    kind = "unsaid" if speaker.call is None else "refused"
    return kind, f"{speaker.dialect} {speaker.objection.rule} {subject}"


def least(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Those that contain no other; what holds for every value of an option holds without it."""
    found: list[frozenset[str]] = []
    for s in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(f <= s for f in found):
            found.append(s)
    for every, merged in ALTERNATIVES.items():
        for s in found:
            rest = s - every
            if s & every and all(rest | {one} in found for one in every):
                return least([rest | merged, *(f for f in found if f - every != rest)])
    return found


def compared(first: Dialect, second: Dialect, op: str, largest: int) -> tuple[list[Difference], int]:
    """The classes of one operator, and how many configurations there were."""
    d = rank(first, second, op)
    alike: dict[tuple[str, str], list[tuple[Configuration, Answer, Answer]]] = {}
    tried = 0
    for configuration in configurations(op, largest):
        tried += 1
        answers = answer(first, configuration, d), answer(second, configuration, d)
        if (how := way(*answers)) is not None:
            alike.setdefault(how, []).append((configuration, *answers))
    classes = []
    for (kind, _), members in alike.items():
        for needed in least([c.features for c, *_ in members]):
            own = [m for m in members if needed <= m[0].features | m[0].merged]
            example, *answers_ = min(own, key=lambda m: m[0].size)
            instead, into = translated(first, second, example, (answers_[0], answers_[1]), d)
            options = tuple(sorted(needed))
            pair = (answers_[0], answers_[1])
            classes.append(Difference(op, kind, options, len(own), example, pair, None, instead, into))
    order = list(WAYS)
    classes.sort(key=lambda c: (order.index(c.kind), len(c.options), c.options))
    return [*classes, *corners(first, second, op)], tried


def translated(
    first: Dialect, second: Dialect, example: Configuration, answers: tuple[Answer, Answer], d: int
) -> tuple[Call | Unsaid | None, str]:
    """What one dialect means, in the other's words."""
    meaning, into = (answers[0].meaning, second) if answers[0].meaning is not None else (answers[1].meaning, first)
    assert meaning is not None
    if 0 in meaning.out or (difference := meaning.in_lunette()) is not None:
        why = "it has no windows" if 0 in meaning.out else f"lunette has no such {difference}"
        return Unsaid(f"{into.name} cannot be asked, for {why}"), into.name
    return into.express(example.op, example.shapes(d), meaning.options), into.name


def corners(first: Dialect, second: Dialect, op: str) -> Iterator[Difference]:
    """Ties, NaN and indices: no configuration changes them."""
    if not KINDS[op].selects:
        return
    mine, theirs = first.corners.get(op), second.corners.get(op)
    for kind in ("ties", "nan", "index"):
        said = tuple(getattr(c, kind, None) or "not said" for c in (mine, theirs))
        if said[0] != said[1]:
            answers = Answer(first.name), Answer(second.name)
            yield Difference(op, kind, (), 0, None, answers, (said[0], said[1]))


def rank(first: Dialect, second: Dialect, op: str) -> int:
    """The least number of axes that both dialects take, by trying."""
    for d in (1, 2, 3):
        if all(any(answer(x, c, d).meaning is not None for c in configurations(op, 2)) for x in (first, second)):
            return d
    return 2


def shared(first: Dialect, second: Dialect, op: str | None) -> tuple[str, ...]:
    """Rule DI6."""
    both = tuple(o for o in KINDS if o in first.functions and o in second.functions)
    if op is None:
        return both
    name = lookup(op)[1].name
    if name not in both:
        need = f"an operator that both {first.name} and {second.name} have: {', '.join(both)}"
        raise ArgumentError("DI6", need, f"op={shown(name)}", "Leave it out for all of them.")
    return (name,)


def differences(first: Dialect, second: Dialect, op: str | None, largest: int) -> Differences:
    """All of them."""
    ops = shared(first, second, op)
    found, tried = [], 0
    for name in ops:
        classes, more = compared(first, second, name, integer("largest", largest))
        found += classes
        tried += more
    return Differences(first.name, second.name, tuple(found), tried, ops)
