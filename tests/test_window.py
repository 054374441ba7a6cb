"""The formulas of window.py against windows slid by hand, and against torch and onnxruntime.

The hand knows no formula. It lays the padded input out as a strip of labelled cells, puts the window at its start,
reads the labels under the taps, and steps on by the stride while the window fits, for every small configuration.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from effort import LONG
from lunette.errors import ArgumentError, ShapeError
from lunette.window import Axis, Bins, Geometry, PaddingWord, Transposed, Window, axis_table, taps

ort: Any = importlib.import_module("onnxruntime")  # it has no types

SMALL = range(1, 7)
PADS = range(7)
DAYS = 1 if LONG else 3
"""All configurations by night; by day a third of them."""
LEFT, RIGHT = "left padding", "right padding"
Pairs = list[tuple[int, int]]


# ---- the hand


def strip_of(n: int, lo: int, hi: int) -> list[Any]:
    """The padded input: a label for every cell of padding, its own number for every cell of the input."""
    return [LEFT] * lo + list(range(n)) + [RIGHT] * hi


def slide(strip: list[Any], kernel: int, stride: int, dilation: int) -> tuple[list[list[Any]], list[Any] | None]:
    """The labels under every window that fits, and under the one that ceil mode adds, if it does."""
    fitting: list[list[Any]] = []
    start = 0
    while True:
        places = [start + k * dilation for k in range(kernel)]
        under = [strip[p] if p < len(strip) else "overhang" for p in places]
        if "overhang" in under:
            break
        fitting.append(under)
        start += stride
    # Ceil mode: the next window hangs over by less than a stride, and starts before the right padding.
    overhang = places[-1] + 1 - len(strip)
    wanted = overhang < stride and start < len(strip) and strip[start] != RIGHT
    return fitting, under if wanted else None


def pairs_of(under: list[Any]) -> Pairs:
    return [(k, cell) for k, cell in enumerate(under) if isinstance(cell, int)]


def check_axis(axis: Geometry, n: int, pairs: list[Pairs], inside: list[int], step: int) -> None:
    """Everything an axis can tell, against what the hand has read."""
    assert axis.out(n) == len(pairs)
    assert [list(taps(axis, o, n)) for o in range(len(pairs))] == pairs
    assert [axis.inside(o, n) for o in range(len(pairs))] == inside
    if not isinstance(axis, Transposed):
        assert axis.first_empty(n) == next((o for o, p in enumerate(pairs) if not p), None)
    table = axis_table(axis, n)
    assert (table.n, table.m) == (n, len(pairs))
    assert table.count.tolist() == [len(p) for p in pairs]
    assert table.first.tolist() == [p[0][1] if p else 0 for p in pairs]
    assert table.inside.tolist() == inside
    assert all(len(p) < 2 for p in pairs) or table.step == step


@pytest.mark.parametrize("n", range(7))
def test_sliding_windows_are_those_slid_by_hand(n: int) -> None:
    checked = 0
    for lo, hi in product(PADS, PADS):
        strip = strip_of(n, lo, hi)
        for kernel, stride, dilation in product(SMALL, SMALL, SMALL):
            if (lo + hi + kernel + stride + dilation) % DAYS:
                continue
            fitting, extra = slide(strip, kernel, stride, dilation)
            floor, ceil = (Axis(kernel, stride, dilation, lo, hi, mode) for mode in (False, True))
            pairs = [pairs_of(under) for under in fitting]
            inside = [kernel] * len(fitting)
            for axis, more in ((floor, None), (ceil, extra)):
                if more is not None:
                    pairs.append(pairs_of(more))
                    inside.append(kernel - more.count("overhang"))
                    check_axis(axis, n, pairs, inside, dilation)
                elif not pairs:
                    with pytest.raises(ShapeError):
                        axis.out(n)
                elif axis is floor:
                    check_axis(axis, n, pairs, inside, dilation)
                else:
                    assert axis.out(n) == len(pairs)
            checked += 1
    assert checked * DAYS > 2000


@pytest.mark.parametrize("lower", [False, True])
def test_same_is_the_least_padding_that_gives_one_window_per_stride(lower: bool) -> None:
    for n, kernel, stride, dilation in product(range(7), SMALL, SMALL, SMALL):
        axis = Axis.same(n, kernel, stride, dilation, lower)
        if n == 0:
            with pytest.raises(ShapeError):
                axis.out(n)
            continue
        wanted = len(range(0, n, stride))
        total = next(t for t in range(99) if len(slide(strip_of(n, 0, t), kernel, stride, dilation)[0]) == wanted)
        larger, smaller = (total + 1) // 2, total // 2
        assert (axis.lo, axis.hi) == ((larger, smaller) if lower else (smaller, larger))
        assert axis.out(n) == wanted
        for ceil_mode in (False, True):
            name: PaddingWord = "same_lower" if lower else "same"
            assert Window.sliding((n,), kernel, stride, name, dilation, ceil_mode).axes == (axis,)


def test_bins_are_equal_lengths_of_the_input_cut_out_whole() -> None:
    """Cut every cell into m pieces: a bin is n pieces in a row, and it reads every cell it has a piece of."""
    for n, m in product(range(1, 13), range(1, 13)):
        owner = [i for i in range(n) for _ in range(m)]
        bins = [sorted(set(owner[o * n : (o + 1) * n])) for o in range(m)]
        pairs = [list(enumerate(cells)) for cells in bins]
        check_axis(Bins(m), n, pairs, [len(p) for p in pairs], 1)


def scattered(n: int, kernel: int, stride: int, dilation: int, lo: int) -> dict[int, Pairs]:
    """Every product of a transposed window, dropped where it falls."""
    fallen: dict[int, Pairs] = {}
    for k, i in product(range(kernel), range(n)):
        fallen.setdefault(i * stride - lo + k * dilation, []).append((k, i))
    return fallen


@pytest.mark.parametrize("n", SMALL)
def test_transposed_windows_gather_what_falls_on_them(n: int) -> None:
    for kernel, stride, dilation, lo in product(SMALL, SMALL, SMALL, PADS):
        if (lo + kernel + stride + dilation) % DAYS:
            continue
        fallen = scattered(n, kernel, stride, dilation, lo)
        cells = max(fallen) + 1  # up to the last one that anything falls on; those before cell 0 are cropped
        for extra, hi in product(range(max(stride, dilation)), PADS):
            axis = Transposed(kernel, stride, dilation, lo, hi, extra)
            if cells - hi + extra < 1:
                with pytest.raises(ShapeError):
                    axis.out(n)
            else:
                assert axis.out(n) == cells - hi + extra
        widest = Transposed(kernel, stride, dilation, lo, 0, max(stride, dilation) - 1)
        size = cells + max(stride, dilation) - 1
        if size < 1:
            continue
        pairs = [fallen.get(o, []) for o in range(size)]
        assert [list(taps(widest, o, n)) for o in range(size)] == pairs
        every = widest.reach(np.arange(size), n, np.minimum, np.maximum)
        assert every.count.tolist() == [len(p) for p in pairs]
        for o, p in enumerate(pairs):
            if p:
                assert (every.k[o], every.i[o]) == p[0]
            if len(p) > 1:
                assert (every.k_step, every.i_step) == (p[1][0] - p[0][0], p[1][1] - p[0][1])


def test_output_padding_stays_below_stride_and_dilation() -> None:
    for stride, dilation in product(SMALL, SMALL):
        Transposed(2, stride, dilation, output_padding=max(stride, dilation) - 1)
        for wrong in (-1, max(stride, dilation)):
            with pytest.raises(ArgumentError):
                Transposed(2, stride, dilation, output_padding=wrong)


@pytest.mark.parametrize("lower", [False, True])
def test_transposed_same_is_the_adjoint_of_same(lower: bool) -> None:
    """It gives n*stride cells, and reads backwards the pairs of the "same" window that maps them to n."""
    for n, kernel, stride, dilation in product(SMALL, SMALL, SMALL, SMALL):
        axis = Transposed.same(kernel, stride, dilation, lower)
        assert axis.out(n) == n * stride
        back = Axis.same(n * stride, kernel, stride, dilation, lower)
        windows, _ = slide(strip_of(n * stride, back.lo, back.hi), kernel, stride, dilation)
        there = sorted((cell, k, i) for i, under in enumerate(windows) for k, cell in pairs_of(under))
        assert there == sorted((o, k, i) for o in range(n * stride) for k, i in taps(axis, o, n))


def test_windows_of_several_axes_are_products_of_axes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(0, 4))
        n, kernel, stride, dilation = (tuple(rng.integers(1, 4, d).tolist()) for _ in range(4))
        padding = tuple((int(lo), int(hi)) for lo, hi in rng.integers(0, 4, (d, 2)))
        window = Window.sliding(n, kernel, stride, padding, dilation)
        hands = [slide(strip_of(n[a], *padding[a]), kernel[a], stride[a], dilation[a])[0] for a in range(d)]
        if not all(hands):
            with pytest.raises(ShapeError):
                window.out(n)
            continue
        assert window.out(n) == tuple(map(len, hands))
        empty = []
        for o in product(*(range(len(h)) for h in hands)):
            under = list(product(*(pairs_of(h[p]) for h, p in zip(hands, o, strict=True))))
            wanted = [(tuple(k for k, _ in cell), tuple(i for _, i in cell)) for cell in under]
            assert list(window.taps(o, n)) == wanted
            assert window.inside(o, n) == np.prod(kernel, dtype=int)
            if not wanted:
                empty.append(o)
        assert window.empty_cell(n) == min(empty, default=None)
        assert [t.m for t in window.tables(n)] == [len(h) for h in hands]


# ---- huge arguments


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("huge", [2**31, 2**62, 2**63, 2**70])
def test_huge_arguments_are_exact_and_quick(huge: int) -> None:
    with at_most(5):
        assert Axis(1, stride=huge).out(5) == 1
        assert Axis(1, stride=huge).out(huge) == 1
        assert Axis(1, stride=huge).out(huge + 1) == 2
        assert Axis(1, stride=huge, ceil=True).out(huge) == 1
        assert Axis(2, stride=huge, ceil=True).out(huge + 1) == 2
        assert Axis(2, dilation=huge).out(huge + 1) == 1
        assert Axis(3, 1, huge, huge, huge).out(5) == 5
        assert list(taps(Axis(3, 1, huge, huge, huge), 4, 5)) == [(1, 4)]
        assert axis_table(Axis(3, 1, huge, huge, huge), 5).first.tolist() == [0, 1, 2, 3, 4]
        assert axis_table(Axis(3, 1, huge, huge, huge), 5).inside.tolist() == [3] * 5
        with pytest.raises(ShapeError):
            Axis(huge).out(huge - 1)
        # A kernel far wider than the input reads the input and nothing else.
        wide = Axis(huge, lo=huge - 1, hi=huge - 1)
        assert wide.out(3) == huge + 2
        assert list(taps(wide, 0, 3)) == [(huge - 1, 0)]
        assert list(taps(wide, 1, 3)) == [(huge - 2, 0), (huge - 1, 1)]
        assert list(taps(wide, huge + 1, 3)) == [(0, 2)]
        assert wide.inside(huge + 1, 3) == huge
        assert wide.first_empty(3) is None
        assert Axis(huge, lo=huge, hi=huge).first_empty(3) == 0
        assert Axis(huge, lo=huge - 1, hi=huge).first_empty(3) == huge + 2
        assert Axis(1, hi=huge).first_empty(3) == 3
        assert Axis.same(huge, 3, 2, 1, lower=False).out(huge) == huge // 2
        # Bins and transposed windows.
        assert list(taps(Bins(huge), huge - 1, 3)) == [(0, 2)]
        assert Bins(3).reach(1, 3 * huge).count == huge
        assert Bins(2).first_empty(huge) is None
        spread = Transposed(2, stride=huge)
        assert spread.out(3) == 2 * huge + 2
        assert list(taps(spread, huge + 1, 3)) == [(1, 1)]
        assert list(taps(spread, huge + 2, 3)) == []
        deep = Transposed(huge, stride=3, dilation=2, lo=2 * huge - 4)
        assert deep.out(4) == 9 - (2 * huge - 4) + 2 * huge - 1
        assert list(taps(deep, 2, 4)) == [(huge - 4, 2), (huge - 1, 0)]
        assert list(taps(deep, 5, 4)) == [(huge - 4, 3), (huge - 1, 1)]
        assert list(taps(deep, 11, 4)) == [(huge - 1, 3)]


def test_steps_longer_than_the_input_are_not_tried_one_by_one() -> None:
    """Every window of 2**40 reads the one cell there is: finding none empty must not take a step per window."""
    kernel = 2**40
    axis = Axis(kernel, 2, 2, 2 * kernel - 2, 2 * kernel - 2)
    assert axis.out(1) == kernel
    with at_most(2):
        assert axis.first_empty(1) is None


# ---- torch, where it defines the case


def basis(n: int) -> torch.Tensor:
    """Every cell of the input on its own."""
    return torch.eye(n, dtype=torch.float64)[:, None, :]


def powers(kernel: int) -> torch.Tensor:
    """A weight that names its kernel cell."""
    return torch.tensor([2.0**k for k in range(kernel)], dtype=torch.float64)[None, None]


def read_weights(y: Any, kernel: int) -> list[Pairs]:
    """The taps of every output cell, from a convolution of the basis with the powers of two."""
    sums = np.asarray(y)[:, 0].astype(np.int64)
    return [
        [(k, i) for k in range(kernel) for i in range(sums.shape[0]) if sums[i, o] >> k & 1]
        for o in range(sums.shape[1])
    ]


@pytest.mark.parametrize("n", SMALL)
def test_torch_convolves_over_the_same_windows(n: int) -> None:
    for kernel, stride, dilation, pad in product(SMALL, SMALL, SMALL, (0, 1, 2, 3, 6)):
        axis = Axis(kernel, stride, dilation, pad, pad)
        if n + 2 * pad < axis.span:
            continue  # torch refuses, and so do we: test_sliding_windows_are_those_slid_by_hand
        y = torch.nn.functional.conv1d(basis(n), powers(kernel), stride=stride, padding=pad, dilation=dilation)
        assert y.shape[2] == axis.out(n)
        assert read_weights(y, kernel) == [list(taps(axis, o, n)) for o in range(axis.out(n))]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_torch_transposes_the_same_windows(n: int) -> None:
    for kernel, stride, dilation, pad in product((1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 4), (0, 1, 3)):
        for extra in range(max(stride, dilation)):
            axis = Transposed(kernel, stride, dilation, pad, pad, extra)
            if (n - 1) * stride - 2 * pad + axis.span + extra < 1:
                continue
            y = torch.nn.functional.conv_transpose1d(
                basis(n), powers(kernel), stride=stride, padding=pad, dilation=dilation, output_padding=extra
            )
            assert read_weights(y, kernel) == [sorted(taps(axis, o, n)) for o in range(axis.out(n))]


@pytest.mark.parametrize("n", SMALL)
def test_torch_pools_over_the_same_windows(n: int) -> None:
    """Max pooling of rising and falling values names the last and the first cell; of the basis, averages name all."""
    pool = torch.nn.functional
    rising = torch.arange(n, dtype=torch.float64)[None]
    for kernel, stride, dilation, ceil in product(SMALL, SMALL, SMALL, (False, True)):
        for pad in range(kernel // 2 + 1):
            axis = Axis(kernel, stride, dilation, pad, pad, ceil)
            if n + 2 * pad + (stride - 1 if ceil else 0) < axis.span:
                continue
            read = [[i for _, i in taps(axis, o, n)] for o in range(axis.out(n))]
            arguments = (kernel, stride, pad, dilation, ceil)
            _, last = pool.max_pool1d(rising, *arguments, return_indices=True)
            _, first = pool.max_pool1d(-rising, *arguments, return_indices=True)
            assert last.shape[1] == len(read)
            filled = [o for o, cells in enumerate(read) if cells]  # what torch answers without cells is no cell
            assert [int(last[0, o]) for o in filled] == [read[o][-1] for o in filled]
            assert [int(first[0, o]) for o in filled] == [read[o][0] for o in filled]
            if dilation == 1:
                for include in (True, False):
                    y = pool.avg_pool1d(basis(n), kernel, stride, pad, ceil, include)[:, 0]
                    count = [axis.inside(o, n) if include else len(cells) for o, cells in enumerate(read)]
                    wanted = [[(i in cells) / c for cells, c in zip(read, count, strict=True)] for i in range(n)]
                    assert y.tolist() == wanted


def test_torch_adapts_with_the_same_bins() -> None:
    for n, m in product(range(1, 13), range(1, 13)):
        y = torch.nn.functional.adaptive_avg_pool1d(basis(n), m)[:, 0]
        read = [[i for _, i in taps(Bins(m), o, n)] for o in range(m)]
        assert y.tolist() == [[(i in cells) / len(cells) for cells in read] for i in range(n)]


# ---- onnxruntime, where it defines the case


def onnx_runs(operator: str, inputs: dict[str, Any], attributes: dict[str, Any], outputs: int = 1) -> list[Any]:
    """One node of opset 22, run."""
    names = [f"y{p}" for p in range(outputs)]
    node = helper.make_node(operator, list(inputs), names, **attributes)
    kinds = [TensorProto.FLOAT, TensorProto.INT64]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(y, kind, None) for y, kind in zip(names, kinds, strict=False)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    answers: list[Any] = session.run(None, inputs)
    return answers


def drawn(count: int, seed: int) -> Iterator[Callable[[int, int], int]]:
    """A seeded die per configuration: die(least, most), both ends thrown."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield lambda least, most: int(rng.integers(least, most + 1))


