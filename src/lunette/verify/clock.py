"""Time limits that hold: work is asked often, and interrupted by a signal where it does not answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any


class TimeUp(Exception):  # noqa: N818 (it is not an error)
    """The time is over."""


class Clock:
    """A deadline, and how long each phase took."""

    def __init__(self, seconds: float, progress: Callable[..., None] | None = None) -> None:
        self.begin = perf_counter()
        self.end = self.begin + seconds
        self.progress = progress
        self.phases: dict[str, float] = {}

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return perf_counter() - self.begin

    def tick(self, what: str, done: int, whole: int) -> None:
        """Say what is being done; raises TimeUp when the time is over."""
        if self.progress is not None:
            self.progress(what, done, whole)
        if self.left <= 0:
            raise TimeUp

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of what is done inside to a phase."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + perf_counter() - begin

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Raise TimeUp inside, soon after the end, also where nobody ticks: in the main thread, by a signal.

        Whoever has an alarm of their own keeps it: then ticks have to do.
        """
        here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        if not here or signal.getitimer(signal.ITIMER_REAL)[0] or signal.getsignal(signal.SIGALRM) is None:
            yield
            return

        def ring(*_: Any) -> None:
            raise TimeUp

        before = signal.signal(signal.SIGALRM, ring)
        # Again and again: an exception inside of what swallows exceptions would be lost.
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 0.0) + 0.2, 0.5)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
