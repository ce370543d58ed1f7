"""Writing portable artifacts: a module in StableHLO's text, parsed, and each operation as the version of VHLO that it was in 1.10.

Every StableHLO from then on reads these; the format of the file is the newest. VHLO has all attributes by themselves and written
out, so that defaults are filled in here and structs taken apart, the other way round than `upgrade` does. Places are kept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, Place, Source, Span, VerifyError
from deepx_graph.ir import Module
from deepx_graph.text.stablehlo.bytecode.container import (
    DIALECTS,
    ENTRIES,
    IR,
    MAGIC,
    NEWEST,
    OFFSETS,
    STRINGS,
)
from deepx_graph.text.stablehlo.bytecode.container import (
    PROPERTIES as PROPERTIES_SECTION,
)
from deepx_graph.text.stablehlo.bytecode.properties import PROPERTIES
from deepx_graph.text.stablehlo.bytecode.vhlo import ENUMS, TYPES
from deepx_graph.text.stablehlo.literals import MLIR_DTYPES, dense_value
from deepx_graph.text.stablehlo.notes import Locations
from deepx_graph.text.stablehlo.printer.legal import STABLEHLO_ALONE
from deepx_graph.text.stablehlo.printer.module import write as write_text
from deepx_graph.text.stablehlo.reader.parser import MlirParser
from deepx_graph.text.stablehlo.syntax import Dense, Operation, RegionBlock, Symbol, plain
from deepx_graph.types import STATE, DType, FunctionType, TensorType, TupleType, Type, as_tensor

PRODUCER = "StableHLO_v1.10.0"
_SECOND = frozenset([
    "all_gather", "all_reduce", "all_to_all", "cbrt", "cosine", "dot_general", "dynamic_conv", "dynamic_gather",
    "exponential", "exponential_minus_one", "gather", "log", "log_plus_one", "logistic", "rsqrt", "scatter", "sine", "sqrt",
    "tan", "tanh",
])  # fmt: skip
"""The operations that had a second version in 1.10; all others were as at first."""
_OWN = {"func.func": "vhlo.func_v1", "func.call": "vhlo.call_v1", "func.return": "vhlo.return_v1"}
_CODES = {word: code for code, word in TYPES.items()}
_BUILTIN, _VHLO = "builtin", "vhlo"


def write(module: Module) -> bytes:
    """The bytes of the artifact. Raises VerifyError with what StableHLO, without CHLO, cannot express."""
    source = Source("artifact", write_text(module, STABLEHLO_ALONE))
    parser = MlirParser(source, 1 << 62)
    program = parser.program()
    return _Writer(source, Locations(program.aliases)).file(program.module, program.functions)


# --- numbers ------------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A number of 64 bits; as many zeros end its first byte as bytes follow."""
    length = max(1, -(-value.bit_length() // 7))
    if length > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (length - 1)).to_bytes(length, "little")


def signed(value: int) -> bytes:
    return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def listed(parts: Sequence[bytes]) -> bytes:
    """A list: how many, then each."""
    return varint(len(parts)) + b"".join(parts)


def section(number: int, data: bytes) -> bytes:
    return bytes([number]) + varint(len(data)) + data


def _double(value: float) -> bytes:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return signed(bits)


class _Table:
    """Things by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))


class _Scope:
    """The values of a function by name, numbered as they are defined."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.next = self.used = 0

    def define(self, name: str) -> None:
        self.numbers[name] = self.next
        self.next += 1


class _Writer:
    """One file."""

    def __init__(self, source: Source, locations: Locations) -> None:
        self.source, self.locations = source, locations
        self.strings, self.dialects = _Table(), _Table()
        self.attributes, self.types, self.operations, self.properties = _Table(), _Table(), _Table(), _Table()
        self._places: dict[Place, bytes] = {}
        self.dialects(_BUILTIN)
        self.dialects(_VHLO)

    # --- the file

    def file(self, module: Operation | None, functions: Sequence[Operation]) -> bytes:
        name = module.extra.get("symbol", "") if module else ""
        stated = varint(self.text(name) << 1 | 1) if name else varint(0)
        mask = 16 | 64
        body = self.operation_head("builtin.module", mask, None, stated + varint(0))
        inner = self.regions([[RegionBlock([], list(functions))]], _Scope())
        ir = varint(1 << 1) + body + varint(1 << 1 | 1) + section(IR, inner)
        sections = [
            section(DIALECTS, self._dialect_data()),
            section(OFFSETS, varint(len(self.attributes.numbers)) + varint(len(self.types.numbers)) + self._offsets()),
            section(ENTRIES, b"".join(data for t in (self.attributes, self.types) for _, data in t.numbers)),
            section(IR, ir),
            section(PROPERTIES_SECTION, listed([varint(len(p)) + p for p in self.properties.numbers])),
        ]  # fmt: skip
        words = [word.encode() + b"\0" for word in self.strings.numbers]
        strings = varint(len(words)) + b"".join(varint(len(w)) for w in reversed(words)) + b"".join(words)
        return MAGIC + varint(NEWEST) + PRODUCER.encode() + b"\0" + b"".join([section(STRINGS, strings), *sections])

    def _dialect_data(self) -> bytes:
        dialects = listed([varint(self.strings(name) << 1) for name in self.dialects.numbers])
        data = dialects + varint(len(self.operations.numbers))
        for dialect, names in groupby(self.operations.numbers, key=lambda name: name.partition(".")[0]):
            words = [varint(self.strings(name.partition(".")[2]) << 1 | 1) for name in names]
            data += varint(self.dialects(dialect)) + listed(words)
        return data

    def _offsets(self) -> bytes:
        found = b""
        for table in (self.attributes, self.types):
            for dialect, entries in groupby(table.numbers, key=lambda entry: entry[0]):
                found += varint(self.dialects(dialect)) + listed([varint(len(data) << 1 | 1) for _, data in entries])
        return found

    # --- operations

    def operation_head(self, name: str, mask: int, op: Operation | None, properties: bytes,
                       notes: Mapping[str, str] | None = None) -> bytes:
        """Up to the properties; `notes` are strings that VHLO has no attribute for, and readers keep."""
        place = self.locations.of(op.location) if op is not None and op.location else None
        said = [varint(self.text(k)) + varint(self.vhlo(14, varint(self.strings(v)))) for k, v in sorted((notes or {}).items())]
        return (varint(self.operations(name)) + bytes([mask]) + self.location(place)
                + (varint(self.builtin(varint(1) + listed(said))) if said else b"")
                + (varint(self.properties(properties)) if mask & 64 else b""))

    def operation(self, op: Operation, scope: _Scope) -> bytes:
        name = self.versioned(op)
        named = PROPERTIES[name].names
        values = _Values(self, op)
        properties = b"".join(varint(values.attribute(word)) for word, _ in named)
        isolated = op.name == "func.func"
        notes = {k: v for k, v in op.attributes.items() if isinstance(v, str) and (k == "role" or "." in k)}
        mask = bool(notes) | 2 * bool(op.results) | 4 * bool(op.operands) | 16 * bool(op.regions) | 64 * bool(named)
        data = self.operation_head(name, mask, op, properties, notes)
        if op.results:
            data += listed([varint(self.type(t)) for t in op.result_types])
        if op.operands:
            data += listed([varint(self._number(op, scope, operand)) for operand, _ in op.operands])
        for result in op.results:
            scope.define(result)
        if op.regions:
            data += varint(len(op.regions) << 1 | isolated)
            inner = self.regions(op.regions, _Scope() if isolated else scope)
            data += section(IR, inner) if isolated else inner
        return data

    def _number(self, op: Operation, scope: _Scope, operand: str) -> int:
        found = scope.numbers.get(operand)
        if found is None and operand.endswith("#0"):
            found = scope.numbers.get(operand[:-2])
        if found is None:
            raise self.error(op, f"the value '{operand}' is not known")
        return found

    def versioned(self, op: Operation) -> str:
        """The operation's name in VHLO."""
        dialect, _, word = op.name.partition(".")
        name = _OWN.get(op.name) or f"vhlo.{word}_v{1 + (word in _SECOND)}"
        if name not in PROPERTIES or (dialect != "stablehlo" and op.name not in _OWN):
            raise self.error(op, f"a portable artifact has no '{op.name}'")
        return name

    def error(self, op: Operation, message: str) -> VerifyError:
        return VerifyError(Diagnostic(message, Span(self.source, op.start, op.end)))

    def regions(self, regions: Sequence[Sequence[RegionBlock]], scope: _Scope) -> bytes:
        return b"".join(self._region(region, scope) for region in regions)

    def _region(self, region: Sequence[RegionBlock], scope: _Scope) -> bytes:
        (block,) = region
        values = len(block.args) + sum(len(op.results) for op in block.operations)
        outer, scope.next = scope.next, scope.used
        scope.used += values
        data = varint(1) + varint(values) + varint(len(block.operations) << 1 | bool(block.args))
        if block.args:
            data += listed([varint(self.type(a.type) << 1) for a in block.args]) + b"\0"
        for arg in block.args:
            scope.define(arg.name)
        data += b"".join(self.operation(op, scope) for op in block.operations)
        scope.used, scope.next = scope.used - values, outer
        return data

    # --- entries

    def builtin(self, data: bytes) -> int:
        return self.attributes((_BUILTIN, data))

    def vhlo(self, code: int, data: bytes) -> int:
        return self.attributes((_VHLO, varint(code) + data))

    def location(self, place: Place | None) -> bytes:
        """The number of a location: a line, in a function, called from others, under the framework's name."""
        if place is None:
            return varint(self.builtin(varint(15)))
        if place not in self._places:
            inner = self._line(place) if place.file else None
            if place.label:
                inner = self._under(place.label, inner)
            self._places[place] = self.location(None) if inner is None else varint(inner)
        return self._places[place]

    def _line(self, place: Place) -> int:
        found = self.builtin(varint(11) + varint(self.text(place.file)) + varint(place.line) + varint(place.column))
        if place.function:
            found = self._under(place.function, found)
        if place.caller is None or not place.caller.file:
            return found
        return self.builtin(varint(10) + varint(found) + varint(self._line(place.caller)))

    def _under(self, name: str, inner: int | None) -> int:
        child = varint(inner) if inner is not None else self.location(None)
        return self.builtin(varint(14) + varint(self.text(name)) + child)

    def text(self, word: str) -> int:
        """A string of the builtin dialect."""
        return self.builtin(varint(2) + varint(self.strings(word)))

    def type(self, type: Type) -> int:
        return self.types((_VHLO, self._type(type)))

    def _type(self, type: Type) -> bytes:
        match type:
            case TensorType(dtype, dims) if dims is not None:
                sizes = [signed(d if isinstance(d, int) else -(1 << 63)) for d in dims]
                return varint(20) + listed(sizes) + varint(self.element(dtype))
            case TupleType(items):
                return varint(23) + listed([varint(self.type(t)) for t in items])
            case FunctionType(params, results):
                both = (listed([varint(self.type(t)) for t in types]) for types in (params, results))
                return varint(8) + b"".join(both)
        if type == STATE:
            return varint(22)
        raise VerifyError(f"a portable artifact has no values of type {type}")

    def element(self, dtype: DType) -> int:
        """An element type."""
        if dtype.kind == "complex":
            part = "f32" if dtype.bits == 64 else "f64"
            return self.types((_VHLO, varint(1) + varint(self.types((_VHLO, varint(_CODES[part]))))))
        word = next(w for w, d in MLIR_DTYPES.items() if d is dtype)
        return self.types((_VHLO, varint(_CODES[word])))

    # --- values of VHLO

    def word(self, kind: str, word: str) -> int:
        code, (_, names, start) = next((c, e) for c, e in ENUMS.items() if e[0] == kind)
        return self.vhlo(code, varint(names.index(word) + start))

    def array(self, items: Sequence[int]) -> int:
        return self.vhlo(1, listed([varint(i) for i in items]))

    def number(self, value: int, word: str = "i64") -> int:
        data = bytes([value & 255]) if word == "i8" else signed(value)
        return self.vhlo(9, varint(self.types((_VHLO, varint(_CODES[word])))) + data)

    def tensor(self, array: np.ndarray[Any, Any], dtype: DType, shape: Sequence[int] | None = None) -> int:
        """A constant; one whose elements are all equal is one element."""
        type = TensorType(dtype, tuple(array.shape if shape is None else shape))
        flat = np.ascontiguousarray(array).reshape(-1)
        if dtype.kind == "bool":
            one = b"\xff" if flat.size and flat[0] else b"\0"
            data = one if flat.size == 1 else np.packbits(flat, bitorder="little").tobytes()
        else:
            data = flat.astype(np.int8).tobytes() if dtype.is_integer and dtype.bits < 8 else flat.tobytes()
        return self.vhlo(15, varint(self.type(type)) + varint(len(data)) + data)

    def ints(self, values: Sequence[int], word: str = "i64") -> int:
        dtype = MLIR_DTYPES[word]
        return self.tensor(np.asarray(values, dtype.np), dtype)


# --- attributes of an operation -----------------------------------------------------------------------------------------

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
_EMPTY = frozenset([
    "arg_attrs", "called_computations", "layout", "operand_layouts", "output_operand_aliases", "res_attrs",
    "result_layouts", "result_tilings",
])  # fmt: skip
_WORDS = {"compare_type": ("comparison_type", "NOTYPE"), "comparison_direction": ("comparison_direction", ""),
          "fft_type": ("fft_type", ""), "rng_algorithm": ("rng_algorithm", "DEFAULT"),
          "rng_distribution": ("rng_distribution", ""), "transpose_a": ("transpose", "NO_TRANSPOSE")}  # fmt: skip
_UNSET = frozenset([
    "accumulation_type", "allow_imprecise_accumulation", "lhs_component_count", "lhs_precision_type",
    "num_primitive_operations", "rhs_component_count", "rhs_precision_type",
])  # fmt: skip
_ONES = frozenset(("base_dilations", "lhs_dilation", "rhs_dilation", "window_dilations", "window_strides"))
_LABEL = re.compile(r"\[([^\]]*)\]")


class _Values:
    """The attributes of one operation of StableHLO, each as VHLO has it."""

    def __init__(self, writer: _Writer, op: Operation) -> None:
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
            self.given["sym_name" if op.name == "func.func" else "callee"] = op.extra["symbol"]

    def attribute(self, name: str) -> int:
        """Its number. Raises VerifyError for one that an artifact cannot have, or that is missing."""
        value, w = plain(self.given.get(name)), self.w
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
        if name in _WORDS:
            kind, default = _WORDS[name]
            return w.word(kind, value or default)
        if name in _UNSET:
            return w.vhlo(17, varint(w.types((_VHLO, varint(_CODES["none"])))))
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
            case "epsilon":
                (bits,) = struct.unpack("<i", struct.pack("<f", value))
                return w.vhlo(8, varint(w.types((_VHLO, varint(_CODES["f32"])))) + signed(bits))
            case "precision_config":
                return w.array([w.word("precision", word) for word in value or ("DEFAULT", "DEFAULT")])
            case "api_version":
                return w.vhlo(5, varint(1 if value is None else value))
            case "result_accuracy":
                mode = varint(w.word("result_accuracy_mode", "DEFAULT"))
                return w.vhlo(20, _double(0.0) + _double(0.0) + signed(0) + mode)
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
