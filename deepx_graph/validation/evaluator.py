"""The values of nodes on one set of inputs, each computed when it is first asked for, and once in its life.

As nodes never change, a value holds for every module that the node is part of: a pass costs only what its new nodes cost. There is
no schedule and no bytecode: the sea is followed from what is asked for, branches that are not taken are never looked at, and what
belongs to an iteration is forgotten when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import LimitError
from deepx_graph.ir import Module, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_END,
    PARTIAL,
    PHI,
    REGION,
    branches_of,
    callee_of,
    index_of,
    phi_choices,
    taken_branch,
    value_of,
)
from deepx_graph.numerics.observed import OperationBudget, RunObserver
from deepx_graph.validation.cones import NoValueError, applied, opens

Scene = dict[Node, Any]
"""Values of nodes at one moment: in an iteration, and of what is around it."""

DEPTH = 100
"""How deep calls may nest."""

SEEN = 4
"""Iterations of a loop that are kept: the first ones and, beside them, the last."""

KEPT = 64
"""Iterations and activations that are kept in all, about."""


@dataclass(frozen=True)
class Closure:
    """A function value: a function of the module and its leading arguments."""

    callee: str
    bound: tuple[Any, ...]


class Evaluator:
    """Values under one set of arguments of a function of the module; `move` goes on with what a pass made of it.

    An observer is told of every operation as in any run. With `record` the iterations of loops and the activations of functions are
    kept; `iterations` ends each loop after so many, as if it ended there.
    """

    def __init__(self, module: Module, arguments: Mapping[Node, Any], budget: OperationBudget, *, depth: int = 0,
                 record: list[Scene] | None = None, observer: RunObserver | None = None,
                 iterations: int | None = None) -> None:
        self.module, self.budget, self.depth, self.record, self.observer = module, budget, depth, record, observer
        self.iterations = iterations
        self.values: Scene = dict(arguments)
        self._levels: dict[Node, int] = {}  # of nodes that belong to an iteration of that many loops, one in the other
        self._inside: list[list[Node]] = []  # what belongs to the iterations at hand
        if record is not None:
            record.append(self.values)

    def result(self, node: Node) -> Any:
        """The value of a node. Raises NoValueError where it has none here, such as effects and variables of loops outside them."""
        values, stack = self.values, [node]
        while stack:
            top = stack[-1]
            if top in values:
                stack.pop()
                continue
            missing = [i for i in self._needs(top) if i not in values]
            if missing:
                stack += missing
            else:
                value = self._compute(top)
                if self._inside:
                    self._place(top)
                values[top] = value
                stack.pop()
        return values[node]

    def move(self, module: Module) -> None:
        """Goes on with another module of the same inputs: what both have keeps its values, the others are forgotten."""
        given = [self.values.get(p) for p in self.module.entry.params]
        nodes = set(module.entry.nodes)
        self.values = {n: v for n, v in self.values.items() if n in nodes}
        self.values |= {p: v for p, v in zip(module.entry.params, given, strict=True) if v is not None}
        self.module = module

    def _needs(self, node: Node) -> Sequence[Node]:
        """What has to be known first, as far as it is known what that is."""
        op = node.op
        if op is PHI or op is REGION:
            source = node.inputs[0] if op is PHI else node
            if source.op is REGION:
                selector = source.inputs[0]
                return self._chosen(node, source) if selector in self.values else [selector]
            if source not in self.values:
                raise NoValueError("a variable of a loop outside of it")
        return node.inputs[0].inputs if op is LOOP_END else node.inputs

    def _chosen(self, node: Node, region: Node) -> Sequence[Node]:
        """What the phi, or the region as a whole, takes of the branch that is taken."""
        selector = self.values[region.inputs[0]]
        if node is region:
            branches = branches_of(region)
            return branches[taken_branch(selector, len(branches))]
        choices = phi_choices(region, index_of(node))
        return [choices[taken_branch(selector, len(choices))]]

    def _place(self, node: Node) -> None:
        """Finds the iteration that a value belongs to: that of the innermost variable which it depends on."""
        levels = self._levels
        level = len(self._inside) if node.op is LOOP_END else max([levels.get(i, 0) for i in self._read(node)], default=0)
        if level:
            levels[node] = level
            self._inside[level - 1].append(node)

    def _read(self, node: Node) -> Sequence[Node]:
        """What a known value was computed from."""
        region = node.inputs[0] if node.op is PHI else node
        return [region.inputs[0], *self._chosen(node, region)] if region.op is REGION else node.inputs

    def _compute(self, node: Node) -> Any:
        """The value, all that it needs being known."""
        op = node.op
        self._spend()
        if op is CONSTANT:
            return value_of(node).array
        if op is PHI or op is REGION:
            source = node.inputs[0] if op is PHI else node
            if source.op is not REGION:
                return self.values[source][index_of(node)]
            chosen = [self.values[i] for i in self._chosen(node, source)]
            return tuple(chosen) if op is REGION else chosen[0]
        if op is LOOP_END:
            return self._loop(node)
        operands = [self.values[i] for i in node.inputs]
        if op is PARTIAL:
            return Closure(callee_of(node), tuple(operands))
        if op is CALL:
            return self._call(callee_of(node), operands)
        if op is CALL_VALUE:
            closure, *rest = operands
            return self._call(closure.callee, [*closure.bound, *rest])
        if not opens(node):
            raise NoValueError(f"'{op.name}' has no value by itself")
        value = applied(node, operands)
        return value if self.observer is None else self.observer.computed(node, operands, value)

    def _spend(self) -> None:
        try:
            self.budget.take()
        except LimitError:
            raise NoValueError("it computes too long") from None

    def _loop(self, end: Node) -> tuple[Any, ...]:
        begin = end.inputs[0]
        if begin in self.values:
            raise NoValueError("a loop seen from inside")
        variables = tuple([self.values[i] for i in begin.inputs])
        count = 0
        while count != self.iterations:
            self._spend()
            self._inside.append([begin])
            self._levels[begin] = len(self._inside)
            self.values[begin] = variables
            try:
                going = bool(self.result(end.inputs[1]))
                nexts = tuple([self.result(i) for i in end.inputs[2:]]) if going else variables
                if self.record is not None and (count < SEEN or not going) and len(self.record) < KEPT:
                    self.record.append(dict(self.values))
            finally:
                for node in self._inside.pop():
                    self.values.pop(node, None)
                    self._levels.pop(node, None)
            if not going:
                break
            variables, count = nexts, count + 1
        return variables

    def _call(self, callee: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
        function = self.module[callee]
        if self.depth >= DEPTH:
            raise NoValueError("calls nest too deep")
        inner = Evaluator(self.module, dict(zip(function.params, arguments, strict=True)), self.budget, depth=self.depth + 1,
                          record=self.record if self.record is not None and len(self.record) < KEPT else None,
                          observer=self.observer, iterations=self.iterations)
        return tuple([inner.result(r) for r in function.results])
