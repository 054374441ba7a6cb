"""Replays a certificate in exact integers, and says what it proves. docs/certificates.md describes the format.

    python -I check.py GRAPH CERTIFICATE [SPEC]

GRAPH is a file of lunette's Graph.save, its constants beside it; SPEC is a VNNLIB file. Beside this one, vnnlib.py has
SPEC, balls.py has exp, log and roots. Exit status 0: no input satisfies SPEC; 1: refused; 3: a statement was proven.

All numbers are integers: the end n of a box and the coefficient n of a cell mean n/2^bits, a total n means n/4^bits.
What is rounded is rounded towards the weaker statement. For coefficients a_k of the nodes h_k, from a row c at the
output back to the inputs, and any coefficients g_(k,p) of what node k reads,

    c . h_out  =  a_in . x  +  sum over k of [ a_k . h_k - sum over p of g_(k,p) . h_p ],   a_p = sum over k of g_(k,p),

and each bracket is at least its minimum over boxes that were proven before (weak duality). So a certificate may choose
the g of maxima as it likes: bad ones prove less, never what is false.
"""

# fmt: off
# ruff: noqa: E401, I001
from __future__ import annotations

import ast, hashlib, json, re, runpy, struct, sys, zipfile
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain, product
from math import lcm, prod
from operator import add, sub
from pathlib import Path
from typing import Any, Final, NamedTuple

Shape = tuple[int, ...]
Options = dict[str, Any]
Tap = tuple[int, int]  # a node and a cell of it
MOST: Final = 1 << 24  # cells of a node, and of all its windows
MOST_WORK: Final = 1 << 34  # coefficients in all walks together
UNIT: Final = 20  # slopes are multiples of 2^-20
FLOATS: Final = {"f32": (24, 149, 128), "f64": (53, 1074, 1024)}  # bits; the least is 2^-..., all are below 2^...
ZERO: Final = -1  # the number of a node that is zero
TYPES: Final = {  # of options; those of all others, and of what is in tuples, are integers or None
    **dict.fromkeys(("ceil_mode", "count_include_pad", "return_indices", "keepdims", "turn_x", "turn_y"), (bool,)),
    **dict.fromkeys(("divisor", "slope", "value", "p"), (int, float)), "ties": (str,), "padding": (int, str, tuple)}
BALLS: Final = ("exp", "log", "sqrt", "sigmoid", "tanh", "erf", "smooth_max_pool", "lp_pool")  # balls.py has them
TIES, CONV = "ties return_indices ", "stride padding dilation groups "
POOL: Final = "kernel stride padding dilation ceil_mode spatial "
TAKES: Final = {name: (int(count), options.split()) for names, count, options in (  # operands, and options
    ("neg relu abs stop_gradient exp log sqrt sigmoid tanh erf", 1, ""), ("add sub mul div maximum minimum", 2, ""),
    ("sum mean max", 1, "axis keepdims"), ("leaky_relu", 1, "slope"), ("reshape broadcast_to", 1, "to"),
    ("transpose", 1, "axes"), ("slice", 1, "start stop step"), ("pad", 1, "padding value step"), ("concat", 1, "axis"),
    ("matmul", 2, "turn_x turn_y"), ("conv", 2, CONV), ("conv_transpose", 2, CONV + "output_padding"),
    ("max_pool", 1, POOL + TIES), ("avg_pool", 1, POOL + "count_include_pad divisor"), ("lp_pool", 1, POOL + "p"),
    ("smooth_max_pool", 2, POOL + "count_include_pad"), ("adaptive_avg_pool", 1, "output_size spatial"),
    ("adaptive_max_pool", 1, TIES + "output_size spatial"), ("global_avg_pool", 1, "keepdims spatial"),
    ("global_max_pool", 1, TIES + "keepdims spatial"),
) for name in names.split()}
class Refused(Exception):  # noqa: N818 (it is what a checker does)
    """Why a network or a certificate is not accepted."""
def need(condition: Any, what: str) -> None:
    if not condition:
        raise Refused(what)
def down(q: Fraction, bits: int) -> int:  # the greatest n with n/2^bits <= q
    return (q.numerator << bits) // q.denominator

# ---- cells: windows are lists, by output cell, of the input cells of the kernel's cells, None where there is padding
def slide(n: int, k: int, s: int, d: int, lo: int, hi: int, ceil: bool) -> list[Any]:
    """Output o reads o*s - lo and every d-th behind it, up to the end of hi; with ceil, one more if it begins in x."""
    room = n + lo + hi - (k - 1) * d - 1
    need(min(k, s, d) >= 1 and min(lo, hi) >= 0 and n + lo + hi <= MOST, "windows of a possible size")
    m = room // s + 1 + (ceil and room % s > 0 and (room // s + 1) * s < n + lo)
    need(m >= 1, "windows that fit into their input")
    reads = [range(o * s - lo, min(o * s - lo + (k - 1) * d + 1, n + hi), d) for o in range(m)]
    return [[i if 0 <= i < n else None for i in own] for own in reads]
def turn(n: int, k: int, s: int, d: int, lo: int, hi: int, more: int) -> list[Any]:
    """Transposed: input i and kernel cell j add to output i*s - lo + j*d; there are `more` outputs at the end."""
    m = (n - 1) * s - lo - hi + (k - 1) * d + 1 + more
    need(min(n, k, s, d, m) >= 1 and min(lo, hi, more) >= 0 and more < max(s, d) and m * k <= MOST, "windows that fit")
    reads = [[divmod(o + lo - j * d, s) for j in range(k)] for o in range(m)]
    return [[i if rest == 0 and 0 <= i < n else None for i, rest in own] for own in reads]
