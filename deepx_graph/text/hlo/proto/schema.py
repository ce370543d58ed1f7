"""The messages of HLO as plain data, each field with its number and how it is read (`text/common/protobuf.py`).

Only what a program means is kept. Source: https://github.com/openxla/xla, xla/service/hlo.proto and xla/xla_data.proto, 2025.
"""

# ruff: noqa: RUF009 - each of these calls makes a field
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from deepx_graph.text.common.protobuf import (
    Decoder,
    Field,
    Schema,
    Values,
    elements,
    messages,
    numbers,
    raw_bytes,
    reals,
    text,
    text_or_bytes,
)
from deepx_graph.text.common.protobuf_text import NamedField, TextNames

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


def _field(number: int, read: Values, name: str, words: tuple[str, ...], **default: Any) -> Any:
    """`name` is that of the message's definition where it is another one, `words` are those of its enumeration, from 0 on."""
    return field(**default, metadata={"number": number, "read": read, "name": name, "words": words})


def _one(number: int, default: Any = 0, read: Values = numbers, name: str = "", words: tuple[str, ...] = ()) -> Any:
    """A field of one value, the default where it is missing."""
    return _field(number, read, name, words, default=default)


def _word(number: int, name: str = "") -> Any:
    return _one(number, "", text, name)


def _many(number: int, read: Values = numbers, name: str = "", words: tuple[str, ...] = ()) -> Any:
    """A field of several values."""
    return _field(number, read, name, words, default_factory=list)


def _message(number: int, kind: type, name: str = "") -> Any:
    """A field of one message, None where it is missing."""
    return _one(number, None, messages(kind), name)


def _messages(number: int, kind: type, name: str = "") -> Any:
    return _many(number, messages(kind), name)


def _fixed(d: Decoder, f: Field, depth: int) -> list[memoryview]:
    """Numbers of a fixed size, one or packed, as their bytes."""
    return [d.wire.data[f.start : f.end]]


@dataclass(slots=True)
class MapEntry:
    """An entry of a map of strings."""

    key: str = _word(1)
    value: str = _one(2, "", text_or_bytes)
    at: int = 0


@dataclass(slots=True)
class StringMap:
    entries: list[MapEntry] = _messages(1, MapEntry, name="map")
    at: int = 0


# --- shapes and constants -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TileMessage:
    dimensions: list[int] = _many(1)
    at: int = 0


@dataclass(slots=True)
class LayoutMessage:
    """The order of dimensions in memory, the fastest first, and how it is tiled."""

    minor_to_major: list[int] = _many(1)
    tiles: list[TileMessage] = _messages(6, TileMessage)
    element_size: int = _one(7, name="element_size_in_bits")
    memory_space: int = _one(8)
    at: int = 0


@dataclass(slots=True)
class Shape:
    """A shape; `element_type` is a number of PrimitiveType, `dynamic` says of which dimensions the size is a bound."""

    element_type: int = _one(2, words=PRIMITIVES)
    dimensions: list[int] = _many(3)
    items: list[Shape] = field(default_factory=list)
    layout: LayoutMessage | None = _message(5, LayoutMessage)
    dynamic: list[int] = _many(6, name="is_dynamic_dimension")
    at: int = 0


@dataclass(slots=True)
class ProgramShape:
    """What a computation takes and gives; written for other readers, as the instructions say it too."""

    parameters: list[Shape] = _messages(1, Shape)
    result: Shape | None = _message(2, Shape)
    names: list[str] = _many(3, text, name="parameter_names")
    at: int = 0


@dataclass(slots=True)
class LiteralMessage:
    """A constant: the bytes of its elements in the order of its layout, in pieces, or its items where it is a tuple."""

    shape: Shape | None = _message(1, Shape)
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
    size: int = _one(1)
    stride: int = _one(2)
    low: int = _one(3, name="padding_low")
    high: int = _one(4, name="padding_high")
    window_dilation: int = _one(5)
    base_dilation: int = _one(6)
    reversal: int = _one(7, name="window_reversal")
    at: int = 0


@dataclass(slots=True)
class WindowMessage:
    dimensions: list[WindowDimension] = _messages(1, WindowDimension)
    at: int = 0


