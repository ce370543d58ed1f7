"""Attributes and types of VHLO in bytecode: StableHLO's, each in every version that there was."""

from __future__ import annotations

from deepx_graph.text.stablehlo.bytecode import builtin
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.decoder import (
    Dialect,
    EntryDecoder,
    attribute_value,
    complex_type,
    encoded_tensor,
    function_type,
    named_type,
    struct,
    sub_axis,
    tensor,
    tuple_type,
    words,
)
from deepx_graph.text.stablehlo.syntax import Typed, future_of
from deepx_graph.types import I32, STATE, Type
from deepx_graph.types import tensor as tensor_of

ENUMS = {
    3: ("comparison_direction", ("EQ", "NE", "GE", "GT", "LE", "LT"), 0),
    4: ("comparison_type", ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"), 0),
    7: ("fft_type", ("FFT", "IFFT", "RFFT", "IRFFT"), 0),
    11: ("precision", ("DEFAULT", "HIGH", "HIGHEST"), 0),
    12: ("rng_algorithm", ("DEFAULT", "THREE_FRY", "PHILOX"), 0),
    13: ("rng_distribution", ("UNIFORM", "NORMAL"), 1),
    16: ("transpose", ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), 0),
    19: ("result_accuracy_mode", ("DEFAULT", "HIGHEST", "TOLERANCE"), 0),
}
"""The words of each enumeration by its code: their kind, and the number of the first."""

TYPES = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index", 10: "i4", 11: "i8", 12: "i16",
    13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16", 18: "ui32", 19: "ui64", 26: "witness", 27: "f8E4M3FNUZ",
    28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 31: "i2", 32: "ui2", 33: "none", 34: "tf32", 35: "f8E4M3", 36: "f8E3M4",
    37: "f4E2M1FN", 38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU",
}  # fmt: skip
"""The element types by their codes."""


def _api_version(d: EntryDecoder, r: ByteReader) -> Typed:
    return Typed(r.varint(), tensor_of(I32))


def _quantised(d: EntryDecoder, r: ByteReader) -> str:
    """A quantised element type, as text has it."""
    r.varint()
    storage, expressed, scale = d.word(r), d.word(r), r.double()
    zero, low, high = r.signed(), r.signed(), r.signed()
    return f"!quant.uniform<{storage}<{low}:{high}>:{expressed}, {scale!r}:{zero}>"


def _quantised_by_axis(d: EntryDecoder, r: ByteReader) -> str:
    r.varint()
    storage, expressed, axis = d.word(r), d.word(r), r.varint()
    low, high = r.signed(), r.signed()
    pairs = ", ".join(f"{s!r}:{z}" for s, z in zip(r.several(r.double), d.ints(r), strict=False))
    return f"!quant.uniform<{storage}<{low}:{high}>:{expressed}:{axis}, {{{pairs}}}>"


def _future(d: EntryDecoder, r: ByteReader) -> Type:
    """What is begun is done, so that its values are there."""
    return future_of(d.types(r))


VHLO = Dialect(
    attributes={
        1: EntryDecoder.attributes,
        2: lambda d, r: bool(r.varint()),
        **{code: words(kind, *names, start=start) for code, (kind, names, start) in ENUMS.items()},
        5: _api_version,
        6: builtin.dictionary,
        8: builtin.real,
        9: builtin.number,
        10: struct("output_operand_alias", output_tuple_indices=EntryDecoder.ints, operand_index=lambda d, r: r.signed(),
                   operand_tuple_indices=EntryDecoder.ints),
        14: EntryDecoder.string,
        15: builtin.dense,
        17: lambda d, r: attribute_value(d.element(r)),
        18: struct("type_extensions", bounds=EntryDecoder.ints),
        20: struct("result_accuracy", atol=lambda d, r: r.double(), rtol=lambda d, r: r.double(),
                   ulps=lambda d, r: r.signed(), mode=EntryDecoder.attribute),
        21: sub_axis,
        22: struct("axis_ref", name=EntryDecoder.attribute, sub_axis_info=lambda d, r: d.attribute(r) if r.varint() else None),
        23: struct("replica_group_mesh_axes", mesh=EntryDecoder.attribute, axes=EntryDecoder.attribute),
        24: struct("mesh_axis", name=EntryDecoder.attribute, size=lambda d, r: r.signed()),
        25: struct("mesh", axes=EntryDecoder.attribute, device_ids=EntryDecoder.optional),
    },
    types={
        **{code: named_type(name) for code, name in TYPES.items()},
        1: complex_type,
        8: function_type,
        20: tensor,
        21: encoded_tensor,
        22: lambda d, r: STATE,
        23: tuple_type,
        24: _quantised,
        25: lambda d, r: builtin.BUILTIN.types[18](d, r),
        30: _quantised_by_axis,
        41: tensor,
        42: _future,
    },
)
