"""Time limits that hold: work is asked often, and interrupted where it does not answer.

In the main thread by a signal; elsewhere, and where someone has an alarm of their own, by a thread that waits for the
end. Both look first at what they interrupt: never what arms or disarms an alarm, which would then ring for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Final

LATE: Final = 0.2
"""Seconds after the end at which work is interrupted that has not seen it."""
AGAIN: Final = 0.5
"""Seconds until it is interrupted once more."""
SOON: Final = 0.001
"""And where an interruption would be lost."""


class TimeUp(BaseException):
    """The time is over: no error, and not what anybody's `except Exception` is meant for."""


class Clock:
    """A deadline, and how long each phase took."""

    def __init__(self, seconds: float, progress: Callable[..., None] | None = None) -> None:
        self.begin = perf_counter()
        self.end = self.begin + seconds
        self.progress = progress
        self.phases: dict[str, float] = {}
        self.told: tuple[str, int, int] = ("", 0, 0)
        """What was being done at the last tick."""
        self._inside = 0.0  # seconds of phases that were inside of the present one

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
        self.told = what, done, whole
        if self.progress is not None:
            self.progress(what, done, whole)
        if self.left <= 0:
            raise TimeUp

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of what is done inside to a phase, but for phases inside of it, which have their own."""
        begin, outside = perf_counter(), self._inside
        self._inside = 0.0
        try:
            yield
        finally:
            whole = perf_counter() - begin
            self.phases[name] = self.phases.get(name, 0.0) + whole - self._inside
            self._inside = outside + whole

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Raise TimeUp inside, soon after the end, also where nobody ticks.

        In the main thread by a signal; in other threads, and where someone has an alarm of their own, who keeps it, by
        a thread that waits for the end. Compiled calls are not interrupted.
        """
        here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        taken = not here or signal.getitimer(signal.ITIMER_REAL)[0] or signal.getsignal(signal.SIGALRM) is None
        with _waiting(self.left + LATE) if taken else _ringing(self.left + LATE):
            yield


def _is_busy(frame: FrameType | None) -> bool:
    """Whether an exception here would be printed and forgotten, as in finalisers, or would leave an alarm as it is."""
    collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "__del__" or file == weakref.__file__ or frame.f_code in collecting:
            return True
        if file == __file__ and name != "tick":
            return True
        if file == contextlib.__file__ and name in ("__enter__", "__exit__"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _ringing(seconds: float) -> Iterator[None]:
    armed = [True]

    def ring(_: int, frame: FrameType | None) -> None:
        if not armed:
            return
        if not _is_busy(frame):
            raise TimeUp
        signal.setitimer(signal.ITIMER_REAL, SOON, AGAIN)

    before = signal.getsignal(signal.SIGALRM)
    try:
        signal.signal(signal.SIGALRM, ring)
        # Again and again: an exception inside of what swallows exceptions would be lost.
        signal.setitimer(signal.ITIMER_REAL, max(seconds, LATE), AGAIN)
        yield
    finally:
        try:
            armed.clear()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@contextmanager
def _waiting(seconds: float) -> Iterator[None]:
    raising = getattr(getattr(ctypes, "pythonapi", None), "PyThreadState_SetAsyncExc", None)
    if raising is None:  # another Python: ticks have to do
        yield
        return
    me, over, lock, rung = threading.get_ident(), threading.Event(), threading.Lock(), list[bool]()
    who = ctypes.c_ulong(me)

    def wait() -> None:
        pause = max(seconds, LATE)
        while not over.wait(pause):
            with lock:
                if over.is_set() or (frame := sys._current_frames().get(me)) is None:
                    return
                pause = SOON
                if not _is_busy(frame):
                    pause = AGAIN
                    rung.append(True)
                    raising(who, ctypes.py_object(TimeUp))
                del frame  # which would keep alive what is in it

    try:
        with contextlib.suppress(RuntimeError):  # no thread can be started: ticks have to do
            threading.Thread(target=wait, daemon=True).start()
        yield
    finally:
        try:
            over.set()
        finally:
            over.set()
            with lock:
                if rung:
                    raising(who, None)  # what was to be raised, and was not yet
