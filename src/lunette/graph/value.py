"""What variables of a graph and values under differentiation share: a shape, a dtype and Python's operators."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from lunette.errors import AbsentError, DTypeError
from lunette.ops.binary import add, div, mul, sub
from lunette.ops.linear import matmul
from lunette.ops.power import power
from lunette.ops.unary import abs as absolute
from lunette.ops.unary import neg
from lunette.window import Shape

levels = count()
"""Of transformations, in the order in which they begin: inner ones have higher levels."""


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

    def __abs__(self) -> Any:
        return absolute(self)

    def __format__(self, spec: str) -> str:
        return self._digits() if spec else str(self)

    def __getattr__(self, name: str) -> Any:
        own = _OWN.get(name)
        hint = f"Write ln.{own}(x)." if own else "Values have a shape, a dtype and Python's operators."
        raise AbsentError("G6", "lunette's functions on variables", f".{name}", hint, who=type(self).__name__)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """`array + value`: numpy asks first."""
        name, plain = ufunc.__name__, method == "__call__"
        if plain and not kwargs and name in _UFUNCS:
            return _UFUNCS[name](*inputs)
        return self.__array__(f"{name}.{method}" if not plain else name)

    def __array__(self, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        named = name if isinstance(name, str) else "array"
        own = _OWN.get(named)
        hint = f"Write ln.{own} instead of np.{named}." if own else "The functions of lunette take variables."
        hint = _BRANCH if named in _COMPARED else hint
        got = f"NumPy's {named} of {self!r}"
        raise DTypeError("G6", "lunette's functions on variables", got, hint, who=type(self).__name__)


def _refusal(need: str, got: str, hint: str) -> Callable[..., Any]:
    """A method of Python's protocols that values do not have; it says why."""

    def refuse(self: Value, *_: Any) -> Any:
        raise DTypeError("G6", need, f"{got} {self!r}", hint, who=type(self).__name__)

    return refuse


_DECISION, _KNOWN, _WHOLE = (
    "a decision that does not depend on values",
    "a value that is known",
    "a variable as a whole",
)
_BRANCH = "Values are not known yet: use maximum, relu or a factor of 0 or 1, or branch on shapes."
_RETURN, _PART = "Return it instead.", "Take parts with ln.slice."
_COMPARED = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_REFUSED = {
    "__bool__": (_DECISION, "a Python `if`, `while`, `and`, `or` or `not` on", _BRANCH),
    **{
        method: (_DECISION, f"`{sign}` on", _BRANCH)
        for method, sign in zip(
            ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), _COMPARED.values(), strict=True
        )
    },
    "__contains__": (_DECISION, "`in` on", _BRANCH),
    "__float__": (_KNOWN, "float() of", _RETURN),
    "__int__": (_KNOWN, "int() of", _RETURN),
    "__complex__": (_KNOWN, "complex() of", _RETURN),
    "__round__": (_KNOWN, "round() of", _RETURN),
    "_digits": (_KNOWN, "the digits of", "Print its shape, or return it."),
    "__iter__": (_WHOLE, "a loop over", _PART),
    "__getitem__": (_WHOLE, "an index into", _PART),
    "__setitem__": (
        _WHOLE,
        "an assignment to a part of",
        "Values do not change: make a new one of parts, with ln.concat.",
    ),
    "__len__": (_WHOLE, "len() of", "Its sizes are in .shape."),
}
for _method, _words in _REFUSED.items():
    setattr(Value, _method, _refusal(*_words))

_UFUNCS = {"add": add, "subtract": sub, "multiply": mul, "divide": div, "matmul": matmul}
_SAME = (
    "exp log sqrt tanh abs power maximum minimum reshape flatten transpose sum mean max matmul concat pad broadcast_to"
)
_OWN = {name: name for name in _SAME.split()} | {
    "absolute": "abs",
    "negative": "neg",
    "square": "mul",
    "add.reduce": "sum",
    "maximum.reduce": "max",
    "concatenate": "concat",
    "ravel": "flatten",
    "T": "transpose",
}
"""What NumPy's functions and the methods of its arrays are called here."""
