"""Every numbered rule says exactly its sentence: who (d) [rule] needs what; got what. What to try.

The tables of rules stand in the docstrings of the modules; the last tests here prove that tables, refusals and tests
name the same rules.
"""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
import torch

import lunette
import lunette.jax as lj
from lunette import DTypeError, LunetteError
from lunette.errors import refuses

ln: Any = lunette  # wrong types are the point of this file
SOURCE = Path(lunette.__file__).parent
X, X2, W = np.zeros((2, 3, 8)), np.zeros((2, 3, 8, 8)), np.zeros((4, 3, 3))


def refused(call: Callable[[], Any], kind: type[LunetteError], text: str) -> None:
    with pytest.raises(LunetteError) as caught:
        call()
    error = caught.value
    assert str(error) == text
    assert type(error) is kind and isinstance(error, TypeError if kind is DTypeError else ValueError)
    assert all((error.who, error.rule, error.need, error.got, error.hint)) and error.who != "lunette"
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind and str(again) == text


def test_w1_sizes_of_a_window_start_at_one() -> None:
    refused(
        lambda: ln.max_pool(X2, (2, 0)),
        ln.ArgumentError,
        "max_pool (d=2) [W1] needs kernel >= 1 on every axis; got kernel=0 on spatial axis 1. The least kernel is 1.",
    )
    refused(
        lambda: ln.avg_pool(X, (2,), stride=0),
        ln.ArgumentError,
        "avg_pool (d=1) [W1] needs stride >= 1 on every axis; got stride=0 on spatial axis 0. The least stride is 1.",
    )
    refused(
        lambda: ln.conv(X, W, dilation=-1),
        ln.ArgumentError,
        "conv (d=1) [W1] needs dilation >= 1 on every axis; "
        "got dilation=-1 on spatial axis 0. The least dilation is 1.",
    )
    refused(
        lambda: ln.conv(X, np.zeros((4, 3, 0))),
        ln.ArgumentError,
        "conv (d=1) [W1] needs kernel >= 1 on every axis; got kernel=0 on spatial axis 0. The least kernel is 1.",
    )


def test_w2_the_padded_input_holds_a_window() -> None:
    refused(
        lambda: ln.conv(X2, np.zeros((4, 3, 3, 5)), dilation=(1, 2)),
        ln.ShapeError,
        "conv (d=2) [W2] needs a padded size >= span 9; "
        "got n=8, lo=0, hi=0, kernel=5, dilation=2 on spatial axis 1. Add 1 to the padding or take a smaller "
        "kernel.",
    )


def test_w3_x_has_its_axes() -> None:
    refused(
        lambda: ln.max_pool(X, (2, 2, 2)),
        ln.ShapeError,
        "max_pool (d=3) [W3] needs x with a channel axis and 3 spatial axes; "
        "got x.shape=(2, 3, 8). x is (*batch, channels, *space); the kernel, or spatial=, tells d.",
    )
    refused(
        lambda: ln.spec.max_pool(X2, (2, 2)),
        ln.ShapeError,
        "max_pool (d=2) [W3] needs one sample, x without batch axes; "
        "got x.shape=(2, 3, 8, 8). The public functions take batches.",
    )
    refused(
        lambda: ln.global_avg_pool(X, spatial=3),
        ln.ShapeError,
        "global_avg_pool (d=3) [W3] needs x with a channel axis and 3 spatial axes; "
        "got x.shape=(2, 3, 8). x is (*batch, channels, *space); the kernel, or spatial=, tells d.",
    )
    refused(
        lambda: ln.spec.max_pool2d([1, 2, 3], 2, stride=1),
        ln.ShapeError,
        "max_pool (d=2) [W3] needs x with a channel axis and 2 spatial axes; "
        "got x.shape=(3,). x is (*batch, channels, *space); the kernel, or spatial=, tells d.",
    )


def test_w4_integers_one_or_one_per_axis() -> None:
    refused(
        lambda: ln.max_pool(X, 2.0, spatial=1),
        ln.DTypeError,
        "max_pool (d=1) [W4] needs kernel in integers; "
        "got kernel=2.0 of type float. Pass an int: bools and floats are none.",
    )
    refused(
        lambda: ln.max_pool(X2, (2, True)),
        ln.DTypeError,
        "max_pool (d=2) [W4] needs kernel in integers; "
        "got kernel=True of type bool on spatial axis 1. Pass an int: bools and floats are none.",
    )
    refused(
        lambda: ln.max_pool(X2, (2, 2), stride=(1, 2, 3)),
        ln.ArgumentError,
        "max_pool (d=2) [W4] needs one stride or 2 of them, one per spatial axis; "
        "got stride=(1, 2, 3). One int serves all axes.",
    )
    refused(
        lambda: ln.adaptive_avg_pool(X2, (2, 2.5)),
        ln.DTypeError,
        "adaptive_avg_pool (d=2) [W4] needs output_size in integers; "
        "got output_size=2.5 of type float on spatial axis 1. Pass an int: bools and floats are none.",
    )
    refused(
        lambda: ln.max_pool(X, (2,), padding=2**70),
        ln.ArgumentError,
        "max_pool (d=1) [W4] needs -2**63 <= padding < 2**63; "
        "got padding=1180591620717411303424. No array is as large as that.",
    )
    refused(
        lambda: ln.conv(X, W, groups=None),
        ln.DTypeError,
        "conv (d=1) [W4] needs groups in integers; "
        "got groups=None of type NoneType. Pass an int: bools and floats are none.",
    )
    refused(
        lambda: ln.output_shape("conv", (1, 2, 3), (2.0, 1, 1)),
        ln.DTypeError,
        "conv (d=1) [W4] needs a size of w in integers; "
        "got a size of w=2.0 of type float. Pass an int: bools and floats are none.",
    )


