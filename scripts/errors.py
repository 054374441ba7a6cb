"""The picture of docs/rounded.md: how far lunette's fast kernels, PyTorch and JAX are from the nearest float.

Run `.venv/bin/python scripts/errors.py docs/errors.svg`; it needs jax, torch and matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import matplotlib as mpl
import numpy as np
import torch

import lunette as ln

mpl.use("svg")
import matplotlib.pyplot as plt

LAYERS = {
    "3x3x64, 56x56": ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "3x3x512, 7x7": ((4, 512, 7, 7), (512, 512, 3, 3), 1, 1),
    "7x7x3 stride 2, 224x224": ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
}


def peers(x: Any, w: Any, stride: int, padding: int) -> dict[str, Callable[[], Any]]:
    pads = [(padding, padding)] * 2
    return {
        "lunette fast": lambda: ln.conv(x, w, stride=stride, padding=padding),
        "PyTorch": lambda: torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), None, stride, padding).numpy(),
        "JAX": lambda: (
            np.asarray(jax.lax.conv(x, w, (stride, stride), "VALID"))
            if padding == 0
            else np.asarray(jax.lax.conv_general_dilated(x, w, (stride, stride), pads))
        ),
    }


def main(path: str) -> None:
    rng = np.random.default_rng(0)
    figure, axes = plt.subplots(1, len(LAYERS), figsize=(11, 3.2), sharey=True)
    for axis, (name, (xs, ws, stride, padding)) in zip(axes, LAYERS.items(), strict=True):
        x = np.maximum(rng.standard_normal(xs), 0).astype(np.float32)  # as after a relu
        w = (rng.standard_normal(ws) / np.sqrt(np.prod(ws[1:]))).astype(np.float32)
        true = ln.conv(x, w, stride=stride, padding=padding, arithmetic="rounded")
        size = ln.conv(abs(x).astype(np.float64), abs(w).astype(np.float64), stride=stride, padding=padding)
        for label, f in peers(x, w, stride, padding).items():
            y = f()
            error = np.abs(y.astype(np.float64) - true) / (2.0**-24 * size)
            wrong = (y != true).mean()
            axis.hist(error.ravel(), bins=60, histtype="step", log=True, label=f"{label}: {wrong:.0%} not nearest")
            print(f"{name}: {label} not nearest {wrong:.3f}, worst {error.max():.2f} u*sum|x||w|")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("error in u·Σ|x||w|")
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("outputs")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main(sys.argv[1])
