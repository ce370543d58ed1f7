"""From the syntax tree of HLO to the sea: names to nodes, computations to functions or inlined, branches to control nodes.

Every instruction is checked against the shape it states. Tuples that are taken apart again never become nodes. A `while`'s tuple is
one loop variable per leaf; the computations of `while`, `conditional` and `fusion` are inlined, those of `call` become functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, Source, VerifyError, an, suggest
from deepx_graph.ir import Function, Module, Node, Op, Origin
from deepx_graph.ir.node import NOWHERE
from deepx_graph.text.common.cursor import whole
from deepx_graph.text.common.options import ReadOptions, Recorded
from deepx_graph.text.hlo.notes import COMMON_ATTRIBUTES, KEPT
from deepx_graph.text.hlo.proto.level import text_kind
from deepx_graph.text.hlo.reader.context import InstructionContext
from deepx_graph.text.hlo.reader.rules import RULES, OpcodeRule, opaque
from deepx_graph.text.hlo.syntax import (
    PREDECESSORS,
    Computation,
    HloInstruction,
    HloProgram,
    Raw,
    acts_itself,
    check_instruction,
    check_program,
    named,
    plain_leaves,
)
from deepx_graph.text.xla.hlo_text import parse_names
from deepx_graph.text.xla.lowering import MALFORMED, MAX_NESTING, DialectLowering, acting
from deepx_graph.types import STATE, TupleType, Type, merge_types


def parsed(source: Source, options: ReadOptions) -> tuple[HloProgram, Recorded | None]:
    """The syntax tree of a text or of a protocol buffer, and what was recorded of a run. Raises ParseError, LimitError."""
    if source.binary or text_kind(source.text):
        from deepx_graph.text.hlo.proto.program import parse

        return parse(source, options)
    from deepx_graph.text.hlo.reader.parser import HloParser

    return HloParser(source, options.max_nodes).program(), None


Form = tuple[Any, ...]
"""What decides what an instruction becomes, where its rule is a row of the table: opcode, attributes, types."""
Made = tuple[Op, tuple[Any, ...], Type]


class HloLowering(DialectLowering):
    """One program as a module. `functions` are those that `call` names, by computation."""

    def __init__(self, program: HloProgram) -> None:
        super().__init__()
        self.program = program
        self.computations = {c.name: c for c in program.computations}
        self.functions: dict[str, Function] = {}
        self.bodies: dict[str, Function] = {}
        self.met: set[str] = set()
        self.shapes: dict[str, str] = {}
        """Of the computation at hand: shapes whose layouts are not row-major, by instruction."""
        self.warnings: list[Diagnostic] = []
        self._made: dict[Form, Made] = {}
        runs = {c.name: [n for i in c.instructions for n in named(i)] for c in program.computations}
        self.acting = acting(runs, (c.name for c in program.computations if any(map(acts_itself, c.instructions))))

    def acts(self, i: HloInstruction) -> bool:
        """Whether an instruction changes or needs the state, itself or through what it runs."""
        return self.state is not None and (acts_itself(i) or any(n in self.acting for n in named(i)))

    def module(self) -> Module:
        entry = check_program(self.program)
        main = self.function(entry, public=True)
        for c in self.program.computations:  # what nothing reaches is no part of the module, and must be right all the same
            if c.name not in self.met:
                self.function(c)
        notes = tuple((k, raw.text) for k, raw in self.program.attributes.items() if k != "entry_computation_layout")
        return Module((*self.functions.values(), main), main.name, self.program.source, "hlo", name=self.program.name,
                      notes=notes)

    # --- computations

    def computation(self, name: str, at: Raw) -> Computation:
        if name not in self.computations:
            raise self.program.error(f"no computation '{name}'", at, hint=suggest(name, self.computations))
        return self.computations[name]

    def parameters(self, c: Computation) -> list[HloInstruction]:
        """The parameter instructions, by number."""
        found: dict[int, HloInstruction] = {}
        for i in c.instructions:
            if i.opcode == "parameter":
                text = i.payload.text.strip()
                number = whole(text)
                if number is None or number in found:
                    raise self.program.error(f"parameter '{text}'", i, "each number from 0 on, once")
                found[number] = i
        if sorted(found) != list(range(len(found))):
            raise self.program.error(f"'{c.name}' has parameters {sorted(found)}", c.instructions[0], "each number from 0 on, once")
        return [found[k] for k in range(len(found))]

    def function(self, c: Computation, public: bool = False) -> Function:
        """The computation as a function of tuple leaves to tuple leaves."""
        params: list[Node] = []
        args: list[Node] = []
        outer, state = self.b.origin, self.state
        count = sum(len(plain_leaves(i.type)) for i in self.parameters(c))
        self.state = self.b.param(count, STATE, "state") if c.name in self.acting else None
        for i in self.parameters(c):
            parts = plain_leaves(i.type)
            whole = self.origin(i)
            names = [i.name] if len(parts) == 1 else [f"{i.name}.{k}" for k in range(len(parts))]
            self.b.origin = Origin("", whole.spans, (), whole.notes if len(parts) == 1 else ())
            new = [self.b.param(len(params) + k, t, n) for k, (t, n) in enumerate(zip(parts, names, strict=True))]
            params += new
            args.append(self.pack(i.type, new))
        acted = self.state
        root = self.inline(c, args)
        self.b.origin = outer
        span = self.program.span(c.start, c.start + len(c.name))
        results = self.flatten(root)
        needless = public and acted is self.state and results  # tokens alone, which order nothing
        if acted is not None and self.state is not None and not needless:
            params.append(acted)
            results.append(self.state)
        said = self.origin(c.root) if isinstance(c.root.type, TupleType) and self.state is None else NOWHERE
        self.state = state
        return Function(c.name, tuple(params), tuple(results), public=public, span=span, whole=said)

    def called(self, name: str, at: Raw) -> Function:
        """The function of a computation that `call` names."""
        if name not in self.functions:
            self.functions[name] = self.function(self.computation(name, at))
        return self.functions[name]

    def body(self, name: str, at: Raw) -> Function:
        """The computation as the body of a reduction, sort, ...: a closed function of scalars."""
        if name not in self.bodies:
            if name in self.acting:
                raise self.program.error(f"'{name}' has an effect, and the body of an operation can have none", at)
            self.closed += 1
            self.bodies[name] = self.function(self.computation(name, at))
            self.closed -= 1
        return self.bodies[name]

    def inline(self, c: Computation, args: Sequence[Node]) -> Node:
        """The root of the computation applied to nodes (one per parameter, tuples whole)."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise LimitError(Diagnostic(f"computations nest deeper than {MAX_NESTING}", self.program.span(c.start, c.end)))
        self.met.add(c.name)
        outer = self.b.origin
        params = self.parameters(c)
        if len(params) != len(args):
            raise self.program.error(f"'{c.name}' takes {len(params)} and is given {len(args)} operands", c.instructions[0])
        values = {i.name: a for i, a in zip(params, args, strict=True)}
        by_name = {i.name: i for i in c.instructions}
        if len(by_name) < len(c.instructions):
            raise self._twice(c)
        around, self.shapes = self.shapes, {i.name: i.shape for i in c.instructions if i.shape}
        for i in c.instructions:
            check_instruction(self.program, i, by_name)
            if i.name not in values:
                operands = _at_hand(i, values)
                if operands is None:
                    self._visit(i, values, by_name)
                else:
                    values[i.name] = self._lower(i, operands)
            elif i.opcode == "parameter":
                self._check_attributes(i, RULES["parameter"])
        self.b.origin, self.shapes = outer, around
        self.depth -= 1
        return values[c.root.name]

    def _twice(self, c: Computation) -> ParseError:
        first = {i.name: i for i in reversed(c.instructions)}
        second = next(i for i in c.instructions if first[i.name] is not i)
        return self.program.error(f"a second instruction named '{second.name}'", Raw(second.name, second.start))

    def _visit(self, first: HloInstruction, values: dict[str, Node], by_name: dict[str, HloInstruction]) -> None:
        """Lower an instruction, after its operands where those stand further down."""
        stack = [first]
        open_: set[str] = set()
        while stack:
            i = stack[-1]
            if i.name in values:
                stack.pop()
                continue
            operands = _at_hand(i, values)
            if operands is not None:
                values[i.name] = self._lower(i, operands)
                stack.pop()
                continue
            if i.name in open_:
                raise self.program.error("the instruction depends on itself", i)
            open_.add(i.name)
            for name in [name for name in _before(i) if name not in values]:
                if name not in by_name:
                    raise self.program.error(f"no instruction '{name}' in this computation", i.operand(i.operands.index(name)),
                                             hint=suggest(name, by_name))
                stack.append(by_name[name])

    # --- instructions

    def _lower(self, i: HloInstruction, operands: list[Node]) -> Node:
        rule = RULES.get(i.opcode)
        if rule is None:
            at = Raw(i.opcode, max(i.start, self.program.source.text.find(i.opcode, i.start)))
            raise self.program.error(f"unknown operation '{i.opcode}'", at, hint=suggest(i.opcode, RULES))
        if i.operand_types:
            self._check_operand_types(i, operands)
        form = _form(i, operands) if rule.is_row else None
        if form is not None and (made := self._made.get(form)) is not None:
            op, attrs, type = made
            return Node(op, tuple(operands), attrs, type, self.origin(i))
        self._check_attributes(i, rule)
        if rule.operands is not None and len(operands) not in rule.operands:
            raise self.program.error(f"{i.opcode} takes {' or '.join(map(str, rule.operands))} operands and has {len(operands)}", i)
        self.b.origin = self.origin(i)
        node = self._built(i, rule, operands)
        if form is not None and node.origin is self.b.origin and node.inputs == tuple(operands):
            self._made[form] = node.op, node.attrs, node.type  # programs repeat themselves: a few hundred forms in 100 000
        return node

    def _built(self, i: HloInstruction, rule: OpcodeRule, operands: list[Node]) -> Node:
        """What the rule makes of the instruction, of the type that the text states; opaque where that is believed and cannot be."""
        context = InstructionContext(self, i, operands)
        try:
            return self._checked(i, self._applied(rule, context))
        except VerifyError as e:
            if not rule.trusted:
                raise
            self.warnings += (replace(d, severity="warning", hint="kept as it stands; it cannot be run") for d in e.diagnostics)
            return opaque(context)

    def _applied(self, rule: OpcodeRule, context: InstructionContext) -> Node:
        i = context.instruction
        try:
            return rule.lower(context)
        except InferError as e:
            raise VerifyError(e.diagnostic(self.program.place(i), f"{i.opcode}: ")) from None
        except MALFORMED:
            raise self.program.error(f"{i.opcode} does not have the operands and attributes that it needs", i) from None

    def origin(self, i: HloInstruction) -> Origin:
        """The instruction's name and place, and what its text says beside what it computes."""
        notes = () if KEPT.isdisjoint(i.attributes) else tuple([(name, a.text) for name, a in i.attributes.items() if name in KEPT])
        if i.shape:
            notes += (("layout", i.shape),)
        return Origin(i.name, (self.program.place(i),), (), notes)

    def _check_attributes(self, i: HloInstruction, rule: OpcodeRule) -> None:
        for name, raw in i.attributes.items():
            if name not in rule.attributes and name not in COMMON_ATTRIBUTES:
                known = (*rule.attributes, *COMMON_ATTRIBUTES)
                takes = ", ".join(rule.attributes) or "none of its own"
                raise self.program.error(f"{i.opcode} has no attribute '{name}'", raw, takes, suggest(name, known))

    def _check_operand_types(self, i: HloInstruction, operands: Sequence[Node]) -> None:
        for k, (stated, node) in enumerate(zip(i.operand_types, operands, strict=True)):
            if stated is not None and stated != node.type:
                raise self.program.error(f"the operand is {an(node.type)} and the text says {stated}", i.operand(k), str(node.type))

    def _checked(self, i: HloInstruction, node: Node) -> Node:
        if node.type == i.type:
            return node
        try:
            merge_types(node.type, i.type)
        except InferError:
            raise VerifyError(Diagnostic(f"{i.opcode} gives {an(node.type)} and the text says {i.type}",
                                         self.program.place(i), expected=str(node.type))) from None
        return node

    # --- tuples

    def flatten(self, node: Node) -> list[Node]:
        """The leaves of a value that are no tokens."""
        if not isinstance(node.type, TupleType):
            return [] if node.type == STATE else [node]
        return [leaf for k in range(len(node.type.items)) for leaf in self.flatten(self.item(node, k))]

    def pack(self, type: Type, nodes: Sequence[Node]) -> Node:
        """The value of `type` with these leaves; a token is the state that is current. Raises InferError for another number."""
        count = len(plain_leaves(type))
        if count != len(nodes):
            raise InferError(f"gives {len(nodes)} values and the text says {type}", expected=f"{count} values")
        return self._pack(type, iter(nodes))

    def _pack(self, type: Type, rest: Iterator[Node]) -> Node:
        if isinstance(type, TupleType):
            return self.b.pack(*(self._pack(item, rest) for item in type.items))
        if type == STATE and self.state is not None:
            return self.state
        return next(rest)


def _form(i: HloInstruction, operands: Sequence[Node]) -> Form:
    said = tuple([(name, raw.text) for name, raw in i.attributes.items() if name != "metadata"]) if i.attributes else ()
    return i.opcode, said, i.type, *[x.type for x in operands]


def _before(i: HloInstruction) -> list[str]:
    """The instructions that come before one: its operands, and those that it names as predecessors."""
    raw = i.attributes.get(PREDECESSORS)
    return i.operands if raw is None else [*i.operands, *parse_names(raw.text)]


def _at_hand(i: HloInstruction, values: dict[str, Node]) -> list[Node] | None:
    """The operands of an instruction; None where something that comes before it stands further down."""
    if PREDECESSORS in i.attributes and any(name not in values for name in _before(i)):
        return None
    try:
        return [values[name] for name in i.operands]
    except KeyError:
        return None
