"""What a program does by hand on every device of a mesh (`sdy.manual_computation`, JAX's `shard_map`), on one device.

The reader has it as `run_parallel` over slices of the operands, whose results are joined; notes say how operands and results are
split. Here the operands are brought into that form, and the function of one device stands in the program as it is, its collectives
without the state: what a partitioner makes runs on all devices alike, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import inlined
from deepx_graph.ir.structure import PARAM, PARTIAL, PROJ, callee_of, index_of
from deepx_graph.ops.host.collective import PURE
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.notation import read_annotation
from deepx_graph.types import TensorType, is_state

IN, OUT = "sdy.manual_in", "sdy.manual_out"
"""The notes with the shardings of operands and results."""

ROLE = "manual_computation"
"""The role of the identity of each result that is put together."""


def shardings_of(node: Node, mesh: Mesh) -> tuple[list[TensorSharding], list[TensorSharding]] | None:
    """Of operands and results of a computation by hand; None for any other node. Raises UsageError where its mesh is another."""
    if (found := _stated(node)) is None:
        return None
    if not _are_over(mesh, found):
        raise UsageError(Diagnostic("a computation by hand over another mesh than that of the plan", node.span))
    before, after = ([s for _, s in each] for each in found)
    return before, after


def _stated(node: Node) -> list[Sequence[tuple[Mesh, TensorSharding]]] | None:
    notes = dict(node.origin.notes)
    is_by_hand = node.op is ops.run_parallel and {IN, OUT} <= notes.keys()
    return [read_annotation(notes[k], {}) for k in (IN, OUT)] if is_by_hand else None


def mesh_by_hand(function: Function) -> Mesh | None:
    """The mesh of the first computation by hand, if there is one."""
    stated = (found for n in function.nodes if (found := _stated(n)) is not None)
    return next((mesh for each in stated for shardings in each for mesh, _ in shardings), None)


def _are_over(mesh: Mesh, found: Iterable[Sequence[tuple[Mesh, TensorSharding]]]) -> bool:
    return all(m.axes == mesh.axes and m.devices == mesh.devices for each in found for m, _ in each)


def stated_around(function: Function, mesh: Mesh) -> Iterator[tuple[Node, TensorSharding, str]]:
    """What goes into computations by hand over a mesh and what they give: how it lies there, and Shardy's name of that place."""
    by_hand = [(n, found) for n in function.nodes if (found := _stated(n)) is not None and _are_over(mesh, found)]
    number = {node: k for k, (node, _) in enumerate(by_hand)}
    for node, (before, _) in by_hand:
        needed = [s for _, s in before]
        for k, (operand, sharding) in enumerate(zip(operands_of(node, needed), needed, strict=True)):
            yield operand, sharding, f"mc_{number[node]}_input: {k}"
    for node in function.nodes:
        if (given := result_of(node)) is not None and given[0] in number:
            at, k = number[given[0]], given[1]
            yield node, by_hand[at][1][1][k][1], f"mc_{at}_output: {k}"


def operands_of(node: Node, before: Sequence[TensorSharding]) -> list[Node]:
    """The whole operands of the slices that device 0 is given."""
    first = 1 + node.attr("partitions")
    parts = node.inputs[first : first + len(before)]
    return [p.inputs[0] if s.is_split and p.op is ops.slice_ else p for p, s in zip(parts, before, strict=True)]


def result_of(node: Node) -> tuple[Node, int] | None:
    """The computation by hand, and the number of the result, whose parts an identity has put together."""
    if node.op is not ops.identity or node.attr("role") != ROLE:
        return None
    at = node.inputs[0]
    while at.op is not PROJ:
        at = at.inputs[0]
    return at.inputs[0], index_of(at)


def only_whole(function: Function, by_hand: Collection[Node]) -> set[Node]:
    """The nodes that one device does without: what cuts and joins the operands and results of computations by hand."""
    cuts = {i for n in by_hand for i in n.inputs if i.op is PARTIAL}
    states = {n for n in function.nodes if is_state(n.type) and (n.op is PARAM or n.inputs[0] in by_hand)}
    return _joins(function.nodes, by_hand) | cuts | states


def _joins(nodes: Iterable[Node], found: Collection[Node]) -> set[Node]:
    """The nodes that only put parts of results together."""
    inner: set[Node] = set()
    for node in nodes:
        tensors = [i for i in node.inputs if i in inner or i in found]
        if tensors and len(tensors) == len(node.inputs) and isinstance(node.type, TensorType) and result_of(node) is None:
            inner.add(node)
    return inner


def on_this_device(b: Builder, module: Module, node: Node, operands: Sequence[Node], met: list[Node]) -> list[Node]:
    """The results of one device for its parts of the operands; `met` gets the collectives. Raises UsageError for other effects."""
    function = module[callee_of(node.inputs[1])]
    state = b.constant(False)  # stands for it; nothing that is left reads it

    def step(n: Node, inputs: tuple[Node, ...]) -> Node:
        if n.op in PURE:
            attrs = dict(zip(n.op.attr_index, n.attrs, strict=True))
            made = [b(PURE[n.op], x, **attrs) for x in inputs[1:]]
            met.extend(made)
            return b.pack(*made, state)
        if n.op is PROJ and is_state(n.type):
            return state
        if n.op is PROJ and n.inputs[0].op in PURE:
            return inputs[0].inputs[index_of(n)]
        if any(is_state(i.type) for i in n.inputs) or (n.op.exchange is not None and n.inputs):
            raise UsageError(Diagnostic(f"{n.op.name} cannot be split over devices: it has an effect", n.span))
        return b.make(n.op, inputs, n.attrs, n.type)

    given = iter(operands)
    arguments = [state if is_state(p.type) else next(given) for p in function.params]
    return [r for r, old in zip(inlined(function, arguments, step), function.results, strict=True) if not is_state(old.type)]
