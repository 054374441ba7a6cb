"""The compiled core as a whole: its stub, threads, forks, memory layouts."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import sysconfig
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lunette as ln
from lunette import _native, core
from lunette.arithmetic.rounded import _widener
from lunette.arithmetic.sums import _decider
from lunette.array import forget, resolved
from lunette.number import Array

ROOT = Path(__file__).parents[1]


def test_the_stub_in_the_repository_describes_the_module() -> None:
    from nanobind.stubgen import StubGen

    generator = StubGen(_native)
    generator.put(_native)
    assert (ROOT / "src/lunette/_native.pyi").read_text() == generator.get(), (
        "python -m nanobind.stubgen -m lunette._native -o src/lunette/_native.pyi"
    )


def problems(seed: int, dtype: Any) -> Iterator[tuple[str, tuple[Array, ...], dict[str, Any]]]:
    """Every operator, in sizes that are worth several threads, on each of the ways its kernels have."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(dtype)

    line, plane, solid = some(2, 16, 1500), some(2, 8, 48, 50), some(1, 6, 12, 20, 22)
    yield "conv", (plane, some(16, 8, 3, 3), some(16)), {"padding": 1, "stride": 2}
    yield "conv", (plane, some(8, 1, 3, 3)), {"groups": 8, "padding": 1}
    yield "conv", (line, some(16, 4, 5), some(16)), {"groups": 4, "dilation": 3}
    yield "conv", (solid, some(4, 6, 2, 3, 3)), {}
    yield "conv_transpose", (plane, some(8, 8, 4, 4), some(8)), {"stride": 2, "padding": 1}
    for x, kernel in ((line, 3), (plane, (2, 2)), (plane, (3, 3)), (plane, (31, 31)), (solid, (2, 3, 3))):
        window = {"kernel": kernel, "stride": 1 if kernel == (31, 31) else 2, "spatial": x.ndim - 2}
        for ties in ("first", "all", "split"):
            yield "max_pool", (x,), {**window, "ties": ties}
        yield "avg_pool", (x,), {**window, "padding": 1, "count_include_pad": False}
        if kernel != (31, 31):
            yield "smooth_max_pool", (x, np.array(1.5, dtype)), window
            yield "lp_pool", (x,), {**window, "p": 3}
    for name in ("adaptive_avg_pool", "adaptive_max_pool"):
        yield name, (plane,), {"output_size": (7, 11)}
    for name in ("global_avg_pool", "global_max_pool"):
        yield name, (plane,), {}


def compute(seed: int) -> list[Array]:
    """Value, indices, JVP and VJP of every problem."""
    results: list[Array] = []
    for dtype in (np.float32, np.float64):
        for name, arrays, options in problems(seed, dtype):
            named = {"beta": arrays[1]} if "smooth" in name else dict(zip("wb", arrays[1:], strict=False))
            y = getattr(ln, name)(arrays[0], **named, **options)
            results += [y, getattr(ln, f"{name}_jvp")(arrays, arrays, **options)]
            results += getattr(ln, f"{name}_vjp")(arrays, y, **options)
            if name == "max_pool":
                results += ln.max_pool(arrays[0], **options, return_indices=True)
        results += [*network(seed, dtype), deep(seed, dtype)]
        results += other_arithmetics(seed, dtype)
    return results


def other_arithmetics(seed: int, dtype: Any) -> list[Array]:
    x = np.random.default_rng(seed).standard_normal((2, 3, 9, 9)).astype(dtype)
    y = ln.avg_pool(x, 2, arithmetic="rounded")
    results = [ln.conv(x, x[:, :, :3, :3], arithmetic="rounded")]
    results += ln.avg_pool_vjp((x,), y, kernel=2, arithmetic="rounded")
    for name, options in (("avg_pool", {}), ("lp_pool", {"p": 3}), ("smooth_max_pool", {"beta": 1.5})):
        pool: Any = partial(getattr(ln, name), kernel=2, **options)
        box = pool(ln.Interval(x, x + 1), arithmetic="interval")
        results += [pool(x, arithmetic="rounded"), box.lo, box.hi]
    results += ln.smooth_max_pool_vjp((x, dtype(1.5)), y, kernel=2, arithmetic="rounded")
    return results