def test_w5_padding_forms() -> None:
    refused(
        lambda: ln.max_pool(X, (2,), padding="full"),
        ln.ArgumentError,
        'max_pool (d=1) [W5] needs padding in cells, "valid", "same" or "same_lower"; '
        "got padding='full'. padding=\"same\" keeps the size at stride 1.",
    )
    refused(
        lambda: ln.max_pool(X, (2,), padding="SAME"),
        ln.ArgumentError,
        'max_pool (d=1) [W5] needs padding in cells, "valid", "same" or "same_lower"; '
        "got padding='SAME'. Write \"same\".",
    )
    refused(
        lambda: ln.max_pool(X2, 2, padding=(1, 2, 3)),
        ln.ArgumentError,
        "max_pool (d=2) [W5] needs one padding, 2 of them, or 2 (lo, hi) pairs; "
        "got padding=(1, 2, 3). Pairs are always nested: ((1, 2),) for d=1.",
    )
    refused(
        lambda: ln.max_pool(X2, 2, padding=(1, (2, 3))),
        ln.ArgumentError,
        "max_pool (d=2) [W5] needs 2 (lo, hi) pairs; got padding=(1, (2, 3)). Do not mix ints and pairs.",
    )
    refused(
        lambda: ln.max_pool(X, (2,), padding=(1, 2)),
        ln.ArgumentError,
        "max_pool (d=1) [W5] needs one padding, 1 of them, or 1 (lo, hi) pairs; "
        "got padding=(1, 2). Pairs are always nested: ((1, 2),) for d=1.",
    )


def test_w6_padding_is_not_negative() -> None:
    refused(
        lambda: ln.max_pool(X2, 2, padding=((0, 0), (0, -1))),
        ln.ArgumentError,
        "max_pool (d=2) [W6] needs padding >= 0; got padding hi=-1 on spatial axis 1. Slice x to crop it.",
    )


def test_w7_empty_axes_hold_nothing() -> None:
    refused(
        lambda: ln.global_max_pool(X[..., :0], spatial=1),
        ln.ShapeError,
        "global_max_pool (d=1) [W7] needs n >= 1 on every spatial axis; "
        "got n=0 on spatial axis 0. An empty axis has nothing to read: pad x first.",
    )
    refused(
        lambda: ln.adaptive_avg_pool(X[..., :0], (2,)),
        ln.ShapeError,
        "adaptive_avg_pool (d=1) [W7] needs n >= 1 on every spatial axis; "
        "got n=0 on spatial axis 0. An empty axis has nothing to read: pad x first.",
    )
    refused(
        lambda: ln.conv_transpose(X[..., :0], np.zeros((3, 1, 2))),
        ln.ShapeError,
        "conv_transpose (d=1) [W7] needs n >= 1 on every spatial axis; "
        "got n=0 on spatial axis 0. An empty axis has nothing to transpose: pad x.",
    )


def test_w8_there_is_at_least_one_bin() -> None:
    refused(
        lambda: ln.adaptive_avg_pool(X2, (None, 0)),
        ln.ArgumentError,
        "adaptive_avg_pool (d=2) [W8] needs output_size entries >= 1, or None to keep a size; "
        "got output_size=0 on spatial axis 1. The least is one bin.",
    )


def test_w9_a_transposed_window_has_an_output() -> None:
    refused(
        lambda: ln.conv_transpose(X[..., :1], np.zeros((3, 1, 2)), padding=1),
        ln.ShapeError,
        "conv_transpose (d=1) [W9] needs (n-1)*stride - lo - hi + span + output_padding >= 1; "
        "got 0 from n=1, stride=1, lo=1, hi=1, span=2 on spatial axis 0. Take 1 less padding.",
    )


def test_w10_output_padding_has_a_range() -> None:
    refused(
        lambda: ln.conv_transpose(X, np.zeros((3, 1, 2)), stride=2, output_padding=2),
        ln.ArgumentError,
        "conv_transpose (d=1) [W10] needs 0 <= output_padding < max(stride, dilation) = 2; "
        "got output_padding=2 on spatial axis 0. It chooses among the sizes that one convolution maps to n.",
    )
    refused(
        lambda: ln.conv_transpose(X, np.zeros((3, 1, 2)), stride=2, output_padding=1, padding="same"),
        ln.ArgumentError,
        'conv_transpose (d=1) [W10] needs output_padding=0 with padding="same"; '
        "got output_padding=(1,). That padding fixes the size; count padding in cells to choose another.",
    )


def test_w11_spatial_agrees() -> None:
    refused(
        lambda: ln.adaptive_avg_pool(X2, (2,), spatial=2),
        ln.ArgumentError,
        "adaptive_avg_pool (d=1) [W11] needs spatial=1, the length of output_size; got spatial=2. Leave spatial out.",
    )
    refused(
        lambda: ln.max_pool(X, (2,), spatial=2),
        ln.ArgumentError,
        "max_pool (d=1) [W11] needs spatial=1, the length of kernel; got spatial=2. Leave spatial out.",
    )
    refused(
        lambda: ln.max_pool(X, 2, spatial=-1),
        ln.ArgumentError,
        "max_pool [W11] needs spatial >= 0; got spatial=-1. It says how many of the last axes are space.",
    )


def test_w12_flags_are_bools() -> None:
    refused(
        lambda: ln.max_pool(X, (2,), ceil_mode=1),
        ln.DTypeError,
        "max_pool (d=1) [W12] needs ceil_mode as True or False; "
        "got ceil_mode=1 of type int. Pass bool(...) if ceil_mode is meant as a condition.",
    )


IMAGE, SIGNAL = np.zeros((3, 8, 8)), np.zeros((3, 8))
UNTOLD = "where x has fewer than 4 axes"
SAY = "x is (*batch, channels, *space): say what is space."


