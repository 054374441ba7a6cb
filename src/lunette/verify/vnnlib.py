"""A reader of VNNLIB 1.0: what the competitions' files say, and no more.

A file declares constants X_0, X_1, ... (the cells of the inputs, in order, one input after the other) and Y_0, Y_1, ...
(the cells of the output), and asserts conditions that a *counterexample* satisfies. So the property holds where no
point satisfies them all.

| rule | says                                                                                                       |
|------|------------------------------------------------------------------------------------------------------------|
| PN1  | a file is text, gzipped or not, of at most MOST_BYTES bytes; gzip at most 1000 to 1                        |
| PN2  | it is a list of (declare-const NAME Real), (declare-fun NAME () Real) and (assert FORMULA)                 |
| PN3  | a formula is made of and, or, not, <=, <, >=, >, = ; parentheses are at most MOST_DEPTH deep                |
| PN4  | both sides of a relation are sums of numbers, constants, and constants times numbers                       |
| PN5  | a condition is on one X alone, a bound with <= or >=, or on Y alone, and linear                            |
| PN6  | names are X_k and Y_k, declared once and before they are used, k from 0 without gaps, below MOST_CELLS     |
| PN7  | numbers are decimals of at most MOST_DIGITS characters, with exponents between -400 and 400                |
| PN8  | some point satisfies the bounds on X, so far as they tell                                                  |
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final, NoReturn

from lunette.errors import ArgumentError, shown
from lunette.files import kind_of
from lunette.verify.case import MOST_CASES, MOST_CONDITIONS, Box, Case, Condition

MOST_BYTES: Final = 1 << 28
MOST_RATIO: Final = 1000
MOST_DEPTH: Final = 100
MOST_CELLS: Final = 1 << 24
MOST_DIGITS: Final = 400
MOST_EXPONENT: Final = 400

TOKEN = re.compile(r"\s+|;[^\n]*|[()]|[^\s();]+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)


def exponent_of(word: str) -> int:
    """The exponent of a decimal, 0 where there is none: of a large one, a rational would fill the memory."""
    return int(word.lower().partition("e")[2] or 0)


Linear = dict[Any, Fraction]
"""Coefficients by constant, ("X", 3); that of None is the number beside them."""
Atom = tuple[Linear, bool]
"""A sum that is <= 0, or < 0 if strict."""
Conjunction = tuple[Atom, ...]
Bound = tuple[int, Fraction, bool]
"""A cell of the inputs, an end, and whether it is the upper one."""


def refuse(rule: str, need: str, got: str, hint: str) -> NoReturn:
    """The one way."""
    raise ArgumentError(rule, need, got, hint, who="vnnlib")


def text_of(path: Path) -> str:
    """The text of a file, which may be packed. Rule PN1."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    kind = kind_of(path)
    if kind is not None and ".vnnlib" not in path.name.lower():
        refuse("PN1", "a property, .vnnlib or .vnnlib.gz", *kind)
    if data[:2] == b"\x1f\x8b":
        most = min(MOST_BYTES, MOST_RATIO * len(data))
        try:
            with gzip.open(path) as packed:
                data = packed.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            refuse("PN1", "a gzip file that can be unpacked", f"{path.name} ({error})", "Fetch it again.")
        if len(data) > most:
            refuse("PN1", f"at most {most} bytes", f"{path.name}, which is more", "A property is small.")
    if len(data) > MOST_BYTES:
        refuse("PN1", f"at most {MOST_BYTES} bytes", f"{path.name}, which is more", "A property is small.")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        refuse("PN1", "a text file", f"{path.name} with other bytes", "A .vnnlib or .vnnlib.gz file.")


def commands(text: str) -> Iterator[Any]:
    """The expressions of a text: lists of strings and lists. Rules PN2 and PN3."""
    stack: list[list[Any]] = []
    for found in TOKEN.finditer(text):
        token = found[0]
        if token == "(":
            if len(stack) >= MOST_DEPTH:
                refuse("PN3", f"at most {MOST_DEPTH} parentheses deep", "deeper ones", "Write it flat.")
            stack.append([])
        elif token == ")":
            if not stack:
                refuse("PN2", "parentheses that match", "one too many that closes", _near(text, found.start()))
            whole = stack.pop()
            if not stack:
                yield whole
            else:
                stack[-1].append(whole)
        elif token[0] != ";" and not token.isspace():
            if not stack:
                refuse("PN2", "commands in parentheses", shown(token), _near(text, found.start()))
            stack[-1].append(token)
    if stack:
        refuse("PN2", "parentheses that match", f"{len(stack)} that nothing closes", "The file may be cut short.")


def _near(text: str, at: int) -> str:
    return f"See line {text.count(chr(10), 0, at) + 1}."