@dataclass(slots=True)
class ConvolutionDimensions:
    input_batch: int = _one(7, name="input_batch_dimension")
    input_feature: int = _one(8, name="input_feature_dimension")
    input_spatial: list[int] = _many(11, name="input_spatial_dimensions")
    kernel_input: int = _one(3, name="kernel_input_feature_dimension")
    kernel_output: int = _one(4, name="kernel_output_feature_dimension")
    kernel_spatial: list[int] = _many(6, name="kernel_spatial_dimensions")
    output_batch: int = _one(9, name="output_batch_dimension")
    output_feature: int = _one(10, name="output_feature_dimension")
    output_spatial: list[int] = _many(12, name="output_spatial_dimensions")
    at: int = 0


@dataclass(slots=True)
class SliceDimension:
    start: int = _one(1)
    limit: int = _one(2)
    stride: int = _one(3)
    at: int = 0


@dataclass(slots=True)
class PaddingDimension:
    low: int = _one(1, name="edge_padding_low")
    high: int = _one(2, name="edge_padding_high")
    interior: int = _one(3, name="interior_padding")
    at: int = 0


@dataclass(slots=True)
class Padding:
    dimensions: list[PaddingDimension] = _messages(1, PaddingDimension)
    at: int = 0


@dataclass(slots=True)
class DotDimensions:
    lhs_contracting_dims: list[int] = _many(1, name="lhs_contracting_dimensions")
    rhs_contracting_dims: list[int] = _many(2, name="rhs_contracting_dimensions")
    lhs_batch_dims: list[int] = _many(3, name="lhs_batch_dimensions")
    rhs_batch_dims: list[int] = _many(4, name="rhs_batch_dimensions")
    at: int = 0


@dataclass(slots=True)
class RaggedDotDimensions:
    dot: DotDimensions | None = _message(1, DotDimensions, name="dot_dimension_numbers")
    lhs_ragged_dims: list[int] = _many(2, name="lhs_ragged_dimensions")
    rhs_group_dims: list[int] = _many(3, name="rhs_group_dimensions")
    at: int = 0


@dataclass(slots=True)
class GatherDimensions:
    offset_dims: list[int] = _many(1)
    collapsed_slice_dims: list[int] = _many(2)
    start_index_map: list[int] = _many(3)
    index_vector_dim: int = _one(4)
    operand_batching_dims: list[int] = _many(5)
    start_indices_batching_dims: list[int] = _many(6)
    at: int = 0


@dataclass(slots=True)
class ScatterDimensions:
    update_window_dims: list[int] = _many(1)
    inserted_window_dims: list[int] = _many(2)
    scatter_dims_to_operand_dims: list[int] = _many(3)
    index_vector_dim: int = _one(4)
    input_batching_dims: list[int] = _many(5)
    scatter_indices_batching_dims: list[int] = _many(6)
    at: int = 0


@dataclass(slots=True)
class Precision:
    operands: list[int] = _many(1, name="operand_precision", words=PRECISIONS)
    algorithm: int = _one(2, words=ALGORITHMS)
    at: int = 0


@dataclass(slots=True)
class ReplicaGroup:
    ids: list[int] = _many(1, name="replica_ids")
    at: int = 0


@dataclass(slots=True)
class Pair:
    source: int = _one(1)
    target: int = _one(2)
    at: int = 0


@dataclass(slots=True)
class IotaGroups:
    groups: int = _one(1, name="num_replica_groups")
    per_group: int = _one(2, name="num_devices_per_group")
    reshape: list[int] = _many(3, name="iota_reshape_dims")
    order: list[int] = _many(4, name="iota_transpose_perm")
    at: int = 0


@dataclass(slots=True)
class DeviceList:
    groups: list[ReplicaGroup] = _messages(1, ReplicaGroup, name="replica_groups")
    iota: IotaGroups | None = _message(2, IotaGroups, name="iota_replica_group_list")
    at: int = 0


@dataclass(slots=True)
class TriangularSolve:
    left_side: int = _one(1)
    lower: int = _one(2)
    unit_diagonal: int = _one(3)
    transpose_a: int = _one(4, words=TRANSPOSES)
    at: int = 0


@dataclass(slots=True)
class Cholesky:
    lower: int = _one(1)
    at: int = 0


