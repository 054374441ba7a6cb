"""How robust the trained network is: every test digit a box, and of each box a proof, a counterexample, or neither."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lunette as ln
from lunette.demo.digits import Digits
from lunette.number import Array
from lunette.verify.images import box_around

RADIUS = 0.02
CHECKED = 20
"""Certificates that are made, and checked, of digits that bounds have proven; the others have none."""
PART = 18
"""Digits that a process takes at once."""
CLASSES = 10
SECONDS, UNDECIDED = 30.0, 1.0
"""For a certificate of one digit; for the verdict about one that bounds do not prove."""


@dataclass(frozen=True, slots=True)
class Robustness:
    """Of some digits: how many, and how long all of it took, certificates included."""

    digits: int
    clean: int
    """Right at the digit itself."""
    certified: int
    """Right everywhere in the box, proved."""
    attacked: int
    """Right, and no counterexample was found."""
    checked: int
    """Certificates that the checker accepts."""
    grade: str
    made: int
    """Certificates that were made."""
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether every certificate that was made is accepted."""
        return self.checked == self.made


@dataclass(frozen=True, slots=True)
class Part:
    """Some digits for one process, and for how many of them a certificate is wanted."""

    graph: Path
    x: Array
    y: Array
    certificates: int


def measure(graph: Path, digits: Digits, count: int, certificates: int = CHECKED) -> Robustness:
    """The first `count` test digits, in processes; the graph is a file of Graph.save for a batch of one."""
    begun = time.perf_counter()
    x, y = digits.test_x[:count], digits.test_y[:count]
    starts = range(0, len(x), PART)
    each = -(-certificates // len(starts))
    parts = [Part(graph, x[s : s + PART], y[s : s + PART], each) for s in starts]
    if len(parts) == 1:
        found = answers(parts[0])
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(os.cpu_count() or 1, len(parts)), spawn, ln.set_num_threads, (1,)) as pool:
            found = [answer for part in pool.map(answers, parts) for answer in part]
    count_of = [word for word, _ in found].count
    grades = [grade for _, grade in found if grade]
    right = len(found) - count_of("wrong")
    return Robustness(
        len(found),
        right,
        count_of("proved"),
        right - count_of("disproved"),
        len([g for g in grades if g != "refused"]),
        ", ".join(sorted({*grades} - {"refused"})),
        len(grades),
        time.perf_counter() - begun,
    )


def answers(part: Part) -> list[tuple[str, str]]:
    """Wrong, proved, disproved or unknown; and the grade of the certificate, if one was made."""
    return list(_answers(part, ln.load(part.graph)))


def _answers(part: Part, graph: ln.Graph) -> Iterator[tuple[str, str]]:
    program, wanted = graph.compile(), part.certificates
    for x, label in zip(part.x[:, None], part.y.tolist(), strict=True):
        if int(np.argmax(program(x))) != label:
            yield "wrong", ""
            continue
        box, wins = box_around(x, RADIUS, (0.0, 1.0)), ln.Property.robust(label, CLASSES)
        others = np.delete(np.eye(CLASSES), label, axis=0)
        is_proved = bool((ln.bounds(graph, box, rows=np.eye(CLASSES)[label] - others).lo > 0).all())
        if is_proved and not wanted:
            yield "proved", ""
            continue
        v = ln.verify(graph, box, wins, timeout=SECONDS if is_proved else UNDECIDED)
        if not is_proved or v.certificate is None:
            yield "proved" if is_proved else v.status, ""
            continue
        wanted -= 1
        c = ln.check(graph, v.certificate, wins, box)
        yield "proved", c.grade if c.ok else "refused"
