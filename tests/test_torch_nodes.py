"""Nodes of torch's graph of gradients, compiled and in Python: whatever torch does with a graph, they go along."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import lunette as ln
import lunette.torch
from lunette.torch import nodes
from lunette.torch.build import build
from test_errors import refused
from torch_cases import same
from torch_nodes import either_way, in_python
from torch_nodes import way as way

lt: Any = lunette.torch
Pool = Callable[[Tensor], Tensor]
POOLS: dict[str, Pool] = {
    "max": lambda x: lt.max_pool(x, 2),
    "max_overlapping": lambda x: lt.max_pool(x, 3, stride=2, padding=1),
    "max_of_many": lambda x: lt.max_pool(x, 17),
    "max_all_ties": lambda x: lt.max_pool(x, 2, ties="all"),
    "avg": lambda x: lt.avg_pool(x, 3, stride=2),
    "lp": lambda x: lt.lp_pool(x, 2),
    "adaptive_avg": lambda x: lt.adaptive_avg_pool(x, 3),
    "adaptive_max": lambda x: lt.adaptive_max_pool(x, (3, 4)),
    "global_avg": lambda x: lt.global_avg_pool(x),
    "global_max": lambda x: lt.global_max_pool(x, keepdims=False),
}
READS_X = ("max_all_ties", "lp", "global_max")
"""Those whose gradient is made of x. The others keep a record of winners, or nothing."""
each = pytest.mark.parametrize("name", POOLS)
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


def leaf(dtype: torch.dtype = torch.float64, shape: tuple[int, ...] = (2, 3, 18, 20)) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def whole(y: Tensor) -> Tensor:
    """Cotangents whose sums do not depend on their order; kernels that know the winners may have another one."""
    return (torch.arange(y.numel(), dtype=y.dtype) * 5 % 17 - 8).reshape(y.shape)


def slope(f: Pool, x: Tensor, g: Tensor | None = None, **more: Any) -> Tensor:
    y = f(x)
    return torch.autograd.grad(y, x, torch.ones_like(y) if g is None else g, **more)[0]


def is_compiled(y: Tensor) -> bool:
    assert y.grad_fn is not None
    return y.grad_fn.name().startswith("Lunette<")


@each
@either_way
def test_pools_leave_the_nodes_that_were_asked_for(name: str, way: str) -> None:
    for dtype in (torch.float32, torch.float64):
        x = leaf(dtype)
        assert all(is_compiled(POOLS[name](x)) == (way == "compiled") for _ in range(2))
        assert all(is_compiled(POOLS[name](t)) == (way == "compiled") for t in (x[:1], torch.nn.Parameter(x.detach())))


@each
def test_other_tensors_leave_nodes_of_python(name: str) -> None:
    """Of half precision, in another order, of a class of their own, or in rounded arithmetic; none if none is asked."""
    x = leaf()

    class Other(Tensor):
        pass

    last = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    for other in (leaf(torch.bfloat16), last, x.transpose(2, 3), x.detach().as_subclass(Other).requires_grad_()):
        assert not is_compiled(POOLS[name](other))
    assert not is_compiled(lt.max_pool(x, 2, arithmetic="rounded"))
    with torch.no_grad():
        assert POOLS[name](x).grad_fn is None
    assert POOLS[name](x.detach()).grad_fn is None


@each
def test_both_ways_make_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, whatever the cotangent is made of, for NaN and for empty batches."""
    f = POOLS[name]
    found: dict[str, list[Tensor]] = {}
    for made_by in ("compiled", "python"):
        monkeypatch.setenv("LUNETTE_TORCH", made_by)
        nodes.connected.cache_clear()
        made = found[made_by] = []
        for dtype in (torch.float32, torch.float64):
            spoilt = leaf(dtype).detach().clone()
            spoilt[0, 0, 2, 3], spoilt[0, 1, 4, 4], spoilt[1, 0] = float("nan"), float("inf"), 0.0
            for x in (leaf(dtype), leaf(dtype, (0, 3, 18, 20)), spoilt.requires_grad_()):
                y = f(x)
                assert is_compiled(y) == (made_by == "compiled") or not x.numel()
                g = whole(y)
                others = (g, torch.ones((), dtype=dtype).expand(y.shape), torch._neg_view(g), g.flip(0).flip(0))
                strided = torch.stack([g, g], -1)[..., 0]
                made += [y.detach(), *(slope(f, x, o) for o in (*others, strided))]
    assert all(map(same, found["compiled"], found["python"]))


