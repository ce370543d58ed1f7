"""Attributes of HLO text as fields of the messages of instructions: what `attributes` says, the other way round.

Values are as our own printer writes them, or as texts that were read had them. Raises AttributeFault for what no message holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deepx_graph.text.hlo.proto.attributes import SHARDINGS
from deepx_graph.text.hlo.proto.literals import shape_message
from deepx_graph.text.hlo.proto.schema import (
    BufferAlias,
    BufferAliases,
    FileLocation,
    InstructionMessage,
    StackFrame,
    StackFrames,
)
from deepx_graph.text.hlo.proto.xla_data import (
    DOT_ALGORITHMS,
    Accuracy,
    Alias,
    Cholesky,
    ConvolutionDimensions,
    DeviceList,
    DotDimensions,
    GatherDimensions,
    IotaGroups,
    MapEntry,
    OpMetadata,
    Padding,
    PaddingDimension,
    Pair,
    Precision,
    RaggedDotDimensions,
    ReplicaGroup,
    ScatterDimensions,
    Sharding,
    SliceDimension,
    StringMap,
    Tolerance,
    TriangularSolve,
    WindowDimension,
    WindowMessage,
)
from deepx_graph.text.hlo.reader.devices import VERSIONS
from deepx_graph.text.xla.hlo_text import AttributeFault, parse_groups, parse_ints, parse_string
from deepx_graph.text.xla.windows import parse_padding, parse_slices, parse_window

Put = Callable[[InstructionMessage, str], None]
"""Puts the text of an attribute into a message."""

CALLED = ("calls", "to_apply", "called_computations", "body", "condition", "true_computation", "false_computation",
          "branch_computations", "select", "scatter")  # fmt: skip
"""Attributes that name computations, in the order in which a message has these."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_ENTRY = re.compile(rf"([\w.\-/]+)\s*=\s*({_TEXT}|[^,\s{{}}]+)")
_NUMBER = re.compile(r"(\w+)=([\w.+\-]+)")
_ALIAS = re.compile(r"(\{[\d,\s]*\})\s*:\s*\(\s*(\d+)\s*,\s*(\{[\d,\s]*\})\s*(?:,\s*([\w\-]+)\s*)?\)")
_IOTA = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))")


def _flag(name: str) -> Put:
    return lambda i, text: setattr(i, name, int(text == "true"))


def _number(name: str) -> Put:
    return lambda i, text: setattr(i, name, int(text))


def _ints(name: str) -> Put:
    return lambda i, text: setattr(i, name, list(parse_ints(text)))


def _string(name: str) -> Put:
    return lambda i, text: setattr(i, name, parse_string(text))


def _word(name: str, *words: str) -> Put:
    """A word as its number."""
    return lambda i, text: setattr(i, name, _place(words, text))


def _place(words: tuple[str, ...], text: str) -> int:
    if text not in words:
        raise AttributeFault(f"'{text}' has no number", ", ".join(w for w in words if w))
    return words.index(text)


def _inner(i: Any, name: str, kind: type) -> Any:
    """The message within, made where it is missing."""
    if getattr(i, name) is None:
        setattr(i, name, kind())
    return getattr(i, name)


def _part(message: str, kind: type, name: str) -> Put:
    """A list of numbers of a message within."""
    return lambda i, text: setattr(_inner(i, message, kind), name, list(parse_ints(text)))


def _dot(name: str) -> Put:
    def put(i: InstructionMessage, text: str) -> None:
        of = _inner(i, "ragged_dot", RaggedDotDimensions) if i.opcode == "ragged-dot" else i
        setattr(_inner(of, "dot", DotDimensions), name, list(parse_ints(text)))

    return put


def _solve(name: str) -> Put:
    def put(i: InstructionMessage, text: str) -> None:
        of = _inner(i, "cholesky", Cholesky) if i.opcode == "cholesky" else _inner(i, "triangular_solve", TriangularSolve)
        setattr(of, name, int(text == "true"))

    return put


def _transpose(i: InstructionMessage, text: str) -> None:
    words = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    _inner(i, "triangular_solve", TriangularSolve).transpose_a = _place(words, text)


