"""Which instruction set a peer computes with: the best of the processor, or less if the peer's own switch says so.

The names are those of `LUNETTE_ISA`. What a library chooses among depends on this set before it depends on anything
else, and a switch of its own lowers it on any machine: that is how the answers of another processor are asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

SETS: Final = ("generic", "avx2", "avx512")
"""Worst first; "generic" is every processor without AVX2, whatever it is."""
SWITCHES: Final[Mapping[str, str]] = {
    "ONEDNN_MAX_CPU_ISA": r"^(?!ALL$|DEFAULT$)(\w+)",
    "ATEN_CPU_CAPABILITY": r"(\w+)",
    "XLA_FLAGS": r"--xla_cpu_max_isa=(\w+)",
    "LUNETTE_ISA": r"(\w+)",
}
"""Variables that lower the set of some libraries, and where in their value its name is."""


@cache
def processor() -> str:
    """The best set of this processor, by the flags that the kernel shows."""
    try:
        flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[0].split())
    except (OSError, IndexError):
        return SETS[0]
    if not {"avx2", "fma"} <= flags:
        return SETS[0]
    return SETS[2 if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else 1]


def seen(switches: Iterable[str], environment: Mapping[str, str] = os.environ) -> str:
    """The set that a library with these switches sees here; of several switches the lowest counts."""
    limits = [re.search(SWITCHES[s], environment.get(s, ""), re.I) for s in switches]
    return min((processor(), *(_named(m[1]) for m in limits if m)), key=SETS.index)


def _named(word: str) -> str:
    """A library's name for a set; what comes before AVX2 is generic.

    >>> [_named(word) for word in ("SSE41", "AVX", "avx2", "AVX2_VNNI", "AVX512_CORE_BF16", "AVX10_1_512", "default")]
    ['generic', 'generic', 'avx2', 'avx2', 'avx512', 'avx512', 'generic']
    """
    upper = word.upper()
    return "avx512" if upper.startswith(("AVX512", "AVX10")) else "avx2" if upper.startswith("AVX2") else "generic"
