"""Bad and hostile input. The law: a call returns or raises a LunetteError, soon, quietly, and changes nothing.

Tables try every hostile value as every argument of every public function, its derivatives, its specification and
`output_shape`; test_fuzz.py mixes them.
"""

from __future__ import annotations

import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from inspect import Parameter, signature
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import fuzz
import lunette
from hostile import NUMBERS, RAGGED, SEQUENCES, foreign
from lunette import ArgumentError, DTypeError, LunetteError, ShapeError
from lunette.number import like
from lunette.ops import ALL
from lunette.window import Axis, first_multiple

ln: Any = lunette  # wrong types are the point of this file
HOSTILE = [*NUMBERS, *SEQUENCES, *foreign()]
OPERATORS = [kind.name for kind in ALL]
LIMIT = 2.0  # seconds that one call may take


class TooSlowError(BaseException):
    """Not an Exception, so that nothing on the way catches it."""


@contextmanager
def soon() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs beyond 256 KB cannot be allocated here, so that what is refused does not depend on the machine."""
    monkeypatch.setattr("lunette.number.cells._MEMORY", 2**18)


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> LunetteError | None:
    """The refusal, or None if the call returned. Anything else that happens fails the test."""
    with soon():
        return fuzz.outcome(call, *args, **options)[1]


def example(name: str, kind: Any = np.float64) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrays and options of a call that works, d = 2."""
    x = np.arange(64, dtype=np.float64).reshape(1, 2, 4, 8).astype(kind)
    if name.startswith("conv"):
        return (x, np.ones((2, 2, 2, 3), kind), np.ones(2, kind)), {}
    if name.startswith("adaptive"):
        return (x,), {"output_size": (2, 3)}
    if name.startswith("global"):
        return (x,), {}
    return (x,), {"kernel": (2, 3), **({"beta": 1.5} if "smooth" in name else {})}


