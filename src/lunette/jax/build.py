"""`python -m lunette.jax.build`: compiles the handler by which XLA calls lunette's kernels.

| rule | says                                                                        |
|------|-----------------------------------------------------------------------------|
| J2   | there is a C++ compiler, $CXX or c++, that compiles the headers of jaxlib   |

It takes some seconds, once for every version of jaxlib, and is kept beside this file; where that is not to be written
to, among the user's caches ($XDG_CACHE_HOME or ~/.cache, in lunette/).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from argparse import ArgumentParser
from pathlib import Path

import jax

from lunette.errors import ArgumentError, shown
from lunette.jax.way import SOURCE, places


def build() -> Path:
    """The handler, compiled; another process that loads it meanwhile finds the old one or the new one whole."""
    to = places()[not os.access(SOURCE.parent, os.W_OK)]
    to.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX") or "c++"
    flags = ["-O2", "-DNDEBUG", "-std=c++17", "-fPIC", "-shared"]
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        made = Path(folder) / to.name
        command = [*shlex.split(compiler), *flags, "-isystem", jax.ffi.include_dir(), str(SOURCE), "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            trouble = done.stderr if done.returncode else ""
        except OSError as error:
            trouble = str(error)
        if trouble:
            lines = [line for line in trouble.splitlines() if line.strip()]
            wrong = next((line for line in lines if "error" in line), lines[0])
            hint = "Install one, or name it in CXX; without it JAX calls lunette by way of Python."
            raise ArgumentError(
                "J2",
                "a C++ compiler that takes the headers of jaxlib",
                f"{compiler}: {shown(wrong)}",
                hint,
                who="build",
            )
        made.replace(to)
    return to


if __name__ == "__main__":
    ArgumentParser(
        prog="python -m lunette.jax.build", description="Compile the handler by which JAX calls lunette."
    ).parse_args()
    print(build())
