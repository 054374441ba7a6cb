"""The same training step in PyTorch, timed in turns with lunette's."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import lunette as ln
from lunette.demo.digits import BATCH, BETA, Digits, Parameters, loss


@dataclass(frozen=True, slots=True)
class Beside:
    """The time of each library's fastest step, and how far the gradients are apart, relative to the greatest.

    The fastest, because a demo runs on machines that do other things too, and waiting threads suffer most from that.
    """

    ours: float
    theirs: float
    apart: float
    version: str


def compare(p: Parameters, digits: Digits, turns: int = 8, steps: int = 12, warm: int = 4) -> Beside:
    """Value and gradient on one batch, by both libraries with the same number of threads.

    A turn is some steps in a row, the first of which do not count: the other library's threads may still be spinning.
    """
    torch: Any = importlib.import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(ln.get_num_threads())
    f = torch.nn.functional
    x, y = digits.x[:BATCH], digits.y[:BATCH]
    theirs = {name: torch.from_numpy(a.copy()).requires_grad_() for name, a in p.items()}
    image, labels = torch.from_numpy(x), torch.from_numpy(y)

    def smooth_max(h: Any) -> Any:
        n, c, height, width = h.shape  # windows that do not overlap are a matter of axes
        windows = h.reshape(n, c, height // 2, 2, width // 2, 2)
        return torch.logsumexp(BETA * windows, dim=(3, 5)) / BETA

    def torch_step() -> Any:
        h = f.max_pool2d(f.relu(f.conv2d(image, theirs["w1"], theirs["b1"], padding=1)), 2)
        h = smooth_max(f.relu(f.conv2d(h, theirs["w2"], theirs["b2"], padding=1)))
        value = f.cross_entropy(f.linear(h.mean(dim=(2, 3)), theirs["w3"], theirs["b3"]), labels)
        return torch.autograd.grad(value, list(theirs.values()))

    both = ln.jit(ln.value_and_grad(loss))
    _, ours = both(p, x, y)
    gradients = dict(zip(theirs, torch_step(), strict=True))
    apart = max(float(np.abs(gradients[n].numpy() - g).max() / np.abs(g).max()) for n, g in ours.items())
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for seconds, step in zip(times, (lambda: both(p, x, y), torch_step), strict=True):
            seconds += [timed(step) for _ in range(warm + steps)][warm:]
    torch.set_num_threads(before)
    return Beside(min(times[0]), min(times[1]), apart, str(torch.__version__))


def timed(step: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun
