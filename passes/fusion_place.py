"""Where nodes will run, as far as fusion must know: two nodes of one place may share a kernel.

The rule is that of global code motion (docs/architecture.md): a node's latest place is the lowest common ancestor of its uses; it
leaves a loop it does not depend on, and otherwise stays in the deepest branch. Nodes fused within one place leave everything where
it was, so no work enters a loop and no untaken branch runs. A branch value or loop variable that nobody reads has no place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION, branch_width


class Place:
    """A block of code: the top level, a branch, the test of a loop, its body, or the part of a body that runs once."""

    __slots__ = ("depth", "jump", "kind", "loop", "onces", "owner", "parent")

    def __init__(self, kind: Literal["top", "branch", "test", "body", "once"], parent: Place | None, owner: Node | None,
                 loop: Node | None) -> None:
        self.kind, self.owner, self.loop = kind, owner, loop
        self.parent: Place = self if parent is None else parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.onces: dict[Node | None, Place] = {}
        # A second, longer way up, so that a walk of n levels takes log n steps (Myers, An applicative random-access stack).
        above, far = self.parent, self.parent if parent is None else self.parent.jump
        self.jump: Place = above if parent is None or above.depth - far.depth != far.depth - far.jump.depth else far.jump

    def once(self, loop: Node | None) -> Place:
        """The part of this place that runs again only when `loop` goes round."""
        if loop not in self.onces:
            self.onces[loop] = Place("once", self, self.owner, loop)
        return self.onces[loop]

    def __str__(self) -> str:
        if self.owner is None:
            return "at the top level"
        what = "the first turn of" if self.kind == "once" else f"the {self.kind} of"
        at = f" at {self.owner.span}" if self.owner.span else ""
        return f"in {what} {self.owner.op.name} {self.owner.name or '#' + str(self.owner.serial)}{at}"


def _common(a: Place, b: Place) -> Place:
    """The lowest common ancestor."""
    if a.depth < b.depth:
        a, b = b, a
    while a.depth > b.depth:
        a = a.jump if a.jump.depth >= b.depth else a.parent
    while a is not b:
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a


def places(function: Function) -> dict[Node, Place]:
    """The place of every node that is needed, parameters and constants left out."""
    top = Place("top", None, None, None)
    if not any(n.op is REGION or n.op is LOOP_END for n in function.nodes):
        return {n: top for n in function.nodes if n.op is not PARAM and n.op is not CONSTANT}
    return _Placement(function, top).place


class _Placement:
    """The latest places, computed users first."""

    def __init__(self, function: Function, top: Place) -> None:
        self.ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
        self.columns: dict[Node, set[int]] = {}
        live = self._live(function)
        order = [n for n in function.nodes if n in live]
        self._above: dict[Node, set[Node]] = {}
        self.innermost: dict[Node, Node | None] = {}
        for node in order:
            self._find_loop(node)
        self.late: dict[Node, Place] = dict.fromkeys(function.results, top)
        self.place: dict[Node, Place] = {}
        for node in reversed(order):
            loop_phi = node.op is PHI and node.inputs[0].op is LOOP_BEGIN
            if node.op is not PARAM and node.op is not CONSTANT and node.op is not LOOP_BEGIN and not loop_phi:
                self._put(node)

    # --- what is needed

    def _live(self, function: Function) -> set[Node]:
        live: set[Node] = set()
        stack = list(function.results)
        while stack:
            node = stack.pop()
            control = self._control(node)
            if control is None or control is not node:
                if node in live:
                    continue
                live.add(node)
            if control is None:
                stack.extend(node.inputs)
                continue
            wanted = (node.attrs[0],) if control is not node else range(_width(control))
            stack.extend(self._read(control, wanted, live))
        return live

    def _control(self, node: Node) -> Node | None:
        """The region or loop_end that a node is, or of which it reads a value."""
        if node.op is REGION or node.op is LOOP_END:
            return node
        if node.op is not PHI and node.op is not PROJ:
            return None
        source = node.inputs[0]
        if source.op is LOOP_BEGIN:
            return self.ends.get(source)
        return source if source.op is REGION or source.op is LOOP_END else None

    def _read(self, control: Node, wanted: tuple[int, ...] | range, live: set[Node]) -> Iterator[Node]:
        read = self.columns.setdefault(control, set())
        for k in wanted:
            if k not in read:
                read.add(k)
                yield from self._column(control, k)
        if control not in live:
            live.add(control)
            if control.op is LOOP_END:
                live.add(control.inputs[0])
            yield control.inputs[1 if control.op is LOOP_END else 0]

    def _column(self, control: Node, k: int) -> tuple[Node, ...]:
        if control.op is LOOP_END:
            return control.inputs[2 + k], control.inputs[0].inputs[k]
        return control.inputs[1 + k :: _width(control)]

    def _needed(self, node: Node) -> Iterator[Node]:
        """The operands that count."""
        if node.op is REGION:
            yield node.inputs[0]
            for k in self.columns[node]:
                yield from node.inputs[1 + k :: _width(node)]
        elif node.op is LOOP_END:
            yield node.inputs[1]
            yield from (node.inputs[2 + k] for k in self.columns[node])
        elif node.op is LOOP_BEGIN:
            yield from (node.inputs[k] for k in self.columns[self.ends[node]])
        else:
            yield from node.inputs

    # --- the loops that nodes depend on; the innermost one stands for all, as they nest

    def _find_loop(self, node: Node) -> None:
        inner: Node | None = None
        for i in self._needed(node):
            inner = self._join(inner, self.innermost[i])
        if node.op is PHI and node.inputs[0].op is LOOP_BEGIN:
            inner = self._join(inner, self.ends[node.inputs[0]])
        if node.op is LOOP_END:
            self._join(self._join(inner, self.innermost[node.inputs[0]]), node)
            inner = self._around(node)
        self.innermost[node] = inner

    def _join(self, a: Node | None, b: Node | None) -> Node | None:
        """The inner one of two loops: that which closes first."""
        if a is b or b is None or a is None:
            return a or b
        inner, outer = (a, b) if a.serial < b.serial else (b, a)
        self._above.setdefault(inner, set()).add(outer)
        return inner

    def _around(self, end: Node) -> Node | None:
        above = self._above.pop(end, set())
        parent = min(above, key=lambda n: n.serial, default=None)
        if parent is not None and len(above) > 1:
            above.discard(parent)
            further = self._above.get(parent, set())
            small, large = (above, further) if len(above) < len(further) else (further, above)
            large |= small
            self._above[parent] = large
        return parent

    # --- places

    def _put(self, node: Node) -> None:
        home, place = self.innermost[node], self.late[node]
        while place.loop is not home and place.kind == "test":
            place = place.parent
        if place.loop is not home:
            place = place.once(home)
        self.place[node] = place
        if node.op is REGION:
            self._use(node.inputs[0], place)
            for branch in range(node.attrs[0]):
                inside = Place("branch", place, node, place.loop)
                for k in self.columns[node]:
                    self._use(node.inputs[1 + branch * _width(node) + k], inside)
        elif node.op is LOOP_END:
            test = Place("test", place, node, node)
            body = Place("body", test, node, node)
            self._use(node.inputs[1], test)
            for k in self.columns[node]:
                self._use(node.inputs[0].inputs[k], place)
                self._use(node.inputs[2 + k], body)
        else:
            for i in node.inputs:
                self._use(i, place)

    def _use(self, node: Node, at: Place) -> None:
        known = self.late.get(node)
        self.late[node] = at if known is None or known is at else _common(known, at)


def _width(control: Node) -> int:
    """How many values a region or loop has."""
    return len(control.inputs) - 2 if control.op is LOOP_END else branch_width(len(control.inputs), control.attrs[0])
