"""HLO's messages as the syntax tree that the parser of text gives: numbers become names, fields the attributes of text, and
constants stay values. Places of errors are the offsets of messages in the file.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.literal import Literal
from deepx_graph.text.common.options import ReadOptions, Recorded
from deepx_graph.text.common.protobuf import Decoder
from deepx_graph.text.common.protobuf_text import TextDecoder
from deepx_graph.text.hlo.proto.attributes import ATTRIBUTES, COMMON, Described, aliases_text, map_text, tables_of
from deepx_graph.text.hlo.proto.level import DELIMITED, level, text_kind
from deepx_graph.text.hlo.proto.literals import literals_of, shape_text
from deepx_graph.text.hlo.proto.schema import (
    NAMES,
    SCHEMA,
    Arguments,
    ComputationMessage,
    Dump,
    InstructionMessage,
    ModuleMessage,
    Snapshot,
)
from deepx_graph.text.hlo.proto.xla_data import (
    LiteralMessage,
    Shape,
)
from deepx_graph.text.hlo.reader.rules import RULES
from deepx_graph.text.hlo.shapes import ShapeError, is_plain, parse_shape
from deepx_graph.text.hlo.syntax import Computation, HloInstruction, HloProgram, Raw
from deepx_graph.text.xla.hlo_text import AttributeFault

_UNFIT = re.compile(r"[^\w.\-]")
KINDS: tuple[type[ModuleMessage | Dump | Snapshot], ...] = (ModuleMessage, Dump, Snapshot)
"""The messages by how deep the module is within them."""
TEXT_KINDS = dict(zip(("name", "hlo_module", "hlo"), KINDS, strict=True))
"""The same by the field that their text begins with."""
HEAD = 1024
"""How many leading bytes tell which message a file is."""


def parse(source: Source, options: ReadOptions) -> tuple[HloProgram, Recorded | None]:
    """The program in a binary source, or in the text form of one, and what was recorded of a run. Raises ParseError, LimitError."""
    if not source.binary:
        message = TextDecoder(source, SCHEMA, NAMES, options).whole(TEXT_KINDS[text_kind(source.text) or ""])
        module, recorded = _parts(source, message)
        if module is None or not module.computations:
            raise _error(source, 0, "the message holds no module with a computation")
        return _Reader(source, module, options).program(), recorded
    decoder = Decoder(source, SCHEMA, options)
    depth = level(bytes(decoder.wire.data[:HEAD]))
    if depth == DELIMITED:
        start, end = decoder.delimited(0)
        message = decoder.message(Dump, start, end, 0, 0)
    else:
        end = len(decoder.wire.data)
        message = decoder.whole(KINDS[depth or 0])
    if isinstance(message, Dump):
        _append(decoder, message.partitions, end)
    module, recorded = _parts(source, message)
    if module is None or not module.computations:
        raise decoder.wire.fail(0, "the message holds no module with a computation")
    return _Reader(source, module, options).program(), recorded


def _parts(source: Source, message: ModuleMessage | Dump | Snapshot) -> tuple[ModuleMessage | None, Recorded | None]:
    """The module in a message, and what was recorded of a run."""
    if isinstance(message, ModuleMessage):
        return message, None
    if isinstance(message, Dump):
        partitions = tuple(_values(source, p.values) for p in message.partitions)
        return message.module, Recorded(partitions) if partitions else None
    results = _values(source, [message.result] if message.result is not None else [])
    recorded = Recorded((_values(source, message.arguments),), results, message.platform)
    return message.dump.module if message.dump is not None else None, recorded


def _append(decoder: Decoder, partitions: list[Arguments], at: int) -> None:
    """Reads the arguments that stand behind a message: each the length of its shape, the shape, the elements."""
    data = decoder.wire.data
    for p in partitions:
        for argument in p.behind:
            end = at + argument.size
            length = int.from_bytes(data[at : at + 8], "little")
            if not 8 <= argument.size <= len(data) - at or length > argument.size - 8:
                raise decoder.wire.fail(at if at < len(data) else 0, f"an argument of {argument.size} bytes does not fit here")
            elements = at + 8 + length
            shape = decoder.message(Shape, at + 8, elements, at, 0)
            p.values.append(LiteralMessage(shape, [], [bytes(data[elements:end])], at))
            at = end


def _values(source: Source, messages: list[LiteralMessage]) -> tuple[Literal, ...]:
    found: list[Literal] = []
    for message in messages:
        try:
            found += literals_of(message)
        except AttributeFault as e:
            raise _error(source, message.at, e.message, e.expected) from None
    return tuple(found)


def _error(source: Source, at: int, message: str, expected: str | None = None) -> ParseError:
    return ParseError(Diagnostic(message, Span(source, at, at + 1), expected=expected))


class _Reader:
    def __init__(self, source: Source, module: ModuleMessage, options: ReadOptions) -> None:
        self.source, self.module = source, module
        self.left = options.max_nodes
        orders = module.schedule.entries if module.schedule is not None else []
        self.orders = {e.computation: e.sequence.instructions for e in orders if e.sequence is not None}
        taken: set[str] = set()
        self.names = {c.id: _name(c.name, c.id, taken) for c in module.computations}

    def program(self) -> HloProgram:
        m = self.module
        attributes: dict[str, Raw] = {}
        if m.schedule is not None:
            attributes["is_scheduled"] = Raw("true", m.schedule.at)
        if m.aliases is not None and m.aliases.entries:
            attributes["input_output_alias"] = Raw(aliases_text(m.aliases.entries), m.aliases.at)
        if said := map_text(m.frontend_attributes):
            attributes["frontend_attributes"] = Raw(said, m.at)
        return HloProgram(self.source, m.name, attributes, [self.computation(c) for c in m.computations], tables_of(m.frames))

    def computation(self, c: ComputationMessage) -> Computation:
        taken: set[str] = set()
        names = {i.id: _name(i.name, i.id, taken) for i in c.instructions}
        by_id = {i.id: i for i in c.instructions}
        if not c.instructions:
            raise _error(self.source, c.at, f"the computation '{c.name}' has no instructions")
        if c.root not in by_id:
            raise _error(self.source, c.at, f"the root of the computation '{c.name}' is none of its instructions")
        turn = {number: k for k, number in enumerate(self.orders.get(c.id, ()))}
        ordered = sorted(c.instructions, key=lambda i: turn.get(i.id, 0)) if turn else c.instructions
        found = [self.instruction(i, names, by_id, i.id == c.root) for i in ordered]
        return Computation(self.names[c.id], found, c.id == self.module.entry, c.at, c.at + 1)

    def instruction(self, i: InstructionMessage, names: dict[int, str], by_id: dict[int, InstructionMessage],
                    is_root: bool) -> HloInstruction:
        self.left -= 1
        if self.left < 0:
            raise LimitError(Diagnostic("the module has too many instructions", Span(self.source, i.at, i.at + 1),
                                        hint="raise --max-nodes if you trust it"))
        try:
            return self._instruction(i, names, by_id, is_root)
        except AttributeFault as e:
            raise _error(self.source, i.at, f"{i.opcode} '{i.name}': {e.message}", e.expected) from None
        except ShapeError as e:
            raise _error(self.source, i.at, f"{i.opcode} '{i.name}': {e.message}", e.expected) from None

    def _instruction(self, i: InstructionMessage, names: dict[int, str], by_id: dict[int, InstructionMessage],
                     is_root: bool) -> HloInstruction:
        shape = shape_text(i.shape)
        type, end = parse_shape(shape, 0)
        if end != len(shape):
            raise AttributeFault(f"the shape {shape} is damaged", "a shape")
        described = Described(i, by_id, [_named(self.names, k, "computation") for k in i.computations])
        rule = RULES.get(i.opcode)
        told = {name: ATTRIBUTES[name](described) for name in (rule.attributes if rule else ()) if name in ATTRIBUTES}
        told |= {name: say(described) for name, say in COMMON.items()}
        if i.predecessors:
            told["control-predecessors"] = "{" + ", ".join(_named(names, k, "instruction") for k in i.predecessors) + "}"
        payload = str(i.parameter_number) if i.opcode == "parameter" else ""
        literals = literals_of(i.literal) if i.opcode == "constant" and i.literal is not None else None
        if i.opcode == "constant" and literals is None:
            payload = "..."  # it is left out
        operands = [_named(names, k, "instruction") for k in i.operands]
        return HloInstruction(names[i.id], type, i.opcode, Raw(payload, i.at), operands,
                              {name: Raw(text, i.at) for name, text in told.items() if text}, is_root, i.at, i.at + 1,
                              shape="" if is_plain(shape) else shape, literals=literals)


def _named(names: dict[int, str], number: int, what: str) -> str:
    if number not in names:
        raise AttributeFault(f"it refers to {what} {number}, which there is none of", f"the number of one of its {what}s")
    return names[number]


def _name(name: str, number: int, taken: set[str]) -> str:
    """A name that text can say and that no other has."""
    found = _UNFIT.sub("_", name) or str(number)
    while found in taken:
        found += f".{number & 0xFFFF_FFFF}"
    taken.add(found)
    return found