class _Reader:
    def __init__(self) -> None:
        self.sizes = {"X": 0, "Y": 0}

    # ---- declarations and terms

    def declare(self, command: list[Any]) -> None:
        """Rules PN2 and PN6."""
        known = {"declare-const": ["Real"], "declare-fun": [[], "Real"]}
        name = command[1] if len(command) > 1 and isinstance(command[1], str) else ""
        match = NAME.fullmatch(name)
        if match is None or command[2:] != known[command[0]]:
            refuse("PN2", "(declare-const X_0 Real)", shown(command), "Constants are X_k and Y_k, of the sort Real.")
        letter, k = match[1], int(match[2])
        if k != self.sizes[letter] or k >= MOST_CELLS:
            need = f"{letter}_{self.sizes[letter]} declared next, and at most {MOST_CELLS} of them"
            refuse("PN6", need, name, "Numbers begin at 0 and have no gaps.")
        self.sizes[letter] += 1

    def number(self, word: str) -> Fraction:
        """Rule PN7."""
        if len(word) > MOST_DIGITS or NUMBER.fullmatch(word) is None:
            refuse("PN7", f"a decimal of at most {MOST_DIGITS} characters", shown(word), "As in -0.25 or 1e-3.")
        if abs(exponent_of(word)) > MOST_EXPONENT:
            need = f"exponents between -{MOST_EXPONENT} and {MOST_EXPONENT}"
            refuse("PN7", need, shown(word), "No float is that large or small.")
        return Fraction(word)

    def term(self, t: Any) -> Linear:
        """Rule PN4."""
        if isinstance(t, str):
            if (match := NAME.fullmatch(t)) is not None:
                if int(match[2]) >= self.sizes[match[1]]:
                    refuse("PN6", "constants that are declared before", t, f"(declare-const {t} Real)")
                return {(match[1], int(match[2])): Fraction(1)}
            return {None: self.number(t)}
        head = t[0] if t and isinstance(t[0], str) else ""
        parts = [self.term(p) for p in t[1:]]
        if head == "+" and parts:
            return _sum(parts)
        if head == "-" and len(parts) == 1:
            return _times(parts[0], Fraction(-1))
        if head == "-" and parts:
            return _sum([parts[0], *(_times(p, Fraction(-1)) for p in parts[1:])])
        if head == "*" and len(parts) >= 1:
            factor, rest = Fraction(1), []
            for p in parts:
                if not set(p) - {None}:
                    factor *= p.get(None, Fraction(0))
                else:
                    rest.append(p)
            if len(rest) <= 1 and abs(factor.numerator) < 1 << 8192 and factor.denominator < 1 << 8192:
                return _times(rest[0], factor) if rest else {None: factor}
        refuse("PN4", "sums of numbers, constants and constants times numbers", shown(t), "Conditions are linear.")

    # ---- formulas

    def bound(self, f: Any) -> Bound | None:
        """What most lines of most files are, (<= X_0 0.5), as a bound: nothing else of a formula is needed for it."""
        if not isinstance(f, list) or len(f) != 3 or f[0] not in ("<=", ">=") or not isinstance(f[2], str):
            return None
        match = NAME.fullmatch(f[1]) if isinstance(f[1], str) else None
        if match is None or match[1] != "X" or int(match[2]) >= self.sizes["X"] or NUMBER.fullmatch(f[2]) is None:
            return None
        return int(match[2]), self.number(f[2]), f[0] == "<="

    def formula(self, f: Any, negated: bool = False) -> list[Conjunction]:
        """A formula, or its negation, as a list of conjunctions of which one is to hold. Rule PN3."""
        head = f[0] if isinstance(f, list) and f and isinstance(f[0], str) else None
        if head in ("and", "or") and len(f) > 1:
            parts = [self.formula(p, negated) for p in f[1:]]
            if (head == "or") != negated:
                return _limited([c for p in parts for c in p])
            return _product(parts)
        if head == "not" and len(f) == 2:
            return self.formula(f[1], not negated)
        if head in ("<=", "<", ">=", ">", "=") and len(f) == 3:
            left, right = self.term(f[1]), self.term(f[2])
            less = _sum([left, _times(right, Fraction(-1))])
            more = _times(less, Fraction(-1))
            if head == "=":
                return [((more, True),), ((less, True),)] if negated else [((less, False), (more, False))]
            first, second = (less, more) if head[0] == "<" else (more, less)
            return [((second, len(head) == 2),)] if negated else [((first, len(head) == 1),)]
        need = "a formula of and, or, not, <=, <, >=, >, = with their operands"
        refuse("PN3", need, shown(f), "VNNLIB 1.0; other words are not part of it.")


def _sum(parts: list[Linear]) -> Linear:
    whole: Linear = {}
    for p in parts:
        for name, a in p.items():
            whole[name] = whole.get(name, Fraction(0)) + a
    return {name: a for name, a in whole.items() if a}


