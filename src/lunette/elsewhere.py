"""Programs as functions of other frameworks. The bridges are above the programs: lunette itself fills this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ELSEWHERE: Final[dict[str, Callable[[Any], Callable[..., Any]]]] = {}
"""What makes a function of a program, by the framework."""
