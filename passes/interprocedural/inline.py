"""Inlining: a call of a function that is not recursive becomes the function's body; and which functions may change and vanish.

Callees first, so that a body is put in place already inlined. A closure whose function is known is called directly.
Loops get a fresh identity in every copy. A call whose arguments are not of exactly the parameters' types is left alone:
types become exact when a module is specialised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from deepx_graph.analysis.components import components, on_cycles
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import copied, inlined, new_item, rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARTIAL, TUPLE, callee_of, signature_of
from deepx_graph.passes.scalar.dce import references
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.sharding.annotations import at_border


@dataclass(frozen=True)
class Internalize(Pass):
    """Makes every function but the entry, and those named in `keep`, private.

    What is public keeps its parameters, so a function that takes closures, data or references stays as it is although nobody calls
    it any more. Source: the internalize pass of LLVM.
    """

    name: ClassVar[str] = "internalize"
    keep: tuple[str, ...] = ()

    def run(self, module: Module) -> Module:
        kept = {module.entry_name, *self.keep}
        return module.with_functions(f.with_(public=False) if f.public and f.name not in kept else f for f in module.functions)


MAX_GROWTH = 200_000
"""Inlining into one function stops after so many new nodes."""

MAX_ROUNDS = 8
"""A closure may only become known by inlining what makes it; each round may find more."""


@dataclass(frozen=True)
class Inline(Pass):
    """Replaces calls of small non-recursive functions, and of functions called once, by their bodies."""

    name: ClassVar[str] = "inline"
    max_nodes: int = 500
    keep_derivatives: bool = True
    """Leave calls of functions that name their own derivative: `grad` would not see it any more."""

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        for _ in range(MAX_ROUNDS):
            after = self._round(module, control)
            if after is module:
                break
            module = after
        return module

    def _round(self, module: Module, control: RewriteControl) -> Module:
        order, recursive = call_order(module)
        counts = _call_counts(module)
        done: dict[str, Function] = {}
        allowed: dict[str, Function] = {}
        for name in order:
            f = done[name] = with_calls_inlined(module[name], allowed, control)
            is_kept = name in recursive or (self.keep_derivatives and f.vjp)
            if not is_kept and (len(f.nodes) <= self.max_nodes or (counts.get(name) == 1 and not f.public)):
                allowed[name] = f
        return module.with_functions(done[f.name] for f in module.functions)


def call_order(module: Module) -> tuple[list[str], set[str]]:
    """Function names, callees before callers, and those that can reach themselves."""
    calls = {f.name: [c for c in dict.fromkeys(references(f)) if c in module] for f in module.functions}
    found = components(calls)
    return [name for component in found for name in component], on_cycles(calls, found)


def _call_counts(module: Module) -> dict[str, int]:
    counts: dict[str, int] = {}
    for f in module.functions:
        for node in f.nodes:
            if node.op in (CALL, PARTIAL):
                counts[callee_of(node)] = counts.get(callee_of(node), 0) + 1
    return counts


def with_calls_inlined(function: Function, allowed: dict[str, Function], control: RewriteControl) -> Function:
    """The function with its calls of the allowed functions replaced by their bodies; itself where it has none."""
    if not any(n.op in (CALL, CALL_VALUE) for n in function.nodes):
        return function
    grown, beside = 0, list[Node]()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        nonlocal grown
        call = new_item(node, inputs) or with_inputs(node, inputs)
        if node.op is CALL_VALUE and inputs[0].op is PARTIAL and control.permit("call-known-closure", node, inputs[0]):
            call = Node(CALL, inputs[0].inputs + inputs[1:], inputs[0].attrs, node.type, node.origin)
        callee = allowed.get(callee_of(call)) if call.op is CALL else None
        if callee is not None and grown <= MAX_GROWTH and _fits(callee, call) and control.permit("inline", node, call):
            grown += len(callee.nodes)
            results = _results(callee, call)
            beside.extend(results[len(callee.results) :])
            return Node(TUPLE, results[: len(callee.results)], (), call.type, call.origin)
        return call

    after, count = rebuilt(function.with_beside, step), len(function.results)
    return after.with_(results=after.results[:count], result_names=after.result_names[:count],
                       beside=(*after.results[count:], *beside)) if function.beside or beside else after


def _fits(callee: Function, call: Node) -> bool:
    return all(a.type == p.type for a, p in zip(call.inputs, callee.params, strict=True)) and callee.type == signature_of(call)


def _results(callee: Function, call: Node) -> tuple[Node, ...]:
    """The callee's results, and what is beside them, over the call's arguments, from a fresh copy of its nodes with their notes."""

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        origin = node.origin.merged(call.origin).rewritten("inline")
        return copied(node, inputs, replace(origin, notes=node.origin.notes) if node.origin.notes else origin)

    arguments = [at_border(x, p.origin.notes) for x, p in zip(call.inputs, callee.params, strict=True)]
    results = inlined(callee.with_beside, arguments, step)
    stated = (*callee.result_notes, *[()] * (len(results) - len(callee.result_notes)))
    return tuple(at_border(r, notes) for r, notes in zip(results, stated, strict=True))
