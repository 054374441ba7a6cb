"""The command `lunette check`, for saved graphs and ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from lunette.certificate.certificate import Certificate, check
from lunette.errors import LunetteError
from lunette.onnx.command import GRAPH, SHAPES, read_network

out = Console()


def check_command(
    network: Annotated[Path, typer.Argument(help=GRAPH)],
    certificate: Annotated[Path, typer.Argument(help="a certificate: of lunette verify, or of b.certificate().save")],
    spec: Annotated[Path | None, typer.Option(help="the property that it is to prove, .vnnlib or .vnnlib.gz")] = None,
    semantics: Annotated[
        Literal["real", "float"] | None,
        typer.Option(help="refuse a proof of the other: real is of exact numbers, float of every execution in floats"),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
) -> None:
    """Replay a certificate in exact integers. Status 0 only if it proves the property of --spec of this network.

    Status 1: it does not. Without --spec, status 3: the statement that it proves is printed, and is nobody's wish.

    \b
    lunette check net.onnx net.certificate --spec spec.vnnlib
    """  # noqa: D301 (a backspace, not a backslash, is what keeps lines apart)
    try:
        graph, _ = read_network(network, shape)
    except (LunetteError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="NETWORK") from error
    for path, hint in ((certificate, "CERTIFICATE"), (spec, "--spec")):
        if path is not None and not path.is_file():
            raise typer.BadParameter(f"there is no file {path}", param_hint=hint)
    found = check(graph, Certificate.load(certificate), spec, semantics=semantics)
    if not found.ok:
        out.print(f"refused: {found.reason}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    if spec is None:
        out.print(str(found.statement), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3)
    assert found.statement is not None
    told = f"proven ({found.grade}, semantics {found.statement.semantics}): no input satisfies {spec}"
    out.print(told, markup=False, highlight=False, soft_wrap=True)
