"""Processes that hold one object each, from outside: what they inherit, and how they are asked."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lunette.bench.memory import Memory


def _serve(kind: type[Any], arguments: tuple[Any, ...], pipe: Any) -> None:
    served = kind(*arguments)
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        method, *given = asked
        try:
            pipe.send((True, getattr(served, method)(*given)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Worker:
    """A process that holds one object and calls its methods for us."""

    def __init__(self, kind: type[Any], *arguments: Any) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(kind, arguments, theirs), daemon=kind is not Memory)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def ask(self, method: str, *arguments: Any) -> Any:
        self.pipe.send((method, *arguments))
        try:
            fine, answer = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"a library ended the process, exit code {self.process.exitcode}") from None
        if not fine:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
            self.process.join(5)
        if self.process.is_alive():
            self.process.kill()


@contextmanager
def surroundings(threads: int) -> Iterator[None]:
    """What a worker inherits: its cores, and how many threads libraries may start."""
    count = str(threads)
    alone = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if threads == 1 else ""
    settings = {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {alone}".strip(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    before = {name: os.environ.get(name) for name in settings}
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    os.environ.update(settings)
    if cores:
        os.sched_setaffinity(0, sorted(cores)[-threads:])
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
