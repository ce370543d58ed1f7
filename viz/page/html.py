"""One HTML file that shows graphs and needs nothing else: no server, no network, no other file.

What is shown is data, as JSON in a script element that is never run; only our own script runs, by its hash, and writes every text
as text. The policy of the page allows nothing else, so that no name in a file can become markup, a link or code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepx_graph.errors import printable
from deepx_graph.viz.page.scenes import Levels
from deepx_graph.viz.picture.dot import LEGEND
from deepx_graph.viz.picture.layered import Scene, path
from deepx_graph.viz.picture.style import HUES, THEMES, Theme, theme_named
from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import ViewNode

ASSETS = Path(__file__).parents[1] / "assets"
FAMILIES = (*HUES, "other")
"""Families with a colour of their own, and the rest."""

SCRIPTS = ("query.js", "graphs.js", "explorer.js")

Detail = Mapping[str, Any]
"""What is known of one node: `op`, `type`, ... for queries, `sections` for the inspector, numbers for overlays. Plain data."""


@dataclass(frozen=True)
class PageGraph:
    """One graph of a page, with what is known of its nodes by their ids in the view."""

    title: str
    levels: Levels
    details: Mapping[int, Detail] = field(default_factory=dict)
    note: str = ""
    """What is said of it beside the slider of a time line."""


@dataclass(frozen=True)
class Pairs:
    """Which nodes of one graph of the page are which of another."""

    first: int
    second: int
    nodes: Mapping[int, int]


def page(graphs: Sequence[PageGraph], title: str = "", *, theme: str = "auto", pairs: Sequence[Pairs] = (), timeline: bool = False,
         operations: Mapping[str, Any] | None = None) -> bytes:
    """The file. Several graphs stand side by side, or with `timeline` one after another. `operations` is what there is to tell of
    each operation. Raises UsageError for an unknown theme."""
    if theme != "auto":
        theme_named(theme)
    data = {
        "title": shown(title), "timeline": timeline, "graphs": [_graph(g) for g in graphs], "operations": operations or {},
        "kinds": dict(LEGEND),
        "pairs": [{"a": p.first, "b": p.second, "nodes": [*map(list, p.nodes.items())]} for p in pairs],
    }  # fmt: skip
    style = _colours() + (ASSETS / "explorer.css").read_text(encoding="utf-8")
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    text = (
        "<!DOCTYPE html>\n"
        f'<html lang="en" data-theme="{theme}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(printable(title or 'graph'))}</title>\n"
        f"<style>{style}</style></head><body>\n"
        "<noscript>This page draws its graph with a script of its own, which your browser does not run.</noscript>\n"
        f'<script type="application/json" id="data">{_inert(data)}</script>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )
    return text.encode("utf-8", "backslashreplace")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _inert(data: object) -> str:
    """JSON that ends no script element and opens no comment, whatever its strings are."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _graph(graph: PageGraph) -> dict[str, Any]:
    levels = graph.levels
    return {
        "title": shown(graph.title), "note": shown(graph.note), "top": levels.top, "notes": [shown(n) for n in levels.notes],
        "nodes": [_node(n, graph.details.get(n.id, {})) for n in levels.view.nodes],
        "edges": [[e.source, e.target, e.kind] for e in levels.view.edges],
        "scenes": [_scene(s, t, levels) for s, t in zip(levels.scenes, levels.titles, strict=True)],
    }  # fmt: skip


def _node(n: ViewNode, detail: Detail) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": n.kind, "title": shown(n.title), "family": _family(n), "at": shown(n.address)}
    if n.name:
        found["name"] = shown(n.name)
    if n.line:
        found["line"] = n.line
    if detail:
        found.update(detail)
    else:
        found.update({"tip": shown(n.tooltip), "type": shown(n.shape)})
    return found


def _scene(scene: Scene, title: str, levels: Levels) -> dict[str, Any]:
    view = scene.view
    place = {n.id: k for k, n in enumerate(view.nodes)}
    return {
        "title": shown(title), "size": [round(scene.width), round(scene.height)],
        "notes": [shown(n) for n in view.notes],
        "boxes": [_box(n, scene, levels) for n in view.nodes],
        "edges": [[place[x.edge.source], place[x.edge.target], x.edge.kind, path(x, sideways=view.sideways), shown(x.edge.label),
                   *([round(x.at[0]), round(x.at[1])] if x.at else [])] for x in scene.lines],
        "frames": [[*map(round, scene.frames[c.id]), shown(c.title), c.kind] for c in view.clusters if c.id in scene.frames],
    }  # fmt: skip


def _box(n: ViewNode, scene: Scene, levels: Levels) -> list[Any]:
    """Place, kind, family, texts, the runs of nodes it stands for, and the scene that opens it."""
    members = n.members or (n.id,)
    place = [round(v, 1) for v in scene.boxes[n.id]]
    return [*place, n.kind, _family(n), shown(n.title), shown(n.subtitle), _runs(members), levels.inside.get(members, -1)]


def _family(n: ViewNode) -> str:
    return n.family if n.family in HUES else "other"


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Ids as runs `[first, how many]`."""
    runs: list[list[int]] = []
    for k in sorted(ids):
        if runs and runs[-1][0] + runs[-1][1] == k:
            runs[-1][1] += 1
        else:
            runs.append([k, 1])
    return runs


def _colours() -> str:
    """The themes as variables; without a wish of the reader the system's choice counts."""
    light, dark = (_variables(THEMES[name]) for name in ("light", "dark"))
    return (f":root{{{light}}}\n[data-theme=dark]{{{dark}}}\n"
            f"@media (prefers-color-scheme: dark){{[data-theme=auto]{{{dark}}}}}\n" + _classes())  # fmt: skip


def _variables(theme: Theme) -> str:
    found = {"ground": theme.ground, "text": theme.text, "faint": theme.faint}
    for family in FAMILIES:
        found[f"fill-{family}"], found[f"line-{family}"] = theme.colours(family)
    found |= {f"edge-{kind}": colour for kind, colour in theme.edges.items()}
    for kind, (ground, border) in theme.clusters.items():
        found[f"frame-{kind}"], found[f"border-{kind}"] = ground, border
    return f"color-scheme:{theme.name};" + "".join(f"--{k}:{v};" for k, v in found.items())


def _classes() -> str:
    rules = [f".f-{f}{{fill:var(--fill-{f});stroke:var(--line-{f})}}" for f in FAMILIES]
    rules += [f".e-{kind}{{stroke:var(--edge-{kind})}}.m-{kind}{{fill:var(--edge-{kind})}}" for kind in THEMES["light"].edges]
    rules += [f".c-{kind}{{fill:var(--frame-{kind});stroke:var(--border-{kind})}}" for kind in THEMES["light"].clusters]
    return "\n".join(rules) + "\n"