def network(seed: int, dtype: Any) -> list[Array]:
    """A compiled program and its gradient, with the operators between the window operators."""
    rng = np.random.default_rng(seed)
    x, w, v = (rng.standard_normal(s).astype(dtype) for s in ((4, 8, 40, 40), (8, 8, 3, 3), (10, 16)))
    scale = rng.standard_normal((8, 1, 1)).astype(dtype)

    def f(x: Any, scale: Any) -> Any:
        h = ln.relu(ln.conv(ln.sigmoid(x), w, padding=1) * scale + scale)
        h = ln.concat([ln.maximum(h, x), ln.pad(ln.transpose(x, (0, 1, 3, 2)), 0)], 1)
        h = ln.take(h, np.arange(40)[::-1] // 2, 2)
        logits = ln.linear(ln.mean(h, axis=(2, 3)), v)
        return ln.cross_entropy(logits, np.arange(4)) + ln.sum(ln.softmax(logits) ** 2)

    program = ln.trace(f, x, scale).compile()
    labels = ln.one_hot(np.arange(4), 10, dtype=dtype)
    value, gradients = ln.jit(ln.value_and_grad(f, argnums=(0, 1)))(x, scale)
    return [program(x, scale), value, *gradients, labels, ln.matmul(v, v.T)]


def deep(seed: int, dtype: Any) -> Array:
    """A compiled program whose values are in blocks of channels."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 32, 24, 24), (32, 32, 3, 3)))
    y: Array = ln.trace(lambda x: ln.conv(ln.relu(ln.conv(x, w, padding=1)), w, padding=1), x).compile()(x)
    return y


def equal(a: list[Array], b: list[Array]) -> bool:
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


def test_the_problems_below_use_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    unused = {name for name in dir(_native) if not name.startswith("_") and callable(getattr(_native, name))}
    unused -= {"Pool", "Plan", "Task", "get_num_threads", "set_num_threads", "instruction_set"}
    unused -= {"foreign_run", "keep_plan", "keep_task", "with_plain_floats"}  # what XLA calls: tests/test_jax_bridge.py
    unused -= {"borrow_threads"}  # below, and tests/test_torch_nodes.py
    unused -= {"conv_blocked"} if ln.instruction_set() == "generic" else set()
    unused -= {"pull_rows", "weigh_rows"}  # rows of bounds, on one thread: tests/test_lines.py

    def noted(name: str) -> Any:
        kernel = getattr(_native, name)

        def call(*arguments: Any) -> Any:
            unused.discard(name)
            return kernel(*arguments)

        return call

    for name in tuple(unused):
        monkeypatch.setattr(core, name, noted(name))
    forget()
    _decider.cache_clear()
    _widener.cache_clear()
    compute(0)
    assert not unused


def test_many_python_threads_get_the_same_results() -> None:
    want = [compute(seed) for seed in range(2)]
    failures: list[int] = []

    def work(seed: int) -> None:
        failures.extend(seed for _ in range(2) if not equal(compute(seed), want[seed]))

    threads = [threading.Thread(target=work, args=(n % 2,), daemon=True) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not failures and not any(t.is_alive() for t in threads)


PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
LEND = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int64, PART, ctypes.c_void_p)
Lend = Callable[[int, Callable[[int, int], None], int], bool]


@contextmanager
def lending(lend: Lend) -> Iterator[None]:
    """Another runtime, which runs parts on threads of its own."""
    function = LEND(lend)
    _native.borrow_threads(ctypes.cast(function, ctypes.c_void_p).value or 0)
    before = ln.get_num_threads()
    ln.set_num_threads(2)
    try:
        yield
    finally:
        _native.borrow_threads(0)
        ln.set_num_threads(before)


def test_parts_run_on_threads_of_others() -> None:
    """In whatever order they run them, one after another or at the same time, or if nobody comes for a part."""
    asked: list[int] = []

    def at_once(parts: int, part: Callable[[int, int], None], data: int) -> bool:
        asked.append(parts)
        threads = [threading.Thread(target=part, args=(data, i)) for i in range(parts)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return True

    def backwards(parts: int, part: Callable[[int, int], None], data: int) -> bool:
        for i in reversed(range(parts)):
            part(data, i)
        return True

    def never(parts: int, part: Callable[[int, int], None], data: int) -> bool:
        asked.append(-parts)
        return False

    ln.set_num_threads(2)
    want = compute(0)
    for lend in (at_once, backwards, never):
        with lending(lend):
            assert equal(compute(0), want)
    assert set(asked) == {2, -2}


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="knows one register, by libm")
def test_borrowed_threads_keep_small_numbers() -> None:
    """Where theirs flush numbers without all their digits to zero, parts do not, and theirs go on to do so."""
    libm = ctypes.CDLL("libm.so.6")
    flush = 0x8040

    def environment() -> bytearray:
        now = (ctypes.c_char * 32)()
        libm.fegetenv(now)
        return bytearray(now)

    def flushing(parts: int, part: Callable[[int, int], None], data: int) -> bool:
        ours, theirs = environment(), environment()
        theirs[28:] = (int.from_bytes(theirs[28:], "little") | flush).to_bytes(4, "little")
        libm.fesetenv(bytes(theirs))
        for i in range(parts):
            part(data, i)
        kept.append(int.from_bytes(environment()[28:], "little") & flush == flush)
        libm.fesetenv(bytes(ours))
        return True

    kept: list[bool] = []
    with lending(flushing):
        y = ln.avg_pool(np.full((1, 64, 64, 64), 2.0**-140, np.float32), 2)
    assert kept and all(kept) and (y == np.float32(2.0**-140)).all()


def test_a_forked_child_has_threads_of_its_own() -> None:
    """Those that its parent borrowed are not in it: it would wait for them for ever."""
    in_a_process("""
        from test_native import lending
        home = os.getpid()
        def here(parts, part, data):
            assert os.getpid() == home
            for i in range(parts): part(data, i)
            return os.getpid() == home
        ln.set_num_threads(2)
        want = compute(0)
        with lending(here):
            assert equal(compute(0), want)
            assert in_child(lambda: equal(compute(0), want)) and equal(compute(0), want)
    """)


def in_a_process(code: str) -> None:
    """In a process of its own: other libraries in this one object to forks. A hang ends after some minutes."""
    start = "import faulthandler, os, sys, threading; faulthandler.dump_traceback_later(280, exit=True)\n"
    start += "sys.path.insert(0, sys.argv[1]); import lunette as ln; from test_native import compute, equal, in_child\n"
    run = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code), str(ROOT / "tests")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr


def in_child(check: Callable[[], Any]) -> bool:
    """Whether something holds in a forked process, which ends here whatever happens in it."""
    if (pid := os.fork()) == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            traceback.print_exc()
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


among_threads = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="a dict that another thread is reading stays locked in the child, by Python itself (seen with 3.13.15)",
)


def test_a_forked_child_computes_too() -> None:
    """And its parent goes on; and the child's child computes."""
    in_a_process("""
        ln.set_num_threads(2)
        want = compute(0)
        def computes(): return equal(compute(0), want)
        assert in_child(lambda: computes() and in_child(computes)) and computes()
    """)


@among_threads
def test_a_child_forked_in_the_middle_of_a_kernel_computes_too() -> None:
    """Other threads of the parent are inside kernels, and hold its pool, when the child is made."""
    in_a_process("""
        ln.set_num_threads(2)
        want, stop = compute(0), threading.Event()
        def work():
            while not stop.is_set():
                compute(1)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for t in threads: t.start()
        for _ in range(4):
            assert in_child(lambda: equal(compute(0), want))
        stop.set()
        for t in threads: t.join()
    """)


@among_threads
def test_a_child_forked_while_other_threads_run_a_program_on_boxes_does_so_too() -> None:
    """Also one that has not run before: its plan is made in the parent and in the child at the same time."""
    in_a_process("""
        import numpy as np
        x, w = np.arange(-32, 32, dtype=np.float32).reshape(1, 1, 8, 8), np.full((4, 1, 3, 3), 0.1, np.float32)
        graph = ln.trace(lambda x: ln.avg_pool(ln.sigmoid(ln.conv(x, w, padding=1)), 2) + 1, x)
        box = ln.Interval(x, x + 1)
        want, stop = graph.compile().run(box), threading.Event()
        program, later = graph.compile(), [graph.compile() for _ in range(4)]
        def work():
            while not stop.is_set():
                program.run(box)
                for p in later: p.run(box)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for t in threads: t.start()
        for p in later:
            assert in_child(lambda: p.run(box) == want and program.run(box) == want)
        stop.set()
        for t in threads: t.join()
    """)


@among_threads
def test_a_child_forked_while_another_thread_computes_with_balls_does_so_too() -> None:
    """One precision serves all threads, behind a lock that nobody in the child would release."""
    in_a_process("""
        import flint
        from lunette.arithmetic.exact import precision
        before, inside, stop = flint.ctx.prec, threading.Event(), threading.Event()
        def work():
            with precision(777):
                inside.set()
                stop.wait()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        inside.wait()
        def computes():
            y = ln.smooth_max_pool([[0.5, 1e3]], (2,), beta=1.0, arithmetic="rounded")
            return y == 1e3 and flint.ctx.prec == before
        assert in_child(computes) and flint.ctx.prec == 777
        stop.set()
        thread.join()
        assert flint.ctx.prec == before
    """)


@among_threads
def test_a_child_forked_while_another_thread_derives_or_runs_a_program_does_so_too() -> None:
    """Nothing is held while a derivative is made, nor while a plan takes its memory."""
    in_a_process("""
        import numpy as np
        from lunette.graph import program
        x = np.ones(4)
        p = ln.trace(lambda x: ln.sum(ln.exp(ln.tanh(x))), x).compile()
        want, inside, stop, made = p(x), threading.Event(), threading.Event(), program.vjp_graphs
        def slow(*given):
            inside.set()
            stop.wait()
            return made(*given)
        program.vjp_graphs = slow
        thread = threading.Thread(target=lambda: p.vjp(x), daemon=True)
        thread.start()
        assert inside.wait(60)
        program.vjp_graphs = made
        assert in_child(lambda: p.vjp(x)[1](np.ones(()))[0].shape == (4,))
        stop.set()
        thread.join()
        end = threading.Event()
        def run():
            while not end.is_set():
                p(x)
        threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
        for t in threads: t.start()
        for _ in range(20):
            assert in_child(lambda: p(x) == want)
        end.set()
        for t in threads: t.join()
    """)


def test_nothing_is_said_of_what_is_alive_at_the_end() -> None:
    """A function that is kept in a global, beside a library that keeps modules alive."""
    code = """if True:
        import builtins, numpy as np, lunette as ln
        f = ln.jit(lambda x: ln.max_pool(ln.relu(x), (2,)))
        f(np.ones((1, 4), np.float32))
        ln.matmul(np.ones((2, 2)), np.ones((2, 2)))
        builtins.kept = f, ln.avg_pool(np.ones((1, 4)), (2,), arithmetic="rounded")
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stderr == ""


def test_tables_that_are_remembered_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolved, "MOST_BYTES", 1 << 20)
    for n in range(10_000, 10_032):
        x = np.zeros((1, n), np.float32)
        ln.max_pool(x, (2,))
        ln.avg_pool(x, (2,), arithmetic="rounded")
        assert len(resolved.RESOLVED) < 4 and resolved.Held.bytes <= 1 << 21
    resolved.forget()
    assert resolved.Held.bytes == 0


def test_what_another_thread_forgets_is_made_again() -> None:
    stop, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            for n in range(1, 400):
                ln.max_pool(np.zeros((1, n % 7 + 2), np.float32), (2,))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    forgetting = threading.Thread(target=lambda: [resolved.forget() for _ in iter(stop.is_set, True)])
    try:
        for t in (*threads, forgetting):
            t.start()
        for t in threads:
            t.join()
    finally:
        stop.set()
        forgetting.join()
        sys.setswitchinterval(before)
    assert not errors


def test_results_repeat_for_every_number_of_threads() -> None:
    before = ln.get_num_threads()
    for n in (1, 2, 3, 4):
        ln.set_num_threads(n)
        assert ln.get_num_threads() == n
        assert equal(compute(7), compute(7))
    ln.set_num_threads(before)


def test_layout_does_not_matter_to_the_result() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 10)).astype(np.float32)
    want = ln.max_pool(x, 3, stride=2, padding=1)
    wide = np.zeros((2, 3, 18, 20), np.float32)
    wide[..., ::2, ::2] = x
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    for other in (x.copy("F"), wide[..., ::2, ::2], x[..., ::-1][..., ::-1], shifted, read_only, x.astype(">f4")):
        y = ln.max_pool(other, 3, stride=2, padding=1)
        assert np.array_equal(y, want) and y.flags.c_contiguous


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_an_instruction_set_can_be_forced(isa: str) -> None:
    """One that the machine does not have is refused in words, not by an illegal instruction."""
    code = "import lunette as ln, numpy as np; print(ln.instruction_set(), ln.max_pool(np.ones((1, 1, 4)), (2,)).sum())"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LUNETTE_ISA": isa}, capture_output=True, text=True, timeout=60
    )
    assert run.returncode in (0, 1)
    assert run.stdout == f"{isa} 2.0\n" or isa in run.stderr


def test_a_count_of_the_work_that_wraps_is_not_taken_for_none() -> None:
    """The sizes of this convolution multiply to 2^64; all but one of its taps lie outside for every output."""
    n, taps, m = 1 << 24, 1 << 20, 1 << 20
    x = (np.arange(n, dtype=np.float32) % 1000 + 1).reshape(1, 1, n)
    w = np.zeros((1, 1, taps), np.float32)
    w[0, 0, 0] = 2
    options: dict[str, Any] = {"dilation": n, "padding": ((0, m + (taps - 1) * n - n),)}
    y = ln.conv(x, w, **options)
    assert y.shape == (1, 1, m) and (y == 2 * x[..., :m]).all()
    dx, dw = ln.conv_vjp((x, w), np.ones_like(y), **options)
    assert (dx[..., :m] == 2).all() and not dx[..., m:].any()
    assert dw[0, 0, 0] == x[0, 0, :m].sum(dtype=np.float64) and not dw[..., 1:].any()


def test_windows_that_lie_far_apart_need_no_table_for_each_step() -> None:
    x = np.zeros((1, 1, 1 << 22), np.float32)
    x[0, 0, -3] = 1
    dx = ln.max_pool_vjp((x,), np.ones((1, 1, 2), np.float32), kernel=(5,), stride=(1 << 22) - 5)[0]
    assert np.flatnonzero(dx).tolist() == [0, (1 << 22) - 3]
