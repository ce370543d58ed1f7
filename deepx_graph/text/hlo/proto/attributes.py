"""Attributes of HLO's instruction messages as text has them, by the names of text.

Which attributes an opcode has is said in one place, the rules of the reader (`text/hlo/reader/rules.py`); here is how a message
says each of them. What is empty is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from deepx_graph.text.hlo.proto.literals import shape_text
from deepx_graph.text.hlo.proto.schema import (
    BufferAlias,
    InstructionMessage,
    StackFrames,
)
from deepx_graph.text.hlo.proto.xla_data import (
    DOT_ALGORITHMS,
    IotaGroups,
    Sharding,
    StringMap,
)
from deepx_graph.text.hlo.reader.devices import VERSIONS
from deepx_graph.text.hlo.shapes import HLO_DTYPES
from deepx_graph.text.xla.hlo_text import AttributeFault, groups_text, ints_text, string_text
from deepx_graph.text.xla.windows import Window, window_text

Said = Callable[["Described"], str]


class Described:
    """An instruction with what its numbers name: operands, and computations."""

    def __init__(self, message: InstructionMessage, operands: Mapping[int, InstructionMessage], computations: list[str]) -> None:
        self.message, self.operands, self.computations = message, operands, computations

    def operand(self, k: int) -> InstructionMessage | None:
        numbers = self.message.operands
        return self.operands.get(numbers[k]) if k < len(numbers) else None


def _flag(name: str) -> Said:
    return lambda i: "true" if getattr(i.message, name) else ""


def _number(name: str) -> Said:
    return lambda i: str(getattr(i.message, name))


def _positive(name: str) -> Said:
    return lambda i: str(getattr(i.message, name)) if getattr(i.message, name) > 0 else ""


def _ints(name: str) -> Said:
    return lambda i: ints_text(getattr(i.message, name))


def _string(name: str) -> Said:
    return lambda i: string_text(getattr(i.message, name)) if getattr(i.message, name) else ""


def _part(message: str, name: str, optional: bool = False) -> Said:
    """A list of numbers of a message within; where it is optional, one that is empty is left out."""

    def said(i: Described) -> str:
        inner = getattr(i.message, message)
        values = getattr(inner, name) if inner is not None else []
        return ints_text(values) if inner is not None and (values or not optional) else ""

    return said


def _word(name: str, *words: str, start: int = 0) -> Said:
    """A word by its number."""

    def said(i: Described) -> str:
        return _pick(words, getattr(i.message, name) - start, name)

    return said


def _pick(words: tuple[str, ...], k: int, name: str) -> str:
    if not 0 <= k < len(words):
        raise AttributeFault(f"{name} has the unknown number {k}", ", ".join(words))
    return words[k]


def _dimensions(i: Described) -> str:
    """Collectives may have none."""
    return ints_text(i.message.dimensions) if i.message.dimensions or not _is_collective(i.message.opcode) else ""


def _is_collective(opcode: str) -> bool:
    return opcode.startswith(("all-", "reduce-scatter", "collective-"))


def _iota_dimension(i: Described) -> str:
    return str(i.message.dimensions[0]) if i.message.dimensions else "0"


def _groups(i: Described) -> str:
    if not _is_collective(i.message.opcode) and "ragged" not in i.message.opcode:
        return ""
    device_list = i.message.device_list
    if device_list is not None and device_list.iota is not None:
        return _iota(device_list.iota)
    return groups_text([g.ids for g in (device_list.groups if device_list is not None else i.message.replica_groups)])


def _iota(of: IotaGroups) -> str:
    moved = of.order != sorted(of.order)
    return f"[{of.groups},{of.per_group}]<=[{','.join(map(str, of.reshape))}]{f'T({_joined(of.order)})' if moved else ''}"


def _joined(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _window(i: Described) -> str:
    """What is missing among strides and dilations is 1."""
    if i.message.window is None:
        return ""
    dims = i.message.window.dimensions

    def each(name: str, least: int = 0) -> tuple[int, ...]:
        return tuple(getattr(d, name) or least for d in dims)

    window = Window(each("size"), each("stride", 1), each("low"), each("high"), each("base_dilation", 1),
                    each("window_dilation", 1), tuple(int(bool(d.reversal)) for d in dims))
    return window_text(window).removeprefix("window=")


def _labels(i: Described) -> str:
    c = i.message.convolution
    if c is None:
        return ""
    lhs = _array({c.input_batch: "b", c.input_feature: "f"}, c.input_spatial)
    rhs = _array({c.kernel_input: "i", c.kernel_output: "o"}, c.kernel_spatial)
    return f"{lhs}_{rhs}->{_array({c.output_batch: 'b', c.output_feature: 'f'}, c.output_spatial)}"


def _array(at: Mapping[int, str], spatial: list[int]) -> str:
    labels = {**at, **{d: str(k) for k, d in enumerate(spatial)}}
    return "".join(labels.get(d, "?") for d in range(len(spatial) + 2))


def _slices(i: Described) -> str:
    return "{" + ", ".join(f"[{s.start}:{s.limit}:{s.stride or 1}]" for s in i.message.slices) + "}" if i.message.slices or (
        i.message.opcode == "slice") else ""


def _padding(i: Described) -> str:
    if i.message.padding is None:
        return ""
    return "x".join(f"{d.low}_{d.high}_{d.interior}" for d in i.message.padding.dimensions)


def _comparison_type(i: Described) -> str:
    """Text leaves out what the operand's type implies."""
    operand = i.operand(0)
    word = shape_text(operand.shape).partition("[")[0] if operand is not None else ""
    dtype = HLO_DTYPES.get(word)
    usual = "" if dtype is None else {"int": "SIGNED", "uint": "UNSIGNED", "bool": "UNSIGNED"}.get(dtype.kind, "FLOAT")
    return "" if i.message.comparison_type == usual else i.message.comparison_type


