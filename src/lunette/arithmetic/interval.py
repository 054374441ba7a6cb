"""Bounds that hold for every point of a box, whatever the rounding.

The specification on intervals (`lunette.number.Interval`) bounds every operator. It computes cell by cell in Python; so
wherever what an operator declares allows, its bounds come from its compiled kernel:

- monotone and exact (maxima, relu, whatever moves cells): the kernel on the lower ends, and on the upper ends;
- a room with bounds of its own (sums and products of pairs of cells): those, see lunette.outward;
- sums of products (convolutions, matrix products, their derivatives) and of cells: below;
- averages, smooth max and norms: lunette.arithmetic.interval_pool.

**The kernel's promise.** A term of a sum of t terms is rounded at most k = min(t, 512 + ceil(t/512)) times on its way
into the result: once as a product, or as a quotient by the divisor, and in additions otherwise, of which no order of t
terms has more than t-1, and the kernels' blocks no more than 511 + ceil(t/512). A divisor that is no number of the
dtype (a count of cells, padding included) is rounded itself, and k is one more. A product or a quotient that underflows
is off by half of the least subnormal, tiny, whatever its size, and every term may be one. So with u the unit roundoff,
g = k*u/(1 - k*u), and if no partial sum overflows,

    |computed - exact| <= g * S + t*tiny,     S = the sum of the terms' absolute values.                            (1)

**Products.** Let every x lie within r of a centre c, every w within q of a centre d. Then |x*w - c*d| is at most
r*|d| + (|c| + r)*q, and with y the kernel's result on the centres the truth is, for every point of the box, within

    D = g*S + t*tiny + sum r*|d| + sum (|c|+r)*q,     S = sum |c|*|d|,     |y| <= (1+g)*S + t*tiny                  (2)

of y. The ends y - R and y + R are rounded by at most u*(|y| + R), so R*(1-u) >= D + u*|y| is enough. R comes from the
same kernel, on numbers that are not negative. By (1) the result of that is at least (1-g) times the exact sum, less
t*tiny: dividing what goes in by (1-g), and by 1-u for every rounding on the way in and out, makes it large enough:

    R = K(A*|c| + B*r, |d|) + K(B*(|c| + r), q) + s,     B = 1/((1-g)*(1-u)**n),     A = (g + u*(1+g)) * B

n = 6 counts the roundings of r, of its product with B, of the sum with A*|c|, two for adding s (which goes into the
kernel as a bias, together with what the bias itself needs, or is added behind it), and the 1-u above. With a q it is
n = 7: the sum of both kernels' results is one more; K(B*(|c|+r), q) alone has those of r, |c|+r, the product, q, that
sum, and 1-u. s pays for underflow: t*tiny in each of three sums, and at most tiny for every product of a cell with A or
B, times |d| or q. It is one number for all outputs, also for those that have no term. A partial sum that overflows
leaves an infinity or a NaN in y, since no later term takes it away; there, and where R is not finite, the ends are
infinite.

With h = k + 2 and gamma(h) = h*u/(1-h*u), A is at most gamma(h) as long as k*k*u < 1/4 (float32: 2000 terms one after
another). So points give intervals no wider than 2*gamma(h)*S + 2*s + 2 ulp. Boxes with point weights have the exact
width and no more than 2*gamma(h+2)*sum (|x| + r)*|w| + 2*s + 2 ulp, |x| the greatest magnitude in the box: u*|c| of it
is what a centre between two neighbouring floats costs, the second r what the rounding of R itself may.

**Terms of one sign** (sums, means): the exact ends are the sums of the lower ends and of the upper ends. By (1) the
kernel's results on these are within g*M + t*tiny, M = the sum of the greatest magnitudes, of the exact ends, and moving
them outward by A*K(magnitudes) + s is enough, as above (n = 4: two roundings of that, and 1-u). Where no lower end is
negative, M is the sum itself. Boxes are no more than 4*gamma(h)*M + 2*s + 2 ulp too wide, points half of the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from math import inf, isfinite, prod
from typing import Any

import numpy as np

from lunette import outward
from lunette.arithmetic.error import roundings
from lunette.array import (
    FLOAT,
    Call,
    Kept,
    by_specification,
    cells,
    dense,
    from_numpy,
    one_kind,
    prepare,
    resolve_cached,
    resolved_before,
    same_dtype,
    to_numpy,
    wide,
)
from lunette.errors import ArgumentError, error_context
from lunette.number import OBJECT, Array, Interval, above, allocate, below, each, is_real, meeting
from lunette.op import SPEC, Op, Request, ResolvedOp, check_shape
from lunette.ops.derivative import Jvp
from lunette.rules import Interpretation, missing

Boxes = list[Interval | None]
INTERVAL = Interpretation("interval", "bounds of boxes")
FEW = 1 << 12  # terms that the specification may add up, where a kernel overflowed


def run(kind: type[Op], operands: Sequence[Any], options: tuple[Any, ...]) -> Interval:
    """The operator on boxes, given as Interval, and on points, given as arrays."""
    lower = tuple([a.lo if isinstance(a, Interval) else a for a in operands])
    call = _known(kind, operands, lower, options)
    known = call is not None
    if call is None:
        INTERVAL.require(kind)
        call = prepare(Request(kind, lower, "interval", options))
    with error_context(kind.name, call.resolved.d), np.errstate(all="ignore"):
        boxes: Boxes
        if known:
            boxes = [a if a is None or isinstance(a, Interval) else Interval.between(a, a) for a in operands]
            return _without_nan(_bounds(kind, call, boxes, options), operands, boxes)
        if call.resolved.op.return_indices:
            raise ArgumentError("N5", "values, not indices, of boxes", "return_indices=True", "Leave it out.")
        boxes = [_box(call, p, a) for p, a in enumerate(operands)]
        box = _without_nan(_bounds(kind, call, boxes, options), operands, boxes)
        if call.kinds[0] == "numpy":
            return box
        return Interval.between(*(from_numpy(np.asarray(e), call.kinds[0]) for e in (box.lo, box.hi)))


def prepared(
    kind: type[Op], arrays: Sequence[Array | None], options: tuple[Any, ...], fixed: Sequence[int]
) -> Callable[[Boxes], Interval] | None:
    """The bounds of an operator on dense boxes that are like these arrays, for callers that have many of them.

    What shapes decide is decided here, and what depends on the points that `fixed` counts, which are the same in every
    call, is computed once. A NaN in a point comes out as one, or is refused. None: values must be looked at first.
    """
    if kind.integers or any(a is not None and a.dtype not in FLOAT for a in arrays):
        return None
    resolved = resolve_cached(kind, arrays, "interval", options)
    if _looks_at_values(kind):
        return None
    call = Call(resolved, (), next(a.dtype for a in arrays if a is not None), ("numpy",))
    return partial(_rule(kind, call, options, frozenset(fixed)), call)


def _known(kind: type[Op], operands: Sequence[Any], lower: tuple[Any, ...], options: tuple[Any, ...]) -> Call | None:
    """The short way to what was bound before: dense float arrays of NumPy, and boxes of them."""
    if kind.integers:
        return None
    for a, lo in zip(operands, lower, strict=True):
        if lo is None:
            continue
        for end in (lo,) if lo is a or a.lo is a.hi else (lo, a.hi):
            if type(end) is not np.ndarray or end.dtype not in FLOAT or end.shape != lo.shape or end.dtype != lo.dtype:
                return None
            if not ((flags := end.flags).c_contiguous and flags.aligned):
                return None
    resolved = resolved_before(kind, lower, "interval", options)
    if resolved is None or _looks_at_values(kind) or resolved.op.return_indices:
        return None
    return Call(resolved, lower, next(a.dtype for a in lower if a is not None), ("numpy",))


@lru_cache
def _looks_at_values(kind: type[Op]) -> bool:
    """Whether it has rules for values, not only for shapes."""
    return kind.tells("check")


def _box(call: Call, at: int, given: Any) -> Interval | None:
    """One operand as a box of arrays in the dtype that is computed in; a point has one array for both ends."""
    lo = call.arrays[at]
    if lo is None:
        return None
    hi = lo
    name = call.resolved.op.arrays[at] if at < len(call.resolved.op.arrays) else f"xs[{at}]"
    if call.dtype != OBJECT and _is_number(call.resolved.op, name, given):
        ends = (given.lo, given.hi) if isinstance(given, Interval) else (given, given)
        box = outward.enclosing(*ends, call.dtype)
        lo, hi = box.lo, box.hi
    elif isinstance(given, Interval) and given.hi is not given.lo:
        taken = to_numpy(given.hi, name)
        one_kind([*call.kinds, taken.kind])
        hi = taken.array
        check_shape(name, lo.shape, hi.shape)
        same_dtype(call.dtype, hi, name)
    if lo.dtype.kind == "i" or lo.dtype == OBJECT:
        return Interval.between(lo, hi)
    low = dense(lo)
    return Interval.between(low, low if hi is lo else dense(hi))


def _is_number(op: Op, name: str, given: Any) -> bool:
    """Whether plain numbers are to be rounded outward: ends of boxes, and points; not options, which take x's dtype."""
    if isinstance(given, Interval):
        return is_real(given.lo) and is_real(given.hi)
    return is_real(given) and (op.encloses_numbers or name not in op.origin.scalars)


