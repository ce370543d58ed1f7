"""The messages of HLO as plain data: instructions, computations, modules, snapshots; and the schema of all of them.

Only what a program means is kept. Source: https://github.com/openxla/xla, xla/service/hlo.proto, 2025.
"""

# ruff: noqa: RUF009 - each of these calls makes a field
from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.text.common.protobuf import (
    Schema,
    messages,
    reals,
    text,
    text_or_bytes,
)
from deepx_graph.text.common.protobuf_text import NamedField, TextNames
from deepx_graph.text.hlo.proto.message_fields import many, message, message_list, named, one, read_by_number, word
from deepx_graph.text.hlo.proto.xla_data import (
    ALIASES,
    API_VERSIONS,
    DISTRIBUTIONS,
    ELEMENTS,
    FFTS,
    RNGS,
    Accuracy,
    Alias,
    Cholesky,
    ConvolutionDimensions,
    DeviceList,
    DotDimensions,
    GatherDimensions,
    IotaGroups,
    LayoutMessage,
    LiteralMessage,
    MapEntry,
    OpMetadata,
    Padding,
    PaddingDimension,
    Pair,
    Precision,
    ProgramShape,
    RaggedDotDimensions,
    ReplicaGroup,
    ScatterDimensions,
    Shape,
    Sharding,
    SliceDimension,
    StringMap,
    TileMessage,
    Tolerance,
    TriangularSolve,
    WindowDimension,
    WindowMessage,
)


@dataclass(slots=True)
class InstructionMessage:
    """An instruction; operands and computations are named by numbers."""

    name: str = word(1)
    opcode: str = word(2)
    shape: Shape | None = message(3, Shape)
    metadata: OpMetadata | None = message(7, OpMetadata)
    literal: LiteralMessage | None = message(8, LiteralMessage)
    parameter_number: int = one(9)
    fusion_kind: str = word(11)
    tuple_index: int = one(13)
    dimensions: list[int] = many(14)
    window: WindowMessage | None = message(15, WindowMessage)
    convolution: ConvolutionDimensions | None = message(16, ConvolutionDimensions, name="convolution_dimension_numbers")
    slices: list[SliceDimension] = message_list(17, SliceDimension, name="slice_dimensions")
    exponent_bits: int = one(18)
    mantissa_bits: int = one(19)
    dynamic_slice_sizes: list[int] = many(20)
    padding: Padding | None = message(21, Padding, name="padding_config")
    outfeed_config: str = one(22, "", text_or_bytes)
    distribution: int = one(23, words=DISTRIBUTIONS)
    epsilon: float = one(24, 0.0, reals("f"))
    feature_index: int = one(25)
    channel_id: int = one(26)
    infeed_config: str = one(27, "", text_or_bytes)
    custom_call_target: str = word(28)
    outfeed_shape: Shape | None = message(29, Shape)
    dot: DotDimensions | None = message(30, DotDimensions, name="dot_dimension_numbers")
    fft_type: int = one(31, words=FFTS)
    fft_length: list[int] = many(32)
    gather: GatherDimensions | None = message(33, GatherDimensions, name="gather_dimension_numbers")
    gather_slice_sizes: list[int] = many(34)
    id: int = one(35)
    operands: list[int] = many(36, name="operand_ids")
    predecessors: list[int] = many(37, name="control_predecessor_ids")
    computations: list[int] = many(38, name="called_computation_ids")
    sharding: Sharding | None = message(40, Sharding)
    backend_config: str = one(43, "", text_or_bytes)
    is_host_transfer: int = one(47)
    scatter: ScatterDimensions | None = message(48, ScatterDimensions, name="scatter_dimension_numbers")
    replica_groups: list[ReplicaGroup] = message_list(49, ReplicaGroup)
    feature_group_count: int = one(50)
    precision: Precision | None = message(51, Precision, name="precision_config")
    pairs: list[Pair] = message_list(52, Pair, name="source_target_pairs")
    constrain_layout: int = one(56)
    operand_shapes: list[Shape] = message_list(57, Shape, name="operand_shapes_with_layout")
    batch_group_count: int = one(58)
    triangular_solve: TriangularSolve | None = message(59, TriangularSolve, name="triangular_solve_options")
    is_stable: int = one(60)
    cholesky: Cholesky | None = message(62, Cholesky, name="cholesky_options")
    comparison_direction: str = word(63)
    has_side_effect: int = one(65, name="custom_call_has_side_effect")
    delta: int = one(66)
    indices_are_sorted: int = one(67)
    frontend_attributes: StringMap | None = message(68, StringMap)
    unique_indices: int = one(69)
    rng_algorithm: int = one(70, words=RNGS)
    use_global_device_ids: int = one(71)
    comparison_type: str = word(72)
    aliases: list[Alias] = message_list(74, Alias, name="output_operand_aliasing")
    api_version: int = one(77, name="custom_call_api_version", words=API_VERSIONS)
    execution_thread: str = word(79, name="async_execution_thread")
    k: int = one(81)
    largest: int = one(85)
    device_list: DeviceList | None = message(87, DeviceList, name="collective_device_list")
    is_composite: int = one(89)
    ragged_dot: RaggedDotDimensions | None = message(90, RaggedDotDimensions, name="ragged_dot_dimension_numbers")
    accuracy: Accuracy | None = message(91, Accuracy, name="result_accuracy")
    at: int = 0


