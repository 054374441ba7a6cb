"""`lunette bench --onnx FOLDER`: the models of a folder, what lunette does with each, and times beside ONNX Runtime.

Sizes that a model leaves open are 1. Times are those of the fastest of some runs in turns, on one thread. Rounded
arithmetic, exact numbers and gradients are asked for where they take seconds, not hours: what is left out is shown as
such, with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console

import lunette as ln
from lunette.graph.graph import Graph
from lunette.number import Array, Interval

COLUMNS: Final = (
    *("network", "nodes", "read", "fast", "ONNX Runtime", "difference"),
    *("interval", "rounded", "exact", "gradient"),
)
MOST_ROUNDED: Final = 3e8
MOST_EXACT: Final = 3e6
"""Operations of a network that is run in these: about a minute on one core."""
RADIUS: Final = 2.0**-8


def show(folder: Path, console: Console) -> None:
    """Print the table, row by row as it is made, in the form that docs/onnx.md has it."""
    console.print(f"| {' | '.join(COLUMNS)} |", highlight=False, markup=False, soft_wrap=True)
    console.print("|" + "---|" * len(COLUMNS), highlight=False, markup=False)
    for path in sorted(p for p in folder.rglob("*") if p.name.endswith((".onnx", ".onnx.gz"))):
        cells = row(path, str(path.relative_to(folder)))
        console.print(f"| {' | '.join(cells)} |", highlight=False, markup=False, soft_wrap=True)


def row(path: Path, name: str) -> list[str]:
    """One network, or the refusal."""
    before = ln.get_num_threads()
    ln.set_num_threads(1)
    try:
        start = time.perf_counter()
        graph = ln.from_onnx(path, open_shapes(path))
        took = time.perf_counter() - start
        return [name, str(len(graph.nodes)), _ms(took), *_columns(path, graph)]
    except ln.LunetteError as error:
        return [name, f"refused: {error}", *[""] * (len(COLUMNS) - 2)]
    finally:
        ln.set_num_threads(before)


def open_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Ones for the sizes that a model leaves open."""
    from lunette.onnx.file import load

    model, _ = load(path)
    known = {t.name for t in model.graph.initializer}
    found = {}
    for v in model.graph.input:
        sizes = [d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in v.type.tensor_type.shape.dim]
        if v.name not in known and None in sizes:
            found[v.name] = tuple(1 if s is None else s for s in sizes)
    return found


def _columns(path: Path, graph: Graph) -> list[str]:
    rng = np.random.default_rng(0)
    inputs = [rng.random(n.shape).astype(n.dtype) for n in graph.inputs]
    program = graph.compile()
    work = program.stats(*inputs, repeat=1).flops
    theirs = _session(path, graph, inputs)
    ours, other = _in_turns(lambda: program(*inputs), theirs)
    y, z = program(*inputs), theirs()
    boxes = [Interval(a - a.dtype.type(RADIUS), a + a.dtype.type(RADIUS)) for a in inputs]
    box = program.run(*boxes, arithmetic="interval")
    inside = all(bool(((b.lo <= v) & (v <= b.hi)).all()) for b, v in zip(_tuple(box), _tuple(y), strict=True))
    return [
        _ms(ours),
        _ms(other),
        _difference(_tuple(y), z),
        _ms(_again(lambda: program.run(*boxes, arithmetic="interval"))) if inside else "unsound",
        _ms(_again(lambda: program.run(*inputs, arithmetic="rounded"))) if work <= MOST_ROUNDED else "long",
        _ms(_once(lambda: graph.eval(*inputs, number=Fraction))) if _is_exact(graph, work) else _why(graph, work),
        _gradient(program, inputs),
    ]


def _is_exact(graph: Graph, work: float) -> bool:
    return work <= MOST_EXACT and not _curved(graph)


def _why(graph: Graph, work: float) -> str:
    return "irrational" if _curved(graph) else "long"


def _curved(graph: Graph) -> bool:
    return any(n.kind is not None and n.kind.needs == "exp" for n in graph.nodes)


def _gradient(program: Any, inputs: list[Array]) -> str:
    y, pullback = program.vjp(*inputs)
    ones = tuple(np.ones(v.shape, v.dtype) for v in _tuple(y))
    g = ones if len(ones) > 1 else ones[0]
    return _ms(_again(lambda: pullback(g)))


def _session(path: Path, graph: Graph, inputs: list[Array]) -> Callable[[], list[Array]]:
    import onnxruntime

    from lunette.onnx.file import content

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(content(path), options)
    given = {n.name: a for n, a in zip(graph.inputs, inputs, strict=True)}
    return lambda: list(session.run(None, given))


def _in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """The fastest of as many runs as fit into half a second: whatever else a machine does makes runs longer."""
    for f in (ours, theirs):
        f()
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end or len(times[0]) < 3:
        for f, kept in zip((ours, theirs), times, strict=True):
            kept.append(_once(f))
    return min(times[0]), min(times[1])


def _again(f: Callable[[], Any]) -> float:
    """The fastest of three runs behind the first, which compiles."""
    f()
    return min(_once(f) for _ in range(3))


def _once(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def _difference(y: tuple[Any, ...], z: list[Array]) -> str:
    """The greatest difference, by the greatest cell."""
    worst = 0.0
    for a, b in zip(y, z, strict=True):
        wide = np.asarray(b, np.float64)
        worst = max(worst, float(np.abs(np.asarray(a, np.float64) - wide).max() / max(np.abs(wide).max(), 1e-300)))
    return f"{worst:.0e}" if worst else "0"


def _tuple(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


def _ms(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"
