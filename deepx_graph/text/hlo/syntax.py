"""The syntax tree of HLO text, what it tells of effects, and what XLA's parser asks of it: names given once, references that lead
somewhere, tuples of the right form.

Names are not resolved yet. Each check looks at the syntax alone and raises ParseError at the attribute; meaning and shapes are the
lowering's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deepx_graph.errors import Diagnostic, ParseError, Source, Span, an, suggest
from deepx_graph.literal import Literal
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.hlo.notes import Places
from deepx_graph.text.hlo.shapes import ShapeError, parse_shape
from deepx_graph.text.xla.devices import COLLECTIVES, moves_nothing
from deepx_graph.text.xla.hlo_text import AttributeFault, parse_groups, parse_names, parse_string
from deepx_graph.types import STATE, TupleType, Type, is_state

NAME = r"[A-Za-z_0-9][\w.\-]*"
OPERAND = re.compile(rf"%?({NAME})")


@dataclass(slots=True)
class Raw:
    """A piece of the text: an attribute's value as it stands, and where."""

    text: str
    start: int


@dataclass(slots=True)
class HloInstruction:
    """`name = type opcode(operands), attributes`. `payload` is the text between the parentheses, `operands` the names in it."""

    name: str
    type: Type
    opcode: str
    payload: Raw
    operands: list[str]
    attributes: dict[str, Raw]
    is_root: bool
    start: int
    end: int
    operand_types: Sequence[Type | None] = ()
    """As the text states them; empty where it states none."""
    operand_starts: Sequence[int] = ()
    """Where the operands' names stand, where something else stands between them."""
    shape: str = ""
    """The shape as it stands, where its layout is not the row-major one."""
    literals: list[Literal] | None = None
    """The leaves of a constant, where they are no text."""

    def operand(self, k: int) -> Raw:
        """The name of an operand, where it stands; of what is no text, where the instruction does."""
        starts = self.operand_starts or [self.payload.start + m.start(1) for m in OPERAND.finditer(self.payload.text)]
        return Raw(self.operands[k], starts[k] if k < len(starts) else self.payload.start)


@dataclass(slots=True)
class Computation:
    """A named list of instructions."""

    name: str
    instructions: list[HloInstruction]
    is_entry: bool
    start: int
    end: int
    params: list[Type] | None = None
    result: Type | None = None

    @property
    def root(self) -> HloInstruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])


@dataclass
class HloProgram:
    """A module's text."""

    source: Source
    name: str
    attributes: dict[str, Raw]
    computations: list[Computation]
    tables: dict[str, dict[int, str]]

    @cached_property
    def places(self) -> Places:
        """The places in the user's program that `metadata` tells."""
        return Places(self.tables)

    def place(self, i: HloInstruction) -> Span:
        """Where an instruction stands, and what it was made from."""
        metadata = i.attributes.get("metadata")
        return Span(self.source, i.start, i.end, self.places.of(metadata.text) if metadata else None)

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def error(self, message: str, at: Raw | HloInstruction, expected: str | None = None, hint: str | None = None) -> ParseError:
        """A ParseError placed at a piece of the text."""
        span = self.place(at) if isinstance(at, HloInstruction) else self.span(at.start, at.start + len(at.text))
        return ParseError(Diagnostic(message, span, expected=expected, hint=hint))


_COLLECTIVES = frozenset(f"{row.hlo}{suffix}" for suffix in ("", "-start") for row in COLLECTIVES)
_ALWAYS = frozenset({"infeed", "outfeed", "send", "send-done", "recv", "recv-done", "after-all", "rng-get-and-update-state"})
PREDECESSORS = "control-predecessors"
_RUNS = ("to_apply", "calls", "condition", "body", "true_computation", "false_computation", "branch_computations")
"""Attributes that name computations which run as part of the program, the first one in calls alone."""


def plain_leaves(type: Type) -> tuple[Type, ...]:
    """The leaves of a type that are no tokens."""
    if isinstance(type, TupleType):
        return tuple(leaf for item in type.items for leaf in plain_leaves(item))
    return () if type == STATE else (type,)


def is_alone(i: HloInstruction) -> bool:
    """Whether a collective names only groups of one device, so that nothing moves."""
    try:
        return moves_nothing(i.opcode, lambda name: parse_groups(i.attributes[name].text) if name in i.attributes else ())
    except (AttributeFault, ValueError):
        return False


def text_of(i: HloInstruction, name: str) -> str:
    """An attribute that is a string, without its quotes; empty where it is missing."""
    return parse_string(i.attributes[name].text) if name in i.attributes else ""


