"""The command line: `lunette --help`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import lunette as ln
from lunette.array import lookup
from lunette.conform.command import conform, diff
from lunette.errors import error_context, meant
from lunette.number import Array
from lunette.onnx.bounds_command import bounds_command
from lunette.onnx.check_command import check_command
from lunette.onnx.command import GRAPH, SHAPES, import_model, read_graph, stem_of
from lunette.op import parameters_of
from lunette.ops import ALL
from lunette.threads import MOST_THREADS
from lunette.verify.command import verify_command

app = typer.Typer(
    help="The spatial operators of neural networks, defined exactly: look inside them, and try them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(conform)
app.command()(diff)
app.command("import")(import_model)
app.command("bounds")(bounds_command)
app.command("verify")(verify_command)
app.command("check")(check_command)
out = Console()
BACKENDS = ("torch", "jax", "onnx", "onnxruntime", "openvino", "tinygrad", "sympy")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(ln.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """The spatial operators of neural networks, defined exactly: look inside them, and try them."""


# ---- explain


WORDS = ("valid", "same", "same_lower")


def _ints(text: str | None, option: str = "shape") -> Any:
    """5 -> 5;  3,2 -> (3, 2);  1:2,0:0 -> ((1, 2), (0, 0));  same -> "same"."""
    if text is None or (option == "padding" and text in WORDS):
        return text
    try:
        entries = [tuple(map(int, e.split(":"))) if ":" in e else int(e) for e in text.split(",")]
    except ValueError:
        words = meant(text, WORDS, f"Words are {', '.join(WORDS)}.") if option == "padding" else ""
        raise typer.BadParameter(
            f"{text!r} is no whole number, nor several with commas: 3 or 3,2. {words}", param_hint=_flag(option)
        ) from None
    return tuple(entries) if len(entries) > 1 or isinstance(entries[0], tuple) else entries[0]


def _flag(option: str) -> str:
    """What an argument of the functions is called on the command line."""
    return "--exclude-pad" if option == "count_include_pad" else f"--{option.replace('_', '-')}"


def _check_options(op: str, given: Mapping[str, Any], possible: Iterable[str]) -> None:
    """Refuse options that the operator does not have, and the lack of those it needs, by their names here."""
    with error_context("explain"):
        function, kind = lookup(op)
    known = {n: p for n, p in parameters_of(function).items() if n not in kind.arrays}
    if kind.weighted:  # its kernel is the shape of w, of which there is none here
        known["kernel"] = Parameter("kernel", Parameter.KEYWORD_ONLY)
    flags = ", ".join(_flag(n) for n in possible if n in known) or "no options"
    for name in given:
        if name not in known:
            raise typer.BadParameter(f"{op} has no {_flag(name)}; it has {flags}")
    for name, p in known.items():
        if p.default is p.empty and name not in given:
            raise typer.BadParameter(f"{op} needs {_flag(name)}, such as 3 or 3,2")


@app.command()
def explain(
    op: Annotated[str, typer.Argument(help=", ".join(kind.name for kind in ALL))],
    shape: Annotated[str, typer.Option(help="spatial sizes of the input: 5 or 7,9")],
    kernel: Annotated[str | None, typer.Option(help="kernel sizes: 3 or 3,2")] = None,
    stride: Annotated[str | None, typer.Option(help="strides; pools default to the kernel")] = None,
    padding: Annotated[
        str | None, typer.Option(help="1, or 1,2 per axis, or 1:2,0:0 as lo:hi pairs, or valid, same, same_lower")
    ] = None,
    dilation: Annotated[str | None, typer.Option(help="dilations")] = None,
    output_padding: Annotated[str | None, typer.Option(help="of conv_transpose")] = None,
    output_size: Annotated[str | None, typer.Option(help="of the adaptive pools")] = None,
    ceil_mode: Annotated[bool, typer.Option("--ceil-mode", help="keep a last window that hangs over")] = False,
    exclude_pad: Annotated[bool, typer.Option("--exclude-pad", help="averages do not count padding")] = False,
    divisor: Annotated[float | None, typer.Option(help="what averages divide by")] = None,
    at: Annotated[str | None, typer.Option(help="only this output cell: 2 or 2,3")] = None,
    svg: Annotated[Path | None, typer.Option(help="also write a picture here")] = None,
    html: Annotated[Path | None, typer.Option(help="also write a page to hover over here")] = None,
) -> None:
    """Print which input cells every output cell reads, which are padding, which overhang, and the divisor.

    lunette explain avg_pool --shape 5 --kernel 3 --stride 2 --padding 1 --ceil-mode
    """
    _check_svg(svg, "--svg")
    texts = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "output_padding": output_padding,
        "output_size": output_size,
    }
    given = {name: _ints(text, name) for name, text in texts.items()}
    given["divisor"] = divisor
    given["ceil_mode"] = ceil_mode or None
    given["count_include_pad"] = False if exclude_pad else None
    arguments = {name: value for name, value in given.items() if value is not None}
    try:
        _check_options(op, arguments, given)
        explanation = ln.explain(op, _ints(shape, "shape"), at=_ints(at, "at"), **arguments)
    except ln.LunetteError as error:
        if error.rule == "W5":  # how paddings are written is another matter here
            error.hint = "Write 1, or 1,2 for each axis, or 1:2,0:0 for lo:hi pairs."
        raise
    out.print(str(explanation), highlight=False, markup=False, soft_wrap=True)
    if svg is not None:
        explanation.to_svg(svg)
        out.print(f"wrote {svg}", soft_wrap=True)
    if html is not None:
        explanation.to_html(html)
        out.print(f"wrote {html}", soft_wrap=True)


def _check_svg(path: Path | None, option: str) -> None:
    """Pictures are drawn as SVG, whatever the file is called."""
    if path is not None and path.suffix.lower() != ".svg":
        raise typer.BadParameter(f"pictures are SVG: write {path.with_suffix('.svg')}", param_hint=option)


# ---- info


@app.command()
def info() -> None:
    """Print the version, the instruction set in use, the threads and the backends found."""
    table = Table(show_header=False, box=None)
    table.add_row("lunette", ln.__version__)
    table.add_row("python", f"{platform.python_version()} on {platform.machine()}")
    table.add_row("numpy", np.__version__)
    table.add_row("instruction set", ln.instruction_set())
    table.add_row("threads", str(ln.get_num_threads()))
    for name in BACKENDS:
        found = importlib.util.find_spec(name) is not None
        table.add_row(name, importlib.metadata.version(name) if found else "[dim]not installed[/dim]")
    out.print(table)


# ---- bench


@app.command()
def bench(
    op: Annotated[list[str] | None, typer.Option(help="only this operator (may be repeated)")] = None,
    case: Annotated[str | None, typer.Option(help="only cases whose op/name contains or matches this pattern")] = None,
    direction: Annotated[
        list[str] | None,
        typer.Option(help="forward, jvp or vjp; of networks forward, gradient or derivatives (may be repeated)"),
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="float32 (default) or float64 (may be repeated)")] = None,
    threads: Annotated[
        int, typer.Option(min=1, max=MOST_THREADS, help="1: one pinned process; more: a process per library")
    ] = 1,
    peer: Annotated[list[str] | None, typer.Option(help="only this library (may be repeated)")] = None,
    networks: Annotated[bool, typer.Option("--networks", help="only whole networks, no single layers")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="a few cases, short turns: a few minutes")] = False,
    memory: Annotated[bool, typer.Option(help="measure the workspace of lunette's calls")] = True,
    json: Annotated[Path | None, typer.Option(help="where the figures go; default: benchmarks/")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="where the picture goes (.svg or .png); default: benchmarks/")
    ] = None,
    show: Annotated[Path | None, typer.Option(help="measure nothing: print the tables of this JSON file")] = None,
    names: Annotated[bool, typer.Option("--list", help="measure nothing: list the cases")] = False,
    arithmetics: Annotated[
        bool, typer.Option("--arithmetics", help="only what rounded and interval arithmetic cost, beside fast")
    ] = False,
    bridges: Annotated[
        bool, typer.Option("--bridges", help="only lunette inside of other frameworks, beside their own operators")
    ] = False,
    onnx: Annotated[
        Path | None, typer.Option(help="only the ONNX models of this folder: what works on each, beside ONNX Runtime")
    ] = None,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="only how tight bounds of networks are, and what they cost")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="only what unusual numbers cost, beside random ones: zeros, margin, dead, gated, nan, infinity, "
            "denormal, or all (may be repeated)"
        ),
    ] = None,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="only how long exact replays of certificates take")
    ] = False,
) -> None:
    """Measure lunette beside PyTorch, JAX, ONNX Runtime and OpenVINO, on the same data in the same run.

    lunette bench --quick
    lunette bench --op conv --case resnet --direction forward
    lunette bench --networks --threads 2
    lunette bench --data zeros --data nan --op conv
    """
    from lunette.bench import cases, measure, report, turns  # not at the top: `lunette --help` is to be quick
    from lunette.bench import networks as nets
    from lunette.bench import unusual as numbers
    from lunette.bench.result import Run

    wide = out if out.is_terminal else Console(width=160)
    if names and (arithmetics or bridges or bounds or certificates or onnx is not None):
        raise typer.BadParameter("lists the cases of layers only; these tables have no cases", param_hint="--list")
    if arithmetics:
        from lunette.bench import arithmetics as other

        other.show(wide)
        return
    if bridges:
        from lunette.bench import bridges as inside

        inside.show(wide, threads)
        return
    if onnx is not None:
        from lunette.bench import files

        files.show(onnx, wide)
        return
    if bounds or certificates:
        from lunette.bench import bounds as tightness

        (tightness.show if bounds else tightness.show_replays)(wide)
        return
    if show is not None:
        run = Run.load(show)
        report.show(run, wide)
        if plot is not None:
            report.plot(run, [plot])
        return
    for given, known, word in (
        (op, cases.OPS, "op"),
        (direction, tuple(dict.fromkeys((*cases.DIRECTIONS, *nets.DIRECTIONS))), "direction"),
        (dtype, cases.DTYPES, "dtype"),
        (peer, turns.NAMES, "peer"),
        (data, (*numbers.KINDS, "all"), "data"),
    ):
        if unknown := [g for g in given or () if g not in known]:
            hint = meant(unknown[0], known, "")
            raise typer.BadParameter(
                f"{unknown[0]} is not among {', '.join(known)}. {hint}".rstrip(), param_hint=f"--{word}"
            )
    if networks and op:
        raise typer.BadParameter("a network is no single operator", param_hint="--networks with --op")
    dtypes = dtype or cases.DTYPES[:1]
    layers = [] if networks else cases.select(op or (), case, quick)
    whole = nets.select(case, quick) if not op and "float32" in dtypes else []
    if not layers and not whole:
        raise typer.BadParameter(f"no case matches {case!r}; lunette bench --list shows them", param_hint="--case")
    if names:
        for layer in layers:
            wide.print(f"{layer.op}/{layer.name}  {layer.shapes} {dict(layer.options)}", highlight=False, markup=False)
        for n in whole:
            wide.print(f"{n.op}/{n.name}  {n.shapes[0]}", highlight=False, markup=False)
        return
    if data:
        kinds = tuple(numbers.KINDS) if "all" in data else data
        numbers.show(wide, measure.problems(layers, direction or cases.DIRECTIONS, dtypes), kinds)
        return
    asked: list[turns.AnyProblem] = [
        *measure.problems(layers, direction or cases.DIRECTIONS, dtypes),
        *measure.network_problems(whole, direction or nets.DIRECTIONS),
    ]
    effort = measure.QUICK if quick else measure.Effort()
    session = measure.Session(threads, effort, peer or measure.peers_of(asked), memory)
    try:
        _measure_all(session, asked)
    finally:
        run = session.finish()
    report.show(run, wide)
    selected = op or case or direction or peer
    what = "selected" if selected else "quick" if quick else "networks" if networks else "full"
    stem = f"{what}-{'-'.join(dtypes)}-{threads}t"
    where = Path("benchmarks") / stem
    run.save(json or where.with_suffix(".json"))
    wide.print(f"wrote {json or where.with_suffix('.json')}", highlight=False)
    try:
        report.plot(run, [plot or where.with_suffix(".svg")])
        wide.print(f"wrote {plot or where.with_suffix('.svg')}", highlight=False)
    except ImportError:
        wide.print("no plot: matplotlib is not installed (pip install 'lunette\\[bench]')", highlight=False)


def _measure_all(session: Any, asked: Sequence[Any]) -> None:
    """With a progress bar; interrupted, what was measured so far is reported."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description:<60}"), BarColumn(20), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    # The bar is drawn only between problems: a thread that draws would take time from what is measured.
    with Progress(*columns, *times, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("", total=len(asked))
        for problem in asked:
            what = problem.title
            progress.update(task, description=what[:60], refresh=True)
            try:
                session.measure(problem)
            except KeyboardInterrupt:
                progress.print("interrupted: the tables show what was measured")
                return
            except RuntimeError as error:
                progress.print(f"[red]{what}: {error}[/red]")
            progress.advance(task)
        progress.update(task, description="done", refresh=True)


# ---- draw, profile


@app.command()
def draw(
    file: Annotated[Path, typer.Argument(help=GRAPH)],
    output: Annotated[
        Path | None, typer.Option("--output", "--svg", "-o", help="default: FILE with the ending .svg")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
) -> None:
    """Draw a graph: every node with its operator, options, shape and weights, as an SVG picture.

    lunette draw model.json -o model.svg
    lunette draw net.onnx --shape x=1,3,32,32
    """
    _check_svg(output, "--output")
    graph = read_graph(file, shape)
    target = output or stem_of(file).with_suffix(".svg")
    graph.to_svg(target)
    out.print(f"wrote {target}: {graph!r}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def profile(
    file: Annotated[Path, typer.Argument(help=GRAPH)],
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="default: as many as lunette uses anyway")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="runs; the median of each step is shown")] = 21,
    top: Annotated[int | None, typer.Option(min=1, help="only the steps that take longest, longest first")] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
) -> None:
    """Compile a graph, run it on random numbers (labels are 0), and print what each step costs, and the memory.

    lunette profile model.json --threads 1 --repeat 50
    """
    graph = read_graph(file, shape)
    random = np.random.default_rng(0)
    inputs = [
        random.standard_normal(n.shape).astype(n.dtype) if n.dtype.kind == "f" else np.zeros(n.shape, n.dtype)
        for n in graph.inputs
    ]
    before = ln.get_num_threads()
    if threads is not None:
        ln.set_num_threads(threads)
    try:
        used = ln.get_num_threads()
        stats = graph.compile().stats(*inputs, repeat=repeat)
    finally:
        ln.set_num_threads(before)
    title = f"{file.name}: {len(graph.nodes)} nodes, {len(stats.nodes)} steps, {used} thread{'s' * (used != 1)}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("time", "share", "GFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout", no_wrap=True)
    table.add_column("step", overflow="fold")
    steps = stats.nodes if top is None else sorted(stats.nodes, key=lambda n: -n.seconds)[:top]
    for n in steps:
        rate = f"{n.flops / n.seconds / 1e9:.1f}" if n.seconds and n.flops else ""
        share = n.seconds / max(stats.seconds, 1e-12)
        table.add_row(_time(n.seconds), f"{share:.1%}", rate, n.layout, Text(n.text))
    table.add_section()
    rate = f"{stats.flops / max(stats.seconds, 1e-12) / 1e9:.1f}"
    whole = _work(stats.flops) + ("" if top is None else f" in all {len(stats.nodes)} steps")
    table.add_row(_time(stats.seconds), "100.0%", rate, "", whole, style="bold")
    wide = out if out.is_terminal else Console(width=120)
    wide.print(table, highlight=False)
    wide.print(
        f"memory: {_size(stats.arena)} for intermediate results (no plan needs less than {_size(stats.largest_live)}), "
        f"{_size(stats.constants)} of constants",
        soft_wrap=True,
        highlight=False,
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds >= 1e-2 else f"{seconds * 1e6:,.1f} µs"


def _work(flops: float) -> str:
    return f"{flops / 1e9:,.2f} GFLOP" if flops >= 1e8 else f"{flops / 1e6:,.2f} MFLOP"


def _size(count: int) -> str:
    return f"{count / 2**20:,.2f} MiB" if count >= 2**20 else f"{count / 2**10:,.1f} KiB"


# ---- demo and tour


@app.command()
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="a short training: seconds, not the accuracy")] = False,
    output: Annotated[Path, typer.Option(help="the folder for the page and the trained graph")] = Path("build/demo"),
) -> None:
    """Train a network on handwritten digits, check a gradient exactly, and write a page with pictures of it all.

    lunette demo --output build/demo
    """
    if importlib.util.find_spec("sklearn") is None:
        out.print("the digits are in scikit-learn: pip install 'lunette[demo]'", markup=False, highlight=False)
        raise typer.Exit(2)
    from lunette.demo.show import show  # not at the top: `lunette --help` is to be quick

    if not show(output, quick, out if out.is_terminal else Console(width=120)):
        raise typer.Exit(1)


