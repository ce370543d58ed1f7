"""Shapes and constants of HLO's messages: shapes as text, which everything else is made of, and constants as values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from deepx_graph.literal import Array, Literal
from deepx_graph.text.common.protobuf import Elements, raw_bytes
from deepx_graph.text.common.protobuf_writer import Encoded, encode, field_chunks
from deepx_graph.text.hlo.proto.schema import (
    ELEMENT_FIELDS,
    SCHEMA,
)
from deepx_graph.text.hlo.proto.xla_data import (
    ELEMENT_TYPES,
    ELEMENTS,
    LayoutMessage,
    LiteralMessage,
    Shape,
    TileMessage,
)
from deepx_graph.text.hlo.shapes import HLO_DTYPES, MAX_RANK, tuple_text
from deepx_graph.text.xla.hlo_text import AttributeFault, ints_text
from deepx_graph.types import DType, tensor

TUPLE, TOKEN = 13, 17
UNBOUNDED = -(1 << 63)
"""The size of a dimension that is not known at all."""


def shape_text(shape: Shape | None) -> str:
    """A shape with its layout, as text has it. Raises AttributeFault where it is none."""
    if shape is None:
        raise AttributeFault("a shape is missing", "a shape")
    if shape.element_type == TUPLE:
        return tuple_text(map(shape_text, shape.items))
    word = ELEMENT_TYPES.get(shape.element_type)
    if word is None:
        raise AttributeFault(f"element type {shape.element_type} is not known", ", ".join(HLO_DTYPES))
    bounds = [*map(bool, shape.dynamic), *[False] * len(shape.dimensions)]
    dims = ",".join(("?" if d == UNBOUNDED else f"<={d}") if bounded else str(d)
                    for d, bounded in zip(shape.dimensions, bounds, strict=False))
    return f"{word}[{dims}]{_layout(shape)}"


def _layout(shape: Shape) -> str:
    if shape.layout is None or not shape.dimensions:
        return ""
    layout = shape.layout
    tiles = "".join(f"({','.join(map(str, t.dimensions))})" for t in layout.tiles)
    said = f"T{tiles}" * bool(tiles) + f"E({layout.element_size})" * bool(layout.element_size)
    said += f"S({layout.memory_space})" * bool(layout.memory_space)
    return ints_text(layout.minor_to_major)[:-1] + (f":{said}" if said else "") + "}"


def literals_of(message: LiteralMessage | None) -> list[Literal]:
    """The leaves of a constant. Raises AttributeFault where it is damaged."""
    if message is None or message.shape is None:
        raise AttributeFault("a constant is missing", "a literal with its shape")
    if message.shape.element_type == TUPLE:
        return [leaf for item in message.items for leaf in literals_of(item)]
    return [] if message.shape.element_type == TOKEN else [_literal(message, message.shape)]


def _literal(message: LiteralMessage, shape: Shape) -> Literal:
    dtype = HLO_DTYPES.get(ELEMENT_TYPES.get(shape.element_type, ""))
    if dtype is None or dtype.np is None:
        raise AttributeFault(f"a constant of element type {shape.element_type}", ", ".join(HLO_DTYPES))
    sizes = shape.dimensions
    order = (shape.layout.minor_to_major if shape.layout else []) or list(reversed(range(len(sizes))))
    if len(sizes) > MAX_RANK or any(d < 0 for d in sizes) or sorted(order) != list(range(len(sizes))):
        raise AttributeFault("the shape of a constant is damaged", "sizes, and a layout that names each dimension once")
    raw = message.elements[0] if len(message.elements) == 1 else b"".join(message.elements)
    count = math.prod(sizes)
    flat = _elements(raw, count, dtype)
    major = order[::-1]
    array = flat.reshape([sizes[d] for d in major]).transpose([major.index(d) for d in range(len(sizes))])
    return Literal(np.ascontiguousarray(array).reshape(tensor(dtype, tuple(sizes)).shape))


def _elements(raw: bytes | memoryview, count: int, dtype: DType) -> Array:
    """The elements in their order; those of less than a byte may lie several in one. Raises AttributeFault."""
    assert dtype.np is not None
    width = dtype.np.itemsize
    packed = 8 // dtype.bits if dtype.bits in (1, 2, 4) else 1
    if packed > 1 and len(raw) == -(-count // packed) and len(raw) != count:
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").reshape(-1, dtype.bits)
        raw = np.packbits(bits, axis=1, bitorder="little").reshape(-1)[:count].tobytes()
    if len(raw) != count * width:
        raise AttributeFault(f"a constant of {count} elements of {dtype} has {len(raw)} bytes", f"{count * width} bytes")
    if dtype.bits < 8 and dtype.is_integer:
        return np.frombuffer(raw, np.int8 if dtype.kind == "int" else np.uint8).astype(dtype.np)
    return np.frombuffer(raw, dtype.np)


# --- written ------------------------------------------------------------------------------------------------------------

_NUMBERS = {word: number for number, word in ELEMENT_TYPES.items()}
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([\d,\s]*)(?::([^}]*))?\})?")
_SAID = re.compile(r"([TES])?\(([\d,\s]*)\)")
_MARK = re.compile(r"\(|\)|" + _ARRAY.pattern)


def shape_message(text: str) -> Shape:
    """The message of a shape that the parser of text has taken. Raises AttributeFault for a type that only text has."""
    stack: list[Shape] = [Shape(TUPLE)]
    for mark in _MARK.finditer(text):
        if mark[0] == "(":
            stack.append(Shape(TUPLE))
            stack[-2].items.append(stack[-1])
        elif mark[0] == ")":
            stack.pop()
        else:
            stack[-1].items.append(_array_message(*mark.groups()))
    return stack[0].items[0]


def _array_message(word: str, dims: str, order: str | None, said: str | None) -> Shape:
    if word == "token":
        return Shape(TOKEN)
    sizes = [d.strip() for d in dims.split(",")] if dims.strip() else []
    bounded = [int(d.startswith(("<=", "?"))) for d in sizes]
    numbers = [UNBOUNDED if d == "?" else int(d.removeprefix("<=")) for d in sizes]
    layout = LayoutMessage(list(_ints(order)) if order else list(reversed(range(len(sizes)))))
    letter = ""
    for part in _SAID.finditer(said or ""):
        letter = part[1] or letter  # tiles may follow one another
        values = list(_ints(part[2]))
        if letter == "T":
            layout.tiles.append(TileMessage(values))
        elif letter == "E":
            layout.element_size = values[0]
        else:
            layout.memory_space = values[0]
    if word not in _NUMBERS:
        raise AttributeFault(f"XLA's messages have no elements of type {word}", ", ".join(_NUMBERS))
    return Shape(_NUMBERS[word], numbers, [], layout, bounded if any(bounded) else [])


def _ints(text: str) -> Iterator[int]:
    return map(int, filter(str.strip, text.split(",")))


def literal_message(shape: Shape, literal: Literal) -> Any:
    """The message, already as bytes, of an array of a shape; its elements are row-major, whatever the layout."""
    number = ELEMENT_FIELDS[ELEMENT_TYPES[shape.element_type]]
    layout = LayoutMessage(list(reversed(range(len(shape.dimensions)))))
    chunks = encode(LiteralMessage(Shape(shape.element_type, shape.dimensions, [], layout)), SCHEMA)
    read = ELEMENTS[number]
    return Encoded(chunks + field_chunks(number, [_bytes(literal)], read if isinstance(read, Elements) else raw_bytes, SCHEMA))


def _bytes(literal: Literal) -> bytes:
    """The elements, those of less than a byte as many in one as fit."""
    flat = np.ascontiguousarray(literal.array).reshape(-1)
    bits = literal.dtype.bits
    if bits not in (1, 2, 4) or literal.dtype.kind == "bool":
        return flat.tobytes()
    raw = flat.astype(np.int8).view(np.uint8) if literal.dtype.is_integer else flat.view(np.uint8)
    each = np.unpackbits(raw[:, None], axis=1, bitorder="little")[:, :bits]
    return np.packbits(each.reshape(-1), bitorder="little").tobytes()
