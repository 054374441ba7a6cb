"""The demo in order: train, check, compare, print, write the page; then measure what is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import lunette as ln
from lunette.demo.beside import Beside, compare
from lunette.demo.conformance import measure
from lunette.demo.digits import BATCH, Digits, Training, load, loss, network, train
from lunette.demo.exact import Check, Errors, check_gradient, kernel_errors
from lunette.demo.robust import CHECKED, RADIUS, Robustness
from lunette.demo.robust import measure as measure_robustness
from lunette.graph.program import Stats
from lunette.page import Section, curve, histogram, inline, page, table, tile

EPOCHS, QUICK_EPOCHS = 15, 2
QUICK_DIGITS = 4
EDGES = (0.5, 1, 2, 4, 8, 16)


def show(folder: Path, quick: bool, out: Console) -> bool:
    """Run the demo, and tell whether everything that must be exact was; the folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load()
    done = _trained(digits, QUICK_EPOCHS if quick else EPOCHS, out)
    check = check_gradient()
    errors = kernel_errors(done.parameters, digits.test_x[0], 4 if quick else 32)
    beside = compare(done.parameters, digits) if not quick and importlib.util.find_spec("torch") else None
    graph = ln.trace(lambda x: network(done.parameters, x), digits.test_x[:1])
    step = ln.trace(ln.value_and_grad(loss), done.parameters, digits.x[:BATCH], digits.y[:BATCH])
    leaves = [done.parameters[name] for name in sorted(done.parameters)]
    stats = step.compile().stats(*leaves, digits.x[:BATCH], digits.y[:BATCH], repeat=3 if quick else 21)

    out.print(_table(digits, done, check, errors, beside))
    sections = [
        _training(done),
        _kernels(done),
        _digits(digits, done),
        _windows(),
        _graph(graph, step),
        _time(stats),
        _errors(errors),
        _exactness(check),
    ]
    where = folder / "index.html"
    machine = f"lunette {ln.__version__}, {ln.instruction_set()} kernels, {_threads()}"
    words = (
        "A convolutional network learns handwritten digits with gradients that lunette compiles, and every claim about "
        "exactness is checked on this machine. The page needs no network: save it, send it, open it anywhere."
    )
    text = page("A small window on digits", words, _facts(done, check, beside), sections, f"Written by {machine}.")
    where.write_text(text, encoding="utf-8")
    graph.save(folder / "digits.json")
    out.print(
        f"wrote {where} (open it in a browser) and {folder / 'digits.json'} (try lunette profile)", soft_wrap=True
    )
    conforms = measure(folder, quick, out)
    with out.status("robustness"):
        count, certificates = (QUICK_DIGITS, 1) if quick else (len(digits.test_y), CHECKED)
        robust = measure_robustness(folder / "digits.json", digits, count, certificates)
    out.print(_robustness(robust))
    return conforms and check.equal and robust.is_sound


def _trained(digits: Digits, epochs: int, out: Console) -> Training:
    steps = epochs * (len(digits.x) // BATCH)
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, refresh_per_second=8) as progress:
        task = progress.add_task("training", total=steps)

        def after(done: Training) -> None:
            test = f"  test {done.accuracies[-1]:.1%}" if done.accuracies else ""
            progress.update(task, completed=len(done.losses), description=f"loss {done.losses[-1]:7.4f}{test}")

        return train(digits, epochs, after=after)


def _threads() -> str:
    n = ln.get_num_threads()
    return f"{n} thread{'s' * (n != 1)} of {os.cpu_count()}"


# ---- what is printed


