"""One problem for one operator: everything that is needed to ask the same question again.

A case speaks lunette's own language; backends translate. Its repr is one line that rebuilds it, and
`from_json(to_json())` is the identity, NaN and infinities included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from lunette.array import output_shape
from lunette.conform.data import DTYPES, cells
from lunette.errors import LunetteError
from lunette.number import Array
from lunette.op import parameters_of
from lunette.ops import ALL, KINDS, Windowed, avg_pool
from lunette.window import Shape, axes_told

LAYOUTS = ("contiguous", "channels_last", "strided")
MODES = ("forward", "indices", "jvp", "vjp", "bounds")


@dataclass(frozen=True, slots=True)
class Data:
    """The arrays of a case: x (and w, b), their tangents for "jvp", the cotangent for "vjp".

    For "bounds" x is the lower end of a box, and the tangents are one array, the widths of the box.
    """

    primals: tuple[Array, ...]
    tangents: tuple[Array, ...] = ()
    cotangent: Array | None = None

    @property
    def every(self) -> tuple[Array, ...]:
        return (*self.primals, *self.tangents, *(() if self.cotangent is None else (self.cotangent,)))


@dataclass(frozen=True, repr=False, eq=False)
class Case:
    """An operator, its options in lunette's spelling, the shapes of its arrays with batch axes, and what they hold."""

    op: str
    shapes: tuple[Shape, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    data: str = "integers"
    layout: str = "contiguous"
    mode: str = "forward"
    seed: int = 0
    values: tuple[tuple[float, ...], ...] | None = None
    """Cells spelled out, array by array, once they have been reduced; otherwise `data` and `seed` make them."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """For "bounds": the layers of the network around the operator (lunette.conform.question)."""

    @property
    def kind(self) -> type[Windowed]:
        return KINDS[self.op]

    def option(self, name: str) -> Any:
        """An option, or what it is where it is left out; None if the operator has none of that name."""
        parameter = parameters_of(ALL[self.kind]).get(name)
        return self.options.get(name, None if parameter is None else parameter.default)

    @cached_property
    def d(self) -> int:
        """The number of spatial axes."""
        if len(self.shapes) > 1:
            return len(self.shapes[1]) - 2
        return axes_told(self.options, self.shapes[0], 2)

    @property
    def space(self) -> Shape:
        return self.shapes[0][len(self.shapes[0]) - self.d :]

    @property
    def batch(self) -> Shape:
        return self.shapes[0][: len(self.shapes[0]) - self.d - 1]

    @property
    def channels(self) -> int:
        return self.shapes[0][-self.d - 1]

    def per_axis(self, name: str, default: Any = 1) -> tuple[Any, ...]:
        """An option as one entry per spatial axis; the kernel of a convolution is the shape of its weights."""
        value = self.options.get(name)
        if name == "kernel" and len(self.shapes) > 1:
            return self.shapes[1][2:]
        if name == "stride" and value is None and "kernel" in self.options:
            return self.per_axis("kernel")
        value = default if value is None else value
        return tuple(value) if isinstance(value, tuple | list) else (value,) * self.d

    @cached_property
    def output(self) -> Shape | None:
        """The shape of the result, also where windows without cells make lunette refuse; None if there is no size."""
        options = dict(self.options)
        try:
            return output_shape(self.op, *self.shapes, **options)
        except LunetteError as error:
            if not self.is_empty(error):
                return None
        window = {n: v for n, v in options.items() if n in ("kernel", "stride", "padding", "dilation", "ceil_mode")}
        return output_shape(avg_pool, self.shapes[0], **window, spatial=self.d)  # sizes without the rule of cells

    def is_empty(self, refusal: LunetteError) -> bool:
        """Whether the operator refuses because a window holds no cell of the input."""
        return refusal.rule == self.kind.refuses_empty

    @cached_property
    def misses(self) -> bool:
        """Whether some window holds no cell of the input, and lunette refuses for that reason."""
        try:
            output_shape(self.op, *self.shapes, **dict(self.options))
        except LunetteError as error:
            return self.is_empty(error)
        return False

    @property
    def size(self) -> int:
        """How many cells its arrays have."""
        return sum(math.prod(s) for s in self.shapes)

    # ---- data

    def arrays(self) -> Data:
        """The data, rebuilt exactly."""
        dtype = DTYPES[self.dtype]
        shapes = list(self.shapes)
        tangents = {"jvp": self.shapes, "bounds": self.shapes[:1]}.get(self.mode, ())
        shapes += tangents
        shapes += [self.output] if self.mode == "vjp" and self.output is not None else []
        if self.values is None:
            rng = np.random.default_rng([self.seed, crc32(f"{self.data} {self.op}".encode())])
            # Special values are x's and, now and then, the weights'; directions stay finite, so that who carries a
            # derivative is not hidden behind NaN.
            plain = "normal" if self.data == "normal" else "ones" if self.data == "ones" else "integers"
            rest = self.data if len(self.shapes) > 1 and rng.random() < 0.3 else plain
            names = [self.data, *[rest] * (len(self.shapes) - 1)] + [plain] * (len(shapes) - len(self.shapes))
            names[-1] = "widths" if self.mode == "bounds" else names[-1]
            made = [cells(n, rng, s, dtype) for n, s in zip(names, shapes, strict=True)]
        else:
            flat = [np.array(v, np.float64).astype(dtype) for v in self.values]
            made = [v.reshape(s) for v, s in zip(flat, shapes, strict=True)]
        made[0] = self._laid_out(made[0])
        p = len(self.shapes)
        t = p + len(tangents)
        return Data(tuple(made[:p]), tuple(made[p:t]), made[t] if len(made) > t else None)

    def _laid_out(self, x: Array) -> Array:
        if self.layout == "channels_last":
            at = x.ndim - self.d - 1
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, at, -1)), -1, at)
        if self.layout == "strided":
            wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), 7, x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        return x

    def spelled(self) -> Case:
        """The same case with its cells written out."""
        return replace(self, values=tuple(tuple(map(float, a.ravel())) for a in self.arrays().every))

    # ---- text

    def __repr__(self) -> str:
        plain: dict[str, Any] = {"options": {}, "dtype": "float32", "data": "integers", "layout": "contiguous"}
        plain |= {"mode": "forward", "seed": 0, "values": None, "before": (), "after": ()}
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = [repr(self.op), repr(self.shapes)]
        shown += [f"{n}={source_of(v)}" for n, v in given.items() if n in plain and v != plain[n]]
        return f"Case({', '.join(shown)})"

    def to_json(self) -> dict[str, Any]:
        """Plain lists, strings and finite numbers; what JSON has no number for is a string."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Case:
        numeric = ("shapes", "options", "values", "before", "after")  # elsewhere "nan" is the name of a data set
        return cls(**{n: _value(v) if n in numeric else v for n, v in made.items()})

    def _key(self) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        # By text: NaN equals NaN there, and -0.0 is not 0.0.
        return isinstance(other, Case) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def source_of(value: Any) -> str:
    """A value as Python source, with nan and inf as `float("nan")`."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{n!r}: {source_of(v)}" for n, v in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {n: _plain(v) for n, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _value(made: Any) -> Any:
    if isinstance(made, Mapping):
        return {n: _value(v) for n, v in made.items()}
    if isinstance(made, list):
        return tuple(_value(v) for v in made)
    return float(made) if made in ("nan", "inf", "-inf") else made
