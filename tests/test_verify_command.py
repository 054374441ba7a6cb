"""`lunette verify`: one property, many instances, images; journals that survive a kill."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app
from lunette.errors import ArgumentError
from lunette.verify.images import accuracy, read_images
from lunette.verify.instances import read_list
from lunette.verify.journal import Journal

HEAD = "".join(f"(declare-const X_{k} Real)" for k in range(4)) + "(declare-const Y_0 Real)(declare-const Y_1 Real)"
BOX = "".join(f"(assert (>= X_{k} 0.25))(assert (<= X_{k} 0.75))" for k in range(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, properties that hold, that do not, and that are none, and a list of them."""
    place = tmp_path_factory.mktemp("instances")
    g = ln.Graph()
    x = g.input((1, 1, 2, 2), name="x")
    h = ln.reshape(ln.max_pool(ln.relu(ln.conv(x, np.ones((2, 1, 1, 1), np.float32))), (2, 1)), (1, 4))
    w = np.array([[1, 1, 0, 0], [0, 0, -1, 1]], np.float32)
    g.output(ln.linear(h, w))
    g.save(place / "net.json")
    (place / "nets").mkdir()
    ln.to_onnx(g, place / "nets" / "net.onnx")
    (place / "good.vnnlib").write_text(f"{HEAD}{BOX}(assert (<= Y_0 0.25))")
    (place / "bad.vnnlib").write_text(f"{HEAD}{BOX}(assert (<= Y_0 1.0))")
    (place / "none.vnnlib").write_text("(assert")
    (place / "list.csv").write_text(
        "a/net.onnx,other/good.vnnlib,20\nnet.onnx,bad.vnnlib,20\nnet.onnx,none.vnnlib,20\n"
    )
    return place


def lunette(*words: Any) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, words)])


def test_one_property(folder: Path, tmp_path: Path) -> None:
    files = ["--certificate", tmp_path / "c", "--json", tmp_path / "v.json", "--html", tmp_path / "v.html"]
    done = lunette(folder / "net.json", folder / "good.vnnlib", *files)
    assert done.exit_code == 0, done.output
    assert done.output.strip().startswith("proved")
    assert ln.Certificate.load(tmp_path / "c").statement.semantics == "real"
    assert json.loads((tmp_path / "v.json").read_text())["status"] == "proved"
    assert "<svg" in (tmp_path / "v.html").read_text()
    done = lunette(folder / "nets" / "net.onnx", folder / "bad.vnnlib", "--counterexample", tmp_path / "x.npy", *files)
    assert done.exit_code == 1, done.output
    x = np.load(tmp_path / "x.npy")
    assert x.shape == (1, 1, 2, 2)
    assert ((x >= 0.25) & (x <= 0.75)).all()
    lines = (tmp_path / "x.txt").read_text().split("\n")
    assert lines[0] == "sat"
    assert lines[1].startswith("((X_0 0.")
    assert lines[6].strip().startswith("(Y_1 ")
    page = (tmp_path / "v.html").read_text()
    ElementTree.fromstring(page.partition("<!DOCTYPE html>")[2])
    assert "counterexample" in page


def test_a_counterexample_has_no_certificate(folder: Path, tmp_path: Path) -> None:
    where = ["--certificate", tmp_path / "c", "--counterexample", tmp_path / "x"]
    done = lunette(folder / "net.json", folder / "bad.vnnlib", *where)
    assert done.exit_code == 1 and "no certificate: only a proof has one, and the property is disproved" in done.output


def test_a_file_in_the_place_of_another(folder: Path, tmp_path: Path) -> None:
    def said(*words: Any) -> str:
        done = CliRunner().invoke(app, [str(w) for w in words], env={"COLUMNS": "1000"})
        assert done.exit_code == 2, done.output
        return " ".join(done.output.replace("│", " ").split())

    spec, model = folder / "good.vnnlib", folder / "nets" / "net.onnx"
    order = "On the command line the network comes first, then the property or the certificate."
    weights = tmp_path / "net.pt"
    weights.write_bytes(b"PK\x03\x04\xff")
    swapped = said("verify", spec, model)
    assert "needs a graph that graph.save wrote; got good.vnnlib, a property in VNNLIB. ln.Prop" in swapped
    assert order in swapped
    assert "got net.pt, a file of torch. Load it in torch, then ln.from_torch(" in said("verify", weights, spec)
    twice = said("verify", model, model)
    assert (
        f"needs a property, .vnnlib or .vnnlib.gz; got net.onnx, a model of ONNX. ln.from_onnx reads it. {order}"
        in twice
    )
    centre = said("bounds", model, "--center", model, "--radius", 0.1)
    assert "an array in a .npy file (np.save) is expected; got net.onnx, a model of ONNX" in centre
    certificate = tmp_path / "c.cert"
    head = '"format": "lunette certificate", "version": 1'
    for content, got in ((f"{{{head}}}", "a file without 'cases'"), ('{"format": "other"}', "'another format'")):
        certificate.write_text(content)
        with pytest.raises(ln.CertificateError, match=f"got {got}\\. It was not written by"):
            ln.Certificate.load(certificate)


