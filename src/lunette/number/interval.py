"""Intervals of numbers, and boxes: intervals whose ends are whole arrays.

`Interval(lo, hi)` makes either: of numbers an `Interval`, of arrays a `Box`, which is one as well. What `+ - * /` of
boxes are is an operator's business, and operators are made of numbers: lunette.ops.binary fills `BOX_OPERATORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, refuses, shown
from lunette.number import flint
from lunette.number.ends import Ends
from lunette.number.exactly import as_array, exactly
from lunette.number.kinds import OBJECT, Array, Lifted, Number, primal
from lunette.number.rounding import (
    above,
    add_outward,
    below,
    divide_outward,
    dyadic,
    item,
    multiply_outward,
    of_end,
)
from lunette.window import Shape

BOX_OPERATORS: Final[dict[str, Callable[..., Interval]]] = {}
"""Operators of boxes, or of a box and a number, as the public functions of these names do them; methods of a box."""
_UFUNCS: Final = {np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", np.matmul: "matmul"}
_PLAIN: Final = (int, float, Fraction)


@dataclass(frozen=True, slots=True, repr=False)
class Interval(Ends):
    """Every number from lo to hi. Float ends are rounded outward, exact ends (int, Fraction) stay exact.

    >>> tenth = Interval(1.0) / 10
    >>> tenth.lo < Fraction(1, 10) < tenth.hi
    True
    >>> Interval(-1, 2) * Interval(3, 4)
    Interval(lo=-4, hi=8)

    The ends may be whole arrays of one shape: a box, what arithmetic="interval" takes and gives. A box has a shape, a
    dtype and parts; it contains an array, or another box, that lies inside of it cell by cell.

    >>> box = Interval(np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32))
    >>> box, box[0, 0], np.full((2, 3), 0.5) in box
    (Interval(float32 of shape (2, 3), no wider than 1.0), Interval(lo=0.0, hi=1.0), True)
    """

    lo: Number
    hi: Number = None

    def __new__(cls, lo: Number = None, hi: Number = None) -> Self:
        """An interval of numbers, or a box where the ends have axes."""
        return object.__new__(_class_of(lo) if cls is Interval else cls)  # type: ignore[return-value]

    def __post_init__(self) -> None:
        if self.hi is None:
            object.__setattr__(self, "hi", self.lo)
        if type(self.lo) in _PLAIN and type(self.hi) in _PLAIN and self.lo <= self.hi:
            return
        try:
            lo, hi = as_array(self.lo), as_array(self.hi)
            if lo.dtype.kind in "bcmMSU" or hi.dtype.kind in "bcmMSU":
                raise TypeError  # numpy compares these, but they are not real numbers
            ordered = np.asarray(lo <= hi if lo.shape == hi.shape else True, bool)
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: torch, of a tensor that requires grad
            got = f"lo={shown(self.lo)}, hi={shown(self.hi)}"
            raise DTypeError("N4", "ends with an order", got, "Pass two real numbers.", who="Interval") from error
        if lo.shape != hi.shape:
            got = f"lo of shape {lo.shape}, hi of shape {hi.shape}"
            raise ShapeError("N4", "ends of one shape", got, "Spread one with np.full_like.", who="Interval")
        if lo.shape and lo.dtype != hi.dtype:
            got = f"lo of dtype {lo.dtype}, hi of dtype {hi.dtype}"
            raise DTypeError("N4", "ends of one dtype", got, "Convert one of them.", who="Interval")
        if isinstance(self.lo, list) or isinstance(self.hi, list):
            object.__setattr__(self, "lo", lo)
            object.__setattr__(self, "hi", hi)
        if not ordered.all():
            got = f"lo={shown(self.lo)}, hi={shown(self.hi)}"
            if lo.shape:
                at = tuple(int(p) for p in np.argwhere(~ordered)[0])
                got = f"lo={lo[at]}, hi={hi[at]} at {at}"
            hint = "Swap the ends, or pass one for a point."
            raise ArgumentError("N4", "lo <= hi and no NaN", got, hint, who="Interval")

    @staticmethod
    def of(a: Number) -> Interval:
        """Any real number as a point."""
        return a if isinstance(a, Interval) else Interval(a)

    @staticmethod
    @refuses
    def around(x: Number, eps: Number, clip: tuple[Number, Number] | None = None) -> Interval:
        """Every number within eps of x, rounded outward; with `clip`, those of them from clip[0] to clip[1].

        >>> Interval.around(Fraction(1, 2), Fraction(1, 8))
        Interval(lo=Fraction(3, 8), hi=Fraction(5, 8))
        >>> image = np.array([[0.0, 0.5]], np.float32)
        >>> box = Interval.around(image, 0.1, clip=(0, 1))
        >>> box.lo[0, 0], 0.6 in box[0, 1], image in box
        (np.float32(0.0), True, True)
        """
        _check_centre(x)
        within = _checked_clip(clip)
        reach = as_array(eps)
        eps = reach if isinstance(eps, list) else eps
        if reach.dtype.kind in "bcmMSU" or not (reach >= 0).all():
            raise ArgumentError("N4", "eps >= 0", f"eps={shown(eps)}", "Pass a distance.", who="Interval.around")
        box = Interval(x) + Interval(-eps, eps)
        if within is None:
            return box
        if not np.ndim(box.lo):
            return Interval(*(min(max(end, within.lo), within.hi) for end in (box.lo, box.hi)))
        lo, hi = as_array(box.lo), as_array(box.hi)
        edge = Interval(np.zeros(1, lo.dtype)) + within  # in the dtype, rounded outward
        return Interval(np.clip(lo, edge.lo[0], edge.hi[0]), np.clip(hi, edge.lo[0], edge.hi[0]))

    @staticmethod
    def between(lo: Number, hi: Number) -> Interval:
        """The interval of ends that are known to be in order: large boxes are not looked at again."""
        box: Interval = object.__new__(_class_of(lo))
        object.__setattr__(box, "lo", lo)
        object.__setattr__(box, "hi", hi)
        return box

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Interval]: ...  # a box has the glue as methods

    @property
    def shape(self) -> Shape:
        """The shape of the ends; () for an interval of numbers."""
        return tuple(np.shape(self.lo))

    @property
    def dtype(self) -> Any:
        """The dtype of the ends, which for plain numbers is object."""
        return getattr(self.lo, "dtype", OBJECT)

    def __getitem__(self, at: Any) -> Interval:
        return Interval.between(self.lo[at], self.hi[at])

    __iter__ = None  # numbers are no sequences

    def __repr__(self) -> str:
        return f"Interval(lo={item(self.lo)!r}, hi={item(self.hi)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        if isinstance(other, Box):
            return other == self
        return bool(item(self.lo) == item(other.lo) and item(self.hi) == item(other.hi))

    def __hash__(self) -> int:
        return hash((self.lo, self.hi))

    def __contains__(self, a: Number) -> bool:
        try:
            lo, hi = (exactly(e) for e in ((a.lo, a.hi) if isinstance(a, Interval) else (a, a)))
            if lo.shape not in (self.shape, ()) and self.shape:
                need, got = f"cells of shape {self.shape}", f"shape {lo.shape}"
                raise ShapeError("N4", need, got, "Spread it with np.broadcast_to.", who="Interval")
            with np.errstate(invalid="ignore"):  # NaN is in no box
                inside = (exactly(self.lo) <= lo) & (hi <= exactly(self.hi))
        except LunetteError:
            raise
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: torch, of a tensor that requires grad
            got = f"{shown(a)} of type {type(a).__name__}"
            raise DTypeError(
                "N4", "real numbers", got, "Pass a number, or an array of them.", who="Interval"
            ) from error
        return bool(np.asarray(inside, bool).all())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """An array beside an interval: a box meets it as a whole, a number cell by cell."""
        if any(isinstance(a, Box) for a in inputs):
            name = _UFUNCS.get(ufunc)
            if name is None or method != "__call__" or options:
                return NotImplemented
            return BOX_OPERATORS[name](*inputs)
        cells = [_cell(a) if isinstance(a, Interval) else a for a in inputs]
        return getattr(ufunc, method)(*cells, **options)

    def __add__(self, other: Number) -> Interval:
        if _decides(other):
            return NotImplemented
        b = Interval.of(other)
        return Interval(add_outward(self.lo, b.lo, below), add_outward(self.hi, b.hi, above))

    __radd__ = __add__

    def __neg__(self) -> Interval:
        return Interval.between(-self.hi, -self.lo)

    def __sub__(self, other: Number) -> Interval:
        return NotImplemented if _decides(other) else self + -Interval.of(other)

    def __rsub__(self, other: Number) -> Interval:
        result: Interval = -self + other
        return result

    def __mul__(self, other: Number) -> Interval:
        if _decides(other):
            return NotImplemented
        return self._corners(Interval.of(other), multiply_outward)

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Interval:
        if _decides(other):
            return NotImplemented
        b = Interval.of(other)
        if b.lo == b.hi == 0:
            raise ArgumentError("N4", "a divisor other than zero", f"{b}", "Divide by something.", who="Interval")
        if b.lo <= 0 <= b.hi:  # quotients by divisors near zero: anything
            return Interval(-math.inf, math.inf)
        return self._corners(b, divide_outward)

    def __rtruediv__(self, other: Number) -> Interval:
        return Interval.of(other) / self

    def _corners(self, b: Interval, f: Callable[[Number, Number, Any], Number]) -> Interval:
        """The least and the greatest of f at the ends, for f that is monotone in each of the two."""
        ends = [(p, q) for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        return Interval(min(f(p, q, below) for p, q in ends), max(f(p, q, above) for p, q in ends))

    def __abs__(self) -> Interval:
        if self.lo >= 0:
            return self
        return -self if self.hi <= 0 else Interval(0, max(-self.lo, self.hi))

    def __gt__(self, other: Number) -> bool:
        """Certainly greater: every number here exceeds every number there."""
        return bool(self.lo > Interval.of(other).hi)

    def __lt__(self, other: Number) -> bool:
        """Certainly less."""
        return bool(self.hi < Interval.of(other).lo)

    def exp(self) -> Interval:
        """`e` to every power in the interval."""
        return Interval(of_end(self.lo, flint.arb.exp, below), of_end(self.hi, flint.arb.exp, above))

    def log(self) -> Interval:
        """The logarithms of the positive numbers in the interval."""
        return Interval(of_end(max(self.lo, 0), flint.arb.log, below), of_end(self.hi, flint.arb.log, above))

    def power(self, p: Number) -> Interval:
        """Non-negative numbers to a positive power."""
        to = dyadic(p)
        return Interval(
            of_end(max(self.lo, 0), lambda a: a**to, below),
            of_end(self.hi, lambda a: a**to, above),
        )


class Box(Interval):
    """An interval whose ends are arrays with axes: all arrays that lie between them, cell by cell."""

    __slots__ = ()

    def __repr__(self) -> str:
        with np.errstate(all="ignore"):
            widths = as_array(self.hi) - as_array(self.lo)
        wide = f", no wider than {np.nanmax(widths)}" if widths.size else ""
        return f"Interval({self.dtype} of shape {self.shape}{wide})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        return np.array_equal(self.lo, other.lo) and np.array_equal(self.hi, other.hi)

    __hash__ = Interval.__hash__

    def __add__(self, other: Number) -> Interval:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Interval:
        return self._with("add", other)

    def __sub__(self, other: Number) -> Interval:
        return self._with("sub", other)

    def __mul__(self, other: Number) -> Interval:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Interval:
        return self._with("mul", other)

    def __truediv__(self, other: Number) -> Interval:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Interval:
        return BOX_OPERATORS["div"](other, self)

    def __matmul__(self, other: Number) -> Interval:
        return self._with("matmul", other)

    def __rmatmul__(self, other: Number) -> Interval:
        return BOX_OPERATORS["matmul"](other, self)

    def __abs__(self) -> Interval:
        return BOX_OPERATORS["abs"](self)

    def exp(self) -> Interval:
        return BOX_OPERATORS["exp"](self)

    def log(self) -> Interval:
        return BOX_OPERATORS["log"](self)

    def power(self, p: Number) -> Interval:
        return BOX_OPERATORS["power"](self, p)

    def reshape(self, *shape: Any) -> Interval:
        """As of arrays of NumPy: `box.reshape(2, 8)` and `box.reshape((2, 8))` are `ln.reshape(box, (2, 8))`."""
        return BOX_OPERATORS["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Interval:
        """As of arrays of NumPy: `box.transpose(1, 0)`, `box.transpose((1, 0))`, `box.transpose()`."""
        return BOX_OPERATORS["transpose"](self, axes[0] if len(axes) == 1 else axes or None)

    def __getattr__(self, name: str) -> Callable[..., Interval]:
        """The other glue as methods: `box.relu()` is `ln.relu(box)`."""
        if name not in BOX_OPERATORS:
            raise AttributeError(f"an Interval has no {name}; functions of lunette take it: ln.max_pool(box, 2)")
        return partial(BOX_OPERATORS[name], self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *BOX_OPERATORS})

    def __gt__(self, other: Number) -> bool:
        raise refusal("gt", other)

    def __lt__(self, other: Number) -> bool:
        raise refusal("lt", other)

    def _with(self, name: str, other: Number) -> Interval:
        return NotImplemented if isinstance(other, Lifted) else BOX_OPERATORS[name](self, other)


def refusal(word: str, other: Number) -> ArgumentError:
    """Rule N4: a box is neither greater nor not, but certainly, possibly or certainly not, cell by cell."""
    need, hint = "a comparison by its name", f"Say box.certainly_{word}(...) or box.possibly_{word}(...)."
    return ArgumentError("N4", need, f"a box beside {shown(other)}", hint, who="Interval")


def _class_of(lo: Any) -> type[Interval]:
    return Box if getattr(lo, "ndim", 0) or isinstance(lo, list | tuple) else Interval


def _decides(other: Any) -> bool:
    """A dual number knows what to do with an interval, and so do boxes, and the cells of an array."""
    return isinstance(other, Lifted | Box) or (isinstance(other, np.ndarray) and other.ndim > 0)


def _cell(number: Any) -> Array:
    """A number as an array without axes."""
    cell = np.empty((), object)
    cell[()] = number
    return cell


# ---- enclosures: intervals, and the balls of flint


def is_enclosure(a: Number) -> bool:
    """A number that stands for more than one number; a ball or an interval that is a point decides everything."""
    a = primal(a)
    if isinstance(a, flint.arb):
        return not a.is_exact()
    return isinstance(a, Interval) and a.lo != a.hi


def is_zero(a: Number) -> bool:
    """Certainly zero."""
    a = primal(a)
    return bool(a.lo == a.hi == 0) if isinstance(a, Interval) else not is_enclosure(a) and bool(a == 0)


def is_decided(a: Number) -> bool:
    """Whether the sign of a number is known."""
    return not is_enclosure(a) or primal(a) > 0 or primal(a) < 0


def between_minus_one_and_one(a: Number) -> Number:
    """The enclosure [-1, 1] in the number type of an enclosure."""
    return Interval(-1, 1) if isinstance(primal(a), Interval) else flint.arb(0, 1)


# ---- what goes around a point


def _check_centre(x: Any) -> None:
    """Rule N4."""
    who, dtype = "Interval.around", str(getattr(x, "dtype", ""))
    if "int" in dtype and np.ndim(x):
        hint = "Pass x.astype(np.float64), or x.astype(object) for exact numbers."
        raise DTypeError("N4", "x of floats or of exact numbers", f"x of dtype {dtype}", hint, who=who)
    if isinstance(x, np.ndarray) and x.dtype.kind == "f" and np.isnan(x).any():
        at = tuple(int(p) for p in np.argwhere(np.isnan(x))[0])
        raise ArgumentError("N4", "x without NaN", f"x={x[at]} at {at}", "No number is near it.", who=who)


def _checked_clip(clip: Any) -> Interval | None:
    """Rule N4."""
    if clip is None:
        return None
    try:
        lo, hi = clip
        return Interval(lo, hi)
    except (LunetteError, TypeError, ValueError) as error:
        need, hint = "clip as (least, greatest)", "As in clip=(0, 1)."
        raise ArgumentError("N4", need, f"clip={shown(clip)}", hint, who="Interval.around") from error
