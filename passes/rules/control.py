"""Rules of tuples, branches, loops and calls that need no more than a node and what it depends on.

What needs the whole function (variables that never change, values that nobody uses) is in `prune`.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_count,
    branches_of,
    callee_of,
    index_of,
    phi_choices,
    signature_of,
    taken_branch,
)
from deepx_graph.ops import construct, field, not_, tag
from deepx_graph.passes.rules.arithmetic import is_bool
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.types import I32, TensorType


@rule(PROJ)
def item_of_tuple(node: Node) -> Node | None:
    """proj(tuple(x, y), 0) = x"""
    index = index_of(node)
    return node.inputs[0].inputs[index] if node.inputs[0].op is TUPLE else None


@rule(TUPLE)
def tuple_of_all_items(node: Node) -> Node | None:
    """tuple(proj(t, 0), proj(t, 1)) = t"""
    if not node.inputs or any(i.op is not PROJ for i in node.inputs):
        return None
    whole = node.inputs[0].inputs[0]
    in_order = all(i.inputs[0] is whole and index_of(i) == k for k, i in enumerate(node.inputs))
    return whole if in_order and whole.type == node.type else None


@rule(PHI)
def known_branch(node: Node) -> Node | None:
    """phi(region(true; x; y)) = x"""
    region = node.inputs[0]
    selector = splat_of(region.inputs[0]) if region.op is REGION else None
    if region.op is REGION and branch_count(region) == 1:
        return phi_choices(region, index_of(node))[0]
    return None if selector is None else phi_choices(region, index_of(node))[taken_branch(selector, branch_count(region))]


@rule(PHI)
def same_in_all_branches(node: Node) -> Node | None:
    """phi(region(p; x; x)) = x"""
    region = node.inputs[0]
    if region.op is not REGION:
        return None
    first, *rest = phi_choices(region, index_of(node))
    return first if all(v is first for v in rest) else None


@rule(PHI)
def branch_of_bools(b: Builder, node: Node) -> Node | None:
    """phi(region(p; true; false)) = p, phi(region(p; false; true)) = not p"""
    region = node.inputs[0]
    if region.op is not REGION or region.inputs[0].type != node.type or branch_count(region) != 2:
        return None
    values = [splat_of(v) for v in phi_choices(region, index_of(node))]
    if None in values or values[0] == values[1] or not is_bool(node):
        return None
    return region.inputs[0] if values[0] else b(not_, region.inputs[0])


@rule(REGION)
def branch_on_not(b: Builder, node: Node) -> Node | None:
    """region(not p; x; y) = region(p; y; x)"""
    if node.inputs[0].op is not not_ or not is_bool(node.inputs[0]):
        return None
    half = len(node.inputs) // 2 + 1
    return b(REGION, node.inputs[0].inputs[0], *node.inputs[half:], *node.inputs[1:half], branches=2)


@rule(PROJ)
def loop_never_entered(node: Node) -> Node | None:
    """proj(loop_end(loop_begin(x); false; y)) = x"""
    end = node.inputs[0]
    if end.op is not LOOP_END or splat_of(end.inputs[1]) is None or splat_of(end.inputs[1]):
        return None
    index = index_of(node)
    return end.inputs[0].inputs[index]


@rule(CALL_VALUE)
def call_of_known_closure(b: Builder, node: Node) -> Node | None:
    """call_value(partial(f, x), y) = call(f, x, y)"""
    closure = node.inputs[0]
    if closure.op is not PARTIAL:
        return None
    callee, signature = closure.attrs
    return b(CALL, *closure.inputs, *node.inputs[1:], callee=callee, signature=signature)


@rule(tag)
def tag_of_known_constructor(b: Builder, node: Node) -> Node | None:
    """tag(construct(Cons, ...)) = 0"""
    value, cases = node.inputs[0], node.attr("cases")
    if value.op is not construct:
        return None
    made = value.attr("constructor")
    return b.constant(cases.index(made) if made in cases else len(cases), I32)


@rule(field)
def field_of_known_value(node: Node) -> Node | None:
    """field(construct(Cons, x, y), 1) = y"""
    value, (constructor, index, _) = node.inputs[0], node.attrs
    found: Node | None = value.inputs[index] if value.op is construct and value.attr("constructor") == constructor else None
    return found


# --- what a branch gives, where every side of it is known


def _sides(node: Node, *ops: Op) -> Sequence[Node] | None:
    """What each side of a branch gives, where the node is a value of a branch and all of them are of one of these ops."""
    if node.op is not PHI or node.inputs[0].op is not REGION:
        return None
    values = phi_choices(node.inputs[0], index_of(node))
    return values if all(v.op in ops for v in values) else None


def _chosen(b: Builder, value: Node, sides: Sequence[Sequence[Node]]) -> tuple[Node, ...]:
    """These values by the branch that a value came from."""
    return b.branch(value.inputs[0].inputs[0], *sides)


@rule(PROJ)
def item_of_tuples(b: Builder, node: Node) -> Node | None:
    """proj(phi(region(p; tuple(x, y); tuple(z, w))), 0) = phi(region(p; x; z))"""
    sides = _sides(node.inputs[0], TUPLE)
    return _chosen(b, node.inputs[0], [[s.inputs[index_of(node)]] for s in sides])[0] if sides else None


@rule(CALL_VALUE)
def call_of_either_closure(b: Builder, node: Node) -> Node | None:
    """call_value(phi(region(p; partial f; partial g)), x) = phi(region(p; call(f, x); call(g, x)))"""
    sides = _sides(node.inputs[0], PARTIAL)
    if not sides:
        return None
    calls = [b(CALL, *s.inputs, *node.inputs[1:], callee=callee_of(s), signature=signature_of(s)) for s in sides]
    return b.pack(*_chosen(b, node.inputs[0], [b.items(c) for c in calls]))


@rule(tag)
def tag_of_either_value(b: Builder, node: Node) -> Node | None:
    """tag(phi(region(p; construct(Cons, ...); construct(Nil)))) = phi(region(p; 0; 1))"""
    sides = _sides(node.inputs[0], construct)
    if not sides:
        return None
    cases = node.attr("cases")
    tags = [cases.index(s.attr("constructor")) if s.attr("constructor") in cases else len(cases) for s in sides]
    return _chosen(b, node.inputs[0], [[b.constant(t, I32)] for t in tags])[0]


@rule(field)
def field_of_either_value(b: Builder, node: Node) -> Node | None:
    """field(phi(region(p; construct(Cons, x, y); construct(Nil))), 0) = phi(region(p; x; 0))"""
    sides = _sides(node.inputs[0], construct)
    constructor, index, type = node.attrs
    filler = b.splat(0, type) if isinstance(type, TensorType) and type.is_static else None
    values = [s.inputs[index] if s.attr("constructor") == constructor else filler for s in sides or ()]
    if not sides or any(v is None or v.type != type for v in values):
        return None
    return _chosen(b, node.inputs[0], [[v] for v in values if v is not None])[0]


@rule(REGION)
def branch_on_a_choice_of_numbers(b: Builder, node: Node) -> Node | None:
    """region(phi(region(p; 1; 0)); x; y) = region(p; y; x)"""
    sides = _sides(node.inputs[0], CONSTANT)
    numbers = [splat_of(s) for s in sides or ()]
    if not sides or any(n is None for n in numbers) or len(sides) * len(node.inputs) > MAX_COPIED:
        return None
    branches = branches_of(node)
    values = [v for n in numbers for v in branches[taken_branch(n, len(branches))]]
    return b(REGION, node.inputs[0].inputs[0].inputs[0], *values, branches=len(sides))


MAX_COPIED = 1000
"""How many values of branches one rule may write again."""

CONTROL: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
