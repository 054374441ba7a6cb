"""VNNLIB 1.0 as cases of certificates: what check.py is asked about. Standard library only, beside check.py.

A file is a list of assertions about X_0, X_1, ... (the cells of all inputs, one after the other) and Y_0, Y_1, ... (of
the output): an input that satisfies all of them violates the property. Each alternative is a box and a claim. An X
whose two ends are one decimal is the float nearest to it.
"""

from __future__ import annotations

import ast
import re
import struct
from collections import defaultdict
from fractions import Fraction
from itertools import chain, product
from math import prod
from typing import Any


def need(condition: Any, what: str) -> None:
    if not condition:
        raise ValueError(f"needs {what}")


def proves(cases: list[tuple[Any, Any]], wanted: list[tuple[Any, Any]]) -> bool:
    """Whether each wanted (ends, claim) follows from a claim about a box around it, whose inequalities are weaker."""

    def weaker(claim: Any, row: Any, t: Fraction, strict: bool) -> bool:
        return any(row == r and (v < t or (v == t and (s or not strict))) for r, v, s in claim)

    def follows(ends: Any, claim: Any, boxes: Any, claims: Any) -> bool:
        around = all(lo <= a and b <= hi for (a, b), (lo, hi) in zip(ends, chain(*boxes), strict=True))
        return around and any(all(weaker(claim, *i) for i in own) for own in claims)

    return all(any(follows(*one, *case) for case in cases) for one in wanted)


def compare(cases: list[tuple[Any, Any]], text: str, net: Any, need: Any) -> None:
    """Refuse, by `need` of check.py, cases that do not say that no input of a network satisfies a VNNLIB file."""
    wanted = claims_of(text, net)
    for n, one in enumerate(wanted):
        told = (
            f"a proof of alternative {n} of {len(wanted)} of SPEC: its conditions, over a box around its own; what is"
        )
        need(proves(cases, [one]), f"{told} proven is of other conditions, or of other boxes")


def claims_of(text: str, net: Any) -> list[tuple[Any, Any]]:
    """(ends, claim) of each alternative of a VNNLIB file; X are the cells of all inputs, Y those of the output."""
    plain = re.sub(r";.*", "", text)
    need(re.fullmatch(r"[\w.+<>=\-()\s]*", plain, re.ASCII), "letters, digits, inequalities and parentheses")
    words = re.sub(r"[\w.+<>=-]+", r"'\g<0>',", plain)
    forms = ast.literal_eval("[" + words.replace("(", "[").replace(")", "],") + "]")
    dtypes, found = [n.dtype for n in net.inputs for _ in range(n.size)], []

    def alternatives(e: Any) -> list[list[Any]]:
        parts = [alternatives(part) for part in e[1:]] if e[0] in ("and", "or") else [[[e]]]
        need(parts, f"something that `{e[0]}` is of")
        many = sum(map(len, parts)) if e[0] == "or" else prod(map(len, parts))
        need(many < 1 << 16, "alternatives of a possible number")
        return list(chain(*parts)) if e[0] == "or" else [list(chain(*p)) for p in product(*parts)]

    for form in forms:
        known = {"assert": 2, "declare-const": 3, "declare-fun": 4, "set-logic": 2, "check-sat": 1}
        need(isinstance(form, list) and form and known.get(form[0]) == len(form), "assertions and declarations")
    declared = {form[1] for form in forms if form[0].startswith("declare")}
    cells = {f"{name}_{i}" for name, n in (("X", len(dtypes)), ("Y", len(net.out))) for i in range(n)}
    need(declared in (set(), cells), "declarations of the cells of this network, and no others")
    for atoms in alternatives(["and", *(form[1] for form in forms if form[0] == "assert")]):
        box: list[Any] = [([], []) for _ in dtypes]
        claim = []
        for atom in atoms:
            need(isinstance(atom, list), "inequalities")
            op, *sides = atom
            row, threshold = defaultdict[str, Fraction](Fraction), Fraction(0)
            need(op in ("<=", "<", ">=", ">") and len(sides) == 2, "inequalities")
            for side, sign in zip(sides if op[0] == "<" else sides[::-1], (1, -1), strict=True):
                if re.fullmatch("[XY]_(0|[1-9][0-9]{0,8})", side):
                    row[side] += sign
                else:
                    need(re.fullmatch(r"[-+]?[0-9.]{1,999}([eE][-+]?[0-9]{1,3})?", side), "decimal numbers")
                    threshold -= sign * Fraction(side)
            if all(v[0] == "Y" for v in row):
                need(all(int(v[2:]) < len(net.out) for v in row), "cells of the output")
                claim.append(({int(v[2:]): c for v, c in row.items()}, threshold, op in "<>"))
            else:
                ((v, c),) = row.items()
                need(c, "an inequality of one X")
                box[int(v[2:])][c > 0].append(c * threshold)
        ends = [(max(lo), min(hi)) for lo, hi in box]
        ends = [(nearest(a, t),) * 2 if a == b else (a, b) for (a, b), t in zip(ends, dtypes, strict=True)]
        # Ends that cross between two floats are one number to those who read floats, and none to those who do not.
        close = [a > b and nearest(a, t) <= nearest(b, t) for (a, b), t in zip(ends, dtypes, strict=True)]
        need(not any(close), "ends that are numbers apart in the dtype of their input, where the lower one is greater")
        found += [(ends, claim)] if all(a <= b for a, b in ends) else []
    need(found, "a box that is not empty")
    return found


def nearest(q: Fraction, dtype: str) -> Fraction:
    """The float that an input whose ends are one number is; of two that are as near, the even one."""
    code, whole = ("<f", "<i") if dtype == "f32" else ("<d", "<q")
    bits = struct.unpack(whole, struct.pack(code, abs(float(q))))[0]
    near = [(Fraction(struct.unpack(code, struct.pack(whole, b))[0]), b) for b in (bits - 1, bits, bits + 1) if b >= 0]
    return (-1 if q < 0 else 1) * min(near, key=lambda v: (abs(v[0] - abs(q)), v[1] % 2))[0]
