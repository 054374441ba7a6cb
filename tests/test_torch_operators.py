"""Lunette's operators inside of torch: they mean what they mean outside, and torch may do with them what it does."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import lunette
import lunette.torch
from effort import LONG
from lunette import DTypeError
from lunette.op import parameters_of
from lunette.ops import ALL, Conv, MaxPool
from lunette.ops.derivative import vjp_of
from lunette.torch import functions, layout
from lunette.torch.layout import FORMATS, POOLS, is_channels_last
from lunette.torch.operators import OPERATORS, Operator
from lunette.torch.tensors import array_of
from torch_cases import ONE_EACH, PROBLEMS, Problem, cotangent, ids, same
from torch_nodes import either_way, in_python
from torch_nodes import way as way

every = pytest.mark.parametrize("problem", PROBLEMS, ids=ids(PROBLEMS))
one_each = pytest.mark.parametrize("problem", ONE_EACH, ids=ids(ONE_EACH))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# torch.func imports what torch itself calls deprecated.
ln: Any = lunette
lt: Any = lunette.torch
func: Any = torch.func
dynamo: Any = torch._dynamo
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


def arrays(tensors: list[torch.Tensor]) -> list[Any]:
    return [array_of(t) for t in tensors]


# ---- the same meaning


@every
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@either_way
def test_values_and_gradients_are_those_of_arrays(problem: Problem, dtype: torch.dtype, way: str) -> None:
    leaves = problem.leaves(dtype)
    y = problem.function()(*leaves)
    primals = tuple(arrays(leaves))
    assert y.dtype == dtype and same(y, np.asarray(problem.function(ln)(*primals), float))
    g = cotangent(y)
    back = torch.autograd.grad(y, leaves, g)
    wanted = getattr(ln, f"{problem.kind.name}_vjp")(primals, array_of(g), **problem.case.options)
    assert all(same(a, np.asarray(b, float)) for a, b in zip(back, wanted, strict=True))


@every
@either_way
def test_gradients_that_are_asked_for_again(problem: Problem, way: str) -> None:
    """The second of a shape may go a shorter way than the first, whatever its cotangent is made of."""
    leaves = problem.leaves(torch.float32)
    y = problem.function()(*leaves)
    primals = tuple(arrays(leaves))
    ones, g = torch.ones(()).expand(y.shape), cotangent(y)
    for given in (g, ones, g.requires_grad_(), ones, (-g.detach()).clone(), torch._neg_view(g.detach())):
        back = torch.autograd.grad(y, leaves, given, retain_graph=True)
        wanted = getattr(ln, f"{problem.kind.name}_vjp")(primals, array_of(given), **problem.case.options)
        assert all(same(a, np.asarray(b, float)) for a, b in zip(back, wanted, strict=True))


@in_python
def test_the_short_way_of_gradients_is_taken(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    for name, options in {"avg_pool": {"kernel": 2}, "adaptive_avg_pool": {"output_size": 1}}.items():
        y = getattr(lt, name)(x, **options)
        first, second = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2))
        g = torch.ones_like(y)
        torch.autograd.grad(y, x, g, retain_graph=True)
        with monkeypatch.context() as patch:
            patch.setattr(layout, "compute", None)
            assert torch.equal(torch.autograd.grad(y, x, g)[0], first) and torch.equal(first, second)


def test_the_short_way_with_gradients_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a call that was made before; another shape, dtype, option or order of cells goes its own way."""
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    for name, options in {"max_pool": {"kernel": 2}, "avg_pool": {"kernel": 2}, "global_max_pool": {}}.items():
        f = getattr(lt, name)
        first = f(x, **options)
        with monkeypatch.context() as patch:
            patch.setattr(functions, "Carried", None)
            again = f(x, **options)
            with pytest.raises(TypeError):
                f(x, **options, arithmetic="rounded")
        assert torch.equal(again, first) and torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (first, again)))
    for other in (x[:1], x.double(), x.movedim(1, -1).contiguous().movedim(-1, 1)):
        leaf = other.detach().requires_grad_()
        for options in ({"kernel": 2}, {"kernel": 2, "stride": 1}, {"kernel": 2, "ceil_mode": True}):
            y = lt.max_pool(leaf, **options)
            assert same(y, ln.max_pool(array_of(leaf), **options))
            back = ln.max_pool_vjp((array_of(leaf),), array_of(torch.ones_like(y)), **options)[0]
            assert same(torch.autograd.grad(y.sum(), leaf)[0], back)