def _table(digits: Digits, done: Training, check: Check, errors: Errors, beside: Beside | None) -> Table:
    rows = Table(title="Handwritten digits, a network of 2 convolutions", title_justify="left")
    for column in ("what", "figure", "how"):
        rows.add_column(column, overflow="fold")
    rows.add_row(
        "test accuracy",
        f"[bold]{done.accuracies[-1]:.2%}[/bold]",
        f"{len(digits.test_y)} digits that were not trained on; {len(done.accuracies)} epochs of {len(digits.y)}",
    )
    rows.add_row("training time", f"{done.seconds:.1f} s", f"{len(done.losses)} steps of {BATCH} digits, {_threads()}")
    rows.add_row("value and gradient", _micro(median(done.step_seconds)), "median of one compiled step while training")
    if beside is None:
        rows.add_row("the same in PyTorch", "[dim]not measured[/dim]", "needs torch, and a run without --quick")
    else:
        rows.add_row(
            "the same in PyTorch",
            _micro(beside.theirs),
            f"{beside.theirs / beside.ours:.2f}x lunette's {_micro(beside.ours)}, the fastest of each in turns; "
            f"eager {beside.version}; gradients {beside.apart:.0e} apart",
        )
    rows.add_row(
        "exact gradient",
        "[green]equal[/green]" if check.equal else "[bold red]DIFFERENT[/bold red]",
        f"{check.cells} derivatives on rationals: reverse mode == graph == dual numbers",
    )
    rows.add_row(
        "kernel error",
        f"{np.median(errors.ulps):.2g} ulp",
        f"median of {errors.ulps.size} float32 outputs against exact sums of {errors.terms} terms; "
        f"at most {errors.of_bound:.1%} of the guaranteed bound",
    )
    return rows


def _robustness(r: Robustness) -> Table:
    rows = Table(title=f"Robustness: every cell within {RADIUS} of the digit, of 1", title_justify="left")
    for column in ("digits", "right", "certified", "attacked", "certificates checked", "seconds"):
        rows.add_column(column)
    share = (f"{n / r.digits:.1%}" for n in (r.clean, r.certified, r.attacked))
    checked = f"{r.checked} of {r.made}{f', {r.grade}' if r.grade else ''}"
    style = "green" if r.is_sound else "bold red"
    rows.add_row(str(r.digits), *share, f"[{style}]{checked}[/{style}]", f"{r.seconds:.1f}")
    rows.caption = (
        "Certified: the right class wins everywhere in the box, by bounds that are sound in floating point. Attacked:\n"
        "no counterexample was found that is one in exact arithmetic. Some digits have certificates, which are checked."
    )
    rows.caption_justify = "left"
    return rows


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


# ---- what the page shows


def _facts(done: Training, check: Check, beside: Beside | None) -> Sequence[tuple[str, str]]:
    facts = [
        ("test accuracy", f"{done.accuracies[-1]:.1%}"),
        ("to train", f"{done.seconds:.1f} s"),
        ("per value and gradient", _micro(median(done.step_seconds))),
        ("derivatives checked exactly", f"{check.cells} {'✓' if check.equal else '✗'}"),
    ]
    if beside is not None:
        facts.insert(3, ("PyTorch's time / ours, per step", f"{beside.theirs / beside.ours:.2f}x"))
    return facts


def _training(done: Training) -> Section:
    body = (
        f'<div class="two"><div>{curve("loss of each step", done.losses, colour="--blue", logarithmic=True)}</div>'
        f"<div>{curve('test accuracy after each epoch', done.accuracies, colour='--teal', dots=True)}</div></div>"
    )
    words = "Adam in plain NumPy over ln.jit(ln.value_and_grad(loss)), He initialisation, a rate that falls to zero."
    return Section("training", "Training", words, body)


def _kernels(done: Training) -> Section:
    first = done.parameters["w1"]
    tiles = "".join(tile(w[0], 17, f"{at}", signed=True) for at, w in enumerate(first))
    words = f"The {len(first)} kernels of the first convolution: blue adds, red subtracts; hover for the numbers."
    return Section("kernels", "Learned kernels", words, f'<div class="tiles">{tiles}</div>')


def _digits(digits: Digits, done: Training) -> Section:
    logits = ln.jit(network)(done.parameters, digits.test_x)
    sure = ln.softmax(logits).max(axis=1)
    says = logits.argmax(axis=1)
    wrong = np.flatnonzero(says != digits.test_y)
    right = np.flatnonzero(says == digits.test_y)
    chosen = [*wrong[:16], *right[: 33 - len(wrong[:16])]]
    tiles = "".join(
        tile(
            digits.test_x[at, 0],
            10,
            f"{says[at]}, is {digits.test_y[at]}" if at in wrong else f"{says[at]} · {sure[at]:.0%}",
            wrong=bool(at in wrong),
        )
        for at in chosen
    )
    words = f"Of {len(says)} test digits, {len(wrong)} are misread (red, with what they are); then some that are not."
    return Section("digits", "Predictions", words, f'<div class="tiles">{tiles}</div>')


