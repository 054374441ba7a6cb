"""The compiled core, loaded when the first kernel is made.

Rooms name their kernels as `core.max_pool(...)`. Their meaning does not need it: who runs specifications alone, to
check exactly what others computed, never loads compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lunette.later import names_of

if TYPE_CHECKING:
    from lunette._native import *  # noqa: F403
else:
    __getattr__ = names_of(__name__, "lunette._native")
