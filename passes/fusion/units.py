"""The units that fusion works with: kernels in the making and the single nodes between them, and how they depend on each other.

Constants, parameters and what is seen through (`iteration_space.Link`) are no units: their users are given them, or copies.
Here is what is true of the graph; what may join is decided in `grouping`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from deepx_graph.analysis.code_motion import Placement
from deepx_graph.analysis.liveness import liveness
from deepx_graph.analysis.scopes import Scope
from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.passes.fusion.iteration_space import Link, Links, Space, Vocabulary, space_of
from deepx_graph.passes.fusion.reason import Kind

REACH = 100
"""How many units a search visits before it gives up."""

U = TypeVar("U")


class Blocked(Exception):
    """Two units cannot merge. `through` is the unit on a path between them; None when the search gave up."""

    def __init__(self, through: object | None) -> None:
        super().__init__()
        self.through = through


class Order(Generic[U]):
    """`position[unit]` increases along every edge. Units are compared by identity."""

    def __init__(self, before: Callable[[U], Iterable[U]], after: Callable[[U], Iterable[U]]) -> None:
        self.position: dict[U, int] = {}
        self._before, self._after = before, after

    def append(self, unit: U) -> None:
        """Puts a unit last."""
        self.position[unit] = len(self.position)

    def merge(self, first: U, second: U) -> int:
        """The position for the union of two units, `first` standing before `second`; others may move.

        The caller puts the union there and removes the two. Raises Blocked when a path leads from the one to the other
        through a third, and then nothing has changed.
        """
        low, high = self.position[first], self.position[second]
        if all(u is first or self.position[u] < low for u in self._before(second)):
            return low
        if all(u is second or self.position[u] > high for u in self._after(first)):
            return high
        behind = self._between(second, first, self._before)
        ahead = self._between(first, second, self._after)
        if behind is None or ahead is None:
            raise Blocked(None)
        return self._arrange(behind, ahead, first, second)

    def _between(self, start: U, goal: U, step: Callable[[U], Iterable[U]]) -> list[U] | None:
        """The units reached from `start` on this side of `goal`, which may be met at the first step only; None for too many."""
        low, high = sorted((self.position[start], self.position[goal]))
        found = {u: None for u in step(start) if u is not goal and low < self.position[u] < high}
        stack = list(found)
        while stack:
            unit = stack.pop()
            for u in step(unit):
                if u is goal:
                    raise Blocked(unit)
                if u not in found and low < self.position[u] < high:
                    found[u] = None
                    stack.append(u)
            if len(found) > REACH:
                return None
        return sorted(found, key=self.position.__getitem__)

    def _arrange(self, behind: list[U], ahead: list[U], first: U, second: U) -> int:
        """What the union needs goes before it, what needs it after."""
        pool = sorted(self.position[u] for u in (*behind, *ahead, first, second))
        for unit, at in zip(behind, pool, strict=False):
            self.position[unit] = at
        for unit, at in zip(reversed(ahead), reversed(pool), strict=False):
            self.position[unit] = at
        return pool[len(behind)]

    def replace(self, old: Iterable[U], new: U, position: int) -> None:
        """`new` stands at `position`, for the `old` units."""
        for unit in old:
            self.position.pop(unit, None)
        self.position[new] = position


_WORDS = {"branch": "a branch of", "header": "the test of", "body": "the body of", "once": "the first iteration of"}


def scopes_of_nodes(function: Function) -> dict[Node, Scope]:
    """The scope of every node that is needed and not known from the start, as parameters, constants and loop variables are."""
    return Placement(function, liveness(function)).home


def describe_scope(scope: Scope) -> str:
    """A scope in words: `in the body of loop_end #12`."""
    if scope.owner is None:
        return "at the top level"
    owner = scope.owner
    at = f" at {owner.span}" if owner.span else ""
    return f"in {_WORDS[scope.kind]} {owner.op.name} {owner.name or '#' + str(owner.serial)}{at}"


class Group:
    """A kernel in the making. `copies` are nodes computed here and elsewhere; `inputs` maps what it is given to its root."""

    __slots__ = ("copies", "inputs", "members", "scope", "space", "views")

    def __init__(self, members: list[Node], space: Space, scope: Scope) -> None:
        self.members, self.space, self.scope = members, space, scope
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
        self.scopes = scopes_of_nodes(function)
        self.group_of: dict[Node, Group] = {}
        self.roots: dict[Node, tuple[Node, ...]] = {}
        self.users: dict[Node, list[Node]] = {}
        self.order: Order[Unit] = Order(self.before, self._after)
        for node in function.nodes:
            self._enter(node)

    def unfit(self, node: Node) -> Kind | None:
        """Why no kernel holds the node; None when one may."""
        kind = self.vocabulary.unfit(node)
        return Kind.DEAD if kind is None and node not in self.scopes else kind

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
            group = self.group_of[node] = Group([node], space_of(node), self.scopes[node])
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
