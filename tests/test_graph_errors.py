"""Every numbered rule of graphs, transformations and the operators between the window operators says its sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import lunette
from lunette.graph.nodes import Node
from lunette.op import Op, apply
from lunette.ops.derivative import vjp_of
from lunette.ops.glue import Layout
from lunette.ops.take import Put
from test_errors import refused

ln: Any = lunette  # wrong types are the point of this file
X, V = np.zeros((2, 3, 4)), np.zeros(3)
T = '%0 : f32[2] = input("x")\n%1 : f32[2] = relu(%0)\nreturn %1'
g, h = ln.Graph(), ln.Graph()
gx, hx = g.input((2, 3), name="x"), h.input((2, 3), name="x")


def prog() -> Any:
    graph = ln.Graph()
    graph.output(ln.relu(graph.input((2,), name="x")))
    return graph.compile()


def bad(change: Callable[[Node], Node]) -> None:
    graph = ln.Graph()
    graph.output(ln.relu(graph.input((2,), name="x")))
    graph.nodes[1] = change(graph.nodes[1])
    graph.check()


def a_vjp() -> Any:
    options = (2, None, 0, 1, False, "first", False, 1)
    return vjp_of(lunette.ops.MaxPool, 0).of(((1, 4), (1, 2)), *options)


def test_e1_shapes_broadcast() -> None:
    refused(
        lambda: ln.add(X, V),
        ln.ShapeError,
        "add [E1] needs shapes that are equal, or 1, on each axis counted from the last; got (2, 3, 4) and "
        "(3,). Reshape one of them: axes are added in front only.",
    )
    refused(
        lambda: ln.mse(X, V),
        ln.ShapeError,
        "mse [E1] needs shapes that are equal, or 1, on each axis counted from the last; got (2, 3, 4) and "
        "(3,). Reshape one of them: axes are added in front only.",
    )


def test_e2_axes_are_those_of_x() -> None:
    refused(lambda: ln.sum(X, axis=3), ln.ArgumentError, "sum [E2] needs axis in -3..2; got axis=3. x has 3 axes.")
    refused(
        lambda: ln.sum(X, axis=(0, 0)),
        ln.ArgumentError,
        "sum [E2] needs axes that differ; got axis=(0, 0). Name each axis once.",
    )


def test_e3_fixed_numbers_are_finite() -> None:
    refused(
        lambda: ln.leaky_relu(X, "a"),
        ln.DTypeError,
        "leaky_relu [E3] needs slope as a number; got slope='a' of type str. It is fixed, not an array.",
    )
    refused(
        lambda: ln.power(X, float("inf")),
        ln.ArgumentError,
        "power [E3] needs a finite exponent; got exponent=inf. Infinity and NaN make no function.",
    )


def test_e5_exact_powers_are_short() -> None:
    refused(
        lambda: ln.power([3], 10**9),
        ln.ArgumentError,
        "power [E5] needs an exact power of at most 4194304 binary digits; got exponent=1000000000 of 3. Pass floats.",
    )


def test_e4_something_to_reduce() -> None:
    refused(
        lambda: ln.mean(np.zeros((0, 2)), axis=0),
        ln.ShapeError,
        "mean [E4] needs at least one cell; got shape (0, 2). Axes (0,) have none.",
    )


def test_r1_as_many_cells() -> None:
    refused(
        lambda: ln.reshape(X, (5, 5)),
        ln.ShapeError,
        "reshape [R1] needs a shape of 24 cells; got shape (5, 5). x has shape (2, 3, 4).",
    )


def test_r2_a_permutation() -> None:
    refused(
        lambda: ln.transpose(X, (0, 0, 1)),
        ln.ArgumentError,
        "transpose [R2] needs a permutation of 3 axes; got axes=(0, 0, 1). Name every axis once.",
    )


def test_r3_shapes_that_join() -> None:
    refused(
        lambda: ln.concat([X, V], 0),
        ln.ShapeError,
        "concat [R3] needs shapes that agree on all axes but 0; got (2, 3, 4) and (3,). Reshape one.",
    )
    refused(
        lambda: ln.concat([], axis=0),
        ln.ShapeError,
        "concat [R3] needs at least one array; got none. An empty list has no shape.",
    )


def test_r4_padding_of_arrays() -> None:
    refused(
        lambda: ln.pad(X, -1),
        ln.ArgumentError,
        "pad [R4] needs padding >= 0 as an int or a (lo, hi) pair for each of 3 axes; got padding=-1. Axes "
        "without padding have (0, 0).",
    )
    refused(
        lambda: ln.pad(X, (1, 2)),
        ln.ArgumentError,
        "pad [R4] needs padding >= 0 as an int or a (lo, hi) pair for each of 3 axes; got padding=(1, 2). "
        "Axes without padding have (0, 0).",
    )


def test_r5_parts_of_arrays() -> None:
    refused(
        lambda: ln.slice(X, (0,), (1, 2)),
        ln.ArgumentError,
        "slice [R5] needs start, stop and step with one entry each for at most 3 axes; got start=(0,), "
        "stop=(1, 2), step=None. None in stop means the end.",
    )
    refused(
        lambda: ln.slice(X, (0,), (2,), (0,)),
        ln.ArgumentError,
        "slice [R5] needs a step >= 1; got step=0. Cells are taken from left to right.",
    )
    refused(
        lambda: ln.slice(X, (0,) * 4, (1,) * 4),
        ln.ArgumentError,
        "slice [R5] needs start, stop and step with one entry each for at most 3 axes; got start=(0, 0, 0, "
        "0), stop=(1, 1, 1, 1), step=None. None in stop means the end.",
    )


def test_p1_inner_sizes_agree() -> None:
    refused(
        lambda: ln.matmul(X, V),
        ln.ShapeError,
        "matmul [P1] needs equal inner sizes: (.., m, k) and (.., k, n); got (6, 4) and (3, 1). Transpose or "
        "reshape one of them.",
    )
    refused(
        lambda: ln.matmul(X, 2.0),
        ln.ShapeError,
        "matmul [P1] needs arrays with axes; got (2, 3, 4) and (). Multiply numbers with mul.",
    )


def test_p2_linear_layers() -> None:
    refused(
        lambda: ln.linear(X, np.zeros((3, 3))),
        ln.ShapeError,
        "linear [P2] needs x of shape (.., in) and w of shape (out, in); got (2, 3, 4) and (3, 3). With "
        "this x, w has shape (out, 4).",
    )
    refused(
        lambda: ln.linear(X, np.zeros((4, 3))),
        ln.ShapeError,
        "linear [P2] needs x of shape (.., in) and w of shape (out, in); got (2, 3, 4) and (4, 3). Transpose w.",
    )
    refused(
        lambda: ln.linear(X, np.zeros((2, 4)), V),
        ln.ShapeError,
        "linear [P2] needs b.shape == (2,); got b.shape=(3,). Leave b out for a bias of zero.",
    )


def test_b1_statistics_per_channel() -> None:
    refused(
        lambda: ln.batch_norm(X, V, V, V, np.zeros(2)),
        ln.ShapeError,
        "batch_norm [B1] needs x of shape (batch, channels, ..) and one entry per channel; got x.shape=(2, "
        "3, 4), shift.shape=(2,). Channels are axis 1.",
    )


def test_b2_eps_is_no_negative_number() -> None:
    refused(
        lambda: ln.batch_norm(X, V, V, V, V, eps=-5),
        ln.ArgumentError,
        "batch_norm [B2] needs eps >= 0; got eps=-5. It keeps the root of a variance from zero.",
    )


def test_q1_labels_are_classes() -> None:
    refused(
        lambda: ln.cross_entropy(X, np.zeros((2, 3), int)),
        ln.ShapeError,
        "cross_entropy [Q1] needs labels of shape (2, 4); got shape (2, 3). One label for each row of logits.",
    )
    refused(
        lambda: ln.cross_entropy(np.zeros((2, 3)), np.array([0, 3])),
        ln.ArgumentError,
        "one_hot [Q1] needs labels in 0..2; got labels from 0 to 3. There are as many classes as logits in a row.",
    )


@pytest.mark.parametrize("change", [lambda f: f, ln.grad, ln.jit, lambda f: ln.jit(ln.grad(f))])
def test_q1_says_the_same_however_it_is_asked(change: Any) -> None:
    f = change(ln.cross_entropy)
    x = np.zeros((2, 3))
    f(x, np.array([0, 2]))  # so that the next calls go the short way
    for label in (3, -1):
        refused(
            partial(f, x, np.array([0, label])),
            ln.ArgumentError,
            f"one_hot [Q1] needs labels in 0..2; got labels from {min(0, label)} to {max(0, label)}. There are as many "
            "classes as logits in a row.",
        )


def test_o5_derivatives_of_derivatives() -> None:
    refused(
        lambda: a_vjp().jvp((), ()),
        ln.ArgumentError,
        "max_pool_vjp_x [O5] needs an operator whose derivative is defined by itself; got max_pool_vjp_x. "
        "ln.jvp and ln.vjp differentiate derivatives, too.",
    )


def test_o6_rules_that_are_not_there() -> None:
    class Plain(Layout):
        name: ClassVar[str] = "plain"
        push, pull = Op.push, Op.pull

        def shape(self, *shapes: Any) -> Any:
            return shapes[0]

        def spec(self, *arrays: Any) -> Any:
            return arrays[0]

    has = "got plain, which has spec, interval, rounded, relax. ln.rules() tells what every operator has."
    for f, name, about in (
        (lambda f: ln.jvp(f, (V,), (V,)), "jvp", "its derivative"),
        (lambda f: ln.vjp(f, V), "vjp", "its transposed derivative"),
    ):
        need = f'plain [O6] needs an operator with the rule "{name}" ({about}); {has}'
        refused(partial(f, lambda x: apply(Plain, (x,), "fast")), ln.ArgumentError, need)


def test_t1_tangents_like_primals() -> None:
    refused(
        lambda: ln.jvp(ln.relu, X, X),
        ln.DTypeError,
        "jvp [T1] needs primals and tangents as tuples of one length; got ndarray and ndarray. Write (x,) and (t,).",
    )
    refused(
        lambda: ln.jvp(ln.relu, (X,), (V,)),
        ln.ShapeError,
        "jvp [T1] needs a tangent of shape (2, 3, 4); got shape (3,). Like its primal.",
    )
    refused(
        lambda: ln.jvp(lambda d: d["a"], ({"a": X},), ({"a": X, "b": X},)),
        ln.ShapeError,
        "jvp [T1] needs a tangent of structure {'a': *}; got structure {'a': *, 'b': *}. None stands for zero.",
    )
    refused(
        lambda: ln.jvp(lambda d: d["a"] + d["b"], ({"a": X, "b": X},), ({"a": X, "c": X},)),
        ln.ShapeError,
        "jvp [T1] needs a tangent of structure {'a': *, 'b': *}; got structure {'a': *, 'c': *}. None stands for zero.",
    )


def test_t1_none_is_zero_for_several_arrays() -> None:
    x = {"a": V, "b": {"c": V, "d": V}}
    f = ln.jit(lambda p: p["a"] + p["b"]["c"] * 2 + p["b"]["d"])
    one = np.ones(3)
    assert ln.jvp(f, (x,), ({"a": one, "b": None},))[1].tolist() == [1, 1, 1]
    assert ln.jvp(f, (x,), ({"a": None, "b": {"c": one, "d": None}},))[1].tolist() == [2, 2, 2]
    refused(
        lambda: ln.jvp(f, (x,), ({"a": one, "b": one},)),
        ln.ShapeError,
        "jvp [T1] needs a tangent of structure {'a': *, 'b': {'c': *, 'd': *}}; got structure {'a': *, 'b': *}. None "
        "stands for zero.",
    )


def test_d2_tangents_and_cotangents_of_one_dtype() -> None:
    x = X.astype(np.float32)
    for f in (ln.sum, lambda v: ln.avg_pool(v, 2, spatial=1)):
        refused(
            partial(ln.jvp, f, (x,), (X,)),
            ln.DTypeError,
            "jvp [D2] needs a tangent of dtype float32; got dtype float64. Like its primal. Nothing is promoted "
            "silently.",
        )
    refused(
        lambda: ln.vjp(ln.relu, x)[1](X),
        ln.DTypeError,
        "pullback [D2] needs a cotangent of dtype float32; got dtype float64. Like y. Nothing is promoted silently.",
    )


def test_t2_what_has_a_derivative() -> None:
    refused(
        lambda: ln.grad(ln.sum)(np.arange(3)),
        ln.DTypeError,
        "vjp [T2] needs float arrays to differentiate; got an array of dtype int64. Whole numbers have no "
        "derivative: use argnums.",
    )


class Config:
    """Something that is neither an array nor a number."""

    scale = 2.0

    def __repr__(self) -> str:
        return "Config()"


def test_t2_what_jit_takes() -> None:
    for value, shown in ((Config(), "Config() of type Config"), (np.float32, "<class 'numpy.float32'> of type type")):
        refused(
            partial(ln.jit(lambda x, c: x * c.scale), X, value),
            ln.DTypeError,
            f"jit [T2] needs arrays, numbers and strings as arguments; got {shown}. Close over it: what a function "
            "closes over is read once, when it is traced.",
        )


def test_t3_gradients_of_scalars() -> None:
    refused(
        lambda: ln.grad(ln.relu)(X),
        ln.ShapeError,
        "grad [T3] needs a function with one result, without axes; got shape (2, 3, 4). Take ln.sum or ln.mean of it.",
    )
    refused(
        lambda: ln.grad(lambda x: (x, x))(np.zeros(())),
        ln.ShapeError,
        "grad [T3] needs a function with one result, without axes; got tuple. Take ln.sum or ln.mean of it.",
    )
    for f, got in ((ln.sum, "ReverseTracer"), (lambda x: (x, x, x), "tuple of 3")):
        refused(
            partial(ln.grad(f, has_aux=True), V),
            ln.DTypeError,
            f"grad [T3] needs (value, aux) from a function with has_aux=True; got {got}. Return both.",
        )


def test_t4_argnums_are_arguments() -> None:
    refused(
        lambda: ln.grad(ln.sum, argnums=1)(X),
        ln.ArgumentError,
        "grad [T4] needs argnums in 0..0; got argnums=1. It counts positional arguments.",
    )
    refused(
        lambda: ln.grad(ln.sum)(x=X),
        ln.ArgumentError,
        "grad [T4] needs a positional argument; got argnums=0. It counts positional arguments.",
    )
    for twice in ((0, 0), (0, -2)):
        refused(
            partial(ln.grad(lambda x, y: ln.sum(x * y), argnums=twice), X, X),
            ln.ArgumentError,
            f"grad [T4] needs argnums that differ; got argnums={twice}. The gradient in an argument is one.",
        )


def test_t5_cotangents_like_results() -> None:
    refused(
        lambda: ln.vjp(ln.relu, X)[1](V),
        ln.ShapeError,
        "pullback [T5] needs a cotangent of shape (2, 3, 4); got shape (3,). Like y.",
    )
    refused(
        lambda: ln.vjp(ln.relu, X)[1]((X, X)),
        ln.ShapeError,
        "pullback [T5] needs a cotangent of structure *; got structure (*, *). None stands for zero.",
    )
    pullback = ln.vjp(lambda x: {"a": x, "b": (x, x)}, V)[1]
    wanted = "pullback [T5] needs a cotangent of structure {'a': *, 'b': (*, *)}"
    refused(
        lambda: pullback({"a": V, "z": (V, V)}),
        ln.ShapeError,
        f"{wanted}; got structure {{'a': *, 'z': (*, *)}}. None stands for zero.",
    )
    refused(
        lambda: pullback({"a": V, "b": [V, V]}),
        ln.ShapeError,
        f"{wanted}; got structure {{'a': *, 'b': [*, *]}}. None stands for zero.",
    )


def test_t6_what_is_transformed_is_a_function() -> None:
    said = "needs a function; got 3 of type int. It comes first, its arguments after it."
    for name in ("jit", "grad"):
        refused(partial(getattr(ln, name), 3), ln.DTypeError, f"{name} [T6] {said}")
    for name in ("vjp", "trace"):
        refused(partial(getattr(ln, name), 3, X), ln.DTypeError, f"{name} [T6] {said}")


def test_t6_a_graph_is_no_function() -> None:
    refused(
        lambda: ln.trace(ln.relu, X)(X),
        ln.DTypeError,
        "Graph [T6] needs a function; got a graph. graph.compile() gives a program to call, graph.eval(...) computes "
        "with exact numbers.",
    )


def test_a_dataclass_that_nobody_registered() -> None:
    @dataclass
    class Weights:
        w: Any

    for call in (ln.grad(lambda p: ln.sum(p.w)), ln.jit(lambda p: ln.sum(p.w))):
        with pytest.raises(ln.DTypeError, match=r"jax.tree_util.register_dataclass\(Weights\), or pass a tuple or a"):
            call(Weights(X))


def test_g1_nodes_in_order() -> None:
    refused(
        lambda: ln.Graph.parse('%0 : f32[2] = input("x")\n%1 : f32[2] = relu(%3)\nreturn %1'),
        ln.ArgumentError,
        "Graph.parse [G1] needs a variable of an earlier line; got %3 in line 2. Nodes come in order.",
    )
    refused(
        lambda: bad(lambda n: replace(n, inputs=(5,))),
        ln.ArgumentError,
        "Graph.check [G1] needs inputs that are earlier nodes; got %1 reads %5. The graph was not made by "
        "lunette, or was damaged.",
    )


def test_g2_types_of_nodes() -> None:
    refused(
        lambda: ln.Graph.parse(T.replace("[2] = relu", "[3] = relu")),
        ln.ArgumentError,
        "Graph.parse [G2] needs f32[2] from relu; got line 2 says f32[3]. The operator's shape rule decides.",
    )
    refused(
        lambda: bad(lambda n: replace(n, shape=(7,))),
        ln.ArgumentError,
        "Graph.check [G2] needs shapes and dtypes that the operators give; got %1 : f32[7] where relu gives "
        "f32[2]. The graph was not made by lunette, or was damaged.",
    )


def test_r6_places_are_those_of_an_axis() -> None:
    x = np.zeros((2, 3))
    refused(
        lambda: ln.take(x, [0, 3], 1),
        ln.ArgumentError,
        "take [R6] needs places in 0..2; got places from 0 to 3. They count from the first cell.",
    )
    refused(
        lambda: ln.take(x, [[0]], 1),
        ln.ShapeError,
        "take [R6] needs places in a row; got shape (1, 1). Reshape them, and the result.",
    )
    refused(
        lambda: apply(Put, (x, np.array([0])), "fast", 1, 3),
        ln.ShapeError,
        "put [R6] needs a place for each cell of an axis, and n >= 0; got (2, 3), (1,), n=3. One each.",
    )


def test_g3_inputs_have_names() -> None:
    for name in ("", "two\nlines", 3):
        refused(
            lambda name=name: ln.Graph().input((2,), name=name),  # type: ignore[misc]
            ln.ArgumentError,
            f"Graph.input [G3] needs a name of its own that can be printed; got name={name!r}. Or leave it out.",
        )
    refused(
        lambda: g.input((2,), name="x"),
        ln.ArgumentError,
        "Graph.input [G3] needs a name of its own that can be printed; got name='x'. Or leave it out.",
    )
    refused(
        lambda: g.input(3),
        ln.DTypeError,
        "Graph.input [G3] needs a shape as a tuple; got shape=3. Write (n,) for one axis.",
    )
    refused(
        lambda: g.input((-1,)),
        ln.ArgumentError,
        "Graph.input [G3] needs at most 32 sizes >= 0; got shape=(-1,). Every size is known.",
    )


def test_g4_constants_have_types() -> None:
    refused(
        lambda: ln.Graph.parse("%0 : f32[2] = constant([1.0])\nreturn %0"),
        ln.ArgumentError,
        "Graph.parse [G4] needs a constant of shape (2,) and dtype float32; got shape (1,), dtype float32. Line 1.",
    )


def test_g5_outputs_of_the_graph() -> None:
    refused(
        lambda: ln.Graph().compile(),
        ln.ArgumentError,
        "Graph.compile [G5] needs at least one output; got none. Call g.output(y).",
    )
    refused(
        lambda: g.output(hx),
        ln.ArgumentError,
        "Graph.output [G5] needs outputs that are variables of this graph; got a variable of another graph. "
        "Build them in this graph.",
    )
    refused(
        lambda: g.output(X),
        ln.ArgumentError,
        "Graph.output [G5] needs outputs that are variables of this graph; got array([[[0., 0., 0., 0.], "
        "[0., 0., 0., 0.], [0., 0., 0., 0.]], [[0., 0., 0., 0.], [0., 0., 0., 0.], [0., 0., 0., 0.]]]). "
        "Build them in this graph.",
    )
    refused(
        lambda: ln.jit(lambda x: 1)(X),
        ln.ArgumentError,
        "trace [G5] needs a function that returns arrays; got [1]. Return what it computes.",
    )


def test_g6_values_decide_nothing() -> None:
    refused(
        lambda: bool(gx),
        ln.DTypeError,
        "Var [G6] needs a decision that does not depend on values; got a Python `if`, `while`, `and`, `or` "
        "or `not` on Var(%0 : f32[2,3]). Values are not known yet: use maximum, relu or a factor of 0 or 1, "
        "or branch on shapes.",
    )
    refused(
        lambda: np.exp(gx),
        ln.DTypeError,
        "Var [G6] needs lunette's functions on variables; got NumPy's exp of Var(%0 : f32[2,3]). Write "
        "ln.exp instead of np.exp.",
    )
    refused(
        lambda: float(gx),
        ln.DTypeError,
        "Var [G6] needs a value that is known; got float() of Var(%0 : f32[2,3]). Return it instead.",
    )
    refused(
        lambda: list(gx),
        ln.DTypeError,
        "Var [G6] needs a variable as a whole; got a loop over Var(%0 : f32[2,3]). Take parts with ln.slice.",
    )
    refused(
        lambda: ln.max_pool(gx, 1, return_indices=True, spatial=0),
        ln.ArgumentError,
        "max_pool [G6] needs values, not indices, in a graph; got return_indices=True. Call the function on arrays.",
    )


BRANCH = "Values are not known yet: use maximum, relu or a factor of 0 or 1, or branch on shapes."


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_g6_comparisons(sign: str) -> None:
    """Python's own `==` is identity: a branch on it would take one side, silently."""
    said = f"needs a decision that does not depend on values; got `{sign}` on"
    compare = eval(f"lambda v: v {sign} 0")
    refused(lambda: compare(gx), ln.DTypeError, f"Var [G6] {said} Var(%0 : f32[2,3]). {BRANCH}")
    refused(
        lambda: ln.grad(compare)(V), ln.DTypeError, f"ReverseTracer [G6] {said} ReverseTracer(float64[3]). {BRANCH}"
    )
    refused(
        lambda: ln.jvp(compare, (V,), (V,)),
        ln.DTypeError,
        f"ForwardTracer [G6] {said} ForwardTracer(float64[3]). {BRANCH}",
    )
    refused(lambda: ln.jit(compare)(V), ln.DTypeError, f"Var [G6] {said} Var(%0 : f64[3]). {BRANCH}")


