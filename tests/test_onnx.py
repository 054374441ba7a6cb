"""Reading models: names, shapes, dtypes, opsets, what is refused, and networks of others against ONNX Runtime."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.bench.data import WANTED, data_folder

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from lunette.bench.files import open_shapes  # noqa: E402
from lunette.cli import app  # noqa: E402
from onnx_models import model, node  # noqa: E402

DATA = data_folder()
NETWORKS = sorted(str(p.relative_to(DATA)) for p in DATA.rglob("*.onnx")) if DATA else []
STEERED = "vnncomp_cctsdb_yolo_2023/patch-1.onnx"
needs_data = pytest.mark.skipif(DATA is None, reason=WANTED)


# ---- networks


@needs_data
def test_the_networks_are_there() -> None:
    assert len(NETWORKS) >= 24 and STEERED in NETWORKS


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != STEERED])
def test_networks_of_others_compute_what_onnx_runtime_does(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    assert DATA is not None
    path = DATA / name
    start = time.process_time()
    graph = ln.from_onnx(path, open_shapes(path))
    assert time.process_time() - start < 1.0
    graph.check()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = runtime.InferenceSession(str(path), options)
    assert [n.name for n in graph.inputs] == [v.name for v in session.get_inputs()]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        inputs = [rng.random(n.shape).astype(n.dtype) for n in graph.inputs]
        (wanted,) = session.run(None, {n.name: a for n, a in zip(graph.inputs, inputs, strict=True)})
        got = graph.compile()(*inputs)
        assert got.shape == wanted.shape
        # Both are float32 sums in another order, layer by layer: some hundreds of units in the last place.
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2.0**-14 * max(float(np.abs(wanted).max()), 1e-30))


@needs_data
def test_values_that_steer_shapes_are_refused_by_their_node() -> None:
    assert DATA is not None
    with pytest.raises(ln.ArgumentError, match=r"from_onnx, node 'Slice_34' \(Slice\) \[NX5\] needs starts"):
        ln.from_onnx(DATA / STEERED)


@needs_data
def test_a_network_in_every_arithmetic(tmp_path: Path) -> None:
    """The smallest with all of it: boxes hold what the network gives, which is near to what exact numbers give."""
    assert DATA is not None
    path = DATA / "marabou/cnn_max_mninst3.onnx"
    graph = ln.from_onnx(path, open_shapes(path))
    x = np.random.default_rng(0).random(graph.inputs[0].shape).astype(np.float32)
    program = graph.compile()
    y = program(x)
    box = program.run(ln.Interval(x - np.float32(0.01), x + np.float32(0.01)), arithmetic="interval")
    assert (box.lo <= y).all() and (y <= box.hi).all()
    exact = graph.eval(x, number=Fraction)
    assert all(abs(float(e) - float(v)) < 1e-4 for e, v in zip(exact.flat, y.flat, strict=True))
    rounded = program.run(x, arithmetic="rounded")
    np.testing.assert_allclose(rounded, y, rtol=1e-4, atol=1e-5)
    value, pullback = program.vjp(x)
    assert pullback(np.ones_like(value))[0].shape == x.shape
    graph.save(tmp_path / "net.json")
    again = ln.load(tmp_path / "net.json")
    assert str(again) == str(graph) and np.array_equal(again.compile()(x), y)


# ---- names, shapes, dtypes


def test_names_are_kept() -> None:
    m = model(
        node("Relu", ["input.1"], ["1"], name="layer/relu:0"),
        node("Neg", ["1"], ["y"], name='with "quotes" and \\'),
        inputs={"input.1": (2,)},
    )
    graph = ln.from_onnx(m)
    assert [n.name for n in graph.inputs] == ["input.1"]
    assert [n.label for n in graph.nodes] == ["", "layer/relu:0", 'with "quotes" and \\']
    again = ln.Graph.parse(str(graph))
    assert [n.label for n in again.nodes] == [n.label for n in graph.nodes] and str(again) == str(graph)
    assert graph.compile()(**{"input.1": np.array([-1, 2], np.float32)}).tolist() == [0, -2]


@pytest.mark.parametrize("name", ["a)", 'a)  # "', '")  # "x', "\\", "é", "a  # b", " "])
def test_names_and_labels_of_any_letters_parse_again(name: str) -> None:
    graph = ln.from_onnx(model(node("Relu", [name], ["y"], name=name), inputs={name: (2,)}))
    again = ln.Graph.parse(str(graph))
    assert again.inputs[0].name == name and again.nodes[1].label == name


def test_open_sizes_are_given_by_name() -> None:
    m = model(node("Relu", ["x"], ["y"]), inputs={"x": ("batch", 3)})
    with pytest.raises(
        ln.ShapeError, match=r"NX7.* all sizes of input 'x'; got \(batch, 3\). Pass shapes=\{'x': \(1, 3\)"
    ):
        ln.from_onnx(m)
    assert ln.from_onnx(m, {"x": (5, 3)}).inputs[0].shape == (5, 3)
    with pytest.raises(ln.ShapeError, match=r"NX7.* a shape that input 'x' can have; got \(5, 4\). The model says"):
        ln.from_onnx(m, {"x": (5, 4)})
    with pytest.raises(ln.ArgumentError, match=r"NX7.* shapes of inputs of the model; got shapes of 'X'"):
        ln.from_onnx(m, {"X": (5, 3)})
    with pytest.raises(ln.ArgumentError, match=r"NX7.* shapes as a dict; got list"):
        ln.from_onnx(m, [(5, 3)])  # type: ignore[arg-type]
    with pytest.raises(ln.ArgumentError, match=r"NX7.* a shape as a tuple"):
        ln.from_onnx(m, {"x": 5})  # type: ignore[dict-item]
    unknown = model(node("Relu", ["x"], ["y"]), inputs={"x": None})
    assert ln.from_onnx(unknown, {"x": (2, 2)}).inputs[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("FLOAT16", "float32"), ("BFLOAT16", "float32"), ("FLOAT", "float32"), ("DOUBLE", "float64")]
)
def test_floats_of_other_sizes(kind: str, dtype: str) -> None:
    element = getattr(TensorProto, kind)
    c = helper.make_tensor("c", element, (2,), [0.5, -2.0])
    m = model(node("Mul", ["x", "c"], ["y"]), inputs={"x": (2,)}, kind=element)
    m.graph.initializer.append(c)
    graph = ln.from_onnx(m)
    assert graph.inputs[0].dtype.name == dtype
    assert graph.compile()(np.array([4, 3], dtype)).tolist() == [2, -6]


def test_a_model_that_casts_its_data_to_float64_is_computed_in_float64() -> None:
    m = model(node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), node("Exp", ["d"], ["y"]), inputs={"x": ()})
    graph = ln.from_onnx(m)
    assert graph.inputs[0].dtype == np.float64
    assert abs(float(graph.compile()(np.array(1.0))) - np.exp(1.0)) < 2.0**-50


def test_arithmetic_on_shapes_is_folded() -> None:
    m = model(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Div", ["n", "two"], ["h"]),
        node("Unsqueeze", ["h", "zero"], ["h1"]),
        node("Concat", ["minus", "h1"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
        inputs={"x": (3, 7)},
        constants={"one": 1, "two": -2, "zero": [0], "minus": np.asarray([-7], np.int64)},
    )
    with pytest.raises(ln.ShapeError, match=r"node 'Reshape 5' \(Reshape\), reshape \[R1\] needs a shape of 21 cells"):
        ln.from_onnx(m)  # -7 and 7 // -2 = -3 (towards zero): no sizes
    m.graph.initializer[3].CopyFrom(numpy_helper.from_array(np.asarray([-1]), "minus"))
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.asarray(2), "two"))
    graph = ln.from_onnx(m)
    assert len(graph.nodes) == 2 and graph.nodes[1].shape == (7, 3)


def test_integers_divide_towards_zero() -> None:
    constants = {"a": np.asarray([7, -7, 7, -7, 6]), "b": np.asarray([2, 2, -2, -2, -3])}
    for made, wanted in (
        (node("Div", ["a", "b"], ["y"]), [3, -3, -3, 3, -2]),
        (node("Mod", ["a", "b"], ["y"]), [1, 1, -1, -1, 0]),
        (node("Mod", ["a", "b"], ["y"], fmod=1), [1, -1, 1, -1, 0]),
    ):
        graph = ln.from_onnx(model(made, constants=constants, inputs={"x": (1,)}))
        assert graph.compile()(np.zeros(1, np.float32)).tolist() == wanted


def test_inputs_that_say_nothing_may_be_there() -> None:
    none = np.zeros(0, np.float32)
    m = model(
        node("Resize", ["x", "roi", "empty", "sizes"], ["a"]),
        node("Dropout", ["a", "ratio"], ["y"]),
        inputs={"x": (1, 1, 2)},
        constants={"roi": none, "empty": none, "sizes": [1, 1, 4], "ratio": np.float32(0.5)},
    )
    assert ln.from_onnx(m).compile()(np.array([[[1, 2]]], np.float32)).tolist() == [[[1, 1, 2, 2]]]


# ---- what is refused


def refusal(m: Any, shapes: Any = None) -> str:
    with pytest.raises(ln.LunetteError) as found:
        ln.from_onnx(m, shapes)
    return str(found.value)


RELU = node("Relu", ["x"], ["y"])
REFUSALS: dict[str, tuple[Any, str]] = {
    "an operator": (
        model(node("LSTM", ["x"], ["y"], name="cell")),
        "from_onnx, node 'cell' (LSTM) [NX3] needs an operator that lunette reads; got 'LSTM'.",
    ),
    "a domain": (
        model(node("FusedConv", ["x"], ["y"], domain="com.microsoft")),
        "[NX3] needs operators of ONNX's own domain; got 'FusedConv' of 'com.microsoft'.",
    ),
    "an old opset": (model(RELU, opset=6), "[NX3] needs opset 7 or later of ONNX's own operators; got opset 6."),
    "an attribute": (
        model(node("Relu", ["x"], ["y"], slope=0.1)),
        "from_onnx, node 'Relu 0' (Relu) [NX4] needs attributes that lunette knows; got slope of opset 22.",
    ),
    "the form of one": (
        model(node("LeakyRelu", ["x"], ["y"], alpha=1)),
        "[NX4] needs alpha of FLOAT; got alpha of INT. The model is damaged.",
    ),
    "a missing input": (model(node("Add", ["x"], ["y"])), "[NX4] needs input 1 of Add; got none."),
    "one too many": (model(node("Relu", ["x", "x"], ["y"])), "[NX4] needs inputs that Relu has; got input 1, 'x'."),
    "an attribute of a window": (
        model(node("MaxPool", ["x"], ["y"], kernel_shape=[2], ceil=1), inputs={"x": (1, 1, 4)}),
        "from_onnx, node 'MaxPool 0' (MaxPool), onnx22 max_pool (d=1) [DI2] needs arguments of MaxPool among",
    ),
    "a kernel_shape that lies": (
        model(
            node("Conv", ["x", "w"], ["y"], kernel_shape=[2]),
            inputs={"x": (1, 1, 4)},
            constants={"w": np.ones((1, 1, 3), np.float32)},
        ),
        "[NX4] needs kernel_shape=[3], as w has it; got kernel_shape=[2].",
    ),
    "a shape that is computed": (
        model(node("Cast", ["x"], ["s"], to=TensorProto.INT64), node("Reshape", ["x", "s"], ["y"]), inputs={"x": (2,)}),
        "node 'Reshape 1' (Reshape) [NX5] needs a shape that no input changes; got a shape that is computed.",
    ),
    "integers as data": (
        model(RELU, kind=TensorProto.INT32),
        "[NX6] needs data of floats; got input 'x' of INT32.",
    ),
    "floats of 8 bits": (
        model(RELU, kind=TensorProto.FLOAT8E5M2),
        "[NX6] needs data of floats; got input 'x' of FLOAT8E5M2. Data are floats, integers may be shapes, axes and "
        "indices: convert it to float32.",
    ),
    "integers that wrap around": (
        model(
            node("Add", ["c", "c"], ["s"]),
            node("Cast", ["s"], ["t"], to=TensorProto.INT64),
            node("Reshape", ["x", "t"], ["y"]),
            constants={"c": np.asarray([200], np.uint8)},
        ),
        "from_onnx, node 'Add 0' (Add) [NX6] needs integers of UINT8; got [400].",
    ),
    "integers that are none": (
        model(
            node("ReduceMean", ["c"], ["s"], keepdims=0),
            node("Reshape", ["x", "s"], ["y"]),
            constants={"c": np.asarray([1, 2])},
        ),
        "from_onnx, node 'ReduceMean 0' (ReduceMean) [NX6] needs integers of 64 bits; got [Fraction(3, 2)].",
    ),
    "a name that nobody makes": (
        model(node("Relu", ["z"], ["y"])),
        "[NX8] needs names that a node, an input or an initializer makes; got 'z'.",
    ),
    "a name made twice": (model(RELU, RELU), "[NX8] needs names that are made once; got 'y' twice."),
    "a cycle": (
        model(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["y"])),
        "[NX8] needs nodes without cycles; got node 'Add 0', which depends on itself.",
    ),
    "indices of a pool": (
        model(node("MaxPool", ["x"], ["v", "y"], kernel_shape=[2], name="p"), inputs={"x": (1, 1, 4)}),
        "[NX11] needs results that lunette computes; got the indices of node 'p'. Use the values alone.",
    ),
    "training": (
        model(
            node("BatchNormalization", ["x", "c", "c", "c", "c"], ["y"], training_mode=1),
            constants={"c": np.ones(3, np.float32)},
        ),
        "(BatchNormalization) [NX11] needs inference; got training_mode=1. Export the model for inference",
    ),
    "no outputs": (model(RELU, outputs=()), "[NX2] needs a model with outputs; got none."),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_not_understood_is_refused_by_name(what: str) -> None:
    m, said = REFUSALS[what]
    assert said in refusal(m)


def test_results_that_nobody_reads_are_not_missed() -> None:
    m = model(node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2]), inputs={"x": (1, 1, 4)})
    assert ln.from_onnx(m).nodes[-1].shape == (1, 1, 3)
    m = model(RELU, node("LSTM", ["x"], ["z"]))
    assert len(ln.from_onnx(m).nodes) == 2


def test_nodes_may_come_in_any_order() -> None:
    m = model(node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"]), inputs={"x": (1,)})
    assert ln.from_onnx(m).compile()(np.array([2.0], np.float32)).tolist() == [-2]


def test_sources_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ln.ArgumentError, match=r"from_onnx \[NX2\] needs a path or an onnx.ModelProto; got int"):
        ln.from_onnx(3)
    with pytest.raises(FileNotFoundError):
        ln.from_onnx(tmp_path / "none.onnx")
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(ln.ArgumentError, match=r"NX2.* an ONNX file; got text.onnx"):
        ln.from_onnx(path)
    path.write_bytes(b"")
    with pytest.raises(ln.ArgumentError, match=r"NX2.* got text.onnx, which has no graph"):
        ln.from_onnx(path)


def test_writing_refuses_by_name(tmp_path: Path) -> None:
    graph = ln.from_onnx(model(RELU))
    for opset in (17, 999, True, "22"):
        with pytest.raises(ln.ArgumentError, match=r"to_onnx \[NX12\] needs an opset from 18 to "):
            ln.to_onnx(graph, tmp_path / "x.onnx", opset)  # type: ignore[arg-type]
    with pytest.raises(ln.ArgumentError, match=r"NX12.* a lunette.Graph; got function"):
        ln.to_onnx(refusal)  # type: ignore[arg-type]
    with pytest.raises(ln.ArgumentError, match=r"G5.* at least one output"):
        ln.to_onnx(ln.Graph())

    def pooled(v: Any) -> Any:
        return ln.sum(ln.max_pool(v, (2,)))

    backward = ln.trace(ln.grad(pooled), np.ones((1, 1, 4)))
    with pytest.raises(ln.ArgumentError, match=r"to_onnx, max_pool_vjp.* \[NX12\] needs operators that ONNX can say"):
        ln.to_onnx(backward)


# ---- importing, and the command line


def test_no_two_nodes_that_are_written_have_one_name() -> None:
    """A node that is written as several, and nodes with one label: onnx.checker takes that, ONNX Runtime does not."""
    g = ln.Graph()
    x = g.input((1, 3, 4, 4), name="x")
    g.label = "act"
    g.output(ln.smooth_max_pool(ln.relu(ln.relu(x) - 1), 2, beta=2.0))
    model = ln.to_onnx(g)
    names = [n.name for n in model.graph.node if n.name]
    assert names == ["act"]
    a = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
    session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    assert np.allclose(session.run(None, {"x": a})[0], g.compile()(a), atol=1e-6)


def test_lunette_does_not_import_onnx() -> None:
    code = "import sys, lunette, lunette.cli; assert 'onnx' not in sys.modules, 'onnx'; assert lunette.from_onnx"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        ln.ArgumentError, match=r"NX1\] needs the package onnx; got none. pip install 'lunette\[onnx\]'"
    ):
        ln.from_onnx("net.onnx")


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_line_takes_models_of_onnx(tmp_path: Path) -> None:
    m = model(node("Relu", ["x"], ["a"], name="first"), node("Neg", ["a"], ["y"]), inputs={"x": ("n", 3)})
    plain, packed = tmp_path / "net.onnx", tmp_path / "net.onnx.gz"
    plain.write_bytes(m.SerializeToString())
    packed.write_bytes(gzip.compress(m.SerializeToString()))
    for path in (plain, packed):
        assert "3 nodes" in run("import", str(path), "--shape", "x=2,3")
        graph = ln.load(tmp_path / "net.json")
        assert graph.inputs[0].shape == (2, 3) and graph.nodes[1].label == "first"
        (tmp_path / "net.json").unlink()
        run("draw", str(path), "--shape", "x=2,3")
        assert (tmp_path / "net.svg").exists()
        (tmp_path / "net.svg").unlink()
        assert "relu" in run("profile", str(path), "--shape", "x=2,3", "--repeat", "1")
    assert run("import", str(packed), "-o", str(tmp_path / "other.json"), "--shape", "x=1,3").startswith("wrote ")
    for wrong in ("x=a", "x=1,b"):
        result = CliRunner().invoke(app, ["draw", str(plain), "--shape", wrong])
        assert result.exit_code == 2 and "is no shape" in re.sub(r"[│\s]+", " ", result.output)


def test_the_table_of_operators_in_the_docs_is_that_of_the_code() -> None:
    from lunette.onnx.table import READ_AS, REFUSED, markdown

    assert markdown() in (Path(__file__).parents[1] / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert not set(READ_AS) & set(REFUSED)
    if onnx.__version__ == "1.23.2":
        every = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
        assert every <= set(READ_AS) | set(REFUSED)


# ---- opsets: what was an attribute once


F = np.float32
OLD: dict[str, tuple[Any, dict[str, Any], tuple[int, ...], range]] = {
    "clip": (node("Clip", ["x"], ["y"], min=-0.5, max=0.25), {}, (2, 3), range(7, 11)),
    "clip one end": (node("Clip", ["x", "", "c"], ["y"]), {"c": F(0.25)}, (2, 3), range(11, 20)),
    "dropout": (node("Dropout", ["x"], ["y"], ratio=0.9), {}, (2, 3), range(7, 12)),
    "squeeze": (node("Squeeze", ["x"], ["y"], axes=[0, 2]), {}, (1, 3, 1, 1), range(7, 13)),
    "unsqueeze": (node("Unsqueeze", ["x"], ["y"], axes=[0, 3]), {}, (2, 3), range(7, 13)),
    "softmax": (node("Softmax", ["x"], ["y"]), {}, (2, 3, 4), range(7, 13)),
    "softmax since": (node("Softmax", ["x"], ["y"]), {}, (2, 3, 4), range(13, 19)),
    "log softmax": (node("LogSoftmax", ["x"], ["y"], axis=2), {}, (2, 3, 4), range(7, 19)),
    "pad": (node("Pad", ["x"], ["y"], pads=[0, 1, 2, -1], value=3.5), {}, (2, 3), range(7, 11)),
    "pad reflect": (node("Pad", ["x"], ["y"], pads=[0, 2, 1, 1], mode="reflect"), {}, (2, 3), range(7, 11)),
    "slice": (node("Slice", ["x"], ["y"], starts=[1, -2], ends=[9, -1], axes=[0, 2]), {}, (2, 3, 4), range(7, 10)),
    "slice since": (
        node("Slice", ["x", "s", "e", "a", "t"], ["y"]),
        {"s": [3, -1], "e": [-(2**63), 0], "a": [2, 1], "t": [-2, -1]},
        (2, 3, 4),
        range(10, 20),
    ),
    "split": (node("Split", ["x"], ["z", "y"], axis=1, split=[1, 2]), {}, (2, 3), range(7, 13)),
    "split evenly": (node("Split", ["x"], ["z", "y"], axis=1), {}, (2, 4), range(7, 18)),
    "reduce sum": (node("ReduceSum", ["x"], ["y"], axes=[-1, 0], keepdims=0), {}, (2, 3, 4), range(11, 13)),
    "reduce max": (node("ReduceMax", ["x"], ["y"], axes=[1]), {}, (2, 3, 4), range(7, 18)),
    "reduce all": (node("ReduceL2", ["x"], ["y"]), {}, (2, 3, 4), range(7, 20)),
    "upsample": (node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0]), {}, (1, 2, 2, 2), range(7, 9)),
    "upsample since": (
        node("Upsample", ["x", "s"], ["y"], mode="linear"),
        {"s": np.asarray([1, 1, 2, 2], F)},
        (1, 2, 2, 2),
        range(9, 10),
    ),
    "resize": (node("Resize", ["x", "s"], ["y"]), {"s": np.asarray([1, 1, 2, 1.5], F)}, (1, 2, 2, 4), range(10, 11)),
    "resize since": (
        node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"),
        {"s": np.asarray([1, 1, 2, 2], F)},
        (1, 2, 3, 4),
        range(13, 20),
    ),
    "batch norm": (
        node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"], epsilon=0.1, momentum=0.5),
        {"s": np.asarray([1, 2, 3], F)},
        (2, 3, 4),
        range(7, 20),
    ),
    "average pool": (
        node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
        {},
        (1, 2, 5, 4),
        range(7, 23),
    ),
    "max pool": (
        node("MaxPool", ["x"], ["y"], kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2]),
        {},
        (1, 2, 6),
        range(8, 23),
    ),
    "transposed": (
        node("ConvTranspose", ["x", "w"], ["y"], strides=[2], output_shape=[10]),
        {"w": np.arange(6, dtype=F).reshape(1, 2, 3)},
        (1, 1, 5),
        range(11, 23),  # before, the text has the odd cell at the other end, and ONNX Runtime does not
    ),
    "one hot": (
        node("OneHot", ["x", "d", "v"], ["y"], axis=1),
        {"d": F(3), "v": np.asarray([-1, 2], F)},
        (2, 2),
        range(11, 20),
    ),
    "argmax": (node("ArgMax", ["x"], ["y"], axis=1, select_last_index=1), {}, (2, 3, 2), range(12, 20)),
    "gelu": (node("Gelu", ["x"], ["y"], approximate="tanh"), {}, (2, 3), range(20, 23)),
    "layer norm": (
        node("LayerNormalization", ["x", "s", "s"], ["y", "mean", "by"], axis=1),
        {"s": np.ones((3, 4), F)},
        (2, 3, 4),
        range(17, 23),
    ),
}


@pytest.mark.parametrize("what", OLD)
def test_operators_at_every_opset_that_has_them_so(what: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made, constants, shape, opsets = OLD[what]
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(F) / 2
    x = np.floor(np.abs(x)) if what == "one hot" else x
    outputs = tuple(o for o in made.output if o)
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for opset in {opsets[0], opsets[len(opsets) // 2], opsets[-1]}:
        m = model(made, inputs={"x": shape}, constants=constants, opset=opset, outputs=outputs)
        if what == "argmax":
            m.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
        wanted = runtime.InferenceSession(m.SerializeToString(), options).run(None, {"x": x})
        got = ln.from_onnx(m).compile()(x)
        for a, b in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            assert a.shape == b.shape
            # Exponentials, roots and quotients of a few cells about 1.
            np.testing.assert_allclose(a, b, rtol=2.0**-18, atol=2.0**-20)
