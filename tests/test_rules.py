"""The registry of rules: what it says of an operator is what happens, for every operator and interpretation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, ClassVar

import flint
import numpy as np
import pytest

import lunette as ln
from lunette.arithmetic.exact import round_fraction
from lunette.array import KERNEL_RANK, resolve_cached
from lunette.graph.rules import rules_of
from lunette.graph.text import kinds, options_of
from lunette.number import Array, Dual, Number, each, total
from lunette.op import KERNEL, Case, Op, Shapes, apply, case, resolve
from lunette.ops import ALL, GLUE
from lunette.ops.derivative import Derivative, Jvp, Vjp, jvp_of, vjp_of
from lunette.ops.glue import Glue
from lunette.ops.loss import OneHot
from lunette.ops.pool import Pool, View
from lunette.ops.take import Put, Take
from lunette.rules import MISSING, Interpretation, Rule
from lunette.window import Shape, Window

COLUMNS = frozenset(("spec", "kernel", "jvp", "vjp", "rounded", "interval", "relax"))
Make = Callable[[int], Any]


def cases_of(kind: type[Op]) -> Mapping[str, Case]:
    """Those of the operator that it is a derivative of; operators of whole numbers, up to 2, have none of their own."""
    base = kind.origin_of()
    return COUNTED.get(base, base.cases)


COUNTED: dict[type[Op], Mapping[str, Case]] = {
    OneHot: {"labels": case((2, 3), classes=3, axis=1)},
    Take: {"places": case((2, 3, 2), (4,), axis=1)},
    Put: {"places": case((2, 4), (4,), axis=1, n=3)},
}


EVERY = [pytest.param(kind, c, id=f"{kind.name}:{k}") for kind in kinds().values() for k, c in cases_of(kind).items()]
every_case = pytest.mark.parametrize(("kind", "case"), EVERY)


@pytest.fixture(autouse=True)
def _two_hundred_bits() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 200
    yield
    flint.ctx.prec = before


class Problem:
    """An operator, its options, and operands of small whole numbers, in a dtype."""

    def __init__(self, kind: type[Op], case: Case, make: Make, dtype: Any, seed: int = 0) -> None:
        self.kind, self.make, self.dtype = kind, make, np.dtype(dtype)
        self.rng = np.random.default_rng(seed)
        given = {**case.options, "dtype": self.dtype.name} if kind is OneHot else case.options
        self.options = tuple({**options_of(kind), **given}.values())
        base = kind.origin_of()
        shapes: list[Shape | None] = list(case.shapes)
        shapes += [None] * (len(base.arrays) - len(shapes))
        if issubclass(kind, Jvp):
            shapes += shapes
        elif issubclass(kind, Derivative):
            shapes.append(resolve(base, shapes, 2, self.options).out)
        self.shapes = shapes
        self.operands = [self.cells(s, at) for at, s in enumerate(shapes)]

    def cells(self, shape: Shape | None, at: int) -> Any:
        if shape is None:
            return None
        if at in self.kind.integers:
            return self.rng.integers(0, 3, shape)
        low = 1 if self.kind.positive or self.kind.origin_of().needs == "exp" else -3
        values = self.rng.integers(low, 4, shape)
        return np.asarray(each(lambda v: self.make(int(v)), values.astype(object)), self.dtype)

    def again(self) -> list[Any]:
        """Other operands of the same shapes."""
        return [self.cells(s, at) for at, s in enumerate(self.shapes)]

    def run(self, operands: Any, arithmetic: str = "fast") -> Any:
        return apply(self.kind, list(operands), arithmetic, *self.options)

    @property
    def is_there(self) -> bool:
        """Not the derivative in an array that is not given."""
        return not (issubclass(self.kind, Vjp) and self.shapes[self.kind.wrt] is None)

    def moving(self) -> list[int]:
        return [p for p, a in enumerate(self.operands) if a is not None and p not in self.kind.integers]


def exactly(kind: type[Op], case: Case, seed: int = 0) -> Problem:
    """On rationals, or on balls."""
    number: Any = flint.arb if kind.origin_of().needs == "exp" else Fraction
    return Problem(kind, case, number, object, seed)


def same(a: Any, b: Any) -> bool:
    """== for exact numbers; for balls, an overlap that no more than rounding explains."""
    if isinstance(a, flint.arb) or isinstance(b, flint.arb):
        gap = flint.arb(a) - flint.arb(b)
        return bool(gap.contains(0)) and bool(abs(gap).upper() < flint.arb(2) ** -100 * (1 + abs(flint.arb(a)).upper()))
    return bool(a == b)


def all_same(a: Array, b: Array) -> bool:
    return np.shape(a) == np.shape(b) and all(map(same, np.asarray(a, object).flat, np.asarray(b, object).flat))


def dot(a: Any, b: Any) -> Any:
    return total([p * q for p, q in zip(np.asarray(a, object).flat, np.asarray(b, object).flat, strict=True)])


# ---- the table says what is so


def test_the_table_has_every_operator_and_interpretation() -> None:
    table = ln.rules()
    assert set(table) == set(kinds()) and frozenset(Interpretation.every) == COLUMNS
    for known in table.values():
        assert frozenset(known.how) == COLUMNS and set(known) == {n for n, how in known.how.items() if how != MISSING}
        assert known | {"relax"} == COLUMNS, "all of lunette's own operators have every rule but lines"


def test_the_table_says_how() -> None:
    how = {name: known.how for name, known in ln.rules().items()}
    assert how["conv"] == {
        "spec": "own rule",
        "kernel": "own rule",
        "jvp": "derived: linear",
        "vjp": "own rule",
        "interval": "derived: a sum",
        "rounded": "own rule",
        "relax": "derived: linear, by its VJP",
    }
    assert how["relu"]["relax"] == "own rule" and how["softmax"]["relax"] == "of the operators that it is made of"
    assert how["sign"]["relax"] == how["equal"]["relax"] == MISSING
    assert how["relu"]["interval"] == "derived: monotone and exact" and how["relu"]["rounded"] == "derived: exact"
    assert how["add"]["rounded"] == "derived: rounds once" and how["add"]["interval"] == "own rule"
    assert how["softmax"]["interval"] == how["max_pool_jvp"]["interval"] == "specification"
    assert how["max_pool_vjp_x"]["jvp"] == "derived: selects" and how["lp_pool_jvp"]["vjp"] == "rule of lp_pool"
    lines = str(ln.rules()).splitlines()
    assert lines[0].split() == list(Interpretation.every) and len(lines) == len(how) + 1
    assert next(line for line in lines if line.startswith("softmax ")).endswith("of the operators that it is made of")


@every_case
def test_specification(kind: type[Op], case: Case) -> None:
    p = exactly(kind, case)
    if p.is_there:
        assert ("spec" in rules_of(kind)) and p.run(p.operands).shape == resolve(kind, p.shapes, 2, p.options).out


@every_case
def test_a_kernel_is_there_or_is_not(kind: type[Op], case: Case) -> None:
    p = Problem(kind, case, float, np.float64)
    if not p.is_there:
        return
    resolved = resolve_cached(kind, p.operands, "fast", p.options)
    if prod(resolved.out) and (resolved.d or 0) <= KERNEL_RANK:
        assert (resolved.kernels.forward is not None) == KERNEL.has(kind)


@every_case
def test_derivatives(kind: type[Op], case: Case) -> None:
    """Those of derivatives, too: the JVP is the specification on dual numbers, the VJP its adjoint."""
    p = exactly(kind, case)
    moving = p.moving()
    if not p.is_there or not moving:
        return
    tangents = p.again()

    def f(*values: Any) -> Any:
        given = list(p.operands)
        for at, v in zip(moving, values, strict=True):
            given[at] = v
        return p.run(given)

    primals, moved = [p.operands[at] for at in moving], [tangents[at] for at in moving]
    y, dy = ln.jvp(f, tuple(primals), tuple(moved))
    on_duals = f(*(each(Dual, a, t) for a, t in zip(primals, moved, strict=True)))
    assert "jvp" in rules_of(kind)
    assert all_same(dy, each(lambda v: Dual.of(v).slope, np.asarray(on_duals, object)))
    value, pullback = ln.vjp(f, *primals)
    g = p.cells(np.shape(y), -1)
    back = pullback(g)
    assert "vjp" in rules_of(kind) and all_same(value, y)
    assert same(dot(dy, g), total([dot(t, b) for t, b in zip(moved, back, strict=True)]))


@every_case
def test_arithmetics(kind: type[Op], case: Case) -> None:
    """The nearest float is that of the exact result, where this is rational, and lies in the box of the points."""
    p = Problem(kind, case, float, np.float32)
    if not p.is_there:
        return
    y, box = p.run(p.operands, "rounded"), p.run(p.operands, "interval")
    assert {"rounded", "interval"} <= rules_of(kind)
    assert y.dtype == np.float32 and box.shape == y.shape == resolve(kind, p.shapes, 2, p.options).out
    assert (box.lo <= y).all() and (y <= box.hi).all()
    if kind.needs != "exp":
        exact = exactly(kind, case)
        assert y.ravel().tolist() == [round_fraction(Fraction(v), p.dtype) for v in exact.run(exact.operands).flat]


# ---- what rooms declare


@every_case
def test_joint_linearity(kind: type[Op], case: Case) -> None:
    p = exactly(kind, case)
    if not kind.jointly_linear or not p.is_there:
        return
    together = range(len(p.operands)) if kind.variadic else kind.jointly_linear
    more = p.again()

    def at(value: Callable[[int], Any]) -> Any:
        return p.run([a if a is None or n not in together else value(n) for n, a in enumerate(p.operands)])

    zero = at(lambda n: 0 * p.operands[n])
    left = at(lambda n: p.operands[n] + 2 * more[n])
    assert all_same(left - zero, (at(lambda n: p.operands[n]) - zero) + 2 * (at(lambda n: more[n]) - zero))


@pytest.mark.parametrize("kind", [k for k in (*ALL, *GLUE) if not k.jointly_linear], ids=lambda k: k.name)
def test_what_does_not_declare_it_is_not_jointly_linear(kind: type[Op]) -> None:
    """In x, at least, unless it is a constant."""
    if kind.integers or kind.name in ("sign", "equal", "mul", "matmul", "floor"):
        # Constants; linear in each factor alone; the identity on the whole numbers that these are.
        return
    for c in cases_of(kind).values():
        p = exactly(kind, c)
        x, more = p.operands[0], p.again()[0]
        if not x.size:
            continue
        zero, a, b, both = (p.run([v, *p.operands[1:]]) for v in (0 * x, -x, 2 * more, 2 * more - x))
        if not all_same(both - zero, (a - zero) + (b - zero)):
            return
    raise AssertionError(f"{kind.name} is linear in x")


@every_case
def test_what_is_not_read_does_not_matter(kind: type[Op], case: Case) -> None:
    p = exactly(kind, case)
    if p.is_there:
        y, more = p.run(p.operands), p.again()
        given = [a if a is None or kind.reads(at) else more[at] for at, a in enumerate(p.operands)]
        assert all_same(y, p.run(given))


@pytest.mark.parametrize("kind", kinds().values(), ids=lambda k: k.name)
def test_what_is_read_matters(kind: type[Op]) -> None:
    """Each array that a result is said to depend on changes it, in one of the cases."""
    for at in range(len(kind.arrays)):
        found = not kind.reads(at)
        for c in cases_of(kind).values():
            p = exactly(kind, c)
            if found or not p.is_there or p.operands[at] is None:
                continue
            y = p.run(p.operands)
            for seed in range(1, 6):
                more = exactly(kind, c, seed).operands
                found = found or not all_same(y, p.run([*p.operands[:at], more[at], *p.operands[at + 1 :]]))
        assert found, f"{kind.name} does not read {kind.arrays[at]}"


@every_case
def test_a_result_may_take_the_memory_of_an_operand(kind: type[Op], case: Case) -> None:
    p = Problem(kind, case, float, np.float64)
    if not p.is_there:
        return
    resolved = resolve_cached(kind, p.operands, "fast", p.options)
    for at in resolved.op.in_place(resolved.shapes):
        operands: list[Any] = [None if a is None else a.copy() for a in p.operands]
        assert operands[at].shape == resolved.out
        if resolved.kernels.forward is not None:
            resolved.kernels.forward(*operands, operands[at])
            assert np.array_equal(operands[at], p.run(p.operands), equal_nan=True)


class Counted:
    """A number that counts the products it is part of."""

    products = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __mul__(self, other: Any) -> Counted:
        Counted.products += 1
        return Counted(1)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Counted:
        return Counted(1)

    __radd__ = __add__


@pytest.mark.parametrize(
    "name", ["conv", "conv_transpose", "matmul", "conv_vjp_x", "conv_vjp_w", "conv_transpose_vjp_x"]
)
def test_flops_are_twice_the_products(name: str) -> None:
    """Where every kernel cell meets a cell: without padding, or dilation that leaves the input."""
    kind = kinds()[name]
    for c in ("plain_1d", "groups") if "conv" in name else ("plain", "turned_left", "batch"):
        p = Problem(kind, cases_of(kind)[c], Counted, object)
        op = resolve(kind, p.shapes, 2, p.options).op
        arrays = [None if n == "b" else a for n, a in zip(kind.arrays, p.operands, strict=True)]
        Counted.products = 0
        op.spec(*arrays)
        both = 2 if "_vjp_" in name else 1  # the specification makes the products of both cotangents
        assert op.flops(p.shapes, 1) * both == 2 * Counted.products > 0


def test_flops_of_what_has_no_products() -> None:
    op = resolve(kinds()["max_pool"], [(2, 3, 6)], 2, (2, 2, 0, 1, False, "first", False, 1)).op
    assert op.flops([(3, 6)], 2) == 2 * 3 * 3
    back = kinds()["conv_vjp_b"]
    op = resolve(back, [(4, 2, 6), (3, 2, 3), (3,), (4, 3, 4)], 2, (1, 0, 1, 1)).op
    assert op.flops([(2, 6), (3, 2, 3), (3,), (3, 4)], 4) == 4 * 3 * 4


# ---- operators of others


class Halves(Glue):
    """Half of each cell: a specification, and nothing else."""

    name: ClassVar[str] = "halves"
    needs: ClassVar[str] = "division"
    cases: ClassVar[Mapping[str, Case]] = {}
    calls: ClassVar[list[Any]] = []

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Halves:
        return cls()

    def options(self) -> tuple[Any, ...]:
        return ()

    def shape(self, *shapes: Shape | None) -> Shape:
        assert shapes[0] is not None
        return shapes[0]

    def spec(self, *arrays: Array | None) -> Array:
        self.calls.append(arrays)
        (x,) = arrays
        assert x is not None
        return each(lambda v: v / 2, x)


class Unsaid(Halves):
    """An operator without a meaning."""

    name: ClassVar[str] = "unsaid"
    spec = Op.spec


def halves(x: Any, arithmetic: str = "fast") -> Any:
    return apply(Halves, (x,), arithmetic)


def test_an_operator_with_a_specification_alone() -> None:
    assert set(rules_of(Halves)) == {"spec", "rounded", "interval"}
    how = rules_of(Halves).how
    assert {n for n, h in how.items() if h == MISSING} == {"kernel", "jvp", "vjp", "relax"}
    assert how["rounded"] == how["interval"] == "specification"
    x = np.array([1.0, 3.0], np.float32)
    assert halves(x).tolist() == halves(x, "rounded").tolist() == [0.5, 1.5]
    box = halves(ln.Interval(x, x + 1), "interval")
    assert box.lo.tolist() == [0.5, 1.5] and box.hi.tolist() == [1, 2]


def refused(call: Callable[[], Any], *texts: str) -> None:
    """Before anything runs."""
    Halves.calls.clear()
    with pytest.raises(ln.LunetteError) as caught:
        call()
    assert not Halves.calls
    assert all(t in str(caught.value) for t in texts), str(caught.value)


def test_what_is_missing_is_refused_before_anything_runs() -> None:
    x = np.array([1.0, 3.0], np.float32)
    text = 'halves [O6] needs an operator with the rule "{}"'
    refused(lambda: ln.jvp(halves, (x,), (x,)), text.format("jvp"), "got halves, which has spec, interval, rounded")
    refused(lambda: ln.vjp(halves, x), text.format("vjp"))
    refused(lambda: ln.grad(lambda x: ln.sum(halves(x)))(x), text.format("vjp"))

    def graph() -> ln.Graph:
        g = ln.Graph()
        g.output(halves(g.input((2,), "float32", name="x")))
        return g

    refused(lambda: graph().compile(), "halves [G2] needs a kernel for halves")
    assert graph().eval(x, number=Fraction).tolist() == [Fraction(1, 2), Fraction(3, 2)]


def test_an_operator_without_a_meaning_is_refused() -> None:
    assert not rules_of(Unsaid)
    for arithmetic in ("fast", "rounded", "interval"):
        refused(
            partial(apply, Unsaid, (np.ones(2),), arithmetic), "unsaid [O6] needs an operator with the rule", "none"
        )
    refused(lambda: resolve(Unsaid, [(2,)], 2, ()), 'the rule "spec"')


@dataclass(frozen=True, slots=True)
class SumPool(Pool):
    """The sum of each window, given by its meaning and the transpose of it: it says that it is linear."""

    name: ClassVar[str] = "sum_pool"
    linear_in: ClassVar[tuple[int, ...]] = (0,)
    jointly_linear: ClassVar[tuple[int, ...]] = (0,)
    cases: ClassVar[Mapping[str, Case]] = {"line": case((1, 4), kernel=(2,), stride=1)}

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> SumPool:
        kernel, stride, _ = options
        assert shapes[0] is not None
        return cls(Window.sliding(shapes[0][1:], kernel, stride, 0, 1, False))

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return self.fold(lambda view, cells: total(cells), x)

    def vjp(self, primals: Any, g: Array) -> tuple[Array, ...]:
        (x,) = primals

        def shares(view: View, cells: list[Number], g_o: Number) -> list[tuple[int, Number]]:
            return [(p, g_o) for p in range(len(cells))]

        return (self.scatter(shares, x, g),)


@dataclass(frozen=True, slots=True)
class SquarePool(SumPool):
    """The sum of squares of each window: not linear, and its derivative is told, but not how that changes."""

    name: ClassVar[str] = "square_pool"
    linear_in: ClassVar[tuple[int, ...]] = ()
    jointly_linear: ClassVar[tuple[int, ...]] = ()

    def spec(self, *arrays: Array | None) -> Array:
        (x,) = arrays
        assert x is not None
        return self.fold(lambda view, cells: total([c * c for c in cells]), x)

    def jvp(self, primals: Any, tangents: Any) -> Array:
        (x,), (t,) = primals, tangents
        return self.fold(
            lambda view, cells, slopes: total([2 * c * s for c, s in zip(cells, slopes, strict=True)]), x, t
        )

    def vjp(self, primals: Any, g: Array) -> tuple[Array, ...]:
        (x,) = primals
        return (self.scatter(lambda view, cells, g_o: [(p, 2 * c * g_o) for p, c in enumerate(cells)], x, g),)


OPTIONS = ((2,), 1, None)


@pytest.mark.parametrize("kind", [SumPool, SquarePool])
def test_derivatives_of_an_operator_of_others(kind: type[Pool]) -> None:
    x, t = np.array([[[1.0, 2.0, 3.0]]]), np.array([[[1.0, 0.0, 2.0]]])
    assert rules_of(kind) == COLUMNS - ({"kernel"} if kind is SumPool else {"kernel", "relax"})
    assert rules_of(kind).how["jvp"] == ("derived: linear" if kind is SumPool else "own rule")
    wanted = [1, 2] if kind is SumPool else [2, 12]
    for exact in (False, True):
        a, b = (each(lambda v: Fraction(v), v.astype(object)) if exact else v for v in (x, t))
        y, dy = ln.jvp(lambda x: apply(kind, (x,), "fast", *OPTIONS), (a,), (b,))
        assert y.ravel().tolist() == ([3, 5] if kind is SumPool else [5, 13]) and dy.ravel().tolist() == wanted
    for arithmetic in ("rounded", "interval"):
        pushed = apply(jvp_of(kind), (x, t), arithmetic, *OPTIONS)
        pulled = apply(vjp_of(kind, 0), (x, np.ones((1, 1, 2))), arithmetic, *OPTIONS)
        for got, want in ((pushed, wanted), (pulled, [1, 2, 1] if kind is SumPool else [2, 8, 6])):
            low, high = (got, got) if arithmetic == "rounded" else (got.lo, got.hi)
            assert low.ravel().tolist() == want == high.ravel().tolist()


def test_a_second_derivative_that_nobody_told_is_missing_and_not_zero() -> None:
    x = np.array([[[1.0, 2.0, 3.0]]])
    for derived in (jvp_of(SquarePool), vjp_of(SquarePool, 0)):
        assert {"jvp", "vjp"} & rules_of(derived) == set()

    def once(x: Any) -> Any:
        return ln.jvp(lambda x: apply(SquarePool, (x,), "fast", *OPTIONS), (x,), (np.ones((1, 1, 3)),))[1]

    for call in (lambda: ln.jvp(once, (x,), (x,)), lambda: ln.vjp(once, x)):
        with pytest.raises(ln.ArgumentError, match=r"square_pool_jvp \[O6\] needs an operator with the rule"):
            call()
    with pytest.raises(ln.ArgumentError, match=r"square_pool_jvp \[O6\]"):  # whoever asks
        SquarePool.bend_jvp(OPTIONS, (x,), (x,), (x,))
    with pytest.raises(ln.ArgumentError, match=r"square_pool_vjp_x \[O6\]"):
        SquarePool.bend_vjp(OPTIONS, (x,), x, (x,), 0)
    straight = [rules_of(derived).how[n] for derived in (jvp_of(SumPool), vjp_of(SumPool, 0)) for n in ("jvp", "vjp")]
    assert straight == ["derived: linear"] * 4


# ---- the registry itself


def test_the_nearest_class_answers() -> None:
    class A:
        pass

    class B(A):
        pass

    class C(B):
        pass

    @Rule
    def ask(op: Any, more: int) -> str:
        """A question."""
        return f"default {more}"

    assert ask(C(), 1) == "default 1" and not ask.has(C)
    ask.register(A)(lambda op, more: f"A {more}")
    assert ask(C(), more=2) == "A 2" and ask.has(C)  # the answer from before is not kept
    ask.register(B)(lambda op, more: f"B {more}")
    assert (ask(A(), 1), ask(B(), 1), ask(C(), 1)) == ("A 1", "B 1", "B 1")
    assert ask.__doc__ == "A question." and ask.name == "ask"


def test_a_column_is_one_object() -> None:
    """What docs/adr/0018-the-registry-of-rules.md shows."""
    column = Interpretation("shape_only", "the size of its result")
    try:

        @column.rule
        def cells(op: Op) -> int | None:
            """How many cells the result has, where its fields tell."""
            return None

        column.way("own rule", cells.has)
        column.way("derived: exact", lambda kind: kind.exact)
        assert ln.rules()["relu"].how["shape_only"] == "derived: exact"
        assert "shape_only" not in ln.rules()["conv"] and "shape_only" in ln.rules()["max_pool"]
        cells.register(kinds()["conv"])(lambda op: 1)
        assert ln.rules()["conv_transpose"].how["shape_only"] == "own rule"
        with pytest.raises(ln.ArgumentError, match=r'softmax \[O6\] needs .* "shape_only" \(the size of its result\)'):
            column.require(kinds()["softmax"])
    finally:
        del Interpretation.every["shape_only"]


def test_every_answer_is_for_operators() -> None:
    for column in Interpretation.every.values():
        for rule in column.rules.values():
            assert rule.registered and all(issubclass(kind, Op) for kind in rule.registered), rule.name


def test_rooms_need_no_compiled_code() -> None:
    """Rooms are imported, and their specifications run, where the core cannot be loaded."""
    program = """
