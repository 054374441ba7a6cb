"""What `import lunette` costs beside `import numpy`: processor time of fresh processes, one after the other."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys


def seconds(module: str) -> float:
    """The processor time of a process that imports a module, with the compiled files that an installation has."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main(turns: int) -> None:
    """Medians, and the median of the ratios of neighbours."""
    names = ("numpy", "lunette")
    taken = [[seconds(name) for name in names] for _ in range(turns + 1)][1:]  # the first compiles
    told = [f"import {name} {1000 * statistics.median(t[at] for t in taken):.0f} ms" for at, name in enumerate(names)]
    print(", ".join(told), f"ratio {statistics.median(ours / theirs for theirs, ours in taken):.2f}", sep=", ")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
