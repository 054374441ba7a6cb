from collections.abc import Sequence


SUM_BLOCK: int = 512

def instruction_set() -> str: ...

def set_num_threads(n: int) -> None: ...

def get_num_threads() -> int: ...

class Task:
    """A kernel bound to its geometry; call it with arrays."""

    def __call__(self, *args: object) -> None: ...

    def run(self, *args: object) -> None:
        """
        The same for arrays that are known to have the kernel's dtypes; numbers may stand for arrays of one element.
        """

    def count(self, i: int) -> int:
        """Elements of argument i."""

    def taking(self, places: Sequence[int], count: int) -> Task:
        """
        The same kernel for callers with `count` arguments: its own argument i is theirs places[i]; -1: absent.
        """

class Plan:
    """
    Tasks in order: (task, slots) each; a slot is (argument or -1 for the arena, offset).
    """

    def __init__(self, steps: Sequence[tuple[Task, Sequence[int]]], slots: Sequence[tuple[int, int]], arguments: Sequence[tuple[int, bool]], arena: int) -> None: ...

    def run(self, *args: object, seconds: object | None = None) -> None: ...

class Pool:
    """
    The window tables of a pool: (n, m, step, first, count, inside) per axis.
    """

    def __init__(self, axes: Sequence[tuple[int, int, int, object, object, object]]) -> None: ...

    def record_bytes(self) -> int:
        """The bytes of one number of a record of winners; 0: no record."""

def max_pool(code: str, pool: Pool, planes: int) -> Task:
    """(x, y, index or None)"""

def max_pool_jvp(code: str, pool: Pool, planes: int, ties: int) -> Task:
    """(x, t, dy)"""

def max_pool_vjp(code: str, pool: Pool, planes: int, ties: int) -> Task:
    """(x, g, dx)"""

def max_pool_recording(code: str, pool: Pool, planes: int) -> Task:
    """(x, y or None, numbers)"""

def max_pool_recorded_jvp(code: str, pool: Pool, planes: int) -> Task:
    """(numbers, t, dy)"""

def max_pool_recorded_vjp(code: str, pool: Pool, planes: int) -> Task:
    """(numbers, g, dx)"""

def avg_pool(code: str, pool: Pool, planes: int, mode: int, divisor: float) -> Task:
    """(x, y)"""

def avg_pool_vjp(code: str, pool: Pool, planes: int, mode: int, divisor: float) -> Task:
    """(g, dx)"""

def smooth_max_pool(code: str, pool: Pool, planes: int, include_pad: bool) -> Task:
    """(x, beta, y)"""

def smooth_max_pool_jvp(code: str, pool: Pool, planes: int, include_pad: bool) -> Task:
    """(x, beta, t or None, dbeta or None, dy)"""

def smooth_max_pool_vjp(code: str, pool: Pool, planes: int, include_pad: bool) -> Task:
    """(x, beta, g, dx or None, dbeta or None)"""

def lp_pool(code: str, pool: Pool, planes: int, p: float) -> Task:
    """(x, y)"""

def lp_pool_jvp(code: str, pool: Pool, planes: int, p: float) -> Task:
    """(x, t, dy)"""

def lp_pool_vjp(code: str, pool: Pool, planes: int, p: float) -> Task:
    """(x, g, dx)"""

def rounded_avg_pool(pool: Pool, planes: int, digits: int, divisors: int) -> Task:
    """(x, divisors, proved, y, places, count, low or None)"""

def rounded_smooth_max_pool(pool: Pool, planes: int, digits: int, include_pad: bool) -> Task:
    """(x, beta, proved, y, places, count, low or None)"""

def rounded_lp_pool(pool: Pool, planes: int, digits: int) -> Task:
    """
    (x, p, proved, y, places, count, low or None); of doubles, p is a whole number
    """

def bounded_avg_pool(code: str, pool: Pool, planes: int, mode: int) -> Task:
    """(lo, hi, divisor, numbers, y_lo, y_hi, top)"""

def bounded_smooth_max_pool(code: str, pool: Pool, planes: int, include_pad: bool) -> Task:
    """(lo, hi, beta, numbers, y_lo, y_hi, top)"""

def bounded_lp_pool(code: str, pool: Pool, planes: int) -> Task:
    """(lo, hi, p, numbers, y_lo, y_hi, top)"""

