"""A run on other machines: batches go to a Dask cluster, results come back in any order.

A batch is a pure function of what it is sent, so it does not matter which machine runs it, or how often. Dask starts
the batches of a lost machine again; a batch that was on too many lost machines is run here, where its cases have
processes of their own as well. Whatever comes back twice is taken once.

| rule | says                                             |
|------|--------------------------------------------------|
| K1   | dask.distributed is installed                    |
| K2   | a scheduler answers at the address               |
| K3   | the scheduler has a worker                       |
| K4   | every worker has the same lunette                |
| K5   | the scheduler stays until the run is over        |
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from lunette.errors import ArgumentError, error_context
from lunette.version import VERSION

WAIT = 30
"""Seconds until a scheduler has to answer, and to have its first worker."""


class Keyed(Protocol):
    """A piece of work: equal keys, equal results."""

    @property
    def key(self) -> str:
        """Its name."""


A = TypeVar("A", bound=Keyed)
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Cluster(Generic[A, B]):
    """The scheduler at an address such as tcp://10.0.0.1:8786, as a pool for `run`."""

    address: str
    work: Callable[[A], B]
    """What to do with a batch; a function that workers can import."""
    wait: float = WAIT
    who: str = "conform"
    """Who refuses."""

    def map(self, batches: Sequence[A]) -> Generator[B, None, None]:
        """The result of every batch, once, as they come in."""
        with error_context(self.who):
            yield from self._results(batches)

    def _results(self, batches: Sequence[A]) -> Generator[B, None, None]:
        if not batches:
            return
        dask = _dask()
        client = self._client(dask)
        # Names of its own for every run: another run's results may come from other code.
        prefix = f"lunette-{uuid.uuid4().hex}-"
        waiting = {prefix + b.key: b for b in batches}
        futures = [client.submit(remote, self.work, b, VERSION, key=key) for key, b in waiting.items()]
        try:
            for future in dask.as_completed(futures, loop=client.loop):
                if (batch := waiting.pop(future.key, None)) is None:
                    continue
                try:
                    result = future.result()
                except dask.KilledWorker:
                    result = self.work(batch)
                except dask.CancelledError:
                    hint = "With --resume FILE, what was done is kept."
                    raise ArgumentError("K5", "a scheduler that stays", "one that went away", hint) from None
                yield result
        finally:
            client.cancel(futures, force=True)
            client.close()

    def _client(self, dask: Any) -> Any:
        try:
            client = dask.Client(self.address, timeout=self.wait, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            got = f"{self.address!r} ({' '.join(str(error).split()) or type(error).__name__})"
            hint = "Start one with `dask scheduler`, and pass the address it prints."
            raise ArgumentError("K2", "the address of a running Dask scheduler", got, hint) from None
        try:
            client.wait_for_workers(1, timeout=self.wait)
        except TimeoutError:
            client.close()
            hint = f"Start some with `dask worker {self.address}`."
            raise ArgumentError("K3", "a scheduler with workers", "none of them", hint) from None
        for worker, found in client.run(importlib.metadata.version, "lunette", on_error="return").items():
            if found != VERSION:
                client.close()
                _refuse_version(VERSION, f"{found!r} on {worker}")
        return client


def _dask() -> Any:
    """Imported by name: most of it has no types."""
    if importlib.util.find_spec("distributed") is None:
        hint = "Try pip install 'lunette[cluster]'."
        raise ArgumentError("K1", "dask.distributed", "an environment without it", hint)
    return importlib.import_module("distributed")


def remote(work: Callable[[A], B], batch: A, version: str) -> B:
    """One batch on a worker, which must judge by the same rules as the machine that asks."""
    if version != VERSION:  # a worker that came later
        _refuse_version(version, repr(VERSION))
    return work(batch)


def _refuse_version(version: str, got: str) -> NoReturn:
    hint = "Install the same version there."
    raise ArgumentError("K4", f"lunette {version} on every worker", got, hint)