def calls(name: str, arrays: tuple[Any, ...], options: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Everything that can be asked of one operator with these arguments."""
    names = ["x", "w", "b"][: len(arrays)]
    positional = dict(zip(names, arrays, strict=True))
    g = np.ones((1, 2, 2, 2))
    yield lambda: getattr(ln, name)(**positional, **options)
    yield lambda: getattr(ln, f"{name}_jvp")(arrays, arrays, **options)
    yield lambda: getattr(ln, f"{name}_vjp")(arrays, g, **options)
    yield lambda: getattr(ln.spec, name)(**positional, **options)
    sample = (
        arrays[0][0] if isinstance(arrays[0], np.ndarray) and arrays[0].ndim and arrays[0].size else arrays[0],
        *arrays[1:],
    )
    yield lambda: getattr(ln.spec, name)(*sample, **options)
    yield lambda: getattr(ln.spec, f"{name}_jvp")(sample, sample, **options)
    yield lambda: getattr(ln.spec, f"{name}_vjp")(sample, g[0], **options)
    yield lambda: ln.output_shape(name, *(np.shape(a) if isinstance(a, np.ndarray) else a for a in arrays), **options)


def foreign_arrays() -> Iterator[tuple[str, Any]]:
    """Arrays that no operator serves, by name."""
    x = np.ones((1, 2, 4, 8))
    for dtype in (
        "int8",
        "int64",
        "uint8",
        "bool",
        "complex64",
        "complex128",
        "longdouble",
        "U3",
        "S3",
        "M8[s]",
        "m8[s]",
    ):
        yield dtype, x.astype(np.int64).astype(dtype) if dtype[0] in "Mm" else x.astype(dtype)
    yield "structured", np.zeros((1, 2, 4, 8), [("a", "f4"), ("b", "i4")])
    yield "void", np.zeros((1, 2, 4, 8), "V4")
    yield "int4", x.astype(ml_dtypes.int4)
    yield "float8", x.astype(ml_dtypes.float8_e4m3fn)
    yield "masked", np.ma.masked_array(x, x > 0)
    yield "masked object", np.ma.masked_array(x.astype(object), x > 0)
    yield "object of bools", x.astype(bool).astype(object)
    yield "object of None", np.full((1, 2, 4, 8), None)
    yield "object of str", np.full((1, 2, 4, 8), "1", object)
    yield "object of lists", np.frompyfunc(lambda _: [1], 1, 1)(x)
    yield "torch grad", torch.ones((1, 2, 4, 8), requires_grad=True)
    yield "torch parameter", torch.nn.Parameter(torch.ones((1, 2, 4, 8)))
    yield "torch meta", torch.empty((1, 2, 4, 8), device="meta")
    yield "torch int", torch.ones((1, 2, 4, 8), dtype=torch.int32)
    yield "torch bool", torch.ones((1, 2, 4, 8), dtype=torch.bool)
    yield "torch complex", torch.ones((1, 2, 4, 8), dtype=torch.complex64)
    yield "torch float8", torch.ones((1, 2, 4, 8)).to(torch.float8_e5m2)
    yield "jax int", jnp.ones((1, 2, 4, 8), jnp.int32)


# ---- tables: every hostile value as every argument


@pytest.mark.parametrize("name", OPERATORS)
def test_every_option_of_every_type_and_size(name: str) -> None:
    arrays, options = example(name)
    keywords = [p.name for p in signature(getattr(ln, name)).parameters.values() if p.name not in ("x", "w", "b")]
    refusals = 0
    for option in keywords:
        for value in HOSTILE:
            for call in calls(name, arrays, {**options, option: value}):
                refusals += outcome(call) is not None
    assert refusals > 300
    assert arrays[0].tolist() == example(name)[0][0].tolist()


@pytest.mark.parametrize("name", OPERATORS)
def test_every_array_of_every_kind(name: str) -> None:
    arrays, options = example(name)
    for at in range(len(arrays)):
        for value in [*HOSTILE, *RAGGED]:
            changed = tuple(value if p == at else a for p, a in enumerate(arrays))
            for call in calls(name, changed, options):
                outcome(call)
            outcome(getattr(ln, f"{name}_jvp"), arrays, changed, **options)
    for value in [*HOSTILE, *RAGGED]:
        outcome(getattr(ln, f"{name}_vjp"), arrays, value, **options)
        outcome(getattr(ln, f"{name}_jvp"), value, arrays, **options)
        outcome(getattr(ln, f"{name}_jvp"), arrays, value, **options)
        outcome(getattr(ln.spec, f"{name}_vjp"), arrays, value, **options)
        outcome(getattr(ln.spec, f"{name}_jvp"), value, arrays, **options)
        outcome(getattr(ln.spec, f"{name}_jvp"), arrays, value, **options)


@pytest.mark.parametrize("name", OPERATORS)
def test_arrays_that_are_not_served(name: str) -> None:
    arrays, options = example(name)
    for what, bad in foreign_arrays():
        for at in range(len(arrays)):
            changed = tuple(bad if p == at else a for p, a in enumerate(arrays))
            assert isinstance(
                outcome(getattr(ln, name), **dict(zip("xwb", changed, strict=False)), **options), DTypeError
            ), what
            assert isinstance(outcome(getattr(ln, f"{name}_jvp"), arrays, changed, **options), DTypeError), what
    assert isinstance(
        outcome(getattr(ln, f"{name}_vjp"), arrays, torch.ones(3, requires_grad=True), **options), DTypeError
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_the_hints_of_the_contract(name: str) -> None:
    (x, *rest), options = example(name)
    shared = dict(zip("wb", rest, strict=False))
    for dtype in ("int32", "bool", "complex128", "longdouble"):
        text = str(outcome(getattr(ln, name), x.astype(dtype), **shared, **options))
        assert ".astype(np.float64)" in text and ".astype(object)" in text and dtype in text.replace("float128", dtype)
    assert "detach" in str(
        outcome(getattr(ln, name), torch.ones((1, 2, 4, 8), requires_grad=True), **shared, **options)
    )
    assert "meta" in str(outcome(getattr(ln, name), torch.ones((1, 2, 4, 8), device="meta"), **shared, **options))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_tracer_of_another_library_is_refused(name: str) -> None:
    arrays, options = example(name, np.float32)
    traced = jax.jit(lambda x: getattr(ln, name)(x, *arrays[1:], **options))
    assert isinstance(outcome(traced, jnp.asarray(arrays[0])), DTypeError)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tensor_that_torch_records_is_refused() -> None:
    """torch.jit.trace would store what lunette makes of it as a constant."""
    trace: Any = torch.jit.trace
    for call in (ln.relu, lambda x: ln.max_pool(x, (2,)), lambda x: ln.max_pool(x, (2,), arithmetic="rounded")):
        with pytest.raises(DTypeError, match=r"records\. What lunette makes of it would become a constant"):
            trace(call, torch.ones(1, 4))
    assert ln.relu(torch.ones(1)).tolist() == [1]


GLUE_CALLS: list[Callable[..., Any]] = [
    *(lambda v, x, f=f: f(x, v) for f in (ln.power, ln.leaky_relu, ln.pad, ln.transpose, ln.broadcast_to, ln.reshape)),
    *(lambda v, x, f=f: f(x, v) for f in (ln.add, ln.div, ln.maximum, ln.matmul, ln.linear, ln.flatten, ln.softmax)),
    *(lambda v, x, f=f: f(v) for f in (ln.concat, ln.relu, ln.sum, ln.exp)),
    lambda v, x: ln.pad(x, 1, v),
    lambda v, x: ln.concat([x, x], v),
    lambda v, x: ln.concat([x, v]),
    lambda v, x: ln.slice(x, v, v),
    lambda v, x: ln.sum(x, v),
    lambda v, x: ln.cross_entropy(x, v),
    lambda v, x: ln.batch_norm(x, v, v, v, v),
    lambda v, x: ln.mse(x, v),
]


@pytest.mark.parametrize("at", range(len(GLUE_CALLS)))
@pytest.mark.parametrize("kind", ["array", "exact", "box", "variable"])
def test_every_argument_of_what_is_between(kind: str, at: int) -> None:
    """Any call returns or is refused, on arrays, rationals, boxes and variables, and in every arithmetic."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wide = np.broadcast_to(np.float32(1), (2**40,))
    for value in [*NUMBERS, *SEQUENCES, *RAGGED, wide, Decimal("sNaN"), 10**6, -(10**12), 10**30]:
        if kind == "variable":
            g = ln.Graph()
            with soon():
                y, _ = fuzz.outcome(GLUE_CALLS[at], value, g.input((2, 3), name="x"))
            if isinstance(y, ln.Var):
                g.output(y)
                outcome(g.compile)
            if isinstance(y, ln.Var) and math.prod(y.shape) < 1000:
                program = g.compile()
                for arithmetic in ("rounded", "interval"):
                    outcome(program.run, x, arithmetic=arithmetic)
        else:
            given = {"array": x, "exact": [[Fraction(int(v)) for v in r] for r in x], "box": ln.Interval(x, x + 1)}
            outcome(GLUE_CALLS[at], value, given[kind])


def test_a_minus_sign_that_torch_keeps_as_a_flag() -> None:
    x = torch.tensor([[1 + 2j, 3 + 4j]]).conj().imag
    assert x.is_neg() and ln.max_pool(x, (1,)).tolist() == [[-2.0, -4.0]]


def test_two_foreign_kinds_do_not_mix() -> None:
    x, w, g = torch.ones(1, 1, 4), jnp.ones((1, 1, 2)), np.ones((1, 1, 3), np.float32)
    here = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
    for call in (
        lambda: ln.conv(x, w),
        lambda: ln.conv(here[0], w, torch.ones(1)),
        lambda: ln.conv_jvp(here, (x, w)),
        lambda: ln.conv_jvp((x, here[1]), (None, w)),
        lambda: ln.conv_jvp((here[0], w), (x, None)),
        lambda: ln.conv_vjp((here[0], w), torch.ones(1, 1, 3)),
        lambda: ln.smooth_max_pool(x, (2,), beta=jnp.array(1.0)),
    ):
        error = outcome(call)
        assert isinstance(error, DTypeError) and error.rule == "D3" and "jax and torch" in error.got
    assert outcome(lambda: ln.conv_vjp((x, here[1]), g)) is None


def test_every_rank_and_zero_sizes() -> None:
    for name in OPERATORS:
        arrays, options = example(name)
        for rank in (*range(12), 33, 64):
            for size in (0, 1, 2) if rank < 12 else (1,):
                x = np.ones((size,) * rank)
                for shared in [arrays[1:]] if "conv" in name else [()]:
                    for call in calls(name, (x, *shared), options):
                        outcome(call)
                if "conv" in name:
                    for call in calls(name, (arrays[0], x), options):
                        outcome(call)
                    for call in calls(name, (np.ones((1,) * max(rank - 1, 0)), x), options):
                        outcome(call)


@pytest.mark.parametrize("rank", [9, 20, 40, 60])
def test_more_axes_than_any_kernel_has(rank: int) -> None:
    x = np.full((1,) * (rank + 1), 3.0)
    for pool in (ln.max_pool, ln.avg_pool, ln.lp_pool):
        assert pool(x, (1,) * rank).tolist() == x.tolist()
    assert ln.smooth_max_pool(x, (1,) * rank, beta=2).tolist() == x.tolist()
    assert ln.adaptive_max_pool(x, (1,) * rank).tolist() == x.tolist()
    assert ln.global_avg_pool(x, spatial=rank, keepdims=False).tolist() == [3.0]
    assert ln.conv(x, np.ones((1,) * (rank + 2))).tolist() == x.tolist()
    assert ln.max_pool_vjp((x,), x, kernel=(1,) * rank)[0].tolist() == x.tolist()


def test_what_is_no_parameter_is_refused() -> None:
    """Rule O2 names it, and the signature has nothing that takes it."""
    with pytest.raises(ln.ArgumentError, match=r"max_pool \[O2\].*an unknown stide"):
        ln.max_pool(np.ones((1, 1, 4)), 2, stide=1)
    assert all(
        p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        for name in OPERATORS
        for p in signature(getattr(ln, name)).parameters.values()
    )


# ---- nothing takes time in the size of an argument


def test_windows_far_larger_than_the_input() -> None:
    x = np.array([[1.0, 2.0, 4.0]])
    huge = 2**62
    with soon():
        assert ln.avg_pool(x, (huge,), padding=huge, stride=huge, divisor=1).tolist() == [[0.0, 7.0]]
        assert ln.max_pool(x, (huge,), stride=2**61, padding=((huge - 1, 0),)).shape == (1, 1)
        assert ln.max_pool(x, (2**40,), stride=2**40, padding=((2**40 - 3, 0),)).tolist() == [[4.0]]
        assert ln.lp_pool(x, (2**40,), stride=2**40, padding=((2**40 - 3, 0),), p=1).tolist() == [[7.0]]
        assert ln.avg_pool([[1, 2]], (huge,), padding=((huge - 2, 0),)).tolist() == [[Fraction(3, huge)]]
        assert ln.max_pool(x, (2,), dilation=huge, padding=((0, huge),), stride=huge).tolist() == [[1.0]]
        assert ln.conv(x[None], np.ones((1, 1, 2)), dilation=huge, padding=((0, huge),), stride=huge).tolist() == [
            [[1.0]]
        ]
        assert ln.conv_transpose(x[:, :1], np.ones((1, 1, 1)), stride=huge).tolist() == [[1.0]]
        assert ln.smooth_max_pool(x, (huge,), padding=((huge - 3, 0),), beta=1, count_include_pad=False).shape == (1, 1)


@pytest.mark.parametrize("size", [2**20, 2**31, 2**33, 2**62])
def test_windows_of_more_cells_than_64_bits_count(size: int) -> None:
    """Padding counts however much there is of it."""
    x = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    window: dict[str, Any] = {"kernel": (size, size), "stride": size, "padding": ((size - 2, 0), (size - 2, 0))}
    assert ln.avg_pool(x, **window).item() == 10 / size**2
    assert set(ln.avg_pool_vjp((x,), np.ones((1, 1, 1)), **window)[0].flat) == {1 / size**2}
    assert ln.avg_pool(x, **window, count_include_pad=False).item() == 2.5 and ln.max_pool(x, **window).item() == 4
    want = math.log(size**2 - 4 + sum(math.exp(v) for v in x.flat))
    assert math.isclose(ln.smooth_max_pool(x, **window, beta=1.0).item(), want)


def test_an_empty_window_is_found_without_a_search() -> None:
    """2**40 windows with data come before the first one without: it is found at once, or its absence proven."""
    x, many = np.ones((1, 1)), 2**40
    options: dict[str, Any] = {"kernel": (many + 1,), "stride": 2, "dilation": 2}
    with soon():
        error = outcome(ln.max_pool, x, padding=((2 * many, 2 * many),), **options)
        assert error is not None and error.rule == "N6"
        error = outcome(ln.max_pool, x, padding=((2 * many, 2 * many + 2),), **options)
        assert error is not None and error.rule == "M1" and f"({many + 1},)" in error.got
        shape = ln.output_shape("max_pool", (1, 1, 1), padding=((2 * many, 2 * many),), **options)
        assert shape == (1, 1, many + 1)


def test_the_first_empty_window_is_the_first() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20_000):
        a, modulus = (int(v) for v in rng.integers(1, 30, 2))
        low = int(rng.integers(0, modulus))
        high = int(rng.integers(low, modulus))
        wanted = next((x for x in range(modulus) if low <= a * x % modulus <= high), None)
        assert first_multiple(a, modulus, low, high) == wanted
        kernel, stride, dilation, lo, hi = (int(v) for v in rng.integers((1, 1, 1, 0, 0), (5, 7, 9, 12, 12)))
        axis, n = Axis(kernel, stride, dilation, lo, hi, bool(rng.integers(2))), int(rng.integers(0, 7))
        if n + lo + hi >= axis.span:
            searched = (o for o in range(axis.out(n)) if axis.reach(o, n).count == 0)
            assert axis.first_empty(n) == next(searched, None)


