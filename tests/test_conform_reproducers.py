"""The lines that findings are reproduced with: each is executed, and prints what the backend answered."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.conform.backends import NAMES, Backend, find
from lunette.conform.backends.function import Function
from lunette.conform.case import Case

NUMBER = re.compile(r"-?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?)")
WINDOW = {"kernel": (2,), "stride": (1,)}
ASKED = [
    Case("max_pool", ((1, 1, 4),), WINDOW, mode="indices"),
    Case("max_pool", ((1, 1, 4),), {**WINDOW, "padding": ((1, 1),), "dilation": (2,)}, mode="vjp"),
    Case("max_pool", ((1, 1, 4),), WINDOW, data="lowest", seed=2),
    Case("conv", ((1, 2, 5), (3, 2, 2), (3,)), {"stride": (2,)}),
    Case("conv", ((1, 2, 5), (3, 2, 2), (3,)), {"stride": (2,)}, mode="vjp"),
    Case("conv_transpose", ((1, 2, 3), (2, 1, 2)), {"stride": (2,)}, mode="jvp"),
    Case("avg_pool", ((1, 1, 100),), {"kernel": (2,)}, data="normal"),
    Case("avg_pool", ((1, 1, 70),), {"kernel": (7,)}, data="normal", dtype="bfloat16"),
    Case("avg_pool", ((1, 1, 4),), {"kernel": (2,)}, dtype="bfloat16"),
    Case("avg_pool", ((1, 1, 4),), {"kernel": (2,)}, mode="vjp", dtype="float64"),
    Case("avg_pool", ((1, 1, 4),), {"kernel": (3,), "padding": ((1, 1),), "count_include_pad": False}),
    Case("avg_pool", ((1, 1, 4),), {"kernel": (2,)}, mode="jvp", data="infinite"),
    Case("lp_pool", ((1, 1, 4),), {"kernel": (2,), "p": 1.0}, data="ties"),
    Case("global_max_pool", ((2, 1, 4),), {"spatial": 1, "keepdims": False}, data="nan"),
]


def prints(backend: Backend, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Executed in an empty namespace, the line prints the numbers of the answer, in order."""
    source = backend.source(case)
    assert "\n" not in source
    try:
        answered = backend.run(case, case.arrays())
    except Exception as error:
        with pytest.raises(type(error)):
            exec(source, {})
        return
    arrays = answered if isinstance(answered, tuple | list) else [answered]
    capsys.readouterr()
    exec(source, {})
    said = re.sub(r"(dtype|size|grad_fn|shape)=[^])]*[])]", "", re.sub(r"float(16|32|64)", "", capsys.readouterr().out))
    wanted = np.concatenate([np.ravel(np.asarray(a, np.float64)) for a in arrays])
    got = np.array([float(n) for n in NUMBER.findall(said)])
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the libraries' own
@pytest.mark.parametrize("name", [n for n in NAMES if n != "torch-compile"])
@pytest.mark.parametrize("case", ASKED, ids=lambda c: f"{c.op}-{c.mode}-{c.dtype}-{c.data}")
def test_a_library(name: str, case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = find(name)
    for variable, value in backend.environment.items():
        monkeypatch.setenv(variable, value)
    if backend.module:
        pytest.importorskip(backend.module)
    if (reason := backend.supports(case)) is not None:
        pytest.skip(reason)
    prints(backend, case, capsys)


def strict_pool(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any) -> Any:
    """A function without defaults."""
    import lunette as ln

    return ln.max_pool(x, kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)


def strict_pool_vjp(primals: Any, cotangent: Any, kernel: Any, padding: Any, ties: Any) -> Any:
    import lunette as ln

    return ln.max_pool_vjp(primals, cotangent, kernel=kernel, stride=1, padding=padding, ties=ties)


def other_average(x: Any, kernel: Any, count_include_pad: bool = False, padding: Any = 7) -> Any:
    """Its defaults are not lunette's: they must not be relied on."""
    import lunette as ln

    return ln.avg_pool(x, kernel, count_include_pad=count_include_pad, padding=padding)


@pytest.mark.parametrize("case", [c for c in ASKED if c.op == "max_pool" and c.mode in ("forward", "vjp")])
def test_a_function_without_defaults(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(case.op, case.shapes, {n: v for n, v in case.options.items() if n != "dilation"}, mode=case.mode)
    prints(Function("strict", strict_pool, "max_pool", vjp=strict_pool_vjp), case, capsys)


def test_a_function_with_other_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    function = Function("other", other_average, "avg_pool")
    case = Case("avg_pool", ((1, 1, 4),), {"kernel": (2,)})
    assert function.options(case) == {"kernel": (2,), "count_include_pad": True, "padding": (0,)}
    prints(function, case, capsys)


def test_a_function_of_a_module(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_kernels.py").write_text(
        "class Box:\n    @staticmethod\n    def total(x, w, b=None, stride=(1,), groups=1):\n"
        "        import lunette as ln\n        return ln.conv(x, w, b, stride=stride, groups=groups)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    prints(find("own_kernels:Box.total as conv"), ASKED[3], capsys)


def test_a_function_that_cannot_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(x: Any, kernel: Any) -> Any:
        return ln.max_pool(x, kernel)

    functions: tuple[Any, ...] = (
        lambda x, kernel: ln.max_pool(x, kernel),
        inner,
        functools.partial(ln.max_pool, stride=1),
    )
    for function, name in zip(functions, ("function", "inner", "function"), strict=True):
        line = Function("mine", function, "max_pool").source(Case("max_pool", ((1, 1, 4),), {"kernel": (2,)}))
        ast.parse(line)
        exec(line, {name: function})
        assert f"# {name} is " in line and "import <" not in line and capsys.readouterr().out.startswith("[[[")