def float_basis(n: int) -> Any:
    return np.eye(n, dtype=np.float32)[:, None, :]


def check_average(axis: Axis, n: int, include: bool, y: Any) -> None:
    """The average of the basis tells which cells a window reads, and what it divides by."""
    read = [[i for _, i in taps(axis, o, n)] for o in range(axis.out(n))]
    assert y.shape[2] == len(read)
    for o, cells in enumerate(read):
        count = axis.inside(o, n) if include else len(cells)
        wanted = [np.float32(1) / np.float32(count) if i in cells else np.float32(0) for i in range(n)]
        assert y[:, 0, o].tolist() == wanted


def test_onnxruntime_pools_over_the_same_windows() -> None:
    checked = 0
    for die in drawn(300, 1):
        n, kernel, stride, dilation = die(1, 9), die(1, 5), die(1, 4), die(1, 3)
        lo, hi, ceil, include = die(0, kernel - 1), die(0, kernel - 1), bool(die(0, 1)), bool(die(0, 1))
        axis = Axis(kernel, stride, dilation, lo, hi, ceil)
        if n + lo + hi < axis.span or axis.first_empty(n) is not None:
            continue
        geometry = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation], "pads": [lo, hi]}
        attributes = {**geometry, "ceil_mode": int(ceil)}
        (y,) = onnx_runs("AveragePool", {"x": float_basis(n)}, {**attributes, "count_include_pad": int(include)})
        check_average(axis, n, include, y)
        rising = np.arange(n, dtype=np.float32)[None, None]
        _, last = onnx_runs("MaxPool", {"x": rising}, attributes, 2)
        assert last[0, 0].tolist() == [list(taps(axis, o, n))[-1][1] for o in range(axis.out(n))]
        checked += 1
    assert checked > 120