def test_no_cells_cost_nothing() -> None:
    """2**50 output cells in no channels, or in no samples, are no work."""
    far = {"padding": 2**50}
    for shape in ((1, 0, 3), (0, 2, 3)):
        x, y = np.ones(shape), np.empty((*shape[:2], 2**51 + 3))
        for call, vjp, options in (
            (ln.avg_pool, ln.avg_pool_vjp, {"kernel": (1,), "stride": 1, **far}),
            (ln.lp_pool, ln.lp_pool_vjp, {"kernel": (1,), "stride": 1, **far}),
            (ln.smooth_max_pool, ln.smooth_max_pool_vjp, {"kernel": (1,), "stride": 1, "beta": 1.0, **far}),
            (ln.adaptive_max_pool, ln.adaptive_max_pool_vjp, {"output_size": 2**51 + 3, "spatial": 1}),
            (ln.adaptive_avg_pool, ln.adaptive_avg_pool_vjp, {"output_size": 2**51 + 3, "spatial": 1}),
        ):
            with soon():
                assert call(x, **options).shape == y.shape
                assert [v.shape for v in vjp((x,), y, **options)] == [shape]
    with soon():
        w = np.ones((0, 2, 1))
        y = ln.conv(np.ones((1, 2, 3)), w, **far)
        assert y.shape == (1, 0, 2**51 + 3)
        assert [v.shape for v in ln.conv_vjp((np.ones((1, 2, 3)), w), y, **far)] == [(1, 2, 3), (0, 2, 1)]
        assert ln.spec.avg_pool(np.ones((0, 3)), 1, stride=1, **far).shape == (0, 2**51 + 3)


