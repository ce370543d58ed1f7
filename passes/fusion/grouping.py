"""Grouping: which nodes of a function run in which kernel.

One pass over the nodes in order. A node joins the kernels of what it reads, the latest first; where none takes it, one that
shares an input of full size. `Grouping.join` is the only place that decides, and it answers with the `Reason` that `why` shows.
Groups are convex (`Order`), keep to one scope of the schedule and one space (`iteration_space`), and stay within the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.ops import reduce
from deepx_graph.passes.fusion.iteration_space import Space, Vocabulary, dims, joined, misfit, space_of
from deepx_graph.passes.fusion.reason import Kind, Reason
from deepx_graph.passes.fusion.units import REACH, Blocked, Group, Units, describe_scope


@dataclass(frozen=True)
class Limits:
    """Bounds on one kernel, and what fusion may do."""

    max_ops: int = 200
    max_inputs: int = 32
    reductions: bool = True
    duplicate: bool = False


class Grouping(Units):
    """The groups of a function. `group_of[node]` for every node that a kernel may hold; `declined` when `record` is on."""

    def __init__(self, function: Function, limits: Limits, record: bool = False) -> None:
        super().__init__(function, Vocabulary(limits.reductions))
        self.limits = limits
        self.declined: dict[tuple[Node, Node], Reason] | None = {} if record else None
        self._latest: dict[Node, Node] = {}
        for node in function.nodes:
            if node in self.group_of:
                self._place(node)

    # --- the greedy pass

    def _place(self, node: Node) -> None:
        makers = [r for r in self.roots[node] if r in self.group_of]
        for maker in sorted(makers, key=lambda r: -self.order.position[self.group_of[r]]):
            reason = self.join(maker, node)
            if reason is not None and self._copy(maker, node):
                reason = None
            self._record(maker, node, reason)
        keys = self._shared_keys(node)
        shared = [self._latest[k] for k in keys if k in self._latest]
        for other in shared if len(self.group_of[node].members) == 1 else ():
            reason = self.join(other, node)
            self._record(other, node, reason)
            if reason is None:
                break
        self._latest.update(dict.fromkeys(keys, node))

    def _shared_keys(self, node: Node) -> list[Node]:
        """Inputs of full size, worth being read once for several users."""
        full = space_of(node).full
        return [k.key for k in self.links.of(node) if k.root.op is not CONSTANT and dims(k.key) == full]

    def _record(self, a: Node, b: Node, reason: Reason | None) -> None:
        if self.declined is not None and reason is not None:
            self.declined[a, b] = reason

    def join(self, a: Node, b: Node) -> Reason | None:
        """Merges the groups of two nodes, `a` older than `b`; or says why they stay apart and leaves them so."""
        g, h = self.group_of[a], self.group_of[b]
        if g is h:
            return None
        reason = self.obstacle(g, h, a, b)
        if reason is not None:
            return self._told(a, b, reason)
        first, second = (g, h) if self.order.position[g] < self.order.position[h] else (h, g)
        try:
            position = self.order.merge(first, second)
        except Blocked as e:
            if e.through is None:
                return Reason(Kind.TOO_FAR, (a, b), f"more than {REACH} nodes")
            through = e.through.members[-1] if isinstance(e.through, Group) else e.through
            assert isinstance(through, Node)
            return Reason(Kind.CYCLE, (a, b, through) if first is g else (b, a, through))
        self._merge(g, h, position)
        return None

    def obstacle(self, g: Group, h: Group, a: Node, b: Node) -> Reason | None:
        """What, apart from order, keeps the work of `g` (with `a` in it) and `h` (with `b`) out of one kernel."""
        if g.scope is not h.scope:
            return Reason(Kind.CONTROL, (a, b), f"{describe_scope(g.scope)}, and {b.name or b.op.name} {describe_scope(h.scope)}")
        space = self._joint(g, h)
        if isinstance(space, Kind):
            return Reason(space, (a, b), f"{g.space} and {h.space}")
        ops = g.ops + h.ops
        if ops > self.limits.max_ops:
            return Reason(Kind.OPS, (a, b), f"{ops} operations of at most {self.limits.max_ops}")
        inputs = len(self.union(g, h))
        if inputs > self.limits.max_inputs:
            return Reason(Kind.INPUTS, (a, b), f"{inputs} inputs of at most {self.limits.max_inputs}")
        return self._misfit(g, h, space)

    def _joint(self, g: Group, h: Group) -> Space | Kind:
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
        if others or first.op is not reduce or group.views:
            return False
        return all(dims(link.operand) != group.space.full for user in self.users.get(first, ()) if user in self.group_of
                   for link in self.links.of(user) if link.root is first)

    def _misfit(self, g: Group, h: Group, space: Space) -> Reason | None:
        for source, target in ((g, h), (h, g)):
            for link, user in self.crossing(source, target):
                kind = misfit(link, user, space)
                if kind is not None:
                    return Reason(kind, (link.root, user), f"{link.operand.type} in a kernel over {space}")
            if space != source.space and dims(source.members[0]) == space.kept != space.full and source.views:
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
        if not self.limits.duplicate or not self._fits_alone(a, b):
            return False
        alone, group = self._alone(a), self.group_of[b]
        space = joined(alone.space, group.space)
        assert isinstance(space, Space)
        group.inputs, group.space = self.union(alone, group), space
        group.copies |= {a}
        group.views |= alone.views
        return True

    def _merge(self, g: Group, h: Group, position: int) -> None:
        small, large = (g, h) if len(g.members) < len(h.members) else (h, g)
        space = self._joint(g, h)
        assert isinstance(space, Space)
        large.inputs, large.space = self.union(g, h), space
        large.members += small.members
        large.copies = (g.copies | h.copies).difference(large.members) if g.copies or h.copies else large.copies
        large.views |= small.views
        for node in small.members:
            self.group_of[node] = large
        self.order.replace((g, h), large, position)
