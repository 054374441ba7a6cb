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

Each module imports those before it only: kinds (names, sums, quotients), rounding (outward, one number), cells (arrays
of numbers), interval, convert (options meet cells), analytic (exp, log, powers), dual, order (maxima).
"""

from lunette.number.analytic import bell as bell
from lunette.number.analytic import cannot as cannot
from lunette.number.analytic import erf as erf
from lunette.number.analytic import exp as exp
from lunette.number.analytic import floor as floor
from lunette.number.analytic import log as log
from lunette.number.analytic import power as power
from lunette.number.analytic import whole_power as whole_power
from lunette.number.cells import allocate as allocate
from lunette.number.cells import cells_in as cells_in
from lunette.number.cells import cells_of as cells_of
from lunette.number.cells import check_fits as check_fits
from lunette.number.cells import each as each
from lunette.number.cells import exact as exact
from lunette.number.cells import is_masked as is_masked
from lunette.number.cells import meeting as meeting
from lunette.number.convert import as_dtype as as_dtype
from lunette.number.convert import like as like
from lunette.number.convert import zero_like as zero_like
from lunette.number.convert import zero_of as zero_of
from lunette.number.dual import Dual as Dual
from lunette.number.interval import BOX_OPERATORS as BOX_OPERATORS
from lunette.number.interval import Box as Box
from lunette.number.interval import Interval as Interval
from lunette.number.interval import between_minus_one_and_one as between_minus_one_and_one
from lunette.number.interval import is_decided as is_decided
from lunette.number.interval import is_enclosure as is_enclosure
from lunette.number.interval import is_zero as is_zero
from lunette.number.kinds import EXACT as EXACT
from lunette.number.kinds import OBJECT as OBJECT
from lunette.number.kinds import Array as Array
from lunette.number.kinds import Lifted as Lifted
from lunette.number.kinds import Number as Number
from lunette.number.kinds import Ties as Ties
from lunette.number.kinds import divide as divide
from lunette.number.kinds import is_float as is_float
from lunette.number.kinds import is_infinite as is_infinite
from lunette.number.kinds import is_nan as is_nan
from lunette.number.kinds import is_real as is_real
from lunette.number.kinds import mean as mean
from lunette.number.kinds import primal as primal
from lunette.number.kinds import sign as sign
from lunette.number.kinds import total as total
from lunette.number.order import Winners as Winners
from lunette.number.order import anchor as anchor
from lunette.number.order import less as less
from lunette.number.order import magnitude as magnitude
from lunette.number.order import place as place
from lunette.number.order import select as select
from lunette.number.order import winners as winners
from lunette.number.rounding import above as above
from lunette.number.rounding import below as below
from lunette.number.rounding import outward_infinity as outward_infinity
