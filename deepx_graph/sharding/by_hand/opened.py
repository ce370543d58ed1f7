"""Computations by hand that leave axes of the mesh to a partitioner, taken into the program around them.

Such a computation (`sdy.manual_computation` over some axes, JAX's `shard_map` with `auto` ones) runs as devices that differ along
the axes that it leaves do the same. To be split along these its operations stand in the function itself: its operands are cut into
parts (`manual_part`), and the parts of its results are one value again (`manual_whole`), as Shardy's data-flow edges have it. What
is in between is as large as on a device that has whole tensors along the axes left. Such functions are planned and partitioned, and
never run: what one device does of them does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.errors import UsageError
from deepx_graph.ir import Attr, Function, Module, Node, Op, Operand
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.constraint import TENSOR
from deepx_graph.ir.factor_rule import POINTWISE, FactorRule, Partitioning, RuleBuilder
from deepx_graph.ir.node import Origin
from deepx_graph.ir.rebuild import copied, inlined, rebuild, replaced
from deepx_graph.ir.structure import PROJ
from deepx_graph.ops.host.collective import PURE
from deepx_graph.sharding.annotations import CONSTRAINT, SOURCE
from deepx_graph.sharding.by_hand.manual import AXES, StatedByHand, only_whole, operands_of, pure_body, result_of, stated_by_hand
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, count_of
from deepx_graph.sharding.rules import is_border
from deepx_graph.types import TensorType, Type, as_tensor, is_state

_OPERANDS = (Operand("operand", type=TENSOR),)
PAIRS = "source_target_pairs"
INSIDE = "manual_axes_inside"
"""The note of a value with the axes along which devices have different ones of it, as it is inside of a computation by hand."""

_PARTS = Attr("parts", "any", summary="into how many parts each dimension is split by hand")


def _cut(types: Sequence[Type], parts: tuple[int, ...]) -> TensorType:
    whole = as_tensor(types[0])
    return whole.with_dims(tuple(n // count for n, count in zip(whole.shape, parts, strict=True)))


def _joined(types: Sequence[Type], parts: tuple[int, ...]) -> TensorType:
    part = as_tensor(types[0])
    return part.with_dims(tuple(n * count for n, count in zip(part.shape, parts, strict=True)))


def _border(node: Node) -> FactorRule:
    """A dimension of the whole is the parts that are cut by hand, then what each of them has."""
    r = RuleBuilder(node)
    for k, (before, after, count) in enumerate(zip(r.operands[0], r.results[0], node.attr("parts"), strict=True)):
        if count > 1:
            r.factor(count, [k if before > after else None], [k if before < after else None])
        r.factor(min(before, after), [k], [k])
    return r.rule()


OPERAND = Op("manual_operand", "What goes into a computation by hand.", _OPERANDS, infer=lambda types: types[0],
             sharding=replace(POINTWISE, borders=True), source="Shardy manual_computation")
PART = Op("manual_part", "The part of a value that a computation by hand has.", _OPERANDS, (_PARTS,), _cut,
          sharding=Partitioning(_border, borders=True), source="Shardy manual_computation")
WHOLE = Op("manual_whole", "The value that devices have parts of in a computation by hand.", _OPERANDS, (_PARTS,), _joined,
           sharding=Partitioning(_border, borders=True), source="Shardy manual_computation")


def opened(module: Module) -> Module:
    """The module whose entry has the operations of computations by hand that leave axes to a partitioner.

    One that has effects stays as it is.
    """
    entry, function = module.entry, module.entry.with_beside
    found = [(n, stated) for n in function.nodes if (stated := stated_by_hand(n)) is not None]
    opening = {n: at for k, (n, stated) in enumerate(found) if (at := _opening(module, n, f"mc_{k}", stated)) is not None}
    if not opening:
        return module
    left_out = only_whole(function, opening)
    new = {p: p for p in function.params}
    results: dict[Node, list[Node]] = {}
    for node in function.nodes:
        source = node.inputs[0] if node.op is PROJ else None
        if node in opening:
            results[node] = opening[node].results(node, new)
        elif source in opening and is_state(node.type):
            new[node] = new[source.inputs[0]]
        elif (given := result_of(node)) is not None and given[0] in opening:
            new[node] = opening[given[0]].given(node, given[1], results[given[0]][given[1]])
        elif node not in left_out and source not in opening:
            rebuild([node], new, copied)
    return module.with_functions([replaced(entry, new).with_(beside=tuple(new[n] for n in entry.beside))])


def _opening(module: Module, node: Node, name: str, stated: StatedByHand) -> _Opening | None:
    """A computation whose body may be split along axes that it leaves, those aside over which its devices meet; None for others.

    They meet over such where another computation by hand is in the body.
    """
    mesh = stated.mesh
    left = {name for name, size in mesh.axes if size > 1} - stated.axes
    try:
        body = pure_body(module, node) if left else None
    except UsageError:
        return None
    if body is None:
        return None
    groups = [devices for n in body.nodes for devices in _meeting(n, mesh)]
    met = {name for name in left if any(len({mesh.index(d, [mesh.axis(name)]) for d in devices}) > 1 for devices in groups)}
    if met == left or any(a.name in met for _, s in (*stated.before, *stated.after) for a in s.every_axis):
        return None
    return _Opening(name, replace(stated, axes=stated.axes | met), body)


def _meeting(node: Node, mesh: Mesh) -> Iterator[Collection[int]]:
    """The devices that a collective of the body has exchange something, together or in pairs."""
    if node.op in PURE.values():
        assert node.op.exchange is not None
        grid = Grid(1, mesh.count)
        yield from node.named_attrs.get(PAIRS) or [node.op.exchange.group(grid, d, *node.attrs) for d in range(mesh.count)]


def axes_by_hand(function: Function) -> dict[Node, frozenset[str]]:
    """The axes along which devices have different values of a node, as it is in a computation by hand over these."""
    found: dict[Node, frozenset[str]] = {}
    for node in function.nodes:
        if is_border(node):
            own = frozenset(dict(node.origin.notes).get(INSIDE, "").split())
        else:
            own = frozenset[str]().union(*(found.get(i, ()) for i in node.inputs))
        if own:
            found[node] = own
    return found


@dataclass(frozen=True)
class _Opening:
    """One computation: its name in Shardy's words, what it states, and what one device does."""

    name: str
    stated: StatedByHand
    body: Function

    def results(self, node: Node, new: Mapping[Node, Node]) -> list[Node]:
        """What the body makes of the parts of its operands."""
        operands = operands_of(node, self.stated.split(self.stated.before))
        parts = [self._taken(node, k, new[x]) for k, x in enumerate(operands)]
        return inlined(self.body, parts, copied)

    def _taken(self, node: Node, k: int, x: Node) -> Node:
        mesh, sharding = self.stated.before[k]
        source = f"{self.name}_input: {k}"
        left = replace(sharding, dims=tuple(replace(d, axes=self._left(d.axes)) for d in sharding.dims),
                       replicated=self._left(sharding.replicated), unreduced=self._left(sharding.unreduced))
        whole = self._marked(OPERAND, x, (), node.origin, source, AXES, mesh, self._kept_out(mesh, sharding))
        return self._marked(PART, whole, (self._parts(sharding),), node.origin, source, INSIDE, mesh, left)

    def given(self, node: Node, k: int, x: Node) -> Node:
        """Result k of the computation, which the node was, from what the body makes."""
        mesh, sharding = self.stated.after[k]
        return self._marked(WHOLE, x, (self._parts(sharding),), node.origin, f"{self.name}_output: {k}", AXES, mesh,
                            self._kept_out(mesh, sharding))

    def _left(self, axes: Axes) -> Axes:
        return tuple(a for a in axes if a.name not in self.stated.axes)

    def _parts(self, sharding: TensorSharding) -> tuple[int, ...]:
        return tuple(map(count_of, sharding.along(self.stated.axes)))

    def _kept_out(self, mesh: Mesh, sharding: TensorSharding) -> TensorSharding:
        """With the axes by hand that it does not name: such a value is whole along them."""
        named = {a.name for a in sharding.every_axis}
        return replace(sharding, replicated=(*sharding.replicated, *(
            mesh.axis(name) for name, _ in mesh.axes if name in self.stated.axes - named)))

    def _marked(self, op: Op, x: Node, attrs: tuple[Any, ...], origin: Origin, source: str, word: str, mesh: Mesh,
                sharding: TensorSharding) -> Node:
        """A value at the border, with how it lies, and the axes by hand, of which the note `word` says where these are."""
        notes = ((CONSTRAINT, f"#sdy.sharding<mesh{mesh}, {sharding.text(mesh)}>"), (SOURCE, source),
                 (word, " ".join(sorted(self.stated.axes))))
        return Node(op, (x,), attrs, op.infer([x.type], *attrs), replace(origin, notes=notes))
