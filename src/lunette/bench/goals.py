"""What should be reached, computed from what was measured. A goal without data is open, not met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lunette.bench.figures import COMPILE, GRAD_CHAIN, JVP_CHAIN, OVERHEAD
from lunette.bench.networks import GRADIENT, JVP_ALL, JVP_X
from lunette.bench.result import Result, Run, mean
from lunette.bench.with_jax import LOGADDEXP
from lunette.ops import KINDS

TORCH, LAST, JAX, ORT, OPENVINO = "PyTorch", "PyTorch channels-last", "JAX", "ONNX Runtime", "OpenVINO"
COMPILED = "torch.compile"
ALL = (TORCH, LAST, JAX, ORT, OPENVINO)
NETS = (TORCH, COMPILED, JAX, ORT, OPENVINO)
"""Who takes part in networks."""
POOLS = ("max_pool", "avg_pool")
OTHERS = ("adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "global_max_pool", "lp_pool")
LIMIT = 32 * 2**20
WORKSPACE = 8 * 2**20
"""What a program may take for each thread beside its activations."""


@dataclass(frozen=True)
class Goal:
    """One line of the goals table."""

    what: str
    goal: str
    measured: str
    met: bool | None
    """None: nothing was measured for it."""


Pick = Callable[[Result], float | None]


def _values(results: Iterable[Result], pick: Pick) -> list[tuple[float, Result]]:
    return [(v, r) for r in results if (v := pick(r)) is not None]


def _at_least(what: str, goal: float, results: Sequence[Result], pick: Pick, than: str) -> Goal:
    """The geometric mean of some ratio."""
    values = [v for v, _ in _values(results, pick)]
    found = mean(values)
    cases = f"{len(values)} case{'s' if len(values) > 1 else ''}"
    text = "not measured" if found is None else f"{found:.3g}x ({cases})"
    return Goal(what, f"≥ {goal:g}x {than}, geometric mean", text, None if found is None else found >= goal)


def _none_below(what: str, goal: float, results: Sequence[Result], pick: Pick, than: str) -> Goal:
    values = _values(results, pick)
    if not values:
        return Goal(what, f"none below {goal:g}x {than}", "not measured", None)
    least, where = min(values, key=lambda pair: pair[0])
    return Goal(what, f"none below {goal:g}x {than}", f"{least:.3g}x ({where.op} {where.case})", least >= goal)


def _at_most(what: str, goal: float, values: Sequence[tuple[float, Result]], unit: str) -> Goal:
    if not values:
        return Goal(what, f"≤ {goal:g} {unit}", "not measured", None)
    most, where = max(values, key=lambda pair: pair[0])
    return Goal(what, f"≤ {goal:g} {unit}", f"{most:.2f} ({where.op} {where.case})", most <= goal)


def _all_at_most(what: str, goal: float, values: Sequence[tuple[float, Result]], unit: str) -> Goal:
    """The worst of several, and how many are within the goal: one case may hide what the others do."""
    worst = _at_most(what, goal, values, unit)
    if not values:
        return worst
    within = sum(v <= goal for v, _ in values)
    return replace(worst, measured=f"{worst.measured}, {within} of {len(values)} within")


def _two_apart(r: Result) -> bool:
    """The windows of networks: their cells are read once, or little more."""
    kernel, stride = tuple(r.options["kernel"]), r.options.get("stride")
    return (kernel == (3, 3) and stride == 2) or (kernel == (2, 2) and stride in (None, 2))


def to(peer: str) -> Pick:
    """The ratio to one peer."""
    return lambda r: r.ratio(peer)


def to_best(*peers: str) -> Pick:
    """The ratio to the fastest of these peers."""
    return lambda r: None if (best := r.best(peers)) is None else best[1]


def goals(run: Run) -> list[Goal]:
    """Every goal of this run's dtypes."""
    single = [r for r in run.results if r.dtype == "float32" and r.op != "network"]
    double = [r for r in run.results if r.dtype == "float64"]
    lines: list[Goal] = []
    if single:
        lines += [*_pools(single), *_smooth(single), *_others(single), *_convolutions(single), _overhead(single)]
    if double:
        lines += _double(double)
    networks = [r for r in run.results if r.op == "network"]
    if networks:
        lines += [*_networks(networks), *_network_memory(networks, run.threads), *_figures(run)]
    return [*lines, _memory(run)]


def _of(results: Sequence[Result], op: str, direction: str = "forward", tag: str | None = None) -> list[Result]:
    return [r for r in results if r.op == op and r.direction == direction and (tag is None or tag in r.tags)]