@in_python
def test_max_pools_of_bins_keep_their_winners(way: str) -> None:
    x = torch.randn(2, 3, 12, 12, requires_grad=True)
    y = lt.adaptive_max_pool(x, 2)
    assert y.grad_fn.winners is not None
    assert torch.equal(*(torch.autograd.grad(f(x, 2).sum(), x)[0] for f in (lt.adaptive_max_pool, their_bins)))


def their_bins(x: torch.Tensor, size: int) -> torch.Tensor:
    return torch.nn.functional.adaptive_max_pool2d(x, size)


@every
def test_rounded_gradients_are_those_of_arrays(problem: Problem) -> None:
    leaves = problem.leaves(torch.float32)
    y = problem.function(arithmetic="rounded")(*leaves)
    primals = tuple(arrays(leaves))
    assert same(y, problem.function(ln, arithmetic="rounded")(*primals))
    g, options = cotangent(y), {**problem.case.options, "arithmetic": "rounded"}
    back = torch.autograd.grad(y, leaves, g)
    wanted = getattr(ln, f"{problem.kind.name}_vjp")(primals, array_of(g), **options)
    assert all(same(a, b) for a, b in zip(back, wanted, strict=True))
    tangents = tuple(t.detach() + 1 for t in leaves)
    _, slope = func.jvp(problem.function(arithmetic="rounded"), tuple(leaves), tangents)
    assert same(slope, getattr(ln, f"{problem.kind.name}_jvp")(primals, tuple(arrays(list(tangents))), **options))


SELECTING = [p for p in PROBLEMS if "return_indices" in parameters_of(ALL[p.kind])]


@pytest.mark.parametrize("problem", SELECTING, ids=ids(SELECTING))
def test_indices_carry_no_derivative(problem: Problem) -> None:
    leaves = problem.leaves()
    y, index = problem.function(return_indices=True)(*leaves)
    wanted = problem.function(ln, return_indices=True)(*arrays(leaves))
    assert same(y, wanted[0]) and same(index, wanted[1]) and index.dtype == torch.int64 and not index.requires_grad
    g = cotangent(y)
    plain = torch.autograd.grad(problem.function()(*leaves), leaves, g)
    assert same(torch.autograd.grad(y, leaves, g)[0], plain[0])
    with torch.no_grad():
        assert same(problem.function(return_indices=True)(*leaves)[1], index)


@pytest.mark.parametrize("ties", ["first", "all", "split"])
@either_way
def test_ties_and_nan(ties: str, way: str) -> None:
    nan = float("nan")
    x = torch.tensor([[[1.0, 1.0, 0.0, -0.0, nan, nan, 3.0, 3.0]]], dtype=torch.float64, requires_grad=True)
    y = lt.max_pool(x, (2,), stride=1, ties=ties)
    back = torch.autograd.grad(y, x, torch.full_like(y, 2))[0]
    options = {"kernel": (2,), "stride": 1, "ties": ties}
    wanted = ln.max_pool_vjp((x.detach().numpy(),), np.full(y.shape, 2.0), **options)[0]
    assert same(y, ln.max_pool(x.detach().numpy(), **options)) and same(back, wanted)


@one_each
@either_way
def test_empty_batches(problem: Problem, way: str) -> None:
    leaves = problem.leaves(batch=(0,))
    y = problem.function()(*leaves)
    back = torch.autograd.grad(y, leaves, torch.zeros_like(y))
    assert y.shape[0] == 0 and all(b.shape == t.shape and not b.any() for b, t in zip(back, leaves, strict=True))


# ---- what torch checks of its operators


