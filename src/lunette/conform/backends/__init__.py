"""Whose operators can be measured: one module per library, loaded when it is asked for."""

from __future__ import annotations

from lunette.conform.backends.backend import Backend as Backend
from lunette.conform.backends.backend import Space as Space
from lunette.conform.backends.registry import NAMES as NAMES
from lunette.conform.backends.registry import find as find
