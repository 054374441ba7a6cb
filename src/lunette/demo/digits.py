"""A small convolutional network on the 1,797 handwritten digits of scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import cos, pi, prod
from typing import Any

import numpy as np

import lunette as ln
from lunette.number import Array

Parameters = dict[str, Array]
TEST, BATCH, RATE, BETA = 360, 16, 0.01, 4.0


@dataclass(frozen=True, slots=True)
class Digits:
    """Images (n, 1, 8, 8) with cells from 0 to 1, and their labels; the split never changes."""

    x: Array
    y: Array
    test_x: Array
    test_y: Array


def load(seed: int = 0) -> Digits:
    """Every fifth digit, chosen by the seed, is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    y = labels.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(x))
    test, rest = order[:TEST], order[TEST:]
    return Digits(x[rest], y[rest], x[test], y[test])


# ---- the network


def he(seed: int = 0, channels: tuple[int, int] = (16, 64)) -> Parameters:
    """Weights of standard deviation sqrt(2 / fan-in), biases of zero."""
    random = np.random.default_rng(seed)
    first, second = channels

    def normal(*shape: int) -> Array:
        cells: Array = random.standard_normal(shape) * np.sqrt(2 / prod(shape[1:]))
        return cells.astype(np.float32)

    weights = {"w1": normal(first, 1, 3, 3), "w2": normal(second, first, 3, 3), "w3": normal(10, second)}
    biases = {f"b{n}": np.zeros(len(weights[f"w{n}"]), np.float32) for n in (1, 2, 3)}
    return weights | biases


def network(p: Any, x: Any) -> Any:
    """Ten numbers for each image; the greatest is the prediction."""
    h = ln.max_pool(ln.relu(ln.conv(x, p["w1"], p["b1"], padding=1)), 2)
    h = ln.smooth_max_pool(ln.relu(ln.conv(h, p["w2"], p["b2"], padding=1)), 2, beta=BETA)
    return ln.linear(ln.global_avg_pool(h, keepdims=False), p["w3"], p["b3"])


def loss(p: Any, x: Any, y: Any) -> Any:
    """How far the predictions are from the labels."""
    return ln.cross_entropy(network(p, x), y)


# ---- training


@dataclass(slots=True)
class Adam:
    """Steps of about one size in every parameter, whatever the size of its gradient."""

    mean: Parameters = field(default_factory=dict)
    square: Parameters = field(default_factory=dict)
    steps: int = 0

    def step(self, p: Parameters, gradient: Parameters, rate: float, b1: float = 0.9, b2: float = 0.99) -> Parameters:
        """The next parameters."""
        self.steps += 1
        new = {}
        scale = rate * np.sqrt(1 - b2**self.steps) / (1 - b1**self.steps)
        for name, g in gradient.items():
            self.mean[name] = b1 * self.mean.get(name, np.zeros_like(g)) + (1 - b1) * g
            self.square[name] = b2 * self.square.get(name, np.zeros_like(g)) + (1 - b2) * g * g
            new[name] = p[name] - np.float32(scale) * self.mean[name] / (np.sqrt(self.square[name]) + np.float32(1e-8))
        return new


@dataclass(slots=True)
class Training:
    """What a training left behind."""

    parameters: Parameters
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    """On the test digits, after each epoch."""
    seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    """Value and gradient alone, without the optimizer."""


def train(digits: Digits, epochs: int, seed: int = 0, after: Callable[[Training], None] = lambda _: None) -> Training:
    """Adam over a compiled value_and_grad, with a rate that falls to zero; `after` follows each step and epoch."""
    random = np.random.default_rng(seed)
    done = Training(he(seed))
    both = ln.jit(ln.value_and_grad(loss))
    predict = ln.jit(network)
    optimizer = Adam()
    per_epoch = len(digits.x) // BATCH
    started = time.perf_counter()
    for _ in range(epochs):
        order = random.permutation(len(digits.x))[: per_epoch * BATCH].reshape(per_epoch, BATCH)
        for some in order:
            x, y = digits.x[some], digits.y[some]
            begun = time.perf_counter()
            value, gradient = both(done.parameters, x, y)
            done.step_seconds.append(time.perf_counter() - begun)
            rate = RATE * (1 + cos(pi * len(done.losses) / (epochs * per_epoch))) / 2
            done.parameters = optimizer.step(done.parameters, gradient, rate)
            done.losses.append(float(value))
            done.seconds = time.perf_counter() - started
            after(done)
        done.accuracies.append(accuracy(predict(done.parameters, digits.test_x), digits.test_y))
        after(done)
    done.seconds = time.perf_counter() - started
    return done


def accuracy(logits: Array, labels: Array) -> float:
    """The share of right predictions."""
    return float((logits.argmax(axis=1) == labels).mean())
