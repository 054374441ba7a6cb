"""The commands `lunette conform` and `lunette diff`."""

from __future__ import annotations

import ast
import importlib.util
import json as json_format
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lunette.errors import meant

if TYPE_CHECKING:
    from lunette.conform.result import Report

out = Console()


def conform(
    backend: Annotated[
        str, typer.Argument(help="torch, jax, ...; or module:function with --as; or a report that --json wrote")
    ],
    op: Annotated[list[str] | None, typer.Option(help="only this operator (may be repeated)")] = None,
    as_op: Annotated[
        str | None, typer.Option("--as", help="what module:function is meant to be: an operator, or bounds")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(min=1, help="ask so many, all operators together; default: thousands")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="which cases: the same seed asks the same questions")] = 0,
    modes: Annotated[
        list[str] | None, typer.Option("--modes", "--mode", help="only these: forward,indices,jvp,vjp")
    ] = None,
    ranks: Annotated[list[str] | None, typer.Option(help="only these numbers of spatial axes: 1,2")] = None,
    dtypes: Annotated[list[str] | None, typer.Option(help="only these: float32,float64,float16,bfloat16")] = None,
    jvp: Annotated[str | None, typer.Option(help="the JVP of module:function: a name beside it, or another's")] = None,
    vjp: Annotated[str | None, typer.Option(help="the VJP of module:function: a name beside it, or another's")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; default: one per core")] = None,
    known: Annotated[Path | None, typer.Option(help="a file of accepted differences, each with its reason")] = None,
    json: Annotated[Path | None, typer.Option(help="write everything here, to read again or to compare")] = None,
    junit: Annotated[Path | None, typer.Option(help="write tests for CI here (XML)")] = None,
    sarif: Annotated[Path | None, typer.Option(help="write results for code review here (SARIF 2.1.0)")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page to look at here; it needs no network")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="keep a journal here: a run that was stopped goes on, one that ended begins anew"),
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="a Dask scheduler, tcp://HOST:8786: run on its workers")] = None,
) -> None:
    """Measure anyone's operators against the true answer.

    Every case is computed exactly, in processes that may crash or hang. What is
    wrong is reduced to the smallest configuration that shows it, classified by the
    rule it breaks, and printed with a line that reproduces it.

    \b
    lunette conform torch                                   all operators, both derivatives
    lunette conform onnxruntime --op max_pool --cases 500   one operator, a short look
    lunette conform mymodule:my_pool --as max_pool          your own function
    lunette conform mymodule:my_bounds --as bounds          bounds of networks: (network, lo, hi) -> (lo, hi)
    lunette conform my:pool --as max_pool --vjp back --ranks 2 --dtypes float32
    lunette conform torch --html torch.html --json torch.json
    lunette conform torch.json --html again.html            a report from a file, nothing is run

    Exit status: 0 if everything agrees or is known, 1 if something is wrong or a
    known difference is gone, 2 if the run could not begin or was interrupted before
    it found something.
    """  # noqa: D301 (the backspace keeps the lines of examples apart)
    wide = out if out.is_terminal else Console(width=140)
    if backend.endswith(".json"):
        _nothing_is_run(op, as_op, cases, seed, modes, ranks, dtypes, jvp, vjp, workers, known, resume, scheduler)
        report = _read(Path(backend))
    else:
        name = _name(backend, as_op, {"jvp": jvp, "vjp": vjp})
        limits = {"ops": _words(op), "modes": _words(modes), "dtypes": _words(dtypes), "ranks": _numbers(ranks)}
        report = _measured(name, limits, cases, seed, workers, known, resume, scheduler)
    from lunette.conform.report.text import show

    show(report, wide)
    for path in write(report, json=json, junit=junit, sarif=sarif, html=html, place=_place(backend)):
        wide.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
    if not report.complete and resume is not None:
        wide.print(f"go on with: --resume {resume}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(report.exit_status)


def _measured(
    backend: str,
    limits: Mapping[str, Any],
    cases: int | None,
    seed: int,
    workers: int | None,
    known: Path | None,
    journal: Path | None,
    scheduler: str | None,
) -> Report:
    from lunette.conform.case import MODES
    from lunette.ops import KINDS

    for name, words, option in (("ops", KINDS, "--op"), ("modes", MODES, "--modes")):
        for word in limits[name] or ():
            if word not in words:
                hint = meant(word, words, "")
                raise typer.BadParameter(f"{word} is not among {', '.join(words)}. {hint}".rstrip(), param_hint=option)
    from lunette.conform.ask import run_batch
    from lunette.conform.cluster import Cluster
    from lunette.conform.run import run

    with Bar(backend) as bar:
        return run(
            backend,
            **limits,
            cases=cases,
            seed=seed,
            workers=workers,
            known=known,
            journal=journal,
            pool=None if scheduler is None else Cluster(scheduler, run_batch),
            on_progress=bar,
        )


FOR_A_RUN = ("--workers", "--known", "--resume", "--scheduler")


def _nothing_is_run(*given: object) -> None:
    """A report from a file is shown as it is: what says how to measure has no meaning."""
    options = ("--op", "--as", "--cases", "--seed", "--modes", "--ranks", "--dtypes", "--jvp", "--vjp", *FOR_A_RUN)
    for option, value in zip(options, given, strict=True):
        if value:
            raise typer.BadParameter("a report from a file is shown as it is, nothing is run", param_hint=option)


def _words(given: Sequence[str] | None) -> list[str] | None:
    """Repeated options and commas alike."""
    return [w.strip() for one in given for w in one.split(",") if w.strip()] if given else None


def _numbers(given: Sequence[str] | None) -> list[int] | None:
    words = _words(given)
    try:
        return None if words is None else [int(w) for w in words]
    except ValueError:
        raise typer.BadParameter("numbers of spatial axes, such as 1,2", param_hint="--ranks") from None


def _name(backend: str, as_op: str | None, derivatives: Mapping[str, str | None]) -> str:
    """A function is named with its operator; its module may be a file, or one of the folder we are in."""
    if ":" not in backend:
        named = {"--as": None if as_op == "bounds" else as_op, **{f"--{n}": v for n, v in derivatives.items()}}
        for option, given in named.items():
            if given is not None:
                raise typer.BadParameter("only a module:function is some operator", param_hint=option)
        if as_op == "bounds":
            return f"{backend} as bounds"
        return backend
    if as_op is None:
        raise typer.BadParameter(f"which operator is {backend} meant to be? Try --as max_pool", param_hint="--as")
    sys.path.insert(0, os.getcwd())
    module, _, function = backend.partition(":")
    if module.endswith(".py") and Path(module).is_file():
        sys.path.insert(0, str(Path(module).resolve().parent))
        backend = f"{Path(module).stem}:{function}"
    return " ".join([f"{backend} as {as_op}", *(f"{n}={v}" for n, v in derivatives.items() if v is not None)])


def _read(path: Path) -> Report:
    from lunette.conform.result import Report

    try:
        return Report.from_json(json_format.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise typer.BadParameter(f"{path} is no report that --json wrote ({error!r})", param_hint="BACKEND") from None


def _place(backend: str) -> tuple[str, int] | None:
    """The file and line of a user's function, found without running it."""
    module, _, name = backend.partition(":")
    module = Path(module).stem if module.endswith(".py") else module
    try:
        spec = importlib.util.find_spec(module) if name else None
        if spec is None or spec.origin is None:
            return None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        path = os.path.relpath(spec.origin)
    except (ImportError, ValueError, OSError, SyntaxError):
        return None
    lines = (n.lineno for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
    return path, next(lines, 1)


def write(
    report: Report,
    *,
    json: Path | None = None,
    junit: Path | None = None,
    sarif: Path | None = None,
    html: Path | None = None,
    place: tuple[str, int] | None = None,
) -> list[Path]:
    """The files that were asked for; their folders are made if need be."""
    from lunette.conform.report import junit as junit_format
    from lunette.conform.report import page
    from lunette.conform.report import sarif as sarif_format

    places = {} if place is None else {report.backend: place}
    makers: list[tuple[Path | None, Callable[[], str]]] = [
        (json, lambda: json_format.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"),
        (junit, lambda: junit_format.junit([report])),
        (sarif, lambda: sarif_format.sarif([report], places)),
        (html, lambda: page.html([report])),
    ]
    written = [(path, make) for path, make in makers if path is not None]
    for path, make in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8")
    return [path for path, _ in written]


class Bar:
    """A progress bar on stderr that counts cases and those that are wrong."""

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self.name = name
        columns = (TextColumn("{task.description}"), BarColumn(30), TaskProgressColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task(name, total=None)

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, done: int, total: int, verdicts: Mapping[str, int]) -> None:
        """So many of all batches are done, with these verdicts."""
        from lunette.conform.report.words import count
        from lunette.conform.result import GRAVITY, Verdict

        cases = sum(verdicts.values()) - verdicts.get(Verdict.UNSUPPORTED, 0)
        failed = {how: sum(verdicts.get(v, 0) for v in some) for how, some in GRAVITY.items()}
        words = f"{self.name}: {count(cases, 'case')}, " + ", ".join(f"{n:,} {how}" for how, n in failed.items())
        self.progress.update(self.task, completed=done, total=total, description=words)


def diff(
    first: Annotated[
        str, typer.Argument(help="torch, onnx10, onnx19, onnx22, tf, keras, jax, equinox, tosa, webnn or lunette")
    ],
    second: Annotated[str, typer.Argument(help="another one")],
    op: Annotated[list[str] | None, typer.Option(help="only this operator (may be repeated)")] = None,
    json: Annotated[
        Path | None, typer.Option(help="write all of them here; - for the terminal, and nothing else")
    ] = None,
) -> None:
    """List every class of configurations on which two dialects differ.

    Each with the smallest example, and which cells its windows read in both.

    \b
    lunette diff torch onnx22
    lunette diff torch onnx22 --op max_pool
    lunette diff torch onnx22 --json differences.json
    """  # noqa: D301 (the backspace keeps the lines of examples apart)
    from lunette import dialects

    found = [dialects.diff(first, second, op=name) for name in op or (None,)]
    if json is not None:
        text = json_format.dumps([one for each in found for one in each.to_json()], indent=1) + "\n"
        if str(json) == "-":
            typer.echo(text, nl=False)
            return
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(text, encoding="utf-8")
    for each in found:
        out.print(str(each), highlight=False, markup=False, soft_wrap=True)
