"""PyTorch, eager: contiguous, and with data that is channels-last already."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from lunette.bench.cases import Data, Problem
from lunette.bench.networks import Feed, Network, NetworkProblem
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

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        torch = self.torch
        weights, x = [torch.from_numpy(w) for w in feed.weights], torch.from_numpy(feed.x)
        f = network(torch, problem.network)
        if problem.direction == "forward":

            def forward() -> Any:
                with torch.inference_mode():
                    return f(weights, x)

            return [Way("", forward, _output)]
        leaves = [w.detach().requires_grad_() for w in weights]

        def gradient() -> Any:
            value = mean_of_squares(f(leaves, x))
            return value, torch.autograd.grad(value, leaves)

        return [Way("", gradient, _value_and_gradients)]


def mean_of_squares(y: Any) -> Any:
    """The loss of the networks."""
    return (y * y).mean()


def _output(y: Any) -> list[Any]:
    return [y.numpy()]


def _value_and_gradients(pair: Any) -> list[Any]:
    value, gradients = pair
    return [value.detach().numpy(), *(g.numpy() for g in gradients)]


class ChannelsLast(Torch):
    """The same with images and volumes in PyTorch's other layout."""

    name = "PyTorch channels-last"
    networks = False

    def place(self, array: Array) -> Any:
        if array.ndim not in (4, 5):
            return super().place(array)  # a bias
        formats = {4: self.torch.channels_last, 5: self.torch.channels_last_3d}
        return super().place(array).contiguous(memory_format=formats[array.ndim])

    def ways(self, problem: Problem, data: Data) -> list[Way]:
        if problem.layer.d not in (2, 3):
            raise Absent("channels-last is for 4-D and 5-D tensors")
        return super().ways(problem, data)


class Compiled(Torch):
    """torch.compile of a module. Compiling happens in the first call, which is not timed."""

    name = "torch.compile"
    layers = False

    def start(self) -> None:
        super().start()
        inductor: Any = importlib.import_module("torch._inductor.config")
        inductor.compile_threads = 1  # else its own workers stay, and run when others have their turn

    def network_ways(self, problem: NetworkProblem, feed: Feed) -> list[Way]:
        torch = self.torch
        torch._dynamo.reset()
        x = torch.from_numpy(feed.x)
        module = module_of(torch, problem, feed)
        if problem.direction == "forward":

            def way(name: str, options: Mapping[str, Any] | None) -> Way:
                f = torch.compile(module, options=options)

                def forward() -> Any:
                    with torch.inference_mode():
                        return f(x)

                return Way(name, forward, _output)

            return [way("default", None), way("freezing", {"freezing": True})]
        f, leaves = torch.compile(module), list(module.parameters())

        def gradient() -> Any:
            value = f(x)
            return value, torch.autograd.grad(value, leaves)

        return [Way("", gradient, _value_and_gradients)]


def module_of(torch: Any, problem: NetworkProblem, feed: Feed) -> Any:
    """The network, or its loss, as a function of x that holds its weights."""
    f = network(torch, problem.network)

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            weights = [torch.nn.Parameter(torch.from_numpy(w)) for w in feed.weights]
            self.weights = torch.nn.ParameterList(weights)

        def forward(self, x: Any) -> Any:
            y = f(list(self.weights), x)
            return y if problem.direction == "forward" else mean_of_squares(y)

    return Module()


# ---- networks


def network(torch: Any, network: Network) -> Callable[[Sequence[Any], Any], Any]:
    """A function of weights and input."""
    widths = {s[0] for s in network.shapes[1:] if len(s) == 1}
    statistics = {n: (torch.zeros(n), torch.ones(n)) for n in widths}
    return network.model.bind(lambda weights: Tools(torch, weights, statistics))


