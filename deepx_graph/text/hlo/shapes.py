"""Shapes of HLO text: `f32[2,3]{1,0:T(8,128)}`, tuples of shapes, `token[]`. Layouts are read over: they do not change meaning."""

from __future__ import annotations

import re
from functools import lru_cache

from deepx_graph.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F4E2M1FN,
    F6E2M3FN,
    F6E3M2FN,
    F8E3M4,
    F8E4M3,
    F8E4M3B11FNUZ,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0FNU,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I16,
    I32,
    I64,
    STATE,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    Dim,
    DType,
    TupleType,
    Type,
    tensor,
)  # fmt: skip

HLO_DTYPES: dict[str, DType] = {
    "pred": BOOL, "s4": I4, "s8": I8, "s16": I16, "s32": I32, "s64": I64, "u4": U4, "u8": U8, "u16": U16, "u32": U32, "u64": U64,
    "f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "c64": C64, "c128": C128, "f8e5m2": F8E5M2, "f8e4m3fn": F8E4M3FN,
    "f8e4m3": F8E4M3, "f8e3m4": F8E3M4, "f8e4m3b11fnuz": F8E4M3B11FNUZ, "f8e4m3fnuz": F8E4M3FNUZ, "f8e5m2fnuz": F8E5M2FNUZ,
    "f8e8m0fnu": F8E8M0FNU, "f4e2m1fn": F4E2M1FN, "f6e2m3fn": F6E2M3FN, "f6e3m2fn": F6E3M2FN, "s2": I2, "u2": U2,
}  # fmt: skip
"""HLO's names of the element types."""

SPACE = re.compile(r"(?:\s|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]\[]*)\](\{[^{}]*\})?")
_DIM = re.compile(r"(?:<=)?(\d+)|\?")
MAX_RANK = 64
MAX_DEPTH = 200


class ShapeError(ValueError):
    """What is wrong with a shape; `at` is the offset in the text."""

    def __init__(self, message: str, at: int, expected: str = "a shape such as f32[2,3]") -> None:
        super().__init__(message)
        self.message, self.at, self.expected = message, at, expected


def parse_shape(text: str, at: int, depth: int = 0) -> tuple[Type, int]:
    """The type written at an offset, and the offset after it. Raises ShapeError."""
    match = _ARRAY.match(text, at)
    if match:
        try:
            return array_type(match[1], match[2]), match.end()
        except ShapeError as e:
            raise ShapeError(e.message, at, e.expected) from None
    if text.startswith("(", at) and depth < MAX_DEPTH:
        return _tuple(text, at + 1, depth)
    raise ShapeError("not a shape", at)


def _tuple(text: str, at: int, depth: int) -> tuple[Type, int]:
    items: list[Type] = []
    at = _skip(text, at)
    while not text.startswith(")", at):
        item, at = parse_shape(text, at, depth + 1)
        items.append(item)
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(")", at):
            raise ShapeError("a tuple shape goes on without a comma", at, "',' or ')'")
    return TupleType(tuple(items)), at + 1


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


@lru_cache(maxsize=65536)
def is_plain(text: str) -> bool:
    """Whether a shape is all that its type says: no bounds, and the row-major layouts or none."""
    return "<=" not in text and all(
        layout in ("", "{}") or "".join(layout.split()) == _row_major(dims)
        for _, dims, layout in _ARRAY.findall(text))


def _row_major(dims: str) -> str:
    return "{" + ",".join(map(str, reversed(range(dims.count(",") + 1)))) + "}"


def layout_of(text: str) -> tuple[int, ...]:
    """The dimensions of an array shape from minor to major, as its layout says; empty for none."""
    found = _ARRAY.match(text)
    order = found[3].strip("{}").partition(":")[0] if found and found[3] else ""
    return tuple(int(k) for k in order.split(",")) if order.strip() else ()


@lru_cache(maxsize=65536)
def array_type(dtype: str, dims: str) -> Type:
    """The type of `dtype[dims]`. Raises ShapeError."""
    if dtype == "token":
        return STATE
    if dtype not in HLO_DTYPES:
        raise ShapeError(f"unknown element type '{dtype}'", 0, ", ".join(HLO_DTYPES))
    parts = [p.strip() for p in dims.split(",")] if dims.strip() else []
    if len(parts) > MAX_RANK:
        raise ShapeError(f"a rank of {len(parts)}", 0, f"at most {MAX_RANK}")
    sizes: list[Dim] = []
    for k, part in enumerate(parts):
        match = _DIM.fullmatch(part)
        if not match:
            raise ShapeError(f"'{part}' is not a dimension", 0)
        sizes.append(int(match[1]) if match[1] else f"?{k}")
    return tensor(HLO_DTYPES[dtype], tuple(sizes))