def test_outputs_that_cannot_be_allocated_tell_their_bytes() -> None:
    x = np.ones((1, 2, 3), np.float32)
    for call, cells, size in (
        (lambda: ln.avg_pool(x, (1,), stride=1, padding=2**40), 2 * (2**41 + 3), 4),
        (lambda: ln.conv(x, np.ones((5, 2, 1), np.float32), padding=2**62), 5 * (2**63 + 3), 4),
        (lambda: ln.conv_transpose(x, np.ones((2, 1, 1), np.float32), stride=2**62), 2**63 + 1, 4),
        (lambda: ln.adaptive_avg_pool(x.astype(np.float64), 2**62, spatial=1), 2**63, 8),
        (lambda: ln.adaptive_max_pool(x, (2**62,)), 2**63, 4),
        (lambda: ln.spec.lp_pool(x[0], 1, stride=1, padding=2**30), 2 * (2**31 + 3), 48),
        (lambda: ln.spec.avg_pool_jvp((x[0],), (x[0],), kernel=1, stride=1, padding=2**30), 2 * (2**31 + 3), 48),
        (lambda: ln.avg_pool_jvp((x,), (None,), kernel=(1,), stride=1, padding=2**40), 2 * (2**41 + 3), 4),
    ):
        error = outcome(call)
        assert isinstance(error, ShapeError) and error.rule == "N6" and f"{cells * size} bytes" in error.got


