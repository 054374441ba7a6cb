"""How compiled code reaches the kernels: XLA calls them itself, by the handler of handler.cpp, or it asks Python to.

The handler comes with the package where jaxlib was at hand when that was built; `python -m lunette.jax.build` makes it
otherwise. LUNETTE_JAX=callback has Python asked although there is one.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import jax

from lunette import _native
from lunette.building import Handler

TARGET: Final = "lunette"
SOURCE: Final = Path(__file__).parent / "handler.cpp"
HANDLER: Final = Handler("J2", SOURCE, "jaxlib", "JAX calls lunette by way of Python")


def calls() -> str:
    """Says "ffi" if XLA calls the kernels itself, "callback" if it asks Python to; LUNETTE_JAX=callback has it so."""
    return "ffi" if os.environ.get("LUNETTE_JAX") != "callback" and connected() else "callback"


def places() -> tuple[Path, Path]:
    """Where the handler for this jaxlib is built."""
    return HANDLER.places(version("jaxlib"))


@lru_cache
def connected() -> bool:
    """Whether there is a handler; XLA is told of it, once."""
    for path in (*places(), SOURCE.parent / "handler.so"):
        try:
            library = ctypes.CDLL(str(path))
            library.lunette_connect.argtypes, library.lunette_connect.restype = [ctypes.c_void_p], None
            library.lunette_connect(_native.foreign_run())
            jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.lunette_call), platform="cpu")
        except Exception:  # there is none, or none for this machine or this XLA: each has its own way to refuse
            continue
        return True
    return False