def _pools(results: Sequence[Result]) -> Iterator[Goal]:
    for op in POOLS:
        forward = _of(results, op)
        for d, goal in ((2, 10), (3, 10), (1, 4)):
            yield _at_least(f"{op} forward, {d}-D", goal, [r for r in forward if r.d == d], to(TORCH), TORCH)
        yield _at_least(f"{op} forward", 2, forward, to_best(*ALL), "the best peer")
        yield _none_below(f"{op} forward", 1, forward, to_best(*ALL), "the best peer")
        beyond = [(r.lunette / r.copy, r) for r in forward if "beyond" in r.tags and r.lunette and r.copy]
        yield _at_most(f"{op} forward beyond the cache", 1.3, beyond, "x the time to copy the input")
        short = [(r.lunette / r.copy, r) for r in forward if _two_apart(r) and r.lunette and r.copy]
        yield _all_at_most(f"{op} forward, 3x3 stride 2 and 2x2", 1.0, short, "x the time to copy the input")
        for direction in ("vjp", "jvp"):
            yield _at_least(f"{op} {direction.upper()}", 3, _of(results, op, direction), to(TORCH), TORCH)
    small, large = _of(results, "max_pool", tag="window5"), _of(results, "max_pool", tag="window31")
    both = [(b.lunette / a.lunette, b) for a, b in zip(small, large, strict=False) if a.lunette and b.lunette]
    yield _at_most("max_pool 31x31, stride 1", 1.5, both, "x the 5x5 time")


def _smooth(results: Sequence[Result]) -> Iterator[Goal]:
    def to_logaddexp(r: Result) -> float | None:
        """The way the goal names, by its trial; where JAX cannot take it, JAX's fastest."""
        trial = r.timings[JAX].ways.get(LOGADDEXP) if JAX in r.timings else None
        return r.ratio(JAX) if trial is None or r.lunette is None else trial / r.lunette

    for direction, goal in (("forward", 10), ("jvp", 10), ("vjp", 6)):
        name = f"smooth_max_pool {direction if direction == 'forward' else direction.upper()}"
        chosen = _of(results, "smooth_max_pool", direction)
        yield _at_least(name, goal, chosen, to_best(TORCH, LAST), "the best PyTorch composition")
        named = any(LOGADDEXP in r.timings[JAX].ways for r in chosen if JAX in r.timings)
        than = "JAX reduce_window(logaddexp)" if named or not chosen else "JAX's fastest (no reverse mode of logaddexp)"
        yield _at_least(name, 5, chosen, to_logaddexp, than)


def _others(results: Sequence[Result]) -> Iterator[Goal]:
    for op in OTHERS:
        for direction in ("forward", "jvp", "vjp"):
            name = f"{op} {direction if direction == 'forward' else direction.upper()}"
            yield _at_least(name, 3, _of(results, op, direction), to(TORCH), TORCH)


def _convolutions(results: Sequence[Result]) -> Iterator[Goal]:
    for direction, name in (("forward", "forward"), ("vjp", "VJP")):
        nets = _of(results, "conv", direction, "nets")
        what = f"conv {name}: ResNet, VGG, U-Net"
        yield _at_least(what, 1.1, nets, to(TORCH), TORCH)
        yield _at_least(what, 1.1, nets, to_best(*ALL), "the best peer")
        yield _none_below(what, 0.9, nets, to_best(*ALL), "the best peer")
        same = _of(results, "conv", direction, "3x3")
        yield _at_least(f"stretch: conv {name} 3x3 stride 1", 1.15, same, to_best(*ALL), "the best peer")
        for tag in ("dilated", "grouped", "1-D", "3-D"):
            yield _at_least(f"conv {name}, {tag}", 1.0, _of(results, "conv", direction, tag), to(TORCH), TORCH)
        depthwise = _of(results, "conv", direction, "depthwise")
        yield _at_least(f"conv {name}, depthwise", 2.0, depthwise, to(TORCH), TORCH)
        yield _at_least(f"conv {name}, depthwise", 1.2, depthwise, to_best(*ALL), "the best peer")
        yield _at_least(f"conv {name}, 4-D", 2.0, _of(results, "conv", direction, "4-D"), to(JAX), JAX)
        yield _at_least(f"conv_transpose {name}", 1.0, _of(results, "conv_transpose", direction), to(TORCH), TORCH)


