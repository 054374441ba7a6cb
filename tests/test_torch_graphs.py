"""Networks of torch as graphs of lunette, compiled modules, and programs as functions of torch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import lunette
import lunette.torch as lt
from lunette.torch.aten import TABLE
from torch_cases import same
from torch_networks import NETWORKS, Basic, ResNet, UNet, settled

ln: Any = lunette
func: Any = torch.func
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
U = 2.0**-53


# ---- how far two right answers may be apart

# A layer that adds up h terms makes an error of at most gamma(h) * sum|w||x|, and passes on what came before times |w|.
# Relu, clamps and maxima pass errors on as they are, and |relu(x)| <= |x|. So the error of a network is at most
# gamma(H) * N(|x|), where N has the magnitudes of all weights and no activations, and H is the sum of all h: and two
# evaluations, in whatever order they add, differ by twice that.


def magnitudes(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for part in model.modules():
        for name, child in part.named_children():
            if isinstance(child, nn.ReLU | nn.ReLU6 | nn.LeakyReLU):
                setattr(part, name, nn.Identity())
    with torch.no_grad():
        for p in model.parameters():
            p.abs_()
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(-b.abs())
    return model


def terms(model: nn.Module) -> int:
    """All sums of a network, one behind the other; nine roundings for what is not a sum, twice for each module."""
    total = 0
    for part in model.modules():
        weight = getattr(part, "weight", None)
        total += 20 + (0 if weight is None else weight[0].numel() + weight.shape[0])
        total += 1024 * isinstance(part, nn.AdaptiveAvgPool2d | nn.AvgPool3d)
    return total


@cache
def network(name: str) -> tuple[Any, Tensor, Any]:
    model, x = settled(name)
    return model, x, ln.from_torch(model, x)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_read_and_equal_torch(name: str) -> None:
    model, x, graph = network(name)
    with torch.no_grad():
        wanted, bounds = model(x), magnitudes(model)(x.abs())
    found = graph.compile()(x.numpy())
    several = isinstance(wanted, tuple)
    h = terms(model) + 100
    for y, w, bound in zip(*((v if several else (v,)) for v in (found, wanted, bounds)), strict=True):
        allowed = 2 * h * U / (1 - h * U) * bound
        assert float(allowed.max()) < 1e-6 * float(w.abs().max())  # the bound says something
        assert bool((torch.from_numpy(y) - w).abs().le(allowed).all())
    assert all(n.label for n in graph.nodes if n.kind is not None)


def test_nodes_keep_the_names_of_their_modules() -> None:
    labels = [n.label for n in network("resnet18")[2].nodes]
    assert "layers.0.a.0/convolution_1" in labels and "stem.2/max_pool2d_with_indices" in labels


def test_replaced_networks_are_read() -> None:
    model, x, plain = network("vgg")
    model = copy.deepcopy(model)
    assert lt.replace(model)
    ours = ln.from_torch(model, x)
    kinds = [[n.kind.name for n in g.nodes if n.kind is not None] for g in (plain, ours)]
    assert kinds[0].count("max_pool") == kinds[1].count("max_pool") == 4
    assert same(plain.compile()(x.numpy()), ours.compile()(x.numpy()))


def test_weights_as_inputs() -> None:
    model, x, plain = network("generator")
    graph = ln.from_torch(model, x, weights="inputs")
    names = [n.name for n in graph.inputs]
    assert names[:2] == ["input", "x_0_weight"]
    state = {n.replace(".", "_"): t for n, t in model.state_dict().items()}
    given = {n: state[n.removeprefix("x_")].numpy() for n in names[1:] if n is not None}
    fixed = plain.compile()
    assert torch.allclose(
        torch.from_numpy(graph.compile()(x.numpy(), **given)),
        torch.from_numpy(fixed(x.numpy())),
        rtol=1e-12,
        atol=1e-13,
    )


def test_statistics_of_the_batch_where_they_are_asked_for() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).double().train()
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    with pytest.raises(ln.ArgumentError, match=r"FT1.*got Sequential in train mode. Call module.eval"):
        ln.from_torch(model, x)
    found = ln.from_torch(model, x, train=True).compile()(x.numpy())
    assert torch.allclose(torch.from_numpy(found), model(x).detach(), rtol=1e-12, atol=1e-13)
    with pytest.raises(ln.ArgumentError, match=r"1 \(Dropout\) in train mode. A graph draws no random numbers"):
        ln.from_torch(nn.Sequential(nn.ReLU(), nn.Dropout()), x, train=True)


class Calls(nn.Module):
    """One function as a module."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, *x: Tensor) -> Any:
        return self.f(*x)