def test_w13_one_int_does_not_tell_how_much_of_a_small_x_is_space() -> None:
    both = "x.shape=(3, 8, 8): as spatial=1 -> (3, 8, 4), as spatial=2 -> (3, 4, 4)"
    for name, more in (("max_pool", {}), ("avg_pool", {}), ("smooth_max_pool", {"beta": 1.0}), ("lp_pool", {})):
        text = f"{name} [W13] needs spatial= or kernel as a tuple {UNTOLD}; got {both}. {SAY}"
        refused(partial(getattr(ln, name), IMAGE, 2, **more), ln.ShapeError, text)
        refused(partial(getattr(ln, f"{name}_jvp"), (IMAGE,), (IMAGE,), kernel=2, **more), ln.ShapeError, text)
        refused(partial(getattr(ln, f"{name}_vjp"), (IMAGE,), IMAGE, kernel=2, **more), ln.ShapeError, text)
        refused(partial(ln.output_shape, name, (3, 8, 8), kernel=2, **more), ln.ShapeError, text)
        refused(partial(getattr(ln, name), IMAGE, 2, **more, arithmetic="rounded"), ln.ShapeError, text)
    for name in ("adaptive_avg_pool", "adaptive_max_pool"):
        text = f"{name} [W13] needs spatial= or output_size as a tuple {UNTOLD}; got {both}. {SAY}"
        refused(partial(getattr(ln, name), IMAGE, 4), ln.ShapeError, text)
        same = both.replace("4", "8")
        refused(partial(getattr(ln, name), IMAGE, None), ln.ShapeError, text.replace(both, same))
    for name in ("global_avg_pool", "global_max_pool"):
        text = f"{name} [W13] needs spatial= {UNTOLD}; got {both.replace('4', '1')}. {SAY}"
        refused(partial(getattr(ln, name), IMAGE), ln.ShapeError, text)
        flat = "x.shape=(3, 8, 8): as spatial=1 -> (3, 8), as spatial=2 -> (3,)"
        refused(
            partial(getattr(ln, name), IMAGE, keepdims=False), ln.ShapeError, text.replace(both.replace("4", "1"), flat)
        )
    # Only what is possible is shown.
    need = f"max_pool [W13] needs spatial= or kernel as a tuple {UNTOLD}; got "
    refused(lambda: ln.max_pool(SIGNAL, 2), ln.ShapeError, f"{need}x.shape=(3, 8): as spatial=1 -> (3, 4). {SAY}")
    refused(lambda: ln.max_pool(SIGNAL[0], 2), ln.ShapeError, f"{need}x.shape=(8,). {SAY}")
    refused(
        lambda: ln.max_pool(IMAGE[:, :2], 4),
        ln.ShapeError,
        f"{need}x.shape=(3, 2, 8): as spatial=1 -> (3, 2, 2). {SAY}",
    )
    refused(
        lambda: ln.max_pool(IMAGE, 2, stride=(1, 2)),
        ln.ShapeError,
        f"{need}x.shape=(3, 8, 8): as spatial=2 -> (3, 7, 4). {SAY}",
    )
    # One sample has no batch axis: all axes but one are space, and there is one at least.
    refused(
        lambda: ln.spec.max_pool([1, 2], 2),
        ln.ShapeError,
        "max_pool [W13] needs x with a channel axis and a spatial axis, or spatial= or kernel as a tuple; "
        "got x.shape=(2,). x is (channels, *space) here.",
    )
    refused(
        lambda: ln.spec.global_max_pool([1, 2]),
        ln.ShapeError,
        "global_max_pool [W13] needs x with a channel axis and a spatial axis, or spatial=; "
        "got x.shape=(2,). x is (channels, *space) here.",
    )