def test_exponents_and_divisors_beyond_the_floats() -> None:
    third = Fraction(1, 3)
    for p in (1e300, 2**62, 2**70, 10**300, Fraction(10**300)):
        for cell in (0.5, np.float32(0.5), Decimal("0.5"), lunette.Interval(0.25, 0.5), third):
            outcome(ln.lp_pool, [[cell, cell]], (2,), p=p)
            outcome(ln.lp_pool_vjp, ([[cell, cell]],), [[cell]], kernel=(2,), p=p)
    for cell in (1.0, np.float32(1), Decimal(1), lunette.Interval(1.0), third, 1):
        for value in (10**400, Fraction(1, 10**400), 1e308, 5e-324):
            outcome(ln.avg_pool, [[cell]], (1,), divisor=value)
            outcome(ln.smooth_max_pool, [[cell]], (1,), beta=value)
    assert ln.avg_pool([[third]], (1,), divisor=10**400).tolist() == [[third / 10**400]]
    for dtype in (np.float16, np.float32, np.float64):
        for beta in (10**400, -(10**400), Fraction(1, 10**400), Decimal("1e999"), float("nan"), 0):
            error = outcome(ln.smooth_max_pool, np.ones((1, 2), dtype), (2,), beta=beta)
            assert error is not None and error.rule == "S1"
        for divisor in (10**400, Fraction(1, 10**400)):
            error = outcome(ln.avg_pool, np.ones((1, 2), dtype), (2,), divisor=divisor)
            assert error is not None and error.rule == "A2"