def test_g6_what_python_asks_of_arrays() -> None:
    known, whole = "a value that is known", "a variable as a whole"
    for ask, words in (
        (lambda: gx in [1], f"a decision that does not depend on values; got `==` on Var(%0 : f32[2,3]). {BRANCH}"),
        (lambda: 1 in gx, f"a decision that does not depend on values; got `in` on Var(%0 : f32[2,3]). {BRANCH}"),
        (
            lambda: np.equal(V, gx),
            f"lunette's functions on variables; got NumPy's equal of Var(%0 : f32[2,3]). {BRANCH}",
        ),
        (lambda: int(gx), f"{known}; got int() of Var(%0 : f32[2,3]). Return it instead."),
        (lambda: f"{gx:.3f}", f"{known}; got the digits of Var(%0 : f32[2,3]). Print its shape, or return it."),
        (lambda: gx[0], f"{whole}; got an index into Var(%0 : f32[2,3]). Take parts with ln.slice."),
        (lambda: len(gx), f"{whole}; got len() of Var(%0 : f32[2,3]). Its sizes are in .shape."),
    ):
        refused(ask, ln.DTypeError, f"Var [G6] needs {words}")
    assert f"{gx}" == "Var(%0 : f32[2,3])" and len({gx, gx}) == 1
    a = ln.trace(lambda x: abs(x), V)
    assert "abs(%0)" in str(a)


