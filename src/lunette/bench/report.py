"""Tables and the plot of a run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from math import log10
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lunette.bench.goals import ALL, NETS, goals
from lunette.bench.networks import GRADIENT, JVP_ALL, JVP_X
from lunette.bench.result import Result, Run, mean

SHORT = {
    "PyTorch": "PyTorch",
    "PyTorch channels-last": "ch.-last",
    "torch.compile": "compile",
    "JAX": "JAX",
    "ONNX Runtime": "ORT",
    "OpenVINO": "OpenVINO",
}
COLOURS = {
    "PyTorch": "#d1495b",
    "PyTorch channels-last": "#edae49",
    "torch.compile": "#66a182",
    "JAX": "#00798c",
    "ONNX Runtime": "#30638e",
    "OpenVINO": "#8d6cab",
}
MARKS = {
    "PyTorch": "o",
    "PyTorch channels-last": "s",
    "torch.compile": "P",
    "JAX": "^",
    "ONNX Runtime": "D",
    "OpenVINO": "v",
}
OWN = (JVP_X, JVP_ALL, GRADIENT)


def show(run: Run, out: Console) -> None:
    """Everything, longest first: cases, operators, absences, goals."""
    for group in groups(run):
        out.print(own_table(group) if _is_own(group[0]) else cases_table(run, group))
        out.print()
    out.print(summary_table(run))
    out.print()
    for line in absences(run):
        out.print(line, highlight=False, markup=False, style="dim")
    out.print()
    out.print(goals_table(run))
    out.print(limits(run), highlight=False, markup=False)
    if (load := float(run.machine.get("load", 0))) > 1.5 * run.threads:
        out.print(
            f"The machine was busy with other things (load {load:g}): these figures are not to be trusted.", style="red"
        )


def groups(run: Run) -> Iterator[list[Result]]:
    """The results of one operator, direction and dtype at a time."""
    keys = dict.fromkeys((r.dtype, r.op, r.direction) for r in run.results)
    for key in keys:
        yield [r for r in run.results if (r.dtype, r.op, r.direction) == key]


def _is_own(result: Result) -> bool:
    """Whether lunette is beside itself here."""
    return result.direction == "derivatives"


def _peers(result: Result) -> tuple[str, ...]:
    return NETS if result.op == "network" else ALL


def _best(result: Result) -> tuple[str, float] | None:
    return result.best(_peers(result))


def _columns(results: Sequence[Result]) -> list[str]:
    """The peers that take part in any of these."""
    found = {p for r in results for p in _peers(r) if not _is_own(r)}
    return [p for p in SHORT if p in found]


def _name(direction: str) -> str:
    return direction.upper() if direction in ("jvp", "vjp") else direction


def _heading(result: Result) -> str:
    return f"{result.op} {_name(result.direction)}, {result.dtype}"


def _ratio(value: float | None, strong: float = 1.0) -> str:
    if value is None:
        return "[dim]-[/dim]"
    text = f"{value:.1g}" if value < 0.01 else f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return text if value >= strong else f"[bold red]{text}[/bold red]"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def cases_table(run: Run, group: Sequence[Result]) -> Table:
    """Ratios per case: peer time / lunette time."""
    table = Table(title=f"{_heading(group[0])}: peer time / lunette time", title_justify="left", caption_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("lunette", justify="right", no_wrap=True)
    peers = _columns(group)
    for peer in peers:
        table.add_column(SHORT[peer], justify="right", no_wrap=True)
    for name in ("best", "rate", "of limit", "workspace"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in group:
        best = _best(r)
        cells = ["[red]wrong[/red]" if _wrong(r, p) else _ratio(r.ratio(p)) for p in peers]
        rate, share = _rate(run, r)
        work = "-" if r.workspace is None else f"{r.workspace / 2**20:.1f} MiB"
        table.add_row(r.case, _time(r.lunette), *cells, _ratio(best and best[1]), rate, share, work)
    table.add_section()
    means = [_ratio(_mean(group, p)) for p in peers]
    table.add_row("[bold]geometric mean[/bold]", "", *means, _ratio(_mean_of_best(group)), "", "", "")
    if worst := _worst(group):
        r, (peer, ratio) = worst
        table.caption = f"worst: {r.case}, {ratio:.2f}x {peer}"
    return table


def own_table(group: Sequence[Result]) -> Table:
    """Lunette's derivatives as multiples of its forward, with the weights as arguments of both."""
    table = Table(title=f"{_heading(group[0])}: time / forward time", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("forward", justify="right", no_wrap=True)
    for name in OWN:
        table.add_column(name, justify="right", no_wrap=True)
    for r in group:
        table.add_row(r.case, _time(r.lunette), *(_ratio(r.ratio(name)) for name in OWN))
    return table


def _wrong(result: Result, peer: str) -> bool:
    return peer in result.timings and bool(result.timings[peer].mismatch)


def _rate(run: Run, result: Result) -> tuple[str, str]:
    """GFLOP/s against the matrix product, or GB/s against copying the input."""
    if (rate := result.rate()) is None:
        return "-", "-"
    text = f"{rate[0]:.1f} {rate[1]}"
    if result.operations is not None:
        peak = run.peak.get(result.dtype)
        return text, f"{rate[0] / peak:.0%}" if peak else "-"
    return text, f"{result.copy / result.lunette:.0%}" if result.copy and result.lunette else "-"


def _mean(group: Sequence[Result], peer: str) -> float | None:
    return mean([v for r in group if (v := r.ratio(peer)) is not None])


def _mean_of_best(group: Sequence[Result]) -> float | None:
    return mean([best[1] for r in group if (best := _best(r)) is not None])


def _worst(group: Sequence[Result]) -> tuple[Result, tuple[str, float]] | None:
    found = [(r, best) for r in group if (best := _best(r)) is not None]
    return min(found, key=lambda pair: pair[1][1]) if found else None


def summary_table(run: Run) -> Table:
    """One line per operator and direction."""
    title = f"Geometric means of peer time / lunette time, {_threads(run)}: above 1, lunette is faster"
    table = Table(title=title, title_justify="left")
    table.add_column("operator", no_wrap=True)
    table.add_column("cases", justify="right")
    peers = _columns(run.results)
    for name in (*(SHORT[p] for p in peers), "best peer"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worst case against the best peer")
    before = ""
    for group in groups(run):
        if _is_own(group[0]):
            continue
        if before and group[0].op != before:
            table.add_section()
        before = group[0].op
        worst = _worst(group)
        text = f"{worst[1][1]:.2f}x {SHORT[worst[1][0]]}: {worst[0].case}" if worst else "-"
        means = [_ratio(_mean(group, p)) for p in peers]
        table.add_row(_heading(group[0]), str(len(group)), *means, _ratio(_mean_of_best(group)), text)
    return table


def goals_table(run: Run) -> Table:
    """What should be reached, and what was."""
    table = Table(title=f"Goals, {_threads(run)}", title_justify="left", caption_justify="left")
    for name in ("what", "goal", "measured"):
        table.add_column(name)
    table.add_column("met", justify="center")
    words = {True: "[green]yes[/green]", False: "[bold red]no[/bold red]"}
    lines = goals(run)
    for goal in lines:
        if goal.met is not None:
            table.add_row(goal.what, goal.goal, goal.measured, words[goal.met])
    met, known = sum(g.met is True for g in lines), sum(g.met is not None for g in lines)
    table.caption = f"{met} of {known} met; {len(lines) - known} further goals were not measured in this run"
    return table


def absences(run: Run) -> Iterator[str]:
    """Who is missing where and why, and who was wrong."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for r in run.results:
        for peer, timing in r.timings.items():
            if timing.absent:
                found.setdefault((peer, "absent", timing.absent), []).append(r)
            if timing.mismatch:
                found.setdefault((peer, "wrong, not counted", timing.mismatch), []).append(r)
            for way, why in timing.dropped.items():
                found.setdefault((peer, f"dropped {way}", why), []).append(r)
    for (peer, what, why), where in sorted(found.items()):
        names = dict.fromkeys(f"{r.op} {r.direction} {r.case}" for r in where)
        few = ", ".join(list(names)[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        yield f"{peer}: {what}: {why} ({few})"


def limits(run: Run) -> str:
    """The machine, and what its limits were in this run."""
    peaks = ", ".join(f"{p:.0f} GFLOP/s in {t}" for t, p in run.peak.items())
    facts = ", ".join(f"{k} {v}" for k, v in run.machine.items())
    versions = ", ".join(f"{k} {v}" for k, v in run.versions.items())
    return (
        f"Limits in this run: best matrix product {peaks}; pools against the time to copy their input (np.copyto).\n"
        "VJP: the backward pass alone; PyTorch keeps its graph, lunette and JAX start from x. "
        "JVP: PyTorch (torch.func.jvp) computes the value too. "
        "Networks' gradient: forward and backward, for everyone.\n"
        "Workspace: the peak of one call beyond operands and results, by the system's count of resident memory.\n"
        f"{run.when}, {_threads(run)}; {facts}\n{versions}"
    )


def _threads(run: Run) -> str:
    return "one thread, one pinned process" if run.threads == 1 else f"{run.threads} threads, a process per library"


# ---- the plot


def plot(run: Run, paths: Sequence[Path]) -> None:
    """Ratios of every case on a logarithmic axis: a row per case, a column per direction, a mark per peer."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    rows = list(dict.fromkeys((r.dtype, r.op, r.case) for r in run.results if not _is_own(r)))
    directions = [d for d in ("forward", "jvp", "vjp", "gradient") if any(r.direction == d for r in run.results)]
    left, wide, tall = 3.4, 3.6, 0.17 * len(rows)  # in inches, so that text has its room whatever the number of rows
    top, bottom = 1.25, 0.35
    width, height = left + wide * len(directions) + 0.2, top + tall + bottom
    figure, axes = plt.subplots(1, len(directions), figsize=(width, height), sharey=True, squeeze=False)
    edges = {"left": left / width, "right": 1 - 0.2 / width, "top": 1 - top / height, "bottom": bottom / height}
    figure.subplots_adjust(**edges, wspace=0.06)
    place = {key: at for at, key in enumerate(rows)}
    for ax, direction in zip(axes[0], directions, strict=True):
        _column(ax, run, direction, place)
    _names(axes[0][0], rows)
    found = [p for p in _columns(run.results) if any(r.ratio(p) is not None for r in run.results)]
    handles = [matplotlib.lines.Line2D([], [], color=COLOURS[p], marker=MARKS[p], ls="", label=p) for p in found]
    title = f"peer time / lunette time, {_threads(run)}: right of 1, lunette is faster"
    figure.suptitle(title, x=0.01, y=1 - 0.12 / height, ha="left", va="top", fontsize=11)
    where = (0.005, 1 - 0.36 / height)
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=where, ncol=len(SHORT), frameon=False, fontsize=9)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    plt.close(figure)


def _column(ax: Any, run: Run, direction: str, place: dict[tuple[str, str, str], int]) -> None:
    ratios = [v for r in run.results for p in _peers(r) if (v := r.ratio(p)) is not None]
    low, high = min([*ratios, 0.5]) / 1.3, max([*ratios, 2.0]) * 1.3
    for r in run.results:
        if r.direction != direction:
            continue
        y = place[r.dtype, r.op, r.case]
        marks = [(v, p) for p in _peers(r) if (v := r.ratio(p)) is not None]
        if marks:
            ax.plot([min(marks)[0], max(marks)[0]], [y, y], color="#00000022", lw=1, zorder=1)
        for value, peer in marks:
            ax.plot(value, y, MARKS[peer], color=COLOURS[peer], ms=4.5, mec="white", mew=0.4, zorder=3)
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.axvspan(low, 1, color="#d1495b", alpha=0.06, lw=0)
    ax.axvline(1, color="black", lw=0.9)
    for decade in range(int(log10(low)) - 1, int(log10(high)) + 2):
        ax.axvline(10.0**decade, color="#00000018", lw=0.6, zorder=0)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}x")
    ax.xaxis.set_ticks_position("both")
    ax.tick_params(axis="x", labelsize=8, labeltop=True)
    ax.set_title(_name(direction), fontsize=10)
    ax.grid(axis="y", color="#0000000c")
    for side in ("right", "left"):
        ax.spines[side].set_visible(False)


def _names(ax: Any, rows: Sequence[tuple[str, str, str]]) -> None:
    """Case names at the left, an operator's name where it begins, a line between operators."""
    ax.set_yticks(range(len(rows)), [case for _, _, case in rows], fontsize=7)
    ax.set_ylim(len(rows) - 0.3, -0.7)
    many = len({dtype for dtype, _, _ in rows}) > 1
    before = ("", "")
    for at, (dtype, op, _) in enumerate(rows):
        if (dtype, op) != before:
            before = dtype, op
            for other in ax.figure.axes:
                other.axhline(at - 0.5, color="#00000055", lw=0.6)
            name = f"{op} {dtype}" if many else op
            ax.annotate(
                name, (0, at), xycoords=("axes fraction", "data"), xytext=(-128, 0), textcoords="offset points",
                fontsize=8, fontweight="bold", ha="right", va="center",
            )  # fmt: skip
