"""Cells that an operator reads, and its lines over a box (taps, lines, curves): loaded when bounds are asked for.

Rooms of operators name these inside of `relax` and `taps`, which arrays of floats never come to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lunette.later import names_of

if TYPE_CHECKING:
    from lunette.curves import Curve as Curve
    from lunette.curves import Product as Product
    from lunette.curves import SmoothGreatest as SmoothGreatest
    from lunette.lines import Greatest as Greatest
    from lunette.lines import Kink as Kink
    from lunette.lines import Mirrored as Mirrored
    from lunette.lines import Relaxation as Relaxation
    from lunette.lines import Staircase as Staircase
    from lunette.taps import Broadcast as Broadcast
    from lunette.taps import Folded as Folded
    from lunette.taps import Taps as Taps
    from lunette.taps import Windows as Windows
else:
    __getattr__ = names_of(__name__, "lunette.lines", "lunette.curves", "lunette.taps")
