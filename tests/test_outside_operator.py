"""An operator of another package: `median_pool.py`, written after CONTRIBUTING.md, registered, and in everybody's eyes.

Nothing here knows the operator but by what it declares; nothing in lunette knows it at all.
"""

from __future__ import annotations

import ast
import doctest
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import lunette as ln
import median_pool as room
import test_interval
import test_laws
from lunette import ops, spec
from lunette.array import jvp_of, vjp_of
from lunette.conform.backends.function import Function
from lunette.conform.case import Case
from lunette.conform.generate import corners, draws, modes_of
from lunette.conform.result import Batch
from lunette.conform.truth import truth
from lunette.dialects import dialect
from lunette.errors import ArgumentError, DTypeError, LunetteError
from lunette.op import apply
from lunette.ops.pool import Pool
from lunette.strategies import cases
from median_pool import MedianPool, median_pool

median_pool_jvp, median_pool_vjp = jvp_of(median_pool, MedianPool), vjp_of(median_pool, MedianPool)
LAWS = [f for name, f in vars(test_laws).items() if name.startswith("test_")]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    ops.register(MedianPool, median_pool)
    yield
    ops.unregister(MedianPool)
    assert "median_pool" not in ops.KINDS and not hasattr(spec, "median_pool")


def median(x: Any, kernel: Any, stride: Any = None, padding: Any = 0) -> Any:
    """Of two spatial axes, by NumPy alone: what a user would have measured."""
    (kh, kw), (sh, sw) = kernel, stride or kernel
    pads = [p if isinstance(p, tuple) else (p, p) for p in (padding if isinstance(padding, tuple) else (padding,) * 2)]
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads], constant_values=np.inf)  # of which there is none in x
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:], (kh, kw), (sh, sw), strict=True))
    y = np.empty((*x.shape[:2], rows, columns))
    for at in np.ndindex(y.shape):
        cells = x[at[0], at[1], at[2] * sh : at[2] * sh + kh, at[3] * sw : at[3] * sw + kw]
        y[at] = np.median(cells[cells != np.inf])
    return y


# ---- laws