def test_folders_of_results_are_made(folder: Path, tmp_path: Path) -> None:
    """A proof is not lost for want of a place to put it; and the checker says which statement it is of."""
    for semantics in ("real", "float"):
        kept = tmp_path / semantics / "new" / "c"
        done = lunette(folder / "net.json", folder / "good.vnnlib", "--certificate", kept, "--semantics", semantics)
        assert done.exit_code == 0 and kept.exists(), done.output
        words = ["check", str(folder / "net.json"), str(kept), "--spec", str(folder / "good.vnnlib")]
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 0 and f"semantics {semantics}" in told.output


def test_exit_statuses_of_what_is_not_decided(folder: Path) -> None:
    assert lunette(folder / "net.json", folder / "good.vnnlib", "--method", "attack").exit_code == 3
    for words in (
        (folder / "net.json", folder / "none.vnnlib"),
        (folder / "net.json", folder / "nowhere.vnnlib"),
        (folder / "nowhere.json", folder / "good.vnnlib"),
        (folder / "net.json",),
        (),
        (folder / "net.json", folder / "good.vnnlib", "--semantics", "none"),
        ("--instances", folder / "nowhere.csv"),
    ):
        assert lunette(*words).exit_code == 2, words


def test_many_instances(folder: Path, tmp_path: Path) -> None:
    files = [
        *("--results", tmp_path / "r.csv", "--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml"),
        *("--certificates", tmp_path / "kept", "--html", tmp_path / "r.html", "--resume", tmp_path / "journal"),
    ]
    done = lunette("--instances", folder / "list.csv", "--jobs", 2, *files)
    assert done.exit_code == 1, done.output
    rows = list(csv.reader((tmp_path / "r.csv").read_text().splitlines()))
    assert [r[2] for r in rows] == ["proved", "disproved", "error"]
    assert [Path(r[4]).suffix for r in rows] == [".cert", ".npy", ""]
    assert all(Path(r[4]).exists() for r in rows[:2])
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert [suite.get(k) for k in ("tests", "failures", "errors")] == ["3", "1", "1"]
    again = lunette(
        "--instances", folder / "list.csv", "--resume", tmp_path / "journal", "--results", tmp_path / "r2.csv"
    )
    assert "come to its end" in again.output


