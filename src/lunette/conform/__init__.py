"""Measure anyone's operators against the true answer: `ln.conform("torch")`, `ln.conform(my_pool, op="max_pool")`.

The package is callable, so that it is both the function and the place of its parts (lunette.conform.case, ...).
`lunette.conform.run.conform` says what may be asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *target: Any, **settings: Any) -> Any:
        # Imported when called: `import lunette` stays as quick as it is without.
        from lunette.conform.run import conform

        return conform(*target, **settings)


sys.modules[__name__].__class__ = _Callable
