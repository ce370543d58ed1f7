"""Computations by hand, taken into the program around them, so that they are split along the axes of the mesh that they leave.

Such a computation (`sdy.manual_computation`, JAX's `shard_map`) runs as it stands with devices that do the same where they differ
along axes that it leaves. To be planned and split along these its operations stand in the function itself: its operands are cut
into parts (`manual_part`), and the parts of its results are one value again (`manual_whole`), as Shardy's data-flow edges have it.
What is in between is as large as on a device that has whole tensors along the axes left. Such functions are planned and
partitioned, and never run: what one device does of them does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.ir import Attr, Builder, Function, Module, Node, Op, Operand
from deepx_graph.ir.builder import fresh_loop
from deepx_graph.ir.collective import Grid
from deepx_graph.ir.constraint import TENSOR
from deepx_graph.ir.factor_rule import POINTWISE, FactorRule, Partitioning, RuleBuilder
from deepx_graph.ir.node import Origin
from deepx_graph.ir.rebuild import copied, inlined, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, PARAM, PROJ
from deepx_graph.ops.host.collective import PURE
from deepx_graph.sharding.annotations import CONSTRAINT, SOURCE
from deepx_graph.sharding.by_hand.borders import INSIDE, axes_by_hand
from deepx_graph.sharding.by_hand.manual import (
    AXES,
    INNER_PART,
    INNER_WHOLE,
    INTO,
    LIES,
    RESULT,
    StatedByHand,
    names_in,
    names_note,
    only_whole,
    operands_of,
    pure_body,
    result_of,
    stated_by_hand,
)
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, count_of
from deepx_graph.sharding.notation import read_annotation
from deepx_graph.sharding.values import CARRIERS
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, is_state

_OPERANDS = (Operand("operand", type=TENSOR),)
PAIRS = "source_target_pairs"


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
    """The module whose entry has the operations of computations by hand."""
    return opened_nodes(module)[0]


def opened_nodes(module: Module) -> tuple[Module, Mapping[Node, Node]]:
    """As `opened`, with what nodes of the entry are in it."""
    entry, function = module.entry, module.entry.with_beside
    found = [(n, stated) for n in function.nodes if (stated := stated_by_hand(n)) is not None]
    opening = {n: _opening(module, n, f"mc_{k}", stated) for k, (n, stated) in enumerate(found)}
    if not opening:
        return module, {n: n for n in function.nodes}
    left_out = only_whole(function, opening)
    new = {p: p for p in function.params}
    if is_pure := all(n.op in CARRIERS or n.op is PARAM or n in opening for n in function.nodes if _takes_state(n)) and all(
            at.is_pure for at in opening.values()):
        nothing = Builder().constant(False)  # stands for the state, which nothing but loops and branches passes on
        new |= {p: nothing for p in function.params if is_state(p.type)}
    results: dict[Node, list[Node]] = {}
    for node in function.nodes:
        source = node.inputs[0] if node.op is PROJ else None
        if node in opening:
            results[node] = opening[node].results(node, new)
        elif source in opening and is_state(node.type):
            new[node] = results[source][-1]
        elif (given := result_of(node)) is not None and given[0] in opening:
            new[node] = opening[given[0]].given(node, given[1], results[given[0]][given[1]])
        elif node not in left_out and source not in opening:
            rebuild([node], new, _carried if is_pure and _takes_state(node) else copied)
    if is_pure:
        new |= {r: p for r in entry.results for p in entry.params if is_state(r.type) and is_state(p.type)}
    return module.with_functions([replaced(entry, new).with_(beside=tuple(new[n] for n in entry.beside))]), new


def _takes_state(node: Node) -> bool:
    """Whether a state is what a node gives, or is given."""
    given = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return any(map(is_state, (*given, *(i.type for i in node.inputs))))


def _carried(node: Node, inputs: tuple[Node, ...]) -> Node:
    """What passes values on, of which one is of another type now."""
    b = Builder()
    b.origin = node.origin
    attrs = {"loop": fresh_loop()} if node.op is LOOP_BEGIN else node.named_attrs
    return b(node.op, *inputs, **attrs)


def _opening(module: Module, node: Node, name: str, stated: StatedByHand) -> _Opening:
    """What is to be opened of a computation. Axes over which its devices meet though it leaves them are not left: along these
    all of its values are whole.
    """
    body, mesh = _with_inner_opened(pure_body(module, node), name), stated.mesh
    inner = {n: {a.name for a in axes} for n, axes in axes_by_hand(body, mesh).items()}
    groups = [(n, devices) for n in body.nodes for devices in _meeting(n, mesh)]
    met = {axis for axis, _ in mesh.axes if axis not in stated.axes and any(
        axis not in inner.get(n, ()) and len({mesh.index(d, [mesh.axis(axis)]) for d in devices}) > 1 for n, devices in groups)}
    return _Opening(_Border(name, stated.axes | met), replace(stated, before=[_without(met, s) for s in stated.before],
                                                              after=[_without(met, s) for s in stated.after]), body)


def _without(names: Collection[str], said: Said) -> Said:
    """How a value lies along other axes than these."""
    mesh, sharding = said

    def left(axes: Axes) -> Axes:
        return tuple(a for a in axes if a.name not in names)

    dims = tuple(replace(d, axes=left(d.axes)) for d in sharding.dims)
    return mesh, replace(sharding, dims=dims, replicated=left(sharding.replicated), unreduced=left(sharding.unreduced))


def _with_inner_opened(body: Function, name: str) -> Function:
    """What one device does, with the operations of computations by hand in it between borders of their own."""
    new: dict[Node, Node] = {}
    count = itertools.count()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        role, notes = node.named_attrs.get("role"), dict(node.origin.notes)
        if role == RESULT:
            return inputs[0]
        if role not in (INTO, INNER_PART, INNER_WHOLE):
            return with_inputs(node, inputs)
        source = _behind(node, RESULT if role == INNER_WHOLE else INTO)
        notes = dict((node if role == INNER_WHOLE else source).origin.notes)
        (said,) = read_annotation(notes[LIES], {})
        border = _Border(f"{name}_{next(count)}", names_in(notes[AXES]))
        if role == INTO:
            return border.operand(inputs[0], node.origin, said, 0)
        if role == INNER_PART:
            return border.part(new[source], node.origin, said, 0)
        return border.whole(new[source], node.origin, said, 0)

    return replaced(body, rebuild(body.nodes, new, step))


def _behind(node: Node, role: str) -> Node:
    """The node of a role that it is a part, or the whole, of."""
    while node.named_attrs.get("role") != role:
        node = node.inputs[0]
    return node


def _meeting(node: Node, mesh: Mesh) -> Iterator[Collection[int]]:
    """The devices that a collective of the body has exchange something, together or in pairs."""
    if node.op in PURE.values():
        assert node.op.exchange is not None
        grid = Grid(1, mesh.count)
        yield from node.named_attrs.get(PAIRS) or [node.op.exchange.group(grid, d, *node.attrs) for d in range(mesh.count)]


Said = tuple[Mesh, TensorSharding]


@dataclass(frozen=True)
class _Border:
    """The border of a computation: its name in Shardy's words, and its axes."""

    name: str
    axes: frozenset[str]

    def operand(self, x: Node, origin: Origin, said: Said, k: int) -> Node:
        """What goes in as operand k."""
        return self._marked(OPERAND, x, (), origin, f"{self.name}_input: {k}", AXES, self._kept_out(said))

    def part(self, x: Node, origin: Origin, said: Said, k: int) -> Node:
        """The part that a device has of what goes in, of which it is said how it lies."""
        return self._marked(PART, x, (self._parts(said[1]),), origin, f"{self.name}_input: {k}", INSIDE, _without(self.axes, said))

    def whole(self, x: Node, origin: Origin, said: Said, k: int) -> Node:
        """Result k, of which the devices have parts."""
        return self._marked(WHOLE, x, (self._parts(said[1]),), origin, f"{self.name}_output: {k}", AXES, self._kept_out(said))

    def _parts(self, sharding: TensorSharding) -> tuple[int, ...]:
        return tuple(map(count_of, sharding.along(self.axes)))

    def _kept_out(self, said: Said) -> Said:
        """With the axes by hand that it does not name: such a value is whole along them."""
        mesh, sharding = said
        named = {a.name for a in sharding.every_axis}
        whole = (mesh.axis(name) for name, _ in mesh.axes if name in self.axes - named)
        return mesh, replace(sharding, replicated=(*sharding.replicated, *whole))

    def _marked(self, op: Op, x: Node, attrs: tuple[Any, ...], origin: Origin, source: str, word: str, said: Said) -> Node:
        """A value at the border, with how it lies, and the axes by hand, of which the note `word` says where these are."""
        mesh, sharding = said
        notes = ((CONSTRAINT, f"#sdy.sharding<mesh{mesh}, {sharding.text(mesh)}>"), (SOURCE, source),
                 (word, names_note(self.axes)))
        return Node(op, (x,), attrs, op.infer([x.type], *attrs), replace(origin, notes=notes))


@dataclass(frozen=True)
class _Opening:
    """One computation: what it states, and what one device does."""

    border: _Border
    stated: StatedByHand
    body: Function

    @property
    def is_pure(self) -> bool:
        """Whether the body has no effects but its collectives."""
        return not any(is_state(p.type) for p in self.body.params)

    def results(self, node: Node, new: Mapping[Node, Node]) -> list[Node]:
        """What the body makes of the parts of its operands, and the state behind it."""
        operands = operands_of(node, self.stated.split(self.stated.before))
        parts = []
        for k, (x, said) in enumerate(zip(operands, self.stated.before, strict=True)):
            parts.append(self.border.part(self.border.operand(new[x], node.origin, said, k), node.origin, said, k))
        state = new[node.inputs[0]]
        return [*inlined(self.body, parts, copied), state] if self.is_pure else inlined(self.body, [*parts, state], copied)

    def given(self, node: Node, k: int, x: Node) -> Node:
        """Result k of the computation, which the node was, from what the body makes."""
        return self.border.whole(x, node.origin, self.stated.after[k], k)
