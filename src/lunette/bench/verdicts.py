"""`make verify-bench`: verdicts about published networks and properties, as a table.

The folder of networks and properties is that of LUNETTE_VERIFY_DATA; nothing of it is part of the project. Every
certificate is checked with `ln.check` against the property it was asked for, after the verdict, and timed apart.
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
from typing import Any

from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.onnx.command import read_network

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


def measure(root: Path, name: str, most: float, patterns: list[str]) -> Iterator[Line]:
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
        yield Line(name, net.stem, own, *facts)


def main(words: list[str]) -> None:
    """Sets (all if none), --most SECONDS, --only TEXT, --json FILE."""
    root = os.getenv("LUNETTE_VERIFY_DATA", "")
    if not root or not Path(root).is_dir():
        raise SystemExit("set LUNETTE_VERIFY_DATA to the folder of networks and properties")
    options: dict[str, list[str]] = {"--most": [], "--only": [], "--json": []}
    sets: list[str] = []
    rest = iter(words)
    for w in rest:
        options[w].append(next(rest)) if w in options else sets.append(w)
    most = float(options["--most"][0]) if options["--most"] else 300.0
    out = Console(width=170)
    lines: list[Line] = []
    for name in sets or list(FOLDERS):
        for line in measure(Path(root), name, most, options["--only"]):
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
    table = Table(*head)
    for x in lines:
        times = (f"{x.seconds:.2f}", f"{x.processor:.2f}", f"{x.bound:.4g}", f"{x.found:.4g}", str(x.leaves))
        after = (f"{x.certificate / 1000:.0f}", x.checked, f"{x.check_seconds:.1f}")
        table.add_row(x.net[:20], x.spec[:40], x.status, *times, *after)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