# --- modules ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ComputationMessage:
    """A computation, its instructions after their operands."""

    name: str = word(1)
    instructions: list[InstructionMessage] = message_list(2, InstructionMessage)
    program_shape: ProgramShape | None = message(4, ProgramShape)
    id: int = one(5)
    root: int = one(6, name="root_id")
    at: int = 0


@dataclass(slots=True)
class FileLocation:
    file_name_id: int = one(1)
    function_name_id: int = one(2)
    line: int = one(3)
    column: int = one(4)
    at: int = 0


@dataclass(slots=True)
class StackFrame:
    file_location_id: int = one(1)
    parent_frame_id: int = one(2)
    at: int = 0


@dataclass(slots=True)
class StackFrames:
    """The tables that places are told by; rows count from 1."""

    files: list[str] = many(1, text, name="file_names")
    functions: list[str] = many(2, text, name="function_names")
    locations: list[FileLocation] = message_list(3, FileLocation, name="file_locations")
    frames: list[StackFrame] = message_list(4, StackFrame, name="stack_frames")
    at: int = 0


@dataclass(slots=True)
class BufferAlias:
    output_index: list[int] = many(1, name="output_shape_index")
    parameter: int = one(2, name="parameter_number")
    parameter_index: list[int] = many(3, name="parameter_shape_index")
    kind: int = one(4, words=ALIASES)
    at: int = 0


@dataclass(slots=True)
class BufferAliases:
    entries: list[BufferAlias] = message_list(1, BufferAlias)
    at: int = 0


@dataclass(slots=True)
class Sequence:
    """Instructions in the order in which they run."""

    instructions: list[int] = many(1, name="instruction_ids")
    at: int = 0


@dataclass(slots=True)
class ScheduleEntry:
    computation: int = one(1, name="key")
    sequence: Sequence | None = message(2, Sequence, name="value")
    at: int = 0


@dataclass(slots=True)
class ScheduleMessage:
    """The orders of computations, by number."""

    entries: list[ScheduleEntry] = message_list(1, ScheduleEntry, name="sequences")
    at: int = 0


@dataclass(slots=True)
class ModuleMessage:
    """HloModuleProto."""

    name: str = word(1)
    entry_name: str = word(2, name="entry_computation_name")
    computations: list[ComputationMessage] = message_list(3, ComputationMessage)
    program_shape: ProgramShape | None = message(4, ProgramShape, name="host_program_shape")
    entry: int = one(6, name="entry_computation_id")
    schedule: ScheduleMessage | None = message(7, ScheduleMessage)
    aliases: BufferAliases | None = message(8, BufferAliases, name="input_output_alias")
    frames: StackFrames | None = message(17, StackFrames, name="stack_frame_index")
    frontend_attributes: StringMap | None = message(19, StringMap)
    at: int = 0