@each
@either_way
def test_derivatives_to_second_order(name: str, way: str) -> None:
    f, x = POOLS[name], leaf(shape=(1, 1, 17, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradcheck(f, (x,), check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(f, (x,), check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True)


@each
@either_way
def test_a_graph_of_the_gradient(name: str, way: str) -> None:
    """create_graph: the gradient can be differentiated, in its cotangent and, where it has a slope there, in x."""
    f, x = POOLS[name], leaf()
    y = f(x)
    g = whole(y).requires_grad_()
    (first,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert first.requires_grad and same(first, slope(f, x, g.detach()))
    v = torch.randn_like(x)
    (back,) = torch.autograd.grad(first, g, v, retain_graph=True)
    assert torch.allclose(back, torch.func.jvp(f, (x.detach(),), (v,))[1], rtol=1e-12)


@each
@either_way
def test_graphs_are_used_again_and_freed(name: str, way: str) -> None:
    x = leaf()
    y = POOLS[name](x).sum()
    first, second = (torch.autograd.grad(y, x, retain_graph=True)[0] for _ in range(2))
    assert same(first, second) and same(torch.autograd.grad(y, x)[0], first)
    if name in READS_X or (way == "compiled" and "max" in name):
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y, x)


@each
@either_way
def test_hooks(name: str, way: str) -> None:
    x = leaf()
    y = POOLS[name](x)
    assert y.grad_fn is not None
    seen: list[str] = []

    def before(g: Any) -> Any:
        seen.append("before")
        return (2 * g[0],)

    def behind(after: Any, given: Any) -> Any:
        seen.append("behind")
        return (3 * after[0],)

    y.grad_fn.register_prehook(before)
    y.grad_fn.register_hook(behind)
    y.register_hook(lambda g: g * 5)  # type: ignore[no-untyped-call]
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], slope(lambda t: 30 * POOLS[name](t), x), rtol=1e-12)
    assert seen == ["before", "behind"]


@each
@either_way
def test_saved_tensors_go_by_hooks(name: str, way: str) -> None:
    """What is saved may be moved elsewhere, and is computed again by checkpoints."""
    f, x = POOLS[name], leaf()
    wanted = slope(f, x)
    packed: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t)
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = f(x)
    assert same(torch.autograd.grad(y.sum(), x)[0], wanted) and (name not in READS_X or packed)
    for reentrant in (False, True):
        twice = x.detach().clone().requires_grad_()
        checkpoint(lambda t: f(t * 1), twice, use_reentrant=reentrant).sum().backward()
        assert same(twice.grad, wanted)


