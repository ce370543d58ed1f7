"""Messages of HLO that say shapes, constants, windows, dimensions and devices, as plain data.

Only what a program means is kept. Source: https://github.com/openxla/xla, xla/xla_data.proto, 2025.
"""

# ruff: noqa: RUF009 - each of these calls makes a field
from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.text.common.protobuf import (
    Decoder,
    Field,
    Values,
    elements,
    raw_bytes,
    reals,
    text,
    text_or_bytes,
)
from deepx_graph.text.hlo.proto.message_fields import many, message, message_list, one, word

ELEMENT_TYPES: dict[int, str] = dict(enumerate((
    "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "tuple", "opaque", "c64", "bf16", "token",
    "c128", "f8e5m2", "f8e4m3fn", "s4", "u4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s2", "u2", "f8e4m3", "f8e3m4", "s1",
    "u1", "f4e2m1fn", "f8e8m0fnu",
), 1))  # fmt: skip
"""The words of text for the numbers of PrimitiveType."""

PRIMITIVES = ("PRIMITIVE_TYPE_INVALID", *(word.upper() for word in ELEMENT_TYPES.values()))
TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
DISTRIBUTIONS = ("RNG_INVALID", "RNG_UNIFORM", "RNG_NORMAL")
FFTS = ("FFT", "IFFT", "RFFT", "IRFFT")
RNGS = ("RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX")
ALIASES = ("UNDEFINED_ALIAS", "MAY_ALIAS", "MUST_ALIAS")
PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE")
DOT_ALGORITHMS = ("", "any_f8_any_f8_f32", "any_f8_any_f8_f32_fast_accum", "f16_f16_f16", "f16_f16_f32", "bf16_bf16_bf16",
                   "bf16_bf16_f32", "bf16_bf16_f32_x3", "bf16_bf16_f32_x6", "tf32_tf32_f32", "tf32_tf32_f32_x3", "f32_f32_f32",
                   "f64_f64_f64", "bf16_bf16_f32_x9")  # fmt: skip
ALGORITHMS = tuple(f"ALG_DOT_{word.upper()}" if word else "ALG_UNSET" for word in DOT_ALGORITHMS)
SHARDING_TYPES = ("REPLICATED", "MAXIMAL", "TUPLE", "OTHER", "MANUAL", "UNKNOWN", "UNREDUCED")
API_VERSIONS = ("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
                "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI")
ACCURACIES = ("DEFAULT", "HIGHEST")


def _fixed(d: Decoder, f: Field, depth: int) -> list[memoryview]:
    """Numbers of a fixed size, one or packed, as their bytes."""
    return [d.wire.data[f.start : f.end]]


@dataclass(slots=True)
class MapEntry:
    """An entry of a map of strings."""

    key: str = word(1)
    value: str = one(2, "", text_or_bytes)
    at: int = 0


@dataclass(slots=True)
class StringMap:
    entries: list[MapEntry] = message_list(1, MapEntry, name="map")
    at: int = 0


# --- shapes and constants -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TileMessage:
    dimensions: list[int] = many(1)
    at: int = 0


@dataclass(slots=True)
class LayoutMessage:
    """The order of dimensions in memory, the fastest first, and how it is tiled."""

    minor_to_major: list[int] = many(1)
    tiles: list[TileMessage] = message_list(6, TileMessage)
    element_size: int = one(7, name="element_size_in_bits")
    memory_space: int = one(8)
    at: int = 0


@dataclass(slots=True)
class Shape:
    """A shape; `element_type` is a number of PrimitiveType, `dynamic` says of which dimensions the size is a bound."""

    element_type: int = one(2, words=PRIMITIVES)
    dimensions: list[int] = many(3)
    items: list[Shape] = field(default_factory=list)
    layout: LayoutMessage | None = message(5, LayoutMessage)
    dynamic: list[int] = many(6, name="is_dynamic_dimension")
    at: int = 0


@dataclass(slots=True)
class ProgramShape:
    """What a computation takes and gives; written for other readers, as the instructions say it too."""

    parameters: list[Shape] = message_list(1, Shape)
    result: Shape | None = message(2, Shape)
    names: list[str] = many(3, text, name="parameter_names")
    at: int = 0


@dataclass(slots=True)
class LiteralMessage:
    """A constant: the bytes of its elements in the order of its layout, in pieces, or its items where it is a tuple."""

    shape: Shape | None = message(1, Shape)
    items: list[LiteralMessage] = field(default_factory=list)
    elements: list[bytes] = field(default_factory=list)
    at: int = 0


ELEMENTS: dict[int, Values] = {
    2: elements("B"), 4: elements("i"), 5: elements("q"), 6: elements("I"), 7: elements("Q"), 8: _fixed, 9: _fixed, 12: _fixed,
    18: _fixed, **dict.fromkeys((3, 11, 13, 15, 16, 17, 19, 20, *range(21, 34)), raw_bytes),
}  # fmt: skip
"""How the elements of a constant stand, by the field of their type."""

# --- instructions -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WindowDimension:
    size: int = one(1)
    stride: int = one(2)
    low: int = one(3, name="padding_low")
    high: int = one(4, name="padding_high")
    window_dilation: int = one(5)
    base_dilation: int = one(6)
    reversal: int = one(7, name="window_reversal")
    at: int = 0


@dataclass(slots=True)
class WindowMessage:
    dimensions: list[WindowDimension] = message_list(1, WindowDimension)
    at: int = 0


