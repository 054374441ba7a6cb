"""Random calls, hostile ones among them. Call number i of a seed is always the same call.

    python tests/fuzz.py SEED FIRST STOP     runs calls FIRST to STOP-1 of a seed; a failure shows its call
    python tests/fuzz.py SEED I              runs and shows call I

A call must return or raise a LunetteError, soon and quietly, and change none of its arguments. The layout of an array
must not change the result, and what is small and finite must be what the specification says.
`watch` runs calls in a process of its own, so that a crash or a hang is known by its call, too.
LUNETTE_FUZZ_FOREIGN=0 leaves out the arrays of torch and JAX.
"""

from __future__ import annotations

import copy
import faulthandler
import mmap
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from math import prod
from typing import Any

import flint
import ml_dtypes
import numpy as np

import hostile
import lunette
from lunette import ArgumentError, DTypeError, LunetteError, ShapeError
from lunette.array import resolve_named
from lunette.number import Array
from lunette.op import Case, Op
from lunette.ops import ALL

ln: Any = lunette  # wrong types are the point
KINDS: dict[str, type[Op]] = {kind.name: kind for kind in ALL}
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
FOREIGN = os.getenv("LUNETTE_FUZZ_FOREIGN", "1") != "0"
SLOW = 5.0  # seconds of processor time that one call may take
PATIENCE = 120.0  # seconds without a next call after which the process hangs
MEMORY = 2**18  # bytes: larger outputs are refused, so that what is refused does not depend on the machine
EVERY = 4  # one in so many calls is compared with the specification


# ---- one call


@dataclass(frozen=True, slots=True)
class Call:
    """A function of lunette by its path, and what it is given."""

    path: str
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> Callable[..., Any]:
        found = lunette
        for name in self.path.split("."):
            found = getattr(found, name)
        return found  # type: ignore[return-value]

    def arrays(self) -> list[Array]:
        """The NumPy arrays among the arguments, those in tuples too."""
        flat = [b for a in self.args for b in (a if isinstance(a, tuple) else (a,))]
        return [a for a in (*flat, *self.options.values()) if isinstance(a, np.ndarray)]

    def dense(self) -> Call:
        """The same call on plain copies."""

        def plain(a: Any) -> Any:
            if isinstance(a, tuple):
                return tuple(plain(b) for b in a)
            return a.astype(a.dtype.newbyteorder("="), order="C") if isinstance(a, np.ndarray) else a

        return Call(self.path, plain(self.args), self.options)

    def __str__(self) -> str:
        words = [*map(_shown, self.args), *(f"{k}={_shown(v)}" for k, v in self.options.items())]
        return f"ln.{self.path}({', '.join(words)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, np.ndarray) and value.ndim:
        f = value.flags
        marks = [word for word, on in (("read-only", not f.writeable), ("unaligned", not f.aligned)) if on]
        cells = f" = {value.tolist()}" if value.size <= 12 else ""
        return (
            " ".join([f"<{value.dtype.str} {value.dtype} {value.shape} strides {value.strides}", *marks]) + cells + ">"
        )
    try:
        text = repr(value)
    except ValueError:
        text = f"an int of {value.bit_length()} bits"
    return text if len(text) <= 300 else f"{text[:300]}..."


# ---- layouts


def _reversed(rng: np.random.Generator, a: Array) -> Array:
    turn = tuple(slice(None, None, -1 if rng.random() < 0.6 else 1) for _ in a.shape)
    return a[turn].copy()[turn]


def _spread(rng: np.random.Generator, a: Array) -> Array:
    steps = [int(s) for s in rng.integers(1, 4, a.ndim)]
    wide = np.zeros([n * s + 1 for n, s in zip(a.shape, steps, strict=True)], a.dtype)
    view = wide[tuple(slice(1, 1 + n * s, s) for n, s in zip(a.shape, steps, strict=True))]
    view[...] = a
    return view


def _repeated(rng: np.random.Generator, a: Array) -> Array:
    """Zero strides along some axes."""
    one = tuple(slice(0, 1) if rng.random() < 0.6 else slice(None) for _ in a.shape)
    return np.broadcast_to(a[one], a.shape) if a.size else a