def _index_vector(i: InstructionMessage, text: str) -> None:
    of = _inner(i, "gather", GatherDimensions) if i.opcode == "gather" else _inner(i, "scatter", ScatterDimensions)
    of.index_vector_dim = int(text)


def _slices(i: InstructionMessage, text: str) -> None:
    i.slices = [SliceDimension(*row) for row in parse_slices(text)]


def _padding(i: InstructionMessage, text: str) -> None:
    i.padding = Padding([PaddingDimension(*row) for row in parse_padding(text)])


def _window(i: InstructionMessage, text: str) -> None:
    w = parse_window(text)
    rows = zip(w.size, w.stride, w.low, w.high, w.rhs_dilate, w.lhs_dilate, w.rhs_reversal, strict=True)
    i.window = WindowMessage([WindowDimension(*row) for row in rows])


def _labels(i: InstructionMessage, text: str) -> None:
    """`b01f_01io->b01f`."""
    arrays = re.split(r"_|->", text)
    (b, f), (o, k), (ob, of) = ([array.index(letter) for letter in letters]
                                for array, letters in zip(arrays, ("bf", "oi", "bf"), strict=True))
    spatial = [[array.index(str(d)) for d in range(len(array) - 2)] for array in arrays]
    i.convolution = ConvolutionDimensions(b, f, spatial[0], k, o, spatial[1], ob, of, spatial[2])


def _algorithm(i: InstructionMessage, text: str) -> None:
    if i.opcode == "rng-bit-generator":
        i.rng_algorithm = _place(("rng_default", "rng_three_fry", "rng_philox"), text)
    else:
        _inner(i, "precision", Precision).algorithm = _place(DOT_ALGORITHMS, text.removeprefix("dot_"))


def _precision(i: InstructionMessage, text: str) -> None:
    words = [word.strip() for word in text.strip("{}").split(",") if word.strip()]
    _inner(i, "precision", Precision).operands = [_place(("default", "high", "highest"), word) for word in words]


def _groups(i: InstructionMessage, text: str) -> None:
    """As a list of devices, and groups that are written out also where they stood before there were such lists."""
    if found := _IOTA.fullmatch(text):
        reshape = list(parse_ints(found[3]))
        order = list(parse_ints(found[4])) if found[4] else list(range(len(reshape)))
        i.device_list = DeviceList(iota=IotaGroups(int(found[1]), int(found[2]), reshape, order))
        return
    i.replica_groups = [ReplicaGroup(list(g)) for g in parse_groups(text)]
    i.device_list = DeviceList(i.replica_groups)


def _constraints(i: InstructionMessage, text: str) -> None:
    i.constrain_layout = 1
    i.operand_shapes = shape_message(f"({text.strip()[1:-1]})").items


def _aliases(i: InstructionMessage, text: str) -> None:
    i.aliases = [Alias(list(parse_ints(a[1])), int(a[2]), list(parse_ints(a[3]))) for a in _ALIAS.finditer(text)]


def _metadata(i: InstructionMessage, text: str) -> None:
    said = {key: parse_string(value) for key, value in _ENTRY.findall(text)}
    i.metadata = OpMetadata(said.get("op_type", ""), said.get("op_name", ""), said.get("source_file", ""),
                            int(said.get("source_line", 0)), int(said.get("stack_frame_id", 0)))


def _accuracy(i: InstructionMessage, text: str) -> None:
    said = dict(_NUMBER.findall(text))
    if "tolerance" in text:
        i.accuracy = Accuracy(0, Tolerance(float(said.get("atol", 0)), float(said.get("rtol", 0)), int(said.get("ulps", 0))))
    else:
        i.accuracy = Accuracy(_place(("default", "highest"), said.get("mode", "default").lower()))


