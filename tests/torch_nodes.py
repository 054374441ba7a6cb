"""Both ways to leave a node in torch's graph of gradients: the compiled ones, and Python's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lunette import ArgumentError
from lunette.torch import nodes
from lunette.torch.build import build

either_way = pytest.mark.parametrize("way", ["compiled", "python"], indirect=True)
in_python = pytest.mark.parametrize("way", ["python"], indirect=True)


@pytest.fixture(autouse=True, params=["compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compiled nodes unless a test asks for others, built for this torch where they are not."""
    if request.param == "python":
        monkeypatch.setenv("LUNETTE_TORCH", "python")
    nodes.connected.cache_clear()
    if request.param == "compiled" and not nodes.connected():
        try:
            build()
        except ArgumentError as error:
            pytest.skip(str(error))
        nodes.connected.cache_clear()
    assert nodes.connected() == (request.param == "compiled")
    yield request.param
    nodes.connected.cache_clear()
