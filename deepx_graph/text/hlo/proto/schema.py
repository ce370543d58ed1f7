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


def _one(number: int, default: Any = 0, read: Values = numbers) -> Any:
    """A field of one value, the default where it is missing."""
    return field(default=default, metadata={"number": number, "read": read})


def _word(number: int) -> Any:
    return _one(number, "", text)


def _many(number: int, read: Values = numbers) -> Any:
    """A field of several values."""
    return field(default_factory=list, metadata={"number": number, "read": read})


def _message(number: int, kind: type) -> Any:
    """A field of one message, None where it is missing."""
    return _one(number, None, messages(kind))


def _messages(number: int, kind: type) -> Any:
    return _many(number, messages(kind))


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
    entries: list[MapEntry] = _messages(1, MapEntry)
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
    element_size: int = _one(7)
    memory_space: int = _one(8)
    at: int = 0


@dataclass(slots=True)
class Shape:
    """A shape; `element_type` is a number of PrimitiveType, `dynamic` says of which dimensions the size is a bound."""

    element_type: int = _one(2)
    dimensions: list[int] = _many(3)
    items: list[Shape] = field(default_factory=list)
    layout: LayoutMessage | None = _message(5, LayoutMessage)
    dynamic: list[int] = _many(6)
    at: int = 0


@dataclass(slots=True)
class ProgramShape:
    """What a computation takes and gives; written for other readers, as the instructions say it too."""

    parameters: list[Shape] = _messages(1, Shape)
    result: Shape | None = _message(2, Shape)
    names: list[str] = _many(3, text)
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
    low: int = _one(3)
    high: int = _one(4)
    window_dilation: int = _one(5)
    base_dilation: int = _one(6)
    reversal: int = _one(7)
    at: int = 0


@dataclass(slots=True)
class WindowMessage:
    dimensions: list[WindowDimension] = _messages(1, WindowDimension)
    at: int = 0


@dataclass(slots=True)
class ConvolutionDimensions:
    input_batch: int = _one(7)
    input_feature: int = _one(8)
    input_spatial: list[int] = _many(11)
    kernel_input: int = _one(3)
    kernel_output: int = _one(4)
    kernel_spatial: list[int] = _many(6)
    output_batch: int = _one(9)
    output_feature: int = _one(10)
    output_spatial: list[int] = _many(12)
    at: int = 0


@dataclass(slots=True)
class SliceDimension:
    start: int = _one(1)
    limit: int = _one(2)
    stride: int = _one(3)
    at: int = 0


@dataclass(slots=True)
class PaddingDimension:
    low: int = _one(1)
    high: int = _one(2)
    interior: int = _one(3)
    at: int = 0


@dataclass(slots=True)
class Padding:
    dimensions: list[PaddingDimension] = _messages(1, PaddingDimension)
    at: int = 0


@dataclass(slots=True)
class DotDimensions:
    lhs_contracting_dims: list[int] = _many(1)
    rhs_contracting_dims: list[int] = _many(2)
    lhs_batch_dims: list[int] = _many(3)
    rhs_batch_dims: list[int] = _many(4)
    at: int = 0


@dataclass(slots=True)
class RaggedDotDimensions:
    dot: DotDimensions | None = _message(1, DotDimensions)
    lhs_ragged_dims: list[int] = _many(2)
    rhs_group_dims: list[int] = _many(3)
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
    operands: list[int] = _many(1)
    algorithm: int = _one(2)
    at: int = 0


@dataclass(slots=True)
class ReplicaGroup:
    ids: list[int] = _many(1)
    at: int = 0


@dataclass(slots=True)
class Pair:
    source: int = _one(1)
    target: int = _one(2)
    at: int = 0


@dataclass(slots=True)
class IotaGroups:
    groups: int = _one(1)
    per_group: int = _one(2)
    reshape: list[int] = _many(3)
    order: list[int] = _many(4)
    at: int = 0


@dataclass(slots=True)
class DeviceList:
    groups: list[ReplicaGroup] = _messages(1, ReplicaGroup)
    iota: IotaGroups | None = _message(2, IotaGroups)
    at: int = 0


@dataclass(slots=True)
class TriangularSolve:
    left_side: int = _one(1)
    lower: int = _one(2)
    unit_diagonal: int = _one(3)
    transpose_a: int = _one(4)
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

    type: int = _one(1)
    dimensions: list[int] = _many(3)
    devices: list[int] = _many(4)
    items: list[Sharding] = field(default_factory=list)
    replicate_last: int = _one(6)
    last_dims: list[int] = _many(8)
    iota_reshape: list[int] = _many(9)
    iota_order: list[int] = _many(10)
    at: int = 0


@dataclass(slots=True)
class Alias:
    output_index: list[int] = _many(1)
    operand: int = _one(2)
    operand_index: list[int] = _many(3)
    at: int = 0


@dataclass(slots=True)
class Tolerance:
    atol: float = _one(1, 0.0, reals("d"))
    rtol: float = _one(2, 0.0, reals("d"))
    ulps: int = _one(3)
    at: int = 0