def _bounds(kind: type[Op], call: Call, boxes: Boxes, options: tuple[Any, ...]) -> Interval:
    if call.dtype == OBJECT:
        return by_specification_of(call, boxes)
    rule = RULES.get(call.resolved) or RULES.keep(call.resolved, _rule(kind, call, options))
    assert rule is not None
    return rule(call, boxes)


Bounder = Callable[[Call, Boxes], Interval | None]
"""The bounds of boxes of one shape by what is proved of a kernel; None has the specification do it."""
Rule = Callable[[Call, Boxes], Interval]
RULES: Kept[Rule] = Kept()


@INTERVAL.rule
def bounder_of(op: Op, resolved: ResolvedOp, dtype: np.dtype[Any]) -> Bounder | None:
    """What is proved of an operator's own kernel (lunette.arithmetic.interval_pool and round_exp)."""
    return None


def _rule(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int] = frozenset()) -> Rule:
    """How a resolved operator is bounded: by the first of the ways that it has which gives an answer."""
    ways: list[Bounder] = [_nothing] if prod(call.resolved.out) == 0 else []
    for way in INTERVAL.ways_of(kind):
        assert way.make is not None
        made = way.make(kind, call, options, fixed)
        ways += [] if made is None else [made]

    def rule(call: Call, boxes: Boxes) -> Interval:
        for way in ways:
            if (box := way(call, boxes)) is not None:
                return outward.rounded(box.lo, box.hi, call.dtype)
        raise missing(INTERVAL, kind)  # not reached: the specification is the last way, and always has an answer

    return rule


