"""`make verify-bench`: verdicts about published networks and properties, as a table.

The folder of networks and properties is that of LUNETTE_VERIFY_DATA; nothing of it is part of the project. Every
certificate is checked with `ln.check` against the property it was asked for, after the verdict, and timed apart. With
`--attack STEPS`, what was not disproved is attacked by other means, so many steps for each way to violate it: a
violation that this finds, and `ln.verify` did not, is a loss; one of what was proved would be an alarm.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.onnx.command import read_network
from lunette.verify import exact
from lunette.verify.question import rooms_of

FOLDERS = {
    "verivital": "vnncomp2021_verivital",
    "oval21": "vnncomp2021_oval21",
    "resnet": "vnncomp2021_cifar10_resnet",
    "collins": "vnncomp_collins_rul_cnn_2022",
    "cgan": "vnncomp_cgan_2023",
    "carvana": "vnncomp2022_carvana_unet",
    "traffic": "vnncomp_traffic_signs_2023",
    "yolo": "vnncomp_yolo_2023",
}
RESNET = {"prop_15": "resnet_4b"}
"""Properties of the larger of two networks in one folder."""


@dataclass(frozen=True, slots=True)
class Line:
    """One instance."""

    set: str
    net: str
    spec: str
    status: str
    reason: str
    seconds: float
    processor: float
    """Seconds of the processor, which others do not lengthen."""
    bound: float
    found: float
    leaves: int
    certificate: int
    """Bytes."""
    checked: str
    check_seconds: float
    attacked: float | None = None
    """The least margin that an attack of its own found; None where there was none."""
    violation: str = ""
    """How a violation that it found was evaluated."""


def pairs(root: Path, name: str) -> Iterator[tuple[Path, Path, float]]:
    """Networks, properties and seconds of a set: those of its list whose files are there, or by the names of files."""
    folder = root / FOLDERS[name]
    specs = {p.name: p for p in sorted((folder / "vnnlib").glob("*.vnnlib*"))}
    if (listed := folder / "instances.csv").exists():
        for net, spec, seconds in csv.reader(listed.read_text().splitlines()):
            path, own = folder / Path(net).name, specs.get(Path(spec).name + ".gz")
            if path.exists() and own is not None:
                yield path, own, float(seconds)
        return
    nets = sorted(folder.glob("*.onnx"))
    for spec, path in specs.items():
        if name == "resnet":
            word = next((w for start, w in RESNET.items() if spec.startswith(start)), "resnet_2b")
            yield folder / f"{word}.onnx", path, 300.0
        else:
            fitting = [n for n in nets if spec.startswith(f"{n.stem}-")]
            yield (fitting or nets)[-1], path, 300.0


RESTARTS: Final = 10


def attack(graph: ln.Graph, property: ln.Property, steps: int) -> tuple[float, str]:
    """Projected descent with momentum, so many steps for each case, from the centre and from random points.

    Nothing of the attack of `ln.verify` is used but its boxes, and its exact evaluation of what comes out.
    """
    program, rng, least = ln.Program(graph), np.random.default_rng(2026), np.inf
    for room in rooms_of(graph, None, property):
        if room.floats is None:
            continue
        lo, hi = room.floats
        for case, places in zip(room.cases, room.places, strict=True):
            for restart in range(RESTARTS):
                share = [np.full(a.shape, 0.5) if not restart else rng.random(a.shape) for a in lo]
                x = [a + (b - a) * s.astype(a.dtype) for a, b, s in zip(lo, hi, share, strict=True)]
                speed = [np.zeros(a.shape) for a in lo]
                for k in range(steps // RESTARTS):
                    y, pullback = program.vjp(*x)
                    own = room.rows[places] @ np.asarray(y, np.float64).reshape(-1) - room.thresholds[places]
                    worst = int(np.argmax(own))
                    least = min(least, float(own[worst]))
                    if own[worst] <= 0 and (found := exact.met(graph, x, [case]))[0] is not None:
                        return least, found[1]
                    g = pullback(room.rows[places][worst].reshape(np.shape(y)).astype(lo[0].dtype))
                    speed = [0.75 * v + d / (np.abs(d).mean() + 1e-30) for v, d in zip(speed, g, strict=True)]
                    rate = 0.2 * (1 - k * RESTARTS / steps)
                    moved = zip(x, speed, lo, hi, strict=True)
                    x = [np.clip(v - rate * (b - a) * np.sign(s), a, b).astype(a.dtype) for v, s, a, b in moved]
    return least, ""


def measure(root: Path, name: str, most: float, patterns: list[str], steps: int = 0) -> Iterator[Line]:
    """The verdicts of a set; `most` limits the seconds of each."""
    graphs: dict[Path, Any] = {}
    for net, spec, limit in pairs(root, name):
        if patterns and not any(p in f"{net.name}/{spec.name}" for p in patterns):
            continue
        own = spec.name.partition(".vnnlib")[0]
        try:
            graph = graphs[net] if net in graphs else graphs.setdefault(net, read_network(net)[0])
            property = ln.Property.load(spec)
            begin = time.process_time()
            v = ln.verify(graph, None, property, timeout=min(limit, most))
            used = time.process_time() - begin
        except ln.LunetteError as error:
            yield Line(name, net.stem, own, "refused", str(error)[:200], 0, 0, 0, 0, 0, 0, "", 0)
            continue
        checked, begin = "", time.process_time()
        if v.certificate is not None:
            c = ln.check(graph, v.certificate, property=property)
            checked = "accepted" if c.ok else f"REFUSED {c.reason}"
        spent = time.process_time() - begin
        size = len(v.certificate.data) if v.certificate is not None else 0
        facts = (v.status, v.reason, v.seconds, used, v.bound, v.found, v.leaves, size, checked, spent)
        further = attack(graph, property, steps) if steps and v.status != "disproved" else (None, "")
        yield Line(name, net.stem, own, *facts, *further)


def main(words: list[str]) -> None:
    """Sets (all if none), --most SECONDS, --only TEXT, --attack STEPS, --json FILE."""
    root = os.getenv("LUNETTE_VERIFY_DATA", "")
    if not root or not Path(root).is_dir():
        raise SystemExit("set LUNETTE_VERIFY_DATA to the folder of networks and properties")
    options: dict[str, list[str]] = {"--most": [], "--only": [], "--attack": [], "--json": []}
    sets: list[str] = []
    rest = iter(words)
    for w in rest:
        options[w].append(next(rest)) if w in options else sets.append(w)
    most = float(options["--most"][0]) if options["--most"] else 300.0
    out = Console(width=170)
    lines: list[Line] = []
    for name in sets or list(FOLDERS):
        for line in measure(Path(root), name, most, options["--only"], int((options["--attack"] or ["0"])[0])):
            lines.append(line)
            out.print(f"{line.set} {line.net[:24]} {line.spec[:44]}: {line.status}, {line.reason}", highlight=False)
            if options["--json"]:
                Path(options["--json"][0]).write_text(json.dumps([asdict(x) for x in lines], indent=1) + "\n")
    out.print(as_table(lines))
    for name in dict.fromkeys(x.set for x in lines):
        own = [x for x in lines if x.set == name]
        counts = {s: sum(x.status == s for x in own) for s in ("proved", "disproved", "unknown", "refused")}
        words_of = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        out.print(f"{name}: {len(own)} instances, {words_of}", highlight=False)


def as_table(lines: list[Line]) -> Table:
    """All of it but the reasons."""
    head = ("network", "property", "verdict", "seconds", "cpu s", "proven", "found", "leaves", "KB", "check", "check s")
    table = Table(*head, "attacked")
    for x in lines:
        times = (f"{x.seconds:.2f}", f"{x.processor:.2f}", f"{x.bound:.4g}", f"{x.found:.4g}", str(x.leaves))
        after = (f"{x.certificate / 1000:.0f}", x.checked, f"{x.check_seconds:.1f}")
        attacked = "" if x.attacked is None else f"{x.attacked:.4g}" + (" VIOLATED" if x.violation else "")
        table.add_row(x.net[:20], x.spec[:40], x.status, *times, *after, attacked)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
