"""What the frameworks' arguments mean: against the frameworks themselves, their documents, and lunette.

Taps and divisors are compared with `==` (see responses.py), never values that happen to agree.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette.dialects import DIALECTS, Call, Meaning, Unsaid, dialect
from lunette.dialects.configurations import configurations
from lunette.dialects.difference import answer, rank
from lunette.dialects.meaning import meaning_of, setting_of
from responses import Array, response, same, signature, units, weights

REFUSED = "refused"


def meant(name: str, op: str, shapes: Any, arguments: Mapping[str, Any]) -> tuple[Array | str, Meaning | None]:
    """What the dialect says: the response, or that it refuses."""
    try:
        meaning = dialect(name).meaning(op, shapes, arguments)
    except ln.LunetteError:
        return REFUSED, None
    return response(meaning), meaning


def shapes_of(space: Sequence[int], kernel: Sequence[int] | None) -> list[tuple[int, ...]]:
    x = (prod(space), 1, *space)
    return [x] if kernel is None else [x, (1, 1, *kernel)]


# ---- torch against torch


def torch_answer(op: str, d: int, space: Sequence[int], kernel: Any, arguments: Mapping[str, Any]) -> Array | str:
    import torch

    stem = {"conv": "conv", "conv_transpose": "conv_transpose"}.get(op, op)
    function = getattr(torch.nn.functional, f"{stem}{d}d")
    operands = [units(space)] + ([weights(kernel)] if kernel is not None else [])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about the copy that padding="same" costs it
            y: Array = function(*map(torch.from_numpy, operands), **arguments).numpy()
    except RuntimeError:
        return REFUSED
    return y


def torch_configurations() -> Iterator[tuple[str, tuple[int, ...], Any, dict[str, Any]]]:
    sizes, kernels, strides, pads = range(1, 6), range(1, 5), (None, 1, 2, 3), range(3)
    for n, k, s, p, ceil in product(sizes, kernels, strides, pads, (False, True)):
        pool = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
        for spread in (1, 2, 3):
            yield "max_pool", (n,), None, {**pool, "dilation": spread}
        for counted in (True, False):
            yield "avg_pool", (n,), None, {**pool, "count_include_pad": counted}
    for n, k, s, spread in product(sizes, kernels, (1, 2, 3), (1, 2, 3)):
        for named in (0, 1, 2, "same", "valid"):
            yield "conv", (n,), (k,), {"stride": s, "padding": named, "dilation": spread}
        for p, extra in product(pads, range(3)):
            told = {"stride": s, "padding": p, "dilation": spread, "output_padding": extra}
            yield "conv_transpose", (n,), (k,), told
    for n, m in product(sizes, range(8)):
        yield "adaptive_avg_pool", (n,), None, {"output_size": m}
        yield "adaptive_max_pool", (n,), None, {"output_size": m}


def random_torch_configurations(seed: int, count: int) -> Iterator[tuple[str, tuple[int, ...], Any, dict[str, Any]]]:
    rng = np.random.default_rng(seed)

    def ints(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(v) for v in rng.integers(low, high, d))

    for _ in range(count):
        d = int(rng.integers(2, 4))
        space, k, s, p = ints(1, 5), ints(1, 4), ints(1, 4), ints(0, 2)
        ceil = bool(rng.random() < 0.5)
        pool = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
        divisor = {"divisor_override": int(rng.integers(1, 5))} if rng.random() < 0.3 else {}
        yield "max_pool", space, None, {**pool, "dilation": ints(1, 3)}
        yield "avg_pool", space, None, {**pool, "count_include_pad": bool(rng.random() < 0.5), **divisor}
        yield "conv", space, k, {"stride": s, "padding": p, "dilation": ints(1, 3)}
        yield "conv_transpose", space, k, {"stride": s, "padding": p, "output_padding": ints(0, 3)}
        yield "adaptive_avg_pool", space, None, {"output_size": tuple(m or None for m in ints(0, 5))}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def has_no_cells(op: str, shapes: Any, arguments: Mapping[str, Any]) -> bool:
    """A transposed convolution of size 0: torch's answer depends on which of its kernels is asked."""
    if op != "conv_transpose":
        return False
    try:
        dialect("torch").meaning(op, shapes, arguments)
    except ln.LunetteError as error:
        return error.rule == "W9" and error.got.startswith("0 ")
    return False


