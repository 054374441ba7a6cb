"""Networks of the usual kinds, as people write them in torch, narrow enough for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from effort import LONG


def normed(before: int, behind: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, behind, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(behind))


class Basic(nn.Module):
    """The block of ResNet-18."""

    widens = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = normed(before, width, 3, stride), normed(width, width, 3)
        self.short = nn.Identity() if before == width and stride == 1 else normed(before, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.b(functional.relu(self.a(x))) + self.short(x))


class Bottleneck(nn.Module):
    """The block of ResNet-50."""

    widens = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.a, self.b, self.c = normed(before, width, 1), normed(width, width, 3, stride), normed(width, 4 * width, 1)
        self.relu = nn.ReLU(inplace=True)
        self.short = normed(before, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(self.relu(self.b(self.relu(self.a(x)))))
        y += self.short(x)
        z: Tensor = self.relu(y)
        return z


class ResNet(nn.Module):
    def __init__(self, block: Any, counts: tuple[int, ...], width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        layers, before = [], width
        for at, count in enumerate(counts):
            for k in range(count):
                layers.append(block(before, width << at, 2 if at and not k else 1))
                before = (width << at) * block.widens
        self.layers = nn.Sequential(*layers)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.flatten(self.pool(self.layers(self.stem(x))), 1))
        return y


def vgg(width: int = 4) -> nn.Module:
    parts: list[nn.Module] = []
    before = 3
    for at, count in enumerate((1, 1, 2, 2)):
        for _ in range(count):
            parts += [nn.Conv2d(before, width << at, 3, padding=1), nn.ReLU(inplace=True)]
            before = width << at
        parts.append(nn.MaxPool2d(2, 2))
    head = nn.Sequential(nn.Linear(before * 4, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))
    return nn.Sequential(nn.Sequential(*parts), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), head)


class UNet(nn.Module):
    """Down by max pools, up by transposed convolutions or by repeated cells, joined by concatenation."""

    def __init__(self, width: int = 4, depth: int = 2, repeated: bool = False) -> None:
        super().__init__()

        def double(before: int, behind: int) -> nn.Sequential:
            return nn.Sequential(normed(before, behind, 3), nn.ReLU(), normed(behind, behind, 3), nn.ReLU())

        self.down = nn.ModuleList([double(width << (k - 1) if k else 1, width << k) for k in range(depth)])
        self.pool = nn.MaxPool2d(2)
        self.middle = double(width << (depth - 1), width << depth)
        ups: list[nn.Module] = []
        for k in reversed(range(depth)):
            wide = width << (k + 1)
            many = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(wide, wide // 2, 1))
            ups.append(many if repeated else nn.ConvTranspose2d(wide, wide // 2, 2, 2))
        self.up = nn.ModuleList(ups)
        self.join = nn.ModuleList([double(width << (k + 1), width << k) for k in reversed(range(depth))])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        y: Tensor = self.last(x)
        return y


class Inverted(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, before: int, behind: int, stride: int) -> None:
        super().__init__()
        wide, self.same = 2 * before, before == behind and stride == 1
        self.parts = nn.Sequential(
            *(normed(before, wide, 1), nn.ReLU6(inplace=True), normed(wide, wide, 3, stride, wide), nn.ReLU6(True)),
            normed(wide, behind, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.parts(x)
        return x + y if self.same else y


def mobilenet() -> nn.Module:
    blocks = [Inverted(4, 4, 1), Inverted(4, 6, 2), Inverted(6, 6, 1), Inverted(6, 8, 2)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10))
    return nn.Sequential(normed(3, 4, 3, 2), nn.ReLU6(), *blocks, *head)


def volumes() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Conv3d(4, 6, (1, 3, 3)), nn.LeakyReLU(0.1), nn.AvgPool3d((2, 1, 1)), nn.Flatten(), nn.Linear(6 * 3, 3)),
    )


def generator() -> nn.Module:
    parts: list[nn.Module] = []
    for before, behind, stride, pad in ((8, 8, 1, 0), (8, 4, 2, 1), (4, 4, 2, 1)):
        parts += [nn.ConvTranspose2d(before, behind, 4, stride, pad, bias=False), nn.BatchNorm2d(behind), nn.ReLU(True)]
    return nn.Sequential(*parts, nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False))


class Branches(nn.Module):
    """Four ways beside each other, as in Inception; two results."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.three, self.five = (
            nn.Conv2d(3, 2, 1),
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(3, 2, 5, padding=2),
        )
        self.behind = nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pooled = functional.max_pool2d(x, 3, stride=1, padding=1)
        ways = [self.one(x), self.three(x), self.five(x), self.behind(pooled)]
        y = torch.cat([functional.relu(w) for w in ways], dim=1)
        return functional.avg_pool2d(y, 2), y.mean((2, 3))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (lambda: ResNet(Basic, (2, 2, 2, 2), 3), (2, 3, 32, 32)),
    # The blocks of ResNet-50; all sixteen of them in long tests, since torch.export takes seconds for each few.
    "resnet50": (lambda: ResNet(Bottleneck, (3, 4, 6, 3) if LONG else (1, 2, 1, 1), 2), (1, 3, 32, 32)),
    "vgg": (vgg, (2, 3, 32, 32)),
    "unet": (UNet, (2, 1, 16, 16)),
    "unet_repeated": (lambda: UNet(repeated=True), (1, 1, 16, 16)),
    "mobilenet": (mobilenet, (2, 3, 16, 16)),
    "volumes": (volumes, (2, 1, 4, 6, 10)),
    "generator": (generator, (2, 8, 1, 1)),
    "branches": (Branches, (2, 3, 8, 8)),
}


def settled(name: str, seed: int = 0) -> tuple[Any, Tensor]:
    """A network in float64 whose weights neither amplify nor die out, with statistics of its own; and an input."""
    torch.manual_seed(seed)
    make, shape = NETWORKS[name]
    model = make().double().eval()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Conv2d | nn.Conv3d | nn.Linear | nn.ConvTranspose2d):
                axes = tuple(a for a in range(part.weight.ndim) if a != isinstance(part, nn.ConvTranspose2d))
                part.weight /= part.weight.abs().sum(axes[1:] if 0 in axes else axes, keepdim=True)
            if isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
                for t, low, high in (
                    *((part.running_mean, -0.1, 0.1), (part.running_var, 0.5, 1)),
                    *((part.weight, 0.5, 1), (part.bias, -0.1, 0.3)),
                ):
                    assert t is not None
                    nn.init.uniform_(t, low, high)
    return model, torch.randn(shape, dtype=torch.float64)
