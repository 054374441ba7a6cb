"""Threads that call the same functions at the same time, also where no lock of the interpreter keeps them apart."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.array.resolved import forget

THREADS, TURNS = 6, 12


def arrays(n: int) -> tuple[Any, Any]:
    """Small integers, so that every order of a sum has the same result."""
    rng = np.random.default_rng(n)
    return rng.integers(-4, 5, (1, 2, n, 7)).astype(np.float32), rng.integers(-2, 3, (3, 2, 3, 3)).astype(np.float32)


def loss(x: Any, w: Any) -> Any:
    return ln.sum(ln.max_pool(ln.relu(ln.conv(x, w, padding=1)), 2) ** 2)


compiled, slope = ln.jit(loss), ln.jit(ln.grad(loss, argnums=(0, 1)))


def eager(n: int) -> Any:
    x, w = arrays(n)
    y = ln.conv(x, w, padding=1)
    return y, ln.max_pool(y, 2), *ln.conv_vjp((x, w), np.ones_like(y), padding=1)


def derived(n: int) -> Any:
    x, w = arrays(n)
    return loss(x, w), *ln.grad(loss, argnums=(0, 1))(x, w)


def jitted(n: int) -> Any:
    return compiled(*arrays(n)), *slope(*arrays(n))


def nearest(n: int) -> Any:
    x, w = arrays(n)
    x = x / np.float32(3)
    return ln.conv(x, w, arithmetic="rounded"), ln.lp_pool(x, 2, p=3.0, arithmetic="rounded")


def boxes(n: int) -> Any:
    x, w = arrays(n)
    y = ln.smooth_max_pool(ln.conv(ln.Interval.around(x, 0.5), w), 2, beta=2.0)
    return y.lo, y.hi


def exact(n: int) -> Any:
    x, _ = arrays(n)
    return ln.avg_pool(x[:, :1].astype(int).tolist(), 2, padding=1), ln.spec.smooth_max_pool(
        x[0, :1, :2, :2], 2, beta=1
    )


def proofs(n: int) -> Any:
    x, w = arrays(n)
    v, box = w.astype(float), ln.Interval.around(x.astype(float), 0.25)
    b = ln.bounds(lambda x: ln.flatten(ln.max_pool(ln.relu(ln.conv(x, v)), 2)), box)
    return b.lo, b.hi


@pytest.mark.parametrize("work", [eager, derived, jitted, nearest, boxes, exact, proofs])
def test_threads_get_what_one_alone_gets(work: Callable[[int], Any]) -> None:
    """They begin together, with everything forgotten, and one of them makes the others forget again and again."""
    sizes = [5 + turn % 4 for turn in range(TURNS)]
    wanted = {n: work(n) for n in set(sizes)}
    begin = threading.Barrier(THREADS)
    wrong: list[tuple[int, object]] = []

    def run(me: int) -> None:
        begin.wait()
        try:
            for n in sizes:
                if me == 0:
                    forget()
                for got, want in zip(work(n), wanted[n], strict=True):
                    if not np.array_equal(got, want):
                        wrong.append((me, n))
        except BaseException as error:
            wrong.append((me, error))

    forget()
    threads = [threading.Thread(target=run, args=(me,)) for me in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="an interpreter with a lock of its own")
def test_the_lock_stays_away() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined,unused-ignore]
