"""Anybody's bounds: a network and a box in, two arrays out, between which every output is said to lie.

    def my_bounds(network: bytes, lo, hi): ...     # an ONNX model; also a torch.nn.Module, or a lunette.Graph

The annotation of the first parameter says what the network comes as; without one it is an ONNX model. lo and hi are
arrays of the input's shape, one sample, and so are the two that come back of the output's. An error claims nothing.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from lunette.conform.backends.backend import Backend, Space
from lunette.conform.backends.function import code_of, described, imported, name_of
from lunette.conform.backends.torch import Torch
from lunette.conform.case import Case, Data
from lunette.conform.judge import Raised
from lunette.conform.judge_bounds import judge_bounds
from lunette.conform.networks import is_network
from lunette.conform.question import Question
from lunette.conform.result import Outcome, Verdict
from lunette.dialects import Unsaid
from lunette.errors import ArgumentError, LunetteError
from lunette.graph.graph import Graph
from lunette.number import Array, Interval
from lunette.relax.bounds import bounds

LANGUAGES: Final = {"bytes": "onnx", "Module": "module", "Graph": "graph"}
"""What a network may come as: the last word of an annotation, and the attribute of a question that holds it."""
WIDE: Final = Space(modes=("bounds",), ranks=(1, 2, 3), dtypes=("float32", "float64"), layouts=("contiguous",))
SPACES: Final = {
    "onnx": WIDE,
    "graph": WIDE,
    "module": replace(Torch.space, modes=WIDE.modes, dtypes=WIDE.dtypes, layouts=WIDE.layouts),
}


class Bounds(Backend):
    """What claims bounds."""

    language: str = "graph"
    space = WIDE
    default_cases = 1500
    deadline = 20.0
    tries = 120

    @abstractmethod
    def claim(self, network: Any, lo: Array, hi: Array) -> Any:
        """The two ends."""

    @abstractmethod
    def spoken(self) -> tuple[str, str]:
        """What to import, and the name of a function of (network, lo, hi), in source."""

    def supports(self, case: Case) -> str | None:
        return None if is_network(case) else "no network of one sample with some cells"

    def run(self, case: Case, data: Data) -> Any:
        question = Question(case)
        try:
            network = getattr(question, self.language)
        except LunetteError as error:  # it cannot be said, and nobody was asked
            return Unsaid(str(error))
        return self.claim(network, question.lo.copy(), question.hi.copy())

    def judge(self, case: Case, data: Data, answered: Any) -> Outcome:
        if isinstance(answered, Unsaid):
            return Outcome(case, Verdict.UNSUPPORTED, message=answered.reason)
        if isinstance(answered, Raised):
            return Outcome(case, Verdict.DECLINED, message=str(answered))
        return judge_bounds(case, answered, lambda other: self.run(other, other.arrays()))

    def source(self, case: Case) -> str:
        start, name = self.spoken()
        asked = f"claim = {name}(q.{self.language}, q.lo, q.hi); print(claim); print(q.excluded(*claim))"
        names = "from lunette.conform.case import Case; from lunette.conform.question import Question"
        return f"{start}{names}; q = Question({case!r}); {asked}"


class Claimed(Bounds):
    """A function of this process."""

    lives_here = True

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        dtypes: Sequence[str] | None = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.name, self.function = name, function
        self.language = language_of(function)
        space = SPACES[self.language]
        self.space = replace(space, dtypes=tuple(dtypes or space.dtypes), ranks=tuple(ranks or space.ranks))

    @property
    def version(self) -> str:
        """The function's name is all there is."""
        return self.name

    @property
    def fingerprint(self) -> str:
        """Of the file that the function is written in, and of what it is said to be made for."""
        made_for = hashlib.sha256(repr((self.space.dtypes, self.space.ranks)).encode())
        made_for.update(code_of(self.function))
        return made_for.hexdigest()[:16]

    def load(self) -> Any:
        """What networks are written with, so that not every worker imports it."""
        if self.language != "graph":
            __import__({"onnx": "onnx", "module": "torch"}[self.language])

    def claim(self, network: Any, lo: Array, hi: Array) -> Any:
        claimed = self.function(network, lo, hi)
        if not isinstance(claimed, tuple | list):
            return claimed
        return tuple(end.detach().numpy() if hasattr(end, "detach") else end for end in claimed)

    def place(self) -> tuple[str, str]:
        """The module that the function can be imported from, or none, and its name."""
        module, name = str(getattr(self.function, "__module__", None) or ""), name_of(self.function)
        return (module if getattr(sys.modules.get(module), name, None) is self.function else ""), name

    def spoken(self) -> tuple[str, str]:
        module, name = self.place()
        return (f"from {module} import {name.partition('.')[0]}; " if module else ""), name

    def source(self, case: Case) -> str:
        line = super().source(case)
        return line if self.place()[0] else f"{line}  # {self.place()[1]} is {described(self.function)}"


class ImportedBounds(Claimed):
    """A function named "module:function as bounds"."""

    lives_here = False

    def __init__(self, name: str) -> None:
        self.module_name, self.path, function, _ = imported(name.removesuffix(" as bounds"), "bounds")
        super().__init__(name, function)

    def place(self) -> tuple[str, str]:
        """As it was named."""
        return self.module_name, self.path


class LunetteBounds(Bounds):
    """`ln.bounds`, judged like anybody else's."""

    name = "lunette as bounds"
    switches: ClassVar[tuple[str, ...]] = ("LUNETTE_ISA",)

    def claim(self, network: Graph, lo: Array, hi: Array) -> Any:
        found = bounds(network, Interval(lo, hi))
        return found.lo, found.hi

    def spoken(self) -> tuple[str, str]:
        return (
            "import lunette as ln; ",
            "(lambda f, lo, hi: (lambda b: (b.lo, b.hi))(ln.bounds(f, ln.Interval(lo, hi))))",
        )


def language_of(function: Callable[..., Any]) -> str:
    """Rule V5: what the network comes as, by the annotation of the first parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        inspect.signature(function).bind(None, None, None)
    except TypeError as error:
        got = f"{name_of(function)}: {error}"
        hint = "Give other parameters a default."
        raise ArgumentError("V5", "a function of a network, lo and hi", got, hint, who="conform") from error
    except ValueError:  # a compiled function tells nothing
        return "onnx"
    said = parameters[0].annotation
    if said is parameters[0].empty:
        return "onnx"
    word = (said if isinstance(said, str) else getattr(said, "__name__", str(said))).rpartition(".")[2].strip("'\" ")
    if word in ("Any", "object"):
        return "onnx"
    if word not in LANGUAGES:
        need = "a network annotated as bytes (ONNX), torch.nn.Module or lunette.Graph"
        raise ArgumentError("V5", need, f"{word}", "Annotate the first parameter, or leave it bare.", who="conform")
    return LANGUAGES[word]
