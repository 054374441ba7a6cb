"""The command `lunette bounds`, for saved graphs and ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lunette.errors import LunetteError
from lunette.files import kind_of
from lunette.number import Array, Interval
from lunette.onnx.command import SHAPES, read_graph
from lunette.relax.bounds import bounds
from lunette.relax.given import METHODS
from lunette.relax.report import MOST_ROWS

out = Console()


def bounds_command(
    network: Annotated[Path, typer.Argument(help="a graph that Graph.save wrote, or an ONNX file")],
    center: Annotated[Path, typer.Option(help="the centre of the box, .npy")],
    radius: Annotated[float, typer.Option(min=0.0, help="how far every cell may be from the centre")] = 0.0,
    method: Annotated[str, typer.Option(help=f"one of {', '.join(METHODS)}")] = "crown",
    rows: Annotated[Path | None, typer.Option(help="a matrix of rows, .npy: bounds of rows @ output")] = None,
    semantics: Annotated[str, typer.Option(help="real or float")] = "real",
    steps: Annotated[int, typer.Option(min=0, help="steps of optimised")] = 20,
    memory: Annotated[int, typer.Option(min=0, help="bytes of what is computed at once")] = 2**30,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="keep what is proven by then")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page to look at here; it needs no network")] = None,
) -> None:
    """Prove bounds of a network's output over a box.

    \b
    lunette bounds net.json --center image.npy --radius 0.01
    lunette bounds net.onnx --center image.npy --radius 0.01 --method optimised --html bounds.html
    """  # noqa: D301 (a backspace, not a backslash, is what keeps lines apart)
    try:
        graph = read_graph(network, shape)
    except (LunetteError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="NETWORK") from error
    if len(graph.inputs) != 1:
        raise typer.BadParameter(f"{network} has {len(graph.inputs)} inputs, not one", param_hint="NETWORK")
    n = graph.inputs[0]
    x = _array(center, "--center")
    if x.size != int(np.prod(n.shape)):
        raise typer.BadParameter(f"{center} has shape {x.shape}, the input {n.shape}", param_hint="--center")
    middle = x.astype(np.float64).reshape(n.shape)
    box = Interval(np.nextafter(middle - radius, -np.inf), np.nextafter(middle + radius, np.inf)) if radius else middle
    wanted = None if rows is None else _array(rows, "--rows")
    with Progress(transient=True) as bar:
        task = bar.add_task("bounds", total=None)

        def progress(what: str, done: int, whole: int) -> None:
            bar.update(task, description=what, completed=done, total=whole)

        own = Interval(middle, middle) if box is middle else box
        found = bounds(
            graph,
            own,
            method=method,
            rows=wanted,
            semantics=semantics,
            steps=steps,
            memory=memory,
            progress=progress,
            seconds=seconds,
        )
    lo, hi = found.lo.reshape(-1), found.hi.reshape(-1)
    table = Table("row", "lower", "upper", "width")
    for at in range(min(len(lo), MOST_ROWS)):
        table.add_row(str(at), f"{lo[at]:.9g}", f"{hi[at]:.9g}", f"{hi[at] - lo[at]:.3g}")
    out.print(table)
    if len(lo) > MOST_ROWS:
        out.print(f"and {len(lo) - MOST_ROWS} more", highlight=False)
    stopped = f", {found.stopped}" if found.stopped else ""
    out.print(f"{found.method}, semantics {found.semantics}, {found.seconds:.2f} s{stopped}", highlight=False)
    if html is not None:
        found.to_html(html)
        out.print(f"wrote {html}", highlight=False)


def _array(path: Path, word: str) -> Array:
    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        raise typer.BadParameter(f"{path} is no .npy file: {error}", param_hint=word) from error
    except ValueError as error:  # NumPy's words are about pickles
        got, _ = kind_of(path) or (f"{path}", "")
        raise typer.BadParameter(
            f"an array in a .npy file (np.save) is expected; got {got}", param_hint=word
        ) from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        raise typer.BadParameter(f"{path} holds no array of numbers", param_hint=word)
    whole: Array = found
    return whole