def _unaligned(rng: np.random.Generator, a: Array) -> Array:
    if a.dtype == object or not a.size:
        return a
    return np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)


def _swapped(rng: np.random.Generator, a: Array) -> Array:
    return a.astype(a.dtype.newbyteorder()) if a.dtype.kind == "f" else a


def _read_only(rng: np.random.Generator, a: Array) -> Array:
    a.flags.writeable = False
    return a


def _turned(rng: np.random.Generator, a: Array) -> Array:
    order = rng.permutation(a.ndim)
    return np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))


LAYOUTS: list[Callable[[np.random.Generator, Array], Array]] = [
    *(_reversed, _spread, _repeated, _unaligned, _swapped, _read_only, _turned)
]


# ---- the generator


@cache
def _values() -> list[Any]:
    """Hostile ones. Iterators are left out: they are not the same twice."""
    found = [*hostile.NUMBERS, *hostile.SEQUENCES, *hostile.RAGGED, *(hostile.foreign() if FOREIGN else ())]
    return [v for v in found if not isinstance(v, Iterator)]


class Dice:
    """What a random call is made of."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = np.random.default_rng([seed, number])

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def ints(self, d: int) -> Any:
        """A window option: one number or one per axis, mostly small."""
        small = [0, 1, 1, 1, 2, 2, 3, 4, 2**31, 2**62, 2**70, -1]
        if self.chance(0.5):
            return self.pick(small[1:8] if self.chance(0.85) else small)
        return tuple(self.pick(small[1:8] if self.chance(0.93) else small) for _ in range(d))

    def shape(self) -> tuple[tuple[int, ...], int]:
        """(*batch, channels, *space) and d. Some are wide enough for whole vectors."""
        d = self.pick([0, 1, 1, 2, 2, 3, 4])
        most = {0: 1, 1: 60, 2: 20, 3: 8, 4: 4}[d] if self.chance(0.3) else 5
        space = self.rng.integers(0 if self.chance(0.1) else 1, most + 1, d)
        batch = self.rng.integers(0 if self.chance(0.1) else 1, 3, self.pick([0, 1, 1, 2]))
        channels = self.pick([0, 1, 2, 2, 3, 4]) if self.chance(0.3) else self.pick([1, 2, 3, 4, 8])
        return tuple(int(n) for n in (*batch, channels, *space)), d

    def array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Mostly small integers; sometimes special values, odd layouts, lists or another library's arrays."""
        values = self.rng.integers(-3, 4, shape).astype(np.float64)
        if self.chance(0.15) and dtype is not np.int64:
            values = np.where(self.rng.random(shape) < 0.2, self.rng.choice([np.nan, np.inf, -np.inf, -0.0]), values)
        elif dtype is object:
            values = values.astype(np.int64)
        with np.errstate(all="ignore"):
            a = np.asarray(values).astype(dtype)
        if a.ndim and self.chance(0.5):
            a = self.pick(LAYOUTS)(self.rng, a)
        if self.chance(0.05):
            return a.tolist()
        return self.foreign(a) if FOREIGN and self.chance(0.06) else a

    def foreign(self, a: Array) -> Any:
        import jax.numpy as jnp
        import torch

        if a.dtype not in (*FLOATS, np.float16, np.int64):
            return a
        native = a.astype(a.dtype.newbyteorder("="), order="C")
        if self.chance(0.3):
            return jnp.asarray(native)
        tensor = torch.from_numpy(native)
        return self.pick(
            [
                tensor,
                tensor.mT.contiguous().mT if a.ndim > 1 else tensor,
                tensor.flip(0) if a.ndim else tensor,
                tensor[:1].expand(a.shape) if a.size else tensor,
                tensor.to(torch.bfloat16),
            ]
        )


