"""`lunette bench --bridges`: its goals follow from its figures, and what it measures is right. Nothing is timed."""

from __future__ import annotations

import copy
import time
from itertools import pairwise

import pytest
import torch

import lunette.torch as lt
from lunette.bench import bridge_torch
from lunette.bench.bridges import Row, turns
from torch_cases import same


@pytest.mark.parametrize(
    ("row", "goal", "met"),
    [
        (Row("", 10.0, 2.0, times=5.0), "≥ 5x", True),
        (Row("", 9.0, 2.0, times=5.0), "≥ 5x", False),
        (Row("", 5e-6, 9e-6, overhead=5e-6), "≤ 5 us over theirs", True),
        (Row("", 5e-6, 11e-6, overhead=5e-6), "≤ 5 us over theirs", False),
        (Row("", 1.0, 2.0), "", None),
    ],
)
def test_goals(row: Row, goal: str, met: bool | None) -> None:
    assert (row.goal, row.met) == (goal, met) and row.ratio == row.theirs / row.ours


def test_turns_are_taken() -> None:
    order: list[str] = []
    turns(lambda: order.append("a"), lambda: (order.append("b"), time.sleep(0)), 2, budget=0.0, least=3)  # type: ignore[func-returns-value]
    assert {"a", "b"} == set(order)
    first = [v for v, w in pairwise(order) if v != w]
    assert len(first) >= 2 * 3 - 1


def test_every_pool_has_a_row_in_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, without a goal; both sides are called once, in that order of cells."""
    monkeypatch.setattr(bridge_torch, "turns", lambda theirs, ours, threads: (float(same(theirs()[0], ours()[0])), 1.0))
    rows = list(bridge_torch.pools(1))
    plain, last = rows[::2], rows[1::2]
    assert [f"{r.what}, channels-last" for r in plain] == [r.what for r in last] and len(last) == 3
    assert not any(r.times or r.overhead for r in last) and rows[0].times == 5.0


@pytest.mark.parametrize("make", [bridge_torch.ResNet, bridge_torch.UNet])
def test_networks_compute_the_same_with_ours(make: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(1, 3 if make is bridge_torch.ResNet else 1, 32, 32)
    ours = copy.deepcopy(model)
    replaced = lt.replace(ours)
    assert len(replaced) == len(bridge_torch._pools(model)) == len(bridge_torch._inputs(model, x)) == 2
    with torch.no_grad():
        assert same(ours(x), model(x)) or torch.allclose(ours(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [bridge_torch.ResNet, bridge_torch.UNet])
def test_nodes_of_pools_are_watched_inside_of_a_step(
    make: type[torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each side's own nodes, as many as there are pools, whether they are compiled or Python's."""
    model, x = make(), torch.randn(1, 3 if make is bridge_torch.ResNet else 1, 16, 16)
    ours = copy.deepcopy(model)
    lt.replace(ours)
    names: list[str] = []
    watched = bridge_torch.POOL_NODES

    class Watched:
        @staticmethod
        def fullmatch(name: str) -> object:
            found = watched.fullmatch(name)
            names.extend([name] * (found is not None))
            return found

    monkeypatch.setattr(bridge_torch, "POOL_NODES", Watched)
    seconds = bridge_torch._inside(model, ours, x, steps=2)
    assert len(names) == 2 * 2 * 2 and all(0 < s < 10 for s in seconds)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler warns of parts of its own
def test_a_compiled_network_is_beside_torch_and_its_compiler() -> None:
    beside = list(bridge_torch.compiled(1, "lenet/b1"))
    assert [r.times for r in beside] == [1.3, 1.0]
    assert all(r.theirs > 0 and r.ours > 0 for r in beside)
