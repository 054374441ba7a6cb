"""The rows of `lunette bench --bridges` for torch: single pools, and training steps of networks with pools replaced."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

import lunette.torch as lt
from lunette.bench.bridges import Row, turns
from lunette.bench.networks import NETWORKS, NetworkProblem
from lunette.bench.with_torch import module_of
from lunette.torch.nodes import connected


def rows(threads: int) -> Iterator[Row]:
    """Everything, with so many threads on both sides."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    try:
        yield small_call(threads)
        yield from pools(threads)
        for name, model, x in (
            ("ResNet", ResNet(), torch.randn(8, 3, 64, 64)),
            ("U-Net", UNet(), torch.randn(4, 1, 64, 64)),
        ):
            yield from training(name, model, x, threads)
        yield from compiled(threads)
    finally:
        torch.set_num_threads(before)


def small_call(threads: int) -> Row:
    """What a call costs beside its work."""
    x = torch.randn(1, 16, 8, 8)
    with torch.no_grad():
        both = turns(lambda: functional.max_pool2d(x, 2), lambda: lt.max_pool(x, 2), threads)
    return Row("max_pool 1x16x8x8, forward, no_grad", *both, overhead=5e-6)


GOALS: Final[Mapping[str, float]] = {"max_pool": 5.0}
"""How many times as fast as torch's own, forward and backward."""


def pools(threads: int) -> Iterator[Row]:
    """Forward and backward on planes of a common size; channels-last as it is."""
    theirs = {
        "max_pool": lambda x: functional.max_pool2d(x, 3, 2, 1),
        "avg_pool": lambda x: functional.avg_pool2d(x, 3, 2, 1),
        "adaptive_avg_pool": lambda x: functional.adaptive_avg_pool2d(x, 7),
    }
    ours: dict[str, Callable[[Tensor], Tensor]] = {
        "max_pool": lambda x: lt.max_pool(x, 3, stride=2, padding=1),
        "avg_pool": lambda x: lt.avg_pool(x, 3, stride=2, padding=1),
        "adaptive_avg_pool": lambda x: lt.adaptive_avg_pool(x, 7),
    }
    for name in theirs:
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(8, 64, 56, 56).to(memory_format=layout).requires_grad_()
            g = torch.randn_like(theirs[name](x))
            both = turns(_stepped(theirs[name], x, g), _stepped(ours[name], x, g), threads)
            plain = layout is torch.contiguous_format
            what = f"{name} 8x64x56x56, forward+backward{'' if plain else ', channels-last'}"
            yield Row(what, *both, times=GOALS.get(name) if plain else None)