def random_call(seed: int, number: int) -> Call:
    dice = Dice(seed, number)
    name = dice.pick(list(KINDS))
    shape, d = dice.shape()
    dtype = dice.pick([np.float64, np.float64, np.float32, np.float32, np.float16, ml_dtypes.bfloat16, object])
    if dice.chance(0.03):
        dtype = dice.pick([np.int64, np.complex128, np.bool_])
    arrays: tuple[Any, ...] = (dice.array(shape, dtype),)
    options: dict[str, Any] = {}
    if "conv" in name:
        shapes, options["groups"] = _weights(dice, name, shape[-d - 1], d)
        arrays += tuple(dice.array(s, dtype) for s in shapes)
    options |= _options(dice, name, d)
    if dice.chance(0.1):
        options[dice.pick([p for p in signature(getattr(ln, name)).parameters if p not in "xwb"])] = dice.pick(
            _values()
        )
    if dice.chance(0.04):
        at = int(dice.rng.integers(len(arrays)))
        arrays = (*arrays[:at], dice.pick(_values()), *arrays[at + 1 :])
    if dice.chance(0.01) and isinstance(arrays[0], np.ndarray) and arrays[0].size:  # a few bytes for 2**40 cells
        vast = np.broadcast_to(arrays[0].flat[:1], (*shape[:-1], 2**40))
        arrays = (vast, *arrays[1:])
    spec = "spec." if dice.chance(0.15) and prod(shape) < 200 else ""
    what = dice.pick(["", "", "", "_jvp", "_vjp", "_vjp", "shape"])
    if what == "shape":
        return Call("output_shape", (name, *(getattr(a, "shape", a) for a in arrays)), options)
    if what == "_jvp":
        return Call(f"{spec}{name}_jvp", (arrays, _tangents(dice, arrays, dtype)), options)
    if what == "_vjp":
        return Call(f"{spec}{name}_vjp", (arrays, _cotangent(dice, name, arrays, options, dtype, bool(spec))), options)
    return Call(f"{spec}{name}", (arrays[0],), {**dict(zip("wb", arrays[1:], strict=False)), **options})


def _weights(dice: Dice, name: str, channels: int, d: int) -> tuple[list[tuple[int, ...]], int]:
    """The shapes of w and sometimes b, and the groups; mostly ones that fit."""
    groups = dice.pick([g for g in (1, 1, 2, 3, channels) if g and channels % g == 0] or [1])
    outs = dice.pick([0, 1, 2, 3, 5]) * groups if dice.chance(0.95) else dice.pick([1, 2, 3])
    window = tuple(int(n) for n in dice.rng.integers(0 if dice.chance(0.05) else 1, 4, d))
    first = (outs, channels // groups) if name == "conv" else (channels, outs // groups)
    if dice.chance(0.05):
        first = (int(dice.rng.integers(4)), int(dice.rng.integers(4)))
    return [(*first, *window), *([(outs,)] if dice.chance(0.5) else [])], groups


def _options(dice: Dice, name: str, d: int) -> dict[str, Any]:
    pairs = tuple((dice.pick([0, 1, 2]), dice.pick([0, 1, 2])) for _ in range(d))
    chosen: dict[str, tuple[float, Any]] = {
        "kernel": (1, dice.ints(d)),
        "output_size": (1, dice.pick([None, 1, 2, (1,) * d, (None,) * d, (2,) * d, dice.ints(d)])),
        "stride": (0.5, dice.ints(d)),
        "dilation": (0.3, dice.ints(d)),
        "output_padding": (0.2, dice.ints(d)),
        "padding": (0.6, dice.pick([dice.ints(d), "same", "same_lower", "valid", pairs, pairs, 1, 2])),
        "ceil_mode": (0.4, dice.chance(0.5)),
        "count_include_pad": (0.4, dice.chance(0.5)),
        "return_indices": (0.3, dice.chance(0.7)),
        "keepdims": (0.4, dice.chance(0.5)),
        "ties": (0.4, dice.pick(["first", "all", "split"])),
        "spatial": (0.8, d),
        "beta": (1, dice.pick([1.0, -2.0, 0.5, -0.25, 3, 1e300, 1e-300])),
        "p": (0.6, dice.pick([1, 2, 3, 1.5, float("inf"), 1e300])),
        "divisor": (0.2, dice.pick([1, -2, 0.5, 1e-300])),
    }
    known = signature(getattr(ln, name)).parameters
    # With a kernel or an output size that is one number, d is known from x's axes or from `spatial`.
    return {option: value for option, (p, value) in chosen.items() if option in known and dice.chance(p)}


def _tangents(dice: Dice, arrays: tuple[Any, ...], dtype: Any) -> Any:
    if dice.chance(0.05):
        return dice.pick(_values())
    shapes = [a.shape if isinstance(a, np.ndarray) and a.nbytes <= MEMORY else dice.shape()[0] for a in arrays]
    return tuple(None if dice.chance(0.15) else dice.array(s, dtype) for s in shapes)


def _cotangent(dice: Dice, name: str, arrays: tuple[Any, ...], options: dict[str, Any], dtype: Any, spec: bool) -> Any:
    if dice.chance(0.05):
        return dice.pick(_values())
    try:
        resolved = resolve_named(name, [np.shape(a) for a in arrays], options, lead=1 if spec else 2)
        fits = prod(max(n, 1) for n in resolved.out) <= MEMORY // 8
    except Exception:  # hostile shapes: the call itself is to say so
        fits = False
    return dice.array(resolved.out if fits and dice.chance(0.97) else dice.shape()[0], dtype)


# ---- running it


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, LunetteError | None]:
    """The result or the refusal, whose text and type are checked. Anything else that is raised passes through."""
    before = np.geterr()
    result, refusal = None, None
    try:
        result = call(*args, **options)
    except LunetteError as error:
        refusal = error
    assert np.geterr() == before
    if refusal is not None:
        assert isinstance(refusal, TypeError) == isinstance(refusal, DTypeError)
        assert isinstance(refusal, ValueError) == isinstance(refusal, ShapeError | ArgumentError)
        assert refusal.who != "lunette" and refusal.hint and str(pickle.loads(pickle.dumps(refusal))) == str(refusal)
    return result, refusal


