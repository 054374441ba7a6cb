"""Accuracy that is certified, and that an attack leaves, over radii: every image a box, every box a verdict.

| rule | says                                                                                                        |
|------|-------------------------------------------------------------------------------------------------------------|
| VM1  | images are an .npz file with arrays x and y, or a folder of files LABEL-name.npy or LABEL/name.npy           |
| VM2  | every image has as many cells as the network's only input; labels are classes                               |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lunette.errors import ArgumentError, error_context
from lunette.graph.graph import Graph
from lunette.graph.program import Program
from lunette.number import Array, Interval
from lunette.verify.property import Property
from lunette.verify.verify import verify


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What is known of the images at one radius; shares are of all images."""

    radius: float
    images: int
    clean: float
    """Right at the image itself."""
    certified: float
    """Right everywhere in the box, proved."""
    attacked: float
    """Not disproved: right at the image, and no counterexample was found."""
    unknown: int
    seconds: float
    verdicts: tuple[str, ...] = ()
    """Of every image: wrong, proved, disproved or unknown."""

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def read_images(path: Path, graph: Graph, most: int | None = None) -> tuple[Array, Array]:
    """Rules VM1 and VM2: images, one row of cells each, and labels."""
    with error_context("verify"):
        x, y = _folder(path) if path.is_dir() else _npz(path)
        if len(graph.inputs) != 1:
            raise ArgumentError("VM2", "a network with one input", f"{len(graph.inputs)}", "Images go to one input.")
        cells, classes = prod(graph.inputs[0].shape), prod(graph.nodes[graph.outputs[0]].shape)
        flat = x.reshape(len(x), -1)
        if len(x) != len(y) or flat.shape[1] != cells:
            got = f"{len(x)} images of {flat.shape[1]} cells with {len(y)} labels"
            raise ArgumentError("VM2", f"a label for every image of {cells} cells", got, "One image in a row.")
        if y.dtype.kind not in "iu" or (len(y) and not (y.min() >= 0 and y.max() < classes)):
            raise ArgumentError("VM2", f"labels from 0 to {classes - 1}", f"{y.dtype}", "Integers, one per image.")
        scaled = flat.astype(np.float64) / 255 if flat.dtype == np.uint8 else flat.astype(np.float64)
        return scaled[:most].astype(graph.inputs[0].dtype), y[:most].astype(np.int64)


def _npz(path: Path) -> tuple[Array, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            pairs = [("x", "y"), ("images", "labels"), ("x_test", "y_test"), ("test_x", "test_y")]
            found = next(((a, b) for a, b in pairs if {a, b} <= names), None)
            if found is not None:
                return file[found[0]], file[found[1]]
    except (OSError, ValueError, AttributeError) as error:
        raise ArgumentError("VM1", "an .npz file", f"{path.name} ({error})", "np.savez(path, x=x, y=y).") from None
    raise ArgumentError("VM1", "arrays x and y", ", ".join(sorted(names)) or "none", "np.savez(path, x=x, y=y).")


def _folder(path: Path) -> tuple[Array, Array]:
    x, y = [], []
    for file in sorted(path.rglob("*.npy")):
        label = file.name.split("-")[0] if file.parent == path else file.parent.name
        if not label.isdigit():
            raise ArgumentError("VM1", "files that tell their label", file.name, "7-name.npy, or a folder 7.")
        x.append(np.load(file, allow_pickle=False))
        y.append(int(label))
    if not x or len({a.shape for a in x}) != 1:
        got = f"{len(x)} files" if not x else "images of several shapes"
        raise ArgumentError("VM1", ".npy files of one shape", got, "One image in a file.")
    return np.stack(x), np.array(y)


def accuracy(
    graph: Graph,
    x: Array,
    y: Array,
    radii: Sequence[float],
    *,
    timeout: float = 10.0,
    progress: Callable[[str, int, int], None] | None = None,
    certificates: Path | None = None,
    limits: tuple[float, float] | None = None,
    **options: Any,
) -> list[Accuracy]:
    """Verdicts about all images at all radii, in ascending order; `timeout` is that of each.

    Boxes are cut at `limits`: by default 0 and 1, if all images are between them.
    """
    shape, classes = graph.inputs[0].shape, prod(graph.nodes[graph.outputs[0]].shape)
    if limits is None:
        limits = (0.0, 1.0) if len(x) and x.min() >= 0 and x.max() <= 1 else (-np.inf, np.inf)
    program = Program(graph)
    verdicts: dict[float, list[str]] = {r: [] for r in radii}
    seconds = dict.fromkeys(radii, 0.0)
    for at, (image, label) in enumerate(zip(x, y, strict=True)):
        point = image.reshape(shape)
        answer = "" if int(np.argmax(program(point))) == int(label) else "wrong"
        for r in radii:
            begin = perf_counter()
            if progress is not None:
                progress(f"image {at + 1} of {len(x)}, radius {r:g}", at, len(x))
            if answer not in ("wrong", "disproved"):  # a counterexample is one in larger boxes, too
                v = verify(
                    graph,
                    box_around(point, r, limits),
                    Property.robust(int(label), classes),
                    timeout=timeout,
                    **options,
                )
                answer = v.status
                if certificates is not None and v.certificate is not None:
                    certificates.mkdir(parents=True, exist_ok=True)
                    v.certificate.save(certificates / f"image-{at}-radius-{r:g}.cert")
            verdicts[r].append(answer)
            seconds[r] += perf_counter() - begin
    return [_summary(r, verdicts[r], seconds[r]) for r in radii]


def box_around(point: Array, radius: float, limits: tuple[float, float]) -> Interval:
    """All that is no farther from a point, cell by cell, in float64, rounded outward, and inside of the limits."""
    middle = point.astype(np.float64)
    lo = np.maximum(np.nextafter(middle - radius, -np.inf), min(limits[0], float(middle.min())))
    hi = np.minimum(np.nextafter(middle + radius, np.inf), max(limits[1], float(middle.max())))
    return Interval.between(lo, hi)


def _summary(radius: float, verdicts: list[str], seconds: float) -> Accuracy:
    n = max(len(verdicts), 1)
    count = {w: verdicts.count(w) for w in ("wrong", "proved", "disproved", "unknown")}
    clean = len(verdicts) - count["wrong"]
    return Accuracy(
        radius,
        len(verdicts),
        clean / n,
        count["proved"] / n,
        (clean - count["disproved"]) / n,
        count["unknown"],
        seconds,
        tuple(verdicts),
    )