@every
def test_derivatives_to_second_order(problem: Problem) -> None:
    """fast_mode compares one random projection of each Jacobian; the long tests compare all of them."""
    leaves, f = problem.leaves(), problem.function()
    checks: dict[str, Any] = {"fast_mode": not LONG}
    assert torch.autograd.gradcheck(f, leaves, check_forward_ad=True, check_batched_grad=True, **checks)
    assert torch.autograd.gradgradcheck(f, leaves, check_fwd_over_rev=True, check_rev_over_rev=True, **checks)


def examples(problem: Problem) -> list[tuple[Operator, tuple[Any, ...]]]:
    """Calls of the operator, and of its derivatives, as torch has them."""
    operator, text = problem.operator()
    missing = len(problem.kind.arrays) - len(problem.case.shapes)
    leaves = problem.leaves()
    given = (*leaves, *(None,) * missing)
    y = problem.function()(*leaves)
    tangents = (*(t.detach() + 1 for t in leaves), *(None,) * missing)
    calls = [(operator, (*given, text))]
    for kind, indices in OPERATORS:
        base = getattr(kind, "base", kind)
        if base is problem.kind and kind is not base:
            if kind.name.endswith("_jvp"):
                calls.append((OPERATORS[kind, False], (*given, *tangents, text)))
            elif given[kind.wrt] is not None:  # type: ignore[attr-defined]
                calls.append((OPERATORS[kind, False], (*given, cotangent(y).requires_grad_(), text)))
        elif kind is problem.kind and indices:
            calls.append((OPERATORS[kind, True], (*given, text)))
    return calls


@every
def test_opcheck(problem: Problem) -> None:
    """Schema, autograd and fake tensors of every case; a trace with symbolic sizes of one, or of all in long tests."""
    quick = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, arguments in examples(problem):
        traced = LONG or (problem in ONE_EACH and operator.kind is problem.kind)
        more = ("test_aot_dispatch_dynamic",) if traced else ()
        torch.library.opcheck(operator.handle, arguments, test_utils=(*quick, *more))


# ---- channels-last


def turned(t: torch.Tensor) -> torch.Tensor:
    return t.detach().contiguous(memory_format=FORMATS[t.ndim]).requires_grad_()


LAST = [p for p in PROBLEMS if p.kind in POOLS and p.leaves()[0].ndim in FORMATS]


def test_there_are_cases_of_every_kind_of_channels_last_pool() -> None:
    assert {p.kind for p in LAST} == set(POOLS)


@pytest.mark.parametrize("problem", LAST, ids=ids(LAST))
@either_way
def test_channels_last(problem: Problem, way: str) -> None:
    """The same numbers in the other order, in and out: rounded ones to the bit. Cotangents may have either order."""
    x = problem.tensors()[0]
    leaf = torch.cat([x, -x, x.flip(-1)], 1).contiguous().requires_grad_()
    last, f = turned(leaf), problem.function(arithmetic="rounded")
    assert is_channels_last(last)
    wanted, y = f(leaf), f(last)
    assert torch.equal(y, wanted) and y.stride() == turned(y).stride()
    g = cotangent(wanted)
    (slope,) = torch.autograd.grad(wanted, leaf, g)
    for cotangents in (g, turned(g).detach()):
        (back,) = torch.autograd.grad(f(last), last, cotangents)
        assert torch.equal(back, slope)
    moved = [func.jvp(f, (t.detach(),), ((t + 1).detach(),))[1] for t in (last, leaf)]
    assert torch.equal(*moved)
    fast = problem.function()
    assert torch.allclose(fast(last), wanted, rtol=1e-12)
    with torch.no_grad():
        assert torch.allclose(fast(last), wanted, rtol=1e-12) and fast(last).stride() == y.stride()
    for cotangents in (g, turned(g).detach()):
        (back,) = torch.autograd.grad(fast(last), last, cotangents)
        assert torch.allclose(back, slope, rtol=1e-12)
    operator, text = problem.operator()
    pull = OPERATORS[vjp_of(problem.kind, 0), False]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator.handle, (last, text), test_utils=checks)
    torch.library.opcheck(pull.handle, (last, turned(g), text), test_utils=checks)