def check(call: Call, number: int) -> bool:
    """Run one call and every law about it; True if it returned, False if it was refused."""
    arrays = [a for a in call.arrays() if a.nbytes <= MEMORY]
    before = copy.deepcopy(arrays)
    began = time.process_time()
    result, refusal = outcome(call.function, *call.args, **call.options)
    took = time.process_time() - began
    assert took < SLOW, f"took {took:.1f} s"
    for a, b in zip(arrays, before, strict=True):
        same = a.tobytes() == b.tobytes() if a.dtype != object else str(a.tolist()) == str(b.tolist())
        assert same, "an argument changed"
    if refusal is not None:
        return False
    plain = all(a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative for a in arrays)
    if not plain and len(arrays) == len(call.arrays()):
        dense = call.dense()
        again, refusal = outcome(dense.function, *dense.args, **dense.options)
        assert refusal is None and _equal(result, again), "the layout changes the result"
    if number % EVERY == 0 and "spec." not in call.path and call.path != "output_shape":
        compare(call, number)
    return True


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, np.ndarray) and a.dtype.kind == "f":
        return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return str(a) == str(b)


def compare(call: Call, number: int) -> None:
    """Value, JVP and VJP against the specification, if the call is a small one of finite floats."""
    from test_kernels import check_arrays  # here: it takes a while to import

    name = call.path.removesuffix("_jvp").removesuffix("_vjp")
    kind = KINDS[name]
    given = dict(zip("xwb", call.args[0], strict=False)) if name != call.path else {"x": call.args[0]}
    given |= call.options
    indices = given.pop("return_indices", None) is True
    arrays = [given.pop(n, None) for n in kind.arrays]
    if kind.scalars:
        beta, x = arrays[1], arrays[0]
        if type(beta) is not float or not 0.1 < abs(beta) < 4 or not isinstance(x, np.ndarray):
            return
        arrays[1] = np.array(beta, x.dtype.newbyteorder("="))
    arrays = [a for a in arrays if a is not None]
    if not all(
        isinstance(a, np.ndarray) and a.dtype.newbyteorder("=") in FLOATS and np.isfinite(a).all() for a in arrays
    ):
        return
    if type(given.get("p", 2)) not in (int, float) or given.get("p", 2) == 1e300 or given.get("divisor") == 1e-300:
        return
    if max(map(_greatest, given.values()), default=0) > 1000:  # the bound counts padding: beyond, it bounds nothing
        return
    if sum(a.size for a in arrays) > 400 or max(a.ndim for a in arrays) > 6:
        return
    resolved = resolve_named(name, [a.shape for a in arrays], given)
    if prod(resolved.out) > 400:
        return
    shapes = tuple(s for s in resolved.shapes if s is not None)
    rng = np.random.default_rng(number)
    tangents = [rng.integers(-2, 3, a.shape).astype(a.dtype) for a in arrays]
    with flint.ctx.workprec(200):
        check_arrays(kind, Case(shapes, given), arrays, tangents, number)
    if indices:
        _, index = getattr(ln, name)(arrays[0], **given, return_indices=True)
        for at in np.ndindex(resolved.batch):
            _, place = getattr(ln.spec, name)(arrays[0][at], **given, return_indices=True)
            assert np.array_equal(index[at], place.astype(np.int64))
    Compared.count += 1


