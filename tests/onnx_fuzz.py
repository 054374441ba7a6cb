"""Models that are damaged at random: `python tests/onnx_fuzz.py SEED FIRST STOP` reads them, in bounded memory.

Model i of a seed is always the same. Whatever comes in, a well-formed graph comes out, or a refusal of lunette's own.
"""

from __future__ import annotations

import resource
import signal
import sys
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import lunette as ln
from lunette.onnx.table import READERS

SECONDS, BYTES = 20, 6 << 30
SIZES = [-(2**63), -(2**31), -3, -1, 0, 1, 2, 3, 5, 8, 64, 2**20, 2**31, 2**40, 2**62, 2**63 - 1]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
WORDS = [b"", b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"NOTSET", b"nearest", b"cubic", b"reflect", b"\xff\x00"]


def tensor(name: str, array: Any) -> Any:
    return numpy_helper.from_array(np.asarray(array), name)


def whole() -> Any:
    """A network with a bit of everything: windows, shapes that are computed, reductions, resizing, positions."""
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[1, 1], name="conv"),
        n("BatchNormalization", ["a", "s", "s", "s", "s"], ["bn"], epsilon=0.01),
        n("Relu", ["bn"], ["r"]),
        n("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        n("AveragePool", ["m"], ["av"], kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1),
        n("LpPool", ["m"], ["lp"], kernel_shape=[2, 2], auto_pad="SAME_UPPER", p=2),
        n("ConvTranspose", ["av", "u"], ["t"], strides=[2, 2], output_padding=[1, 1]),
        n("Shape", ["t"], ["sh"]),
        n("Gather", ["sh", "two"], ["h"], axis=0),
        n("Unsqueeze", ["h", "zero"], ["h1"]),
        n("Mul", ["h1", "h1"], ["hh"]),
        n("Div", ["hh", "h1"], ["hd"]),
        n("Concat", ["ones", "hd"], ["ends"], axis=0),
        n("Slice", ["t", "starts", "stops", "axes"], ["sl"]),
        n("Resize", ["sl", "", "scales"], ["up"], mode="linear", coordinate_transformation_mode="asymmetric"),
        n("Pad", ["up", "pads"], ["pd"], mode="reflect"),
        n("ReduceMean", ["pd", "axes23"], ["mean"], keepdims=0),
        n("Gemm", ["mean", "g", "gb"], ["fc"], transB=1, alpha=0.5),
        n("Softmax", ["fc"], ["soft"], axis=-1),
        n("ArgMax", ["soft"], ["arg"], axis=1, keepdims=0),
        n("Cast", ["arg"], ["argf"], to=TensorProto.FLOAT),
        n("Reshape", ["soft", "flat"], ["out"]),
        n("Clip", ["out", "lo", "hi"], ["clip"]),
        n("Split", ["clip"], ["p", "q"], axis=0, num_outputs=2),
        n("Where", ["cond", "p", "q"], ["wh"]),
        n("Expand", ["wh", "ones2"], ["ex"]),
        n("Transpose", ["ex"], ["tr"], perm=[1, 0]),
        n("Tile", ["tr", "rep"], ["y"]),
        n("LayerNormalization", ["mean", "s"], ["ln"]),
    ]
    rng = np.random.default_rng(0)
    f = np.float32
    constants = {
        "w": rng.random((4, 2, 3, 3), f),
        "b": np.zeros(4, f),
        "s": np.ones(4, f),
        "u": rng.random((4, 4, 2, 2), f),
        "two": np.int64(2),
        "zero": np.asarray([0]),
        "ones": np.asarray([1, 1]),
        "starts": np.asarray([1, -3]),
        "stops": np.asarray([2**62, 100]),
        "axes": np.asarray([2, 3]),
        "scales": np.asarray([1, 1, 2, 2], f),
        "pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1]),
        "axes23": np.asarray([2, 3]),
        "g": rng.random((4, 4), f),
        "gb": np.zeros(4, f),
        "flat": np.asarray([-1]),
        "lo": f(0.1),
        "hi": f(0.9),
        "cond": np.asarray([True, False]),
        "ones2": np.asarray([3, 2]),
        "rep": np.asarray([1, 2]),
    }
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "argf", "lp", "ln")]
    graph = helper.make_graph(nodes, "g", given, made, [tensor(k, v) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def damaged(model: Any, random: Random) -> Any:
    """The model with some things changed; bytes if they are."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for _ in range(random.choice((1, 1, 2, 5))):
        random.choice(DAMAGES)(new.graph, random)
    if random.random() < 0.1:
        new.opset_import[0].version = random.choice((6, 7, 9, 10, 11, 12, 13, 17, 18, 22, 26, 2**40))
    if random.random() < 0.25:
        return bytes_of(bytearray(new.SerializeToString()), random)
    return new


def bytes_of(data: bytearray, random: Random) -> bytes:
    for _ in range(random.choice((1, 3, 20))):
        at = random.randrange(len(data))
        kind = random.random()
        if kind < 0.6:
            data[at] = random.randrange(256)
        elif kind < 0.8:
            del data[at : at + random.randrange(1, 9)]
        else:
            data[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
    return bytes(data)


def _another_operator(graph: Any, random: Random) -> None:
    random.choice(graph.node).op_type = random.choice([*READERS, "Nothing", ""])


def _another_input(graph: Any, random: Random) -> None:
    node, names = random.choice(graph.node), [o for n in graph.node for o in n.output]
    names += [t.name for t in graph.initializer] + ["x", "", "none"]
    if node.input:
        node.input[random.randrange(len(node.input))] = random.choice(names)


def _fewer_or_more_inputs(graph: Any, random: Random) -> None:
    node = random.choice(graph.node)
    if node.input and random.random() < 0.5:
        del node.input[random.randrange(len(node.input))]
    else:
        node.input.append(random.choice([t.name for t in graph.initializer] + ["x"]))


def _another_attribute(graph: Any, random: Random) -> None:
    node = random.choice([n for n in graph.node if n.attribute] or list(graph.node))
    if not node.attribute:
        return
    at = random.randrange(len(node.attribute))
    name = node.attribute[at].name
    del node.attribute[at]
    kind = random.randrange(6)
    if kind == 5:
        return
    many = [random.choice(SIZES) for _ in range(random.randrange(6))]
    value = (random.choice(SIZES), random.choice(NUMBERS), random.choice(WORDS), many, tensor("t", np.ones(2)))[kind]
    if value != []:
        node.attribute.append(helper.make_attribute(name, value))


def _another_tensor(graph: Any, random: Random) -> None:
    found = random.choice(graph.initializer)
    kind = random.randrange(4)
    if kind == 0 and found.dims:
        found.dims[random.randrange(len(found.dims))] = random.choice(SIZES)
    elif kind == 1:
        found.data_type = random.randrange(30)
    elif kind == 2:
        wide, choices = (np.int64, SIZES) if found.data_type == TensorProto.INT64 else (np.float32, NUMBERS)
        count = len(found.raw_data) // np.dtype(wide).itemsize
        found.raw_data = np.array([random.choice(choices) for _ in range(count)], wide).tobytes()
    else:
        found.data_location = TensorProto.EXTERNAL
        found.external_data.add(key="location", value=random.choice(("../x", "/etc/passwd", "", "x\0", "tensor")))


def _another_type(graph: Any, random: Random) -> None:
    v = random.choice([*graph.input, *graph.output])
    kind = v.type.tensor_type
    if random.random() < 0.5:
        kind.elem_type = random.randrange(30)
    elif kind.shape.dim:
        kind.shape.dim[random.randrange(len(kind.shape.dim))].dim_value = random.choice(SIZES)


def _again(graph: Any, random: Random) -> None:
    graph.node.add().CopyFrom(random.choice(graph.node))


def _another_order(graph: Any, random: Random) -> None:
    nodes = list(graph.node)
    random.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


DAMAGES = [
    *(_another_operator, _another_input, _another_input, _fewer_or_more_inputs, _another_attribute, _another_attribute),
    *(_another_tensor, _another_tensor, _another_type, _again, _another_order),
]


def read(model: Any) -> bool:
    """Whether it is read; what is read is well formed, and its text is that of the same graph."""
    try:
        if isinstance(model, bytes):
            proto = onnx.ModelProto()
            try:
                proto.ParseFromString(model)
            except Exception:  # protobuf's own refusal
                return False
            model = proto
        graph = ln.from_onnx(model)
    except ln.LunetteError as error:
        if "from_onnx" not in error.who:
            raise
        return False
    graph.check()
    if sum(prod(n.shape) for n in graph.nodes) < 1 << 20:
        try:
            graph.compile()(*(np.ones(n.shape, n.dtype) for n in graph.inputs))
        except ln.LunetteError:  # values that an operator refuses
            return True
    return True


def main(seed: int, first: int, stop: int) -> int:
    """How many of the models were read, printed; what is not refused properly is raised."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    base, count = whole(), 0
    assert read(base), "the model is right before it is damaged"
    for i in range(first, stop):
        signal.alarm(SECONDS)  # which ends the process
        try:
            count += read(damaged(base, Random(f"{seed} {i}")))
        except BaseException:
            print(f"model {i} of seed {seed}: python tests/onnx_fuzz.py {seed} {i} {i + 1}", file=sys.stderr)
            raise
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
