"""The public surface: what is there, what it is called, which way imports point, and which numbers it runs on."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
import sympy

import lunette
from lunette import DTypeError, Dual, Interval
from lunette.number import Array, each, primal
from lunette.op import Op
from lunette.ops import ALL, KINDS

ln: Any = lunette
SOURCE = Path(lunette.__file__).parent
OPERATORS = {kind.name: function for kind, function in ALL.items()}


def test_extras_pin_nothing_that_a_user_has() -> None:
    """One version is for our own tests and pages; others ask for a least one."""
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    pinned = {name for name, needs in extras.items() if any("==" in need or "<" in need for need in needs)}
    assert pinned == {"docs", "test"} and extras["torch"] == ["torch>=2.4"]


# ---- names


def test_the_surface_is_a_sorted_list() -> None:
    assert lunette.__all__ == sorted(lunette.__all__) and len(set(lunette.__all__)) == len(lunette.__all__)
    assert all(hasattr(lunette, name) for name in lunette.__all__)


def test_the_surface_is_complete() -> None:
    """What __init__ imports or defines without an underscore is public; so are an operator's derivatives."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    names = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom | ast.Import) for a in n.names}
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    public = {n for n in names if not n.startswith("_")} | {*ln._PLACES, "spec", "__version__"}
    assert public == set(lunette.__all__)
    derivatives = {f"{n}_{suffix}" for n in OPERATORS for suffix in ("jvp", "vjp")}
    assert {*OPERATORS, *derivatives} <= set(lunette.__all__)
    assert all(callable(getattr(ln.spec, n)) for n in {*OPERATORS, *derivatives})


def test_every_public_name_is_documented() -> None:
    for name in set(lunette.__all__) - {"__version__"}:
        assert (inspect.getdoc(getattr(lunette, name)) or "").strip(), name


def test_every_operator_shows_an_example() -> None:
    for name in (*OPERATORS, "output_shape"):
        examples = doctest.DocTestFinder().find(getattr(lunette, name), name)[0].examples
        assert any(f"ln.{name}(" in e.source for e in examples), name


def test_names_say_no_rank() -> None:
    assert not [n for n in lunette.__all__ if re.search(r"[123]d", n)]


def test_operators_share_their_arguments() -> None:
    for name, function in OPERATORS.items():
        parameters = list(inspect.signature(function).parameters)
        assert parameters[0] == "x" and parameters[-1] == "arithmetic"
        assert "pool" not in name or parameters[-2] == "spatial"


# ---- files


ORDER = [
    "later",
    "core elsewhere errors files value version workers",
    "rules window",
    "number",
    "outward taps",
    "lines",
    "curves",
    "relaxing",
    "op",
    "ops",
    "array seeds threads",
    "arithmetic",
    "building spec page pictures",
    "explanation graph",
    "certificate",
    "relax",
    "dialects",
    "torch jax onnx",
    "conform",
    "verify",
    "strategies",
    "__init__",
    "bench demo",
    "cli",
]
PACKAGES = tuple(name for names in ORDER for name in names.split() if (SOURCE / name).is_dir())


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules_of(path: Path) -> set[str]:
    """The modules of lunette that a file imports, at any depth of its code, in annotations and by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lunette":
            inner = [f"{node.module}.{a.name}" for a in node.names]
            found |= {m if m in MODULES else str(node.module) for m in inner}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "lunette"}
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            named = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""
            found |= {named} if named.startswith("lunette.") else set()
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path.name} has a relative import"
    return found


def module_of(path: Path) -> str:
    return ".".join(("lunette", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(p) for p in SOURCE.rglob("*.py")} | {"lunette._native"}


def imports_of(path: Path) -> set[str]:
    """The rooms that a file imports; compiled code is below everything."""
    return {m.split(".")[1] for m in modules_of(path) if "." in m} - {"_native"}


def test_no_imports_go_in_a_circle() -> None:
    """Between files, wherever the import stands: neither a function nor a string hides a cycle."""
    # A package's own page names what is in it; whoever imports from the package imports the room that has it.
    read = {module_of(p): modules_of(p) for p in SOURCE.rglob("*.py") if p.name != "__init__.py"}
    alive = dict(read)
    while alive:
        free = {m for m, need in alive.items() if not need & alive.keys() - {m}}
        assert free, f"a circle among {sorted(alive)}"
        alive = {m: need for m, need in alive.items() if m not in free}


def test_imports_point_one_way() -> None:
    rank = {name: at for at, names in enumerate(ORDER) for name in names.split()}
    for path in SOURCE.rglob("*.py"):
        here = room_of(path)
        if here not in rank:  # files of later layers; they may import everything that is ranked
            continue
        for there in imports_of(path):
            assert there in rank, f"{here} imports {there}, which belongs to a later layer"
            allowed = rank[there] < rank[here] or (here == there and here in PACKAGES)
            assert allowed, f"{path.name} imports {there}"


def test_importing_lunette_loads_neither_its_command_line_nor_a_framework() -> None:
    code = "import sys, lunette; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    assert not set(loaded.split()) & {"typer", "click", "rich", "torch", "jax", "onnx", "hypothesis", "pytest"}
    assert not set(loaded.split()) & {
        "optree",
        "email",
        "flint",
        "ml_dtypes",
        "numpy.random",
        "lunette.lines",
        "lunette.curves",
        "lunette.taps",
        *set(ln._LATER) - {"lunette.onnx"},
    }  # nor what is above


@pytest.mark.parametrize("first", ["lunette.verify.vnnlib", "lunette.relax.bounds", "lunette.conform.run"])
def test_names_of_rooms_that_are_functions_stay_functions_whoever_loads_the_rooms(first: str) -> None:
    code = f"""
