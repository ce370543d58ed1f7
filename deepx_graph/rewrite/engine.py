"""Rules, and the engine that applies them until none applies anywhere.

A rule is a pattern and a function that gives the replacement or None. The engine goes bottom-up in topological order through an
interning builder, so equal nodes are one node and `x - x` is seen as such; what a rule builds is simplified in turn. It declines
a result of another type, asks `RewriteControl` before every application, and never recurses over the graph.
"""

from __future__ import annotations

import inspect
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.errors import Diagnostic, is_interrupt
from deepx_graph.ir import NOWHERE, Builder, Function, Module, Node, Op, Origin
from deepx_graph.ir.peephole import commutes, mergeable
from deepx_graph.ir.rebuild import replaced
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.rewrite.base import PassError, RewriteControl
from deepx_graph.rewrite.pattern import Env, Matcher, OpPattern, matchers, operand_ops, variables
from deepx_graph.types import Type

Roots = Callable[[Op], bool]
Action = Callable[..., Node | None]


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite rule. `equation` is the first line of its function's docstring; `fast_math` rules change float results."""

    name: str
    equation: str
    roots: Roots
    matchers: tuple[Matcher, ...]
    action: Action
    params: tuple[str, ...]
    fast_math: bool = False
    operands: frozenset[Op] = frozenset()
    """Applies only where all of these ops are among those of the operands."""
    any_operand: frozenset[Op] = frozenset()
    """Applies only where one of these ops is; empty: anywhere."""
    no_other: bool = False
    """Applies only where no operand is of another op than these."""
    pattern: OpPattern | None = None
    """What it matches, where it is written as a pattern."""
    exact: Callable[[Node], bool] | None = None
    """Which nodes it is exact for, and applies to; None: all."""

    def may_apply(self, op: Op, operands: frozenset[Op]) -> bool:
        """Whether the rule is worth trying on a node of the op whose operands are of these ops."""
        if self.no_other and not operands <= self.any_operand:
            return False
        return self.roots(op) and self.operands <= operands and (not self.any_operand or not operands.isdisjoint(self.any_operand))

    def apply(self, node: Node, b: Builder) -> Node | None:
        """What the rule makes of the node, None when it does not apply."""
        if self.exact is not None and not self.exact(node):
            return None
        for match in self.matchers:
            env: Env = {"node": node, "b": b}
            if match(node, env):
                made = self.action(*[env[p] for p in self.params])
                if made is not None and made is not node:
                    return made
        return None

    def under_fast_math(self, name: str) -> Rule:
        """The same rule for the nodes that it is not exact for."""
        equation = re.sub(" (?:for|on) integers,?", "", self.equation)
        return replace(self, name=name, equation=equation, fast_math=True, exact=None)


def rule(pattern: OpPattern | Op | Roots, *, fast_math: bool = False, over: Sequence[Op] = (), no_other: bool = False,
         exact: Callable[[Node], bool] | None = None) -> Callable[[Action], Rule]:
    """Makes a rule of a function: `@rule(op_of(add, X, 0))`.

    The function's parameters are variables of the pattern by name, `node` for the whole match, `b` for the builder. Instead of a
    pattern: an op (any node of it) or a predicate over ops; `over` then tells which ops there must be one of among the operands
    for the rule to be worth trying, with `no_other` beside them. A rule is for nodes that are `exact`, where that is given. Raises
    ValueError for an unknown parameter or a missing docstring.
    """

    def make(action: Action) -> Rule:
        params = tuple(inspect.signature(action).parameters)
        known = {"b", "node"} | (variables(pattern) if isinstance(pattern, OpPattern) else set())
        if not set(params) <= known or not action.__doc__:
            raise ValueError(f"rule {action.__name__}: unknown parameters {sorted(set(params) - known)}, or no docstring")
        operands: frozenset[Op] = frozenset()
        if isinstance(pattern, OpPattern):
            roots, alternatives, operands = _is(pattern.op), matchers(pattern), operand_ops(pattern)
        else:
            roots, alternatives = _is(pattern) if isinstance(pattern, Op) else pattern, (_always,)
        name = action.__name__.strip("_").replace("_", "-")
        return Rule(name, action.__doc__.strip().split("\n")[0], roots, alternatives, action, params, fast_math,
                    operands, frozenset(over), no_other, pattern if isinstance(pattern, OpPattern) else None, exact)

    return make


def _is(op: Op) -> Roots:
    return lambda other: other is op


def _always(node: Node, env: Env) -> bool:
    return True


