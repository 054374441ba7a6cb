"""Small C++ files that are compiled where they are used, against the headers of the framework that is installed there.

A handler for another version of anything it depends on has another name, so it is not found. It is kept beside its
source; where that is not to be written to, among the user's caches ($XDG_CACHE_HOME or ~/.cache, in lunette/).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lunette import _native
from lunette.errors import ArgumentError, shown


@dataclass(frozen=True)
class Handler:
    """A C++ file beside a module of lunette."""

    rule: str
    """Of what is refused where it cannot be compiled."""
    source: Path
    framework: str
    """Whose headers it needs."""
    without: str
    """What is the case as long as it is not compiled."""

    def places(self, *facts: object) -> tuple[Path, Path]:
        """Where it is, compiled for facts: in the package, or among the user's caches if that is not ours."""
        told = (self.source.read_text(), *facts, _native.FOREIGN_VERSION, platform.machine())
        name = f"{self.source.stem}-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}.so"
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return self.source.parent / name, caches / "lunette" / name

    def build(self, places: tuple[Path, Path], flags: Sequence[str], links: Sequence[str] = ()) -> Path:
        """Compiled; another process that loads it meanwhile finds the old one or the new one whole."""
        to = places[not os.access(self.source.parent, os.W_OK)]
        to.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX") or "c++"
        with tempfile.TemporaryDirectory(dir=to.parent) as folder:
            made = Path(folder) / to.name
            whole = [*flags, "-O2", "-DNDEBUG", "-fPIC", "-shared", str(self.source), "-o", str(made), *links]
            try:
                done = subprocess.run([*shlex.split(compiler), *whole], capture_output=True, text=True, check=False)
                trouble = done.stderr if done.returncode else ""
            except OSError as error:
                trouble = str(error)
            if trouble:
                lines = [line for line in trouble.splitlines() if line.strip()]
                wrong = next((line for line in lines if "error" in line), lines[0])
                raise ArgumentError(
                    self.rule,
                    f"a C++ compiler that takes the headers of {self.framework}",
                    f"{compiler}: {shown(wrong)}",
                    f"Install one, or name it in CXX; without it {self.without}.",
                    who="build",
                )
            made.replace(to)
        return to


def command(module: str, description: str, build: Callable[[], Path]) -> None:
    """What `python -m` of a module does that compiles a handler: says that it takes a while, and where it is then."""
    ArgumentParser(prog=f"python -m {module}", description=description).parse_args()
    print("compiling: some seconds, on a busy machine a minute", file=sys.stderr, flush=True)
    print(build())
