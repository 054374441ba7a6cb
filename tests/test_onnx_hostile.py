"""Files that mean harm, and files that are damaged: a clear refusal, in little time and memory, and nothing is run."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from effort import LONG

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, numpy_helper  # noqa: E402

from onnx_models import model, node  # noqa: E402

CALLS = int(os.getenv("LUNETTE_FUZZ_CALLS", "4000")) // 10
SEED = int(os.getenv("LUNETTE_FUZZ_SEED", "1"))
PARTS = 2


@contextmanager
def bounded(seconds: float = 10, megabytes: int = 400) -> Iterator[None]:
    """Neither more processor time than this, nor more memory than there was, and so much."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < megabytes << 10


def refused(source: Any, said: str, **limits: Any) -> None:
    with bounded(**limits), pytest.raises(ln.LunetteError) as found:
        ln.from_onnx(source)
    assert said in str(found.value), str(found.value)


# ---- size


def test_a_bomb_of_gzip(tmp_path: Path) -> None:
    path = tmp_path / "bomb.onnx.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    refused(path, "bytes from gzip; got more than")


def test_a_damaged_file_of_gzip(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(model(node("Relu", ["x"], ["y"])).SerializeToString())[:-12])
    refused(path, "[NX2] needs an ONNX file; got net.onnx.gz")


@pytest.mark.parametrize("size", [2**33, 2**62])
def test_constants_that_are_small_in_the_file(size: int) -> None:
    m = model(node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"]), constants={"s": [size]})
    refused(m, "[NX10] needs at most 67108864 cells of constants")
    m = model(
        node("Expand", ["one", "s"], ["c"]),
        node("Add", ["x", "c"], ["y"]),
        constants={"s": [size], "one": np.ones(1, np.float32)},
    )
    refused(m, "[NX10] needs at most 67108864 cells of constants")
    m = model(
        node("Range", ["a", "s", "b"], ["c"]), node("Reshape", ["x", "c"], ["y"]), constants={"a": 0, "s": size, "b": 1}
    )
    refused(m, "[NX10] needs at most 4194304 cells of constants")


def test_many_constants_that_are_large_together() -> None:
    nodes = [node("ConstantOfShape", ["s"], [f"c{k}"]) for k in range(64)]
    nodes += [node("Sum", ["x", *(f"c{k}" for k in range(64))], ["y"])]
    refused(model(*nodes, inputs={"x": (1,)}, constants={"s": [1 << 22]}), "[NX10] needs at most", megabytes=2000)


def test_integers_that_grow() -> None:
    nodes = [node("Mul", [f"c{k}", f"c{k}"], [f"c{k + 1}"]) for k in range(100)]
    m = model(*nodes, node("Reshape", ["x", "c100"], ["y"]), constants={"c0": [10**9]})
    refused(m, "[NX6] needs integers of 64 bits")


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (1, 2**31, 2**31)])
def test_vast_inputs_need_no_memory_until_they_run(shape: tuple[int, ...]) -> None:
    with bounded():
        graph = ln.from_onnx(model(node("Relu", ["x"], ["y"]), inputs={"x": shape}))
    assert graph.inputs[0].shape == shape


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [3, 3], "ceil_mode": 1, "strides": [2, 2], "count_include_pad": 1}),
        ("LpPool", {"kernel_shape": [2**30, 2**30], "auto_pad": "SAME_UPPER"}),
    ],
)
@pytest.mark.parametrize("opset", [10, 22])
def test_windows_of_vast_inputs(kind: str, attributes: dict[str, Any], opset: int) -> None:
    m = model(node(kind, ["x"], ["y"], **attributes), inputs={"x": (1, 1, 2**40, 2**40)}, opset=opset)
    with bounded(), suppress(ln.LunetteError):
        ln.from_onnx(m)


def test_resizing_to_vast_sizes() -> None:
    m = model(node("Resize", ["x", "", "", "s"], ["y"]), inputs={"x": (1, 1, 2, 2)}, constants={"s": [1, 1, 2**40, 2]})
    refused(m, "[NX4] needs sizes up to 1048576")


# ---- shapes that lie, and data elsewhere


@pytest.mark.parametrize("dims", [(2**40,), (2, 2**61), (-1,), (3,)])
def test_tensors_that_have_other_data_than_their_shape_says(dims: tuple[int, ...]) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "c")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    m = model(node("Add", ["x", "c"], ["y"]))
    m.graph.initializer.append(tensor)
    refused(m, "[NX10] needs the cells of tensor 'c'")