@pytest.mark.parametrize("which", ["small", "random"])
def test_torch_means_what_the_dialect_says(which: str) -> None:
    counted: Counter[tuple[str, bool]] = Counter()
    for op, space, kernel, arguments in (
        torch_configurations() if which == "small" else random_torch_configurations(1, 120)
    ):
        shapes = shapes_of(space, kernel)
        said, _ = meant("torch", op, shapes, arguments)
        if has_no_cells(op, shapes, arguments):
            continue
        got = torch_answer(op, len(space), space, kernel, arguments)
        assert same(said, got), (op, space, kernel, arguments, said, got)
        counted[op, isinstance(got, str)] += 1
    answered = {op: n for (op, refused), n in counted.items() if not refused}
    assert min(answered.values()) > 25 and len(answered) >= 5


def test_torch_makes_indices_and_ties_as_the_dialect_says() -> None:
    import torch

    corners = DIALECTS["torch"].corners["max_pool"]
    x = torch.tensor([[[3.0, 3.0, 1.0, np.nan, np.nan]]], requires_grad=True)
    y, index = torch.nn.functional.max_pool1d(x, 2, 2, ceil_mode=True, return_indices=True)
    assert index.tolist() == [[[0, 3, 4]]] and corners.index == "flat, row-major, in the channel's own plane"
    y[0, 0, 0].backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and x.grad.tolist()[0][0] == [1, 0, 0, 0, 0]
    assert corners.ties == "the first in row-major order"
    both = torch.nn.functional.max_pool1d(x[..., 3:], 2, return_indices=True)[1].tolist()
    assert both == [[[1]]] and corners.nan is not None and "last NaN" in corners.nan


# ---- onnx22 against onnxruntime, where that follows the text


Condition = Callable[[str, int, int, Mapping[str, Any]], bool]


def room(n: int, k: int, a: Mapping[str, Any]) -> int:
    pads: int = sum(a.get("pads", ()))
    return n + pads - (k - 1) * int(a.get("dilations", [1])[0]) - 1


def span(k: int, a: Mapping[str, Any]) -> int:
    return (k - 1) * int(a.get("dilations", [1])[0]) + 1


ONNXRUNTIME_DIFFERS: dict[str, Condition] = {
    "no window fits, and it rounds towards zero": lambda op, n, k, a: "pool" in op and room(n, k, a) < 0,
    "SAME forgets the dilation, or refuses it": lambda op, n, k, a: (
        op != "conv_transpose" and "SAME" in a.get("auto_pad", "") and a["dilations"] != [1]
    ),
    "SAME with a step beyond the window pads by less than 0": lambda op, n, k, a: (
        "SAME" in a.get("auto_pad", "") and a["strides"][0] > span(k, a) and "output_shape" not in a
    ),
    "padding as wide as the kernel is refused": lambda op, n, k, a: "pool" in op and max(a.get("pads", [0])) >= k,
    "output_padding as wide as the stride is refused": lambda op, n, k, a: (
        op == "conv_transpose"
        and (
            a.get("output_padding", [0])[0] >= a["strides"][0]
            or a.get("output_shape", [0])[0] >= (n - 1) * a["strides"][0] + span(k, a) + a["strides"][0]
        )
    ),
    "VALID takes ceil_mode": lambda op, n, k, a: a.get("auto_pad") == "VALID" and a.get("ceil_mode") == 1,
    "an empty window is the least float, or 0": lambda op, n, k, a: "pool" in op and a["dilations"][0] > n,
}


