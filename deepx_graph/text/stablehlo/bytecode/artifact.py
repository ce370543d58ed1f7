"""Writing portable artifacts: a module in StableHLO's text, parsed, and each operation as the version of VHLO that it was in 1.10.

Every StableHLO from then on reads these; the format of the file is the newest. VHLO has all attributes by themselves and written
out, so that defaults are filled in here and structs taken apart, the other way round than `upgrade` does. Places are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, ParseError, Place, Source, Span, VerifyError
from deepx_graph.ir import Module
from deepx_graph.text.stablehlo.bytecode.attribute_values import BUILTIN, CODES, SHARDY, VHLO, AttributeValues
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
from deepx_graph.text.stablehlo.bytecode.encoding import listed, section, signed, varint
from deepx_graph.text.stablehlo.bytecode.properties import PROPERTIES
from deepx_graph.text.stablehlo.bytecode.vhlo import ENUMS
from deepx_graph.text.stablehlo.literals import MLIR_DTYPES, MLIR_WORDS
from deepx_graph.text.stablehlo.notes import Locations
from deepx_graph.text.stablehlo.printer.legal import STABLEHLO_ALONE
from deepx_graph.text.stablehlo.printer.module import write as write_text
from deepx_graph.text.stablehlo.reader.parser import MlirParser
from deepx_graph.text.stablehlo.reader.scanner import MlirCursor
from deepx_graph.text.stablehlo.syntax import Noted, Operation, RegionBlock, Typed
from deepx_graph.types import STATE, DType, FunctionType, TensorType, TupleType, Type

PRODUCER = "StableHLO_v1.10.0"
_SECOND = frozenset([
    "all_gather", "all_reduce", "all_to_all", "cbrt", "cosine", "dot_general", "dynamic_conv", "dynamic_gather",
    "exponential", "exponential_minus_one", "gather", "log", "log_plus_one", "logistic", "rsqrt", "scatter", "sine", "sqrt",
    "tan", "tanh",
])  # fmt: skip
"""The operations that had a second version in 1.10; all others were as at first."""
_OWN = {"func.func": "vhlo.func_v1", "func.call": "vhlo.call_v1", "func.return": "vhlo.return_v1",
        **{name: name for name in ("sdy.mesh", "sdy.sharding_constraint", "sdy.reshard")}}


def write(module: Module) -> bytes:
    """The bytes of the artifact. Raises VerifyError with what StableHLO, without CHLO, cannot express."""
    source = Source("artifact", write_text(module, STABLEHLO_ALONE))
    parser = MlirParser(source, 1 << 62)
    program = parser.program()
    return ArtifactWriter(source, Locations(program.aliases)).file(program.module, program.functions)


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


class ArtifactWriter:
    """One file."""

    def __init__(self, source: Source, locations: Locations) -> None:
        self.source, self.locations = source, locations
        self.strings, self.dialects = _Table(), _Table()
        self.attributes, self.types, self.operations, self.properties = _Table(), _Table(), _Table(), _Table()
        self._places: dict[Place, bytes] = {}
        self.dialects(BUILTIN)
        self.dialects(VHLO)

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
                encoded = dialect != SHARDY
                found += varint(self.dialects(dialect)) + listed([varint(len(data) << 1 | encoded) for _, data in entries])
        return found

    # --- operations

    def operation_head(self, name: str, mask: int, op: Operation | None, properties: bytes,
                       notes: Mapping[str, int] | None = None) -> bytes:
        """Up to the properties; `notes` are attributes that VHLO has no name for, and readers keep."""
        place = self.locations.of(op.location) if op is not None and op.location else None
        said = [varint(self.text(k)) + varint(v) for k, v in sorted((notes or {}).items())]
        return (varint(self.operations(name)) + bytes([mask]) + self.location(place)
                + (varint(self.builtin(varint(1) + listed(said))) if said else b"")
                + (varint(self.properties(properties)) if mask & 64 else b""))

    def operation(self, op: Operation, scope: _Scope) -> bytes:
        name = self.versioned(op)
        named = PROPERTIES[name].names
        values = AttributeValues(self, op)
        properties = b"".join(varint(values.attribute(word)) for word, _ in named)
        isolated = op.name == "func.func"
        notes = self.notes(op.attributes)
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

    def notes(self, attributes: Mapping[str, Any]) -> dict[str, int]:
        """What attributes say that VHLO has no name for, as far as an artifact can."""
        return {k: n for k, v in attributes.items() if (k == "role" or "." in k) and (n := self.value(v)) is not None}

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
        return self.attributes((BUILTIN, data))

    def shardy(self, text: str) -> int:
        """An attribute of Shardy: as text, which bytecode may have of any dialect's."""
        self.dialects(SHARDY)
        return self.attributes((SHARDY, text.encode() + b"\0"))

    def vhlo(self, code: int, data: bytes) -> int:
        return self.attributes((VHLO, varint(code) + data))

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
        return self.types((VHLO, self._type(type)))

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
            return self.types((VHLO, varint(1) + varint(self.types((VHLO, varint(CODES[part]))))))
        return self.types((VHLO, varint(CODES[MLIR_WORDS[dtype]])))

    # --- values of VHLO

    def word(self, kind: str, word: str) -> int:
        code, (_, names, start) = next((c, e) for c, e in ENUMS.items() if e[0] == kind)
        return self.vhlo(code, varint(names.index(word) + start))

    def array(self, items: Sequence[int]) -> int:
        return self.vhlo(1, listed([varint(i) for i in items]))

    def value(self, value: Any) -> int | None:
        """A value as it is by itself; None for what only another dialect can write."""
        match value:
            case Noted(text) if text.startswith(f"#{SHARDY}."):
                return self.shardy(text)
            case Noted(text):
                try:
                    return self.value(MlirCursor(Source("attribute", text)).attribute())
                except ParseError:
                    return None
            case bool():
                return self.vhlo(2, varint(value))
            case str():
                return self.vhlo(14, varint(self.strings(value)))
            case Typed(int(number), TensorType(dtype)) if dtype.is_integer:
                return self.number(number, MLIR_WORDS[dtype])
            case list():
                items = [self.value(v) for v in value]
                return None if None in items else self.array([i for i in items if i is not None])
            case dict():
                named = {k: n for k, v in value.items() if (n := self.value(v)) is not None}
                return self.dictionary(named) if len(named) == len(value) else None
        return None

    def dictionary(self, items: Mapping[str, int]) -> int:
        """Values by name."""
        return self.vhlo(6, listed([varint(self.vhlo(14, varint(self.strings(k)))) + varint(v) for k, v in sorted(items.items())]))

    def number(self, value: int, word: str = "i64") -> int:
        data = bytes([value & 255]) if MLIR_DTYPES[word].bits <= 8 else signed(value)
        return self.vhlo(9, varint(self.types((VHLO, varint(CODES[word])))) + data)

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

    def layout(self, values: Sequence[int]) -> int:
        """The dimensions of an array from the one that changes fastest: numbers of the type `index`."""
        element = self.types((VHLO, varint(CODES["index"])))
        type = self.types((VHLO, varint(20) + listed([signed(len(values))]) + varint(element)))
        data = np.asarray(values, np.int64).tobytes()
        return self.vhlo(15, varint(type) + varint(len(data)) + data)

    def ints(self, values: Sequence[int], word: str = "i64") -> int:
        dtype = MLIR_DTYPES[word]
        return self.tensor(np.asarray(values, dtype.np), dtype)
