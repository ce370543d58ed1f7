"""What a program does by hand on every device of a mesh (`sdy.manual_computation`, JAX's `shard_map`), as it stands.

The reader has it as `run_parallel` over slices of the operands, whose results are joined; notes say how operands and results are
split. In another one every device takes its part of what it has, and gathers the results, between identities that have roles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from deepx_graph import ops
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, with_inputs
from deepx_graph.ir.structure import PARAM, PARTIAL, PROJ, callee_of, index_of
from deepx_graph.ops.host.collective import PURE
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, count_of, split
from deepx_graph.sharding.notation import read_annotation
from deepx_graph.types import TensorType, is_state

IN, OUT, AXES = "sdy.manual_in", "sdy.manual_out", "sdy.manual_axes"
"""The notes with the shardings of operands and results, and the names of the axes that they are split along by hand."""

INTO, INNER_PART, RESULT, INNER_WHOLE = "nested_manual_operand", "nested_manual_part", "nested_manual_result", "nested_manual_whole"
"""The roles of identities around a computation by hand in another one: an operand and the part of it that a device has, a result
of a device and the whole of that. What is between two of them cuts, or joins. Operand and whole have `LIES` and `AXES` as notes."""

LIES = "sdy.manual_sharding"
"""The note with the sharding of one value that goes into a computation by hand in another one, or comes out of it."""

ROLE = "manual_computation"
"""The role of the identity of each result that is put together."""


def names_note(names: Iterable[str]) -> str:
    """The text of a note with names of axes: a string in MLIR, too."""
    return f'"{" ".join(sorted(names))}"'


def names_in(note: str) -> frozenset[str]:
    """The names that such a note has."""
    return frozenset(note.strip('"').split())


@dataclass(frozen=True)
class StatedByHand:
    """What a computation by hand says: how operands and results lie, and along which axes it splits them itself."""

    before: Sequence[tuple[Mesh, TensorSharding]]
    after: Sequence[tuple[Mesh, TensorSharding]]
    axes: frozenset[str]

    @property
    def mesh(self) -> Mesh:
        """The mesh of all values."""
        return next(mesh for mesh, _ in (*self.before, *self.after))

    def split(self, shardings: Sequence[tuple[Mesh, TensorSharding]]) -> list[TensorSharding]:
        """How these split along its own axes."""
        return [split(*sharding.along(self.axes)) for _, sharding in shardings]


def stated_by_hand(node: Node) -> StatedByHand | None:
    """What a computation by hand says; None for any other node."""
    notes = dict(node.origin.notes)
    if node.op is not ops.run_parallel or not {IN, OUT, AXES} <= notes.keys():
        return None
    return StatedByHand(read_annotation(notes[IN], {}), read_annotation(notes[OUT], {}), names_in(notes[AXES]))


def operands_of(node: Node, before: Sequence[TensorSharding]) -> list[Node]:
    """The whole operands of the slices that device 0 is given."""
    first = 1 + node.attr("partitions")
    parts = node.inputs[first : first + len(before)]
    return [p.inputs[0] if count_of(a for axes in s.axes for a in axes) > 1 else p for p, s in zip(parts, before, strict=True)]


def position(mesh: Mesh, axes: Sequence[Axes], device: int) -> tuple[int, ...]:
    """The number of the part that a device has, in each dimension."""
    return tuple(mesh.index(device, along) for along in axes)


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


def pure_body(module: Module, node: Node) -> Function:
    """What one device does of a computation by hand, its collectives without the state, which goes where they alone had it."""
    function = module[callee_of(node.inputs[1])]

    def step(n: Node, inputs: tuple[Node, ...]) -> Node:
        b = Builder()
        b.origin = n.origin
        if n.op in PURE:
            attrs = dict(zip(n.op.attr_index, n.attrs, strict=True))
            return b.pack(*(b(PURE[n.op], x, **attrs) for x in inputs[1:]), inputs[0])
        if n.op is PROJ and n.inputs[0].op in PURE:
            return inputs[0].inputs[index_of(n)]
        return with_inputs(n, inputs)

    new = rebuild(function.nodes, {p: p for p in function.params}, step)
    params, results = function.params, tuple(new[r] for r in function.results)
    if all(r in params for r in results if is_state(r.type)):
        params, results = (tuple(n for n in nodes if not is_state(n.type)) for nodes in (params, results))
    return function.with_(params=params, results=results, result_names=(), result_notes=())