def test_a_remembered_call_still_checks_its_values() -> None:
    """Bound operators are remembered by shape, dtype and plain options; neither values nor look-alikes may slip in."""
    x = np.ones((1, 1, 4, 4))
    for beta in (1.0, 0.0, np.nan):
        error = outcome(ln.smooth_max_pool, x, 2, beta=np.array(beta))
        assert (error is None) == (beta == 1.0)
        assert error is None or str(error).startswith("smooth_max_pool (d=2) [S1]")
    for good, bad in (
        (1, True),
        (1, 1.0),
        (np.int8(1), np.bool_(True)),
        (np.array([1, 1]), np.array([1, 1]).tobytes()),
    ):
        assert outcome(ln.max_pool, x, 2, stride=good) is None
        assert isinstance(outcome(ln.max_pool, x, 2, stride=bad), DTypeError)
    pairs = np.array([[1, 1], [1, 1]])
    assert outcome(ln.max_pool, x, 2, padding=pairs) is None
    assert isinstance(outcome(ln.max_pool, x, 2, padding=pairs.ravel()), ArgumentError)


# ---- geometry does not look at batches and channels


GEOMETRY: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max_pool", (4, 8), {"kernel": (5, 1)}),
    ("max_pool", (4, 8), {"kernel": (1, 1), "padding": 1}),
    ("max_pool", (4, 8), {"kernel": (1, 0)}),
    ("max_pool", (0, 8), {"kernel": (1, 1), "padding": 1}),
    ("avg_pool", (4, 8), {"kernel": 2, "padding": 2, "count_include_pad": False}),
    ("avg_pool", (4, 8), {"kernel": 2, "stride": 0}),
    ("avg_pool", (4, 8), {"kernel": 2, "divisor": 0}),
    ("smooth_max_pool", (4, 8), {"kernel": 2, "padding": 2, "count_include_pad": False, "beta": 1.0}),
    ("smooth_max_pool", (4, 8), {"kernel": 2, "beta": 0.0}),
    ("lp_pool", (4, 8), {"kernel": 2, "padding": -1}),
    ("adaptive_avg_pool", (4, 0), {"output_size": 2}),
    ("adaptive_max_pool", (4, 8), {"output_size": (2, 0)}),
    ("global_max_pool", (0, 8), {}),
    ("conv", (4, 8), {"dilation": 2**62}),
    ("conv", (4, 8), {"stride": (1, 0)}),
    ("conv", (1, 8), {}),
    ("conv_transpose", (4, 0), {}),
    ("conv_transpose", (4, 8), {"padding": 9}),
    ("conv_transpose", (4, 8), {"output_padding": 1}),
]