def onnx_configurations() -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    for n, k, s, spread in product((1, 2, 5), range(1, 4), (1, 2, 3), (1, 2)):
        steps = {"strides": [s], "dilations": [spread]}
        padded: list[dict[str, Any]] = [{"pads": list(p)} for p in ((0, 0), (1, 0), (1, 1), (0, 2))]
        named: list[dict[str, Any]] = [{"auto_pad": name} for name in ("VALID", "SAME_UPPER", "SAME_LOWER")]
        for pads in padded + named:
            for ceil in (0, 1):
                pool = {"kernel_shape": [k], **steps, **pads, "ceil_mode": ceil}
                yield "max_pool", n, k, pool
                yield "avg_pool", n, k, {**pool, "count_include_pad": (n + k + s) % 2}
            yield "conv", n, k, {**steps, **pads}
            yield "conv_transpose", n, k, {**steps, **pads, **({"output_padding": [n % 2]} if "pads" in pads else {})}
        for name, more in product(("VALID", "SAME_UPPER", "SAME_LOWER"), (-2, -1, 0, 1)):
            out = (n - 1) * s + span(k, steps) + more
            if out > 0:
                yield "conv_transpose", n, k, {**steps, "auto_pad": name, "output_shape": [out]}


def onnxruntime_answer(op: str, n: int, k: int, arguments: Mapping[str, Any]) -> Array | str:
    import onnxruntime
    from onnx import TensorProto, helper

    names = {"max_pool": "MaxPool", "avg_pool": "AveragePool", "conv": "Conv", "conv_transpose": "ConvTranspose"}
    operands = {"x": units((n,)), **({"w": weights((k,))} if "conv" in op else {})}
    inputs = [helper.make_tensor_value_info(a, TensorProto.FLOAT, list(v.shape)) for a, v in operands.items()]
    node = helper.make_node(names[op], list(operands), ["y"], **arguments)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        y: Array = session.run(None, {a: v.astype(np.float32) for a, v in operands.items()})[0]
    except Exception:  # every kind of refusal has a class of its own
        return REFUSED
    return y


def test_onnxruntime_means_what_the_dialect_says_where_it_follows_the_text() -> None:
    agreed: Counter[str] = Counter()
    differed: Counter[str] = Counter()
    for op, n, k, arguments in onnx_configurations():
        said, _ = meant("onnx22", op, shapes_of((n,), (k,) if "conv" in op else None), arguments)
        got = onnxruntime_answer(op, n, k, arguments)
        rounded = said if isinstance(said, str) else said.astype(np.float32)
        why = [name for name, holds in ONNXRUNTIME_DIFFERS.items() if holds(op, n, k, arguments)]
        if same(rounded, got):
            agreed[op] += 1
        else:
            assert why, (op, n, k, arguments, said, got)
            differed.update(why)
    assert set(differed) == set(ONNXRUNTIME_DIFFERS), "a condition that excuses nothing"
    assert min(agreed.values()) > 150, agreed


