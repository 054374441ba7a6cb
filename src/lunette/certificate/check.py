"""Replays a certificate in exact integers, and says what it proves. docs/certificates.md describes the format.

    python -I check.py GRAPH CERTIFICATE [SPEC [real|float]]

GRAPH is a file of lunette's Graph.save, its constants beside it; SPEC is a VNNLIB file. Beside this one, vnnlib.py has
SPEC, balls.py exp, log and roots, ahead.py lines from the inputs on, and slots.py, if it is there, walks of many rows
at once. Exit status 0: no input satisfies SPEC; 1: refused; 3: a statement was proven.

All numbers are integers: the end n of a box and the coefficient n of a cell mean n/2^bits, a total n means n/4^bits.
What is rounded is rounded towards the weaker statement. For coefficients a_k of the nodes h_k, from a row c at the
output back to the inputs, and any coefficients g_(k,p) of what node k reads,

    c . h_out  =  a_in . x  +  sum over k of [ a_k . h_k - sum over p of g_(k,p) . h_p ],   a_p = sum over k of g_(k,p),

and each bracket is at least its minimum over boxes that were proven before (weak duality). So a certificate may choose
the g of maxima as it likes: bad ones prove less, never what is false.
"""

# fmt: off
# ruff: noqa: B905, E401, E701, I001, UP014
from __future__ import annotations
import ast, functools, hashlib, json, re, runpy, struct, sys, zipfile
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, product
from math import lcm, prod
from operator import add, floordiv, mul, sub
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
Shape = tuple[int, ...]
Tap = tuple[int, int]  # a node and a cell of it
MOST: Final = 1 << 24  # cells of an array, and of windows
MOST_TERMS: Final = 1 << 26  # cells of a network, and of what they read
LAST = MOST_WORK = 1 << 34  # coefficients in all walks together; no node has such a number
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
class Refused(Exception): ...  # noqa: N818 (why a network or a certificate is not accepted)
def need(condition: Any, what: str) -> None:
    if not condition: raise Refused(what)
def down(q: Fraction, bits: int) -> int: return (q.numerator << bits) // q.denominator  # the greatest n <= q * 2^bits
# ---- cells: windows are lists, by output cell, of the input cells of the kernel's cells, None where there is padding
def slide(n: int, k: int, s: int, d: int, lo: int, hi: int, ceil: bool) -> list[Any]:
    """Output o reads o*s - lo and every d-th behind it, up to the end of hi; with ceil, one more if it begins in x."""
    room = n + lo + hi - (k - 1) * d - 1
    need(min(k, s, d) >= 1 and min(lo, hi) >= 0 and n + lo + hi <= MOST, "windows of a possible size")
    m = room // s + 1 + (ceil and room % s > 0 and (room // s + 1) * s < n + lo)
    need(m >= 1 and m * min(k, n + lo + hi) <= MOST, "windows that fit into their input, not too many")
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
def leaves(value: Any) -> list[Any]: return [*chain(*map(leaves, value))] if isinstance(value, tuple) else [value]
def per_axis(value: Any, d: int) -> Shape:
    many = value if isinstance(value, tuple) else (value,) * d
    need(len(many) == d and all(type(v) is int for v in many), f"one integer, or {d} of them")
    return many