def test_options_of_channels_last_are_refused_in_words_of_the_user() -> None:
    x = torch.ones(1, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    with pytest.raises(lunette.LunetteError, match=r"\(d=2\)"):
        lt.max_pool(x, 9)
    with pytest.raises(lunette.LunetteError, match=r"stride=\(1, 2, 3\)"):
        lt.max_pool(x, 2, stride=(1, 2, 3))
    assert lt.max_pool(x, [2, 2], stride=2).shape == (1, 2, 2, 2)
    with pytest.raises(lunette.LunetteError, match=r"stride=2\.0"):
        lt.max_pool(x, [2, 2], stride=2.0)


# ---- transformations


@one_each
@either_way
def test_torch_func(problem: Problem, way: str) -> None:
    tensors, f = problem.tensors(), problem.function()
    numbers = tuple(range(len(tensors)))

    def loss(*a: torch.Tensor) -> torch.Tensor:
        y = f(*a)
        total: torch.Tensor = (y * y).sum()
        return total

    both = zip(func.jacfwd(f, numbers)(*tensors), func.jacrev(f, numbers)(*tensors), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in both)
    there, back = func.jacfwd, func.jacrev
    first, *others = [h(*tensors) for h in (there(back(loss)), back(back(loss)), there(there(loss)), back(there(loss)))]
    assert all(torch.allclose(first, o, rtol=1e-9, atol=1e-9) for o in others)
    leaves = [t.clone().requires_grad_() for t in tensors]
    plain = torch.autograd.grad(loss(*leaves), leaves)
    y, pull = func.vjp(f, *tensors)
    assert all(map(same, pull(2 * y), plain)) and all(map(same, func.grad(loss, numbers)(*tensors), plain))


@one_each
def test_vmap_over_every_axis(problem: Problem) -> None:
    """Of every array, alone and together with the others; a per-sample gradient too."""
    tensors, f = problem.tensors(), problem.function()
    for which in [*([at] for at in range(len(tensors))), list(range(len(tensors)))]:
        for place in range(tensors[which[0]].ndim + 1):
            dims = [min(place, t.ndim) if at in which else None for at, t in enumerate(tensors)]
            many = [
                t if d is None else torch.stack([t, 2 * t + 1, t - 1], d) for t, d in zip(tensors, dims, strict=True)
            ]
            rows = [[t if d is None else t.select(d, r) for t, d in zip(many, dims, strict=True)] for r in range(3)]
            assert same(func.vmap(f, tuple(dims))(*many), torch.stack([f(*row) for row in rows]))

            def loss(*a: torch.Tensor) -> torch.Tensor:
                y = f(*a)
                total: torch.Tensor = (y * y).sum()
                return total

            numbers = tuple(range(len(tensors)))
            found = func.vmap(func.grad(loss, numbers), tuple(dims))(*many)
            wanted = [func.grad(loss, numbers)(*row) for row in rows]
            assert all(same(a, torch.stack(b)) for a, b in zip(found, zip(*wanted, strict=True), strict=True))


def test_vmap_of_an_int_kernel_sees_the_axes_of_a_sample() -> None:
    x = torch.randn(5, 2, 3, 4, 6, dtype=torch.float64)
    assert same(func.vmap(lambda a: lt.max_pool(a, 2))(x), ln.max_pool(x.numpy(), (2, 2)))
    with pytest.raises(ln.ShapeError, match="W13"):
        func.vmap(lambda a: lt.max_pool(a, 2))(x[0])
    y, index = func.vmap(lambda a: lt.max_pool(a, 2, return_indices=True), 1)(x)
    assert same(index.movedim(0, 1), ln.max_pool(x.numpy(), (2, 2), return_indices=True)[1]) and y.shape[0] == 2
    assert lt.max_pool(x[:0], (2, 2)).shape == (0, 2, 3, 2, 3)


COMPILED = PROBLEMS if LONG else ONE_EACH


@pytest.mark.parametrize("problem", COMPILED, ids=ids(COMPILED))
def test_torch_compile(problem: Problem) -> None:
    """With inductor, in one graph, gradients too."""
    compiled_equals_plain(problem.function(), problem.leaves(torch.float32))


def test_torch_compile_with_others_around() -> None:
    compiled_equals_plain(lambda x: lt.max_pool(2 * x, 2) - 1, [torch.randn(1, 2, 4, 4, requires_grad=True)])


def compiled_equals_plain(f: Any, leaves: list[torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of the compiler that it finds
        dynamo.reset()
        compiled: Any = torch.compile(f, fullgraph=True)
        y = compiled(*leaves)
        back = torch.autograd.grad(y, leaves, cotangent(y))
    plain = f(*leaves)
    assert same(y, plain)
    assert all(map(same, back, torch.autograd.grad(plain, leaves, cotangent(plain))))


def test_compiled_functions_take_any_batch() -> None:
    dynamo.reset()
    f = torch.compile(lambda x: lt.max_pool(x, 2), fullgraph=True, backend="aot_eager")
    for n in range(1, 12):
        assert f(torch.ones(n, 3, 4, 4)).shape == (n, 3, 2, 2)


class Tiny(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = lt.smooth_max_pool(lt.max_pool(x, 3, stride=2, padding=1), 2, beta=3.0)
        return y


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export(strict: bool) -> None:
    x, batch = torch.randn(2, 3, 8, 8), torch.export.Dim("batch")
    program = torch.export.export(Tiny(), (x,), dynamic_shapes=({0: batch},), strict=strict)
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    first = next(n for n in nodes if n.target is torch.ops.lunette.max_pool.default)
    assert first.args[1] == "kernel=(3, 3), stride=2, padding=1"
    longer = torch.randn(5, 3, 8, 8)
    assert same(program.module()(longer), Tiny()(longer))


# ---- dtypes, layouts, devices


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype: torch.dtype) -> None:
    x, w = torch.randn(2, 3, 6, 6, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        y = lt.conv(x, w)
        pooled = lt.max_pool(y, 2)
        soft = lt.smooth_max_pool(y, 2, beta=2.0)
        assert (y.dtype, pooled.dtype, soft.dtype) == (dtype, dtype, torch.float32)
        assert lt.conv(x.double(), w.double()).dtype == torch.float64
    (pooled.float().sum() + soft.sum()).backward()
    assert x.grad is not None and x.grad.dtype == torch.float32 == w.grad.dtype  # type: ignore[union-attr]
    low = [t.detach().to(dtype) for t in (x, w)]
    assert same(y, lt.conv(*low))


@one_each
@either_way
def test_layouts(problem: Problem, way: str) -> None:
    """Channels-last, strided and negated views mean what their dense copies mean; results are dense."""
    tensors, f = problem.tensors(), problem.function()
    x, *others = tensors
    wanted = f(*tensors)
    flipped = x.movedim(1, -1).contiguous().movedim(-1, 1)
    gaps = torch.stack([x, x], -1)[..., 0]
    for other in (flipped, gaps):
        leaf = other.detach().requires_grad_()
        assert same(f(other, *others), wanted) and f(other, *others).is_contiguous()
        assert same(torch.autograd.grad(f(leaf, *others).sum(), leaf)[0], _gradient(f, tensors))
    negated = torch.complex(x, -x).conj().imag
    assert negated.is_neg() and same(f(negated, *others), wanted)


def _gradient(f: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
    x = tensors[0].clone().requires_grad_()
    return torch.autograd.grad(f(x, *tensors[1:]).sum(), x)[0]


def test_dense_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(kind: Any, operands: Any, *rest: Any) -> Any:
        seen.extend(operands)
        return ln.array.run(kind, operands, *rest)

    monkeypatch.setattr(layout, "run", run)
    for dtype in DTYPES:
        x = torch.ones(1, 2, 4, 4, dtype=dtype)
        lt.max_pool(x, 2)
        assert seen.pop().__array_interface__["data"][0] == x.data_ptr()


def test_only_needed_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def counted(kind: Any, *rest: Any) -> Any:
        called.append(kind.name)
        return lunette.array.run(kind, *rest)

    monkeypatch.setattr(layout, "run", counted)
    x, w, b = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3, requires_grad=True), torch.randn(3)
    lt.conv(x, w, b).sum().backward()
    assert called == ["conv", "conv_vjp_w"]


@in_python
def test_a_convolution_keeps_what_its_gradient_reads(way: str) -> None:
    x, w = torch.randn(1, 2, 5, 5, requires_grad=True), torch.randn(3, 2, 3, 3)
    kept = lt.conv(x, w).grad_fn.saved_tensors
    assert kept[0] is None and kept[1] is not None
    assert lt.avg_pool(x, 2).grad_fn.saved_tensors == (None,)


REFUSED: dict[str, tuple[Any, str]] = {
    "device": (
        lambda: lt.max_pool(torch.ones(1, 1, 4, 4, device="meta"), 2),
        "max_pool [TB1] needs tensors on the CPU; got x on device meta. Pass x.cpu().",
    ),
    "dtype": (
        lambda: lt.max_pool(torch.ones(1, 1, 4, 4, dtype=torch.int32), 2),
        "max_pool [TB1] needs float16, bfloat16, float32 or float64; got x of dtype torch.int32. Pass x.double().",
    ),
    "kind": (
        lambda: lt.conv(torch.ones(1, 1, 4), np.ones((1, 1, 2))),
        "conv [TB1] needs w as a torch.Tensor; got w=array([[[1., 1.]]]) of type ndarray. "
        "lunette itself takes arrays of other kinds.",
    ),
    "layout": (
        lambda: lt.max_pool(torch.ones(1, 1, 4, 4).to_sparse(), 2),
        "max_pool [TB1] needs dense tensors; got x of layout torch.sparse_coo. Pass x.to_dense().",
    ),
    "arithmetic": (
        lambda: lt.max_pool(torch.ones(1, 1, 4, 4), 2, arithmetic="interval"),
        'max_pool [TB2] needs arithmetic "fast" or "rounded"; got arithmetic=\'interval\'. '
        "Boxes are not tensors: ln.<op> takes ln.Interval.",
    ),
    "rank": (
        lambda: lt.max_pool(torch.ones(2, 4, 4, requires_grad=True), 2),
        "max_pool [W13] needs spatial= or kernel as a tuple where x has fewer than 4 axes; got x.shape=(2, 4, 4): "
        "as spatial=1 -> (2, 4, 2), as spatial=2 -> (2, 2, 2). x is (*batch, channels, *space): say what is space.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ln.LunetteError) as refused:
        call()
    assert str(refused.value) == text


def test_dtypes_do_not_mix() -> None:
    x, w = torch.ones(1, 1, 4), torch.ones(1, 1, 2, dtype=torch.float64, requires_grad=True)
    for weights in (w, w.detach()):
        with pytest.raises(DTypeError, match="D2"):
            lt.conv(x, weights)


def test_importing_lunette_imports_no_other_library() -> None:
    code = "import sys, lunette; print([m for m in ('torch', 'jax', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_operator_is_there_with_its_derivatives() -> None:
    names = {k.name for k, _ in OPERATORS}
    assert {f"{k.name}{s}" for k in ALL for s in ("", "_jvp", "_vjp_x")} <= names
    assert {k for k, indices in OPERATORS if indices} == {k for k in ALL if issubclass(k, MaxPool)}
    assert "conv_vjp_w" in names and Conv.name in names


def test_a_channels_last_pool_that_is_refused_is_refused_as_it_was_asked_for() -> None:
    """Not as the pool of one axis more that it is computed by."""
    x = torch.zeros(1, 2, 3, 3).contiguous(memory_format=torch.channels_last)
    told = []
    for t in (x, x.clone().requires_grad_()):
        with pytest.raises(ln.ShapeError) as error:
            lt.max_pool(t, 1, stride=4, padding=((3, 3), (0, 0)))
        told.append(str(error.value))
    assert told[0] == told[1] and "(d=2)" in told[0]