F: Any = functional
OPERATORS: dict[str, Any] = {
    "slices": lambda x: (x[:, 1:, ::2], x[..., 0], x[:, -1], x.chunk(2, 1)[0], x.split([1, 3], 1)[1]),
    "layout": lambda x: (x.permute(2, 0, 1), x.flatten(1), x[:, None].expand(2, 3, 4, 5).squeeze(0), x.unsqueeze(-1)),
    "joined": lambda x: (torch.cat([x, x + 1], 1), torch.stack([x, x * 2])),
    "reductions": lambda x: (
        x.mean(),
        x.sum((0, 2)),
        x.amax(1, True),
        x.max(1)[0],
        x.var(2),
        x.std(),
        x.amin((0, 2)),
        x.min(-1)[0],
    ),
    "cells": lambda x: (
        x.sigmoid(),
        x.tanh(),
        x.exp(),
        x.abs().log(),
        x.abs().sqrt(),
        -x,
        1 / x,
        x**3,
        (x * x).rsqrt(),
        x.erf(),
        x.floor(),
        F.gelu(x),
    ),
    "activations": lambda x: (F.leaky_relu(x, 0.2), F.elu(x), F.silu(x), F.hardswish(x), F.relu6(x), F.hardsigmoid(x)),
    "clamps": lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), torch.maximum(x, -x), torch.minimum(x, x * 2)),
    "arithmetic": lambda x: (x + 1, 2 - x, x / 3, torch.add(x, x, alpha=2), x.sub(x * x, alpha=3)),
    "softmax": lambda x: (x.softmax(-1), F.log_softmax(x, 1), F.normalize(x, dim=1)),
    "matrices": lambda x: (x @ x.transpose(1, 2), torch.einsum("ijk,ilk->ijl", x, x), F.linear(x, x[0])),
    "norms": lambda x: (F.layer_norm(x, (5,)), F.group_norm(x, 2), F.instance_norm(x), F.prelu(x, x[0, :1, 0])),
    "padding": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0), F.pad(x, (-1, 1))),
    "repeating": lambda x: (F.pad(x, (1, 2), "reflect"), F.pad(x, (3, 0), "replicate"), F.pad(x, (-1, 2), "replicate")),
    "turned": lambda x: (x.flip(1, -1), x.flip(0)),
    "norms over windows": lambda x: (
        F.lp_pool1d(x, 2, 2),
        F.lp_pool1d(x.abs(), 1.5, 3, 1),
        F.lp_pool1d(x.abs(), 3, 2, 1, True),
    ),
    "pools": lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 1, 1), F.adaptive_avg_pool1d(x, 2), F.avg_pool1d(x, 2)),
    "ours": lambda x: (lt.smooth_max_pool(x, (2,), beta=2.0), lt.lp_pool(x, (2,)), lt.max_pool(x, (2,))),
    "repeated": lambda x: F.interpolate(x, scale_factor=3),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_mean_what_they_mean_in_torch(name: str) -> None:
    """Values of a few roundings each, on numbers of about 1."""
    torch.manual_seed(3)
    x = torch.randn(2, 4, 5, dtype=torch.float64) + 0.01
    module = Calls(OPERATORS[name]).eval()
    found, wanted = ln.from_torch(module, x).compile()(x.numpy()), module(x)
    pairs = list(zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True))
    assert all(a.shape == tuple(b.shape) for a, b in pairs)
    assert all(torch.allclose(torch.from_numpy(a), b, rtol=1e-13, atol=1e-14) for a, b in pairs)