class RuleSet:
    """Rules in order of preference, indexed by the ops of their root and of its operands."""

    def __init__(self, rules: Sequence[Rule], *, fast_math: bool = False) -> None:
        self.rules = tuple(r for r in rules if fast_math or not r.fast_math)
        self._by_root: dict[Op, tuple[Rule, ...]] = {}
        self._by_ops: dict[tuple[Op, ...], tuple[Rule, ...]] = {}

    def for_node(self, node: Node) -> tuple[Rule, ...]:
        """The rules that may apply to the node, as far as its op and those of its operands tell."""
        ops = (node.op, *[i.op for i in node.inputs])
        found = self._by_ops.get(ops)
        if found is None:
            key, operands = ops if len(ops) < 5 else None, frozenset(ops[1:])
            if (of_root := self._by_root.get(node.op)) is None:
                of_root = self._by_root[node.op] = tuple(r for r in self.rules if r.roots(node.op))
            found = tuple(r for r in of_root if r.may_apply(node.op, operands))
            if key:  # a node of many operands is rare, and one of a kind
                self._by_ops[key] = found
        return found

    def shuffled(self, order: random.Random) -> RuleSet:
        """The same rules in another order."""
        return RuleSet(order.sample(self.rules, len(self.rules)), fast_math=True)


_CREDITED = Origin("credited")
"""Stands for the origin that `InterningBuilder.credit` tells, which is made only when a node is."""


