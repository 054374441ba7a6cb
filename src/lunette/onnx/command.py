"""`lunette import`, and how the command line reads the files of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lunette.errors import LunetteError
from lunette.graph.graph import Graph, load
from lunette.onnx import from_onnx
from lunette.onnx.file import load as load_model
from lunette.window import Shape

GRAPH = "a graph that graph.save(FILE) wrote, or an ONNX model, .onnx or .onnx.gz"
SHAPES = "the sizes of an input that an ONNX model leaves open: x=1,3,32,32 (may be repeated)"


def is_onnx(path: Path) -> bool:
    """Whether a file is a model of ONNX, by its name."""
    return path.name.lower().endswith((".onnx", ".onnx.gz"))


def read_graph(path: Path, shapes: list[str] | None = None) -> Graph:
    """The graph in a file, ours or one of ONNX."""
    if is_onnx(path):
        return from_onnx(path, dict(map(_shape, shapes or [])))
    if shapes:
        raise typer.BadParameter("a saved graph has all its sizes", param_hint="--shape")
    return load(path)


def read_network(path: Path, shapes: list[str] | None = None) -> tuple[Graph, str]:
    """The graph in a file, and what was assumed: sizes that an ONNX file leaves open are 1."""
    try:
        return read_graph(path, shapes), ""
    except LunetteError as error:
        if not is_onnx(path) or shapes or error.rule != "NX7":
            raise
    model, _ = load_model(path)
    known = {t.name for t in model.graph.initializer}
    sizes = {
        v.name: tuple(d.dim_value if d.WhichOneof("value") == "dim_value" and d.dim_value > 0 else 1 for d in dims)
        for v in model.graph.input
        if v.name not in known and (dims := v.type.tensor_type.shape.dim)
    }
    return from_onnx(path, sizes), f"sizes that the file leaves open are 1: {sizes}"


def stem_of(path: Path) -> Path:
    """The path without its ending, .onnx.gz as one."""
    return path.with_suffix("").with_suffix("") if path.suffix == ".gz" else path.with_suffix("")


def _shape(words: str) -> tuple[str, Shape]:
    name, _, sizes = words.rpartition("=")
    try:
        return name, tuple(int(n) for n in sizes.split(",") if n)
    except ValueError:
        hint = f"{words!r} is no shape of an input: write x=1,3,32,32"
        raise typer.BadParameter(hint, param_hint="--shape") from None


def import_model(
    file: Annotated[Path, typer.Argument(help="an ONNX model, .onnx or .onnx.gz")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="default: FILE with the ending .json")] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
) -> None:
    """Read an ONNX model and save it as a graph: a readable JSON file, and its weights in an npz file beside it.

    lunette import net.onnx -o net.json --shape input=1,3,32,32
    """
    graph = from_onnx(file, dict(map(_shape, shape or [])))
    target = output or stem_of(file).with_suffix(".json")
    graph.save(target)
    Console().print(f"wrote {target}: {graph!r}", soft_wrap=True, highlight=False, markup=False)
