"""The layers that are measured, by name: what networks really call, and what the limits of a kernel show on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from math import prod
from typing import Any

import numpy as np

from lunette.array import resolve_named
from lunette.number import Array
from lunette.op import KERNEL, ResolvedOp
from lunette.ops import ALL, KINDS, Windowed
from lunette.window import Axis, Bins, Shape

DIRECTIONS = ("forward", "jvp", "vjp")
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Layer:
    """One operator on one size of data. `tags` say which goals it counts for."""

    name: str
    op: str
    shapes: tuple[Shape, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    calls: int | None = None
    """Calls per turn of the forward direction, where a goal fixes them."""

    @property
    def kind(self) -> type[Windowed]:
        """The operator."""
        return KINDS[self.op]

    @property
    def resolved(self) -> ResolvedOp:
        """The operator value, checked."""
        return resolve_named(self.op, self.shapes, self.options)

    @property
    def d(self) -> int:
        """The number of spatial axes."""
        d = self.resolved.d
        assert d is not None
        return d

    @property
    def batch(self) -> int:
        return self.shapes[0][0]

    def data(self, dtype: str) -> Data:
        """The same numbers for everyone."""
        rng = np.random.default_rng(20130)

        def normal(shape: Shape) -> Array:
            return rng.standard_normal(shape, np.dtype(dtype))

        arrays = [normal(s) for s in self.shapes]
        return Data(tuple(arrays), tuple(map(normal, self.shapes)), normal(self.resolved.out))

    def operations(self, direction: str) -> int | None:
        """Floating-point operations of a convolution: two per product, derivatives in x and w are two products."""
        if not self.kind.weighted:
            return None
        x, w, *_ = self.shapes
        cells = x if self.kind.windows == "transposed" else self.resolved.out
        return 2 * prod(cells) * prod(w[1:]) * (1 if direction == "forward" else 2)

    def traffic(self, direction: str, dtype: str) -> int:
        """Bytes that must be read and written once: operands, tangents or cotangent, results."""
        operands, out = sum(map(prod, self.shapes)), prod(self.resolved.out)
        cells = {"forward": operands + out, "jvp": 2 * operands + out, "vjp": 2 * operands + out}[direction]
        return cells * np.dtype(dtype).itemsize

    def shrunk(self) -> Layer:
        """The same layer with small sizes, for tests of the adapters; a batch of two."""
        groups = self.options.get("groups", 1)
        if not self.kind.weighted:
            x = self.shapes[0]
            return replace(self, shapes=((2, min(x[1], 3), *_less(self, x[2:])),), calls=None)
        x, w, *b = self.shapes
        each = 1 if w[0] == groups else 2
        few = min(groups, 3)
        into = few if x[1] == groups else few * 2
        w_ = (into, each, *w[2:]) if self.kind.windows == "transposed" else (few * each, into // few, *w[2:])
        out = few * each
        shapes = ((2, into, *_less(self, x[2:])), w_, *((out,) for _ in b))
        return replace(self, shapes=shapes, options={**self.options, "groups": few}, calls=None)


def _less(layer: Layer, space: Shape) -> Shape:
    sizes = []
    for a, n in zip(layer.resolved.op.window.axes, space, strict=True):  # type: ignore[attr-defined]
        if isinstance(a, Axis):
            enough = max(a.span - a.lo - a.hi, 1) + 2 * a.stride
        elif isinstance(a, Bins):
            enough = 2 * a.m + (n % a.m != 0)
        else:
            enough = a.span + 1
        sizes.append(min(n, enough))
    return tuple(sizes)


@dataclass(frozen=True)
class Data:
    """Operands, tangents and a cotangent."""

    arrays: tuple[Array, ...]
    tangents: tuple[Array, ...]
    g: Array


@dataclass(frozen=True)
class Problem:
    """What one figure is about."""

    layer: Layer
    direction: str
    dtype: str

    @property
    def title(self) -> str:
        return f"{self.layer.op} {self.direction} {self.layer.name}"


# ---- the list


def _conv(name: str, x: Shape, out: int, kernel: Shape, *tags: str, bias: bool = False, **options: Any) -> Layer:
    w = (out, x[1] // options.get("groups", 1), *kernel)
    return Layer(name, "conv", (x, w, *([(out,)] if bias else [])), options, frozenset(tags))


def _up(name: str, x: Shape, out: int, kernel: Shape, *tags: str, bias: bool = False, **options: Any) -> Layer:
    w = (x[1], out // options.get("groups", 1), *kernel)
    return Layer(name, "conv_transpose", (x, w, *([(out,)] if bias else [])), options, frozenset(tags))


def _pool(op: str, name: str, x: Shape, *tags: str, calls: int | None = None, **options: Any) -> Layer:
    return Layer(name, op, (x,), options, frozenset(tags), calls)


def _convolutions() -> Iterator[Layer]:
    k1, k3, k5, k7 = (1, 1), (3, 3), (5, 5), (7, 7)
    yield _conv("resnet18/conv1_7x7_s2", (1, 3, 224, 224), 64, k7, "nets", stride=2, padding=3)
    yield _conv("resnet18/conv2_3x3", (1, 64, 56, 56), 64, k3, "nets", "3x3", "quick", padding=1)
    yield _conv("resnet18/conv3_3x3_s2", (1, 64, 56, 56), 128, k3, "nets", stride=2, padding=1)
    yield _conv("resnet18/conv3_3x3", (1, 128, 28, 28), 128, k3, "nets", "3x3", padding=1)
    yield _conv("resnet18/conv4_3x3", (1, 256, 14, 14), 256, k3, "nets", "3x3", padding=1)
    yield _conv("resnet18/conv5_3x3", (1, 512, 7, 7), 512, k3, "nets", "3x3", padding=1)
    yield _conv("resnet18/down_1x1_s2", (1, 64, 56, 56), 128, k1, "nets", stride=2)
    yield _conv("resnet18/conv2_3x3_b32", (32, 64, 56, 56), 64, k3, "nets", "3x3", padding=1)
    yield _conv("resnet18/conv4_3x3_b32", (32, 256, 14, 14), 256, k3, "nets", "3x3", padding=1)
    yield _conv("resnet50/conv2_1x1_reduce", (1, 256, 56, 56), 64, k1, "nets")
    yield _conv("resnet50/conv2_1x1_expand", (1, 64, 56, 56), 256, k1, "nets", "quick")
    yield _conv("resnet50/conv4_1x1_reduce", (1, 1024, 14, 14), 256, k1, "nets")
    yield _conv("resnet50/conv5_1x1_expand", (1, 512, 7, 7), 2048, k1, "nets")
    yield _conv("resnet50/conv4_1x1_reduce_b32", (32, 1024, 14, 14), 256, k1, "nets")
    yield _conv("vgg16/conv1_1", (1, 3, 224, 224), 64, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("vgg16/conv1_2", (1, 64, 224, 224), 64, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("vgg16/conv3_2", (1, 256, 56, 56), 256, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("vgg16/conv5_1", (1, 512, 14, 14), 512, k3, "nets", "3x3", "quick", bias=True, padding=1)
    yield _conv("unet/down1_3x3", (1, 64, 256, 256), 64, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("unet/down3_3x3", (1, 256, 64, 64), 256, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("unet/joined_3x3", (1, 256, 128, 128), 128, k3, "nets", "3x3", bias=True, padding=1)
    yield _conv("unet/head_1x1", (1, 64, 256, 256), 2, k1, "nets", bias=True)

    yield _conv("deeplab/layer4_rate2", (1, 512, 33, 33), 512, k3, "dilated", padding=2, dilation=2)
    yield _conv("deeplab/aspp_rate6", (1, 512, 33, 33), 256, k3, "dilated", "quick", padding=6, dilation=6)
    yield _conv("deeplab/aspp_rate18", (1, 512, 33, 33), 256, k3, "dilated", padding=18, dilation=18)

    yield _conv("alexnet/conv2_g2", (1, 96, 27, 27), 256, k5, "grouped", padding=2, groups=2)
    yield _conv("resnext50/conv3_g32", (1, 256, 28, 28), 256, k3, "grouped", "quick", padding=1, groups=32)
    yield _conv("shufflenet/1x1_g3", (1, 240, 28, 28), 240, k1, "grouped", "quick", groups=3)
    yield _conv("mobilenet/112", (1, 32, 112, 112), 32, k3, "depthwise", padding=1, groups=32)
    yield _conv("mobilenet/112_s2", (1, 96, 112, 112), 96, k3, "depthwise", stride=2, padding=1, groups=96)
    yield _conv("mobilenet/56", (1, 144, 56, 56), 144, k3, "depthwise", "quick", padding=1, groups=144)
    yield _conv("mobilenet/14", (1, 512, 14, 14), 512, k3, "depthwise", padding=1, groups=512)
    yield _conv("mobilenet/14_b32", (32, 512, 14, 14), 512, k3, "depthwise", padding=1, groups=512)
    yield _conv("efficientnet/5x5", (1, 240, 28, 28), 240, k5, "depthwise", padding=2, groups=240)
    yield _conv("convnext/7x7", (1, 96, 56, 56), 96, k7, "depthwise", padding=3, groups=96)

    yield _conv("audio/wav2vec_first", (1, 1, 16000), 512, (10,), "1-D", stride=5)
    yield _conv("audio/wav2vec_next", (1, 512, 3199), 512, (3,), "1-D", stride=2)
    yield _conv("audio/whisper", (1, 80, 3000), 384, (3,), "1-D", "quick", bias=True, padding=1)
    yield _conv("audio/wavenet_rate8", (1, 64, 8000), 64, (2,), "1-D", dilation=8)
    yield _conv("audio/tcn_b32", (32, 64, 500), 64, (3,), "1-D", padding=1)
    yield _conv("video/first_3x7x7", (1, 3, 8, 112, 112), 64, (3, 7, 7), "3-D", stride=(1, 2, 2), padding=(1, 3, 3))
    yield _conv("video/c3d", (1, 64, 8, 28, 28), 128, (3, 3, 3), "3-D", "quick", padding=1)
    yield _conv("video/r2plus1d_time", (1, 144, 8, 28, 28), 64, (3, 1, 1), "3-D", padding=(1, 0, 0))
    yield _conv("video/x3d_depthwise", (1, 54, 8, 28, 28), 54, (3, 3, 3), "3-D", padding=1, groups=54)
    yield _conv("medical/unet3d", (1, 32, 32, 32, 32), 32, (3, 3, 3), "3-D", padding=1)
    yield _conv("lattice/4d", (1, 8, 8, 8, 8, 8), 8, (3, 3, 3, 3), "4-D", "quick", padding=1)
    yield _conv("lightfield/4d", (1, 4, 6, 6, 24, 24), 8, (3, 3, 3, 3), "4-D", padding=1)
    yield _conv("tiny/conv", (1, 16, 8, 8), 16, k3, "tiny", "quick", padding=1)
    yield _conv("large/conv", (1, 16, 1024, 1024), 16, k3, "large", padding=1)


def _transposed() -> Iterator[Layer]:
    k2, k4 = (2, 2), (4, 4)
    yield _up("dcgan/first_4x4", (1, 100, 1, 1), 512, k4)
    yield _up("dcgan/second_4x4", (1, 512, 4, 4), 256, k4, "quick", stride=2, padding=1)
    yield _up("dcgan/third_4x4", (1, 256, 8, 8), 128, k4, stride=2, padding=1)
    yield _up("dcgan/last_4x4", (1, 64, 32, 32), 3, k4, stride=2, padding=1)
    yield _up("dcgan/third_4x4_b32", (32, 256, 8, 8), 128, k4, stride=2, padding=1)
    yield _up("unet/up4_2x2", (1, 512, 32, 32), 256, k2, "quick", bias=True, stride=2)
    yield _up("unet/up1_2x2", (1, 128, 128, 128), 64, k2, bias=True, stride=2)
    yield _up("upsample/3x3_s2_out", (1, 64, 56, 56), 64, (3, 3), stride=2, padding=1, output_padding=1)
    yield _up("upsample/depthwise", (1, 64, 32, 32), 64, k4, stride=2, padding=1, groups=64)
    yield _up("audio/hifigan_x8", (1, 512, 64), 256, (16,), stride=8, padding=4)
    yield _up("medical/unet3d_up", (1, 64, 16, 16, 16), 32, (2, 2, 2), bias=True, stride=2)
    yield _up("lattice/4d_up", (1, 8, 5, 5, 5, 5), 8, (2, 2, 2, 2), stride=2)
    yield _up("tiny/conv_transpose", (1, 16, 8, 8), 16, k2, "tiny", "quick", stride=2)


def _maxima(op: str, *quick: str, calls: int | None = None) -> Iterator[Layer]:
    """max_pool and avg_pool: the same windows; with tags of large windows, and calls of a tiny one, of their own."""
    k2, k3 = (2, 2), (3, 3)
    yield _pool(op, "resnet/3x3_s2", (1, 64, 112, 112), "quick", kernel=k3, stride=2, padding=1)
    yield _pool(op, "resnet/3x3_s2_b32", (32, 64, 112, 112), "beyond", kernel=k3, stride=2, padding=1)
    yield _pool(op, "vgg/first_2x2", (1, 64, 224, 224), kernel=k2)
    yield _pool(op, "vgg/last_2x2", (1, 512, 14, 14), kernel=k2)
    yield _pool(op, "vgg/last_2x2_b32", (32, 512, 14, 14), kernel=k2)
    yield _pool(op, "inception/3x3_s1", (1, 192, 35, 35), kernel=k3, stride=1, padding=1)
    yield _pool(op, "unet/2x2", (1, 64, 256, 256), kernel=k2)
    yield _pool(op, "window/5x5", (1, 16, 128, 128), "window5", *quick, kernel=(5, 5), stride=1, padding=2)
    yield _pool(op, "window/31x31", (1, 16, 128, 128), "window31", *quick, kernel=(31, 31), stride=1, padding=15)
    yield _pool(op, "large/2x2", (8, 64, 256, 256), "beyond", kernel=k2)
    yield _pool(op, "audio/4_s4", (1, 64, 16000), "quick", kernel=(4,))
    yield _pool(op, "audio/3_s2", (1, 128, 8000), kernel=(3,), stride=2, padding=1)
    yield _pool(op, "audio/2_b32", (32, 128, 1000), kernel=(2,))
    yield _pool(op, "video/2x2x2", (1, 64, 16, 56, 56), "quick", kernel=(2, 2, 2))
    yield _pool(op, "video/3x3x3_s2", (1, 64, 8, 56, 56), kernel=(3, 3, 3), stride=2, padding=1)
    yield _pool(op, "video/1x2x2", (1, 64, 8, 56, 56), kernel=(1, 2, 2))
    yield _pool(op, "lattice/4d", (1, 8, 12, 12, 12, 12), kernel=(2, 2, 2, 2))
    yield _pool(op, f"tiny/{op}", (1, 16, 8, 8), "tiny", "quick", calls=calls, kernel=k2)


def _pools() -> Iterator[Layer]:
    k2, k3 = (2, 2), (3, 3)
    yield from _maxima("max_pool", "quick", calls=10_000)
    yield _pool("max_pool", "yolo/sppf_5x5", (1, 256, 20, 20), kernel=(5, 5), stride=1, padding=2)
    yield _pool("max_pool", "yolo/spp_13x13", (1, 512, 13, 13), kernel=(13, 13), stride=1, padding=6)
    yield _pool("max_pool", "dilated/3x3_rate2", (1, 64, 64, 64), kernel=k3, stride=1, padding=1, dilation=2)
    yield from _maxima("avg_pool")
    yield _pool("avg_pool", "densenet/2x2", (1, 256, 28, 28), kernel=k2)
    inside: dict[str, Any] = {"kernel": k3, "stride": 1, "padding": 1, "count_include_pad": False}
    yield _pool("avg_pool", "inception/3x3_s1_inside", (1, 192, 35, 35), **inside)

    smooth = "smooth_max_pool"
    yield _pool(smooth, "smooth/2x2", (1, 64, 56, 56), "quick", kernel=k2, beta=2.0)
    yield _pool(smooth, "smooth/3x3_s2", (1, 64, 112, 112), kernel=k3, stride=2, padding=1, beta=2.0)
    yield _pool(smooth, "smooth/3x3_s1", (1, 64, 28, 28), kernel=k3, stride=1, beta=1.0)
    yield _pool(smooth, "smooth/2x2_b32", (32, 64, 28, 28), kernel=k2, beta=1.0)
    yield _pool(smooth, "smooth/audio_4", (1, 64, 8000), kernel=(4,), beta=1.0)
    yield _pool(smooth, "smooth/video_2x2x2", (1, 32, 8, 28, 28), kernel=(2, 2, 2), beta=1.0)
    yield _pool(smooth, "tiny/smooth", (1, 16, 8, 8), "tiny", "quick", kernel=k2, beta=1.0)

    yield _pool("lp_pool", "lp/2x2", (1, 64, 112, 112), "quick", kernel=k2, p=2)
    yield _pool("lp_pool", "lp/3x3_s2", (1, 64, 112, 112), kernel=k3, stride=2, p=2)
    yield _pool("lp_pool", "lp/3x3_s2_p3", (1, 64, 56, 56), kernel=k3, stride=2, p=3)
    yield _pool("lp_pool", "lp/2x2_b32", (32, 64, 28, 28), kernel=k2, p=2)
    yield _pool("lp_pool", "lp/audio_4", (1, 64, 16000), kernel=(4,), p=2)
    yield _pool("lp_pool", "lp/video_2x2x2", (1, 64, 8, 28, 28), kernel=(2, 2, 2), p=2)

    for op in ("adaptive_avg_pool", "adaptive_max_pool"):
        yield _pool(op, "vgg/14_to_7", (1, 512, 14, 14), output_size=(7, 7))
        yield _pool(op, "vgg/17_to_7", (1, 512, 17, 17), "quick", output_size=(7, 7))
        yield _pool(op, "pspnet/60_to_6", (1, 512, 60, 60), output_size=(6, 6))
        yield _pool(op, "vgg/14_to_7_b32", (32, 512, 14, 14), output_size=(7, 7))
        yield _pool(op, "audio/1000_to_64", (1, 128, 1000), output_size=(64,))
        yield _pool(op, "video/to_4x7x7", (1, 128, 8, 28, 28), output_size=(4, 7, 7))
    for op in ("global_avg_pool", "global_max_pool"):
        yield _pool(op, "resnet/7x7", (1, 512, 7, 7))
        yield _pool(op, "resnet/7x7_b32", (32, 2048, 7, 7), "quick")
        yield _pool(op, "efficientnet/56x56", (1, 192, 56, 56))
        yield _pool(op, "audio/4000", (1, 256, 4000), spatial=1)
        yield _pool(op, "video/8x28x28", (1, 128, 8, 28, 28))


def _usual(kind: type[Windowed]) -> Iterator[Layer]:
    """Of a pool with kernels that has no layers of its own: the windows of the first network."""
    usual: dict[str, tuple[Shape, dict[str, Any]]] = {
        "sliding": ((1, 64, 112, 112), {"kernel": (3, 3), "stride": 2, "padding": 1}),
        "bins": ((1, 512, 14, 14), {"output_size": (7, 7)}),
        "whole": ((1, 512, 7, 7), {}),
    }
    x, options = usual[kind.windows]
    yield _pool(kind.name, "resnet/usual", x, "quick", **{**options, **kind.needed})


NAMED: tuple[Layer, ...] = (*_convolutions(), *_transposed(), *_pools())
_OTHERS = [k for k in ALL if KERNEL.has(k) and not k.weighted and k.name not in {layer.op for layer in NAMED}]
LAYERS: tuple[Layer, ...] = (*NAMED, *(layer for kind in _OTHERS for layer in _usual(kind)))
OPS: tuple[str, ...] = tuple(dict.fromkeys(layer.op for layer in LAYERS))


def matches(op: str, name: str, pattern: str | None) -> bool:
    """Whether a case is meant: by a part of op/name, or by a shell pattern for that or for the name alone."""
    full = f"{op}/{name}"
    return pattern is None or pattern in full or fnmatch(full, pattern) or fnmatch(name, pattern)


def select(ops: Iterable[str] = (), pattern: str | None = None, quick: bool = False) -> list[Layer]:
    """The layers of these operators whose name matches: a shell pattern, or a part of `op/name`."""
    wanted = set(ops)
    return [
        layer
        for layer in LAYERS
        if (not wanted or layer.op in wanted)
        and (not quick or "quick" in layer.tags)
        and matches(layer.op, layer.name, pattern)
    ]
