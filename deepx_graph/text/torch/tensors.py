"""What the JSON of torch.export says of tensors: element types, sizes, where elements lie; and its fields, each checked.

Sizes may be expressions of symbols, written as sympy does: `Mul(Integer(2), Symbol('s77', positive=True, integer=True))`, in older
files `2*s77`. They are parsed as a syntax tree of Python, which is looked at and never evaluated. Source:
torch/_export/serde/schema.py. Problems are raised as InferError; the caller adds the place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0FNU,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Dim,
    DType,
    TensorType,
    tensor,
)
from deepx_graph.types.symbols import add_dims, mul_dims

DTYPES: dict[int, DType] = {
    1: U8, 2: I8, 3: I16, 4: I32, 5: I64, 6: F16, 7: F32, 8: F64, 10: C64, 11: C128, 12: BOOL, 13: BF16, 28: U16, 29: F8E4M3FN,
    30: F8E5M2, 31: F8E4M3FNUZ, 32: F8E5M2FNUZ, 33: F8E8M0FNU, 34: U32, 35: U64,
}  # fmt: skip
"""ScalarType by number."""

NAMES = {"BYTE": 1, "CHAR": 2, "SHORT": 3, "INT": 4, "LONG": 5, "HALF": 6, "FLOAT": 7, "DOUBLE": 8, "COMPLEXFLOAT": 10,
         "COMPLEXDOUBLE": 11, "BOOL": 12, "BFLOAT16": 13}  # fmt: skip
"""ScalarType by name, as the first versions have it."""

STRIDED = (7, "Strided", None)
"""The layout of tensors with all their elements in memory."""

# --- fields ---------------------------------------------------------------------------------------------------------


def table(value: Any, what: str) -> dict[str, Any]:
    """A JSON object. Raises InferError."""
    if not isinstance(value, dict):
        raise InferError(f"{what} is {_kind(value)}", expected="an object")
    return value


def rows(value: Any, what: str) -> list[Any]:
    """A JSON list. Raises InferError."""
    if not isinstance(value, list):
        raise InferError(f"{what} is {_kind(value)}", expected="a list")
    return value


def text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InferError(f"{what} is {_kind(value)}", expected="text")
    return value


def whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InferError(f"{what} is {_kind(value)}", expected="a whole number")
    return value


def real(value: Any) -> float:
    """A number; infinities and NaN may be words."""
    if isinstance(value, str) and value.strip("-+").lower() in ("infinity", "inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InferError(f"a number is {_kind(value)}", expected="a number")
    return float(value)


def _kind(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.40}"


def union(value: Any, what: str) -> tuple[str, Any]:
    """The one field of a union, and what it holds. Others may stand there as null."""
    fields = list(table(value, what).items())
    if len(fields) != 1:
        fields = [(k, v) for k, v in fields if v is not None]
    if len(fields) != 1:
        raise InferError(f"{what} has {len(fields)} values", expected="one")
    return fields[0]


# --- sizes ----------------------------------------------------------------------------------------------------------

LONGEST = 4096
"""Characters of an expression."""

_NAME = re.compile(r"[A-Za-z_]\w{0,60}")


def size_of(expression: str) -> Dim:
    """The size that an expression stands for: a sum or product of symbols and numbers; of any other a symbol of its own.

    Raises InferError for what is no expression.
    """
    found = formula_of(expression)
    if found is None:
        return "_".join(re.findall(r"[A-Za-z]\w*|\d+", re.sub(r",? ?\w+=\w+", "", expression)))[:60] or "size"
    return found


@lru_cache(maxsize=4096)
def formula_of(expression: str) -> Dim | None:
    """A sum or product of symbols and numbers; None for any other expression. Raises InferError for what is none."""
    if len(expression) > LONGEST:
        raise InferError(f"a size that is an expression of {len(expression)} characters", expected=f"at most {LONGEST}")
    try:
        return _size(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InferError(f"the size '{expression:.60}'", expected="an expression of symbols") from None
    except _Other:
        return None


class _Other(Exception):
    """Raised for an expression that is no sum and no product."""


def _size(tree: Any) -> Dim:
    match tree:
        case ast.Constant(value=int(n)) if not isinstance(n, bool):
            return n
        case ast.Name(id=name):
            return _symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return mul_dims([-1, _size(inner)])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return add_dims(_size(left), _size(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return add_dims(_size(left), mul_dims([-1, _size(right)]))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return mul_dims([_size(left), _size(right)])
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]):
            return _symbol(name)
        case ast.Call(func=ast.Name(id="Integer"), args=[inner]):
            return _size(inner)
        case ast.Call(func=ast.Name(id="Add"), args=args):
            return add_dims(*map(_size, args))
        case ast.Call(func=ast.Name(id="Mul"), args=args):
            return mul_dims([_size(a) for a in args])
        case ast.Call() | ast.BinOp() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.Constant():
            raise _Other
    raise ValueError("no expression")


def _symbol(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("no symbol")
    return name


def size(value: Any) -> Dim:
    """A size, of an integer or a symbolic one."""
    found = _whole_or_expression(value)
    return size_of(found) if isinstance(found, str) else found


def number(value: Any) -> Dim | None:
    """What a number of the program is in terms of sizes; None where it is neither a sum nor a product of them."""
    found = _whole_or_expression(value)
    return formula_of(found) if isinstance(found, str) else found


def _whole_or_expression(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    kind, found = union(value, "a size")
    if kind == "as_int":
        return whole(found, "a size")
    return text(found.get("expr_str") if isinstance(found, dict) else found, "a size")


# --- tensors --------------------------------------------------------------------------------------------------------


def dtype_of(value: Any) -> DType:
    """An element type by number or name. Raises InferError."""
    number = NAMES.get(value) if isinstance(value, str) else value
    dtype = DTYPES.get(number) if isinstance(number, int) else None
    if dtype is None:
        raise InferError(f"the element type is {_kind(value)}", expected="the number of an element type that is computed with here")
    return dtype


@dataclass(frozen=True)
class TensorMeta:
    """What a program says of a tensor; strides and offset are counted in elements."""

    dtype: DType
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim

    @property
    def type(self) -> TensorType:
        return tensor(self.dtype, self.sizes)


def tensor_meta(value: Any, what: str) -> TensorMeta:
    """The type of a tensor and where its elements lie. Raises InferError."""
    told = table(value, what)
    if "meta" in told:  # the first versions have it one level deeper
        told = table(told["meta"], what)
    if told.get("layout") not in STRIDED:
        raise InferError(f"{what} has the layout {told.get('layout')!r:.20}", expected="a strided tensor")
    sizes = tuple(size(s) for s in rows(told.get("sizes"), what))
    strides = tuple(size(s) for s in rows(told.get("strides", []), what))
    return TensorMeta(dtype_of(told.get("dtype")), sizes, strides, size(told.get("storage_offset", 0)))


def reach(sizes: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> int:
    """How many elements of its storage a tensor spans. Raises InferError for strides that make no tensor."""
    every = (*sizes, *strides, offset)
    if len(sizes) != len(strides) or not all(isinstance(v, int) and v >= 0 for v in every):
        raise InferError(f"sizes {list(sizes)}, strides {list(strides)} and offset {offset}", expected="whole numbers from 0")
    if 0 in sizes:
        return 0
    return int(offset) + sum((int(n) - 1) * int(s) for n, s in zip(sizes, strides, strict=True)) + 1
