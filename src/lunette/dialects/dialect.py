"""What a dialect is: how one framework spells lunette's operators, and what its spelling means.

    spell(op, shapes, options)        word by word: the arguments that look like these options
    meaning(op, shapes, arguments)    what the framework's document says those arguments mean
    express(op, shapes, options)      the arguments that mean these options, or the reason why there are none

`spell` copies words. `express` is checked: it only returns a call that by its `meaning` reads the same cells and
divides by the same numbers as lunette does. The two differ where a converter that copies arguments goes wrong.

| rule | says                                                                                   |
|------|----------------------------------------------------------------------------------------|
| DI1  | the dialect has the operator                                                           |
| DI2  | arguments are those that the dialect's function has, and required ones are given       |
| DI3  | options have a word in the dialect, or the one value that the dialect always uses      |
| DI4  | the words mean what was asked                                                          |
| DI5  | a dialect is one of lunette's, by name                                                 |
| DI7  | an argument has the form that the dialect's function takes                             |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from lunette.array import lookup
from lunette.dialects.meaning import (
    Corners,
    Meaning,
    Setting,
    Shapes,
    meaning_of,
    rank_of,
    setting_of,
    sizes,
    sliding,
    trimmed,
)
from lunette.errors import ArgumentError, DTypeError, LunetteError, error_context, meant, shown
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed
from lunette.window import padding_pairs, padding_rule, per_axis

Arguments = Mapping[str, Any]
Words = Mapping[str, Any]

SILENT = ("ties", "spatial", "return_indices", "arithmetic", "b", "beta", "x", "w")
"""Options that need no word: they say nothing about values, or their arrays do."""


# ---- what is said


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the framework's functions; arrays are not among the arguments."""

    function: str
    arguments: Arguments
    departures: tuple[str, ...] = ()
    """In what its result differs from lunette's on some values, a sentence each, by the framework's own document."""
    corners: Corners | None = None

    def __str__(self) -> str:
        return f"{self.function}({', '.join(f'{n}={v!r}' for n, v in self.arguments.items())})"


@dataclass(frozen=True, slots=True)
class Unsaid:
    """What a dialect cannot say, and why. It is false."""

    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


# ---- words


def as_is(value: Any, d: int) -> Any:
    """A value that both sides write alike."""
    return value


def ints(value: Any, d: int) -> Any:
    """One integer per axis; None stays."""
    return None if value is None else per_axis("value", value, d)


def cells(value: Any, d: int) -> tuple[tuple[int, int], ...]:
    """Rule DI3 for padding that has no names but "valid"."""
    if padding_rule(value) not in ("cells", "valid"):
        raise ArgumentError("DI3", "padding in cells", f'padding="{value}"', "There are no names for it.")
    return padding_pairs(0 if value == "valid" else value, d)


def flag_as_int(value: Any, d: int) -> int:
    """True and False as 1 and 0."""
    return int(value)


def int_as_flag(value: Any, d: int) -> bool:
    """1 and 0 as True and False."""
    return bool(value)


@dataclass(frozen=True, slots=True)
class Word:
    """One option of lunette and the argument that says it. `default` is the option where the argument is left out."""

    option: str
    argument: str
    default: Any
    say: Callable[[Any, int], Any] = as_is
    hear: Callable[[Any, int], Any] = as_is