@dataclass(slots=True)
class ArgumentDescriptor:
    """How many bytes an argument has that stands behind the message."""

    size: int = one(2)
    at: int = 0


@dataclass(slots=True)
class Arguments:
    """What one partition was run on: constants, or how long those are that stand behind the message."""

    values: list[LiteralMessage] = message_list(1, LiteralMessage, name="arguments")
    behind: list[ArgumentDescriptor] = message_list(2, ArgumentDescriptor, name="argument_descriptors")
    at: int = 0


@dataclass(slots=True)
class Dump:
    """HloProto, and HloUnoptimizedSnapshot, which has the arguments of every partition beside the module."""

    module: ModuleMessage | None = message(1, ModuleMessage, name="hlo_module")
    partitions: list[Arguments] = message_list(2, Arguments)
    at: int = 0


@dataclass(slots=True)
class Snapshot:
    """HloSnapshot: a module, what it was run on, and what came out."""

    dump: Dump | None = message(1, Dump, name="hlo")
    arguments: list[LiteralMessage] = message_list(2, LiteralMessage)
    result: LiteralMessage | None = message(3, LiteralMessage)
    platform: str = word(4, name="execution_platform")
    at: int = 0


_KINDS: tuple[type, ...] = (
    MapEntry, StringMap, TileMessage, LayoutMessage, Shape, ProgramShape, LiteralMessage, WindowDimension, WindowMessage,
    ConvolutionDimensions,
    SliceDimension, PaddingDimension, Padding, DotDimensions, RaggedDotDimensions, GatherDimensions, ScatterDimensions,
    Precision, ReplicaGroup, Pair, IotaGroups, DeviceList, TriangularSolve, Cholesky, OpMetadata, Sharding, Alias, Tolerance,
    Accuracy, InstructionMessage, ComputationMessage, FileLocation, StackFrame, StackFrames, BufferAlias, BufferAliases,
    ModuleMessage, ArgumentDescriptor, Arguments, Dump, Snapshot, Sequence, ScheduleEntry, ScheduleMessage,
)  # fmt: skip

SCHEMA: Schema = {kind: read_by_number(kind) for kind in _KINDS} | {
    Shape: read_by_number(Shape) | {4: ("items", messages(Shape))},
    Sharding: read_by_number(Sharding) | {5: ("items", messages(Sharding))},
    LiteralMessage: read_by_number(LiteralMessage) | {10: ("items", messages(LiteralMessage)),
                                           **{number: ("elements", read) for number, read in ELEMENTS.items()}},
}
"""The fields of each message by number."""

ELEMENT_FIELDS: dict[str, int] = {
    "pred": 2, "u8": 3, "s32": 4, "s64": 5, "u32": 6, "u64": 7, "f32": 8, "f64": 9, "f16": 11, "c64": 12, "bf16": 13, "s8": 15,
    "u16": 16, "s16": 17, "c128": 18, "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29, "s1": 30, "u1": 31, "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip
"""The field of LiteralProto that the elements of each type stand in; its name is that of the type with an `s` behind it."""

NAMES: TextNames = {kind: named(kind) for kind in _KINDS} | {
    Shape: named(Shape) | {"tuple_shapes": NamedField(4)},
    Sharding: named(Sharding) | {"tuple_shardings": NamedField(5)},
    LiteralMessage: named(LiteralMessage) | {"tuple_literals": NamedField(10)} | {
        f"{word}s": NamedField(number, code={"f32": "f", "c64": "f", "f64": "d", "c128": "d"}.get(word, ""))
        for word, number in ELEMENT_FIELDS.items()},
}
"""The fields of each message by their names in the definition, as the text form of a message has them."""
