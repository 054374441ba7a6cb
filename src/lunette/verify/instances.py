"""Many instances: a list of networks, properties and time limits, each verified in a process of its own.

An instance depends on its own fields alone, so it may run anywhere and again. One that dies, hangs or names a file that
is not there costs itself only: the others are run, and its row says what was wrong.

| rule | says                                                                                                       |
|------|------------------------------------------------------------------------------------------------------------|
| VI1  | a list is a CSV file with a network, a property and seconds in every line, as the competitions have it      |
| VI2  | files are found where the list says, from `root` or from the list's folder, .gz added; or by their names    |
| VI3  | seconds are > 0                                                                                            |
| VI4  | a journal is one that a run wrote, or no file yet                                                          |
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from lunette.errors import ArgumentError, LunetteError, shown
from lunette.onnx.command import read_network

GRACE: Final = 20.0
"""Seconds beyond its time limit after which a process is ended: it reads files first, and writes them."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A network, a property, and how to go about it."""

    net: str
    spec: str
    seconds: float
    semantics: str = "real"
    seed: int = 0
    method: str = "auto"
    named: tuple[str, str] = ("", "")
    """The network and the property as the list calls them."""
    missing: str = ""
    """Why there is nothing to ask: a file that was not found."""
    key: str = ""
    """The same for the same files, as they were when the list was read, and options, and for nothing else."""

    def with_key(self) -> Instance:
        """With the key of its files."""
        digest = hashlib.sha256()
        for path in (self.net, self.spec) if not self.missing else ():
            digest.update(_digest(path, os.stat(path).st_mtime_ns))
        told = [self.seconds, self.semantics, self.seed, self.method, self.named, self.missing]
        digest.update(json.dumps(told).encode())
        return replace(self, key=digest.hexdigest()[:24])


@lru_cache(maxsize=4096)
def _digest(path: str, changed: int) -> bytes:
    del changed
    return hashlib.sha256(Path(path).read_bytes()).digest()


