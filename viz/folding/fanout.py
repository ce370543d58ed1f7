"""Parameters and constants that feed very many boxes: named in those boxes instead of drawn as a fan of long edges.

Such fans hide the graph behind them, and the time of a layout engine grows with the length of all edges together.
"""

from __future__ import annotations

from dataclasses import replace

from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import View

USERS = 12
"""A parameter or constant with more edges than this is a hub."""


def inline_hubs(view: View, users: int = USERS) -> View:
    """The view with hubs written into their users as `takes x`, and a note that says so; itself when there is none."""
    fans: dict[int, int] = {}
    for e in view.edges:
        fans[e.source] = fans.get(e.source, 0) + 1
    hubs = {n.id: n.title for n in view.nodes if n.kind in ("param", "constant") and fans.get(n.id, 0) > users}
    if not hubs:
        return view
    taken: dict[int, dict[str, None]] = {}
    for e in view.edges:
        if e.source in hubs:
            taken.setdefault(e.target, {})[hubs[e.source]] = None
    nodes = tuple(
        replace(n, subtitle=f"{n.subtitle}\n{short('takes ' + ', '.join(taken[n.id]))}".strip()) if n.id in taken
        else replace(n, subtitle=f"{n.subtitle}\nfeeds {fans[n.id]} boxes".strip()) if n.id in hubs else n
        for n in view.nodes
    )  # fmt: skip
    edges = tuple(e for e in view.edges if e.source not in hubs)
    names = short(", ".join(hubs.values()), 60)
    return replace(view, nodes=nodes, edges=edges).noted(f"{names}: written into the boxes that take it, not drawn as edges")
