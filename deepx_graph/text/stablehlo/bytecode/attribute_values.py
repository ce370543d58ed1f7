"""The attributes of operations as portable artifacts have them: all of them, by themselves and written out.

Defaults are filled in and structs taken apart, the other way round than `upgrade` does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.text.stablehlo.bytecode.encoding import double, listed, signed, varint
from deepx_graph.text.stablehlo.bytecode.text import LAYOUTS
from deepx_graph.text.stablehlo.bytecode.vhlo import TYPES
from deepx_graph.text.stablehlo.literals import MLIR_DTYPES, dense_value
from deepx_graph.text.stablehlo.syntax import Dense, Operation, Symbol, plain
from deepx_graph.types import FunctionType, TensorType, as_tensor

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.bytecode.artifact import ArtifactWriter

CODES = {word: code for code, word in TYPES.items()}
"""The codes of VHLO's types."""
BUILTIN, VHLO, SHARDY = "builtin", "vhlo", "sdy"
"""The dialects of attributes and types."""

_SYMBOLS = {"func.func": "sym_name", "sdy.mesh": "sym_name", "stablehlo.custom_call": "call_target_name"}
"""What the name with `@` in an operation's usual form is."""
_STRUCTS = ("dimension_numbers", "scatter_dimension_numbers", "dot_dimension_numbers")
_LISTS = frozenset([
    "broadcast_dimensions", "broadcast_sizes", "dimensions", "edge_padding_high", "edge_padding_low", "fft_length",
    "interior_padding", "limit_indices", "permutation", "slice_sizes", "start_indices", "strides", "window_dimensions",
    "known_expanding_dimensions", "known_nonexpanding_dimensions", "collapsed_slice_dims", "offset_dims",
    "operand_batching_dims", "start_index_map", "start_indices_batching_dims", "input_batching_dims",
    "inserted_window_dims", "scatter_dims_to_operand_dims", "scatter_indices_batching_dims", "update_window_dims",
    "lhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_batching_dimensions", "rhs_contracting_dimensions",
    "input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions",
])  # fmt: skip
_NUMBERS = {"dimension": -1, "channel_id": 0, "channel_type": 0, "index_vector_dim": 0} | dict.fromkeys([
    "all_gather_dim", "batch_dims", "batch_group_count", "concat_dimension", "dim", "feature_group_count", "feature_index",
    "input_batch_dimension", "input_feature_dimension", "iota_dimension", "kernel_input_feature_dimension",
    "kernel_output_feature_dimension", "output_batch_dimension", "output_feature_dimension", "scatter_dimension",
    "split_count", "split_dimension",
], 0)  # fmt: skip
_NARROW = frozenset(("exponent_bits", "mantissa_bits", "index"))
_FLAGS = frozenset([
    "has_dynamic_root", "has_side_effect", "indices_are_sorted", "is_host_transfer", "is_stable", "left_side", "lower",
    "unique_indices", "unit_diagonal", "use_global_device_ids",
])  # fmt: skip
_TEXTS = frozenset([
    "backend_config", "call_target_name", "callee", "infeed_config", "outfeed_config", "sym_name", "sym_visibility",
])  # fmt: skip
_EMPTY = frozenset(["called_computations", "layout", "result_tilings"])
_WORDS = {"compare_type": ("comparison_type", "NOTYPE"), "comparison_direction": ("comparison_direction", ""),
          "fft_type": ("fft_type", ""), "rng_algorithm": ("rng_algorithm", "DEFAULT"),
          "rng_distribution": ("rng_distribution", ""), "transpose_a": ("transpose", "NO_TRANSPOSE")}  # fmt: skip
_UNSET = frozenset([
    "accumulation_type", "allow_imprecise_accumulation", "lhs_component_count", "lhs_precision_type",
    "num_primitive_operations", "rhs_component_count", "rhs_precision_type",
])  # fmt: skip
_ONES = frozenset(("base_dilations", "lhs_dilation", "rhs_dilation", "window_dilations", "window_strides"))
_LABEL = re.compile(r"\[([^\]]*)\]")


