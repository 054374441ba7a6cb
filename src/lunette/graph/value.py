"""What variables of a graph and values under differentiation share: a shape, a dtype and Python's operators."""

from __future__ import annotations

from typing import Any

from lunette.errors import DTypeError
from lunette.ops.binary import add, div, mul, sub
from lunette.ops.linear import matmul
from lunette.ops.unary import neg, power
from lunette.window import Shape


class Value:
    """Something that lunette's functions take for an array."""

    __slots__ = ()

    shape: Shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __sub__(self, other: Any) -> Any:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return sub(other, self)

    def __mul__(self, other: Any) -> Any:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Any:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return div(other, self)

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def __pow__(self, exponent: Any) -> Any:
        return power(self, exponent)

    def __neg__(self) -> Any:
        return neg(self)

    def __bool__(self) -> bool:
        raise DTypeError(
            "G6",
            "a decision that does not depend on values",
            f"a Python `if`, `while`, `and`, `or` or `not` on {self!r}",
            "Values are not known yet: use maximum, relu or a factor of 0 or 1, or branch on shapes.",
            who=type(self).__name__,
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """`array + value`: numpy asks first."""
        own = _UFUNCS.get(ufunc.__name__) if method == "__call__" and not kwargs else None
        return self.__array__(ufunc.__name__) if own is None else own(*inputs)

    def __array__(self, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        raise DTypeError(
            "G6",
            "lunette's functions on variables",
            f"NumPy's {name if isinstance(name, str) else 'array'} of {self!r}",
            "Write ln.exp instead of np.exp.",
            who=type(self).__name__,
        )

    def __float__(self) -> float:
        raise DTypeError(
            "G6", "a value that is known", f"float() of {self!r}", "Return it instead.", who=type(self).__name__
        )

    def __iter__(self) -> Any:
        raise DTypeError(
            "G6", "a variable as a whole", f"a loop over {self!r}", "Take parts with ln.slice.", who=type(self).__name__
        )


_UFUNCS = {"add": add, "subtract": sub, "multiply": mul, "divide": div, "matmul": matmul}
