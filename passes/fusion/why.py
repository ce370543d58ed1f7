"""Why two nodes do, or do not, run in one kernel.

`explain` fuses the function as `fuse` would, with every refusal recorded, and reads the answer off; where fusion never compared
the two it asks the same questions now. The reasons are a closed list (`Kind`). Nothing is changed and nothing printed.
"""

from __future__ import annotations

from dataclasses import replace

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.grouping import Group, Grouping, Unit
from deepx_graph.passes.fusion.iteration_space import dims
from deepx_graph.passes.fusion.reason import Kind, Reason

__all__ = ["Kind", "Reason", "decision", "explain", "find_node"]


def find_node(module: Module, text: str) -> tuple[Function, Node]:
    """The node a user means: `name` (its last value), `name#k` (value k of that name), `#k` or `function#k` (node k of the entry or
    of that function). Names may begin with `%`; they are looked up in the entry first. Raises UsageError with the nearest.
    """
    text = text.removeprefix("%")
    owner, sign, number = text.rpartition("#")
    if sign and number.isdecimal() and (not owner or owner in module):
        function = module[owner] if owner else module.entry
        return function, _at(function.nodes, int(number), f"function '{function.name}'")
    functions = module.entry_first
    for function in functions:
        values = _named(function, text)
        if values:
            return function, values[-1]
    if sign and number.isdecimal():
        for function in functions:
            values = _named(function, owner)
            if values:
                return function, _at(values, int(number), f"'{owner}'")
    known = {n.name for f in functions for n in f.nodes} | {f.result_name(k) for f in functions for k in range(len(f.results))}
    count = len(module.entry.nodes)
    raise UsageError(Diagnostic(f"no node '{text}'", expected=f"a name, or a number from #0 to #{count - 1}",
                                hint=suggest(text, sorted(known - {""}))))  # fmt: skip


def _named(function: Function, name: str) -> list[Node]:
    found = [n for n in function.nodes if n.name == name] if name else []
    return found or [r for k, r in enumerate(function.results) if name and function.result_name(k) == name]


def _at(nodes: tuple[Node, ...] | list[Node], number: int, where: str) -> Node:
    if number >= len(nodes):
        raise UsageError(Diagnostic(f"no node #{number} in {where}", expected=f"a number from #0 to #{len(nodes) - 1}"))
    return nodes[number]


def explain(module: Module, a: str | Node, b: str | Node, options: Fuse | None = None) -> Reason:
    """Why `a` and `b` are, or are not, in one kernel under these options of `fuse`.

    Nodes are given as such or as `find_node` reads them; raises UsageError where it does.
    """
    f, x = _located(module, a)
    g, y = _located(module, b)
    if f is None or g is None:
        lost = x if f is None else y
        return Reason(Kind.DEAD, (lost,)).labelled(f or g or module.entry)
    if x is y:
        return Reason(Kind.SAME_NODE, (x,)).labelled(f)
    if f is not g:
        first, second = Reason(Kind.FUNCTIONS, (x,)).labelled(f), Reason(Kind.FUNCTIONS, (y,)).labelled(g)
        return replace(first, nodes=(x, y), labels=first.labels + second.labels)
    if x.serial > y.serial:
        x, y = y, x
    return decision(Grouping(f, options or Fuse(), record=True), x, y).labelled(f)


def _located(module: Module, node: str | Node) -> tuple[Function | None, Node]:
    if isinstance(node, str):
        return find_node(module, node)
    return next((f for f in module.functions if node in f.users), None), node


def decision(grouping: Grouping, x: Node, y: Node) -> Reason:
    """Why two nodes of one function, `x` the older, are or are not in one kernel of a grouping that recorded its refusals."""
    return _unfit(grouping, x, y) or _together(grouping, x, y) or _apart(grouping, x, y)


def _unfit(grouping: Grouping, x: Node, y: Node) -> Reason | None:
    """One of the two is nothing that a kernel computes as a member."""
    for node, other in ((x, y), (y, x)):
        kind = grouping.unfit(node)
        if kind is Kind.VIEW:
            return Reason(Kind.FUSED if _reads(grouping, other, node) else kind, (node, other))
        if kind is not None:
            return grouping.vocabulary.complaint(node, kind)
    return None


def _reads(grouping: Grouping, node: Node, view: Node) -> bool:
    """Whether the kernel of `node` has a copy of `view`."""
    group = grouping.group_of.get(node)
    return group is not None and any(k.operand is view for m in group.members for k in grouping.links.of(m))


def _together(grouping: Grouping, x: Node, y: Node) -> Reason | None:
    g, h = grouping.group_of[x], grouping.group_of[y]
    return Reason(Kind.FUSED, (x, y)) if g is h or x in h.copies or y in g.copies else None


def _apart(grouping: Grouping, x: Node, y: Node) -> Reason:
    """Two nodes of different kernels: what was decided about them, else about their kernels."""
    g, h = grouping.group_of[x], grouping.group_of[y]
    assert grouping.declined is not None
    told = grouping.declined.get((x, y))
    if told is None and g.scope is not h.scope:
        told = grouping.obstacle(g, h, x, y)
    told = told or _between(grouping, g, h) or _between(grouping, h, g) or _around(grouping, x, y) or _around(grouping, y, x)
    if told is None and any(k in h.inputs and dims(k) == g.space.full == h.space.full for k in g.inputs):
        told = grouping.obstacle(g, h, x, y) or Reason(Kind.BETTER_PARTNER, (x, y))
    return told or Reason(Kind.NOT_ADJACENT, (x, y))


def _between(grouping: Grouping, g: Group, h: Group) -> Reason | None:
    """The refusal on an edge from one kernel to the other."""
    assert grouping.declined is not None
    edges = ((root, m) for m in h.members for root in grouping.roots[m] if grouping.group_of.get(root) is g)
    return next((grouping.declined[e] for e in edges if e in grouping.declined), None)


def _around(grouping: Grouping, x: Node, y: Node) -> Reason | None:
    """When the kernel of `y` needs that of `x` by way of others: a cycle through what no kernel holds, else where it is cut."""
    goal, start = grouping.group_of[x], grouping.group_of[y]
    reader: dict[Unit, Unit] = {}
    stack: list[Unit] = [start]
    while stack and goal not in reader:
        unit = stack.pop()
        for before in grouping.before(unit):
            if before not in reader and before is not start:
                reader[before] = unit
                stack.append(before)
    if goal not in reader:
        return None
    path = [reader[goal]]
    while path[-1] is not start:
        path.append(reader[path[-1]])
    outside = next((u for u in path if isinstance(u, Node)), None)
    cut = _between(grouping, goal, path[0]) if isinstance(path[0], Group) else None
    if outside is not None or cut is None:
        through = outside or (path[0].members[-1] if isinstance(path[0], Group) else path[0])
        return Reason(Kind.CYCLE, (x, y, through))
    return cut