@dataclass(slots=True)
class OpMetadata:
    op_type: str = _word(1)
    op_name: str = _word(2)
    source_file: str = _word(3)
    source_line: int = _one(4)
    stack_frame_id: int = _one(15)
    at: int = 0


@dataclass(slots=True)
class Sharding:
    """Where the parts of a value lie; `type` is a number of OpSharding.Type."""

    type: int = _one(1, words=SHARDING_TYPES)
    dimensions: list[int] = _many(3, name="tile_assignment_dimensions")
    devices: list[int] = _many(4, name="tile_assignment_devices")
    items: list[Sharding] = field(default_factory=list)
    replicate_last: int = _one(6, name="replicate_on_last_tile_dim")
    last_dims: list[int] = _many(8, name="last_tile_dims", words=SHARDING_TYPES)
    iota_reshape: list[int] = _many(9, name="iota_reshape_dims")
    iota_order: list[int] = _many(10, name="iota_transpose_perm")
    at: int = 0


@dataclass(slots=True)
class Alias:
    output_index: list[int] = _many(1, name="output_shape_index")
    operand: int = _one(2, name="operand_index")
    operand_index: list[int] = _many(3, name="operand_shape_index")
    at: int = 0


@dataclass(slots=True)
class Tolerance:
    atol: float = _one(1, 0.0, reals("d"))
    rtol: float = _one(2, 0.0, reals("d"))
    ulps: int = _one(3)
    at: int = 0


@dataclass(slots=True)
class Accuracy:
    mode: int = _one(1, words=ACCURACIES)
    tolerance: Tolerance | None = _message(2, Tolerance)
    at: int = 0


@dataclass(slots=True)
class InstructionMessage:
    """An instruction; operands and computations are named by numbers."""

    name: str = _word(1)
    opcode: str = _word(2)
    shape: Shape | None = _message(3, Shape)
    metadata: OpMetadata | None = _message(7, OpMetadata)
    literal: LiteralMessage | None = _message(8, LiteralMessage)
    parameter_number: int = _one(9)
    fusion_kind: str = _word(11)
    tuple_index: int = _one(13)
    dimensions: list[int] = _many(14)
    window: WindowMessage | None = _message(15, WindowMessage)
    convolution: ConvolutionDimensions | None = _message(16, ConvolutionDimensions, name="convolution_dimension_numbers")
    slices: list[SliceDimension] = _messages(17, SliceDimension, name="slice_dimensions")
    exponent_bits: int = _one(18)
    mantissa_bits: int = _one(19)
    dynamic_slice_sizes: list[int] = _many(20)
    padding: Padding | None = _message(21, Padding, name="padding_config")
    outfeed_config: str = _one(22, "", text_or_bytes)
    distribution: int = _one(23, words=DISTRIBUTIONS)
    epsilon: float = _one(24, 0.0, reals("f"))
    feature_index: int = _one(25)
    channel_id: int = _one(26)
    infeed_config: str = _one(27, "", text_or_bytes)
    custom_call_target: str = _word(28)
    outfeed_shape: Shape | None = _message(29, Shape)
    dot: DotDimensions | None = _message(30, DotDimensions, name="dot_dimension_numbers")
    fft_type: int = _one(31, words=FFTS)
    fft_length: list[int] = _many(32)
    gather: GatherDimensions | None = _message(33, GatherDimensions, name="gather_dimension_numbers")
    gather_slice_sizes: list[int] = _many(34)
    id: int = _one(35)
    operands: list[int] = _many(36, name="operand_ids")
    predecessors: list[int] = _many(37, name="control_predecessor_ids")
    computations: list[int] = _many(38, name="called_computation_ids")
    sharding: Sharding | None = _message(40, Sharding)
    backend_config: str = _one(43, "", text_or_bytes)
    is_host_transfer: int = _one(47)
    scatter: ScatterDimensions | None = _message(48, ScatterDimensions, name="scatter_dimension_numbers")
    replica_groups: list[ReplicaGroup] = _messages(49, ReplicaGroup)
    feature_group_count: int = _one(50)
    precision: Precision | None = _message(51, Precision, name="precision_config")
    pairs: list[Pair] = _messages(52, Pair, name="source_target_pairs")
    constrain_layout: int = _one(56)
    operand_shapes: list[Shape] = _messages(57, Shape, name="operand_shapes_with_layout")
    batch_group_count: int = _one(58)
    triangular_solve: TriangularSolve | None = _message(59, TriangularSolve, name="triangular_solve_options")
    is_stable: int = _one(60)
    cholesky: Cholesky | None = _message(62, Cholesky, name="cholesky_options")
    comparison_direction: str = _word(63)
    has_side_effect: int = _one(65, name="custom_call_has_side_effect")
    delta: int = _one(66)
    indices_are_sorted: int = _one(67)
    frontend_attributes: StringMap | None = _message(68, StringMap)
    unique_indices: int = _one(69)
    rng_algorithm: int = _one(70, words=RNGS)
    use_global_device_ids: int = _one(71)
    comparison_type: str = _word(72)
    aliases: list[Alias] = _messages(74, Alias, name="output_operand_aliasing")
    api_version: int = _one(77, name="custom_call_api_version", words=API_VERSIONS)
    execution_thread: str = _word(79, name="async_execution_thread")
    k: int = _one(81)
    largest: int = _one(85)
    device_list: DeviceList | None = _message(87, DeviceList, name="collective_device_list")
    is_composite: int = _one(89)
    ragged_dot: RaggedDotDimensions | None = _message(90, RaggedDotDimensions, name="ragged_dot_dimension_numbers")
    accuracy: Accuracy | None = _message(91, Accuracy, name="result_accuracy")
    at: int = 0


