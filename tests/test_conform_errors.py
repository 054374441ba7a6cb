"""What conform, its clusters and rounded arithmetic refuse: one test per rule of their tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.conform import cluster as clusters
from lunette.conform.allowance import how_far
from lunette.conform.backends.lunette import Lunette
from lunette.conform.cluster import Cluster, remote
from lunette.conform.known import read
from lunette.conform.module import as_module
from lunette.conform.result import Batch
from lunette.conform.run import run
from lunette.conform.worker import Nursery
from lunette.version import VERSION

BATCH = Batch("none", "max_pool", 0, 0, 1)


def refused(rule: str, text: str, *arguments: Any, **options: Any) -> None:
    """The package is callable: what it refuses."""
    with pytest.raises(ln.ArgumentError, match=text) as caught:
        ln.conform(*arguments, **options)
    assert caught.value.rule == rule and caught.value.who == "conform"


def test_v1_the_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ln.ArgumentError, match=r"pip install 'lunette\[torch\]'") as caught:
        run("torch")
    assert caught.value.rule == "V1"


def test_v2_a_backend_exists() -> None:
    refused("V2", "Did you mean torch", "troch")


def test_v3_known_differences_say_why(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[[known]]\nname = "x"')
    with pytest.raises(ln.ArgumentError, match="ops unknown or missing") as caught:
        read("torch", path)
    assert caught.value.rule == "V3"


def test_v4_an_operator_is_the_backends() -> None:
    refused("V4", "Did you mean max_pool", "lunette", ops=["max_pull"])


def test_v5_a_function_can_be_found() -> None:
    refused(
        "V5", "a function squirt in math; got nothing of that name. Did you mean sqrt\\?", "math:squirt", "max_pool"
    )


def test_v6_a_mode_is_the_backends() -> None:
    refused("V6", "forward", "lunette", modes=["backwards"])


class Unborn(Lunette):
    """A backend that no other process finds."""

    name = "nobody"


def test_v7_the_process_of_workers_starts_and_stays() -> None:
    text = r"\[V7\] needs a process that imports nobody and stays.*; got it ended at once, saying .*V2"
    with pytest.raises(ln.ArgumentError, match=text) as caught:
        Nursery(Unborn())
    assert caught.value.who == "conform" and "--resume" in caught.value.hint
    nursery = Nursery(Lunette())
    assert nursery.process is not None
    nursery.process.kill()
    nursery.process.wait()
    with pytest.raises(ln.ArgumentError, match=r"\[V7\].*got it is gone"):
        nursery.fork()
    nursery.close()


# ---- a cluster that is not there


def test_v8_a_journal_is_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("garbage")
    refused("V8", "a: 'garbage'", ln.global_max_pool, cases=5, journal=tmp_path / "a")


def test_v9_cases_are_counted() -> None:
    refused("V9", "cases, a whole number from 1; got 0", ln.global_max_pool, cases=0)


class Client:
    """As much of Dask's client as refusals see."""

    loop = None

    def __init__(self, late: bool = False, version: str = VERSION) -> None:
        self.late, self.version = late, version

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if self.late:
            raise TimeoutError

    def run(self, *_: Any, **__: Any) -> dict[str, str]:
        return {"tcp://1.2.3.4:5": self.version}

    def submit(self, *_: Any, key: str, **__: Any) -> Any:
        return SimpleNamespace(key=key, result=self.cancelled)

    @staticmethod
    def cancelled() -> None:
        raise KeyError

    def cancel(self, *_: Any, **__: Any) -> None:
        pass

    def close(self) -> None:
        pass


def asked(monkeypatch: pytest.MonkeyPatch, client: Any) -> str:
    """What a run on such a cluster is told."""

    def connect(*_: Any, **__: Any) -> Any:
        if client is None:
            raise OSError("nobody answers")
        return client

    class Killed(Exception):  # noqa: N818 (Dask's name)
        pass

    dask = SimpleNamespace(
        Client=connect, as_completed=lambda futures, loop: futures, KilledWorker=Killed, CancelledError=KeyError
    )
    monkeypatch.setattr(clusters, "_dask", lambda: dask)
    with pytest.raises(ln.ArgumentError) as caught:
        list(Cluster("tcp://1.2.3.4:8786", lambda batch: None, wait=0).map([BATCH]))  # type: ignore[arg-type]
    return str(caught.value)


def test_k1_distributed_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ln.ArgumentError, match=r"\[K1\].*lunette\[cluster\]"):
        list(Cluster("tcp://1.2.3.4:8786", lambda batch: None).map([BATCH]))  # type: ignore[arg-type]


def test_k2_a_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[K2]" in (text := asked(monkeypatch, None)) and "nobody answers" in text


def test_k3_the_scheduler_has_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[K3]" in (text := asked(monkeypatch, Client(late=True))) and "dask worker tcp://1.2.3.4:8786" in text


def test_k4_every_worker_has_the_same_lunette(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[K4]" in (text := asked(monkeypatch, Client(version="9.9"))) and "'9.9' on tcp://1.2.3.4:5" in text
    with pytest.raises(ln.ArgumentError, match=r"\[K4\] needs lunette 9.9"):
        remote(lambda batch: None, BATCH, "9.9")


def test_k5_the_scheduler_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[K5]" in (text := asked(monkeypatch, Client())) and "--resume FILE" in text


# ---- rounded arithmetic


def test_u1_a_value_is_decided() -> None:
    x = np.array([[1.0, 0, 0, 1, 0, 0, 7]])
    options: dict[str, Any] = {"kernel": (4,), "stride": 1, "arithmetic": "rounded"}
    g = np.array([[1.0, 1, 2.0**-53, -5]])  # of the cell in the middle: 1/sqrt(2) + 1 + 2^-53 - 5/sqrt(50), a tie
    with pytest.raises(ln.UndecidedError, match=r"\[U1\] needs a value that 4096 bits") as caught:
        ln.lp_pool_vjp((x,), g, **options)
    assert caught.value.who == "lp_pool"
    g = np.array([[1.0, 0, 0, -5]])  # nearest to what is not told from zero is zero
    assert ln.lp_pool_vjp((x,), g, **options)[0][0, 3] == 0


def test_v11_a_network_is_one_that_torch_can_say() -> None:
    pytest.importorskip("torch")
    x = np.zeros((1, 1, 4), np.float32)
    with pytest.raises(ln.ArgumentError) as caught:
        as_module(ln.trace(ln.exp, x))
    assert (
        str(caught.value)
        == "as_module [V11] needs operators among relu, add, matmul, reshape; got exp. It is left out."
    )
    with pytest.raises(ln.ArgumentError, match=r"V11\] needs avg_pool as torch has it; got"):
        as_module(ln.trace(lambda x: ln.avg_pool(x, (2,), dilation=2), x))


def test_v10_exponentials_have_a_rule_of_how_far_they_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(how_far, "registered", {})
    with pytest.raises(ln.ArgumentError) as caught:
        run("lunette", ops="lp_pool", cases=5)
    assert str(caught.value) == (
        "conform [V10] needs a rule of how far lp_pool may be off, since it has roots or exponentials; got none. "
        "Register one: lunette.conform.allowance.how_far.register(LpPool)."
    )
