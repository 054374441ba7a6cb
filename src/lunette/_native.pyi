from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray

def instruction_set() -> str: ...

def set_num_threads(n: int) -> None: ...

def get_num_threads() -> int: ...

class Pool:
    def __init__(self, axes: Sequence[tuple[int, int, int, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]]]) -> None: ...

@overload
def max_pool(pool: Pool, x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu')] | None) -> None: ...

@overload
def max_pool(pool: Pool, x: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu')], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu')] | None) -> None: ...