# --- modules ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ComputationMessage:
    """A computation, its instructions after their operands."""

    name: str = _word(1)
    instructions: list[InstructionMessage] = _messages(2, InstructionMessage)
    program_shape: ProgramShape | None = _message(4, ProgramShape)
    id: int = _one(5)
    root: int = _one(6, name="root_id")
    at: int = 0


@dataclass(slots=True)
class FileLocation:
    file_name_id: int = _one(1)
    function_name_id: int = _one(2)
    line: int = _one(3)
    column: int = _one(4)
    at: int = 0


@dataclass(slots=True)
class StackFrame:
    file_location_id: int = _one(1)
    parent_frame_id: int = _one(2)
    at: int = 0


@dataclass(slots=True)
class StackFrames:
    """The tables that places are told by; rows count from 1."""

    files: list[str] = _many(1, text, name="file_names")
    functions: list[str] = _many(2, text, name="function_names")
    locations: list[FileLocation] = _messages(3, FileLocation, name="file_locations")
    frames: list[StackFrame] = _messages(4, StackFrame, name="stack_frames")
    at: int = 0


@dataclass(slots=True)
class BufferAlias:
    output_index: list[int] = _many(1, name="output_shape_index")
    parameter: int = _one(2, name="parameter_number")
    parameter_index: list[int] = _many(3, name="parameter_shape_index")
    kind: int = _one(4, words=ALIASES)
    at: int = 0


@dataclass(slots=True)
class BufferAliases:
    entries: list[BufferAlias] = _messages(1, BufferAlias)
    at: int = 0


@dataclass(slots=True)
class Sequence:
    """Instructions in the order in which they run."""

    instructions: list[int] = _many(1, name="instruction_ids")
    at: int = 0


@dataclass(slots=True)
class ScheduleEntry:
    computation: int = _one(1, name="key")
    sequence: Sequence | None = _message(2, Sequence, name="value")
    at: int = 0


@dataclass(slots=True)
class ScheduleMessage:
    """The orders of computations, by number."""

    entries: list[ScheduleEntry] = _messages(1, ScheduleEntry, name="sequences")
    at: int = 0


@dataclass(slots=True)
class ModuleMessage:
    """HloModuleProto."""

    name: str = _word(1)
    entry_name: str = _word(2, name="entry_computation_name")
    computations: list[ComputationMessage] = _messages(3, ComputationMessage)
    program_shape: ProgramShape | None = _message(4, ProgramShape, name="host_program_shape")
    entry: int = _one(6, name="entry_computation_id")
    schedule: ScheduleMessage | None = _message(7, ScheduleMessage)
    aliases: BufferAliases | None = _message(8, BufferAliases, name="input_output_alias")
    frames: StackFrames | None = _message(17, StackFrames, name="stack_frame_index")
    frontend_attributes: StringMap | None = _message(19, StringMap)
    at: int = 0


