"""Hypothesis strategies: random problems for the operators, for tests of your own.

    from hypothesis import given
    from lunette.strategies import cases

    @given(cases("max_pool", ranks=(2,)))
    def test_my_pool(case):
        (x,) = case.arrays().primals
        assert (my_pool(x, **case.options) == ln.max_pool(x, **case.options)).all()

Drawing is lunette.conform's own, steered by one integer, so that every example can be rebuilt from its repr;
`lunette.conform.shrink` reduces one that fails.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.array import output_shape
from lunette.conform.backends.backend import Space
from lunette.conform.case import Case
from lunette.conform.data import DATA
from lunette.conform.generate import draw
from lunette.errors import ArgumentError, LunetteError, meant, shown
from lunette.ops import KINDS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def _hypothesis() -> Any:
    """Imported when asked for: lunette itself does not need it."""
    try:
        return importlib.import_module("hypothesis.strategies")
    except ImportError as error:
        raise ArgumentError(
            "V1", "the library hypothesis", "none installed", "pip install hypothesis", who="strategies"
        ) from error


def cases(
    op: str | Sequence[str] | None = None,
    *,
    ranks: Sequence[int] = (1, 2, 3, 4),
    dtypes: Sequence[str] = ("float32", "float64"),
    modes: Sequence[str] = ("forward",),
    data: Sequence[str] | None = None,
    layouts: Sequence[str] = ("contiguous",),
    valid: bool = True,
) -> SearchStrategy[Case]:
    """Cases of one operator, of several, or of all; `valid` ones are those that lunette defines.

    >>> from lunette.strategies import cases
    >>> cases("max_pull")
    Traceback (most recent call last):
        ...
    lunette.errors.ArgumentError: strategies [V2] needs operators among conv, conv_transpose, max_pool, avg_pool, \
smooth_max_pool, lp_pool, adaptive_avg_pool, adaptive_max_pool, global_avg_pool, global_max_pool; got 'max_pull'. \
Did you mean max_pool?
    """
    st = _hypothesis()
    ops = tuple(KINDS) if op is None else (op,) if isinstance(op, str) else tuple(op)
    for given, known, what in ((ops, KINDS, "operators"), (data or (), DATA, "data sets")):
        for name in given:
            if name not in known:
                need, hint = f"{what} among {', '.join(known)}", meant(name, known, "See lunette.conform.case.")
                raise ArgumentError("V2", need, shown(name), hint, who="strategies")
    space = Space(ranks=tuple(ranks), dtypes=tuple(dtypes), modes=tuple(modes), layouts=tuple(layouts))

    def build(choice: tuple[str, int, str | None]) -> Case:
        name, seed, filling = choice
        case = draw(name, np.random.default_rng(seed), space)
        return case if filling is None else replace(case, data=filling)

    fillings = st.none() if data is None else st.sampled_from(list(data))
    every = st.tuples(st.sampled_from(ops), st.integers(0, 2**32 - 1), fillings).map(build)
    if valid:
        every = every.filter(lambda case: is_valid(case) and case.mode in modes)
    return every  # type: ignore[no-any-return]


def is_valid(case: Case) -> bool:
    """Whether lunette defines the case."""
    try:
        output_shape(case.op, *case.shapes, **case.options)
    except LunetteError:
        return False
    return True
