"""`python -m lunette.jax.build`: compiles the handler by which XLA calls lunette's kernels.

| rule | says                                                                        |
|------|-----------------------------------------------------------------------------|
| J2   | there is a C++ compiler, $CXX or c++, that compiles the headers of jaxlib   |

It takes some seconds, once for every version of jaxlib.
"""

from __future__ import annotations

from pathlib import Path

import jax

from lunette.building import command
from lunette.jax.way import HANDLER, places


def build() -> Path:
    """The handler, compiled."""
    return HANDLER.build(places(), ["-std=c++17", "-isystem", jax.ffi.include_dir()])


if __name__ == "__main__":
    command("lunette.jax.build", "Compile the handler by which JAX calls lunette.", build)