import sys, types
import importlib.machinery, importlib.util, pathlib
package = types.ModuleType("lunette")
package.__path__ = [{path!r}]
sys.modules["lunette"] = package  # not its __init__, which gathers kernels and all
sys.modules["lunette._native"] = None
from fractions import Fraction
from functools import partial
import numpy as np
from lunette.op import resolve
from lunette.ops import ALL, GLUE, AvgPool, Conv, MaxPool
x = np.array([[Fraction(n) for n in (3, 1, 2)]], object)
op = resolve(MaxPool, [x.shape], 1, ((2,), 1, 0, 1, False, "first", False, None)).op
assert op.spec(x).tolist() == [[3, 2]] and op.indices(x).tolist() == [[0, 2]]
op = resolve(Conv, [x.shape, (1, 1, 2), None], 1, (1, 0, 1, 1)).op
assert op.spec(x, x[None, :, :2], None).tolist() == [[10, 5]]
assert op.vjp((x, x[None, :, :2], None), x[:, :2])[0].tolist() == [[9, 6, 1]]
assert not [m for m in sys.modules if m.startswith("lunette.") and m.split(".")[1] in ("array", "arithmetic", "graph")]
try:
    op.kernels(np.dtype(float), 1, [x.shape, (1, 1, 2), None])
except ImportError:
    print("rooms:", len(ALL) + len(GLUE))
"""
    path = str(ln.__path__[0])
    done = subprocess.run(
        [sys.executable, "-c", program.format(path=path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["rooms:", str(len(ALL) + len(GLUE))]