def _times(part: Linear, factor: Fraction) -> Linear:
    return {name: a * factor for name, a in part.items() if a * factor}


def _limited(found: list[Conjunction]) -> list[Conjunction]:
    if len(found) > MOST_CASES or sum(map(len, found)) > MOST_CONDITIONS:
        refuse("PR5", f"at most {MOST_CASES} cases", f"{len(found)}", "Ask in several files.")
    return found


def _product(parts: list[list[Conjunction]]) -> list[Conjunction]:
    many = [p for p in parts if len(p) != 1]
    if prod(map(len, many)) > MOST_CASES:
        refuse("PR5", f"at most {MOST_CASES} cases", f"{prod(map(len, many))}", "Ask in several files.")
    alone = tuple(a for p in parts if len(p) == 1 for a in p[0])
    found = product(*many)
    return _limited([(*alone, *(a for c in choice for a in c)) for choice in found])


# ---- the whole


def parse(text: str) -> tuple[tuple[Case, ...], dict[str, int]]:
    """What violates the property, and how many constants X and Y there are."""
    reader = _Reader()
    bounds: list[Bound] = []
    common: list[Atom] = []
    several: list[list[Conjunction]] = []
    for command in commands(text):
        head = command[0] if command and isinstance(command[0], str) else ""
        if head in ("declare-const", "declare-fun"):
            reader.declare(command)
        elif head == "assert" and len(command) == 2:
            if (bound := reader.bound(command[1])) is not None:
                bounds.append(bound)
                continue
            found = reader.formula(command[1])
            if len(found) == 1:
                common.extend(found[0])
            else:
                several.append(found)
        else:
            refuse("PN2", "declare-const, declare-fun or assert", shown(command), "VNNLIB 1.0 has no others.")
    if not reader.sizes["X"] or not reader.sizes["Y"]:
        refuse("PN6", "constants X_0 and Y_0", "none of them", "Inputs are X_k, outputs Y_k.")
    more, own, possible = _split(common)
    return _cases(reader.sizes["X"], [*bounds, *more], own, _product(several) if possible else []), reader.sizes


def _excluded(boxes: Iterable[Box]) -> str:
    """The first cell that has no values in one of them, if there is one."""
    for box in boxes:
        for k, (a, b) in enumerate(zip(box.lo, box.hi, strict=True)):
            if a is not None and b is not None and a > b:
                return f" of X_{k}"
    return ""


def _cases(inputs: int, bounds: list[Bound], own: list[Condition], rest: list[Conjunction]) -> tuple[Case, ...]:
    lo: list[Fraction | None] = [None] * inputs
    hi: list[Fraction | None] = [None] * inputs
    _meet(lo, hi, bounds)
    base = Box(tuple(lo), tuple(hi))
    cases: dict[Case, None] = {}
    boxes = [base]
    for conjunction in rest:
        more, conditions, can = _split(conjunction)
        box = base
        if more:
            low, high = list(lo), list(hi)
            _meet(low, high, more)
            box = Box(tuple(low), tuple(high))
            boxes.append(box)
        if can and not box.empty:
            cases[Case(box, tuple(dict.fromkeys((*own, *conditions))))] = None
    if not cases:
        need, got = "a point that satisfies the bounds on X", f"bounds{_excluded(boxes)} that exclude each other"
        refuse("PN8", need, got, "See the ends.")
    return tuple(cases)


def _meet(lo: list[Fraction | None], hi: list[Fraction | None], bounds: list[Bound]) -> None:
    for cell, end, upper in bounds:
        ends = hi if upper else lo
        now = ends[cell]
        ends[cell] = end if now is None else min(now, end) if upper else max(now, end)


def _split(atoms: Any) -> tuple[list[Bound], list[Condition], bool]:
    """Bounds of X as (cell, end, whether above), conditions on Y, and whether those without either hold. Rule PN5."""
    bounds, conditions, possible = [], [], True
    for whole, strict in atoms:
        left = {name: a for name, a in whole.items() if name is not None}
        right = -whole.get(None, Fraction(0))
        letters = {letter for letter, _ in left}
        if not left:
            possible = possible and (right > 0 or (not strict and right == 0))
        elif letters == {"Y"}:
            conditions.append(Condition(tuple(sorted((k, a) for (_, k), a in left.items())), right, strict))
        elif len(left) == 1 and not strict:
            ((_, cell), a) = next(iter(left.items()))
            bounds.append((cell, right / a, a > 0))
        else:
            names = ", ".join(f"{letter}_{k}" for letter, k in sorted(left)[:4])
            hint = "Bounds on X with <= or >=, or linear conditions on Y alone."
            refuse("PN5", "conditions on one X or on Y alone", f"one on {names}{', strict' if strict else ''}", hint)
    return bounds, conditions, possible
