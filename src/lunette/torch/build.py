"""`python -m lunette.torch.build`: compiles the nodes by which torch's backward pass calls lunette's kernels.

| rule | says                                                                        |
|------|-----------------------------------------------------------------------------|
| TB3  | there is a C++ compiler, $CXX or c++, that compiles the headers of torch    |

It takes some seconds, once for every version of torch.
"""

from __future__ import annotations

from pathlib import Path

import torch

from lunette.building import command
from lunette.torch.nodes import HANDLER, places


def build() -> Path:
    """The nodes, compiled."""
    here = Path(torch.__file__).parent
    include = here / "include"
    flags = ["-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-fvisibility=hidden"]
    headers = ["-isystem", str(include), "-isystem", str(include / "torch" / "csrc" / "api" / "include")]
    return HANDLER.build(places(), [*flags, *headers], [f"-L{here / 'lib'}", "-ltorch_cpu", "-lc10"])


if __name__ == "__main__":
    command("lunette.torch.build", "Compile the nodes by which torch calls lunette backward.", build)