def named(i: HloInstruction) -> list[str]:
    """The computations that an instruction runs as part of the program, bodies of reductions and the like left out."""
    if i.attributes.keys().isdisjoint(_RUNS):
        return []
    words = _RUNS if i.opcode == "call" else _RUNS[1:]
    return [n for word in words if word in i.attributes for n in parse_names(i.attributes[word].text)]


def acts_itself(i: HloInstruction) -> bool:
    """Whether the instruction changes or needs the state, apart from what it runs."""
    if i.opcode in _ALWAYS or is_state(i.type):
        return True
    if i.opcode in _COLLECTIVES:
        return not is_alone(i)
    return i.opcode == "custom-call" and (
        text_of(i, "custom_call_has_side_effect") == "true" or custom_calls.acts(text_of(i, "custom_call_target")))


ByName = Mapping[str, HloInstruction]


def check_program(program: HloProgram) -> Computation:
    """The entry computation. Raises ParseError for two entries, two roots or a name used twice."""
    entries = [c for c in program.computations if c.is_entry]
    if len(entries) > 1:
        raise program.error("a second ENTRY computation", Raw(entries[1].name, entries[1].start))
    seen: set[str] = set()
    for c in program.computations:
        if c.name in seen:
            raise program.error(f"a second computation named '{c.name}'", Raw(c.name, c.start))
        seen.add(c.name)
        roots = [i for i in c.instructions if i.is_root]
        if len(roots) > 1:
            raise program.error("a second ROOT instruction", roots[1])
        if c.result is not None and not _alike(c.result, c.root.type):
            raise program.error(f"the root is {an(c.root.type)} and the computation says {c.result}", c.root)
    return entries[0] if entries else program.computations[-1]


def _alike(a: Type, b: Type) -> bool:
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.items) == len(b.items) and all(map(_alike, a.items, b.items))
    return a == b


def check_instruction(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    """Raises ParseError where an attribute of the instruction refers to nothing or to the wrong thing."""
    if PREDECESSORS in i.attributes:
        _predecessors(program, i, by_name)
    check = _CHECKS.get(i.opcode)
    if check is not None:
        check(program, i, by_name)


def _predecessors(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    raw = i.attributes[PREDECESSORS]
    for name in parse_names(raw.text):
        if name not in by_name:
            raise program.error(f"no instruction '{name}' in this computation", raw, hint=suggest(name, by_name))


def _same_channel(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    """A `send-done` or `recv-done` is on the channel of what it ends."""
    start = by_name.get(i.operands[0]) if i.operands else None
    if start is None or start.opcode != i.opcode.removesuffix("-done"):
        return
    here, there = (x.attributes.get("channel_id") for x in (i, start))
    if (here.text if here else "") != (there.text if there else ""):
        said = [f"channel_id={c.text}" if c else "no channel_id" for c in (there, here)]
        raise program.error(f"{start.opcode} '{start.name}' has {said[0]} and its {i.opcode} has {said[1]}",
                            there or start, f"the attribute channel_id of {start.opcode}, equal in both")


def _tuple_with_token(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    if not isinstance(i.type, TupleType) or len(i.type.items) != 2 or i.type.items[1] != STATE:
        raise program.error(f"infeed gives {an(i.type)}", i, "a tuple of the data and a token: (shape, token[])")


def _constraints(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    """`operand_layout_constraints={f32[2]{0}, ...}` names the shape of every operand."""
    raw = i.attributes.get("operand_layout_constraints")
    if raw is None:
        return
    try:
        listed = parse_shape("(" + raw.text.strip().removeprefix("{").removesuffix("}") + ")", 0)[0]
    except ShapeError as e:
        raise program.error(e.message, raw, "{f32[2,3]{1,0}, ...}") from None
    shapes = listed.items if isinstance(listed, TupleType) else ()
    if len(shapes) != len(i.operands):
        raise program.error(f"{len(shapes)} layout constraints for {len(i.operands)} operands", raw, "one shape for each operand")
    for k, (shape, operand) in enumerate(zip(shapes, i.operands, strict=True)):
        stated = _type_of(operand, by_name)
        if stated is not None and stated != shape:
            raise program.error(f"the layout constraint of operand {k} is for {an(shape)}, and it is {an(stated)}", raw,
                                str(stated))


def _type_of(name: str, by_name: ByName) -> Type | None:
    found = by_name.get(name)
    return found.type if found else None


_CHECKS: dict[str, Callable[[HloProgram, HloInstruction, ByName], None]] = {
    "send-done": _same_channel, "recv-done": _same_channel, "infeed": _tuple_with_token, "custom-call": _constraints,
}  # fmt: skip
