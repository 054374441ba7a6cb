"""Arithmetics other than "fast": correctly rounded results and sound bounds."""

from lunette.arithmetic import interval
from lunette.array import ARITHMETIC

ARITHMETIC["interval"] = interval.run
