"""Values behave as frozen dataclasses do, for whoever looks at them and whoever makes dataclasses from them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import ClassVar

import pytest

from lunette.ops import ALL, GLUE
from lunette.value import Value, value


@value
class Named(Value):
    """A field, a default, and what is no field."""

    name: str
    size: int = 1
    kind: ClassVar[str] = "kind"


@value
class Longer(Named):
    """A field more."""

    much: float = 0.5


class Same(Longer):
    """No field more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outside(Named):
    """As in a package of its own."""

    color: str = "red"


@dataclasses.dataclass(frozen=True)
class Twin:
    """What the standard library makes of Longer."""

    name: str
    size: int = 1
    much: float = 0.5
    kind: ClassVar[str] = "kind"


@pytest.mark.parametrize("kind", [Longer, Same])
def test_a_value_is_what_a_frozen_dataclass_is(kind: type[Longer]) -> None:
    a, twin = kind("a", much=2.0), Twin("a", much=2.0)
    told = [(f.name, f.default, f.type) for f in dataclasses.fields(a)]
    assert told == [(f.name, f.default, f.type) for f in dataclasses.fields(twin)]
    assert dataclasses.astuple(a) == dataclasses.astuple(twin) and kind.__match_args__ == Twin.__match_args__
    assert repr(a) == repr(twin).replace("Twin", kind.__name__)
    assert a == kind("a", 1, 2.0) and hash(a) == hash(kind(name="a", much=2.0)) and a != kind("a")
    assert dataclasses.replace(a, size=3) == kind("a", 3, 2.0)
    assert pickle.loads(pickle.dumps(a)) == a == copy.deepcopy(a)
    for name in ("size", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(a, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del a.size


def test_values_of_two_classes_differ() -> None:
    assert Longer("a") != Same("a") and Named("a") != Twin("a")


@pytest.mark.parametrize(
    ("fields", "named"), [((), {}), (("a", 1, 2), {}), (("a",), {"name": "b"}), (("a",), {"x": 1})]
)
def test_what_no_value_is_made_of(fields: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"Named\(name, size\) cannot be made of \("):
        Named(*fields, **named)  # type: ignore[arg-type]


def test_a_frozen_dataclass_is_made_from_a_value() -> None:
    a = Outside("a", color="blue")
    assert [f.name for f in dataclasses.fields(a)] == ["name", "size", "color"]
    assert a == Outside("a", 1, "blue") and dataclasses.replace(a, size=2).color == "blue"
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.size = 2  # type: ignore[misc]


def test_every_operator_is_a_value() -> None:
    assert all(issubclass(kind, Value) for kind in (*ALL, *GLUE))