REFUSED: dict[str, tuple[Any, str]] = {
    "operator": (
        lambda x: x.sin() + 1,
        "from_torch [FT2] needs an operator that lunette has; got aten.sin.default at node sin (aten.sin.default). "
        "Write that part in other operators, or keep it outside: docs/torch.md has the table.",
    ),
    "indices": (
        lambda x: F.max_pool1d(x, 2, return_indices=True)[1] * 1.0,
        "from_torch [FT3] needs results that lunette computes; got indices of a max pool at node squeeze_1 "
        "(aten.squeeze.dims). Write that part in other operators, or keep it outside: docs/torch.md has the table.",
    ),
    "attribute": (
        lambda x: torch.linalg.vector_norm(x, 3),
        "from_torch [FT3] needs ord=2; got ord=3 at node linalg_vector_norm (aten.linalg_vector_norm.default). "
        "Other norms are no operators here.",
    ),
    "rounded": (
        lambda x: lt.max_pool(x, (2,), arithmetic="rounded"),
        "from_torch [FT3] needs arithmetic=\"fast\" inside of a graph; got arithmetic='rounded' at node max_pool "
        "(lunette.max_pool.default). One arithmetic serves a program: program.run.",
    ),
    "window": (
        lambda x: F.max_pool1d(x, 2, 1, 1, 6),
        "from_torch [M1] needs a cell of the input in every window; got none at output cell (0, 0) at node "
        "max_pool2d_with_indices (aten.max_pool2d_with_indices.default). Take less padding or dilation.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_node(name: str) -> None:
    function, text = REFUSED[name]
    with pytest.raises(ln.LunetteError) as refused:
        ln.from_torch(Calls(function).eval(), torch.ones(2, 4, 5))
    assert str(refused.value) == text


def test_what_is_no_module_and_no_example() -> None:
    module = Calls(lambda x: x + 1).eval()
    refused: list[tuple[Any, str]] = [
        (lambda: ln.from_torch(F.relu, torch.ones(1)), "FT4.*a torch.nn.Module"),
        (lambda: ln.from_torch(module, torch.ones(1).half()), r"FT4.*got examples\[0\] as torch.float16 on cpu"),
        (
            lambda: ln.from_torch(torch.nn.ReLU().eval()),
            "FT4.*an example of every input; got none. It tells shapes and dtype",
        ),
        (lambda: ln.from_torch(module, 3), r"FT4.*got examples\[0\] as 3"),
        (lambda: ln.from_torch(module, torch.ones(1), weights="some"), "FT5.*got weights='some'"),
        (lambda: ln.from_torch(Calls(lambda x: x if x.sum() > 0 else -x).eval(), torch.ones(1)), "FT6"),
        (lambda: ln.from_torch(Calls(lambda x: 3).eval(), torch.ones(1)), "FT4.*got 3 at node output"),
    ]
    for wrong, text in refused:
        with pytest.raises(ln.LunetteError, match=text):
            wrong()


def test_the_table_is_of_operators_that_torch_has() -> None:
    for name in TABLE:
        op, _, overload = name.partition(".")
        assert hasattr(getattr(torch.ops.aten, op), overload), name


# ---- compiled modules


def test_compiled_modules_notice_new_weights() -> None:
    model, x = settled("branches", 1)
    fast = lt.compile(model, x)
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in zip(fast(x), model(x), strict=True))
    assert fast(x[:1])[0].shape[0] == 1 and list(fast.parameters()) == [] and "Branches" in repr(fast)
    with torch.no_grad():
        model.one.weight.mul_(2)
    with pytest.raises(ln.ArgumentError, match=r"TB4.*weights that changed since. Call .refresh\(\)"):
        fast(x)
    fast.refresh()
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in zip(fast(x), model(x), strict=True))
    with pytest.raises(ln.DTypeError, match="TB5"):
        fast(x.clone().requires_grad_())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "weights assigned": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=True),
    "another parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.zeros(3, 2))),
    "another part": lambda m: m.__setitem__(1, nn.Linear(3, 2).eval()),
    "other data": lambda m: setattr(m[0].weight, "data", torch.ones(3, 2)),
    "another dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_compiled_modules_notice_what_was_exchanged(change: Callable[[Any], Any]) -> None:
    model, x = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).eval(), torch.ones(1, 2)
    fast = lt.compile(model, x)
    change(model)
    with pytest.raises(ln.ArgumentError, match="TB4"):
        fast(x)
    fast.refresh()
    x = x.to(next(model.parameters()).dtype)
    assert torch.allclose(fast(x), model(x))