def bins(n: int, m: int) -> list[Any]:  # adaptive: m windows over n cells; one of them is global
    need(n >= 1 and m >= 1 and m * n <= MOST, "bins of cells")
    return [list(range(o * n // m, -(-(o + 1) * n // m))) for o in range(m)]
def leaves(value: Any) -> list[Any]:
    return list(chain.from_iterable(map(leaves, value))) if isinstance(value, tuple) else [value]
def per_axis(value: Any, d: int) -> Shape:
    many = value if isinstance(value, tuple) else (value,) * d
    need(len(many) == d and all(type(v) is int for v in many), f"one integer, or {d} of them")
    return many
def axes_of(o: Options, kernel: Shape, space: Shape, stride: Any, turned: bool) -> list[Any]:
    """The windows on each axis, from the options of an operator."""
    pads, found = o.get("padding", 0), []
    word, pads = (pads, 0) if isinstance(pads, str) else ("valid", pads)
    if not isinstance(pads, tuple) or not any(isinstance(p, tuple) for p in pads):
        pads = [(p, p) for p in per_axis(pads, len(kernel))]
    need(word in ("valid", "same", "same_lower"), "padding that there is")
    many = (per_axis(v, len(kernel)) for v in (stride, o.get("dilation", 1), o.get("output_padding", 0)))
    for n, k, pair, s, d, more in zip(space, kernel, pads, *many, strict=True):
        (lo, hi), ceil = per_axis(pair, 2), o.get("ceil_mode", False)
        if word != "valid":  # as many windows as strides; an odd cell goes to the end, or to the start
            total = (k - 1) * d + 1 - (s if turned else n - (-(-n // s) - 1) * s)
            lo, ceil, more = max(total, 0) // 2, False, max(more, -total)
            lo, hi = (lo, max(total, 0) - lo) if word == "same" else (max(total, 0) - lo, lo)
        found.append(turn(n, k, s, d, lo, hi, more) if turned else slide(n, k, s, d, lo, hi, ceil))
    return found
def flat(lists: Any, shape: Shape) -> list[Any]:
    """Of every choice of an index from each list, row by row, the flat cell; None where an index is None."""
    found: list[Any] = [0]
    for some, n in zip(lists, shape, strict=True):
        found = [None if f is None or i is None else f * n + i for f in found for i in some]
    return found
def windows(axes: list[Any], space: Shape) -> list[Any]:  # all axes together, with flat cells
    need(prod(sum(len(w) + 1 for w in axis) for axis in axes) <= MOST, "windows of a possible size")
    return [flat(lists, space) for lists in product(*axes)]
# ---- what the lines of a graph compute
@cache
def beside(name: str) -> dict[str, Any]:  # what a file in the folder of this one defines
    need((path := Path(__file__).with_name(name)).exists(), f"{name} beside check.py")
    return runpy.run_path(str(path))
class Array(NamedTuple):  # what a line is: cells of nodes; operators that only move cells make no nodes
    shape: Shape
    taps: list[Tap]
@dataclass(eq=False)
class Node:  # an input; a constant, with numbers; maxima of taps; sums of (node, cells, weights), over a denominator
    size: int
    numbers: list[Fraction] | None = None
    taps: Any = None
    sums: Any = None
    denominator: int = 1
    roundings: int = 0  # of each term, in an execution in floats
    curve: Any = None  # or increasing functions of the cells in reads, of balls.py
    reads: Any = None
    at: int = ZERO
    dtype: str = "f32"
    sources: frozenset[int] = frozenset()
    is_computed: bool = False
def picked(x: Array, lists: list[Any], fill: Tap = (ZERO, 0)) -> Array:
    """The cells of x at these indices of every axis; None is the fill."""
    need(prod(map(len, lists)) <= MOST, "arrays of a possible size")
    return Array(tuple(map(len, lists)), [fill if c is None else x.taps[c] for c in flat(lists, x.shape)])
def spread(x: Array, to: Shape) -> Array:  # as broadcasting has it
    own = (1,) * (len(to) - len(x.shape)) + x.shape
    need(all(n in (1, m) for n, m in zip(own, to, strict=True)), f"a shape that broadcasts to {to}")
    return picked(Array(own, x.taps), [[0] * m if n == 1 else range(m) for n, m in zip(own, to, strict=True)])
def turned(x: Array, axes: Any) -> Array:  # the axes in another order
    order, found = [range(len(x.shape))[a] for a in axes], [0]
    need(sorted(order) == list(range(len(x.shape))), "every axis once")
    for a in order:
        found = [c + j * prod(x.shape[a + 1 :]) for c in found for j in range(x.shape[a])]
    return Array(tuple(x.shape[a] for a in order), [x.taps[c] for c in found])
def cut(x: Array, o: Options) -> Array:  # slices
    every = (None,) * len(o["start"]) if o.get("step") is None else o["step"]
    some = [slice(*ends) for ends in zip(o["start"], o["stop"], every, strict=True)] + [slice(None)] * len(x.shape)
    need(all(s.step is None or s.step >= 1 for s in some), "steps >= 1")
    return picked(x, [range(n)[part] for n, part in zip(x.shape, some, strict=False)])
def padded(x: Array, o: Options, fill: Tap) -> Array:  # cells around x, and step - 1 of them between its own
    pads, every = o.get("padding", ()), (1,) * len(x.shape) if o.get("step") is None else o["step"]
    lists, ok = list[Any](), all(0 <= p <= MOST for p in leaves(pads)) and all(1 <= s <= MOST for s in every)
    pads = pads if isinstance(pads, tuple) else ((pads, pads),) * len(x.shape)
    for n, (p, q), s in zip(x.shape, pads, every, strict=True):
        need(ok and n * s <= MOST, "padding of a possible size")
        lists.append([None] * p + [None if i % s else i // s for i in range((n - 1) * s + 1)] + [None] * q)
    return picked(x, lists, fill)
def joined(xs: list[Array], axis: int) -> Array:  # one after the other along an axis
    axis, shape = range(len(xs[0].shape))[axis], xs[0].shape
    need(len({(x.shape[:axis], x.shape[axis + 1 :]) for x in xs}) == 1, "shapes that join")
    rows = [(x.taps, prod(x.shape[axis:])) for x in xs]
    taps = [tap for o in range(prod(shape[:axis])) for own, n in rows for tap in own[o * n : (o + 1) * n]]
    return Array((*shape[:axis], sum(x.shape[axis] for x in xs), *shape[axis + 1 :]), taps)
def conv(x: Array, w: Array, o: Options, back: bool) -> tuple[Shape, list[tuple[list[int], list[int]]]]:
    """By output cell, the cells of x and w that are multiplied; transposed, w is (in, out of a group, *kernel)."""
    d, groups, kernel = len(w.shape) - 2, o.get("groups", 1), w.shape[2:]
    lead, (channels, *space) = x.shape[: len(x.shape) - d - 1], x.shape[len(x.shape) - d - 1 :]
    ins, outs = channels // groups, w.shape[1] if back else w.shape[0] // groups  # of one group
    need(w.shape[:2] == ((channels, outs) if back else (outs * groups, ins)) and channels == ins * groups, "channels")
    axes, terms, area = axes_of(o, kernel, tuple(space), o.get("stride", 1), back), [], prod(space)
    found = [[(k, i) for k, i in enumerate(own) if i is not None] for own in windows(axes, tuple(space))]
    for n, g in product(range(prod(lead)), range(groups)):
        some = [(n * channels + g * ins + j) * area for j in range(ins)]
        reads = [[first + i for first in some for _, i in pairs] for pairs in found]
        for c in range(outs):
            base = [((g * ins + j) * outs + c if back else (g * outs + c) * ins + j) * prod(kernel) for j in range(ins)]
            terms += [(r, [b + k for b in base for k, _ in pairs]) for r, pairs in zip(reads, found, strict=True)]
    return (*lead, outs * groups, *map(len, axes)), terms
def pooled(x: Array, o: Options, dtype: str) -> tuple[Shape, list[list[Tap]], list[Fraction]]:
    """By output cell, the cells in its window, and what an average divides by."""
    first, own = o.get("kernel", o.get("output_size", 1)), o.get("spatial")
    d = len(first) if isinstance(first, tuple) else len(x.shape) - 2 if own is None else own
    need(0 <= d < len(x.shape) and own in (None, d) and not o.get("return_indices"), "axes of a pool, and no indices")
    lead, space = x.shape[: len(x.shape) - d], x.shape[len(x.shape) - d :]
    if "kernel" in o:
        axes = axes_of(o, per_axis(first, d), space, first if o.get("stride") is None else o["stride"], False)
    else:
        many = first if isinstance(first, tuple) else (first,) * d
        axes = [bins(n, n if m is None else m) for n, m in zip(space, many, strict=True)]
    found, area = windows(axes, space), prod(space)
    inside = [[i for i in own if i is not None] for own in found]
    over = [Fraction(len(w if o.get("count_include_pad", True) else i)) for w, i in zip(found, inside, strict=True)]
    over = over if o.get("divisor") is None else [rounded(o["divisor"], dtype)] * len(found)
    taps = [[x.taps[c * area + i] for i in own] for c in range(prod(lead)) for own in inside]
    return (*lead, *(map(len, axes) if o.get("keepdims", True) else ())), taps, over * prod(lead)
def rounded(value: Any, dtype: str) -> Fraction:  # a number as the dtype has it
    need(type(value) in (int, float) and abs(value) < 1 << 127, "a number of the dtype")
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0] if dtype == "f32" else float(value))
class Network:
    """A graph, from the text that lunette writes: node 4*n + 3 is that of line n, its parts have the numbers below."""

    SIZES = r"(?:[0-9]{1,9}(?:,[0-9]{1,9}){0,31})?"
    LINE = re.compile(rf'(%([0-9]{{1,9}}) : (f32|f64)\[({SIZES})\] = ([a-z_0-9]+)\((.*?)\))(?:  # (".*"))?')
    def __init__(self, lines: list[str], constants: Any) -> None:
        self.nodes: dict[int, Node] = {ZERO: Node(1, [Fraction(0)])}
        self.constants, self.inputs, self.arrays = constants, list[Node](), list[Array]()
        self.names, self.dtypes, self.grade = list[str](), list[str](), "exact"  # of inputs; lines; proofs
        self.hash = hashlib.sha256(b"lunette graph 1\n")
        for n, text in enumerate(lines[:-1]):
            found = self.LINE.fullmatch(text) if len(text) < 1 << 13 else None
            if found is None or found[2] != str(n):
                raise Refused(f"a graph of floats, in lines that lunette writes; got {text[:80]}")
            self.hash.update(found[1].encode() + b"\n")
            self.at, self.dtype, shape = 4 * n, found[3], tuple(int(size) for size in found[4].split(",") if size)
            need(prod(shape) <= MOST and type(ast.literal_eval(found[7] or '""')) is str, "sizes, and a label")
            self.arrays.append(self.read(found[5], found[6], shape))
            self.dtypes.append(self.dtype)
            need(self.arrays[n].shape == shape and len(self.arrays[n].taps) == prod(shape), f"the shape of {text[:80]}")
        need(lines and re.fullmatch(r"return %[0-9]{1,9}", lines[-1]), "one output")
        self.hash.update(lines[-1].encode())
        self.out, self.digest = self.arrays[int(lines[-1][8:])].taps, self.hash.hexdigest()
    def new(self, node: Node, part: int = 3) -> list[Tap]:
        node.at, node.dtype = self.at + part, self.dtype
        node.is_computed = not node.taps is node.sums is node.reads is None
        node.sources = frozenset(own[0] for own in chain.from_iterable(node.taps or node.sums or node.reads or ()))
        self.nodes[node.at] = node
        return [(node.at, i) for i in range(node.size)]
    def sum(self, sums: Any, denominator: int = 1, roundings: int = 0, part: int = 3) -> list[Tap]:
        """Of (taps, weights)."""
        found = []
        for taps, weights in sums:
            own = defaultdict[int, tuple[list[int], list[int]]](lambda: ([], []))
            for (p, i), w in zip(taps, weights, strict=True):
                own[p][0].append(i)
                own[p][1].append(w)
            found.append([(p, *both) for p, both in own.items()])
        return self.new(Node(len(found), None, None, found, denominator, roundings), part)
    def greatest(self, taps: list[list[Tap]], part: int = 3) -> list[Tap]:
        """Of taps; those that are relus become what these are maxima of."""
        for at, own in enumerate(taps):
            inner = [(self.nodes[p].taps or {c: [(p, c)]})[c] for p, c in own]
            if all(i[1:] in ([], [(ZERO, 0)]) for i in inner):
                taps[at] = list(dict.fromkeys(chain.from_iterable(inner)))
        return self.new(Node(len(taps), None, taps), part)
    def integers(self, taps: list[Tap], divide: bool = False) -> Any:
        """Constants, or one divided by each, as integers over a denominator; None if a tap is none."""
        if any(self.nodes[p].numbers is None for p, _ in taps):
            return None
        found: Any = [self.nodes[p].numbers[i] for p, i in taps]  # type: ignore[index]
        need(all(found) or not divide, "divisors other than zero")
        found = [1 / q for q in found] if divide else found
        den = lcm(*{q.denominator for q in found})
        return [q.numerator * (den // q.denominator) for q in found], den
    def read(self, name: str, inside: str, shape: Shape) -> Array:
        if name == "input":
            self.names.append(ast.literal_eval(inside))
            name, *before = self.names[::-1]
            need(name and name.isprintable() and name not in before, "a name for every input")
            self.inputs.append(Node(prod(shape)))
            return Array(shape, self.new(self.inputs[-1]))
        if name == "constant":
            flat: Any = [ast.literal_eval(inside)]
            if isinstance(flat[0], str):
                data = self.constants(flat[0], self.dtype, shape)
                self.hash.update(data)
                flat = struct.unpack(f"<{prod(shape)}{'f' if self.dtype == 'f32' else 'd'}", data)
            else:
                for n in shape:
                    need(all(isinstance(v, list) and len(v) == n for v in flat), "constants of their shapes")
                    flat = list(chain.from_iterable(flat))
            return Array(shape, self.new(Node(prod(shape), [rounded(v, self.dtype) for v in flat])))
        need(name in TAKES, f"operators that it knows; {name} is none")
        (count, names), xs = TAKES[name], list[Any]()
        while found := re.match(r"(%[0-9]{1,9}|None)(?:, |$)", inside):
            xs.append(None if found[1] == "None" else self.arrays[int(found[1][1:])])
            need(xs[-1] is None or self.dtypes[int(found[1][1:])] == self.dtype, f"operands of one dtype in {name}")
            inside = inside[found.end() :]
        most = len(xs) if name == "concat" else count + name.startswith("conv")
        need(count <= len(xs) <= most and None not in xs[:count], f"{count} operands of {name}")
        call: Any = ast.parse(f"f({inside})", mode="eval").body
        o = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
        need(not call.args and len(o) == len(call.keywords) and {*o} <= {*names}, f"options of {name}, once")
        for key, value in o.items():
            ok = type(value) is not tuple or {*map(type, leaves(value))} <= {int, type(None)}
            need(ok and type(value) in TYPES.get(key, (int, tuple, type(None))), f"{key} of its type in {name}")
        to = o.get("to", () if "to" in names else shape)
        need(len(to) == len(shape) and all(m in (n, -1) for m, n in zip(to, shape, strict=True)), "its own shape")
        need(o.get("ties", "all") in ("all", "first", "split") and to.count(-1) <= (name == "reshape"), f"known {o}")
        return self.operator(name, xs, o, shape)
    def operator(self, name: str, xs: list[Any], o: Options, to: Shape) -> Array:
        """The only place where names of operators mean something."""
        (x, y, b), rank = (*xs, None, None)[:3], len(xs[0].shape)
        moves: dict[str, Any] = {
            "reshape": lambda: Array(to, x.taps), "stop_gradient": lambda: x, "broadcast_to": lambda: spread(x, to),
            "transpose": lambda: turned(x, range(rank)[::-1] if o.get("axes") is None else o["axes"]),
            "slice": lambda: cut(x, o), "concat": lambda: joined(xs, o.get("axis", 0)),
            "neg": lambda: Array(x.shape, self.sum([([t], [-1]) for t in x.taps])),
            "pad": lambda: padded(x, o, self.new(Node(1, [rounded(o.get("value", 0), self.dtype)]), 2)[0]),
        }
        if name in BALLS:
            return Array(*beside("balls.py")["operator"](self, globals(), name, xs, o))
        if name in moves:
            return moves[name]()  # type: ignore[no-any-return]
        if name == "matmul":  # of matrices: rows and weights of a convolution without space
            need(rank == len(y.shape) == 2, "products of two matrices")
            x, y = turned(x, (1, 0)) if o.get("turn_x") else x, y if o.get("turn_y") else turned(y, (1, 0))
            if self.integers(y.taps) is None:
                return turned(self.operator("conv", [y, x], {}, to), (1, 0))
            return self.operator("conv", [x, y], {}, to)
        if name in ("conv", "conv_transpose"):
            to, terms = conv(x, y, o, name != "conv")
            need(found := self.integers(y.taps), f"constant weights in {name}")
            sums = [([x.taps[i] for i in ins], [found[0][k] for k in own]) for ins, own in terms]
            if b is not None:
                plane = prod(to[len(to) - len(y.shape) + 2 :])
                need(b.shape == to[len(to) - len(y.shape) + 1 :][:1], "a bias for every channel")
                sums = [([*t, b.taps[c // plane % len(b.taps)]], [*w, found[1]]) for c, (t, w) in enumerate(sums)]
            return Array(to, self.sum(sums, found[1], max((len(t) for t, _ in sums), default=0) + 1))
        if name in ("sum", "mean", "max"):  # a pool over axes that were turned to the end
            axis = range(rank) if o.get("axis") is None else o["axis"]
            folded = [range(rank)[a] for a in (axis if isinstance(axis, range | tuple) else (axis,))]
            x = turned(x, [*(a for a in range(rank) if a not in folded), *folded])
            x = Array((1, *x.shape), x.taps)  # a pool has an axis of channels
            options = {"spatial": len(folded), "keepdims": False, "divisor": 1 if name == "sum" else None}
            found = self.operator("max_pool" if name == "max" else "avg_pool", [x], options, to)
            kept = tuple(1 if a in folded else n for a, n in enumerate(xs[0].shape))
            return Array(kept if o.get("keepdims") else found.shape[1:], found.taps)
        if re.fullmatch("(adaptive_|global_)?(max|avg)_pool", name):
            to, taps, over = pooled(x, o, self.dtype)
            need(all(taps) if "max" in name else all(over), "cells in every window, and divisors other than zero")
            if "max" in name:
                return Array(to, self.greatest(taps))
            den = lcm(*{q.numerator for q in over})
            sums = [(t, [int(den / q)] * len(t)) for t, q in zip(taps, over, strict=True)]
            return Array(to, self.sum(sums, den, max(map(len, taps), default=0) + 2))
        if name in ("relu", "abs", "leaky_relu"):
            relu = self.greatest([[t, (ZERO, 0)] for t in x.taps], 3 if name == "relu" else 2)
            slope = Fraction(-1) if name == "abs" else rounded(o.get("slope", 0.01), self.dtype)
            n, d = slope.numerator, slope.denominator  # x*slope + relu(x)*(1 - slope)
            sums = [([*pair], [n, d - n]) for pair in zip(x.taps, relu, strict=True)]
            return Array(x.shape, relu if name == "relu" else self.sum(sums, d, int(name != "abs")))
        (left, right), rank = (spread(v, to).taps for v in xs), max(len(v.shape) for v in xs)
        sizes = [(1,) * (rank - len(v.shape)) + v.shape for v in xs]
        need(to == tuple(n if m == 1 else m for m, n in zip(*sizes, strict=True)), "shapes that broadcast")
        pairs = [[*pair] for pair in zip(left, right, strict=True)]
        if name in ("add", "sub"):
            return Array(to, self.sum([(p, [1, 1 if name == "add" else -1]) for p in pairs], 1, 1))
        if name == "maximum":
            return Array(to, self.greatest(pairs))
        if name == "minimum":
            both = [self.sum([([t], [-1]) for t in own], 1, 0, part) for part, own in enumerate((left, right))]
            inner = self.greatest([[*pair] for pair in zip(*both, strict=True)], 2)
            return Array(to, self.sum([([t], [-1]) for t in inner]))
        factors = self.integers(right, name == "div")
        if factors is None and name == "mul":
            factors, left = self.integers(left), right
        need(factors, f"a constant in {name}")
        return Array(to, self.sum([([t], [w]) for t, w in zip(left, factors[0], strict=True)], factors[1], 1))
# ---- a part of the input box, and what is known there
def least_of_max(a: int, g: list[int], lows: list[int], tops: list[int], low: int) -> int:
    """The least of a*(the greatest of low and the cells) - g . cells over a box; low is no less than any of lows."""
    if a < 0:  # a times the greatest is the least of a times each
        ends = [min(-s * p, -s * q) for s, p, q in zip(g, lows, tops, strict=True)]
        own = [min((a - s) * p, (a - s) * q) - e for s, p, q, e in zip(g, lows, tops, ends, strict=True)]
        return sum(ends) + min([a * low, *own])
    # Where the greatest is t, cells are at most t. The least of that is convex in t, and bends where cells end.
    rising = [(s, q) for s, q in zip(g, tops, strict=True) if s > 0]
    rest = sum(s * p for s, p in zip(g, lows, strict=True) if s <= 0)
    return min(a * t - sum(s * min(q, t) for s, q in rising) for t in (low, *(q for q in tops if q > low))) - rest
def slopes(lows: list[int], tops: list[int], low: int, below: bool) -> list[int]:
    """Good ones: below, of one cell or none; above, those of the level t that is the second greatest end."""
    if below:
        best = max(range(len(lows)), key=lambda i: (lows[i] >= low, lows[i] + tops[i]))
        one = lows[best] >= low or lows[best] + tops[best] > 2 * low
        return [(one and i == best) << UNIT for i in range(len(lows))]
    t = max(low, sorted([*tops, low])[-2])
    return [((q - t) << UNIT) // (q - p) if q > t else 0 for p, q in zip(lows, tops, strict=True)]
class Region:
    """Boxes of nodes, winners of maxima, and inequalities: the sum of (node, cell, sign) and a number is >= 0."""

    def __init__(self, net: Network, boxes: Any, bits: int, floats: bool) -> None:
        self.net, self.bits, self.floats, self.empty, self.work = net, bits, floats, False, [0]
        self.lo, self.hi, self.error = dict[int, list[int]](), dict[int, list[int]](), dict[int, list[int]]()
        self.winners, self.spaces, given = dict[Tap, int](), list[Any](), iter(boxes)
        for n in (n for n in net.nodes.values() if not n.is_computed):
            ends = next(given) if n.numbers is None else [(q, q) for q in n.numbers]
            self.meet(n.at, [down(a, bits) for a, _ in ends], [-down(-b, bits) for _, b in ends])
        need(not (floats and net.grade == "ball"), "no exp, log or roots in executions in floats")
        self.forward(0)
    def meet(self, at: int, lo: list[int], hi: list[int]) -> None:
        if at in self.lo:
            lo, hi = list(map(max, self.lo[at], lo)), list(map(min, self.hi[at], hi))
        self.lo[at], self.hi[at], self.views = lo, hi, dict[Tap, Any]()  # views: what may win each maximum
        self.empty = self.empty or any(a > b for a, b in zip(lo, hi, strict=True))
    def where(self, spaces: list[Any], winner: Any = ()) -> Region:
        """The part where these inequalities hold, each of one cell or of a difference of two."""
        new = object.__new__(Region)
        new.__dict__.update(self.__dict__, lo=self.lo.copy(), hi=self.hi.copy(), spaces=self.spaces + spaces)
        new.winners = self.winners | dict(winner)
        for terms, number in spaces:
            for (at, cell, sign), (other, i, _) in zip(terms, terms[::-1], strict=True):
                ends, two = [new.lo[at].copy(), new.hi[at].copy()], len(terms) - 1
                ends[sign < 0][cell] = two * (new.lo if sign > 0 else new.hi)[other][i] - sign * number
                new.meet(at, *ends)
        return new
    def parts(self, at: int, cell: int, q: Fraction | None) -> list[Any]:
        """The parts of a split, as arguments of `where`: at a number; or, for None, by the winner of a maximum."""
        if q is not None:
            return [([([(at, cell, -1)], -down(-q, self.bits))],), ([([(at, cell, 1)], -down(q, self.bits))],)]
        taps = self.net.nodes[at].taps[cell]
        spaces = [[([(*won, 1), (*lost, -1)], 0) for lost in taps if lost != won] for won in taps]
        return [(own, {(at, cell): j}) for j, own in enumerate(spaces)]
    def forward(self, start: int) -> None:  # boxes of all nodes from `start` on, by intervals
        for n in (n for n in self.net.nodes.values() if n.at >= start and n.is_computed):
            self.work[0] += 64 * n.size
            need(self.work[0] < MOST_WORK, "a certificate that takes a possible time")
            if n.roundings and self.floats and n.at not in self.error:
                self.error[n.at] = self.rounding(n)
            off, (lo, hi) = self.error.get(n.at, [0] * n.size), self.image(n, self.lo, self.hi)
            self.meet(n.at, list(map(sub, lo, off)), list(map(add, hi, off)))
    def image(self, n: Node, lo: Any, hi: Any) -> tuple[list[int], list[int]]:
        if n.taps is not None:
            return [max(lo[p][i] for p, i in t) for t in n.taps], [max(hi[p][i] for p, i in t) for t in n.taps]
        if n.curve is not None:
            return n.curve.image(n.reads, lo, hi, self.bits)  # type: ignore[no-any-return]
        low, high = [0] * n.size, [0] * n.size
        for o, (p, ins, weights) in ((o, part) for o, own in enumerate(n.sums) for part in own):
            less, more = lo[p], hi[p]
            low[o] += sum(w * (less[i] if w > 0 else more[i]) for i, w in zip(ins, weights, strict=True))
            high[o] += sum(w * (more[i] if w > 0 else less[i]) for i, w in zip(ins, weights, strict=True))
        return [v // n.denominator for v in low], [-(-v // n.denominator) for v in high]
    def rounding(self, n: Node) -> list[int]:
        """What an execution in floats can be off by: gamma * (sum of |weight| * |cell|) + underflow; no overflow."""
        (precision, least, most), r = FLOATS[n.dtype], n.roundings
        size = {p: [max(abs(a), abs(b)) for a, b in zip(self.lo[p], self.hi[p], strict=True)] for p in n.sources}
        whole = self.image(n, {p: [-v for v in s] for p, s in size.items()}, size)[1]
        widest = max([0, *whole]) + r * max([0, *chain(*size.values())])
        need(r < 1 << 20 and widest >> self.bits < 1 << most - 1, "a proof that nothing overflows")
        return [-(-r * w // ((1 << precision) - r)) - (-(r << self.bits) >> least) for w in whole]
    def walk(self, a: dict[int, list[int]], own: Any, stop: bool = False) -> int:
        """A total that is not above the sum of coefficients times cells, anywhere; to stop is to use their boxes."""
        total, nodes = 0, self.net.nodes
        while a:
            n = nodes[max(a)]
            given, parts = [(c, x) for c, x in enumerate(a.pop(n.at)) if x], {p: [0] * nodes[p].size for p in n.sources}
            self.work[0] += n.size << (12 if n.curve else 0)
            need(self.work[0] < MOST_WORK, "a certificate that takes a possible time")
            if stop or not n.is_computed:
                total += sum(x * (self.lo if x > 0 else self.hi)[n.at][c] for c, x in given)
                continue
            if n.at in self.error:
                total -= sum(abs(x) * self.error[n.at][c] for c, x in given)
            for c, x in given:
                if n.sums is None:
                    pulled, least = self.pulled(n, c, x, own.get((n.at, c)))
                    total += least
                    for (p, i), g in pulled:
                        parts[p][i] += g
                else:
                    for p, ins, weights in n.sums[c]:
                        part = parts[p]
                        for i, w in zip(ins, weights, strict=True):
                            part[i] += x * w
            for p, part in parts.items():
                if n.denominator > 1:  # rounding down takes less than one from a coefficient, times its cell
                    total += sum(least for least, x in zip(self.lo[p], part, strict=True) if x and least < 0)
                    part = [x // n.denominator for x in part]
                a[p] = list(map(add, a[p], part)) if p in a else part
        return total
    def pulled(self, n: Node, cell: int, x: int, own: Any) -> tuple[Any, int]:
        """Coefficients of the taps of a maximum, or of a curve, for that of a cell, and the least bracket."""
        if n.curve is not None:
            ends = [tuple(end[p][i] for p, i in n.reads[cell]) for end in (self.lo, self.hi)]
            g, least = n.curve.pulled(x, own and tuple(own), *ends, self.bits)
            return list(zip(n.reads[cell], g, strict=True)), least
        taps, at, winner = n.taps[cell], (n.at, cell), self.winners.get((n.at, cell))
        if at not in self.views:
            lows, tops = [self.lo[p][i] for p, i in taps], [self.hi[p][i] for p, i in taps]
            live = [i for i, q in enumerate(tops) if q > max(lows)]
            self.views[at] = live, [lows[i] for i in live], [tops[i] for i in live], max(lows)
        live, lows, tops, low = self.views[at]
        if winner is not None or (len(live) == 1 and lows[0] == low):
            return [(taps[live[0] if winner is None else winner], x)], 0  # it is that cell
        g = [x * s >> UNIT for s in ([own[i] for i in live] if own else slopes(lows, tops, low, x > 0) if live else [])]
        return [(taps[i], v) for i, v in zip(live, g, strict=True)], least_of_max(x, g, lows, tops, low)
    def tighten(self, at: int, sides: Any) -> None:
        """Better ends of cells of a node: lower ends of the first list, upper ends of the second."""
        ends, zeros = [self.lo[at].copy(), self.hi[at].copy()], [0] * len(self.lo[at])
        for sign, c in ((sign, c) for sign, some in zip((1, -1), sides, strict=True) for c in some):
            found = self.walk({at: [*zeros[:c], sign << self.bits, *zeros[c + 1 :]]}, {}) >> self.bits
            ends[sign < 0][c] = max(ends[0][c], found) if sign > 0 else min(ends[1][c], -found)
        self.meet(at, *ends)
    def excess(self, claim: Any, factors: Any, betas: Any, own: Any, stop: Any = False) -> Fraction:
        """A lower bound of the sum of factor*(row . output - threshold), by betas >= 0 of the region's inequalities."""
        row, total = defaultdict[int, Fraction](Fraction), 0
        start = {p: [0] * self.net.nodes[p].size for p, *_ in chain(self.net.out, *(terms for terms, _ in self.spaces))}
        for c, v, f in ((c, v, f) for f, (part, _, _) in zip(factors, claim, strict=True) for c, v in part.items()):
            row[c] += f * v
        for c, v in row.items():
            p, i = self.net.out[c]
            start[p][i] += down(v, self.bits)
            total += min(self.lo[p][i], 0) * (v != Fraction(down(v, self.bits), 1 << self.bits))
        for b, (terms, number) in zip((down(beta, self.bits) for beta in betas), self.spaces, strict=True):
            total -= b * number
            for p, i, sign in terms:
                start[p][i] -= sign * b
        most = sum((f * t for f, (_, t, _) in zip(factors, claim, strict=True)), Fraction(0))
        return Fraction(total + self.walk(start, own, stop), 1 << 2 * self.bits) - most
    def excludes(self, claim: Any, factors: Any, betas: Any, own: Any, stop: Any = False) -> bool:
        """Whether no point satisfies all inequalities of a claim: the sum of them, with factors >= 0, is impossible."""
        found = self.excess(claim, factors, betas, own, stop)
        return found > 0 or (found == 0 and any(f and strict for f, (_, _, strict) in zip(factors, claim, strict=True)))
# ---- the certificate
def number(v: Any) -> Fraction:  # an integer, a float, or the text of a fraction
    ok = re.fullmatch(r"-?[0-9]{1,999}/[0-9]{1,999}", v) if isinstance(v, str) else type(v) in (int, float)
    need(ok and (type(v) is not int or abs(v) < 1 << 2048), "numbers of a possible size")
    return Fraction(v)
def marked(text: str, size: int) -> list[int]:  # the cells whose bits a hexadecimal number has
    need(len(text) <= size // 4 + 1 and re.fullmatch("[0-9a-f]+", text) and int(text, 16) < 1 << size, "a map of cells")
    return [c for c, bit in enumerate(bin(int(text, 16))[:1:-1]) if bit == "1"]
def cases_of(content: Any) -> list[tuple[Any, Any]]:
    """(boxes, claims); an inequality is (row, a coefficient by cell of the output; threshold; strict)."""
    found = []
    for case in content["cases"]:
        for row, _, strict in chain(*case["claims"]):
            need(len({c for c, _ in row}) == len(row) and strict in (0, 1) and type(strict) is int, "rows, 0 or 1")
        claims = [[({c: number(v) for c, v in row}, number(t), s == 1) for row, t, s in own] for own in case["claims"]]
        found.append(([[(number(lo), number(hi)) for lo, hi in box] for box in case["boxes"]], claims))
    return found
def parsed(data: bytes) -> Any:
    def once(own: list[Any]) -> Any:
        return dict(own) if len(dict(own)) == len(own) else need(False, "every name once")
    return json.loads(data if len(data) < 1 << 30 else b"", object_pairs_hook=once)
def check(net: Network, data: bytes) -> list[tuple[Any, Any]]:
    """The cases that a certificate proves: no point of the boxes satisfies all inequalities of any of the claims."""
    said = parsed(data)
    need(said["format"] == "lunette certificate" and said["version"] == 1 and len(said) == 7, "a version 1 certificate")
    need(said["graph"] == net.digest, "a certificate of this network; it is another's")
    bits, cases = said["bits"], cases_of(said)
    need(said["semantics"] in ("real", "float") and type(bits) is int and 1 <= bits <= 1024, "a semantics, and bits")
    for (boxes, claims), case in zip(cases, said["cases"], strict=True):
        need([len(b) for b in boxes] == [n.size for n in net.inputs] and len(case) == 3, "a box for every input")
        need(all(lo <= hi for lo, hi in chain(*boxes)), "boxes with lo <= hi")
        need(all(type(c) is int and 0 <= c < len(net.out) for row, *_ in chain(*claims) for c in row), "rows")
        root = Region(net, boxes, bits, said["semantics"] == "float")
        todo: list[Any] = [(root, ([],), frozenset(range(len(claims))), 0)]
        for steps, proofs, split in case["tree"]:
            parent, part, left, depth = todo.pop()
            region = parent.where(*part)
            for at, *sides in steps if not region.empty else ():
                size = len(region.lo[at])
                region.tighten(at, [marked(side, size) for side in sides]) if sides else region.forward(at)
            for which, stop, *both, chosen in proofs:
                (factors, betas), own = [[number(v) for v in some] for some in both], dict[Tap, list[int]]()
                need(which in left and all(v >= 0 for v in factors + betas), "proofs of open claims, by factors >= 0")
                for at, text, values in chosen:
                    given, reads = iter(values), net.nodes[at].taps or net.nodes[at].reads
                    need(all(type(v) is int and abs(v) < 1 << 40 for v in values), "slopes of a possible size")
                    for c in marked(text, net.nodes[at].size):
                        own[at, c] = [0 if p == ZERO else next(given) for p, _ in reads[c]]
                need(region.empty or region.excludes(claims[which], factors, betas, own, stop), f"a proof of {which}")
                left = left - {which}
            need(split or not left or region.empty, "a proof for every part of the box")
            for at, cell, q in [split] if split else []:
                need(depth < 512 and 0 <= cell < len(region.lo[at]), "a split of a cell")
                parts = region.parts(at, cell, None if q is None else number(q))
                todo += [(region, p, left, depth + 1) for p in reversed(parts)]
        need(not todo, "a branch for every part")
    return cases
def load(path: str) -> Network:  # a graph that Graph.save wrote
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    need(content["format"] == "lunette-graph" and content["version"] == 1, "a graph that lunette saved")
    def constant(name: str, dtype: str, shape: Shape) -> bytes:
        with zipfile.ZipFile(path + ".npz") as archive:
            need(archive.getinfo(name + ".npy").file_size < 1 << 31, "constants of a possible size")
            data = archive.read(name + ".npy")
        end = 10 + int.from_bytes(data[8:10], "little")
        own = {"descr": "<f4" if dtype == "f32" else "<f8", "fortran_order": False, "shape": shape}
        need(data[:8] == b"\x93NUMPY\1\0" and ast.literal_eval(data[10:end].decode()) == own, f"constant {name}")
        return data[end:]
    return Network(content["graph"], constant)
def main(graph: str, certificate: str, spec: str | None = None) -> int:
    try:
        net, data = load(graph), Path(certificate).read_bytes()
        cases, semantics = check(net, data), parsed(data)["semantics"]
        ask = beside("vnnlib.py") if spec else {}
        need(not spec or ask["proves"](cases, ask["claims_of"](Path(spec).read_text(), net)), "a proof of that")
    except Exception as error:  # whatever goes wrong, nothing is proven
        print(f"refused: {'needs' if isinstance(error, Refused) else type(error).__name__ + ':'} {error!s:.200}")
        return 1
    print(f"{'proven' if spec else cases}, semantics {semantics}, grade {net.grade}, graph {net.digest}")
    return 0 if spec else 3
if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) in (3, 4) else __doc__)
