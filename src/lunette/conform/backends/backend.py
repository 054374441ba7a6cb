"""What a backend is: a dialect to speak, a space of cases worth asking, and a way to run one case."""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any, ClassVar

from lunette.conform.case import LAYOUTS, Case, Data
from lunette.conform.isa import seen
from lunette.conform.judge import judge
from lunette.conform.result import Outcome
from lunette.conform.truth import truth
from lunette.dialects import Call, Unsaid, dialect
from lunette.errors import ArgumentError, LunetteError
from lunette.number import Array
from lunette.ops import KINDS
from lunette.ops.chance import Limits

TIES = {"the first in row-major order": "first", "equal shares": "split"}
"""What dialects say about ties, and the option of that name."""


@dataclass(frozen=True, slots=True)
class Space(Limits):
    """What to draw cases from. What a backend cannot do is better not drawn than refused."""

    ops: tuple[str, ...] = field(default_factory=lambda: tuple(KINDS))
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    dtypes: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    modes: tuple[str, ...] = ("forward", "indices", "jvp", "vjp")
    layouts: tuple[str, ...] = LAYOUTS
    thin: int = 1
    """Every so many of the corners are asked, where a case costs seconds."""


class Backend(ABC):
    """One library, or one function."""

    name: str
    module: ClassVar[str] = ""
    """What to import; empty if lunette itself is enough."""
    extra: ClassVar[str] = ""
    """What to install: pip install 'lunette[<extra>]'."""
    dialect: ClassVar[str] = ""
    space: Space
    deadline: float = 8.0
    """Seconds after which a case counts as hung."""
    default_cases: int = 4000
    tries: int = 260
    """How many cases may be tried to reduce one failure."""
    lives_here: bool = False
    """Workers are forked from this process: what is measured has no name that another process could import."""
    may_be_anything: bool = False
    """Nobody knows which ranks and dtypes it is made for: it is asked, and the user may say."""
    environment: Mapping[str, str] = {}
    """Variables that must be set before the library is imported."""
    switches: ClassVar[tuple[str, ...]] = ()
    """Variables that lower the instruction set that the library computes with, of those in lunette.conform.isa."""

    def check(self) -> None:
        """Name what is missing before anything runs."""
        if self.module and importlib.util.find_spec(self.module.partition(".")[0]) is None:
            raise ArgumentError(
                "V1",
                f"the library {self.module.partition('.')[0]} for the backend {self.name}",
                "none installed",
                f"pip install 'lunette[{self.extra}]'",
                who="conform",
            )

    @property
    def version(self) -> str:
        """The library and its version."""
        package = self.module.partition(".")[0] or "lunette"
        try:
            return f"{package} {version_of(package)}"
        except PackageNotFoundError:
            return package

    @property
    def isa(self) -> str:
        """The instruction set that the library sees here."""
        return seen(self.switches)

    @property
    def fingerprint(self) -> str:
        """Of what is measured, where the version does not tell: it changes with every change of it."""
        return ""

    def load(self) -> Any:
        """Import the library; nothing is computed yet, so that processes can be forked from here."""
        return importlib.import_module(self.module) if self.module else None

    def call(self, case: Case) -> Call | Unsaid:
        """The call that means the case, by the dialect; word by word where lunette itself refuses the geometry."""
        options = {n: v for n, v in case.options.items() if n != "ties"}
        if case.mode == "indices":
            options["return_indices"] = True
        spoken = dialect(self.dialect)
        try:
            return spoken.express(case.op, case.shapes, options)
        except LunetteError:
            pass
        try:
            return spoken.spell(case.op, case.shapes, options)
        except LunetteError as error:
            return Unsaid(str(error))

    def supports(self, case: Case) -> str | None:
        """None, or why the backend is not asked."""
        if case.op not in self.space.ops:
            return f"no {case.op}"
        if case.mode not in self.space.modes:
            return f"no {case.mode}"
        if case.dtype not in self.space.dtypes:
            return f"no {case.dtype}"
        call = self.call(case)
        if isinstance(call, Unsaid):
            return call.reason
        if case.mode == "indices" and not self.has_indices(call):
            return f"no indices from {call.function}"
        if case.kind.selects and case.mode in ("jvp", "vjp") and call.corners is not None:
            does = TIES.get(call.corners.ties or "")
            asked = case.option("ties")
            if does is not None and does != asked:
                return f"ties are {call.corners.ties}"
            if case.misses and asked != "first":
                return "shares of a derivative beside windows without cells"
        return None

    def expected(self, mode: str) -> str:
        """The call that is made of a user's function, in words; nothing for a library, which has its own."""
        return ""

    def fitted(self, case: Case) -> Case:
        """The case itself, or the nearest one that can be asked, where it is plain which."""
        return case

    def has_indices(self, call: Call) -> bool:
        """Whether this function of the library tells where a maximum was."""
        return "return_indices" in call.arguments

    def empty(self, case: Case) -> str:
        """What the dialect says about a maximum over no cell: "-inf" or "refused"."""
        call = self.call(case)
        said = call.corners.empty if isinstance(call, Call) and call.corners is not None else None
        return "-inf" if (said or "").startswith("-inf") else "refused"

    @abstractmethod
    def run(self, case: Case, data: Data) -> Any:
        """NumPy arrays in the order of truth.names; raises what the library raises."""

    def judge(self, case: Case, data: Data, answered: Any) -> Outcome:
        """What the answer is worth: `run`'s, or what it raised."""
        return judge(case, data, answered, truth(case, data, self.empty(case)))

    @abstractmethod
    def source(self, case: Case) -> str:
        """One line in the backend's own language that shows the case."""


def literal(a: Array) -> str:
    """A short array as nested lists of numbers; nothing for a long one."""

    def rows(v: Any) -> str:
        if getattr(v, "ndim", 0):
            return f"[{', '.join(map(rows, v))}]"
        number = float(v)
        whole = abs(number) < 1e6 and number == int(number) and str(number) != "-0.0"
        return f"{number:.0f}." if whole else repr(number)

    return rows(a) if 0 < a.size <= 64 else ""


def written(case: Case, at: int, library: str = "np", array: str = "array") -> str:
    """Array number `at` of a case as source code: its cells, a formula, or the case itself if it has many."""
    a = case.arrays().every[at]
    kind = "ml_dtypes.bfloat16" if (case.dtype, library) == ("bfloat16", "np") else f"{library}.{case.dtype}"
    if cells := literal(a):
        named = cells.replace("nan", f"{library}.nan").replace("inf", f"{library}.inf")
        return f"{library}.{array}({named}, dtype={kind})"
    if not a.size:
        return f"{library}.zeros({a.shape}, dtype={kind})"
    if (a == a.ravel()[0]).all():
        return f"{library}.full({a.shape}, {float(a.ravel()[0])!r}, dtype={kind})"
    wide = ".astype('float32')" * (case.dtype == "bfloat16")  # not every library takes NumPy's word for those
    return f"{library}.{array}({case!r}.arrays().every[{at}]{wide}, dtype={kind})"


def preamble(case: Case, start: str) -> str:
    """The imports of a reproducer."""
    start += "; import ml_dtypes" * (case.dtype == "bfloat16" and "numpy as np" in start)
    long = any(not literal(a) and a.size and not (a == a.ravel()[0]).all() for a in case.arrays().every)
    return start + "; from lunette.conform.case import Case" * long + "; "


LIVE: dict[str, Backend] = {}
"""Backends that exist in this process only, such as functions without a name to import."""


def register(backend: Backend) -> None:
    """A backend for this process only."""
    LIVE[backend.name] = backend
