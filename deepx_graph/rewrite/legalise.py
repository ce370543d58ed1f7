"""Legalisation: a function of our operations as one of those that a target has, meaning the same.

A `ConversionTarget` tells of a node over legal operands whether it has it as it stands. What it lacks is decomposed: by a
rule of the target's own, by the op's decomposition (`ops/decompositions.py`), or by the kernel expression of its declaration,
until everything is legal. A node for which that does not succeed stays as it is, for the target to refuse by the name that its user
knows; so every node of the result is either legal or one of the program's own. Only bodies of functions in attributes recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ir.node import Origin
from deepx_graph.ir.rebuild import new_item, rebuilt
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.decompositions import decomposed
from deepx_graph.rewrite.base import PassError

Rule = Callable[[Builder, Node], Node | None]
"""`rule(b, node)` makes what the node means out of other nodes, or gives None where it does not apply."""

Permit = Callable[[Node, Node], bool]
"""`permit(before, after)`: whether a node may be replaced by its decomposition."""

LONGEST = 10_000
"""More decompositions than any node needs."""


@dataclass(frozen=True)
class ConversionTarget:
    """What a language has, and `rules` for what it says in a way of its own; the rule at None is asked for every node."""

    has: Callable[[Node], bool]
    rules: Mapping[Op | None, Rule] = field(default_factory=dict)

    def lacks(self, node: Node) -> bool:
        """Whether the node must be decomposed."""
        return node.op is not PARAM and node.op is not CONSTANT and not self.has(node)

    def decomposed(self, b: Builder, node: Node) -> Node | None:
        """One step: the node by other nodes; None where nothing helps."""
        for key in (None, node.op):
            rule = self.rules.get(key)
            if rule is not None and (made := rule(b, node)) is not None:
                return made
        return decomposed(b, node)


def always(before: Node, after: Node) -> bool:
    """Every decomposition may be used."""
    return True


def legalise(module: Module, target: ConversionTarget, permit: Permit = always) -> Module:
    """The module with every function legal for the target, as far as it can be made so; itself when it is."""
    legaliser = Legaliser(target, permit)
    functions = [legaliser.function(f) for f in module.functions]
    return module if all(a is b for a, b in zip(functions, module.functions, strict=True)) else module.with_functions(functions)


class Legaliser:
    """Makes functions legal for one target, each once."""

    def __init__(self, target: ConversionTarget, permit: Permit = always) -> None:
        self.target, self.permit = target, permit
        self._done: dict[int, tuple[Function, Function]] = {}

    def function(self, function: Function) -> Function:
        """The function in the target's operations; itself when it has no others. Raises VerifyError at a node whose shape is needed
        and not known."""
        if id(function) not in self._done:  # not by equality, which names are no part of
            self._done[id(function)] = function, self._legal(function)
        return self._done[id(function)][1]

    def _legal(self, function: Function) -> Function:
        if all(map(self._is_legal, function.nodes)):
            return function
        changed = False

        def step(node: Node, inputs: tuple[Node, ...]) -> Node:  # all are made anew, which keeps their order
            nonlocal changed
            if item := new_item(node, inputs):
                return item
            attrs = self._attrs(node)
            kept = Node(node.op, inputs, attrs, node.type, node.origin)
            made = self._settled(node, kept) if self.target.lacks(kept) else kept
            changed |= made is not kept or attrs is not node.attrs
            return made

        after = rebuilt(function, step)
        return after if changed else function

    def _is_legal(self, node: Node) -> bool:
        """Whether the node and the functions in its attributes can stay as they are."""
        return not self.target.lacks(node) and (not node.op.function_attrs or self._attrs(node) is node.attrs)

    def _attrs(self, node: Node) -> tuple[object, ...]:
        attrs = node.attrs
        for k in node.op.function_attrs:
            if (body := self.function(attrs[k])) is not attrs[k]:
                attrs = (*attrs[:k], body, *attrs[k + 1 :])
        return attrs

    def _settled(self, before: Node, node: Node) -> Node:
        """The node, which was `before`, in the target's operations, under its own name; itself where that cannot be."""
        legal = _Decomposition(self.target, node).run()
        if legal is None or not self.permit(before, legal):
            return node
        return legal if legal in node.inputs else replace(legal, origin=node.origin)


class _Decomposition:
    """One node taken apart until all parts are legal, on a stack of its own."""

    def __init__(self, target: ConversionTarget, root: Node) -> None:
        self.target, self.root = target, root
        self.builder = Builder(intern=True, origin=Origin("", root.origin.spans))
        self.legal: dict[Node, Node] = {i: i for i in root.inputs}
        self.decomposed: dict[Node, Node] = {}

    def run(self) -> Node | None:
        stack = [self.root]
        while stack:
            node = stack[-1]
            if node in self.legal:
                stack.pop()
                continue
            pending = [self.decomposed[node]] if node in self.decomposed else [i for i in node.inputs if i not in self.legal]
            pending = [n for n in pending if n not in self.legal]
            if pending:
                stack.extend(pending)
            elif not self._advance(node):
                return None
        return self.legal[self.root]

    def _advance(self, node: Node) -> bool:
        """One step with a node whose operands, or whose decomposition, are legal; False where nothing helps."""
        if node in self.decomposed:
            self.legal[node] = self.legal[self.decomposed[node]]
            return True
        inputs = tuple([self.legal[i] for i in node.inputs])
        over = node if inputs == node.inputs else self.builder.intern(node.op, inputs, node.attrs, node.type, node.origin)
        if not self.target.lacks(over):
            self.legal[node] = over
            return True
        made = self._step(over)
        if made is not None:
            self.decomposed[node] = made
        return made is not None

    def _step(self, node: Node) -> Node | None:
        if len(self.decomposed) > LONGEST:
            raise PassError(Diagnostic(f"legalising {self.root!r} does not end at {node!r}", self.root.span))
        try:
            return self.target.decomposed(self.builder, node)
        except InferError as e:
            raise VerifyError(e.diagnostic(node.span, f"{node.op.name}: ")) from None