@each
@either_way
def test_an_input_that_was_changed_is_noticed_where_it_is_read(name: str, way: str) -> None:
    x = leaf()
    wanted = slope(POOLS[name], x)
    moved = x * 1
    y = POOLS[name](moved)
    moved.zero_()
    if name in READS_X:
        with pytest.raises(RuntimeError, match="inplace operation"):
            torch.autograd.grad(y.sum(), x)
        return
    (back,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert same(back, wanted)
    if "max" in name:  # to differentiate once more it is read after all
        with pytest.raises(RuntimeError, match="inplace operation"):
            torch.autograd.grad(y.sum(), x, create_graph=True)


@either_way
def test_results_may_be_changed_in_place(way: str) -> None:
    for f in POOLS.values():
        x = leaf()
        y = f(x)
        assert same(torch.autograd.grad(y.mul_(2).sum(), x)[0], slope(lambda t, f=f: 2 * f(t), x))  # type: ignore[misc]


@each
@either_way
def test_inference_mode_and_transformations(name: str, way: str) -> None:
    f, x = POOLS[name], leaf()
    wanted = slope(f, x)
    with torch.inference_mode():
        assert same(f(x), f(x.detach()))
    assert same(torch.func.grad(lambda t: f(t).sum())(x.detach()), wanted)
    many = torch.stack([x.detach(), 2 * x.detach()])
    assert same(torch.func.vmap(torch.func.grad(lambda t: f(t).sum()))(many)[0], wanted)
    y = f(x)
    both = torch.stack([torch.ones_like(y), torch.full_like(y, 2.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = torch.autograd.grad(y, x, both, is_grads_batched=True, retain_graph=True)[0]
    assert torch.allclose(rows[0], wanted, rtol=1e-12) and torch.allclose(rows[1], 2 * wanted, rtol=1e-12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(torch.autograd.grad(y.sum(), x)[0], wanted)


@either_way
def test_gradients_that_nobody_needs_are_not_made(way: str) -> None:
    x, other = leaf(), leaf()
    y, z = lt.max_pool(x, 2), lt.max_pool(other, 2)
    (back,) = torch.autograd.grad((y * z).sum(), x)
    assert same(back, slope(lambda t: lt.max_pool(t, 2), x, z.detach()))
    unused = lt.max_pool(x, 2)
    assert torch.autograd.grad((y.detach() * z).sum() + 0 * unused.sum(), other)[0].shape == other.shape


@either_way
def test_threads_and_copies(way: str) -> None:
    """Many graphs at once, one graph from many threads; copies of modules; a leaf that collects gradients."""
    f, x = POOLS["max_overlapping"], leaf(torch.float32, (4, 8, 31, 29))
    wanted = slope(f, x)
    y = f(x).sum()
    with ThreadPoolExecutor(4) as pool:
        assert all(same(r, wanted) for r in pool.map(lambda _: slope(f, x), range(64)))
        again = pool.map(lambda _: torch.autograd.grad(y, x, retain_graph=True)[0], range(64))
        assert all(same(r, wanted) for r in again)
    module = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), lt.MaxPool(2), lt.AvgPool(2))
    twin = copy.deepcopy(module)
    for m in (module, twin):
        m(x).sum().backward()
    assert all(same(a.grad, b.grad) for a, b in zip(module.parameters(), twin.parameters(), strict=True))


def test_graphs_of_many_nodes_are_dropped() -> None:
    """A long chain goes without a deep recursion, and with its tensors."""
    x = leaf(torch.float32, (1, 1, 4, 4))
    y = x
    for _ in range(20_000):
        y = lt.max_pool(y, 1)
    assert same(torch.autograd.grad(y.sum(), x, retain_graph=True)[0], torch.ones(1, 1, 4, 4))
    del y


def test_beyond_a_limit_nodes_are_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.Held, "bytes", nodes.MOST_BYTES + 1)
    assert not is_compiled(lt.max_pool(leaf(shape=(1, 1, 5, 23)), 2))


# ---- how they are built, and what is refused


def test_tb3_the_nodes_need_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(nodes.SOURCE.parent.iterdir())
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(
        build,
        ln.ArgumentError,
        "build [TB3] needs a C++ compiler that takes the headers of torch; got no-such-compiler: "
        "\"[Errno 2] No such file or directory: 'no-such-compiler'\". "
        "Install one, or name it in CXX; without it nodes of autograd are Python's.",
    )
    assert sorted(nodes.SOURCE.parent.iterdir()) == before


def test_nodes_that_cannot_be_loaded_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library, and one of something else; those for another torch have another name, and say no."""
    broken, other = tmp_path / "broken.so", next(Path(torch.__file__).parent.glob("lib/libshm.so"))
    broken.write_bytes(b"not a library")
    mine = nodes.places()
    for paths in ((broken, other), (tmp_path / "none.so",)):
        with monkeypatch.context() as patch:
            patch.setattr(nodes, "places", lambda paths=paths: paths)
            assert not nodes.connected.__wrapped__()
    monkeypatch.setattr(torch, "__version__", "2.4.1")
    assert not set(nodes.places()) & set(mine)
    monkeypatch.setattr(nodes, "places", lambda: mine)
    assert not nodes.connected.__wrapped__()


@in_python
def test_python_may_be_asked_for(way: str) -> None:
    code = (
        "import torch, lunette.torch as lt; print(lt.max_pool(torch.ones(1, 1, 4, 4, requires_grad=True), 2).grad_fn)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MaxPoolBackward" in done.stdout


def test_kernels_run_on_the_threads_that_torch_has() -> None:
    """Where nodes are compiled and torch has as many: two pools of threads would wait for each other's processors."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


THREADS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch, lunette as ln, lunette.torch

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2), ln.set_num_threads(2)
torch.randn(1 << 20).exp()                             # torch's own begin
before, x = threads(), np.ones((4, 16, 64, 64), np.float32)
want = ln.avg_pool(x, 3)
ln.conv(x, np.ones((16, 16, 3, 3), np.float32))
assert threads() == before, (before, threads())        # nobody else was needed
torch.set_num_threads(1)                               # torch has fewer than lunette wants
assert (ln.avg_pool(x, 3) == want).all()
assert threads() > before
if (child := os.fork()) == 0:                          # where torch's threads are not
    torch.set_num_threads(2)
    os._exit(0 if (ln.avg_pool(x, 3) == want).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