def sharding_message(text: str) -> Sharding:
    """`{devices=[2,1]<=[2]}`, `{replicated}`, or a tuple of such."""
    inner = text.strip()[1:-1].strip()
    if inner.startswith("{"):
        return Sharding(2, items=[sharding_message(part) for part in re.findall(r"\{(?:[^{}]|\{[^{}]*\})*\}", inner)])
    if found := re.fullmatch(r"maximal device=(\d+)", inner):
        return Sharding(1, devices=[int(found[1])])
    if f"{{{inner}}}" in SHARDINGS.values():
        return Sharding(next(number for number, word in SHARDINGS.items() if word == f"{{{inner}}}"))
    tiles = _TILES.match(inner)
    if tiles is None:
        raise AttributeFault(f"the sharding {text} is not written", "{replicated}, {maximal device=0} or {devices=[...]...}")
    made = Sharding(3, list(parse_ints(tiles[1])), list(parse_ints(tiles[4] or "")))
    if tiles[2]:
        made.iota_reshape = list(parse_ints(tiles[2]))
        made.iota_order = list(parse_ints(tiles[3])) if tiles[3] else list(range(len(made.iota_reshape)))
    made.replicate_last = int("last_tile_dim_replicate" in inner)
    if last := re.search(r"last_tile_dims=\{([^}]*)\}", inner):
        kinds = {"replicated": 0, "manual": 4, "unreduced": 6}
        made.last_dims = [kinds[word.strip()] for word in last[1].split(",")]
    return made


def map_message(text: str) -> StringMap:
    """`{name="value"}`."""
    return StringMap([MapEntry(key, parse_string(value)) for key, value in _ENTRY.findall(text)])


def _sharding(i: InstructionMessage, text: str) -> None:
    i.sharding = sharding_message(text)


def _frontend(i: InstructionMessage, text: str) -> None:
    i.frontend_attributes = map_message(text)


def _outfeed_shape(i: InstructionMessage, text: str) -> None:
    i.outfeed_shape = shape_message(text)


def _pairs(i: InstructionMessage, text: str) -> None:
    i.pairs = [Pair(*pair) for pair in parse_groups(text)]


def _version(i: InstructionMessage, text: str) -> None:
    i.api_version = VERSIONS.get(text, 0)


def _epsilon(i: InstructionMessage, text: str) -> None:
    i.epsilon = float(text)