def external(location: str, **more: str) -> Any:
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    m = model(node("Add", ["x", "c"], ["y"]), inputs={"x": (4,)})
    m.graph.initializer.append(tensor)
    return m


def test_external_data_of_the_folder_are_read(tmp_path: Path) -> None:
    np.arange(6, dtype=np.float32).tofile(tmp_path / "data.bin")
    (tmp_path / "net.onnx").write_bytes(external("data.bin", offset="8", length="16").SerializeToString())
    graph = ln.from_onnx(tmp_path / "net.onnx")
    assert graph.compile()(np.zeros(4, np.float32)).tolist() == [2, 3, 4, 5]
    refused(external("data.bin"), "[NX9] needs a model with its data, or its path; got data in 'data.bin'")


@pytest.mark.parametrize(
    "way", ["../secret.bin", "/etc/hostname", "link.bin", "folder/../../secret.bin", "", "none.bin", "."]
)
def test_external_data_elsewhere_are_not_read(way: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "folder").mkdir(parents=True)
    np.zeros(4, np.float32).tofile(tmp_path / "secret.bin")
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "net.onnx").write_bytes(external(way).SerializeToString())
    refused(folder / "net.onnx", "[NX9] needs data of 'c' in a file of the model's folder")


@pytest.mark.parametrize(
    "told", [{"offset": "-4"}, {"offset": "8"}, {"length": "12"}, {"offset": "x"}, {"length": str(2**70)}]
)
def test_external_data_that_are_not_there(told: dict[str, str], tmp_path: Path) -> None:
    np.zeros(4, np.float32).tofile(tmp_path / "data.bin")
    (tmp_path / "net.onnx").write_bytes(external("data.bin", **told).SerializeToString())
    refused(tmp_path / "net.onnx", "[NX10] needs the cells of tensor 'c'")


# ---- depth and number


def test_a_hundred_thousand_nodes() -> None:
    many = 100_000 if LONG else 20_000
    names = ["x", *(f"a{k}" for k in range(many - 1)), "y"]
    m = model(*(node("Relu", [a], [b]) for a, b in pairwise(names)), inputs={"x": (1,)})
    with bounded(seconds=60, megabytes=1000):
        graph = ln.from_onnx(m)
    assert len(graph.nodes) == many + 1


def test_a_long_chain_backwards_is_a_cycle_or_an_order_and_no_recursion() -> None:
    names = ["x", *(f"a{k}" for k in range(5000)), "y"]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    with bounded():
        assert len(ln.from_onnx(model(*reversed(nodes), inputs={"x": (1,)})).nodes) == 5002
    nodes[0].input[0] = "a4000"
    refused(model(*nodes, inputs={"x": (1,)}), "[NX8] needs nodes without cycles")


def test_many_inputs() -> None:
    m = model(node("Relu", ["x0"], ["y"]), inputs={f"x{k}": (1,) for k in range(10_000)})
    refused(m, "[NX7] needs at most 4096 inputs; got 10000")


def field_of(number: int, payload: bytes) -> bytes:
    """A field of protobuf's wire format, with a length."""
    size, digits = len(payload), bytearray()
    while size >= 128:
        digits.append(size % 128 + 128)
        size //= 128
    return bytes([number << 3 | 2, *digits, size]) + payload


@pytest.mark.parametrize("depth", [10, 10_000])
def test_graphs_within_graphs(depth: int, tmp_path: Path) -> None:
    graph = b""
    for _ in range(depth):  # a graph of one node, If, whose attribute is a graph
        attribute = field_of(1, b"then_branch") + field_of(6, graph)
        graph = field_of(1, field_of(4, b"If") + field_of(2, b"y") + field_of(5, attribute))
    graph += field_of(12, field_of(1, b"y"))
    opset = field_of(8, b"\x10\x16")
    (tmp_path / "deep.onnx").write_bytes(opset + field_of(7, graph))
    refused(tmp_path / "deep.onnx", "[NX3] needs an operator that lunette reads" if depth == 10 else "[NX2]")


# ---- at random


@pytest.mark.parametrize("part", range(PARTS))
def test_models_that_are_damaged_at_random_are_read_or_refused(part: int) -> None:
    first, stop = CALLS * part // PARTS, CALLS * (part + 1) // PARTS
    words = [sys.executable, str(Path(__file__).parent / "onnx_fuzz.py"), str(SEED), str(first), str(stop)]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    share = int(done.stdout) / max(stop - first, 1)
    assert CALLS < 200 or 0.05 < share < 0.6, "the fuzz sees both sides"
