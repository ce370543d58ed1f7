"""Shapes and names of HLO text, read and written: `f32[2,3]{1,0:T(8,128)}`, tuples of shapes, `token[]`.

Layouts are read over, as they do not change meaning. Every word that is written is accepted by XLA's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from deepx_graph.errors import an
from deepx_graph.types import (
    ANY,
    BOOL,
    DTYPES,
    STATE,
    Dim,
    DType,
    StateType,
    TensorType,
    TupleType,
    Type,
    tensor,
)


def _dtype_word(dtype: DType) -> str:
    if dtype is BOOL:
        return "pred"
    return dtype.name.replace("i", "s") if dtype.kind == "int" else dtype.name


HLO_DTYPES: dict[str, DType] = {_dtype_word(d): d for d in DTYPES if d is not ANY}
"""HLO's names of the element types."""

SPACE = re.compile(r"(?:\s|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_LAYOUT = r"\{\s*(?:\d+(?:\s*,\s*\d+)*)?\s*(?::(?:[A-Z]*\([^(){}]*\)|\s)*)?\}"
_ARRAY = re.compile(rf"([a-z]\w*)\[([^\]\[]*)\]({_LAYOUT})?")
_DIM = re.compile(r"(?:<=)?(\d{1,19})|\?")
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
            type = array_type(match[1], match[2])
            _check_layout(match[0], type)
            return type, match.end()
        except ShapeError as e:
            raise ShapeError(e.message, at, e.expected) from None
    if text.startswith("(", at) and depth < MAX_DEPTH:
        return _tuple(text, at + 1, depth)
    raise ShapeError("not a shape", at)


@lru_cache(maxsize=65536)
def _check_layout(text: str, type: Type) -> None:
    """Raises ShapeError for a layout that does not name every dimension once."""
    order = layout_of(text)
    if order and isinstance(type, TensorType) and sorted(order) != list(range(type.rank or 0)):
        raise ShapeError(f"the layout of {text} does not name its dimensions", 0, "each dimension once")


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
    """The dimensions of an array shape from minor to major, as its layout says; empty for none. Raises ShapeError."""
    found = _ARRAY.match(text)
    order = found[3].strip("{}").partition(":")[0] if found and found[3] else ""
    try:
        return tuple(int(k) for k in order.split(",")) if order.strip() else ()
    except ValueError:
        raise ShapeError(f"'{{{order[:40]}}}' is no layout", 0, "every dimension once, minor first") from None


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
            raise ShapeError(f"'{part[:40]}' is not a dimension", 0)
        sizes.append(int(match[1]) if match[1] else f"?{k}")
    return tensor(HLO_DTYPES[dtype], tuple(sizes))


@lru_cache(maxsize=65536)
def stated_array(dtype: str, dims: str, layout: str | None) -> tuple[Type, str]:
    """The type of `dtype[dims]{layout}`, and the text as it stands where its layout is not the row-major one. Raises ShapeError."""
    stated = f"{dtype}[{dims}]{layout or ''}"
    return (array_type(dtype, dims), "") if is_plain(stated) else (parse_shape(stated, 0)[0], stated)


_DTYPE_WORDS: dict[DType, str] = {dtype: word for word, dtype in HLO_DTYPES.items()}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\-]")
_RESERVED = frozenset((
    *HLO_DTYPES, "s1", "u1", "token", "opaque", "opaque_type", "true", "false", "nan", "inf",
    "HloModule", "ENTRY", "ROOT", "maximal", "replicated", "manual", "unreduced", "last_tile_dim_replicate", "shard_as",
    "shard_like", "unknown", "devices", "w", "sort", "error",
))  # fmt: skip
"""Words that XLA's lexer takes for something else than a name."""


class NoWord(ValueError):
    """Something that HLO text cannot say."""


def word(name: str) -> str:
    """`name` with illegal characters as underscores."""
    if _WORD.fullmatch(name):
        return name
    found = _ILLEGAL.sub("_", name)
    return found if found and (found[0].isalpha() or found[0] == "_") else "_" + found


def legal(name: str) -> str:
    """`name` as HLO takes it for an instruction or computation: a word, never a reserved one."""
    found = word(name)
    return found + "_" if found in _RESERVED else found


@lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """A shape, with the row-major layout. Raises NoWord."""
    match type:
        case TensorType(dtype, dims):
            if dims is None or dtype is ANY:
                raise NoWord(f"{an(type)} has no shape in HLO until its rank and element type are known")
            if dtype not in _DTYPE_WORDS:
                raise NoWord(f"HLO has no elements of type {dtype}")
            inner = ",".join("?" if isinstance(d, str) else str(d) for d in dims)
            layout = "{" + ",".join(str(k) for k in reversed(range(len(dims)))) + "}" if dims else ""
            return f"{_DTYPE_WORDS[dtype]}[{inner}]{layout}"
        case TupleType(items):
            return tuple_text(map(type_text, items))
        case StateType():
            return "token[]"
    raise NoWord(f"HLO has no values of type {type}")


def tuple_text(items: Iterable[str]) -> str:
    """The shape of a tuple of these shapes."""
    return f"({', '.join(items)})"
