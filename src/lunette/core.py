"""The compiled core, loaded when the first kernel is made.

Rooms name their kernels as `core.max_pool(...)`. Their meaning does not need it: who runs specifications alone, to
check exactly what others computed, never loads compiled code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lunette._native import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """A name of the core; what was asked for once is an attribute from then on."""
        if name.startswith("__"):  # what Python and its tools ask any module for
            return object.__getattribute__(sys.modules[__name__], name)
        from lunette import _native

        globals()[name] = getattr(_native, name)
        return globals()[name]
