"""Two programs in one picture, what differs in colours.

A page shows them side by side. Any other form shows one graph: what is in both once, what is in one only beside it, in red what the
first alone has, in green what the second alone has, in amber what is in another way in both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deepx_graph.files import write_file
from deepx_graph.ir import Module, Node
from deepx_graph.session.report.diff import Kind, diff, pairs
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import PageOptions, PageProgram, explore
from deepx_graph.viz.draw import Drawing, write_view
from deepx_graph.viz.view.builder import forward_order
from deepx_graph.viz.view.model import View, ViewEdge, ViewNode

MEANING = "red: only in the first; green: only in the second; amber: not the same in both"

Named = tuple[str, Module]


def compared(a: Named, b: Named, path: str) -> Drawing:
    """The picture, written to `path`; its suffix is the form. Raises UsageError for a suffix that is none."""
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix == "html":
        drawn = explore([(name, Session(module)) for name, module in (a, b)], title=f"{a[0]} and {b[0]}")
    else:
        drawn = write_view(both(a, b), suffix)
    write_file(Path(path), drawn.data)
    return drawn


def both(a: Named, b: Named) -> View:
    """One view of two programs; the boxes of the first that are also in the second are drawn once, as they are in the second."""
    first, second = (PageProgram(name, Session(module), PageOptions(collapse=True)) for name, module in (a, b))
    partner = pairs(a[1], b[1])
    for change in diff(a[1], b[1]).changes:
        for node, side in ((change.before, first), (change.after, second)):
            if node is not None:
                side.differs(node, change.kind, change.text)
    merged = _merged(first, second, partner)
    shift = len(second.view.nodes)
    alone = [n for n in first.view.nodes if n.id not in merged]
    number = merged | {n.id: shift + k for k, n in enumerate(alone)}
    nodes = [_marked(n, n.id, second, {"changed": "changed"}, "added") for n in second.view.nodes]
    frames = {c.kind: c.id for c in reversed(second.view.clusters) if c.parent is None}
    for n in alone:
        nodes.append(replace(_marked(n, number[n.id], first, {}, "removed"), cluster=frames.get("function")))
    edges = dict.fromkeys(second.view.edges)
    for e in first.view.edges:
        s, t = number[e.source], number[e.target]
        if s >= shift or t >= shift:
            edges.setdefault(ViewEdge(s, t, e.kind, e.label))
    return _in_order(nodes, list(edges), replace(second.view, title=f"{a[0]} -> {b[0]}").noted(MEANING))


def _merged(first: PageProgram, second: PageProgram, partner: dict[Node, Node]) -> dict[int, int]:
    """Boxes of the first program that are boxes of the second: nodes by pairs, control and results by what they are called."""
    found: dict[int, int] = {}
    for id, (_, (node, inside)) in first.nodes.items():
        other = partner.get(node)
        if other is not None and (other, inside) in second.ids:
            found[id] = second.ids[other, inside]
    there: dict[tuple[str, str, int], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for view, put in ((second.view, True), (first.view, False)):
        seen.clear()
        for n in view.nodes:
            if n.address:
                continue
            k = seen[n.kind, n.title] = seen.get((n.kind, n.title), -1) + 1
            if put:
                there[n.kind, n.title, k] = n.id
            elif (n.kind, n.title, k) in there:
                found[n.id] = there[n.kind, n.title, k]
    return found


def _marked(n: ViewNode, id: int, side: PageProgram, kinds: dict[str, Kind], alone: Kind) -> ViewNode:
    """The box with how it differs."""
    key = side.nodes.get(n.id)
    kind, how = side.diffs.get(key[1][0], ("", "")) if key is not None else ("", "")
    if not kind:
        return replace(n, id=id, change=alone if alone == "removed" else "")
    return replace(n, id=id, change=kinds.get(kind, alone), tooltip=f"{n.tooltip}\n{how}")


def _in_order(nodes: list[ViewNode], edges: list[ViewEdge], like: View) -> View:
    """The view with nodes in an order in which edges go forward."""
    order = forward_order(len(nodes), edges)
    place = {old: new for new, old in enumerate(order)}
    ordered = tuple(replace(nodes[old], id=new) for new, old in enumerate(order))
    moved = tuple(replace(e, source=place[e.source], target=place[e.target]) for e in edges)
    return replace(like, nodes=ordered, edges=moved)
