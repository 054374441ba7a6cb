"""Anybody's function: NumPy arrays and lunette's options in, arrays out."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import marshal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble
from lunette.conform.backends.lunette import called
from lunette.conform.case import Case, Data
from lunette.errors import ArgumentError, meant, shown
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS

PER_AXIS = frozenset({"stride", "padding", "dilation", "output_padding"})
BOUNDS = "bounds"
"""What a function is meant to be that claims bounds of networks (lunette.conform.backends.bounds)."""
VALUES, DERIVATIVES = ("forward", "indices"), ("jvp", "vjp")
UNSAID = ("ties", "spatial", "arithmetic")
"""Options that change no value: a function need not have them."""


class Function(Backend):
    """A function that should be an operator."""

    lives_here = True
    may_be_anything = True

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        op: str,
        jvp: Callable[..., Any] | None = None,
        vjp: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.op = name, op
        self.functions = {"forward": function, "indices": function, "jvp": jvp, "vjp": vjp}
        for mode in ("forward", "jvp", "vjp"):
            check_signature(self.functions[mode], op, mode)
        modes = ["forward", *(m for m in ("jvp", "vjp") if self.functions[m] is not None)]
        if KINDS[op].has_indices and self._takes(function, "return_indices"):
            modes.append("indices")
        self.space = Space(
            ops=(op,),
            ranks=(1, 2, 3),
            dtypes=("float32", "float64"),
            modes=tuple(modes),
            layouts=("contiguous",),
            named_padding=False,  # cells, in pairs only where both ends differ
        )
        self.default_cases = 600

    @staticmethod
    def _takes(function: Callable[..., Any], name: str) -> bool:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a compiled function tells nothing: it gets everything
            return True
        return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    @property
    def version(self) -> str:
        """The function's name is all there is."""
        return self.name

    @property
    def fingerprint(self) -> str:
        """Of the files that the functions are written in."""
        files = hashlib.sha256()
        for mode in ("forward", "jvp", "vjp"):
            files.update(code_of(self.functions[mode]))
        return files.hexdigest()[:16]

    def supports(self, case: Case) -> str | None:
        """A function without an argument is not asked for what that argument says."""
        if case.mode not in self.space.modes:
            return f"no {case.mode}"
        function = self.functions[case.mode]
        assert function is not None
        for name, value in case.options.items():
            derivative = case.mode in ("jvp", "vjp") and name == "ties"
            if self._takes(function, name) or (name in UNSAID and not derivative):
                continue
            default = parameters_of(ALL[case.kind])[name].default
            if value != default and not (isinstance(value, tuple) and set(value) == {default}):
                return f"the function takes no {name}"
        return None

    def expected(self, mode: str) -> str:
        function = self.functions[mode]
        assert function is not None
        kind = KINDS[self.op]
        arrays = {"jvp": ["primals", "tangents"], "vjp": ["primals", "cotangent"]}.get(mode, list(kind.arrays))
        arrays = [a if a != "b" else "b=None" for a in arrays]
        needed = [n for n, p in parameters_of(ALL[kind]).items() if p.default is p.empty and n not in kind.arrays]
        more = [n for n in parameters_of(ALL[kind]) if n not in (*kind.arrays, *needed, *UNSAID, "return_indices")]
        options = [*needed, *(f"{n}=..." for n in more if self._takes(function, n))]
        gives = {
            "indices": "(y, index), two NumPy arrays",
            "jvp": "the tangent of y, a NumPy array",
            "vjp": f"a tuple of {len(kind.arrays)} NumPy arrays, one for each primal",
        }.get(mode, "y, a NumPy array of x's dtype")
        return f"{name_of(function)}({', '.join([*arrays, *options])}) -> {gives}; x is (batch, channels, *space)"

    def fitted(self, case: Case) -> Case:
        """Without the options that the function has no parameter for."""
        function = self.functions.get(case.mode)
        if function is None or self.supports(case) is None:
            return case
        needed = {n for n, p in parameters_of(ALL[case.kind]).items() if p.default is p.empty}
        kept = {n: v for n, v in case.options.items() if n in (*needed, *UNSAID[1:]) or self._takes(function, n)}
        fewer = replace(case, options=kept)
        return fewer if (fewer.output is None) == (case.output is None) else case

    def empty(self, case: Case) -> str:
        """By lunette's rule."""
        return "refused"

    def options(self, case: Case) -> dict[str, Any]:
        """The options that the function has a parameter for, one entry per axis, padding in pairs only if it must.

        Those that the case leaves at lunette's defaults are given, too: the function may have others, or none.
        """
        function = self.functions[case.mode]
        assert function is not None
        given = {n: v for n, v in self._defaults(function, case).items() if n not in case.options}
        given = {**dict(case.options), **given}
        if case.mode == "indices":
            given["return_indices"] = True
        for name in PER_AXIS & given.keys():
            given[name] = given[name] if isinstance(given[name], str) else case.per_axis(name, given[name])
        pads: Any = given.get("padding")
        if isinstance(pads, tuple) and all(isinstance(p, tuple) and p[0] == p[1] for p in pads):
            given["padding"] = tuple(lo for lo, _ in pads)
        return {n: v for n, v in given.items() if self._takes(function, n)}

    def _defaults(self, function: Callable[..., Any], case: Case) -> dict[str, Any]:
        """What lunette would take for options that the function names and the case does not."""
        try:
            named = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return {}
        usual = {n: p.default for n, p in parameters_of(ALL[case.kind]).items() if p.default is not p.empty}
        return {
            n: v for n, v in usual.items() if n in named and n not in (*UNSAID, *case.kind.arrays, "return_indices")
        }

    def run(self, case: Case, data: Data) -> Any:
        function = self.functions[case.mode]
        assert function is not None
        options = self.options(case)
        if case.mode == "jvp":
            answered = function(data.primals, data.tangents, **options)
        elif case.mode == "vjp":
            answered = function(data.primals, data.cotangent, **options)
        else:
            answered = function(*data.primals, **options)
        return tuple(map(_as_array, answered)) if isinstance(answered, tuple) else _as_array(answered)

    def source(self, case: Case) -> str:
        module, name = self.place(case.mode)
        start = "import numpy as np" + (f"; from {module} import {name.partition('.')[0]}" if module else "")
        line = f"{preamble(case, start)}print({called(name, case, self.options(case))})"
        return line if module else f"{line}  # {name} is {described(self.functions[case.mode])}"

    def place(self, mode: str) -> tuple[str, str]:
        """The module that a function can be imported from, or none, and its name, or one for it."""
        function = self.functions[mode]
        module, name = str(getattr(function, "__module__", None) or "__main__"), name_of(function)
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is function:
            return module, name
        return "", name if name.isidentifier() and hasattr(function, "__name__") else "function"


