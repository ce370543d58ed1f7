"""Grouping: which nodes of a function run in which kernel.

One pass over the nodes in order. A node joins the kernels of what it reads, the latest first; where none takes it, one that
shares an input of full size. `Grouping.join` is the only place that decides, and it answers with the `Reason` that `why` shows.
Groups are convex (`Order`), keep to one scope of the schedule and one space (`iteration_space`), and stay within the bounds of
the pass. Its units are the groups and the single nodes between them. Constants, parameters and what is seen through (`Link`)
are no units: their users are given them, or copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from deepx_graph.analysis.liveness import liveness
from deepx_graph.analysis.scopes import Placement, Scope
from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import reduced_axes
from deepx_graph.passes.fusion.iteration_space import Link, Links, Space, Vocabulary, dims, full_shape, joined, misfit, space_of
from deepx_graph.passes.fusion.reason import Kind, Reason

REACH = 100
"""How many units a search visits before it gives up."""

U = TypeVar("U")
Neighbours = Callable[[U], Iterable[U]]


class Blocked(Exception):
    """Two units cannot merge. `through` is the unit on a path between them; None when the search gave up."""

    def __init__(self, through: object | None) -> None:
        super().__init__()
        self.through = through


class Order(Generic[U]):
    """`position[unit]` increases along every edge. Units are compared by identity."""

    def __init__(self) -> None:
        self.position: dict[U, int] = {}

    def append(self, unit: U) -> None:
        """Puts a unit last."""
        self.position[unit] = len(self.position)

    def merge(self, first: U, second: U, before: Neighbours[U], after: Neighbours[U]) -> int:
        """The position for the union of two units, `first` standing before `second`; others may move. `before` and `after` give
        those at the other end of a unit's edges.

        The caller puts the union there and removes the two. Raises Blocked when a path leads from the one to the other
        through a third, and then nothing has changed.
        """
        position = self.position
        low, high = position[first], position[second]
        if all(u is first or position[u] < low for u in before(second)):
            return low
        if all(u is second or position[u] > high for u in after(first)):
            return high
        behind = self._between(second, first, before)
        ahead = self._between(first, second, after)
        if behind is None or ahead is None:
            raise Blocked(None)
        return self._arrange(behind, ahead, first, second)

    def _between(self, start: U, goal: U, step: Neighbours[U]) -> list[U] | None:
        """The units reached from `start` on this side of `goal`, which may be met at the first step only; None for too many."""
        position = self.position
        low, high = sorted((position[start], position[goal]))
        found = {u: None for u in step(start) if u is not goal and low < position[u] < high}
        stack = list(found)
        while stack:
            unit = stack.pop()
            for u in step(unit):
                if u is goal:
                    raise Blocked(unit)
                if low < position[u] < high and u not in found:
                    found[u] = None
                    stack.append(u)
            if len(found) > REACH:
                return None
        return sorted(found, key=position.__getitem__)

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


class Bounds(Protocol):
    """What a kernel may hold."""

    @property
    def max_ops(self) -> int:
        """Operations."""

    @property
    def max_inputs(self) -> int:
        """Operands from outside."""

    @property
    def reductions(self) -> bool:
        """Whether it may reduce."""

    @property
    def duplicate(self) -> bool:
        """Whether cheap operations are computed again in each kernel that needs them."""


class Joint(NamedTuple):
    """What the kernel of two groups goes through, and what it is given."""

    space: Space
    inputs: dict[Node, Node]


class Grouping:
    """The units of a function in their order, joined to groups. `group_of[node]` for every node that a kernel may hold, at first
    one each; `declined` when `record` is on. `bounds` are those of a kernel."""

    def __init__(self, function: Function, bounds: Bounds, record: bool = False) -> None:
        self.function, self.bounds = function, bounds
        self.vocabulary, self.links = Vocabulary(bounds.reductions), Links()
        self.scopes = Placement(function, liveness(function), hoists=True).home
        self.group_of: dict[Node, Group] = {}
        self.roots: dict[Node, tuple[Node, ...]] = {}
        self.users: dict[Node, list[Node]] = {}
        self.order: Order[Unit] = Order()
        self.declined: dict[tuple[Node, Node], Reason] | None = {} if record else None
        self._latest: dict[Node, Node] = {}
        for node in function.nodes:
            self._enter(node)
        for node in function.nodes:
            if node in self.group_of:
                self._assign(node)

    # --- units

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
        found = [k.root for k in links if k.root.op is not PARAM and k.root.op is not CONSTANT]
        roots = self.roots[node] = tuple(found if len(found) < 2 else dict.fromkeys(found))
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
        group_of, roots, copies = self.group_of, self.roots, unit.copies
        for node in (*unit.members, *copies):
            for root in roots[node]:
                if root not in copies and (other := group_of.get(root, root)) is not unit:
                    yield other

    def _after(self, unit: Unit) -> Iterator[Unit]:
        return self._reading((unit,) if isinstance(unit, Node) else unit.members, unit)

    def readers(self, node: Node) -> Iterator[Unit]:
        """The other units that need the value of the node."""
        return self._reading((node,), self.unit(node))

    def _reading(self, nodes: Iterable[Node], unit: Unit) -> Iterator[Unit]:
        """The units beside their own that need the values of the nodes, some of them several times."""
        group_of, users = self.group_of, self.users
        for node in nodes:
            for user in users.get(node, ()):
                other = group_of.get(user, user)
                if other is not unit and not (isinstance(other, Group) and node in other.copies):
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
        owner_of = self.group_of.get
        return {
            k: r for k, r in (g.inputs | h.inputs).items()
            if (owner := owner_of(r)) is not g and owner is not h and r is not alone and r not in copies
        }  # fmt: skip

    # --- the greedy pass

    def _assign(self, node: Node) -> None:
        makers = [r for r in self.roots[node] if r in self.group_of]
        if len(makers) > 1:
            makers.sort(key=lambda r: -self.order.position[self.group_of[r]])
        for maker in makers:
            reason = self.join(maker, node)
            if reason is not None and self._copy(maker, node):
                reason = None
            self._record(maker, node, reason)
        keys, latest = self._shared_keys(node), self._latest
        if len(self.group_of[node].members) == 1:
            for other in [latest[k] for k in keys if k in latest]:
                reason = self.join(other, node)
                self._record(other, node, reason)
                if reason is None:
                    break
        for key in keys:
            latest[key] = node

    def _shared_keys(self, node: Node) -> list[Node]:
        """Inputs of full size, worth being read once for several users."""
        full = full_shape(node)
        return [key for link in self.links.of(node) if link.root.op is not CONSTANT and dims(key := link.key) == full]

    def _record(self, a: Node, b: Node, reason: Reason | None) -> None:
        if self.declined is not None and reason is not None:
            self.declined[a, b] = reason

    def join(self, a: Node, b: Node) -> Reason | None:
        """Merges the groups of two nodes, `a` older than `b`; or says why they stay apart and leaves them so."""
        g, h = self.group_of[a], self.group_of[b]
        if g is h:
            return None
        joint = self.joint(g, h, a, b)
        if isinstance(joint, Reason):
            return joint if self.declined is None else self._told(a, b, joint)
        first, second = (g, h) if self.order.position[g] < self.order.position[h] else (h, g)
        try:
            position = self.order.merge(first, second, self.before, self._after)
        except Blocked as e:
            if e.through is None:
                return Reason(Kind.TOO_FAR, (a, b), f"more than {REACH} nodes")
            through = e.through.members[-1] if isinstance(e.through, Group) else e.through
            assert isinstance(through, Node)
            return Reason(Kind.CYCLE, (a, b, through) if first is g else (b, a, through))
        self._merge(g, h, joint, position)
        return None

    def joint(self, g: Group, h: Group, a: Node, b: Node) -> Joint | Reason:
        """The kernel of `g` (with `a` in it) and `h` (with `b`), or what, apart from order, keeps their work apart."""
        if g.scope is not h.scope:
            return Reason(Kind.CONTROL, (a, b), f"{describe_scope(g.scope)}, and {b.name or b.op.name} {describe_scope(h.scope)}")
        space = self._space(g, h)
        if isinstance(space, Kind):
            return Reason(space, (a, b), f"{g.space} and {h.space}")
        ops = g.ops + h.ops
        if ops > self.bounds.max_ops:
            return Reason(Kind.OPS, (a, b), f"{ops} operations of at most {self.bounds.max_ops}")
        inputs = self.union(g, h)
        if len(inputs) > self.bounds.max_inputs:
            return Reason(Kind.INPUTS, (a, b), f"{len(inputs)} inputs of at most {self.bounds.max_inputs}")
        return self._misfit(g, h, space) or Joint(space, inputs)

    def obstacle(self, g: Group, h: Group, a: Node, b: Node) -> Reason | None:
        """Why `joint` finds no kernel; None where it does."""
        found = self.joint(g, h, a, b)
        return found if isinstance(found, Reason) else None

    def _space(self, g: Group, h: Group) -> Space | Kind:
        """The space of both; a reduction over other axes may join when nothing would read it there."""
        space = joined(g.space, h.space)
        if space is Kind.AXES and g.space.full == h.space.full:
            for end, other in ((h, g), (g, h)):
                if self._is_end(end):
                    assert end.space.axes is not None
                    return replace(other.space, ends=other.space.ends | {end.space.axes})
        return space

    def _is_end(self, group: Group) -> bool:
        """A reduction alone whose result goes nowhere but out, or into something smaller."""
        (first, *others) = group.members
        if others or reduced_axes(first) is None or group.views:
            return False
        return all(dims(link.operand) != group.space.full for user in self.users.get(first, ()) if user in self.group_of
                   for link in self.links.of(user) if link.root is first)

    def _misfit(self, g: Group, h: Group, space: Space) -> Reason | None:
        if space.axes is None and not g.views and not h.views:  # every value has the full shape and is read element by element
            return None
        for source, target in ((g, h), (h, g)):
            for link, user in self.crossing(source, target):
                kind = misfit(link, user, space)
                if kind is not None:
                    return Reason(kind, (link.root, user), f"{link.operand.type} in a kernel over {space}")
            if source.views and space != source.space and dims(source.members[0]) == space.kept != space.full:
                # In the kernel, rows have no axes of size 1, and what is repeated along them would have no place.
                return Reason(Kind.BROADCAST, (source.members[0], target.members[0]), f"rows of {space} from broadcasts")
        return None

    def _told(self, a: Node, b: Node, reason: Reason) -> Reason:
        """The reason; or that `a`, which would fit, has been taken by another user and is not to be computed twice."""
        if self._fits_alone(a, b) and len(self.group_of[a].members) > 1:
            return Reason(Kind.SEVERAL_USERS, (a, b), reason.kind.value)
        return reason

    # --- computing a cheap node twice

    def _fits_alone(self, a: Node, b: Node) -> bool:
        """`a` is cheap, needed elsewhere too, and by itself would fit into the group of `b`, which reads it."""
        if a not in self.roots[b] or not self.vocabulary.is_cheap(a):
            return False
        if len(self.users[a]) < 2 and a not in self.function.results:
            return False
        return self.obstacle(self._alone(a), self.group_of[b], a, b) is None

    def _alone(self, node: Node) -> Group:
        alone = Group([node], space_of(node), self.scopes[node])
        self.read(alone, self.links.of(node))
        return alone

    def _copy(self, a: Node, b: Node) -> bool:
        if not self.bounds.duplicate or not self._fits_alone(a, b):
            return False
        alone, group = self._alone(a), self.group_of[b]
        space = joined(alone.space, group.space)
        assert isinstance(space, Space)
        group.inputs, group.space = self.union(alone, group), space
        group.copies |= {a}
        group.views |= alone.views
        return True

    def _merge(self, g: Group, h: Group, joint: Joint, position: int) -> None:
        small, large = (g, h) if len(g.members) < len(h.members) else (h, g)
        large.space, large.inputs = joint
        large.members += small.members
        large.copies = (g.copies | h.copies).difference(large.members) if g.copies or h.copies else large.copies
        large.views |= small.views
        for node in small.members:
            self.group_of[node] = large
        self.order.replace((g, h), large, position)