def _exact(array: Array) -> str:
    return " ".join(str(v) for v in np.asarray(array, object).ravel())


def _floats(array: Array) -> str:
    return " ".join(f"{float(v):.4g}" for v in np.asarray(array).ravel())


@app.command()
def tour() -> None:
    """Run every operator on a small example, exactly and in float32, and draw a window."""
    x = [[3, 1, 4, 1, 5, 9]]
    w, up = [[[1, 0, -1]]], [[[1, 2, 1]]]
    calls: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "conv": ("w=[1, 0, -1], padding=1", lambda a: ln.conv(a, _like(w, a), padding=1)),
        "conv_transpose": (
            "w=[1, 2, 1], stride=2, padding=1",
            lambda a: ln.conv_transpose(a, _like(up, a), stride=2, padding=1),
        ),
        "max_pool": ("kernel=3, stride=2, padding=1", lambda a: ln.max_pool(a, (3,), stride=2, padding=1)),
        "avg_pool": ("kernel=3, stride=2, padding=1", lambda a: ln.avg_pool(a, (3,), stride=2, padding=1)),
        "avg_pool_vjp": ("the same, cotangent of ones", lambda a: _pulled(a)),
        "smooth_max_pool": ("kernel=3, stride=3, beta=1", lambda a: ln.smooth_max_pool(a, (3,), stride=3, beta=1)),
        "lp_pool": ("kernel=3, stride=3, p=1", lambda a: ln.lp_pool(a, (3,), stride=3, p=1)),
        "adaptive_avg_pool": ("output_size=4", lambda a: ln.adaptive_avg_pool(a, (4,))),
        "adaptive_max_pool": ("output_size=4", lambda a: ln.adaptive_max_pool(a, (4,))),
        "global_avg_pool": ("", lambda a: ln.global_avg_pool(a, spatial=1)),
        "global_max_pool": ("", lambda a: ln.global_max_pool(a, spatial=1)),
    }
    table = Table(title="x = 3 1 4 1 5 9, one channel", title_justify="left")
    for column in ("operator", "options", "exact", "float32"):
        table.add_column(column)
    for name, (options, call) in calls.items():
        try:
            exactly = _exact(call(x))
        except ln.DTypeError:
            exactly = "[dim]irrational[/dim]"
        table.add_row(name, options, exactly, _floats(call(np.array(x, np.float32))))
    out.print(table)
    out.print()
    out.print(
        str(ln.explain("avg_pool", (5,), kernel=3, stride=2, padding=((1, 0),), ceil_mode=True)),
        highlight=False,
        markup=False,
    )
    out.print(
        "\nNext: [bold]lunette explain --help[/bold]; the rules: [bold]python -m pydoc lunette.ops.max_pool[/bold]."
    )


def _like(w: Any, a: Any) -> Any:
    return np.array(w, a.dtype) if isinstance(a, np.ndarray) else w


def _pulled(a: Any) -> Any:
    g = np.ones((1, 3), np.float32) if isinstance(a, np.ndarray) else [[Fraction(1)] * 3]
    return ln.avg_pool_vjp((a,), g, kernel=(3,), stride=2, padding=1)[0]


def main() -> None:
    """The entry point: a refusal is one sentence, not a traceback, and an interruption says nothing."""
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (ln.LunetteError, OSError, MemoryError) as error:
        words = " ".join(str(error).split()) or "not enough memory"  # nothing in them is markup, whatever a file says
        Console(stderr=True).print(Text.assemble(("error:", "bold red"), " ", words), soft_wrap=True)
        raise SystemExit(2) from None