class Tools:
    """PyTorch's operators. `statistics` are a mean of zeros and a variance of ones for each number of channels."""

    def __init__(self, torch: Any, weights: Iterator[Any], statistics: Mapping[int, tuple[Any, Any]]) -> None:
        self.torch, self.F = torch, torch.nn.functional
        self.weights, self.statistics = weights, statistics

    def weight(self, *shape: int) -> Any:
        return next(self.weights)

    def conv(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        return getattr(self.F, f"conv{x.ndim - 2}d")(x, w, b, stride, padding, 1, groups)

    def up(self, x: Any, w: Any, b: Any) -> Any:
        return self.F.conv_transpose2d(x, w, b, 2)

    def max_pool(self, x: Any, kernel: int, stride: int, padding: int = 0) -> Any:
        return getattr(self.F, f"max_pool{x.ndim - 2}d")(x, kernel, stride, padding)

    def average(self, x: Any) -> Any:
        return x.mean(tuple(range(2, x.ndim)))

    def relu(self, x: Any) -> Any:
        return self.F.relu(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def concat(self, x: Any, y: Any) -> Any:
        return self.torch.cat([x, y], 1)

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return self.F.linear(x, w, b)

    def scale_shift(self, x: Any, scale: Any, shift: Any) -> Any:
        mean, variance = self.statistics[x.shape[1]]
        return self.F.batch_norm(x, mean, variance, scale, shift, eps=0.0)


# ---- each operator


Ways = Iterator[tuple[str, Function]]


def functions(torch: Any, problem: Problem) -> Ways:
    """Names and functions of the operands: what PyTorch has, or the compositions it takes."""
    if problem.layer.op not in ADAPTERS:
        raise Absent(f"no adapter for {problem.layer.op}")
    yield from ADAPTERS[problem.layer.op](torch, problem)


def _named(torch: Any, problem: Problem, name: str) -> Function:
    d = problem.layer.d
    found: Function | None = getattr(torch.nn.functional, f"{name}{d}d", None)
    if found is None:
        raise Absent(f"PyTorch has no {name} with {d} spatial axes")
    return found


def _whole(method: str, adaptive: str) -> Callable[[Any, Problem], Ways]:
    def ways(torch: Any, problem: Problem) -> Ways:
        d = problem.layer.d
        space = tuple(range(-d, 0))
        yield method, lambda x: getattr(x, method)(space, keepdim=True)
        if d <= 3:
            yield adaptive, lambda x: getattr(torch.nn.functional, f"{adaptive}{d}d")(x, 1)

    return ways


def _bins(torch: Any, problem: Problem) -> Ways:
    pool, size = _named(torch, problem, problem.layer.op), problem.layer.resolved.out[2:]
    yield "", lambda x: pool(x, size)


def _conv(torch: Any, problem: Problem) -> Ways:
    at, conv, groups = numbers(problem), _named(torch, problem, "conv"), problem.layer.options.get("groups", 1)
    yield "", lambda x, w, b=None: conv(x, w, b, at.stride, at.padding, at.dilation, groups)


def _conv_transpose(torch: Any, problem: Problem) -> Ways:
    at, up, groups = numbers(problem), _named(torch, problem, "conv_transpose"), problem.layer.options.get("groups", 1)
    yield "", lambda x, w, b=None: up(x, w, b, at.stride, at.padding, at.more, groups, at.dilation)


def _max_pool(torch: Any, problem: Problem) -> Ways:
    at, pool = numbers(problem), _named(torch, problem, "max_pool")
    yield "", lambda x: pool(x, at.kernel, at.stride, at.padding, at.dilation)


def _avg_pool(torch: Any, problem: Problem) -> Ways:
    at, pool = numbers(problem), _named(torch, problem, "avg_pool")
    counted = problem.layer.options.get("count_include_pad", True)
    yield "", lambda x: pool(x, at.kernel, at.stride, at.padding, False, counted)


def _lp_pool(torch: Any, problem: Problem) -> Ways:
    at, pool, p = numbers(problem), _named(torch, problem, "lp_pool"), problem.layer.options["p"]
    if any(at.lo + at.hi):
        raise Absent("PyTorch's lp_pool has no padding")
    # PyTorch takes powers of x itself: |x| makes odd powers mean the same
    kernel, stride = (at.kernel, at.stride) if problem.layer.d > 1 else (at.kernel[0], at.stride[0])
    yield "", lambda x: pool(x if p % 2 == 0 else x.abs(), p, kernel, stride)


def _smooth_max_pool(torch: Any, problem: Problem) -> Ways:
    options = problem.layer.options
    counted = options.get("count_include_pad", True)
    return _smooth(torch, numbers(problem), problem.layer.d, options["beta"], counted)


ADAPTERS: dict[str, Callable[[Any, Problem], Ways]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "smooth_max_pool": _smooth_max_pool,
    "lp_pool": _lp_pool,
    "adaptive_avg_pool": _bins,
    "adaptive_max_pool": _bins,
    "global_avg_pool": _whole("mean", "adaptive_avg_pool"),
    "global_max_pool": _whole("amax", "adaptive_max_pool"),
}


def _smooth(torch: Any, at: Numbers, d: int, beta: float, counted: bool) -> Ways:
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
