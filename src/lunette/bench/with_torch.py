"""PyTorch, eager: contiguous, and with data that is channels-last already."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, ClassVar

from lunette.bench.cases import Data, Problem
from lunette.bench.peers import Absent, Numbers, Peer, Way, numbers
from lunette.number import Array

Function = Callable[..., Any]


class Torch(Peer):
    """Forward under inference_mode; JVP by torch.func.jvp; VJP is autograd.grad on a graph that is kept."""

    name: ClassVar[str] = "PyTorch"
    package: ClassVar[str] = "torch"

    def start(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(self.threads)

    def place(self, array: Array) -> Any:
        """The tensor in the layout of this peer."""
        return self.torch.from_numpy(array)

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        torch = self.torch
        x, *rest = map(self.place, data.arrays)
        tangents = tuple(map(self.place, data.tangents))
        g = self.place(data.g)

        def way(name: str, f: Function) -> Way:
            if problem.direction == "forward":

                def forward() -> Any:
                    with torch.inference_mode():
                        return f(x, *rest)

                return Way(name, forward, lambda y: (y.numpy(),))
            if problem.direction == "jvp":

                def jvp() -> Any:
                    with torch.no_grad():
                        return torch.func.jvp(f, (x, *rest), tangents)

                return Way(name, jvp, lambda pair: (pair[1].numpy(),))
            leaves = [a.detach().requires_grad_() for a in (x, *rest)]
            y = f(*leaves)

            def vjp() -> Any:
                return torch.autograd.grad(y, leaves, g, retain_graph=True)

            return Way(name, vjp, lambda grads: tuple(a.numpy() for a in grads))

        return [way(name, f) for name, f in functions(torch, problem)]


class ChannelsLast(Torch):
    """The same with images and volumes in PyTorch's other layout."""

    name = "PyTorch channels-last"

    def place(self, array: Array) -> Any:
        if array.ndim not in (4, 5):
            return super().place(array)  # a bias
        formats = {4: self.torch.channels_last, 5: self.torch.channels_last_3d}
        return super().place(array).contiguous(memory_format=formats[array.ndim])

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        if problem.layer.d not in (2, 3):
            raise Absent("channels-last is for 4-D and 5-D tensors")
        return super().ways(problem, data)


# ---- each operator


def functions(torch: Any, problem: Problem) -> Iterator[tuple[str, Function]]:
    """Names and functions of the operands: what PyTorch has, or the compositions it takes."""
    F, layer = torch.nn.functional, problem.layer  # noqa: N806
    d, op, options = layer.d, layer.op, layer.options
    space = tuple(range(-d, 0))

    def named(name: str) -> Function:
        found: Function | None = getattr(F, f"{name}{d}d", None)
        if found is None:
            raise Absent(f"PyTorch has no {name} with {d} spatial axes")
        return found

    match op:
        case "global_avg_pool":
            yield "mean", lambda x: x.mean(space, keepdim=True)
            if d <= 3:
                yield "adaptive_avg_pool", lambda x: getattr(F, f"adaptive_avg_pool{d}d")(x, 1)
            return
        case "global_max_pool":
            yield "amax", lambda x: x.amax(space, keepdim=True)
            if d <= 3:
                yield "adaptive_max_pool", lambda x: getattr(F, f"adaptive_max_pool{d}d")(x, 1)
            return
        case "adaptive_avg_pool" | "adaptive_max_pool":
            pool, size = named(op), layer.bound.out[2:]
            yield "", lambda x: pool(x, size)
            return
        case _:
            at = numbers(problem)
    match op:
        case "conv":
            conv, groups = named("conv"), options.get("groups", 1)
            yield "", lambda x, w, b=None: conv(x, w, b, at.stride, at.padding, at.dilation, groups)
        case "conv_transpose":
            up, groups = named("conv_transpose"), options.get("groups", 1)
            yield "", lambda x, w, b=None: up(x, w, b, at.stride, at.padding, at.more, groups, at.dilation)
        case "max_pool":
            pool = named("max_pool")
            yield "", lambda x: pool(x, at.kernel, at.stride, at.padding, at.dilation)
        case "avg_pool":
            pool, counted = named("avg_pool"), options.get("count_include_pad", True)
            yield "", lambda x: pool(x, at.kernel, at.stride, at.padding, False, counted)
        case "lp_pool":
            pool, p = named("lp_pool"), options["p"]
            if any(at.lo + at.hi):
                raise Absent("PyTorch's lp_pool has no padding")
            # PyTorch takes powers of x itself: |x| makes odd powers mean the same
            kernel, stride = (at.kernel, at.stride) if d > 1 else (at.kernel[0], at.stride[0])
            yield "", lambda x: pool(x if p % 2 == 0 else x.abs(), p, kernel, stride)
        case "smooth_max_pool":
            yield from _smooth(torch, at, d, options["beta"], options.get("count_include_pad", True))
        case _:
            raise Absent(f"no adapter for {op}")


def _smooth(torch: Any, at: Numbers, d: int, beta: float, counted: bool) -> Iterator[tuple[str, Function]]:
    """Compositions of log-sum-exp. The shifted ones lose windows far below the greatest cell; this data has none."""
    F = torch.nn.functional  # noqa: N806
    pads = [n for lo, hi in zip(reversed(at.lo), reversed(at.hi), strict=True) for n in (lo, hi)]
    count = prod(at.kernel)

    def padded(x: Any) -> Any:
        return F.pad(x, pads, value=0.0 if counted else -float("inf")) if any(pads) else x

    def unfolded(x: Any) -> Any:
        windows = padded(x)
        for axis, (k, s) in enumerate(zip(at.kernel, at.stride, strict=True)):
            windows = windows.unfold(2 + axis, k, s)
        return torch.logsumexp(beta * windows, tuple(range(-d, 0))) / beta

    def columns(x: Any) -> Any:
        z = padded(x)
        out = [(n - k) // s + 1 for n, k, s in zip(z.shape[2:], at.kernel, at.stride, strict=True)]
        cells = F.unfold(z, at.kernel, stride=at.stride).reshape(z.shape[0], z.shape[1], count, *out)
        return torch.logsumexp(beta * cells, 2) / beta

    def shifted(greatest: Function) -> Function:
        def pooled(x: Any) -> Any:
            z = beta * padded(x)
            m = greatest(z)
            average = getattr(F, f"avg_pool{d}d")(torch.exp(z - m), at.kernel, at.stride)
            return (torch.log(average * count) + m) / beta

        return pooled

    yield "logsumexp of unfold", unfolded
    if d == 2:
        yield "logsumexp of F.unfold", columns
    if d <= 3:
        yield "avg_pool of exp, one shift", shifted(lambda z: z.detach().amax())
        space = tuple(range(-d, 0))
        yield "avg_pool of exp, a shift per channel", shifted(lambda z: z.detach().amax(space, keepdim=True))
