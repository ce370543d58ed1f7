"""The units that fusion works with: kernels in the making and the single nodes between them, and how they depend on each other.

Constants, parameters and what is seen through (`fusion_shape.Link`) are no units: they are given to, or copied into, their users.
Here is what is true of the graph; what may join is decided in `fusion_group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.placement import Draft
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.passes.fusion_order import Order
from deepx_graph.passes.fusion_place import places
from deepx_graph.passes.fusion_reason import Kind
from deepx_graph.passes.fusion_shape import Link, Links, Space, Vocabulary, space_of


class Group:
    """A kernel in the making. `copies` are nodes computed here and elsewhere; `inputs` maps what it is given to its root."""

    __slots__ = ("copies", "inputs", "members", "place", "space", "views")

    def __init__(self, members: list[Node], space: Space, place: Draft) -> None:
        self.members, self.space, self.place = members, space, place
        self.copies: frozenset[Node] = frozenset()
        self.views: frozenset[Node] = frozenset()
        self.inputs: dict[Node, Node] = {}

    @property
    def ops(self) -> int:
        """Operations of the kernel, broadcasts included."""
        return len(self.members) + len(self.copies) + len(self.views)

    @property
    def is_kernel(self) -> bool:
        """More than one operation."""
        return self.ops > 1


Unit = Group | Node


class Units:
    """The units of a function in their order. `group_of[node]` for every node that a kernel may hold, at first one each."""

    def __init__(self, function: Function, vocabulary: Vocabulary) -> None:
        self.function, self.vocabulary = function, vocabulary
        self.links = Links()
        self.places = places(function)
        self.group_of: dict[Node, Group] = {}
        self.roots: dict[Node, tuple[Node, ...]] = {}
        self.users: dict[Node, list[Node]] = {}
        self.order: Order[Unit] = Order(self.before, self._after)
        for node in function.nodes:
            self._enter(node)

    def unfit(self, node: Node) -> Kind | None:
        """Why no kernel holds the node; None when one may."""
        kind = self.vocabulary.unfit(node)
        return Kind.DEAD if kind is None and node not in self.places else kind

    def _enter(self, node: Node) -> None:
        """Makes a unit of the node, unless it is a source or is seen through."""
        kind = self.unfit(node)
        if kind in (Kind.CONSTANT, Kind.PARAMETER, Kind.VIEW):
            return
        links = self.links.of(node) if kind is None else tuple(map(self.links.link, node.inputs))
        roots = self.roots[node] = tuple(
            dict.fromkeys(k.root for k in links if k.root.op is not PARAM and k.root.op is not CONSTANT)
        )
        for root in roots:
            self.users.setdefault(root, []).append(node)
        if kind is None:
            group = self.group_of[node] = Group([node], space_of(node), self.places[node])
            self.read(group, links)
            self.order.append(group)
        else:
            self.order.append(node)

    def read(self, group: Group, links: Iterable[Link]) -> None:
        """Adds what the links of a new member need to the inputs and views of its group."""
        for link in links:
            if link.root.op is CONSTANT and splat_of(link.root) is not None:
                continue
            if link.repeats:
                group.views |= {link.operand}
            if self.group_of.get(link.root) is not group and link.root not in group.copies:
                group.inputs[link.key] = link.root

    def unit(self, node: Node) -> Unit:
        """The group of the node, or the node itself."""
        return self.group_of.get(node, node)

    def before(self, unit: Unit) -> Iterator[Unit]:
        """The other units that this one reads, some of them several times."""
        if isinstance(unit, Node):
            yield from map(self.unit, self.roots[unit])
            return
        for node in (*unit.members, *unit.copies):
            for root in self.roots[node]:
                if root not in unit.copies and (other := self.unit(root)) is not unit:
                    yield other

    def _after(self, unit: Unit) -> Iterator[Unit]:
        for node in (unit,) if isinstance(unit, Node) else unit.members:
            yield from self.readers(node)

    def readers(self, node: Node) -> Iterator[Unit]:
        """The other units that need the value of the node."""
        mine = self.unit(node)
        for user in self.users.get(node, ()):
            other = self.unit(user)
            if other is not mine and not (isinstance(other, Group) and node in other.copies):
                yield other

    def crossing(self, source: Group, target: Group) -> Iterator[tuple[Link, Node]]:
        """The links by which nodes of `target` read `source`; goes through the smaller of the two."""
        users = (*target.members, *target.copies)
        if len(source.members) < len(users) and sum(len(self.users.get(m, ())) for m in source.members) < len(users):
            readers = (u for m in source.members for u in self.users.get(m, ()))
            users = tuple(u for u in readers if self.group_of.get(u) is target or u in target.copies)
        alone = source.members[0] if len(source.members) == 1 else None
        for user in users:
            for link in self.links.of(user):
                if link.root is alone or self.group_of.get(link.root) is source:
                    yield link, user

    def union(self, g: Group, h: Group) -> dict[Node, Node]:
        """The inputs of the joint group: those of both which neither computes."""
        alone = g.members[0]
        copies = g.copies | h.copies
        return {
            k: r for k, r in (*g.inputs.items(), *h.inputs.items())
            if r is not alone and r not in copies and (owner := self.group_of.get(r)) is not g and owner is not h
        }  # fmt: skip