def described(function: Any) -> str:
    """Where a function is that cannot be imported."""
    code = getattr(function, "__code__", None)
    if code is None:
        return f"the {type(function).__name__} that was measured"
    return f"{name_of(function)}, {Path(code.co_filename).name}, line {code.co_firstlineno}"


def code_of(function: Callable[..., Any] | None) -> bytes:
    """The file of a function: its source, or the library that it was compiled to; its code if it has no file."""
    inner: Any = inspect.unwrap(function) if function is not None else None
    while isinstance(inner, partial):
        inner = inner.func
    if inner is not None and not (inspect.isroutine(inner) or inspect.isclass(inner)):
        inner = type(inner)  # an object that can be called
    module = sys.modules.get(getattr(inner, "__module__", None) or "")
    code = getattr(inner, "__code__", None)
    for path in (getattr(code, "co_filename", None), getattr(module, "__file__", None)):
        if path is not None and Path(path).is_file():
            return Path(path).read_bytes()
    return b"" if code is None else marshal.dumps(code)


def _as_array(value: Any) -> Any:
    """Tensors of any library become arrays; anything else is left for the judge to name."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__array__"):
        return value
    return np.asarray(value)


class Imported(Function):
    """A function named "module:function as operator"; `<function>_jvp` and `<function>_vjp` beside it belong to it.

    Derivatives elsewhere are named behind it: "my:pool as max_pool vjp=back", or "vjp=other:back".
    """

    lives_here = False

    def __init__(self, name: str) -> None:
        place, _, rest = name.partition(" as ")
        op, *named = rest.split(" ")
        module, path, function, beside = imported(place, op)
        self.places = {m: (module, f"{path}_{m}") for m in DERIVATIVES} | dict.fromkeys(VALUES, (module, path))
        derivatives: dict[str, Any] = {m: getattr(beside, f"{path.rpartition('.')[2]}_{m}", None) for m in DERIVATIVES}
        for mode, _, where in (n.partition("=") for n in named):
            self.places[mode] = _place(where, module)
            derivatives[mode] = _imported(*self.places[mode])
        super().__init__(name, function, op, derivatives["jvp"], derivatives["vjp"])

    def place(self, mode: str) -> tuple[str, str]:
        """As it was named."""
        return self.places[mode]


def _place(where: str, module: str) -> tuple[str, str]:
    """Module and name of a function that is named beside another one."""
    other, _, name = where.rpartition(":")
    return other or module, name


def _imported(module: str, name: str) -> Callable[..., Any]:
    """Rule V5."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        hint = "Run it where `import` finds the module."
        raise ArgumentError("V5", f"a module {module}", shown(str(error)), hint, who="conform") from error
    if not callable(found):
        raise ArgumentError(
            "V5", f"a function {name} in {module}", shown(found), "Write module:function.", who="conform"
        )
    function: Callable[..., Any] = found
    return function