@pytest.mark.parametrize("case", MedianPool.cases)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_every_law_holds(law: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The public line is the other package's.
    for name, function in (("", median_pool), ("_jvp", median_pool_jvp), ("_vjp", median_pool_vjp)):
        monkeypatch.setattr(ln, f"median_pool{name}", function, raising=False)
    settings(max_examples=10)(given(test_laws.seeds)(law.hypothesis.inner_test))(MedianPool, MedianPool.cases[case])


@pytest.mark.parametrize("case", MedianPool.cases)
def test_boxes_hold_values_and_derivatives(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in (("", median_pool), ("_jvp", median_pool_jvp), ("_vjp", median_pool_vjp)):
        monkeypatch.setattr(ln, f"median_pool{name}", function, raising=False)
    for style in (0, 2, 3):
        test_interval.check(MedianPool, MedianPool.cases[case], np.float32, style + 7, style)


def test_there_are_laws() -> None:
    assert len(LAWS) >= 8


def test_a_law_fails_where_a_rule_is_broken() -> None:
    class Broken(MedianPool):
        name = "broken_pool"

        def vjp(self, primals: Any, g: Any) -> Any:
            return tuple(2 * v for v in MedianPool.vjp(self, primals, g))

    def broken_pool(x: Any, kernel: Any, *, stride: Any = None, spatial: Any = None, arithmetic: str = "fast") -> Any:
        return apply(Broken, (x,), arithmetic, kernel, stride, 0, 1, False, spatial)

    ops.register(Broken, broken_pool)
    try:
        adjoint: Any = test_laws.test_vjp_is_the_adjoint_of_jvp
        with pytest.raises(AssertionError):
            adjoint.hypothesis.inner_test(Broken, MedianPool.cases["odd"], 1)
    finally:
        ops.unregister(Broken)


# ---- names


def test_it_is_found_by_its_name() -> None:
    assert ln.output_shape("median_pool", (2, 3, 8, 8), kernel=3, stride=2) == (2, 3, 3, 3)
    assert ln.output_shape(median_pool, (2, 3, 8), kernel=(3,)) == (2, 3, 2)
    assert spec.median_pool([[1, 9, 5, 3]], kernel=(4,)).tolist() == [[4]]
    assert spec.median_pool([1, 9, 5, 4], (4,)).tolist() == [Fraction(9, 2)]  # one channel, as pools have it
    assert spec.median_pool_vjp(([[1, 9, 5, 4]],), [[2]], kernel=(4,))[0].tolist() == [[0, 0, 1, 1]]
    assert spec.median_pool is spec.median_pool and spec.median_pool_jvp.__name__ == "median_pool_jvp"
    with pytest.raises(AttributeError):
        _ = spec.median_pool_hvp


def test_documents_pick_it_up() -> None:
    (example,) = doctest.DocTestFinder().find(median_pool, "median_pool", globs={"median_pool": median_pool})
    assert doctest.DocTestRunner().run(example) == (0, 1)
    for f, word in ((median_pool_jvp, "tangent"), (spec.median_pool_vjp, "VJP"), (spec.median_pool, "median")):
        assert word in (f.__doc__ or "") or "median_pool" in (f.__doc__ or "")
    shown = str(ln.explain("median_pool", (5,), kernel=3, stride=2, padding=1))
    assert shown.startswith("median_pool (d=1): space (5,) -> (3,)") and "divisor" not in shown
    assert "<svg" in ln.explain(median_pool, (4, 4), kernel=2).to_svg()
    with pytest.raises(ArgumentError, match="median_pool"):
        ln.output_shape("meridian_pool", (1, 4))


def test_its_rules_are_listed() -> None:
    rules = ln.rules()
    assert rules["median_pool"] == rules["max_pool"] - {"kernel", "relax"}
    assert rules["median_pool_jvp"] - {"relax"} == rules["median_pool_vjp_x"] - {"relax"} == rules["median_pool"]


# ---- arithmetic and graphs


X = np.random.default_rng(0).integers(-9, 10, (2, 3, 6, 5)).astype(np.float32)


def test_arrays_derivatives_and_arithmetics() -> None:
    y = median_pool(X, (2, 3), stride=1, padding=(0, 1))
    assert y.dtype == np.float32 and (y == median(X, (2, 3), (1, 1), (0, 1))).all()
    assert (median_pool(X, (2, 3), stride=1, padding=(0, 1), arithmetic="rounded") == y).all()
    box = median_pool(ln.Interval(X - 1, X + 1), 2, arithmetic="interval")
    point = median_pool(X, 2)
    assert (box.lo == point - 1).all() and (box.hi == point + 1).all()
    t = np.random.default_rng(1).integers(-3, 4, X.shape).astype(np.float32)
    g = np.ones(point.shape, np.float32)
    dy, (dx,) = median_pool_jvp((X,), (t,), kernel=2), median_pool_vjp((X,), g, kernel=2)
    assert dy.sum() == (dx * t).sum() and dx.sum() == g.size


def test_rounded_is_the_nearest_float() -> None:
    x = np.array([[0.1, 0.3, 0.7, 0.2]], np.float32)
    ((y,),) = median_pool(x, (4,), arithmetic="rounded")
    assert y == np.float32((Fraction(float(x[0, 1])) + Fraction(float(x[0, 3]))) / 2)


def test_graphs_hold_it() -> None:
    def f(x: Any) -> Any:
        return ln.sum(median_pool(ln.relu(x), (2, 2), stride=1) * 2)

    graph = ln.trace(f, X)
    assert "median_pool(%1, kernel=(2, 2), stride=1)" in str(graph)
    assert str(ln.Graph.parse(str(graph))) == str(graph)
    assert graph.eval(X, number=Fraction) == f(X)  # on rationals: these sums are exact in float32, too
    back = ln.grad(f)(X)
    _, dy = ln.jvp(f, (X,), (np.ones_like(X),))
    assert back.any() and dy == back.sum()
    curved = ln.jvp(lambda x: ln.grad(f)(x), (X,), (np.ones_like(X),))[1]
    assert not curved.any()  # it selects
    bent = ln.trace(lambda x: ln.jvp(f, (x,), (x,))[1], X)
    assert "median_pool_jvp(" in str(bent) and str(ln.Graph.parse(str(bent))) == str(bent)


def test_a_program_says_that_there_is_no_kernel() -> None:
    graph = ln.trace(lambda x: median_pool(x, (2, 2)), X)
    text = r"median_pool \(d=2\) \[G2\] needs a kernel for median_pool; .* It has none at all: g.eval computes it"
    with pytest.raises(LunetteError, match=text):
        graph.compile()


def test_nothing_is_known_of_its_error() -> None:
    assert np.isinf(ln.error_bound("median_pool", (X,), kernel=2)).all()  # it is no sum, and not exact


# ---- conform


def test_cases_are_drawn_and_answered() -> None:
    backend = Function("medians", median_pool, "median_pool", median_pool_jvp, median_pool_vjp)
    asked = [case for case, reason in draws(Batch("medians", "median_pool", 3, 1, 60), backend) if reason is None]
    assert len(asked) == 60 and {c.mode for c in asked} == {"forward", "jvp", "vjp"} == set(modes_of("median_pool"))
    right = [truth(c, c.arrays()) for c in asked]
    assert sum(r.refusal is None for r in right) > 30
    assert any(c.misses for c in corners("median_pool", backend.space, 0))


def test_itself_conforms() -> None:
    report = ln.conform(median_pool, op="median_pool", jvp=median_pool_jvp, vjp=median_pool_vjp, cases=80, ranks=(1, 2))
    assert report.exit_status == 0 and not report.findings and report.asked > 60


def test_a_mistake_is_found_reduced_and_drawn() -> None:
    def lower(x: Any, kernel: Any, stride: Any = None) -> Any:
        y = median_pool(x, kernel, stride=stride)
        return np.minimum(y, 3).astype(x.dtype)

    report = ln.conform(lower, op="median_pool", cases=60, ranks=1, dtypes="float32")
    assert report.exit_status == 1
    found = next(f for f in report.findings if f.kind == "value")
    assert found.case.size <= 2 and found.drawing.startswith("median_pool (d=1)")


@pytest.mark.parametrize("wrong", [False, True])
def test_the_command_measures_a_function_as_it(wrong: bool, tmp_path: Path) -> None:
    """The module that has the function, or one that it imports, registers the operator."""
    body = "return median_pool(x, kernel, stride=stride, padding=padding)"
    text = f"""
from lunette import ops
from median_pool import MedianPool, median_pool
ops.register(MedianPool, median_pool)

def mine(x, kernel, stride=None, padding=0):
    {body.replace("median_pool(x", "-median_pool(-abs(x)") if wrong else body}
"""
    (tmp_path / "medians.py").write_text(text)
    path = f"{tmp_path}:{Path(room.__file__).parent}:{Path(ln.__file__).parents[1]}"
    command = [sys.executable, "-m", "lunette", "conform", "medians:mine", "--as", "median_pool", "--cases", "40"]
    run = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": path, "PATH": ""}, cwd=tmp_path)
    assert run.returncode == (1 if wrong else 0), run.stdout + run.stderr
    assert "median_pool" in run.stdout


def test_strategies_have_it() -> None:
    @given(cases("median_pool", ranks=(1, 2), modes=("forward", "vjp")))
    @settings(max_examples=20)
    def every(case: Case) -> None:
        assert case.op == "median_pool" and truth(case, case.arrays()).refusal is None

    every()


def test_dialects_know_it_only_as_lunettes() -> None:
    meaning = dialect("lunette").meaning("median_pool", [(1, 1, 5)], {"kernel": (2,)})
    assert meaning.out == (2,) and meaning.divisor is None
    with pytest.raises(LunetteError, match="DI1"):
        dialect("torch").spell("median_pool", [(1, 1, 5)], {"kernel": (2,)})
    with pytest.raises(LunetteError, match="DI6"):
        ln.diff("torch", "onnx22", "median_pool")


# ---- names are data


NAMES = {kind.name for kind in ops.OWN}
PACKAGE = Path(ln.__file__).parent
CHECKER = [PACKAGE / "certificate" / name for name in ("check.py", "balls.py")]
"""These have definitions of their own, and trust nobody else's."""
SOURCES = [p for p in PACKAGE.rglob("*.py") if p.parent.name != "ops" and p not in CHECKER]


def named_in(node: ast.AST) -> list[str]:
    """Strings of a condition that are an operator's name, or a part of one that is looked for in it."""
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if isinstance(node, ast.Compare | ast.MatchValue):
        part = isinstance(node, ast.Compare) and any(
            getattr(c, "attr", getattr(c, "id", "")) == "op" for c in node.comparators
        )
        return [t for t in texts if t in NAMES or (part and len(t) > 2 and any(t in n for n in NAMES))]
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    asked = method in ("startswith", "endswith", "removeprefix", "removesuffix")
    return [t for t in texts if asked and len(t) > 2 and any(n.startswith(t) or n.endswith(t) for n in NAMES)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_no_condition_asks_for_a_name(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    assert [
        (n.lineno, t) for n in nodes if isinstance(n, ast.Compare | ast.Call | ast.MatchValue) for t in named_in(n)
    ] == []


@pytest.mark.parametrize(
    "text", ['op == "max_pool"', 'op in ("conv", "x")', '"avg" in case.op', 'op.startswith("conv")']
)
def test_such_a_condition_would_be_seen(text: str) -> None:
    assert named_in(ast.parse(text, mode="eval").body)


# ---- refusals


def _no_end(x: Any, kernel: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("kind", "function", "error", "text"),
    [
        (Pool, median_pool, ArgumentError, r"register \[OP1\] needs an operator with a name of its own; got name=None"),
        (3, median_pool, DTypeError, r"register \[OP1\] needs a class made from lunette.ops.Windowed; got 3"),
        (ops.MaxPool, ops.max_pool, ArgumentError, r"register \[OP1\] needs an operator that lunette does not have"),
        (type("Other", (MedianPool,), {"__slots__": ()}), median_pool, ArgumentError, r"OP1.*got name='median_pool'"),
        (
            MedianPool,
            ops.max_pool,
            ArgumentError,
            r"register \[OP2\] needs a function \(x, ..., arithmetic\) that ends",
        ),
        (MedianPool, _no_end, ArgumentError, r"OP2.*got '_no_end'"),
        (MedianPool, 3, ArgumentError, r"OP2.*got 3"),
    ],
)
def test_what_is_no_operator_is_not_registered(
    kind: Any, function: Callable[..., Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ops.register(kind, function)


def test_lunettes_own_stay() -> None:
    with pytest.raises(ArgumentError, match=r"unregister \[OP3\] needs an operator that was registered"):
        ops.unregister(ops.MaxPool)


def test_its_own_refusals_are_told() -> None:
    with pytest.raises(LunetteError, match=r"median_pool \(d=1\) \[MD1\] needs a cell of the input in every window"):
        median_pool(np.zeros((1, 2), np.float32), (1,), padding=1)
    case = Case("median_pool", ((1, 1, 2),), {"kernel": (1,), "padding": ((1, 1),)})
    assert truth(case, case.arrays()).empty and case.output == (1, 1, 4)
