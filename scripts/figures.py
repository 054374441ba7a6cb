"""The tables of benchmarks/README.md, written anew from what `lunette bench` saved.

    lunette bench --quick --threads 1; lunette bench --quick --threads 2
    lunette bench --networks --threads 1; lunette bench --networks --threads 2
    python scripts/figures.py benchmarks/*.json

Files whose names begin with quick or networks fill the blocks that they have figures for. Between `<!-- name -->` and
`<!-- /name -->` nothing is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lunette.bench.goals import ALL, JAX, OPENVINO, ORT, TORCH, Goal, goals
from lunette.bench.result import Result, Run, mean

PAGE = Path(__file__).parents[1] / "benchmarks" / "README.md"
Rows = Iterator[Sequence[str]]


def ratio(value: float | None) -> str:
    """Bold where the peer is faster."""
    if value is None:
        return ""
    text = f"{value:.2f}" if value < 10 else f"{value:.3g}"
    return text if value >= 1 else f"**{text}**"


def time(seconds: float | None) -> str:
    """In the unit that leaves three digits."""
    if seconds is None:
        return ""
    factor, unit = next((f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")) if seconds * f >= 1)
    return f"{seconds * factor:.3g} {unit}"


def networks(one: Run, two: Run) -> Rows:
    """Forward, on one thread and on two."""
    peers = (TORCH, ORT, OPENVINO)
    yield ("forward", "one thread", *peers, "two threads", *peers)
    sides = [{r.case: r for r in run.results if (r.op, r.direction) == ("network", "forward")} for run in (one, two)]
    for case in sides[0]:
        yield (case, *(cell for side in sides for cell in _beside(side.get(case), peers)))
    for word, least in (("geometric mean", False), ("least", True)):
        cells = (ratio(_of(side.values(), p, least)) for side in sides for p in ("", *peers))
        yield (word, *cells)


def gradients(one: Run) -> Rows:
    """Value and gradient, on one thread."""
    chosen = [r for r in one.results if (r.op, r.direction) == ("network", "gradient")]
    peers = [p for p in (TORCH, "torch.compile", JAX) if any(r.ratio(p) is not None for r in chosen)]
    yield ("value and gradient", "one thread", *peers)
    for r in chosen:
        yield (r.case, *_beside(r, peers))
    for word, least in (("geometric mean", False), ("least", True)):
        yield (word, "", *(ratio(_of(chosen, p, least)) for p in peers))


def _beside(r: Result | None, peers: Sequence[str]) -> tuple[str, ...]:
    return ("",) * (len(peers) + 1) if r is None else (time(r.lunette), *(ratio(r.ratio(p)) for p in peers))


def _of(results: Iterable[Result], peer: str, least: bool) -> float | None:
    found = [v for r in results if (v := r.ratio(peer)) is not None]
    return (min(found) if least else mean(found)) if found else None


def means(one: Run) -> Rows:
    """One line per operator: beside PyTorch, and beside the fastest of all."""
    directions = ("forward", "jvp", "vjp")
    names = ("forward", "JVP", "VJP")
    yield ("", *(f"{n}: PyTorch" for n in names), *(f"{n}: the best" for n in names))
    single = [r for r in one.results if r.op != "network" and r.dtype == "float32"]
    for op in dict.fromkeys(r.op for r in single):
        groups = [[r for r in single if (r.op, r.direction) == (op, d)] for d in directions]
        beside = [ratio(_of(group, TORCH, False)) for group in groups]
        best = [ratio(mean([b[1] for r in group if (b := r.best(ALL)) is not None])) for group in groups]
        yield (op, *beside, *best)


def reached(one: Run, two: Run) -> Rows:
    """Every goal that either run measured."""
    yield ("what", "goal", "one thread", "met", "two threads", "met")
    sides = [{(g.what, g.goal): g for g in goals(run) if g.met is not None} for run in (one, two)]
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        yield (*key, *(cell for side in sides for cell in _judged(side.get(key))))
    counts = [f"{sum(bool(g.met) for g in side.values())} of {len(side)}" for side in sides]
    yield ("together", "", counts[0], "", counts[1], "")


def _judged(goal: Goal | None) -> tuple[str, str]:
    return ("", "") if goal is None else (goal.measured, "yes" if goal.met else "**no**")


def machine(*runs: Run) -> str:
    """Where and when, with what."""
    facts = ", ".join(f"{k} {v}" for k, v in runs[0].machine.items() if k not in ("load", "system"))
    versions = ", ".join(f"{k} {v}" for k, v in runs[0].versions.items() if k != "copy")
    days = ", ".join(dict.fromkeys(run.when[:10] for run in runs))
    return f"{days}; {facts}; {versions}."


def table(rows: Rows) -> str:
    """As Markdown has it."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(paths: Sequence[str]) -> None:
    """Fill the blocks."""
    quick, whole = (
        {r.threads: r for p in paths if Path(p).name.startswith(word) for r in [Run.load(Path(p))]}
        for word in ("quick", "networks")
    )
    blocks: dict[str, str] = {}
    if whole.keys() >= {1, 2}:
        blocks |= {"networks": table(networks(whole[1], whole[2])), "gradients": table(gradients(whole[1]))}
        blocks["networks-machine"] = machine(*whole.values())
    if quick.keys() >= {1, 2}:
        blocks |= {"means": table(means(quick[1])), "goals": table(reached(quick[1], quick[2]))}
        blocks["machine"] = machine(*quick.values())
    page = PAGE.read_text()
    for name, text in blocks.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, behind = rest.partition(f"<!-- /{name} -->")
        assert begin and end, f"the page has no block {name}"
        page = f"{before}{begin}\n{text}\n\n{end}{behind}"
    PAGE.write_text(page)
    print("wrote", ", ".join(blocks) or "nothing")


if __name__ == "__main__":
    main(sys.argv[1:])
