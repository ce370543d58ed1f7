"""The operations of a file of bytecode, as the syntax tree that the parser of text gives, VHLO brought to StableHLO on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import Diagnostic, LimitError, Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.stablehlo.bytecode.builtin import BUILTIN
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.container import IR, Container, OperationName, section
from deepx_graph.text.stablehlo.bytecode.decoder import EntryDecoder
from deepx_graph.text.stablehlo.bytecode.native import CHLO, MHLO, SDY, STABLEHLO
from deepx_graph.text.stablehlo.bytecode.properties import PROPERTIES
from deepx_graph.text.stablehlo.bytecode.text import UNIT, attribute_text, noted
from deepx_graph.text.stablehlo.bytecode.upgrade import upgrade
from deepx_graph.text.stablehlo.bytecode.vhlo import VHLO
from deepx_graph.text.stablehlo.notes import is_foreign
from deepx_graph.text.stablehlo.reader.rules import canonical, is_mistaken
from deepx_graph.text.stablehlo.reader.scanner import CONFIG
from deepx_graph.text.stablehlo.syntax import (
    BlockArgument,
    DialectAttribute,
    EnumWord,
    Operation,
    ParsedProgram,
    RegionBlock,
    unwrapped,
)
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.types import Type

DIALECTS = {"builtin": BUILTIN, "vhlo": VHLO, "stablehlo": STABLEHLO, "chlo": CHLO, "mhlo": MHLO, "sdy": SDY}
"""The dialects that encode attributes and types themselves."""

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _PROPERTIES = (1 << k for k in range(7))


class _Scope:
    """The values that can be named in an operation isolated from what is above it: names and types by number."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Type] | None] = []
        self.next: list[int] = []
        self.arguments = self.results = 0

    def argument(self, r: ByteReader, type: Type) -> str:
        self.arguments += 1
        return self._define(r, f"%arg{self.arguments - 1}", type)

    def define(self, r: ByteReader, types: Sequence[Type]) -> list[str]:
        """Names for the results of an operation."""
        self.results += bool(types)
        base = f"%{self.results - 1}"
        return [self._define(r, base if len(types) == 1 else f"{base}#{k}", type) for k, type in enumerate(types)]

    def _define(self, r: ByteReader, name: str, type: Type) -> str:
        if self.next[-1] >= len(self.values):
            raise r.fail("a region defines more values than it announces")
        self.values[self.next[-1]] = name, type
        self.next[-1] += 1
        return name

    def value(self, r: ByteReader) -> tuple[str, int, Type]:
        """An operand: its name, where it is named, its type."""
        at = r.at
        k = r.varint()
        found = self.values[k] if k < len(self.values) else None
        if found is None:
            raise r.fail(f"value {k} is used and not defined here", at=at)
        return found[0], at, found[1]

    def enter(self, values: int) -> None:
        """Into a region of so many values."""
        self.next.append(len(self.values))
        self.values += [None] * values

    def leave(self, values: int) -> None:
        self.next.pop()
        del self.values[len(self.values) - values :]


def parse(source: Source, options: ReadOptions, start: int = 0, end: int | None = None) -> ParsedProgram:
    """The program in the bytes of a source, or in a range of them. Raises ParseError at the byte that is wrong, LimitError for too
    much of anything.
    """
    data = source.data if source.data is not None else memoryview(b"")
    container = Container(source, data, start, len(data) if end is None else end)
    reader = _OperationReader(container, options)
    r = container.section(IR)
    found = reader.operations(r)
    r.done()
    whole, functions = unwrapped(found)
    if not functions:
        raise r.fail("it holds no function", at=r.end - 1)
    return ParsedProgram(functions, reader.decoder.aliases, whole)


