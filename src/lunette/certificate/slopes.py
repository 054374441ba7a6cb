"""The slopes of improved lines, in the checker's words: what "optimised" bounds found, for certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lunette.certificate.check import ZERO, Network
from lunette.certificate.format import SLOPES
from lunette.lines import Greatest, Kink
from lunette.number import Array

Slopes = dict[tuple[int, int], dict[int, dict[int, list[int]]]]
"""By (row, sign), node and cell: a slope for every tap but zero."""


class Recorded:
    """The slopes of the best walk of each row."""

    def __init__(self, net: Network) -> None:
        self.net, self.found = net, Slopes()
        needed, waiting = set[int](), [p for p, _ in net.out]
        while waiting:
            if (at := waiting.pop()) not in needed:
                needed.add(at)
                waiting += net.nodes[at].sources
        self.maxima = [at for at in sorted(needed) if net.nodes[at].taps is not None]

    def recorder(self, start: int) -> Callable[[Array, Any], None]:
        """For rows from `start` on, of which the second half has the other sign."""

        def record(better: Array, dual: Any) -> None:
            bending = {k: s for k, s in dual.steps.items() if hasattr(s, "relaxation") and k in dual.coefficients}
            if [int(np.prod(s.lines.low_constant.shape[1:])) for s in bending.values()] != [
                self.net.nodes[at].size for at in self.maxima
            ]:
                return  # another network than the checker's: its own slopes have to do
            half = len(better) // 2
            for row in np.flatnonzero(better):
                own = {}
                for at, (k, s) in zip(self.maxima, bending.items(), strict=True):
                    own[at] = self._of(at, s, dual.coefficients[k][row].reshape(-1), int(row))
                self.found[start + int(row) % half, 1 if row < half else -1] = {at: v for at, v in own.items() if v}

        return record

    def _of(self, at: int, step: Any, a: Array, row: int) -> dict[int, list[int]]:
        relaxation, lines = step.relaxation, step.lines
        if len(lines.low) != 1 or not isinstance(relaxation, Kink | Greatest):
            return {}
        low, high = (v[0][row % len(v[0])].reshape(v[0].shape[1], -1) for v in (lines.low, lines.high))
        used = np.where(a > 0, low, high)  # (taps, cells)
        if isinstance(relaxation, Kink):
            taps = self.net.nodes[at].taps
            if relaxation.right == relaxation.left or any(sum(p != ZERO for p, _ in t) != 1 for t in taps):
                return {}
            open_ = np.flatnonzero((a != 0) & relaxation.open.reshape(-1))
            scaled = np.rint((used[0] - relaxation.left) / (relaxation.right - relaxation.left) * SLOPES)
            return {int(c): [int(scaled[c])] for c in open_}
        taps, place = self.net.nodes[at].taps, relaxation.taps[0]
        numbers = np.arange(int(np.prod(place.shape)), dtype=float).reshape(1, *place.shape)
        reads = place.gather(numbers, -1.0)[0].reshape(len(used), -1).astype(np.int64)
        found = {}
        for c in np.flatnonzero((a != 0) & (relaxation.can_win()[0].sum(0).reshape(-1) > 1)):
            slope = dict(zip(reads[:, c].tolist(), np.rint(used[:, c] * SLOPES).astype(int).tolist(), strict=True))
            found[int(c)] = [slope.get(i, 0) for p, i in taps[c] if p != ZERO]
        return found
