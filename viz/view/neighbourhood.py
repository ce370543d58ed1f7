"""Parts of a picture: what lies within a few steps of one node, along any kind of edge and in both directions; or chosen nodes."""

from __future__ import annotations

from deepx_graph.errors import UsageError, printable, suggest
from deepx_graph.viz.view.model import View


def around(view: View, node: str, depth: int = 2) -> View:
    """The nodes at most `depth` edges away from those called `node`: a name of the source, or an address such as `#17`.

    Raises UsageError, with the nearest name, when no node is called so, or when `depth` is negative.
    """
    if depth < 0:
        raise UsageError(f"depth {depth} is negative")
    starts = [n.id for n in view.nodes if node and node in (n.name, n.address)]
    if not starts:
        near = suggest(node, dict.fromkeys(n.name for n in view.nodes if n.name))
        raise UsageError(f"no node '{printable(node)}' in the picture" + (f": {near}" if near else ""))
    beside: dict[int, list[int]] = {n.id: [] for n in view.nodes}
    for e in view.edges:
        beside[e.source].append(e.target)
        beside[e.target].append(e.source)
    seen, border = set(starts), starts
    for _ in range(depth):
        border = [k for k in dict.fromkeys(j for n in border for j in beside[n]) if k not in seen]
        seen.update(border)
    left = len(view.nodes) - len(seen)
    return view.only(seen).noted(f"around {printable(node)}, {depth} steps: {left:,} more nodes are not drawn") if left else view


def chosen(view: View, addresses: frozenset[str]) -> View:
    """The boxes of these nodes, those inside their kernels, and the parameters and results beside them."""
    keep = {n.id for n in view.nodes if n.address in addresses or n.address.rpartition(".")[0] in addresses}
    left = sum(n.size for n in view.nodes) - len(keep)
    return view.only(keep).noted(f"{left:,} more nodes are not drawn") if left else view