@pytest.mark.parametrize(("name", "space", "options"), GEOMETRY)
def test_geometry_does_not_depend_on_batch_or_channels(
    name: str, space: tuple[int, ...], options: dict[str, Any]
) -> None:
    texts = set()
    for batch in ((), (0,), (1,), (3,), (2, 0)):
        for channels in (0, 1, 3):
            x = np.ones((*batch, channels, *space))
            shared: list[Any] = [()]
            if "conv" in name:  # with matching and with wrong channels: the geometry speaks first
                shared = [(np.ones((i, o, 2, 3)),) for i in (0, 2, channels) for o in (0, 2, channels)]
            given = options if "kernel" in options or "conv" in name else {**options, "spatial": 2}
            given = {**given, "spatial": 2} if given.get("kernel") == 2 else given
            if isinstance(given.get("output_size"), tuple):
                given = options
            texts |= {str(outcome(getattr(ln, name), x, *arrays, **given)) for arrays in shared}
            shapes = {str(outcome(ln.output_shape, name, x.shape, *map(np.shape, a), **given)) for a in shared}
            texts |= shapes if "beta" not in options else set()
    texts.discard("None") if options.get("beta") == 0.0 else None
    assert len(texts) == 1 and "None" not in texts


@pytest.mark.parametrize("arithmetic", ["fast", "rounded", "interval"])
def test_derivatives_at_no_array_are_refused(arithmetic: str) -> None:
    g = np.ones((1, 1, 4, 4), np.float32)
    for c in (g, ln.Interval(g, g)):
        for op, primals, cotangent, options in (
            ("global_max_pool", (None,), c, {}),
            ("smooth_max_pool", (None, 2.0), c, {"kernel": 2}),
            ("conv_transpose", (None, c), g, {}),
        ):
            with pytest.raises(DTypeError, match=r"N1.*x=None"):
                getattr(ln, f"{op}_vjp")(primals, cotangent, arithmetic=arithmetic, **options)


@pytest.mark.parametrize("size", [2**40, 2**62])
def test_boxes_of_exact_numbers_that_cannot_be_allocated_are_refused(size: int) -> None:
    with pytest.raises(ShapeError, match=r"adaptive_avg_pool \(d=2\) \[N6\]"):
        ln.adaptive_avg_pool(np.ones((2, 4, 2), object), (size, 1), arithmetic="interval")


def test_every_number_has_a_bfloat16() -> None:
    cell = ml_dtypes.bfloat16(1)
    for number, near in ((10**400, math.inf), (-(2**70), -(2.0**70)), (Fraction(1, 3), 1 / 3), (10**39, math.inf)):
        assert type(like(number, cell)) is ml_dtypes.bfloat16
        assert like(number, cell) == ml_dtypes.bfloat16(near)


def test_the_bound_of_what_overflows_is_infinite_and_quiet() -> None:
    x = np.full((1, 1, 2), np.finfo(np.float64).max)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(ln.error_bound("conv", (x, x))).all()
        assert np.isinf(ln.error_bound("avg_pool", (x,), kernel=(2,))).all()