def _stepped(f: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(f(x), x, g)


# ---- networks


def training(name: str, model: nn.Module, x: Tensor, threads: int) -> Iterator[Row]:
    """A step of training, and the pools of it alone, on the tensors that they meet."""
    ours = copy.deepcopy(model)
    lt.replace(ours)
    both = turns(_step(model, x), _step(ours, x), threads, 3.0)
    yield Row(f"training step of a small {name}, pools replaced", *both, times=1.0)
    sites = [(p, q, seen) for p, q, seen in zip(_pools(model), _pools(ours), _inputs(model, x), strict=True)]
    alone = [_alone(p, q, seen, threads) for p, q, seen in sites]
    forward, backward = (
        (sum(theirs for theirs, _ in those), sum(own for _, own in those)) for those in zip(*alone, strict=True)
    )
    yield Row(f"pools of the {name}, forward", *forward, times=5.0)
    nodes = "compiled nodes" if connected() else "nodes in Python"
    yield Row(f"pools of the {name}, backward, inside of a step, {nodes}", *_inside(model, ours, x), times=2.0)
    yield Row(f"pools of the {name}, backward, alone", *backward)


def _alone(p: nn.Module, q: nn.Module, x: Tensor, threads: int) -> tuple[tuple[float, float], ...]:
    """Seconds of two pools, forward and backward, called again and again: all that they touch is in the caches."""
    with torch.no_grad():
        there = turns(lambda: p(x), lambda: q(x), threads)
    leaf = x.clone().requires_grad_()
    first, second = p(leaf), q(leaf)
    g = torch.randn_like(first)

    def back(y: Tensor) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(y, leaf, g, retain_graph=True)

    return there, turns(back(first), back(second), threads)


def _inside(theirs: nn.Module, ours: nn.Module, x: Tensor, steps: int = 100) -> tuple[float, float]:
    """Seconds that the nodes of pools take in the backward pass of a step of training, the median of many.

    By torch's own profiler, which is on for the backward pass alone: hooks in Python would cost more than the nodes.
    """
    both = _step(theirs, x, _seconds_of_pools), _step(ours, x, _seconds_of_pools)
    with _silent():
        spent = [tuple(step() for step in both) for _ in range(steps)]
    first, second = (median(seconds) for seconds in zip(*spent, strict=True))
    return first, second


@contextmanager
def _silent() -> Iterator[None]:
    """Without what the profiler's library writes to standard error each time that it begins and ends."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


POOL_NODES = re.compile(r"(?:MaxPool\w*|AdaptiveAvgPool\w*|Mean)Backward\d*|Lunette<lunette::\w+_pool>")
"""Names of nodes: torch's (an adaptive average to one cell is a mean), and lunette's, compiled or in Python."""


def _seconds_of_pools(loss: Tensor) -> float:
    """Those that nodes of pools take of its backward pass."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        loss.backward()  # type: ignore[no-untyped-call]
    nodes = [e for e in seen.events() or () if POOL_NODES.fullmatch(e.name)]
    return 1e-6 * float(sum(e.time_range.elapsed_us() for e in nodes))


def _step(model: nn.Module, x: Tensor, backward: Callable[[Tensor], Any] = Tensor.backward) -> Callable[[], Any]:
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    target = torch.randn_like(model(x).detach())

    def step() -> Any:
        optimiser.zero_grad()
        found = backward(functional.mse_loss(model(x), target))
        optimiser.step()
        return found

    return step


def compiled(threads: int, name: str = "resnet18/b1") -> Iterator[Row]:
    """A network behind a module's face, beside the module itself and beside torch.compile."""
    network = next(n for n in NETWORKS if n.name == name)
    feed = network.data()
    module, x = module_of(torch, NetworkProblem(network, "forward"), feed).eval(), torch.from_numpy(feed.x)
    with torch.inference_mode():
        ours, theirs = lt.compile(module, x), torch.compile(module)
        for other, what, goal in ((module, "torch itself", 1.3), (theirs, "torch.compile", 1.0)):
            other(x)  # compiling is not timed
            both = turns(lambda other=other: other(x), lambda: ours(x), threads, 3.0)  # type: ignore[misc]
            yield Row(f"lt.compile of {name}, beside {what}", *both, times=goal)


POOLING = (nn.MaxPool2d, nn.AdaptiveAvgPool2d, lt.MaxPool, lt.AdaptiveAvgPool)


def _pools(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, POOLING)]


def _inputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What each pool gets, of those that are called once."""
    seen: dict[int, Tensor] = {}
    hooks = [m.register_forward_pre_hook(lambda m, a: seen.setdefault(id(m), a[0].detach())) for m in _pools(model)]
    with torch.no_grad():
        model(x)
    for h in hooks:
        h.remove()
    return [seen[id(m)] for m in _pools(model)]


def _normed(before: int, behind: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, behind, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(behind), nn.ReLU())


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = _normed(width, width), _normed(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.b(self.a(x))
        return y


class ResNet(nn.Sequential):
    """A stem with a max pool, blocks, an adaptive average."""

    def __init__(self) -> None:
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        stem = (_normed(3, 32, 7, 2), nn.MaxPool2d(3, 2, 1))
        super().__init__(*stem, _Block(32), _normed(32, 64, 3, 2), _Block(64), *head)


class UNet(nn.Module):
    """Two steps down by max pools, two up by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.middle = _normed(1, 16), _normed(16, 32), _normed(32, 64)
        self.first, self.second = nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.up, self.further = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join, self.last = _normed(64, 32), nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.one(x)
        b = self.two(self.first(a))
        c = self.join(torch.cat([b, self.up(self.middle(self.second(b)))], 1))
        y: Tensor = self.last(torch.cat([a, self.further(c)], 1))
        return y