def test_n1_cells_are_numbers() -> None:
    refused(
        lambda: ln.max_pool([[1, "a"]], (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N1] needs numbers; got x[0, 1]='a' of type str. Pass an array or nested lists of numbers.",
    )
    refused(
        lambda: ln.max_pool([[1, 2], [3]], (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N1] needs numbers; got x[0]=[1, 2] of type list. Make every row as long.",
    )
    refused(
        lambda: ln.max_pool(None, (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N1] needs numbers; got x=None of type NoneType. Pass an array or nested lists of numbers.",
    )
    refused(
        lambda: ln.spec.max_pool(np.ma.array([1.0]), (1,)),
        ln.DTypeError,
        "max_pool (d=1) [N1] needs an array without a mask; got x as a masked array. Pass x.filled(...).",
    )
    refused(
        lambda: ln.max_pool([[[1, 2], [3]]], (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N1] needs numbers; got x[0, 0]=[1, 2] of type list. Make every row as long.",
    )
    refused(
        lambda: ln.smooth_max_pool(X, (2,), beta="1"),
        ln.DTypeError,
        "smooth_max_pool (d=1) [N1] needs numbers; got beta='1' of type str. Pass an array or nested lists of numbers.",
    )


def test_n2_comparing_needs_an_order() -> None:
    refused(
        lambda: ln.max_pool([[1j, 2]], (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N2] needs numbers with an order; "
        "got cells of type complex. Complex numbers and symbols serve the linear operators: conv, conv_transpose "
        "and the averages.",
    )
    refused(
        lambda: ln.max_pool([[sympy.Symbol("a"), 2]], (2,)),
        ln.DTypeError,
        "max_pool (d=1) [N2] needs numbers with an order; "
        "got cells of type Symbol. Complex numbers and symbols serve the linear operators: conv, conv_transpose "
        "and the averages.",
    )
    refused(
        lambda: ln.smooth_max_pool([[1j, 2]], (2,), beta=1j),
        ln.DTypeError,
        "smooth_max_pool (d=1) [N2] needs numbers with an order; "
        "got cells of type complex and int. Complex numbers and symbols serve the linear operators: conv, "
        "conv_transpose and the averages.",
    )


def test_n3_exp_and_roots_need_a_type_that_has_them() -> None:
    refused(
        lambda: ln.smooth_max_pool([[Fraction(1), 2]], (2,), beta=1),
        ln.DTypeError,
        "smooth_max_pool (d=1) [N3] needs a number type with exp; "
        "got cells of type Fraction. float, numpy.float32, decimal.Decimal, flint.arb and Interval have it.",
    )
    refused(
        lambda: ln.lp_pool([[Fraction(1), 2]], (2,)),
        ln.DTypeError,
        "lp_pool (d=1) [N3] needs a number type with roots; "
        "got cells of type Fraction. float, numpy.float32, decimal.Decimal, flint.arb and Interval have it.",
    )


def test_n4_the_ends_of_an_interval() -> None:
    refused(
        lambda: ln.Interval(2, 1),
        ln.ArgumentError,
        "Interval [N4] needs lo <= hi and no NaN; got lo=2, hi=1. Swap the ends, or pass one for a point.",
    )
    refused(
        lambda: ln.Interval(float("nan")),
        ln.ArgumentError,
        "Interval [N4] needs lo <= hi and no NaN; got lo=nan, hi=nan. Swap the ends, or pass one for a point.",
    )
    refused(
        lambda: ln.Interval("a", "b"),
        ln.DTypeError,
        "Interval [N4] needs ends with an order; got lo='a', hi='b'. Pass two real numbers.",
    )
    refused(
        lambda: ln.Interval(1) / ln.Interval(0),
        ln.ArgumentError,
        "Interval [N4] needs a divisor other than zero; got Interval(lo=0, hi=0). Divide by something.",
    )


def test_n5_an_index_needs_a_decided_winner() -> None:
    refused(
        lambda: ln.max_pool([[ln.Interval(0, 2), ln.Interval(1, 3)]], (2,), return_indices=True),
        ln.ArgumentError,
        "max_pool (d=1) [N5] needs a decided winner for its index; "
        "got 2 enclosures that overlap. Drop return_indices, or narrow the enclosures.",
    )


def test_n6_the_output_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lunette.number.cells._MEMORY", 2**30)
    refused(
        lambda: ln.conv(X, W, padding=2**40),
        ln.ShapeError,
        "conv (d=1) [N6] needs an output that fits into 1073741824 bytes of memory; "
        "got shape (2, 4, 2199023255558), 140737488355712 bytes. Take a smaller batch, or less padding "
        "where there is any.",
    )
    refused(
        lambda: ln.spec.avg_pool([[1, 2]], (2,), stride=1, padding=2**62),
        ln.ShapeError,
        "avg_pool (d=1) [N6] needs an output that fits into 1073741824 bytes of memory; "
        "got shape (1, 9223372036854775809), 442721857769029238832 bytes. Take a smaller batch, or less "
        "padding where there is any.",
    )
    refused(
        lambda: ln.global_max_pool(np.broadcast_to(np.float32(1), (1, 1, 2**40)), spatial=1),
        ln.ShapeError,
        "global_max_pool (d=1) [N6] needs x that fits into 1073741824 bytes of memory; "
        "got shape (1, 1, 1099511627776), 4398046511104 bytes. It has to be copied: pass fewer cells.",
    )


def test_n7_cells_of_one_call_go_together() -> None:
    refused(
        lambda: ln.conv([[Decimal(1)]], [[[0.5]]]),
        ln.DTypeError,
        "conv (d=1) [N7] needs cells that add, multiply and compare with each other; "
        "got cells of type Decimal and float: \"unsupported operand type(s) for *: 'decimal.Decimal' and "
        "'float'\". Convert all arrays to one number type.",
    )
    refused(
        lambda: ln.conv([[Decimal("inf")]], [[[0]]]),
        ln.DTypeError,
        "conv (d=1) [N7] needs cells that add, multiply and compare with each other; "
        "got cells of type Decimal and int: \"[<class 'decimal.InvalidOperation'>]\". Convert all arrays to one "
        "number type.",
    )


def test_o1_the_operator_exists() -> None:
    refused(
        lambda: ln.output_shape("pool", (1, 2, 3)),
        ln.ArgumentError,
        "output_shape [O1] needs an operator among conv, conv_transpose, max_pool, avg_pool, smooth_max_pool, "
        "lp_pool, adaptive_avg_pool, adaptive_max_pool, global_avg_pool, global_max_pool; "
        "got op='pool'. Pass its name or the function.",
    )
    refused(
        lambda: ln.output_shape("maxpool", (1, 2, 3)),
        ln.ArgumentError,
        "output_shape [O1] needs an operator among conv, conv_transpose, max_pool, avg_pool, smooth_max_pool, "
        "lp_pool, adaptive_avg_pool, adaptive_max_pool, global_avg_pool, global_max_pool; "
        "got op='maxpool'. Did you mean max_pool?",
    )


def test_o2_arguments_the_operator_has() -> None:
    refused(
        lambda: ln.output_shape("max_pool", (1, 2, 3)),
        ln.ArgumentError,
        "max_pool [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); "
        "got no kernel. Arrays come first, options are keywords.",
    )
    refused(
        lambda: ln.output_shape("max_pool", (1, 2, 3), (2,), kernel=(2,)),
        ln.ArgumentError,
        "max_pool (d=1) [O2] needs the shapes of x; got 2 shapes. Options are keywords.",
    )
    refused(
        lambda: ln.max_pool_vjp((X,), X, kernel=(2,), stide=1),
        ln.ArgumentError,
        "max_pool (d=1) [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); "
        "got an unknown stide. Did you mean stride?",
    )
    refused(
        lambda: ln.max_pool_vjp((X,), X, kernel=2, x=1),
        ln.ArgumentError,
        "max_pool [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); "
        "got x twice. Arrays come first, options are keywords.",
    )
    refused(
        lambda: ln.spec.max_pool(),
        ln.ArgumentError,
        "max_pool [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); "
        "got no x and no kernel. Arrays come first, options are keywords.",
    )
    refused(
        lambda: ln.spec.max_pool(X, 2, 1),
        ln.ArgumentError,
        "max_pool (d=2) [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
        "return_indices, spatial, arithmetic); "
        "got 3 arguments by position. Arrays come first, options are keywords.",
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ln.avg_pool(X2, 2, strides=2),
            "avg_pool (d=2) [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, "
            "count_include_pad, divisor, spatial, arithmetic); got an unknown strides. Did you mean stride?",
        ),
        (
            lambda: ln.max_pool(X2, kernel_size=2),
            "max_pool [O2] needs arguments among (x, kernel, stride, padding, dilation, ceil_mode, ties, "
            "return_indices, spatial, arithmetic); got an unknown kernel_size and no kernel. Did you mean kernel?",
        ),
        (
            lambda: ln.smooth_max_pool(X2, 2),
            "smooth_max_pool [O2] needs arguments among (x, kernel, beta, stride, padding, dilation, ceil_mode, "
            "count_include_pad, spatial, arithmetic); got no beta. Arrays come first, options are keywords.",
        ),
        (
            lambda: ln.verify(None, None, None, timout=3),
            "verify [O2] needs arguments among (f, box, property, timeout, method, semantics, seed, progress, "
            "memory); got an unknown timout. Did you mean timeout?",
        ),
        (
            lambda: ln.check(None, None, propety=1),
            "check [O2] needs arguments among (f, certificate, property, box, semantics); "
            "got an unknown propety. Did you mean property?",
        ),
        (
            lambda: ln.Interval.around(X, epsilon=0.1),
            "Interval.around [O2] needs arguments among (x, eps, clip); "
            "got an unknown epsilon and no eps. Did you mean eps?",
        ),
        (
            lambda: ln.from_onnx(),
            "from_onnx [O2] needs arguments among (path_or_model, shapes); "
            "got no path_or_model. Arrays come first, options are keywords.",
        ),
        (
            lambda: ln.grad(abs, 0, False, 1, argnums=2),
            "grad [O2] needs arguments among (f, argnums, has_aux); "
            "got 4 arguments by position and argnums twice. Arrays come first, options are keywords.",
        ),
    ],
)
def test_o2_a_misspelt_keyword_is_refused_by_every_function(call: Callable[[], Any], text: str) -> None:
    refused(call, ln.ArgumentError, text)


def test_o2_of_functions_that_are_loaded_when_called() -> None:
    with pytest.raises(ln.ArgumentError, match=r"conform \[O2\].*an unknown case. Did you mean cases\?"):
        ln.conform("torch", case=3)
    with pytest.raises(ln.ArgumentError, match=r"from_torch \[O2\].*an unknown weight. Did you mean weights\?"):
        ln.from_torch(torch.nn.ReLU(), weight="inputs")
    with pytest.raises(ln.ArgumentError, match=r"bounds \[O2\].*an unknown step. Did you mean steps\?"):
        ln.bounds(abs, step=1)


def test_a_type_error_inside_of_a_function_is_not_one_of_its_call() -> None:
    @refuses
    def broken(x: Any) -> Any:
        return len(x)

    with pytest.raises(TypeError, match="has no len"):
        broken(1)


def test_what_is_misspelt_is_no_parameter() -> None:
    names = ["x", "w", "b", "stride", "padding", "dilation", "groups", "arithmetic"]
    assert list(inspect.signature(ln.conv).parameters) == names
    assert inspect.signature(ln.max_pool).parameters["kernel"].default is inspect.Parameter.empty


def test_o3_a_list_of_rows_is_one_array() -> None:
    refused(
        lambda: ln.max_pool_vjp([[1.0, 2.0, 3.0, 4.0]], [[1.0, 2.0]], kernel=(2,)),
        ln.DTypeError,
        "max_pool (d=1) [O3] needs primals as a tuple of arrays; got a list of 1 rows, which is one array. Write (x,).",
    )


def test_w4_a_number_that_jax_traces() -> None:
    refused(
        lambda: jax.jit(lj.max_pool)(jnp.zeros((1, 1, 4, 4)), np.int32(2)),  # of one width, whatever JAX is told
        ln.DTypeError,
        "max_pool (d=2) [W4] needs kernel in integers; got kernel=JitTracer(int32[]) of type DynamicJaxprTracer. "
        'Under jax.jit a number is traced unless it is static: jax.jit(f, static_argnames=("kernel",)).',
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ln.Interval.around(X, 0.1, clip=(1, 0)), "clip as (least, greatest); got clip=(1, 0). As in clip="),
        (lambda: ln.Interval.around(X, 0.1, clip=1), "clip as (least, greatest); got clip=1. As in clip=(0, 1)."),
        (lambda: ln.Interval.around(X * np.nan, 0.1), "x without NaN; got x=nan at (0, 0, 0). No number is near it."),
        (
            lambda: ln.Interval.around(np.zeros(3, int), 1),
            "x of floats or of exact numbers; got x of dtype int64. Pass x.astype(np.float64), or",
        ),
    ],
)
def test_n4_what_goes_around_a_point(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(LunetteError) as caught:
        call()
    assert str(caught.value).startswith(f"Interval.around [N4] needs {said}")


def test_o3_primals_and_tangents_are_tuples() -> None:
    refused(
        lambda: ln.max_pool_jvp(X, (X,), kernel=(2,)),
        ln.DTypeError,
        "max_pool (d=1) [O3] needs primals as a tuple of arrays; got primals of type ndarray. Write (primal,).",
    )
    refused(
        lambda: ln.max_pool_jvp((X, X), (X,), kernel=(2,)),
        ln.ArgumentError,
        "max_pool (d=1) [O3] needs primals (x,); got 2 primals. Everything that is no array is a keyword.",
    )
    refused(
        lambda: ln.max_pool_vjp((X, 2), X),
        ln.ArgumentError,
        "max_pool [O3] needs primals (x,); got 2 primals. Everything that is no array is a keyword.",
    )
    refused(
        lambda: ln.max_pool_jvp((X,), (X, X), kernel=(2,)),
        ln.ArgumentError,
        "max_pool (d=1) [O3] needs 1 tangents, one per primal; got 2 tangents. A tangent None means zero.",
    )
    refused(
        lambda: ln.max_pool_jvp((X,), X, kernel=(2,)),
        ln.DTypeError,
        "max_pool (d=1) [O3] needs tangents as a tuple of arrays; got tangents of type ndarray. Write (tangent,).",
    )
    refused(
        lambda: ln.max_pool_vjp((X,), None, kernel=(2,)),
        ln.DTypeError,
        "max_pool (d=1) [O3] needs a cotangent; got None. Pass an array of shape (2, 3, 4).",
    )
    refused(
        lambda: ln.spec.conv_vjp((X,), None),
        ln.ArgumentError,
        "conv [O3] needs primals (x, w) or (x, w, b); got 1 primals. Everything that is no array is a keyword.",
    )


def test_o4_shapes_are_tuples_of_sizes() -> None:
    refused(
        lambda: ln.output_shape("max_pool", 3, kernel=2),
        ln.DTypeError,
        "max_pool [O4] needs the shape of x as a tuple of at most 64 sizes; got 3 of type int. Pass x.shape.",
    )
    refused(
        lambda: ln.output_shape("max_pool", (1, -1, 3), kernel=(2,)),
        ln.ArgumentError,
        "max_pool (d=1) [O4] needs sizes of x >= 0; got shape (1, -1, 3). Pass x.shape.",
    )


def test_m1_no_window_without_data() -> None:
    refused(
        lambda: ln.max_pool(X2, 1, padding=(0, 1)),
        ln.ShapeError,
        "max_pool (d=2) [M1] needs a cell of the input in every window; "
        "got none at output cell (0, 0). Take less padding or dilation.",
    )


def test_m2_ties_are_named() -> None:
    refused(
        lambda: ln.max_pool(X, (2,), ties="last"),
        ln.ArgumentError,
        'max_pool (d=1) [M2] needs ties as "first", "all" or "split"; '
        "got ties='last'. It says which equal cells carry the derivative.",
    )
    refused(
        lambda: ln.max_pool(X, (2,), ties=1),
        ln.DTypeError,
        'max_pool (d=1) [M2] needs ties as "first", "all" or "split"; '
        "got ties=1 of type int. It says which equal cells carry the derivative.",
    )


def test_a1_something_to_count() -> None:
    refused(
        lambda: ln.avg_pool(X, (1,), padding=1, count_include_pad=False),
        ln.ShapeError,
        "avg_pool (d=1) [A1] needs a cell of the input in every window; "
        "got none at output cell (0,). Take less padding or dilation, or count_include_pad=True.",
    )


def test_a2_divisors_are_finite() -> None:
    refused(
        lambda: ln.avg_pool(X, (1,), divisor=0),
        ln.ArgumentError,
        "avg_pool (d=1) [A2] needs a divisor that is a finite number other than zero; "
        "got divisor=0. Leave it out to divide by the window's cells.",
    )
    refused(
        lambda: ln.avg_pool(X, (1,), divisor="2"),
        ln.DTypeError,
        "avg_pool (d=1) [A2] needs a divisor that is a finite number other than zero; "
        "got divisor='2' of type str. Leave it out to divide by the window's cells.",
    )
    refused(
        lambda: ln.avg_pool(X.astype(np.float32), (1,), divisor=1e-60),
        ln.ArgumentError,
        "avg_pool (d=1) [A2] needs a divisor that is a finite number other than zero; "
        "got divisor=0.0. Leave it out to divide by the window's cells.",
    )


def test_s1_beta_is_finite_and_not_zero() -> None:
    refused(
        lambda: ln.smooth_max_pool(X, (2,), beta=0),
        ln.ArgumentError,
        "smooth_max_pool (d=1) [S1] needs a finite beta other than zero; "
        "got beta=0.0. For the plain maximum use max_pool.",
    )
    refused(
        lambda: ln.smooth_max_pool(X, (2,), beta=np.ones(2)),
        ln.ShapeError,
        "smooth_max_pool (d=1) [S1] needs beta as one number or an array without axes; "
        "got beta.shape=(2,). One beta serves all windows.",
    )
    refused(
        lambda: ln.smooth_max_pool(X, (2,), beta=None),
        ln.ShapeError,
        "smooth_max_pool (d=1) [S1] needs beta as one number or an array without axes; "
        "got no beta. One beta serves all windows.",
    )


def test_s2_something_to_count() -> None:
    refused(
        lambda: ln.smooth_max_pool(X, (1,), padding=1, beta=1, count_include_pad=False),
        ln.ShapeError,
        "smooth_max_pool (d=1) [S2] needs a cell of the input in every window; "
        "got none at output cell (0,). Take less padding or dilation, or count_include_pad=True.",
    )


def test_l1_p_is_at_least_one() -> None:
    refused(
        lambda: ln.lp_pool(X, (2,), p=0.5),
        ln.ArgumentError,
        "lp_pool (d=1) [L1] needs p as a real number >= 1 or infinity; "
        "got p=0.5. p=2 is the Euclidean norm, p=math.inf the greatest cell.",
    )
    refused(
        lambda: ln.lp_pool(X, (2,), p="2"),
        ln.DTypeError,
        "lp_pool (d=1) [L1] needs p as a real number >= 1 or infinity; "
        "got p='2' of type str. p=2 is the Euclidean norm, p=math.inf the greatest cell.",
    )


def test_c1_w_has_channel_axes() -> None:
    refused(
        lambda: ln.conv(X, np.zeros(3)),
        ln.ShapeError,
        "conv [C1] needs w with two channel axes in front of its kernel axes; got w.shape=(3,). w.ndim is d + 2.",
    )
    refused(
        lambda: ln.conv(X, None),
        ln.ShapeError,
        "conv [C1] needs w with two channel axes in front of its kernel axes; got no w. w.ndim is d + 2.",
    )


def test_c2_groups_divide_the_channels() -> None:
    refused(
        lambda: ln.conv(X, W, groups=2),
        ln.ArgumentError,
        "conv (d=1) [C2] needs groups >= 1 that divides the channel counts; "
        "got groups=2 with 3 and 4 channels. groups=1 joins every channel with every other.",
    )
    refused(
        lambda: ln.conv_transpose(X, W, groups=2),
        ln.ArgumentError,
        "conv_transpose (d=1) [C2] needs groups >= 1 that divides the channel counts; "
        "got groups=2 with 3 channels. groups=1 joins every channel with every other.",
    )


def test_c3_w_fits_the_channels_of_x() -> None:
    refused(
        lambda: ln.conv(X, np.zeros((4, 2, 3))),
        ln.ShapeError,
        "conv (d=1) [C3] needs w.shape[1] * groups == in-channels 3; "
        "got w.shape=(4, 2, 3), groups=1. With this x, w.shape[1] is 3.",
    )
    refused(
        lambda: ln.conv([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 0], [0, 1]]),
        ln.ShapeError,
        "conv (d=0) [C3] needs w.shape[1] * groups == in-channels 3; got w.shape=(2, 2), groups=1. "
        "With this x, w.shape[1] is 3. A kernel alone is w[None, None], an image alone x[None]: both have channels.",
    )
    refused(
        lambda: ln.conv_transpose(X, W),
        ln.ShapeError,
        "conv_transpose (d=1) [C3] needs w.shape[0] == in-channels 3; "
        "got w.shape=(4, 3, 3). w is (in, out/groups, *kernel).",
    )


def test_c4_one_bias_per_channel() -> None:
    refused(
        lambda: ln.conv(X, W, np.zeros(3)),
        ln.ShapeError,
        "conv (d=1) [C4] needs b.shape == (4,), one entry per out-channel; "
        "got b.shape=(3,). Leave b out for a bias of zero.",
    )
    refused(
        lambda: ln.conv(X, W, np.zeros((4, 1, 1))),
        ln.ShapeError,
        "conv (d=1) [C4] needs b.shape == (4,), one entry per out-channel; got b.shape=(4, 1, 1). Pass b.reshape(4).",
    )


def test_d1_dtypes_that_are_served() -> None:
    refused(
        lambda: ln.max_pool(X.astype(int), (2,)),
        ln.DTypeError,
        "max_pool (d=1) [D1] needs float16, bfloat16, float32 or float64; "
        "got x of dtype int64. Pass x.astype(np.float64), or x.astype(object) for exact numbers.",
    )
    refused(
        lambda: ln.max_pool(np.ma.array(X), (2,)),
        ln.DTypeError,
        "max_pool (d=1) [D1] needs a plain array; "
        "got x as a masked array. Fill it first: x.filled(...).astype(np.float64).",
    )
    refused(
        lambda: ln.max_pool(torch.zeros(1, 1, 4, dtype=torch.int32), (2,)),
        ln.DTypeError,
        "max_pool (d=1) [D1] needs float16, bfloat16, float32 or float64; got x of dtype int32. Convert x to float64.",
    )
    refused(
        lambda: jax.jit(lambda x: ln.max_pool(x, (2,)))(jnp.zeros((1, 1, 4))),
        ln.DTypeError,
        "max_pool (d=1) [D1] needs an array whose values NumPy can read; "
        "got x as a tracer of JAX (DynamicJaxprTracer). "
        "lunette.jax has the operators for jit, grad and vmap: import lunette.jax as lj.",
    )


def test_d2_one_dtype_per_call() -> None:
    refused(
        lambda: ln.conv(X, W.astype(np.float32)),
        ln.DTypeError,
        "conv (d=1) [D2] needs arrays of one dtype; "
        "got x of dtype float64 and w of dtype float32. Convert one of them: nothing is promoted silently.",
    )
    refused(
        lambda: ln.conv(X, W.tolist()),
        ln.DTypeError,
        "conv (d=1) [D2] needs arrays of one dtype; "
        "got x of dtype float64 and w of dtype object. Convert one of them: nothing is promoted silently.",
    )


def test_d3_one_foreign_kind_per_call() -> None:
    refused(
        lambda: ln.conv(torch.zeros(1, 1, 4), jnp.zeros((1, 1, 1))),
        ln.DTypeError,
        "conv (d=1) [D3] needs NumPy arrays and one other kind; "
        "got jax and torch. Convert one of them, or pass NumPy arrays.",
    )
    refused(
        lambda: ln.conv_jvp(
            (np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 1), np.float32)),
            (torch.zeros(1, 1, 4), jnp.zeros((1, 1, 1))),
        ),
        ln.DTypeError,
        "conv (d=1) [D3] needs NumPy arrays and one other kind; "
        "got jax and torch. Convert one of them, or pass NumPy arrays.",
    )


