"""Programs unfolded: every kernel opened and every call of a function that is not recursive replaced by its body.

What inlining and fusion make is the same program then, node for node, which `same_once_unfolded` says without computing anything.
Nodes that are equal operations on equal operands count once, so that it does not matter which of them are shared; loops, effects
and what may not end are the same where they are met in the same order. No pass is used: the substitution is the checker's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.peephole import commutes, mergeable
from deepx_graph.ir.rebuild import copied, inlined, new_item, rebuild, with_inputs, with_results
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, PARAM, PARTIAL, TUPLE, callee_of, signature_of
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.types import TupleType

MOST = 100_000
"""Nodes of an unfolded function beyond which it is not unfolded."""


def same_once_unfolded(before: Module, after: Module) -> set[str]:
    """The names of the functions that are the same in both modules once all is unfolded."""
    old, new = unfolded(before), unfolded(after)
    return {name for name, f in new.items() if name in old and normal_form(old[name]) == normal_form(f)}


def unfolded(module: Module) -> dict[str, Function]:
    """The functions unfolded, by name; without those that would be too large, and those that call such."""
    callees = {f.name: {callee_of(n) for n in f.nodes if n.op in (CALL, PARTIAL)} & {g.name for g in module.functions}
               for f in module.functions}  # fmt: skip
    done: dict[str, Function] = {}
    waiting = dict(callees)
    while waiting:
        ready = [name for name, needed in waiting.items() if needed <= done.keys()]
        if not ready:  # what is left is recursive, or calls what is: its calls stay, by name
            ready = list(waiting)
        bodies = dict(done)
        for name in ready:
            del waiting[name]
            nodes = len(module[name].nodes) + sum(len(bodies[c].nodes) for c in callees[name] if c in bodies)
            if nodes <= MOST:
                done[name] = _opened(module[name], bodies)
    return {name: f for name, f in done.items() if len(f.nodes) <= MOST}


def _opened(function: Function, bodies: Mapping[str, Function]) -> Function:
    """The function with kernels opened, and calls of the given functions replaced by their bodies."""

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        node = new_item(node, inputs) or with_inputs(node, inputs)
        if node.op is CALL_VALUE and node.inputs[0].op is PARTIAL:
            partial = node.inputs[0]
            node = Node(CALL, partial.inputs + node.inputs[1:], partial.attrs, node.type, node.origin)
        body = kernel_body(node) or (bodies.get(callee_of(node)) if node.op is CALL else None)
        if body is None or [i.type for i in node.inputs] != [p.type for p in body.params]:
            return node
        if node.op is CALL and body.type != signature_of(node):
            return node
        made = tuple(inlined(body, node.inputs, copied))
        return Node(TUPLE, made, (), node.type, node.origin) if isinstance(node.type, TupleType) else made[0]

    new = rebuild(function.nodes, {}, step)
    return with_results(function, tuple([new[r] for r in function.results]))


def normal_form(function: Function) -> tuple[Any, ...]:
    """A value that is equal for functions which are the same but for names, what is shared, and the order of commuting operands.

    Nodes are numbered as they are met from the results down, so that the order in which they were made does not count.
    """
    params = {p: k for k, p in enumerate(function.params)}
    number: dict[Node, int] = {}
    rows: dict[Any, int] = {}
    apart: dict[Node, int] = {}
    stack = list(reversed(function.results))
    while stack:
        node = stack[-1]
        missing = [i for i in node.inputs if i not in number] if node not in number else []
        if node in number or missing:
            if missing:
                stack += missing[::-1]
            else:
                stack.pop()
            continue
        stack.pop()
        inputs = [number[i] for i in node.inputs]
        if len(inputs) == 2 and commutes(node.op, node.type):
            inputs.sort()
        attrs: tuple[Any, ...] = (params[node],) if node.op is PARAM else () if node.op is LOOP_BEGIN else node.attrs
        own = apart.setdefault(node, len(apart)) if node.op is LOOP_BEGIN or not mergeable(node.op, node.type) else -1
        number[node] = rows.setdefault((node.op, attrs, node.type, tuple(inputs), own), len(rows))
    return (function.type, *rows, tuple(number[r] for r in function.results))
