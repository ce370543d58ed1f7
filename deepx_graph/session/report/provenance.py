"""Which rewrites made a node: the chain from the operations of the program as it was read, with the lines that they came from.

All is read off the recorded rewrites. A rewrite made what is new below the node that it put in place; what passes build anew over
other operands, as nodes are frozen, keeps its origin and is known by that. A pass that numbers no rewrites is named as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import TextReport, UsageError
from deepx_graph.ir import Function, Module, Node, describe
from deepx_graph.passes.fusion.why import find_node
from deepx_graph.passes.observer import Record
from deepx_graph.passes.pipeline import format_pass
from deepx_graph.rewrite.base import Rewrite
from deepx_graph.session.programs import Watch, optimise
from deepx_graph.session.timeline import reason_of


@dataclass(frozen=True, repr=False)
class Provenance(TextReport):
    """How a node came about: the rewrites, each of which made what the next one replaced; the last one made the node.

    `first` is what the chain begins with: a node as it was read, or one that the pass `pass_` made without numbering rewrites.
    `operands` are rewrites that replaced operands of it before; `stands_for` those that put the node, which was there already, in
    the place of others.
    """

    node: Node
    first: Node
    steps: tuple[Rewrite, ...]
    pass_: str = ""
    operands: tuple[Rewrite, ...] = ()
    stands_for: tuple[Rewrite, ...] = ()

    def lines(self) -> Iterator[str]:
        """What `why --made` prints: the source's lines, each rewrite with both sides, and the node."""
        for span in self.first.origin.spans:
            start, end = span.source.line_bounds(span.line)
            yield f"{span.described}: {span.source.text[start : min(end, start + 200)].strip()}"
        yield f"  {describe(self.first)}{f', made by the pass {self.pass_}' if self.pass_ else ', as it was read'}"
        for step in self.operands:
            yield f"operand {_called(step.before)} is {_called(step.after)} since {_named(step)}"
        at = self.first
        for step in self.steps:
            if describe(step.before) != describe(at):
                yield f"  {describe(step.before)}"
            yield _named(step)
            yield f"  {describe(step.after)}"
            at = step.after
        if describe(at) != describe(self.node):
            yield f"  {describe(self.node)}"
        for step in self.stands_for:
            yield f"it stands for {describe(step.before)} since {_named(step)}"

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"node": describe(self.node), "first": describe(self.first), "pass": self.pass_,
                "source": [s.described for s in self.first.origin.spans], "steps": [_plain(s) for s in self.steps],
                "operands": [_plain(s) for s in self.operands], "stands_for": [_plain(s) for s in self.stands_for]}  # fmt: skip


def _named(step: Rewrite) -> str:
    reason = reason_of(step.rule)
    return f"rewrite {step.number}, {step.rule} of pass {step.pass_name}{f': {reason}' if reason else ''}"


def _called(node: Node) -> str:
    return node.reference or f"the {node.op.name}"


def _plain(step: Rewrite) -> dict[str, Any]:
    return {"number": step.number, "pass": step.pass_name, "rule": step.rule, "equation": reason_of(step.rule),
            "before": describe(step.before), "after": describe(step.after),
            "place": step.span.described if step.span else None}  # fmt: skip


def provenance(module: Module, node: str, pipeline: str = "default") -> Provenance:
    """How a node of the program after a pipeline came about; of one that went on the way, as it was at last.

    `node` is a name or an address such as `#17`. Raises UsageError for a node that there is not, and what passes raise.
    """
    done = optimise(module, pipeline, Watch(record=True))
    assert done.record is not None
    makers = Makers(module, done.record)
    for earlier in (*(s.module for s in reversed(done.record.stages)), module):
        try:
            return makers.of(find_node(earlier, node)[1])
        except UsageError:
            continue
    return makers.of(find_node(done.module, node)[1])


class Makers:
    """For every node that occurs in a record what made it."""

    def __init__(self, before: Module, record: Record) -> None:
        self._rewrite: dict[int, Rewrite] = {}
        self._pass: dict[int, str] = {}
        self._instead: dict[int, list[Rewrite]] = {}
        self._read = {id(n.origin): n for n in _nodes(before)}
        self._replaced: dict[int, Rewrite] = {}
        self._kept = before, record  # origins are told apart by identity, so they have to live
        self._pairs: dict[tuple[Any, ...], int] = {}
        for stage in record.stages:
            for rewrite in stage.rewrites:
                self._note(rewrite)
            if stage.changed:
                self._note_module(stage.module, format_pass(stage.pass_))

    def of(self, node: Node) -> Provenance:
        """The chain that made a node of any module of the record."""
        steps: list[Rewrite] = []
        at = node
        while (found := self._rewrite.get(self._key(at))) is not None and (not steps or found.number < steps[-1].number):
            steps.append(found)
            at = found.before
        first = self._read.get(self._key(at), at)
        return Provenance(node, first, tuple(reversed(steps)), self._pass.get(self._key(at), ""),
                          tuple(self._replacing(first, steps[-1].number if steps else None)),
                          tuple(self._instead.get(self._key(node), ())))

    def _replacing(self, node: Node, before: int | None) -> Iterator[Rewrite]:
        """The rewrites that replaced operands of a node, as far as they came before one of that number."""
        for operand in dict.fromkeys(node.inputs):
            at, seen = operand, set[int]()
            while (step := self._replaced.get(self._key(at))) is not None and step.number not in seen:
                if before is not None and step.number >= before:
                    break
                seen.add(step.number)
                yield step
                at = step.after

    def _key(self, node: Node) -> int:
        """The origin that a node has kept; that of a node alike where the node stands for several since."""
        key = id(node.origin)
        known = key in self._read or key in self._rewrite or key in self._pass
        return key if known else self._pairs.get(_likeness(node), key)

    def _note(self, rewrite: Rewrite) -> None:
        if rewrite.before is not rewrite.after:
            self._replaced[self._key(rewrite.before)] = rewrite
        stack, old, made = [rewrite.after], {rewrite.before, *rewrite.before.inputs}, False
        while stack:
            node = stack.pop()
            key = id(node.origin)
            if node in old or key in self._read or key in self._rewrite or key in self._pass:
                continue
            made = True
            self._rewrite[key] = rewrite
            self._pairs[_likeness(node)] = key
            stack += node.inputs
        if not made and rewrite.after is not rewrite.before:
            self._pairs.setdefault(_likeness(rewrite.after), id(rewrite.after.origin))
            self._instead.setdefault(self._key(rewrite.after), []).append(rewrite)

    def _note_module(self, module: Module, pass_: str) -> None:
        for node in _nodes(module):
            key = id(node.origin)
            if key not in self._read and key not in self._rewrite and _likeness(node) not in self._pairs:
                self._pass.setdefault(key, pass_)


def _likeness(node: Node) -> tuple[Any, ...]:
    """What stays the same of a node that takes the lines of others over."""
    return node.op, node.attrs, node.type, node.name, node.origin.rewrites, node.origin.spans[:1]


def _nodes(module: Module) -> Iterator[Node]:
    """The nodes of all functions, those in attributes included."""
    waiting = [*module.functions]
    seen = set[int]()
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for node in function.nodes:
            yield node
            waiting += [a for a in node.attrs if isinstance(a, Function)]
