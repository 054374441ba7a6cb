"""`ln.Certificate` and `ln.check`.

| rule | says                                                                                                  |
|------|-------------------------------------------------------------------------------------------------------|
| CE1  | a certificate is a file that lunette wrote, or another producer in its format (docs/certificates.md)   |
| CE2  | f is a graph or a program; of a function, box= tells the shapes of its inputs                          |
| CE3  | property is a property, or the path of a VNNLIB file; box is one finite box for each input; semantics  |
|      | is "real", "float" or None                                                                             |
| CE4  | the bounds have a certificate: all operators are those that the checker knows, and boxes are finite    |
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lunette.certificate import check as checker
from lunette.certificate.format import write
from lunette.certificate.produce import bounds_case, box_of, network_of, region_of, tightened
from lunette.certificate.vnnlib import claims_of, nearest, proves
from lunette.errors import ArgumentError, LunetteError, error_context, refuses, shown
from lunette.graph.graph import Graph
from lunette.graph.jit import trace
from lunette.graph.program import Program
from lunette.number import Array, Interval
from lunette.version import VERSION


class CertificateError(LunetteError, ValueError):
    """A file that is no certificate, or bounds that have none."""


@dataclass(frozen=True, slots=True, repr=False)
class Certificate:
    """A statement about a network, and what is needed to prove it: the bytes of a file."""

    data: bytes

    def __repr__(self) -> str:
        return f"<Certificate of {len(self.data)} bytes: .statement is what it proves>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; the same proof is the same bytes."""
        Path(path).write_bytes(self.data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a file. Nothing is proven by that: `ln.check` does."""
        found = cls(Path(path).read_bytes())
        with error_context("Certificate.load"):
            found.statement  # noqa: B018 (it is read once, to refuse what is none)
        return found

    @property
    def statement(self) -> Statement:
        """What it says, proven or not."""
        try:
            content = json.loads(self.data)
            assert content["format"] == "lunette certificate" and content["version"] == 1
            cases = checker.cases_of(content)
            return Statement(str(content["graph"]), str(content["semantics"]), str(content["producer"]), cases)
        except Exception as error:  # a file can be damaged in more ways than there are exceptions
            hint = "It was not written by b.certificate() or ln.verify, or was damaged."
            got = f"a file without {error}" if isinstance(error, KeyError) else shown(str(error) or "another format")
            raise CertificateError("CE1", "a certificate of version 1", got, hint) from error

    @property
    def lo(self) -> Array:
        """Of a certificate of bounds, the lower bounds that it states, one for each row."""
        return self._ends(0, 1)

    @property
    def hi(self) -> Array:
        """Of a certificate of bounds, the upper bounds."""
        return self._ends(1, -1)

    def _ends(self, side: int, sign: int) -> Array:
        """Of claims (row < lo) and (-row < -hi), in turn, and of no others."""
        cases = self.statement.cases
        claims = cases[0][1] if len(cases) == 1 else [[]]
        pairs = zip(claims[::2], claims[1::2], strict=False)
        if len(claims) % 2 or not all(len(a) == len(b) == 1 and _is_opposite(a[0][0], b[0][0]) for a, b in pairs):
            hint = "It is one of a property: certificate.statement says what it proves."
            raise CertificateError("CE1", "a certificate of bounds", "other claims", hint)
        return np.array([_outward(sign * claim[0][1], sign) for claim in claims[side::2]])


@dataclass(frozen=True, slots=True)
class Statement:
    """The digest of a graph, a semantics, and cases (boxes, claims): no point of the boxes satisfies a claim."""

    graph: str
    semantics: str
    producer: str
    cases: list[tuple[Any, Any]] = field(repr=False)

    def __str__(self) -> str:
        lines = [f"graph {self.graph}", f"semantics {self.semantics}", f"producer {shown(self.producer)}"]
        for boxes, claims in self.cases:
            cells = list(chain(*boxes))
            ends = ", ".join(f"({_exactly(a)}, {_exactly(b)})" for a, b in cells[:20]) + ", ..." * (len(cells) > 20)
            lines.append(f"no point of a box of {len(cells)} cells, [{ends}], satisfies any of {len(claims)}:")
            lines += [f"  {' and '.join(map(_inequality, claim))}" for claim in claims[:20]]
            lines += ["  ..."] * (len(claims) > 20)
        return "\n".join(lines)


def _outward(q: Fraction, sign: int) -> float:
    """The float next to a lower bound (sign 1) that is no greater, to an upper one (-1) that is no less."""
    try:
        end = float(q)
    except OverflowError:
        end = math.inf if q > 0 else -math.inf
    inward = end > q if sign > 0 else end < q
    return math.nextafter(end, -sign * math.inf) if inward else end


def _is_opposite(row: dict[int, Fraction], other: dict[int, Fraction]) -> bool:
    return other == {c: -v for c, v in row.items()}


def _exactly(q: Fraction) -> str:
    """A float if it is one; a rounded one would be another statement."""
    near = _outward(q, 1)
    return repr(near) if math.isfinite(near) and Fraction(near) == q else str(q)


def _inequality(i: Any) -> str:
    row, threshold, strict = i
    terms = " + ".join(f"{v}*y[{c}]" for c, v in list(row.items())[:8]) + (" + ..." if len(row) > 8 else "")
    return f"{terms or 0} {'<' if strict else '<='} {_exactly(threshold)}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a check: `ok` only if everything that was asked for is proven."""

    ok: bool
    statement: Statement | None
    grade: str
    """ "exact": integers only; "ball": balls of python-flint, too, where there is exp, log or a root."""
    reason: str
    """Why not, if it is not."""

    def __bool__(self) -> bool:
        return self.ok


@refuses
def check(f: Any, certificate: Any, property: Any = None, box: Any = None, semantics: str | None = None) -> Checked:
    """Replay a certificate in exact integers, and compare what it proves with what is asked.

    `f` is a graph or a program, or a function, of which `box` tells the shapes. Without `property`, what is asked is
    that the certificate proves what it states of f (and of boxes that hold `box`); `certificate.statement` says what.
    With `semantics`, "real" or "float", a proof of the other is not enough: the first says nothing of executions in
    floats, the second nothing of other numbers.

    >>> import numpy as np, lunette as ln
    >>> x = ln.Interval(np.full((2,), -1.0), np.ones(2))
    >>> f = ln.trace(lambda x: (h := ln.relu(x)) - h / 2, x.lo)
    >>> certificate = ln.bounds(f, x).certificate()
    >>> ln.check(f, certificate).ok, certificate.lo, certificate.hi
    (True, array([0., 0.]), array([0.5, 0.5]))
    """
    with error_context("check"):
        if semantics not in (None, "real", "float"):
            raise ArgumentError("CE3", '"real", "float" or None', shown(semantics), "As in ln.bounds and ln.verify.")
        boxes = [] if box is None else list(box) if isinstance(box, list | tuple) else [box]
        graph = f.graph if isinstance(f, Program) else f
        if not isinstance(graph, Graph):
            if not callable(f) or not boxes:
                hint = "A function has no shapes of its own."
                raise ArgumentError("CE2", "a graph, a program, or a function and box=", shown(f), hint)
            graph = trace(f, *(b.lo if isinstance(b, Interval) else b for b in boxes))
        if certificate is None:
            hint = "Only a verdict that is proved has one: ask for its status first."
            raise CertificateError("CE1", "a certificate", "None", hint)
        if not isinstance(certificate, Certificate):
            certificate = Certificate.load(certificate)
        statement = certificate.statement
    grade = "exact"
    try:
        net = network_of(graph)
        grade = net.grade
        cases = checker.check(net, certificate.data)
        own = statement.semantics
        checker.need(semantics in (None, own), f"a proof in semantics {semantics}; the certificate is one in {own}")
        if property is not None or boxes:
            checker.need(
                proves(cases, _wanted(net, cases, property, boxes)),
                "a proof of what was asked: these conditions, over a box around this one; the certificate has others",
            )
    except LunetteError:
        raise
    except checker.Refused as error:
        return Checked(False, statement, grade, f"needs {error}")
    except Exception as error:  # a hostile file can fail in any way, and proves nothing
        return Checked(False, statement, grade, f"cannot be replayed: {shown(repr(error))}")
    return Checked(True, statement, grade, "")


def certificate_of(
    graph: Graph,
    ends: Sequence[tuple[Array, Array]],
    rows: Array | None,
    method: str,
    semantics: str,
    lines: Callable[[Any], Any] | None,
) -> Certificate:
    """A certificate of bounds; `lines` gives improved slopes by (row, sign), node and cell."""
    try:
        net = network_of(graph)
        boxes = [box_of(np.asarray(lo, np.float64), np.asarray(hi, np.float64)) for lo, hi in ends]
        region = region_of(net, boxes, semantics)
        steps = tightened(region) if method != "interval" else []
        matrix = np.eye(len(net.out)) if rows is None else rows
        wanted = [{int(c): float(v[c]) for c in np.flatnonzero(v)} for v in matrix]
        case = bounds_case(region, boxes, wanted, steps, {} if lines is None else lines(net), method != "interval")
    except checker.Refused as error:
        hint = "The bounds hold; there is no certificate of them."
        raise CertificateError("CE4", str(error), "this network", hint) from error
    return Certificate(write(net, [case], semantics, f"lunette {VERSION}, {method}"))


def _wanted(net: checker.Network, cases: Any, property: Any, boxes: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(ends, claim) pairs that are to be proven."""
    ends = None
    if boxes:
        sides = [(b.lo, b.hi) if isinstance(b, Interval) else (b, b) for b in boxes]
        ends = [both for pair in sides for both in zip(*map(_exact, pair), strict=True)]
        if len(ends) != (cells := sum(n.size for n in net.inputs)):
            need = f"a box for each of {len(net.inputs)} inputs, {cells} cells together"
            raise ArgumentError("CE3", need, f"{len(ends)} cells", "box= is one, or a list of one for each input.")
    if property is None:
        if ends is not None and not any(claims for _, claims in cases):
            raise ArgumentError("CE3", "a certificate that claims something of the box", "none", "It proves nothing.")
        return [(ends, claim) for _, claims in cases for claim in claims]
    if isinstance(property, str | os.PathLike):
        found = claims_of(spec_text(property), net)
    elif hasattr(property, "cases"):
        dtypes = [n.dtype for n in net.inputs for _ in range(n.size)]
        found = []
        for case in property.cases:
            claim = [(dict(c.terms), Fraction(c.threshold), bool(c.strict)) for c in case.conditions]
            own = ends if case.box is None else list(zip(case.box.lo, case.box.hi, strict=True))
            if own is None or any(None in pair for pair in own):
                need = "a box: of the property, or box="
                raise ArgumentError("CE3", need, "none", "ln.Property.load brings the one of its file.")
            if case.box is not None:  # decimals of a file; the ends of box= are what they are
                own = [(nearest(a, t),) * 2 if a == b else (a, b) for (a, b), t in zip(own, dtypes, strict=True)]
            found.append((own, claim))
    else:
        raise ArgumentError("CE3", "a property, or the path of a VNNLIB file", shown(property), "See ln.Property.")
    if ends is None:
        return found
    met = [([(max(a, c), min(b, d)) for (a, b), (c, d) in zip(ends, own, strict=True)], claim) for own, claim in found]
    asked = [(own, claim) for own, claim in met if all(a <= b for a, b in own)]
    if found and not asked:
        raise ArgumentError("CE3", "a box that meets those of the property", "one that meets none", "Nothing is asked.")
    return asked


def _exact(end: Any) -> list[Fraction]:
    """The cells of an end of a box, of whatever number type: a rounded one would be another question."""
    cells = np.ravel(np.asarray(end)).tolist()
    try:
        return [Fraction(*v.as_integer_ratio()) for v in cells]
    except (AttributeError, ValueError, OverflowError):  # no number, not a number, infinite
        raise ArgumentError("CE3", "a box of finite numbers", shown(end), "Certificates are of finite boxes.") from None


def spec_text(path: str | os.PathLike[str]) -> str:
    """The text of a VNNLIB file, which may be packed."""
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
