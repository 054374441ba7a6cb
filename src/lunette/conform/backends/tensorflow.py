"""TensorFlow and Keras on the CPU: `tf.nn` and layers, with a gradient tape and a forward accumulator.

Both have their channels last; arrays are turned before and after, so that derivatives come in lunette's order.
"""

from __future__ import annotations

import importlib
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any, ClassVar

import numpy as np

from lunette.conform.backends.backend import Backend, Space, preamble, written
from lunette.conform.case import Case, Data, source_of
from lunette.conform.judge import WrongShape
from lunette.dialects import DIALECTS, Call

POOLS = ("max_pool", "avg_pool")
TIES = {"max_pool": ("first",), "global_max_pool": ("split",)}


def space_of(dialect: str) -> Space:
    """What may be asked of either, in its own dialect."""
    return Space(
        ops=tuple(DIALECTS[dialect].functions),
        ranks=(1, 2, 3),
        modes=("forward", "jvp", "vjp"),
        layouts=("contiguous",),
        ties=TIES,
        undilated=POOLS,
        divisors=False,
        thin=3,
    )


class OfTensors(Backend):
    """What TensorFlow computes, called in one way or the other."""

    module = "tensorflow"
    extra = "tensorflow"
    deadline = 40.0
    default_cases = 900
    tries = 120
    environment: Mapping[str, str] = {
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "KERAS_BACKEND": "tensorflow",
    }

    @property
    def version(self) -> str:
        """The package may be the one without GPUs."""
        for package in (self.module, f"{self.module}-cpu"):
            with suppress(PackageNotFoundError):
                return f"{self.module} {version_of(package)}"
        return self.module

    def has_indices(self, call: Call) -> bool:
        """None that the dialect has."""
        return False

    @abstractmethod
    def function(self, case: Case, call: Call) -> Callable[..., Any]:
        """The operator of a case, on tensors with their channels last."""

    def run(self, case: Case, data: Data) -> Any:
        tf = self.load()
        call = self.call(case)
        assert isinstance(call, Call), call
        inner = self.function(case, call)

        def f(x: Any, *rest: Any) -> Any:
            turned = [tf.transpose(w, weights_last(case)) for w in rest[:1]] + list(rest[1:])
            y = inner(tf.transpose(x, channels_last(len(x.shape), case.d)), *turned)
            return tf.transpose(y, channels_first(len(y.shape), case.d)) if len(y.shape) > 2 else y

        primals = [tf.constant(a) for a in data.primals]
        if case.mode == "jvp":
            with tf.autodiff.ForwardAccumulator(primals, [tf.constant(a) for a in data.tangents]) as forward:
                y = f(*primals)
            return (_array(tf, forward.jvp(y), y),)
        if case.mode == "vjp":
            with tf.GradientTape() as tape:
                for p in primals:
                    tape.watch(p)
                y = f(*primals)
            assert data.cotangent is not None
            if tuple(y.shape) != data.cotangent.shape:
                return WrongShape(tuple(y.shape))
            back = tape.gradient(y, primals, output_gradients=tf.constant(data.cotangent))
            return tuple(_array(tf, b, p) for b, p in zip(back, primals, strict=True))
        return (f(*primals).numpy(),)

    def source(self, case: Case) -> str:
        call = self.call(case)
        if not isinstance(call, Call):
            return str(call)
        p = len(case.shapes)
        names = ("x", "w", "b")[:p]
        start = preamble(case, self.imports) + f"x = tf.transpose({written(case, 0, 'tf', 'constant')}, "
        start += f"{channels_last(len(case.shapes[0]), case.d)}); "
        if p > 1:
            start += f"w = tf.transpose({written(case, 1, 'tf', 'constant')}, {weights_last(case)}); "
        start += f"b = {written(case, 2, 'tf', 'constant')}; " * (p > 2)
        body = self.spelled(case, call)
        if case.mode == "forward":
            return f"{start}print({body})"
        if case.mode == "jvp":
            moved = [written(case, p + at, "tf", "constant") for at in range(p)]
            turns = [channels_last(len(case.shapes[0]), case.d), weights_last(case)]
            moved = [f"tf.transpose({m}, {turns[at]})" if at < 2 else m for at, m in enumerate(moved)]
            given = f"({', '.join(names)},), ({', '.join(moved)},)"
            return f"{start}a = tf.autodiff.ForwardAccumulator({given}); a.__enter__(); print(a.jvp({body}))"
        turn = channels_last(len(case.output or ()), case.d)
        g = f"tf.transpose({written(case, p, 'tf', 'constant')}, {turn})"
        tape = f"t = tf.GradientTape(); t.__enter__(); [t.watch(v) for v in ({', '.join(names)},)]; y = {body}; "
        return f"{start}{tape}print(t.gradient(y, ({', '.join(names)},), output_gradients={g}))"

    imports: ClassVar[str] = "import tensorflow as tf"

    @abstractmethod
    def spelled(self, case: Case, call: Call) -> str:
        """The call as an expression of x, w and b."""


