"""All there is to tell of one node, as plain data in sections: every inspector, tooltip and report shows these.

Texts are as they came from the file; whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from deepx_graph.errors import sized
from deepx_graph.ir import REQUIRED, Function, Node, describe
from deepx_graph.ir.node import reference
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops import FAMILY_OF
from deepx_graph.session.query.facts import moved_by, size_of, work_of
from deepx_graph.session.session import Session

SHOWN = 40
"""Operands and users that are listed."""


@dataclass(frozen=True)
class Entry:
    """A line: a label and a text; `node` is where it leads, `line` the line of the source that it speaks of."""

    label: str
    text: str
    node: Node | None = None
    line: int = 0


@dataclass(frozen=True)
class Section:
    """Lines under a title."""

    title: str
    entries: tuple[Entry, ...]


def inspect(session: Session, function: Function, node: Node) -> list[Section]:
    """The sections about a node of a function of the session's module (or inside one of its kernels)."""
    numbers = session.facts(function).number
    made = [
        ("", _head(session, function, node)),
        ("attributes", _attributes(node)),
        ("operands", _operands(numbers, node)),
        ("users", _users(numbers, function, node)),
        ("cost", _cost(session, function, node)),
        ("last run", _run(session, node)),
        ("origin", _origin(node)),
        ("made by", _makers(session, node)),
        ("operation", declaration(node)),
    ]
    return [Section(title, found) for title, entries in made if (found := tuple(entries))]


def label_of(node: Node, number: int | None = None) -> str:
    """What a node is called in a list: its name, else its number and operation."""
    return node.reference or (f"#{number} {node.op.name}" if number is not None else node.op.name)


def _head(session: Session, function: Function, node: Node) -> Iterator[Entry]:
    number = session.facts(function).number.get(node)
    if number is None:
        yield Entry("node", f"{node.op.name}, inside a kernel")
    else:
        yield Entry("node", f"{session.address(function, node)} {node.op.name}")
    if node.name:
        yield Entry("name", node.reference)
    yield Entry("type", str(node.type))
    for k, r in enumerate(function.results):
        if r is node:
            yield Entry("result", f"{k}: {reference(function.result_name(k))}")


def _attributes(node: Node) -> Iterator[Entry]:
    for attr, value in zip(node.op.attrs, node.attrs, strict=True):
        if node.op is not LOOP_BEGIN and not attr.is_plain(value):  # a loop's identity is an arbitrary number
            yield Entry(attr.name, _value(value))


def _value(value: object) -> str:
    if isinstance(value, Function):
        reducer = f", {value.reducer.name}" if value.reducer is not None else ""
        return f"function of {len(value.nodes) - len(value.params)} nodes{reducer}"
    if isinstance(value, Literal):
        text = np.array2string(value.array.reshape(-1)[:1][0] if value.is_splat else value.array, threshold=16, edgeitems=3)
        return f"{'all ' if value.is_splat and value.array.ndim else ''}{' '.join(text.split())}"
    return str(value)


def _operands(numbers: Mapping[Node, int], node: Node) -> Iterator[Entry]:
    names = [o.name for o in node.op.operands]
    for k, i in enumerate(node.inputs[:SHOWN]):
        label = names[k] if k < len(names) and not node.op.variadic else str(k)
        yield Entry(label, _short_value(i, numbers.get(i)), i)
    if len(node.inputs) > SHOWN:
        yield Entry("", f"and {len(node.inputs) - SHOWN} more")


def _short_value(node: Node, number: int | None) -> str:
    if node.op is CONSTANT and value_of(node).array.size <= 4:
        return f"{_value(value_of(node))}: {node.type}"
    return f"{label_of(node, number)}: {node.type}"


def _users(numbers: Mapping[Node, int], function: Function, node: Node) -> Iterator[Entry]:
    users = tuple(dict.fromkeys(function.users.get(node, ())))
    for u in users[:SHOWN]:
        yield Entry(u.op.name, label_of(u, numbers.get(u)), u)
    if len(users) > SHOWN:
        yield Entry("", f"and {len(users) - SHOWN} more")


def _cost(session: Session, function: Function, node: Node) -> Iterator[Entry]:
    facts = session.facts(function)
    for label, found in (("bytes", size_of(node)), ("moved", moved_by(node))):
        yield Entry(label, "not known" if found is None else sized(found))
    work = work_of(node)
    yield Entry("flops", "not known" if work is None else f"{work:,}")
    if node in facts.number:
        yield Entry("depth", f"{facts.depth[node]}")
        place = facts.place(node)
        if place.loops or place.branches:
            yield Entry("inside", f"{place.loops} loops, {place.branches} branches")
    if node in facts.shardings:
        yield Entry("sharding", " ".join(filter(None, facts.shardings[node])))
    memory = session.memory(function, wait=False)
    life = memory.lives.get(node) if memory is not None else None
    if memory is not None and life is not None:
        shared = f"shared memory at {life.offset}{', in place' if life.in_place else ''}"
        where = "memory of its own" if life.offset is None else shared
        yield Entry("life", f"{life.first} to {life.last} of {len(memory.alive)} steps, {where}")


def _run(session: Session, node: Node) -> Iterator[Entry]:
    result = session.result
    measured = (session.measured if result is None else result.measured).get(node)
    if measured is None:
        return
    if measured.calls:
        yield Entry("time", f"{measured.seconds * 1e3:.3f} ms, {measured.share:.1%}")
        yield Entry("calls", f"{measured.calls:,}")
    seen = result.values.seen.get(node) if result is not None else None
    if seen is not None:
        s = seen.statistics
        yield Entry("range", f"{s.low:.6g} to {s.high:.6g}")
        yield Entry("mean", f"{s.mean:.6g} ± {s.deviation:.6g}")
        if s.odd:
            yield Entry("odd", f"{s.nans:,} NaN, {s.infs:,} infinite of {s.elements:,}")


def _origin(node: Node) -> Iterator[Entry]:
    for span in node.origin.spans:
        start, end = span.source.line_bounds(span.line)
        yield Entry(f"line {span.line}", span.source.text[start : min(end, start + 200)].strip(), line=span.line)
    if node.origin.rewrites:
        from deepx_graph.session.timeline import reason_of
    for name in node.origin.rewrites:
        reason = reason_of(name)
        yield Entry("by", f"{name}{': ' + reason if reason else ''}")


def _makers(session: Session, node: Node) -> Iterator[Entry]:
    makers = session.version.makers
    if makers is None:
        return
    found = makers.of(node)
    for step in found.operands:
        yield Entry("operand", str(step))
    for step in found.steps:
        yield Entry(f"rewrite {step.number}", f"{step.rule}: {describe(step.before)} -> {describe(step.after)}")
    for step in found.stands_for:
        yield Entry("for", str(step))


def declaration(node: Node) -> Iterator[Entry]:
    op = node.op
    yield Entry("what", op.summary)
    yield Entry("family", FAMILY_OF.get(op, "other"))
    for o in op.operands:
        if o.summary:
            yield Entry(o.name, o.summary)
    for a in op.attrs:
        default = "required" if a.default is REQUIRED else f"default {a.default!r}"
        plain = "" if a.neutral is None else f", plain where all are {a.neutral}"
        yield Entry(a.name, f"{a.kind}, {default}{plain}{'; ' + a.summary if a.summary else ''}")
    if op.source:
        yield Entry("source", op.source)