@dataclass(slots=True)
class ConvolutionDimensions:
    input_batch: int = one(7, name="input_batch_dimension")
    input_feature: int = one(8, name="input_feature_dimension")
    input_spatial: list[int] = many(11, name="input_spatial_dimensions")
    kernel_input: int = one(3, name="kernel_input_feature_dimension")
    kernel_output: int = one(4, name="kernel_output_feature_dimension")
    kernel_spatial: list[int] = many(6, name="kernel_spatial_dimensions")
    output_batch: int = one(9, name="output_batch_dimension")
    output_feature: int = one(10, name="output_feature_dimension")
    output_spatial: list[int] = many(12, name="output_spatial_dimensions")
    at: int = 0


@dataclass(slots=True)
class SliceDimension:
    start: int = one(1)
    limit: int = one(2)
    stride: int = one(3)
    at: int = 0


@dataclass(slots=True)
class PaddingDimension:
    low: int = one(1, name="edge_padding_low")
    high: int = one(2, name="edge_padding_high")
    interior: int = one(3, name="interior_padding")
    at: int = 0


@dataclass(slots=True)
class Padding:
    dimensions: list[PaddingDimension] = message_list(1, PaddingDimension)
    at: int = 0


@dataclass(slots=True)
class DotDimensions:
    lhs_contracting_dims: list[int] = many(1, name="lhs_contracting_dimensions")
    rhs_contracting_dims: list[int] = many(2, name="rhs_contracting_dimensions")
    lhs_batch_dims: list[int] = many(3, name="lhs_batch_dimensions")
    rhs_batch_dims: list[int] = many(4, name="rhs_batch_dimensions")
    at: int = 0


@dataclass(slots=True)
class RaggedDotDimensions:
    dot: DotDimensions | None = message(1, DotDimensions, name="dot_dimension_numbers")
    lhs_ragged_dims: list[int] = many(2, name="lhs_ragged_dimensions")
    rhs_group_dims: list[int] = many(3, name="rhs_group_dimensions")
    at: int = 0


@dataclass(slots=True)
class GatherDimensions:
    offset_dims: list[int] = many(1)
    collapsed_slice_dims: list[int] = many(2)
    start_index_map: list[int] = many(3)
    index_vector_dim: int = one(4)
    operand_batching_dims: list[int] = many(5)
    start_indices_batching_dims: list[int] = many(6)
    at: int = 0


@dataclass(slots=True)
class ScatterDimensions:
    update_window_dims: list[int] = many(1)
    inserted_window_dims: list[int] = many(2)
    scatter_dims_to_operand_dims: list[int] = many(3)
    index_vector_dim: int = one(4)
    input_batching_dims: list[int] = many(5)
    scatter_indices_batching_dims: list[int] = many(6)
    at: int = 0


@dataclass(slots=True)
class Precision:
    operands: list[int] = many(1, name="operand_precision", words=PRECISIONS)
    algorithm: int = one(2, words=ALGORITHMS)
    at: int = 0


@dataclass(slots=True)
class ReplicaGroup:
    ids: list[int] = many(1, name="replica_ids")
    at: int = 0


@dataclass(slots=True)
class Pair:
    source: int = one(1)
    target: int = one(2)
    at: int = 0


@dataclass(slots=True)
class IotaGroups:
    groups: int = one(1, name="num_replica_groups")
    per_group: int = one(2, name="num_devices_per_group")
    reshape: list[int] = many(3, name="iota_reshape_dims")
    order: list[int] = many(4, name="iota_transpose_perm")
    at: int = 0


@dataclass(slots=True)
class DeviceList:
    groups: list[ReplicaGroup] = message_list(1, ReplicaGroup, name="replica_groups")
    iota: IotaGroups | None = message(2, IotaGroups, name="iota_replica_group_list")
    at: int = 0


@dataclass(slots=True)
class TriangularSolve:
    left_side: int = one(1)
    lower: int = one(2)
    unit_diagonal: int = one(3)
    transpose_a: int = one(4, words=TRANSPOSES)
    at: int = 0


@dataclass(slots=True)
class Cholesky:
    lower: int = one(1)
    at: int = 0


@dataclass(slots=True)
class OpMetadata:
    op_type: str = word(1)
    op_name: str = word(2)
    source_file: str = word(3)
    source_line: int = one(4)
    stack_frame_id: int = one(15)
    at: int = 0


@dataclass(slots=True)
class Sharding:
    """Where the parts of a value lie; `type` is a number of OpSharding.Type."""

    type: int = one(1, words=SHARDING_TYPES)
    dimensions: list[int] = many(3, name="tile_assignment_dimensions")
    devices: list[int] = many(4, name="tile_assignment_devices")
    items: list[Sharding] = field(default_factory=list)
    replicate_last: int = one(6, name="replicate_on_last_tile_dim")
    last_dims: list[int] = many(8, name="last_tile_dims", words=SHARDING_TYPES)
    iota_reshape: list[int] = many(9, name="iota_reshape_dims")
    iota_order: list[int] = many(10, name="iota_transpose_perm")
    at: int = 0


@dataclass(slots=True)
class Alias:
    output_index: list[int] = many(1, name="output_shape_index")
    operand: int = one(2, name="operand_index")
    operand_index: list[int] = many(3, name="operand_shape_index")
    at: int = 0


@dataclass(slots=True)
class Tolerance:
    atol: float = one(1, 0.0, reals("d"))
    rtol: float = one(2, 0.0, reals("d"))
    ulps: int = one(3)
    at: int = 0


@dataclass(slots=True)
class Accuracy:
    mode: int = one(1, words=ACCURACIES)
    tolerance: Tolerance | None = message(2, Tolerance)
    at: int = 0
