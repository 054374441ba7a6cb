"""Structures of values: tuples, lists, dicts, and classes that optree or JAX know, such as Equinox modules.

A class that JAX knows (`jax.tree_util.register_dataclass`, `equinox.Module`) is taken over the first time one is met,
in a namespace of lunette's own: nothing of optree's or JAX's registries changes for anybody else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, Final

import numpy as np
import optree

NAMESPACE: Final = "lunette"
_trees: Any = optree  # whose types say less than Any
_LEAVES: Final[frozenset[type]] = frozenset({np.ndarray, int, float, complex, bool, str, bytes, type(None)})
"""Classes that are known to be leaves."""


def flatten(values: Any, none_is_leaf: bool = False) -> tuple[list[Any], Any]:
    """The leaves and the structure."""
    leaves, tree = _trees.tree_flatten(values, none_is_leaf=none_is_leaf, namespace=NAMESPACE)
    while _adopted(leaves):
        leaves, tree = _trees.tree_flatten(values, none_is_leaf=none_is_leaf, namespace=NAMESPACE)
    return leaves, tree


def hint_of(leaf: Any, otherwise: str) -> str:
    """What to do about a leaf that is no value: a dataclass is a structure only where it is registered."""
    if not is_dataclass(leaf) or isinstance(leaf, type):
        return otherwise
    name = type(leaf).__name__
    return f"Register the class: jax.tree_util.register_dataclass({name}), or pass a tuple or a dict."


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """The values again."""
    return _trees.tree_unflatten(tree, leaves)


def leaves_of(values: Any, none_is_leaf: bool = False) -> list[Any]:
    """Without their structure."""
    return flatten(values, none_is_leaf)[0]


def paths(values: Any) -> list[tuple[Any, ...]]:
    """The keys that lead to each leaf."""
    flatten(values)
    found: list[tuple[Any, ...]] = _trees.tree_paths(values, namespace=NAMESPACE)
    return found


def spread(prefix: Any, whole: Any) -> Any:
    """A leaf of the prefix in the place of each leaf of what stands there in the whole."""
    return _trees.tree_broadcast_prefix(prefix, whole, none_is_leaf=True, namespace=NAMESPACE)


def _adopted(leaves: Sequence[Any]) -> bool:
    """Whether some leaf is of a class that JAX takes apart, and optree does now."""
    found = False
    for leaf in leaves:
        kind = type(leaf)
        if kind in _LEAVES or hasattr(leaf, "dtype"):
            continue
        if "jax" in sys.modules and _opened(leaf) is not None:
            _trees.register_pytree_node(kind, _opened, _closed, namespace=NAMESPACE)
            found = True
    return found


def _opened(x: Any) -> tuple[list[Any], Any] | None:
    """What JAX finds one level down; None if it finds a leaf."""
    util: Any = sys.modules["jax"].tree_util
    children, tree = util.tree_flatten(x, is_leaf=lambda y: y is not x)
    return None if util.treedef_is_leaf(tree) else (children, tree)


def _closed(tree: Any, children: Sequence[Any]) -> Any:
    util: Any = sys.modules["jax"].tree_util
    return util.tree_unflatten(tree, list(children))