PUT: dict[str, Put] = {
    "algorithm": _algorithm,
    "api_version": _version,
    "async_execution_thread": _string("execution_thread"),
    "backend_config": _string("backend_config"),
    "batch_group_count": _number("batch_group_count"),
    "channel_id": _number("channel_id"),
    "collapsed_slice_dims": _part("gather", GatherDimensions, "collapsed_slice_dims"),
    "constrain_layout": _flag("constrain_layout"),
    "custom_call_has_side_effect": _flag("has_side_effect"),
    "custom_call_target": _string("custom_call_target"),
    "delta": _number("delta"),
    "dim_labels": _labels,
    "dimensions": _ints("dimensions"),
    "direction": _string("comparison_direction"),
    "distribution": _word("distribution", "rng_invalid", "rng_uniform", "rng_normal"),
    "dynamic_slice_sizes": _ints("dynamic_slice_sizes"),
    "epsilon": _epsilon,
    "exponent_bits": _number("exponent_bits"),
    "feature_group_count": _number("feature_group_count"),
    "feature_index": _number("feature_index"),
    "fft_length": _ints("fft_length"),
    "fft_type": _word("fft_type", "FFT", "IFFT", "RFFT", "IRFFT"),
    "frontend_attributes": _frontend,
    "index": _number("tuple_index"),
    "index_vector_dim": _index_vector,
    "indices_are_sorted": _flag("indices_are_sorted"),
    "infeed_config": _string("infeed_config"),
    "input_batching_dims": _part("scatter", ScatterDimensions, "input_batching_dims"),
    "inserted_window_dims": _part("scatter", ScatterDimensions, "inserted_window_dims"),
    "iota_dimension": _ints("dimensions"),
    "is_composite": _flag("is_composite"),
    "is_host_transfer": _flag("is_host_transfer"),
    "is_stable": _flag("is_stable"),
    "k": _number("k"),
    "kind": _string("fusion_kind"),
    "largest": _flag("largest"),
    "left_side": _solve("left_side"),
    "lhs_batch_dims": _dot("lhs_batch_dims"),
    "lhs_contracting_dims": _dot("lhs_contracting_dims"),
    "lhs_ragged_dims": _part("ragged_dot", RaggedDotDimensions, "lhs_ragged_dims"),
    "lower": _solve("lower"),
    "mantissa_bits": _number("mantissa_bits"),
    "metadata": _metadata,
    "offset_dims": _part("gather", GatherDimensions, "offset_dims"),
    "operand_batching_dims": _part("gather", GatherDimensions, "operand_batching_dims"),
    "operand_layout_constraints": _constraints,
    "operand_precision": _precision,
    "outfeed_config": _string("outfeed_config"),
    "outfeed_shape": _outfeed_shape,
    "output_to_operand_aliasing": _aliases,
    "padding": _padding,
    "replica_groups": _groups,
    "result_accuracy": _accuracy,
    "rhs_batch_dims": _dot("rhs_batch_dims"),
    "rhs_contracting_dims": _dot("rhs_contracting_dims"),
    "rhs_group_dims": _part("ragged_dot", RaggedDotDimensions, "rhs_group_dims"),
    "scatter_dims_to_operand_dims": _part("scatter", ScatterDimensions, "scatter_dims_to_operand_dims"),
    "scatter_indices_batching_dims": _part("scatter", ScatterDimensions, "scatter_indices_batching_dims"),
    "sharding": _sharding,
    "slice": _slices,
    "slice_sizes": _ints("gather_slice_sizes"),
    "source_target_pairs": _pairs,
    "start_index_map": _part("gather", GatherDimensions, "start_index_map"),
    "start_indices_batching_dims": _part("gather", GatherDimensions, "start_indices_batching_dims"),
    "transpose_a": _transpose,
    "type": _string("comparison_type"),
    "unique_indices": _flag("unique_indices"),
    "unit_diagonal": _solve("unit_diagonal"),
    "update_window_dims": _part("scatter", ScatterDimensions, "update_window_dims"),
    "use_global_device_ids": _flag("use_global_device_ids"),
    "window": _window,
}  # fmt: skip
"""Where each attribute goes that names no computation."""

REQUIRED: dict[str, tuple[str, type]] = {
    "dot": ("dot", DotDimensions), "gather": ("gather", GatherDimensions), "scatter": ("scatter", ScatterDimensions),
    "convolution": ("window", WindowMessage), "reduce-window": ("window", WindowMessage),
    "select-and-scatter": ("window", WindowMessage), "pad": ("padding", Padding), "cholesky": ("cholesky", Cholesky),
    "triangular-solve": ("triangular_solve", TriangularSolve), "ragged-dot": ("ragged_dot", RaggedDotDimensions),
}  # fmt: skip
"""The message that an instruction of each opcode has, be it empty: XLA does not read it without."""

# --- modules ------------------------------------------------------------------------------------------------------------


def aliases_message(text: str) -> BufferAliases:
    """`{ {0}: (0, {}, may-alias) }`."""
    kinds = {"must-alias": 2}
    return BufferAliases([BufferAlias(list(parse_ints(a[1])), int(a[2]), list(parse_ints(a[3])), kinds.get(a[4] or "", 1))
                          for a in _ALIAS.finditer(text)])


def frames_message(tables: dict[str, dict[int, str]]) -> StackFrames | None:
    """The tables of places, whose parents count from 1 in text, 1 being none."""
    if not tables:
        return None

    def rows(table: str, *names: str) -> list[list[int]]:
        said = ({key: int(value) for key, value in _NUMBER.findall(row)} for row in tables.get(table, {}).values())
        return [[row.get(name, 0) for name in names] for row in said]

    locations = rows("FileLocations", "file_name_id", "function_name_id", "line", "column")
    frames = rows("StackFrames", "file_location_id", "parent_frame_id")
    return StackFrames([parse_string(t) for t in tables.get("FileNames", {}).values()],
                       [parse_string(t) for t in tables.get("FunctionNames", {}).values()],
                       [FileLocation(*row) for row in locations], [StackFrame(at, max(up - 1, 0)) for at, up in frames])