import importlib, types
import lunette as ln
importlib.import_module({first!r})
assert all(isinstance(f, types.FunctionType) for f in (ln.verify, ln.rules, ln.explain)), (ln.verify, ln.rules)
assert set(ln.__all__) <= set(dir(ln))
import numpy as np
x = np.ones((1, 1, 2, 2))
assert ln.max_pool(ln.Interval(x), 2) == ln.Interval(x[..., :1, :1]) and ln.avg_pool(x, 2, arithmetic="rounded") == 1
assert "relax" in ln.rules()["max_pool"]
"""
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)


def test_no_file_has_a_name_that_says_nothing() -> None:
    for folder in (SOURCE, Path(__file__).parent):
        assert not [p for p in folder.rglob("*") if p.stem in ("utils", "util", "common", "helpers", "misc")]


SECTIONS = ["shape", "meaning", "derivatives", "bounds", "kernels", "cases"]


@pytest.mark.parametrize("kind", ALL, ids=[k.name for k in ALL])
def test_rooms_have_their_sections_in_order(kind: type[Op]) -> None:
    marks = re.findall(r"^    # ---- (\w+)", inspect.getsource(kind), re.MULTILINE)
    places = [SECTIONS.index(m) for m in marks]
    assert all(a < b for a, b in pairwise(places)), marks
    if "spec" in vars(kind):
        assert set(marks) | {"kernels"} == set(SECTIONS)
    assert "kernels" in marks or "kernels" not in vars(kind)


@pytest.mark.parametrize("kind", ALL, ids=[k.name for k in ALL])
def test_rooms_have_the_cases_that_every_operator_has(kind: type[Op]) -> None:
    assert {"rank_0", "rank_4"} <= kind.cases.keys() and any(n.endswith("_channels") for n in kind.cases)


def test_rooms_are_small() -> None:
    for path in (SOURCE / "ops").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name


# ---- number types (contract, section 5)


LINEAR, ORDERED, ANALYTIC = (
    [k.name for k in ALL if k.needs in needs] for needs in (("ring", "division"), ("order",), ("exp",))
)
assert {"conv", "avg_pool"} < set(LINEAR) and "max_pool" in ORDERED and {"smooth_max_pool", "lp_pool"} <= set(ANALYTIC)

a, b = sympy.symbols("a b")
TYPES: dict[str, tuple[Callable[[int], Any], list[str]]] = {
    "int": (int, LINEAR + ORDERED),
    "float": (float, LINEAR + ORDERED + ANALYTIC),
    "numpy.float32": (np.float32, LINEAR + ORDERED + ANALYTIC),
    "Fraction": (lambda v: Fraction(v, 3), LINEAR + ORDERED),
    "Decimal": (lambda v: Decimal(v) / 4, LINEAR + ORDERED + ANALYTIC),
    "complex": (lambda v: complex(v, 1 - v), LINEAR),
    "fmpq": (lambda v: flint.fmpq(v, 3), LINEAR + ORDERED),
    "arb": (lambda v: flint.arb(v) / 4, LINEAR + ORDERED + ANALYTIC),
    "Interval": (lambda v: Interval(float(v), v + 0.5), LINEAR + ORDERED + ANALYTIC),
    "sympy": (lambda v: v * a + b, LINEAR),
}
DUALS = {f"Dual of {n}": (make, served) for n, (make, served) in TYPES.items()}


def problem(name: str) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    kind = KINDS[name]
    if kind.weighted:
        return [(1, 4), (1, 1, 2), (1,)], {"stride": 2}
    windows = {"sliding": {"kernel": 2}, "bins": {"output_size": 2}, "whole": {}}[kind.windows]
    return [(1, 4)], {**windows, **{n: v for n, v in kind.needed.items() if n not in kind.scalars}}


def numbers(shape: tuple[int, ...], make: Callable[[int], Any], start: int) -> Array:
    values = np.arange(start, start + int(np.prod(shape, dtype=int))).reshape(shape).astype(object)
    return each(lambda v: make(int(v)), values)


def arguments(name: str, make: Callable[[int], Any]) -> tuple[list[Array], list[Array], dict[str, Any]]:
    shapes, options = problem(name)
    primals = [numbers(s, make, 2 - at) for at, s in enumerate(shapes)]
    tangents = [numbers(s, make, 1 + at) for at, s in enumerate(shapes)]
    for _ in KINDS[name].scalars:
        primals.append(np.array(make(2), object))
        tangents.append(np.array(make(1), object))
    return primals, tangents, options


def three(name: str, make: Callable[[int], Any]) -> tuple[Array, Array, tuple[Array, ...]]:
    """The specification forward, its JVP and its VJP."""
    primals, tangents, options = arguments(name, make)
    named = dict(zip(KINDS[name].arrays, primals, strict=False))
    y = getattr(ln.spec, name)(**named, **options)
    dy = getattr(ln.spec, f"{name}_jvp")(tuple(primals), tuple(tangents), **options)
    back = getattr(ln.spec, f"{name}_vjp")(tuple(primals), numbers(y.shape, make, 1), **options)
    assert y.dtype == dy.dtype == object and [v.shape for v in back] == [p.shape for p in primals]
    return y, dy, back


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_number_types_serve_the_operators_the_contract_says(name: str, type_name: str) -> None:
    make, served = TYPES[type_name]
    kind = type(make(1))
    if name not in served:
        with pytest.raises(DTypeError) as caught:
            three(name, make)
        text = str(caught.value)
        assert text.startswith(f"{name} (d=") and caught.value.rule in ("N2", "N3")
        assert type(make(2)).__name__ in text  # of sympy, the kind of expression
        return
    y, dy, (gx, *_) = three(name, make)
    cells = [*y.ravel(), *dy.ravel(), *gx.ravel()]
    # Exact zeros may be plain ints, and ints divide to Fractions; nothing else changes its type, nothing is a float.
    allowed: tuple[type, ...] = (kind, int, Fraction) if kind is not np.float32 else (np.float32,)
    allowed += (sympy.Basic,) if type_name == "sympy" else ()
    assert all(isinstance(c, allowed) for c in cells), {type(c).__name__ for c in cells}
    assert any(isinstance(c, allowed[0]) or type_name in ("int", "sympy") for c in cells)


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_dual_numbers_over_each_of_them_give_the_jvp(name: str, type_name: str) -> None:
    make, served = TYPES[type_name]
    if name not in served:
        return
    primals, tangents, options = arguments(name, make)
    kind = KINDS[name]
    duals = [each(Dual, p, t) for p, t in zip(primals, tangents, strict=True)]
    y = getattr(ln.spec, name)(**dict(zip(kind.arrays, duals, strict=False)), **options)
    wanted, slopes, _ = three(name, make)

    def close(p: Any, q: Any) -> bool:
        if isinstance(p, Interval) or isinstance(q, Interval):  # both enclose the same numbers
            p, q = Interval.of(p), Interval.of(q)
            return bool(p.lo <= q.hi and q.lo <= p.hi)
        if isinstance(p, flint.arb):
            return bool((p - q).contains(0)) or bool(abs(p - q) < 1e-9)
        if type_name == "sympy":
            return bool(sympy.expand(p - q) == 0)
        if name in ANALYTIC or type_name in ("float", "numpy.float32", "complex"):
            limit: Any = Decimal("1e-20") if type_name == "Decimal" else 1e-5
            return bool(abs(p - q) <= limit * (1 + abs(q)))
        return bool(p == q)

    assert all(map(close, each(primal, y).ravel(), wanted.ravel()))
    assert all(map(close, each(lambda v: Dual.of(v).slope, y).ravel(), slopes.ravel()))
    # A VJP on dual numbers is the derivative of the VJP: it runs, and its values are the VJP's.
    back = getattr(ln.spec, f"{name}_vjp")(tuple(duals), wanted, **options)
    plain = getattr(ln.spec, f"{name}_vjp")(tuple(primals), wanted, **options)
    assert all(map(close, each(primal, back[0]).ravel(), plain[0].ravel()))


def test_float32_is_rounded_after_each_operation() -> None:
    """A sum in double precision would keep the one."""
    x = np.array([[2.0**24, 1.0, 1.0]], np.float32)
    w = np.ones((1, 1, 3), np.float32)
    ((y,),) = ln.spec.conv(x, w)
    assert type(y) is np.float32 and y == 2.0**24
    ((mean,),) = ln.spec.avg_pool(x, (3,))
    assert type(mean) is np.float32 and mean == np.float32(2.0**24) / np.float32(3)


def test_the_transpose_of_complex_numbers_is_not_conjugated() -> None:
    gx, gw = ln.spec.conv_vjp(([[1j]], [[[2j]]]), [[1 + 1j]])
    assert gx.tolist() == [[2j * (1 + 1j)]] and gw.tolist() == [[[1j * (1 + 1j)]]]


def test_ints_divide_to_fractions() -> None:
    assert ln.avg_pool([[1, 2]], (2,)).tolist() == [[Fraction(3, 2)]]
    assert ln.spec.max_pool_vjp(([[1, 1]],), [[1]], kernel=(2,), ties="split")[0].tolist() == [[Fraction(1, 2)] * 2]


@pytest.mark.parametrize("axes", [4, 5])
def test_one_int_is_a_tuple_where_x_has_one_batch_axis(axes: int) -> None:
    x = np.arange(3.0**axes).reshape((3,) * axes)
    d = axes - 2
    for name in ("max_pool", "avg_pool", "lp_pool"):
        f, vjp = getattr(ln, name), getattr(ln, f"{name}_vjp")
        want = f(x, (2,) * d)
        assert (f(x, 2) == want).all() and (f(x, 2, spatial=d) == want).all()
        assert (vjp((x,), want, kernel=2)[0] == vjp((x,), want, kernel=(2,) * d)[0]).all()
        assert ln.output_shape(name, x.shape, kernel=2) == want.shape
        spec = getattr(ln.spec, name)
        assert (spec(x[0], 2) == spec(x[0], (2,) * d)).all()
        assert (f(x[0], 2, spatial=d) == want[0]).all()
    assert (ln.adaptive_avg_pool(x, 2) == ln.adaptive_avg_pool(x, (2,) * d)).all()
    assert ln.global_max_pool(x).shape == (3, 3, *(1,) * d) == (3, *ln.spec.global_max_pool(x[0]).shape)


def test_the_module_can_be_loaded_again_and_asked_for_its_types() -> None:
    code = (
        "import importlib, inspect, typing, lunette as ln; ln.verify; importlib.reload(ln); assert callable(ln.verify);"
        "assert callable(ln.rules); typing.get_type_hints(ln.from_torch);"
        "inspect.signature(ln.from_torch, eval_str=True)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