def imported(place: str, op: str) -> tuple[str, str, Callable[..., Any], Any]:
    """Of "module:function": the module, the function's path in it, itself, and what it stands in. Rule V5."""
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)  # which may have operators of its own
    except ImportError as error:
        check_operator(op)
        hint = "Run it where `import` finds the module."
        hint = f"A module is named without .py: {module[:-3]}:{path}." if module.endswith(".py") else hint
        raise ArgumentError("V5", f"a module {module}", shown(str(error)), hint, who="conform") from error
    check_operator(op)
    parts = path.split(".")
    for part in parts[:-1]:
        found = getattr(found, part, None)
    function = getattr(found, parts[-1], None)
    if not callable(function):
        need, known = f"a function {path} in {module}", [n for n in dir(found) if callable(getattr(found, n, None))]
        got = shown(function) if hasattr(found, parts[-1]) else "nothing of that name"
        raise ArgumentError("V5", need, got, meant(parts[-1], known, "Write module:function."), who="conform")
    return module, path, function, found


numbers = count(1)


def check_operator(op: str | None) -> str:
    """Rule V5."""
    if op not in (*KINDS, BOUNDS):
        need = f"op among {', '.join((*KINDS, BOUNDS))}"
        hint = meant(op, (*KINDS, BOUNDS), "Say what it should be.")
        raise ArgumentError("V5", need, f"op={shown(op)}", hint, who="conform")
    return str(op)


def check_signature(function: Callable[..., Any] | None, op: str, mode: str) -> None:
    """Rule V5: it takes the arrays and what the operator cannot do without, and asks for nothing else."""
    try:
        signature = inspect.signature(function) if function is not None else None
    except (TypeError, ValueError):  # a compiled function tells nothing
        signature = None
    if signature is None:
        return
    arrays = [n for n in KINDS[op].arrays if n != "b"] if mode == "forward" else ["primals", "direction"]
    options = {n: p for n, p in parameters_of(ALL[KINDS[op]]).items() if n not in KINDS[op].arrays}
    named = signature.parameters
    every = any(p.kind is p.VAR_KEYWORD for p in named.values())
    must = [n for n, p in options.items() if p.default is p.empty]
    for name in must:
        if name not in named and not every:
            got = f"{name_of(function)}{signature}"
            hint = meant(name, named, "Options are given by lunette's names.").replace("Did you mean", "Is it called")
            raise ArgumentError("V5", f"a function with a parameter {name} for {op}", got, hint, who="conform")
    given = {n: None for n in options if n in named}
    failed = []
    for count_of in {len(arrays), len(arrays) + ("b" in KINDS[op].arrays and mode == "forward")}:
        try:
            signature.bind(*[None] * count_of, **given)
        except TypeError as error:
            failed.append(str(error))
        else:
            return
    need = f"a function that can be called with {', '.join(arrays)} and lunette's options by name"
    got = f"{name_of(function)}{signature}: {failed[0]}"
    hint = f"Options of {op} are {', '.join(options)}; give other parameters a default."
    raise ArgumentError("V5", need, got, hint, who="conform")


def name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