def test_onnx_indices_are_counted_in_the_whole_tensor() -> None:
    import onnxruntime
    from onnx import TensorProto, helper

    x = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
    for order in (0, 1):
        node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], storage_order=order)
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))
        outputs = [helper.make_tensor_value_info(a, t, None) for a, t in (("y", 1), ("i", 7))]
        graph = helper.make_graph([node], "g", [value], outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        _, index = session.run(None, {"x": x})
        _, mine = ln.max_pool(x, 2, stride=1, return_indices=True)
        turned = mine if order == 0 else mine % 4 * 3 + mine // 4
        assert (index == turned + 12 * np.arange(2).reshape(2, 1, 1, 1)).all()
    index_rule = DIALECTS["onnx22"].corners["max_pool"].index
    assert index_rule is not None and "whole tensor" in index_rule and "storage_order=1" in index_rule


# ---- jax against jax


def jax_configurations() -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    pads: tuple[Any, ...] = ("VALID", "SAME", "SAME_LOWER", ((0, 1),), ((1, 1),), ((2, 0),))
    for n, k, s, pad, spread in product((1, 2, 3, 5), (1, 2, 3), (1, 2, 3), pads, (1, 2)):
        front = ((0, 0), (0, 0))
        pool = {
            "window_dimensions": (1, 1, k),
            "window_strides": (1, 1, s),
            "window_dilation": (1, 1, spread),
            "padding": pad if isinstance(pad, str) else (*front, *pad),
        }
        yield "max_pool", n, k, pool
        yield "avg_pool", n, k, {**pool, "divide_by": "cells" if s == 1 else "kernel"}
        conv = {"window_strides": (s,), "padding": pad, "rhs_dilation": (spread,)}
        yield "conv", n, k, conv
        if pad != "SAME_LOWER":
            layouts = {"dimension_numbers": ("NC0", "OI0", "NC0"), "transpose_kernel": True}
            yield "conv_transpose", n, k, {"strides": (s,), "padding": pad, "rhs_dilation": (spread,), **layouts}


def jax_call(op: str, n: int, k: int, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    import jax.numpy as jnp
    from jax import lax

    told = dict(arguments)
    by = told.pop("divide_by", None)
    x, w = jnp.asarray(units((n,)), jnp.float32), jnp.asarray(weights((k,)), jnp.float32)

    def call() -> Any:
        if op == "max_pool":
            return lax.reduce_window(x, -jnp.inf, lax.max, **told)
        if op == "avg_pool":
            total = lax.reduce_window(x, 0.0, lax.add, **told)
            return total / (k if by == "kernel" else lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, **told))
        return (lax.conv_general_dilated if op == "conv" else lax.conv_transpose)(x, w, **told)

    return call


def test_jax_means_what_the_dialect_says() -> None:
    """Sizes of every configuration; taps and divisors of some, since each costs a compilation."""
    import jax

    configurations_ = list(jax_configurations())
    said = []
    for op, n, k, arguments in configurations_:
        answer_, _ = meant("jax", op, shapes_of((n,), (k,) if "conv" in op else None), arguments)
        said.append(answer_)
    calls = [jax_call(*c) for c in configurations_]
    raw = [c[0] == "conv_transpose" and isinstance(a, str) for c, a in zip(configurations_, said, strict=True)]
    assert 0 < sum(raw) < len(raw) / 10, "lunette has no operator for some raw paddings of transposed convolutions"
    known = [(c, a, f) for c, a, f, is_raw in zip(configurations_, said, calls, raw, strict=True) if not is_raw]
    sizes = jax.eval_shape(lambda: [f() for _, _, f in known])
    for (c, a, _), size in zip(known, sizes, strict=True):
        assert not isinstance(a, str) and a.shape == size.shape, c
    some = known[:: len(known) // 40]
    compiled = jax.jit(lambda: [f() for _, _, f in some], compiler_options={"xla_backend_optimization_level": 0})()
    for (c, a, _), got in zip(some, compiled, strict=True):
        assert not isinstance(a, str) and same(a.astype(np.float32), np.asarray(got)), c


def test_jax_makes_ties_and_nan_as_the_dialect_says() -> None:
    import jax
    import jax.numpy as jnp
    from jax import lax

    corners = DIALECTS["jax"].corners
    x = jnp.array([2.0, 2.0, 1.0])
    pool = jax.grad(lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (3,)).sum())
    assert pool(x).tolist() == [1, 0, 0] and corners["max_pool"].ties == "the first in row-major order"
    assert jax.grad(jnp.max)(x).tolist() == [0.5, 0.5, 0] and corners["global_max_pool"].ties == "equal shares"
    assert np.isnan(lax.reduce_window(jnp.array([1, np.nan, 2]), -jnp.inf, lax.max, (3,))).all()
    assert lax.reduce_window(x, -jnp.inf, lax.max, (1,), padding=((1, 0),)).tolist()[0] == -np.inf
    assert corners["max_pool"].nan == "NaN if the window has one" and corners["max_pool"].empty == "-inf"


# ---- the others against their documents, worked by hand


def first_axis(meaning: Meaning) -> list[list[int]]:
    """The cells that each output cell of the first axis reads."""
    rest = (0,) * (len(meaning.out) - 1)
    return [[i[0] for _, i in meaning.window.taps((o, *rest), meaning.space)] for o in range(meaning.out[0])]


def divisors(meaning: Meaning) -> list[Any]:
    assert meaning.divisor is not None
    rest = (0,) * (len(meaning.out) - 1)
    return [meaning.divisor.at((o, *rest), meaning.space) for o in range(meaning.out[0])]


def plane(n: int) -> tuple[int, ...]:
    return (1, 1, n, 1)


READS: list[tuple[str, str, Any, Any, list[list[int]]]] = [
    # tf: SAME on 5 cells, window 2, step 2: 3 windows, 1 cell of padding, at the end
    ("tf", "max_pool", [(1, 1, 5)], {"ksize": 2, "strides": 2, "padding": "SAME"}, [[0, 1], [2, 3], [4]]),
    ("tf", "max_pool", [(1, 1, 5)], {"ksize": 3, "strides": 2, "padding": "VALID"}, [[0, 1, 2], [2, 3, 4]]),
    # window 4, step 3 on 4 cells: 2 windows, 3 cells of padding, 1 before and 2 behind
    ("tf", "conv", [(1, 1, 4), (1, 1, 4)], {"strides": 3, "padding": "SAME"}, [[0, 1, 2], [2, 3]]),
    ("tf", "max_pool", [plane(3)], {"ksize": (2, 1), "strides": (1, 1),
     "padding": [[0, 0], [0, 1], [0, 0], [0, 0]]}, [[0, 1], [1, 2], [2]]),
    # the gradient of SAME at 5 outputs: ceil(5/2) = 3 cells, one cropped at the end
    ("tf", "conv_transpose", [(1, 1, 3), (1, 1, 3)],
     {"strides": 2, "padding": "SAME", "output_shape": (1, 5, 1)}, [[0], [1, 0], [1], [2, 1], [2]]),
    # 2 cells of 4 outputs, window 3, step 2: 5 - 4 = 1 cell cropped, at the end
    ("tf", "conv_transpose", [(1, 1, 2), (1, 1, 3)],
     {"strides": 2, "padding": "SAME", "output_shape": (1, 4, 1)}, [[0], [0], [1, 0], [1]]),
    # keras: pool_size 2, strides None is 2
    ("keras", "max_pool", [(1, 1, 5)], {}, [[0, 1], [2, 3]]),
    ("keras", "conv", [(1, 1, 3), (1, 1, 2)], {"padding": "causal"}, [[0], [0, 1], [1, 2]]),
    # valid without output_padding reaches n*stride + max(k - s, 0) = 3*3 = 9 cells
    ("keras", "conv_transpose", [(1, 1, 3), (1, 1, 2)], {"strides": 3},
     [[0], [0], [], [1], [1], [], [2], [2], []]),
    # same with output_padding 0: (n-1)*s + k - 2*(k//2) = 2*2 + 3 - 2 = 5
    ("keras", "conv_transpose", [(1, 1, 3), (1, 1, 3)],
     {"strides": 2, "padding": "same", "output_padding": 0}, [[0], [1, 0], [1], [2, 1], [2]]),
    # equinox: (4 - 2) % 3 = 2, so 3 cells more: floor((4 + 3 - 2) / 3) + 1 = 2 windows
    ("equinox", "max_pool", [(1, 1, 4)], {"kernel_size": 3, "stride": 3, "use_ceil": True}, [[0, 1, 2], [3]]),
    ("equinox", "max_pool", [(1, 1, 3)], {"kernel_size": 2}, [[0, 1], [1, 2]]),
    ("equinox", "adaptive_max_pool", [(1, 1, 10)], {"target_shape": 4}, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    # a window that starts beyond the input stays: 3 + 1 - 1 = 3 is no multiple of 2
    ("equinox", "max_pool", [(1, 1, 3)], {"kernel_size": 3, "stride": 2, "padding": ((0, 1),), "use_ceil": True},
     [[0, 1, 2], [2]]),
    # tosa: (5 + 1 + 0 - 2) / 2 + 1 = 3
    ("tosa", "max_pool", [plane(5)], {"kernel": (2, 1), "stride": (2, 1), "pad": [1, 0, 0, 0]},
     [[0], [1, 2], [3, 4]]),
    # (3 - 1) * 2 - 1 + 3 = 6 rows, the first of 7 cut away
    ("tosa", "conv_transpose", [plane(3), (1, 1, 3, 1)], {"stride": (2, 1), "out_pad": [-1, 0, 0, 0]},
     [[0], [1, 0], [1], [2, 1], [2], [2]]),
    # webnn: ceil(1 + (4 - 2) / 3) = 2 although ...
    ("webnn", "max_pool", [plane(4)],
     {"windowDimensions": (2, 1), "strides": (3, 1), "outputShapeRounding": "ceil"}, [[0, 1], [3]]),
    # ... ceil(1 + (5 + 2 - 2) / 4) = 3, the last of them starting behind the input
    ("webnn", "max_pool", [plane(5)],
     {"windowDimensions": (2, 1), "strides": (4, 1), "padding": [1, 1, 0, 0], "outputShapeRounding": "ceil"},
     [[0], [3, 4], []]),
    ("webnn", "max_pool", [plane(3)], {}, [[0, 1, 2]]),
    ("webnn", "max_pool", [plane(4)], {"windowDimensions": (3, 1), "strides": (2, 1), "outputSizes": (2, 1)},
     [[0, 1, 2], [2, 3]]),
    ("webnn", "conv_transpose", [plane(2), (1, 1, 1, 1)], {"strides": (2, 1), "outputSizes": (4, 1)},
     [[0], [], [1], []]),
    # onnx: before 22 the window that starts in the right padding stays
    ("onnx10", "max_pool", [(1, 1, 5)], {"kernel_shape": [2], "strides": [4], "pads": [1, 1], "ceil_mode": 1},
     [[0], [3, 4], []]),
    ("onnx19", "max_pool", [(1, 1, 5)], {"kernel_shape": [2], "strides": [4], "pads": [1, 1], "ceil_mode": 1},
     [[0], [3, 4], []]),
    ("onnx22", "max_pool", [(1, 1, 5)], {"kernel_shape": [2], "strides": [4], "pads": [1, 1], "ceil_mode": 1},
     [[0], [3, 4]]),
    # VALID: ceil((4 - 2 + 1) / 2) = 2 with and without ceil mode
    ("onnx22", "max_pool", [(1, 1, 5)], {"kernel_shape": [2], "strides": [2], "auto_pad": "VALID", "ceil_mode": 1},
     [[0, 1], [2, 3]]),
    ("onnx22", "max_pool", [(1, 1, 4)], {"kernel_shape": [2], "auto_pad": "SAME_LOWER"},
     [[0], [0, 1], [1, 2], [2, 3]]),
    # 3 cells of 5 outputs wanted: 7 - 4 = 3 to crop, the odd one at the end for SAME_UPPER, and before opset 11 not
    *[
        (name, "conv_transpose", [(1, 1, 3), (1, 1, 3)],
         {"strides": [2], "auto_pad": auto, "output_shape": [4]}, reads)
        for name, auto, reads in (
            ("onnx22", "SAME_UPPER", [[0], [1, 0], [1], [2, 1]]),
            ("onnx22", "SAME_LOWER", [[1, 0], [1], [2, 1], [2]]),
            ("onnx10", "SAME_UPPER", [[1, 0], [1], [2, 1], [2]]),
            ("onnx10", "SAME_LOWER", [[0], [1, 0], [1], [2, 1]]),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "shapes", "arguments", "reads"), READS)
def test_windows_are_those_of_the_document(
    name: str, op: str, shapes: Any, arguments: dict[str, Any], reads: list[list[int]]
) -> None:
    meaning = dialect(name).meaning(op, shapes, arguments)
    assert first_axis(meaning) == reads


DIVIDES: list[tuple[str, Any, Any, list[int]]] = [
    ("tf", [(1, 1, 5)], {"ksize": 2, "strides": 2, "padding": "SAME"}, [2, 2, 1]),
    ("keras", [(1, 1, 5)], {"padding": "same"}, [2, 2, 1]),
    ("equinox", [(1, 1, 4)], {"kernel_size": 3, "stride": 3, "padding": ((1, 0),), "use_ceil": True}, [3, 3]),
    ("tosa", [plane(5)], {"kernel": (2, 1), "stride": (2, 1), "pad": [1, 0, 0, 0]}, [1, 2, 2]),
    ("webnn", [plane(4)], {"windowDimensions": (3, 1), "strides": (2, 1), "padding": [1, 1, 0, 0]}, [2, 3]),
    # 5 cells, 1 of padding before, window 3, step 2, ceil mode: the last window hangs over by one cell
    *[
        (
            name,
            [(1, 1, 5)],
            {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1, "count_include_pad": include},
            by,
        )
        for name, include, by in (
            ("onnx10", 1, [3, 3, 3]),
            ("onnx19", 1, [3, 3, 2]),
            ("onnx22", 1, [3, 3, 2]),
            ("onnx10", 0, [2, 3, 2]),
            ("onnx22", 0, [2, 3, 2]),
        )
    ],
    ("jax", [(1, 1, 3)], {"window_dimensions": (1, 1, 2), "padding": ((0, 0), (0, 0), (1, 0))}, [2, 2, 2]),
    (
        "jax",
        [(1, 1, 3)],
        {"window_dimensions": (1, 1, 2), "padding": ((0, 0), (0, 0), (1, 0)), "divide_by": "cells"},
        [1, 2, 2],
    ),
]


@pytest.mark.parametrize(("name", "shapes", "arguments", "by"), DIVIDES)
def test_averages_divide_by_what_the_document_says(
    name: str, shapes: Any, arguments: dict[str, Any], by: list[int]
) -> None:
    assert divisors(dialect(name).meaning("avg_pool", shapes, arguments)) == by


def test_groups_are_in_the_shape_of_the_filters_where_they_are_no_argument() -> None:
    shapes = [(1, 4, 5, 5), (8, 1, 3, 3)]
    for name in ("tf", "tosa"):
        call = dialect(name).express("conv", shapes, {"groups": 4})
        assert isinstance(call, Call) and "groups" not in call.arguments
        assert dialect(name).meaning("conv", shapes, call.arguments).options["groups"] == 4
        assert call.function == {"tf": "tf.nn.conv2d", "tosa": "DEPTHWISE_CONV2D"}[name]


# ---- there and back


OTHERS = [name for name in DIALECTS if name != "lunette"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_expressed_means_what_was_asked_and_what_can_be_said_is_expressed(name: str) -> None:
    """On every configuration of 3 cells: a call that means it is found whenever some call of the same grid means it."""
    spoken = DIALECTS[name]
    said, unsaid = 0, 0
    for op in ("max_pool", "avg_pool", "conv", "conv_transpose"):
        d = rank(spoken, DIALECTS["lunette"], op)
        asked, sayable = {}, set()
        for c in [c for c in configurations(op, 3) if c.n == 3][:: 3 if op == "avg_pool" else 1]:
            mine, theirs = answer(DIALECTS["lunette"], c, d), answer(spoken, c, d)
            if mine.meaning is not None:
                asked[signature(mine.meaning)] = c
            if theirs.meaning is not None and not theirs.meaning.has_empty_windows:
                sayable.add(signature(theirs.meaning))
        for key, c in asked.items():
            call = spoken.express(op, c.shapes(d), c.words(d))
            assert bool(call) or key not in sayable, (op, c, call)
            if isinstance(call, Call):
                said += 1
                assert signature(spoken.meaning(op, c.shapes(d), call.arguments)) == key, (op, c, call)
            else:
                unsaid += 1
                assert call.reason.startswith(f"{name} {op} (d={d}) [")
    assert said > 50, (said, unsaid)


@pytest.mark.parametrize("name", OTHERS)
def test_options_that_come_near_are_the_meaning_where_lunette_has_it(name: str) -> None:
    """`Meaning.options` handed to lunette's own operators, on inputs with a single one."""
    compared = 0
    for op in ("max_pool", "avg_pool", "conv", "conv_transpose"):
        d = rank(DIALECTS[name], DIALECTS["lunette"], op)
        for at, c in enumerate(configurations(op, 4)):
            theirs = answer(DIALECTS[name], c, d).meaning if at % 17 == 0 else None
            if theirs is None or theirs.in_lunette() is not None:
                continue
            operands = [units(theirs.space)] + ([weights(theirs.kernel)] if "conv" in op else [])
            if theirs.has_empty_windows and op == "max_pool":
                with pytest.raises(ln.ShapeError, match=r"\[M1\]"):
                    ln.max_pool(operands[0], **theirs.options)
                continue
            if theirs.has_empty_windows and op == "avg_pool" and not theirs.options["count_include_pad"]:
                continue
            y = getattr(ln, op)(*operands, **theirs.options)
            assert same(y, response(theirs)), (op, c)
            compared += 1
    assert compared > 15


@pytest.mark.parametrize("name", ["torch", "onnx22", "jax", "equinox"])
@pytest.mark.parametrize("op", ["adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "global_max_pool"])
def test_bins_that_are_alike_are_sliding_windows(name: str, op: str) -> None:
    spoken, said = DIALECTS[name], 0
    for n, m in product(range(1, 9), range(1, 9)):
        options = {"output_size": (m,)} if "adaptive" in op else {"spatial": 1}
        shapes = [(1, 1, n)]
        wanted = meaning_of(setting_of(op, shapes, options))
        call = spoken.express(op, shapes, options)
        uniform = n % m == 0 or "global" in op
        assert call or not uniform
        if isinstance(call, Call):
            said += 1
            kind = next(
                k for k, f in spoken.functions.items() if f.name.format(d=1) == call.function and k[-8:] == op[-8:]
            )
            assert signature(spoken.meaning(kind, shapes, call.arguments))[:3] == signature(wanted)[:3]
    assert said >= 20


def test_an_operator_that_nobody_has_is_unsaid_everywhere() -> None:
    for name in OTHERS:
        call = DIALECTS[name].express("smooth_max_pool", [(1, 1, 4)], {"kernel": (2,), "beta": 1.0})
        assert isinstance(call, Unsaid) and "[DI1]" in str(call)


def test_batches_and_ranks_beyond_three() -> None:
    options = {"kernel": (2, 1, 1, 2), "stride": 1}
    shapes = [(2, 3, 4, 1, 2, 4)]
    call = dialect("jax").express("max_pool", shapes, options)
    assert isinstance(call, Call) and call.arguments["window_dimensions"] == (1, 1, 2, 1, 1, 2)
    assert dialect("onnx22").express("max_pool", shapes, options)
    assert not dialect("torch").express("max_pool", shapes, options)
    unbatched = dialect("jax").express("max_pool", [(3, 4)], {"kernel": (2,)})
    assert isinstance(unbatched, Call) and unbatched.arguments["window_dimensions"] == (1, 2)


def test_what_torch_computes_otherwise_on_some_values_is_said() -> None:
    odd = dialect("torch").express("lp_pool", [(1, 1, 4)], {"kernel": (2,), "p": 3})
    even = dialect("torch").express("lp_pool", [(1, 1, 4)], {"kernel": (2,), "p": 2})
    assert isinstance(odd, Call) and isinstance(even, Call)
    assert len(odd.departures) == 1 and "x^p" in odd.departures[0] and not even.departures
    assert odd.corners is None or odd.corners.ties is None
