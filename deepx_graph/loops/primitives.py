"""What the primitives of loop programs give, as numpy computes them: the interpreter's table, and the folding of constants.

They are those of kernel expressions (`ir/scalar_expr.py`) and a few more, for integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph.ir.scalar_expr import price as kernel_price
from deepx_graph.types import BOOL, F32, F64, DType

COMPLEX = {"log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
           "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
           "pow": "power"}  # fmt: skip
"""Functions of complex numbers, and numpy's names. The parts of what they give are two primitives, such as `log.real`, of the
parts of the operands."""

MORE: dict[str, int] = {
    "quotient": 2, "modulo": 2, "bitcast": 1, "popcount": 1, "clz": 1, "fmod": 2, "copysign": 2, "hypot": 2, "atan2": 2,
    "lgamma": 1, **{f"{name}.{part}": 4 if name == "pow" else 2 for name in COMPLEX for part in ("real", "imag")},
}
"""Name and arity. `quotient` rounds toward zero and `modulo` has the sign of the dividend; of a divisor 0, or of the least integer
and -1, nothing is said. `bitcast` takes the bits for another dtype of the same width; `clz` counts the zeros before the first one
bit."""

PRICES = {"quotient": 20, "modulo": 20, "fmod": 60, "hypot": 40, "atan2": 80, "lgamma": 150, **dict.fromkeys(
    (name for name in MORE if "." in name), 150)}
"""What these cost beside those of kernels (`ir.scalar_expr.PRICES`)."""

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def _quotient(x: Any, y: Any) -> Any:
    return x // y if (x < 0) == (y < 0) or not x % y else x // y + type(x)(1)


def _shift(x: Any, amount: Any, name: str) -> Any:
    width = 8 * x.dtype.itemsize
    bits = int(np.asarray(amount).view(f"u{x.dtype.itemsize}"))
    unsigned = int(np.asarray(x).view(f"u{x.dtype.itemsize}"))
    if name == "ashr":
        return x.dtype.type(int(x) >> min(bits, width - 1 if x.dtype.kind == "i" else width))
    shifted = 0 if bits >= width else unsigned << bits if name == "shl" else unsigned >> bits
    return np.asarray(shifted & ((1 << width) - 1), f"u{x.dtype.itemsize}").view(x.dtype)[()]


def _sign(x: Any) -> Any:
    return x if x.dtype.kind == "f" and not abs(x) > 0 else np.sign(x)


def _greater(x: Any, y: Any) -> Any:
    """As IEEE 754-2019 (9.6): NaN where either is, and +0.0 is above -0.0."""
    return x if x > y else y if y > x else x + y if x == 0 == y else np.maximum(x, y)


def _lesser(x: Any, y: Any) -> Any:
    return x if x < y else y if y < x else -(-x - y) if x == 0 == y else np.minimum(x, y)


def _special(name: str, x: Any) -> Any:
    from scipy import special

    return getattr(special, name)(x)


def _part_of_complex(name: str, part: str) -> Callable[..., Any]:
    function = getattr(np, COMPLEX[name])
    return lambda *x: getattr(function(*(complex(re, im) for re, im in zip(x[::2], x[1::2], strict=True))), part)


def _bits(x: Any) -> int:
    return int(np.asarray(x).view(f"u{x.dtype.itemsize}"))


_LOGICAL = {"add": np.logical_or, "mul": np.logical_and, "max": np.logical_or, "min": np.logical_and, "not": np.logical_not}

_TABLE: dict[str, Callable[..., Any]] = {  # of scalars, operators give what ufuncs do, in a twentieth of the time
    "copy": lambda x: x,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": np.negative, "abs": np.abs,
    "sign": _sign, "floor": np.floor, "ceil": np.ceil, "pow": np.power, "floor_mod": np.mod, "max": _greater, "min": _lesser,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": np.invert,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "where": lambda c, x, y: x if c else y, "rint": np.rint, "cbrt": np.cbrt,
    "erf": lambda x: _special("erf", x), "erfc": lambda x: _special("erfc", x),
    "shl": lambda x, n: _shift(x, n, "shl"), "lshr": lambda x, n: _shift(x, n, "lshr"), "ashr": lambda x, n: _shift(x, n, "ashr"),
    "quotient": _quotient, "modulo": lambda x, y: x - _quotient(x, y) * y,
    "popcount": lambda x: x.dtype.type(_bits(x).bit_count()),
    "clz": lambda x: x.dtype.type(8 * x.dtype.itemsize - _bits(x).bit_length()),
    "fmod": np.fmod, "copysign": np.copysign, "hypot": np.hypot, "atan2": np.arctan2, "lgamma": lambda x: _special("gammaln", x),
    **{f"{name}.{part}": _part_of_complex(name, part) for name in COMPLEX for part in ("real", "imag")},
}  # fmt: skip


_KEEPING = COMPARISONS | {"copy", "where", "add", "sub", "mul", "max", "min"}
"""What gives scalars of the right dtype by itself, of operands of one dtype."""


def price(primitive: str) -> float:
    """What a primitive costs an element, in additions."""
    return PRICES.get(primitive) or kernel_price(primitive)


def result_dtype(primitive: str, args: tuple[DType, ...]) -> DType:
    """The dtype of a primitive's result, where it is not given (`cast`, `bitcast`)."""
    if primitive in COMPARISONS:
        return BOOL
    return args[1] if primitive == "where" else args[0]


def evaluate(primitive: str, args: tuple[Any, ...], dtype: DType) -> Any:
    """The primitive of numpy scalars, as a scalar of the dtype."""
    with np.errstate(all="ignore"):
        return function_of(primitive, dtype, of_bools=np.asarray(args[0]).dtype == np.bool_)(*args)


def function_of(primitive: str, dtype: DType, *, of_bools: bool) -> Callable[..., Any]:
    """What gives the primitive of numpy scalars, the first of which may be a bool, as a scalar of the dtype."""
    assert dtype.np is not None
    numpy, kind = dtype.np, dtype.np.type
    if primitive == "cast":
        return lambda x: cast(x, dtype)
    if primitive == "bitcast":
        return lambda x: np.asarray(x).view(numpy)[()]
    function = (_LOGICAL if primitive in _LOGICAL and of_bools else _TABLE)[primitive]
    if primitive in _KEEPING or (isinstance(function, np.ufunc) and dtype in (F32, F64)):
        return function

    def run(*args: Any) -> Any:
        found = function(*args)
        return found if type(found) is kind else np.asarray(found).astype(numpy)[()]

    return run


def cast(value: Any, dtype: DType) -> Any:
    """A C cast; to bool, whether it is not zero; of a float to an integer the nearest that there is, and 0 for NaN."""
    value = np.asarray(value)
    if dtype.is_integer and value.dtype.kind not in "iub":
        low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
        number = float(value)
        whole = 0 if number != number else low if number <= low else high if number >= high else int(number)
        return np.asarray(whole, dtype.np)[()]
    return (value != 0)[()] if dtype is BOOL else value.astype(dtype.np)[()]