def test_d4_no_tensor_is_cut_from_its_graph() -> None:
    refused(
        lambda: ln.max_pool(torch.zeros(1, 1, 4, requires_grad=True), (2,)),
        ln.DTypeError,
        "max_pool (d=1) [D4] needs tensors that do not require grad; "
        "got x with requires_grad=True. Pass x.detach(): lunette would cut it from its graph.",
    )


def test_d5_arrays_live_on_the_cpu() -> None:
    refused(
        lambda: ln.max_pool(torch.zeros(1, 1, 4, device="meta"), (2,)),
        ln.DTypeError,
        "max_pool (d=1) [D5] needs arrays on the CPU; got x on device meta. Pass x.cpu() or a copy.",
    )


def test_d7_tangents_and_cotangents_have_shapes() -> None:
    refused(
        lambda: ln.max_pool_jvp((X,), (X2,), kernel=(2,)),
        ln.ShapeError,
        "max_pool (d=1) [D7] needs the tangent of x of shape (2, 3, 8); "
        "got shape (2, 3, 8, 8). A tangent is like its primal, or None.",
    )
    refused(
        lambda: ln.max_pool_vjp((X,), X2, kernel=(2,)),
        ln.ShapeError,
        "max_pool (d=1) [D7] needs the cotangent of shape (2, 3, 4); "
        "got shape (2, 3, 8, 8). A cotangent is like the output.",
    )
    refused(
        lambda: ln.spec.max_pool_vjp((X[0],), X2, kernel=2),
        ln.ShapeError,
        "max_pool (d=1) [D7] needs the cotangent of shape (3, 4); "
        "got shape (2, 3, 8, 8). A cotangent is like the output.",
    )