@dataclass(slots=True)
class ArgumentDescriptor:
    """How many bytes an argument has that stands behind the message."""

    size: int = _one(2)
    at: int = 0


@dataclass(slots=True)
class Arguments:
    """What one partition was run on: constants, or how long those are that stand behind the message."""

    values: list[LiteralMessage] = _messages(1, LiteralMessage, name="arguments")
    behind: list[ArgumentDescriptor] = _messages(2, ArgumentDescriptor, name="argument_descriptors")
    at: int = 0


@dataclass(slots=True)
class Dump:
    """HloProto, and HloUnoptimizedSnapshot, which has the arguments of every partition beside the module."""

    module: ModuleMessage | None = _message(1, ModuleMessage, name="hlo_module")
    partitions: list[Arguments] = _messages(2, Arguments)
    at: int = 0


@dataclass(slots=True)
class Snapshot:
    """HloSnapshot: a module, what it was run on, and what came out."""

    dump: Dump | None = _message(1, Dump, name="hlo")
    arguments: list[LiteralMessage] = _messages(2, LiteralMessage)
    result: LiteralMessage | None = _message(3, LiteralMessage)
    platform: str = _word(4, name="execution_platform")
    at: int = 0


def _of(kind: type) -> dict[int, tuple[str, Values]]:
    return {f.metadata["number"]: (f.name, f.metadata["read"]) for f in fields(kind) if f.metadata}


_KINDS: tuple[type, ...] = (
    MapEntry, StringMap, TileMessage, LayoutMessage, Shape, ProgramShape, LiteralMessage, WindowDimension, WindowMessage,
    ConvolutionDimensions,
    SliceDimension, PaddingDimension, Padding, DotDimensions, RaggedDotDimensions, GatherDimensions, ScatterDimensions,
    Precision, ReplicaGroup, Pair, IotaGroups, DeviceList, TriangularSolve, Cholesky, OpMetadata, Sharding, Alias, Tolerance,
    Accuracy, InstructionMessage, ComputationMessage, FileLocation, StackFrame, StackFrames, BufferAlias, BufferAliases,
    ModuleMessage, ArgumentDescriptor, Arguments, Dump, Snapshot, Sequence, ScheduleEntry, ScheduleMessage,
)  # fmt: skip

SCHEMA: Schema = {kind: _of(kind) for kind in _KINDS} | {
    Shape: _of(Shape) | {4: ("items", messages(Shape))},
    Sharding: _of(Sharding) | {5: ("items", messages(Sharding))},
    LiteralMessage: _of(LiteralMessage) | {10: ("items", messages(LiteralMessage)),
                                           **{number: ("elements", read) for number, read in ELEMENTS.items()}},
}
"""The fields of each message by number."""

ELEMENT_FIELDS: dict[str, int] = {
    "pred": 2, "u8": 3, "s32": 4, "s64": 5, "u32": 6, "u64": 7, "f32": 8, "f64": 9, "f16": 11, "c64": 12, "bf16": 13, "s8": 15,
    "u16": 16, "s16": 17, "c128": 18, "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29, "s1": 30, "u1": 31, "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip
"""The field of LiteralProto that the elements of each type stand in; its name is that of the type with an `s` behind it."""


def _names(kind: type) -> dict[str, NamedField]:
    return {f.metadata["name"] or f.name: NamedField(f.metadata["number"], f.metadata["words"]) for f in fields(kind) if f.metadata}


NAMES: TextNames = {kind: _names(kind) for kind in _KINDS} | {
    Shape: _names(Shape) | {"tuple_shapes": NamedField(4)},
    Sharding: _names(Sharding) | {"tuple_shardings": NamedField(5)},
    LiteralMessage: _names(LiteralMessage) | {"tuple_literals": NamedField(10)} | {
        f"{word}s": NamedField(number, code={"f32": "f", "c64": "f", "f64": "d", "c128": "d"}.get(word, ""))
        for word, number in ELEMENT_FIELDS.items()},
}
"""The fields of each message by their names in the definition, as the text form of a message has them."""
