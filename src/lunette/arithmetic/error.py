"""How far a float result may be from the exact one, and how far it is."""

from __future__ import annotations

from typing import Any


def height(terms: int) -> int:
    """How many roundings a term of a sum passes through: sums are blocked by 512."""
    return min(terms, 512 + -(-terms // 512)) + 2


def gamma(h: Any, u: Any) -> Any:
    """The relative error of h roundings."""
    return h * u / (1 - h * u)
