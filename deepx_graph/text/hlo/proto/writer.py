"""Writing HLO as a protocol buffer: a module as the printer of text says it, each instruction as its message.

The message is an HloModuleProto, as XLA's `as_serialized_hlo_module_proto` gives it. Constants go from the graph to the bytes
without becoming text. What the notes of an instruction say beyond the schema, and does not change what it computes, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, Source, VerifyError
from deepx_graph.ir import Module
from deepx_graph.literal import Array, Literal
from deepx_graph.text.common.protobuf_writer import encode
from deepx_graph.text.hlo.notes import NOTED
from deepx_graph.text.hlo.printer.module import HloPrinter
from deepx_graph.text.hlo.proto.fields import CALLED, PUT, REQUIRED, aliases_message, frames_message, map_message
from deepx_graph.text.hlo.proto.literals import TOKEN, TUPLE, literal_message, shape_message
from deepx_graph.text.hlo.proto.schema import (
    SCHEMA,
    ComputationMessage,
    Dump,
    InstructionMessage,
    ModuleMessage,
    ScheduleEntry,
    ScheduleMessage,
    Snapshot,
)
from deepx_graph.text.hlo.proto.schema import (
    Sequence as Order,
)
from deepx_graph.text.hlo.proto.xla_data import (
    LiteralMessage,
    ProgramShape,
)
from deepx_graph.text.hlo.reader.parser import HloParser
from deepx_graph.text.hlo.shapes import type_text
from deepx_graph.text.hlo.syntax import Computation, HloInstruction, HloProgram
from deepx_graph.text.xla.hlo_text import AttributeFault, parse_names

_SPACE = 32
"""Numbers of instructions have that of their computation above so many bits."""


def write(module: Module) -> bytes:
    """The bytes of the message. Raises VerifyError for what HLO cannot express."""
    return _bytes(_message(module))


def write_snapshot(module: Module, arguments: Sequence[Array], results: Sequence[Array]) -> bytes:
    """The bytes of an HloSnapshot: a module, the arrays that it was run on, leaf by leaf, and those that came out.

    Raises VerifyError for what HLO cannot express.
    """
    whole = _message(module)
    root = whole.program_shape.result if whole.program_shape is not None else None
    shapes = root.items if root is not None and root.element_type == TUPLE else [root]
    leaves = [_value(r) for r, s in zip(results, [s for s in shapes if s is None or s.element_type != TOKEN], strict=True)]
    result = LiteralMessage(root, leaves) if root is not None and root.element_type == TUPLE else leaves[0]
    return _bytes(Snapshot(Dump(whole), [_value(a) for a in arguments], result, "deepx_graph"))


def _value(array: Array) -> Any:
    """The message of an array."""
    literal = Literal(np.asarray(array))
    return literal_message(shape_message(type_text(literal.type)), literal)


def _bytes(message: ModuleMessage | Snapshot) -> bytes:
    try:
        return b"".join(encode(message, SCHEMA))
    except ValueError as e:
        raise VerifyError(Diagnostic(f"a protocol buffer holds less than 2 GiB: {e}")) from None


def _message(module: Module) -> ModuleMessage:
    literals: list[Literal] = []

    def keep(literal: Literal) -> str:
        literals.append(literal)
        return f"#{len(literals) - 1}"

    program = HloParser(Source("protocol buffer", HloPrinter(module, keep).text()), 1 << 62).program()
    return _Writer(program, literals).module()


class _Writer:
    """The numbers of computations, in the order of the text, from 1 on; names of instructions, which text tells apart within a
    computation and a message within the module: those of the entry stay as they are."""

    def __init__(self, program: HloProgram, literals: list[Literal]) -> None:
        self.program, self.literals = program, literals
        self.numbers = {c.name: k for k, c in enumerate(program.computations, 1)}
        taken: set[str] = set()
        self.names = {(c.name, i.name): _fresh(i.name, c.name, taken) for c in reversed(program.computations)
                      for i in c.instructions}

    def module(self) -> ModuleMessage:
        p = self.program
        made = ModuleMessage(p.name)
        made.computations = [self.computation(c) for c in p.computations]
        entry = made.computations[-1]  # the printer puts it last
        made.entry_name, made.entry, made.program_shape = entry.name, entry.id, entry.program_shape
        if "is_scheduled" in p.attributes:
            made.schedule = ScheduleMessage([ScheduleEntry(c.id, Order([i.id for i in c.instructions]))
                                             for c in made.computations])
        if said := p.attributes.get("input_output_alias"):
            made.aliases = aliases_message(said.text)
        if said := p.attributes.get("frontend_attributes"):
            made.frontend_attributes = map_message(said.text)
        made.frames = frames_message(p.tables)
        return made

    def computation(self, c: Computation) -> ComputationMessage:
        number = self.numbers[c.name]
        ids = {i.name: number << _SPACE | k for k, i in enumerate(c.instructions, 1)}
        made = [self.instruction(i, ids, self.names[c.name, i.name]) for i in c.instructions]
        params = sorted((i for i in made if i.opcode == "parameter"), key=lambda i: i.parameter_number)
        root = ids[c.root.name]
        shape = ProgramShape([p.shape for p in params if p.shape is not None],
                             next(i.shape for i in made if i.id == root), [p.name for p in params])
        return ComputationMessage(c.name, made, shape, number, root)

    def instruction(self, i: HloInstruction, ids: Mapping[str, int], name: str) -> InstructionMessage:
        """Raises VerifyError for what text can say and a message cannot."""
        try:
            return self._instruction(i, ids, name)
        except AttributeFault as e:
            raise VerifyError(Diagnostic(f"'{i.name}': {e.message}", expected=e.expected,
                                         hint="write it as text: --emit hlo")) from None

    def _instruction(self, i: HloInstruction, ids: Mapping[str, int], name: str) -> InstructionMessage:
        made = InstructionMessage(name, i.opcode, shape_message(i.shape or type_text(i.type)), id=ids[i.name])
        made.operands = [ids[name] for name in i.operands]
        made.computations = [self.numbers[name] for word in CALLED if word in i.attributes
                             for name in parse_names(i.attributes[word].text)]
        if i.opcode in REQUIRED:
            field, kind = REQUIRED[i.opcode]
            setattr(made, field, kind())
        if i.opcode == "parameter":
            made.parameter_number = int(i.payload.text)
        if i.opcode == "constant" and i.payload.text.startswith("#") and made.shape is not None:
            made.literal = literal_message(made.shape, self.literals[int(i.payload.text[1:])])
        for attribute, raw in i.attributes.items():
            if attribute == "control-predecessors":
                made.predecessors = [ids[n] for n in parse_names(raw.text)]
            elif attribute in PUT:
                PUT[attribute](made, raw.text)
            elif attribute not in CALLED and attribute not in NOTED:
                raise AttributeFault(f"the attribute '{attribute}' of {i.opcode} is not written", ", ".join(PUT))
        return made


def _fresh(name: str, computation: str, taken: set[str]) -> str:
    """A name of the module that no other instruction has."""
    found = name
    while found in taken:
        found += f".{computation}"
    taken.add(found)
    return found
