"""Number types: what a specification may run on, and what it asks of them.

| an operator needs | and calls             | int, Fraction, fmpq | floats, Decimal, arb, Interval | complex, sympy |
|-------------------|-----------------------|---------------------|--------------------------------|----------------|
| a ring            | `+`, `*`, `total`     | yes                 | yes                            | yes            |
| division          | `divide`, `mean`      | yes                 | yes                            | yes            |
| an order          | `select`, `winners`   | yes                 | yes                            | no             |
| exp, log, roots   | `exp`, `log`, `power` | no                  | yes                            | no             |

`Dual` needs what its parts need. Balls (`flint.arb`) and `Interval` stand for every number they contain: their maximum
is the enclosing one, and where the winner is undecided every possible winner carries the weight [0, 1].

| rule | says                                                                  |
|------|-----------------------------------------------------------------------|
| N1   | every cell is a number                                                |
| N2   | an operator that compares needs an ordered number type                |
| N3   | an operator with exp, log or roots needs a number type that has them  |
| N4   | lo <= hi, and no NaN, in an Interval                                  |
| N5   | an index needs a winner that is decided                               |
| N6   | an array of results, or the copy of an operand, fits into memory      |
| N7   | the cells of one call add, multiply and compare with each other       |
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from importlib import import_module
from itertools import product
from math import prod
from numbers import Real
from operator import mul
from typing import Any, Final, Literal

import flint
import numpy as np
import numpy.typing as npt

from lunette.errors import ArgumentError, DTypeError, LunetteError, ShapeError, shown
from lunette.window import Shape

Array = npt.NDArray[Any]
Number = Any
Ties = Literal["first", "all", "split"]
EXACT: Final = (int, Fraction)
CLOSED: Final = (Decimal, flint.fmpq, flint.arb)  # these meet ints, but not the Fractions that ints divide to
OBJECT: Final = np.dtype(object)


# ---- dual numbers


@dataclass(frozen=True, slots=True)
class Dual:
    """`value + slope*eps` with eps*eps = 0. Running a specification on these gives its JVP.

    >>> x = Dual(Fraction(3), Fraction(1))
    >>> x * x + 1
    Dual(value=Fraction(10, 1), slope=Fraction(6, 1))
    """

    value: Number
    slope: Number = 0

    @staticmethod
    def of(a: Number) -> Dual:
        """Any number as a dual number with slope zero."""
        return a if isinstance(a, Dual) else Dual(a, 0)

    def _chain(self, f: Number, df: Number) -> Dual:
        return Dual(f, df * self.slope)

    def __add__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value + b.value, self.slope + b.slope)

    __radd__ = __add__

    def __sub__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value - b.value, self.slope - b.slope)

    def __rsub__(self, other: Number) -> Dual:
        return Dual.of(other) - self

    def __mul__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(self.value * b.value, self.value * b.slope + self.slope * b.value)

    def __rmul__(self, other: Number) -> Dual:
        b = Dual.of(other)
        return Dual(b.value * self.value, b.value * self.slope + b.slope * self.value)

    def __truediv__(self, other: Number) -> Dual:
        b = Dual.of(other)
        quotient = divide(self.value, b.value)
        return Dual(quotient, divide(self.slope - quotient * b.slope, b.value))

    def __rtruediv__(self, other: Number) -> Dual:
        return Dual.of(other) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return self * sign(self.value)

    def __gt__(self, other: Number) -> bool:
        return bool(primal(self) > primal(other))

    def __lt__(self, other: Number) -> bool:
        return bool(primal(self) < primal(other))

    def exp(self) -> Dual:
        """E to this power."""
        e = exp(self.value)
        return self._chain(e, e)

    def log(self) -> Dual:
        """The natural logarithm."""
        return self._chain(log(self.value), divide(1, self.value))


def primal(a: Number) -> Number:
    """The number itself, without the slopes it carries."""
    while isinstance(a, Dual):
        a = a.value
    return a


# ---- intervals


def _as_array(a: Any) -> Array:
    """Ends as numpy reads them; of torch's bfloat16, which it does not know, as float32."""
    if type(a) is np.ndarray:  # whose dtype takes long to print
        return a
    cells = np.asarray(a.float() if str(getattr(a, "dtype", "")) == "torch.bfloat16" else a)
    if isinstance(a, list | tuple) and cells.dtype == np.float64:
        given = np.array(a, object)
        return cells if (cells == given).all() else given  # an integer among floats may be none
    return cells


