"""Values: classes written as frozen dataclasses are, which share their methods instead of having them compiled.

The standard library compiles six methods for every dataclass, which was half of the time that `import lunette` took.
Operators are values. `dataclasses.fields` and `dataclasses.replace` know them, and frozen dataclasses can be made from
them: the operators of other packages are.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T", bound="Value")


@dataclass(init=False, repr=False, eq=False, frozen=True)
class _Frozen:
    """What tells dataclasses made from values that these are frozen."""


class Value(_Frozen):
    """What values share: fields that never change, and by which they are compared, hashed and shown."""

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *fields: Any, **named: Any) -> None:
        names = self.__match_args__
        given = dict(zip(names, fields, strict=False)) | named
        unknown = len(given) < len(fields) + len(named) or not given.keys() <= set(names)
        if unknown or any(n not in given and not hasattr(type(self), n) for n in names):
            got = [*map(repr, fields), *(f"{n}={v!r}" for n, v in named.items())]
            raise TypeError(f"{type(self).__name__}({', '.join(names)}) cannot be made of ({', '.join(got)})")
        self.__dict__.update(given)  # a default is found in the class

    def _fields(self) -> tuple[Any, ...]:
        return tuple([getattr(self, n) for n in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self._fields()))

    def __repr__(self) -> str:
        told = ", ".join(f"{n}={v!r}" for n, v in zip(self.__match_args__, self._fields(), strict=True))
        return f"{type(self).__qualname__}({told})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(frozen_default=True)
def value(kind: type[T]) -> type[T]:
    """Decorate a class whose annotations, but for class variables, are fields; defaults are constants."""
    told = {n: a for n, a in kind.__annotations__.items() if not str(a).startswith("ClassVar")}
    defaults = {n: getattr(kind, n) for n in told if hasattr(kind, n)}
    made: Any = type(kind.__name__, (), {"__annotations__": told, "__doc__": kind.__doc__, **defaults})
    own = dataclass(init=False, repr=False, eq=False)(made).__dataclass_fields__
    kind.__dataclass_fields__ = kind.__dataclass_fields__ | own
    kind.__match_args__ = tuple(kind.__dataclass_fields__)  # type: ignore[misc]
    return kind