def test_a_file_that_is_missing_costs_its_own_row(folder: Path, tmp_path: Path) -> None:
    """So does a name of several files; lines that come twice have two rows, and files of one name do not meet."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "good.vnnlib").write_bytes((folder / "good.vnnlib").read_bytes())
    (tmp_path / "net.onnx").write_bytes((folder / "nets" / "net.onnx").read_bytes())
    names = ["no.vnnlib", "a/good.vnnlib", "b/good.vnnlib", "c/good.vnnlib", "a/good.vnnlib"]
    (tmp_path / "list.csv").write_text("".join(f"net.onnx,{name},20\n" for name in ["good.vnnlib", *names]))
    kept, words = tmp_path / "kept", ["--results", tmp_path / "r.csv", "--json", tmp_path / "r.json"]
    done = lunette("--instances", tmp_path / "list.csv", "--certificates", kept, *words)
    assert done.exit_code == 3, done.output
    rows = json.loads((tmp_path / "r.json").read_text())
    assert [r["status"] for r in rows] == ["error", "error", "proved", "proved", "error", "proved"]
    assert ["2 files" in r["reason"] for r in rows] == [True, False, False, False, True, False]
    assert "no.vnnlib, of which there is no file" in rows[1]["reason"] and "[VI2]" in rows[1]["reason"]
    assert rows[2] == rows[5] and len({r["file"] for r in rows[2:4]}) == len(list(kept.iterdir())) == 2


def test_a_file_that_disappears_costs_its_own_row(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the list was read: the others are run, and a run that goes on asks once more for that one."""
    from lunette.verify import instances

    for name in ("good", "bad"):
        (tmp_path / f"{name}.vnnlib").write_bytes((folder / f"{name}.vnnlib").read_bytes())
    net = tmp_path / "net.onnx"
    net.write_bytes((folder / "nets" / "net.onnx").read_bytes())
    (tmp_path / "list.csv").write_text("net.onnx,good.vnnlib,20\nnet.onnx,bad.vnnlib,20\n")
    one, gone = read_list(tmp_path / "list.csv", None)
    own, words = instances.run_instance, ["--instances", tmp_path / "list.csv", "--resume", tmp_path / "journal"]

    def run(instance: instances.Instance, *rest: Any) -> dict[str, Any]:
        if instance == gone:
            net.unlink()
        return own(instance, *rest)

    monkeypatch.setattr(instances, "run_instance", run)
    done = lunette(*words, "--results", tmp_path / "r.csv")
    assert done.exit_code == 3, done.output
    rows = list(csv.reader((tmp_path / "r.csv").read_text().splitlines()))
    assert [r[2] for r in rows] == ["proved", "error"]
    monkeypatch.undo()
    net.write_bytes((folder / "nets" / "net.onnx").read_bytes())
    again = lunette(*words, "--results", tmp_path / "r.csv")
    assert "1 of 2 instances are from the journal" in again.output
    rows = list(csv.reader((tmp_path / "r.csv").read_text().splitlines()))
    assert [r[2] for r in rows] == ["proved", "disproved"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    result = own(one)
    assert (result["status"], result["again"], result["key"]) == ("error", True, one.key)


def test_a_killed_run_goes_on(folder: Path, tmp_path: Path) -> None:
    """Killed after the first result was written: what was done is not done again."""
    listed = folder / "long.csv"
    listed.write_text("".join(f"net.onnx,{name}.vnnlib,{20 + k}\n" for k in range(2) for name in ("good", "bad")))
    journal = tmp_path / "journal"
    command = [sys.executable, "-m", "lunette", "verify", "--instances", str(listed), "--resume", str(journal)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and (not journal.exists() or journal.read_text().count("\n") < 2):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert 1 <= len(kept) < 4
    with journal.open("a") as file:
        file.write('{"key": "cut sh')
    done = lunette("--instances", listed, "--resume", journal, "--results", tmp_path / "r.csv", "--jobs", 2)
    assert f"{len(kept)} of 4 instances are from the journal" in done.output
    rows = list(csv.reader((tmp_path / "r.csv").read_text().splitlines()))
    assert [r[2] for r in rows] == ["proved", "disproved"] * 2
    assert [float(r[3]) for r in rows][: len(kept)] == [pytest.approx(k["seconds"], abs=1e-3) for k in kept]


def test_an_instance_that_dies_or_hangs_costs_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lunette.verify import instances

    (tmp_path / "sitecustomize.py").write_text(
        "import sys, os, time\n"
        "if 'lunette.verify.instances' in ' '.join(sys.orig_argv):\n"
        "    os.abort() if os.environ['HOW'] == 'die' else time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(instances, "GRACE", 0.5)
    one = read_list(folder / "list.csv", None)[0]
    quick = instances.Instance(one.net, one.spec, 0.5).with_key()
    for how, status in (("die", "error"), ("hang", "unknown")):
        monkeypatch.setenv("HOW", how)
        result = instances.run_instance(quick)
        assert result["status"] == status, result
        assert result["key"] == quick.key


def test_lists_and_journals_that_are_none(folder: Path, tmp_path: Path) -> None:
    for content, rule in (
        ("net.onnx\n", "VI1"),
        ("net.onnx,good.vnnlib,soon\n", "VI3"),
        ("net.onnx,good.vnnlib,-1\n", "VI3"),
    ):
        path = folder / "wrong.csv"
        path.write_text(content)
        with pytest.raises(ArgumentError) as refused:
            read_list(path, None)
        assert refused.value.rule == rule
    other = tmp_path / "notes.txt"
    other.write_text("my notes\n")
    with pytest.raises(ArgumentError, match="VI4"):
        Journal(other, {}).begin(set())
    assert other.read_text() == "my notes\n"
    path = tmp_path / "journal"
    first = Journal(path, {"seed": 0})
    assert first.begin({"a", "b"}) == {}
    first.add({"key": "a", "status": "proved"})
    assert Journal(path, {"seed": 0}).begin({"a", "b"}) == {"a": {"key": "a", "status": "proved"}}
    assert Journal(path, {"seed": 1}).begin({"a", "b"}) == {}


def test_accuracy_of_images(folder: Path, tmp_path: Path) -> None:
    graph = ln.load(folder / "net.json")
    rng = np.random.default_rng(0)
    x = rng.random((12, 2, 2), np.float32)
    y = np.array([int(np.argmax(graph.compile()(v.reshape(1, 1, 2, 2)))) for v in x])
    y[0] = 1 - y[0]
    np.savez(tmp_path / "images.npz", x=x, y=y)
    flat, labels = read_images(tmp_path / "images.npz", graph)
    found = accuracy(graph, flat, labels, [0.0, 0.05, 0.5], timeout=5.0)
    assert [a.clean for a in found] == [pytest.approx(11 / 12)] * 3
    for a, b in pairwise(found):
        assert a.certified >= b.certified
        assert a.attacked >= b.attacked
    assert all(a.certified <= a.attacked <= a.clean for a in found)
    assert found[0].certified > 0
    done = lunette(
        folder / "net.json", "--images", tmp_path / "images.npz", "--radius", 0.05, "--html", tmp_path / "a.html"
    )
    assert done.exit_code == 0, done.output
    ElementTree.fromstring((tmp_path / "a.html").read_text().partition("<!DOCTYPE html>")[2])
    (tmp_path / "folder").mkdir()
    for k, (image, label) in enumerate(zip(x, y, strict=True)):
        np.save(tmp_path / "folder" / f"{label}-{k}.npy", image)
    again, _ = read_images(tmp_path / "folder", graph)
    assert sorted(map(tuple, again.tolist())) == sorted(map(tuple, flat.tolist()))