def test_g6_methods_and_functions_of_numpy() -> None:
    need = "needs lunette's functions on variables"
    for name, words in (
        ("reshape", ".reshape. Write ln.reshape(x)."),
        ("T", ".T. Write ln.transpose(x)."),
        ("cumsum", ".cumsum. Values have a shape, a dtype and Python's operators."),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(gx, name)
        assert isinstance(caught.value, ln.LunetteError) and str(caught.value) == f"Var [G6] {need}; got {words}"
    for ask, name, hint in (
        (lambda: np.maximum(gx, 1), "maximum", "Write ln.maximum instead of np.maximum."),
        (lambda: np.sum(gx), "add.reduce", "Write ln.sum instead of np.add.reduce."),
        (lambda: np.sin(gx), "sin", "The functions of lunette take variables."),
        (lambda: np.asarray(gx), "array", "The functions of lunette take variables."),
    ):
        refused(ask, ln.DTypeError, f"Var [G6] {need}; got NumPy's {name} of Var(%0 : f32[2,3]). {hint}")


def test_g7_one_graph() -> None:
    refused(
        lambda: ln.add(gx, hx),
        ln.ArgumentError,
        "add [G7] needs variables of one graph; got variables of two graphs. Build in one of them.",
    )


def test_g8_a_text_of_a_graph() -> None:
    refused(
        lambda: ln.Graph.parse("nonsense"),
        ln.ArgumentError,
        "Graph.parse [G8] needs `%0 : dtype[sizes] = operator(...)`; got line 1: 'nonsense'. str(graph) "
        "shows what the text of a graph looks like.",
    )
    refused(
        lambda: ln.Graph.parse(T.replace("relu", "reul")),
        ln.ArgumentError,
        "Graph.parse [G8] needs an operator of lunette; got 'reul' in line 2. str(graph) shows what the text "
        "of a graph looks like.",
    )
    refused(
        lambda: ln.Graph.parse(T.replace("relu(%0)", "relu(%0, a=1)")),
        ln.ArgumentError,
        "Graph.parse [G8] needs an option among none; got a in line 2. str(graph) shows what the text of a "
        "graph looks like.",
    )
    refused(
        lambda: ln.Graph.parse(T + "\nx"),
        ln.ArgumentError,
        "Graph.parse [G8] needs `return %i, ...` as the last line; got line 3: 'return %1'. str(graph) shows "
        "what the text of a graph looks like.",
    )


def test_g9_one_array_per_input() -> None:
    refused(
        lambda: prog()(X),
        ln.ShapeError,
        "Program [G9] needs x of shape (2,); got shape (2, 3, 4). Shapes are part of a program.",
    )
    refused(
        lambda: prog()(np.zeros(2)),
        ln.DTypeError,
        "Program [G9] needs x of dtype float32; got dtype float64. Pass np.asarray(x, np.float32).",
    )
    for wrong, dtype, it in (
        ([1, 2], "object", "x"),
        (np.ones(2, int), "int64", "x"),
        (np.ones(2, complex), "complex128", "x.real"),
    ):
        refused(
            partial(prog(), wrong),
            ln.DTypeError,
            f"Program [G9] needs x of dtype float32; got dtype {dtype}. Pass np.asarray({it}, np.float32).",
        )
    refused(
        lambda: prog()(),
        ln.ArgumentError,
        "Program [G9] needs the inputs (x : f32[2]); got no x. By position or by name.",
    )
    refused(
        lambda: prog()(y=X),
        ln.ArgumentError,
        "Program [G9] needs the inputs (x : f32[2]); got an unknown y and no x. By position or by name.",
    )
    refused(
        lambda: prog().jvp((X,), ()),
        ln.ArgumentError,
        "Program.jvp [G9] needs 1 primals and as many tangents; got 1 primals and 0 tangents. None is zero.",
    )
    refused(
        lambda: prog().run(np.zeros(2, "f"), arithmetic="x"),
        ln.ArgumentError,
        'Program.run [D9] needs arithmetic among "fast", "rounded", "interval"; got arithmetic=\'x\'. '
        'Leave it out for "fast".',
    )


def test_g10_nan_on_request() -> None:
    with pytest.raises(ln.ArgumentError) as caught:
        ln.jit(lambda x: ln.log(x), debug=True)(np.array([-1.0]))
    start = "log [G10] needs no NaN (debug=True); got one from log : f64[1] at (0,). It was built at "
    assert str(caught.value).startswith(start) and __file__ in str(caught.value)


def test_g11_statistics_of_at_least_one_run() -> None:
    refused(
        lambda: prog().stats(repeat=0),
        ln.ArgumentError,
        "Program.stats [G11] needs repeat >= 1; got repeat=0. A median is of one run at least.",
    )


def test_n6_programs_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lunette.number.cells._MEMORY", 2**20)
    graph = ln.Graph()
    x = graph.input((1024,))
    graph.output(ln.sum(ln.exp(ln.reshape(x, (1024, 1)) * ln.reshape(x, (1, 1024)))))
    refused(
        graph.compile,
        ln.ShapeError,
        "Graph.compile [N6] needs an arena of intermediate results that fits into 1048576 bytes of memory; got shape "
        "(4194304,), 4194304 bytes. Take a smaller batch, or less padding where there is any.",
    )


def test_d9_one_arithmetic_for_a_whole_graph() -> None:
    with pytest.raises(ln.ArgumentError, match="D9"):
        ln.max_pool(ln.reshape(gx, (1, 6)), 2, spatial=1, arithmetic=V)
    for f in (ln.jit, lambda f: partial(ln.trace, f), lambda f: ln.jit(ln.grad(f))):
        with pytest.raises(ln.ArgumentError) as caught:
            f(lambda x: ln.sum(ln.avg_pool(x, 2, spatial=1, arithmetic="rounded")))(X)
        assert str(caught.value) == (
            "avg_pool [D9] needs arithmetic=\"fast\" inside a graph; got arithmetic='rounded'. Leave it out: one "
            "arithmetic serves a whole program, program.run(x, arithmetic=...)."
        )


def test_constants_and_options_of_graphs_are_checked() -> None:
    graph = ln.Graph()
    v = graph.input((2,))
    assert [graph.constant(1.0).dtype, graph.constant(2, "float64").dtype] == [np.float32, np.float64]
    refused(
        lambda: graph.constant(1.0, "float31"),
        ln.DTypeError,
        "Graph.constant [D1] needs float32, float64 or int64 in a graph; got dtype='float31'. float16 goes in as "
        "float32.",
    )
    refused(
        lambda: graph.constant(np.array([True])),
        ln.DTypeError,
        "Graph.constant [D1] needs float16, bfloat16, float32 or float64; got a constant of dtype bool. Pass "
        "it.astype(np.float64), or it.astype(object) for exact numbers.",
    )
    for wrong, got in (
        (None, "mul [N1] needs numbers; got y=None of type NoneType. Pass an array or nested lists of numbers."),
        (
            np.array([True, False]),
            "mul [D1] needs y of dtype float32; got dtype bool. Pass y.astype(np.float32).",
        ),
    ):
        refused(partial(ln.mul, v, wrong), ln.DTypeError, got)
    refused(
        lambda: ln.max_pool(ln.reshape(v, (1, 2)), v, spatial=1),
        ln.DTypeError,
        "max_pool (d=1) [W4] needs kernel in integers; got kernel=Var(%0 : f32[2]) of type Var. Pass an int: bools and "
        "floats are none.",
    )