def _algorithm(i: Described) -> str:
    if i.message.opcode == "rng-bit-generator":
        return _pick(("rng_default", "rng_three_fry", "rng_philox"), i.message.rng_algorithm, "the algorithm")
    word = _pick(DOT_ALGORITHMS, i.message.precision.algorithm if i.message.precision is not None else 0, "the algorithm")
    return f"dot_{word}" if word else ""


def _precision(i: Described) -> str:
    given = i.message.precision.operands if i.message.precision is not None else []
    words = [_pick(("default", "high", "highest"), p, "the precision") for p in given]
    return "{" + ",".join(words) + "}" if any(given) else ""


def _dot(name: str) -> Said:
    """Of a product, or of a ragged one; batches may be none."""

    def said(i: Described) -> str:
        ragged = i.message.ragged_dot
        dot = i.message.dot if ragged is None else ragged.dot
        values = getattr(dot, name) if dot is not None else []
        return ints_text(values) if values else ""

    return said


def _transpose(i: Described) -> str:
    solve = i.message.triangular_solve
    return _pick(("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), solve.transpose_a, "transpose_a") if solve else ""


def _solves(name: str) -> Said:
    """A flag of a triangular solve or of a Cholesky factorisation."""

    def said(i: Described) -> str:
        options = i.message.triangular_solve or i.message.cholesky
        return "true" if getattr(options, name, 0) else ""

    return said


def _index_vector(i: Described) -> str:
    numbers = i.message.gather or i.message.scatter
    return str(numbers.index_vector_dim) if numbers is not None else ""


def _computation(k: int) -> Said:
    return lambda i: i.computations[k] if k < len(i.computations) else ""


def _branches(two: int | None) -> Said:
    """The branches of a conditional: one of the two of a bool, or all of a number."""

    def said(i: Described) -> str:
        selector = i.operand(0)
        is_bool = selector is not None and shape_text(selector.shape).startswith("pred")
        if two is None:
            return "" if is_bool else "{" + ", ".join(i.computations) + "}"
        return i.computations[two] if is_bool and two < len(i.computations) else ""

    return said


def _called(i: Described) -> str:
    return "{" + ", ".join(i.computations) + "}" if i.computations else ""


def _constraints(i: Described) -> str:
    if not i.message.constrain_layout or i.message.opcode != "custom-call":
        return ""
    return "{" + ", ".join(map(shape_text, i.message.operand_shapes)) + "}"


def _aliases(i: Described) -> str:
    if not i.message.aliases:
        return ""
    rows = (f"{ints_text(a.output_index)}: ({a.operand}, {ints_text(a.operand_index)})" for a in i.message.aliases)
    return "{" + ", ".join(rows) + "}"


_VERSIONS = {number: word for word, number in VERSIONS.items()}

ATTRIBUTES: dict[str, Said] = {
    "algorithm": _algorithm,
    "api_version": lambda i: _VERSIONS.get(i.message.api_version, "") if i.message.api_version > 1 else "",
    "async_execution_thread": lambda i: string_text(i.message.execution_thread) if i.message.execution_thread != "main" else "",
    "batch_group_count": lambda i: str(i.message.batch_group_count) if i.message.batch_group_count > 1 else "",
    "body": _computation(0),
    "branch_computations": _branches(None),
    "called_computations": _called,
    "calls": _computation(0),
    "channel_id": _positive("channel_id"),
    "collapsed_slice_dims": _part("gather", "collapsed_slice_dims"),
    "condition": _computation(1),
    "constrain_layout": lambda i: "true" if i.message.constrain_layout and i.message.opcode != "custom-call" else "",
    "custom_call_has_side_effect": _flag("has_side_effect"),
    "custom_call_target": lambda i: string_text(i.message.custom_call_target),
    "delta": _number("delta"),
    "dim_labels": _labels,
    "dimensions": _dimensions,
    "direction": lambda i: i.message.comparison_direction,
    "distribution": _word("distribution", "rng_invalid", "rng_uniform", "rng_normal"),
    "dynamic_slice_sizes": _ints("dynamic_slice_sizes"),
    "epsilon": lambda i: str(np.float32(i.message.epsilon)),
    "exponent_bits": _number("exponent_bits"),
    "false_computation": _branches(1),
    "feature_group_count": lambda i: str(i.message.feature_group_count) if i.message.feature_group_count > 1 else "",
    "feature_index": _number("feature_index"),
    "fft_length": _ints("fft_length"),
    "fft_type": _word("fft_type", "FFT", "IFFT", "RFFT", "IRFFT"),
    "index": _number("tuple_index"),
    "index_vector_dim": _index_vector,
    "indices_are_sorted": _flag("indices_are_sorted"),
    "infeed_config": _string("infeed_config"),
    "input_batching_dims": _part("scatter", "input_batching_dims", optional=True),
    "inserted_window_dims": _part("scatter", "inserted_window_dims"),
    "iota_dimension": _iota_dimension,
    "is_composite": _flag("is_composite"),
    "is_host_transfer": _flag("is_host_transfer"),
    "is_stable": _flag("is_stable"),
    "k": _number("k"),
    "kind": lambda i: i.message.fusion_kind,
    "largest": lambda i: "true" if i.message.largest else "false",
    "left_side": _solves("left_side"),
    "lhs_batch_dims": _dot("lhs_batch_dims"),
    "lhs_contracting_dims": _dot("lhs_contracting_dims"),
    "lhs_ragged_dims": _part("ragged_dot", "lhs_ragged_dims"),
    "lower": _solves("lower"),
    "mantissa_bits": _number("mantissa_bits"),
    "offset_dims": _part("gather", "offset_dims"),
    "operand_batching_dims": _part("gather", "operand_batching_dims", optional=True),
    "operand_layout_constraints": _constraints,
    "outfeed_config": _string("outfeed_config"),
    "outfeed_shape": lambda i: shape_text(i.message.outfeed_shape) if i.message.outfeed_shape is not None else "",
    "output_to_operand_aliasing": _aliases,
    "padding": _padding,
    "replica_groups": _groups,
    "rhs_batch_dims": _dot("rhs_batch_dims"),
    "rhs_contracting_dims": _dot("rhs_contracting_dims"),
    "rhs_group_dims": _part("ragged_dot", "rhs_group_dims"),
    "scatter": _computation(1),
    "scatter_dims_to_operand_dims": _part("scatter", "scatter_dims_to_operand_dims"),
    "scatter_indices_batching_dims": _part("scatter", "scatter_indices_batching_dims", optional=True),
    "select": _computation(0),
    "slice": _slices,
    "slice_sizes": lambda i: ints_text(i.message.gather_slice_sizes) if i.message.opcode == "gather" else "",
    "source_target_pairs": lambda i: groups_text([(p.source, p.target) for p in i.message.pairs]),
    "start_index_map": _part("gather", "start_index_map"),
    "start_indices_batching_dims": _part("gather", "start_indices_batching_dims", optional=True),
    "to_apply": lambda i: "" if i.message.opcode == "custom-call" else _computation(0)(i),
    "transpose_a": _transpose,
    "true_computation": _branches(0),
    "type": _comparison_type,
    "unique_indices": _flag("unique_indices"),
    "unit_diagonal": _solves("unit_diagonal"),
    "update_window_dims": _part("scatter", "update_window_dims"),
    "use_global_device_ids": _flag("use_global_device_ids"),
    "window": _window,
}
"""How a message says each attribute that an opcode may have."""

# --- what any instruction may have ---------------------------------------------------------------------------------------


def _metadata(i: Described) -> str:
    m = i.message.metadata
    if m is None:
        return ""
    words = [f"{name}={string_text(text)}" for name, text in (("op_type", m.op_type), ("op_name", m.op_name),
                                                             ("source_file", m.source_file)) if text]
    numbers = (("source_line", m.source_line), ("stack_frame_id", m.stack_frame_id))
    words += [f"{name}={number}" for name, number in numbers if number]
    return "{" + " ".join(words) + "}" if words else ""


SHARDINGS = {0: "{replicated}", 4: "{manual}", 5: "{unknown}", 6: "{unreduced}"}


def sharding_text(s: Sharding) -> str:
    """`{devices=[2,1]<=[2]}` and the like."""
    if s.type == 2:
        return "{" + ", ".join(map(sharding_text, s.items)) + "}"
    if s.type == 1:
        return f"{{maximal device={s.devices[0] if s.devices else 0}}}"
    if s.type != 3:
        return SHARDINGS.get(s.type, "{unknown}")
    order = f"T({_joined(s.iota_order)})" if s.iota_order != sorted(s.iota_order) else ""
    devices = f"<=[{_joined(s.iota_reshape)}]{order}" if s.iota_reshape else _joined(s.devices)
    last = " last_tile_dim_replicate" if s.replicate_last else ""
    if s.last_dims:
        last = " last_tile_dims={" + ", ".join({0: "replicated", 4: "manual"}.get(t, "unreduced") for t in s.last_dims) + "}"
    return f"{{devices=[{_joined(s.dimensions)}]{devices}{last}}}"


def map_text(of: StringMap | None) -> str:
    """`{name="value",other="value"}`."""
    return "{" + ",".join(f"{e.key}={string_text(e.value)}" for e in of.entries) + "}" if of is not None and of.entries else ""


def _config(i: Described) -> str:
    """As it stands where it is JSON, else in quotes."""
    text = i.message.backend_config
    return "" if not text else text if _is_json(text) else string_text(text)


def _is_json(text: str) -> bool:
    if text[:1] != "{":
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _accuracy(i: Described) -> str:
    accuracy = i.message.accuracy
    if accuracy is None:
        return ""
    if (t := accuracy.tolerance) is not None:
        return f"{{tolerance={{atol={t.atol:g},rtol={t.rtol:g},ulps={t.ulps}}}}}"
    return "{mode=highest}" if accuracy.mode == 1 else ""


COMMON: dict[str, Said] = {
    "operand_precision": _precision,
    "sharding": lambda i: sharding_text(i.message.sharding) if i.message.sharding is not None else "",
    "frontend_attributes": lambda i: map_text(i.message.frontend_attributes),
    "result_accuracy": _accuracy,
    "metadata": _metadata,
    "backend_config": _config,
}
"""How a message says what any instruction may have, beside its predecessors."""


def aliases_text(entries: list[BufferAlias]) -> str:
    """`{ {0}: (0, {}, may-alias) }`, the results that lie where parameters lay."""
    kinds = {1: "may-alias", 2: "must-alias"}
    rows = (f"{ints_text(e.output_index)}: ({e.parameter}, {ints_text(e.parameter_index)}, {kinds.get(e.kind, 'may-alias')})"
            for e in entries)
    return "{ " + ", ".join(rows) + " }"


def tables_of(frames: StackFrames | None) -> dict[str, dict[int, str]]:
    """The tables of places as text has them, where parents count from 1 and 1 is none."""
    if frames is None:
        return {}
    locations = (f"file_name_id={at.file_name_id} function_name_id={at.function_name_id} line={at.line} column={at.column}"
                 for at in frames.locations)
    parents = (f"file_location_id={f.file_location_id} parent_frame_id={f.parent_frame_id + 1}" for f in frames.frames)
    rows: dict[str, Iterable[str]] = {
        "FileNames": map(string_text, frames.files), "FunctionNames": map(string_text, frames.functions),
        "FileLocations": (f"{{{row}}}" for row in locations), "StackFrames": (f"{{{row}}}" for row in parents),
    }  # fmt: skip
    return {table: dict(enumerate(of, 1)) for table, of in rows.items()}