def _cell(number: Any) -> Array:
    """A number as an array without axes."""
    cell = np.empty((), object)
    cell[()] = number
    return cell


_OF_BOXES = {np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div"}


def _of_boxes(name: str, a: Any, b: Any) -> Interval:
    """An operator of two boxes of arrays, or of a box and a number, as `ln.<name>` does it."""
    y: Interval = getattr(import_module("lunette.ops.binary"), name)(a, b)  # which is made of this
    return y


@dataclass(frozen=True, slots=True, repr=False)
class Interval:
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

    def __post_init__(self) -> None:
        if self.hi is None:
            object.__setattr__(self, "hi", self.lo)
        if type(self.lo) in _PLAIN and type(self.hi) in _PLAIN and self.lo <= self.hi:
            return
        try:
            lo, hi = _as_array(self.lo), _as_array(self.hi)
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
    def between(lo: Number, hi: Number) -> Interval:
        """The interval of ends that are known to be in order: large boxes are not looked at again."""
        box = object.__new__(Interval)
        object.__setattr__(box, "lo", lo)
        object.__setattr__(box, "hi", hi)
        return box

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
        if not self.shape:
            return f"Interval(lo={_item(self.lo)!r}, hi={_item(self.hi)!r})"
        with np.errstate(all="ignore"):
            widths = _as_array(self.hi) - _as_array(self.lo)
        wide = f", no wider than {np.nanmax(widths)}" if widths.size else ""
        return f"Interval({self.dtype} of shape {self.shape}{wide})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        if self.shape or other.shape:
            return np.array_equal(self.lo, other.lo) and np.array_equal(self.hi, other.hi)
        return bool(_item(self.lo) == _item(other.lo) and _item(self.hi) == _item(other.hi))

    def __hash__(self) -> int:
        return hash((self.lo, self.hi))

    def __contains__(self, a: Number) -> bool:
        try:
            lo, hi = (_exactly(e) for e in ((a.lo, a.hi) if isinstance(a, Interval) else (a, a)))
            if lo.shape not in (self.shape, ()) and self.shape:
                need, got = f"cells of shape {self.shape}", f"shape {lo.shape}"
                raise ShapeError("N4", need, got, "Spread it with np.broadcast_to.", who="Interval")
            with np.errstate(invalid="ignore"):  # NaN is in no box
                inside = (_exactly(self.lo) <= lo) & (hi <= _exactly(self.hi))
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
        if any(isinstance(a, Interval) and a.shape for a in inputs):
            name = _OF_BOXES.get(ufunc)
            return NotImplemented if name is None or method != "__call__" or options else _of_boxes(name, *inputs)
        cells = [_cell(a) if isinstance(a, Interval) else a for a in inputs]
        return getattr(ufunc, method)(*cells, **options)

    def _leaves_it_to(self, other: Any) -> bool:
        """A dual number knows what to do with an interval, and so do the cells of an array with a single one."""
        return isinstance(other, Dual) or (isinstance(other, np.ndarray) and other.ndim > 0 and not self.shape)

    def __add__(self, other: Number) -> Interval:
        if self._leaves_it_to(other):
            return NotImplemented
        if self.shape:
            return _of_boxes("add", self, other)
        b = Interval.of(other)
        return Interval(_sum(self.lo, b.lo, below), _sum(self.hi, b.hi, above))

    __radd__ = __add__

    def __neg__(self) -> Interval:
        return Interval.between(-self.hi, -self.lo)

    def __sub__(self, other: Number) -> Interval:
        if self._leaves_it_to(other):
            return NotImplemented
        return _of_boxes("sub", self, other) if self.shape else self + -Interval.of(other)

    def __rsub__(self, other: Number) -> Interval:
        result: Interval = -self + other
        return result

    def __mul__(self, other: Number) -> Interval:
        if self._leaves_it_to(other):
            return NotImplemented
        if self.shape:
            return _of_boxes("mul", self, other)
        b = Interval.of(other)
        ends = [(p, q) for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        return Interval(min(_product(p, q, below) for p, q in ends), max(_product(p, q, above) for p, q in ends))

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Interval:
        if self._leaves_it_to(other):
            return NotImplemented
        if self.shape:
            return _of_boxes("div", self, other)
        b = Interval.of(other)
        if b.lo == b.hi == 0:
            raise ArgumentError("N4", "a divisor other than zero", f"{b}", "Divide by something.", who="Interval")
        if b.lo <= 0 <= b.hi:  # quotients by divisors near zero: anything
            return Interval(-math.inf, math.inf)
        ends = [(p, q) for p in (self.lo, self.hi) for q in (b.lo, b.hi)]
        return Interval(min(_quotient(p, q, below) for p, q in ends), max(_quotient(p, q, above) for p, q in ends))

    def __rtruediv__(self, other: Number) -> Interval:
        return _of_boxes("div", other, self) if self.shape else Interval.of(other) / self

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
        """E to every power in the interval."""
        return Interval(_ball(self.lo, flint.arb.exp, below), _ball(self.hi, flint.arb.exp, above))

    def log(self) -> Interval:
        """The logarithms of the positive numbers in the interval."""
        return Interval(_ball(max(self.lo, 0), flint.arb.log, below), _ball(self.hi, flint.arb.log, above))

    def power(self, p: Number) -> Interval:
        """Non-negative numbers to a positive power."""
        to = _dyadic(p)
        return Interval(
            _ball(max(self.lo, 0), lambda a: a**to, below),
            _ball(self.hi, lambda a: a**to, above),
        )


_PLAIN: Final = (int, float, Fraction)


def _item(a: Number) -> Number:
    """One of numpy's numbers as Python's, which compare exactly."""
    return a.item() if isinstance(a, np.ndarray | np.generic) else a


def _exactly(a: Any) -> Array:
    """Cells that numpy compares as the real numbers they are; it would round integers, and numbers beside float32."""
    cells = _as_array(a)
    if cells.dtype.kind in "bcmMSU":
        raise TypeError
    if cells.dtype == OBJECT or cells.dtype.kind in "iu":
        return each(_comparable, cells.astype(object))
    return cells.astype(np.float64) if cells.dtype.itemsize < 8 else cells


def _comparable(a: Number) -> Number:
    """A finite number as one that compares with every other: a Decimal does not with a Fraction."""
    if isinstance(a, Decimal) and a.is_finite():
        return Fraction(a)
    return float(a) if isinstance(a, Decimal) or (is_float(a) and not isinstance(a, np.longdouble)) else a


def below(exact: Number) -> float:
    """The greatest float <= an exact number, or a float."""
    f = _nearest(exact)
    return math.nextafter(f, -math.inf) if f == f and f > exact else f


def above(exact: Number) -> float:
    """The least float >= an exact number, or a float."""
    f = _nearest(exact)
    return math.nextafter(f, math.inf) if f == f and f < exact else f


def _nearest(exact: Number) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    except ValueError:  # a signalling NaN of Decimal
        return math.nan


Outward = Callable[[Fraction], float]


def _rounded(a: Number, b: Number, outward: Outward, exactly: Callable[[Any, Any], Any]) -> Number:
    if isinstance(a, EXACT) and isinstance(b, EXACT):
        return exactly(a, b)
    return outward(Fraction(exactly(Fraction(_item(a)), Fraction(_item(b)))))


def _sum(a: Number, b: Number, outward: Outward) -> Number:
    ends = {float(v) for v in (a, b) if is_infinite(v)}  # what is finite may be too large for a float
    if ends:
        # Opposite infinities: the sum may be anything, so this end goes to its own infinity.
        return outward_infinity(outward) if len(ends) == 2 else ends.pop()
    return _rounded(a, b, outward, lambda p, q: p + q)


def _product(a: Number, b: Number, outward: Outward) -> Number:
    if a == 0 or b == 0:  # zero times an unbounded end is still zero
        return 0 * (a if is_infinite(b) else b)
    if is_infinite(a) or is_infinite(b):
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return _rounded(a, b, outward, lambda p, q: p * q)


def _quotient(a: Number, b: Number, outward: Outward) -> Number:
    if is_infinite(b):
        return outward_infinity(outward) if is_infinite(a) else 0.0
    if is_infinite(a):
        return float(a) * (1.0 if b > 0 else -1.0)
    return _rounded(a, b, outward, lambda p, q: Fraction(p) / q)


def outward_infinity(outward: Outward) -> float:
    """The end of the line in the direction that `outward` rounds."""
    return -math.inf if outward is below else math.inf


def _dyadic(a: Number) -> flint.arb:
    q = Fraction(a)
    return flint.arb(flint.fmpq(q.numerator, q.denominator))


_TINY: Final = flint.arb(2) ** -2000


def _ball(a: Number, f: Callable[[flint.arb], flint.arb], outward: Outward) -> float:
    """F at one end, enclosed by a ball and rounded outward. f is increasing and non-negative, or a logarithm."""
    if a == -math.inf or (a == 0 and f is flint.arb.log):
        return -math.inf if f is flint.arb.log else 0.0
    if a == math.inf:
        return math.inf
    ball = f(_dyadic(a))
    end = ball.lower() if outward is below else ball.upper()
    if not end.is_finite():
        return outward_infinity(outward)
    if end != 0 and not _TINY < abs(end) < 1 / _TINY:  # far outside the floats: do not build the huge fraction
        far = Fraction(2) ** (2000 if abs(end) > 1 else -2000)
        return outward(far if end > 0 else -far)
    q = end.fmpq()
    return outward(Fraction(int(q.p), int(q.q)))


# ---- what operators ask of a number


def total(terms: Sequence[Number], zero: Number = 0) -> Number:
    """The sum from left to right. It starts at the first term, so that a sum of -0.0 alone stays -0.0."""
    if not terms:
        return zero
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def divide(a: Number, b: Number) -> Number:
    """A quotient; two integers give a Fraction, never a float.

    >>> divide(1, 3), divide(1.0, 3)
    (Fraction(1, 3), 0.3333333333333333)
    """
    if isinstance(a, int) and isinstance(b, int):
        return Fraction(a, b)
    if isinstance(b, Fraction) and isinstance(a, Decimal | flint.fmpq | flint.arb):
        return a * b.denominator / b.numerator
    if type(b) is float and b == 0 and type(a) in (int, float):
        return float(np.divide(a, b))  # numpy's is total
    return a / b


def mean(cells: Sequence[Number], divisor: Number, zero: Number = 0) -> Number:
    """The sum divided once. A float sum that is not finite may have overflowed on its way: it is redone scaled."""
    result = divide(total(cells, zero), divisor)
    if is_float(result) and not math.isfinite(result):
        bits = len(cells).bit_length()
        kind = type(result)
        small = divide(total([c * kind(2.0**-bits) for c in cells]), divisor)
        return small * kind(2.0**bits)
    return result


def is_float(a: Number) -> bool:
    """An IEEE number: Python's or one of numpy's."""
    return isinstance(a, float | np.floating) or type(a).__module__ == "ml_dtypes"


def is_nan(a: Number) -> bool:
    """Not a number, whatever the number type."""
    a = primal(a)
    return bool(a.is_nan()) if isinstance(a, flint.arb | Decimal) else bool(a != a)


def is_infinite(a: Number) -> bool:
    """An infinity, in the number types that have one."""
    a = primal(a)
    if isinstance(a, Decimal):
        return a.is_infinite()
    if isinstance(a, flint.arb):
        return bool(a.is_exact()) and not a.is_finite() and not a.is_nan()
    return is_float(a) and math.isinf(a)


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


def sign(a: Number) -> int:
    """-1, 0 or 1."""
    return int(a > 0) - int(a < 0)


def is_real(a: object) -> bool:
    """A plain real number, which takes the number type of the cells it meets; True and False are none."""
    return (isinstance(a, Real | Decimal) or is_float(a)) and not isinstance(a, bool | np.timedelta64)


def as_dtype(value: Number, dtype: np.dtype[Any]) -> float:
    """A plain real number rounded to a dtype; what is too large becomes infinite."""
    with np.errstate(all="ignore"):
        try:
            return float(dtype.type(float(value)))
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except ValueError:  # a signalling NaN of Decimal
            return math.nan


def like(value: Number, cell: Number) -> Number:
    """A Python number in the number type of `cell`: options are converted to x's type before they meet x.

    >>> like(0.5, Fraction(1)), like(0.5, Decimal(1))
    (Fraction(1, 2), Decimal('0.5'))
    """
    cell = primal(cell)
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, Decimal) and value.is_finite() and not isinstance(cell, Decimal):
        value = Fraction(value)
    if not isinstance(value, int | float | Fraction | np.floating) or isinstance(value, bool):
        return value
    if is_float(cell):
        with np.errstate(all="ignore"):
            try:
                # bfloat16 takes neither long ints nor Fractions.
                return type(cell)(float(value) if type(cell).__module__ == "ml_dtypes" else value)
            except OverflowError:
                return type(cell)(math.inf if value > 0 else -math.inf)
    if isinstance(value, int) and isinstance(cell, CLOSED):
        return type(cell)(value)
    if isinstance(value, int) or (is_float(value) and not math.isfinite(value)):
        return Decimal(float(value)) if isinstance(cell, Decimal) and not isinstance(value, int) else value
    q = Fraction(value) if isinstance(value, Fraction) else Fraction(float(value))
    if isinstance(cell, EXACT):
        return q
    if isinstance(cell, Decimal):
        return Decimal(q.numerator) / Decimal(q.denominator)
    if isinstance(cell, flint.fmpq):
        return flint.fmpq(q.numerator, q.denominator)
    if isinstance(cell, flint.arb):
        return _dyadic(q)
    return q if isinstance(cell, Interval) and isinstance(cell.lo, EXACT) else value


def zero_like(cell: Number) -> Number:
    """Zero in the number type of `cell`, whatever its value: 0 * cell is NaN of an infinity, and -0 of -1."""
    return Dual(zero_like(cell.value), zero_like(cell.slope)) if isinstance(cell, Dual) else like(0, cell)


# ---- order


@dataclass(frozen=True, slots=True)
class Winners:
    """The cells that carry the derivative of a maximum: each with the same weight, `unit` divided by `divisor`."""

    places: tuple[int, ...]
    divisor: int = 1
    unit: Number = None

    def weigh(self, v: Number) -> Number:
        """The share of v that one winner carries."""
        if self.unit is not None:
            return v * self.unit
        return v if self.divisor == 1 else divide(v, self.divisor)


def winners(cells: Sequence[Number], ties: Ties) -> Winners:
    """Who wins a maximum. Among NaN cells, and among equal cells, the first comes first."""
    values = [primal(c) for c in cells]
    if any(is_enclosure(v) for v in values):
        possible = tuple(p for p, v in enumerate(values) if not any(less(v, u) for u in values))
        return Winners(possible) if len(possible) == 1 else Winners(possible, unit=_unit(values))
    places = [p for p, v in enumerate(values) if is_nan(v)]
    if not places:
        best = 0
        for p, v in enumerate(values):
            if less(values[best], v):
                best = p
        places = [p for p, v in enumerate(values) if v == values[best]]
    if ties == "first":
        return Winners((places[0],))
    return Winners(tuple(places), len(places) if ties == "split" else 1)


def select(cells: Sequence[Number], ties: Ties = "first") -> Number:
    """The maximum. On dual numbers its slope is what the winners carry; on enclosures it encloses every maximum."""
    if any(isinstance(c, Dual) for c in cells):
        duals = [Dual.of(c) for c in cells]
        who = winners(duals, ties)
        return Dual(select([c.value for c in duals], ties), total([who.weigh(duals[p].slope) for p in who.places]))
    if any(isinstance(c, flint.arb) for c in cells):
        return reduce(lambda a, b: flint.arb(a).max(b), cells)
    if any(isinstance(c, Interval) for c in cells):
        ends = [Interval.of(c) for c in cells]
        return Interval(max(e.lo for e in ends), max(e.hi for e in ends))
    return cells[winners(cells, "first").places[0]]


def anchor(cells: Sequence[Number], *, greatest: bool) -> Number:
    """A plain number at or near the greatest (or least) cell, to shift or scale a window by.

    It needs no derivative and no enclosure: formulas that use it do not depend on its value.
    """
    values = [primal(c) if greatest else -primal(c) for c in cells]
    best = select(values)
    if isinstance(best, flint.arb):
        best = best.mid()
    if isinstance(best, Interval):
        best = next((e for e in (best.hi, best.lo) if not is_infinite(e)), 0.0)
    return best if greatest else -best


def place(cells: Sequence[Number]) -> int:
    """The place of the first winner."""
    who = winners(cells, "first")
    if len(who.places) > 1:
        raise ArgumentError(
            "N5",
            "a decided winner for its index",
            f"{len(who.places)} enclosures that overlap",
            "Drop return_indices, or narrow the enclosures.",
        )
    return who.places[0]


_COMPLEX: Final = (complex, np.complexfloating)


def less(a: Number, b: Number) -> bool:
    """Certainly less. Rule N2."""
    try:
        if isinstance(a, _COMPLEX) or isinstance(b, _COMPLEX):  # numpy's have an order, that of their real parts first
            raise TypeError
        return bool(a < b)
    except TypeError as error:
        raise DTypeError(
            "N2",
            "numbers with an order",
            f"cells of type {' and '.join(sorted({type(a).__name__, type(b).__name__}))}",
            "Complex numbers and symbols serve the linear operators: conv, conv_transpose and the averages.",
        ) from error


def _unit(values: Sequence[Number]) -> Number:
    return Interval(0, 1) if any(isinstance(v, Interval) for v in values) else flint.arb(0.5, 0.5)


def between_minus_one_and_one(a: Number) -> Number:
    """The enclosure [-1, 1] in the number type of an enclosure."""
    return Interval(-1, 1) if isinstance(primal(a), Interval) else flint.arb(0, 1)


def magnitude(a: Number) -> Number:
    """The absolute value, of ordered numbers only."""
    less(0, primal(a))
    return abs(a)


# ---- exp, log and roots


def exp(a: Number) -> Number:
    """E to the power a."""
    return _analytic("exp", a)


def log(a: Number) -> Number:
    """The natural logarithm; of zero, minus infinity."""
    return _analytic("log", a)


def _analytic(name: str, a: Number) -> Number:
    if isinstance(a, Dual | Interval | flint.arb):
        return getattr(a, name)()
    if isinstance(a, Decimal):
        return a.exp() if name == "exp" else a.ln()
    if isinstance(a, np.floating) or type(a).__module__ == "ml_dtypes":
        return type(a)(getattr(np, name)(a))
    if isinstance(a, float):
        return float(getattr(np, name)(a))  # numpy's are total: no OverflowError, no ValueError at zero
    raise cannot(name, a)


def power(a: Number, p: Number) -> Number:
    """A non-negative number to the power p, which is a positive plain number."""
    if p == 1:
        return a
    if isinstance(a, Dual):
        if is_enclosure(a) or primal(a) != 0:
            return Dual(power(a.value, p), like(p, a) * _lower_power(a.value, p) * a.slope)
        return Dual(power(a.value, p), 0 * a.slope)
    if isinstance(a, Interval):
        return a.power(p)
    if isinstance(a, flint.arb):
        if a > 0:
            return a ** _dyadic(p)
        top = a.upper()
        return flint.arb(0).union(top ** _dyadic(p)) if top > 0 else flint.arb(0)
    if isinstance(a, Decimal):
        return a ** like(p, a)
    if is_float(a):
        return type(a)(a ** type(a)(p))
    raise cannot("roots", a)


def whole_power(a: Number, p: int, times: Callable[[Any, Any], Any] = mul) -> Number:
    """A number to a power p >= 1, by squares: as many products as p has digits."""
    if isinstance(a, EXACT):
        return a**p  # which looks for common factors once
    result = None
    while p:
        if p % 2:
            result = a if result is None else times(result, a)
        p //= 2
        if p:
            a = times(a, a)
    return result


def _lower_power(a: Number, p: Number) -> Number:
    """A to the power p - 1, which below zero is a quotient."""
    return power(a, p - 1) if p > 1 else divide(power(a, p), a)


def cannot(what: str, a: Number) -> DTypeError:
    """The refusal for a number type without the functions an operator needs."""
    kind = type(primal(a)).__name__
    return DTypeError(
        "N3",
        f"a number type with {what}",
        f"cells of type {kind}",
        "float, numpy.float32, decimal.Decimal, flint.arb and Interval have it.",
    )


# ---- arrays of numbers


def allocate(shape: Shape, dtype: np.dtype[Any], what: str = "an output") -> Array:
    """Rule N6."""
    size = prod(shape) * (48 if dtype == OBJECT else dtype.itemsize)  # a Python number weighs about 40 bytes
    try:
        if size > _MEMORY:
            raise MemoryError
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise ShapeError(
            "N6",
            f"{what} that fits into {_MEMORY} bytes of memory",
            f"shape {shape}, {size} bytes",
            "Take a smaller batch, or less padding where there is any.",
        ) from error


def check_fits(x: Array, name: str) -> None:
    """Rule N6 for an operand of which a dense copy is made: with zero strides a few bytes stand for any size."""
    size = x.size * (48 if x.dtype == OBJECT else x.itemsize)
    if size > _MEMORY and not (x.flags.c_contiguous and x.dtype != OBJECT):
        need, got = f"{name} that fits into {_MEMORY} bytes of memory", f"shape {x.shape}, {size} bytes"
        raise ShapeError("N6", need, got, "It has to be copied: pass fewer cells.")


_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cells_of(x: object, name: str = "x") -> Array:
    """Any nested list or array as an object array of numbers, each exactly the number it was."""
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError("N1", "an array without a mask", f"{name} as a masked array", f"Pass {name}.filled(...).")
    if isinstance(x, np.ndarray):
        check_fits(x, name)
    if isinstance(x, np.ndarray) and (x.dtype.kind in "iu" or x.dtype.newbyteorder("=") in (np.float64, np.complex128)):
        return x.astype(object)
    array: Array
    if isinstance(x, np.ndarray) and x.dtype != object:
        array = np.empty(x.shape, object)  # numpy's own scalars, which astype(object) would widen
        for cell in cells_in(x.shape):
            array[cell] = x[cell]
    else:
        try:
            array = np.array(x, dtype=object)
        except Exception as error:  # ragged rows, or arrays of other libraries among the cells that refuse in their way
            got = f"{name} of type {type(x).__name__}: {shown(str(error))}"
            raise DTypeError("N1", "numbers in rows of equal length", got, "Make every row as long.") from error
    for cell in cells_in(array.shape):
        array[cell] = _number(array[cell], name, cell)
    return array


def cells_in(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every cell in row-major order, at any rank."""
    return iter(()) if 0 in shape else product(*map(range, shape))


def _number(a: object, name: str, cell: tuple[int, ...]) -> Number:
    strange = isinstance(
        a, bool | np.bool_ | str | bytes | Collection | type | np.void | np.datetime64 | np.timedelta64
    )
    if strange or not hasattr(a, "__mul__"):
        place = f"{name}[{', '.join(map(str, cell))}]" if cell else name
        ragged = isinstance(a, list | tuple | np.ndarray)
        hint = "Make every row as long." if ragged else "Pass an array or nested lists of numbers."
        raise DTypeError("N1", "numbers", f"{place}={shown(a)} of type {type(a).__name__}", hint)
    return int(a) if isinstance(a, np.integer) else a


@contextmanager
def meeting(*arrays: Array | None) -> Iterator[None]:
    """While cells meet in sums, products and comparisons: rule N7 for what their number types refuse."""
    try:
        yield
    except LunetteError:
        raise
    except (TypeError, ArithmeticError) as error:
        kinds = sorted({type(c).__name__ for a in arrays if a is not None for c in a.ravel()})
        raise DTypeError(
            "N7",
            "cells that add, multiply and compare with each other",
            f"cells of type {' and '.join(kinds)}: {shown(str(error))}",
            "Convert all arrays to one number type.",
        ) from error


def each(f: Callable[..., object], *arrays: Array) -> Array:
    """F cell by cell."""
    out: Array = np.empty(arrays[0].shape, object)
    for cell in cells_in(out.shape):
        out[cell] = f(*(a[cell] for a in arrays))
    return out


def exact(values: npt.ArrayLike) -> Array:
    """Rational copies of `values`: no rounding anywhere after this."""
    return each(Fraction, cells_of(np.asarray(values)))


def zero_of(*arrays: Array | None) -> Number:
    """Zero in the number type of the first cell there is."""
    cell = next((a[(0,) * a.ndim] for a in arrays if a is not None and a.size), 0)
    return like(0, cell) * 1 if is_float(primal(cell)) or isinstance(primal(cell), CLOSED) else 0
