"""Modules of lunette in torch, and what `lt.replace` exchanges for them."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lunette as ln
import lunette.torch
from torch_cases import same

dynamo: Any = torch._dynamo

lt: Any = lunette.torch
MODULES: dict[str, tuple[nn.Module, str]] = {
    "max": (lt.MaxPool(3, stride=2), "MaxPool(kernel=3, stride=2)"),
    "avg": (lt.AvgPool((2, 2), count_include_pad=False), "AvgPool(kernel=(2, 2), count_include_pad=False)"),
    "smooth": (lt.SmoothMaxPool(2, beta=4.0), "SmoothMaxPool(kernel=2, beta=4.0)"),
    "learnt": (lt.SmoothMaxPool(2, beta=4.0, learn_beta=True), "SmoothMaxPool(kernel=2, beta=4, learn_beta=True)"),
    "lp": (lt.LpPool(2, p=3), "LpPool(kernel=2, p=3)"),
    "adaptive_avg": (lt.AdaptiveAvgPool((None, 2)), "AdaptiveAvgPool(output_size=(None, 2))"),
    "adaptive_max": (lt.AdaptiveMaxPool(3), "AdaptiveMaxPool(output_size=3)"),
    "global_avg": (lt.GlobalAvgPool(keepdims=False), "GlobalAvgPool(keepdims=False)"),
    "global_max": (lt.GlobalMaxPool(), "GlobalMaxPool()"),
    "conv": (lt.Conv(3, 6, (3, 3), padding="same", groups=3), "Conv(3, 6, kernel=(3, 3), padding='same', groups=3)"),
    "conv_transpose": (
        lt.ConvTranspose(3, 4, 2, spatial=2, stride=2, bias=False),
        "ConvTranspose(3, 4, kernel=(2, 2), stride=2, bias=False)",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_torchs_habits(name: str) -> None:
    module, shown = MODULES[name]
    assert repr(module) == shown
    x = torch.randn(2, 3, 8, 8)
    y = module(x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert same(other(x), y) and repr(other) == shown
    double = copy.deepcopy(module).to(torch.float64)
    assert double(x.double()).dtype == torch.float64
    again = copy.deepcopy(module)
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()
    again.load_state_dict(module.state_dict())
    assert same(again(x), y)
    if list(module.parameters()):
        y.sum().backward()
        assert all(p.grad is not None for p in module.parameters())
        module.zero_grad()


def test_options_are_attributes_and_wrong_ones_are_refused() -> None:
    assert lt.MaxPool(3, stride=2).stride == 2 and lt.MaxPool(3).ceil_mode is False
    with pytest.raises(ln.ArgumentError, match="stide"):
        lt.MaxPool(3, stide=2)
    with pytest.raises(AttributeError):
        _ = lt.MaxPool(3).stide
    with pytest.raises(ln.ShapeError, match=r"Conv \[TB3\] needs kernel as a tuple, or spatial=; got kernel=3"):
        lt.Conv(3, 4, 3)


def test_what_is_misspelt_is_named() -> None:
    x = torch.zeros(1, 1, 4, 4)
    with pytest.raises(ln.ArgumentError, match=r"MaxPool \[O2\].*got an unknown strid. Did you mean stride\?"):
        lt.MaxPool(2, strid=2)
    with pytest.raises(ln.ArgumentError, match=r"Conv \[O2\].*got an unknown dilatoin. Did you mean dilation\?"):
        lt.Conv(1, 1, (2, 2), dilatoin=2)
    with pytest.raises(ln.ArgumentError, match=r"max_pool \[O2\].*no kernel. Did you mean kernel\?"):
        lt.max_pool(x, kernel_size=2)
    with pytest.raises(ln.ArgumentError, match=r"avg_pool \(d=2\) \[O2\].*unknown strides. Did you mean stride\?"):
        lt.avg_pool(x, 2, strides=2)
    with pytest.raises(ln.ArgumentError, match=r"smooth_max_pool \[O2\].*got no beta"):
        lt.smooth_max_pool(x, 2)


def test_a_convolution_loads_torchs_weights() -> None:
    theirs, ours = nn.Conv2d(4, 6, 3, stride=2, groups=2), lt.Conv(4, 6, (3, 3), stride=2, groups=2)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randint(-4, 5, (2, 4, 7, 7)).float()
    with torch.no_grad():
        for p in ours.parameters():
            p.round_()
        assert same(ours(x), functional.conv2d(x, ours.weight, ours.bias, stride=2, groups=2))
    back = nn.ConvTranspose3d(2, 4, 2), lt.ConvTranspose(2, 4, (2, 2, 2))
    back[1].load_state_dict(back[0].state_dict())


@pytest.mark.filterwarnings("ignore")
def test_modules_compile_in_one_graph() -> None:
    dynamo.reset()
    network = nn.Sequential(lt.Conv(3, 4, (3, 3)), nn.ReLU(), lt.SmoothMaxPool(2, beta=3.0, learn_beta=True))
    x = torch.randn(2, 3, 8, 8)
    assert same(torch.compile(network, fullgraph=True, backend="aot_eager")(x), network(x))


def test_learning_beta() -> None:
    pool = lt.SmoothMaxPool(2, beta=1.0, learn_beta=True)
    x = torch.randn(4, 3, 8, 8)
    wanted = lt.smooth_max_pool(x, 2, beta=2.0)
    optimiser = torch.optim.SGD(pool.parameters(), 2.0)
    for _ in range(60):
        optimiser.zero_grad()
        functional.mse_loss(pool(x), wanted).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert abs(float(pool.beta.detach()) - 2) < 0.01


# ---- replace


def plane(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(x, 2)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, 1), nn.LPPool2d(2, 2))
        self.again = self.stem[1]
        self.cubes = nn.LPPool2d(3, 2)
        self.cut = nn.LPPool2d(2, 2, ceil_mode=True)
        self.greatest = nn.LPPool2d(math.inf, 2)
        self.places = nn.MaxPool2d(2, return_indices=True)
        self.spread = nn.MaxPool2d(2, 1, 1, dilation=4)
        self.random = nn.FractionalMaxPool2d(2, output_size=2)
        self.wide = nn.AvgPool2d(2, padding=1, ceil_mode=True, divisor_override=3)
        self.hooked = nn.MaxPool2d(2)
        self.hooked.register_forward_hook(lambda *_: None)
        self.bins = nn.AdaptiveAvgPool2d((None, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.stem(x)
        return plane(functional.max_pool2d(self.step(y), 2))

    def step(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.max_pool2d(x, 1)
        return y


def test_replace_says_what_it_did_and_what_it_left() -> None:
    model = Mixed()
    done = lt.replace(model)
    assert sorted(done) == ["again", "bins", "greatest", "stem.1", "stem.2", "wide"]
    assert model.again is model.stem[1] and isinstance(model.again, lt.MaxPool)
    kept = done.kept
    assert "last" in kept["places"] and "|x|^p" in kept["cubes"] and "cut off" in kept["cut"]
    assert "-inf" in kept["spread"] and "FractionalMaxPool2d" in kept["random"] and "hooks" in kept["hooked"]
    calls = {n for n in kept if n.startswith("forward: ")}
    assert calls == {"forward: F.max_pool2d", "forward: F.avg_pool2d", "forward: torch.max_pool2d"}
    assert "lt.max_pool" in kept["forward: F.max_pool2d"]
    assert len(kept) == 6 + 3


def test_replace_only_what_is_asked_for() -> None:
    model = nn.Sequential(nn.MaxPool2d(2), nn.MaxPool2d(3))
    done = lt.replace(model, only=["1"])
    assert done == ["1"] and "asked" in done.kept["0"] and type(model[0]) is nn.MaxPool2d
    assert lt.replace(model, only=lambda name, module: name == "0") == ["0"]
    assert lt.replace(model) == [] and lt.replace(nn.MaxPool2d(2)).kept[""]


POOLS = [
    *(
        f"MaxPool{d}d({k}, {s}, {p}, ceil_mode={c})"
        for d in (1, 2, 3)
        for k, s, p, c in ((2, 2, 0, False), (3, 2, 1, True))
    ),
    "MaxPool2d((3, 2), (2, 1), (1, 0), dilation=(2, 1))",
    *(f"AvgPool{d}d(3, 2, 1, {c}, {i})" for d in (1, 2, 3) for c in (False, True) for i in (False, True)),
    *("AvgPool2d(2, divisor_override=3)", "LPPool1d(2, 3, 1)", "LPPool2d(4, (2, 3))", "LPPool3d(2, 2)"),
    *("AdaptiveAvgPool1d(3)", "AdaptiveAvgPool2d((None, 4))", "AdaptiveAvgPool3d(2)", "AdaptiveMaxPool2d((3, None))"),
]


@pytest.mark.parametrize("text", POOLS)
@pytest.mark.parametrize("training", [True, False])
def test_what_is_exchanged_computes_the_same(text: str, training: bool) -> None:
    """On integers times what makes every quotient whole, so that sums are exact; roots within the last bits."""
    theirs: Any = eval(f"nn.{text}", {"nn": nn})
    model = nn.Sequential(theirs).train(training)
    done = lt.replace(model)
    assert done == ["0"] and model[0].training is training
    d = int(text[text.index("d(") - 1])
    for shape in ((2, 3, *(9,) * d), (3, *(8,) * d)):
        x = torch.randint(-4, 5, shape).double() * 54000
        x = x.requires_grad_()
        y, wanted = model(x), theirs(x)
        g = torch.randint(-4, 5, y.shape).double() * 54000
        back, wanted_back = (torch.autograd.grad(v, x, g)[0] for v in (y, wanted))
        if "LP" in text:  # a power, a sum, a root: a few roundings each
            assert torch.allclose(y, wanted, rtol=1e-14, atol=0)
        else:
            assert same(y, wanted) and same(back, wanted_back)