class AttributeValues:
    """The attributes of one operation of StableHLO, each as VHLO has it."""

    def __init__(self, writer: ArtifactWriter, op: Operation) -> None:
        self.w, self.op = writer, op
        self.given = dict(op.attributes)
        for name in _STRUCTS:
            value = self.given.get(name)
            if isinstance(value, dict):
                self.given |= value
            elif isinstance(value, str):
                self.given |= _dimensions(value)
        handle = plain(self.given.get("channel_handle")) or {}
        self.given |= {"channel_id": handle.get("handle", 0), "channel_type": handle.get("type", 0)}
        if "symbol" in op.extra:
            self.given[_SYMBOLS.get(op.name, "callee")] = op.extra["symbol"]
        if op.name == "func.func":
            self.given |= {"arg_attrs": [a.attributes for a in op.regions[0][0].args], "res_attrs": op.extra.get("results")}
        if op.name == "sdy.mesh":
            self.given["mesh"] = f"#sdy.mesh{op.extra.get('form', '')}"

    def attribute(self, name: str) -> int:
        """Its number. Raises VerifyError for one that an artifact cannot have, or that is missing."""
        value, w = plain(self.given.get(name)), self.w
        if self.op.name.startswith(f"{SHARDY}."):
            return w.text(value) if name == "sym_name" else w.shardy(value)
        if name in _LISTS:
            return w.ints(self._ints(value))
        if name in _NUMBERS:
            return w.number(_NUMBERS[name] if value is None else value)
        if name in _NARROW:
            return w.number(value, "i32")
        if name in _FLAGS:
            return w.vhlo(2, varint(bool(value)))
        if name in _TEXTS:
            word = value.name if isinstance(value, Symbol) else "" if value is None else value
            return w.vhlo(14, varint(w.strings("" if word == "public" else word)))
        if name in _EMPTY:
            return w.array(())
        if name in LAYOUTS:
            return w.array([w.layout(self._ints(layout)) for layout in value or ()])
        if name in _WORDS:
            kind, default = _WORDS[name]
            return w.word(kind, value or default)
        if name in _UNSET:
            return w.vhlo(17, varint(w.types((VHLO, varint(CODES["none"])))))
        if name in _ONES or name == "window_reversal":
            return self._window(name, value)
        return self._other(name, value)

    def _other(self, name: str, value: Any) -> int:
        w = self.w
        match name:
            case "value" | "replica_groups" | "source_target_pairs" | "padding":
                return self._dense(name, value)
            case "function_type":
                return w.vhlo(17, varint(w.type(FunctionType(tuple(self.op.operand_types), tuple(self.op.result_types)))))
            case "arg_attrs" | "res_attrs":
                notes = [w.notes(attributes) for attributes in value or ()]
                return w.array([w.dictionary(each) for each in notes] if any(notes) else ())
            case "epsilon":
                (bits,) = struct.unpack("<i", struct.pack("<f", value))
                return w.vhlo(8, varint(w.types((VHLO, varint(CODES["f32"])))) + signed(bits))
            case "output_operand_aliases":
                return w.array([w.vhlo(10, _alias(alias)) for alias in value or ()])
            case "precision_config":
                return w.array([w.word("precision", word) for word in value or ("DEFAULT", "DEFAULT")])
            case "api_version":
                return w.vhlo(5, varint(1 if value is None else value))
            case "result_accuracy":
                mode = varint(w.word("result_accuracy_mode", "DEFAULT"))
                return w.vhlo(20, double(0.0) + double(0.0) + signed(0) + mode)
        raise w.error(self.op, f"the attribute '{name}' of {self.op.name} is not written to artifacts")

    def _ints(self, value: Any) -> list[int]:
        if isinstance(value, Dense) and isinstance(value.type, TensorType):
            return [int(n) for n in dense_value(value, value.type).array.reshape(-1)]
        return [int(n) for n in value or ()]

    def _rank(self) -> int:
        """How many dimensions a window has."""
        rank = as_tensor(self.op.operand_types[0]).rank or 0
        return rank - 2 if "convolution" in self.op.name or "conv" in self.op.name else rank

    def _window(self, name: str, value: Any) -> int:
        rank = self._rank()
        if name == "window_reversal":
            flags = np.asarray(value if value is not None else [False] * rank, np.bool_)
            return self.w.tensor(flags, MLIR_DTYPES["i1"])
        return self.w.ints([1] * rank if value is None else self._ints(value))

    def _dense(self, name: str, value: Any) -> int:
        if value is None and name == "padding":
            return self.w.tensor(np.zeros((self._rank(), 2), np.int64), MLIR_DTYPES["i64"])
        if not isinstance(value, Dense) or not isinstance(value.type, TensorType):
            raise self.w.error(self.op, f"{self.op.name} needs the constant '{name}'")
        literal = dense_value(value, value.type)
        splat = literal.splat_value
        array = literal.array if splat is None else np.asarray(splat).astype(value.type.dtype.np).reshape(1)
        return self.w.tensor(array, value.type.dtype, value.type.shape)


def _alias(alias: Mapping[str, Any]) -> bytes:
    """A result that lies where an operand does."""
    ours, its = (listed([signed(k) for k in alias.get(name) or ()]) for name in ("output_tuple_indices", "operand_tuple_indices"))
    return ours + signed(alias["operand_index"]) + its


def _dimensions(text: str) -> dict[str, Any]:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]` by the names of VHLO."""
    found: dict[str, Any] = {}
    sides = (("input", "input_batch_dimension", "input_feature_dimension", "bf"),
             ("kernel", "kernel_input_feature_dimension", "kernel_output_feature_dimension", "io"),
             ("output", "output_batch_dimension", "output_feature_dimension", "bf"))
    for (side, first, second, letters), labels in zip(sides, _LABEL.findall(text), strict=True):
        at: Mapping[str, int] = {label.strip(): k for k, label in enumerate(labels.split(","))}
        found[first], found[second] = at[letters[0]], at[letters[1]]
        found[f"{side}_spatial_dimensions"] = [at[str(k)] for k in range(len(at) - 2)]
    return found