def _networks(results: Sequence[Result]) -> Iterator[Goal]:
    """What holds on the average, and whether it holds in every network: a mean hides one."""
    forward = ((TORCH, 1.2, 1.2), (COMPILED, 1.0, 1.0), (ORT, 1.05, 0.9), (OPENVINO, 1.0, 0.9))
    gradient = ((TORCH, 1.5, 1.1), (COMPILED, 1.5, 1.1), (JAX, 1.5, 1.5))
    for direction, name, wanted in (
        ("forward", "networks forward", forward),
        ("gradient", "networks value and gradient", gradient),
    ):
        chosen = _of(results, "network", direction)
        for peer, on_average, each in wanted:
            yield _at_least(name, on_average, chosen, to(peer), peer)
            yield _none_below(name, each, chosen, to(peer), peer)
    own = _of(results, "network", "derivatives")
    for what, goal in ((JVP_X, 2.2), (JVP_ALL, 3.3), (GRADIENT, 3.3)):
        yield _at_most(f"networks: {what}", goal, _values(own, to(what)), "x forward")


def _network_memory(results: Sequence[Result], threads: int) -> Iterator[Goal]:
    """As the plan says, and as the system counts: the second has the kernels' own workspace too."""
    forward = [r for r in _of(results, "network") if r.memory]
    arena = [(r.memory["arena"] / max(r.memory["largest live set"], 1), r) for r in forward]
    yield _at_most("networks forward: activations as planned", 1.15, arena, "x the largest live set")
    resident = [(r, r.workspace) for r in forward if r.workspace is not None]
    what = "networks forward: activations and workspace"
    granted = WORKSPACE * threads
    live = [(max(bytes_ - granted, 0) / max(r.memory["largest live set"], 1), r) for r, bytes_ in resident]
    yield _at_most(what, 1.15, live, "x the largest live set, beside 8 MiB for each thread")
    torch = [(bytes_ / r.memory[TORCH], r) for r, bytes_ in resident if r.memory.get(TORCH, 0) > 0]
    yield _at_most(what, 1, torch, "x PyTorch under inference_mode")


def _figures(run: Run) -> Iterator[Goal]:
    for name in (COMPILE, GRAD_CHAIN, JVP_CHAIN):
        found = run.figures.get(name)
        text = "not measured" if found is None else f"{found:.2f} s"
        yield Goal(name, "< 1 s", text, None if found is None else found < 1)
    extra = {n.removeprefix(f"{OVERHEAD}: "): s for n, s in run.figures.items() if n.startswith(OVERHEAD)}
    what, goal = "ln.vjp of one operator on small arrays", "≤ 15 µs beyond its forward and VJP kernels"
    text = ", ".join(f"{op} {s * 1e6:.1f} µs" for op, s in extra.items()) or "not measured"
    yield Goal(what, goal, text, max(extra.values()) <= 15e-6 if extra else None)


def _overhead(results: Sequence[Result]) -> Goal:
    what, goal = "call overhead: max_pool 1x16x8x8, 10,000 calls", "not above F.max_pool2d"
    for r in _of(results, "max_pool", tag="tiny"):
        if (mine := r.lunette) is not None and (theirs := r.seconds(TORCH)) is not None:
            text = f"{mine * 1e6:.2f} µs, PyTorch {theirs * 1e6:.2f} µs"
            return Goal(what, goal, text, mine <= theirs)
    return Goal(what, goal, "not measured", None)


def _double(results: Sequence[Result]) -> Iterator[Goal]:
    for op in dict.fromkeys(r.op for r in results):
        pool = not KINDS[op].weighted
        for direction in dict.fromkeys(r.direction for r in results):
            chosen = _of(results, op, direction)
            name = f"float64 {op} {direction if direction == 'forward' else direction.upper()}"
            yield _at_least(name, 5 if pool else 1.1, chosen, to(TORCH), TORCH)
            yield _none_below(name, 0.85, chosen, to(TORCH), TORCH)


def _memory(run: Run) -> Goal:
    """Weights may be packed: their size is granted once, beside the workspace."""
    what, goal = "memory of one call", "≤ 32 MiB per thread beyond operands, results, packed weights"
    sizes = [(r.workspace - _weights(r), r) for r in run.results if r.workspace is not None and r.op != "network"]
    if not sizes:
        return Goal(what, goal, "not measured", None)
    most, where = max(sizes, key=lambda pair: pair[0])
    text = f"{max(most, 0) / 2**20:.1f} MiB ({where.op} {where.direction} {where.case})"
    return Goal(what, goal, text, most <= LIMIT * run.threads)


def _weights(result: Result) -> int:
    cells = 1
    for n in result.shapes[1] if len(result.shapes) > 1 else (0,):
        cells *= n
    return cells * (4 if result.dtype == "float32" else 8)
