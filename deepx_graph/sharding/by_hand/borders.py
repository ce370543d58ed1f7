"""The borders of computations by hand that are opened: how values lie on both sides, and along which axes they differ inside."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.sharding.annotations import stated_sharding
from deepx_graph.sharding.by_hand.manual import AXES, names_in
from deepx_graph.sharding.mesh import AxisRef, Mesh, count_of
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.rules import factor_rule, is_border, layout_of, possible_axes, project
from deepx_graph.sharding.several_meshes import axes_on

INSIDE = "manual_axes_inside"
"""The note of a value with the axes along which devices have different ones of it, as it is inside of a computation by hand."""


def across_border(node: Node, lies: Callable[[Node], TensorLayout]) -> tuple[TensorLayout, TensorLayout]:
    """How the operand and the result of a border lie: the same part, seen in two ways, as that side lies which is the whole.

    Raises UsageError where that is in another way than what is done by hand.
    """
    rule = factor_rule(node)
    assert rule is not None
    (mapped,), (given,) = rule.operands, rule.results
    inner = {f for dim in mapped for f in dim} & {f for dim in given for f in dim}
    ends = ((node.inputs[0], mapped), (node, given))
    outside, whole = max(ends, key=lambda end: sum(map(len, end[1])))
    axes = {f: possible_axes(node, rule, f, a) if f in inner else a
            for f, a in project(whole, lies(outside).dims, rule.sizes).items()}
    if any(count_of(axes.get(f, ())) != rule.sizes[f] for dim in whole for f in dim if f not in inner):
        message = f"{node.op.name} cannot be split over devices: the plan has it in another way than the computation by hand"
        raise UsageError(Diagnostic(message, node.span))
    return layout_of(mapped, axes, rule.sizes), layout_of(given, axes, rule.sizes)


def axes_by_hand(function: Function, mesh: Mesh) -> dict[Node, frozenset[AxisRef]]:
    """The axes of a mesh along which devices have different values of a node, as it is in computations by hand over these."""
    borders = {n: (_named_by(INSIDE, n, mesh), _named_by(AXES, n, mesh)) for n in function.nodes if is_border(n)}
    found = dict.fromkeys(function.nodes, frozenset[AxisRef]()) if borders else {}
    before: dict[Node, frozenset[AxisRef]] = {}
    while found != before:
        before = dict(found)
        for node in function.nodes:
            own = found[node].union(*(found[i] for i in node.inputs))
            inside, outside = borders.get(node, ((), ()))
            found[node] = own.union(inside).difference(outside)
            if node.op is LOOP_END:  # what an iteration leaves comes into the next one
                found[node.inputs[0]] |= found[node]
    return found


def _named_by(note: str, node: Node, mesh: Mesh) -> frozenset[AxisRef]:
    """The axes that a note of a border names, as a mesh has them."""
    said, names = stated_sharding(node.origin.notes, node, {}), names_in(dict(node.origin.notes).get(note, ""))
    return frozenset(a for name in names for a in axes_on(mesh, said[0], name)) if said else frozenset()