@dataclass(frozen=True, slots=True)
class Function:
    """How a framework calls an operator."""

    name: str
    """`{d}` stands for the number of spatial axes."""
    words: tuple[Word, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Options without a word, and the only value they can have."""
    extra: tuple[str, ...] = ()
    """Arguments that are no option of lunette; the dialect's own code reads them."""
    always: Callable[[int], Arguments] = lambda d: {}
    """Arguments that are always given, by the number of spatial axes."""


REQUIRED: Any = object()
"""The default of an argument that must be given."""
OMIT: Any = object()
"""What a word says by leaving its argument out."""


def unless_none(value: Any, d: int) -> Any:
    """None is said by silence."""
    return OMIT if value is None else value


def heard(word: Word, value: Any, d: int) -> Any:
    """An argument as an option. Rule DI7."""
    try:
        if value is None and word.default is not None:
            raise TypeError
        return word.hear(value, d)
    except LunetteError:
        raise
    except Exception as error:  # whatever a value of another form meets on its way
        got = f"{word.argument}={shown(value)} of type {type(value).__name__}"
        raise DTypeError(
            "DI7", f"{word.argument} for {d} spatial axes, as the document has it", got, "See the framework's document."
        ) from error


def check_length(value: Any, length: int) -> Any:
    """A list of so many entries; anything else is for rule DI7."""
    told = list(value)
    if len(told) != length:
        raise ValueError
    return told


class Dialect(ABC):
    """One framework at one version of its document."""

    name: str
    functions: Mapping[str, Function]
    corners: Mapping[str, Corners]
    channels_last: bool = False
    """Whether arrays are (batch, *space, channels) unless told otherwise; shapes here are in lunette's order always."""

    # ---- one way: what arguments mean

    def meaning(self, op: str, shapes: Shapes, arguments: Arguments, *, lead: int = 2) -> Meaning:
        """What the dialect's document says; raises what the framework itself refuses. `lead` axes come before space."""
        with error_context(f"{self.name} {op}"):
            self.function(op)
            d = self.rank(op, shapes, arguments, lead)
        with error_context(f"{self.name} {op}", d):
            return self.read(self.heard(op, shapes, arguments, d), arguments)

    def rank(self, op: str, shapes: Shapes, arguments: Arguments, lead: int) -> int:
        """How many axes are spatial: as many as x has behind its batch and channel axes."""
        return rank_of(op, shapes, {}, lead) if KINDS[op].weighted else len(shapes[0] or ()) - lead

    def heard(self, op: str, shapes: Shapes, arguments: Arguments, d: int) -> Setting:
        """The arguments in lunette's words. Rule DI2."""
        function = self.function(op)
        known = [*(w.argument for w in function.words), *function.extra, *function.always(d)]
        unknown = next((n for n in arguments if n not in known), None)
        missing = next((w.argument for w in function.words if w.default is REQUIRED and w.argument not in arguments), 0)
        if unknown is not None or missing:
            got = f"no {missing}" if missing else f"an unknown {unknown}"
            hint = meant(unknown, known, "Arguments have the framework's names.")
            raise ArgumentError(
                "DI2", f"arguments of {function.name.format(d=d)} among ({', '.join(known)})", got, hint
            )
        options = {w.option: heard(w, arguments[w.argument], d) for w in function.words if w.argument in arguments}
        options = {w.option: w.default for w in function.words} | options
        given = dict(function.fixed) | options
        names = [n for n in parameters_of(lookup(op)[0]) if n not in SILENT]
        full = {n: given[n] for n in names if n in given}
        wide = (*shapes, *(None,) * (3 - len(shapes))) if KINDS[op].weighted else tuple(shapes)
        return Setting(op, wide, d, full)

    @abstractmethod
    def read(self, setting: Setting, arguments: Arguments) -> Meaning:
        """The framework's own refusals, sizes, divisors and corners."""

    def function(self, op: str) -> Function:
        """Rule DI1."""
        if op not in self.functions:
            need = f"an operator that {self.name} has: {', '.join(self.functions)}"
            raise ArgumentError("DI1", need, op, "Compose it of others, or take another dialect.")
        return self.functions[op]

    def kind(self, op: str) -> type[Windowed]:
        """The operator, if the dialect has it."""
        with error_context(f"{self.name} {op}"):
            self.function(op)
        return KINDS[op]

    # ---- the other way: words, and what says what is meant

    def spell(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call:
        """The same words in this dialect; what is left out stays left out. Rule DI3."""
        d = rank_of(op, shapes, options, lead)
        with error_context(f"{self.name} {op}", d):
            function = self.function(op)
            words = {w.option: w for w in function.words}
            said = dict(function.always(d))
            for option, value in options.items():
                if option in words:
                    if (foreign := words[option].say(value, d)) is not OMIT:
                        said[words[option].argument] = foreign
                elif option in function.fixed:
                    self.check_fixed(function, option, value, d)
                elif option not in SILENT:
                    hint = f"{self.name} has nothing of the kind."
                    raise ArgumentError("DI3", f"a word for {option}", f"{option}={shown(value)}", hint)
            return Call(function.name.format(d=d), said)

    def check_fixed(self, function: Function, option: str, value: Any, d: int) -> None:
        """Rule DI3, where an option has one value only."""
        only = function.fixed[option]
        if _spread(option, value, d) != _spread(option, only, d):
            name = function.name.format(d=d)
            need = f"{option}={only!r}, which is what {name} always uses"
            raise ArgumentError("DI3", need, f"{option}={shown(value)}", f"{name} has no such argument.")

    def express(self, op: str, shapes: Shapes, options: Words, *, lead: int = 2) -> Call | Unsaid:
        """A call that means exactly this, or the reason why there is none: what stands against the plainest words."""
        setting = setting_of(op, shapes, options, lead)
        wanted = meaning_of(setting)
        reason = ""
        for kind, words in self.wordings(wanted):
            try:
                with error_context(f"{self.name} {op}", setting.d):
                    return self.said(wanted, kind, shapes, words, len(setting.x) - setting.d)
            except LunetteError as error:
                reason = reason or str(error)
        return Unsaid(reason)

    def said(self, wanted: Meaning, kind: str, shapes: Shapes, words: Words, lead: int) -> Call:
        """The call that these words make, if it means what is wanted. Rule DI4."""
        call = self.spell(kind, shapes, words, lead=lead)
        got = self.meaning(kind, shapes, call.arguments, lead=lead)
        difference = got.differs(wanted)
        if difference is not None:
            need = f"words that mean {wanted.op} with these options"
            raise ArgumentError("DI4", need, f"another {difference}", "There are none.")
        return replace(call, departures=got.departures, corners=got.corners)

    def wordings(self, wanted: Meaning) -> Iterator[tuple[str, Words]]:
        """What to try, word by word: the options as they are, then others that may mean the same.

        Dilation is nothing to a kernel of one cell; padding can be cut to what windows reach, or named; without padding
        all divisors are alike; adaptive and global pools may be sliding ones.
        """
        op, options = wanted.op, dict(wanted.options)
        if (window := sliding(wanted)) is not None:
            yield op, options
            op = sliding_form(wanted.kind).name
            told = {n: v for n, v in options.items() if n == "return_indices"}
            options = {"kernel": sizes(window, "kernel"), "stride": sizes(window, "stride"), "padding": 0, **told}
        paddings = [options]
        if wanted.kind.windows == "sliding":
            paddings += [trimmed(wanted)]
        if KINDS[op].windows == "sliding":
            ceil = {"ceil_mode": False} if "ceil_mode" in options else {}
            paddings += [{**options, "padding": name, **ceil} for name in ("same", "same_lower", "valid")]
        for step in steps(wanted):
            yield from ((op, {**told, **step, **by}) for told in paddings for by in divisors(op, options))


def sliding_form(kind: type[Windowed]) -> type[Windowed]:
    """The operator with a kernel that one with bins is made from, or itself."""
    return next((k for k in ALL if k in kind.__mro__ and k.windows == "sliding"), kind)


def steps(wanted: Meaning) -> list[Words]:
    """Words for strides and dilations that come to the same: none where there is nothing to step over."""
    if wanted.kind.windows in ("bins", "whole"):
        return [{}]
    given = wanted.options
    flat = tuple(1 if k == 1 else s for k, s in zip(wanted.kernel, given["dilation"], strict=True))
    once = tuple(1 if m == 1 else s for m, s in zip(wanted.out, given["stride"], strict=True))
    found: list[Words] = [{}, {"dilation": flat}] if flat != given["dilation"] else [{}]
    return found if once == given["stride"] or wanted.kind.windows == "transposed" else [*found, {"stride": once}]


def divisors(op: str, options: Words) -> list[Words]:
    """Words for the divisor of an average that may come to the same."""
    if not (KINDS[op].averages and KINDS[op].slides()):
        return [{}]
    whole = prod(options["kernel"])
    return [
        {},
        {"count_include_pad": True, "divisor": None},
        {"count_include_pad": False, "divisor": None},
        {"divisor": whole},
    ]


def _spread(option: str, value: Any, d: int) -> Any:
    if option == "padding":
        return ((0, 0),) * d if padding_rule(value) == "valid" else padding_pairs(value, d)
    return per_axis(option, value, d) if option in ("dilation", "stride", "output_padding") else value