@dataclass(slots=True)
class Accuracy:
    mode: int = _one(1)
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
    convolution: ConvolutionDimensions | None = _message(16, ConvolutionDimensions)
    slices: list[SliceDimension] = _messages(17, SliceDimension)
    exponent_bits: int = _one(18)
    mantissa_bits: int = _one(19)
    dynamic_slice_sizes: list[int] = _many(20)
    padding: Padding | None = _message(21, Padding)
    outfeed_config: str = _one(22, "", text_or_bytes)
    distribution: int = _one(23)
    epsilon: float = _one(24, 0.0, reals("f"))
    feature_index: int = _one(25)
    channel_id: int = _one(26)
    infeed_config: str = _one(27, "", text_or_bytes)
    custom_call_target: str = _word(28)
    outfeed_shape: Shape | None = _message(29, Shape)
    dot: DotDimensions | None = _message(30, DotDimensions)
    fft_type: int = _one(31)
    fft_length: list[int] = _many(32)
    gather: GatherDimensions | None = _message(33, GatherDimensions)
    gather_slice_sizes: list[int] = _many(34)
    id: int = _one(35)
    operands: list[int] = _many(36)
    predecessors: list[int] = _many(37)
    computations: list[int] = _many(38)
    sharding: Sharding | None = _message(40, Sharding)
    backend_config: str = _one(43, "", text_or_bytes)
    is_host_transfer: int = _one(47)
    scatter: ScatterDimensions | None = _message(48, ScatterDimensions)
    replica_groups: list[ReplicaGroup] = _messages(49, ReplicaGroup)
    feature_group_count: int = _one(50)
    precision: Precision | None = _message(51, Precision)
    pairs: list[Pair] = _messages(52, Pair)
    constrain_layout: int = _one(56)
    operand_shapes: list[Shape] = _messages(57, Shape)
    batch_group_count: int = _one(58)
    triangular_solve: TriangularSolve | None = _message(59, TriangularSolve)
    is_stable: int = _one(60)
    cholesky: Cholesky | None = _message(62, Cholesky)
    comparison_direction: str = _word(63)
    has_side_effect: int = _one(65)
    delta: int = _one(66)
    indices_are_sorted: int = _one(67)
    frontend_attributes: StringMap | None = _message(68, StringMap)
    unique_indices: int = _one(69)
    rng_algorithm: int = _one(70)
    use_global_device_ids: int = _one(71)
    comparison_type: str = _word(72)
    aliases: list[Alias] = _messages(74, Alias)
    api_version: int = _one(77)
    execution_thread: str = _word(79)
    k: int = _one(81)
    largest: int = _one(85)
    device_list: DeviceList | None = _message(87, DeviceList)
    is_composite: int = _one(89)
    ragged_dot: RaggedDotDimensions | None = _message(90, RaggedDotDimensions)
    accuracy: Accuracy | None = _message(91, Accuracy)
    at: int = 0


# --- modules ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ComputationMessage:
    """A computation, its instructions after their operands."""

    name: str = _word(1)
    instructions: list[InstructionMessage] = _messages(2, InstructionMessage)
    program_shape: ProgramShape | None = _message(4, ProgramShape)
    id: int = _one(5)
    root: int = _one(6)
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

    files: list[str] = _many(1, text)
    functions: list[str] = _many(2, text)
    locations: list[FileLocation] = _messages(3, FileLocation)
    frames: list[StackFrame] = _messages(4, StackFrame)
    at: int = 0


@dataclass(slots=True)
class BufferAlias:
    output_index: list[int] = _many(1)
    parameter: int = _one(2)
    parameter_index: list[int] = _many(3)
    kind: int = _one(4)
    at: int = 0


@dataclass(slots=True)
class BufferAliases:
    entries: list[BufferAlias] = _messages(1, BufferAlias)
    at: int = 0


@dataclass(slots=True)
class Sequence:
    """Instructions in the order in which they run."""

    instructions: list[int] = _many(1)
    at: int = 0


@dataclass(slots=True)
class ScheduleEntry:
    computation: int = _one(1)
    sequence: Sequence | None = _message(2, Sequence)
    at: int = 0


@dataclass(slots=True)
class ScheduleMessage:
    """The orders of computations, by number."""

    entries: list[ScheduleEntry] = _messages(1, ScheduleEntry)
    at: int = 0


@dataclass(slots=True)
class ModuleMessage:
    """HloModuleProto."""

    name: str = _word(1)
    entry_name: str = _word(2)
    computations: list[ComputationMessage] = _messages(3, ComputationMessage)
    program_shape: ProgramShape | None = _message(4, ProgramShape)
    entry: int = _one(6)
    schedule: ScheduleMessage | None = _message(7, ScheduleMessage)
    aliases: BufferAliases | None = _message(8, BufferAliases)
    frames: StackFrames | None = _message(17, StackFrames)
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

    values: list[LiteralMessage] = _messages(1, LiteralMessage)
    behind: list[ArgumentDescriptor] = _messages(2, ArgumentDescriptor)
    at: int = 0


@dataclass(slots=True)
class Dump:
    """HloProto, and HloUnoptimizedSnapshot, which has the arguments of every partition beside the module."""

    module: ModuleMessage | None = _message(1, ModuleMessage)
    partitions: list[Arguments] = _messages(2, Arguments)
    at: int = 0


@dataclass(slots=True)
class Snapshot:
    """HloSnapshot: a module, what it was run on, and what came out."""

    dump: Dump | None = _message(1, Dump)
    arguments: list[LiteralMessage] = _messages(2, LiteralMessage)
    result: LiteralMessage | None = _message(3, LiteralMessage)
    platform: str = _word(4)
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