def test_d9_the_arithmetic_exists() -> None:
    refused(
        lambda: ln.max_pool(X, (2,), arithmetic="exact"),
        ln.ArgumentError,
        'max_pool (d=1) [D9] needs arithmetic among "fast", "rounded", "interval"; got arithmetic=\'exact\'. '
        'Leave it out for "fast".',
    )
    refused(
        lambda: ln.output_shape("max_pool", X.shape, kernel=(2,), arithmetic="exact"),
        ln.ArgumentError,
        'max_pool (d=1) [D9] needs arithmetic among "fast", "rounded", "interval"; got arithmetic=\'exact\'. '
        'Leave it out for "fast".',
    )


def test_f1_sizes_count_cells() -> None:
    refused(
        lambda: ln.spec.conv_out_dim(-1, 3, 1, 0),
        ln.ArgumentError,
        "conv_out_dim [F1] needs n >= 0; got n=-1. Sizes count cells.",
    )
    refused(
        lambda: ln.spec.pool_out_spatial(5, (2,), (2,)),
        ln.ArgumentError,
        "pool_out_spatial [F1] needs n as one size per spatial axis; got n=5. Pass a tuple.",
    )


def test_f2_input_shape_is_the_input() -> None:
    refused(
        lambda: ln.spec.avg_pool_backward([[1]], (2,), input_shape=(), stride=1),
        ln.ShapeError,
        "avg_pool_backward (d=1) [F2] needs input_shape with 1 spatial sizes, or with the channels in front of "
        "them; "
        "got input_shape=(). An int kernel means that g has a channel axis; pass a tuple if it has none.",
    )


