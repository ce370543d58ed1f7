"""Attributes and types of MLIR's builtin dialect in bytecode."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.decoder import (
    Dialect,
    EntryDecoder,
    attribute_value,
    complex_type,
    encoded_tensor,
    function_type,
    named_type,
    tensor,
    tuple_type,
)
from deepx_graph.text.stablehlo.bytecode.text import UNIT, noted
from deepx_graph.text.stablehlo.literals import MLIR_DTYPES
from deepx_graph.text.stablehlo.syntax import Dense, DenseArray, Symbol, Typed
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.types import DType, Type


def number(d: EntryDecoder, r: ByteReader) -> Any:
    """An integer with its type; a bool for one bit."""
    at, name = r.at, d.word(r)
    dtype = _dtype(r, name, at)
    value = bits(r, 1 if dtype.kind == "bool" else dtype.bits)
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "int" and value >> (dtype.bits - 1) & 1:
        value -= 1 << dtype.bits
    return Typed(value, d.tensor(r, [], name))


def real(d: EntryDecoder, r: ByteReader) -> Any:
    """A float with its type."""
    at, name = r.at, d.word(r)
    dtype = _dtype(r, name, at)
    if not dtype.is_float or dtype.np is None:
        raise r.fail(f"a float of the type {name}", at=at)
    stored = bits(r, dtype.bits).to_bytes(dtype.itemsize, "little")
    return Typed(float(str(np.frombuffer(stored, dtype.np)[0])), d.tensor(r, [], name))  # the shortest decimal, as in text


def _dtype(r: ByteReader, name: str, at: int) -> DType:
    if name not in MLIR_DTYPES:
        raise r.fail(f"a number of the unknown type '{name}'", at=at)
    return MLIR_DTYPES[name]


def bits(r: ByteReader, width: int) -> int:
    """The bits of a number of at most 64."""
    return (r.byte() if width <= 8 else r.signed()) & ((1 << width) - 1)


def dictionary(d: EntryDecoder, r: ByteReader) -> dict[str, Any]:
    """Names and values."""

    def entry() -> tuple[str, Any]:
        at, name = r.at, str(d.attribute(r))
        try:
            return name, noted(name, d.attribute(r))
        except AttributeFault as e:
            raise r.fail(f"the attribute '{name}': {e.message}", e.expected, at=at) from None

    return dict(r.several(entry))


def dense(d: EntryDecoder, r: ByteReader) -> Dense:
    """The bytes of a constant."""
    start = r.at
    return Dense("", d.type(r), start, r.blob())


def _dense_array(d: EntryDecoder, r: ByteReader) -> DenseArray:
    at, name = r.at, d.word(r)
    dtype, count, raw = _dtype(r, name, at), r.varint(), r.blob()
    if dtype.np is None or dtype.bits < 8 or len(raw) != count * dtype.itemsize:
        raise r.fail(f"{len(raw)} bytes for {count} elements of {name}", at=at)
    return DenseArray(name, np.frombuffer(raw, dtype.np).tolist())


def _resource(d: EntryDecoder, r: ByteReader) -> Dense:
    start, type = r.at, d.type(r)
    key, value = d.container.named(r, d.container.resources, "resource")
    if value is None:
        raise r.fail(f"the constant's values are in the resource '{key}', which this file does not hold", at=start)
    return Dense("", type, start, value)


def _integer_type(d: EntryDecoder, r: ByteReader) -> str:
    width = r.varint()
    return f"{('i', 'si', 'ui', 'i')[width & 3]}{width >> 2}"


def _buffer(d: EntryDecoder, r: ByteReader) -> Type:
    """A buffer, as the tensor that it holds."""
    found = tensor(d, r)
    d.attribute(r)
    return found


def _spaced_buffer(d: EntryDecoder, r: ByteReader) -> Type:
    d.attribute(r)
    return _buffer(d, r)


def _unranked(d: EntryDecoder, r: ByteReader) -> Type:
    raise r.fail("a tensor without a rank is not read")


def _symbol(d: EntryDecoder, r: ByteReader) -> Symbol:
    return Symbol(str(d.attribute(r)))


def _nested_symbol(d: EntryDecoder, r: ByteReader) -> Symbol:
    first = str(d.attribute(r))
    return Symbol("::".join([first, *(s.name if isinstance(s, Symbol) else str(s) for s in d.attributes(r))]))


BUILTIN = Dialect(
    attributes={
        0: EntryDecoder.attributes,
        1: dictionary,
        2: EntryDecoder.string,
        3: lambda d, r: (d.string(r), d.element(r))[0],
        4: _symbol,
        5: _nested_symbol,
        6: lambda d, r: attribute_value(d.element(r)),
        7: lambda d, r: UNIT,
        8: number,
        9: real,
        16: _resource,
        17: _dense_array,
        18: dense,
    },
    types={
        0: _integer_type,
        1: named_type("index"),
        2: function_type,
        **{3 + k: named_type(name) for k, name in enumerate(("bf16", "f16", "f32", "f64", "f80", "f128"))},
        9: complex_type,
        10: _buffer,
        11: _spaced_buffer,
        12: named_type("none"),
        13: tensor,
        14: encoded_tensor,
        15: tuple_type,
        18: _unranked,
    },
)
