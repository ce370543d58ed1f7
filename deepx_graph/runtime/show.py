"""The text of a schedule: one line per step, blocks indented, values numbered from 0 in the order they are made.

`start`, `if`, its projections and the loop's variables stand explicitly. Text that came from a file is escaped. Never recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from deepx_graph.errors import printable
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Literal
from deepx_graph.runtime.schedule import Block, Eval, If, Loop, Once, Schedule, Step
from deepx_graph.types import TensorType

Item = Block | Step | Callable[[], str]

WIDEST = 60
"""Characters of an attribute that are shown."""


def show_schedule(schedule: Schedule) -> str:
    """The whole schedule as text, ending in a newline."""
    return _Writer(schedule).text()


class _Writer:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.lines: list[str] = []
        self.numbers: dict[Node, int] = {}

    def text(self) -> str:
        function = self.schedule.function
        params = (f"{self.name(p)}{' ' + printable(p.name) if p.name else ''}: {p.type}" for p in function.params)
        self.lines += [f"schedule {printable(function.name)}", f"start({', '.join(params)})"]
        stack: list[tuple[int, Item]] = [(0, lambda: f"return {self.names(function.results)}"), (0, self.schedule.root)]
        while stack:
            depth, item = stack.pop()
            if isinstance(item, Block):
                stack += ((depth, step) for step in reversed(item.steps))
            else:
                head, inside = self.step(item)
                self.lines.append("  " * depth + head)
                stack += ((depth + d, i) for d, i in reversed(inside))
        return "\n".join(self.lines) + "\n"

    def step(self, item: Step | Callable[[], str]) -> tuple[str, Sequence[tuple[int, Item]]]:
        """The line of a step, and what follows it at which depth below it."""
        match item:
            case Eval(node):
                return f"{self.name(node)}: {node.type} = {self.expression(node)}", ()
            case If():
                return self.branches(item)
            case Loop():
                return self.loop(item)
            case Once(block):
                return "once:", [(1, block)]
        return item(), ()

    def name(self, node: Node) -> str:
        return constant_text(node) if node.op is CONSTANT else f"%{self.numbers.setdefault(node, len(self.numbers))}"

    def names(self, nodes: Iterable[Node]) -> str:
        return ", ".join(map(self.name, nodes))

    def numbered(self, columns: Sequence[int], nodes: Sequence[Node]) -> str:
        return ", ".join(f"{k}: {self.name(n)}" for k, n in zip(columns, nodes, strict=True))

    def expression(self, node: Node) -> str:
        given = ((a.name, v) for a, v in zip(node.op.attrs, node.attrs, strict=True) if v is not a.default and v != a.default)
        attrs = [f"{name}={attribute_text(v)}" for name, v in given]
        return f"{node.op.name}({self.names(node.inputs)})" + (f" {{{', '.join(attrs)}}}" if attrs else "")

    def branches(self, step: If) -> tuple[str, Sequence[tuple[int, Item]]]:
        of_bool = isinstance(step.selector.type, TensorType) and step.selector.type.dtype.kind == "bool"
        inside: list[tuple[int, Item]] = []
        for k, branch in enumerate(step.branches):
            which = ("true", "false")[k] if of_bool else str(k)
            inside += [(1, f"proj {which}:".strip), (2, branch.block), (2, partial(self.give, step.columns, branch.values))]
        return f"{self.name(step.node)} = if {self.name(step.selector)}:", inside

    def give(self, columns: Sequence[int], values: Sequence[Node]) -> str:
        return f"give {self.numbered(columns, values)}".rstrip()

    def loop(self, step: Loop) -> tuple[str, Sequence[tuple[int, Item]]]:
        variables = (
            f"{k}: {self.names(phis) or '_'} = {self.name(first)}"
            for k, phis, first in zip(step.columns, step.phis, step.inits, strict=True)
        )
        return f"{self.name(step.node)} = loop({', '.join(variables)}):", [
            (1, lambda: "test:"), (2, step.header), (2, lambda: f"while {self.name(step.condition)}"),
            (1, lambda: "body:"), (2, step.body), (2, lambda: f"next {self.numbered(step.columns, step.nexts)}".rstrip()),
        ]  # fmt: skip


def constant_text(node: Node) -> str:
    """A small constant's value, or the type of a large one."""
    literal: Literal = node.attrs[0]
    if literal.array.size > 4 and not literal.is_splat:
        return f"constant {literal.type}"
    values = literal.array.reshape(-1)[:1] if literal.is_splat else literal.array
    return f"{np.array2string(values[0] if literal.is_splat else values, separator=',')}:{literal.type}"


def attribute_text(value: Any) -> str:
    """An attribute value on one line, escaped and cut."""
    if isinstance(value, Function):
        body = value.results[0].op.name if len(value.results) == 1 else f"{len(value.results)} results"
        return f"<{printable(value.name)}: {len(value.nodes) - len(value.params)} nodes, {body}>"
    text = printable(f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value))
    return text if len(text) <= WIDEST else text[:WIDEST] + "..."