def _nothing(call: Call, boxes: Boxes) -> Interval:
    empty = allocate(call.resolved.out, call.dtype)
    return Interval.between(empty, empty)


# ---- the specification


def by_specification_of(call: Call, boxes: Boxes) -> Interval:
    """Cell by cell in Python, on intervals of floats of 64 bits, or of the numbers that are given."""
    resolved = call.resolved
    if issubclass(type(resolved.op), Jvp) and all(b is None for b in boxes[len(boxes) // 2 :]):
        zeros: Array = np.zeros(resolved.out, wide(call.dtype))
        return Interval.between(zeros, zeros)

    def interval(a: Any, b: Any) -> Interval:
        return a if isinstance(a, Interval) else Interval(a, b)

    def as_cells(box: Interval) -> Array:
        lo, hi = cells(box.lo), cells(box.hi)
        assert lo is not None and hi is not None
        return each(interval, lo, hi)

    refuse_nan(boxes)
    arrays = [None if b is None else b.lo if b.dtype.kind == "i" else as_cells(b) for b in boxes]
    with meeting(*arrays):
        resolved.op.check(*arrays)
        y = each(Interval.of, np.asarray(by_specification(resolved, arrays), object))
    lo, hi = each(lambda v: v.lo, y), each(lambda v: v.hi, y)
    if call.dtype == OBJECT:
        return Interval.between(lo, hi)
    return outward.rounded(each(below, lo).astype(np.float64), each(above, hi).astype(np.float64), wide(call.dtype))


# ---- kernels


CHUNK = 1 << 16  # cells that stay in the cache while a few operations pass over them
MOST = 1 << 26  # bytes of one array that is kept


class _Memory(threading.local):
    """Arrays that are used again: to write fresh memory takes longer than to compute what is written."""

    def __init__(self) -> None:
        self.kept: dict[str, Array] = {}

    def like(self, a: Array, slot: str) -> Array:
        """An array like another, whose cells are anything."""
        kept = self.kept.get(slot)
        if kept is None or kept.nbytes < a.nbytes:
            kept = np.empty(a.nbytes, np.uint8)
            if a.nbytes <= MOST:
                self.kept[slot] = kept
        return kept[: a.nbytes].view(a.dtype).reshape(a.shape)


_memory = _Memory()


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Dense arrays of one shape in parts that fit into the cache, and a part to write to."""
    flat = [a.reshape(-1) for a in arrays]
    size = flat[0].size
    room = _memory.like(flat[0][:CHUNK], "piece")
    for at in range(0, size, CHUNK):
        parts = flat if size <= CHUNK else [f[at : at + CHUNK] for f in flat]
        yield *parts, room[: parts[0].size]


def both_ends(call: Call) -> tuple[Array, Array]:
    """The two ends of the result in one block, which the next call finds again: two would go back to the system."""
    block = np.empty((2, *call.resolved.out), wide(call.dtype))
    return block[0, ...], block[1, ...]


def _kernel(call: Call, arrays: Sequence[Array | None], y: Array) -> Array:
    assert call.resolved.kernels.forward is not None
    if call.resolved.op.has_indices:
        call.resolved.kernels.forward(*arrays, y, None)
    else:
        call.resolved.kernels.forward(*arrays, y)
    return y


def _end_by_end(call: Call, boxes: Boxes) -> Interval:
    if all(b is None or b.lo is b.hi for b in boxes):
        y = np.empty(call.resolved.out, wide(call.dtype))
        _kernel(call, [None if b is None else b.lo for b in boxes], y)
        return Interval.between(y, y)
    lo, hi = both_ends(call)
    _kernel(call, [None if b is None else b.lo for b in boxes], lo)
    _kernel(call, [None if b is None else b.hi for b in boxes], hi)
    return Interval.between(lo, hi)


def _without_nan(box: Interval, operands: Sequence[Any], boxes: Boxes) -> Interval:
    """Rule N4 for points: boxes have no NaN, and arrays are looked at only where one comes out."""
    points = any(a is not None and not isinstance(a, Interval) for a in operands)
    if points and box.dtype != OBJECT and box.lo.size and np.isnan(box.lo.max()):
        refuse_nan(boxes)
    return box


def refuse_nan(boxes: Boxes) -> None:
    if any(b is not None and b.dtype.kind == "f" and np.isnan(b.lo).any() for b in boxes):
        raise ArgumentError("N4", "points without NaN", "NaN", "There is no box around it.")


def _by_linearity(kind: type[Jvp], boxes: Boxes, options: tuple[Any, ...]) -> Interval | None:
    """The JVP of an operator that is linear is made of the operator, which is bounded already."""
    n = kind.count()
    if all(b is None for b in boxes[n:]):
        return None
    box: Interval | None = kind.base.push(options, boxes[:n], None, boxes[n:])
    return box


# ---- sums


@lru_cache(maxsize=4096)
def terms_of(op: Op, shapes: tuple[Any, ...], batch: int) -> int | None:
    most = op.terms(shapes)
    return most if most is None or not op.summed else most * batch


@lru_cache(maxsize=4096)
def factors(terms: int, dtype: np.dtype[Any], beside: int, divisors: int = 0) -> tuple[Any, Any]:
    """A and B of the proof above, rounded up; `divisors` are the roundings of a divisor."""
    k = roundings(terms) + divisors
    u = Fraction(float(np.finfo(dtype).eps)) / 2
    g = k * u / (1 - k * u)
    b = 1 / ((1 - g) * (1 - u) ** beside)
    a = (g + u * (1 + g)) * b
    up = [outward.rounded(e, e, dtype).hi[()] for e in (np.asarray(above(v)) for v in (a, b))]
    return up[0], up[1]


def _sums(call: Call, terms: int, fixed: frozenset[int]) -> Bounder:
    """None where the kernel overflows, or has nothing to add up, and the specification is as good."""
    op, shapes = call.resolved.op, call.resolved.shapes
    if terms == 0 or 0 in call.resolved.batch or any(s is not None and 0 in s for s in shapes):
        return lambda call, boxes: None
    read, added = op.factors(), next(iter(op.affine_in), None)
    if len(read) == 1:
        return lambda call, boxes: _of_one_sign(call, boxes, terms, read[0])
    return _Products(call, terms, (read[0], read[1]), added, fixed)


def _of_one_sign(call: Call, boxes: Boxes, terms: int, at: int) -> Interval | None:
    box, (lo, hi) = boxes[at], both_ends(call)
    assert box is not None
    arrays = [None if b is None else b.lo for b in boxes]

    def kernel(x: Array, y: Array) -> None:
        arrays[at] = x
        _kernel(call, arrays, y)

    a, _ = factors(terms, lo.dtype, 4, call.resolved.op.divisor_roundings(call.resolved.shapes, lo.dtype))
    s = np.finfo(lo.dtype).smallest_subnormal * lo.dtype.type(4 * (terms + 1))
    top = _move_apart(kernel, box.lo, box.hi, lo, hi, a, s)
    # Partial sums are no larger than this, times a divisor that is less than 2**60: nothing overflowed.
    return Interval.between(lo, hi) if top < 2.0 ** (np.finfo(lo.dtype).maxexp // 2) else None


def _move_apart(
    kernel: Callable[[Array, Array], None], least: Array, most: Array, lo: Array, hi: Array, a: Any, s: Any
) -> float:
    """Fill in the bounds of sums of the cells of a box; the greatest sum of magnitudes."""
    point = least is most
    kernel(least, lo)
    if not point:
        kernel(most, hi)
    few = least.reshape(-1)[:256]  # most data that are not positive show it here
    positive = bool(few.min() >= 0) and bool(least.min() >= 0)
    if positive:
        sizes = lo if point else hi
    else:
        greatest, sizes = _memory.like(least, "size"), _memory.like(lo, "sizes")
        for low, high, size, _ in _pieces(least, most, greatest):
            if point:
                np.abs(low, out=size)
            else:
                np.maximum(np.negative(low, out=size), high, out=size)
        kernel(greatest, sizes)
    top = 0.0
    for low, high, size, room in _pieces(lo, hi, sizes):
        top = np.maximum(top, size.max())
        np.multiply(size, a, out=room)
        room += s
        np.add(low if point else high, room, out=high)
        low -= np.add(np.multiply(low, a, out=room), s, out=room) if positive and not point else room
        if positive:
            np.maximum(low, 0, out=low)
    return top


class _Products:
    """Sums of products of two operands, `at`, to which a third may be `added`; see above.

    What depends on `fixed` operands alone, which are points and the same in every call, is kept.
    """

    def __init__(self, call: Call, terms: int, at: tuple[int, int], added: int | None, fixed: frozenset[int]) -> None:
        self.dtype = wide(call.dtype)
        self.terms, self.at, self.added, self.fixed = terms, at, added, fixed
        self.factors = factors(terms, self.dtype, 6), factors(terms, self.dtype, 7)
        self.tiny = 4 * float(np.finfo(self.dtype).smallest_subnormal)
        self.kept: dict[str, tuple[Any, ...]] = {}

    def once(self, name: str, at: Sequence[int], boxes: Boxes, make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What is made of the operands `at`; two threads may make it at the same time, and make the same."""
        if not all(boxes[p] is None or p in self.fixed for p in at):
            return make()
        if name not in self.kept:
            own = [id(b.lo) for p in at if (b := boxes[p]) is not None]
            # The rest lies in memory that is used again.
            made = [a.copy() if isinstance(a, np.ndarray) and id(a) not in own else a for a in make()]
            self.kept[name] = tuple(made)
        return self.kept[name]

    def __call__(self, call: Call, boxes: Boxes) -> Interval | None:
        dtype, terms, added, at = self.dtype, self.terms, self.added, self.at
        first, second = boxes[at[0]], boxes[at[1]]
        assert first is not None and second is not None
        # The factor that carries the error is the wider one, or of points the smaller one.
        if (second.lo is not second.hi) > (first.lo is not first.hi) or (
            (second.lo is second.hi) == (first.lo is first.hi) and second.lo.size < first.lo.size
        ):
            at, first, second = (at[1], at[0]), second, first
        arrays = [None if v is None else v.lo for v in boxes]

        def kernel(x: Array, w: Array, plus: Array | None, y: Array) -> Array:
            arrays[at[0]], arrays[at[1]] = x, w
            if added is not None:
                arrays[added] = plus
            return _kernel(call, arrays, y)

        wide_weights = second.lo is not second.hi
        a, b = self.factors[wide_weights]
        c, carried, reach = self.once("carried", at[:1], boxes, lambda: _centre(first, a, b, "x", reach=wide_weights))
        d, q = second.lo, None
        if wide_weights:
            d, q, _ = _centre(second, dtype.type(0), dtype.type(1), "w")
        weight, greatest = self.once("weight", at[1:], boxes, lambda: _magnitudes(d, q))
        s = dtype.type(self.tiny * (3 * terms + 4 + terms * greatest))
        middle, plus = None, None
        if added is not None:
            middle, plus = self.once("plus", (at[1], added), boxes, lambda: _beside(call, boxes[added], a, b, s))

        lo, hi = both_ends(call)
        kernel(c, d, middle, hi)
        kernel(carried, weight, plus, lo)
        more = None if q is None else kernel(reach, q, None, _memory.like(lo, "sizes"))
        finite = True
        for room, y, extra, high in _pieces(lo, hi, lo if more is None else more):
            if plus is None:
                room += s
            if more is not None:
                room += extra
            np.add(y, room, out=high)
            finite = finite and isfinite(high.min()) and isfinite(high.max())  # which keep a NaN
            np.subtract(y, room, out=room)
            y[...] = high
        if not finite:
            refuse_nan(boxes)
            if hi.size * terms <= FEW:
                return None
            lost = np.isnan(lo) | np.isnan(hi) | (lo == inf) | (hi == -inf)
            lo[lost], hi[lost] = -inf, inf
        return Interval.between(lo, hi)


def _magnitudes(d: Array, q: Array | None) -> tuple[Array, float]:
    """|d|, and the greatest cell of |d| + q."""
    weight, greatest = _memory.like(d, "weight"), 0.0
    for cell, size, _ in _pieces(d, weight):
        greatest = max(greatest, float(np.abs(cell, out=size).max()))  # a NaN shows in y
    return weight, greatest if q is None else greatest + float(q.max())


def _beside(call: Call, bias: Interval | None, a: Any, b: Any, s: Any) -> tuple[Array | None, Array]:
    """What the kernel adds, on centres and on radii."""
    plus = np.full(call.resolved.out[-1 - (call.resolved.d or 0)], s, wide(call.dtype))
    if bias is None:
        return None, plus
    middle, carried, _ = _centre(bias, a, b, "b")
    plus += carried
    return middle, plus


def _centre(box: Interval, a: Any, b: Any, slot: str, *, reach: bool = False) -> tuple[Array, Array, Any]:
    """(c, A*|c| + B*r, B*(|c| + r)): c a number inside each interval of a box, r the distance of its farther end.

    c is where half the sum of the ends is rounded to, so it is between them. The third is asked for of boxes only.
    """
    point = box.lo is box.hi
    c = box.lo if point else _memory.like(box.lo, f"{slot}: c")
    carried = _memory.like(box.lo, f"{slot}: carried")
    most = _memory.like(box.lo, f"{slot}: reach") if reach else carried
    for lo, hi, centre, r, far, size in _pieces(box.lo, box.hi, c, carried, most):
        if not point:
            np.add(lo, hi, out=centre)
            centre *= centre.dtype.type(0.5)
            np.subtract(hi, centre, out=r)
            np.maximum(r, np.subtract(centre, lo, out=size), out=r)
        np.abs(centre, out=size)
        if reach:
            np.add(size, r, out=far)
            far *= b
        size *= a
        if point:
            r[...] = size
        else:
            r *= b
            r += size
    return c, carried, most if reach else None


# ---- the ways, best first: each is made for one call's shapes, and may have no answer for some boxes


def _of_the_room(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder:
    op = call.resolved.op
    return lambda call, boxes: op.bounds(*boxes) if None not in boxes else None  # type: ignore[arg-type]


def _of_linearity(kind: type[Jvp], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder:
    return lambda call, boxes: _by_linearity(kind, boxes, options)


def _of_ends(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder | None:
    return None if call.resolved.kernels.forward is None else _end_by_end


def _of_proofs(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder | None:
    resolved = call.resolved
    return None if resolved.kernels.forward is None else bounder_of(resolved.op, resolved, wide(call.dtype))


def _of_sums(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder | None:
    resolved = call.resolved
    terms = terms_of(resolved.op, resolved.shapes, prod(resolved.batch))
    if terms is None or resolved.kernels.forward is None:
        return None
    return _without_gaps(call, terms, fixed) or _sums(call, terms, fixed)


def _without_gaps(call: Call, terms: int, fixed: frozenset[int]) -> Bounder | None:
    """Of an operator that passes over cells, the bounds of what it reads: the others would cost as much as these."""
    resolved, dtype = call.resolved, wide(call.dtype)
    found = resolved.op.without_gaps(resolved.shapes)
    if found is None or prod(resolved.out) == 0:
        return None
    cells, op = found
    x = resolved.shapes[0]
    assert x is not None
    space = [len(range(n)[c]) for n, c in zip(x[1:], cells, strict=True)]
    shapes = ((x[0], *space), *resolved.shapes[1:])
    kernels = op.kernels(dtype, prod(resolved.batch), shapes)
    closer = replace(call, resolved=replace(resolved, op=op, shapes=shapes, kernels=kernels), arrays=())
    bounds = _sums(closer, terms, fixed)

    where: Any = (..., *cells)

    def read(end: Array) -> Array:
        return np.ascontiguousarray(end[where])

    def of_what_is_read(call: Call, boxes: Boxes) -> Interval | None:
        box = boxes[0]
        assert box is not None
        low = read(box.lo)
        high = low if box.lo is box.hi else read(box.hi)
        return bounds(closer, [Interval.between(low, high), *boxes[1:]])

    return of_what_is_read


def _of_meaning(kind: type[Op], call: Call, options: tuple[Any, ...], fixed: frozenset[int]) -> Bounder:
    return by_specification_of


INTERVAL.way("own rule", lambda kind: kind.is_own() and kind.tells("bounds"), _of_the_room)
INTERVAL.way("derived: linear", lambda kind: issubclass(kind, Jvp) and kind.base.linear_in, _of_linearity)
INTERVAL.way("derived: monotone and exact", lambda kind: kind.exact and kind.monotone, _of_ends)
INTERVAL.way("derived: exact, of whole numbers", lambda kind: kind.exact and kind.integers, _of_ends)
INTERVAL.way("own rule", bounder_of.has, _of_proofs)
INTERVAL.way(
    "derived: a sum", lambda kind: kind.tells("terms") and kind.factors() and not bounder_of.has(kind), _of_sums
)
INTERVAL.way("specification", SPEC.has, _of_meaning)
