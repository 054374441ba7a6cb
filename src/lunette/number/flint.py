"""python-flint, loaded by the first question that is about its numbers: arrays of floats never ask one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lunette.later import names_of

if TYPE_CHECKING:
    from flint import arb as arb
    from flint import fmpq as fmpq
else:
    __getattr__ = names_of(__name__, "flint")
