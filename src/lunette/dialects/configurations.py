"""Every small configuration of an operator, in words, with what is left out left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from lunette.dialects.dialect import Words
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed
from lunette.window import Shape

LEFT_OUT: Final = "left out"
WORDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "kernel": (1, 2, 3),
    "stride": (LEFT_OUT, 1, 2, 3),
    "padding": (LEFT_OUT, 1, 2, ((0, 1),), ((1, 0),), "same", "same_lower", "valid"),
    "dilation": (LEFT_OUT, 2),
    "ceil_mode": (LEFT_OUT, True),
    "count_include_pad divisor": ((LEFT_OUT, LEFT_OUT), (True, LEFT_OUT), (False, LEFT_OUT), (LEFT_OUT, 5)),
    "p": (2, 1, LEFT_OUT),
    "output_padding": (LEFT_OUT, 1),
    "output_size": (1, 2, 3, 4, 5),
    "keepdims": (LEFT_OUT, True, False),
}
"""What each option may be, or several together. Options that are not named are always left out."""


def words_of(kind: type[Windowed]) -> dict[str, tuple[Any, ...]]:
    """Those of an operator; where a stride that is left out is 1, that is no case of its own."""
    has = {*parameters_of(ALL[kind]), *(("kernel",) if kind.weighted else ())}
    told = {names: values for names, values in WORDS.items() if has.issuperset(names.split())}
    return told | ({"stride": WORDS["stride"][1:]} if kind.weighted else {})


@dataclass(frozen=True, slots=True)
class Configuration:
    """A size and options of one axis; further axes, if a dialect wants more, have one cell and a kernel of one."""

    op: str
    n: int
    told: tuple[tuple[str, Any], ...]

    @property
    def kind(self) -> type[Windowed]:
        """The operator."""
        return KINDS[self.op]

    @property
    def size(self) -> tuple[int, ...]:
        """Examples are the smaller the less there is to see, then the smaller their numbers are."""
        options = dict(self.told)
        numbers = [v for v in options.values() if isinstance(v, int)]
        return len(self.features), self.n + sum(numbers), self.n

    @property
    def features(self) -> frozenset[str]:
        """Which options are more than their plainest value."""
        return frozenset(name for option, value in self.told for name in _feature(option, value))

    @property
    def merged(self) -> frozenset[str]:
        """What stands for several features together."""
        return frozenset().union(*(m for every, m in ALTERNATIVES.items() if every & self.features))

    def words(self, d: int) -> Words:
        """The options for d axes."""
        words = {}
        for option, value in self.told:
            if value is LEFT_OUT or (option == "kernel" and self.kind.weighted):
                continue
            words[option] = _on_axes(option, value, d)
        return words | ({"spatial": d} if self.kind.windows == "whole" else {})

    def shapes(self, d: int) -> tuple[Shape, ...]:
        """Those of x and w, one sample and one channel."""
        x = (1, 1, self.n, *(1,) * (d - 1))
        return (x, (1, 1, dict(self.told)["kernel"], *(1,) * (d - 1))) if self.kind.weighted else (x,)

    def __str__(self) -> str:
        told = ", ".join(f"{o}={v!r}" for o, v in self.told if v is not LEFT_OUT)
        return f"n={self.n}, {told}"


def configurations(op: str, largest: int) -> Iterator[Configuration]:
    """All there are, on inputs of 1 to `largest` cells."""
    columns = [
        [tuple(zip(names.split(), v if " " in names else (v,), strict=True)) for v in values]
        for names, values in words_of(KINDS[op]).items()
    ]
    for n, *told in product(range(1, largest + 1), *columns):
        yield Configuration(op, n, tuple(pair for pairs in told for pair in pairs))


def _on_axes(option: str, value: Any, d: int) -> Any:
    rest = d - 1
    if option == "padding" and isinstance(value, int):
        return (value, *(0,) * rest)
    if option == "padding" and not isinstance(value, str):
        return (*value, *((0, 0),) * rest)
    if option in ("kernel", "stride", "dilation", "output_size"):
        return (value, *(1,) * rest)
    return (value, *(0,) * rest) if option == "output_padding" else value


_PLAIN = {"stride": 1, "p": 2}
_LEFT_OUT_SAYS = ("stride", "count_include_pad", "keepdims", "p")
"""Options of which the frameworks' defaults differ."""


_NAMES = frozenset(f'padding="{name}"' for name in ("same", "same_lower", "valid"))
ALTERNATIVES: Final[Mapping[frozenset[str], frozenset[str]]] = {
    **{
        frozenset({f"{o} left out", f"{o}=True", f"{o}=False"}): frozenset[str]()
        for o in ("count_include_pad", "keepdims")
    },
    _NAMES: frozenset({"padding by name"}),
}
"""Features of which a configuration has one, and what they come to together."""


def _feature(option: str, value: Any) -> list[str]:
    if option in ("kernel", "output_size"):
        return []
    if value is LEFT_OUT:
        return [f"{option} {LEFT_OUT}"] if option in _LEFT_OUT_SAYS else []
    if option == "padding":
        if isinstance(value, str):
            return [f'padding="{value}"']
        return ["padding"] if isinstance(value, int) else ["padding", "uneven padding"]
    if isinstance(value, bool):
        return [f"{option}={value}"]
    return [] if _PLAIN.get(option) == value else [f"{option} > 1" if option in ("stride", "dilation") else option]