def read_list(path: Path, root: Path | None, **options: Any) -> list[Instance]:
    """Rules VI1 and VI3; a file that rule VI2 does not find is told in the row of its instance."""
    found = []
    try:
        rows = [r for r in csv.reader(path.read_text(encoding="utf-8").splitlines()) if any(c.strip() for c in r)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        hint = "A line for each instance, as in net.onnx,prop.vnnlib,300; a header line may come first."
        raise refusal("VI1", "a list of instances, a CSV file", f"{path} ({error})", hint) from None
    for at, row in enumerate(rows):
        cells = [c.strip() for c in row]
        if len(cells) < 2 or (at == 0 and cells[0].lower() in ("net", "onnx", "network")):
            if at == 0 and len(cells) >= 2:
                continue
            hint = f"Line {at + 1} of {path.name}, blank ones not counted; as in net.onnx,prop.vnnlib,300."
            raise refusal("VI1", "a network, a property and seconds in every line", shown(row), hint)
        try:
            seconds = float(cells[2]) if len(cells) > 2 and cells[2] else 60.0
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            hint = f"Line {at + 1} of {path.name}, blank ones not counted; nothing there means 60 s."
            raise refusal("VI3", "a number of seconds > 0 behind the property", shown(cells[2]), hint)
        named = cells[0], cells[1]
        try:
            net, spec = (str(_find(c, path, root)) for c in named)
            found.append(Instance(net, spec, seconds, named=named, **options).with_key())
        except (ArgumentError, OSError) as error:
            found.append(Instance(*named, seconds, named=named, missing=str(error), **options).with_key())
    return found


def _find(name: str, listed: Path, root: Path | None) -> Path:
    """Rule VI2."""
    base = listed.parent if root is None else root
    for candidate in (base / name, base / f"{name}.gz"):
        if candidate.is_file():
            return candidate.resolve()
    last = Path(name).name
    found = sorted(p for p in _files(str(base.resolve())) if p.name in (last, f"{last}.gz"))
    if len(found) == 1:
        return found[0]
    if not found:
        got = f"{name}, of which there is no file in or below {base}"
        raise refusal("VI2", "files that are there", got, "Pass --root DIR with the folder that has them.")
    got = f"{name}, of whose name there are {len(found)} files: {shown([str(p) for p in found[:2]])}"
    raise refusal(
        "VI2", "names that mean one file", got, "Pass --root DIR with the folder from which the paths lead to it."
    )


@lru_cache(maxsize=8)
def _files(base: str) -> tuple[Path, ...]:
    return tuple(p for p in Path(base).rglob("*") if p.is_file())


def refusal(rule: str, need: str, got: str, hint: str) -> ArgumentError:
    """Signed."""
    return ArgumentError(rule, need, got, hint, who="verify")


# ---- one instance


def run_instance(instance: Instance, folder: str | None = None) -> dict[str, Any]:
    """The result of one instance, in a process of its own; bytes are in base64.

    What was not there, or had no place, is marked "again": a run that goes on asks once more.
    """
    if instance.missing:
        return _failed(instance, "error", instance.missing, 0.0)
    try:
        return _run(instance, folder)
    except OSError as error:  # no process, no place for files: another one may have more luck
        return {**_failed(instance, "error", f"could not be run: {error}", 0.0), "again": True}


def _run(instance: Instance, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lunette-verify-", dir=folder) as place:
        task = {**asdict(instance), "place": place}
        paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "lunette.verify.instances"],
                input=json.dumps(task).encode(),
                capture_output=True,
                env={**os.environ, "PYTHONPATH": paths},
                timeout=instance.seconds + GRACE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _failed(instance, "unknown", f"no answer {GRACE:g} s after its time limit: ended", instance.seconds)
        answer = Path(place) / "answer.json"
        if done.returncode or not answer.exists():
            words = done.stderr.decode(errors="replace").strip().splitlines()
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
            return _failed(instance, "error", f"{how}: {words[-1][:300] if words else 'it said nothing'}", 0.0)
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        for name in ("certificate", "counterexample.npy", "counterexample.npz", "counterexample.txt"):
            if (file := Path(place) / name).exists():
                result.setdefault("files", {})[name] = base64.b64encode(file.read_bytes()).decode()
        return {**result, "key": instance.key, "net": instance.named[0], "spec": instance.named[1]}


def _failed(instance: Instance, status: str, reason: str, seconds: float) -> dict[str, Any]:
    own = {"key": instance.key, "net": instance.named[0], "spec": instance.named[1]}
    return {**own, "status": status, "reason": reason, "seconds": seconds}


def main() -> None:
    """In a process of its own: a task on stdin, an answer in a file."""
    import ctypes
    import signal
    from contextlib import suppress

    from lunette.verify.property import Property
    from lunette.verify.verify import verify

    with suppress(AttributeError, OSError):  # Linux: it does not outlive whoever asked
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    task = json.load(sys.stdin)
    place = Path(task["place"])
    try:
        graph, note = read_network(Path(task["net"]))
        property = Property.load(task["spec"])
        options = {name: task[name] for name in ("semantics", "seed", "method")}
        verdict = verify(graph, None, property, timeout=task["seconds"], **options)
    except (LunetteError, OSError) as error:
        answer: dict[str, Any] = {"status": "error", "reason": str(error), "seconds": 0.0}
        if not all(Path(task[name]).exists() for name in ("net", "spec")):
            answer["again"] = True
    else:
        answer = verdict.to_json()
        if note:
            answer["notes"].append(note)
        if verdict.certificate is not None:
            verdict.certificate.save(place / "certificate")
        if verdict.counterexample is not None:
            verdict.save_counterexample(place / "counterexample")
    (place / "answer.json").write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")


# ---- all of them


def name_of(net: str, spec: str) -> str:
    """What files about a network and a property are called."""
    return "-".join(Path(n).name.removesuffix(".gz").rsplit(".", 1)[0] for n in (net, spec))


def keep_files(result: dict[str, Any], folder: Path | None, shared: Container[str] = ()) -> dict[str, Any]:
    """A result with the paths of its files, which are written into a folder, instead of their bytes.

    Names that several instances would share have the beginning of the instance's key behind them.
    """
    files = result.pop("files", {})
    result["file"] = ""
    if folder is None or not files:
        return result
    folder.mkdir(parents=True, exist_ok=True)
    stem = name_of(result["net"], result["spec"])
    if stem in shared:
        stem = f"{stem}-{result['key'][:8]}"
    for name, data in files.items():
        target = folder / (stem + (Path(name).suffix or ".cert"))
        part = target.with_name(f"{target.name}.part")
        part.write_bytes(base64.b64decode(data))
        part.replace(target)  # whole, or not there
        if name != "counterexample.txt":
            result["file"] = str(target)
    return result


def results_csv(results: Sequence[dict[str, Any]]) -> str:
    """One line per instance: net, spec, status, seconds, certificate or counterexample."""
    from io import StringIO

    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for r in results:
        writer.writerow([r["net"], r["spec"], r["status"], f"{r['seconds']:.3f}", r.get("file", "")])
    return text.getvalue()


def junit(results: Sequence[dict[str, Any]]) -> str:
    """The results as tests: disproved is a failure, unknown is skipped, and what could not be asked an error."""
    from xml.sax.saxutils import escape, quoteattr

    words = {"disproved": "failure", "unknown": "skipped", "error": "error"}
    counts = {w: sum(words.get(r["status"]) == w for r in results) for w in words.values()}
    total = sum(r["seconds"] for r in results)
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    lines.append(
        f'<testsuite name="lunette verify" tests="{len(results)}" failures="{counts["failure"]}" '
        f'errors="{counts["error"]}" skipped="{counts["skipped"]}" time="{total:.3f}">'
    )
    for r in results:
        head = f'<testcase classname={quoteattr(r["net"])} name={quoteattr(r["spec"])} time="{r["seconds"]:.3f}"'
        word = words.get(r["status"])
        body = f"><{word} message={quoteattr(_printable(r['reason']))}>{escape(r.get('file', ''))}</{word}></testcase>"
        lines.append(head + (body if word else "/>"))
    return "\n".join([*lines, "</testsuite>", ""])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


if __name__ == "__main__":
    main()
