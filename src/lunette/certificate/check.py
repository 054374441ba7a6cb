"""Replays a certificate in exact integers, and says what it proves. docs/certificates.md describes the format.

    python -I check.py GRAPH CERTIFICATE [SPEC]

GRAPH is a file that lunette's Graph.save wrote, with its constants beside it; SPEC is a VNNLIB file. Exit status 0: no
input satisfies SPEC; 1: refused; 3: without SPEC, a statement was proven, and is printed.

All numbers are integers. The end n of a box and the coefficient n of a cell mean n/2^bits, a total n means n/4^bits;
the certificate chooses `bits`. What is rounded is rounded towards the weaker statement. For coefficients a_k of the
nodes h_k, from a row c at the output back to the inputs, and any coefficients g_(k,p) of what node k reads,

    c . h_out  =  a_in . x  +  sum over k of [ a_k . h_k - sum over p of g_(k,p) . h_p ],   a_p = sum over k of g_(k,p),

and each bracket is at least its minimum over boxes that were proven before (weak duality). So a certificate may choose
the g of maxima as it likes: bad ones prove less, never what is false.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import struct
import sys
import zipfile
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, chain, product
from math import isfinite, lcm, prod
from operator import add, mul, sub
from pathlib import Path
from typing import Any, Final, NamedTuple

Shape = tuple[int, ...]
Options = dict[str, Any]
Tap = tuple[int, int]  # a node and a cell of it
Coefficients = dict[int, list[Any]]  # by cell: one number for every row of a walk; zeros of cells that are not there
MAGIC: Final = b"lunette certificate 1\n"
MOST: Final = 1 << 24  # cells of a node, and of all its windows
MOST_WORK: Final = 1 << 33  # coefficients in all walks together
MOST_SPLITS: Final = 512  # above one another
ROWS: Final = 64  # of one walk
UNIT: Final = 20  # slopes are multiples of 2^-20
FLOATS: Final = {"f32": (24, 149, 128), "f64": (53, 1074, 1024)}  # bits; the least is 2^-..., all are below 2^...
ZERO: Final = -1  # the number of a node that is zero


class Refused(Exception):  # noqa: N818 (it is what a checker does)
    """Why a network or a certificate is not accepted."""


def need(condition: Any, what: str) -> None:
    if not condition:
        raise Refused(what)


def down(q: Fraction, bits: int) -> int:
    """The greatest n with n/2^bits <= q."""
    return (q.numerator << bits) // q.denominator


# ---- windows, as lists by output cell: the (kernel cell, input cell) pairs that it reads, and how many count as inside

Windows = list[tuple[list[tuple[int, int]], int]]


def slide(n: int, k: int, s: int, d: int, lo: int, hi: int, ceil: Any) -> Windows:
    """Output o and kernel cell j read cell o*s - lo + j*d; with ceil, one window more if it begins on data or lo."""
    room = n + lo + hi - (k - 1) * d - 1
    m = room // s + 1 + bool(ceil and room % s and (room // s + 1) * s < n + lo)
    need(min(k, s, d, m) >= 1 and min(lo, hi, room) >= 0 and m * k <= MOST, "windows that fit into their input")
    at = [[(j, o * s - lo + j * d) for j in range(k)] for o in range(m)]
    return [([(j, i) for j, i in w if 0 <= i < n], sum(i < n + hi for _, i in w)) for w in at]


def turn(n: int, k: int, s: int, d: int, lo: int, hi: int, more: int) -> Windows:
    """Transposed: input i and kernel cell j add to output i*s - lo + j*d; there are `more` outputs at the end."""
    m = (n - 1) * s - lo - hi + (k - 1) * d + 1 + more
    need(min(n, k, s, d, m) >= 1 and min(lo, hi, more) >= 0 and more < max(s, d) and m * k <= MOST, "windows that fit")
    at = [[(j, divmod(o + lo - j * d, s)) for j in range(k)] for o in range(m)]
    return [([(j, i) for j, (i, rest) in w if rest == 0 and 0 <= i < n], 0) for w in at]


def bins(n: int, m: int) -> Windows:
    """Adaptive bins; one bin is all of the axis."""
    need(n >= 1 and 1 <= m and m * n <= MOST, "bins of cells")
    ends = [(o * n // m, -(-(o + 1) * n // m)) for o in range(m)]
    return [([(0, i) for i in range(a, b)], b - a) for a, b in ends]


def per_axis(value: Any, d: int) -> Shape:
    many = value if isinstance(value, tuple) else (value,) * d
    need(len(many) == d and all(type(v) is int for v in many), f"one integer, or {d} of them")
    return many


def axes_of(o: Options, kernel: Shape, space: Shape, stride: Any, turned: bool) -> list[Windows]:
    """The windows on each axis, from the options of an operator."""
    d, pads, found = len(kernel), o.get("padding", 0), []
    step, apart, extra = per_axis(stride, d), per_axis(o.get("dilation", 1), d), per_axis(o.get("output_padding", 0), d)
    word, pairs = (pads, 0) if isinstance(pads, str) else ("valid", pads)
    if not isinstance(pairs, tuple) or not any(isinstance(p, tuple) for p in pairs):
        pairs = [(p, p) for p in per_axis(pairs, d)]
    need(word in ("valid", "same", "same_lower") and min((1, *step)) == 1, "padding that there is, and strides >= 1")
    for n, k, s, a, pair, more in zip(space, kernel, step, apart, pairs, extra, strict=True):
        (lo, hi), ceil = per_axis(pair, 2), o.get("ceil_mode", False)
        if word != "valid":  # as many windows as strides; an odd cell goes to the end, or to the start
            total = (k - 1) * a + 1 - (s if turned else n - (-(-n // s) - 1) * s)
            lo, hi, ceil, more = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2, False, max(more, -total)
            lo, hi = (hi, lo) if word == "same_lower" else (lo, hi)
        found.append(turn(n, k, s, a, lo, hi, more) if turned else slide(n, k, s, a, lo, hi, ceil))
    return found


def windows(axes: list[Windows], kernel: Shape, space: Shape) -> Windows:
    """All axes together, with flat cells."""
    need(prod(sum(len(w) + 1 for w, _ in a) for a in axes) <= MOST, "windows of a possible size")
    found = []
    for o in product(*axes):
        pairs = [(0, 0)]
        for (taps, _), size, n in zip(o, kernel, space, strict=True):
            pairs = [(k * size + j, i * n + c) for k, i in pairs for j, c in taps]
        found.append((pairs, prod(inside for _, inside in o)))
    return found


def strides(shape: Shape) -> list[int]:
    return list(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else []


def cells(sizes: Any, steps: Any, first: int = 0) -> list[int]:
    """first + the sum of index*step, for every index below the sizes, row by row."""
    found = [first]
    for n, s in zip(sizes, steps, strict=True):
        need(len(found) * n <= MOST, "arrays of a possible size")
        found = [c + j * s for c in found for j in range(n)]
    return found


def spread(shape: Shape, to: Shape) -> list[int]:
    """The cell of `shape` that each cell of `to` is, as broadcasting has it."""
    own = (1,) * (len(to) - len(shape)) + shape
    need(all(n in (1, m) for n, m in zip(own, to, strict=True)), f"a shape that broadcasts to {to}")
    return cells(to, [0 if n == 1 else s for n, s in zip(own, strides(own), strict=True)])


# ---- what nodes compute


@dataclass(eq=False)
class Node:
    """Without sums and taps: an input, or a constant with a value, integers over a denominator.

    Else, by output cell, (taps, weights) of a sum that is divided by the denominator, whose terms an execution in
    floats rounds so many times; or the taps of a maximum.
    """

    shape: Shape
    value: Any = None
    sums: Any = None
    denominator: int = 1
    roundings: int = 0
    taps: Any = None
    at: int = ZERO
    dtype: str = "f32"

    def __post_init__(self) -> None:
        self.size, self.reach = prod(self.shape), 0
        need(all(len(v) == self.size for v in (self.sums, self.taps) if v is not None), "as many results as cells")


def linear(shape: Shape, terms: Any, denominator: int = 1, roundings: int = 0) -> Node:
    return Node(shape, None, terms, denominator, roundings)


def moves(name: str, x: Any, to: Shape, o: Options) -> list[int | None]:
    """The cell of x that each cell is; None for padding."""
    own, rank = strides(x.shape), len(x.shape)
    if name in ("reshape", "stop_gradient"):
        return list(range(x.size))
    if name == "transpose":
        order = [a % rank for a in o.get("axes") or range(rank)[::-1]]
        need(sorted(order) == list(range(rank)) and to == tuple(x.shape[a] for a in order), "every axis once")
        return cells(to, [own[a] for a in order])
    if name == "broadcast_to":
        return spread(x.shape, to)
    if name == "slice":
        every = o.get("step") or (None,) * len(o["start"])
        cuts = [range(n)[a:b:s] for n, a, b, s in zip(x.shape, o["start"], o["stop"], every, strict=False)]
        need(all(c.step >= 1 for c in cuts) and len(o["start"]) == len(o["stop"]) == len(every), "slices of axes")
        cuts += [range(n) for n in x.shape[len(cuts) :]]
        need(to == tuple(map(len, cuts)), "the shape of the slice")
        return cells(to, [c.step * s for c, s in zip(cuts, own)], sum(c.start * s for c, s in zip(cuts, own)))
    pads, every = o["padding"], o.get("step") or (1,) * rank
    pads = pads if isinstance(pads, tuple) else ((pads, pads),) * rank
    sizes = [lo + hi + ((n - 1) * s + 1 if n else 0) for n, (lo, hi), s in zip(x.shape, pads, every, strict=True)]
    need(to == tuple(sizes) and min((0, *chain(*pads), *(s - 1 for s in every))) == 0, "the shape of the padding")
    found: list[int | None] = [None] * prod(to)
    first = sum(lo * s for (lo, _), s in zip(pads, strides(to), strict=True))
    for i, c in enumerate(cells(x.shape, map(mul, strides(to), every), first)):
        found[c] = i
    return found


def matmul(x: Any, y: Any, o: Options) -> tuple[Any, int, int]:
    """z[.., i, j] = sum over r of x[.., i, r] * y[.., r, j]; of turned operands, the last two axes are exchanged."""
    (m, k), (k2, n) = (v.shape[:-3:-1] if o.get(t) else v.shape[-2:] for v, t in ((x, "turn_x"), (y, "turn_y")))
    need(k == k2 and x.shape[:-2] == y.shape[:-2] and len(x.shape) == len(y.shape), "matrices that go together")
    terms = []
    for b, i, j in product(range(prod(x.shape[:-2])), range(m), range(n)):
        left = [b * m * k + (r * m + i if o.get("turn_x") else i * k + r) for r in range(k)]
        right = [b * k * n + (j * k + r if o.get("turn_y") else r * n + j) for r in range(k)]
        terms.append(weighted(x, left, y, right) if y.value else weighted(y, right, x, left))
    return terms, (y.value or x.value)[1], k + 1


def weighted(x: Any, ins: list[int], w: Any, own: list[int]) -> tuple[Any, Any]:
    need(w.value and not x.value, "one constant among the factors")
    return [(x.at, i) for i in ins], [w.value[0][i] for i in own]


def conv(x: Any, w: Any, b: Any, o: Options, turned: bool) -> tuple[Any, int, int]:
    """Convolutions, or transposed ones, whose weights are (inputs, outputs of a group, *kernel)."""
    need(w.value, "constant weights of a convolution")
    d, groups, kernel, (table, den) = len(w.shape) - 2, o.get("groups", 1), w.shape[2:], w.value
    lead, (channels, *space) = x.shape[: len(x.shape) - d - 1], x.shape[len(x.shape) - d - 1 :]
    ins, outs = channels // groups, w.shape[1] if turned else w.shape[0] // groups  # of one group
    shape = (ins * groups, outs, *kernel) if turned else (outs * groups, ins, *kernel)
    need(w.shape == shape and channels == ins * groups and (not b or b.shape == (outs * groups,)), "equal channels")
    found = windows(axes_of(o, kernel, tuple(space), o.get("stride", 1), turned), kernel, tuple(space))
    area, volume, terms = prod(space), prod(kernel), []
    for n, g in product(range(prod(lead)), range(groups)):
        some = [(n * channels + g * ins + j) * area for j in range(ins)]
        reads = [[(x.at, first + i) for first in some for _, i in pairs] for pairs, _ in found]
        for c in range(g * outs, g * outs + outs):
            base = [((g * ins + j) * outs + c % outs if turned else c * ins + j) * volume for j in range(ins)]
            weights = {tuple(k for k, _ in pairs): None for pairs, _ in found}
            weights = {taps: [table[first + k] for first in base for k in taps] + [den] * bool(b) for taps in weights}
            own = [(b.at, c)] if b else []
            terms += [
                (read + own, weights[tuple(k for k, _ in pairs)]) for read, (pairs, _) in zip(reads, found, strict=True)
            ]
    return terms, den, ins * max((len(pairs) for pairs, _ in found), default=0) + 1


def pools(name: str, x: Any, o: Options) -> tuple[list[list[int]], list[Fraction]]:
    """The cells that output cells read, and what averages divide by."""
    rank = len(x.shape)
    if "pool" not in name:
        given = o.get("axis") if o.get("axis") is not None else tuple(range(rank))
        folded = {range(rank)[a] for a in (given if isinstance(given, tuple) else (given,))}
        kept = tuple(1 if a in folded else n for a, n in enumerate(x.shape))
        taps: list[list[int]] = [[] for _ in range(prod(kept))]
        for i, c in enumerate(spread(kept, x.shape)):
            taps[c].append(i)
        return taps, [Fraction(1 if name == "sum" else len(t)) for t in taps]
    first, d = o.get("kernel", o.get("output_size", 1)), o.get("spatial")
    d = len(first) if isinstance(first, tuple) else rank - 2 if d is None else d
    need(0 <= d < rank and not o.get("return_indices"), "axes of a pool, and no indices")
    space, many = x.shape[rank - d :], first if isinstance(first, tuple) else (first,) * d
    if "kernel" in o:
        axes = axes_of(o, per_axis(many, d), space, many if o.get("stride") is None else o["stride"], False)
    else:
        axes = [bins(n, n if m is None else m) for n, m in zip(space, many, strict=True)]
    found, lead = windows(axes, (1,) * d, space), prod(x.shape[: rank - d])
    over = [Fraction(inside if o.get("count_include_pad", True) else len(pairs)) for pairs, inside in found]
    if o.get("divisor") is not None:
        over = [rounded(o["divisor"], x.dtype)] * len(found)
    return [[c * prod(space) + i for _, i in pairs] for c in range(lead) for pairs, _ in found], over * lead


def rounded(number: Any, dtype: str) -> Fraction:
    """A number as the dtype has it."""
    need(type(number) in (int, float) and abs(number) < 1 << 127, "a number of the dtype")
    return Fraction(struct.unpack("<f", struct.pack("<f", number))[0] if dtype == "f32" else float(number))


# ---- the graph: the text that lunette writes, one node per line


class Network:
    """Nodes by number: that of line n is 4*n + 3; 4*n + 2 and less are parts that its operator is made of."""

    LINE = re.compile(
        r'(%([0-9]{1,9}) : (f32|f64)\[((?:[0-9]{1,9}(?:,[0-9]{1,9})*)?)\] = ([a-z_0-9]+)\((.*?)\))(?:  # ".*")?'
    )

    def __init__(self, lines: list[str], constants: Any) -> None:
        self.nodes: dict[int, Node] = {ZERO: Node((), ([0], 1))}
        self.constants, self.work, self.inputs = constants, 0, list[Node]()
        self.hash = hashlib.sha256(b"lunette graph 1\n")
        for n, text in enumerate(lines[:-1]):
            found = self.LINE.fullmatch(text) if len(text) < 1 << 13 else None
            need(found and int(found[2]) == n, f"a graph of floats in lines that lunette writes; got {text[:80]}")
            assert found is not None
            self.hash.update(found[1].encode() + b"\n")
            shape = tuple(int(size) for size in found[4].split(",") if size)
            need(prod(shape) <= MOST, "arrays of a possible size")
            self.at, self.dtype = 4 * n + 3, found[3]
            self.keep(self.read(found[5], found[6], shape), self.at)
        end = re.fullmatch(r"return %([0-9]{1,9})", lines[-1] if lines else "")
        need(end and int(end[1]) < len(lines) - 1, "one output")
        self.hash.update(lines[-1].encode())
        self.out, self.digest = 4 * int(end[1]) + 3, self.hash.digest()
        self.scale = dict.fromkeys(
            self.nodes, 1
        )  # coefficients of a node are multiples of 1/scale, so that sums are exact
        for n in sorted(self.nodes.values(), key=lambda n: -n.at):
            column: dict[Tap, int] = {}
            for tap, w in chain.from_iterable(zip(*own, strict=True) for own in n.sums or ()):
                column[tap] = column.get(tap, 0) + abs(w)
            n.reach = max(column.values(), default=0)  # the greatest sum of weights of one cell
            for p in {p for p, _ in column}:
                self.scale[p] = lcm(self.scale[p], self.scale[n.at] * n.denominator)

    def keep(self, node: Node, at: int) -> Node:
        node.at, node.dtype = at, self.dtype
        self.nodes[at] = node
        return node

    def read(self, name: str, inside: str, shape: Shape) -> Node:
        """The node of a line."""
        if name == "input":
            self.inputs.append(Node(shape))
            return self.inputs[-1]
        if name == "constant":
            flat: Any = [ast.literal_eval(inside)]
            if isinstance(flat[0], str):
                data = self.constants(flat[0], self.dtype, shape)
                need(len(data) == prod(shape) * (4 if self.dtype == "f32" else 8), "constants of their shapes")
                self.hash.update(data)
                flat = struct.unpack(f"<{prod(shape)}{'f' if self.dtype == 'f32' else 'd'}", data)
            else:
                for n in shape:
                    need(all(isinstance(v, list) and len(v) == n for v in flat), "constants of their shapes")
                    flat = list(chain.from_iterable(flat))
            ratios = [rounded(v, self.dtype) for v in flat]
            den = lcm(*{q.denominator for q in ratios})
            return Node(shape, ([q.numerator * (den // q.denominator) for q in ratios], den))
        xs: list[Any] = []
        while found := re.match(r"(%[0-9]{1,9}|None)(?:, |$)", inside):
            xs.append(None if found[1] == "None" else self.nodes[4 * int(found[1][1:]) + 3])
            inside = inside[found.end() :]
        call: Any = ast.parse(f"f({inside})", mode="eval").body
        return self.operator(name, xs, shape, {k.arg: ast.literal_eval(k.value) for k in call.keywords})

    def operator(self, name: str, xs: list[Any], to: Shape, o: Options) -> Node:
        """The only place where names of operators mean something."""
        x, y = xs[0], xs[1] if len(xs) > 1 else None
        if name in ("reshape", "transpose", "broadcast_to", "slice", "pad", "stop_gradient"):
            value, ins = rounded(o.get("value", 0), self.dtype), moves(name, x, to, o)
            fill = self.keep(Node((), ([value.numerator], value.denominator)), self.at - 1)
            return linear(to, [([(fill.at, 0) if i is None else (x.at, i)], [1]) for i in ins])
        if name == "concat":
            axis, first = range(len(to))[o.get("axis", 0)], 0
            terms: dict[int, Any] = {}
            for v in xs:
                need((*v.shape[:axis], *to[axis + 1 :]) == (*to[:axis], *v.shape[axis + 1 :]), "shapes that join")
                for i, c in enumerate(cells(v.shape, strides(to), first)):
                    terms[c] = [(v.at, i)], [1]
                first += v.shape[axis] * strides(to)[axis]
            return linear(to, [terms[c] for c in range(prod(to))])
        if name in ("conv", "conv_transpose"):
            return linear(to, *conv(x, y, xs[2] if len(xs) > 2 else None, o, name != "conv"))
        if name == "matmul":
            return linear(to, *matmul(x, y, o))
        if name.removeprefix("adaptive_").removeprefix("global_") in ("max_pool", "avg_pool", "sum", "mean", "max"):
            taps, over = pools(name, x, o)
            need(all(over) and (all(taps) or "max" not in name), "cells in every window, and divisors other than zero")
            if "max" in name:
                return self.maxima(to, [[(x.at, i) for i in t] for t in taps])
            den = lcm(*{q.numerator for q in over})
            sums = [([(x.at, i) for i in t], [int(den / q)] * len(t)) for t, q in zip(taps, over, strict=True)]
            return linear(to, sums, den, max(map(len, taps), default=0) + 2)
        if name in ("neg", "relu", "abs", "leaky_relu"):
            own = [(x.at, i) for i in range(x.size)]
            if name == "neg":
                return linear(to, [([t], [-1]) for t in own])
            part = self.maxima(to, [[t, (ZERO, 0)] for t in own])
            if name == "relu":
                return part
            self.keep(part, self.at - 1)
            slope = Fraction(-1) if name == "abs" else rounded(o.get("slope", 0.01), self.dtype)
            n, d = slope.numerator, slope.denominator  # x*slope + relu(x)*(1 - slope)
            return linear(to, [([t, (part.at, i)], [n, d - n]) for i, t in enumerate(own)], d, int(name != "abs"))
        need(name in ("add", "sub", "mul", "div", "maximum", "minimum"), f"operators that it knows; {name} is none")
        left, right = ([(v.at, i) for i in spread(v.shape, to)] for v in xs)
        if name in ("add", "sub"):
            return linear(to, [(pair, [1, 1 if name == "add" else -1]) for pair in zip(left, right, strict=True)], 1, 1)
        if name in ("mul", "div"):
            x, y, left, right = (x, y, left, right) if y.value or name == "div" else (y, x, right, left)
            need(y.value and (name == "mul" or all(y.value[0])), f"a constant in {name}, other than zero if it divides")
            whole = lcm(*y.value[0])
            top, den = y.value if name == "mul" else ([y.value[1] * (whole // v) for v in y.value[0]], whole)
            return linear(to, [([p], [top[j]]) for p, (_, j) in zip(left, right, strict=True)], den, 1)
        if name == "maximum":
            return self.maxima(to, [list(pair) for pair in zip(left, right, strict=True)])
        for part, v in enumerate(xs):
            self.keep(linear(v.shape, [([(v.at, i)], [-1]) for i in range(v.size)]), self.at - 3 + part)
        sides = zip(left, right, strict=True)
        part = self.maxima(to, [[(self.at - 3, i), (self.at - 2, j)] for (_, i), (_, j) in sides])
        self.keep(part, self.at - 1)
        return linear(to, [([(part.at, i)], [-1]) for i in range(part.size)])

    def maxima(self, to: Shape, taps: list[list[Tap]]) -> Node:
        """Maxima of taps; a tap that is a relu becomes what it is the maximum of."""
        for t in taps:
            inner = [self.nodes[p].taps for p, _ in t]
            if all(i is None or i[c][1:] == [(ZERO, 0)] for i, (_, c) in zip(inner, t, strict=True)):
                t[:] = dict.fromkeys(
                    chain.from_iterable(i[c] if i else [(p, c)] for i, (p, c) in zip(inner, t, strict=True))
                )
        return Node(to, taps=taps)


# ---- the least of a * (the greatest of low and the cells) - g . cells, over a box; low is no less than any of l


def least_of_max(a: int, g: list[int], l: list[int], u: list[int], low: int) -> int:
    if a < 0:  # a times the greatest is the least of a times each
        ends = [min(-s * p, -s * q) for s, p, q in zip(g, l, u, strict=True)]
        whole = sum(ends)
        own = (whole - e + min((a - s) * p, (a - s) * q) for e, s, p, q in zip(ends, g, l, u, strict=True))
        return min([a * low + whole, *own])
    # Where the greatest is t, cells are at most t. The least of that is convex in t, and bends where cells end.
    rising = [(s, q) for s, q in zip(g, u, strict=True) if s > 0]
    rest = sum(s * p for s, p in zip(g, l, strict=True) if s <= 0)
    return min(a * t - sum(s * min(q, t) for s, q in rising) for t in (low, *(q for q in u if q > low))) - rest


def slopes(l: list[int], u: list[int], low: int) -> tuple[list[int], list[int]]:
    """Good ones below and above: one cell, or none; those of the level t that is the second greatest end."""
    best = max(range(len(l)), key=lambda i: (l[i] >= low, l[i] + u[i]))
    one = (l[best] >= low or l[best] + u[best] > 2 * low) << UNIT
    t = max(low, sorted([*u, low])[-2])
    above = [((q - t) << UNIT) // (q - p) if q > t else 0 for p, q in zip(l, u, strict=True)]
    return [one if i == best else 0 for i in range(len(l))], above


# ---- a part of the input box, and what is known there


class Region:
    """Boxes of nodes, winners of maxima, and inequalities: the sum of (node, cell, sign) and a number is >= 0."""

    def __init__(self, net: Network, box: Any, bits: int, floats: bool) -> None:
        self.net, self.bits, self.floats, self.empty = net, bits, floats, False
        self.lo: dict[int, list[int]] = {}
        self.hi: dict[int, list[int]] = {}
        self.error: dict[int, list[int]] = {}
        self.winners: dict[Tap, Tap] = {}
        self.spaces: list[tuple[list[tuple[int, int, int]], int]] = []
        ends = {n.at: own for n, own in zip(net.inputs, box, strict=True)}
        for n in net.nodes.values():
            if n.value:
                ends[n.at] = [(Fraction(v, n.value[1]),) * 2 for v in n.value[0]]
            if n.at in ends:
                self.meet(n.at, [down(a, bits) for a, _ in ends[n.at]], [-down(-b, bits) for _, b in ends[n.at]])
        self.forward(0)

    def meet(self, at: int, lo: list[int], hi: list[int]) -> None:
        if at in self.lo:
            lo, hi = list(map(max, self.lo[at], lo)), list(map(min, self.hi[at], hi))
        self.lo[at], self.hi[at] = lo, hi
        self.empty = self.empty or any(a > b for a, b in zip(lo, hi, strict=True))

    def where(self, spaces: list[Any], winner: Any = ()) -> Region:
        """The part where these inequalities hold, each of one cell or of a difference of two."""
        new = object.__new__(Region)
        new.__dict__.update(self.__dict__)
        new.lo, new.hi, new.spaces, new.winners = (
            dict(self.lo),
            dict(self.hi),
            self.spaces + spaces,
            self.winners | dict(winner),
        )
        for terms, number in spaces:
            for (at, cell, sign), (other, i, _) in zip(terms, terms[::-1], strict=True):
                lo, hi, rest = new.lo[at][:], new.hi[at][:], len(terms) - 1
                if sign > 0:
                    lo[cell] = max(lo[cell], rest * new.lo[other][i] - number)
                else:
                    hi[cell] = min(hi[cell], rest * new.hi[other][i] + number)
                new.meet(at, lo, hi)
        return new

    def forward(self, start: int) -> None:
        """Boxes of all nodes from `start` on, by intervals."""
        for n in self.net.nodes.values():
            if n.at >= start and (n.sums is not None or n.taps is not None):
                if n.at not in self.error:
                    self.error[n.at] = self.rounding(n) if self.floats and n.roundings else []
                lo, hi = self.image(n, self.lo, self.hi)
                if self.error[n.at]:
                    lo, hi = list(map(sub, lo, self.error[n.at])), list(map(add, hi, self.error[n.at]))
                self.meet(n.at, lo, hi)

    def image(self, n: Node, lo: Any, hi: Any) -> tuple[list[int], list[int]]:
        if n.taps is not None:
            return [max(lo[p][i] for p, i in t) for t in n.taps], [max(hi[p][i] for p, i in t) for t in n.taps]
        low = [sum(w * (lo if w > 0 else hi)[p][i] for (p, i), w in zip(*own, strict=True)) for own in n.sums]
        high = [sum(w * (hi if w > 0 else lo)[p][i] for (p, i), w in zip(*own, strict=True)) for own in n.sums]
        return [v // n.denominator for v in low], [-(-v // n.denominator) for v in high]

    def rounding(self, n: Node) -> list[int]:
        """What an execution in floats can be off by: gamma * (sum of |weight| * |cell|) + underflow; no overflow."""
        (precision, least, most), r = FLOATS[n.dtype], n.roundings
        size = {p: [max(abs(a), abs(b)) for a, b in zip(self.lo[p], self.hi[p], strict=True)] for p in self.lo}
        whole = self.image(n, {p: [-v for v in s] for p, s in size.items()}, size)[1]
        widest = max(whole, default=0) + r * max((size[p][i] for ins, _ in n.sums for p, i in ins), default=0)
        need(r < 1 << 20 and widest >> self.bits < 1 << most - 1, "a proof that nothing overflows")
        return [-(-r * w // ((1 << precision) - r)) - (-(r << self.bits) >> least) for w in whole]

    def walk(self, start: dict[int, Coefficients], rows: int, own: Any) -> list[int]:
        """For each row, a total that is not above the sum of coefficients times cells, anywhere in the region."""
        for width in (16, 64, 256, 1024):
            try:
                return self.walk_with(start, rows, own, width)
            except OverflowError:  # a coefficient may not fit
                continue
        raise Refused("coefficients of a possible size")

    def walk_with(self, start: dict[int, Coefficients], rows: int, own: Any, width: int) -> list[int]:
        """The rows of a walk are digits of one integer for each cell, of so many bytes: they are added at once."""
        half, nodes, scale = 1 << 8 * width - 1, self.net.nodes, self.net.scale
        offset = int.from_bytes(half.to_bytes(width, "little") * rows, "little")
        a: dict[int, dict[int, int]] = {}
        most: dict[int, int] = {}  # no coefficient of the node is greater
        total = [0] * rows

        def give(tap: Tap, values: list[int]) -> None:
            p, i = tap
            values = [v * scale[p] for v in values]
            most[p] = most.get(p, 0) + max(map(abs, values))
            packed = int.from_bytes(b"".join([(v + half).to_bytes(width, "little") for v in values]), "little") - offset
            a.setdefault(p, {})[i] = a.setdefault(p, {}).get(i, 0) + packed

        for at, coefficients in start.items():
            for cell, v in coefficients.items():
                give((at, cell), v)
        while a:
            n = nodes[max(a)]
            given, s = a.pop(n.at), scale[n.at]
            self.net.work += rows * len(given)
            need(self.net.work < MOST_WORK, "a certificate of a possible size")
            if most[n.at] >= half:
                raise OverflowError
            if n.sums is not None:
                parts: dict[int, dict[int, int]] = {}
                for cell, x in given.items():
                    for (p, i), w in zip(*n.sums[cell], strict=True):
                        part = parts.setdefault(p, {})
                        part[i] = part.get(i, 0) + x * w
                for p, part in parts.items():
                    factor, into = scale[p] // (s * n.denominator), a.setdefault(p, {})
                    most[p] = most.get(p, 0) + most[n.at] * n.reach * factor
                    for i, x in part.items():
                        into[i] = into.get(i, 0) + x * factor
            error = self.error.get(n.at)
            if n.sums is None or error:
                sums = [0] * rows
                for cell, packed in given.items():
                    data = (packed + offset).to_bytes(width * rows, "little")
                    v = [int.from_bytes(data[i : i + width], "little") - half for i in range(0, len(data), width)]
                    if error:
                        sums = [t - abs(x) * error[cell] for t, x in zip(sums, v, strict=True)]
                    elif n.taps is None:
                        l, u = self.lo[n.at][cell], self.hi[n.at][cell]
                        sums = [t + x * (l if x >= 0 else u) for t, x in zip(sums, v, strict=True)]
                    else:
                        if s != 1:  # rounding down takes less than one from a coefficient
                            v, lost = [x // s for x in v], s * min(self.lo[n.at][cell], 0)
                            sums = [t + lost for t in sums]
                        for tap, g in self.max(n, cell, v, own.get((n.at, cell)), sums, s):
                            give(tap, g)
                total = [t + x // s for t, x in zip(total, sums, strict=True)]
        return total

    def max(self, n: Node, cell: int, v: list[int], own: Any, total: list[int], s: int) -> list[tuple[Tap, list[int]]]:
        """Coefficients of the taps of a maximum for those of a cell; the least brackets are added to s * total."""
        taps = n.taps[cell]
        l, u = [self.lo[p][i] for p, i in taps], [self.hi[p][i] for p, i in taps]
        low, winner = max(l), self.winners.get((n.at, cell))
        live = [i for i, q in enumerate(u) if q > low] if winner is None else [winner]
        if winner is not None or (len(live) == 1 and l[live[0]] == low):  # it is that cell
            return [(taps[live[0]], v)]
        l, u = [l[i] for i in live], [u[i] for i in live]
        lines = [[own[i] for i in live]] * 2 if own else slopes(l, u, low) if live else [[], []]
        rows = [[x * line >> UNIT for line in lines[x < 0]] for x in v]
        for row, (x, g) in enumerate(zip(v, rows, strict=True)):
            total[row] += s * least_of_max(x, g, l, u, low)
        return [(taps[i], list(g)) for i, g in zip(live, zip(*rows, strict=True), strict=True)]

    def tighten(self, at: int, sides: list[list[int]]) -> None:
        """Better ends of cells of a node: the lower ends of the first list, the upper ends of the second."""
        plane, ends = max(prod(self.net.nodes[at].shape[2:]), 1), [self.lo[at][:], self.hi[at][:]]
        jobs = sorted((c % plane, side, c) for side, some in enumerate(sides) for c in some)
        while jobs and not self.empty:  # together, those at one place of a plane: they read the same cells
            part = [j for j in jobs[:ROWS] if j[0] == jobs[0][0]]
            jobs = jobs[len(part) :]
            start: Coefficients = {c: [0] * len(part) for _, _, c in part}
            for row, (_, side, c) in enumerate(part):
                start[c][row] = (-1 if side else 1) << self.bits
            for (_, side, c), total in zip(part, self.walk({at: start}, len(part), {}), strict=True):
                found = total >> self.bits
                ends[side][c] = min(ends[1][c], -found) if side else max(ends[0][c], found)
        self.meet(at, *ends)

    def lower(self, row: dict[int, Fraction], betas: list[Fraction], own: Any) -> Fraction:
        """A lower bound of row . output, by factors >= 0 of the inequalities of the region."""
        out, start = self.net.out, dict[int, Coefficients]()
        start[out] = {c: [down(v, self.bits)] for c, v in row.items()}
        total = sum(min(self.lo[out][c], 0) for c, v in row.items() if (v * (1 << self.bits)).denominator > 1)
        for beta, (terms, number) in zip(betas, self.spaces, strict=True):
            b = down(beta, self.bits)
            total -= b * number
            for at, c, sign in terms:
                own_row = start.setdefault(at, {})
                own_row[c] = [own_row.get(c, [0])[0] - sign * b]
        return Fraction(total + self.walk(start, 1, own)[0], 1 << 2 * self.bits)

    def excludes(self, claim: Any, factors: list[Fraction], betas: list[Fraction], own: Any) -> bool:
        """Whether no point satisfies all inequalities of a claim: the sum of them, with factors >= 0, is impossible."""
        row, most, strict = dict[int, Fraction](), Fraction(0), False
        for f, (part, threshold, is_strict) in zip(factors, claim, strict=True):
            most, strict = most + f * threshold, strict or (f > 0 and is_strict)
            for c, v in part.items():
                row[c] = row.get(c, Fraction(0)) + f * v
        least = self.lower(row, betas, own)
        return least > most or (strict and least == most)


# ---- the certificate


class Statement(NamedTuple):
    """In each case (boxes, claims), no point of the boxes, lists of (lo, hi), satisfies all inequalities of a claim.

    An inequality is (row by cell of the output, threshold, strict): row . output <= threshold, or < if it is strict.
    """

    graph: bytes
    floats: bool
    bits: int
    producer: str
    cases: list[tuple[Any, Any]]


class Reader:
    """Numbers from bytes, all little-endian."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        need(self.at + n <= len(self.data), "more bytes: the file is cut off")
        self.at += n
        return self.data[self.at - n : self.at]

    def count(self, n: int = 4) -> int:
        return int.from_bytes(self.take(n), "little")

    def slope(self) -> int:
        return int.from_bytes(self.take(4), "little", signed=True)

    def double(self) -> Fraction:
        value = struct.unpack("<d", self.take(8))[0]
        need(isfinite(value), "finite numbers")
        return Fraction(value)

    def number(self) -> Fraction:
        top, bottom = self.count(2), self.count(2)
        need(max(top, bottom) <= 512, "numbers of at most 512 bytes")
        over, under = int.from_bytes(self.take(top), "little", signed=True), self.count(bottom)
        need(under > 0, "denominators > 0")
        return Fraction(over, under)

    def bitmap(self, n: int) -> list[int]:
        bits = self.count(-(-n // 8))
        need(bits >> n == 0, "no bits behind the last")
        return [c for c, b in enumerate(bin(bits)[:1:-1]) if b == "1"]

    def inequality(self) -> tuple[dict[int, Fraction], Fraction, bool]:
        row = [(self.count(), self.number()) for _ in range(self.count())]
        threshold, strict = self.number(), self.count(1)
        need(strict <= 1 and len(dict(row)) == len(row), "strict or not, and every cell once")
        return dict(row), threshold, bool(strict)

    def statement(self) -> Statement:
        need(self.take(len(MAGIC)) == MAGIC, "a certificate of version 1")
        graph, floats, bits = self.take(32), self.count(1), self.count(2)
        need(floats <= 1 and 1 <= bits <= 1024, "a semantics that there is, and at most 1024 bits")
        producer, cases = self.take(self.count()).decode(), []
        for _ in range(self.count()):
            box = [[(self.double(), self.double()) for _ in range(self.count())] for _ in range(self.count())]
            need(all(lo <= hi for ends in box for lo, hi in ends), "boxes with lo <= hi")
            cases.append((box, [[self.inequality() for _ in range(self.count())] for _ in range(self.count())]))
        return Statement(graph, bool(floats), bits, producer, cases)

    def split(self, region: Region) -> list[Any]:
        """The parts of a region, as arguments of Region.where: at a number, or by the winner of a maximum."""
        kind = self.count(1)
        if kind == 0:
            return []
        at, cell = self.count(), self.count()
        need(kind <= 2 and at in region.lo and cell < len(region.lo[at]), "a split of a cell")
        if kind == 1:
            q = self.number()
            return [([([(at, cell, -1)], -down(-q, region.bits))],), ([([(at, cell, 1)], -down(q, region.bits))],)]
        need(region.net.nodes[at].taps, "a maximum")
        taps = region.net.nodes[at].taps[cell]
        return [
            ([([(*won, 1), (*lost, -1)], 0) for lost in taps if lost != won], [((at, cell), j)])
            for j, won in enumerate(taps)
        ]


def check(net: Network, data: bytes) -> Statement:
    """What a certificate proves of a network; Refused unless that is all it says."""
    r = Reader(data)
    said = r.statement()
    need(said.graph == net.digest, "a certificate of this network; it is another's")
    for box, claims in said.cases:
        need([len(e) for e in box] == [n.size for n in net.inputs], "a box for every input")
        need(all(c < net.nodes[net.out].size for claim in claims for row, _, _ in claim for c in row), "rows of cells")
        root = Region(net, box, said.bits, said.floats)
        todo: list[Any] = [(root, ([],), frozenset(range(len(claims))), 0)]
        while todo:
            parent, part, left, depth = todo.pop()
            region = parent.where(*part)
            for _ in range(r.count()):
                kind, at = r.count(1), r.count()
                need(kind <= 1 and at in region.lo, "a step at a node")
                sides = [r.bitmap(len(region.lo[at])) for _ in range(2)] if kind else []
                if not region.empty:
                    region.tighten(at, sides) if kind else region.forward(at)
            for _ in range(r.count()):
                which = r.count()
                need(which in left, "proofs of claims that are open")
                factors, betas = [r.double() for _ in claims[which]], [r.double() for _ in region.spaces]
                need(min([0, *factors, *betas]) >= 0, "factors >= 0")
                own = {}
                for at in [r.count() for _ in range(r.count())]:
                    need(at in net.nodes and net.nodes[at].taps, "slopes of a maximum")
                    for c in r.bitmap(net.nodes[at].size):
                        taps = net.nodes[at].taps[c]
                        own[at, c] = [0 if p == ZERO else r.slope() for p, _ in taps]
                need(region.empty or region.excludes(claims[which], factors, betas, own), f"a proof of claim {which}")
                left = left - {which}
            parts = r.split(region)
            need(depth < MOST_SPLITS and (parts or not left or region.empty), "a proof for every part of the box")
            todo += [(region, p, left, depth + 1) for p in reversed(parts)]
    need(r.at == len(data), "nothing behind the end")
    return said
