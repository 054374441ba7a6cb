"""Transposed convolution, the adjoint of convolution.

    y[c,o] = b[c] + sum of x[j,i] * w[j,c,k]   over j in the group of c and (i,k) with o = i*stride - lo + k*dilation

Rules: those of conv (C1 to C4) and W9, W10 of lunette.window. The size is
(n-1)*stride - lo - hi + span + output_padding; "same" makes it n*stride. Derivatives: those of conv, since the taps
of a transposed window are the pairs of the window read backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, ClassVar, Self

from lunette import core
from lunette.errors import ShapeError
from lunette.op import ABSENT, Arithmetic, Case, Shapes, apply, case, request, spelled
from lunette.ops import chance
from lunette.ops.conv import Conv, check_bias, check_groups
from lunette.ops.windowed import Windows
from lunette.window import Ints, Padding, Shape, Window


class ConvTranspose(Conv):
    """Transposed convolution as a value: x (in-channels, *space), w (in-channels, out-channels/groups, *kernel)."""

    name: ClassVar[str] = "conv_transpose"
    rows_are_inputs: ClassVar[bool] = True
    windows: ClassVar[Windows] = "transposed"
    counting: ClassVar[Mapping[str, Any] | None] = None

    # ---- shape

    @classmethod
    def of(cls, shapes: Shapes, *options: Any) -> Self:
        stride, padding, output_padding, dilation, groups = options
        x, w, b = shapes
        assert x is not None and w is not None
        window = Window.transposed(len(w) - 2, w[2:], stride, padding, dilation, output_padding)
        window.out(x[1:])
        q = check_groups(groups, x[0])
        if w[0] != x[0]:
            raise ShapeError(
                "C3", f"w.shape[0] == in-channels {x[0]}", f"w.shape={w}", "w is (in, out/groups, *kernel)."
            )
        check_bias(b, w[1] * q)
        return cls(window, q)

    def out_channels(self, w: Shape) -> int:
        return w[1] * self.groups

    # ---- meaning   (spec: that of conv, with the rows of w and the taps of a transposed window)

    def rows(self, x: Shape, w: Shape) -> Iterator[tuple[int, int, tuple[int, int]]]:
        ins, outs = x[0] // self.groups, w[1]
        for c in range(self.out_channels(w)):
            for j in range(c // outs * ins, (c // outs + 1) * ins):
                yield c, j, (j, c % outs)

    # ---- derivatives   (those of conv)

    # ---- bounds   (those of conv, with input and output in each other's place)

    def taps_of_an_output(self, x: Shape) -> int:
        return prod(map(min, self._kernel(every_stride=True), x[1:]))

    def taps_of_an_input(self, x: Shape) -> int:
        return prod(map(min, self._kernel(), self.window.out(x[1:])))

    # ---- kernels   (those of the convolution whose adjoint this is: y is its input, x its output)

    def ends(self, before: int, behind: int) -> tuple[int, int]:
        return behind, before

    def both_ways(self, convolution: tuple[Any, ...]) -> tuple[core.Task, core.Task]:
        there, back = Conv.both_ways(self, convolution)
        return back, there

    # ---- cases

    cases: ClassVar[Mapping[str, Case]] = {
        "plain_1d": case((2, 3), (2, 3, 3), (3,)),
        "no_bias": case((1, 3), (1, 1, 3), stride=2),
        "crop": case((1, 3), (1, 2, 3), (2,), stride=2, padding=1),
        "lopsided_crop": case((1, 4), (1, 1, 3), (1,), stride=2, padding=((0, 2),)),
        "output_padding": case((1, 3), (1, 1, 3), (1,), stride=2, padding=1, output_padding=1),
        "output_padding_beyond_stride": case((1, 3), (1, 1, 2), (1,), stride=2, dilation=4, output_padding=3),
        "gaps": case((1, 3), (1, 1, 2), (1,), stride=4),
        "dilated": case((2, 3), (2, 1, 3), (1,), stride=3, dilation=2),
        "common_factor": case((1, 4), (1, 1, 3), (1,), stride=4, dilation=2),
        "same": case((1, 3, 2), (1, 1, 3, 4), (1,), stride=2, padding="same"),
        "same_shorter_than_stride": case((1, 3), (1, 1, 2), (1,), stride=3, padding="same_lower"),
        "groups": case((4, 3), (4, 2, 2), (4,), groups=2),
        "one_cell": case((1, 1), (1, 1, 3), (1,), padding=1),
        "no_input_channels": case((0, 3), (0, 2, 2), (2,)),
        "no_output_channels": case((2, 3), (2, 0, 2), (0,)),
        "rank_0": case((3,), (3, 2), (2,)),
        "rank_2": case((2, 2, 3), (2, 1, 2, 3), (1,), stride=(2, 1)),
        "rank_4": case((1, 2, 1, 2, 2), (1, 1, 2, 2, 1, 2), (1,), stride=(1, 2, 1, 1)),
    }

    @classmethod
    def draw_more(cls, rng: chance.Rng, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if rng.random() < 0.3 and not isinstance(options["padding"], str):
            return {"output_padding": tuple(int(rng.integers(s)) for s in options["stride"])}
        return {}

    @classmethod
    def joining(cls, ins: int, outs: int, groups: int) -> tuple[int, int]:
        return ins, outs // groups


@spelled
def conv_transpose(
    x: Any,
    w: Any = ABSENT,
    b: Any = None,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    arithmetic: Arithmetic = "fast",
    **misspelt: Any,
) -> Any:
    """The adjoint of `conv`: `x` `(*batch, in, *space)`, `w` `(in, out/groups, *kernel)`; `padding` crops the result.

    >>> import lunette as ln
    >>> ln.conv_transpose([[1, 2, 3]], [[[1, 10, 100]]], stride=2).tolist()
    [[1, 10, 102, 20, 203, 30, 300]]
    """
    if misspelt or w is ABSENT:
        request(conv_transpose, (x, w, b), misspelt)  # which refuses it
    return apply(ConvTranspose, (x, w, b), arithmetic, stride, padding, output_padding, dilation, groups)
