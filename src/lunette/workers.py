"""Work that is handed out to threads, which wait for processes or for a machine elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def as_they_come(work: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """Results in the order in which they are ready; what has not begun is dropped when the reader stops."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: set[Future[B]] = {pool.submit(work, item) for item in items}
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()
