"""Backends run in processes that may die or hang without taking the run down.

A nursery is a fresh Python process that imports the backend and computes nothing; workers are forked from it, which
takes milliseconds and gives each a heap that no other case has touched. A function that only lives in this process is
forked from here instead. A worker answers one case after the other; the one it dies on is known, and replayed.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from lunette.conform.backends import Backend, find
from lunette.conform.case import Case
from lunette.conform.judge import Raised
from lunette.conform.result import Outcome, Verdict
from lunette.errors import ArgumentError, shown

PR_SET_PDEATHSIG = 1
MOST_COPIED = 2**16
"""Cells up to which a backend gets a copy of its own, so that writing to it is noticed."""


class Died(Exception):  # noqa: N818 (it happened to the worker; nobody made a mistake here)
    """The worker's process ended in the middle of a case."""


class Hung(Exception):  # noqa: N818
    """The worker did not answer in time, and was ended."""


# ---- inside of a worker


def answer(backend: Backend, case: Case) -> Outcome:
    """Ask the backend, and judge. Whatever it raises, returns or does to its inputs is an answer."""
    began = time.perf_counter()
    data = case.arrays()
    given = case.arrays() if case.size <= MOST_COPIED else data
    try:
        answered = backend.run(case, given)
    except BaseException as error:  # a backend may raise anything, SystemExit included
        answered = Raised.by(error)
    seconds = time.perf_counter() - began
    outcome = backend.judge(case, data, answered)
    pairs = zip(data.every, given.every, strict=True)
    if not outcome.failed and any(a is not b and a.tobytes() != b.tobytes() for a, b in pairs):
        outcome = replace(outcome, verdict=Verdict.VALUE, kind="input", message="the call changed its inputs")
    return replace(outcome, seconds=seconds)


def serve(backend: Backend, link: Connection) -> None:
    """Answer until the other end is closed."""
    while True:
        try:
            case, repeats = link.recv()
        except (EOFError, OSError):
            return
        for _ in range(repeats - 1):
            with suppress(Exception):
                backend.run(case, case.arrays())
        try:
            reply = answer(backend, case)
        except Exception as error:  # a mistake of the judge is not the backend's
            message = f"lunette could not judge it: {Raised.by(error)}"
            reply = Outcome(case, Verdict.UNSUPPORTED, message=message)
        link.send(reply)


def _become_worker(backend: Backend, fd: int, log: str) -> None:
    """In a forked child: output goes to the log, and nothing of the parent is finished twice."""
    status = 1
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        # Notebooks and test runners put objects of their own in the place of these.
        sys.stdout, sys.stderr = (open(fd, "w", closefd=False) for fd in (1, 2))  # noqa: SIM115
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        faulthandler.disable()  # it would write to the parent's terminal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(AttributeError, OSError):  # Linux: a worker that hangs does not outlive the run
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if "torch" in sys.modules:  # its thread pool did not survive the fork
            sys.modules["torch"].set_num_threads(1)
        serve(backend, Connection(fd))
        status = 0
    finally:
        os._exit(status)


def nursery(name: str, control: int) -> None:
    """The loop of the process that workers are forked from."""
    backend = find(name)
    backend.load()
    link = socket.socket(fileno=control)
    link.sendall(b"\0")
    while True:
        message, fds, _, _ = socket.recv_fds(link, 4096, 1)
        if not message:
            return
        order = pickle.loads(message)
        if order[0] == "fork":
            pid = os.fork()
            if pid == 0:
                link.close()
                _become_worker(backend, fds[0], order[1])
            os.close(fds[0])
            link.sendall(pickle.dumps(pid))
        else:
            link.sendall(pickle.dumps(os.waitpid(order[1], 0)[1]))


# ---- outside


