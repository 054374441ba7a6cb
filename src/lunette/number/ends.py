"""What can be asked of two ends: how far they are apart, what lies between them, how they compare, how they look."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from lunette.number.exactly import as_array, exactly
from lunette.number.kinds import Array, Number
from lunette.number.rounding import above, add_outward, item

MOST_SHOWN = 8
"""Cells of an axis that a notebook shows."""


class Ends:
    """Anything with a `lo` and a `hi`, numbers or arrays of one shape."""

    __slots__ = ()
    lo: Number
    hi: Number

    @property
    def width(self) -> Number:
        """The distance of the ends, cell by cell, as a NumPy array; of floats rounded up: never less than it is.

        >>> import lunette as ln
        >>> ln.Interval(1, 3).width, ln.Interval([0.0, 1.0], [0.5, 4.0]).width.tolist()
        (2, [0.5, 3.0])
        """
        if not np.ndim(self.lo):
            return add_outward(self.hi, -self.lo, above)
        lo, hi = as_array(self.lo), as_array(self.hi)
        if lo.dtype == object:
            return hi - lo
        with np.errstate(over="ignore", invalid="ignore"):
            near = hi - lo
            less = _less(near, lo, hi)
            return np.where(less, np.nextafter(near, np.asarray(np.inf, near.dtype)), near)

    @property
    def mid(self) -> Number:
        """A number between the ends, as near to the middle as its type allows; of the whole line 0.

        >>> import lunette as ln
        >>> ln.Interval(1, 2).mid, ln.Interval([0.0, 1.0], [0.5, 4.0]).mid.tolist()
        (Fraction(3, 2), [0.25, 2.5])
        """
        if not np.ndim(self.lo) and isinstance(self.lo, int | Fraction) and isinstance(self.hi, int | Fraction):
            return Fraction(self.lo + self.hi) / 2
        lo, hi = as_array(self.lo), as_array(self.hi)
        if lo.dtype == object:
            return lo + (hi - lo) / 2
        with np.errstate(over="ignore", invalid="ignore"):
            most = np.finfo(lo.dtype).max if lo.dtype.kind == "f" else np.inf
            low, high = np.maximum(lo, -most), np.minimum(hi, most)  # infinite ends stand for the greatest float
            middle = np.where(np.isfinite(high - low), low + (high - low) / 2, low / 2 + high / 2)
        found = np.clip(middle.astype(lo.dtype), lo, hi)
        return found if found.ndim else item(found[()])

    def certainly_gt(self, other: Number) -> Any:
        """Whether every number here exceeds every number there, cell by cell.

        With its counterpart three answers are told apart: certainly, possibly but not certainly, and certainly not.

        >>> import lunette as ln
        >>> box = ln.Interval([1.0, -1.0, -2.0], [2.0, 1.0, -1.0])
        >>> box.certainly_gt(0).tolist(), box.possibly_gt(0).tolist()
        ([True, False, False], [True, True, False])
        """
        return _compared(np.greater, self.lo, _ends(other)[1])

    def certainly_ge(self, other: Number) -> Any:
        """Whether every number here is at least every number there."""
        return _compared(np.greater_equal, self.lo, _ends(other)[1])

    def certainly_lt(self, other: Number) -> Any:
        """Whether every number here is below every number there."""
        return _compared(np.less, self.hi, _ends(other)[0])

    def certainly_le(self, other: Number) -> Any:
        """Whether every number here is at most every number there."""
        return _compared(np.less_equal, self.hi, _ends(other)[0])

    def possibly_gt(self, other: Number) -> Any:
        """Whether some number here exceeds some number there."""
        return _compared(np.greater, self.hi, _ends(other)[0])

    def possibly_ge(self, other: Number) -> Any:
        """Whether some number here is at least some number there."""
        return _compared(np.greater_equal, self.hi, _ends(other)[0])

    def possibly_lt(self, other: Number) -> Any:
        """Whether some number here is below some number there."""
        return _compared(np.less, self.lo, _ends(other)[1])

    def possibly_le(self, other: Number) -> Any:
        """Whether some number here is at most some number there."""
        return _compared(np.less_equal, self.lo, _ends(other)[1])

    def _repr_html_(self) -> str:
        """What notebooks show: the last two axes, `[lo, hi]` in every cell, the wider the darker."""
        from html import escape  # loaded by notebooks

        lo, hi = as_array(self.lo), as_array(self.hi)
        if not lo.ndim:
            return f"<code>{escape(repr(self))}</code>"
        if not lo.size:
            return f"<p>{escape(repr(self))}</p>"
        first = (0,) * max(lo.ndim - 2, 0)
        rows = [np.atleast_2d(a[first])[:MOST_SHOWN, :MOST_SHOWN] for a in (lo, hi)]
        with np.errstate(invalid="ignore", over="ignore"):
            wide = (rows[1] - rows[0]).astype(np.float64)
        most = float(np.max(wide[np.isfinite(wide)], initial=0.0)) or 1.0
        body = "".join(
            "<tr>" + "".join(_cell(a, b, w / most) for a, b, w in zip(*row, strict=True)) + "</tr>"
            for row in zip(*rows, wide, strict=True)
        )
        part = f" (at {', '.join(map(str, first))})" if first else ""
        cut = ", the first cells" if max(lo.shape[-2:]) > MOST_SHOWN else ""
        return f"<div><p>{escape(repr(self))}{part}{cut}</p><table>{body}</table></div>"


def _cell(lo: Any, hi: Any, share: float) -> str:
    much = 45 * min(share, 1.0) if np.isfinite(share) else 45
    style = f"background:rgba(47,109,181,{much / 100:.2f});padding:2px 8px;font-family:monospace"
    words = f"{float(lo):.4g}" if lo == hi else f"[{float(lo):.4g}, {float(hi):.4g}]"
    return f'<td style="{style}" title="width {float(hi) - float(lo):.3g}">{words}</td>'


def _less(near: Array, lo: Array, hi: Array) -> Array:
    """Whether hi - lo was rounded down: the error of a difference is a float, and Knuth's sum finds it."""
    back = near - hi
    error = (hi - (near - back)) - (lo + back)
    return np.asarray(error > 0)


def _ends(other: Any) -> tuple[Number, Number]:
    return (other.lo, other.hi) if isinstance(other, Ends) else (other, other)


def _compared(how: Callable[[Array, Array], Array], a: Number, b: Number) -> Any:
    with np.errstate(invalid="ignore"):
        answer = how(exactly(a), exactly(b))
    return answer if np.ndim(answer) else bool(answer)
