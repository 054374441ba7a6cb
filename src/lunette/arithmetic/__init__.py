"""Arithmetics other than "fast": correctly rounded results and sound bounds."""

from lunette.arithmetic.rounded import rounded as _rounded
from lunette.array import ARITHMETIC

ARITHMETIC["rounded"] = _rounded