class _OperationReader:
    def __init__(self, container: Container, options: ReadOptions) -> None:
        self.container, self.options = container, options
        self.decoder = EntryDecoder(container, DIALECTS, options)
        self.left = options.max_nodes
        self.depth = 0

    def operations(self, r: ByteReader) -> list[Operation]:
        """Those that stand at the top."""
        scope = _Scope()
        scope.enter(0)
        return self._block(r, scope).operations

    # --- regions

    def _block(self, r: ByteReader, scope: _Scope) -> RegionBlock:
        count, has_arguments = r.flagged()
        r.counted(count)
        args = self._arguments(r, scope) if has_arguments else []
        return RegionBlock(args, [self._operation(r, scope) for _ in range(count)])

    def _arguments(self, r: ByteReader, scope: _Scope) -> list[BlockArgument]:
        args: list[BlockArgument] = []
        for _ in range(r.count()):
            at = r.at
            index, located = r.flagged() if self.container.version >= 4 else (r.varint(), True)
            type = self.decoder.type(r, index)
            location = self.decoder.location(r) if located else ""
            args.append(BlockArgument(scope.argument(r, type), type, at, location))
        if self.container.version >= 3 and r.byte():
            self._uses(r, len(args))
        return args

    def _region(self, r: ByteReader, scope: _Scope) -> list[RegionBlock]:
        blocks = r.count()
        if not blocks:
            return []
        values = r.count()
        scope.enter(values)
        self.depth += 1
        if self.depth > self.options.max_depth:
            raise LimitError(r.fail(f"regions nest more than {self.options.max_depth} deep").diagnostics[0])
        found = [self._block(r, scope) for _ in range(blocks)]
        self.depth -= 1
        scope.leave(values)
        return found

    @staticmethod
    def _uses(r: ByteReader, values: int) -> None:
        """The order of the uses of values, which is read over."""
        for _ in range(r.count() if values > 1 else 1):
            if values > 1:
                r.varint()
            count, _ = r.flagged()
            for _ in range(r.counted(count)):
                r.varint()

    # --- operations

    def _operation(self, r: ByteReader, scope: _Scope) -> Operation:
        start = r.at
        self.left -= 1
        if self.left < 0:
            raise LimitError(Diagnostic("the module has too many operations", r.fail("").diagnostics[0].span,
                                        hint="raise --max-nodes if you trust it"))
        named = self.container.named(r, self.container.operations, "operation")
        mask = r.byte()
        op = Operation(named.name, [], start, start, location=self.decoder.location(r))
        if mask & _ATTRIBUTES:
            op.attributes = self._dictionary(r)
        if mask & _PROPERTIES:
            op.attributes |= self._properties(r, named)
        types = [self.decoder.type(r) for _ in range(r.count())] if mask & _RESULTS else []
        operands = [scope.value(r) for _ in range(r.count())] if mask & _OPERANDS else []
        if mask & _SUCCESSORS:
            raise r.fail(f"{named.name} goes on in another block, which no program of tensors does", at=start)
        if mask & _USES:
            self._uses(r, len(types))
        op.results, op.result_types, op.operands = scope.define(r, types), types, [o[:2] for o in operands]
        op.operand_types = [o[2] for o in operands]
        if mask & _REGIONS:
            op.regions = self._regions(r, scope)
        op.end = r.at
        self._finish(op, named, r)
        return op

    def _regions(self, r: ByteReader, scope: _Scope) -> list[list[RegionBlock]]:
        count, isolated = r.flagged()
        r.counted(count)
        inside = _Scope() if isolated else scope
        if isolated and self.container.version >= 2:
            number, r = section(r)
            if number != IR:
                raise r.fail("a section of operations is expected here")
            found = [self._region(r, inside) for _ in range(count)]
            r.done()
            return found
        return [self._region(r, inside) for _ in range(count)]

    def _dictionary(self, r: ByteReader) -> dict[str, Any]:
        at = r.at
        found = self.decoder.attribute(r)
        if not isinstance(found, dict):
            raise r.fail("the attributes of an operation are no dictionary", at=at)
        return dict(found)

    def _properties(self, r: ByteReader, named: OperationName) -> dict[str, Any]:
        """The inherent attributes of an operation."""
        if not named.registered:
            return self._dictionary(r)
        start, end = self.container.named(r, self.container.properties, "properties")
        p = ByteReader(r.source, r.data, start, end, f"properties of {named.name}")
        known = PROPERTIES.get(named.name)
        if known is None:
            if named.name.startswith("vhlo."):
                raise self._newer(named, r)
            if not p.left:
                return {}
            raise p.fail(f"the properties of '{named.name}' are not known here", hint="write it as a portable artifact, or as text")
        found = {name: self.decoder.optional(p) if optional else self.decoder.attribute(p) for name, optional in known.names}
        if known.segments:
            p.skip(p.left)
        p.done()
        return {name: value for name, value in found.items() if value is not None}

    def _newer(self, named: OperationName, r: ByteReader) -> Exception:
        return r.fail(f"'{named.name}' is of a newer StableHLO than is known here",
                      hint=f"the file was written by {self.container.producer}; write it for an older version of StableHLO")

    def _finish(self, op: Operation, named: OperationName, r: ByteReader) -> None:
        """Brings an operation to what the parser of text makes of it."""
        if op.name.startswith("vhlo."):
            if op.name not in PROPERTIES:
                raise self._newer(named, r)
            upgrade(op)
        else:
            op.name = canonical(op.name)
        if is_mistaken(op.name):
            raise r.fail(f"unknown operation '{op.name}'", at=op.start)
        for name, value in op.attributes.items():
            op.attributes[name] = self._plain(r, op, name, value)
        if op.name == "builtin.module":
            op.extra["symbol"] = op.attributes.pop("sym_name", "")
        if is_foreign(op.name):
            _shardy(op)

    @staticmethod
    def _plain(r: ByteReader, op: Operation, name: str, value: Any) -> Any:
        if value is UNIT:
            return True
        if isinstance(value, DialectAttribute) and "." not in name:
            return EnumWord(f"#{value.kind}{value.form}")
        try:
            return attribute_text(value) if name == CONFIG and not isinstance(value, str) else noted(name, value)
        except AttributeFault as e:
            raise r.fail(f"the attribute '{name}': {e.message}", e.expected, at=op.start) from None


def _shardy(op: Operation) -> None:
    """What the usual form of an operation of Shardy has beside attributes."""
    if op.name == "sdy.mesh":
        op.extra["symbol"] = op.attributes.pop("sym_name", "")
        op.extra["form"] = _form(op.attributes.pop("mesh", None), "#sdy.mesh")
    if op.name == "sdy.manual_computation":
        for word, kind in (("in_shardings", "#sdy.sharding_per_value"), ("out_shardings", "#sdy.sharding_per_value"),
                           ("manual_axes", "#sdy.manual_axes")):
            op.extra[word] = _form(op.attributes.get(word), kind).removeprefix("<").removesuffix(">")


def _form(value: Any, kind: str) -> str:
    return value.text.removeprefix(kind) if isinstance(value, EnumWord) else ""