def axes_of(o: Any, kernel: Shape, space: Shape, stride: Any, turned: bool) -> list[Any]:  # windows by axis
    pads, found = o.get("padding", 0), []
    word, pads = (pads, 0) if isinstance(pads, str) else ("valid", pads)
    if not isinstance(pads, tuple) or not any(isinstance(p, tuple) for p in pads):
        pads = [(p, p) for p in per_axis(pads, len(kernel))]
    need(word in ("valid", "same", "same_lower")[: 1 if any(leaves(o.get("output_padding", 0))) else 3], "its padding")
    many = (per_axis(v, len(kernel)) for v in (stride, o.get("dilation", 1), o.get("output_padding", 0)))
    for n, k, pair, s, d, more in zip(space, kernel, pads, *many, strict=True):
        (lo, hi), ceil = per_axis(pair, 2), o.get("ceil_mode", False)
        if word != "valid":  # as many windows as strides; an odd cell goes to the end, or to the start
            total = (k - 1) * d + 1 - (s if turned else n - (-(-n // s) - 1) * s)
            lo, ceil, more = max(total, 0) // 2, False, max(more, -total)
            lo, hi = (lo, max(total, 0) - lo) if word == "same" else (max(total, 0) - lo, lo)
        found.append(turn(n, k, s, d, lo, hi, more) if turned else slide(n, k, s, d, lo, hi, ceil))
    return found
def flat(lists: Any, shape: Shape) -> list[Any]:  # the cells at all choices of indices, row by row; None for None
    found: list[Any] = [0]
    for some, n in zip(lists, shape, strict=True):
        found = [None if f is None or i is None else f * n + i for f in found for i in some]
    return found
def windows(axes: list[Any], space: Shape) -> list[Any]:  # all axes together, with flat cells
    need(prod(sum(len(w) + 1 for w in axis) for axis in axes) <= MOST, "windows of a possible size")
    return [flat(lists, space) for lists in product(*axes)]
@functools.cache
def beside(name: str, what: str) -> dict[str, Any]:  # what a file in the folder of this one defines
    need((path := Path(__file__).with_name(name)).exists(), f"{name} beside check.py, of the same release, for {what}")
    return runpy.run_path(str(path))
Array = NamedTuple("Array", [("shape", Shape), ("taps", list[Tap])])  # a line: cells of nodes; some only move them
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
    widest: int = 0  # the most terms, or taps, of a cell
def picked(x: Array, lists: list[Any], fill: Tap = (ZERO, 0)) -> Array:  # by indices on every axis; None is the fill
    need(prod(map(len, lists)) <= MOST, "arrays of a possible size")
    return Array(tuple(map(len, lists)), [fill if c is None else x.taps[c] for c in flat(lists, x.shape)])
def spread(x: Array, to: Shape) -> Array:  # as broadcasting has it
    own = (1,) * (len(to) - len(x.shape)) + x.shape
    need(all(n in (1, m) for n, m in zip(own, to, strict=True)), f"a shape that broadcasts to {to}")
    return picked(Array(own, x.taps), [[0] * m if n == 1 else range(m) for n, m in zip(own, to, strict=True)])
def turned(x: Array, axes: Any) -> Array:  # the axes in another order
    order, found = [range(len(x.shape))[a] for a in axes], [0]
    need(sorted(order) == list(range(len(x.shape))), "every axis once")
    for a in order: found = [c + j * prod(x.shape[a + 1 :]) for c in found for j in range(x.shape[a])]
    return Array(tuple(x.shape[a] for a in order), [x.taps[c] for c in found])
def cut(x: Array, o: Any) -> Array:  # slices
    every = (None,) * len(o["start"]) if o.get("step") is None else o["step"]
    some = [slice(*ends) for ends in zip(o["start"], o["stop"], every, strict=True)] + [slice(None)] * len(x.shape)
    need(len(every) <= len(x.shape) and all(s.step is None or s.step >= 1 for s in some), "axes of x, steps >= 1")
    return picked(x, [range(n)[part] for n, part in zip(x.shape, some, strict=False)])
def padded(x: Array, o: Any, fill: Tap) -> Array:  # cells around x, and step - 1 of them between its own
    pads, every = o.get("padding", ()), (1,) * len(x.shape) if o.get("step") is None else o["step"]
    lists, room, ok = list[Any](), 1, all(0 <= p <= MOST for p in leaves(pads)) and all(1 <= s <= MOST for s in every)
    pads = pads if isinstance(pads, tuple) else ((pads, pads),) * len(x.shape)
    for n, (p, q), s in zip(x.shape, pads, every, strict=True):
        need(ok and (room := room * max(n * s + p + q, 1)) <= MOST, "padding of a possible size")
        lists.append([None] * p + [None if i % s else i // s for i in range((n - 1) * s + 1)] + [None] * q)
    return picked(x, lists, fill)
def joined(xs: list[Array], axis: int) -> Array:  # one after the other along an axis
    axis, shape = range(len(xs[0].shape))[axis], xs[0].shape
    need(len({(x.shape[:axis], x.shape[axis + 1 :]) for x in xs}) == 1, "shapes that join")
    rows = [(x.taps, prod(x.shape[axis:])) for x in xs]
    taps = [tap for o in range(prod(shape[:axis])) for own, n in rows for tap in own[o * n : (o + 1) * n]]
    return Array((*shape[:axis], sum(x.shape[axis] for x in xs), *shape[axis + 1 :]), taps)
def conv(x: Array, w: Array, o: Any, back: bool) -> tuple[Shape, Any, int]:
    """By output cell, cells of x and w that are multiplied; the most. Back, w is (in, out of a group, *kernel)."""
    d, groups, kernel = len(w.shape) - 2, o.get("groups", 1), w.shape[2:]
    lead, (channels, *space) = x.shape[: len(x.shape) - d - 1], x.shape[len(x.shape) - d - 1 :]
    ins, outs = channels // groups, w.shape[1] if back else w.shape[0] // groups  # of one group
    ok = w.shape[:2] == ((channels, outs) if back else (outs * groups, ins)) and channels == ins * groups
    need(groups >= 1 and ok, "weights for its channels, in its groups")
    axes, area, size = axes_of(o, kernel, tuple(space), o.get("stride", 1), back), prod(space), prod(kernel)
    found = [[(k, i) for k, i in enumerate(own) if i is not None] for own in windows(axes, tuple(space))]
    need(prod(n or 1 for n in (*lead, groups, ins, outs)) * sum(len(i) + 1 for i in found) <= MOST_TERMS, "fewer terms")
    def terms() -> Any:
        for n, g in product(range(prod(lead)), range(groups)):
            some = [(n * channels + g * ins + j) * area for j in range(ins)]
            reads = [[first + i for first in some for _, i in pairs] for pairs in found]
            for c in range(outs):
                base = [((g * ins + j) * outs + c if back else (g * outs + c) * ins + j) * size for j in range(ins)]
                yield from ((r, [b + k for b in base for k, _ in pairs]) for r, pairs in zip(reads, found, strict=True))
    return (*lead, outs * groups, *map(len, axes)), terms(), ins * max(map(len, found), default=0)
def pooled(x: Array, o: Any, dtype: str) -> tuple[Shape, list[list[Tap]], list[Fraction]]:
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
    need(prod(lead) * sum(len(own) + 1 for own in inside) <= MOST_TERMS, "a pool of a possible size")
    over = [Fraction(len(w if o.get("count_include_pad", True) else i)) for w, i in zip(found, inside, strict=True)]
    over = over if o.get("divisor") is None else [rounded(o["divisor"], dtype)] * len(found)
    taps = [[x.taps[c * area + i] for i in own] for c in range(prod(lead)) for own in inside]
    return (*lead, *(map(len, axes) if o.get("keepdims", True) else ())), taps, over * prod(lead)
def rounded(value: Any, dtype: str) -> Fraction:  # a number as the dtype has it
    need(type(value) in (int, float) and abs(value) < 1 << 127, "a number of the dtype")
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0] if dtype == "f32" else float(value))
class Network:  # a graph, from its text: node 4*n + 3 is that of line n, its parts have the numbers below
    LINE = re.compile(r'(%([0-9]{1,9}) : (f32|f64)\[([0-9,]*)\] = ([a-z_0-9]+)\((.*?)\))(?:  # (".*"))?')
    def __init__(self, lines: list[str], constants: Any) -> None:
        self.nodes: dict[int, Node] = {ZERO: Node(1, [Fraction(0)])}
        self.constants, self.inputs, self.arrays = constants, list[Node](), list[Array]()
        self.names, self.dtypes, self.grade = set[str](), list[str](), "exact"  # of inputs; lines; proofs
        self.hash, self.size = hashlib.sha256(b"lunette graph 1\n"), 0
        for n, text in enumerate(lines[:-1]):
            found: Any = self.LINE.fullmatch(text) if len(text) < 1 << 13 and text.splitlines() == [text] else None
            need(found and found[2] == str(n), f"a graph of floats, in lines that lunette writes; got {text[:80]}")
            self.hash.update(found[1].encode() + b"\n")
            self.at, self.dtype, shape = 4 * n, found[3], tuple(int(size) for size in found[4].split(",") if size)
            try:
                ok = found[4] == ",".join(map(str, shape)) and len(shape) <= 32 and prod(k or 1 for k in shape) <= MOST
                need(ok and type(ast.literal_eval(found[7] or '""')) is str, "possible sizes, and a text as its label")
                self.arrays.append(self.read(found[5], found[6], shape))
                self.size += prod(shape) + 64
                need(self.size <= MOST_TERMS, f"a network of at most {MOST_TERMS} cells, and cells that they read")
                need(self.arrays[n].shape == shape and len(self.arrays[n].taps) == prod(shape), "the shape that it has")
            except Refused as error: raise Refused(f"{error}; in line {text[:80]}") from error
            self.dtypes.append(self.dtype)
        need(lines and re.fullmatch(r"return %[0-9]{1,9}", lines[-1]), "one output")
        self.hash.update(lines[-1].encode())
        self.out, self.digest = self.arrays[int(lines[-1][8:])].taps, self.hash.hexdigest()
    def new(self, node: Node, part: int = 3) -> list[Tap]:
        terms = [sum(len(p[1]) for p in own) for own in node.sums or ()] or [*map(len, node.taps or node.reads or ())]
        self.size += (node.size + sum(terms)) * (1 + (node.denominator.bit_length() >> 8))
        node.at, node.dtype, node.widest = self.at + part, self.dtype, max(terms, default=0)
        node.is_computed = not node.taps is node.sums is node.reads is None
        node.sources = frozenset(own[0] for own in chain.from_iterable(node.taps or node.sums or node.reads or ()))
        self.nodes[node.at] = node
        return [(node.at, i) for i in range(node.size)]
    def sum(self, sums: Any, denominator: int = 1, roundings: int = 0, part: int = 3) -> list[Tap]:  # (taps, weights)
        found = []
        for taps, weights in sums:
            own = defaultdict[int, tuple[list[int], list[int]]](lambda: ([], []))
            for (p, i), w in zip(taps, weights, strict=True):
                own[p][0].append(i)
                own[p][1].append(w)
            found.append([(p, *both) for p, both in own.items()])
        return self.new(Node(len(found), None, None, found, denominator, roundings), part)
    def greatest(self, taps: list[list[Tap]], part: int = 3) -> list[Tap]:  # of a relu, what that is a maximum of
        for at, own in enumerate(taps):
            inner = [(self.nodes[p].taps or {c: [(p, c)]})[c] for p, c in own]
            if all(i[1:] in ([], [(ZERO, 0)]) for i in inner): taps[at] = [*dict.fromkeys(chain.from_iterable(inner))]
        return self.new(Node(len(taps), None, taps), part)
    def integers(self, taps: list[Tap], divide: bool = False) -> Any:  # constants (or 1/them) over a denominator
        if any(self.nodes[p].numbers is None for p, _ in taps): return None
        found: Any = [self.nodes[p].numbers[i] for p, i in taps]  # type: ignore[index]
        need(all(found) or not divide, "divisors other than zero")
        found = [1 / q for q in found] if divide else found
        distinct = {q.denominator for q in found}
        den = lcm(*distinct) if sum(map(int.bit_length, distinct)) < 1 << 20 else 1 << MOST
        need(len(found) * (den.bit_length() >> 8) <= MOST, "divisors with a common multiple of a possible size")
        return [q.numerator * (den // q.denominator) for q in found], den
    def read(self, name: str, inside: str, shape: Shape) -> Array:
        if name == "input":
            need((name := ast.literal_eval(inside)) and name.isprintable() and name not in self.names, "input names")
            self.names.add(name)
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
        need(type(call.func) is ast.Name and not call.args and len(o) == len(call.keywords), f"options of {name}, once")
        need({*names} & {"kernel", "output_size"} <= {*o} <= {*names}, f"the options of {name}, no others")
        for key, value in o.items():
            ok = type(value) is not tuple or {*map(type, leaves(value))} <= {int, type(None)}
            need(ok and type(value) in TYPES.get(key, (int, tuple, type(None))), f"{key} of its type in {name}")
        to = o.get("to", () if "to" in names else shape)
        need(len(to) == len(shape) and all(m in (n, -1) for m, n in zip(to, shape, strict=True)), "its own shape")
        need(not {0, -1} <= {*to}, "sizes that tell the one that is -1")
        need(o.get("ties", "all") in ("all", "first", "split") and to.count(-1) <= (name == "reshape"), f"known {o}")
        return self.operator(name, xs, o, shape)
    def operator(self, name: str, xs: list[Any], o: Any, to: Shape) -> Array:  # what its name means
        (x, y, b), rank = (*xs, None, None)[:3], len(xs[0].shape)
        moves: dict[str, Any] = {
            "reshape": lambda: Array(to, x.taps), "stop_gradient": lambda: x, "broadcast_to": lambda: spread(x, to),
            "transpose": lambda: turned(x, range(rank)[::-1] if o.get("axes") is None else o["axes"]),
            "slice": lambda: cut(x, o), "concat": lambda: joined(xs, o.get("axis", 0)),
            "neg": lambda: Array(x.shape, self.sum([([t], [-1]) for t in x.taps])),
            "pad": lambda: padded(x, o, self.new(Node(1, [rounded(o.get("value", 0), self.dtype)]), 2)[0]),
            **dict.fromkeys(BALLS, lambda: Array(*beside("balls.py", name)["operator"](self, globals(), name, xs, o))),
        }
        if name in moves: return moves[name]()  # type: ignore[no-any-return]
        if name == "matmul":  # of matrices: rows and weights of a convolution without space
            need(rank == len(y.shape) == 2, "products of two matrices")
            x, y = turned(x, (1, 0)) if o.get("turn_x") else x, y if o.get("turn_y") else turned(y, (1, 0))
            if self.integers(y.taps) is None: return turned(self.operator("conv", [y, x], {}, to), (1, 0))
            return self.operator("conv", [x, y], {}, to)
        if name in ("conv", "conv_transpose"):
            to, terms, most = conv(x, y, o, name != "conv")
            need(found := self.integers(y.taps), f"constant weights in {name}")
            sums: Any = (([x.taps[i] for i in ins], [found[0][k] for k in own]) for ins, own in terms)
            if b is not None:
                plane = prod(to[len(to) - len(y.shape) + 2 :])
                need(b.shape == to[len(to) - len(y.shape) + 1 :][:1], "a bias for every channel")
                sums = (([*t, b.taps[c // plane % len(b.taps)]], [*w, found[1]]) for c, (t, w) in enumerate(sums))
            return Array(to, self.sum(sums, found[1], most + (b is not None) + 1))
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
            if "max" in name: return Array(to, self.greatest(taps))
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
        if name in ("add", "sub", "maximum"):
            sums = [(p, [1, -1 if name == "sub" else 1]) for p in pairs]
            return Array(to, self.greatest(pairs) if name == "maximum" else self.sum(sums, 1, 1))
        if name == "minimum":
            both = [self.sum([([t], [-1]) for t in own], 1, 0, part) for part, own in enumerate((left, right))]
            return Array(to, self.sum([([t], [-1]) for t in self.greatest([[*v] for v in zip(*both, strict=True)], 2)]))
        factors = self.integers(right, name == "div")
        if factors is None and name == "mul": factors, left = self.integers(left), right
        need(factors, f"a constant in {name}")
        return Array(to, self.sum([([t], [w]) for t, w in zip(left, factors[0], strict=True)], factors[1], 1))
# What a walk does with coefficients of one row, but for sums and products with numbers; slots.py does it with many
# rows at once. plus(x) is x where that is > 0, else 0; some(x) is 1 where x is not 0, else 0; floor(x, n) is x // n.
ONE: Final = SimpleNamespace(
    of=int, width=0, price=1, values=lambda x: [x], plus=lambda x: max(x, 0), least=min, some=bool, floor=floordiv)
def least_of_max(z: Any, a: Any, g: list[Any], lows: list[int], tops: list[int], low: int, above: bool) -> Any:
    """The least of a*(the greatest of low and the cells) - g . cells over a box; low is no less than any of lows."""
    rises = [z.plus(s) if s else 0 for s in g]
    if above:  # a <= 0: a times the greatest is the least of a times each
        ends = [(u - s) * p - u * q for s, u, p, q in zip(g, rises, lows, tops, strict=True)]  # min(-s * p, -s * q)
        more = [z.plus(s - a) for s in g]
        own = [(u - s + a) * p - u * q - e for s, u, p, q, e in zip(g, more, lows, tops, ends, strict=True)]
        return sum(ends) + z.least([a * low, *own])
    # a >= 0. Where the greatest is t, cells are at most t. The least of that is convex in t, and bends where cells end.
    rising = [(u, q) for u, q in zip(rises, tops, strict=True) if u]
    rest = sum((s - u) * p for s, u, p in zip(g, rises, lows, strict=True))
    return z.least([a * t - sum(u * min(q, t) for u, q in rising) for t in (low, *(q for q in tops if q > low))]) - rest
def slopes(lows: list[int], tops: list[int], low: int, below: bool) -> list[int]:
    """Good ones: below, of one cell or none; above, those of the level t that is the second greatest end."""
    if below:
        best = max(range(len(lows)), key=lambda i: (lows[i] >= low, lows[i] + tops[i]))
        one = lows[best] >= low or lows[best] + tops[best] > 2 * low
        return [(one and i == best) << UNIT for i in range(len(lows))]
    t = max(low, sorted([*tops, low])[-2])
    return [((q - t) << UNIT) // (q - p) if q > t else 0 for p, q in zip(lows, tops, strict=True)]
class Region:  # boxes of nodes, winners of maxima, inequalities: a sum of (node, cell, weight), and a number, is >= 0
    def __init__(self, net: Network, boxes: Any, bits: int, floats: bool, work: Any = None) -> None:
        self.net, self.bits, self.floats, self.empty, self.work, self.due = net, bits, floats, False, work or [0], LAST
        self.lo, self.hi, self.error = dict[int, list[int]](), dict[int, list[int]](), dict[int, list[int]]()
        self.winners, self.spaces, given = dict[Tap, int](), list[Any](), iter(boxes)
        for n in (n for n in net.nodes.values() if not n.is_computed):
            ends = next(given) if n.numbers is None else [(q, q) for q in n.numbers]
            self.meet(n.at, [down(a, bits) for a, _ in ends], [-down(-b, bits) for _, b in ends])
        need(not (floats and net.grade == "ball"), "no exp, log or roots in executions in floats")
        self.forward(0)
    def meet(self, at: int, lo: list[int], hi: list[int]) -> None:
        if at in self.lo: lo, hi = list(map(max, self.lo[at], lo)), list(map(min, self.hi[at], hi))
        self.lo[at], self.hi[at], self.views = lo, hi, dict[Tap, Any]()  # views: what may win each maximum
        self.spend(len(lo), min(lo, default=0), max(hi, default=0))
        self.empty = self.empty or any(a > b for a, b in zip(lo, hi, strict=True))
    def spend(self, work: int, *numbers: int) -> None:
        self.work[0] += work
        room = (self.net.size + MOST // 16) * (1 + (max(map(int.bit_length, numbers), default=0) >> 8))
        need(self.work[0] < MOST_WORK and room <= 2 * MOST_TERMS, f"less than {MOST_WORK} coefficients, none wide")
    def where(self, spaces: list[Any], winner: Any = ()) -> Region:  # these hold; short ones make boxes smaller
        new = object.__new__(Region)
        new.__dict__.update(self.__dict__, lo=self.lo.copy(), hi=self.hi.copy(), spaces=self.spaces + spaces)
        new.winners = self.winners | dict(winner)
        for terms, number in (own for own in spaces if len(own[0]) < 3):
            most = number + sum(w * (new.hi if w > 0 else new.lo)[p][i] for p, i, w in terms)
            for at, cell, w in terms:  # which is at most so far from where the sum is greatest
                ends, far = [new.lo[at].copy(), new.hi[at].copy()], -(-most // abs(w))
                ends[w < 0][cell] = ends[0][cell] + far if w < 0 else ends[1][cell] - far
                new.meet(at, *ends)
        return new
    def parts(self, at: Any, cell: Any, q: Fraction | None) -> list[Any]:  # arguments of `where`; None: by the winner
        if q is not None:
            terms = at if type(at) is list else [(at, cell, 1)]
            return [([([(p, i, s * w) for p, i, w in terms], -down(s * q, self.bits))],) for s in (-1, 1)]
        taps = self.net.nodes[at].taps[cell]
        spaces = [[([(*won, 1), (*lost, -1)], 0) for lost in taps if lost != won] for won in taps]
        return [(own, {(at, cell): j}) for j, own in enumerate(spaces)]
    def later(self, start: int) -> None: self.due = min(self.due, start)  # forward, but only when boxes are read
    def forward(self, start: int = LAST, last: int = LAST) -> None:  # boxes by intervals, and all that is due
        start, self.due = min(start, self.due), max(self.due, last + 1)
        for n in (n for n in self.net.nodes.values() if start <= n.at <= last and n.is_computed):
            self.spend((n.size * (64 + n.widest) << (8 if n.curve else 0)) + sum(len(self.lo[p]) for p in n.sources))
            if n.roundings and self.floats and n.at not in self.error: self.error[n.at] = self.rounding(n)
            off, (lo, hi) = self.error.get(n.at, [0] * n.size), self.image(n, self.lo, self.hi)
            self.meet(n.at, list(map(sub, lo, off)), list(map(add, hi, off)))
    def image(self, n: Node, lo: Any, hi: Any) -> Any:
        if n.taps is not None: return [[max(v[p][i] for p, i in t) for t in n.taps] for v in (lo, hi)]
        if n.curve is not None: return n.curve.image(n.reads, lo, hi, self.bits)
        low, high, d = [0] * n.size, [0] * n.size, 2 * n.denominator
        both = {p: [list(map(f, hi[p], lo[p])).__getitem__ for f in (add, sub)] for p in n.sources}
        for o, (p, ins, weights) in ((o, part) for o, own in enumerate(n.sums) for part in own):
            middles, widths = both[p]  # and of the sum, twice the middle, and the width
            twice, wide = sum(map(mul, weights, map(middles, ins))), sum(map(mul, map(abs, weights), map(widths, ins)))
            low[o], high[o] = low[o] + twice - wide, high[o] + twice + wide
        return [v // d for v in low], [-(-v // d) for v in high]
    def rounding(self, n: Node) -> list[int]:  # in floats: gamma * (sum of |weight| * |cell|) + underflow; no overflow
        (precision, least, most), r = FLOATS[n.dtype], n.roundings
        size = {p: [max(abs(a), abs(b)) for a, b in zip(self.lo[p], self.hi[p], strict=True)] for p in n.sources}
        whole = self.image(n, {p: [-v for v in s] for p, s in size.items()}, size)[1]
        widest = max([0, *whole]) + r * max([0, *chain(*size.values())])
        need(r < 1 << 20 and widest >> self.bits < 1 << most - 1, "a proof that nothing overflows")
        return [-(-r * w // ((1 << precision) - r)) - (-(r << self.bits) >> least) for w in whole]
    def walk(self, a: dict[int, list[Any]], own: Any, stop: bool = False, z: Any = ONE) -> Any:
        """A total that is not above the sum of coefficients times cells, anywhere; to stop is to use their boxes."""
        total, nodes = 0, self.net.nodes
        while a:
            n = nodes[max(a)]
            given = [(c, x, z.plus(x)) for c, x in enumerate(a.pop(n.at)) if x]
            parts, lo, hi = {p: [0] * nodes[p].size for p in n.sources}, self.lo[n.at], self.hi[n.at]
            self.spend(n.size + (len(given) * n.widest * z.price << (12 if n.curve else 0)))
            if stop or not n.is_computed:
                total += sum(u * lo[c] + (x - u) * hi[c] for c, x, u in given)
                continue
            if n.at in self.error: total -= sum((u + u - x) * self.error[n.at][c] for c, x, u in given)
            for c, x, u in given:
                if n.sums is None:
                    pulled, least = self.pulled(n, c, x, u, own.get((n.at, c)), z)
                    total += least
                    for (p, i), g in pulled: parts[p][i] += g
                else:
                    for part, ins, weights in ((parts[p], *rest) for p, *rest in n.sums[c]):
                        for i, w in zip(ins, weights, strict=True): part[i] += x * w
            for p, part in parts.items():
                if (d := n.denominator) > 1:  # rounding down takes less than one from a coefficient, times its cell
                    was, part = part, [x and z.floor(x, d) for x in part]
                    total += sum(z.some(x - q * d) * v for v, x, q in zip(self.lo[p], was, part) if x and v < 0)
                a[p] = list(map(add, a[p], part)) if p in a else part
                self.spend(len(part), *((min(a[p], default=0), max(a[p], default=0)) if z is ONE else ()))
        return total
    def pulled(self, n: Node, cell: int, x: Any, plus: Any, own: Any, z: Any) -> tuple[Any, Any]:
        """Coefficients of the taps of a maximum, or of a curve, for that of a cell, and the least bracket."""
        if n.curve is not None: return n.curve.pulled_of(self, n.reads[cell], x, own)  # type: ignore[no-any-return]
        taps, at, winner = n.taps[cell], (n.at, cell), self.winners.get((n.at, cell))
        if at not in self.views:
            lows, tops = [self.lo[p][i] for p, i in taps], [self.hi[p][i] for p, i in taps]
            live = [i for low in (max(lows),) for i, q in enumerate(tops) if q > low]
            ends = [lows[i] for i in live], [tops[i] for i in live], max(lows)
            self.views[at] = live, *ends, *(slopes(*ends, below) if live else [] for below in (True, False))
        live, lows, tops, low, *good = self.views[at]
        self.spend(len(live) ** 2 * z.price)  # see least_of_max
        if winner is not None or (len(live) == 1 and lows[0] == low):
            return [(taps[live[0] if winner is None else winner], x)], 0  # it is that cell
        found, least, some = list[Any](), 0, [own[i] for i in live] if own else None
        for above, a in ((above, a) for above, a in enumerate((plus, x - plus)) if a):
            g = [z.floor(a * s, 1 << UNIT) if s else 0 for s in some or good[above]]
            found += [(taps[i], v) for i, v in zip(live, g, strict=True)]
            least += least_of_max(z, a, g, lows, tops, low, above > 0)
        return found, least
    def tighten(self, at: int, sides: Any) -> None:  # better lower ends of the cells in one list, upper in the other
        self.forward(last=at if self.net.grade == "exact" else LAST)  # curves may round otherwise, computed once
        ends, signs = [self.lo[at].copy(), self.hi[at].copy()], zip((1, -1), sides, strict=True)
        rows, path = ((sign, c) for sign, some in signs for c in some), Path(__file__).with_name("slots.py")
        many = beside("slots.py", "rows")["batches"] if self.net.grade == "exact" and path.exists() else None
        for slots, some in many(self, at, rows) if many else ((None, [row]) for row in rows):
            start, z = [0] * len(ends[0]), slots or ONE
            for r, (sign, c) in enumerate(some): start[c] += z.of(sign) << self.bits + z.width * r
            for (sign, c), total in zip(some, z.values(self.walk({at: start}, {}, False, z)), strict=True):
                ends[sign < 0][c] = sign * (total >> self.bits)
        self.meet(at, *ends)
    def lines(self, last: int) -> None: beside("ahead.py", "lines")["lines"](self, last, globals())  # better boxes
    def excess(self, claim: Any, factors: Any, betas: Any, own: Any, stop: Any = False) -> Fraction:  # see excludes
        row, total = defaultdict[int, Fraction](Fraction), 0
        places = chain(self.net.out, *(terms for terms, _ in self.spaces))
        start = {p: [0] * self.net.nodes[p].size for p in {tap[0] for tap in places}}
        self.spend(len(self.net.out) + sum(map(len, start.values())) + sum(len(terms) for terms, _ in self.spaces))
        for c, v, f in ((c, v, f) for f, (part, _, _) in zip(factors, claim, strict=True) for c, v in part.items()):
            row[c] += f * v
        for (p, i), v in ((self.net.out[c], v) for c, v in row.items()):
            start[p][i] += down(v, self.bits)
            total += min(self.lo[p][i], 0) * (v != Fraction(down(v, self.bits), 1 << self.bits))
        for b, (terms, number) in zip((down(beta, self.bits) for beta in betas), self.spaces, strict=True):
            total -= b * number
            for p, i, sign in terms: start[p][i] -= sign * b
        most = sum((f * t for f, (_, t, _) in zip(factors, claim, strict=True)), Fraction(0))
        total += self.walk({p: a for p, a in start.items() if any(a)}, own, stop)
        return Fraction(total, 1 << 2 * self.bits) - most
    def excludes(self, claim: Any, factors: Any, betas: Any, own: Any, stop: Any = False) -> bool:
        """No point satisfies a claim: the sum of factor*(row . output - threshold) - beta*space is too great."""
        found = self.excess(claim, factors, betas, own, stop)
        return found > 0 or (found == 0 and any(f and strict for f, (_, _, strict) in zip(factors, claim, strict=True)))
def number(v: Any) -> Fraction:  # an integer, a float, or the text of a fraction
    ok = re.fullmatch(r"-?[0-9]{1,999}/[0-9]{1,999}", v) if isinstance(v, str) else type(v) in (int, float)
    need(ok and (type(v) is not int or abs(v) < 1 << 2048), "numbers of a possible size")
    return Fraction(v)
def marked(text: str, size: int) -> list[int]:  # the cells whose bits a hexadecimal number has
    need(len(text) <= size // 4 + 1 and re.fullmatch("[0-9a-f]+", text) and int(text, 16) < 1 << size, "a map of cells")
    return [c for c, bit in enumerate(bin(int(text, 16))[:1:-1]) if bit == "1"]
def cases_of(content: Any) -> list[tuple[Any, Any]]:  # boxes, claims; an inequality is (row by cell, threshold, strict)
    found = []
    for case in content["cases"]:
        for row, _, strict in chain(*case["claims"]):
            need(len({c for c, _ in row}) == len(row) and strict in (0, 1) and type(strict) is int, "rows, 0 or 1")
        claims = [[({c: number(v) for c, v in row}, number(t), s == 1) for row, t, s in own] for own in case["claims"]]
        found.append(([[(number(lo), number(hi)) for lo, hi in box] for box in case["boxes"]], claims))
    return found
def contents(path: str) -> bytes:
    with open(path, "rb") as file: return file.read(4 * MOST)
def parsed(data: bytes) -> Any:
    once = lambda own: dict(own) if len(dict(own)) == len(own) else need(False, "every name once")  # noqa: E731
    return json.loads(data if len(data) < 4 * MOST else b"", object_pairs_hook=once)
def check(net: Network, data: bytes) -> list[tuple[Any, Any]]:  # cases where no point satisfies any of the claims
    said = parsed(data)
    need(said["format"] == "lunette certificate" and said["version"] == 1 and len(said) == 7, "a version 1 certificate")
    need(said["graph"] == net.digest, "a certificate of this network; it is another's")
    bits, cases = said["bits"], cases_of(said)
    need(said["semantics"] in ("real", "float") and type(bits) is int and 1 <= bits <= 1024, "a semantics, and bits")
    work, cells = [0], sum(n.size + 16 for n in net.nodes.values()) + (MOST_TERMS >> 9)
    for k, ((boxes, claims), case) in enumerate(zip(cases, said["cases"], strict=True)):
        need([len(b) for b in boxes] == [n.size for n in net.inputs] and len(case) == 3, "a box for every input")
        need(all(lo <= hi for lo, hi in chain(*boxes)), "boxes with lo <= hi")
        need(all(type(c) is int and 0 <= c < len(net.out) for row, *_ in chain(*claims) for c in row), "cells in rows")
        todo: list[Any] = [(Region(net, boxes, bits, said["semantics"] == "float", work), ([],), range(len(claims)), 0)]
        for n, (steps, proofs, split) in enumerate(case["tree"]):
            need(todo, f"{n} branches in case {k}, one for each part; there are more")
            parent, part, before, depth = todo.pop()
            region, left, place = parent.where(*part), {*before}, f"branch {n} of case {k}"
            region.spend(len(left) + len(net.nodes) * (1 + len(steps)))
            for at, *sides in steps:
                ends = [marked(side, len(region.lo[at])) for side in sides if sides != [0]]
                region.empty or (region.tighten(at, ends) if ends else region.lines(at) if sides else region.later(at))
            region.empty or region.forward()
            for which, stop, *both, chosen in proofs:
                (factors, betas), own = [[number(v) for v in some] for some in both], dict[Tap, list[int]]()
                need(which in left and all(v >= 0 for v in factors + betas), f"open claims and factors >= 0 in {place}")
                for at, text, values in chosen:
                    one, reads = iter(values), net.nodes[at].taps or net.nodes[at].reads
                    need(all(type(v) is int and abs(v) < 1 << 40 for v in values), f"slopes below 2^40 in {place}")
                    for c in marked(text, len(reads)): own[at, c] = [0 if p == ZERO else next(one) for p, _ in reads[c]]
                    need(not [*one], f"as many slopes as there are taps, of node {at} in {place}")
                ok = region.empty or region.excludes(claims[which], factors, betas, own, stop)
                need(ok, f"a better proof of claim {which} in {place}: by this one, points might satisfy it")
                left.remove(which)
            need(split or not left or region.empty, f"proofs of claims {[*left][:9]} in {place}, or a split of it")
            for at, cell, q in [split] if split else []:
                terms = at if type(at) is list and q is not None else [(at, cell, 1)]
                ok = depth * (cells + 16 * len(left)) < MOST_TERMS and (q is not None or net.nodes[at].widest <= 64)
                ok = ok and all(type(w) is int and w and 0 <= c < len(region.lo[p]) for p, c, w in terms)
                need(ok, f"a split of a cell, or a sum of cells times integers, not too deep or too wide, in {place}")
                parts = region.parts(at, cell, None if q is None else number(q))
                todo += [(region, p, left, depth + 1) for p in reversed(parts)]
        need(not todo, f"branches for all parts of case {k}; {len(todo)} more")
    return cases
def load(path: str) -> Network:  # a graph that Graph.save wrote
    content = parsed(contents(path))
    need(content["format"] == "lunette-graph" and content["version"] == 1, "a graph that lunette saved")
    archive = functools.cache(lambda: zipfile.ZipFile(path + ".npz"))  # which there is only if a constant is long
    def constant(name: str, dtype: str, shape: Shape) -> bytes:
        info = archive().getinfo(name + ".npy")
        need(info.file_size < 8 * prod(shape) + (1 << 16) and info.compress_type in (0, 8), f"the size of {name}")
        data = archive().open(info).read(info.file_size)
        end = 10 + int.from_bytes(data[8:10], "little")
        own = {"descr": "<f4" if dtype == "f32" else "<f8", "fortran_order": False, "shape": shape}
        need(data[:8] == b"\x93NUMPY\1\0" and ast.literal_eval(data[10:end].decode()) == own, f"constant {name}")
        return data[end:]
    return Network(content["graph"], constant)
def main(graph: str, certificate: str, spec: str | None = None, semantics: str | None = None) -> int:
    try:
        net, data = load(graph), contents(certificate)
        cases, own = check(net, data), parsed(data)["semantics"]
        need(semantics in (None, own), f"a proof in semantics {semantics}; this one is of {own}")
        spec and beside("vnnlib.py", "SPEC")["compare"](cases, contents(spec).decode(), net, need)
    except Exception as error:  # whatever goes wrong, nothing is proven
        print("refused:", "needs" if type(error) is Refused else type(error).__name__, ascii(str(error)[:300])[1:-1])
        return 1
    print(f"{'proven' if spec else cases}, semantics {own}, grade {net.grade}, graph {net.digest}")
    return 0 if spec else 3
if __name__ == "__main__": sys.exit(main(*sys.argv[1:]) if len(sys.argv) in (3, 4, 5) else __doc__)