def _greatest(value: Any) -> int:
    """The greatest integer in an option."""
    if isinstance(value, tuple | list):
        return max(map(_greatest, value), default=0)
    return int(value) if isinstance(value, int | np.integer) else 0


class Compared:
    """How many calls were compared with the specification in this process."""

    count = 0


def run(seed: int, first: int, stop: int, at: mmap.mmap | None = None) -> int:
    """Run these calls; the number is written to `at` before each. Returns how many were not refused."""
    import lunette.number.cells

    lunette.number.cells._MEMORY = MEMORY
    faulthandler.enable()
    if "LD_PRELOAD" not in os.environ:  # a sanitizer maps far more than it uses
        resource.setrlimit(resource.RLIMIT_AS, (2**34, resource.RLIM_INFINITY))
    _values()
    returned = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(first, stop):
            if at is not None:
                at[:8] = number.to_bytes(8, "little")
            ln.set_num_threads(1 + number % 3)
            call = random_call(seed, number)
            try:
                returned += check(call, number)
            except BaseException:
                print(f"call {number} of seed {seed}: {call}", file=sys.stderr, flush=True)
                raise
    return returned


# ---- from outside


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a row of calls: `failure` says which call ended it and how, or is empty."""

    failure: str
    returned: int = 0
    compared: int = 0


def watch(seed: int, first: int, stop: int) -> Report:
    """Run calls in a process of its own."""
    with tempfile.TemporaryFile() as place, tempfile.TemporaryFile("w+") as said:
        place.truncate(8)
        with mmap.mmap(place.fileno(), 8) as at:
            command = [sys.executable, __file__, *map(str, (seed, first, stop, place.fileno()))]
            at[:8] = first.to_bytes(8, "little")
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, pass_fds=[place.fileno()])
            seen, since = at[:8], time.monotonic()
            while process.poll() is None:
                time.sleep(0.05)
                if at[:8] != seen:
                    seen, since = at[:8], time.monotonic()
                elif time.monotonic() - since > PATIENCE:
                    process.send_signal(signal.SIGABRT)  # faulthandler tells where it was
                    process.wait(10)
                    break
            number = int.from_bytes(at[:8], "little")
        said.seek(0)
        text = said.read()
    if process.returncode == 0:
        _, returned, compared = text.split()[-3:]
        return Report("", int(returned), int(compared))
    how = "hangs" if time.monotonic() - since > PATIENCE else f"ends with status {process.returncode}"
    again = f"again: python tests/fuzz.py {seed} {number}"
    return Report(f"call {number} of seed {seed} {how}; {again}\n{random_call(seed, number)}\n\n{text[-6000:]}")


def main() -> None:
    seed, first, *rest = map(int, sys.argv[1:])
    stop = rest[0] if rest else first + 1
    at = mmap.mmap(rest[1], 8) if len(rest) > 1 else None
    if not rest:
        print(random_call(seed, first))
    returned = run(seed, first, stop, at)
    print("done", returned, Compared.count)


if __name__ == "__main__":
    main()
