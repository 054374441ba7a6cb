"""How many threads compute.

| rule | says                                    |
|------|-----------------------------------------|
| H1   | there are 1 to MOST_THREADS threads     |
"""

from __future__ import annotations

from typing import Final

from lunette import core
from lunette.errors import ArgumentError, error_context
from lunette.window import integer

MOST_THREADS: Final = 256  # as native/threads.cpp has it


def get_num_threads() -> int:
    """The number of threads that a call may use."""
    return core.get_num_threads()


def set_num_threads(n: int) -> None:
    """Let every call from now on use up to n threads.

    >>> import lunette as ln
    >>> before = ln.get_num_threads()
    >>> ln.set_num_threads(2)
    >>> ln.get_num_threads()
    2
    >>> ln.set_num_threads(before)
    """
    with error_context("set_num_threads"):
        count = integer("n", n)
        if not 1 <= count <= MOST_THREADS:
            raise ArgumentError(
                "H1", f"n in 1..{MOST_THREADS}", f"n={n}", "More threads than cores make nothing faster."
            )
    core.set_num_threads(count)