class InterningBuilder(Builder):
    """A builder that gives one node for equal requests, operands of commutative ops in either order, and adopts old nodes."""

    def __init__(self) -> None:
        super().__init__(intern=True, origin=_CREDITED)
        self._known: dict[tuple[Any, ...], Node] = {}
        self._credit: tuple[Origin, str] = (NOWHERE, "")
        self.newest: Node | None = None

    def credit(self, origin: Origin, rule_name: str) -> None:
        """Whose doing the nodes are that are made from now on."""
        self._credit = origin, rule_name
        self.newest = None

    def intern(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type, origin: Origin) -> Node:
        """The node; an equal one made or adopted before, unless such nodes are never one (see `cse`)."""
        key = _key(op, inputs, attrs, type)
        node = self._known.get(key) if mergeable(op, type) else None
        if node is None:
            if origin is _CREDITED:
                source, rule_name = self._credit
                origin = Origin("", source.spans, source.rewritten(rule_name).rewrites)
            node = self.newest = self._known[key] = Node(op, inputs, attrs, type, origin)
        return node

    def over(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """The node over other inputs of the same types; an equal one made or adopted before, as `intern` gives it."""
        if not mergeable(node.op, node.type):
            return node.over(inputs)
        key = _key(node.op, inputs, node.attrs, node.type)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = node.over(inputs)
        return found

    def adopt(self, node: Node) -> Node:
        """The node itself, or the equal one known before."""
        if node.op is PARAM or not mergeable(node.op, node.type):
            return node
        return self._known.setdefault(_key(node.op, node.inputs, node.attrs, node.type), node)

    def renamed(self, node: Node, name: str) -> Node:
        """A node made a moment ago, not used yet, under another name."""
        key = _key(node.op, node.inputs, node.attrs, node.type)
        origin = Origin(name, node.origin.spans, node.origin.rewrites)
        named = self._known[key] = node.over(node.inputs, origin)
        return named


def _key(op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type) -> tuple[Any, ...]:
    if len(inputs) == 2 and inputs[0].serial > inputs[1].serial and commutes(op, type):
        left, right = inputs
        if (left.op is CONSTANT) is (right.op is CONSTANT):  # a constant's side is the rules' business
            return op, (right, left), attrs, type
    return op, inputs, attrs, type


class _Rewriter:
    """Brings one function to normal form. `normal` maps every node seen to its normal form."""

    def __init__(self, rules: RuleSet, control: RewriteControl, bodies: dict[Function, Function],
                 order: random.Random | None) -> None:
        self.rules, self.control, self.bodies, self.order = rules, control, bodies, order
        self.builder = InterningBuilder()
        self.first: dict[Node, Node] = {}
        """For each node of the function the first that is equal to it."""
        self.normal: dict[Node, Node] = {}
        self.replaced: dict[Node, Node] = {}
        self.applied: Counter[str] = Counter()
        self.budget = 0

    def function(self, function: Function) -> Function:
        self.budget = 10_000 + 100 * len(function.nodes)
        nodes: Sequence[Node] = function.nodes
        for node in nodes:  # so that what a rule asks for is found where the function has it, and nothing changes for nothing
            self.first[node] = self.builder.adopt(node)
        if self.order:
            nodes = self.order.sample(nodes, len(nodes))
        for node in nodes:
            if node not in self.normal:
                self._settle(node)
        return replaced(function, self.normal)

    def _settle(self, root: Node) -> None:
        """Finds the normal form of the root and of all it depends on, on a stack of its own."""
        normal, replaced, stack = self.normal, self.replaced, [root]
        while stack:
            node = stack[-1]
            if node in normal:
                stack.pop()
                continue
            after = replaced.get(node)
            if after is None:
                try:
                    inputs = tuple([normal[i] for i in node.inputs])
                except KeyError:
                    stack.extend([i for i in node.inputs if i not in normal])
                    continue
                whole = self._rebuilt(node, inputs)  # it stands for all nodes equal to it, and its inputs are in normal form
                if whole is not node and (whole in normal or whole in replaced):
                    after = whole
                else:
                    after = self._rewritten(whole)
                    if after is whole:
                        normal[node] = normal[whole] = whole
                        stack.pop()
                        continue
                    if whole is not node:
                        replaced[node] = whole
                        node = whole
                        stack.append(node)
                replaced[node] = after
                if after not in normal and after in replaced:
                    raise self._endless(node)
            if after in normal:
                normal[node] = normal[after]
                stack.pop()
            else:
                stack.append(after)

    def _rebuilt(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """The node over its inputs in normal form, or the equal one that is known."""
        attrs = node.attrs
        for k in node.op.function_attrs:
            attrs = (*attrs[:k], self._body(attrs[k]), *attrs[k + 1 :])
        if inputs == node.inputs and (attrs is node.attrs or all(map(_same, attrs, node.attrs))):
            return self.first.get(node) or self.builder.adopt(node)
        if attrs is node.attrs:
            return self.builder.over(node, inputs)
        return self.builder.intern(node.op, inputs, attrs, node.type, node.origin)

    def _body(self, body: Function) -> Function:
        if body not in self.bodies:
            inner = _Rewriter(self.rules, self.control, self.bodies, self.order)
            self.bodies[body] = inner.function(body)
        return self.bodies[body]

    def _rewritten(self, node: Node) -> Node:
        """What the first rule that applies makes of the node; the node itself when none does."""
        b = self.builder
        for r in self.rules.for_node(node):
            b.credit(node.origin, r.name)
            try:
                made = r.apply(node, b)
            except PassError:
                raise
            except Exception as e:  # whatever it is, the rule is at fault and must be named
                if is_interrupt(e):
                    raise
                raise self._failure(r, node, e) from e
            if made is None:
                continue
            if made.type != node.type:
                self.control.decline(r.name)
                continue
            if node.name and made is b.newest and not made.name and not self.control.exhausted:
                made = b.renamed(made, node.name)  # before it is told of, so that what is recorded is what stays
            if not self.control.permit(r.name, node, made):
                return node
            self._count(r, node)
            return made
        return node

    def _failure(self, r: Rule, node: Node, error: Exception) -> PassError:
        what = f"rule '{r.name}' failed on {node!r}: {type(error).__name__}: {error}"
        return PassError(Diagnostic(what, node.span, notes=(r.equation,)))

    def _count(self, r: Rule, node: Node) -> None:
        self.applied[r.name] += 1
        self.budget -= 1
        if self.budget < 0:
            raise self._endless(node)

    def _endless(self, node: Node) -> PassError:
        often = ", ".join(f"'{name}' ({count} times)" for name, count in self.applied.most_common(5))
        return PassError(Diagnostic(f"rewriting does not end; the rules that went on applying: {often}", node.span))


def _same(a: object, b: object) -> bool:
    return a is b or a == b


def rewrite_function(function: Function, rules: RuleSet, control: RewriteControl, *, order: random.Random | None = None,
                     bodies: dict[Function, Function] | None = None) -> Function:
    """The function in normal form under the rules, functions in attributes included; itself when no rule applies.

    `order` takes nodes and rules in random order (for tests). Raises PassError when a rule fails or rewriting does not end.
    """
    if control.exhausted:
        return function
    rules = rules.shuffled(order) if order else rules
    return _Rewriter(rules, control, {} if bodies is None else bodies, order).function(function)


def rewrite(module: Module, rules: RuleSet, control: RewriteControl, *, order: random.Random | None = None) -> Module:
    """The module with every function in normal form under the rules; see `rewrite_function`."""
    bodies: dict[Function, Function] = {}
    return module.with_functions(rewrite_function(f, rules, control, order=order, bodies=bodies) for f in module.functions)


def assert_normal_form(module: Module, rules: RuleSet) -> None:
    """Raises AssertionError, naming them, when rules still apply somewhere."""
    control = RewriteControl()
    rewrite(module, rules, control)
    assert not control.count, f"rules still apply: {dict(control.applied)}"