def test_f3_forms_have_their_axes() -> None:
    refused(
        lambda: ln.spec.conv_bias_deriv(1),
        ln.ShapeError,
        "conv_bias_deriv [F3] needs g with a channel axis; got g.shape=(). g has the shape of the output.",
    )


def test_f4_a_bin_is_one_of_m() -> None:
    refused(
        lambda: ln.spec.adaptive_start(5, 3, 3),
        ln.ArgumentError,
        "adaptive_start [F4] needs 0 <= o < m = 3; got o=3. o counts bins from 0.",
    )


# ---- tables, refusals and tests name the same rules


def rules_in_tables() -> list[str]:
    tables = [ast.get_docstring(ast.parse(p.read_text())) or "" for p in sorted(SOURCE.rglob("*.py"))]
    return [rule for text in tables for rule in re.findall(r"^\| ([A-Z]\d+) +\|", text, re.MULTILINE)]


def refusals() -> Iterator[tuple[str, str]]:
    """(file, rule) of every refusal; a rule that is handed on by name is found where it is given."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and re.fullmatch(r"[A-Z]\d+", str(first.value)):
                    yield path.name, str(first.value)


def test_h1_as_many_threads_as_there_can_be() -> None:
    for n in (0, 10**6):
        refused(
            lambda n=n: ln.set_num_threads(n),  # type: ignore[misc]
            ln.ArgumentError,
            f"set_num_threads [H1] needs n in 1..256; got n={n}. More threads than cores make nothing faster.",
        )


def test_every_rule_has_one_number() -> None:
    rules = rules_in_tables()
    assert len(rules) == len(set(rules)) > 40


def test_every_rule_has_a_test_and_every_test_a_rule() -> None:
    files = [p.read_text() for p in Path(__file__).parent.glob("test_*errors.py")]
    tested = {m.upper() for text in files for m in re.findall(r"^def test_([a-z]\d+)_", text, re.MULTILINE)}
    assert tested == set(rules_in_tables())


def test_every_refusal_names_a_rule_and_every_rule_refuses() -> None:
    assert {rule for _, rule in refusals()} == set(rules_in_tables())


def test_nothing_else_is_raised() -> None:
    """Benchmarks, demo and command line are programs: what they raise, they catch or say on their way out."""
    programs = {"bench", "demo", "cli.py", *(p.name for p in SOURCE.rglob("*command.py"))}
    for path in sorted(p for p in SOURCE.rglob("*.py") if not programs & set(p.parts)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                called = node.exc.func
                name = (
                    called.id
                    if isinstance(called, ast.Name)
                    else called.attr
                    if isinstance(called, ast.Attribute)
                    else ""
                )
                assert name in (
                    "ShapeError",
                    "ArgumentError",
                    "DTypeError",
                    "AbsentError",
                    *("CertificateError", "Refused", "ValueError"),  # the checker knows no rules of lunette
                    "undecided",
                    "cannot",
                    "cannot_derive",
                    "missing",
                    *("refuse", "refusal", "misspelt", "misfit"),
                    *("Unproven", "Refuted"),  # which ln.verify catches itself
                    "damaged",
                    "gone",
                    "SystemExit",
                    "AttributeError",  # what Python asks of a module's __getattr__
                    *(
                        ("FrozenInstanceError", "TypeError") if path.name == "value.py" else ()
                    ),  # as Python's dataclasses
                    *("Died", "Hung"),  # what happens to a worker of conform: caught there, and a verdict
                ), (
                    path.name,
                    node.lineno,
                )


# ---- every refusal prints d where the arguments tell it


@pytest.mark.parametrize("name", [n for n in ln.__all__ if n.endswith("pool") or n in ("conv", "conv_transpose")])
@pytest.mark.parametrize(
    "bad", ["dtype", "cell", "arithmetic", "flag", "keyword", "option", "primals", "tangents", "cotangent"]
)
def test_refusals_print_d(name: str, bad: str) -> None:
    x: Any = np.zeros((1, 2, 4, 4))
    options: dict[str, Any] = {}
    shared: tuple[Any, ...] = (np.zeros((2, 2, 2, 2)),) if "conv" in name else ()
    if name in ("max_pool", "avg_pool", "lp_pool", "smooth_max_pool"):
        options = {"kernel": 2}
    if "adaptive" in name:
        options = {"output_size": 2}
    if name == "smooth_max_pool":
        options["beta"] = 1.0
    call, jvp, vjp = getattr(ln, name), getattr(ln, f"{name}_jvp"), getattr(ln, f"{name}_vjp")
    calls: dict[str, Callable[[], Any]] = {
        "dtype": lambda: call(x.astype(int), *shared, **options),
        "cell": lambda: call([[[["a"]]]], *shared, **options),
        "arithmetic": lambda: call(x, *shared, **options, arithmetic="guess"),
        "flag": lambda: call(x, *shared, **options, **{"groups" if shared else "spatial": 1.5}),
        "keyword": lambda: call(x, *shared, **options, colour="red"),
        "option": lambda: jvp((x, *shared), (x, *shared), **options, colour="red"),
        "primals": lambda: jvp((x, *shared, x, x), (x,), **options),
        "tangents": lambda: jvp((x, *shared), (x, *shared, x), **options),
        "cotangent": lambda: vjp((x, *shared), x[0], **options),
    }
    with pytest.raises(LunetteError) as caught:
        calls[bad]()
    assert caught.value.who == name
    if not (bad == "flag" and "pool" in name):  # spatial itself was wrong: nothing else says what d is
        assert f"{name} (d=2) [" in str(caught.value)
    if "conv" not in name:
        x = x[0]
        with pytest.raises(LunetteError, match=r"\(d=2\)"):
            getattr(ln.spec, name)([[["a"]]], **options)
        with pytest.raises(LunetteError, match=r"\(d=2\)"):
            getattr(ln.spec, f"{name}_jvp")((x,), (), **options)
        with pytest.raises(LunetteError, match=r"\(d=2\)"):
            ln.output_shape(name, (1, 1, 4, -4), **options)


def test_a_refusal_is_one_line_however_long_the_argument() -> None:
    for value in ([1] * 10**5, np.ones((99, 99)), 10**5000, "x" * 10**5, {1: 2}, [[[1] * 9] * 9] * 9):
        with pytest.raises(LunetteError) as caught:
            ln.max_pool(X, (2,), stride=value)
        assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
