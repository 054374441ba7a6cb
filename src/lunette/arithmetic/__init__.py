"""Arithmetics other than "fast": correctly rounded results and sound bounds."""

from lunette.arithmetic import interval as _interval
from lunette.arithmetic import interval_pool as _interval_pool  # noqa: F401 (it registers the pools)
from lunette.arithmetic import round_conv as _round_conv  # noqa: F401 (it registers the convolutions)
from lunette.arithmetic import round_curved as _round_curved  # noqa: F401 (it registers smooth max and Lp)
from lunette.arithmetic import round_exp as _round_exp  # noqa: F401 (it registers exponentials and their like)
from lunette.arithmetic import round_glue as _round_glue  # noqa: F401 (it registers matrix products and reductions)
from lunette.arithmetic import round_pool as _round_pool  # noqa: F401 (it registers the pools)
from lunette.arithmetic import round_power as _round_power  # noqa: F401 (it registers powers)
from lunette.arithmetic.rounded import rounded as _rounded
from lunette.array import ARITHMETIC

ARITHMETIC["rounded"] = _rounded
ARITHMETIC["interval"] = _interval.run
