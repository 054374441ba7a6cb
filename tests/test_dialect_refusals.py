"""What dialects refuse, in whole sentences; and whatever comes in, a meaning or a refusal."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest

import lunette as ln
from lunette import dialects
from lunette.dialects import DIALECTS, Meaning, Unsaid, dialect, diff
from lunette.dialects.dialect import REQUIRED


def means(name: str, op: str, *shapes: Any, **arguments: Any) -> Callable[[], Any]:
    return lambda: dialect(name).meaning(op, shapes, arguments)


def says(name: str, op: str, *shapes: Any, **options: Any) -> Callable[[], Any]:
    return lambda: dialect(name).spell(op, shapes, options)


def is_said(name: str, op: str, *shapes: Any, **options: Any) -> Callable[[], Any]:
    def raised() -> None:
        call = dialect(name).express(op, shapes, options)
        assert isinstance(call, Unsaid)
        raise ln.ArgumentError("DI4", "", "", str(call))

    return raised


X, Y, W = (1, 1, 5), (1, 1, 5, 5), (1, 1, 3)
REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "DI1": (means("tosa", "lp_pool", Y), r"tosa lp_pool \[DI1\] needs an operator that tosa has: conv, .*"),
    "DI2": (
        means("torch", "max_pool", X, kernel_size=2, stide=1),
        r"torch max_pool \(d=1\) \[DI2\] needs arguments of max_pool1d among \(kernel_size, .*\); got an unknown "
        r"stide. Did you mean stride\?",
    ),
    "DI3": (
        says("torch", "avg_pool", X, kernel=(2,), dilation=2),
        r"torch avg_pool \(d=1\) \[DI3\] needs dilation=1, which is what avg_pool1d always uses; got dilation=2. .*",
    ),
    "DI4": (
        is_said("equinox", "avg_pool", (1, 1, 3), kernel=(2,), ceil_mode=True),
        r".*equinox avg_pool \(d=1\) \[DI4\] needs words that mean avg_pool with these options; got another divisor.*",
    ),
    "DI5": (lambda: dialect("onnx23"), r"dialect \[DI5\] needs a dialect among lunette, torch, .*; got 'onnx23'. .*"),
    "DI6": (
        lambda: diff("torch", "tosa", "lp_pool"),
        r".*\[DI6\] needs an operator that both torch and tosa have: conv, conv_transpose, max_pool, avg_pool; got .*",
    ),
    "DI7": (
        means("tosa", "max_pool", Y, kernel=2, stride=1, pad=[0, 0, 0]),
        r"tosa max_pool \(d=2\) \[DI7\] needs pad for 2 spatial axes, as the document has it; got pad=\[0, 0, 0\] .*",
    ),
    "PT1": (
        means("torch", "conv", (1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1)),
        r".*needs 1, 2 or 3 spatial axes; got 4. .*",
    ),
    "PT2": (says("torch", "conv", X, W, padding=((0, 1),)), r".*the same padding at both ends of an axis; got pad.*"),
    "PT3": (
        means("torch", "max_pool", X, kernel_size=3, padding=2, dilation=2),
        r".*at most half of the kernel; got .*",
    ),
    "PT4": (means("torch", "conv", X, W, padding="same", stride=2), r'.*needs stride 1 with padding="same"; got .*'),
    "PT5": (means("torch", "max_pool", (1, 0, 5), kernel_size=2), r".*needs at least one channel; got x.shape=.*"),
    "PT6": (
        means("torch", "avg_pool", X, kernel_size=2, divisor_override=3),
        r".*no divisor_override in avg_pool1d; .*",
    ),
    "PT7": (
        means("torch", "avg_pool", (1, 1, 1, 1, 1), kernel_size=2, padding=1),
        r".*not smaller than the kernel; .*",
    ),
    "PT8": (
        means("torch", "lp_pool", X, kernel_size=2, norm_type=0),
        r".*needs norm_type other than 0; got norm_type=0.*",
    ),
    "PT9": (means("torch", "adaptive_max_pool", X, output_size=(None,)), r".*needs an integer output_size; got .*"),
    "ON1": (means("onnx22", "max_pool", X, kernel_shape=[2], pads=[1]), r".*2 pads, all begins and then all ends; .*"),
    "ON2": (
        means("onnx22", "conv", X, W, auto_pad="SAME"),
        r".*auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER; got .*",
    ),
    "ON3": (says("onnx22", "lp_pool", X, kernel=(2,), p=1.5), r".*needs an integer p; got p=1.5. .*"),
    "ON4": (means("onnx22", "max_pool", X, kernel_shape=[2], storage_order=2), r".*needs storage_order 0 or 1; got .*"),
    "ON5": (means("onnx22", "conv_transpose", X, W, output_shape=[9]), r".*an output of less than 8; got output 9 .*"),
    "TF1": (
        means("tf", "max_pool", (1, 1), ksize=(), strides=(), padding="VALID"),
        r".*1, 2 or 3 spatial axes; got 0.*",
    ),
    "TF2": (
        means("tf", "avg_pool", X, ksize=2, strides=1, padding=[[0, 0], [1, 1], [0, 0]]),
        r'.*padding "SAME" or "VALID" in tf.nn.avg_pool1d; got .*',
    ),
    "TF3": (
        means("tf", "max_pool", X, ksize=2, strides=1, padding=[[0, 0], [3, 0], [0, 0]]),
        r".*needs padding of at most the window; got padding=\(\(3, 0\),\), ksize=\(2,\). .*",
    ),
    "TF4": (
        means("tf", "conv_transpose", X, W, strides=2, padding="SAME", output_shape=(1, 11, 1)),
        r".*needs a size that the convolution maps to n=5; got output_shape=11 .*",
    ),
    "KE1": (means("keras", "conv", X, W, strides=2, dilation_rate=2), r".*needs strides 1 or dilation_rate 1; got .*"),
    "KE2": (
        means("keras", "conv_transpose", X, W, strides=2, output_padding=2),
        r".*0 <= output_padding < stride 2; .*",
    ),
    "KE3": (means("keras", "max_pool", X, padding="causal"), r'.*"valid" or "same", or "causal" in Conv1D; got .*'),
    "JX1": (means("jax", "conv", X, W, window_strides=(1,), padding=((-1, 0),)), r".*needs padding >= 0; got .*"),
    "JX2": (means("jax", "conv_transpose", X, W, strides=(1,), padding=((3, 0),)), r".*starts at the first cell .*"),
    "JX3": (
        means("jax", "conv", (5,), W, window_strides=(1,), padding="SAME"),
        r".*x of 3 axes, one of them the batch; .*",
    ),
    "JX4": (
        means("jax", "avg_pool", X, window_dimensions=(1, 1, 2), divide_by="all"),
        r'.*"kernel", "cells" or a number.*',
    ),
    "JX5": (
        means("jax", "conv_transpose", X, W, strides=(1,), padding="SAME_LOWER"),
        r".*in cells or SAME, VALID; got .*",
    ),
    "EQ1": (
        means("equinox", "max_pool", (1, 1, 4), kernel_size=2, stride=3, use_ceil=True),
        r".*padding of at most the kernel; got padding \(0, 3\), kernel 2. use_ceil adds a stride to it.",
    ),
    "EQ2": (means("equinox", "conv_transpose", X, W, output_padding=1), r".*0 <= output_padding < stride 1; got .*"),
    "EQ3": (
        means("equinox", "adaptive_avg_pool", X, target_shape=6),
        r".*1 to 5 bins for 5 cells; got target_shape=6.*",
    ),
    "EQ4": (means("equinox", "max_pool", (1, 1), kernel_size=()), r".*needs 1, 2 or 3 spatial axes; got 0. .*"),
    "TO1": (
        means("tosa", "max_pool", X, kernel=2, stride=1, pad=[0, 0]),
        r".*2 spatial axes, or 3 in a convolution; .*",
    ),
    "TO2": (
        means("tosa", "max_pool", Y, kernel=2, stride=1, pad=[2, 0, 0, 0]),
        r".*padding smaller than the kernel; .*",
    ),
    "TO3": (
        means("tosa", "max_pool", Y, kernel=2, stride=2, pad=[0, 0, 0, 0]),
        r".*needs n \+ pad - span as a multiple of the stride 2; got 3. Take 1 less padding at the end, or slice x.",
    ),
    "TO4": (
        means("tosa", "conv", (1, 4, 5, 5), (4, 2, 1, 1), stride=1, pad=[0] * 4, dilation=1),
        r".*needs one group, or one per channel in two dimensions; got 2 groups of 4 channels. .*",
    ),
    "TO5": (
        means("tosa", "conv_transpose", Y, (1, 1, 3, 3), stride=1, out_pad=[1, 0, 0, 0]),
        r".*-kernel < out_pad, .*",
    ),
    "TO6": (
        means("tosa", "max_pool", Y, kernel=1, stride=1, pad=[0] * 4, nan_mode="MAX"),
        r".*PROPAGATE or IGNORE; got .*",
    ),
    "WN1": (means("webnn", "max_pool", X), r".*needs 2 spatial axes; got 1. .*"),
    "WN2": (
        means("webnn", "conv_transpose", Y, (1, 1, 3, 3), outputPadding=[1, 0]),
        r".*outputPadding < stride 1; got .*",
    ),
    "WN3": (means("webnn", "max_pool", Y, outputSizes=[2, 1]), r".*needs outputSizes \(1, 1\) or \(1, 1\); got .*"),
    "WN4": (
        means("webnn", "conv_transpose", Y, (1, 1, 3, 3), outputSizes=[8, 7]),
        r".*needs 7 <= outputSizes < 8; got .*",
    ),
    "WN5": (
        means("webnn", "max_pool", Y, outputShapeRounding="up"),
        r'.*outputShapeRounding "floor" or "ceil"; got .*',
    ),
    "WN6": (says("webnn", "lp_pool", Y, kernel=2, p=3), r".*needs p = 2; got p=3. .*"),
}


@pytest.mark.parametrize("rule", REFUSALS)
def test_every_rule_says_what_it_needs(rule: str) -> None:
    call, text = REFUSALS[rule]
    with pytest.raises(ln.LunetteError) as caught:
        call()
    assert caught.value.rule == rule and re.fullmatch(text, str(caught.value)), str(caught.value)


def test_every_rule_of_the_tables_is_tested() -> None:
    written = set()
    for module in pkgutil.iter_modules(dialects.__path__):
        doc = importlib.import_module(f"lunette.dialects.{module.name}").__doc__ or ""
        written |= set(re.findall(r"^\| ([A-Z]{2}\d+) ", doc, re.MULTILINE))
    assert written == set(REFUSALS)


# ---- whatever comes in


HOSTILE: list[Any] = [
    None,
    -1,
    0,
    2**70,
    1.5,
    float("nan"),
    True,
    "x",
    "",
    (),
    [[]],
    {},
    (1,) * 7,
    ((1, 2, 3),),
    object(),
]
PLAIN: dict[str, Any] = {
    "kernel": 2,
    "stride": 1,
    "padding": 0,
    "output_size": 1,
    "output_shape": None,
    "p": 2,
}


@pytest.mark.parametrize("name", [n for n in DIALECTS if n != "lunette"])
def test_any_argument_has_a_meaning_or_is_refused(name: str) -> None:
    spoken = DIALECTS[name]
    refused: list[tuple[str, str]] = []
    for op, function in spoken.functions.items():
        shapes = [(1, 1, 3, 3), (1, 1, 2, 2)] if op.startswith("conv") else [(1, 1, 3, 3)]
        needed = {w.option for w in function.words if w.default is REQUIRED} - {"output_shape"}
        plain = spoken.spell(op, shapes, {o: PLAIN.get(o, 1) for o in needed}).arguments
        for argument in [*(w.argument for w in function.words), *function.extra]:
            for value in HOSTILE:
                try:
                    assert isinstance(spoken.meaning(op, shapes, {**plain, argument: value}), Meaning)
                except ln.LunetteError as error:
                    refused.append((f"{name} {op}", str(error)))
    assert len(refused) > 20 and all(text.startswith(who) for who, text in refused)
