"""What operators with windows declare beside what every operator does, and the problems they are asked.

Conformance runs, other frameworks' arguments, pictures and benchmarks read these declarations: none of them knows an
operator by its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from lunette.op import Case
from lunette.ops.chance import Draw, Limits, Rng
from lunette.ops.derivative import Differentiable
from lunette.window import Cell, Shape, Window

Windows = Literal["sliding", "transposed", "bins", "whole"]


class Windowed(Differentiable):
    """An operator whose output cells read windows of x."""

    window: Window

    windows: ClassVar[Windows] = "sliding"
    """How windows lie: one after another, their transpose, as many bins as are asked for, or one over all the space."""
    weighted: ClassVar[bool] = False
    """Cells are multiplied with w, the second array, whose shape tells the kernel behind two channel axes."""
    averages: ClassVar[bool] = False
    """The sum of a window is divided by a number: `divisor_at` tells which."""
    powers: ClassVar[bool] = False
    """The result is a root of a sum of powers of |x|, whose exponent is the option p."""
    overflows: ClassVar[bool] = False
    """A partial sum may leave the range of a dtype although the result does not."""
    joins: ClassVar[np.ufunc | None] = None
    """What one more cell makes of a window's result, where nothing else matters: numpy.maximum for a maximum."""

    refuses_empty: ClassVar[str] = ""
    """The rule by which a window without cells of the input is refused; none if it has a result."""
    refused_with: ClassVar[Mapping[str, Any]] = {}
    """The options under which that rule applies."""

    needed: ClassVar[Mapping[str, Any]] = {}
    """A plain value for every option that must be given, beside those of the window."""
    counting: ClassVar[Mapping[str, Any] | None] = None
    """The options with which a window of ones is added up, one by one; None if nothing is added up."""
    draws: ClassVar[Mapping[str, Draw]] = {}
    """How the options that are not the window's are drawn at random, in order."""

    @classmethod
    def slides(cls) -> bool:
        """Whether it is a pool whose kernel is an option."""
        return cls.windows == "sliding" and not cls.weighted

    def divisor_at(self, o: Cell, space: Shape) -> Any:
        """What an average divides by at output cell o; None for operators that do not divide."""
        return None

    @classmethod
    @abstractmethod
    def draw(cls, rng: Rng, d: int, limits: Limits) -> Case:
        """A random problem with d spatial axes; x has one batch axis. It may be one that the operator refuses."""

    @classmethod
    @abstractmethod
    def one_window(cls, x: Shape) -> Case:
        """The problem of one window over all the space of x, which has one batch axis."""

    @classmethod
    def variants(cls, norms: Sequence[float]) -> Sequence[Mapping[str, Any]]:
        """Options that make another function of each window; one set of them, unless there are such."""
        return (cls.needed,)