class TensorFlow(OfTensors):
    """`tf.nn`, as it is; biases are added afterwards."""

    name = "tensorflow"
    dialect = "tf"
    space = space_of("tf")

    def function(self, case: Case, call: Call) -> Callable[..., Any]:
        tf = self.load()
        named: Any = tf
        for part in call.function.split(".")[1:]:
            named = getattr(named, part)
        arguments = _arguments(case, call)

        def f(x: Any, *rest: Any) -> Any:
            y = named(x, *rest[:1], **arguments)
            return y + rest[1] if len(rest) > 1 else y

        return f

    def spelled(self, case: Case, call: Call) -> str:
        said = "".join(f", {n}={source_of(v)}" for n, v in _arguments(case, call).items())
        return f"{call.function}(x{', w' * (len(case.shapes) > 1)}{said}){' + b' * (len(case.shapes) > 2)}"


def _arguments(case: Case, call: Call) -> dict[str, Any]:
    """What the dialect says, where conv1d and conv3d have another spelling of it."""
    said = dict(call.arguments)
    if not case.kind.weighted or case.kind.windows == "transposed":
        return said
    if case.d == 1:
        said["stride"] = said.pop("strides")
    if case.d == 3:
        for name in ("strides", "dilations"):
            if name in said:
                said[name] = (1, *case.per_axis(name.removesuffix("s")), 1)
    return said


class Keras(OfTensors):
    """Layers of Keras 3 on TensorFlow, asked for their values with weights that are given."""

    name = "keras"
    module = "keras"
    dialect = "keras"
    imports = "import os; os.environ['KERAS_BACKEND'] = 'tensorflow'; import keras, tensorflow as tf"
    space = space_of("keras")

    def load(self) -> Any:
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        importlib.import_module("keras")
        return importlib.import_module("tensorflow")

    def function(self, case: Case, call: Call) -> Callable[..., Any]:
        keras = importlib.import_module("keras")
        layer = getattr(keras.layers, call.function)(**_layer(case, call))

        def f(x: Any, *rest: Any) -> Any:
            layer.build(tuple(x.shape))
            return layer.stateless_call(list(rest), [], x)[0]

        return f

    def spelled(self, case: Case, call: Call) -> str:
        said = ", ".join(f"{n}={source_of(v)}" for n, v in _layer(case, call).items())
        weights = ", ".join(("w", "b")[: len(case.shapes) - 1])
        made = f"(layer := keras.layers.{call.function}({said})).build(tuple(x.shape))"
        return f"[{made}, layer.stateless_call([{weights}], [], x)[0]][1]"


def _layer(case: Case, call: Call) -> dict[str, Any]:
    """A layer is told the shape of its weights as well."""
    said = {**call.arguments, "dtype": case.dtype}
    if case.kind.weighted:
        w = case.shapes[1]
        transposed = case.kind.windows == "transposed"
        said |= {"filters": w[1] if transposed else w[0], "kernel_size": w[2:], "use_bias": len(case.shapes) > 2}
    return said


def channels_last(n: int, d: int) -> list[int]:
    """The order of axes that puts the channels behind the space."""
    c = n - d - 1
    return [*range(c), *range(c + 1, n), c]


def channels_first(n: int, d: int) -> list[int]:
    """And back."""
    return [int(a) for a in np.argsort(channels_last(n, d))]


def weights_last(case: Case) -> list[int]:
    """(out, in, *kernel) as (*kernel, in, out), and (in, out, *kernel) as (*kernel, out, in)."""
    return [*range(2, case.d + 2), 1, 0]


def _array(tf: Any, value: Any, like: Any) -> Any:
    """A derivative that does not depend on its argument is none to TensorFlow."""
    return (tf.zeros_like(like) if value is None else tf.convert_to_tensor(value)).numpy()