def working(pid: int) -> tuple[float, bool]:
    """How many seconds a process has computed, and whether it is computing or waiting to; where the system tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == "R"


@dataclass
class Worker:
    """The near end of one worker."""

    pid: int
    link: Connection
    log: Path
    nursery: Nursery

    def ask(self, case: Case, deadline: float, repeats: int = 1) -> Outcome:
        """The outcome of a case; raises Died or Hung, and the worker is gone then."""
        try:
            self.link.send((case, repeats))
            if not self._heard(deadline):
                self.end()
                raise Hung(f"no answer within {deadline:g} s")
            reply = self.link.recv()
        except (EOFError, OSError) as error:
            raise Died(self.end(kill=False)) from error
        outcome: Outcome = reply
        return outcome

    def _heard(self, deadline: float) -> bool:
        """Whether an answer came in time. A process that is kept waiting for a processor gets more of it."""
        start, _ = working(self.pid)
        for _ in range(6):
            if self.link.poll(deadline):
                return True
            now, waits = working(self.pid)
            if not waits or now - start >= deadline / 2:
                return False
        return False

    def end(self, *, kill: bool = True) -> str:
        """End the process, unless it is dying by itself, and say how it ended."""
        self.link.close()
        if kill:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        status = self.nursery.reap(self.pid)
        words = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        return f"{how}: {words[-1][:160]}" if words else how


def gone(backend: Backend, got: str) -> ArgumentError:
    """Rule V7."""
    need = f"a process that imports {backend.name} and stays, to fork workers from"
    hint = f"See whether `python -c 'import {backend.module or 'lunette'}'` works; go on with --resume."
    return ArgumentError("V7", need, got, hint, who="conform")


class Nursery:
    """Where the workers of one backend come from."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.lock = threading.Lock()
        self.folder = tempfile.TemporaryDirectory(prefix="lunette-conform-")
        self.count = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        if backend.lives_here:
            return
        near, far = socket.socketpair()
        code = f"from lunette.conform.worker import nursery; nursery({backend.name!r}, {far.fileno()})"
        paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
        environment = {**os.environ, "PYTHONPATH": paths}
        for name, value in backend.environment.items():  # flags of the user's stay
            environment[name] = f"{environment.get(name, '')} {value}" if name.endswith("_FLAGS") else value
        log = open(Path(self.folder.name) / "nursery", "wb")  # noqa: SIM115 (the process keeps it)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[far.fileno()], env=environment, stdout=log, stderr=log
        )
        log.close()
        far.close()
        self.control = near
        if not near.recv(1):
            words = (Path(self.folder.name) / "nursery").read_text(errors="replace").strip().splitlines()
            self.close()
            raise gone(backend, f"it ended at once, saying {shown(words[-1]) if words else 'nothing'}")

    def fork(self) -> Worker:
        """A new worker."""
        with self.lock:  # nobody else may fork while the far end is open here: the copy would hide the worker's end
            near, far = socket.socketpair()
            self.count += 1
            log = Path(self.folder.name) / f"worker-{self.count}"
            if self.control is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Python and JAX warn of threads, which only wait here
                    pid = os.fork()
                if pid == 0:
                    near.close()
                    _become_worker(self.backend, far.detach(), str(log))
            else:
                try:
                    socket.send_fds(self.control, [pickle.dumps(("fork", str(log)))], [far.fileno()])
                    pid = self._told()
                except (OSError, ArgumentError) as error:
                    near.close()
                    far.close()
                    raise gone(self.backend, "it is gone") from error
            far.close()
        return Worker(pid, Connection(near.detach()), log, self)

    def reap(self, pid: int) -> int:
        """The status with which a worker ended."""
        with self.lock:
            if self.control is None:
                return os.waitpid(pid, 0)[1]
            self.control.sendall(pickle.dumps(("wait", pid)))
            return self._told()

    def _told(self) -> int:
        assert self.control is not None
        try:
            message = self.control.recv(4096)
        except OSError:
            message = b""
        if not message:
            raise gone(self.backend, "it is gone")
        number: int = pickle.loads(message)
        return number

    def close(self) -> None:
        """No more workers."""
        if self.control is not None:
            self.control.close()
        if self.process is not None:
            self.process.wait()
        self.folder.cleanup()