def test_onnxruntime_pads_the_same_for_same() -> None:
    """Without dilation, which it ignores there, and with stride <= kernel, beyond which it refuses."""
    for die in drawn(150, 2):
        n, kernel, lower = die(1, 9), die(1, 5), bool(die(0, 1))
        stride = die(1, kernel)
        name = "SAME_LOWER" if lower else "SAME_UPPER"
        axis = Axis.same(n, kernel, stride, 1, lower)
        attributes = {"kernel_shape": [kernel], "strides": [stride], "auto_pad": name}
        (y,) = onnx_runs("AveragePool", {"x": float_basis(n)}, {**attributes, "count_include_pad": 0})
        check_average(axis, n, False, y)
        rising = np.arange(n, dtype=np.float32)[None, None]
        _, last = onnx_runs("MaxPool", {"x": rising}, attributes, 2)
        assert last[0, 0].tolist() == [list(taps(axis, o, n))[-1][1] for o in range(axis.out(n))]


def test_onnxruntime_convolves_over_the_same_lopsided_windows() -> None:
    checked = 0
    for die in drawn(200, 3):
        n, kernel, stride, dilation, lo, hi = die(1, 7), die(1, 5), die(1, 4), die(1, 3), die(0, 4), die(0, 4)
        axis = Axis(kernel, stride, dilation, lo, hi)
        if n + lo + hi < axis.span:
            continue
        inputs = {"x": float_basis(n), "w": powers(kernel).numpy().astype(np.float32)}
        (y,) = onnx_runs("Conv", inputs, {"strides": [stride], "dilations": [dilation], "pads": [lo, hi]})
        assert read_weights(y, kernel) == [list(taps(axis, o, n)) for o in range(axis.out(n))]
        checked += 1
    assert checked > 80


def test_onnxruntime_transposes_the_same_lopsided_windows() -> None:
    checked = 0
    for die in drawn(200, 4):
        n, kernel, stride, dilation, lo, hi = die(1, 6), die(1, 5), die(1, 4), die(1, 3), die(0, 3), die(0, 3)
        extra = die(0, stride - 1)  # onnxruntime refuses more, whatever the dilation
        axis = Transposed(kernel, stride, dilation, lo, hi, extra)
        if (n - 1) * stride - lo - hi + axis.span + extra < 1:
            continue
        inputs = {"x": float_basis(n), "w": powers(kernel).numpy().astype(np.float32)}
        attributes = {"strides": [stride], "dilations": [dilation], "pads": [lo, hi], "output_padding": [extra]}
        (y,) = onnx_runs("ConvTranspose", inputs, attributes)
        assert read_weights(y, kernel) == [sorted(taps(axis, o, n)) for o in range(axis.out(n))]
        checked += 1
    assert checked > 120