def decide(outer: int, groups: int, channels: int, inner: int, varies: bool, rounded: bool, most: int) -> Task:
    """(hi, rows, columns, y, places, count)"""

def widen(rows: int, cells: int) -> Task:
    """(x, y, least, greatest)"""

def exponentials(n: int) -> Task:
    """(hi, lo, y_hi, y_lo): exp of pairs, |hi| <= 700, as pairs"""

def conv(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int, relu: bool = False) -> Task:
    """
    (x, w, b or None, scale or None, shift or None, add or None, packed or None, y)
    """

def conv_input_grad(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int, relu: bool = False) -> Task:
    """
    (g, w, b or None, scale or None, shift or None, add or None, packed or None, dx)
    """

def conv_pack(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int, input_grad: bool) -> Task:
    """
    (w, packed), packed with as many elements as Task.count(1) says; 0: packing gains nothing
    """

def lanes(code: str) -> int:
    """how many numbers of a dtype a vector has"""

def conv_blocked(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int, input_grad: bool, relu: bool = False) -> Task:
    """(x, packed, b or None, scale or None, shift or None, add or None, y)"""

def conv_blocked_pack(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int, input_grad: bool) -> Task:
    """
    (w, packed), packed with as many elements as Task.count(1) says; 0: there is no such kernel
    """

def matmul(code: str, batch: int, m: int, n: int, k: int, turn_x: bool, turn_y: bool, relu: bool = False) -> Task:
    """(x, y, b or None, z): z = x @ y + b"""

def conv_weight_grad(code: str, axes: Sequence[tuple[int, int, int, int, int, int]], groups: int, batch: int, cin: int, cout: int) -> Task:
    """(x, g, dw)"""

def conv_bias_grad(code: str, batch: int, channels: int, cells: int) -> Task:
    """(g, db)"""

def unary(code: str, name: str, count: int, parameter: float = 0.0) -> Task:
    """(x, y)"""

def binary(code: str, name: str, x_shape: Sequence[int], y_shape: Sequence[int]) -> Task:
    """(x, y, z)"""

def prefer(code: str, count: int) -> Task:
    """(a, b, t, out)"""

def scale_shift(code: str, outer: int, channels: int, inner: int, relu: bool) -> Task:
    """(x, scale, shift or None, y)"""

def reduce(code: str, name: str, shape: Sequence[int], axes: Sequence[int]) -> Task:
    """(x, y)"""

def softmax(code: str, log: bool, outer: int, count: int, inner: int) -> Task:
    """(x, y)"""

def strided_copy(code: str, shape: Sequence[int], from_offset: int, from_strides: Sequence[int], from_count: int, to_offset: int, to_strides: Sequence[int], to_count: int, fill: float | None) -> Task:
    """(x, y); not in place"""

def concat(code: str, outer: int, inners: Sequence[int]) -> Task:
    """(x1, ..., xn, y); not in place"""

def take(code: str, outer: int, size: int, inner: int, count: int) -> Task:
    """(x, places, y); not in place"""

def put(code: str, outer: int, size: int, inner: int, count: int) -> Task:
    """(g, places, y); not in place"""

def one_hot(code: str, outer: int, classes: int, inner: int) -> Task:
    """(labels, y)"""

def weigh_rows(rows: int, channels: int, size: Sequence[int], space: Sequence[int], own: bool) -> Task:
    """(a, origin, low, high, y)"""

def pull_rows(rows: int, channels: int, size: Sequence[int], space: Sequence[int], behind: Sequence[int], space_behind: Sequence[int], stride: Sequence[int], offsets: Sequence[int], own: bool) -> Task:
    """(a, origin, low, high, g, g_origin)"""

FOREIGN_VERSION: int = 1

def foreign_run() -> int:
    """
    The address of what runs a kept task; native/foreign.hpp says how it is called.
    """

def with_plain_floats(f: object) -> object:
    """
    f(), on a thread that may be flushing subnormal numbers to zero; it does not meanwhile.
    """

def borrow_threads(lend: int) -> None:
    """
    The address of what runs parts on threads of another runtime (native/threads.hpp); 0: threads of our own.
    """

def keep_task(name: str, task: Task) -> None:
    """Keeps a task for good, for callers that know it by its name."""

def keep_plan(name: str, plan: Plan) -> None:
    """The same for a plan."""
