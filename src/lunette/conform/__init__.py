"""Measure anyone's operators against the true answer: `ln.conform("torch")`, `ln.conform(my_pool, op="max_pool")`.

The package is callable, so that it is both the function and the place of its parts (lunette.conform.case, ...).

    conform(target, op=None, *, ops, cases, seed, modes, jvp, vjp, dtypes, ranks, workers, on_progress, journal, known,
            pool) -> Report

`help(lunette.conform.run.conform)` says what each of them means; `lunette.conform.cluster` has the rules K1 to K5.

| rule | says                                                                        |
|------|-----------------------------------------------------------------------------|
| V1   | the library that is measured, or that draws the cases, is installed         |
| V2   | a backend, or a strategy, is one that exists                                |
| V3   | a file of known differences is readable, and every line says what and why   |
| V4   | an operator is one that the backend has                                     |
| V5   | a function of your own can be found, called, and is meant as an operator    |
| V6   | a mode, a dtype or a rank is one that the backend has                       |
| V7   | the process that workers are forked from starts, and stays                  |
| V8   | a journal is one that a run of the same backend wrote, or a new file        |
| V9   | cases and workers are whole numbers from 1, a seed is one from 0            |
| V10  | an operator with roots or exponentials has a rule of how far it may be off  |
| V11  | a network has only operators, and windows, that PyTorch can say             |
"""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    @property
    def __signature__(self) -> Signature:
        from lunette.conform.run import conform

        return signature(conform)

    def __call__(self, *target: Any, **settings: Any) -> Any:
        # Imported when called: `import lunette` stays as quick as it is without.
        from lunette.conform.run import conform

        return conform(*target, **settings)


sys.modules[__name__].__class__ = _Callable