def _windows() -> Section:
    pictures = {
        "the second convolution: a kernel of 3x3 on 4x4 cells, padded by one": ln.explain(
            "conv", (4, 4), kernel=3, padding=1
        ),
        "the smooth max pool behind it": ln.explain("smooth_max_pool", (4, 4), kernel=2),
        "what ceil_mode and uneven padding would do to an average": ln.explain(
            "avg_pool", (5, 5), kernel=3, stride=2, padding=((1, 0), (1, 0)), ceil_mode=True
        ),
    }
    body = "".join(
        f'<figure class="window"><figcaption>{escape(text)}</figcaption>{inline(e.to_svg())}</figure>'
        for text, e in pictures.items()
    )
    words = "Which input cells each output cell reads, drawn by ln.explain from the same formula the kernels use."
    return Section("windows", "Windows", words, body)


def _graph(graph: ln.Graph, step: ln.Graph) -> Section:
    text = "\n".join(t if len(t) <= 80 else f"{t[:79]}…" for t in str(graph).splitlines())
    body = (
        f'<div class="beside"><figure class="scroll">{inline(graph.to_svg())}</figure><pre>{escape(text)}</pre></div>'
        f"<details><summary>and one training step: value and gradient, {len(step.nodes)} nodes</summary>"
        f'<figure class="scroll">{inline(step.to_svg())}</figure></details>'
    )
    words = (
        "What ln.trace recorded from the Python function, as a picture (hover for more) and as text. Long lines are "
        "cut here; the whole text parses back, given the arrays of its large constants."
    )
    return Section("graph", "The graph", words, body)


def _time(stats: Stats) -> Section:
    longest = max(n.seconds for n in stats.nodes)
    rows = [
        (
            f'<div class="bar" style="width:{100 * n.seconds / longest:.1f}%"></div>',
            f"{n.seconds * 1e6:.1f}",
            f"{n.flops / max(n.seconds, 1e-12) / 1e9:.1f}" if n.flops else "",
            f'<span class="mono">{escape(n.text)}</span>',
        )
        for n in sorted(stats.nodes, key=lambda n: -n.seconds)[:16]
    ]
    body = table(('<div style="width:160px">share</div>', "µs", "GFLOP/s", "step"), rows, numbers=(1, 2))
    words = (
        f"The training step as it runs: {len(stats.nodes)} compiled steps in {stats.seconds * 1e6:,.0f} µs, "
        f"intermediate results in {stats.arena / 2**20:.2f} MiB. The longest, with what was fused into them:"
    )
    return Section("time", "Where the time goes", words, body)


def _errors(errors: Errors) -> Section:
    ulps = errors.ulps.ravel()
    counts, _ = np.histogram(ulps, [0, *(np.nextafter(e, np.inf) for e in EDGES), np.inf])
    facts = [
        ("correctly rounded (≤ 0.5 ulp)", f"{(ulps <= 0.5).mean():.1%}"),
        ("median", f"{np.median(ulps):.2f} ulp"),
        ("95 % are within", f"{np.quantile(ulps, 0.95):.1f} ulp"),
        ("largest (where terms cancel)", f"{ulps.max():.0f} ulp"),
        ("largest share of the guaranteed bound", f"{errors.of_bound:.1%}"),
    ]
    body = (
        f'<div class="two"><div>{histogram("outputs by error in ulp", EDGES, counts.tolist(), "--blue")}</div>'
        f"<div>{table(('', ''), facts, numbers=(1,))}</div></div>"
    )
    words = (
        f"The second convolution of the trained network, in float32, against exact rational sums of {errors.terms} "
        f"terms: {ulps.size} outputs. One ulp is the distance from the exact result to the next float; the bound is "
        "gamma(h) * sum|x||w|."
    )
    return Section("errors", "Errors of a fast kernel", words, body)


def _exactness(check: Check) -> Section:
    def text(v: Fraction) -> str:
        return f'<span class="mono">{v.numerator}/{v.denominator}</span>'

    rows = [(f'<span class="mono">{escape(name)}</span>', text(v), f"{float(v):.9g}") for name, v in check.samples]
    verdict = "All three are equal, with ==." if check.equal else "They differ: this is a bug."
    words = (
        "A tiny network of the same kind on rational numbers. Its gradient by reverse mode, by the traced graph, and "
        f"by the specification on dual numbers, {check.cells} derivatives each. {verdict} Some of them:"
    )
    return Section("exactness", "Exactness", words, table(("of", "exactly", "about"), rows, numbers=(2,)))
