"""The schedule of a function: its nodes as steps in nested blocks, as plain frozen data that prints.

The sea has no order; a schedule gives one. Steps of a block run in order; `IfStep` runs one of its branches, `LoopStep` its header
before every iteration and its body after every test that holds (so not on the last), `Once` its block in the first iteration that
gets there. Parameters and constants are no steps: they are there from the start. A schedule never computes a value that nobody
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deepx_graph.analysis.liveness import Live, liveness
from deepx_graph.analysis.scopes import Placement, Scope, ScopeKind
from deepx_graph.errors import printable
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_END, REGION, index_of, is_loop_variable, value_of
from deepx_graph.types import TensorType


@dataclass(frozen=True, eq=False)
class Eval:
    """Compute one node from values computed before."""

    node: Node


@dataclass(frozen=True, eq=False)
class Branch:
    """One side of an If: its steps, and the values it gives, one per column of the region."""

    block: Block
    values: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class IfStep:
    """Run the branch that the region's selector takes; `columns` are the numbers of the region's values that are read."""

    node: Node
    columns: tuple[int, ...]
    branches: tuple[Branch, ...]

    @property
    def selector(self) -> Node:
        return self.node.inputs[0]


@dataclass(frozen=True, eq=False)
class LoopStep:
    """Variables start as `inits`; run header, test `condition`; while it holds run body, go on with `nexts`.

    `columns` are the numbers of the loop variables that are read; `phis[c]` are the nodes that stand for column c in an iteration
    (none when only its final value is read). Entering the loop makes the `once` blocks in `renews` run again.
    """

    node: Node
    columns: tuple[int, ...]
    phis: tuple[tuple[Node, ...], ...]
    inits: tuple[Node, ...]
    nexts: tuple[Node, ...]
    header: Block
    body: Block
    renews: tuple[Block, ...] = ()

    @property
    def condition(self) -> Node:
        return self.node.inputs[1]


@dataclass(frozen=True, eq=False)
class Once:
    """Run the block the first time only; `loop` is the outermost loop that does not make it run again."""

    block: Block
    loop: Node


Step = Eval | IfStep | LoopStep | Once


@dataclass(frozen=True, eq=False)
class Block:
    """Steps in order."""

    kind: ScopeKind
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Schedule:
    """A function as steps. `str()` gives the text that golden tests compare; `order` are the live nodes, oldest first."""

    function: Function
    root: Block
    order: tuple[Node, ...]

    @property
    def constants(self) -> tuple[Node, ...]:
        """The constants that the steps and results use."""
        return tuple(n for n in self.order if n.op is CONSTANT)

    def __str__(self) -> str:
        return show_schedule(self)


def schedule(function: Function) -> Schedule:
    """The schedule of a function (see `placement` for where each node goes).

    Raises VerifyError when a loop variable is used outside its loop or its loop is never closed.
    """
    live = liveness(function)
    return _Freezer(function, live).schedule()


class _Freezer:
    """Makes blocks of scopes, inner ones first."""

    def __init__(self, function: Function, live: Live) -> None:
        self.function, self.live = function, live
        self.placement = Placement(function, live, hoists=True)
        self.frozen: dict[Scope, Block] = {}
        self.phis: dict[tuple[Node, int], list[Node]] = {}
        for n in live.order:
            if is_loop_variable(n):
                self.phis.setdefault((live.ends[n.inputs[0]], index_of(n)), []).append(n)
        self.renews: dict[Node, list[Scope]] = {}
        for once, loop in self.placement.outermost.items():
            self.renews.setdefault(loop, []).append(once)

    def schedule(self) -> Schedule:
        for scope in reversed(self.placement.scopes):
            self.frozen[scope] = self._block(scope)
        return Schedule(self.function, self.frozen[self.placement.root], self.live.order)

    def _block(self, scope: Scope) -> Block:
        onces = sorted(self.placement.onces.get(scope, {}).values(), key=lambda s: -s.loop.serial if s.loop else float("-inf"))
        steps: list[Step] = [Once(self.frozen[s], self.placement.outermost[s]) for s in onces]
        steps += (self._step(n) for n in reversed(scope.nodes))  # they were placed newest first
        return Block(scope.kind, tuple(steps))

    def _step(self, node: Node) -> Step:
        if node.op is REGION:
            scopes = self.placement.branches[node]
            branches = (Branch(self.frozen[s], self.live.branch(node, b)) for b, s in enumerate(scopes))
            return IfStep(node, self.live.columns[node], tuple(branches))
        if node.op is LOOP_END:
            columns = self.live.columns[node]
            return LoopStep(
                node, columns, tuple(tuple(self.phis.get((node, k), ())) for k in columns), self.live.inits(node),
                self.live.nexts(node), self.frozen[self.placement.headers[node]], self.frozen[self.placement.bodies[node]],
                tuple(self.frozen[s] for s in self.renews.get(node, ())),
            )  # fmt: skip
        return Eval(node)


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
        """The line of a step, and the items below it with their depths."""
        match item:
            case Eval(node):
                return f"{self.name(node)}: {node.type} = {self.expression(node)}", ()
            case IfStep():
                return self.branches(item)
            case LoopStep():
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

    def branches(self, step: IfStep) -> tuple[str, Sequence[tuple[int, Item]]]:
        of_bool = isinstance(step.selector.type, TensorType) and step.selector.type.dtype.kind == "bool"
        inside: list[tuple[int, Item]] = []
        for k, branch in enumerate(step.branches):
            which = ("true", "false")[k] if of_bool else str(k)
            inside += [(1, f"proj {which}:".strip), (2, branch.block), (2, partial(self.give, step.columns, branch.values))]
        return f"{self.name(step.node)} = if {self.name(step.selector)}:", inside

    def give(self, columns: Sequence[int], values: Sequence[Node]) -> str:
        return f"give {self.numbered(columns, values)}".rstrip()

    def loop(self, step: LoopStep) -> tuple[str, Sequence[tuple[int, Item]]]:
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
    literal = value_of(node)
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
