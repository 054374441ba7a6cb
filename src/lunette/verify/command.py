"""The command `lunette verify`."""

from __future__ import annotations

import json as json_format
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lunette.errors import LunetteError
from lunette.onnx.command import SHAPES
from lunette.workers import as_they_come

out = Console()
STATUS = {"proved": 0, "disproved": 1, "unknown": 3, "error": 3}


def verify_command(
    network: Annotated[Path | None, typer.Argument(help="a saved graph, .onnx or .onnx.gz")] = None,
    spec: Annotated[Path | None, typer.Argument(help="a property, .vnnlib or .vnnlib.gz")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="seconds; of --instances those in the list")] = 60.0,
    semantics: Annotated[str, typer.Option(help="real or float")] = "real",
    method: Annotated[str, typer.Option(help="how far to go: attack, interval, crown, optimised or auto")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the attack")] = 0,
    memory: Annotated[int, typer.Option(min=0, help="bytes of what is computed at once")] = 2**30,
    certificate: Annotated[Path | None, typer.Option(help="where the certificate of a proof goes")] = None,
    counterexample: Annotated[
        Path | None,
        typer.Option(help="where a counterexample goes (else SPEC-counterexample): .npy, and .txt as VNN-COMP has it"),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="write the verdict, or the results, here")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page to look at here; it needs no network")] = None,
    shape: Annotated[list[str] | None, typer.Option(help=SHAPES)] = None,
    instances: Annotated[Path | None, typer.Option(help="a list of net,spec,seconds: verify them all")] = None,
    root: Annotated[Path | None, typer.Option(help="the folder that the list's files are in")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="instances at a time")] = 1,
    scheduler: Annotated[str | None, typer.Option(help="a Dask scheduler, tcp://HOST:8786: run on its workers")] = None,
    resume: Annotated[Path | None, typer.Option(help="keep a journal here: a run that was stopped goes on")] = None,
    results: Annotated[Path | None, typer.Option(help="write one line for each instance here (CSV)")] = None,
    certificates: Annotated[Path | None, typer.Option(help="a folder for certificates and counterexamples")] = None,
    junit: Annotated[Path | None, typer.Option(help="write tests for CI here (XML)")] = None,
    images: Annotated[Path | None, typer.Option(help="a .npz with x and y, or a folder of .npy: accuracy")] = None,
    radius: Annotated[list[float] | None, typer.Option(min=0.0, help="of --images (may be repeated)")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="of --images: only so many of them")] = None,
) -> None:
    """Prove a property of a network, or find a counterexample.

    A proof is a certificate, which `lunette check` replays in exact arithmetic; a
    counterexample is a float input that violates the property in exact arithmetic.

    \b
    lunette verify net.onnx prop.vnnlib --certificate prop.cert
    lunette verify net.onnx prop.vnnlib.gz --semantics float --html verdict.html
    lunette verify --instances instances.csv --jobs 2 --resume run.journal --results results.csv
    lunette verify net.onnx --images mnist.npz --radius 0.01 --radius 0.02 --html accuracy.html

    Exit status: 0 proved, 1 disproved, 3 unknown, 2 if it could not begin. Of many:
    1 if one is disproved, else 3 if one is unknown or could not be asked, else 0.
    """  # noqa: D301 (the backspace keeps the lines of examples apart)
    options = {"semantics": semantics, "seed": seed, "method": method}
    try:
        if instances is not None:
            if network is not None or images is not None:
                words = "a list names its networks and properties itself: leave NETWORK and --images out"
                raise typer.BadParameter(words, param_hint="--instances")
            status = _many(instances, root, jobs, scheduler, resume, results, certificates, json, junit, html, options)
        elif network is None:
            words = "nothing to verify: pass a network and a property, or --instances instances.csv"
            raise typer.BadParameter(words, param_hint="NETWORK")
        elif images is not None:
            kept = (json, html, certificates)
            status = _accuracy(network, images, radius or [0.01], most, timeout, shape, options, kept)
        elif spec is None:
            words = "nothing to verify of this network: pass a property (.vnnlib or .vnnlib.gz) behind it, or --images"
            raise typer.BadParameter(words, param_hint="SPEC")
        else:
            files = (certificate, counterexample, json, html)
            status = _one(network, spec, shape, timeout, memory, options, files)
    except (LunetteError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(status)


def _one(
    network: Path,
    spec: Path,
    shape: list[str] | None,
    timeout: float,
    memory: int,
    options: dict[str, Any],
    files: tuple[Path | None, Path | None, Path | None, Path | None],
) -> int:
    from lunette.onnx.command import read_network
    from lunette.verify.property import Property
    from lunette.verify.verify import verify

    graph, note = read_network(network, shape)
    property = Property.load(spec)
    for path in files:  # before the work, not after it
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    with Bar() as bar:
        v = verify(graph, None, property, timeout=timeout, memory=memory, progress=bar, **options)
    certificate, counterexample, json, html = files
    _print(v, note)
    written: list[Path] = []
    if certificate is not None and v.certificate is None:
        told = f"no certificate: only a proof has one, and the property is {v.status}"
        out.print(told, highlight=False, markup=False, soft_wrap=True)
    if certificate is not None and v.certificate is not None:
        v.certificate.save(certificate)
        written.append(certificate)
    if v.counterexample is not None:
        written += v.save_counterexample(counterexample or Path(spec.name.partition(".vnnlib")[0] + "-counterexample"))
    if json is not None:
        facts = {"network": str(network), "spec": str(spec), **v.to_json()}
        json.write_text(json_format.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        written.append(json)
    if html is not None:
        v.to_html(html, network=str(network), property=property)
        written.append(html)
    for path in written:
        out.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
    return STATUS[v.status]


def _print(v: Any, note: str) -> None:
    out.print(f"{v.status}: {v.reason}", highlight=False, markup=False, soft_wrap=True)
    facts = [
        ("semantics", v.semantics),
        ("seconds", f"{v.seconds:.2f} ({', '.join(f'{k} {s:.2f}' for k, s in v.phases.items())})"),
        ("proven margin", f"{v.bound:.9g}" if isfinite(v.bound) else ""),
        ("least margin found", f"{v.found:.9g}" if isfinite(v.found) else ""),
        ("leaves", str(v.leaves) if v.leaves else ""),
        *(("note", n) for n in (*v.notes, note)),
    ]
    for name, value in facts:
        if value:
            out.print(f"  {name}: {value}", highlight=False, markup=False, soft_wrap=True)


class Bar:
    """What is being done, on stderr."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description:<44}"), BarColumn(24), TimeElapsedColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task("", total=None)

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, what: str, done: int, whole: int) -> None:
        """As `progress` of ln.verify."""
        self.progress.update(self.task, description=what[:44], completed=done, total=whole or None)


# ---- many


def _many(
    instances: Path,
    root: Path | None,
    jobs: int,
    scheduler: str | None,
    resume: Path | None,
    results: Path | None,
    certificates: Path | None,
    json: Path | None,
    junit: Path | None,
    html: Path | None,
    options: dict[str, Any],
) -> int:
    from lunette.conform.cluster import Cluster
    from lunette.verify import instances as many
    from lunette.verify.journal import Journal

    listed = [(i.key, i) for i in many.read_list(instances, root, **options)]
    asked = dict(listed)  # a line that comes twice is run once
    names = Counter(many.name_of(*i.named) for i in asked.values())
    shared = {name for name, count in names.items() if count > 1}
    journal = Journal(resume, options) if resume is not None else None
    done = journal.begin(set(asked)) if journal is not None else {}
    if journal is not None and journal.told:
        out.print(journal.told, highlight=False)
    left = [i for key, i in asked.items() if key not in done]
    coming: Iterator[dict[str, Any]] = (
        as_they_come(many.run_instance, left, jobs)  # threads that only wait for processes
        if scheduler is None
        else Cluster(scheduler, many.run_instance, who="verify").map(left)
    )
    complete = True
    with Bar() as bar:
        bar("instances", len(done), len(asked))
        try:
            for result in coming:
                kept = many.keep_files(result, certificates, shared)
                if journal is not None and not kept.get("again"):
                    journal.add(kept)
                done[kept["key"]] = kept
                bar(_counts(list(done.values())), len(done), len(asked))
        except KeyboardInterrupt:
            complete = False
    if journal is not None and complete:
        journal.finish()
    found = [done[key] for key, _ in listed if key in done]
    _table(found)
    if not complete and resume is not None:
        out.print(f"interrupted; go on with --resume {resume}", highlight=False)
    makers: list[tuple[Path | None, Callable[[], str]]] = [
        (results, lambda: many.results_csv(found)),
        (json, lambda: json_format.dumps(found, indent=1, allow_nan=False) + "\n"),
        (junit, lambda: many.junit(found)),
        (html, lambda: _page_of(found)),
    ]
    _write(makers)
    worst = {STATUS[r["status"]] for r in found}
    return 1 if 1 in worst else 3 if 3 in worst or not complete else 0


def _write(makers: Sequence[tuple[Path | None, Callable[[], str]]]) -> None:
    """The files that were asked for, and which they are."""
    for path, make in makers:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(make(), encoding="utf-8")
            out.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def _page_of(found: Sequence[dict[str, Any]]) -> str:
    from lunette.verify.page import many_to_html

    return many_to_html(found)


def _counts(found: Sequence[dict[str, Any]]) -> str:
    words = {s: sum(r["status"] == s for r in found) for s in STATUS}
    return ", ".join(f"{n} {s}" for s, n in words.items() if n)


def _table(found: Sequence[dict[str, Any]]) -> None:
    table = Table("network", "property", "status", "seconds", "reason")
    for r in found:
        names = [Path(r[k]).name for k in ("net", "spec")]
        table.add_row(*names, r["status"], f"{r['seconds']:.2f}", r["reason"])
    wide = out if out.is_terminal else Console(width=160)
    wide.print(table)
    wide.print(_counts(found) or "no instances", highlight=False)


# ---- images


def _accuracy(
    network: Path,
    images: Path,
    radii: Sequence[float],
    most: int | None,
    timeout: float,
    shape: list[str] | None,
    options: dict[str, Any],
    files: tuple[Path | None, Path | None, Path | None],
) -> int:
    from lunette.onnx.command import read_network
    from lunette.verify.images import accuracy, read_images

    graph, note = read_network(network, shape)
    x, y = read_images(images, graph, most)
    json, html, kept = files
    with Bar() as bar:
        found = accuracy(graph, x, y, sorted(radii), timeout=timeout, progress=bar, certificates=kept, **options)
    table = Table("radius", "images", "right", "certified", "attacked", "unknown", "seconds")
    for a in found:
        shares = [f"{share:.1%}" for share in (a.clean, a.certified, a.attacked)]
        table.add_row(f"{a.radius:g}", str(a.images), *shares, str(a.unknown), f"{a.seconds:.1f}")
    out.print(table)
    if note:
        out.print(note, highlight=False)
    from lunette.verify.page import accuracy_to_html

    makers: list[tuple[Path | None, Callable[[], str]]] = [
        (json, lambda: json_format.dumps([a.to_json() for a in found], indent=1) + "\n"),
        (html, lambda: accuracy_to_html(found, str(network))),
    ]
    _write(makers)
    return 0