def test_compiled_modules_travel() -> None:
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1)).eval(), torch.randn(2, 1, 6, 6)
    fast = lt.compile(model, x)
    for other in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast)):
        assert torch.equal(other(x), fast(x))


@pytest.mark.parametrize("batch", [1, 2])
def test_strides_of_axes_with_one_cell_mean_nothing(batch: int) -> None:
    model: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)).eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 8, 8).to(memory_format=torch.channels_last)
    assert torch.allclose(lt.compile(model, x)(x), model(x), atol=1e-6)


# ---- programs as functions


def test_programs_under_vmap() -> None:
    g = ln.Graph()
    g.output(ln.sum(ln.max_pool(g.input((1, 1, 4, 4), name="x"), 2) ** 3))
    f = g.compile().to_torch()

    def same(x: torch.Tensor) -> torch.Tensor:
        return (functional.max_pool2d(x, 2) ** 3).sum()

    x = torch.randn(3, 1, 1, 4, 4)
    for wrap in (func.jacrev, func.jacfwd, func.hessian, lambda h: h):
        assert torch.allclose(func.vmap(wrap(f))(x), func.vmap(wrap(same))(x), atol=1e-5)
    for bad in (x[0].numpy(), x[0].to("meta")):
        with pytest.raises(ln.DTypeError, match=r"TB1.*tensors on the CPU"):
            f(bad)


def test_programs_are_differentiable_functions() -> None:
    model: Any = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.MaxPool2d(2)).double().eval()
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    f = ln.from_torch(model, x, weights="inputs").compile().to_torch()
    leaves = [x.requires_grad_(), *(p.detach().clone().requires_grad_() for p in model.parameters())]
    assert torch.autograd.gradcheck(f, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, leaves, check_fwd_over_rev=True)
    g = func.grad(lambda *a: f(*a).sum(), (0, 1))(*leaves)
    wanted = torch.autograd.grad(model(x).sum(), [x, model[0].weight])
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in zip(g, wanted, strict=True))


# ---- training


@pytest.mark.parametrize("name", ["resnet", "unet"])
def test_training_with_ours_inside_takes_the_same_course(name: str) -> None:
    """In float64 the two differ by roundings alone, which a few steps amplify little."""
    torch.manual_seed(0)
    theirs: Any = (ResNet(Basic, (1, 1), 4) if name == "resnet" else UNet(4, 1)).double().train()
    ours = copy.deepcopy(theirs)
    assert lt.replace(ours)
    x = torch.randn(4, 3 if name == "resnet" else 1, 16, 16, dtype=torch.float64)
    target = torch.randn_like(theirs(x))
    courses = []
    for model in (theirs, ours):
        optimiser, course = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), []
        for _ in range(12):
            optimiser.zero_grad()
            loss = functional.mse_loss(model(x), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            course.append(float(loss.detach()))
        courses.append(course)
    assert courses[0][-1] < 0.9 * courses[0][0]
    assert all(abs(a - b) <= 1e-10 * abs(a) for a, b in zip(*courses, strict=True))
