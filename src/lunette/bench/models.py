"""Whole networks, written once: every library runs the same function on the same numbers through its own operators.

A model asks its `Toolbox` for operators. Weights are made by the model itself, in the order it asks for them, so that a
model has one definition: `Recorder` finds their shapes, and the other toolboxes take them from the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np

from lunette.number import Array
from lunette.window import Shape


class Toolbox(Protocol):
    """The operators of one library, channels first."""

    def weight(self, *shape: int) -> Any: ...
    def conv(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any: ...
    def up(self, x: Any, w: Any, b: Any) -> Any: ...
    def max_pool(self, x: Any, kernel: int, stride: int, padding: int = 0) -> Any: ...
    def average(self, x: Any) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def concat(self, x: Any, y: Any) -> Any: ...
    def flatten(self, x: Any) -> Any: ...
    def linear(self, x: Any, w: Any, b: Any) -> Any: ...
    def scale_shift(self, x: Any, scale: Any, shift: Any) -> Any: ...


@dataclass
class Recorder:
    """A toolbox that computes shapes only, writes down which weights are asked for, and counts operations."""

    shapes: list[Shape] = field(default_factory=list)
    operations: int = 0
    """Of convolutions and matrix products, two per product."""

    def weight(self, *shape: int) -> Shape:
        self.shapes.append(shape)
        return shape

    def conv(self, x: Shape, w: Shape, b: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Shape:
        y = (x[0], w[0], *((n + 2 * padding - k) // stride + 1 for n, k in zip(x[2:], w[2:], strict=True)))
        self.operations += 2 * prod(y) * prod(w[1:])
        return y

    def up(self, x: Shape, w: Shape, b: Any) -> Shape:
        self.operations += 2 * prod(x) * prod(w[1:])
        return (x[0], w[1], *(2 * n for n in x[2:]))

    def max_pool(self, x: Shape, kernel: int, stride: int, padding: int = 0) -> Shape:
        return (*x[:2], *((n + 2 * padding - kernel) // stride + 1 for n in x[2:]))

    def average(self, x: Shape) -> Shape:
        return x[:2]

    def relu(self, x: Shape) -> Shape:
        return x

    def add(self, x: Shape, y: Shape) -> Shape:
        return x

    def concat(self, x: Shape, y: Shape) -> Shape:
        return (x[0], x[1] + y[1], *x[2:])

    def flatten(self, x: Shape) -> Shape:
        return (x[0], prod(x[1:]))

    def linear(self, x: Shape, w: Shape, b: Any) -> Shape:
        self.operations += 2 * x[0] * prod(w)
        return (x[0], w[0])

    def scale_shift(self, x: Shape, scale: Any, shift: Any) -> Shape:
        return x


# ---- the models


def lenet(t: Toolbox, x: Any) -> Any:
    """LeNet-5 for 28x28, with max pooling and relu."""
    x = t.max_pool(t.relu(t.conv(x, t.weight(6, 1, 5, 5), t.weight(6), padding=2)), 2, 2)
    x = t.max_pool(t.relu(t.conv(x, t.weight(16, 6, 5, 5), t.weight(16))), 2, 2)
    x = t.flatten(x)
    x = t.relu(t.linear(x, t.weight(120, 400), t.weight(120)))
    x = t.relu(t.linear(x, t.weight(84, 120), t.weight(84)))
    return t.linear(x, t.weight(10, 84), t.weight(10))


def vgg11(t: Toolbox, x: Any) -> Any:
    """VGG-11 for 32x32, with one layer behind the convolutions."""
    before = 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if isinstance(width, int):
            x = t.relu(t.conv(x, t.weight(width, before, 3, 3), t.weight(width), padding=1))
            before = width
        else:
            x = t.max_pool(x, 2, 2)
    return t.linear(t.flatten(x), t.weight(10, 512), t.weight(10))


def resnet18(t: Toolbox, x: Any) -> Any:
    """ResNet-18 for 224x224; batch normalisation with fixed statistics is a scale and a shift per channel."""

    def block(x: Any, before: int, width: int, stride: int) -> Any:
        def normal(x: Any) -> Any:
            return t.scale_shift(x, t.weight(width), t.weight(width))

        y = t.relu(normal(t.conv(x, t.weight(width, before, 3, 3), None, stride, 1)))
        y = normal(t.conv(y, t.weight(width, width, 3, 3), None, 1, 1))
        if stride != 1 or before != width:
            x = normal(t.conv(x, t.weight(width, before, 1, 1), None, stride, 0))
        return t.relu(t.add(y, x))

    x = t.scale_shift(t.conv(x, t.weight(64, 3, 7, 7), None, 2, 3), t.weight(64), t.weight(64))
    x = t.max_pool(t.relu(x), 3, 2, 1)
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        x = block(x, before, width, stride)
        x = block(x, width, width, 1)
        before = width
    return t.linear(t.average(x), t.weight(1000, 512), t.weight(1000))


def unet(t: Toolbox, x: Any) -> Any:
    """A U-Net of three levels for 64x64."""

    def two(x: Any, before: int, width: int) -> Any:
        x = t.relu(t.conv(x, t.weight(width, before, 3, 3), t.weight(width), padding=1))
        return t.relu(t.conv(x, t.weight(width, width, 3, 3), t.weight(width), padding=1))

    a = two(x, 3, 16)
    b = two(t.max_pool(a, 2, 2), 16, 32)
    c = two(t.max_pool(b, 2, 2), 32, 64)
    b = two(t.concat(t.up(c, t.weight(64, 32, 2, 2), t.weight(32)), b), 64, 32)
    a = two(t.concat(t.up(b, t.weight(32, 16, 2, 2), t.weight(16)), a), 32, 16)
    return t.conv(a, t.weight(2, 16, 1, 1), t.weight(2))


def mobilenet(t: Toolbox, x: Any) -> Any:
    """MobileNet for 224x224: depthwise 3x3 and 1x1 by turns; normalisation is a scale and a shift, as in ResNet-18."""

    def layer(x: Any, before: int, width: int, kernel: int, stride: int, groups: int = 1) -> Any:
        x = t.conv(x, t.weight(width, before // groups, kernel, kernel), None, stride, kernel // 2, groups)
        return t.relu(t.scale_shift(x, t.weight(width), t.weight(width)))

    x, before = layer(x, 3, 32, 3, 2), 32
    strides = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for width, stride in strides:
        x = layer(x, before, before, 3, stride, groups=before)
        x, before = layer(x, before, width, 1, 1), width
    return t.linear(t.average(x), t.weight(1000, 1024), t.weight(1000))


def c3d(t: Toolbox, x: Any) -> Any:
    """A small C3D: 3x3x3 convolutions of 8 frames of 56x56."""
    before = 3
    for width in (32, "pool", 64, "pool", 128, 128, "pool"):
        if isinstance(width, int):
            x = t.relu(t.conv(x, t.weight(width, before, 3, 3, 3), t.weight(width), padding=1))
            before = width
        else:
            x = t.max_pool(x, 2, 2)
    return t.linear(t.average(x), t.weight(101, 128), t.weight(101))


@dataclass(frozen=True)
class Model:
    """A network and the size of one input."""

    name: str
    run: Callable[[Any, Any], Any]
    sample: Shape
    least: Shape
    """The smallest input that the network takes."""

    def recorded(self, batch: int = 1) -> tuple[Shape, Recorder]:
        """The shape of the output, and what the network asked for."""
        found = Recorder()
        return self.run(found, (batch, *self.sample)), found

    def weights(self, seed: int = 7) -> list[Array]:
        """He's initialisation; scales near one."""
        _, found = self.recorded()
        rng = np.random.default_rng(seed)
        made = []
        for s in found.shapes:
            if len(s) == 1:
                made.append((1 + rng.standard_normal(s) / 10).astype(np.float32))
            else:
                made.append((rng.standard_normal(s) * np.sqrt(2 / prod(s[1:]))).astype(np.float32))
        return made

    def input(self, batch: int) -> Array:
        """Random data of this size."""
        rng = np.random.default_rng(batch)
        return rng.standard_normal((batch, *self.sample), np.float32)

    def bind(self, toolbox: Callable[[Iterator[Any]], Any]) -> Callable[[Sequence[Any], Any], Any]:
        """The model as a function of weights and input, in one library."""
        return lambda weights, x: self.run(toolbox(iter(weights)), x)


MODELS = (
    Model("lenet", lenet, (1, 28, 28), (1, 28, 28)),
    Model("vgg11", vgg11, (3, 32, 32), (3, 32, 32)),
    Model("resnet18", resnet18, (3, 224, 224), (3, 32, 32)),
    Model("unet", unet, (3, 64, 64), (3, 8, 8)),
    Model("mobilenet", mobilenet, (3, 224, 224), (3, 32, 32)),
    Model("c3d", c3d, (3, 8, 56, 56), (3, 8, 8, 8)),
)
