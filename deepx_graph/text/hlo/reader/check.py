"""What XLA's parser asks of a text apart from what it computes: names given once, attributes that refer to others, tuples.

Each check looks at the syntax alone and raises ParseError at the attribute. Meaning and shapes are the lowering's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deepx_graph.errors import an, suggest
from deepx_graph.text.hlo.reader.shapes import ShapeError, parse_shape
from deepx_graph.text.hlo.reader.syntax import Computation, HloInstruction, HloProgram, Raw
from deepx_graph.text.xla.hlo_text import parse_names
from deepx_graph.types import STATE, TupleType, Type

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
    if "control-predecessors" in i.attributes:
        _predecessors(program, i, by_name)
    check = _CHECKS.get(i.opcode)
    if check is not None:
        check(program, i, by_name)


def _predecessors(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    raw = i.attributes["control-predecessors"]
    for name in parse_names(raw.text):
        if name not in by_name:
            raise program.error(f"no instruction '{name}' in this computation", raw, hint=suggest(name, by_name))


def _same_channel(program: HloProgram, i: HloInstruction, by_name: ByName) -> None:
    """A `send-done` or `recv-done` is on the channel of what it ends."""
    start = by_name.get(i.operands[0].text) if i.operands else None
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
        stated = _type_of(operand.text, by_name)
        if stated is not None and stated != shape:
            raise program.error(f"the layout constraint of operand {k} is for {an(shape)}, and it is {an(stated)}", raw,
                                str(stated))


def _type_of(name: str, by_name: ByName) -> Type | None:
    found = by_name.get(name)
    return found.type if found else None


_CHECKS: dict[str, Callable[[HloProgram, HloInstruction, ByName], None]] = {
    "send-done": _same_channel, "recv-done": _same_channel, "infeed": _tuple_with_token, "custom-call": _constraints,
}  # fmt: skip
